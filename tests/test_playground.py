"""The editor in a page, in a real browser: its numbers are mialib's, from a file and from a server.

It takes Debian's Chromium, playwright, and npm once, which fetches the interpreter.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from clones import python_path
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from test_browser import CHROMIUM, PHONE, browser, served  # noqa: F401
from typer.testing import CliRunner

import mialib
from mialib.store import ROOT
from replication import pages
from replication.commands import app
from replication.studies import playground

MIN_K_PLUS_PLUS = """
def score(row):
    z = sorted((l + h) / math.sqrt(v) for l, h, v in zip(row.log_prob, row.entropy, row.log_prob_var))
    return sum(z[: max(1, len(z) // 5)]) / max(1, len(z) // 5)
"""
DC_PDD = """
def score(row):
    alpha = [min(-math.exp(l) * f, 0.01) for l, f, first in zip(row.log_prob, row.log_frequency, row.is_first) if first]
    return sum(alpha) / len(alpha)
"""
ZLIB = "def score(row):\n    return sum(row.log_prob) / len(row.log_prob) / row.zlib_bytes"


_QUESTIONS = re.findall(
    r"^\*\*\d\.\*\* (.*)\n\n((?:\d\. .*\n)+)\n:::\{dropdown\} Answer\n\n((?:\d\. .*\n)+)\n:::",
    (ROOT / "book" / "quiz.md").read_text(encoding="utf-8"),
    re.M,
)
# Questions, their choices, and what is said of each.
QUIZ = [(q, *([line[3:] for line in lines.splitlines()] for lines in of)) for q, *of in _QUESTIONS]


def exercises_in_pages():
    """Each exercise that is checked in its page: the page, stub, the functions of its solution, and check."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        for i, check in enumerate(cells):
            if {"check", "in-page"} <= {*check.metadata.get("tags", [])}:
                stub, solution = cells[i - 2].source, ast.parse(cells[i - 1].source)
                kept = [node for node in solution.body if isinstance(node, ast.FunctionDef | ast.Import)]
                yield path.stem, stub, "\n".join(map(ast.unparse, kept)), check.source


IN_PAGES = list(exercises_in_pages())


def cells_of_exercises():
    cells = [new_markdown_cell("# Exercises")]
    for _, stub, _, check in IN_PAGES:
        cells.append(new_code_cell(stub, metadata={"tags": ["exercise"]}))
        cells.append(new_code_cell(check, metadata={"tags": ["check", "in-page"]}))
    return cells


def cells_with_the_editor():
    shown = new_output("display_data", data={"text/html": playground.editor().data})
    cells = [new_markdown_cell("# Try it"), new_code_cell("1", outputs=[shown], execution_count=1)]
    return cells


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The folder of a book of the editor and of exercises, and what its build said."""
    folder = tmp_path_factory.mktemp("book")
    pages_of_cells = {"index": cells_with_the_editor(), "exercises": cells_of_exercises()}
    for name, cells in pages_of_cells.items():
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters:\n- file: exercises\n")
    for name in ("_static", "references.bib"):
        (folder / name).symlink_to(ROOT / "book" / name)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", folder, "--config", ROOT / "_config.yml"]
    environment = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not shutil.which("npm") or "is expected" not in done.stderr
    return folder / "_build" / "html", done.stderr


@pytest.fixture(scope="module")
def tab(request, browser, book):  # noqa: F811
    folder, printed = book
    if "no editor in the pages" in printed:
        pytest.skip(printed[-300:])
    opened = browser.new_page(viewport={"width": PHONE, "height": 844})
    opened.asked = []
    opened.on("request", lambda asked: opened.asked.append(asked.url))
    with served(folder) as address:
        is_file = getattr(request, "param", "file") == "file"
        opened.goto((folder / "index.html").as_uri() if is_file else f"{address}index.html")
        yield opened
    opened.close()


@pytest.fixture(scope="module")
def inputs(shared_home, built_copy):
    """The texts of the editor and their statistics, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIALIB_HOME", str(built_copy))
        [inputs] = pages.load_columns("lab/en-900k", "lab/en", None, "lab/en")
        assert len(inputs.stats) and inputs["frequency"]
    return inputs


def said(tab, code=None, wait=15_000):
    """What the page says once it has run the code."""
    if code is not None:
        tab.get_by_label("Your detector, in Python").fill(code)
    tab.evaluate("document.querySelector('.pg-said').textContent = ''")
    tab.get_by_role("button", name="Run").click()
    tab.wait_for_function("!/^(Running.*)?$/.test(document.querySelector('.pg-said').textContent)", timeout=wait)
    return tab.locator(".pg-said").inner_text()


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine: apt-get install chromium")
@pytest.mark.usefixtures("home_of_all_pages")
class TestInABrowser:
    @pytest.mark.parametrize("tab", ["file", "server"], indirect=True)
    def test_detectors_typed_in_give_what_mialib_gives(self, tab, inputs):
        first, second = playground.halves_of(inputs.texts, inputs.labels)
        known = json.loads(tab.locator(".pg > script").first.text_content())["known"]
        for name, code in {"min_k": None, "min_k++": MIN_K_PLUS_PLUS, "dc_pdd": DC_PDD, "zlib": ZLIB}.items():
            needs = {"dc_pdd": {"frequency": inputs["frequency"]}, "zlib": {"texts": inputs.texts}}
            scores = mialib.detect(name, inputs.stats, **needs.get(name, {}))
            found = said(tab, code)
            [auc, where] = re.match(
                r"AUC ([\d.]+) \[[\d.]+, [\d.]+\] on 100 members and 100 non-members; (level with [^.]+|place \d of 7)",
                found,
            ).groups()
            assert name == "dc_pdd" or where == f"level with {mialib.detectors.DETECTORS[name].label}"
            assert ("Difference from Min-K%++ Prob" in found) == (name != "min_k++")
            assert abs(float(auc) - mialib.auc(inputs.labels[first], scores[first])) < 0.0015, name
            assert abs(known[mialib.detectors.DETECTORS[name].label] - float(auc)) < 0.00051 + 0.001 * (
                name == "dc_pdd"
            ), name
            with tab.expect_download() as saved:
                tab.get_by_role("button", name="Save the other").click()
            expected = mialib.auc(inputs.labels[second], scores[second])
            [judged] = playground.grade([saved.value.path()])[0].values()
            assert abs(judged.estimate - expected) < 0.0015, name
        assert not [url for url in tab.asked if not url.startswith(("file:", "http://127.0.0.1", "blob:", "data:"))]

    def test_the_interval_is_mialibs(self, tab, inputs):
        first, _ = playground.halves_of(inputs.texts, inputs.labels)
        scores = -inputs.stats.n_tokens[first]
        found = said(tab, "def score(row):\n    return -len(row.log_prob)")
        assert str(mialib.auc_interval(inputs.labels[first], scores)) in found
        rounded = playground.on_page(inputs)[1].take(np.arange(len(first)), "first")
        rival = mialib.compare_auc(inputs.labels[first], scores, mialib.detect("min_k++", rounded.stats))
        assert f"Difference from Min-K%++ Prob: {rival.difference}; Min-K%++ Prob leads." in found
        assert "Below 0.5" in said(tab, "def score(row):\n    return -sum(row.log_prob)")

    @pytest.mark.parametrize("number", range(len(IN_PAGES)), ids=[name for name, *_ in IN_PAGES])
    def test_each_exercise_in_a_page_is_solved_there(self, browser, book, number):  # noqa: F811
        _, stub, solution, _ = IN_PAGES[number]
        tab = browser.new_page()
        tab.goto((book[0] / "exercises.html").as_uri())
        box, answers = tab.locator(".tries").nth(number), {stub: "No answer yet", solution: "Right"}
        assert not tab.locator(".tag_check").nth(number).is_visible()
        for code, expected in answers.items():
            box.locator("textarea").fill(code)
            box.get_by_role("button", name="Check").click()
            box.get_by_text(expected).wait_for(timeout=15_000)
        tab.close()


def test_each_question_of_the_quiz_has_a_word_for_each_choice_and_one_is_right():
    places = []
    for question, choices, says in QUIZ:
        assert len(choices) == len(says) >= 3, question
        [right] = [at for at, say in enumerate(says) if say.startswith("Right.")]
        places.append(right)
    assert len(QUIZ) == 24 and all(places.count(at) >= 6 for at in range(3)), "no place is the right one"


def test_halves_are_of_both_classes_and_no_order_tells_labels():
    labels = np.repeat([1, 0], 300)
    texts = ["x" * (i * 7 % 300) + str(i) for i in range(600)]
    halves = playground.halves_of(texts, labels)
    assert len(set(np.concatenate(halves))) == 2 * playground.HALF
    for half, other in zip(halves, playground.halves_of(texts, 1 - labels), strict=True):
        assert not np.array_equal(labels[half], 1 - labels[other]), "a place tells no label"
        assert labels[half].sum() == playground.HALF / 2 and 20 < labels[half][: playground.HALF // 2].sum() < 80


def test_a_folder_of_submissions_becomes_a_ranking_and_who_cannot_be_read_is_told(monkeypatch, tmp_path):
    labels = np.repeat([1, 0], 300)
    texts = ["x" * (i * 7 % 300) + str(i) for i in range(600)]
    known = mialib.Benchmark(name="lab/en", texts=texts, labels=labels, revision="1", language="en")
    monkeypatch.setattr(playground, "load_benchmark", lambda _: known)
    _, second = playground.halves_of(texts, labels)
    right, of_these = labels[second].tolist(), mialib.store.hash_texts([texts[i] for i in second])
    saved = {
        "ada/scores.json": {"texts": of_these, "scores": right},
        "bob.json": {"texts": of_these, "scores": [0] * len(right)},
        "eve.json": {"texts": of_these, "scores": right},
        "late.json": {"texts": "other", "scores": right},
        "nan.json": {"texts": of_these, "scores": [None, *right[1:]]},
        "note.txt": [],
    }
    (tmp_path / "ada").mkdir()
    for name, content in saved.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "photo.json").write_bytes(b"\xff\xd8")
    run = CliRunner().invoke(app, ["grade", str(tmp_path)])
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [row[:3] for row in rows[1:]] == [
        ["ada/scores.json", "1", "1.000"],
        ["eve.json", "1", "1.000"],
        ["bob.json", "3", "0.500"],
    ]
    refused = dict(line.removeprefix("not judged: ").split(": ", 1) for line in run.stderr.splitlines())
    assert refused.keys() == {"late.json", "nan.json", "note.txt", "photo.json"}
    assert "other texts" in refused["late.json"] and "finite" in refused["nan.json"]
    assert all("editor" in refused[name] for name in ("note.txt", "photo.json"))
    alone = CliRunner().invoke(app, ["grade", str(tmp_path / "late.json")])
    assert alone.exit_code and "other texts" in alone.stderr
