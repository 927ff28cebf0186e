"""How often a test calls a random set of texts members, with intervals: false alarms and power.

A test is a function (n_below, n, level) -> calls: n_below (R, m) is how many of n known non-members score below each
text of R sets, calls (R,) whether each set is called members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.calibration import clopper_pearson
from mialib.metrics import FloatArray, Interval

Test = Callable[[NDArray[np.int64], int, float], NDArray[np.bool_]]

LEVELS = (0.05, 0.01)  # a set is called members where its p-value is at most this
DRAWS = 10_000  # random divisions of the texts behind a rate of false alarms
POWER_DRAWS = 2000  # behind a power
RESAMPLES, DRAWS_A_RESAMPLE = 200, 100  # of the texts, for a power's interval


def draw_sets(
    non_members: FloatArray, others: FloatArray | None, size: int, n_known: int, n_draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many known non-members lie below each text of a random set, (n_draws, size).

    Each draw divides the texts anew: `n_known` of the non-members are the known ones, the set is drawn from `others`
    or, where there are none, from the rest of the non-members. ValueError where there are too few texts.
    """
    pool = len(non_members) - n_known if others is None else len(others)
    if not 0 < n_known <= len(non_members) or size > pool:
        raise ValueError(
            f"{n_known} known non-members of {len(non_members)} and a set of {size} of {pool} other texts: too few"
        )
    n_below = np.empty((n_draws, size), np.int64)
    for draw in range(n_draws):
        order = rng.permutation(len(non_members))
        known = np.sort(non_members[order[:n_known]])
        drawn = non_members[order[n_known : n_known + size]] if others is None else rng.permutation(others)[:size]
        n_below[draw] = np.searchsorted(known, drawn, side="left")
    return n_below


def false_alarms(
    non_members: FloatArray,
    sizes: Sequence[int],
    n_known: int,
    tests: Mapping[str, Test],
    n_draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, dict[int, Interval]]:
    """How often a set of unseen texts is called members, by each test at each level, {"rank sum, 5%": {size: rate}}.

    Each draw divides the non-members into known and others anew and looks at one set of each size, so the draws of a
    size are independent and the interval is Clopper and Pearson's. It covers the draw of the division, not that of the
    texts, and need not: p-values are made of ranks alone, so where scores do not tie the rate is the same for all
    texts, models and detectors.
    """
    n_below = draw_sets(non_members, None, max(sizes), n_known, n_draws, np.random.default_rng(seed))
    return {
        f"{name}, {level:.0%}": {
            m: clopper_pearson(int(test(n_below[:, :m], n_known, level).sum()), n_draws) for m in sizes
        }
        for level in LEVELS
        for name, test in tests.items()
    }


def power(
    non_members: FloatArray, others: FloatArray, sizes: Sequence[int], n_known: int, test: Test, seed: int = 0
) -> dict[int, Interval]:
    """How often a test calls a random set of `others` (of members, for example) members at 5%, {size: rate}.

    Each draw takes `n_known` of the non-members for the known ones and a set of the others. Random sets of one pool
    overlap, so more draws say nothing of other texts: the interval is a percentile bootstrap that resamples the texts
    of both pools and draws anew from each resample. The few draws that a resample gets add noise of their own, of
    known variance; the resampled rates are drawn together by as much as it widens them.
    """
    rng = np.random.default_rng(seed)

    def rates(known_pool: FloatArray, pool: FloatArray, n_draws: int) -> FloatArray:
        n_below = draw_sets(known_pool, pool, max(sizes), n_known, n_draws, rng)
        return np.array([test(n_below[:, :m], n_known, LEVELS[0]).mean() for m in sizes])

    estimates = rates(non_members, others, POWER_DRAWS)
    resampled = np.array(
        [
            rates(rng.choice(non_members, len(non_members)), rng.choice(others, len(others)), DRAWS_A_RESAMPLE)
            for _ in range(RESAMPLES)
        ]
    )
    center, spread = resampled.mean(axis=0), resampled.var(axis=0)
    noise = (resampled * (1 - resampled)).mean(axis=0) / (DRAWS_A_RESAMPLE - 1)
    shrink = np.sqrt(np.clip(1 - noise / np.where(spread > 0, spread, np.inf), 0, 1))
    low, high = np.quantile(center + shrink * (resampled - center), [0.025, 0.975], axis=0)
    # Never shorter than the draws' own interval: where all draws agree, they are still only so many.
    drawn = [clopper_pearson(round(rate * POWER_DRAWS), POWER_DRAWS) for rate in estimates.tolist()]
    return {
        m: Interval(of_draws.estimate, min(of_draws.low, float(a)), max(of_draws.high, float(b)))
        for m, of_draws, a, b in zip(sizes, drawn, low, high, strict=True)
    }


@lru_cache(maxsize=4096)
def expected_share(n_allowed: int, n_known: int, n_others: int) -> Interval:
    """The share of `n_others` further non-members that will lie above a threshold which k of n known ones may exceed.

    A binomial number with the true FPR, Beta(k + 1, n - k), for its probability: beta-binomial, exactly, where scores
    do not tie. It is wider than the interval of the true FPR, which only endless further non-members would show.
    """
    i = n_allowed + 1
    low, high = _range_of_share(i, n_known, n_others)
    return Interval(i / (n_known + 1), float(low), float(high))


def p_value_band(n_known: int, n_others: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Each p-value that n known non-members allow, and the range of the share of further ones that is at most it.

    Three arrays (n_known,): p, low and high.
    """
    i = np.arange(1, n_known + 1)
    return i / (n_known + 1), *_range_of_share(i, n_known, n_others)


def _range_of_share(i: ArrayLike, n_known: int, n_others: int) -> FloatArray:
    from scipy.stats import betabinom

    ends = betabinom.ppf(np.array([0.025, 0.975])[:, None], n_others, i, n_known + 1 - i)
    return ends.reshape(2, *np.shape(i)) / n_others
