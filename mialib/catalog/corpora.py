"""Reference corpora by name: the texts in which DC-PDD's token frequencies are counted (D' in the paper).

lab/en                the reference part of a lab corpus; lab/en:background what its models are trained on besides
installed/licences    the licences of installed packages: English, but of the law
wordfreq/en           20 million words of ordinary English, as often as wordfreq's list says; or of Chinese, wordfreq/zh
texts.jsonl           a file of texts
lab/en:400k           the first 400,000 characters of any of these
c4:15G                the first 15 billion characters of a corpus on the hub, which only so much of is ever read
"""

from __future__ import annotations

import gzip
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from pathlib import Path

import numpy as np

from mialib.catalog.hub import Unavailable, explain, find_revision, local_copy
from mialib.catalog.sources import find
from mialib.catalog.word_lists import LANGUAGES, word_list_identity, word_list_texts
from mialib.shared.files import STANDARD_INPUT, load_texts
from mialib.store import hash_of, hash_texts
from mialib.text import SAMPLE_CHARACTERS, SAMPLE_TEXTS, chinese_share

LICENCES = "installed/licences"
# Packages with long licences: a fixed list, so that a further pin changes no corpus.
LICENSED = (
    *("arrow", "docutils", "fonttools", "fqdn", "jupyter_builder", "matplotlib"),
    *("numpy", "pandas", "pillow", "pyarrow", "torch"),
)
MIN_WORDS = 20  # of a paragraph
PREFIX = re.compile(r"(?P<name>.+):(?P<number>\d+)(?P<unit>[kMG]?)")
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
LARGEST_SHARE_APART = 0.3


@dataclass(frozen=True)
class HubCorpus:
    """A corpus of JSONL files on the hub, too large for memory. Each row's text is under "text"."""

    hub_id: str
    files: str  # with the file's number in braces
    n_files: int
    bytes_a_character: float  # of the files, about; compressed where they are
    licence: str


# DC-PDD, Section 4: about 15 Gb of each. The authors' code reads each corpus from its first file on.
HUB_CORPORA = {
    "c4": HubCorpus("allenai/c4", "en/c4-train.{:05d}-of-01024.json.gz", 1024, 0.41, "odc-by"),
    "chinese_web_text": HubCorpus(
        "CASIA-LM/ChineseWebText", "cleaner_subset/2021-43/part-{:04d}.jsonl", 15, 3.2, "unknown"
    ),
}


def reference_texts(corpus: str) -> Iterator[str]:
    """The texts of a reference corpus, by name, one after the other: a corpus may be larger than memory.

    Of a prefix the last text is cut. Unavailable for a corpus on the hub that can't be had; ValueError, at the end, for
    a corpus that is smaller than the prefix.
    """
    name, n_characters = split_prefix(corpus)
    if n_characters is None:
        if name in HUB_CORPORA:
            raise ValueError(f"{corpus} is larger than anyone counts; say how much of it, in characters: {corpus}:1G")
        yield from _all_texts(name)
        return
    left = n_characters
    for text in _all_texts(name) if n_characters else ():
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return
    raise ValueError(f"{name} has {n_characters - left:,} characters, {n_characters:,} were asked for")


def split_prefix(corpus: str) -> tuple[str, int | None]:
    """A corpus's name without its size, and the size in characters; None for all of it."""
    prefix = PREFIX.fullmatch(corpus)
    return (prefix["name"], int(prefix["number"]) * UNITS[prefix["unit"]]) if prefix else (corpus, None)


def corpus_identity(corpus: str) -> str:
    """Identify a corpus by the hash of its texts; one on the hub by its size and commit, a list's by version and seed.

    A local copy of one on the hub goes by its files' sizes and times, since reading gigabytes takes minutes.
    """
    name, n_characters = split_prefix(corpus)
    entry = HUB_CORPORA.get(name)
    if name in LANGUAGES:
        return f"{word_list_identity(name)}, {n_characters or 'all'} characters"
    if entry is None or n_characters is None:
        return hash_texts(reference_texts(corpus))
    copy = local_copy(entry.hub_id, "dataset")
    if copy is None:
        return f"{corpus} of {entry.hub_id}@{find_revision(entry.hub_id, 'dataset')}"
    paths = [copy / entry.files.format(number) for number in range(entry.n_files)]
    stats = [path.stat() for path in paths if path.is_file()]
    return f"{corpus} of {copy}, {hash_of([(stat.st_size, stat.st_mtime_ns) for stat in stats])}"


def _all_texts(corpus: str) -> Iterable[str]:
    if (texts := find(corpus).texts()) is not None:
        return texts
    if corpus in HUB_CORPORA:
        return _hub_texts(HUB_CORPORA[corpus])
    if corpus in LANGUAGES:
        return word_list_texts(corpus)
    if corpus == LICENCES:
        return read_licences()
    if corpus != STANDARD_INPUT and not Path(corpus).suffix and not Path(corpus).exists():
        names = ", ".join([*(f"{name}:1G" for name in HUB_CORPORA), *LANGUAGES, LICENCES])
        raise ValueError(f"unknown corpus {corpus!r}: neither a file, nor one of the lab (lab/en), nor {names}")
    return load_texts(corpus)


def _hub_texts(corpus: HubCorpus) -> Iterator[str]:
    """Read file after file, and fetch each when its turn comes."""
    for number in range(corpus.n_files):
        path, line_number = _hub_file(corpus.hub_id, corpus.files.format(number)), 0
        try:
            with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as lines:
                for line in lines:
                    line_number += 1
                    text = json.loads(line.decode())["text"]
                    text.encode()  # else it is no text, or has half of a surrogate pair
                    yield text
        except Exception as error:  # of many classes, of a damaged file
            why = f"not a JSONL file of texts under 'text' ({type(error).__name__}: {error})"
            raise ValueError(f"{path}, line {line_number}: {why}; fetch it again") from None


def _hub_file(hub_id: str, name: str) -> Path:
    """A file of a copy, or of the hub's cache, fetched if need be."""
    if folder := local_copy(hub_id, "dataset"):
        if not (folder / name).is_file():
            raise Unavailable(f"{folder} is a copy of {hub_id} without {name}; fetch that file too")
        return folder / name
    from huggingface_hub import hf_hub_download

    revision = find_revision(hub_id, "dataset")
    try:
        return Path(hf_hub_download(hub_id, name, repo_type="dataset", revision=revision))
    except Exception as error:
        raise explain(hub_id, "dataset", error) from error


def read_licences(seed: int = 0) -> list[str]:
    """Each distinct paragraph of at least 20 words in the licences of some of the pinned packages, shuffled by `seed`.

    Packages that are pinned for another platform are left out.
    """
    paragraphs: dict[str, None] = {}
    for package in LICENSED:
        with suppress(PackageNotFoundError):
            for file in sorted(distribution(package).files or []):
                is_licence = ".dist-info" in str(file) and re.search("(?i)licen[cs]e|copying|notice", file.name)
                if is_licence and (path := Path(file.locate())).is_file():
                    of_file = re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace"))
                    paragraphs |= {" ".join(text.split()): None for text in of_file if len(text.split()) >= MIN_WORDS}
    texts = list(paragraphs)
    return [texts[i] for i in np.random.default_rng(seed).permutation(len(texts))]


def warn_of_other_language(corpus: str, texts: Sequence[str], name: str) -> None:
    """Warn where only one of a reference corpus and the texts of the benchmark `name` is Chinese.

    The paper demands one language (its Limitations).
    """
    theirs = chinese_share(text[:SAMPLE_CHARACTERS] for text in islice(reference_texts(corpus), SAMPLE_TEXTS))
    ours = chinese_share(text[:SAMPLE_CHARACTERS] for text in texts[:SAMPLE_TEXTS])
    if abs(theirs - ours) > LARGEST_SHARE_APART:
        warnings.warn(
            f"the reference corpus {corpus} is in another language than {name}: {theirs:.0%} of its letters are "
            f"Chinese, {ours:.0%} of the texts'; its token frequencies say little of these texts",
            stacklevel=3,
        )
