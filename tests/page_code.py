"""A page's visible method, for tests: the notebook's cells tagged "method", executed."""

import ast
import json
from pathlib import Path

import numpy as np

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
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


def functions_of(name):
    """The imports, functions, classes and CONSTANTS of all code cells of a notebook, none of which is run."""
    names = {}
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            tree.body = [node for node in tree.body if isinstance(node, DEFINITIONS) or _is_constant(node)]
            exec(compile(tree, f"{name}.ipynb, {cell['id']}", "exec"), names)
    return names


def _is_constant(node):
    return isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets)
