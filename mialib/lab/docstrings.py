"""Real English text that every machine able to run this project already holds: its packages' docstrings, and code.

The sources are parsed, never imported, in an order that depends on names alone, so pinned packages give the same texts
anywhere. Nothing of theirs is copied into the repository: it names the places where its texts stand, each with the
text's hash, and `read_places` finds them again.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from mialib.shared.kept import JSON, keep
from mialib.store import hash_texts
from mialib.versions import versions_of

VERSION = re.compile(r"version(?:added|changed):{1,2} ?v?(\d+(?:\.\d+)*)")  # a directive of Sphinx


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


def place_of(docstring: Docstring, text: str) -> Place:
    """The place of a docstring's text, or of its beginning."""
    quoted = text[len(docstring.before) : len(text) - len(docstring.after)]
    n_words = len(quoted.split(" ")) if quoted else 0
    package, file, path, before, after = (
        docstring.package,
        docstring.file,
        docstring.path,
        docstring.before,
        docstring.after,
    )
    return Place(package, file, path, n_words, before, after, hash_texts([text]))


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
        for docstring in KINDS[kind](package, name, _parse(file)) if file else ():
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
        return [
            found for file in files for found in KINDS[kind](package, file.relative_to(folder).as_posix(), _parse(file))
        ]

    folder, files = _source_files(package)
    stamps = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    made_by: dict[str, Any] = {"package": package, "files": stamps, **versions_of("gathering")}
    kept = keep(f"sources/{kind}", make, JSON, **made_by)
    return [Docstring(*row)._replace(arguments=tuple(row[3])) for row in kept]


def is_later(docstring: Docstring, since: Mapping[str, str]) -> bool:
    """Whether it says that what it documents was added or changed in its package's version in `since`, or later."""
    first = _numbers(since[docstring.package])
    return any(_numbers(version) >= first for version in VERSION.findall(docstring.text))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _source_files(package: str) -> tuple[Path, list[Path]]:
    """A package's folder and the source files in it, but for its tests."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the lab reads the docstrings of {package!r}, which is not installed")
    folder = Path(spec.submodule_search_locations[0])
    files = (path for path in folder.rglob("*.py") if not {"tests", "test"} & set(path.parts))
    return folder, sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def _parse(path: Path) -> ast.Module:
    """A source file's syntax tree, empty for one that is none of this Python's."""
    source = path.read_text(encoding="utf-8", errors="replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # theirs, not ours
        try:
            return ast.parse(source)
        except SyntaxError:  # a template, or written for another Python
            return ast.Module([], [])


def _statements(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """All of a tree but its expressions, in the order of `ast.walk`, each with the names that it stands under."""
    left: deque[tuple[ast.AST, str]] = deque([(tree, "")])
    while left:
        node, path = left.popleft()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            path = f"{path}.{node.name}".lstrip(".")
        left.extend((child, path) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node, path


def _docstrings_of(package: str, file: str, tree: ast.Module) -> Iterator[Docstring]:
    for node, path in _statements(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                given = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)] if given else []
                arguments = tuple(name for name in names if name not in ("self", "cls"))
                text = " ".join(docstring.split())
                yield Docstring(package, text, getattr(node, "name", ""), arguments, file, path)


def _code_of(package: str, file: str, tree: ast.Module) -> Iterator[Docstring]:
    for node, path in _statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
            if body:
                code = ast.unparse(ast.Module(body, []))
                yield Docstring(package, " ".join(code.split()), node.name, (), file, path)


KINDS = {"docstring": _docstrings_of, "code": _code_of}
