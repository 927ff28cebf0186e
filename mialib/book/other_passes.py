"""Token statistics by other functions of the logits than `mialib.scoring`'s, kept on disk.

The logits are whole, so this is slower than scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dis import get_instructions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from mialib.batches import right_padded, token_batches
from mialib.catalog.models import load_scorer, pass_key
from mialib.scoring import fitting_tokens
from mialib.store import Format, code_hash, hash_texts, keep
from mialib.text import check_texts
from mialib.token_stats import TokenRow, TokenStats

if TYPE_CHECKING:
    import torch

# Logits (R, V) float32 and targets (R,) to three (R,) tensors in the places of log p, entropy and variance of log p.
Statistics = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", ...]]

LIBRARIES = ("torch", "transformers")
LOGITS_BYTES = 128 * 2**20  # of a batch, in float32; what is made of them takes as much again


def _write(stats: Mapping[str, TokenStats], folder: Path) -> None:
    folder.mkdir()
    for name, of_name in stats.items():
        of_name.save(folder / f"{name}.parquet")


def _read(folder: Path) -> dict[str, TokenStats]:
    return {path.stem: TokenStats.load(path) for path in sorted(folder.glob("*.parquet"))}


def other_statistics(model: str, texts: Sequence[str], functions: Mapping[str, Statistics]) -> dict[str, TokenStats]:
    """The statistics of each text by each function, from one pass on the device and in the dtype that `Scorer` takes.

    Texts are cut to the context as there. ValueError, naming the text, for an empty one. They may not be finite: a
    model that gives some tokens no probability at all has no plain mean of log p.
    """
    check_texts(texts, "texts to score")
    return keep(
        "other_statistics",
        lambda: _run(model, texts, functions),
        Format("", _write, _read),
        texts=hash_texts(texts),
        functions={name: code_of(function) for name, function in functions.items()},
        code=code_hash("book.other_passes", apart=("lab",)),
        **pass_key(model),
    )


def code_of(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """A function's code as JSON, with the functions that it calls and the values that it reads from around it.

    A page defines these functions in a cell, so no hash of a file covers them. Of what a library in `LIBRARIES` defines
    the name stands: `pass_key` holds its version.
    """
    match value:
        case CodeType():
            return [value.co_code.hex(), value.co_names, [code_of(const, within) for const in value.co_consts]]
        case FunctionType() if value not in within and (value.__module__ or "").partition(".")[0] not in LIBRARIES:
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            around = value.__globals__ | {name: cell.cell_contents for name, cell in cells}
            read = sorted(_names(value.__code__) & around.keys())
            defaults = repr((value.__defaults__, value.__kwdefaults__))
            return [code_of(value.__code__), defaults, {name: code_of(around[name], (*within, value)) for name in read}]
        case FunctionType() | ModuleType():
            return value.__name__
    return repr(value)


def _names(code: CodeType) -> set[str]:
    """The names that some code reads from around it, that of the functions inside it included."""
    inside = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    read = {step.argval for step in get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return read.union(code.co_freevars, *inside)


def _run(model: str, texts: Sequence[str], functions: Mapping[str, Statistics]) -> dict[str, TokenStats]:
    import torch

    scorer = load_scorer(model)
    loaded = scorer.loaded
    token_ids, n_cut = scorer.encode(texts, range(len(texts)))
    scorer.warn_of_cut(n_cut)
    rows: dict[str, list[TokenRow | None]] = {name: [None] * len(texts) for name in functions}
    budget = min(fitting_tokens(loaded), LOGITS_BYTES // (4 * loaded.vocab_size))
    for batch in token_batches(token_ids, lambda: budget):
        inputs, lengths = right_padded([token_ids[i][:-1] for i in batch], loaded.model.device)
        with torch.inference_mode():
            logits = loaded.model(inputs, use_cache=False).logits
            for i, of_text, length in zip(batch, logits, lengths.tolist(), strict=True):
                targets = torch.tensor(token_ids[i][1:], device=logits.device)
                for name, statistics in functions.items():
                    columns = [c.float().cpu().numpy() for c in statistics(of_text[:length].float(), targets)]
                    rows[name][i] = TokenRow(np.asarray(token_ids[i][1:], np.int32), *columns)
    made_by = {"model": loaded.name, "revision": loaded.revision, "tokenizer": loaded.tokenizer_hash}
    return {
        name: TokenStats.from_rows(of_name, n_cut=n_cut, provenance=made_by | {"statistics": name})
        for name, of_name in rows.items()
    }
