"""A cache on disk: a result is computed once, written to a file, and read from there later.

Each file has a checksum of name and content beside it. A file that does not match is set aside, with a warning, and
computed anew.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from mialib.store import atomic_path, hash_files, hash_of, home, write_json
from mialib.token_stats import StatsPart, TokenStats

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT_SECONDS = 10.0  # for another process, before the wait is mentioned
ANEW: set[Path] | None = None  # where all is to be made anew: what this process has made so far
LAST = "last-"  # before the number of a part that stands for all before it
NO_ROOM = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


class Format(NamedTuple):
    """How a kind of value is written to a path and read from it."""

    suffix: str
    write: Callable[[Any, Path], None]
    read: Callable[[Path], Any]


def _read_arrays(path: Path) -> dict[str, Any]:
    with np.load(path) as arrays:
        return dict(arrays)


ARRAYS = Format(".npz", lambda arrays, path: np.savez(path, **arrays), _read_arrays)  # named NumPy arrays
STATS = Format(".parquet", TokenStats.save, TokenStats.load)
STATS_PARTS = Format(".parquet", StatsPart.save, StatsPart.load)
JSON = Format(".json", lambda value, path: write_json(path, value), lambda path: json.loads(path.read_text("utf-8")))


class Parts:
    """The finished parts of a long computation, in a folder of their own until the whole is written; None: in memory.

    Only the process that holds the lock of the whole uses it.
    """

    def __init__(self, folder: Path | None, form: Format) -> None:
        self.folder, self.form = folder, form
        self.held: list[Any] = []  # parts that could not be written
        self.paths = list(self._whole())  # of the written parts, in order
        for left in folder.iterdir() if folder and folder.is_dir() else ():
            if not {left, left.with_suffix("")} & set(self.paths):  # neither a part nor its checksum
                remove(left)

    def _whole(self) -> Iterator[Path]:
        """The parts of earlier runs up to the first that is missing or damaged, or the last, if it stands for all."""
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
        """All parts in order."""
        yield from map(self.form.read, self.paths)
        yield from self.held

    def add(self, part: Any, *, instead: bool = False) -> None:
        """Keep a part, after the earlier ones or instead of them.

        Where it can't be written, it and all later ones stay in memory, with a warning.
        """
        earlier = self.paths
        if instead:
            self.paths, self.held = [], []
        if self.folder:
            number = int(earlier[-1].stem.removeprefix(LAST)) + 1 if earlier else 0
            path = self.folder / f"{LAST if instead else ''}{number:06d}{self.form.suffix}"
            try:
                _write_with_checksum(path, lambda to: self.form.write(part, to))
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                logger.warning("%s can't be kept (%s): a rerun would go on before it", path, error.strerror)
                self.folder = None
        if self.folder is None:
            self.held.append(part)
            return
        self.paths.append(path)
        if instead:
            for old in earlier:
                remove(old, _checksum_file(old))


def remove(*paths: Path) -> None:
    """Remove files and folders that exist."""
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
    folder = path.with_name(f"{path.name}.parts")
    is_anew = ANEW is not None and path not in ANEW
    if ANEW is not None:
        ANEW.add(path)
    with ExitStack() as lock:
        can_write = True
        try:
            is_missing = (is_anew or not _is_whole(path)) and lock.enter_context(_cleared(path, is_anew))
            if is_anew:
                remove(folder)
            given = [Parts(folder, parts)] if is_missing and parts else []
        except OSError as error:
            _warn_of_no_room(path, error)
            is_missing, can_write, given = True, False, [Parts(None, parts)] if parts else []
        if is_missing:
            value = make(*given)
            if not can_write:
                return value
            try:
                _write_with_checksum(path, lambda to: form.write(value, to))
                remove(folder)
            except OSError as error:
                _warn_of_no_room(path, error)
                return value
            del value  # before it is read: not twice in memory
    return form.read(path)


def _warn_of_no_room(path: Path, error: OSError) -> None:
    """Raise any error but that nothing can be written."""
    if error.errno not in NO_ROOM:
        raise error
    logger.warning("%s can't be kept (%s); make room, or set MIALIB_HOME to another folder", path, error.strerror)


def keep_nothing_of_before() -> None:
    """Have this process make everything anew that it asks for, once."""
    global ANEW
    ANEW = set()


def kept_path(kind: str, form: Format, **determined_by: Any) -> Path:
    """The file that `keep` writes."""
    return home() / "cache" / kind / f"{hash_of(determined_by)}{form.suffix}"


def is_kept(kind: str, form: Format, **determined_by: Any) -> bool:
    """Whether `keep` would read it from its file."""
    path = kept_path(kind, form, **determined_by)
    return (ANEW is None or path in ANEW) and _is_whole(path)


def kept_parts(kind: str, form: Format, n: int, **determined_by: Any) -> tuple[Parts, list[int]]:
    """What `keep` wrote of the parts 1 to `n` of something, each with its `part` in the key, and which are missing."""
    paths = [kept_path(kind, form, **determined_by, part=(i, n)) for i in range(1, n + 1)]
    parts = Parts(None, form)
    parts.paths = [path for path in paths if _is_whole(path)]
    return parts, [i for i, path in enumerate(paths, start=1) if path not in parts.paths]


def _checksum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _checksum(path: Path, written_at: Path) -> str:
    """Of a file's or folder's name and its folder's, which are its key, and of its content, which lies `written_at`.

    Hidden files do not count: file managers put them there.
    """
    files = [written_at]
    if written_at.is_dir():
        files = sorted(file for file in written_at.rglob("*") if file.is_file() and not file.name.startswith("."))
    content = [[file.relative_to(written_at).as_posix(), hash_files([file])] for file in files]
    return hash_of([path.parent.name, path.name, content])


def _is_whole(path: Path) -> bool:
    """Whether a file or folder is as it was written."""
    checksum = _checksum_file(path)
    try:
        return checksum.is_file() and checksum.read_text(encoding="ascii") == _checksum(path, path)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _write_with_checksum(path: Path, write: Callable[[Path], None]) -> None:
    """A file or folder, all or nothing, and its checksum beside it."""
    with atomic_path(path) as temporary:
        write(temporary)
        with atomic_path(_checksum_file(path)) as checksum:
            checksum.write_text(_checksum(path, temporary), encoding="ascii")


def once(path: Path, write: Callable[[Path], None]) -> Path:
    """`path`, a file or folder, written first where it does not exist; of several processes one writes, others wait.

    `write` is given a path whose file or folder is moved to `path` at the end, with a checksum beside it. What does not
    match its checksum, or has none, is set aside with a warning and made anew.
    """
    if not _is_whole(path):
        with _cleared(path) as is_missing:
            if is_missing:
                _write_with_checksum(path, write)
    return path


@contextmanager
def _cleared(path: Path, is_anew: bool = False) -> Iterator[bool]:
    """Hold the lock of a file or folder, without a damaged one; gives whether it is missing and to be made."""
    with alone(path):
        if is_anew:
            remove(path, _checksum_file(path))
        elif path.exists() and not _is_whole(path):
            aside = path.rename(path.with_name(f"damaged-{time.time_ns()}-{path.name}"))
            logger.warning("%s is not as it was written: set aside as %s and made anew", path, aside.name)
        if is_missing := not path.exists():
            remove(*path.parent.glob(f".{path.name}.*/"))  # of a run that was killed: it held this lock
        yield is_missing


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time makes a file or folder; another one waits, and says for which file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.parent / f".{path.name}.lock")
    try:
        held = lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        logger.warning("waiting for another process, which makes %s and holds %s", path, lock.lock_file)
        held = lock.acquire()
    with held:
        yield
