"""DC-PDD's pages: each visible method against the detector and brute force, and the pages on a tiny model."""

from itertools import product

import matplotlib
import numpy as np
import pytest
from conftest import random_rows
from page_code import method_of, page_of
from scipy.stats import rankdata

from mialib.batches import encode
from mialib.benchmarks import Benchmark
from mialib.frequency import TokenFrequency
from mialib.metrics import auc
from mialib.passes.inputs import Target, load_inputs, scores_of, split_lengths
from mialib.text import count_words
from mialib.token_stats import TokenStats
from replication import figures, results, tables

matplotlib.use("Agg")

A_VALUES = [0.0001, 0.01, 1.0]


@pytest.fixture
def inputs(model_folder, benchmark_file, corpus_file):
    return load_inputs(Target(model=model_folder, benchmark=benchmark_file, corpus=corpus_file))


@pytest.fixture
def frequency():
    return TokenFrequency(counts=np.arange(320)[::-1].copy(), name="counts")


@pytest.fixture
def stats():
    """Texts of tokens that repeat, many of them improbable."""
    rng = np.random.default_rng(3)
    return TokenStats.from_rows(random_rows(3, rng.integers(1, 40, 50)), provenance={})


def test_without_a_corpus_dc_pdd_is_the_bounded_probability(inputs):
    names, n_entries = method_of("dc_pdd_table_4", stats=inputs.stats), len(inputs["frequency"].counts)
    for row, score in zip(inputs.stats, names["scores_of"](np.zeros(n_entries, int), a=10), strict=True):
        first = np.unique(row.token_ids, return_index=True)[1]
        assert score == pytest.approx(np.exp(row.log_prob[first].astype(float)).mean() * np.log(n_entries))


def search(stats, labels, frequency, *, opposite=False):
    given = {"stats": stats, "labels": labels, "frequency": frequency, "rankdata": rankdata, "k": 20, "a": 0.01}
    return method_of("dc_pdd_figure_1", opposite=opposite, **given)


@pytest.fixture
def labels():
    return np.random.default_rng(5).permutation(np.repeat([0, 1], [30, 20]))


def test_commonness_and_pair_counts_explain_the_difference_of_the_aucs(stats, labels, frequency):
    names = search(stats, labels, frequency)
    by_hand = [np.log((frequency.counts[row.token_ids] + 1) / (frequency.counts.sum() + 320)).mean() for row in stats]
    np.testing.assert_allclose(names["commonness"], by_hand)
    by_min_k, by_dc_pdd = names["by_min_k"], names["by_dc_pdd"]
    assert by_min_k.shape == (20, 30)
    is_untied = (by_min_k != 0) & (by_dc_pdd != 0)
    corrected = ((by_min_k < 0) & (by_dc_pdd > 0)).sum()
    spoiled = ((by_min_k > 0) & (by_dc_pdd < 0)).sum()
    ties = ((np.sign(by_dc_pdd) - np.sign(by_min_k))[~is_untied]).sum() / 2
    difference = auc(labels, names["dc_pdd_scores"]) - auc(labels, names["min_k_scores"])
    assert difference == pytest.approx((corrected - spoiled + ties) / 600)


@pytest.mark.parametrize("opposite", [True, False])
def test_the_pair_found_is_the_one_that_brute_force_finds(stats, labels, frequency, opposite):
    names = search(stats, labels, frequency, opposite=opposite)
    s, b, c = (rankdata(names[name]) for name in ("min_k_scores", "dc_pdd_scores", "commonness"))

    def gaps(m, n):
        return [s[m] - s[n], b[n] - b[m]] if opposite else [s[n] - s[m], b[m] - b[n], c[n] - c[m]]

    pairs = product(np.flatnonzero(labels == 1), np.flatnonzero(labels == 0))
    kind = {pair: np.prod(gaps(*pair)) for pair in pairs if min(gaps(*pair)) > 0}
    assert kind[names["member"], names["non_member"]] == max(kind.values())
    assert labels[names["member"]] == 1 and labels[names["non_member"]] == 0


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


@pytest.mark.parametrize(
    ("number", "text"), [(25_472, "25k"), (890_112, "890k"), (6_900_000_000, "6.9B"), (1_000, "1k"), (12, "12")]
)
def test_short_counts(number, text):
    assert figures.short_count(number) == text


PAGES = {
    "dc_pdd_figure_1": {"words": 6},
    "dc_pdd_table_1": {"corpora": None},
    "dc_pdd_tables_2_3": {"references": "-", "published": "-"},
    "dc_pdd_figure_2": {"a_values": "0.001,0.1"},
    "dc_pdd_figure_3a": {},
    "dc_pdd_figure_3b": {"lengths": "4,8,512", "references": "-"},
    "dc_pdd_table_4": {"corpora": "{corpus},{corpus}:40", "published": "-", "a_values": "0.001,0.1"},
    "dc_pdd_table_5": {"a_values": "0.001,0.01,0.1"},
}


@pytest.fixture
def run(model_folder, benchmark_file, corpus_file, tmp_path, home_of_all_pages):
    """Runs a page on the tiny model; returns its names and its results."""

    def run_with(name, **changed):
        given = {"models": model_folder, "benchmarks": benchmark_file, "corpora": corpus_file} | PAGES[name] | changed
        given = {key: v.format(corpus=corpus_file) if isinstance(v, str) else v for key, v in given.items()}
        given = {key: v for key, v in given.items() if v is not None}
        names = page_of(name, out=str(tmp_path / "results.json"), **given)
        return names, results.load_results(tmp_path / "results.json")

    return run_with


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_on_another_model_and_benchmark(name, run):
    assert run(name)[1]


def test_a_page_without_a_corpus_has_dashes_and_one_with_chooses_on_given_texts(run):
    for name in ("dc_pdd_tables_2_3", "dc_pdd_figure_3a", "dc_pdd_figure_3b"):
        found = run(name, corpora="-")[1]
        assert {r.ours for r in found if r.row == "DC-PDD"} == {None}
    names, _ = run("dc_pdd_figure_2", a_values="0.0001,0.01,1")
    labels, val_idx = names["inputs"].labels, names["val_idx"]
    scores = {a: scores_of(names["inputs"], "dc_pdd", a=a)[val_idx] for a in A_VALUES}
    assert names["chosen"] == max(A_VALUES, key=lambda a: auc(labels[val_idx], scores[a]))
    assert not set(val_idx) & set(names["test_idx"])


def test_figure_1s_shares_are_of_each_kind_of_pair(run):
    names, _ = run("dc_pdd_figure_1")
    kinds = {kind: [] for kind in names["kinds"]}
    for m, n in product(np.flatnonzero(names["labels"] == 1), np.flatnonzero(names["labels"] == 0)):
        gaps = [names[scores][m] - names[scores][n] for scores in ("min_k_scores", "dc_pdd_scores", "commonness")]
        if gaps[0] and gaps[1]:
            kinds["right" if gaps[0] > 0 else "wrong", "right" if gaps[1] > 0 else "wrong"].append(gaps[2] < 0)
    assert names["counts"] == {kind: len(found) for kind, found in kinds.items()}
    for kind, found in kinds.items():
        assert names["commoner"][kind] == pytest.approx(np.mean(found) if found else np.nan, nan_ok=True)


def test_small_ref_in_a_ladder_divides_by_its_smallest_model(run, model_folder, benchmark_file, tiny_model):
    models = [model_folder, tiny_model("gpt_neox", num_hidden_layers=3)]
    names, found = run("dc_pdd_figure_3a", models=",".join(models), corpora="-", detectors="ppl,ref")
    smallest, largest = sorted(models, key=names["sizes"].get)
    assert names["sizes"][smallest] < names["sizes"][largest]
    ours = {r.column: r.ours for r in found if r.row == "Small Ref"}
    inputs = load_inputs(Target(model=largest, benchmark=benchmark_file, reference=smallest))
    assert ours == {smallest: None, largest: pytest.approx(auc(inputs.labels, scores_of(inputs, "ref")))}
    assert [name.split(": ")[1] for name in names["rises"]] == ["PPL"], "one size alone has Small Ref"
