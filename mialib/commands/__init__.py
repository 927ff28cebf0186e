"""The command line. This file is light, so that signals are heard while the rest is imported."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what schedulers send


class Stopped(BaseException):
    """A signal to stop. Click would turn a KeyboardInterrupt into "Aborted!"."""


def main() -> None:
    """The entry point: an error that is the user's to mend is one sentence, not a traceback.

    Ctrl-C and SIGTERM end alike: temporary files are removed, what is finished is kept. A second one ends at once.
    """
    try:
        for number in SIGNALS:
            signal.signal(number, _stop)
        _run()
    except Stopped as stopped:  # wherever it came, at the very end of `_run` too
        with suppress(OSError):  # nobody may read it any more
            print("mialib: stopped; what was kept so far is used the next time", file=sys.stderr, flush=True)
            sys.stdout.flush()
        _end(*stopped.args)


def _open_what_is_closed() -> None:
    """Let closed standard streams lead nowhere: libraries expect them, and else files that are opened later take their
    numbers and get what is meant to be printed."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


def _run() -> None:
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):  # of a terminal or a file that can't take all characters
        stream.reconfigure(errors="backslashreplace")
    try:
        from mialib.commands.cli import app

        app()
    except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
        print(f"mialib: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        for number in SIGNALS:  # while Python cleans up there is nothing to say
            signal.signal(number, _end)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    for every in SIGNALS:
        signal.signal(every, _end)
    raise Stopped(number)


def _end(number: int, _frame: FrameType | None = None) -> NoReturn:
    """End now: a thread may wait for a server, or a library be half imported."""
    from mialib.store import remove_temporaries

    remove_temporaries()
    if "multiprocessing.util" in sys.modules:  # whose own clean-up is skipped
        from multiprocessing import parent_process, util

        if parent_process() is None:  # a child's folder is its parent's
            shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
    os._exit(128 + number)
