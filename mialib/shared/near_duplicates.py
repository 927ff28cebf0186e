"""The filter of near-duplicates, for the lab's corpora, synthetic texts and benchmarks of today."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mialib.text import words

NGRAM_WORDS = 7  # the unit of overlap that MIMIR filters by (Duan et al. 2024)
MAX_OVERLAP = 0.2


def ngrams(words_of_text: Sequence[str]) -> set[tuple[str, ...]]:
    """The distinct sequences of seven words."""
    return {tuple(words_of_text[i : i + NGRAM_WORDS]) for i in range(len(words_of_text) - NGRAM_WORDS + 1)}


class NearDuplicates:
    """The filter of near-duplicates: it remembers the 7-grams of the texts that it was shown.

    A text, or a page of several, is a near-duplicate where over a fifth of its 7-grams were seen, in whichever texts.
    """

    def __init__(self, texts: Iterable[str] = (), language: str = "en") -> None:
        self.language = language
        self.seen: set[tuple[str, ...]] = set()
        self.add(*texts)

    def add(self, *texts: str, n_words: int | None = None) -> None:
        """Remember texts, or the first `n_words` words of each."""
        self.seen |= self._ngrams(texts, n_words)

    def overlap(self, *texts: str, n_words: int | None = None) -> float | None:
        """The share of a page's 7-grams that were seen, of all its texts; None where none has seven words."""
        own = self._ngrams(texts, n_words)
        return len(own & self.seen) / len(own) if own else None

    def _ngrams(self, texts: Iterable[str], n_words: int | None) -> set[tuple[str, ...]]:
        return set().union(*(ngrams(words(text, self.language)[:n_words]) for text in texts))
