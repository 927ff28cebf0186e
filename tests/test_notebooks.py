"""Every notebook runs alone: with its defaults on the built lab, and on another model and benchmark."""

import json

import matplotlib
import nbformat
import papermill
import pytest
from conftest import page_parameters

from mialib.book.results import load_results
from mialib.store import ROOT

matplotlib.use("Agg")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BUILT = ROOT / "build" / "lab" / "models"
# Pages about the lab's own models, the papers' or none; everything else takes any model.
OF_THE_LAB = {"claims", "index", "lab", "min_k_books", "min_k_contamination", "min_k_unlearning", "recorded_ladder"}
OF_THE_PAPERS = {"paper_table", "registry", "two_sources"}
OF_CERTAIN_MODELS = OF_THE_LAB | OF_THE_PAPERS | {"speed"}
OF_NO_MODEL = {"blind_benchmarks"}


def run(path, output, parameters):
    papermill.execute_notebook(str(path), str(output), parameters=parameters, progress_bar=False, cwd=str(ROOT))


def two_models(tiny_model):
    """Of two families, with room for the probe's prompt."""
    return [tiny_model(family, max_position_embeddings=512) for family in ("gpt_neox", "llama")]


@pytest.mark.slow
@pytest.mark.skipif(not BUILT.is_dir(), reason="no trained lab here: run `make book` first")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_with_its_defaults(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MIALIB_HOME", str(ROOT / "build"))
    results = tmp_path / "results.json"
    run(path, tmp_path / path.name, {"out": str(results)})
    assert json.loads(results.read_text())["results"], "a page writes its results as data"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if p.stem not in OF_CERTAIN_MODELS | OF_NO_MODEL], ids=lambda p: p.stem
)
def test_notebook_takes_another_model_and_benchmark(path, tmp_path, tiny_model):
    wanted, of_page = page_parameters(two_models(tiny_model), tmp_path)
    known = papermill.inspect_notebook(str(path))
    assert "models" in known and "benchmarks" in known, "a page takes another model, or is listed as of the lab"
    wanted = {name: value for name, value in (wanted | of_page.get(path.stem, {})).items() if name in known}
    run(path, tmp_path / path.name, wanted)
    assert wanted["models"].split(",")[0] in (tmp_path / "results.json").read_text(), (
        "the results say which model they are of"
    )


# The same without a kernel, every cell in this process: quick enough for each run. DC-PDD's are in their own file.
@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if p.stem not in OF_CERTAIN_MODELS and p.stem[:6] != "dc_pdd"], ids=lambda p: p.stem
)
def test_the_cells_of_a_page_run_on_another_model_and_benchmark(path, tmp_path, tiny_model):
    wanted, of_page = page_parameters(two_models(tiny_model), tmp_path)
    scope = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(cell.source, f"{path.stem}, {cell.id}", "exec"), scope)
        if "parameters" in cell.metadata.tags:
            scope |= {name: v for name, v in (wanted | of_page.get(path.stem, {})).items() if name in scope}
    found = load_results(tmp_path / "results.json")
    assert found and any(result.ours is not None for result in found)
