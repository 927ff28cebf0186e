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

`data/expected.csv` has what other people measured with these and later detectors: who (`source`, a key of the
references, and `by`, in words), on which model and benchmark (names of the registry where it has them), in which
`setting`, as text with the digits that they give, and how we know the number: `read` in their own file or thread, or
`reported` by others.
"""

from collections.abc import Collection, Mapping
from math import isnan
from typing import NamedTuple

import pandas as pd

from replication import BOOK_DATA
from replication.profile import check_names
from replication.results import DASH, label_of
from replication.tables import METRIC_LABELS

PUBLISHED_CSV = BOOK_DATA / "published.csv"
EXPECTED_CSV = BOOK_DATA / "expected.csv"
PAPERS = {"min-k": "Min-K% Prob", "dc-pdd": "DC-PDD", "surp": "SURP", "probe": "Probing"}  # in the book's order
METHODS = {  # a detector as each paper spells it
    "dc-pdd": {
        "ppl": "PPL",
        "lowercase": "Lowercase",
        "zlib": "Zlib",
        "ref": "Small Ref",
        "min_k": "Min-K% Prob",
        "min_k++": "Min-K%++ Prob",
        "dc_pdd": "DC-PDD",
    },
    "surp": {
        "ppl": "PPL",
        "ref": "Ref",
        "lowercase": "Lower",
        "zlib": "Zlib",
        "neighbor": "Neighbor",
        "min_k": "MinK",
        "surp": "SURP",
    },
    "probe": {
        "ppl": "Loss Attack",
        "neighbor": "Neighbor Attack",
        "min_k": "Min-K% Prob",
        "zlib": "Zlib Compression",
        "lowercase": "Lowercased Text",
        "ref": "Smaller Model",
        "probe": "Probe w. Real Data",
    },
}
# Where the papers print AUCs of a benchmark: paper, item, and what the columns begin with.
PRINTED_ON = {
    "wikimia-32": (("surp", "table-1", "WikiMIA-32 /"), ("probe", "table-2", "WikiMIA /")),
    "wikimia-128": (("surp", "table-1", "WikiMIA-128 /"), ("dc-pdd", "table-2", "WikiMIA /")),
    "arxiv_mia": (("probe", "table-2", "ArxivMIA /"),),
    "arxiv_mia, cs": (("probe", "table-2", "ArxivMIA-CS /"),),
    "arxiv_mia, math": (("probe", "table-2", "ArxivMIA-Math /"),),
}


def load_published(paper: str | None = None, item: str | None = None) -> pd.DataFrame:
    """All published numbers, or those of a paper, an item, or both; `value` is float64, NaN for a printed '-'."""
    # Only an empty `value` is missing; an empty `marker` is the empty string.
    types = dict.fromkeys(["paper", "item", "row", "column", "metric", "marker"], "str") | {"value": "float64"}
    published = pd.read_csv(PUBLISHED_CSV, dtype=types, keep_default_na=False, na_values={"value": [""]})
    for name, wanted in (("paper", paper), ("item", item)):
        if wanted:
            check_names([wanted], published[name].unique(), f"{PUBLISHED_CSV.name} has no {name}")
            published = published[published[name] == wanted]
    return published.reset_index(drop=True)


def published_along(paper: str, item: str, name: str, metric: str) -> dict[str, float | None]:
    """A printed column by its rows, or a row by its columns; None for '-'. ValueError where `name` is neither."""
    return {key: value for key, (value, _) in _along(paper, item, name, metric).items()}


def printed(paper: str, items: Mapping[str, str], name: str | None) -> dict[str, dict[str, tuple[float | None, str]]]:
    """What `results.measure` takes: value and marker by metric and row, of a printed column; nothing for None.

    `items` says which item of the paper prints each metric: {"auc": "table-2"}.
    """
    return {metric: _along(paper, item, name, metric) for metric, item in items.items() if name is not None}


def printed_column(paper: str, item: str, column: str) -> str | None:
    """The column `BENCHMARK / MODEL` of a paper's table; None where the table has the model and not the benchmark, or
    the model is None: nothing then stands next to ours. ValueError for a model that it does not have."""
    columns = set(load_published(paper, item)["column"])
    models = {name.rpartition(" / ")[2] for name in columns}
    check_names({column.rpartition(" / ")[2]} - {"None"}, models, f"{paper} {item} prints nothing of")
    return column if column in columns else None


def printed_by_two() -> dict[str, pd.DataFrame]:
    """By model the AUCs on WikiMIA of each method that at least two papers print, a column a source and length.

    DC-PDD's Table 2 names no length; its text says that WikiMIA has 250 examples, as at 128 words.
    """
    dc_pdd, probing = ("DC-PDD, 128 words", "dc-pdd", "WikiMIA"), ("Probing, 32 words", "probe", "WikiMIA")
    surp_128, surp_32 = ((f"SURP, {n} words", "surp", f"WikiMIA-{n}") for n in (128, 32))
    sources = {
        "Pythia-6.9B": (dc_pdd, surp_128, surp_32),
        "LLaMA-13B": (dc_pdd, surp_128, surp_32),
        "Pythia-2.8B": (surp_32, probing),
        "OPT-6.7B": (dc_pdd, probing),
    }
    tables = {}
    for model, of_model in sources.items():
        methods = ("ppl", "lowercase", "zlib", "ref", "neighbor", "min_k")
        table = pd.DataFrame(index=[label_of(name) for name in methods])
        for source, paper, benchmark in of_model:
            item = "table-1" if paper == "surp" else "table-2"
            spelled = model.replace("LLaMA", "Llama") if paper == "dc-pdd" else model
            cells = pd.Series(published_along(paper, item, f"{benchmark} / {spelled}", "auc"), dtype=float)
            table[source] = cells.rename({printed: label_of(name) for name, printed in METHODS[paper].items()})
        papers = table.columns.str.split(",").str[0]
        tables[model] = table[table.notna().T.groupby(papers).any().sum() > 1]
    return tables


def printed_table(paper: str, item: str) -> pd.DataFrame:
    """All that a paper prints in a table, as text and in its order: "–" for a dash, stars as printed, shares in [0, 1].

    A benchmark with a model, which most tables print as a column, is a row here, so that every table fits a page.
    """
    cells = load_published(paper, item)
    formats = {"mean_tokens": ".1f"} | dict.fromkeys(METRIC_LABELS, ".3f")
    rows = zip(cells["metric"], cells["value"], cells["marker"], strict=True)
    shown = [DASH if isnan(x) else f"{x:{formats.get(metric, ',g')}}{marker}" for metric, x, marker in rows]
    table = cells.assign(shown=shown).pivot(index="row", columns="column", values="shown")
    table = table.loc[cells["row"].unique(), cells["column"].unique()]
    if cells["column"].str.contains(" / ").any():
        table = table.T
    metric = cells["metric"].iloc[0]
    what = f"{METRIC_LABELS[metric]} as printed" if metric in METRIC_LABELS else "As printed"
    where = f"{item.replace('-', ' ').title()} of {PAPERS[paper]}"
    return table.rename_axis(index=None, columns=f"{what} in {where}")


def _along(paper: str, item: str, name: str, metric: str) -> dict[str, tuple[float | None, str]]:
    cells = load_published(paper, item).query("metric == @metric")
    for axis, other in (("column", "row"), ("row", "column")):
        found = cells[cells[axis] == name]
        if not found.empty:
            rows = zip(found[other], found["value"], found["marker"], strict=True)
            return {key: (None if isnan(value) else value, marker) for key, value, marker in rows}
    names = ", ".join([*cells["column"].unique(), *cells["row"].unique()])
    raise ValueError(f"{paper} {item} prints no {metric} of {name!r}; it has: {names}")


def surp_best_cell() -> tuple[float, float]:
    """Percentile k and entropy threshold (nats) of the best cell of the SURP paper's Figure 4."""
    values = load_published("surp", "figure-4").set_index("metric")["value"]
    return float(values["best_k"]), float(values["best_entropy_threshold"])


class Printed(NamedTuple):
    """An AUC that a paper prints."""

    auc: float
    method: str
    model: str
    paper: str

    def __str__(self) -> str:
        return f"{self.auc:.3f} ({self.method}, {self.model}; {self.paper})"


def best_printed(benchmark: str) -> Printed | None:
    """The highest AUC that any of the papers prints of any detector and model on a benchmark; None where none does."""
    found = [
        Printed(cell.value, cell.row, cell.column.removeprefix(beginning).strip(), paper)
        for paper, item, beginning in PRINTED_ON.get(benchmark, ())
        for cell in load_published(paper, item).query("metric == 'auc'").dropna(subset="value").itertuples()
        if cell.column.startswith(beginning)
    ]
    return max(found, key=lambda printed: printed.auc, default=None)


LATER_METHODS = {"neighbor": "Neighbor", "recall": "ReCaLL", "con_recall": "Con-ReCaLL", "gap_k": "Gap-K%"}
COUNTED = {"runs_above_0.55": "runs above 0.55: ", "highest_auc": "highest AUC: "}


def load_expected() -> pd.DataFrame:
    """All numbers that others measured, as text."""
    return pd.read_csv(EXPECTED_CSV, dtype=str, keep_default_na=False)


def measured_by_others(columns: Collection[tuple[str, str]] | None = None) -> list[dict[str, str]]:
    """A row for each source, model, benchmark and setting: of all, or of these models and benchmarks at any length."""
    key, names = ["source", "by", "model", "benchmark", "setting", "metric", "known"], METHODS["dc-pdd"] | LATER_METHODS
    wanted = None if columns is None else {(model, _family(benchmark)) for model, benchmark in columns}
    rows = []
    for values, cells in load_expected().groupby(key, sort=False):
        row = dict(zip(key, values, strict=True))
        if wanted is None or (row["model"], _family(row["benchmark"])) in wanted:
            pairs = zip(cells["detector"], cells["value"], strict=True)
            said = ", ".join(f"{names.get(detector, detector)} {value}" for detector, value in pairs)
            setting = f" ({row['setting']})" if row["setting"] else ""
            what = f"{row['model'].rpartition('/')[2]}, {row['benchmark']}{setting}"
            rows.append(row | {"what": what, "numbers": COUNTED.get(row["metric"], "") + said})
    return rows


def _family(benchmark: str) -> str:
    """A benchmark's name without its length."""
    stem, _, ending = benchmark.rpartition("-")
    return stem if stem and ending.isdecimal() else benchmark
