"""A benchmark is checked where it enters: what is wrong with a file is said by its name, its line and its text."""

import csv
import dataclasses
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from mialib.benchmarks import Benchmark
from mialib.shared.files import load_texts, read_benchmark
from mialib.text import words

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


# --- files ---


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_all_file_formats_hold_the_same_benchmark(suffix, tmp_path):
    bench = read_benchmark(write(tmp_path / f"b{suffix}", ROWS))
    assert bench.texts == tuple(row["text"] for row in ROWS)
    assert bench.labels.tolist() == [1, 0, 1, 0]
    assert bench.labels.dtype == np.int8
    assert bench.revision == read_benchmark(write(tmp_path / "c.jsonl", ROWS)).revision
    assert len(bench) == 4


def test_the_revision_changes_with_a_text_and_with_a_label(tmp_path):
    def revision(rows):
        return read_benchmark(write(tmp_path / "b.jsonl", rows)).revision

    first = revision(ROWS)
    assert revision([*ROWS[:3], ROWS[3] | {"text": "008"}]) != first
    assert revision([*ROWS[:3], ROWS[3] | {"label": 1}]) != first
    assert revision(ROWS) == first


@pytest.mark.parametrize("column", ["text", "input", "snippet"])
def test_the_public_benchmarks_text_columns_are_known(column, tmp_path):
    rows = [{"id": i, column: row["text"], "label": row["label"]} for i, row in enumerate(ROWS)]
    assert read_benchmark(write(tmp_path / "b.jsonl", rows)).texts == tuple(row["text"] for row in ROWS)


def test_other_columns_are_taken_by_name(tmp_path):
    path = write(tmp_path / "b.csv", [{"body": row["text"], "member": row["label"]} for row in ROWS])
    bench = read_benchmark(path, text_column="body", label_column="member")
    assert bench.labels.tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match=r"b\.csv: no text column \(text or input or snippet\); it has body, member"):
        read_benchmark(path)
    with pytest.raises(ValueError, match=r"no text column \(prose\); it has body, member"):
        read_benchmark(path, text_column="prose")


def test_blank_lines_of_a_jsonl_are_skipped(tmp_path):
    path = write(tmp_path / "b.jsonl", ROWS)
    path.write_text(path.read_text().replace("\n", "\n\n"))
    assert len(read_benchmark(path)) == 4


@pytest.mark.parametrize(("line", "problem"), [('{"text": "x", "label": }', "not JSON"), ("[1, 2]", "got list")])
def test_a_malformed_jsonl_names_file_and_line(line, problem, tmp_path):
    path = tmp_path / "b.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n\n{line}\n{json.dumps(ROWS[1])}\n")
    with pytest.raises(ValueError, match=rf"b\.jsonl, line 3: .*{problem}"):
        read_benchmark(path)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.jsonl does not exist"):
        read_benchmark(tmp_path / "gone.jsonl")


def test_a_file_without_rows_is_an_error(tmp_path):
    (tmp_path / "b.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"b\.jsonl holds no rows"):
        read_benchmark(tmp_path / "b.jsonl")


def test_a_text_of_digits_in_a_csv_stays_text(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("text,label\n007,1\n12.50,0\n")
    assert read_benchmark(path).texts == ("007", "12.50")


# --- documents ---


def test_the_texts_of_one_source_are_pieces_of_one_document(tmp_path):
    books = [("b", 1), ("b", 1), ("a", 1), ("d", 0), ("c", 0), ("c", 0)]
    rows = [{"text": f"piece {i} of a book", "label": n, "source": book} for i, (book, n) in enumerate(books)]
    bench = read_benchmark(write(tmp_path / "tail.jsonl", rows))
    assert bench.document.tolist() == bench.cut(2).document.tolist() == [0, 0, 1, 2, 3, 3]
    assert bench.take([5, 4, 3, 2, 1], "some").document.tolist() == [0, 0, 1, 2, 3]
    assert bench.take([0, 2, 3, 4], "one of each").document is None
    without = read_benchmark(write(tmp_path / "none.jsonl", [*rows[1:], {"text": "x", "label": 1}]))
    assert without.sources == () and without.document is None
    with pytest.raises(ValueError, match="6 texts but 1 sources"):
        dataclasses.replace(bench, sources=("b",))


@pytest.mark.parametrize("sources", ["xxxx", "xyxy", "xxyy", "xxyz"])
def test_a_collection_of_both_classes_or_of_a_whole_class_is_no_document(sources):
    bench = benchmark(["a", "b", "c", "d"], [1, 1, 0, 0], sources=tuple(sources))
    assert bench.document is None


# --- snippets of documents ---


def test_snippets_carry_the_label_of_their_document():
    books = benchmark(("a b c d e", "f g", "a b x y", "z z z"), [1, 0, 0, 1])
    snippets = books.snippets(2)
    assert snippets.texts == ("a b", "c d", "f g", "a b", "x y", "z z")  # what two documents share stays in both
    assert snippets.document.tolist() == [0, 0, 1, 2, 2, 3]
    assert snippets.labels.tolist() == [1, 1, 0, 0, 0, 1]
    assert snippets.n_words == 2 and snippets.name == "b, snippets of 2 words"
    with pytest.raises(ValueError, match="a document of 2 words has no snippet of 3: 'f g'"):
        books.snippets(3)


def test_snippets_carry_the_domain_of_their_document():
    books = benchmark(("a b c d e", "f g"), [1, 0], domains=("novels", "plays"))
    assert books.snippets(2).domains == ("novels", "novels", "plays")


def test_the_snippets_to_choose_on_are_those_of_the_documents_to_choose_on():
    books = benchmark(("a b c d e", "f g", "a b x y"), [1, 0, 0], validation=(1, 2))
    assert books.snippets(2).validation == (2, 3, 4)
    assert dataclasses.replace(books, validation=()).snippets(2).validation == ()


def test_chinese_snippets_are_of_jiebas_words():
    books = benchmark((CHINESE, CHINESE[1:]), [1, 0], language="zh")
    assert books.snippets(2).texts[:2] == ("我来到", "北京清华大学")


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
    whole, found = OF_1_2_3_AND_8.snippets(2), OF_1_2_3_AND_8.snippets(2, part)
    assert found.texts == tuple(whole.texts[i] for i in expected)
    assert found.labels.tolist() == whole.labels[list(expected)].tolist()
    of = np.repeat([0, 1, 2, 3], [1, 2, 3, 8])[list(expected)].tolist()
    assert found.document is None if len(set(of)) == len(of) else found.document.tolist() == of


def test_an_unknown_place_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown part 'end' of a document; known: head, middle, tail"):
        OF_1_2_3_AND_8.snippets(2, "end")


# --- labels ---


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_a_label_2_is_an_error_that_names_its_row(suffix, tmp_path):
    path = write(tmp_path / f"b{suffix}", [*ROWS[:3], ROWS[3] | {"label": 2}])
    with pytest.raises(ValueError, match=r"row 4: label '?2'? is neither 0 nor 1"):
        read_benchmark(path)


def test_an_empty_label_in_a_csv_is_an_error_that_names_its_row(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("text,label\nmill,1\nriver,0\nmeadow,\n")
    with pytest.raises(ValueError, match="row 3: label '' is neither 0 nor 1"):
        read_benchmark(path)


def test_a_row_without_label_is_an_error_that_names_it(tmp_path):
    path = write(tmp_path / "b.jsonl", [*ROWS[:2], {"text": "mill"}])
    with pytest.raises(ValueError, match="row 3: no column 'label'; it has text"):
        read_benchmark(path)


@pytest.mark.parametrize("label", [1, 0])
def test_a_single_class_is_an_error_that_says_which(label, tmp_path):
    path = write(tmp_path / "b.jsonl", [row | {"label": label} for row in ROWS])
    with pytest.raises(ValueError, match=f"all 4 texts are {'members' if label else 'non-members'}"):
        read_benchmark(path)


@pytest.mark.parametrize("label", [2, -1, 0.5, np.nan, "1"])
def test_a_benchmark_made_in_python_is_checked_too(label):
    with pytest.raises(ValueError, match=r"label"):
        Benchmark(name="b", texts=("x", "y", "z"), labels=np.array([1, 0, label], object), revision="r")


def test_other_than_one_label_a_text_is_an_error():
    with pytest.raises(ValueError, match="2 texts but 3 labels"):
        benchmark(["x", "y"], [0, 1, 1])


def test_booleans_are_labels():
    assert benchmark(["x", "y"], [True, False]).labels.tolist() == [1, 0]


# --- texts ---


def test_one_text_with_both_labels_is_an_error_that_names_both():
    with pytest.raises(ValueError, match="texts 1 and 3 are the same text with labels 1 and 0: 'mill'"):
        benchmark(["river", "mill", "meadow", "mill"], [0, 1, 1, 0])


def test_one_text_twice_with_one_label_is_allowed():
    assert len(benchmark(["mill", "mill", "river"], [1, 1, 0])) == 3


def test_copies_in_a_file_are_counted_in_a_warning(tmp_path):
    copies = [{"text": text, "label": 1} for text in ("mill", "mill\n", " mi ll")]
    with pytest.warns(UserWarning, match=r"b\.jsonl: copies of others among its 7 texts: 2; intervals .* too narrow"):
        assert len(read_benchmark(write(tmp_path / "b.jsonl", [*ROWS, *copies]))) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_benchmark(write(tmp_path / "b.jsonl", [*ROWS, copies[0]]))


@pytest.mark.parametrize("empty", ["", " \n\t"])
def test_an_empty_text_is_an_error_that_names_it(empty, tmp_path):
    with pytest.raises(ValueError, match="text 1 is empty"):
        benchmark(["x", empty, "y"], [1, 0, 1])
    with pytest.raises(ValueError, match=r"b\.jsonl, text 1 is empty"):
        read_benchmark(write(tmp_path / "b.jsonl", [ROWS[0], {"text": empty, "label": 0}]))


def test_a_text_that_is_no_string_is_an_error_that_names_it(tmp_path):
    path = write(tmp_path / "b.jsonl", [ROWS[0], {"text": None, "label": 0}])
    with pytest.raises(ValueError, match="text 1: a text is expected, got NoneType None"):
        read_benchmark(path)


def test_a_benchmark_does_not_change():
    bench = benchmark(["x", "y"], [1, 0])
    for field in dataclasses.fields(bench):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(bench, field.name, None)


def test_a_benchmark_does_not_change_with_the_arrays_it_was_made_of():
    labels = np.array([1, 0], np.int8)
    bench = Benchmark(name="b", texts=("x", "y"), labels=labels, revision="r")
    labels[:] = 0
    assert bench.labels.tolist() == [1, 0]


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
def test_texts_are_read_without_labels(suffix, tmp_path):
    path = tmp_path / f"texts{suffix}"
    texts = ["The mill.", "这条河。", "007"]
    if suffix == ".txt":
        path.write_text("\n".join(texts), encoding="utf-8")
    else:
        write(path, [{"text": text} for text in texts])
    assert load_texts(path) == texts


# --- domains and parts ---


@pytest.mark.parametrize("column", ["domain", "field"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_files_domain_column_is_read(column, suffix, tmp_path):
    rows = [row | {column: domain} for row, domain in zip(ROWS, ["rivers", "texts", "rivers", "numbers"], strict=True)]
    bench = read_benchmark(write(tmp_path / f"b{suffix}", rows))
    assert bench.domains == ("rivers", "texts", "rivers", "numbers")
    assert bench.revision == read_benchmark(write(tmp_path / "plain.jsonl", ROWS)).revision
    assert bench.cut(1).domains == bench.domains


@pytest.mark.parametrize("missing", ["", None])
def test_domains_are_known_of_all_texts_or_of_none(missing, tmp_path):
    rows = [row | {"domain": "rivers"} for row in ROWS[:3]] + [ROWS[3] | {"domain": missing}]
    assert read_benchmark(write(tmp_path / "b.jsonl", rows)).domains == ()
    assert read_benchmark(write(tmp_path / "c.jsonl", ROWS)).domains == ()


def test_a_domain_that_is_a_number_is_its_text(tmp_path):
    rows = [row | {"domain": i % 2 + 7} for i, row in enumerate(ROWS)]
    assert read_benchmark(write(tmp_path / "b.jsonl", rows)).domains == ("7", "8", "7", "8")


def test_domains_of_another_number_of_texts_are_an_error_with_both_numbers():
    with pytest.raises(ValueError, match="b: 2 texts but 1 domains"):
        benchmark(["x", "y"], [0, 1], domains=("here",))


def test_taken_texts_keep_their_order_labels_and_domains():
    bench = benchmark(["a", "b", "c", "d"], [1, 0, 1, 0], domains=("p", "q", "p", "r"), language="zh", n_words=3)
    taken = bench.take(np.array([3, 0, 2]), "three")
    assert (taken.texts, taken.labels.tolist(), taken.domains) == (("d", "a", "c"), [0, 1, 1], ("r", "p", "p"))
    assert (taken.name, taken.revision, taken.language, taken.n_words) == ("three", "r", "zh", 3)
    assert benchmark(["a", "b"], [1, 0]).take([1, 0], "none known").domains == ()
    with pytest.raises(ValueError, match="members: all 2 texts are members"):
        bench.take([0, 2], "members")


# --- cutting to length ---


def test_shorter_texts_are_counted_in_a_warning():
    bench = benchmark(["one two three", "one", "one two", "a b c d"], [1, 0, 1, 0])
    with pytest.warns(UserWarning, match="2 of 4 texts are shorter than 3 words"):
        cut = bench.cut(3)
    assert cut.texts == ("one two three", "one", "one two", "a b c")
    assert cut.labels.tolist() == bench.labels.tolist()
    assert "3 words" in cut.name


def test_texts_that_are_long_enough_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        benchmark(["one two three", "three four  "], [1, 0]).cut(2)
        # jieba takes the first two characters for two words in the whole text, and for one where the text ends there.
        text = "提体侭理伙"
        assert (words(text, "zh")[:2], words(text[:2], "zh")) == (["提", "体"], ["提体"])
        benchmark([text, CHINESE], [1, 0], language="zh").cut(2)


def test_validation_texts_keep_their_place_when_others_are_taken(tmp_path):
    rows = [{"text": f"text {i}", "label": i % 2, "split": "dev" if i in (1, 4) else "test"} for i in range(6)]
    bench = read_benchmark(write(tmp_path / "b.jsonl", rows))
    assert bench.validation == (1, 4) == bench.cut(1).validation
    taken = bench.take([4, 3, 2, 1], "some")
    assert [taken.texts[i] for i in taken.validation] == ["text 4", "text 1"]


@pytest.mark.parametrize(
    ("text", "language"),
    [("The river runs", "en"), ("这条河流经过花园", "zh"), ("一种 RLC 电路的方法", "zh"), ("123", "en")],
)
def test_a_files_language_is_told_by_its_script(tmp_path, text, language):
    path = tmp_path / "b.jsonl"
    rows = [{"text": f"{text} {i}", "label": i % 2} for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_benchmark(path).language == language
    assert read_benchmark(path, language="en").language == "en", "what is asked for counts"


def test_a_plain_text_file_has_one_text_a_line_whatever_a_line_holds(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffa text\r\none\u2028still one\x0cand still\nlast".encode())
    assert load_texts(path) == ["a text", "one\u2028still one\x0cand still", "last"]
    assert load_texts(path, "input") == load_texts(path), "there is no column to name"
    path.write_bytes(b"tea\n" * 10_000 + b"caf\xe9\n")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, line 10001: not UTF-8 text \(byte 40003 .* 0xe9\)"):
        load_texts(path)


def test_an_empty_csv_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} holds no rows"):
        load_texts(path)
    path.write_text("text\n\n")
    with pytest.raises(ValueError, match="holds no rows"):
        load_texts(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text\nHello, world\n", 'line 2: 2 cells under a header of 1.*"quotes".*Hello, world'),
        ("text,label\nHello,1,\n", "line 2: 3 cells under a header of 2"),
        ("text,label\nHello\n", "line 2: 1 cells under a header of 2"),
        ("text,text\nHello,world\n", "line 1, column 2: another column is named 'text' too"),
        ('text,label\n"Hello",1\n"wor"ld,0\n', "line 3: not CSV"),
        ('text,label\n"Hello,1\nworld,0\n', "line 3: not CSV"),
        ('text,label\n"two\nlines",1\nworld,0,0\n', "line 4: 3 cells"),
    ],
)
def test_a_csv_whose_cells_might_slip_is_refused_with_its_line(content, said, tmp_path):
    path = tmp_path / "b.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, {said}"):
        load_texts(path)


def test_a_headers_name_may_hold_a_line_end_of_its_own(tmp_path):
    (tmp_path / "b.csv").write_bytes(b'"two\r\nlines",text\n1,Hello\n')
    assert load_texts(tmp_path / "b.csv") == ["Hello"]


def test_a_text_that_spills_into_a_column_without_a_name_is_refused(tmp_path):
    (tmp_path / "b.csv").write_text("text,\nHello,\nHello, world\n")
    with pytest.raises(ValueError, match=r"b\.csv, line 3: ' world' stands in a column without a name; is a text that"):
        load_texts(tmp_path / "b.csv")


@pytest.mark.parametrize("content", ["text,label,\nHello,1,\n", ",text,label\n0,Hello,1\n"])
def test_a_column_without_a_name_is_not_read(content, tmp_path):
    (tmp_path / "b.csv").write_text(content)
    assert load_texts(tmp_path / "b.csv") == ["Hello"]


def test_a_csv_gives_back_the_very_texts_that_were_written(tmp_path):
    signs = [
        "a",
        "word ",
        ",",
        '"',
        "\n",
        "\r",
        ";",
        "\t",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x85",
        "\u2028",
        "中",
        "\0",
        "NA",
        "1",
    ]
    rng = np.random.default_rng(0)
    texts = ["x" + "".join(rng.choice(signs, rng.integers(12))) + "y" for _ in range(2000)] + ["long" * 100_000]
    with (tmp_path / "b.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([["label", "text"], *([i % 2, text] for i, text in enumerate(texts))])
    assert load_texts(tmp_path / "b.csv") == texts


def test_a_plain_text_file_is_split_at_the_ends_of_lines_alone(tmp_path):
    texts = ["form\x0cfeed", "tab\x0b", "file\x1cseparator", "next\x85line", "line\u2028separator", "end"]
    (tmp_path / "b.txt").write_text("\ufeff" + "\n".join(texts) + "\n", encoding="utf-8")
    assert load_texts(tmp_path / "b.txt") == texts
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(ValueError, match="holds no rows"):
        load_texts(tmp_path / "b.txt")


def test_a_name_that_stands_twice_in_a_json_object_is_an_error(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"text": "two", "text": "three"}\n')
    with pytest.raises(ValueError, match=r"b\.jsonl, line 2: 'text' stands there twice"):
        load_texts(tmp_path / "b.jsonl")
    (tmp_path / "b.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(ValueError, match=r"b\.jsonl, line 1: "):
        load_texts(tmp_path / "b.jsonl")
