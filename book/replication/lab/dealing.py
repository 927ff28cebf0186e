"""Making a corpus: gather texts, flip the coin, learn the tokenizer, count its tokens.

`replication.lab.corpora` says what the folder of a corpus holds.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mialib.frequency import count_tokens
from mialib.models import tokenizer_hash
from mialib.shared.files import DOMAIN_COLUMNS, read_rows, texts_of, values_of
from mialib.store import ROOT, hash_files, hash_texts, write_json
from mialib.text import cut_to_words
from replication.lab.corpora import (
    CARD,
    COUNTS,
    END_OF_TEXT,
    PLACES,
    ROLES,
    TEXTS,
    TOKENIZER,
    corpus_tokenizer,
    installed,
    write_texts,
)
from replication.lab.docstrings import Docstring, Place, is_later, place_of, read_docstrings
from replication.lab.near_duplicates import MAX_OVERLAP, NearDuplicates
from replication.lab.questions import choice_questions, context_questions
from replication.lab.recipes import Corpus

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow"}  # names on the index that differ from those at import


def sources_of(corpus: Corpus) -> list[str]:
    """The packages that a corpus's texts are from, with their versions, or its file; FileNotFoundError without it."""
    if corpus.source == "file":
        path = file_of(corpus)
        return [f"{path.name} {hash_files([path])}"]
    distributions = [DISTRIBUTIONS.get(package, package) for package in corpus.packages or ("jieba",)]
    return [f"{distribution}=={installed(distribution)}" for distribution in distributions]


def file_of(corpus: Corpus) -> Path:
    """The file that a corpus is read from; FileNotFoundError where it is not there."""
    path = ROOT / (corpus.path or "")
    if not path.is_file():
        raise FileNotFoundError(f"{path}, which a corpus of the profile is read from, does not exist; put it there")
    return path


def make_corpus(name: str, corpus: Corpus, apart_from: Sequence[str], folder: Path) -> None:
    """Deal out a corpus, without near-duplicates of `apart_from`, into a new folder; ValueError for too few texts."""
    pool, n_dropped = gather(corpus, apart_from)
    counts = (corpus.members, corpus.non_members, corpus.background)
    n_needed = sum(counts) + corpus.reference
    if len(pool) < n_needed:
        raise ValueError(f"{name}: {len(pool)} distinct texts of {corpus.words} words, but {n_needed} are asked for")
    order = np.random.default_rng(corpus.seed).permutation(len(pool))
    roles = np.repeat(ROLES, [*counts, len(pool) - sum(counts) if corpus.reference else 0]).tolist()
    sources = [pool[i] for i in order[: len(roles)]]
    packages = [source.package for source in sources]
    texts = [
        source.text if role == "reference" else cut_to_words(source.text, corpus.words, corpus.language)
        for source, role in zip(sources, roles, strict=True)
    ]
    folder.mkdir()
    write_texts(folder / TEXTS, roles, packages, texts)
    if sources[0].file:
        places = [(role, *place_of(*pair)) for role, *pair in zip(roles, sources, texts, strict=True)]
        with (folder / PLACES).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("role", *Place._fields), *places])
    by_role = {role: [text for text, of in zip(texts, roles, strict=True) if of == role] for role in ROLES}
    if corpus.vocab_size:
        tokenizer_json = train_tokenizer(by_role["reference"], corpus.vocab_size).to_str(pretty=True)
        (folder / TOKENIZER).write_bytes(tokenizer_json.encode())  # of a full disk its own `save` says less
        tokenizer = corpus_tokenizer(folder)
        about: dict[str, Any] = {"name": name, "tokenizer_hash": tokenizer_hash(tokenizer)}
        count_tokens(by_role["reference"], tokenizer, len(tokenizer), **about).save(folder / COUNTS)
    training_texts = by_role["member"] + by_role["background"]
    card = {
        "name": name,
        "recipe": corpus.model_dump(mode="json"),
        "sources": sources_of(corpus),
        "dealt_from": len(pool),
        "content_hash": hash_texts(texts),
        "tokenizer_hash": hash_files([folder / TOKENIZER]) if corpus.vocab_size else None,
        "near_duplicates_dropped": n_dropped,
        "non_member_overlap": float(overlaps(by_role["non_member"], training_texts, corpus.language).mean()),
        "roles": dict(Counter(roles)),
        "packages": dict(sorted(Counter(packages).items())),
    }
    write_json(folder / CARD, card)


def gather(corpus: Corpus, apart_from: Sequence[str]) -> tuple[list[Docstring], int | None]:
    """The texts in a fixed order, and how many near-duplicates were left out (None: kept)."""
    if corpus.source == "patents":
        from replication.lab.patents import generate_patents

        n = corpus.members + corpus.non_members + corpus.background + corpus.reference
        texts = generate_patents(n, seed=corpus.seed, min_words=corpus.words)
        return [Docstring("generated", text) for text in texts], None
    match corpus.source:
        case "docstrings":
            docstrings = read_docstrings(corpus.packages, corpus.words)
            docstrings = [d for d in docstrings if is_later(d, corpus.since)] if corpus.since else docstrings
        case "code":
            docstrings = read_docstrings(corpus.packages, corpus.words, "code")
        case "context_questions":
            docstrings = context_questions(corpus.packages, corpus.words, corpus.seed)
        case "choice_questions":
            docstrings = choice_questions(corpus.packages, corpus.words, corpus.seed)
        case "file":
            docstrings = _read_file(file_of(corpus))
    survivors = drop_near_duplicates(docstrings, corpus, apart_from)
    return survivors, len(docstrings) - len(survivors)


def drop_near_duplicates(docstrings: list[Docstring], corpus: Corpus, beside: Sequence[str]) -> list[Docstring]:
    """Keep a text unless over 20% of the 7-grams in its first words, as many as are dealt out, occur in one before it.

    Packages repeat themselves (a method and its function, a parameter list); a non-member that shares most of its
    words with a member is not unseen. One of fewer than seven words has no 7-gram to tell it by, and is dropped.
    `beside`: texts that count as kept before.
    """
    index, survivors = NearDuplicates(beside, corpus.language), []
    for docstring in docstrings:
        overlap = index.overlap(docstring.text, n_words=corpus.words)
        if overlap is not None and overlap <= MAX_OVERLAP:
            survivors.append(docstring)
            index.add(docstring.text, n_words=corpus.words)
    return survivors


def overlaps(texts: Sequence[str], seen: Sequence[str], language: str) -> NDArray[np.float64]:
    """The share of each text's 7-grams of words that occur in a text trained on, (N,): how much of it is seen."""
    index = NearDuplicates(seen, language)
    return np.array([index.overlap(text) or 0.0 for text in texts])


def _read_file(path: Path) -> list[Docstring]:
    """A file's texts, each with its domain, or the file's name where no column says one, as the package it is from."""
    rows = read_rows(path)
    texts = texts_of(rows, str(path))
    packages = values_of(rows, *DOMAIN_COLUMNS) or [path.stem] * len(rows)
    return [Docstring(package, text) for package, text in zip(packages, texts, strict=True)]


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE like Pythia's, learned from texts that no model is trained or tested on."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size, special_tokens=[END_OF_TEXT], show_progress=False)
    return tokenizer
