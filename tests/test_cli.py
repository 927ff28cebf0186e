"""The command line and the strict notebook runner."""

import json
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

import mialib
from mialib.benchmarks import load_texts
from mialib.commands.cli import app, main
from mialib.book.profile import Profile
from mialib.calibration import set_p_value
from mialib.book.notebooks import run_notebook


@pytest.fixture
def texts_file(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "The river runs"}\n{"text": "A stone in the garden"}\n')
    return path


def test_help_loads_neither_torch_nor_transformers():
    code = (
        "import sys; from mialib.cli import app; import typer.testing as t; t.CliRunner().invoke(app, ['--help']);"
        "heavy = {'torch', 'transformers', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_detect_prints_a_line_a_text(model_folder, texts_file):
    found = CliRunner().invoke(app, ["detect", str(texts_file), "--model", model_folder])
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert "min_k++" in lines[0] and "The river runs" in lines[1] and "A stone" in lines[2]


def test_detect_as_json_gives_the_same_scores_to_machines(model_folder, texts_file):
    command = ["detect", str(texts_file), "--model", model_folder, "--detector", "min_k", "--json"]
    found = CliRunner().invoke(app, command)
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [row["text"] for row in rows] == [0, 1] and rows[0]["min_k"] < 0


@pytest.fixture
def non_members_file(tmp_path):
    path = tmp_path / "non_members.txt"
    path.write_text("".join(f"The stone number {i} stands near the river\n" for i in range(19)))
    return path


def test_calibrated_scores_come_with_p_values_and_decisions(model_folder, texts_file, non_members_file):
    command = ["detect", str(texts_file), "--model", model_folder, "--detector", "min_k", "--detector", "zlib"]
    command += ["--calibrate", str(non_members_file)]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    table = found.stdout
    assert "(p 0." in table.splitlines()[1] and "at most 5% of non-members" in table
    rows = [json.loads(line) for line in CliRunner().invoke(app, [*command, "--json"]).stdout.splitlines()]
    known = load_texts(non_members_file)
    scorer = mialib.Scorer(model_folder)
    of_known = mialib.detect("min_k", scorer.score(known, progress=False))
    for row in rows:
        expected = (1 + int((of_known >= row["min_k"]).sum())) / 20
        assert row["p_values"]["min_k"] == pytest.approx(expected)
        assert row["members"] == [name for name, p in row["p_values"].items() if p <= 0.05]
    # 0 of 19 may lie above at 5%: the upper end is 1 - 0.025 ** (1 / 19) = 0.176.
    assert "between 0% and 17.6% (95% interval)" in table and "All 2 texts as one set: p = " in table
    assert row["thresholds"]["min_k"]["threshold"] == pytest.approx(of_known.max())
    assert row["thresholds"]["min_k"]["fpr_interval"] == pytest.approx([0, 1 - 0.025 ** (1 / 19)])
    assert row["set_p_values"]["min_k"] == pytest.approx(set_p_value([row["min_k"] for row in rows], of_known))
    assert set(row["set_p_values"]) == {"min_k", "zlib"}


def test_members_of_a_labelled_file_are_no_known_non_members(model_folder, texts_file, tmp_path, caplog):
    path = tmp_path / "labelled.jsonl"
    rows = [{"text": f"The stone number {i} stands near the river", "label": int(i < 6)} for i in range(25)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["detect", str(texts_file), "--model", model_folder, "--detector", "min_k", "--calibrate", str(path)]
    caplog.set_level("INFO")
    assert "with these 19 known non-members" in CliRunner().invoke(app, command).stdout
    assert f"{path}: its 19 texts labelled 0 are the known non-members" in caplog.text
    path.write_text('{"text": "a", "label": 1}\n{"text": "b"}\n')
    assert f"{path}, row 2: no 'label', which other rows have" in str(CliRunner().invoke(app, command).exception)
    path.write_text('{"text": "a", "label": 1}\n')
    assert "all 1 texts are labelled 1" in str(CliRunner().invoke(app, command).exception)


def test_an_fpr_that_calls_all_or_none_is_an_error(texts_file, non_members_file):
    for fpr, called in (("0", "nothing"), ("1", "everything")):
        command = ["detect", str(texts_file), "--model", "nowhere", "--calibrate", str(non_members_file), "--fpr", fpr]
        assert f"would call {called} a member" in str(CliRunner().invoke(app, command).exception)


def test_too_few_known_non_members_for_the_fpr_are_an_error_before_anything_is_scored(texts_file, non_members_file):
    command = ["detect", str(texts_file), "--model", "nowhere", "--calibrate", str(non_members_file), "--fpr", "0.01"]
    found = CliRunner().invoke(app, command)
    assert isinstance(found.exception, ValueError)
    assert "holds 19 texts; the smallest p-value is then 0.05, and nothing could be called" in str(found.exception)


def test_a_detector_without_its_source_names_the_option(texts_file):
    for name, option in (("neighbor", "--masked"), ("ref", "--reference"), ("dc_pdd", "--corpus")):
        found = CliRunner().invoke(app, ["detect", str(texts_file), "--model", "nowhere", "--detector", name])
        assert f"detector {name} needs {option}" in str(found.exception)


@pytest.mark.parametrize("option", ["--masked", "--reference"])
def test_a_source_that_cannot_be_had_is_an_error_before_anything_is_scored(
    option, model_folder, texts_file, tmp_path, monkeypatch
):
    monkeypatch.setattr("mialib.answer.score_or_load", lambda *_: pytest.fail("scored first"))
    command = ["detect", str(texts_file), "--model", model_folder, option, str(tmp_path)]
    found = CliRunner().invoke(app, command)
    assert isinstance(found.exception, OSError) and str(tmp_path) in str(found.exception)
    monkeypatch.undo()
    unneeded = CliRunner().invoke(app, [*command, "--detector", "ppl"])
    assert unneeded.exit_code == 0, "ppl needs neither"


def test_neighbors_on_the_command_line(model_folder, masked_folder, texts_file):
    command = ["detect", str(texts_file), "--model", model_folder, "--masked", masked_folder, "--n-neighbors", "3"]
    found = CliRunner().invoke(app, [*command, "--json"])
    assert found.exit_code == 0, found.output
    assert all("neighbor" in json.loads(line) for line in found.stdout.splitlines())


def test_score_fills_the_cache_and_writes_a_receipt(model_folder, tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_text('{"text": "The river", "label": 1}\n{"text": "A stone", "label": 0}\n')
    receipt = tmp_path / "receipt.json"
    found = CliRunner().invoke(app, ["score", model_folder, str(path), "--receipt", str(receipt)])
    assert found.exit_code == 0, found.output
    assert {name: p["n_texts"] for name, p in json.loads(receipt.read_text()).items()} == {
        "original": 2,
        "lowercase": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["detect", "missing.jsonl", "--model", "lab/en-25k"], "missing.jsonl does not exist"),
        (["lab", "train", "lab/nope"], "unknown lab model 'lab/nope'"),
        (["score", "lab/en-25k", "nope"], "unknown benchmark 'nope'"),
    ],
)
def test_an_error_of_the_users_is_one_line_and_exit_code_one(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mialib", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    error = capsys.readouterr().err
    assert caught.value.code == 1 and message in error and error.count("\n") == 1


def write_notebook(folder, *sources):
    cells = [new_code_cell("x = 1", metadata={"tags": ["parameters"]}), *map(new_code_cell, sources)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / "page.ipynb")


def profile_with(**parameters):
    return Profile(name="test", models={}, landing={"notebook": "page", "parameters": parameters}, book=[])


def test_notebook_runs_with_the_profiles_parameters(tmp_path):
    write_notebook(tmp_path, "print('x is', x)")
    out = tmp_path / "out" / "page.ipynb"
    run_notebook("page", profile_with(x=7), output=out, failed=tmp_path / "failed.ipynb", folder=tmp_path)
    assert "x is 7" in out.read_text()
    assert not (tmp_path / "failed.ipynb").exists()


def test_a_parameter_that_the_notebook_lacks_is_an_error(tmp_path):
    write_notebook(tmp_path, "print(x)")
    with pytest.raises(ValueError, match=r"no parameter 'xx'.*it has: x"):
        run_notebook(
            "page", profile_with(xx=7), output=tmp_path / "o.ipynb", failed=tmp_path / "f.ipynb", folder=tmp_path
        )
    assert not (tmp_path / "o.ipynb").exists()


def test_a_failing_notebook_is_an_error_and_leaves_its_partial_copy(tmp_path):
    write_notebook(tmp_path, "print('so far')", "raise RuntimeError('broken')")
    with pytest.raises(ValueError, match="RuntimeError: broken"):
        run_notebook(
            "page", profile_with(), output=tmp_path / "o.ipynb", failed=tmp_path / "logs" / "f.ipynb", folder=tmp_path
        )
    assert not (tmp_path / "o.ipynb").exists()
    assert "so far" in (tmp_path / "logs" / "f.ipynb").read_text()


def test_a_notebook_that_the_profile_lacks_is_named(tmp_path):
    with pytest.raises(ValueError, match="no notebook 'other'; it has: page"):
        run_notebook("other", profile_with(), output=tmp_path / "o.ipynb", failed=tmp_path / "f.ipynb", folder=tmp_path)


def test_one_notebook_makes_several_pages_each_with_its_title_and_figures(tmp_path):
    import nbformat

    cells = [
        nbformat.v4.new_markdown_cell("# The notebook's title\n\nProse."),
        nbformat.v4.new_code_cell("x = 1", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("print(x)", metadata={"mystnb": {"figure": {"caption": "c", "name": "fig-x"}}}),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "page.ipynb")
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
