"""Results as data: each number with its interval, beside the published one. A page's tables are rendered from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from mialib.bootstrap import ENDS, is_of_snippets, percentile_interval, resamples, text_auc_interval
from mialib.detectors import DETECTORS
from mialib.metrics import (
    Comparison,
    FloatArray,
    Interval,
    auc_interval,
    compare_auc,
    compare_tpr_at_fpr,
    non_members_needed,
    tpr_at_fpr_interval,
)
from mialib.passes.inputs import Inputs
from mialib.store import home, mialib_version, version, write_json

DASH = "–"
BLIND_PREFIX = "Blind: "  # of a blind baseline's label beside those of detectors
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
    why: str = ""  # what to say where ours is None and that is not for want of a meaning: "not run", "needs 100"

    @classmethod
    def of(cls, *, interval: Interval | None, **fields: Any) -> Result:
        """The cell of an interval."""
        ours, low, high = (interval.estimate, interval.low, interval.high) if interval else (None, None, None)
        return cls(ours=ours, low=low, high=high, **fields)

    @property
    def interval(self) -> Interval | None:
        """Ours with its interval."""
        if self.ours is None or self.low is None or self.high is None:
            return None
        return Interval(self.ours, self.low, self.high)

    def __str__(self) -> str:
        return f"{self.interval or self.why or DASH}{self.marker}"


FPRS = {"tpr_at_5_fpr": 0.05, "tpr_at_1_fpr": 0.01, "tpr_at_10_fpr": 0.1}
METRICS: dict[str, tuple[Callable[..., Interval], Callable[..., Comparison]]] = {"auc": (auc_interval, compare_auc)}
METRICS |= {  # of each its interval, and the comparison of two detectors
    name: (partial(tpr_at_fpr_interval, fpr=fpr), partial(compare_tpr_at_fpr, fpr=fpr)) for name, fpr in FPRS.items()
}
BOTH = ("auc", "tpr_at_5_fpr")
SIGNIFICANT = 0.05
SMALLEST = 0.01  # difference of two AUCs or TPRs that matters
NO_DIFFERENCE = "no difference that matters"  # a verdict
UNINFORMATIVE = "uninformative"  # the verdict of a test that could not have found what is true
CONFOUNDED = "confounded"  # the verdict of a test whose differences have another cause than the claim's
UNSHOWN = "beyond the paper's sample"  # the verdict on a lead that texts as many as the paper's could not have shown
VERDICTS = (
    "supported",
    "inconclusive",
    UNSHOWN,
    NO_DIFFERENCE,
    UNINFORMATIVE,
    CONFOUNDED,
    "not supported",
)  # as the book lists them
TOO_SMALL = "too small to matter"
ONE_SEED_WORDS = {"supported": "holds", "not supported": "fails", "inconclusive": "open", NO_DIFFERENCE: TOO_SMALL}


def label_of(name: str) -> str:
    """A detector as the papers' tables print it; any other name is its own."""
    return DETECTORS[name].label if name in DETECTORS else name


def measure(
    labels: ArrayLike,
    scores: Mapping[str, ArrayLike | None],
    column: str,
    metrics: Iterable[str] = ("auc",),
    *,
    named: str | None = None,
    document: NDArray[np.int64] | None = None,
    printed: Mapping[str, Mapping[str, tuple[float | None, str]]] | None = None,
    published_column: str | None = None,
    star: tuple[str, str] | None = None,
) -> list[Result]:
    """Every result of this book: each metric of each detector's scores (or of scores by any name), with its interval.

    `labels` (N,), `scores` (N,) each, or None for a dash. `named` renames the metric in the results. `document` (N,)
    numbers the document of each snippet: an AUC's interval then draws documents. `printed` holds the published value
    and marker by metric and row (`published.printed`), of `published_column`. `star` names a detector and another; its
    cells are marked where it is significantly better (paired, two-sided p <= 0.05). A TPR that the non-members are too
    few for says how many it needs.
    """
    found = []
    for metric in metrics:
        if metric != "auc" and is_of_snippets(document):
            raise ValueError(f"{metric} of snippets: there is no interval of it that knows of documents")
        interval_of = partial(text_auc_interval, document=document) if metric == "auc" else METRICS[metric][0]
        needs, beside = needs_more(metric, labels), (printed or {}).get(metric, {})
        paired = compare(labels, scores, *star, metric) if star else None
        is_better = paired is not None and paired.difference.estimate > 0 and paired.p_value <= SIGNIFICANT
        for name, values in scores.items():
            value, published_marker = beside.get(label_of(name), (None, ""))
            found.append(
                Result.of(
                    row=label_of(name),
                    column=column,
                    metric=named or metric,
                    interval=None if values is None or needs else interval_of(labels, values),
                    published=value,
                    published_column=published_column,
                    marker="*" if is_better and star and name == star[0] else "",
                    published_marker=published_marker,
                    why="" if values is None else needs,
                )
            )
    return found


def of_intervals(intervals: Mapping[str, Interval | None], column: str, metric: str = "auc") -> list[Result]:
    """A result for each detector, or row by any name, whose interval was computed elsewhere."""
    return [Result.of(row=label_of(name), column=column, metric=metric, interval=of) for name, of in intervals.items()]


def take(scores: Mapping[str, FloatArray | None], texts: NDArray[Any]) -> dict[str, FloatArray | None]:
    """Each detector's scores of some of the texts."""
    return {name: None if values is None else values[texts] for name, values in scores.items()}


def too_few(n: int, needed: int) -> str:
    """What a table says in place of a number that n non-members are too few for: "needs 100"; else nothing."""
    return f"needs {needed}" if n < needed else ""


def needs_more(metric: str, labels: ArrayLike) -> str:
    """`too_few` for a metric of texts with these labels: a TPR at 1% FPR needs 100 non-members, an AUC one."""
    return too_few(int(np.equal(labels, 0).sum()), non_members_needed(FPRS[metric])) if metric in FPRS else ""


def compare(
    labels: ArrayLike, scores: Mapping[str, ArrayLike | None], name: str, other: str, metric: str = "auc"
) -> Comparison | None:
    """One detector's metric minus another's on the same texts; None where either is not applicable or texts are few."""
    if scores.get(name) is None or scores.get(other) is None or needs_more(metric, labels):
        return None
    return METRICS[metric][1](labels, scores[name], scores[other])


def sizes(row: str, facts: Mapping[str, float]) -> list[Result]:
    """Counts and sizes as results, a column each: they have no interval."""
    return [Result(row, name, "size", float(value), float(value), float(value)) for name, value in facts.items()]


def save(
    name: str,
    results: Sequence[Result],
    *,
    paper: str,
    item: str,
    ran: Iterable[Inputs | Mapping[str, Any]] = (),
    out: str | Path = "",
) -> list[Result]:
    """Write a page's results with what made them, and return them as they were read back.

    `ran` are the page's inputs, whose passes are named, or provenance as it is. `out` is the pipeline's file; a
    notebook that runs alone writes `alone/NAME.json` in the home folder and prints the path. ValueError for no results.
    """
    if not results:
        raise ValueError(f"{name}: there are no results to save")
    path = saved_path(name, out)
    versions = {"mialib": mialib_version()} | {name: version(name) for name in VERSIONED}
    saved = [asdict(result) for result in results]
    about = {"paper": paper, "item": item, "results": saved, "provenance": provenance_of(ran), "versions": versions}
    write_json(path, about)
    if not out:
        print(f"The results are kept in {path}.")
    return load_results(path)


def saved_path(name: str, out: str | Path = "") -> Path:
    """The file of a page's results, by the arguments that `save` was given."""
    return Path(out or home() / "alone" / f"{name}.json")


def provenance_of(ran: Iterable[Inputs | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each pass that inputs have read, and provenance as it is."""
    return [p for one in ran for p in ([dict(one)] if isinstance(one, Mapping) else one.passes())]


def load_results(path: str | Path) -> list[Result]:
    """Read what `save` wrote."""
    return [Result(**fields) for fields in json.loads(Path(path).read_text())["results"]]


def unbroken(cell: object) -> str:
    """A table's cell that a narrow column breaks before a bracket alone, and neither after a minus nor in a number."""
    whole = str(cell).replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{NON-BREAKING HYPHEN}")
    return whole.replace("\N{NO-BREAK SPACE}[", " [")


def direction(difference: Interval, margin: float | None = None, matters: float = 0) -> str:
    """What an interval says of the claim that a difference is positive or, with a margin, that it is within ±margin.

    "supported" where the whole interval lies where the claim says, "not supported" where all of it lies elsewhere, else
    "inconclusive". A claimed difference whose whole interval lies within ±`matters` is "no difference that matters".
    The rule of a verdict is `replication.claims.verdict`.
    """
    if margin is not None:
        holds = -margin <= difference.low and difference.high <= margin
        fails = difference.low > margin or difference.high < -margin
    elif matters and -matters <= difference.low and difference.high <= matters:
        return NO_DIFFERENCE
    else:
        holds, fails = difference.low > 0, difference.high < 0
    return "supported" if holds else "not supported" if fails else "inconclusive"


def one_seed_says(difference: Interval, margin: float | None = None) -> str:
    """`direction` in the words for a single training seed, which is no verdict."""
    return ONE_SEED_WORDS[direction(difference, margin, SMALLEST)]


def literal(text: str) -> str:
    """Foreign text, such as an error's message, on one line of Markdown: all its characters stand for themselves."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def curves(results: Iterable[Result], metric: str, x_of: dict[str, float]) -> dict[str, dict[float, Interval]]:
    """Results as one curve a row: {row: {x: interval}}, of the columns whose place on the x axis `x_of` gives."""
    lines: dict[str, dict[float, Interval]] = {}
    for r in results:
        if r.metric == metric and r.interval and r.column in x_of:
            lines.setdefault(r.row, {})[x_of[r.column]] = r.interval
    return lines


# Panel, series and row of a result, or None; or a panel and a series for each column that is shown.
Place = Callable[[Result], tuple[str, str, str] | None] | Mapping[str, tuple[str, str]]


def in_panels(results: Iterable[Result], metric: str, place: Place) -> dict[str, dict[str, dict[str, Interval]]]:
    """Results as a figure's panels, {panel: {series: {row: interval}}}, of those that have a place."""
    panels: dict[str, dict[str, dict[str, Interval]]] = {}
    for r in results:
        where = place(r) if callable(place) else (*place[r.column], r.row) if r.column in place else None
        if r.metric == metric and r.interval and where:
            panel, series, row = where
            panels.setdefault(panel, {}).setdefault(series, {})[row] = r.interval
    return panels


# --- intervals that only the book's pages need, by a bootstrap ---


def mean_interval(values: ArrayLike) -> Interval:
    """A mean over texts or documents with its percentile bootstrap interval."""
    values = np.asarray(values, float)
    resampled = resamples(len(values), seed=0) @ values / len(values)
    return percentile_interval(float(values.mean()), resampled, len(values))


def rank_correlation(x: ArrayLike, y: ArrayLike) -> Interval:
    """Spearman's rank correlation of x and y over texts, (N,) each, with a percentile bootstrap interval.

    ValueError for lists of several lengths, and for one that does not vary.
    """
    lists = [np.asarray(values, float) for values in (x, y)]
    if len(set(map(len, lists))) > 1 or not all(map(np.ptp, lists)):
        lengths = " and ".join(str(len(values)) for values in lists)
        raise ValueError(f"a rank correlation needs lists of one length that all vary, got {lengths} values")
    n = len(lists[0])

    def of(texts: NDArray[np.int64]) -> FloatArray:
        """Of texts (..., n), shape (...); NaN where a list does not vary on them."""
        ranks = np.array([rankdata(values[texts], axis=-1) for values in lists]) - (n + 1) / 2
        with np.errstate(invalid="ignore"):
            of_x, of_y = ranks / np.linalg.norm(ranks, axis=-1, keepdims=True)
        return (of_x * of_y).sum(axis=-1)

    drawn = np.array([np.repeat(np.arange(n), times) for times in resamples(n, seed=0).astype(np.int64)])
    low, high = np.nanquantile(of(drawn), ENDS)
    return Interval(float(of(np.arange(n))), float(low), float(high))


def document_means(values: ArrayLike, document: NDArray[np.int64]) -> FloatArray:
    """Mean of a value over each document's snippets, (D,): of scores, or of "above the threshold"."""
    return np.bincount(document, weights=np.asarray(values, float)) / np.bincount(document)
