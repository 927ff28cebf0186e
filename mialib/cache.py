"""Score or load: token statistics, token frequencies, neighbors and samples are computed once and kept, keyed by all
that determines them.

A key holds the content of model, tokenizer and texts, device and dtype, start token, library versions and the source
of the code that computes, so editing any of them misses the cache instead of finding a stale result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import ArrayLike, NDArray

from mialib import api
from mialib.frequency import TokenFrequency, count_tokens
from mialib.models import (
    load_tokenizer,
    model_revision,
    pick_device,
    pick_dtype,
    start_token_of,
    tokenizer_hash,
    vocabulary_size,
)
from mialib.reference import corpus_identity, reference_texts
from mialib.store import code_hash, hash_of, hash_texts, home, once
from mialib.token_stats import MADE_BY, TokenStats


def score_or_load(
    model: str,
    texts: Sequence[str],
    *,
    device: str = "auto",
    dtype: str = "auto",
    start_token: str | None = "auto",
) -> TokenStats:
    """Token statistics of `texts` under `model`, from the cache where they are there; arguments as for `Scorer`.

    A model behind an API (`api:NAME`) runs elsewhere, so device and dtype say nothing of it.
    """
    if api.is_api(model):
        return _score_by_api(model, texts, start_token)
    where = pick_device(device)
    path = _path(
        "token_stats",
        model=model_revision(model),
        texts=hash_texts(texts),
        device=where.type,
        dtype=str(pick_dtype(dtype, where, model)),
        start_token=start_token_of(model, start_token),
        code=code_hash(*MADE_BY),
        versions=[version("torch"), version("transformers")],
    )

    def write(to: Path) -> None:
        from mialib.scoring import Scorer

        Scorer(model, device=device, dtype=dtype, start_token=start_token).score(texts).save(to)

    return TokenStats.load(once(path, write))


def _score_by_api(model: str, texts: Sequence[str], start_token: str | None) -> TokenStats:
    loaded = api.load_api_model(model, start_token)
    asked = loaded.determined_by()
    path = _path("token_stats", **asked, texts=hash_texts(texts), code=code_hash(*api.MADE_BY))
    # One file for all texts, so that a list with a text more or less pays for the others once; one run at a time.
    replies = path.with_name(f"{hash_of(asked)}.replies.jsonl")
    if not path.is_file():
        with FileLock(replies.with_suffix(".lock")):
            once(path, lambda to: api.score(loaded, texts, replies).save(to))
            api.drop_replies(replies, texts)
    return TokenStats.load(path)


def other_statistics_or_load(model: str, texts: Sequence[str]) -> dict[str, TokenStats]:
    """Statistics computed in other ways, by name; arguments as for `mialib.other_passes.other_statistics`."""
    where = pick_device()
    made_by = {
        "model": model_revision(model),
        "texts": hash_texts(texts),
        "device": where.type,
        "dtype": str(pick_dtype("auto", where, model)),
        "start_token": start_token_of(model),
        "code": code_hash("other_passes", "batches", "models", "scoring"),
        "versions": [version("torch"), version("transformers")],
    }
    found: dict[str, TokenStats] = {}

    def write(name: str, to: Path) -> None:
        from mialib.other_passes import other_statistics

        found.update(found or other_statistics(model, texts))  # one pass gives them all
        found[name].save(to)

    def load(name: str) -> TokenStats:
        path = _path("other_statistics", statistics=name, **made_by)
        return TokenStats.load(once(path, lambda to: write(name, to)))

    return {name: load(name) for name in ("unweighted", "bfloat16")}


def count_or_load(corpus: str, model: str) -> TokenFrequency:
    """Frequencies of `model`'s tokens in a reference corpus, named as in `mialib.reference`."""
    tokenizer = load_tokenizer(model)
    size = api.vocabulary_size(tokenizer) if api.is_api(model) else vocabulary_size(model)
    of_tokenizer = tokenizer_hash(tokenizer)
    path = _path(
        "token_frequency",
        tokenizer=of_tokenizer,
        size=size,
        corpus=corpus_identity(corpus),
        code=code_hash("frequency", "models"),
        versions=[version("tokenizers")],
    )

    def write(to: Path) -> None:
        partial = path.with_suffix(".partial.npz")
        texts = reference_texts(corpus)
        count_tokens(texts, tokenizer, size, name=corpus, tokenizer_hash=of_tokenizer, partial=partial).save(to)

    return TokenFrequency.load(once(path, write))


def neighbors_or_load(
    texts: Sequence[str], masked_lm: str, *, n_neighbors: int = 100, seed: int = 0, language: str = "en"
) -> list[list[str]]:
    """The neighbors of each text; arguments as for `mialib.neighbors.make_neighbors`."""

    def make() -> list[list[str]]:
        from mialib.neighbors import make_neighbors

        return make_neighbors(texts, masked_lm, n_neighbors=n_neighbors, seed=seed, language=language)

    return _column_once(_neighbors_path(texts, masked_lm, n_neighbors, seed, language), "neighbors", make)


def neighbor_log_probs_or_load(
    model: str, texts: Sequence[str], masked_lm: str, *, n_neighbors: int = 100, seed: int = 0, language: str = "en"
) -> NDArray[np.float64]:
    """Mean log p of each neighbor of each text under `model`, (N, n_neighbors), nats a token.

    Only these means are kept, not the token statistics of a hundred texts for each one; those of a model behind an API
    are, since they were paid for.
    """
    if api.is_api(model):
        made = neighbors_or_load(texts, masked_lm, n_neighbors=n_neighbors, seed=seed, language=language)
        rows = score_or_load(model, [neighbor for of_text in made for neighbor in of_text])
        return np.array([row.log_prob.mean(dtype=np.float64) for row in rows]).reshape(len(texts), n_neighbors)
    where = pick_device()
    path = _path(
        "neighbor_log_probs",
        model=model_revision(model),
        neighbors=_neighbors_path(texts, masked_lm, n_neighbors, seed, language).stem,
        device=where.type,
        dtype=str(pick_dtype("auto", where, model)),
        start_token=start_token_of(model),
        code=code_hash(*MADE_BY, "neighbors"),
        versions=[version("torch"), version("transformers")],
    )

    def make() -> list[list[float]]:
        from mialib.neighbors import neighbor_log_probs
        from mialib.scoring import Scorer

        made = neighbors_or_load(texts, masked_lm, n_neighbors=n_neighbors, seed=seed, language=language)
        return neighbor_log_probs(Scorer(model), score_or_load(model, texts), made).tolist()

    return np.array(_column_once(path, "log_prob", make), np.float64)


def sample_or_load(
    model: str, texts: Sequence[str], n: int, *, n_words: int, seed: int = 0, language: str = "en"
) -> list[str]:
    """Sampled texts; arguments as for `mialib.synthetic.sample_synthetic`. A lab model's training texts are known."""
    known = _trained_on(model) if model.startswith("lab/") else []
    path = _path(
        "synthetic",
        model=model_revision(model),
        texts=hash_texts(texts),
        n=n,
        n_words=n_words,
        seed=seed,
        language=language,
        device=pick_device().type,
        known=hash_texts(known),
        code=code_hash("synthetic", "models", "benchmarks", "docstrings"),
        versions=[version("torch"), version("transformers")],
    )

    def make() -> list[str]:
        from mialib.synthetic import sample_synthetic

        return sample_synthetic(model, texts, n, n_words=n_words, seed=seed, known=known, language=language)

    return _column_once(path, "text", make)


def blind_or_load(
    texts: Sequence[str], labels: ArrayLike, kind: str, *, language: str = "en", groups: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The scores of a blind baseline, (N,); arguments as for `mialib.blind.blind_scores`."""
    from mialib.blind import blind_scores

    return arrays_once(
        "blind",
        lambda: {"scores": blind_scores(texts, labels, kind, language=language, groups=groups)},
        texts=hash_texts(texts),
        labels=np.asarray(labels).tolist(),
        baseline=kind,
        language=language,
        groups=None if groups is None else np.asarray(groups).tolist(),
        code=code_hash("blind"),
        versions=[version("scikit-learn")],
    )["scores"]


def _trained_on(model: str) -> list[str]:
    from mialib.config import Masked, Unlearning
    from mialib.lab import lab_recipe, trained_on

    recipe = lab_recipe(model)
    if isinstance(recipe, Unlearning):
        return _trained_on(recipe.base)
    if isinstance(recipe, Masked):
        raise ValueError(f"{model} is a masked model, which writes no texts; name one that was trained on the corpus")
    return trained_on(recipe)[0]


def _neighbors_path(texts: Sequence[str], masked_lm: str, n_neighbors: int, seed: int, language: str) -> Path:
    return _path(
        "neighbors",
        masked_lm=model_revision(masked_lm),
        texts=hash_texts(texts),
        n_neighbors=n_neighbors,
        seed=seed,
        language=language,
        device=pick_device().type,
        code=code_hash("neighbors", "models", "benchmarks"),
        versions=[version("torch"), version("transformers"), version("jieba")],
    )


def _column_once(path: Path, name: str, make: Callable[[], list[Any]]) -> list[Any]:
    """A column of one row a text, made and written where the file is not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    once(path, lambda to: pq.write_table(pa.table({name: make()}), to, compression="zstd"))
    return pq.read_table(path).column(name).to_pylist()


def arrays_once(
    kind: str, make: Callable[[], dict[str, NDArray[Any]]], **determined_by: Any
) -> dict[str, NDArray[Any]]:
    """Named arrays that all of `determined_by` determines, made and written where they are not there."""

    def write(to: Path) -> None:
        with to.open("wb") as file:
            np.savez(file, **make())

    with np.load(once(_path(kind, **determined_by).with_suffix(".npz"), write)) as kept:
        return dict(kept)


def score_cut_texts(
    model: str, stats: TokenStats, cut_texts: Sequence[str], **scorer_options: Any
) -> tuple[TokenStats, int]:
    """Statistics of texts that are cut shorter, from the statistics of the whole texts, and how many needed no
    forward pass.

    Where a cut text's tokens are a prefix of the whole text's, its statistics are a prefix too; the others (the cut
    falls inside a token) are scored. Where token ids are not known, all are.
    """
    if "token_ids" in stats.lacks:
        return score_or_load(model, cut_texts, **scorer_options), 0
    tokenizer = load_tokenizer(model)
    cut_ids = tokenizer(list(cut_texts), add_special_tokens=False, verbose=False)["input_ids"]
    is_prefix = [
        len(ids) <= len(row.token_ids) and ids == row.token_ids[: len(ids)].tolist()
        for ids, row in zip(cut_ids, stats, strict=True)
    ]
    n_tokens = [len(ids) if ok else 1 for ids, ok in zip(cut_ids, is_prefix, strict=True)]
    cut_stats = stats.prefix(n_tokens)
    other = [i for i, ok in enumerate(is_prefix) if not ok]
    if other:
        rescored = score_or_load(model, [cut_texts[i] for i in other], **scorer_options)
        cut_stats = cut_stats.replace_rows(other, rescored)
    return cut_stats, sum(is_prefix)


def _path(kind: str, **determined_by: Any) -> Path:
    return home() / "cache" / kind / f"{hash_of(determined_by)}.parquet"
