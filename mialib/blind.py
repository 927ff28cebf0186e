"""Blind baselines: how well members are told from non-members by the text alone, with no model looked at.

Where this works, members and non-members are two kinds of text, and a detector's AUC on them says little about
membership (Das, Zhang and Tramer 2024; Duan et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin


def _tfidf() -> ClassifierMixin:
    """tf-idf of 1- and 2-grams of words and logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    return make_pipeline(vectorizer, LogisticRegression(C=10.0, max_iter=1000))


BLIND: dict[str, Callable[[], ClassifierMixin]] = {"tfidf": _tfidf}


def blind_scores(
    texts: Sequence[str], labels: ArrayLike, kind: str = "tfidf", *, n_folds: int = 10, seed: int = 0
) -> NDArray[np.float64]:
    """Out-of-fold scores of a text classifier, shape (N,); higher = more likely a member.

    Each text is scored by a classifier, its vocabulary included, that was fitted on the other folds only. Texts that
    are equal share a fold. ValueError for an unknown kind or fewer texts of a class than folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if kind not in BLIND:
        raise ValueError(f"unknown blind baseline {kind!r}; known: {', '.join(BLIND)}")
    labels = np.asarray(labels)
    smallest = np.bincount(labels, minlength=2).min()
    if smallest < n_folds:
        raise ValueError(f"the smaller class has {smallest} texts, fewer than {n_folds} folds")
    scores = np.empty(len(labels))
    folds = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed).split(texts, labels, groups=texts)
    for fitted, held_out in folds:
        classifier = BLIND[kind]().fit([texts[i] for i in fitted], labels[fitted])
        scores[held_out] = classifier.decision_function([texts[i] for i in held_out])
    return scores


def held_out_scores(
    texts: Sequence[str], labels: ArrayLike, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The numbers of a random half of each class, and the scores of tf-idf fitted on the other half.

    One classifier judged on texts that it has nothing to do with: an interval over them is what it says, where one over
    out-of-fold scores is too narrow, because the folds' classifiers share most of their texts.
    """
    from mialib.choose import deal

    labels = np.asarray(labels)
    fitted, judged = deal(labels, 0.5, seed)
    classifier = _tfidf().fit([texts[i] for i in fitted], labels[fitted])
    return judged, classifier.decision_function([texts[i] for i in judged])
