"""Other readings: every formula of the page by hand on a small case, and ours as `detect` gives it."""

import zlib

import matplotlib
import numpy as np
import pytest
import torch
from conftest import NOUNS, made_inputs, made_row, page_parameters, random_rows
from page_code import functions_of

matplotlib.use("Agg")

from mialib.catalog.loading import Scorer
from mialib.detectors import DETECTORS, detect
from mialib.frequency import TokenFrequency
from mialib.metrics import auc, auc_interval, tpr_at_fpr
from mialib.passes.inputs import Target, load_inputs
from replication.studies import sensitivity
from replication.studies.other_passes import other_statistics
from replication.studies.sensitivity import Setup

PAGE = functions_of("sensitivity")
READINGS = PAGE["all_readings"]()


def reading(beginning):
    """The one reading whose name begins so."""
    [found] = [reading for reading in READINGS if str(reading).startswith(beginning)]
    return found


def measure_all(setup, readings=READINGS):
    return [found for reading in readings for found in sensitivity.compare_reading(setup, reading)]


def scores_of(beginning, setup):
    """A reading's scores of the detector that it concerns, or of all."""
    of, (_, scores) = reading(beginning), reading(beginning).scores(setup)
    return scores[of.detector] if of.detector else scores


def made_setup(rows, labels, **given):
    return Setup(made_inputs(rows, labels), **given)


@pytest.fixture
def inputs(tiny_model, tmp_path):
    """Sixty-four texts with every pass that a reading may want."""
    wanted, _ = page_parameters([tiny_model("gpt_neox", max_position_embeddings=512)], tmp_path)
    smaller = tiny_model("gpt_neox", max_position_embeddings=512, hidden_size=16)
    names = {"model": wanted["models"], "benchmark": wanted["benchmarks"], "corpus": wanted["corpora"]}
    return load_inputs(Target(**names, reference=smaller))


# Ten non-members, the highest two tied: FPR 0, 0.2, ...; members above, at, and below these two.
TIED = (np.array([9.0, 8.0, 8.0, 1.5]), np.array([8.0, 8.0, 7, 6, 5, 4, 3, 2, 1, 0]))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (sensitivity.at_most, 0.25),
        (PAGE["strictly_below"], 0.25),
        (PAGE["nearest"], 0.25),
        (PAGE["interpolated"], 0.25 + 0.5 * 0.05 / 0.2),  # from (0, 0.25) to (0.2, 0.75)
        (PAGE["non_members_found"], 0.2),  # 0 and 1 lie below every member
    ],
)
def test_rules_by_hand_where_scores_tie(rule, expected):
    labels = np.repeat([1, 0], [len(of) for of in TIED])
    assert sensitivity.height(labels, np.concatenate(TIED), rule) == pytest.approx(expected)


def test_our_rule_is_that_of_metrics():
    rng = np.random.default_rng(0)
    labels, scores = rng.permutation(np.repeat([0, 1], [60, 45])), rng.integers(0, 12, 105).astype(float)
    assert sensitivity.height(labels, scores, sensitivity.at_most) == pytest.approx(tpr_at_fpr(labels, scores))
    flipped = sensitivity.height(labels, scores, PAGE["non_members_found"])
    assert flipped == pytest.approx(tpr_at_fpr(1 - labels, -scores))


def noisy(seed=0, n=120):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat([0, 1], n // 2))
    ours = labels + rng.normal(size=n)
    return labels, ours, ours + rng.normal(size=n), rng


def ends(interval):
    return interval.low, interval.estimate, interval.high


def test_a_difference_of_aucs_or_tprs_is_the_same_by_both_ways():
    labels, ours, other, _ = noisy(n=600)
    whole = sensitivity.compare_aucs(labels, other, ours)
    assert whole.estimate == pytest.approx(auc(labels, other) - auc(labels, ours))
    middle = np.where(np.arange(600) == np.argsort(other)[300], np.nan, other)
    assert ends(sensitivity.compare_aucs(labels, middle, ours)) == pytest.approx(ends(whole), abs=0.002)
    as_itself = sensitivity.compare_tprs(labels, other, ours)
    renamed = sensitivity.compare_tprs(labels, other, ours, lambda *points: sensitivity.at_most(*points))
    assert as_itself.low < as_itself.estimate < as_itself.high and np.isnan(renamed.low)
    assert as_itself.estimate == renamed.estimate == tpr_at_fpr(labels, other) - tpr_at_fpr(labels, ours)


def test_dropped_texts_the_difference_is_of_two_numbers_and_its_interval_a_bootstraps():
    labels, ours, other, rng = noisy(n=600)
    other = np.where(ours < -0.5, np.nan, other)
    found = sensitivity.compare_aucs(labels, other, ours)
    kept = ~np.isnan(other)
    assert found.estimate == pytest.approx(auc(labels[kept], other[kept]) - auc(labels, ours))
    drawn = []
    for _ in range(600):
        at = np.concatenate([rng.choice(np.flatnonzero(labels == label), 300) for label in (0, 1)])
        left = at[kept[at]]
        drawn.append(auc(labels[left], other[left]) - auc(labels[at], ours[at]))
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * np.std(drawn), rel=0.12)
    tpr = sensitivity.compare_tprs(labels, other, ours)
    assert tpr.estimate == pytest.approx(tpr_at_fpr(labels[kept], other[kept]) - tpr_at_fpr(labels, ours))


def test_min_k_by_hand_rounded_three_ways_and_nan_of_an_empty_set():
    for n, k, *counts in [(10, 5, 0, 0, 1), (12, 5, 0, 1, 1), (20, 5, 1, 1, 1), (21, 5, 1, 1, 2), (100, 7, 7, 7, 7)]:
        found = [PAGE["min_k"](-np.arange(float(n)), k, way) for way in (np.floor, np.round, np.ceil)]
        np.testing.assert_allclose(found, [1 - n + (m - 1) / 2 if m else np.nan for m in counts])
    rows = [made_row(-np.arange(n, dtype=float), np.ones(n)) for n in (4, 5, 9, 11)]  # k = 20: 0, 1, 1, 2 tokens
    setup = made_setup(rows, [1, 0, 1, 0])
    texts, other = PAGE["min_k_of"](setup.whole, np.floor)
    np.testing.assert_allclose(other["min_k"], [np.nan, -4, -8, -9.5])
    np.testing.assert_allclose(texts.ours["min_k"], [-3, -4, -8, -9.5])
    ceiled = PAGE["min_k_of"](setup.whole, np.ceil)[1]["min_k"]
    assert (ceiled != texts.ours["min_k"]).sum() == 2, "9 tokens make two, 11 three"


def test_zlib_and_the_literal_equations_by_hand(inputs):
    text, row = inputs.texts[3], inputs.stats[3]
    expected = row.log_prob.mean(dtype=np.float64) / len(zlib.compress(text.encode())) / len(text)
    assert scores_of("Zlib: divided", Setup(inputs))[3] == pytest.approx(expected)
    whole = Setup(inputs)
    perplexity = {
        name: np.array([np.exp(-row.log_prob.mean()) for row in whole.whole.rows(name)]) for name in sensitivity.PASSES
    }
    for beginning, other in (("Small Ref: the literal", "reference"), ("Lowercase: the literal", "lowercase")):
        found = scores_of(f"Small Ref, Lowercase: {beginning}", whole)
        literal = -perplexity["stats"] / perplexity[other]
        assert np.argsort(found).tolist() == np.argsort(literal).tolist()
    sizes = [len(zlib.compress(text.encode())) for text in inputs.texts]
    np.testing.assert_allclose(scores_of("Zlib: the literal", whole), -perplexity["stats"] / sizes)


def test_another_base_padding_and_no_surprise_by_hand(inputs):
    frequency = inputs["frequency"]
    for base, beginning in ((2, "base 2"), (10, "base 10")):
        found = scores_of(f"DC-PDD, logarithm: {beginning}", Setup(inputs))
        same = detect("dc_pdd", inputs.stats, frequency=frequency, a=0.01 * np.log(base)) / np.log(base)
        np.testing.assert_allclose(found, same)
    texts = [np.array([-1.0, -2.0]), np.array([-1.0, -2.0, -3.0]), np.array([-4.0])]
    found = sensitivity.padding_counted(texts, [-9.0, -9.0, -9.0], 50, batch=2)
    assert found.tolist() == [-9, -3, -4], "one of 3 tokens, one of 3 without padding, alone in its batch"
    rows = [made_row([-1.0, -2.0], [9, 9]), made_row([-1.0, -5.0], [1, 1]), *random_rows(0, [8, 9])]
    setup = made_setup(rows, [1, 0, 1, 0])
    assert scores_of("SURP, no surprising token", setup)[0] == -100
    assert setup.whole.ours["surp"][0] == 0


def test_dc_pdd_of_raw_counts_by_hand():
    rows = [made_row(np.log([0.5, 0.25]), [1, 1]), made_row(np.log([0.5]), [1])]
    inputs = made_inputs(rows, [1, 0]).given(frequency=TokenFrequency(np.array([3, 0, 0]), "made"))
    found = scores_of("DC-PDD, frequency: raw", Setup(inputs))
    # -p log(count + 1), at most 0.01: token 0 has a count of 3, token 1 of none.
    np.testing.assert_allclose(found, [(-0.5 * np.log(4) + 0) / 2, -0.5 * np.log(4)])


def test_without_a_start_token_the_first_token_is_not_scored(inputs):
    other = scores_of("first token: no start token", Setup(inputs))
    stats = Scorer(inputs.target.model, start_token=None).score(inputs.texts)
    np.testing.assert_allclose(other["ppl"], detect("ppl", stats), atol=1e-6)
    reference = Scorer(inputs.target.reference, start_token=None).score(inputs.texts)
    np.testing.assert_allclose(other["ref"], detect("ref", stats, reference=reference), atol=1e-6)
    rest = scores_of("first token: start token", Setup(inputs))
    expected = [row.log_prob[1:].mean(dtype=np.float64) for row in inputs.stats]
    np.testing.assert_allclose(rest["ppl"], expected)
    assert set(rest) == set(other) | {"lowercase"}


OTHER = {"unweighted": sensitivity.plain_moments, "bfloat16": sensitivity.in_bfloat16}


def test_unweighted_and_bfloat16_statistics_against_sums_over_the_vocabulary():
    logits = 4 * torch.randn(6, 50, generator=torch.manual_seed(0))
    targets = torch.arange(6)
    log_p = logits.double().log_softmax(-1).numpy()
    log_prob, minus_mean, variance = (column.numpy() for column in OTHER["unweighted"](logits, targets))
    np.testing.assert_allclose(log_prob, log_p[range(6), range(6)], rtol=1e-5)
    np.testing.assert_allclose(minus_mean, -log_p.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(variance, ((log_p - log_p.mean(axis=1, keepdims=True)) ** 2).mean(axis=1), rtol=1e-5)
    p = np.exp(log_p)
    entropy = -(p * log_p).sum(axis=1)
    exact = (log_p[range(6), range(6)], entropy, (p * (log_p + entropy[:, None]) ** 2).sum(axis=1))
    for rounded, expected in zip(OTHER["bfloat16"](logits, targets), exact, strict=True):
        assert rounded.dtype == torch.bfloat16
        np.testing.assert_allclose(rounded.float().numpy(), expected, rtol=0.1, atol=0.05)
        assert not np.allclose(rounded.float().numpy(), expected, rtol=1e-4), "it is rounded"


def test_the_other_pass_reads_the_tokens_that_scoring_reads_and_is_kept(inputs, monkeypatch):
    model, texts = inputs.target.model, inputs.texts
    stats = other_statistics(model, texts, OTHER)
    for i, row in enumerate(inputs.stats):
        np.testing.assert_array_equal(stats["unweighted"][i].token_ids, row.token_ids)
        np.testing.assert_allclose(stats["unweighted"][i].log_prob, row.log_prob, atol=1e-4)
        np.testing.assert_allclose(stats["bfloat16"][i].log_prob, row.log_prob, rtol=0.02, atol=0.1)
    assert set(stats) == set(other_statistics(model, texts[:1], OTHER)) == set(OTHER)
    monkeypatch.setattr("replication.studies.other_passes.load_scorer", lambda *_: pytest.fail("run again"))
    other_statistics(model, texts, OTHER)
    edited = OTHER | {"unweighted": lambda logits, targets: 3 * (logits.mean(-1),)}
    with pytest.raises(pytest.fail.Exception, match="run again"):
        other_statistics(model, texts, edited)


def test_a_function_of_another_pass_reads_nothing_that_may_change_around_it(inputs):
    def tripled(logits, targets):
        return len(NOUNS) * (logits.mean(-1),)

    def nested(logits, targets):
        return [(lambda: logits.mean(-1) * len(NOUNS))() for _ in range(3)]

    def times(n):
        return lambda logits, targets: n * (logits.mean(-1),)

    for function, name in ((tripled, "NOUNS"), (nested, "NOUNS"), (times(3), "n")):
        with pytest.raises(ValueError, match=f"reads '{name}'"):
            other_statistics(inputs.target.model, inputs.texts, {"other": function})


def test_ours_is_what_detect_gives_and_every_reading_is_finite_or_says_why(inputs, monkeypatch):
    monkeypatch.setattr(sensitivity, "N_RESAMPLES", 40)
    setup = Setup(inputs, n_words=8, cut_words=6)
    found = measure_all(setup)
    assert len({f.reading.choice for f in found}) == 15 and {f.reading for f in found} == set(READINGS)
    for f in found:
        if f.why:
            assert f.why[0].islower() or f.why[0].isdigit()
            continue
        numbers = [f.auc.low, f.auc.high, f.tpr.estimate, *(i.estimate for i in f.aucs)]
        assert np.isfinite(numbers).all()
        assert np.isnan(f.tpr.low) or f.reading.rule is sensitivity.at_most
        assert f.auc.estimate == pytest.approx(f.aucs[1].estimate - f.aucs[0].estimate)
    whole = [f for f in found if f.reading.choice in ("sign", "precision")]
    assert {f.detector for f in whole} >= {"ppl", "lowercase", "zlib", "ref", "min_k", "min_k++", "dc_pdd", "surp"}
    for f in whole:
        scores = detect(f.detector, inputs.stats, **{need: inputs[need] for need in DETECTORS[f.detector].needs})
        assert f.aucs[0] == auc_interval(inputs.labels, scores)
    sensitivity.ledger(found, "Every choice").to_html()
    for name in ("surp", "dc_pdd"):
        by_hand = sensitivity.each(setup.whole, name, sensitivity.surp) if name == "surp" else sensitivity.dc_pdd(setup)
        np.testing.assert_allclose(by_hand[1][name], setup.whole.ours[name])
    assert {r.metric for r in sensitivity.as_results(found)} >= {"auc_difference", "tpr_at_5_fpr_difference"}
