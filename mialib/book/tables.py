"""The book's tables: results, comparisons and cards as DataFrames of text, ready to be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from textwrap import fill
from typing import Any

import pandas as pd
from IPython.display import Markdown
from pandas.io.formats.style import Styler

from mialib.book.profile import load_profile
from mialib.book.results import DASH, ONE_SEED, Result, literal, one_seed_says, provenance_of
from mialib.catalog.registry import is_api
from mialib.lab.models import lab_recipe
from mialib.metrics import Comparison, Interval
from mialib.passes.inputs import Inputs
from mialib.store import version

METRIC_LABELS = {"auc": "AUC", "tpr_at_5_fpr": "TPR at 5% FPR"}
METRIC_HEADINGS = METRIC_LABELS | {
    "tpr_at_1_fpr": "TPR at 1% FPR",
    "tpr_at_10_fpr": "TPR at 10% FPR",
    "auc_held_out": "AUC, hyperparameters chosen on other texts",
    "auc_other_start": "AUC, the other start token",
    "auc_by_times": "AUC by times seen",
    "auc_by_seed": "AUC by training seed",
    "mean_log_prob": "mean log p (nats)",
}


def results_table(results: Iterable[Result], metric: str) -> pd.DataFrame:
    """One metric as a table: rows as given, and for each column the published number and ours with its interval."""
    chosen = [result for result in results if result.metric == metric]
    if not chosen:
        raise ValueError(f"no results of metric {metric!r}")
    heading = f"{METRIC_HEADINGS.get(metric, metric)} [95% interval]"
    cells: dict[Any, dict[str, str]] = {}
    if not any(result.published_column for result in chosen):
        for result in chosen:
            cells.setdefault(result.column, {})[result.row] = str(result)
        return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=heading)
    for result in chosen:
        if result.published_column:
            printed = DASH if result.published is None else f"{result.published:.3f}{result.published_marker}"
            named = "" if result.published_column == result.column else f": {result.published_column}"
            cells.setdefault((result.column, f"published{named}"), {})[result.row] = printed
        cells.setdefault((result.column, "ours"), {})[result.row] = str(result)
    return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=[heading, ""])


def results_in_parts(results: Iterable[Result], metric: str, headings: Mapping[str, str]) -> list[pd.DataFrame]:
    """`results_table` of the columns that have a heading, under it, in tables of as many as fit a page."""
    chosen = [result for result in results if result.column in headings and result.metric == metric]
    columns = list(dict.fromkeys(result.column for result in chosen))
    at_once = 2 if any(result.published_column for result in chosen) else 4
    return [
        results_table([r for r in chosen if r.column in columns[at : at + at_once]], metric).rename(columns=headings)
        for at in range(0, len(columns), at_once)
    ]


def comparison_table(
    comparisons: dict[str, Comparison | None], claim: str, margin: float | None = None
) -> pd.DataFrame:
    """One row a comparison: difference with interval, and whether it is positive as far as one seed can say.

    With a margin the claim is that the difference lies within ±margin. No p-value: the interval says it, and more.
    """
    rows = [
        {claim: str(c.difference), ONE_SEED: one_seed_says(c.difference, margin)}
        if c
        else {claim: DASH, ONE_SEED: "not applicable"}
        for c in comparisons.values()
    ]
    return pd.DataFrame(rows, index=list(comparisons), columns=[claim, ONE_SEED])


def what_ran(ran: Iterable[Inputs | Mapping[str, Any]]) -> pd.DataFrame:
    """What a page ran, one row a model; versions and profile in the corner, all content hashes in the results file.

    `ran` as for `results.save`: the page's inputs, or provenance as it is.
    """
    rows: dict[str, dict[str, Any]] = {}
    for p in provenance_of(ran):
        row = rows.setdefault(
            p["model"],
            {
                "weights": p["revision"] if is_api(p["model"]) else p["revision"].rpartition("@")[2][:10],
                "training seed": lab_recipe(p["model"]).seed if p["model"].startswith("lab/") else DASH,
                "dtype, device": f"{p['dtype']}, {p['device']}",
                "start token": _start_token(p),
                "texts": {},
                "mialib": p["mialib"],
            },
        )
        row["texts"][p["texts"]] = p["n_texts"]
    for row in rows.values():
        passes = row["texts"]
        each = ", ".join(f"{n} ({name[:8]})" for name, n in passes.items())
        row["texts"] = each if len(passes) <= 2 else f"{sum(passes.values())} in {len(passes)} passes"
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(
        columns=f"profile {load_profile().name}; {libraries}"
    )


def _start_token(provenance: Mapping[str, Any]) -> str:
    """The id of the token that was prepended to each text, "none", or a dash where it is not known."""
    if "start_token_id" not in provenance:
        return DASH
    return "none" if provenance["start_token_id"] is None else f"id {provenance['start_token_id']}"


def shown(table: pd.DataFrame, caption: str = "") -> Styler:
    """A table with its cells and headings as they are: no HTML in them counts, a line break does.

    A caption says in a sentence what the table shows. (The theme says of each heading what it heads.)
    """
    styled = table.style.format(escape="html")  # Styler escapes nothing by itself
    for axis in ("index", "columns"):
        styled = styled.format_index(escape="html", axis=axis)
    if caption:
        styled = styled.set_caption(escape(caption))
    return styled.set_properties(**{"white-space": "pre-line"})


def cards(table: pd.DataFrame, caption: str = "") -> Styler:
    """`shown`, of a table of sentences: on a phone each row is a card, whose cells name their columns (`book.css`)."""
    return shown(table, caption).hide(axis="index").set_table_attributes('class="cards"')


def small(table: pd.DataFrame, caption: str = "") -> Styler:
    """`shown`, of a wide table, in small type."""
    props = "font-size: 0.78em; padding: 0.25em 0.4em; text-align: left"
    return shown(table, caption).set_table_styles([{"selector": "td, th", "props": props}])


def interval_table(intervals: Mapping[str, Interval], heading: str, says: Callable[[Interval], str]) -> pd.DataFrame:
    """One row an estimate with its interval and what `says` makes of it."""
    rows = {name: {heading: str(interval), ONE_SEED: says(interval)} for name, interval in intervals.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def text_table(rows: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Rows of named cells, as they are."""
    return pd.DataFrame.from_dict(rows, orient="index")


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
    for result in results:
        cells.setdefault(result.column, {})[result.row] = DASH if result.ours is None else f"{result.ours:,.6g}"
    return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=heading)


def describe_options(options: Mapping[str, Any]) -> str:
    """Hyperparameters in a few characters: "ε = 2.5, k = 40"."""
    return ", ".join(f"{symbol(name)} = {value:g}" for name, value in options.items())


def symbol(hyperparameter: str) -> str:
    """A hyperparameter as the papers print it."""
    return {"entropy_threshold": "ε"}.get(hyperparameter, hyperparameter)
