"""The folder of a corpus: what it is made of, and its texts, each with the role that the coin gave it.

    card.json           recipe, versions of the packages, counts by role and package, hash of the texts
    texts.jsonl.gz      the texts; for texts of others `places.csv` instead, the place of each in an installed package
    tokenizer.json, counts.parquet      where models are trained on the corpus

Members and background texts are trained on, non-members and reference texts are not; members and non-members are one
distribution.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mialib.store import version
from replication.lab.docstrings import Place

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = ("member", "non_member", "background", "reference")
CARD, TEXTS, PLACES, COUNTS, TOKENIZER = "card.json", "texts.jsonl.gz", "places.csv", "counts.parquet", "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"  # start token of every text, as in Pythia


class Row(NamedTuple):
    """One text of a corpus: its role, the package that it is from, and the text or its place there."""

    role: str
    package: str
    text: str  # "" where it is read from its place
    place: Place | None = None


def read_corpus(folder: Path) -> tuple[Row, ...]:
    """The texts of a corpus in the order in which they were dealt out; none is read from a package yet."""
    path = folder / TEXTS if (folder / TEXTS).is_file() else folder / PLACES
    stat = path.stat()
    return _read_rows(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4)  # each role is asked for by itself
def _read_rows(path: Path, n_bytes: int, changed_ns: int) -> tuple[Row, ...]:
    if path.name == TEXTS:
        lines = gzip.decompress(path.read_bytes()).decode().split("\n")
        return tuple(Row(**json.loads(line)) for line in lines if line)
    with path.open(encoding="utf-8", newline="") as file:
        places = [(role, Place._make(row)._replace(words=int(row[3]))) for role, *row in list(csv.reader(file))[1:]]
    return tuple(Row(role, place.package, "", place) for role, place in places)


def write_texts(path: Path, roles: Sequence[str], packages: Sequence[str], texts: Sequence[str]) -> None:
    """Write texts, each with its role and package, as JSON lines; the same texts give the same bytes."""
    rows = zip(roles, packages, texts, strict=True)
    lines = [json.dumps({"role": r, "package": p, "text": t}, ensure_ascii=False) + "\n" for r, p, t in rows]
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def corpus_tokenizer(folder: Path, **special: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a corpus's folder; each text starts after the end of another, as in Pythia's training."""
    from transformers import PreTrainedTokenizerFast

    special = special or {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT}
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER), **special)


def installed(source: str) -> str:
    """The installed version of a package ("numpy==2.4.6") without its build's suffix; "none"."""
    try:
        return version(source.partition("==")[0]).partition("+")[0]
    except PackageNotFoundError:
        return "none"
