"""Where the probe's training texts come from."""

import json

import numpy as np
import pytest

from mialib.benchmarks import Benchmark
from mialib.catalog.sources import find
from replication.builders import synthetic
from replication.builders.unseen import load_unseen, set_apart, unseen_texts
from replication.lab import source as lab

N_MEMBERS, N_NON_MEMBERS = 6, 10
BENCHMARK = Benchmark(
    name="b",
    texts=tuple(f"text {i} of the old mill" for i in range(N_MEMBERS + N_NON_MEMBERS)),
    labels=np.repeat([1, 0], [N_MEMBERS, N_NON_MEMBERS]),
    revision="r",
)


@pytest.fixture
def texts_file(tmp_path):
    path = tmp_path / "unseen.jsonl"
    path.write_text("".join(json.dumps({"text": f"line {i} of a file that is long"}) + "\n" for i in range(12)))
    return str(path)


def test_texts_of_a_file_are_cut_drawn_by_the_seed_and_counted(texts_file):
    texts = load_unseen(texts_file, BENCHMARK, 5)
    assert len(set(texts)) == 5 and all(len(text.split()) == 6 for text in texts)
    assert texts == load_unseen(texts_file, BENCHMARK, 5) != load_unseen(texts_file, BENCHMARK, 5, seed=1)
    assert texts == load_unseen(texts_file, BENCHMARK, 12)[:5], "a smaller set is part of a larger one"
    assert load_unseen(texts_file, BENCHMARK.cut(2), 1)[0].split()[0] == "line"
    assert len(load_unseen(texts_file, BENCHMARK.cut(2), 1)[0].split()) == 2
    with pytest.raises(ValueError, match=r"unseen\.jsonl .*12 .*6 words.*13 "):
        load_unseen(texts_file, BENCHMARK, 13)
    with pytest.raises(ValueError, match="holds 1 distinct texts"):
        load_unseen(texts_file, BENCHMARK.cut(1), 2)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("lab/en:member", ValueError, "lab/en:reference"),
        ("lab/en:background", ValueError, "lab/en:reference"),
        ("nothing", ValueError, "'nothing'"),
        ("arxiv_mia", OSError, "arxiv_mia_train_real"),
    ],
)
def test_a_source_that_cannot_be_is_an_error_that_says_what_can(source, error, message, monkeypatch):
    monkeypatch.delenv("MIALIB_BENCHMARKS", raising=False)
    with pytest.raises(error, match=message):
        load_unseen(source, BENCHMARK, 2)


def test_a_model_that_writes_nothing_or_was_unlearned_is_resolved(monkeypatch):
    with pytest.raises(ValueError, match="lab/en-masked"):
        assert find("lab/en-masked").trained_on
    monkeypatch.setattr(lab, "texts_and_times", lambda recipe: ([f"hidden size {recipe.hidden_size}"], [1]))
    assert find("lab/en-400k-unlearned").trained_on == ["hidden size 128"]


def test_texts_set_apart_are_non_members_that_are_no_longer_judged_on(texts_file):
    kept, apart = set_apart(BENCHMARK, 4, seed=1)
    assert len(apart) == 4 and len(kept) == len(BENCHMARK) - 4
    rest = BENCHMARK.take(kept, "rest")
    assert not set(apart) & set(rest.texts) and set(apart) | set(rest.texts) == set(BENCHMARK.texts)
    assert rest.labels.sum() == N_MEMBERS, "no member is set apart"
    with pytest.raises(ValueError, match=r"10 non-members.* 6 "):
        set_apart(BENCHMARK, 6)
    left, unseen = unseen_texts(BENCHMARK, {"real": "apart", "other": texts_file}, 4, seed=1)
    kept, apart = set_apart(BENCHMARK, 4, seed=1)
    assert left.tolist() == kept.tolist() and unseen["real"] == apart
    assert unseen["other"] == load_unseen(texts_file, BENCHMARK.take(kept, "b"), 4, seed=1)
    assert unseen_texts(BENCHMARK, {"other": texts_file}, 4)[0].tolist() == list(range(len(BENCHMARK)))


def test_sampled_texts_begin_like_the_benchmarks_and_are_sampled_once(monkeypatch, model_folder):
    calls = []

    def sample(model, texts, n, **given):
        calls.append((model, tuple(texts), n, given))
        return ["a sampled text"] * n

    monkeypatch.setattr(synthetic, "sample_synthetic", sample)
    for _ in range(2):
        assert load_unseen(f"sampled:{model_folder}", BENCHMARK, 3) == ["a sampled text"] * 3
    given = {"n_words": 6, "seed": 0, "known": [], "language": "en"}
    assert calls == [(model_folder, BENCHMARK.texts, 3, given)]
