"""The book's figures: each function draws one kind of picture from numbers that were computed elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.core.getipython import get_ipython
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from seaborn.utils import relative_luminance

from mialib.detectors import DETECTORS
from mialib.metrics import Interval
from replication import pages
from replication.results import BLIND_PREFIX, CONFOUNDED, NO_DIFFERENCE, UNINFORMATIVE, UNSHOWN, VERDICTS, Result
from replication.tables import html

# Okabe and Ito's colours, which colour-blind readers tell apart, and a marker each: no figure depends on colour alone.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#56B4E9", "#CC79A7", "#D55E00", "#000000", "#7F7F7F", "#8C564B"]
MARKERS = "os^v*PDXh"


def _detector_style(i: int) -> dict[str, str]:
    lap, i = divmod(i, len(COLORS))  # the same colour again has another marker and a line with dots
    return {"color": COLORS[i], "marker": MARKERS[(i + lap) % len(MARKERS)]} | ({"linestyle": "-."} if lap else {})


# The one mapping of the whole book: each detector, by the papers' label, and each class of texts. The classes' colours
# (of Tol's muted scheme, as those of other series) are no detector's.
DETECTOR_STYLES = {known.label: _detector_style(i) for i, known in enumerate(DETECTORS.values())}
CLASS_STYLES = {
    "members": {"color": "#332288", "marker": "o", "hatch": ""},
    "non-members": {"color": "#CC6677", "marker": "x", "hatch": "//"},
}
OTHER_COLORS = ["#117733", "#AA4499", "#44AA99", "#661100", "#6699CC", "#999933"]  # of series that are no detectors


class VerdictStyle(NamedTuple):
    """How a verdict looks: a mark that can be read without its colour, its tile, and its point in a forest plot."""

    mark: str
    color: str
    text: str  # colour of the mark on the tile
    marker: str


# Tol's high-contrast scheme and greys: they differ in lightness, too.
VERDICT_STYLES = {
    "supported": VerdictStyle("✓", "#004488", "white", "o"),
    "inconclusive": VerdictStyle("?", "#DDAA33", "black", "D"),
    UNSHOWN: VerdictStyle("∼", "#88CCEE", "black", "P"),
    NO_DIFFERENCE: VerdictStyle("=", "#6E6E6E", "white", "s"),
    UNINFORMATIVE: VerdictStyle("∅", "#D9D9D9", "black", "v"),
    CONFOUNDED: VerdictStyle("!", "#BBBBBB", "black", "^"),
    "not supported": VerdictStyle("✗", "#BB5566", "white", "X"),
}


class Tested(NamedTuple):
    """A row of a forest plot."""

    difference: Interval
    verdict: str
    margin: float | None = None  # of a claim of equality; None: the claim is a difference above 0


Curves = dict[str, dict[float, Interval]]  # {line: {x: interval}}
EQUAL_CONTRAST = 0.179  # the luminance on which black and white text stand out alike
# Ours and the printed number of a detector whose row says which it is: no colour is needed, and none is a detector's.
SOURCE_STYLES = {
    "ours, 95% interval": {"color": "0.1", "marker": "o"},
    "published (its own model)": {"color": "0.45", "marker": "D", "markerfacecolor": "none"},
}
AT_THE_RIGHT = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
CHANCE = {"color": "0.45", "linestyle": ":", "linewidth": 1.2, "zorder": 0.8}  # above the grid


def use_style() -> None:
    """The book's look, of figures, tables and errors (`pages.begin`): call once in a notebook."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    pages.begin()
    pd.set_option("display.max_colwidth", None)  # a cell is never cut off
    if shell := get_ipython():
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, html)
    sns.set_theme(context="notebook", style="ticks", palette=COLORS)
    plt.rcParams |= {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": "0.9",
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
        "svg.fonttype": "none",  # text stays text: it can be searched, selected and read aloud
        "svg.hashsalt": "mialib",
    }
    set_matplotlib_formats("svg", metadata={"Date": None})  # the same figure is the same file


def line_style(label: str, position: int) -> dict[str, str]:
    """Colour and marker: a detector's (by the papers' label) and a class's are the same on every page.

    Other series have colours of their own, by position. A blind baseline's line is dashed, as it is no detector's.
    """
    if label.startswith(BLIND_PREFIX):
        return {"color": "0.25", "marker": "x", "linestyle": "--"}
    for name, style in CLASS_STYLES.items():
        if label == name or label.startswith((f"{name} ", f"{name},")):  # "members (500)", "non-members, held out"
            return {"color": style["color"], "marker": style["marker"]}
    if known := (DETECTOR_STYLES | SOURCE_STYLES).get(label):
        return dict(known)
    lap, i = divmod(position, len(OTHER_COLORS))
    linestyle = ("-", "--", "-.", ":")[lap % 4]
    return {"color": OTHER_COLORS[i], "marker": MARKERS[position % len(MARKERS)], "linestyle": linestyle}


def _bars(intervals: Iterable[Interval]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Estimates, (N,), and how far the intervals reach below and above them, (2, N); 0 where a mean lies outside."""
    estimates, low, high = np.array([[i.estimate, i.low, i.high] for i in intervals]).reshape(-1, 3).T
    return estimates, np.maximum((estimates - low, high - estimates), 0)


def lines_in_panels(
    panels: dict[str, Curves],
    *,
    xlabel: str,
    ylabel: str = "AUC",
    log_x: bool = False,
    chance: float | None = 0.5,
    ticks: dict[float, str] | None = None,
    bands: bool = False,
    columns: int = 2,
    hollow: dict[str, Curves] | None = None,
) -> Figure:
    """One line a detector over x with its intervals, `columns` panels a row: {panel: {line: {x: interval}}}.

    Intervals are bars, the lines spread sideways a little so that none hides another, or bands where x is dense. What
    is `hollow` stands in the same panels with hollow markers and dashed lines.
    """
    height = 4.4 if min(columns, len(panels)) == 1 < len(panels) else 3.6
    figure, grid = _grid(len(panels), columns, lambda _, n_rows: (7.2, height * n_rows + 0.5), sharey=True)
    for axes, (title, curves) in zip(grid.flat, panels.items(), strict=False):
        beside = (hollow or {}).get(title, {})
        _draw_lines(axes, curves, log_x, bands)
        _draw_lines(axes, beside, log_x, bands, hollow=True)
        some = sorted({x for of in (curves, beside) for points in of.values() for x in points})
        labels = [(ticks or {}).get(x, f"{x:g}") for x in some]
        axes.set_xticks(some, labels, rotation=45 if sum(map(len, labels)) > 24 else 0)
        axes.minorticks_off()
        if chance is not None:
            axes.axhline(chance, **CHANCE)
            axes.annotate("chance", (1, chance), (3, 0), **AT_THE_RIGHT, fontsize=8.5, color="0.4")  # where no mark is
        axes.set(xlabel=xlabel, ylabel=ylabel if axes in grid[:, 0] else "")
        axes.set_title(title, fontsize=11)
    return _with_legend(figure, grid, most_columns=6)


def _grid(
    n_panels: int, columns: int, size: Callable[[int, int], tuple[float, float]], **shared: bool
) -> tuple[Figure, NDArray[Any]]:
    """A figure of so many panels, at most `columns` a row; `size` is a function of the columns and rows, in inches."""
    n_columns = min(columns, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure, grid = plt.subplots(n_rows, n_columns, figsize=size(n_columns, n_rows), squeeze=False, **shared)
    for axes in grid.flat[n_panels:]:
        axes.set_visible(False)
    return figure, grid


def _with_legend(figure: Figure, grid: NDArray[Any], most_columns: int) -> Figure:
    """The figure with one legend of all panels, closed."""
    handles = {label: h for axes in grid.flat for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = min(len(handles), most_columns)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, fontsize=9)
    return _closed(figure)


def _draw_lines(axes: Axes, curves: Curves, log_x: bool, bands: bool, hollow: bool = False) -> None:
    for j, (label, points) in enumerate(curves.items()):
        style, xs = line_style(label, j), np.array(list(points))
        if hollow:  # the legend has the label already, and an underscore keeps a second one out
            style, label = style | {"markerfacecolor": "none", "linestyle": "--"}, f"_{label}"
        ys, ends = _bars(points.values())
        if bands:
            axes.plot(xs, ys, label=label, **style, markersize=4.5, linewidth=1.4)
            low, high = np.array([[i.low, i.high] for i in points.values()]).T
            axes.fill_between(xs, low, high, color=style["color"], alpha=0.12, linewidth=0)
        else:
            shift = (j - (len(curves) - 1) / 2) * 0.012
            shifted = xs * (xs.max() / xs.min()) ** shift if log_x else xs + shift * np.ptp(xs)
            axes.errorbar(shifted, ys, yerr=ends, label=label, **style, markersize=6, linewidth=1.6, elinewidth=1)
    if log_x:
        axes.set_xscale("log")


def short_count(n: float) -> str:
    """A number of parameters in few characters: 25k, 890k, 6.9B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.{1 if n < 10 * size else 0}f}".removesuffix(".0") + unit
    return f"{n:g}"


def _closed(figure: Figure) -> Figure:
    """The figure, closed: a notebook shows what a cell returns, and would show an open figure once more."""
    plt.close(figure)
    return figure


def ours_beside_published(results: Sequence[Result], metric: str, *, xlabel: str, chance: float) -> Figure:
    """One panel a column, one line a detector: our dot with its interval, the published number a hollow diamond."""
    panels: dict[str, dict[str, dict[str, Interval]]] = {}
    titles: dict[str, str] = {}
    for result in (r for r in results if r.metric == metric):
        printed = f"\npublished: {result.published_column}" if result.published_column else ""
        title = titles.setdefault(result.column, result.column + printed)
        ours, published = panels.setdefault(title, {name: {} for name in SOURCE_STYLES}).values()
        if result.interval:
            ours[result.row] = result.interval
        if result.published is not None:
            published[result.row] = Interval(result.published, result.published, result.published)
    figure = dots_in_panels(panels, xlabel=xlabel, chance=chance, spread=0)
    figure.set_size_inches(3.9 * len(panels) + 1.2, 0.42 * len(figure.axes[0].get_yticks()) + 1.6)
    return figure


def ours_against_published(results: Sequence[Result], metric: str) -> Figure:
    """Our number over the published one: a point a cell with both, a colour a method, a diagonal where both agree."""
    both = [r for r in results if r.metric == metric and r.interval and r.published is not None]
    figure, axes = plt.subplots(figsize=(5.2, 4.6))
    values = [value for r in both for value in (r.published, r.low, r.high)] or [0.5, 1.0]
    ends = (min(values) - 0.02, max(values) + 0.02)
    axes.plot(ends, ends, **CHANCE)
    for position, row in enumerate(dict.fromkeys(r.row for r in both)):
        of_row, style = [r for r in both if r.row == row], line_style(row, position)
        ours, bars = _bars(r.interval for r in of_row)
        look = {"fmt": style["marker"], "color": style["color"], "elinewidth": 1.2}
        axes.errorbar([r.published for r in of_row], ours, yerr=bars, label=row, **look)
    if not both:
        axes.text(0.5, 0.5, "nothing was run", ha="center", transform=axes.transAxes)
    else:
        figure.legend(loc="outside right upper", fontsize=9)
    axes.set(xlim=ends, ylim=ends, xlabel="published AUC", ylabel="ours", aspect="equal")
    return _closed(figure)


def heatmaps(
    grids: dict[str, np.ndarray],
    *,
    xticks: Sequence[float],
    yticks: Sequence[float],
    xlabel: str,
    ylabel: str,
    fmt: str,
    label: str,
    frame_best: bool = False,
    paper_cell: tuple[float, float] | None = None,
) -> Figure:
    """Annotated heatmaps of shape (len(yticks), len(xticks)) on one colour scale, two side by side.

    `frame_best` frames the highest cell, `paper_cell` (x, y) the one that the paper reports, by dashes. Digits are as
    large as the cells allow, and so have no 0 before the point.
    """
    width, height = 0.4 * len(xticks) + 0.5, 0.27 * len(yticks) + 1.0
    figure, panels = _grid(len(grids), 2, lambda n, n_rows: (n * width + 0.9, n_rows * height + 0.3), sharey=True)
    every = np.stack(list(grids.values()))
    digits = np.vectorize(lambda x: re.sub(r"^0\.", ".", f"{x:{fmt}}"))(every)
    ticks = {"xticklabels": [f"{x:g}" for x in xticks], "yticklabels": [f"{y:g}" for y in yticks]}
    scale = {"vmin": np.nanmin(every), "vmax": np.nanmax(every), "cmap": "cividis", "cbar": False}
    text = {"fmt": "", "annot_kws": {"fontsize": min(11, 40 / np.char.str_len(digits).max())}}
    paper_cell = paper_cell or (np.nan, np.nan)
    at_paper = [np.flatnonzero(np.isclose(of, at)) for of, at in zip((xticks, yticks), paper_cell, strict=True)]
    framed: dict[str, Any] = {}

    def frame(axes: Axes, column: int, row: int, **look: Any) -> Any:
        """Frame one cell, a little inside of it."""
        return axes.add_patch(plt.Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, fill=False, **look))

    for axes, (title, grid), of_grid in zip(panels.flat, grids.items(), digits, strict=False):
        sns.heatmap(grid, ax=axes, annot=of_grid, **text, **scale, **ticks)
        colours = axes.collections[0].get_facecolors()[~np.isnan(grid).ravel()]  # a cell without a number has no text
        for shown, colour in zip(axes.texts, colours, strict=True):
            shown.set_color("black" if relative_luminance(colour) > EQUAL_CONTRAST else "white")
        if frame_best:
            row, column = np.unravel_index(np.nanargmax(grid), grid.shape)
            framed["best here"] = frame(axes, column, row, edgecolor="#D55E00", linewidth=2.5)
        for column, row in zip(*at_paper, strict=False):
            frame(axes, column, row, edgecolor="white", linewidth=2.5)
            dashes = {"edgecolor": "black", "linewidth": 2, "linestyle": (0, (2, 1.5))}
            framed["the paper's best"] = frame(axes, column, row, **dashes)
        axes.set(xlabel=xlabel, ylabel=ylabel if axes in panels[:, 0] else "")
        axes.set_title(title, fontsize=10.5)
        axes.tick_params(axis="y", rotation=0)
    figure.colorbar(axes.collections[0], ax=panels, label=label, fraction=0.04, pad=0.02)
    if framed:
        figure.legend(framed.values(), framed, loc="outside lower center", ncols=2, fontsize=9)
    return _closed(figure)


def score_histograms(
    members: np.ndarray, non_members: np.ndarray, *, xlabel: str, threshold: float, marked: dict[str, float]
) -> Figure:
    """How one detector's scores of members and of non-members overlap, with a threshold and single texts marked."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    bins = np.histogram_bin_edges(np.concatenate([members, non_members]), bins=40)
    for values, label in ((non_members, "non-members"), (members, "members")):
        look = {"color": CLASS_STYLES[label]["color"], "hatch": CLASS_STYLES[label]["hatch"]}
        axes.hist(values, bins=bins, alpha=0.55, label=f"{label} ({len(values)})", **look, edgecolor="white")
    axes.axvline(threshold, color="black", linestyle="--", linewidth=1.4, label="threshold")
    for (label, score), marker in zip(marked.items(), MARKERS, strict=False):
        axes.plot(score, 0, marker, color="black", markersize=9, clip_on=False, zorder=5, linestyle="", label=label)
    axes.set(xlabel=xlabel, ylabel="texts")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return _closed(figure)


def dots_in_panels(
    panels: dict[str, dict[str, dict[str, Interval]]],
    *,
    xlabel: str = "AUC",
    chance: float | None = 0.5,
    spread: float = 0.24,
) -> Figure:
    """Estimates as dots with intervals: {panel: {series: {row: interval}}}; a row a line, each series its own marker.

    Panels share the rows and stand side by side, at most three of them. `spread` is how far two series of a row lie
    apart, at most.
    """
    rows = list(dict.fromkeys(row for groups in panels.values() for points in groups.values() for row in points))
    series = list(dict.fromkeys(name for groups in panels.values() for name in groups))
    step, height = min(spread, 0.8 / len(series)), (0.24 + 0.16 * len(series)) * len(rows) + 0.9
    columns = 2 if len(panels) == 4 else 3
    figure, grid = _grid(
        len(panels), columns, lambda n, n_rows: (3.3 * max(n, 1.8), height * n_rows + 0.6), sharex=True, sharey=True
    )
    for axes, (title, groups) in zip(grid.flat, panels.items(), strict=False):
        for name, points in groups.items():
            style = line_style(name, j := series.index(name)) | {"linestyle": ""}
            at = [rows.index(row) + (j - (len(series) - 1) / 2) * step for row in points]
            estimates, ends = _bars(points.values())
            axes.errorbar(estimates, at, xerr=ends, label=name, markersize=5, elinewidth=1.4, **style)
        if chance is not None:
            axes.axvline(chance, **CHANCE)
        axes.set_title(title, fontsize=10.5)
        axes.set_xlabel(xlabel)
        _upright_grid(axes)
        axes.tick_params(labelbottom=True)
        for border in np.arange(0.5, len(rows) - 1):
            axes.axhline(border, color="0.93", linewidth=0.8, zorder=0)
    grid[0][0].set_yticks(range(len(rows)), rows)
    grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
    return _with_legend(figure, grid, most_columns=3)


def _upright_grid(axes: Axes) -> None:
    """The grid lines of a panel whose values lie along x and whose rows have names."""
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)


def verdict_tiles(groups: dict[str, Sequence[str]], per_row: int = 12) -> Figure:
    """A tile a claim, {group: its claims' verdicts}, narrow enough for a phone; the legend counts them."""
    width = 4.2  # inches
    rows: list[tuple[str, list[str]]] = []
    for name, verdicts in groups.items():
        ordered = sorted(verdicts, key=VERDICTS.index)
        heading = f"{name}: {len(ordered)} claim{'s' if len(ordered) > 1 else ''}"
        rows += [(heading if at == 0 else "", ordered[at : at + per_row]) for at in range(0, len(ordered), per_row)]
    counts = {name: sum(list(of).count(name) for of in groups.values()) for name in VERDICTS}
    shown = [name for name in VERDICTS if counts[name]]
    n_lines = len(rows) + 0.75 * sum(bool(heading) for heading, _ in rows) + 0.9 * len(shown) + 0.5
    figure, axes = plt.subplots(figsize=(width, n_lines * width / per_row))
    y = 0.0
    for heading, verdicts in rows:
        if heading:
            y += 0.75
            axes.text(0, y - 0.2, heading, fontsize=11, fontweight="bold", va="bottom")
        for x, name in enumerate(verdicts):
            _tile(axes, x, y, name)
        y += 1
    y += 0.5
    for name in shown:
        _tile(axes, 0, y, name, size=0.8)
        axes.text(1, y + 0.4, f"{name}: {counts[name]}", fontsize=11, va="center")
        y += 0.9
    axes.set(xlim=(0, per_row), ylim=(y, 0), aspect="equal")
    axes.axis("off")
    return _closed(figure)


def _tile(axes: Axes, x: float, y: float, verdict: str, size: float = 0.92) -> None:
    style = VERDICT_STYLES[verdict]
    axes.add_patch(plt.Rectangle((x, y), size, size, facecolor=style.color, edgecolor="0.35", linewidth=0.5))
    at = x + size / 2, y + size / 2
    axes.text(*at, style.mark, color=style.text, fontsize=13 * size, ha="center", va="center_baseline")


def forest(claims: dict[str, dict[str, Tested]], *, xlabel: str) -> Figure:
    """Each test's difference with its interval against its threshold: {claim: {setting: test}}; marked by verdict.

    The threshold of a claimed difference is 0, the line; that of an equality is its margin, the grey box around 0.
    """
    line, row = 0.21, 0.27  # heights in inches: of a claim's wrapped text, and of a test
    headings = {claim: wrap(claim, 68) for claim in claims}
    height = sum(line * len(headings[claim]) + row * len(of) + 0.1 for claim, of in claims.items())
    figure, axes = plt.subplots(figsize=(5.8, height + 1.6))  # a phone shows it at two thirds
    y, ticks, used = 0.0, {}, []
    for claim, tests in claims.items():
        y += 0.1 + line * len(headings[claim])
        text = "\n".join(headings[claim])
        on_white = {"va": "bottom", "fontsize": 10.5, "weight": "bold", "bbox": {"color": "white", "pad": 1}}
        axes.annotate(text, (0.01, y - 0.03), xycoords=("figure fraction", "data"), **on_white)
        for name, test in tests.items():
            y += row
            at, style, (estimate, ends) = y - row / 2, VERDICT_STYLES[test.verdict], _bars([test.difference])
            if test.margin is not None:
                box = (-test.margin, at - 0.4 * row), 2 * test.margin, 0.8 * row
                axes.add_patch(plt.Rectangle(*box, facecolor="0.87", edgecolor="0.6", linewidth=0.6, zorder=0.9))
            look = {"fmt": style.marker, "markeredgecolor": "0.2", "markeredgewidth": 0.6, "ecolor": "0.2"}
            axes.errorbar(estimate, [at], xerr=ends, color=style.color, markersize=7, elinewidth=1.4, **look)
            axes.annotate(style.mark, (1, at), (5, 0), **AT_THE_RIGHT, fontsize=13, annotation_clip=False)
            ticks[at] = name
            used.append(test.verdict)
    axes.axvline(0, **CHANCE | {"linestyle": "-", "linewidth": 1})
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=10.5)
    axes.set_ylim(y + 0.05, 0)
    axes.set_xlabel(xlabel, fontsize=11)
    axes.tick_params(axis="x", labelsize=10.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _upright_grid(axes)
    shown = [name for name in VERDICTS if name in used]
    handles = [
        plt.Line2D([], [], linestyle="none", marker=of.marker, color=of.color, markeredgecolor="0.2", markersize=7)
        for of in map(VERDICT_STYLES.get, shown)
    ]
    labels = [f"{VERDICT_STYLES[name].mark} {name}: {used.count(name)}" for name in shown]
    figure.legend(handles, labels, loc="outside lower left", ncols=1, fontsize=10.5)
    return _closed(figure)
