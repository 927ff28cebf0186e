"""Asking a web service by httpx: again, later and later, where that may help, and never without end.

Replies that cost time or money are one a line of a JSONL file, written as soon as they arrive.
"""

import json
import logging
import random
import socket
import time
from collections.abc import Callable, Container
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 6
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds
LONGEST_RETRY_AFTER = 600  # seconds; a service that asks for more is left alone


def retrying(ask: Callable[[], T], describe: Callable[[BaseException], str] = str, final: Container[int] = ()) -> T:
    """Call `ask` until it returns; its last error is raised, and each earlier one is logged as `describe` puts it.

    Tried again are a refused or dropped connection, a time-out, a 429, a 5xx and a reply for which `ask` raises
    ValueError, not before Retry-After says. An unknown host and a `final` status are not.
    """
    attempt = 1
    while True:
        try:
            return ask()
        except (httpx.HTTPError, ValueError) as error:
            if attempt == MAX_ATTEMPTS or not _may_help(error, final):
                raise
            seconds = max(retry_after(error), min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) * random.uniform(1, 2))
            logger.warning("%s; asked again in %.0f s", describe(error), seconds)
            time.sleep(seconds)
            attempt += 1


def retry_after(error: BaseException) -> float:
    """The seconds that a refusal asks to wait: a number, or until a date (RFC 9110, 10.2.3); 0 where it does not."""
    value = error.response.headers.get("Retry-After", "") if isinstance(error, httpx.HTTPStatusError) else ""
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _may_help(error: BaseException, final: Container[int]) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return (status == 429 or status >= 500) and status not in final and retry_after(error) <= LONGEST_RETRY_AFTER
    if isinstance(error, httpx.TransportError):
        return not isinstance(error, httpx.UnsupportedProtocol) and not _is_unknown_host(error)
    return isinstance(error, ValueError)


def _is_unknown_host(error: BaseException) -> bool:
    """Whether a name could not be resolved, as without a network."""
    cause = error.__cause__ or error.__context__
    return isinstance(error, socket.gaierror) or (cause is not None and _is_unknown_host(cause))


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
