"""HTML and Markdown from a template that lies beside the module that uses it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any


@cache
def macros(path: Path, **names: Any) -> Any:
    """The macros of a template, which reads `names` from around itself."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(path.parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.globals |= names
    return environment.get_template(path.name).module
