"""The recorded ladder (`mialib record-lab`): models too large for the stored lab.

They are trained and scored once; `replication.recorded` writes and reads their files.
"""

import json
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.attacks.probe import N_TRAINING, probe_scores
from mialib.catalog.benchmarks import load_benchmark
from mialib.passes.cache import count_or_load
from mialib.store import ROOT, hash_of
from mialib.versions import versions_of
from replication import BOOK_DATA, blind_tables
from replication.builders.unseen import load_unseen
from replication.lab.recipes import Diluted, Seen, TrainingOn
from replication.lab.source import MODEL_CARD, LabCorpus, lab_recipe, of_seed, times_in, train_again
from replication.profile import check_names, load_profile
from replication.recorded import (
    RECORDED,
    UNTOUCHED,
    add_probe,
    hide_tokens,
    made_with,
    read_provenance,
    save_benchmark,
    save_training,
)

PROFILE = BOOK_DATA / "profiles" / "recorded.yml"


def record_ladder(names: Sequence[str], folder: Path) -> Iterator[Path]:
    """Train, score and keep what `find_left` finds of the profile's models, or of those named; yields each file.

    A training that was broken off goes on where it was. ValueError for an unknown name.
    """
    check_names(names, load_profile().models, "the profile has no model")
    for name, seed in find_left(folder):
        if not names or name in names:
            yield _record_one(name, seed, folder)


def find_left(folder: Path) -> list[tuple[str, int]]:
    """Models and seeds that the profile has trained and the folder holds no file of, or one of another recipe or other
    texts, or one that lacks its probe; all models' first seeds come first."""
    models = {name: model for name, model in load_profile().models.items() if isinstance(model.recipe, Seen)}
    trainings = sorted(((name, seed) for name, m in models.items() for seed in m.seeds), key=lambda of: of[1])

    def is_recorded(name: str, seed: int) -> bool:
        earlier_run = read_provenance(folder / _file_name(name, seed))
        is_complete = "probe" in earlier_run or not _is_probed(_recipe_of(name))
        return earlier_run.get("key") == _key(name, seed) and is_complete

    return [of for of in trainings if not is_recorded(*of)]


def _file_name(name: str, seed: int) -> str:
    return f"{name.removeprefix('lab/')}-seed-{seed}.parquet"


def _key(name: str, seed: int) -> str:
    """What a recorded file must be of: recipe, texts in their roles and tokenizer; not the code, nor the device."""
    recipe = _recipe_of(of_seed(name, seed))
    return hash_of([recipe.model_dump(), _dealt(recipe.corpus)])


def _is_probed(recipe: Seen) -> bool:
    """Whether a model gets a probe, half an hour of one core each: a real one, but none of the dilutions."""
    return isinstance(recipe, TrainingOn) and not isinstance(recipe, Diluted)


def _untouched_of(corpus: str) -> str:
    """The name of a real model before it was trained on with a corpus's texts: after the first that is so trained."""
    on_corpus = (name for name, model in load_profile().models.items() if model.train_on and corpus in model.benchmarks)
    return f"{next(on_corpus)}{UNTOUCHED}"


def _recipe_of(model: str) -> Seen:
    """A recorded model's recipe, which says how often it sees each text."""
    recipe = lab_recipe(model)
    assert isinstance(recipe, Seen)
    return recipe


def _dealt(corpus: str) -> str:
    """A hash of a corpus's texts, of who is what, and of the tokenizer."""
    card = LabCorpus(corpus).card
    return hash_of([card["content_hash"], card["roles"], card["tokenizer_hash"]])


def _record_one(name: str, seed: int, folder: Path) -> Path:
    """Train a model, score its members and non-members, write the files."""
    from mialib.models import pick_device

    recipe, device = _recipe_of(of_seed(name, seed)), str(pick_device())
    model = str(train_again(of_seed(name, seed), device))
    times = times_in(recipe, load_benchmark(recipe.corpus).texts)
    card = json.loads((Path(model) / MODEL_CARD).read_text(encoding="utf-8"))
    path = folder / _file_name(name, seed)
    if isinstance(recipe, TrainingOn):
        before = _untouched_of(recipe.corpus)
        untouched = folder / f"{before.removeprefix('lab/')}.parquet"
        if read_provenance(untouched).get("dealt") != _dealt(recipe.corpus):
            sizes = {size: card[size] for size in ("parameters", "non_embedding_parameters")}
            _save(before, recipe.from_model, recipe, np.zeros_like(times), sizes, untouched, device)
        if _is_probed(recipe):
            _probe(recipe.from_model, recipe.corpus, untouched, device)
    if read_provenance(path).get("key") != _key(name, seed):
        _save(name, model, recipe, times, card | {"seed": seed, "key": _key(name, seed)}, path, device)
    if _is_probed(recipe):
        _probe(model, recipe.corpus, path, device)
    return path


def _probe(model: str, corpus: str, path: Path, device: str) -> None:
    """Add what the probe says of each text to a model's file, where it is not yet there."""
    if "probe" not in read_provenance(path):
        benchmark = load_benchmark(corpus)
        training_texts = load_unseen(corpus, benchmark, N_TRAINING)
        add_probe(path, probe_scores(model, benchmark.texts, benchmark.labels, training_texts, device=device))


def _save(
    name: str, model: str, recipe: Seen, times: NDArray[np.int64], facts: dict[str, Any], path: Path, device: str
) -> None:
    """Score the members and non-members of a recipe's corpus with a model, and write what is recorded of it."""
    import torch

    from mialib.catalog.loading import Scorer

    benchmark, corpus = load_benchmark(recipe.corpus), recipe.corpus.removeprefix("lab/")
    if isinstance(recipe, TrainingOn):
        corpus += f"-{Path(recipe.from_model).name}"
    stats = Scorer(model, device=device, dtype="float32").score(benchmark.texts)  # products are not rounded
    counts = count_or_load(recipe.corpus, model)
    if isinstance(recipe, TrainingOn):  # whose tokenizer anyone has
        stats, [counts] = hide_tokens(stats, [counts])
    made_of = {
        "benchmark": corpus,
        "language": benchmark.language,
        "dealt": _dealt(recipe.corpus),
        "sources": LabCorpus(recipe.corpus).card["sources"],
    }
    if read_provenance(path.with_name(f"{corpus}.parquet")).get("dealt") != made_of["dealt"]:
        blind = [asdict(result) for result in blind_tables.measure_blind(benchmark, f"{RECORDED}{corpus}", ["auc"])]
        save_benchmark(path.parent, corpus, benchmark.labels, stats, counts, made_of | {"blind": blind})
    provenance = {
        **stats.provenance,
        **facts,
        **made_of,
        "model": f"{RECORDED}{name.removeprefix('lab/')}",
        "machine": torch.cuda.get_device_name() if device == "cuda" else f"one core, {platform.machine()}",
        **made_with(),
        "commit": _commit(),
        "versions": versions_of("training", "scoring"),  # a commit may be "-dirty"
    }
    save_training(path, times, stats, provenance)


def _commit() -> str | None:
    """The commit that is checked out, "-dirty" where files differ from it; None where that is not known."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
