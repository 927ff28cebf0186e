"""Token frequencies of a reference corpus: DC-PDD's estimate of how common each token is."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mialib.batches import encode
from mialib.store import atomic_path, readable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_KEEPING = 60
TEXTS_AT_ONCE = 1024  # tokenized in parallel by the tokenizer's own threads


@dataclass(frozen=True)
class TokenFrequency:
    """How often each token of a vocabulary occurs in a reference corpus.

    >>> frequency = TokenFrequency(np.array([3, 0, 1]), "three tokens")
    >>> frequency.log_probability.round(2).tolist()
    [-0.56, -1.95, -1.25]
    """

    counts: NDArray[np.int64]  #: (V,), of each row of the model's output, also of tokens that the tokenizer never emits
    name: str  #: the corpus
    tokenizer: str = ""  #: the tokenizer's content hash; detectors refuse another tokenizer's tokens

    @cached_property
    def log_probability(self) -> NDArray[np.float64]:
        """log p(v; D') with Laplace smoothing, (V,) nats: `log((count + 1) / (N' + |V|))` (DC-PDD, Eq. 5)."""
        return np.log(self.counts + 1) - np.log(self.n_tokens + len(self.counts))

    @property
    def n_tokens(self) -> int:
        """The number of tokens in the corpus, N'."""
        return int(self.counts.sum())

    def save(self, path: str | Path) -> None:
        """Write a parquet file, one row per token."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        metadata = {"mialib": json.dumps({"name": self.name, "tokenizer": self.tokenizer})}
        table = pa.table({"count": self.counts}).replace_schema_metadata(metadata)
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary, write_page_checksum=True)

    @classmethod
    def load(cls, path: str | Path) -> TokenFrequency:
        """Read a file that `save` wrote; ValueError for any other file."""
        import pyarrow.parquet as pq

        with readable(path, "token frequencies"):
            table = pq.read_table(path, page_checksum_verification=True)
            metadata = json.loads((table.schema.metadata or {}).get(b"mialib", b"{}"))
            return cls(counts=table.column("count").to_numpy(), **metadata)


def count_tokens(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    *,
    name: str,
    tokenizer_hash: str = "",
    saved: Iterable[Mapping[str, NDArray[np.int64]]] = (),
    save: Callable[[dict[str, NDArray[np.int64]]], None] | None = None,
) -> TokenFrequency:
    """Count the tokens of `texts`, which may be a stream larger than memory; no start or end tokens are added.

    `vocab_size` is the model's `|V|`, its number of output rows. Once a minute `save` gets the counts (V,) so far
    and the number of texts counted; `saved` gives what an earlier run saved, and counting goes on there. ValueError for
    a token outside the vocabulary, and for no tokens.

    >>> model = Scorer("smollm2-135m").loaded
    >>> frequency = count_tokens(["The river rises.", "The mill"], model.tokenizer, model.vocab_size, name="two texts")
    >>> len(frequency.counts) == model.vocab_size
    True
    """
    if isinstance(texts, str):
        raise ValueError(f"{name}: texts are expected, got one string")
    counts, n_done, saved_at = np.zeros(vocab_size, np.int64), 0, time.monotonic()
    for last in saved:
        counts, n_done = last["counts"], int(last["n_done"])
    rest = islice(texts, n_done, None)
    while batch := list(islice(rest, TEXTS_AT_ONCE)):
        token_ids = np.concatenate([np.asarray(ids, np.int64) for ids in encode(tokenizer, batch)])
        if len(token_ids) and token_ids.max() >= vocab_size:
            raise ValueError(f"{name}: token id {token_ids.max()} lies outside the model's vocabulary of {vocab_size}")
        counts += np.bincount(token_ids, minlength=vocab_size)
        n_done += len(batch)
        if save and time.monotonic() - saved_at > SECONDS_BETWEEN_KEEPING:
            save({"counts": counts, "n_done": np.array(n_done)})
            saved_at = time.monotonic()
            logger.info("%s: %s texts, %s tokens counted", name, f"{n_done:,}", f"{counts.sum():,}")
    if not counts.any():
        raise ValueError(f"{name}: the reference corpus holds no tokens")
    return TokenFrequency(counts=counts, name=name, tokenizer=tokenizer_hash)
