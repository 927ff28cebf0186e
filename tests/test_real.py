"""The real model: its recorded scores are found again, and an independent loop in float64 finds the same."""

import numpy as np
import oracles
import pyarrow.parquet as pq
import pytest
import torch
from oracles import assert_agree, naive_statistics

import mialib
from mialib.catalog.hub import Unavailable
from mialib.catalog.sources import find
from mialib.passes.cache import count_or_load
from replication import real_model
from replication.real import BENCHMARKS

RECORDED = pq.read_table(real_model.FOLDER / real_model.SCORES).to_pylist()
SAME = 2e-3  # of a score, of another machine's sums
NATS, VARIANCE = 1e-3, 5e-3  # of float32 weights in 30 layers, against float64
N_BY_FORMULA = 4  # texts of the one benchmark whose scores are computed by formulas of the tests' own


def recorded(benchmark):
    return {row["detector"]: np.array(row["scores"]) for row in RECORDED if row["benchmark"] == benchmark}


@pytest.fixture
def model(shared_home, monkeypatch):
    """The model's folder, fetched once for all tests."""
    monkeypatch.setenv("MIALIB_HOME", str(shared_home))
    try:
        return find(real_model.MODEL).folder
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_ten_texts_have_the_recorded_scores(model, monkeypatch):
    chosen = [*range(5), *range(real_model.N_FIXED, real_model.N_FIXED + 5)]
    monkeypatch.setattr(real_model, "N_FIXED", 5)
    found = {row["detector"]: np.array(row["scores"]) for row in real_model.score_rows(real_model.FIXED)}
    assert found.keys() == recorded(real_model.FIXED).keys() >= {"ppl", "zlib", "min_k", "min_k++", "surp", "dc_pdd"}
    for detector, scores in recorded(real_model.FIXED).items():
        np.testing.assert_allclose(found[detector], scores[chosen], rtol=SAME, atol=SAME, err_msg=detector)


@pytest.mark.slow
def test_a_text_of_each_benchmark_has_the_numbers_of_a_loop_in_float64(model, published_copy):
    texts = [mialib.load_benchmark(name).texts[-1] for name in BENCHMARKS]
    oracle = naive_statistics(model, texts, 0)
    assert_agree(mialib.Scorer(real_model.MODEL).score(texts), oracle, nats=NATS, variance=VARIANCE)


@pytest.mark.slow
def test_the_recorded_scores_are_those_of_a_loop_of_our_own(model, published_copy):
    """Text by text, with the formulas of the papers as they stand."""
    texts, expected = mialib.load_benchmark("wikimia-128").texts, recorded("wikimia-128")
    chosen = np.linspace(0, len(texts) - 1, N_BY_FORMULA).astype(int)
    scores = {name: [] for name in ("ppl", "zlib", "min_k", "min_k++", "surp", "dc_pdd")}
    counts = count_or_load(real_model.CORPUS, real_model.MODEL).counts.tolist()
    statistics = naive_statistics(model, [texts[i] for i in chosen], 0, dtype=torch.float32)
    for i, (ids, log_prob, entropy, variance, _) in zip(chosen, statistics, strict=True):
        scores["ppl"].append(oracles.mean(log_prob))
        scores["zlib"].append(oracles.zlib_score(log_prob, texts[i]))
        scores["min_k"].append(oracles.min_k(log_prob, 20))
        scores["min_k++"].append(oracles.min_k_plus_plus(log_prob, entropy, variance, 20))
        scores["surp"].append(oracles.surp(log_prob, entropy, 2.5, 40) or 0.0)
        scores["dc_pdd"].append(oracles.dc_pdd(ids, log_prob, counts, 0.01, True, True))
    for name, values in scores.items():
        np.testing.assert_allclose(values, expected[name][chosen], rtol=SAME, atol=SAME, err_msg=name)
