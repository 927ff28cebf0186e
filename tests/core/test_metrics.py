"""AUC, TPR at an FPR and their intervals, by hand, against brute force and bootstraps."""

import numpy as np
import oracles
import pytest
from scipy.stats import binom, bootstrap, norm, rankdata, t

from mialib import auc, auc_interval, calibration, compare_auc, metrics, roc, tpr_at_fpr, tpr_at_fpr_interval
from mialib.metrics import Interval, aucs, clopper_pearson, compare_tpr_at_fpr, non_members_needed

SEEDS = [0, 1]


def random_scores(seed, n=120, share=0.4, *, ties=True):
    """Labels and overlapping scores; with ties, many scores are the same number."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < share).astype(int)
    labels[:2] = 0, 1
    scores = rng.normal(size=n) + 0.7 * labels
    return labels, np.round(scores, 1) if ties else scores


def split(labels, scores):
    return scores[labels == 1], scores[labels == 0]


def test_aucs_and_placements_of_several_are_those_of_each():
    # Members 3 and 1 against non-members 2, 1 and 0: 3 beats all three; 1 loses, ties and wins. (3 + 1.5) / 6
    assert auc([1, 0, 1, 0, 0], [3, 2, 1, 1, 0]) == pytest.approx(4.5 / 6)
    assert auc([1, 0], [1, 0]) == 1
    assert auc([1, 0], [0, 1]) == 0
    assert auc([1, 0, 1], [5, 5, 5]) == 0.5
    rng = np.random.default_rng(5)
    members, non_members = rng.integers(0, 6, size=(3, 2, 7)), rng.integers(0, 6, size=(3, 2, 9))
    at_once = metrics.placements(members, non_members)
    for i in np.ndindex(3, 2):
        for of_all, of_one in zip(at_once, metrics.placements(members[i], non_members[i]), strict=True):
            np.testing.assert_array_equal(of_all[i], of_one)


def exponential_variance(auc, m, n):
    """Hanley and McNeil (1982), from Q1 and Q2, for scores and for their negatives: the larger."""
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    of = [(p - 1) * (q1 - auc**2) + (q - 1) * (q2 - auc**2) for p, q in ((m, n), (n, m))]
    return (auc * (1 - auc) + max(of)) / (m * n)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_end_lies_t_of_its_own_standard_errors_away(seed):
    labels, scores = random_scores(seed)
    members, non_members = split(labels, scores)
    m, n = len(members), len(non_members)
    interval = auc_interval(labels, scores, level=0.9)
    assert interval.estimate == auc(labels, scores) and interval.level == 0.9
    ratio = oracles.delong_variance(members, non_members) / exponential_variance(interval.estimate, m, n)
    misplaced = 2 * min(m, n) * min(interval.estimate, 1 - interval.estimate)
    ratio = max(ratio, (misplaced * ratio + 5) / (misplaced + 5))
    for end in (interval.low, interval.high):
        errors = (interval.estimate - end) / np.sqrt(ratio * exponential_variance(end, m, n))
        assert abs(errors) == pytest.approx(t.ppf(0.95, min(m, n) - 1), abs=1e-6)


def auc_of_rows(members, non_members, axis=-1):
    """AUC along the last axis, for scipy's bootstrap."""
    m, n = members.shape[-1], non_members.shape[-1]
    ranks = rankdata(np.concatenate([members, non_members], axis=-1), axis=-1)
    return (ranks[..., :m].sum(-1) - m * (m + 1) / 2) / (m * n)


@pytest.mark.parametrize(
    ("n_members", "n_non_members", "true"), [(71, 500, 0.999), (20, 500, 0.97), (500, 500, 0.997), (10, 10, 0.9)]
)
@pytest.mark.parametrize("spread", [1, 2])  # of the members' scores; of the non-members' it is 1
def test_intervals_near_1_hold_the_true_auc_as_often(n_members, n_non_members, true, spread):
    # DeLong's plain interval does 74 to 92 times in 100 here, Newcombe's method 5 89 times where members spread wider.
    rng, n_draws, n_inside = np.random.default_rng(0), 200, 0
    labels = np.repeat([1, 0], [n_members, n_non_members])
    for draw in range(n_draws):
        scores = rng.normal(size=len(labels)) * np.where(labels, spread, 1)
        scores += np.sqrt(1 + spread**2) * norm.ppf(true) * labels
        interval = auc_interval(labels, scores)
        n_inside += interval.low <= true <= interval.high
        if draw < 10:
            turned = auc_interval(labels, -scores)
            assert (turned.low, turned.high) == pytest.approx((1 - interval.high, 1 - interval.low))
    assert n_inside / n_draws >= 0.92  # 0.95 or more, and twice the error of 200 draws


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize(("n_members", "n_non_members"), [(3, 6), (6, 3)])
def test_where_every_text_agrees_a_difference_has_an_interval_by_hand(n_members, n_non_members, level):
    # One side separates, the other says nothing: 1 - 0.5. With three of the smaller class the truth may lie as far as
    # r = 1 - ((1 - level) / 2)^(1/3), and of the 84 divisions of nine texts one alone separates them so.
    labels = np.repeat([1, 0], [n_members, n_non_members])
    reach = 1 - ((1 - level) / 2) ** (1 / 3)
    for sign in (1, -1):
        found = compare_auc(labels, *[labels, np.zeros(9)][::sign], level)
        ends = sorted([sign * 0.5, sign * (0.5 - reach)])
        assert (found.difference.low, found.difference.high) == (pytest.approx(ends[0]), pytest.approx(ends[1]))
        assert (found.difference.estimate, found.difference.level) == (sign * 0.5, level)
        assert found.p_value == pytest.approx(2 / 84)
    both = compare_auc(labels, labels, 2 * labels, level)
    assert both.difference == Interval(0.0, -reach, reach, level) and both.p_value == 1
    below = compare_auc(labels, -labels, -2 * labels, level)
    assert below == both, "one class wholly below the other is as certain"
    few = [labels, 2 * labels]
    assert compare_tpr_at_fpr(labels, *few, fpr=0.4, n_resamples=50).difference.high == pytest.approx(
        1 - 0.025 ** (1 / 3)
    )


def test_separated_classes_and_single_texts_are_no_certainty():
    # With ten of each (1 - low)^2 = t^2 low (1 - low) (1 + 9 low / (1 + low) + 9 (1 - low) / (2 - low)) / 100.
    labels, scores = np.repeat([1, 0], 10), np.repeat([1.0, 0.0], 10)
    interval = auc_interval(labels, scores)
    assert (interval.estimate, interval.high) == (1, 1)
    low = interval.low
    assert (1 - low) ** 2 == pytest.approx(t.ppf(0.975, 9) ** 2 * exponential_variance(low, 10, 10))
    assert auc_interval(labels, -scores).high == pytest.approx(1 - low)
    assert auc_interval(labels, -scores).low == 0
    assert auc_interval([1, 1, 0, 0, 0], [2, 2, 1, 1, 1]).low < 0.1 < low, "fewer texts say less"
    # Where members are wholly above with chance c and else like the non-members, all ten are with c^10, and AUC is
    # (1 + c) / 2: the interval holds it unless that is less than 0.025.
    assert low < (1 + 0.025**0.1) / 2
    interval = auc_interval([1, 0, 0, 0], [1.5, 2, 1, 0])
    assert (interval.low, interval.estimate, interval.high) == (0, pytest.approx(2 / 3), 1)
    interval = auc_interval([1] * 50 + [0] * 50, np.zeros(100))
    assert interval.low < 0.48 and interval.high == pytest.approx(1 - interval.low)
    labels = np.repeat([1, 0], [71, 500])
    separated = np.concatenate([np.linspace(2, 3, 71), np.linspace(0, 1, 500)])
    one_swapped = separated.copy()
    one_swapped[[0, -1]] = 1, 2
    assert auc_interval(labels, one_swapped).low <= auc_interval(labels, separated).low


@pytest.mark.parametrize(
    ("interval", "printed"),
    [
        (Interval(0.71449, 0.6, 0.8), "0.714 [0.600, 0.800]"),
        (Interval(1, 0.9996, 1), "1.0000 [0.9996, 1.0000]"),
        (Interval(0.01, 0.0004, 0.1), "0.0100 [0.0004, 0.1000]"),
        (Interval(0.99998, 0.99, 0.99998), "0.99998 [0.99000, 0.99998]"),
        (Interval(0.5, 1e-7, 0.9), "0.5000 [0.0000, 0.9000]"),  # more digits would help nobody
        (Interval(-0.00001, -0.1, 0.1), "0.000 [-0.100, 0.100]"),
        (Interval(-0.02, -0.0497, -0.0003), "-0.0200 [-0.0497, -0.0003]"),
    ],
)
def test_an_interval_prints_in_as_many_digits_as_keep_its_ends_from_0_and_1(interval, printed):
    assert str(interval) == printed


def two_detectors(seed, n=400):
    """Scores of two detectors that mostly see the same in a text, the first a little more."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.5).astype(int)
    common = rng.normal(size=n) + 0.6 * labels
    a = common + 0.3 * rng.normal(size=n) + 0.2 * labels
    return labels, np.round(a, 1), np.round(common + 0.3 * rng.normal(size=n), 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_paired_comparison_agrees_with_a_paired_bootstrap(seed):
    labels, a, b = two_detectors(seed)
    both = np.stack([a, b])
    members, non_members = both[:, labels == 1], both[:, labels == 0]

    def difference(i, j, axis=-1):
        # The same texts, i of the members and j of the non-members, for both detectors.
        of_a, of_b = auc_of_rows(members[:, i], non_members[:, j])
        return of_a - of_b

    texts = (np.arange(members.shape[1]), np.arange(non_members.shape[1]))
    expected = bootstrap(texts, difference, n_resamples=3000, method="percentile", rng=0, vectorized=True)
    result = compare_auc(labels, a, b)
    assert result.difference.estimate == pytest.approx(auc(labels, a) - auc(labels, b))
    # The interval is about 0.07 wide.
    assert result.difference.low == pytest.approx(expected.confidence_interval.low, abs=0.004)
    assert result.difference.high == pytest.approx(expected.confidence_interval.high, abs=0.004)
    # As two independent detectors they would differ by an interval more than twice as wide.
    apart = [auc_interval(labels, scores) for scores in (a, b)]
    unpaired = np.sqrt(sum((interval.high - interval.low) ** 2 for interval in apart))
    assert result.difference.high - result.difference.low < unpaired / 2


def test_a_detector_against_itself_and_the_p_value_at_the_intervals_end():
    # At the level where an end of the interval touches 0, p = 1 - level.
    labels, a, b = two_detectors(0)
    p_value = compare_auc(labels, a, b).p_value
    assert 0 < p_value < 1
    touching = compare_auc(labels, a, b, level=1 - p_value).difference
    assert min(abs(touching.low), abs(touching.high)) == pytest.approx(0, abs=1e-9)
    labels, scores = random_scores(0)
    for other in (scores, np.exp(scores)):
        result = compare_auc(labels, scores, other)
        assert (result.difference.low, result.difference.estimate, result.difference.high) == (0, 0, 0)
        assert result.p_value == 1


def test_50_of_1000_non_members_are_5_percent_and_ties_go_together():
    # 1000 non-members at 0 .. 999 and members at 949.5, 950.5, ...: the 50 highest non-members are 950 .. 999, so a
    # threshold just above 949 accepts exactly 50 of them and every member; asking for strictly less than 5% accepts 49
    # and loses the member at 949.5.
    non_members, members = np.arange(1000.0), np.arange(20) + 949.5
    labels, scores = np.repeat([0, 1], [1000, 20]), np.concatenate([non_members, members])
    assert tpr_at_fpr(labels, scores, fpr=0.05) == 1.0
    assert tpr_at_fpr(labels, scores, fpr=0.0499) == 19 / 20
    assert tpr_at_fpr(labels, scores, fpr=0.05) == tpr_at_fpr(labels, scores)
    # Three of ten non-members tie at 5: a threshold of 5 accepts 30%, the next one, 6, none.
    non_members, members = [5, 5, 5, 1, 1, 1, 1, 0, 0, 0], [6, 5, 5, 1]
    labels, scores = [0] * 10 + [1] * 4, non_members + members
    assert tpr_at_fpr(labels, scores, fpr=0.2) == 1 / 4
    assert tpr_at_fpr(labels, scores, fpr=0.3) == 3 / 4
    assert tpr_at_fpr(labels, scores, fpr=0.69) == 3 / 4
    assert tpr_at_fpr(labels, scores, fpr=0.7) == 1
    # 0.29 * 100 is a little below 29 in floating point, and 29 of 100 are 29% all the same.
    labels, scores = np.repeat([0, 1], [100, 20]), np.append(np.arange(100.0), np.full(20, 70.5))
    assert tpr_at_fpr(labels, scores, fpr=0.29) == 1
    assert compare_tpr_at_fpr(labels, scores, np.zeros(120), fpr=0.29).difference.estimate == 1


def test_the_tpr_interval_by_hand_and_resamples():
    # Non-members 0 .. 99, so the threshold for 5% is 94; a binomial number of 100 at 5% lies in 1 .. 10 95 times in
    # 100, so the true one lies between 89 and 99. Of 20 members 12 are above 94, 6 above 99 and 15 above 89.
    assert binom.ppf([0.025, 0.975], 100, 0.05).tolist() == [1, 10]
    members = np.repeat([50.0, 92, 97, 200], [5, 3, 6, 6])
    interval = tpr_at_fpr_interval(np.repeat([0, 1], [100, 20]), np.concatenate([np.arange(100.0), members]))
    drawn = clopper_pearson(12, 20)
    assert interval.estimate == 0.6
    assert interval.low == pytest.approx(0.6 - np.hypot(0.6 - drawn.low, 0.6 - 0.3))
    assert interval.high == pytest.approx(0.6 + np.hypot(drawn.high - 0.6, 0.75 - 0.6))
    labels, a, b = two_detectors(1)
    assert compare_tpr_at_fpr(labels, a, b, 0.1, 7) != compare_tpr_at_fpr(labels, a, b, 0.1, 70)
    assert compare_tpr_at_fpr(labels, a, b, 1.0, 7).difference.estimate == 0, "all texts lie above"


@pytest.mark.parametrize(("fpr", "level"), [(0.2, 0.9), (0.1, 0.6)])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_tpr_interval_agrees_with_counting(seed, fpr, level):
    labels, scores = random_scores(seed)
    members, non_members = split(labels, scores)
    n, tail = len(non_members), (1 - level) / 2
    estimate = tpr_at_fpr(labels, scores, fpr)
    drawn = clopper_pearson(round(estimate * len(members)), len(members), level)
    highest_first = np.sort(non_members)[::-1]
    fewest, most = (int(binom.ppf(q, n, fpr)) for q in (tail, 1 - tail))
    lowest = (members > highest_first[fewest - 1]).mean() if fewest else 0.0  # the threshold may be so high ...
    highest = (members > highest_first[most]).mean()  # ... and so low
    found = tpr_at_fpr_interval(labels, scores, fpr, level)
    assert (found.estimate, found.level) == (estimate, level)
    assert found.low == pytest.approx(max(0, estimate - np.hypot(estimate - drawn.low, estimate - lowest)))
    assert found.high == pytest.approx(min(1, estimate + np.hypot(drawn.high - estimate, highest - estimate)))


def test_few_non_members_leave_the_lower_end_at_0_and_too_few_are_an_error():
    # That none of 50 non-members lies above the true threshold at 5% has a chance of 0.95^50 = 0.08.
    labels = np.repeat([1, 0], [100, 50])
    assert tpr_at_fpr_interval(labels, labels.astype(float)).low == 0
    assert non_members_needed(0) == 1
    assert non_members_needed(1 / 49) == 49, "1 / (1 / 49) is a little above"
    for fpr, needed in ((0.01, 100), (0.05, 20), (0.1, 10)):
        assert non_members_needed(fpr) == needed
        labels = np.repeat([1, 0], [30, needed - 1])
        scores = np.arange(len(labels), dtype=float)
        for measure in (
            lambda: tpr_at_fpr_interval(labels, scores, fpr),  # noqa: B023
            lambda: compare_tpr_at_fpr(labels, scores, -scores, fpr),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=f"{needed} .*{needed - 1}"):
                measure()
        assert tpr_at_fpr_interval(np.append(labels, 0), np.append(scores, 0), fpr).estimate == 0


@pytest.mark.parametrize(("n_members", "n_non_members", "fpr"), [(100, 100, 0.01), (50, 50, 0.05), (20, 500, 0.05)])
def test_tpr_intervals_hold_the_true_tpr_95_times_in_100(n_members, n_non_members, fpr):
    # A percentile bootstrap of the same texts does 74 times in the first case.
    rng, n_draws, n_inside = np.random.default_rng(0), 400, 0
    labels, true = np.repeat([1, 0], [n_members, n_non_members]), 0.5
    for _ in range(n_draws):
        interval = tpr_at_fpr_interval(labels, rng.normal(size=len(labels)) + norm.ppf(1 - fpr) * labels, fpr)
        n_inside += interval.low <= true <= interval.high
    assert n_inside / n_draws >= 0.93


def test_the_roc_curve_runs_from_corner_to_corner_and_holds_the_auc():
    labels, scores = random_scores(1)
    fpr, tpr, threshold = roc(labels, scores)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(tpr, fpr) == pytest.approx(auc(labels, scores))
    members, non_members = split(labels, scores)
    assert len(threshold) == len(set(scores)) + 1, "one point a distinct score, and the start"
    for at in range(len(threshold)):
        assert fpr[at] == pytest.approx((non_members >= threshold[at]).mean())
        assert tpr[at] == pytest.approx((members >= threshold[at]).mean())
    assert tpr_at_fpr(labels, scores, fpr=0.2) == pytest.approx(tpr[fpr <= 0.2].max())


METRICS = {
    "auc": auc,
    "aucs": lambda labels, scores: aucs(labels, [scores]),
    "auc_interval": auc_interval,
    "compare_auc": lambda labels, scores: compare_auc(labels, [3, 2, 1, 0][: len(labels)], scores),
    "epsilon_bound": lambda labels, scores: metrics.epsilon_bound(labels, scores, 2),
    "roc": roc,
    "tpr_at_fpr": tpr_at_fpr,
    "tpr_at_fpr_interval": tpr_at_fpr_interval,
}


@pytest.mark.parametrize(
    ("labels", "scores", "said"),
    [
        ([0, 1, 2, 1], [1, 2, 3, 4], "2"),
        ([0.5, 1, 1, 0], [1, 2, 3, 4], r"0\.5"),
        ([1, 1, 1, 1], [1, 2, 3, 4], r"\[1\]"),
        ([0, 0, 0, 0], [1, 2, 3, 4], r"\[0\]"),
        ([0, 1, 1, 0], [1, 2, np.nan, 4], "2 is nan"),
        ([0, 1, 1, 0], [1, -np.inf, 3, 4], "1 is -inf"),
        ([0, 1, 1, 0], [1, 2, 3], r"\(4,\) .*\(3,\)"),
    ],
)
@pytest.mark.parametrize("metric", METRICS)
def test_wrong_input_is_an_error_that_names_it(metric, labels, scores, said):
    with pytest.raises(ValueError, match=said):
        METRICS[metric](labels, scores)


def test_the_paired_difference_of_tprs():
    rng = np.random.default_rng(1)
    labels = np.repeat([1, 0], 200)
    a, b = rng.normal(size=400) + 2 * labels, rng.normal(size=400) + labels
    found = compare_tpr_at_fpr(labels, a, b)
    assert found.difference.estimate == pytest.approx(tpr_at_fpr(labels, a) - tpr_at_fpr(labels, b))
    assert found.difference.low > 0 and found.p_value < 0.01
    reverse = compare_tpr_at_fpr(labels, b, a)
    assert reverse.difference.high == pytest.approx(-found.difference.low) and reverse.p_value == found.p_value
    same = compare_tpr_at_fpr(labels, a, a)
    assert same.difference == Interval(0, 0, 0) and same.p_value == 1


def test_two_certain_tprs_are_not_certainly_equal_and_a_certain_one_has_an_interval():
    labels = np.repeat([1, 0], [30, 100])
    a, b = labels * 1.0, labels * 2.0 + np.linspace(0, 0.1, 130)
    found = compare_tpr_at_fpr(labels, a, b)
    assert found.difference.high == -found.difference.low == pytest.approx(1 - 0.025 ** (1 / 30)) and found.p_value == 1
    assert compare_tpr_at_fpr(labels, a, a).difference == Interval(0, 0, 0)
    labels = np.repeat([1, 0], [40, 400])
    apart = tpr_at_fpr_interval(labels, labels.astype(float))
    assert (apart.estimate, apart.high) == (1, 1) and apart.low == pytest.approx(0.025 ** (1 / 40))
    below = tpr_at_fpr_interval(labels, -labels.astype(float))
    assert (below.estimate, below.low) == (0, 0) and below.high == pytest.approx(1 - 0.025 ** (1 / 40))


@pytest.mark.parametrize("level", [95, 1, 0, -0.5, float("nan")])
def test_a_level_of_confidence_is_a_share(level):
    labels, scores, others = [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0]
    for call in (
        lambda: metrics.auc_interval(labels, scores, level),
        lambda: metrics.compare_auc(labels, scores, others, level=level),
        lambda: metrics.tpr_at_fpr_interval(labels, scores, 0.5, level),
        lambda: metrics.clopper_pearson(1, 4, level),
        lambda: metrics.epsilon_bound(labels, scores, 2, level),
        lambda: calibration.share_of_members(scores, 2, level),
        lambda: calibration.decide(scores, 0.5, is_confident=True, level=level),
    ):
        with pytest.raises(ValueError, match="between 0 and 1"):
            call()


def test_a_bound_of_epsilon_by_hand():
    """All of r guesses are right: the largest q with q^r <= 0.05. Of four, three: q^4 + 4 q^3 (1 - q) <= 0.05."""
    labels, scores = np.repeat([0, 1], 20), np.arange(40.0)
    q = 0.05 ** (1 / 30)
    assert metrics.epsilon_bound(labels, scores, 30) == pytest.approx(np.log(q / (1 - q)))
    assert metrics.epsilon_bound(labels, scores, 40, 0.9) == pytest.approx(
        np.log(0.1 ** (1 / 40) / (1 - 0.1 ** (1 / 40)))
    )
    three = np.array([0, 0, 1, 0, 1, 1, 0, 1])  # of the lowest two both are right, of the highest two one
    level = 1 - (0.6**4 + 4 * 0.6**3 * 0.4)
    assert metrics.epsilon_bound(three, np.arange(8.0), 4, level) == pytest.approx(np.log(0.6 / 0.4))
    assert metrics.epsilon_bound(three, np.arange(8.0), 4) == metrics.epsilon_bound(1 - labels, scores, 4) == 0
    for tied in (labels, 1 - labels):
        assert metrics.epsilon_bound(tied, np.zeros(40), 20) == 0, "the order of tied scores shows nothing"
    for n_guesses in (0, 3, 42):
        with pytest.raises(ValueError, match=f"{n_guesses}"):
            metrics.epsilon_bound(labels, scores, n_guesses)


@pytest.mark.parametrize(("epsilon", "least"), [(0, 0), (0.5, 0.1), (1, 0.5), (3, 2)])
def test_a_bound_of_epsilon_is_above_the_truth_in_one_repeat_of_twenty_at_most(epsilon, least):
    """Randomized response: each text's coin is told with probability e^epsilon / (1 + e^epsilon), else its opposite.

    The number of right guesses is then binomial, so the share of repeats is known exactly; 500 are simulated, too.
    """
    rng, found, truth = np.random.default_rng(7), [], 1 / (1 + np.exp(-epsilon))
    all_right, guesses = np.repeat([0, 1], 200), np.r_[0:100, 300:400]
    wrong = [np.isin(np.arange(400), guesses[n_right:]) for n_right in range(201)]
    bounds = [metrics.epsilon_bound(all_right ^ of, np.arange(400), 200) for of in wrong]
    exact = binom.pmf(np.flatnonzero(np.array(bounds) > epsilon), 200, truth).sum()
    for _ in range(500):
        labels = rng.integers(0, 2, 400)
        told = np.where(rng.random(400) < truth, labels, 1 - labels)
        found.append(metrics.epsilon_bound(labels, told, 200))
    above = np.mean(np.array(found) > epsilon)
    assert 0.03 < exact <= 0.05 and above <= exact + 2 * np.sqrt(exact / 500) and np.median(found) >= least
