"""Log-probs that others computed: a model `logprobs:FILE.jsonl` has a text, its tokens and their log-probs a line.

    {"text": "...", "token_ids": [5, 7, 9], "log_probs": [null, -2.1, -0.3]}

vLLM's `prompt`, `prompt_token_ids` and `prompt_logprobs` are read too, with an object by token id for each token. A
first token before which nothing was read has null and is not scored. All else is an error that names file and row.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np

from mialib.batches import encode
from mialib.catalog.models import load_tokenizer
from mialib.catalog.registry import find_model
from mialib.catalog.sources import PassOptions, Source, source_of
from mialib.models import tokenizer_hash
from mialib.shared.files import read_rows
from mialib.shared.kept import STATS, keep
from mialib.store import hash_files, hash_texts, mialib_version
from mialib.text import check_texts, excerpt
from mialib.token_stats import TokenRow, TokenStats, check_likely
from mialib.versions import versions_of

LOGPROBS = "logprobs:"  # how such a name begins
LARGEST_LOG_PROB = 1e-5  # nats: a certain token's, rounded
NO_LOG_PROB = -9999  # what vLLM writes for minus infinity, which JSON lacks
Known = tuple[Sequence[int] | None, Sequence[float]]  # a text's token ids, if known, and log-probs
COLUMNS = (("text", "token_ids", "log_probs"), ("prompt", "prompt_token_ids", "prompt_logprobs"))


class LogProbsAlone(Source):
    """A model that gives the log-probs of the actual tokens and nothing else."""

    def place(self, model: str) -> str:
        """Where they are from, in words."""
        raise NotImplementedError

    def tokenizer(self, model: str) -> str | None:
        """What MIALIB_API_TOKENIZER or the registry names."""
        known = find_model(model)
        return os.environ.get("MIALIB_API_TOKENIZER") or (known.tokenizer if known else None)

    def vocabulary_size(self, model: str) -> int:
        """|V|, as far as the tokenizer says."""
        return max(load_tokenizer(model).get_vocab().values()) + 1

    def lacks(self, model: str) -> dict[str, str]:
        """All columns but log_prob and, where no tokenizer is known, the token ids."""
        lacking = {
            "entropy": "no entropy",
            "log_prob_var": "no variance",
            "top_log_prob": "the actual tokens' log-probs alone",
        }
        if self.tokenizer(model) is None:
            lacking["token_ids"] = "no token ids and MIALIB_API_TOKENIZER names no tokenizer"
        return {column: f"{self.place(model)} gives {what}" for column, what in lacking.items()}


class Logprobs(LogProbsAlone):
    """`logprobs:FILE.jsonl`, a file as a model."""

    scores_any_text = False

    def place(self, model: str) -> str:
        """The file."""
        return f"the file {model.removeprefix(LOGPROBS)}"

    def no_weights(self, model: str) -> NoReturn:
        """ValueError: there is a file alone."""
        raise ValueError(
            f"{model} is a file of log-probs and this needs the model's weights; a file serves `mialib detect`, "
            "`audit` and `score`"
        )

    def score(self, model: str, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """What the file holds of the texts.

        ValueError for another pass, for a text that the file does not hold, for a row that is not as expected, for
        log-probs far below guessing and, where a tokenizer is named (MIALIB_API_TOKENIZER), for token ids of another.
        """
        if options.start_token != "auto":
            raise ValueError(f"{model}: its log-probs are as they were computed; leave --start-token out")
        if not options.is_of_texts_alone:
            raise ValueError(f"{model}: a file holds log-probs of texts alone, at one temperature")
        path = Path(model.removeprefix(LOGPROBS))
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist (looked from {Path.cwd()})")
        tokenizer = load_tokenizer(model) if self.tokenizer(model) else None
        key: dict[str, Any] = {"file": hash_files([path]), "texts": hash_texts(texts)} | versions_of("logprobs")
        key["tokenizer"] = tokenizer_hash(tokenizer) if tokenizer else None

        def make() -> TokenStats:
            check_texts(texts, "texts to score")
            provenance = {
                "revision": f"{key['file'][:10]} (a file of log-probs)",
                "tokenizer": key["tokenizer"],
                "device": "not known",
                "start_token_id": None,
                "versions": versions_of("logprobs"),
            }
            own = encode(tokenizer, texts) if tokenizer else None
            return known_log_probs(model, texts, self._rows(model, path, texts, own), provenance)

        return keep("token_stats", make, STATS, **key)

    def _rows(self, model: str, path: Path, texts: Sequence[str], own: list[list[int]] | None) -> list[Known]:
        found, rows = _read(path), list[Known]()
        for i, text in enumerate(texts):
            if text not in found:
                raise ValueError(f"{path} holds no log-probs of text {i}: {excerpt(text)}")
            row, ids, log_probs = found[text]
            if own is None:
                rows.append((None, log_probs))
            elif own[i] in (ids, ids[1:], ids[2:]):  # a start token, or GLM's two, may come before the text's own
                log_probs = log_probs[-len(own[i]) :]
                rows.append((ids[-len(log_probs) :], log_probs))
            else:
                theirs = self.tokenizer(model)
                raise ValueError(f"{path}, row {row}: its token ids are not those of {theirs}: {excerpt(text)}")
        return rows


def known_log_probs(model: str, texts: Sequence[str], rows: Sequence[Known], provenance: dict[str, Any]) -> TokenStats:
    """Token statistics from each text's log-probs and, if known, its token ids; all else of the model is unknown.

    ValueError for log-probs far below guessing.
    """
    token_rows = []
    for ids, log_probs in rows:
        unknown = np.full(len(log_probs), np.nan, np.float32)
        token_ids = np.full(len(log_probs), -1, np.int32) if ids is None else np.asarray(ids, np.int32)
        token_rows.append(TokenRow(token_ids, np.asarray(log_probs, np.float32), unknown, unknown, unknown))
    provenance = provenance | {
        "model": model,
        "dtype": "not known",
        "max_tokens": None,
        "texts": hash_texts(texts),
        "n_texts": len(texts),
        "lacks": source_of(model).lacks(model),
        "mialib": mialib_version(),
    }
    stats = TokenStats.from_rows(token_rows, provenance=provenance)
    check_likely(stats, model)
    return stats


def is_log_prob(value: Any) -> TypeGuard[float]:
    """Whether a value of JSON is a finite log-prob."""
    return type(value) in (int, float) and NO_LOG_PROB < value <= LARGEST_LOG_PROB


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
        first = int(log_probs[:1] == [None])
        for at, value in enumerate(log_probs[first:], start=first):
            if not is_log_prob(value):
                raise ValueError(f"{where}, token {at}: {given[at]!r} is no log-prob")
        if not log_probs[first:]:
            raise ValueError(f"{where}: no token has a log-prob")
        of_row = ids, log_probs[first:]
        if found.setdefault(text, (number, *of_row))[1:] != of_row:
            raise ValueError(f"{where}: row {found[text][0]} has the same text and other log-probs")
    return found


def _log_prob(value: Any, token: int) -> Any:
    """A token's log-prob, given by itself or in vLLM's object by token id; NaN where the object has none of it."""
    if isinstance(value, dict):
        value = value.get(str(token))
        return value.get("logprob") if isinstance(value, dict) else math.nan
    return value
