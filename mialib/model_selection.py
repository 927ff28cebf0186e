"""Choosing hyperparameters: on the texts that they are judged on, as the papers do, or on others.

A grid gives each hyperparameter of a detector its candidate values. Every pair of them is scored from stored token
statistics; which is best is then a matter of which texts are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.metrics import FloatArray, aucs

Indices = NDArray[np.int64]
Grid = Mapping[str, Sequence[float]]

HELD_OUT = 0.2  # the share of the texts that hyperparameters are chosen on
GAP_SPLITS = 10


@dataclass(frozen=True)
class Candidates:
    """A detector's scores at every point of a grid."""

    options: tuple[dict[str, float], ...]  # C of them
    scores: FloatArray  # (C, N)

    def best(self, labels: ArrayLike, texts: Indices | slice = slice(None)) -> int:
        """The candidate of the highest AUC on some of the texts, by their numbers; the first where several are."""
        return int(aucs(np.asarray(labels)[texts], self.scores[:, texts]).argmax())

    def take(self, texts: Indices) -> Candidates:
        """The same candidates on some of the texts."""
        return Candidates(self.options, self.scores[:, texts])


@dataclass(frozen=True)
class Gap:
    """How far the two ways of choosing hyperparameters lie apart, on the same texts: over random splits of them."""

    mean: float  # AUC of what was chosen on the judged four fifths minus of what was chosen on the other fifth
    largest: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} (up to {self.largest:.3f})"


def stratified_split(
    labels: ArrayLike, share: float, seed: int = 0, document: Indices | None = None
) -> tuple[Indices, Indices]:
    """The texts' numbers dealt out at random: `share` of each class, rounded up, and the rest.

    With the number of each text's document, whole documents are dealt out: pieces of one are alike.
    """
    if not 0 < share < 1:
        raise ValueError(f"a share to deal out lies in (0, 1), got {share}")
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
    """Each fifth of the texts in turn to choose on, and the others to judge: random, each class dealt out evenly.

    One fifth of few texts chooses almost at random; what five disjoint ones chose says how much that matters.
    """
    from sklearn.model_selection import StratifiedKFold

    split = StratifiedKFold(round(1 / HELD_OUT), shuffle=True, random_state=0).split(np.zeros(len(labels)), labels)
    return [(val_idx, test_idx) for test_idx, val_idx in split]


def gap(candidates: Candidates, labels: ArrayLike, document: Indices | None = None) -> Gap:
    """How much better hyperparameters look that were chosen on the texts that they are judged on.

    It has two parts: the best of many on the judged texts is partly luck there, and a fifth of the texts chooses worse
    than four fifths would. It is never negative: on any texts, the best on them is at least as good as another.
    """
    labels, found = np.asarray(labels), []
    for seed in range(GAP_SPLITS):
        val_idx, test_idx = stratified_split(labels, HELD_OUT, seed, document)
        here, there = candidates.best(labels, val_idx), candidates.best(labels, test_idx)
        of_best, of_chosen = aucs(labels[test_idx], candidates.scores[[there, here]][:, test_idx])
        found.append(float(of_best - of_chosen))
    return Gap(float(np.mean(found)), max(found))


def describe_options(options: Mapping[str, Any]) -> str:
    """Hyperparameters in a few characters: "ε = 2.5, k = 40"."""
    return ", ".join(f"{symbol(name)} = {value:g}" for name, value in options.items())


def symbol(hyperparameter: str) -> str:
    """A hyperparameter as the papers print it."""
    return {"entropy_threshold": "ε"}.get(hyperparameter, hyperparameter)
