"""Claims as tests: the file, the scoring of both sides, verdicts over seeds, and what is recorded and kept."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import yaml

from mialib.attacks import probe
from mialib.catalog.benchmarks import load_benchmark
from mialib.detectors import DETECTORS
from mialib.metrics import Interval, auc, compare_auc_over_seeds
from mialib.model_selection import folds
from mialib.passes.inputs import Target, cut_inputs, load_inputs, scores_of
from mialib.store import ROOT, hash_of
from mialib.versions import VERSIONS
from replication import claim_tests, claims, judging, pages, printed_leads
from replication.builders.unseen import load_unseen
from replication.claim_tests import Group, SeedScores, judged_texts, load_claims, score_claim
from replication.judging import judge, judge_on, load_recorded
from replication.lab import source as lab_source
from replication.lab.recipes import Training, Unlearning
from replication.lab.source import LabCorpus, corpora_of, corpora_of_recipe, lab_recipe, member_times
from replication.profile import load_profile
from replication.recorded import UNTOUCHED, is_recorded, recorded_models, recorded_times, write_recorded
from replication.results import SMALLEST, UNINFORMATIVE, UNSHOWN, verdict

LABELS = np.repeat([1, 0], 100)
PLACE = Target(model="m", benchmark="b")


def scores_at(shift, seed):
    """Random scores with the members `shift` standard deviations higher."""
    return np.random.default_rng(seed).normal(size=200) + shift * LABELS


def claim_of(*, settings=None, **fields):
    """A file of one claim, ppl against min_k, with other fields."""
    claim = {"id": "x", "paper": "p", "claim": "c", "published": "p", "fixed": "before", "where": ["here"]}
    claim |= {"a": {"detector": "ppl"}, "against": [{"detector": "min_k"}], "expect": "greater"}
    return {
        "settings": settings or {"here": {"model": "m", "benchmark": "b", "corpus": "c"}},
        "claims": [claim | fields],
    }


def load_written(written, tmp_path):
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(written))
    return load_claims(tmp_path / "claims.yml")


def trained_corpora(model):
    recipe = lab_recipe(model)
    return trained_corpora(recipe.base) if isinstance(recipe, Unlearning) else corpora_of_recipe(recipe)


def test_every_claim_names_models_benchmarks_and_detectors_that_exist():
    claims, profile = load_claims(), load_profile(ROOT / "data" / "profiles" / "lab.yml")
    ids = [claim.id for claim in claims.claims]
    assert len(set(ids)) == len(ids)
    for name, setting in claims.settings.items():
        if is_recorded(setting.model):
            assert {setting.model, setting.reference.removesuffix(UNTOUCHED)} <= set(recorded_models()), name
            continue
        assert {setting.model, setting.reference or setting.model} <= set(profile.models)
        corpora = corpora_of(setting.benchmark)
        assert set(corpora) <= set(profile.corpora)
        assert len({profile.corpora[corpus].language for corpus in corpora}) == 1
        assert set(trained_corpora(setting.model)) & set(corpora)
        assert setting.masked is None or profile.models[setting.masked].masked
    for claim, setting in claims.tests():
        assert (claim.margin is not None) == (claim.expect == "equivalent")
        for side in claim.sides:
            if side == "chance":
                continue
            if side.detector == "probe":
                source = side.training.removeprefix("sampled:").removesuffix(":reference")
                known = {**profile.models, **profile.corpora}
                assert source in ({claim_tests.AS_RECORDED} if setting == "English real" else known), claim.id
            else:
                assert set(side.resolved_options()) <= set(DETECTORS[side.detector].hyperparameters), claim.id
            assert side.detector != "neighbor" or claims.settings[setting].masked
            assert set(side.model.values()) <= {*profile.models, *recorded_models()}
            assert {*side.model, *side.n_words} <= set(claim.where), "a setting that it is not tested in"
            assert side.part is None or setting in side.n_words, "a part of a document has a number of words"
            place = claims.settings[setting]
            model = side.model.get(setting, place.model)
            if is_recorded(model):
                assert recorded_times(model, load_benchmark(place.benchmark).texts).any()
                continue
            assert set(trained_corpora(model)) & set(corpora_of(place.benchmark)), "members are of its training set"


def test_groups_of_members_are_those_that_the_recipes_treat_alike():
    claims, profile = load_claims(), load_profile(ROOT / "data" / "profiles" / "lab.yml")
    n_grouped = 0
    for claim, setting in claims.tests():
        place = claims.settings[setting]
        recipe = None if is_recorded(place.model) else profile.models[place.model].recipe
        for group in (claim.positive, claim.negative):
            if group.group is None:
                continue
            n_grouped += 1
            if is_recorded(place.model):
                benchmark = load_benchmark(place.benchmark)
                times = recorded_times(place.model, benchmark.texts)[group.indices(benchmark.labels)]
                assert len(set(times.tolist())) == 1, claim.id
            elif isinstance(recipe, Unlearning):
                n_members = profile.corpora[claims.settings[setting].benchmark].members
                assert group.group[0] == 1 and n_members // group.group[1] == recipe.texts
            else:
                n_members = profile.corpora[claims.settings[setting].benchmark].members
                times = np.array(member_times(recipe, n_members))
                assert len(set(times[group.indices(np.ones(n_members, int))].tolist())) == 1, claim.id
    assert n_grouped >= 4


@pytest.mark.parametrize("n", [7, 20, 500])
def test_groups_are_those_of_training(n):
    recipe = Training(corpus="c", layers=1, hidden_size=8, heads=1, member_repeats=(1, 2, 4, 8, 16, 32, 64))
    times = np.array(member_times(recipe, n))
    labels = np.random.default_rng(0).permutation(np.repeat([1, 0], [n, 2 * n]))
    members, non_members = (np.flatnonzero(labels == label) for label in (1, 0))
    for number, repeats in enumerate(recipe.member_repeats, start=1):
        found = Group(of="members", group=(number, 7)).indices(labels)
        assert found.tolist() == members[times == repeats].tolist()
    assert Group(of="members").indices(labels).tolist() == members.tolist()
    assert Group(of="non-members").indices(labels).tolist() == non_members.tolist()
    assert Group(of="non-members", group=(2, 2)).indices(labels).tolist() == non_members[n:].tolist()


def test_the_hash_of_a_test_changes_with_the_test_and_not_with_its_wording(tmp_path):
    def hash_with(**change):
        claims = load_written(claim_of(**change), tmp_path)
        return claims.test_hash(claims.claims[0], "here")

    plain = hash_with()
    for wording in ({"claim": "Other words."}, {"published": "q"}, {"fixed": "after seed 0"}, {"id": "y"}):
        assert hash_with(**wording) == plain
    changes = [
        {"positive": {"of": "members", "group": [1, 7]}},
        {"positive": {"of": "members", "group": [2, 7]}},
        {"negative": {"of": "members", "group": [2, 7]}},
        {"a": {"detector": "min_k", "options": {"k": 10}}},
        {"a": {"detector": "min_k", "options": {"k": [10]}}},
        {"a": {"detector": "min_k", "options": {"k": [10, 20]}}},
        {"a": {"detector": "min_k", "options": "grid"}},
        {"a": {"detector": "min_k", "n_words": {"here": 8}}},
        {"a": {"detector": "min_k", "n_words": {"here": 8}, "part": "head"}},
        {"a": {"detector": "min_k", "model": {"here": "other"}}},
        {"a": {"detector": "dc_pdd", "corpus": "other"}},
        {"against": ["chance"]},
        {"against": ["chance", {"detector": "min_k"}]},
        {"settings": {"here": {"model": "other", "benchmark": "b"}}},
    ]
    hashes = [plain, *(hash_with(**change) for change in changes)]
    assert len(set(hashes)) == len(hashes)


def test_the_hash_of_a_grid_is_that_of_its_values(tmp_path, monkeypatch):
    claims = load_written(claim_of(a={"detector": "min_k", "options": "grid"}), tmp_path)
    before = claims.test_hash(claims.claims[0], "here")
    monkeypatch.setitem(DETECTORS, "min_k", replace(DETECTORS["min_k"], grid={"k": [10, 20]}))
    assert claims.test_hash(claims.claims[0], "here") != before


def test_no_change_of_grid_or_test_goes_unseen(tmp_path):
    settings = {name: {"model": "m", "benchmark": "b"} for name in ("here", "there")}
    against = [{"detector": "zlib", "only": ["there"]}, {"detector": "min_k", "printed": ["Min-K", ""]}, "chance"]
    claims = load_written(claim_of(settings=settings, where=["here", "there"], against=against), tmp_path)
    names = {n: [getattr(side, "detector", side) for side in claim.against] for claim, n in claims.tests()}
    assert names == {"here": ["min_k", "chance"], "there": ["zlib", "min_k", "chance"]}
    plain = load_written(claim_of(against=[{"detector": "min_k"}, "chance"]), tmp_path)
    assert claims.claims[0].at("here").against[0].resolved() == plain.claims[0].against[0].resolved()
    change = {"date": "2026-11-20", "what": "w", "why": "y", "seen": "s"}
    was = {"against": ["chance"], "fixed": "before"}
    written = claim_of(fixed="after seed 0", history=[change | {"was": was}, change | {"date": "2026-11-21"}])
    claims = load_written(written, tmp_path)
    [(now, _), (former, setting)] = claims.tests()
    assert now.id == "x" and now.against != ("chance",) and not now.former_of
    assert (former.id, former.former_of, setting) == ("x until 2026-11-20", "x", "here")
    assert former.against == ("chance",) and former.fixed == "before" and len(former.history) == 1


def judged_beside(tmp_path, leads, shifts, n_seeds=3, **fields):
    """A claim against as many others as there are printed leads, where the sides are shifted by `shifts`."""
    claim = load_written(claim_of(against=["chance"] * len(leads), **fields), tmp_path).claims[0]
    seeds = [SeedScores(s, np.array([scores_at(x, s) for x in shifts]), "t") for s in range(n_seeds)]
    return claim, seeds, tuple((printed_leads.Lead("c", lead, (error, error)),) for lead, error in leads)


@pytest.mark.parametrize(
    ("lead", "error", "size", "says"),
    [
        (0.24, 0.01, "as printed", "supported"),
        (0.9, 0.01, "smaller than printed", "supported"),
        (0.02, 0.01, "larger than printed", "supported"),
        (0.02, 0.02, "larger than printed", UNSHOWN),  # 1.53 errors are shown in a third of samples
    ],
)
def test_a_verdict_says_how_the_lead_compares_with_the_printed_one(tmp_path, monkeypatch, lead, error, size, says):
    claim, seeds, leads = judged_beside(tmp_path, [(lead, error)], (1, 0))
    monkeypatch.setattr(judging, "leads_of", lambda claim: leads)
    judgement = judge(claim, "here", PLACE, LABELS, seeds)
    assert (judgement.sizes, judgement.verdict, judgement.flat_verdict) == ((size,), says, "supported")
    [cell] = claims.claims_table([judgement]).data[claims.DIFFERENCE]
    assert f"against chance ({size}: {lead:+.3f}; " in cell


def test_half_of_the_smallest_printed_lead_matters_where_that_is_less(tmp_path):
    claim = load_written(claim_of(), tmp_path).claims[0]
    leads = [printed_leads.Lead("c", lead, (0.001, 0.001)) for lead in (0.5, 0.003, -0.2)]
    assert judging.smallest_that_matters(claim, leads) == 0.0015
    assert judging.smallest_that_matters(claim, leads[:1]) == judging.smallest_that_matters(claim, []) == SMALLEST
    close = Interval(0.002, 0.0005, 0.0035)
    comparisons = [replace(compare_auc_over_seeds(LABELS, [LABELS], [LABELS]), difference=close)]
    assert judging.verdicts_of(claim, comparisons, [leads]) == ["supported"]
    assert judging.verdicts_of(claim, comparisons, [()]) == ["no difference that matters"]


def test_claims_are_counted_by_each_criterion_and_their_repetitions_apart(tmp_path):
    one = claim_of()["claims"][0]
    others = [one | {"id": "y", "repeats": "x"}, one | {"id": "z", "expect": "equivalent", "margin": 0.05}]
    stated = load_written(claim_of() | {"claims": [one, *others]}, tmp_path)
    shifts, judgements = {"x": (1, 0), "y": (0, 1), "z": (0, 1)}, []
    for claim in stated.claims:
        seeds = [SeedScores(s, np.array([scores_at(x, s) for x in shifts[claim.id]]), "t") for s in range(3)]
        judgements.append(judge(claim, "here", PLACE, LABELS, seeds))
    counted = claims.tally_table(judgements)
    assert counted["holds"].tolist() == [1, 1, 1, 0, 0] and counted["of claims"].tolist() == [2, 2, 2, 0, 0]
    assert claims.tiles(judgements) == {claims.OTHERS: ["supported", "not supported"]}
    [(name, row)] = claims.spread_table(judgements).T.items()
    assert (name, row["verdicts"]) == ("x", "1 supported, 1 not supported")


def test_seeds_that_vary_more_than_texts_do_are_told(tmp_path):
    claim = load_written(claim_of(), tmp_path).claims[0]
    for shifts, dominate in (((0.1, 1, 2), True), ((1, 1, 1), False)):
        seeds = [SeedScores(s, np.array([scores_at(x, 7), scores_at(0, 8)]), "t") for s, x in enumerate(shifts)]
        judgement = judge(claim, "here", PLACE, LABELS, seeds)
        assert judgement.seeds_dominate is dominate
        [verdict] = claims.claims_table([judgement]).data["verdict"]
        assert ("which vary more than texts do" in verdict) is dominate


def test_most_of_several_are_more_than_half(tmp_path):
    each, most = (load_written(claim_of(most=most), tmp_path).claims[0] for most in (False, True))
    yes, no = "supported", "not supported"
    for verdicts, of_most in (([yes, yes, no], yes), ([yes, no], no), ([yes, yes, no, no], no), ([yes], yes)):
        assert judging.together(most, verdicts) == of_most
        assert judging.together(each, verdicts) == (no if no in verdicts else yes)
    assert judging.together(most, [yes, yes, "inconclusive", no]) == "inconclusive"


FINGERPRINT = ROOT / "tests" / "claims_fingerprint.json"


def test_no_test_changes_without_its_history():
    """Each claim's test as it stands, and how many changes its history has, beside what is committed."""
    stated = load_claims()
    now = {claim.id: fingerprint_of(stated, claim) for claim in stated.claims}
    committed = json.loads(FINGERPRINT.read_text())
    assert not committed.keys() - now.keys(), "a claim is gone; a test that was judged stays in the book"
    for name, (test, settings, changes) in committed.items():
        is_same = now[name][0] == test and settings.items() <= now[name][1].items()  # one setting more is a test more
        assert is_same or now[name][2] > changes, f"{name}: its test has changed, its history has not"
    assert now == committed, f"after a change with its history, or a new claim, write {FINGERPRINT.name} anew: {now}"


def fingerprint_of(stated, claim):
    """What decides a claim's verdict, and what had been seen; not its wording, nor a published number."""
    decides = {"fixed", "positive", "negative", "metric", "expect", "margin", "matters"}
    settings = {name: hash_of(stated.settings[name].model_dump(exclude_defaults=True)) for name in claim.where}
    sides = [side if side == "chance" else [side.resolved(), list(side.only)] for side in claim.sides]
    decides |= {name for name in ("most", "confounded", "control") if getattr(claim, name)}
    decided = claim.model_dump(mode="json", include=decides)
    return [hash_of([decided, sides]), settings, len(claim.history)]


def test_every_claim_about_a_table_finds_its_leads_there():
    n_leads = {claim.id: [len(leads) for leads in judging.leads_of(claim)] for claim in load_claims().claims}
    assert n_leads["dc-pdd-beats-all-baselines"] == [7, 5, 7, 6, 7, 6], "as many columns as print both"
    assert n_leads["surp-beats-min-k"] == n_leads["surp-rises-with-length"] == [6]
    assert n_leads["probe-leads-on-contamination"] == [1] * 6 and n_leads["lup-helps"] == [0]
    by_id = {claim.id: claim for claim in load_claims().claims}
    [[large]] = judging.leads_of(by_id["surp-rises-with-size"])
    assert large.lead == pytest.approx(0.698 - 0.633)
    [head, tail] = judging.leads_of(by_id["middle-is-easiest"])
    assert [lead.lead for lead in head] == pytest.approx([0.640 - 0.634, 0.649 - 0.627])
    assert min(lead.lead for lead in tail) == pytest.approx(0.038)
    assert not any(by_id[claim.repeats].repeats for claim in by_id.values() if claim.repeats)


def judged(shifts, *, n_seeds=3, tmp_path, **test):
    """The verdict where side a is shifted by shifts[0] and what it is held against by the others."""
    claim = load_written(claim_of(against=["chance"] * (len(shifts) - 1), **test), tmp_path).claims[0]
    base = scores_at(0, 0)
    seeds = [
        SeedScores(s, np.array([base + 0.1 * scores_at(0, s) + shift * LABELS for shift in shifts]), "texts")
        for s in range(n_seeds)
    ]
    return judge(claim, "here", PLACE, LABELS, seeds).verdict


@pytest.mark.parametrize(
    ("shifts", "test", "expected"),
    [
        ([2, 0], {}, "supported"),
        ([2, 0], {"n_seeds": 2}, "inconclusive"),
        ([0, 2], {}, "not supported"),
        ([1, 1], {}, "no difference that matters"),
        ([2, 0, 1], {}, "supported"),
        ([2, 0, 3], {}, "not supported"),  # one of two fails
        ([1, 1.01], {"expect": "equivalent", "margin": 0.05}, "supported"),
        ([2, 0], {"expect": "equivalent", "margin": 0.05}, "not supported"),
        ([1, 0.98], {"matters": 0.1}, "no difference that matters"),
        ([2, 0, 1.98], {"matters": 0.1}, "no difference that matters"),  # one of two matters
        ([1, 0.98, 3], {"matters": 0.1}, "not supported"),
    ],
)
def test_verdict_over_seeds(shifts, test, expected, tmp_path):
    assert judged(shifts, tmp_path=tmp_path, **test) == expected


@pytest.mark.parametrize(
    ("shifts", "test", "expected"),
    [
        ((0, 0.01), {"expect": "equivalent", "margin": 0.15}, True),
        ((2, 2), {"expect": "equivalent", "margin": 0.05}, False),
        ((0, 2), {"expect": "equivalent", "margin": 0.05}, False),  # one of them finds something
        ((-2, 0), {"expect": "equivalent", "margin": 0.05}, False),  # and so it does below 0.5
        ((0, 0), {}, False),  # no equality is claimed
        ((0, 0), {"expect": "equivalent", "margin": 0.05, "against": ["chance"]}, False),  # chance is what is claimed
        ((0, 0.01), {"expect": "equivalent", "margin": 0.01}, False),  # the intervals contain 0.5, and reach further
    ],
)
@pytest.mark.parametrize("n_folds", [1, 5])
def test_an_equality_of_sides_at_chance_is_named(shifts, test, expected, n_folds, tmp_path):
    written = claim_of(**({"against": [{"detector": "zlib"}]} | test))
    claim = load_written(written, tmp_path).claims[0]
    val_idx = [val_idx for val_idx, _ in folds(LABELS)] if n_folds > 1 else [[]]
    seeds = [SeedScores(s, np.empty((2, n_folds, len(LABELS))), "texts") for s in range(3)]
    for seed in seeds:
        for side, shift in enumerate(shifts):
            seed.scores[side] = scores_at(shift, 10 + seed.seed)
            for f, texts in enumerate(val_idx):
                seed.scores[side, f, texts] = np.nan
    judgement = judge(claim, "here", PLACE, LABELS, seeds)
    assert (judgement.verdict == UNINFORMATIVE) is expected
    [verdict] = claims.claims_table([judgement]).data["verdict"]
    assert ("uninformative (all at chance)" in verdict) is expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.02, 0.04, "inconclusive"),
        (-0.0018, -0.0001, "no difference that matters"),
        (0.0001, 0.009, "no difference that matters"),
        (0.0001, 0.011, "supported"),
        (-0.011, -0.0001, "not supported"),
    ],
)
def test_a_difference_within_what_matters_is_none(low, high, expected):
    interval = Interval((low + high) / 2, low, high)
    assert verdict(interval, matters=SMALLEST) == expected
    plain = verdict(interval)
    assert plain == ("supported" if low > 0 else "not supported" if high < 0 else "inconclusive")


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
    live = score_claim(claims, claims.claims[0], "here", seed=0)
    # A folder has one training seed only; what is recorded for another is that of the same weights here.
    monkeypatch.setattr(judging, "weights_of", lambda *names: str(names))
    monkeypatch.setattr(judging, "claim_scores", lambda c, claim, setting, seed=0: replace(live, seed=seed))
    path = tmp_path / "recorded.parquet"
    write_recorded(path, judging.seed_rows(claims, [0, 1, 2]))
    test = claims.test_hash(claims.claims[0], "here")
    [_, (first, row), (second, _)] = load_recorded("x", "here", test, path)
    assert (first.seed, second.seed) == (1, 2) and row["test"] == test
    assert json.loads(row["versions"]) == claim_tests.versions_behind_test(claims.claims[0])
    np.testing.assert_allclose(first.scores, live.scores, rtol=1e-6)
    assert not load_recorded("x", "there", test, path)
    assert not load_recorded("x", "here", test, tmp_path / "none.parquet")
    [judgement] = judging.judge_all(claims, path)
    assert judgement.seeds == (0, 1, 2) and not judgement.left_out
    with monkeypatch.context() as patch:
        patch.setattr(judging, "weights_of", lambda *_: "of another processor")
        [other] = judging.judge_all(claims, path)
    [why] = other.left_out
    assert other.seeds == (0, 1, 2) and "seed 0" in why and "weights" in why
    with monkeypatch.context() as patch:
        patch.setitem(VERSIONS, "scoring", 7)
        [other] = judging.judge_all(claims, path)
    assert other.seeds == (0,) and other.left_out[1].endswith("(scoring 1, now 7)")
    with monkeypatch.context() as patch:  # of a detector that is no side of the claim
        patch.setitem(DETECTORS, "zlib", replace(DETECTORS["zlib"], version=7))
        [other] = judging.judge_all(claims, path)
    assert other.seeds == (0, 1, 2)

    written["claims"][0]["against"] = [{"detector": "zlib"}]
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(written))
    [judgement] = judging.judge_all(load_claims(tmp_path / "claims.yml"), path)
    assert judgement.seeds == (0,) and judgement.verdict == "inconclusive"
    assert judgement.left_out == tuple(f"seed {seed}: recorded for another test" for seed in (0, 1, 2))


@pytest.fixture
def here(model_folder, benchmark_file):
    """A setting of the tiny model and sixteen texts, and its inputs."""
    [target] = pages.targets(model_folder, benchmark_file)
    return {"here": {"model": model_folder, "benchmark": benchmark_file}}, load_inputs(target)


def scored(here, tmp_path, **fields):
    claims = load_written(claim_of(settings=here[0], **fields), tmp_path)
    claim = claims.claims[0]
    return judged_texts(claims, claim, "here").labels, score_claim(claims, claim, "here", seed=0)


def test_sides_are_scored_on_the_groups_in_their_order(tmp_path, here):
    labels, found = scored(here, tmp_path, against=["chance", {"detector": "min_k"}])
    assert len(labels) == 16 and not found.scores[1].any() and found.scores[2].all()
    positive, negative = {"of": "members", "group": [2, 2]}, {"of": "members", "group": [1, 4]}
    labels, found = scored(here, tmp_path, positive=positive, negative=negative)
    members = np.flatnonzero(here[1].labels == 1)
    assert labels.tolist() == [1] * 4 + [0] * 2
    for [row], name in zip(found.scores, ["ppl", "min_k"], strict=True):
        np.testing.assert_allclose(row, scores_of(here[1], name)[[*members[4:], *members[:2]]])


@pytest.mark.parametrize(
    ("detector", "options"),
    [
        ("min_k", {"k": [10, 50, 100]}),
        ("surp", {"entropy_threshold": [4.5, 5.0, 5.5], "k": 100}),
        ("surp", {"entropy_threshold": float("inf"), "k": [20, 60]}),
        ("surp", "grid"),
    ],
)
def test_options_are_chosen_on_each_fifth_and_all_sides_judged_on_the_others(tmp_path, here, detector, options):
    side = {"detector": detector, "options": options}
    labels, found = scored(here, tmp_path, a=side, against=[{"detector": "ppl"}, "chance"])
    texts = np.argsort(-here[1].labels, kind="stable")  # members, then non-members
    assert labels.tolist() == here[1].labels[texts].tolist() and found.scores.shape == (3, 5, 16)
    grid = DETECTORS[detector].grid if options == "grid" else options
    lists = {name: value if isinstance(value, list) else [value] for name, value in grid.items()}
    candidates = [
        scores_of(here[1], detector, **dict(zip(lists, values, strict=True)))[texts]
        for values in product(*lists.values())
    ]
    for f, (val_idx, test_idx) in enumerate(folds(labels)):
        best = max(candidates, key=lambda scores: auc(labels[val_idx], scores[val_idx]))
        np.testing.assert_allclose(found.scores[0, f, test_idx], best[test_idx], atol=1e-12)
        ppl = scores_of(here[1], "ppl")[texts]
        np.testing.assert_allclose(found.scores[1, f, test_idx], ppl[test_idx])
        assert not found.scores[2, f, test_idx].any()
        assert np.isnan(found.scores[:, f, val_idx]).all(), "a text that was chosen on is not judged"


def test_a_probe_is_one_of_the_candidates_of_each_fifth(tmp_path, tiny_model, benchmark_file):
    """Learning rate and layer are chosen like any grid, and both sides are judged on the same texts."""
    unseen = tmp_path / "unseen.txt"
    unseen.write_text("".join(f"The stone number {i} stands {7 * i} miles behind the old mill\n" for i in range(12)))
    folder = tiny_model("gpt_neox", max_position_embeddings=512)
    here = {"here": {"model": folder, "benchmark": benchmark_file, "n_words": 4}}
    written = claim_of(settings=here, a={"detector": "probe", "training": str(unseen), "n_training": 8})
    claims = load_written(written, tmp_path)
    found = score_claim(claims, claims.claims[0], "here", 0)
    labels = judged_texts(claims, claims.claims[0], "here").labels
    assert found.scores.shape == (2, 5, len(labels))
    benchmark = load_benchmark(benchmark_file, 4)
    texts = load_unseen(str(unseen), benchmark, 8)
    candidates = probe.probe_candidates(*fitted(probe.collect(folder, benchmark.texts, texts)))
    order = np.argsort(-benchmark.labels, kind="stable")  # members first
    for f, (val_idx, test_idx) in enumerate(folds(labels)):
        expected = candidates.take(order).scores[candidates.take(order).best(labels, val_idx)]
        np.testing.assert_array_equal(found.scores[0, f, test_idx], expected[test_idx])
        assert np.isnan(found.scores[:, f, val_idx]).all()


def test_each_training_seed_draws_the_probes_texts_and_coin_anew(monkeypatch, benchmark_file):
    drawn = []
    monkeypatch.setattr(claim_tests, "load_unseen", lambda *given: drawn.append(("texts", given[3])) or ["a"])
    monkeypatch.setattr(
        claim_tests, "collect", lambda *_, seed: drawn.append(("coin", seed)) or probe.Collected({}, None, None)
    )
    monkeypatch.setattr(claim_tests, "probe_candidates", lambda *_: None)
    side = claim_tests.Side(detector="probe", training="somewhere")
    target = pages.targets("m", benchmark_file)[0]
    for seed in (0, 2):
        claim_tests._candidates(target, side, seed)
    assert drawn == [("texts", 0), ("coin", 0), ("texts", 2), ("coin", 2)]


def test_equal_sides_of_two_claims_are_scored_once(monkeypatch, benchmark_file):
    sides = [{"detector": "min_k", "options": {"k": k}, "n_words": {"here": 9}} for k in ([10, 20], [10, 20], [10, 30])]
    asked = []
    monkeypatch.setattr(claim_tests, "_grid_candidates", lambda inputs, side: asked.append(side) or len(asked))
    target = pages.targets("m", benchmark_file)[0]
    found = [claim_tests._candidates(target, claim_tests.Side(**side), 0) for side in sides]
    assert found == [1, 1, 2]


def test_the_hash_of_a_probes_test_changes_with_what_the_probe_is(monkeypatch):
    claims = load_claims()
    [claim] = [claim for claim in claims.claims if claim.id == "probe-beats-chance"]
    before = claims.test_hash(claim, "Short English")
    for name, value in (("LEARNING_RATES", (1.0,)), ("EPOCHS", 3), ("PROMPT", "?")):
        with monkeypatch.context() as patch:
            patch.setattr(claim_tests, name, value)
            assert claims.test_hash(claim, "Short English") != before


def fitted(collected):
    return probe.fit_probes(collected.proxies, collected.coin), collected.target


def test_neighbors_are_those_of_the_cut_texts(tmp_path, model_folder, masked_folder, benchmark_file):
    here = {"model": model_folder, "benchmark": benchmark_file, "n_words": 4, "masked": masked_folder, "n_neighbors": 3}
    here = {"here": here}
    claims = load_written(claim_of(settings=here, a={"detector": "neighbor"}), tmp_path)
    found = score_claim(claims, claims.claims[0], "here", 0)
    target = Target(model=model_folder, benchmark=benchmark_file, masked=masked_folder, n_neighbors=3)
    inputs, _ = cut_inputs(load_inputs(target), 4)
    order = np.argsort(-inputs.labels, kind="stable")
    np.testing.assert_array_equal(found.scores[0, 0], scores_of(inputs, "neighbor")[order])


@pytest.mark.parametrize("part", ["head", "middle", "tail", "all", None])
def test_a_side_is_a_part_of_each_text_or_a_cut_of_it(tmp_path, here, part):
    side = {"detector": "ppl", "n_words": {"here": 3}, "part": part}
    _, found = scored(here, tmp_path, a=side)
    texts = np.argsort(-here[1].labels, kind="stable")
    if part is None:
        expected = scores_of(cut_inputs(here[1], 3)[0], "ppl")
    else:  # nine words: "The stone number", "1 stands near", "the old Mill"
        whole = scores_of(load_inputs(here[1].target.but(n_words=3, part="all")), "ppl").reshape(16, 3)
        expected = {"head": whole[:, 0], "middle": whole[:, 1], "tail": whole[:, 2], "all": whole.mean(axis=1)}[part]
    np.testing.assert_allclose(found.scores[0, 0], expected[texts], atol=1e-5)
    np.testing.assert_allclose(found.scores[1, 0], scores_of(here[1], "min_k")[texts], atol=1e-5)


def test_a_page_that_names_an_unknown_claim_is_an_error():
    with pytest.raises(ValueError, match=r"claims\.yml: .*'surp-is-magic'"):
        judge_on(["another/model"], ["surp-beats-min-k", "surp-is-magic"])


def test_a_page_judges_its_claims_in_the_settings_of_its_models(tmp_path, monkeypatch):
    settings = {name: {"model": f"m/{name}", "benchmark": "b"} for name in ("one", "two", "three")}
    written = claim_of(settings=settings, where=["one", "two"])
    written["claims"].append(written["claims"][0] | {"id": "y", "where": ["two", "three"]})
    claims = load_written(written, tmp_path)
    monkeypatch.setattr(judging, "load_claims", lambda: claims)
    monkeypatch.setattr(judging, "RECORDED_FILE", tmp_path / "none.parquet")
    live = SeedScores(0, np.array([[scores_at(2, 0)], [scores_at(0, 0)]]), "texts")
    texts = claim_tests.JudgedTexts(np.arange(len(LABELS)), LABELS, [], "texts")
    monkeypatch.setattr(judging, "judged_texts", lambda *_: texts)
    monkeypatch.setattr(judging, "claim_scores", lambda *_, **__: live)

    def judged_on(*about):
        return [(j.claim.id, j.setting) for j in judge_on(*about)]

    assert judged_on(["m/two"], ["x", "y"]) == [("x", "two"), ("y", "two")]
    assert judged_on(["m/one", "m/three"], ["y"]) == [("y", "three")]
    assert judged_on(["m/one", "m/two", "m/three"], ["x"]) == [("x", "one"), ("x", "two")]


def test_a_seed_that_is_not_recorded_is_scored_once_a_test(here, tmp_path, monkeypatch):
    stated, none = load_written(claim_of(settings=here[0], against=["chance"]), tmp_path), tmp_path / "none.parquet"
    labels, [first], _ = judging.seeds_of(stated, stated.claims[0], "here", none)
    expected = score_claim(stated, stated.claims[0], "here", seed=0)
    assert labels.tolist() == [1] * 8 + [0] * 8 and first.texts == expected.texts
    np.testing.assert_array_equal(first.scores, expected.scores)
    calls = []
    monkeypatch.setattr(claim_tests, "score_claim", lambda *given, **_: calls.append(given) or expected)
    judging.seeds_of(stated, stated.claims[0], "here", none)
    assert not calls
    other = load_written(claim_of(settings=here[0], against=[{"detector": "zlib"}]), tmp_path)
    judging.seeds_of(other, other.claims[0], "here", none)
    assert len(calls) == 1


def test_what_is_recorded_of_the_lab_is_judged_without_a_model_or_a_text(tmp_path, monkeypatch):
    """All seeds, the stored one too, come from the file; nothing is loaded, read or scored for a verdict."""

    def never(*_, **__):
        raise AssertionError("this takes a text or a model")

    for module, name in ((LabCorpus, "read"), (judging, "claim_scores"), (claim_tests, "load_benchmark")):
        monkeypatch.setattr(module, name, never)
    stated = load_claims()
    claim, setting = next(test for test in stated.tests() if test[1] == "Small English")
    texts = judged_texts(stated, claim, setting)
    scores = np.tile(np.where(texts.labels == 1, 1.0, 0.0), (len(claim.sides), len(texts.runs), 1))
    row = {"claim": claim.id, "setting": setting, "test": stated.test_hash(claim, setting), "texts": texts.made_of}
    row["weights"] = judging.weights_of(*stated.models(claim, setting))
    row["versions"] = json.dumps(claim_tests.versions_behind_test(claim))
    rows = [row | {"seed": s, "scores": [list(of) for of in scores]} for s in range(3)]
    write_recorded(tmp_path / "claims.parquet", rows)
    judgement = judging.judge_one(stated, claim, setting, tmp_path / "claims.parquet")
    assert judgement.seeds == (0, 1, 2) and not judgement.left_out


@pytest.mark.parametrize(
    ("shifts", "test", "says"),
    [
        ((1, 1, 1), {"control": {"detector": "zlib"}}, ("uninformative", "its control lies within the margin, too")),
        ((1, 1, 0), {"control": {"detector": "zlib"}}, ("supported", "")),
        ((1, 0, 0), {"control": {"detector": "zlib"}}, ("not supported", "")),  # an equality that fails says something
        ((1, 0, 1), {"control": {"detector": "zlib"}}, ("not supported", "")),  # whatever its control does
        ((1, 0, 1), {"confounded": "another cause"}, ("confounded", "another cause")),
    ],
)
def test_a_control_that_does_as_well_and_another_cause_are_verdicts(shifts, test, says, tmp_path, monkeypatch):
    stated = load_written(claim_of(expect="equivalent", margin=0.05, **test), tmp_path)

    def seeds_of(stated, claim, setting, path):
        """Three seeds of the test, one of its control."""
        of_control = claim.against[0].detector == "zlib"
        of = [scores_at(0, 0) + shift * LABELS for shift in (shifts[0], shifts[2 if of_control else 1])]
        n_seeds = 1 if of_control else 3
        return LABELS, [SeedScores(s, np.array(of) + 0.05 * scores_at(0, s + 1), "t") for s in range(n_seeds)], []

    monkeypatch.setattr(judging, "seeds_of", seeds_of)
    judgement = judging.judge_one(stated, stated.claims[0], "here")
    assert (judgement.verdict, judgement.because) == says
    [row] = claims.claims_table([judgement]).data.to_dict("records")
    assert says[1] in row["verdict"] and (", the control" in row[claims.DIFFERENCE]) is ("control" in test)


def test_a_side_without_a_corpus_has_all_tokens_alike(tmp_path, model_folder, benchmark_file):
    (tmp_path / "corpus.txt").write_text("The old Mill stands near the stone.")
    place = {"model": model_folder, "benchmark": benchmark_file, "corpus": str(tmp_path / "corpus.txt")}
    against = [{"detector": "dc_pdd", "corpus": "none"}]
    claims = load_written(claim_of(settings={"here": place}, a={"detector": "dc_pdd"}, against=against), tmp_path)
    counted, alone = score_claim(claims, claims.claims[0], "here", 0).scores[:, 0]
    inputs = load_inputs(Target(**place))
    alike = replace(inputs["frequency"], counts=np.zeros_like(inputs["frequency"].counts))
    order = np.argsort(-inputs.labels, kind="stable")
    np.testing.assert_allclose(alone, scores_of(inputs.given(frequency=alike), "dc_pdd")[order])
    np.testing.assert_allclose(counted, scores_of(inputs, "dc_pdd")[order])
    assert len(claim_tests.determined_by(claims, claims.claims[0], "here")["corpora"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "setting"), [("surp-beats-min-k", "Chinese"), ("contamination-shows-with-repeats", "Repeats")]
)
def test_what_is_recorded_is_what_the_stored_models_give_today(claim, setting):
    stated = load_claims()
    [test] = [one.at(setting) for one in stated.claims if one.id == claim]
    hashed = stated.test_hash(test, setting)
    [recorded] = [seed for seed, row in load_recorded(claim, setting, hashed) if row["seed"] == 0]
    live = score_claim(stated, test, setting, 0)
    assert live.texts == recorded.texts
    np.testing.assert_allclose(live.scores, recorded.scores, atol=1e-3)


def test_the_fifths_that_chose_differently_widen_the_interval():
    rng = np.random.default_rng(0)
    base = np.full((5, 200), np.nan)
    for f, (_, test_idx) in enumerate(folds(LABELS)):
        base[f, test_idx] = rng.normal(size=200)[test_idx]
    alike, apart = base + LABELS, base + np.linspace(0, 2, 5)[:, None] * LABELS
    other = [np.where(np.isnan(base), np.nan, scores_at(0, 1))]
    width = [
        (c := compare_auc_over_seeds(LABELS, [a], other)).difference.high - c.difference.low for a in (alike, apart)
    ]
    assert width[1] > 1.5 * width[0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"surprise": 1}, "surprise"),
        ({"where": ["here", "there"]}, "claim x: .*'there'.*here"),
        ({"a": {"detector": "min_k", "options": "best"}}, "options"),
        ({"a": {"detector": "min_k", "part": "end"}}, "part"),
        ({"against": ["luck"]}, "against"),
        ({"against": [{"detector": "zlib", "only": ["there"]}]}, "claim x: .*'there'"),
        ({"positive": {"of": "members", "group": [0, 7]}}, "positive.group"),
        ({"positive": {"of": "members", "group": [8, 7]}}, "group 8 of 7"),
        ({"expect": "smaller"}, "expect"),
        ({"expect": "equivalent"}, "margin"),
        ({"margin": 0.1}, "margin"),
        ({"metric": "tpr_at_5_fpr", "against": ["chance"]}, "claim x: .*tpr_at_5_fpr"),
        ({"control": {"detector": "zlib"}}, "claim x: .*control"),
        ({"objection": "too small"}, "claim x: .*answer"),
        ({"a": {"detector": "ppl", "model": {"hree": "m"}}}, "'hree'"),
        ({"a": {"detector": "ppl", "part": "head"}}, "n_words .*'here'"),
        ({"a": {"detector": "ppl", "options": "grid"}}, "'ppl' .*grid"),
        ({"a": {"detector": "pl"}}, "'pl'"),
    ],
)
def test_a_claim_that_is_none_is_an_error_that_names_file_and_key(changes, named, tmp_path):
    with pytest.raises(ValueError, match=rf"claims\.yml: .*{named}"):
        load_written(claim_of(**changes), tmp_path)


def test_another_recipe_of_a_model_is_another_test(monkeypatch):
    claims, base = load_claims(), lab_recipe("lab/en-400k")
    [claim] = [claim for claim in claims.claims if claim.id == "unlearned-texts-are-found"]
    before, known = claims.test_hash(claim, "Unlearned"), lab_recipe
    assert claims.test_hash(claim, "Unlearned") == before
    changed = {"lab/en-400k": base.model_copy(update={"learning_rate": 0.5})}
    monkeypatch.setattr(lab_source, "lab_recipe", lambda name: changed.get(name) or known(name))
    assert claims.test_hash(claim, "Unlearned") != before, "the model that it was unlearned from is trained otherwise"
