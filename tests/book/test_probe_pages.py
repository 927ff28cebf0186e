"""The probe beside the likelihood detectors: same texts, rows as the paper prints them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mialib.passes import inputs as evaluate
from mialib.book import probe_tables as probed, tables
from mialib.metrics import auc, tpr_at_fpr
from mialib.store import hash_texts

N = 40
RATES = (1e-3, 1e-2)


@pytest.fixture
def target(tmp_path, tiny_model):
    rows = [
        {"text": f"The river number {i} runs {7 * i} miles", "label": i % 2, "field": "cs" if i < 24 else "math"}
        for i in range(N)
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tiny_model("gpt_neox", max_position_embeddings=512)
    return evaluate.targets(folder, str(path), folder)[0]


@pytest.fixture
def unseen_file(tmp_path):
    path = tmp_path / "unseen.txt"
    path.write_text("".join(f"The stone number {i} stands {3 * i} miles off\n" for i in range(20)))
    return str(path)


@pytest.fixture
def made(target, unseen_file, masked_folder):
    inputs = probed.load(target, masked=masked_folder, n_neighbors=2)
    return probed.probe_inputs(inputs, {probed.REAL: unseen_file}, n_training=10, learning_rates=RATES)


def test_all_methods_are_judged_on_the_texts_that_nothing_was_chosen_on(made):
    assert len(made.test) == 0.8 * N and not set(made.test) & set(made.probes[probed.REAL].validation)
    results = probed.measure(made, "here", {"auc": "table-2", "tpr_at_5_fpr": "table-3"})
    rows = list(dict.fromkeys(result.row for result in results))
    assert rows[:6] == list(probed.BASELINES.values()) and rows[-1] == probed.REAL
    assert [r.row for r in results if r.ours is None] == ["DC-PDD"] * 2, "no reference corpus is given"
    for result in (r for r in results if r.ours is not None):
        labels, scores = made.inputs.labels[made.test], made.on_test(result.row)
        expected = auc(labels, scores) if result.metric == "auc" else tpr_at_fpr(labels, scores, 0.05)
        assert result.ours == pytest.approx(expected)


def test_published_numbers_stand_beside_ours_by_the_papers_own_rows(made):
    column = "ArxivMIA / TinyLLaMA-1.1B"
    results = {r.row: r for r in probed.measure(made, "here", {"auc": "table-2"}, column)}
    assert results["Loss Attack"].published == 0.451 and results[probed.REAL].published == 0.571
    assert results["Smaller Model"].published is None and results["DC-PDD"].ours is None


def test_a_field_is_judged_on_its_test_texts_alone(made):
    cs = np.flatnonzero(np.array(made.inputs.benchmark.domains) == "cs")
    [result] = [r for r in probed.measure_fields([("here", made)], ["cs"]) if r.row == probed.REAL]
    assert result.column == "here: cs"
    judged = np.intersect1d(cs, made.test)
    assert result.ours == pytest.approx(auc(made.inputs.labels[judged], made.scores[probed.REAL][judged]))


def test_a_benchmarks_own_validation_texts_are_chosen_on(target, unseen_file):
    inputs = probed.load(target)
    val_idx = (0, 1, 2, 3, 17)
    inputs = replace(inputs, benchmark=replace(inputs.benchmark, validation=val_idx))
    found = probed.probe_inputs(inputs, {probed.REAL: unseen_file}, n_training=10, learning_rates=RATES)
    assert found.probes[probed.REAL].validation.tolist() == list(val_idx)
    assert not set(found.test) & set(val_idx) and len(found.test) == N - 5


def test_texts_set_apart_are_in_no_score(target):
    found = probed.probe_inputs(probed.load(target), {probed.REAL: "apart"}, n_training=8, learning_rates=RATES)
    assert len(found.inputs.labels) == N - 8 and found.inputs.labels.sum() == N / 2
    assert all(len(scores) == N - 8 for scores in found.scores.values() if scores is not None)
    assert found.scores["Neighbor Attack"] is None


def test_provenance_names_the_neighbors_and_what_the_proxies_learned_from(made, masked_folder):
    passes = {p["model"]: p for p in made.provenance()}
    assert passes[f"neighbors by {masked_folder}"]["n_texts"] == 2 * N
    [proxies] = [p for name, p in passes.items() if name.startswith("proxies of ")]
    assert proxies["texts"] == hash_texts(made.unseen[probed.REAL]) and proxies["n_texts"] == 10
    assert len(tables.provenance_table(made.provenance())) == 3


def test_comparisons_are_on_the_test_texts(made):
    found = probed.against_baselines(made)
    labels = made.inputs.labels[made.test]
    difference = auc(labels, made.on_test(probed.REAL)) - auc(labels, made.on_test("Loss Attack"))
    assert found[f"{probed.REAL} − Loss Attack"].difference.estimate == pytest.approx(difference)
    result = made.probes[probed.REAL]
    leak = auc(labels, result.leaking.scores[made.test]) - auc(labels, result.scores[made.test])
    assert probed.leak(made).difference.estimate == pytest.approx(leak)


def test_controls_have_a_row_a_layer_and_a_column_a_rate_and_one_that_is_told(made):
    results = probed.measure_controls(made, "here")
    assert {r.row for r in results} == {"layer 1", "layer 2"}
    assert list(dict.fromkeys(r.column for r in results)) == [
        "here: membership, told",
        "here: the coin, rate 0.001",
        "here: the coin, rate 0.01",
    ]


def test_fewer_neighbors_are_the_first_ones(made):
    results = probed.by_neighbors(made, [1, 2, 5])
    assert [r.row for r in results] == ["1", "2"], "there are two neighbors a text"
    own = evaluate.score_all(made.inputs, ["ppl"])["ppl"]
    first = own - made.inputs.neighbors[:, 0]
    assert results[0].ours == pytest.approx(auc(made.labels, first[made.test]))
    assert results[1].ours == pytest.approx(auc(made.labels, made.on_test("Neighbor Attack")))


def test_smaller_training_sets_are_part_of_larger_ones(target, unseen_file):
    found = probed.by_number_of_texts(probed.load(target), unseen_file, [12, 6], learning_rates=RATES)
    unseen = [of.unseen[probed.REAL] for of in found.values()]
    assert list(found) == [6, 12] and [len(texts) for texts in unseen] == [6, 12] and unseen[0] == unseen[1][:6]
    by_row = {(r.row, r.column): r.ours for r in probed.measure_by_number(found)}
    assert set(by_row) == {(row, n) for row in ("on the benchmark", "on its own texts") for n in ("6", "12")}
    assert by_row["on the benchmark", "6"] == pytest.approx(auc(found[6].labels, found[6].on_test(probed.REAL)))
    [(name, comparison)] = probed.compare_numbers(found, 200).items()
    assert name == "6 − 12 texts", "the smallest number stands in for one that was not run"
    expected = by_row["on the benchmark", "6"] - by_row["on the benchmark", "12"]
    assert comparison.difference.estimate == pytest.approx(expected)


def test_any_number_of_training_texts_may_be_set_apart(target):
    found = probed.by_number_of_texts(probed.load(target), "apart", [4, 8], learning_rates=RATES[:1])
    assert [len(of.unseen[probed.REAL]) for of in found.values()] == [4, 8]
    assert all(len(of.inputs.labels) == N - 8 for of in found.values()), "all numbers are judged on the same texts"


def test_models_are_compared_on_the_same_texts(made):
    other = replace(made, scores=made.scores | {"Loss Attack": -made.scores["Loss Attack"]})
    found = probed.compare_models(made, other, ["Loss Attack", "DC-PDD"])
    assert found["Loss Attack"].difference.estimate == pytest.approx(
        2 * auc(made.labels, made.on_test("Loss Attack")) - 1
    )
    assert found["DC-PDD"] is None
    assert probed.compare_models(made, made, ["Loss Attack"]) == {}, "one model has nothing to be compared with"
    shorter = replace(made, inputs=made.inputs.take(range(N - 1), "shorter"))
    with pytest.raises(ValueError, match="are not of the same texts"):
        probed.compare_models(made, shorter, ["Loss Attack"])


def test_data_are_counted_without_the_texts_set_apart(target):
    benchmark = evaluate.load_benchmark(target.benchmark)
    kept, unseen = probed.unseen_texts(benchmark, {"Real": "apart"}, 8)
    rest = benchmark.take(kept, "rest")
    facts = {r.column: r.ours for r in probed.describe_data(rest, target.model, unseen, "rest")}
    assert (facts["Members"], facts["Non-Members"], facts["Total"], facts["Real"]) == (20, 12, 32, 8)
    n_tokens = [len(row.token_ids) for row in probed.load(target).stats.take(kept)]
    assert facts["Avg. Tokens"] == pytest.approx(np.mean(n_tokens), abs=0.05)


def test_the_papers_table_of_data_is_as_published():
    printed = probed.printed_data()
    assert printed.loc["WikiMIA", "Total"] == "676" and printed.loc["ArxivMIA-Math", "Synthetic"] == "120"
    assert (printed.index[0], printed.columns[0]) == ("WikiMIA", "Avg. Tokens")


def test_two_samples_of_one_distribution_are_not_told_apart_and_two_kinds_are():
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(50)]
    texts = [" ".join(rng.choice(words, 20)) for _ in range(300)]
    same = probed.tell_apart(texts[:100], texts[100:200], "row", "column")
    assert same.low <= 0.5 <= same.high
    assert probed.tell_apart(texts[:100], [f"{text} another" for text in texts[200:]], "row", "column").low > 0.7


@pytest.mark.parametrize(("value", "expected"), [("-", [None]), ("32, -", [32, None]), ([16], [16]), ("", [None])])
def test_lengths_may_be_whole_texts(value, expected):
    assert probed.lengths_of(value) == expected


@pytest.mark.parametrize("value", ["x", "0", -1, 2.5])
def test_a_length_that_is_no_number_of_words_is_named(value):
    with pytest.raises(ValueError, match="lengths: a positive whole number is expected"):
        probed.lengths_of(value)


def test_a_probe_without_unseen_texts_and_an_unknown_field_are_named(made):
    with pytest.raises(ValueError, match="needs unseen texts"):
        probed.sources_of("-", "")
    with pytest.raises(ValueError, match="no texts of 'physics'; it has: cs, math"):
        probed.texts_of_field(made, "physics")


@pytest.mark.slow
def test_arxiv_mia_runs_through_every_detector_and_the_probe(tiny_model, masked_folder, monkeypatch, tmp_path):
    """The published split is what is chosen and judged on, its own unseen texts are what the probe learns from."""
    folder = os.environ.get("MIALIB_BENCHMARKS") or Path(__file__).parents[2] / "shared" / "benchmarks"
    if not (Path(folder) / "arxiv_mia" / "arxiv_mia_train_real.jsonl").is_file():
        pytest.skip(f"no benchmark texts at {folder}; set MIALIB_BENCHMARKS to a folder that holds arxiv_mia/")
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(folder))
    (tmp_path / "corpus.txt").write_text("We study a problem.\n" * 50)
    model = tiny_model("gpt_neox", max_position_embeddings=2048)
    [target] = evaluate.targets(model, "arxiv_mia", model, str(tmp_path / "corpus.txt"))
    inputs = probed.load(target, 16, masked_folder, 2)
    found = probed.probe_inputs(inputs, {probed.REAL: "arxiv_mia"}, n_training=200, learning_rates=(1e-3,))
    assert len(found.test) == 1600 and len(found.probes[probed.REAL].validation) == 400
    results = probed.measure(found, "here", {"auc": "table-2"}, "ArxivMIA / TinyLLaMA-1.1B")
    assert {r.row for r in results} >= {*probed.BASELINES.values(), "DC-PDD", "SURP", probed.REAL}
    assert all(0 <= r.low <= r.ours <= r.high <= 1 for r in results)
    fields = [probed.texts_of_field(found, field) for field in ("cs", "math")]
    assert [len(np.intersect1d(found.test, of_field)) for of_field in fields] == [640, 960]


def test_quoted_texts_are_no_markdown():
    shown = tables.quoted({"a": "# no heading `x` [link](y) " + "word " * 40}).data
    assert shown.startswith("`a`") and "~~~~text\n# no heading `x` [link](y)" in shown
    assert max(map(len, shown.splitlines())) <= 76
