"""How often the rank-sum test of a set would find one whose texts are all members."""

from __future__ import annotations

import numpy as np
import scipy

from mialib.calibration import EXACT_UP_TO

POWER_AUCS = (0.55, 0.6, 0.7, 0.8)  # detectors that the power is given for
POWER_DRAWS = 1000


def power(n: int, n_known: int, level: float) -> list[dict[str, float]]:
    """Estimate how often a set of n members would be called, for detectors of given AUCs with normal scores."""
    draws = np.random.default_rng(0).normal(size=(POWER_DRAWS, n + n_known))
    scores, known = draws[:, :n], draws[:, n:]
    method = "exact" if min(n, n_known) <= EXACT_UP_TO else "asymptotic"

    def share(auc: float) -> float:
        members = scores + np.sqrt(2) * scipy.stats.norm.ppf(auc)
        test = scipy.stats.mannwhitneyu(members, known, alternative="greater", method=method, axis=1)
        return float((test.pvalue <= level).mean())

    return [{"auc": auc, "power": share(auc)} for auc in POWER_AUCS]
