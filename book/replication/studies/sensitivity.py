"""Other readings of what the papers leave open, each against ours on the same texts.

Setup(inputs)                     one target: its texts whole and cut, each with every detector's scores (Texts)
Reading(choice, words, scores)    what others do: other scores, or another rule for the TPR
compare_reading(setup, reading)   differences of AUC and TPR with intervals, texts touched, places among detectors
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, norm

from mialib import metrics
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Interval, split_scores
from mialib.passes.inputs import Inputs, cut_inputs, score_all, split_lengths, unavailable_reason
from mialib.token_stats import TokenRow, TokenStats
from replication.results import Result, label_of, needs_more

PASSES = ("stats", "lowercase", "reference")  # that the papers' detectors read
FPR = 0.05
SHORT_K = 5  # Min-K%'s k on the texts cut short: of fewer than 20 tokens it leaves none
N_RESAMPLES = 1000
FEWEST = 10  # scored texts of a class for a difference of AUCs: with 5 the 95% interval covers 83%, with 10 92%

Rule = Callable[[FloatArray, FloatArray], float]  # FPR and TPR of each threshold, both from 0 to 1 -> TPR


class NotApplicable(ValueError):
    """A reading has no meaning for this model and these texts; says why in one sentence."""


# --- TPR at an FPR ---


def at_most(fpr: FloatArray, tpr: FloatArray) -> float:
    """Ours, `metrics.tpr_at_fpr`: the largest TPR of a threshold whose FPR is at most 5%."""
    return float(tpr[fpr <= FPR + 1e-12].max())


def roc_points(members: FloatArray, non_members: FloatArray) -> tuple[FloatArray, FloatArray]:
    """FPR and TPR of every threshold, as `metrics.roc` gives them."""
    as_they_are = (np.ones((1, len(of)), int) for of in (members, non_members))
    [points] = resampled_roc_points(members, non_members, *as_they_are)
    return points


def resampled_roc_points(
    members: FloatArray, non_members: FloatArray, times_members: NDArray[np.integer], times_others: NDArray[np.integer]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """FPR and TPR of every threshold in each of R resamples: members (m,) drawn `times_members` (R, m), others alike.

    NotApplicable where a resample holds none of a class.
    """
    thresholds = np.unique(np.concatenate([members, non_members]))[::-1]
    shares = []
    for scores, times in ((non_members, times_others), (members, times_members)):
        if not times.any(axis=1).all():
            raise NotApplicable("so few texts of a class are scored that a resample holds none")
        order = np.argsort(-scores)
        n_above = np.cumsum(times[:, order], axis=1)  # drawn texts, from the highest score down
        n_scores = np.searchsorted(-scores[order], -thresholds, side="right")  # at or above each threshold, one or more
        n_above = np.hstack([np.zeros((len(times), 1), int), n_above])[:, np.append(0, n_scores)]
        shares.append(n_above / n_above[:, -1:])  # counts before shares: 1 - 475 / 500 is a little over 0.05
    yield from zip(*shares, strict=True)


# --- paired differences, where a reading may give some texts no score ---


def compare_aucs(labels: ArrayLike, other: ArrayLike, ours: ArrayLike) -> Interval:
    """AUC of `other` on the texts that it scores minus AUC of `ours` on all of them, (N,) each, paired.

    Where `other` is NaN for some texts, its AUC is a mean over fewer placements, and each weighs more in the variance
    of the difference, by N over the number that is left. NotApplicable for fewer than `FEWEST` scored of a class.
    """
    labels, other, ours = np.asarray(labels), np.asarray(other, np.float64), np.asarray(ours, np.float64)
    scored = ~np.isnan(other)
    if scored.all():
        return metrics.compare_auc(labels, other, ours).difference
    members, non_members = (int((scored & (labels == label)).sum()) for label in (1, 0))
    if min(members, non_members) < FEWEST:
        raise NotApplicable(
            f"{members} members and {non_members} non-members are scored, and it takes {FEWEST} of each"
        )
    sides, our_sides = split_scores(labels[scored], other[scored]), split_scores(labels, ours)
    difference, variance = metrics.auc(labels[scored], other[scored]) - metrics.auc(labels, ours), 0.0
    for label, left, whole in zip((1, 0), metrics.placements(*sides), metrics.placements(*our_sides), strict=True):
        mask = scored[labels == label]
        influence = -(whole - whole.mean())
        influence[mask] += (left - left.mean()) * len(mask) / mask.sum()
        variance += influence.var(ddof=1) / len(mask)
    half = norm.ppf(0.975) * np.sqrt(variance)
    return Interval(float(difference), float(difference - half), float(difference + half))


def compare_tprs(labels: ArrayLike, other: ArrayLike, ours: ArrayLike, rule: Rule = at_most) -> Interval:
    """TPR at 5% FPR of `other` by a rule, on the texts that it scores, minus that of `ours` by ours, paired.

    `metrics.compare_tpr_at_fpr` where scores alone differ, else a bootstrap like it, with two ROC curves each time.
    """
    labels, other, ours = np.asarray(labels), np.asarray(other, np.float64), np.asarray(ours, np.float64)
    if rule is at_most and not np.isnan(other).any():
        return metrics.compare_tpr_at_fpr(labels, other, ours, FPR, n_resamples=N_RESAMPLES).difference
    our_sides = split_scores(labels, ours)
    n_texts = len(our_sides[0]), len(our_sides[1])
    sides = [other[labels == label] for label in (1, 0)]
    is_scored = [~np.isnan(scores) for scores in sides]
    times = _drawn_texts(n_texts, N_RESAMPLES)
    left = [scores[of] for scores, of in zip(sides, is_scored, strict=True)]
    points = resampled_roc_points(*left, *(drawn[:, of] for drawn, of in zip(times, is_scored, strict=True)))
    theirs = np.array([rule(*of) for of in points])
    difference, *resampled = theirs - metrics.resampled_tprs(*our_sides, *times, FPR)
    return metrics.compared(float(difference), float(np.var(resampled, ddof=1)), n_texts).difference


@lru_cache(maxsize=1)
def _drawn_texts(n_texts: tuple[int, int], n_resamples: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`metrics.resampled_texts` by other draws, those of the recorded results."""
    rng = np.random.default_rng(0)
    draws = [[np.bincount(rng.choice(n, n), minlength=n) for n in n_texts] for _ in range(n_resamples)]
    of_members, of_others = (
        np.vstack([np.ones(n, int), *of]) for n, of in zip(n_texts, zip(*draws, strict=True), strict=True)
    )
    return of_members, of_others


# --- what a reading is a function of ---


@dataclass(frozen=True)
class Texts:
    """Texts, and the scores of every detector that applies to them, as mialib computes them."""

    inputs: Inputs
    ours: dict[str, FloatArray]  # (N,) by detector
    k: float  # of Min-K% and Min-K%++

    @classmethod
    def of(cls, inputs: Inputs, k: float = DETECTORS["min_k"].hyperparameters["k"]) -> Texts:
        """The scores of all detectors, by default with the papers' k."""
        return cls(inputs, applicable_scores(inputs, **{name: {"k": k} for name in ("min_k", "min_k++")}), k)

    @property
    def labels(self) -> NDArray[np.int8]:
        """(N,), 1 = member."""
        return self.inputs.labels

    def rows(self, name: str = "stats") -> list[TokenRow]:
        """The statistics of each text, in float64, from one of PASSES."""
        return [TokenRow(row.token_ids, *(of.astype(np.float64) for of in row[1:])) for row in self.inputs[name]]

    def take(self, indices: NDArray[np.integer], name: str) -> Texts:
        """The texts with these numbers."""
        scores = {detector: of[indices] for detector, of in self.ours.items()}
        return Texts(self.inputs.take(indices, f"{self.inputs.labelled.name}, {name}"), scores, self.k)


@dataclass(frozen=True, eq=False)  # hashed by identity: what was trained for one is kept
class Setup:
    """One target: its texts whole, cut short for k% of few tokens, and cut to a length that only some detectors see."""

    inputs: Inputs
    n_words: int = 16  # of the texts cut short
    cut_words: int = 32  # of those cut to a length
    unseen: str | None = None  # texts that the probe learns from, as in `replication.builders.unseen`; None: no probe
    n_training: int = 200  # of them

    @cached_property
    def whole(self) -> Texts:
        """The texts as they are."""
        return Texts.of(self.inputs)

    @cached_property
    def short(self) -> Texts:
        """Cut to a few words, with k = 5."""
        return Texts.of(self._cut(self.n_words), SHORT_K)

    @cached_property
    def cut(self) -> Texts:
        """Cut to a length."""
        return Texts.of(self._cut(self.cut_words))

    def _cut(self, n_words: int) -> Inputs:
        try:
            split_lengths(self.inputs.labelled, [n_words])
        except ValueError as error:
            raise NotApplicable(str(error)) from error
        return cut_inputs(self.inputs, n_words)[0]


def applicable_scores(inputs: Inputs, **given: Any) -> dict[str, FloatArray]:
    """`score_all` without the detectors that are not applicable."""
    return {name: scores for name, scores in score_all(inputs, **given).items() if scores is not None}


def rescored(
    setup: Setup, detectors: Iterable[str] | None = None, **passes: TokenStats | None
) -> tuple[Texts, dict[str, FloatArray]]:
    """The whole texts, and the scores of detectors with other passes in the place of ours: `stats`, `reference`, ..."""
    try:
        for stats in filter(None, passes.values()):
            stats.check_finite()
    except ValueError as error:
        raise NotApplicable(str(error)) from error
    names = [name for name in detectors or setup.whole.ours if name in setup.whole.ours]
    return setup.whole, applicable_scores(setup.inputs.given(**passes), detectors=names)


def check_first_token(inputs: Inputs) -> None:
    """NotApplicable where the first token is not scored, or a text has no other."""
    if inputs.stats.provenance.get("start_token_id") is None:
        raise NotApplicable("our own pass of this model has no start token")
    if min(inputs[name].n_tokens.min() for name in PASSES if inputs[name] is not None) < 2:
        raise NotApplicable("a text has one token, which is the first: nothing of it would be scored")


@dataclass(frozen=True)
class Reading:
    """What others do, where the papers leave a choice open.

    `scores` takes a setup and gives the texts and other scores (N,) by detector, NaN where a text gets none.
    """

    choice: str
    words: str
    scores: Callable[[Setup], tuple[Texts, dict[str, FloatArray]]]
    detector: str | None = None  # None: it concerns all whose scores it gives
    rule: Rule = at_most
    runs_model: bool = False  # it takes a pass over the model's weights

    def __str__(self) -> str:
        return f"{self.choice}: {self.words}"


# --- measuring ---


@dataclass(frozen=True)
class Finding:
    """One reading and detector against ours; only `why` where it is not applicable."""

    reading: Reading
    column: str  # the target's
    detector: str | None
    why: str = ""
    n_texts: int = 0
    n_changed: int = 0  # texts of another score
    n_dropped: int = 0  # texts without one
    aucs: tuple[Interval, Interval] | None = None  # ours, other
    auc: Interval | None = None  # other minus ours
    tpr: Interval | None = None  # other minus ours
    tpr_needs: str = ""  # what to say in its place where the non-members are too few for one
    places: tuple[int, int] | None = None  # among the detectors, 1 is the highest; by TPR where the rule differs
    n_detectors: int = 0
    tau: float | None = None  # Kendall's, of the two orders

    @property
    def label(self) -> str:
        """The detector as the papers' tables print it."""
        return label_of(self.detector) if self.detector else "all"

    @property
    def moved(self) -> tuple[float, float]:
        """How far AUC and TPR move."""
        if not self.auc:
            return -1.0, -1.0
        return abs(self.auc.estimate), abs(self.tpr.estimate) if self.tpr else 0.0


def compare_reading(setup: Setup, reading: Reading) -> list[Finding]:
    """Compare one reading on one target: a finding a detector, or one that says why it is not applicable."""
    column = setup.inputs.target.column
    try:
        if reading.detector in DETECTORS and reading.detector not in setup.whole.ours:
            raise NotApplicable(unavailable_reason(setup.inputs, reading.detector))
        if reading.runs_model and not setup.inputs.source.has_weights:
            raise NotApplicable("the model is behind an API, and this takes a pass of its own over its weights")
        return _compare(reading, column, *reading.scores(setup))
    except NotApplicable as error:
        return [Finding(reading, column, reading.detector, why=str(error))]


def _compare(reading: Reading, column: str, texts: Texts, other: dict[str, FloatArray]) -> list[Finding]:
    """A finding for each detector that the reading concerns: its scores and its place among all."""
    rule, labels = reading.rule, texts.labels
    by_auc = rule is at_most
    ours_by, other_by = (
        {name: _height(labels, scores, None if by_auc else rule) for name, scores in of.items()}
        for of, rule in ((texts.ours, at_most), (texts.ours | other, rule))
    )
    tau = kendalltau(list(ours_by.values()), list(other_by.values())).statistic if len(ours_by) > 1 else None
    needs, findings = needs_more("tpr_at_5_fpr", labels), []
    for name in [reading.detector] if reading.detector else other:
        ours, theirs = texts.ours[name], other[name]
        scored = ~np.isnan(theirs)
        finding = Finding(
            reading=reading,
            column=column,
            detector=name,
            n_texts=len(labels),
            n_changed=int((~np.isclose(theirs[scored], ours[scored], rtol=1e-9, atol=0)).sum()),  # but for a last digit
            n_dropped=int((~scored).sum()),
            aucs=(metrics.auc_interval(labels, ours), metrics.auc_interval(labels[scored], theirs[scored])),
            auc=compare_aucs(labels, theirs, ours),
            tpr=None if needs else compare_tprs(labels, theirs, ours, rule),
            tpr_needs=needs,
            places=(_place(ours_by, name), _place(other_by, name)),
            n_detectors=len(ours_by),
            tau=None if tau is None else float(tau),
        )
        findings.append(finding)
    return findings


def _place(by: dict[str, float], name: str) -> int:
    """A detector's place in an order, 1 for the highest; level ones share the better place."""
    return 1 + sum(height > by[name] for height in by.values())


def _height(labels: NDArray[np.int8], scores: FloatArray, rule: Rule | None) -> float:
    """What detectors are ordered by, on the texts that have a score: AUC, or TPR by a rule."""
    scored = ~np.isnan(scores)
    if len(np.unique(labels[scored])) < 2:
        raise NotApplicable(f"{int(scored.sum())} of {len(scores)} scores are left, at the labels of one class alone")
    labels, scores = labels[scored], scores[scored]
    return metrics.auc(labels, scores) if rule is None else rule(*roc_points(*split_scores(labels, scores)))


def most_moved(findings: Iterable[Finding]) -> list[Finding]:
    """Of each reading and target the detector whose AUC it moves most, or whose TPR where no AUC moves."""
    most: dict[tuple[str, Reading], Finding] = {}
    for finding in findings:
        key = finding.column, finding.reading
        most[key] = max(most.get(key, finding), finding, key=lambda one: one.moved)
    return list(most.values())


def as_results(findings: Iterable[Finding]) -> list[Result]:
    """Every finding as results: what each reading adds to AUC and TPR of each detector, and both AUCs."""
    results = []
    for f in findings:
        ours, other = f.aucs or (None, None)
        intervals = {"auc_difference": f.auc, "tpr_at_5_fpr_difference": f.tpr, "auc_ours": ours, "auc_other": other}
        about = {"row": f"{f.reading} ({f.label})", "column": f.column, "why": f.why or f.tpr_needs}
        results += [Result.of(metric=metric, interval=interval, **about) for metric, interval in intervals.items()]
    return results
