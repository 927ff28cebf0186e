"""Recorded passes of real models on published benchmarks: they give the scores of the live ones, whole and cut."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from mialib.catalog.registry import known_benchmarks
from mialib.detectors import DETECTORS
from mialib.passes.inputs import Target, cut_inputs, load_inputs, score_all
from mialib.versions import versions_of
from replication import BOOK_DATA, real
from replication.recorded import COLUMNS

PAPERS = [name for name, of in DETECTORS.items() if not of.is_later and name != "neighbor"]
SAID = "The river Near Old mills runs slowly Under a Stone bridge built By people Of Two towns in Spring"
WORDS = SAID.split()


PAIRS = real.recorded_pairs()


def forget():
    for kept in (real._pass, real._stand_ins, real._zlib_bytes, real.recorded_pairs):
        kept.cache_clear()


@pytest.mark.parametrize(("model", "benchmark"), PAIRS)
def test_a_file_that_somebody_sends_is_whole(model, benchmark):
    """What the page *Results of others* says is checked."""
    forget()
    inputs = load_inputs(Target(model=model, benchmark=benchmark, corpus=real.CORPORA[0]))
    stats, name = inputs.stats, benchmark.removeprefix(real.REAL)
    sizes = {of: known.examples for of, known in known_benchmarks().items()}
    published = [n for of, lengths in sizes.items() for length, n in lengths.items() if name in (of, f"{of}-{length}")]
    assert [len(stats)] == [len(inputs.labels)] == published
    assert stats.provenance["versions"] == versions_of("scoring"), "scored by the present code"
    assert stats.provenance["parameters"] and stats.provenance["recorded_with"].keys() >= {"torch", "transformers"}
    stats.check_finite()
    assert (stats.log_prob <= 0).all() and (stats.entropy >= 0).all() and (stats.log_prob_var >= 0).all()
    assert -8 < stats.log_prob.mean() < -1, "worse than any working model, or better than one on texts that it knows"
    scores = score_all(inputs, PAPERS)
    assert {name for name, of in scores.items() if of is None} == {"ref"}, "which takes a smaller model"
    assert all(np.isfinite(of).all() for of in scores.values() if of is not None)
    assert all(inputs.source.counts_in(corpus).counts.sum() > 0 for corpus in real.CORPORA)


def test_the_record_of_a_gpu_has_all_pieces_and_none_failed():
    record = json.loads((BOOK_DATA / "recorded" / "gpu.json").read_text(encoding="utf-8"))
    assert record and all(of["results"] and "failed" not in of["results"] for of in record.values())
    assert all(of["ran"]["cuda"] for of in record.values()), "on a GPU, and no rehearsal"
    tests = record["kernel"]["results"]["tests"]
    assert tests["tests"] and not tests["failures"] + tests["errors"] + tests["skipped"]
    assert record["sanitizer"]["results"]["exit code"] == 0
    for name, of in record["lab"]["results"].items():
        assert of["largest differences"]["log_prob"] < (0.01 if name.endswith("float32") else 1), name


@pytest.fixture
def recorded(tmp_path, monkeypatch, model_folder, reference_folder):
    """What two tiny models made of WikiMIA, here twenty texts made up, as the name of each."""
    rng = np.random.default_rng(0)
    rows = [{"input": " ".join(rng.permutation(WORDS)[:14]) + " \n" * (i % 2), "label": i % 2} for i in range(20)]
    (tmp_path / "copies" / "wikimia").mkdir(parents=True)
    (tmp_path / "copies" / "wikimia" / "32.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    corpora = []
    for n in (2, 7):
        corpora.append(str(tmp_path / f"corpus-{n}.jsonl"))
        texts = [" ".join(rng.choice(WORDS, 30)) for _ in range(n)]
        (tmp_path / f"corpus-{n}.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(tmp_path / "copies"))
    monkeypatch.setattr(real, "FOLDER", tmp_path / "recorded")
    forget()
    written = list(real.record_passes([str(model_folder), str(reference_folder)], ["wikimia-32"], corpora))
    assert {path.parent.name for path in written} == {"wikimia-32", "recorded"}
    live = Target(model=str(model_folder), benchmark="wikimia-32", reference=str(reference_folder), corpus=corpora[0])
    names = (f"real/{Path(name).name}" for name in (model_folder, reference_folder))
    ours = live.but(benchmark="real/wikimia-32", **dict(zip(("model", "reference"), names, strict=True)))
    return live, ours, corpora


def assert_alike(ours, live):
    """Every score of the papers' detectors, but for float16; SURP's tokens may change sides of its bounds."""
    for name, scores in score_all(live, PAPERS).items():
        tolerance = {"rtol": 0.05, "atol": 0.05} if name == "surp" else {"rtol": 2e-3, "atol": 2e-5}
        np.testing.assert_allclose(score_all(ours, PAPERS)[name], scores, err_msg=name, **tolerance)


def test_a_recorded_pass_gives_the_scores_of_the_live_one(recorded):
    live, ours, corpora = recorded
    assert_alike(load_inputs(ours), load_inputs(live))
    assert_alike(load_inputs(ours).retarget(corpus=corpora[1]), load_inputs(live).retarget(corpus=corpora[1]))
    np.testing.assert_array_equal(load_inputs(ours).labels, load_inputs(live).labels)
    assert load_inputs(ours).source.count_parameters() == load_inputs(live).source.count_parameters()


def test_at_any_length_too(recorded):
    live, ours, _ = recorded
    for n_words in (9, 12):
        cut, n_reused = cut_inputs(load_inputs(ours), n_words)
        assert n_reused == 20 and {len(text.split()) for text in cut.texts} == {n_words}
        assert_alike(cut, cut_inputs(load_inputs(live), n_words)[0])
        assert_alike(load_inputs(ours.but(n_words=n_words)), load_inputs(live.but(n_words=n_words)))


def test_a_text_that_begins_a_scored_one_needs_no_pass(model_folder, monkeypatch):
    whole, model = (SAID, " ".join(WORDS[::-1])), str(model_folder)
    begun = (" ".join(WORDS[5:8]), "By people", *(" ".join(WORDS[:n]) for n in (3, 9)))
    passes, asked, score_or_load = [(whole, real.score_or_load(model, whole))], [], real.score_or_load
    live = score_or_load(model, begun)
    monkeypatch.setattr(real, "score_or_load", lambda model, texts: asked.append(texts) or score_or_load(model, texts))
    nested = real.score_nested(model, begun, passes)
    assert asked == [[text for text in begun if not SAID.startswith(text)]]
    np.testing.assert_array_equal(nested.token_ids, live.token_ids)
    np.testing.assert_allclose(nested.log_prob, live.log_prob, atol=1e-5)
    for key in ("texts", "lowercased"):
        assert nested.provenance[key] == live.provenance[key]


def test_no_text_and_no_token_id_is_recorded(recorded):
    live, ours = (load_inputs(target) for target in recorded[:2])
    assert not {*" ".join(live.texts).split()} & {*" ".join(ours.texts).split()}
    assert not np.array_equal(live.stats.token_ids, ours.stats.token_ids)
    for plain, hidden in zip(live.stats, ours.stats, strict=True):
        assert len(set(zip(plain.token_ids, hidden.token_ids, strict=True))) == len(set(plain.token_ids))
    written = b"".join(path.read_bytes() for path in real.FOLDER.rglob("*.parquet"))
    assert b"mills" not in written and all(name.encode() in written for name in COLUMNS)


@pytest.mark.parametrize(("n_words", "n_bytes"), [(1, 40), (16, 90), (32, 180), (64, 300), (256, 1100)])
def test_a_stand_in_has_the_words_and_the_bytes_under_zlib(n_words, n_bytes):
    for size in range(n_bytes, n_bytes + 20):
        text = real.stand_in("12.wikimia-64", n_words, size)
        assert len(text.split()) == n_words and len(zlib.compress(text.encode())) == size
        assert text != text.lower()
