"""Log-probs that others computed: `logprobs:FILE.jsonl` holds, in each line, a text, its tokens and their log-probs.

    {"text": "...", "token_ids": [5, 7, 9], "log_probs": [null, -2.1, -0.3]}

vLLM's `prompt`, `prompt_token_ids` and `prompt_logprobs` are read too, with an object by token id for each token. A
first token before which nothing was read has null and is not scored. All else is an error that names file and row.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeGuard

import numpy as np

from mialib.batches import encode, n_unread
from mialib.cache import STATS, cached
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import PassOptions, Source
from mialib.models import tokenizer_hash
from mialib.shared.files import read_rows
from mialib.store import hash_files, hash_texts, mialib_version
from mialib.text import check_texts, excerpt
from mialib.token_stats import TokenRow, TokenStats, check_likely
from mialib.versions import versions_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

LOGPROBS = "logprobs:"  # how such a name begins
LARGEST_LOG_PROB = 1e-5  # nats: a certain token's, rounded
NO_LOG_PROB = -9999  # what vLLM writes for minus infinity, which JSON lacks
AROUND = 8  # tokens on each side of a run of equal log-probs, and the shortest run that is looked at
BLOCK = 16  # tokens of a prefix cache's block, of vLLM's default
NO_CACHE = (
    "was it computed with a prefix cache, or something written where no log-prob was? Compute them again without the "
    "cache (vLLM: --no-enable-prefix-caching), and write null for none"
)
COLUMNS = (("text", "token_ids", "log_probs"), ("prompt", "prompt_token_ids", "prompt_logprobs"))


class Known(NamedTuple):
    """A text's scored tokens: their ids, if known, their log-probs, and how much was cut off."""

    token_ids: Sequence[int] | None
    log_probs: Sequence[float]
    n_cut: int = 0  # as in `TokenStats`
    n_unread: int = 0


class LogProbsAlone(Source):
    """A model that gives the log-probs of the actual tokens and nothing else."""

    @property
    def place(self) -> str:
        """Where they are from, in words."""
        raise NotImplementedError

    @property
    def tokenizer(self) -> str | None:
        """What MIALIB_API_TOKENIZER or the registry names."""
        return os.environ.get("MIALIB_API_TOKENIZER") or (self.known.tokenizer if self.known else None)

    @property
    def vocabulary_size(self) -> int:
        """|V|, as far as the tokenizer says."""
        return max(load_tokenizer(self.name).get_vocab().values()) + 1

    @property
    def lacks(self) -> dict[str, str]:
        """All columns but log_prob and, where no tokenizer is known, the token ids."""
        lacks = {"entropy": "no entropy", "log_prob_var": "no variance"}
        lacks["top_log_prob"] = "the actual tokens' log-probs alone"
        if self.tokenizer is None:
            lacks["token_ids"] = "no token ids and MIALIB_API_TOKENIZER names no tokenizer"
        return {column: f"{self.place} gives {what}" for column, what in lacks.items()}


class Logprobs(LogProbsAlone):
    """`logprobs:FILE.jsonl`, a file as a model."""

    scores_lowercase = False

    @property
    def place(self) -> str:
        """The file."""
        return f"the file {self.name.removeprefix(LOGPROBS)}"

    def no_weights(self) -> NoReturn:
        """ValueError: there is a file alone."""
        raise ValueError(f"{self.name} is a file of log-probs, and this needs the model's weights")

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """Read the texts' log-probs from the file.

        ValueError for another pass, a text that is not in the file, a wrong row, log-probs far below guessing, and
        token ids of another tokenizer than MIALIB_API_TOKENIZER names.
        """
        if options.start_token != "auto" or not options.is_of_texts_alone:
            said = "a file holds log-probs of texts alone, as they were computed"
            raise ValueError(f"{self.name}: {said}; leave --start-token and all that is read before the texts out")
        path = Path(self.name.removeprefix(LOGPROBS))
        tokenizer = load_tokenizer(self.name) if self.tokenizer else None
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
            return known_log_probs(self, texts, self._rows(path, texts, tokenizer), provenance)

        return cached("token_stats", make, STATS, **key)

    def _rows(self, path: Path, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase | None) -> list[Known]:
        lines, rows = _read(path), list[Known]()
        all_ids = encode(tokenizer, texts) if tokenizer else []
        for i, text in enumerate(texts):
            if text not in lines:
                raise ValueError(f"{path} holds no log-probs of text {i}: {excerpt(text)}")
            row, ids, log_probs = lines[text]
            if tokenizer is None:
                rows.append(Known(ids[-len(log_probs) :], log_probs))
                continue
            # A start token, or GLM's two, may come before the text's own, and the last may not have fitted the context.
            begins = (n for n in range(3) if ids[n:] and ids[n:] == all_ids[i][: len(ids) - n])
            begin = next(begins, None)
            if begin is None:
                raise ValueError(f"{path}, row {row}: its token ids are not those of {self.tokenizer}: {excerpt(text)}")
            ids = ids[begin:]
            cut = len(all_ids[i]) - len(ids), n_unread(tokenizer, text, ids) if len(all_ids[i]) > len(ids) else 0
            log_probs = log_probs[-len(ids) :]
            rows.append(Known(ids[-len(log_probs) :], log_probs, *cut))
        if n_cut := [row.n_cut for row in rows if row.n_cut]:
            said = "%s: %d of %d texts have more tokens than the file; the last %d are not scored"
            logger.warning(said, path, len(n_cut), len(rows), sum(n_cut))
        return rows


def known_log_probs(
    model: LogProbsAlone, texts: Sequence[str], rows: Sequence[Known], provenance: dict[str, Any]
) -> TokenStats:
    """Make token statistics of each text's log-probs and, if known, token ids; all other columns are unknown.

    ValueError for log-probs far below guessing, and for those that no model gives.
    """
    token_rows = []
    for row in rows:
        unknown = np.full(len(row.log_probs), np.nan, np.float32)
        ids = np.full(len(unknown), -1, np.int32) if row.token_ids is None else np.asarray(row.token_ids, np.int32)
        token_rows.append(TokenRow(ids, np.asarray(row.log_probs, np.float32), unknown, unknown, unknown))
    provenance = provenance | {
        "model": model.name,
        "dtype": "not known",
        "max_tokens": None,
        "texts": hash_texts(texts),
        "n_texts": len(texts),
        "lacks": model.lacks,
        "mialib": mialib_version(),
    }
    cut = {"n_cut": [row.n_cut for row in rows], "n_unread": [row.n_unread for row in rows]}
    stats = TokenStats.from_rows(token_rows, **cut, provenance=provenance)
    check_likely(float(stats.log_prob.mean(dtype=np.float64)), model.name)
    check_possible(stats, model.name)
    return replace(stats, token_ids=np.full_like(stats.token_ids, -1)) if "token_ids" in stats.lacks else stats


def check_possible(stats: TokenStats, name: str) -> None:
    """ValueError for log-probs that no model gives, such as those of a server with a prefix cache.

    - A text begins with `AROUND` zeros. No model is sure of first tokens: over 2,100 texts each, the largest log-prob
      of a first one is -1.2 in 22 recorded passes, and of a second one -8e-5.
    - `BLOCK` zeros stand in a row, and of `AROUND` tokens on each side at most one is nearly certain. What a model
      recites or repeats is nearly certain beside its zeros, too: rounded to two digits, Qwen2.5-Coder-0.5B has up to
      680 zeros in a row.
    - A number below -0.05 stands `AROUND` times in a row, at four different tokens or more. In the passes it does at
      most four times when rounded to two digits, and twice when rounded to four.
    - Two texts begin with the same `AROUND` log-probs of other tokens: those of an earlier request.
    """
    log_prob, offsets = stats.log_prob, stats.offsets
    digits = next((n for n in (2, 3) if np.allclose(log_prob, np.round(log_prob, n), rtol=0, atol=1e-5)), 4)
    nearly_certain = min(-0.002, -10 * 0.1**digits)
    is_new = np.append(log_prob[1:] != log_prob[:-1], True)  # (tokens,): whether a run of equal ones ends there
    is_new[offsets[1:] - 1] = True
    ends = np.flatnonzero(is_new) + 1
    lengths = np.diff(ends, prepend=0)
    for end, n in zip(ends[lengths >= AROUND].tolist(), lengths[lengths >= AROUND].tolist(), strict=True):
        i, begin, value = int(np.searchsorted(offsets, end)) - 1, end - n, log_prob[end - 1]
        first, last = offsets[i], offsets[i + 1]
        sides = np.append(log_prob[max(first, begin - AROUND) : begin], log_prob[end : min(last, end + AROUND)])
        ids = stats.token_ids[begin:end]
        is_hole = begin == first or (n >= BLOCK and (sides > nearly_certain).sum() < 2)
        is_same = value < -0.05 and (ids[0] < 0 or len(np.unique(ids)) >= 4)  # -1 where no ids are known
        if is_hole if value == 0 else is_same:
            where = f"{name}: text {i}, scored tokens {begin - first} to {end - 1 - first}"
            raise ValueError(f"{where}: each log-prob is {value:g}, which no model gives; {NO_CACHE}")
    begins: dict[bytes, int] = {}
    for i, row in enumerate(stats):
        earlier = begins.setdefault(row.log_prob[:AROUND].tobytes(), i) if len(row.log_prob) >= AROUND else i
        if not np.array_equal(stats[earlier].token_ids[:AROUND], row.token_ids[:AROUND]):
            pair = f"{name}: texts {earlier} and {i}"
            raise ValueError(f"{pair} begin with the same log-probs of other tokens; {NO_CACHE}")


def is_log_prob(value: Any) -> TypeGuard[float]:
    """Whether a value of JSON is a finite log-prob."""
    return type(value) in (int, float) and NO_LOG_PROB < value <= LARGEST_LOG_PROB


def _read(path: Path) -> dict[str, tuple[int, list[int], list[float]]]:
    """By text: its row in the file, its token ids, and the log-probs of all of them or of all but the first."""
    lines: dict[str, tuple[int, list[int], list[float]]] = {}
    for number, row in enumerate(read_rows(path), start=1):
        try:
            text, ids, log_probs = _read_row(row)
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
        earlier = lines.setdefault(text, (number, ids, log_probs))
        if earlier[1:] != (ids, log_probs):
            raise ValueError(f"{path}, row {number}: row {earlier[0]} has the same text and other log-probs")
    return lines


def _read_row(row: dict[str, Any]) -> tuple[str, list[int], list[float]]:
    names = next((names for names in COLUMNS if set(names) <= row.keys()), None)
    if names is None:
        raise ValueError(f"{' or '.join(map(', '.join, COLUMNS))} are expected; it has {', '.join(row)}")
    text, ids, values = (row[name] for name in names)
    are_lists = isinstance(text, str) and isinstance(ids, list) and isinstance(values, list) and len(ids) == len(values)
    if not are_lists or not all(type(i) is int and i >= 0 for i in ids):
        raise ValueError(f"{names[0]} is a text, {names[1]} a list of token ids, and {names[2]} a log-prob for each")
    log_probs = [_log_prob(value, token) for value, token in zip(values, ids, strict=True)]
    if log_probs[:1] == [0]:
        raise ValueError(f"the first log-prob is 0, and no model is sure of a first token; {NO_CACHE}")
    first = int(log_probs[:1] == [None])
    for at, value in enumerate(log_probs[first:], start=first):
        if not is_log_prob(value):
            raise ValueError(f"token {at}: {values[at]!r} is no log-prob")
    if not log_probs[first:]:
        raise ValueError("no token has a log-prob")
    return text, ids, log_probs[first:]


def _log_prob(value: Any, token: int) -> Any:
    """A token's log-prob, given by itself or in vLLM's object by token id; NaN where the object has none of it."""
    if isinstance(value, dict):
        value = value.get(str(token))
        return value.get("logprob") if isinstance(value, dict) else math.nan
    return value
