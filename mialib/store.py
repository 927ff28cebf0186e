"""Where generated files are, how they are written, and the hashes in their names.

All are in $MIALIB_HOME, or `build/` in the clone, or without a clone `~/.cache/mialib`. A cached file's name is a hash
of all that determines its content, including the version of the code that computes it: a stale file is never read.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

version = cache(metadata.version)  # of a package, read from a file
PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent  # the clone, where mialib is installed from it (pip install -e .)
DATA = PACKAGE / "data" if (PACKAGE / "data").is_dir() else ROOT / "data"  # a wheel brings its copy along


def home() -> Path:
    """The folder of generated files."""
    default = ROOT / "build" if (ROOT / "pyproject.toml").is_file() else Path.home() / ".cache" / "mialib"
    return folder_of("MIALIB_HOME") or default


def folder_of(variable: str) -> Path | None:
    """The folder that an environment variable names, `~` expanded; None where it is empty or not set."""
    name = os.environ.get(variable)
    return Path(name).expanduser() if name else None


def mialib_version() -> str:
    """The installed version, or "unknown" where mialib is imported without being installed."""
    try:
        return version("mialib")
    except metadata.PackageNotFoundError:
        return "unknown"


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path whose file or folder takes the place of `path` at the end, or is removed on an error.

    The target of a symbolic link is replaced. A pipe or a device is written to directly.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    place = Path(os.path.realpath(path))
    folder = place.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700, parents=True)
        yield folder / path.name
        if place.is_dir():
            shutil.rmtree(place)
        (folder / path.name).replace(place)
    except OSError as error:
        if error.errno == errno.ENOSPC and not error.filename:  # a write to an open file does not name it
            error.filename = str(path)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def readable(path: str | Path, what: str) -> Iterator[None]:
    """While a file of ours is read, turn any error of a damaged or foreign file into a ValueError that names it."""
    try:
        yield
    except Exception as error:  # pyarrow's and NumPy's are of many classes
        if isinstance(error, (FileNotFoundError, MemoryError)) or type(error) is ValueError:  # which say enough
            raise
        why = f"{type(error).__name__}: {' '.join(str(error).split()):.100}"
        raise ValueError(f"{path} holds no {what}, or is damaged ({why}); delete it and run again") from None


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, all or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def hash_of(value: Any) -> str:
    """SHA-256 of a JSON-able value, 16 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def hash_texts(texts: Iterable[str]) -> str:
    """SHA-256 of texts in order, 16 hex digits; no two different lists share their bytes."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:16]


def checksum_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(paths: Iterable[Path]) -> str:
    """SHA-256 of the files' names and contents, sorted by name, 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        digest.update(path.name.encode() + b"\0" + bytes.fromhex(checksum_of(path)))
    return digest.hexdigest()[:16]
