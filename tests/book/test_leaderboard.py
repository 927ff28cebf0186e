"""The board judges a detector and keeps the labels; trying often is seen and undone by the second half."""

import numpy as np
import pytest
from conftest import random_rows

import mialib
from mialib.detectors import DETECTORS
from mialib.metrics import auc_interval, compare_auc
from mialib.model_selection import stratified_split
from mialib.token_stats import TokenStats
from replication.studies.leaderboard import AHEAD, Board

N = 80
LABELS = np.repeat([1, 0], N // 2)


@pytest.fixture
def stats():
    return TokenStats.from_rows(random_rows(3, range(5, 5 + N)), provenance={})


@pytest.fixture
def board(stats):
    return Board(stats, LABELS)


def ppl(row):
    return row.log_prob.mean(dtype=np.float64)


def test_a_submission_is_judged_on_the_first_half_as_the_metrics_judge(stats, board):
    found = board.submit(ppl)
    first, _ = stratified_split(LABELS, 0.5)
    scores, baseline = (mialib.detect(name, stats)[first] for name in ("ppl", "min_k++"))
    assert found.auc == auc_interval(LABELS[first], scores)
    assert found.ahead == compare_auc(LABELS[first], scores, baseline)
    assert board.submit(DETECTORS["min_k++"].score_text).ahead.difference.estimate == 0, "level with itself"


def test_submissions_are_counted_and_each_has_its_row(board):
    assert [board.submit(ppl).n_submissions for _ in range(3)] == [1, 2, 3]
    assert board.submit(lambda row: -ppl(row), name="reversed").n_submissions == 4
    assert set(board.table().index) == {"ppl", "ppl (2)", "ppl (3)", "reversed"}
    aucs = board.table().iloc[:, 0].str[:5].astype(float)
    assert aucs.is_monotonic_decreasing


def test_the_second_half_is_shown_once_and_closes_the_board(stats, board):
    board.submit(ppl)
    with pytest.raises(ValueError, match="kept back"):
        board.table("second half")
    shown = board.reveal()
    _, second = stratified_split(LABELS, 0.5)
    assert shown.loc["ppl", "AUC, second half"] == str(
        auc_interval(LABELS[second], mialib.detect("ppl", stats)[second])
    )
    assert shown.filter(like=AHEAD).shape == (1, 1)
    with pytest.raises(ValueError, match="closed"):
        board.submit(ppl)


def test_labels_are_not_handed_out_and_nothing_is_changed(stats, board):
    board.submit(ppl)
    with pytest.raises(ValueError, match="reveal"):
        board.opened()
    assert sorted(board.stats.n_tokens) == list(range(5, 5 + N)) != board.stats.n_tokens.tolist()
    seen = []
    board.submit(lambda row: seen.append(len(row.log_prob)) or 0.0)
    assert sorted(seen) == list(range(5, 5 + N)) != seen, "in another order than the benchmark's, members first"
    before = stats.log_prob.copy()
    board.submit(lambda row: row.log_prob.sort() or float(row.log_prob[0]))
    assert np.array_equal(stats.log_prob, before)
