"""What a run of the papers' tables takes, said before it starts: downloads, memory, GPU hours, what is in its way.

The sizes are the hub's where it can be reached and the registry's where it can't. The hours are arithmetic, not
measurement: floating point operations of all passes at a rate that is assumed to be sustained.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mialib.api import is_api
from mialib.config import Profile
from mialib.hub import Unavailable, ask_hub, can_be_reached, local_copy, split_name
from mialib.models import REMOTE_CODE_VARIABLE, SPARE_BYTES, TRAINING_BYTES, is_allowed_remote_code
from mialib.paper_tables import Column, choose_columns
from mialib.probe import LEARNING_RATES
from mialib.published_benchmarks import find_part, is_published
from mialib.registry import KnownModel, find_model

TOKENS_PER_WORD = 1.5  # of English under these models' tokenizers, and about that of jieba's Chinese words
SUSTAINED_TERAFLOPS = 100  # of a large GPU at half precision on short texts
TRAINING_PASSES = 6  # forward passes that two epochs cost, each backward pass as much as two forward


@dataclass(frozen=True)
class ColumnPlan:
    """What one printed column takes."""

    page: str
    column: str
    model: str
    benchmark: str
    gpu_hours: float | None  # None where the model or the benchmark is not of the registry
    memory_gb: float | None


@dataclass(frozen=True)
class Download:
    """A model or data set, and what stands between it and this machine."""

    name: str
    kind: str
    gb: float
    is_here: bool
    licence: str
    obstacle: str  # "" for none


def plan_columns(profile: Profile, only: Sequence[str] = ()) -> list[ColumnPlan]:
    """Every column of the profile's tables that is asked for."""
    return [
        ColumnPlan(page, name, column.model, column.benchmark, gpu_hours(column), memory_gb(column))
        for page, name, column in choose_columns(profile, only)
    ]


def gpu_hours(column: Column, teraflops: float = SUSTAINED_TERAFLOPS) -> float | None:
    """Hours of one GPU: the operations of every pass, 2 a parameter and token, at a sustained rate."""
    known = find_model(column.model)
    n_tokens = _tokens(column.benchmark)
    if known is None or n_tokens is None:
        return None
    own_passes = 2.0 + (column.n_neighbors if column.masked else 0)
    if column.unseen:  # activations of the model and of each proxy, and the proxies' training
        n_training = column.n_training / _examples(column.benchmark)
        own_passes += (1 + len(LEARNING_RATES)) * (1 + n_training) + len(LEARNING_RATES) * TRAINING_PASSES * n_training
    operations = 2 * (known.billions or 0) * 1e9 * n_tokens * own_passes
    reference = find_model(column.reference) if column.reference else None
    if reference:
        operations += 2 * (reference.billions or 0) * 1e9 * n_tokens
    return operations / (teraflops * 1e12) / 3600


def memory_gb(column: Column) -> float | None:
    """Memory of the largest thing that a column needs at once: the weights, or the probe's proxy in training."""
    known = find_model(column.model)
    if known is None or known.billions is None:
        return None
    bytes_a_parameter = TRAINING_BYTES if column.unseen else 4 if known.dtype == "float32" else 2
    return known.billions * bytes_a_parameter + SPARE_BYTES / 1e9


def plan_downloads(profile: Profile, only: Sequence[str] = ()) -> list[Download]:
    """Every model and data set of the columns that are asked for, once."""
    columns = [column for _, _, column in choose_columns(profile, only)]
    models = dict.fromkeys(name for column in columns for name in column.models)
    benchmarks = dict.fromkeys(column.benchmark for column in columns)
    found = [_plan_model(name) for name in models if not Path(name).is_dir() and not name.startswith("lab/")]
    data = dict.fromkeys(download for name in benchmarks for download in _plan_benchmark(name))
    return found + list(data)


def _plan_model(name: str) -> Download:
    known = find_model(name)
    licence = known.licence if known else "unknown"
    if is_api(name):
        lacks_key = "" if os.environ.get("OPENAI_API_KEY") else "set OPENAI_API_KEY"
        return Download(name, "model", 0.0, False, licence, lacks_key)
    obstacle = ""
    if known and known.remote_code and not is_allowed_remote_code(name):
        obstacle = f"runs its authors' code: {REMOTE_CODE_VARIABLE}={name}"
    return _ask(name, "model", known.download_gb if known else 0.0, licence, obstacle, _is_gated(known))


def _is_gated(known: KnownModel | None) -> bool:
    return bool(known) and known.access == "gated"


def _plan_benchmark(name: str) -> list[Download]:
    if not is_published(name):
        return []
    part = find_part(name)
    known = part.known
    has_copy = bool(known.local) and all(local_copy(part.fill(path), "dataset") for path in known.local)
    if known.hub_id is None:
        where = " and ".join(part.fill(path) for path in known.local)
        return [Download(part.name, "data", 0.0, has_copy, known.licence, "" if has_copy else f"put it at {where}")]
    if has_copy:
        return [Download(known.hub_id, "data", 0.0, True, known.licence, "")]
    return [_ask(known.hub_id, "dataset", 0.0, known.licence, "", known.access == "gated")]


def _ask(name: str, kind: str, gb: float, licence: str, obstacle: str, is_gated: bool) -> Download:
    """What the hub says of it, or what the registry does where the hub can't be reached."""
    shown = "data" if kind == "dataset" else "model"
    if local_copy(split_name(name)[0], kind) or _is_cached(name, kind):
        return Download(name, shown, gb, True, licence, obstacle)
    if can_be_reached():
        try:
            info = ask_hub(name, kind, files_metadata=True)
        except Unavailable as error:
            return Download(name, shown, gb, False, licence, str(error))
        gb, is_gated = weights_gb(info.siblings) if kind == "model" else _all_gb(info.siblings), bool(info.gated)
    elif not obstacle:
        obstacle = "the hub can't be reached"
    if is_gated and not os.environ.get("HF_TOKEN"):
        obstacle = "gated: ask for access on its page and set HF_TOKEN"
    return Download(name, shown, gb, False, licence, obstacle)


def weights_gb(files: Sequence[object]) -> float:
    """Size of what `from_pretrained` fetches: the safetensors where there are some, else PyTorch's own files."""
    sizes = {file.rfilename: file.size or 0 for file in files}
    for ending in (".safetensors", ".bin"):
        weights = {name: size for name, size in sizes.items() if name.endswith(ending) and "/" not in name}
        if weights:
            return sum(weights.values()) / 1e9
    return _all_gb(files)


def _all_gb(files: Sequence[object]) -> float:
    return sum(file.size or 0 for file in files) / 1e9


def _is_cached(name: str, kind: str) -> bool:
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{split_name(name)[0].replace('/', '--')}" / "snapshots"
    return folder.is_dir() and any(folder.iterdir())


def _tokens(benchmark: str) -> float | None:
    """Tokens of all its texts, from the registry's counts of texts and words."""
    if not is_published(benchmark):
        return None
    part = find_part(benchmark)
    words = part.length or max(part.known.examples)
    return part.known.examples[words] * words * TOKENS_PER_WORD


def _examples(benchmark: str) -> int:
    part = find_part(benchmark)
    return part.known.examples[part.length or max(part.known.examples)]


def describe(columns: Sequence[ColumnPlan], downloads: Sequence[Download]) -> str:
    """The plan as text for a terminal."""
    lines = ["What has to be here:"]
    for d in downloads:
        state = "here" if d.is_here else f"{d.gb:.1f} GB" if d.gb else "small" if d.kind == "data" else ""
        lines.append("  " + "  ".join([f"{d.kind:5}", f"{d.name:52}", f"{state:>8}", d.licence, d.obstacle]).rstrip())
    lines.append("What is computed, a job each:")
    for c in columns:
        hours = "" if c.gpu_hours is None else f"{c.gpu_hours:.2f} h"
        memory = "" if c.memory_gb is None else f"{c.memory_gb:.0f} GB"
        lines.append("  " + "  ".join([f"{c.page:22}", f"{c.column:42}", f"{hours:>8}", f"{memory:>7}"]).rstrip())
    missing = [d for d in downloads if not d.is_here]
    pages = dict.fromkeys(c.page for c in columns)
    by_page = {page: sum(c.gpu_hours or 0 for c in columns if c.page == page) for page in pages}
    lines.append(f"GPU hours by table, at {SUSTAINED_TERAFLOPS} TFLOP/s sustained, without loading and downloading:")
    lines += [f"  {page:22}  {hours:6.2f}" for page, hours in by_page.items()]
    lines.append(
        f"In all {len(columns)} jobs, {sum(by_page.values()):.1f} GPU hours, {sum(d.gb for d in missing):.0f} GB to "
        f"download and to keep; {sum(bool(d.obstacle) for d in downloads)} of {len(downloads)} models and data sets "
        "have something in their way. What can't be had is left out, and its page says so."
    )
    return "\n".join(lines)
