"""What thresholds call members, and how often a test calls a random set of texts members, with intervals.

A test is a function (n_below, n, level) -> calls: n_below (R, m) is how many of n known non-members score below each
text of R sets, calls (R,) whether each set is called members.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import betabinom

from mialib.calibration import clopper_pearson, decide, n_needed
from mialib.metrics import FloatArray, Interval
from mialib_audit.power import fewest_pairs
from replication import results
from replication.results import DASH, Result
from replication.tables import text_table

LEVEL = 0.05  # a set is called members where its p-value is at most this
DRAWS = 10_000  # random divisions of the texts behind a rate of false alarms
POWER_DRAWS = 2000  # behind a power
RESAMPLES, DRAWS_A_RESAMPLE = 200, 100  # of the texts, for a power's interval


def draw_sets(
    non_members: FloatArray, others: FloatArray | None, size: int, n_known: int, n_draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many known non-members lie below each text of a random set, (n_draws, size).

    Each draw divides the texts anew: `n_known` of the non-members are the known ones, the set is drawn from `others`
    or, where there are none, from the rest of the non-members.
    """
    n_below = np.empty((n_draws, size), np.int64)
    for draw in range(n_draws):
        order = rng.permutation(len(non_members))
        known_scores = np.sort(non_members[order[:n_known]])
        set_scores = non_members[order[n_known : n_known + size]] if others is None else rng.permutation(others)[:size]
        n_below[draw] = np.searchsorted(known_scores, set_scores, side="left")
    return n_below


def false_alarms(non_members: FloatArray, sizes: Sequence[int], n_known: int) -> dict[int, Interval]:
    """How often the rank-sum test calls a set of unseen texts members at 5%, {size: rate}.

    Each draw divides the non-members into known and others again and looks at one set of each size, so the interval is
    Clopper and Pearson's. It need not cover the texts: p-values are made of ranks, the same for all untied scores.
    """
    n_below = draw_sets(non_members, None, max(sizes), n_known, DRAWS, np.random.default_rng(0))
    n_called = {m: int(rank_sum(n_below[:, :m], n_known, LEVEL).sum()) for m in sizes}
    return {m: clopper_pearson(n, DRAWS) for m, n in n_called.items()}


def power(non_members: FloatArray, others: FloatArray, sizes: Sequence[int], n_known: int) -> dict[int, Interval]:
    """How often the rank-sum test calls a random set of `others` (of members, for example) members at 5%, {size: rate}.

    Each draw takes `n_known` known non-members and a set of the others. The interval is a percentile bootstrap that
    resamples the texts of both pools. Each resample uses few draws; their known Monte-Carlo variance is removed by
    shrinking the rates towards their mean.
    """
    rng = np.random.default_rng(0)

    def rates(known_pool: FloatArray, pool: FloatArray, n_draws: int) -> FloatArray:
        n_below = draw_sets(known_pool, pool, max(sizes), n_known, n_draws, rng)
        return np.array([rank_sum(n_below[:, :m], n_known, LEVEL).mean() for m in sizes])

    estimates, resampled = rates(non_members, others, POWER_DRAWS), np.empty((RESAMPLES, len(sizes)))
    for row in resampled:
        known_pool, pool = (rng.choice(scores, len(scores)) for scores in (non_members, others))
        row[:] = rates(known_pool, pool, DRAWS_A_RESAMPLE)
    center, spread = resampled.mean(axis=0), resampled.var(axis=0)
    noise = (resampled * (1 - resampled)).mean(axis=0) / (DRAWS_A_RESAMPLE - 1)
    shrink = np.sqrt(np.clip(1 - noise / np.where(spread > 0, spread, np.inf), 0, 1))
    low, high = np.quantile(center + shrink * (resampled - center), [0.025, 0.975], axis=0)
    intervals = {}
    for m, rate, a, b in zip(sizes, estimates.tolist(), low.tolist(), high.tolist(), strict=True):
        interval = clopper_pearson(round(rate * POWER_DRAWS), POWER_DRAWS)  # where all draws agree, they are so many
        intervals[m] = Interval(interval.estimate, min(interval.low, a), max(interval.high, b))
    return intervals


def needs_known(n_known: int, fpr: float, is_confident: bool = False) -> str:
    """What a table says where n known non-members are too few for a target FPR."""
    return results.too_few(n_known, n_needed(fpr, is_confident=is_confident))


def share_above(scores: FloatArray, threshold: float) -> Interval:
    """The share of texts that a threshold calls members, with its interval over texts."""
    return clopper_pearson(int((scores > threshold).sum()), len(scores))


def called(
    known: Mapping[str, FloatArray],
    groups: Mapping[str, Mapping[str, FloatArray]],
    fprs: Iterable[float],
    note: str = "",
) -> list[Result]:
    """What each detector's threshold at each target FPR calls members among the known non-members and in groups."""
    found = []
    for (name, of_known), fpr in product(known.items(), fprs):
        needs, shares = needs_known(len(of_known), fpr), dict.fromkeys(["known", *groups])
        if not needs:
            decision = decide(of_known, fpr)
            shares = {"known": decision.fpr}
            shares |= {group: share_above(of[name], decision.threshold) for group, of in groups.items()}
        fields = {"row": name, "column": f"{fpr:.3g} target{note}", "why": needs}
        found += [Result.of(metric=f"called: {group}", interval=of, **fields) for group, of in shares.items()]
    return found


def ends(interval: Interval) -> str:
    """An interval without its estimate."""
    return f"{interval.low:.3f}–{interval.high:.3f}"


def threshold_table(
    known: FloatArray, held_out: FloatArray, members: FloatArray, fprs: Iterable[float]
) -> pd.DataFrame:
    """One row a rule: what its threshold promises, and what it does on other texts."""
    rows = {}
    for (rule, is_confident), fpr in product({"on average": False, "97.5% confident": True}.items(), fprs):
        cells = {"threshold": needs_known(len(known), fpr, is_confident)}
        if not cells["threshold"]:
            made = decide(known, fpr, is_confident=is_confident)
            expected = expected_share(made.n_allowed, len(known), len(held_out))
            cells = {"threshold": f"{made.threshold:.4g}", "true FPR": ends(made.fpr)}
            cells |= {f"range of {len(held_out)} others": ends(expected)}
            cells |= {"observed": f"{(held_out > made.threshold).mean():.3f}"}
            cells |= {"TPR": str(share_above(members, made.threshold))}
        rows[f"{fpr:.3g}, {rule}"] = cells
    return text_table(rows, "Thresholds for each target FPR").fillna(DASH)


def rates_of_sets(rates: Mapping[str, Mapping[int, Interval]], metric: str) -> list[Result]:
    """Rates of called sets as results, a column a size."""
    return [
        Result.of(row=name, column=f"{m} text{'s' if m > 1 else ''}", metric=metric, interval=interval)
        for name, of_sizes in rates.items()
        for m, interval in of_sizes.items()
    ]


def rank_sum(n_below: NDArray[np.int64], n: int, level: float) -> NDArray[np.bool_]:
    """Valid: a set is called members where few orders, a share `level`, win as many pairs."""
    return np.asarray(n_below.sum(axis=1) >= fewest_pairs(n_below.shape[1], n, level))


def expected_share(n_allowed: int, n_known: int, n_others: int) -> Interval:
    """The share of `n_others` further non-members that will lie above a threshold which k of n known ones may exceed.

    Wider than the true FPR's own interval, which only endless further non-members would show.
    """
    return Interval(*(float(of[n_allowed]) for of in p_value_band(n_known, n_others)))


@lru_cache(maxsize=256)
def p_value_band(n_known: int, n_others: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Each p-value that n known non-members allow, and the range of the share of further ones that is at most it.

    Three arrays (n_known,): p, low and high. The share is beta-binomial, exactly, where scores do not tie: the true FPR
    of a threshold that k of n exceed is Beta(k + 1, n - k).
    """
    i = np.arange(1, n_known + 1)
    low, high = betabinom.ppf([[0.025], [0.975]], n_others, i, n_known + 1 - i) / n_others
    return i / (n_known + 1), low, high
