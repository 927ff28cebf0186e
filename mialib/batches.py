"""Lists of token ids as tensors: which texts go together, and what is filled up behind the shorter ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

PADDING_SHARE = 0.25  # of a row, at most


def token_batches(token_ids: Sequence[Sequence[int]], budget: Callable[[], int]) -> Iterator[list[int]]:
    """The texts' numbers, longest first, as many at once as the budget of tokens then allows with padding.

    One that would be padding for more than a quarter starts a batch of its own: what a further batch costs is less.
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
