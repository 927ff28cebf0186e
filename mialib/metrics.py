"""How well scores separate members from non-members, with intervals. Higher score = more likely a member.

All functions take labels of shape (N,), 1 for members and 0 for non-members, and scores of shape (N,), and raise
ValueError for a label other than 0 or 1, a missing class, a score that is not finite, or lengths that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.plain import plain_array

FloatArray = NDArray[np.float64]
BySeed = Sequence[ArrayLike]  # scores of the same texts by models of several training seeds

RESAMPLES = 2000
FEW = 5  # misplaced texts, below which they say little of an AUC's variance


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        """With three digits, or as many as keep an end that is not 0 or 1 from looking like it."""
        ends = [abs(end) for end in (self.low, self.high)]
        digits = next((d for d in (3, 4, 5) if all(x in (0, 1) or round(x, d) not in (0, 1) for x in ends)), 4)
        estimate, low, high = (f"{round(x, digits) + 0.0:.{digits}f}" for x in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"


@dataclass(frozen=True)
class Comparison:
    """Difference of two detectors' metrics on the same texts, a minus b, with its two-sided p-value."""

    difference: Interval
    p_value: float


def split_scores(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The members' and the non-members' scores, checked: the one gate of this module."""
    labels, scores = plain_array(labels, "labels"), plain_array(scores, "scores", np.float64)
    if labels.shape != scores.shape or labels.ndim != 1:
        raise ValueError(f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}")
    if wrong := sorted(set(np.unique(labels).tolist()) - {0, 1}):
        raise ValueError(f"label {wrong[0]!r} is neither 0 nor 1 (1 = member)")
    if not np.isfinite(scores).all():
        i = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(f"score {scores[i]} of text {i} is not finite")
    members, non_members = scores[labels == 1], scores[labels == 0]
    if not len(members) or not len(non_members):
        raise ValueError(f"{len(members)} members and {len(non_members)} non-members; both are needed")
    return members, non_members


# --- AUC ---


def placements(members: FloatArray, non_members: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each member the share of non-members below it, for each non-member the share of members above it.

    (..., m) and (..., n), of one detector or of several. Ties count one half. These are DeLong's structural components,
    here by midranks (Sun and Xu 2014, Eq. 4-5).
    """
    from scipy.stats import rankdata

    m, n = members.shape[-1], non_members.shape[-1]
    ranks = rankdata(np.concatenate([members, non_members], axis=-1), axis=-1)
    of_members, of_non_members = (rankdata(scores, axis=-1) for scores in (members, non_members))
    return (ranks[..., :m] - of_members) / n, 1 - (ranks[..., m:] - of_non_members) / m


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: P(member scores higher) + P(tie) / 2."""
    return float(placements(*split_scores(labels, scores))[0].mean())


def aucs(labels: ArrayLike, scores: ArrayLike) -> FloatArray:
    """The AUC of each row of scores, (R, N) -> (R,): what `auc` gives, for a whole grid at once."""
    from scipy.stats import rankdata

    labels, scores = plain_array(labels, "labels"), plain_array(scores, "scores", np.float64)
    if scores.ndim != 2 or not len(scores):
        raise ValueError(f"one row of scores or more is needed, got scores of shape {scores.shape}")
    members, non_members = split_scores(labels, scores[0])
    if not np.isfinite(scores).all():
        row, i = np.argwhere(~np.isfinite(scores))[0]
        raise ValueError(f"score {scores[row, i]} of text {i} in row {row} is not finite")
    m, n = len(members), len(non_members)
    of_members = rankdata(scores, axis=1)[:, labels == 1].sum(axis=1)
    return (of_members - m * (m + 1) / 2) / (m * n)


def auc_interval(labels: ArrayLike, scores: ArrayLike, level: float = 0.95) -> Interval:
    """AUC with a score interval (Newcombe 2006): its ends lie t standard errors *of their own* from the estimate.

    At the estimate the variance is DeLong's (1988), at other AUCs it differs by as much as `_exponential_variance`
    does. Where few texts are ranked wrongly DeLong's is poorly known, and mostly too small: one below the exponential
    is drawn up to it as if `FEW` further misplaced texts had shown that. The t quantile has the degrees of freedom of
    the smaller class. `mialib coverage` simulates how often the interval holds the true AUC.
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    check_level(level)
    placed = placements(*split_scores(labels, scores))
    estimate, (m, n) = float(placed[0].mean()), map(len, placed)
    if min(m, n) == 1:  # which says nothing of its class's spread
        return Interval(estimate, 0.0, 1.0, level)
    n_misplaced, ratio = 2 * min(m, n) * min(estimate, 1 - estimate), 1.0
    if n_misplaced:
        ratio = sum(map(_variance, placed)) / _exponential_variance(estimate, m, n)
        ratio = max(ratio, (n_misplaced * ratio + FEW) / (n_misplaced + FEW))
    reach = stdtrit(min(m, n) - 1, (1 + level) / 2) * sqrt(ratio)

    def lower_end(of: float) -> float:
        def excess(end: float) -> float:
            return of - end - reach * sqrt(_exponential_variance(end, m, n))

        return float(brentq(excess, 0, of - 1e-12)) if of > 1e-9 else 0.0

    return Interval(estimate, lower_end(estimate), 1 - lower_end(1 - estimate), level)


def _exponential_variance(auc: float, m: int, n: int) -> float:
    """Variance of an AUC of exponential scores (Hanley and McNeil 1982), or of their negatives, whichever is larger."""
    high, low = sorted([auc / (1 + auc), (1 - auc) / (2 - auc)], reverse=True)
    return auc * (1 - auc) * (1 + (max(m, n) - 1) * high + (min(m, n) - 1) * low) / (m * n)


def check_level(level: float) -> None:
    """ValueError for a level of confidence that is no share between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"a level of confidence lies between 0 and 1, such as 0.95; got {level}")


def certain_within(n: int, level: float) -> float:
    """How far from a certainty the truth may lie where n of n agree: r with (1 - level) / 2 = (1 - r)^n."""
    return 1 - ((1 - level) / 2) ** (1 / n)


def compare_auc(labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, level: float = 0.95) -> Comparison:
    """AUC of `scores_a` minus AUC of `scores_b` on the same texts, paired (DeLong et al. 1988).

    The two share texts, so their AUCs are correlated; the variance of the difference of placements takes that into
    account.
    """
    return compare_auc_over_seeds(labels, [scores_a], [scores_b], level)


def compare_auc_over_seeds(labels: ArrayLike, scores_a: BySeed, scores_b: BySeed, level: float = 0.95) -> Comparison:
    """Mean AUC difference a minus b over training seeds, with an interval that covers texts, seeds *and* choices.

    `scores_a[s]` and `scores_b[s]` are the scores of the same texts under models of seed s, (N,); or (F, N), where
    hyperparameters were chosen on each of F folds of the texts in turn, NaN for the fold's own texts. The variance has
    three parts: DeLong's over texts, of the placements averaged over seeds and folds; that between the seeds'
    differences; and that between the folds'. They are added, and the t quantile has Satterthwaite's degrees of freedom,
    since a few seeds or folds estimate their part poorly. A part of which there is one only is 0. Where every text
    agrees (one class wholly above the other against chance) all parts are 0; the interval then reaches as far towards 0
    as `auc_interval`'s does, and the p-value is the smallest that so many texts can give.
    """
    check_level(level)
    labels, runs = _pair_seeds(labels, scores_a, scores_b)
    pairs = [(_placed(labels, of_a), _placed(labels, of_b)) for of_a, of_b in runs]
    # (seeds, folds, texts of the class), NaN where not judged
    above, below = (np.array([a[side] - b[side] for a, b in pairs]) for side in (0, 1))
    by_run = np.nanmean(above, axis=2)  # (seeds, folds)
    difference = float(by_run.mean())
    n_texts = int((labels == 1).sum()), int((labels == 0).sum())
    placed = np.concatenate([side.ravel() for pair in pairs for of_one in pair for side in of_one])
    are_certain = np.isin(placed[~np.isnan(placed)], (0, 1)).all()  # each has one class wholly above the other
    are_equal = all(np.array_equal(a, b, equal_nan=True) for a, b in runs)
    if not difference and are_certain and not are_equal:
        reach = certain_within(min(n_texts), level)  # two certainties that so few texts cannot give
        return Comparison(Interval(0.0, -reach, reach, level), 1.0)
    of_texts = sum(_variance(np.nanmean(part, axis=(0, 1))) for part in (above, below))
    return compared(difference, of_texts, _further_parts(by_run), n_texts, level)


def compared(
    difference: float, of_texts: float, parts: Sequence[tuple[float, int]], n_texts: tuple[int, int], level: float
) -> Comparison:
    """A difference with its t interval, from the variance over texts and, of each further source (the seeds, say), the
    variance of the mean and the number that it rests on; `n_texts` are the members and the non-members.

    Degrees of freedom are Satterthwaite's, and without variance the interval is as `compare_auc_over_seeds` says.
    """
    from scipy.stats import t

    variance = of_texts + sum(part for part, _ in parts)
    spread = sum(part**2 / (n - 1) for part, n in parts)
    freedom, error = (variance**2 / spread if spread else np.inf), float(np.sqrt(variance))
    if not error and difference:
        ends = sorted([difference, difference - np.sign(difference) * certain_within(min(n_texts), level)])
        smallest = 2 / comb(sum(n_texts), n_texts[0])
        return Comparison(Interval(difference, float(ends[0]), float(ends[1]), level), float(smallest))
    half = t.ppf((1 + level) / 2, freedom) * error
    ratio = abs(difference) / error if error else 0.0
    return Comparison(
        Interval(difference, difference - half, difference + half, level), float(2 * t.sf(ratio, freedom))
    )


def _further_parts(by_run: FloatArray) -> list[tuple[float, int]]:
    """Of differences (seeds, folds): the variance of the mean between seeds, and between folds, where several are."""
    return [(_variance(by_run.mean(axis=1 - axis)), n) for axis, n in enumerate(by_run.shape) if n > 1]


def _pair_seeds(
    labels: ArrayLike, scores_a: BySeed, scores_b: BySeed
) -> tuple[NDArray[Any], list[tuple[FloatArray, FloatArray]]]:
    """The labels, and each seed's checked scores of both sides, (F, N) each."""
    if not len(scores_a) or len(scores_a) != len(scores_b):
        raise ValueError(f"{len(scores_a)} and {len(scores_b)} seeds; at least one, and the same for both, are needed")
    labels = plain_array(labels, "labels")
    return labels, [(_rows(labels, a), _rows(labels, b)) for a, b in zip(scores_a, scores_b, strict=True)]


def _rows(labels: NDArray[Any], scores: ArrayLike) -> FloatArray:
    """Scores (N,) or (F, N) as (F, N), checked: NaN only for a text of one of several folds."""
    rows = np.atleast_2d(plain_array(scores, "scores", np.float64))
    if rows.shape[1] != len(labels):
        raise ValueError(f"labels of shape {labels.shape} do not fit scores of shape {np.shape(scores)}")
    if len(rows) > 1 and (n_unjudged := np.isnan(rows).sum(axis=0)).max() > 1:
        raise ValueError(
            f"text {n_unjudged.argmax()} is not judged in {n_unjudged.max()} folds; at most its own is one"
        )
    if np.isinf(rows).any():
        fold, i = np.argwhere(np.isinf(rows))[0]
        raise ValueError(f"score {rows[fold, i]} of text {i} is not finite")
    if len(rows) == 1:
        split_scores(labels, rows[0])
    return rows


def _placed(labels: NDArray[Any], rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Placements of (F, N) scores: of the members (F, m) and the non-members (F, n), NaN where scores are."""
    above, below = (np.full((len(rows), int((labels == label).sum())), np.nan) for label in (1, 0))
    for f, row in enumerate(rows):
        judged = ~np.isnan(row)
        placed = placements(*split_scores(labels[judged], row[judged]))
        above[f, judged[labels == 1]], below[f, judged[labels == 0]] = placed
    return above, below


def _variance(values: FloatArray) -> float:
    """Variance of the mean of independent values; infinite for a single one, which says nothing of its spread."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else np.inf


# --- TPR at an FPR ---


def roc(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """FPR, TPR and threshold (predict member where score >= threshold), from (0, 0) to (1, 1), all corners kept."""
    from sklearn.metrics import roc_curve

    members, non_members = split_scores(labels, scores)
    is_member = np.repeat([1, 0], [len(members), len(non_members)])
    return roc_curve(is_member, np.concatenate([members, non_members]), drop_intermediate=False)


def threshold_at_fpr(non_members: FloatArray, fpr: float = 0.05) -> FloatArray:
    """The lowest threshold with at most a share `fpr` of the non-members (..., n) above it, shape (...).

    A text is called a member if its score is *above* it. It is a non-member's score, or -inf for an FPR of 1.
    """
    if not 0 <= fpr <= 1:
        raise ValueError(f"an FPR lies in [0, 1], got {fpr}")
    n = non_members.shape[-1]
    # How many of the n may be accepted; the tolerance keeps 0.05 * 1000 = 50 from rounding down to 49.
    n_accepted = int(np.floor(fpr * n + 1e-9))
    if n_accepted == n:
        return np.full(non_members.shape[:-1], -np.inf)
    return np.partition(non_members, n - n_accepted - 1, axis=-1)[..., n - n_accepted - 1]


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, fpr: float = 0.05) -> float:
    """Largest TPR of a threshold whose FPR is at most `fpr` (a fraction); no interpolation, 50 of 1000 counts as 5%."""
    members, non_members = split_scores(labels, scores)
    return float((members > threshold_at_fpr(non_members, fpr)).mean())


def non_members_needed(fpr: float) -> int:
    """The fewest non-members of which a share `fpr` is one text or more: with fewer there is no TPR at that FPR."""
    return int(np.ceil(1 / fpr - 1e-9)) if fpr else 1


def tpr_at_fpr_interval(labels: ArrayLike, scores: ArrayLike, fpr: float = 0.05, level: float = 0.95) -> Interval:
    """TPR at an FPR with an interval that covers the draw of members and that of non-members.

    The members' part is Clopper and Pearson's (1934) at the threshold. The non-members' part is the TPR between two of
    their scores, which hold the true threshold between them whatever the distribution: of n non-members a binomial
    number lies above it. On each side the two distances from the estimate are squared and added (Zou and Donner 2008).
    Where n is small the threshold may well lie above all n, and the lower end is 0. ValueError for fewer non-members
    than `non_members_needed`.
    """
    from scipy.special import bdtr

    members, non_members = split_scores(labels, scores)
    m, n, estimate = len(members), len(non_members), tpr_at_fpr(labels, scores, fpr)
    _check_enough(n, fpr)
    drawn = clopper_pearson(round(estimate * m), m, level)
    fewest, most = np.searchsorted(bdtr(np.arange(n), n, fpr), [(1 - level) / 2, (1 + level) / 2])
    ordered = np.concatenate([[-np.inf], np.sort(non_members), [np.inf]])
    lowest, highest = ((members > ordered[at]).mean() for at in (n + 1 - fewest, n - most))
    down, up = np.hypot(estimate - drawn.low, estimate - lowest), np.hypot(drawn.high - estimate, highest - estimate)
    return Interval(estimate, max(0.0, float(estimate - down)), min(1.0, float(estimate + up)), level)


def _check_enough(n_non_members: int, fpr: float) -> None:
    if n_non_members < (needed := non_members_needed(fpr)):
        raise ValueError(f"a TPR at an FPR of {fpr:g} needs {needed} non-members, and there are {n_non_members}")


def compare_tpr_at_fpr(
    labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, fpr: float = 0.05, n_resamples: int = RESAMPLES
) -> Comparison:
    """TPR at an FPR of `scores_a` minus that of `scores_b` on the same texts, paired, with a 95% interval."""
    return compare_tpr_at_fpr_over_seeds(labels, [scores_a], [scores_b], fpr, n_resamples)


def compare_tpr_at_fpr_over_seeds(
    labels: ArrayLike, scores_a: BySeed, scores_b: BySeed, fpr: float = 0.05, n_resamples: int = RESAMPLES
) -> Comparison:
    """Mean difference of the TPR at an FPR over training seeds; its 95% interval covers texts, seeds and choices.

    Scores, and how the parts of the variance are joined, as in `compare_auc_over_seeds`. The part over texts is the
    bootstrap variance of the mean difference: in each resample all seeds, folds and both sides keep the same texts.
    """
    labels = plain_array(labels, "labels")
    tprs = _resampled_tprs(labels, scores_a, scores_b, fpr, n_resamples)  # (sides, seeds, folds, resamples)
    by_run, resampled = (tprs[0] - tprs[1])[..., 0], np.nanmean(tprs[0] - tprs[1], axis=(0, 1))[1:]
    difference, n_texts = float(by_run.mean()), (int(np.sum(labels)), int(np.sum(np.equal(labels, 0))))
    are_equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(scores_a, scores_b, strict=True))
    if not difference and np.isin(tprs, (0, 1)).all() and not are_equal:
        reach = certain_within(min(n_texts), 0.95)  # two certainties that so few texts cannot give
        return Comparison(Interval(0.0, -reach, reach), 1.0)
    return compared(difference, float(resampled.var(ddof=1)), _further_parts(by_run), n_texts, 0.95)


def _resampled_tprs(labels: ArrayLike, scores_a: BySeed, scores_b: BySeed, fpr: float, n_resamples: int) -> FloatArray:
    """TPRs (2, seeds, folds, 1 + resamples) of both sides: on the texts first, then on resamples that all share."""
    labels, runs = _pair_seeds(labels, scores_a, scores_b)
    rng, sizes = np.random.default_rng(0), [int((labels == label).sum()) for label in (1, 0)]
    times = [np.vstack([np.ones(n, int), rng.multinomial(n, np.full(n, 1 / n), n_resamples)]) for n in sizes]

    def of(row: FloatArray) -> FloatArray:
        judged = ~np.isnan(row)
        members, non_members = split_scores(labels[judged], row[judged])
        _check_enough(len(non_members), fpr)
        of_members, of_others = (t[:, judged[labels == label]] for t, label in zip(times, (1, 0), strict=True))
        order = np.argsort(-non_members)
        n_above = np.cumsum(of_others[:, order], axis=1)  # from the highest down
        n_below = (n_above <= np.floor(fpr * n_above[:, -1:] + 1e-9)).sum(axis=1)  # a threshold lies below so many
        thresholds = np.append(non_members[order], -np.inf)[n_below]
        with np.errstate(invalid="ignore"):  # a resample may leave a fold no member: NaN
            return ((members > thresholds[:, None]) * of_members).sum(axis=1) / of_members.sum(axis=1)

    return np.array([[[of(row) for row in pair[side]] for pair in runs] for side in (0, 1)])


# --- a share ---


@lru_cache(maxsize=4096)
def clopper_pearson(n_found: int, n: int, level: float = 0.95) -> Interval:
    """A share, n_found of n independent trials, with its exact interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    check_level(level)
    interval = binomtest(n_found, n).proportion_ci(level, method="exact")
    return Interval(n_found / n, float(interval.low), float(interval.high), level)
