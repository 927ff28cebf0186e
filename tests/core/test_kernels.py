"""The Triton kernel against float64, in Triton's interpreter on the CPU, or on a GPU where there is one.

Triton reads TRITON_INTERPRET when it is imported, so without a GPU a slow test runs this file again in a process of its
own. The interpreter checks no types, so another test compiles the kernel, which needs no GPU either.
"""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from conftest import TEXTS
from oracles import assert_agree, assert_rows_agree, naive_statistics
from test_scoring import ROWS, random_logits

pytest.importorskip("triton", reason="Triton is not installed; it comes with PyTorch's CUDA builds")

import mialib
from mialib import kernels, scoring
from mialib.kernels import one_pass_statistics

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if IS_INTERPRETED else "cuda"
BLOCK = kernels.WARPS * 32 * 4 * kernels.DEEP  # logits, float32
INF = float("inf")
runs_here = pytest.mark.skipif(
    not (IS_INTERPRETED or torch.cuda.is_available()),
    reason="no GPU; a slow test runs this one in Triton's interpreter",
)
on_gpu = pytest.mark.skipif(not torch.cuda.is_available() or IS_INTERPRETED, reason="needs a GPU")
in_this_process = pytest.mark.skipif(IS_INTERPRETED, reason="already in the interpreter")


def statistics(logits, targets):
    return [column.cpu() for column in one_pass_statistics(logits.to(DEVICE), torch.tensor(targets, device=DEVICE))]


def check(logits, targets):
    assert_rows_agree(statistics(logits, targets), logits, targets)


@in_this_process
@pytest.mark.slow
def test_the_kernel_in_tritons_interpreter():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    print(done.stdout)


COMPILED = list(itertools.product([80, 90], ["fp32", "bf16"], [50_304, 50_257]))
QUICK = [(80, "fp32", 50_257), (90, "bf16", 50_304)]  # each value once: to compile takes seconds


@in_this_process
@pytest.mark.parametrize(
    ("capability", "dtype", "n_vocab"),
    [*QUICK, *(pytest.param(*c, marks=pytest.mark.slow) for c in COMPILED if c not in QUICK)],
)
def test_the_kernel_compiles_to_wide_loads_and_waits_at_the_end_only(capability, dtype, n_vocab, tmp_path, monkeypatch):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"logits": f"*{dtype}", "targets": "*i64", "out": "*fp32", "stride": "i32"}
    lanes = BLOCK // kernels.DEEP * (2 if dtype == "bf16" else 1)
    constants = {"n_vocab": n_vocab, "DEEP": kernels.DEEP, "LANES": lanes}
    # What Triton finds out at a start: addresses and, of most vocabularies, the stride are multiples of 16.
    multiples = [0, 1, 2] + [3] * (n_vocab % 16 == 0)
    source = ASTSource(
        kernels._row_statistics,
        types | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i in multiples},
    )
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": kernels.WARPS})
    ptx = made.asm["ptx"]
    assert ptx.count("ld.global.v4.b32") == (kernels.DEEP if n_vocab % 16 == 0 else 0)
    loop = ptx[: ptx.index("bra")]
    assert "ld.global" in loop and "bar.sync" not in loop and "shfl" not in loop and "local" not in loop
    # Its maximum would drop a NaN, unlike the interpreter's: once for each logit of a thread.
    assert loop.count("max.NaN.f32") == kernels.DEEP * lanes // (32 * kernels.WARPS)


@runs_here
@pytest.mark.parametrize("case", ROWS)
def test_the_kernel_agrees_with_sums_over_the_vocabulary_in_float64(case):
    logits = ROWS[case]()
    check(logits, [0, 2, 50_000, 4][: len(logits)])


@runs_here
@pytest.mark.parametrize(
    ("dtype", "n_vocab"),
    [
        *((torch.float32, n) for n in (1, 2, 31, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 50_257)),
        *((dtype, n) for dtype in (torch.bfloat16, torch.float16) for n in (5, 3 * BLOCK + 7)),
    ],
)
def test_any_vocabulary_and_narrow_logits_that_are_widened_when_read(dtype, n_vocab):
    check(random_logits(3, n_vocab).to(dtype), [0, n_vocab // 2, n_vocab - 1])


@runs_here
@pytest.mark.parametrize("descending", [False, True])
def test_a_maximum_that_rises_with_each_block_or_never_again(descending):
    logits = random_logits(3, 4 * BLOCK).sort(descending=descending)[0]
    check(logits, [0, 2 * BLOCK, 4 * BLOCK - 1])


@runs_here
@pytest.mark.parametrize("value", [60.0, 1e4, 1e30, torch.finfo(torch.float32).max])
@pytest.mark.parametrize("at", [0, BLOCK + 5, 3 * BLOCK - 1])
def test_one_large_logit(value, at):
    logits = random_logits(2, 3 * BLOCK)
    logits[:, at] = value
    check(logits[:1], [at])
    log_prob, entropy, variance, largest = statistics(logits, [at, 7])
    assert log_prob.tolist() == pytest.approx([0, logits[1, 7].item() - value], rel=1e-6)
    assert max(*entropy, *variance) < 1e-15
    assert largest.tolist() == [0, 0]


MASKED = {
    "first block": slice(BLOCK),
    "second block": slice(BLOCK, 2 * BLOCK),
    "last block": slice(2 * BLOCK, None),
    "all but the last": slice(3 * BLOCK - 1),
    "all but the first": slice(1, None),
}


@runs_here
@pytest.mark.parametrize("nothing", [-INF, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("masked", MASKED)
def test_masked_tokens_contribute_nothing(masked, nothing):
    logits = random_logits(2, 3 * BLOCK) - 5
    logits[:, MASKED[masked]] = nothing
    check(logits, logits.argmax(1).tolist())


@runs_here
@pytest.mark.parametrize("spoiled", [0, BLOCK, 2 * BLOCK + 1])
@pytest.mark.parametrize("value", [float("nan"), INF])
def test_a_row_that_is_not_finite_is_nan_and_its_neighbors_are_not(value, spoiled):
    logits = random_logits(3, 3 * BLOCK)
    whole = statistics(logits, [1, 1, 1])
    logits[1, spoiled] = value
    for column, expected in zip(statistics(logits, [1, 1, 1]), whole, strict=True):
        assert column[1].isnan()
        assert column[::2].tolist() == expected[::2].tolist()


@runs_here
def test_a_row_without_any_token_is_nan_and_no_rows_are_none():
    assert [column.shape for column in statistics(torch.empty(0, 7), [])] == [(0,)] * 4
    columns = statistics(torch.full((1, BLOCK + 1), -INF), [3])
    assert all(column.isnan().all() for column in columns)


@runs_here
def test_a_masked_target_has_no_probability_and_one_outside_the_vocabulary_is_nan():
    logits = torch.tensor([[0.0, 0.0, -INF]] * 3)
    log_prob, entropy, variance, largest = statistics(logits, [2, 3, -1])
    assert log_prob[0] == -INF
    assert log_prob[1:].isnan().all()
    assert entropy.tolist() == pytest.approx([0.6931472] * 3)
    assert largest.tolist() == pytest.approx([-0.6931472] * 3)
    assert variance.tolist() == pytest.approx([0] * 3, abs=1e-7)


@runs_here
@pytest.mark.parametrize("first", [0, 3])
def test_rows_apart_are_read_where_they_lie_and_left_as_they_are(first):
    wide = torch.full((5, BLOCK + 100), float("nan"), device=DEVICE)
    logits = wide[::2, first : first + BLOCK + 9]
    logits.copy_(random_logits(3, BLOCK + 9))
    before = wide.clone()
    assert_rows_agree(statistics(logits, [4, 5, BLOCK]), logits.cpu(), [4, 5, BLOCK])
    assert torch.equal(wide.nan_to_num(0.5), before.nan_to_num(0.5))


@runs_here
def test_rows_beyond_two_to_the_31_are_read_where_they_lie():
    # Memory that is never touched is never taken: these are 4 GB of addresses.
    logits = torch.empty_strided((3, 9), (2**30, 1), dtype=torch.float16, device=DEVICE)
    logits.copy_(random_logits(3, 9))
    assert_rows_agree(statistics(logits, [0, 4, 8]), logits.cpu(), [0, 4, 8])


@runs_here
def test_another_layout_is_an_error():
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        statistics(torch.zeros(4, 2).T, [0, 0])
    targets = torch.zeros(4, dtype=torch.long, device=DEVICE)[::2]
    with pytest.raises(ValueError, match=r"\(2,\) .*targets"):
        one_pass_statistics(torch.zeros(2, 4, device=DEVICE), targets)


@runs_here
def test_a_scorer_with_the_kernel_agrees_with_one_text_at_a_time_in_float64(model_folder, monkeypatch):
    calls = []

    def kernel(logits, targets):
        calls.append(len(logits))
        return one_pass_statistics(logits, targets)

    monkeypatch.setattr(scoring, "statistics_of_rows", kernel)
    scorer = mialib.Scorer(model_folder, device=DEVICE, dtype="float32")
    scorer._head = None  # on a processor, rows of whole logits are taken by columns where there is a head
    stats = scorer.score(TEXTS, progress=False)
    assert sum(calls) == stats.n_tokens.sum()
    assert_agree(stats, naive_statistics(model_folder, TEXTS, start_token_id=0))


@on_gpu
def test_the_kernel_is_what_rows_on_a_gpu_get():
    assert scoring.one_pass_kernel() is one_pass_statistics


@on_gpu
def test_the_variance_is_not_negative_where_rounding_would_make_it_so():
    logits = -torch.tensor([0.3, 0.5, 0.7, 1.3, 2.1])[:, None].repeat(1, 2**24)
    logits[:, 3] = 0
    variance = statistics(logits, [0] * 5)[2]
    assert variance.min() >= 0 and variance.max() < 1e-5
