"""SURP's pages: the grid, other readings of the equations, tokens, both ways of choosing, domains and shift."""

import time
from dataclasses import replace

import numpy as np
import oracles
import pytest
from conftest import made_inputs, made_row, random_rows

from mialib.book import surp
from mialib.book.published import load_published, published_along
from mialib.detectors import detect
from mialib.metrics import auc, auc_interval, compare_auc, document_auc_interval, tpr_at_fpr
from mialib.model_selection import GRIDS, HELD_OUT, describe_options, gap, score_grid, stratified_split
from mialib.passes import inputs as evaluate
from mialib.token_stats import TokenRow

THRESHOLDS, KS = [1.0, 2.5, 10.0], [10, 40, 100]
READINGS = {"ours": surp.below_percentile, "rank": surp.lowest_by_rank, "range": surp.below_share_of_range}
VARIANTS = dict(zip(["ours", "rank", "range", "-100"], surp.VARIANTS.values(), strict=True))


@pytest.fixture
def inputs():
    """Sixty made texts of 1 to 60 tokens, every third a member, with a lowercase pass and none of a reference."""
    lengths = np.random.default_rng(1).permutation(np.arange(1, 61))
    return made_inputs(random_rows(2, lengths), np.tile([1, 0, 0], 20), lowercase=random_rows(3, lengths))


# --- the grid ---


def test_the_grid_holds_auc_counts_and_its_best_cell(inputs):
    thresholds, ks = [0.01, *THRESHOLDS], [20, 100]
    grid = surp.auc_grid(inputs, thresholds, ks)
    results = surp.grid_results(inputs, grid, thresholds, ks)
    assert len(results) == 8
    for i, threshold in enumerate(thresholds):
        for j, k in enumerate(ks):
            scores = detect("surp", inputs.stats, entropy_threshold=threshold, k=k)
            assert grid.auc[i, j] == pytest.approx(auc(inputs.labels, scores))
            assert grid.texts_without[i, j] == (scores == 0).sum()
            [result] = [r for r in results if r.row == f"entropy < {threshold:g}" and r.column.endswith(f"k = {k}")]
            assert result.ours == pytest.approx(grid.auc[i, j])
    assert grid.texts_without[0, 0] > grid.texts_without[-1, -1] > 0
    assert grid.auc[grid.best] == grid.auc.max()


def chosen_by_hand(labels, of_cells):
    """The scores, on the other texts, of the cell that is best on a fifth of them."""
    val_idx, test_idx = stratified_split(labels, HELD_OUT)
    return max(of_cells, key=lambda scores: auc(labels[val_idx], scores[val_idx]))[test_idx]


def test_surp_and_each_condition_alone_are_chosen_on_a_fifth_and_judged_on_the_others(inputs):
    found = surp.compare_conditions(inputs, THRESHOLDS, KS)
    on_others = {
        name: chosen_by_hand(inputs.labels, [detect(detector, inputs.stats, **options) for options in grid])
        for name, detector, grid in [
            ("SURP", "surp", [{"entropy_threshold": x, "k": k} for x in THRESHOLDS for k in KS]),
            ("entropy threshold alone", "surp", [{"entropy_threshold": x, "k": 100} for x in THRESHOLDS]),
            ("percentile alone", "surp", [{"entropy_threshold": np.inf, "k": k} for k in KS]),
            ("Min-K% Prob", "min_k", [{"k": k} for k in KS]),
        ]
    }
    labels, whole = inputs.labels[stratified_split(inputs.labels, HELD_OUT)[1]], on_others.pop("SURP")
    assert len(found) == len(on_others) == 3
    for (name, comparison), (alone, scores) in zip(found.items(), on_others.items(), strict=True):
        assert name.startswith("SURP (ε = ") and f") − {alone} (" in name
        assert comparison.difference.estimate == pytest.approx(auc(labels, whole) - auc(labels, scores))


def on_noise(compare, n=40):
    """Differences of AUC by name where labels say nothing, (n,) of each."""
    rows, rng = random_rows(6, [12] * 60), np.random.default_rng(0)
    found = [compare(made_inputs(rows, rng.permutation(np.arange(60) % 2))) for _ in range(n)]
    return {name: np.array([differences[name] for differences in found]) for name in found[0]}


def test_on_noise_both_conditions_are_as_good_as_one():
    def compare(inputs):
        found = surp.compare_conditions(inputs, [1.0, 2.0, 3.0, 4.0, 6.0], [20, 40, 60, 80, 100])
        return {name.split(" − ")[1].split(" (")[0]: c.difference.estimate for name, c in found.items()}

    for name, differences in on_noise(compare).items():
        assert abs(differences.mean()) < 0.03, name
        assert differences.min() < 0, "the best of more cells is no better on other texts"


def test_the_papers_whole_grid_of_a_thousand_texts_takes_seconds():
    rng = np.random.default_rng(0)
    rows = [TokenRow(*(-rng.exponential(3, (4, 200)) * [[0], [1], [-1], [-1]])) for _ in range(1000)]
    inputs = made_inputs(rows, np.tile([1, 0], 500))
    start = time.perf_counter()
    grid = surp.auc_grid(inputs, *GRIDS["surp"].values())
    seconds = time.perf_counter() - start
    assert grid.auc.shape == (20, 10) and len(np.unique(grid.auc)) > 100
    assert seconds < 5, f"{seconds:.1f} s"


# --- other readings ---


def lowest_by_hand(reading, values, k):
    """Which values are low, one at a time."""
    if reading == "ours":
        return [value < oracles.percentile(values, k) for value in values]
    if reading == "range":
        return [value < min(values) + k / 100 * (max(values) - min(values)) for value in values]
    before = [sum((other, j) < (value, i) for j, other in enumerate(values)) for i, value in enumerate(values)]
    return [n < len(values) * k // 100 for n in before]


@pytest.mark.parametrize(
    ("reading", "expected"),
    # The percentile of k = 50 is -3, the two lowest by rank are -4 and the first -3, half of the way is -2.5.
    [("ours", [0, 1, 0, 0]), ("rank", [1, 1, 0, 0]), ("range", [1, 1, 1, 0])],
)
def test_what_is_low_by_hand(reading, expected):
    assert READINGS[reading](np.array([-3.0, -4, -3, -1]), 50).tolist() == [bool(x) for x in expected]


@pytest.mark.parametrize("k", [1, 10, 29, 40, 100])
@pytest.mark.parametrize("reading", READINGS)
def test_what_is_low_agrees_with_its_definition_ties_included(reading, k):
    ties = [np.round(row.log_prob * 2) / 2 for row in random_rows(4, [1, 2, 3, 10, 40, 100])]
    for values in ties:
        assert READINGS[reading](values, k).tolist() == lowest_by_hand(reading, values.tolist(), k)


@pytest.mark.parametrize(("entropy_threshold", "k"), [(2.5, 40), (0.5, 10), (np.inf, 100), (4, 1)])
def test_our_variant_is_the_detector(inputs, entropy_threshold, k):
    scores, n_without = surp.variant_scores(inputs, VARIANTS["ours"], entropy_threshold, k)
    np.testing.assert_allclose(scores, detect("surp", inputs.stats, entropy_threshold=entropy_threshold, k=k))
    assert n_without == (scores == 0).sum()


def test_our_variant_is_the_detector_at_an_entropy_that_the_threshold_rounds_to():
    inputs = made_inputs([([-5, -1], [0.7, 0.7]), ([-5, -1], [0.6, 0.7])], [1, 0])  # 0.7 is not a float32
    scores, _ = surp.variant_scores(inputs, VARIANTS["ours"], 0.7, 40)
    np.testing.assert_allclose(scores, detect("surp", inputs.stats, entropy_threshold=0.7, k=40))


def test_the_variants_of_one_text_by_hand():
    inputs = made_inputs([([-3, -4, -3, -1], [1, 9, 1, 1]), ([-2, -2], [1, 1])], [1, 0])
    found = {name: surp.variant_scores(inputs, variant, 2.5, 50) for name, variant in VARIANTS.items()}
    # Of the low ones only those of little entropy: none, the first -3, both -3. By rank the first -2 is low too.
    expected = {"ours": ([0, 0], 2), "rank": ([-3, -2], 0), "range": ([-3, 0], 1), "-100": ([-100, -100], 2)}
    for name, (scores, n_without) in expected.items():
        assert found[name][0].tolist() == scores and found[name][1] == n_without, name


def test_the_variants_differ_where_there_is_something_to_differ_in(inputs):
    scores = [tuple(surp.variant_scores(inputs, variant, 2.5, 40)[0]) for variant in VARIANTS.values()]
    assert len(set(scores)) == 4


def test_each_reading_is_compared_at_its_own_cell_by_hand():
    # Ours and by rank take -8 and the second at k = 50 (members higher), three at k = 75 (members lower).
    # By range takes -8 alone at k = 50 (all alike), and what is below -2 at k = 75 (three of a member's, higher).
    rows = [([-8, -3, -2.5, 0], [1] * 4), ([-8, -3.5, -1, 0], [1] * 4)] * 10
    found = {(v.where, v.name): v for v in surp.compare_variants(made_inputs(rows, [1, 0] * 10), [2.5], [75, 50])}
    own, papers = dict.fromkeys(where for where, _ in found)
    by_k = {name: v.options["k"] for (where, name), v in found.items() if where == own}
    assert by_k == {"ours": 50, "by rank": 50, "by range": 75, "empty scores −100": 50}
    for name in surp.VARIANTS:
        assert found[own, name].auc.estimate == 1 and found[own, name].n_without == 0
    assert found[own, "ours"].change is None and found[own, "by range"].change.difference.estimate == 0
    # At the paper's cell, k = 40, by range and by rank take -8 alone.
    for name, change in {"by range": -0.5, "by rank": -0.5, "empty scores −100": 0}.items():
        assert found[papers, name].change.difference.estimate == change
    table = surp.variants_table(list(found.values()))
    assert table.loc[f"{own}: by range", "cell"] == "ε = 2.5, k = 75"
    assert table.loc[f"{papers}: by range", "cell"] == "ε = 2.5, k = 40"


def test_texts_without_a_surprising_token_are_counted_among_the_judged():
    rows = [([-3, -2, -1], [1] * 3), ([-3, -2, -1], [9] * 3)] * 10  # the second kind has none
    for variant in surp.compare_variants(made_inputs(rows, [1, 0] * 10), [2.5], [50]):
        assert variant.n_without == 8, "of the ten, two are chosen on"


def test_on_noise_no_reading_is_better_than_another():
    def compare(inputs):
        found = surp.compare_variants(inputs, [1.0, 2.0, 3.0, 4.0, 6.0], [20, 40, 60, 80, 100])
        own = [v for v in found if v.where.startswith("own")]
        changes = {f"{v.name} − ours": v.change.difference.estimate for v in own if v.change}
        return changes | {v.name: v.auc.estimate - 0.5 for v in own}

    for name, differences in on_noise(compare).items():
        assert abs(differences.mean()) < 0.03, name


# --- tokens ---

CLOUD = [([-1, -5, -2, -9], [0.5, 1.0, 3.0, 3.5]), ([-3, -4], [0.1, 0.2]), ([-6, -7, -8], [5, 1.5, 1.25])]


def points(cloud):
    """Entropy, log p and class of each token, in order."""
    return sorted(zip(cloud.entropy.tolist(), cloud.log_prob.tolist(), cloud.is_seen.tolist(), strict=True))


def test_the_cloud_holds_every_token_with_its_own_entropy_and_class():
    cloud = surp.token_cloud(made_inputs(CLOUD, [1, 0, 0]))
    assert points(cloud) == [
        (pytest.approx(entropy), log_prob, is_seen)
        for entropy, log_prob, is_seen in sorted(
            [
                *[(0.5, -1, True), (1, -5, True), (3, -2, True), (3.5, -9, True)],
                *[(0.1, -3, False), (0.2, -4, False), (5, -6, False), (1.5, -7, False), (1.25, -8, False)],
            ]
        )
    ]


def test_the_cloud_of_surprising_tokens_by_hand():
    cloud = surp.token_cloud(made_inputs(CLOUD, [1, 0, 0]), entropy_threshold=2.5, k=60)
    # Below the 60th percentiles (-1.8, -3.4 and -6.8): -5, -2, -9; -4; -7, -8.
    assert points(cloud) == [(pytest.approx(0.2), -4, False), (1.0, -5, True), (1.25, -8, False), (1.5, -7, False)]


def test_a_sample_of_the_cloud_keeps_each_token_whole(inputs):
    everything = surp.token_cloud(inputs)
    sample = surp.token_cloud(inputs, n_tokens=50, seed=1)
    assert sample.is_seen.sum() == (~sample.is_seen).sum() == 50
    assert set(points(sample)) <= set(points(everything)), "entropy, log p and class of one token stay together"
    assert not (np.diff(sample.is_seen.astype(int)) <= 0).all(), "classes are mixed, so that neither covers the other"
    np.testing.assert_array_equal(sample.entropy, surp.token_cloud(inputs, n_tokens=50, seed=1).entropy)
    assert points(sample) != points(surp.token_cloud(inputs, n_tokens=50, seed=2))


def test_a_sample_of_more_tokens_than_there_are_is_all_of_them():
    inputs = made_inputs(CLOUD, [1, 0, 0])
    assert points(surp.token_cloud(inputs, n_tokens=100)) == points(surp.token_cloud(inputs))
    assert surp.token_cloud(inputs, n_tokens=4).is_seen.sum() == 4


def test_the_mean_of_the_surprising_tokens_by_hand():
    found = surp.mean_of_surprising(made_inputs(CLOUD, [1, 0, 0]), 2.5, 60)
    assert found["seen"].estimate == -5
    assert found["unseen"].estimate == pytest.approx((-4 - 7 - 8) / 3), "of tokens, not of texts"
    assert found["seen − unseen"].estimate == pytest.approx(-5 + 19 / 3)
    assert (found["seen"].low, found["seen"].high) == (-5, -5), "one text, which is always drawn"
    assert (found["unseen"].low, found["unseen"].high) == (-7.5, -4), "both texts, or one of them twice"


def test_the_mean_of_the_surprising_tokens_draws_texts_and_not_tokens(inputs):
    once = surp.mean_of_surprising(inputs, 2.5, 100)
    repeated = [TokenRow(*(np.tile(column, 9) for column in row)) for row in inputs.stats]
    again = surp.mean_of_surprising(made_inputs(repeated, inputs.labels), 2.5, 100)
    for name, interval in once.items():
        assert interval.low < interval.estimate < interval.high
        np.testing.assert_allclose([again[name].low, again[name].high], [interval.low, interval.high])


def test_a_class_without_surprising_tokens_has_no_mean():
    rows = [made_row([-5, -1], [1, 1]), made_row([-5, -1], [9, 9])]
    for labels in ([1, 0], [0, 1]):
        found = surp.mean_of_surprising(made_inputs(rows, labels), 2.5, 40)
        assert found == {"seen": None, "unseen": None, "seen − unseen": None}


# --- both ways ---


def test_the_methods_are_the_rows_of_the_papers_tables():
    rows = [row for i in (1, 2, 3) for row in load_published("surp", f"table-{i}")["row"]]
    assert set(rows) == set(surp.METHODS.values())


def test_a_printed_table_has_the_papers_numbers_in_its_order():
    table = surp.printed_table("table-1", "LLaMA-13B")
    assert list(table.columns) == ["WikiMIA-32", "WikiMIA-128"] and list(table.index[:2]) == ["PPL", "Ref"]
    for benchmark in table.columns:
        assert table[benchmark].to_dict() == published_along("surp", "table-1", f"{benchmark} / LLaMA-13B", "auc")


def test_no_number_stands_beside_a_column_that_the_paper_does_not_print(inputs):
    assert surp.printed_column("table-1", "WikiMIA-32 / LLaMA-13B") == "WikiMIA-32 / LLaMA-13B"
    assert surp.printed_column("table-1", "WikiMIA-512 / LLaMA-13B") is None
    with pytest.raises(ValueError, match=r"surp table-1 prints nothing of 'LLaMA-13b'; it has: .*LLaMA-13B"):
        surp.printed_column("table-1", "WikiMIA-32 / LLaMA-13b")
    both = surp.both_ways(inputs, item="table-1", published="WikiMIA-512 / LLaMA-13B")
    assert {(r.published, r.published_column) for r in both.results} == {(None, None)}


def test_both_ways_have_a_row_for_each_method_and_the_published_number_beside_the_papers_way(inputs):
    printed = "WikiMIA-32 / LLaMA-13B"
    both = surp.both_ways(inputs, item="table-1", published=printed, column="here")
    assert [(r.row, r.metric) for r in both.results] == [
        (label, metric) for label in surp.METHODS.values() for metric in ("auc", "auc_held_out")
    ]
    assert {r.column for r in both.results} == {"here"}
    of_paper = {r.row: r.published for r in both.results if r.metric == "auc"}
    assert of_paper == published_along("surp", "table-1", printed, "auc") and of_paper["SURP"] == 0.868
    assert {r.published_column for r in both.results if r.metric == "auc"} == {printed}
    assert {(r.published, r.published_column) for r in both.results if r.metric == "auc_held_out"} == {(None, None)}
    empty = {r.row for r in both.results if r.ours is None}
    assert empty == {"Ref", "Neighbor"}, "no reference model here, and no such detector"
    assert set(both.held_out) == set(surp.METHODS.values()) - empty and set(both.gaps) == {"MinK", "SURP"}
    plain = surp.both_ways(inputs)
    assert {(r.published, r.published_column, r.column) for r in plain.results} == {(None, None, inputs.target.column)}


def test_both_ways_choose_on_all_texts_and_on_a_fifth_that_is_not_judged(inputs):
    both = surp.both_ways(inputs)
    found = {(r.row, r.metric): r.interval for r in both.results}
    val_idx, test_idx = stratified_split(inputs.labels, HELD_OUT)
    assert both.test_idx.tolist() == test_idx.tolist() and len(val_idx) == 12
    for name, label in (("min_k", "MinK"), ("surp", "SURP")):
        grid = [dict(zip(GRIDS[name], values, strict=True)) for values in both_grid(name)]
        scores = [detect(name, inputs.stats, **options) for options in grid]
        at_best = max(scores, key=lambda values: auc(inputs.labels, values))
        on_fifth = max(scores, key=lambda values: auc(inputs.labels[val_idx], values[val_idx]))
        assert found[label, "auc"].estimate == pytest.approx(auc(inputs.labels, at_best))
        held_out = auc_interval(inputs.labels[test_idx], on_fifth[test_idx])
        assert found[label, "auc_held_out"].estimate == pytest.approx(held_out.estimate)
        assert found[label, "auc_held_out"].low == pytest.approx(held_out.low)
        assert both.gaps[label] == gap(score_grid(inputs, name, GRIDS[name]), inputs.labels)
    ppl = evaluate.score_all(inputs, ["ppl"])["ppl"]
    assert found["PPL", "auc"] == auc_interval(inputs.labels, ppl)
    assert found["PPL", "auc_held_out"] == auc_interval(inputs.labels[test_idx], ppl[test_idx]), "the same texts"


def both_grid(name):
    values = list(GRIDS[name].values())
    return [(x,) for x in values[0]] if len(values) == 1 else [(x, y) for x in values[0] for y in values[1]]


def test_held_out_scores_are_those_behind_the_held_out_rows(inputs):
    both = surp.both_ways(inputs)
    labels, scores = inputs.labels[both.test_idx], both.held_out
    assert set(scores) == {"PPL", "Lower", "Zlib", "MinK", "SURP"}
    for result in both.results:
        if result.metric == "auc_held_out" and result.ours is not None:
            assert result.interval == auc_interval(labels, scores[result.row])


def test_the_comparison_and_the_tprs_are_of_the_held_out_texts(inputs):
    both = surp.both_ways(inputs)
    labels, scores = inputs.labels[both.test_idx], both.held_out
    assert surp.compare_held_out(both, inputs.labels) == compare_auc(labels, scores["SURP"], scores["MinK"])
    assert surp.compare_held_out(both, inputs.labels, "PPL", "Zlib") == compare_auc(
        labels, scores["PPL"], scores["Zlib"]
    )
    found = [r for r in surp.tpr_results(labels, scores, "here") if r.metric == "tpr_at_10_fpr"]
    assert [(r.row, r.ours) for r in found] == [
        (name, tpr_at_fpr(labels, values, 0.1)) for name, values in scores.items()
    ]


def test_the_table_of_choices_prints_both_ways(inputs):
    both = surp.both_ways(inputs)
    table = surp.choice_table({"here": both})
    assert list(table.index) == ["here: MinK", "here: SURP"]
    for result in both.results:
        if result.row in both.gaps:
            printed = " ".join(table.loc[f"here: {result.row}"])
            options = describe_options(both.options[result.row, result.metric])
            assert f"{result}, {options}" in printed and str(both.gaps[result.row]) in printed


def test_surp_without_an_entropy_condition_is_counted():
    low, high = (made_inputs(random_rows(0, [20] * 60), np.arange(60) % 2) for _ in range(2))
    both = surp.both_ways(low)
    tight = surp.BothWays(both.results, both.options | {("SURP", "auc"): {"entropy_threshold": 0.0}}, {}, None, {})
    loose = surp.BothWays(both.results, both.options | {("SURP", "auc"): {"entropy_threshold": 1e9}}, {}, None, {})
    assert surp.without_entropy({"a": (low, tight), "b": (high, loose)}).startswith("In 1 of 2 columns")


def test_two_models_are_compared_by_the_methods_that_both_have(inputs):
    other = replace(inputs, stats=inputs.stats.take(range(59, -1, -1)), reference=inputs.stats, lowercase=None)
    first, second = surp.both_ways(other), surp.both_ways(inputs)
    found = surp.compare_models(inputs.labels, first, second)
    assert {name for name, comparison in found.items() if comparison is None} == {"Ref", "Lower"}
    assert set(found) == set(surp.METHODS.values()) - {"Neighbor"}
    labels = inputs.labels[second.test_idx]
    assert found["PPL"] == compare_auc(labels, second.held_out["PPL"], first.held_out["PPL"])


def test_intervals_draw_documents_where_a_document_has_several_texts():
    document = np.repeat(np.arange(30), 2)
    inputs = made_inputs(random_rows(5, [20] * 60), document % 2)
    found = {(r.row, r.metric): r.interval for r in surp.both_ways(inputs, document=document).results}
    ppl = evaluate.score_all(inputs, ["ppl"])["ppl"]
    assert found["PPL", "auc"] == document_auc_interval(inputs.labels, ppl, document)
    alone = {(r.row, r.metric): r.interval for r in surp.both_ways(inputs, document=np.arange(60) + 5).results}
    assert alone["PPL", "auc"] == auc_interval(inputs.labels, ppl), "one text a document: DeLong's"


def test_no_document_is_both_chosen_on_and_judged():
    document = np.repeat(np.arange(30), 2)
    inputs = made_inputs(random_rows(5, [20] * 60), document % 2)
    test_idx = surp.both_ways(inputs, document=document).test_idx
    val_idx = np.setdiff1d(np.arange(60), test_idx)
    assert 0 < len(val_idx) < len(test_idx)
    shared = set(document[val_idx].tolist()) & set(document[test_idx].tolist())
    assert not shared, "the snippets of one document are alike, so its other half is not unseen"


# --- domains ---


def test_domains_are_kept_where_both_classes_have_enough_texts(monkeypatch):
    domains = ["a"] * 10 + ["b"] * 8 + ["c"] * 4
    labels = [1, 0] * 5 + [1] * 6 + [0, 0] + [1, 0, 1, 0]
    inputs = made_inputs(random_rows(0, range(1, 23)), labels, domains=domains)
    monkeypatch.setattr(surp, "MIN_DOMAIN_TEXTS", 3)
    kept, left_out = surp.by_domain(inputs)
    assert list(kept) == ["a"] and left_out == {"b": (6, 2), "c": (2, 2)}
    assert kept["a"].benchmark.texts == inputs.benchmark.texts[:10]
    assert kept["a"].benchmark.name == "made: a" == kept["a"].target.benchmark
    np.testing.assert_array_equal(kept["a"].stats.log_prob, inputs.stats.log_prob[: sum(range(1, 11))])
    monkeypatch.setattr(surp, "MIN_DOMAIN_TEXTS", 2)
    assert set(surp.by_domain(inputs)[0]) == {"a", "b", "c"}


def test_texts_of_no_known_domain_are_one(inputs):
    kept, left_out = surp.by_domain(inputs)
    assert list(kept) == ["made"] and not left_out
    assert kept["made"].benchmark.texts == inputs.benchmark.texts


def test_non_members_that_overlap_are_dropped_and_members_never(inputs):
    overlaps = np.linspace(0, 1, 60)
    kept, n_dropped = surp.without_overlap(inputs, overlaps, at_most=overlaps[31])
    assert kept.labels.sum() == 20
    expected = [i for i in range(60) if inputs.labels[i] or i <= 31]
    assert kept.benchmark.texts == tuple(inputs.benchmark.texts[i] for i in expected)
    assert n_dropped == 60 - len(expected) > 0
    assert surp.without_overlap(inputs, None, at_most=0.2) == (inputs, 0)
