"""Results as data: each number with its interval, beside the published one. A page's tables are rendered from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mialib.metrics import Comparison, Interval
from mialib.store import home, mialib_version, write_json

DASH = "–"
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
        return str(self.interval or DASH)


def results_path(name: str, profile: str = "lab") -> Path:
    """Where a notebook's results are kept."""
    return home() / profile / "results" / f"{name}.json"


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


def verdict_text(claim: str, comparisons: dict[str, Comparison | None]) -> str:
    """The claim and what each comparison says of it, in Markdown."""
    found = []
    for name, comparison in comparisons.items():
        if comparison is None:
            found.append(f"not applicable for {name}")
        else:
            found.append(f"**{verdict(comparison.difference)}** for {name} (difference {comparison.difference})")
    return f"*Claim: {claim}.* Here it is " + "; ".join(found) + "."


def count_verdicts(comparisons: dict[str, Comparison]) -> str:
    """How many comparisons end in each verdict, in words."""
    counts = Counter(verdict(comparison.difference) for comparison in comparisons.values())
    listed = ", ".join(f"{counts[name]} {name}" for name in ("supported", "not supported", "inconclusive"))
    return f"{len(comparisons)} comparisons: {listed}"


def curves(results: Iterable[Result], metric: str, x_of: dict[str, float]) -> dict[str, dict[float, Interval]]:
    """Results as one curve a row: {row: {x: interval}}, where `x_of` gives each column's place on the x axis."""
    lines: dict[str, dict[float, Interval]] = {}
    for result in results:
        if result.metric == metric and result.interval:
            lines.setdefault(result.row, {})[x_of[result.column]] = result.interval
    return lines
