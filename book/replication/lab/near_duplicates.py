"""The filter of near-duplicates for the lab's corpora and benchmarks of today."""

from collections.abc import Iterable

from mialib.text import words
from mialib_audit.near_copies import ngrams

MAX_OVERLAP = 0.2


class NearDuplicates:
    """Remembers the seven-word sequences of the texts that it was shown.

    A text, or a page of several, is a near-duplicate if over a fifth of its sequences were seen, in whichever texts.
    """

    REPEATED, NEARLY_COPIED = "repeated", "nearly copied"

    def __init__(self, texts: Iterable[str] = (), language: str = "en") -> None:
        self.language = language
        self.seen: set[tuple[str, ...]] = set()
        self.whole = _plain(texts := list(texts))
        self.add(*texts)

    def add(self, *texts: str, n_words: int | None = None) -> None:
        """Remember texts, or the first `n_words` words of each."""
        self.seen |= self._ngrams(texts, n_words)

    def overlap(self, *texts: str, n_words: int | None = None) -> float | None:
        """Return the share of a page's sequences that were seen; None if no text has seven words."""
        sequences = self._ngrams(texts, n_words)
        return len(sequences & self.seen) / len(sequences) if sequences else None

    def holds(self, *texts: str) -> bool:
        """Return whether a page is a near-duplicate of those seen."""
        return (self.overlap(*texts) or 0.0) > MAX_OVERLAP

    def add_if_new(self, *texts: str) -> str:
        """Remember a page that is new; else return why it is not: a text equals an earlier one, or it nearly copies.

        Case and white space do not count.
        """
        plain = _plain(texts)
        if plain & self.whole:
            return self.REPEATED
        if self.holds(*texts):
            return self.NEARLY_COPIED
        self.whole |= plain
        self.add(*texts)
        return ""

    def _ngrams(self, texts: Iterable[str], n_words: int | None) -> set[tuple[str, ...]]:
        return set().union(*(ngrams(words(text, self.language)[:n_words]) for text in texts))


def _plain(texts: Iterable[str]) -> set[str]:
    return {" ".join(text.split()).casefold() for text in texts}
