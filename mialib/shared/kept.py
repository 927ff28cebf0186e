"""A cache on disk: what is computed once is written to a file and read from there ever after.

A checksum lies beside each file. One that no longer matches it is set aside, with a warning, and computed anew.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mialib.store import atomic_path, hash_files, hash_of, home, write_json
from mialib.token_stats import StatsPart, TokenStats

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT_SECONDS = 10.0  # for another process, before the wait is mentioned
ANEW: set[Path] | None = None  # where all is to be made anew: what this process has made so far
LAST = "last-"  # before the number of a part that stands for all before it
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
STATS = Format(".parquet", TokenStats.save, TokenStats.load)
STATS_PARTS = Format(".parquet", StatsPart.save, StatsPart.load)
JSON = Format(".json", lambda value, path: write_json(path, value), lambda path: json.loads(path.read_text("utf-8")))


class Parts:
    """The finished parts of a long computation, in a folder of their own until the whole is written; None: in memory.

    One process at a time makes and uses it: the one that holds the lock of the whole.
    """

    def __init__(self, folder: Path | None, form: Format) -> None:
        self.folder, self.form = folder, form
        self.held: list[Any] = []  # of the parts, those that could not be written
        self.paths = list(self._whole())  # of the parts, in their order
        for left in folder.iterdir() if folder and folder.is_dir() else ():
            if not {left, left.with_suffix("")} & set(self.paths):  # neither a part nor its seal
                remove(left)

    def _whole(self) -> Iterator[Path]:
        """The parts that earlier runs have written, up to the first that is missing or changed; where one was written
        instead of all before it, that one."""
        if self.folder is None:
            return
        last = sorted(self.folder.glob(f"{LAST}*{self.form.suffix}"))
        paths = last[-1:] or (self.folder / f"{n:06d}{self.form.suffix}" for n in count())
        for path in takewhile(Path.exists, paths):
            if not _is_whole(path):
                logger.warning("%s is not as it was written: it and what came after it are made anew", path)
                return
            yield path

    def __iter__(self) -> Iterator[Any]:
        """What is kept, part by part; OSError where a part is no longer as it was written."""
        for path in self.paths:
            if not _is_whole(path):
                raise OSError(f"{path} is no longer as it was written; run again: it and what came after is made anew")
            yield self.form.read(path)
        yield from self.held

    def add(self, part: Any, *, instead: bool = False) -> None:
        """Keep a part, after the earlier ones or instead of them.

        Where it can't be written the computation goes on and keeps the rest in memory alone, with a warning.
        """
        if self.folder is None:
            self.held = [part] if instead else [*self.held, part]
            self.paths = [] if instead else self.paths
            return
        n = int(self.paths[-1].stem.removeprefix(LAST)) + 1 if self.paths else 0
        path = self.folder / f"{LAST if instead else ''}{n:06d}{self.form.suffix}"
        try:
            _write_sealed(path, lambda to: self.form.write(part, to))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.folder, self.held = None, [part]
            self.paths = [] if instead else self.paths
            logger.warning("%s can't be kept (%s): a run that is broken off goes on before it", path, error.strerror)
            return
        for earlier in self.paths if instead else ():
            remove(earlier, _seal(earlier))
        self.paths = [path] if instead else [*self.paths, path]


def remove(*paths: Path) -> None:
    """Remove files and folders, where they are there."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def keep(kind: str, make: Callable[..., T], form: Format, parts: Format | None = None, **determined_by: Any) -> T:
    """Call `make` and cache what it returns; read it from the file where an earlier call had the same `determined_by`.

    With a format of `parts`, `make` is given `Parts`, to save finished parts in and to go on from after a break. Where
    nothing can be written the value is returned all the same, with a warning.
    """
    path = kept_path(kind, form, **determined_by)
    is_anew = ANEW is not None and path not in ANEW
    if ANEW is not None:
        ANEW.add(path)
    made: list[T] = []
    is_making = False
    folder = path.with_name(f"{path.name}.parts")

    def write(to: Path) -> None:
        nonlocal is_making
        if is_anew:
            remove(folder)
        given = (Parts(folder, parts),) if parts else ()
        is_making = True
        made.append(make(*given))
        is_making = False
        form.write(made[0], to)
        remove(folder)

    try:
        once(path, write, is_anew)
    except OSError as error:
        if is_making or error.errno not in NO_ROOM:
            raise
        logger.warning("%s can't be kept (%s); make room, or set MIALIB_HOME to another folder", path, error.strerror)
        if not made:
            made.append(make(Parts(None, parts)) if parts else make())
        return made[0]
    made.clear()  # before it is read: not twice in memory
    return form.read(path)


def keep_nothing_of_before() -> None:
    """Have this process make everything anew that it asks for, once."""
    global ANEW
    ANEW = set()


def kept_path(kind: str, form: Format, **determined_by: Any) -> Path:
    """The file that `keep` writes."""
    return home() / "cache" / kind / f"{hash_of(determined_by)}{form.suffix}"


def _seal(path: Path) -> Path:
    """The file of a kept file's checksum."""
    return path.with_name(f"{path.name}.sha256")


def _checksum(path: Path, written_at: Path | None = None) -> str:
    """Of the name of a file or folder and of the folder that it is in, which are its key, and of all that it holds.

    `written_at` is where it lies until it is whole.
    """
    at = written_at or path
    files = sorted(_files(at)) if at.is_dir() else [at]
    return hash_of([path.parent.name, path.name, [[f.relative_to(at).as_posix(), hash_files([f])] for f in files]])


def _files(folder: Path) -> Iterator[Path]:
    """Those in a folder, but for hidden ones, which file managers put there."""
    return (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def _is_whole(path: Path) -> bool:
    """Whether a file or folder is as it was written; of a folder that this process has read, by its files' times."""
    if not _seal(path).is_file():  # a folder, say
        return False
    try:
        stamps = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(_files(path))]
        if stamps and READ.get(path) == stamps:
            return True
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


def once(path: Path, write: Callable[[Path], None], is_anew: bool = False) -> Path:
    """`path`, a file or folder, written first where it is not there; of several processes one writes, the others wait.

    `write` is given a path whose file or folder is moved to `path` at the end. A checksum of name and content lies
    beside it. What does not match it, or has none, is set aside with a warning and made anew. `is_anew` makes it anew
    in any case.
    """
    if not is_anew and path.exists() and _is_whole(path):
        return path
    with alone(path):
        if is_anew:
            remove(path, _seal(path))
        elif path.exists() and not _is_whole(path):
            _set_aside(path)
        if not path.exists():
            remove(*path.parent.glob(f".{path.name}.*/"))  # of a run that was killed: it held this lock
            _write_sealed(path, write)
    return path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Of all processes that make a file or folder one at a time; who waits long says for which."""
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.parent / f".{path.name}.lock")
    try:
        lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        logger.warning("waiting for %s, which makes %s and holds %s", _holder(lock.lock_file), path, lock.lock_file)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _holder(lock_file: str) -> str:
    """The process that holds a lock, as far as the system says."""
    locks = Path("/proc/locks")
    node = os.stat(lock_file).st_ino if os.path.exists(lock_file) else None
    for line in locks.read_text().splitlines() if locks.is_file() else ():
        # 12: FLOCK  ADVISORY  WRITE 4711 08:01:1234567 0 EOF
        match line.split():
            case [_, "FLOCK", _, _, process, place, *_] if place.endswith(f":{node}"):
                return f"process {process}"
    return "another process"
