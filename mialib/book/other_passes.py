"""Token statistics by other functions of the logits than `mialib.scoring`'s, kept on disk.

The logits are whole, so this is slower than scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mialib.batches import right_padded, token_batches
from mialib.catalog.models import load_scorer, model_revision, pick_dtype, start_token_of
from mialib.models import pick_device
from mialib.scoring import fitting_tokens
from mialib.store import Format, code_hash, hash_of, hash_texts, keep
from mialib.text import check_texts
from mialib.token_stats import TokenRow, TokenStats

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


def other_statistics(model: str, texts: Sequence[str], functions: Mapping[str, Statistics]) -> dict[str, TokenStats]:
    """The statistics of each text by each function, from one pass on the device and in the dtype that `Scorer` takes.

    ValueError, naming the text, for an empty one. They may not be finite: a model that gives some tokens no probability
    at all has no plain mean of log p.
    """
    check_texts(texts, "texts to score")
    device = pick_device()
    code = {name: (f.__code__.co_code.hex(), repr(f.__code__.co_consts)) for name, f in functions.items()}
    return keep(
        "other_statistics",
        lambda: _run(model, texts, functions),
        Format("", _write, _read),
        model=model_revision(model),
        texts=hash_texts(texts),
        device=device.type,
        dtype=str(pick_dtype("auto", device, model)),
        start_token=start_token_of(model),
        functions=hash_of([code, [f.__code__.co_names for f in functions.values()]]),
        code=code_hash("book.other_passes", apart=("lab",)),
        versions=[version("torch"), version("transformers")],
    )


def _run(model: str, texts: Sequence[str], functions: Mapping[str, Statistics]) -> dict[str, TokenStats]:
    import torch

    loaded = load_scorer(model).loaded
    start = [] if loaded.start_token_id is None else [loaded.start_token_id]
    encoded = loaded.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    token_ids = [(start + ids)[: loaded.max_tokens + 1] for ids in encoded]
    rows: dict[str, list[TokenRow | None]] = {name: [None] * len(texts) for name in functions}
    n_tokens = LOGITS_BYTES // (4 * loaded.vocab_size)
    for batch in token_batches(token_ids, lambda: min(fitting_tokens(loaded), n_tokens)):
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
        name: TokenStats.from_rows(of_name, provenance=made_by | {"statistics": name}) for name, of_name in rows.items()
    }
