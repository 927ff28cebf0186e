"""Replies of services that cost time or money: one a line of a JSONL file, written as soon as they arrive."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a file of replies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file, none where it does not exist.

    A last line that was cut short is removed from the file, with a warning. ValueError for any other line that is no
    reply: the file is another one.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    whole, rows = data[: data.rfind(b"\n") + 1], []
    for number, line in enumerate(whole.splitlines(), start=1):
        with suppress(ValueError):
            rows.append(json.loads(line))
        if len(rows) < number or not isinstance(rows[-1], dict):
            raise ValueError(f"{path}, line {number}: no reply; give another file, or remove it")
    if len(whole) < len(data):
        logger.warning("%s: its last line was cut short, so left out", path)
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return rows
