"""Real English text that every machine able to run this project already holds: its packages' docstrings, and code.

The sources are read in an order that depends on names alone, so pinned packages give the same texts anywhere.
`replication.lab.places` finds them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any

from mialib.cache import JSON, cached
from mialib.store import hash_texts
from mialib.versions import versions_of
from replication.lab.places import READ, Docstring, Place, parse

VERSION = re.compile(r"version(?:added|changed):{1,2} ?v?(\d+(?:\.\d+)*)")  # a directive of Sphinx


def place_of(docstring: Docstring, text: str) -> Place:
    """The place of a docstring's text, or of its beginning."""
    quoted = text[len(docstring.before) : len(text) - len(docstring.after)]
    n_words = len(quoted.split(" ")) if quoted else 0
    d = docstring
    return Place(d.package, d.file, d.path, n_words, d.before, d.after, hash_texts([text]))


def read_docstrings(packages: Iterable[str], min_words: int) -> list[Docstring]:
    """All distinct docstrings of at least `min_words` words; ModuleNotFoundError where a package is not installed."""
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
        named = ((file.relative_to(folder).as_posix(), file) for file in files)
        return [found for name, file in named for found in READ[kind](package, name, parse(file))]

    folder, files = _source_files(package)
    stamps = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    made_by: dict[str, Any] = {"package": package, "files": stamps, **versions_of("gathering")}
    kept = cached(f"sources/{kind}", make, JSON, **made_by)
    return [Docstring(*row)._replace(arguments=tuple(row[3])) for row in kept]


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
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the lab reads the docstrings of {package!r}, which is not installed")
    folder = Path(spec.submodule_search_locations[0])
    files = (path for path in folder.rglob("*.py") if not is_test(path))
    return folder, sorted(files, key=lambda path: path.relative_to(folder).as_posix())
