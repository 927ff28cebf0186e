"""Words in English and Chinese, cuts and snippets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mialib.text import chinese_share, cut_to_words, language_of, printable, split_into_snippets, words

CHINESE = "我来到北京清华大学，这条河流经三个村庄。"


def test_a_language_is_told_by_its_script():
    texts = {"The river": "en", CHINESE: "zh", "一种 RLC 电路的方法": "zh", "123": "en"}
    assert {text: language_of([text]) for text in texts} == texts
    assert chinese_share(["ab 河", "河"]) == 0.5 and chinese_share(["1, 2"]) == 0


@pytest.mark.parametrize(
    ("text", "n_words", "expected"),
    [
        ("one two three", 2, "one two"),
        ("one two three", 3, "one two three"),
        ("one  two\n\n\tthree four", 3, "one  two\n\n\tthree"),  # the white space inside is the model's to see
        ("  one two", 1, "  one"),
        ("one two  ", 2, "one two"),
        ("one two  ", 3, "one two  "),  # shorter texts stay as they are
        ("one", 5, "one"),
        ("well-known, isn't it", 2, "well-known, isn't"),
    ],
)
def test_english_is_cut_at_white_space(text, n_words, expected):
    assert cut_to_words(text, n_words) == expected


@pytest.mark.parametrize(
    ("n_words", "expected"),
    # jieba: 我 / 来到 / 北京 / 清华大学 / ， / 这 / 条 / 河流 / 经 / 三个 / 村庄 / 。
    [(1, "我"), (2, "我来到"), (4, "我来到北京清华大学"), (5, "我来到北京清华大学，"), (99, CHINESE)],
)
def test_chinese_is_cut_at_jiebas_words(n_words, expected):
    assert cut_to_words(CHINESE, n_words, "zh") == expected


def test_white_space_is_no_chinese_word_and_is_kept():
    text = CHINESE[:3] + " \n" + CHINESE[3:]
    assert words(text, "zh") == words(CHINESE, "zh")
    assert cut_to_words(text, 3, "zh") == "我来到 \n北京"


@given(st.text())
def test_what_a_terminal_would_obey_is_escaped_and_nothing_else(text):
    assert all(sign.isprintable() or sign in "\n\t" for sign in printable(text))
    if text.isprintable():
        assert printable(text) == text
    assert printable(f"{text}\x1b]0;a\x07\x9b31m\udc9b\r\n") == printable(text) + r"\x1b]0;a\x07\x9b31m\udc9b\r" + "\n"


def test_snippets_are_consecutive_words_with_their_white_space():
    text = "  one two\n\n    three four  five six seven"
    assert split_into_snippets(text, 3) == ["one two\n\n    three", "four  five six"]
    assert split_into_snippets(text, 7) == [text.strip()]
    assert split_into_snippets("一种装置的方法", 2, "zh") == ["一种装置", "的方法"]
