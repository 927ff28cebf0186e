"""Claims as tests: the file, the scoring of both sides, verdicts over seeds, and what is recorded."""

import numpy as np
import pytest
import yaml

from mialib import claims as claims_module
from mialib.claims import SeedScores, judge, load_claims, load_recorded, record, score_claim
from mialib.config import load_profile
from mialib.detectors import DETECTORS
from mialib.metrics import compare_auc, compare_auc_over_seeds
from mialib.store import ROOT

LABELS = np.repeat([1, 0], 100)


def scores_at(shift, seed):
    """Random scores with the members `shift` standard deviations higher."""
    return np.random.default_rng(seed).normal(size=200) + shift * LABELS


def test_every_claim_names_models_benchmarks_and_detectors_that_exist():
    claims, profile = load_claims(), load_profile(ROOT / "data" / "profiles" / "lab.yml")
    ids = [claim.id for claim in claims.claims]
    assert len(set(ids)) == len(ids)
    for setting in claims.settings.values():
        assert setting.model in profile.models and setting.benchmark in profile.corpora
    for claim, setting in claims.tests():
        assert setting in claims.settings
        assert (claim.margin is not None) == (claim.expect == "equivalent")
        for side in (claim.a, *claim.against):
            if side == "chance":
                continue
            assert set(side.options) <= set(DETECTORS[side.detector].hyperparameters)
            assert set(side.model.values()) <= set(profile.models)


def test_one_seed_gives_the_paired_comparison_of_its_texts():
    a, b = scores_at(1.0, 0), scores_at(0.5, 1)
    over_seeds, paired = compare_auc_over_seeds(LABELS, [a], [b]), compare_auc(LABELS, a, b)
    assert over_seeds.difference.estimate == pytest.approx(paired.difference.estimate)
    assert over_seeds.difference.low == pytest.approx(paired.difference.low)
    assert over_seeds.p_value == pytest.approx(paired.p_value)


def test_seeds_that_disagree_widen_the_interval():
    base = scores_at(0, 0)
    agree = [base + 1.0 * LABELS] * 3
    disagree = [base + shift * LABELS for shift in (0.0, 1.0, 2.0)]
    b = [scores_at(0, 1)] * 3
    width = [(c := compare_auc_over_seeds(LABELS, a, b)).difference.high - c.difference.low for a in (agree, disagree)]
    assert width[1] > 2 * width[0]


def test_the_interval_over_three_seeds_covers_the_truth_as_often_as_it_says():
    # Truth: no difference on average; each seed adds an effect of its own to all its members.
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        shared = rng.normal(size=200)
        a, b = (
            [shared + 0.5 * rng.normal(size=200) + (1 + 0.3 * rng.normal()) * LABELS for _ in range(3)]
            for _ in range(2)
        )
        interval = compare_auc_over_seeds(LABELS, a, b).difference
        covered += interval.low <= 0 <= interval.high
    assert 0.91 <= covered / 300 <= 1.0


def test_seeds_of_different_number_are_an_error():
    with pytest.raises(ValueError, match="2 and 1 seeds"):
        compare_auc_over_seeds(LABELS, [scores_at(1, 0)] * 2, [scores_at(1, 0)])


def claim_of(expect="greater", margin=None, n_against=1):
    claims = {
        "settings": {"here": {"model": "m", "benchmark": "b", "corpus": "c"}},
        "claims": [
            {
                "id": "x",
                "paper": "p",
                "claim": "c",
                "published": "p",
                "fixed": "before",
                "a": {"detector": "ppl"},
                "against": [{"detector": "min_k"}] * n_against,
                "expect": expect,
                "margin": margin,
            }
        ],
    }
    return claims


def judged(shifts, *, n_seeds=3, tmp_path, **test):
    """The verdict where side a is shifted by shifts[0] and what it is held against by the others."""
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(claim_of(n_against=len(shifts) - 1, **test)))
    claim = load_claims(tmp_path / "claims.yml").claims[0]
    base = scores_at(0, 0)
    seeds = [
        SeedScores(s, np.array([base + 0.1 * scores_at(0, s) + shift * LABELS for shift in shifts]), "texts")
        for s in range(n_seeds)
    ]
    return judge(claim, "here", LABELS, seeds).verdict


@pytest.mark.parametrize(
    ("shifts", "test", "expected"),
    [
        ([2, 0], {}, "supported"),
        ([0, 2], {}, "not supported"),
        ([1, 1], {}, "inconclusive"),
        ([2, 0, 1], {}, "supported"),
        ([2, 0, 3], {}, "not supported"),  # one of two fails
        ([1, 1.01], {"expect": "equivalent", "margin": 0.05}, "supported"),
        ([2, 0], {"expect": "equivalent", "margin": 0.05}, "not supported"),
    ],
)
def test_verdict_over_three_seeds(shifts, test, expected, tmp_path):
    assert judged(shifts, tmp_path=tmp_path, **test) == expected


def test_fewer_than_three_seeds_never_support_a_claim(tmp_path):
    assert judged([2, 0], n_seeds=2, tmp_path=tmp_path) == "inconclusive"


def test_a_wrong_claims_file_is_an_error_that_names_it(tmp_path):
    wrong = claim_of() | {"surprise": 1}
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(wrong))
    with pytest.raises(ValueError, match=r"(?s)claims\.yml.*surprise"):
        load_claims(tmp_path / "claims.yml")


def test_a_recorded_seed_comes_back_and_one_of_another_test_is_left_out(tmp_path, monkeypatch, model_folder):
    texts = [f"The river number {i} runs {'south' if i % 2 else 'north'} of the old mill" for i in range(12)]
    (tmp_path / "texts.jsonl").write_text(
        "".join(f'{{"text": "{text}", "label": {i % 2}}}\n' for i, text in enumerate(texts))
    )
    (tmp_path / "corpus.txt").write_text("The river runs\n")
    written = claim_of()
    written["settings"]["here"] = {
        "model": model_folder,
        "benchmark": str(tmp_path / "texts.jsonl"),
        "corpus": str(tmp_path / "corpus.txt"),
    }
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(written))
    claims = load_claims(tmp_path / "claims.yml")
    inputs, live = score_claim(claims, claims.claims[0], "here", seed=0)
    # A folder has one training seed only; what is recorded for another is that of the same weights here.
    monkeypatch.setattr(
        claims_module,
        "score_claim",
        lambda c, claim, setting, seed: (inputs, SeedScores(seed, live.scores, live.texts)),
    )
    path = tmp_path / "recorded.parquet"
    record(claims, [1, 2], path)
    [(first, test), (second, _)] = load_recorded(path)["x", "here"]
    assert (first.seed, second.seed) == (1, 2) and test == claims.test_hash(claims.claims[0], "here")
    np.testing.assert_allclose(first.scores, live.scores, rtol=1e-6)
    judgements, left_out = claims_module.judge_all(claims, path)
    assert judgements[0].seeds == (0, 1, 2) and not left_out

    written["claims"][0]["against"] = [{"detector": "zlib"}]
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(written))
    judgements, left_out = claims_module.judge_all(load_claims(tmp_path / "claims.yml"), path)
    assert judgements[0].seeds == (0,) and judgements[0].verdict == "inconclusive"
    assert left_out == [f"x, here, seed {s}: recorded for another test or other texts" for s in (1, 2)]


def test_chance_keeps_its_place_among_what_a_claim_is_held_against(tmp_path, model_folder, benchmark_file):
    written = claim_of()
    written["settings"]["here"] = {"model": model_folder, "benchmark": benchmark_file, "corpus": benchmark_file}
    written["claims"][0]["against"] = ["chance", {"detector": "min_k"}]
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(written))
    claims = load_claims(tmp_path / "claims.yml")
    _, found = score_claim(claims, claims.claims[0], "here", seed=0)
    assert not found.scores[1].any() and found.scores[2].all()
