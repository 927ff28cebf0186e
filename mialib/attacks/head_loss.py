"""The loss of a language model's head and its gradients, in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

ROWS_AT_ONCE = {"cpu": 128, "cuda": 4096, "mps": 1024}  # of the head's logits
SMALLEST_PROBABILITY = 1e-38  # of float32: a token's loss counts as 87 nats at most, its gradient is exact


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread sums in one order, and tiny matrices gain nothing from a second; models train side by side instead."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class HeadLoss(torch.autograd.Function):
    """Cross-entropy of a linear head without bias, a chunk of rows at a time; gradients are made on the way.

    The same number as `cross_entropy(hidden @ weight.T, targets)`, with about half the peak memory: the (tokens,
    vocabulary) matrix never exists, and a chunk's logits stay in the processor's cache, in memory that is kept from
    chunk to chunk.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean loss of (N, D) hidden states, (V, D) weights and (N,) targets."""
        hidden_grad, weight_grad = torch.empty_like(hidden), torch.zeros_like(weight)
        total, n, at_once = hidden.new_zeros(()), len(targets), ROWS_AT_ONCE[hidden.device.type]
        logits, probs = hidden.new_empty(2, min(at_once, n), len(weight))
        for start in range(0, n, at_once):
            rows, of_rows = hidden[start : start + at_once], targets[start : start + at_once, None]
            torch.mm(rows, weight.T, out=logits[: len(rows)])
            grad = torch.softmax(logits[: len(rows)], -1, out=probs[: len(rows)])
            total -= grad.gather(1, of_rows).clamp_(min=SMALLEST_PROBABILITY).log_().sum()
            grad.scatter_add_(1, of_rows, grad.new_full((len(rows), 1), -1.0))  # of the summed loss
            torch.mm(grad, weight, out=hidden_grad[start : start + at_once])
            weight_grad.addmm_(grad.T, rows)
        ctx.save_for_backward(hidden_grad, weight_grad)
        ctx.n = n
        return total / n

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """The gradients made in forward, scaled."""
        hidden_grad, weight_grad = ctx.saved_tensors
        scale = grad / ctx.n
        return hidden_grad * scale, weight_grad * scale, None
