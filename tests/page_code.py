"""A page's visible method, for tests: the notebook's cells tagged "method", executed."""

import json
from pathlib import Path

import numpy as np

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def method_of(name, **given):
    """The names that the method cells of a notebook bind, with NumPy as `np` and `given` at hand."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if "method" in cell["metadata"].get("tags", [])]
    assert sources, f"{name} has no cell tagged method"
    names = {"np": np, **given}
    for source in sources:
        exec(compile(source, f"{name}.ipynb", "exec"), names)
    return names
