"""What is computed once and kept: read again only where it is as it was written, made anew where it is not."""

from __future__ import annotations

import errno
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mialib.store import atomic_path, hash_files, hash_of, home, write_json

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT_SECONDS = 10.0  # for another process, before the wait is mentioned
NO_ROOM = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


class Format(NamedTuple):
    """How a kind of value is written to a path and read from it."""

    suffix: str
    write: Callable[[Any, Path], None]
    read: Callable[[Path], Any]


def _write_arrays(arrays: dict[str, Any], path: Path) -> None:
    import numpy as np

    with path.open("wb") as file:
        np.savez(file, **arrays)


def _read_arrays(path: Path) -> dict[str, Any]:
    import numpy as np

    with np.load(path) as kept:
        return dict(kept)


ARRAYS = Format(".npz", _write_arrays, _read_arrays)  # named NumPy arrays
JSON = Format(".json", lambda value, path: write_json(path, value), lambda path: json.loads(path.read_text("utf-8")))


def keep(kind: str, make: Callable[[], T], form: Format, **determined_by: Any) -> T:
    """What `make` returns, read from the file that an earlier call kept where all of `determined_by` is the same.

    A checksum of key and content lies beside the file. A file that does not match it, or that has none, is set aside
    with a warning and made anew. Where nothing can be written the value is returned all the same, with a warning.
    """
    path = kept_path(kind, form, **determined_by)
    made: list[T] = []

    def write(to: Path) -> None:
        made.append(make())
        form.write(made[0], to)
        with atomic_path(_seal(path)) as temporary:
            temporary.write_text(_checksum(to), encoding="ascii")

    try:
        once(path, write)
        if not _is_whole(path):
            _set_aside(path)
            made.clear()
            once(path, write)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        logger.warning("%s can't be kept (%s); make room, or set MIALIB_HOME to another folder", path, error.strerror)
        return made[0] if made else make()
    return form.read(path)


def kept_path(kind: str, form: Format, **determined_by: Any) -> Path:
    """Where `keep` keeps it."""
    return home() / "cache" / kind / f"{hash_of(determined_by)}{form.suffix}"


def _seal(path: Path) -> Path:
    """The file of a kept file's checksum."""
    return path.with_name(f"{path.name}.sha256")


def _checksum(path: Path) -> str:
    """Of a file's or folder's name, which is its key, and of all that is in it."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return hash_of([path.name, hash_files(files)])


def _is_whole(path: Path) -> bool:
    try:
        return _seal(path).read_text(encoding="ascii") == _checksum(path)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"damaged-{time.time_ns()}-{path.name}")
    try:
        path.rename(aside)
    except FileNotFoundError:  # another process was faster
        return
    logger.warning("%s is not as it was written: set aside as %s and made anew", path, aside.name)


def once(path: Path, write: Callable[[Path], None]) -> Path:
    """`path`, a file or folder, written first where it is not there; of several processes one writes, the others wait.

    `write` is given a path whose file or folder is moved to `path` at the end.
    """
    from filelock import FileLock, Timeout

    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.parent / f".{path.name}.lock")
    try:
        lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        logger.warning("waiting for another process that makes %s and holds %s", path, lock.lock_file)
        lock.acquire()
    try:
        if not path.exists():
            with atomic_path(path) as temporary:
                write(temporary)
    finally:
        lock.release()
    return path
