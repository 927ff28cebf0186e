"""From the scores of known non-members to a decision, about one text or about a set of texts. Higher = member.

one text   p_values, decide: a p-value; a threshold at a wanted FPR, and what is known of the FPR that it really has
a set      set_p_value: one p-value for many texts of one author, or of one test set
measured   observed_fpr, share_in_range, false_alarms, power: what they do on texts whose membership is known

All of it rests on one assumption: a text that is no member is *exchangeable* with the known non-members, which is to
say that its score may have any rank among theirs, and all ranks are equally likely. Nothing is assumed of the scores'
distribution.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.metrics import Interval, threshold_at_fpr

if TYPE_CHECKING:
    pass

FloatArray = NDArray[np.float64]

LEVELS = (0.05, 0.01)  # a set is called members where its p-value is at most this
DRAWS = 10_000  # random divisions of the texts behind a rate of false alarms
POWER_DRAWS = 2000  # behind a power
RESAMPLES, DRAWS_A_RESAMPLE = 200, 100  # of the texts, for a power's interval
FEW = 8  # up to so many texts on one side the rank-sum test is exact, beyond it normal: scipy's own rule


# --- one text ---


def p_values(scores: ArrayLike, non_member_scores: ArrayLike) -> FloatArray:
    """How often a known non-member would score as high, (N,): (1 + how many of the n do) / (n + 1).

    The text itself counts as one of them, so no p-value is 0, and among non-members like the known ones at most a share
    p has a p-value of p or less (Phipson and Smyth 2010). These are conformal p-values: that share is over the draw of
    the known non-members too, and the p-values of several texts, which all look at the same ones, are not independent
    (Bates et al. 2023). ValueError for a score that is not finite, scores that are no list, and where there is no known
    non-member.
    """
    scores, known = _listed(scores, "scores"), np.sort(_known(non_member_scores))
    n_as_high = len(known) - np.searchsorted(known, scores, side="left")
    return (1 + n_as_high) / (len(known) + 1)


@dataclass(frozen=True)
class Decision:
    """A threshold: a text is called a member where its score is *above* it."""

    wanted_fpr: float
    threshold: float
    n_known: int  # known non-members that it rests on
    n_allowed: int  # how many of them may lie above it
    n_above: int  # how many do: fewer where scores tie
    fpr: Interval  # that share, and the interval of the threshold's true FPR

    @property
    def mean_fpr(self) -> float:
        """The true FPR's mean over samples of known non-members; where scores tie, the most that it can be.

        The share of the known ones that lie above is lower, since the threshold was chosen by it.
        """
        return (self.n_allowed + 1) / (self.n_known + 1)


def decide(
    non_member_scores: ArrayLike, fpr: float = 0.05, *, is_confident: bool = False, level: float = 0.95
) -> Decision:
    """The lowest threshold for a wanted FPR (a fraction), from known non-members' scores (n,), and what FPR it has.

    *On average* (the default) k = floor(fpr (n + 1)) - 1 of the n may lie above it, and a score lies above it exactly
    where its p-value is at most `fpr`. The true FPR of the (k + 1)-th highest of n scores that do not tie is itself
    random, Beta(k + 1, n - k) whatever the scores' distribution: its mean, (k + 1) / (n + 1), is at most `fpr`, and
    in up to nearly half of all samples of non-members it is larger. *With confidence* (`is_confident`) k is
    the largest number for which even the upper end of the interval is at most `fpr`.

    The interval is Clopper and Pearson's (1934) for k of n, though the same n scores chose the threshold. Its upper end
    is the quantile of Beta(k + 1, n - k) at (1 + level) / 2: the very distribution of the true FPR, so it is exact. Its
    lower end is the quantile of Beta(k, n - k + 1) at (1 - level) / 2, which is below that of Beta(k + 1, n - k): it
    errs on the safe side. Where scores tie, fewer than k may lie above. The lower end is then that of the number that
    does, the upper end still that of k, and both hold: ties widen the interval.

    ValueError for an FPR outside (0, 1), a score that is not finite, and too few known non-members; it says how many
    are needed.
    """
    known = _known(non_member_scores)
    n = len(known)
    n_allowed = may_lie_above(n, fpr, is_confident=is_confident, level=level)
    if n_allowed is None:
        needed = n_needed(fpr, is_confident=is_confident, level=level)
        how = f" with {(1 + level) / 2:.1%} confidence" if is_confident else ""
        raise ValueError(f"an FPR of {fpr:g}{how} needs {needed} known non-members, and there are {n}")
    threshold = float(threshold_at_fpr(known, n_allowed / n))
    n_above = int((known > threshold).sum())
    low, high = clopper_pearson(n_above, n, level).low, clopper_pearson(n_allowed, n, level).high
    return Decision(fpr, threshold, n, n_allowed, n_above, Interval(n_above / n, low, high, level))


def may_lie_above(n_known: int, fpr: float, *, is_confident: bool = False, level: float = 0.95) -> int | None:
    """How many of n known non-members may lie above the threshold of `decide`; None where n are too few for any."""
    if n_known < n_needed(fpr, is_confident=is_confident, level=level):
        return None
    n_allowed = math.floor(fpr * (n_known + 1) + 1e-9) - 1  # the tolerance keeps 0.29 * 100 from rounding down to 28
    if not is_confident:
        return n_allowed
    from scipy.stats import beta

    k = np.arange(n_allowed + 1)
    return max(0, int(np.searchsorted(beta.ppf((1 + level) / 2, k + 1, n_known - k), fpr, side="right")) - 1)


def n_needed(fpr: float, *, is_confident: bool = False, level: float = 0.95) -> int:
    """The fewest known non-members that allow a threshold for a wanted FPR: none of them may lie above it."""
    if not 0 < fpr < 1:
        raise ValueError(f"a wanted FPR lies between 0 and 1, both excluded, got {fpr}")
    if is_confident:  # the upper end for 0 of n: (1 - level) / 2 = (1 - fpr)^n
        return math.ceil(math.log((1 - level) / 2) / math.log1p(-fpr) - 1e-9)
    return math.ceil(1 / fpr - 1 - 1e-9)


def _needs(n_known: int, fpr: float, *, is_confident: bool = False) -> str | None:
    """What a table says where n known non-members are too few for a wanted FPR; None where they are enough."""
    needed = n_needed(fpr, is_confident=is_confident)
    return f"needs {needed}" if n_known < needed else None


@lru_cache(maxsize=4096)
def clopper_pearson(n_found: int, n: int, level: float = 0.95) -> Interval:
    """A share, n_found of n independent trials, with its exact interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    interval = binomtest(n_found, n).proportion_ci(level, method="exact")
    return Interval(n_found / n, float(interval.low), float(interval.high), level)


@lru_cache(maxsize=4096)
def expected_share(n_allowed: int, n_known: int, n_others: int, level: float = 0.95) -> Interval:
    """The share of `n_others` further non-members that will lie above a threshold which k of n known ones may exceed.

    A binomial number with the true FPR, Beta(k + 1, n - k), for its probability: beta-binomial, exactly, where scores
    do not tie. It is wider than the interval of the true FPR, which only endless further non-members would show.
    """
    from scipy.stats import betabinom

    found = betabinom(n_others, n_allowed + 1, n_known - n_allowed)
    low, high = found.ppf([(1 - level) / 2, (1 + level) / 2]) / n_others
    return Interval((n_allowed + 1) / (n_known + 1), float(low), float(high), level)


def p_value_band(n_known: int, n_others: int, level: float = 0.95) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Each p-value that n known non-members allow, and the range of the share of further ones that is at most it."""
    from scipy.stats import betabinom

    i = np.arange(1, n_known + 1)
    low, high = betabinom.ppf([[(1 - level) / 2], [(1 + level) / 2]], n_others, i, n_known + 1 - i) / n_others
    return i / (n_known + 1), low, high


def _listed(scores: ArrayLike, what: str, at_least: int = 0) -> FloatArray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 1 or len(scores) < at_least:
        how_many = f", and at least {at_least}" if at_least else ""
        raise ValueError(f"{what}: a list is needed, a number for each text{how_many}; got shape {scores.shape}")
    if not np.isfinite(scores).all():
        i = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(f"{what}: number {i} is {scores[i]}, which is not finite")
    return scores


def _known(non_member_scores: ArrayLike) -> FloatArray:
    return _listed(non_member_scores, "the scores of known non-members", at_least=1)


# --- a set of texts ---


def set_p_value(scores: ArrayLike, non_member_scores: ArrayLike) -> float:
    """One p-value of a set of m texts, (m,) against (n,): do they score higher than known non-members?

    The one-sided rank-sum test (Mann and Whitney 1947), valid where the set, if it holds no member, is exchangeable
    with the known non-members, since then all orders of the m + n scores are equally likely. The conformal p-values of
    the set's texts must not be combined as if they were independent (Fisher's method): all m look at the same n, and
    where those happen to score low, all m are small together (Bates et al. 2023). A tie counts against the set, so one
    text has the p-value that `p_values` gives.
    """
    scores, known = _listed(scores, "the scores of a set", at_least=1), _known(non_member_scores)
    n_pairs = np.searchsorted(np.sort(known), scores, side="left").sum()
    return _rank_sum_p(int(n_pairs), len(scores), len(known))


def _rank_sum_p(n_pairs: int, m: int, n: int) -> float:
    """P(at least so many of the m x n pairs have the set's text above the known one), all orders being equally likely.

    scipy's test wants scores, so it is given m scores without ties that make this many pairs with the known 0 .. n - 1.
    """
    from scipy.stats import mannwhitneyu

    i = np.arange(m)
    above = (n_pairs + i) // m  # m whole numbers, as equal as can be, that add up to n_pairs
    method = "exact" if min(m, n) <= FEW else "asymptotic"
    scores = above - 1 + (i + 1) / (m + 1)
    return float(mannwhitneyu(scores, np.arange(n), alternative="greater", method=method).pvalue)


@lru_cache(maxsize=256)
def _critical_pairs(m: int, n: int, level: float) -> int:
    """The fewest pairs with a p-value of at most `level`; one more than there are where even all of them have not."""
    return bisect_left(range(m * n + 1), -level, key=lambda n_pairs: -_rank_sum_p(n_pairs, m, n))


def rank_sum_calls(
    n_below: NDArray[np.int64], sizes: Sequence[int], n_known: int, level: float = LEVELS[0]
) -> NDArray[np.bool_]:
    """Whether sets are called members, (R, S): the first `sizes[s]` texts of each of R lists, by the rank-sum test.

    `n_below` (R, m) is how many of the known non-members lie below each text.
    """
    n_pairs = np.cumsum(n_below, axis=1)[:, np.array(sizes) - 1]
    return n_pairs >= [_critical_pairs(m, n_known, level) for m in sizes]


def fisher_calls(
    n_below: NDArray[np.int64], sizes: Sequence[int], n_known: int, level: float = LEVELS[0]
) -> NDArray[np.bool_]:
    """The same by Fisher's combination of the texts' conformal p-values, as if these were independent: not valid."""
    from scipy.stats import chi2

    p = (1 + n_known - n_below) / (n_known + 1)
    statistic = np.cumsum(-2 * np.log(p), axis=1)[:, np.array(sizes) - 1]
    return statistic >= chi2.isf(level, 2 * np.array(sizes))


TESTS = {"rank sum": rank_sum_calls, "Fisher": fisher_calls}


def draw_sets(
    non_members: FloatArray, others: FloatArray | None, size: int, n_known: int, n_draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many known non-members lie below each text of a random set, (n_draws, size).

    Each draw divides the texts anew: `n_known` of the non-members are the known ones, the set is drawn from `others`
    or, where there are none, from the rest of the non-members. ValueError where there are too few texts, and for a set
    of none.
    """
    _largest([size])
    non_members = _listed(non_members, "the scores of non-members")
    others = others if others is None else _listed(others, "the scores of the others")
    pool = len(non_members) - n_known if others is None else len(others)
    if not 0 < n_known <= len(non_members) or size > pool:
        raise ValueError(
            f"{n_known} known non-members of {len(non_members)} and a set of {size} of {pool} other texts: too few"
        )
    found = np.empty((n_draws, size), np.int64)
    for draw in range(n_draws):
        order = rng.permutation(len(non_members))
        known = np.sort(non_members[order[:n_known]])
        own = non_members[order[n_known : n_known + size]] if others is None else rng.permutation(others)[:size]
        found[draw] = np.searchsorted(known, own, side="left")
    return found


def _largest(sizes: Sequence[int]) -> int:
    if not sizes or min(sizes) < 1:
        raise ValueError(f"sizes of sets: at least one is needed, and each is 1 text or more; got {list(sizes)}")
    return max(sizes)


def split_sizes(sizes: Sequence[int], n_texts: int) -> tuple[list[int], list[int]]:
    """The sizes of sets that can be drawn from so many texts, and the larger ones; ValueError where all are larger."""
    kept = [size for size in sizes if size <= n_texts]
    if not kept:
        raise ValueError(f"no set of {', '.join(map(str, sizes))} texts can be drawn from {n_texts}")
    return kept, [size for size in sizes if size > n_texts]


def false_alarms(
    non_members: FloatArray, sizes: Sequence[int], n_known: int, n_draws: int = DRAWS, seed: int = 0
) -> dict[str, dict[int, Interval]]:
    """How often a set of unseen texts is called members, by each test at each level, {"rank sum, 5%": {size: rate}}.

    Each draw divides the non-members into known and others anew and looks at one set of each size, so the draws of a
    size are independent and the interval is Clopper and Pearson's. It covers the draw of the division, not that of the
    texts, and need not: p-values are made of ranks alone, so where scores do not tie the rate is the same for all
    texts, models and detectors.
    """
    n_below = draw_sets(non_members, None, _largest(sizes), n_known, n_draws, np.random.default_rng(seed))
    return {
        f"{name}, {level:.0%}": {
            m: clopper_pearson(int(found), n_draws)
            for m, found in zip(sizes, calls(n_below, sizes, n_known, level).sum(axis=0), strict=True)
        }
        for level in LEVELS
        for name, calls in TESTS.items()
    }


def power(
    non_members: FloatArray, others: FloatArray, sizes: Sequence[int], n_known: int, seed: int = 0
) -> dict[int, Interval]:
    """How often a random set of `others` (members, say) has a rank-sum p-value of at most 5%, {size: rate}.

    Each draw takes `n_known` of the non-members for the known ones and a set of the others. Random sets of one pool
    overlap, so more draws say nothing of other texts: the interval is a percentile bootstrap that resamples the texts
    of both pools and draws anew from each resample. The few draws that a resample gets add noise of their own, of
    known variance; the resampled rates are drawn together by as much as it widens them.
    """
    rng = np.random.default_rng(seed)

    def rates(known_pool: FloatArray, pool: FloatArray, n_draws: int) -> FloatArray:
        n_below = draw_sets(known_pool, pool, _largest(sizes), n_known, n_draws, rng)
        return rank_sum_calls(n_below, sizes, n_known).mean(axis=0)

    estimates = rates(non_members, others, POWER_DRAWS)
    resampled = np.array(
        [
            rates(rng.choice(non_members, len(non_members)), rng.choice(others, len(others)), DRAWS_A_RESAMPLE)
            for _ in range(RESAMPLES)
        ]
    )
    center, spread = resampled.mean(axis=0), resampled.var(axis=0)
    noise = (resampled * (1 - resampled)).mean(axis=0) / (DRAWS_A_RESAMPLE - 1)
    kept = np.sqrt(np.clip(1 - noise / np.where(spread > 0, spread, np.inf), 0, 1))
    low, high = np.quantile(center + kept * (resampled - center), [0.025, 0.975], axis=0)
    # Never shorter than the draws' own interval: where all draws agree, they are still only so many.
    drawn = [clopper_pearson(round(rate * POWER_DRAWS), POWER_DRAWS) for rate in estimates.tolist()]
    return {
        m: Interval(own.estimate, min(own.low, float(a)), max(own.high, float(b)))
        for m, own, a, b in zip(sizes, drawn, low, high, strict=True)
    }
