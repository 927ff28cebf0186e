"""The students' notebooks hold no solution and run to their ends; a check tells a missing answer from a wrong one."""

import ast
import json
import re
import symtable
from collections import Counter
from contextlib import redirect_stderr
from io import StringIO

import matplotlib
import pytest
from page_code import functions_of
from typer.testing import CliRunner

from mialib.store import ROOT
from replication.commands import app
from replication.pipeline.student import (
    CHECK,
    EXERCISE,
    SOLUTION,
    check_exercises,
    plain,
    student_notebook,
    write_builds,
)
from replication.profile import names_given

matplotlib.use("Agg")
BUILT = ROOT / "build" / "lab" / "results"
TEACHING = ROOT / "book" / "teaching.md"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECRET = "forty-two"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def tagged(notebook, tag):
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in cells if tag in cell["metadata"].get("tags", [])]


def names_taken(code):
    """The names that a cell reads and does not bind."""
    tables, names = [symtable.symtable(code, "", "exec")], set()
    for table in tables:  # which grows
        tables += table.get_children()
        is_module = table.get_type() == "module"
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (is_module or s.is_global())}
    return names - names_given(code)


def solutions_of(notebook):
    """The text of each solution: cells, and folds in the text."""
    text = "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    folds = re.findall(r"^([`:]{3,})\{[\w-]+\} *[Ss]olution.*?\n(.*?)^\1\s*$", text, re.M | re.S)
    return tagged(notebook, SOLUTION) + [body for _, body in folds]


def lines_of(sources):
    return Counter(line.strip() for source in sources for line in source.splitlines() if len(line.strip()) >= 10)


def exercises_of(path):
    """Each exercise of a notebook: its stub, its solution, and its check as students get it."""
    source, student = read(path), student_notebook(read(path), "student")
    return list(zip(tagged(student, EXERCISE), tagged(source, SOLUTION), tagged(student, CHECK), strict=True))


EXERCISES = [
    pytest.param(path.stem, *cells, id=f"{path.stem}-{i}")
    for path in NOTEBOOKS
    for i, cells in enumerate(exercises_of(path))
]


WITHOUT_EXERCISES = {
    "index": "the landing page points elsewhere",
    "paper_table": "its pages print the papers' tables; their methods have pages of their own",
    "recorded_ladder": "repeats, on larger models, what other pages ask about",
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_pages_exercises_hide_their_solutions_and_students_get_none_of_them(path):
    source, student = read(path), student_notebook(read(path), "student")
    check_exercises(source["cells"])
    text = "\n".join("".join(c["source"]) for c in source["cells"] if c["cell_type"] == "markdown")
    titles = re.findall(r"^`{3,}\{admonition\} (Exercise.*)", text, re.M)
    n_exercises = len(titles)
    assert [
        title for title in titles if not re.match(r"Exercise( \d)? \((easy|middle|hard), \d+ min\)(: \S|$)", title)
    ] == []
    if path.stem not in WITHOUT_EXERCISES:
        assert n_exercises >= 3 and tagged(source, CHECK) and len(solutions_of(source)) >= n_exercises
    solved, before = lines_of(solutions_of(source)), lines_of("".join(cell["source"]) for cell in source["cells"])
    left = lines_of("".join(cell["source"]) for cell in student["cells"])
    assert not {line for line, n in solved.items() if left[line] > before[line] - n}
    for cell in student["cells"]:
        assert not cell.get("outputs") and cell["metadata"].keys() <= {"tags", "nbgrader"}
        grading = cell["metadata"].get("nbgrader", {})
        assert CHECK not in cell["metadata"].get("tags", []) or (grading["points"], grading["locked"]) == (1, True)
    stub, names = set(), set()  # of the last stub; of all exercises, solutions and checks so far
    for cell in source["cells"]:
        tags = {*cell["metadata"].get("tags", [])}
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            assert (SOLUTION in tags) == bool(tags & {"hide-cell", "hide-input"} and tags & {EXERCISE, SOLUTION, CHECK})
            if SOLUTION not in tags:
                assert not (names_taken(code) - (stub if CHECK in tags else set())) & names, cell["id"]
            stub = names_given(code) if EXERCISE in tags else stub
            names |= names_given(code) if {EXERCISE, SOLUTION, CHECK} & tags else set()
    for (_, _, given), check in zip(exercises_of(path), tagged(source, CHECK), strict=True):
        assert ast.unparse(ast.parse(given).body[1].body) == ast.unparse(ast.parse(check))
    for cell in student_notebook(source, "solution")["cells"]:
        text = re.sub(r"^```.*?^```", "", "".join(cell["source"]), flags=re.M | re.S)
        if cell["cell_type"] == "markdown":
            assert not re.search(SPHINX_ALONE, text, re.M), text


SPHINX_ALONE = r"(?<!`)\{[\w:-]+\}`|^[>\s]*[`:~]{3,}\{|^:[\w-]+:|\[\]\(|\]\((?!https?:)"  # Jupyter shows it as typed


def verdict(check, answer, scope):
    """What a check says of an answer: "right", "missing" (it goes on), or "wrong" (an error)."""
    scope, said = dict(scope), StringIO()
    exec(answer, scope)
    try:
        with redirect_stderr(said):
            exec(check, scope)
    except NameError:
        raise
    except Exception:
        return "wrong"
    return "missing" if said.getvalue().startswith("Not answered yet") else "right"


@pytest.mark.parametrize(("name", "stub", "solution", "check"), EXERCISES)
def test_a_check_goes_on_without_an_answer_and_stops_at_a_wrong_one(name, stub, solution, check):
    page = functions_of(name)  # what the page defines; no cell that needs a model or the lab is run
    empty = re.sub(r"raise NotImplementedError.*", "return None", stub)
    try:
        assert [verdict(check, answer, page) for answer in (stub, empty, solution)] == ["missing", "wrong", "right"]
    except NameError as error:
        pytest.skip(f"on what the page computes ({error}): test_notebooks.py runs it on another model")


PROBLEMS = re.findall(r"^\| \[`\w+`\]\(pages/(\w+)\).*? \| (.*?) \|", TEACHING.read_text(encoding="utf-8"), re.M)


@pytest.mark.slow
@pytest.mark.skipif(not BUILT.is_dir(), reason="no built book here: run `make book` first")
@pytest.mark.parametrize(("name", "expected"), PROBLEMS, ids=lambda text: text.split("`")[0])
def test_a_problem_sets_numbers_are_what_the_page_prints(name, expected):
    cells = [cell for cell in read(ROOT / "book" / "pages" / f"{name}.ipynb")["cells"] if cell["cell_type"] == "code"]
    outputs = [
        output for cell in cells if {SOLUTION, CHECK} & {*cell["metadata"]["tags"]} for output in cell["outputs"]
    ]
    printed = "".join("".join(one.get("text") or one["data"]["text/plain"]) for one in outputs)
    assert all(number in printed for number in re.findall("`(.*?)`", expected)), printed


def markdown(source, **metadata):
    return {"cell_type": "markdown", "id": "m", "metadata": metadata, "source": source}


def code(source, *tags):
    output = {"output_type": "stream", "name": "stdout", "text": [SECRET]}
    metadata = {"tags": list(tags), "papermill": {"exception": SECRET}, "mystnb": {"code_prompt_show": SECRET}}
    return {"cell_type": "code", "id": "c", "metadata": metadata, "source": source, "outputs": [output]} | {
        "execution_count": 1
    }


def notebook(*cells):
    kernel = {"name": "python3", "display_name": "Python 3"}
    return {"cells": list(cells), "metadata": {"kernelspec": kernel, "papermill": {"x": SECRET}}}


TRIO = (
    code("def answer(): raise NotImplementedError", EXERCISE),
    code(f"def answer(): return '{SECRET}'", SOLUTION),
    code("assert answer()", CHECK),
)
IN_TEXT = [
    f"Before\n\n````{{dropdown}} Solution\n{SECRET}\n```python\n{SECRET}\n```\n````\n\nAfter",
    f"Before\n\n:::{{dropdown}} Solution to both\n:open:\n{SECRET}\n:::\nAfter",
    f"Before\n\n````{{admonition}} Exercise: sum\nWhat?\n```{{dropdown}} Solution\n{SECRET}\n```\n````\nAfter",
]


@pytest.mark.parametrize("text", IN_TEXT)
def test_no_secret_is_left_for_students_and_none_is_lost_for_teachers(text):
    source = notebook(markdown(text, note=SECRET), *TRIO)
    student, solved = (json.dumps(student_notebook(source, kind)) for kind in ("student", "solution"))
    assert SECRET not in student and "Before" in student and "After" in student and "Your answer" in student
    assert solved.count(SECRET) == text.count(SECRET) + 1 and "NotImplementedError" not in solved
    assert "def answer(): raise NotImplementedError" in student and "assert answer()" in student


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("Of {cite:t}`zhang2024surp`", "Of [Zhang and Wu (2024)](https://arxiv.org/abs/2407.21248)"),
        ("{cite:p}`shi2024detecting`", "([Shi et al. 2024](https://openreview.net/forum?id=zWqr3MQuNs))"),
        ("Tiles:\n\n```{glue} tiles\n```\n\nThen.", "Tiles:\n\n\nThen."),
        ("{index}`tokens <!token>`; see [](lab), [it](../glossary#auc)", "tokens; see *The lab*, it"),
        ("an AUC of {glue:text}`auc:.3f`", "an AUC of `auc`"),
        (
            "```{admonition} Exercise (easy, 5 min): why?\n:class: tip\n- `x[0](y)`\n```",
            "> **Exercise (easy, 5 min): why?**\n>\n> - `x[0](y)`",
        ),
        ("````{dropdown} More\n```python\nrows[i](k)\n```\n````", "**More.**\n\n```python\nrows[i](k)\n```"),
    ],
)
def test_markup_of_the_book_becomes_plain_markdown(markup, expected):
    assert plain(markup).strip() == expected


def test_the_command_writes_both_and_broken_exercises_are_told(tmp_path):
    run = CliRunner().invoke(app, ["student", "leaderboard", "--output", str(tmp_path)])
    assert run.exit_code == 0 and "2 notebooks" in run.stdout
    student, solved = (read(tmp_path / kind / "leaderboard.ipynb") for kind in ("student", "solution"))
    assert "NotImplementedError" in json.dumps(student) and "NotImplementedError" not in json.dumps(solved)
    unknown = CliRunner().invoke(app, ["student", "leader", "--output", str(tmp_path)])
    assert "no notebook 'leader'" in str(unknown.exception)
    with pytest.raises(ValueError, match=r"\['exercise', 'check'\]"):
        check_exercises([TRIO[0], TRIO[2]])
    path = tmp_path / "page.ipynb"
    path.write_text(json.dumps(notebook(markdown("```{dropdown} Solution\nopen end"))))
    with pytest.raises(ValueError, match=r"page\.ipynb: "):
        write_builds([path], tmp_path / "out")
    with pytest.raises(ValueError, match=r"\{mermaid\}"):
        plain("```{mermaid}\nA --> B\n```")
