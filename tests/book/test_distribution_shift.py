"""The distribution-shift sweep and the non-member control: what a shift does where membership is the same."""

from dataclasses import replace

import matplotlib
import numpy as np
import oracles
import pytest
from page_code import functions_of, method_of

matplotlib.use("Agg")

from mialib.benchmarks import Benchmark
from mialib.metrics import Interval, auc_interval
from mialib.passes.inputs import Target, inputs_of
from replication import pages

WORDS = [f"word{i}" for i in range(60)]


def step(name, words, scores_of_others, n_others, rng):
    """The same 60 members, and others made of some of the words, with scores."""
    members = [" ".join(np.random.default_rng(i).choice(WORDS[:40], 30)) for i in range(60)]
    texts = (*members, *(" ".join(rng.choice(words, 30)) for _ in range(n_others)))
    benchmark = Benchmark(name, texts, np.repeat([1, 0], [60, n_others]), f"revision of {name}")
    of_members = np.random.default_rng(1).normal(1, 1, 60)
    inputs = inputs_of(Target(model="made/model", benchmark=name), benchmark)
    return inputs, {"d": np.concatenate([of_members, scores_of_others])}


@pytest.fixture(scope="module")
def steps():
    """Own non-members, others of the same kind, and others of another that score lower."""
    rng = np.random.default_rng(2)
    return {
        "own": step("own", WORDS[:40], rng.normal(0, 1, 60), 60, rng),
        "alike": step("alike", WORDS[:40], rng.normal(0, 1, 80), 80, rng),
        "elsewhere": step("elsewhere", WORDS[20:], rng.normal(-2, 1, 50), 50, rng),
    }


@pytest.fixture(scope="module")
def page(steps):
    """What the visible cells of the sweep make of these steps."""
    return method_of(
        "distribution_shift",
        **functions_of("distribution_shift"),
        names=list(steps),
        steps={name: inputs for name, (inputs, _) in steps.items()},
        all_scores={name: scores for name, (_, scores) in steps.items()},
    )


def test_the_control_shows_a_shift_and_nothing_else(steps, page):
    assert list(page["control"]) == ["own − alike (control)", "own − elsewhere (control)"], (
        "own is no control of itself"
    )
    own, intervals = steps["own"][1]["d"][60:], []
    for name, (benchmark, scores) in zip(["alike", "elsewhere"], page["control"].values(), strict=True):
        shifted, of_shifted = steps[name]
        assert benchmark.texts == steps["own"][0].texts[60:] + shifted.texts[60:]
        assert benchmark.labels.tolist() == [1] * 60 + [0] * (len(shifted.texts) - 60)
        intervals.append(auc_interval(benchmark.labels, scores["d"]))
        assert intervals[-1].estimate == pytest.approx(oracles.auc(own, of_shifted["d"][60:]))
    alike, elsewhere = intervals
    assert alike.low < 0.5 < alike.high and elsewhere.low > 0.5


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


def test_other_members_are_an_error_that_counts_them(steps):
    own, alike = steps["own"][0], steps["alike"][0]
    pages.check_same_members([own, alike])
    texts = ("new", *alike.texts[1:])
    other = inputs_of(alike.target, replace(alike.benchmark, texts=texts))
    with pytest.raises(ValueError, match=r"own and alike .*1 .*60"):
        pages.check_same_members([own, other])
