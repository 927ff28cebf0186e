"""Replies of services that cost time or money: one a line of a JSONL file, kept as soon as they are there."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


def append_line(path: Path, row: Any) -> None:
    """Add a row to a file of replies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line_of(row))


def line_of(row: Any) -> str:
    """A row as its line: a checksum and the row, as a JSON list."""
    return json.dumps([_checksum(row), row]) + "\n"


def read_lines(path: Path) -> list[Any]:
    """The rows of such a file.

    Damaged lines are left out, and a last line that was cut short is removed from the file, both with a warning.
    ValueError where no line is left: the file is another one.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    if not data:
        logger.warning("%s is empty: no reply is kept in it", path)
    whole = data[: data.rfind(b"\n") + 1]
    rows, damaged = [], []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            [checksum, row] = json.loads(line)
            if checksum != _checksum(row):
                raise ValueError
            rows.append(row)
        except (ValueError, TypeError, RecursionError):  # no JSON, no list, nested without end
            damaged.append(str(number))
    if damaged and not rows:
        raise ValueError(f"{path}: none of its {len(damaged)} lines is a kept reply; give another file, or remove it")
    if damaged:
        logger.warning("%s, line %s: damaged, so left out", path, ", ".join(damaged))
    if len(whole) < len(data):
        logger.warning("%s: its last line was cut short, so left out", path)
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return rows


def _checksum(row: Any) -> str:
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()[:16]
