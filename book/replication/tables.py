"""The book's tables: results, comparisons and cards as DataFrames of text, ready to be shown.

The name of a table's columns (`rename_axis(columns=...)`) is its caption.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from numbers import Number
from textwrap import fill
from typing import Any

import pandas as pd
from IPython.display import Markdown
from pandas.api.types import is_numeric_dtype
from pandas.io.formats.style import Styler

from mialib.catalog.sources import find
from mialib.metrics import Comparison
from mialib.passes.inputs import Inputs, signature
from mialib.store import version
from replication.profile import load_profile
from replication.results import (
    BLIND_PREFIX,
    DASH,
    ONE_SEED,
    Result,
    literal,
    load_results,
    one_seed_says,
    provenance_of,
    saved_path,
)

METRIC_LABELS = {"auc": "AUC", "tpr_at_5_fpr": "TPR at 5% FPR", "tpr_at_1_fpr": "TPR at 1% FPR"}
METRIC_HEADINGS = METRIC_LABELS | {
    "tpr_at_10_fpr": "TPR at 10% FPR",
    "auc_held_out": "AUC, hyperparameters chosen on other texts",
    "auc_other_start": "AUC, the other start token",
    "auc_by_times": "AUC by times seen",
    "auc_by_seed": "AUC by training seed",
    "mean_log_prob": "mean log p (nats)",
}
SAVED = "Numbers of this page"  # how the captions of tables begin that have no number
HIGHER_IS_BETTER = {"auc", "tpr_at_1_fpr", "tpr_at_5_fpr", "tpr_at_10_fpr", "auc_held_out"}


class Bold(str):
    """A cell that is shown in bold."""


def results_table(results: Iterable[Result], metric: str, scope: str = "", *, is_contest: bool = True) -> pd.DataFrame:
    """One metric as a table: rows as given, and for each column the published number and ours with its interval.

    The caption begins with the scope, which says what all of the table is of. The highest AUC or TPR of each column is
    bold, with all that print the same; no blind baseline is, and nothing where the rows are no contest. ValueError
    where there is no result of the metric.
    """
    chosen = [result for result in results if result.metric == metric]
    if not chosen:
        raise ValueError(f"no results of metric {metric!r}")
    highest = _highest(chosen) if is_contest and metric in HIGHER_IS_BETTER else {}
    beside = any(result.published_column for result in chosen)
    heading = f"{METRIC_HEADINGS.get(metric, metric)} [95% interval]"
    heading = f"{scope}: {heading}" if scope else heading[0].upper() + heading[1:]
    if highest:
        who = " detector" if any(map(_is_blind, chosen)) else ""
        heading += f", the highest{who} of each column{' of ours' if beside else ''} in bold"
    cells: dict[Any, dict[str, str]] = {}
    for r in chosen:
        if r.published_column:
            value = DASH if r.published is None else f"{r.published:.3f}{r.published_marker}"
            named = "" if r.published_column == r.column else f": {r.published_column}"
            cells.setdefault((r.column, f"published{named}"), {})[r.row] = value
        is_highest = not _is_blind(r) and _printed(r) >= highest.get(r.column, math.inf)
        cells.setdefault((r.column, "ours") if beside else r.column, {})[r.row] = Bold(r) if is_highest else str(r)
    table = pd.DataFrame(cells, dtype=object)  # pandas would take a `Bold` into its own type of strings
    return table.fillna(DASH).rename_axis(columns=[heading, ""] if beside else heading)


def turned(table: pd.DataFrame) -> pd.DataFrame:
    """A table with its rows as columns, and the caption that goes with it."""
    caption, table = caption_of(table)
    caption = caption.replace("of each column", "of each row")
    return table.T.rename_axis(index=[None] * table.columns.nlevels, columns=caption)


def _is_blind(result: Result) -> bool:
    return result.row.startswith(BLIND_PREFIX)


def _printed(result: Result) -> float:
    """The number of a cell, rounded as it is shown; NaN where there is none."""
    return float(str(result.interval).split()[0]) if result.interval else math.nan


def _highest(results: Iterable[Result]) -> dict[str, float]:
    """The highest number of each column that has two or more of detectors, as printed."""
    of_column: dict[str, dict[str, Result]] = {}
    for r in results:
        if r.ours is not None and not _is_blind(r):
            of_column.setdefault(r.column, {})[r.row] = r
    contests = {column: of_row.values() for column, of_row in of_column.items() if len(of_row) > 1}
    return {column: _printed(max(rows, key=lambda r: r.ours or 0)) for column, rows in contests.items()}


def results_in_parts(
    results: Iterable[Result], metric: str, headings: Mapping[str, str] | None = None, scope: str = "", **options: bool
) -> list[pd.DataFrame]:
    """`results_table` in tables of as many columns as fit a page; where these are several the scope says which part.

    With `headings` only the columns that have one, under it.
    """
    chosen = [r for r in results if (headings is None or r.column in headings) and r.metric == metric]
    columns = list(dict.fromkeys(r.column for r in chosen))
    at_once = 2 if any(r.published_column for r in chosen) else 4
    parts = [columns[at : at + at_once] for at in range(0, len(columns), at_once)]
    tables = []
    for i, part in enumerate(parts, start=1):
        which = f"part {i} of {len(parts)}" if len(parts) > 1 else ""
        named = ", ".join(filter(None, [scope, which])) if scope else which.capitalize()
        of_part = [r for r in chosen if r.column in part]
        tables.append(results_table(of_part, metric, named, **options).rename(columns=headings or {}))
    return tables


def saved_numbers(name: str, out: str = "") -> list[pd.DataFrame]:
    """All that a page has saved, each metric's numbers with their intervals; arguments as for `results.save`."""
    results = load_results(saved_path(name, out))
    metrics = dict.fromkeys(result.metric for result in results)
    return [t for metric in metrics for t in results_in_parts(results, metric, scope=SAVED, is_contest=False)]


def compact_table(results: Iterable[Result], metric: str, headings: Mapping[str, str], caption: str) -> pd.DataFrame:
    """Ours without its interval, and in brackets the published number; columns are rows, and no blind baseline."""
    rows: dict[str, dict[str, str]] = {}
    for r in results:
        if r.metric == metric and r.column in headings and not _is_blind(r):
            published = "" if r.published is None else f" ({r.published:.3f}{r.published_marker})"
            row = headings[r.column] + (f" ({r.published_column})" if r.published_column else "")
            rows.setdefault(row, {})[r.row] = f"{str(r.interval).split()[0] if r.interval else r}{published}"
    return text_table(rows, caption).fillna(DASH)


def comparison_table(
    comparisons: dict[str, Comparison | None], claim: str, margin: float | None = None
) -> pd.DataFrame:
    """One row a comparison: difference with interval, and whether it is positive as far as one seed can say.

    With a margin the claim is that the difference lies within ±margin. No p-value: the interval says it, and more.
    """
    rows = [
        (str(c.difference), one_seed_says(c.difference, margin)) if c else (DASH, "not applicable")
        for c in comparisons.values()
    ]
    table = pd.DataFrame(rows, index=list(comparisons), columns=[claim, ONE_SEED])
    return table.rename_axis(columns=f"Paired comparisons: {claim}")


def difference_table(rows: Mapping[str, Mapping[str, Comparison | None]], caption: str) -> pd.DataFrame:
    """Paired differences with their intervals, {row: {column: comparison}}, without what one seed says of each."""
    cells = {row: {name: str(c.difference) if c else DASH for name, c in of.items()} for row, of in rows.items()}
    return text_table(cells, f"{caption} [95% interval]").fillna(DASH)


def what_ran(ran: Iterable[Inputs | Mapping[str, Any]]) -> pd.DataFrame | None:
    """What a page ran, one row a model: the signature that `mialib detect` prints. None where nothing ran.

    `ran` as for `results.save`, whose file has all hashes.
    """
    made: dict[str, dict[str, Any]] = {}
    passes: dict[str, dict[str, int]] = {}  # texts by their hash
    for p in provenance_of(ran):
        made.setdefault(p["model"], p)
        passes.setdefault(p["model"], {})[p["texts"]] = p["n_texts"]
    if not passes:
        return None
    rows = {}
    for model, counts in passes.items():
        several = f"{sum(counts.values())} texts in {len(counts)} passes" if len(counts) > 1 else ""
        known = find(model).known
        terms = re.findall(r"\((.*)\)", known.licence) if known else []
        rows[model] = {"signature of the numbers above": ", under ".join([signature(made[model], several), *terms])}
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return text_table(rows, f"What this page ran, with profile {load_profile().name}, {libraries}")


def caption_of(table: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """A table's caption, "" where it has none, and the table without it."""
    names = [str(name) for name in table.columns.names if name]
    return ", ".join(names), table.rename_axis(columns=[None] * table.columns.nlevels)


def html(table: pd.DataFrame) -> str:
    """A DataFrame as pages show it: with its caption; cells and headings as they are, without HTML in them."""
    caption, table = caption_of(table)
    # A column of numbers keeps its type, by which pandas chooses the digits.
    cells = table.apply(lambda column: column if is_numeric_dtype(column) else column.map(_cell))
    cells = cells.rename(index=_cell, columns=_cell).rename_axis(index=[_cell(name) for name in table.index.names])
    made = cells.to_html(escape=False, border=0, max_rows=pd.get_option("display.max_rows"), show_dimensions="truncate")
    return made.replace("<thead>", f"<caption>{escape(caption)}</caption>\n  <thead>", 1) if caption else made


def _cell(cell: Any) -> Any:
    if cell is None or isinstance(cell, Number):
        return cell
    return f"<b>{escape(cell)}</b>" if isinstance(cell, Bold) else escape(str(cell))


def as_text(table: pd.DataFrame) -> str:
    """A table as commands print it: its caption, and its rows below."""
    caption, table = caption_of(table)
    return f"{caption}\n{table.to_string()}" if caption else table.to_string()


def shown(table: pd.DataFrame, caption: str = "") -> Styler:
    """A table with its cells and headings as they are: no HTML in them counts, a line break does.

    The caption is a sentence on what the table shows, by default the table's own.
    """
    own, table = caption_of(table)
    table = table.rename_axis(index=[_cell(name) for name in table.index.names])
    styled = table.style.format(escape="html")  # Styler escapes nothing by itself
    styled = styled.format_index(escape="html", axis="index").format_index(escape="html", axis="columns")
    if any(isinstance(cell, Bold) for cell in table.to_numpy().flat):  # `map` takes no heading twice
        styled = styled.map(lambda cell: "font-weight: bold" if isinstance(cell, Bold) else "")
    if caption or own:
        styled = styled.set_caption(escape(caption or own))
    return styled.set_properties(**{"white-space": "pre-line"})


def cards(table: pd.DataFrame, caption: str = "") -> Styler:
    """`shown`, of a table of sentences: on a phone each row is a card, whose cells name their columns (`book.css`)."""
    return shown(table, caption).hide(axis="index").set_table_attributes('class="cards"')


def small(table: pd.DataFrame, caption: str = "") -> Styler:
    """`shown`, of a wide table, in small type."""
    props = "font-size: 0.78em; padding: 0.25em 0.4em; text-align: left"
    return shown(table, caption).set_table_styles([{"selector": "td, th", "props": props}])


def text_table(rows: Mapping[Any, Mapping[str, Any]], caption: str) -> pd.DataFrame:
    """Rows of named cells, as they are."""
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=caption)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, a line a row."""
    cells = [head, ["---"] * len(head), *([str(c).replace("|", "\\|").replace("\n", " ") for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def quoted(texts: Mapping[str, str]) -> Markdown:
    """Texts by name, as they are: nothing in them is taken for Markdown, and none ends its own block."""
    blocks = []
    for name, text in texts.items():
        fence = "~" * max(4, 1 + max(map(len, re.findall("~+", text)), default=0))
        blocks.append(f"**{literal(name)}**\n\n{fence}text\n{fill(text, 76)}\n{fence}")
    return Markdown("\n\n".join(blocks) or "There are none.")


def plain_table(results: Iterable[Result], heading: str = "") -> pd.DataFrame:
    """Counts and sizes, which have no interval, as a table of rows and columns."""
    cells: dict[str, dict[str, str]] = {}
    for r in results:
        cells.setdefault(r.column, {})[r.row] = DASH if r.ours is None else f"{r.ours:,.6g}"
    return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=heading)
