"""Files of texts, and of texts with labels: JSONL, JSON, parquet, CSV, TSV, or plain text, one a line; each as .gz too.

An ambiguous file is an error that names the line or row. Blank lines hold no text and have no number.
"""

from __future__ import annotations

import csv
import gzip
import json
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from io import BytesIO, StringIO
from pathlib import Path
from reprlib import repr as short_repr  # of any value, however long or nested
from typing import Any, BinaryIO

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.store import hash_texts
from mialib.text import check_texts, count_copies, excerpt, language_of

TEXT_COLUMNS = ("text", "input", "snippet")  # the names that the public benchmarks use
LABEL_COLUMN = "label"
DOMAIN_COLUMNS = ("domain", "field")
SOURCE_COLUMN = "source"
TIMES_COLUMN = "duplicates"  # how often a text was inserted into training, as Hubble calls it; 0 for a non-member
COIN_COLUMN = "coin_duplicates"  # how often it is inserted if its own fair coin says so; only where coins decided
SPLIT_COLUMN = "split"
VALIDATION_SPLITS = ("dev", "validation")
KNOWN_COLUMNS = {*TEXT_COLUMNS, LABEL_COLUMN, *DOMAIN_COLUMNS, SOURCE_COLUMN, TIMES_COLUMN, COIN_COLUMN, SPLIT_COLUMN}
SEPARATORS = {
    ",": "commas; name the file .csv",
    "\t": "tabs; name the file .tsv",
    ";": "semicolons; save it with commas",
}
MOST_NAMED = 20  # columns in an error message
STANDARD_INPUT = "-"  # instead of a file's name
Rows = list[dict[str, Any]]

logger = logging.getLogger(__name__)


def load_texts(path: str | Path) -> list[str]:
    """Read the texts of a file of any form, without labels."""
    return texts_of(read_rows(path), str(path))


def texts_of(rows: Rows, name: str, text_column: str | None = None) -> list[str]:
    """The texts of a file's rows: of the wanted column, or of the first of TEXT_COLUMNS that is there."""
    if not rows:
        raise ValueError(f"{name} holds no rows")
    columns = (plain_name(text_column),) if text_column else TEXT_COLUMNS
    column = next((column for column in columns if column in rows[0]), None)
    if column is None:
        raise ValueError(f"{name}: no column {' or '.join(columns)} with the texts; it has {_names(rows[0])}")
    return check_texts([row.get(column) for row in rows], name)


def first_of(names: Sequence[str], most: int) -> str:
    """The first names with commas between them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _names(columns: Iterable[str]) -> str:
    return first_of(list(map(excerpt, columns)), MOST_NAMED)


def read_benchmark(
    path: str | Path, *, text_column: str | None = None, label_column: str = LABEL_COLUMN, language: str | None = None
) -> Benchmark:
    """Read a file with columns, one text a row, as a benchmark; `language` is by default `language_of` the texts."""
    rows = read_rows(path, text_column, label_column)
    return benchmark_of_rows(rows, str(path), text_column=text_column, label_column=label_column, language=language)


def benchmark_of_rows(
    rows: Rows,
    name: str,
    *,
    text_column: str | None = None,
    label_column: str = LABEL_COLUMN,
    language: str | None = None,
    revision: str | None = None,
) -> Benchmark:
    """The benchmark in a file's rows; without labels, a text that was inserted once or more is a member."""
    texts, times, column = texts_of(rows, name, text_column), times_of(rows, name), plain_name(label_column)
    labels = labels_of(rows, name, column)
    if labels is None:
        raise ValueError(f"{name}, row 1: no column {column!r} with the labels (1 = member); it has {_names(rows[0])}")
    for number, (n, label) in enumerate(zip(times, labels, strict=False), start=1):
        if (n > 0) != label:
            raise ValueError(f"{name}, row {number}: label {label}, and {TIMES_COLUMN} says {n}")
    if copies := count_copies(texts):
        warnings.warn(
            f"{name}: {copies} of its {len(texts)} texts are copies of others; intervals take all for independent, and "
            "are too narrow. Leave the copies out",
            stacklevel=4,
        )
    return Benchmark(
        name=name,
        texts=tuple(texts),
        labels=np.array(labels, np.int8),
        domains=values_of(rows, *DOMAIN_COLUMNS),
        validation=tuple(i for i, row in enumerate(rows) if row.get(SPLIT_COLUMN) in VALIDATION_SPLITS),
        sources=values_of(rows, SOURCE_COLUMN),
        times=times,
        revision=revision or hash_texts([*texts, *map(str, labels)]),
        language=language or language_of(texts),
    )


def n_lacking(rows: Rows, column: str) -> int:
    """How many rows have no value in a column; 0 is one."""
    return sum(row.get(column) in (None, "") for row in rows)


def values_of(rows: Rows, *columns: str) -> tuple[str, ...]:
    """The values in the first of these columns that no row lacks; empty without such a column."""
    column = next((column for column in columns if not n_lacking(rows, column)), None)
    return tuple(str(row[column]) for row in rows) if column else ()


def labels_of(rows: Rows, name: str, column: str = LABEL_COLUMN) -> list[int] | None:
    """The labels of a file's rows, 1 = member; without labels, a text inserted once or more is one. None without both.

    ValueError for a label that is neither 0 nor 1, and where some rows have none.
    """
    if not any(column in row for row in rows):
        return [int(n > 0) for n in times_of(rows, name)] or None
    labels: list[Any] = [row.get(column) for row in rows]
    for number, label in enumerate(labels, start=1):
        if label not in (0, 1, "0", "1"):  # a CSV's cells are text
            raise ValueError(f"{name}, row {number}: {column} {short_repr(label)} is neither 0 nor 1 (1 = member)")
    return [int(label) for label in labels]


def times_of(rows: Rows, name: str, column: str = TIMES_COLUMN) -> tuple[int, ...]:
    """How often each row's text was inserted; empty where no row says it, ValueError where only some do."""
    if not any(column in row for row in rows):
        return ()
    times = [row.get(column) for row in rows]
    for number, n in enumerate(times, start=1):
        if not (isinstance(n, int | str) and str(n).isdecimal()):
            raise ValueError(f"{name}, row {number}: {column} {short_repr(n)} is no number of times")
    return tuple(int(str(n)) for n in times)


# --- forms of files ---


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line}: not UTF-8 text; save it as UTF-8") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A row from its names and values; ValueError for a repeated name: a dict would keep the last one."""
    counts = Counter(name for name, _ in pairs if name)
    if counts and max(counts.values()) > 1:
        raise ValueError(f"{excerpt(counts.most_common(1)[0][0])} is there twice")
    return dict(pairs)


def _parse(content: str, line: int | None = None) -> Any:
    """The value of a file of JSON, or of one line."""
    try:
        return json.loads(content, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        raise ValueError(f"{place}: not JSON ({error.msg}); one object a line is .jsonl, one list is .json") from None
    except ValueError as error:
        raise ValueError(f"line {line}: {error}" if line else str(error)) from None


def _read_jsonl(content: bytes) -> list[Any]:
    lines = enumerate(StringIO(_text(content), newline=None), start=1)
    return [_parse(line, number) for number, line in lines if not line.isspace()]


def _read_json(content: bytes) -> list[Any]:
    """A list of objects, or of texts."""
    items = _parse(_text(content))
    if not isinstance(items, list):
        raise ValueError(f"a list is expected, got {type(items).__name__}; one object a line is .jsonl")
    return [{"text": item} if isinstance(item, str) else item for item in items]


def _read_parquet(content: bytes) -> Rows:
    import pyarrow.parquet as pq

    # Without threads: one that still starts while a command ends would crash it.
    table = pq.ParquetFile(BytesIO(content), pre_buffer=False).read(use_threads=False)
    _unique([(name, None) for name in table.column_names])
    return table.to_pylist()


def _read_csv(content: bytes, delimiter: str = ",") -> Rows:
    """Every row must have as many cells as the header: a text may hold a comma without its quotes."""
    csv.field_size_limit(2**31 - 1)  # of a cell: texts may be long
    stream = StringIO(_text(content), newline="")
    header = next(filter(str.strip, stream), "")
    stream.seek(0)
    for sign, said in SEPARATORS.items() if delimiter not in header else ():
        cells = [plain_name(cell.strip().strip('"')) for cell in header.split(sign)]
        if sign in header and all(cells) and KNOWN_COLUMNS & {*cells}:
            raise ValueError(f"line 1: its columns are separated by {said}")
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    rows: Rows = []
    try:
        lines = filter(None, reader)  # no blank ones
        names = next(lines, [])
        _unique([(name, None) for name in names])
        for cells in lines:
            unnamed = any(cell and not name for name, cell in zip(names[1:], cells[1:], strict=False))
            if len(cells) != len(names) or unnamed:
                said = f"{len(cells)} cells, and the header names {sum(map(bool, names))} columns"
                line = excerpt(delimiter.join(cells))
                raise ValueError(f"{said}; is a {delimiter!r} in a text without its quotes? {line}")
            rows.append({name: cell for name, cell in zip(names, cells, strict=True) if name})
    except (csv.Error, ValueError) as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None
    return rows


def _read_txt(content: bytes) -> Rows:
    return [{"text": line.rstrip("\n")} for line in StringIO(_text(content), newline=None)]


READERS: dict[str, Callable[[bytes], list[Any]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".txt": _read_txt,
}


def form_of(path: str | Path) -> str:
    """A file's form: the ending of its name in small letters, without .gz."""
    return Path(str(path).lower().removesuffix(".gz")).suffix


def is_file_of_texts(name: str) -> bool:
    """Whether a name is that of a file that `read_rows` reads, or of standard input."""
    return name == STANDARD_INPUT or form_of(name) in READERS


def read_rows(path: str | Path, *columns: str | None) -> Rows:
    """Read the rows of a file, or of standard input where the path is `-`; a line of plain text is a row with `text`.

    A column that mialib knows, or one of `columns`, has its `plain_name` in each row, however the file spells it.
    FileNotFoundError or ValueError say which file, line or column is wrong.
    """
    name, form = str(path), form_of(path)
    if not is_file_of_texts(name):
        raise ValueError(f"{path}: a file of texts is expected, ending in {', '.join(READERS)}, each also as .gz")
    content = _standard_input(sys.stdin.buffer) if name == STANDARD_INPUT else Path(path).read_bytes()
    plain_columns = KNOWN_COLUMNS | {plain_name(column) for column in columns if column}
    rows: Rows = []
    try:
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        form = form or _form_of_content(content)
        for number, row in enumerate(READERS[form](content), start=1):
            if not isinstance(row, dict):
                raise ValueError(f"row {number}: an object is expected, got {type(row).__name__}")
            names = [plain if (plain := plain_name(column)) in plain_columns else column for column in row]
            if len({*names}) < len(names):
                raise ValueError(f"row {number}: a column is there twice: {_names(row)}")
            rows.append(dict(zip(names, row.values(), strict=True)))
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # a damaged file's are of many classes
        raise ValueError(f"{name}: {' '.join(str(error).splitlines()):.400}") from None
    if blank := [i for i, row in enumerate(rows, start=1) if form == ".txt" and not row["text"].strip()]:
        said = "%s: blank lines hold no text and have no number: %d of %d, the first is line %d"
        logger.warning(said, name, len(blank), len(rows), blank[0])
        rows = [row for row in rows if row["text"].strip()]
    return rows


@lru_cache(maxsize=1)  # it can be read only once
def _standard_input(stream: BinaryIO) -> bytes:
    return stream.read()


def _form_of_content(content: bytes) -> str:
    """Guess the form of standard input by its first line."""
    first = content.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0].decode(errors="replace")
    form = ".parquet" if content.startswith(b"PAR1") else {"{": ".jsonl", "[": ".json"}.get(first[:1], ".txt")
    if {plain_name(cell).strip('"') for cell in re.split(f"[{''.join(SEPARATORS)}]", first)} & set(TEXT_COLUMNS):
        form = ".tsv" if "\t" in first else ".csv"
    logger.info("standard input: read as %s%s", form, ", one text a line" if form == ".txt" else "")
    return form


def plain_name(column: str) -> str:
    """A column's name in small letters and without spaces around it."""
    return column.strip().casefold()
