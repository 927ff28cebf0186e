"""Token statistics are computed once and kept under everything that determines them."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import mialib
from mialib.catalog import models
from mialib.passes import cache
from mialib.scoring import LoadedScorer
from mialib.versions import VERSIONS


def test_scoring_again_loads_and_never_runs_the_model(inputs, model_folder, monkeypatch):
    first = inputs.stats
    monkeypatch.setattr(LoadedScorer, "score", lambda *_, **__: pytest.fail("scored again"))
    again = cache.score_or_load(model_folder, inputs.benchmark.texts)
    np.testing.assert_array_equal(again.log_prob, first.log_prob)


@pytest.mark.parametrize("change", ["texts", "start_token", "dtype", "version", "weights"])
def test_the_cache_misses_when_anything_that_matters_changes(inputs, model_folder, monkeypatch, change, tmp_path):
    calls, _ = [], inputs.stats
    score = LoadedScorer.score
    monkeypatch.setattr(LoadedScorer, "score", lambda self, texts, **kw: calls.append(1) or score(self, texts, **kw))
    texts, model, options = list(inputs.benchmark.texts), model_folder, {}
    if change == "texts":
        texts = texts[::-1]
    elif change == "start_token":
        options["start_token"] = None
    elif change == "dtype":
        options["dtype"] = "bfloat16"
    elif change == "version":
        monkeypatch.setitem(VERSIONS, "scoring", 0)
    else:
        loaded = mialib.Scorer(model_folder).loaded
        loaded.model.get_output_embeddings().weight.data[0] += 1
        model = str(tmp_path / "nudged")
        loaded.model.save_pretrained(model)
        loaded.tokenizer.save_pretrained(model)
    cache.score_or_load(model, texts, **options)
    assert calls == [1]


def test_the_key_of_a_pass_holds_device_and_versions(model_folder, monkeypatch):
    keys = [models.pass_key(model_folder, dtype="float32")]
    monkeypatch.setattr(models, "version", lambda name: "another")
    keys.append(models.pass_key(model_folder, dtype="float32"))
    monkeypatch.setattr(models, "pick_device", lambda device: SimpleNamespace(type="another"))
    keys.append(models.pass_key(model_folder, dtype="float32"))
    assert [a != b for a, b in pairwise(keys)] == [True, True]


def test_cut_texts_score_as_they_would_alone(inputs, model_folder):
    cut_texts = [text[:-1] for text in inputs.benchmark.texts]  # "Mil": another token than a prefix of "Mill"'s
    stats, n_reused = cache.score_cut_texts(model_folder, inputs.stats, cut_texts)
    fresh = mialib.Scorer(model_folder).score(cut_texts, progress=False)
    assert n_reused < 8
    np.testing.assert_array_equal(stats.token_ids, fresh.token_ids)
    np.testing.assert_allclose(stats.log_prob, fresh.log_prob, atol=1e-5)
    whole = ["q" * 12, "the river rises in the hills", "week the week"]
    cut = [text[:7] for text in whole]
    stats = cache.score_or_load(model_folder, whole, start_token=None)
    found, n_reused = cache.score_cut_texts(model_folder, stats, cut, start_token=None)
    alone = cache.score_or_load(model_folder, cut, start_token=None)
    assert n_reused and found.n_tokens.tolist() == alone.n_tokens.tolist()
    np.testing.assert_allclose(found.log_prob, alone.log_prob, atol=1e-5)
