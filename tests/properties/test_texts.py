"""Words, cuts and snippets keep and leave out what their docstrings say, whatever the text; Chinese ones by hand."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mialib.benchmarks import Benchmark
from mialib.text import (
    check_texts,
    chinese_share,
    count_words,
    cut_to_words,
    language_of,
    printable,
    split_into_snippets,
    word_spans,
    words,
)

# What str.split() takes for white space.
SPACES = [chr(code) for code in range(0x110000) if chr(code).isspace()]
characters = st.characters(exclude_categories=["Cs"])
pieces = st.sampled_from(
    [*SPACES, "river", "well-known,", "河流", "清华大学", "。", "\0", "\u200b", "\ufeff", "e\u0301", "🙂"]
)
texts = st.lists(pieces | characters, max_size=30).map("".join)
languages = st.sampled_from(["en", "zh"])
lengths = st.integers(1, 12)


@given(texts, languages)
@example("a\x1cb\x85c\u2028d", "en")
def test_words_stand_in_order_and_leave_out_white_space_alone(text, language):
    spans = list(word_spans(text, language))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert [text[start:end] for start, end in spans] == words(text, language)
    assert count_words(text, language) == len(spans)
    covered = np.zeros(len(text), bool)
    for start, end in spans:
        covered[start:end] = True
    assert not "".join(c for c, is_in in zip(text, covered, strict=True) if not is_in).strip()
    if language == "en":
        assert words(text) == text.split()


@given(texts, lengths, languages)
def test_a_cut_text_begins_the_text_and_ends_with_its_last_word(text, n_words, language):
    cut = cut_to_words(text, n_words, language)
    spans = list(word_spans(text, language))
    assert text.startswith(cut)
    assert cut == (text[: spans[n_words - 1][1]] if len(spans) >= n_words else text)
    if language == "en":
        assert words(cut) == words(text)[:n_words]
        assert cut_to_words(cut, n_words) == cut


@given(texts, lengths, languages)
def test_snippets_are_the_texts_words_in_order(text, n_words, language):
    spans = list(word_spans(text, language))
    if len(spans) < n_words:
        with pytest.raises(ValueError, match=f"{len(spans)} words .*{n_words}"):
            split_into_snippets(text, n_words, language)
        return
    snippets = split_into_snippets(text, n_words, language)
    assert len(snippets) == len(spans) // n_words
    at = 0
    for i, snippet in enumerate(snippets):
        found = text.index(snippet, at)
        assert found == spans[i * n_words][0]
        at = found + len(snippet)
        assert at == spans[(i + 1) * n_words - 1][1]
    if language == "en":
        assert [word for snippet in snippets for word in words(snippet)] == words(text)[: len(snippets) * n_words]


@given(st.lists(texts.filter(lambda text: len(text.split()) >= 3), min_size=2, max_size=5, unique=True), st.data())
def test_a_cut_benchmark_keeps_order_labels_and_domains(written, data):
    labels = [1, 0, *data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(written) - 2, max_size=len(written) - 2))]
    bench = Benchmark("b", tuple(written), np.array(labels), "r", domains=tuple(map(str, range(len(written)))))
    cut = bench.cut(3)
    assert cut.texts == tuple(cut_to_words(text, 3) for text in written)
    assert (cut.labels.tolist(), cut.domains) == (labels, bench.domains)
    snippets = bench.snippets(3)
    assert snippets.texts == tuple(s for text in written for s in split_into_snippets(text, 3))
    assert [labels[int(domain)] for domain in snippets.domains] == snippets.labels.tolist()
    order = data.draw(st.permutations(range(len(written))))
    taken = bench.take(order, "other")
    assert taken.texts == tuple(written[i] for i in order)
    assert taken.take(np.argsort(order), "b").texts == bench.texts


@given(st.lists(st.text(max_size=8) | st.sampled_from(["\ud800", "x\udfff", " \n"]), max_size=5))
def test_exactly_what_can_be_encoded_and_is_not_blank_is_a_text(listed):
    def is_text(text):
        try:
            return bool(text.encode().strip() and text.strip())
        except UnicodeEncodeError:
            return False

    wrong = [i for i, text in enumerate(listed) if not is_text(text)]
    if not wrong:
        check_texts(listed, "texts")
    else:
        with pytest.raises(ValueError, match=f"texts, text {wrong[0]} (is empty|holds half)"):
            check_texts(listed, "texts")


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
    for cut in (cut_to_words, split_into_snippets):
        with pytest.raises(ValueError):
            cut(text, 0, "zh")
    assert printable("a\tb\n\x1b]0;c\x07\udc9b\r") == "a\tb\n" + r"\x1b]0;c\x07\udc9b\r"


@pytest.mark.parametrize(
    ("n_words", "expected"),
    # jieba: 我 / 来到 / 北京 / 清华大学 / ， / 这 / 条 / 河流 / 经 / 三个 / 村庄 / 。
    [(1, "我"), (2, "我来到"), (4, "我来到北京清华大学"), (5, "我来到北京清华大学，"), (99, CHINESE)],
)
def test_chinese_is_cut_at_jiebas_words(n_words, expected):
    assert cut_to_words(CHINESE, n_words, "zh") == expected
