"""Benchmarks by name: files, the lab's, and the papers' from the hub or a local copy, as `data/benchmarks.yml` says.

A name is NAME[/CHOICE...][-LENGTH]: `wikimia-64`, `mimir/github/ngram_13_0.8`, `dolma_book/middle-1024`. A local copy
is what the entry's `local` names under $MIALIB_BENCHMARKS, or the hub's own folder there (`swj0419/WikiMIA`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mialib.benchmarks import Benchmark
from mialib.catalog.hub import Unavailable, cached_snapshots, explain, find_revision, local_copy, why_unreachable
from mialib.catalog.registry import HubPart, KnownBenchmark, known_benchmarks
from mialib.catalog.sources import find
from mialib.extras import require
from mialib.shared import files
from mialib.shared.files import LABEL_COLUMN, READERS, SPLIT_COLUMN, Rows, benchmark_of_rows, read_rows


@dataclass(frozen=True)
class Part:
    """A benchmark of the registry, with its choices and length filled in."""

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
    """The benchmark of a name; ValueError for a choice or length that it lacks, and for two different lengths."""
    stem, dash, ending = name.rpartition("-")
    lengths = {int(ending)} if dash and ending.isdecimal() else set()  # in the name
    key, *wanted = (stem if lengths else name).split("/")
    entry = known_benchmarks()[key]
    defaults = [values[0] for values in entry.choices.values()]
    chosen: dict[str, str | int] = dict(zip(entry.choices, wanted + defaults[len(wanted) :], strict=False))
    is_choice = len(wanted) <= len(defaults) and all(chosen[choice] in of for choice, of in entry.choices.items())
    lengths |= {length} if length and entry.lengths else set()
    if not is_choice or len(lengths) != bool(entry.lengths) or not lengths <= {*entry.lengths}:
        form = "/".join([key, *(f"<{'|'.join(of)}>" for of in entry.choices.values())])
        form += f"-<{'|'.join(map(str, entry.lengths))}>" if entry.lengths else ""
        raise ValueError(f"unknown benchmark {name!r}, length {length}; it comes as {form}")
    full_name = "/".join([key, *map(str, chosen.values())])
    if not lengths:
        return Part(full_name, entry, chosen, None)
    (number,) = lengths
    return Part(f"{full_name}-{number}", entry, chosen | {"length": number}, number)


def load_benchmark(
    name: str | Path,
    length: int | None = None,
    *,
    text_column: str | None = None,
    label_column: str = LABEL_COLUMN,
    language: str | None = None,
) -> Benchmark:
    """Load a benchmark by name (`lab/en`, `wikimia-64`) or from a file with columns.

    `length` is a number of words. It chooses the split of a benchmark that is published at several lengths; the texts
    of any other benchmark are cut to it. `text_column`, `label_column` and `language` (else: `language_of` the texts)
    are for files only. FileNotFoundError or ValueError say which file, line or name is wrong, and what is expected.

    >>> bench = load_benchmark("examples/texts.jsonl")
    >>> len(bench), bench.labels[:2].tolist(), bench.texts[0][:16]
    (10, [1, 0], 'Call me Ishmael.')
    """
    name = str(name)
    if stored := find(name).benchmark():
        benchmark = stored
    elif files.is_file_of_texts(name):
        benchmark = files.read_benchmark(name, text_column=text_column, label_column=label_column, language=language)
    elif is_published(name):
        return _load_published(find_part(name, length), length)
    else:
        names = ", ".join([*known_benchmarks(), "lab/en", "lab/zh"])
        raise ValueError(f"unknown benchmark {name!r}; known: {names}, or a file ending in {', '.join(READERS)}")
    return benchmark if length is None else benchmark.cut(length)


def _load_published(part: Part, length: int | None) -> Benchmark:
    """Load a benchmark from a local copy if there is one, else from the hub.

    Unavailable, in one sentence, where neither works; ValueError where a column is missing.
    """
    entry = part.known
    copies = [copy for path in entry.local if (copy := local_copy(part.fill(path), "dataset"))]
    if copies and len(copies) == len(entry.local):
        rows = [{SPLIT_COLUMN: copy.stem.rpartition("_")[2]} | row for copy in copies for row in read_rows(copy)]
        source, revision = ", ".join(map(str, copies)), None
    else:
        rows, source, revision = _rows_from_hub(part)
    if entry.nested:  # a JSON object, parsed already or not
        inner = [json.loads(i) if isinstance(i := row.get(entry.nested), str) else i or {} for row in rows]
        rows = [its | row for its, row in zip(inner, rows, strict=True)]
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in entry.columns if column not in row]:
            columns = ", ".join(column for column in row if column != SPLIT_COLUMN)  # that one is ours
            pin = "; if the data set was changed, pin an older commit of it in data/revisions.yml" if revision else ""
            raise ValueError(f"{source}, row {number}: no column {missing[0]!r} of {entry.title}, but {columns}{pin}")
    benchmark = benchmark_of_rows(
        rows, part.name, text_column=entry.columns[0], revision=revision, language=entry.language
    )
    return benchmark if part.length or length is None else benchmark.cut(length)


def _rows_from_hub(part: Part) -> tuple[Rows, str, str | None]:
    """The rows, where they are from, and the commit; a folder of the hub's layout has none."""
    entry = part.known
    if entry.hub_id is None:
        paths = " and ".join(part.fill(path) for path in entry.local)
        raise Unavailable(f"{entry.title} is on no hub; put it at {paths} under $MIALIB_BENCHMARKS. {entry.note}")
    if not all(piece.file for piece in entry.hub):
        require("datasets", entry.title)
    folder = local_copy(entry.hub_id, "dataset")
    if folder:
        try:
            return [row for piece in entry.hub for row in _rows_of(piece, part, folder, None)], str(folder), None
        except Exception as error:
            raise ValueError(f"{folder}: not the hub's data set ({type(error).__name__}: {error})") from error
    revision = find_revision(entry.hub_id, "dataset")
    try:
        if why_unreachable() and revision not in {path.name for path in cached_snapshots(entry.hub_id, "dataset")}:
            raise ConnectionError
        rows = [row for piece in entry.hub for row in _rows_of(piece, part, None, revision)]
    except Exception as error:
        raise explain(entry.hub_id, "dataset", error) from error
    return rows, f"{entry.hub_id}@{revision}", revision


def _rows_of(piece: HubPart, part: Part, folder: Path | None, revision: str | None) -> Rows:
    """The rows of a split or a file of a data set: in a folder, else on the hub at a commit."""
    hub_id = str(part.known.hub_id)
    if piece.file:
        from huggingface_hub import hf_hub_download

        name = part.fill(piece.file)
        file = folder / name if folder else hf_hub_download(hub_id, name, repo_type="dataset", revision=revision)
        if not piece.role:
            return read_rows(file)
        with open(file, encoding="utf-8") as lines:  # a text may hold other line separators, such as U+2028
            return [{"text": json.loads(line), "label": int(piece.role == "member")} for line in lines if line.strip()]
    load_dataset = require("datasets", part.known.title).load_dataset
    of_piece = {"name": piece.config and part.fill(piece.config), "split": piece.split and part.fill(piece.split)}
    if folder:
        # What `datasets` prepares of a folder it takes for any other of that name, and for what changes in it.
        with TemporaryDirectory() as prepared:
            rows = load_dataset(str(folder), **of_piece, cache_dir=prepared).to_list()
    else:
        data = load_dataset(hub_id, revision=revision, **of_piece)
        commit = Path(data.cache_files[0]["filename"]).parent.name
        if commit != revision:  # offline, `datasets` takes whatever it prepared last
            said = f"the cache of {hub_id} holds commit {commit}, and {revision} is wanted"
            raise Unavailable(f"{said}; fetch it while the hub can be reached")
        rows = data.to_list()
    return [({SPLIT_COLUMN: piece.role} if piece.role else {}) | row for row in rows]
