"""Intervals of the pages: at another level, of means, of documents of several texts, of rank correlations."""

import numpy as np
import oracles
import pytest
from scipy.stats import spearmanr

from mialib import auc, auc_interval, bootstrap
from mialib.bootstrap import at_level, document_auc_interval
from mialib.metrics import Interval
from replication.results import mean_interval, rank_correlation


def overlapping():
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], 60)
    return labels, rng.normal(size=120) + 0.7 * labels


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99, 1 - 0.05 / 7])
def test_an_interval_at_another_level_is_the_one_computed_at_it(level):
    labels, scores = overlapping()
    expected, found = auc_interval(labels, scores, level), at_level(auc_interval(labels, scores), level)
    assert (found.estimate, found.level) == (expected.estimate, level)
    # Normal quantiles in place of t's: half of the interval is 0.08 wide, and each end is within 5% of that.
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.005)


def test_an_intervals_halves_are_scaled_apart_and_a_mean_has_the_normal_one():
    found = at_level(Interval(0.9, 0.7, 1.0), 0.99)
    scale = 2.5758293 / 1.9599640
    assert (found.low, found.high) == (pytest.approx(0.9 - 0.2 * scale), pytest.approx(0.9 + 0.1 * scale))
    assert (at_level(found, 0.95).low, at_level(found, 0.95).high) == pytest.approx((0.7, 1.0)), "and back"
    with pytest.raises(ValueError, match="95"):
        at_level(Interval(0.9, 0.7, 1.0), 95)
    values = np.random.default_rng(0).exponential(size=400)
    found = mean_interval(values)
    assert found.estimate == pytest.approx(values.mean())
    half = 1.96 * values.std() / np.sqrt(400)
    np.testing.assert_allclose([found.low, found.high], [values.mean() - half, values.mean() + half], atol=0.02)


def test_the_snippet_interval_is_that_of_a_naive_loop(monkeypatch):
    """Documents of 1 to 4 snippets in no order: draw documents, count all pairs of their snippets."""
    document = np.array([4, 0, 0, 2, 1, 3, 0, 1, 4, 3, 5, 3, 3, 6])
    labels = np.isin(document, [0, 3, 5]).astype(int)
    scores = np.array([3.0, 1, 2, 2, 2, 1, 5, 0, 4, 2, 2, 3, 6, 2])
    rng = np.random.default_rng(7)
    times = {n: rng.multinomial(n, np.full(n, 1 / n), size=101).astype(float) for n in (3, 4)}
    monkeypatch.setattr(bootstrap, "resamples", lambda n, seed: times[n])
    sides = [[scores[document == i] for i in numbers] for numbers in ([0, 3, 5], [1, 2, 4, 6])]
    resampled = []
    for of_members, of_non_members in zip(times[3], times[4], strict=True):
        members, non_members = (
            [score for own, n in zip(side, drawn, strict=True) for _ in range(int(n)) for score in own]
            for side, drawn in zip(sides, (of_members, of_non_members), strict=True)
        )
        resampled.append(oracles.auc(members, non_members))
    found = document_auc_interval(labels, scores, document)
    assert found.estimate == pytest.approx(auc(labels, scores))
    np.testing.assert_allclose([found.low, found.high], np.quantile(resampled, [0.025, 0.975]))


def test_the_snippet_interval_draws_the_two_classes_apart_and_is_seeded():
    document, labels = np.arange(40), np.tile([1, 0], 20)
    scores = np.repeat(np.random.default_rng(0).normal(size=20), 2)  # each non-member like one member
    found = document_auc_interval(labels, scores, document)
    assert found.low < 0.4 and found.high > 0.6, "drawn together the two would always tie"
    assert document_auc_interval(labels, scores, document) == found


def test_separated_documents_are_no_certainty_and_two_of_a_class_are_needed():
    document = np.repeat(np.arange(6), 3)
    labels, scores = np.repeat([1, 0], 9), np.repeat([2.0, 1.0], 9)
    interval = document_auc_interval(labels, scores, document)
    assert (interval.low, interval.high) == (pytest.approx(0.025 ** (1 / 3)), 1)
    with pytest.raises(ValueError, match=r"1 .*members.* 3 "):
        document_auc_interval(labels[6:], scores[6:], document[6:])
    assert mean_interval([0.0] * 50).high == pytest.approx(1 - 0.025 ** (1 / 50))
    assert mean_interval([3.0] * 50).high == 3


def test_rank_correlation_is_spearmans_with_ties_and_covers_the_truth():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, size=200)
    y = x + rng.normal(scale=2, size=200)
    found = rank_correlation(x, y)
    assert found.estimate == pytest.approx(spearmanr(x, y).statistic)
    assert found.low < found.estimate < found.high
    fisher = np.tanh(np.arctanh(found.estimate) + np.array([-1.96, 1.96]) / np.sqrt(197))
    np.testing.assert_allclose([found.low, found.high], fisher, atol=0.03)
    assert rank_correlation(x, -y).estimate == pytest.approx(-found.estimate)
    for other in (np.ones(200), np.arange(5)):
        with pytest.raises(ValueError, match="all vary"):
            rank_correlation(x, other)
