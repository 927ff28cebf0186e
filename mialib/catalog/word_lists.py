"""The reference corpora `wordfreq/en` and `wordfreq/zh`: ordinary words as often as they occur, without the hub.

The package wordfreq (Robyn Speer; lists under CC BY-SA 4.0) brings the words of a language with their frequencies, mean
over Wikipedia, subtitles, news, books, the web, Twitter and, in English, Reddit, up to 2021. About 20 million words are
drawn so that each stands as often as its list says, in a random order, in texts of 1,000 words.

What it is not: running text. It has no capitals, no punctuation and no order of words; digits are zeros ("0000" is any
year). So a token such as " The" or "," does not occur, and tokens are counted as the tokenizer cuts single words. Words
below one in 40 million are left out (0.2% of the text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from mialib.extras import require
from mialib.store import version

LANGUAGES = {"wordfreq/en": "en", "wordfreq/zh": "zh"}
N_WORDS, WORDS_A_TEXT, SEED = 20_000_000, 1_000, 0
WORDS_AT_ONCE = 1_000_000  # that are in memory
BETWEEN_CHINESE = re.compile(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])")  # a space; between two Latin words it stays


def word_list_texts(corpus: str) -> Iterator[str]:
    """The texts of a corpus of `LANGUAGES`, one after the other; they are the same each time."""
    frequencies = require("wordfreq", f"corpus {corpus}").get_frequency_dict(LANGUAGES[corpus], "large")
    words, shares = np.array(list(frequencies), object), np.array(list(frequencies.values()))
    left, rng = np.rint(shares / shares.sum() * N_WORDS).astype(np.int64), np.random.default_rng(SEED)
    while n_left := left.sum():
        drawn = rng.multivariate_hypergeometric(left, min(n_left, WORDS_AT_ONCE))
        left -= drawn
        order = rng.permutation(np.repeat(words, drawn))
        for start in range(0, len(order), WORDS_A_TEXT):
            text = " ".join(order[start : start + WORDS_A_TEXT])
            yield BETWEEN_CHINESE.sub("", text) if LANGUAGES[corpus] == "zh" else text


def word_list_identity(corpus: str) -> str:
    """What decides a corpus's texts; nothing is drawn for it."""
    require("wordfreq", f"corpus {corpus}")
    return f"{corpus} of wordfreq {version('wordfreq')}, large, {N_WORDS} words, seed {SEED}"
