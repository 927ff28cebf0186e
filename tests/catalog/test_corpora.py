"""Reference corpora: their prefixes, the licences, and a warning where one is in another language than the texts."""

import re
import sys
import warnings
from collections import Counter
from types import SimpleNamespace

import pytest

from mialib.catalog import corpora, word_lists
from mialib.passes.inputs import Target, load_inputs

CORPUS = ["The river runs behind the mill", "The old engine stands near the market in spring"]
CHINESE = ["一种装置，包括河流和磨坊", "所述方法的步骤"]


@pytest.fixture
def corpus_file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(CORPUS) + "\n")
    return str(path)


@pytest.fixture
def chinese_file(tmp_path):
    path = tmp_path / "chinese.txt"
    path.write_text("\n".join(CHINESE) + "\n")
    return str(path)


@pytest.fixture
def inputs(model_folder, benchmark_file, corpus_file):
    return load_inputs(Target(model=model_folder, benchmark=benchmark_file, corpus=corpus_file))


def test_prefixes_and_licences(corpus_file):
    assert list(corpora.reference_texts(corpus_file)) == CORPUS
    n = len(CORPUS[0])
    assert list(corpora.reference_texts(f"{corpus_file}:{n}")) == CORPUS[:1]
    assert list(corpora.reference_texts(f"{corpus_file}:{n + 3}")) == [CORPUS[0], "The"]
    assert corpora.PREFIX.fullmatch("lab/en:2M").groups() == ("lab/en", "2", "M")
    texts = list(corpora.reference_texts(corpora.LICENCES))
    assert texts == corpora.read_licences() and len(set(texts)) == len(texts)
    assert min(len(text.split()) for text in texts) >= 20
    assert sum(map(len, texts)) > 300_000, "the largest prefix that a page takes"
    assert "copyright" in " ".join(texts[:50]).lower()
    again = corpora.read_licences(seed=1)
    assert again != texts and sorted(again) == sorted(texts)


@pytest.mark.parametrize(("size", "message"), [("1k", r"corpus\.txt has 77 characters, 1,000 were asked"), ("0", "0 ")])
def test_a_prefix_that_the_corpus_does_not_have_is_an_error(corpus_file, size, message):
    with pytest.raises(ValueError, match=message):
        list(corpora.reference_texts(f"{corpus_file}:{size}"))


def test_a_corpus_in_another_language_is_warned_of_and_in_the_same_not(inputs, chinese_file, corpus_file):
    with pytest.warns(UserWarning, match=r"chinese\.txt .*: 100% "):
        inputs.retarget(corpus=chinese_file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs.retarget(corpus=corpus_file)
        corpora.warn_of_other_language(chinese_file, CHINESE, "Chinese texts")


@pytest.fixture
def a_word_list(monkeypatch):
    """The package wordfreq with a small list of each language, and corpora of 5,000 words of it."""
    lists = {"en": {"the": 0.5, "of": 0.3, "mill": 0.1, "rare": 2e-5}, "zh": {"的": 0.5, "usb": 0.2, "wifi": 0.2}}
    package = SimpleNamespace(
        get_frequency_dict=lambda language, wordlist: lists[language] if wordlist == "large" else {}
    )
    monkeypatch.setitem(sys.modules, "wordfreq", package)
    monkeypatch.setattr(word_lists, "version", lambda package: {"wordfreq": "3.1"}[package])
    monkeypatch.setattr(word_lists, "N_WORDS", 9_000)
    monkeypatch.setattr(word_lists, "WORDS_AT_ONCE", 2_500)


def test_in_a_corpus_of_a_word_list_each_word_stands_as_often_as_the_list_says(a_word_list):
    texts = list(corpora.reference_texts("wordfreq/en"))
    assert Counter(" ".join(texts).split()) == {"the": 5000, "of": 3000, "mill": 1000}
    assert max(len(text.split()) for text in texts) == 1000 and len(texts) < 15
    first = Counter(texts[0].split())
    assert 450 < first["the"] < 650 and texts[0].split() != sorted(texts[0].split())
    assert texts == list(corpora.reference_texts("wordfreq/en"))
    assert "".join(corpora.reference_texts("wordfreq/en:7k")) == "".join(texts)[:7000]
    chinese = "".join(corpora.reference_texts("wordfreq/zh"))
    assert "的 " not in chinese and " 的" not in chinese
    assert {"usb usb", "usb wifi"} < set(re.findall(r"usb \w{3,4}", chinese))


def test_a_word_lists_corpus_goes_by_version_and_size(a_word_list):
    identities = {corpora.corpus_identity(name) for name in ("wordfreq/en", "wordfreq/en:7k", "wordfreq/zh")}
    assert len(identities) == 3 and all("wordfreq 3.1" in of for of in identities)
