"""Every notebook runs alone under papermill: with its defaults on the built lab, and on another model and benchmark."""

import json

import papermill
import pytest

from mialib.store import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BUILT = ROOT / "build" / "lab" / "models"
# Pages about the lab's own models; everything else takes any model.
OF_THE_LAB = {"claims", "lab", "min_k_books", "min_k_contamination", "min_k_unlearning"}

pytestmark = pytest.mark.slow


def run(path, output, parameters):
    papermill.execute_notebook(str(path), str(output), parameters=parameters, progress_bar=False, cwd=str(ROOT))


@pytest.mark.skipif(not BUILT.is_dir(), reason="no trained lab here: run `make book` first")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_with_its_defaults(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MIALIB_HOME", str(ROOT / "build"))
    results = tmp_path / "results.json"
    run(path, tmp_path / path.name, {"out": str(results)})
    assert json.loads(results.read_text())["results"], "a page writes its results as data"


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem not in OF_THE_LAB], ids=lambda p: p.stem)
def test_notebook_takes_another_model_and_benchmark(path, tmp_path, model_folder):
    texts, corpus, results = (tmp_path / name for name in ("texts.jsonl", "corpus.txt", "results.json"))
    nouns = ["river", "stone", "garden", "window", "letter", "market", "engine", "harbor"]
    rows = [
        {"text": f"The {noun} number {i} stands {place} the old Mill and runs {i} times", "label": place == "near"}
        for i in range(4)
        for noun in nouns
        for place in ("near", "behind")
    ]
    texts.write_text("".join(json.dumps(row | {"label": int(row["label"])}) + "\n" for row in rows))
    corpus.write_text("The river runs behind the mill\nThe old engine stands near the market\n" * 50)
    wanted = {
        "models": model_folder,
        "benchmarks": str(texts),
        "references": "-",
        "corpora": str(corpus),
        "published": "-",
        "lengths": "4, 8",
        "out": str(results),
    }
    known = papermill.inspect_notebook(str(path))
    assert "models" in known and "benchmarks" in known, "a page takes another model, or is listed as of the lab"
    run(path, tmp_path / path.name, {name: value for name, value in wanted.items() if name in known})
    assert model_folder in results.read_text(), "the results say which model they are of"
