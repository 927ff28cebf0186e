"""The lab as a source: models whose training set is known, since a coin decided it.

A corpus is a folder. `card.json` says what it is made of; `texts.jsonl.gz` holds its texts, each with its role, and
`places.csv` instead the place of each in an installed package; `tokenizer.json` and `counts.parquet` are there where
models are trained on it. Members and background texts are trained on, non-members and reference texts are not; members
and non-members are one distribution. A text that another version of a package no longer has is left out with a warning.

What is stored in `data/lab` is read here. The book's package makes corpora and models of other recipes and seeds.
"""

from __future__ import annotations

import csv
import gzip
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.cache import JSON, cached
from mialib.catalog.models import Weights
from mialib.catalog.places import Place, read_places, source_file
from mialib.catalog.stored import FOLDER, stored
from mialib.frequency import TokenFrequency
from mialib.shared.files import COIN_COLUMN
from mialib.store import hash_of, hash_texts, version
from mialib.versions import versions_of

ROLES = ("member", "non_member", "background", "reference")
CARD, TEXTS, PLACES, COUNTS = "card.json", "texts.jsonl.gz", "places.csv", "counts.parquet"
MODEL_CARD = "lab.json"


class Row(NamedTuple):
    """One text of a corpus: what the coin made it, and where it is from."""

    role: str
    package: str
    text: str  # "" where it is read from its place
    place: Place | None = None


class Lab(Weights):
    """`lab/en-25k`, a model; `lab/en` and `lab/en~lab/code`, benchmarks; `lab/en:background`, a corpus."""

    is_fetched = False
    gpu_dtype = "float32"

    # --- where it lies; the book's package makes what is not stored ---

    def folder(self, model: str) -> Path:
        """A model's folder; ValueError for one that is not stored."""
        return _found("models", model)

    def corpus_folder(self, corpus: str) -> Path:
        """A corpus's folder; ValueError for one that is not stored."""
        return _found("corpora", corpus)

    def recipe(self, model: str) -> dict[str, Any]:
        """How a model was trained; one that was made to forget has a `base`, a masked one `epochs`."""
        return json.loads((self.folder(model) / MODEL_CARD).read_text(encoding="utf-8"))["recipe"]

    def card(self, corpus: str) -> dict[str, Any]:
        """What a corpus is made of: recipe, source versions, counts by role and package, content hash."""
        return json.loads((self.corpus_folder(corpus) / CARD).read_text(encoding="utf-8"))

    # --- models ---

    def check(self, model: str) -> None:
        """ValueError for a model that there is not."""
        self.recipe(model)

    def trained_on(self, model: str) -> list[str]:
        """The texts that the model was trained on; ValueError for a masked one."""
        recipe = self.recipe(model)
        if "base" in recipe:
            return self.trained_on(recipe["base"])
        if "epochs" in recipe:
            raise ValueError(f"{model} is a masked model, which writes no texts; name one that does")
        return self.texts_and_times(recipe)[0]

    def times_seen(self, model: str, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """As the recipe says; None for a masked or an unlearned model."""
        recipe = self.recipe(model)
        if "base" in recipe or "epochs" in recipe:
            return None
        times = dict(zip(*self.texts_and_times(recipe), strict=True))
        return np.array([times.get(text, 0) for text in texts])

    def texts_and_times(self, recipe: Mapping[str, Any]) -> tuple[list[str], list[int]]:
        """The texts that a training sees, and how often each; one seen 0 times is left out."""
        members, background = (self.rows(recipe["corpus"], role) for role in ("member", "background"))
        of_members = by_group(recipe["member_repeats"] or (recipe["member_times"],), len(members))
        parts = [
            (recipe["corpus"], members, of_members),
            (recipe["corpus"], background, [recipe["background_times"]] * len(background)),
        ]
        for corpus, n in recipe["injected"].items():
            rows = self.rows(corpus, "member")
            parts.append((corpus, rows, [n] * len(rows)))
        pairs = [pair for corpus, rows, times in parts for pair in zip(self.read(corpus, rows), times, strict=True)]
        seen = [(text, n) for text, n in pairs if text is not None and n]
        return [text for text, _ in seen], [n for _, n in seen]

    def training_seed(self, model: str) -> int:
        """The recipe's, or the one that the name asks for."""
        return self.recipe(model)["seed"]

    # --- texts ---

    def rows(self, corpus: str, *roles: str) -> list[Row]:
        """The texts of a corpus that have these roles, as the coin dealt them out; none is read from a package yet."""
        if unknown := set(roles) - set(ROLES):
            raise ValueError(f"unknown role {unknown.pop()!r}; known: {', '.join(ROLES)}")
        folder = self.corpus_folder(corpus)
        if (folder / TEXTS).is_file():
            rows = [Row(row["role"], row["package"], row["text"]) for row in read_texts(folder / TEXTS)]
        else:
            rows = [Row(role, place.package, "", place) for role, place in read_places_file(folder / PLACES)]
        return [row for role in roles for row in rows if row.role == role]

    def texts(self, corpus: str, role: str) -> list[str]:
        """The texts of a corpus that have a role: member, non_member, background or reference."""
        return [text for text in self.read(corpus, self.rows(corpus, role)) if text is not None]

    def read(self, corpus: str, rows: Sequence[Row]) -> list[str | None]:
        """The texts of rows of a corpus; None, with a warning, for one that an installed package no longer has."""
        texts = self._read(corpus, rows)
        if n_missing := texts.count(None):
            roles = " and ".join(dict.fromkeys(row.role.replace("_", "-") for row in rows))
            card = self.card(corpus)
            packages = {row.package for row, text in zip(rows, texts, strict=True) if text is None}
            sources = dict(zip(card["recipe"]["packages"], card["sources"], strict=True))
            changed = ", ".join(f"{sources[of]} (installed: {installed(sources[of])})" for of in sorted(packages))
            warnings.warn(
                f"{corpus}, {roles}: {len(texts) - n_missing:,} of {len(texts):,} texts are the lab's; the others are "
                f"from {changed} and are left out",
                stacklevel=2,
            )
        return texts

    def _read(self, corpus: str, rows: Sequence[Row]) -> list[str | None]:
        places = [row.place for row in rows if row.place]
        if not places:
            return [row.text for row in rows]
        kind = "code" if self.card(corpus)["recipe"]["source"] == "code" else "docstring"
        files = {(place.package, place.file): source_file(place.package, place.file) for place in places}
        stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files.values() if file]
        made_by: dict[str, Any] = {"files": stamps, "what": kind, **versions_of("gathering")}
        return cached("lab_texts", lambda: read_places(kind, places), JSON, places=hash_of(places), **made_by)

    def check_whole(self, benchmark: str) -> None:
        """ValueError unless all texts of a benchmark's corpora that a coin decided on can be read here."""
        for corpus in corpora_of(benchmark):
            rows = self.rows(corpus, *ROLES)
            if n_missing := self._read(corpus, rows).count(None):
                raise ValueError(
                    f"{corpus}: {n_missing:,} of {len(rows):,} texts can't be read here, and training needs them all; "
                    f"install {' '.join(self.card(corpus)['sources'])}"
                )

    # --- benchmarks and corpora ---

    def benchmark(self, name: str) -> Benchmark:
        """The members and non-members of a corpus, each text's package its domain.

        `lab/en~lab/elsewhere` takes the members of one corpus and the non-members of another, and `:role` any other
        role: `lab/en:non_member~lab/elsewhere` calls texts members that no model has seen.
        """
        found: list[tuple[str, int, str]] = []
        languages, is_whole = set(), True
        for (corpus, role), label in zip(sides_of(name), (1, 0), strict=True):
            rows = self.rows(corpus, role)
            read = self.read(corpus, rows)
            is_whole = is_whole and None not in read
            found += [(text, label, row.package) for text, row in zip(read, rows, strict=True) if text is not None]
            languages.add(self.card(corpus)["recipe"]["language"])
        if len(languages) > 1:
            raise ValueError(f"{name}: one corpus is in {' and the other in '.join(sorted(languages))}")
        texts = tuple(text for text, _, _ in found)
        revision, labels = self.labels(name)
        return Benchmark(
            name=name,
            texts=texts,
            labels=labels if is_whole else np.array([label for _, label, _ in found], np.int8),
            revision=revision if is_whole else f"{revision}, of which {hash_texts(texts)}",
            language=languages.pop(),
            domains=tuple(package for _, _, package in found),
        )

    def labels(self, benchmark: str) -> tuple[str, NDArray[np.int8]]:
        """What names a benchmark's texts, all of them, and who is a member, (N,), as the coin dealt them out."""
        revision = "~".join(self.card(corpus)["content_hash"] for corpus in corpora_of(benchmark))
        n_of_side = [len(self.rows(*side)) for side in sides_of(benchmark)]
        return revision, np.repeat(np.array([1, 0], np.int8), n_of_side)

    def corpus(self, name: str) -> Iterable[str]:
        """The texts of a role, by default the reference ones."""
        corpus, _, role = name.partition(":")
        return self.texts(corpus, role or "reference")

    def unseen(self, name: str) -> Iterable[str]:
        """The same; ValueError for a role that models are trained on."""
        corpus, _, role = name.partition(":")
        if role in ("member", "background"):
            raise ValueError(f"{name}: the lab's models are trained on these; use {corpus}:reference")
        return self.corpus(name)

    def own_counts(self, corpus: str) -> TokenFrequency | None:
        """Those of its tokenizer in its reference texts; None where no model is trained on the corpus, or of a role."""
        counts = None if ":" in corpus else self.corpus_folder(corpus) / COUNTS
        return TokenFrequency.load(counts) if counts and counts.is_file() else None

    def hashes(self, corpus: str) -> set[str]:
        """The hash of each text of a role, by default the reference ones; no text is read from a package for it."""
        name, _, role = corpus.partition(":")
        rows = self.rows(name, role or "reference")
        return {row.place.hash if row.place else hash_texts([row.text]) for row in rows}

    def language(self, corpus: str) -> str:
        """As its card says."""
        return self.card(corpus.partition(":")[0])["recipe"]["language"]

    def rows_to_write(self, name: str, n: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
        """Texts of a corpus or benchmark, members first: text and label of each (1 = member); where a coin dealt out
        both sides of one corpus, a fixed half, also how often it put in what it put in: once.

        A corpus of non-members alone gives these, `lab/en:background` one role alone. `n` are drawn at random, as many
        of each side, from the packages that are installed, and only their files are read. ValueError where there are
        fewer.
        """
        corpus, is_one_role, role = name.partition(":")
        if is_one_role and "~" not in name:
            sides = [(corpus, role, int(role in ("member", "background")))]
        else:
            sides = [(*side, label) for side, label in zip(sides_of(name), (1, 0), strict=True)]
        is_by_coin = [side[:2] for side in sides] == [(corpus, "member"), (corpus, "non_member")]
        rows_of = {side: self.rows(*side[:2]) for side in sides}
        rows_of = {side: rows for side, rows in rows_of.items() if rows}
        rng, found = np.random.default_rng(seed), []
        for i, ((corpus, role, label), rows) in enumerate(rows_of.items()):
            if n is not None:
                is_here = {package: bool(find_spec(package)) for package in {row.package for row in rows if row.place}}
                rows = [row for row in rows if is_here.get(row.package, True)]
            n_of_side = len(rows) if n is None else (n + len(rows_of) - 1 - i) // len(rows_of)
            if n_of_side > len(rows):
                raise ValueError(f"{corpus} has {len(rows)} texts of the role {role}, and {n_of_side} are asked for")
            drawn = rows if n is None else [rows[i] for i in sorted(rng.choice(len(rows), n_of_side, replace=False))]
            more = {"label": label} | ({COIN_COLUMN: 1} if is_by_coin else {})
            found += [{"text": text} | more for text in self.read(corpus, drawn) if text is not None]
        return found


def _found(kind: str, name: str) -> Path:
    plain, _, seed = name.partition("@")
    folder = stored(kind, plain)
    if folder is None or seed.strip("0"):
        known = ", ".join(f"lab/{path.name}" for path in sorted((FOLDER / kind).iterdir()))
        raise ValueError(
            f"{name} is not stored; stored are {known}. Other recipes and seeds are made by the book's package: in a "
            "clone, `pip install ./book`"
        )
    return folder


def corpora_of(benchmark: str) -> list[str]:
    """The corpora that a benchmark's texts are from."""
    return list(dict.fromkeys(corpus for corpus, _ in sides_of(benchmark)))


def sides_of(benchmark: str) -> list[tuple[str, str]]:
    """Corpus and role of the texts that a benchmark calls members, and of those that it calls non-members."""
    first, _, second = benchmark.partition("~")
    sides = [
        (corpus, given or usual)
        for part, usual in ((first, "member"), (second or first, "non_member"))
        for corpus, _, given in [part.partition(":")]
    ]
    if len(set(sides)) < 2:
        raise ValueError(f"benchmark {benchmark!r} calls the same texts members and non-members")
    return sides


def by_group(values: Sequence[int], n: int) -> list[int]:
    """The value of each of `n` things that stand in as many equal consecutive groups as there are values."""
    return [values[i * len(values) // n] for i in range(n)]


def installed(source: str) -> str:
    """The version of a package ("numpy==2.4.6") that is installed, without what a build adds to it; "none"."""
    try:
        return version(source.partition("==")[0]).partition("+")[0]
    except PackageNotFoundError:
        return "none"


def read_texts(path: Path) -> list[dict[str, str]]:
    """A corpus's texts: role, package and text of each."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().split("\n") if line]


def read_places_file(path: Path) -> list[tuple[str, Place]]:
    """The role and the place of each text of a corpus."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [(role, Place._make(row)._replace(words=int(row[3]))) for role, *row in rows]
