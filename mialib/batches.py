"""Texts as lists of token ids, and these as padded tensors: which texts share a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

PADDING_SHARE = 0.25  # of a row, at most
FREE_PADDING = 64  # tokens: they cost less than another pass over the weights of half a billion parameters on two cores
CHARACTERS_A_TOKEN = 4  # a guess, for English
SEAM_TOKENS = 1000  # before a text's cut end: no merge of tokens reaches so far
STRETCHES = 8  # of texts of similar length that each part of a pass has: parts take about equally long
SECONDS_A_PART = 10.0  # of work: an interruption costs no more, except for one batch
T = TypeVar("T")


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of each text alone: no start token before it, and "<|endoftext|>" inside it is text."""
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    return tokenizer(list(texts), return_attention_mask=False, **options)["input_ids"] if texts else []


def n_unread(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: Sequence[int]) -> int:
    """How many of a text's characters come after these tokens, its first; -1 where the tokenizer does not say."""
    n = len(token_ids)
    for beginning in (text[: CHARACTERS_A_TOKEN * (4 * n + SEAM_TOKENS)], text) if n and tokenizer.is_fast else ():
        ids, ends = encode_with_ends(tokenizer, beginning)
        if ids[:n] == list(token_ids) and (beginning == text or len(ids) > n + SEAM_TOKENS):
            return len(text) - max(ends[:n])
    return -1


def encode_with_ends(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[int]]:
    """The token ids of a text, as `encode` gives them, and where in the text each token ends."""
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    encoded = tokenizer(text, return_offsets_mapping=True, **options)
    return encoded["input_ids"], [end for _, end in encoded["offset_mapping"]]


def longest_first(things: Sequence[Sequence[Any]]) -> list[int]:
    """The numbers of texts, or of lists of token ids, from the longest to the shortest, equal ones in order."""
    return sorted(range(len(things)), key=lambda i: (-len(things[i]), i))


def part_of_each(texts: Sequence[str], n_parts: int) -> NDArray[np.int64]:
    """Which of the parts 1 to `n_parts` each text is in, (N,): stretches of texts, longest first, are dealt out."""
    parts, stretch = np.empty(len(texts), np.int64), max(1, len(texts) // (STRETCHES * n_parts))
    parts[longest_first(texts)] = np.arange(len(texts)) // stretch % n_parts + 1
    return parts


def are_apart(n_tokens: int, other: int, borders: Sequence[int]) -> bool:
    """Whether a border lies between two numbers of tokens."""
    return any(min(n_tokens, other) <= border < max(n_tokens, other) for border in borders)


def token_batches(
    token_ids: Sequence[Sequence[int]], budget: Callable[[], int], borders: Sequence[int] = (), *, n_free: int = 0
) -> Iterator[list[int]]:
    """Batches of the texts' numbers, longest first, each within the budget of tokens, padding included.

    A text that would be padded by more than a quarter starts a new batch, which costs less than the padding, unless
    the batch's padding stays within `n_free` tokens. So does one on the other side of a border of
    `mialib.models.rope_borders`.
    """
    batch: list[int] = []
    n_padding = 0  # of the batch
    for i in longest_first(token_ids):
        n, longest = len(token_ids[i]), len(token_ids[batch[0]]) if batch else 0
        is_short = n < (1 - PADDING_SHARE) * longest and n_padding + longest - n > n_free
        if batch and (is_short or are_apart(n, longest, borders) or longest * (len(batch) + 1) > budget()):
            yield batch
            batch, n_padding = [], 0
        elif batch:
            n_padding += longest - n
        batch.append(i)
    if batch:
        yield batch


def right_padded(
    token_ids: Sequence[Sequence[int]], device: torch.device | str, padding: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (texts, longest) and the texts' lengths (texts,), int64, whatever the tokenizer's own padding is."""
    import torch

    inputs = torch.full((len(token_ids), max(map(len, token_ids))), padding)  # (texts, longest)
    for row, ids in zip(inputs, token_ids, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return inputs.to(device), torch.tensor([len(ids) for ids in token_ids], device=device)


def in_parts(results: Iterable[T]) -> Iterator[list[T]]:
    """Results of a long computation in lists of about ten seconds of work, each to be saved when it is done."""
    part, began = [], time.monotonic()
    for result in results:
        part.append(result)
        if time.monotonic() - began > SECONDS_A_PART:
            yield part
            part, began = [], time.monotonic()
    if part:
        yield part
