"""Word of a long computation: a bar in a terminal; elsewhere, as in a log file, a line now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tqdm import tqdm

logger = logging.getLogger(__name__)

FIRST_LINE, SHORTEST_PAUSE, LONGEST_PAUSE = 10.0, 60.0, 600.0  # seconds


@contextmanager
def progress(name: str, sizes: Mapping[int, int], shown: bool = True) -> Iterator[Callable[..., None]]:
    """Show how far a computation over texts is; `sizes` says about how long each takes, by its number.

    Gives `tell(numbers, n_tokens)`, to be called with the numbers of the texts that are done. `n_tokens` counts those
    that were scored for it, 0 where all is from an earlier run, and None where tokens are not what is counted.
    """
    n_done = n_tokens = size_done = 0
    size_left, began, next_line = sum(sizes.values()), time.monotonic(), FIRST_LINE
    # disable=None shows a bar in a terminal only. A page or a log would keep each refresh as a line of its own.
    bar = tqdm(total=len(sizes), unit="text", desc=name, disable=None if shown else True)

    def tell(numbers: Sequence[int], tokens: int | None = None) -> None:
        nonlocal n_done, n_tokens, size_done, size_left, next_line
        bar.update(len(numbers))
        n_done, size = n_done + len(numbers), sum(sizes[i] for i in numbers)
        size_left -= size
        if tokens != 0:
            size_done, n_tokens = size_done + size, n_tokens + (tokens or 0)
        seconds = time.monotonic() - began
        if shown and bar.disable and size_done and size_left > 0 and seconds >= next_line:
            next_line = seconds + min(max(seconds, SHORTEST_PAUSE), LONGEST_PAUSE)  # more and more rarely
            speed = f", {n_tokens / seconds:,.0f} tokens a second" if n_tokens else ""
            left = in_words(seconds * size_left / size_done)
            logger.info("%s: %d of %d texts%s, about %s left", name, n_done, len(sizes), speed, left)

    with bar:
        yield tell


def in_words(seconds: float) -> str:
    """ "40 seconds", "7 minutes", "5 hours"."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
