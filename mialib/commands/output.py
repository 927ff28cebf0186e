"""What commands print and log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import typer


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text with its control characters escaped."""
    from mialib.text import printable

    typer.echo(printable(text), nl=nl, err=err)


def as_columns(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table of text, from each column's cells by the rows' names."""
    names = ["", *next(iter(columns.values()))]
    table = [names, *([title, *cells.values()] for title, cells in columns.items())]
    widths = [max(map(len, column)) for column in table]
    rows = zip(*table, strict=True)
    return "\n".join("  ".join([f"{name:{widths[0]}}", *map(str.rjust, cells, widths[1:])]) for name, *cells in rows)


def log_plainly() -> None:
    """Log messages as plain lines, without the chatter of libraries."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for noisy in ("httpx", "httpx2", "filelock", "papermill", "jupyter_client"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
