"""What a narrower type of the weights costs and saves, against float32, on this machine.

    python tools/dtype_errors.py                                bfloat16, the lab's models and a made one of 70M
    python tools/dtype_errors.py --dtype float16 --geometry pythia-410m
    MIALIB_PROFILE=data/profiles/recorded.yml python tools/dtype_errors.py --training 96

Of each model: the largest error of a token's log-prob (nats), entropy (nats) and variance (nats^2), the mean error of
the log-prob, and tokens a second in both types, by the median of some rounds in turn. Of each lab model also what it
does to each detector's AUC: the difference with its paired 95% interval. The made one has random weights, so no AUC.
Rates mean something only where nothing else runs.

With `--training N` instead: what products in bfloat16 change in the real model that is trained on with N members, each
three times, against the same training in float32 (about ten minutes at 96): each detector's AUC against N non-members.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from mialib import Scorer, auc, compare_auc, detect
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.loading import load_model
from mialib.catalog.sources import Dtype
from mialib.detectors import DETECTORS
from mialib.models import pick_device
from mialib.passes.inputs import Target, load_inputs, score_all
from mialib.scoring import LoadedScorer
from mialib.token_stats import TokenStats
from replication.lab.source import lab_recipe
from replication.lab.training import train
from replication.studies.bench import GEOMETRIES, make_model, make_texts

MODELS = ("lab/en-100k", "lab/en-400k", "lab/en-900k")
REAL = "lab/docstrings-smollm2"  # of data/profiles/recorded.yml
NUMBERS = {"log_prob": "log-prob", "entropy": "entropy", "log_prob_var": "variance"}
NOT_RUN = ("neighbor",)  # which takes hours, and a masked model


def compare(plain: TokenStats, narrow: TokenStats) -> str:
    """The largest errors of a token's numbers."""
    errors = {name: np.abs(getattr(narrow, name) - getattr(plain, name)) for name in NUMBERS}
    largest = ", ".join(f"{NUMBERS[name]} {of.max():.2g}" for name, of in errors.items())
    return f"largest error: {largest}; mean error of the log-prob {errors['log_prob'].mean():.2g}"


def rates(ways: dict[str, LoadedScorer], texts: list[str], n_rounds: int) -> str:
    """Tokens a second, by the median of rounds in which each way has its turn."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(n_rounds):
        for name, scorer in ways.items():
            began = time.perf_counter()
            n_tokens = scorer.score(texts, progress=False).n_tokens.sum()
            seconds[name].append(time.perf_counter() - began)
    return "tokens a second: " + ", ".join(f"{n_tokens / np.median(of):,.0f} in {name}" for name, of in seconds.items())


def of_the_lab(model: str, dtype: Dtype, n_rounds: int) -> Iterator[str]:
    """What it does to a lab model, and to each detector."""
    target = Target(model=model, benchmark="lab/en", reference="lab/en-25k", corpus="lab/en", dtype="float32")
    plain, narrow = load_inputs(target), load_inputs(target.but(dtype=dtype))
    yield compare(plain.stats, narrow.stats)
    yield rates({of: Scorer(model, dtype=of) for of in ("float32", dtype)}, list(plain.texts), n_rounds)
    yield f"AUC in {dtype} minus AUC in float32 [95% interval]"
    names = [name for name in DETECTORS if name not in NOT_RUN]
    before, after = score_all(plain, names), score_all(narrow, names)
    for name, scores in before.items():
        if scores is not None and after[name] is not None:
            of = compare_auc(plain.labels, after[name], scores).difference
            yield f"  {name:16} {of.estimate:+.5f} [{of.low:+.5f}, {of.high:+.5f}]"


def of_a_shape(geometry: str, dtype: Dtype, n_texts: int, n_rounds: int) -> Iterator[str]:
    """What it does to a model with random weights."""
    texts, tokenizer = make_texts(n_texts)
    loaded = [make_model(geometry, tokenizer, pick_device(), torch.float32) for _ in range(2)]
    loaded[1].model.to(getattr(torch, dtype))
    ways = dict(zip(("float32", dtype), map(LoadedScorer, loaded), strict=True))
    plain, narrow = (scorer.score(texts) for scorer in ways.values())
    yield compare(plain, narrow)
    yield rates(ways, texts, n_rounds)


def of_training(model: str, n: int) -> Iterator[str]:
    """What it does to a model of the profile that is trained on: losses, and each detector's AUC both ways."""
    recipe, names = lab_recipe(model), ["ppl", "ref", "min_k", "min_k++", "surp"]
    benchmark = load_benchmark(recipe.corpus)
    chosen = np.concatenate([np.flatnonzero(benchmark.labels == label)[:n] for label in (1, 0)])
    texts, labels = [benchmark.texts[i] for i in chosen], benchmark.labels[chosen]
    before, scored = Scorer(recipe.from_model, dtype="float32").score(texts), {}
    for is_bfloat16 in (False, True):
        base = load_model(recipe.from_model, device="cpu", dtype="float32")
        with TemporaryDirectory() as folder:
            shorter = recipe.model_copy(update={"is_bfloat16": is_bfloat16})
            began = time.perf_counter()
            card = train(model, shorter, base, texts[:n], [3] * n, Path(folder))
            how = "bfloat16" if is_bfloat16 else "float32"
            yield f"{how}: {time.perf_counter() - began:.0f} s, last loss {card['final_loss_nats']:.4f} nats"
            stats = Scorer(folder, dtype="float32").score(texts)
        scored[how] = {name: detect(name, stats, **{"reference": before} if name == "ref" else {}) for name in names}
    for name in names:
        of = compare_auc(labels, scored["bfloat16"][name], scored["float32"][name]).difference
        change = f"{of.estimate:+.4f} [{of.low:+.4f}, {of.high:+.4f}] in bfloat16"
        yield f"  {name:8} {auc(labels, scored['float32'][name]):.3f} in float32, {change}"


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    options.add_argument("--models", nargs="*", default=MODELS)
    options.add_argument("--geometry", choices=GEOMETRIES, default="pythia-70m")
    options.add_argument("--texts", type=int, default=100, help="of the made model")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--training", type=int, default=0, metavar="N", help="of so many members instead")
    given = options.parse_args()
    if given.training:
        return print(*of_training(REAL, given.training), sep="\n", flush=True)
    for model in given.models:
        print(model, *of_the_lab(model, given.dtype, given.rounds), sep="\n")
    print(given.geometry, *of_a_shape(given.geometry, given.dtype, given.texts, given.rounds), sep="\n")


if __name__ == "__main__":
    main()
