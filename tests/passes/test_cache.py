"""Token statistics are computed once and kept under everything that determines them."""

from itertools import pairwise

import numpy as np
import pytest

import mialib
from mialib.batches import part_of_each
from mialib.catalog import loading, models
from mialib.catalog.sources import PartsMissing, find
from mialib.passes import cache
from mialib.scoring import LoadedScorer
from mialib.token_stats import COLUMNS
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
    keys = [find(model_folder).pass_key(dtype="float32")]
    monkeypatch.setattr(models, "version", lambda name: "another")
    keys.append(find(model_folder).pass_key(dtype="float32"))
    monkeypatch.setattr(models, "device_type", lambda device: "another")
    keys.append(find(model_folder).pass_key(dtype="float32"))
    assert [a != b for a, b in pairwise(keys)] == [True, True]


@pytest.fixture
def scored(monkeypatch):
    """The part, or None, of each scoring from here on."""
    parts, score = [], LoadedScorer.score

    def watched(self, texts, part=None, **how):
        parts.append(part)
        return score(self, texts, part=part, **how)

    monkeypatch.setattr(LoadedScorer, "score", watched)
    return parts


def test_parts_are_joined_without_scoring_once_all_are_there(inputs, model_folder, scored):
    texts = [*inputs.texts, "The mill"]
    whole = mialib.Scorer(model_folder).score(texts)
    for number, missing in ((3, "1, 2 of 3"), (1, "2 of 3")):
        with pytest.raises(PartsMissing, match=f"9 texts: parts {missing}"):
            cache.score_or_load(model_folder, texts, part=(number, 3))
    with pytest.raises(PartsMissing, match="9 texts: parts 1, 3 of 3"):  # of other texts
        cache.score_or_load(model_folder, [*inputs.texts, "The mil"], part=(2, 3))
    for part in ((2, 3), None, (5, 7)):
        found = cache.score_or_load(model_folder, texts, part=part)
        for column in COLUMNS:
            np.testing.assert_array_equal(getattr(found, column), getattr(whole, column))
        assert found.provenance == whole.provenance
    assert scored == [None, (3, 3), (1, 3), (2, 3), (2, 3)]


def test_texts_between_the_parts_of_unlike_machines_are_scored_when_these_are_joined(
    inputs, model_folder, scored, monkeypatch
):
    whole = mialib.Scorer(model_folder).score(inputs.texts)
    owner = int(part_of_each(inputs.texts, 2)[whole.n_tokens.argmax()])  # of the one batch of a machine with memory
    loading.unload()  # whose batches are decided
    with pytest.raises(PartsMissing, match=f"parts {owner} of 2"):
        cache.score_or_load(model_folder, inputs.texts, part=(3 - owner, 2))
    loading.unload()
    monkeypatch.setattr("mialib.scoring.TOKENS_PER_BATCH", {"cpu": 1})
    joined = cache.score_or_load(model_folder, inputs.texts, part=(owner, 2))
    assert scored == [None, (3 - owner, 2), (owner, 2), None]
    np.testing.assert_allclose(joined.log_prob, whole.log_prob, atol=1e-5)


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
