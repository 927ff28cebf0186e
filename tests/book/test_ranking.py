"""The ranking of detectors: blocks, ranks and their test, intervals over shared texts and seeds, what is recorded.

The statistics are those of the page `which_detector`.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import write_texts
from page_code import functions_of

from mialib.detectors import DETECTORS, Option
from mialib.metrics import auc
from mialib.passes.inputs import cut_inputs, load_inputs, score_grid, scores_of
from mialib.versions import VERSIONS
from replication import recorded
from replication.claims.over_seeds import compare_auc_over_seeds
from replication.studies import ranking
from replication.studies.ranking import OWN, SHIFTED, Block, average, complete

pytestmark = pytest.mark.usefixtures("home_of_all_pages")
N = 60  # texts of a class
LABELS = np.repeat([1, 0], N).astype(np.int8)
PAGE = functions_of("which_detector")
difference, mean_auc, order = (PAGE[name] for name in ("difference", "mean_auc", "order"))


def block(scores, *, model="m", n_words=32, seed=0, benchmark="b", condition=OWN, texts=None):
    """Nothing is chosen: each fold judges by the same scores, (N,) each."""
    texts = np.arange(len(LABELS)) if texts is None else texts
    in_folds = {name: np.tile(of, (5, 1)) for name, of in scores.items()}
    return Block(model, benchmark, n_words, seed, condition, texts, LABELS, in_folds)


def judged(block, name):
    """A detector's scores as `compare_auc_over_seeds` takes them: (F, N), NaN where a fold does not judge."""
    found = np.full(block.scores[name].shape, np.nan)
    for of_fold, scores, test_idx in zip(found, block.scores[name], block.judged, strict=True):
        of_fold[test_idx] = scores[test_idx]
    return found


def at_auc(value):
    """Scores whose AUC is `value` of N, in N steps: the members lie above so many of the non-members."""
    return np.concatenate([np.full(N, value - 0.5), np.arange(N)])


def blocks_at(*rows, names=("ppl", "zlib", "min_k")):
    """A block for each row of AUCs, in steps of 1 / N."""
    return [
        block({name: at_auc(value) for name, value in zip(names, row, strict=True)}, n_words=i + 1)
        for i, row in enumerate(rows)
    ]


def test_detectors_that_tie_or_that_some_blocks_lack():
    blocks = [block({"ppl": at_auc(40), "zlib": at_auc(40) / 7, "min_k": at_auc(30)}, n_words=n) for n in (1, 2)]
    assert ranking.rank(blocks) == {"ppl": 1.5, "zlib": 1.5, "min_k": 3}
    full = blocks_at((50, 40, 30), (50, 40, 30))
    lacking = block({"ppl": at_auc(30), "zlib": at_auc(20)}, n_words=9)
    assert list(ranking.rank([*full, lacking])) == ["ppl", "zlib"]
    assert ranking.applicable([*full, lacking]) == (["ppl", "zlib"], {"min_k": 1})


def simulated(rng, spread, means=(0.8, 0.6), n_seeds=3):
    """Six blocks a seed, two models and three lengths, of texts that are hard for all of them or for one detector, and
    models whose detectors gain or lose with the seed."""
    shared, of_detector, blocks = rng.normal(size=2 * N), rng.normal(size=(2, 2 * N)), []
    for seed in range(n_seeds):
        for model in "mn":
            gains = np.array(means) + spread * rng.normal(size=2)
            for n_words in (1, 2, 3):
                noise = 0.53 * rng.normal(size=(2, 2 * N))
                scores = LABELS * gains[:, None] + 0.6 * shared + 0.6 * of_detector + noise
                names = dict(zip(("ppl", "surp"), scores, strict=True))
                blocks.append(block(names, model=model, n_words=n_words, seed=seed))
    return blocks


def test_the_variance_over_texts_is_that_of_a_bootstrap_with_the_same_texts_in_all_blocks():
    rng = np.random.default_rng(2)
    blocks = simulated(rng, 0, n_seeds=1)
    # Another benchmark with the same members and non-members of its own.
    other = np.concatenate([np.arange(N), 1000 + np.arange(N)])
    blocks += [replace(b, benchmark="c", texts=other, labels=LABELS) for b in simulated(rng, 0, n_seeds=1)]
    interval = difference(average(blocks), "ppl", "surp")
    draws = []
    for _ in range(150):
        members, own, others = (rng.integers(N, size=N) for _ in range(3))
        taken = {"b": np.concatenate([members, N + own]), "c": np.concatenate([members, N + others])}
        differences = [
            auc(LABELS, b.scores["ppl"][0][taken[b.benchmark]]) - auc(LABELS, b.scores["surp"][0][taken[b.benchmark]])
            for b in blocks
        ]
        draws.append(np.mean(differences))
    assert (interval.high - interval.low) / 2 / 1.96 == pytest.approx(np.std(draws), rel=0.14)


def test_one_cell_has_the_interval_of_the_claims_and_folds_that_differ_widen_it():
    rng = np.random.default_rng(3)
    for n_seeds, spread in ((1, 0), (3, 0.3)):
        of_cell = [b for b in simulated(rng, spread, n_seeds=n_seeds) if b.cell == ("m", "b", 1)]
        a, b = ([judged(x, name) for x in of_cell] for name in ("ppl", "surp"))
        known, found = compare_auc_over_seeds(LABELS, a, b).difference, difference(average(of_cell), "ppl", "surp")
        assert (found.low, found.estimate, found.high) == pytest.approx((known.low, known.estimate, known.high))
        assert mean_auc(average(of_cell), "ppl").estimate == pytest.approx(np.mean([x.auc["ppl"] for x in of_cell]))
    rng = np.random.default_rng(8)
    ppl, good, bad = (rng.normal(size=2 * N) + gain * LABELS for gain in (1, 1.4, 0.2))
    b, folds = block({"ppl": ppl}), ([good] * 5, [good, bad, good, bad, good])
    same, apart = (replace(b, scores=b.scores | {"surp": np.stack(of)}) for of in folds)
    narrow, wide = (difference(average([b]), "surp", "ppl") for b in (same, apart))
    assert wide.high - wide.low > 1.2 * (narrow.high - narrow.low)


def test_an_auc_is_of_the_texts_that_nothing_was_chosen_on():
    """A detector whose every fold is perfect where it chose, and wrong elsewhere."""
    wrong = block({"ppl": at_auc(40)})
    tuned = np.tile(-LABELS.astype(float), (5, 1))
    for of_fold, test_idx in zip(tuned, wrong.judged, strict=True):
        chosen_on = np.setdiff1d(np.arange(2 * N), test_idx)
        assert len(chosen_on) == 2 * N / 5
        of_fold[chosen_on] = LABELS[chosen_on]
    found = replace(wrong, scores=wrong.scores | {"surp": tuned})
    assert found.auc["surp"] == 0 and found.auc["ppl"] == pytest.approx(40 / 60)
    assert found.placements["surp"] == pytest.approx(np.zeros(2 * N))


def test_intervals_of_no_difference_a_certain_one_and_repeated_blocks():
    averaged = average(simulated(np.random.default_rng(3), 0.3))
    found = difference(averaged, "ppl", "ppl")
    assert (found.low, found.estimate, found.high) == (0, 0, 0)
    there, back = difference(averaged, "ppl", "surp"), difference(averaged, "surp", "ppl")
    of_each = [mean_auc(averaged, name).estimate for name in ("ppl", "surp")]
    assert there.estimate == pytest.approx(-back.estimate) == pytest.approx(of_each[0] - of_each[1])
    blocks = simulated(np.random.default_rng(4), 0, n_seeds=1)
    again = [replace(b, n_words=b.n_words + 10) for b in blocks]
    once, twice = (difference(average(of), "ppl", "surp") for of in (blocks, blocks + again))
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))
    perfect = block({"ppl": LABELS.astype(float), "surp": -LABELS.astype(float)})
    found = difference(average([perfect]), "ppl", "surp")
    assert found.estimate == 1 and found.low < 0.96
    assert mean_auc(average([perfect]), "ppl").high == 1


def test_cells_of_different_seeds_are_an_error_and_complete_leaves_them_out():
    blocks = simulated(np.random.default_rng(5), 0)[:-1]
    with pytest.raises(AssertionError, match="seed"):
        average(blocks)
    kept, lines = complete(blocks)
    assert {b.seed for b in kept} == {0, 1} and len(kept) == 12
    [line] = lines
    assert "seed 2" in line and "1 of 6" in line


def test_the_order_is_by_mean_auc_and_says_who_stands_beside_the_best():
    rng = np.random.default_rng(6)
    base = rng.normal(size=2 * N)
    scores = {
        "ppl": base + 2.0 * LABELS,
        "zlib": base + 2.0 * LABELS + 0.3 * rng.normal(size=2 * N),
        "min_k": base + 0.2 * LABELS,
    }
    names, differences = order(average([block(scores)]))
    assert set(names[:2]) == {"ppl", "zlib"} and names[2] == "min_k"
    assert PAGE["lead_of"]([block(scores)])["tied with"] == DETECTORS[names[1]].label
    single = difference(average([block(scores)]), *names[:2])
    lead = differences[names[0], names[1]]
    assert lead.estimate == pytest.approx(single.estimate)
    assert lead.low < single.low, "simultaneous over three pairs"


@pytest.fixture(scope="module")
def of_page(model_folder, reference_folder, tmp_path_factory):
    """A page's targets: the tiny model with itself as its reference, on texts and on shifted ones."""
    texts, shifted = (tmp_path_factory.mktemp("page") / "texts.jsonl" for _ in range(2))
    write_texts(texts)
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    for row in rows:
        row["text"] = row["text"] if row["label"] else row["text"].upper()
    shifted.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ranking.columns(model_folder, str(texts), reference_folder, None, str(shifted))


def test_blocks_have_the_detectors_that_apply_and_their_scores(of_page):
    gathered = ranking.gather_scores(of_page, "3, 5, 400", recorded=Path("none.parquet"))
    assert [(b.n_words, b.condition) for b in gathered.blocks] == [(3, OWN), (5, OWN), (3, SHIFTED), (5, SHIFTED)]
    assert [line.partition(",")[2] for line in gathered.left_out] == [" 400 words: 16 of 16 texts are shorter"] * 2
    first = gathered.blocks[0]
    given = {"texts", "lowercase", "reference"}
    assert set(first.detectors) == {name for name, known in DETECTORS.items() if set(known.needs) <= given}
    inputs, _ = cut_inputs(load_inputs(of_page[0][0]), 3)
    np.testing.assert_allclose(first.scores["ppl"], np.tile(scores_of(inputs, "ppl"), (5, 1)))
    for name in ("min_k", "min_k++", "surp", "gap_k", "max_renyi"):  # that a paper tunes
        grid = score_grid(inputs, name)
        for f, test_idx in enumerate(first.judged):
            chosen_on = np.setdiff1d(np.arange(len(inputs.labels)), test_idx)
            best = grid.best(inputs.labels, chosen_on)
            np.testing.assert_allclose(first.scores[name][f], grid.scores[best])
            expected = auc(inputs.labels[test_idx], grid.scores[best][test_idx])
            assert first.auc_by_fold[name][f] == pytest.approx(expected)
    shared = np.intersect1d(first.texts, gathered.blocks[2].texts)
    assert len(shared) == 8, "the members, known by their whole texts"


@pytest.fixture(scope="module")
def recorded_file(of_page, tmp_path_factory):
    """Seeds 0, 1 and 2 as recorded; a folder has one seed only, so that theirs are the same model's."""
    target = of_page[0][0]
    parameters = {"models": target.model, "benchmarks": target.benchmark, "references": target.reference}
    parameters |= {"corpora": "-", "shifted": of_page[1][0].benchmark, "lengths": "3, 5"}
    profile = SimpleNamespace(notebooks={ranking.PAGE: SimpleNamespace(parameters=parameters)})
    path = tmp_path_factory.mktemp("recorded") / "ranking.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "load_profile", lambda: profile)
        patch.setattr(ranking, "of_seed", lambda model, seed: model)
        recorded.write_recorded(path, ranking.rank_rows([0, 1, 2]))
    return path


def test_recorded_seeds_come_back_as_ranks_with_the_same_aucs(of_page, recorded_file, monkeypatch):
    live = {b.cell: b for b in ranking.gather_scores(of_page, [3, 5], Path("none")).blocks}
    monkeypatch.setattr(ranking, "load_inputs", lambda _: pytest.fail("what is recorded is not computed"))
    gathered = ranking.gather_scores(of_page, [3, 5], recorded_file)
    assert not gathered.left_out and len(gathered.blocks) == 12 and not gathered.ran
    for b in gathered.blocks:
        expected = live[b.cell]
        assert set(b.scores) == set(expected.scores) and b.texts.tolist() == expected.texts.tolist()
        for name in b.scores:
            assert b.auc[name] == pytest.approx(expected.auc[name], abs=1e-12)
    assert recorded.read_provenance(recorded_file)["torch"]


def test_a_detector_of_another_version_is_left_out_alone(of_page, recorded_file, monkeypatch):
    monkeypatch.setitem(DETECTORS, "min_k", replace(DETECTORS["min_k"], version=7))
    monkeypatch.setitem(DETECTORS, "new", replace(DETECTORS["ppl"], name="new"))
    gathered = ranking.gather_scores(of_page, [3, 5], recorded_file)
    assert {b.seed for b in gathered.blocks} == {0, 1, 2} and len(gathered.blocks) == 12 and not gathered.ran
    names = {row["detector"] for row in recorded.read_recorded(recorded_file)}
    assert names - {name for b in gathered.blocks for name in b.scores} == {"min_k"}
    assert any("min_k 1, now 7" in line for line in gathered.left_out)
    assert any(line.startswith("new: ") for line in gathered.left_out), "a new one drops nothing"
    monkeypatch.setitem(VERSIONS, "scoring", 7)
    gathered = ranking.gather_scores(of_page, [3, 5], recorded_file)
    assert {b.seed for b in gathered.blocks} == {0} and len(gathered.ran) == 2, "nothing that is recorded counts"


def test_what_was_recorded_for_another_test_or_other_texts_is_left_out_and_said(of_page, recorded_file, monkeypatch):
    known = DETECTORS["min_k"]
    with monkeypatch.context() as patch:
        patch.setitem(DETECTORS, "min_k", replace(known, options={"k": Option(10, "")}))
        gathered = ranking.gather_scores(of_page, [3], recorded_file)
    assert {b.seed for b in gathered.blocks} == {0, 1, 2} and not any("min_k" in b.scores for b in gathered.blocks)
    assert "another test" in gathered.left_out[0]
    with monkeypatch.context() as patch:
        patch.setattr(ranking, "hash_texts", lambda texts: "others")
        gathered = ranking.gather_scores(of_page, [3], recorded_file)
    assert {b.seed for b in gathered.blocks} == {0} and "other texts" in gathered.left_out[0]
    with monkeypatch.context() as patch:
        patch.setattr(recorded, "weights_of", lambda *_: "others")
        gathered = ranking.gather_scores(of_page, [3], recorded_file)
    assert len(gathered.blocks) == 6 and len(gathered.ran) == 2, "seed 0 of these weights, beside the other seeds"
    page_without = [(target.but(reference=None), condition) for target, condition in of_page]
    assert "another test" in ranking.gather_scores(page_without, [3], recorded_file).left_out[0]
