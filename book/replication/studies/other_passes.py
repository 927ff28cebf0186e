"""Token statistics by other functions of the logits than `mialib.scoring`'s, kept on disk.

The logits are whole, so this is slower than scoring.
"""

from collections.abc import Callable, Mapping, Sequence
from dis import get_instructions
from inspect import getsource
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch

from mialib.batches import right_padded, token_batches
from mialib.cache import Format, cached
from mialib.catalog.loading import load_scorer
from mialib.catalog.models import find_weights
from mialib.scoring import fitting_tokens
from mialib.store import hash_texts
from mialib.token_stats import TokenRow, TokenStats
from mialib.versions import versions_of

# Logits (R, V) float32 and targets (R,) to three (R,) tensors in the places of log p, entropy and variance of log p.
Statistics = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]

LOGITS_BYTES = 128 * 2**20  # of a batch, in float32; what is made of them takes as much again


def other_statistics(
    model: str, texts: Sequence[str], functions: Mapping[str, Statistics], *, then: int | None = None
) -> dict[str, TokenStats]:
    """The statistics of each text by each function, from one pass on the device and in the dtype that `Scorer` takes.

    Texts are cut to the context as there; `then` is the id of a token that is scored after each text as if it were its
    last. They may not be finite: a model that gives some tokens no probability at all has no plain mean of log p. The
    cache knows a function by its source text. ValueError for one that reads anything but modules from around itself,
    which might change while its text does not.
    """
    sources = {name: _source(function) for name, function in functions.items()}
    key: dict[str, Any] = {"texts": hash_texts(texts), "functions": sources, "then": then}
    key |= versions_of("scoring") | find_weights(model).pass_key()
    return cached("other_statistics", lambda: _run(model, texts, functions, then), Format("", _write, _read), **key)


def _write(stats: Mapping[str, TokenStats], folder: Path) -> None:
    folder.mkdir()
    for name, table in stats.items():
        table.save(folder / f"{name}.parquet")


def _read(folder: Path) -> dict[str, TokenStats]:
    return {path.stem: TokenStats.load(path) for path in sorted(folder.glob("*.parquet"))}


def _source(function: Any) -> list[str]:
    """A function's source and defaults; ValueError where it, or a function inside it, reads what may change."""
    codes, read = [function.__code__], list(function.__code__.co_freevars)
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        names = [step.argval for step in get_instructions(code) if step.opname == "LOAD_GLOBAL"]
        around = function.__globals__
        read += [name for name in names if name in around and not isinstance(around[name], ModuleType)]
    if read:
        raise ValueError(f"{function.__name__} reads {read[0]!r} from around it; write what it needs into it")
    return [getsource(function), repr(function.__defaults__), repr(function.__kwdefaults__)]


def _run(
    model: str, texts: Sequence[str], functions: Mapping[str, Statistics], then: int | None
) -> dict[str, TokenStats]:
    scorer = load_scorer(model)
    loaded = scorer.loaded
    token_ids, n_cut = scorer.encode(texts, range(len(texts)))
    scorer.warn_of_cut(n_cut)
    if then is not None:  # what is cut has as many tokens as the context reads and one that it predicts
        token_ids = [[*ids[: loaded.max_tokens], then] for ids in token_ids]
    begin = max(0, len(loaded.start_token_ids) - 1)  # of several start tokens the last one predicts the text
    rows: dict[str, dict[int, TokenRow]] = {name: {} for name in functions}  # by the number of the text
    budget = min(fitting_tokens(loaded), LOGITS_BYTES // (4 * loaded.vocab_size))
    for batch in token_batches(token_ids, lambda: budget):
        inputs, lengths = right_padded([token_ids[i][:-1] for i in batch], loaded.model.device)
        with torch.inference_mode():
            logits = loaded.model(inputs, use_cache=False).logits
            for i, text_logits, length in zip(batch, logits, lengths.tolist(), strict=True):
                ids = token_ids[i][1 + begin :]
                targets = torch.tensor(ids, device=logits.device)
                for name, statistics in functions.items():
                    values = statistics(text_logits[begin:length].float(), targets)
                    log_prob, entropy, variance = (column.float().cpu().numpy() for column in values)
                    unknown = np.full(len(targets), np.nan, np.float32)
                    rows[name][i] = TokenRow(np.asarray(ids, np.int32), log_prob, entropy, variance, unknown)
    lacks = {"top_log_prob": "other statistics than ours are log p, entropy and variance alone"}
    made_by = {"model": loaded.name, "revision": loaded.revision, "tokenizer": loaded.tokenizer_hash, "lacks": lacks}
    return {
        name: TokenStats.from_rows(
            [by_text[i] for i in range(len(texts))], n_cut=n_cut, provenance=made_by | {"statistics": name}
        )
        for name, by_text in rows.items()
    }
