"""How often a set of members would be found."""

from math import comb

import numpy as np
import pytest

from mialib.calibration import set_p_value
from mialib_audit.power import fewest_pairs, power, rank_sum_p


def test_rank_sums_by_hand():
    """Of the 6 orders of two and two texts 1, 1, 2, 1, 1 have 0, 1, 2, 3, 4 pairs; of 8 and 20 one has all pairs."""
    assert [rank_sum_p(k, 2, 2) for k in range(5)] == pytest.approx([1, 5 / 6, 4 / 6, 2 / 6, 1 / 6])
    assert rank_sum_p(160, 8, 20) == pytest.approx(1 / comb(28, 8))
    assert (fewest_pairs(2, 2, 0.5), fewest_pairs(2, 2, 0.05)) == (3, 5), "no p is as low as 0.05"


def test_the_power_is_how_often_the_sets_test_finds_members():
    rng, found = np.random.default_rng(1), power(10, 20, 0.05)
    assert [row["auc"] for row in found] == sorted(row["auc"] for row in found)
    shift = np.sqrt(2) * 0.8416  # of normal scores whose AUC is 0.8
    p = [set_p_value(rng.normal(shift, size=10), rng.normal(size=20)) for _ in range(500)]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(found[-1]["power"], abs=0.06)
