"""Results as data: each number with its interval, beside the published one. A page's tables are rendered from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mialib.metrics import Comparison, Interval
from mialib.store import home, mialib_version, write_json

DASH = "–"
ONE_SEED = "with this seed"  # heading of a column that says `one_seed_says`
VERSIONED = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Result:
    """One cell: ours with its interval, None where not applicable, and the published number where there is one."""

    row: str
    column: str
    metric: str
    ours: float | None
    low: float | None
    high: float | None
    published: float | None = None
    published_column: str | None = None
    marker: str = ""  # "*" where ours is significantly better than what the page's star compares it with
    published_marker: str = ""  # the paper's own
    why: str = ""  # what to say where ours is None and that is not for want of a meaning: "not run"

    @classmethod
    def of(cls, *, interval: Interval | None, **fields: Any) -> Result:
        """The cell of an interval."""
        if interval is None:
            return cls(ours=None, low=None, high=None, **fields)
        return cls(ours=interval.estimate, low=interval.low, high=interval.high, **fields)

    @property
    def interval(self) -> Interval | None:
        """Ours with its interval."""
        return None if self.ours is None else Interval(self.ours, self.low, self.high)

    def __str__(self) -> str:
        return f"{self.interval or self.why or DASH}{self.marker}"


def results_path(name: str) -> Path:
    """Where the results of a notebook that runs alone are kept; the pipeline gives its own path for the book's."""
    return home() / "alone" / f"{name}.json"


def save_results(
    path: str | Path, results: Sequence[Result], *, paper: str, item: str, provenance: Iterable[dict[str, Any]] = ()
) -> None:
    """Write results with what made them: models, benchmarks and library versions."""
    if not results:
        raise ValueError(f"{path}: there are no results to save")
    write_json(
        path,
        {
            "paper": paper,
            "item": item,
            "results": [asdict(result) for result in results],
            "provenance": list(provenance),
            "versions": {"mialib": mialib_version()} | {name: version(name) for name in VERSIONED},
        },
    )


def load_results(path: str | Path) -> list[Result]:
    """Read what `save_results` wrote."""
    return [Result(**fields) for fields in json.loads(Path(path).read_text())["results"]]


def unbroken(cell: object) -> str:
    """A table's cell that a narrow column breaks before a bracket alone, and neither after a minus nor in a number."""
    whole = str(cell).replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{NON-BREAKING HYPHEN}")
    return whole.replace("\N{NO-BREAK SPACE}[", " [")


def verdict(difference: Interval, margin: float | None = None) -> str:
    """What an interval says of the claim that a difference is positive or, with a margin, that it is within ±margin.

    "supported" where the whole interval lies where the claim says, "not supported" where all of it lies elsewhere, else
    "inconclusive".
    """
    if margin is None:
        holds, fails = difference.low > 0, difference.high < 0
    else:
        holds = -margin <= difference.low and difference.high <= margin
        fails = difference.low > margin or difference.high < -margin
    return "supported" if holds else "not supported" if fails else "inconclusive"


def one_seed_says(difference: Interval, margin: float | None = None) -> str:
    """`verdict` in the words for a single training seed, which is no verdict: "holds", "fails" or "open"."""
    words = {"supported": "holds", "not supported": "fails", "inconclusive": "open"}
    return words[verdict(difference, margin)]


def one_seed_text(statement: str, comparisons: dict[str, Comparison | None], margin: float | None = None) -> str:
    """A statement and whether it holds with the one seed that a page ran, in Markdown; `margin` as for `verdict`."""
    found = []
    for name, comparison in comparisons.items():
        if comparison is None:
            found.append(f"not applicable for {name}")
        else:
            says = one_seed_says(comparison.difference, margin)
            found.append(f"**{says}** for {name} (difference {comparison.difference})")
    return f"*{statement}.* With this training seed: " + "; ".join(found) + "."


def count_outcomes(comparisons: dict[str, Comparison], margin: float | None = None) -> str:
    """How many comparisons hold, fail and stay open with this seed, in words; `margin` as for `verdict`."""
    counts = Counter(one_seed_says(comparison.difference, margin) for comparison in comparisons.values())
    listed = f"{counts['holds']} hold, {counts['fails']} fail, {counts['open']} stay open"
    return f"of {len(comparisons)} comparisons {listed}"


def curves(results: Iterable[Result], metric: str, x_of: dict[str, float]) -> dict[str, dict[float, Interval]]:
    """Results as one curve a row: {row: {x: interval}}, of the columns whose place on the x axis `x_of` gives."""
    lines: dict[str, dict[float, Interval]] = {}
    for result in results:
        if result.metric == metric and result.interval and result.column in x_of:
            lines.setdefault(result.row, {})[x_of[result.column]] = result.interval
    return lines


def in_panels(
    results: Iterable[Result], metric: str, place: Callable[[Result], tuple[str, str, str] | None]
) -> dict[str, dict[str, dict[str, Interval]]]:
    """Results as a figure's panels, {panel: {series: {row: interval}}}; `place` gives the three, or None for none."""
    panels: dict[str, dict[str, dict[str, Interval]]] = {}
    for result in results:
        where = place(result) if result.metric == metric and result.interval else None
        if where:
            panel, series, row = where
            panels.setdefault(panel, {}).setdefault(series, {})[row] = result.interval
    return panels
