"""Near-duplicates: the filter for the lab's corpora and benchmarks of today, and the copies in files to be audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mialib.text import bare, words

NGRAM_WORDS = 7  # the unit of overlap that MIMIR filters by (Duan et al. 2024)
MAX_OVERLAP = 0.2
MOST_HOLDERS = 100  # texts that share seven words, above which these are what such texts have in common
NEAR_COPY = 0.5  # share of a text's seven-word sequences in one other text above which it is a copy, not just alike


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


def near_copies(texts: Sequence[str], language: str = "en") -> dict[int, int]:
    """The texts that repeat an earlier one, by their number, and the number of that one.

    Texts that are equal but for white space, and texts that share over half of the shorter one's seven-word sequences.
    Sequences that over a hundred texts share, such as a licence's, do not count. Texts of under seven words are
    compared whole.
    """
    copies: dict[int, int] = {}
    equal: dict[str, int] = {}
    holders: dict[tuple[str, ...], list[int]] = {}
    of_texts = [ngrams(words(text, language)) for text in texts]
    for i, (text, own) in enumerate(zip(texts, of_texts, strict=True)):
        held = [holders[ngram] for ngram in own if len(holders.get(ngram, ())) in range(1, MOST_HOLDERS + 1)]
        shared = Counter(j for numbers in held for j in numbers)
        near = [j for j, n in shared.items() if n > NEAR_COPY * min(len(own), len(of_texts[j]))]
        if equal.setdefault(bare(text), i) != i:
            copies[i] = equal[bare(text)]
        elif near:
            copies[i] = min(near)
        for ngram in own:
            holders.setdefault(ngram, []).append(i)
    return copies
