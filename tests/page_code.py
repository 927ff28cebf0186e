"""A page's code, for tests: the notebook's cells tagged "method", or chosen by what they define, executed."""

import ast
import json
from pathlib import Path

import numpy as np

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def method_of(name, **given):
    """The names that the method cells of a notebook bind, with NumPy as `np` and `given` at hand."""
    sources = ["".join(cell["source"]) for cell in _code(name) if "method" in cell["metadata"].get("tags", [])]
    assert sources, f"{name} has no cell tagged method"
    names = {"np": np, **given}
    for source in sources:
        exec(compile(source, f"{name}.ipynb", "exec"), names)
    return names


def functions_of(name, **given):
    """`method_of`, and every function that the other cells define: imports run, nothing else of them does."""
    names = {"np": np, **given}
    for cell in _code(name):
        tree = ast.parse("".join(cell["source"]))
        if "method" not in cell["metadata"].get("tags", []):
            kinds = (ast.FunctionDef, ast.Import, ast.ImportFrom)
            tree.body = [node for node in tree.body if isinstance(node, kinds)]
        exec(compile(tree, f"{name}.ipynb", "exec"), names)
    return names


def _code(name):
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]
