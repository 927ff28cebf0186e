"""Docstrings and the code of functions of installed packages, found again by their places.

Nothing of theirs is copied into the repository: it names the places, each with the text's hash. Sources are parsed,
never imported.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mialib.store import hash_texts


class Docstring(NamedTuple):
    """One docstring, or the code of one function, white space collapsed, its package, and what it documents."""

    package: str
    text: str  # or, of a question, the question made of it: `before`, its first words, `after`
    name: str = ""  # of a function or class
    arguments: tuple[str, ...] = ()  # a function's, without self and cls
    file: str = ""  # in the package's folder
    path: str = ""  # of names inside the file: Class.method; "" of the module itself
    before: str = ""
    after: str = ""


class Place(NamedTuple):
    """The place of a text in an installed package: its first words there, between our own words, and a hash of all."""

    package: str
    file: str
    path: str
    words: int
    before: str
    after: str
    hash: str


def read_places(kind: str, places: Sequence[Place]) -> list[str | None]:
    """The text at each place, "docstring" or "code"; None where an installed package no longer has it.

    Only the files that the places name are read.
    """
    by_file: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, place in enumerate(places):
        by_file[place.package, place.file].append(i)
    texts: list[str | None] = [None] * len(places)
    for (package, name), numbers in by_file.items():
        file = source_file(package, name)
        standing: dict[str, list[list[str]]] = defaultdict(list)  # several where a name is defined twice
        for docstring in READ[kind](package, name, parse(file)) if file else ():
            standing[docstring.path].append(docstring.text.split(" "))
        for i in numbers:
            place = places[i]
            for words in standing[place.path]:
                text = place.before + " ".join(words[: place.words]) + place.after
                if hash_texts([text]) == place.hash:
                    texts[i] = text
    return texts


def source_file(package: str, name: str) -> Path | None:
    """A file of a package by its path in the package's folder; None where it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0], name)
    return file if file.is_file() else None


def parse(path: Path) -> ast.Module:
    """A source file's syntax tree, empty for one that is none of this Python's."""
    try:
        return parse_source(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:  # a template, or written for another Python
        return ast.Module([], [])


def parse_source(source: str) -> ast.Module:
    """The syntax tree of a source text; SyntaxError for one that is none of this Python's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # theirs, not ours
        return ast.parse(source)


def statements(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """All of a tree but its expressions, in the order of `ast.walk`, each with the names that it stands under."""
    left: deque[tuple[ast.AST, str]] = deque([(tree, "")])
    while left:
        node, path = left.popleft()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            path = f"{path}.{node.name}".lstrip(".")
        left.extend((child, path) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node, path


def _docstrings_of(package: str, file: str, tree: ast.Module) -> Iterator[Docstring]:
    for node, path in statements(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                given = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)] if given else []
                arguments = tuple(name for name in names if name not in ("self", "cls"))
                text = " ".join(docstring.split())
                yield Docstring(package, text, getattr(node, "name", ""), arguments, file, path)


def _code_of(package: str, file: str, tree: ast.Module) -> Iterator[Docstring]:
    for node, path in statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
            if body:
                code = ast.unparse(ast.Module(body, []))
                yield Docstring(package, " ".join(code.split()), node.name, (), file, path)


READ = {"docstring": _docstrings_of, "code": _code_of}
