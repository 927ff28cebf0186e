"""Real English text that every machine able to run this project already holds: its packages' docstrings.

The sources are parsed, never imported, in an order that depends on names alone, so pinned packages give the same texts
anywhere. Nothing of theirs is copied into the repository.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mialib.benchmarks import words

NGRAM_WORDS = 7  # the unit of overlap that MIMIR filters by (Duan et al. 2024)
MAX_OVERLAP = 0.2


class Docstring(NamedTuple):
    """One docstring, white space collapsed, the package it is from, and what it documents."""

    package: str
    text: str
    name: str = ""  # of a function or class
    arguments: tuple[str, ...] = ()  # a function's, without self and cls


def read_docstrings(packages: Iterable[str], min_words: int) -> list[Docstring]:
    """All distinct docstrings of at least `min_words` words, by package, file and line.

    Raises ModuleNotFoundError for a package that is not installed.
    """
    seen: set[str] = set()
    found = []
    for package in sorted(packages):
        for path in _source_files(package):
            for docstring in _docstrings_of(package, path):
                if docstring.text not in seen and docstring.text.count(" ") + 1 >= min_words:
                    seen.add(docstring.text)
                    found.append(docstring)
    return found


def drop_near_duplicates(docstrings: Iterable[Docstring], n_words: int, language: str = "en") -> list[Docstring]:
    """Keep a docstring unless over 20% of the 7-grams in its first `n_words` words stand in one kept before.

    Packages repeat themselves (a method and its function, a parameter list); a non-member that shares most of its
    words with a member is not unseen. One of fewer than seven words has no 7-gram to tell it by, and is dropped.
    """
    seen: set[tuple[str, ...]] = set()
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


def _docstrings_of(package: str, path: Path) -> Iterator[Docstring]:
    source = path.read_text(encoding="utf-8", errors="replace")
    if '"""' not in source and "'''" not in source:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # theirs, not ours
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a template, or written for another Python
            return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                given = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)] if given else []
                arguments = tuple(name for name in names if name not in ("self", "cls"))
                yield Docstring(package, " ".join(docstring.split()), getattr(node, "name", ""), arguments)
