"""Real English text that every machine able to run this project already holds: its packages' docstrings, and code.

Sources are parsed, never imported, in an order that depends on names alone, so pinned packages give the same texts
anywhere. Nothing of theirs is copied into the repository: it names the places, each with the text's hash.
"""

import ast
import gc
import re
import warnings
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from mialib.cache import JSON, cached
from mialib.store import hash_texts
from mialib.versions import versions_of

VERSION = re.compile(r"version(?:added|changed):{1,2} ?v?(\d+(?:\.\d+)*)")  # a directive of Sphinx
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")  # of a syntax tree's node: what holds statements


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
    for (package, name), file in source_files(places).items():
        numbers = by_file[package, name]
        standing: dict[str, list[list[str]]] = defaultdict(list)  # several where a name is defined twice
        names = {places[i].path for i in numbers}
        for docstring in READ[kind](package, name, parse(file), names):
            standing[docstring.path].append(docstring.text.split(" "))
        for i in numbers:
            place = places[i]
            for words in standing[place.path]:
                text = place.before + " ".join(words[: place.words]) + place.after
                if hash_texts([text]) == place.hash:
                    texts[i] = text
    return texts


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed package; None where it is not installed."""
    spec = find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def source_files(places: Iterable[Place]) -> dict[tuple[str, str], Path]:
    """The files that places name, by package and by path in its folder; those that are installed."""
    names = dict.fromkeys((place.package, place.file) for place in places)
    folders = {package: package_folder(package) for package in {package for package, _ in names}}
    files = {(package, name): folder / name for package, name in names if (folder := folders[package])}
    return {name: file for name, file in files.items() if file.is_file()}


def parse(path: Path) -> ast.Module:
    """A source file's syntax tree, empty for one that is none of this Python's."""
    try:
        return parse_source(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:  # a template, or written for another Python
        return ast.Module([], [])


def parse_source(source: str) -> ast.Module:
    """The syntax tree of a source text; SyntaxError for one that is none of this Python's."""
    was_collecting = gc.isenabled()
    gc.disable()  # its many nodes would set off collections that find nothing, two fifths of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # theirs, not ours
            return ast.parse(source)
    finally:
        if was_collecting:
            gc.enable()


def statements(tree: ast.Module, names: Container[str] | None = None) -> Iterator[tuple[ast.AST, str]]:
    """All statements of a tree, or those under `names`, in the order of `ast.walk`, each with the names it is under."""
    left: deque[tuple[ast.AST, str]] = deque([(tree, "")])
    while left:
        node, path = left.popleft()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            path = f"{path}.{node.name}".lstrip(".")
        left.extend((child, path) for field in BLOCKS for child in getattr(node, field, ()))
        if names is None or path in names:
            yield node, path


def _docstrings_of(
    package: str, file: str, tree: ast.Module, names: Container[str] | None = None
) -> Iterator[Docstring]:
    for node, path in statements(tree, names):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                given = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
                every = (*given.posonlyargs, *given.args, *given.kwonlyargs) if given else ()
                arguments = tuple(one.arg for one in every if one.arg not in ("self", "cls"))
                text = " ".join(docstring.split())
                yield Docstring(package, text, getattr(node, "name", ""), arguments, file, path)


def _code_of(package: str, file: str, tree: ast.Module, names: Container[str] | None = None) -> Iterator[Docstring]:
    for node, path in statements(tree, names):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
            if body:
                code = ast.unparse(ast.Module(body, []))
                yield Docstring(package, " ".join(code.split()), node.name, (), file, path)


READ = {"docstring": _docstrings_of, "code": _code_of}


def place_of(docstring: Docstring, text: str) -> Place:
    """The place of a docstring's text, or of its beginning."""
    quoted = text[len(docstring.before) : len(text) - len(docstring.after)]
    n_words = len(quoted.split(" ")) if quoted else 0
    d = docstring
    return Place(d.package, d.file, d.path, n_words, d.before, d.after, hash_texts([text]))


def read_docstrings(packages: Iterable[str], min_words: int, kind: str = "docstring") -> list[Docstring]:
    """Read all distinct docstrings of at least `min_words` words, or the "code" of functions without docstrings.

    ModuleNotFoundError where a package is not installed.
    """
    by_text: dict[str, Docstring] = {}
    for docstring in (one for package in sorted(packages) for one in _parsed(kind, package)):
        if docstring.text.count(" ") + 1 >= min_words:
            by_text.setdefault(docstring.text, docstring)
    return list(by_text.values())


def _parsed(kind: str, package: str) -> list[Docstring]:
    """A package's docstrings, or its functions' code, kept on disk: several corpora are made of the same packages."""

    def make() -> list[Docstring]:
        # One file's tree at a time: with all of a package's in memory, garbage collection takes most of the time.
        places = ((file.relative_to(folder).as_posix(), file) for file in files)
        return [docstring for name, file in places for docstring in READ[kind](package, name, parse(file))]

    folder, files = _source_files(package)
    stamps = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    made_by: dict[str, Any] = {"package": package, "files": stamps, **versions_of("gathering")}
    rows = cached(f"sources/{kind}", make, JSON, **made_by)
    return [Docstring(*row)._replace(arguments=tuple(row[3])) for row in rows]


def is_later(docstring: Docstring, since: Mapping[str, str]) -> bool:
    """Whether it says that what it documents was added or changed in its package's version in `since`, or later."""
    first = _numbers(since[docstring.package])
    return any(_numbers(version) >= first for version in VERSION.findall(docstring.text))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def is_test(path: PurePath) -> bool:
    """Whether a file is in a folder of tests."""
    return not {"tests", "test"}.isdisjoint(path.parts)


def _source_files(package: str) -> tuple[Path, list[Path]]:
    """A package's folder and the source files in it, but for its tests."""
    folder = package_folder(package)
    if folder is None:
        raise ModuleNotFoundError(f"the lab reads the docstrings of {package!r}, which is not installed")
    files = (path for path in folder.rglob("*.py") if not is_test(path))
    return folder, sorted(files, key=lambda path: path.relative_to(folder).as_posix())
