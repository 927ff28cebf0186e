"""The command line. This file is light, so that signals are heard while the rest is imported."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what schedulers send
MOST_OF_A_NAME = 200  # characters
OF_MEMORY = (  # what libraries say of it
    "failed to map segment",
    "std::bad_alloc",
    "allocate memory",
    "alloc of size",  # malloc and realloc of Arrow
    "could not create a primitive",
    "can't start new thread",
    "launch worker thread",
)
TO_DO = {
    errno.ENOENT: "copy it there, or give another name",
    errno.EISDIR: "a file belongs there: remove the folder, or give another name",
    errno.ENOTDIR: "a file is where one of its folders belongs: move it, or give another folder",
    errno.EEXIST: "a file is where one of its folders belongs: move it, or give another folder",
    errno.ELOOP: "mend the link",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ENOSPC: "make room, or write to another disk",
    errno.EDQUOT: "make room, or write to another disk",
    errno.EACCES: "allow it, or give another name",
    errno.EPERM: "allow it, or give another name",
    errno.EROFS: "write to another disk",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


class Stopped(BaseException):
    """A signal to stop. Click would turn a KeyboardInterrupt into "Aborted!"."""


def main() -> None:
    """The entry point: an error that is the user's to mend is one sentence, not a traceback.

    Ctrl-C and SIGTERM end alike: temporary files are removed, what is finished is kept. A second one ends at once.
    """
    try:
        sys.unraisablehook = _end_where_nothing_is_raised
        for number in SIGNALS:
            signal.signal(number, _stop)
        _run()
    except Stopped as stopped:  # wherever it came, at the very end of `_run` too
        _say_and_end(stopped)


def _open_what_is_closed() -> None:
    """Let closed standard streams lead nowhere: otherwise the next file that is opened gets descriptor 1, and what is
    printed goes into it."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


def _run() -> None:
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):  # of a terminal or a file that can't take all characters
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from mialib.commands.cli import load_app
        from mialib.text import printable

        warnings.formatwarning = lambda message, *_, **__: f"{printable(str(message))}\n"  # without a line of our code
        load_app()()
    except Exception as error:
        if not isinstance(error, (ValueError, OSError, MemoryError, ImportError)) and not lacks_memory(error):
            raise
        print(f"mialib: {sentence_of(error)}", file=sys.stderr)
        sys.exit(1)
    finally:
        for number in SIGNALS:  # while Python cleans up there is nothing to say
            signal.signal(number, _end)


def sentence_of(error: Exception) -> str:
    """What an error says, without what a terminal would obey; of the system's errors, which file and what to do."""
    from mialib.store import FULL
    from mialib.text import excerpt, printable

    if lacks_memory(error):
        said = next((sign for sign in OF_MEMORY if sign in str(error)), "none is left")  # and not what wraps it
        return f"there is too little memory ({said}); free some, raise its limit (ulimit -v), or use a smaller model"
    if not isinstance(error, OSError) or error.errno is None:
        return printable(str(error)) or type(error).__name__
    if error.errno not in TO_DO or not (error.filename or error.errno in FULL):
        return printable(": ".join(str(part) for part in (error.filename, error.strerror) if part))
    file = excerpt(str(error.filename2 or error.filename), MOST_OF_A_NAME) if error.filename else "the output"
    return f"{file}: {os.strerror(error.errno)}; {TO_DO[error.errno]}"


def lacks_memory(error: Exception) -> bool:
    """Whether there was no memory for something, and no words of ours say for what."""
    return (isinstance(error, MemoryError) and not str(error)) or any(sign in str(error) for sign in OF_MEMORY)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    for every in SIGNALS:
        signal.signal(every, _end)
    raise Stopped(number)


def _end_where_nothing_is_raised(unraisable: sys.UnraisableHookArgs) -> None:
    """A signal that came in a finalizer or a callback of a weak reference (each import has one), whose exceptions
    Python prints and forgets."""
    if isinstance(unraisable.exc_value, Stopped):
        _say_and_end(unraisable.exc_value)
    sys.__unraisablehook__(unraisable)


def _say_and_end(stopped: Stopped) -> NoReturn:
    with suppress(OSError):  # nobody may read it any more
        print("mialib: stopped; what was kept so far is used the next time", file=sys.stderr, flush=True)
        sys.stdout.flush()
    _end(*stopped.args)


def _end(number: int, _frame: FrameType | None = None) -> NoReturn:
    """End now: a thread may wait for a server, or a library be half imported."""
    from mialib.store import remove_temporaries

    remove_temporaries()
    if "multiprocessing.util" in sys.modules:  # whose own clean-up is skipped
        from multiprocessing import parent_process, util

        if parent_process() is None:  # a child's folder is its parent's
            shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
    os._exit(128 + number)
