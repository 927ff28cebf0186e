"""Texts that a model has not seen, like a benchmark's: what the probe learns from (Liu et al. 2024, Section 4.2).

Where they come from is named:

lab/en:reference        the lab's texts that no model is trained on (`lab/en` for short)
arxiv_mia               those that a published benchmark comes with
texts.jsonl             a file; whether its rows have labels does not matter
sampled:lab/en-400k     synthetic ones, sampled from a language model as `replication.builders.synthetic` does
apart                   the benchmark's own non-members, which are then no longer judged on: `set_apart`
"""

import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.catalog.hub import Unavailable, local_copy
from mialib.catalog.registry import known_benchmarks
from mialib.catalog.sources import find
from mialib.shared.files import READERS, is_file_of_texts, load_texts
from mialib.text import count_words, cut_to_words
from replication.builders.synthetic import sample_or_load
from replication.lab.source import Lab

logger = logging.getLogger(__name__)

APART = "apart"
SAMPLED = "sampled:"


def unseen_texts(
    benchmark: Benchmark, sources: Mapping[str, str], n: int, seed: int = 0
) -> tuple[NDArray[np.int64], dict[str, list[str]]]:
    """`n` unseen texts of each source, under its key, after the numbers of the texts left to judge on.

    These are all of the benchmark's but for those that the source `apart` takes.
    """
    left, texts = np.arange(len(benchmark)), list[str]()
    if APART in sources.values():
        left, texts = set_apart(benchmark, n, seed)
        benchmark = benchmark.take(left, benchmark.name)
    return left, {k: texts if name == APART else load_unseen(name, benchmark, n, seed) for k, name in sources.items()}


def load_unseen(source: str, like: Benchmark, n: int, seed: int = 0) -> list[str]:
    """`n` unseen texts, cut to the words that `like` is cut to, or to those of its longest text.

    Where the source holds more, `seed` draws. ValueError where it holds fewer, or is not known.
    """
    n_words = like.n_words or max(count_words(text, like.language) for text in like.texts)
    if source.startswith(SAMPLED):
        model = source.removeprefix(SAMPLED)
        return sample_or_load(model, like.texts, n, n_words=n_words, seed=seed, language=like.language)
    texts = list(dict.fromkeys(cut_to_words(text, n_words, like.language) for text in _texts_of(source)))
    if len(texts) < n:
        raise ValueError(
            f"{source} holds {len(texts)} distinct texts of {n_words} words, {n} unseen ones are asked for (n_training)"
        )
    return [texts[i] for i in np.random.default_rng(seed).permutation(len(texts))[:n]]


def set_apart(benchmark: Benchmark, n: int, seed: int = 0) -> tuple[NDArray[np.int64], list[str]]:
    """The numbers of all texts but `n` of the non-members, and these, as the paper does with WikiMIA (Table 1)."""
    non_members = np.flatnonzero(benchmark.labels == 0)
    if len(non_members) < 2 * n:
        raise ValueError(
            f"{benchmark.name} has {len(non_members)} non-members; setting {n} apart would leave fewer than it takes: "
            "ask for fewer training texts, or name a file of unseen ones"
        )
    numbers = np.random.default_rng(seed).permutation(non_members)[:n]
    return np.setdiff1d(np.arange(len(benchmark)), numbers), [benchmark.texts[i] for i in numbers]


def _texts_of(source: str) -> list[str]:
    if isinstance(corpus := find(source), Lab):
        return corpus.unseen()
    if entry := known_benchmarks().get(source):
        if entry.unseen and (copy := local_copy(entry.unseen, "dataset")):
            return load_texts(copy)
        where = f"set MIALIB_BENCHMARKS to a folder that holds {entry.unseen}" if entry.unseen else "it comes with none"
        raise Unavailable(f"unseen texts of {source}: {where}")
    if is_file_of_texts(source):
        return load_texts(source)
    names = ", ".join(name for name, entry in known_benchmarks().items() if entry.unseen)
    raise ValueError(
        f"no unseen texts {source!r}; give a file ({', '.join(READERS)}), lab/en:reference, {SAMPLED}MODEL or {names}; "
        f"{APART}, the benchmark's own non-members, where a page takes them (`set_apart`)"
    )
