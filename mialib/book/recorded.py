"""The recorded lab: models too large to be trained while the book is built, trained and scored once, on a GPU.

record           train each model of a profile from each of its seeds, score its benchmarks, keep one file a training
load_recordings  what is kept, a `Recording` for each training and benchmark
from_lab         the same of a model of the live lab
measure          AUCs over the training seeds of a model

A file holds the token statistics of members and non-members, and who is one; no text, and no token ids, from which a
text could be read. So DC-PDD and Zlib can't be computed from it. The numbers are float16, which moves an AUC by less
than 0.002: most that of SURP, which compares log-probs with a percentile of them and entropies with a bound.
"""

from __future__ import annotations

import json
import logging
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.benchmarks import Benchmark
from mialib.book.profile import load_profile
from mialib.book.results import Result
from mialib.detectors import DETECTORS, FloatArray, detect
from mialib.lab.corpora import corpora_of, lab_benchmark, lab_card
from mialib.lab.models import corpora_of_recipe, lab_model_card, lab_recipe, trained_on
from mialib.lab.recipes import Training
from mialib.metrics import Interval, auc_interval, compare_auc_over_seeds
from mialib.passes.cache import score_or_load
from mialib.store import PACKAGE, ROOT, atomic_path, hash_files, hash_of, mialib_version
from mialib.token_stats import TokenStats

logger = logging.getLogger(__name__)

RECORDED = ROOT / "data" / "recorded" / "lab"
KEPT = ("log_prob", "entropy", "log_prob_var")  # of a token
NO_IDS = "token ids are not recorded, since texts could be read from them"
# Of a model's time: training is estimated, loading, scoring and writing are not.
SPARE_SHARE, SPARE_SECONDS = 1.2, 15.0
DETECTED = [name for name, known in DETECTORS.items() if not known.needs and set(known.reads) <= set(KEPT)]


@dataclass(frozen=True)
class Recording:
    """One training's statistics of one benchmark."""

    benchmark: str
    labels: NDArray[np.int8]  # (N,), 1 = member
    times: NDArray[np.int64]  # (N,), how often each text was seen in training
    stats: TokenStats
    provenance: dict[str, Any]

    @property
    def model(self) -> str:
        """Its name in the profile that it was recorded from."""
        return self.provenance["model"]

    @property
    def seed(self) -> int:
        """Of its training."""
        return self.provenance["seed"]

    @property
    def parameters(self) -> int:
        """How many the model has, without embeddings and output head."""
        return self.provenance["non_embedding_parameters"]

    @property
    def has_repeats(self) -> bool:
        """Whether the model has seen some members of its corpus more often than others."""
        return bool(self.provenance["recipe"]["member_repeats"])


# --- recording --------------------------------------------------------------------------------------------------------


def record(out: Path, minutes: float) -> list[str]:
    """Train, score and write what is neither in `out` nor in the repository, in the profile's order, until time is up.

    A training starts only if it will end in time, as far as its own first steps tell; the same model's earlier training
    tells it for further seeds. Returns what is left, as NAME@SEED.
    """
    end, taken, left = time.monotonic() + 60 * minutes, {}, find_left((out, RECORDED))
    while left:
        name, seed = left[0]
        started = time.monotonic()
        needed = taken.get(name) or _expected_seconds(name, seed)
        if time.monotonic() + needed > end:
            logger.info(
                "%s@%d takes about %.0f s, and %.0f s are left", name, seed, needed, max(0, end - time.monotonic())
            )
            break
        _record_one(name, seed, out / _file_name(name, seed))
        taken[name] = time.monotonic() - started
        logger.info("%s@%d: recorded in %.0f s", name, seed, taken[name])
        left = left[1:]
    return [f"{name}@{seed}" for name, seed in left]


def find_left(folders: Iterable[Path]) -> list[tuple[str, int]]:
    """Each model of the profile that is trained and each of its seeds, but those that a folder holds a file of.

    A file of another recipe or other texts does not count.
    """
    trained = {name: model for name, model in load_profile().models.items() if model.train}
    return [
        (name, seed)
        for name, model in trained.items()
        for seed in model.seeds
        if _key(name, seed) not in [_read_provenance(folder / _file_name(name, seed)).get("key") for folder in folders]
    ]


def _file_name(name: str, seed: int) -> str:
    return f"{name.removeprefix('lab/')}-seed-{seed}.parquet"


def _recipe(name: str, seed: int) -> Training:
    return lab_recipe(f"{name}@{seed}")


def _corpora(name: str, recipe: Training) -> dict[str, str]:
    """The content hash of each corpus that a model is trained or scored on."""
    scored = [corpus for benchmark in load_profile().models[name].benchmarks for corpus in corpora_of(benchmark)]
    return {corpus: lab_card(corpus)["content_hash"] for corpus in [*corpora_of_recipe(recipe), *scored]}


def _key(name: str, seed: int) -> str:
    """What a recorded file must be of: recipe, texts, tokenizer and benchmarks; not the code, nor the device."""
    recipe = _recipe(name, seed)
    tokenizer = lab_card(recipe.corpus)["tokenizer_hash"]
    return hash_of([recipe.model_dump(), _corpora(name, recipe), tokenizer, load_profile().models[name].benchmarks])


def _expected_seconds(name: str, seed: int) -> float:
    from mialib.lab.training import seconds_to_train
    from mialib.models import pick_device

    return SPARE_SHARE * seconds_to_train(name, _recipe(name, seed), str(pick_device())) + SPARE_SECONDS


def _record_one(name: str, seed: int, path: Path) -> None:
    """Train a model, score its benchmarks, write the file; nothing is kept of the model."""
    from mialib.lab.training import train
    from mialib.models import pick_device
    from mialib.scoring import Scorer

    recipe, device = _recipe(name, seed), str(pick_device())
    with tempfile.TemporaryDirectory() as folder:
        card = train(f"{name}@{seed}", recipe, Path(folder), device)
        scorer = Scorer(folder, device=device, dtype="float32")  # whose products are not rounded
        benchmarks = [lab_benchmark(benchmark) for benchmark in load_profile().models[name].benchmarks]
        scored = {b.name: (b.labels, _times_seen(b, recipe), scorer.score(b.texts)) for b in benchmarks}
    trained = {key: value for key, value in card.items() if key not in ("name", "recipe", "torch", "transformers")}
    provenance = {
        "model": name,
        "seed": seed,
        "key": _key(name, seed),
        "recipe": recipe.model_dump(),
        "corpora": _corpora(name, recipe),
        "tokenizer": lab_card(recipe.corpus)["tokenizer_hash"],
        **trained,  # parameters, loss, tokens, seconds
        **_machine(device),
    }
    save(path, scored, provenance)


def _times_seen(benchmark: Benchmark, recipe: Training) -> NDArray[np.int64]:
    """How often a training sees each text of a benchmark, (N,)."""
    times = dict(zip(*trained_on(recipe), strict=True))
    return np.array([times.get(text, 0) for text in benchmark.texts])


def _machine(device: str) -> dict[str, str | None]:
    import torch

    is_cuda = torch.device(device).type == "cuda"
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "device": torch.cuda.get_device_name() if is_cuda else f"{device}, {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
        "mialib": mialib_version(),
        "code": hash_files(PACKAGE.glob("*.py")),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit that is checked out, "-dirty" where files differ from it; None where that is not known."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


# --- files ------------------------------------------------------------------------------------------------------------


def save(
    path: Path, scored: dict[str, tuple[NDArray[np.int8], NDArray[np.int64], TokenStats]], provenance: dict[str, Any]
) -> None:
    """Write labels, times seen and statistics by benchmark: a row a text, float16, provenance in the metadata.

    ValueError for a number that is not finite in float16.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for benchmark, (labels, times, stats) in scored.items():
        columns = {"benchmark": [benchmark] * len(labels), "label": labels, "times": times.astype(np.int32)}
        for name in KEPT:
            with np.errstate(over="ignore"):
                values = getattr(stats, name).astype(np.float16)
            if not np.isfinite(values).all():
                raise ValueError(f"{path}, {benchmark}: a {name} is not finite in float16")
            columns[name] = pa.LargeListArray.from_arrays(pa.array(stats.offsets, pa.int64()), pa.array(values))
        tables.append(pa.table(columns))
    table = pa.concat_tables(tables).replace_schema_metadata({"provenance": json.dumps(provenance)})
    # A number's two bytes are kept apart: the upper ones are alike, so a file is a tenth smaller.
    encoding = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in KEPT}
    with atomic_path(path) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=19,
            use_dictionary=["benchmark"],
            column_encoding=encoding,
        )


def load_recordings(folder: Path = RECORDED) -> list[Recording]:
    """All that is recorded, the smallest model first, its seeds in order; empty where nothing is.

    ValueError for a .parquet file that `save` has not written.
    """
    found = [recording for path in sorted(folder.glob("*.parquet")) for recording in _load(path)]
    return sorted(found, key=lambda r: (r.parameters, r.model, r.benchmark, r.seed))


def _load(path: Path) -> list[Recording]:
    import pyarrow.parquet as pq

    provenance = _read_provenance(path)
    if not provenance:
        raise ValueError(f"{path} is no recording of `mialib record-lab`; move it elsewhere")
    table = pq.read_table(path)
    recordings = []
    for benchmark in dict.fromkeys(table["benchmark"].to_pylist()):
        own = table.filter(np.array(table["benchmark"].to_pylist()) == benchmark)
        lists = {name: own[name].combine_chunks() for name in KEPT}
        columns = {name: lists[name].flatten().to_numpy().astype(np.float32) for name in KEPT}
        offsets = np.concatenate([[0], np.cumsum(lists["log_prob"].value_lengths().to_numpy())]).astype(np.int64)
        stats = TokenStats(
            token_ids=np.full(offsets[-1], -1, np.int32),
            **columns,
            offsets=offsets,
            n_cut=np.zeros(len(own), np.int32),
            provenance={"model": provenance["model"], "lacks": {"token_ids": NO_IDS}},
        )
        labels, times = own["label"].to_numpy().astype(np.int8), own["times"].to_numpy().astype(np.int64)
        recordings.append(Recording(benchmark, labels, times, stats, provenance))
    return recordings


def _read_provenance(path: Path) -> dict[str, Any]:
    """What a file says of itself; empty where it is not there, or is no recording."""
    import pyarrow.parquet as pq

    if not path.is_file():
        return {}
    return json.loads((pq.read_schema(path).metadata or {}).get(b"provenance", b"{}"))


def from_lab(model: str, benchmark: str) -> Recording:
    """A model of the live lab, trained and scored first where it is not, as if it were recorded."""
    loaded, card = lab_benchmark(benchmark), lab_model_card(model)
    recipe = lab_recipe(model)
    stats = score_or_load(model, loaded.texts)
    corpora = dict.fromkeys([*corpora_of_recipe(recipe), *corpora_of(benchmark)])
    provenance = stats.provenance | {
        "model": model,  # two names of one recipe share their weights, and so a kept result
        "seed": recipe.seed,
        "recipe": card["recipe"],
        "corpora": {corpus: lab_card(corpus)["content_hash"] for corpus in corpora},
        "non_embedding_parameters": card["non_embedding_parameters"],
    }
    return Recording(benchmark, loaded.labels, _times_seen(loaded, recipe), stats, provenance)


# --- measuring --------------------------------------------------------------------------------------------------------


def auc_over_seeds(labels: ArrayLike, scores: Sequence[FloatArray]) -> Interval:
    """Mean AUC over training seeds, scores (N,) each, with an interval that covers texts and seeds, in [0, 1].

    One seed's is `auc_interval`'s; of several it is the claims': the comparison with chance, under which all texts tie.
    """
    if len(scores) == 1:
        return auc_interval(labels, scores[0])
    above_chance = compare_auc_over_seeds(labels, scores, [np.zeros(len(of_seed)) for of_seed in scores]).difference
    estimate, low, high = (0.5 + x for x in (above_chance.estimate, above_chance.low, above_chance.high))
    return Interval(estimate, max(0.0, low), min(1.0, high))


def by_model(recordings: Iterable[Recording]) -> dict[tuple[str, str], list[Recording]]:
    """The recordings of each model and benchmark, a training seed each; ValueError where their texts differ."""
    groups: dict[tuple[str, str], list[Recording]] = {}
    for recording in recordings:
        groups.setdefault((recording.model, recording.benchmark), []).append(recording)
    for (model, benchmark), group in groups.items():
        if len({hash_of([r.provenance["corpora"], r.provenance["recipe"] | {"seed": 0}]) for r in group}) > 1:
            raise ValueError(f"{model} on {benchmark}: its seeds were recorded from different recipes or texts")
    return groups


def measure(recordings: Sequence[Recording], column: str) -> list[Result]:
    """AUC of each detector over the training seeds of one model on one benchmark: metric `auc`, in `column`.

    Beside it, of several seeds, `auc_by_seed` in `column, seed 1`; and where some members were seen more often than
    others `auc_by_times` in `column: 4×`, the members seen so often against all non-members, over the seeds.
    """
    first = recordings[0]
    is_non_member, everything = first.labels == 0, np.full(len(first.labels), True)
    cells = [(column, "auc", everything, recordings)]
    if len(recordings) > 1:
        cells += [(f"{column}, seed {r.seed}", "auc_by_seed", everything, [r]) for r in recordings]
    for n in np.unique(first.times[~is_non_member]).tolist() if first.has_repeats else []:
        cells.append((f"{column}: {n}×", "auc_by_times", is_non_member | (first.times == n), recordings))
    results = []
    for name in DETECTED:
        scores = {recording.seed: detect(name, recording.stats) for recording in recordings}
        for heading, metric, some, of in cells:
            interval = auc_over_seeds(first.labels[some], [scores[recording.seed][some] for recording in of])
            results.append(Result.of(row=DETECTORS[name].label, column=heading, metric=metric, interval=interval))
    return results


def describe(recordings: Sequence[Recording]) -> str:
    """What is recorded, in Markdown; that nothing is, where nothing is."""
    if not recordings:
        return "**Nothing is recorded yet**, since no GPU has been at hand: this page shows the live ladder alone."
    trainings = {(r.model, r.seed) for r in recordings}
    devices = sorted({r.provenance["device"] for r in recordings})
    return (
        f"{len(trainings)} trainings of {len({m for m, _ in trainings})} models are recorded, on {', '.join(devices)}."
    )
