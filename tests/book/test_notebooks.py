"""The strict notebook runner; and every notebook with its defaults on the built lab, and on another model."""

import ast
import re
from html.parser import HTMLParser

import IPython.display
import matplotlib
import nbformat
import numpy as np
import pandas as pd
import pytest
from conftest import page_parameters, quick_baselines
from markdown_it import MarkdownIt
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from page_code import check_fails_without_an_answer, compiled, page_of

from mialib.blind import BLIND
from mialib.store import ROOT
from replication import tables
from replication.pipeline.notebooks import footer, read_notebook, run_notebook
from replication.profile import Profile, load_profile
from replication.results import load_results
from replication.studies import decisions, playground, sensitivity

matplotlib.use("Agg")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BUILT = ROOT / "build" / "lab" / "results"
LAB = load_profile(ROOT / "data" / "profiles" / "lab.yml")
# Pages about the lab's own models, the papers' or none; everything else takes any model.
OF_THE_MIN_K = {"min_k_books", "min_k_contamination", "min_k_unlearning"}
OF_THE_LAB = {"claims", "dilution", "fine_tuned", "index", "lab", "recorded_ladder"} | OF_THE_MIN_K
OF_THE_PAPERS = {"paper_table", "placebo", "registry", "two_sources"}
OF_CERTAIN_MODELS = OF_THE_LAB | OF_THE_PAPERS | {"speed"}
OF_TFIDF = {"blind_benchmarks", "probe_table_1"}  # they compute it themselves, with the search for C
OF_NO_MODEL = {"blind_benchmarks", "coverage", "real_docstrings", "recitation"}


@pytest.fixture
def few_baselines(request):
    name, tfidf = request.node.callspec.id, BLIND["tfidf"]
    with quick_baselines("naive_bayes", "formatting", "year"):
        if name in OF_TFIDF:
            BLIND["tfidf"] = tfidf
            request.getfixturevalue("monkeypatch").setenv("MIALIB_HOME", str(request.getfixturevalue("tmp_path")))
        yield


def runs_in_the_lab_with_its_defaults(path):
    """Whether `make book` runs the notebook with no other parameters than its defaults."""
    pages = [page for page in LAB.notebooks.values() if page.notebook == path.stem]
    defaults = read_notebook(path).defaults
    return any(defaults | page.parameters == defaults for page in pages)


@pytest.mark.slow
@pytest.mark.skipif(not BUILT.is_dir(), reason="no built book here: run `make book` first")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_with_its_defaults(path, tmp_path, built_home):
    if runs_in_the_lab_with_its_defaults(path):
        pytest.skip("`make book` has run it so")
    page_of(path.stem, out=str(tmp_path / "results.json"))
    assert load_results(tmp_path / "results.json"), "a page writes its results as data"


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem not in OF_CERTAIN_MODELS], ids=lambda p: p.stem)
def test_a_pages_cells_run_on_another_model(path, tmp_path, tiny_model, home_of_all_pages, few_baselines, monkeypatch):
    models = [tiny_model(family, max_position_embeddings=512) for family in ("gpt_neox", "llama")]  # the probe's prompt
    wanted, of_page = page_parameters(models, tmp_path)
    known = read_notebook(path).defaults
    assert {"models", "benchmarks"} <= known.keys() or path.stem in OF_NO_MODEL, "a page takes another model"
    wanted |= of_page.get(path.stem, {})
    shown, scope, before = [], {}, []
    monkeypatch.setattr(IPython.display, "display", lambda *values, **_: shown.extend(values))
    monkeypatch.setattr(playground, "editor", lambda _: None)  # of the lab's texts: test_playground.py
    monkeypatch.setattr(sensitivity, "N_RESAMPLES", 40)
    for name, n in {"DRAWS": 1000, "POWER_DRAWS": 100, "RESAMPLES": 20}.items():
        monkeypatch.setattr(decisions, name, n)
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_pages_footer_has_its_verdicts_and_what_ran_and_names_its_parameters(path):
    notebook = nbformat.read(path, as_version=4)
    about = notebook.metadata.get("footer", {})
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "verdicts" in about or "claims.answer(" not in code
    assert f"ran={about.get('what_ran', '[]').removesuffix(']')}" in code or "what_ran" not in about
    options = about.get("another_model", {}).get("options", "")
    assert f'results.save("{path.stem}", ' in code or not about.get("numbers")
    assert set(re.findall(r"-p (\w+)", options)) <= read_notebook(path).defaults.keys()
    command = "".join(cell.source for cell in footer(about, path.stem)).replace(" \\\n    ", " ")
    assert f"notebooks/{path.stem}.ipynb out.ipynb {options}" in command or not options


def made_page(folder, *cells, **metadata):
    """A notebook of a parameter x and these cells, and a function that runs it as two pages of a book would."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    parameters = new_code_cell('x = 1  # a number\nout = ""', metadata={"tags": ["parameters"]})
    cells = [new_markdown_cell("# The notebook's title\n\nProse."), parameters, *cells]
    nbformat.write(new_notebook(cells=cells, metadata=kernel | metadata), folder / "page.ipynb")
    pages = [
        {"notebook": "page", "name": name, "title": f"Page {name}", "parameters": given}
        for name, given in {"one": {"x": 7}, "wrong": {"xx": 7}}.items()
    ]
    book = {"name": "p", "landing": {"page": "start"}, "book": [{"caption": "c", "pages": pages}]}
    options = {"output": folder / "o.ipynb", "failed": folder / "f.ipynb", "folder": folder}
    return lambda name, **more: run_notebook(name, Profile.model_validate(book), **options, **more)


def test_a_build_runs_a_notebook_with_a_pages_parameters_title_and_footer(tmp_path, monkeypatch):
    folded = {"tags": ["hide-input"]}
    score = "from mialib.progress import progress\nwith progress('m', {0: 1}) as tell:\n    tell([0], 1)\n'scored'"
    run_page = made_page(
        tmp_path,
        new_code_cell("# Imports and data (np, values).\nvalues = [x, len(out)]", metadata=folded),
        new_code_cell("print(values)"),
        new_code_cell("values", metadata=folded | {"mystnb": {"figure": {"caption": "c", "name": "fig-x"}}}),
        new_code_cell("# The grid\nvalues", metadata={"tags": ["hide-cell"]}),
        new_code_cell("answer = 1", metadata={"tags": ["solution", "hide-cell"]}),
        new_code_cell(score),
        new_code_cell("models, about, ran = 'a', ['b'], []"),
        new_code_cell("from replication import claims\nclaims.verdicts = lambda *of: print(*of)"),
        new_code_cell(
            "from replication import results\n"
            "made = [results.Result('min_k', 'lab/en', metric, 0.5, 0.4, 0.6) for metric in ('auc', 'tpr_at_5_fpr')]\n"
            "results.save('page', made, paper='p', item='i', out=out)\nNone"
        ),
        footer={
            "numbers": True,
            "verdicts": "One test.",
            "what_ran": "ran",
            "another_model": {"options": "-p models MODEL", "note": "Any."},
        },
    )
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    run_page("one", results=(results := tmp_path / "results.json"))
    assert not (tmp_path / "f.ipynb").exists() and str(tmp_path) not in (tmp_path / "o.ipynb").read_text()
    assert not [*(tmp_path / "temporary").glob("*.json")], "the kernel's ports and key"
    made = nbformat.read(tmp_path / "o.ipynb", as_version=4).cells
    title, parameters, data, shown, figure, grid, solution, scored, *_, numbers, verdicts, ran, other = made
    assert title.source == "# Page one\n\nProse." and parameters.source.startswith("x = 7  # a number")
    assert shown.outputs[0].text == f"[7, {len(str(results))}]\n" and "mystnb" not in shown.metadata
    labels = ("Imports and data (np, values)", "Code", "The grid", "Solution")
    for cell, label in zip((data, figure, grid, solution), labels, strict=True):
        assert cell.metadata.mystnb.code_prompt_show == cell.metadata.mystnb.code_prompt_hide == label
    assert figure.metadata.mystnb.figure.name == "fig-x-one", "a figure keeps its caption"
    assert [output.data["text/plain"] for output in scored.outputs] == ["'scored'"], "and no bar"
    assert ["0.500 [0.400, 0.600]" in output.data["text/html"] for output in numbers.outputs] == [True, True]
    said, judged = verdicts.outputs
    assert "One test. " in said.data["text/markdown"] and judged.text == "a ['b']\n"
    assert not ran.outputs and other.source.endswith("-p models MODEL\n```\n\nAny.\n````")


@pytest.mark.parametrize(
    ("name", "code", "named"),
    [
        ("wrong", "", "'xx'.* x"),
        ("other", "", "'other'.* one"),
        ("one", "print('so far'); raise RuntimeError('broken')", "RuntimeError: broken"),
        ("one", "import os; os.kill(os.getpid(), 9)", r"page\.ipynb failed in cell 3"),  # the second is papermill's
    ],
)
def test_a_page_that_fails_is_an_error_that_says_where_and_leaves_its_partial_copy(tmp_path, name, code, named):
    with pytest.raises(ValueError, match=named):
        made_page(tmp_path, new_code_cell(code))(name)
    assert not (tmp_path / "o.ipynb").exists()
    assert "so far" not in code or "so far" in (tmp_path / "f.ipynb").read_text()
