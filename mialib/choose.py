"""Choosing hyperparameters: on the texts that they are judged on, as the papers do, or on others.

A grid gives each hyperparameter of a detector its candidate values. Every pair of them is scored from stored token
statistics; which is best is then a matter of which texts are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.detectors import FloatArray, min_k_grid, surp_grid
from mialib.evaluate import Inputs, scores_of
from mialib.metrics import Comparison, auc, aucs, compare_auc

Indices = NDArray[np.int64]
Grid = Mapping[str, Sequence[float]]

HELD_OUT = 0.2  # the share of the texts that hyperparameters are chosen on
GAP_SPLITS = 10
# SURP's is the paper's (Section 5.2); of Min-K% Prob it says "the best parameter value" and not of which.
GRIDS: dict[str, Grid] = {
    "surp": {"entropy_threshold": np.arange(0.5, 10.25, 0.5).tolist(), "k": list(range(10, 101, 10))},
    "min_k": {"k": list(range(10, 101, 10))},
}


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


def deal(labels: ArrayLike, share: float, seed: int = 0, document: Indices | None = None) -> tuple[Indices, Indices]:
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


def score_grid(inputs: Inputs, detector: str, grid: Grid) -> Candidates:
    """A detector's scores at every point of a grid, the last hyperparameter varying fastest."""
    options = tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    if detector == "surp" and list(grid) == ["entropy_threshold", "k"]:
        return Candidates(options, surp_grid(inputs.stats, *grid.values())[0].reshape(len(options), -1))
    if detector == "min_k" and list(grid) == ["k"]:
        return Candidates(options, min_k_grid(inputs.stats, grid["k"]))
    return Candidates(options, np.stack([scores_of(inputs, detector, **given) for given in options]))


def folds(labels: ArrayLike) -> list[tuple[Indices, Indices]]:
    """Each fifth of the texts in turn to choose on, and the others to judge: random, each class dealt out evenly.

    One fifth of few texts chooses almost at random; what five disjoint ones chose says how much that matters.
    """
    from sklearn.model_selection import StratifiedKFold

    split = StratifiedKFold(round(1 / HELD_OUT), shuffle=True, random_state=0).split(np.zeros(len(labels)), labels)
    return [(chosen_on, judged_on) for judged_on, chosen_on in split]


def gap(candidates: Candidates, labels: ArrayLike, document: Indices | None = None) -> Gap:
    """How much better hyperparameters look that were chosen on the texts that they are judged on.

    It has two parts: the best of many on the judged texts is partly luck there, and a fifth of the texts chooses worse
    than four fifths would. It is never negative: on any texts, the best on them is at least as good as another.
    """
    labels, found = np.asarray(labels), []
    for seed in range(GAP_SPLITS):
        chosen_on, judged_on = deal(labels, HELD_OUT, seed, document)
        here, there = candidates.best(labels, chosen_on), candidates.best(labels, judged_on)
        of_best, of_chosen = aucs(labels[judged_on], candidates.scores[[there, here]][:, judged_on])
        found.append(float(of_best - of_chosen))
    return Gap(float(np.mean(found)), max(found))


def fit_a(inputs: Inputs, a_values: Sequence[float], chosen_on: Indices) -> float:
    """The bound a of DC-PDD's highest AUC on some of the texts, by their numbers; judge it on others."""
    candidates = score_grid(inputs, "dc_pdd", {"a": a_values})
    return candidates.options[candidates.best(inputs.labels, chosen_on)]["a"]


def fit_and_compare(
    of: Inputs, other: Inputs, a_values: Sequence[float], chosen_on: Indices, judged_on: Indices
) -> tuple[tuple[float, float], Comparison]:
    """DC-PDD's AUC on two inputs of the same texts, `of` minus `other`: the bound of each, fitted on some of the texts,
    and the comparison on others.

    Frequencies scale what the bound cuts, so that one bound for both would be another cut for each.
    """
    bounds = (fit_a(of, a_values, chosen_on), fit_a(other, a_values, chosen_on))
    scores = [scores_of(inputs, "dc_pdd", a=a)[judged_on] for inputs, a in zip((of, other), bounds, strict=True)]
    return bounds, compare_auc(of.labels[judged_on], *scores)


def choose_and_judge(
    labels: ArrayLike, scores: Mapping[float, FloatArray], default: float, seed: int = 0
) -> tuple[float, Comparison]:
    """The best value other than the default on a random half of the texts; on the other half, default minus it.

    Choosing and judging on the same texts would favour the value that was chosen.
    """
    labels = np.asarray(labels)
    chosen_on, judged_on = deal(labels, 0.5, seed)
    others = [value for value in scores if value != default]
    best = max(others, key=lambda value: auc(labels[chosen_on], scores[value][chosen_on]))
    return best, compare_auc(labels[judged_on], scores[default][judged_on], scores[best][judged_on])


def describe_options(options: Mapping[str, Any]) -> str:
    """Hyperparameters in a few characters: "ε = 2.5, k = 40"."""
    return ", ".join(f"{symbol(name)} = {value:g}" for name, value in options.items())


def symbol(hyperparameter: str) -> str:
    """A hyperparameter as the papers print it."""
    return {"entropy_threshold": "ε"}.get(hyperparameter, hyperparameter)
