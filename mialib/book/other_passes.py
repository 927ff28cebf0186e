"""Token statistics by other functions of the logits than `mialib.scoring`'s, kept on disk.

The logits are whole, so this is slower than scoring.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from dis import get_instructions
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from mialib.batches import right_padded, token_batches
from mialib.catalog.models import load_scorer, pass_key
from mialib.scoring import fitting_tokens
from mialib.shared.kept import Format, keep
from mialib.store import hash_texts
from mialib.text import check_texts
from mialib.token_stats import NUMBERS, TokenRow, TokenStats
from mialib.versions import versions_of

if TYPE_CHECKING:
    import torch

# Logits (R, V) float32 and targets (R,) to three (R,) tensors in the places of log p, entropy and variance of log p.
Statistics = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", ...]]

LOGITS_BYTES = 128 * 2**20  # of a batch, in float32; what is made of them takes as much again


def _write(stats: Mapping[str, TokenStats], folder: Path) -> None:
    folder.mkdir()
    for name, of_name in stats.items():
        of_name.save(folder / f"{name}.parquet")


def _read(folder: Path) -> dict[str, TokenStats]:
    return {path.stem: TokenStats.load(path) for path in sorted(folder.glob("*.parquet"))}


def other_statistics(
    model: str, texts: Sequence[str], functions: Mapping[str, Statistics], *, then: int | None = None
) -> dict[str, TokenStats]:
    """The statistics of each text by each function, from one pass on the device and in the dtype that `Scorer` takes.

    Texts are cut to the context as there; `then` is the id of a token that is scored after each text as if it were its
    last. ValueError, naming the text, for an empty one. They may not be finite: a model that gives some tokens no
    probability at all has no plain mean of log p.
    """
    check_texts(texts, "texts to score")
    return keep(
        "other_statistics",
        lambda: _run(model, texts, functions, then),
        Format("", _write, _read),
        texts=hash_texts(texts),
        functions={name: code_of(function) for name, function in functions.items()},
        then=then,
        **versions_of("scoring"),
        **pass_key(model),
    )


def code_of(function: Callable[..., Any]) -> str:
    """The code of a function of a page's cell, which no hash of a file covers.

    ValueError where it reads anything but modules from around itself: that might change and leave its code as it is.
    """
    around, code = function.__globals__, function.__code__
    read = [name for name in _names_read(code) if name in around and not isinstance(around[name], ModuleType)]
    if others := [*code.co_freevars, *read]:
        raise ValueError(f"{function.__name__} reads {others[0]!r} from around it; write what it needs into it")
    return marshal.dumps((_without_places(code), function.__defaults__, function.__kwdefaults__)).hex()


def _names_read(code: CodeType) -> list[str]:
    """The names that some code reads from around it, that of the functions inside it included."""
    inside = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names_read(const)]
    return sorted({step.argval for step in get_instructions(code) if step.opname == "LOAD_GLOBAL"}.union(inside))


def _without_places(code: CodeType) -> CodeType:
    """The same code, as if it stood in another file at another line."""
    inside = [_without_places(const) if isinstance(const, CodeType) else const for const in code.co_consts]
    return code.replace(co_consts=tuple(inside), co_filename="", co_firstlineno=1, co_linetable=b"")


def _run(
    model: str, texts: Sequence[str], functions: Mapping[str, Statistics], then: int | None
) -> dict[str, TokenStats]:
    import torch

    scorer = load_scorer(model)
    loaded = scorer.loaded
    token_ids, n_cut = scorer.encode(texts, range(len(texts)))
    scorer.warn_of_cut(n_cut)
    if then is not None:  # what is cut has as many tokens as the context reads and one that it predicts
        token_ids = [[*ids[: loaded.max_tokens], then] for ids in token_ids]
    rows: dict[str, list[TokenRow | None]] = {name: [None] * len(texts) for name in functions}
    lacks: dict[str, dict[str, str]] = {}
    budget = min(fitting_tokens(loaded), LOGITS_BYTES // (4 * loaded.vocab_size))
    for batch in token_batches(token_ids, lambda: budget):
        inputs, lengths = right_padded([token_ids[i][:-1] for i in batch], loaded.model.device)
        with torch.inference_mode():
            logits = loaded.model(inputs, use_cache=False).logits
            for i, of_text, length in zip(batch, logits, lengths.tolist(), strict=True):
                targets = torch.tensor(token_ids[i][1:], device=logits.device)
                for name, statistics in functions.items():
                    columns = [c.float().cpu().numpy() for c in statistics(of_text[:length].float(), targets)]
                    not_given = [np.full(len(targets), np.nan, np.float32)] * (len(NUMBERS) - len(columns))
                    lacks[name] = {of: f"{name} gives no {of}" for of in NUMBERS[len(columns) :]}
                    rows[name][i] = TokenRow(np.asarray(token_ids[i][1:], np.int32), *columns, *not_given)
    made_by = {"model": loaded.name, "revision": loaded.revision, "tokenizer": loaded.tokenizer_hash}
    return {
        name: TokenStats.from_rows(
            of_name, n_cut=n_cut, provenance=made_by | {"statistics": name, "lacks": lacks.get(name, {})}
        )
        for name, of_name in rows.items()
    }
