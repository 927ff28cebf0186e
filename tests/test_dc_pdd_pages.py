"""What the DC-PDD pages need besides the detectors (reference corpora, stars, halves, lengths), and the pages."""

import warnings
from dataclasses import replace

import nbformat
import numpy as np
import pytest

from mialib import model_selection as choose
from mialib.passes import inputs as evaluate
from mialib.book import examples, figures, results, tables
from mialib.catalog import corpora as reference
from mialib.benchmarks import Benchmark
from mialib.text import chinese_share
from mialib.metrics import Comparison, Interval, auc, compare_tpr_at_fpr, tpr_at_fpr
from mialib.book.published import markers_along, published_along
from mialib.store import ROOT

NOUNS = ["river", "stone", "garden", "window", "letter", "market", "engine", "harbor"]
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
    [target] = evaluate.targets(model_folder, benchmark_file, model_folder, corpus_file)
    return evaluate.load_inputs(target)


# --- reference corpora ---


def test_a_prefix_is_the_first_characters_of_any_corpus(corpus_file):
    assert list(reference.reference_texts(corpus_file)) == CORPUS
    n = len(CORPUS[0])
    assert list(reference.reference_texts(f"{corpus_file}:{n}")) == CORPUS[:1]
    assert list(reference.reference_texts(f"{corpus_file}:{n + 3}")) == [CORPUS[0], "The"]
    assert reference.PREFIX.fullmatch("lab/en:2M").groups() == ("lab/en", "2", "M")


@pytest.mark.parametrize(("size", "message"), [("1k", r"corpus\.txt has 77 characters, 1,000 were asked"), ("0", "0 ")])
def test_a_prefix_that_the_corpus_does_not_have_is_an_error(corpus_file, size, message):
    with pytest.raises(ValueError, match=message):
        list(reference.reference_texts(f"{corpus_file}:{size}"))


def test_licences_are_distinct_paragraphs_in_a_seeded_order():
    texts = list(reference.reference_texts(reference.LICENCES))
    assert texts == reference.read_licences() and len(set(texts)) == len(texts)
    assert min(len(text.split()) for text in texts) >= 20
    assert sum(map(len, texts)) > 300_000, "the largest prefix that a page takes"
    assert "copyright" in " ".join(texts[:50]).lower()
    assert reference.read_licences(seed=1) != texts and sorted(reference.read_licences(seed=1)) == sorted(texts)


@pytest.mark.parametrize(
    ("texts", "expected"), [(["river"], 0), (["河流"], 1), (["河流 ab"], 0.5), (["123 ."], 0), ([], 0)]
)
def test_chinese_share_is_of_letters(texts, expected):
    assert chinese_share(texts) == expected


def test_a_reference_corpus_in_another_language_is_warned_of(model_folder, benchmark_file, chinese_file):
    [target] = evaluate.targets(model_folder, benchmark_file, None, chinese_file)
    with pytest.warns(
        UserWarning, match=r"chinese\.txt is in another language than .*: 100% of its letters are Chinese"
    ):
        evaluate.load_inputs(target)


def test_a_reference_corpus_in_the_same_language_is_not(inputs, corpus_file, chinese_file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate.with_corpus(inputs, corpus_file)
        reference.warn_of_other_language(chinese_file, CHINESE, "Chinese texts")


def test_another_corpus_changes_the_frequencies_alone(inputs, corpus_file):
    other = evaluate.with_corpus(inputs, f"{corpus_file}:30")
    assert other.stats is inputs.stats and other.target.corpus == f"{corpus_file}:30"
    assert other.frequency.n_tokens < inputs.frequency.n_tokens


def test_without_a_corpus_dc_pdd_is_the_bounded_probability(inputs):
    flat = evaluate.without_corpus(inputs)
    constant = np.log(len(flat.frequency.counts))
    scores = evaluate.scores_of(flat, "dc_pdd", a=10)
    for row, score in zip(inputs.stats, scores, strict=True):
        first = np.unique(row.token_ids, return_index=True)[1]
        assert score == pytest.approx(np.exp(row.log_prob[first].astype(float)).mean() * constant)


# --- ablation, halves, lengths ---


def test_ablation_ends_at_dc_pdd_and_begins_without_a_bound(inputs):
    variants = evaluate.ablation(inputs, a=0.001)
    assert list(variants) == ["CLD", "+LUP", "+SFO"]
    np.testing.assert_array_equal(variants["+SFO"], evaluate.scores_of(inputs, "dc_pdd", a=0.001))
    np.testing.assert_array_equal(variants["CLD"], evaluate.ablation(inputs, a=5)["CLD"])
    assert (variants["+LUP"] <= 0.001).all()


def test_the_bound_is_chosen_on_the_given_texts_alone(inputs):
    val_idx, a_values = np.array([0, 1, 2, 3, 8, 9]), [0.0001, 0.01, 1.0]
    scores = {a: evaluate.scores_of(inputs, "dc_pdd", a=a)[val_idx] for a in a_values}
    best = max(a_values, key=lambda a: auc(inputs.labels[val_idx], scores[a]))
    assert choose.fit_a(inputs, a_values, val_idx) == best


def test_a_detector_without_its_input_says_what_is_missing(model_folder, benchmark_file):
    [target] = evaluate.targets(model_folder, benchmark_file)
    with pytest.raises(ValueError, match="'dc_pdd' needs frequency="):
        evaluate.scores_of(evaluate.load_inputs(target), "dc_pdd")


def test_lengths_that_most_texts_lack_are_left_out_with_the_number_of_short_texts():
    texts = [" ".join(["word"] * n + [str(i)]) for i, n in enumerate([9, 9, 9, 4])]
    benchmark = Benchmark("four texts", tuple(texts), np.array([0, 1, 0, 1]), "r")
    assert evaluate.split_lengths(benchmark, [16, 8, 4, 10]) == ([4, 8, 10], {16: 4})
    with pytest.raises(ValueError, match=r"four texts: half of the texts have at most 10 words, .* cut to 11, 512"):
        evaluate.split_lengths(benchmark, [512, 11])


def test_describe_counts_words_members_and_tokens(inputs, model_folder):
    [benchmark] = [inputs.benchmark]
    facts = {result.column: result.ours for result in evaluate.describe(benchmark, [model_folder])}
    assert (facts["words a text (median)"], facts["examples"], facts["members (%)"]) == (9, 16, 50)
    assert facts[f"tokens of {model_folder} (median)"] == np.median(inputs.stats.n_tokens)
    table = tables.plain_table(evaluate.describe(benchmark, []))
    assert table.loc[benchmark.name, "members (%)"] == "50"


# --- stars ---


def test_the_papers_marks_are_those_of_the_numbers():
    markers = markers_along("dc-pdd", "table-2", "WikiMIA / GPT-NeoX-20B", "auc")
    assert [row for row, marker in markers.items() if marker] == ["DC-PDD"]
    assert set(markers) == set(published_along("dc-pdd", "table-2", "WikiMIA / GPT-NeoX-20B", "auc"))
    assert not any(markers_along("dc-pdd", "table-2", "WikiMIA / Llama-13B", "auc").values())


@pytest.mark.parametrize(("better", "marker"), [(True, "*"), (False, "")])
def test_ours_is_starred_where_it_is_significantly_better(inputs, better, marker):
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], 100).astype(np.int8)
    benchmark = Benchmark("many", tuple(f"text {i}" for i in range(200)), labels, "r")
    many = replace(inputs, benchmark=benchmark, target=replace(inputs.target, published="PatentMIA / Qwen1.5-14B"))
    noise = rng.normal(size=200)
    strong, weak = noise + 3 * labels, noise + 0.5 * labels
    scores = {"dc_pdd": strong if better else weak, "min_k": weak if better else strong}
    items = {"auc": "table-2", "tpr_at_5_fpr": "table-3"}
    found = evaluate.measure(many, scores, paper="dc-pdd", items=items, star=("dc_pdd", "min_k"))
    by_row = {(r.metric, r.row): r for r in found}
    for metric in items:
        assert by_row[metric, "DC-PDD"].marker == marker and by_row[metric, "Min-K% Prob"].marker == ""
        assert by_row[metric, "DC-PDD"].published_marker == "*"
    table = tables.results_table(found, "auc")
    assert table.iloc[0, 0] == "0.689*" and str(table.iloc[0, 1]).endswith(f"]{marker}")


def test_no_star_without_both_detectors(inputs):
    found = evaluate.measure(inputs, {"dc_pdd": None, "ppl": inputs.labels.astype(float)}, star=("dc_pdd", "min_k"))
    assert {r.marker for r in found} == {""}


def test_the_paired_difference_of_tprs():
    rng = np.random.default_rng(1)
    labels = np.repeat([1, 0], 200)
    a, b = rng.normal(size=400) + 2 * labels, rng.normal(size=400) + labels
    found = compare_tpr_at_fpr(labels, a, b)
    assert found.difference.estimate == pytest.approx(tpr_at_fpr(labels, a) - tpr_at_fpr(labels, b))
    assert found.difference.low > 0 and found.p_value < 0.01
    reverse = compare_tpr_at_fpr(labels, b, a)
    assert reverse.difference.high == pytest.approx(-found.difference.low) and reverse.p_value == found.p_value
    same = compare_tpr_at_fpr(labels, a, a)
    assert same.difference == Interval(0, 0, 0) and same.p_value == 1


# --- equivalence ---


def test_equivalence_needs_the_whole_interval_within_the_margin():
    near, wide, far = (Comparison(Interval(*ends), 0.5) for ends in [(0, -0.01, 0.02), (0, -0.03, 0.01), (1, 0.9, 1.1)])
    table = tables.comparison_table({"near": near, "wide": wide, "far": far}, "difference", 0.02)
    assert table[results.ONE_SEED].tolist() == ["holds", "open", "fails"]
    assert list(table.columns) == ["difference", results.ONE_SEED], "its p-value would be of another claim"
    assert "**holds** for near" in results.one_seed_text("they are the same", {"near": near}, 0.02)
    counted = results.count_outcomes({"a": near, "b": wide, "c": wide}, 0.02)
    assert counted == "of 3 comparisons 1 hold, 0 fail, 2 stay open"


# --- figures ---


def test_token_strips_take_any_token():
    cells = [
        examples.TokenCell(text, -float(i), 0.001 * i, i == 3, i != 4, i > 5)
        for i, text in enumerate(["$a$", " $", "\n", " ", "\ufffd", " word", "_x^2", "a" * 40])
    ]
    figure = figures.token_strips({"title": cells})
    drawn = {text.get_text() for text in figure.axes[0].texts}
    assert {"$a$", "word", "log p", "–", "a"} <= drawn
    assert figure.get_size_inches()[0] == pytest.approx(7.2)


@pytest.mark.parametrize(
    ("number", "text"), [(25_472, "25k"), (890_112, "890k"), (6_900_000_000, "6.9B"), (1_000, "1k"), (12, "12")]
)
def test_short_counts(number, text):
    assert figures.short_count(number) == text


# --- the pages, in this process: every cell of each, with a tiny model and parameters as papermill's -p gives them ---

PAGES = {
    "dc_pdd_figure_1": {"words": 6},
    "dc_pdd_table_1": {"corpora": None},
    "dc_pdd_tables_2_3": {"references": "-", "published": "-"},
    "dc_pdd_figure_2": {"a_values": "0.001,0.1"},
    "dc_pdd_figure_3a": {},
    "dc_pdd_figure_3b": {"lengths": "4,8,512"},
    "dc_pdd_table_4": {"corpora": "{corpus},{corpus}:40", "published": "-", "a_values": "0.001,0.1"},
    "dc_pdd_table_5": {"a_values": "0.001,0.01,0.1"},
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_on_another_model_and_benchmark(name, model_folder, benchmark_file, corpus_file, tmp_path):
    given = {"models": model_folder, "benchmarks": benchmark_file, "corpora": corpus_file}
    given |= {"out": str(tmp_path / "results.json")} | PAGES[name]
    given = {
        key: v.format(corpus=corpus_file) if isinstance(v, str) else v for key, v in given.items() if v is not None
    }
    scope = {}
    for cell in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(cell.source, f"{name}, {cell.id}", "exec"), scope)
        if "parameters" in cell.metadata.tags:
            assert set(given) <= set(scope), "a parameter that the page does not have"
            scope |= given
    assert results.load_results(given["out"])


def test_figure_3b_says_which_lengths_the_texts_do_not_have(model_folder, benchmark_file, tmp_path):
    scope = {}
    page = nbformat.read(ROOT / "notebooks" / "dc_pdd_figure_3b.ipynb", as_version=4)
    for cell in [cell for cell in page.cells if cell.cell_type == "code"]:
        exec(cell.source, scope)
        if "parameters" in cell.metadata.tags:
            scope |= {"models": model_folder, "benchmarks": benchmark_file, "corpora": "-", "lengths": "4,8,512"}
            scope["out"] = str(tmp_path / "results.json")
    assert "512 words are left out, as 16 of 16 texts are shorter" in "\n".join(scope["notes"])
    assert not any("512" in result.column for result in scope["measured"])
