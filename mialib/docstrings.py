"""Real English text that every machine able to run this project already holds: its packages' docstrings, and code.

The sources are parsed, never imported, in an order that depends on names alone, so pinned packages give the same texts
anywhere. Nothing of theirs is copied into the repository.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mialib.benchmarks import words
from mialib.store import code_hash, hash_of, home, once

if TYPE_CHECKING:
    import pyarrow as pa

NGRAM_WORDS = 7  # the unit of overlap that MIMIR filters by (Duan et al. 2024)
MAX_OVERLAP = 0.2
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
        for docstring in _parsed(package)[kind]:
            if docstring.text not in seen and docstring.text.count(" ") + 1 >= min_words:
                seen.add(docstring.text)
                found.append(docstring)
    return found


def _parsed(package: str) -> dict[str, list[Docstring]]:
    """A package's docstrings and its functions' code, kept on disk: several corpora are made of the same packages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = _source_files(package)
    key = hash_of([code_hash("docstrings"), [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]])
    path = home() / "cache" / "sources" / f"{package}-{key}.parquet"

    def write(to: Path) -> None:
        rows = []
        for tree in map(_parse, files):
            rows += [{"kind": "docstring", **d._asdict()} for d in _docstrings_of(package, tree)]
            rows += [{"kind": "code", **d._asdict()} for d in _code_of(package, tree)]
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), to, compression="zstd")

    once(path, write)
    found: dict[str, list[Docstring]] = {"docstring": [], "code": []}
    for row in pq.read_table(path).to_pylist():
        found[row.pop("kind")].append(Docstring(**row | {"arguments": tuple(row["arguments"])}))
    return found


def _schema() -> pa.Schema:
    import pyarrow as pa

    text = {name: pa.string() for name in ("kind", "package", "text", "name")}
    return pa.schema(text | {"arguments": pa.list_(pa.string())})


def is_later(docstring: Docstring, since: Mapping[str, str]) -> bool:
    """Whether it says that what it documents was added or changed in its package's version in `since`, or later."""
    first = _numbers(since[docstring.package])
    return any(_numbers(version) >= first for version in VERSION.findall(docstring.text))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def drop_near_duplicates(
    docstrings: Iterable[Docstring], n_words: int, language: str = "en", beside: Iterable[str] = ()
) -> list[Docstring]:
    """Keep a docstring unless over 20% of the 7-grams in its first `n_words` words stand in one kept before.

    Packages repeat themselves (a method and its function, a parameter list); a non-member that shares most of its
    words with a member is not unseen. One of fewer than seven words has no 7-gram to tell it by, and is dropped.
    `beside`: texts that count as kept before.
    """
    seen = set().union(*(ngrams(words(text, language)) for text in beside))
    kept = []
    for docstring in docstrings:
        own = ngrams(words(docstring.text, language)[:n_words])
        if own and len(own & seen) <= MAX_OVERLAP * len(own):
            kept.append(docstring)
            seen |= own
    return kept


def ngrams(of_text: list[str]) -> set[tuple[str, ...]]:
    """The distinct sequences of seven words."""
    return {tuple(of_text[i : i + NGRAM_WORDS]) for i in range(len(of_text) - NGRAM_WORDS + 1)}


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


def _docstrings_of(package: str, tree: ast.Module) -> Iterator[Docstring]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                given = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)] if given else []
                arguments = tuple(name for name in names if name not in ("self", "cls"))
                yield Docstring(package, " ".join(docstring.split()), getattr(node, "name", ""), arguments)


def _code_of(package: str, tree: ast.Module) -> Iterator[Docstring]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
            if body:
                code = ast.unparse(ast.Module(body, []))
                yield Docstring(package, " ".join(code.split()), node.name)
