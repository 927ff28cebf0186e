"""Intervals by a bootstrap, for numbers that have none in closed form; and an interval at another level."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.metrics import RESAMPLES, FloatArray, Interval, auc_interval, certain_within, check_level

ENDS = ((1 - 0.95) / 2, (1 + 0.95) / 2)  # of an interval, as quantiles


@lru_cache(maxsize=8)
def resamples(n: int, seed: int) -> FloatArray:
    """How often each of n things is drawn in each bootstrap resample, (RESAMPLES, n)."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)


def percentile_interval(estimate: float, resampled: FloatArray, n: int) -> Interval:
    """A share with its percentile bootstrap interval. Where all resamples agree on 0 or 1, which n texts (or documents)
    alone do not make certain, it reaches as far as they could not exclude."""
    low, high = np.quantile(resampled, ENDS)
    if low == high and estimate in (0.0, 1.0):
        reach = certain_within(n, 0.95)
        low, high = max(0.0, estimate - reach), min(1.0, estimate + reach)
    return Interval(estimate, float(low), float(high))


def at_level(interval: Interval, level: float) -> Interval:
    """The same interval at another level: each half scaled by the ratio of the two normal quantiles, not clipped.

    Exact for an interval that is normal, else an approximation: of an `auc_interval` at 99% it makes each half about 4%
    too short with 20 texts of a class, and 1% with 100.
    ValueError for a level outside (0, 1).
    """
    from scipy.stats import norm

    check_level(level)
    scale = float(norm.ppf((1 + level) / 2) / norm.ppf((1 + interval.level) / 2))
    low, high = (interval.estimate + scale * (end - interval.estimate) for end in (interval.low, interval.high))
    return Interval(interval.estimate, low, high, level)


def document_auc_interval(labels: ArrayLike, scores: FloatArray, document: NDArray[np.int64]) -> Interval:
    """AUC of single snippets, with a percentile bootstrap interval that resamples whole documents.

    The snippets of one document are alike, so an interval that took them for independent would be too short.
    ValueError for fewer than two documents of a class.
    """
    labels, document = np.asarray(labels), np.asarray(document)
    sides = []
    for label in (1, 0):
        own = np.flatnonzero(labels == label)
        own = own[np.argsort(document[own], kind="stable")]
        sides.append((scores[own], np.unique(document[own], return_index=True)[1]))
    (a, first_a), (b, first_b) = sides
    if min(n := (len(first_a), len(first_b))) < 2:
        raise ValueError(f"{n[0]} documents of members and {n[1]} of non-members; an interval takes two of each")
    wins = (np.sign(a[:, None] - b) + 1) / 2  # of single snippets; then summed over each pair of documents
    wins = np.add.reduceat(np.add.reduceat(wins, first_a, axis=0), first_b, axis=1)
    pairs = np.outer(np.diff([*first_a, len(a)]), np.diff([*first_b, len(b)])).astype(np.float64)
    times_a, times_b = resamples(len(first_a), seed=0), resamples(len(first_b), seed=1)
    resampled = ((times_a @ wins) * times_b).sum(axis=-1) / ((times_a @ pairs) * times_b).sum(axis=-1)
    return percentile_interval(float(wins.sum() / pairs.sum()), resampled, min(n))


def is_of_snippets(document: NDArray[np.int64] | None) -> bool:
    """Whether several texts are snippets of one document; `document` (N,) says of which each is, None of its own."""
    return document is not None and len(np.unique(document)) < len(document)


def text_auc_interval(labels: ArrayLike, scores: FloatArray, document: NDArray[np.int64] | None) -> Interval:
    """AUC with its interval: of snippets by `document_auc_interval`, of texts that stand alone by `auc_interval`."""
    if document is None or not is_of_snippets(document):
        return auc_interval(labels, scores)
    return document_auc_interval(labels, scores, document)
