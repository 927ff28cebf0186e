"""The claims as tables."""

from dataclasses import replace

import numpy as np
from test_judging import LABELS, PLACE, claim_of, load_written, scores_at

from mialib.metrics import Interval, auc
from replication import claims
from replication.claim_tests import Change, SeedScores, load_claims
from replication.judging import judge


def test_a_page_of_other_models_has_a_sentence_and_no_verdicts():
    ids = [claim.id for claim in load_claims().claims]
    assert "No claim" in claims.verdicts("another/model", ids).data
    assert claims.answer("another/model", ids).data == ""
    assert "No claim" in claims.verdicts(["lab/en-900k"], []).data


def test_an_answer_has_the_first_claims_numbers_and_counts_the_verdicts_of_more_than_one_other(tmp_path, monkeypatch):
    claim = load_written(claim_of(against=["chance"]), tmp_path).claims[0]
    seeds = [SeedScores(s, np.array([scores_at(2, s), np.zeros(200)]), "t") for s in range(3)]
    one = judge(claim, "here", PLACE, LABELS, seeds)
    of_id = [replace(one, claim=claim.model_copy(update={"id": n, "claim": f"Claim {n}."})) for n in "abc"]
    of_id += [replace(of_id[2], setting="there", verdict="not supported")]
    change = Change(date="2026-11-20", what="w", why="y", seen="s")
    was = claim.model_copy(update={"former_of": "b", "history": (change,)})
    of_id += [replace(one, claim=was, verdict=verdict) for verdict in ("supported", "inconclusive")]
    monkeypatch.setattr(
        claims, "judge_on", lambda models, ids: [j for j in of_id if {j.claim.id, j.claim.former_of} & {*ids}]
    )
    difference = claims.three_digits(one.comparisons[0].difference)
    in_full = f"supported** in here (`{PLACE.model}`), AUC above chance {difference}."
    both = claims.answer("m", ["b", "a"]).data
    assert both.count(in_full) == 2 and both.index("Claim b.") < both.index("Claim a.")
    assert f"{in_full} By its former tests: inconclusive until 2026-11-20. *Claim a.*" in both
    text = claims.answer("m", ["a", "b", "c"]).data
    assert text.count(in_full) == 1 and text.endswith(
        "2 more claims, each with the worst of its verdicts: 1 supported, 1 not supported."
    )


def test_the_summary_counts_verdicts_and_names_the_seeds_that_are_left_out(tmp_path):
    claim = load_written(claim_of(against=["chance"]), tmp_path).claims[0]
    seeds = [SeedScores(s, np.array([scores_at(2, s), np.zeros(200)]), "t") for s in range(3)]
    one, all_three = (judge(claim, "here", PLACE, LABELS, seeds[:n]) for n in (1, 3))
    text = claims.summary([replace(one, left_out=("seed 1: recorded for other texts",)), all_three])
    assert "**2 tests**" in text and "1 supported" in text and "1 inconclusive" in text and "1 to 3" in text
    assert text.endswith("- x, here, seed 1: recorded for other texts")
    assert "eft out" not in claims.summary([all_three])


def test_rows_of_the_worst_differences(tmp_path):
    against = [{"detector": "zlib"}, "chance"]
    claim = load_written(claim_of(against=against, expect="equivalent", margin=0.1), tmp_path).claims[0]
    seeds = [SeedScores(0, np.array([scores_at(2, 0), scores_at(2, 0), scores_at(0, 8)]), "t")]
    judgement = judge(claim, "here", PLACE, LABELS, seeds)
    far = max((c.difference for c in judgement.comparisons), key=lambda d: d.estimate)
    assert claims.difference_of([judgement], claim.id, "here") == far and far.estimate > 0.1
    claim = load_written(claim_of(against=[{"detector": "zlib"}, "chance"]), tmp_path).claims[0]
    judgement = judge(claim, "here", PLACE, LABELS, three_seeds(2, 1, 0))
    lowest = min((c.difference for c in judgement.comparisons), key=lambda d: d.estimate)
    assert claims.forest_rows([judgement]) == {claim.claim: {"here (worst of 2)": (lowest, "supported", None)}}
    assert claims.difference_of([judgement], claim.id, "here") == lowest


def three_seeds(*shifts):
    """Scores of three seeds, each side's members so many standard deviations higher."""
    return [SeedScores(s, np.array([scores_at(d, 10 * s + i) for i, d in enumerate(shifts)]), "t") for s in range(3)]


def test_tests_are_grouped_by_paper_in_the_books_order_and_former_ones_are_left_out(tmp_path):
    claim = load_written(claim_of(), tmp_path).claims[0]
    one = judge(claim, "here", PLACE, LABELS, three_seeds(2, 0))
    of = {paper: replace(one, claim=claim.model_copy(update={"paper": paper})) for paper in ("surp", "min-k", "others")}
    former = replace(of["surp"], claim=of["surp"].claim.model_copy(update={"former_of": "x"}))
    grouped = claims.by_paper([*of.values(), former])
    assert grouped == {"Min-K% Prob": [of["min-k"]], "SURP": [of["surp"]], "Claims of others": [of["others"]]}


def test_an_objection_stands_beside_the_verdicts_of_a_claim_and_of_its_repetitions(tmp_path):
    claim = load_written(claim_of(objection="too small", answer="so it is"), tmp_path).claims[0]
    again = claim.model_copy(update={"repeats": "x", "a": claim.a.model_copy(update={"n_words": {"here": 9}})})
    other = claim.model_copy(update={"id": "y", "objection": ""})
    judged = [judge(of, "here", PLACE, LABELS, three_seeds(2, 0)) for of in (claim, again, other)]
    [row] = claims.objections_table(judged, claims.OTHERS).data.to_numpy().tolist()
    assert row[2:] == ["too small", "so it is"] and "• supported; no lead" in row[1] and "here; here, 9 words" in row[1]
    assert claims.objections_table(judged, "SURP").data.empty


def test_the_auc_of_a_side_is_the_mean_over_seeds(tmp_path, monkeypatch):
    stated, seeds = load_written(claim_of(against=[{"detector": "zlib"}, "chance"]), tmp_path), three_seeds(2, 1, 0)
    for seed in seeds:
        seed.scores[2] = 0  # all tie, as under chance
    monkeypatch.setattr(claims, "seeds_of", lambda *_: (LABELS, seeds, []))
    found = claims.side_aucs(stated, stated.claims[0].id, "here")
    assert list(found) == ["PPL", "Zlib"]
    for i, interval in enumerate(found.values()):
        by_seed = [auc(LABELS, seed.scores[i]) for seed in seeds]
        assert np.isclose(interval.estimate, np.mean(by_seed)) and interval.low < interval.estimate < interval.high


def test_the_table_of_claims_says_what_each_side_is(tmp_path):
    against = [
        {"detector": "surp", "options": "grid", "part": "head", "n_words": {"here": 64}},
        {"detector": "min_k", "options": {"k": 10}, "model": {"here": "m/small"}},
        "chance",
    ]
    claim = load_written(claim_of(against=against), tmp_path).claims[0]
    seeds = [SeedScores(0, np.array([scores_at(2, i) for i in range(4)]), "texts")]
    table = claims.claims_table([judge(claim, "here", PLACE, LABELS, seeds)]).data
    [row] = table.to_dict("records")
    differences = row["difference of AUC (or TPR) [95% interval]"]
    for words in ("chosen on a fifth", "head", "64 words", "k = 10", "m/small", "against chance"):
        assert words in differences
    assert row["verdict"] == "inconclusive (1 seed; own model)"
    assert row["where"] == "here: m on b" and differences.startswith("PPL:\n• ")


def test_a_sentence_tells_ahead_behind_level_and_unknown_in_three_digits():
    intervals = [(0.05, 0.02, 0.08), (-0.05, -0.08, -0.02), (0.005, 0.001, 0.009), (0.02, -0.02, 0.06)]
    said = [claims.leads(Interval(*interval)) for interval in intervals]
    assert all(word in one for word, one in zip(("ahead", "behind", "level", "not"), said, strict=True))
    assert claims.three_digits(Interval(-0.0002, -0.0014, 0.1234)) == "0.000 [-0.001, 0.123]"
