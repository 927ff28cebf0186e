"""Choosing hyperparameters: on the texts that are judged, or on others that the judged ones are kept away from."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import made_inputs, random_rows

from mialib import model_selection as choose
from mialib.model_selection import GRIDS, HELD_OUT, Candidates, stratified_split, score_grid
from mialib.detectors import detect
from mialib.frequency import TokenFrequency
from mialib.metrics import auc

LABELS = np.repeat([1, 0], [6, 10])
MANY = np.tile([1, 0, 0], 40)  # 40 members, 80 non-members, dealt in turn


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=16) + LABELS


@pytest.fixture
def inputs():
    """Twelve made texts of many lengths."""
    return made_inputs(random_rows(0, [1, 2, 3, 5, 8, 17, 60, 33, 20, 21, 22, 23]), np.tile([1, 0], 6))


def candidates_of(*scores):
    return Candidates(tuple({"k": float(10 * i)} for i in range(1, 1 + len(scores))), np.array(scores, float))


# --- dealing out ---


@pytest.mark.parametrize(
    ("share", "n_members", "n_non_members"),
    [(0.2, 3, 2), (0.5, 8, 4), (0.01, 1, 1), (0.9, 14, 7)],  # of 15 and 7
)
def test_dealing_out_gives_each_class_its_share_rounded_up_and_loses_no_text(share, n_members, n_non_members):
    labels = np.random.default_rng(0).permutation(np.repeat([1, 0], [15, 7]))
    first, second = stratified_split(labels, share)
    assert labels[first].sum() == n_members and (labels[first] == 0).sum() == n_non_members
    assert sorted([*first, *second]) == list(range(22)), "no text twice, none left out"
    assert (np.diff(first) > 0).all() and (np.diff(second) > 0).all()


def test_a_whole_share_stays_whole_in_spite_of_rounding():
    first, _ = stratified_split(np.repeat([1, 0], [100, 50]), 0.14)  # in floating point a little over 14 and over 7
    assert 0.14 * 50 > 7 and len(first) == 14 + 7


def test_dealing_out_is_seeded():
    assert [part.tolist() for part in stratified_split(MANY, 0.2, 1)] == [part.tolist() for part in stratified_split(MANY.tolist(), 0.2, 1)]
    drawn = {tuple(stratified_split(MANY, 0.2, seed)[0]) for seed in range(5)}
    assert len(drawn) == 5
    often = np.bincount(np.concatenate([stratified_split(MANY, 0.2, seed)[0] for seed in range(500)]), minlength=120) / 500
    assert often.min() > 0.12 and often.max() < 0.28, "each text has the same chance"


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
def test_a_share_that_leaves_one_side_empty_is_an_error(share):
    with pytest.raises(ValueError, match=r"lies in \(0, 1\)"):
        stratified_split(LABELS, share)


# --- grids ---


def test_the_best_is_chosen_on_the_given_texts_alone():
    val_idx, others = stratified_split(MANY, HELD_OUT)
    there, elsewhere = np.zeros(120), np.zeros(120)
    there[val_idx], there[others] = MANY[val_idx], -MANY[others]
    elsewhere[others] = MANY[others]
    candidates = candidates_of(np.zeros(120), elsewhere, there, there)
    assert candidates.best(MANY, val_idx) == 2, "the first of the two that are best there"
    assert candidates.best(MANY, others) == candidates.best(MANY) == 1
    assert candidates.take(val_idx).best(MANY[val_idx]) == 2
    assert candidates.take(val_idx).options == candidates.options


def test_surps_grid_is_the_detector_cell_by_cell_in_the_order_of_its_options(inputs):
    found = score_grid(inputs, "surp", GRIDS["surp"])
    assert len(found.options) == 200
    assert found.options[:2] == ({"entropy_threshold": 0.5, "k": 10}, {"entropy_threshold": 0.5, "k": 20})
    for options, scores in zip(found.options, found.scores, strict=True):
        np.testing.assert_allclose(scores, detect("surp", inputs.stats, **options), atol=1e-12)


@pytest.mark.parametrize(
    ("detector", "grid"),
    [
        ("min_k", GRIDS["min_k"]),
        ("min_k++", {"k": [20, 5]}),
        ("surp", {"k": [40, 100], "entropy_threshold": [2.5, np.inf]}),  # the other way round
        ("surp", {"entropy_threshold": [2.5, np.inf], "k": [100.0]}),
        ("surp", {"entropy_threshold": [1.0, 3.0]}),
        ("ppl", {}),
    ],
)
def test_any_grid_is_the_detector_point_by_point(inputs, detector, grid):
    found = score_grid(inputs, detector, grid)
    assert found.scores.shape == (np.prod([len(values) for values in grid.values()], dtype=int), 12)
    for options, scores in zip(found.options, found.scores, strict=True):
        assert list(options) == list(grid)
        np.testing.assert_allclose(scores, detect(detector, inputs.stats, **options), atol=1e-12)


def test_the_grids_are_the_papers():
    assert GRIDS["surp"]["entropy_threshold"] == [i / 2 for i in range(1, 21)]
    assert GRIDS["surp"]["k"] == GRIDS["min_k"]["k"] == [10 * i for i in range(1, 11)]


# --- both ways ---


def test_the_gap_is_what_the_texts_chosen_on_lose_on_the_others(monkeypatch):
    val_idx, test_idx = stratified_split(MANY, HELD_OUT)
    perfect_there = np.where(np.isin(np.arange(120), val_idx), MANY, -MANY)
    middling = np.random.default_rng(0).normal(size=120) + MANY
    monkeypatch.setattr(choose, "GAP_SPLITS", 1)
    once = choose.gap(candidates_of(middling, perfect_there), MANY)
    assert once.mean == pytest.approx(auc(MANY[test_idx], middling[test_idx])), "minus an AUC of 0"
    assert once.mean == once.largest


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_never_negative_and_lies_in_its_range(seed):
    scores = np.random.default_rng(seed).normal(size=(30, 120))  # nothing is to be chosen: the best is luck
    found = choose.gap(candidates_of(*scores), MANY)
    assert 0.05 < found.mean <= found.largest
    assert choose.gap(candidates_of(*scores), MANY) == found, "seeded"


def test_one_candidate_leaves_no_gap():
    assert str(choose.gap(candidates_of(np.arange(120)), MANY)) == "0.000 (up to 0.000)"


def test_five_folds_choose_on_each_text_once():
    found = choose.folds(MANY)
    assert sorted(np.concatenate([val_idx for val_idx, _ in found])) == list(range(120))
    for val_idx, test_idx in found:
        assert sorted([*val_idx, *test_idx]) == list(range(120))
        assert MANY[val_idx].mean() == pytest.approx(MANY.mean(), abs=0.05)


def test_the_value_is_chosen_on_one_half_and_judged_on_the_other(scores):
    val_idx, test_idx = stratified_split(LABELS, 0.5)
    perfect_there = scores.copy()
    perfect_there[val_idx], perfect_there[test_idx] = LABELS[val_idx], -LABELS[test_idx]
    best, comparison = choose.choose_and_judge(LABELS, {5.0: -LABELS * 1.0, 10.0: perfect_there, 20.0: scores}, 20.0)
    assert best == 10.0
    assert auc(LABELS[test_idx], perfect_there[test_idx]) == 0
    assert comparison.difference.estimate == pytest.approx(auc(LABELS[test_idx], scores[test_idx]))


def test_each_side_has_the_bound_that_fits_it():
    # Every p is multiplied by log 10 or by log 100, twice that, so a cut at p = 0.17 is a = 0.4 or a = 0.8. There the
    # members' lie higher; at a cut below 0.1 all are alike, and above 0.3 the non-members' 0.9 is too much.
    rows = [(np.log([0.2, 0.2]), [1, 1]), (np.log([0.1, 0.9]), [1, 1])] * 10
    texts = made_inputs(rows, [1, 0] * 10)
    flat, doubled = (replace(texts, frequency=TokenFrequency(np.zeros(n, np.int64), "flat")) for n in (10, 100))
    val_idx, test_idx = stratified_split(texts.labels, 0.5)
    bounds, comparison = choose.fit_and_compare(flat, doubled, [0.4, 0.8], val_idx, test_idx)
    assert bounds == (0.4, 0.8) and comparison.difference.estimate == 0
    _, one_for_both = choose.fit_and_compare(flat, doubled, [0.4], val_idx, test_idx)
    assert one_for_both.difference.estimate == 0.5
    swapped, _ = choose.fit_and_compare(doubled, flat, [0.4, 0.8], test_idx, val_idx)
    assert swapped == (0.8, 0.4)


def test_options_are_described_in_a_few_characters():
    assert choose.describe_options({"entropy_threshold": 2.5, "k": 40.0}) == "ε = 2.5, k = 40"
    assert choose.describe_options({}) == ""
