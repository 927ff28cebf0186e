"""Blind baselines: how well the texts alone separate members from non-members, without the model.

Where they do, a detector's AUC says little about membership (Das, Zhang and Tramer 2024; Duan et al. 2024). Each text
is scored by a classifier fitted on the other folds, its hyperparameters chosen by an inner cross-validation on them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from mialib.model_selection import Indices, stratified_split
from mialib.plain import check_one_of, plain_array, plain_list
from mialib.text import check_texts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.base import ClassifierMixin

    Features: TypeAlias = csr_matrix | NDArray[np.float64]
    Folds = list[tuple[Indices, Indices]]  # each: texts to fit on, texts to judge by
    FoldsFor = Callable[[], Folds]  # called by the classifiers that choose hyperparameters

N_FOLDS = 10
INNER_FOLDS = 3  # to choose hyperparameters on
YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)")  # four digits, 1500 to 2099, not within a longer number


class TooFewTexts(ValueError):
    """A class has fewer texts than there are folds."""


@dataclass(frozen=True)
class Baseline:
    """One way to tell texts apart: the features of a text, and the classifier that reads them."""

    label: str
    features: Callable[[tuple[str, ...], str], Features]  # of texts and their language, (N, D); each from its own text
    classifier: Callable[[FoldsFor], ClassifierMixin]  # given the inner folds of the texts that it will be fitted on
    min_texts: int = 0  # an n-gram that is in fewer of the fitted texts is left out


@lru_cache(maxsize=1)  # two baselines read those of a benchmark
def _named_ngrams(texts: tuple[str, ...], language: str) -> tuple[NDArray[Any], csr_matrix]:
    """Each word and each pair of words, (D,), and their counts; in Chinese, which has no spaces, characters."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(ngram_range=(1, 2), analyzer="char" if language == "zh" else "word")
    if not any(map(counter.build_analyzer(), texts)):  # no words at all are an error to CountVectorizer
        return np.array([], object), scipy.sparse.csr_matrix((len(texts), 0))
    counts = counter.fit_transform(texts).tocsr()
    return counter.get_feature_names_out(), counts


def _ngrams(texts: tuple[str, ...], language: str) -> csr_matrix:
    return _named_ngrams(texts, language)[1]


def _shape(text: str) -> str:
    """How a text is written, without its words: a run of small letters is "a", of digits "0", a capital "A"."""
    shape = re.sub(r"[^\W\d_]", lambda letter: "A" if letter[0].isupper() else "a", text)
    return "^" + re.sub(r"a+", "a", re.sub(r"\d+", "0", shape)) + "$"


def _signs(texts: Sequence[str], language: str) -> csr_matrix:
    """Counts of each character and each pair of characters of the texts' shapes."""
    from sklearn.feature_extraction.text import CountVectorizer

    def signs(text: str) -> list[str]:  # the vectorizer's own analyzer of characters makes one space of several
        shape = _shape(text)
        return [*shape, *map("".join, pairwise(shape))]

    return CountVectorizer(analyzer=signs).fit_transform(texts).tocsr()


def _compressed_size(texts: Sequence[str], language: str) -> NDArray[np.float64]:
    return np.log([[len(zlib.compress(text.encode()))] for text in texts])


def _latest_year(texts: Sequence[str], language: str) -> NDArray[np.float64]:
    """The latest year that each text mentions, 0 where it mentions none."""
    return np.array([[max(map(float, YEAR.findall(text)), default=0.0)] for text in texts])


def _tfidf(folds: FoldsFor) -> ClassifierMixin:
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    grid = {"C": [1.0, 10.0, 100.0]}
    regression = GridSearchCV(LogisticRegression(max_iter=1000), grid, scoring="roc_auc", cv=folds())
    return make_pipeline(TfidfTransformer(sublinear_tf=True), regression)


def _naive_bayes(folds: FoldsFor) -> ClassifierMixin:
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import MultinomialNB

    return GridSearchCV(MultinomialNB(), {"alpha": [0.01, 0.1, 1.0]}, scoring="roc_auc", cv=folds())


def _trees(folds: FoldsFor) -> ClassifierMixin:
    """For a number that need not rise or fall with membership."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=4, min_samples_leaf=5, early_stopping=False)


def _regression(folds: FoldsFor) -> ClassifierMixin:
    """For a number that rises or falls with membership."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression())


BLIND: dict[str, Baseline] = {
    "tfidf": Baseline("tf-idf", _ngrams, _tfidf, min_texts=2),
    "naive_bayes": Baseline("naive Bayes", _ngrams, _naive_bayes, min_texts=1),
    "formatting": Baseline("formatting", _signs, _tfidf, min_texts=2),
    "year": Baseline("latest year", _latest_year, _trees),
    "length": Baseline("text length", lambda texts, _: np.log([[len(text)] for text in texts]), _regression),
    "zlib": Baseline("compressed size", _compressed_size, _regression),
}


def blind_scores(
    texts: Sequence[str],
    labels: ArrayLike,
    kind: str = "tfidf",
    *,
    language: str = "en",
    groups: ArrayLike | None = None,
    n_folds: int = N_FOLDS,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Score N texts without the model, (N,); higher = more likely a member.

    `kind` is a key of BLIND, `labels` (N,) are 1 for members. `groups` (N,) name texts that must share a fold, such as
    the snippets of a document; by default these are equal texts. All scores are 0 if no two texts share an n-gram.
    ValueError for an unknown kind and for lists of unequal length; TooFewTexts, a ValueError, if a class has fewer
    texts (or groups) than there are folds.

    >>> labels = [i % 2 for i in range(40)]
    >>> texts = ["stone " * (1 + label) + str(i) for i, label in enumerate(labels)]
    >>> auc(labels, blind_scores(texts, labels, "length"))
    1.0
    """
    check_one_of(kind, BLIND, "blind baseline")
    texts, labels, groups = _in_groups(texts, labels, groups)
    smallest = min(len(np.unique(groups[labels == label])) for label in (0, 1))
    if smallest < n_folds:
        raise TooFewTexts(f"the smaller class has {smallest} texts, and cross-validation needs at least {n_folds}")
    features = BLIND[kind].features(tuple(texts), language)
    scores = np.empty(len(labels))
    with threadpool_limits(1):  # a second thread makes so small a fit no faster, and far slower on a busy machine
        for fitted, held_out in _folds_to_judge_by(tuple(labels), tuple(groups), n_folds, seed):
            of_fold = _fit_and_score(BLIND[kind], features, labels, groups, fitted, held_out)
            scores[held_out] = _aligned(of_fold, labels[held_out])
    return scores


def blind_words(
    texts: Sequence[str], labels: ArrayLike, n: int = 15, *, language: str = "en", groups: ArrayLike | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """The words by which `tfidf`, fitted on all texts, tells members, and those by which it tells non-members.

    At most `n` single words of each side (in Chinese characters and pairs of them) with their weights, the strongest
    first; none where too few texts share a word. Texts that differ in nothing have such words, too: by chance.
    """
    texts, labels, groups = _in_groups(texts, labels, groups)
    words, counts = _named_ngrams(tuple(texts), language)
    is_common = counts.getnnz(axis=0) >= BLIND["tfidf"].min_texts
    if not is_common.any():
        return {}, {}
    classifier = _tfidf(lambda: _folds_to_choose_by(labels, groups))
    with threadpool_limits(1):
        weights = classifier.fit(counts[:, is_common], labels)[-1].best_estimator_.coef_[0]
    order = np.argsort(-weights, kind="stable")
    weight_of = {word: float(weight) for word, weight in zip(words[is_common][order], weights[order], strict=True)}
    single = [(word, weight) for word, weight in weight_of.items() if " " not in word]
    return dict(pair for pair in single[:n] if pair[1] > 0), dict(pair for pair in single[: -n - 1 : -1] if pair[1] < 0)


def _in_groups(
    texts: Sequence[str], labels: ArrayLike, groups: ArrayLike | None
) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    """Texts with their labels and groups, those of equal texts if none are given; ValueError for unequal lengths."""
    texts, labels = check_texts(texts, "texts"), plain_array(labels, "labels")
    if groups is None:
        groups = np.unique(np.array(texts, object), return_inverse=True)[1]
    groups = np.array(plain_list(groups, "groups"))
    if not len(texts) == len(labels) == len(groups):
        raise ValueError(f"{len(texts)} texts have {len(labels)} labels and {len(groups)} groups; each needs one")
    return texts, labels, groups


def _aligned(scores: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    """A fold's scores, centred at the midpoint of its two class means and scaled to unit root mean square.

    A fold's classifier has a level and a scale of its own; pooled as they are, scores put chance below an AUC of 0.5.
    """
    if np.ptp(scores) <= 1e-12 * max(1.0, np.abs(scores).max()):  # all alike, but for rounding
        return np.zeros(len(scores))
    classes = [scores[labels == label] for label in np.unique(labels)]
    middle = np.mean([of_class.mean() for of_class in classes])
    return (scores - middle) / np.sqrt(np.mean([np.square(of_class - middle).mean() for of_class in classes]))


@lru_cache(maxsize=1)  # dealing groups out takes long, and all baselines of a benchmark have the same folds
def _folds_to_judge_by(labels: tuple[Any, ...], groups: tuple[Any, ...], n_folds: int, seed: int) -> Folds:
    from sklearn.model_selection import StratifiedGroupKFold

    return list(StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed).split(labels, labels, groups))


def _folds_to_choose_by(labels: NDArray[Any], groups: NDArray[Any]) -> Folds:
    """Folds of whole groups, stratified by the label of each one's first text."""
    from sklearn.model_selection import StratifiedKFold

    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    if (smallest := min(len(np.unique(groups[labels == label])) for label in (0, 1))) < INNER_FOLDS:
        raise TooFewTexts(f"the smaller class has {smallest} texts to choose by, fewer than {INNER_FOLDS} folds")
    folds = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=0).split(first, labels[first])
    return [(np.flatnonzero(np.isin(group, fit)), np.flatnonzero(np.isin(group, judge))) for fit, judge in folds]


def _fit_and_score(
    baseline: Baseline, features: Any, labels: NDArray[Any], groups: NDArray[Any], fitted: Indices, scored: Indices
) -> NDArray[np.float64]:
    if baseline.min_texts:
        features = features[:, features[fitted].getnnz(axis=0) >= baseline.min_texts]
    if not features.shape[1]:
        return np.zeros(len(scored))
    classifier = baseline.classifier(lambda: _folds_to_choose_by(labels[fitted], groups[fitted]))
    classifier.fit(features[fitted], labels[fitted])
    if hasattr(classifier, "decision_function"):
        return classifier.decision_function(features[scored])
    log_p = classifier.predict_log_proba(features[scored])  # naive Bayes, (N, 2)
    return log_p[:, 1] - log_p[:, 0]


def held_out_scores(
    texts: Sequence[str], labels: ArrayLike, seed: int = 0, language: str = "en", groups: Sequence[str] | None = None
) -> tuple[Indices, NDArray[np.float64]]:
    """The numbers of a random half of each class, and its scores by tf-idf fitted on the other half, (H,) each.

    Texts of one group, by default equal texts, are in one half: no judged text was fitted on.
    """
    names = texts if groups is None else groups
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    labels, group = np.asarray(labels), np.array([number[name] for name in names])
    first = np.unique(group, return_index=True)[1]
    fitted, judged = (np.flatnonzero(np.isin(group, half)) for half in stratified_split(labels[first], 0.5, seed))
    with threadpool_limits(1):
        return judged, _fit_and_score(BLIND["tfidf"], _ngrams(tuple(texts), language), labels, group, fitted, judged)
