"""The stored lab: `data/lab` holds corpora that a coin dealt out and the models trained on them.

    SHA256SUMS              the checksum of each file: `sha256sum --check SHA256SUMS`
    corpora/en              card, tokenizer, token counts, and the place of each text; of Chinese corpora the texts
    models/en-25k           a model as `save_pretrained` writes it, and its card

What is read is first held against its checksums. `mialib lab build`, of the book's package, makes all of it again and
compares.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from mialib.store import DATA

FOLDER = DATA / "lab"
SUMS = "SHA256SUMS"
AGAIN = "get it again with `git checkout data/lab` in a clone, or by installing mialib anew"


def stored(kind: str, name: str) -> Path | None:
    """The folder of a corpus or model that is stored; None where no such is.

    ValueError names a file that is missing, or not as it was stored.
    """
    folder = FOLDER / kind / name.removeprefix("lab/")
    sums = {file: checksum for file, checksum in load_sums().items() if file.parent == folder}
    if not sums and not folder.is_dir():
        return None
    if not sums:
        raise ValueError(f"{FOLDER / SUMS} has no checksums of {folder}; {AGAIN}")
    for file, checksum in sums.items():
        if not file.is_file():
            raise ValueError(f"{file} of the stored lab is missing; {AGAIN}")
        if _checksum(file, file.stat().st_size, file.stat().st_mtime_ns) != checksum:
            raise ValueError(f"{file} is not as it was stored with the lab; {AGAIN}")
    if beside := {file for file in folder.iterdir() if not file.name.startswith(".")} - sums.keys():
        raise ValueError(f"{FOLDER / SUMS} does not name {min(beside)}: remove this file if it is yours, else {AGAIN}")
    return folder


def load_sums() -> dict[Path, str]:
    """The checksum of each file of the stored lab; ValueError where they are missing."""
    path = FOLDER / SUMS
    if not path.is_file():
        raise ValueError(f"{path} of the stored lab is missing; {AGAIN}")
    lines = [line.partition("  ") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return {FOLDER / name: checksum for checksum, _, name in lines}


@cache
def _checksum(path: Path, _size: int, _mtime_ns: int) -> str:
    return checksum_of(path)


def checksum_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
