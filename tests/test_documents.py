"""Long documents by their snippets: how they are cut, found and scored, and intervals that draw documents."""

import json
from dataclasses import replace

import numpy as np
import oracles
import pytest

from mialib import documents
from mialib.passes import inputs as evaluate
from mialib.benchmarks import Benchmark
from mialib.metrics import auc, auc_interval

OF_1_2_3_AND_8 = np.repeat([0, 1, 2, 3], [1, 2, 3, 8])  # the number of each snippet's document


# --- cutting ---


def test_snippets_are_consecutive_words_with_their_white_space():
    text = "  one two\n\n    three four  five six seven"
    assert documents.split_into_snippets(text, 3) == ["one two\n\n    three", "four  five six"]
    assert documents.split_into_snippets(text, 7) == [text.strip()]
    with pytest.raises(ValueError, match="a document of 7 words has no snippet of 8"):
        documents.split_into_snippets(text, 8)
    assert documents.split_into_snippets("一种装置的方法", 2, "zh") == ["一种装置", "的方法"]


def test_snippets_carry_the_label_of_their_document():
    books = Benchmark("books", ("a b c d e", "f g", "a b x y"), np.array([1, 0, 0]), "r")
    snippets, document = documents.snippet_benchmark(books, 2)
    assert snippets.texts == ("a b", "c d", "f g", "a b", "x y")  # what two documents share stays in both
    assert document.tolist() == [0, 0, 1, 2, 2]
    assert snippets.labels.tolist() == [1, 1, 0, 0, 0]


def test_snippets_carry_the_domain_and_the_source_of_their_document():
    books = Benchmark("books", ("a b c d e", "f g"), np.array([1, 0]), "r", domains=("novels", "plays"))
    assert documents.snippet_benchmark(books, 2)[0].domains == ("novels", "novels", "plays")
    assert documents.snippet_benchmark(replace(books, sources=("x", "y")), 2)[0].sources == ("x", "x", "y")


def test_the_snippets_to_choose_on_are_those_of_the_documents_to_choose_on():
    books = Benchmark("books", ("a b c d e", "f g", "a b x y"), np.array([1, 0, 0]), "r", validation=(1, 2))
    assert documents.snippet_benchmark(books, 2)[0].validation == (2, 3, 4)
    assert documents.snippet_benchmark(replace(books, validation=()), 2)[0].validation == ()


# --- places in a document ---


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("head", [0, 1, 3, 6]),
        ("middle", [0, 2, 4, 10]),  # numbers 0 of 1, 1 of 2, 1 of 3 and 4 of 8
        ("tail", [0, 1, 2, 4, 5, 12, 13]),  # the last two, where there are two
    ],
)
def test_snippets_at_a_place_by_hand(part, expected):
    assert documents.snippets_at(OF_1_2_3_AND_8, part).tolist() == expected
    assert documents.snippets_at(OF_1_2_3_AND_8 * 5 + 2, part).tolist() == expected, "whatever the documents' numbers"


def test_an_unknown_place_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown part 'end' of a document; known: head, middle, tail"):
        documents.snippets_at(OF_1_2_3_AND_8, "end")


def test_the_last_of_each_document():
    assert documents.last_of_each(OF_1_2_3_AND_8).tolist() == [0, 2, 5, 13]
    of_tail = OF_1_2_3_AND_8[documents.snippets_at(OF_1_2_3_AND_8, "tail")]
    assert documents.last_of_each(of_tail).tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("part", "texts", "document"),
    [
        ("all", ["a b", "c d", "e f", "g h", "i j", "k l"], [0, 0, 0, 1, 2, 2]),
        ("head", ["a b", "g h", "i j"], [0, 1, 2]),
        ("middle", ["c d", "g h", "k l"], [0, 1, 2]),
        ("tail", ["c d", "e f", "g h", "i j", "k l"], [0, 0, 1, 2, 2]),
    ],
)
def test_a_part_of_the_documents_is_those_snippets_and_no_other(part, texts, document, model_folder, tmp_path):
    rows = [{"text": "a b c d e f", "label": 1}, {"text": "g h rest", "label": 0}, {"text": "i j k l m", "label": 1}]
    (tmp_path / "books.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [target] = evaluate.targets(model_folder, str(tmp_path / "books.jsonl"))
    snippets, found = documents.snippet_inputs(target, 2, (), part)
    assert list(snippets.benchmark.texts) == texts and found.tolist() == document
    assert snippets.labels.tolist() == [[1, 0, 1][i] for i in document]
    assert len(snippets.stats) == len(texts) and snippets.lowercase is None
    alone = evaluate.score_or_load(target.model, texts[-1:])
    np.testing.assert_allclose(snippets.stats[-1].log_prob, alone[0].log_prob, atol=1e-5)


def test_snippets_are_scored_alone(inputs):
    snippets, document = documents.snippet_inputs(inputs.target, 3)
    assert snippets.benchmark.texts[:2] == ("The river stands", "near the old")
    alone = evaluate.score_or_load(inputs.target.model, snippets.benchmark.texts[1:2])
    np.testing.assert_allclose(snippets.stats[1].log_prob, alone[0].log_prob, atol=1e-5)
    assert document.tolist() == np.repeat(np.arange(8), 2).tolist()
    assert evaluate.score_all(snippets, ["min_k"])["min_k"].shape == (16,)


# --- intervals ---


def test_a_documents_rate_is_the_share_of_its_snippets():
    document = np.array([0, 0, 0, 0, 1, 1])
    above = np.array([1, 0, 0, 0, 1, 1], bool)
    assert documents.document_means(above, document).tolist() == [0.25, 1.0]


def test_snippet_auc_counts_snippets_but_draws_documents():
    rng = np.random.default_rng(1)
    document = np.repeat(np.arange(40), 8)
    labels = (document < 20).astype(int)
    topics = rng.normal(scale=2, size=40)[document]
    scores = np.round(labels + topics + rng.normal(size=320), 1)
    found = documents.document_auc_interval(labels, scores, document)
    naive = auc_interval(labels, scores)
    assert found.estimate == pytest.approx(auc(labels, scores))
    assert found.high - found.low > 2 * (naive.high - naive.low), "snippets of one document are alike"
    # With one snippet a document the two ways agree.
    found = documents.document_auc_interval(labels[::8], scores[::8], np.arange(40))
    naive = auc_interval(labels[::8], scores[::8])
    assert found.estimate == pytest.approx(naive.estimate)
    np.testing.assert_allclose([found.low, found.high], [naive.low, naive.high], atol=0.03)


def test_snippet_auc_weighs_documents_of_unequal_length_by_their_snippets():
    document = np.array([0, 0, 0, 1, 2, 3, 3])
    labels = np.array([1, 1, 1, 1, 0, 0, 0])
    scores = np.array([3.0, 1, 2, 2, 2, 1, 5])
    assert documents.document_auc_interval(labels, scores, document).estimate == pytest.approx(auc(labels, scores))


def test_the_snippet_interval_is_that_of_a_naive_loop(monkeypatch):
    """Documents of 1 to 4 snippets in no order: draw documents, count all pairs of their snippets."""
    document = np.array([4, 0, 0, 2, 1, 3, 0, 1, 4, 3, 5, 3, 3, 6])
    labels = np.isin(document, [0, 3, 5]).astype(int)
    scores = np.array([3.0, 1, 2, 2, 2, 1, 5, 0, 4, 2, 2, 3, 6, 2])
    rng = np.random.default_rng(7)
    times = {n: rng.multinomial(n, np.full(n, 1 / n), size=101).astype(float) for n in (3, 4)}
    monkeypatch.setattr(documents, "resamples", lambda n, *_: times[n])
    sides = [[scores[document == i] for i in numbers] for numbers in ([0, 3, 5], [1, 2, 4, 6])]
    resampled = []
    for of_members, of_non_members in zip(times[3], times[4], strict=True):
        members, non_members = (
            [score for own, n in zip(side, drawn, strict=True) for _ in range(int(n)) for score in own]
            for side, drawn in zip(sides, (of_members, of_non_members), strict=True)
        )
        resampled.append(oracles.auc(members, non_members))
    found = documents.document_auc_interval(labels, scores, document, level=0.9)
    assert found.estimate == pytest.approx(auc(labels, scores))
    np.testing.assert_allclose([found.low, found.high], np.quantile(resampled, [0.05, 0.95]))


def test_the_snippet_interval_draws_the_two_classes_apart_and_is_seeded():
    document, labels = np.arange(40), np.tile([1, 0], 20)
    scores = np.repeat(np.random.default_rng(0).normal(size=20), 2)  # each non-member like one member
    found = documents.document_auc_interval(labels, scores, document)
    assert found.low < 0.4 and found.high > 0.6, "drawn together the two would always tie"
    assert documents.document_auc_interval(labels, scores, document) == found
    assert documents.document_auc_interval(labels, scores, document, seed=5) != found


def test_the_interval_of_a_mean_is_as_wide_as_the_normal_one():
    values = np.random.default_rng(0).exponential(size=400)
    found = documents.mean_interval(values)
    assert found.estimate == pytest.approx(values.mean())
    half = 1.96 * values.std() / np.sqrt(400)
    np.testing.assert_allclose([found.low, found.high], [values.mean() - half, values.mean() + half], atol=0.02)


def test_separated_documents_are_no_certainty_and_two_of_a_class_are_needed():
    document = np.repeat(np.arange(6), 3)
    labels, scores = np.repeat([1, 0], 9), np.repeat([2.0, 1.0], 9)
    interval = documents.document_auc_interval(labels, scores, document)
    assert (interval.low, interval.high) == (pytest.approx(0.025 ** (1 / 3)), 1)
    with pytest.raises(ValueError, match="1 documents of members and 3 of non-members"):
        documents.document_auc_interval(labels[6:], scores[6:], document[6:])
    assert documents.mean_interval([0.0] * 50).high == pytest.approx(1 - 0.025 ** (1 / 50))
    assert documents.mean_interval([3.0] * 50).high == 3
