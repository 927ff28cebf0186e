"""Further training seeds: how their models are named, and what is kept of them for builds that train only seed 0.

`lab/en-25k@1` is `lab/en-25k` trained from seed 1. What `mialib record` keeps of such models in `data/recorded/`
carries hashes of what it was computed for, so that a page can leave out what is no longer of its models or texts.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mialib.lab.models import lab_recipe
from mialib.lab.recipes import Unlearning
from mialib.store import atomic_path, mialib_version


def of_seed(model: str, seed: int) -> str:
    """A model's name when it is trained from a seed; 0 is the recipe's own."""
    return f"{model}@{seed}" if seed else model


def recipes(models: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The lab models' recipes by name, each followed by that of the model it was made from; no other model has one."""
    return {name: _recipes(name) for name in sorted(set(models)) if name.startswith("lab/")}


def _recipes(name: str) -> list[dict[str, Any]]:
    recipe = lab_recipe(name)
    return [recipe.model_dump(), *(_recipes(recipe.base) if isinstance(recipe, Unlearning) else [])]


def write_recorded(path: Path, rows: list[dict[str, Any]], columns: dict[str, Any]) -> None:
    """Write rows of these columns (pyarrow types) as parquet, with provenance in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    libraries = ("torch", "transformers", "tokenizers", "numpy")
    provenance = {
        "mialib": mialib_version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: version(name) for name in libraries},
    }
    schema = pa.schema(columns, metadata={"provenance": json.dumps(provenance)})
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")


def read_recorded(path: Path) -> list[dict[str, Any]]:
    """The rows that were recorded; none where there is no file."""
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist() if path.is_file() else []


def recorded_provenance(path: Path) -> dict[str, str]:
    """What the recorded seeds were computed with."""
    import pyarrow.parquet as pq

    return json.loads(pq.read_schema(path).metadata[b"provenance"])


def describe_recorded(path: Path) -> str:
    """What the recorded seeds were computed with, in a sentence."""
    if not path.is_file():
        return "No further seeds are recorded."
    made_with = ", ".join(f"{name} {value}" for name, value in recorded_provenance(path).items())
    return f"The recorded seeds were computed with {made_with}."
