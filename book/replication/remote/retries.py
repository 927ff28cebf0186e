"""Asking a web service: again, later and later, where that may help, and never without end."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Container
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_exponential_jitter

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 6
WAIT = wait_exponential_jitter(initial=1, max=60)  # seconds
MAX_RETRY_AFTER_SECONDS = 600  # a service that asks for more is left alone
MAX_SECONDS = 1800  # after which nothing is asked for again
REPLY_BYTES, REPLY_SECONDS = 64 * 2**20, 120  # that one reply may have and take
DECODED = ("content-encoding", "content-length", "transfer-encoding")  # headers of a body as it was sent


class EndlessError(ConnectionError):
    """A reply that is too large or too slow to be waited for."""


def counter(sender: str, scale: float = 1) -> Callable[[bytes], bytes]:
    """A function that gives back each decompressed chunk of a reply; EndlessError if they are too many or too slow.

    A reply may have and take `scale` times as much as others.
    """
    most_bytes, seconds = scale * REPLY_BYTES, scale * REPLY_SECONDS
    until, n_bytes = time.monotonic() + seconds, 0

    def count(chunk: bytes) -> bytes:
        nonlocal n_bytes
        n_bytes += len(chunk)
        if n_bytes > most_bytes:
            raise EndlessError(f"{sender} sends more than {most_bytes / 2**20:g} MiB in one reply")
        if time.monotonic() > until:
            raise EndlessError(f"{sender} has sent {n_bytes} bytes in {seconds:g} s, and no end")
        return chunk

    return count


def whole(stream: httpx.Response, body: bytes) -> httpx.Response:
    """A streamed reply together with its decoded body."""
    headers = [(name, value) for name, value in stream.headers.multi_items() if name not in DECODED]
    return httpx.Response(stream.status_code, headers=headers, content=body, request=stream.request)


def retrying(kind: type[Any] = Retrying, say: Callable[[BaseException], str] = str, final: Container[int] = ()) -> Any:
    """What calls a function that asks by httpx, and raises its last error; each retry is logged as `say` puts it.

    A refused or dropped connection, httpx's own time-outs, a 429, a 5xx and a reply that the function raises ValueError
    for are tried again, not before Retry-After says. A name that leads nowhere and a status that is `final` are not.
    """
    return kind(
        retry=retry_if_exception(lambda error: _may_help(error, final)),
        wait=lambda state: max(WAIT(state), retry_after(state.outcome.exception())),
        stop=stop_after_attempt(MAX_ATTEMPTS) | stop_after_delay(MAX_SECONDS),
        before_sleep=lambda state: logger.warning(
            "%s; asked again in %.0f s", say(state.outcome.exception()), state.next_action.sleep
        ),
        reraise=True,
    )


def retry_after(error: BaseException | None) -> float:
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
        passes = (status == 429 or status >= 500) and status not in final
        return passes and retry_after(error) <= MAX_RETRY_AFTER_SECONDS
    if isinstance(error, httpx.TransportError):
        return not isinstance(error, httpx.UnsupportedProtocol) and not _is_unknown_host(error)
    return isinstance(error, ValueError)


def _is_unknown_host(error: BaseException) -> bool:
    """Whether a name led nowhere, as without a network."""
    cause = error.__cause__ or error.__context__
    return isinstance(error, socket.gaierror) or (cause is not None and _is_unknown_host(cause))
