"""The figures draw the numbers that they are given, and the tables print them."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from mialib.book import figures, tables
from mialib.book.results import ONE_SEED, Result
from mialib.detectors import DETECTORS
from mialib.metrics import Interval


def result(row, column, value, published=None):
    return Result(row, column, "auc", value, value - 0.05, value + 0.02, published, "P" if published else None)


def test_lines_pass_through_the_estimates_and_bars_end_at_the_interval():
    curves = {"PPL": {1: Interval(0.6, 0.5, 0.65), 2: Interval(0.7, 0.6, 0.75)}}
    axes = figures.lines_with_intervals(curves, xlabel="x").axes[0]
    container = axes.containers[0]
    np.testing.assert_allclose(container.lines[0].get_ydata(), [0.6, 0.7])
    ends = [segment[:, 1].tolist() for segment in container.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, [[0.5, 0.65], [0.6, 0.75]])


def test_ours_is_a_dot_at_the_estimate_and_the_published_number_a_diamond():
    figure = figures.ours_beside_published([result("PPL", "m on b", 0.7, 0.6)], "auc", xlabel="AUC", chance=0.5)
    axes = figure.axes[0]
    assert axes.containers[0].lines[0].get_xdata() == pytest.approx([0.7])
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert diamonds[0].get_xdata() == pytest.approx([0.6])


def test_a_heatmap_frames_its_highest_cell():
    grid = np.array([[0.5, 0.6], [0.9, 0.7]])
    figure = figures.heatmaps(
        {"g": grid}, xticks=[1, 2], yticks=[1, 2], xlabel="x", ylabel="y", fmt=".2f", label="AUC", frame_best=True
    )
    [frame] = [p for p in figure.axes[0].patches if p.get_linewidth() == 2.5]
    assert frame.get_xy() == (0, 1)
    assert [digits.get_color() for digits in figure.axes[0].texts] == ["white", "white", "black", "black"]


def test_a_heatmaps_cell_without_a_number_has_no_digits():
    grid = np.array([[0.5, np.nan], [0.9, 0.7]])
    figure = figures.heatmaps({"g": grid}, xticks=[1, 2], yticks=[1, 2], xlabel="", ylabel="", fmt=".2f", label="")
    assert [digits.get_text() for digits in figure.axes[0].texts] == ["0.50", "0.90", "0.70"]


def test_every_detector_has_its_own_colour_and_marker():
    styles = [tuple(figures.line_style(d.label, 0).values()) for d in DETECTORS.values()]
    assert len(set(styles)) == len(styles)


def test_the_table_prints_ours_with_its_interval_and_the_published_number():
    table = tables.results_table([result("PPL", "m on b", 0.7, 0.6)], "auc")
    assert table.loc["PPL"].tolist()[-1].startswith("0.700 [0.650, 0.720]")
    assert table.loc["PPL"].tolist()[0].startswith("0.600")


def test_a_table_of_no_comparisons_is_empty_and_has_its_columns():
    assert tables.comparison_table({}, "difference").columns[0] == "difference"
    assert list(tables.comparison_table({}, "difference", margin=0.02).columns) == ["difference", ONE_SEED]
    assert tables.comparison_table({"a": None}, "difference").loc["a", ONE_SEED] == "not applicable"


def test_ours_lies_over_the_published_number_and_what_was_not_run_is_left_out():
    cells = [result("PPL", "c", 0.7, 0.6), result("Zlib", "c", 0.8, 0.5), result("Zlib", "d", 0.9, 0.65)]
    cells.append(Result("Zlib", "e", "auc", None, None, None, 0.7, "P"))
    axes = figures.ours_against_published(cells, "auc").axes[0]
    drawn = {container.get_label(): container.lines[0].get_xydata().tolist() for container in axes.containers}
    assert drawn == {"PPL": [[0.6, 0.7]], "Zlib": [[0.5, 0.8], [0.65, 0.9]]}
    empty = figures.ours_against_published(cells[-1:], "auc")
    assert [text.get_text() for text in empty.axes[0].texts] == ["nothing was run"]


def test_a_column_beside_its_own_published_number_is_not_named_twice():
    own = Result("PPL", "P", "auc", None, None, None, 0.6, "P", why="not run")
    table = tables.results_table([own], "auc")
    assert table.columns.tolist() == [("P", "published"), ("P", "ours")]
    assert table.loc["PPL"].tolist() == ["0.600", "not run"]
