"""From a model and a benchmark to results, on a tiny model: targets, cache, cuts, sweeps, tables."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import made_inputs, random_rows

from mialib.passes import cache, inputs as evaluate
from mialib.book import results, tables
from mialib.detectors import DETECTORS
from mialib.metrics import Comparison, Interval, auc
from mialib.scoring import Scorer


@pytest.fixture
def corpus_file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("The river runs behind the mill\nThe old engine stands near the market\n")
    return str(path)


@pytest.fixture
def inputs(model_folder, benchmark_file, corpus_file):
    [target] = evaluate.targets(model_folder, benchmark_file, model_folder, corpus_file)
    return evaluate.load_inputs(target)


def test_targets_take_lists_or_comma_separated_text_and_share_single_entries():
    listed = evaluate.targets(["a", "b"], "x", ["-", "r"], None, "P / Q")
    typed = evaluate.targets("a, b", "x", "-, r", "", "P / Q")
    assert listed == typed
    assert [t.benchmark for t in listed] == ["x", "x"]
    assert [t.reference for t in listed] == [None, "r"]
    assert listed[1].column == "b on x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "x"), "at least one model"),
        (("a", ""), "each model needs one"),
        (("a, b, c", "x, y"), "benchmark: 2 entries for 3; give one for each"),
    ],
)
def test_targets_that_do_not_fit_are_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate.targets(*arguments)


def test_every_detector_scores_every_text(inputs):
    scores = evaluate.score_all(inputs)
    assert set(scores) == set(DETECTORS) - {"neighbor"}, "a hundred passes are run where they are asked for alone"
    assert all(values.shape == (16,) and np.isfinite(values).all() for values in scores.values())


def test_hyperparameters_of_a_detector_that_is_not_scored_are_an_error(inputs):
    with pytest.raises(ValueError, match=r"hyperparameters of 'mink', .* not among the detectors to score: min_k, ppl"):
        evaluate.score_all(inputs, ["min_k", "ppl"], mink={"k": 100})
    with pytest.raises(ValueError, match="hyperparameters of 'neighbor'"):
        evaluate.score_all(inputs, neighbor={})


def test_a_detector_without_its_input_is_none_not_an_error(model_folder, benchmark_file):
    [target] = evaluate.targets(model_folder, benchmark_file)
    scores = evaluate.score_all(evaluate.load_inputs(target), ["ref", "dc_pdd", "ppl"])
    assert scores["ref"] is None and scores["dc_pdd"] is None and scores["ppl"] is not None


def test_neighbors_are_computed_only_where_they_are_asked_for(model_folder, masked_folder, benchmark_file, monkeypatch):
    passes = []

    def log_probs(model, texts, masked_lm, *, n_neighbors, language):
        passes.append((model, masked_lm, n_neighbors, language, len(texts)))
        return np.arange(2.0 * len(texts)).reshape(-1, 2) - 40

    monkeypatch.setattr(evaluate, "neighbor_log_probs_or_load", log_probs)
    [target] = evaluate.targets(model_folder, benchmark_file)
    without = evaluate.load_inputs(target)
    assert not passes and "neighbor" not in evaluate.score_all(without)
    assert evaluate.score_all(without, ["neighbor"]) == {"neighbor": None}
    found = evaluate.with_neighbors(without, masked_folder, 2)
    assert passes == [(model_folder, masked_folder, 2, "en", 16)]
    assert evaluate.score_all(found)["neighbor"].shape == (16,)
    np.testing.assert_array_equal(found.take([3, 0], "two").neighbors, found.neighbors[[3, 0]])
    assert evaluate.cut_inputs(found, 4)[0].neighbors is None, "cut texts have neighbors of their own"


def test_chinese_has_no_lowercase_pass(model_folder, tmp_path):
    path = tmp_path / "zh.jsonl"
    path.write_text('{"text": "一种装置", "label": 1}\n{"text": "一种方法", "label": 0}\n')
    benchmark = evaluate.load_benchmark(str(path), language="zh")
    assert not evaluate.has_case(benchmark)


def test_scoring_again_loads_and_never_runs_the_model(inputs, model_folder, monkeypatch):
    monkeypatch.setattr(Scorer, "score", lambda *_, **__: pytest.fail("scored again"))
    again = cache.score_or_load(model_folder, inputs.benchmark.texts)
    np.testing.assert_array_equal(again.log_prob, inputs.stats.log_prob)


@pytest.mark.parametrize("change", ["texts", "start_token", "dtype", "code", "weights", "versions", "device"])
def test_the_cache_misses_when_anything_that_matters_changes(inputs, model_folder, monkeypatch, change, tmp_path):
    calls = []
    score = Scorer.score
    monkeypatch.setattr(Scorer, "score", lambda self, texts, **kw: calls.append(1) or score(self, texts, **kw))
    texts, model, options = list(inputs.benchmark.texts), model_folder, {}
    if change == "texts":
        texts = texts[::-1]
    elif change == "start_token":
        options["start_token"] = None
    elif change == "dtype":
        options["dtype"] = "bfloat16"
    elif change == "versions":
        monkeypatch.setattr(cache, "version", lambda name: "another")
    elif change == "device":
        monkeypatch.setattr(cache, "pick_device", lambda device: SimpleNamespace(type="another"))
        options["dtype"] = "float32"
    elif change == "code":
        monkeypatch.setattr(cache, "code_hash", lambda *_: "another")
    else:
        loaded = Scorer(model_folder).loaded
        loaded.model.get_output_embeddings().weight.data[0] += 1
        model = str(tmp_path / "nudged")
        loaded.model.save_pretrained(model)
        loaded.tokenizer.save_pretrained(model)
    cache.score_or_load(model, texts, **options)
    assert calls == [1]


def test_cut_texts_reuse_the_statistics_of_the_whole(inputs, model_folder):
    cut, n_reused = evaluate.cut_inputs(inputs, 4)
    assert n_reused == 16
    fresh = Scorer(model_folder).score(cut.benchmark.texts, progress=False)
    np.testing.assert_array_equal(cut.stats.token_ids, fresh.token_ids)
    np.testing.assert_allclose(cut.stats.log_prob, fresh.log_prob, atol=1e-5)
    for whole, of_cut in ((inputs.reference, cut.reference), (inputs.lowercase, cut.lowercase)):
        assert (of_cut.n_tokens < whole.n_tokens).all()


def test_a_column_asked_for_twice_is_an_error():
    with pytest.raises(ValueError, match="'a on x' is asked for twice"):
        evaluate.targets("a, a", "x")


def test_a_cut_inside_a_token_is_scored_again(inputs, model_folder):
    cut_texts = [text[:-1] for text in inputs.benchmark.texts]  # "Mil": another token than a prefix of "Mill"'s
    stats, n_reused = cache.score_cut_texts(model_folder, inputs.stats, cut_texts)
    fresh = Scorer(model_folder).score(cut_texts, progress=False)
    assert n_reused < 16
    np.testing.assert_array_equal(stats.token_ids, fresh.token_ids)
    np.testing.assert_allclose(stats.log_prob, fresh.log_prob, atol=1e-5)


def test_measure_puts_the_published_number_beside_ours(inputs):
    from dataclasses import replace

    beside = replace(inputs, target=replace(inputs.target, published="WikiMIA / Pythia-6.9B"))
    scores = evaluate.score_all(beside, ["dc_pdd", "lowercase", "surp"])
    found = evaluate.measure(beside, scores, paper="dc-pdd", items={"auc": "table-2"})
    assert {r.row: r.published for r in found} == {"DC-PDD": 0.698, "Lowercase": 0.605, "SURP": None}
    assert found[0].ours == auc(beside.labels, scores["dc_pdd"])
    assert found[0].low <= found[0].ours <= found[0].high


def test_sweep_scores_each_value_and_knows_which_are_printed(inputs):
    from dataclasses import replace

    beside = replace(inputs, target=replace(inputs.target, published="PatentMIA / Qwen1.5-14B"))
    found, scores = evaluate.sweep(beside, "dc_pdd", "a", [0.0003, 0.01], paper="dc-pdd", item="table-5")
    assert [(r.row, r.published) for r in found] == [("0.0003", None), ("0.01", 0.689)]
    np.testing.assert_array_equal(scores[0.01], evaluate.score_all(inputs, ["dc_pdd"])["dc_pdd"])


def test_results_survive_saving_and_render_as_a_table(inputs, tmp_path):
    found = evaluate.measure(inputs, evaluate.score_all(inputs, ["ppl", "min_k"]))
    path = tmp_path / "results.json"
    results.save_results(path, found, paper="dc-pdd", item="table 2", provenance=[inputs.stats.provenance])
    assert results.load_results(path) == found
    table = tables.results_table(found, "auc")
    assert list(table.index) == ["PPL", "Min-K% Prob"]
    assert json.loads(path.read_text())["provenance"][0]["n_texts"] == 16
    with pytest.raises(ValueError, match="no results"):
        results.save_results(path, [], paper="dc-pdd", item="table 2")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.01, 0.1, "supported"), (-0.1, -0.01, "not supported"), (-0.1, 0.1, "inconclusive"), (0, 0.1, "inconclusive")],
)
def test_verdict_follows_the_interval(low, high, expected):
    assert results.verdict(Interval((low + high) / 2, low, high)) == expected


@pytest.mark.parametrize(
    ("low", "high", "margin", "expected"),
    [
        (0.01, 0.1, None, "holds"),
        (-0.1, -0.01, None, "fails"),
        (-0.1, 0.1, None, "open"),
        (-0.1, 0.1, 0.1, "holds"),
        (0.11, 0.2, 0.1, "fails"),
        (0.05, 0.2, 0.1, "open"),
    ],
)
def test_one_seed_has_words_of_its_own_that_are_no_verdict(low, high, margin, expected):
    assert results.one_seed_says(Interval((low + high) / 2, low, high), margin) == expected


def test_the_text_of_one_seed_says_what_failed():
    failed = Comparison(Interval(-0.05, -0.08, -0.02), 0.001)
    text = results.one_seed_text("A beats B", {"here": failed, "there": None})
    assert "**fails** for here" in text and "not applicable for there" in text
    assert "supported" not in text


def test_taken_inputs_are_those_texts_in_every_pass(inputs):
    taken = inputs.take([5, 2, 9], "three")
    assert taken.benchmark.texts == tuple(inputs.benchmark.texts[i] for i in (5, 2, 9))
    assert taken.labels.tolist() == inputs.labels[[5, 2, 9]].tolist()
    assert taken.target.column == f"{inputs.target.model} on three" and taken.target.corpus == inputs.target.corpus
    whole, some = evaluate.score_all(inputs), evaluate.score_all(taken)
    for name, scores in whole.items():
        np.testing.assert_allclose(some[name], scores[[5, 2, 9]], err_msg=name)


def test_columns_of_other_texts_or_labels_have_no_labels_in_common():
    rows = random_rows(0, [3, 4, 5, 6])
    one = made_inputs(rows, [1, 0, 1, 0])
    assert evaluate.common_labels([one, one]).tolist() == [1, 0, 1, 0]
    others = [made_inputs(rows, [0, 1, 1, 0]), made_inputs(rows[:3], [1, 0, 1]), one.take([2, 1, 0, 3], "made")]
    for other in others:
        with pytest.raises(ValueError, match="are not of the same texts with the same labels; give both models one"):
            evaluate.common_labels([one, other])
