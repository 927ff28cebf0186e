"""The command line."""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import transformers
from typer.testing import CliRunner

import mialib
import mialib_audit.commands  # noqa: F401
from mialib.calibration import set_p_value
from mialib.commands import main
from mialib.detectors import DETECTORS
from mialib.scoring import LoadedScorer
from mialib.shared.files import load_texts
from replication.commands import app


@pytest.fixture
def texts_file(tmp_path):
    path = tmp_path / "two_texts.jsonl"
    path.write_text('{"text": "The river runs"}\n{"text": "A stone in the garden"}\n')
    return path


def invoke(*arguments, **options):
    return CliRunner().invoke(app, list(map(str, arguments)), **options)


def rows_of(*arguments):
    """What a command prints as JSON, a row a line."""
    return [json.loads(line) for line in invoke(*arguments, "--json").stdout.splitlines()]


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (
            "from replication.commands import app; from typer.testing import CliRunner;"
            "CliRunner().invoke(app, ['--help'])",
            {"torch", "transformers", "pandas", "sklearn", "matplotlib"},
        ),
        (
            "from mialib import probe_scores; from mialib.passes.inputs import load_inputs;"
            "from replication import claims, figures, pages",
            {"torch", "transformers", "sklearn"},
        ),
    ],
    ids=["help", "a page of stored statistics"],
)
def test_what_runs_no_model_loads_neither_torch_nor_transformers(code, heavy):
    loaded = subprocess.run([sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"], capture_output=True)
    assert loaded.returncode == 0 and not heavy & set(loaded.stdout.decode().split())


def test_detect_prints_a_line_a_text_and_score_writes_a_receipt(model_folder, texts_file, benchmark_file, tmp_path):
    found = invoke("detect", texts_file, "--model", model_folder)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert "min_k++" in lines[0] and "The river runs" in lines[1] and "A stone" in lines[2]
    rows = rows_of("detect", texts_file, "--model", model_folder, "--detector", "min_k")
    assert [row["text"] for row in rows] == [0, 1] and rows[0]["min_k"] < 0
    (tmp_path / "recorded").mkdir()
    like_a_name = Path("recorded") / texts_file.name  # and no benchmark of that name
    (tmp_path / like_a_name).write_bytes(texts_file.read_bytes())
    with chdir(tmp_path):
        assert rows_of("detect", like_a_name, "--model", model_folder, "--detector", "min_k") == rows
    found = invoke("score", model_folder, benchmark_file, "--receipt", tmp_path / "receipt.json")
    assert found.exit_code == 0, found.output
    passes = json.loads((tmp_path / "receipt.json").read_text())
    assert {name: p["n_texts"] for name, p in passes.items()} == {"original": 16, "lowercase": 16}


@pytest.fixture
def non_members_file(tmp_path):
    path = tmp_path / "non_members.txt"
    path.write_text("".join(f"The stone number {i} stands near the river\n" for i in range(19)))
    return path


def test_calibrated_scores_come_with_p_values_and_decisions(model_folder, texts_file, non_members_file):
    command = ["detect", texts_file, "--model", model_folder, "--detector", "min_k", "--detector", "zlib"]
    command += ["--calibrate", non_members_file]
    table, rows = invoke(*command).stdout, rows_of(*command)
    of_known = mialib.detect("min_k", mialib.Scorer(model_folder).score(load_texts(non_members_file), progress=False))
    for row in rows:
        expected = (1 + int((of_known >= row["min_k"]).sum())) / 20
        assert row["p_values"]["min_k"] == pytest.approx(expected)
        assert row["called"] == [name for name, p in row["p_values"].items() if p <= 0.05]
    # 0 of 19 may lie above at 5%: the upper end is 1 - 0.025 ** (1 / 19) = 0.176.
    assert "17.6%" in table
    assert row["thresholds"]["min_k"]["threshold"] == pytest.approx(of_known.max())
    assert row["thresholds"]["min_k"]["fpr_interval"] == pytest.approx([0, 1 - 0.025 ** (1 / 19)])
    assert row["set_p_values"]["min_k"] == pytest.approx(set_p_value([row["min_k"] for row in rows], of_known))
    assert set(row["set_p_values"]) == {"min_k", "zlib"}


def test_a_target_fdr_flags_texts_and_many_stars_come_with_a_warning(
    model_folder, non_members_file, tmp_path, caplog, monkeypatch
):
    """Of 40 texts 30 score above all 99 known non-members, two of them copies: p = 0.01; the others below them all."""
    texts = [f"The river {i} runs behind the mill" for i in [*range(28), 0, 1, *range(28, 38)]]
    (path := tmp_path / "many.txt").write_text("".join(f"{text}\n" for text in texts))
    non_members_file.write_text("".join(f"The stone number {i} stands near the river\n" for i in range(99)))
    scores = np.concatenate([np.full(30, 2.0), np.full(10, -2.0), np.linspace(-1, 1, 99)])
    monkeypatch.setattr("mialib.reports.detection.score_all", lambda *_, **__: {"min_k": scores})
    command = ["detect", path, "--model", model_folder, "--detector", "min_k", "--calibrate", non_members_file]
    assert "up to 2.0 " in invoke(*command).stdout and "up to 2.0 " not in caplog.text
    assert rows_of(*command)[0].keys().isdisjoint({"flagged", "flagged_set"}) and "up to 2.0 " in caplog.text
    command += ["--fdr", "0.05"]
    found = invoke(*command).stdout
    assert "28 of 38 texts" in found and "1.4 of 28" in found and "47.4%" in found  # 1 - 2 * 10 / 38
    assert sum("*" in line for line in found.splitlines()[1:41]) == 30
    rows, of_set = rows_of(*command), rows_of(*command)[0]["flagged_set"]["min_k"]
    assert [row["flagged"] for row in rows] == [["min_k"]] * 30 + [[]] * 10
    assert (of_set["n_flagged"], of_set["up_to_p"]) == (28, 0.01) and of_set["most_false"] == pytest.approx(1.4)
    assert 0 <= of_set["share_of_members"]["low"] < of_set["share_of_members"]["estimate"] == pytest.approx(9 / 19)
    invoke(*command, "--output", tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text().startswith("text,min_k,min_k_p,min_k_flagged\n0,2.0,0.01,1\n")
    scores[:30], scores[0] = -2, 2
    assert rows_of(*command)[0]["flagged_set"]["min_k"]["n_flagged"] == 0


def test_copies_count_once_and_are_told(model_folder, texts_file, non_members_file, benchmark_file, tmp_path, caplog):
    caplog.set_level("INFO")
    command = ["--model", model_folder, "--detector", "min_k"]
    once = [texts_file, non_members_file, Path(benchmark_file)]
    twice = [tmp_path / f"twice_{path.name}" for path in once]
    for path, copy in zip(once, twice, strict=True):
        copy.write_text(2 * path.read_text())
    found = [rows_of("detect", texts, *command, "--calibrate", known)[0] for texts, known, _ in (once, twice)]
    assert found[0] == found[1]
    assert "2 of the 4 texts are copies" in caplog.text and "19 of its texts are copies" in caplog.text
    for labelled, is_told in ((once[2], False), (twice[2], True)):
        assert "AUC" in invoke("detect", labelled, *command).stdout
        assert ("16 of the 32 texts are copies" in caplog.text) == is_told


def test_labelled_texts_get_an_auc_and_files_hold_numbers(model_folder, benchmark_file, non_members_file, tmp_path):
    bench = mialib.load_benchmark(benchmark_file)
    scores = mialib.detect("min_k", mialib.Scorer(model_folder).score(bench.texts, progress=False))
    command = ["detect", benchmark_file, "--model", model_folder, "--detector", "min_k"]
    interval = mialib.auc_interval(bench.labels, scores)
    assert re.search(f"AUC .*8 members and 8 non-members: min_k {re.escape(str(interval))}", invoke(*command).stdout)
    first = rows_of(*command)[0]
    assert first["label"] == bench.labels[0] and first["auc"]["min_k"][0] == pytest.approx(interval.estimate)
    out = tmp_path / "scores.csv"
    invoke(*command, "--calibrate", non_members_file, "--output", out)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["text", "min_k", "min_k_p"]
    np.testing.assert_allclose([float(row["min_k"]) for row in rows], scores)
    invoke(*command, "--output", tmp_path / "scores.jsonl")
    assert json.loads((tmp_path / "scores.jsonl").read_text().splitlines()[3])["text"] == 3


def test_each_model_is_loaded_once(tiny_model, masked_folder, texts_file, non_members_file, tmp_path, monkeypatch):
    loaded = Counter()
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoModelForMaskedLM):

        def counted(*args, load=kind.from_pretrained, **kwargs):
            loaded[kwargs["pretrained_model_name_or_path"]] += 1
            return load(*args, **kwargs)

        monkeypatch.setattr(kind, "from_pretrained", counted)
    folders = {name: str(tmp_path / name) for name in ("model", "reference", "masked")}  # that no other test has loaded
    made = (tiny_model("gpt_neox"), tiny_model("llama"), masked_folder)
    for source, folder in zip(made, folders.values(), strict=True):
        shutil.copytree(source, folder)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("Frequencies are counted in other texts.\nThese are two.\n")
    command = ["detect", str(texts_file), "--calibrate", str(non_members_file), "--corpus", str(corpus)]
    command += ["--n-neighbors", "2", *(f"--{name}={folder}" for name, folder in folders.items())]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert all(name in found.stdout for name in ("lowercase", "ref", "dc_pdd", "neighbor"))
    assert loaded == dict.fromkeys(folders.values(), 1)


def test_members_of_a_labelled_file_are_no_known_non_members(model_folder, texts_file, tmp_path):
    path = tmp_path / "labelled.jsonl"
    rows = [{"text": f"The stone number {i} stands near the river", "label": int(i < 6)} for i in range(25)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["detect", texts_file, "--model", model_folder, "--detector", "min_k", "--calibrate", path]
    assert "19 known non-members" in invoke(*command).stdout
    for content in ('{"text": "b"}\n', ""):
        path.write_text('{"text": "a", "label": 1}\n' + content)
        assert str(path) in str(invoke(*command).exception)


def test_texts_that_differ_in_white_space_alone_are_the_same(model_folder, texts_file, non_members_file):
    spaced, known = " The river\truns ", non_members_file.read_text()
    command = ["detect", texts_file, "--model", model_folder]
    for text in (spaced, "The riverruns"):
        non_members_file.write_text(known + text + "\n")
        for option in ("--calibrate", "--corpus"):
            assert repr(text) in str(invoke(*command, option, non_members_file).exception)
    non_members_file.write_text(known + known.replace("stone", "stone "))
    assert "19 known" in invoke(*command, "--calibrate", non_members_file).stdout


def test_what_comes_on_standard_input_is_scored_as_its_file_is(model_folder, benchmark_file, non_members_file):
    content, more = Path(benchmark_file).read_text(), ["--model", model_folder, "--detector", "min_k", "--json"]
    assert invoke("detect", "-", *more, input=content).stdout == invoke("detect", benchmark_file, *more).stdout
    of_file = invoke("detect", benchmark_file, *more, "--calibrate", non_members_file).stdout
    piped = invoke("detect", benchmark_file, *more, "--calibrate", "-", input=non_members_file.read_text())
    assert piped.stdout == of_file and "p_values" in of_file
    assert "16 texts" in invoke("score", model_folder, "-", input=content).stdout


@pytest.mark.parametrize(("option", "start_token"), [("none", None), ("auto", "auto"), ("</s>", "</s>")])
def test_the_start_token_is_the_callers_choice(texts_file, model_folder, option, start_token):
    rows = rows_of("detect", texts_file, "--model", model_folder, "--start-token", option)
    texts = load_texts(texts_file)
    scorer = mialib.Scorer(model_folder, start_token=start_token)
    stats, lower = scorer.score(texts, progress=False), scorer.score([t.lower() for t in texts], progress=False)
    np.testing.assert_allclose([row["min_k"] for row in rows], mialib.detect("min_k", stats), rtol=1e-6)
    expected = mialib.detect("lowercase", stats, lowercase=lower)
    np.testing.assert_allclose([row["lowercase"] for row in rows], expected, rtol=1e-6)


def test_a_command_goes_on_once_all_parts_are_kept(model_folder, benchmark_file, mialib_home, caplog):
    caplog.set_level("INFO")
    arguments = ["detect", benchmark_file, "--model", model_folder]
    whole = invoke(*arguments)
    shutil.rmtree(mialib_home)
    for part in ("1/3", "3/3"):
        of_part = invoke(*arguments, "--part", part)
        assert (of_part.exit_code, of_part.stdout) == (0, ""), of_part.exception
    assert "3/3" in caplog.text
    last = invoke(*arguments, "--part", "2/3")
    assert last.exit_code == 0 and last.stdout == whole.stdout != ""


def test_each_pass_of_each_command_has_the_type_asked_for(model_folder, masked_folder, tmp_path, monkeypatch):
    from mialib.catalog.models import Weights

    asked, pass_key, page, texts = Counter(), Weights.pass_key, tmp_path / "page.html", tmp_path / "three.jsonl"
    monkeypatch.setattr(
        Weights, "pass_key", lambda of, **how: asked.update([(of.name, how["dtype"])]) or pass_key(of, **how)
    )
    common = ["--model", model_folder, "--dtype", "bfloat16"]
    tempered = next(name for name, of in DETECTORS.items() if "tempered" in of.needs)
    rows = [{"text": f"The {noun} stands near", "label": i % 2} for i, noun in enumerate(["river", "stone", "letter"])]
    texts.write_text("".join(map("{}\n".format, map(json.dumps, rows))))
    for command in (
        ["detect", texts, "--masked", masked_folder, "--n-neighbors", 2, "--detector", f"neighbor,{tempered}", *common],
        ["view", texts, "--output", page, *common],
        ["score", model_folder, texts, *common[2:]],
    ):
        asked.clear()
        result = invoke(*command)
        assert result.exit_code == 0, result.exception
        assert asked and asked.keys() <= {(model_folder, "bfloat16"), (masked_folder, "float32")}, command
    assert "in bfloat16" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["detect", "missing.jsonl", "--model", "lab/en-25k"], "missing.jsonl"),
        (["score", "lab/en-25k", "nope"], "'nope'"),
        (["score", "lab/en-25k", "lab/en", "--dtype", "int8"], "dtype"),
    ],
)
def test_an_error_of_the_users_is_one_line_and_exit_code_one(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mialib", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    error = capsys.readouterr().err
    assert caught.value.code == 1 and message in error and error.count("\n") == 1


def test_no_file_of_texts_is_overwritten(texts_file, non_members_file, model_folder):
    mine = texts_file.parent / "scores.csv"
    mine.write_text(before := "text\nThe mill\n")
    own_log_probs = ["--model", f"logprobs:{mine}"]
    audit = ["audit", "--force", "--non-members", texts_file, "--output", mine.parent]
    for command in (
        ["detect", str(texts_file), "--output", str(texts_file)],
        ["detect", str(texts_file), "--calibrate", str(non_members_file), "--output", str(non_members_file)],
        ["view", str(texts_file), "--output", str(mine), *own_log_probs],
        ["detect", str(texts_file), "--output", str(mine), "--reference", f"logprobs:{mine}"],
        [*audit, mine],
        [*audit, texts_file, *own_log_probs],
    ):
        refused = invoke(command[0], "--model", model_folder, *command[1:])
        assert isinstance(refused.exception, ValueError), command
    assert mine.read_text() == before and len(load_texts(texts_file)) == 2


def test_fresh_scores_again_what_is_cached(texts_file, model_folder, monkeypatch):
    scored, score = [], LoadedScorer.score
    monkeypatch.setattr(
        LoadedScorer, "score", lambda self, *args, **given: scored.append(1) or score(self, *args, **given)
    )
    monkeypatch.setattr("mialib.cache.recomputed", None)
    command = ["detect", str(texts_file), "--model", model_folder, "--detector", "ppl"]
    said = [CliRunner().invoke(app, [*command, *fresh]).stdout for fresh in ([], [], ["--fresh"])]
    assert len(scored) == 2 and said[0] == said[1] == said[2]


def test_blind_says_why_it_cannot_measure_ten_texts_and_prints_no_empty_table(caplog):
    said = invoke("blind", mialib.store.ROOT / "examples" / "texts.jsonl")
    assert said.exit_code == 0 and not said.output
    assert "the smaller class has 5 texts" in caplog.text


def test_the_version_is_the_packages():
    assert re.fullmatch(r"mialib \d+\.\d+\.\d+\n", invoke("--version").output)
