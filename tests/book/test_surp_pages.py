"""SURP's pages: what their own functions compute, by hand."""

import matplotlib
import numpy as np
import pytest
from conftest import made_inputs, made_row
from page_code import functions_of

matplotlib.use("Agg")

from mialib.benchmarks import Benchmark
from mialib.detectors import detect

OURS, RANK, RANGE, EMPTY = "ours", "by rank", "by range", "empty scores −100"


def figure_4(thresholds, ks):
    """The functions of the page with this grid."""
    return functions_of("surp_figure_4", thresholds=np.asarray(thresholds), ks=np.asarray(ks))


def readings_at(inputs, entropy_threshold, k):
    """Each reading's scores at one cell, and how many texts have no surprising token."""
    found = figure_4([entropy_threshold], [k])["readings"](inputs.stats, [entropy_threshold], [k])
    return {name: (score[0, 0], int((n[0, 0] == 0).sum())) for name, (score, n) in found.items()}


def test_the_readings_of_a_text_by_hand_and_at_a_rounded_entropy():
    inputs = made_inputs([([-5, -1], [0.7, 0.7]), ([-5, -1], [0.6, 0.7])], [1, 0])  # 0.7 is not a float32
    expected = detect("surp", inputs.stats, entropy_threshold=0.7, k=40)
    np.testing.assert_allclose(readings_at(inputs, 0.7, 40)[OURS][0], expected)
    inputs = made_inputs([([-3, -4, -3, -1], [1, 9, 1, 1]), ([-2, -2], [1, 1])], [1, 0])
    found = readings_at(inputs, 2.5, 50)
    # Of the low ones only those of little entropy: none, the first -3, both -3. By rank the first -2 is low too.
    expected = {OURS: ([0, 0], 2), RANK: ([-3, -2], 0), RANGE: ([-3, 0], 1), EMPTY: ([-100, -100], 2)}
    for name, (scores, n_without) in expected.items():
        assert found[name][0].tolist() == scores and found[name][1] == n_without, name


def test_each_reading_is_compared_at_its_own_cell_by_hand():
    # Ours and by rank take -8 and the second at k = 50 (members higher), three at k = 75 (members lower).
    # By range takes -8 alone at k = 50 (all alike), and what is below -2 at k = 75 (three of a member's, higher).
    rows = [([-8, -3, -2.5, 0], [1] * 4), ([-8, -3.5, -1, 0], [1] * 4)] * 10
    found = figure_4([2.5], [75, 50])["compare_readings"](made_inputs(rows, [1, 0] * 10))
    found = {tuple(name.rsplit(": ", 1)): row for name, row in found.items()}  # (cell, AUC, change, texts without)
    own, papers = dict.fromkeys(where for where, _ in found)
    for name, k in {OURS: 50, RANK: 50, RANGE: 75, EMPTY: 50}.items():
        cell, interval, change, n_without = found[own, name]
        assert cell["k"] == k and interval.estimate == 1 and n_without == 0
        assert change is None if name == OURS else change.difference.estimate == 0
    # At the paper's cell, k = 40, by range and by rank take -8 alone.
    for name, expected in {RANGE: -0.5, RANK: -0.5, EMPTY: 0}.items():
        cell, _, change, _ = found[papers, name]
        assert cell == {"entropy_threshold": 2.5, "k": 40} and change.difference.estimate == expected


CLOUD = [([-1, -5, -2, -9], [0.5, 1.0, 3.0, 3.5]), ([-3, -4], [0.1, 0.2]), ([-6, -7, -8], [5, 1.5, 1.25])]


def test_the_surprising_tokens_of_classes_by_hand():
    def compare(inputs, k):
        return functions_of("surp_figure_2", entropy_threshold=2.5, k=k)["compare_classes"](inputs)

    found = compare(made_inputs(CLOUD, [1, 0, 0]), 60.0)
    assert found["seen"].estimate == -5
    assert found["unseen"].estimate == pytest.approx((-4 - 7 - 8) / 3), "of tokens, not of texts"
    assert found["seen − unseen"].estimate == pytest.approx(-5 + 19 / 3)
    assert (found["seen"].low, found["seen"].high) == (-5, -5), "one text, which is always drawn"
    assert (found["unseen"].low, found["unseen"].high) == (-7.5, -4), "both texts, or one of them twice"
    rows = [made_row([-5, -1], [1, 1]), made_row([-5, -1], [9, 9])]
    assert compare(made_inputs(rows, [1, 0]), 40.0) == {"seen": None, "unseen": None, "seen − unseen": None}


def test_tails_overlaps_and_domains_are_kept_as_they_should():
    texts = tuple(f"One  two three,\nfour five six seven eight nine ten eleven {i}" for i in range(4))
    benchmark = Benchmark("made", texts, [1, 0, 1, 0], "r")
    at = functions_of("surp_table_2")["segments_at"]
    assert at(benchmark, 3, "head").document is None
    assert at(benchmark, 3, "tail").document.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    kept = functions_of("surp_table_3", max_overlap=0.4)["is_kept"](
        np.array([1, 0, 1, 0]), np.array([0.9, 0.3, 0, 0.5])
    )
    assert kept.tolist() == [True, True, True, False], "a member however much it overlaps"
    domains, labels = ["a"] * 10 + ["b"] * 8 + ["c"] * 4, np.array([1, 0] * 5 + [1] * 6 + [0, 0] + [1, 0, 1, 0])
    large, small = functions_of("surp_table_3")["split_domains"](labels, domains, at_least=3)
    assert {domain: texts.tolist() for domain, texts in large.items()} == {"a": list(range(10))}
    assert small == {"b": (6, 2), "c": (2, 2)}
