"""A page's parameters as lists and targets, as papermill's -p or a profile gives them."""

import pytest

from mialib.book import pages
from mialib.book.pages import as_list, load_columns, numbers, one_for_each, targets, whole_numbers
from mialib.book.tables import what_ran


def test_targets_take_lists_or_comma_separated_text_and_share_single_entries():
    listed = targets(["a", "b"], "x", ["-", "r"], None, published="P / Q")
    typed = targets("a, b", "x", "-, r", "", published="P / Q")
    assert listed == typed
    assert [t.benchmark for t in listed] == ["x", "x"]
    assert [t.reference for t in listed] == [None, "r"]
    assert [t.published for t in listed] == ["P / Q"] * 2
    assert listed[1].column == "b on x"


def test_a_field_that_is_left_out_keeps_its_default():
    assert [t.n_neighbors for t in targets("a, b", "x", n_neighbors=["-", 5])] == [100, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "x"), "at least one model"),
        (("a", ""), "each model needs one"),
        (("a, b, c", "x, y"), "benchmarks: 2 entries for 3 models; .*: -p benchmarks a,b,c$"),
        (("a", "x, y"), "benchmarks: 2 entries for 1 model; .*: -p benchmarks a$"),
        (("a, a", "x"), "'a on x' is asked for twice"),
    ],
)
def test_targets_that_do_not_fit_are_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        targets(*arguments)


def test_the_start_token_is_as_on_the_command_line():
    assert [t.start_token for t in targets("a, b", "c")] == ["auto", "auto"]
    assert [t.start_token for t in targets("a, b", "c", start_token="none")] == [None, None]
    assert [t.start_token for t in targets("a", "c", start_token="</s>")] == ["</s>"]


def test_what_ran_says_which_start_token_each_text_had(model_folder, benchmark_file):
    for start_token, said in (("auto", "id "), ("none", "none")):
        [inputs] = load_columns(model_folder, benchmark_file, start_token=start_token)
        n_scored = inputs.stats.n_tokens
        assert what_ran([inputs]).loc[model_folder, "start token"].startswith(said)
    with_one = load_columns(model_folder, benchmark_file)[0].stats.n_tokens
    assert (with_one == n_scored + 1).all()


def test_columns_are_loaded_of_each_target_and_scored_when_asked(monkeypatch, model_folder, benchmark_file):
    monkeypatch.setattr("mialib.passes.inputs.score_or_load", lambda *_: pytest.fail("scored before it is asked for"))
    [column] = load_columns(model_folder, benchmark_file)
    assert len(column.texts) == 16 and column["reference"] is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a, b", ["a", "b"]), (["a"], ["a"]), (None, []), ("", []), (3, [3]), ((1, 2), [1, 2])],
)
def test_a_parameter_is_a_list(value, expected):
    assert as_list(value) == expected


def test_numbers_are_checked_by_name():
    assert numbers("0.5, 2", "fprs") == [0.5, 2.0] and whole_numbers([3, "4"], "lengths") == [3, 4]
    for wrong in ("0", "2.5", "x", [-1]):
        with pytest.raises(ValueError, match="lengths: a positive whole number is expected, got"):
            whole_numbers(wrong, "lengths")


def test_one_entry_is_for_all_and_a_dash_is_none():
    assert one_for_each("-", 2, "corpora") == [None, None] == one_for_each("", 2, "corpora")
    assert one_for_each("a, -", 2, "corpora") == ["a", None]
    assert pages.optional("-") is None and pages.optional("a") == "a"
