"""Which code a page is made by, so that an edit to it makes the page stale, and no other page.

Scores do not hang on it: they are kept by the versions of what computes them (`mialib.versions`).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import mialib
import mialib_audit
import replication
from mialib.catalog.sources import KINDS, module_of
from mialib.store import hash_of

FOLDERS = {of.__name__: Path(of.__file__ or "").parent for of in (mialib, mialib_audit, replication)}
REGISTRY = "mialib.catalog.sources"
BESIDE = (".yml", ".html", ".css", ".md", ".txt")  # data of a module, in a file of its name


@cache
def code_hash(*modules: str) -> str:
    """A hash of modules ("mialib.scoring", "replication.figures") and of all of ours that they import, directly or not.

    Comments, docstrings and layout do not count. A data file beside a module, of its name, is part of it.
    """
    closure = sorted(set().union(*(import_closure(module) for module in modules)))
    return hash_of([[module, _hash(_source(module))] for module in closure])


@cache
def import_closure(module: str) -> frozenset[str]:
    """A module and all modules of our packages that it imports, directly or not."""
    found, left = set(), [module]
    while left:
        found.add(name := left.pop())
        left += _imports_of(name) - found
    return frozenset(found)


@cache
def _imports_of(module: str) -> frozenset[str]:
    imported = imported_modules(_source(module).read_text(encoding="utf-8"))
    kinds = KINDS if module == REGISTRY else ()  # it imports the kind of a name when it meets one
    return imported.union(module_of(prefix).partition(":")[0] for prefix in kinds)


def _source(module: str) -> Path:
    package, *names = module.split(".")
    path = FOLDERS[package].joinpath(*names)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported_modules(code: str) -> frozenset[str]:
    """The modules of our packages that some code imports anywhere, but for those that only type checkers read.

    `mialib.detect` and other names that the package gives on first use count as imports of the modules they are in.
    """
    tree, names = ast.parse(code), set()
    for statement in tree.body:
        match statement:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                statement.body = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):  # names of a module, or modules of a package
                within = {f"{module}.{alias.name}" for alias in aliases}
                is_ours = module.partition(".")[0] in FOLDERS
                names |= within if is_ours and all(_source(of).is_file() for of in within) else {module, *within}
            case ast.Attribute(value=ast.Name("mialib"), attr=name):
                names.add(f"mialib.{name}")
    names |= {f"mialib.{home}" for name, home in mialib.HOME_OF.items() if f"mialib.{name}" in names}
    inside = {name for name in names if name.partition(".")[0] in FOLDERS and "." in name}
    return frozenset(name for name in inside if _source(name).is_file())


@cache
def _hash(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node: Any
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(ast.Constant(str())), *rest]:  # a docstring
                node.body = rest or [ast.Pass()]
    data = sorted(file for file in path.parent.glob(f"{path.stem}.*") if file.suffix in BESIDE)
    return hash_of([ast.unparse(tree), *(file.read_text(encoding="utf-8") for file in data)])
