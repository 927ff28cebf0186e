"""`mialib coverage`: how often the book's intervals contain the truth, and set p-values call what they should not.

Scores are drawn from distributions of known AUC and TPR, and intervals are made as on the pages. `FAMILIES` says what
each kind of interval, a family, simulates; the page on coverage shows what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import hypot, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from mialib import metrics
from mialib.calibration import non_use_p_value, set_p_value
from mialib.metrics import FloatArray, Interval, auc_interval, clopper_pearson
from mialib.versions import versions_of
from replication.claims.over_seeds import compare_auc_over_seeds, compare_tpr_at_fpr_over_seeds
from replication.results import Result, needs_more, save
from replication.studies.coverage import RECORDED, TITLES, coverage_table

# So many times as many simulations: a bootstrap takes long.
TIMES = {"tpr_difference": 0.4, "seeds": 0.4, "set": 5, "set_power": 5, "non_use": 5}
SIZES = ((10, 10), (20, 20), (50, 50), (500, 500), (20, 500), (500, 20))  # members, non-members
AUCS = (0.5, 0.7, 0.9, 0.97, 0.99)
CORRELATION = 0.9  # of two detectors' scores of a text
LEVEL = 0.05  # a set is called where its p-value is at most this
FEW_RESAMPLES = 500  # of a bootstrap, where the pages take 2,000: simulated more often, each a little rougher

Draw = Callable[[np.random.Generator], bool]  # one simulation: whether the interval holds the truth, or a set is called
Case = tuple[str, str, Draw | str]  # row, column, and what is simulated; or why it is not
Scores = Callable[..., tuple[FloatArray, ...]]  # rng and numbers of texts -> scores of members and non-members
Compare = Callable[..., metrics.Comparison]  # of two sides on the same texts


# --- scores with a known AUC ---


def _normal(auc: float, of_members: float = 1, of_non_members: float = 1) -> Scores:
    shift = hypot(of_members, of_non_members) * norm.ppf(auc)
    return lambda rng, m, n: (rng.normal(shift, of_members, m), rng.normal(0, of_non_members, n))


def _exponential(auc: float) -> Scores:
    return lambda rng, m, n: (rng.exponential(auc / (1 - auc), m), rng.exponential(1, n))


def _rounded(auc: float) -> Scores:
    """Normal scores rounded to whole numbers, so that most of them tie."""
    whole = np.arange(-20, 30)

    def auc_at(shift: float) -> float:  # a tie counts one half
        members, others = (norm.cdf(whole + 0.5 - mean) - norm.cdf(whole - 0.5 - mean) for mean in (shift, 0))
        return float(members @ (np.cumsum(others) - others / 2))

    shift = float(brentq(lambda shift: auc_at(shift) - auc, -1, 10))
    return lambda rng, m, n: (np.round(rng.normal(shift, 1, m)), np.round(rng.normal(0, 1, n)))


DISTRIBUTIONS: dict[str, Callable[[float], Scores]] = {
    "normal": _normal,
    "normal, members twice as spread": partial(_normal, of_members=2),
    "normal, non-members twice as spread": partial(_normal, of_non_members=2),
    "exponential": _exponential,
    "normal, rounded": _rounded,
}


def _size(m: int, n: int) -> str:
    return f"{m} members, {n} non-members"


def _labels(m: int, n: int) -> FloatArray:
    return np.repeat([1.0, 0.0], [m, n])


def _holds(truth: float, interval: Interval) -> bool:
    return bool(interval.low - 1e-9 <= truth <= interval.high + 1e-9)  # the last digits of a sum are no miss


# --- families: a simulation, and the cases that it is made of ---


def _auc(rng: np.random.Generator, auc: float, scores: Scores, m: int, n: int) -> bool:
    return _holds(auc, auc_interval(_labels(m, n), np.concatenate(scores(rng, m, n))))


def simulated_aucs() -> Iterator[Case]:
    """`auc_interval`, of each size, AUC and distribution."""
    for (m, n), auc, (name, make) in product(SIZES, AUCS, DISTRIBUTIONS.items()):
        yield _size(m, n), f"{auc:g}, {name}", partial(_auc, auc=auc, scores=make(auc), m=m, n=n)


def _tpr(rng: np.random.Generator, tpr: float, fpr: float, n: int) -> bool:
    shift, labels = norm.ppf(1 - fpr) + norm.ppf(tpr), _labels(n, n)
    return _holds(tpr, metrics.tpr_at_fpr_interval(labels, rng.normal(size=2 * n) + shift * labels, fpr))


def tprs() -> Iterator[Case]:
    """`tpr_at_fpr_interval` of normal scores, of as many members as non-members."""
    for n, percent, tpr in product((50, 100, 500), (1, 5), (0.1, 0.5, 0.9)):
        needs = needs_more(f"tpr_at_{percent}_fpr", _labels(n, n))
        draw = needs or partial(_tpr, tpr=tpr, fpr=percent / 100, n=n)
        yield _size(n, n), f"TPR {tpr:g} at {percent}% FPR", draw


def _difference(
    rng: np.random.Generator, truth: float, compare: Compare, labels: FloatArray, shifts: FloatArray
) -> bool:
    """Two detectors that see much the same in a text."""
    common = np.sqrt(CORRELATION) * rng.normal(size=len(labels))
    own = np.sqrt(1 - CORRELATION) * rng.normal(size=(2, len(labels)))
    return _holds(truth, compare(labels, *(common + own + np.outer(shifts, labels))).difference)


def auc_differences() -> Iterator[Case]:
    """`compare_auc` of two detectors on the same texts."""
    for (m, n), (a, b) in product(((20, 20), (20, 500), (50, 50), (500, 500)), ((0.7, 0.7), (0.8, 0.7), (0.97, 0.9))):
        given = {"labels": _labels(m, n), "shifts": np.sqrt(2) * norm.ppf([a, b])}
        draw = partial(_difference, truth=a - b, compare=metrics.compare_auc, **given)
        yield _size(m, n), f"AUC {a:g} against {b:g}", draw


def tpr_differences() -> Iterator[Case]:
    """`compare_tpr_at_fpr` of two detectors on the same texts."""
    compare = partial(metrics.compare_tpr_at_fpr, n_resamples=FEW_RESAMPLES)
    for n, (a, b) in product((50, 100, 500), ((0.3, 0.3), (0.5, 0.3))):
        given = {"labels": _labels(n, n), "shifts": norm.ppf(0.95) + norm.ppf([a, b])}
        draw = partial(_difference, truth=a - b, compare=compare, **given)
        yield _size(n, n), f"TPR {a:g} against {b:g} at 5% FPR", draw


# How far a training seed moves the shift between the classes, and how many texts there are of each.
SEEDS = {"texts dominate": (0.0, 100), "texts and seeds alike": (0.07, 100), "seeds dominate": (0.4, 200)}


def _three_seeds(rng: np.random.Generator, compare: Compare, moved: float, n: int) -> bool:
    """Two sides alike, three seeds each, on the same texts, so that the true difference is 0.

    A text's score has a part that all share, one of its side and a smaller one of its side and seed.
    """
    labels, both, sides = _labels(n, n), rng.normal(size=2 * n), []
    for _ in range(2):
        own = both + 0.5 * rng.normal(size=2 * n)
        sides.append([own + 0.2 * rng.normal(size=2 * n) + (1 + moved * rng.normal()) * labels for _ in range(3)])
    return _holds(0, compare(labels, *sides).difference)


def seed_differences() -> Iterator[Case]:
    """`compare_auc_over_seeds` and `compare_tpr_at_fpr_over_seeds`, three seeds."""
    compared = {"AUC": compare_auc_over_seeds, "TPR at 5% FPR": compare_tpr_at_fpr_over_seeds}
    for (name, (moved, n)), (metric, compare) in product(SEEDS.items(), compared.items()):
        draw = partial(_three_seeds, compare=compare, moved=moved, n=n)
        yield f"three seeds, {_size(n, n)}: {name}", metric, draw


def _set(
    rng: np.random.Generator, m: int, shift: float = 0, correlation: float = 0, digits: int = 9, floor: float = -np.inf
) -> FloatArray:
    """Scores of m texts of one source, (m,), normal: one part of each is the source's. None is below `floor`."""
    of_source = np.sqrt(correlation) * rng.normal() + np.sqrt(1 - correlation) * rng.normal(size=m)
    return np.maximum(np.round(of_source + shift, digits), floor)


def _set_called(rng: np.random.Generator, m: int, *, by_source: bool = False, copies: int = 1, **of_set: Any) -> bool:
    """A set of m texts against known non-members: 200 texts, or 40 sources of m texts each."""
    own = np.repeat(_set(rng, m // copies, **of_set), copies)
    unseen = of_set | {"shift": 0}
    if by_source:
        return set_p_value([own.mean()], [_set(rng, m, **unseen).mean() for _ in range(40)]) <= LEVEL
    return set_p_value(own, _set(rng, 200, **(unseen | {"correlation": 0}))) <= LEVEL


def _unused_called(rng: np.random.Generator, m: int, shift: float) -> bool:
    """A set of m texts against 200 known members."""
    return non_use_p_value(_set(rng, m, shift), _set(rng, 200)) <= LEVEL


OF_SETS: dict[str, dict[str, Any]] = {
    "independent texts": {},
    "texts of a set correlated by 0.1": {"correlation": 0.1},
    "the same, as one mean against 40 sources": {"correlation": 0.1, "by_source": True},
    "independent texts, scores rounded": {"digits": 0},
    "independent texts, nine in ten non-members tied": {"floor": 1.28},
    "each text twice": {"copies": 2},
}


def sets(shift: float = 0) -> Iterator[Case]:
    """`set_p_value` at most 5%, against known non-members: a false alarm, or power where the set's texts are shifted by
    so many standard deviations."""
    for (name, of_kind), m in product(OF_SETS.items(), (1, 20, 100)):
        if m >= of_kind.get("copies", 1):
            yield name, f"a set of {m}", partial(_set_called, m=m, shift=shift, **of_kind)


shifted_sets = partial(sets, 0.5)


def unused_sets() -> Iterator[Case]:
    """`non_use_p_value` at most 5%, for a set of members (a false alarm) and one of texts whose scores lie half a
    standard deviation lower."""
    for (name, shift), m in product({"a set of members": 0.0, "a set that was not used": -0.5}.items(), (1, 20, 100)):
        yield name, f"a set of {m}", partial(_unused_called, m=m, shift=shift)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "auc": simulated_aucs,
    "tpr": tprs,
    "auc_difference": auc_differences,
    "tpr_difference": tpr_differences,
    "seeds": seed_differences,
    "set": sets,
    "set_power": shifted_sets,
    "non_use": unused_sets,
}


def simulate(family: str, simulations: int, seed: int = 0) -> list[Result]:
    """The share of simulations of each case of a family in which it holds, with its Monte Carlo interval."""
    rng, results = np.random.default_rng([seed, list(FAMILIES).index(family)]), []
    n = how_many(family, simulations)
    for row, column, draw in FAMILIES[family]():
        about = {"row": row, "column": column, "metric": family}
        if isinstance(draw, str):
            results.append(Result.of(interval=None, why=draw, **about))
        else:
            results.append(Result.of(interval=clopper_pearson(sum(draw(rng) for _ in range(n)), n), **about))
    return results


def how_many(family: str, simulations: int) -> int:
    """The number of simulations of each case of a family."""
    return max(1, round(simulations * TIMES.get(family, 1)))


def record_coverage(results: Sequence[Result], simulations: int, seed: int, path: Path = RECORDED) -> None:
    """Write what was simulated for the book, with what it was made by."""
    n = {family: how_many(family, simulations) for family in FAMILIES}
    made_by = {
        "simulations": n,
        "monte_carlo_error": {family: sqrt(0.95 * 0.05 / n[family]) for family in FAMILIES},  # of a share of 95 or 5%
        "seed": seed,
        "versions": versions_of("intervals"),
    }
    save("coverage", results, paper="none", item="coverage of intervals", ran=[made_by], out=path)


def run(simulations: int, seed: int, record: bool) -> None:
    """Simulate all families and print their tables."""
    results = []
    for family, title in TITLES.items():
        found = simulate(family, simulations, seed)
        results += found
        print(f"{title}, share of simulations\n{coverage_table(found, family).to_string()}\n", flush=True)
    if record:
        record_coverage(results, simulations, seed)
