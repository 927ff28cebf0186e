"""The book's figures: each function draws one kind of picture from numbers that were computed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mialib.metrics import Interval
    from mialib.results import Result

# Okabe and Ito's colours, which colour-blind readers tell apart, and a marker each: no figure depends on colour alone.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#56B4E9", "#CC79A7", "#D55E00", "#000000", "#7F7F7F"]
MARKERS = "os^v*PDX"
CHANCE = {"color": "0.45", "linestyle": ":", "linewidth": 1.2, "zorder": 0}


def use_style() -> None:
    """The book's look: call once in a notebook."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    sns.set_theme(context="notebook", style="ticks", palette=COLORS)
    plt.rcParams |= {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": "0.9",
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "mialib",
    }
    set_matplotlib_formats("svg")


def line_style(label: str, position: int) -> dict[str, str]:
    """Colour and marker: a detector's (by the papers' label) are the same on every page, others go by position."""
    from mialib.detectors import DETECTORS

    labels = [known.label for known in DETECTORS.values()]
    i = labels.index(label) if label in labels else position
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}


def lines_with_intervals(
    curves: dict[str, dict[float, Interval]],
    *,
    xlabel: str,
    ylabel: str = "AUC",
    log_x: bool = False,
    chance: float | None = 0.5,
    ticks: dict[float, str] | None = None,
) -> Figure:
    """One line a detector over x with its intervals, spread sideways a little so that bars do not hide each other."""
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    for j, (label, points) in enumerate(curves.items()):
        shift = (j - (len(curves) - 1) / 2) * 0.012
        xs = np.array(list(points))
        span = np.log(xs.max() / xs.min()) if log_x else xs.max() - xs.min()
        shifted = xs * np.exp(shift * span) if log_x else xs + shift * span
        ys = np.array([interval.estimate for interval in points.values()])
        ends = np.array([[i.estimate - i.low, i.high - i.estimate] for i in points.values()]).T
        axes.errorbar(
            shifted, ys, yerr=ends, label=label, **line_style(label, j), markersize=6, linewidth=1.6, elinewidth=1
        )
    if log_x:
        axes.set_xscale("log")
    some = list(next(iter(curves.values())))
    axes.set_xticks(some, [(ticks or {}).get(x, f"{x:g}") for x in some], rotation=45 if len(some) > 5 else 0)
    axes.minorticks_off()
    _finish(axes, xlabel, ylabel, chance)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _closed(figure)


def _closed(figure: Figure) -> Figure:
    """The figure, closed: a notebook shows what a cell returns, and would show an open figure once more."""
    plt.close(figure)
    return figure


def _finish(axes: Axes, xlabel: str, ylabel: str, chance: float | None) -> None:
    if chance is not None:
        axes.axhline(chance, **CHANCE)
        axes.annotate(
            "chance", (0.004, chance), xycoords=("axes fraction", "data"), va="bottom", fontsize=9, color="0.4"
        )
    axes.set(xlabel=xlabel, ylabel=ylabel)


def ours_beside_published(results: Sequence[Result], metric: str, *, xlabel: str, chance: float) -> Figure:
    """One panel a column, one line a detector: our dot with its interval, the published number a hollow diamond."""
    chosen = [result for result in results if result.metric == metric]
    columns = list(dict.fromkeys(result.column for result in chosen))
    rows = list(dict.fromkeys(result.row for result in chosen))
    figure, panels = plt.subplots(
        1,
        len(columns),
        figsize=(3.9 * len(columns) + 1.2, 0.42 * len(rows) + 1.6),
        sharey=True,
        sharex=True,
        squeeze=False,
    )
    for axes, column in zip(panels[0], columns, strict=True):
        for result in chosen:
            if result.column != column:
                continue
            y = rows.index(result.row)
            if result.ours is not None:
                ends = [[result.ours - result.low], [result.high - result.ours]]
                axes.errorbar(result.ours, y, xerr=ends, fmt="o", color="C0", markersize=6, elinewidth=1.5)
            if result.published is not None:
                axes.plot(
                    result.published, y, "D", markerfacecolor="none", color="C1", markersize=7, markeredgewidth=1.5
                )
        axes.axvline(chance, **CHANCE)
        published = next((r.published_column for r in chosen if r.column == column), None)
        axes.set_title(column + (f"\npublished: {published}" if published else ""), fontsize=10)
        axes.set_xlabel(xlabel)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
    panels[0][0].set_yticks(range(len(rows)), rows)
    panels[0][0].invert_yaxis()
    handles = [
        plt.Line2D([], [], marker="o", linestyle="none", color="C0", label="ours, 95% interval"),
        plt.Line2D(
            [], [], marker="D", linestyle="none", color="C1", markerfacecolor="none", label="published (its own model)"
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9)
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
) -> Figure:
    """Annotated heatmaps of shape (len(yticks), len(xticks)) on one colour scale; `frame_best` frames the highest."""
    low = min(float(np.nanmin(grid)) for grid in grids.values())
    high = max(float(np.nanmax(grid)) for grid in grids.values())
    figure, panels = plt.subplots(1, len(grids), figsize=(6.2 * len(grids), 0.3 * len(yticks) + 1.6), squeeze=False)
    for i, (axes, (title, grid)) in enumerate(zip(panels[0], grids.items(), strict=True)):
        sns.heatmap(
            grid,
            ax=axes,
            vmin=low,
            vmax=high,
            cmap="cividis",
            annot=True,
            fmt=fmt,
            annot_kws={"fontsize": 7.5},
            xticklabels=[f"{x:g}" for x in xticks],
            yticklabels=[f"{y:g}" for y in yticks],
            cbar=i == len(grids) - 1,
            cbar_kws={"label": label},
        )
        if frame_best:
            row, column = np.unravel_index(np.nanargmax(grid), grid.shape)
            axes.add_patch(plt.Rectangle((column, row), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
        axes.set(xlabel=xlabel, ylabel=ylabel if i == 0 else "", title=title)
        axes.tick_params(axis="y", rotation=0)
    return _closed(figure)


def score_histograms(members: np.ndarray, non_members: np.ndarray, *, xlabel: str) -> Figure:
    """How one detector's scores of members and of non-members overlap."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    bins = np.histogram_bin_edges(np.concatenate([members, non_members]), bins=40)
    for values, label, color, hatch in ((non_members, "non-members", "C1", "//"), (members, "members", "C0", "")):
        axes.hist(
            values, bins=bins, alpha=0.55, label=f"{label} ({len(values)})", color=color, hatch=hatch, edgecolor="white"
        )
    axes.set(xlabel=xlabel, ylabel="texts")
    axes.legend()
    return _closed(figure)
