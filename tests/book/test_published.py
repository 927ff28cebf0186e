"""The transcription of the papers' numbers: complete, in range, and right where checked by hand.

Metrics, by what their values are:

- in [0, 1]: `auc`, `tpr_at_5_fpr`, `tpr_at_1_fpr`
- in percent, as printed: `auc_percent` (an AUC), `auc_gain_percent` and `tpr_at_5_fpr_gain_percent` (what a
  paper's prose calls an improvement: a difference in points in DC-PDD and the probe paper, relative to the best
  baseline in SURP; Min-K% Prob's introduction does not say which)
- counts: `examples`, `words`, `neighbors` (of each text), `duplication_count` (how often a set was trained on)
- `mean_tokens`: tokens a text
- settings: `best_a`, `best_k`, `best_entropy_threshold`, `best_reference_gb`, `best_epochs`, `best_training_texts`,
  `parameters_in_billions`
- `score`: a detection score
"""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from page_code import page_of
from scipy.stats import norm

from mialib.catalog.benchmarks import is_published
from mialib.catalog.registry import known_benchmarks, known_models
from mialib.metrics import Interval, placements, split_scores
from mialib.store import ROOT
from replication import can_have_read, real_model
from replication.claims.printed import CORRELATIONS, Lead, auc_error, printed_leads, size_of, spread_between, tpr_error
from replication.lab.source import LabCorpus
from replication.profile import load_profile
from replication.published import (
    COUNTED,
    PRINTED_ON,
    load_expected,
    load_published,
    measured_by_others,
    printed_table,
    published_along,
    surp_best_cell,
)
from replication.results import DASH

PROFILES = sorted((ROOT / "data" / "profiles").glob("*.yml"))

KEY = ["paper", "item", "row", "column", "metric"]

CELLS = {
    ("dc-pdd", "table-1"): 12,  # 6 benchmark lengths x (words, examples)
    ("dc-pdd", "table-2"): 49,  # 7 methods x 7 models
    ("dc-pdd", "table-3"): 49,
    ("dc-pdd", "table-4"): 4,  # 2 corpora x 2 sizes
    ("dc-pdd", "table-5"): 15,  # 3 models x 5 values of a
    ("dc-pdd", "figure-1"): 2,
    ("dc-pdd", "figure-3"): 8,  # the 4 model sizes and 4 lengths on its axes; Figure 2 has no number in words
    ("dc-pdd", "text"): 11,
    ("surp", "table-1"): 84,  # 7 methods x 6 models x 2 lengths
    ("surp", "table-2"): 36,  # 6 methods x 3 parts of the book x 2 models
    ("surp", "table-3"): 196,  # 7 methods x 7 domains x 4 models
    ("surp", "figure-3"): 4,
    ("surp", "figure-4"): 4,
    ("surp", "text"): 13,
    ("min-k", "text"): 1,
    ("probe", "table-1"): 24,  # 4 benchmarks x 6 counts
    ("probe", "table-2"): 64,  # 8 methods x 8 pairs of benchmark and model
    ("probe", "table-3"): 40,  # 8 methods x (4 pairs, average)
    ("probe", "table-4"): 14,  # 7 methods x 2 tasks
    ("probe", "figure-2"): 3,  # the model sizes on its axis; neither curve has a number in words
    ("probe", "figure-3"): 5,  # the training data sizes on its axis
    ("probe", "text"): 17,
}

UNIT_METRICS = {"auc", "tpr_at_5_fpr", "tpr_at_1_fpr"}
PERCENT_METRICS = {"auc_percent", "auc_gain_percent", "tpr_at_5_fpr_gain_percent"}
COUNT_METRICS = {"examples", "words", "neighbors", "duplication_count"}
BEST = ("a", "k", "entropy_threshold", "reference_gb", "epochs", "training_texts")
SETTING_METRICS = {"parameters_in_billions", *(f"best_{name}" for name in BEST)}

# Read off the papers by eye, two cells of every item.
SPOT_CHECKS = [
    ("dc-pdd", "table-1", "WikiMIA / 32", "#Examples", "examples", 776),
    ("dc-pdd", "table-1", "PatentMIA / 512", "Text length", "words", 512),
    ("dc-pdd", "table-2", "PPL", "BookMIA / GPT-3", "auc", 0.635),
    ("dc-pdd", "table-2", "DC-PDD", "WikiMIA / GPT-NeoX-20B", "auc", 0.766),
    ("dc-pdd", "table-3", "PPL", "BookMIA / GPT-3", "tpr_at_5_fpr", 0.224),
    ("dc-pdd", "table-3", "DC-PDD", "WikiMIA / OPT-6.7B", "tpr_at_5_fpr", 0.180),
    ("dc-pdd", "table-4", "Pythia-6.9B", "C4 / 10Gb", "auc", 0.698),
    ("dc-pdd", "table-4", "Pythia-6.9B", "Case-law / 1Gb", "auc", 0.687),
    ("dc-pdd", "table-5", "PatentMIA / Baichuan-13B", "0.001", "auc", 0.645),
    ("dc-pdd", "table-5", "BookMIA / GPT-3", "10", "auc", 0.725),
    ("dc-pdd", "figure-1", "Min-K% Prob", "x^1", "score", -0.88),
    ("dc-pdd", "figure-1", "Min-K% Prob", "x^2", "score", -2.94),
    ("dc-pdd", "text", "DC-PDD over Lowercase", "BookMIA", "tpr_at_5_fpr_gain_percent", 9.6),
    ("surp", "table-1", "PPL", "WikiMIA-32 / LLaMA-7B", "auc", 0.661),
    ("surp", "table-1", "SURP", "WikiMIA-128 / GPT-neo-2.7B", "auc", 0.694),
    ("surp", "table-2", "Ref", "Dolma-Book-head / OLMo-1B", "auc", None),
    ("surp", "table-2", "SURP", "Dolma-Book-tail / OLMo-7B", "auc", 0.608),
    ("surp", "table-3", "PPL", "Wikipedia / Pythia-2.8B", "auc", 0.663),
    ("surp", "table-3", "SURP", "HackerNews / Neo-2.7B", "auc", 0.594),
    ("surp", "figure-3", "SURP", "WikiMIA-64 / LLaMA-13B", "tpr_at_1_fpr", 0.412),
    ("surp", "figure-4", "SURP", "Dolma-Book-middle / OLMo-7B", "best_entropy_threshold", 2.5),
    ("surp", "text", "SURP", "ArXiv-temporal", "auc_percent", 73.4),
    ("min-k", "text", "Min-K% Prob over the strongest baseline", "WikiMIA", "auc_gain_percent", 7.4),
    ("probe", "table-1", "WikiMIA", "Avg. Tokens", "mean_tokens", 32.0),
    ("probe", "table-1", "ArxivMIA-Math", "Synthetic", "examples", 120),
    ("probe", "table-2", "Loss Attack", "WikiMIA / Pythia-2.8B", "auc", 0.639),
    ("probe", "table-2", "Probe w. Synthetic Data", "ArxivMIA-Math / OpenLLaMA-13B", "auc", 0.574),
    ("probe", "table-3", "Loss Attack", "WikiMIA / Pythia-2.8B", "tpr_at_5_fpr", 0.137),
    ("probe", "table-3", "Probe w. Synthetic Data", "WikiMIA / Pythia-2.8B", "tpr_at_5_fpr", 0.196),
    ("probe", "table-4", "Neighbor Attack", "PubMedQA / Contam-1.4b", "auc", 0.530),
    ("probe", "table-4", "Probe w. Synthetic Data", "CommonsenseQA / Contam-1.4b", "auc", 0.519),
    ("probe", "text", "Probe", "all benchmarks", "best_epochs", 2),
    ("probe", "text", "Probe", "ArxivMIA-CS over ArxivMIA-Math", "auc_gain_percent", 10),
]


def test_every_item_has_all_its_cells_in_the_range_of_their_metric():
    assert load_published().groupby(["paper", "item"]).size().to_dict() == CELLS
    assert not load_published().duplicated(KEY).any()
    assert surp_best_cell() == (40.0, 2.5), "of Figure 4, as the paper states it"
    cells = load_published().dropna(subset="value")
    known = UNIT_METRICS | PERCENT_METRICS | COUNT_METRICS | SETTING_METRICS | {"score", "mean_tokens"}
    assert set(cells["metric"]) == known
    assert cells[cells["metric"].isin(UNIT_METRICS)]["value"].between(0, 1).all()
    assert cells[cells["metric"].isin(PERCENT_METRICS)]["value"].between(1, 100).all()
    assert (cells[cells["metric"].isin(COUNT_METRICS)]["value"] % 1 == 0).all()
    assert (cells[cells["metric"].isin(COUNT_METRICS | SETTING_METRICS)]["value"] > 0).all()
    stars = load_published().query("marker != ''")
    assert set(stars["marker"]) == {"*"}
    assert set(stars["row"]) == {"DC-PDD", "WikiMIA"}
    assert stars.groupby(["paper", "item"]).size().to_dict() == {
        ("dc-pdd", "table-2"): 4,
        ("dc-pdd", "table-3"): 7,
        ("probe", "table-1"): 1,  # a footnote to the 100 texts that are taken from the benchmark itself
    }


def test_the_papers_dashes_are_kept_and_nothing_else_is_empty():
    dashes = load_published()[lambda cells: cells["value"].isna()]
    found = list(dashes[["paper", "row", "column"]].drop_duplicates().itertuples(index=False, name=None))
    assert len(dashes) == 4 + 4 + 3 + 4
    assert found == [
        ("dc-pdd", "Lowercase", "PatentMIA / Baichuan-13B"),
        ("dc-pdd", "Lowercase", "PatentMIA / Qwen1.5-14B"),
        ("dc-pdd", "Small Ref", "BookMIA / GPT-3"),
        ("dc-pdd", "Min-K%++ Prob", "BookMIA / GPT-3"),
        *(("surp", "Ref", f"Dolma-Book-{part} / OLMo-1B") for part in ("head", "middle", "tail")),
        *(
            ("probe", "Smaller Model", f"{name} / TinyLLaMA-1.1B")
            for name in ("ArxivMIA", "ArxivMIA-CS", "ArxivMIA-Math")
        ),
    ]


def test_spot_checks():
    assert [(*cell, published_value(*cell)) for *cell, _ in SPOT_CHECKS] == SPOT_CHECKS


def test_probe_averages_and_counts_add_up():
    cells = load_published("probe", "table-3")
    tpr = cells.pivot(index="row", columns="column", values="value")
    of_pairs = tpr.drop(columns="Avg.").mean(axis=1)  # a dash is left out
    assert (of_pairs - tpr["Avg."]).abs().max() <= 0.0005 + 1e-9
    cells = load_published("probe", "table-1").pivot(index="row", columns="column", values="value")
    assert (cells["Members"] + cells["Non-Members"] == cells["Total"]).all()
    parts = cells.loc[["ArxivMIA-CS", "ArxivMIA-Math"]].drop(columns="Avg. Tokens").sum()
    assert (parts == cells.loc["ArxivMIA"].drop("Avg. Tokens")).all()
    for column, metric in (("Total", "examples"), ("Avg. Tokens", "mean_tokens")):
        assert published_value("probe", "text", "ArxivMIA", column, metric) == cells.loc["ArxivMIA", column]
    # Table 1 counts WikiMIA without the non-members that are the real training data; the text counts all of it.
    whole = published_value("probe", "text", "WikiMIA-32", "Total", "examples")
    assert whole - cells.loc["WikiMIA", "Total"] == cells.loc["WikiMIA", "Real"]


def published_value(paper, item, row, column, metric):
    return published_along(paper, item, column, metric)[row]


def test_a_row_is_found_by_its_name():
    along = published_along("dc-pdd", "table-5", "PatentMIA / Qwen1.5-14B", "auc")
    assert along == {"0.001": 0.640, "0.01": 0.689, "0.1": 0.652, "1": 0.623, "10": 0.619}
    assert published_along("dc-pdd", "table-2", "BookMIA / GPT-3", "auc")["Min-K%++ Prob"] is None
    with pytest.raises(ValueError, match=r"dc-pdd table-2 .*'x'.* BookMIA / GPT-3"):
        published_along("dc-pdd", "table-2", "x", "auc")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of("two_sources", margin=0.03, out=str(tmp_path_factory.mktemp("page") / "results.json"))


def test_each_stated_gain_is_held_against_its_papers_table(page):
    checked = page["checked"].set_index(["paper", "on", "gain of"])
    assert len(checked) == len(page["stated"]) == 6 + 5 + 1 + 1
    differ = checked[checked["the same?"] == "no"]["by its table"].to_dict()
    assert differ == {
        ("DC-PDD", "PatentMIA", "DC-PDD over Min-K% Prob, TPR at 5% FPR"): "9.4, 10.8",
        ("SURP", "Dolma-Book-middle", "SURP, AUC"): "3.6, 5.4",
        ("Probing", "ArxivMIA-CS over ArxivMIA-Math", "Probe, AUC"): "10.3, 7.6, 9.9, 7.6",
    }
    [unknown] = checked.index[checked["the same?"] == "no table at hand"]
    assert unknown[0] == "Min-K% Prob"
    assert checked.loc[("DC-PDD", "PatentMIA", "DC-PDD over Min-K% Prob, AUC"), "the same?"] == "yes, their mean"


def test_a_stated_gain_is_the_mean_or_the_largest_or_neither(page):
    said = {gain: page["agreement"](gain, pd.Series([5.6, 5.2])) for gain in (5.4, 5.6, 5.2, 5.49)}
    assert said == {5.4: "yes, their mean", 5.6: "yes, the largest", 5.2: "no", 5.49: "no"}


@pytest.mark.parametrize(("paper", "n_tables"), [("dc-pdd", 5), ("surp", 3), ("probe", 4)])
def test_every_printed_cell_is_in_a_printed_table(paper, n_tables):
    for number in range(1, n_tables + 1):
        cells = load_published(paper, f"table-{number}")
        found = printed_table(paper, f"table-{number}")
        assert found.size == len(cells) and found.shape[1] <= 8 and not found.isna().any(axis=None)
        turned = found if set(found.index) == set(cells["row"]) else found.T
        for cell in cells.itertuples():
            printed = turned.loc[cell.row, cell.column].rstrip("*").replace(",", "")
            assert printed == DASH if pd.isna(cell.value) else float(printed) == cell.value


def test_errors_that_no_paper_prints():
    assert auc_error(0.5, 100, 120) == pytest.approx((221 / (12 * 100 * 120)) ** 0.5)
    assert auc_error(0.9, 50, 50) == pytest.approx(0.03212, abs=1e-5), "by hand"
    many = 10**9
    assert tpr_error(0.2, 1000, many) == pytest.approx((0.2 * 0.8 / 1000) ** 0.5, rel=1e-4)
    slope = norm.pdf(norm.ppf(0.2)) / norm.pdf(norm.ppf(0.05))
    assert tpr_error(0.2, many, 1000) == pytest.approx(slope * (0.05 * 0.95 / 1000) ** 0.5, rel=1e-4)
    [lead] = printed_leads("probe", "table-4", ("PubMedQA",), "auc", ("Probe w. Synthetic Data", ""), None)
    assert lead.lead == 0.04 and lead.could_be_shown and lead.errors[0] == lead.errors[1] == auc_error(0.54, 1000, 1000)
    for ours, says in ((0.0, "smaller"), (0.03, "compatible"), (0.2, "larger")):
        assert size_of(Interval(ours, ours - 0.01, ours + 0.01), [lead]).startswith(says)
    with pytest.raises(ValueError, match="probe table-4 prints no auc of"):
        printed_leads("probe", "table-4", ("WikiMIA",), "auc", ("Loss Attack", ""), None)


def test_more_printed_leads_are_no_easier_to_agree_with():
    apart = [Lead("c", of, (0.01, 0.01)) for of in (0.0, 0.1, 0.2)]
    for ours, says in ((0.1, "compatible"), (0.5, "compatible"), (0.7, "larger"), (-0.5, "smaller")):
        assert size_of(Interval(ours, ours - 0.01, ours + 0.01), apart).startswith(says)
    alike = [Lead("c", 0.1, (0.02, 0.02))] * 8
    assert size_of(Interval(0.14, 0.135, 0.145), alike).startswith("larger")  # inside each one's own interval
    assert size_of(Interval(0.05, 0.02, 0.08), []) == ""


def test_the_correlations_are_those_of_detectors_with_a_real_model():
    found = []
    for name in ("wikimia-32", "wikimia-64", "wikimia-128", "wikimia-256"):
        labels, _, scores = real_model.load_scores(name)
        of_each = [placements(*split_scores(labels, values)) for values in scores.values()]
        for a, b in combinations(of_each, 2):
            both = sum(np.cov(x, y) / len(x) for x, y in zip(a, b, strict=True))
            found.append(both[0, 1] / np.sqrt(both[0, 0] * both[1, 1]))
    low, high = CORRELATIONS[""]
    assert np.mean((np.array(found) > low - 0.005) & (np.array(found) < high + 0.005)) == pytest.approx(5 / 6, abs=0.03)


def test_the_spread_between_trials_of_a_vaccine_is_that_of_metafor():
    """Log risk ratios of 13 trials of BCG and their variances, `dat.bcg` of the R package metafor; method PM."""
    ratios = [-0.8893, -1.5854, -1.3481, -1.4416, -0.2175, -0.7861, -1.6209, 0.0120, -0.4694, -1.3713, -0.3394, 0.4459]
    variances = [0.3256, 0.1946, 0.4154, 0.0200, 0.0512, 0.0069, 0.2230, 0.0040, 0.0564, 0.0730, 0.0124, 0.5325]
    found = spread_between([*ratios, -0.0173], np.sqrt([*variances, 0.0714]))
    assert found.estimate**2 == pytest.approx(0.3181, abs=2e-4)
    assert (found.low**2, found.high**2) == pytest.approx((0.1197, 1.1115), abs=1e-3)
    assert spread_between([1, 1, 1], [0.1] * 3) == Interval(0, 0, 0)


def test_a_real_models_number_stands_beside_a_printed_one_of_the_same_texts_alone():
    [lab] = [profile for profile in map(load_profile, PROFILES) if profile.name == "lab"]
    beside = {
        (name, benchmark, printed)
        for name, page in lab.notebooks.items()
        if isinstance(published := page.parameters.get("published"), list)
        for benchmark, printed in zip(page.parameters["benchmarks"], published, strict=False)
        if benchmark.startswith("real/") and printed != "-"
    }
    assert ("dc_pdd_tables_2_3", "real/wikimia-128", "WikiMIA / Pythia-6.9B") in beside
    for name, benchmark, printed in beside - {of for of in beside if of[0] == "dc_pdd_table_4"}:  # beside the corpora
        of_benchmark = {paper: begins for paper, _, begins in PRINTED_ON[benchmark.removeprefix("real/")]}
        paper = name.partition("_table")[0].replace("_", "-")
        assert paper == "surp" or printed.startswith(of_benchmark[paper]), name  # SURP's page says its length by itself


def test_a_page_that_shows_a_real_models_dc_pdd_names_its_reference_corpus():
    page = (ROOT / "notebooks" / "probe_tables_2_3.ipynb").read_text(encoding="utf-8")
    assert "2,450 Python docstrings" in page
    assert len(LabCorpus(real_model.CORPUS).rows("reference")) == 2450


def test_no_profile_asks_for_more_unseen_texts_than_a_benchmark_comes_with():
    [n_real] = load_published("probe", "table-1").query("row == 'ArxivMIA' and column == 'Real'")["value"]
    for profile in map(load_profile, PROFILES):
        for page in profile.notebooks.values():
            if page.parameters.get("real") == "arxiv_mia":
                assert max(page.parameters.get("sizes", [0])) <= n_real == 200, page


def test_what_others_measured_is_whole_and_is_found_by_model_and_benchmark():
    cells = load_expected()
    assert not cells.duplicated([name for name in cells if name != "value"]).any()
    assert set(cells["known"]) == {"read", "reported"} and set(cells["metric"]) == {"auc", *COUNTED}
    values = cells["value"].astype(float)
    assert values[cells["metric"] != "runs_above_0.55"].between(0.4, 1).all()
    cited = (ROOT / "book" / "references.bib").read_text()
    assert all(f"{{{source}," in cited for source in set(cells["source"]))
    named = [name for name in set(cells["benchmark"]) if is_published(name)]
    assert {"wikimia-32", "wikimia_2024_hard", "hubble_gutenberg_unpopular"} <= set(named)
    assert all(model in known_models() for model in set(cells["model"]) if "/" in model)

    [of_length_32] = measured_by_others({("EleutherAI/pythia-2.8b", "wikimia-128")})
    assert "Zlib 0.621" in of_length_32["numbers"] and of_length_32["known"] == "read"
    assert measured_by_others({("EleutherAI/pythia-2.8b", "arxiv_mia")}) == []
    assert sum(row["numbers"].count(",") + 1 for row in measured_by_others()) == len(cells)


def test_each_real_model_has_an_answer_for_each_side_of_a_known_benchmark():
    known = can_have_read.can_have_read()
    real = {name for name, model in known_models().items() if model.alias}
    assert set(known.models) == real | {"lab/en-900k"}
    assert {side.partition(", ")[0] for side in known.sides} <= known_benchmarks().keys()
    assert {side.partition(", ")[2] for side in known.sides} == {"members", "non-members"}
    table, whole = can_have_read.table("google/gemma-3-270m"), can_have_read.every_model()
    assert table.loc["wikimia, non-members", "read?"] == "likely" and whole.shape == (len(known.sides), len(real) + 1)
    assert all(set(answers) == {*known.sides, "known"} for answers in known.models.values())
    assert {side.partition(",")[0] for side in known.sides} == set(known.sources)
