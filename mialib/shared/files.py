"""Files of texts, and of texts with labels: JSONL, parquet, CSV, or plain text, one a line.

Each is read as it is written or refused with its line and column. Blank lines and columns without a name hold no text.
"""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from reprlib import repr as short_repr  # of any value, however long or nested
from typing import Any

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.store import hash_texts
from mialib.text import check_texts, excerpt, language_of

TEXT_COLUMNS = ("text", "input", "snippet")  # the names that the public benchmarks use
LABEL_COLUMN = "label"
DOMAIN_COLUMNS = ("domain", "field")
SOURCE_COLUMN = "source"
TIMES_COLUMN = "duplicates"  # how often a text was inserted into training, as Hubble calls it; 0 for a non-member
SPLIT_COLUMN = "split"
VALIDATION_SPLITS = ("dev", "validation")
MOST_NAMED = 20  # columns in an error message


def load_texts(path: str | Path, text_column: str | None = None) -> list[str]:
    """The texts of a JSONL, parquet, CSV or plain text file (one text a line), without labels."""
    path = Path(path)
    return texts_of(read_rows(path), str(path), None if path.suffix == ".txt" else text_column)


def texts_of(rows: list[dict[str, Any]], name: str, text_column: str | None = None) -> list[str]:
    """The texts of a file's rows: of the wanted column, or of the first known name that is there."""
    if not rows:
        raise ValueError(f"{name} holds no rows")
    columns = (text_column,) if text_column else TEXT_COLUMNS
    column = next((column for column in columns if column in rows[0]), None)
    if column is None:
        raise ValueError(f"{name}: no text column ({' or '.join(columns)}); it has {name_columns(rows[0])}. Rename one")
    texts = [row.get(column) for row in rows]
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{name}, text {i}: a text is expected, got {type(text).__name__} {short_repr(text)}")
    check_texts(texts, name)
    return texts


def name_columns(columns: Iterable[str]) -> str:
    """Names of columns for an error message, the first of many and of each the beginning."""
    return first_of([name if name.isprintable() and len(name) <= 60 else excerpt(name) for name in columns], MOST_NAMED)


def first_of(names: Sequence[str], most: int) -> str:
    """The first names with commas between them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def read_benchmark(
    path: str | Path,
    *,
    text_column: str | None = None,
    label_column: str = LABEL_COLUMN,
    language: str | None = None,
) -> Benchmark:
    """The benchmark in a file (.jsonl, .parquet, .csv), one text a row; `language` by default `language_of` the texts.

    FileNotFoundError or ValueError say which file, line or column is wrong, and what is expected.
    """
    rows = read_rows(Path(path))
    return benchmark_of_rows(rows, str(path), text_column=text_column, label_column=label_column, language=language)


def benchmark_of_rows(
    rows: list[dict[str, Any]],
    name: str,
    *,
    text_column: str | None = None,
    label_column: str = LABEL_COLUMN,
    language: str | None = None,
    revision: str | None = None,
) -> Benchmark:
    """The benchmark that a file's rows hold; without labels, a text is a member where it was inserted once or more."""
    texts = texts_of(rows, name, text_column)
    times = _read_times(rows, name)
    if times and not any(label_column in row for row in rows):
        rows = [row | {label_column: int(n > 0)} for row, n in zip(rows, times, strict=True)]
    missing = [i for i, row in enumerate(rows) if label_column not in row]
    if missing:
        raise ValueError(
            f"{name}, row {missing[0] + 1}: no column {label_column!r}; it has {name_columns(rows[missing[0]])}. "
            f"Name the one with the labels {label_column}, 1 = member"
        )
    labels = check_labels([row[label_column] for row in rows], name)
    for i, n in enumerate(times):
        if (n > 0) != labels[i]:
            raise ValueError(f"{name}, row {i + 1}: label {labels[i]}, and {TIMES_COLUMN} says {n}")
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


def labels_of(rows: list[dict[str, Any]], name: str) -> list[int] | None:
    """The labels of a file's rows, 1 = member, or by how often each was inserted; None where they say neither.

    ValueError for a label that is neither 0 nor 1, and where some rows have none.
    """
    if not any(LABEL_COLUMN in row for row in rows):
        return [int(n > 0) for n in _read_times(rows, name)] or None
    if lacking := [i for i, row in enumerate(rows) if LABEL_COLUMN not in row]:
        raise ValueError(f"{name}, row {lacking[0] + 1}: no {LABEL_COLUMN!r}, which other rows have (1 = member)")
    return check_labels([row[LABEL_COLUMN] for row in rows], name)


def _read_times(rows: list[dict[str, Any]], name: str) -> tuple[int, ...]:
    """How often each row's text was inserted; empty where no row says it."""
    if not any(TIMES_COLUMN in row for row in rows):
        return ()
    times = [row.get(TIMES_COLUMN) for row in rows]
    for i, n in enumerate(times):
        if isinstance(n, bool) or not (isinstance(n, int) or (isinstance(n, str) and n.isdecimal())) or int(n) < 0:
            raise ValueError(f"{name}, row {i + 1}: {TIMES_COLUMN} {short_repr(n)} is no number of times")
    return tuple(map(int, times))


def check_labels(labels: Sequence[Any], name: str) -> list[int]:
    """A file's labels as numbers; ValueError that names the first row whose label is neither 0 nor 1."""
    for i, label in enumerate(labels):
        if label not in (0, 1, "0", "1"):  # a CSV's cells are text
            raise ValueError(f"{name}, row {i + 1}: label {short_repr(label)} is neither 0 nor 1 (1 = member)")
    return [int(label) for label in labels]


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_without_repeats)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})") from None
            except RecursionError:
                raise ValueError(f"{path}, line {number}: nested too deeply to be read") from None
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: an object is expected, got {type(row).__name__}")
            rows.append(row)
    return rows


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's names and values; ValueError for a name that stands there twice, of which JSON takes the last."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{excerpt(next(name for name in names if names.count(name) > 1))} stands there twice")
    return row


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    """Without the columns that hold what Python can't, such as a time in the year 300,000: a warning names them."""
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        try:
            table = pq.ParquetFile(file).read()
        except Exception as error:  # a broken file's are of many classes
            raise ValueError(f"{path}: not a readable .parquet file ({_plain(error)})") from None
    _check_names(table.column_names, str(path))
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns[name] = column.to_pylist()
        except UnicodeDecodeError:
            raise ValueError(f"{path}, column {excerpt(name)}: not UTF-8 text; write it anew as UTF-8") from None
        except (ArithmeticError, NotImplementedError, ValueError) as error:
            why = f"{type(error).__name__}: {_plain(error)}"
            warnings.warn(f"{path}: column {excerpt(name)} can't be read and is left out ({why})", stacklevel=4)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _plain(error: Exception) -> str:
    """pyarrow's messages run over several lines and may hold a damaged file's bytes."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(str(error).split()))


def _check_names(names: Sequence[str], where: str) -> None:
    if wrong := [i for i, name in enumerate(names) if name and name in names[:i]]:
        name = excerpt(names[wrong[0]])
        raise ValueError(f"{where}, column {wrong[0] + 1}: another column is named {name} too")


def _read_csv(path: Path) -> list[dict[str, Any]]:
    """Every row has as many cells as the header and ends as it does, so no comma and no end of line of an unquoted text
    is taken for the file's."""
    csv.field_size_limit(2**31 - 1)  # of a cell: texts may be long
    with path.open(encoding="utf-8-sig", newline="") as file:
        raw = list(file)
    reader, lines, first = csv.reader(raw, strict=True), [], None
    try:
        for cells in reader:
            last = raw[reader.line_num - 1]
            end = last[len(last.rstrip("\r\n")) :]
            first = end if first is None else first
            if end and end != first:
                raise ValueError(
                    f"{path}, line {reader.line_num}: it ends in {end!r}, and the header in {first!r}; give all lines "
                    'the same end, and a text that holds one its "quotes"'
                )
            if cells:  # no blank line
                lines.append((reader.line_num, cells))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    names = lines[0][1] if lines else []
    _check_names(names, f"{path}, line 1")
    for number, cells in lines:
        if len(cells) != len(names):
            raise ValueError(
                f"{path}, line {number}: {len(cells)} cells under a header of {len(names)}; is a text that holds a "
                f'comma without its "quotes"? {excerpt(",".join(cells))}'
            )
        if beyond := [cell for name, cell in zip(names[1:], cells[1:], strict=True) if not name and cell]:
            raise ValueError(
                f"{path}, line {number}: {excerpt(beyond[0])} stands in a column without a name; is a text that holds "
                'a comma without its "quotes"?'
            )
    return [{name: cell for name, cell in zip(names, cells, strict=True) if name} for _, cells in lines[1:]]


def _read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        return [{"text": line.rstrip("\n")} for line in file]


READERS = {".jsonl": _read_jsonl, ".parquet": _read_parquet, ".csv": _read_csv, ".txt": _read_lines}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL, parquet or CSV file; of a plain text file each line, as `text`."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a file is expected")
    if path.suffix not in READERS:
        raise ValueError(f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {', '.join(READERS)}")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist (looked from {Path.cwd()})")
    try:
        return READERS[path.suffix](path)
    except UnicodeDecodeError:
        raise ValueError(_where_not_utf_8(path)) from None


def _where_not_utf_8(path: Path) -> str:
    """Which byte is no UTF-8: readers of lines know its place in what they have read last alone."""
    try:
        data = path.read_bytes()
        data.decode()
    except UnicodeDecodeError as error:
        line, byte = data[: error.start].count(b"\n") + 1, data[error.start]
        return f"{path}, line {line}: not UTF-8 text (byte {error.start} of the file is {byte:#04x}); save it as UTF-8"
    return f"{path}: changed while it was read"
