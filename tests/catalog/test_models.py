"""What a model's name leads to, and that one model is loaded once for all that is asked of it."""

import time

import numpy as np
import pytest
from conftest import FAMILIES, TEXTS, make_tokenizer, save_tiny_model
from hub_clients import forget_the_hub
from hub_server import serve_hub
from huggingface_hub import constants

import mialib
from mialib.catalog import hub, models
from mialib.catalog.models import load_model, load_scorer
from mialib.models import find_start_token


@pytest.fixture
def loads(monkeypatch):
    """The names of the models that are loaded, in order."""
    monkeypatch.setattr(models, "_loaded", {})
    names, load = [], models.load_model
    monkeypatch.setattr(models, "load_model", lambda name, **options: names.append(name) or load(name, **options))
    return names


def test_a_model_is_loaded_once_and_never_two_are_held(loads, model_folder, tiny_model, tmp_path):
    first = load_scorer(model_folder)
    assert load_scorer(model_folder) is load_scorer(model_folder, dtype="auto", device="cpu") is first
    assert loads == [model_folder]
    own = mialib.Scorer(model_folder).score(TEXTS, progress=False)
    np.testing.assert_array_equal(first.score(TEXTS, progress=False).log_prob, own.log_prob)
    loads.clear()
    load_scorer(other := tiny_model("llama")), load_scorer(other)
    assert loads == [other] and len(models._loaded) == 1
    load_scorer(model_folder)
    assert loads == [other, model_folder]
    with pytest.raises(OSError, match=str(tmp_path)):
        load_scorer(str(tmp_path))
    load_scorer(model_folder)
    assert len(models._loaded) == 1


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"start_token": None}, {"start_token": "</s>"}])
def test_a_model_asked_for_otherwise_is_loaded_anew(loads, model_folder, options):
    load_scorer(model_folder)
    assert load_scorer(model_folder, **options) is load_scorer(model_folder, **options)
    assert loads == [model_folder] * 2


def test_other_weights_in_the_same_folder_are_loaded_anew(loads, tmp_path):
    for seed in (0, 1):
        folder = save_tiny_model(tmp_path, **FAMILIES["gpt_neox"], seed=seed)
        load_scorer(folder), load_scorer(folder)
    assert loads == [folder] * 2


def test_opt_starts_with_its_papers_token_and_not_with_the_tokenizers(tmp_path):
    # OPT's tokenizer names "</s>" as start token; DC-PDD prepends "<s>".
    tokenizer = make_tokenizer(bos_token="</s>", eos_token="</s>")
    folder = save_tiny_model(tmp_path, **FAMILIES["opt"], tokenizer=tokenizer)
    assert load_model(folder).start_token_id == 0
    assert load_model(folder, start_token="</s>").start_token_id == 1
    assert find_start_token(tokenizer, "llama") == 1


def test_a_hub_out_of_reach_is_given_up_in_seconds(monkeypatch, caplog):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    forget_the_hub()
    start = time.perf_counter()
    for load in (models.load_tokenizer, models.load_model, models.model_revision):
        with pytest.raises(OSError, match=r"'no/such-model' .*hub"):
            load("no/such-model")
    assert time.perf_counter() - start < 10
    assert not caplog.text  # the error says it all
    forget_the_hub()


def test_a_hub_within_reach_leaves_the_process_online(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serve_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        forget_the_hub()
        assert hub.why_unreachable() == "" and not constants.HF_HUB_OFFLINE
    forget_the_hub()
