"""Token frequencies of a reference corpus: DC-PDD's estimate of how common each token is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mialib.store import atomic_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS_AT_ONCE = 1024  # tokenized side by side by the tokenizer's own threads


@dataclass(frozen=True)
class TokenFrequency:
    """How often each token of a vocabulary occurs in a reference corpus.

    `counts` has shape (V,), one entry for each row of the model's output, also for tokens the tokenizer never emits.
    """

    counts: NDArray[np.int64]
    name: str  # the corpus
    tokenizer: str = ""  # the tokenizer's content hash; detectors refuse another tokenizer's tokens

    @cached_property
    def log_probability(self) -> NDArray[np.float64]:
        """log p(v; D') with Laplace smoothing, (V,) nats: log((count + 1) / (N' + |V|)) (DC-PDD, Eq. 5)."""
        return np.log(self.counts + 1) - np.log(self.n_tokens + len(self.counts))

    @property
    def n_tokens(self) -> int:
        """Tokens in the corpus, N'."""
        return int(self.counts.sum())

    def save(self, path: str | Path) -> None:
        """Write to parquet, one row a token."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        metadata = {"mialib": json.dumps({"name": self.name, "tokenizer": self.tokenizer})}
        with atomic_path(path) as temporary:
            pq.write_table(pa.table({"count": self.counts}).replace_schema_metadata(metadata), temporary)

    @classmethod
    def load(cls, path: str | Path) -> TokenFrequency:
        """Read what `save` wrote; ValueError where the file is something else."""
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        metadata = json.loads((table.schema.metadata or {}).get(b"mialib", b"{}"))
        if set(metadata) != {"name", "tokenizer"}:
            raise ValueError(f"{path} holds no token frequencies")
        return cls(counts=table.column("count").to_numpy(), **metadata)


def count_tokens(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    *,
    name: str,
    tokenizer_hash: str = "",
) -> TokenFrequency:
    """Count the tokens of `texts`, which may be a stream larger than memory; no start or end tokens are added.

    `vocab_size` is the model's |V|, its number of output rows. ValueError where a token lies outside it or nothing
    was counted.
    """
    counts = np.zeros(vocab_size, np.int64)
    for batch in _batches(texts, TEXTS_AT_ONCE):
        encoded = tokenizer(batch, add_special_tokens=False, return_attention_mask=False, verbose=False)
        token_ids = np.concatenate([np.asarray(ids, np.int64) for ids in encoded["input_ids"]])
        if len(token_ids) and token_ids.max() >= vocab_size:
            raise ValueError(f"{name}: token id {token_ids.max()} lies outside the model's vocabulary of {vocab_size}")
        counts += np.bincount(token_ids, minlength=vocab_size)
    if not counts.any():
        raise ValueError(f"{name}: the reference corpus holds no tokens")
    return TokenFrequency(counts=counts, name=name, tokenizer=tokenizer_hash)


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(texts)
    while batch := list(islice(iterator, size)):
        yield batch
