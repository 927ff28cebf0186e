"""The figures draw the numbers that they are given, and the tables print them."""

import matplotlib
import numpy as np

matplotlib.use("Agg")

from mialib.metrics import Interval
from replication import figures
from replication.results import Result


def result(row, column, value, published=None):
    return Result(row, column, "auc", value, value - 0.05, value + 0.02, published, "P" if published else None)


def test_lines_pass_through_the_estimates_and_bars_end_at_the_interval():
    curves = {"PPL": {1: Interval(0.6, 0.5, 0.65), 2: Interval(0.7, 0.6, 0.75)}}
    axes = figures.lines_in_panels({"": curves}, xlabel="x").axes[0]
    container = axes.containers[0]
    np.testing.assert_allclose(container.lines[0].get_ydata(), [0.6, 0.7])
    ends = [segment[:, 1].tolist() for segment in container.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, [[0.5, 0.65], [0.6, 0.75]])


def test_heatmaps_stand_as_in_the_paper_and_frame_the_best_cell_and_the_papers_where_the_grid_has_it():
    grid = np.array([[0.5, 0.6], [0.9, np.nan]])  # (thresholds, ks)
    axes = {"thresholds": [0.5, 2.5], "ks": [10, 40], "fmt": ".2f", "label": "AUC"}
    figure = figures.heatmaps({"a": grid, "b": grid}, **axes, paper_cell=(40, 2.5))
    for panel in figure.axes[:2]:
        assert [digits.get_text() for digits in panel.texts] == [".60", ".50", ".90"], "none where there is no number"
        assert [tick.get_text() for tick in panel.get_yticklabels()] == ["40", "10"], "the highest k is the top row"
        cells = [tuple(np.floor(patch.get_xy())) for patch in panel.patches]
        assert set(cells) == {(1, 0), (1, 1)}
    assert len(figure.legends[0].get_texts()) == 2
    assert len(figures.heatmaps({"a": grid}, **axes, paper_cell=(30, 2.5)).axes[0].patches) == 1


def texts_of(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_bars_begin_at_chance_with_their_names_and_numbers_beside_them():
    bars = {"Told": Interval(0.99, 0.98, 1), "Other": Interval(0.6, 0.6, 0.6)}
    figure = figures.bars_from_chance({"A": bars, "B": {"Told": Interval(0.49, 0.45, 0.53)}}, told_apart="Told")
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in figure.axes[0].patches]
    np.testing.assert_allclose(ends, [(0.5, 0.99), (0.5, 0.6), (0.5, 0.49)])
    colors = [bar.get_facecolor() for bar in figure.axes[0].patches]
    assert colors[0] == colors[2] != colors[1] and not figure.legends
    assert texts_of(figure) == ["A", "Told", "0.990", "Other", "0.600", "B", "Told", "0.490"]


def test_ours_lies_over_the_published_number_and_what_was_not_run_is_left_out():
    cells = [result("PPL", "c", 0.7, 0.6), result("Zlib", "c", 0.8, 0.5), result("Zlib", "d", 0.9, 0.65)]
    cells.append(Result("Zlib", "e", "auc", None, None, None, 0.7, "P"))
    axes = figures.ours_against_published(cells, "auc").axes[0]
    drawn = {container.get_label(): container.lines[0].get_xydata().tolist() for container in axes.containers}
    assert drawn == {"PPL": [[0.6, 0.7]], "Zlib": [[0.5, 0.8], [0.65, 0.9]]}
    empty = figures.ours_against_published(cells[-1:], "auc")
    assert [text.get_text() for text in empty.axes[0].texts] == ["nothing was run"]
