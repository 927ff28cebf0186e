"""Choosing hyperparameters from a grid of candidates: on the judged texts, as the papers do, or on others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.metrics import FloatArray, aucs
from mialib.plain import check_share

Indices = NDArray[np.int64]
Grid = Mapping[str, Sequence[float]]

HELD_OUT = 0.2  # the share of the texts that hyperparameters are chosen on


@dataclass(frozen=True)
class Candidates:
    """A detector's scores at every point of a grid."""

    options: tuple[dict[str, float], ...]  # C of them
    scores: FloatArray  # (C, N)

    def best(self, labels: ArrayLike, texts: Indices | slice = slice(None)) -> int:
        """The candidate with the highest AUC on the texts with these numbers; the first of several."""
        return int(aucs(np.asarray(labels)[texts], self.scores[:, texts]).argmax())

    def take(self, texts: Indices) -> Self:
        """The same candidates on some of the texts."""
        return replace(self, scores=self.scores[:, texts])

    def by_fold(self, labels: ArrayLike) -> Self:
        """The best candidate on each of the F `folds`, with its scores of all texts, (F, N)."""
        best = [self.best(labels, val_idx) for val_idx, _ in folds(labels)]
        return replace(self, options=tuple(self.options[i] for i in best), scores=self.scores[best])


def stratified_split(
    labels: ArrayLike, share: float, seed: int = 0, document: Indices | None = None
) -> tuple[Indices, Indices]:
    """Split N texts at random: the numbers of a `share` of each class, rounded up, and of the rest.

    With `document`, the number of each text's document (N,), whole documents are dealt out: pieces of one are alike.
    """
    check_share(share, "a share to deal out")
    labels, rng = np.asarray(labels), np.random.default_rng(seed)
    document = np.arange(len(labels)) if document is None else np.asarray(document)
    documents, at = np.unique(document, return_index=True)
    first = []
    for label in np.unique(labels):
        own = rng.permutation(documents[labels[at] == label])
        first.append(own[: math.ceil(round(share * len(own), 9))])  # 0.14 * 50 is a little over 7
    is_first = np.isin(document, np.concatenate(first))
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)


def folds(labels: ArrayLike) -> list[tuple[Indices, Indices]]:
    """Five random splits, stratified by class: a fifth of the texts to choose hyperparameters on, the rest to judge."""
    from sklearn.model_selection import StratifiedKFold

    split = StratifiedKFold(round(1 / HELD_OUT), shuffle=True, random_state=0).split(np.zeros(np.size(labels)), labels)
    return [(val_idx, test_idx) for test_idx, val_idx in split]
