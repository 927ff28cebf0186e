"""The shift dial and the mirror test: what a shift does to detectors where membership is the same."""

from dataclasses import replace

import numpy as np
import oracles
import pytest

from mialib.benchmarks import Benchmark
from mialib.book import shift
from mialib.book.results import Result
from mialib.metrics import Interval, auc_interval

WORDS = [f"word{i}" for i in range(60)]


def step(name, words, scores_of_others, n_others, rng):
    """The same 60 members, and others made of some of the words, with scores."""
    members = [" ".join(np.random.default_rng(i).choice(WORDS[:40], 30)) for i in range(60)]
    texts = (*members, *(" ".join(rng.choice(words, 30)) for _ in range(n_others)))
    benchmark = Benchmark(name, texts, np.repeat([1, 0], [60, n_others]), f"revision of {name}")
    of_members = np.random.default_rng(1).normal(1, 1, 60)
    return shift.Step(name, benchmark, {"d": np.concatenate([of_members, scores_of_others])})


@pytest.fixture(scope="module")
def steps():
    """Own non-members, others of the same kind, and others of another that score lower."""
    rng = np.random.default_rng(2)
    return [
        step("own", WORDS[:40], rng.normal(0, 1, 60), 60, rng),
        step("alike", WORDS[:40], rng.normal(0, 1, 80), 80, rng),
        step("elsewhere", WORDS[20:], rng.normal(-2, 1, 50), 50, rng),
    ]


@pytest.fixture(scope="module")
def measured(steps):
    return shift.measure(steps)


def test_each_step_holds_the_same_members_against_its_non_members(steps, measured):
    found = {(r.row, r.column): r for r in measured}
    for s in steps:
        assert found["d", s.column].interval == auc_interval(s.benchmark.labels, s.scores["d"])


def test_the_mirror_shows_a_shift_and_nothing_else(steps, measured):
    found = {(r.row, r.column): r for r in measured}
    own = steps[0].scores["d"][60:]
    for s in steps[1:]:
        assert found["d", s.mirror].ours == pytest.approx(oracles.auc(own, s.scores["d"][60:]))
    alike, elsewhere = (found["d", s.mirror] for s in steps[1:])
    assert alike.low < 0.5 < alike.high and elsewhere.low > 0.5
    assert ("d", steps[0].mirror) not in found, "the members' own non-members are no mirror of themselves"


def test_the_blind_baseline_says_how_far_apart_the_texts_are(steps, measured):
    found = {r.column: r for r in measured if r.row == "Blind: tf-idf"}
    assert all(0.25 < found[c].ours < 0.75 for c in (steps[0].column, steps[1].column, steps[1].mirror))
    assert found[steps[2].column].low > 0.8 and found[steps[2].mirror].low > 0.8


def test_the_figure_has_a_panel_of_members_and_one_of_the_mirror(steps, measured):
    panels = shift.curves(measured, steps)
    assert {title: list(points["d"]) for title, points in panels.items()} == {
        "members − non-members": [0, 1, 2],
        "mirror: no member on either side": [1, 2],
    }


def test_the_words_name_the_detectors_that_a_shift_misleads_and_in_which_direction(steps, measured):
    said = shift.say_mirror(measured, steps).splitlines()
    assert "alike" in said[0] and "above 0.5" in said[0] and "members: none; surely below" in said[0]
    assert "elsewhere" in said[1] and "members: d; surely below" in said[1]
    turned = [replace(s, scores={"d": -s.scores["d"]}) for s in steps]
    assert said != (other := shift.say_mirror(shift.measure(turned), turned).splitlines())
    assert other[1].endswith("strangers for members: d.")


@pytest.mark.parametrize("sign", [1, -1])
def test_sure_is_what_holds_for_all_detectors_of_a_step_at_once(steps, sign):
    """An AUC 2.3 standard errors from 0.5: beyond 1.96, of one detector, and not beyond 2.69, of seven."""

    def said(n_detectors, at):
        estimate = 0.5 + sign * at * 0.02
        interval = Interval(estimate, estimate - 1.96 * 0.02, estimate + 1.96 * 0.02)
        rows = (f"d{i}" for i in range(n_detectors))
        found = [Result.of(row=row, column=steps[1].mirror, metric="auc", interval=interval) for row in rows]
        return shift.say_mirror(found, steps[:2])

    assert "d0" in said(1, 2.3) and "d0" not in said(1, 1.9)
    assert "d0" not in said(7, 2.3) and "d0" in said(7, 2.8)


def test_two_steps_of_one_name_are_an_error_that_names_it(steps):
    with pytest.raises(ValueError, match="two steps are named 'alike'"):
        shift.measure([*steps[:2], replace(steps[2], name="alike")])


def test_other_members_are_an_error_that_counts_them(steps):
    other = replace(steps[1], benchmark=replace(steps[1].benchmark, texts=("new", *steps[1].benchmark.texts[1:])))
    with pytest.raises(ValueError, match="own and alike have different members \\(1 of the first's 60"):
        shift.measure([steps[0], other])
