"""Sets of texts, and the page's thresholds, p-values, tests and tables, as its cells define them."""

import math

import matplotlib
import numpy as np
from page_code import functions_of

matplotlib.use("Agg")

from mialib import calibration
from mialib.metrics import Interval
from replication.studies import decisions as d

PAGE = functions_of("decisions")


def test_few_known_non_members_leave_an_fpr_out_and_say_how_many_it_needs():
    """The page's calls on 60 members and 60 non-members, 30 of them known, with its own parameters."""
    rng, fprs = np.random.default_rng(10), [0.01, 0.05, 0.1]
    known, held_out, members = rng.normal(size=30), rng.normal(size=30), 1 + rng.normal(size=60)
    judged = {"held out": {"PPL": held_out}, "members": {"PPL": members}}
    found = d.called({"PPL": known}, judged, fprs, ", noted")
    assert [str(r) for r in found if r.column == "0.01 target, noted"] == ["needs 99"] * 3
    assert [r.metric for r in found[:3]] == ["called: known", "called: held out", "called: members"]
    assert all(r.ours is not None for r in found if r.column != "0.01 target, noted")
    assert d.threshold_table(known, held_out, members, fprs)["threshold"].iloc[0] == "needs 99"
    assert PAGE["right_calls_table"](known, members, fprs).iloc[0].tolist() == ["needs 99"] * 3


def test_the_p_values_of_texts_that_share_known_non_members_stay_in_their_band():
    """The share of 100 unseen texts with p <= 0.1 is in its 95% range as often as it says; a binomial one is short."""
    rng = np.random.default_rng(1)
    p, low, high = d.p_value_band(49, 100)
    at = np.flatnonzero(np.isclose(p, 0.1))[0]
    shares = np.array(
        [(calibration.p_values(rng.normal(size=100), rng.normal(size=49)) <= 0.1).mean() for _ in range(3000)]
    )
    assert 0.95 <= ((low[at] <= shares) & (shares <= high[at])).mean() < 0.98
    binomial = np.abs(shares - 0.1) <= 1.96 * math.sqrt(0.1 * 0.9 / 100)
    assert binomial.mean() < 0.85
    assert d.expected_share(4, 49, 100) == Interval(0.1, low[at], high[at])
