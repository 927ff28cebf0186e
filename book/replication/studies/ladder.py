"""The recorded ladder (`mialib record-lab`): models too large for the stored lab.

They are trained and scored once; `replication.recorded` writes and reads their files.
"""

import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.attacks.probe import N_TRAINING, probe_scores
from mialib.calibration import share_above_zero
from mialib.catalog.benchmarks import load_benchmark
from mialib.metrics import FloatArray, auc_interval
from mialib.passes.cache import count_or_load
from mialib.passes.inputs import Inputs, Target, inputs_of, score_all
from mialib.store import ROOT, hash_of
from mialib.versions import versions_of
from replication import BOOK_DATA, blind_tables, pages, real_model
from replication.builders.unseen import load_unseen
from replication.lab.recipes import Seen, TrainingOn
from replication.lab.source import MODEL_CARD, LabCorpus, lab_recipe, of_seed, times_in, train_again
from replication.profile import check_names, load_profile
from replication.recorded import (
    RECORDED,
    UNTOUCHED,
    add_probe,
    hide_tokens,
    made_with,
    read_provenance,
    recorded_models,
    recorded_provenance,
    save_benchmark,
    save_training,
    write_recorded,
)
from replication.results import DASH, Result, label_of, load_results

PROFILE = BOOK_DATA / "profiles" / "recorded.yml"
LATER = ("min_k++", "aeca", "codec")  # CoDeC reads another text before each: some three times as many tokens
ON_WIKIMIA, N_WIKIMIA = "wikimia-32", 150  # texts of a side
SAMPLED_MODEL, N_LADDER = "lab/docstrings-smollm2", 100
SAMPLED = "samples.parquet"
SAMPLES = f"{ON_WIKIMIA}, {2 * N_WIKIMIA} texts", f"docstrings-smollm2, {2 * N_LADDER} texts"


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
    texts, or one of a real model without its probe; all models' first seeds come first."""
    models = {name: model for name, model in load_profile().models.items() if isinstance(model.recipe, Seen)}
    trainings = sorted(((name, seed) for name, m in models.items() for seed in m.seeds), key=lambda of: of[1])

    def is_recorded(name: str, seed: int) -> bool:
        earlier_run = read_provenance(folder / _file_name(name, seed))
        needs_probe = isinstance(models[name].recipe, TrainingOn)
        return earlier_run.get("key") == _key(name, seed) and ("probe" in earlier_run or not needs_probe)

    return [of for of in trainings if not is_recorded(*of)]


def _file_name(name: str, seed: int) -> str:
    return f"{name.removeprefix('lab/')}-seed-{seed}.parquet"


def _key(name: str, seed: int) -> str:
    """What a recorded file must be of: recipe, texts in their roles and tokenizer; not the code, nor the device."""
    recipe = _recipe_of(of_seed(name, seed))
    return hash_of([recipe.model_dump(), _dealt(recipe.corpus)])


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
    untouched = folder / f"{name.removeprefix('lab/')}{UNTOUCHED}.parquet"
    if isinstance(recipe, TrainingOn) and read_provenance(untouched).get("dealt") != _dealt(recipe.corpus):
        sizes = {size: card[size] for size in ("parameters", "non_embedding_parameters")}
        _save(f"{name}{UNTOUCHED}", recipe.from_model, recipe, np.zeros_like(times), sizes, untouched, device)
    path = folder / _file_name(name, seed)
    if read_provenance(path).get("key") != _key(name, seed):
        _save(name, model, recipe, times, card | {"seed": seed, "key": _key(name, seed)}, path, device)
    if isinstance(recipe, TrainingOn):
        _probe(recipe.from_model, recipe.corpus, untouched, device)
        _probe(model, recipe.corpus, path, device)
    return path


def _probe(model: str, corpus: str, path: Path, device: str) -> None:
    """Add what the probe says of each text to a model's file, where it is not yet there: half an hour of one core."""
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


def record_samples() -> None:
    """Record the scores of `LATER` by the real model on texts of WikiMIA and, without AECA, by the ladder's real model
    on its own texts, whose domain is how often each was seen.

    It takes that model's weights, and trains it where they are not here. In a clone:

        MIALIB_PROFILE=data/profiles/recorded.yml python -c \
            "from replication.studies.ladder import *; record_samples()"
    """
    wikimia = _some(Target(model=real_model.MODEL, benchmark=ON_WIKIMIA, corpus=real_model.CORPUS), N_WIKIMIA)
    ladder = _some(Target(model=SAMPLED_MODEL, benchmark=_recipe_of(SAMPLED_MODEL).corpus), N_LADDER)
    times = times_in(_recipe_of(SAMPLED_MODEL), ladder.texts)
    ladder = replace(ladder, benchmark=replace(ladder.labelled, domains=tuple(map(str, times))))
    rows = real_model.rows_of(wikimia, SAMPLES[0], LATER)
    rows += real_model.rows_of(ladder, SAMPLES[1], [name for name in LATER if name != "aeca"])
    write_recorded(real_model.FOLDER / SAMPLED, rows)


def _some(target: Target, n: int) -> Inputs:
    """So many texts of each side of a benchmark, evenly over its order."""
    whole = load_benchmark(target.benchmark)
    sides = [np.flatnonzero(whole.labels == label) for label in (1, 0)]
    some = np.concatenate([of[np.linspace(0, len(of) - 1, n).astype(int)] for of in sides])
    return inputs_of(target, whole.take(some, target.benchmark))


def later_rows(columns: Sequence[Inputs]) -> dict[str, dict[str, str]]:
    """AUCs by `LATER` of these columns, of the ladder's docstrings, and of the recorded samples, a row each."""
    models = [model for model in recorded_models() if "docstrings" in model]
    on = [f"{RECORDED}{recorded_provenance(model)['benchmark']}" for model in models]
    rows: dict[str, dict[str, str]] = {}
    blind: list[Result] = []
    for inputs in [*columns, *pages.load_columns(models, on, corpora=on)]:
        model, blind = inputs.target.model, blind_tables.measure_blind(inputs.labelled, "", ["auc"])
        name = model.removeprefix(RECORDED) if model in models else inputs.target.column
        rows[name] = _later_row(inputs.labels, score_all(inputs, LATER), blind)
    of_wikimia = [of for of in load_results(blind_tables.RECORDED) if of.column == ON_WIKIMIA]
    for name, of in zip(SAMPLES, (of_wikimia, blind), strict=True):
        labels, _, scores = real_model.load_scores(name, SAMPLED)
        rows[name] = _later_row(labels, scores, of)
    return rows


def _later_row(
    labels: NDArray[np.int8], scores: Mapping[str, FloatArray | None], blind: Iterable[Result]
) -> dict[str, str]:
    """AUCs, CoDeC's share of the texts above 0 on each side, and the best baseline; a dash for what does not apply."""
    aucs = {name: None if (of := scores.get(name)) is None else auc_interval(labels, of) for name in LATER}
    cells: dict[str, Any] = {"texts": len(labels)} | {label_of(name): auc for name, auc in aucs.items()}
    codec = scores.get("codec")
    for side, label in (("members", 1), ("non-members", 0)):
        cells[f"CoDeC above 0, {side}"] = None if codec is None else share_above_zero(codec[labels == label])
    best = blind_tables.highest(of for of in blind if of.metric == "auc")
    return {name: str(cell or DASH) for name, cell in (cells | {"blind": best and best.interval}).items()}
