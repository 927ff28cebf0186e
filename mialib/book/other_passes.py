"""Token statistics computed otherwise than `mialib.scoring` computes them, to see how much that changes.

unweighted   mean and variance of log p over the vocabulary with every token counting alike, whatever its probability
bfloat16     the usual three numbers, of logits, log p and p that are rounded to bfloat16

Both come from one forward pass with whole logits: slower than scoring, and needed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mialib.batches import right_padded, token_batches
from mialib.catalog.models import load_model
from mialib.scoring import fitting_tokens
from mialib.text import check_texts
from mialib.token_stats import TokenRow, TokenStats

if TYPE_CHECKING:
    import torch

LOGITS_BYTES = 128 * 2**20  # of a batch, in float32; what is made of them takes as much again


def unweighted_statistics(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Log-prob of the target, minus the plain mean of log p over the vocabulary, and its plain variance.

    `logits` is (R, V) float32, `targets` (R,) int64; three (R,) tensors, nats, nats and nats^2, in the places of
    `mialib.scoring.row_statistics`: Min-K%++ takes the second as entropy.
    """
    # log p is the logits less one number a row, so their variance is its variance.
    log_sum = logits.logsumexp(dim=-1)
    log_prob = logits.gather(-1, targets[:, None])[:, 0] - log_sum
    mean = logits.mean(dim=-1, keepdim=True)
    return log_prob, log_sum - mean[:, 0], (logits - mean).square_().mean(dim=-1)  # torch's var takes six times as long


def bfloat16_statistics(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What `mialib.scoring.row_statistics` gives, with every intermediate result rounded to bfloat16."""
    rounded = logits.bfloat16()
    log_p, p = rounded.log_softmax(dim=-1), rounded.softmax(dim=-1)
    entropy = -(p * log_p).sum(dim=-1)
    variance = (p * (log_p + entropy[:, None]).square()).sum(dim=-1)
    return log_p.gather(-1, targets[:, None])[:, 0], entropy, variance


OTHER_STATISTICS = {"unweighted": unweighted_statistics, "bfloat16": bfloat16_statistics}


def other_statistics(model: str, texts: Sequence[str]) -> dict[str, TokenStats]:
    """The statistics of each text by each of `OTHER_STATISTICS`, on the device and in the dtype that `Scorer` takes.

    ValueError, naming the text, for an empty one. A model that gives some tokens no probability at all has no finite
    plain mean of log p.
    """
    import torch

    check_texts(texts, "texts to score")
    loaded = load_model(model)
    start = [] if loaded.start_token_id is None else [loaded.start_token_id]
    encoded = loaded.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    token_ids = [(start + ids)[: loaded.max_tokens + 1] for ids in encoded]
    rows: dict[str, list[TokenRow | None]] = {name: [None] * len(texts) for name in OTHER_STATISTICS}
    n_tokens = LOGITS_BYTES // (4 * loaded.vocab_size)
    for batch in token_batches(token_ids, lambda: min(fitting_tokens(loaded), n_tokens)):
        inputs, lengths = right_padded([token_ids[i][:-1] for i in batch], loaded.model.device)
        with torch.inference_mode():
            logits = loaded.model(inputs, use_cache=False).logits
            for i, of_text, length in zip(batch, logits, lengths.tolist(), strict=True):
                targets = torch.tensor(token_ids[i][1:], device=logits.device)
                for name, statistics in OTHER_STATISTICS.items():
                    columns = [c.float().cpu().numpy() for c in statistics(of_text[:length].float(), targets)]
                    rows[name][i] = TokenRow(np.asarray(token_ids[i][1:], np.int32), *columns)
    made_by = {"model": loaded.name, "revision": loaded.revision, "tokenizer": loaded.tokenizer_hash}
    return {
        name: TokenStats.from_rows(of_name, provenance=made_by | {"statistics": name}) for name, of_name in rows.items()
    }
