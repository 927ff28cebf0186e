"""Intervals that only the book's pages need, by a bootstrap."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.bootstrap import ENDS, percentile_interval, resamples
from mialib.metrics import FloatArray, Interval


def mean_interval(values: ArrayLike) -> Interval:
    """A mean over texts or documents with its percentile bootstrap interval."""
    values = np.asarray(values, float)
    resampled = resamples(len(values), seed=0) @ values / len(values)
    return percentile_interval(float(values.mean()), resampled, len(values))


def rank_correlation(x: ArrayLike, y: ArrayLike, minus: ArrayLike | None = None) -> Interval:
    """Spearman's rank correlation of x and y over texts, (N,) each, with a percentile bootstrap interval.

    With `minus` it is the correlation of x and y minus that of x and `minus`, on the same resampled texts. ValueError
    for lists of several lengths, and for one that does not vary.
    """
    from scipy.stats import rankdata

    lists = [np.asarray(values, float) for values in (x, y, minus) if values is not None]
    if len(set(map(len, lists))) > 1 or not all(map(np.ptp, lists)):
        lengths = " and ".join(str(len(values)) for values in lists)
        raise ValueError(f"a rank correlation needs lists of one length that all vary, got {lengths} values")
    n = len(lists[0])

    def of(texts: NDArray[np.int64]) -> FloatArray:
        """Of texts (..., n), shape (...); NaN where a list does not vary on them."""
        ranks = np.array([rankdata(values[texts], axis=-1) for values in lists]) - (n + 1) / 2
        with np.errstate(invalid="ignore"):
            first, *others = ranks / np.linalg.norm(ranks, axis=-1, keepdims=True)
        rho = [(first * other).sum(axis=-1) for other in others]
        return rho[0] if minus is None else rho[0] - rho[1]

    drawn = np.array([np.repeat(np.arange(n), times) for times in resamples(n, seed=0).astype(np.int64)])
    low, high = np.nanquantile(of(drawn), ENDS)
    return Interval(float(of(np.arange(n))), float(low), float(high))


def document_means(values: ArrayLike, document: NDArray[np.int64]) -> FloatArray:
    """Mean of a value over each document's snippets, (D,): of scores, or of "above the threshold"."""
    return np.bincount(document, weights=np.asarray(values, float)) / np.bincount(document)
