"""Running a parameterized notebook with papermill, strictly."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from mialib.book.profile import Page, Profile
from mialib.store import ROOT

NOTEBOOKS = ROOT / "notebooks"


def run_notebook(
    name: str,
    profile: Profile,
    *,
    output: Path,
    failed: Path,
    results: Path | None = None,
    computed: Path | None = None,
    folder: Path = NOTEBOOKS,
) -> None:
    """Make a page: execute its notebook in `folder` with the profile's parameters and write it to `output`.

    Its results go to `results`; a page of the papers' tables finds its columns in `computed`. ValueError for a page
    that the profile or a notebook that the folder lacks, and for a parameter that the notebook lacks (papermill itself
    only warns). When a cell fails, nothing is written to `output`, the partial copy goes to `failed`, and the error
    names both.
    """
    import papermill

    if name not in profile.notebooks:
        raise ValueError(f"profile {profile.name} has no notebook {name!r}; it has: {', '.join(profile.notebooks)}")
    page = profile.notebooks[name]
    source = folder / f"{page.notebook}.ipynb"
    if not source.is_file():
        raise ValueError(f"{source} does not exist, though profile {profile.name} names it")
    given = {"out": results, "computed": computed}
    parameters = page.parameters | {key: str(path) for key, path in given.items() if path}
    known = papermill.inspect_notebook(str(source))
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ValueError(
            f"{source.name} has no parameter {unknown[0]!r} (profile {profile.name}); it has: {', '.join(known)}"
        )
    failed.parent.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            str(source),
            str(failed),
            parameters=parameters,
            progress_bar=False,
            cwd=str(ROOT),
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # its warnings are no part of the build's output
        )
    except papermill.PapermillExecutionError as error:
        raise ValueError(
            f"{source.name} failed in cell {error.exec_count}: {error.ename}: {error.evalue}; "
            f"the notebook up to there is in {failed}"
        ) from error
    _finish(failed, page)
    shutil.move(failed, output)


def _finish(path: Path, page: Page) -> None:
    """Where papermill has put the profile's parameters below the defaults, fold its cell and leave the defaults out.

    A page that has a name of its own gets its title, and its figures names that no other page of the notebook has.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    if page.name:
        notebook.cells[0].source = re.sub(r"^# .*", f"# {page.title}", notebook.cells[0].source)
        for cell in notebook.cells:
            if figure := cell.metadata.get("mystnb", {}).get("figure"):
                figure["name"] += f"-{page.name.replace('_', '-')}"
    injected = [c for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", [])]
    for cell in injected:
        cell.metadata["tags"].append("hide-input")
    for cell in notebook.cells if injected else []:
        if "parameters" in cell.metadata.get("tags", []):
            cell.metadata["tags"] = ["parameters", "remove-cell"]
    nbformat.write(notebook, path)
