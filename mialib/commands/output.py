"""What commands print and log, with control characters escaped."""

from __future__ import annotations

import logging

import typer


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text with its control characters escaped."""
    from mialib.text import printable

    typer.echo(printable(text), nl=nl, err=err)


def log_plainly() -> None:
    """Log messages as plain lines, without the chatter of libraries."""
    handler = logging.StreamHandler()
    handler.setFormatter(Printable("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("httpx", "httpx2", "filelock", "papermill", "jupyter_client"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class Printable(logging.Formatter):
    """Log messages with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Format as `logging` does, and escape."""
        from mialib.text import printable

        return printable(super().format(record))
