"""A model whose scores would mean nothing is an error that names what is wrong, never a number."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import FAMILIES, TEXTS, make_tokenizer, save_tiny_model
from safetensors.torch import load_file, save_file

from mialib.catalog.loading import Scorer, load_masked_model, load_scorer
from mialib.catalog.sources import find
from mialib.scoring import LoadedScorer as CoreScorer


@pytest.fixture
def folder(tmp_path):
    return Path(save_tiny_model(tmp_path / "model", **FAMILIES["gpt_neox"]))


def edit_weights(folder, edit):
    """Write the weights anew as `edit` changes their names and tensors."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    edit(weights)
    save_file(weights, file, metadata={"format": "pt"})


def edit_config(folder, **settings):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


HEAD, HEAD_IN_FILE, INNER = "lm_head.weight", "embed_out.weight", "gpt_neox.layers.1.attention.dense.weight"


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda w: w.pop(HEAD_IN_FILE), HEAD),
        (lambda w: w.update({"gpt_neox.layers.1.attention.dens.weight": w.pop(INNER)}), INNER),
        (lambda w: [w.pop(name) for name in list(w)[1:]], ""),
        (lambda w: w.update({INNER: torch.zeros(3, 3)}), INNER),
        (lambda w: [tensor.fill_(0.25) for tensor in w.values()], "the same probability"),
    ],
    ids=["head", "renamed", "nearly all", "shape", "all alike"],
)
def test_weights_that_are_not_those_of_the_model_are_refused_by_name(folder, edit, named):
    edit_weights(folder, edit)
    with pytest.raises((ValueError, OSError), match=named):
        load_scorer(str(folder))


def test_a_masked_model_that_lacks_weights_is_refused(masked_folder, tmp_path):
    model, tokenizer = load_masked_model(masked_folder)
    model.save_pretrained(tmp_path), tokenizer.save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda weights: weights.pop("lm_head.dense.weight"))
    with pytest.raises(ValueError, match=r"lm_head\.dense\.weight"):
        load_masked_model(str(tmp_path))


@pytest.mark.parametrize("config", ["BertConfig", "RobertaConfig"])
def test_a_model_that_sees_what_follows_is_refused(tmp_path, config):
    folder = save_tiny_model(tmp_path, config, num_key_value_heads=None)
    with pytest.raises(ValueError, match="bert"):
        load_scorer(folder)
    # It becomes a causal one where its config says so.
    edit_config(tmp_path, is_decoder=True)
    assert len(load_scorer(folder).score(TEXTS, progress=False)) == len(TEXTS)


def test_a_larger_tokenizer_or_none_is_refused(folder):
    smaller = load_scorer(str(folder)).loaded.model
    smaller.resize_token_embeddings(100, mean_resizing=False)
    smaller.save_pretrained(folder)
    with pytest.raises(ValueError, match="100"):
        load_scorer(str(folder))
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises((ValueError, OSError), match="tokenizer"):
        load_scorer(str(folder))


def test_a_token_that_was_added_and_never_trained_counts_where_a_text_holds_it(folder):
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["unheard"])
    tokenizer.save_pretrained(folder)
    scorer = load_scorer(str(folder))
    assert len(scorer.score(TEXTS, progress=False)) == len(TEXTS)
    with pytest.raises(ValueError, match=r"text 1 .*'unheard'"):
        scorer.score([TEXTS[0], "an unheard word"], progress=False)


def test_a_loaded_model_is_checked_as_one_by_name(tiny_model):
    loaded = load_scorer(tiny_model("gpt_neox")).loaded
    assert isinstance(Scorer(loaded), CoreScorer)
    weights = loaded.model.get_output_embeddings().weight
    weights.data.fill_(0.5)
    with pytest.raises(ValueError, match="the same probability"):
        Scorer(loaded)


def test_other_weights_of_the_same_size_and_time_are_another_model(folder):
    (folder / "parts").mkdir()
    index = {"weight_map": {"more": "parts/more.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    file = folder / "parts" / "more.safetensors"
    file.write_bytes(b"a" * 64)
    stat, before = file.stat(), find(str(folder)).revision
    assert find(str(folder)).revision == before
    file.write_bytes(b"b" * 64)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert find(str(folder)).revision != before


def test_another_vocabulary_is_another_model_and_an_adapter_an_error(folder):
    before = find(str(folder)).revision
    for name in ("qwen.tiktoken", "merges.codes", "spiece.spm"):
        (folder / name).write_text("a")
        assert find(str(folder)).revision != before
        (folder / name).unlink()
    assert find(str(folder)).revision == before
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"adapter_config\.json"):
        load_scorer(str(folder))


@pytest.mark.parametrize(
    ("family", "settings", "named"),
    [
        ("gpt_neox", {"attention_bias": False}, r"attention\.dense\.bias"),
        ("gpt_neox", {"num_hidden_layers": 1}, r"layers\.1\."),
        ("gpt_neox", {"num_hidden_layers": 3}, r"layers\.2\."),
        ("qwen2", {"tie_word_embeddings": False}, HEAD),
    ],
)
def test_a_config_that_does_not_fit_the_files_is_refused(family, settings, named, tmp_path):
    folder = Path(save_tiny_model(tmp_path / "model", **FAMILIES[family]))
    edit_config(folder, **settings)
    with pytest.raises(ValueError, match=named):
        load_scorer(str(folder))


def test_a_head_beside_tied_embeddings_is_the_one_that_is_used(tmp_path):
    folder = Path(save_tiny_model(tmp_path / "model", **FAMILIES["llama"]))
    expected = Scorer(str(folder)).score(TEXTS, progress=False)
    edit_config(folder, tie_word_embeddings=True)
    np.testing.assert_array_equal(Scorer(str(folder)).score(TEXTS, progress=False).log_prob, expected.log_prob)


@pytest.mark.parametrize(
    "broken", [lambda w: (1000 * w).round(), lambda w: 1e15 * w], ids=["integers without scales", "large"]
)
def test_weights_that_can_not_be_meant_are_refused(broken, folder):
    edit_weights(folder, lambda weights: weights.update({HEAD_IN_FILE: broken(weights[HEAD_IN_FILE])}))
    with pytest.raises(ValueError, match=r"-13\.8"):
        load_scorer(str(folder))


def test_a_start_token_that_the_model_does_not_embed_is_named_and_not_blamed_on_a_text(folder):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<|startoftext|>"})
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"'<\|startoftext\|>'"):
        load_scorer(str(folder))
    assert len(Scorer(folder, start_token="None").score(TEXTS[:1], progress=False)) == 1


def test_buffers_of_older_files_are_no_weights(folder):
    keys = ["transformer.h.0.attn.attention.bias", "transformer.h.0.attn.masked_bias", "model.decoder.version"]
    keys.append("gpt_neox.layers.0.attention.rotary_emb.inv_freq")
    expected = Scorer(folder).score(TEXTS, progress=False)
    edit_weights(folder, lambda weights: weights.update({key: torch.zeros(1) for key in keys}))
    np.testing.assert_array_equal(Scorer(folder).score(TEXTS, progress=False).log_prob, expected.log_prob)
