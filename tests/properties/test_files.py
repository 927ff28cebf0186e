"""Any file of texts gives the very texts that were written into it, or an error of one sentence that names the file."""

import csv
import gzip
import io
import json
import os
import warnings
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from mialib.catalog import corpora
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.registry import KnownBenchmark, KnownModel
from mialib.shared.files import READERS, load_texts, read_benchmark
from mialib.shared.schema import read_yaml
from mialib.store import DATA
from replication.claims.spec import Claims
from replication.lab.recipes import Corpus, Masked, Recipes, Training
from replication.profile import Profile

LONGEST_MESSAGE = 1000  # characters, besides the file's path
SIGNS = [
    *("a", "Z", "7", ",", '"', "'", ";", "\t", " ", "\n", "\r", "\r\n", "\0", "\\", "{", "[", ":", "#", "-", "|"),
    *("\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\xa0", "\u2028", "\u2029", "\ufeff", "\u200b", "é", "中", "🙂", "NA"),
]
characters = st.characters(exclude_categories=["Cs"])
texts = st.lists(st.sampled_from(SIGNS) | characters, min_size=1, max_size=20).map("".join)
texts = texts.filter(str.strip) | st.sampled_from(["007", "1e400", "nan", "true", "null", "=1+1", "long " * 2000])
no_nul = texts.filter(lambda text: "\0" not in text)  # which no line of a file may hold
lists_of_texts = st.lists(texts, min_size=1, max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
columns = st.sampled_from(["text", "input", "snippet"])


def loaded_or_said(load, path):
    """What loading gives, or None and the error's message; the error is one sentence that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a column that is left out
            return load(path), None
    except (ValueError, OSError) as error:
        said = str(error)
        assert str(path) in said, said
        assert "\n" not in said and said.isprintable(), said
        assert len(said) < LONGEST_MESSAGE + len(str(path)), said
        return None, said


def write_jsonl(path, rows, **options):
    path.write_text("".join(json.dumps(row, **options) + "\n" for row in rows), encoding="utf-8", newline="")


def write_parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)


@given(lists_of_texts, columns, st.booleans(), st.booleans())
@example(["long " * 1_000_000, "a"], "text", False, False)
def test_jsonl_gives_back_its_texts(tmp_path, written, column, is_ascii, begins_with_bom):
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [{"id": i, column: text} for i, text in enumerate(written)], ensure_ascii=is_ascii)
    if begins_with_bom:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_texts(path) == written


@given(lists_of_texts, columns, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from([0, 1]), st.booleans())
@example(["a\r", "b"], "text", "\n", 0, False)
@example(["long" * 100_000], "text", "\n", 0, True)  # more than the csv module reads by itself
@example(["a\rb"], "text", "\n", 0, False)
def test_csv_gives_back_its_texts(tmp_path, written, column, end_of_line, quoting, begins_with_bom):
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8-sig" if begins_with_bom else "utf-8") as file:
        csv.writer(file, lineterminator=end_of_line, quoting=quoting).writerows([[column], *([t] for t in written)])
    found, said = loaded_or_said(load_texts, path)
    unquoted = quoting == csv.QUOTE_MINIMAL and any(set(text) & (set("\r\n") - set(end_of_line)) for text in written)
    assert found == written or (unquoted and "quotes" in said) or ("\0" in "".join(written) and "NUL" in said)


@given(lists_of_texts, columns, st.sampled_from(["none", "snappy", "zstd"]), st.booleans())
def test_parquet_gives_back_its_texts(tmp_path, written, column, compression, is_dictionary):
    path, array = tmp_path / "t.parquet", pa.array(written)
    array = array.dictionary_encode() if is_dictionary else array
    pq.write_table(pa.table({"id": range(len(written)), column: array}), path, compression=compression)
    assert load_texts(path) == written


@given(lists_of_texts, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_txt_gives_back_its_lines(tmp_path, written, end_of_line, ends_with_one, begins_with_bom):
    lines = [text.replace("\n", "|").replace("\r", "|") for text in written]
    path, bom = tmp_path / "t.txt", b"\xef\xbb\xbf"
    content = end_of_line.join(lines) + end_of_line * ends_with_one
    if not begins_with_bom and content.startswith("\ufeff"):
        content = "x" + content
        lines[0] = "x" + lines[0]
    path.write_bytes(bom * begins_with_bom + content.encode())
    found, said = loaded_or_said(load_texts, path)
    assert "NUL" in said if "\0" in content else found == lines


def test_blank_lines_of_txt_hold_no_text_and_are_counted(tmp_path, caplog):
    path = tmp_path / "t.txt"
    path.write_text("one\n\n two\n \n\n")
    assert load_texts(path) == ["one", " two"]
    assert caplog.messages == [f"{path}: blank lines hold no text and have no number: 3 of 5, the first is line 2"]


def write_delimited(path, rows, delimiter):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([rows[0], *(r.values() for r in rows)])


WRITERS = {
    "t.jsonl": write_jsonl,
    "t.JSONL": write_jsonl,
    "t.json": lambda path, rows: path.write_text(json.dumps(rows)),
    "strings.json": lambda path, rows: path.write_text(json.dumps([next(iter(r.values())) for r in rows], indent=1)),
    "t.csv": lambda path, rows: write_delimited(path, rows, ","),
    "semicolons.csv": lambda path, rows: write_delimited(path, [{"id": 1} | row for row in rows], ";"),
    "t.tsv": lambda path, rows: write_delimited(path, rows, "\t"),
    "t.Parquet": write_parquet,
}
spelled = st.tuples(st.sampled_from([str.upper, str.title, str.lower]), st.sampled_from(["{}", " {}", "{}  ", "\t{} "]))


def spell(name, spelling):
    case, around = spelling
    return around.format(case(name))


@pytest.mark.parametrize("name", WRITERS)
@given(lists_of_texts, columns, spelled, st.booleans())
def test_every_form_gives_back_its_texts(tmp_path, name, written, column, spelling, is_packed):
    written, path = [text.replace("\0", "|") for text in written], tmp_path / name
    WRITERS[name](path, [{spell(column, spelling): text} for text in written])
    if is_packed:
        plain, path = path, path.with_name(name + ".gz")
        path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    assert load_texts(path) == written
    if name != "strings.json":
        assert load_texts(path, spell(column, (str.upper, "{} "))) == written


@given(st.lists(texts, min_size=2, max_size=5, unique=True), st.booleans())
def test_standard_input_is_read_once_and_gives_back_its_texts(tmp_path, written, is_jsonl):
    if not is_jsonl:
        written = ["x" + text.translate(dict.fromkeys(map(ord, "\r\n\0"), "|")) for text in written]
    lines = [json.dumps({"text": text}) for text in written] if is_jsonl else written
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
        assert load_texts("-") == load_texts("-") == written


@given(spelled, spelled, st.sampled_from(["text", "label", "source", "body"]), st.sampled_from(list(WRITERS)))
def test_two_spellings_of_a_column_are_an_error_that_names_both(tmp_path, one, other, column, name):
    both = spell(column, one), spell(column, other)
    if both[0] == both[1] or name == "strings.json":
        return
    WRITERS[name](tmp_path / name, [{"snippet": "a"} | {spelled: "b" for spelled in both}])
    text_column = "Body" if column == "body" else None
    _, said = loaded_or_said(lambda path: read_benchmark(path, text_column=text_column), tmp_path / name)
    assert all(repr(spelled) in said for spelled in both)


@given(spelled, st.sampled_from(["t.jsonl", "t.csv", "t.tsv", "t.Parquet", "t.json"]))
def test_labels_count_however_their_column_is_spelled(tmp_path, spelling, name):
    rows = [{"text": f"text {i}", spell("label", spelling): i % 2, spell("domain", spelling): "d"} for i in range(4)]
    WRITERS[name](tmp_path / name, rows)
    bench = read_benchmark(tmp_path / name)
    assert (bench.labels.tolist(), bench.domains) == ([0, 1, 0, 1], ("d",) * 4)
    assert read_benchmark(tmp_path / name, label_column="LABEL").revision == bench.revision


NESTED = pa.struct([("a", pa.struct([("b", pa.list_(pa.timestamp("us")))]))])
FURTHER = [
    *(pa.array([2**58], pa.timestamp(unit, zone)) for unit in ("ms", "us", "ns") for zone in (None, "Europe/Vienna")),
    *(pa.array([2**62], pa.duration(unit)) for unit in ("ms", "ns")),
    *(pa.array([2**30], pa.date32()), pa.array([0], pa.timestamp("us", "Nowhere/At_all")), pa.nulls(1)),
    *(pa.array([7], pa.decimal128(38, 3)), pa.array([b"\xff"]), pa.array([[2**30]], pa.list_(pa.date32()))),
    *(pa.array([{"a": {"b": [2**62]}}], NESTED), pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))),
]


@pytest.mark.parametrize("further", FURTHER, ids=lambda of: str(of.type))
def test_no_further_column_of_a_parquet_stands_in_the_texts_way(tmp_path, further):
    pq.write_table(pa.table({"further": further, "text": ["a"]}), tmp_path / "t.parquet")
    assert load_texts(tmp_path / "t.parquet") == ["a"]


@given(
    st.lists(no_nul, min_size=2, max_size=5, unique=True),
    st.sampled_from(["t.jsonl", "t.csv", "t.Parquet"]),
    st.sampled_from(["domain", "field"]),
    st.data(),
)
def test_a_benchmark_has_its_labels_and_domains(tmp_path, written, name, column, data):
    labels = [1, 0, *data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(written) - 2, max_size=len(written) - 2))]
    domains = data.draw(st.lists(no_nul, min_size=len(written), max_size=len(written)))
    rows = [{"text": t, "label": n, column: d} for t, n, d in zip(written, labels, domains, strict=True)]
    WRITERS[name](tmp_path / name, rows)
    bench = load_benchmark(tmp_path / name)
    assert (bench.texts, bench.labels.tolist(), bench.domains) == (tuple(written), labels, tuple(domains))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"text,label\na b,1\nc,0\n", ["a b", "c"]),
        (b"label;Text\n1;a, b\n0;c\n", ["a, b", "c"]),
        (b"\xef\xbb\xbfid\ttext\n1\ta\n", ["a"]),
        (b'[{"text": "a"}, "b"]', ["a", "b"]),
        (b' {"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        (b"the text, and more\nb\n", ["the text, and more", "b"]),
        (gzip.compress(b"text,label\na,1\n", mtime=0), ["a"]),
    ],
)
def test_the_form_of_standard_input_is_told_by_how_it_begins(content, found, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert load_texts("-") == found


@given(st.sampled_from([*READERS, ".jsonl.gz", ".parquet.gz"]), st.binary(max_size=200))
@example(".jsonl", b'{"text": ' + b"[" * 100_000)
@example(".jsonl", b'{"text": ' + b"[" * 900 + b"]" * 900 + b"}")
@example(".jsonl", b'{"text": ' + b"9" * 5000 + b"}")
@example(".jsonl", b'{"\\ud800": 1}')
@example(".jsonl", b'{"text": "a\\ud800"}')
@example(".jsonl", b"{" + b", ".join(b'"column %d": 1' % i for i in range(5000)) + b"}")
@example(".csv", b"a\nb\n" * 10_000 + b"\xff")
@example(".csv", b'text\n"a')
@example(".parquet", b"PAR1" + bytes(20) + b"PAR1")
@example(".txt", "text\n".encode("utf-16"))
@example(".json", b"[" * 100_000)
@example(".json", b'{"text": "a"}\n{"text": "b"}')
@example(".json", b'["a", 5]')
def test_any_bytes_are_texts_or_one_sentence(tmp_path, suffix, content):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content)
    for load in (load_texts, read_benchmark):
        loaded_or_said(load, path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("suffix", [suffix for suffix in READERS if suffix != ".parquet"])
def test_utf_16_without_its_mark_is_no_text(tmp_path, suffix, encoding):
    (tmp_path / f"t{suffix}").write_bytes('["text"]\nmill\n'.encode(encoding))
    _, said = loaded_or_said(load_texts, tmp_path / f"t{suffix}")
    assert "line 1: a NUL" in said and "UTF-16" in said


def test_a_pipe_and_a_device_are_a_sentence_and_no_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    (tmp_path / "link.txt").symlink_to(tmp_path / "pipe.jsonl")
    for name in ("pipe.jsonl", "endless.csv", "link.txt"):
        assert "is a pipe or a device" in loaded_or_said(load_texts, tmp_path / name)[1]


def mutated(data, content):
    """The bytes with some of them changed, left out or doubled."""
    content = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        end = min(len(content), at + data.draw(st.integers(0, 5)))
        content[at:end] = data.draw(st.binary(max_size=3) | st.just(bytes(content[at:end]) * 2))
    return bytes(content)


@given(
    lists_of_texts.filter(lambda t: sum(map(len, t)) < 1000), st.sampled_from(list(WRITERS)), st.booleans(), st.data()
)
def test_a_damaged_file_is_read_or_one_sentence(tmp_path, written, name, is_packed, data):
    path = tmp_path / name
    WRITERS[name](path, [{"text": text, "label": i % 2} for i, text in enumerate(written)])
    content = path.read_bytes()
    path = path.with_name(name + ".gz") if is_packed else path
    path.write_bytes(mutated(data, gzip.compress(content, mtime=0) if is_packed else content))
    found, _ = loaded_or_said(load_texts, path)
    assert found is None or all(isinstance(text, str) and text.strip() for text in found)


@given(st.lists(json_values, min_size=1, max_size=3), json_values)
@example([[[[[[[[[[1]]]]]]]]]], 1)
@example(["a"], float("nan"))
@example([list(range(10_000))], 0)
@example(["a"], list(range(10_000)))
def test_a_text_or_a_label_of_another_kind_is_named_by_its_row(tmp_path, values, label):
    path = tmp_path / "b.jsonl"
    write_jsonl(path, [{"text": value, "label": label} for value in values])
    found, said = loaded_or_said(load_texts, path)
    wrong = [i for i, value in enumerate(values) if not (isinstance(value, str) and value.strip())]
    assert found == values if not wrong else any(f"text {i}" in said for i in wrong)
    _, said = loaded_or_said(read_benchmark, path)
    if not wrong and label not in (0, 1, "0", "1"):
        assert "row 1: label" in said and "neither 0 nor 1" in said


@given(no_nul, no_nul, st.sampled_from([".jsonl", ".csv", ".parquet"]))
def test_a_column_that_stands_twice_is_refused(tmp_path, one, other, suffix):
    path = tmp_path / f"t{suffix}"
    if suffix == ".jsonl":
        path.write_text(f'{{"text": {json.dumps(one)}, "text": {json.dumps(other)}}}\n')
    elif suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text", "text"], [one, other]])
    else:
        pq.write_table(pa.Table.from_arrays([pa.array([one]), pa.array([other])], ["text", "text"]), path)
    _, said = loaded_or_said(load_texts, path)
    assert "'text'" in said and ("twice" in said or "too" in said)


@given(lists_of_texts, st.binary(max_size=3), st.integers(0, 500))
@example(["a"], b"", 20_000)
def test_a_byte_that_is_no_utf_8_is_named_by_its_line(tmp_path, written, junk, n_before):
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [{"text": "before"}] * n_before + [{"text": text} for text in written])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"text": "x\xff' + junk + b'"}\n')
    _, said = loaded_or_said(load_texts, path)
    assert f"line {n_before + len(written) + 1}: not UTF-8 text (byte {len(whole) + 11} " in said


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.jsonl", "t.csv.gz"])
def test_a_file_that_is_not_there_or_of_another_kind_is_named(tmp_path, name):
    _, said = loaded_or_said(load_texts, tmp_path / name)
    assert "does not exist" in said or "cannot read" in said


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


@given(
    lists_of_texts,
    st.binary(min_size=1, max_size=50) | json_values.map(lambda value: json.dumps({"text": value}).encode()),
)
@example(["a"], b'{"text": ' + b"[" * 100_000)
@example(["a"], b'{"text": 3}')
@example(["a"], b'{"text": null}')
@example(["a"], b'{"text": "\\ud800"}')
@example(["a"], b"5")
def test_any_line_of_a_corpus_is_a_text_or_one_sentence(hub_corpus, written, line):
    write_jsonl(hub_corpus, [{"text": text} for text in written])
    line = line.replace(b"\n", b" ").replace(b"\r", b" ")
    hub_corpus.write_bytes(hub_corpus.read_bytes() + line + b"\n")
    n = len("".join(written)) + 1  # one character of the last line's text
    found, said = loaded_or_said(lambda _: list(corpora.reference_texts(f"small:{n}")), hub_corpus)
    assert found == [*written, json.loads(line)["text"][:1]] if found else f"line {len(written) + 1}" in said


KINDS = [Any, Claims, Profile, Recipes, dict[str, KnownModel], dict[str, KnownBenchmark]]
FILES = {
    "claims.yml": Claims,
    "profiles/lab.yml": Profile,
    "models.yml": dict[str, KnownModel],
    "benchmarks.yml": dict[str, KnownBenchmark],
}
scalars = st.sampled_from(
    [
        *("", "~", "yes", "1e400", ".inf", ".nan", "-1", "0", "10", "'10'", "1.5", "2020-13-45", "0001-01-01", "[]"),
        *("{}", "=", "!!bool x", "!!int ''", "!!float ''", "!!timestamp x", "!!binary é", "0b_", "0x_", "9" * 5000),
        *(
            '"\\ud800"',
            '"\\UFFFFFFFF"',
            "*a",
            "&a [*a]",
            "[" * 500,
            "- " * 500,
            "{a: 1, a: 2}",
            "? [a]\n: 1",
            "%x",
            "\t",
        ),
    ]
)
nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.dates() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(nested)
def test_yaml_gives_back_what_was_written(tmp_path, written):
    path = tmp_path / "t.yml"
    path.write_text(yaml.safe_dump(written, allow_unicode=False), encoding="utf-8")
    assert read_yaml(path, Any) == written


@given(scalars | st.text(max_size=60), st.sampled_from(KINDS))
@example("a: 1\na: 2", Any)
@example("? [a]\n: 1", Any)
def test_any_yaml_is_read_or_one_sentence(tmp_path, content, kind):
    path = tmp_path / "t.yml"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    loaded_or_said(lambda path: read_yaml(path, kind), path)


@given(texts.filter(lambda text: len(text) < 100), nested, nested, st.integers(0, 3))
def test_a_key_that_stands_twice_in_yaml_is_named_with_its_line(tmp_path, key, one, other, n_before):
    path, name = tmp_path / "t.yml", json.dumps(key)
    before = "".join(f"before{i}:\n" for i in range(n_before))
    dumped = [
        yaml.safe_dump(value, default_flow_style=True, width=10**6).split("\n...")[0].strip() for value in (one, other)
    ]
    path.write_text(before + f"? {name}\n: {dumped[0]}\n? {name}\n: {dumped[1]}\n", encoding="utf-8")
    _, said = loaded_or_said(lambda path: read_yaml(path, Any), path)
    assert "is there twice" in said and f"line {n_before + 3 + dumped[0].count(chr(10))}, column 3" in said


def test_a_merge_may_give_a_key_another_value(tmp_path):
    (tmp_path / "t.yml").write_text("a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: [*b, *a], y: 4}\n")
    assert read_yaml(tmp_path / "t.yml", Any)["c"] == {"x": 3, "y": 4}


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_a_line_of_our_own_files_that_is_changed_is_read_or_one_sentence(tmp_path, name, data):
    lines = (DATA / name).read_text(encoding="utf-8").split("\n")
    start = data.draw(st.integers(0, max(0, len(lines) - 15)))
    block = lines[start : start + 15]  # parsing the whole file takes a second
    at = data.draw(st.integers(0, len(block) - 1))
    key, colon, value = block[at].partition(": ")
    block[at] = key + colon + data.draw(scalars | st.sampled_from([value, f"{value}\n{block[at]}", value[:-1]]))
    path = tmp_path / "t.yml"
    path.write_text("\n".join(block), encoding="utf-8")
    loaded_or_said(lambda path: read_yaml(path, FILES[name]), path)


NUMBERS = {
    Training: {"layers": 1, "learning_rate": 0, "batch_texts": 1, "member_times": 0, "context_tokens": 1},
    Corpus: {"words": 1, "members": 0, "non_members": 1},
    Masked: {"epochs": 1, "context_tokens": 3},
    KnownModel: {"billions": 0, "download_gb": 0},
}
LEAST = {
    Training: {"corpus": "lab/en", "layers": 1, "hidden_size": 8, "heads": 1},
    Corpus: {"source": "patents", "language": "zh", "words": 1, "non_members": 1, "seed": 0},
    Masked: {"corpus": "c", "hidden_size": 8, "context_tokens": 3}
    | dict.fromkeys(("layers", "heads", "epochs", "learning_rate"), 1),
    KnownModel: {"start_token": "x", "licence": "mit"},
}
numbers = st.integers(-5, 5) | st.floats() | st.sampled_from([1e300, 10**400])
FIELDS = [(kind, field) for kind, fields in NUMBERS.items() for field in fields]


@given(st.sampled_from(FIELDS), numbers, st.booleans())
@example((Training, "learning_rate"), float("inf"), False)
@example((KnownModel, "billions"), float("inf"), True)
def test_a_number_of_a_file_is_taken_or_named_with_its_value(tmp_path, kind_and_field, number, as_text):
    (kind, field), path = kind_and_field, tmp_path / "t.yml"
    given_number = str(number) if as_text else number
    path.write_text(yaml.safe_dump(LEAST[kind] | {field: given_number}))
    found, said = loaded_or_said(lambda path: read_yaml(path, kind), path)
    if found is not None:
        taken = getattr(found, field)
        assert taken == number and NUMBERS[kind][field] <= taken < float("inf")
    else:
        assert f"{field}: " in said and ", got " in said
