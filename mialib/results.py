"""Results as data: each number with its interval, beside the published one. A page's tables are rendered from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mialib.metrics import Comparison, Interval
from mialib.store import home, mialib_version, write_json

if TYPE_CHECKING:
    import pandas as pd

DASH = "–"
METRIC_LABELS = {"auc": "AUC", "tpr_at_5_fpr": "TPR at 5% FPR"}
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


def results_table(results: Iterable[Result], metric: str) -> pd.DataFrame:
    """One metric as a table: rows as given, and for each column the published number and ours with its interval."""
    import pandas as pd

    cells: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        if result.metric != metric:
            continue
        if result.published_column:
            printed = DASH if result.published is None else f"{result.published:.3f}"
            cells.setdefault((result.column, f"published: {result.published_column}"), {})[result.row] = printed
        cells.setdefault((result.column, "ours [95% interval]"), {})[result.row] = str(result)
    if not cells:
        raise ValueError(f"no results of metric {metric!r}")
    table = pd.DataFrame(cells)
    table.columns.names = [METRIC_LABELS.get(metric, metric), ""]
    return table


def verdict(difference: Interval, expected_sign: int = 1) -> str:
    """What an interval says of the claim that a difference is positive (or, with -1, negative).

    "supported" where the whole interval lies on the claimed side of 0, "not supported" where all of it lies on the
    other, else "inconclusive".
    """
    low, high = sorted((expected_sign * difference.low, expected_sign * difference.high))
    if low > 0:
        return "supported"
    return "not supported" if high < 0 else "inconclusive"


def comparison_table(comparisons: dict[str, Comparison | None], claim: str) -> pd.DataFrame:
    """One row a comparison: difference with interval, p-value, and the verdict on the claim that it is positive."""
    import pandas as pd

    rows = {
        name: {
            claim: str(c.difference),
            "p (two-sided, paired DeLong)": f"{c.p_value:.2g}",
            "verdict": verdict(c.difference),
        }
        if c
        else {claim: DASH, "p (two-sided, paired DeLong)": DASH, "verdict": "not applicable"}
        for name, c in comparisons.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def verdict_text(claim: str, comparisons: dict[str, Comparison | None]) -> str:
    """The claim and what each comparison says of it, in Markdown."""
    found = []
    for name, comparison in comparisons.items():
        if comparison is None:
            found.append(f"not applicable for {name}")
        else:
            found.append(f"**{verdict(comparison.difference)}** for {name} (difference {comparison.difference})")
    return f"*Claim: {claim}.* Here it is " + "; ".join(found) + "."


def curves(results: Iterable[Result], metric: str, x_of: dict[str, float]) -> dict[str, dict[float, Interval]]:
    """Results as one curve a row: {row: {x: interval}}, where `x_of` gives each column's place on the x axis."""
    lines: dict[str, dict[float, Interval]] = {}
    for result in results:
        if result.metric == metric and result.interval:
            lines.setdefault(result.row, {})[x_of[result.column]] = result.interval
    return lines


def provenance_table(provenance: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """What a page ran, one row a pass of a model over texts."""
    import pandas as pd

    columns = {
        "model": "model",
        "revision": "weights",
        "dtype": "dtype",
        "device": "device",
        "n_texts": "texts",
        "texts": "hash of texts",
        "mialib": "mialib",
    }
    rows = [{label: p.get(key, DASH) for key, label in columns.items()} for p in provenance]
    return pd.DataFrame(rows).drop_duplicates().set_index("model")
