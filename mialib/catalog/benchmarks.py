"""Benchmarks by name: files, the lab's, and the papers' from the hub or a local copy, as `data/benchmarks.yml` says.

A name is NAME[/CHOICE...][-LENGTH]: `wikimia-64`, `mimir/github/ngram_13_0.8`, `dolma_book/middle-1024`. A local copy
is what the entry's `local` names under $MIALIB_BENCHMARKS, or the hub's own folder there (`swj0419/WikiMIA`).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mialib.benchmarks import Benchmark
from mialib.catalog.hub import Unavailable, cached_snapshots, explain, find_revision, local_copy, why_not_asked
from mialib.catalog.registry import HubPart, KnownBenchmark, known_benchmarks
from mialib.catalog.sources import source_of
from mialib.shared.files import (
    LABEL_COLUMN,
    READERS,
    SPLIT_COLUMN,
    benchmark_of_rows,
    is_file_of_texts,
    read_benchmark,
    read_rows,
)

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Part:
    """One benchmark of those that a name of the registry stands for."""

    name: str  # in full, the defaults filled in
    known: KnownBenchmark
    chosen: dict[str, str | int]  # what stands for the entry's braces
    length: int | None  # in words, where it is published at several lengths

    def fill(self, pattern: str) -> str:
        """A pattern of the registry with its braces filled."""
        return pattern.format(**self.chosen)


def is_published(name: str) -> bool:
    """Whether a name belongs to a benchmark of the registry."""
    return re.split(r"/|-\d+$", name, maxsplit=1)[0] in known_benchmarks()


def find_part(name: str, length: int | None = None) -> Part:
    """What a name means; ValueError for a choice or a length that the benchmark does not come in, and for a `length`
    other than the name's."""
    asked, (stem, dash, ending) = name, name.rpartition("-")
    if dash and ending.isdecimal():
        if length not in (None, int(ending)):
            raise ValueError(f"{asked} is of {ending} words, and {length} are asked for; give one length")
        name, length = stem, int(ending)
    key, *wanted = name.split("/")
    known = known_benchmarks()[key]
    if name != asked and not known.lengths:
        raise ValueError(f"unknown benchmark {asked!r}: {key} comes at no lengths; to cut it, give length={length}")
    if len(wanted) > len(known.choices):
        raise ValueError(f"{key} is chosen from by {' and '.join(known.choices) or 'nothing'}; {name!r} names more")
    chosen: dict[str, str | int] = {}
    for i, (choice, values) in enumerate(known.choices.items()):
        chosen[choice] = wanted[i] if i < len(wanted) else values[0]
        if chosen[choice] not in values:
            raise ValueError(f"{key} has no {choice} {chosen[choice]!r}; it has: {', '.join(values)}")
    full_name = "/".join([key, *map(str, chosen.values())])
    if not known.lengths:
        return Part(full_name, known, chosen, None)
    if length not in known.lengths:
        asked = "; name one, such as" if length is None else f", not {length}; such as"
        lengths = ", ".join(map(str, known.lengths))
        raise ValueError(f"{key} comes at lengths {lengths}{asked} {full_name}-{known.lengths[0]}")
    return Part(f"{full_name}-{length}", known, chosen | {"length": length}, length)


def load_benchmark(
    name: str | Path,
    length: int | None = None,
    *,
    text_column: str | None = None,
    label_column: str = LABEL_COLUMN,
    language: str | None = None,
) -> Benchmark:
    """Load a benchmark by name (`lab/en`, `wikimia-64`) or from a file with columns.

    `length` is a number of words: it chooses the split of a benchmark that is published at several lengths, and cuts
    the texts of any other. `text_column`, `label_column` and `language` (by default `language_of` the texts) matter for
    files alone. FileNotFoundError or ValueError say which file, line or name is wrong, and what is expected.
    """
    name = str(name)
    if own := source_of(name).benchmark(name):
        benchmark = own
    elif is_file_of_texts(name):
        benchmark = read_benchmark(name, text_column=text_column, label_column=label_column, language=language)
    elif is_published(name):
        return load_published_benchmark(name, length)
    else:
        raise ValueError(
            f"unknown benchmark {name!r}; known: {', '.join(known_benchmarks())}, the lab's (lab/en, lab/zh), "
            f"or a file ending in {', '.join(READERS)}"
        )
    return benchmark if length is None else benchmark.cut(length)


def load_published_benchmark(name: str, length: int | None = None) -> Benchmark:
    """A published benchmark, from a local copy where there is one, else from the hub; `length` as in `load_benchmark`.

    Unavailable, in one sentence, where it can't be had; ValueError where its columns are others than they were.
    """
    part = find_part(name, length)
    copies = [copy for path in part.known.local if (copy := local_copy(part.fill(path), "dataset"))]
    if copies and len(copies) == len(part.known.local):
        rows = [{SPLIT_COLUMN: copy.stem.rpartition("_")[2]} | row for copy in copies for row in read_rows(copy)]
        source, revision = ", ".join(map(str, copies)), None
    else:
        rows, source, revision = _rows_from_hub(part)
    rows = [_unnested(row, part.known.nested) for row in rows]
    check_columns(rows, part.known, source)
    benchmark = benchmark_of_rows(
        rows, part.name, text_column=part.known.columns[0], revision=revision, language=part.known.language
    )
    return benchmark if part.length or length is None else benchmark.cut(length)


def _unnested(row: dict[str, Any], column: str | None) -> dict[str, Any]:
    """A row with what stands in a column's JSON object; its own columns count."""
    inner = row.get(column) if column else {}
    return (json.loads(inner) if isinstance(inner, str) else inner or {}) | row


def check_columns(rows: list[dict[str, Any]], known: KnownBenchmark, source: str) -> None:
    """ValueError where a row lacks a column that the benchmark had when it was registered."""
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in known.columns if column not in row]:
            there = ", ".join(column for column in row if column != SPLIT_COLUMN)  # that one is ours
            do = (
                "; if the data set was changed, pin an older commit of it in data/revisions.yml"
                if "@" in source
                else ""
            )
            raise ValueError(
                f"{source}, row {number}: {known.title} has the columns {', '.join(known.columns)}, and here is no "
                f"{missing[0]!r} but {there}{do}"
            )


def _rows_from_hub(part: Part) -> tuple[list[dict[str, Any]], str, str | None]:
    """The rows, where they are from, and the commit; a folder of the hub's layout has none."""
    known = part.known
    if known.hub_id is None:
        files = " and ".join(part.fill(path) for path in known.local)
        raise Unavailable(f"{known.title} is on no hub; put it at {files} under $MIALIB_BENCHMARKS. {known.note}")
    folder = local_copy(known.hub_id, "dataset")
    revision = None if folder else find_revision(known.hub_id, "dataset")
    if (
        revision
        and why_not_asked()
        and revision not in {path.name for path in cached_snapshots(known.hub_id, "dataset")}
    ):
        raise explain(known.hub_id, "dataset", ConnectionError())
    try:
        rows = [row for of in known.hub for row in _rows_of(of, part, known.hub_id, folder, revision)]
    except Exception as error:
        if folder:
            raise ValueError(
                f"{folder}: not the data set that the hub has ({type(error).__name__}: {error})"
            ) from error
        raise explain(known.hub_id, "dataset", error) from error
    return rows, str(folder or f"{known.hub_id}@{revision}"), revision


def _rows_of(of: HubPart, part: Part, hub_id: str, folder: Path | None, revision: str | None) -> list[dict[str, Any]]:
    if of.file:
        path = _file(part.fill(of.file), hub_id, folder, revision)
        opened: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:  # a text may hold other line separators, such as U+2028
            texts = [json.loads(line) for line in lines if line.strip()]
        if not of.role:
            return texts
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise ValueError(f"{path}, line {number}: a text as a JSON string is expected, got {text!r:.60}")
        return [{"text": text, "label": int(of.role == "member")} for text in texts]
    from datasets import load_dataset

    where: dict[str, Any] = {"path": str(folder)} if folder else {"path": hub_id, "revision": revision}
    data = load_dataset(**where, name=of.config and part.fill(of.config), split=of.split and part.fill(of.split))
    if not folder:
        _check_commit(data, revision, hub_id)
    return [({SPLIT_COLUMN: of.role} if of.role else {}) | row for row in data.to_list()]


def _check_commit(data: Dataset, revision: str | None, hub_id: str) -> None:
    """Unavailable where `datasets`, which offline takes whatever it prepared last, took another commit."""
    commit = Path(data.cache_files[0]["filename"]).parent.name
    if commit != revision:
        raise Unavailable(
            f"the cache of {hub_id} holds commit {commit}, and {revision} is wanted (data/revisions.yml, or the one "
            "that was first used here); fetch it while the hub can be reached"
        )


def _file(name: str, hub_id: str, folder: Path | None, revision: str | None) -> Path:
    if folder:
        return folder / name
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(hub_id, name, repo_type="dataset", revision=revision))
