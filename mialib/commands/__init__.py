"""The command line's entry point. It imports nothing heavy, so that Ctrl-C works while the rest is imported."""

from __future__ import annotations

import signal
import sys
import warnings

STOPPED = 130  # the exit code of Ctrl-C, and here of a scheduler's SIGTERM


def main() -> None:
    """Run the command line; an error that the user can mend is one sentence, not a traceback."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both raise KeyboardInterrupt
    try:
        from mialib.commands.cli import load_app
        from mialib.text import printable

        for stream in (sys.stdout, sys.stderr):  # a terminal or a file may not take all characters
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        warnings.formatwarning = lambda message, *_, **__: f"{printable(str(message))}\n"  # without a line of our code
        load_app()()
    except (ValueError, OSError, MemoryError, ImportError) as error:
        from mialib.text import printable  # once more: the import above may be what failed

        print(f"mialib: {printable(sentence_of(error))}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:  # typer turns the one into the other
        if getattr(end, "code", STOPPED) == STOPPED:
            print("mialib: stopped; the next run resumes from what was finished", file=sys.stderr)
            sys.exit(STOPPED)
        raise


def sentence_of(error: Exception) -> str:
    """Say what went wrong; of the system's errors, with which file."""
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(str(part) for part in (error.filename2 or error.filename, error.strerror) if part)
    return str(error) or type(error).__name__
