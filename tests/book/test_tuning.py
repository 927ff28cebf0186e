"""Hyperparameters chosen in two ways: on the texts that are reported, and on a fifth that is not."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from conftest import made_inputs, random_rows

from mialib.bootstrap import document_auc_interval
from mialib.detectors import DETECTORS, detect
from mialib.metrics import auc, auc_interval
from mialib.model_selection import HELD_OUT, Candidates, stratified_split
from mialib.passes.inputs import score_all, score_grid
from replication.published import load_published, printed_column, published_along
from replication.studies import tuning
from replication.studies.tuning import Gap, gap, tune_once, tune_two_ways

GRIDS = {name: DETECTORS[name].grid for name in ("min_k", "surp")}
MANY = np.tile([1, 0], 60)


@pytest.fixture
def inputs():
    """Sixty made texts of 1 to 60 tokens, every third a member, with a lowercase pass and none of a reference."""
    lengths = np.random.default_rng(1).permutation(np.arange(1, 61))
    return made_inputs(random_rows(2, lengths), np.tile([1, 0, 0], 20), lowercase=random_rows(3, lengths))


def of_documents(inputs, document):
    """The same inputs, of texts that are from these documents."""
    sources = tuple(f"document {i}" for i in document)
    return replace(inputs, benchmark=replace(inputs.benchmark, sources=sources))


def candidates_of(*scores):
    return Candidates(tuple({"k": float(i)} for i in range(len(scores))), np.array(scores, float))


def test_the_gap_is_what_the_texts_chosen_on_lose_on_the_others(monkeypatch):
    val_idx, test_idx = stratified_split(MANY, HELD_OUT)
    perfect_there = np.where(np.isin(np.arange(120), val_idx), MANY, -MANY)
    middling = np.random.default_rng(0).normal(size=120) + MANY
    monkeypatch.setattr(tuning, "GAP_SPLITS", 1)
    once = gap(candidates_of(middling, perfect_there), MANY)
    assert once.mean == pytest.approx(auc(MANY[test_idx], middling[test_idx])), "minus an AUC of 0"
    assert once.mean == once.largest


def test_the_methods_are_the_papers_rows_and_no_number_stands_beside_others(inputs):
    rows = [row for i in (1, 2, 3) for row in load_published("surp", f"table-{i}")["row"]]
    assert set(rows) == set(tuning.METHODS.values())
    assert printed_column("surp", "table-1", "WikiMIA-32 / LLaMA-13B") == "WikiMIA-32 / LLaMA-13B"
    assert printed_column("surp", "table-1", "WikiMIA-512 / LLaMA-13B") is None
    assert printed_column("surp", "table-1", "WikiMIA-32 / None") is None
    with pytest.raises(ValueError, match=r"table-1 .*'LLaMA-13b' \(did you mean 'LLaMA-13B'"):
        printed_column("surp", "table-1", "WikiMIA-32 / LLaMA-13b")
    results = tune_two_ways(inputs).results(item="table-1", published="WikiMIA-512 / LLaMA-13B")
    assert {(r.published, r.published_column) for r in results} == {(None, None)}


def test_each_method_has_a_row_in_both_ways_and_the_published_number_beside_the_papers_way(inputs):
    printed, tuned = "WikiMIA-32 / LLaMA-13B", tune_two_ways(inputs)
    results = tuned.results("here", "table-1", printed)
    assert [(r.row, r.metric) for r in results] == [
        (label, metric) for metric in ("auc", "auc_held_out") for label in tuning.METHODS.values()
    ]
    assert {r.column for r in results} == {"here"}
    of_paper = {r.row: r.published for r in results if r.metric == "auc"}
    assert of_paper == published_along("surp", "table-1", printed, "auc") and of_paper["SURP"] == 0.868
    assert {r.published_column for r in results if r.metric == "auc"} == {printed}
    assert {(r.published, r.published_column) for r in results if r.metric == "auc_held_out"} == {(None, None)}
    empty = {r.row for r in results if r.ours is None}
    assert empty == {"Ref", "Neighbor"}, "no reference model here, and no neighbors"
    assert {name for name, scores in tuned.held_out.items() if scores is None} == empty
    assert set(tuned.gaps) == {"MinK", "SURP"}
    plain = tuned.results()
    assert {(r.published, r.published_column, r.column) for r in plain} == {(None, None, inputs.target.column)}


def test_hyperparameters_are_chosen_on_all_texts_and_on_a_fifth_that_is_not_judged(inputs):
    tuned = tune_two_ways(inputs)
    found = {(r.row, r.metric): r.interval for r in tuned.results()}
    val_idx, test_idx = stratified_split(inputs.labels, HELD_OUT)
    assert tuned.test_idx.tolist() == test_idx.tolist() and len(val_idx) == 12
    for name, label in (("min_k", "MinK"), ("surp", "SURP")):
        points = product(*GRIDS[name].values())
        scores = [detect(name, inputs.stats, **dict(zip(GRIDS[name], point, strict=True))) for point in points]
        at_best = max(scores, key=lambda values: auc(inputs.labels, values))
        on_fifth = max(scores, key=lambda values: auc(inputs.labels[val_idx], values[val_idx]))
        assert found[label, "auc"].estimate == pytest.approx(auc(inputs.labels, at_best))
        held_out = auc_interval(inputs.labels[test_idx], on_fifth[test_idx])
        assert found[label, "auc_held_out"].estimate == pytest.approx(held_out.estimate)
        assert found[label, "auc_held_out"].low == pytest.approx(held_out.low)
        assert tuned.gaps[label] == gap(score_grid(inputs, name), inputs.labels)
    ppl = score_all(inputs, ["ppl"])["ppl"]
    assert found["PPL", "auc"] == auc_interval(inputs.labels, ppl)
    assert found["PPL", "auc_held_out"] == auc_interval(inputs.labels[test_idx], ppl[test_idx]), "the same texts"


def test_intervals_draw_and_choices_keep_whole_documents():
    document = np.repeat(np.arange(30), 2)
    inputs = made_inputs(random_rows(5, [20] * 60), document % 2)
    tuned = tune_two_ways(of_documents(inputs, document))
    found = {(r.row, r.metric): r.interval for r in tuned.results()}
    ppl = score_all(inputs, ["ppl"])["ppl"]
    assert found["PPL", "auc"] == document_auc_interval(inputs.labels, ppl, document)
    alone = {(r.row, r.metric): r.interval for r in tune_two_ways(of_documents(inputs, range(60))).results()}
    assert alone["PPL", "auc"] == auc_interval(inputs.labels, ppl), "one text a document: DeLong's"
    val_idx = np.setdiff1d(np.arange(60), tuned.test_idx)
    assert 0 < len(val_idx) < len(tuned.test_idx)
    shared = set(document[val_idx].tolist()) & set(document[tuned.test_idx].tolist())
    assert not shared, "the snippets of one document are alike, so its other half is not unseen"
    assert isinstance(tuned.gaps["SURP"], Gap)


def test_what_is_chosen_on_a_fifth_serves_all_columns_and_no_column_holds_the_fifth(inputs):
    some = np.flatnonzero((inputs.labels == 1) | (np.arange(60) < 30))  # all members, and half of the others
    half = inputs.take(some, "half of the others")
    (own, again), (scores, of_again), chosen = tune_once([inputs, half], ["ppl", "min_k", "surp", "ref"])
    val_idx, test_idx = stratified_split(inputs.labels, HELD_OUT)
    in_both = np.isin(test_idx, some)
    assert own.texts == tuple(inputs.texts[i] for i in test_idx)
    assert own.labels.tolist() == inputs.labels[test_idx].tolist()
    assert again.texts == tuple(text for text, is_in in zip(own.texts, in_both, strict=True) if is_in)
    assert set(scores) == set(of_again) == {"ppl", "min_k", "surp"} and set(chosen) == {"min_k", "surp"}
    for name, options in chosen.items():
        grid = score_grid(inputs, name)
        assert options == grid.options[grid.best(inputs.labels, val_idx)]
        whole = detect(name, inputs.stats, **options)
        np.testing.assert_allclose(scores[name], whole[test_idx])
        np.testing.assert_allclose(of_again[name], whole[test_idx][in_both])
    np.testing.assert_allclose(scores["ppl"], detect("ppl", inputs.stats)[test_idx])
