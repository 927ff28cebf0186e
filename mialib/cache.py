"""A cache on disk: a result is computed once, written to a file, and read from there later.

    cached("blind", make, ARRAYS, texts=hash_texts(texts), labels=labels)

An entry is named by a hash of all that determines it. Files are written whole or not at all. A long computation saves
checkpoints beside its entry, and the next run resumes from these.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from mialib.store import atomic_path, hash_of, home, readable, write_json
from mialib.token_stats import StatsPart, TokenStats

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT_SECONDS = 10.0  # for another process, before the wait is mentioned
recomputed: set[Path] | None = None  # after `start_fresh`: the entries that this process has computed again


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


class Checkpoints:
    """What a long computation has finished so far, a file each, in a folder that is removed at the end.

    Only the process that holds the entry's lock uses it.
    """

    def __init__(self, folder: Path, form: Format) -> None:
        self.folder, self.form = folder, form
        self.paths = sorted(folder.glob(f"[0-9]*{form.suffix}"))

    def __iter__(self) -> Iterator[Any]:
        """All checkpoints in order, each read when it is asked for."""
        return (_read(path, self.form) for path in self.paths)

    def add(self, checkpoint: Any, *, instead: bool = False) -> None:
        """Save a checkpoint after the earlier ones, or instead of them."""
        number = 0 if instead else len(self.paths)
        path = self.folder / f"{number:06d}{self.form.suffix}"
        _write(checkpoint, path, self.form)
        self.paths = [*self.paths[:number], path]


def cached(kind: str, make: Callable[..., T], form: Format, checkpoints: Format | None = None, **key: Any) -> T:
    """Call `make` and cache what it returns; where an earlier call had the same `key`, read that from its file.

    With a format of `checkpoints`, `make` is given `Checkpoints`, to resume from and to save to.
    """
    path = cache_path(kind, form, **key)
    if not _is_hit(path):
        with locked(path):
            if not _is_hit(path):  # no other process wrote it meanwhile
                folder = path.with_name(f"{path.name}.checkpoints")
                if recomputed is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                value = make(*([Checkpoints(folder, checkpoints)] if checkpoints else []))
                _write(value, path, form)
                del value  # before it is read: not twice in memory
                shutil.rmtree(folder, ignore_errors=True)
                if recomputed is not None:
                    recomputed.add(path)
    return _read(path, form)


def start_fresh() -> None:
    """From now on this process computes each entry again, once."""
    global recomputed
    recomputed = set()


def cache_path(kind: str, form: Format, **key: Any) -> Path:
    """The file that `cached` writes."""
    return home() / "cache" / kind / f"{hash_of(key)}{form.suffix}"


def is_cached(kind: str, form: Format, **key: Any) -> bool:
    """Whether `cached` would read the entry from its file."""
    return _is_hit(cache_path(kind, form, **key))


def cached_shards(kind: str, form: Format, n: int, **key: Any) -> tuple[list[Any], list[int]]:
    """The entries of the shards 1 to `n` of something, each with its `part` in the key, and which are missing."""
    paths = [cache_path(kind, form, **key, part=(i, n)) for i in range(1, n + 1)]
    missing = [i for i, path in enumerate(paths, start=1) if not path.exists()]
    return [] if missing else [_read(path, form) for path in paths], missing


def write_once(path: Path, write: Callable[[Path], None]) -> Path:
    """`path`, a file or folder, which `write` makes where it does not exist; other processes wait for it."""
    if not path.exists():
        with locked(path):
            if not path.exists():
                with atomic_path(path) as temporary:
                    write(temporary)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time write a file or folder; another one waits, and says for which file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.parent / f".{path.name}.lock")
    try:
        held = lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        logger.warning("waiting for another process, which writes %s and holds %s", path, lock.lock_file)
        held = lock.acquire()
    with held:
        for left in path.parent.glob(f".{path.name}.*/"):  # by a run that was killed while it wrote
            shutil.rmtree(left, ignore_errors=True)
        yield


def _is_hit(path: Path) -> bool:
    return path.exists() and (recomputed is None or path in recomputed)


def _write(value: Any, path: Path, form: Format) -> None:
    with atomic_path(path) as temporary:
        form.write(value, temporary)


def _read(path: Path, form: Format) -> Any:
    with readable(path, "result of this cache"):
        return form.read(path)
