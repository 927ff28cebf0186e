"""The table that every likelihood detector reads: four numbers for each token of each text.

One forward pass of a model over a text gives, per token x_i with context x_<i and vocabulary V,

    log_prob      log p(x_i | x_<i)
    entropy       H_i   = -sum_v p(v | x_<i) log p(v | x_<i)
    log_prob_var  Var_i =  sum_v p(v | x_<i) (log p(v | x_<i) + H_i)^2
    top_log_prob  max_v log p(v | x_<i), which is log_prob where x_i is the likeliest token

all in nats (nats^2 for the variance). Min-K%++'s mean is mu_i = -H_i. Texts have different lengths, so the table is
ragged: flat columns and one offset a text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.plain import plain_indices, plain_numbers
from mialib.store import atomic_path, readable

NUMBERS = ("log_prob", "entropy", "log_prob_var", "top_log_prob")  # of a token
COLUMNS: dict[str, type[np.int32 | np.float32]] = {"token_ids": np.int32, **dict.fromkeys(NUMBERS, np.float32)}
FORMAT = 2  # of a file
LEAST_LIKELY = -50.0  # a mean log-prob, nats: even a model that is sure of other texts gives more


class TokenRow(NamedTuple):
    """One text's statistics, each of shape (n_tokens,): a detector's input."""

    token_ids: NDArray[np.int32]
    log_prob: NDArray[np.float32]  #: nats
    entropy: NDArray[np.float32]  #: nats
    log_prob_var: NDArray[np.float32]  #: nats^2
    top_log_prob: NDArray[np.float32]  #: nats


def check_known(columns: Iterable[str], lacks: Mapping[str, str], what: str) -> None:
    """ValueError where `what` reads one of the columns that `TokenStats.lacks`."""
    for column in columns:
        if column in lacks:
            raise ValueError(f"{what} is not applicable: {lacks[column]}")


def same_or_unknown(provenance: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """False where the hashes of both passes' texts are known and differ; `take` and `prefix` forget the hash."""
    own, others = (None if {"taken", "prefix"} & made.keys() else made.get("texts") for made in (provenance, other))
    return own == others or not (own and others)


@dataclass(frozen=True)
class TokenStats(Sequence[TokenRow]):
    """Token statistics of N texts, whose tokens follow each other in flat columns.

    >>> stats = Scorer("smollm2-135m").score(["The river rises in the hills.", "The mill"], progress=False)
    >>> len(stats), stats[1].log_prob.dtype
    (2, dtype('float32'))
    >>> stats.take([1]).save("statistics.parquet")
    >>> len(TokenStats.load("statistics.parquet"))
    1
    """

    token_ids: NDArray[np.int32]  #: (tokens,)
    log_prob: NDArray[np.float32]  #: (tokens,) nats
    entropy: NDArray[np.float32]  #: (tokens,) nats
    log_prob_var: NDArray[np.float32]  #: (tokens,) nats^2
    top_log_prob: NDArray[np.float32]  #: (tokens,) nats
    offsets: NDArray[np.int64]  #: (N + 1,): text i owns entries offsets[i]:offsets[i + 1]
    n_cut: NDArray[np.int32]  #: (N,): how many of a text's tokens lay past the model's context and were not scored
    provenance: dict[str, Any]  #: what made the table: model and tokenizer hash, dtype, start token, text hash, version
    #: (N,): how many characters of a text lay past the context; -1 (the default) if only `n_cut` is known
    n_unread: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        if not len(self.n_unread):
            object.__setattr__(self, "n_unread", -np.sign(self.n_cut))
        sizes = dict.fromkeys(COLUMNS, int(self.offsets[-1])) | {"n_cut": len(self), "n_unread": len(self)}
        for name, n in sizes.items():
            if len(getattr(self, name)) != n:
                raise ValueError(f"column {name} has {len(getattr(self, name))} entries, and {n} are expected")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> TokenRow:  # type: ignore[override]
        if not -len(self) <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        span = slice(self.offsets[index % len(self)], self.offsets[index % len(self) + 1])
        return TokenRow(*(getattr(self, name)[span] for name in COLUMNS))

    def check_finite(self) -> None:
        """Raise ValueError, naming the first text that has no scored token, or a number that is not finite."""
        if not self.n_tokens.all():
            raise ValueError(f"text {int(np.argmin(self.n_tokens))} has no scored token")
        for name in NUMBERS:
            if name not in self.lacks and len(wrong := np.flatnonzero(~np.isfinite(getattr(self, name)))):
                i = int(np.searchsorted(self.offsets, wrong[0], side="right")) - 1
                at = int(wrong[0] - self.offsets[i])
                raise ValueError(f"text {i}, token {at}: {name} is {getattr(self, name)[wrong[0]]}")

    @property
    def lacks(self) -> dict[str, str]:
        """The columns that this model does not give, which are NaN (-1 for token ids), and the reason for each."""
        return self.provenance.get("lacks", {})

    @property
    def n_tokens(self) -> NDArray[np.int64]:
        """The number of scored tokens of each text, (N,)."""
        return np.diff(self.offsets)

    def scored_parts(self, texts: Sequence[str]) -> list[str]:
        """What was scored of each of the N texts: the whole text, or the beginning that fitted into the context.

        If only the number of lost tokens is known, the same share of the characters counts as lost.
        """
        if not self.n_cut.any():
            return list(texts)
        shares = self.n_tokens / np.maximum(self.n_tokens + self.n_cut, 1)
        ends = [
            len(text) - n if n >= 0 else round(len(text) * share)
            for text, n, share in zip(texts, self.n_unread.tolist(), shares.tolist(), strict=True)
        ]
        return [text[:end] for text, end in zip(texts, ends, strict=True)]

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[TokenRow],
        *,
        n_cut: ArrayLike | None = None,
        n_unread: ArrayLike = (),
        provenance: dict[str, Any],
    ) -> Self:
        """Make the table of N texts from their rows, in order; `n_cut` (N,) is 0 by default, `n_unread` is unknown."""
        columns: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(row, name) for row in rows]).astype(dtype) if rows else np.empty(0, dtype)
            for name, dtype in COLUMNS.items()
        }
        offsets = np.cumsum([0, *(len(row.log_prob) for row in rows)])
        cut = np.zeros(len(rows), np.int32) if n_cut is None else np.asarray(n_cut, np.int32)
        unread = np.asarray(n_unread, np.int32)
        return cls(**columns, offsets=offsets, n_cut=cut, provenance=provenance, n_unread=unread)

    @classmethod
    def joined(cls, parts: Iterable["StatsPart"], provenance: dict[str, Any]) -> Self:
        """Join parts to one table, in the order of the texts' numbers; of a repeated text the first copy counts."""
        by_number: dict[int, tuple[TokenRow, int, int]] = {}
        for numbers, stats in parts:
            for number, *of_text in zip(numbers.tolist(), stats, stats.n_cut, stats.n_unread, strict=True):
                by_number.setdefault(number, tuple(of_text))
        rows, n_cut, n_unread = zip(*(by_number[n] for n in sorted(by_number)), strict=True) if by_number else ((),) * 3
        return cls.from_rows(rows, n_cut=n_cut, n_unread=n_unread, provenance=provenance)

    def prefix(self, n_tokens: ArrayLike) -> Self:
        """The statistics of the first `n_tokens[i]` tokens of text i; ValueError if fewer of them were scored."""
        wanted = plain_numbers(n_tokens, "tokens of a prefix")
        if len(wrong := np.flatnonzero((wanted < 1) | (wanted > self.n_tokens))):
            i = int(wrong[0])
            raise ValueError(f"text {i} has {self.n_tokens[i]} scored tokens, {wanted[i]} were asked for")
        rows = [TokenRow._make(column[:n] for column in row) for row, n in zip(self, wanted, strict=True)]
        return self.from_rows(rows, provenance=self.provenance | {"prefix": True})

    def take(self, indices: ArrayLike) -> Self:
        """The statistics of the texts with these numbers, in this order, or of the texts that a mask (N,) marks."""
        numbers, provenance = plain_indices(indices, len(self), "texts to take"), self.provenance | {"taken": True}
        cut = {"n_cut": self.n_cut[numbers], "n_unread": self.n_unread[numbers]}
        return self.from_rows([self[i] for i in numbers], **cut, provenance=provenance)

    def save(self, path: str | Path) -> None:
        """Write a parquet file, whole or not at all: one row per text, and the provenance as metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: pa.LargeListArray.from_arrays(self.offsets, getattr(self, name)) for name in COLUMNS}
        header = json.dumps({"format": FORMAT, "provenance": self.provenance}, ensure_ascii=False)
        table = pa.table(columns | {"n_cut": self.n_cut, "n_unread": self.n_unread})
        table = table.replace_schema_metadata({"mialib": header})
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote, into read-only columns; ValueError for another file or a damaged one."""
        import pyarrow.parquet as pq

        with readable(path, "token statistics"), pq.ParquetFile(path, page_checksum_verification=True) as file:
            header = json.loads((file.schema_arrow.metadata or {}).get(b"mialib", b"{}"))
            if header.get("format") != FORMAT:
                raise ValueError(f"{path}: token statistics of format {header.get('format')}, not {FORMAT}")

            table = file.read(use_threads=False)
            lists = {name: table[name].combine_chunks() for name in COLUMNS}
            offsets = np.cumsum([0, *lists["log_prob"].value_lengths().to_numpy()])  # (N + 1,)
            numbers = {name: column.flatten().to_numpy() for name, column in lists.items()}  # (tokens,) each
            names = {"n_cut", "n_unread"} & {*table.column_names}  # older files lack one
            cut = {name: table[name].to_numpy().astype(np.int32) for name in names}  # (N,) each
            return cls(**numbers, offsets=offsets, **cut, provenance=header["provenance"])


class StatsPart(NamedTuple):
    """The statistics of n texts of a list, and the texts' numbers in the list, (n,)."""

    numbers: NDArray[np.int64]
    stats: TokenStats

    def save(self, path: str | Path) -> None:
        """Write to parquet like `TokenStats`, the numbers in its provenance."""
        replace(self.stats, provenance={"numbers": self.numbers.tolist()}).save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        stats = TokenStats.load(path)
        return cls(np.array(stats.provenance.pop("numbers"), np.int64), stats)


def check_likely(mean: float, name: str) -> None:
    """ValueError where a mean log-prob, at temperature 1, is so far below guessing that the model must be broken."""
    if mean < LEAST_LIKELY:
        raise ValueError(
            f"model {name} gives the texts a mean log-prob of {mean:.4g}, and guessing among a million tokens gives "
            "-13.8; its weights are broken (quantized without scales?), or its tokens are others"
        )
