"""Results as data: measured with their intervals, beside the printed numbers, saved, read back and shown."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mialib.bootstrap import document_auc_interval
from mialib.metrics import Interval, auc, auc_interval, tpr_at_fpr
from mialib.passes.inputs import score_all
from mialib.store import ROOT
from replication import results, tables
from replication.published import printed
from replication.results import compare, measure, needs_more, save

LABELS = np.tile([1, 0], 30)


@pytest.fixture
def scores():
    return {"min_k": np.random.default_rng(0).normal(size=60) + 2 * LABELS, "ppl": np.tile([0.0, 1.0, 2.0], 20)}


def test_each_metric_of_each_detector_is_measured_with_its_interval(scores):
    found = measure(LABELS, scores | {"ref": None, "my own": scores["ppl"]}, "m on b", ["auc", "tpr_at_5_fpr"])
    assert [r.row for r in found[:4]] == ["Min-K% Prob", "PPL", "Small Ref", "my own"]
    assert [r.metric for r in found] == ["auc"] * 4 + ["tpr_at_5_fpr"] * 4
    assert found[0].interval == auc_interval(LABELS, scores["min_k"]) and found[0].column == "m on b"
    assert found[4].ours == tpr_at_fpr(LABELS, scores["min_k"], 0.05)
    assert found[2].ours is found[2].interval is None and str(found[2]) == "–"
    assert measure(LABELS, scores, "c", named="auc_held_out")[0].metric == "auc_held_out"


def test_measure_puts_the_published_number_beside_ours(inputs):
    found = measure(
        inputs.labels,
        scores := score_all(inputs, ["dc_pdd", "lowercase", "surp"]),
        inputs.target.column,
        printed=printed("dc-pdd", {"auc": "table-2"}, "WikiMIA / Pythia-6.9B"),
        published_column="WikiMIA / Pythia-6.9B",
    )
    assert {r.row: r.published for r in found} == {"DC-PDD": 0.698, "Lowercase": 0.605, "SURP": None}
    assert found[1].ours == auc(inputs.labels, scores["lowercase"])
    assert found[1].low <= found[1].ours <= found[1].high
    assert printed("dc-pdd", {"auc": "table-2"}, None) == {}


def test_a_star_marks_what_is_significantly_better_in_its_own_row_alone(scores):
    found = measure(LABELS, scores, "c", ["auc", "tpr_at_5_fpr"], star=("min_k", "ppl"))
    assert [r.marker for r in found if r.metric == "auc"] == ["*", ""]
    assert not any(r.marker for r in measure(LABELS, scores, "c", star=("ppl", "min_k")))
    assert not any(r.marker for r in measure(LABELS, scores | {"ppl": None}, "c", star=("min_k", "ppl")))
    comparison = compare(LABELS, scores, "min_k", "ppl")
    assert comparison.p_value <= 0.05 and comparison.difference.low > 0
    assert compare(LABELS, scores, "min_k", "ref") is None


def test_a_tpr_of_too_few_non_members_says_how_many_it_needs(scores):
    few = {"min_k": scores["min_k"][:39], "ppl": scores["ppl"][:39], "ref": None}
    found = measure(LABELS[:39], few, "c", ["auc", "tpr_at_5_fpr", "tpr_at_10_fpr"], star=("min_k", "ppl"))
    by_metric = [[str(r) for r in found if r.metric == metric] for metric in ("tpr_at_5_fpr", "tpr_at_10_fpr")]
    assert by_metric[0] == ["needs 20", "needs 20", "–"]
    assert by_metric[1][0].startswith(f"{tpr_at_fpr(LABELS[:39], few['min_k'], 0.1):.3f} [") and by_metric[1][2] == "–"
    assert "needs 20" in tables.results_table(found, "tpr_at_5_fpr").to_string()
    assert "needs 20" in tables.compact_table(found, "tpr_at_5_fpr", {"c": "C"}, "TPR").to_string()
    assert compare(LABELS[:39], few, "min_k", "ppl", "tpr_at_5_fpr") is None
    assert compare(LABELS, scores, "min_k", "ppl", "tpr_at_5_fpr") is not None
    assert needs_more("tpr_at_1_fpr", LABELS) == "needs 100" and needs_more("tpr_at_5_fpr", LABELS[:40]) == ""


def test_an_auc_of_snippets_draws_whole_documents(scores):
    document = np.arange(60) // 6 * 2 + np.arange(60) % 2  # six texts: three of a member, three of a non-member
    assert all(len(set(LABELS[document == d])) == 1 for d in document)
    [found] = measure(LABELS, {"min_k": scores["min_k"]}, "c", document=document + 7)
    assert found.interval == document_auc_interval(LABELS, scores["min_k"], document)
    [alone] = measure(LABELS, {"min_k": scores["min_k"]}, "c", document=np.arange(60))
    assert alone.interval == auc_interval(LABELS, scores["min_k"]), "each text is a document of its own"
    with pytest.raises(ValueError, match="tpr_at_5_fpr "):
        measure(LABELS, scores, "c", ["tpr_at_5_fpr"], document=document)


def test_results_survive_saving_and_render_as_a_table(inputs, tmp_path):
    found = measure(inputs.labels, score_all(inputs, ["ppl", "min_k"]), inputs.target.column)
    path = tmp_path / "results.json"
    assert save("a_page", found, paper="dc-pdd", item="table 2", ran=[inputs, {"model": "made"}], out=path) == found
    assert results.load_results(path) == found
    table = tables.results_table(found, "auc")
    assert list(table.index) == ["PPL", "Min-K% Prob"]
    saved = json.loads(path.read_text())
    assert saved["provenance"] == [inputs.stats.provenance, {"model": "made"}]
    assert saved["provenance"][0]["n_texts"] == 8 and saved["versions"]["torch"]
    with pytest.raises(ValueError, match="a_page: "):
        save("a_page", [], paper="dc-pdd", item="table 2", out=path)


def test_one_seed_has_words_of_its_own_that_are_no_verdict():
    says = {(0.01, 0.1, None): "holds", (-0.1, -0.01, None): "fails", (-0.1, 0.1, None): "open"}
    says |= {(-0.1, 0.1, 0.1): "holds", (0.11, 0.2, 0.1): "fails", (0.05, 0.2, 0.1): "open"}
    for (low, high, margin), expected in says.items():
        assert results.one_seed_says(Interval((low + high) / 2, low, high), margin) == expected


def test_no_blind_baseline_is_the_highest_and_a_cell_is_compared_as_it_is_printed():
    def cell(row, auc, low, **published):
        return results.Result(row, "x", "auc", auc, low, 1.0, **published)

    def bold(cells):
        return [isinstance(cell, tables.Bold) for cell in tables.results_table(cells, "auc")["x"]]

    found = [cell("Blind: n-grams", 0.99, 0.98), cell("a", 0.7, 0.6), cell("b", 0.6, 0.5)]
    assert bold(found) == bold([cell("Blind: n-grams", 0.7, 0.6), *found[1:]]) == [False, True, False]
    assert "highest detector" in tables.caption_of(tables.results_table(found, "auc"))[0], "not the highest row"
    assert not any(bold(found[:2])), "one alone"
    near = [cell("a", 0.9999, 0.9998), cell("b", 0.9996, 0.9), cell("c", 0.9, 0.8)]  # printed as 0.9999, 1.000, 0.900
    assert bold(near) == [True, True, False]
    twice = [replace(found[1], published_column=column, published=0.5) for column in ("32", "64")]
    caption, table = tables.caption_of(tables.results_table(twice, "auc"))
    assert "bold" not in caption and not any(isinstance(cell, tables.Bold) for cell in table.to_numpy().flat)
    beside = [replace(cell, published_column="32", published=0.5) for cell in found]
    caption, turned = tables.caption_of(tables.turned(tables.results_table(beside, "auc")))
    assert "each row of ours in bold" in caption and turned.shape == (2, 3)


def test_no_cell_holds_html_and_tables_are_styled_in_one_place():
    bad = "<img src=x onerror=alert(1)>"
    odd = pd.DataFrame({bad: [bad, [bad], {bad: 1}, (bad,), Path(bad), None, 1.5]}, index=[(bad,), *"bcdefg"])
    html = tables.html(odd.rename_axis(columns=bad))
    assert "<img" not in html and html.count("&lt;img") >= 8
    long = tables.html(pd.DataFrame({"x": range(1000)}))
    assert "1000 rows" in long and len(long) < 20_000
    sources = [*(ROOT / "book" / "replication").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    found = [path.name for path in sources if re.search(r"\.style\.(?!css)", path.read_text(encoding="utf-8"))]
    assert found == ["tables.py"]
