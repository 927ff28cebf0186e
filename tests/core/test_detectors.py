"""Each detector is its paper's equation: against a slow oracle on random texts, and against a case worked by hand."""

import math
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import oracles
import pytest
from conftest import SENTENCES, TEXTS, random_rows

import mialib
from mialib import DETECTORS, TokenFrequency, TokenStats, detect, surp_grid
from mialib.detectors import grid_candidates, lowest_indices, lowest_mean
from mialib.token_stats import NUMBERS, TokenRow

VOCABULARY = 50


def table(log_prob, *, entropy=None, variance=None, top=None, token_ids=None, **provenance):
    """Token statistics of one text, given as lists; what is not given does not matter to the test."""
    n = len(log_prob)
    row = TokenRow(
        np.array(token_ids if token_ids is not None else range(n)),
        np.array(log_prob, np.float32),
        np.array(entropy if entropy is not None else [1.0] * n, np.float32),
        np.array(variance if variance is not None else [1.0] * n, np.float32),
        np.array(top if top is not None else [0.0] * n, np.float32),
    )
    return TokenStats.from_rows([row], provenance=provenance)


def random_table(seed, lengths=(1, 2, 3, 4, 5, 17, 60, 128, 33)):
    """Ragged statistics with repeated tokens, tied log-probs and entropies on both sides of SURP's thresholds."""
    return TokenStats.from_rows(random_rows(seed, lengths), provenance={})


def random_frequency(seed):
    counts = np.random.default_rng(seed).geometric(0.01, VOCABULARY) - 1
    counts[::7] = 0
    return TokenFrequency(counts=counts, name="random")


def texts_for(stats, seed=0):
    """One text a row, some in Chinese: zlib counts bytes, not characters."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(SENTENCES, 1 + len(row.log_prob) // 20)) for row in stats]


def random_neighbors(n_texts, seed=0, m=5):
    """Mean log p of m neighbors a text, whatever the text."""
    return np.random.default_rng(seed).normal(-3, 0.1, (n_texts, m))


def inputs_for(name, stats):
    """All that a detector needs besides the statistics, whatever they are."""
    makers = {
        "texts": lambda: texts_for(stats),
        **dict.fromkeys(("lowercase", "reference"), lambda: stats),
        "frequency": lambda: random_frequency(0),
        "neighbors": lambda: random_neighbors(len(stats)),
        **dict.fromkeys(
            ("tempered", "after_non_members", "after_members", "after_others"), lambda: reference_for(stats, 3)
        ),
    }
    return {need: makers[need]() for need in DETECTORS[name].needs}


def columns(row):
    return [column.astype(float).tolist() for column in row[1:]]


def reference_for(stats, seed):
    """Another model's pass over the same tokens, some of them as probable as under the first."""
    rng = np.random.default_rng(seed)
    of_rows = [row.log_prob * rng.choice([1, 0.5, 0.8, 1.3, 2], len(row.log_prob)) for row in stats]
    rows = [row._replace(log_prob=of) for row, of in zip(stats, of_rows, strict=True)]
    return TokenStats.from_rows(rows, provenance={})


SEEDS = [0, 1]
CLOSE = {"rtol": 1e-6, "atol": 1e-9}  # the statistics are float32; their sums are not


KS = [1, 10, 20, 33, 50, 99, 100]
# A detector, the values of its options, and the oracle's score of a text's four columns. SURP's paper leaves open what
# a text without a surprising token scores: it is the least surprising a text can be, which is 0 nats.
ORACLES = [
    ("ppl", {}, lambda lp, h, v, m: oracles.ppl(lp)),
    ("min_k", {"k": KS}, lambda lp, h, v, m, k: oracles.min_k(lp, k)),
    ("min_k++", {"k": KS}, lambda lp, h, v, m, k: oracles.min_k_plus_plus(lp, h, v, k)),
    (
        "surp",
        {"entropy_threshold": [0.1, 1.5, 2.5, 100], "k": [5, 10, 20, 40, 55, 90, 100]},
        lambda lp, h, v, m, entropy_threshold, k: oracles.surp(lp, h, entropy_threshold, k) or 0.0,
    ),
    ("gap_k", {"k": [1, 20, 100]}, lambda lp, h, v, m, k: oracles.gap_k(lp, v, m, k)),
    (
        "max_renyi",
        {"order": [1, np.inf], "k": [1, 10, 100]},
        lambda lp, h, v, m, order, k: oracles.max_renyi(h, m, order, k),
    ),
    ("polarized", {}, lambda lp, h, v, m: oracles.polarized(lp)),
]


def points(grid):
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "grid", "oracle"), ORACLES, ids=[name for name, *_ in ORACLES])
def test_a_detector_of_one_pass_agrees_with_its_oracle(name, grid, oracle, seed):
    stats = random_table(seed)
    for options in points(grid):
        expected = [oracle(*columns(row), **options) for row in stats]
        np.testing.assert_allclose(detect(name, stats, **options), expected, **CLOSE, err_msg=str(options))


@pytest.mark.parametrize("seed", SEEDS)
def test_detectors_that_read_more_than_one_pass_agree_with_their_oracles(seed):
    stats, log_probs = random_table(seed), [columns(row)[0] for row in random_table(seed)]
    lowered = random_table(seed + 100, lengths=range(3, 3 + len(stats)))  # lowercase text has other tokens
    texts, neighbors, reference = texts_for(stats, seed), random_neighbors(len(stats), seed), reference_for(stats, seed)
    assert any(not text.isascii() for text in texts)
    of_others = {need: [columns(row)[0] for row in of] for need, of in {"low": lowered, "ref": reference}.items()}
    tops = [columns(row)[3] for row in stats]
    ez_mia = list(map(oracles.ez_mia, log_probs, tops, of_others["ref"]))
    assert 0 < ez_mia.count(0) < len(ez_mia), "texts with and without two errors"
    for name, given, expected in (
        ("lowercase", {"lowercase": lowered}, map(oracles.ratio, log_probs, of_others["low"])),
        ("ref", {"reference": lowered}, map(oracles.ratio, log_probs, of_others["low"])),
        ("zlib", {"texts": texts}, map(oracles.zlib_score, log_probs, texts)),
        ("neighbor", {"neighbors": neighbors}, map(oracles.neighbor, log_probs, neighbors.tolist())),
        ("wbc", {"reference": reference}, map(oracles.wbc, log_probs, of_others["ref"])),
        ("ez_mia", {"reference": reference}, ez_mia),
        ("codec", {"after_others": reference}, map(oracles.codec, log_probs, of_others["ref"])),
    ):
        np.testing.assert_allclose(detect(name, stats, **given), [*expected], **CLOSE, err_msg=name)


def test_a_reference_of_another_context_is_compared_on_the_tokens_that_both_read():
    stats = random_table(0)
    reference, n = reference_for(stats, 1), np.maximum(stats.n_tokens // 2, 1)
    both = detect("ref", stats.prefix(n), reference=reference.prefix(n))
    np.testing.assert_array_equal(detect("ref", stats, reference=reference.prefix(n)), both)
    np.testing.assert_array_equal(detect("ref", stats.prefix(n), reference=reference), both)
    assert (both != detect("ref", stats, reference=reference)).any()
    assert detect("ref", table([-1.0]), reference=table([-2.0])) == [-0.5], "one token is enough"


# The paper's ablation: CLD, +LUP, +SFO; and SFO alone, which it does not show.
@pytest.mark.parametrize(("lup", "sfo"), [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize("seed", SEEDS)
def test_dc_pdd_agrees_with_its_oracle(lup, sfo, seed):
    stats, frequency = random_table(seed), random_frequency(seed)
    counts = frequency.counts.tolist()
    for a in (0.001, 0.01, 0.1, 10):
        given = {"a": a, "lup": lup, "sfo": sfo}
        expected = [oracles.dc_pdd(row.token_ids.tolist(), columns(row)[0], counts, **given) for row in stats]
        np.testing.assert_allclose(detect("dc_pdd", stats, frequency=frequency, **given), expected, **CLOSE)


def test_aeca_agrees_with_its_oracle():
    stats, frequency = random_table(3), random_frequency(3)
    for weight in (1, 10):
        given = {"counts": frequency.counts.tolist(), "weight": weight}
        expected = [oracles.aeca(row.token_ids.tolist(), columns(row)[0], **given) for row in stats]
        np.testing.assert_allclose(detect("aeca", stats, frequency=frequency, weight=weight), expected, **CLOSE)


@pytest.mark.parametrize("seed", SEEDS)
def test_camias_signals_agree_with_their_oracles(seed):
    stats = random_table(seed, lengths=(1, 2, 3, 17, 60, 199, 200, 201, 300))
    first = [columns(row)[0][:200] for row in stats]
    for cutoff in (-1, -2.5):
        expected = [oracles.mean(lp >= cutoff for lp in of) for of in first]
        np.testing.assert_allclose(detect("camia_above", stats, cutoff=cutoff), expected)
    np.testing.assert_allclose(detect("camia_rising", stats), [oracles.camia_rising(of) for of in first])
    slopes = [0.0] + [np.polyfit(range(len(of)), of, 1)[0] for of in first[1:]]
    np.testing.assert_allclose(detect("camia_slope", stats), slopes, rtol=1e-6, atol=1e-9)
    for of, score in zip(first, detect("camia_lz", stats), strict=True):
        edges = np.linspace(min(of), 0, 100)
        hundredths = [sum(edge < lp for edge in edges.tolist()) for lp in of]
        ends = np.linspace(min(hundredths), max(hundredths), 4)[1:].tolist()
        symbols = [sum(end < h for end in ends) for h in hundredths]
        assert score == pytest.approx(-oracles.lempel_ziv(symbols) / len(of))


def test_gap_k_and_max_renyi_by_hand():
    # lp - m = -1, 0, -3, -2 and sigma = 1, 1, 2, 2: z = -1, 0, -1.5, -1; windows of three: -2.5/3 and -2.5/3.
    given = {"variance": [1, 1, 4, 4], "top": [-1, -1, -1, -1]}
    assert detect("gap_k", table([-2, -1, -4, -3], **given))[0] == pytest.approx(-2.5 / 3)
    given = {"variance": [1, 1, 4, 4, 1], "top": [-1] * 5}  # z = -1, 0, -1.5, -1, 0: the lowest of three is -2.5/3
    assert detect("gap_k", table([-2, -1, -4, -3, -1], **given), k=34)[0] == pytest.approx(-2.5 / 3)
    assert detect("gap_k", table([-2, -4], variance=[1, 4], top=[-1, -1]), k=50)[0] == -1.5, "two are not smoothed"
    assert detect("gap_k", table([-2], variance=[0], top=[-1]))[0] == pytest.approx(-1e4), "a variance of 0 is 1e-8"
    given = {"entropy": [1, 4, 2, 3], "top": [-0.2, -0.5, -0.1, -0.4]}
    assert detect("max_renyi", table([-1] * 4, **given), k=50)[0] == pytest.approx(-(0.5 + 0.4) / 2)
    assert detect("max_renyi", table([-1] * 4, **given), order=1, k=50)[0] == -(4 + 3) / 2


def test_acmia_and_renyi_of_order_one_half_by_hand():
    # p(x) = 1/2 and 1/4 of two tokens that have a half each, and of four that have a quarter each. At temperature 2 a
    # flat distribution is as it was: H_1/2 = log 2 and log 4, and nothing is above p_2.
    flat = table(np.log([0.5, 0.25]), entropy=np.log([2, 4]), variance=[0, 0])
    assert detect("max_renyi_half", flat, tempered=flat, k=50)[0] == pytest.approx(-math.log(4))
    assert detect("acmia_ac", flat, tempered=flat)[0] == 0
    assert detect("acmia_deriv", flat)[0] == pytest.approx(0, abs=1e-7)
    # p = 0.9 of two: sqrt(0.9) + sqrt(0.1) = 1.2649, p_2 = 0.75. The second occurrence of token 1 does not count.
    stats = table(np.log([0.9, 0.1]), token_ids=[1, 1], entropy=[0.3251, 0.3251], variance=[0.4345, 0.4345])
    tempered = table(np.log([0.75, 0.25]), token_ids=[1, 1])
    assert detect("max_renyi_half", stats, tempered=tempered)[0] == pytest.approx(-2 * math.log(1.2649), abs=1e-4)
    assert detect("acmia_ac", stats, tempered=tempered)[0] == pytest.approx(math.log(0.9 / 0.75))
    assert detect("acmia_deriv", stats)[0] == pytest.approx(math.log(0.9) + 0.3251)
    assert detect("acmia_norm", stats)[0] == pytest.approx((math.log(0.9) + 0.3251) / math.sqrt(0.4345))


def test_wbc_and_ez_mia_by_hand():
    # lp - lp_ref = 1, -2, 3: windows of two -1, 1; of three and more, which are the text, 2. (1/2 + 9) / 10.
    stats, other = table([-1, -4, -1]), table([-2, -2, -4])
    assert detect("wbc", stats, reference=other)[0] == pytest.approx((0.5 + 9) / 10)
    with pytest.raises(ValueError, match="other tokens"):
        detect("wbc", stats, reference=table([-2, -2, -4], token_ids=[0, 1, 3]))
    # The first token does not count, and the third is the likeliest. The others' differences are 1, -2 and 3.
    stats, other = table([-9, -1, -0.5, -4, -1], top=[-0.5] * 5), table([-2, -2, -9, -2, -4])
    assert detect("ez_mia", stats, reference=other)[0] == 2
    assert detect("ez_mia", table([-9, -1, -1], top=[-0.5] * 3), reference=table([-1, -2, -2]))[0] == 0, "none negative"
    assert detect("ez_mia", table([-1, -3, -2], top=[-0.5, -3, -0.5]), reference=table([-2, -1, -1]))[0] == 0, "one"


def test_recall_and_camias_signals_by_hand():
    # Mean log p -2 alone, -3 after non-members and -1.5 after members, of the first two tokens.
    stats, known = table([-1, -3, -9]), {"after_non_members": table([-2, -4])}
    assert detect("recall", stats, **known)[0] == 1.5
    known["after_members"] = table([-1, -2, -5])
    assert detect("con_recall", stats, **known)[0] == (-3 + 1.5) / -2
    assert detect("con_recall", stats, **known, gamma=0.5)[0] == (-3 + 0.75) / -2
    stats = table([-3, -1, -2, -0.5])
    assert detect("camia_above", stats)[0] == 0.5 and detect("camia_above", stats, cutoff=-2)[0] == 0.75
    assert detect("camia_rising", stats)[0] == 2 / 3  # -1 > -3, -2 = -2, -0.5 > -2
    assert detect("camia_slope", stats)[0] == pytest.approx((1.5 * 3 + 0.5 * 1 - 0.5 * 2 - 1.5 * 0.5) / 5)
    # Three bins: low, high, high, high -> the phrases low, high, high high.
    assert detect("camia_lz", table([-3, -0.5, -0.2, -0.1]))[0] == -3 / 4
    assert detect("camia_lz", table([-99, -65.5, 0]))[0] == -1, "hundredths 0, 34 and 99: one in each bin"
    # Its tokens 10 and 11: -2 alone, -3 after another text; of a pass that is cut token 10 alone.
    alone, after = table([-9] * 10 + [-1, -3, -9]), [-5] * 10 + [-2, -4, -1]
    assert (
        detect("codec", alone, after_others=table(after))[0]
        == detect("codec", alone, after_others=table(after[:-1]))[0]
        == 1
    )
    assert detect("codec", alone, after_others=table(after[:-2]))[0] == 0
    of_one_token = {"camia_above": 0, "camia_rising": 0, "camia_slope": 0, "camia_lz": -1}
    assert {name: detect(name, table([-2]))[0] for name in of_one_token} == of_one_token


def test_another_pass_that_does_not_fit_is_an_error(model_folder):
    stats = table([-1, -3], token_ids=[1, 2])
    other = table([-1, -3], token_ids=[1, 3])
    for name, needs in (("recall", ["after_non_members"]), ("con_recall", ["after_non_members", "after_members"])):
        with pytest.raises(ValueError, match="other texts"):
            detect(name, stats, **dict.fromkeys(needs, other))
    for name in ("acmia_ac", "max_renyi_half"):
        with pytest.raises(ValueError, match="other tokens"):
            detect(name, stats, tempered=other)
        for temperature in (1, 3):
            scored = mialib.Scorer(model_folder).score(TEXTS[:2], temperature=temperature, progress=False)
            with pytest.raises(ValueError, match=f"temperature 2.*{temperature}"):
                detect(name, mialib.Scorer(model_folder).score(TEXTS[:2], progress=False), tempered=scored)


# p = 1/2, 1/4, 4/5, 1/10 of the tokens 5, 7, 5, 9
LOG_P = np.log([0.5, 0.25, 0.8, 0.1])
TOKENS = [5, 7, 5, 9]


@pytest.mark.parametrize(
    ("name", "log_prob", "given", "expected"),
    [
        # ln(1/2 * 1/4 * 4/5 * 1/10) / 4 = ln(0.01) / 4 = -4.605170 / 4
        ("ppl", LOG_P, {}, -1.151293),
        # 50% of 4 tokens are two: ln(1/10) = -2.302585 and ln(1/4) = -1.386294; half their sum
        ("min_k", LOG_P, {"k": 50}, -1.844440),
        # 29% of 100 tokens are 29, though 100 * 0.29 is 28.999999999999996.
        ("min_k", -np.arange(1.0, 101), {"k": 29}, -np.arange(72, 101).mean()),
        # The lowest 3 of 10 are -9, -8, -7, and the highest, at least one, is 0: -(0 + 8).
        ("polarized", -np.arange(10.0), {}, -8),
        # log-perplexities 2 and 4 nats: -(2 / 4); 2 and 1.6: -(2 / 1.6)
        ("lowercase", [-1, -3], {"lowercase": table([-3, -4, -5])}, -0.5),
        ("ref", [-1, -3], {"reference": table([-1.6, -1.6])}, -1.25),
        # "a" compresses to 9 bytes: a header of 2, three of data (4b 04 00), a checksum of 4. -1.8 nats / 9 bytes
        ("zlib", [-1.8], {"texts": ["a"]}, -0.2),
        # loss 2 nats, the neighbors' 3 and 2.6: (3 + 2.6) / 2 - 2
        ("neighbor", [-1, -3], {"neighbors": np.array([[-3, -2.6]])}, 0.8),
        # Frequencies 1/2 and 1/8, so alpha is ln 2 times 1/2 and 3/8; less the next one 1/8 and 3/8, deviation 1/8.
        # That of log p, ln 2 times 1 and 3, is 1.
        (
            "aeca",
            np.log([1 / 2, 1 / 8]),
            {"frequency": TokenFrequency(np.array([7, 1, *[0] * 6]), "")},
            -7 / 8 * np.log(2),
        ),
    ],
)
def test_scores_by_hand(name, log_prob, given, expected):
    assert detect(name, table(log_prob), **given)[0] == pytest.approx(expected, abs=1e-6)


def test_min_k_plus_plus_by_hand_and_without_doubt():
    # z = (log p + H) / sqrt(Var) = (-1+1)/1, (-2+1)/2, (-3+2)/1, (-4+1)/2 = 0, -0.5, -1, -1.5
    stats = table([-1, -2, -3, -4], entropy=[1, 1, 2, 1], variance=[1, 4, 1, 4])
    assert detect("min_k++", stats, k=50)[0] == pytest.approx((-1.5 - 1) / 2)
    assert detect("min_k++", stats, k=75)[0] == pytest.approx((-1.5 - 1 - 0.5) / 3)
    # Min-K% takes the tokens of the lowest log p instead, here -4 and -3.
    assert detect("min_k", stats, k=50)[0] == pytest.approx(-3.5)
    # All mass on one token: no variance, and the rounding of log p must not blow up.
    stats = table([0.0, -1.2e-7, -30.0], entropy=[0, 1.2e-7, 1e-11], variance=[0, 0, 0])
    assert np.isfinite(detect("min_k++", stats, k=100)).all()
    sure, surprised = table([0.0], entropy=[0], variance=[0]), table([-30.0], entropy=[0], variance=[0])
    assert detect("min_k++", sure)[0] == 0 > detect("min_k++", surprised)[0]
    assert detect("min_k++", table([-1], entropy=[2], variance=[1e-10]))[0] == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("lup", "sfo", "expected"),
    [
        # A corpus of 10 tokens over a vocabulary of 10: token 5 three times, 7 once, 9 never, 0 six times. By Eq. 5
        # p(5) = 4/20, p(7) = 2/20, p(9) = 1/20, so -log p(v; D') = ln 5, ln 10, ln 20 and by Eq. 6
        # alpha = 0.5 ln 5, 0.25 ln 10, 0.8 ln 5, 0.1 ln 20 = 0.804719, 0.575646, 1.287550, 0.299573
        (False, False, (0.804719 + 0.575646 + 1.287550 + 0.299573) / 4),  # CLD
        (True, False, (0.6 + 0.575646 + 0.6 + 0.299573) / 4),  # +LUP with a = 0.6
        (True, True, (0.6 + 0.575646 + 0.299573) / 3),  # +SFO: the second 5 is left out
        (False, True, (0.804719 + 0.575646 + 0.299573) / 3),
    ],
)
def test_dc_pdd_by_hand(lup, sfo, expected):
    counts = np.zeros(10, int)
    counts[[0, 5, 7]] = 6, 3, 1
    frequency = TokenFrequency(counts=counts, name="ten tokens")
    scores = detect("dc_pdd", table(LOG_P, token_ids=TOKENS), frequency=frequency, a=0.6, lup=lup, sfo=sfo)
    assert scores[0] == pytest.approx(expected, abs=1e-6)


def test_texts_whose_every_token_reaches_dc_pdds_bound_tie_exactly():
    stats = TokenStats.from_rows([table([-1] * n)[0] for n in range(1, 50)], provenance={})
    assert set(detect("dc_pdd", stats, frequency=random_frequency(0))) == {0.01}


# Five tokens; the 40th percentile lies at position 0.4 * 4 = 1.6 of -5, -4, -3, -2, -1: -4 + 0.6 * 1 = -3.4.
FIVE = {"log_prob": [-1, -2, -3, -4, -5], "entropy": [0.5, 0.5, 0.5, 3.0, 1.0]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Below -3.4 are -4 and -5; only the last has an entropy under 2.5.
        ({}, -5),
        ({"entropy_threshold": 3.5}, -4.5),
        ({"entropy_threshold": 9, "k": 100}, (-2 - 3 - 4 - 5) / 4),  # all but the largest
        # Both limits are strict. An entropy equal to the threshold is not low: 3.0 is out at 3.0 and in just above.
        ({"entropy_threshold": 3.0}, -5),
        ({"entropy_threshold": 3.01}, -4.5),
        # A log-prob equal to the percentile is not low: at k = 50 the limit is the -3 itself, and at 0 the lowest.
        ({"entropy_threshold": 9, "k": 50}, (-4 - 5) / 2),
        ({"entropy_threshold": 9, "k": 0}, 0),
    ],
)
def test_surp_by_hand(options, expected):
    assert detect("surp", table(**FIVE), **options)[0] == expected


def test_surp_of_a_text_whose_lowest_log_probs_tie_has_no_surprising_token():
    # Sorted -3, -3, -3, -1: the 50th percentile, at position 1.5, is -3 and nothing lies strictly below it. Taking the
    # bottom half by rank would give -3.
    stats = table([-3, -1, -3, -3])
    assert detect("surp", stats, k=50)[0] == 0.0
    # The 75th percentile, at position 2.25, is -3 + 0.25 * 2 = -2.5.
    assert detect("surp", stats, k=75)[0] == -3


def test_surp_grid_equals_surp_cell_by_cell():
    stats = random_table(4)
    # Entropies and thresholds that float32 cannot hold: both forms must compare them in the same precision.
    stats.entropy[::3] = np.float32(2.3)
    stats.entropy[1::3] = np.float32(1.7)
    stats.entropy[2::3] = 2.5  # and one that it can: equal is not below
    thresholds, ks = [0.5, 1.7, 2.3, 2.5, 10.0], [1, 10, 40, 75, 100]
    scores, counts = surp_grid(stats, thresholds, ks)
    assert scores.shape == counts.shape == (5, 5, len(stats))
    for e, threshold in enumerate(thresholds):
        for j, k in enumerate(ks):
            one = detect("surp", stats, entropy_threshold=threshold, k=k)
            np.testing.assert_allclose(scores[e, j], one, rtol=1e-12, atol=1e-12)
            for i, row in enumerate(stats):
                log_prob, entropy, *_ = columns(row)
                limit = oracles.percentile(log_prob, k)
                n = sum(h < threshold and lp < limit for lp, h in zip(log_prob, entropy, strict=True))
                assert counts[e, j, i] == n
    assert (counts == 0).any()
    assert (scores[counts == 0] == 0).all()


# Those that do not see how high all log-probs of a text are, or that read two passes of the same model.
SHAPES = {"camia_rising", "camia_slope", "camia_lz", "max_renyi_half"}


@pytest.mark.parametrize("name", sorted(DETECTORS.keys() - SHAPES))
def test_a_member_like_text_scores_higher(name):
    # The same tokens, predicted with the same spread; the member's log-probs are half as low.
    rng = np.random.default_rng(5)
    n = 64
    token_ids, entropy, variance = rng.integers(0, VOCABULARY, n), rng.uniform(0.5, 2, n), rng.uniform(1, 4, n)
    log_prob = -rng.exponential(3, n) - 0.1
    of_member = log_prob / 2
    rows = [TokenRow(token_ids, of, entropy, variance, of / 4) for of in (of_member, log_prob)]
    member_and_not = TokenStats.from_rows(rows, provenance={})
    # What another pass says does not depend on membership in the target's training data.
    other = rows[1]._replace(log_prob=log_prob * rng.uniform(0.2, 1.5, n))
    other = TokenStats.from_rows([other, other], provenance={})
    inputs = inputs_for(name, member_and_not)
    lower = other.log_prob * 1.5  # after other members a text is likelier than after non-members
    inputs |= {
        need: other
        for need in ("lowercase", "reference", "tempered", "after_members", "after_others")
        if need in inputs
    }
    inputs |= {need: replace(other, log_prob=lower) for need in ("after_non_members",) if need in inputs}
    member, non_member = detect(name, member_and_not, **inputs)
    assert member > non_member


def test_the_lowest_of_many_values_are_the_lowest_and_of_equal_ones_the_first():
    values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    for k in (0.01, 1, 20, 63.7, 100):
        m = max(1, int(5000 * k / 100))
        expected = np.sort(values)[:m].mean(dtype=np.float64)
        assert lowest_mean(values, k) == pytest.approx(expected, rel=1e-12)
    rounded = values.round(1)
    assert lowest_indices(rounded, 20).tolist() == sorted(range(5000), key=lambda i: (rounded[i], i))[:1000]


@pytest.mark.parametrize("name", ["zlib", "lowercase", "ref", "neighbor"])
def test_inputs_of_another_number_of_texts_are_an_error_with_both_numbers(name):
    (need,) = DETECTORS[name].needs
    other = inputs_for(name, random_table(0, lengths=[3, 4]))[need]
    with pytest.raises(ValueError, match=f"{need} .*2 .*9"):
        detect(name, random_table(0), **{need: other})


def test_frequencies_of_another_tokenizer_or_a_smaller_vocabulary_are_errors():
    frequency = TokenFrequency(counts=np.ones(10, int), name="C4", tokenizer="pythia's")
    with pytest.raises(ValueError, match=r"pythia's.*llama's"):
        detect("dc_pdd", table([-1], tokenizer="llama's", model="a model"), frequency=frequency)
    same = table([-1], tokenizer="pythia's", model="a model")
    assert np.isfinite(detect("dc_pdd", same, frequency=frequency)).all()
    frequency = TokenFrequency(counts=np.ones(10, int), name="C4")
    with pytest.raises(ValueError, match="10"):
        detect("dc_pdd", table([-1, -2], token_ids=[3, 10]), frequency=frequency)


@pytest.mark.parametrize("column", NUMBERS)
@pytest.mark.parametrize("name", [*DETECTORS, "surp_grid"])
def test_a_statistic_that_is_not_finite_names_its_text(name, column):
    inputs = {} if name == "surp_grid" else inputs_for(name, random_table(6))
    for value in (np.nan, -np.inf):
        stats = random_table(6)
        # In the longest text, not in its first token: a sort that puts NaN last would drop it.
        getattr(stats, column)[stats.offsets[7] + 50] = value
        with pytest.raises(ValueError, match="text 7"):
            surp_grid(stats, [2.5], [40]) if name == "surp_grid" else detect(name, stats, **inputs)


def test_another_input_that_is_not_finite_names_its_text_and_of_another_shape_its_shape():
    stats, other, neighbors = random_table(6), random_table(6), random_neighbors(9)
    other.log_prob[other.offsets[7] + 50] = -np.inf  # the ratio would be 0
    neighbors[7, 3] = np.nan
    for name, given in (("lowercase", "lowercase"), ("ref", "reference")):
        with pytest.raises(ValueError, match="text 7"):
            detect(name, stats, **{given: other})
    with pytest.raises(ValueError, match=r"neighbors.* 7, 3 is nan"):
        detect("neighbor", stats, neighbors=neighbors)
    for shape in ((9,), (9, 0), (9, 2, 2)):
        with pytest.raises(ValueError, match=r"neighbor"):
            detect("neighbor", stats, neighbors=np.zeros(shape))


@pytest.mark.parametrize("name", DETECTORS)
def test_a_text_without_tokens_names_itself(name):
    stats = random_table(6, lengths=[3, 0, 2])
    with pytest.raises(ValueError, match="text 1"):
        detect(name, stats, **inputs_for(name, stats))


def test_defaults_and_grids_are_the_papers():
    defaults = {name: known.hyperparameters for name, known in DETECTORS.items()}
    assert defaults["min_k"] == defaults["min_k++"] == {"k": 20}
    assert defaults["dc_pdd"] == {"a": 0.01, "lup": True, "sfo": True}
    assert defaults["surp"] == {"entropy_threshold": 2.5, "k": 40}
    assert defaults["max_renyi"]["k"] == defaults["max_renyi_half"]["k"] == 10
    later = {"gap_k", "max_renyi", "max_renyi_half", "aeca", "con_recall"}
    assert {name for name, known in DETECTORS.items() if known.grid} - later == {"surp", "min_k", "min_k++"}
    assert DETECTORS["surp"].grid["entropy_threshold"] == [i / 2 for i in range(1, 21)]
    assert DETECTORS["surp"].grid["k"] == DETECTORS["min_k"].grid["k"] == [10 * i for i in range(1, 11)]


@pytest.mark.parametrize(
    ("detector", "grid"),
    [
        ("surp", DETECTORS["surp"].grid),
        ("min_k", DETECTORS["min_k"].grid),
        ("min_k++", {"k": [20, 5]}),
        ("surp", {"k": [40, 100], "entropy_threshold": [2.5, np.inf]}),  # the other way round
        ("surp", {"entropy_threshold": [2.5, np.inf], "k": [100.0]}),
        ("surp", {"entropy_threshold": [1.0, 3.0]}),
        ("ppl", {}),
    ],
)
def test_any_grid_is_the_detector_point_by_point_in_the_order_of_its_options(detector, grid):
    stats = random_table(0, [1, 2, 3, 5, 8, 17, 60, 33, 20, 21, 22, 23])
    found = grid_candidates(detector, stats, grid)
    assert found.options == tuple(points(grid)) and all(list(options) == list(grid) for options in found.options)
    assert found.scores.shape == (len(found.options), 12)
    for options, scores in zip(found.options, found.scores, strict=True):
        np.testing.assert_allclose(scores, detect(detector, stats, **options), atol=1e-12)


@pytest.fixture(scope="module")
def passes(tiny_model):
    """The passes of two models over texts and over the same texts lowercased."""
    own, other = (mialib.Scorer(tiny_model("gpt_neox", seed=seed)) for seed in (0, 1))
    lowered = [text.lower() for text in TEXTS]
    return {
        "stats": own.score(TEXTS, progress=False),
        "texts": TEXTS,
        "lowercase": own.score(lowered, progress=False),
        "reference": other.score(TEXTS, progress=False),
        "after_non_members": own.score(TEXTS, after=SENTENCES[0], progress=False),
        "tempered": own.score(TEXTS, temperature=2, progress=False),
        "other order": own.score(TEXTS[::-1], progress=False),
    }


@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("zlib", "texts"),
        ("lowercase", "lowercase"),
        ("ref", "reference"),
        ("acmia_ac", "tempered"),
        ("recall", "after_non_members"),
    ],
)
def test_what_is_given_is_of_the_texts_that_the_statistics_are_of(name, need, passes):
    scores = detect(name, passes["stats"], **{need: passes[need]})
    with pytest.raises(ValueError, match=f"{need} .*other texts"):
        detect(name, passes["other order"], **{need: passes[need]})
    taken = passes["other order"].take(np.arange(len(TEXTS))[::-1])  # after which it no longer names its texts
    np.testing.assert_allclose(detect(name, taken, **{need: passes[need]}), scores, atol=1e-5)


def test_a_pass_of_the_same_texts_or_model_is_none_of_another(passes, model_folder, tmp_path):
    with pytest.raises(ValueError, match=r"lowercase .*other texts"):
        detect("lowercase", passes["stats"], lowercase=passes["stats"])
    beginnings = passes["stats"].prefix(np.ones(len(TEXTS), int))
    assert np.isfinite(detect("zlib", beginnings, texts=[text[0] for text in TEXTS])).all()
    shutil.copytree(model_folder, tmp_path / "by another path")
    copy = mialib.Scorer(tmp_path / "by another path")
    loaded = mialib.Scorer(copy.loaded.model, copy.loaded.tokenizer)
    for name in ("ref", "wbc", "ez_mia"):
        for reference in (copy, loaded):
            with pytest.raises(ValueError, match="reference"):
                detect(name, passes["stats"], reference=reference.score(TEXTS, progress=False))
