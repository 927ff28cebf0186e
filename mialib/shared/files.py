"""Files of texts, and of texts with labels: JSONL, JSON, parquet, CSV, TSV, or plain text, one a line; each as .gz too.

Each is read as it is written or refused with its line and column. Blank lines and columns without a name hold no text.
"""

from __future__ import annotations

import csv
import gzip
import json
import logging
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from reprlib import repr as short_repr  # of any value, however long or nested
from typing import Any, BinaryIO

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.store import hash_texts
from mialib.text import check_texts, count_copies, excerpt, language_of, printable

TEXT_COLUMNS = ("text", "input", "snippet")  # the names that the public benchmarks use
LABEL_COLUMN = "label"
DOMAIN_COLUMNS = ("domain", "field")
SOURCE_COLUMN = "source"
TIMES_COLUMN = "duplicates"  # how often a text was inserted into training, as Hubble calls it; 0 for a non-member
COIN_COLUMN = "coin_duplicates"  # how often it is inserted if its own fair coin says so; only where coins decided
SPLIT_COLUMN = "split"
VALIDATION_SPLITS = ("dev", "validation")
KNOWN_COLUMNS = {*TEXT_COLUMNS, LABEL_COLUMN, *DOMAIN_COLUMNS, SOURCE_COLUMN, TIMES_COLUMN, COIN_COLUMN, SPLIT_COLUMN}
MOST_NAMED = 20  # columns in an error message
STANDARD_INPUT = "-"  # instead of a file's name
Rows = list[dict[str, Any]]

logger = logging.getLogger(__name__)


def load_texts(path: str | Path, text_column: str | None = None) -> list[str]:
    """The texts of a file of any form that `read_rows` reads, without labels; plain text has no columns to name."""
    text_column = None if form_of(path) == ".txt" else text_column
    return texts_of(read_rows(path, text_column), str(path), text_column)


def texts_of(rows: Rows, name: str, text_column: str | None = None) -> list[str]:
    """The texts of a file's rows: of the wanted column, or of the first known name that is there."""
    if not rows:
        raise ValueError(f"{name} holds no rows")
    columns = (plain_name(text_column),) if text_column else TEXT_COLUMNS
    column = next((column for column in columns if column in rows[0]), None)
    if column is None:
        raise ValueError(
            f"{name}: no text column ({' or '.join(columns)}); it has {_name_columns(rows[0])}. Name one of them text"
        )
    return check_texts([row.get(column) for row in rows], name)


def _name_columns(columns: Iterable[str]) -> str:
    return first_of([name if name.isprintable() and len(name) <= 60 else excerpt(name) for name in columns], MOST_NAMED)


def first_of(names: Sequence[str], most: int) -> str:
    """The first names with commas between them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def read_benchmark(
    path: str | Path, *, text_column: str | None = None, label_column: str = LABEL_COLUMN, language: str | None = None
) -> Benchmark:
    """The benchmark in a file with columns, one text a row; `language` by default `language_of` the texts.

    FileNotFoundError or ValueError say which file, line or column is wrong, and what is expected.
    """
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
    """The benchmark that a file's rows hold; without labels, a text is a member where it was inserted once or more."""
    texts, times = texts_of(rows, name, text_column), times_of(rows, name)
    labels = labels_of(rows, name, plain_name(label_column))
    if labels is None:
        raise ValueError(
            f"{name}, row 1: no column {plain_name(label_column)!r}; it has {_name_columns(rows[0])}. "
            f"Name the one with the labels {plain_name(label_column)}, 1 = member"
        )
    for i, n in enumerate(times):
        if (n > 0) != labels[i]:
            raise ValueError(f"{name}, row {i + 1}: label {labels[i]}, and {TIMES_COLUMN} says {n}")
    if copies := count_copies(texts):
        warnings.warn(
            f"{name}: copies of others among its {len(texts)} texts: {copies}; intervals take all for independent, and "
            "are too narrow. Leave the copies out",
            stacklevel=4,
        )
    domain_column = next((column for column in DOMAIN_COLUMNS if all(row.get(column) for row in rows)), None)
    return Benchmark(
        name=name,
        texts=tuple(texts),
        labels=np.array(labels, np.int8),
        domains=tuple(str(row[domain_column]) for row in rows) if domain_column else (),
        validation=tuple(i for i, row in enumerate(rows) if row.get(SPLIT_COLUMN) in VALIDATION_SPLITS),
        sources=tuple(str(row[SOURCE_COLUMN]) for row in rows) if all(row.get(SOURCE_COLUMN) for row in rows) else (),
        times=times,
        revision=revision or hash_texts([*texts, *map(str, labels)]),
        language=language or language_of(texts),
    )


def labels_of(rows: Rows, name: str, column: str = LABEL_COLUMN) -> list[int] | None:
    """The labels of a file's rows, 1 = member, or by how often each was inserted; None where they say neither.

    ValueError for a label that is neither 0 nor 1, and where some rows have none.
    """
    if not any(column in row for row in rows):
        return [int(n > 0) for n in times_of(rows, name)] or None
    for number, row in enumerate(rows, start=1):
        if column not in row:
            raise ValueError(f"{name}, row {number}: no {column!r}, which other rows have (1 = member)")
        if row[column] not in (0, 1, "0", "1"):  # a CSV's cells are text
            raise ValueError(f"{name}, row {number}: label {short_repr(row[column])} is neither 0 nor 1 (1 = member)")
    return [int(row[column]) for row in rows]


def times_of(rows: Rows, name: str, column: str = TIMES_COLUMN) -> tuple[int, ...]:
    """How often each row's text was inserted, or would be; empty where no row says it. ValueError where some do not."""
    if not any(column in row for row in rows):
        return ()
    times = [row.get(column) for row in rows]
    for number, n in enumerate(times, start=1):
        if not (isinstance(n, int | str) and str(n).isdecimal()):
            raise ValueError(f"{name}, row {number}: {column} {short_repr(n)} is no number of times")
    return tuple(int(str(n)) for n in times)


# --- forms of files ---


def _text(content: bytes, name: str) -> str:
    """A file's content as text. ValueError for other encodings; UTF-16 without its byte-order mark is full of NULs."""
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line, byte = content[: error.start].count(b"\n") + 1, content[error.start]
        raise ValueError(
            f"{name}, line {line}: not UTF-8 text (byte {error.start} of the file is {byte:#04x}); save it as UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ValueError(
            f"{name}, line {line}: a NUL character, which no text holds; if the file is UTF-16, save it as UTF-8"
        )
    return text


def _lines(content: bytes, name: str, newline: str | None = None) -> TextIOWrapper:
    """A file's lines, ended as `open` says of `newline`, without the whole text in memory."""
    _text(content, name)
    return TextIOWrapper(BytesIO(content), "utf-8-sig", newline=newline)


def _read_jsonl(content: bytes, name: str) -> Rows:
    lines = enumerate(_lines(content, name), start=1)
    return _objects(((f"line {n}", _parse(line, name, n)) for n, line in lines if not line.isspace()), name)


def _read_json(content: bytes, name: str) -> Rows:
    """A list of objects, or of texts."""
    items = _parse(_text(content, name), name)
    if not isinstance(items, list):
        raise ValueError(f"{name}: a list is expected, got {type(items).__name__}; one object a line is .jsonl")
    rows = enumerate(({"text": item} if isinstance(item, str) else item for item in items), start=1)
    return _objects(((f"row {n}", row) for n, row in rows), name)


def _objects(values: Iterable[tuple[str, Any]], name: str) -> Rows:
    rows = []
    for where, value in values:
        if not isinstance(value, dict):
            raise ValueError(f"{name}, {where}: an object is expected, got {type(value).__name__}")
        rows.append(value)
    return rows


def _parse(content: str, name: str, line: int | None = None) -> Any:
    """The value of a file's line, or of the whole file."""
    try:
        return json.loads(content, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if line else f"line {error.lineno}, column {error.colno}"
        said = f"not JSON ({error.msg} at {place})"
        said += "; one object a line is .jsonl" if line is None and error.msg == "Extra data" else ""
    except RecursionError:
        said = "nested too deeply to be read"
    except ValueError as error:
        said = str(error)
    raise ValueError(f"{name}{f', line {line}' if line else ''}: {said}")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's names and values; ValueError for a repeated name, of which JSON takes the last."""
    repeated = _first_repeated([name for name, _ in pairs])
    if repeated is not None:
        raise ValueError(f"{excerpt(repeated)} is there twice")
    return dict(pairs)


def _first_repeated(names: Sequence[str]) -> str | None:
    if len(set(names)) == len(names):
        return None
    return next(name for i, name in enumerate(names) if name in names[:i])


def _check_names(names: Sequence[str], where: str) -> None:
    if repeated := _first_repeated([name for name in names if name]):
        second = names.index(repeated, names.index(repeated) + 1)
        raise ValueError(f"{where}, column {second + 1}: another column is named {excerpt(repeated)} too")


def _read_parquet(content: bytes, name: str) -> Rows:
    """Without the columns that hold what Python can't, such as a time in the year 300,000: a warning names them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:  # without threads: where they are still starting while a command ends, they end it by a crash
        table = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)
    except Exception as error:  # a broken file's are of many classes
        raise ValueError(f"{name}: not a readable .parquet file ({_plain(error)})") from None
    _check_names(table.column_names, name)
    columns = {}
    for column, values in zip(table.column_names, table.columns, strict=True):
        try:
            columns[column] = values.to_pylist()
        except UnicodeDecodeError:
            raise ValueError(f"{name}, column {excerpt(column)}: not UTF-8 text; write it anew as UTF-8") from None
        except (ArithmeticError, NotImplementedError, ValueError) as error:
            why = f"{type(error).__name__}: {_plain(error)}"
            warnings.warn(f"{name}: column {excerpt(column)} can't be read and is left out ({why})", stacklevel=4)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _plain(error: Exception) -> str:
    """pyarrow's messages run over several lines and may hold a damaged file's bytes."""
    return printable(" ".join(str(error).split()))


def _read_csv(content: bytes, name: str, delimiter: str | None = None) -> Rows:
    """Every row has as many cells as the header and ends as it does, so no comma and no end of line of an unquoted text
    is taken for the file's. Semicolons divide the cells where the header has them and no comma."""
    csv.field_size_limit(2**31 - 1)  # of a cell: texts may be long
    raw = list(_lines(content, name, newline=""))
    if delimiter is None:
        header = {sign: next(filter(None, csv.reader(raw, delimiter=sign)), []) for sign in ",;"}
        delimiter = next((sign for sign, cells in header.items() if len(cells) > 1), ",")
    reader, lines, first = csv.reader(raw, delimiter=delimiter, strict=True), [], None
    unquoted = f'is a text that holds a {delimiter!r} without its "quotes"?'
    try:
        for cells in reader:
            last = raw[reader.line_num - 1]
            end = last[len(last.rstrip("\r\n")) :]
            first = end if first is None else first
            if end and end != first:
                raise ValueError(
                    f"{name}, line {reader.line_num}: it ends in {end!r}, and the header in {first!r}; give all lines "
                    'the same end, and a text that holds one its "quotes"'
                )
            if cells:  # no blank line
                lines.append((reader.line_num, cells))
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: not CSV ({_plain(error)})") from None
    names = lines[0][1] if lines else []
    _check_names(names, f"{name}, line 1")
    for number, cells in lines:
        if len(cells) != len(names):
            raise ValueError(
                f"{name}, line {number}: {len(cells)} cells under a header of {len(names)}; {unquoted} "
                f"{excerpt(delimiter.join(cells))}"
            )
        if beyond := [cell for column, cell in zip(names[1:], cells[1:], strict=True) if not column and cell]:
            raise ValueError(f"{name}, line {number}: {excerpt(beyond[0])} is in a column without a name; {unquoted}")
    return [{column: cell for column, cell in zip(names, cells, strict=True) if column} for _, cells in lines[1:]]


def _read_txt(content: bytes, name: str) -> Rows:
    lines = [line.rstrip("\n") for line in _lines(content, name)]
    texts = [line for line in lines if line.strip()]
    if len(texts) < len(lines):
        said = "%s: blank lines hold no text and have no number: %d of %d, the first is line %d"
        logger.warning(said, name, len(lines) - len(texts), len(lines), 1 + list(map(str.strip, lines)).index(""))
    return [{"text": text} for text in texts]


READERS: dict[str, Callable[[bytes, str], Rows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".txt": _read_txt,
}


def form_of(path: str | Path) -> str:
    """What a file's name says of its form: its ending in small letters, without a .gz behind it."""
    return Path(re.sub(r"\.gz$", "", str(path).lower())).suffix


def is_file_of_texts(name: str) -> bool:
    """Whether a name is that of a file that `read_rows` reads, or of standard input."""
    return name == STANDARD_INPUT or form_of(name) in READERS


def read_rows(path: str | Path, *columns: str | None) -> Rows:
    """The rows of a file, or of standard input where the path is `-`; of plain text each line, if not blank, as `text`.

    A column that mialib knows, or one of `columns`, has its `plain_name` in each row, however the file spells it.
    FileNotFoundError or ValueError say which file, line or column is wrong.
    """
    name, form = str(path), form_of(path)
    try:
        if name == STANDARD_INPUT:
            name = f"{name} (standard input)"
            content, form = _standard_input(sys.stdin.buffer)
        else:
            content = _content_of(Path(path), form)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: not a readable .gz file ({error}); make or fetch it again") from None
    return _plainly_named(READERS[form](content, name), name, columns)


def _content_of(path: Path, form: str) -> bytes:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a file is expected")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a pipe or a device; a file is expected, or `-` for what comes on standard input")
    if form not in READERS:
        raise ValueError(f"{path}: cannot read {form or 'a file without suffix'}; use {', '.join(READERS)}, or one .gz")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist (looked from {Path.cwd()})")
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix.lower() == ".gz" else content


@lru_cache(maxsize=1)  # it can be read once only, and what reads a file may do so again
def _standard_input(stream: BinaryIO) -> tuple[bytes, str]:
    """All of standard input, and its form."""
    content = stream.read()
    content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    form = _form_of_content(content)
    logger.info("standard input: read as %s%s", form, ", one text a line" if form == ".txt" else "")
    return content, form


def _form_of_content(content: bytes) -> str:
    """The form that a content looks like: by its first sign, or by a header that has a column of texts."""
    if content.startswith(b"PAR1"):
        return ".parquet"
    first = content.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0].decode(errors="replace")
    for form, signs in ((".csv", ",;"), (".tsv", "\t")):
        cells = [plain_name(cell).strip('"') for cell in re.split(f"[{signs}]", first)]
        if set(cells) & set(TEXT_COLUMNS) and not any(re.search(r"\s", cell) for cell in cells):
            return form
    return {"{": ".jsonl", "[": ".json"}.get(first[:1], ".txt")


def plain_name(column: str) -> str:
    """A column's name in small letters and without spaces around it."""
    return column.strip().casefold()


def _plainly_named(rows: Rows, name: str, columns: Iterable[str | None]) -> Rows:
    """The rows, known columns and these under their plain names; ValueError for two of a row that then are one."""
    known = KNOWN_COLUMNS | {plain_name(column) for column in columns if column}
    named = []
    for number, row in enumerate(rows, start=1):
        names = [plain if (plain := plain_name(column)) in known else column for column in row]
        repeated = _first_repeated(names)
        if repeated is not None:
            both = " and ".join(excerpt(column) for column, plain in zip(row, names, strict=True) if plain == repeated)
            raise ValueError(f"{name}, row {number}: columns {both} differ in case or spaces alone; rename one")
        named.append(dict(zip(names, row.values(), strict=True)))
    return named
