"""The probe: activations against a loop over single texts, a proxy that leaves its target alone, an honest choice."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import AFTER_THE_HEAD, CONTEXT, FAMILIES, SENTENCES, TEXTS

from mialib.attacks import probe
from mialib.metrics import auc, auc_interval
from mialib.models import find_head
from mialib.catalog.models import load_model, model_revision
from mialib.attacks.probe import Pass, activations, choose_probe, fit_probe, flip_coin, probe_scores, train_proxy

LONG = {"max_position_embeddings": 512}  # room for the prompt, which is half of the tiny models' context


def one_at_a_time(folder, texts):
    """Last token's hidden states, (L + 1, N, D), from the whole model, a text a time, through the tokenizer's call."""
    loaded = load_model(folder)
    rows = []
    for text in texts:
        prompt = f"Here is a statement: {text} \n Is the above statement correct? Answer:"
        ids = [loaded.start_token_id, *loaded.tokenizer.encode(prompt, add_special_tokens=False)]
        with torch.inference_mode():
            states = loaded.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        widest = max(state.shape[-1] for state in states)
        rows.append([np.pad(s[0, -1].numpy(), (0, widest - s.shape[-1])) for s in states])
    return np.array(rows).transpose(1, 0, 2)


# --- activations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("family", [*FAMILIES, *AFTER_THE_HEAD])
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
    monkeypatch.setattr(probe, "fitting_tokens", lambda _, every_layer: 1)
    np.testing.assert_allclose(activations(loaded, TEXTS), together, rtol=1e-4, atol=1e-5)


def test_a_name_goes_through_the_cache_and_a_loaded_model_does_not(tiny_model, mialib_home, monkeypatch):
    folder = tiny_model("gpt_neox", **LONG)
    by_name = activations(folder, TEXTS)
    loaded = load_model(folder)
    kept = list((mialib_home / "cache" / "activations").glob("*.npz"))
    assert len(kept) == 1
    monkeypatch.setattr(probe, "load_model", None)  # a second run needs no model
    assert (activations(folder, TEXTS) == by_name).all()
    np.testing.assert_array_equal(activations(loaded, TEXTS), by_name)
    assert list((mialib_home / "cache" / "activations").glob("*.npz")) == kept


def test_other_texts_or_weights_miss_the_cache(tiny_model, mialib_home):
    for folder in (tiny_model("gpt_neox", **LONG), tiny_model("llama", **LONG)):
        for texts in (TEXTS, TEXTS[:2], TEXTS[1::-1]):
            activations(folder, texts)
    assert len(list((mialib_home / "cache" / "activations").glob("*.npz"))) == 6


def test_a_long_text_loses_its_end_and_the_prompt_keeps_its_own(tiny_model, caplog):
    loaded = load_model(tiny_model("gpt_neox"))
    texts = ["the mill", " ".join(SENTENCES)]
    token_ids, n_cut = probe.encode_prompts(loaded, texts)
    assert n_cut[0] == 0 and 0 < n_cut[1] < len(texts[1])
    # As full as it can be: one more character would not fit.
    assert [len(ids) for ids in token_ids][1] <= CONTEXT
    longer = probe.PROMPT.replace("[SAMPLE]", texts[1][: len(texts[1]) - n_cut[1] + 1])
    assert len(loaded.tokenizer.encode(longer, add_special_tokens=False)) + 1 > CONTEXT
    prompt = loaded.tokenizer.decode(token_ids[1][1:])
    assert prompt.startswith("Here is a statement: The river rises")
    assert prompt.endswith(" \n Is the above statement correct? Answer:")
    assert f"1 of 2 texts and the prompt exceed its context of {CONTEXT} tokens; {n_cut[1]} characters" in caplog.text
    np.testing.assert_array_equal(activations(loaded, texts)[:, 1], activations(loaded, [texts[1][: -n_cut[1]]])[:, 0])


def test_a_context_without_room_for_the_text_says_so(tiny_model):
    with pytest.raises(ValueError, match="a context of 16 tokens holds the prompt and nothing of text 0"):
        activations(load_model(tiny_model("gpt_neox", max_position_embeddings=16)), ["The mill stands"])


def test_an_empty_text_and_a_broken_model_are_named(tiny_model):
    loaded = load_model(tiny_model("gpt_neox", **LONG))
    with pytest.raises(ValueError, match="text 1 is empty"):
        activations(loaded, ["the", " "])
    loaded.model.base_model.layers[0].mlp.dense_4h_to_h.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"text 0: layer 1 of .* is not finite"):
        activations(loaded, ["the"])


def test_real_abstracts_with_the_prompt_fit_and_are_finite(tiny_model):
    benchmarks = Path(os.environ.get("MIALIB_BENCHMARKS") or Path(__file__).parents[2] / "shared" / "benchmarks")
    path = benchmarks / "arxiv_mia" / "arxiv_mia_dev.jsonl"
    if not path.is_file():
        pytest.skip(f"no benchmark texts at {benchmarks}; set MIALIB_BENCHMARKS to a folder that holds arxiv_mia/")
    texts = [json.loads(line)["text"] for line in path.open()][:12]
    folder = tiny_model("gpt_neox", max_position_embeddings=4096)
    ours = activations(load_model(folder), texts)
    np.testing.assert_allclose(ours, one_at_a_time(folder, texts), rtol=1e-3, atol=1e-4)


# --- the proxy --------------------------------------------------------------------------------------------------------


def files_of(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()}


def test_training_a_proxy_leaves_the_target_alone(tiny_model):
    folder = tiny_model("gpt_neox", **LONG)
    target, files, revision = load_model(folder), files_of(folder), model_revision(folder)
    weights = {name: value.clone() for name, value in target.model.state_dict().items()}
    proxy = train_proxy(folder, SENTENCES, 1e-2)
    assert files_of(folder) == files and model_revision(folder) == revision
    assert all(torch.equal(value, weights[name]) for name, value in target.model.state_dict().items())
    assert any(not torch.equal(value, weights[name]) for name, value in proxy.model.state_dict().items())
    assert proxy.revision != target.revision
    assert not any(parameter.requires_grad for parameter in proxy.model.parameters())


def test_the_loss_without_the_logits_at_once_is_the_same_with_the_same_gradients(tiny_model):
    loaded = load_model(tiny_model("gpt_neox", **LONG), dtype="float32")
    token_ids, _ = probe.encode_prompts(loaded, SENTENCES)
    gradients = []
    for head in (find_head(loaded), None):
        loaded.model.requires_grad_(True).zero_grad()
        probe._summed_loss(loaded.model, head, token_ids).backward()
        gradients.append([parameter.grad.clone() for parameter in loaded.model.parameters()])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["gpt_neox", "opt", "gemma2"])  # one with dropout, one with more after the head
def test_accumulated_chunks_are_one_batch(tiny_model, monkeypatch, family):
    folder = tiny_model(family, **LONG)
    monkeypatch.setattr(probe, "TRAINING_TOKENS_AT_ONCE", 10**6)
    whole = activations(train_proxy(folder, SENTENCES, 1e-3), TEXTS)
    monkeypatch.setattr(probe, "TRAINING_TOKENS_AT_ONCE", 1)
    chunks = activations(train_proxy(folder, SENTENCES, 1e-3), TEXTS)
    # By what the model does: a key's bias has no gradient but rounding, which Adam takes for a direction.
    moved = np.linalg.norm(whole - activations(folder, TEXTS))
    assert moved > 0.1
    assert np.linalg.norm(whole - chunks) < 0.001 * moved


def test_proxy_is_two_steps_of_adamw_on_the_mean_token_loss(tiny_model):
    """By hand: all texts in one batch padded on the right, the padding's labels ignored by Hugging Face's own loss."""
    folder = tiny_model("gpt_neox", **LONG)
    loaded = load_model(folder)
    token_ids, _ = probe.encode_prompts(loaded, SENTENCES)
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
        token_ids, _ = probe.encode_prompts(loaded, SENTENCES)
        with torch.inference_mode():
            return probe._summed_loss(loaded.model, None, token_ids).item()

    assert loss(train_proxy(folder, SENTENCES, 1e-2)) < loss(load_model(folder))


def test_a_learning_rate_that_is_far_too_high_says_so(tiny_model):
    with pytest.raises(FloatingPointError, match=r"the proxy's loss became nan at learning rate 1e\+30; lower it"):
        train_proxy(tiny_model("gpt_neox", **LONG), SENTENCES, 1e30)


# --- the probe --------------------------------------------------------------------------------------------------------

N, M, D = 200, 80, 24
LABELS = np.repeat([1, 0], N // 2)


def made_up(signal, *, layer=2, seed=0, scale=1.0):
    """Noise in three layers of two proxies and a target; one layer's members lie `signal` deviations to one side.

    The target's activations are those of another model: moved, and stretched by `scale` feature by feature.
    """
    rng = np.random.default_rng(seed)
    coin = flip_coin(M, seed)
    direction = rng.standard_normal(D) / np.sqrt(D)
    proxies = {rate: rng.standard_normal((3, M, D)).astype(np.float32) for rate in (1e-4, 1e-3)}
    target = rng.standard_normal((3, N, D)).astype(np.float32)
    proxies[1e-3][layer] += np.outer(2 * coin - 1, signal * direction).astype(np.float32)
    target[layer] += np.outer(2 * LABELS - 1, signal * direction).astype(np.float32)
    target = target * np.float32(scale) ** rng.integers(-1, 2, D).astype(np.float32) + np.float32(3)
    return proxies, coin, Pass(target, np.zeros(N, np.int64))


def on_test(result, of="chosen"):
    return auc_interval(LABELS[result.test], getattr(result, of).scores[result.test])


def test_a_planted_direction_is_found_at_its_layer_and_rate():
    result = choose_probe(*made_up(signal=3), LABELS)
    for chosen in (result.chosen, result.leaking):
        assert (chosen.layer, chosen.learning_rate) == (2, 1e-3)
        assert chosen.validation_aucs.shape == (2, 2)  # the embeddings are no candidate
        assert chosen.validation_aucs[1, 1] == chosen.validation_aucs.max()
    assert on_test(result).estimate > 0.95 and on_test(result, "leaking").estimate > 0.95
    assert (result.scores == result.chosen.scores).all() and result.scores.shape == (N,)


def test_without_a_direction_the_probe_is_at_chance():
    intervals = [on_test(choose_probe(*made_up(signal=0, seed=seed), LABELS, seed)) for seed in range(10)]
    assert abs(np.mean([i.estimate for i in intervals]) - 0.5) < 0.04
    assert sum(i.low <= 0.5 <= i.high for i in intervals) >= 8


def test_a_direction_that_only_the_proxy_has_gives_chance():
    proxies, coin, _ = made_up(signal=3)
    _, _, target = made_up(signal=0)
    assert 0.4 < on_test(choose_probe(proxies, coin, target, LABELS)).estimate < 0.6


def test_validation_is_a_fifth_of_each_class_and_test_all_others():
    result = choose_probe(*made_up(signal=1), LABELS, seed=3)
    assert sorted([*result.validation, *result.test]) == list(range(N))
    assert LABELS[result.validation].sum() == N // 10 and len(result.validation) == N // 5


def test_layer_and_rate_are_chosen_on_the_validation_texts_alone(monkeypatch):
    made = made_up(signal=0.6)
    result = choose_probe(*made, LABELS)
    labels = LABELS.copy()
    labels[result.test] = 1 - labels[result.test]
    monkeypatch.setattr(probe, "deal", lambda *_: (result.validation, result.test))  # it goes by the labels
    other = choose_probe(*made, labels)
    for a, b in ((result.chosen, other.chosen), (result.leaking, other.leaking)):
        assert (a.layer, a.learning_rate) == (b.layer, b.learning_rate)
        assert (a.validation_aucs == b.validation_aucs).all() and (a.scores == b.scores).all()


def test_standardization_never_sees_the_test_texts():
    """Other test texts leave each score and the choice as they are; the leaking variant is what moves."""
    proxies, coin, target = made_up(signal=1.5)
    result = choose_probe(proxies, coin, target, LABELS)
    values = target.values.copy()
    changed, kept = result.test[::2], result.test[1::2]
    values[:, changed] = values[:, changed] * np.linspace(1, 50, D, dtype=np.float32) - 7
    other = choose_probe(proxies, coin, Pass(values, target.n_cut), LABELS)
    np.testing.assert_array_equal(other.chosen.scores[kept], result.chosen.scores[kept])
    np.testing.assert_array_equal(other.chosen.scores[result.validation], result.chosen.scores[result.validation])
    assert (other.chosen.validation_aucs == result.chosen.validation_aucs).all()
    assert np.abs(other.leaking.scores[kept] - result.leaking.scores[kept]).min() > 1e-3


def test_scores_are_those_of_training_statistics_and_plain_logistic_regression():
    """The honest score by hand, at the chosen point: mean and deviation of the training activations alone."""
    proxies, coin, target = made_up(signal=2, scale=3)
    result = choose_probe(proxies, coin, target, LABELS)
    training = proxies[result.chosen.learning_rate][result.chosen.layer].astype(np.float64)
    of_target = target.values[result.chosen.layer].astype(np.float64)
    mean, deviation = training.mean(axis=0), training.std(axis=0)
    weights = fit_probe(training, coin)[-1].coef_[0]
    np.testing.assert_allclose(result.scores, ((of_target - mean) / deviation) @ weights, rtol=1e-9, atol=1e-9)
    split = result.test
    own = (of_target[split] - of_target[split].mean(axis=0)) / of_target[split].std(axis=0)
    assert (result.leaking.layer, result.leaking.learning_rate) == (result.chosen.layer, result.chosen.learning_rate)
    np.testing.assert_allclose(result.leaking.scores[split], own @ weights, rtol=1e-9, atol=1e-9)


def test_leak_is_worth_something_where_the_target_is_scaled_otherwise_than_the_proxy():
    result = choose_probe(*made_up(signal=2, scale=20), LABELS)
    assert on_test(result, "leaking").estimate > on_test(result).high


def test_embeddings_of_the_prompts_last_token_say_nothing(tiny_model):
    """All prompts end in one token, so layer 0 of a model with rotary positions is the same row for every text."""
    folder = tiny_model("gpt_neox", **LONG)
    of_texts = activations(load_model(folder), TEXTS)[0]
    assert (of_texts == of_texts[0]).all()
    scores = fit_probe(of_texts, flip_coin(len(TEXTS))).decision_function(of_texts.astype(np.float64) + 1)
    assert auc([1, 0] * 4 + [1], scores) == 0.5


def test_given_validation_texts_are_what_is_chosen_on():
    val_idx = np.arange(0, N, 4)
    result = choose_probe(*made_up(signal=1), LABELS, validation=val_idx)
    assert (result.validation == val_idx).all()
    assert sorted([*result.validation, *result.test]) == list(range(N))


def test_candidates_are_every_rate_and_layer_and_the_chosen_one_is_among_them():
    proxies, coin, target = made_up(signal=1)
    candidates = probe.probe_candidates(probe.fit_probes(proxies, coin), target)
    assert [tuple(o.values()) for o in candidates.options] == [(rate, layer) for rate in proxies for layer in (1, 2)]
    result = choose_probe(proxies, coin, target, LABELS)
    at = candidates.best(LABELS, result.validation)
    assert candidates.options[at] == {"learning_rate": result.chosen.learning_rate, "layer": result.chosen.layer}
    np.testing.assert_array_equal(candidates.scores[at], result.scores)


def test_controls_find_a_planted_direction_on_the_other_half_and_nothing_in_noise():
    proxies, coin, target = made_up(signal=3)
    judged, by_layer = probe.judge_half(target.values, LABELS)
    assert by_layer.shape == (2, N // 2) and LABELS[judged].sum() == N // 4
    assert max(auc(LABELS[judged], scores) for scores in by_layer) > 0.95
    judged, own = probe.judge_half(max(proxies.values(), key=np.std), coin)
    assert max(auc(coin[judged], scores) for scores in own) > 0.9


def test_intervals_of_the_controls_cover_chance_as_often_as_they_say():
    """Where an out-of-fold AUC's would be too narrow: forty draws of noise, one layer each."""
    covered = 0
    for seed in range(40):
        values = np.random.default_rng(seed).normal(size=(2, N, D))
        judged, [scores] = probe.judge_half(values, LABELS, seed)
        interval = auc_interval(LABELS[judged], scores)
        covered += interval.low <= 0.5 <= interval.high
    assert covered >= 35


@pytest.mark.parametrize("val_idx", [np.flatnonzero(LABELS == 1)[:9], np.arange(N)])
def test_validation_texts_that_leave_a_class_out_are_refused(val_idx):
    with pytest.raises(
        ValueError, match=r"of the \d+ (validation|test) texts \d+ are members; both classes are needed"
    ):
        choose_probe(*made_up(signal=1), LABELS, validation=val_idx)


def test_labels_of_another_number_are_refused():
    with pytest.raises(ValueError, match="199 labels for the activations of 200 texts"):
        choose_probe(*made_up(signal=1), LABELS[1:])


# --- the whole method -------------------------------------------------------------------------------------------------


def numbered(what, n):
    return [f"The {what} number {i} stands {7 * i} miles behind the old mill" for i in range(n)]


def test_the_coin_is_a_random_half():
    assert flip_coin(200).sum() == 100 and flip_coin(5).sum() == 2
    assert (flip_coin(200) == flip_coin(200)).all() and (flip_coin(200) != flip_coin(200, seed=1)).any()


def test_whole_method_trains_on_the_coins_members_alone_and_once(tiny_model, monkeypatch, caplog):
    folder = tiny_model("gpt_neox", **LONG)
    texts, labels, training = numbered("river", 30), [1, 0] * 15, numbered("stone", 12)
    calls = []
    real = probe.train_proxy

    def spy(model, member_texts, learning_rate, **options):
        calls.append((list(member_texts), learning_rate))
        return real(model, member_texts, learning_rate, **options)

    monkeypatch.setattr(probe, "train_proxy", spy)
    result = probe_scores(folder, texts, labels, [*training, texts[4]], learning_rates=(1e-3, 1e-2))
    coin = flip_coin(12)
    members = [text for text, side in zip(training, coin, strict=True) if side]
    assert calls == [(members, 1e-3), (members, 1e-2)]
    assert "1 of 13 training texts stand in the benchmark; left out" in caplog.text
    assert result.scores.shape == (30,) and np.isfinite(result.scores).all() and result.n_cut == 0
    assert result.chosen.validation_aucs.shape == result.leaking.validation_aucs.shape == (2, 2)
    assert result.learning_rates == (1e-3, 1e-2)
    monkeypatch.setattr(probe, "train_proxy", None)  # the second time all is in the cache
    monkeypatch.setattr(probe, "load_model", None)
    again = probe_scores(folder, texts, labels, training, learning_rates=(1e-3, 1e-2))
    assert (again.scores == result.scores).all()


def test_too_few_training_texts_are_refused(tiny_model):
    texts = numbered("river", 10)
    with pytest.raises(ValueError, match="3 training texts outside the benchmark; the coin needs at least 4"):
        probe_scores(tiny_model("gpt_neox", **LONG), texts, [1, 0] * 5, [*numbered("stone", 3), *texts])
