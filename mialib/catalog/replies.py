"""Replies of services that cost time or money: one a line of a JSONL file, kept as soon as they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def append_line(path: Path, row: Any) -> None:
    """Add a row to a JSONL file of replies, which cost time or money and are kept as soon as they are there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_lines(path: Path) -> list[Any]:
    """The rows of such a file; a last line that an interruption cut short is dropped, from the file too."""
    if not path.is_file():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [json.loads(line) for line in whole.decode("utf-8").split("\n")[:-1]]
