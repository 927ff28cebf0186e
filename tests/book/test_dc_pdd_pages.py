"""DC-PDD's pages: their own functions, by brute force."""

import matplotlib
import numpy as np
import pytest
from page_code import method_of, page_of

from mialib.batches import encode
from mialib.benchmarks import Benchmark
from mialib.metrics import auc
from mialib.passes.inputs import Target, load_inputs, scores_of, split_lengths
from mialib.text import count_words
from replication import results, tables

matplotlib.use("Agg")

A_VALUES = [0.0001, 0.01, 1.0]


@pytest.fixture
def inputs(model_folder, benchmark_file, corpus_file):
    return load_inputs(Target(model=model_folder, benchmark=benchmark_file, corpus=corpus_file))


def test_lengths_and_descriptions_of_a_benchmark(inputs, tokenizer):
    texts = [" ".join(["word"] * n + [str(i)]) for i, n in enumerate([9, 9, 9, 4])]
    benchmark = Benchmark("four texts", tuple(texts), np.array([0, 1, 0, 1]), "r")
    assert split_lengths(benchmark, [16, 8, 4, 10]) == ([4, 8, 10], {16: 4})
    growing = Benchmark("b", ("one", "one two", "one two three", "one two three four"), np.array([1, 0, 1, 0]), "")
    assert split_lengths(growing, [4, 3]) == ([3], {4: 3}), "left out where over half are shorter"
    with pytest.raises(ValueError, match=r"four texts: .*10 .* 11, 512"):
        split_lengths(benchmark, [512, 11])
    describe = method_of("dc_pdd_table_1", count_words=count_words, encode=encode)["describe"]
    facts = describe(inputs.benchmark, {"tiny": tokenizer})
    assert (facts["words a text (median)"], facts["examples"], facts["members (%)"]) == (9, 16, 50)
    assert facts["tokens of tiny (median)"] == np.median(inputs.stats.n_tokens)
    table = tables.plain_table(results.sizes(inputs.benchmark.name, describe(inputs.benchmark, {})))
    assert table.loc[inputs.benchmark.name, "members (%)"] == "50"


@pytest.fixture
def run(model_folder, benchmark_file, corpus_file, tmp_path, home_of_all_pages):
    """Runs a page on the tiny model; returns its names and its results."""

    def run_with(name, **changed):
        given = {"models": model_folder, "benchmarks": benchmark_file, "corpora": corpus_file} | changed
        names = page_of(name, out=str(tmp_path / "results.json"), **given)
        return names, results.load_results(tmp_path / "results.json")

    return run_with


def test_a_page_without_a_corpus_has_dashes_and_one_with_chooses_on_given_texts(run):
    found = run("dc_pdd_tables_2_3", corpora="-", references="-", published="-")[1]
    assert {r.ours for r in found if r.row == "DC-PDD"} == {None}
    names, _ = run("dc_pdd_figure_2", a_values="0.0001,0.01,1")
    labels, val_idx = names["inputs"].labels, names["val_idx"]
    scores = {a: scores_of(names["inputs"], "dc_pdd", a=a)[val_idx] for a in A_VALUES}
    assert names["chosen"] == max(A_VALUES, key=lambda a: auc(labels[val_idx], scores[a]))
    assert not set(val_idx) & set(names["test_idx"])


def test_small_ref_in_a_ladder_divides_by_its_smallest_model(run, model_folder, benchmark_file, tiny_model):
    models = [model_folder, tiny_model("gpt_neox", num_hidden_layers=3)]
    names, found = run("dc_pdd_figure_3a", models=",".join(models), corpora="-", detectors="ppl,ref")
    smallest, largest = sorted(models, key=names["sizes"].get)
    assert names["sizes"][smallest] < names["sizes"][largest]
    ours = {r.column: r.ours for r in found if r.row == "Small Ref"}
    inputs = load_inputs(Target(model=largest, benchmark=benchmark_file, reference=smallest))
    assert ours == {smallest: None, largest: pytest.approx(auc(inputs.labels, scores_of(inputs, "ref")))}
    assert [name.split(": ")[1] for name in names["rises"]] == ["PPL"], "one size alone has Small Ref"
