"""Asking a web service by httpx: again, later and later, where that may help, and never without end."""

from __future__ import annotations

import logging
import random
import socket
import time
from collections.abc import Callable, Container
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

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
