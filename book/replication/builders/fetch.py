"""Pages of the services that fresh benchmarks are made from, fetched politely and kept on disk."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from mialib.cache import JSON, cached
from mialib.store import mialib_version
from mialib.text import excerpt
from replication.remote.services import retry_after, retrying

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 60
LOGGED_EVERY = 50  # pages


class Service(NamedTuple):
    """A place on the web. $MIALIB_WIKIPEDIA_URL and so on name another address, such as a mirror's."""

    address: str
    gap_seconds: float  # from one reply to the next request
    licence: str
    variable: str = ""  # of another program, which names the address where $MIALIB_..._URL does not


SERVICES = {
    "wikipedia": Service(
        "https://en.wikipedia.org/w/api.php", 1, "Wikipedia's text is under CC BY-SA 4.0: name the pages, share alike."
    ),
    "patents": Service(
        "https://patents.google.com/patent",
        1,
        "Patent offices publish these documents; Google's terms of service hold for its pages.",
    ),
    # arXiv's terms of use ask for three seconds.
    "arxiv": Service("https://export.arxiv.org/api/query", 3, "arXiv's metadata, abstracts included, are under CC0."),
    # A mirror, since www.gutenberg.org is for human users only; its own example for robots waits two seconds.
    "gutenberg": Service(
        "https://gutenberg.pglaf.org",
        2,
        "Most of the books are in the public domain in the USA; elsewhere look up the law. Project Gutenberg's licence "
        "is taken off, so its name must not be used for the texts.",
    ),
    "pypi": Service(
        "https://pypi.org/simple",
        1,
        "A docstring is under its package's licence, which the table of releases names.",
        "PIP_INDEX_URL",
    ),
}


def address_of(service: str) -> str:
    """Where a service is asked, without a slash at the end."""
    address = os.environ.get(f"MIALIB_{service.upper()}_URL") or os.environ.get(SERVICES[service].variable)
    return (address or SERVICES[service].address).rstrip("/")


def without_password(url: str) -> str:
    """An address as it may be shown: that of a package index can hold a user's name and password."""
    return str(httpx.URL(url).copy_with(userinfo=b""))


class Fetcher:
    """Gets pages one at a time, slowly, and keeps every reply on disk.

    `contact` is an address at which the services reach whoever runs this; None for the package index, which does not
    ask for it; ValueError for an empty one. `gap_seconds` replaces the services' own.
    """

    def __init__(self, contact: str | None, gap_seconds: float | None = None) -> None:
        if contact is not None and not contact.strip():
            raise ValueError("the services ask who fetches: give an e-mail or web address (--contact, MIALIB_CONTACT)")
        who = f"; {contact.strip()}" if contact else ""
        agent = f"mialib/{mialib_version()} (benchmarks for membership inference{who})"
        self._client = httpx.Client(headers={"User-Agent": agent}, timeout=TIMEOUT_SECONDS, follow_redirects=True)
        self._gap_seconds = gap_seconds
        self._free_at: dict[str, float] = {}  # host -> when it may be asked again, seconds of time.monotonic
        self._n_fetched = 0
        self.days: set[str] = set()  # on which the replies used were fetched, ISO

    def get(
        self, service: str, path: str = "", params: Mapping[str, Any] | None = None, parse: Callable[[str], Any] = str
    ) -> Any:
        """What `parse` makes of a page; one that it raises ValueError for is asked for again, and never kept.

        FileNotFoundError for a page that does not exist (which is kept, too), ConnectionError where a service refuses
        or stays away after `retrying`, ValueError where it keeps sending what `parse` refuses.
        """
        url = str(httpx.URL(address_of(service) + path, params=params))

        def fetch() -> dict[str, Any]:
            reply = self.ask(service, url, lambda reply: parse(reply.text))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            return {"url": url, "fetched": now, "status": reply.status_code, "text": reply.text}

        kept = cached("fetched", fetch, JSON, url=url)
        self.days.add(kept["fetched"][:10])
        if kept["status"] != 200:
            raise FileNotFoundError(f"{url} does not exist (answer {kept['status']})")
        return parse(kept["text"])

    def ask(
        self,
        service: str,
        url: str,
        check: Callable[[httpx.Response], Any] = lambda reply: None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """A reply of status 200, 404 or 410, not kept; `check` is like `get`'s `parse`."""
        gap_seconds = SERVICES[service].gap_seconds if self._gap_seconds is None else self._gap_seconds
        host, address = httpx.URL(url).host, without_password(url)

        def once() -> httpx.Response:
            time.sleep(max(0.0, self._free_at.get(host, 0.0) - time.monotonic()))
            try:
                reply = self._client.get(url, headers=headers)
            finally:
                self._free_at[host] = time.monotonic() + gap_seconds
            if reply.status_code not in (404, 410):
                check(reply.raise_for_status())
            return reply

        try:
            reply = retrying(once)
        except httpx.HTTPError as error:
            message = f"{address}: {type(error).__name__} ({error})"
            if isinstance(error, httpx.HTTPStatusError):
                asks = f" and asks to wait {seconds:.0f} s" if (seconds := retry_after(error)) else ""
                message = f"{address} answered {error.response.status_code}{asks} ({excerpt(error.response.text, 100)})"
            raise ConnectionError(f"{message}; what was fetched is kept, a later run goes on from it") from None
        except ValueError as error:
            raise ValueError(f"{address}: {error}") from None
        self.days.add(datetime.now(UTC).date().isoformat())
        self._n_fetched += 1
        if self._n_fetched % LOGGED_EVERY == 0:
            logger.info("%d pages fetched, the last one %s", self._n_fetched, address)
        return reply
