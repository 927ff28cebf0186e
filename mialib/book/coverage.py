"""How often the book's intervals hold the truth, and its set p-values call what they should not: by simulation.

Scores are drawn from distributions whose AUC and TPR are known, and each interval is made as a page makes it. A family
is one kind of interval; `FAMILIES` says what each simulates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import hypot, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mialib.book.results import DASH, Result, load_results, needs_more, save
from mialib.calibration import non_use_p_value, set_p_value
from mialib.metrics import (
    FloatArray,
    Interval,
    auc_interval,
    clopper_pearson,
    compare_auc,
    compare_auc_over_seeds,
    compare_tpr_at_fpr,
    compare_tpr_at_fpr_over_seeds,
    tpr_at_fpr_interval,
)
from mialib.store import DATA
from mialib.versions import versions_of

RECORDED = DATA / "recorded" / "coverage.json"
SIMULATIONS = 400
TIMES = {
    "tpr_difference": 0.4,
    "seeds": 0.4,
    "set": 5,
    "set_power": 5,
    "non_use": 5,
}  # as many simulations: those of a bootstrap take long
SIZES = ((10, 10), (20, 20), (50, 50), (500, 500), (20, 500), (500, 20))  # members, non-members
AUCS = (0.5, 0.7, 0.9, 0.97, 0.99)
CORRELATION = 0.9  # of two detectors' scores of a text
FEW_RESAMPLES = 500  # of a bootstrap, where the pages take 2,000: simulated more often, each a little rougher

Draw = Callable[[np.random.Generator], bool]  # one simulation: whether the interval holds the truth, or a set is called
Case = tuple[str, str, Draw | str]  # row, column, and what is simulated; or why it is not


# --- scores with a known AUC ---


def _normal(auc: float, of_members: float = 1, of_non_members: float = 1) -> Callable[..., tuple[FloatArray, ...]]:
    from scipy.stats import norm

    shift = hypot(of_members, of_non_members) * norm.ppf(auc)
    return lambda rng, m, n: (rng.normal(shift, of_members, m), rng.normal(0, of_non_members, n))


def _exponential(auc: float) -> Callable[..., tuple[FloatArray, ...]]:
    return lambda rng, m, n: (rng.exponential(auc / (1 - auc), m), rng.exponential(1, n))


def _rounded(auc: float) -> Callable[..., tuple[FloatArray, ...]]:
    """Normal scores rounded to whole numbers, so that most of them tie."""
    shift = _shift_of_rounded(auc)
    return lambda rng, m, n: (np.round(rng.normal(shift, 1, m)), np.round(rng.normal(0, 1, n)))


@cache
def _shift_of_rounded(auc: float) -> float:
    """By how much the means of two unit normals must differ for this AUC after rounding; a tie counts one half."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    whole = np.arange(-20, 30)

    def auc_at(shift: float) -> float:
        members, others = (norm.cdf(whole + 0.5 - mean) - norm.cdf(whole - 0.5 - mean) for mean in (shift, 0))
        return float(members @ (np.cumsum(others) - others / 2))

    return float(brentq(lambda shift: auc_at(shift) - auc, -1, 10))


DISTRIBUTIONS: dict[str, Callable[[float], Callable[..., tuple[FloatArray, ...]]]] = {
    "normal": _normal,
    "normal, members twice as spread": lambda auc: _normal(auc, of_members=2),
    "normal, non-members twice as spread": lambda auc: _normal(auc, of_non_members=2),
    "exponential": _exponential,
    "normal, rounded": _rounded,
}


def _size(m: int, n: int) -> str:
    return f"{m} members, {n} non-members"


def _labels(m: int, n: int) -> FloatArray:
    return np.repeat([1.0, 0.0], [m, n])


def _holds(interval: Interval, truth: float) -> bool:
    return bool(interval.low - 1e-9 <= truth <= interval.high + 1e-9)  # the last digits of a sum are no miss


# --- families ---


def aucs() -> Iterator[Case]:
    """`auc_interval`, of each size, AUC and distribution."""
    for m, n in SIZES:
        for auc in AUCS:
            for name, make in DISTRIBUTIONS.items():
                scores = make(auc)
                yield (
                    _size(m, n),
                    f"{auc:g}, {name}",
                    lambda rng, m=m, n=n, auc=auc, scores=scores: _holds(
                        auc_interval(_labels(m, n), np.concatenate(scores(rng, m, n))), auc
                    ),
                )


def tprs() -> Iterator[Case]:
    """`tpr_at_fpr_interval` of normal scores, of as many members as non-members."""
    from scipy.stats import norm

    for n in (50, 100, 500):
        for percent in (1, 5):
            labels, fpr = _labels(n, n), percent / 100
            for tpr in (0.1, 0.5, 0.9):
                shift = norm.ppf(1 - fpr) + norm.ppf(tpr)

                def draw(
                    rng: np.random.Generator,
                    labels: FloatArray = labels,
                    fpr: float = fpr,
                    tpr: float = tpr,
                    shift: float = shift,
                ) -> bool:
                    return _holds(tpr_at_fpr_interval(labels, rng.normal(size=len(labels)) + shift * labels, fpr), tpr)

                yield _size(n, n), f"TPR {tpr:g} at {percent}% FPR", needs_more(f"tpr_at_{percent}_fpr", labels) or draw


def _two_detectors(rng: np.random.Generator, labels: FloatArray, shifts: Sequence[float]) -> list[FloatArray]:
    """Scores of two detectors that see much the same in a text."""
    common = np.sqrt(CORRELATION) * rng.normal(size=len(labels))
    own = np.sqrt(1 - CORRELATION) * rng.normal(size=(2, len(labels)))
    return [common + of + shift * labels for of, shift in zip(own, shifts, strict=True)]


def auc_differences() -> Iterator[Case]:
    """`compare_auc` of two detectors on the same texts."""
    from scipy.stats import norm

    for m, n in ((20, 20), (20, 500), (50, 50), (500, 500)):
        for a, b in ((0.7, 0.7), (0.8, 0.7), (0.97, 0.9)):
            labels, shifts = _labels(m, n), np.sqrt(2) * norm.ppf([a, b])
            yield (
                _size(m, n),
                f"AUC {a:g} against {b:g}",
                lambda rng, labels=labels, shifts=shifts, truth=a - b: _holds(
                    compare_auc(labels, *_two_detectors(rng, labels, shifts)).difference, truth
                ),
            )


def tpr_differences() -> Iterator[Case]:
    """`compare_tpr_at_fpr` of two detectors on the same texts."""
    from scipy.stats import norm

    for n in (50, 100, 500):
        for a, b in ((0.3, 0.3), (0.5, 0.3)):
            labels, shifts = _labels(n, n), norm.ppf(0.95) + norm.ppf([a, b])
            yield (
                _size(n, n),
                f"TPR {a:g} against {b:g} at 5% FPR",
                lambda rng, labels=labels, shifts=shifts, truth=a - b: _holds(
                    compare_tpr_at_fpr(
                        labels, *_two_detectors(rng, labels, shifts), n_resamples=FEW_RESAMPLES
                    ).difference,
                    truth,
                ),
            )


# How far a training seed moves the shift between the classes, and how many texts there are of each.
SEEDS = {"texts dominate": (0.0, 100), "texts and seeds alike": (0.07, 100), "seeds dominate": (0.4, 200)}


def _three_seeds(rng: np.random.Generator, labels: FloatArray, moved: float) -> list[list[FloatArray]]:
    """Two sides alike, three seeds each, of the same texts, so that the true difference is 0.

    A text's score has a part that all share, one of its side and a smaller one of its side and seed.
    """
    n, both = len(labels), rng.normal(size=len(labels))
    by_side = []
    for _ in range(2):
        own = both + 0.5 * rng.normal(size=n)
        by_side.append([own + 0.2 * rng.normal(size=n) + (1 + moved * rng.normal()) * labels for _ in range(3)])
    return by_side


def seed_differences() -> Iterator[Case]:
    """`compare_auc_over_seeds` and `compare_tpr_at_fpr_over_seeds`, three seeds."""
    for name, (moved, n) in SEEDS.items():
        labels = _labels(n, n)
        yield (
            f"three seeds, {_size(n, n)}: {name}",
            "AUC",
            lambda rng, labels=labels, moved=moved: _holds(
                compare_auc_over_seeds(labels, *_three_seeds(rng, labels, moved)).difference, 0
            ),
        )
        yield (
            f"three seeds, {_size(n, n)}: {name}",
            "TPR at 5% FPR",
            lambda rng, labels=labels, moved=moved: _holds(
                compare_tpr_at_fpr_over_seeds(labels, *_three_seeds(rng, labels, moved)).difference, 0
            ),
        )


def _set(
    rng: np.random.Generator,
    m: int,
    shift: float = 0,
    correlation: float = 0,
    digits: int = 9,
    floor: float = -np.inf,
) -> FloatArray:
    """Scores of m texts of one source, (m,), normal: one part of each is the source's. None is below `floor`."""
    of_source = np.sqrt(correlation) * rng.normal() + np.sqrt(1 - correlation) * rng.normal(size=m)
    return np.maximum(np.round(of_source + shift, digits), floor)


def _p_of_set(rng: np.random.Generator, m: int, *, by_source: bool = False, copies: int = 1, **of_set: Any) -> float:
    """The p-value of a set of m texts against known non-members: 200 texts, or 40 sources of m texts each."""
    own = np.repeat(_set(rng, m // copies, **of_set), copies)
    unseen = of_set | {"shift": 0}
    if by_source:
        return set_p_value([own.mean()], [_set(rng, m, **unseen).mean() for _ in range(40)])
    return set_p_value(own, _set(rng, 200, **(unseen | {"correlation": 0})))


OF_SETS: dict[str, dict[str, Any]] = {
    "independent texts": {},
    "texts of a set correlated by 0.1": {"correlation": 0.1},
    "the same, as one mean against 40 sources": {"correlation": 0.1, "by_source": True},
    "independent texts, scores rounded": {"digits": 0},
    "independent texts, nine in ten non-members tied": {"floor": 1.28},
    "each text twice": {"copies": 2},
}


def sets(shift: float = 0) -> Iterator[Case]:
    """`set_p_value` at most 5%, for a set against known non-members: a false alarm, or the power where its texts are
    shifted by so many standard deviations."""
    for name, of_kind in OF_SETS.items():
        for m in (1, 20, 100):
            if m >= of_kind.get("copies", 1):
                yield (
                    name,
                    f"a set of {m}",
                    lambda rng, m=m, of_kind=of_kind: _p_of_set(rng, m, shift=shift, **of_kind) <= 0.05,
                )


def unused_sets() -> Iterator[Case]:
    """`non_use_p_value` at most 5% against 200 known members, for a set of members (a false alarm) and one of texts
    whose scores lie half a standard deviation lower."""
    for name, shift in (("a set of members", 0.0), ("a set that was not used", -0.5)):
        for m in (1, 20, 100):
            yield (
                name,
                f"a set of {m}",
                lambda rng, m=m, shift=shift: non_use_p_value(_set(rng, m, shift), _set(rng, 200)) <= 0.05,
            )


FAMILIES: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "auc": ("An AUC's interval holds the true AUC", aucs),
    "tpr": ("A TPR's interval holds the true TPR", tprs),
    "auc_difference": ("The interval of two detectors' AUC difference holds the true difference", auc_differences),
    "tpr_difference": ("The interval of two detectors' TPR difference holds the true difference", tpr_differences),
    "seeds": ("The interval of a difference over three training seeds holds the true difference", seed_differences),
    "set": ("A set without a member is called members at p ≤ 0.05", sets),
    "set_power": (
        "A set of members, half a standard deviation higher, is called members at p ≤ 0.05",
        partial(sets, 0.5),
    ),
    "non_use": ("A set is called unused at p ≤ 0.05", unused_sets),
}


def simulate(family: str, simulations: int = SIMULATIONS, seed: int = 0) -> list[Result]:
    """The share of simulations of each case of a family in which it holds, with its Monte Carlo interval."""
    rng, results = np.random.default_rng([seed, list(FAMILIES).index(family)]), []
    simulations = how_many(family, simulations)
    for row, column, draw in FAMILIES[family][1]():
        is_drawn = not isinstance(draw, str)
        share = clopper_pearson(sum(draw(rng) for _ in range(simulations)), simulations) if is_drawn else None
        results.append(Result.of(row=row, column=column, metric=family, interval=share, why="" if is_drawn else draw))
    return results


def how_many(family: str, simulations: int) -> int:
    """The number of simulations of each case of a family."""
    return max(1, round(simulations * TIMES.get(family, 1)))


def record(results: Sequence[Result], simulations: int, seed: int, path: Path = RECORDED) -> None:
    """Write what was simulated for the book, with what it was made by."""
    made_by = {
        "simulations": (n := {family: how_many(family, simulations) for family in FAMILIES}),
        "monte_carlo_error": {family: sqrt(0.95 * 0.05 / n[family]) for family in FAMILIES},  # of a share of 95 or 5%
        "seed": seed,
        "versions": versions_of("intervals"),
    }
    save("coverage", results, paper="none", item="coverage of intervals", ran=[made_by], out=path)


def load_recorded(path: Path = RECORDED) -> tuple[list[Result], dict[str, Any]]:
    """What `record` wrote, and what it was made by."""
    return load_results(path), json.loads(path.read_text())["provenance"][0]


def table(results: Sequence[Result], family: str) -> pd.DataFrame:
    """A family's shares, a row a size; of an AUC's interval the lowest and the highest share of the distributions."""
    rows: dict[str, dict[str, list[Result]]] = {}
    for r in (r for r in results if r.metric == family):
        column = f"AUC {r.column.split(', ')[0]}" if family == "auc" else r.column
        rows.setdefault(r.row, {}).setdefault(column, []).append(r)
    cells = {row: {column: _cell(of) for column, of in columns.items()} for row, columns in rows.items()}
    return pd.DataFrame.from_dict(cells, orient="index").fillna(DASH)


def _cell(results: Sequence[Result]) -> str:
    shares = [r.ours for r in results if r.ours is not None]
    if not shares:
        return results[0].why
    low, high = f"{min(shares):.3f}", f"{max(shares):.3f}"
    return low if len(shares) == 1 else f"{low} to {high}"
