"""README, the pages of text and `examples/`: each command can be typed, and what is shown is what comes out."""

import doctest
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import typer
from clones import python_path
from typer.testing import CliRunner

import mialib
import mialib_audit.commands  # noqa: F401, its commands
from mialib.catalog.hub import Unavailable
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS
from mialib.store import ROOT
from mialib_audit import canaries
from replication.commands import app
from replication.pipeline.notebooks import NOTEBOOKS, read_notebook

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "book").glob("*.md"))]
EXAMPLES = ROOT / "examples"
MIALIB = re.compile(r"(?<![\w/-])(?:\.venv/bin/)?mialib ([a-z-]+(?: [^'&|;>#\n]*)?)")
COMMANDS = typer.main.get_command(app)


def code_of(path, language="bash"):
    """The blocks of code of a page; a line that goes on below is one."""
    text = path.read_text(encoding="utf-8")
    blocks = [text] if path.suffix == ".sh" else re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return [block.replace("\\\n", "") for block in blocks]


def parse(line):
    """Read a command line as `mialib` would, and run nothing; its error where it would be refused."""
    command, arguments = COMMANDS, shlex.split(line)
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        assert name in command.commands, f"there is no `mialib {line}`"
        command = command.commands[name]
    command.make_context(name, arguments)


@pytest.mark.parametrize("path", [*PAGES, EXAMPLES / "audit.sh"], ids=lambda path: path.name)
def test_each_command_of_a_page_can_be_typed(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for block in code_of(path):
        for line in MIALIB.findall(re.sub(r"(?m)(^| )#.*", "", block)):
            parse(line)
        for target, page in re.findall(r"^make ([a-z-]+)(?: PAGE=(\w+))?", block, re.M):
            assert target in targets and (not page or (NOTEBOOKS / f"{page}.ipynb").is_file()), (target, page)
        for file in re.findall(r"(?:python|bash) ((?:tools|examples)/\S+)", block):
            assert (ROOT / file).is_file(), file
        for name, options in re.findall(r"papermill (?:notebooks/)?(\w+)\.ipynb \S+(.*)", block):
            known = read_notebook(NOTEBOOKS / f"{name}.ipynb").defaults
            assert set(re.findall(r"-p (\w+)", options)) <= known.keys(), name
    for name in re.findall(r"`mialib ([a-z-]+)", path.read_text(encoding="utf-8")):
        assert name in COMMANDS.commands, f"there is no `mialib {name}`"


def test_readme_is_a_screen_and_a_half_with_a_small_picture():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1000
    for file in re.findall(r"\]\(([^):#]+)\)", text):
        assert (ROOT / file).is_file(), file
    assert (ROOT / "book" / "figures" / "token_view.png").stat().st_size < 100_000


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", ROOT / "book" / "score_your_texts.md"], ids=lambda path: path.name
)
def test_the_lines_of_python_run(path, model_folder, benchmark_file, capsys):
    [code] = code_of(path, "python")
    for name in re.findall(r'Scorer\("(.+?)"\)', code):
        code = code.replace(name, model_folder)
    exec(code.replace("examples/texts.jsonl", benchmark_file).replace('"texts.jsonl"', repr(benchmark_file)), {})
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\]\n", capsys.readouterr().out)


NAMES = {name: getattr(mialib, name) for name in mialib.__all__}
NAMES |= {"make_canaries": canaries.make_canaries, "check_seal": canaries.check_seal, "np": np, "Path": Path}


@pytest.mark.parametrize("name", sorted(NAMES.keys() - {"DETECTORS", "np", "Path"}))  # `detect`'s example has the first
def test_the_example_of_a_public_name_runs(name, model_folder, masked_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(NAMES[name])
    for of, here in {"smollm2-135m": model_folder, "roberta-base": masked_folder, "examples": EXAMPLES}.items():
        text = text.replace(f'"{of}', f'"{here}')
    example = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, None)
    wrong = []
    assert example.examples and not doctest.DocTestRunner().run(example, out=wrong.append).failed, "".join(wrong)


@pytest.mark.slow
def test_what_readme_shows_is_what_detect_prints(shared_home, monkeypatch):
    monkeypatch.setenv("MIALIB_HOME", str(shared_home))
    try:
        assert find("smollm2-135m").folder
    except Unavailable as error:
        pytest.skip(str(error))
    [shown] = code_of(ROOT / "README.md", "text")
    [line] = [line for block in code_of(ROOT / "README.md") for line in MIALIB.findall(block) if "detect" in line]
    with chdir(ROOT):
        found = CliRunner().invoke(app, shlex.split(line)).stdout
    digits = re.compile(r"-?\d+\.\d+")  # of another machine's sums the last ones differ
    assert digits.sub("", found).split() == digits.sub("", shown).split()
    numbers = [list(map(float, digits.findall(of))) for of in (found, shown)]
    assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)


# --- examples/ ---


def test_the_texts_are_ten_with_labels_and_no_two_alike():
    rows = [json.loads(line) for line in (EXAMPLES / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["label"] for row in rows] == [1, 0] * 5 and len({row["text"] for row in rows}) == 10


def run_example(name, *arguments, cwd=ROOT, home):
    command = [sys.executable] if str(name).endswith(".py") else ["bash"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": python_path(), "MIALIB_HOME": str(home), "PATH": path}
    done = subprocess.run(
        [*command, EXAMPLES / name, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_detector_of_ones_own_is_scored(model_folder, benchmark_file, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["my_detector.py", benchmark_file, model_folder])
    monkeypatch.setitem(DETECTORS, "sure", None)  # and gone after this test
    runpy.run_path(str(EXAMPLES / "my_detector.py"))
    assert re.fullmatch(r"sure 0\.\d+ \[.*\]\nmin_k\+\+ 0\.\d+ \[.*\]\n", capsys.readouterr().out)


@pytest.mark.slow
def test_the_audit_is_repeated_and_concludes(tmp_path):
    script = (EXAMPLES / "audit.sh").read_text(encoding="utf-8")
    (tmp_path / "audit.sh").write_text(script.replace("--sample 400", "--sample 80"))
    out = run_example(tmp_path / "audit.sh", "lab/en-25k", tmp_path / "audit", home=tmp_path / "home")
    assert "the same files and the same model give the same report" in out
    assert {path.name for path in (tmp_path / "audit" / "report").iterdir()} == {
        "report.html",
        "report.json",
        "scores.csv",
    }


@pytest.mark.slow
def test_the_sweep_has_each_models_aucs(tmp_path):
    (tmp_path / "notebooks").symlink_to(NOTEBOOKS)
    out = run_example("sweep.py", "lab/en-25k", "lab/en-100k", cwd=tmp_path, home=tmp_path / "home")
    assert {line.split()[0] for line in out.splitlines()} == {"lab/en-25k", "lab/en-100k"}


# --- Files that commands write ---


def test_the_page_of_formats_has_every_key_that_is_written(model_folder, benchmark_file, tmp_path):
    page = (ROOT / "book" / "formats.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w+-]+)`", page))
    known = tmp_path / "known.txt"
    known.write_text("".join(f"The stone number {i} stands near the river\n" for i in range(19)))

    def detect(*more):
        options = [benchmark_file, "--model", model_folder, "--detector", "min_k", "--calibrate", str(known), *more]
        return CliRunner().invoke(app, ["detect", *options]).stdout

    for more in ([], ["--fdr", "0.2"]):
        assert json.loads(detect("--json", *more).splitlines()[0]).keys() <= named
        detect("--output", str(tmp_path / "scores.csv"), *more)
        assert set((tmp_path / "scores.csv").read_text().splitlines()[0].split(",")) <= named
    receipt = tmp_path / "receipt.json"
    CliRunner().invoke(app, ["score", model_folder, benchmark_file, "--receipt", str(receipt)])
    stays = {"mialib", "model", "revision", "tokenizer", "texts", "n_texts", "dtype", "device", "start_token"}
    assert stays <= json.loads(receipt.read_text())["original"].keys() and stays <= named
