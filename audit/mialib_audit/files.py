"""The files that an audit compares: the texts to judge, known non-members and, optionally, known members."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mialib.reports.detection import load_known
from mialib.shared.files import (
    COIN_COLUMN,
    LABEL_COLUMN,
    SOURCE_COLUMN,
    first_of,
    labels_of,
    n_lacking,
    read_rows,
    texts_of,
    times_of,
    values_of,
)
from mialib.store import checksum_of, hash_texts
from mialib.text import excerpt
from mialib_audit.canaries import check_seal
from mialib_audit.near_copies import near_copies

MAX_QUOTED = 20  # texts in two files that an error names

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextFile:
    """A file's texts, and the source (author, book) of each if the file names it."""

    name: str
    texts: tuple[str, ...]
    sources: tuple[str, ...] = ()
    why_no_sources: str = ""
    coin: tuple[int, ...] = ()  # how often each is inserted if its fair coin says so; empty where no coin decided
    sha256: str = ""  # of the file

    @classmethod
    def read(cls, path: Path, label: int | None = None) -> TextFile:
        """Read the texts to judge, or known non-members (0) or members (1).

        Of a labelled file the known texts are those with that label, copies once.
        """
        if label is None:
            rows = read_rows(path)
            texts = texts_of(rows, str(path))
            if any(LABEL_COLUMN in row for row in rows):
                logger.info("%s: its labels are ignored", path)
        else:
            known = load_known(path, label)
            texts, rows = list(known), list(known.values())
        sources, n = values_of(rows, SOURCE_COLUMN), n_lacking(rows, SOURCE_COLUMN)
        why = "" if sources else f"{path}: {n} of {len(rows)} texts have no `{SOURCE_COLUMN}`"
        coin = () if label is None else times_of(rows, str(path), COIN_COLUMN)
        return cls(str(path), tuple(texts), sources, why, coin, checksum_of(path) if path.is_file() else "")

    def take(self, indices: Sequence[int]) -> TextFile:
        """Keep the texts with these numbers."""
        texts = tuple(self.texts[i] for i in indices)
        sources = tuple(self.sources[i] for i in indices if self.sources)
        return replace(self, texts=texts, sources=sources, coin=tuple(self.coin[i] for i in indices if self.coin))

    def describe(self) -> dict[str, Any]:
        """Return what a report says of the file."""
        return {"file": self.name, "n": len(self.texts), "hash": hash_texts(self.texts), "sha256": self.sha256}


def read_files(
    texts: Path, non_members: Path | None, members: Path | None
) -> tuple[TextFile, TextFile, TextFile | None]:
    """Read the texts to judge, known non-members and known members.

    Without `non_members` the texts need labels, and those labelled 1 are compared with those labelled 0. Then a list of
    canaries must be the one that its seal names. ValueError otherwise.
    """
    if non_members is None and labels_of(read_rows(texts), str(texts)) is None:
        raise ValueError(f"{texts}: its texts have no labels; give --non-members, a file of known non-members")
    if non_members is None:
        check_seal(texts)
    known = TextFile.read(non_members or texts, 0)
    return TextFile.read(texts, None if non_members else 1), known, TextFile.read(members, 1) if members else None


def drop_copies(files: Sequence[TextFile], language: str) -> tuple[list[TextFile], dict[int, int]]:
    """Drop near-copies from the known texts; also return those among the texts to judge, the first file.

    ValueError for a text that is in two files, word by word or nearly: it would be both known and judged.
    """
    places = [(number, i) for number, file in enumerate(files) for i in range(len(file.texts))]
    copies = near_copies([files[number].texts[i] for number, i in places], language)
    pairs = [(places[later], places[earlier]) for later, earlier in copies.items()]
    for (number, _), (earlier, _) in pairs:
        if number != earlier:
            both = [files[number].texts[i] for (a, i), (b, _) in pairs if (a, b) == (number, earlier)]
            quoted = first_of([excerpt(text) for text in both], MAX_QUOTED)
            raise ValueError(
                f"texts of {files[number].name} that are, exactly or nearly, in {files[earlier].name} too: "
                f"{len(both)}. Remove each from one of the files: {quoted}"
            )
    kept = [files[0]]
    for number, file in enumerate(files[1:], start=1):
        repeats = {i for (a, i), _ in pairs if a == number}
        if repeats:
            logger.info("%s: %d of its texts nearly repeat others; each counts once", file.name, len(repeats))
        kept.append(file.take([i for i in range(len(file.texts)) if i not in repeats]))
    return kept, {i: earlier for (number, i), (_, earlier) in pairs if number == 0}
