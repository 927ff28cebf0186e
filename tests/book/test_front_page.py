"""The front page's numbers, and those of README and *How to read a page*, by code of their own from stored scores."""

import csv
import json
from itertools import product

import numpy as np
import oracles
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.stats import rankdata

from mialib.catalog.sources import find
from mialib.model_selection import stratified_split
from mialib.store import ROOT
from replication.claims import spec, tables, verdict

BUILT = ROOT / "build" / "lab" / "results"
RECORDED = ROOT / "data" / "recorded"
PLACEBO = "en-900k"  # of the lab: it has read neither side of WikiMIA
CLAIMS = spec.load_claims()
CLAIMS_BY_ID = {claim.id: claim for claim in CLAIMS.claims}


def results_in(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["results"] if isinstance(found, dict) and "results" in found else []


def auc(labels, scores):
    """How often a member scores higher, by the sum of its ranks; of scores that are not NaN."""
    labels, scores = labels[~np.isnan(scores)], scores[~np.isnan(scores)]
    m, n = (labels == 1).sum(), (labels == 0).sum()
    return (rankdata(scores)[labels == 1].sum() - m * (m + 1) / 2) / (m * n)


def recorded_aucs():
    """((model, benchmark, detector), AUC) of seven detectors on every length of WikiMIA, from the recorded numbers."""
    for path in (RECORDED / "real").glob("wikimia-*/*.parquet"):
        if path.stem == "texts":
            continue
        texts, rows = (pq.read_table(of).to_pylist() for of in (path.with_name("texts.parquet"), path))
        counts = pq.read_table(RECORDED / "real" / f"{path.stem}-counts.parquet")["wordfreq/en"].to_numpy()
        rarity = -np.log((counts + 1) / (counts.sum() + len(counts)))
        scores = {name: [] for name in ("ppl", "lowercase", "zlib", "min_k", "min_k++", "surp", "dc_pdd")}
        for text, row in zip(texts, rows, strict=True):
            log_prob, entropy, variance = (
                np.array(row[name], np.float64) for name in ("log_prob", "entropy", "log_prob_var")
            )
            first = np.unique(row["token_ids"], return_index=True)[1]
            alpha = np.minimum(np.exp(log_prob) * rarity[row["token_ids"]], 0.01)
            scores["ppl"].append(log_prob.mean())
            scores["lowercase"].append(-log_prob.mean() / np.mean(row["lower_log_prob"], dtype=np.float64))
            scores["zlib"].append(log_prob.mean() / text["zlib_bytes"][-1])
            scores["min_k"].append(oracles.min_k(log_prob, 20))
            scores["min_k++"].append(oracles.min_k_plus_plus(log_prob, entropy, variance, 20))
            scores["surp"].append(oracles.surp(log_prob, entropy, 2.5, 40) or 0.0)
            scores["dc_pdd"].append(0.01 - (0.01 - alpha[first]).mean())
        labels = np.array([text["label"] for text in texts])
        yield from (((path.stem, path.parent.name, name), auc(labels, np.array(of))) for name, of in scores.items())


@pytest.fixture(scope="module")
def english():
    """Each test's scores by the largest English model, {(claim, side): (seeds, folds, N)}, and who is a member."""
    rows = pd.read_parquet(RECORDED / "claims.parquet", filters=[("setting", "==", "English")])
    scores = {}
    for claim, of_claim in rows.groupby("claim"):
        for side in range(len(of_claim["scores"].iloc[0])):
            scores[claim, side] = np.array([np.stack(seed[side]) for seed in of_claim["scores"]])
    return scores, find("lab/en").labels[1]


@pytest.fixture(scope="module")
def numbers(english):
    """What the front page says, recomputed."""
    of_real = dict(recorded_aucs())
    scores, labels = english
    blind = [r for r in results_in(RECORDED / "blind.json") if r["column"].startswith("wikimia-")]
    counter = [r["ours"] for r in blind if r["row"] == "Blind: tf-idf" and r["metric"] == "auc"]
    with (ROOT / "data" / "published.csv").open(encoding="utf-8") as file:
        cells = [r for r in csv.DictReader(file) if r["column"].startswith("WikiMIA") and r["metric"] == "auc"]
    aucs = {
        side: np.mean([auc(labels, of) for of in seeds.reshape(-1, len(labels))])
        for side, seeds in scores.items()
        if seeds.shape[-1] == len(labels)
    }
    names = [side.detector for side in CLAIMS_BY_ID["dc-pdd-beats-all-baselines"].scored]
    one = scores["dc-pdd-beats-all-baselines", names.index("min_k++")][0, 0]
    allowed = int(0.01 * (500 + 1)) - 1  # with the text in question, one in a hundred
    threshold = sorted(one[labels == 0])[-1 - allowed]
    best = max(aucs, key=aucs.get)
    half = stratified_split(labels, 0.5, 0)[0]
    of_half = np.sort(one[half][labels[half] == 0])
    return {
        "lengths": len(counter),
        "counter": max(counter),
        "lowest counter": min(counter),
        "printed": max(float(r["value"]) for r in cells if r["value"]),
        "real": max(of for (model, _, _), of in of_real.items() if model != PLACEBO),
        "placebo": of_real[PLACEBO, "wikimia-32", "min_k"],
        "best": aucs[best],
        "best side": CLAIMS_BY_ID[best[0]].scored[best[1]],
        "found": (one[labels == 1] > threshold).mean(),
        "above": (one[labels == 0] > threshold).sum(),
        "known to Decisions": len(of_half),
        "found by Decisions": (one[labels == 1] > of_half[-1 - (int(0.01 * (len(of_half) + 1)) - 1)]).mean(),
        **{f"seen {n} times": auc_of_fine_tuned(n) for n in (1, 64)},
    }


def auc_of_fine_tuned(n):
    """Min-K% Prob's AUC of the members that the fine-tuned real model saw n times, over its three trainings."""
    aucs = []
    for path in sorted((RECORDED / "lab").glob("docstrings-smollm2-seed-*.parquet")):
        rows = pd.read_parquet(path, columns=["times", "log_prob"])
        rows = rows[rows["times"].isin([0, n])]
        lowest = [np.sort(of.astype(float))[: max(1, len(of) // 5)].mean() for of in rows["log_prob"]]
        aucs.append(auc((rows["times"] == n).to_numpy().astype(int), np.array(lowest)))
    assert len(aucs) == 3
    return np.mean(aucs)


def test_a_word_counter_beats_every_detector_at_every_length_of_wikimia(numbers):
    assert numbers["lengths"] == 4
    assert numbers["lowest counter"] > max(numbers["printed"], numbers["real"])


def test_readme_says_what_the_scores_say(numbers):
    said = (ROOT / "README.md").read_text(encoding="utf-8").partition("**What ran")[0]
    assert numbers["best side"].detector == "min_k" and numbers["above"] == 4
    for name in ("counter", "printed", "real", "placebo", "best"):
        assert f"{numbers[name]:.3f}" in said, name
    assert f"{numbers['found']:.1%}" in said


@pytest.mark.slow
@pytest.mark.skipif(not (BUILT / "index.json").is_file(), reason="no built book here: run `make book` first")
def test_the_built_front_page_says_what_the_scores_say(numbers):
    shown = {r["row"]: r["ours"] for r in results_in(BUILT / "index.json")}
    for part, name in {
        "On WikiMIA: Word counter": "counter",
        "On WikiMIA: Best detector in the papers": "printed",
        "On WikiMIA: Best of ours": "real",
        "On texts that a coin split: Best detector": "best",
        "members seen once": "seen 1 times",
        "members seen 64 times": "seen 64 times",
        "Min-K%++ Prob": "found",
    }.items():
        [value] = [value for row, value in shown.items() if part in row and not row.startswith("A coin's split")]
        assert value == pytest.approx(numbers[name], abs=1e-6), part


@pytest.mark.slow
@pytest.mark.skipif(not (BUILT / "decisions.json").is_file(), reason="no built book here: run `make book` first")
def test_decisions_finds_with_half_of_the_unseen_texts_what_the_front_page_says(numbers):
    said = [r for r in results_in(BUILT / "decisions.json") if r["metric"] == "called: members"]
    [found] = [r["ours"] for r in said if (r["row"], r["column"]) == ("Min-K%++ Prob", "0.01 target")]
    assert numbers["known to Decisions"] == 250 and found == numbers["found by Decisions"]


@pytest.mark.slow
@pytest.mark.skipif(not (BUILT / "which_detector.json").is_file(), reason="no built book here: run `make book` first")
def test_the_detector_that_the_front_page_advises_is_the_best_on_average():
    everywhere = [r for r in results_in(BUILT / "which_detector.json") if r["column"] == "without a shift: all"]
    aucs = {r["row"]: r["ours"] for r in everywhere if r["metric"] == "auc" and r["ours"] is not None}
    assert len(aucs) > 10 and max(aucs, key=aucs.get) == "Min-K%++ Prob"


@pytest.mark.parametrize(
    ("name", "setting", "ahead"),
    [
        ("dc-pdd-beats-min-k", "English", "behind by {:.3f}"),
        ("dc-pdd-beats-min-k", "Chinese", "behind by {:.3f}"),
        ("surp-beats-min-k", "English", "a tie"),
        ("surp-beats-min-k", "Chinese", "ahead by {:.3f}"),
    ],
)
def test_how_far_dc_pdd_and_surp_are_ahead_of_min_k(name, setting, ahead):
    rows = pd.read_parquet(RECORDED / "claims.parquet", filters=[("setting", "==", setting), ("claim", "==", name)])
    labels = np.sort(find(CLAIMS.settings[setting].benchmark).labels[1])[::-1]  # members come first
    aucs = [[[auc(labels, of) for of in side] for side in seed] for seed in rows["scores"]]
    a, b = np.mean(aucs, axis=(0, 2))
    [comparison] = verdict.judge(CLAIMS, CLAIMS_BY_ID[name], setting).comparisons
    assert tables.leads(comparison.difference) == ahead.format(abs(a - b))
    assert (abs(a - b) < 0.01) == (ahead == "a tie")
    assert ahead == "a tie" or (a > b) == ahead.startswith("ahead")


def test_what_no_paper_claims_is_counted_apart():
    others = {claim.id for claim in CLAIMS.claims if not claim.repeats and claim.paper not in tables.PAPERS}
    assert others == {"shift-alone-is-told", "neighbor-beats-loss", "dc-pdd-needs-its-corpus-on-the-ladder"}


# --- How to read a page ---


def how_to_read():
    return (ROOT / "book" / "how_to_read.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("lab/en-900k", "{:.1f} million parameters outside their embeddings ({:.1f} million with them)"),
        ("recorded/docstrings-19m", "{:.0f} million parameters outside their embeddings ({:.0f} million with them)"),
        ("recorded/docstrings-smollm2", "{:.0f} million parameters outside its embeddings, {:.0f} million with them"),
    ],
)
def test_parameters_are_counted_without_and_with_embeddings(model, said):
    counts = [find(model).count_parameters(embeddings=embeddings) / 1e6 for embeddings in (False, True)]
    if model.endswith("smollm2"):
        counts[1] = np.ceil(counts[1])  # 134.5, and called 135
    assert said.format(*counts) in how_to_read()


def test_a_claim_about_most_comparisons_is_supported_wrongly_more_often_than_one_about_all():
    """Three true leads of six and three differences of 0: four are needed, so one of the three by chance is enough."""
    claim, chances = CLAIMS_BY_ID["dc-pdd-beats-all-baselines"], {"supported": 0.025, "inconclusive": 0.975}
    assert claim.most and len(claim.against) == 6
    wrong = {
        most: sum(
            np.prod([chances[of] for of in by_chance])
            for by_chance in product(chances, repeat=3)
            if verdict.worst_of(claim.model_copy(update={"most": most}), ["supported"] * 3 + [*by_chance])
            == "supported"
        )
        for most in (True, False)
    }
    assert wrong[False] < 0.025 < wrong[True] <= 3 * 0.025
    assert f"{3 * 0.025:.1%} for four of six" in how_to_read()


def test_the_coverage_of_intervals_over_seeds_is_what_was_simulated():
    [share] = [
        r
        for r in results_in(RECORDED / "coverage.json")
        if r["row"].endswith("seeds dominate") and r["column"] == "AUC"
    ]
    within = f"(95% interval: {share['low']:.0%} to {share['high']:.0%})"
    said = f"{share['ours']:.0%} of the intervals contained the truth {within}"
    assert said in how_to_read()
