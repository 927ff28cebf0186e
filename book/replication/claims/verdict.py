"""The verdict on a claim: `verdict` is the rule, `judge` applies it to a test's scores over several training seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from mialib.cache import JSON, cached
from mialib.catalog.sources import find
from mialib.detectors import FloatArray
from mialib.metrics import Comparison, Interval
from mialib.passes.inputs import Target
from mialib.versions import versions_of
from replication.claims.over_seeds import auc_over_seeds, compare_auc_over_seeds, compare_tpr_at_fpr_over_seeds
from replication.claims.printed import Lead, leads_of, size_of
from replication.claims.scores import claim_scores, judged_texts, seeds_of
from replication.claims.spec import CHANCE, CLAIMS_FILE, Claim, Claims, load_claims
from replication.lab.source import Lab
from replication.profile import check_names
from replication.real import Real, recorded_pairs
from replication.recorded import is_recorded, recorded_provenance
from replication.results import CONFOUNDED, FPRS, NO_DIFFERENCE, SMALLEST, UNINFORMATIVE, UNSHOWN, direction, needs_more

COMPARE: dict[str, Callable[..., Comparison]] = {"auc": compare_auc_over_seeds}
COMPARE |= {name: partial(compare_tpr_at_fpr_over_seeds, fpr=fpr) for name, fpr in FPRS.items()}
WORST_FIRST = ("not supported", NO_DIFFERENCE, "inconclusive", UNSHOWN, "supported")
SEEDS_OF_A_VERDICT = 3


@dataclass(frozen=True)
class Measured:
    """What several training seeds measured for a test; the intervals cover texts and seeds."""

    seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]  # of side a with each that it is against
    aucs: tuple[Interval, ...] = ()  # of each side, for a claimed equality of two detectors
    control: Comparison | None = None  # of side a with the claim's control
    n_control_seeds: int = 0
    seeds_dominate: bool = False  # seeds vary more than texts do: such intervals are too narrow more often


# --- the rule ---


def verdict(
    claim: Claim, measured: Measured, leads: Sequence[Sequence[Lead]], least_seeds: int = SEEDS_OF_A_VERDICT
) -> tuple[str, str]:
    """The verdict on a claim, and the reason where it is confounded or uninformative.

    An equality says nothing where all sides are at chance, or where it holds for the control, too; and no test speaks
    against a claim where what it claims could not have been found.
    """
    if len(measured.seeds) < least_seeds:
        return "inconclusive", ""
    if claim.confounded:
        return CONFOUNDED, claim.confounded
    together = worst_of(claim, verdicts_of_each(claim, measured, leads))
    if claim.uninformative and (together != "supported" or is_equality(claim)):
        return UNINFORMATIVE, claim.uninformative
    if claim.margin and is_equality(claim):
        if all(0.5 - claim.margin <= auc.low and auc.high <= 0.5 + claim.margin for auc in measured.aucs):
            return UNINFORMATIVE, "all sides are at chance"
        control = measured.control and direction(measured.control.difference, claim.margin)
        if together == control == "supported":
            return UNINFORMATIVE, "the control, which should differ, lies within the margin, too"
    return together, ""


def worst_of(claim: Claim, verdicts: Sequence[str]) -> str:
    """The worst verdict or, where `most` comparisons are claimed to hold, the worst of as few as are most."""
    best_first = sorted(verdicts, key=WORST_FIRST.index, reverse=True)
    return best_first[len(best_first) // 2 if claim.most else -1]


def is_equality(claim: Claim) -> bool:
    """Whether two detectors, and not a detector and chance, are claimed to be equal."""
    return claim.margin is not None and CHANCE not in claim.against


def verdicts_of_each(claim: Claim, measured: Measured, leads: Sequence[Sequence[Lead]]) -> list[str]:
    """What each of a claim's comparisons says by itself.

    A lead that the sample behind no printed column could have shown is beyond the paper's sample, whatever we find.
    Else an interval above 0, or within the margin of an equality, supports the claim, and one on the other side does
    not. A difference matters from 0.01 or half of the smallest printed lead on, or from what the claim itself says.
    """
    verdicts = []
    for comparison, printed in zip(measured.comparisons, leads, strict=True):
        if printed and not any(lead.could_be_shown for lead in printed):
            verdicts.append(UNSHOWN)
        else:
            matters = claim.matters or min([SMALLEST, *(lead.lead / 2 for lead in printed if lead.lead > 0)])
            verdicts.append(direction(comparison.difference, claim.margin, matters))
    return verdicts


# --- judging ---


@dataclass(frozen=True, kw_only=True)
class Judgement(Measured):
    """The verdict on one claim in one setting, and what it rests on."""

    claim: Claim
    setting: str
    place: Target
    leads: tuple[tuple[Lead, ...], ...]  # what the paper prints of each comparison
    verdict: str
    because: str = ""  # why it is uninformative or confounded
    left_out: tuple[str, ...] = ()  # recorded seeds that do not count, each with why

    @property
    def is_on_benchmark(self) -> bool:
        """Whether a real model, which nobody can train again, is judged on a benchmark by its texts alone."""
        return isinstance(find(self.place.model), Real)

    @property
    def sizes(self) -> tuple[str, ...]:
        """How each lead of ours compares with the printed ones, in words; "" where none is printed."""
        return tuple(size_of(c.difference, leads) for c, leads in zip(self.comparisons, self.leads, strict=True))

    @property
    def scale(self) -> str:
        """The kind of model that was judged: of the lab, of the ladder, a real one, or your own."""
        model = self.place.model
        if self.is_on_benchmark:
            return "benchmark"
        if is_recorded(model):
            return "real model" if "from_model" in recorded_provenance(model)["recipe"] else "ladder"
        return "lab" if isinstance(find(model), Lab) else "own model"


def judge(claims: Claims, claim: Claim, setting: str) -> Judgement:
    """Judge a claim in a setting by all its training seeds. What they measured is cached on disk, by their scores."""
    labels, seeds, left_out = seeds_of(claims, claim, setting)
    control = seeds_of(claims, claim.against_control(), setting)[1] if claim.control else {}
    return judgement(claim, setting, claims.settings[setting], _measure(claim, labels, seeds, control), left_out)


def _measure(
    claim: Claim, labels: NDArray[np.int8], seeds: Mapping[int, FloatArray], control: Mapping[int, FloatArray]
) -> Measured:
    """`measure_claim`, cached on disk."""
    as_json = TypeAdapter(Measured)
    measured = cached(
        "verdicts",
        lambda: as_json.dump_python(measure_claim(claim, labels, seeds, control)),
        JSON,
        compared=[claim.metric, is_equality(claim), labels.tolist()],
        scores=[[(seed, sha256(of.tobytes()).hexdigest()) for seed, of in by.items()] for by in (seeds, control)],
        versions=versions_of("intervals"),
    )
    return as_json.validate_python(measured)


@cache
def judge_on_benchmarks(name: str) -> tuple[Judgement, ...]:
    """Judge a claim of data/claims.yml with each real model on each benchmark where it can be tested, by the texts."""
    claims = book_claims()
    there = claims.model_copy(update={"settings": claims.on_benchmarks})
    found, tests = [], [claim for claim in claims.claims if claim.id == name]
    for claim, (setting, place) in product(tests, there.settings.items()):
        test = claim.on_benchmark(setting, place)
        if test is None or (place.model, place.benchmark) not in recorded_pairs():
            continue
        texts = judged_texts(there, test, setting)
        if not any(needs_more(test.metric, texts.labels[of]) for _, of in texts.runs):
            measured = _measure(test, texts.labels, {0: claim_scores(there, test, setting)}, {})
            found.append(judgement(test, setting, place, measured, least_seeds=1))
    return tuple(found)


def measure_claim(
    claim: Claim, labels: NDArray[np.int8], seeds: Mapping[int, FloatArray], control: Mapping[int, FloatArray]
) -> Measured:
    """Compare a test's sides over training seeds. One seed of the control is enough: it only takes a verdict away."""
    a, *others = sides = [[scores[i] for scores in seeds.values()] for i in range(len(claim.sides))]
    compare = COMPARE[claim.metric]
    of_control = [[scores[i] for scores in control.values()] for i in (0, 1)]
    return Measured(
        seeds=tuple(seeds),
        comparisons=tuple(compare(labels, a, b) for b in others),
        aucs=tuple(auc_over_seeds(labels, side) for side in sides) if is_equality(claim) else (),
        control=compare(labels, *of_control) if control else None,
        n_control_seeds=len(control),
        # For a TPR the resampling of each seed would take longer than all verdicts.
        seeds_dominate=claim.metric == "auc" and any(_seeds_dominate(labels, a, b) for b in others),
    )


def _seeds_dominate(labels: NDArray[np.int8], a: Sequence[FloatArray], b: Sequence[FloatArray]) -> bool:
    """Whether the variance of a mean difference of AUC over seeds is larger than the one that comes from the texts."""
    of_each = [compare_auc_over_seeds(labels, [one], [other]).difference for one, other in zip(a, b, strict=True)]
    of_texts = np.mean([((of.high - of.low) / 2 / 1.96) ** 2 for of in of_each])
    return len(of_each) > 1 and bool(np.var([of.estimate for of in of_each], ddof=1) / len(of_each) > of_texts)


def judgement(
    claim: Claim,
    setting: str,
    place: Target,
    measured: Measured,
    left_out: Sequence[str] = (),
    least_seeds: int = SEEDS_OF_A_VERDICT,
) -> Judgement:
    """Apply the rule to what was measured."""
    leads = leads_of(claim)
    said, because = verdict(claim, measured, leads, least_seeds)
    numbers: dict[str, Any] = vars(measured)
    about: dict[str, Any] = {"verdict": said, "because": because, "left_out": tuple(left_out)}
    return Judgement(**numbers, **about, claim=claim, setting=setting, place=place, leads=leads)


def judge_all(claims: Claims) -> list[Judgement]:
    """Judge every claim in every setting."""
    return [judge(claims, *test) for test in claims.tests()]


def judge_on(models: Sequence[str], ids: Sequence[str]) -> list[Judgement]:
    """Judge the claims with these ids in the settings of a page's models; ValueError for an unknown id."""
    claims = book_claims()
    check_names(ids, [claim.id for claim in claims.claims], f"{CLAIMS_FILE} has no claim")
    tests = [(claim.id, setting) for claim, setting in claims.tests() if claims.settings[setting].model in models]
    return [judge_once(name, setting) for name, setting in tests if name in ids]


@cache
def book_claims() -> Claims:
    """The claims of data/claims.yml, read once a process."""
    return load_claims()


@cache
def judge_once(name: str, setting: str) -> Judgement:
    """Judge a claim of data/claims.yml in a setting, once a process."""
    [claim] = [claim.at(setting) for claim in book_claims().claims if claim.id == name]
    return judge(book_claims(), claim, setting)
