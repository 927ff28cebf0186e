"""How often a set of members would be found."""

import numpy as np
import pytest

from mialib.calibration import set_p_value
from mialib_audit.power import power


def test_the_power_is_how_often_the_sets_test_finds_members():
    rng, found = np.random.default_rng(1), power(10, 20, 0.05)
    assert [row["auc"] for row in found] == sorted(row["auc"] for row in found)
    shift = np.sqrt(2) * 0.8416  # of normal scores whose AUC is 0.8
    p = [set_p_value(rng.normal(shift, size=10), rng.normal(size=20)) for _ in range(500)]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(found[-1]["power"], abs=0.06)
