"""What to run and what detectors need of it: loaded when it is asked for, and shared."""

import zlib

import numpy as np
import pytest
from conftest import made_inputs, random_rows

import mialib
from mialib.benchmarks import Benchmark
from mialib.detectors import DETECTORS
from mialib.passes import cache
from mialib.passes import inputs as passes
from mialib.passes.inputs import (
    NEEDS,
    Target,
    common_labels,
    cut_inputs,
    inputs_of,
    load_inputs,
    score_all,
    split_lengths,
    unavailable_reason,
)


@pytest.fixture
def target(model_folder, reference_folder, benchmark_file, corpus_file):
    return Target(model=model_folder, benchmark=benchmark_file, reference=reference_folder, corpus=corpus_file)


@pytest.fixture
def inputs(target):
    return load_inputs(target)


@pytest.fixture
def scored(monkeypatch):
    """What is scored, counted or made from here on: the function's name and how many texts it is given."""
    calls = []

    def watch(name, n_texts):
        made = getattr(cache, name)

        def watched(*args, **kwargs):
            calls.append((name.removesuffix("_or_load"), n_texts(*args)))
            return made(*args, **kwargs)

        monkeypatch.setattr(cache, name, watched)

    watch("score_or_load", lambda model, texts, **_: len(texts))
    watch("score_cut_texts", lambda model, stats, texts: len(texts))
    watch("count_or_load", lambda *_: None)
    return calls


def test_a_wrong_or_a_changed_target_is_checked_and_a_change_leaves_the_first_as_it_is():
    for fields, named in (({"n_words": 0}, "n_words"), ({"part": "head"}, "n_words"), ({"modle": "m"}, "modle")):
        with pytest.raises(ValueError, match=named):
            Target(model="m", benchmark="b", **fields)
    target = Target(model="m", benchmark="b")
    assert target.but(benchmark="c") == Target(model="m", benchmark="c") and target.column == "m on b"
    with pytest.raises(ValueError, match="n_neighbors"):
        target.but(n_neighbors=-1)


def test_nothing_is_scored_before_it_is_asked_for_and_nothing_twice(target, scored):
    inputs = load_inputs(target)
    taken, given = inputs.take([0, 1], "two"), inputs.given(lowercase=None)
    assert not scored and len(inputs.texts) == 16 and inputs.labels.sum() == 8
    score_all(inputs, ["ppl", "zlib", "min_k"])
    assert scored == [("score", 16)], "the target's own pass alone"
    score_all(inputs)
    assert sorted(map(str, scored)) == sorted(map(str, [("score", 16)] * 3 + [("count", None)]))
    score_all(inputs), score_all(taken), score_all(given, ["ppl", "ref"])
    assert len(scored) == 4, "what is taken or given shares what is loaded"


@pytest.mark.parametrize("name", ["reference", "frequency", "neighbors"])
def test_what_the_target_does_not_name_is_none(model_folder, benchmark_file, name, scored):
    inputs = load_inputs(Target(model=model_folder, benchmark=benchmark_file))
    assert inputs[name] is None and not scored
    assert NEEDS[name].missing and NEEDS[name].option.startswith("--")
    detector = {"reference": "ref", "frequency": "dc_pdd", "neighbors": "neighbor"}[name]
    scores = score_all(inputs, [detector, "ppl"])
    assert scores[detector] is None and scores["ppl"] is not None, "no error"


def test_every_detector_scores_every_text_in_the_passes_that_were_read(inputs):
    assert inputs.passes() == []
    score_all(inputs, ["ppl", "ref"])
    assert [p["n_texts"] for p in inputs.passes()] == [16, 16]
    assert inputs.passes()[0] == inputs.stats.provenance
    scores = score_all(inputs)
    of_papers = {name for name, known in DETECTORS.items() if not known.is_later}
    assert set(scores) == of_papers - {"neighbor"}, "a hundred passes are run where they are asked for alone"
    assert all(values.shape == (16,) and np.isfinite(values).all() for values in scores.values())
    with pytest.raises(ValueError, match="'mink'"):
        score_all(inputs, ["min_k", "ppl"], mink={"k": 100})
    with pytest.raises(ValueError, match="'neighbor'"):
        score_all(inputs, neighbor={})


def test_later_detectors_score_every_text_where_they_are_asked_for(target, tmp_path, caplog):
    for name, text in (("unseen", "A mill was sold in the rain"), ("seen", "The engine of the mill is old")):
        (tmp_path / f"{name}.txt").write_text(f"{text}\nThe market is closed\nThe last one is left out\n")
    prefixes = {"non_member_prefix": str(tmp_path / "unseen.txt"), "member_prefix": str(tmp_path / "seen.txt")}
    inputs = load_inputs(target.but(**prefixes, n_shots=2))
    later = [name for name, known in DETECTORS.items() if known.is_later]
    caplog.set_level("INFO")
    scores = score_all(inputs, later)
    assert all(values.shape == (16,) and np.isfinite(values).all() for values in scores.values())
    assert "tokens before each text" in caplog.text
    after = mialib.Scorer(target.model).score(
        inputs.texts, after="A mill was sold in the rain\n\nThe market is closed\n\n"
    )
    np.testing.assert_array_equal(inputs["after_non_members"].log_prob, after.log_prob)
    assert set(score_all(load_inputs(target), ["recall", "con_recall"]).values()) == {None}
    assert inputs.retarget(member_prefix=None)["after_members"] is None
    assert inputs.retarget(n_shots=1)["after_members"].provenance != inputs["after_members"].provenance
    others = inputs.given(reference=inputs.stats.prefix(inputs.stats.n_tokens - 1))
    assert score_all(others, ["wbc", "ez_mia"]) == {"wbc": None, "ez_mia": None}
    assert target.reference in unavailable_reason(others, "wbc") and target.model in unavailable_reason(others, "wbc")
    with pytest.raises(ValueError, match=r"unseen\.txt .*3"):
        load_inputs(target.but(**prefixes))["after_non_members"]
    (tmp_path / "judged.txt").write_text(inputs.texts[3] + "\n")
    with pytest.raises(ValueError, match=r"judged\.txt: "):
        load_inputs(target.but(non_member_prefix=str(tmp_path / "judged.txt"), n_shots=1))["after_non_members"]


def test_each_text_is_read_before_another_one_and_cut_where_it_is_long(target):
    inputs, scorer = load_inputs(target), mialib.Scorer(target.model)
    begins = [f"{text}\n\n" for text in inputs.texts]
    read = {text: scorer.score(inputs.texts, after=text) for text in begins}
    found = inputs["after_others"]
    others = [
        next(t for t, of in read.items() if np.allclose(of[i].log_prob, row.log_prob, atol=1e-4))
        for i, row in enumerate(found)
    ]
    assert sorted(others) == sorted(begins) and not any(map(str.__eq__, others, begins))
    long = inputs_of(target, Benchmark("long", ("The mill " * 200, *inputs.texts[1:3]), np.array([1, 0, 0]), ""))
    assert long.stats.n_cut[0]
    long["after_others"].check_finite()  # of each text some tokens are scored
    some = [0, 3, len(inputs.texts) - 1]
    taken = inputs.take(some, "some")["after_others"]
    np.testing.assert_array_equal(taken.log_prob, np.concatenate([found[i].log_prob for i in some]))
    assert passes.Inputs(target, inputs.texts[:1], "en")["after_others"] is None  # nothing to read before it


HEAD = "THE RIVER RISES IN THE HILLS ABOVE THE OLD MILL AND RUNS SOUTH THROUGH THREE VILLAGES. " * 3
TAILS = ["", "Of this nothing is read. " * 40, "q" * 3000, "这条河发源于北方的山地。" * 300]


@pytest.mark.parametrize("start_token", ["auto", None])
def test_of_a_text_longer_than_the_context_detectors_see_what_was_scored(start_token, model_folder, monkeypatch):
    made = []
    monkeypatch.setattr(cache, "neighbor_log_probs_or_load", lambda model, texts, masked, **_: made.append(texts))
    target = Target(model=model_folder, benchmark="tails", masked="a masked model", start_token=start_token)
    texts = ("The mill", *(HEAD + tail for tail in TAILS))
    inputs = passes.Inputs(target, texts, "en")
    stats, tokenizer = inputs.stats, mialib.Scorer(model_folder).loaded.tokenizer
    first = "" if start_token else HEAD[0]  # one token, which is then read and not scored
    part = first + tokenizer.decode(stats[1].token_ids)
    assert HEAD.startswith(part) and inputs.scored_parts() == ["The mill", *[part] * len(TAILS)]
    scores = score_all(inputs, ["ppl", "zlib", "lowercase"])
    for of in scores.values():
        np.testing.assert_allclose(of[1:], of[1], rtol=1e-6)
    np.testing.assert_allclose(scores["zlib"][1:], scores["ppl"][1:] / len(zlib.compress(part.encode())))
    assert scores["zlib"][0] == scores["ppl"][0] / len(zlib.compress(b"The mill")), "it fits"
    lowered = mialib.Scorer(model_folder, start_token=start_token).score([part.lower()], progress=False)
    assert len(inputs["lowercase"][2].log_prob) == len(lowered[0].log_prob) < len(stats[1].log_prob)
    np.testing.assert_allclose(scores["lowercase"][1:], -scores["ppl"][1] / lowered.log_prob.mean(), rtol=1e-5)
    assert inputs["neighbors"] is None and made == [inputs.scored_parts()]
    labels = np.array([1, 0, 1, 0, 0])
    benchmark = inputs_of(target, Benchmark("tails", texts, labels, "")).scored_benchmark
    assert list(benchmark.texts) == inputs.scored_parts() and benchmark.labels.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("texts", "is_applicable"),
    [
        (["नदी पुरानी चक्की के पास बहती है", "पत्थर बगीचे में है, COVID के बाद"], False),
        (["这条河发源于北方的山地 LED", "流经三个村庄"], False),
        (["the river runs", "a stone near the mill"], False),
        (["The river runs", "a stone near the mill"], True),
        (["Река течёт за мельницей"], True),
    ],
)
def test_lowercase_is_applicable_where_lowercasing_changes_the_texts(texts, is_applicable, model_folder, caplog):
    caplog.set_level("INFO")
    inputs = passes.Inputs(Target(model=model_folder, benchmark="b"), tuple(texts), "en")
    scores = score_all(inputs, ["lowercase"])["lowercase"]
    if not is_applicable:
        assert scores is None and unavailable_reason(inputs, "lowercase")
        return
    n_same = sum(text.islower() for text in texts)
    assert np.isclose(scores, -1).tolist() == [text.islower() for text in texts]
    assert (f"-1 for {n_same} of {len(texts)} texts" in caplog.text) == bool(n_same)


def test_every_input_of_a_detector_is_an_entry_of_the_table():
    assert {need for known in DETECTORS.values() for need in known.needs} <= set(NEEDS)
    fields = {setting.field for need in NEEDS.values() for setting in need.settings}
    assert fields < set(Target.model_fields)


def test_neighbors_are_computed_only_where_they_are_asked_for(model_folder, masked_folder, benchmark_file, monkeypatch):
    passes_made = []

    def log_probs(model, texts, masked_lm, *, n_neighbors, language, start_token, dtype):
        passes_made.append((model, masked_lm, n_neighbors, language, start_token, dtype, len(texts)))
        return np.arange(2.0 * len(texts)).reshape(-1, 2) - 40

    monkeypatch.setattr(cache, "neighbor_log_probs_or_load", log_probs)
    without = load_inputs(Target(model=model_folder, benchmark=benchmark_file))
    assert not passes_made and "neighbor" not in score_all(without)
    assert score_all(without, ["neighbor"]) == {"neighbor": None}
    found = without.retarget(masked=masked_folder, n_neighbors=2)
    assert passes_made == [(model_folder, masked_folder, 2, "en", "auto", "auto", 16)]
    assert score_all(found)["neighbor"].shape == (16,)
    taken = found.take([3, 0], "two")
    np.testing.assert_array_equal(taken["neighbors"], found["neighbors"][[3, 0]])
    assert "neighbor" in score_all(taken) and "neighbor" in score_all(without.given(neighbors=found["neighbors"]))
    assert len(passes_made) == 1
    assert cut_inputs(found, 4)[0]["neighbors"].shape == (16, 2), "cut texts have neighbors of their own"
    assert len(passes_made) == 2


def test_taken_inputs_are_those_texts_in_every_pass(inputs):
    taken = inputs.take([5, 2, 9], "three")
    assert inputs.take(np.arange(len(inputs.texts)) > 1, "marked")["texts"] == inputs.texts[2:]
    assert taken.benchmark.texts == tuple(inputs.benchmark.texts[i] for i in (5, 2, 9))
    assert taken.labels.tolist() == inputs.labels[[5, 2, 9]].tolist()
    assert taken.target.column == f"{inputs.target.model} on three" and taken.target.corpus == inputs.target.corpus
    whole, some = score_all(inputs), score_all(taken)
    for name, scores in whole.items():
        np.testing.assert_allclose(some[name], scores[[5, 2, 9]], err_msg=name)


def test_columns_of_other_texts_or_labels_have_no_labels_in_common():
    rows = random_rows(0, [3, 4, 5, 6])
    one = made_inputs(rows, [1, 0, 1, 0])
    assert common_labels([one, one]).tolist() == [1, 0, 1, 0]
    others = [made_inputs(rows, [0, 1, 1, 0]), made_inputs(rows[:3], [1, 0, 1]), one.take([2, 1, 0, 3], "made")]
    for other in others:
        with pytest.raises(ValueError):
            common_labels([one, other])


def test_another_corpus_or_reference_leaves_the_rest_as_it_is(inputs, tmp_path, tiny_model, scored):
    inputs.stats, inputs["frequency"], inputs["reference"]
    del scored[:]
    (tmp_path / "other.txt").write_text("The harbor lies behind the market\n")
    other = inputs.retarget(corpus=str(tmp_path / "other.txt"))
    assert scored == [("count", None)] and other.stats is inputs.stats and other["reference"] is inputs["reference"]
    assert other["frequency"].name == str(tmp_path / "other.txt") != inputs["frequency"].name
    assert inputs.retarget(corpus=None)["frequency"] is None
    another = inputs.retarget(reference=tiny_model("llama"))
    assert another["reference"].provenance["model"] == another.target.reference == tiny_model("llama")
    with pytest.raises(ValueError, match="corpus, masked, member_prefix, n_n"):
        inputs.retarget(model=tiny_model("llama"))


def test_every_pass_of_cut_texts_is_cut(inputs, model_folder):
    cut, n_reused = cut_inputs(inputs, 4)
    fresh = mialib.Scorer(model_folder).score(cut.benchmark.texts, progress=False)
    np.testing.assert_array_equal(cut.stats.token_ids, fresh.token_ids)
    assert n_reused == 16 and all(
        (cut[name].n_tokens < inputs[name].n_tokens).all() for name in ("stats", "reference", "lowercase")
    )


def test_a_signature_names_all_that_a_number_hangs_on(target):
    made = load_inputs(target).stats.provenance
    weights = made["revision"].rpartition("@")[2][:10]
    for part in (made["mialib"], target.model, weights, made["texts"][:8], made["start_token"], made["dtype"]):
        assert part in passes.signature(made)
    others = {"start_token": None, "seed": 3, "dtype": "bfloat16", "mialib": "0"}
    assert len({passes.signature(made | {name: value}) for name, value in others.items()}) == len(others)


def test_lengths_that_most_texts_have_are_left_and_the_others_counted():
    texts = [" ".join(["word"] * n + [str(i)]) for i, n in enumerate([9, 9, 9, 4])]
    benchmark = Benchmark("four texts", tuple(texts), np.array([0, 1, 0, 1]), "r")
    assert split_lengths(benchmark, [16, 8, 4, 10]) == ([4, 8, 10], {16: 4})
    growing = Benchmark("b", ("one", "one two", "one two three", "one two three four"), np.array([1, 0, 1, 0]), "")
    assert split_lengths(growing, [4, 3]) == ([3], {4: 3}), "left out where over half are shorter"
    with pytest.raises(ValueError, match="four texts: "):
        split_lengths(benchmark, [512, 11])
