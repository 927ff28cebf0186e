"""What a finished build found, from its results: the papers' tables and figures, a status page.

    write_lists    the lists that pages of the book include: printed items, figures, and notebooks with run times

The ledger is what the claims' page wrote of each verdict.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mialib.store import atomic_path
from replication.claims.spec import load_claims
from replication.claims.tables import VERDICT, count_verdicts
from replication.pipeline.needs import strings_in
from replication.pipeline.notebooks import NOTEBOOKS, read_notebook
from replication.pipeline.slides import slides_of
from replication.profile import Profile
from replication.published import PAPERS, load_published, measured_by_others
from replication.real import REAL
from replication.results import DASH, load_results
from replication.tables import markdown_table

LISTS = (
    "_papers_tables.md",
    "_figures.md",
    "_status.md",
    "_measured_by_others.md",
)  # in book/pages/, included by pages of text
NOT_RUN = "not run in this build"
RAN_ON = {"real": "a real model", "paper": "the papers' models"}  # by profile; others run the lab's
NO_NUMBERS = {  # what has no page of its own, since it prints no number
    ("surp", "Figure 1"): "no experiment: a drawing of the method, which Figure 4's page computes",
    ("probe", "Figure 1"): "no experiment: a drawing of the method, which the page of Tables 2 and 3 computes",
    ("probe", "Table 5"): "no experiment: a prompt for synthetic texts, described on Table 1's page",
}


@dataclass(frozen=True)
class PrintedItem:
    """A table or figure that a paper prints."""

    paper: str
    item: str  # "Table 1", "Figure 3a"
    pages: tuple[str, ...] = ()  # of the profile


def printed_items(profile: Profile) -> list[PrintedItem]:
    """Every table and figure of data/published.csv, of `NO_NUMBERS`, or that a notebook saves, with its pages, in the
    papers' order."""
    pages: dict[tuple[str, str], list[str]] = {key: [] for key in NO_NUMBERS}
    for name, page in profile.notebooks.items():
        for key in _replicates(NOTEBOOKS / f"{page.notebook}.ipynb", page.parameters):
            pages.setdefault(key, []).append(name)
    for paper, item in load_published()[["paper", "item"]].drop_duplicates().itertuples(index=False):
        for title in _titles(item):
            # The csv has Figure 3, whose halves 3a and 3b have a page each.
            if not any((paper, title + half) in pages for half in ("", "a", "b")):
                pages[paper, title] = []

    def place(key: tuple[str, str]) -> tuple[int, bool, int, str]:
        kind, number = key[1].split()
        return list(PAPERS).index(key[0]), kind == "Figure", int(re.findall(r"\d+", number)[0]), number

    return [PrintedItem(*key, tuple(pages[key])) for key in sorted((k for k in pages if k[0] in PAPERS), key=place)]


def _replicates(path: Path, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The papers' items that a notebook saves its results as: (paper, title)."""
    given = {**read_notebook(path).defaults, **parameters}
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    for node in (node for cell in cells for node in ast.walk(ast.parse("".join(cell["source"])))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "results.save":
            said: dict[Any, Any] = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            items = given.get("items") or {}
            named = [said["item"]] if "item" in said else list(items.values() if isinstance(items, dict) else items)
            paper = said.get("paper", given.get("paper", ""))
            return [(paper, title) for item in named for title in _titles(item)]
    return []


def _titles(item: str) -> list[str]:
    """ "tables 2 and 3" or "table-2" as titles; of anything else none."""
    found = re.fullmatch(r"(table|figure)s?[ -](\w+)(?: and (\w+))?", item)
    return [f"{found[1].title()} {number}" for number in found.groups()[1:] if number] if found else []


def read_ledger(path: Path) -> list[tuple[str, str]]:
    """The ids of claims and the verdicts of a build's claims page; none where it has not run, nor of former tests."""
    results, ids = load_results(path) if path.is_file() else [], {claim.id for claim in load_claims().claims}
    return [(r.row, r.why) for r in results if r.metric == VERDICT and r.row in ids]


def item_of(published: str) -> str:
    """The table or figure that a claim's source names first; "" where it names none."""
    named = re.search(r"(Table|Figure)s? (\w+)", published)
    return f"{named[1]} {named[2]}" if named else ""


def command(page: str, profile: Profile) -> str:
    """The papermill command that runs a page with the profile's parameters, from the root of a clone."""
    of = profile.notebooks[page]
    words = [".venv/bin/papermill", f"notebooks/{of.notebook}.ipynb", "out.ipynb"]
    for name, value in of.parameters.items():
        if isinstance(value, dict):
            words += ["-y", shlex.quote(json.dumps({name: value}))]
        else:
            words += ["-p", name, shlex.quote(",".join(map(str, value)) if isinstance(value, list) else str(value))]
    return " ".join(words)


def papers_tables(profile: Profile, build: Path) -> str:
    """Markdown: a row for each item that a paper prints, with page, verdicts and status; the pages' commands."""
    ledger, items = read_ledger(build / "results" / "claims.json"), printed_items(profile)
    rows: list[list[str]] = []
    commands: list[str] = []
    about = {claim.id: (claim.paper, item_of(claim.published)) for claim in load_claims().claims}
    for paper, title in PAPERS.items():
        of_page: dict[str, list[str]] = {}
        for one in (one for one in items if one.paper == paper):
            if not one.pages:
                rows.append([one.item, title, DASH, NO_NUMBERS.get((paper, one.item), "published numbers only")])
            for page in one.pages:
                notebook = profile.notebooks[page].notebook
                modules = read_notebook(NOTEBOOKS / f"{notebook}.ipynb").modules
                said = count_verdicts(verdict for claim, verdict in ledger if about[claim] == (paper, one.item)) or DASH
                ran_on = [RAN_ON.get(profile.name, "the lab's models")]
                is_real = [name.startswith(REAL) for name in strings_in(profile.notebooks[page].parameters)]
                if profile.name == "lab" and ("replication.real_model" in modules or any(is_real)):
                    ran_on.insert(0, "real models")
                done = " and ".join(ran_on) if _has_numbers(build, page) else NOT_RUN
                rows.append([f"[{one.item}](pages/{page})", title, said, done])
                of_page.setdefault(page, []).append(one.item)
        commands += [f"# {title}, {', '.join(done)}\n{command(page, profile)}" for page, done in of_page.items()]
    table = markdown_table(["printed", "paper", "verdicts of its claims", "the same experiment on"], rows)
    code = "\n\n".join(commands)
    return f"{table}\n\n````{{dropdown}} The command of each page\n```bash\n{code}\n```\n````\n"


def _has_numbers(build: Path, page: str) -> bool:
    """Whether any number of a page was computed here."""
    path = build / "results" / f"{page}.json"
    return path.is_file() and any(result.ours is not None for result in load_results(path))


def own_figures(names: Iterable[str], pages: Path) -> str:
    """Markdown: the figures of pages in the order given, each with its number and a link, its page, what it shows."""
    rows = []
    for name in names:
        path = pages / f"{name}.ipynb"
        for figure in (one for one in slides_of(path) if one.name) if path.is_file() else ():
            first = re.split(r"(?<=[.?!]) ", figure.caption)[0]
            rows.append([f"{{numref}}`%s <{figure.name}>`", f"[](pages/{name})", first])
    return markdown_table(["figure", "page", "shows"], rows) + "\n"


def status(profile: Profile, build: Path, pages: Path) -> str:
    """Markdown: how long each notebook ran and when, and the versions of Python and the libraries."""
    rows, seconds = [], 0.0
    versions: dict[str, set[str]] = {}  # by library
    for name in profile.notebooks:
        link, path, results = f"[](pages/{name})", pages / f"{name}.ipynb", build / "results" / f"{name}.json"
        ran = json.loads(path.read_text(encoding="utf-8"))["metadata"] if path.is_file() else {}
        used = json.loads(results.read_text(encoding="utf-8")).get("versions", {}) if results.is_file() else {}
        if "duration" in (timed := ran.get("papermill", {})):
            seconds += timed["duration"]
            rows.append([link, f"{timed['duration']:.1f}", f"{timed['end_time'][:16].replace('T', ' ')} UTC"])
            used = {"python": ran.get("language_info", {}).get("version", DASH)} | used
        else:
            rows.append([link, NOT_RUN, DASH])
        for library, version in used.items():
            versions.setdefault(library, set()).add(version)
    libraries = [[name, ", ".join(sorted(found))] for name, found in versions.items()]
    of_pages = markdown_table(["page", "run time (s)", "finished"], rows)
    of_libraries = markdown_table(["library", "version"], libraries)
    folded = f"````{{dropdown}} Each page\n{of_pages}\n````"
    return f"All notebooks together: {seconds / 60:.1f} minutes.\n\n{of_libraries}\n\n{folded}\n"


def by_others() -> str:
    """Markdown: what others measured, a row for each source, model and setting."""
    rows = []
    for row in measured_by_others():
        reported = ", *reported*" if row["known"] == "reported" else ""
        rows.append([row["what"], row["numbers"], f"{{cite:t}}`{row['source']}`{reported}"])
    table = markdown_table(["model, texts", "AUC", "source"], rows)
    return f"```{{table}} Measured by others\n{table}\n```\n"


def write_lists(profile: Profile, build: Path, pages: Path, page: str = "") -> None:
    """Write the lists that pages of the book include, into `pages`, before it, or one page of it, is rendered."""
    figures = own_figures([page] if page else profile.notebooks, pages)  # others have no number in a book of one page
    lists = papers_tables(profile, build), figures, status(profile, build, pages), by_others()
    pages.mkdir(parents=True, exist_ok=True)
    for name, text in zip(LISTS, lists, strict=True):
        with atomic_path(pages / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
