"""A page's code for tests: its visible method (cells tagged "method"), all of it, or what it defines."""

import ast
import json
import linecache
import re
from pathlib import Path

import numpy as np
import pytest

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def method_of(name, **given):
    """The names that the method cells of a notebook bind, with NumPy as `np` and `given` at hand."""
    sources = ["".join(c["source"]) for c in _code_cells(name) if "method" in c["metadata"].get("tags", [])]
    assert sources, f"{name} has no cell tagged method"
    names = {"np": np, **given}
    for i, source in enumerate(sources):
        exec(compiled(source, f"{name}.ipynb, method {i}"), names)
    return names


def page_of(name, **parameters):
    """The names that all code cells of a notebook bind, run in this process with these parameters."""
    names, cells = {"__name__": name}, _code_cells(name)
    for i, cell in enumerate(cells):
        check_fails_without_an_answer(cell, cells[:i], names)
        exec(compiled("".join(cell["source"]), f"{name}.ipynb, {cell['id']}"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert parameters.keys() <= names.keys(), f"{name} has other parameters"
            names |= parameters
    return names


def check_fails_without_an_answer(cell, before, names):
    """Run an exercise's check, where the cell is one, with the stub before it, and one that returns None: both fail."""
    if "check" in cell["metadata"].get("tags", []):
        [stub] = ["".join(c["source"]) for c in before[-2:] if "exercise" in c["metadata"]["tags"]]
        for answer, error in ((stub, NotImplementedError), (re.sub("raise NotImpl.*", "return None", stub), Exception)):
            of_reader = dict(names)
            exec(answer, of_reader)
            with pytest.raises(error):
                exec("".join(cell["source"]), of_reader)


def functions_of(name, **given):
    """The imports, functions, classes and CONSTANTS of all code cells of a notebook, with `given` at hand."""
    names = {"np": np, **given}
    for cell in _code_cells(name):
        tree = ast.parse(source := "".join(cell["source"]))
        tree.body = [node for node in tree.body if isinstance(node, DEFINITIONS) or _is_constant(node)]
        exec(compiled(source, f"{name}.ipynb, {cell['id']}", tree), names)
    return names


def compiled(source, name, tree=None):
    """A cell's code, whose source `inspect` finds as it does in a notebook."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(tree or source, name, "exec")


def _is_constant(node):
    return isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets)


def _code_cells(name):
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]
