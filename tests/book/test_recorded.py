"""The recorded ladder: the command on a profile small enough for seconds, its files, and what is read of them."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import quick_baselines, random_rows
from typer.testing import CliRunner

from mialib.catalog.sources import find
from mialib.detectors import detect
from mialib.metrics import auc
from mialib.passes.inputs import Target, load_inputs, score_all
from mialib.token_stats import TokenStats
from replication import recorded as files
from replication.blind_tables import leak_text
from replication.claims.scores import seed_rows
from replication.claims.spec import Claims
from replication.claims.verdict import judge
from replication.commands import app
from replication.lab.source import lab_recipe
from replication.pages import times_known
from replication.studies import ladder

WORDS = ["river", "stone", "garden", "window", "letter", "market", "engine", "harbor", "field", "tower"]
TRAIN = {"corpus": "lab/notes", "layers": 1, "hidden_size": 16, "heads": 2}
TRAIN |= {"member_repeats": [1, 4], "background_times": 1, "context_tokens": 128}


def write_texts(path, seed, n):
    rng = np.random.default_rng(seed)
    rows = [{"text": " ".join([f"number {i}", *rng.choice(WORDS, 14)])} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def tiny_lab(tmp_path_factory):
    """A folder with a corpus as a file and a profile of two models, one of them with three seeds."""
    folder = tmp_path_factory.mktemp("recorded")
    write_texts(folder / "notes.jsonl", 0, 60)
    corpus = {"source": "file", "language": "en", "words": 12, "path": str(folder / "notes.jsonl"), "seed": 1}
    notes = {"members": 14, "non_members": 14, "background": 10, "reference": 20, "vocab_size": 300}
    profile = {
        "name": "tiny",
        "corpora": {"lab/notes": corpus | notes},
        "models": {
            "lab/notes-large": {"benchmarks": ["lab/notes"], "train": TRAIN | {"hidden_size": 32}},
            "lab/notes-small": {"benchmarks": ["lab/notes"], "seeds": [0, 1, 2], "train": TRAIN},
        },
        "landing": {"page": "index"},
        "book": [],
    }
    (folder / "tiny.yml").write_text(yaml.safe_dump(profile, sort_keys=False))
    return folder


def use(tiny_lab, out, patch):
    patch.setenv("MIALIB_PROFILE", str(tiny_lab / "tiny.yml"))
    patch.setenv("MIALIB_HOME", str(tiny_lab / "home"))
    patch.setattr(files, "LADDER_FOLDER", out)
    patch.setattr(ladder, "PROFILE", tiny_lab / "tiny.yml")


@pytest.fixture(scope="module")
def few_baselines():
    with quick_baselines("naive_bayes", "formatting"):
        yield


@pytest.fixture(scope="module")
def everything(tiny_lab, few_baselines, tmp_path_factory):
    """A folder with all that the profile has to record."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        use(tiny_lab, out, patch)
        done = CliRunner().invoke(app, ["record-lab"])
    assert done.exit_code == 0 and "left to record: nothing" in done.output, done.output
    return out


@pytest.fixture(autouse=True)
def use_tiny_lab(tiny_lab, everything, monkeypatch):
    use(tiny_lab, everything, monkeypatch)


def inputs_of(model="recorded/notes-small", benchmark="recorded/notes", **more):
    return load_inputs(Target(model=model, benchmark=benchmark, corpus="recorded/notes", **more))


def test_one_command_records_each_model_and_seed_once(everything):
    trainings = ["notes-large-seed-0.parquet", *(f"notes-small-seed-{seed}.parquet" for seed in range(3))]
    assert sorted(path.name for path in everything.iterdir()) == sorted(
        ["notes.parquet", "notes-counts.parquet", *trainings]
    )
    assert files.recorded_models() == {"recorded/notes-small": [0, 1, 2], "recorded/notes-large": [0]}, "by size"


def test_hidden_tokens_keep_every_score_of_dc_pdd():
    live = load_inputs(Target(model="lab/notes-small", benchmark="lab/notes", corpus="lab/notes"))
    stats, [frequency] = files.hide_tokens(live.stats, [live["frequency"]])
    scores = (detect("dc_pdd", s, frequency=f) for s, f in ((live.stats, live["frequency"]), (stats, frequency)))
    np.testing.assert_allclose(*scores, rtol=1e-12)
    for plain, hidden in zip(live.stats, stats, strict=True):
        assert len(set(zip(plain.token_ids, hidden.token_ids, strict=True))) == len(set(plain.token_ids))
    assert sorted(live["frequency"].counts) == frequency.counts.tolist(), "an id says how often its token occurs, alone"


def test_what_is_recorded_is_the_lab_models_pass_rounded():
    """Every statistic of the papers' detectors, token ids and frequencies, and so every score but for rounding."""
    target = Target(model="lab/notes-small", benchmark="lab/notes", corpus="lab/notes", reference="lab/notes-large")
    live, ours = load_inputs(target), inputs_of(reference="recorded/notes-large")
    np.testing.assert_array_equal(ours.labels, live.labels)
    np.testing.assert_array_equal(ours.stats.offsets, live.stats.offsets)
    np.testing.assert_array_equal(ours.stats.token_ids, live.stats.token_ids)
    np.testing.assert_array_equal(ours["frequency"].counts, live["frequency"].counts)
    for column in files.COLUMNS:
        recorded_column, exact = getattr(ours.stats, column), getattr(live.stats, column)
        assert recorded_column.dtype == np.float32
        np.testing.assert_allclose(recorded_column, exact, rtol=2**-11, atol=2**-24)
    halves = {name: getattr(live.stats, name).astype(np.float16).astype(np.float32) for name in files.COLUMNS}
    rounded = live.given(
        stats=dataclasses.replace(live.stats, **halves),
        reference=dataclasses.replace(live["reference"], log_prob=live["reference"].log_prob.astype(np.float16)),
    )
    names = ["ppl", "ref", "min_k", "min_k++", "dc_pdd", "surp"]
    theirs = score_all(rounded, names)
    for name, scores in score_all(ours, names).items():
        np.testing.assert_allclose(scores, theirs[name], rtol=1e-6, err_msg=name)
    assert find("recorded/notes-small").count_parameters() == find("lab/notes-small").count_parameters()


def test_what_a_recording_says_of_its_texts_and_seeds():
    assert times_known(inputs_of()).tolist() == [1] * 7 + [4] * 7 + [0] * 14
    said, of_lab = (leak_text([name]).replace(f"`{name}`", "") for name in ("recorded/notes", "lab/notes"))
    assert said == of_lab and "AUC" in said
    first, second = inputs_of("recorded/notes-small"), inputs_of("recorded/notes-small@1")
    np.testing.assert_array_equal(first.stats.token_ids, second.stats.token_ids)
    assert np.abs(first.stats.log_prob - second.stats.log_prob).max() > 0.01


def test_a_file_says_what_made_it_and_holds_no_text(everything, tiny_lab):
    path = everything / "notes-small-seed-1.parquet"
    provenance = files.read_provenance(path)
    assert provenance["recipe"] == lab_recipe("lab/notes-small@1").model_dump(mode="json") and provenance["seed"] == 1
    assert provenance["dealt"] == ladder._dealt("lab/notes") and provenance["final_loss_nats"] > 0
    assert {"torch", "transformers", "tokenizers", "numpy", "python", "mialib", "commit", "versions"} <= set(provenance)
    for file in everything.iterdir():
        said = str(pq.read_schema(file).metadata) + str(pq.read_table(file).to_pydict())
        assert str(tiny_lab) not in said and "river" not in said, file


def test_a_training_on_other_texts_than_its_benchmarks_is_an_error(everything, tmp_path, monkeypatch):
    for path in everything.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    table = pq.read_table(tmp_path / "notes.parquet")
    other = json.dumps(files.read_provenance(tmp_path / "notes.parquet") | {"dealt": "other"})
    pq.write_table(table.replace_schema_metadata({"provenance": other}), tmp_path / "notes.parquet")
    monkeypatch.setattr(files, "LADDER_FOLDER", tmp_path)
    with pytest.raises(ValueError, match="other texts"):
        len(inputs_of().stats)


@pytest.fixture
def trainings(monkeypatch):
    """What is trained, by a stub that trains nothing and leaves a file with the right key."""
    made = []

    def record_one(name, seed, folder):
        made.append(f"{name}@{seed}")
        path = folder / ladder._file_name(name, seed)
        stats = TokenStats.from_rows(random_rows(0, [3, 4]), provenance={})
        files.save_training(path, np.array([1, 0]), stats, {"key": ladder._key(name, seed)})
        return path

    monkeypatch.setattr(ladder, "_record_one", record_one)
    return made


@pytest.mark.parametrize("change", [{"member_repeats": [1, 2]}, "other texts"])
def test_another_recipe_or_other_texts_are_recorded_anew(trainings, tiny_lab, tmp_path, monkeypatch, change):
    list(ladder.record_ladder([], tmp_path / "out"))
    profile = yaml.safe_load((tiny_lab / "tiny.yml").read_text())
    if change == "other texts":
        write_texts(tmp_path / "notes.jsonl", 3, 60)
        profile["corpora"]["lab/notes"]["path"] = str(tmp_path / "notes.jsonl")
    else:
        profile["models"]["lab/notes-small"]["train"] |= change
    (tmp_path / "changed.yml").write_text(yaml.safe_dump(profile, sort_keys=False))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "changed.yml"))
    left = [("lab/notes-small", seed) for seed in range(3)]
    left += [("lab/notes-large", 0)] * (change == "other texts")
    assert sorted(ladder.find_left(tmp_path / "out")) == sorted(left)


def test_a_real_model_is_recorded_beside_what_it_was_and_with_its_probe(tiny_lab, tmp_path, monkeypatch, model_folder):
    profile = yaml.safe_load((tiny_lab / "tiny.yml").read_text())
    recipe = {"from_model": model_folder, "corpus": "lab/notes", "member_repeats": [1, 8], "background_times": 0}
    profile["models"] = {"lab/notes-on": {"benchmarks": ["lab/notes"], "seeds": [0, 1], "train_on": recipe}}
    (tmp_path / "on.yml").write_text(yaml.safe_dump(profile, sort_keys=False))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "on.yml"))
    monkeypatch.setattr(files, "LADDER_FOLDER", out := tmp_path / "out")
    monkeypatch.setattr(ladder, "N_TRAINING", 8)
    assert [path.name for path in ladder.record_ladder([], out)] == [f"notes-on-seed-{seed}.parquet" for seed in (0, 1)]
    assert files.recorded_models() == {"recorded/notes-on": [0, 1]}, "the model before is no training"
    benchmark = f"recorded/notes-{Path(model_folder).name}"
    place = {"model": "recorded/notes-on", "benchmark": benchmark, "reference": "recorded/notes-on-untouched"}
    before, *after = (
        load_inputs(Target(**place | {"model": name}, corpus=benchmark))
        for name in ("recorded/notes-on-untouched@1", "recorded/notes-on", "recorded/notes-on@1")
    )
    for inputs in after:
        gain = score_all(inputs, ["ppl"])["ppl"] - score_all(before, ["ppl"])["ppl"]
        assert auc(inputs.labels, gain) > 0.7 and times_known(inputs).tolist() == [1] * 7 + [8] * 7 + [0] * 14
    assert not times_known(before).any()
    claims = Claims.model_validate(
        {"settings": {"here": place}, "claims": [CLAIM | {"a": {"detector": "ref"}, "against": ["chance"]}]}
    )
    assert judge(claims, claims.claims[0], "here").seeds == (0, 1)
    for name in ("recorded/notes-on", "recorded/notes-on-untouched"):
        scores, judged = files.recorded_probe(name)
        chosen = files.recorded_provenance(name)["probe"]
        assert np.isfinite(scores).all() and len(scores) == 28
        assert sorted([*judged, *chosen["validation"]]) == list(range(28)) and chosen["layer"] >= 1
    assert not ladder.find_left(out)
    scored = files.pq.read_table(out / "notes-on-seed-1.parquet").drop_columns("probe")
    made = files.recorded_provenance("recorded/notes-on@1")
    files.write_table(scored, out / "notes-on-seed-1.parquet", {key: made[key] for key in made if key != "probe"})
    assert ladder.find_left(out) == [("lab/notes-on", 1)], "scored, but not probed"
    assert len(list(ladder.record_ladder([], out))) == 1 and files.recorded_provenance("recorded/notes-on@1") == made
    with pytest.raises(ValueError, match="no probe of recorded/notes-small"):
        monkeypatch.setattr(files, "recorded_provenance", lambda name: {})
        files.recorded_probe("recorded/notes-small")


def test_a_number_too_large_for_half_is_an_error(tmp_path):
    stats = TokenStats.from_rows(random_rows(0, [3, 4]), provenance={})
    stats.log_prob_var[2] = 1e5
    with pytest.raises(ValueError, match=r"a\.parquet: .*log_prob_var"):
        files.save_training(tmp_path / "a.parquet", np.array([1, 0]), stats, {})
    assert not list(tmp_path.iterdir())


CLAIM = dict.fromkeys(("id", "paper", "claim", "published"), "-") | {"fixed": "before", "where": ["here"]}
CLAIM |= {"a": {"detector": "surp", "options": "grid"}, "against": [{"detector": "ppl"}], "expect": "greater"}


def test_a_claim_on_the_ladder_is_judged_over_all_recorded_seeds():
    place = {"model": "recorded/notes-small", "benchmark": "recorded/notes", "corpus": "recorded/notes"}
    claims = Claims.model_validate({"settings": {"here": place}, "claims": [CLAIM]})
    judgement = judge(claims, claims.claims[0], "here")
    assert judgement.seeds == (0, 1, 2) and not judgement.left_out
    assert seed_rows(claims, [0, 1, 2]) == [], "nothing of it is to be recorded once more"
    larger = CLAIM | {"against": [{"detector": "ppl", "model": {"here": "recorded/notes-large"}}]}
    claims = Claims.model_validate({"settings": {"here": place}, "claims": [larger]})
    of_one_seed = judge(claims, claims.claims[0], "here")
    assert of_one_seed.seeds == (0,) and of_one_seed.verdict == "inconclusive", "the larger model has one training"
