"""A slider over a detector's hyperparameter: moved, it shows that value's AUC and how the two classes' scores lie.

Everything is computed when the page runs; the page holds the numbers as JSON and asks no other host. Without a script a
table of the AUCs stands there instead. The HTML, style and script are in `sliders.html`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import HTML
from numpy.typing import ArrayLike

from mialib.metrics import FloatArray, auc_interval
from mialib.store import hash_of
from mialib_audit.templates import macros

BARS = 24  # of a histogram
Axes = Mapping[str, Sequence[float]]


def slider(
    labels: ArrayLike, scores: ArrayLike, axes: Axes, start: Sequence[float], *, title: str, unit: str = "nats"
) -> HTML:
    """A slider for each hyperparameter in `axes`, {name: its values}, one or two of them.

    `scores` are those of all texts at each value, (values, N), or at each pair of values, (values, values, N). `start`
    is where each slider stands at first: at the value nearest to it. ValueError where the shapes do not fit.
    """
    data = slider_data(labels, scores, axes)
    values = [np.asarray(of_axis, float) for of_axis in axes.values()]
    sides = [
        {"name": name, "values": shown, "at": int(np.abs(of_axis - at).argmin())}
        for name, shown, of_axis, at in zip(axes, data["values"], values, start, strict=True)
    ]
    rows = np.array([cell["auc"] for cell in data["cells"]], object).reshape([len(of_axis) for of_axis in values])
    given = {"title": title, "unit": unit, "axes": sides, "table": rows.tolist(), "data": data}
    return HTML(str(macros(Path(__file__).with_suffix(".html")).slider(id=f"ms-{hash_of(given)}", **given)))


def slider_data(labels: ArrayLike, scores: ArrayLike, axes: Axes) -> dict[str, Any]:
    """What the page holds: each axis's values as text, and a cell for each value or pair, the last axis's fastest.

    A cell has the AUC as text, its estimate and ends, the lowest and highest score, and how many members and
    non-members score within each of `BARS` equal steps from the lowest to the highest.
    """
    labels, scores = np.asarray(labels), np.asarray(scores, float)
    shape = (*map(len, axes.values()), len(labels))
    if len(axes) not in (1, 2) or scores.shape != shape:
        raise ValueError(
            f"one or two axes with scores of shape {shape} are expected, got {len(axes)} and {scores.shape}"
        )
    cells = [_cell(labels, of_cell) for of_cell in scores.reshape(-1, len(labels))]
    return {"values": [[f"{value:.3g}" for value in values] for values in axes.values()], "cells": cells}


def _cell(labels: np.ndarray, scores: FloatArray) -> dict[str, Any]:
    auc, low, high = auc_interval(labels, scores), scores.min(), scores.max()
    within = (low, high if high > low else low + 1)
    members, non_members = (np.histogram(scores[labels == label], BARS, within)[0].tolist() for label in (1, 0))
    return {
        "auc": str(auc),
        "ends": [round(float(value), 4) for value in (auc.estimate, auc.low, auc.high)],
        "scores": [f"{x:.3g}".replace("-", "−") for x in (low, high)],
        "members": members,
        "non_members": non_members,
    }
