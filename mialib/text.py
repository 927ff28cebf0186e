"""Texts and their words, which white space divides, or jieba in Chinese (`language="zh"`)."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from numbers import Integral
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

from mialib.extras import require
from mialib.plain import plain_list

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HALF_PAIR = re.compile("[\ud800-\udfff]")
SAMPLE_TEXTS, SAMPLE_CHARACTERS = 1000, 200  # of each text: enough to tell a script
# By Chinese text: what loads the words' places of several, and its own number among these.
_remembered: dict[str, tuple[Callable[[], Sequence[NDArray[np.integer]]], int]] = {}


def check_texts(texts: Iterable[Any], name: str) -> list[str]:
    """The texts of any container as plain strings; ValueError that names the first that is no text, or is blank."""
    plain = [str(text) if isinstance(text, str) else text for text in plain_list(texts, name)]  # NumPy's own too
    for i, text in enumerate(plain):
        if not isinstance(text, str):
            raise ValueError(f"{name}, text {i}: a text is expected, got {type(text).__name__} {short_repr(text)}")
        if not text or text.isspace() or HALF_PAIR.search(text):
            why = "holds half of a character" if text.strip() else "is empty"
            raise ValueError(f"{name}, text {i} {why}: {short_repr(text)}")
    return plain


def excerpt(text: str, n_characters: int = 60) -> str:
    """The beginning of a text, for error messages."""
    return repr(text if len(text) <= n_characters else text[: n_characters - 1] + "…")


def bare(text: str) -> str:
    """A text without white space: texts that differ only in that are copies of each other."""
    return "".join(text.split())


def check_apart(known: Iterable[str], texts: Iterable[str], name: str) -> None:
    """ValueError, with the name of the known texts, where one of them is among the texts to score."""
    scored = set(map(bare, texts))
    if same := next((text for text in known if bare(text) in scored), None):
        raise ValueError(f"{name}: {excerpt(same)} is among the texts to score; give others")


def first_ones(texts: Iterable[str]) -> list[int]:
    """The numbers of the texts that repeat no earlier one, up to white space."""
    first: dict[str, int] = {}
    for i, text in enumerate(texts):
        first.setdefault(bare(text), i)
    return [*first.values()]


def count_copies(texts: Sequence[str]) -> int:
    """How many texts repeat an earlier one, up to white space."""
    return len(texts) - len(first_ones(texts))


def printable(text: str) -> str:
    """A text for a terminal: signs that are not printable, except line breaks and tabs, as `repr` writes them."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text)


def chinese_share(texts: Iterable[str]) -> float:
    """The share of Chinese characters among the letters of texts; 0 where there are no letters."""
    sample = " ".join(texts)
    n_letters = len(re.findall(r"[^\W\d_]", sample))
    return len(re.findall("[\u3400-\u4dbf\u4e00-\u9fff]", sample)) / n_letters if n_letters else 0.0


def language_of(texts: Sequence[str]) -> str:
    """The language that decides how words are counted: "zh" where most letters are Chinese, else "en"."""
    return "zh" if chinese_share(text[:SAMPLE_CHARACTERS] for text in texts[:SAMPLE_TEXTS]) > 0.5 else "en"


def have_case(texts: Sequence[str]) -> bool:
    """Whether lowercasing changes texts: most of their letters have two cases, and some text has a capital."""
    sample = "".join(text[:SAMPLE_CHARACTERS] for text in texts[:SAMPLE_TEXTS])
    letters = {letter: n for letter, n in Counter(sample).items() if letter.isalpha()}
    n_cased = sum(n for letter, n in letters.items() if letter.lower() != letter.upper())
    return 2 * n_cased > sum(letters.values()) and any(text != text.lower() for text in texts)


def word_spans(text: str, language: str = "en") -> Iterator[tuple[int, int]]:
    """Where each word of the text begins and ends."""
    return iter(_chinese_spans(text)) if language == "zh" else (word.span() for word in re.finditer(r"\S+", text))


@lru_cache(maxsize=10_000)  # segmenting is slow, and a length curve cuts the same texts at each length
def _chinese_spans(text: str) -> tuple[tuple[int, int], ...]:
    if text in _remembered:
        load, i = _remembered[text]
        return tuple(map(tuple, load()[i].tolist()))
    return tuple(segment(text))


def segment(text: str) -> Iterator[tuple[int, int]]:
    """Where jieba says that each word of a Chinese text begins and ends."""
    jieba = require("jieba", "a Chinese text")
    jieba.setLogLevel(logging.WARNING)  # it reports its dictionary's loading time on stderr
    return ((start, end) for word, start, end in jieba.tokenize(text) if word.strip())


def remember_words(texts: Sequence[str], load: Callable[[], Sequence[NDArray[np.integer]]]) -> None:
    """Let `word_spans` load what `segment` gave of each of these texts, (words, 2), when it is first asked for one."""
    load = cache(load)
    _remembered.update({text: (load, i) for i, text in enumerate(texts)})


def words(text: str, language: str = "en") -> list[str]:
    """The words of a text."""
    return [text[start:end] for start, end in word_spans(text, language)] if language == "zh" else text.split()


def count_words(text: str, language: str = "en") -> int:
    """How many words the text has."""
    return len(words(text, language))


def cut_to_words(text: str, n_words: int, language: str = "en") -> str:
    """The text's first `n_words` words with the white space before and between them; all of a shorter text."""
    _check_n_words(n_words, "cut to")
    for count, (_, end) in enumerate(word_spans(text, language), start=1):
        if count == n_words:
            return text[:end]
    return text


def _check_n_words(n_words: int, what: str) -> None:
    if not isinstance(n_words, Integral) or n_words < 1:
        raise ValueError(f"{what} {n_words} words; a whole number of at least 1 is needed")


def split_into_snippets(text: str, n_words: int, language: str = "en") -> list[str]:
    """Consecutive snippets of `n_words` words, white space inside kept, without a shorter rest; ValueError for none."""
    _check_n_words(n_words, "a snippet of")
    spans = list(word_spans(text, language))
    if len(spans) < n_words:
        raise ValueError(f"a document of {len(spans)} words has no snippet of {n_words}: {excerpt(text)}")
    return [text[spans[at][0] : spans[at + n_words - 1][1]] for at in range(0, len(spans) - n_words + 1, n_words)]
