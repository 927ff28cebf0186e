"""A page's code for tests: its visible method (cells tagged "method"), all of it, or its functions."""

import ast
import json
from pathlib import Path

import numpy as np

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def method_of(name, **given):
    """The names that the method cells of a notebook bind, with NumPy as `np` and `given` at hand."""
    sources = ["".join(c["source"]) for c in _code_cells(name) if "method" in c["metadata"].get("tags", [])]
    assert sources, f"{name} has no cell tagged method"
    names = {"np": np, **given}
    for source in sources:
        exec(compile(source, f"{name}.ipynb", "exec"), names)
    return names


def page_of(name, **parameters):
    """The names that all code cells of a notebook bind, run in this process with these parameters."""
    names = {}
    for cell in _code_cells(name):
        exec(compile("".join(cell["source"]), f"{name}.ipynb, {cell['id']}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert parameters.keys() <= names.keys(), f"{name} has other parameters"
            names |= parameters
    return names


def functions_of(name):
    """The functions that a notebook defines, by name; nothing else of it is run but its imports."""
    tree = ast.parse("\n".join("".join(cell["source"]) for cell in _code_cells(name)))
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)]
    exec(compile(tree, f"{name}.ipynb", "exec"), names := {})
    return names


def _code_cells(name):
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]
