"""Blind baselines: chance where the coin decided, far above it where the texts differ, and no fold looks at another."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import quick_baselines
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from mialib import blind
from mialib.blind import BLIND, TooFewTexts, blind_scores, blind_words
from mialib.metrics import auc, auc_interval

WORDS = [f"word{i}" for i in range(200)]


def random_texts(n, rng, words=WORDS):
    return [" ".join(rng.choice(words, 40)) for _ in range(n)]


@pytest.fixture
def one_c():
    with quick_baselines():
        yield


quick = pytest.mark.usefixtures("one_c")


@pytest.mark.parametrize("kind", BLIND)
def test_random_labels_cannot_be_told_apart(kind):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([0, 1], 100))
    texts = [f"{text} {rng.integers(1990, 2025)}" for text in random_texts(200, rng)]
    assert 0.4 < auc(labels, blind_scores(texts, labels, kind, n_folds=3)) < 0.6


@pytest.mark.parametrize("kind", ["tfidf", "naive_bayes"])
def test_a_shift_in_vocabulary_is_found(kind):
    rng = np.random.default_rng(0)
    texts = random_texts(100, rng, WORDS[:150]) + random_texts(100, rng, WORDS[50:])
    labels = np.repeat([0, 1], 100)
    assert auc(labels, blind_scores(texts, labels, kind, n_folds=3)) > 0.95


def test_the_words_by_which_texts_are_told_are_those_that_differ():
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], 30)
    texts = [f"{text} {'older' if y else 'newer'}" for text, y in zip(random_texts(60, rng), labels, strict=True)]
    members, others = blind_words(texts, labels, 3)
    assert [next(iter(side)) for side in (members, others)] == ["older", "newer"] and len(members) == len(others) == 3
    assert min(members.values()) > 0 > max(others.values()) and not any(" " in word for word in (*members, *others))
    order = rng.permutation(60)
    assert blind_words([texts[i] for i in order], 1 - labels[order], 1)[0].keys() == {"newer"}
    assert blind_words([f"word{i}" for i in range(6)], np.repeat([1, 0], 3)) == ({}, {}), "no two share one"
    chinese = [word + number for word in ("水泵", "公开") for number in "甲乙丙丁戊己"]
    assert "水泵" in blind_words(chinese, np.repeat([1, 0], 6), language="zh")[0]


def test_each_number_of_a_text_is_found_by_its_own_baseline_alone():
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], 60)
    same = random_texts(120, rng)
    years = [
        f"{t} {rng.integers(2000, 2017) if y else rng.integers(2017, 2024)}" for t, y in zip(same, labels, strict=True)
    ]
    longer = [t + " word1" * int(rng.integers(10, 20)) * int(y) for t, y in zip(same, labels, strict=True)]
    repeated = ["word1 " * 40 if y else t[: len("word1 ") * 40] for t, y in zip(same, labels, strict=True)]
    assert auc(labels, blind_scores(years, labels, "year")) > 0.95
    assert auc(labels, blind_scores(longer, labels, "length")) > 0.95
    assert auc(labels, blind_scores([f"{i} {t}" for i, t in enumerate(repeated)], labels, "zlib")) > 0.95
    assert auc(labels, blind_scores(years, labels, "length")) < 0.75


@pytest.fixture(scope="module")
def alike():
    """Texts that are written alike, and labels."""
    labels = np.repeat([1, 0], 60)
    texts = [f"The '{text.capitalize()}'." for text in random_texts(120, np.random.default_rng(0))]
    with quick_baselines():
        assert auc(labels, blind_scores(texts, labels, "formatting", n_folds=3)) < 0.65
    return texts, labels


@quick
@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: text.replace(" ", "\n", 3),
        lambda text: text.replace(" ", "  ", 3),
        lambda text: text.replace("'", "’"),
        str.lower,
        lambda text: f"{text} ",
    ],
    ids=["line ends", "double spaces", "curly quotes", "case", "a space at the end"],
)
def test_how_a_file_was_written_is_found_where_its_words_are_the_same(rewrite, alike):
    texts, labels = alike
    rewritten = [rewrite(text) if y else text for text, y in zip(texts, labels, strict=True)]
    assert auc(labels, blind_scores(rewritten, labels, "formatting", n_folds=3)) > 0.95
    words, same_words = (blind._ngrams(tuple(of), "en") for of in (rewritten, texts))
    assert (words != same_words).nnz == 0


def test_what_a_baseline_looks_at_by_hand():
    assert blind._shape("In 1999, École\n\n“it’s”  漢字_x") == "^Aa 0, Aa\n\n“a’a”  a_a$"
    texts = ["in 1999 and 2021, not 20225 or 12020", "1592", "no year, 3000 people", "（2024年）"]
    assert BLIND["year"].features(texts, "en")[:, 0].tolist() == [2021, 1592, 0, 2024]


def test_the_scores_are_those_of_a_pipeline_that_sees_the_other_folds_alone():
    # n-grams are counted once for all texts; a plain pipeline counts those of the texts that it learns from.
    rng = np.random.default_rng(1)
    texts = random_texts(60, rng, WORDS[:120]) + random_texts(60, rng, WORDS[60:])
    labels = np.repeat([1, 0], 60)
    group = np.unique(texts, return_inverse=True)[1]
    expected = np.empty(120)
    for fitted, scored in StratifiedGroupKFold(4, shuffle=True, random_state=0).split(texts, labels, group):
        inner = StratifiedKFold(3, shuffle=True, random_state=0)  # no text stands here twice
        regression = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [1, 10, 100]}, scoring="roc_auc", cv=inner)
        plain = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), regression)
        plain.fit([texts[i] for i in fitted], labels[fitted])
        of_fold = plain.decision_function([texts[i] for i in scored])
        expected[scored] = (of_fold - of_fold.mean()) / of_fold.std()
    np.testing.assert_allclose(blind_scores(texts, labels, n_folds=4), expected, rtol=1e-6)


@quick
def test_no_copy_is_in_both_a_fold_and_its_complement():
    # Each text twice, with random labels: a fold that held one copy would remember the other's label.
    rng = np.random.default_rng(0)
    texts, labels = random_texts(100, rng) * 2, np.tile(rng.permutation(np.repeat([0, 1], 50)), 2)
    assert 0.35 < auc(labels, blind_scores(texts, labels, n_folds=5)) < 0.65
    rng = np.random.default_rng(0)
    texts, labels = random_texts(60, rng) * 3, np.tile(rng.permutation(np.repeat([0, 1], 30)), 3)
    judged, scores = blind.held_out_scores(texts, labels)
    assert 0.3 < auc(labels[judged], scores) < 0.7
    assert not {texts[i] for i in judged} & {texts[i] for i in set(range(180)) - set(judged.tolist())}


@quick
def test_snippets_of_one_document_share_a_fold():
    # Each document has a word of its own, in all of its snippets: by text it would give the label away.
    rng = np.random.default_rng(0)
    document = np.arange(120) % 30
    labels = rng.permutation(np.repeat([0, 1], 15))[document]
    texts = [f"{text} {f'name{d} ' * 20}" for text, d in zip(random_texts(120, rng), document, strict=True)]
    assert auc(labels, blind_scores(texts, labels, n_folds=5)) > 0.9
    assert 0.3 < auc(labels, blind_scores(texts, labels, groups=document, n_folds=5)) < 0.7


def test_folds_to_choose_by_keep_a_documents_snippets_together_too(monkeypatch):
    seen = []

    def watched(folds):
        seen.append(folds())
        return tfidf.classifier(folds)

    tfidf = blind.BLIND["tfidf"]
    monkeypatch.setitem(blind.BLIND, "tfidf", replace(tfidf, classifier=watched))
    document = np.arange(120) % 40
    texts, labels = random_texts(120, np.random.default_rng(0)), (document % 2)
    outer = StratifiedGroupKFold(4, shuffle=True, random_state=0).split(texts, labels, document)
    blind_scores(texts, labels, groups=document, n_folds=4)
    assert len(seen) == 4
    for (fitted, _), folds in zip(outer, seen, strict=True):
        for inside, outside in folds:
            assert not set(document[fitted][inside]) & set(document[fitted][outside])


@pytest.mark.parametrize("n_snippets", [[100, *[5] * 9], [1, 2, 4, 8, 16, 32, 64, 128, 3, 3, 3, 3], [20, 200] * 8])
def test_documents_of_unequal_size_take_no_signal_away(n_snippets):
    found, raw = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        label = np.repeat([1, 0], len(n_snippets))
        document = np.repeat(np.arange(len(label)), n_snippets * 2)
        labels = label[document]
        lengths = np.exp(rng.normal(4 + labels, 0.6)).astype(int) + 1
        texts = ["a" * n for n in lengths]
        found.append(auc(labels, blind_scores(texts, labels, "length", groups=document)))
        raw.append(auc(labels, lengths))
    assert np.mean(found) == pytest.approx(np.mean(raw), abs=0.03)


@pytest.mark.parametrize("n_snippets", [[60, *[3] * 11], [5] * 12])
def test_unequal_documents_are_at_chance_where_length_says_nothing(n_snippets):
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        document = np.repeat(np.arange(24), n_snippets * 2)
        labels = rng.permutation(np.repeat([1, 0], 12))[document]
        lengths = np.exp(rng.normal(4 + rng.normal(0, 0.5, 24)[document], 0.5)).astype(int) + 1
        found.append(auc(labels, blind_scores(["a" * n for n in lengths], labels, "length", groups=document)))
    assert abs(np.mean(found) - 0.5) < 2.5 * np.std(found) / len(found) ** 0.5


def test_equal_numbers_are_alike_and_chinese_is_read_by_characters():
    for sizes in ((64, 61), (37, 90)):
        labels = np.repeat([1, 0], sizes)
        for kind in ("year", "length"):
            assert not blind_scores(["no year at all"] * len(labels), labels, kind, groups=np.arange(len(labels))).any()
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list(kind), 40)) for kind in ["甲乙丙丁戊己庚辛"] * 30 + ["庚辛壬癸子丑寅卯"] * 30]
    labels = np.repeat([1, 0], 30)
    assert auc(labels, blind_scores(texts, labels, language="zh", n_folds=5)) > 0.95


def test_errors_name_the_kind_and_the_sizes():
    texts, labels = ["a", "ab", "abc", "abcd"], [1, 1, 0, 0]
    assert len(blind_scores(texts, labels, "length", n_folds=2)) == 4, "it chooses nothing, and takes no folds for that"
    with pytest.raises(TooFewTexts):
        blind_scores([f"{text} word" for text in texts], labels, "naive_bayes", n_folds=2)
    assert blind_scores([f"word {n}" for n in range(12)], [0, 1] * 6, "naive_bayes", n_folds=2).shape == (12,)
    with pytest.raises(TooFewTexts):
        blind_scores(["a", "b"], [0, 1])
    with pytest.raises(ValueError, match="'oracle'"):
        blind_scores(["a", "b"], [0, 1], "oracle")
    with pytest.raises(ValueError, match=r"3 texts .*2 labels .*3 groups"):
        blind_scores(["a", "b", "c"], [0, 1])


@pytest.mark.parametrize("text", ["a{}b{}c", "。。。{}"])
def test_texts_that_share_no_words_are_all_alike_and_no_error(text):
    texts = [text.format(i, i) for i in range(40)]
    assert set(blind_scores(texts, np.repeat([1, 0], 20))) == {0.0}
    assert set(blind_scores(["!?"] * 20 + ["..."] * 20, np.tile([1, 0], 20), n_folds=2)) == {0.0}
    assert not blind._aligned(np.array([0.3, 0.1 + 0.2]), np.array([0, 1])).any(), "rounding tells no texts apart"


@pytest.fixture(scope="module")
def of_chance():
    """The AUCs of many draws of texts whose length says nothing, with DeLong's intervals."""
    labels, found = np.repeat([1, 0], 60), []
    for seed in range(16):
        lengths = np.random.default_rng(seed).integers(20, 200, 120)
        found.append(auc_interval(labels, blind_scores(["a" * n for n in lengths], labels, "length")))
    return found


def test_out_of_fold_scores_are_at_chance_and_their_interval_as_wide_as_their_scatter(of_chance):
    # The AUCs of many draws of the same kind of texts scatter more than DeLong's interval says, and not more than ours.
    scatter = np.std([interval.estimate for interval in of_chance])
    plain = np.mean([interval.high - interval.estimate for interval in of_chance]) / 1.96
    assert plain < scatter < plain * np.sqrt(1 + 10 / 9) * 1.25
    # Pooled as they are, out-of-fold scores of a number that says nothing lie below 0.5.
    found = [interval.estimate for interval in of_chance]
    assert abs(np.mean(found) - 0.5) < 2 * np.std(found) / len(found) ** 0.5
