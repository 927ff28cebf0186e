"""The four numbers of each row of logits in one pass over them: a Triton kernel for GPUs.

`mialib.scoring.row_statistics` defines the numbers and runs anywhere, but reads the logits some fifteen times. Here one
program reads a row, each logit once. Each of its lanes keeps four float32 numbers of the logits z that it has read:

    m = max z,    s_j = sum (z - m)^j e^(z - m)  for j = 0, 1, 2

Where m rises, and where lanes are put together at the end, delta = m_old - m_new <= 0 is added to each z - m. With
a = e^delta

    s_2 <- a (s_2 + 2 delta s_1 + delta^2 s_0),    s_1 <- a (s_1 + delta s_0),    s_0 <- a s_0.

The terms of a sum have one sign, so nothing cancels. Triton comes with PyTorch's CUDA builds. With TRITON_INTERPRET=1
in the environment the kernel runs on the CPU, slowly: for tests.
"""

# ruff: noqa: ANN001, ANN202 (Triton types a kernel's arguments when it is started)

from __future__ import annotations

import torch
import triton
import triton.language as tl

# A block is DEEP logits for each lane, and each thread loads 16 bytes at a time: four float32 lanes. A lane's sums are
# in one thread, so threads wait for each other only at the row's end. A deeper block has more loads under way and fewer
# merges, and takes more registers.
WARPS = 8
DEEP = 8
FLOAT32_MIN = tl.constexpr(-3.4028234663852886e38)  # float32's; a maximum of -inf would turn every difference into NaN
LOWEST = tl.constexpr(-1e4)  # e^d is 0 long before; keeps d e^d from being -inf * 0 where a model masks tokens out
LOG2_E = tl.constexpr(1.4426950408889634)
ALL = tl.constexpr(tl.PropagateNan.ALL)  # else a maximum drops a NaN, and a broken row looks whole


@triton.jit
def _shift(s0, s1, s2, delta):
    """The sums with delta <= 0 added to each difference."""
    delta = tl.maximum(delta, LOWEST)
    a = tl.exp(delta)
    return a * s0, a * (s1 + delta * s0), a * (s2 + 2 * delta * s1 + delta * delta * s0)


@triton.jit
def _row_statistics(logits, targets, out, stride, n_vocab: tl.constexpr, DEEP: tl.constexpr, LANES: tl.constexpr):
    # n_vocab is compiled in, as a model has one. (Triton 3.6, interpreted on NumPy 2.4, takes no other loop bound.)
    row = tl.program_id(0).to(tl.int64)  # row * stride passes 2^31
    logits += row * stride
    in_block = tl.arange(0, DEEP)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    m = tl.full([LANES], FLOAT32_MIN, tl.float32)
    s0 = tl.zeros([LANES], tl.float32)
    s1 = s0
    s2 = s0
    for start in range(0, n_vocab, DEEP * LANES):
        v = start + in_block
        z = tl.load(logits + v, mask=v < n_vocab, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(z, axis=0))
        s0, s1, s2 = _shift(s0, s1, s2, m - m_new)
        d = tl.maximum(z - m_new[None, :], LOWEST, propagate_nan=ALL)
        weighted = tl.exp2(d * LOG2_E)  # exp takes three more instructions, for results below 1e-38
        s0 += tl.sum(weighted, axis=0)
        s1 += tl.sum(weighted * d, axis=0)
        s2 += tl.sum(weighted * d * d, axis=0)
        m = m_new
    largest = tl.max(m, axis=0)
    s0, s1, s2 = _shift(s0, s1, s2, m - largest)
    s0 = tl.sum(s0, axis=0)
    mean = tl.sum(s1, axis=0) / s0
    variance = tl.sum(s2, axis=0) / s0 - mean * mean
    target = tl.load(targets + row)
    is_known = (target >= 0) & (target < n_vocab)
    of_target = tl.load(logits + target, mask=is_known, other=float("nan")).to(tl.float32)
    out += 4 * row
    tl.store(out, of_target - largest - tl.log(s0))
    tl.store(out + 1, tl.log(s0) - mean)
    tl.store(out + 2, tl.maximum(variance, 0.0, propagate_nan=ALL))
    tl.store(out + 3, tl.where(s0 > 0, -tl.log(s0), float("nan")))  # 0: no logit above -inf


def one_pass_statistics(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Log-prob of the target, entropy, variance of log p and the largest log p of rows of logits, left as they are.

    `logits` is (R, V) float32, bfloat16 or float16, a row's logits side by side and rows any distance apart; `targets`
    is (R,) int64. Returns four (R,) float32 tensors in nats, nats, nats^2 and nats, like `scoring.row_statistics`.
    A row with a NaN or +inf, or with -inf only, is NaN throughout, but for the largest log p of the latter, which is
    +inf; a target outside the vocabulary has a log-prob of NaN. ValueError for another layout.
    """
    n_rows, n_vocab = logits.shape
    if logits.stride(1) != 1 or not targets.is_contiguous():
        raise ValueError(f"strides {logits.stride()} of the logits and {targets.stride()} of the targets must end in 1")
    out = torch.empty(n_rows, 4, device=logits.device)
    lanes = WARPS * 32 * 16 // logits.element_size()
    if n_rows:
        with torch.cuda.device_of(logits):  # Triton starts a kernel on the current GPU
            _row_statistics[(n_rows,)](logits, targets, out, logits.stride(0), n_vocab, DEEP, lanes, num_warps=WARPS)
    return tuple(out.unbind(1))
