"""Two detectors over several training seeds: differences and intervals by hand, and their coverage."""

import numpy as np
import pytest
from scipy.stats import t

from mialib.metrics import Interval, auc, compare_auc, compare_tpr_at_fpr, tpr_at_fpr
from mialib.model_selection import folds
from replication.claims.over_seeds import compare_auc_over_seeds, compare_tpr_at_fpr_over_seeds, compared

LABELS = np.repeat([1, 0], 100)


def test_one_seed_is_the_plain_comparison_and_equal_scores_are_equal_unjudged_or_not():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=200) + LABELS, rng.normal(size=200)
    assert compare_auc_over_seeds(LABELS, [a], [b]) == compare_auc(LABELS, a, b)
    assert compare_tpr_at_fpr_over_seeds(LABELS, [a], [b], 0.1, 7) == compare_tpr_at_fpr(LABELS, a, b, 0.1, 7)
    rows = np.tile(a, (2, 1))
    rows[0, 0] = rows[1, 1] = np.nan
    for compare in (compare_auc_over_seeds, compare_tpr_at_fpr_over_seeds):
        itself = compare(LABELS, [rows], [rows]).difference
        assert (itself.low, itself.high) == (0, 0)
    with pytest.raises(ValueError, match="2 and 1 seeds"):
        compare_auc_over_seeds([0, 1], [[1, 2]] * 2, [[1, 2]])


def test_a_differences_interval_has_satterthwaites_degrees_of_freedom():
    found = compared(0.1, 0.0, [(0.04, 5)], (10, 10), 0.9)  # the seeds' part alone: t with 4 degrees of freedom
    half = t.ppf(0.95, 4) * 0.2
    assert found.difference == Interval(0.1, pytest.approx(0.1 - half), pytest.approx(0.1 + half), 0.9)
    assert found.p_value == pytest.approx(2 * t.sf(0.5, 4))
    found = compared(0.1, 0.01, [(0.04, 5), (0.02, 3)], (10, 10), 0.95)
    freedom = 0.07**2 / (0.04**2 / 4 + 0.02**2 / 2)
    assert found.difference.high == pytest.approx(0.1 + t.ppf(0.975, freedom) * np.sqrt(0.07))


def test_the_mean_difference_of_aucs_over_seeds_by_hand():
    rng = np.random.default_rng(5)
    labels = np.repeat([1, 0], [20, 30])
    a, b = (rng.normal(size=(3, 50)) + shift * labels for shift in (1.0, 0.5))

    def part(scores, *, of_member):
        """DeLong's placements by counting pairs, of each text of a class."""
        wins = (scores[labels == 1][:, None] > scores[labels == 0]).astype(float)
        return wins.mean(axis=1) if of_member else wins.mean(axis=0)

    differences = [auc(labels, x) - auc(labels, y) for x, y in zip(a, b, strict=True)]
    variance = np.var(differences, ddof=1) / 3
    of_seeds = variance
    for of_member in (True, False):
        of_texts = np.mean(
            [part(x, of_member=of_member) - part(y, of_member=of_member) for x, y in zip(a, b, strict=True)], axis=0
        )
        variance += np.var(of_texts, ddof=1) / len(of_texts)
    found = compare_auc_over_seeds(labels, a, b)
    half = t.ppf(0.975, variance**2 / (of_seeds**2 / 2)) * np.sqrt(variance)
    assert found.difference.estimate == pytest.approx(np.mean(differences))
    assert found.difference.low == pytest.approx(np.mean(differences) - half)


@pytest.mark.parametrize(("value", "message"), [(np.inf, "number 4 is inf"), (np.nan, "text 4 .*2 folds")])
def test_a_broken_score_in_a_fold_is_an_error_that_names_the_text(value, message):
    labels, scores = np.tile([1, 0], 5), np.arange(20.0).reshape(2, 10)
    scores[0, :2], scores[1, 2:6] = np.nan, np.nan
    compare_auc_over_seeds(labels, [scores], [np.where(np.isnan(scores), np.nan, 0)])
    scores[0, 4] = value
    with pytest.raises(ValueError, match=message):
        compare_auc_over_seeds(labels, [scores], [np.zeros((2, 10))])


def test_the_mean_difference_of_tprs_over_seeds_by_hand():
    # Each member is above all non-members or below. In a resample of n texts of which a share p counts, the mean has
    # variance p (1 - p) / n; here the mean over seeds counts a member 0, 1/2 or 1.
    labels = np.repeat([1, 0], [40, 100])
    members = np.array([np.repeat([9.0, -9], [30, 10]), np.repeat([9.0, -9], [20, 20])])
    scores = [np.concatenate([of, np.zeros(100)]) for of in members]
    found = compare_tpr_at_fpr_over_seeds(labels, scores, [np.zeros(140)] * 2)
    assert found.difference.estimate == pytest.approx((0.75 + 0.5) / 2)
    of_texts = np.repeat([1, 0.5, 0], [20, 10, 10]).var() / 40
    between = np.var([0.75, 0.5], ddof=1) / 2
    freedom = (of_texts + between) ** 2 / between**2
    half = t.ppf(0.975, freedom) * np.sqrt(of_texts + between)
    # The bootstrap's 2000 resamples know of_texts to 3%, which also moves the degrees of freedom.
    assert found.difference.high - found.difference.estimate == pytest.approx(half, rel=0.08)
    one = compare_tpr_at_fpr_over_seeds(labels, scores[:1], [np.zeros(140)]).difference
    assert one.high - one.low == pytest.approx(2 * 1.96 * np.sqrt(0.75 * 0.25 / 40), rel=0.05)


def test_a_folds_own_texts_count_in_none_of_its_tprs():
    rng, labels = np.random.default_rng(0), np.tile([1, 0], 100)
    whole, other = rng.normal(size=200) + labels, rng.normal(size=200)
    scores = np.tile(whole, (5, 1))
    fold = np.arange(200) // 2 % 5
    scores[fold, np.arange(200)] = np.nan
    found = compare_tpr_at_fpr_over_seeds(labels, [scores], [np.where(np.isnan(scores), np.nan, other)])
    kept = [fold != f for f in range(5)]
    expected = [tpr_at_fpr(labels[k], whole[k]) - tpr_at_fpr(labels[k], other[k]) for k in kept]
    assert found.difference.estimate == pytest.approx(np.mean(expected))
    scores[0, 7] = scores[1, 7] = np.nan
    with pytest.raises(ValueError, match="text 7 is not judged in"):
        compare_tpr_at_fpr_over_seeds(labels, [scores], [scores])


def test_the_fifths_that_chose_differently_widen_the_interval():
    rng = np.random.default_rng(0)
    base, other = np.full((2, 5, 200), np.nan)
    for f, (_, test_idx) in enumerate(folds(LABELS)):
        base[f, test_idx], other[f, test_idx] = rng.normal(size=(2, 200))[:, test_idx]
    intervals = [
        compare_auc_over_seeds(LABELS, [base + shift * LABELS], [other]).difference
        for shift in (1, np.linspace(0, 2, 5)[:, None])
    ]
    alike, apart = (of.high - of.low for of in intervals)
    assert apart > 1.5 * alike
