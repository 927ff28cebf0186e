"""The recorded lab: the command on a profile small enough for seconds, its files, and the page that shows them."""

import ast
import dataclasses
import json

import nbformat
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import random_rows
from matplotlib.figure import Figure
from page_code import functions_of
from typer.testing import CliRunner

from mialib.book import recorded
from mialib.book.results import load_results
from mialib.commands.cli import app
from mialib.detectors import DETECTORS, detect
from mialib.lab.corpora import lab_card
from mialib.lab.models import lab_recipe
from mialib.metrics import auc, auc_interval
from mialib.store import ROOT, code_hash, import_closure
from mialib.token_stats import COLUMNS, TokenRow, TokenStats

WORDS = ["river", "stone", "garden", "window", "letter", "market", "engine", "harbor", "field", "tower"]
TRAIN = {
    "corpus": "lab/notes",
    "layers": 1,
    "hidden_size": 16,
    "heads": 2,
    "member_times": 2,
    "background_times": 1,
    "injected": {"lab/poems": 3},
    "context_tokens": 128,
}


def write_texts(path, seed, n):
    rng = np.random.default_rng(seed)
    rows = [{"text": " ".join([f"number {i}", *rng.choice(WORDS, 14)])} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def tiny_lab(tmp_path_factory):
    """A folder with two corpora as files and a profile of two models, one of them with two seeds."""
    folder = tmp_path_factory.mktemp("recorded")
    write_texts(folder / "notes.jsonl", 0, 60)
    write_texts(folder / "poems.jsonl", 1, 12)
    corpus = {"source": "file", "language": "en", "words": 12}
    notes = {"members": 14, "non_members": 14, "background": 10, "reference": 20, "vocab_size": 300, "seed": 1}
    profile = {
        "name": "tiny",
        "corpora": {
            "lab/notes": corpus | notes | {"path": str(folder / "notes.jsonl")},
            "lab/poems": corpus | {"members": 6, "non_members": 6, "seed": 2, "path": str(folder / "poems.jsonl")},
        },
        "models": {
            "lab/small": {"benchmarks": ["lab/notes", "lab/poems"], "seeds": [0, 1], "train": TRAIN},
            "lab/repeats": {
                "benchmarks": ["lab/notes"],
                "train": TRAIN | {"hidden_size": 32, "injected": {}, "member_repeats": [1, 4]},
            },
        },
        "landing": {"page": "index"},
        "book": [],
    }
    (folder / "tiny.yml").write_text(yaml.safe_dump(profile, sort_keys=False))
    return folder


@pytest.fixture(autouse=True)
def use_tiny_lab(tiny_lab, monkeypatch):
    monkeypatch.setenv("MIALIB_PROFILE", str(tiny_lab / "tiny.yml"))
    monkeypatch.setenv("MIALIB_HOME", str(tiny_lab / "home"))


@pytest.fixture(scope="module")
def everything(tiny_lab, tmp_path_factory):
    """A folder with all that the profile has to record."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIALIB_PROFILE", str(tiny_lab / "tiny.yml"))
        patch.setenv("MIALIB_HOME", str(tiny_lab / "home"))
        done = CliRunner().invoke(app, ["record-lab", "--minutes", "5", "--out", str(out)])
    assert done.exit_code == 0 and "left to record: nothing" in done.output
    return out


def test_one_command_records_each_model_and_seed_once(everything):
    names = ["repeats-seed-0.parquet", "small-seed-0.parquet", "small-seed-1.parquet"]
    assert sorted(path.name for path in everything.iterdir()) == names
    found = [(r.model, r.seed, r.benchmark) for r in recorded.load_recordings(everything)]
    small = [("lab/small", seed, benchmark) for benchmark in ("lab/notes", "lab/poems") for seed in (0, 1)]
    assert found == [*small, ("lab/repeats", 0, "lab/notes")], "the smallest first"


def test_what_is_recorded_is_the_lab_models_statistics_rounded(everything):
    """The live lab trains the same recipe by its own way, on this CPU to the same weights."""
    mine = {(r.model, r.benchmark): r for r in recorded.load_recordings(everything) if r.seed == 0}
    for (model, benchmark), recording in mine.items():
        live = recorded.from_lab(f"{model}@0", benchmark)
        np.testing.assert_array_equal(recording.labels, live.labels)
        np.testing.assert_array_equal(recording.times, live.times)
        np.testing.assert_array_equal(recording.stats.offsets, live.stats.offsets)
        for column in recorded.STATISTICS:
            ours, theirs = getattr(recording.stats, column), getattr(live.stats, column)
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, theirs, rtol=2**-11, atol=2**-24)
        assert recording.parameters == live.parameters and recording.provenance["corpora"] == live.provenance["corpora"]


def test_a_recording_says_how_often_each_text_was_seen(everything):
    times = {(r.model, r.benchmark): r.times.tolist() for r in recorded.load_recordings(everything)}
    assert times["lab/small", "lab/notes"] == [2] * 14 + [0] * 14
    assert times["lab/small", "lab/poems"] == [3] * 6 + [0] * 6
    assert times["lab/repeats", "lab/notes"] == [1] * 7 + [4] * 7 + [0] * 14


def test_a_file_says_what_made_it_and_holds_no_text(everything, tiny_lab):
    path = everything / "small-seed-1.parquet"
    table = pq.read_table(path)
    assert table.column_names == ["benchmark", "label", "times", "log_prob", "entropy", "log_prob_var", "top_log_prob"]
    assert {str(table.schema.field(name).type) for name in recorded.STATISTICS} == {"large_list<element: halffloat>"}
    provenance = json.loads(table.schema.metadata[b"provenance"])
    assert provenance["recipe"] == lab_recipe("lab/small@1").model_dump(mode="json") and provenance["seed"] == 1
    assert provenance["corpora"] == {name: lab_card(name)["content_hash"] for name in ("lab/notes", "lab/poems")}
    assert provenance["tokenizer"] == lab_card("lab/notes")["tokenizer_hash"]
    assert provenance["code"] == code_hash("book.recorded")
    assert provenance["device"].startswith("cpu") and provenance["seconds"] >= 0 and provenance["final_loss_nats"] > 0
    assert {"torch", "transformers", "tokenizers", "numpy", "python", "mialib", "commit"} <= set(provenance)
    assert str(tiny_lab) not in json.dumps(provenance) and "river" not in json.dumps(provenance)


def test_seeds_differ_in_the_model_and_not_in_the_texts(everything):
    first, second = (
        r for r in recorded.load_recordings(everything) if (r.model, r.benchmark) == ("lab/small", "lab/poems")
    )
    assert first.provenance["corpora"] == second.provenance["corpora"]
    np.testing.assert_array_equal(first.stats.offsets, second.stats.offsets)
    assert np.abs(first.stats.log_prob - second.stats.log_prob).max() > 0.01


@pytest.fixture
def trainings(monkeypatch):
    """What is trained, by stubs that train nothing and leave a file with the right key."""
    made = []

    def record_one(name, seed, path):
        made.append(f"{name}@{seed}")
        stats = TokenStats.from_rows(random_rows(0, [3, 4]), provenance={})
        times = np.array([1, 0])
        recorded.save(path, {"lab/notes": (times, times, stats)}, {"key": recorded._key(name, seed)})

    monkeypatch.setattr(recorded, "_record_one", record_one)
    monkeypatch.setattr(recorded, "_expected_seconds", lambda name, seed: 100.0)
    return made


ALL = ["lab/small@0", "lab/small@1", "lab/repeats@0"]


def test_recording_goes_on_where_it_broke_off(trainings, monkeypatch, tmp_path):
    stub = recorded._record_one

    def breaks(name, seed, path):
        if trainings:
            raise KeyboardInterrupt
        stub(name, seed, path)

    monkeypatch.setattr(recorded, "_record_one", breaks)
    with pytest.raises(KeyboardInterrupt):
        recorded.record(tmp_path, 60)
    assert [path.name for path in tmp_path.iterdir()] == ["small-seed-0.parquet"]
    monkeypatch.setattr(recorded, "_record_one", stub)
    assert recorded.record(tmp_path, 60) == []
    assert trainings == ALL
    assert recorded.record(tmp_path, 60) == [] and trainings == ALL


def test_what_is_in_the_repository_is_not_recorded_again(trainings, tmp_path, monkeypatch):
    recorded.record(tmp_path / "kept", 60)
    (tmp_path / "kept" / "small-seed-1.parquet").unlink()
    del trainings[:]
    monkeypatch.setattr(recorded, "RECORDED", tmp_path / "kept")
    assert recorded.record(tmp_path / "out", 60) == []
    assert trainings == ["lab/small@1"]


@pytest.mark.parametrize("change", [{"learning_rate": 0.1}, {"injected": {}}])
def test_another_recipe_is_recorded_anew(trainings, tiny_lab, tmp_path, monkeypatch, change):
    recorded.record(tmp_path / "out", 60)
    profile = yaml.safe_load((tiny_lab / "tiny.yml").read_text())
    profile["models"]["lab/small"]["train"] |= change
    (tmp_path / "changed.yml").write_text(yaml.safe_dump(profile, sort_keys=False))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "changed.yml"))
    assert recorded.find_left([tmp_path / "out"]) == [("lab/small", 0), ("lab/small", 1)]


def test_other_texts_are_recorded_anew(trainings, tiny_lab, tmp_path, monkeypatch):
    recorded.record(tmp_path / "out", 60)
    write_texts(tmp_path / "poems.jsonl", 3, 12)
    profile = yaml.safe_load((tiny_lab / "tiny.yml").read_text())
    profile["corpora"]["lab/poems"]["path"] = str(tmp_path / "poems.jsonl")
    (tmp_path / "changed.yml").write_text(yaml.safe_dump(profile, sort_keys=False))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "changed.yml"))
    assert recorded.find_left([tmp_path / "out"]) == [("lab/small", 0), ("lab/small", 1)], "the other one reads none"


def test_no_training_starts_that_would_end_too_late(trainings, monkeypatch, tmp_path):
    """Each is expected to take 100 s and takes 130 s, which is then expected of the model's further seed."""
    now, stub = [0.0], recorded._record_one

    def takes_longer(*job):
        stub(*job)
        now[0] += 130

    monkeypatch.setattr(recorded, "_record_one", takes_longer)
    monkeypatch.setattr(recorded.time, "monotonic", lambda: now[0])
    for seconds, made in ((99, 0), (101, 1), (259, 1), (261, 2), (359, 2), (361, 3)):
        now[0] = 0
        del trainings[:]
        left = recorded.record(tmp_path / str(seconds), seconds / 60)
        assert (trainings, left) == (ALL[:made], ALL[made:]), seconds


def test_left_over_is_said_and_is_no_failure(trainings, tmp_path):
    done = CliRunner().invoke(app, ["record-lab", "--minutes", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0 and f"left to record: {', '.join(ALL)}" in done.output


def test_rounding_to_half_hardly_moves_an_auc(tmp_path):
    labels = np.arange(400) % 2
    rng, rows = np.random.default_rng(0), []
    for label in labels:
        entropy = rng.gamma(2, 1.5, 60)
        log_prob = -rng.exponential(3 - 0.3 * label, 60)
        row = (np.arange(60), log_prob, entropy, rng.gamma(2, 2, 60) + 0.01, np.maximum(log_prob, -0.5))
        rows.append(TokenRow(*row))
    stats = TokenStats.from_rows(rows, provenance={})
    made_by = {"model": "m", "seed": 0, "non_embedding_parameters": 1}
    recorded.save(tmp_path / "a.parquet", {"b": (labels, labels, stats)}, made_by)
    [loaded] = recorded.load_recordings(tmp_path)
    for name in recorded.DETECTED:  # the bound that module and page state
        assert auc(labels, detect(name, loaded.stats)) == pytest.approx(auc(labels, detect(name, stats)), abs=0.002)
    with pytest.raises(ValueError, match="token ids are not recorded"):
        detect("dc_pdd", loaded.stats, frequency=None)


def test_a_number_too_large_for_half_is_an_error(tmp_path):
    stats = TokenStats.from_rows(random_rows(0, [3, 4]), provenance={})
    stats.log_prob_var[2] = 1e5
    with pytest.raises(ValueError, match=r"a\.parquet, b: a log_prob_var is not finite in float16"):
        recorded.save(tmp_path / "a.parquet", {"b": (np.array([1, 0]), np.array([1, 0]), stats)}, {})
    assert not list(tmp_path.iterdir())


def test_another_parquet_file_is_named(tmp_path):
    TokenStats.from_rows(random_rows(0, [3]), provenance={}).save(tmp_path / "stats.parquet")
    with pytest.raises(ValueError, match=r"stats\.parquet is no recording"):
        recorded.load_recordings(tmp_path)


def test_the_auc_over_seeds_is_their_mean_and_wider_than_one_seeds():
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], 100)
    scores = [rng.normal(labels * shift) for shift in (0.2, 0.6, 1.0)]
    over = recorded.auc_over_seeds(labels, scores)
    assert over.estimate == pytest.approx(np.mean([auc(labels, s) for s in scores]))
    one, alone = recorded.auc_over_seeds(labels, scores[:1]), auc_interval(labels, scores[0])
    assert (one.low, one.estimate, one.high) == pytest.approx((alone.low, alone.estimate, alone.high))
    assert over.high - over.low > 1.5 * (one.high - one.low), "these seeds differ"


def test_every_detector_that_needs_token_statistics_alone_is_measured(everything):
    assert recorded.DETECTED == ["ppl", "min_k", "min_k++", "surp"]
    groups = recorded.by_model(recorded.load_recordings(everything))
    measured = functions_of("recorded_ladder")["measure"](groups["lab/repeats", "lab/notes"], "r")
    assert {(r.column, r.metric) for r in measured} == {
        ("r", "auc"),
        ("r: 1×", "auc_by_times"),
        ("r: 4×", "auc_by_times"),
    }
    [recording] = groups["lab/repeats", "lab/notes"]
    some = (recording.times == 4) | (recording.labels == 0)
    scores = detect("min_k", recording.stats)
    [cell] = [r for r in measured if (r.row, r.column) == (DETECTORS["min_k"].label, "r: 4×")]
    assert cell.ours == pytest.approx(auc(recording.labels[some], scores[some]))


def test_seeds_of_different_recipes_are_not_averaged(everything):
    first, second, *_ = recorded.load_recordings(everything)
    recipe = second.provenance["recipe"] | {"learning_rate": 0.5}
    other = dataclasses.replace(second, provenance=second.provenance | {"recipe": recipe})
    with pytest.raises(ValueError, match="lab/small on lab/notes: its seeds were recorded from different recipes"):
        recorded.by_model([first, other])


def run_page(tmp_path, folder):
    """The page's cells in this process; the last value of each and its results."""
    scope, shown = {}, []
    given = {"models": "lab/small, lab/repeats", "benchmarks": "lab/notes", "folder": str(folder)}
    for cell in nbformat.read(ROOT / "notebooks" / "recorded_ladder.ipynb", as_version=4).cells:
        if cell.cell_type != "code":
            continue

        tree = ast.parse(cell.source)
        value = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell.id, "exec"), scope)
        if value:
            shown.append(eval(compile(value, cell.id, "eval"), scope))
        if "parameters" in cell.metadata.tags:
            scope |= given | {"out": str(tmp_path / "results.json")}
    return shown, load_results(tmp_path / "results.json")


def test_the_page_shows_the_live_ladder_alone_and_says_so_where_nothing_is_recorded(tmp_path):
    shown, results = run_page(tmp_path, tmp_path / "none")
    assert "Nothing is recorded yet" in shown[0].data
    assert {r.column for r in results if r.metric == "auc"} == {
        "lab/small on lab/notes, live",
        "lab/repeats on lab/notes, live",
    }
    assert "auc_by_seed" not in {r.metric for r in results}
    assert [axes.get_title() for axes in shown[1].axes] == ["lab/notes, live"]


def test_the_page_shows_what_is_recorded_beside_the_live_ladder(tmp_path, everything):
    shown, results = run_page(tmp_path, everything)
    assert shown[0].data.startswith("3 trainings of 2 models are recorded, on cpu")
    titles = [axes.get_title() for axes in shown[1].axes]
    assert titles[:3] == ["lab/notes, live", "lab/notes, recorded", "lab/poems, recorded"]
    by_times = [figure for figure in shown if isinstance(figure, Figure)][1]
    assert [axes.get_title() for axes in by_times.axes] == ["lab/repeats, live", "lab/repeats, recorded"]
    assert {r.column for r in results if r.metric == "auc_by_seed"} == {
        f"lab/small on {benchmark}, recorded, seed {seed}"
        for benchmark in ("lab/notes", "lab/poems")
        for seed in (0, 1)
    }
    table = functions_of("recorded_ladder")["recordings_table"](recorded.load_recordings(everything))
    assert list(table.index) == ["lab/small@0", "lab/small@1", "lab/repeats@0"]
    assert set(COLUMNS) - set(recorded.STATISTICS) == {"token_ids"}


@pytest.mark.parametrize(
    ("roots", "of_the_book"),
    [
        (("passes.inputs", "model_selection"), set()),  # of the ranking
        (("book.claim_tests",), {"book.claim_tests", "book.intervals"}),
    ],
)
def test_recorded_scores_are_matched_by_the_code_that_computes_them_and_no_other(roots, of_the_book):
    every = (*roots, "scoring", "lab.training")
    closure = set().union(*(import_closure(module, recorded.GATHERING) for module in every))
    assert {"scoring", "kernels", "detectors", "model_selection", "lab.training", "passes.inputs"} <= closure
    assert {module for module in closure if module.split(".")[0] in ("book", "commands", "builders")} == of_the_book
    assert recorded.scores_code(*roots) == code_hash(*every, apart=recorded.GATHERING)


# --- recorded seeds ---


def row_of(test, seed, code, *scores):
    return {"test": test, "seed": seed, "code": code, "scores": [np.array(scores, np.float32)]}


def test_seeds_hold_for_later_code_where_seed_0_comes_out_the_same_to_the_last_bit(tmp_path):
    path = tmp_path / "recorded.parquet"
    apart = np.nextafter(np.float32(0.1), np.float32(1))
    recorded.write_rows(path, [row_of(test, seed, "old", 0.1, np.nan) for test in "abc" for seed in range(3)])
    assert "has changed" not in recorded.describe_rows(path)
    again = [row_of("a", 0, "new", 0.1, np.nan), row_of("b", 0, "new", apart, np.nan)]
    assert recorded.confirm_rows(path, again, ["test"]) == ["b"]
    assert [row["code"] for row in recorded.read_rows(path)] == ["new"] * 3 + ["old"] * 6
    kept = [(test, seed, row_of(test, seed, "", 0.1, np.nan)["scores"]) for test in "abc" for seed in range(3)]
    for row, (test, seed, scores) in zip(recorded.read_rows(path), kept, strict=True):
        assert (row["test"], row["seed"]) == (test, seed), "nothing else changes"
        np.testing.assert_array_equal(row["scores"], scores)
    assert recorded.read_provenance(path)["torch"], "what the seeds were computed with stays"
    assert "to the last bit, with the code of hash new in 1 of 2 tests." in recorded.describe_rows(path)


@pytest.mark.parametrize(("code", "score"), [("old", 0.1), ("new", 0.2)])
def test_what_nothing_confirms_is_not_said_to_be(code, score, tmp_path):
    path = tmp_path / "recorded.parquet"
    recorded.write_rows(path, [row_of("a", seed, "old", 0.1) for seed in range(3)])
    recorded.confirm_rows(path, [row_of("a", 0, code, score)], ["test"])
    assert {row["code"] for row in recorded.read_rows(path)} == {"old"}
    assert "has changed" not in recorded.describe_rows(path)
