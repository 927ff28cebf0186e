"""Token statistics, detectors, metrics and decisions agree with plain sums, and are never out of their range."""

import math
from fractions import Fraction

import numpy as np
import oracles
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mialib
from mialib.batches import token_batches
from mialib.calibration import decide, n_needed, p_values, set_p_value
from mialib.detectors import DETECTORS, lowest_indices, lowest_mean
from mialib.detectors.papers import SMALLEST_VARIANCE
from mialib.frequency import TokenFrequency
from mialib.metrics import (
    auc,
    auc_interval,
    aucs,
    compare_auc,
    non_members_needed,
    placements,
    threshold_at_fpr,
    tpr_at_fpr,
    tpr_at_fpr_interval,
)
from mialib.token_stats import StatsPart, TokenRow, TokenStats

VOCABULARY = 50
log_probs = st.floats(-1e4, 0, width=32) | st.sampled_from([-2.5, -1e4, -0.5])  # with ties
entropies = st.floats(0, 12, width=32) | st.sampled_from([0.0, 2.5])
variances = st.floats(0, 1e4, width=32) | st.sampled_from([0.0, 1.0])
percents = st.floats(0.01, 100) | st.sampled_from([20, 40, 100])


@st.composite
def rows(draw, max_tokens=8, least=1):
    """One text's statistics."""
    n = draw(st.integers(least, max_tokens))

    def column(values, dtype):
        same = st.builds(lambda value: [value] * n, values)
        return np.array(draw(same | st.lists(values, min_size=n, max_size=n)), dtype)

    return TokenRow(
        column(st.integers(0, VOCABULARY - 1), np.int32),
        column(log_probs, np.float32),
        column(entropies, np.float32),
        column(variances, np.float32),
        column(log_probs, np.float32),
    )


tables = st.lists(rows(), min_size=1, max_size=3).map(lambda of: TokenStats.from_rows(of, provenance={}))


PASSES = ("lowercase", "reference", "tempered", "after_non_members", "after_members", "after_others")


def given_besides(stats):
    """What detectors need besides a table, made of it."""
    n = len(stats)
    return {
        "texts": [f"text number {i}" for i in range(n)],
        **dict.fromkeys(PASSES, stats),
        "frequency": TokenFrequency(np.arange(VOCABULARY), "made"),
        "neighbors": np.full((n, 2), -3.0),
    }


def agree(found, expected, rtol=1e-9):
    """Within what a sum in another order differs by."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-9)


@given(tables, st.data())
def test_every_score_is_finite_and_goes_with_its_text(stats, data):
    besides, order = given_besides(stats), data.draw(st.permutations(range(len(stats))))
    moved = {
        "texts": [besides["texts"][i] for i in order],
        **dict.fromkeys(PASSES, stats.take(order)),
        "frequency": besides["frequency"],
        "neighbors": besides["neighbors"],
    }
    is_sure = any(ppl == 0 for ppl in mialib.detect("ppl", stats))
    for name in DETECTORS:
        if is_sure and name in ("lowercase", "ref", "recall", "con_recall"):  # a ratio to no surprise at all
            with np.errstate(all="ignore"), pytest.raises(ValueError, match=name):
                mialib.detect(name, stats, **besides)
            continue
        scores = mialib.detect(name, stats, **besides)
        assert scores.shape == (len(stats),) and np.isfinite(scores).all()
        np.testing.assert_array_equal(mialib.detect(name, stats.take(order), **moved), scores[list(order)])


@given(tables, percents, percents)
def test_min_k_is_the_mean_of_the_lowest_and_rises_with_k(stats, k, other_k):
    of = [[column.tolist() for column in row[1:4]] for row in stats]
    agree(mialib.detect("min_k", stats, k=k), [oracles.min_k(p, k) for p, _, _ in of])
    z = [oracles.min_k_plus_plus(p, h, np.maximum(v, SMALLEST_VARIANCE), k) for p, h, v in of]
    agree(mialib.detect("min_k++", stats, k=k), z, rtol=1e-6)  # sigma is float32
    agree(mialib.detect("min_k", stats, k=100), mialib.detect("ppl", stats))
    low, high = (mialib.detect("min_k", stats, k=of) for of in sorted([k, other_k]))
    assert (low <= high + 1e-9 * np.abs(high)).all()
    for row in stats:
        chosen = lowest_indices(row.log_prob, k)
        agree(row.log_prob[chosen].mean(dtype=np.float64), lowest_mean(row.log_prob, k))
        assert len(set(chosen.tolist())) == len(chosen) == max(1, int(len(row.log_prob) * k / 100))


OPTIONS = [(name, option) for name, of in DETECTORS.items() for option in of.hyperparameters]
odd = st.sampled_from(["10", "0.5", "1e400", "nan", "", "no", "yes", "ten", [10], [10, 20], (), None, {}, b"1", 1j])
odd |= st.sampled_from([math.nan, math.inf, -math.inf, 10**400, -1, 0, 101, True, np.array([10]), np.array([])])


@given(tables, st.sampled_from(OPTIONS), odd | st.floats() | st.text(max_size=5))
@example(TokenStats.from_rows([TokenRow(*np.ones((5, 2)))], provenance={}), ("min_k", "k"), [10, 20])
@example(TokenStats.from_rows([TokenRow(*np.ones((5, 2)))], provenance={}), ("surp", "entropy_threshold"), math.nan)
@example(TokenStats.from_rows([TokenRow(*np.ones((5, 2)))], provenance={}), ("dc_pdd", "lup"), "no")
def test_a_hyperparameter_is_a_number_or_an_error_that_names_it_and_its_value(stats, of, value):
    name, option = of
    try:
        with np.errstate(all="ignore"):
            scores = mialib.detect(name, stats, **given_besides(stats), **{option: value})
    except ValueError as error:
        assert option in str(error) or "gives" in str(error), error  # a score that is not finite names its text
        return
    assert isinstance(value, int | float) and np.isfinite(scores).all()
    assert value in (True, False) if option in ("lup", "sfo") else not math.isnan(value)


def equal(one, other):
    """Two tables hold the same numbers."""
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.n_cut, other.n_cut)


with_empty = st.lists(rows(least=0), max_size=5).map(
    lambda of: TokenStats.from_rows(of, n_cut=range(len(of)), provenance={"model": "m", "text": "\u2028 é"})
)


@given(with_empty, st.data())
def test_taken_joined_and_cut_tables_hold_the_same_rows(tmp_path, stats, data):
    order = data.draw(st.permutations(range(len(stats))))
    taken = stats.take(order)
    equal(taken.take(np.argsort(order).astype(int)), stats)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stats)), max_size=3)))
    bounds = list(zip([0, *cuts], [*cuts, len(stats)], strict=True))
    parts = [StatsPart(np.array(order[a:b], np.int64), taken.take(range(a, b))) for a, b in bounds]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.parquet")
    parts = [StatsPart.load(tmp_path / f"{i}.parquet") for i in range(len(parts))]
    equal(TokenStats.joined(parts, provenance={}), stats)
    equal(TokenStats.joined([*parts, parts[0]], provenance={}), stats)
    whole = [i for i, n in enumerate(stats.n_tokens) if n]
    kept = stats.take(whole)
    lengths = [data.draw(st.integers(1, int(n))) for n in kept.n_tokens]
    for row, prefix, n in zip(kept, kept.prefix(lengths), lengths, strict=True):
        equal(
            TokenStats.from_rows([prefix], provenance={}),
            TokenStats.from_rows([TokenRow(*(c[:n] for c in row))], provenance={}),
        )


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 100))
def test_every_text_is_in_one_batch_within_the_budget_unless_alone(lengths, budget):
    batches = list(token_batches([[0] * n for n in lengths], lambda: budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
        assert all(lengths[i] >= 0.75 * longest for i in batch)


scores_of = st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float)  # the latter tie


@st.composite
def judged(draw, least=1):
    """Labels of both classes and scores."""
    labels = [1] * draw(st.integers(least, 12)) + [0] * draw(st.integers(least, 12))
    return np.array(draw(st.permutations(labels))), np.array([draw(scores_of) for _ in labels])


@given(judged())
def test_the_auc_counts_pairs(of):
    labels, scores = of
    assert auc(labels, scores) == pytest.approx(oracles.auc(scores[labels == 1], scores[labels == 0]), abs=1e-12)
    assert auc(labels, -scores) == pytest.approx(1 - auc(labels, scores), abs=1e-12)
    assert aucs(labels, [scores, -scores]) == pytest.approx([auc(labels, scores), auc(labels, -scores)], abs=1e-12)
    ranks = np.searchsorted(np.unique(scores), scores)
    for transformed in (ranks, ranks**3 - 7, np.exp(ranks / 8.0)):
        assert auc(labels, transformed) == auc(labels, scores)
    above, below = placements(scores[labels == 1], scores[labels == 0])
    assert above.mean() == pytest.approx(below.mean(), abs=1e-12)


@given(judged(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_an_aucs_interval_holds_it_and_widens_with_the_level(of, level):
    interval, wider = auc_interval(*of, level), auc_interval(*of, (1 + level) / 2)
    assert 0 <= wider.low <= interval.low + 1e-9 and interval.high <= wider.high + 1e-9 and wider.high <= 1
    assert interval.low <= interval.estimate <= interval.high
    labels, scores = of
    mirrored = auc_interval(labels, -scores, level)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((interval.low, interval.high), abs=1e-9)


@given(judged(least=2), st.data())
def test_a_comparison_holds_its_difference_and_changes_its_sign(of, data):
    labels, scores = of
    other = np.array([data.draw(scores_of) for _ in labels])
    there, back = compare_auc(labels, scores, other), compare_auc(labels, other, scores)
    assert there.difference.estimate == pytest.approx(auc(labels, scores) - auc(labels, other), abs=1e-12)
    assert there.difference.low <= there.difference.estimate <= there.difference.high
    assert 0 <= there.p_value <= 1
    ends = (-back.difference.high, -back.difference.low, back.p_value)
    assert ends == pytest.approx((there.difference.low, there.difference.high, there.p_value), abs=1e-9)
    assert compare_auc(labels, scores, scores).p_value == 1


@given(judged(), st.integers(0, 100))
def test_a_tpr_is_the_largest_of_thresholds_with_so_few_false_positives(of, percent):
    labels, scores = of
    members, others = scores[labels == 1], scores[labels == 0]
    fpr, allowed = percent / 100, Fraction(percent, 100) * len(others)
    possible = [np.mean(members > t) for t in (-np.inf, *scores) if np.sum(others > t) <= allowed]
    assert tpr_at_fpr(labels, scores, fpr) == pytest.approx(max(possible), abs=1e-12)
    assert np.sum(others > threshold_at_fpr(others, fpr)) <= allowed
    assert tpr_at_fpr(labels, scores, fpr) <= tpr_at_fpr(labels, scores, min(1, fpr + 0.1))
    if 0 < fpr < 1 and len(others) >= non_members_needed(fpr):
        interval = tpr_at_fpr_interval(labels, scores, fpr)
        assert 0 <= interval.low <= interval.estimate <= interval.high <= 1


lists_of_scores = st.lists(scores_of, min_size=1, max_size=30)


@given(lists_of_scores, lists_of_scores)
def test_p_values_count_as_high_non_members_and_fall_with_the_score(scores, known):
    p = p_values(scores, known)
    assert p.tolist() == [(1 + sum(k >= s for k in known)) / (len(known) + 1) for s in scores]
    assert ((p > 0) & (p <= 1)).all()
    in_order = p[np.argsort(scores)]
    assert (np.diff(in_order) <= 0).all()
    of_known = p_values(known, known)  # each is as high as itself
    assert all(np.sum(of_known <= q) <= q * (len(known) + 1) for q in of_known)


@given(st.lists(scores_of, min_size=1, max_size=60), lists_of_scores, st.integers(1, 99), st.booleans())
def test_a_threshold_keeps_its_fpr_and_is_the_p_values(known, scores, percent, is_confident):
    fpr, n = percent / 100, len(known)
    needed = n_needed(fpr, is_confident=is_confident)
    if n < needed:
        with pytest.raises(ValueError, match=f"{needed} .*{n}"):
            decide(known, fpr, is_confident=is_confident)
        return
    decision = decide(known, fpr, is_confident=is_confident)
    assert decision.n_above == sum(k > decision.threshold for k in known) <= decision.n_allowed
    assert Fraction(decision.n_allowed + 1, n + 1) <= Fraction(percent, 100)
    assert 0 <= decision.fpr.low <= decision.fpr.estimate <= decision.fpr.high <= 1
    if is_confident:
        assert decision.fpr.high <= fpr + 1e-9 or decision.n_allowed == 0
    else:
        called = np.array(scores) > decision.threshold
        exact = [Fraction(1 + sum(k >= s for k in known), n + 1) <= Fraction(percent, 100) for s in scores]
        assert called.tolist() == exact


@given(lists_of_scores, lists_of_scores, st.floats(0, 10))
def test_a_sets_p_value_falls_when_its_scores_rise(scores, known, more):
    p = set_p_value(scores, known)
    assert 0 < p <= 1
    assert set_p_value(np.array(scores) + more, known) <= p
    assert set_p_value(scores[:1], known) == pytest.approx(p_values(scores[:1], known)[0])
