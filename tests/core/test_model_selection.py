"""Choosing hyperparameters: on the texts that are judged, or on others that the judged ones are kept away from."""

import numpy as np
import pytest

from mialib import model_selection
from mialib.model_selection import HELD_OUT, Candidates, stratified_split

LABELS = np.repeat([1, 0], [6, 10])
MANY = np.tile([1, 0, 0], 40)  # 40 members, 80 non-members, dealt in turn


def candidates_of(*scores):
    return Candidates(tuple({"k": float(10 * i)} for i in range(1, 1 + len(scores))), np.array(scores, float))


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


def test_dealing_out_is_seeded_and_exact():
    first, _ = stratified_split(np.repeat([1, 0], [100, 50]), 0.14)  # in floating point a little over 14 and over 7
    assert 0.14 * 50 > 7 and len(first) == 14 + 7
    assert [part.tolist() for part in stratified_split(MANY, 0.2, 1)] == [
        part.tolist() for part in stratified_split(MANY.tolist(), 0.2, 1)
    ]
    drawn = {tuple(stratified_split(MANY, 0.2, seed)[0]) for seed in range(5)}
    assert len(drawn) == 5
    drawn = np.concatenate([stratified_split(MANY, 0.2, seed)[0] for seed in range(500)])
    often = np.bincount(drawn, minlength=120) / 500
    assert often.min() > 0.12 and often.max() < 0.28, "each text has the same chance"
    for share in (0, 1, -0.1, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            stratified_split(LABELS, share)


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


def test_five_folds_choose_on_each_text_once_and_each_for_itself():
    found = model_selection.folds(MANY)
    assert sorted(np.concatenate([val_idx for val_idx, _ in found])) == list(range(120))
    for val_idx, test_idx in found:
        assert sorted([*val_idx, *test_idx]) == list(range(120))
        assert MANY[val_idx].mean() == pytest.approx(MANY.mean(), abs=0.05)
    found = [val_idx for val_idx, _ in model_selection.folds(MANY)]
    scores = [np.where(np.isin(np.arange(120), val_idx), MANY, -MANY) for val_idx in found]
    candidates = candidates_of(*scores)
    chosen = candidates.by_fold(MANY)
    assert chosen.options == candidates.options and chosen.scores.tolist() == candidates.scores.tolist()
    alone = candidates_of(scores[0]).by_fold(MANY)
    assert alone.options == candidates.options[:1] * 5 and alone.scores.shape == (5, 120)


def test_whole_documents_are_dealt_out():
    document = np.repeat(np.arange(12), 5)
    labels = (document < 8).astype(int)
    first, second = stratified_split(labels, 0.25, 3, document * 7 + 2)
    assert sorted([*first, *second]) == list(range(60))
    assert not set(document[first]) & set(document[second])
    assert len(set(document[first][labels[first] == 1])) == 2 and len(set(document[first][labels[first] == 0])) == 1
