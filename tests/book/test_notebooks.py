"""The strict notebook runner; and every notebook with its defaults on the built lab, and on another model."""

import ast
import json
import re
from html.parser import HTMLParser

import IPython.display
import matplotlib
import nbformat
import numpy as np
import pandas as pd
import papermill
import pytest
from conftest import MARKUP, page_parameters
from IPython.display import HTML, Markdown
from markdown_it import MarkdownIt
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from page_code import check_fails_without_an_answer, compiled

from mialib.store import ROOT
from replication import tables
from replication.pipeline.notebooks import footer, read_notebook, run_notebook
from replication.profile import Profile, load_profile
from replication.results import load_results

matplotlib.use("Agg")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BUILT = ROOT / "build" / "lab" / "results"
LAB = load_profile(ROOT / "data" / "profiles" / "lab.yml")
# Pages about the lab's own models, the papers' or none; everything else takes any model.
OF_THE_LAB = {"claims", "index", "lab", "min_k_books", "min_k_contamination", "min_k_unlearning", "recorded_ladder"}
OF_THE_PAPERS = {"paper_table", "registry", "two_sources"}
OF_CERTAIN_MODELS = OF_THE_LAB | OF_THE_PAPERS | {"speed"}
OF_NO_MODEL = {"blind_benchmarks", "coverage", "real_docstrings"}


def run(path, output, parameters):
    papermill.execute_notebook(str(path), str(output), parameters=parameters, progress_bar=False, cwd=str(ROOT))


def runs_in_the_lab_with_its_defaults(path):
    """Whether `make book` runs the notebook with no other parameters than its defaults."""
    pages = [page for page in LAB.notebooks.values() if page.notebook == path.stem]
    defaults = read_notebook(path).defaults
    return any(defaults | page.parameters == defaults for page in pages)


@pytest.mark.slow
@pytest.mark.skipif(not BUILT.is_dir(), reason="no built book here: run `make book` first")
@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if not runs_in_the_lab_with_its_defaults(p)], ids=lambda p: p.stem
)
def test_notebook_runs_with_its_defaults(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MIALIB_HOME", str(ROOT / "build"))
    results = tmp_path / "results.json"
    run(path, tmp_path / path.name, {"out": str(results)})
    assert json.loads(results.read_text())["results"], "a page writes its results as data"


# The same without a kernel, every cell in this process: quick enough for each run.
@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem not in OF_CERTAIN_MODELS], ids=lambda p: p.stem)
def test_a_pages_cells_run_on_another_model(path, tmp_path, tiny_model, home_of_all_pages, monkeypatch):
    models = [tiny_model(family, max_position_embeddings=512) for family in ("gpt_neox", "llama")]  # the probe's prompt
    wanted, of_page = page_parameters(models, tmp_path)
    known = read_notebook(path).defaults
    assert {"models", "benchmarks"} <= known.keys() or path.stem in OF_NO_MODEL, "a page takes another model"
    wanted |= of_page.get(path.stem, {})
    shown, scope, before = [], {}, []
    monkeypatch.setattr(IPython.display, "display", lambda *values, **_: shown.extend(values))
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells + footer(notebook.metadata.get("footer", {}), path.stem):
        if cell.cell_type != "code":
            continue
        code = ast.parse(cell.source, f"{path.stem}, {cell.id}")
        check_fails_without_an_answer(cell, before, scope)
        last = code.body.pop() if code.body and isinstance(code.body[-1], ast.Expr) else None
        exec(compiled(cell.source, f"{path.stem}, {cell.id}", code), scope)
        if last:
            shown.append(eval(compile(ast.Expression(last.value), f"{path.stem}, {cell.id}", "eval"), scope))
        before.append(cell)
        if "parameters" in cell.metadata.tags:
            scope |= {name: value for name, value in wanted.items() if name in scope}
    found = load_results(tmp_path / "results.json")
    numbers = [number for result in found for number in (result.ours, result.low, result.high) if number is not None]
    assert numbers and np.isfinite(numbers).all()
    for value in shown:
        assert not hostile_elements(value), "what is markup in a text's or a file's name must not be markup on the page"
        html = html_of(value)
        assert html.count("<table") == html.count("<caption>"), f"a table without a caption: {html}"


# A slider's numbers and its own script; one that a name brought along would stand elsewhere, or end the first early.
SLIDERS_SCRIPTS = r'<script type="application/json">[^<]*</script>\s*<script>\s*\(\(\) => \{.*?</script>'


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_an_exercise_in_code_is_a_stub_a_folded_solution_and_a_check(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    parts = {"exercise", "solution", "check"}
    found = [(part, cell) for cell in cells for part in parts & set(cell.metadata.get("tags", []))]
    assert [part for part, _ in found] == ["exercise", "solution", "check"] * (len(found) // 3)
    for part, cell in found:
        folded = any(tag.startswith("hide-") for tag in cell.metadata.tags)
        assert folded == (part == "solution"), "a reader who looks for the stub does not see the solution"
        asserts = any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(cell.source)))
        assert asserts == (part == "check") or part == "solution"


def html_of(value):
    """What a page shows of a value; "" of Markdown and figures."""
    return tables.html(value) if isinstance(value, pd.DataFrame) else getattr(value, "_repr_html_", lambda: "")() or ""


def hostile_elements(value):
    """The elements that a shown value would make of the markup in texts and names."""
    html = html_of(value)
    if markdown := getattr(value, "_repr_markdown_", lambda: "")():
        assert "|---" not in markdown, f"a table in Markdown that a cell makes is shown as it is typed: {markdown}"
        html += MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    hostile = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            runs = {name: said for name, said in attributes if name in ("href", "src") or name.startswith("on")}
            if tag == "script" or "alert(1)" in str(runs):
                hostile.append((tag, attributes))

    Parser().feed(re.sub(SLIDERS_SCRIPTS, "", html, count=1, flags=re.S))
    return hostile


def test_the_check_for_hostile_elements_finds_them():
    for value in (HTML(MARKUP), HTML("<script>"), HTML("<a href='javascript:alert(1)'>"), Markdown(f"a {MARKUP}")):
        assert hostile_elements(value), value.data
    for value in (Markdown(f"`````\n{MARKUP}"), Markdown(f"`{MARKUP}`"), Markdown("[a](javascript:alert(1))")):
        assert not hostile_elements(value), value.data


def write_cells(folder, cells):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / "page.ipynb")


def write_notebook(folder, *sources, parameters="x = 1"):
    write_cells(folder, [new_code_cell(parameters, metadata={"tags": ["parameters"]}), *map(new_code_cell, sources)])


def profile_with(**parameters):
    return Profile(name="test", models={}, landing={"notebook": "page", "parameters": parameters}, book=[])


def test_notebook_runs_with_the_profiles_parameters(tmp_path, monkeypatch):
    write_notebook(tmp_path, "print('x is', x)")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    out = tmp_path / "out" / "page.ipynb"
    run_notebook("page", profile_with(x=7), output=out, failed=tmp_path / "failed.ipynb", folder=tmp_path)
    assert "x is 7" in out.read_text()
    assert not (tmp_path / "failed.ipynb").exists()
    assert not [*(tmp_path / "temporary").glob("*.json")], "the kernel's ports and key"


def test_a_notebook_that_runs_keeps_no_bars_and_no_path_of_the_build(tmp_path, inputs):
    write_notebook(tmp_path, "print('x is', x, len(out))", parameters='x = 1\nout = ""')
    out, results = tmp_path / "page" / "page.ipynb", tmp_path / "results.json"
    options = {"failed": tmp_path / "failed.ipynb", "folder": tmp_path, "results": results}
    run_notebook("page", profile_with(x=7), output=out, **options)
    assert f"x is 7 {len(str(results))}" in out.read_text() and str(tmp_path) not in out.read_text()
    score = f"import mialib; len(mialib.Scorer({inputs.target.model!r}).score({list(inputs.texts)!r}))"
    write_notebook(tmp_path, score)
    run(tmp_path / "page.ipynb", tmp_path / "out.ipynb", {})
    [output] = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[-1].outputs
    assert output.data["text/plain"] == str(len(inputs.texts)), "nothing but the cell's value"


def test_a_parameter_or_a_notebook_that_there_is_not_is_named(tmp_path):
    write_notebook(tmp_path, "print(x)")
    options = {"output": tmp_path / "o.ipynb", "failed": tmp_path / "f.ipynb", "folder": tmp_path}
    for name, given, named in (("page", {"xx": 7}, "'xx'.* x"), ("other", {}, "'other'.* page")):
        with pytest.raises(ValueError, match=named):
            run_notebook(name, profile_with(**given), **options)
    assert not (tmp_path / "o.ipynb").exists()


def test_a_failing_notebook_is_an_error_and_leaves_its_partial_copy(tmp_path):
    write_notebook(tmp_path, "print('so far')", "raise RuntimeError('broken')")
    options = {"failed": tmp_path / "logs" / "f.ipynb", "folder": tmp_path}
    with pytest.raises(ValueError, match="RuntimeError: broken"):
        run_notebook("page", profile_with(), output=tmp_path / "o.ipynb", **options)
    assert not (tmp_path / "o.ipynb").exists()
    assert "so far" in (tmp_path / "logs" / "f.ipynb").read_text()


def test_a_page_whose_kernel_is_killed_is_an_error_that_names_its_cell(tmp_path):
    write_notebook(tmp_path, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(ValueError, match=r"page\.ipynb failed in cell 3"):  # the second is papermill's
        run_notebook("page", profile_with(), output=tmp_path / "o.ipynb", failed=tmp_path / "f.ipynb", folder=tmp_path)
    assert not (tmp_path / "o.ipynb").exists()


def test_a_folded_cell_is_called_by_its_first_comment(tmp_path):
    folded = {"tags": ["hide-input"]}
    cells = [
        new_code_cell("x = 1  # a number", metadata={"tags": ["parameters"]}),
        new_code_cell("# Imports and data (np, values).\nvalues = [x]", metadata=folded),
        new_code_cell("print(values)"),
        new_code_cell("values", metadata=folded | {"mystnb": {"figure": {"caption": "c", "name": "fig-x"}}}),
        new_code_cell("# The grid\nvalues", metadata={"tags": ["hide-cell"]}),
        new_code_cell("answer = 1", metadata={"tags": ["solution", "hide-cell"]}),
    ]
    write_cells(tmp_path, cells)
    out = tmp_path / "out.ipynb"
    run_notebook("page", profile_with(x=2), output=out, failed=tmp_path / "failed.ipynb", folder=tmp_path)
    parameters, data, shown, figure, grid, solution = nbformat.read(out, as_version=4).cells
    assert parameters.source == "x = 2  # a number" and not {"mystnb"} & {*parameters.metadata, *shown.metadata}
    labels = ("Code: Imports and data (np, values)", "Code", "Result and code: The grid", "Solution")
    for cell, label in zip((data, figure, grid, solution), labels, strict=True):
        assert cell.metadata.mystnb.code_prompt_show == cell.metadata.mystnb.code_prompt_hide == label
    assert figure.metadata.mystnb.figure.name == "fig-x", "a figure keeps its caption"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_parameters_are_in_the_open_and_folds_say_what_they_hold(path):
    cells = nbformat.read(path, as_version=4).cells
    tags = [set(cell.metadata.get("tags", [])) for cell in cells]
    assert [of for of in tags if "parameters" in of] == [{"parameters"}]
    for cell, of in zip(cells, tags, strict=True):
        assert not {"hide-input", "hide-cell"} & of or "solution" in of or cell.source.startswith("# "), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_pages_footer_has_its_verdicts_and_what_ran_and_names_its_parameters(path):
    notebook = nbformat.read(path, as_version=4)
    about = notebook.metadata.get("footer", {})
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert ("verdicts" in about) == ("claims.answer(" in code)
    assert f"ran={about.get('what_ran', '[]').removesuffix(']')}" in code or "what_ran" not in about
    options = about.get("another_model", {}).get("options", "")
    assert set(re.findall(r"-p (\w+)", options)) <= read_notebook(path).defaults.keys()
    command = "".join(cell.source for cell in footer(about, path.stem)).replace(" \\\n    ", " ")
    assert f"notebooks/{path.stem}.ipynb out.ipynb {options}" in command or not options


def test_the_build_appends_the_footer_and_runs_it(tmp_path):
    cells = [
        new_code_cell("models = 'a'", metadata={"tags": ["parameters"]}),
        new_code_cell("from types import SimpleNamespace\nabout, ran = ['b'], []"),
        new_code_cell("claims = SimpleNamespace(verdicts=lambda *of: print(*of))"),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    about = {
        "verdicts": "One test.",
        "what_ran": "ran",
        "another_model": {"options": "-p models MODEL", "note": "Any."},
    }
    nbformat.write(new_notebook(cells=cells, metadata=kernel | {"footer": about}), tmp_path / "page.ipynb")
    out = tmp_path / "out.ipynb"
    run_notebook("page", profile_with(), output=out, failed=tmp_path / "failed.ipynb", folder=tmp_path)
    *_, said, verdicts, heading, ran, other = nbformat.read(out, as_version=4).cells
    assert "One test. " in said.source and verdicts.outputs[0].text == "a ['b']\n" and heading.source == "## What ran"
    assert not ran.outputs and other.source.endswith("-p models MODEL\n```\n\nAny.\n````")


def test_one_notebook_makes_several_pages_each_with_its_title_and_figures(tmp_path):
    cells = [
        new_markdown_cell("# The notebook's title\n\nProse."),
        new_code_cell("x = 1", metadata={"tags": ["parameters"]}),
        new_code_cell("print(x)", metadata={"mystnb": {"figure": {"caption": "c", "name": "fig-x"}}}),
    ]
    write_cells(tmp_path, cells)
    pages = [
        {"notebook": "page", "name": f"page_{x}", "title": f"Page {x}", "parameters": {"x": x}} for x in ("one", "two")
    ]
    book = [{"caption": "c", "pages": pages}]
    profile = Profile.model_validate({"name": "p", "landing": {"page": "start"}, "book": book})
    for name, title in (("page_one", "# Page one"), ("page_two", "# Page two")):
        out = tmp_path / f"{name}.ipynb"
        run_notebook(name, profile, output=out, failed=tmp_path / "failed.ipynb", folder=tmp_path)
        made = nbformat.read(out, as_version=4).cells
        assert made[0].source == f"{title}\n\nProse."
        [figure] = [cell.metadata.mystnb.figure.name for cell in made if "mystnb" in cell.metadata]
        assert figure == f"fig-x-{name.replace('_', '-')}"
    assert profile.table_of_contents()["parts"][0]["chapters"] == [{"file": f"pages/{page['name']}"} for page in pages]
