"""Log-probs that others computed: a model `logprobs:FILE.jsonl` is a file with a text, its tokens and their log-probs a
line.

    {"text": "...", "token_ids": [5, 7, 9], "log_probs": [null, -2.1, -0.3]}

vLLM's `prompt`, `prompt_token_ids` and `prompt_logprobs` are read too, with an object by token id for each token. null
stands before the first log-prob where nothing was read before the first token, which is then not scored. All else, a
text that is not in the file included, is an error that names file and row, or text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mialib.batches import encode
from mialib.catalog.models import load_tokenizer
from mialib.catalog.registry import LOGPROBS, lacks, tokenizer_of
from mialib.models import tokenizer_hash
from mialib.shared.files import read_rows
from mialib.store import code_hash, hash_files, hash_texts, mialib_version
from mialib.text import check_texts, excerpt
from mialib.token_stats import TokenRow, TokenStats, check_likely

LARGEST_LOG_PROB = 1e-5  # nats: a certain token's, rounded
NO_LOG_PROB = -9999  # what vLLM writes for minus infinity, which JSON lacks
COLUMNS = (("text", "token_ids", "log_probs"), ("prompt", "prompt_token_ids", "prompt_logprobs"))


@dataclass(frozen=True)
class LogprobsFile:
    """A file of log-probs as a model."""

    name: str  # with the prefix
    start_token_id: None = None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.name.removeprefix(LOGPROBS))

    def determined_by(self) -> dict[str, Any]:
        """What the statistics depend on besides the texts."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} does not exist (looked from {Path.cwd()})")
        tokenizer = tokenizer_hash(load_tokenizer(self.name)) if tokenizer_of(self.name) else None
        return {"file": hash_files([self.path]), "tokenizer": tokenizer}


def score(model: LogprobsFile, texts: Sequence[str]) -> TokenStats:
    """The token statistics of each text that the file holds, in the order given.

    ValueError for a text that it does not hold, for a row that is not as expected, and for log-probs far below
    guessing; where a tokenizer is named (MIALIB_API_TOKENIZER), also for token ids that are not its own.
    """
    check_texts(texts, "texts to score")
    found, asked_for = _read(model.path), model.determined_by()
    own = encode(load_tokenizer(model.name), texts) if asked_for["tokenizer"] else None
    rows = []
    for i, text in enumerate(texts):
        if text not in found:
            raise ValueError(f"{model.path} holds no log-probs of text {i}: {excerpt(text)}")
        row, ids, log_probs = found[text]
        if own is None:
            rows.append((None, log_probs))
        elif own[i] in (ids, ids[1:]):  # a start token may come before the text's own
            log_probs = log_probs[-len(own[i]) :]
            rows.append((ids[-len(log_probs) :], log_probs))
        else:
            raise ValueError(
                f"{model.path}, row {row}: its token ids are not those of {tokenizer_of(model.name)}: {excerpt(text)}"
            )
    provenance = {
        "revision": f"{asked_for['file'][:10]} (a file of log-probs)",
        "tokenizer": asked_for["tokenizer"],
        "device": "not known",
        "start_token_id": None,
        "code": code_hash("catalog.logprobs", apart=("lab",)),
    }
    return known_log_probs(model.name, texts, rows, provenance)


def known_log_probs(
    model: str,
    texts: Sequence[str],
    rows: Sequence[tuple[Sequence[int] | None, Sequence[float]]],
    provenance: dict[str, Any],
) -> TokenStats:
    """The token statistics of a model of which each text's log-probs and, maybe, token ids are all that is known.

    ValueError for log-probs far below guessing.
    """
    token_rows = []
    for ids, log_probs in rows:
        unknown = np.full(len(log_probs), np.nan, np.float32)
        ids = np.full(len(log_probs), -1) if ids is None else ids
        log_probs = np.asarray(log_probs, np.float32)
        token_rows.append(TokenRow(np.asarray(ids, np.int32), log_probs, unknown, unknown, unknown))
    provenance = provenance | {
        "model": model,
        "dtype": "not known",
        "max_tokens": None,
        "texts": hash_texts(texts),
        "n_texts": len(texts),
        "lacks": lacks(model),
        "mialib": mialib_version(),
    }
    stats = TokenStats.from_rows(token_rows, provenance=provenance)
    check_likely(stats, model)
    return stats


def _read(path: Path) -> dict[str, tuple[int, list[int], list[float]]]:
    """By text: its row in the file, its token ids, and the log-probs of all of them or of all but the first."""
    found: dict[str, tuple[int, list[int], list[float]]] = {}
    for number, row in enumerate(read_rows(path), start=1):
        where = f"{path}, row {number}"
        names = next((names for names in COLUMNS if set(names) <= row.keys()), None)
        if names is None:
            raise ValueError(f"{where}: {' or '.join(map(', '.join, COLUMNS))} are expected; it has {', '.join(row)}")
        text, ids, given = (row[name] for name in names)
        if not isinstance(text, str):
            raise ValueError(f"{where}: a text is expected, got {type(text).__name__}")
        if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
            raise ValueError(f"{where}: {names[1]} is a list of whole numbers")
        if not isinstance(given, list) or len(given) != len(ids):
            raise ValueError(f"{where}: {names[2]} is a list of a log-prob for each of {len(ids)} token ids")
        log_probs = [_log_prob(value, token) for value, token in zip(given, ids, strict=True)]
        scored = log_probs[1:] if log_probs[:1] == [None] else log_probs
        if not scored:
            raise ValueError(f"{where}: no token has a log-prob")
        for at, value in enumerate(scored, start=len(ids) - len(scored)):
            if value is None or not NO_LOG_PROB < value <= LARGEST_LOG_PROB:
                raise ValueError(f"{where}, token {at}: {given[at]!r} is no log-prob")
        if found.setdefault(text, (number, ids, scored))[1:] != (ids, scored):
            raise ValueError(f"{where}: row {found[text][0]} has the same text and other log-probs")
    return found


def _log_prob(value: Any, token: int) -> float | None:
    """A token's log-prob, given as a number or in vLLM's object by token id; NaN for anything else."""
    if isinstance(value, dict):
        value = value.get(str(token))
        value = value.get("logprob") if isinstance(value, dict) else math.nan
    return value if value is None or type(value) in (int, float) else math.nan
