"""Long documents by their snippets: consecutive pieces of so many words, each scored by itself.

The Min-K% Prob paper's books are judged by all their snippets, SURP's Dolma-Book by those at three places. The
snippets of one document are alike, so intervals draw whole documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.benchmarks import Benchmark, excerpt, load_benchmark, word_spans
from mialib.detectors import FloatArray
from mialib.evaluate import PASSES, Inputs, Target, inputs_of
from mialib.metrics import Interval, percentile_interval

Indices = NDArray[np.int64]
RESAMPLES = 2000
PARTS = ("head", "middle", "tail")


def split_into_snippets(text: str, n_words: int, language: str = "en") -> list[str]:
    """Consecutive snippets of `n_words` words, white space inside kept; a shorter rest at the end is left out."""
    if n_words < 1:
        raise ValueError(f"a snippet of {n_words} words; at least 1 is needed")
    spans = list(word_spans(text, language))
    if len(spans) < n_words:
        raise ValueError(f"a document of {len(spans)} words has no snippet of {n_words}: {excerpt(text)}")
    return [text[spans[at][0] : spans[at + n_words - 1][1]] for at in range(0, len(spans) - n_words + 1, n_words)]


def snippet_benchmark(documents: Benchmark, n_words: int) -> tuple[Benchmark, Indices]:
    """All documents' snippets, each with its document's label, and the index of each snippet's document."""
    split = [split_into_snippets(text, n_words, documents.language) for text in documents.texts]
    document = np.repeat(np.arange(len(split)), [len(snippets) for snippets in split])
    snippets = replace(
        documents,
        name=f"{documents.name}, snippets of {n_words} words",
        texts=tuple(snippet for of_document in split for snippet in of_document),
        labels=documents.labels[document],
        n_words=n_words,
        domains=tuple(documents.domains[i] for i in document) if documents.domains else (),
        sources=tuple(documents.sources[i] for i in document) if documents.sources else (),
        validation=tuple(np.flatnonzero(np.isin(document, documents.validation)).tolist()),
    )
    return snippets, document


def snippet_inputs(
    target: Target, n_words: int, needs: Iterable[str] = PASSES, part: str = "all"
) -> tuple[Inputs, Indices]:
    """The snippets of a benchmark's documents, each scored by itself, and the index of each snippet's document.

    `part` is a place in each document, as for `snippets_at`, or all of it; `needs` as for `evaluate.load_inputs`.
    """
    snippets, document = snippet_benchmark(load_benchmark(target.benchmark), n_words)
    if part != "all":
        at = snippets_at(document, part)
        snippets, document = snippets.take(at, f"{snippets.name}, {part}"), document[at]
    return inputs_of(target, snippets, needs), document


def snippets_at(document: Indices, part: str) -> Indices:
    """The numbers of the snippets at one place of each document (Dolma-Book, SURP, Section 5.1).

    The head is a document's first snippet, the middle is number n // 2 of its n, the tail its last two.
    """
    first, n = np.unique(document, return_index=True, return_counts=True)[1:]
    if part == "tail":
        return np.unique(np.concatenate([first + n - np.minimum(n, 2), first + n - 1]))
    if part not in PARTS:
        raise ValueError(f"unknown part {part!r} of a document; known: {', '.join(PARTS)}")
    return first if part == "head" else first + n // 2


def last_of_each(document: Indices) -> Indices:
    """The number of each document's last snippet, (D,)."""
    return np.flatnonzero(np.append(np.diff(document) > 0, True))


def per_document(values: ArrayLike, document: Indices) -> FloatArray:
    """Mean of a value over each document's snippets, (D,): of scores, or of "above the threshold"."""
    return np.bincount(document, weights=np.asarray(values, float)) / np.bincount(document)


def snippet_auc_interval(
    labels: ArrayLike, scores: FloatArray, document: Indices, level: float = 0.95, seed: int = 0
) -> Interval:
    """AUC of single snippets, with a percentile bootstrap interval that resamples whole documents.

    The snippets of one document are alike, so an interval that took them for independent would be too short. Where all
    resamples agree on 0 or 1 it reaches as far as `auc_interval`'s of so many documents does. ValueError for fewer than
    two documents of a class.
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

    def of(times_a: FloatArray, times_b: FloatArray) -> FloatArray:
        return ((times_a @ wins) * times_b).sum(axis=-1) / ((times_a @ pairs) * times_b).sum(axis=-1)

    resampled = of(resamples(len(first_a), seed), resamples(len(first_b), seed + 1))
    return percentile_interval(float(wins.sum() / pairs.sum()), resampled, min(n), level)


def mean_interval(values: ArrayLike, level: float = 0.95, seed: int = 0) -> Interval:
    """A mean over texts or documents with its percentile bootstrap interval; of shares that are all 0 or all 1 it
    reaches as far as so many could not exclude."""
    values = np.asarray(values, float)
    resampled = resamples(len(values), seed) @ values / len(values)
    return percentile_interval(float(values.mean()), resampled, len(values), level)


@lru_cache(maxsize=8)
def resamples(n: int, seed: int) -> FloatArray:
    """How often each of n things is drawn in each bootstrap resample, (RESAMPLES, n)."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)
