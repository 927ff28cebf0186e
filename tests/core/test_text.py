"""Words in English and Chinese, cuts and snippets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mialib.text import chinese_share, cut_to_words, language_of, printable, split_into_snippets, words

CHINESE = "我来到北京清华大学，这条河流经三个村庄。"


def test_languages_and_white_space():
    texts = {"The river": "en", CHINESE: "zh", "一种 RLC 电路的方法": "zh", "123": "en"}
    assert {text: language_of([text]) for text in texts} == texts
    assert chinese_share(["ab 河", "河"]) == 0.5 and chinese_share(["1, 2"]) == 0
    text = CHINESE[:3] + " \n" + CHINESE[3:]
    assert words(text, "zh") == words(CHINESE, "zh")
    assert cut_to_words("  one  two\n\n\tthree ", 2) == "  one  two" and cut_to_words("one ", 2) == "one "
    assert split_into_snippets("  one two\n three  four five", 2) == ["one two", "three  four"]
    assert cut_to_words(text, 3, "zh") == "我来到 \n北京"


@pytest.mark.parametrize(
    ("n_words", "expected"),
    # jieba: 我 / 来到 / 北京 / 清华大学 / ， / 这 / 条 / 河流 / 经 / 三个 / 村庄 / 。
    [(1, "我"), (2, "我来到"), (4, "我来到北京清华大学"), (5, "我来到北京清华大学，"), (99, CHINESE)],
)
def test_chinese_is_cut_at_jiebas_words(n_words, expected):
    assert cut_to_words(CHINESE, n_words, "zh") == expected


@given(st.text())
def test_what_a_terminal_would_obey_is_escaped_and_nothing_else(text):
    assert all(sign.isprintable() or sign in "\n\t" for sign in printable(text))
    if text.isprintable():
        assert printable(text) == text
    assert printable(f"{text}\x1b]0;a\x07\x9b31m\udc9b\r\n") == printable(text) + r"\x1b]0;a\x07\x9b31m\udc9b\r" + "\n"
