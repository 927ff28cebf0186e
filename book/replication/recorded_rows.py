"""Scores and ranks of training seeds in `data/recorded/` (`mialib record`), a row each, so that a build trains none.

A row holds the versions of what computed it (`mialib.versions`), and counts only where they are today's. Larger models,
which are trained and scored once, are `replication.studies.ladder`'s.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mialib.catalog.models import model_revision
from mialib.store import atomic_path, hash_of, mialib_version, version
from replication.recorded import read_provenance


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as parquet, with provenance in the file's metadata; a column's type is that of its NumPy arrays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    provenance = json.dumps(made_with() | {"machine": platform.machine()})
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"provenance": provenance})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_rows(path: Path, **where: Any) -> list[dict[str, Any]]:
    """The rows whose columns have these values, all where none is named; none where there is no file."""
    import pyarrow.parquet as pq

    filters = [(name, "==", value) for name, value in where.items()] or None
    return pq.read_table(path, filters=filters).to_pylist() if path.is_file() else []


def describe_rows(path: Path) -> str:
    """What the recorded seeds were computed with, in a sentence."""
    made_with = ", ".join(f"{name} {value}" for name, value in read_provenance(path).items())
    return f"The recorded seeds were computed with {made_with}." if made_with else "No seeds are recorded."


@cache
def weights_of(*models: str) -> str:
    """A hash of these models' weights and tokenizers."""
    return hash_of([model_revision(name) for name in models])


def other_versions(row: Mapping[str, Any], now: Mapping[str, int]) -> str:
    """In which versions a row was computed that are not today's: "other versions (min_k 1, now 2)"; "" for none."""
    then = json.loads(row["versions"])
    differ = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    said = ", ".join(f"{name} {then.get(name, 'none')}, now {now.get(name, 'none')}" for name in differ)
    return f"other versions ({said})" if said else ""


def made_with() -> dict[str, str]:
    """The versions of mialib, Python and the libraries that compute."""
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "mialib": mialib_version(),
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }
