"""The probe: an honest choice among probes of made activations, and the whole method once and from the cache."""

import numpy as np

from mialib.attacks import activations as passes
from mialib.attacks import probe
from mialib.attacks.probe import Collected, choose_probe, fit_probe, flip_coin, probe_scores
from mialib.catalog import loading
from mialib.metrics import auc, auc_interval

LONG = {"max_position_embeddings": 512}  # room for the prompt, which is half of the tiny models' context
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
    return Collected(proxies, coin, target)


def on_test(result):
    return auc_interval(LABELS[result.test], result.scores[result.test])


def test_a_direction_is_found_where_both_have_it_and_chance_otherwise():
    result = choose_probe(made_up(signal=3), LABELS)
    assert (result.layer, result.learning_rate) == (2, 1e-3)
    assert result.validation_aucs.shape == (2, 2)  # the embeddings are no candidate
    assert result.validation_aucs[1, 1] == result.validation_aucs.max()
    assert on_test(result).estimate > 0.95 and result.scores.shape == (N,)
    intervals = [on_test(choose_probe(made_up(signal=0, seed=seed), LABELS, seed)) for seed in range(10)]
    assert abs(np.mean([i.estimate for i in intervals]) - 0.5) < 0.04
    assert sum(i.low <= 0.5 <= i.high for i in intervals) >= 8
    made = made_up(signal=3)._replace(target=made_up(signal=0).target)
    assert 0.4 < on_test(choose_probe(made, LABELS)).estimate < 0.6


def test_validation_texts_alone_choose_layer_and_rate():
    drawn = choose_probe(made_up(signal=1), LABELS, seed=3)
    assert LABELS[drawn.validation].sum() == N // 10 and len(drawn.validation) == N // 5
    given = choose_probe(made_up(signal=1), LABELS, validation=np.arange(0, N, 4))
    assert given.validation.tolist() == list(range(0, N, 4))
    for result in (drawn, given):
        assert sorted([*result.validation, *result.test]) == list(range(N))
    made = made_up(signal=0.6)
    result = choose_probe(made, LABELS)
    labels = LABELS.copy()
    labels[result.test] = 1 - labels[result.test]
    other = choose_probe(made, labels, validation=result.validation)
    assert (result.layer, result.learning_rate) == (other.layer, other.learning_rate)
    assert (result.validation_aucs == other.validation_aucs).all() and (result.scores == other.scores).all()


def test_standardization_never_sees_the_test_texts():
    """Other test texts leave each score and the choice as they are."""
    made = made_up(signal=1.5)
    result = choose_probe(made, LABELS)
    values = made.target.copy()
    changed, kept = result.test[::2], result.test[1::2]
    values[:, changed] = values[:, changed] * np.linspace(1, 50, D, dtype=np.float32) - 7
    other = choose_probe(made._replace(target=values), LABELS)
    np.testing.assert_array_equal(other.scores[kept], result.scores[kept])
    np.testing.assert_array_equal(other.scores[result.validation], result.scores[result.validation])
    assert (other.validation_aucs == result.validation_aucs).all()


def test_scores_are_those_of_training_statistics_and_plain_logistic_regression():
    """The honest score by hand, at the chosen point: mean and deviation of the training activations alone."""
    made = made_up(signal=2, scale=3)
    result = choose_probe(made, LABELS)
    training = made.proxies[result.learning_rate][result.layer].astype(np.float64)
    of_target = made.target[result.layer].astype(np.float64)
    mean, deviation = training.mean(axis=0), training.std(axis=0)
    weights = fit_probe(training, made.coin)[-1].coef_[0]
    np.testing.assert_allclose(result.scores, ((of_target - mean) / deviation) @ weights, rtol=1e-9, atol=1e-9)


def test_controls_find_a_direction():
    proxies, coin, target = made_up(signal=3)
    judged, by_layer = probe.judge_half(target, LABELS)
    assert by_layer.shape == (2, N // 2) and LABELS[judged].sum() == N // 4
    assert max(auc(LABELS[judged], scores) for scores in by_layer) > 0.95
    judged, own = probe.judge_half(max(proxies.values(), key=np.std), coin)
    assert max(auc(coin[judged], scores) for scores in own) > 0.9


def test_candidates_are_every_rate_and_layer_and_the_chosen_one_is_among_them():
    made = made_up(signal=1)
    candidates = probe.probe_candidates(probe.fit_probes(made.proxies, made.coin), made.target)
    points = [(rate, layer) for rate in made.proxies for layer in (1, 2)]
    assert [tuple(option.values()) for option in candidates.options] == points
    result = choose_probe(made, LABELS)
    at = candidates.best(LABELS, result.validation)
    assert candidates.options[at] == {"learning_rate": result.learning_rate, "layer": result.layer}
    np.testing.assert_array_equal(candidates.scores[at], result.scores)


def numbered(what, n):
    return [f"The {what} number {i} stands {7 * i} miles behind the old mill" for i in range(n)]


def test_whole_method_trains_on_the_coins_members_alone_and_once(tiny_model, monkeypatch, caplog):
    folder = tiny_model("gpt_neox", **LONG)
    texts, labels, training = [*numbered("river", 29), "mill " * 600], [1, 0] * 15, numbered("stone", 12)
    calls = []
    real = passes.train_proxy

    def spy(model, member_texts, learning_rate, **options):
        calls.append((list(member_texts), learning_rate))
        return real(model, member_texts, learning_rate, **options)

    monkeypatch.setattr(passes, "train_proxy", spy)
    result = probe_scores(folder, texts, labels, [*training, texts[4]], learning_rates=(1e-3, 1e-2))
    coin = flip_coin(12)
    members = [text for text, side in zip(training, coin, strict=True) if side]
    assert coin.sum() == 6 and flip_coin(5).sum() == 2 and (flip_coin(200) != flip_coin(200, seed=1)).any()
    assert calls == [(members, 1e-3), (members, 1e-2)]
    assert "1 of 13 training texts" in caplog.text
    assert result.scores.shape == (30,) and np.isfinite(result.scores).all()
    assert result.validation_aucs.shape == (2, 2)
    assert result.learning_rates == (1e-3, 1e-2)
    monkeypatch.setattr(passes, "train_proxy", None)  # the second time all is in the cache
    monkeypatch.setattr(loading, "load_scorer", None)
    again = probe_scores(folder, texts, labels, training, learning_rates=(1e-3, 1e-2))
    assert (again.scores == result.scores).all()
