"""The book's figures: each function draws one kind of picture from numbers that were computed elsewhere."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.core.getipython import get_ipython
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from seaborn.utils import relative_luminance

from mialib.metrics import Interval
from replication.published import METHODS
from replication.results import BLIND_PREFIX, CONFOUNDED, NO_DIFFERENCE, UNINFORMATIVE, UNSHOWN, VERDICTS, Result
from replication.tables import html

Style = dict[str, Any]  # of a line, text or patch, as Matplotlib takes it

# Each colour means one thing in the whole book: a class of texts, a detector of the papers (as any of them spells it),
# or a verdict's tile. All else is grey, and its marker says which it is. No figure depends on colour alone.
CLASS_STYLES = {
    "members": {"color": "#4B0092", "marker": "o", "hatch": ""},
    "non-members": {"color": "#7A7A00", "marker": "x", "hatch": "//"},
}
DETECTOR_COLORS = {  # the first six are Okabe and Ito's, which colour-blind readers tell apart
    "ppl": "#0072B2",
    "lowercase": "#E69F00",
    "zlib": "#009E73",
    "ref": "#56B4E9",
    "min_k": "#CC79A7",
    "min_k++": "#D55E00",
    "dc_pdd": "#661100",
    "surp": "#0B6E6E",
    "neighbor": "#A65628",
    "probe": "#882255",
}
MARKERS = "os^vDPX*hd"
DETECTOR_STYLES = {
    label: {"color": DETECTOR_COLORS[name], "marker": MARKERS[list(DETECTOR_COLORS).index(name)]}
    for of_paper in METHODS.values()
    for name, printed in of_paper.items()
    for label in (name, printed)
}
GREYS = ["0", "0.45", "0.25", "0.6"]  # of series that are none of these, by position
PUBLISHED = {"color": "0.45", "marker": "D", "markerfacecolor": "white"}


class VerdictStyle(NamedTuple):
    """A verdict's tile: a mark that can be read without the tile's colour, and the colours of both."""

    mark: str
    color: str
    text: str


VERDICT_STYLES = {
    "supported": VerdictStyle("✓", "#004488", "white"),
    "inconclusive": VerdictStyle("?", "#F0E442", "black"),
    UNSHOWN: VerdictStyle("∼", "#88CCEE", "black"),
    NO_DIFFERENCE: VerdictStyle("=", "#6E6E6E", "white"),
    UNINFORMATIVE: VerdictStyle("∅", "#D9D9D9", "black"),
    CONFOUNDED: VerdictStyle("!", "#BBBBBB", "black"),
    "not supported": VerdictStyle("✗", "#BB5566", "white"),
}


Curves = dict[str, dict[float, Interval]]  # {line: {x: interval}}
EQUAL_CONTRAST = 0.179  # the luminance on which black and white text stand out alike
CHANCE: Style = {"color": "0.45", "linestyle": ":", "linewidth": 1.4, "label": "chance"}
CHANCE |= {"zorder": 0.8}  # above the grid
WIDTH = 6.6  # inches, of the page's column: a wider figure is shrunk, and its digits with it


def use_style() -> None:
    """Give a notebook's figures and tables the book's look: call once."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    pd.set_option("display.max_colwidth", None)  # a cell is never cut off
    if (shell := get_ipython()) and shell.display_formatter:
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, html)
    sns.set_theme(context="notebook", style="ticks")
    plt.rcParams |= {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": "0.9",
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "axes.titlesize": 10.5,
        "axes.labelsize": 10.5,
        "xtick.labelsize": 9.5,
        "ytick.labelsize": 9.5,
        # Text stays text: it can be searched, selected and read aloud. Its lines are set in the first font, which comes
        # with Matplotlib; a browser without it draws them in the second, whose widths are nearly the same.
        "svg.fonttype": "none",
        "font.sans-serif": ["DejaVu Sans", "Verdana"],
        "svg.hashsalt": "mialib",
    }
    set_matplotlib_formats("svg", metadata={"Date": None})  # the same figure is the same file


def line_style(label: str, position: int) -> Style:
    """Colour and marker: a detector's (by any paper's label) and a class's are the same on every page.

    Other series are grey, with a marker by position. A blind baseline's line is dashed, as it is no detector's.
    """
    if label.startswith(BLIND_PREFIX):
        return {"color": "0.25", "marker": "x", "linestyle": "--"}
    for name, style in CLASS_STYLES.items():
        if label == name or label.startswith((f"{name} (", f"{name},")):  # "members (500)", "non-members, held out"
            return {"color": style["color"], "marker": style["marker"]}
    if known := (DETECTOR_STYLES | {"published": PUBLISHED}).get(label):
        return dict(known)
    linestyle = ("-", "--", "-.", ":")[position % 4]
    return {"color": GREYS[position % 4], "marker": MARKERS[position % len(MARKERS)], "linestyle": linestyle}


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
    hollow: dict[str, Curves] | None = None,
) -> Figure:
    """One line a detector over x with its intervals, two panels a row: {panel: {line: {x: interval}}}.

    Intervals are bars, the lines spread sideways a little so that none hides another, or bands where x is dense. What
    is `hollow` stands in the same panels with hollow markers and dashed lines.
    """
    height = 3.6 if len(panels) == 1 else 3.0 if len(panels) < 5 else 2.2  # inches: all of it on one screen
    figure, grid = _grid([height] * len(panels), 2, xlabel, sharey=True)
    filled = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    every = list(dict.fromkeys([*filled, *(name for curves in (hollow or {}).values() for name in curves)]))
    for axes, (title, curves) in zip(grid.flat, panels.items(), strict=False):
        beside = (hollow or {}).get(title, {})
        _draw_lines(axes, curves, every, log_x, bands)
        _draw_lines(axes, beside, every, log_x, bands, filled)
        some = sorted({x for of in (curves, beside) for points in of.values() for x in points})
        axes.set_xticks(some, [(ticks or {}).get(x, f"{x:g}") for x in some])
        axes.minorticks_off()
        if chance is not None:
            axes.axhline(chance, **CHANCE)
        axes.set(title=panel_title(title), ylabel=ylabel if axes.get_subplotspec().is_first_col() else "")
    _set_apart(figure)
    return with_legend(figure, grid)


def _set_apart(figure: Figure) -> None:
    """Turn the labels of an x axis where two of them touch, and hide those that touch even then."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in labels]
        height = max((box.height for box in boxes), default=0)  # the room between two that don't touch is half of it
        if all(left.x1 + height / 2 < right.x0 for left, right in pairwise(boxes)):
            continue
        end = -np.inf
        for label, box in zip(labels, boxes, strict=True):
            middle = (box.x0 + box.x1) / 2
            is_apart = middle - end > 1.5 * height  # of lines at 45 degrees
            label.set(rotation=45, ha="right", rotation_mode="anchor", visible=is_apart)
            end = middle if is_apart else end


def _grid(heights: Sequence[float], most_columns: int, xlabel: str, **shared: bool) -> tuple[Figure, NDArray[Any]]:
    """A figure as wide as the page with panels of these heights, in inches; the lowest ones have a label.

    Of an odd number of panels in two columns the first is as wide as the page.
    """
    n, n_columns = len(heights), min(most_columns, len(heights))
    n_wide = n % 2 if n_columns == 2 else 0
    in_rows = [heights[:n_wide]] * n_wide + [heights[i : i + n_columns] for i in range(n_wide, n, n_columns)]
    of_rows = [max(row) for row in in_rows]
    how: Style = {"height_ratios": of_rows, "figsize": (WIDTH, sum(of_rows) + 0.6), "squeeze": False, **shared}
    figure, grid = plt.subplots(len(of_rows), n_columns, **how)
    every = list(grid.flat)
    if n_wide:
        every[0].set_subplotspec(every[0].get_gridspec()[0, :])
        every.append(every.pop(1))  # which it hides
    for i, axes in enumerate(every):
        axes.set_visible(i < n)
        axes.set_xlabel(xlabel if i + n_columns >= n else "")
    return figure, np.array(every, object).reshape(grid.shape)


def in_words(name: str) -> str:
    """A name as a figure says it: "WikiMIA, 128 words" for `real/wikimia-128`."""
    return re.sub(r"\breal/", "", re.sub(r"\breal/wikimia-(\d+)", r"WikiMIA, \1 words", name))


def panel_title(name: str) -> str:
    """The name in words, with `MODEL on BENCHMARK` on two lines where it is wider than half of the page."""
    name = in_words(name)
    return name if len(name) <= 34 else name.replace(" on ", "\non ")


def with_legend(figure: Figure, grid: NDArray[Any]) -> Figure:
    """The figure with one legend of all panels, in as many columns as the page has room for, closed."""
    handles = {label: h for axes in grid.flat for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    labels = [in_words(label) for label in handles]
    columns = max(1, int(100 * WIDTH / (6.5 * max(map(len, labels)) + 50)))
    figure.legend(handles.values(), labels, loc="outside lower center", ncols=min(columns, len(handles)))
    return _closed(figure)


def _draw_lines(
    axes: Axes, curves: Curves, every: Sequence[str], log_x: bool, bands: bool, filled: Sequence[str] | None = None
) -> None:
    """Draw lines; with hollow markers where it is said which lines are `filled` and so in the legend already."""
    for j, (label, points) in enumerate(curves.items()):
        style, xs = line_style(label, every.index(label)), np.array(list(points))
        if filled is not None:
            style |= {"markerfacecolor": "none", "linestyle": "--"}
            label = f"_{label}" if label in filled else label  # an underscore keeps a second one out of the legend
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
    """A panel of our numbers for each benchmark, a marker a model, and one of the paper's, on axes of their own.

    Another model on other texts has another height of AUC: what can be compared is the order of the detectors.
    """
    panels: dict[str, dict[str, dict[str, Interval]]] = {}
    for r in (r for r in results if r.metric == metric):
        model, _, benchmark = r.column.rpartition(" on ")
        ours = panels.setdefault(f"{benchmark}, ours", {}).setdefault(model or "ours, 95% interval", {})
        if r.interval:
            ours[r.row] = r.interval
        if r.published_column:
            printed = panels.setdefault(f"{r.published_column},\nprinted in the paper", {"published": {}})
            if r.published is not None:
                printed["published"][r.row] = Interval(r.published, r.published, r.published)
    return dots_in_panels(panels, xlabel=xlabel, chance=chance, share_axis=False)


def ours_against_published(results: Sequence[Result], metric: str) -> Figure:
    """Our number over the published one: a point a cell with both, a colour a method, a diagonal where both agree."""
    both = [r for r in results if r.metric == metric and r.interval and r.published is not None]
    figure, axes = plt.subplots(figsize=(5.2, 4.6))
    values = [value for r in both for value in (r.published, r.low, r.high) if value is not None] or [0.5, 1.0]
    ends = (min(values) - 0.02, max(values) + 0.02)
    axes.plot(ends, ends, **CHANCE)
    for position, row in enumerate(dict.fromkeys(r.row for r in both)):
        of_row, style = [r for r in both if r.row == row], line_style(row, position)
        ours, bars = _bars(r.interval for r in of_row if r.interval)
        look: Style = {"fmt": style["marker"], "color": style["color"], "elinewidth": 1.2}
        axes.errorbar(np.array([r.published for r in of_row]), ours, yerr=bars, label=row, **look)
    if not both:
        axes.text(0.5, 0.5, "nothing was run", ha="center", transform=axes.transAxes)
    else:
        figure.legend(loc="outside right upper")
    axes.set(xlim=ends, ylim=ends, xlabel="published AUC", ylabel="ours", aspect="equal")
    return _closed(figure)


def heatmaps(
    grids: dict[str, np.ndarray],
    *,
    thresholds: Sequence[float],
    ks: Sequence[float],
    fmt: str,
    label: str,
    paper_cell: tuple[float, float] | None = None,
) -> Figure:
    """SURP's grids of shape (len(thresholds), len(ks)) as in the paper's Figure 4: k upwards, thresholds to the right.

    With `paper_cell` (k, threshold) that cell is framed by dashes, and the highest one by a line. Digits have no 0
    before the point, so that they are large.
    """
    figure, panels = _grid([0.18 * len(ks) + 0.5] * len(grids), 1, xlabel="")
    shown = {title: grid.T[::-1] for title, grid in grids.items()}
    every = np.stack(list(shown.values()))
    scale = {"vmin": np.nanmin(every), "vmax": np.nanmax(every), "cmap": "cividis", "cbar": False}
    ticks = {"xticklabels": [f"{x:g}" for x in thresholds], "yticklabels": [f"{y:g}" for y in reversed(ks)]}
    framed: Style = {}

    def frame(axes: Axes, row: Any, column: Any, **look: Any) -> Any:
        """Frame one cell, a little inside of it."""
        return axes.add_patch(plt.Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, fill=False, **look))

    for axes, (title, grid) in zip(panels.flat, shown.items(), strict=True):
        digits = np.vectorize(lambda x: re.sub(r"^0\.", ".", f"{x:{fmt}}"))(grid)
        sns.heatmap(grid, ax=axes, annot=digits, fmt="", annot_kws={"fontsize": 8}, **scale, **ticks)
        colours = axes.collections[0].get_facecolors()[~np.isnan(grid).ravel()]  # a cell without a number has no text
        for text, colour in zip(axes.texts, colours, strict=True):
            text.set_color("black" if relative_luminance(colour) > EQUAL_CONTRAST else "white")
        if paper_cell:
            best = np.unravel_index(np.nanargmax(grid), grid.shape)
            framed["best here"] = frame(axes, *best, edgecolor="black", linewidth=2.5)
            at_k, at_threshold = np.isclose(list(reversed(ks)), paper_cell[0]), np.isclose(thresholds, paper_cell[1])
            for cell in np.argwhere(np.outer(at_k, at_threshold)):
                frame(axes, *cell, edgecolor="white", linewidth=2.5)
                dashes: Style = {"edgecolor": "black", "linewidth": 2, "linestyle": (0, (2, 1.5))}
                framed["the paper's best"] = frame(axes, *cell, **dashes)
        axes.set(title=in_words(title), ylabel="percentile k")
        axes.tick_params(axis="both", rotation=0, labelsize=8.5)
    axes.set_xlabel("entropy threshold ε (nats)")  # of the lowest one
    figure.colorbar(axes.collections[0], ax=panels, label=label, fraction=0.03, pad=0.02)
    if framed:
        figure.legend(framed.values(), framed, loc="outside lower center", ncols=2)
    return _closed(figure)


def score_histograms(
    members: np.ndarray, non_members: np.ndarray, *, xlabel: str, threshold: float, marked: dict[str, float]
) -> Figure:
    """How one detector's scores of members and of non-members overlap, with a threshold and single texts marked."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    bins = np.histogram_bin_edges(np.concatenate([members, non_members]), bins=40).tolist()
    for values, label in ((non_members, "non-members"), (members, "members")):
        look: Style = {"color": CLASS_STYLES[label]["color"], "hatch": CLASS_STYLES[label]["hatch"]}
        axes.hist(values, bins=bins, alpha=0.55, label=f"{label} ({len(values)})", **look, edgecolor="white")
    axes.axvline(threshold, color="black", linestyle="--", linewidth=1.4, label="threshold")
    for (label, score), marker in zip(marked.items(), MARKERS, strict=False):
        axes.plot(score, 0, marker, color="black", markersize=9, clip_on=False, zorder=5, linestyle="", label=label)
    axes.set(xlabel=xlabel, ylabel="texts")
    figure.legend(loc="outside lower center", ncols=3)
    return _closed(figure)


def dots_in_panels(
    panels: dict[str, dict[str, dict[str, Interval]]],
    *,
    xlabel: str = "AUC",
    chance: float | None = 0.5,
    share_axis: bool = True,
) -> Figure:
    """Estimates as dots with intervals: {panel: {series: {row: interval}}}; a row a line, each series its own marker.

    Panels stand side by side and share the rows; with `share_axis` all have one axis of values.
    """
    rows = list(dict.fromkeys(row for groups in panels.values() for points in groups.values() for row in points))
    series = list(dict.fromkeys(name for groups in panels.values() for name in groups))
    most = max(map(len, panels.values()))  # series of one panel
    n_lines = max((row.count("\n") + 1 for row in rows), default=1)  # of the longest name
    step, least = min(0.24, 0.8 / most), 0.06 + 0.16 * n_lines
    heights = [max(0.13 + 0.07 * len(groups), least) * len(rows) + 0.5 for groups in panels.values()]
    figure, grid = _grid(heights, 3 if len(panels) == 3 else 2, xlabel, sharex=share_axis, sharey=True)
    for axes, (title, groups) in zip(grid.flat, panels.items(), strict=False):
        for i, (name, points) in enumerate(groups.items()):
            style = line_style(name, series.index(name)) | {"linestyle": ""}
            at = [rows.index(row) + (i - (len(groups) - 1) / 2) * step for row in points]
            estimates, ends = _bars(points.values())
            axes.errorbar(estimates, at, xerr=ends, label=name, markersize=5.5, elinewidth=1.4, **style)
        if chance is not None:
            axes.axvline(chance, **CHANCE | ({} if chance else {"label": "no difference"}))
        axes.set_title(panel_title(title))
        axes.grid(axis="y", visible=False)  # values lie along x, and rows have names
        axes.grid(axis="x", visible=True)
        axes.tick_params(labelbottom=True)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))  # labels of three digits would touch
        for border in np.arange(0.5, len(rows) - 1):
            axes.axhline(border, color="0.93", linewidth=0.8, zorder=0)
    grid[0][0].set_yticks(range(len(rows)), rows)
    grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
    return with_legend(figure, grid)


def jump(means: Mapping[date, Interval], at: date, found: float, placebos: Sequence[float], *, ylabel: str) -> Figure:
    """Means by quarter with a date marked, and beside them the jump at that date among those at placebo dates."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH, 3.4), width_ratios=[5, 2])
    estimates, ends = _bars(means.values())
    days, near = list(means), CLASS_STYLES["members"]["color"]
    for side, label, colour in ((True, "before", near), (False, "since", "0.45")):
        of = [i for i, day in enumerate(days) if (day < at) == side]
        look: Style = {"fmt": "o", "color": colour, "markersize": 5, "elinewidth": 1.2, "label": label}
        left.errorbar([days[i] for i in of], estimates[of], yerr=ends[:, of], **look)
    left.axvline(at, color="black", linestyle=":", linewidth=1.4)
    right.hist(placebos, bins=12, color="0.75", edgecolor="white", label="placebo dates")
    right.axvline(found, color="black", linewidth=1.6, label="registered date")
    figure.legend(loc="outside lower center", ncols=4)
    left.set(xlabel="quarter of the first release", ylabel=ylabel)
    right.set(xlabel="jump", ylabel="dates")
    return _closed(figure)


def bars_from_chance(groups: dict[str, dict[str, Interval]], told_apart: str) -> Figure:
    """AUCs as bars from 0.5, {heading: {name: AUC}}: names above them and numbers at their ends, in place of a legend.

    Bars whose names begin with `told_apart` are black, all others grey. Narrow enough for a phone.
    """
    n_lines = sum(1.3 + 2 * len(bars) for bars in groups.values())
    figure, axes = plt.subplots(figsize=(4.4, 0.18 * n_lines + 0.4))
    y = 0.0
    for heading, bars in groups.items():
        axes.text(0.503, y + 0.8, heading, fontsize=11, weight="bold", va="center")
        y += 1.3
        for name, auc in bars.items():
            at = y + 1.45
            axes.text(0.503, y + 0.6, name, fontsize=10.5, va="center")
            color = "0.1" if name.startswith(told_apart) else "0.6"
            axes.barh(at, auc.estimate - 0.5, 0.7, left=0.5, color=color)
            if auc.low < auc.high:
                axes.plot([auc.low, auc.high], [at, at], color="0.4", linewidth=1.2)
            beside: Style = {"textcoords": "offset points", "va": "center", "fontsize": 10.5}
            axes.annotate(f"{auc.estimate:.3f}", (max(auc.estimate, auc.high), at), (4, 0), **beside)
            y += 2
    axes.axvline(0.5, color="0.45", linewidth=1)
    axes.set(xlim=(0.43, 1.09), ylim=(y + 0.3, 0), yticks=[])
    axes.set_xticks([0.5, 1], ["0.5: guessing", "1: perfect"])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    return _closed(figure)


MEANINGS = {  # of the verdicts, for a reader who meets them first
    "supported": "it holds here",
    "inconclusive": "these texts and models leave it open",
    UNSHOWN: "the paper tested too few texts to show its own leads, so we neither confirm nor reject them",
    NO_DIFFERENCE: "any difference is too small to matter",
    UNINFORMATIVE: "the test could not have found it",
    CONFOUNDED: "the difference may have another cause",
    "not supported": "it does not hold here",
}


def verdict_tiles(groups: Mapping[str, Sequence[tuple[str, str]]]) -> HTML:
    """A row of tiles a group, {group: [(claim, verdict)]}, above a legend that counts verdicts; the words fold out."""
    counts = Counter(verdict for of in groups.values() for _, verdict in of)
    legend = [
        f"<li>{_tile(name)} <b>{name}</b> ({counts[name]}): {MEANINGS[name]}</li>" for name in VERDICTS if counts[name]
    ]
    rows, words = [], []
    for heading, claims in groups.items():
        n_claims = f"{len(claims)} claim{'s' if len(claims) > 1 else ''}"
        rows.append(f"<p><b>{escape(heading)}</b>: {''.join(_tile(verdict, said) for said, verdict in claims)}</p>")
        tiles = [f"<li>{_tile(verdict)} {escape(said)}</li>" for said, verdict in claims]
        words.append(f"<p><b>{escape(heading)}</b>: {n_claims}</p><ul>{''.join(tiles)}</ul>")
    words = ["<details><summary>Each claim in words</summary>", *words, "</details>"]
    legend = ['<ul class="legend">', *legend, "</ul>"]
    return HTML(f'<div class="verdicts">{"".join([*rows, *legend, *words])}</div>')


def _tile(verdict: str, said: str = "") -> str:
    style, label = VERDICT_STYLES[verdict], escape(f"{verdict}: {said}" if said else verdict)
    look = f"background:{style.color};color:{style.text}"
    return f'<span class="tile" role="img" aria-label="{label}" title="{label}" style="{look}">{style.mark}</span>'
