"""Benchmarks: texts with known membership, checked once where they enter. `mialib.load_benchmark` loads one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mialib.plain import plain_array, plain_indices, plain_list
from mialib.text import check_texts, count_words, cut_to_words, excerpt, split_into_snippets

PARTS = ("head", "middle", "tail")  # of a long document


@dataclass(frozen=True)
class Benchmark:
    """N texts and, for each, whether it was in the training data (label 1, a member) or not (0).

    Raises ValueError, naming the text, for an empty text, a label other than 0 or 1, a single class,
    or one whole text that carries both labels.
    """

    name: str
    texts: tuple[str, ...]
    labels: NDArray[np.int8]  #: (N,)
    revision: str  #: a hub commit or a hash of the content
    language: str = "en"  #: "zh" counts words with jieba
    n_words: int | None = None  #: what the texts were cut to; None for whole texts
    domains: tuple[str, ...] = ()  #: where each text is from, N of them; empty where that is not known
    validation: tuple[int, ...] = ()  #: the texts to choose hyperparameters on, where the benchmark says which
    sources: tuple[str, ...] = ()  #: the page or book that each text is from, N of them; empty where that is not known
    times: tuple[int, ...] = ()  #: how often each text was inserted into training, N of them; empty where not known

    def __post_init__(self) -> None:
        texts, labels = tuple(check_texts(self.texts, self.name)), plain_array(self.labels, f"{self.name}, labels")
        if len(texts) != len(labels):
            raise ValueError(f"{self.name}: {len(texts)} texts but {len(labels)} labels")
        for what in ("domains", "sources", "times", "validation"):
            object.__setattr__(self, what, tuple(plain_list(getattr(self, what), f"{self.name}, {what}")))
        for what, of_texts in (("domains", self.domains), ("sources", self.sources), ("times", self.times)):
            if of_texts and len(of_texts) != len(labels):
                raise ValueError(f"{self.name}: {len(texts)} texts but {len(of_texts)} {what}")
        label_of: dict[str, int] = {}
        for i, (text, label) in enumerate(zip(texts, labels.tolist(), strict=True)):
            if label not in (0, 1):
                raise ValueError(f"{self.name}, text {i}: label {label!r} is neither 0 nor 1 (1 = member)")
            # Two different texts may well begin alike, so only whole texts must differ.
            if label_of.setdefault(text, label) != label and self.n_words is None:
                first = texts.index(text)
                raise ValueError(
                    f"{self.name}: texts {first} and {i} are the same text with labels "
                    f"{label_of[text]} and {label}: {excerpt(text)}"
                )
        if len(set(labels.tolist())) < 2:
            only = "members" if 1 in labels else "non-members"
            raise ValueError(f"{self.name}: all {len(labels)} texts are {only}; a benchmark needs both")
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "labels", labels.astype(np.int8))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def document(self) -> NDArray[np.int64] | None:
        """The number of each text's document, (N,), where `sources` say that some have several texts; else None.

        A source of texts of both classes, or of a whole class, is a collection and no document.
        """
        number = {source: n for n, source in enumerate(dict.fromkeys(self.sources))}
        if len(number) == len(self.sources):
            return None
        document = np.array([number[source] for source in self.sources])
        members, non_members = (set(document[self.labels == label].tolist()) for label in (1, 0))
        return None if members & non_members or min(len(members), len(non_members)) < 2 else document

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str) -> Benchmark:
        """The texts with these numbers, in this order, or those that a mask marks, as a benchmark of another name."""
        indices, validation = plain_indices(indices, len(self), "texts to take"), set(self.validation)
        return replace(
            self,
            name=name,
            texts=tuple(self.texts[i] for i in indices),
            labels=self.labels[indices],
            domains=tuple(self.domains[i] for i in indices) if self.domains else (),
            sources=tuple(self.sources[i] for i in indices) if self.sources else (),
            times=tuple(self.times[i] for i in indices) if self.times else (),
            validation=tuple(at for at, i in enumerate(indices) if int(i) in validation),
        )

    def snippets(self, n_words: int, part: str = "all") -> Benchmark:
        """The texts' consecutive snippets of `n_words` words, each with its text's label; `document` tells them apart.

        `part` is a place in each text (Dolma-Book, SURP, Section 5.1): the head is its first snippet, the middle number
        n // 2 of its n, the tail its last two. ValueError for a text that is shorter than one snippet.
        """
        split = [split_into_snippets(text, n_words, self.language) for text in self.texts]
        kept = [(i, text) for i, of_text in enumerate(split) for text in snippets_at(of_text, part)]
        document = [i for i, _ in kept]
        return replace(
            self,
            name=f"{self.name}, {'' if part == 'all' else f'{part}, '}snippets of {n_words} words",
            texts=tuple(text for _, text in kept),
            labels=self.labels[document],
            n_words=n_words,
            domains=tuple(self.domains[i] for i in document) if self.domains else (),
            sources=tuple(f"text {i}" for i in document),
            times=tuple(self.times[i] for i in document) if self.times else (),
            validation=tuple(np.flatnonzero(np.isin(document, self.validation)).tolist()),
        )

    def cut(self, n_words: int) -> Benchmark:
        """Each text cut to its first `n_words` words; texts that are shorter stay and are counted in a warning."""
        cuts = [cut_to_words(text, n_words, self.language) for text in self.texts]
        short = sum(
            cut == text and count_words(text, self.language) < n_words
            for text, cut in zip(self.texts, cuts, strict=True)
        )
        if short:
            warnings.warn(
                f"{self.name}: {short} of {len(self)} texts are shorter than {n_words} words; left as they are",
                stacklevel=2,
            )
        return replace(self, name=f"{self.name}, {n_words} words", texts=tuple(cuts), n_words=n_words)


def snippets_at(snippets: Sequence[str], part: str) -> Sequence[str]:
    """The snippets at one place of a text, or "all"; see `Benchmark.snippets`."""
    middle = len(snippets) // 2
    places = {"all": slice(None), "head": slice(1), "middle": slice(middle, middle + 1), "tail": slice(-2, None)}
    if part not in places:
        raise ValueError(f"unknown part {part!r} of a document; known: {', '.join(PARTS)}")
    return snippets[places[part]]
