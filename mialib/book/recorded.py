"""What is recorded in `data/recorded/`, so that a build runs no model for it, and how.

    write_rows, read_rows   scores and ranks of training seeds (`mialib record`), a row each
    scores_code             the code that they were computed by, which a row holds and is matched by

Larger models, which are trained and scored once, are `mialib.book.ladder`'s.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mialib.catalog.recorded import read_provenance
from mialib.store import atomic_path, code_hash, mialib_version, version

# What gathers texts, finds models and keeps files, since recorded scores are matched by their texts and recipes
# themselves; and the metrics, of which only an AUC takes part, to choose hyperparameters by.
GATHERING = ("lab", "catalog", "shared", "store", "benchmarks", "blind", "metrics")
CONFIRMED = "confirmed"  # in a file's provenance: the hash of later code that computes seed 0 as recorded


# --- recorded seeds: rows of one file ---


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as parquet, with provenance in the file's metadata; a column's type is that of its NumPy arrays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    provenance = json.dumps(made_with() | {"machine": platform.machine()})
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
    again = f" The code has changed since: that of hash {later} computes seed 0 to the last bit as the code of then."
    return f"The recorded seeds were computed with {made_with}.{again * bool(later)}"


def scores_code(*modules: str) -> str:
    """A hash of the code that trains the lab's models and, in these modules, scores: recorded seeds are matched by it.

    No page, table or figure is part of it.
    """
    return code_hash(*modules, "scoring", "lab.training", apart=GATHERING)


def made_with() -> dict[str, str]:
    """The versions of mialib, Python and the libraries that compute."""
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "mialib": mialib_version(),
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }
