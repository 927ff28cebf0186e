"""One page of the book on several models, from a clone's root: python examples/sweep.py lab/en-25k lab/en-100k.

It needs the book's packages: `make install`, then .venv/bin/python; or pip install . ./audit ./book.

Papermill runs the page's notebook once a model; its results are a JSON file, of which the AUCs are printed.
"""

import json
import sys
from pathlib import Path

import papermill

PAGE, FOLDER = Path("notebooks/min_k_figure_1.ipynb"), Path("build/sweep")

FOLDER.mkdir(parents=True, exist_ok=True)
for model in sys.argv[1:] or ["lab/en-25k", "lab/en-100k"]:
    out = FOLDER / model.replace("/", "-")
    parameters = {"models": model, "benchmarks": "lab/en", "out": str(out.with_suffix(".json"))}
    papermill.execute_notebook(PAGE, out.with_suffix(".ipynb"), parameters, progress_bar=False)
    for result in json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))["results"]:
        if result["metric"] == "auc" and result["ours"] is not None:
            print(model, result["row"], f"{result['ours']:.3f} [{result['low']:.3f}, {result['high']:.3f}]")
