"""Reference corpora: their prefixes, the licences, and a warning where one is in another language than the texts."""

import warnings

import pytest

from mialib.catalog import corpora
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
