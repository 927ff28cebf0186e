"""Activations against a loop over single texts, and a proxy that leaves its target alone."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import AFTER_THE_HEAD, CONTEXT, FAMILIES, SENTENCES, TEXTS

from mialib import batches, scoring
from mialib.attacks import activations as module
from mialib.attacks.activations import PROMPT, Proxy, activations, encode_prompts, train_proxy
from mialib.cache import Checkpoints
from mialib.catalog import loading
from mialib.catalog.loading import load_model
from mialib.catalog.sources import find
from mialib.model_check import check_model

LONG = {"max_position_embeddings": 512}  # room for the prompt, which is half of the tiny models' context


def one_at_a_time(folder, texts):
    """Last token's hidden states, (L + 1, N, D), from the whole model, a text a time, through the tokenizer's call."""
    loaded = load_model(folder)
    rows = []
    for text in texts:
        prompt = f"Here is a statement: {text} \n Is the above statement correct? Answer:"
        ids = [*loaded.start_token_ids, *loaded.tokenizer.encode(prompt, add_special_tokens=False)]
        with torch.inference_mode():
            states = loaded.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        widest = max(state.shape[-1] for state in states)
        rows.append([np.pad(s[0, -1].numpy(), (0, widest - s.shape[-1])) for s in states])
    return np.array(rows).transpose(1, 0, 2)


@pytest.mark.parametrize(
    ("family", "padding_side"), [*((of, "left") for of in (*FAMILIES, *AFTER_THE_HEAD)), ("gpt_neox", "right")]
)
def test_activations_are_those_of_one_text_at_a_time(tiny_model, tmp_path, family, padding_side):
    folder = shutil.copytree(tiny_model(family, **LONG), tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": padding_side}))
    loaded = load_model(str(folder))
    assert loaded.tokenizer.padding_side == padding_side
    expected = one_at_a_time(str(folder), TEXTS)
    ours = activations(loaded, TEXTS)
    assert ours.dtype == np.float32 and ours.shape == expected.shape
    assert ours.shape[:2] == (loaded.model.config.num_hidden_layers + 1, len(TEXTS))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-5)


def test_padding_and_batches_do_not_matter(tiny_model, monkeypatch):
    loaded = load_model(tiny_model("gpt_neox", **LONG))
    together = activations(loaded, TEXTS)
    monkeypatch.setattr(scoring, "fitting_tokens", lambda _, every_layer: 1)
    np.testing.assert_allclose(activations(loaded, TEXTS), together, rtol=1e-4, atol=1e-5)


def test_a_name_goes_through_the_cache_and_a_loaded_model_does_not(tiny_model, mialib_home, monkeypatch):
    folder = tiny_model("gpt_neox", **LONG)
    by_name = activations(folder, TEXTS)
    loaded = load_model(folder)
    kept = list((mialib_home / "cache" / "activations").glob("*.npz"))
    assert len(kept) == 1
    monkeypatch.setattr(loading, "load_scorer", None)  # a second run needs no model
    assert (activations(folder, TEXTS) == by_name).all()
    np.testing.assert_array_equal(activations(loaded, TEXTS), by_name)
    assert list((mialib_home / "cache" / "activations").glob("*.npz")) == kept


def test_activations_that_broke_off_go_on(tiny_model, mialib_home, monkeypatch):
    monkeypatch.setattr(batches, "SECONDS_A_PART", -1)  # a part a batch
    monkeypatch.setattr(scoring, "fitting_tokens", lambda _, every_layer: 1)
    folder, run = tiny_model("gpt_neox", **LONG), []
    whole = activations(load_model(folder), TEXTS)
    add = Checkpoints.add

    def stop(self, part):
        add(self, part)
        run.append(part["numbers"])
        if len(run) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "add", stop)
    with pytest.raises(KeyboardInterrupt):
        activations(folder, TEXTS)
    np.testing.assert_array_equal(activations(folder, TEXTS), whole)
    assert len(np.concatenate(run)) == len(set(np.concatenate(run))) == len(TEXTS) - 1, "nothing twice"


def test_other_texts_or_weights_miss_the_cache(tiny_model, mialib_home):
    for folder in (tiny_model("gpt_neox", **LONG), tiny_model("llama", **LONG)):
        for texts in (TEXTS, TEXTS[:2], TEXTS[1::-1]):
            activations(folder, texts)
    assert len(list((mialib_home / "cache" / "activations").glob("*.npz"))) == 6


def test_a_long_text_loses_its_end_and_the_prompt_keeps_its_own(tiny_model, caplog):
    loaded = load_model(tiny_model("gpt_neox"))
    texts = ["the mill", " ".join(SENTENCES)]
    token_ids, n_cut = encode_prompts(loaded, texts)
    assert n_cut[0] == 0 and 0 < n_cut[1] < len(texts[1])
    # As full as it can be: one more character would not fit.
    assert [len(ids) for ids in token_ids][1] <= CONTEXT
    longer = PROMPT.replace("[SAMPLE]", texts[1][: len(texts[1]) - n_cut[1] + 1])
    assert len(loaded.tokenizer.encode(longer, add_special_tokens=False)) + 1 > CONTEXT
    prompt = loaded.tokenizer.decode(token_ids[1][1:])
    assert prompt.startswith("Here is a statement: The river rises")
    assert prompt.endswith(" \n Is the above statement correct? Answer:")
    assert re.search(f"1 of 2 texts .*{CONTEXT} tokens.*{n_cut[1]} characters", caplog.text)
    np.testing.assert_array_equal(activations(loaded, texts)[:, 1], activations(loaded, [texts[1][: -n_cut[1]]])[:, 0])


def files_of(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()}


def test_a_proxy_leaves_the_target_alone_and_refuses_a_far_too_high_rate(tiny_model):
    folder = tiny_model("gpt_neox", **LONG)
    target, files, revision = load_model(folder), files_of(folder), find(folder).revision
    weights = {name: value.clone() for name, value in target.model.state_dict().items()}
    proxy = train_proxy(folder, SENTENCES, 1e-2)
    assert files_of(folder) == files and find(folder).revision == revision
    assert all(torch.equal(value, weights[name]) for name, value in target.model.state_dict().items())
    assert any(not torch.equal(value, weights[name]) for name, value in proxy.model.state_dict().items())
    assert proxy.revision != target.revision
    assert not any(parameter.requires_grad for parameter in proxy.model.parameters())
    with pytest.raises(FloatingPointError, match=r"nan .*1e\+30"):
        train_proxy(tiny_model("gpt_neox", **LONG), SENTENCES, 1e30)


def test_the_loss_without_the_logits_at_once_is_the_same_with_the_same_gradients(tiny_model):
    loaded = load_model(tiny_model("gpt_neox", **LONG), dtype="float32")
    token_ids, _ = encode_prompts(loaded, SENTENCES)
    gradients = []
    for head in (check_model(loaded), None):
        loaded.model.requires_grad_(True).zero_grad()
        module._summed_loss(loaded.model, head, token_ids).backward()
        gradients.append([parameter.grad.clone() for parameter in loaded.model.parameters()])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["gpt_neox", "opt", "gemma2"])  # one with dropout, one with more after the head
def test_accumulated_chunks_are_one_batch(tiny_model, monkeypatch, family):
    folder = tiny_model(family, **LONG)
    monkeypatch.setattr(module, "TRAINING_TOKENS_AT_ONCE", 10**6)
    whole = activations(train_proxy(folder, SENTENCES, 1e-3), TEXTS)
    monkeypatch.setattr(module, "TRAINING_TOKENS_AT_ONCE", 1)
    chunks = activations(train_proxy(folder, SENTENCES, 1e-3), TEXTS)
    # By what the model does: a key's bias has no gradient but rounding, which Adam takes for a direction.
    moved = np.linalg.norm(whole - activations(folder, TEXTS))
    assert moved > 0.1
    assert np.linalg.norm(whole - chunks) < 0.001 * moved


def test_proxy_is_two_steps_of_adamw_on_the_mean_token_loss(tiny_model):
    """By hand: all texts in one batch padded on the right, the padding's labels ignored by Hugging Face's own loss."""
    folder = tiny_model("gpt_neox", **LONG)
    loaded = load_model(folder)
    token_ids, _ = encode_prompts(loaded, SENTENCES)
    inputs, labels = (torch.full((len(token_ids), max(map(len, token_ids))), fill) for fill in (0, -100))
    for row, ids in enumerate(token_ids):
        inputs[row, : len(ids)] = labels[row, : len(ids)] = torch.tensor(ids)
    model = loaded.model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(2):
        optimizer.zero_grad()
        model(inputs, labels=labels).loss.backward()
        optimizer.step()
    expected, ours = model.state_dict(), train_proxy(folder, SENTENCES, 1e-3).model.state_dict()
    for name, value in expected.items():
        assert (value - ours[name]).abs().median() < 2e-6, name


def test_proxy_is_the_same_each_time_and_knows_its_texts_better(tiny_model):
    folder = tiny_model("gpt_neox", **LONG)
    first, second = (train_proxy(folder, SENTENCES, 1e-2, dtype="bfloat16") for _ in range(2))
    assert first.model.dtype == torch.bfloat16
    assert first.revision == second.revision != train_proxy(folder, SENTENCES[1:], 1e-2).revision
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)

    def loss(loaded):
        token_ids, _ = encode_prompts(loaded, SENTENCES)
        with torch.inference_mode():
            return module._summed_loss(loaded.model, None, token_ids).item()

    assert loss(train_proxy(folder, SENTENCES, 1e-2)) < loss(load_model(folder))


def test_a_proxys_activations_are_kept_by_its_recipe(tiny_model, mialib_home, monkeypatch):
    folder = tiny_model("gpt_neox", **LONG)
    proxy = Proxy(folder, tuple(SENTENCES[:3]), 1e-3)
    first = activations(proxy, TEXTS)
    np.testing.assert_array_equal(first, activations(train_proxy(*proxy), TEXTS))
    others = [proxy._replace(learning_rate=1e-2), proxy._replace(member_texts=SENTENCES[:2])]
    assert all((activations(other, TEXTS) != first).any() for other in others)
    assert len(list((mialib_home / "cache" / "activations").glob("*.npz"))) == 3
    monkeypatch.setattr(module, "train_proxy", None)  # the second time nothing is trained
    np.testing.assert_array_equal(activations(proxy, TEXTS), first)
