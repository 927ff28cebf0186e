"""How fast scoring is on the machine at hand, next to a lower bound and to the ways that public code takes.

Every row of the table is measured on the same texts, in interleaved rounds (A B C, A B C, ...), so that whatever else
the machine does falls on all of them. Weights and texts are random, so nothing is downloaded.
"""

from __future__ import annotations

import ctypes
import gc
import math
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from mialib.batches import right_padded
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import SPARE_BYTES, find_weights
from mialib.detectors import DETECTORS, FloatArray, detect
from mialib.frequency import TokenFrequency, count_tokens
from mialib.models import LoadedModel, fast_products, free_bytes, pick_device, tokenizer_hash
from mialib.scoring import LoadedScorer as Scorer
from mialib.store import hash_texts, mialib_version, version
from mialib.token_stats import TokenRow
from replication.tables import text_table

SEED = 0
WIKIMIA_TEXTS = {32: 776, 64: 542, 128: 250, 256: 82}  # length of a split: how many texts WikiMIA has of it
START_TOKEN = "<|endoftext|>"  # Pythia's
MAX_TOKENS = 2048  # the context of Pythia and LLaMA
FLOOR_ROWS_AT_ONCE = 1024  # a larger chunk's product is no faster, on a processor or a GPU
MEMORY_SAMPLE_SECONDS = 0.002
# How far the rows of the table may lie apart, in nats and nats^2. In 16 bits the field's variance, a small difference
# of two numbers of about 100, has no digits left, so it is not compared.
TOLERANCE = {"float32": (1e-3, 1e-3, 1e-3), "bfloat16": (0.25, 0.25, math.inf), "float16": (0.05, 0.05, math.inf)}
# Seven scores that the texts' own pass gives, and their hyperparameters; a detector's name ends at the comma. A toolkit
# that runs the model anew for each takes seven passes over each text.
SEVEN = {"ppl": {}, "zlib": {}, "min_k": {}, "min_k, k = 10": {"k": 10}, "min_k++": {}, "surp": {}, "dc_pdd": {}}
FLOOR, OURS, LOOP = "forward and head alone", "mialib", "one text at a time"
OURS_SEVEN, TOOLKIT = "mialib, seven detectors", "one forward a detector, seven detectors"

Way = Callable[[], Any]  # runs one row of the table, on texts and a model of its own


@dataclass(frozen=True)
class Geometry:
    """The sizes of a causal language model."""

    family: str  # "gpt_neox", "llama" or "qwen2"
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    vocab_size: int

    @property
    def config(self) -> PreTrainedConfig:
        """The configuration of a model of these sizes."""
        return AutoConfig.for_model(
            self.family,
            num_hidden_layers=self.layers,
            hidden_size=self.hidden_size,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            max_position_embeddings=MAX_TOKENS,
            tie_word_embeddings=False,
        )

    @property
    def multiplied_parameters(self) -> int:
        """Weights that each token is multiplied with: the layers' matrices and the output head."""
        mlp_matrices = 2 if self.family == "gpt_neox" else 3  # LLaMA's and Qwen's MLP has a gate
        a_layer = 4 * self.hidden_size**2 + mlp_matrices * self.hidden_size * self.intermediate_size
        return self.layers * a_layer + self.hidden_size * self.vocab_size


GEOMETRIES: dict[str, Geometry] = {
    "pythia-70m": Geometry("gpt_neox", 6, 512, 8, 2048, 50_304),
    "pythia-160m": Geometry("gpt_neox", 12, 768, 12, 3072, 50_304),
    "pythia-410m": Geometry("gpt_neox", 24, 1024, 16, 4096, 50_304),
    "pythia-1b": Geometry("gpt_neox", 16, 2048, 8, 8192, 50_304),
    "pythia-1.4b": Geometry("gpt_neox", 24, 2048, 16, 8192, 50_304),
    "pythia-2.8b": Geometry("gpt_neox", 32, 2560, 32, 10_240, 50_304),
    "pythia-6.9b": Geometry("gpt_neox", 32, 4096, 32, 16_384, 50_432),
    "pythia-12b": Geometry("gpt_neox", 36, 5120, 40, 20_480, 50_688),
    "llama-13b": Geometry("llama", 40, 5120, 40, 13_824, 32_000),
    "qwen1.5-14b": Geometry("qwen2", 40, 5120, 40, 13_696, 152_064),
}
DEFAULT_GEOMETRY = {"cpu": "pythia-70m", "cuda": "pythia-6.9b", "mps": "pythia-160m"}


@dataclass(frozen=True)
class BenchRow:
    """One way to score the texts, as measured."""

    name: str
    passes: int  # forward passes over each text
    seconds: tuple[float, ...]  # of each round, in order
    peak_bytes: int  # memory beside the model's, at most

    @property
    def median(self) -> float:
        """Seconds."""
        return float(np.median(self.seconds))


@dataclass(frozen=True)
class Timings:
    """All rows of one geometry, the machine's rates, and what was run."""

    geometry: str
    rows: tuple[BenchRow, ...]
    n_tokens: int  # scored in one pass over the texts
    flops_per_second: float  # of a large matrix product in the model's dtype, measured
    bytes_per_second: float  # that a copy reads and writes, measured
    least_seconds: dict[str, float]  # of one pass over the texts, at these rates: see `roofline`
    apart: dict[str, float]  # the largest differences between the rows: nats, nats, nats^2, and relative for scores
    provenance: dict[str, Any]

    def __getitem__(self, name: str) -> BenchRow:
        return next(row for row in self.rows if row.name == name)


def forward_flops(geometry: Geometry, lengths: Sequence[int]) -> int:
    """Floating-point operations of scoring texts of `lengths` tokens once, without padding.

    Two for each token and weight; attention takes another 4 x layers x hidden size for each token and token that it
    sees: n (n + 1) / 2 pairs in a text of n tokens.
    """
    pairs = sum(n * (n + 1) // 2 for n in lengths)
    return 2 * geometry.multiplied_parameters * sum(lengths) + 4 * geometry.layers * geometry.hidden_size * pairs


def logits_bytes(geometry: Geometry, n_tokens: int) -> int:
    """Bytes of the output head's logits of `n_tokens` in float32."""
    return 4 * geometry.vocab_size * n_tokens


def roofline(
    geometry: Geometry, lengths: Sequence[int], *, flops_per_second: float, bytes_per_second: float, weight_bytes: int
) -> dict[str, float]:
    """Seconds that each part of scoring texts of `lengths` tokens takes at least, at the rates of a machine.

    "products" is all arithmetic, "logits" writes and reads them once in float32, "weights" reads those, of
    `weight_bytes` each, once or for every text.
    """
    weights = weight_bytes * geometry.multiplied_parameters / bytes_per_second
    return {
        "products": forward_flops(geometry, lengths) / flops_per_second,
        "logits": 2 * logits_bytes(geometry, sum(lengths)) / bytes_per_second,
        "weights, one batch": weights,
        "weights, one text at a time": len(lengths) * weights,
    }


def draw_lengths(n_texts: int) -> list[int]:
    """Lengths in tokens, about 30 to 260, as WikiMIA's four splits together have them."""
    rng = np.random.default_rng(SEED)
    share = np.array(list(WIKIMIA_TEXTS.values())) / sum(WIKIMIA_TEXTS.values())
    return (rng.choice(list(WIKIMIA_TEXTS), n_texts, p=share) + rng.integers(-2, 3, n_texts)).tolist()


def make_texts(n_texts: int) -> tuple[list[str], PreTrainedTokenizerFast]:
    """Texts of random words, their frequencies by Zipf's law, and a byte-level BPE tokenizer trained on such words."""
    rng = np.random.default_rng(SEED)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(2, 9))) for _ in range(3000)]
    words[::5] = [word.capitalize() for word in words[::5]]  # the lowercased text is another one
    share = 1 / np.arange(1, len(words) + 1)
    share /= share.sum()
    bpe = ByteLevelBPETokenizer()
    training = " ".join(rng.choice(words, 50_000, p=share))
    bpe.train_from_iterator([training], 4096, special_tokens=[START_TOKEN], show_progress=False)
    n_tokens = np.array([len(bpe.encode(f" {word}").ids) for word in words])
    texts = []
    for length in draw_lengths(n_texts):
        drawn = rng.choice(len(words), length, p=share)  # a word is at least a token
        n_words = 1 + int(np.searchsorted(n_tokens[drawn].cumsum(), length))
        texts.append(" ".join(words[i] for i in drawn[:n_words]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, bos_token=START_TOKEN, eos_token=START_TOKEN)
    return texts, tokenizer


def make_model(name: str, tokenizer: PreTrainedTokenizerFast, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """A model of the named geometry with random weights, made on the device; Unavailable where it does not fit."""
    config = GEOMETRIES[name].config
    with torch.device("meta"):
        needed = AutoModelForCausalLM.from_config(config).num_parameters() * dtype.itemsize + SPARE_BYTES
    if needed > free_bytes(device):
        raise Unavailable(
            f"geometry {name} needs {needed / 1e9:.1f} GB of memory in {dtype_name(dtype)}, and {device} has "
            f"{free_bytes(device) / 1e9:.1f} GB free; give a smaller --geometry"
        )
    torch.manual_seed(SEED)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    return LoadedModel(
        name=f"{name}, random weights",
        model=model,
        tokenizer=tokenizer,
        start_token_ids=(tokenizer.bos_token_id,),
        revision=f"seed {SEED}",
        tokenizer_hash=tokenizer_hash(tokenizer),
        max_tokens=MAX_TOKENS,
        vocab_size=config.vocab_size,
    )


def dtype_name(dtype: torch.dtype) -> str:
    """The type's name, such as "float32"."""
    return str(dtype).removeprefix("torch.")


# --- the rows ---


def prepare_floor(scorer: Scorer, texts: Sequence[str]) -> Callable[[], None]:
    """What scoring in batches can't do without: the base model's pass over `Scorer.score`'s batches, with padding, and
    the output head's product on the real positions. Tokenized and batched beforehand."""
    token_ids = [[*scorer.loaded.start_token_ids, *ids] for ids in scorer.token_ids(texts)]
    batches = []
    for batch in scorer.batches(token_ids):
        inputs, lengths = right_padded([token_ids[i][:-1] for i in batch], scorer.device)
        batches.append((inputs, torch.arange(inputs.shape[1], device=scorer.device) < lengths[:, None]))
    model = scorer.loaded.model
    weight = model.get_output_embeddings().weight.T

    def run() -> None:
        logits = torch.empty(FLOOR_ROWS_AT_ONCE, weight.shape[1], device=scorer.device, dtype=weight.dtype)
        with torch.inference_mode(), fast_products(model):
            for inputs, is_real in batches:
                hidden = model.base_model(inputs, use_cache=False).last_hidden_state[is_real]
                for rows in hidden.split(FLOOR_ROWS_AT_ONCE):
                    torch.mm(rows, weight, out=logits[: len(rows)])

    return run


def score_alone(loaded: LoadedModel, text: str, *, moments: bool = True) -> TokenRow:
    """Statistics of one text as the field's scripts get them: the whole model, then full (n, V) softmax tensors in the
    logits' own type. Without `moments` all but log p of each token are empty."""
    ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    inputs = torch.tensor([[*loaded.start_token_ids, *ids]], device=loaded.model.device)
    with torch.inference_mode():
        logits = loaded.model(inputs).logits[0, :-1]
        log_p = torch.log_softmax(logits, dim=-1)
        columns = [log_p.gather(1, inputs[0, 1:, None])[:, 0]]
        if moments:
            p = torch.softmax(logits, dim=-1)
            mean = (p * log_p).sum(-1)
            columns += [-mean, (p * log_p.square()).sum(-1) - mean.square(), log_p.amax(-1)]
        columns = torch.stack(columns).float().cpu().numpy()
    empty = np.empty((4 - len(columns), 0), np.float32)
    return TokenRow(np.asarray(ids, np.int32), *columns, *empty)


def run_toolkit(loaded: LoadedModel, texts: Sequence[str], frequency: TokenFrequency) -> dict[str, FloatArray]:
    """Each of SEVEN's scores, (N,), from a pass of its own, one text at a time."""
    scores = {}
    for name, options in SEVEN.items():
        known, of_texts = DETECTORS[name.split(",")[0]], []
        given = {"frequency": frequency.log_probability} if "frequency" in known.needs else {}
        for text in texts:
            of_text = {"text": text} if "texts" in known.needs else {}
            row = score_alone(loaded, text, moments=bool(known.reads))
            of_texts.append(known.score_text(row, **of_text, **given, **options))
        scores[name] = np.array(of_texts)
    return scores


def run_ours_seven(scorer: Scorer, texts: Sequence[str], frequency: TokenFrequency) -> dict[str, FloatArray]:
    """The same scores from one pass over the texts."""
    stats, given, scores = scorer.score(texts, progress=False), {"texts": texts, "frequency": frequency}, {}
    for name, options in SEVEN.items():
        detector = name.split(",")[0]
        needed = {need: given[need] for need in DETECTORS[detector].needs}
        scores[name] = detect(detector, stats, **needed, **options)
    return scores


# --- measuring ---


def time_ways(
    geometry: str, *, n_texts: int = 200, n_rounds: int = 5, n_threads: int | None = None, dtype: str = "auto"
) -> Timings:
    """Time every row in `n_rounds` interleaved rounds, after one that warms up and measures memory.

    ValueError for an unknown geometry, and where the rows do not give the same numbers; Unavailable where the model
    does not fit.
    """
    if geometry not in GEOMETRIES:
        raise ValueError(f"unknown geometry {geometry!r}; known: {', '.join(GEOMETRIES)}")
    device = pick_device()
    torch_dtype = find_weights(geometry).dtype_on(device, dtype)
    if n_threads:
        torch.set_num_threads(n_threads)
    texts, tokenizer = make_texts(n_texts)
    scorer = Scorer(make_model(geometry, tokenizer, device, torch_dtype))
    loaded = scorer.loaded
    about = {"name": "the texts", "tokenizer_hash": loaded.tokenizer_hash}
    frequency = count_tokens(texts, tokenizer, loaded.vocab_size, **about)
    ways: dict[str, Way] = {
        FLOOR: prepare_floor(scorer, texts),
        OURS: lambda: scorer.score(texts, progress=False),
        LOOP: lambda: [score_alone(loaded, text) for text in texts],
        OURS_SEVEN: lambda: run_ours_seven(scorer, texts, frequency),
        TOOLKIT: lambda: run_toolkit(loaded, texts, frequency),
    }
    before, found, peaks = used_bytes(device), {}, {}
    for name, way in ways.items():
        found[name], peaks[name] = with_peak_bytes(way, device, before)
    apart = largest_differences(found, dtype_name(torch_dtype))
    seconds, lengths = time_rounds(ways, n_rounds, device), found[OURS].n_tokens.tolist()
    rates, is_gpu = machine_rates(loaded.model), device.type == "cuda"
    processor = f"{platform.processor() or platform.machine()}, {psutil.cpu_count()} cores"
    return Timings(
        geometry=geometry,
        rows=tuple(BenchRow(name, len(SEVEN) if name == TOOLKIT else 1, seconds[name], peaks[name]) for name in ways),
        n_tokens=sum(lengths),
        **rates,
        least_seconds=roofline(GEOMETRIES[geometry], lengths, **rates, weight_bytes=torch_dtype.itemsize),
        apart=apart,
        provenance={
            "device": torch.cuda.get_device_name() if is_gpu else processor,
            "on_gpu": is_gpu,
            "threads": torch.get_num_threads() if device.type == "cpu" else None,
            "dtype": dtype_name(torch_dtype),
            "torch": version("torch"),
            "transformers": version("transformers"),
            "mialib": mialib_version(),
            "seed": SEED,
            "texts": hash_texts(texts),
            "n_texts": n_texts,
            "shortest_tokens": min(lengths),
            "longest_tokens": max(lengths),
        },
    )


def time_rounds(ways: Mapping[str, Way], n_rounds: int, device: torch.device) -> dict[str, tuple[float, ...]]:
    """Seconds of each way in each round; the ways take turns."""
    rounds = [[time_once(way, device) for way in ways.values()] for _ in range(n_rounds)]
    return dict(zip(ways, zip(*rounds, strict=True), strict=True))


def time_once(way: Way, device: torch.device) -> float:
    """Seconds until the device is done."""
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda: None
    wait()
    start = time.perf_counter()
    way()
    wait()
    return time.perf_counter() - start


def largest_differences(found: Mapping[str, Any], dtype: str) -> dict[str, float]:
    """The largest differences between what the ways found; ValueError where one passes TOLERANCE.

    Log-prob, entropy (nats) and variance (nats^2), and each detector's scores as shares of the largest one.
    """
    ours, loop = found[OURS], found[LOOP]
    apart = {
        name: float(np.abs(getattr(ours, name) - np.concatenate([getattr(row, name) for row in loop])).max())
        for name in ("log_prob", "entropy", "log_prob_var")
    }
    limits = dict(zip(apart, TOLERANCE[dtype], strict=True))
    for name in SEVEN:
        a, b = found[OURS_SEVEN][name], found[TOOLKIT][name]
        apart[name] = float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9))
        limits[name] = math.inf if name == "min_k++" and dtype != "float32" else 0.01
    for name, difference in apart.items():
        if not difference <= limits[name]:
            raise ValueError(
                f"{name} of one way to score lies {difference:.2g} from another's, more than {limits[name]:g} in "
                f"{dtype}: they do not do the same work, so their times are not compared"
            )
    return apart


def used_bytes(device: torch.device) -> int:
    """Memory in use: on CUDA what torch has allocated there, elsewhere the process's resident memory."""
    _give_back_memory()
    return torch.cuda.memory_allocated() if device.type == "cuda" else psutil.Process().memory_info().rss


def with_peak_bytes(way: Way, device: torch.device, before: int) -> tuple[Any, int]:
    """What a way returns, and its peak of `used_bytes` beyond `before`; a second thread looks at resident memory."""
    _give_back_memory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        found = way()
        return found, torch.cuda.max_memory_allocated() - before
    process, done, peak = psutil.Process(), threading.Event(), 0

    def sample() -> None:
        nonlocal peak
        while not done.wait(MEMORY_SAMPLE_SECONDS):
            peak = max(peak, process.memory_info().rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        found = way()
    finally:
        done.set()
        sampler.join()
    return found, max(0, peak - before)


def _give_back_memory() -> None:
    """Have the C library return freed memory, so that one way's is not counted as the next one's."""
    gc.collect()
    if platform.system() == "Linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def machine_rates(model: PreTrainedModel) -> dict[str, float]:
    """Floating-point operations a second of a large product as the model multiplies, and bytes a second that a copy
    reads and writes, of memory that no cache holds; the best of five each."""
    device, dtype = model.device, model.dtype
    n, n_bytes = (1024, 2**27) if device.type == "cpu" else (8192, 2**31)
    a, b = torch.randn(2, n, n, device=device, dtype=dtype)
    out, source = torch.mm(a, b), torch.zeros(n_bytes, dtype=torch.uint8, device=device)
    target = source.clone()
    ways = (lambda: torch.mm(a, b, out=out), lambda: target.copy_(source))
    with fast_products(model):
        of_product, of_copy = (min(time_once(way, device) for _ in range(5)) for way in ways)
    return {"flops_per_second": 2 * n**3 / of_product, "bytes_per_second": 2 * n_bytes / of_copy}


# --- the table ---


def bench_table(timings: Timings) -> pd.DataFrame:
    """One row a way to score: median seconds with the fastest and slowest round, and how it compares with ours.

    The last columns are the shares of the measured rates that it reaches, by `roofline`; the copy's on a GPU alone.
    """
    rows = {}
    for row in timings.rows:
        rows[row.name] = {
            "passes": row.passes,
            "seconds (min to max)": f"{row.median:.2f} ({min(row.seconds):.2f} to {max(row.seconds):.2f})",
            "tokens/s": f"{timings.n_tokens / row.median:,.0f}",
            "times as long as ours": f"{row.median / timings[OURS].median:.2f}",
            "peak memory (MB)": f"{row.peak_bytes / 1e6:,.0f}",
            "of the product rate": f"{row.passes * timings.least_seconds['products'] / row.median:.0%}",
        }
        if timings.provenance["on_gpu"]:
            weights = "weights, one text at a time" if row.name in (LOOP, TOOLKIT) else "weights, one batch"
            moving = timings.least_seconds["logits"] + timings.least_seconds[weights]
            rows[row.name]["of the copy rate"] = f"{row.passes * moving / row.median:.0%}"
    return text_table(rows, f"Passes over a model of the shape of {timings.geometry}")


def describe_bench(timings: Timings) -> str:
    """What was run and where, in a few sentences."""
    p = timings.provenance
    on_threads = f", {p['threads']} threads" if p["threads"] else ""
    memory = "torch's own count" if p["on_gpu"] else "the process's resident memory, looked at every 2 ms"
    not_compared = (
        f"; variances and Min-K%++ are not compared in {p['dtype']}, which leaves the field's way no digits of them"
        if math.inf in TOLERANCE[p["dtype"]]
        else ""
    )
    return (
        f"{p['n_texts']} texts of {p['shortest_tokens']} to {p['longest_tokens']} tokens, {timings.n_tokens:,} in all "
        f"(seed {p['seed']}, hash {p['texts']}), {len(timings.rows[0].seconds)} rounds. {p['device']}{on_threads}, "
        f"{p['dtype']}, torch {p['torch']}, transformers {p['transformers']}, mialib {p['mialib']}. Measured rates: "
        f"matrix product {timings.flops_per_second / 1e12:.3g} TFLOP/s, copy {timings.bytes_per_second / 1e9:.3g} "
        f"GB/s. Memory is beside the model's: {memory}. The seven detectors are {'; '.join(SEVEN)}. "
        "All ways gave the same numbers: log-probs within "
        f"{timings.apart['log_prob']:.1g} nats, entropies within {timings.apart['entropy']:.1g}{not_compared}."
    )
