"""What is recorded in `data/recorded/` for builds that train only seed 0 of small models, and how.

write_rows, read_rows   scores and ranks of training seeds (`mialib record`), a row each
scores_code             the code that they were computed by, which a row holds and is matched by
record                  the recorded ladder (`mialib record-lab`): models too large to be trained while the book is
                        built, trained and scored once; `mialib.catalog.recorded` reads its files
"""

from __future__ import annotations

import json
import logging
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mialib.book import blind_tables
from mialib.book.profile import load_profile
from mialib.catalog.recorded import read_provenance, save_benchmark, save_training
from mialib.catalog.registry import RECORDED
from mialib.lab.corpora import lab_benchmark, lab_card
from mialib.lab.models import CARD, lab_model, lab_recipe, of_seed, times_seen
from mialib.passes.cache import count_or_load
from mialib.store import DATA, ROOT, atomic_path, code_hash, hash_of, mialib_version, version

# What gathers texts, finds models and keeps files, since recorded scores are matched by their texts and recipes
# themselves; and the metrics, of which only an AUC takes part, to choose hyperparameters by.
GATHERING = ("lab", "catalog", "shared", "store", "benchmarks", "blind", "metrics")
PROFILE = DATA / "profiles" / "recorded.yml"  # of the recorded ladder
CONFIRMED = "confirmed"  # in a file's provenance: the hash of later code that computes seed 0 as recorded

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


def confirm_rows(path: Path, rows: list[dict[str, Any]], key: Sequence[str], older: Path | None = None) -> list[str]:
    """Let recorded rows hold for today's code where it computes seed 0 as the code that recorded them, to the last bit.

    `rows` are seed 0's, computed anew; the columns of `key` name a test, whose other seeds then count too. They are
    held against the recorded ones, or, on a processor that sums otherwise than the one that recorded, against those of
    the file `older`: seed 0 by the code that recorded, on this machine. Returns the tests that differ, whose rows stay
    those of the older code.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / path.name, rows)  # to have the file's types
        again = {tuple(row[name] for name in key): row for row in read_rows(Path(folder) / path.name)}
    recorded = read_rows(path)
    tests = [tuple(row[name] for name in key) for row in recorded]
    before = {(*(row[name] for name in key), row["code"]): row for row in read_rows(older or path, seed=0)}

    def is_same(test: tuple[Any, ...], row: dict[str, Any]) -> bool:
        then, now = before.get((*test, row["code"])), again.get(test)
        if row["seed"] != 0 or then is None or now is None:
            return False
        of_same = all(row[name] == then[name] for name, value in row.items() if isinstance(value, str))
        return of_same and json.dumps(then | {"code": now["code"]}) == json.dumps(now)

    confirmed = {
        (test, row["code"]): again[test]["code"]
        for test, row in zip(tests, recorded, strict=True)
        if is_same(test, row)
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


# --- the recorded ladder ---


def record(names: Sequence[str], folder: Path) -> Iterator[Path]:
    """Train, score and keep what is not in the folder of the profile's models, or of those named; yields each file.

    All models' first seeds come first. A training that was broken off goes on where it was. ValueError for an unknown
    name.
    """
    if unknown := set(names) - set(load_profile().models):
        raise ValueError(f"the profile has no model {unknown.pop()!r}; it has: {', '.join(load_profile().models)}")
    for name, seed in find_left(folder):
        if not names or name in names:
            yield _record_one(name, seed, folder)


def find_left(folder: Path) -> list[tuple[str, int]]:
    """Each model of the profile that is trained and each of its seeds, but those that the folder holds a file of.

    A file of another recipe or other texts does not count.
    """
    models = {name: model for name, model in load_profile().models.items() if model.train}
    trainings = sorted(((name, seed) for name, m in models.items() for seed in m.seeds), key=lambda of: of[1])

    def is_recorded(name: str, seed: int) -> bool:
        return read_provenance(folder / _file_name(name, seed)).get("key") == _key(name, seed)

    return [training for training in trainings if not is_recorded(*training)]


def _file_name(name: str, seed: int) -> str:
    return f"{name.removeprefix('lab/')}-seed-{seed}.parquet"


def _key(name: str, seed: int) -> str:
    """What a recorded file must be of: recipe, texts in their roles and tokenizer; not the code, nor the device."""
    recipe = lab_recipe(of_seed(name, seed))
    return hash_of([recipe.model_dump(), _dealt(recipe.corpus)])


def _dealt(corpus: str) -> str:
    """A hash of a corpus's texts, of who is what, and of the tokenizer."""
    card = lab_card(corpus)
    return hash_of([card["content_hash"], card["roles"], card["tokenizer_hash"]])


def _record_one(name: str, seed: int, folder: Path) -> Path:
    """Train a model, score its members and non-members, write the files."""
    from mialib.catalog.models import Scorer
    from mialib.models import pick_device

    recipe, device = lab_recipe(of_seed(name, seed)), str(pick_device())
    model = lab_model(of_seed(name, seed), device)
    benchmark, corpus = lab_benchmark(recipe.corpus), recipe.corpus.removeprefix("lab/")
    stats = Scorer(str(model), device=device, dtype="float32").score(benchmark.texts)  # products are not rounded
    made_of = {
        "benchmark": corpus,
        "language": benchmark.language,
        "dealt": _dealt(recipe.corpus),
        "sources": lab_card(recipe.corpus)["sources"],
    }
    if read_provenance(folder / f"{corpus}.parquet").get("dealt") != made_of["dealt"]:
        counts = count_or_load(recipe.corpus, str(model))
        blind = [asdict(result) for result in blind_tables.measure(benchmark, f"{RECORDED}{corpus}", ["auc"])]
        save_benchmark(folder, corpus, benchmark.labels, stats, counts, made_of | {"blind": blind})
    card = json.loads((model / CARD).read_text(encoding="utf-8"))
    provenance = {
        **stats.provenance,
        **card,
        **made_of,
        "model": f"{RECORDED}{name.removeprefix('lab/')}",
        "seed": seed,
        "key": _key(name, seed),
        "machine": _device_name(device),
        **_made_with(),
        "commit": _commit(),
        "trained_by": code_hash("lab.training"),  # a commit may be "-dirty"
    }
    path = folder / _file_name(name, seed)
    save_training(path, times_seen(recipe, benchmark.texts), stats, provenance)
    return path


def _device_name(device: str) -> str:
    import torch

    is_cuda = torch.device(device).type == "cuda"
    return torch.cuda.get_device_name() if is_cuda else f"one core, {platform.machine()}"


def _commit() -> str | None:
    """The commit that is checked out, "-dirty" where files differ from it; None where that is not known."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
