"""Lists of token ids as padded tensors: which texts share a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

PADDING_SHARE = 0.25  # of a row, at most


def token_batches(token_ids: Sequence[Sequence[int]], budget: Callable[[], int]) -> Iterator[list[int]]:
    """Batches of the texts' numbers, longest first, each within the budget of tokens, padding included.

    A text that would be padded by more than a quarter starts a new batch, which costs less than the padding.
    """
    batch: list[int] = []
    for i in sorted(range(len(token_ids)), key=lambda i: (-len(token_ids[i]), i)):
        longest = len(token_ids[batch[0]]) if batch else 0
        if batch and (longest * (len(batch) + 1) > budget() or len(token_ids[i]) < (1 - PADDING_SHARE) * longest):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def right_padded(
    token_ids: Sequence[Sequence[int]], device: torch.device | str, padding: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (texts, longest) and the texts' lengths (texts,), int64. The tokenizer's own padding is never asked."""
    inputs = torch.full((len(token_ids), max(map(len, token_ids))), padding)
    for row, ids in enumerate(token_ids):
        inputs[row, : len(ids)] = torch.tensor(ids)
    return inputs.to(device), torch.tensor([len(ids) for ids in token_ids], device=device)
