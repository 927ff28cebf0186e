"""Blind baselines: chance where the coin decided, far above it where the texts differ."""

import numpy as np
import pytest

from mialib.blind import blind_scores
from mialib.metrics import auc

WORDS = [f"word{i}" for i in range(200)]


def random_texts(n, rng, words=WORDS):
    return [" ".join(rng.choice(words, 40)) for _ in range(n)]


def test_random_labels_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([0, 1], 200))
    assert 0.4 < auc(labels, blind_scores(random_texts(400, rng), labels)) < 0.6


def test_a_shift_in_vocabulary_is_found():
    rng = np.random.default_rng(0)
    texts = random_texts(100, rng, WORDS[:150]) + random_texts(100, rng, WORDS[50:])
    labels = np.repeat([0, 1], 100)
    assert auc(labels, blind_scores(texts, labels)) > 0.95


def test_no_text_is_scored_by_a_classifier_that_saw_it_or_its_copy():
    # Each text twice, with random labels: a fold that held one copy would remember the other's label.
    rng = np.random.default_rng(0)
    texts, labels = random_texts(100, rng) * 2, np.tile(rng.permutation(np.repeat([0, 1], 50)), 2)
    assert 0.35 < auc(labels, blind_scores(texts, labels)) < 0.65


def test_errors_name_the_kind_and_the_fold_size():
    with pytest.raises(ValueError, match="unknown blind baseline 'oracle'; known: tfidf"):
        blind_scores(["a", "b"], [0, 1], "oracle")
    with pytest.raises(ValueError, match="smaller class has 1 texts, fewer than 10 folds"):
        blind_scores(["a", "b"], [0, 1])
