"""How well scores separate members from non-members, with intervals. Higher score = more likely a member.

All functions take labels of shape (N,), 1 for members and 0 for non-members, and scores of shape (N,), and raise
ValueError for a label other than 0 or 1, a missing class, a score that is not finite, or lengths that differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb, sqrt

import numpy as np
import scipy  # which loads stats, optimize and special when they are first used
from numpy.typing import ArrayLike, NDArray

from mialib.plain import check_share, finite_numbers, plain_array

FloatArray = NDArray[np.float64]

RESAMPLES = 2000
FEW = 5  # misplaced texts: with no more than a few of them DeLong's variance is poorly known


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        """With three digits; up to five if an end that is not 0 or 1 would look like it, four if it still does."""
        ends = [abs(end) for end in (self.low, self.high)]
        digits = next((d for d in (3, 4, 5) if all(x in (0, 1) or round(x, d) not in (0, 1) for x in ends)), 4)
        estimate, low, high = (f"{round(x, digits) + 0.0:.{digits}f}" for x in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"


@dataclass(frozen=True)
class Comparison:
    """The difference of a metric of detectors a and b (a minus b) on the same texts, with its two-sided p-value."""

    difference: Interval
    p_value: float


def split_scores(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The members' and the non-members' scores, (m,) and (n,), checked as this module says."""
    labels, scores = plain_array(labels, "labels"), finite_numbers(scores, "scores")
    if labels.shape != scores.shape:
        raise ValueError(f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}")
    if (classes := np.unique(labels).tolist()) != [0, 1]:
        raise ValueError(f"labels are 0 and 1 (1 = member), and both are needed; these are {classes}")
    return scores[labels == 1], scores[labels == 0]


def placements(members: FloatArray, non_members: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The shares of non-members below each member (..., m), and of members above each non-member (..., n).

    Ties count one half. DeLong's structural components, by midranks (Sun and Xu 2014, Eq. 4-5).
    """
    m, n = members.shape[-1], non_members.shape[-1]
    ranks = scipy.stats.rankdata(np.concatenate([members, non_members], axis=-1), axis=-1)
    of_members, of_non_members = (scipy.stats.rankdata(scores, axis=-1) for scores in (members, non_members))
    return (ranks[..., :m] - of_members) / n, 1 - (ranks[..., m:] - of_non_members) / m


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: P(member scores higher) + P(tie) / 2.

    >>> auc([1, 1, 0, 0], [0.9, 0.4, 0.5, 0.1])
    0.75
    """
    return float(placements(*split_scores(labels, scores))[0].mean())


def aucs(labels: ArrayLike, scores: ArrayLike) -> FloatArray:
    """The AUC of each row of scores, (R, N) -> (R,): what `auc` gives, for a whole grid at once."""
    labels, scores = plain_array(labels, "labels"), finite_numbers(scores, "scores", n_axes=2, at_least=1)
    m, n = map(len, split_scores(labels, scores[0]))
    of_members = scipy.stats.rankdata(scores, axis=1)[:, labels == 1].sum(axis=1)
    return (of_members - m * (m + 1) / 2) / (m * n)


def auc_interval(labels: ArrayLike, scores: ArrayLike, level: float = 0.95) -> Interval:
    """AUC with a score interval (Newcombe 2006): each end is t standard errors, computed there, from the estimate.

    At the estimate the variance is DeLong's (1988); elsewhere it changes as `exponential_variance` does. With few
    misplaced texts DeLong's variance can be too small. If it is below the exponential variance, it is raised, as if
    `FEW` more texts had been misplaced. The t quantile has the degrees of freedom of the smaller class.

    >>> print(auc_interval([1, 1, 1, 0, 0, 0], [0.9, 0.8, 0.4, 0.5, 0.2, 0.1]))
    0.889 [0.139, 0.997]
    """
    check_level(level)
    placed = placements(*split_scores(labels, scores))
    estimate, (m, n) = float(placed[0].mean()), map(len, placed)
    if min(m, n) == 1:  # a single text does not show its class's spread
        return Interval(estimate, 0.0, 1.0, level)
    n_misplaced, ratio = 2 * min(m, n) * min(estimate, 1 - estimate), 1.0
    if n_misplaced:
        ratio = sum(map(variance_of_mean, placed)) / exponential_variance(estimate, m, n)
        ratio = max(ratio, (n_misplaced * ratio + FEW) / (n_misplaced + FEW))
    reach = scipy.special.stdtrit(min(m, n) - 1, (1 + level) / 2) * sqrt(ratio)

    def too_low(end: float, of: float) -> float:
        return of - end - reach * sqrt(exponential_variance(end, m, n))

    def lower_end(of: float) -> float:
        return float(scipy.optimize.brentq(too_low, 0, of - 1e-12, args=(of,))) if of > 1e-9 else 0.0

    return Interval(estimate, lower_end(estimate), 1 - lower_end(1 - estimate), level)


def exponential_variance(auc: float, m: int, n: int) -> float:
    """Variance of an AUC of exponential scores (Hanley and McNeil 1982), or of their negatives, whichever is larger."""
    high, low = sorted([auc / (1 + auc), (1 - auc) / (2 - auc)], reverse=True)
    return auc * (1 - auc) * (1 + (max(m, n) - 1) * high + (min(m, n) - 1) * low) / (m * n)


def check_level(level: float) -> None:
    """ValueError for a confidence level outside (0, 1)."""
    check_share(level, "a level of confidence")


def certain_within(n: int, level: float) -> float:
    """How far from a certainty the truth may lie where n of n agree: r with (1 - level) / 2 = (1 - r)^n."""
    return 1 - ((1 - level) / 2) ** (1 / n)


def compare_auc(labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, level: float = 0.95) -> Comparison:
    """AUC of `scores_a` minus AUC of `scores_b` on the same texts, paired (DeLong et al. 1988).

    >>> labels = [1, 1, 1, 0, 0, 0]
    >>> print(compare_auc(labels, [0.9, 0.8, 0.4, 0.5, 0.2, 0.1], [0.3, 0.8, 0.4, 0.5, 0.2, 0.7]).difference)
    0.333 [-0.200, 0.867]
    """
    check_level(level)
    labels, scores_a, scores_b = (
        plain_array(labels, "labels"),
        *(plain_array(s, "scores") for s in (scores_a, scores_b)),
    )
    a, b = (placements(*split_scores(labels, scores)) for scores in (scores_a, scores_b))
    members, non_members = (of_a - of_b for of_a, of_b in zip(a, b, strict=True))
    are_certain = all(np.isin(of_class, (0, 1)).all() for of_class in (*a, *b))
    n_texts, difference = (len(members), len(non_members)), float(members.mean())
    if not difference and are_certain and not np.array_equal(scores_a, scores_b):
        return alike_by_few(n_texts, level)
    return compared(difference, variance_of_mean(members) + variance_of_mean(non_members), n_texts, level)


def alike_by_few(n_texts: tuple[int, int], level: float) -> Comparison:
    """A difference of 0 where both scores, which differ, separate the classes wholly: few texts may be the reason."""
    reach = certain_within(min(n_texts), level)
    return Comparison(Interval(0.0, -reach, reach, level), 1.0)


def compared(
    difference: float, variance: float, n_texts: tuple[int, int], level: float = 0.95, freedom: float = np.inf
) -> Comparison:
    """A difference with its t interval and p-value, given its variance with so many degrees of freedom.

    `n_texts` are the numbers of members and non-members. Without any variance, as where one class is wholly above the
    other, the interval reaches as far towards 0 as so few texts allow; the p-value is the smallest that they can give.
    """
    error = float(np.sqrt(variance))
    if not error and difference:
        ends = sorted([difference, difference - np.sign(difference) * certain_within(min(n_texts), level)])
        smallest = 2 / comb(sum(n_texts), n_texts[0])
        return Comparison(Interval(difference, float(ends[0]), float(ends[1]), level), float(smallest))
    half = scipy.stats.t.ppf((1 + level) / 2, freedom) * error
    p_value = float(2 * scipy.stats.t.sf(abs(difference) / error if error else 0.0, freedom))
    return Comparison(Interval(difference, difference - half, difference + half, level), p_value)


def variance_of_mean(values: FloatArray) -> float:
    """Variance of the mean of independent values; infinite for a single one, which does not show its spread."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else np.inf


def roc(labels: ArrayLike, scores: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """FPR, TPR and threshold (predict member where score >= threshold), from (0, 0) to (1, 1), all corners kept.

    >>> fpr, tpr, threshold = roc([1, 1, 0, 0], [0.9, 0.4, 0.5, 0.1])
    >>> fpr.tolist(), tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    from sklearn.metrics import roc_curve

    members, non_members = split_scores(labels, scores)
    is_member = np.repeat([1, 0], [len(members), len(non_members)])
    return roc_curve(is_member, np.concatenate([members, non_members]), drop_intermediate=False)


def threshold_at_fpr(non_members: FloatArray, fpr: float = 0.05) -> FloatArray:
    """The lowest threshold with at most a share `fpr` of the non-members (..., n) above it, shape (...).

    It is a non-member's score, or -inf for an FPR of 1.
    """
    check_share(fpr, "an FPR", or_all=True)
    n = non_members.shape[-1]
    n_accepted = int(np.floor(fpr * n + 1e-9))  # the tolerance keeps 0.05 * 1000 = 50 from rounding down to 49
    if n_accepted == n:
        return np.full(non_members.shape[:-1], -np.inf)
    return np.partition(non_members, n - n_accepted - 1, axis=-1)[..., n - n_accepted - 1]


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, fpr: float = 0.05) -> float:
    """The largest TPR of a threshold with an FPR of at most `fpr` (a fraction); 50 of 1000 count as 5%.

    >>> tpr_at_fpr([1, 1, 0, 0], [0.9, 0.4, 0.5, 0.1], fpr=0.5)
    1.0
    """
    members, non_members = split_scores(labels, scores)
    return float((members > threshold_at_fpr(non_members, fpr)).mean())


def non_members_needed(fpr: float) -> int:
    """The fewest non-members that have a TPR at that FPR: a share `fpr` of them is one text or more."""
    return int(np.ceil(1 / fpr - 1e-9)) if fpr else 1


def tpr_at_fpr_interval(labels: ArrayLike, scores: ArrayLike, fpr: float = 0.05, level: float = 0.95) -> Interval:
    """TPR at an FPR with an interval that covers the draw of members and the draw of non-members.

    The interval for the draw of members is Clopper and Pearson's (1934) at the threshold. The interval for the draw of
    non-members has as ends the TPRs at two non-members' scores that enclose the true threshold: the number of
    non-members above that is binomial for any distribution. On each side the two distances from the estimate are
    squared and added (Zou and Donner 2008). ValueError for fewer than `non_members_needed`.

    >>> print(tpr_at_fpr_interval([1] * 200 + [0] * 200, [*range(150, 350), *range(200)]))
    0.800 [0.729, 0.861]
    """
    members, non_members = split_scores(labels, scores)
    m, n, estimate = len(members), len(non_members), tpr_at_fpr(labels, scores, fpr)
    _check_enough(n, fpr)
    drawn = clopper_pearson(round(estimate * m), m, level)
    fewest, most = np.searchsorted(scipy.special.bdtr(np.arange(n), n, fpr), [(1 - level) / 2, (1 + level) / 2])
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
    """TPR at an FPR of `scores_a` minus that of `scores_b` on the same texts, paired, with a 95% bootstrap interval."""
    a, b = (split_scores(labels, scores) for scores in (scores_a, scores_b))
    n_texts = len(a[0]), len(a[1])
    times = resampled_texts(n_texts, n_resamples)
    tpr_a, tpr_b = (resampled_tprs(*of, *times, fpr) for of in (a, b))
    difference, *resampled = tpr_a - tpr_b
    if not difference and np.isin([tpr_a, tpr_b], (0, 1)).all() and not np.array_equal(scores_a, scores_b):
        return alike_by_few(n_texts, 0.95)
    return compared(float(difference), float(np.var(resampled, ddof=1)), n_texts)


@lru_cache(maxsize=1)
def resampled_texts(n_texts: tuple[int, int], n_resamples: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """How often each resample draws each member, (1 + resamples, m), and each non-member, (1 + resamples, n).

    The first row is the texts as they are. Read-only, since the same texts are compared often: the draws are kept.
    """
    rng = np.random.default_rng(0)
    draws = [rng.multinomial(n, np.full(n, 1 / n), n_resamples) for n in n_texts]
    members, others = (np.vstack([np.ones(of.shape[1]), of]).astype(np.int16) for of in draws)  # small, hence fast
    members.flags.writeable = others.flags.writeable = False
    return members, others


def resampled_tprs(
    members: FloatArray,
    non_members: FloatArray,
    times_members: NDArray[np.integer],
    times_others: NDArray[np.integer],
    fpr: float,
) -> FloatArray:
    """The TPR at an FPR in each of R resamples, (R,): members (m,) drawn `times_members` (R, m), others alike.

    NaN where none of the members is drawn.
    """
    _check_enough(len(non_members), fpr)
    order = np.argsort(-non_members)
    n_above = np.cumsum(times_others[:, order], axis=1)  # drawn non-members, from the highest score down
    n_below = (n_above <= np.floor(fpr * n_above[:, -1:] + 1e-9)).sum(axis=1)  # a threshold lies below so many
    thresholds = np.append(non_members[order], -np.inf)[n_below]  # (R,)
    with np.errstate(invalid="ignore"):
        return ((members > thresholds[:, None]) * times_members).sum(axis=1) / times_members.sum(axis=1)


def epsilon_bound(labels: ArrayLike, scores: ArrayLike, n_guesses: int, level: float = 0.95) -> float:
    """A lower bound on the epsilon (nats, delta = 0) of one training, with confidence `level`; 0 if none is shown.

    A fair coin must have decided for each of the N texts, independently, whether it is a member, and scores may depend
    on the coin only through the trained model. Of r = `n_guesses` texts, the r / 2 with the highest scores are guessed
    to be members, and the r / 2 with the lowest to be non-members. If the training is epsilon-private, the number v of
    right guesses among r is stochastically at most Binomial(r, e^epsilon / (1 + e^epsilon)) (Steinke, Nasr
    and Jagielski 2023, Privacy auditing with one (1) training run, delta = 0). The bound is the largest epsilon with

        P[Binomial(r, e^epsilon / (1 + e^epsilon)) >= v] <= 1 - level,

    that is the logit of Clopper and Pearson's one-sided lower limit for v of r. Choose r before looking at labels. Ties
    are broken at random, with a fixed seed. ValueError for an r that is odd, below 2 or above N.

    >>> round(epsilon_bound([1] * 50 + [0] * 50, range(100, 0, -1), n_guesses=20), 2)
    1.82
    """
    labels, scores = plain_array(labels, "labels"), plain_array(scores, "scores", np.float64)
    split_scores(labels, scores)
    check_level(level)
    r, n = n_guesses, len(labels)
    if r % 2 or not 2 <= r <= n:
        raise ValueError(f"the number of guesses is even and at most the number of texts, {n}; got {r}")
    mixed = np.random.default_rng(0).permutation(n)
    order = mixed[np.argsort(scores[mixed], kind="stable")]
    n_right = int((labels[order[: r // 2]] == 0).sum() + (labels[order[-(r // 2) :]] == 1).sum())
    share = float(scipy.stats.beta.ppf(1 - level, n_right, r - n_right + 1)) if n_right else 0.0
    return max(0.0, float(scipy.special.logit(share)))


@lru_cache(maxsize=4096)
def clopper_pearson(n_found: int, n: int, level: float = 0.95) -> Interval:
    """A share, n_found of n independent trials, with its exact interval (Clopper and Pearson 1934)."""
    check_level(level)
    interval = scipy.stats.binomtest(n_found, n).proportion_ci(level, method="exact")
    return Interval(n_found / n, float(interval.low), float(interval.high), level)
