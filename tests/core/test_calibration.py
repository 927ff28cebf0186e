"""Decisions from known non-members: p-values, thresholds with what is known of their FPR, p-values of sets."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.stats import beta, chi2, mannwhitneyu, norm

from mialib import calibration as d


def test_p_values_by_hand_and_uniform():
    known = [1.0, 2.0, 2.0, 4.0]
    np.testing.assert_allclose(d.p_values([5.0, 4.0, 2.0, 1.5, 0.0], known), [1 / 5, 2 / 5, 4 / 5, 4 / 5, 1])
    rng = np.random.default_rng(0)
    p = np.concatenate([d.p_values(rng.normal(size=3), rng.normal(size=19)) for _ in range(4000)])
    found = np.bincount(np.round(20 * p).astype(int), minlength=21)
    assert found[0] == 0 and chi2.sf(((found[1:] - 600) ** 2 / 600).sum(), 19) > 0.001
    # Ties only make them larger.
    tied = np.concatenate([d.p_values(rng.integers(0, 5, 3), rng.integers(0, 5, 19)) for _ in range(2000)])
    assert all((tied <= i / 20).mean() <= i / 20 + 0.01 for i in range(1, 20))


@pytest.mark.parametrize("digits", [1, 9])  # with and without ties
def test_a_score_lies_above_the_threshold_exactly_where_its_p_value_is_small_enough(digits):
    rng = np.random.default_rng(0)
    for n in (19, 99, 100, 250):
        known, scores = rng.normal(size=n).round(digits), rng.normal(size=500).round(digits)
        for fpr in (0.05, 0.07, 0.1, 0.29, 0.5, 0.99):
            made = d.decide(known, fpr)
            np.testing.assert_array_equal(scores > made.threshold, d.p_values(scores, known) <= fpr)
            assert made.n_above == (known > made.threshold).sum() <= made.n_allowed


def test_a_threshold_by_hand():
    """Of 0 .. 99 at 5%: floor(0.05 * 101) - 1 = 4 may lie above, so it is 95; 4 of 100 is [0.011, 0.099]."""
    decision = d.decide(np.arange(100.0), 0.05)
    assert (decision.threshold, decision.n_allowed, decision.n_above, decision.n_known) == (95, 4, 4, 100)
    assert decision.fpr.estimate == 0.04
    assert decision.fpr.low == pytest.approx(beta.ppf(0.025, 4, 97)) == pytest.approx(0.0110, abs=1e-4)
    assert decision.fpr.high == pytest.approx(beta.ppf(0.975, 5, 96)) == pytest.approx(0.0993, abs=1e-4)
    assert decision.wanted_fpr == 0.05 and decision == d.decide(np.arange(100.0))
    other = d.decide(np.arange(100.0), 0.05, level=0.8)
    assert (other.fpr.level, other.fpr.low) == (0.8, pytest.approx(beta.ppf(0.1, 4, 97)))
    assert other.fpr.high == pytest.approx(beta.ppf(0.9, 5, 96))


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_a_confident_threshold_by_hand(level):
    """Of n non-members k may lie above where the quantile of Beta(k + 1, n - k) is at most the wanted FPR."""
    scores, surely = np.arange(300.0), (1 + level) / 2
    k = max(k for k in range(30) if beta.ppf(surely, k + 1, 300 - k) <= 0.05)
    decision = d.decide(scores, 0.05, is_confident=True, level=level)
    assert (decision.n_allowed, decision.threshold) == (k, 299 - k)
    needed = int(np.ceil(np.log(1 - surely) / np.log(0.95)))
    with pytest.raises(ValueError, match=f"{needed} .*{needed - 1}"):
        d.decide(scores[: needed - 1], 0.05, is_confident=True, level=level)
    assert d.decide(scores[:needed], 0.05, is_confident=True, level=level).n_allowed == 0


@pytest.mark.parametrize(("n", "fpr"), [(100, 0.05), (500, 0.01)])
def test_the_interval_covers_the_true_fpr_though_the_same_scores_chose_the_threshold(n, fpr):
    """Normal scores, whose true FPR is known: below the upper end in 97.5% of samples, and on average below `fpr`."""
    rng = np.random.default_rng(n)
    true, below, covered = [], 0, 0
    for _ in range(2000):
        decision = d.decide(rng.normal(size=n), fpr)
        true.append(norm.sf(decision.threshold))
        below += true[-1] <= decision.fpr.high
        covered += decision.fpr.low <= true[-1] <= decision.fpr.high
    assert below / 2000 == pytest.approx(0.975, abs=0.008) and covered / 2000 >= 0.945
    k = d.may_lie_above(n, fpr)
    assert np.mean(true) == pytest.approx((k + 1) / (n + 1), rel=0.06) and (k + 1) / (n + 1) <= fpr


def test_a_confident_threshold_exceeds_the_wanted_fpr_in_one_sample_of_forty_at_most():
    rng = np.random.default_rng(4)
    true = [norm.sf(d.decide(rng.normal(size=200), 0.05, is_confident=True).threshold) for _ in range(1500)]
    assert np.mean(np.array(true) > 0.05) <= 0.033
    usual = [norm.sf(d.decide(rng.normal(size=200), 0.05).threshold) for _ in range(500)]
    assert 0.35 < np.mean(np.array(usual) > 0.05) < 0.55, "the threshold that holds on average does so half of the time"
    k = d.may_lie_above(200, 0.05, is_confident=True)
    assert beta.ppf(0.975, k + 1, 200 - k) <= 0.05 < beta.ppf(0.975, k + 2, 199 - k)
    assert d.may_lie_above(100, beta.ppf(0.975, 4, 97), is_confident=True) == 3, "an upper end may be the wanted FPR"


@pytest.mark.parametrize(("fpr", "average", "confident"), [(0.01, 99, 368), (0.05, 19, 72), (0.1, 9, 36)])
def test_so_many_known_non_members_are_needed_and_with_one_fewer_the_error_says_so(fpr, average, confident):
    assert (d.n_needed(fpr), d.n_needed(fpr, is_confident=True)) == (average, confident)
    assert (1 - fpr) ** confident <= 0.025 < (1 - fpr) ** (confident - 1)
    assert d.n_needed(1 / 49) == 48, "1 / (1 / 49) is a little above 49"
    for is_confident, needed in ((False, average), (True, confident)):
        assert d.decide(np.arange(float(needed)), fpr, is_confident=is_confident).n_above == 0
        assert d.may_lie_above(needed - 1, fpr, is_confident=is_confident) is None
        with pytest.raises(ValueError, match=f"{needed} .*{needed - 1}"):
            d.decide(np.arange(needed - 1.0), fpr, is_confident=is_confident)


def test_wrong_input_is_an_error_that_names_it():
    for function in (d.p_values, d.set_p_value):
        for scores, known, named in (
            ([1.0], [1.0, np.nan], "known non-members: number 1"),
            ([np.inf], [1.0], r"scores.*: number 0"),
            ([1.0], [], "known non-members"),
        ):
            with pytest.raises(ValueError, match=named):
                function(scores, known)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_a_sets_p_value_is_its_share_of_all_divisions_of_the_texts(m):
    """Every way to call m of 9 texts the set: how many have as large a rank sum."""
    rng = np.random.default_rng(m)
    texts = rng.normal(size=9)
    sums = [sum(np.argsort(np.argsort(texts))[list(chosen)]) for chosen in combinations(range(9), m)]
    own = sum(np.argsort(np.argsort(texts))[:m])
    expected = Fraction(sum(s >= own for s in sums), len(sums))
    assert d.set_p_value(texts[:m], texts[m:]) == pytest.approx(float(expected))


@pytest.mark.parametrize(("m", "n"), [(2, 40), (8, 60), (30, 50), (120, 90)])
def test_without_ties_it_is_scipys_test(m, n):
    rng = np.random.default_rng(m)
    scores, known = rng.normal(size=m) + 0.2, rng.normal(size=n)
    assert d.set_p_value(scores, known) == pytest.approx(mannwhitneyu(scores, known, alternative="greater").pvalue)


def test_ties_share_their_mean_rank_and_cost_little_power():
    assert d.set_p_value([1.0, 1.0], [1.0, 1.0, 1.0]) == 1.0
    assert d.set_p_value([2.0, 2.0], [1.0, 1.0, 1.0]) == pytest.approx(1 / 10)
    # Ranks 4.5 and 2 against 2, 2 and 4.5.
    ranks = [4.5, 2, 2, 2, 4.5]
    as_high = [ranks[a] + ranks[b] >= 6.5 for a, b in combinations(range(5), 2)]
    assert d.set_p_value([2.0, 1.0], [1.0, 1.0, 2.0]) == pytest.approx(np.mean(as_high))
    assert d.set_p_value(np.ones(20), np.ones(30)) == 1.0, "no score says anything"
    rng = np.random.default_rng(1)
    sets = [(rng.normal(0.5, size=40).round(0), rng.normal(size=200).round(0)) for _ in range(100)]
    assert np.mean([d.set_p_value(*of) <= 0.05 for of in sets]) > 0.75
    unseen = [(rng.normal(size=40).round(0), rng.normal(size=200).round(0)) for _ in range(500)]
    assert 0.03 < np.mean([d.set_p_value(*of) <= 0.05 for of in unseen]) < 0.07


@pytest.mark.parametrize(("m", "n"), [(20, 400), (5, 2000), (300, 6)])
def test_where_most_scores_tie_a_set_without_a_member_is_called_no_more_often(m, n):
    """Nine in ten of the scores are 0."""
    rng = np.random.default_rng(m)
    drawn = np.where(rng.random((60, m + n)) < 0.9, 0, rng.normal(size=(60, m + n)).round(1) + 5)
    found = np.array([d.set_p_value(scores[:m], scores[m:]) for scores in drawn])
    assert (found <= 0.05).mean() < 0.08 and found.min() >= 1 / (d.DIVISIONS + 1)
    assert d.set_p_value(drawn[0][:m], drawn[0][m:]) == found[0], "always the same divisions"


def test_divisions_that_are_drawn_give_what_all_of_them_give(monkeypatch):
    rng = np.random.default_rng(8)
    for _ in range(20):
        scores = np.where(rng.random(60) < 0.8, 0, rng.integers(1, 4, 60)).astype(float)
        counted = d.set_p_value(scores[:8], scores[8:])
        with monkeypatch.context() as patch:
            patch.setattr(d, "MOST_COUNTED", 0)
            assert d.set_p_value(scores[:8], scores[8:]) == pytest.approx(counted, abs=0.015)
    # Two of the three that tie at the top of 600 are counted; two of the two of 120, with 20 in the set, are drawn.
    assert d.set_p_value([2, 2], [2] + [0] * 597) == pytest.approx(3 / comb(600, 2))
    assert d.set_p_value([1, 1] + [0] * 18, [0] * 100) == pytest.approx(comb(20, 2) / comb(120, 2), abs=0.005)


def test_the_opposite_claim():
    rng = np.random.default_rng(2)
    members, unused = rng.normal(1, size=50), rng.normal(size=20)
    assert d.non_use_p_value(unused, members) == d.set_p_value(-unused, -members) < 0.01
    assert d.non_use_p_value(members[:20], members[20:]) > 0.05
    with pytest.raises(ValueError, match="known members"):
        d.non_use_p_value([1.0], [np.nan])


def simulated_audits(share, n_texts, n_known, n_audits, rng, digits=None):
    """p-values of texts of which a share are members, (audits, texts), and which are; members score 2 sigma higher."""
    is_member = np.arange(n_texts) < round(share * n_texts)
    scores, known = rng.normal(size=(n_audits, n_texts)) + 2 * is_member, rng.normal(size=(n_audits, n_known))
    if digits is not None:
        scores, known = scores.round(digits), known.round(digits)
    return np.array([d.p_values(*of) for of in zip(scores, known, strict=True)]), is_member


@pytest.mark.parametrize("share", [0, 0.1, 0.5])
@pytest.mark.parametrize(("n_known", "digits"), [(100, None), (1999, None), (1999, 1)])
def test_of_the_flagged_texts_no_larger_share_are_non_members_than_the_fdr_says(share, n_known, digits):
    """In 200 simulated audits of 200 texts; the interval's lower end is below the true share of members."""
    p, is_member = simulated_audits(share, 200, n_known, 200, np.random.default_rng(5), digits)
    is_flagged = np.array([of <= d.flagged_up_to(of, 0.1) for of in p])
    false_share = is_flagged[:, ~is_member].sum(axis=1) / np.maximum(1, is_flagged.sum(axis=1))
    error = false_share.std(ddof=1) / np.sqrt(len(p))
    shares = [d.share_of_members(of, n_known) for of in p]
    assert false_share.mean() <= 0.1 + 1.96 * error
    assert np.mean([of.low <= share for of in shares]) >= 0.975 and all(
        of.low <= of.estimate <= of.high for of in shares
    )
    if share == 0.5 and n_known == 1999:
        assert is_flagged[:, is_member].mean() > 0.4 and np.mean([of.low for of in shares]) > 0.2


def test_flagged_texts_and_the_share_of_members_by_hand():
    """Of 4 texts, the i-th smallest p times 4 / i, and no larger than a later one: 0.04, 0.06, 0.06, 0.8."""
    p = [0.8, 0.01, 0.045, 0.03]
    assert [d.flagged_up_to(p, fdr) for fdr in (0.039, 0.04, 0.059, 0.06, 0.8)] == [0, 0.01, 0.01, 0.045, 0.8]
    assert d.flagged_up_to([0.1, 0.1, 0.3], 0.15) == 0.1 and d.flagged_up_to([0.1], 0.1) == 0.1
    # 20 of 100 have p > 1/2, as on average half of the non-members would: 2 * 0.2 of them are non-members.
    p = np.repeat([0.01, 0.9], [80, 20])
    found, q, b = d.share_of_members(p, 99), d.clopper_pearson(20, 100, 0.975), beta(50, 50)
    assert found.estimate == pytest.approx(0.6) and found.level == 0.95
    assert (found.low, found.high) == pytest.approx((1 - q.high / b.ppf(0.0125), 1 - q.low / b.ppf(0.9875)))
    assert d.share_of_members(1 - p / 2, 99).estimate == 0, "a share is not negative"
    assert d.share_of_members(p, 1).estimate == pytest.approx(0.6), "one known non-member is enough"
