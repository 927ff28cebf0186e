"""A benchmark is checked where it enters: what is wrong with a file is said by its name, its line and its text."""

import dataclasses
import json
import re
import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from mialib import text as text_module
from mialib.benchmarks import Benchmark
from mialib.shared.files import load_texts, read_benchmark
from mialib.text import remember_words, segment, word_spans, words

ROWS = [
    {"text": "The river rises, and the mill stands in water.", "label": 1},
    {"text": 'A "quoted" text, with a comma\nand a second line.', "label": 0},
    {"text": "这条河发源于北方的山地。", "label": 1},
    {"text": "007", "label": 0},
]
CHINESE = "我来到北京清华大学，这条河流经三个村庄。"


def write(path, rows):
    """Write the rows as the file's suffix says."""
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        pd.DataFrame(rows).to_csv(path, index=False)
    return path


def benchmark(texts, labels, **fields):
    return Benchmark(name="b", texts=tuple(texts), labels=np.array(labels), revision="r", **fields)


def test_the_revision_is_of_texts_and_labels_whatever_the_form_of_the_file(tmp_path):
    def revision(rows, suffix=".jsonl"):
        return read_benchmark(write(tmp_path / f"b{suffix}", rows)).revision

    first = revision(ROWS)
    assert {revision(ROWS, suffix) for suffix in (".jsonl", ".parquet", ".csv")} == {first}
    assert revision([*ROWS[:3], ROWS[3] | {"text": "008"}]) != first
    assert revision([*ROWS[:3], ROWS[3] | {"label": 1}]) != first
    assert revision([row | {"domain": "d"} for row in ROWS]) == first
    bench, as_chinese = (read_benchmark(tmp_path / "b.csv", language=language) for language in (None, "zh"))
    assert (bench.language, as_chinese.language) == ("en", "zh"), "by its script, unless another one is asked for"
    assert (bench.texts, bench.labels.dtype) == (tuple(row["text"] for row in ROWS), np.int8)


def test_other_columns_are_taken_by_name(tmp_path):
    path = write(tmp_path / "b.csv", [{"body": row["text"], "member": row["label"]} for row in ROWS])
    bench = read_benchmark(path, text_column="body", label_column="member")
    assert bench.labels.tolist() == [1, 0, 1, 0]
    for column, wanted in ((None, "text or input or snippet"), ("prose", "prose")):
        with pytest.raises(ValueError, match=rf"b\.csv: .*{wanted}.*body"):
            read_benchmark(path, text_column=column)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("b.csv", "text\n\n", ""),
        ("b.jsonl", '{"text": "x"}\n\n{"text": }', "line 3"),
        ("b.txt", b"tea\n" * 10_000 + b"caf\xe9\n", "line 10001: "),
        ("b.csv", "text\nHello, world\n", "line 2: .*Hello, world"),
        ("b.csv", "text,text\nHello,world\n", "line 1: 'text'"),
        ("b.csv", 'text,label\n"Hello",1\n"wor"ld,0\n', "line 3: "),
        ("b.csv", 'text,label\n"two\nlines",1\nworld,0,0\n', "line 4: "),
        ("b.csv", "text;label\nHello, world;1\n", "line 1: .* semicolons"),
        ("b.csv", '"text"\t"label"\n"Hello"\t"1"\n', "line 1: .* tabs; name the file .tsv"),
        ("b.csv", "Hello; world\nAnother\n", "no column text"),
        ("b.csv", "text,\nHello,\nHello, world\n", "line 3: .*Hello, world"),  # spills into a nameless column
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(name, content, said, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*{said}"):
        load_texts(path)


def test_the_texts_of_one_source_are_pieces_of_one_document(tmp_path):
    books = [("b", 1), ("b", 1), ("a", 1), ("d", 0), ("c", 0), ("c", 0)]
    rows = [{"text": f"piece {i} of a book", "label": n, "source": book} for i, (book, n) in enumerate(books)]
    bench = read_benchmark(write(tmp_path / "tail.jsonl", rows))
    assert bench.document.tolist() == bench.cut(2).document.tolist() == [0, 0, 1, 2, 3, 3]
    assert bench.take([5, 4, 3, 2, 1], "some").document.tolist() == [0, 0, 1, 2, 3]
    assert bench.take([0, 2, 3, 4], "one of each").document is None
    numbered = [row | {"source": "abcd".index(row["source"])} for row in rows]
    assert read_benchmark(write(tmp_path / "n.jsonl", numbered)).document.tolist() == bench.document.tolist()
    without = read_benchmark(write(tmp_path / "none.jsonl", [*rows[1:], {"text": "x", "label": 1}]))
    assert without.sources == () and without.document is None
    with pytest.raises(ValueError, match="sources"):
        dataclasses.replace(bench, sources=("b",))


@pytest.mark.parametrize("sources", ["xxxx", "xyxy", "xxyy", "xxyz", "xyyz"])
def test_a_collection_of_both_classes_or_of_a_whole_class_is_no_document(sources):
    bench = benchmark(["a", "b", "c", "d"], [1, 1, 0, 0], sources=tuple(sources))
    assert bench.document is None


def test_snippets_carry_label_and_validation_of_their_document():
    books = benchmark(("a b c d e", "f g", "a b x y", "z z z"), [1, 0, 0, 1])
    snippets = books.snippets(2)
    assert snippets.texts == ("a b", "c d", "f g", "a b", "x y", "z z")  # what two documents share stays in both
    assert snippets.document.tolist() == [0, 0, 1, 2, 2, 3]
    assert snippets.labels.tolist() == [1, 1, 0, 0, 0, 1]
    assert snippets.n_words == 2 and snippets.name == "b, snippets of 2 words"
    with pytest.raises(ValueError, match="'f g'"):
        books.snippets(3)
    books = benchmark(("a b c d e", "f g", "a b x y"), [1, 0, 0], validation=(1, 2))
    assert books.snippets(2).validation == (2, 3, 4)
    assert dataclasses.replace(books, validation=()).snippets(2).validation == ()


OF_1_2_3_AND_8 = benchmark(
    [" ".join(f"{book}{i}" for i in range(2 * n)) for book, n in zip("abcd", (1, 2, 3, 8), strict=True)], [1, 0, 0, 1]
)  # two words a snippet


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("all", range(14)),
        ("head", [0, 1, 3, 6]),
        ("middle", [0, 2, 4, 10]),  # numbers 0 of 1, 1 of 2, 1 of 3 and 4 of 8
        ("tail", [0, 1, 2, 4, 5, 12, 13]),  # the last two, where there are two
    ],
)
def test_snippets_at_a_place_by_hand(part, expected):
    with pytest.raises(ValueError, match="'end'"):
        OF_1_2_3_AND_8.snippets(2, "end")
    whole, found = OF_1_2_3_AND_8.snippets(2), OF_1_2_3_AND_8.snippets(2, part)
    assert found.texts == tuple(whole.texts[i] for i in expected)
    assert found.labels.tolist() == whole.labels[list(expected)].tolist()
    of = np.repeat([0, 1, 2, 3], [1, 2, 3, 8])[list(expected)].tolist()
    assert found.document is None if len(set(of)) == len(of) else found.document.tolist() == of


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ({"text": "mill", "label": 2}, "row 5: label"),
        ({"text": "mill"}, "row 5: label"),
        ({"text": " \n\t", "label": 0}, "text 4"),
        ({"text": None, "label": 0}, "text 4"),
        ({"text": ROWS[0]["text"], "label": 0}, "texts 0 and 4 "),
    ],
)
def test_what_is_no_text_or_no_label_is_named_by_file_and_row(last, said, tmp_path):
    with pytest.raises(ValueError, match=rf"b\.jsonl.*{said}"):
        read_benchmark(write(tmp_path / "b.jsonl", [*ROWS, last]))


@pytest.mark.parametrize(
    ("texts", "labels", "fields", "said"),
    [
        (["x", "y"], [0, 1, 1], {}, "3 labels"),
        (["x", "y"], [1, 1], {}, "all 2 texts are members"),
        (["x", "", "y"], [1, 0, 1], {}, "text 1 is empty: "),
        *((["x", "y", "z"], np.array([1, 0, label], object), {}, "label") for label in (2, -1, 0.5, np.nan, "1")),
    ],
)
def test_a_benchmark_made_in_python_is_checked_too(texts, labels, fields, said):
    with pytest.raises(ValueError, match=said):
        benchmark(texts, labels, **fields)


def test_copies_in_a_file_are_counted_in_a_warning(tmp_path):
    copies = [{"text": text, "label": 1} for text in ("mill", "mill\n", " mi ll")]
    with pytest.warns(UserWarning, match=r"b\.jsonl: 2 of its 7 texts"):
        assert len(read_benchmark(write(tmp_path / "b.jsonl", [*ROWS, *copies]))) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_benchmark(write(tmp_path / "b.jsonl", [*ROWS, copies[0]]))


def test_taken_texts_keep_all_that_is_known_of_them(tmp_path):
    bench = benchmark(["a", "b", "c", "d"], [1, 0, 1, 0], domains=("p", "q", "p", "r"), language="zh", n_words=3)
    taken = bench.take(np.array([3, 0, 2]), "three")
    assert (taken.texts, taken.labels.tolist(), taken.domains) == (("d", "a", "c"), [0, 1, 1], ("r", "p", "p"))
    assert (taken.name, taken.revision, taken.language, taken.n_words) == ("three", "r", "zh", 3)
    assert benchmark(["a", "b"], [1, 0]).take([1, 0], "none known").domains == ()
    with pytest.raises(ValueError, match="members"):
        bench.take([0, 2], "members")
    rows = [{"text": f"text {i}", "label": i % 2, "split": "dev" if i in (1, 4) else "test"} for i in range(6)]
    bench = read_benchmark(write(tmp_path / "b.jsonl", rows))
    assert bench.validation == (1, 4) == bench.cut(1).validation
    assert bench.take([-2, 1], "from the end").validation == (0, 1) == bench.take([4, 1], "the same").validation
    taken = bench.take([4, 3, 2, 1], "some")
    assert [taken.texts[i] for i in taken.validation] == ["text 4", "text 1"]
    labels = np.array([1, 0], np.int8)
    bench = Benchmark(name="b", texts=("x", "y"), labels=labels, revision="r")
    labels[:] = 0
    assert bench.labels.tolist() == [1, 0]


def test_texts_too_short_to_cut_are_counted_in_a_warning():
    bench = benchmark(["one two three", "one", "one two", "a b c d"], [1, 0, 1, 0])
    with pytest.warns(UserWarning, match="2 of 4 texts"):
        cut = bench.cut(3)
    assert cut.texts == ("one two three", "one", "one two", "a b c")
    assert cut.labels.tolist() == bench.labels.tolist()
    assert "3 words" in cut.name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        benchmark(["one two three", "three four  "], [1, 0]).cut(2)
        # jieba takes the first two characters for two words in the whole text, and for one where the text ends there.
        text = "提体侭理伙"
        assert (words(text, "zh")[:2], words(text[:2], "zh")) == (["提", "体"], ["提体"])
        benchmark([text, CHINESE], [1, 0], language="zh").cut(2)


def test_words_that_are_remembered_are_those_of_jieba():
    texts = [CHINESE, CHINESE[:7], CHINESE[3:]]
    expected = [list(segment(text)) for text in texts]
    with patch.object(text_module, "_remembered", {}):
        remember_words(texts, lambda: [np.array(spans) for spans in expected])
        text_module._chinese_spans.cache_clear()
        assert [list(word_spans(text, "zh")) for text in texts] == expected
    text_module._chinese_spans.cache_clear()
