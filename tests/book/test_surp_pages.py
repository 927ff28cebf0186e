"""SURP's pages: what their own functions compute, by hand."""

import matplotlib
import numpy as np
import pytest
from conftest import made_inputs, made_row
from page_code import functions_of

matplotlib.use("Agg")

from mialib.benchmarks import Benchmark
from mialib.detectors import detect
from replication.studies import sensitivity


def test_the_readings_of_a_text_by_hand():
    rows = [made_row([-3, -4, -3, -1], [1, 9, 1, 1]), made_row([-2, -2], [1, 1])]

    def scores(**how):
        return [sensitivity.surp(row, k=50, **how) for row in rows]

    # Of the low ones only those of little entropy: none, both -3.
    assert scores() == [0, 0] and scores(empty=-100.0) == [-100, -100]
    assert scores(of_range=True) == [-3, 0]


def test_the_pages_grid_is_the_librarys_at_a_rounded_entropy():
    inputs = made_inputs([([-5, -1], [0.7, 0.7]), ([-5, -1], [0.6, 0.7])], [1, 0])  # 0.7 is not a float32
    score = functions_of("surp_figure_4")["surp_grid"](inputs.stats, np.array([0.7]), np.array([40]))
    np.testing.assert_allclose(score[0, 0], detect("surp", inputs.stats, entropy_threshold=0.7, k=40))


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
    assert benchmark.snippets(3, "head").document is None
    assert benchmark.snippets(3, "tail").document.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    kept = functions_of("surp_table_3", max_overlap=0.4)["is_kept"](
        np.array([1, 0, 1, 0]), np.array([0.9, 0.3, 0, 0.5])
    )
    assert kept.tolist() == [True, True, True, False], "a member however much it overlaps"
    domains, labels = ["a"] * 10 + ["b"] * 8 + ["c"] * 4, np.array([1, 0] * 5 + [1] * 6 + [0, 0] + [1, 0, 1, 0])
    large, small = functions_of("surp_table_3")["split_domains"](labels, domains, at_least=3)
    assert {domain: texts.tolist() for domain, texts in large.items()} == {"a": list(range(10))}
    assert small == {"b": (6, 2), "c": (2, 2)}
