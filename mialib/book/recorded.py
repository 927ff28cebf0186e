"""What is recorded in `data/recorded/` for builds that train only seed 0 of small models, and how.

    write_rows, read_rows   scores and ranks of training seeds (`mialib record`), a row each
    scores_code             the code that they were computed by, which a row holds and is matched by
    record                  the recorded lab (`mialib record-lab`): models too large to be trained while the book is
                            built, trained and scored once, on a GPU; a file for each training
    load_recordings         what is recorded of it, a `Recording` for each training and benchmark
    from_lab                the same of a model of the live lab

A file of the recorded lab holds the token statistics of members and non-members, and who is one; no text, and no token
ids, from which a text could be read. So DC-PDD and Zlib can't be computed from it. The numbers are float16, which moves
an AUC by less than 0.002: most that of SURP, which compares log-probs with a percentile of them and entropies with a
bound.
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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.book.profile import load_profile
from mialib.detectors import DETECTORS, FloatArray
from mialib.lab.corpora import corpora_of, lab_benchmark, lab_card
from mialib.lab.models import corpora_of_recipe, lab_model_card, lab_recipe, lab_tokenizer, times_seen, trained_on
from mialib.lab.recipes import Training
from mialib.metrics import Interval, auc_interval, compare_auc_over_seeds
from mialib.passes.cache import score_or_load
from mialib.store import DATA, ROOT, atomic_path, code_hash, hash_of, mialib_version, version
from mialib.token_stats import NUMBERS, TokenStats

RECORDED = DATA / "recorded" / "lab"
STATISTICS = NUMBERS  # of a token, that are recorded
NO_IDS = "token ids are not recorded, since texts could be read from them"
DETECTED = [
    name
    for name, known in DETECTORS.items()
    if not (known.needs or known.is_later) and set(known.reads) <= set(STATISTICS)
]
# What gathers texts, finds models and keeps files, since recorded scores are matched by their texts and recipes
# themselves; and the metrics, of which only an AUC takes part, to choose hyperparameters by.
GATHERING = ("lab", "catalog", "shared", "store", "benchmarks", "blind", "metrics")
CONFIRMED = "confirmed"  # in a file's provenance: the hash of later code that computes seed 0 as recorded
# Of a model's time: training is estimated, loading, scoring and writing are not.
SPARE_SHARE, SPARE_SECONDS = 1.2, 15.0

logger = logging.getLogger(__name__)


# --- recorded seeds: rows of one file ---


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as parquet, with provenance in the file's metadata; a column's type is that of its NumPy arrays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    provenance = json.dumps(_made_with() | {"machine": platform.machine()})
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"provenance": provenance})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def confirm_rows(path: Path, rows: list[dict[str, Any]], key: Sequence[str]) -> list[str]:
    """Let recorded rows hold for today's code where it computes seed 0 as it was recorded, to the last bit.

    `rows` are seed 0's, computed anew; the columns of `key` name a test, whose other seeds then count too. Returns the
    tests that are not as recorded, whose rows stay those of the older code.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / path.name, rows)  # to have the file's types
        again = {tuple(row[name] for name in key): row for row in read_rows(Path(folder) / path.name)}
    recorded = read_rows(path)
    tests = [tuple(row[name] for name in key) for row in recorded]
    confirmed = {
        (test, row["code"]): again[test]["code"]
        for test, row in zip(tests, recorded, strict=True)
        if row["seed"] == 0
        and test in again
        and json.dumps(row | {"code": again[test]["code"]}) == json.dumps(again[test])
    }
    codes = [confirmed.get((test, row["code"]), row["code"]) for test, row in zip(tests, recorded, strict=True)]
    table = pq.read_table(path)
    table = table.set_column(table.schema.get_field_index("code"), "code", pa.array(codes))
    provenance = read_provenance(path)
    if later := sorted({new for (_, old), new in confirmed.items() if new != old}):
        provenance[CONFIRMED] = f"{', '.join(later)} in {len(confirmed)} of {len(again)} tests"
    with atomic_path(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata({"provenance": json.dumps(provenance)}), temporary, compression="zstd"
        )
    return [" ".join(map(str, test)) for test in again if test not in {test for test, _ in confirmed}]


def read_rows(path: Path, **where: Any) -> list[dict[str, Any]]:
    """The rows whose columns have these values, all where none is named; none where there is no file."""
    import pyarrow.parquet as pq

    filters = [(name, "==", value) for name, value in where.items()] or None
    return pq.read_table(path, filters=filters).to_pylist() if path.is_file() else []


def read_provenance(path: Path) -> dict[str, Any]:
    """What a recorded file says of itself; empty where it is not there, or is no recording."""
    import pyarrow.parquet as pq

    return json.loads((pq.read_schema(path).metadata or {}).get(b"provenance", b"{}")) if path.is_file() else {}


def describe_rows(path: Path) -> str:
    """What the recorded seeds were computed with, in a sentence or two."""
    provenance = read_provenance(path)
    later = provenance.pop(CONFIRMED, "")
    made_with = ", ".join(f"{name} {value}" for name, value in provenance.items())
    if not made_with:
        return "No seeds are recorded."
    again = f" The code has changed since; seed 0 came out the same, to the last bit, with the code of hash {later}."
    return f"The recorded seeds were computed with {made_with}.{again * bool(later)}"


def scores_code(*modules: str) -> str:
    """A hash of the code that trains the lab's models and, in these modules, scores: recorded seeds are matched by it.

    No page, table or figure is part of it.
    """
    return code_hash(*modules, "scoring", "lab.training", apart=GATHERING)


def _made_with() -> dict[str, str]:
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "mialib": mialib_version(),
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }


# --- the recorded lab ---


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


def record(out: Path, minutes: float) -> list[str]:
    """Train, score and write what is neither in `out` nor in the repository, in the profile's order, until time is up.

    A training starts only if it will end in time, as far as its own first steps tell; the same model's earlier training
    tells it for further seeds. Returns what is left, as NAME@SEED.
    """
    end, taken, left = time.monotonic() + 60 * minutes, {}, find_left((out, RECORDED))
    while left:
        name, seed = left[0]
        started = time.monotonic()
        needed, spare = taken.get(name) or _expected_seconds(name, seed), max(0, end - time.monotonic())
        if needed > spare:
            logger.info("%s@%d takes about %.0f s, and %.0f s are left", name, seed, needed, spare)
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
    trainings = [(name, seed) for name, m in load_profile().models.items() if m.train for seed in m.seeds]

    def is_recorded(name: str, seed: int) -> bool:
        key, file = _key(name, seed), _file_name(name, seed)
        return any(read_provenance(folder / file).get("key") == key for folder in folders)

    return [training for training in trainings if not is_recorded(*training)]


def _file_name(name: str, seed: int) -> str:
    return f"{name.removeprefix('lab/')}-seed-{seed}.parquet"


def _hashes(recipe: Training, benchmarks: Iterable[str]) -> dict[str, str]:
    """The content hash of each corpus that a model is trained or scored on."""
    scored = [corpus for benchmark in benchmarks for corpus in corpora_of(benchmark)]
    return {corpus: lab_card(corpus)["content_hash"] for corpus in [*corpora_of_recipe(recipe), *scored]}


def _key(name: str, seed: int) -> str:
    """What a recorded file must be of: recipe, texts, tokenizer and benchmarks; not the code, nor the device."""
    recipe, benchmarks = lab_recipe(f"{name}@{seed}"), load_profile().models[name].benchmarks
    tokenizer = lab_card(recipe.corpus)["tokenizer_hash"]
    return hash_of([recipe.model_dump(), _hashes(recipe, benchmarks), tokenizer, benchmarks])


def _expected_seconds(name: str, seed: int) -> float:
    from mialib.lab.training import seconds_to_train
    from mialib.models import pick_device

    recipe = lab_recipe(f"{name}@{seed}")
    training = seconds_to_train(
        name, recipe, lab_tokenizer(recipe.corpus), *trained_on(recipe), device=str(pick_device())
    )
    return SPARE_SHARE * training + SPARE_SECONDS


def _record_one(name: str, seed: int, path: Path) -> None:
    """Train a model, score its benchmarks, write the file; nothing is kept of the model."""
    from mialib.catalog.models import Scorer
    from mialib.lab.training import train
    from mialib.models import pick_device

    recipe, device = lab_recipe(f"{name}@{seed}"), str(pick_device())
    benchmarks = load_profile().models[name].benchmarks
    with tempfile.TemporaryDirectory() as folder:
        given = lab_tokenizer(recipe.corpus), *trained_on(recipe), Path(folder), device
        card = train(f"{name}@{seed}", recipe, *given)
        scorer = Scorer(folder, device=device, dtype="float32")  # whose products are not rounded
        loaded = [lab_benchmark(benchmark) for benchmark in benchmarks]
        scored = {b.name: (b.labels, times_seen(recipe, b.texts), scorer.score(b.texts)) for b in loaded}
    provenance = {
        "model": name,
        "seed": seed,
        "key": _key(name, seed),
        "recipe": recipe.model_dump(),
        "corpora": _hashes(recipe, benchmarks),
        "tokenizer": lab_card(recipe.corpus)["tokenizer_hash"],
        # Parameters, loss, tokens, seconds.
        **{key: value for key, value in card.items() if key not in ("name", "recipe", "torch", "transformers")},
        "device": _device_name(device),
        **_made_with(),
        "code": code_hash("book.recorded"),
        "commit": _commit(),
    }
    save(path, scored, provenance)


def _device_name(device: str) -> str:
    import torch

    is_cuda = torch.device(device).type == "cuda"
    return torch.cuda.get_device_name() if is_cuda else f"{device}, {platform.machine()}"


def _commit() -> str | None:
    """The commit that is checked out, "-dirty" where files differ from it; None where that is not known."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


# --- its files ---


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
        for name in STATISTICS:
            with np.errstate(over="ignore"):
                values = getattr(stats, name).astype(np.float16)
            if not np.isfinite(values).all():
                raise ValueError(f"{path}, {benchmark}: a {name} is not finite in float16")
            columns[name] = pa.LargeListArray.from_arrays(pa.array(stats.offsets, pa.int64()), pa.array(values))
        tables.append(pa.table(columns))
    table = pa.concat_tables(tables).replace_schema_metadata({"provenance": json.dumps(provenance)})
    # A number's two bytes are stored apart: the upper ones are alike, so a file is a tenth smaller.
    encoding = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in STATISTICS}
    smaller = {"compression": "zstd", "compression_level": 19, "use_dictionary": ["benchmark"]}
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, column_encoding=encoding, **smaller)


def load_recordings(folder: Path = RECORDED) -> list[Recording]:
    """All that is recorded, the smallest model first, its seeds in order; empty where nothing is.

    ValueError for a .parquet file that `save` has not written.
    """
    found = [recording for path in sorted(folder.glob("*.parquet")) for recording in _load(path)]
    return sorted(found, key=lambda r: (r.parameters, r.model, r.benchmark, r.seed))


def _load(path: Path) -> list[Recording]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    provenance = read_provenance(path)
    if not provenance:
        raise ValueError(f"{path} is no recording of `mialib record-lab`; move it elsewhere")
    table, recordings = pq.read_table(path), []
    for benchmark in table["benchmark"].unique().to_pylist():
        rows = table.filter(pc.field("benchmark") == benchmark)
        lists = {name: rows[name].combine_chunks() for name in STATISTICS if name in rows.column_names}
        lacks = {name: f"{path.name} was recorded without {name}" for name in STATISTICS if name not in lists}
        n_tokens = lists["log_prob"].value_lengths().to_numpy()
        stats = TokenStats(
            token_ids=np.full(n_tokens.sum(), -1, np.int32),
            **{name: lists[name].flatten().to_numpy().astype(np.float32) for name in lists},
            **{name: np.full(n_tokens.sum(), np.nan, np.float32) for name in lacks},
            offsets=np.concatenate([[0], np.cumsum(n_tokens)]).astype(np.int64),
            n_cut=np.zeros(len(rows), np.int32),
            provenance={"model": provenance["model"], "lacks": {"token_ids": NO_IDS} | lacks},
        )
        labels, times = rows["label"].to_numpy().astype(np.int8), rows["times"].to_numpy().astype(np.int64)
        recordings.append(Recording(benchmark, labels, times, stats, provenance))
    return recordings


def from_lab(model: str, benchmark: str) -> Recording:
    """A model of the live lab, trained and scored first where it is not, as if it were recorded."""
    loaded, card, recipe = lab_benchmark(benchmark), lab_model_card(model), lab_recipe(model)
    stats = score_or_load(model, loaded.texts)
    provenance = stats.provenance | {
        "model": model,  # two names of one recipe share their weights, and so a stored pass
        "seed": recipe.seed,
        "recipe": card["recipe"],
        "corpora": _hashes(recipe, [benchmark]),
        "non_embedding_parameters": card["non_embedding_parameters"],
    }
    return Recording(benchmark, loaded.labels, times_seen(recipe, loaded.texts), stats, provenance)


def by_model(recordings: Iterable[Recording]) -> dict[tuple[str, str], list[Recording]]:
    """The recordings of each model and benchmark, a training seed each; ValueError where their texts differ."""
    groups: dict[tuple[str, str], list[Recording]] = {}
    for recording in recordings:
        groups.setdefault((recording.model, recording.benchmark), []).append(recording)
    for (model, benchmark), group in groups.items():
        if len({hash_of([r.provenance["corpora"], r.provenance["recipe"] | {"seed": 0}]) for r in group}) > 1:
            raise ValueError(f"{model} on {benchmark}: its seeds were recorded from different recipes or texts")
    return groups


def auc_over_seeds(labels: ArrayLike, scores: Sequence[FloatArray]) -> Interval:
    """Mean AUC over training seeds, scores (N,) each, with an interval that covers texts and seeds, in [0, 1].

    One seed's is `auc_interval`'s; of several it is the claims': the comparison with chance, under which all texts tie.
    """
    if len(scores) == 1:
        return auc_interval(labels, scores[0])
    above_chance = compare_auc_over_seeds(labels, scores, [np.zeros(len(of_seed)) for of_seed in scores]).difference
    estimate, low, high = (0.5 + x for x in (above_chance.estimate, above_chance.low, above_chance.high))
    return Interval(estimate, max(0.0, low), min(1.0, high))
