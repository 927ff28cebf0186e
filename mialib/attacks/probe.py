"""Probing: does a model represent a text it was trained on otherwise than one it never saw? (Liu et al. 2024)

texts    some that no model was trained on; a coin calls half of them members
proxy    a copy of the target, fine-tuned on these members                                 (Section 3.3)
probe    logistic regression from the proxy's activations on these texts to the coin       (Section 3.4)
scores   the probe on the *target's* activations on the benchmark's texts                  (Section 3.5)

Layer and learning rate are those of the highest AUC on a fifth of the benchmark; the other four fifths are for
judging. The probe reads the weights and needs labels to choose, so it is not in the registry of detectors.

A caveat of the method itself: the probe is fitted on one model's activations and applied to another's. It learns the
trace of two steps of fine-tuning, and assumes that pre-training leaves the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.attacks.activations import Proxy, activations
from mialib.metrics import FloatArray, aucs
from mialib.model_selection import HELD_OUT, Candidates, Indices, stratified_split
from mialib.text import check_texts

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

logger = logging.getLogger(__name__)
Activations = NDArray[np.floating]

# The paper prints no grid; the authors' scripts try 8e-4 to 1e-3 for TinyLLaMA and 2.5e-3 to 3.5e-3 for OpenLLaMA.
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
N_TRAINING = 200  # texts to learn from, of which half are called members (Figure 3)


class Collected(NamedTuple):
    """All activations that a target's probes are fitted and scored on."""

    proxies: Mapping[float, Activations]  # of each learning rate's proxy, on the M training texts (L + 1, M, D)
    coin: NDArray[np.int8]  # (M,), which of these the proxies were fine-tuned on
    target: Activations  # on the benchmark's texts (L + 1, N, D)


@dataclass(frozen=True)
class ProbeScores:
    """The scores of N texts by the probe of the highest validation AUC, and the texts on which it may be judged.

    Activations are standardized by those that the probe learned from; the authors' code takes each split's own.
    """

    scores: FloatArray  #: (N,), logits; higher = more likely a member
    learning_rate: float  #: of the fine-tuned copy
    layer: int  #: 1 is the first block, L the last
    validation_aucs: FloatArray  #: (learning rates, L), of all candidates
    learning_rates: tuple[float, ...]
    validation: Indices  #: the texts on which layer and learning rate are chosen
    test: Indices  #: all other texts: judge only on these


def probe_scores(
    model: str,
    texts: Sequence[str],
    labels: ArrayLike,
    training_texts: Sequence[str],
    *,
    validation: Indices | None = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
) -> ProbeScores:
    """Score N texts by the probe (Liu et al. 2024): the whole method for one target model.

    `texts` and `labels` (N,) are the benchmark; `training_texts` are similar texts that the target has not seen.
    `validation` are the numbers of the texts to choose on, by default a random fifth of each class. `seed` decides
    which texts these are, and which training texts the copy is fine-tuned on. Raises what `collect` raises.

    >>> texts = [f"{'old' if i % 2 else 'new'} stone number {i}" for i in range(40)]
    >>> labels = [i % 2 for i in range(40)]
    >>> unseen = [f"the river number {i} rises" for i in range(20)]
    >>> found = probe_scores("smollm2-135m", texts, labels, unseen, learning_rates=[1e-3])
    >>> found.scores.shape
    (40,)
    """
    options: dict[str, Any] = {"learning_rates": learning_rates, "seed": seed, "device": device, "dtype": dtype}
    return choose_probe(collect(model, texts, training_texts, **options), labels, seed, validation)


def collect(
    model: str,
    texts: Sequence[str],
    training_texts: Sequence[str],
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
) -> Collected:
    """Run the target on the benchmark's texts, and a proxy of each learning rate on the training texts.

    Training texts that are in the benchmark are left out, with a warning. ValueError for fewer than 4 training texts,
    and as in `activations` and `train_proxy`.
    """
    texts, training_texts = check_texts(texts, "texts to probe"), check_texts(training_texts, "texts to train on")
    known, given = set(texts), {"device": device, "dtype": dtype}
    unseen = [text for text in training_texts if text not in known]
    if n_known := len(training_texts) - len(unseen):
        logger.warning("%d of %d training texts stand in the benchmark; left out", n_known, len(training_texts))
    if len(unseen) < 4:
        raise ValueError(f"{len(unseen)} training texts outside the benchmark; the coin needs at least 4")
    coin = flip_coin(len(unseen), seed)
    members = [text for text, side in zip(unseen, coin, strict=True) if side]
    target = activations(model, texts, **given)
    proxies = {rate: activations(Proxy(model, members, rate), unseen, **given) for rate in learning_rates}
    return Collected(proxies, coin, target)


def flip_coin(n: int, seed: int = 0) -> NDArray[np.int8]:
    """Which of `n` unseen texts are called members, (n,): a random half, rounded down (Section 4.2)."""
    return (np.random.default_rng(seed).permutation(n) < n // 2).astype(np.int8)


def fit_probe(activations_layer: Activations, labels: ArrayLike) -> Pipeline:
    """Standardization and logistic regression of a layer's activations (M, D) on labels (M,); no bias (Section 3.4)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(fit_intercept=False, max_iter=1000))
    return probe.fit(np.asarray(activations_layer, np.float64), np.asarray(labels))


def fit_probes(proxies: Mapping[float, Activations], coin: ArrayLike) -> dict[tuple[float, int], Pipeline]:
    """A probe for each learning rate and layer, the layer varying fastest; see `Collected`.

    The embeddings, layer 0, are no candidate: every prompt ends in the same token.
    """
    return {
        (rate, layer): fit_probe(of_proxy[layer], coin)
        for rate, of_proxy in proxies.items()
        for layer in range(1, len(of_proxy))
    }


def probe_candidates(probes: Mapping[tuple[float, int], Pipeline], target: Activations) -> Candidates:
    """The logits of each probe on the target's activations (L + 1, N, D), to choose from like hyperparameters."""
    scores = np.array(
        [probe.decision_function(target[layer].astype(np.float64)) for (_, layer), probe in probes.items()]
    )
    return Candidates(tuple({"learning_rate": rate, "layer": layer} for rate, layer in probes), scores)


def validation_and_test(labels: ArrayLike, seed: int = 0, validation: Indices | None = None) -> tuple[Indices, Indices]:
    """The texts to choose a probe on, by default a fifth of each class at random, and all others.

    ValueError where one of the two lacks a class.
    """
    labels = np.asarray(labels)
    if validation is None:
        validation, test = stratified_split(labels, HELD_OUT, seed)
    else:
        test = np.setdiff1d(np.arange(len(labels)), validation)
    for name, texts in (("validation", validation), ("test", test)):
        if len(np.unique(labels[texts])) < 2:
            raise ValueError(
                f"of the {len(texts)} {name} texts {int(labels[texts].sum())} are members; both classes are needed. "
                "Is it the benchmark's `split` column that says which they are?"
            )
    return validation, test


def choose_probe(
    collected: Collected, labels: ArrayLike, seed: int = 0, validation: Indices | None = None
) -> ProbeScores:
    """The first of the probes of the highest AUC on the validation texts of `validation_and_test`."""
    labels = np.asarray(labels)
    if len(labels) != collected.target.shape[1]:
        raise ValueError(f"{len(labels)} labels for the activations of {collected.target.shape[1]} texts")
    validation, test = validation_and_test(labels, seed, validation)
    candidates = probe_candidates(fit_probes(collected.proxies, collected.coin), collected.target)
    at = candidates.best(labels, validation)
    rate, layer = candidates.options[at]["learning_rate"], int(candidates.options[at]["layer"])
    grid = aucs(labels[validation], candidates.scores[:, validation]).reshape(len(collected.proxies), -1)
    return ProbeScores(candidates.scores[at], rate, layer, grid, tuple(collected.proxies), validation, test)


def judge_half(activations_layers: Activations, labels: ArrayLike) -> tuple[Indices, FloatArray]:
    """A probe of each layer but the embeddings, fitted on a random half of each class: the other half and its logits.

    `activations_layers` (L + 1, N, D), `labels` (N,); returns the numbers of the judged texts (J,) and (L, J) logits.

    Two controls use it: the target's activations with membership, which no attacker knows, and a proxy's with the coin,
    to see whether the proxy separates the texts that it was fine-tuned on.
    """
    fitted, judged = stratified_split(labels, 0.5, seed=0)
    labels = np.asarray(labels)
    logits = [
        fit_probe(layer[fitted], labels[fitted]).decision_function(layer[judged].astype(np.float64))
        for layer in activations_layers[1:]
    ]
    return judged, np.stack(logits)
