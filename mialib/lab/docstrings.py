"""Real English text that every machine able to run this project already holds: its packages' docstrings, and code.

The sources are parsed, never imported, in an order that depends on names alone, so pinned packages give the same texts
anywhere. Nothing of theirs is copied into the repository.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mialib.shared.kept import JSON, keep
from mialib.store import code_hash

VERSION = re.compile(r"version(?:added|changed):{1,2} ?v?(\d+(?:\.\d+)*)")  # a directive of Sphinx


class Docstring(NamedTuple):
    """One docstring, or the code of one function, white space collapsed, its package, and what it documents."""

    package: str
    text: str
    name: str = ""  # of a function or class
    arguments: tuple[str, ...] = ()  # a function's, without self and cls


def read_docstrings(packages: Iterable[str], min_words: int) -> list[Docstring]:
    """All distinct docstrings of at least `min_words` words, by package, file and line.

    Raises ModuleNotFoundError for a package that is not installed.
    """
    return _read("docstring", packages, min_words)


def read_code(packages: Iterable[str], min_words: int) -> list[Docstring]:
    """The code of all distinct functions of at least `min_words` words, docstrings left out; as `read_docstrings`."""
    return _read("code", packages, min_words)


def _read(kind: str, packages: Iterable[str], min_words: int) -> list[Docstring]:
    seen: set[str] = set()
    found = []
    for package in sorted(packages):
        for docstring in _parsed(kind, package):
            if docstring.text not in seen and docstring.text.count(" ") + 1 >= min_words:
                seen.add(docstring.text)
                found.append(docstring)
    return found


def _parsed(kind: str, package: str) -> list[Docstring]:
    """A package's docstrings, or its functions' code, kept on disk: several corpora are made of the same packages."""

    def make() -> list[Docstring]:
        # One file's tree at a time: with all of a package's in memory, garbage collection takes most of the time.
        return [found for file in files for found in KINDS[kind](package, _parse(file))]

    files = _source_files(package)
    stamps = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    made_by = {"package": package, "files": stamps, "code": code_hash("lab.docstrings")}
    kept = keep(f"sources/{kind}", make, JSON, **made_by)
    return [Docstring(p, text, name, tuple(a)) for p, text, name, a in kept]


def is_later(docstring: Docstring, since: Mapping[str, str]) -> bool:
    """Whether it says that what it documents was added or changed in its package's version in `since`, or later."""
    first = _numbers(since[docstring.package])
    return any(_numbers(version) >= first for version in VERSION.findall(docstring.text))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _source_files(package: str) -> list[Path]:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the lab reads the docstrings of {package!r}, which is not installed")
    folder = Path(spec.submodule_search_locations[0])
    files = (path for path in folder.rglob("*.py") if not {"tests", "test"} & set(path.parts))
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def _parse(path: Path) -> ast.Module:
    """A source file's syntax tree, empty for one that is none of this Python's."""
    source = path.read_text(encoding="utf-8", errors="replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # theirs, not ours
        try:
            return ast.parse(source)
        except SyntaxError:  # a template, or written for another Python
            return ast.Module([], [])


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All of a tree but its expressions, in the order of `ast.walk`."""
    left = deque([tree])
    while left:
        node = left.popleft()
        left.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node


def _docstrings_of(package: str, tree: ast.Module) -> Iterator[Docstring]:
    for node in _statements(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                given = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)] if given else []
                arguments = tuple(name for name in names if name not in ("self", "cls"))
                yield Docstring(package, " ".join(docstring.split()), getattr(node, "name", ""), arguments)


def _code_of(package: str, tree: ast.Module) -> Iterator[Docstring]:
    for node in _statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
            if body:
                code = ast.unparse(ast.Module(body, []))
                yield Docstring(package, " ".join(code.split()), node.name)


KINDS = {"docstring": _docstrings_of, "code": _code_of}
