"""What only a GPU can tell, in one command of some four minutes: are the scores right there, and how fast are they?

    python tools/on_a_gpu.py                                 all pieces; writes data/recorded/gpu.json
    python tools/on_a_gpu.py speed pressure                  these alone; the file keeps the results of the others
    python tools/on_a_gpu.py --device cpu --small --out /tmp/cpu.json      a small rehearsal where there is no GPU

Each piece is written to the file as soon as it is done, so a run that is cut short loses one piece. Models have random
weights and texts random words, so nothing is downloaded; the lab's models are those of data/lab. The page "How fast
scoring is" shows the file. Have you a GPU that is not in it? Send us yours.

kernel      the tests of the Triton kernel, and its largest errors against float64 over vocabularies and types
families    a tiny model of each family in float32, against one text at a time in float64 on the processor
lab         the lab's models on the GPU and on the processor: numbers of tokens, and AUC of five detectors
statistics  the kernel beside torch's own operations, in bytes of logits a second
memory      what a vocabulary of 262,144 takes, beside whole logits
pressure    a batch that does not fit is halved, and the numbers stay
speed       tokens a second of four shapes of Pythia, beside the floor and the usual loop over single texts
sanitizer   NVIDIA's memory checker over one run of the kernel
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch

from mialib import DETECTORS, Scorer, auc, detect
from mialib.batches import right_padded
from mialib.catalog.benchmarks import load_benchmark
from mialib.scoring import LoadedScorer, row_statistics, statistics_of_rows
from mialib.store import mialib_version, version, write_json
from replication.studies import bench

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "data" / "recorded" / "gpu.json"
COLUMNS = ("log_prob", "entropy", "log_prob_var", "top_log_prob")
READ_ONE_PASS = ("ppl", "zlib", "min_k", "min_k++", "surp")
GEMMA = ("llama", 18, 640, 4, 2048, 262_144)  # Gemma-3-270M's sizes, in bench.GEOMETRIES' order


@dataclass(frozen=True)
class Size:
    """How much a run does."""

    device: str
    dtype: torch.dtype
    vocabularies: tuple[int, ...]
    lab: dict[str, tuple[str, ...]]  # benchmark: models
    n_lab_texts: int
    shapes: dict[str, int]  # geometry: how many texts
    n_texts_alone: int  # that the usual loop takes
    n_rounds: int
    n_rows: int  # of logits, at a vocabulary of 50,304
    n_memory_texts: int


FULL = Size(
    device="cuda",
    dtype=torch.bfloat16,
    vocabularies=(5, 32_000, 50_257, 50_304, 151_936, 262_144),
    lab={"lab/en": ("en-25k", "en-100k", "en-400k", "en-900k"), "lab/zh": ("zh-25k", "zh-100k", "zh-400k")},
    n_lab_texts=1000,
    shapes={"pythia-70m": 8000, "pythia-410m": 4000, "pythia-1.4b": 2000, "pythia-6.9b": 1000},
    n_texts_alone=100,
    n_rounds=3,
    n_rows=8192,
    n_memory_texts=1000,
)
SMALL = Size(
    device="cpu",
    dtype=torch.float32,
    vocabularies=(5, 50_257),
    lab={"lab/zh": ("zh-25k",)},
    n_lab_texts=4,
    shapes={"pythia-70m": 3},
    n_texts_alone=2,
    n_rounds=1,
    n_rows=16,
    n_memory_texts=2,
)


def synchronize(size: Size) -> None:
    """Wait until the device is done."""
    if size.device == "cuda":
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], Any], size: Size, n_rounds: int = 20) -> float:
    """Median seconds of a short piece of work, after two rounds that warm up."""
    seconds = []
    for _ in range(n_rounds + 2):
        synchronize(size)
        began = time.perf_counter()
        work()
        synchronize(size)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[2:]))


def random_logits(n_rows: int, n_vocab: int, dtype: torch.dtype, scale: float, device: str) -> torch.Tensor:
    """Logits of rows that are neither flat nor all on one token, (R, V)."""
    draws = torch.Generator(device).manual_seed(n_vocab)
    return (scale * torch.randn(n_rows, n_vocab, generator=draws, device=device)).to(dtype)


def exact_statistics(logits: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    """The four numbers of each row by the full softmax in float64, (R,) each."""
    log_p = logits.double().log_softmax(-1)
    p = log_p.exp()
    mean = (p * log_p).sum(-1)
    variance = (p * (log_p - mean[:, None]).square()).sum(-1)
    return [log_p.gather(1, targets[:, None])[:, 0], -mean, variance, log_p.amax(-1)]


def tested_kernel(size: Size) -> dict[str, Any]:
    """Counts of the outcomes of tests/core/test_kernels.py, run in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = subprocess.run(
            [*command, *(["-n", "6"] if size.device == "cuda" else []), "tests/core/test_kernels.py"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise RuntimeError(f"pytest wrote no report:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        suite = next(ElementTree.parse(report).iter("testsuite"))
        failed = [case.attrib["name"] for kind in ("failure", "error") for case in suite.findall(f"testcase[{kind}]")]
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    return counts | {"which failed": sorted(failed), "end": done.stdout[-3000:] * bool(done.returncode)}


def kernel(size: Size) -> dict[str, Any]:
    """The kernel's tests, and the largest errors over vocabularies, types and scales."""
    rows = []
    for n_vocab in size.vocabularies:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for scale in (0.5, 4.0):
                logits = random_logits(64, n_vocab, dtype, scale, size.device)
                targets = torch.arange(64, device=size.device) * 7919 % n_vocab
                exact = exact_statistics(logits, targets)
                columns = statistics_of_rows(logits.float() if size.device == "cpu" else logits, targets)
                errors = [(ours.double() - of).abs() for ours, of in zip(columns, exact, strict=True)]
                errors[2] /= exact[2]
                largest = {name: float(error.max()) for name, error in zip(COLUMNS, errors, strict=True)}
                rows.append({"n_vocab": n_vocab, "dtype": bench.dtype_name(dtype), "scale": scale, **largest})
    return {"tests": tested_kernel(size), "largest errors, of the variance relative": rows}


def families(size: Size) -> dict[str, Any]:
    """Tiny models of each family: the largest errors of log-prob and entropy (nats) and of the variance (relative)."""
    sys.path.append(str(ROOT / "tests"))  # whose tiny models and oracles serve here too
    from conftest import AFTER_THE_HEAD, FAMILIES, TEXTS, save_tiny_model
    from oracles import assert_agree, naive_statistics

    rows = {}
    with tempfile.TemporaryDirectory() as home:
        for family, settings in (FAMILIES | AFTER_THE_HEAD).items():
            folder = save_tiny_model(Path(home) / family, **settings)
            stats = Scorer(folder, device=size.device, dtype="float32").score(TEXTS, progress=False)
            worst = assert_agree(stats, naive_statistics(folder, TEXTS, start_token_id=0))
            rows[family] = dict(zip(COLUMNS, map(float, worst), strict=False))
    return rows


def lab(size: Size) -> dict[str, Any]:
    """Lab models on the device, in float32 and in the narrow type, against the processor in float32."""
    rows = {}
    for of_benchmark, models in size.lab.items():
        benchmark = load_benchmark(of_benchmark)
        half = size.n_lab_texts // 2
        chosen = np.concatenate([np.flatnonzero(benchmark.labels == label)[:half] for label in (1, 0)])
        texts, labels = [benchmark.texts[i] for i in chosen], benchmark.labels[chosen]
        for name in models:
            model = f"lab/{name}"
            plain = Scorer(model, device="cpu", dtype="float32").score(texts, progress=False)
            for dtype in ("float32", "bfloat16"):
                stats = Scorer(model, device=size.device, dtype=dtype).score(texts, progress=False)
                largest = {of: float(np.abs(getattr(stats, of) - getattr(plain, of)).max()) for of in COLUMNS}
                change = {}
                for detector in READ_ONE_PASS:
                    inputs = {"texts": texts} if "texts" in DETECTORS[detector].needs else {}
                    on_device, on_cpu = (auc(labels, detect(detector, of, **inputs)) for of in (stats, plain))
                    change[detector] = float(on_device - on_cpu)
                rows[f"{model}, {dtype}"] = {
                    "n_texts": len(texts),
                    "largest differences": largest,
                    "AUC, device minus processor": change,
                }
    return rows


def forward_flops(geometry: str, lengths: list[int]) -> float:
    """Operations of one pass over texts of these lengths in tokens, without padding."""
    config = bench.config_of(geometry)
    pairs = sum(n * (n + 1) // 2 for n in lengths)  # of a token and one that it sees
    products = 2 * bench.multiplied_parameters(geometry) * sum(lengths)
    return products + 4 * config.num_hidden_layers * config.hidden_size * pairs


def speed(size: Size) -> dict[str, Any]:
    """Tokens a second of each way and shape, and shares of the floor and of the products' measured rate."""
    rows = {}
    for geometry, n_texts in size.shapes.items():
        if size.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        timings = bench.time_ways(
            geometry,
            n_texts=n_texts,
            n_texts_alone=size.n_texts_alone,
            n_rounds=size.n_rounds,
            dtype=bench.dtype_name(size.dtype),
            device=size.device,
        )
        seconds = {way: float(np.median(of_way)) for way, of_way in timings.seconds.items()}
        flops = forward_flops(geometry, timings.lengths)
        rows[geometry] = {
            "tokens a second": {way: timings.n_tokens / s for way, s in seconds.items()},
            "rounds, seconds": timings.seconds,
            "share of the floor": seconds[bench.FLOOR] / seconds[bench.OURS],
            "share of the products' rate": flops / timings.flops_per_second / seconds[bench.OURS],
            "flops_per_second": timings.flops_per_second,
            "bytes_per_second": timings.bytes_per_second,
            "n_tokens": timings.n_tokens,
            "n_texts": n_texts,
            "largest differences from the loop": timings.apart,
            "peak bytes": torch.cuda.max_memory_allocated() if size.device == "cuda" else None,
            "provenance": timings.provenance,
        }
        print(f"    {geometry}: {rows[geometry]['tokens a second']}", flush=True)
    return rows


def statistics(size: Size) -> dict[str, Any]:
    """Seconds of the four numbers by the kernel and by torch, and of two numbers alone, for float32 logits."""

    def log_prob_and_entropy(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As a loop that wants no variance would get them."""
        log_p = logits.log_softmax(-1)
        return log_p.gather(1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)

    rows = {}
    for n_vocab in [n for n in size.vocabularies if n > 32_000]:
        n_rows = max(8, size.n_rows * 50_304 // n_vocab)
        logits = random_logits(n_rows, n_vocab, torch.float32, 2.0, size.device)
        targets = torch.arange(n_rows, device=size.device)
        copy = torch.empty_like(logits)
        ways: dict[str, Callable[[], Any]] = {
            "four numbers, mialib": lambda z=logits, t=targets: statistics_of_rows(z, t),
            "four numbers, torch": lambda z=logits, t=targets: row_statistics(z, t),
            "log-prob and entropy alone, torch": lambda z=logits, t=targets: log_prob_and_entropy(z, t),
            "log-prob alone, torch": lambda z=logits, t=targets: torch.nn.functional.cross_entropy(
                z, t, reduction="none"
            ),
            "a copy": lambda z=logits, to=copy: to.copy_(z),
        }
        seconds = {name: seconds_of(way, size) for name, way in ways.items()}
        n_bytes = logits.numel() * 4
        rows[str(n_vocab)] = {
            "n_rows": n_rows,
            "seconds": seconds,
            "bytes of logits a second": {name: n_bytes / s for name, s in seconds.items()},
        }
    return rows


def memory(size: Size) -> dict[str, Any]:
    """Peak memory of scoring with a vocabulary of 262,144, and of whole logits for one of its batches."""
    if size.device == "cpu":
        return {"skipped": "torch does not count a processor's memory"}
    bench.GEOMETRIES["gemma-3-270m"] = GEMMA
    texts, tokenizer = bench.make_texts(size.n_memory_texts)
    scorer = LoadedScorer(bench.make_model("gemma-3-270m", tokenizer, torch.device(size.device), size.dtype))

    def peak_of(work: Callable[[], Any]) -> int | None:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        try:
            work()
        except torch.OutOfMemoryError:
            return None
        return torch.cuda.max_memory_allocated() - before

    token_ids = [[*scorer.loaded.start_token_ids, *ids] for ids in scorer.token_ids(texts)]
    batch = next(iter(scorer.batches(token_ids)))
    inputs, _ = right_padded([token_ids[i] for i in batch], size.device)

    def whole() -> None:
        with torch.inference_mode():
            scorer.loaded.model(inputs, use_cache=False).logits.float().log_softmax(-1)

    ours, of_whole = peak_of(lambda: scorer.score(texts, progress=False)), peak_of(whole)
    return {
        "tokens of the batch": inputs.numel(),
        "bytes of its logits in float32": inputs.numel() * 262_144 * 4,
        "weights": sum(of.numel() * of.itemsize for of in scorer.loaded.model.parameters()),
        "peak beside the weights, scoring all texts": ours,
        "peak beside the weights, log-softmax of one batch": of_whole or "out of memory",
    }


def pressure(size: Size) -> dict[str, Any]:
    """Score with and without a limit that the first batch passes: how often it was halved, and what changed."""
    if size.device == "cpu":
        return {"skipped": "only a GPU's memory can be limited from inside"}
    texts, tokenizer = bench.make_texts(800)
    scorer = LoadedScorer(bench.make_model("pythia-410m", tokenizer, torch.device(size.device), size.dtype))
    tokens_before = scorer.tokens_per_batch
    plain = scorer.score(texts, progress=False)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mialib").addHandler(handler)
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 6e8) / total)
    try:
        limited = scorer.score(texts, progress=False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        logging.getLogger("mialib").removeHandler(handler)
    return {
        "tokens a batch before and after": [tokens_before, scorer.tokens_per_batch],
        "warnings": warnings,
        "largest differences": {of: float(np.abs(getattr(limited, of) - getattr(plain, of)).max()) for of in COLUMNS},
    }


SANITIZED_PROGRAM = """
import torch
from mialib.kernels import one_pass_statistics
for n_vocab, dtype in ((7, torch.float32), (50_257, torch.bfloat16), (50_304, torch.float32)):
    wide = torch.randn(5, n_vocab + 3, device="cuda").to(dtype)
    columns = one_pass_statistics(wide[:, :n_vocab], torch.arange(5, device="cuda"))
    assert all(column.isfinite().all() for column in columns)
torch.cuda.synchronize()
"""


def sanitizer(size: Size) -> dict[str, Any]:
    """What NVIDIA's compute-sanitizer says of the kernel: reads and writes outside of its memory."""
    program = shutil.which("compute-sanitizer")
    if size.device == "cpu" or not program:
        return {"skipped": "needs a GPU and NVIDIA's compute-sanitizer"}
    done = subprocess.run(
        [program, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, "-c", SANITIZED_PROGRAM],
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    return {"exit code": done.returncode, "end": (done.stdout + done.stderr).strip()[-400:]}


PIECES = (kernel, families, lab, statistics, memory, pressure, speed, sanitizer)


def provenance(size: Size) -> dict[str, Any]:
    """Which machine and software."""
    on_gpu = size.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory if on_gpu else None,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "numpy")},
        "triton": version("triton") if find_spec("triton") else None,
        "mialib": mialib_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "size": {name: str(value) for name, value in asdict(size).items()},
    }


def main() -> None:
    """Run the pieces, and write each one's results when it is done."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pieces", nargs="*", help=f"{', '.join(of.__name__ for of in PIECES)}; default: all")
    options.add_argument("--small", action="store_true", help="the least that runs each piece")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--out", type=Path, default=RECORD)
    wanted = options.parse_args()
    if unknown := set(wanted.pieces) - {of.__name__ for of in PIECES}:
        options.error(f"unknown piece {', '.join(sorted(unknown))}")
    if wanted.device == "cpu" and wanted.out == RECORD:
        options.error("a rehearsal on a processor is no record of a GPU; add --small --out FILE")
    if wanted.device == "cuda" and not torch.cuda.is_available():
        options.error("torch sees no GPU here; add --device cpu --small for a rehearsal")
    size = Size(**{**vars(SMALL if wanted.small else FULL), "device": wanted.device})
    if wanted.device == "cpu":
        size = Size(**{**vars(size), "dtype": torch.float32})
    record = json.loads(wanted.out.read_text()) if wanted.out.exists() else {}
    record = {of.__name__: record.get(of.__name__, {}) for of in PIECES}
    failed = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["MIALIB_HOME"] = home
        for piece in PIECES:
            if wanted.pieces and piece.__name__ not in wanted.pieces:
                continue
            print(f"{piece.__name__} ...", flush=True)
            began = time.perf_counter()
            try:
                results = piece(size)
            except Exception as error:
                traceback.print_exc()
                results = {"failed": f"{type(error).__name__}: {error}"[:500]}
                failed.append(piece.__name__)
            took = time.perf_counter() - began
            record[piece.__name__] = {"wall seconds": round(took, 1), "ran": provenance(size), "results": results}
            write_json(wanted.out, record)
            print(f"{piece.__name__}: {took:.0f} s", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
