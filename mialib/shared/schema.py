"""Data from YAML files, checked: an unknown key or a wrong value is an error that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")


class Strict(BaseModel):
    """Data from a YAML file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_yaml(path: Path, kind: type[T] | Any, advice: str = "", empty: Any = None) -> T:
    """The file's data as `kind`, a pydantic model or any type; ValueError names the file and what is wrong in it.

    `empty` is what a file without data stands for, where it may be without.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        return TypeAdapter(kind).validate_python(empty if data is None else data)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}{advice}") from None


def one_line(error: Exception) -> str:
    """What is wrong, in one line: pydantic's and PyYAML's messages run over several."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors())
    return " ".join(str(error).split())
