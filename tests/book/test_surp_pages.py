"""SURP's pages: what their own functions compute, by hand."""

import matplotlib
import numpy as np
import oracles
import pytest
from conftest import made_inputs, made_row, random_rows
from page_code import functions_of, method_of

matplotlib.use("Agg")

from mialib.benchmarks import Benchmark
from mialib.detectors import detect, surp_grid
from mialib.metrics import tpr_at_fpr
from mialib.token_stats import TokenStats

pytestmark = pytest.mark.usefixtures("home_of_all_pages")
THRESHOLDS, KS = np.array([1.0, 2.5, 10.0]), np.array([10, 40, 100])
OURS, RANK, RANGE, EMPTY = "ours", "by rank", "by range", "empty scores −100"


def figure_4(thresholds=THRESHOLDS, ks=KS):
    """The functions of the page with this grid."""
    return functions_of("surp_figure_4", thresholds=np.asarray(thresholds), ks=np.asarray(ks))


PAGE = figure_4()
IS_LOW = {OURS: PAGE["below_percentile"], RANK: PAGE["lowest_by_rank"], RANGE: PAGE["below_share_of_range"]}


@pytest.fixture
def inputs():
    """Sixty made texts of 1 to 60 tokens, every third a member, with a lowercase pass and none of a reference."""
    lengths = np.random.default_rng(1).permutation(np.arange(1, 61))
    return made_inputs(random_rows(2, lengths), np.tile([1, 0, 0], 20), lowercase=random_rows(3, lengths))


def test_a_model_without_entropies_is_an_error(inputs):
    lacking = TokenStats.from_rows(list(inputs.stats), provenance={"lacks": {"entropy": "behind an API"}})
    for name, given in (("surp_figure_4", {}), ("surp_figure_2", {"entropy_threshold": 2.0, "k": 20.0})):
        page = figure_4() | functions_of(name) | given
        with pytest.raises(ValueError, match="behind an API"):
            method_of(name, **page, columns=[inputs.given(stats=lacking)])


@pytest.mark.parametrize(
    ("reading", "expected"),
    # The percentile of k = 50 is -3, the two lowest by rank are -4 and the first -3, half of the way is -2.5.
    [(OURS, [0, 1, 0, 0]), (RANK, [1, 1, 0, 0]), (RANGE, [1, 1, 1, 0])],
)
def test_what_is_low_by_hand(reading, expected):
    assert IS_LOW[reading](np.array([-3.0, -4, -3, -1]), 50).tolist() == [bool(x) for x in expected]


def readings_at(inputs, entropy_threshold, k):
    """Each reading's scores at one cell, and how many texts have no surprising token."""
    found = PAGE["readings"](inputs.stats, [entropy_threshold], [k])
    return {name: (score[0, 0], int((n[0, 0] == 0).sum())) for name, (score, n) in found.items()}


def test_the_readings_of_a_text_by_hand_and_at_a_rounded_entropy():
    inputs = made_inputs([([-5, -1], [0.7, 0.7]), ([-5, -1], [0.6, 0.7])], [1, 0])  # 0.7 is not a float32
    expected = detect("surp", inputs.stats, entropy_threshold=0.7, k=40)
    np.testing.assert_allclose(readings_at(inputs, 0.7, 40)[OURS][0], expected)
    np.testing.assert_allclose(surp_grid(inputs.stats, [0.7], [40])[0][0, 0], expected)
    inputs = made_inputs([([-3, -4, -3, -1], [1, 9, 1, 1]), ([-2, -2], [1, 1])], [1, 0])
    found = readings_at(inputs, 2.5, 50)
    # Of the low ones only those of little entropy: none, the first -3, both -3. By rank the first -2 is low too.
    expected = {OURS: ([0, 0], 2), RANK: ([-3, -2], 0), RANGE: ([-3, 0], 1), EMPTY: ([-100, -100], 2)}
    for name, (scores, n_without) in expected.items():
        assert found[name][0].tolist() == scores and found[name][1] == n_without, name


def test_each_reading_is_compared_at_its_own_cell_by_hand():
    # Ours and by rank take -8 and the second at k = 50 (members higher), three at k = 75 (members lower).
    # By range takes -8 alone at k = 50 (all alike), and what is below -2 at k = 75 (three of a member's, higher).
    rows = [([-8, -3, -2.5, 0], [1] * 4), ([-8, -3.5, -1, 0], [1] * 4)] * 10
    found = figure_4([2.5], [75, 50])["compare_readings"](made_inputs(rows, [1, 0] * 10))
    found = {tuple(name.rsplit(": ", 1)): row for name, row in found.items()}  # (cell, AUC, change, texts without)
    own, papers = dict.fromkeys(where for where, _ in found)
    names = [OURS, RANK, RANGE, EMPTY]
    assert {name: found[own, name][0]["k"] for name in names} == {OURS: 50, RANK: 50, RANGE: 75, EMPTY: 50}
    for name in names:
        _, interval, change, n_without = found[own, name]
        assert interval.estimate == 1 and n_without == 0
        assert change is None if name == OURS else change.difference.estimate == 0
    # At the paper's cell, k = 40, by range and by rank take -8 alone.
    for name, expected in {RANGE: -0.5, RANK: -0.5, EMPTY: 0}.items():
        cell, _, change, _ = found[papers, name]
        assert cell == {"entropy_threshold": 2.5, "k": 40} and change.difference.estimate == expected


CLOUD = [([-1, -5, -2, -9], [0.5, 1.0, 3.0, 3.5]), ([-3, -4], [0.1, 0.2]), ([-6, -7, -8], [5, 1.5, 1.25])]


def figure_2(entropy_threshold=2.5, k=60.0, n_tokens=None):
    """The functions of the page with these limits."""
    return functions_of("surp_figure_2", entropy_threshold=entropy_threshold, k=k, n_tokens=n_tokens)


def points(inputs, n_tokens=None, *, surprising=False, seed=0):
    """Entropy, log p and class of each token of the cloud, in its order."""
    page = figure_2(n_tokens=n_tokens)
    chosen = page["is_surprising"] if surprising else lambda row: np.full(len(row.log_prob), True)
    return list(zip(*(of.tolist() for of in page["token_cloud"](inputs, chosen, seed)), strict=True))


def test_the_cloud_holds_every_token_and_a_sample_keeps_each_whole(inputs):
    assert sorted(points(made_inputs(CLOUD, [1, 0, 0]))) == [
        (pytest.approx(entropy), log_prob, is_seen)
        for entropy, log_prob, is_seen in sorted(
            [
                *[(0.5, -1, True), (1, -5, True), (3, -2, True), (3.5, -9, True)],
                *[(0.1, -3, False), (0.2, -4, False), (5, -6, False), (1.5, -7, False), (1.25, -8, False)],
            ]
        )
    ]
    everything, sample = points(inputs), points(inputs, 50, seed=1)
    is_seen = np.array([seen for _, _, seen in sample])
    assert is_seen.sum() == (~is_seen).sum() == 50
    assert set(sample) <= set(everything), "entropy, log p and class of one token stay together"
    assert not (np.diff(is_seen.astype(int)) <= 0).all(), "classes are mixed, so that neither covers the other"
    assert sample == points(inputs, 50, seed=1)
    assert sorted(sample) != sorted(points(inputs, 50, seed=2))


def test_the_surprising_tokens_of_classes_by_hand():
    found = figure_2()["compare_classes"](made_inputs(CLOUD, [1, 0, 0]))
    assert found["seen"].estimate == -5
    assert found["unseen"].estimate == pytest.approx((-4 - 7 - 8) / 3), "of tokens, not of texts"
    assert found["seen − unseen"].estimate == pytest.approx(-5 + 19 / 3)
    assert (found["seen"].low, found["seen"].high) == (-5, -5), "one text, which is always drawn"
    assert (found["unseen"].low, found["unseen"].high) == (-7.5, -4), "both texts, or one of them twice"
    rows = [made_row([-5, -1], [1, 1]), made_row([-5, -1], [9, 9])]
    for labels in ([1, 0], [0, 1]):
        found = figure_2(2.5, 40.0)["compare_classes"](made_inputs(rows, labels))
        assert found == {"seen": None, "unseen": None, "seen − unseen": None}


@pytest.mark.parametrize("seed", range(2))
def test_the_roc_from_sorted_scores_has_the_largest_tpr_at_each_fpr_ties_included(seed):
    rng, page = np.random.default_rng(seed), functions_of("surp_figure_3")
    members, non_members = np.round(rng.normal(0.5, 1, 30), 1), np.round(rng.normal(0, 1, 40), 1)
    fpr, tpr = page["roc"](members, non_members)
    assert len(fpr) == 41 and (fpr[0], fpr[-1], tpr[-1]) == (0, 1, 1)
    for n_accepted, (x, y) in enumerate(zip(fpr, tpr, strict=True)):
        assert x == n_accepted / 40
        assert y == pytest.approx(oracles.tpr_at_fpr(members.tolist(), non_members.tolist(), n_accepted))
    labels, scores = np.repeat([1, 0], [30, 40]), np.append(members, non_members)
    low = [0.01, 0.05, 0.1, 0.5]
    assert page["tpr_at"](low, members, non_members) == [tpr_at_fpr(labels, scores, x) for x in low]


def test_tails_overlaps_and_domains_are_kept_as_they_should(inputs):
    texts = tuple(f"One  two three,\nfour five six seven eight nine ten eleven {i}" for i in range(4))
    benchmark = Benchmark("made", texts, [1, 0, 1, 0], "r")
    at = functions_of("surp_table_2")["segments_at"]
    assert at(benchmark, 3, "head").document is None and at(benchmark, 3, "middle").document is None
    assert at(benchmark, 3, "tail").document.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    overlap = np.linspace(0, 1, 60)
    kept = functions_of("surp_table_3", max_overlap=overlap[31])["is_kept"](inputs.labels, overlap)
    assert inputs.labels[kept].sum() == 20
    assert np.flatnonzero(kept).tolist() == [i for i in range(60) if inputs.labels[i] or i <= 31]
    assert 0 < kept.sum() < 60
    split = functions_of("surp_table_3")["split_domains"]
    domains = ["a"] * 10 + ["b"] * 8 + ["c"] * 4
    labels = np.array([1, 0] * 5 + [1] * 6 + [0, 0] + [1, 0, 1, 0])
    large, small = split(labels, domains, at_least=3)
    assert {domain: texts.tolist() for domain, texts in large.items()} == {"a": list(range(10))}
    assert small == {"b": (6, 2), "c": (2, 2)}
    assert set(split(labels, domains, at_least=2)[0]) == {"a", "b", "c"}
    assert split(labels, domains)[0] == {}
