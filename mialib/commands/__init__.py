"""The command line. This file is light, so that signals are heard while the rest is imported."""

from __future__ import annotations

import os
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

    Ctrl-C and SIGTERM end alike: temporary files are removed, what is finished is kept.
    """

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        raise Stopped(number)

    for number in SIGNALS:
        signal.signal(number, stop)
    for stream in (sys.stdout, sys.stderr):  # of a terminal or a file that can't take all characters
        stream.reconfigure(errors="backslashreplace")
    try:
        try:
            from mialib.commands.cli import app

            app()
        finally:
            for number in SIGNALS:  # while Python cleans up there is nothing to say
                signal.signal(number, signal.SIG_DFL)
    except Stopped as stopped:
        from mialib.store import remove_temporaries

        print("mialib: stopped; what was kept so far is used the next time", file=sys.stderr, flush=True)
        remove_temporaries()
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(128 + stopped.args[0])  # a thread may wait for a server, or a library end badly in mid-import
    except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
        print(f"mialib: {error}", file=sys.stderr)
        sys.exit(1)
