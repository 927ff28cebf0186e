"""Claims as tests: the file, both sides' scores, recorded seeds, the rule of a verdict, and the tables."""

import json
from dataclasses import replace
from html import escape
from itertools import product

import numpy as np
import pytest

from mialib.attacks import probe
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS
from mialib.metrics import Comparison, Interval, auc, compare_auc
from mialib.model_selection import folds
from mialib.passes.inputs import Target, cut_inputs, load_inputs, scores_of
from mialib.store import ROOT, hash_of
from mialib.versions import VERSIONS
from replication import pages
from replication import recorded as recorded_files
from replication.builders.unseen import load_unseen
from replication.claims import answers, scores, spec, tables, verdict
from replication.claims.printed import Lead, leads_of
from replication.claims.scores import judged_texts, score_claim, seed_rows
from replication.claims.spec import Group, load_claims
from replication.claims.verdict import Measured, judge, judge_all, judge_on, judgement, measure_claim
from replication.lab import source as lab_source
from replication.lab.recipes import Training, Unlearning
from replication.lab.source import LabCorpus, corpora_of, corpora_of_recipe, lab_recipe, member_times
from replication.profile import load_profile
from replication.real import recorded_pairs
from replication.recorded import UNTOUCHED, is_recorded, recorded_models, write_recorded
from replication.results import NO_DIFFERENCE

LABELS = np.repeat([1, 0], 100)
PLACE = Target(model="m", benchmark="b")
CLAIMS = load_claims()


def stated(*, settings=None, more=(), **fields):
    """A file of one claim, ppl against min_k, with other fields; `more` says how further claims differ from it."""
    claim = {"id": "x", "paper": "p", "claim": "c", "published": "p", "fixed": "before", "where": ["here"]}
    claim |= {"a": {"detector": "ppl"}, "against": [{"detector": "min_k"}], "expect": "greater"} | fields
    settings = settings or {"here": {"model": "m", "benchmark": "b", "corpus": "c"}}
    return spec.Claims.model_validate(
        {
            "settings": settings,
            "in_words": dict.fromkeys(settings, "Here,"),
            "claims": [claim, *(claim | of for of in more)],
        }
    )


def claim_of(**fields):
    return stated(**fields).claims[0]


def scores_at(shift, seed):
    """Random scores with the members `shift` standard deviations higher."""
    return np.random.default_rng(seed).normal(size=200) + shift * LABELS


def seeds_at(*shifts, n=3):
    """Scores of n seeds, each side's members so many standard deviations higher, by noise that the sides share."""
    base = scores_at(0, 0)
    return {s: np.array([[base + 0.1 * scores_at(0, s) + shift * LABELS] for shift in shifts]) for s in range(n)}


def judged(shifts, *, n=3, of_control=(), **fields):
    """The judgement of a claim against as many others as there are further shifts."""
    claim = claim_of(**({"against": ["chance"] * (len(shifts) - 1)} | fields))
    measured = measure_claim(claim, LABELS, seeds_at(*shifts, n=n), seeds_at(*of_control, n=1) if of_control else {})
    return judgement(claim, "here", PLACE, measured)


# --- data/claims.yml ---


def trained_corpora(model):
    recipe = lab_recipe(model)
    return trained_corpora(recipe.base) if isinstance(recipe, Unlearning) else corpora_of_recipe(recipe)


def test_every_claim_names_models_benchmarks_and_detectors_that_exist():
    profile, ids = load_profile(ROOT / "data" / "profiles" / "lab.yml"), [claim.id for claim in CLAIMS.claims]
    assert len(set(ids)) == len(ids)
    assert {claim.repeats for claim in CLAIMS.claims} - {""} <= {c.id for c in CLAIMS.claims if not c.repeats}
    for name, setting in CLAIMS.settings.items():
        if is_recorded(setting.model):
            assert {setting.model, setting.reference.removesuffix(UNTOUCHED)} <= set(recorded_models()), name
            continue
        corpora = set(corpora_of(setting.benchmark))
        assert {setting.model, setting.reference or setting.model} <= set(profile.models)
        assert corpora <= set(profile.corpora) and len({profile.corpora[corpus].language for corpus in corpora}) == 1
        assert setting.masked is None or profile.models[setting.masked].masked
    for claim, setting in CLAIMS.tests():
        place = CLAIMS.settings[setting]
        for side in claim.scored:
            model = side.model.get(setting, place.model)
            if side.training:
                of = side.training.removeprefix("sampled:").removesuffix(":reference")
                assert of == "recorded" or of in {**profile.models, **profile.corpora}, claim.id
            else:
                assert set(side.resolved_options()) <= set(DETECTORS[side.detector].hyperparameters), claim.id
            assert side.detector != "neighbor" or place.masked
            if is_recorded(model):
                assert find(model).times_seen(load_benchmark(place.benchmark).texts).any()
            else:
                assert set(trained_corpora(model)) & set(corpora_of(place.benchmark)), "it has read the members"


def test_groups_of_members_are_those_that_the_recipes_treat_alike():
    profile = load_profile(ROOT / "data" / "profiles" / "lab.yml")
    grouped = [(c, s, of) for c, s in CLAIMS.tests() for of in (c.positive, c.negative) if of.group]
    assert len(grouped) >= 4
    for claim, setting, group in grouped:
        place = CLAIMS.settings[setting]
        if is_recorded(place.model):
            benchmark = load_benchmark(place.benchmark)
            times = find(place.model).times_seen(benchmark.texts)[group.indices(benchmark.labels)]
            assert len(set(times.tolist())) == 1, claim.id
            continue
        recipe, n_members = profile.models[place.model].recipe, profile.corpora[place.benchmark].members
        if isinstance(recipe, Unlearning):
            assert group.group[0] == 1 and n_members // group.group[1] == recipe.texts
        else:
            times = np.array(member_times(recipe, n_members))
            assert len(set(times[group.indices(np.ones(n_members, int))].tolist())) == 1, claim.id


def test_groups_are_those_of_training():
    recipe = Training(corpus="c", layers=1, hidden_size=8, heads=1, member_repeats=(1, 2, 4, 8, 16, 32, 64))
    n, times = 20, np.array(member_times(recipe, 20))
    labels = np.random.default_rng(0).permutation(np.repeat([1, 0], [n, 2 * n]))
    members, non_members = (np.flatnonzero(labels == label) for label in (1, 0))
    for number, repeats in enumerate(recipe.member_repeats, start=1):
        assert Group(of="members", group=(number, 7)).indices(labels).tolist() == members[times == repeats].tolist()
    assert Group(of="members").indices(labels).tolist() == members.tolist()
    assert Group(of="non-members", group=(2, 2)).indices(labels).tolist() == non_members[n:].tolist()


def test_no_test_changes_without_its_history():
    """Each claim's test as it is, and how many changes its history has, beside what data/recorded/claims.json has."""
    fixed = json.loads(tables.FORMER_FILE.read_text(encoding="utf-8"))["fixed"]
    now = {claim.id: [fingerprint(claim), len(claim.history)] for claim in CLAIMS.claims}
    assert not fixed.keys() - now.keys(), "a claim is gone; a test that was judged stays in the book"
    for name, (test, n_changes) in fixed.items():
        assert now[name][0] == test or now[name][1] > n_changes, f"{name}: its test has changed, its history has not"
    assert now == fixed, f"after a change with its history, or a new claim, write it into {tables.FORMER_FILE}: {now}"


def fingerprint(claim):
    """What decides a claim's verdict, and what had been seen; not its wording, nor a published number."""
    decides = {"fixed", "positive", "negative", "metric", "expect", "margin", "matters", "most", "confounded"}
    sides = [of if of == "chance" else [of.resolved(), of.only] for of in (*claim.sides, claim.control) if of]
    settings = {name: CLAIMS.settings[name].model_dump(exclude_defaults=True) for name in claim.where}
    decided = [claim.model_dump(mode="json", include=decides), sides, settings]
    return hash_of([*decided, *filter(None, [claim.uninformative])])


def test_every_claim_about_a_table_finds_its_leads_there():
    n_leads = {claim.id: [len(leads) for leads in leads_of(claim)] for claim in CLAIMS.claims}
    assert n_leads["dc-pdd-beats-all-baselines"] == [7, 5, 7, 6, 7, 6], "as many columns as print both"
    assert n_leads["surp-beats-min-k"] == n_leads["surp-rises-with-length"] == [6]
    assert n_leads["probe-leads-on-contamination"] == [1] * 6 and n_leads["lup-helps"] == [0]
    by_id = {claim.id: claim for claim in CLAIMS.claims}
    [[large]] = leads_of(by_id["surp-rises-with-size"])
    assert large.lead == pytest.approx(0.698 - 0.633)
    [head, tail] = leads_of(by_id["middle-is-easiest"])
    assert [lead.lead for lead in head] == pytest.approx([0.640 - 0.634, 0.649 - 0.627])
    assert min(lead.lead for lead in tail) == pytest.approx(0.038)


def test_a_side_with_only_is_compared_in_these_settings_alone():
    settings = {name: {"model": "m", "benchmark": "b"} for name in ("here", "there")}
    against = [{"detector": "zlib", "only": ["there"]}, {"detector": "min_k", "printed": ["Min-K", ""]}, "chance"]
    claims = stated(settings=settings, where=["here", "there"], against=against)
    names = {n: [getattr(side, "detector", side) for side in claim.against] for claim, n in claims.tests()}
    assert names == {"here": ["min_k", "chance"], "there": ["zlib", "min_k", "chance"]}


def test_the_hash_of_a_test_changes_with_the_test_and_not_with_its_wording(monkeypatch):
    def hash_with(**change):
        claims = stated(**change)
        return claims.test_hash(claims.claims[0], "here")

    plain = hash_with()
    for wording in ({"claim": "Other words."}, {"published": "q"}, {"fixed": "after seed 0"}, {"id": "y"}):
        assert hash_with(**wording) == plain
    assert hash_with(against=[{"detector": "min_k", "printed": ["Min-K", ""]}]) == plain
    changes = [
        {"positive": {"of": "members", "group": [1, 7]}},
        {"negative": {"of": "members", "group": [1, 7]}},
        {"a": {"detector": "min_k", "options": {"k": 10}}},
        {"a": {"detector": "min_k", "options": {"k": [10]}}},
        {"a": {"detector": "min_k", "options": "grid"}},
        {"a": {"detector": "min_k", "n_words": {"here": 8}}},
        {"a": {"detector": "min_k", "n_words": {"here": 8}, "part": "head"}},
        {"a": {"detector": "min_k", "model": {"here": "other"}}},
        {"a": {"detector": "dc_pdd", "corpus": "other"}},
        {"against": ["chance", {"detector": "min_k"}]},
        {"settings": {"here": {"model": "other", "benchmark": "b"}}},
    ]
    hashes = [plain, *(hash_with(**change) for change in changes)]
    grid, probed = {"a": {"detector": "min_k", "options": "grid"}}, {"a": {"detector": "probe", "training": "lab/en"}}
    hashes.append(hash_with(**probed))
    for name, value in (("LEARNING_RATES", (1.0,)), ("EPOCHS", 3), ("PROMPT", "?")):
        with monkeypatch.context() as patch:
            patch.setattr(spec, name, value)
            hashes.append(hash_with(**probed))
    monkeypatch.setitem(DETECTORS, "min_k", replace(DETECTORS["min_k"], grid={"k": [10, 20]}))
    hashes.append(hash_with(**grid))
    assert len(set(hashes)) == len(hashes)


def test_another_recipe_of_a_model_is_another_test(monkeypatch):
    [claim] = [claim for claim in CLAIMS.claims if claim.id == "unlearned-texts-are-found"]
    base, recipe_of = lab_recipe("lab/en-400k"), lab_recipe
    before = CLAIMS.test_hash(claim, "Unlearned")
    changed = {"lab/en-400k": base.model_copy(update={"learning_rate": 0.5})}
    monkeypatch.setattr(lab_source, "lab_recipe", lambda name: changed.get(name) or recipe_of(name))
    assert CLAIMS.test_hash(claim, "Unlearned") != before, "the model that it was unlearned from is trained otherwise"


# --- scores ---


@pytest.fixture
def here(model_folder, benchmark_file):
    """A setting of the tiny model and sixteen texts, and its inputs."""
    [target] = pages.targets(model_folder, benchmark_file)
    return {"here": {"model": model_folder, "benchmark": benchmark_file}}, load_inputs(target)


def scored(settings, **fields):
    """A test's labels and its sides' scores (sides, F, N)."""
    claims = stated(settings=settings, **fields)
    return judged_texts(claims, claims.claims[0], "here").labels, score_claim(claims, claims.claims[0], "here", 0)


def test_sides_are_scored_on_the_groups_in_their_order(here):
    labels, found = scored(here[0], against=["chance", {"detector": "min_k"}])
    assert len(labels) == 16 and not found[1].any() and found[2].all()
    positive, negative = {"of": "members", "group": [2, 2]}, {"of": "members", "group": [1, 4]}
    labels, found = scored(here[0], positive=positive, negative=negative)
    members = np.flatnonzero(here[1].labels == 1)
    assert labels.tolist() == [1] * 4 + [0] * 2
    for [row], name in zip(found, ["ppl", "min_k"], strict=True):
        np.testing.assert_allclose(row, scores_of(here[1], name)[[*members[4:], *members[:2]]])


@pytest.mark.parametrize("options", [{"entropy_threshold": float("inf"), "k": [20, 60]}, "grid"])
def test_options_are_chosen_on_each_fifth_and_all_sides_judged_on_the_others(here, options):
    side = {"detector": "surp", "options": options}
    labels, found = scored(here[0], a=side, against=[{"detector": "ppl"}, "chance"])
    texts = np.argsort(-here[1].labels, kind="stable")  # members, then non-members
    assert labels.tolist() == here[1].labels[texts].tolist() and found.shape == (3, 5, 16)
    grid = DETECTORS["surp"].grid if options == "grid" else options
    lists = {name: value if isinstance(value, list) else [value] for name, value in grid.items()}
    points = [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]
    candidates = [scores_of(here[1], "surp", **point)[texts] for point in points]
    ppl = scores_of(here[1], "ppl")[texts]
    for f, (val_idx, test_idx) in enumerate(folds(labels)):
        best = max(candidates, key=lambda scores: auc(labels[val_idx], scores[val_idx]))
        np.testing.assert_allclose(found[0, f, test_idx], best[test_idx], atol=1e-12)
        np.testing.assert_allclose(found[1, f, test_idx], ppl[test_idx])
        assert not found[2, f, test_idx].any()
        assert np.isnan(found[:, f, val_idx]).all(), "a text that was chosen on is not judged"


def test_a_probe_is_one_of_the_candidates_of_each_fifth(tmp_path, tiny_model, benchmark_file):
    """Learning rate and layer are chosen like any grid, and both sides are judged on the same texts."""
    unseen = tmp_path / "unseen.txt"
    unseen.write_text("".join(f"The stone number {i} stands {7 * i} miles behind the old mill\n" for i in range(12)))
    folder = tiny_model("gpt_neox", max_position_embeddings=512)
    settings = {"here": {"model": folder, "benchmark": benchmark_file, "n_words": 4}}
    labels, found = scored(settings, a={"detector": "probe", "training": str(unseen), "n_training": 8})
    benchmark = load_benchmark(benchmark_file, 4)
    collected = probe.collect(folder, benchmark.texts, load_unseen(str(unseen), benchmark, 8))
    candidates = probe.probe_candidates(probe.fit_probes(collected.proxies, collected.coin), collected.target)
    candidates = candidates.take(np.argsort(-benchmark.labels, kind="stable"))  # members first
    for f, (val_idx, test_idx) in enumerate(folds(labels)):
        expected = candidates.scores[candidates.best(labels, val_idx)]
        np.testing.assert_array_equal(found[0, f, test_idx], expected[test_idx])
        assert np.isnan(found[:, f, val_idx]).all()


@pytest.mark.parametrize("part", ["middle", "all", None])
def test_a_side_is_a_part_of_each_text_or_a_cut_of_it(here, part):
    found = scored(here[0], a={"detector": "ppl", "n_words": {"here": 3}, "part": part})[1]
    texts = np.argsort(-here[1].labels, kind="stable")
    if part is None:
        expected = scores_of(cut_inputs(here[1], 3)[0], "ppl")
    else:  # nine words: "The stone number", "1 stands near", "the old Mill"
        whole = scores_of(load_inputs(here[1].target.but(n_words=3, part="all")), "ppl").reshape(16, 3)
        expected = {"middle": whole[:, 1], "all": whole.mean(axis=1)}[part]
    np.testing.assert_allclose(found[0, 0], expected[texts], atol=1e-5)
    np.testing.assert_allclose(found[1, 0], scores_of(here[1], "min_k")[texts], atol=1e-5)


def test_a_side_without_a_corpus_has_all_tokens_alike(model_folder, benchmark_file, corpus_file):
    place = Target(model=model_folder, benchmark=benchmark_file, corpus=corpus_file)
    against = [{"detector": "dc_pdd", "corpus": "none"}]
    counted, alone = scored({"here": place}, a={"detector": "dc_pdd"}, against=against)[1][:, 0]
    inputs = load_inputs(place)
    alike = replace(inputs["frequency"], counts=np.zeros_like(inputs["frequency"].counts))
    order = np.argsort(-inputs.labels, kind="stable")
    np.testing.assert_allclose(alone, scores_of(inputs.given(frequency=alike), "dc_pdd")[order])
    np.testing.assert_allclose(counted, scores_of(inputs, "dc_pdd")[order])


# --- recorded seeds ---


@pytest.fixture
def recorded(tmp_path, monkeypatch, here):
    """A claim, and a file with its three seeds; a folder has one seed, so the scores of all three are the same."""
    claims = stated(settings=here[0])
    live = score_claim(claims, claims.claims[0], "here", 0)
    monkeypatch.setattr(scores, "RECORDED_FILE", tmp_path / "claims.parquet")
    for module in (scores, recorded_files):
        monkeypatch.setattr(module, "weights_of", lambda *names: str(names))
    with monkeypatch.context() as patch:
        patch.setattr(scores, "claim_scores", lambda *_: live)
        write_recorded(scores.RECORDED_FILE, seed_rows(claims, [0, 1, 2]))
    return claims, live


def test_a_seed_of_another_test_text_weight_or_version_is_left_out_and_seed_0_computed(recorded, here, monkeypatch):
    claims, live = recorded
    labels, found, left_out = scores.seeds_of(claims, claims.claims[0], "here")
    assert list(found) == [0, 1, 2] and not left_out and labels.sum() == 8
    for of_seed in found.values():
        np.testing.assert_allclose(of_seed, live, rtol=1e-6)

    def seeds(stated_claims=claims):
        [judgement] = judge_all(stated_claims)
        return judgement.seeds, judgement.left_out

    with monkeypatch.context() as patch:
        patch.setattr(recorded_files, "weights_of", lambda *_: "of another processor")
        (found, [why]) = seeds()
        assert found == (0, 1, 2) and "seed 0" in why and "weights" in why
    with monkeypatch.context() as patch:
        patch.setitem(VERSIONS, "scoring", 7)
        found, left_out = seeds()
        assert found == (0,) and len(left_out) == 3 and "scoring" in left_out[1]
    with monkeypatch.context() as patch:  # of a detector that is no side of the claim
        patch.setitem(DETECTORS, "zlib", replace(DETECTORS["zlib"], version=7))
        assert seeds() == ((0, 1, 2), ())
    found, left_out = seeds(stated(settings=here[0], against=[{"detector": "zlib"}]))
    assert found == (0,) and len(left_out) == 3


def test_what_is_recorded_of_the_lab_is_judged_without_a_model_or_a_text(monkeypatch):
    def never(*_, **__):
        raise AssertionError("this takes a text or a model")

    for module, name in ((LabCorpus, "read"), (scores, "claim_scores"), (scores, "load_benchmark")):
        monkeypatch.setattr(module, name, never)
    claim, setting = next(test for test in CLAIMS.tests() if test[1] == "Small English")
    judged = judge(CLAIMS, claim, setting)
    assert judged.seeds == (0, 1, 2) and not judged.left_out


@pytest.mark.slow
def test_what_is_recorded_is_what_a_stored_model_gives_today():
    [test] = [one for one, where in CLAIMS.tests() if (one.id, where) == ("surp-beats-min-k", "Chinese")]
    recorded = scores.seeds_of(CLAIMS, test, "Chinese")[1][0]
    np.testing.assert_allclose(score_claim(CLAIMS, test, "Chinese", 0), recorded, atol=1e-3)


# --- the rule ---


@pytest.mark.parametrize(
    ("shifts", "test", "expected"),
    [
        ([2, 0], {}, "supported"),
        ([2, 0], {"n": 2}, "inconclusive"),
        ([0, 2], {}, "not supported"),
        ([1, 1], {}, "no difference that matters"),
        ([2, 0, 1], {}, "supported"),
        ([2, 0, 3], {}, "not supported"),  # one of two fails
        ([2, 0, 1, 3], {"most": True}, "supported"),  # two of three hold
        ([2, 0, 3], {"most": True}, "not supported"),  # one of two is not most
        ([1, 1.01], {"expect": "equivalent", "margin": 0.05}, "supported"),
        ([2, 0], {"expect": "equivalent", "margin": 0.05}, "not supported"),
        ([1, 0.98], {"matters": 0.1}, "no difference that matters"),
        ([1, 0.98, 3], {"matters": 0.1}, "not supported"),
        ([2, 0], {"confounded": "another cause"}, "confounded"),
        ([0, 0], {"uninformative": "nothing could be found"}, "uninformative"),
        ([2, 0], {"uninformative": "nothing could be found"}, "supported"),
    ],
)
def test_verdict_over_seeds(shifts, test, expected):
    assert judged(shifts, **test).verdict == expected


@pytest.mark.parametrize(
    ("shifts", "test", "is_uninformative"),
    [
        ((0, 0.01), {"margin": 0.15}, True),
        ((2, 2), {"margin": 0.05}, False),
        ((0, 2), {"margin": 0.05}, False),  # one of them finds something
        ((-2, 0), {"margin": 0.05}, False),  # and so it does below 0.5
        ((0, 0), {"margin": 0.05, "against": ["chance"]}, False),  # chance is what is claimed
        ((0, 0.01), {"margin": 0.01}, False),  # the intervals contain 0.5, and reach further
    ],
)
def test_an_equality_of_sides_at_chance_is_uninformative(shifts, test, is_uninformative):
    claim = claim_of(**({"expect": "equivalent", "against": [{"detector": "zlib"}]} | test))
    seeds = {s: np.array([[scores_at(shift, 10 + s)] * 5 for shift in shifts]) for s in range(3)}
    for f, (val_idx, _) in enumerate(folds(LABELS)):
        for of_seed in seeds.values():
            of_seed[:, f, val_idx] = np.nan
    found = judgement(claim, "here", PLACE, measure_claim(claim, LABELS, seeds, {}))
    assert (found.verdict == "uninformative") is is_uninformative


@pytest.mark.parametrize(
    ("shifts", "control", "expected"),
    [
        ((1, 1), (1, 1), "uninformative"),  # the control lies within the margin, too
        ((1, 1), (1, 0), "supported"),
        ((1, 0), (1, 1), "not supported"),  # an equality that fails says something, whatever its control does
    ],
)
def test_an_equality_that_holds_for_its_control_is_uninformative(shifts, control, expected):
    sides = {"against": [{"detector": "min_k"}], "control": {"detector": "zlib"}}
    found = judged(shifts, of_control=control, expect="equivalent", margin=0.05, **sides)
    assert found.verdict == expected and ("control" in found.because) is (expected == "uninformative")


def lead(of, error=0.001):
    return Lead("c", of, (error, error))


@pytest.mark.parametrize(
    ("printed", "size", "expected"),
    [
        (lead(0.24, 0.01), "compatible with the printed leads", "supported"),
        (lead(0.9, 0.01), "smaller than the printed leads", "supported"),
        (lead(0.02, 0.01), "larger than the printed leads", "supported"),
        (
            lead(0.02, 0.02),
            "larger than the printed leads",
            "beyond the paper's sample",
        ),  # 1.53 errors are shown in a third
    ],
)
def test_a_verdict_says_how_the_lead_compares_with_the_printed_one(monkeypatch, printed, size, expected):
    monkeypatch.setattr(verdict, "leads_of", lambda claim: ((printed,),))
    claim = claim_of(against=["chance"])
    seeds = {s: np.array([[scores_at(1, s)], [scores_at(0, s)]]) for s in range(3)}
    found = judgement(claim, "here", PLACE, measure_claim(claim, LABELS, seeds, {}))
    assert (found.sizes, found.verdict) == ((size,), expected)


def test_half_of_the_smallest_printed_lead_matters_where_that_is_less():
    measured = Measured((0, 1, 2), (Comparison(Interval(0.002, 0.0016, 0.0035), 0.0),))
    for leads, expected in (
        ([lead(0.5), lead(0.003), lead(-0.2)], "supported"),
        ([lead(0.008)], "no difference that matters"),
        ([lead(0.5)], "no difference that matters"),
        ([], "no difference that matters"),
    ):
        assert verdict.verdict(claim_of(), measured, [leads]) == (expected, "")


# --- pages ---


def test_a_claim_is_put_to_real_models_with_the_sides_of_its_english_test():
    """Of size against the reference, of length against 32 words, without Small Ref where there is none."""
    by_id, places = {claim.id: claim for claim in CLAIMS.claims}, CLAIMS.on_benchmarks
    no_reference, large = (f"{name} on WikiMIA-{{}}" for name in ("Gemma-3-270M", "Qwen2.5-Coder-1.5B"))

    def test_of(claim, setting):
        return by_id[claim].on_benchmark(setting, places[setting])

    def others(claim, setting):
        return [side.detector for side in test_of(claim, setting).against]

    assert others("min-k-beats-baselines", no_reference.format(32)) == ["ppl", "lowercase", "zlib"]
    assert others("min-k-beats-baselines", large.format(32)) == ["ppl", "lowercase", "zlib", "ref"]
    assert test_of("dc-pdd-rises-with-size", no_reference.format(128)) is None
    [smaller] = test_of("dc-pdd-rises-with-size", large.format(128)).against
    assert smaller.model == {large.format(128): "real/qwen2.5-coder-0.5b"}
    [shorter] = test_of("surp-rises-with-length", large.format(128)).against
    assert shorter.n_words == {large.format(128): 32} and test_of("surp-rises-with-length", large.format(32)) is None
    short = test_of("surp-beats-min-k-on-short-texts", large.format(32))
    assert not any(side.n_words for side in short.scored)
    assert test_of("surp-beats-min-k-on-short-texts", large.format(128)) is None
    for claim in ("min-k-finds-one-occurrence", "holds-in-chinese", "probe-beats-chance", "duplicates-do-not-matter"):
        assert not any(by_id[claim].on_benchmark(*of) for of in places.items()), claim


def test_a_real_models_verdict_is_that_of_its_scores_by_the_texts_alone():
    """Recomputed for each model and length that is recorded, by AUCs and DeLong's variance of `metrics`."""
    found = verdict.judge_on_benchmarks("dc-pdd-beats-min-k")
    assert {(j.place.model, j.place.benchmark) for j in found} <= set(recorded_pairs()) and len(found) >= 2
    for j in found:
        inputs = load_inputs(j.place)
        a, b = (scores_of(inputs, name) for name in ("dc_pdd", "min_k"))
        expected = compare_auc(inputs.labels, a, b).difference
        assert j.comparisons[0].difference.estimate == pytest.approx(expected.estimate, abs=1e-9)
        assert (j.comparisons[0].difference.low, expected.low) == (pytest.approx(expected.low, abs=1e-6),) * 2
        says = "supported" if expected.low > 0 else "not supported" if expected.high < 0 else "inconclusive"
        assert j.verdict in (says, NO_DIFFERENCE) and j.scale == "benchmark" and j.seeds == (0,)


def test_a_page_of_other_models_has_a_sentence_and_no_verdicts():
    ids = [claim.id for claim in CLAIMS.claims]
    assert "No claim" in tables.verdicts("another/model", ids).data
    assert answers.answer("another/model", ids).data == ""


ALIKE = {"expect": "equivalent", "margin": 0.05}
ANSWERS = [  # shifts of the sides, fields of the claim, the answer and words of its sentence
    ([2, 0, 1, 3], {"against": [{"detector": d} for d in ("zlib", "lowercase", "min_k")]}, "No", "beats Zlib and"),
    ([2, 0, 3], {"against": [{"detector": d} for d in ("zlib", "min_k")]}, "No", "but trails Min-K% Prob"),
    ([2, 0, 2], {"against": [{"detector": d} for d in ("zlib", "min_k")]}, "No", "beats Zlib"),
    ([2, 0], {"against": [{"detector": "zlib"}]}, "Yes", "perplexity beats Zlib by"),
    ([0, 2], {"against": [{"detector": "zlib"}]}, "No", "perplexity trails Zlib by"),
    ([1, 1], {"against": [{"detector": "zlib"}], "matters": 0.01}, "No", "is level with Zlib"),
    ([0, 0], {"uninformative": "nothing could be found"}, "Can't tell here", "Nothing could be found."),
    ([2, 0], {"confounded": "other texts"}, "Can't tell here", "Other texts."),
    ([1, 1], {**ALIKE, "against": [{"detector": "zlib"}]}, "Yes", "less than the margin"),
    ([2, 0], {}, "Yes", "perplexity's AUC is 0."),
    ([2, 0], {"texts": "on those seen once,"}, "Yes", "Here, on those seen once, perplexity's AUC"),
    ([2, 0, 3], {"against": [{"detector": "zlib"}, {"detector": "min_k"}], "most": True}, "No", "beats Zlib by"),
]


@pytest.mark.parametrize(("shifts", "fields", "expected", "words"), ANSWERS)
def test_an_answer_is_yes_no_partly_or_cant_tell(monkeypatch, shifts, fields, expected, words):
    found = judged(shifts, **fields)
    monkeypatch.setattr(answers, "book_claims", lambda: stated())
    assert answers.standing([found]) == expected
    assert words in answers.sentences([found])


def test_what_holds_in_some_settings_is_partly_true_and_many_settings_are_counted(monkeypatch):
    monkeypatch.setattr(answers, "book_claims", lambda: stated())
    first, beaten = (judged(of, against=[{"detector": "zlib"}]) for of in ([2, 0], [0, 2]))
    assert answers.standing([first, beaten]) == "Partly" and answers.standing([beaten, beaten]) == "No"
    too_few_seeds = judged([2, 0], against=[{"detector": "zlib"}], n=1)
    assert answers.standing([first, too_few_seeds]) == "Yes, as far as can be told"
    assert answers.standing([beaten, too_few_seeds]) == "No, as far as can be told"
    assert answers.in_short([first, beaten]) == "" and "Yes here; no here" in answers.by_setting([first, beaten])
    said = answers.in_short([first, beaten, beaten])
    assert "in 1 of 3 tests" in said and "perplexity trails Zlib in 2 of 3; it beats Zlib in 1 of 3." in said


def test_one_seed_is_no_answer(monkeypatch):
    monkeypatch.setattr(answers, "book_claims", lambda: stated())
    one = judged([2, 0], n=1)
    assert answers.standing([one]) == "Can't tell here" and "3 training seeds; here we have 1" in answers.sentences(
        [one]
    )


def test_a_lead_beyond_the_papers_sample_is_said_as_what_ours_is(monkeypatch):
    monkeypatch.setattr(answers, "book_claims", lambda: stated())
    monkeypatch.setattr(verdict, "leads_of", lambda claim: ((lead(0.01, 0.02),),))
    for shifts, words in (([0, 0], "is level with Zlib"), ([0, 2], "trails Zlib"), ([2, 0], "beats Zlib")):
        found = judged(shifts, against=[{"detector": "zlib"}])
        assert found.verdict == "beyond the paper's sample" and answers.standing([found]) == "Can't tell here"
        assert words in answers.sentences([found]) and "under a third of cases" in answers.sentences([found])


def test_a_pages_answer_is_of_its_first_claim_and_the_numbers_of_all_are_folded(monkeypatch):
    one = judged([2, 0])
    changes = [{"date": "2026-11-20", "what": "w", "why": "y", "seen": "s", "was": {"most": False}}]
    of_b = one.claim.model_copy(update={"id": "b", "claim": "Claim b.", "history": claim_of(history=changes).history})
    every = [
        replace(one, claim=of_b),
        replace(judged([0, 2]), claim=one.claim.model_copy(update={"claim": "Claim x."})),
    ]
    former = [{"claim": "b", "until": "2026-11-20", "model": "m", "verdict": v} for v in ("supported", "inconclusive")]
    monkeypatch.setattr(answers, "book_claims", lambda: stated())
    monkeypatch.setattr(tables, "former_verdicts", lambda: {"tests": former})
    monkeypatch.setattr(answers, "judge_on", lambda models, ids: [j for j in every if j.claim.id in ids])
    text, fold = answers.answer("m", ["b", "x"]).data.split("<details>")
    assert text.startswith("**The answer. Yes.**") and "- *Claim x.* No." in text and "<code>m</code>" not in text
    assert tables.three_digits(one.comparisons[0].difference) in fold and "inconclusive until 2026-11-20" in fold
    assert answers.answer("m", ["y"]).data == ""


@pytest.mark.slow
def test_no_answer_of_the_book_names_an_id(built_home):
    assert CLAIMS.in_words.keys() == CLAIMS.settings.keys()
    for group in tables.by_claim(judge_all(CLAIMS)).values():
        said, in_numbers = answers.sentences(group), answers.in_numbers(group, [j.place.model for j in group])
        assert not any(claim.id in said for claim in CLAIMS.claims)
        assert all(escape(j.setting) in in_numbers and j.verdict in in_numbers for j in group)
        assert all(j.claim.a.model.get(j.setting, j.place.model) in in_numbers for j in group)
        assert "/" not in said and "None" not in said and said[0].isupper(), said


# --- tables ---


def test_the_ledger_holds_every_former_test_once_in_the_table_the_results_and_the_count():
    [history] = [claim.history for claim in CLAIMS.claims if claim.id == "insensitive-to-corpus"]
    found = judged([2, 0], id="insensitive-to-corpus", history=history)
    names = tables.claims_table([found]).data["claim"][1:]
    assert [name[:29] for name in names] == [f"Former test, until 2026-11-{day}" for day in (25, 20)]
    assert len(tables.claims_table([found], former_on=()).data) == 1
    results = [r for r in tables.claim_results([found]) if r.row == "insensitive-to-corpus until 2026-11-25"]
    assert [r.metric for r in results] == ["auc_difference"] * 2 + [tables.VERDICT] and results[2].why == "supported"
    assert "2 former tests" in tables.summary([found])


def test_a_summary_counts_verdicts_comparisons_and_seeds():
    found = [judged([1, 0, 0]), replace(judged([0, 1]), left_out=("recorded elsewhere",))]
    said, *lines = tables.summary(found).split("\n")
    assert said.startswith("**2 tests**: 1 supported, 0 inconclusive, ") and ", 1 not supported. They make 3" in said
    assert "comparisons, at most 2 each" in said
    assert "per test: 3." in said and lines[-1] == "- x, here, recorded elsewhere"


def test_the_history_has_the_verdicts_before_and_after_each_change():
    table = tables.history_table(CLAIMS, [judged([2, 0])]).data
    [row] = table[(table["claim"] == "insensitive-to-corpus") & (table["date"] == "2026-11-20")].to_dict("records")
    assert row["verdict before"] == "English: supported"
    assert len(table) == len(CLAIMS.history) + sum(len(c.history) for c in CLAIMS.claims) + len(
        tables.former_verdicts()["rules"]
    )


def test_claims_are_counted_by_each_criterion_without_their_repetitions():
    found = [
        judged([1, 0]),
        judged([0, 1], id="y", repeats="x"),
        judged([0, 1], id="z", expect="equivalent", margin=0.05),
    ]
    counted = tables.tally_table(found)
    assert counted["holds"].tolist() == [1, 1, 1, 0, 0] and counted["of claims"].tolist() == [2, 2, 2, 0, 0]
    words = found[0].claim.claim
    assert tables.tiles(found) == {tables.OTHERS: [(words, "not supported")] * 2}, (
        "with its repetition, a claim's worst"
    )


def test_the_difference_that_speaks_most_against_a_claim_is_shown():
    equal = judged([2, 2, 0], expect="equivalent", margin=0.1)
    far = max((c.difference for c in equal.comparisons), key=lambda d: d.estimate)
    assert tables.difference_of([equal], "x", "here") == far and far.estimate > 0.1
    greater = judged([2, 1, 0])
    lowest = min((c.difference for c in greater.comparisons), key=lambda d: d.estimate)
    assert tables.difference_of([greater], "x", "here") == lowest


def test_the_auc_of_a_side_is_the_mean_over_seeds(monkeypatch):
    claims, seeds = stated(against=[{"detector": "zlib"}, "chance"]), seeds_at(2, 1, 0)
    monkeypatch.setattr(tables, "seeds_of", lambda *_: (LABELS, seeds, []))
    found = tables.side_aucs(claims, "x", "here")
    assert list(found) == ["PPL", "Zlib"]
    for i, interval in enumerate(found.values()):
        expected = np.mean([auc(LABELS, of_seed[i, 0]) for of_seed in seeds.values()])
        assert np.isclose(interval.estimate, expected) and interval.low < interval.estimate < interval.high


def test_a_fine_tuned_models_untouched_self_is_no_smaller_model_and_its_scale_says_fine_tuned():
    found = judge_on(["recorded/docstrings-smollm2"], ["dc-pdd-beats-its-baselines-on-the-ladder"])
    row = " ".join(map(str, tables.claims_table(found, former_on=()).data.iloc[0]))
    assert "Ref, to the model before fine-tuning" in row and "Small Ref" not in row
    assert "real model, fine-tuned on the members" in row
