"""The probe's pages: the probe beside the likelihood detectors, on the same texts, in rows as the paper prints them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mialib.metrics import auc, tpr_at_fpr
from mialib.passes.inputs import Target, load_inputs
from mialib.store import hash_texts
from replication import tables
from replication.results import BOTH
from replication.studies.probe_tables import BASELINES, REAL, probe_column

pytestmark = pytest.mark.usefixtures("home_of_all_pages")
N = 40


@pytest.fixture
def target(tmp_path, tiny_model):
    rows = [
        {"text": f"The river number {i} runs {7 * i} miles", "label": i % 2, "field": "cs" if i < 24 else "math"}
        for i in range(N)
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tiny_model("gpt_neox", max_position_embeddings=512)
    smaller = tiny_model("gpt_neox", max_position_embeddings=512, seed=1)
    return Target(model=folder, benchmark=str(path), reference=smaller)


@pytest.fixture
def unseen_file(tmp_path):
    path = tmp_path / "unseen.txt"
    path.write_text("".join(f"The stone number {i} stands {3 * i} miles off\n" for i in range(20)))
    return str(path)


@pytest.fixture
def made(target, unseen_file, masked_folder):
    inputs = load_inputs(target.but(masked=masked_folder, n_neighbors=2))
    return probe_column(inputs, {REAL: unseen_file}, n_training=10)


def test_all_methods_are_judged_on_the_texts_that_nothing_was_chosen_on(made):
    assert len(made.test_idx) == 0.8 * N and not set(made.test_idx) & set(made.val_idx)
    results = made.results("here", {"auc": "table-2", "tpr_at_5_fpr": "table-3"})
    rows = list(dict.fromkeys(result.row for result in results))
    assert rows[:6] == list(BASELINES.values()) and rows[-1] == REAL
    lacking = {metric: [r for r in results if r.metric == metric and r.ours is None] for metric in BOTH}
    assert [r.row for r in lacking["auc"]] == ["DC-PDD"], "no reference corpus is given"
    assert {r.why for r in lacking["tpr_at_5_fpr"]} == {"", "needs 20"}, "and there are too few non-members for a TPR"
    for result in (r for r in results if r.ours is not None):
        labels, scores = made.inputs.labels[made.test_idx], made.on_test()[result.row]
        expected = auc(labels, scores) if result.metric == "auc" else tpr_at_fpr(labels, scores, 0.05)
        assert result.ours == pytest.approx(expected)
    assert made.judged.texts == tuple(made.inputs.texts[i] for i in made.test_idx)


def test_what_a_column_prints_compares_and_sets_apart(made, masked_folder):
    column = "ArxivMIA / TinyLLaMA-1.1B"
    results = {r.row: r for r in made.results("here", {"auc": "table-2"}, column)}
    assert results["Loss Attack"].published == 0.451 and results[REAL].published == 0.571
    assert results["Smaller Model"].published is None and results["DC-PDD"].ours is None
    passes = {p["model"]: p for p in made.passes()}
    assert passes[f"neighbors by {masked_folder}"]["n_texts"] == 2 * N
    [proxies] = [p for name, p in passes.items() if name.startswith("proxies of ")]
    assert proxies["texts"] == hash_texts(made.unseen[REAL]) and proxies["n_texts"] == 10
    assert len(tables.what_ran(made.passes())) == 4


def test_a_field_is_judged_on_its_test_texts_alone(made):
    cs = np.flatnonzero(np.array(made.inputs.benchmark.domains) == "cs")
    [result] = [r for r in made.results("here: cs", {"auc": "table-2"}, domain="cs") if r.row == REAL]
    assert result.column == "here: cs"
    judged = np.intersect1d(cs, made.test_idx)
    assert result.ours == pytest.approx(auc(made.inputs.labels[judged], made.scores[REAL][judged]))
    with pytest.raises(ValueError, match=r"'physics'.* cs, math"):
        made.results("here: physics", {"auc": "table-2"}, domain="physics")


def test_texts_set_apart_and_a_benchmarks_own_validation_texts(target, unseen_file):
    found = probe_column(load_inputs(target), {REAL: "apart"}, n_training=8)
    assert len(found.inputs.labels) == N - 8 and found.inputs.labels.sum() == N / 2
    assert all(len(scores) == N - 8 for scores in found.scores.values() if scores is not None)
    assert found.scores["Neighbor Attack"] is None
    inputs, own = load_inputs(target), (0, 1, 2, 3, 17)
    inputs = replace(inputs, benchmark=replace(inputs.benchmark, validation=own))
    found = probe_column(inputs, {REAL: unseen_file}, n_training=10)
    assert found.val_idx.tolist() == list(own)
    assert not set(found.test_idx) & set(own) and len(found.test_idx) == N - 5
