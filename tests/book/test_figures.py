"""The figures draw the numbers that they are given, and the tables print them."""

import re
from itertools import pairwise

import matplotlib
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import font_manager

matplotlib.use("Agg")

from mialib.metrics import Interval
from mialib.store import ROOT
from replication import figures
from replication.results import VERDICTS, Result

PANELS = {"": {"PPL": {1: Interval(0.6, 0.5, 0.65)}}}


def result(row, column, value, published=None):
    return Result(row, column, "auc", value, value - 0.05, value + 0.02, published, "P" if published else None)


def test_lines_pass_through_the_estimates_and_bars_end_at_the_interval():
    curves = {"PPL": {1: Interval(0.6, 0.5, 0.65), 2: Interval(0.7, 0.6, 0.75)}}
    axes = figures.lines_in_panels({"": curves}, xlabel="x").axes[0]
    container = axes.containers[0]
    np.testing.assert_allclose(container.lines[0].get_ydata(), [0.6, 0.7])
    ends = [segment[:, 1].tolist() for segment in container.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, [[0.5, 0.65], [0.6, 0.75]])


def test_of_an_odd_number_of_panels_the_first_is_as_wide_as_the_page():
    names = ["model-of-a-long-name on benchmark-1", "b", "c", "d", "e"]
    figure = figures.lines_in_panels({name: PANELS[""] for name in names}, xlabel="x")
    figure.draw_without_rendering()
    shown = sorted((axes for axes in figure.axes if axes.get_visible()), key=lambda axes: names.index(name_of(axes)))
    widths = [axes.get_position().width for axes in shown]
    assert widths[0] > 1.9 * max(widths[1:]) and "\n" in shown[0].get_title()
    assert [bool(axes.get_xlabel()) for axes in shown] == [False, False, False, True, True]
    assert [bool(axes.get_ylabel()) for axes in shown] == [True, True, False, True, False]
    tops = [axes.get_position().y1 for axes in shown]
    assert tops[0] > tops[1] == tops[2] > tops[3] == tops[4], "in their order"


def test_a_grey_line_looks_the_same_in_each_panel_and_like_no_other():
    [curve] = PANELS[""].values()
    figure = figures.lines_in_panels({"a": {"x": curve, "y": curve}, "b": {"y": curve, "z": curve}}, xlabel="x")
    (x, y), (again, z) = ([line.lines[0].get_marker() for line in axes.containers] for axes in figure.axes)
    assert y == again and len({x, y, z}) == 3


def name_of(axes):
    return axes.get_title().replace("\n", " ")


def test_models_of_one_benchmark_share_a_panel_beside_the_papers():
    found = [result("PPL", f"{model} on wiki", 0.6) for model in ("small", "large")]
    found += [result("PPL", "large on wiki", 0.7, published=0.65), result("PPL", "questions", 0.8)]
    figure = figures.ours_beside_published(found, "auc", xlabel="AUC", chance=0.5)
    titles = [name_of(axes) for axes in figure.axes if axes.get_visible()]
    assert titles == ["wiki, ours", "P, printed in the paper", "questions, ours"]
    assert [text.get_text() for text in figure.legends[0].get_texts()][1:3] == ["small", "large"]


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


def test_a_colour_means_one_thing_and_all_else_is_grey():
    of_detectors = {figures.line_style(label, 7)["color"] for label in figures.DETECTOR_STYLES}
    of_classes = {figures.line_style(name, 3)["color"] for name in ("members", "non-members, held out")}
    of_verdicts = {style.color for style in figures.VERDICT_STYLES.values()}
    assert len(of_detectors | of_classes | of_verdicts) == len(figures.DETECTOR_COLORS) + 2 + len(VERDICTS)
    for name, label in {"ppl": "Loss Attack", "min_k": "MinK", "ref": "Smaller Model"}.items():
        assert figures.line_style(label, 0)["color"] == figures.DETECTOR_COLORS[name]
    others = [figures.line_style(f"members − model {i}", i) for i in range(10)]
    assert all(float(style["color"]) < 1 for style in others) and len({style["marker"] for style in others}) == 10

    own = re.compile(r"\WC[01]\W|color=f?\W+C[\d{]|#[0-9a-fA-F]{6}\b|tab:")  # greys and black are free
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {name: own.findall(text) for name, text in pages.items() if own.search(text)} == {}


def test_lines_are_set_by_the_font_that_draws_them():
    with matplotlib.rc_context():
        figures.use_style()
        show = InteractiveShell.instance().display_formatter.formatters["image/svg+xml"]
        svg, again = (show(figures.lines_in_panels(PANELS, xlabel="texts")) for _ in range(2))
        measured = font_manager.get_font(font_manager.findfont(font_manager.FontProperties())).family_name
    assert set(re.findall(r"font(?:-family)?: [^;]*?'([^']*)'", svg)) == {measured} and ">texts</text>" in svg
    assert svg == again and float(re.search(r'width="([\d.]+)pt"', svg)[1]) <= 504, "of the page's 672 px"
    assert min(map(float, re.findall(r"font(?:-size)?: [^;]*?([\d.]+)px", svg))) >= 8


def test_labels_of_an_axis_do_not_touch():
    sizes = [25e3, 98e3, 100e3, 397e3, 890e3, 1.2e6, 4.7e6, 19e6]
    curves = {"PPL": {size: Interval(0.6, 0.5, 0.7) for size in sizes}}
    ticks = {size: figures.short_count(size) for size in sizes}
    figure = figures.lines_in_panels({"a": curves, "b": curves}, xlabel="parameters", log_x=True, ticks=ticks)
    names = ["one line", "a name\nof three\nlines", "another\nof three\nlines"]
    dots = figures.dots_in_panels({"": {"PPL": {name: Interval(0.6, 0.5, 0.7) for name in names}}})
    for drawn in (figure, dots):
        drawn.draw_without_rendering()
    height = dots.axes[0].get_yticklabels()[0].get_window_extent().height
    for axes in figure.axes:
        labels = [label for label in axes.get_xticklabels() if label.get_visible()]
        assert [label.get_text() for label in labels] == ["25k", "98k", "397k", "890k", "4.7M", "19M"]
        places = axes.transData.transform([label.get_unitless_position() for label in labels])[:, 0]
        assert {label.get_rotation() for label in labels} == {45} and np.diff(places).min() > height * 2**0.5
    boxes = [label.get_window_extent() for label in dots.axes[0].get_yticklabels()]
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(boxes))
    few = figures.lines_in_panels({"": {"PPL": dict.fromkeys((1, 2, 4), Interval(0.6, 0.5, 0.7))}}, xlabel="copies")
    assert {label.get_rotation() for label in few.axes[0].get_xticklabels()} == {0}


def texts_of(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_tile_a_claim_with_its_words_and_a_legend_that_counts():
    html = figures.verdict_tiles(
        {"SURP": [("A < B", "supported"), ("C", "not supported")], "X": [("D", "supported")]}
    ).data
    marks = {name: figures.VERDICT_STYLES[name].mark for name in VERDICTS}
    assert len(set(marks.values())) == len(VERDICTS) == len(figures.VERDICT_STYLES) == len(figures.MEANINGS)
    tiles = re.findall(r'aria-label="([^"]*)"[^>]*>(.)</span>([^<]*)<', html)
    in_rows = ["supported: A &lt; B", "not supported: C", "supported: D"]
    below = ["supported", "not supported", "supported", "not supported", "supported"]
    assert [label for label, *_ in tiles] == in_rows + below
    assert all(mark == marks[label.partition(":")[0]] for label, mark, _ in tiles), "none is told by colour alone"
    assert [said for *_, said in tiles[5:]] == [" A &lt; B", " C", " D"]
    assert "<b>supported</b> (2)" in html and "<b>not supported</b> (1)" in html and "<b>SURP</b>: 2 claims" in html


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
