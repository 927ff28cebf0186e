"""What a notebook's code says, and making a page of it: papermill runs it with the profile's parameters, strictly."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from mialib.store import ROOT, write_json
from replication.pipeline.code import imported_modules
from replication.profile import Page, Profile, check_names

if TYPE_CHECKING:
    from nbformat import NotebookNode

NOTEBOOKS = ROOT / "notebooks"
NOT_HERE = ("Unavailable", "OutOfMemoryError")  # errors that say what this machine lacks: a model, a file, GPU memory
QUIET = ["--IPKernelApp.log_level=ERROR"]  # a kernel's warnings are no part of the build's output
FOLDED = {"hide-input", "hide-cell"}  # tags of a folded cell: its code, or all of it
OVER_SEEDS = (
    "The intervals of these tests (`data/claims.yml`), unlike those above, also cover the training seed and, where "
    "hyperparameters are chosen, that choice."
)
VERDICTS = """# The verdicts over all training seeds
from IPython.display import Markdown, display

from replication import claims

display(Markdown({!r}))
claims.verdicts(models, about)"""
NUMBERS = """# All numbers behind this page, with their intervals
from IPython.display import display
from replication import tables

display(*tables.saved_numbers({!r}, out))"""
FROM_A_CLONE = "From the root of a clone ([what `MODEL` and `texts.jsonl` can be](../how_to_read)):"


def clone() -> Path:
    """The clone of the repository; FileNotFoundError where mialib is installed without one."""
    if not (ROOT / "Snakefile").is_file():
        raise FileNotFoundError(
            "pages and records are made in a clone of the repository, which holds the notebooks; mialib is installed "
            "here without one. Clone it and run `make book`, or download a notebook from its page and run papermill"
        )
    return ROOT


@dataclass(frozen=True)
class NotebookSource:
    """What a notebook's code says without being run."""

    defaults: dict[str, Any]  # of its parameters
    modules: tuple[str, ...]


def read_notebook(path: Path) -> NotebookSource:
    """Read a notebook; ValueError where it is none, or its parameters are not plain values."""
    defaults: dict[str, Any] = {}
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells, appended = notebook["cells"], notebook["metadata"].get("footer", {})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no notebook ({type(error).__name__}: {error}); mend it") from None
    modules = {"replication.claims"} if "verdicts" in appended else set()
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        code = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", []):
            defaults |= {name: ast.literal_eval(node.value) for name, node in assignments(ast.parse(code, path.name))}
        else:
            modules |= imported_modules(code)
    return NotebookSource(defaults, tuple(sorted(modules)))


def run_notebook(
    name: str,
    profile: Profile,
    *,
    output: Path,
    failed: Path,
    results: Path | None = None,
    computed: Path | None = None,
    skipped: str = "",
    folder: Path = NOTEBOOKS,
) -> None:
    """Make a page: execute its notebook in `folder` with the profile's parameters and write it to `output`.

    Its results go to `results`; a page of the papers' tables finds its columns in `computed`. Where something is not
    available (`NOT_HERE`), the page ends at that cell and says why, and so do its results; `skipped` says why none of
    it is to be run. ValueError for a page that the profile lacks, and for a parameter that the notebook
    lacks. When a cell fails otherwise, nothing is written to `output`, the partial copy goes to
    `failed`, and the error names both.
    """
    # With this package jsonschema, and so nbformat, takes 3 s to import: a grammar of addresses that no notebook needs.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError

    clone()
    check_names([name], profile.notebooks, f"profile {profile.name} has no notebook")
    page = profile.notebooks[name]
    source = folder / f"{page.notebook}.ipynb"
    paths = {key: str(path) for key, path in {"out": results, "computed": computed}.items() if path}
    known = read_notebook(source).defaults
    check_names({**page.parameters, **paths}, known, f"{source.name}, run by profile {profile.name}, has no parameter")
    for path in (failed, output):
        path.parent.mkdir(parents=True, exist_ok=True)
    why, how = skipped, {"prepare_only": bool(skipped), "progress_bar": False, "cwd": str(ROOT)}
    notebook = prepare_page(nbformat.read(source, as_version=4), page)
    try:
        papermill.execute_notebook(notebook, str(failed), paths, extra_arguments=QUIET, **how)
    except papermill.PapermillExecutionError as error:
        if error.ename not in NOT_HERE:
            raise ValueError(
                f"{source.name} failed in cell {error.exec_count}: {error.ename}: {error.evalue}; "
                f"the notebook up to there is in {failed}"
            ) from None
        why = (error.evalue.splitlines() or [error.ename])[0]
    except DeadKernelError:
        raise ValueError(
            f"{source.name} failed in cell {running_cell(failed)}: its kernel was killed, perhaps because memory "
            f"ran out; the notebook up to there is in {failed}"
        ) from None
    if why and results:
        write_json(results, {"results": [], "unavailable": why})
    nbformat.write(finished(nbformat.read(failed, as_version=4), why), failed)
    shutil.move(failed, output)


def running_cell(notebook: Path) -> int:
    """The number of the code cell at which papermill's copy of a notebook ends."""
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    return sum(cell["metadata"]["papermill"]["status"] == "completed" for cell in cells) + 1


def why_not_run(results: Path) -> str:
    """Why a page was not run, by the file of its results; "" for one that was, or that there is no file of."""
    return json.loads(results.read_text(encoding="utf-8")).get("unavailable", "") if results.is_file() else ""


def prepare_page(notebook: NotebookNode, page: Page) -> NotebookNode:
    """A notebook as the page shows it: the profile's parameters, labels of folded cells, and its footer.

    A page that has a name of its own gets its title, and its figures names that no other page of the notebook has.
    """
    if page.name:
        notebook.cells[0].source = re.sub(r"^# .*", f"# {page.title}", notebook.cells[0].source)
    notebook.cells += footer(notebook.metadata.pop("footer", {}), str(page.notebook))
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "parameters" in tags:
            cell.source = with_values(cell.source, page.parameters)
        if page.name and (figure := cell.metadata.get("mystnb", {}).get("figure")):
            figure["name"] += f"-{page.name.replace('_', '-')}"
        if FOLDED & {*tags}:
            label = "Solution" if "solution" in tags else fold_label(cell.source)
            prompts = {"code_prompt_show": label, "code_prompt_hide": label}
            cell.metadata["mystnb"] = prompts | cell.metadata.get("mystnb", {})
    return notebook


def fold_label(code: str) -> str:
    """What a folded cell is called, "The grid", by the comment in its first line."""
    first = code.partition("\n")[0]
    return first.lstrip("# ").rstrip(".:") if first.startswith("#") else "Code"


def assignments(tree: ast.Module) -> list[tuple[str, ast.Assign]]:
    """The assignments of a parameters cell, by the variable's name."""
    nodes = [node for node in tree.body if isinstance(node, ast.Assign)]
    return [(node.targets[0].id, node) for node in nodes if isinstance(node.targets[0], ast.Name)]


def with_values(code: str, values: dict[str, Any]) -> str:
    """A parameters cell with other values assigned; comments stay."""
    lines = code.split("\n")
    for name, node in reversed(assignments(ast.parse(code))):
        if name in values and node.end_lineno is not None:
            rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
            lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {values[name]!r}{rest}"]
    return "\n".join(lines)


def footer(about: dict[str, Any], name: str) -> list[NotebookNode]:
    """The last cells of a page, by what its notebook's metadata say under "footer".

    "numbers" is true where all saved results follow as tables; "verdicts" holds a sentence on the tests of this page,
    or ""; "what_ran" the expression that `results.save` is given as `ran`; "another_model" papermill's `options` and,
    if needed, a `title` and a `note` after the command.
    """
    from nbformat.v4 import new_code_cell, new_markdown_cell

    cells, folded = [], {"tags": ["hide-cell"]}
    if about.get("numbers"):
        cells.append(new_code_cell(NUMBERS.format(name), metadata=folded))
    if "verdicts" in about:
        says = f"{about['verdicts']} {OVER_SEEDS}".strip()
        cells.append(new_code_cell(VERDICTS.format(says), metadata=folded))
    if "what_ran" in about:
        code = f"# What ran\nfrom replication import tables\n\ntables.what_ran({about['what_ran']})"
        cells.append(new_code_cell(code, metadata=folded))
    if other := about.get("another_model"):
        options = wrap(other["options"].replace("-p ", "-p\0"), 72, break_long_words=False, break_on_hyphens=False)
        lines = [f".venv/bin/papermill notebooks/{name}.ipynb out.ipynb", *options]
        command = " \\\n    ".join(lines).replace("\0", " ")
        title, note = other.get("title", "Run it on another model"), other.get("note", "")
        parts = [f"````{{dropdown}} {title}\n{FROM_A_CLONE}", f"```bash\n{command}\n```", *([note] if note else [])]
        cells.append(new_markdown_cell("\n\n".join(parts) + "\n````"))
    for i, cell in enumerate(cells):
        cell.id = f"footer-{i}"
    return cells


def finished(notebook: NotebookNode, why_not_run: str) -> NotebookNode:
    """A page without what papermill added: who downloads it runs it elsewhere, and not at the paths of this build.

    A page that was not run says why in place of the cell that failed and of all after it.
    """
    added = {"injected-parameters", "papermill-error-cell-tag"}
    notebook.cells = [cell for cell in notebook.cells if not added & {*cell.metadata.get("tags", [])}]
    for named in ("input_path", "output_path", "parameters"):
        notebook.metadata.papermill.pop(named, None)
    if why_not_run:
        from nbformat.v4 import new_markdown_cell

        from replication.results import literal

        has_failed = [any(o.output_type == "error" for o in cell.get("outputs", [])) for cell in notebook.cells]
        is_given = ["parameters" in cell.metadata.get("tags", []) for cell in notebook.cells]
        end = has_failed.index(True) if any(has_failed) else is_given.index(True) + 1
        notebook.cells[end:] = [new_markdown_cell(f"**Not run**: {literal(why_not_run.rstrip('.'))}.")]
        for cell in notebook.cells:  # its numbers are not there
            cell.source = re.sub(r"\{glue:text\}`[^`]*`", "–", cell.source)
    return notebook
