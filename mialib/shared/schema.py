"""Data from YAML files, checked: an unknown key or a wrong value is an error that names the file."""

from __future__ import annotations

from pathlib import Path
from reprlib import repr as short_repr  # of any value, however long
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AllowInfNan, BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, TypeAdapter, ValidationError

T = TypeVar("T")
Positive = Annotated[PositiveFloat, AllowInfNan(False)]
NonNegative = Annotated[NonNegativeFloat, AllowInfNan(False)]
MOST_TOLD = 5  # wrong values in an error message


class Strict(BaseModel):
    """Frozen data from a YAML file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a repeated key is an error that names its line."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """The keys and values of a mapping; YAML would take the last of a repeated key."""
        node, seen = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def read_yaml(path: Path, kind: type[T] | Any, advice: str = "", empty: Any = None) -> T:
    """The file's data as `kind`, a pydantic model or any type; ValueError names the file and what is wrong in it.

    `empty` is what a file without data stands for, where it may be without.
    """
    content = path.read_bytes()
    try:
        data = yaml.load(content.decode(), Loader)
        return TypeAdapter(kind).validate_python(empty if data is None else data)
    except Exception as error:  # PyYAML's for a wrong tag or date are of many classes
        raise ValueError(f"{path}: {one_line(error)}{advice}") from None


def one_line(error: Exception) -> str:
    """What is wrong, in one line: pydantic's and PyYAML's messages run over several."""
    if isinstance(error, ValidationError):
        wrong = error.errors()
        said = "; ".join(map(_wrong_value, wrong[:MOST_TOLD]))
        more = len(wrong) - MOST_TOLD
        said += f"; and {more} more" if more > 0 else ""
    elif isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        said = f"line {mark.line + 1}, column {mark.column + 1}: {error.context or ''} {error.problem}"
    else:
        said = str(error) if isinstance(error, ValueError | yaml.YAMLError) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())


def _wrong_value(wrong: Any) -> str:
    """One of pydantic's errors: where, what is expected and, if it is one value, what is there."""
    value = wrong["input"]
    got = f", got {short_repr(value)}" if value is None or isinstance(value, str | int | float) else ""
    where = ".".join(str(part)[:100] for part in wrong["loc"]) or "the file"
    return f"{where}: {wrong['msg']}{got if wrong['type'] != 'extra_forbidden' else ''}"
