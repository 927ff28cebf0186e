"""Near-copies: texts that share most of their word sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mialib.text import bare, words

NGRAM_WORDS = 7  # the unit of overlap that MIMIR filters by (Duan et al. 2024)
MAX_HOLDERS = 100  # a sequence that more texts share is boilerplate, such as a licence's header
NEAR_COPY = 0.5  # share of a text's seven-word sequences in one other text above which it is a copy, not just alike


def ngrams(words_of_text: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the distinct sequences of seven words."""
    return {tuple(words_of_text[i : i + NGRAM_WORDS]) for i in range(len(words_of_text) - NGRAM_WORDS + 1)}


def near_copies(texts: Sequence[str], language: str = "en") -> dict[int, int]:
    """Find the texts that repeat an earlier one: the number of each, and the number of the earlier text.

    A near-copy equals the earlier text but for white space, or shares over half of the shorter one's seven-word
    sequences. Sequences that over a hundred texts share do not count. Texts of under seven words are compared whole.
    """
    copies: dict[int, int] = {}
    first_place: dict[str, int] = {}
    holders: dict[tuple[str, ...], list[int]] = {}
    sequences = [ngrams(words(text, language)) for text in texts]
    for i, text in enumerate(texts):
        rare = [holders[ngram] for ngram in sequences[i] if len(holders.get(ngram, ())) in range(1, MAX_HOLDERS + 1)]
        shared = Counter(j for numbers in rare for j in numbers)
        near = [j for j, n in shared.items() if n > NEAR_COPY * min(len(sequences[i]), len(sequences[j]))]
        if first_place.setdefault(bare(text), i) != i:
            copies[i] = first_place[bare(text)]
        elif near:
            copies[i] = min(near)
        for ngram in sequences[i]:
            holders.setdefault(ngram, []).append(i)
    return copies
