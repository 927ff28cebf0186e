"""The choices that the papers leave open: what each other reading does to the numbers, on the same texts.

Scene     texts with their labels and every detector's scores as mialib computes them
CHOICES   each choice: ours in words, and others' readings, each a function of the scene to other scores, or another
          rule that reads a TPR off a ROC curve
measure   for each reading and detector: AUC and TPR of both, paired differences, texts that it touches, and its place
          among all detectors
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from textwrap import fill
from typing import NamedTuple

import numpy as np
import pandas as pd
from IPython.display import Markdown
from numpy.typing import ArrayLike, NDArray
from pandas.io.formats.style import Styler

from mialib.book import surp
from mialib.book.probe_tables import REAL, probe_with, unseen_texts
from mialib.book.results import DASH, Result, unbroken
from mialib.catalog.api import is_api
from mialib.catalog.corpora import HUB_CORPORA, reference_texts, split_prefix
from mialib.catalog.models import load_tokenizer
from mialib.detectors import DETECTORS, FloatArray, dc_pdd, detect, get_detector
from mialib.frequency import TokenFrequency
from mialib.metrics import (
    Interval,
    auc,
    auc_interval,
    compare_auc,
    compare_tpr_at_fpr,
    placements,
    split_scores,
    tpr_at_fpr,
)
from mialib.passes.cache import other_statistics_or_load, score_or_load
from mialib.passes.inputs import Inputs, cut_inputs, score_all, split_lengths
from mialib.token_stats import TokenRow, TokenStats

FPR = 0.05
SHORT_K = 5  # Min-K%'s k on the texts cut short: of fewer than 20 tokens it leaves none
N_RESAMPLES = 1000
FEWEST = 10  # scored texts of a class for a difference of AUCs: with 5 the 95% interval covers 83%, with 10 92%
PROBE = "probe"
WHY = {  # a detector has no scores where this input is missing
    "lowercase": "the texts have no upper and lower case",
    "reference": "no smaller model is named (references)",
    "frequency": "no reference corpus is named (corpora), or the token ids are not known",
    "neighbors": "no neighbors were made",
}


class NotApplicable(ValueError):
    """A reading has no meaning for this model and these texts; says why in one sentence."""


# --- TPR at an FPR: rules that read it off a ROC curve ---

Rule = Callable[[FloatArray, FloatArray], float]  # FPR and TPR of each threshold, both from 0 to 1 -> TPR


def at_most(fpr: FloatArray, tpr: FloatArray) -> float:
    """Ours, `metrics.tpr_at_fpr`: the largest TPR of a threshold whose FPR is at most 5%."""
    return float(tpr[fpr <= FPR + 1e-12].max())


def strictly_below(fpr: FloatArray, tpr: FloatArray) -> float:
    """The largest TPR with an FPR below 5%: a threshold that accepts 25 of 500 does not count."""
    return float(tpr[fpr < FPR - 1e-12].max())


def nearest(fpr: FloatArray, tpr: FloatArray) -> float:
    """The TPR of the threshold whose FPR is nearest to 5%, which may lie above it; of several the largest."""
    distance = np.abs(fpr - FPR)
    return float(tpr[distance <= distance.min() + 1e-12].max())


def interpolated(fpr: FloatArray, tpr: FloatArray) -> float:
    """The TPR at exactly 5% on a straight line between two thresholds, though none of them has it."""
    return float(np.interp(FPR, fpr, tpr))


def of_non_members(fpr: FloatArray, tpr: FloatArray) -> float:
    """The TPR where high is a non-member: the share of non-members found with at most 5% of the members among them."""
    return at_most(1 - tpr[::-1], 1 - fpr[::-1])


def roc_points(members: FloatArray, non_members: FloatArray) -> tuple[FloatArray, FloatArray]:
    """FPR and TPR of every threshold, as `metrics.roc` gives them, fast enough for a bootstrap."""
    thresholds = np.unique(np.concatenate([members, non_members]))[::-1]
    # Counts before shares: 1 - 475 / 500 is a little over 0.05.
    counts = [len(of) - np.searchsorted(np.sort(of), thresholds, side="left") for of in (non_members, members)]
    fpr, tpr = (np.concatenate([[0.0], n / n[-1]]) for n in counts)
    return fpr, tpr


# --- paired differences, where a reading may give some texts no score ---


def compare_aucs(labels: ArrayLike, other: ArrayLike, ours: ArrayLike) -> Interval:
    """AUC of `other` on the texts that it scores minus AUC of `ours` on all of them, paired.

    Where `other` scores every text this is `metrics.compare_auc`. Where it is NaN for some, its AUC is a mean over
    fewer placements; each then weighs more in the variance of the difference, by N over the number that is left.
    NotApplicable where `other` leaves texts out and scores fewer than `FEWEST` of a class.
    """
    from scipy.stats import norm

    labels, other, ours = np.asarray(labels), np.asarray(other, np.float64), np.asarray(ours, np.float64)
    kept = ~np.isnan(other)
    if kept.all():
        return compare_auc(labels, other, ours).difference
    if min(n_left := [int((kept & (labels == label)).sum()) for label in (1, 0)]) < FEWEST:
        raise NotApplicable(
            f"{n_left[0]} members and {n_left[1]} non-members are scored, and it takes {FEWEST} of each"
        )
    of_other, of_ours = split_scores(labels[kept], other[kept]), split_scores(labels, ours)
    difference = auc(labels[kept], other[kept]) - auc(labels, ours)
    variance = 0.0
    for label, left, whole in zip((1, 0), placements(*of_other), placements(*of_ours), strict=True):
        own = kept[labels == label]
        influence = -(whole - whole.mean())
        influence[own] += (left - left.mean()) * len(own) / own.sum()
        variance += influence.var(ddof=1) / len(own)
    half = norm.ppf(0.975) * np.sqrt(variance)
    return Interval(float(difference), float(difference - half), float(difference + half))


def compare_tprs(labels: ArrayLike, other: ArrayLike, ours: ArrayLike, rule: Rule = at_most, seed: int = 0) -> Interval:
    """TPR at 5% FPR of `other` by a rule, on the texts that it scores, minus that of `ours` by ours, paired.

    Where nothing but scores differs this is `metrics.compare_tpr_at_fpr`; else a bootstrap like it, a ROC curve each
    time.
    """
    labels, other, ours = np.asarray(labels), np.asarray(other, np.float64), np.asarray(ours, np.float64)
    if rule is at_most and not np.isnan(other).any():
        return compare_tpr_at_fpr(labels, other, ours, FPR, n_resamples=N_RESAMPLES, seed=seed).difference
    by_class = [(other[labels == label], ours[labels == label]) for label in (1, 0)]
    rng = np.random.default_rng(seed)
    differences = []
    for at in range(1 + N_RESAMPLES):  # the first is of the texts as they are
        drawn = [rng.choice(len(b), len(b)) if at else slice(None) for _, b in by_class]
        theirs = [a[i][~np.isnan(a[i])] for (a, _), i in zip(by_class, drawn, strict=True)]
        if not all(map(len, theirs)):
            raise NotApplicable("so few texts of a class are scored that a resample holds none")
        whole = [b[i] for (_, b), i in zip(by_class, drawn, strict=True)]
        differences.append(rule(*roc_points(*theirs)) - at_most(*roc_points(*whole)))
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    return Interval(float(differences[0]), float(low), float(high))


# --- what a reading is a function of ---


@dataclass(frozen=True)
class Scene:
    """Texts, and the scores of every detector that applies to them, as mialib computes them."""

    inputs: Inputs
    ours: dict[str, FloatArray]  # (N,) by detector
    k: float | None = None  # of Min-K%, where it is not the default

    @property
    def labels(self) -> NDArray[np.int8]:
        """(N,), 1 = member."""
        return self.inputs.labels


@dataclass(frozen=True)
class Setup:
    """One target, and what its readings are held against."""

    inputs: Inputs
    n_words: int = 16  # texts cut short, for k% of few tokens
    cut_words: int = 32  # texts cut to a length, for what only some detectors see
    unseen: str | None = None  # what the probe learns from, named as in `mialib.unseen`; None for no probe
    n_training: int = 200

    @cached_property
    def whole(self) -> Scene:
        """The texts as they are."""
        return Scene(self.inputs, _applicable(score_all(self.inputs)))

    @cached_property
    def short(self) -> Scene:
        """Cut to a few words, with Min-K%'s and Min-K%++'s k = 5."""
        cut, k = self._cut(self.n_words), {"k": SHORT_K}
        return Scene(cut, _applicable(score_all(cut, **{"min_k": k, "min_k++": k})), SHORT_K)

    @cached_property
    def cut(self) -> Scene:
        """Cut to a length."""
        cut = self._cut(self.cut_words)
        return Scene(cut, _applicable(score_all(cut)))

    def _cut(self, n_words: int) -> Inputs:
        try:
            split_lengths(self.inputs.benchmark, [n_words])
        except ValueError as error:
            raise NotApplicable(str(error)) from error
        return cut_inputs(self.inputs, n_words)[0]


def _applicable(scores: Mapping[str, FloatArray | None]) -> dict[str, FloatArray]:
    return {name: values for name, values in scores.items() if values is not None}


class Case(NamedTuple):
    """A reading beside ours, on the same texts."""

    scene: Scene
    other: dict[str, FloatArray]  # (N,) of the detectors that it changes; NaN where it gives a text no score


@dataclass(frozen=True)
class Reading:
    """What others do."""

    words: str
    make: Callable[[Setup], Case]
    detector: str | None = None  # None: it concerns all
    rule: Rule = at_most


@dataclass(frozen=True)
class Choice:
    """A choice that the papers leave open."""

    name: str
    ours: str
    others: tuple[Reading, ...]


# --- the readings ---


def same_scores(setup: Setup) -> Case:
    """The scores are ours; what differs is the rule that reads the TPR."""
    return Case(setup.whole, dict(setup.whole.ours))


def negated(setup: Setup) -> Case:
    """Every score with the other sign: AUC becomes 1 - AUC."""
    return Case(setup.whole, {name: -scores for name, scores in setup.whole.ours.items()})


def count_of(n: int, k: float, rounded: Callable[[float], float]) -> int:
    """How many tokens k% of n are when the product is rounded in a way, possibly none."""
    return int(rounded(round(n * k / 100, 9)))  # 0.07 * 100 is a little over 7


def min_k_rounded(setup: Setup, scene: str, rounded: Callable[[float], float]) -> Case:
    """Min-K% of as many tokens as the rounded product says; NaN, the mean of nothing, where it says none."""
    at: Scene = getattr(setup, scene)
    k = at.k or DETECTORS["min_k"].hyperparameters["k"]
    scores = np.full(len(at.labels), np.nan)
    for i, row in enumerate(at.inputs.stats):
        if m := count_of(len(row.log_prob), k, rounded):
            scores[i] = np.sort(row.log_prob.astype(np.float64))[:m].mean()
    return Case(at, {"min_k": scores})


def misaligned(setup: Setup, shuffled: bool) -> Case:
    """Min-K% with the NaN of empty sets dropped from the scores and not from the labels, so that rows move up.

    The scores stand at the labels of the first texts, and the last labels have none.
    """
    at, scores = setup.short, min_k_rounded(setup, "short", np.floor).other["min_k"]
    order = np.random.default_rng(0).permutation(len(scores)) if shuffled else np.arange(len(scores))
    left = scores[order][~np.isnan(scores[order])]
    moved = np.full(len(scores), np.nan)
    moved[order[: len(left)]] = left
    return Case(at, {"min_k": moved})


def without_start_token(setup: Setup) -> Case:
    """Passes that prepend nothing: the first token is read and never scored. Lowercase, for want of its pass, is left
    out; `without_first_token` has it."""
    inputs = setup.inputs
    _check_runs_here(inputs)
    _check_first_is_scored(inputs)
    texts, models = inputs.benchmark.texts, {"stats": inputs.target.model}
    if inputs.reference is not None:
        models["reference"] = inputs.target.reference
    passes = {name: score_or_load(model, texts, start_token=None) for name, model in models.items()}
    return Case(setup.whole, _applicable(score_all(replace(inputs, lowercase=None, **passes))))


def without_first_token(setup: Setup) -> Case:
    """The passes with a start token, their first token's statistics left out."""
    inputs = setup.inputs
    _check_first_is_scored(inputs)

    def rest(stats: TokenStats | None) -> TokenStats | None:
        if stats is None:
            return None
        rows = [TokenRow(*(column[1:] for column in row)) for row in stats]
        return TokenStats.from_rows(rows, provenance=stats.provenance)

    passes = {name: rest(getattr(inputs, name)) for name in ("stats", "lowercase", "reference")}
    return Case(setup.whole, _applicable(score_all(replace(inputs, **passes))))


def _check_runs_here(inputs: Inputs) -> None:
    if is_api(inputs.target.model):
        raise NotApplicable("the model is behind an API, and this takes a pass of its own over its weights")


def _check_first_is_scored(inputs: Inputs) -> None:
    if inputs.stats.provenance.get("start_token_id") is None:
        raise NotApplicable("our own pass of this model has no start token")
    if min(stats.n_tokens.min() for stats in inputs.passes()) < 2:
        raise NotApplicable("a text has one token, which is the first: nothing of it would be scored")


def surp_reading(setup: Setup, name: str) -> Case:
    """SURP by one of `mialib.surp.VARIANTS`, at the detector's defaults."""
    given = DETECTORS["surp"].hyperparameters
    scores, _ = surp.variant_scores(setup.inputs, surp.VARIANTS[name], given["entropy_threshold"], given["k"])
    return Case(setup.whole, {"surp": scores})


def of_other_statistics(setup: Setup, kind: str, detectors: Sequence[str]) -> Case:
    """Detectors of one pass, on statistics that are computed in another way; see `mialib.other_passes`."""
    _check_runs_here(setup.inputs)
    stats = other_statistics_or_load(setup.inputs.target.model, setup.inputs.benchmark.texts)[kind]
    try:
        stats.check_finite()
    except ValueError as error:
        raise NotApplicable(f"{kind}: {error}") from error
    inputs = replace(setup.inputs, stats=stats)
    return Case(setup.whole, _applicable(score_all(inputs, [name for name in detectors if name in setup.whole.ours])))


def raw_counts(setup: Setup) -> Case:
    """DC-PDD with log(count + 1) in the place of log p(v; D'): common tokens then weigh most."""
    weights = np.log(setup.inputs.frequency.counts + 1)
    scores = [dc_pdd(row, frequency=weights) for row in setup.inputs.stats]
    return Case(setup.whole, {"dc_pdd": np.array(scores)})


def document_frequency(setup: Setup) -> Case:
    """DC-PDD with the number of reference texts that hold a token in the place of how often it occurs in them."""
    inputs, corpus = setup.inputs, setup.inputs.target.corpus
    if split_prefix(corpus)[0] in HUB_CORPORA:
        raise NotApplicable(f"{corpus} would be read a second time to count documents")
    counts = np.zeros_like(inputs.frequency.counts)
    tokenizer = load_tokenizer(inputs.target.model)
    for ids in tokenizer(list(reference_texts(corpus)), add_special_tokens=False, verbose=False)["input_ids"]:
        counts[np.asarray(ids, np.int64)] += 1  # a repeated index counts once
    frequency = TokenFrequency(counts, f"documents of {corpus}", inputs.frequency.tokenizer)
    return Case(setup.whole, {"dc_pdd": detect("dc_pdd", inputs.stats, frequency=frequency)})


def only_dc_pdd_whole(setup: Setup) -> Case:
    """DC-PDD reads the whole texts, the others texts cut to a length."""
    return Case(setup.cut, {"dc_pdd": setup.whole.ours["dc_pdd"]})


def only_dc_pdd_cut(setup: Setup) -> Case:
    """DC-PDD reads texts cut to a length, the others whole ones."""
    return Case(setup.cut, setup.whole.ours | {"dc_pdd": setup.cut.ours["dc_pdd"]})


def of_two_passes(setup: Setup, name: str, score: Callable[[TokenRow, TokenRow], float]) -> Case:
    """Small Ref or Lowercase, their two passes brought together in another way."""
    pairs = zip(setup.inputs.stats, setup.inputs.given()[get_detector(name).needs[0]], strict=True)
    return Case(setup.whole, {name: np.array([score(row, other) for row, other in pairs])})


def difference(row: TokenRow, other: TokenRow) -> float:
    """Mean log p of one pass minus that of the other, nats a token."""
    return float(row.log_prob.mean(dtype=np.float64) - other.log_prob.mean(dtype=np.float64))


def ratio_of_sums(row: TokenRow, other: TokenRow) -> float:
    """Minus the ratio of the summed losses: as many tokens as each pass has count, so a longer text has more loss."""
    return float(-row.log_prob.sum(dtype=np.float64) / other.log_prob.sum(dtype=np.float64))


def zlib_a_character(setup: Setup) -> Case:
    """Zlib's score divided by the text's characters as well."""
    characters = np.array([len(text) for text in setup.inputs.benchmark.texts])
    return Case(setup.whole, {"zlib": setup.whole.ours["zlib"] / characters})


def leaking_probe(setup: Setup) -> Case:
    """The probe with each split standardized by its own statistics, beside the other detectors on its test texts."""
    if setup.unseen is None:
        raise NotApplicable("no unseen texts are named for the probe to learn from (real)")
    _check_runs_here(setup.inputs)
    kept, training = unseen_texts(setup.inputs.benchmark, {REAL: setup.unseen}, setup.n_training)
    found = probe_with(setup.inputs.take(kept, setup.inputs.benchmark.name), training, {}).probes[REAL]
    test = kept[found.test]
    scene = Scene(
        setup.inputs.take(test, f"{setup.inputs.benchmark.name}, test texts"),
        {name: scores[test] for name, scores in setup.whole.ours.items()} | {PROBE: found.scores[found.test]},
    )
    return Case(scene, {PROBE: found.leaking.scores[found.test]})


ONE_PASS = ("ppl", "zlib", "min_k", "min_k++", "dc_pdd", "surp")
CHOICES = (
    Choice(
        "sign",
        "high = member",
        (
            Reading("negated once too often: 1 − AUC", negated),
            Reading("high = non-member, and non-members are what is found", same_scores, rule=of_non_members),
        ),
    ),
    Choice(
        "TPR at 5% FPR",
        "largest TPR with FPR ≤ 5%",
        (
            Reading("FPR < 5%", same_scores, rule=strictly_below),
            Reading("FPR nearest to 5%", same_scores, rule=nearest),
            Reading("interpolated", same_scores, rule=interpolated),
        ),
    ),
    Choice(
        "k% of n tokens",
        "max(1, ⌊nk/100⌋)",
        (
            Reading(
                "⌊nk/100⌋, texts with none dropped (short texts)",
                partial(min_k_rounded, scene="short", rounded=np.floor),
                "min_k",
            ),
            Reading(
                "rounded, texts with none dropped (short texts)",
                partial(min_k_rounded, scene="short", rounded=np.round),
                "min_k",
            ),
            Reading("⌈nk/100⌉ (short texts)", partial(min_k_rounded, scene="short", rounded=np.ceil), "min_k"),
            Reading("⌈nk/100⌉ (whole texts)", partial(min_k_rounded, scene="whole", rounded=np.ceil), "min_k"),
        ),
    ),
    Choice(
        "first token",
        "scored, after a start token",
        (
            Reading("no start token, so not scored", without_start_token),
            Reading("start token, but the first is left out", without_first_token),
        ),
    ),
    Choice(
        "SURP, low probability",
        "strictly below the percentile",
        (
            Reading("⌊nk/100⌋ lowest by rank", partial(surp_reading, name="by rank"), "surp"),
            Reading("k% of the range of log p", partial(surp_reading, name="by range"), "surp"),
        ),
    ),
    Choice(
        "SURP, no surprising token",
        "0 nats",
        (Reading("−100 nats", partial(surp_reading, name="empty scores −100"), "surp"),),
    ),
    Choice(
        "Min-K%++ moments",
        "weighted by p",
        (
            Reading(
                "plain mean and deviation over the vocabulary",
                partial(of_other_statistics, kind="unweighted", detectors=["min_k++"]),
                "min_k++",
            ),
        ),
    ),
    Choice(
        "DC-PDD, frequency",
        "smoothed, relative, of tokens",
        (
            Reading("raw counts: log(count + 1)", raw_counts, "dc_pdd"),
            Reading("documents that hold the token", document_frequency, "dc_pdd"),
        ),
    ),
    Choice(
        "DC-PDD, length",
        "all see the same cut",
        (
            Reading("DC-PDD whole, the others cut", only_dc_pdd_whole, "dc_pdd"),
            Reading("DC-PDD cut, the others whole", only_dc_pdd_cut, "dc_pdd"),
        ),
    ),
    Choice(
        "Small Ref, Lowercase",
        "ratio of log-perplexities",
        tuple(
            Reading(
                f"{DETECTORS[name].label}: {words}",
                partial(of_two_passes, name=name, score=score),
                name,
            )
            for name in ("ref", "lowercase")
            for words, score in (("difference", difference), ("ratio of summed losses", ratio_of_sums))
        ),
    ),
    Choice("Zlib", "per compressed byte", (Reading("divided by characters too", zlib_a_character, "zlib"),)),
    Choice(
        "probe, standardization",
        "fitted on its training texts",
        (Reading("each split by its own statistics", leaking_probe, PROBE),),
    ),
    Choice(
        "NaN",
        "an error that names the text",
        (
            Reading("dropped, rows misalign (members first)", partial(misaligned, shuffled=False), "min_k"),
            Reading("dropped, rows misalign (random order)", partial(misaligned, shuffled=True), "min_k"),
        ),
    ),
    Choice(
        "precision",
        "statistics in float32",
        (Reading("logits and softmax in bfloat16", partial(of_other_statistics, kind="bfloat16", detectors=ONE_PASS)),),
    ),
)


# --- measuring ---


@dataclass(frozen=True)
class Finding:
    """One reading and detector beside ours; only `why` where it is not applicable."""

    choice: Choice
    reading: Reading
    column: str  # the target's
    detector: str | None
    why: str = ""
    n_texts: int = 0
    n_changed: int = 0  # texts of another score
    n_dropped: int = 0  # texts without one
    aucs: tuple[Interval, Interval] | None = None  # ours, other
    auc: Interval | None = None  # other minus ours
    tprs: tuple[float, float] | None = None
    tpr: Interval | None = None
    places: tuple[int, int] | None = None  # among the detectors, 1 is the highest; by TPR where the rule differs
    n_detectors: int = 0
    tau: float | None = None  # Kendall's, of the two orders

    @property
    def name(self) -> str:
        """The choice and the reading, in words."""
        return f"{self.choice.name}: {self.reading.words}"

    @property
    def label(self) -> str:
        """The detector as the papers' tables print it."""
        return _label(self.detector) if self.detector else "all"

    @property
    def moved(self) -> tuple[float, float]:
        """How far AUC and TPR move."""
        return (abs(self.auc.estimate), abs(self.tpr.estimate)) if self.auc else (-1.0, -1.0)


def _label(detector: str) -> str:
    return "Probe" if detector == PROBE else DETECTORS[detector].label


def measure(setup: Setup, choices: Iterable[Choice] = CHOICES) -> list[Finding]:
    """Each reading of each choice on one target, one finding a detector that it concerns."""
    return [
        found for choice in choices for reading in choice.others for found in measure_reading(setup, choice, reading)
    ]


def measure_reading(setup: Setup, choice: Choice, reading: Reading) -> list[Finding]:
    """One reading, one finding a detector; a single one that says why where it is not applicable."""
    blank = Finding(choice, reading, setup.inputs.target.column, reading.detector)
    if reading.detector in DETECTORS and reading.detector not in setup.whole.ours:
        return [replace(blank, why=_why_missing(setup.inputs, reading.detector))]
    try:
        case = reading.make(setup)
        by_tpr = reading.rule is not at_most
        orders = [
            {name: _height(case.scene.labels, scores, rule if by_tpr else None) for name, scores in of.items()}
            for of, rule in ((case.scene.ours, at_most), (case.scene.ours | case.other, reading.rule))
        ]
        concerned = [reading.detector] if reading.detector else list(case.other)
        return [_compare(replace(blank, detector=name), case, orders) for name in concerned]
    except NotApplicable as error:
        return [replace(blank, why=str(error))]


def _why_missing(inputs: Inputs, detector: str) -> str:
    known = get_detector(detector)
    lacking = [inputs.stats.lacks[column] for column in known.reads if column in inputs.stats.lacks]
    return (lacking + [WHY[need] for need in known.needs if inputs.given()[need] is None])[0]


def _height(labels: NDArray[np.int8], scores: FloatArray, rule: Rule | None) -> float:
    """What detectors are ordered by, on the texts that have a score: AUC, or TPR by a rule."""
    kept = ~np.isnan(scores)
    if len(np.unique(labels[kept])) < 2:
        raise NotApplicable(f"{int(kept.sum())} of {len(scores)} scores are left, at the labels of one class alone")
    labels, scores = labels[kept], scores[kept]
    return auc(labels, scores) if rule is None else rule(*roc_points(*split_scores(labels, scores)))


def _compare(blank: Finding, case: Case, orders: Sequence[Mapping[str, float]]) -> Finding:
    from scipy.stats import kendalltau

    name, rule, labels = blank.detector, blank.reading.rule, case.scene.labels
    ours, other = case.scene.ours[name], case.other[name]
    kept = ~np.isnan(other)
    tpr, of_ours = compare_tprs(labels, other, ours, rule), tpr_at_fpr(labels, ours, FPR)
    many = len(orders[0]) > 1
    return replace(
        blank,
        n_texts=len(labels),
        n_changed=int(np.sum(~np.isclose(other[kept], ours[kept], rtol=1e-9, atol=0))),  # not a last digit alone
        n_dropped=int(np.sum(~kept)),
        aucs=(auc_interval(labels, ours), auc_interval(labels[kept], other[kept])),
        auc=compare_aucs(labels, other, ours),
        tprs=(of_ours, of_ours + tpr.estimate),
        tpr=tpr,
        places=tuple(1 + sum(height > order[name] for height in order.values()) for order in orders),
        n_detectors=len(orders[0]),
        tau=float(kendalltau(*(list(order.values()) for order in orders)).statistic) if many else None,
    )


# --- the page ---


def most_moved(findings: Iterable[Finding]) -> list[Finding]:
    """Of each reading and target the detector whose AUC it moves most, or whose TPR where no AUC moves."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for found in findings:
        groups.setdefault((found.column, found.name), []).append(found)
    return [max(of_one, key=lambda found: found.moved) for of_one in groups.values()]


def as_results(findings: Iterable[Finding]) -> list[Result]:
    """Every finding as results: what each reading adds to AUC and TPR of each detector, and both AUCs."""
    return [
        Result.of(row=f"{f.name} ({f.label})", column=f.column, metric=metric, interval=interval, why=f.why)
        for f in findings
        for metric, interval in {
            "auc_difference": f.auc,
            "tpr_at_5_fpr_difference": f.tpr,
            "auc_ours": f.aucs[0] if f.aucs else None,
            "auc_other": f.aucs[1] if f.aucs else None,
        }.items()
    ]


def ledger_table(findings: Iterable[Finding]) -> Styler:
    """One row a reading, of the detector that it moves most: what it does to AUC, TPR, texts and order."""
    findings, rows, printed = list(findings), [], None
    concerned = {found.name: sum(other.name == found.name for other in findings) for found in findings}
    for f in most_moved(findings):
        is_new, printed = f.choice is not printed, f.choice
        row = {
            "choice": f.choice.name if is_new else "",
            "ours": f.choice.ours if is_new else "",
            "other": f.reading.words,
            "detector": f.label + (f" (of {concerned[f.name]})" if concerned[f.name] > 1 else ""),
        }
        if f.why:
            row["AUC, ours → other"] = f"not applicable: {f.why}"
        else:
            row |= {
                "AUC, ours → other": unbroken(f"{f.aucs[0].estimate:.3f} → {f.aucs[1].estimate:.3f}"),
                "AUC, difference [95%]": unbroken(f.auc),
                "TPR at 5% FPR, difference [95%]": unbroken(f.tpr),
                "texts": _say_texts(f),
                "place": unbroken(f"{f.places[0]} → {f.places[1]}") + f" of {f.n_detectors}",
                "τ": DASH if f.tau is None or np.isnan(f.tau) else f"{f.tau:.2f}",
            }
        rows.append(row)
    small = {"selector": "td, th", "props": "font-size: 0.72em; padding: 0.2em 0.35em; text-align: left"}
    return pd.DataFrame(rows).fillna("").style.hide(axis="index").format(escape="html").set_table_styles([small])


def _say_texts(found: Finding) -> str:
    dropped = f", {found.n_dropped} dropped" if found.n_dropped else ""
    return f"{found.n_changed} of {found.n_texts}{dropped}"


def panels(findings: Iterable[Finding]) -> dict[str, dict[str, dict[str, Interval]]]:
    """For a figure: {target: {AUC or TPR: {reading: difference}}}, the reading that moves an AUC furthest first.

    Readings that move neither AUC nor TPR of any target are left out.
    """
    shown = [f for f in most_moved(findings) if not f.why]
    furthest: dict[str, tuple[float, float]] = {}
    for f in shown:
        furthest[f.name] = max(furthest.get(f.name, (0.0, 0.0)), f.moved)
    in_order = sorted((name for name, moved in furthest.items() if max(moved)), key=furthest.get, reverse=True)
    return {
        column: {
            series: {
                fill(f.name, 52): of(f) for name in in_order for f in shown if f.column == column and f.name == name
            }
            for series, of in (("AUC", lambda f: f.auc), ("TPR at 5% FPR", lambda f: f.tpr))
        }
        for column in dict.fromkeys(f.column for f in shown)
    }


def say(findings: Iterable[Finding], margin: float) -> Markdown:
    """Which readings matter, in words: by how far they move an AUC, target by target, and who changes place."""
    shown = most_moved(findings)
    names = list(dict.fromkeys(f.name for f in shown))
    by_name = {name: [f for f in shown if f.name == name and not f.why] for name in names}
    measured = {name: of for name, of in by_name.items() if of}

    def where(test: Callable[[Finding], bool]) -> list[str]:
        return [name for name, of in measured.items() if any(map(test, of))]

    far = where(lambda f: abs(f.auc.estimate) >= margin and not f.auc.low <= 0 <= f.auc.high)
    moved = where(lambda f: f.places[0] != f.places[1])
    still = [name for name in names if name in measured and max(max(f.moved) for f in measured[name]) == 0]
    effects = {name: ", ".join(f"{f.auc.estimate:+.3f}" for f in of) for name, of in measured.items()}
    groups = {
        f"Move the AUC of a detector by {margin:g} or more, with an interval that leaves out 0": [
            f"{name} ({effects[name]})" for name in far
        ],
        "Move that detector to another place among all": moved,
        "Move neither AUC nor TPR": still,
        "Not applicable on any of these targets": [name for name in names if name not in measured],
    }
    lines = [f"Of {len(names)} readings:\n"]
    for words, of in groups.items():
        lines += [f"- *{words}*: {len(of)}", *(f"    - {name}" for name in of)]
    return Markdown("\n".join(lines))
