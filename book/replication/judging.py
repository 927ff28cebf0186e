"""What the lab says of each claim: verdicts over several training seeds. `replication.claim_tests` gives their scores.

A verdict rests on several training seeds, which `mialib record` keeps, each with a hash of its test and of its texts
and the versions of what scored them. A seed for which one of these is not that of this build is left out, and the page
says so. A test without a recorded seed 0, such as one of a file of your own, has seed 0 computed.
`replication.claims` makes tables of judgements.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.catalog.sources import find
from mialib.detectors import FloatArray
from mialib.metrics import Comparison, Interval, compare_auc_over_seeds, compare_tpr_at_fpr_over_seeds
from mialib.passes.inputs import Target
from replication import BOOK_DATA
from replication.claim_tests import (
    CHANCE,
    CLAIMS_FILE,
    Claim,
    Claims,
    SeedScores,
    Side,
    claim_scores,
    judged_texts,
    load_claims,
    versions_behind_test,
)
from replication.lab.source import Lab
from replication.printed_leads import METHODS, Lead, printed_leads, size_of
from replication.recorded import (
    UNTOUCHED,
    is_recorded,
    other_versions,
    read_recorded,
    recorded_models,
    recorded_provenance,
    weights_of,
)
from replication.results import CONFOUNDED, NO_DIFFERENCE, SMALLEST, UNINFORMATIVE, UNSHOWN, verdict

RECORDED_FILE = BOOK_DATA / "recorded" / "claims.parquet"
COMPARE = {
    "auc": compare_auc_over_seeds,
    "tpr_at_5_fpr": compare_tpr_at_fpr_over_seeds,
    "tpr_at_1_fpr": partial(compare_tpr_at_fpr_over_seeds, fpr=0.01),
}
WORST_FIRST = ("not supported", NO_DIFFERENCE, "inconclusive", UNSHOWN, "supported")
SEEDS_OF_A_VERDICT = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judgement:
    """What the lab says of one claim in one setting."""

    claim: Claim
    setting: str
    place: Target
    seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]  # with each side that a is against; covers texts and seeds
    leads: tuple[tuple[Lead, ...], ...]  # of each comparison, what the paper prints of it
    verdict: str
    flat_verdict: str  # by the rule before 2026-11-25: 0.01 matters, whatever the paper prints and could show
    plain_verdict: str  # by the rule before 2026-11-22: without a smallest difference that matters
    control: Comparison | None = None  # with the claim's control
    n_control_seeds: int = 0
    because: str = ""  # why it is uninformative or confounded
    seeds_dominate: bool = False  # they vary more than texts do: such intervals are too narrow more often
    left_out: tuple[str, ...] = ()  # recorded seeds that do not count, each with why

    @property
    def sizes(self) -> tuple[str, ...]:
        """Of each comparison, how our lead compares with the printed ones, in words; "" where none is printed."""
        return tuple(size_of(c.difference, leads) for c, leads in zip(self.comparisons, self.leads, strict=True))

    @property
    def scale(self) -> str:
        """What kind of model was judged: of the lab, of the ladder, a real one, or one of your own."""
        model = self.place.model
        if is_recorded(model):
            return "real model" if "from_model" in recorded_provenance(model)["recipe"] else "ladder"
        return "lab" if isinstance(find(model), Lab) else "own model"


def leads_of(claim: Claim) -> tuple[tuple[Lead, ...], ...]:
    """What the paper prints of each of a claim's comparisons; nothing where no table has it."""
    where = claim.printed
    if where is None:
        return tuple(() for _ in claim.against)
    paper = where.paper or claim.paper

    def row(side: Side) -> tuple[str, str]:
        return side.printed[0] or METHODS[paper][side.detector], side.printed[1]

    others = [None if isinstance(side, str) else row(side) for side in claim.against]
    return tuple(printed_leads(paper, where.item, where.columns, claim.metric, row(claim.a), of) for of in others)


def smallest_that_matters(claim: Claim, leads: Sequence[Lead]) -> float:
    """Of a difference: the claim's own, else 0.01 or, where that is less, half of the smallest lead that is printed."""
    return claim.matters or min([SMALLEST, *(lead.lead / 2 for lead in leads if lead.lead > 0)])


def verdict_of(claim: Claim, difference: Interval, leads: Sequence[Lead], matters: float | None = None) -> str:
    """What one of a claim's comparisons says by itself.

    A lead that no printed column's sample could have shown is beyond the paper's sample, whatever we find. `matters`
    in place of the smallest difference that matters takes the printed leads out, as former rules did.
    """
    if matters is not None:
        return verdict(difference, claim.margin, matters)
    if leads and not any(lead.could_be_shown for lead in leads):
        return UNSHOWN
    return verdict(difference, claim.margin, smallest_that_matters(claim, leads))


def verdicts_of(
    claim: Claim, comparisons: Sequence[Comparison], leads: Sequence[Sequence[Lead]], matters: float | None = None
) -> list[str]:
    """`verdict_of` each of a claim's comparisons."""
    return [verdict_of(claim, c.difference, of, matters) for c, of in zip(comparisons, leads, strict=True)]


def together(claim: Claim, verdicts: Sequence[str]) -> str:
    """The verdict of all comparisons: the worst, or the worst of as few as are most of them."""
    best_first = sorted(verdicts, key=WORST_FIRST.index, reverse=True)
    return best_first[len(best_first) // 2 if claim.most else -1]


def judge(
    claim: Claim,
    setting: str,
    place: Target,
    labels: Sequence[int],
    seeds: Sequence[SeedScores],
    control: Comparison | None = None,
) -> Judgement:
    """The verdict of several training seeds on the same texts; "inconclusive" for fewer than three.

    `control` is the comparison with the claim's control. One seed of it is enough, since it only takes a verdict away.
    """
    of_a, *of_others = ([seed.scores[i] for seed in seeds] for i in range(1 + len(claim.against)))
    comparisons = tuple(COMPARE[claim.metric](labels, of_a, of_other) for of_other in of_others)
    leads, because = leads_of(claim), ""
    if len(seeds) < SEEDS_OF_A_VERDICT:
        found = ["inconclusive"] * 3
    elif because := claim.confounded:
        found = [CONFOUNDED] * 3
    else:
        by_rule = (verdicts_of(claim, comparisons, leads, matters) for matters in (None, claim.matters or SMALLEST, 0))
        found = [together(claim, verdicts) for verdicts in by_rule]
        if because := _why_uninformative(claim, labels, seeds, control if found[0] == "supported" else None):
            found = [UNINFORMATIVE] * 3
    dominate = any(_seeds_dominate(claim, labels, of_a, of_other) for of_other in of_others)
    of_seeds = tuple(s.seed for s in seeds)
    judged = Judgement(claim, setting, place, of_seeds, comparisons, leads, *found)
    return replace(judged, control=control, because=because, seeds_dominate=dominate)


def _seeds_dominate(claim: Claim, labels: Sequence[int], a: Sequence[FloatArray], b: Sequence[FloatArray]) -> bool:
    """Whether the variance of a mean difference of AUC over seeds is larger than the one that comes from the texts."""
    if claim.metric != "auc":  # the resampling of each seed would take longer than all verdicts
        return False
    of_each = [compare_auc_over_seeds(labels, [one], [other]).difference for one, other in zip(a, b, strict=True)]
    of_texts = np.mean([((of.high - of.low) / 2 / 1.96) ** 2 for of in of_each])
    return len(of_each) > 1 and bool(np.var([of.estimate for of in of_each], ddof=1) / len(of_each) > of_texts)


def aucs_of(labels: Sequence[int], seeds: Sequence[SeedScores]) -> list[Interval]:
    """Each side's AUC over the training seeds, side a first; like a verdict's, the intervals cover texts and seeds."""
    return [auc_over_seeds(labels, [seed.scores[i] for seed in seeds]) for i in range(len(seeds[0].scores))]


def auc_over_seeds(labels: ArrayLike, scores: Sequence[FloatArray]) -> Interval:
    """Mean AUC over training seeds, with an interval that covers texts and seeds, in [0, 1].

    `scores` are (N,) of each seed, or (F, N) of each fold to choose on. The interval is that of the comparison with
    chance, under which all texts tie.
    """
    above_chance = compare_auc_over_seeds(labels, scores, [np.zeros_like(of_seed) for of_seed in scores]).difference
    low, high = max(0.0, 0.5 + above_chance.low), min(1.0, 0.5 + above_chance.high)
    return Interval(0.5 + above_chance.estimate, low, high, above_chance.level)


def _why_uninformative(
    claim: Claim, labels: Sequence[int], seeds: Sequence[SeedScores], control: Comparison | None
) -> str:
    """Why a claimed equality says nothing; "" where it does say something.

    "all at chance": each side's whole AUC interval lies in 0.5 ± the margin. Else a equals the control as well.
    """
    if claim.margin is None or CHANCE in claim.against:
        return ""
    if all(0.5 - claim.margin <= auc.low and auc.high <= 0.5 + claim.margin for auc in aucs_of(labels, seeds)):
        return "all at chance"
    is_equal = control is not None and verdict(control.difference, claim.margin) == "supported"
    return "its control lies within the margin, too" if is_equal else ""


def judge_one(claims: Claims, claim: Claim, setting: str, recorded: Path = RECORDED_FILE) -> Judgement:
    """What all seeds say of a claim in a setting."""
    labels, seeds, left_out = seeds_of(claims, claim, setting, recorded)
    control, of_control = None, []
    if claim.control:
        _, of_control, _ = seeds_of(claims, claim.against_control(), setting, recorded)
        pairs = ([seed.scores[i] for seed in of_control] for i in (0, 1))
        control = COMPARE[claim.metric](labels, *pairs)
    judged = judge(claim, setting, claims.settings[setting], labels, seeds, control)
    return replace(judged, left_out=tuple(left_out), n_control_seeds=len(of_control))


def seeds_of(
    claims: Claims, claim: Claim, setting: str, path: Path = RECORDED_FILE
) -> tuple[NDArray[np.int8], list[SeedScores], list[str]]:
    """A test's labels, its seeds' scores, and which recorded seeds are left out, each with why."""
    texts = judged_texts(claims, claim, setting)
    if is_recorded(claims.settings[setting].model):
        known = recorded_models()
        names = {name.partition("@")[0] for name in claims.models(claim, setting)}
        seeds = set.intersection(*(set(known[name]) for name in names if not name.endswith(UNTOUCHED)))
        return texts.labels, [claim_scores(claims, claim, setting, seed) for seed in sorted(seeds)], []
    fitting, left_out = [], []
    test = claims.test_hash(claim, setting)
    for seed, row in load_recorded(claim.id, setting, test, path):
        if why := _why_left_out(claims, claim, setting, row):
            left_out.append(f"seed {seed.seed}: recorded for {why}")
        else:
            fitting.append(seed)
    if 0 not in {seed.seed for seed in fitting}:
        fitting.append(claim_scores(claims, claim, setting))
    return texts.labels, sorted(fitting, key=lambda seed: seed.seed), left_out


def _why_left_out(claims: Claims, claim: Claim, setting: str, row: Mapping[str, Any]) -> str:
    """What else than this test today a recorded row was computed for; "" where it counts."""
    if row["test"] != claims.test_hash(claim, setting):
        return "another test"
    if row["texts"] != judged_texts(claims, claim, setting).made_of:
        return "other texts"
    if row["seed"] == 0 and row["weights"] != weights_of(*claims.models(claim, setting)):
        return "other weights than those of data/lab"
    return other_versions(row, versions_behind_test(claim))


def judge_all(claims: Claims, recorded: Path = RECORDED_FILE) -> list[Judgement]:
    """Every claim in every setting."""
    return [judge_one(claims, claim, setting, recorded) for claim, setting in claims.tests()]


def judge_on(models: Sequence[str], ids: Sequence[str]) -> list[Judgement]:
    """The claims with these ids in the settings of these models: what a page that ran them says over all seeds.

    Empty where the models are others than the claims are tested on. ValueError for an unknown id.
    """
    claims = load_claims()
    if unknown := set(ids) - {claim.id for claim in claims.claims}:
        raise ValueError(f"{CLAIMS_FILE}: no claim {unknown.pop()!r}")
    tests = [(claim, name) for claim, name in claims.tests() if (claim.former_of or claim.id) in ids]
    return [judge_one(claims, *test) for test in tests if claims.settings[test[1]].model in models]


# --- recorded seeds ---


def seed_rows(claims: Claims, seeds: Iterable[int], path: Path = RECORDED_FILE) -> list[dict[str, Any]]:
    """The scores of all claims' tests under models of these seeds: what is recorded; a row that still counts stays.

    Claims with the same sides share a row.
    """
    recorded = {(row["test"], row["seed"]): row for row in read_recorded(path)}
    tests: dict[str, tuple[Claim, str]] = {}
    for claim, setting in claims.tests():
        if not is_recorded(claims.settings[setting].model):  # of others all token statistics are kept
            for one in (claim, *([claim.against_control()] if claim.control else [])):
                tests.setdefault(claims.test_hash(one, setting), (one, setting))
    rows = []
    for seed in seeds:
        for test, (claim, setting) in tests.items():
            row = recorded.get((test, seed))
            if row and not _why_left_out(claims, claim, setting, row):
                rows.append(
                    row | {"claim": claim.id, "scores": [list(np.array(of, np.float32)) for of in row["scores"]]}
                )
                continue
            logger.info("seed %d: %s, %s", seed, claim.id, setting)
            scored = claim_scores(claims, claim, setting, seed)
            rows.append(
                {
                    "claim": claim.id,
                    "setting": setting,
                    "seed": seed,
                    "test": test,
                    "texts": scored.texts,
                    "weights": weights_of(*claims.models(claim, setting, seed)),
                    "versions": json.dumps(versions_behind_test(claim)),
                    # A list of lists of arrays: parquet has no arrays of three dimensions.
                    "scores": [list(of_side) for of_side in scored.scores.astype(np.float32)],
                }
            )
    return rows


def load_recorded(
    claim: str, setting: str, test: str, path: Path = RECORDED_FILE
) -> list[tuple[SeedScores, dict[str, Any]]]:
    """Recorded scores in a setting, each with its row: what it was computed for, and by.

    Those of the same test, whichever claim it was recorded for; where there are none, those of the claim's id.
    """
    same = {row["seed"]: row for row in read_recorded(path, setting=setting, test=test)}
    rows = [*same.values()] or read_recorded(path, setting=setting, claim=claim)
    return [(SeedScores(row["seed"], np.array(row.pop("scores"), np.float64), row["texts"]), row) for row in rows]
