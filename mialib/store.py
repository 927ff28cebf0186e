"""Where generated files live, what their names are made of, and how they are written.

Everything that mialib computes and keeps lies under one folder: $MIALIB_HOME, or `build/` in the clone.
A kept result's name is a hash of all that determines it, so a stale one is never found.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent  # the clone, where mialib is installed from it (pip install -e .)


def home() -> Path:
    """The folder of generated files."""
    if "MIALIB_HOME" in os.environ:
        return Path(os.environ["MIALIB_HOME"])
    if (ROOT / "pyproject.toml").is_file():
        return ROOT / "build"
    return Path.home() / ".cache" / "mialib"


def mialib_version() -> str:
    """The installed version, or "unknown" where mialib is imported without being installed."""
    try:
        return version("mialib")
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place at the end, or vanishes on an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp's 0600 would hide the file from other users of the folder
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def once(path: Path, write: Callable[[Path], None]) -> Path:
    """`path`, written first where it is not there; of several processes that want it, one writes and the others wait.

    `write` is given a path whose file is moved to `path` at the end.
    """
    from filelock import FileLock

    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            with atomic_path(path) as temporary:
                write(temporary)
    return path


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


def hash_files(paths: Iterable[Path]) -> str:
    """SHA-256 of the files' names and contents, sorted by name, 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def code_hash(*modules: str) -> str:
    """Hash of the named mialib modules' source, so that an edit to them makes what they computed stale."""
    return hash_files(PACKAGE / f"{name}.py" for name in modules)
