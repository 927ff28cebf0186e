"""Texts as lists of token ids, and these as padded tensors: which texts share a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

PADDING_SHARE = 0.25  # of a row, at most
SECONDS_A_PART = 10.0  # of work, that an interruption costs at most, but for one batch
T = TypeVar("T")


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of each text alone: no start token before it, and "<|endoftext|>" inside it is text."""
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    return tokenizer(list(texts), return_attention_mask=False, **options)["input_ids"] if texts else []


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
    import torch

    inputs = torch.full((len(token_ids), max(map(len, token_ids))), padding)
    for row, ids in enumerate(token_ids):
        inputs[row, : len(ids)] = torch.tensor(ids)
    return inputs.to(device), torch.tensor([len(ids) for ids in token_ids], device=device)


def in_parts(results: Iterable[T]) -> Iterator[list[T]]:
    """What takes long to compute, in lists of seconds of work each, to be kept as soon as they are there."""
    part, began = [], time.monotonic()
    for result in results:
        part.append(result)
        if time.monotonic() - began > SECONDS_A_PART:
            yield part
            part, began = [], time.monotonic()
    if part:
        yield part
