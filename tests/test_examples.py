"""Worked examples: cells that add up to the detectors' scores, and a search that finds what brute force finds."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from mialib.book import examples
from mialib.detectors import detect
from mialib.frequency import TokenFrequency
from mialib.metrics import auc
from mialib.token_stats import TokenRow, TokenStats


@pytest.fixture
def stats():
    """Three texts of tokens that repeat."""
    rng = np.random.default_rng(3)
    rows = []
    for n in (1, 7, 23):
        ids = rng.integers(0, 12, n).astype(np.int32)
        column = rng.gamma(2.0, 1.5, n).astype(np.float32)
        rows.append(TokenRow(ids, -column, column, column))
    return TokenStats.from_rows(rows, provenance={})


@pytest.fixture
def frequency():
    return TokenFrequency(counts=np.arange(320)[::-1].copy(), name="counts")


@pytest.mark.parametrize(("k", "a"), [(20, 0.01), (5, 1.0), (100, 10.0)])
def test_cells_add_up_to_both_detectors_scores(stats, frequency, tokenizer, k, a):
    min_k, dc_pdd = detect("min_k", stats, k=k), detect("dc_pdd", stats, frequency=frequency, a=a)
    for i, row in enumerate(stats):
        cells = examples.token_cells(row, frequency, tokenizer, k=k, a=a)
        assert np.mean([c.log_prob for c in cells if c.is_lowest]) == pytest.approx(min_k[i])
        assert np.mean([c.alpha for c in cells if c.is_first]) == pytest.approx(dc_pdd[i])
        assert all((c.alpha == a) == c.is_bounded for c in cells)


def test_cells_show_the_tokens_with_their_spaces(tokenizer, frequency):
    ids = np.array(tokenizer("The mill", add_special_tokens=False)["input_ids"], np.int32)
    ones = np.ones(len(ids), np.float32)
    cells = examples.token_cells(TokenRow(ids, -ones, ones, ones), frequency, tokenizer, k=20, a=0.01)
    assert "".join(cell.text for cell in cells) == "The mill"


def test_commonness_is_the_mean_log_frequency(stats, frequency):
    by_hand = [np.log((frequency.counts[row.token_ids] + 1) / (frequency.counts.sum() + 320)).mean() for row in stats]
    np.testing.assert_allclose(examples.commonness(stats, frequency), by_hand)


@pytest.fixture
def scored():
    """Labels in no order, two detectors' scores with ties, and how common the words are."""
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.repeat([0, 1], [30, 20]))
    return labels, rng.integers(0, 25, 50).astype(float), rng.normal(size=50), rng.normal(size=50)


@pytest.mark.parametrize("uses_common", [True, False])
def test_the_pair_found_is_the_one_that_brute_force_finds(scored, uses_common):
    labels, wrong, right, common = scored
    w, r, c = rankdata(wrong), rankdata(right), rankdata(common)

    def gaps(m, n):
        return [w[n] - w[m], r[m] - r[n]] + ([c[n] - c[m]] if uses_common else [])

    pairs = product(np.flatnonzero(labels == 1), np.flatnonzero(labels == 0))
    kind = {pair: np.prod(gaps(*pair)) for pair in pairs if min(gaps(*pair)) > 0}
    found = examples.find_pair(labels, wrong, right, common if uses_common else None)
    assert kind[found] == max(kind.values())
    assert labels[found[0]] == 1 and labels[found[1]] == 0


def test_no_pair_of_the_kind_is_none():
    labels, perfect = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.8, 0.9])
    assert examples.find_pair(labels, perfect, perfect) is None
    assert examples.find_pair(labels, np.zeros(4), perfect) is None, "a tie is not wrong"


def test_pair_counts_explain_the_difference_of_the_aucs(scored):
    labels, a, b, _ = scored
    untied = np.random.default_rng(0).permutation(50).astype(float)
    counts = examples.count_pairs(labels, untied, b)
    assert sum(counts.values()) == 600
    expected = (counts[False, True] - counts[True, False]) / 600
    assert auc(labels, b) - auc(labels, untied) == pytest.approx(expected)
    differences = examples.pair_differences(labels, a)
    assert sum(examples.count_pairs(labels, a, b).values()) == 600 - np.sum(differences == 0)


def test_share_of_commoner_words_is_of_each_kind_of_pair(scored):
    labels, _, b, common = scored
    shares = examples.share_commoner(labels, common, b, common)
    # Where the first detector is the commonness itself, it is right exactly where the member's words are the commoner.
    assert shares[True, True] == shares[True, False] == 0
    assert shares[False, True] == shares[False, False] == 1
    assert np.isnan(examples.share_commoner(labels, labels, b, common)[False, True])


def test_ranks_begin_at_one_with_the_highest_score():
    assert examples.ranks([0.2, 0.9, 0.5, 0.5]).tolist() == [4, 1, 2, 2]


def test_correlations_are_spearmans_and_their_difference_is_paired(scored):
    _, a, b, common = scored
    found = examples.correlations(common, {"A": a, "B": b})
    assert found["A"].estimate == pytest.approx(spearmanr(common, a)[0])
    assert found["difference"].estimate == pytest.approx(found["A"].estimate - found["B"].estimate)
    same = examples.correlations(common, {"A": a, "again": a})["difference"]
    assert (same.estimate, same.low, same.high) == (0, 0, 0)
    assert examples.correlations(common, {"A": a, "B": b}) == found, "seeded"
    assert all(interval.low <= interval.estimate <= interval.high for interval in found.values())
