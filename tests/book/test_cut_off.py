"""What is tested with dated and rewritten docstrings: a planted jump is found, and pairs narrow an interval."""

import json
from datetime import date
from itertools import pairwise

import numpy as np
import pytest
from conftest import quick_baselines

import mialib
from mialib.catalog.benchmarks import load_benchmark
from replication.studies import cut_off

DAY = cut_off.REGISTERED["jump"]["date"]
QUARTERS = np.repeat(np.arange(cut_off.quarter_of(date(2019, 1, 1)), cut_off.quarter_of(date(2026, 12, 1))), 60)


def test_a_planted_jump_is_found_and_a_trend_or_a_package_is_none():
    rng = np.random.default_rng(0)
    noise, packages = rng.normal(size=len(QUARTERS)), rng.integers(5, size=len(QUARTERS))
    trend = QUARTERS / 40 + packages
    before = cut_off.quarter_of(DAY) > QUARTERS
    found = {}
    for size in (0.0, 2.0):
        scores = trend + noise + size * before
        of_text = cut_off.differences(scores, np.zeros(len(scores)), [str(of) for of in packages])
        for package in range(5):
            assert of_text[packages == package].mean() == pytest.approx(0, abs=1e-9)
        found[size] = cut_off.find_jump(of_text, QUARTERS, DAY, 3)
    assert found[2.0].jump - found[0.0].jump == pytest.approx(2, abs=0.1)
    assert len(found[2.0].placebos) == 21 and found[2.0].p == 1 / 22 and found[0.0].p > 0.05
    assert all(abs((day - DAY).days) > 250 for day in found[2.0].placebos)
    assert max(found[2.0].placebos.values()) < found[2.0].can_show < 2


def test_a_quarters_mean_has_its_interval_and_quarters_are_numbered():
    means = cut_off.by_quarter(np.array([1.0, 3.0, 5.0, 7.0]), np.array([8096, 8096, 8096, 8097]))
    interval = means[date(2024, 1, 1)]
    assert interval.estimate == 3 and interval.high - 3 == pytest.approx(4.303 * 2 / np.sqrt(3), rel=1e-3)
    assert means[date(2024, 4, 1)].low == -np.inf
    assert all(cut_off.quarter_of(cut_off.first_day(quarter)) == quarter for quarter in range(8000, 8100))


def test_an_auc_of_pairs_has_the_interval_of_a_jackknife_over_pairs():
    rng = np.random.default_rng(1)
    base = rng.normal(size=200)
    scores = np.concatenate([base + rng.normal(0.2, 0.3, 200), base + rng.normal(0, 0.3, 200)])
    labels, pairs = np.repeat([1, 0], 200).astype(np.int8), [*range(200)] * 2
    order = rng.permutation(400)
    found = cut_off.paired_auc(labels[order], scores[order], np.array(pairs)[order])
    assert found.estimate == pytest.approx(mialib.auc(labels, scores))
    left = [mialib.auc(labels[keep], scores[keep]) for i in range(200) for keep in [np.array(pairs) != i]]
    error = np.sqrt(199 * np.var(left))
    assert found.high - found.estimate == pytest.approx(1.96 * error, rel=0.02)
    unpaired = mialib.auc_interval(labels, scores)
    assert found.high - found.low < 0.6 * (unpaired.high - unpaired.low)


@pytest.mark.slow
def test_models_are_recorded_one_after_the_other_without_a_text(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr(cut_off, "FOLDER", tmp_path / "recorded")
    (tmp_path / "recorded").mkdir()
    rows = [
        {
            "text": f"number {i} {label} " + " ".join(f"word{(i + j) % 17}" for j in range(20)),
            "label": label,
            "source": f"{i}",
            "date": "2020-01-02",
            "field": "river",
        }
        for i in range(20)
        for label in (1, 0)
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with quick_baselines("naive_bayes", "formatting", "year"):
        for _ in range(2):  # again: the model's rows are replaced
            written = cut_off.record_docstrings(path, path, [model_folder])
    assert [of.name for of in written] == ["pairs.json", "pairs.parquet", "quarters.parquet"]
    of = load_benchmark(str(path))
    stats = mialib.Scorer(model_folder).score(of.texts)
    aucs, blind, n = cut_off.load_pairs()
    assert n == 20 and blind and len({model for model, _ in aucs}) == 1
    [ppl] = [interval.estimate for (_, detector), interval in aucs.items() if detector == "ppl"]
    assert ppl == pytest.approx(mialib.auc(of.labels, mialib.detect("ppl", stats)))
    by_model, quarters, packages = cut_off.load_quarters()
    [scores] = by_model.values()
    sums = [stats.log_prob[start:end].sum() for start, end in pairwise(stats.offsets)]
    per_byte = np.array(sums) / [len(text) for text in of.texts]
    np.testing.assert_allclose(scores, per_byte, rtol=1e-4)
    assert set(quarters) == {2020 * 4} and set(packages) == {"river"}
    assert not any(row["text"][:20].encode() in name.read_bytes() for row in rows for name in written)


def test_a_window_without_texts_is_no_jump():
    quarters = np.repeat([*range(8000, 8004), *range(8012, 8016)], 3)
    with pytest.raises(ValueError, match="no texts"):
        cut_off.find_jump(np.zeros(len(quarters)), quarters, cut_off.first_day(8007), 3)


def test_scores_of_other_texts_do_not_stand_in_one_file(tmp_path):
    row = {"model": "a", "scores": np.zeros(2, np.float32), "texts": "one"}
    cut_off._write(tmp_path / "of.parquet", [row])
    with pytest.raises(ValueError, match="other texts"):
        cut_off._write(tmp_path / "of.parquet", [row | {"model": "b", "texts": "two"}])
