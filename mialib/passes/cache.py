"""Score or load: token statistics, token frequencies and neighbors are computed once and cached.

A key holds the content of model, tokenizer and texts, device and dtype, start token, and the versions of libraries and
of our code (`mialib.versions`); a change of any of them is a miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.batches import are_apart, encode
from mialib.cache import ARRAYS, JSON, Checkpoints, Format, cached
from mialib.catalog.corpora import corpus_identity, reference_texts
from mialib.catalog.models import Weights, find_weights, hash_of_tokenizer, load_tokenizer
from mialib.catalog.sources import PassOptions, find
from mialib.frequency import TokenFrequency, count_tokens
from mialib.models import rope_borders
from mialib.store import hash_texts, version
from mialib.token_stats import StatsPart, TokenStats
from mialib.versions import versions_of

COUNTS = Format(".parquet", TokenFrequency.save, TokenFrequency.load)


def score_or_load(model: str, texts: Sequence[str], **options: Any) -> TokenStats:
    """Token statistics of `texts` under `model`, from the cache if they are there.

    Options as for `Scorer` (device, dtype, start_token) and its `score` (after, temperature). With `part`, (3, 16) say,
    the third of sixteen parts is scored and all are joined once they are there; PartsMissing before. ValueError for
    `after`, another temperature, a dtype or a part where its weights are not here.
    """
    how, source = PassOptions(**options), find(model)
    if (how.dtype != "auto" or how.part) and not source.has_weights:
        raise ValueError(f"{model}: its weights are not here; leave --dtype and --part out")
    return source.score(texts, how)


def count_or_load(corpus: str, model: str) -> TokenFrequency:
    """Frequencies of `model`'s tokens in a reference corpus, named as in `mialib.catalog.corpora`."""
    source = find(model)
    if counts := source.counts_in(corpus):
        return counts
    hashed, size = hash_of_tokenizer(model), source.vocabulary_size

    def make(checkpoints: Checkpoints) -> TokenFrequency:
        names, save = {"name": corpus, "tokenizer_hash": hashed}, partial(checkpoints.add, instead=True)
        texts, tokenizer = reference_texts(corpus), load_tokenizer(model)
        return count_tokens(texts, tokenizer, size, saved=checkpoints, save=save, **names)

    key: dict[str, Any] = {"tokenizer": hashed, "size": size, "corpus": corpus_identity(corpus)}
    key |= {"tokenizers": version("tokenizers")} | versions_of("counting")
    return cached("token_frequency", make, COUNTS, ARRAYS, **key)


def neighbors_or_load(
    texts: Sequence[str], masked_lm: str, *, n_neighbors: int, language: str = "en"
) -> list[list[str]]:
    """The neighbors of each text; arguments as for `mialib.attacks.neighbors.make_neighbors`, its seed 0."""
    from mialib.attacks.neighbors import make_neighbors

    options: dict[str, Any] = {"n_neighbors": n_neighbors, "seed": 0, "language": language}
    key = find_weights(masked_lm).pass_key(dtype="float32") | options | versions_of("neighbors")
    key |= {"texts": hash_texts(texts), "jieba": version("jieba")}

    def make(checkpoints: Checkpoints) -> list[list[str]]:
        return make_neighbors(texts, masked_lm, **options, saved=checkpoints, save=checkpoints.add)

    return cached("neighbors", make, JSON, JSON, **key)


def neighbor_log_probs_or_load(
    model: str, texts: Sequence[str], masked_lm: str, *, n_neighbors: int, language: str = "en", **loading: Any
) -> NDArray[np.float64]:
    """Mean log p of each neighbor of each text under `model`, (N, n_neighbors), nats per token.

    Only these means are cached, not the neighbors' token statistics, except those that an API was paid for. `loading`
    is of `model`, as for `score_or_load`; the masked one is run in float32.
    """
    from mialib.attacks.neighbors import neighbor_log_probs
    from mialib.catalog.loading import load_scorer

    options: dict[str, Any] = {"n_neighbors": n_neighbors, "language": language}
    if not find(model).has_weights:
        neighbors = neighbors_or_load(texts, masked_lm, **options)
        rows = score_or_load(model, [neighbor for several in neighbors for neighbor in several], **loading)
        return np.array([row.log_prob.mean(dtype=np.float64) for row in rows]).reshape(len(texts), n_neighbors)

    key = find_weights(model).pass_key(**loading) | options | {"seed": 0} | versions_of("neighbors", "scoring")
    key |= {"masked_lm": find(masked_lm).revision, "texts": hash_texts(texts), "jieba": version("jieba")}

    def make(checkpoints: Checkpoints) -> dict[str, NDArray[np.float64]]:
        neighbors, stats = neighbors_or_load(texts, masked_lm, **options), score_or_load(model, texts, **loading)
        scorer = load_scorer(model, **loading)
        resume: dict[str, Any] = {"saved": checkpoints, "save": checkpoints.add}
        return {"log_prob": neighbor_log_probs(scorer, stats, neighbors, **resume)}

    return cached("neighbor_log_probs", make, ARRAYS, ARRAYS, **key)["log_prob"]


def blind_or_load(
    texts: Sequence[str], labels: ArrayLike, kind: str, *, language: str = "en", groups: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The scores of a blind baseline, (N,); arguments as for `mialib.blind.blind_scores`."""
    from mialib.blind import blind_scores

    def make() -> dict[str, NDArray[np.float64]]:
        return {"scores": blind_scores(texts, labels, kind, language=language, groups=groups)}

    key: dict[str, Any] = {"texts": hash_texts(texts), "labels": np.asarray(labels).tolist(), "language": language}
    key |= {"baseline": kind, "groups": None if groups is None else np.asarray(groups).tolist()}
    key |= {"scikit_learn": version("scikit-learn")} | versions_of("blind")
    return cached("blind", make, ARRAYS, **key)["scores"]


def score_cut_texts(
    model: str, stats: TokenStats, cut_texts: Sequence[str], **scorer_options: Any
) -> tuple[TokenStats, int]:
    """Statistics of texts that are cut shorter, from those of the whole texts, and how many needed no forward pass.

    Where a cut text's tokens are a prefix of the whole text's, its statistics are a prefix too. The others are scored:
    the cut falls inside a token, the model reads a shorter text otherwise (`rope_borders`), or token ids are not known.
    """
    source = find(model)
    if "token_ids" in stats.lacks or source.scores_cuts:
        return score_or_load(model, cut_texts, **scorer_options), len(cut_texts) * source.scores_cuts
    tokenizer = load_tokenizer(model)
    first = int(stats.provenance.get("start_token_id", 0) is None)  # a text's first token is then read and not scored
    cut_ids = [ids[first:] for ids in encode(tokenizer, cut_texts)]
    borders = rope_borders(source.config) if isinstance(source, Weights) else ()
    is_prefix = [
        len(ids) > 0
        and ids == row.token_ids[: len(ids)].tolist()
        and not are_apart(len(ids), len(row.token_ids), borders)
        for ids, row in zip(cut_ids, stats, strict=True)
    ]
    n_tokens = [len(ids) if ok else 1 for ids, ok in zip(cut_ids, is_prefix, strict=True)]
    cut_stats = stats.prefix(n_tokens)
    if all(is_prefix):
        return cut_stats, len(is_prefix)
    misfits = [i for i, ok in enumerate(is_prefix) if not ok]
    rescored = score_or_load(model, [cut_texts[i] for i in misfits], **scorer_options)
    parts = [StatsPart(np.array(misfits), rescored), StatsPart(np.arange(len(cut_stats)), cut_stats)]
    return TokenStats.joined(parts, provenance=cut_stats.provenance), sum(is_prefix)
