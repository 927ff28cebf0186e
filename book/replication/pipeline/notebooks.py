"""What a notebook's code says, and running it with parameters: with papermill, strictly."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import re
import shutil
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mialib.store import ROOT, write_json
from replication.pipeline.code import imported_modules
from replication.profile import Page, Profile, check_parameters, names_given

if TYPE_CHECKING:
    from jupyter_client.manager import AsyncKernelManager

NOTEBOOKS = ROOT / "notebooks"
NOT_HERE = ("Unavailable", "OutOfMemoryError")  # errors that say what this machine lacks: a model, a file, GPU memory
QUIET = "--IPKernelApp.log_level=ERROR"  # a kernel's warnings are no part of the build's output


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
    strings: frozenset[str]  # all others in its code
    modules: tuple[str, ...]


def read_notebook(path: Path) -> NotebookSource:
    """Read a notebook; ValueError where it is none, or its parameters are not plain values."""
    defaults: dict[str, Any] = {}
    strings, modules = set(), set()
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no notebook ({type(error).__name__}: {error}); mend it") from None
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        code = "".join(cell["source"])
        tree = ast.parse(code, path.name)
        if "parameters" in cell["metadata"].get("tags", []):
            assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
            defaults |= {node.targets[0].id: ast.literal_eval(node.value) for node in assigned}
        else:
            modules |= imported_modules(code)
            strings |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return NotebookSource(defaults, frozenset(strings), tuple(sorted(modules)))


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
    kernel: AsyncKernelManager | None = None,
) -> None:
    """Make a page: execute its notebook in `folder` with the profile's parameters and write it to `output`.

    It runs in `kernel`, or in one that papermill starts. Its results go to `results`; a page of the papers' tables
    finds its columns in `computed`. Where something is not available (`NOT_HERE`), the page ends at that cell and
    says why, and so do its results (`why_not_run`); `skipped` says why none of it is to be run. ValueError for a page
    that the profile or a notebook that the folder lacks, and for a parameter that the notebook lacks. When a cell fails
    otherwise, nothing is written to `output`, the partial copy goes to `failed`, and the error names both.
    """
    import papermill

    clone()
    if name not in profile.notebooks:
        raise ValueError(f"profile {profile.name} has no notebook {name!r}; it has: {', '.join(profile.notebooks)}")
    page = profile.notebooks[name]
    source = folder / f"{page.notebook}.ipynb"
    if not source.is_file():
        raise ValueError(f"{source} does not exist, though profile {profile.name} names it")
    given = {"out": results, "computed": computed}
    parameters = page.parameters | {key: str(path) for key, path in given.items() if path}
    check_parameters(parameters, read_notebook(source).defaults, f"{source.name}, run by profile {profile.name},")
    for path in (failed, output):
        path.parent.mkdir(parents=True, exist_ok=True)
    why, how = skipped, {"prepare_only": bool(skipped)}
    how |= {"progress_bar": False, "cwd": str(ROOT), "km": kernel, "extra_arguments": [QUIET]}
    try:
        papermill.execute_notebook(str(source), str(failed), parameters, **how)
    except papermill.PapermillExecutionError as error:
        if error.ename not in NOT_HERE:
            raise ValueError(
                f"{source.name} failed in cell {error.exec_count}: {error.ename}: {error.evalue}; "
                f"the notebook up to there is in {failed}"
            ) from None
        why = (error.evalue.splitlines() or [error.ename])[0]
    if why and results:
        write_json(results, {"results": [], "unavailable": why})
    _finish(failed, page, why)
    shutil.move(failed, output)


def why_not_run(results: Path) -> str:
    """Why a page was not run, by the file of its results; "" for one that was, or that there is no file of."""
    return json.loads(results.read_text(encoding="utf-8")).get("unavailable", "") if results.is_file() else ""


@contextmanager
def forked_kernel() -> Iterator[AsyncKernelManager | None]:
    """A running kernel that is forked from this process, and so has all that it has imported: what papermill talks to
    it through. None where forking is not safe, outside Linux."""
    if sys.platform != "linux":
        yield None
        return

    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):
        has_kernel = True

        async def is_alive(self) -> bool:
            return process.is_alive()

        _async_is_alive = is_alive  # what its clients ask

        async def shutdown_kernel(self, *_: Any, **__: Any) -> None:
            process.kill()

    manager = Manager(kernel_name="python3")
    manager.write_connection_file()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(manager.connection_file, os.getpid()))
    process.start()
    try:
        yield manager
    finally:
        process.kill()
        process.join()
        manager.cleanup_connection_file()


def _serve(connection_file: str, parent: int) -> None:
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(argv=["-f", connection_file, f"--IPKernelApp.parent_handle={parent}", QUIET])


def _finish(path: Path, page: Page, why_not_run: str) -> None:
    """Write the profile's parameters in the place of the notebook's defaults, where papermill has its own cell.

    The paths of this build are left out: who downloads the page runs it elsewhere. A page that has a name of its own
    gets its title, and its figures names that no other page of the notebook has. A folded cell says what it does. A
    page that was not run says why in place of the cell that failed and of all after it.
    """
    import nbformat

    from replication.results import literal

    notebook = nbformat.read(path, as_version=4)
    added = {"injected-parameters", "papermill-error-cell-tag"}
    notebook.cells = [cell for cell in notebook.cells if not added & {*cell.metadata.get("tags", [])}]
    if why_not_run:
        has_failed = [any(o.output_type == "error" for o in cell.get("outputs", [])) for cell in notebook.cells]
        is_given = ["parameters" in cell.metadata.get("tags", []) for cell in notebook.cells]
        end = has_failed.index(True) if any(has_failed) else is_given.index(True) + 1
        said = f"**Not run**: {literal(why_not_run.rstrip('.'))}."
        notebook.cells[end:] = [nbformat.v4.new_markdown_cell(said)]
        for cell in notebook.cells:  # its numbers are not there
            cell.source = re.sub(r"\{glue:text\}`[^`]*`", "–", cell.source)
    for named in ("input_path", "output_path", "parameters"):
        notebook.metadata.papermill.pop(named, None)
    if page.name:
        notebook.cells[0].source = re.sub(r"^# .*", f"# {page.title}", notebook.cells[0].source)
    labels = fold_labels(notebook.cells)
    for i, cell in enumerate(notebook.cells):
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = with_values(cell.source, page.parameters)
        if page.name and (figure := cell.metadata.get("mystnb", {}).get("figure")):
            figure["name"] += f"-{page.name.replace('_', '-')}"
        if label := labels.get(i):
            prompts = {"code_prompt_show": label, "code_prompt_hide": label}
            cell.metadata["mystnb"] = prompts | cell.metadata.get("mystnb", {})
    nbformat.write(notebook, path)


# What a folded cell ends in, and what its fold says of that; the first that its last statement holds.
SHOWS = {
    "claims.answer(": "the answer",
    "what_ran(": "what ran",
    "leak_note(": "does the benchmark leak?",
    "verdicts(": "the verdicts",
    "fig": "the figure",
    "token_view.fragment": "the texts, token by token",
    "table": "the table",
    "DataFrame": "the table",
    "display(": "the table",
    "Markdown(": "the sentence",
    "pages.glue(": "the numbers in the text",
}


def fold_labels(cells: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """What the fold of each folded code cell says, by the cell's number: "Code: imports and data (columns, np)".

    That is the cell's first line where it is a short comment, else derived from its code. In brackets stand the names
    that a visible cell takes from it, so that no name comes from nowhere.
    """
    code = {i: "".join(cell["source"]) for i, cell in enumerate(cells) if cell["cell_type"] == "code"}
    tags = {i: set(cells[i]["metadata"].get("tags", [])) for i in code}
    folded = [i for i in code if {"hide-input", "hide-cell"} & tags[i]]
    wanted = set().union(*(names_taken(code[i]) for i in code if i not in folded))
    labels = {}
    for i in folded:
        given = sorted(names_given(code[i]) & wanted, key=str.lower)
        wanted -= set(given)  # a name is told where it comes from first
        told = f" ({', '.join(given)})" if given else ""
        kind = "Result and code" if "hide-cell" in tags[i] else "Code"
        where = " at the top" if "answer" in tags[i] else ""
        labels[i] = "Solution" if "solution" in tags[i] else f"{kind}: {_what_it_does(code[i])}{where}{told}"
    return labels


def names_taken(code: str) -> set[str]:
    """The names that a cell reads and does not bind."""
    tables, names = [symtable.symtable(code, "", "exec")], set()
    for table in tables:  # which grows
        tables += table.get_children()
        is_module = table.get_type() == "module"
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (is_module or s.is_global())}
    return names - names_given(code)


def _what_it_does(code: str) -> str:
    """A few words on a cell: its first line where it is a short comment, else what it does and what it shows."""
    first = code.partition("\n")[0]
    if first.startswith("#") and len(first) <= 60:
        return first.lstrip("# ").rstrip(".:")
    body = ast.parse(code).body
    does = ["imports and data"] if any(isinstance(node, ast.Import | ast.ImportFrom) for node in body) else []
    if "results.save(" in code:
        does.append("the numbers, measured and kept")
    last = ast.unparse(body[-1])
    if isinstance(body[-1], ast.Expr | ast.For | ast.If) and "results.save(" not in last:
        looked_at = [last] if does else [last, code]
        does += [said for part in looked_at for sign, said in SHOWS.items() if sign in part][:1]
    return "; ".join(does or ["functions" if isinstance(body[0], ast.FunctionDef) else "an intermediate step"])


def with_values(code: str, values: dict[str, Any]) -> str:
    """A parameters cell with other values assigned; comments stay."""
    lines = code.split("\n")
    for node in reversed(ast.parse(code).body):
        if isinstance(node, ast.Assign) and node.targets[0].id in values:
            name, last = node.targets[0].id, node.end_lineno - 1
            rest = lines[last].encode()[node.end_col_offset :].decode()
            lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {values[name]!r}{rest}"]
    return "\n".join(lines)
