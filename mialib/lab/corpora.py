"""The lab's corpora: texts that a seeded shuffle deals out, so that who is a member is known.

Members and background texts are trained on, non-members and reference texts are not. Members and non-members are one
distribution; only the coin tells them apart. The texts are docstrings, code, generated patents, questions, or those of
any file.

`lab/en` is a corpus and, as a benchmark, its members and non-members (`lab/en~lab/elsewhere`: members of one corpus
against non-members of another). The recipes are in the profile (`data/profiles/lab.yml`). The lab's corpora are stored
in `data/lab`; a corpus of another recipe is made where it is asked for, once.

Who has which role is stored, and so are Chinese texts. English ones are read from the packages that are installed. A
text that another version of a package no longer has is left out with a warning; no other text changes.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.lab import dealing
from mialib.lab.dealing import CARD, COUNTS, PLACES, ROLES, TEXTS, overlaps, sources_of
from mialib.lab.docstrings import Place, read_places, source_file
from mialib.lab.recipes import Corpus, is_lab, load_recipes
from mialib.lab.stored import stored
from mialib.shared.kept import JSON, keep, once
from mialib.store import hash_of, hash_texts, home, version
from mialib.versions import versions_of

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """One text of a corpus: what the coin made it, and where it is from."""

    role: str
    package: str
    text: str  # "" where it is read from its place
    place: Place | None = None


# --- corpora ---


def lab_corpus(name: str) -> Path:
    """The folder of a lab corpus, as `mialib.lab.dealing` describes it: the stored one, else one that is made once."""
    return stored_corpus(name) or deal_again(name)


def stored_corpus(name: str) -> Path | None:
    """The folder of a corpus that is stored as its recipe says, and so is the one that it is apart from."""
    corpus = known_corpus(name)
    if corpus.apart_from and not stored_corpus(corpus.apart_from):
        return None
    return stored("corpora", name, CARD, corpus.model_dump(mode="json"))


def deal_again(name: str) -> Path:
    """The folder of a lab corpus that was dealt out on this machine, from the packages that are installed."""
    corpus = known_corpus(name)
    made_by = [corpus.model_dump(), _made_by(corpus)]
    folder = home() / "lab" / "corpora" / f"{name.removeprefix('lab/')}-{hash_of(made_by)}"

    def make(to: Path) -> None:
        logger.warning("%s: gathering texts first, once", name)
        roles = [role for role in ROLES if role != "reference"]
        apart_from = [t for role in roles for t in lab_texts(corpus.apart_from, role)] if corpus.apart_from else []
        dealing.make_corpus(name, corpus, apart_from, to)

    return once(folder, make)


def _made_by(corpus: Corpus) -> dict[str, Any]:
    """What else determines a corpus: versions of its sources, or its file, and of what deals it out."""
    made_by = {
        "sources": sources_of(corpus),
        "tokenizers": version("tokenizers"),
        **versions_of("gathering", "dealing"),
    }
    if corpus.apart_from:
        made_by["apart_from"] = lab_card(corpus.apart_from)["content_hash"]
    return made_by


def known_corpus(name: str) -> Corpus:
    """A corpus's recipe; ValueError for a name that the profile does not have."""
    corpora = load_recipes().corpora
    if name not in corpora:
        raise ValueError(f"unknown lab corpus {name!r}; known: {', '.join(corpora) or 'none in this profile'}")
    return corpora[name]


def lab_card(name: str) -> dict[str, Any]:
    """What a lab corpus is made of: recipe, source versions, counts by role and package, content hash."""
    return json.loads((lab_corpus(name) / CARD).read_text(encoding="utf-8"))


def counts_file(corpus: str) -> Path:
    """The file of how often each token of a corpus's own tokenizer occurs in its reference texts."""
    return lab_corpus(corpus) / COUNTS


# --- texts ---


def lab_rows(name: str, *roles: str) -> list[Row]:
    """The texts of a lab corpus that have these roles, as the coin dealt them out; none is read from a package yet."""
    if unknown := set(roles) - set(ROLES):
        raise ValueError(f"unknown role {unknown.pop()!r}; known: {', '.join(ROLES)}")
    folder = lab_corpus(name)
    if (folder / PLACES).is_file() and not (folder / TEXTS).is_file():
        dealt = zip(*dealing.read_places_file(folder / PLACES), strict=True)
        rows = [Row(role, place.package, "", place) for role, place in dealt]
    else:
        rows = [Row(row["role"], row["package"], row["text"]) for row in dealing.read_texts(folder / TEXTS)]
    return [row for role in roles for row in rows if row.role == role]


def _read(name: str, rows: Sequence[Row]) -> list[str | None]:
    """The texts of rows of a corpus; None for one that an installed package no longer has."""
    places = [row.place for row in rows if row.place]
    if not places:
        return [row.text for row in rows]
    kind = "code" if known_corpus(name).source == "code" else "docstring"
    files = {(place.package, place.file): source_file(place.package, place.file) for place in places}
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files.values() if file]
    made_by: dict[str, Any] = {"files": stamps, "what": kind, **versions_of("gathering")}
    return keep("lab_texts", lambda: read_places(kind, places), JSON, places=hash_of(places), **made_by)


def texts_of(name: str, rows: Sequence[Row]) -> list[str | None]:
    """The texts of rows of a corpus; None, with a warning, for one that an installed package no longer has."""
    texts = _read(name, rows)
    if n_missing := texts.count(None):
        corpus, roles = known_corpus(name), " and ".join(dict.fromkeys(row.role.replace("_", "-") for row in rows))
        pairs = zip(lab_card(name)["sources"], sources_of(corpus), strict=True)
        sources = dict(zip(corpus.packages, pairs, strict=True))
        packages = {row.package for row, text in zip(rows, texts, strict=True) if text is None}
        changed = ", ".join("{} (installed: {})".format(*sources[package]) for package in sorted(packages))
        warnings.warn(
            f"{name}, {roles}: {len(texts) - n_missing:,} of {len(texts):,} texts are the lab's; the others are from "
            f"{changed} and are left out",
            stacklevel=2,
        )
    return texts


def lab_hashes(name: str, role: str) -> set[str]:
    """The hash of each text of a lab corpus that has a role; no text is read from a package for it."""
    return {row.place.hash if row.place else hash_texts([row.text]) for row in lab_rows(name, role)}


def lab_texts(name: str, role: str) -> list[str]:
    """The texts of a lab corpus that have a role: member, non_member, background or reference."""
    return [text for text in texts_of(name, lab_rows(name, role)) if text is not None]


def check_whole(name: str) -> None:
    """ValueError unless all texts of a corpus that a coin decided on can be read here."""
    rows = lab_rows(name, *ROLES)
    if n_missing := _read(name, rows).count(None):
        raise ValueError(
            f"{name}: {n_missing:,} of {len(rows):,} texts can't be read here, and training needs them all; install "
            f"{' '.join(lab_card(name)['sources'])}"
        )


# --- benchmarks ---


def lab_benchmark(name: str) -> Benchmark:
    """The members and non-members of a lab corpus, each text's package its domain.

    `lab/en~lab/elsewhere` takes the members of one corpus and the non-members of another, and `:role` any other role:
    `lab/en:non_member~lab/elsewhere` calls texts members that no model has seen.
    """
    sides = _sides(name)
    languages = {known_corpus(corpus).language for corpus, _ in sides}
    if len(languages) > 1:
        raise ValueError(f"{name}: one corpus is in {' and the other in '.join(sorted(languages))}")
    revision, found, is_whole = lab_revision(name), [], True
    for (corpus, role), label in zip(sides, (1, 0), strict=True):
        rows = lab_rows(corpus, role)
        read = texts_of(corpus, rows)
        is_whole = is_whole and None not in read
        found += [(t, label, row.package) for t, row in zip(read, rows, strict=True) if t is not None]
    texts = tuple(text for text, _, _ in found)
    return Benchmark(
        name=name,
        texts=texts,
        labels=np.array([label for _, label, _ in found], np.int8),
        revision=revision if is_whole else f"{revision}, of which {hash_texts(texts)}",
        language=languages.pop(),
        domains=tuple(package for _, _, package in found),
    )


def lab_revision(benchmark: str) -> str:
    """What names the texts of a lab benchmark, all of them; no text is read for it."""
    return "~".join(lab_card(corpus)["content_hash"] for corpus in corpora_of(benchmark))


def corpora_of(benchmark: str) -> list[str]:
    """The lab corpora that a lab benchmark's texts are from."""
    return list(dict.fromkeys(corpus for corpus, _ in _sides(benchmark)))


def lab_labels(benchmark: str) -> NDArray[np.int8]:
    """Who is a member among all texts of a lab benchmark, (N,); no text is read for it."""
    n_of_side = [len(lab_rows(*side)) for side in _sides(benchmark)]
    return np.repeat(np.array([1, 0], np.int8), n_of_side)


def _sides(benchmark: str) -> list[tuple[str, str]]:
    """Corpus and role of the texts that a lab benchmark calls members, and of those that it calls non-members."""
    first, _, second = benchmark.partition("~")
    sides = [
        (corpus, given or usual)
        for part, usual in ((first, "member"), (second or first, "non_member"))
        for corpus, _, given in [part.partition(":")]
    ]
    if len(set(sides)) < 2:
        raise ValueError(f"benchmark {benchmark!r} calls the same texts members and non-members")
    return sides


def rows_to_write(name: str, n: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of a corpus or lab benchmark, members first: text and label of each (1 = member).

    A corpus of non-members alone gives these, `lab/en:background` one role alone. `n` are drawn at random, as many of
    each side, and only their files are read. ValueError where there are fewer.
    """
    corpus, is_one_role, role = name.partition(":")
    if is_one_role and "~" not in name:
        sides = [(corpus, role, int(role in ("member", "background")))]
    else:
        sides = [(*side, label) for side, label in zip(_sides(name), (1, 0), strict=True)]
    rows_of = {side: lab_rows(*side[:2]) for side in sides}
    rows_of = {side: rows for side, rows in rows_of.items() if rows}
    rng, found = np.random.default_rng(seed), []
    for i, ((corpus, role, label), rows) in enumerate(rows_of.items()):
        n_of_side = len(rows) if n is None else (n + len(rows_of) - 1 - i) // len(rows_of)
        if n_of_side > len(rows):
            raise ValueError(f"{corpus} has {len(rows)} texts of the role {role}, and {n_of_side} are asked for")
        drawn = rows if n is None else [rows[i] for i in sorted(rng.choice(len(rows), n_of_side, replace=False))]
        found += [{"text": text, "label": label} for text in texts_of(corpus, drawn) if text is not None]
    return found


def training_overlaps(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The share of each text's 7-grams of words that models of a lab benchmark's first corpus were trained on, (N,).

    None for a benchmark that is not the lab's: what its models were trained on is not known.
    """
    if not is_lab(name):
        return None
    corpus = corpora_of(name)[0]
    seen = [text for role in ("member", "background") for text in lab_texts(corpus, role)]
    return overlaps(texts, seen, known_corpus(corpus).language)
