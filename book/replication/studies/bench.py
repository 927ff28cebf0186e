"""How fast scoring is on the machine at hand, beside a lower bound and the usual loop over single texts.

All ways run on the same texts and in turns (A B C, A B C, ...), so that other load on the machine falls on all of them.
Weights and texts are random, so nothing is downloaded.
"""

import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

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
from mialib.models import LoadedModel, fast_products, free_bytes, pick_device, tokenizer_hash
from mialib.scoring import LoadedScorer as Scorer
from mialib.store import hash_texts, mialib_version, version
from mialib.token_stats import TokenRow
from replication.profile import check_names
from replication.tables import text_table

SEED = 0
WIKIMIA_TEXTS = {32: 776, 64: 542, 128: 250, 256: 82}  # length of a split: how many texts WikiMIA has of it
START_TOKEN = "<|endoftext|>"  # Pythia's
MAX_TOKENS = 2048  # the context of Pythia and LLaMA
FLOOR_ROWS_AT_ONCE = 1024  # a larger chunk's product is no faster, on a processor or a GPU
COLUMNS = ("log_prob", "entropy", "log_prob_var")
# The largest differences between ours and the loop's, of COLUMNS: nats, nats, nats^2. In 16 bits the loop's variance, a
# small difference of two numbers of about 100, has no digits left, so it is not compared.
TOLERANCE = {"float32": (1e-3, 1e-3, 1e-3), "bfloat16": (0.25, 0.25, math.inf), "float16": (0.05, 0.05, math.inf)}
FLOOR, OURS, LOOP = "forward and head alone", "mialib", "one text at a time"

GEOMETRIES = {  # family, layers, hidden size, heads, intermediate size, vocabulary
    "pythia-70m": ("gpt_neox", 6, 512, 8, 2048, 50_304),
    "pythia-160m": ("gpt_neox", 12, 768, 12, 3072, 50_304),
    "pythia-410m": ("gpt_neox", 24, 1024, 16, 4096, 50_304),
    "pythia-1b": ("gpt_neox", 16, 2048, 8, 8192, 50_304),
    "pythia-1.4b": ("gpt_neox", 24, 2048, 16, 8192, 50_304),
    "pythia-2.8b": ("gpt_neox", 32, 2560, 32, 10_240, 50_304),
    "pythia-6.9b": ("gpt_neox", 32, 4096, 32, 16_384, 50_432),
    "pythia-12b": ("gpt_neox", 36, 5120, 40, 20_480, 50_688),
    "llama-13b": ("llama", 40, 5120, 40, 13_824, 32_000),
    "qwen1.5-14b": ("qwen2", 40, 5120, 40, 13_696, 152_064),
}
DEFAULT_GEOMETRY = {"cpu": "pythia-70m", "cuda": "pythia-6.9b", "mps": "pythia-160m"}


def config_of(geometry: str) -> PreTrainedConfig:
    """The configuration of a model of a geometry; ValueError for an unknown one."""
    check_names([geometry], GEOMETRIES, "there is no geometry")
    family, layers, hidden_size, heads, intermediate_size, vocab_size = GEOMETRIES[geometry]
    return AutoConfig.for_model(
        family,
        num_hidden_layers=layers,
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=False,
    )


def empty_model(geometry: str) -> PreTrainedModel:
    """A model of a geometry without memory for its weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config_of(geometry))


def multiplied_parameters(geometry: str) -> int:
    """Weights that each token is multiplied with: the layers' matrices and the output head."""
    model = empty_model(geometry)
    matrices = sum(weights.numel() for weights in model.parameters() if weights.dim() == 2)
    return matrices - cast("torch.Tensor", model.get_input_embeddings().weight).numel()


def forward_flops(geometry: str, lengths: Sequence[int]) -> int:
    """Operations of one pass over texts of these lengths in tokens, without padding."""
    config, pairs = config_of(geometry), sum(n * (n + 1) // 2 for n in lengths)  # of a token and one that it sees
    return (
        2 * multiplied_parameters(geometry) * sum(lengths) + 4 * config.num_hidden_layers * config.hidden_size * pairs
    )


def least_seconds(
    geometry: str, lengths: Sequence[int], flops_per_second: float, bytes_per_second: float, weight_bytes: int
) -> dict[str, float]:
    """Seconds that each part of a pass takes at least, at the rates of a machine."""
    weights = weight_bytes * multiplied_parameters(geometry) / bytes_per_second
    return {
        "products": forward_flops(geometry, lengths) / flops_per_second,
        "weights, one text at a time": len(lengths) * weights,
    }


@dataclass(frozen=True)
class Timings:
    """Seconds of each way in each round, and what was run."""

    geometry: str
    seconds: dict[str, tuple[float, ...]]
    n_tokens: int  # scored in one pass over the texts
    lengths: list[int]  # of the texts, in tokens
    flops_per_second: float  # of a large matrix product in the model's dtype, measured
    bytes_per_second: float  # that a copy reads and writes, measured
    apart: dict[str, float]  # the largest differences between ours and the loop's: nats, nats, nats^2
    provenance: dict[str, Any]


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
        numbers = rng.choice(len(words), length, p=share)  # a word is at least a token
        n_words = 1 + int(np.searchsorted(n_tokens[numbers].cumsum(), length))
        texts.append(" ".join(words[i] for i in numbers[:n_words]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, bos_token=START_TOKEN, eos_token=START_TOKEN)
    return texts, tokenizer


def make_model(
    geometry: str, tokenizer: PreTrainedTokenizerFast, device: torch.device, dtype: torch.dtype
) -> LoadedModel:
    """A model of a geometry with random weights, made on the device; Unavailable where it does not fit."""
    needed = empty_model(geometry).num_parameters() * dtype.itemsize + SPARE_BYTES
    if needed > free_bytes(device):
        raise Unavailable(
            f"geometry {geometry} needs {needed / 1e9:.1f} GB of memory in {dtype_name(dtype)}, and {device} has "
            f"{free_bytes(device) / 1e9:.1f} GB free; give a smaller --geometry"
        )
    torch.manual_seed(SEED)
    config = config_of(geometry)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    return LoadedModel(
        name=f"{geometry}, random weights",
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


def score_alone(loaded: LoadedModel, text: str) -> TokenRow:
    """Statistics of one text as the field's scripts get them: the whole model, then full (n, V) softmax tensors in the
    logits' own type."""
    ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    inputs = torch.tensor([[*loaded.start_token_ids, *ids]], device=loaded.model.device)
    with torch.inference_mode():
        logits = loaded.model(inputs).logits[0, :-1]
        log_p = torch.log_softmax(logits, dim=-1)
        p = torch.softmax(logits, dim=-1)
        mean = (p * log_p).sum(-1)
        variance = (p * log_p.square()).sum(-1) - mean.square()
        columns = log_p.gather(1, inputs[0, 1:, None])[:, 0], -mean, variance, log_p.amax(-1)
        return TokenRow(np.asarray(ids, np.int32), *torch.stack(columns).float().cpu().numpy())


def time_ways(
    geometry: str,
    *,
    n_texts: int = 200,
    n_texts_alone: int | None = None,
    n_rounds: int = 5,
    n_threads: int | None = None,
    dtype: str = "auto",
    device: str = "auto",
) -> Timings:
    """Time each way in `n_rounds` rounds, after one that warms up.

    The loop takes the first `n_texts_alone` texts only, and its seconds are those of as many tokens as the others read.
    ValueError for an unknown geometry, and where two ways do not give the same numbers; Unavailable where the model
    does not fit.
    """
    config_of(geometry)
    where = pick_device(device)
    torch_dtype = find_weights(geometry).dtype_on(where, dtype)
    if n_threads:
        torch.set_num_threads(n_threads)
    texts, tokenizer = make_texts(n_texts)
    scorer = Scorer(make_model(geometry, tokenizer, where, torch_dtype))
    ways: dict[str, Callable[[], Any]] = {
        FLOOR: prepare_floor(scorer, texts),
        OURS: lambda: scorer.score(texts, progress=False),
        LOOP: lambda: [score_alone(scorer.loaded, text) for text in texts[:n_texts_alone]],
    }
    outcomes = {name: way() for name, way in ways.items()}
    differences = largest_differences(outcomes, dtype_name(torch_dtype))
    rounds = [[time_once(way, where) for way in ways.values()] for _ in range(n_rounds)]
    lengths = outcomes[OURS].n_tokens.tolist()
    seconds = dict(zip(ways, zip(*rounds, strict=True), strict=True))
    seconds[LOOP] = tuple(s * sum(lengths) / sum(lengths[:n_texts_alone]) for s in seconds[LOOP])
    processor = f"{platform.processor() or platform.machine()}, {psutil.cpu_count()} cores"
    return Timings(
        geometry=geometry,
        seconds=seconds,
        n_tokens=sum(lengths),
        lengths=lengths,
        **machine_rates(scorer.loaded.model),
        apart=differences,
        provenance={
            "device": torch.cuda.get_device_name() if where.type == "cuda" else processor,
            "threads": torch.get_num_threads() if where.type == "cpu" else None,
            "dtype": dtype_name(torch_dtype),
            "torch": version("torch"),
            "transformers": version("transformers"),
            "mialib": mialib_version(),
            "seed": SEED,
            "texts": hash_texts(texts),
            "n_texts": n_texts,
        },
    )


def time_once(way: Callable[[], Any], device: torch.device) -> float:
    """Seconds until the device is done."""
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda: None
    wait()
    start = time.perf_counter()
    way()
    wait()
    return time.perf_counter() - start


def largest_differences(outcomes: Mapping[str, Any], dtype: str) -> dict[str, float]:
    """The largest differences of COLUMNS between ours and the loop's; ValueError where one passes TOLERANCE."""
    differences = {}
    for name, limit in zip(COLUMNS, TOLERANCE[dtype], strict=True):
        loop_values = np.concatenate([getattr(row, name) for row in outcomes[LOOP]])
        differences[name] = float(np.abs(getattr(outcomes[OURS], name)[: len(loop_values)] - loop_values).max())
        if not differences[name] <= limit:
            raise ValueError(
                f"{name} of one way to score lies {differences[name]:.2g} from another's, more than {limit:g} in "
                f"{dtype}: they do not do the same work, so their times are not compared"
            )
    return differences


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
        product_seconds, copy_seconds = (min(time_once(way, device) for _ in range(5)) for way in ways)
    return {"flops_per_second": 2 * n**3 / product_seconds, "bytes_per_second": 2 * n_bytes / copy_seconds}


def bench_table(timings: Timings) -> pd.DataFrame:
    """One row a way to score: median seconds with the fastest and slowest round, and how it compares with ours."""
    rows = {}
    for name, seconds in timings.seconds.items():
        median = float(np.median(seconds))
        rows[name] = {
            "seconds (min to max)": f"{median:.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
            "tokens/s": f"{timings.n_tokens / median:,.0f}",
            "seconds, divided by mialib's": f"{median / np.median(timings.seconds[OURS]):.2f}",
        }
    return text_table(rows, f"Passes over a model of the shape of {timings.geometry}")


def describe_bench(timings: Timings) -> str:
    """What was run and where, in a few sentences."""
    p, lengths = timings.provenance, timings.lengths
    on_threads = f", threads: {p['threads']}" if p["threads"] else ""
    in_16_bits = math.inf in TOLERANCE[p["dtype"]]
    not_compared = f"; variances are not compared in {p['dtype']}, which leaves the loop no digits of them" * in_16_bits
    return (
        f"{p['n_texts']} texts of {min(lengths)} to {max(lengths)} tokens, {timings.n_tokens:,} in all (seed "
        f"{p['seed']}, hash {p['texts']}), {len(timings.seconds[OURS])} rounds. {p['device']}{on_threads}, "
        f"{p['dtype']}, torch {p['torch']}, transformers {p['transformers']}, mialib {p['mialib']}. Measured rates: "
        f"product {timings.flops_per_second / 1e12:.3g} TFLOP/s, copy {timings.bytes_per_second / 1e9:.3g} GB/s. "
        f"mialib and the loop gave the same numbers: log-probs within {timings.apart['log_prob']:.1g} nats, entropies "
        f"within {timings.apart['entropy']:.1g}{not_compared}."
    )
