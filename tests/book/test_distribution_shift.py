"""The distribution-shift sweep: which detectors a shift surely misleads, and that its steps share their members."""

import matplotlib
import numpy as np
import pytest
from page_code import functions_of

matplotlib.use("Agg")

from mialib.benchmarks import Benchmark
from mialib.metrics import Interval
from mialib.passes.inputs import Target, inputs_of
from replication import pages


@pytest.mark.parametrize("sign", [1, -1])
def test_sure_is_what_holds_for_all_detectors_of_a_step_at_once(sign):
    """An AUC 2.3 standard errors from 0.5: beyond 1.96, of one detector, and not beyond 2.69, of seven."""
    surely_misled = functions_of("distribution_shift")["surely_misled"]

    def said(n_detectors, at):
        estimate = 0.5 + sign * at * 0.02
        interval = Interval(estimate, estimate - 1.96 * 0.02, estimate + 1.96 * 0.02)
        above, below = surely_misled({f"d{i}": interval for i in range(n_detectors)})
        assert not (below if sign > 0 else above)
        return above or below

    assert "d0" in said(1, 2.3) and "d0" not in said(1, 1.9)
    assert "d0" not in said(7, 2.3) and "d0" in said(7, 2.8)


def test_other_members_are_an_error_that_counts_them():
    def column(name, *texts):
        return inputs_of(Target(model="m", benchmark=name), Benchmark(name, texts, np.array([1, 1, 0]), "r"))

    own = column("own", "a", "b", "c")
    pages.check_same_members([own, column("alike", "b", "a", "d")])
    with pytest.raises(ValueError, match=r"own and other .*1 .*2"):
        pages.check_same_members([own, column("other", "new", "a", "c")])
