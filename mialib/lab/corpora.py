"""The lab's corpora: texts that a seeded shuffle deals out, so that who is a member is known.

Members and background texts are trained on, non-members and reference texts are not. Members and non-members are one
distribution; only the coin tells them apart. The texts are docstrings, code, generated patents, questions, or those of
any file.

`lab/en` is a corpus and, as a benchmark, its members and non-members (`lab/en~lab/elsewhere`: members of one corpus
against non-members of another). Recipes stand in the profile (`data/profiles/lab.yml`). What is asked for and not
there is made, once.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.lab.docstrings import Docstring, is_later, read_code, read_docstrings
from mialib.lab.questions import choice_questions, context_questions
from mialib.lab.recipes import Corpus, load_recipes
from mialib.shared.files import DOMAIN_COLUMNS, read_rows, texts_of
from mialib.shared.kept import once
from mialib.shared.near_duplicates import MAX_OVERLAP, NearDuplicates
from mialib.store import ROOT, atomic_path, code_hash, hash_files, hash_of, hash_texts, home, version, write_json
from mialib.text import cut_to_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

ROLES = ("member", "non_member", "background", "reference")
END_OF_TEXT = "<|endoftext|>"  # start token of every text, as in Pythia
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
}  # where a package's name on the index is another than at import


def lab_corpus(name: str) -> Path:
    """The folder of a lab corpus (texts.parquet, tokenizer.json, card.json), made first where it is not there."""
    corpus = known_corpus(name)
    made_by = corpus_made_by(corpus)
    folder = home() / "lab" / "corpora" / f"{name.removeprefix('lab/')}-{hash_of([corpus.model_dump(), made_by])}"
    return once(folder, lambda to: _make_corpus(name, corpus, made_by["sources"], to))


def known_corpus(name: str) -> Corpus:
    """A corpus's recipe; ValueError for a name that the profile does not have."""
    corpora = load_recipes().corpora
    if name not in corpora:
        raise ValueError(f"unknown lab corpus {name!r}; known: {', '.join(corpora) or 'none in this profile'}")
    return corpora[name]


def corpus_made_by(corpus: Corpus) -> dict[str, Any]:
    """What else determines a corpus: the versions of the packages that its texts are from, or its file, and the code.

    FileNotFoundError where the file is not there.
    """
    if corpus.source == "file":
        sources = [f"{_file(corpus).name} {hash_files([_file(corpus)])}"]
    else:
        distributions = [DISTRIBUTIONS.get(package, package) for package in corpus.packages or ("jieba",)]
        sources = [f"{distribution}=={version(distribution)}" for distribution in distributions]
    made_by = {
        "sources": sources,
        "code": code_hash("lab.corpora"),
        "tokenizers": version("tokenizers"),
    }
    if corpus.apart_from:
        other = known_corpus(corpus.apart_from)
        made_by["apart_from"] = hash_of([other.model_dump(), corpus_made_by(other)])
    return made_by


def _file(corpus: Corpus) -> Path:
    path = ROOT / corpus.path
    if not path.is_file():
        raise FileNotFoundError(f"{path}, which a corpus of the profile is read from, does not exist; put it there")
    return path


def lab_texts(name: str, role: str) -> list[str]:
    """The texts of a lab corpus that have a role: member, non_member, background or reference."""
    return [row["text"] for row in _rows(name, role)]


def _rows(name: str, role: str) -> list[dict[str, str]]:
    """The texts of a lab corpus that have a role, each with its package."""
    import pyarrow.parquet as pq

    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    return pq.read_table(lab_corpus(name) / "texts.parquet", filters=[("role", "==", role)]).to_pylist()


def lab_benchmark(name: str) -> Benchmark:
    """The members and non-members of a lab corpus, each text's package its domain.

    `lab/en~lab/elsewhere` takes the members of one corpus and the non-members of another, and `:role` any other role:
    `lab/en:non_member~lab/elsewhere` calls texts members that no model has seen.
    """
    sides = _sides(name)
    corpora = [corpus for corpus, _ in sides]
    languages = {known_corpus(corpus).language for corpus in corpora}
    if len(languages) > 1:
        raise ValueError(f"{name}: one corpus is in {' and the other in '.join(sorted(languages))}")
    rows = [_rows(corpus, role) for corpus, role in sides]
    hashes = [lab_card(corpus)["content_hash"] for corpus in dict.fromkeys(corpora)]
    return Benchmark(
        name=name,
        texts=tuple(row["text"] for of_side in rows for row in of_side),
        labels=np.repeat(np.array([1, 0], np.int8), [len(of_side) for of_side in rows]),
        revision="~".join(hashes),
        language=languages.pop(),
        domains=tuple(row["package"] for of_side in rows for row in of_side),
    )


def corpora_of(benchmark: str) -> list[str]:
    """The lab corpora that a lab benchmark's texts are from."""
    return list(dict.fromkeys(corpus for corpus, _ in _sides(benchmark)))


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


def training_overlaps(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The share of each text's 7-grams of words that models of a lab benchmark's first corpus were trained on, (N,).

    None for a benchmark that is not the lab's: what its models were trained on is not known.
    """
    if not name.startswith("lab/"):
        return None
    corpus = corpora_of(name)[0]
    seen = [text for role in ("member", "background") for text in lab_texts(corpus, role)]
    return overlaps(texts, seen, known_corpus(corpus).language)


def lab_card(name: str) -> dict[str, Any]:
    """What a lab corpus is made of: recipe, source versions, counts by role and package, content hash."""
    return json.loads((lab_corpus(name) / "card.json").read_text())


def _make_corpus(name: str, corpus: Corpus, sources: list[str], folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    logger.warning("%s: gathering texts first, once", name)
    folder.mkdir()
    texts, packages, n_dropped = _gather(corpus)
    dealt = (corpus.members, corpus.non_members, corpus.background)
    n_needed = sum(dealt) + corpus.reference
    if len(texts) < n_needed:
        raise ValueError(f"{name}: {len(texts)} distinct texts of {corpus.words} words, but {n_needed} are asked for")
    order = np.random.default_rng(corpus.seed).permutation(len(texts))
    roles = np.repeat(ROLES, [*dealt, len(texts) - sum(dealt) if corpus.reference else 0])
    rows = []
    for i, role in zip(order, roles.tolist(), strict=False):
        text = texts[i] if role == "reference" else cut_to_words(texts[i], corpus.words, corpus.language)
        rows.append({"role": role, "package": packages[i], "text": text})
    pq.write_table(pa.Table.from_pylist(rows), folder / "texts.parquet", compression="zstd")

    by_role = {role: [row["text"] for row in rows if row["role"] == role] for role in ROLES}
    tokenizer = folder / "tokenizer.json"
    if corpus.vocab_size:
        trained = _train_tokenizer(by_role["reference"], corpus.vocab_size)
        tokenizer.write_bytes(trained.to_str(pretty=True).encode())  # of a full disk its own `save` says less
    seen = by_role["member"] + by_role["background"]
    card = {
        "name": name,
        "recipe": corpus.model_dump(),
        "sources": sources,
        "content_hash": hash_texts(row["text"] for row in rows),
        "tokenizer_hash": hash_files([tokenizer]) if corpus.vocab_size else None,
        "near_duplicates_dropped": n_dropped,
        "non_member_overlap": float(overlaps(by_role["non_member"], seen, corpus.language).mean()),
        "roles": dict(Counter(row["role"] for row in rows)),
        "packages": dict(sorted(Counter(row["package"] for row in rows).items())),
    }
    write_json(folder / "card.json", card)


def overlaps(texts: Sequence[str], seen: Sequence[str], language: str) -> NDArray[np.float64]:
    """The share of each text's 7-grams of words that stand in a text trained on, (N,): how much of it is seen."""
    known = NearDuplicates(seen, language)
    return np.array([known.overlap(text) or 0.0 for text in texts])


def drop_near_duplicates(found: list[Docstring], corpus: Corpus, beside: Sequence[str]) -> list[Docstring]:
    """Keep a text unless over 20% of the 7-grams in its first words, as many as are dealt out, stand in one before it.

    Packages repeat themselves (a method and its function, a parameter list); a non-member that shares most of its
    words with a member is not unseen. One of fewer than seven words has no 7-gram to tell it by, and is dropped.
    `beside`: texts that count as kept before.
    """
    known, kept = NearDuplicates(beside, corpus.language), []
    for docstring in found:
        overlap = known.overlap(docstring.text, n_words=corpus.words)
        if overlap is not None and overlap <= MAX_OVERLAP:
            kept.append(docstring)
            known.add(docstring.text, n_words=corpus.words)
    return kept


def _gather(corpus: Corpus) -> tuple[list[str], list[str], int | None]:
    """The texts in a fixed order, the package each is from, and how many near-duplicates were left out (None: kept)."""
    if corpus.source == "patents":
        from mialib.lab.patents import generate_patents

        n = corpus.members + corpus.non_members + corpus.background + corpus.reference
        return generate_patents(n, seed=corpus.seed, min_words=corpus.words), ["generated"] * n, None
    if corpus.source == "docstrings":
        found = read_docstrings(corpus.packages, corpus.words)
        found = [d for d in found if is_later(d, corpus.since)] if corpus.since else found
    elif corpus.source == "code":
        found = read_code(corpus.packages, corpus.words)
    elif corpus.source == "file":
        found = _read_file(_file(corpus))
    else:
        make = {"context_questions": context_questions, "choice_questions": choice_questions}[corpus.source]
        found = make(corpus.packages, corpus.words, corpus.seed)
    dealt = [r for r in ROLES if r != "reference"]
    apart_from = [t for role in dealt for t in lab_texts(corpus.apart_from, role)] if corpus.apart_from else []
    kept = drop_near_duplicates(found, corpus, apart_from)
    return [d.text for d in kept], [d.package for d in kept], len(found) - len(kept)


def _read_file(path: Path) -> list[Docstring]:
    """A file's texts, each with its domain, or the file's name where no column says one, as the package it is from."""
    rows = read_rows(path)
    texts = texts_of(rows, str(path))
    column = next((column for column in DOMAIN_COLUMNS if all(row.get(column) for row in rows)), None)
    return [Docstring(str(row[column]) if column else path.stem, t) for row, t in zip(rows, texts, strict=True)]


def write_pool(name: str, path: Path) -> int:
    """Write all texts that a corpus could deal out, uncut, and their packages to a .parquet file; how many there are.

    On a machine with other packages a corpus from this `file` deals out the same texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        raise ValueError(f"{path}: a pool is written as .parquet, and not as {path.suffix or 'a file without suffix'}")
    texts, packages, _ = _gather(known_corpus(name))
    with atomic_path(path) as temporary:
        pq.write_table(pa.table({"text": texts, "domain": packages}), temporary, compression="zstd")
    return len(texts)


def _train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE like Pythia's, learned from texts that no model is trained or tested on."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size, special_tokens=[END_OF_TEXT], show_progress=False)
    return tokenizer
