"""Any file of texts gives the very texts that were written into it, or an error that names the file."""

import csv
import gzip
import io
import json
import warnings
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mialib.catalog import corpora
from mialib.catalog.benchmarks import load_benchmark
from mialib.shared.files import READERS, load_texts, read_benchmark, read_rows, texts_of
from mialib.shared.schema import read_yaml

SIGNS = [
    *("a", "Z", "7", ",", '"', "'", ";", "\t", " ", "\n", "\r", "\r\n", "\\", "{", "[", ":", "#", "-", "|"),
    *("\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\xa0", "\u2028", "\u2029", "\ufeff", "\u200b", "é", "中", "🙂", "NA"),
]
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.lists(st.sampled_from(SIGNS) | characters, min_size=1, max_size=20).map("".join)
texts = texts.filter(str.strip) | st.sampled_from(["007", "1e400", "nan", "true", "null", "=1+1", "long " * 2000])
lists_of_texts = st.lists(texts, min_size=1, max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
columns = st.sampled_from(["text", "input", "snippet"])


def loaded_or_said(load, path):
    """What loading gives, or None and the error's message, which names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of copies
            return load(path), None
    except (ValueError, OSError) as error:
        assert str(path) in str(error)
        return None, str(error)


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="")


def write_parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_delimited(path, rows, delimiter):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([rows[0], *(r.values() for r in rows)])


WRITERS = {
    "t.jsonl": write_jsonl,
    "utf-8.JSONL": lambda path, rows: path.write_bytes(
        b"\xef\xbb\xbf" + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    ),
    "t.json": lambda path, rows: path.write_text(json.dumps(rows)),
    "strings.json": lambda path, rows: path.write_text(json.dumps([next(iter(r.values())) for r in rows], indent=1)),
    "t.csv": lambda path, rows: write_delimited(path, rows, ","),
    "t.tsv": lambda path, rows: write_delimited(path, rows, "\t"),
    "t.Parquet": write_parquet,
}
spelled = st.tuples(st.sampled_from([str.upper, str.title, str.lower]), st.sampled_from(["{}", " {}", "{}  ", "\t{} "]))


def spell(name, spelling):
    case, around = spelling
    return around.format(case(name))


@given(lists_of_texts, columns, st.sampled_from(["\n", "\r\n"]), st.booleans())
@example(["long" * 100_000], "text", "\n", True)  # more than the csv module reads by itself
def test_csv_gives_back_its_texts(tmp_path, written, column, end_of_line, begins_with_bom):
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8-sig" if begins_with_bom else "utf-8") as file:
        quoted = csv.writer(file, lineterminator=end_of_line, quoting=csv.QUOTE_ALL)
        quoted.writerows([[column], *([text] for text in written)])
    assert load_texts(path) == written


@given(lists_of_texts, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_txt_gives_back_its_lines(tmp_path, written, end_of_line, ends_with_one, begins_with_bom):
    lines = [text.replace("\n", "|").replace("\r", "|").removeprefix("\ufeff") or "x" for text in written]
    lines = [line if line.strip() else "x" for line in lines]
    path, bom = tmp_path / "t.txt", b"\xef\xbb\xbf"
    path.write_bytes(bom * begins_with_bom + (end_of_line.join(lines) + end_of_line * ends_with_one).encode())
    assert load_texts(path) == ([lines[0].removeprefix("\ufeff"), *lines[1:]] if not begins_with_bom else lines)


def test_blank_lines_of_txt_hold_no_text_and_are_counted(tmp_path, caplog):
    path = tmp_path / "t.txt"
    path.write_text("one\n\n two\n \n\n")
    assert load_texts(path) == ["one", " two"]
    assert "3 of 5" in caplog.text and "line 2" in caplog.text


@pytest.mark.parametrize("name", WRITERS)
@given(lists_of_texts, columns, spelled, st.booleans())
def test_every_form_gives_back_its_texts(tmp_path, name, written, column, spelling, is_packed):
    path = tmp_path / name
    WRITERS[name](path, [{spell(column, spelling): text} for text in written])
    if is_packed:
        plain, path = path, path.with_name(name + ".gz")
        path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    assert load_texts(path) == written
    if name != "strings.json":
        by_name = spell(column, (str.upper, "{} "))
        assert texts_of(read_rows(path, by_name), name, by_name) == written


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"text,label\na b,1\nc,0\n", ["a b", "c"]),
        (b"\xef\xbb\xbfid\ttext\n1\ta\n", ["a"]),
        (b'[{"text": "a"}, "b"]', ["a", "b"]),
        (b' {"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        (b"the text, and more\nb\n", ["the text, and more", "b"]),
        (gzip.compress(b"text,label\na,1\n", mtime=0), ["a"]),
    ],
)
def test_the_form_of_standard_input_is_told_by_how_it_begins(content, found, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert load_texts("-") == load_texts("-") == found, "it is read once, and may be asked for again"


@given(spelled, st.sampled_from(["t.jsonl", "t.csv", "t.tsv", "t.Parquet", "t.json"]))
def test_labels_count_however_their_column_is_spelled(tmp_path, spelling, name):
    rows = [{"text": f"text {i}", spell("label", spelling): i % 2, spell("domain", spelling): "d"} for i in range(4)]
    WRITERS[name](tmp_path / name, rows)
    bench = load_benchmark(tmp_path / name)
    assert (bench.labels.tolist(), bench.domains) == ([0, 1, 0, 1], ("d",) * 4)
    assert read_benchmark(tmp_path / name, label_column="LABEL").revision == bench.revision


@given(st.sampled_from([*READERS, ".jsonl.gz", ".parquet.gz"]), st.binary(max_size=200))
@example(".jsonl", b'{"text": ' + b"9" * 5000 + b"}")
@example(".jsonl", b'{"text": "a\\ud800"}')
@example(".csv", b"a\nb\n" * 10_000 + b"\xff")
@example(".csv", b'text\n"a')
@example(".parquet", b"PAR1" + bytes(20) + b"PAR1")
@example(".txt", "text\n".encode("utf-16"))
@example(".json", b'{"text": "a"}\n{"text": "b"}')
@example(".json", b'["a", 5]')
def test_any_bytes_are_texts_or_an_error_that_names_the_file(tmp_path, suffix, content):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content)
    for load in (load_texts, read_benchmark):
        loaded_or_said(load, path)


@given(st.lists(json_values, min_size=1, max_size=3), json_values)
@example(["a"], float("nan"))
@example([list(range(10_000))], 0)
def test_a_text_or_a_label_of_another_kind_is_named_by_its_row(tmp_path, values, label):
    path = tmp_path / "b.jsonl"
    write_jsonl(path, [{"text": value, "label": label} for value in values])
    found, said = loaded_or_said(load_texts, path)
    wrong = [i for i, value in enumerate(values) if not (isinstance(value, str) and value.strip())]
    assert found == values if not wrong else any(f"text {i}" in said for i in wrong)
    _, said = loaded_or_said(read_benchmark, path)
    if not wrong and label not in (0, 1, "0", "1"):
        assert "row 1" in said


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("Text,label, text\na,1,b\n")
    (tmp_path / "t.jsonl").write_text('{"text": "a", "text": "b"}\n')
    both = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(both, ["text", "text"]), tmp_path / "t.parquet")
    for path in tmp_path.glob("t.*"):
        assert "text'" in loaded_or_said(load_texts, path)[1]


@pytest.fixture
def hub_corpus(tmp_path, monkeypatch):
    """A copy of a corpus of the hub, of one file."""
    monkeypatch.setitem(corpora.HUB_CORPORA, "small", corpora.HubCorpus("o/small", "{}.jsonl", 1, 1.0, "none"))
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(tmp_path))
    (tmp_path / "o" / "small").mkdir(parents=True)
    return tmp_path / "o" / "small" / "0.jsonl"


@given(lists_of_texts)
def test_a_corpus_gives_back_its_texts_cut_to_so_many_characters(hub_corpus, written):
    write_jsonl(hub_corpus, [{"text": text} for text in written])
    whole = "".join(written)
    for n in {1, len(whole) // 2 or 1, len(whole)}:
        assert "".join(corpora.reference_texts(f"small:{n}")) == whole[:n]


def test_a_key_that_is_there_twice_is_named_and_a_merge_may_give_it_another_value(tmp_path):
    (tmp_path / "t.yml").write_text("a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert "line 4" in loaded_or_said(lambda path: read_yaml(path, Any), tmp_path / "t.yml")[1]
    (tmp_path / "t.yml").write_text("a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: [*b, *a], y: 4}\n")
    assert read_yaml(tmp_path / "t.yml", Any)["c"] == {"x": 3, "y": 4}
