"""The numbers the replicated papers print, read from `data/published.csv`.

The file has one row per printed number and is keyed by its first five columns:

    paper    `dc-pdd` (Zhang et al., EMNLP 2024), `surp` (Zhang and Wu, arXiv 2407.21248), `probe` (Liu et al., arXiv
             2406.01333) or `min-k` (Shi et al., ICLR 2024; of it, only what the text of its introduction states)
    item     where it is printed: `table-1` ... `figure-4`, or `text` for a number given only in prose
    row      the method, or whatever the item's rows are, in the paper's own spelling
    column   benchmark and model (`PatentMIA / Baichuan-13B`), or whatever the item's columns are
    metric   `auc` and `tpr_at_5_fpr` lie in [0, 1], whatever the paper prints them in (`probe`: percent); one ending in
             `_percent` is as printed, in percent
    value    the number; empty where the paper prints '-'
    marker   `*` where the paper prints one, else empty
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import isnan
from typing import TYPE_CHECKING, Any

from mialib.book.results import DASH, Result
from mialib.store import DATA

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED_CSV = DATA / "published.csv"


def load_published(paper: str | None = None, item: str | None = None) -> pd.DataFrame:
    """All published numbers, or only those of one paper, one item, or both.

    `value` is float64, NaN where the paper prints '-'; every other column is text.
    """
    import pandas as pd

    # Only an empty `value` is missing; an empty `marker` is the empty string.
    published = pd.read_csv(
        PUBLISHED_CSV,
        dtype=dict.fromkeys(["paper", "item", "row", "column", "metric", "marker"], "str") | {"value": "float64"},
        keep_default_na=False,
        na_values={"value": [""]},
    )
    for name, wanted in (("paper", paper), ("item", item)):
        if wanted is None:
            continue
        known = sorted(published[name].unique())
        if wanted not in known:
            raise ValueError(f"unknown {name} {wanted!r}; known: {', '.join(known)}")
        published = published[published[name] == wanted]
    return published.reset_index(drop=True)


def published_along(paper: str, item: str, name: str, metric: str) -> dict[str, float | None]:
    """One column of a printed table by its rows, or one row by its columns, whichever `name` is; None for a '-'.

    Raises ValueError where neither a row nor a column of that metric has the name.
    """
    return {key: None if isnan(value) else value for key, value in _along(paper, item, name, metric, "value").items()}


def markers_along(paper: str, item: str, name: str, metric: str) -> dict[str, str]:
    """The paper's marks of the cells that `published_along` gives: "*" or "" for none."""
    return _along(paper, item, name, metric, "marker")


def _along(paper: str, item: str, name: str, metric: str, field: str) -> dict[str, Any]:
    cells = load_published(paper, item)
    cells = cells[cells["metric"] == metric]
    for axis, other in (("column", "row"), ("row", "column")):
        found = cells[cells[axis] == name]
        if not found.empty:
            return dict(zip(found[other], found[field], strict=True))
    known = [*cells["column"].unique(), *cells["row"].unique()]
    raise ValueError(f"{paper} {item} prints no {metric} of {name!r}; it has: {', '.join(known)}")


def printed(paper: str, items: Mapping[str, str], name: str | None) -> dict[str, dict[str, tuple[float | None, str]]]:
    """What `results.measure` takes: value and marker by metric and row, of a printed column; nothing for None.

    `items` says which item of the paper prints each metric: {"auc": "table-2"}.
    """
    if name is None:
        return {}
    return {
        metric: {
            row: (value, markers[row])
            for markers in [markers_along(paper, item, name, metric)]
            for row, value in published_along(paper, item, name, metric).items()
        }
        for metric, item in items.items()
    }


# One method's rows in the papers' own spellings, the first being this book's.
METHODS = (
    ("PPL", "Loss Attack"),
    ("Lowercase", "Lower", "Lowercased Text"),
    ("Zlib", "Zlib Compression"),
    ("Small Ref", "Ref", "Smaller Model"),
    ("Neighbor", "Neighbor Attack"),
    ("Min-K% Prob", "MinK"),
)


@dataclass(frozen=True)
class Source:
    """A printed column of AUCs for WikiMIA and one model."""

    label: str
    paper: str
    item: str
    column: str
    words: int  # length of WikiMIA's texts


# The columns of WikiMIA and one model that more than one paper prints. DC-PDD's Table 2 does not name its length; its
# text says that WikiMIA has 250 examples, which is the number at 128 words.
PRINTED_TWICE = {
    "Pythia-6.9B": (
        Source("DC-PDD, 128 words", "dc-pdd", "table-2", "WikiMIA / Pythia-6.9B", 128),
        Source("SURP, 128 words", "surp", "table-1", "WikiMIA-128 / Pythia-6.9B", 128),
        Source("SURP, 32 words", "surp", "table-1", "WikiMIA-32 / Pythia-6.9B", 32),
    ),
    "LLaMA-13B": (
        Source("DC-PDD, 128 words", "dc-pdd", "table-2", "WikiMIA / Llama-13B", 128),
        Source("SURP, 128 words", "surp", "table-1", "WikiMIA-128 / LLaMA-13B", 128),
        Source("SURP, 32 words", "surp", "table-1", "WikiMIA-32 / LLaMA-13B", 32),
    ),
    "Pythia-2.8B": (
        Source("SURP, 32 words", "surp", "table-1", "WikiMIA-32 / Pythia-2.8B", 32),
        Source("Probing, 32 words", "probe", "table-2", "WikiMIA / Pythia-2.8B", 32),
    ),
    "OPT-6.7B": (
        Source("DC-PDD, 128 words", "dc-pdd", "table-2", "WikiMIA / OPT-6.7B", 128),
        Source("Probing, 32 words", "probe", "table-2", "WikiMIA / OPT-6.7B", 32),
    ),
}


def printed_twice(model: str) -> dict[str, dict[str, float | None]]:
    """{method: {source: AUC}} for a model of PRINTED_TWICE; None where the paper prints a dash or no such row.

    A method stands here that at least two of the papers print.
    """
    columns = {s.label: published_along(s.paper, s.item, s.column, "auc") for s in PRINTED_TWICE[model]}
    found = {}
    for spellings in METHODS:
        values = {
            label: next((column[row] for row in spellings if row in column), None) for label, column in columns.items()
        }
        printing = {s.paper for s in PRINTED_TWICE[model] if values[s.label] is not None}
        if len(printing) > 1:
            found[spellings[0]] = values
    return found


@dataclass(frozen=True)
class Disagreement:
    """The AUCs that two papers print of one model, method and length."""

    model: str
    method: str
    source: str
    auc: float
    other: str
    other_auc: float

    @property
    def difference(self) -> float:
        """The first AUC minus the other, to the printed digits."""
        return round(self.auc - self.other_auc, 3)


def disagreements() -> list[Disagreement]:
    """Each number that two papers print of one length, the largest difference first; many are 0."""
    found = [
        Disagreement(model, method, one.label, values[one.label], other.label, values[other.label])
        for model, sources in PRINTED_TWICE.items()
        for method, values in printed_twice(model).items()
        for one, other in combinations(sources, 2)
        if one.paper != other.paper
        and one.words == other.words
        and None not in (values[one.label], values[other.label])
    ]
    return sorted(found, key=lambda d: -abs(d.difference))


def say_disagreements(margin: float) -> str:
    """How many of the numbers agree, in Markdown."""
    found = disagreements()
    alike = sum(d.difference == 0 for d in found)
    far = [d for d in found if abs(d.difference) > margin]
    methods = ", ".join(f"{n} {method}" for method, n in Counter(d.method for d in far).items())
    return (
        f"Of {len(found)} numbers that two papers print, {alike} are the same to the third digit and {len(far)} differ "
        f"by more than {margin:g} ({methods}); the largest difference is {found[0].difference:+.3f}, of "
        f"{found[0].method} with {found[0].model}."
    )


def twice_results() -> list[Result]:
    """All numbers that two papers print, as results that have no number of ours."""
    return [
        Result.of(
            row=method,
            column=f"{model}, {source}",
            metric="auc",
            interval=None,
            published=value,
            published_column=source,
        )
        for model in PRINTED_TWICE
        for method, values in printed_twice(model).items()
        for source, value in values.items()
    ]


# Where the papers print AUCs of a benchmark: paper, item, and what the columns begin with.
PRINTED_ON = {
    "wikimia-32": (("surp", "table-1", "WikiMIA-32 /"), ("probe", "table-2", "WikiMIA /")),
    "wikimia-128": (("surp", "table-1", "WikiMIA-128 /"), ("dc-pdd", "table-2", "WikiMIA /")),
    "arxiv_mia": (("probe", "table-2", "ArxivMIA /"),),
    "arxiv_mia, cs": (("probe", "table-2", "ArxivMIA-CS /"),),
    "arxiv_mia, math": (("probe", "table-2", "ArxivMIA-Math /"),),
}


@dataclass(frozen=True)
class Printed:
    """An AUC that a paper prints."""

    auc: float
    method: str
    model: str
    paper: str

    def __str__(self) -> str:
        return f"{self.auc:.3f} ({self.method}, {self.model}; {self.paper})"


def best_printed(benchmark: str) -> Printed | None:
    """The highest AUC that any of the papers prints of any detector and model on a benchmark; None where none does."""
    found = []
    for paper, item, beginning in PRINTED_ON.get(benchmark, ()):
        cells = load_published(paper, item)
        cells = cells[cells["metric"].eq("auc") & cells["column"].str.startswith(beginning) & cells["value"].notna()]
        found += [
            Printed(value, method, column.removeprefix(beginning).strip(), paper)
            for method, column, value in zip(cells["row"], cells["column"], cells["value"], strict=True)
        ]
    return max(found, key=lambda printed: printed.auc, default=None)


def printed_twice_table(methods: Mapping[str, Mapping[str, float | None]]) -> pd.DataFrame:
    """AUCs that several papers print: a row a method, a column a source."""
    import pandas as pd

    cells = {
        method: {source: DASH if value is None else f"{value:.3f}" for source, value in values.items()}
        for method, values in methods.items()
    }
    return pd.DataFrame.from_dict(cells, orient="index").rename_axis(columns="published AUC")


def disagreement_table(found: Iterable[Disagreement]) -> pd.DataFrame:
    """What two papers print of one thing, and the difference."""
    import pandas as pd

    rows = [
        {
            "model": d.model,
            "method": d.method,
            "one": f"{d.auc:.3f} ({d.source})",
            "other": f"{d.other_auc:.3f} ({d.other})",
            "difference": f"{d.difference:+.3f}" if d.difference else "0",
        }
        for d in found
    ]
    return pd.DataFrame(rows).set_index("model").rename_axis(None)
