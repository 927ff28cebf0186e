"""The Min-K% Prob case studies: each function against a definition written out, on numbers small enough to check."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from scipy.stats import norm, spearmanr

from mialib.book import profile as config, min_k
from mialib.passes import inputs as evaluate
from mialib.metrics import Interval, auc_interval, threshold_at_fpr, tpr_at_fpr
from mialib.book.results import ONE_SEED, one_seed_says

LABELS = np.repeat([1, 0], [6, 10])
RECIPE = {"corpus": "lab/tiny", "layers": 1, "hidden_size": 16, "heads": 2}


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=16) + LABELS


@pytest.fixture
def lab_profile(tmp_path, monkeypatch):
    """A profile of three models that nothing is trained for: equal counts, repeats, unlearned."""
    models = {
        "lab/equal": {"benchmarks": [], "train": RECIPE},
        "lab/repeats": {"benchmarks": [], "train": RECIPE | {"member_repeats": [1, 8]}},
        "lab/unlearned": {"benchmarks": [], "unlearn": {"base": "lab/equal", "texts": 7, "learning_rate": 0.1}},
    }
    corpus = {"source": "docstrings", "language": "en", "words": 40, "seed": 1, "vocab_size": 512}
    corpus |= dict.fromkeys(["members", "non_members", "background", "reference"], 20)
    profile = {"name": "t", "corpora": {"lab/tiny": corpus}, "models": models, "landing": {"page": "i"}, "book": []}
    path = tmp_path / "profile.yml"
    path.write_text(yaml.safe_dump(profile))
    monkeypatch.setenv("MIALIB_PROFILE", str(path))
    return config.load_profile(path)


# --- overview ---


def test_the_text_at_a_quantile_is_of_its_class_and_in_order(scores):
    for label in (1, 0):
        own = np.sort(scores[label == LABELS])
        found = [min_k.text_at_quantile(LABELS, scores, label, q) for q in (0, 0.5, 1)]
        assert (LABELS[found] == label).all()
        assert scores[found[0]] == own[0] and scores[found[2]] == own[-1]
        assert (own < scores[found[1]]).sum() == round(0.5 * (len(own) - 1))
    with pytest.raises(ValueError, match="a quantile lies in"):
        min_k.text_at_quantile(LABELS, scores, 1, 50)


@pytest.mark.parametrize("k", [1, 20, 50, 100])
def test_a_worked_text_shows_the_tokens_and_the_score_that_the_detector_gives(inputs, k):
    detected = evaluate.score_all(inputs, ["min_k"], min_k={"k": k})["min_k"]
    for i, text in enumerate(inputs.benchmark.texts):
        worked = min_k.work_text(inputs, i, k)
        assert worked.score == pytest.approx(detected[i])
        assert "".join(token.text for token in worked.tokens) == text
        selected = [token.log_prob for token in worked.tokens if token.is_selected]
        others = [token.log_prob for token in worked.tokens if not token.is_selected]
        assert len(selected) == max(1, len(worked.tokens) * k // 100)
        assert np.mean(selected) == pytest.approx(worked.score)
        assert max(selected) <= min(others, default=0)


@pytest.mark.parametrize(
    ("is_member", "threshold", "says"),
    [
        (True, -3.0, "above it: called a member. Right: the model has seen it."),
        (False, -3.0, "above it: called a member. Wrong: the model has never seen it."),
        (True, -2.5, "not above it: not called a member. Wrong"),
        (False, -2.0, "not above it: not called a member. Right"),
    ],
)
def test_the_conclusion_says_whether_the_decision_is_right(is_member, threshold, says):
    text = min_k.WorkedText((min_k.WorkedToken("a", -2.5, True), min_k.WorkedToken("b", -1.0, False)), -2.5)
    conclusion = min_k.conclude(text, is_member=is_member, threshold=threshold)
    assert says in conclusion and "of the 1 framed tokens = −2.50" in conclusion


def test_the_threshold_is_the_one_that_the_tpr_is_taken_at():
    rng = np.random.default_rng(0)
    labels, scores = np.repeat([1, 0], [40, 60]), np.round(rng.normal(size=100), 1)
    for fpr in (0, 0.05, 0.2, 1):
        threshold = threshold_at_fpr(scores[labels == 0], fpr)
        assert (scores[labels == 0] > threshold).mean() <= fpr
        assert (scores[labels == 1] > threshold).mean() == tpr_at_fpr(labels, scores, fpr)


# --- contamination ---


def test_some_members_are_held_against_all_non_members(scores):
    [found, absent] = min_k.measure_members(LABELS, {"min_k": scores, "lowercase": None}, [1, 4], "seen 2×")
    some = [1, 4, *range(6, 16)]
    assert found.interval == auc_interval(LABELS[some], scores[some])
    assert (found.row, found.column) == ("Min-K% Prob", "seen 2×")
    assert absent.ours is None
    with pytest.raises(ValueError, match="text 6 is not a member"):
        min_k.measure_members(LABELS, {"min_k": scores}, [1, 6], "x")


def test_members_seen_equally_often_make_a_column_by_any_name(scores):
    times = np.where(LABELS == 1, [1, 4] * 8, 0)
    found = min_k.measure_by_times(LABELS, {"min_k": scores, "mine": -scores}, times)
    assert [(r.row, r.column) for r in found] == [
        (row, column) for column in ("seen 1×", "seen 4×") for row in ("Min-K% Prob", "mine")
    ]
    some = [1, 3, 5, *range(6, 16)]
    assert found[2].interval == auc_interval(LABELS[some], scores[some]) and found[2].metric == "auc_by_times"


def test_how_often_members_were_seen_is_what_the_recipe_or_the_reader_says(lab_profile):
    assert min_k.times_seen("lab/repeats", 4).tolist() == [1, 1, 8, 8]
    assert min_k.times_seen("lab/repeats", 4, [1, 2, 4, 8]).tolist() == [1, 2, 4, 8]
    assert min_k.times_seen("any/model", 6, [1, 4, 16]).tolist() == [1, 1, 4, 4, 16, 16]
    for model in ("any/model", "lab/unlearned"):
        with pytest.raises(ValueError, match=f"{model}: it is not known how often"):
            min_k.times_seen(model, 6)
    with pytest.raises(ValueError, match="lab/equal: all members were seen 4 times"):
        min_k.times_seen("lab/equal", 6)


def test_rank_correlation_is_spearmans_with_ties_and_covers_the_truth():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, size=200)
    y = x + rng.normal(scale=2, size=200)
    found = min_k.rank_correlation(x, y)
    assert found.estimate == pytest.approx(spearmanr(x, y).statistic)
    assert found.low < found.estimate < found.high
    fisher = np.tanh(np.arctanh(found.estimate) + np.array([-1.96, 1.96]) / np.sqrt(197))
    np.testing.assert_allclose([found.low, found.high], fisher, atol=0.03)
    assert min_k.rank_correlation(x, -y).estimate == pytest.approx(-found.estimate)
    with pytest.raises(ValueError, match="both vary"):
        min_k.rank_correlation(np.ones(5), np.arange(5))


def test_first_above_wants_both_the_estimate_and_the_interval():
    curve = {1: Interval(0.8, 0.4, 1), 2: Interval(0.7, 0.6, 0.8), 4: Interval(0.9, 0.8, 1), 8: Interval(1, 0.9, 1)}
    assert min_k.first_above(curve, 0.75, low=0.5) == 4
    assert min_k.first_above(curve, 1.0, low=0.5) is None


# --- unlearning ---


def test_how_many_were_forgotten_is_what_the_recipe_says(lab_profile):
    assert min_k.count_forgotten("lab/unlearned") == 7
    for model in ("any/model", "lab/equal"):
        with pytest.raises(ValueError, match=f"{model}: it is not known which members"):
            min_k.count_forgotten(model)


def test_the_first_members_are_the_forgotten_ones():
    labels = [0, 1, 1, 0, 1]
    groups = {name: texts.tolist() for name, texts in min_k.forgotten_and_retained(labels, 2).items()}
    assert groups == {"forgotten": [1, 2], "retained": [4]}
    everything = min_k.forgotten_and_retained(labels, 3)
    assert list(everything) == ["forgotten"], "no empty group"
    for n in (0, -1, 4):
        with pytest.raises(ValueError, match=f"^{n} of 3 members forgotten"):
            min_k.forgotten_and_retained(labels, n)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.46, 0.54, "holds"),
        (0.51, 0.54, "holds"),  # told apart, but by less than matters
        (0.51, 0.60, "fails"),
        (0.40, 0.49, "fails"),  # found by scoring too low
        (0.46, 0.56, "open"),
    ],
)
def test_indistinguishable_asks_for_a_small_interval_around_chance(low, high, expected):
    assert min_k.indistinguishable(Interval((low + high) / 2, low, high), 0.05) == expected


def test_the_reach_at_chance_is_that_of_an_auc_of_random_scores():
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], [100, 500])
    widths = [auc_interval(labels, rng.normal(size=600)) for _ in range(50)]
    found = min_k.reach_at_chance(100, 500)
    assert found == pytest.approx(np.mean([w.high - w.low for w in widths]) / 2, rel=0.05)
    assert found / norm.ppf(0.975) == pytest.approx(np.std([w.estimate for w in widths]), rel=0.3)


# --- what the pages show of it ---


def test_tables_and_figures_draw_what_they_are_given(inputs):
    import matplotlib

    matplotlib.use("Agg")
    from mialib.book import figures, tables

    worked = {"A text": min_k.work_text(inputs, 0), "Another": min_k.work_text(inputs, 1)}
    conclusions = {t: min_k.conclude(w, is_member=True, threshold=-3) for t, w in worked.items()}
    drawn = figures.worked_texts(worked, conclusions=conclusions)
    shown = [text.get_text() for text in drawn.axes[0].texts]
    assert set(conclusions.values()) <= set(shown)
    bold = [t for t in drawn.axes[0].texts if t.get_weight() == "bold" and t.get_family() == ["monospace"]]
    assert len(bold) == sum(token.is_selected for w in worked.values() for token in w.tokens)

    interval = Interval(0.7, 0.6, 0.8)
    panels = {
        ("AUC", "Min-K% Prob"): {"a": {5: interval, 20: interval}},
        ("AUC", "Min-K%++ Prob"): {"a": {5: interval}},
    }
    assert len(figures.line_panels(panels, xlabel="k", chance={"AUC": 0.5}, mark=20).axes) == 2
    pairs = {"forgotten": {"PPL": (interval, interval)}, "retained": {"PPL": (interval, interval)}}
    assert len(figures.before_and_after(pairs, xlabel="AUC", margin=0.05).axes) == 2

    rates = {"members": np.array([0, 0.5, 1]), "non-members": np.array([0, 0, 0.5])}
    bars = figures.share_bars(rates, n_steps=2, xlabel="x", ylabel="y").axes[0].patches
    assert [round(bar.get_height(), 2) for bar in bars] == [0.33, 0.33, 0.33, 0.67, 0.33, 0]

    table = tables.interval_table({"PPL": replace(interval, low=-0.1)}, "AUC", one_seed_says)
    assert table.loc["PPL"].to_dict() == {"AUC": "0.700 [-0.100, 0.800]", ONE_SEED: "open"}
    changed = tables.change_table({"all (3)": [np.array([1.0, 2, 3]), np.array([2.0, 3, 4])]}, "loss")
    assert changed.loc["all (3)"].tolist() == ["2.000", "3.000", "1.000 [0.292, 1.000]"]
