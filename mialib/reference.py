"""Reference corpora: the texts that DC-PDD's token frequencies are counted in (D' in the paper).

A corpus is given by name:

    lab/en                the reference part of a lab corpus
    installed/licences    the licences of the pinned packages: English, but of the law
    texts.jsonl           a file of texts
    lab/en:400k           the first 400,000 characters of any of these
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np

from mialib.benchmarks import load_texts
from mialib.store import ROOT

LICENCES = "installed/licences"
MIN_WORDS = 20  # of a paragraph
PREFIX = re.compile(r"(?P<name>.+):(?P<number>\d+)(?P<unit>[kM]?)")
UNITS = {"": 1, "k": 1000, "M": 1000_000}
SAMPLE_CHARACTERS = 200_000  # enough to know a script by
LARGEST_SHARE_APART = 0.3


def reference_texts(corpus: str) -> list[str]:
    """The texts of a reference corpus, by name."""
    prefix = PREFIX.fullmatch(corpus)
    if prefix:
        n_characters = int(prefix["number"]) * UNITS[prefix["unit"]]
        return first_characters(reference_texts(prefix["name"]), n_characters, prefix["name"])
    if corpus.startswith("lab/"):
        from mialib.lab import lab_texts

        return lab_texts(corpus, "reference")
    return read_licences() if corpus == LICENCES else load_texts(corpus)


def first_characters(texts: Sequence[str], n_characters: int, name: str) -> list[str]:
    """The first texts up to `n_characters` in all, the last one cut; ValueError where there are fewer."""
    kept, left = [], n_characters
    for text in texts:
        if left <= 0:
            break
        kept.append(text[:left])
        left -= len(text)
    if left > 0 or not kept:
        raise ValueError(f"{name} has {n_characters - left:,} characters, {n_characters:,} were asked for")
    return kept


def read_licences(seed: int = 0) -> list[str]:
    """Each distinct paragraph of at least 20 words in the licences of the pinned packages, shuffled.

    Packages are read in the order of their names and the shuffle is seeded, so the same pins give the same texts.
    """
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    paragraphs: dict[str, None] = {}
    for package in sorted(re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.M), key=str.lower):
        for licence in _licences_of(package):
            for paragraph in re.split(r"\n\s*\n", licence):
                words = paragraph.split()
                if len(words) >= MIN_WORDS:
                    paragraphs[" ".join(words)] = None
    texts = list(paragraphs)
    return [texts[i] for i in np.random.default_rng(seed).permutation(len(texts))]


def _licences_of(package: str) -> list[str]:
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:  # pinned for another platform
        return []
    found = sorted(f for f in files if ".dist-info" in str(f) and re.search("(?i)licen[cs]e|copying|notice", f.name))
    return [path.read_text(encoding="utf-8", errors="replace") for f in found if (path := f.locate()).is_file()]


def chinese_share(texts: Sequence[str]) -> float:
    """The share of Chinese characters among the letters of texts; 0 where there are no letters."""
    sample = " ".join(texts[:: max(1, len(texts) // 1000)])[:SAMPLE_CHARACTERS]
    n_letters = len(re.findall(r"[^\W\d_]", sample))
    return len(re.findall("[\u3400-\u4dbf\u4e00-\u9fff]", sample)) / n_letters if n_letters else 0.0


def warn_of_other_language(corpus: str, texts: Sequence[str], name: str) -> None:
    """Warn where a reference corpus is in another language than the texts, told by script: Chinese or not.

    The paper demands one language (its Limitations); languages of one script are not told apart.
    """
    theirs, ours = chinese_share(reference_texts(corpus)), chinese_share(texts)
    if abs(theirs - ours) > LARGEST_SHARE_APART:
        warnings.warn(
            f"the reference corpus {corpus} is in another language than {name}: {theirs:.0%} of its letters are "
            f"Chinese, {ours:.0%} of the texts'; its token frequencies say little of these texts",
            stacklevel=3,
        )
