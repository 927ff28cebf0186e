"""How often the rank-sum test of a set would find one whose texts are all members."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

import numpy as np
import scipy

from mialib.calibration import EXACT_UP_TO

POWER_AUCS = (0.55, 0.6, 0.7, 0.8)  # detectors that the power is given for
POWER_DRAWS = 1000


def power(n: int, n_known: int, level: float) -> list[dict[str, float]]:
    """Estimate how often a set of n members would be called, for detectors of given AUCs with normal scores."""
    rng, fewest = np.random.default_rng(0), fewest_pairs(n, n_known, level)
    shifts = [np.sqrt(2) * scipy.stats.norm.ppf(auc) for auc in POWER_AUCS]
    n_called = np.zeros(len(POWER_AUCS))
    for _ in range(POWER_DRAWS):
        scores, known = rng.normal(size=n), np.sort(rng.normal(size=n_known))
        n_called += [np.searchsorted(known, scores + shift).sum() >= fewest for shift in shifts]
    shares = (n_called / POWER_DRAWS).tolist()
    return [{"auc": auc, "power": share} for auc, share in zip(POWER_AUCS, shares, strict=True)]


@lru_cache(maxsize=256)
def fewest_pairs(m: int, n: int, level: float) -> int:
    """Return how many of the m x n pairs of a set's text and a known one the set must win for a rank-sum p <= `level`.

    m n + 1 if even all of them are not enough.
    """
    return bisect_left(range(m * n + 1), -level, key=lambda n_pairs: -rank_sum_p(n_pairs, m, n))


def rank_sum_p(n_pairs: int, m: int, n: int) -> float:
    """Return P(the set wins at least so many of the m x n pairs) if all orders are equally likely.

    scipy's test takes scores: m scores without ties that win this many pairs against the known 0 .. n - 1.
    """
    i = np.arange(m)
    above = (n_pairs + i) // m  # m whole numbers, as equal as can be, that add up to n_pairs
    method = "exact" if min(m, n) <= EXACT_UP_TO else "asymptotic"
    scores = above - 1 + (i + 1) / (m + 1)
    return float(scipy.stats.mannwhitneyu(scores, np.arange(n), alternative="greater", method=method).pvalue)
