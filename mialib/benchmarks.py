"""Benchmarks: texts with known membership, checked once where they enter. `mialib.load_benchmark` loads one."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mialib.plain import check_one_of, plain_array, plain_indices, plain_list
from mialib.text import check_texts, count_words, cut_to_words, excerpt, split_into_snippets

PARTS = ("head", "middle", "tail")  # of a long document


@dataclass(frozen=True)
class Benchmark:
    """N texts and, for each, whether it was in the training data (label 1, a member) or not (0).

    ValueError if a text, which it names, is empty, has another label or both labels, or if there is only one class.

    >>> bench = Benchmark("mine", ("It was the best of times", "No years were ever finer"), [1, 0], revision="1")
    >>> bench.cut(3).texts
    ('It was the', 'No years were')
    """

    name: str
    texts: tuple[str, ...]
    labels: NDArray[np.int8]  #: (N,)
    revision: str  #: a hub commit or a hash of the content
    language: str = "en"  #: "zh": words are counted with jieba
    n_words: int | None = None  #: what the texts were cut to; None for whole texts
    domains: tuple[str, ...] = ()  #: where each of the N texts is from; empty if unknown
    validation: tuple[int, ...] = ()  #: numbers of the texts to choose hyperparameters on, if published
    sources: tuple[str, ...] = ()  #: the page or book that each of the N texts is from; empty if unknown
    times: tuple[int, ...] = ()  #: how often each of the N texts was inserted into training; empty if unknown

    def __post_init__(self) -> None:
        texts, labels = tuple(check_texts(self.texts, self.name)), plain_array(self.labels, f"{self.name}, labels")
        for what in ("domains", "sources", "times", "validation"):
            object.__setattr__(self, what, tuple(plain_list(getattr(self, what), f"{self.name}, {what}")))
        optional = {what: getattr(self, what) or texts for what in ("domains", "sources", "times")}
        for what, values in {"labels": labels, **optional}.items():
            if len(values) != len(texts):
                raise ValueError(f"{self.name}: {len(texts)} texts but {len(values)} {what}")
        label_of: dict[str, int] = {}
        for i, (text, label) in enumerate(zip(texts, labels.tolist(), strict=True)):
            if label not in (0, 1):
                raise ValueError(f"{self.name}, text {i}: label {label!r} is neither 0 nor 1 (1 = member)")
            # Two different texts may well begin alike, so only whole texts must differ.
            if label_of.setdefault(text, label) != label and self.n_words is None:
                pair = f"texts {texts.index(text)} and {i} are one text with both labels"
                raise ValueError(f"{self.name}: {pair}: {excerpt(text)}")
        if len(set(labels.tolist())) < 2:
            only = "members" if 1 in labels else "non-members"
            raise ValueError(f"{self.name}: all {len(labels)} texts are {only}; a benchmark needs both")
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "labels", labels.astype(np.int8))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def document(self) -> NDArray[np.int64] | None:
        """The number of each text's document, (N,), if `sources` say that some documents have several texts; else None.

        A source that has texts of both classes, or all texts of a class, is a collection and not a document.
        """
        number = {source: n for n, source in enumerate(dict.fromkeys(self.sources))}
        if len(number) == len(self.sources):
            return None
        document = np.array([number[source] for source in self.sources])
        members, non_members = (set(document[self.labels == label].tolist()) for label in (1, 0))
        return None if members & non_members or min(len(members), len(non_members)) < 2 else document

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str) -> Self:
        """The texts with these numbers, in this order, or the texts that a mask marks, as another benchmark."""
        indices = plain_indices(indices, len(self), "texts to take")
        return self._with_texts(indices, [self.texts[i] for i in indices], name=name)

    def _with_texts(self, numbers: Sequence[int] | NDArray[np.integer], texts: Sequence[str], **changed: Any) -> Self:
        """A benchmark of texts that are (parts of) the texts with these numbers, and share what is known of them."""
        of_texts = {"domains": self.domains, "sources": self.sources, "times": self.times}
        taken = {what: tuple(values[i] for i in numbers) for what, values in of_texts.items() if values}
        validation = tuple(np.flatnonzero(np.isin(numbers, self.validation)).tolist())
        known = {"texts": tuple(texts), "labels": self.labels[numbers], "validation": validation, **taken}
        return replace(self, **known | changed)

    def snippets(self, n_words: int, part: str = "all") -> Self:
        """The texts' consecutive snippets of `n_words` words, with the text's label; `document` numbers the texts.

        `part` is a place in each text (Dolma-Book, SURP, Section 5.1). Of a text's n snippets the head is the first,
        the middle number n // 2, the tail the last two. ValueError for a text that is shorter than one snippet.
        """
        split = [snippets_at(split_into_snippets(text, n_words, self.language), part) for text in self.texts]
        document = [i for i, of_text in enumerate(split) for _ in of_text]
        name = f"{self.name}, {'' if part == 'all' else f'{part}, '}snippets of {n_words} words"
        sources = tuple(f"text {i}" for i in document)
        return self._with_texts(document, list(chain(*split)), name=name, n_words=n_words, sources=sources)

    def cut(self, n_words: int) -> Self:
        """Cut each text to its first `n_words` words; shorter texts stay whole, and a warning gives their number."""
        cuts = tuple(cut_to_words(text, n_words, self.language) for text in self.texts)
        uncut = [text for text, cut in zip(self.texts, cuts, strict=True) if cut == text]
        if short := sum(count_words(text, self.language) < n_words for text in uncut):
            warnings.warn(
                f"{self.name}: {short} of {len(self)} texts are shorter than {n_words} words; left as they are",
                stacklevel=2,
            )
        return replace(self, name=f"{self.name}, {n_words} words", texts=cuts, n_words=n_words)


def snippets_at(snippets: Sequence[str], part: str) -> Sequence[str]:
    """The snippets at one place of a text, or "all"; see `Benchmark.snippets`."""
    middle = len(snippets) // 2
    places = {"all": slice(None), "head": slice(1), "middle": slice(middle, middle + 1), "tail": slice(-2, None)}
    check_one_of(part, places, "part of a document")
    return snippets[places[part]]
