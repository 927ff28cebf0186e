"""The metric behind each "not supported" is computed again by other code, and on the ladder the scores, too.

Nothing of mialib's detectors or metrics is used: pairs are counted, tokens go through the loops of `oracles`. Of the
ladder all token statistics are recorded, so its scores are computed again. Of the lab's seeds only scores are
recorded: its models are trained, or its probe is fitted, anew for any others.
"""

import numpy as np
import oracles
import pyarrow.parquet as pq
import pytest
from replication.claim_tests import judged_texts, load_claims
from replication.judging import RECORDED_FILE, judge_all, judge_one

from mialib.catalog.sources import source_of
from replication.recorded import LADDER_FOLDER, UNTOUCHED

NOT_SUPPORTED = {
    "dc-pdd-beats-min-k": "English; Chinese",
    "dc-pdd-beats-min-k-in-tpr": "Chinese",
    "dc-pdd-beats-min-k-where-both-are-tuned": "Chinese",
    "dc-pdd-beats-all-baselines": "English; Chinese",
    "dc-pdd-beats-all-baselines-in-tpr": "Chinese",
    "dc-pdd-leads-at-each-size": "English 25k; English 100k; English 400k; Chinese 100k",
    "dc-pdd-leads-at-each-length": "English, 32 words; English, 64 words; Chinese, 64 words; "
    "Chinese, 128 words; Chinese, 256 words",
    "sfo-helps": "Chinese",
    "a-of-0.01-is-best": "English; Chinese",
    "min-k-beats-baselines": "English",
    "probe-beats-baselines": "Short English",
    "probe-beats-baselines-in-tpr": "Short English",
    "neighbor-beats-loss": "Short English",
    "low-duplication-hides-contamination": "Seen once; Seen twice",
    "probe-leads-on-contamination": "Seen once, neighbors",
    "probe-leads-on-contamination-seen-twice": "Seen twice, neighbors",
    "smaller-model-finds-contamination": "Seen twice",
    "dc-pdd-beats-its-baselines-on-the-ladder": "English ladder; Chinese ladder; English real",
    "probe-beats-baselines-on-the-ladder": "English real",
}
NOT_SUPPORTED = [(claim, setting) for claim, settings in NOT_SUPPORTED.items() for setting in settings.split("; ")]
STATED = load_claims()


def auc(members, others):
    wins = (members[:, None] > others).sum() + (members[:, None] == others).sum() / 2
    return wins / (len(members) * len(others))


def tpr(members, others):
    """At an FPR of at most 5%."""
    return (members > sorted(others)[-(len(others) // 20) - 1]).mean()


def recorded_scores(claim, setting):
    """Of each seed (sides, folds, N), and which of the N texts are members."""
    of = [("setting", "==", setting), ("test", "==", STATED.test_hash(claim, setting))]
    seeds = [np.array(row["scores"]) for row in pq.read_table(RECORDED_FILE, filters=of).to_pylist()]
    return seeds, judged_texts(STATED, claim, setting).labels == 1


def of_ladder(claim, setting):
    """The same of the recorded tokens, by loops over them."""
    place = STATED.settings[setting]
    stem, small, name = (of.removeprefix("recorded/") for of in (place.model, place.reference, place.benchmark))
    texts = pq.read_table(LADDER_FOLDER / f"{name}.parquet").to_pydict()
    counts = pq.read_table(LADDER_FOLDER / f"{name}-counts.parquet")["count"].to_pylist()
    numbers, every = judged_texts(STATED, claim, setting).numbers, []
    for seed in range(3):
        names = f"{stem}-seed-{seed}", small if UNTOUCHED in small else f"{small}-seed-{seed}"
        large, other = (pq.read_table(LADDER_FOLDER / f"{name}.parquet").to_pydict() for name in names)
        columns = (large["log_prob"], large["entropy"], large["log_prob_var"], other["log_prob"], texts["token_ids"])
        columns += (large.get("probe", texts["label"]),)
        of_texts = [
            {
                "ppl": oracles.ppl(lp),
                "min_k": oracles.min_k(lp, 20),
                "ref": oracles.ratio(lp, of_small),
                "min_k++": oracles.min_k_plus_plus(lp, h, var, 20),
                "dc_pdd": oracles.dc_pdd(ids, lp, counts, 0.01, True, True),
                "probe": probe,
            }
            for lp, h, var, of_small, ids, probe in zip(*columns, strict=True)
        ]
        scores = np.array([[[of[side.detector] for of in of_texts]] for side in claim.sides])
        every.append(scores[:, :, numbers].round(12))  # the mean of equal numbers is that number but for the last digit
    return every, np.array(texts["label"])[numbers] == 1


@pytest.mark.parametrize(("name", "setting"), NOT_SUPPORTED)
def test_other_code_finds_the_difference_that_a_verdict_rests_on(name, setting):
    claim = next(claim for claim, where in STATED.tests() if (claim.id, where) == (name, setting))
    has_texts = source_of(STATED.settings[setting].model).has_texts
    seeds, is_member = (recorded_scores if has_texts else of_ladder)(claim, setting)
    judgement = judge_one(STATED, claim, setting)
    assert judgement.verdict == "not supported" and len(seeds) == len(judgement.seeds) == 3
    measure = {"auc": auc, "tpr_at_5_fpr": tpr}[claim.metric]
    of_sides = [
        np.mean([measure(row[is_member & ~np.isnan(row)], row[~is_member & ~np.isnan(row)]) for row in rows])
        for rows in zip(*(row for scores in seeds for row in scores.swapaxes(0, 1)), strict=True)
    ]
    found = [comparison.difference.estimate for comparison in judgement.comparisons]
    np.testing.assert_allclose(of_sides[0] - of_sides[1:], found, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_no_verdict_is_left_out_and_none_lacks_an_objection():
    judgements = [j for j in judge_all(STATED) if not j.claim.former_of]
    said = {(j.claim.id, j.setting): j.verdict for j in judgements}
    of = {claim.id: claim.objection for claim in STATED.claims}
    assert all(of[j.claim.repeats or j.claim.id] for j in judgements if j.verdict != "supported")
    assert set(NOT_SUPPORTED) == {test for test, verdict in said.items() if verdict == "not supported"}
