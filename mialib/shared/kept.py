"""What is computed once and kept: read again only where it is as it was written, made anew where it is not."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mialib.store import atomic_path, hash_files, hash_of, home, write_json

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT_SECONDS = 10.0  # for another process, before the wait is mentioned
ANEW: set[Path] | None = None  # where everything is to be made anew: what has been
READ: dict[Path, list[tuple[Path, int, int]]] = {}  # folders found whole, with their files' sizes and times
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


class Parts:
    """What is finished of a long computation, in a folder of its own until the whole is kept."""

    def __init__(self, folder: Path, form: Format) -> None:
        self.folder, self.form = folder, form
        self._n = max((int(path.stem) for path in folder.glob(f"*{form.suffix}")), default=-1) + 1

    def __iter__(self) -> Iterator[Any]:
        """The parts that earlier runs have kept, but for those that are not as they were written."""
        for path in sorted(self.folder.glob(f"*{self.form.suffix}")):
            if _is_whole(path):
                yield self.form.read(path)
            else:
                logger.warning("%s is not as it was written: made anew", path)

    def add(self, part: Any, *, instead: bool = False) -> None:
        """Keep a part, beside the earlier ones or instead of them.

        Where nothing can be written the computation goes on, with a warning.
        """
        path, earlier = self.folder / f"{self._n:06d}{self.form.suffix}", list(self.folder.glob("*")) if instead else []
        self._n += 1
        try:
            _write_sealed(path, lambda to: self.form.write(part, to))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            logger.warning("%s can't be kept (%s): a run that is broken off here starts anew", path, error.strerror)
        else:
            for file in earlier:
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)


def keep(kind: str, make: Callable[..., T], form: Format, parts: Format | None = None, **determined_by: Any) -> T:
    """What `make` returns, read from the file that an earlier call kept where all of `determined_by` is the same.

    With a format of `parts`, `make` is given `Parts` to keep what is finished in, and to go on from. Where nothing can
    be written the value is returned all the same, with a warning.
    """
    path = kept_path(kind, form, **determined_by)
    in_parts = [Parts(path.with_name(f"{path.name}.parts"), parts)] if parts else []
    made: list[T] = []

    def write(to: Path) -> None:
        made.append(make(*in_parts))
        form.write(made[0], to)

    try:
        if ANEW is not None and path not in ANEW:
            ANEW.add(path)
            for old in (path, _seal(path)):
                old.unlink(missing_ok=True)
            for of_path in in_parts:
                of_path.remove()
        once(path, write)
        for of_path in in_parts:
            of_path.remove()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        logger.warning("%s can't be kept (%s); make room, or set MIALIB_HOME to another folder", path, error.strerror)
        return made[0] if made else make(*in_parts)
    return form.read(path)


def keep_nothing_of_before() -> None:
    """Have this process make everything anew that it asks for, once."""
    global ANEW
    ANEW = set()


def kept_path(kind: str, form: Format, **determined_by: Any) -> Path:
    """Where `keep` keeps it."""
    return home() / "cache" / kind / f"{hash_of(determined_by)}{form.suffix}"


def _seal(path: Path) -> Path:
    """The file of a kept file's checksum."""
    return path.with_name(f"{path.name}.sha256")


def _checksum(path: Path, lies_at: Path | None = None) -> str:
    """Of a file's or folder's name and its folder's, which are its key, and of all that is in it.

    `lies_at` is where it is still written to.
    """
    at = lies_at or path
    files = [file for file in at.rglob("*") if file.is_file()] if at.is_dir() else [at]
    return hash_of([path.parent.name, path.name, hash_files(files)])


def _is_whole(path: Path) -> bool:
    """Whether a file or folder is as it was written; of a folder that this process has read, by its files' times."""
    stamps = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(path.rglob("*"))]
    if stamps and READ.get(path) == stamps:
        return True
    try:
        is_whole = _seal(path).read_text(encoding="ascii") == _checksum(path)
    except (FileNotFoundError, UnicodeDecodeError):
        return False
    if is_whole:
        READ[path] = stamps
    return is_whole


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"damaged-{time.time_ns()}-{path.name}")
    path.rename(aside)
    logger.warning("%s is not as it was written: set aside as %s and made anew", path, aside.name)


def _write_sealed(path: Path, write: Callable[[Path], None]) -> None:
    """A file or folder all or nothing, and the seal beside it."""
    with atomic_path(path) as temporary:
        write(temporary)
        with atomic_path(_seal(path)) as seal:
            seal.write_text(_checksum(path, temporary), encoding="ascii")


def once(path: Path, write: Callable[[Path], None]) -> Path:
    """`path`, a file or folder, written first where it is not there; of several processes one writes, the others wait.

    `write` is given a path whose file or folder is moved to `path` at the end. A checksum of name and content lies
    beside it. What does not match it, or has none, is set aside with a warning and made anew.
    """
    from filelock import FileLock, Timeout

    if path.exists() and _is_whole(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.parent / f".{path.name}.lock")
    try:
        lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        logger.warning("waiting for %s, which makes %s and holds %s", _holder(lock.lock_file), path, lock.lock_file)
        lock.acquire()
    try:
        if path.exists() and not _is_whole(path):
            _set_aside(path)
        if not path.exists():
            for left in path.parent.glob(f".{path.name}.*/"):  # of a run that was killed: it held this lock
                shutil.rmtree(left, ignore_errors=True)
            _write_sealed(path, write)
    finally:
        lock.release()
    return path


def _holder(lock_file: str) -> str:
    """The process that holds a lock, as far as the system says."""
    node, locks = os.stat(lock_file).st_ino, Path("/proc/locks")
    for line in locks.read_text().splitlines() if locks.is_file() else ():
        # 12: FLOCK  ADVISORY  WRITE 4711 08:01:1234567 0 EOF
        match line.split():
            case [_, "FLOCK", _, _, process, place, *_] if place.endswith(f":{node}"):
                return f"process {process}"
    return "another process"
