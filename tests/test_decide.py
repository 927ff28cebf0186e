"""Decisions from known non-members: p-values, thresholds with what is known of their FPR, and sets of texts."""

import math
import re
from fractions import Fraction
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from scipy.stats import beta, chi2, combine_pvalues, mannwhitneyu, norm

matplotlib.use("Agg")

from mialib import calibration as d
from mialib.book import figures
from mialib.metrics import Interval

# --- p-values ---


def test_p_values_by_hand():
    known = [1.0, 2.0, 2.0, 4.0]
    np.testing.assert_allclose(d.p_values([5.0, 4.0, 2.0, 1.5, 0.0], known), [1 / 5, 2 / 5, 4 / 5, 4 / 5, 1])


def test_p_values_of_non_members_are_uniform_over_the_values_that_they_can_have():
    """Over many samples of known non-members: each of 1/20 .. 20/20 is equally likely."""
    rng = np.random.default_rng(0)
    p = np.concatenate([d.p_values(rng.normal(size=3), rng.normal(size=19)) for _ in range(4000)])
    found = np.bincount(np.round(20 * p).astype(int), minlength=21)
    assert found[0] == 0 and chi2.sf(((found[1:] - 600) ** 2 / 600).sum(), 19) > 0.001
    # Ties only make them larger.
    tied = np.concatenate([d.p_values(rng.integers(0, 5, 3), rng.integers(0, 5, 19)) for _ in range(2000)])
    assert all((tied <= i / 20).mean() <= i / 20 + 0.01 for i in range(1, 20))


def test_the_p_values_of_texts_that_share_known_non_members_stay_in_their_band():
    """The share of 100 unseen texts with p <= 0.1 is in its 95% range as often as it says; a binomial one is short."""
    rng = np.random.default_rng(1)
    p, low, high = d.p_value_band(49, 100)
    at = np.flatnonzero(np.isclose(p, 0.1))[0]
    shares = np.array([(d.p_values(rng.normal(size=100), rng.normal(size=49)) <= 0.1).mean() for _ in range(3000)])
    assert 0.95 <= ((low[at] <= shares) & (shares <= high[at])).mean() < 0.98
    binomial = np.abs(shares - 0.1) <= 1.96 * math.sqrt(0.1 * 0.9 / 100)
    assert binomial.mean() < 0.85
    assert d.expected_share(4, 49, 100) == Interval(0.1, low[at], high[at])


# --- a threshold and its FPR ---


@pytest.mark.parametrize("n", [19, 99, 100, 250, 999])
@pytest.mark.parametrize("ties", [False, True])
def test_a_score_lies_above_the_threshold_exactly_where_its_p_value_is_small_enough(n, ties):
    rng = np.random.default_rng(n)
    known, scores = rng.normal(size=n), rng.normal(size=500)
    if ties:
        known, scores = known.round(1), scores.round(1)
    for fpr in (0.05, 0.07, 0.1, 0.29, 0.5, 0.99):
        decision = d.decide(known, fpr)
        np.testing.assert_array_equal(scores > decision.threshold, d.p_values(scores, known) <= fpr)
        assert decision.n_above == (known > decision.threshold).sum() <= decision.n_allowed


def test_a_threshold_by_hand():
    """Of 0 .. 99 at 5%: floor(0.05 * 101) - 1 = 4 may lie above, so it is 95; 4 of 100 is [0.011, 0.099]."""
    decision = d.decide(np.arange(100.0), 0.05)
    assert (decision.threshold, decision.n_allowed, decision.n_above, decision.n_known) == (95, 4, 4, 100)
    assert decision.fpr.estimate == 0.04
    assert decision.fpr.low == pytest.approx(beta.ppf(0.025, 4, 97)) == pytest.approx(0.0110, abs=1e-4)
    assert decision.fpr.high == pytest.approx(beta.ppf(0.975, 5, 96)) == pytest.approx(0.0993, abs=1e-4)


@pytest.mark.parametrize(("n", "fpr"), [(100, 0.01), (100, 0.05), (500, 0.01), (250, 0.1)])
def test_the_interval_covers_the_true_fpr_though_the_same_scores_chose_the_threshold(n, fpr):
    """Normal scores, whose true FPR is known: below the upper end in 97.5% of samples, and on average below `fpr`."""
    rng = np.random.default_rng(n)
    true, below, covered = [], 0, 0
    for _ in range(4000):
        decision = d.decide(rng.normal(size=n), fpr)
        true.append(norm.sf(decision.threshold))
        below += true[-1] <= decision.fpr.high
        covered += decision.fpr.low <= true[-1] <= decision.fpr.high
    assert below / 4000 == pytest.approx(0.975, abs=0.008)
    assert covered / 4000 >= 0.945
    k = d.may_lie_above(n, fpr)
    assert np.mean(true) == pytest.approx((k + 1) / (n + 1), rel=0.06) and (k + 1) / (n + 1) <= fpr


def test_the_interval_covers_the_true_fpr_of_tied_scores_too():
    """Scores 0 .. 9 and a heavy 0: the true FPR of each threshold is a sum of ten probabilities."""
    rng = np.random.default_rng(3)
    chances = np.array([0.5, 0.2, 0.1, 0.06, 0.05, 0.03, 0.03, 0.01, 0.01, 0.01])
    above, below = 0, 0
    for _ in range(4000):
        decision = d.decide(rng.choice(10, 100, p=chances).astype(float), 0.1)
        true = chances[int(decision.threshold) + 1 :].sum()
        above += true > decision.fpr.high
        below += true < decision.fpr.low
    assert above / 4000 <= 0.032 and below / 4000 <= 0.032


def test_a_confident_threshold_exceeds_the_wanted_fpr_in_one_sample_of_forty_at_most():
    rng = np.random.default_rng(4)
    true = [norm.sf(d.decide(rng.normal(size=200), 0.05, is_confident=True).threshold) for _ in range(3000)]
    assert np.mean(np.array(true) > 0.05) <= 0.033
    usual = [norm.sf(d.decide(rng.normal(size=200), 0.05).threshold) for _ in range(1000)]
    assert 0.35 < np.mean(np.array(usual) > 0.05) < 0.55, "the threshold that holds on average does so half of the time"
    k = d.may_lie_above(200, 0.05, is_confident=True)
    assert beta.ppf(0.975, k + 1, 200 - k) <= 0.05 < beta.ppf(0.975, k + 2, 199 - k)


@pytest.mark.parametrize(("fpr", "average", "confident"), [(0.01, 99, 368), (0.05, 19, 72), (0.1, 9, 36)])
def test_so_many_known_non_members_are_needed_and_with_one_fewer_the_error_says_so(fpr, average, confident):
    assert (d.n_needed(fpr), d.n_needed(fpr, is_confident=True)) == (average, confident)
    assert (1 - fpr) ** confident <= 0.025 < (1 - fpr) ** (confident - 1)
    for is_confident, needed in ((False, average), (True, confident)):
        assert d.decide(np.arange(float(needed)), fpr, is_confident=is_confident).n_above == 0
        assert d.may_lie_above(needed - 1, fpr, is_confident=is_confident) is None
        with pytest.raises(ValueError, match=f"needs {needed} known non-members, and there are {needed - 1}"):
            d.decide(np.arange(needed - 1.0), fpr, is_confident=is_confident)


def test_wrong_input_is_an_error_that_says_what_is_wrong():
    for fpr in (0, 1, -0.1, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            d.decide(np.arange(100.0), fpr)
    for function in (d.p_values, d.set_p_value):
        with pytest.raises(ValueError, match=r"scores of known non-members: number 1 is nan"):
            function([1.0], [1.0, np.nan])
        with pytest.raises(ValueError, match=r"scores.*: number 0 is inf"):
            function([np.inf], [1.0])
        with pytest.raises(ValueError, match=r"known non-members: a list is needed, .* at least 1; got shape \(0,\)"):
            function([1.0], [])
        for wrong in ([[1.0, np.nan]], 1.0, np.nan):
            with pytest.raises(ValueError, match=r"scores.*: a list is needed, a number for each text"):
                function(wrong, [1.0, 2.0])
            with pytest.raises(ValueError, match="known non-members: a list is needed"):
                function([1.0], wrong)
    with pytest.raises(ValueError, match=r"scores of a set: a list is needed, .* at least 1"):
        d.set_p_value([], [1.0])
    assert d.p_values([], [1.0]).shape == (0,)


@pytest.mark.parametrize("sizes", [[], [0], [0, 5], [-1, 2]])
def test_wrong_sizes_of_sets_are_an_error_that_names_them(sizes):
    for function, given in ((d.false_alarms, ()), (d.power, (np.arange(10.0),))):
        with pytest.raises(ValueError, match=re.escape(f"each is 1 text or more; got {sizes}")):
            function(np.arange(10.0), *given, sizes, 5)


def test_sets_are_drawn_from_lists_of_scores_that_hold_as_many():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="a set of 6 of 5 other texts: too few"):
        d.false_alarms(np.arange(10.0), [1, 6], 5, n_draws=3)
    with pytest.raises(ValueError, match=r"each is 1 text or more; got \[0\]"):
        d.draw_sets(np.arange(10.0), None, 0, 5, 3, rng)
    with pytest.raises(ValueError, match="scores of non-members: a list is needed"):
        d.draw_sets(np.ones((10, 2)), None, 2, 5, 3, rng)
    with pytest.raises(ValueError, match="scores of the others: a list is needed"):
        d.draw_sets(np.arange(10.0), np.array(1.0), 2, 5, 3, rng)
    assert d.split_sizes([1, 20, 50], 30) == ([1, 20], [50])
    with pytest.raises(ValueError, match="no set of 50, 100 texts can be drawn from 30"):
        d.split_sizes([50, 100], 30)


# --- a set of texts ---


@pytest.mark.parametrize("ties", [False, True])
def test_a_set_of_one_text_has_that_texts_p_value(ties):
    rng = np.random.default_rng(5)
    known, scores = rng.normal(size=30), rng.normal(size=20)
    if ties:
        known, scores = known.round(0), scores.round(0)
    found = [d.set_p_value([score], known) for score in scores]
    np.testing.assert_allclose(found, d.p_values(scores, known))


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


def test_a_tie_counts_against_the_set():
    assert d.set_p_value([1.0, 1.0], [1.0, 1.0, 1.0]) == 1.0
    assert d.set_p_value([2.0, 2.0], [1.0, 1.0, 1.0]) == pytest.approx(1 / 10)


def test_drawn_sets_are_called_as_their_p_values_say():
    rng = np.random.default_rng(6)
    n_below = d.draw_sets(rng.normal(size=60), rng.normal(size=40) + 0.8, 20, 30, 100, rng)
    calls = d.rank_sum_calls(n_below, [1, 5, 20], 30)
    for row, called in zip(n_below, calls, strict=True):
        # A text above c of the known ones, which are 0 .. 29, scores c - 1/2.
        expected = [d.set_p_value(row[:m] - 0.5, np.arange(30)) <= 0.05 for m in (1, 5, 20)]
        assert called.tolist() == expected
    fisher = d.fisher_calls(n_below, [5, 20], 30)
    p = (31 - n_below) / 31
    expected = [[combine_pvalues(of[:m], method="fisher").pvalue <= 0.05 for m in (5, 20)] for of in p]
    np.testing.assert_array_equal(fisher, expected)


def test_the_rank_sum_test_keeps_its_level_where_fishers_combination_does_not():
    scores = np.random.default_rng(7).normal(size=200)
    found = d.false_alarms(scores, [1, 10, 100], 100, n_draws=4000)
    for level in (0.05, 0.01):
        for m in (1, 10, 100):
            assert found[f"rank sum, {level:.0%}"][m].low <= level
        assert found[f"Fisher, {level:.0%}"][100].low > level
    assert found["rank sum, 5%"][100].estimate == pytest.approx(0.05, abs=0.011)
    again = d.false_alarms(np.exp(scores), [1, 10, 100], 100, n_draws=4000)
    assert again == found, "ranks alone count"


def test_power_grows_with_the_set_and_its_interval_covers_the_power_in_the_population(monkeypatch):
    monkeypatch.setattr(d, "RESAMPLES", 50)
    monkeypatch.setattr(d, "POWER_DRAWS", 400)
    rng = np.random.default_rng(8)
    # The truth, from fresh texts each time: known non-members, and sets shifted by 0.5.
    n_below = [np.searchsorted(np.sort(rng.normal(size=50)), rng.normal(size=10) + 0.5) for _ in range(4000)]
    truth = d.rank_sum_calls(np.array(n_below), [2, 10], 50).mean(axis=0)
    n_covered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = d.power(rng.normal(size=100), rng.normal(size=100) + 0.5, [2, 10], 50, seed)
        assert found[2].estimate < found[10].estimate
        n_covered += sum(found[m].low <= true <= found[m].high for m, true in zip((2, 10), truth, strict=True))
    # 76 are expected; the two of a draw of texts stand and fall together, so the standard deviation is up to 2.8.
    assert n_covered >= 71, "of 80 intervals of 95%"


# --- the page's tables ---


def test_groups_are_a_half_of_the_non_members_the_other_half_and_the_members():
    labels, scores = np.repeat([1, 0], [5, 10]), np.arange(15.0)
    groups = d.score_groups({"ppl": scores, "ref": None}, labels)
    assert [sorted(groups["members"]), groups["members"]["ppl"].tolist()] == [["ppl"], [0, 1, 2, 3, 4]]
    assert d.unseen_of({"ppl": scores, "ref": None}, labels)["ppl"].tolist() == list(range(5, 15))
    assert sorted(d.all_unseen(groups)["ppl"]) == list(range(5, 15))
    halves = [set(groups[name]["ppl"]) for name in ("known", "held out")]
    assert [len(half) for half in halves] == [5, 5] and halves[0] | halves[1] == set(range(5, 15))


def test_measured_shares_are_those_above_the_threshold():
    members = {"ppl": np.array([50.0, 96.0, 98.0, 99.0])}
    of_known, of_members = d.measure({"ppl": np.arange(99.0)}, {"members": members}, [0.03])
    # floor(0.03 * 100) - 1 = 2 may lie above: the threshold is 96.
    assert (of_known.row, of_known.column, of_known.metric) == ("PPL", "0.03 wanted", "called: known")
    assert of_known.ours == 2 / 99 and of_members.ours == 0.5 and of_members.metric == "called: members"


def test_the_tables_say_what_the_functions_give():
    rng = np.random.default_rng(9)
    known, held_out, members = rng.normal(size=50), rng.normal(size=50), rng.normal(size=60) + 1
    table = d.decision_table(known, held_out, members, [0.05])
    decision = d.decide(known, 0.05)
    row = table.loc["0.05, on average"]
    assert row["threshold"] == f"{decision.threshold:.4g}"
    assert row["TPR"].startswith(f"{(members > decision.threshold).mean():.3f}")
    assert table.loc["0.05, 97.5% confident", "threshold"] == "needs 72"
    sizes = d.n_table([0.01], (50, 500))
    assert sizes.loc["0.01, 50"].tolist() == ["needs 99", "–", "needs 368", "0.02"]
    assert sizes.loc["0.01, 500"].tolist() == ["4", "0.002–0.020", "0", "0.002"]
    p = d.p_value_table(known, {"members": members}, [0.1])
    assert p.index.tolist() == ["members (60)"] and float(p.iloc[0, -1]) < 0.01
    shifted = d.shift_table({"ppl": known}, {"ppl": members}, [0.1])
    assert shifted.loc["PPL"].tolist() == p.iloc[0].tolist()
    halves = d.repeated_halves(np.arange(100.0), [0.1], n_repeats=200)
    assert float(halves.iloc[0]["inside the range expected of the others"][:5]) > 0.9


def test_a_detector_whose_highest_scores_tie_is_named():
    known = {"surp": np.array([0.0, 0, 0, -1, -2]), "ppl": np.arange(5.0)}
    assert "SURP gives 3 of the 5 known" in d.tied_text(known) and "below 0.667" in d.tied_text(known)
    tied = d.decide(np.repeat([0.0, -1.0], [30, 69]), 0.1)  # 9 may lie above, and none can
    assert (tied.threshold, tied.n_allowed, tied.n_above, tied.fpr.low) == (0, 9, 0, 0)
    assert tied.fpr.high == pytest.approx(beta.ppf(0.975, 10, 90))
    assert "No detector" in d.tied_text({"ppl": np.arange(5.0)})


def test_right_calls_by_hand():
    """1% members, TPR 0.5, FPR 5%: 0.005 / (0.005 + 0.0495)."""
    found = d.right_calls(0.5, Interval(0.05, 0.0, 0.1), 0.01)
    assert found.estimate == pytest.approx(0.005 / 0.0545)
    assert (found.low, found.high) == (pytest.approx(0.005 / 0.104), 1.0)
    assert d.right_calls(0.0, Interval(0.0, 0.0, 0.1), 0.5) is None


def test_right_calls_are_told_from_the_true_fprs_mean_and_not_from_the_scores_that_chose_the_threshold():
    """Of 99 known non-members none may lie above at 1%, and that is no FPR of 0: it is 1/100 on average."""
    known, members = np.arange(99.0), np.array([97.0, 98.0, 99.0, 100.0])
    decision = d.decide(known, 0.01)
    assert (decision.n_above, decision.mean_fpr) == (0, 0.01)
    assert decision.fpr.low <= decision.mean_fpr <= decision.fpr.high
    [half, _, hundredth] = d.right_calls_table(known, members, [0.01]).loc["0.01"]
    assert half.startswith(f"{0.25 / 0.255:.3f} [") and hundredth.startswith(f"{0.005 / (0.005 + 0.0099):.3f} [")
    assert d.right_calls_table(known, np.zeros(4), [0.01]).loc["0.01"].tolist() == ["–"] * 3, "nothing is called"


@pytest.mark.parametrize(("n", "fpr"), [(99, 0.01), (60, 0.05), (250, 0.1)])
def test_stated_fprs_and_right_calls_are_on_average_the_realised_ones(n, fpr):
    """Members 1.5 above normal non-members, one text in ten a member, over many samples of known non-members."""
    rng = np.random.default_rng(n)
    decisions = [d.decide(rng.normal(size=n), fpr) for _ in range(4000)]
    false, true = (np.mean([norm.sf(x.threshold - shift) for x in decisions]) for shift in (0, 1.5))
    stated = np.mean([x.mean_fpr for x in decisions])
    assert stated == pytest.approx(false, rel=0.06)
    assert np.mean([x.fpr.estimate for x in decisions]) < 0.98 * false
    realised = 0.1 * true / (0.1 * true + 0.9 * false)
    assert d.right_calls(true, Interval(stated, 0, 1), 0.1).estimate == pytest.approx(realised, abs=0.02)


def test_few_known_non_members_leave_an_fpr_out_and_say_how_many_it_needs():
    """The page's calls on 60 members and 60 non-members, 30 of them known, with its own parameters."""
    rng, fprs = np.random.default_rng(10), [0.01, 0.05, 0.1]
    labels = np.repeat([1, 0], 60)
    groups = d.score_groups({"ppl": labels + rng.normal(size=120)}, labels)
    known, held_out, members = (groups[group]["ppl"] for group in ("known", "held out", "members"))
    assert len(known) == len(held_out) == 30
    found = d.measure(groups["known"], {"held out": groups["held out"], "members": groups["members"]}, fprs, ", noted")
    assert [str(r) for r in found if r.column == "0.01 wanted, noted"] == ["needs 99"] * 3
    assert [r.metric for r in found[:3]] == ["called: known", "called: held out", "called: members"]
    assert all(r.ours is not None for r in found if r.column != "0.01 wanted, noted")
    assert d.decision_table(known, held_out, members, fprs)["threshold"].iloc[0] == "needs 99"
    assert d.repeated_halves(np.concatenate([known, held_out]), fprs, 20).iloc[0].tolist() == ["needs 99", "–", "–"]
    assert d.right_calls_table(known, members, fprs).iloc[0].tolist() == ["needs 99"] * 3
    for table in (
        d.p_value_table(known, {"members": members}, fprs),
        d.shift_table(groups["known"], groups["members"], fprs),
    ):
        assert table.iloc[0, 0] == "needs 99" and table.iloc[0, 1][0] == "0"
    sizes, too_large = d.split_sizes([1, 2, 5, 10, 20, 50, 100], min(len(held_out), len(members)))
    assert too_large == [50, 100] and list(d.false_alarms(held_out, sizes[:2], 10, 20)["rank sum, 5%"]) == [1, 2]


def test_the_figure_draws_each_groups_distribution():
    p = np.array([0.1, 0.2, 0.2, 1.0])
    figure = figures.p_value_curves({"members": p}, d.p_value_band(9, 4), "band")
    for axes in figure.axes[:2]:
        [line] = [line for line in axes.lines if line.get_label() == "members"]
        xs, ys = line.get_data()
        assert ys[np.searchsorted(xs, 0.2, side="right") - 1] == 0.75
