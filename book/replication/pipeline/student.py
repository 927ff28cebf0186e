"""From one notebook two: one for students, without a solution anywhere in it, and one with the solutions.

How exercises stand in a notebook:

    a code cell tagged `exercise`    a stub that raises NotImplementedError, for the student to complete
    a code cell tagged `solution`    the same, complete
    a code cell tagged `check`       asserts on the exercise's names; with the stub it fails
    Markdown                         `{admonition} Exercise`, then `{dropdown} Solution`

In the book the three code cells run one after the other, the solution folded. In the student's notebook a check of a
stub says that there is no answer yet, so that the notebook runs to its end. Both notebooks are written without
outputs and metadata, which hold what a solution printed; nbgrader can take either as an assignment's source. What the
book's Markdown has beyond Jupyter's becomes plain: boxes, folds, citations, index entries, and links to other pages.
"""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

from pybtex.database import Entry, parse_file

from mialib.store import ROOT, atomic_path

KINDS = ("student", "solution")
EXERCISE, SOLUTION, CHECK = "exercise", "solution", "check"  # tags of code cells
NBGRADER = {"schema_version": 3, "task": False}  # of each cell that nbgrader reads
# A student's check. Papermill stops at any error; nbgrader gives no point to a check that writes to stderr.
STUDENT_CHECK = """import sys

try:
{check}
except NotImplementedError:
    print("Not answered yet: complete the cell above, run it, and run this one again.", file=sys.stderr)"""
_OPENS = r"^(?P<fence>(?P<mark>[`:~])(?P=mark){2,})\{(?P<name>[\w-]+)\} *(?P<title>[^\n]*?)[ \t]*$"
_DIRECTIVE = re.compile(
    _OPENS + r"\n(?:(?::[\w-]+:[^\n]*|[ \t]*)\n)*"  # options and empty lines
    r"(?P<body>.*?)^(?P=fence)(?P=mark)*[ \t]*(?:\n|\Z)",
    re.M | re.S,
)
_ROLE = re.compile(r"\{(?P<name>cite:[pt]|index|glue:text)\}`(?P<text>[^`]*)`")
# Code, which stays as it is, or a link to a page of the book, or to a place on this one.
_CODE_OR_LINK = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)|`[^`\n]*`"
    r"|\[(?P<text>[^\]]*)\]\((?P<page>(?!\w+:)[^)#\s]*)(?:#[^)\s]*)?\)",
    re.M | re.S,
)


def write_builds(paths: Iterable[Path], output: Path) -> list[Path]:
    """Write both notebooks of each path below `output`; their paths. ValueError for exercises that are not whole."""
    written = []
    for path in paths:
        source = json.loads(path.read_text(encoding="utf-8"))
        for kind in KINDS:
            try:
                built = student_notebook(source, kind)
            except ValueError as error:
                raise ValueError(f"{path.name}: {error}") from None
            target = output / kind / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(target) as temporary:
                temporary.write_text(json.dumps(built, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            written.append(target)
    return written


def student_notebook(notebook: dict[str, Any], kind: str) -> dict[str, Any]:
    """A notebook (as JSON) for students or with solutions; in the latter a solution takes its stub's place."""
    check_exercises(notebook["cells"])
    is_student, cells, answer = kind == "student", [], ""
    for cell in notebook["cells"]:
        is_code, tags, source = cell["cell_type"] == "code", _tags(cell), "".join(cell["source"])
        answer = cell["id"] if EXERCISE in tags else answer
        if (SOLUTION if is_student else EXERCISE) in tags:
            continue
        source = source if is_code else plain(source, is_student)
        if is_student and CHECK in tags:
            source = STUDENT_CHECK.format(check=indent(source, "    "))
        built = {"cell_type": cell["cell_type"], "id": cell["id"], "source": source.splitlines(keepends=True)}
        built["metadata"] = {"tags": tags} if tags else {}
        if is_code and {EXERCISE, SOLUTION, CHECK} & {*tags}:
            test = CHECK in tags  # which is locked, and gives a point
            of = {"grade_id": answer + "-check" * test, "grade": test, "locked": test, "solution": not test}
            built["metadata"]["nbgrader"] = NBGRADER | of | ({"points": 1} if test else {})
        cells.append(built | ({"execution_count": None, "outputs": []} if is_code else {}))
    kept = {key: notebook["metadata"][key] for key in ("kernelspec", "language_info") if key in notebook["metadata"]}
    return {"cells": cells, "metadata": kept, "nbformat": 4, "nbformat_minor": 5}


def check_exercises(cells: list[dict[str, Any]]) -> None:
    """ValueError unless code exercises come as stub, solution, check."""
    in_order = [EXERCISE, SOLUTION, CHECK]
    found = [tag for cell in cells if cell["cell_type"] == "code" for tag in in_order if tag in _tags(cell)]
    if found != in_order * (len(found) // 3):
        raise ValueError(f"code cells of an exercise are tagged {', '.join(in_order)}, in this order; found {found}")


def _tags(cell: dict[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def plain(source: str, without_solutions: bool = False) -> str:
    """Markdown without what Sphinx alone knows; ValueError for a directive that is not closed or has no plain form."""
    parts, end = [], 0
    for found in _DIRECTIVE.finditer(source):
        parts += [_plain_text(source[end : found.start()]), _plain_directive(found, without_solutions)]
        end = found.end()
    return "".join([*parts, _plain_text(source[end:])]).rstrip("\n")


def _plain_directive(found: re.Match[str], without_solutions: bool) -> str:
    name, title = found["name"], found["title"]
    if name == "glue":  # what a cell makes
        return ""
    if name not in ("admonition", "dropdown"):
        raise ValueError(f"{{{name}}} has no form in a notebook without the book")
    if name == "dropdown" and without_solutions and title.lower().startswith(SOLUTION):
        return "*Your answer:*\n\n"
    text = plain(found["body"].strip("\n"), without_solutions)
    heading = f"**{title}{'' if title.endswith(('.', '?', '!')) else '.'}**"
    if name == "dropdown":
        return f"{heading}\n\n{text}\n\n"
    return "".join(f"> {line}".rstrip() + "\n" for line in (heading, "", *text.splitlines())) + "\n"


def _plain_text(source: str) -> str:
    """Text between directives: citations by author and year, index entries and links to pages as their words."""
    if unclosed := re.search(_OPENS, source, re.M):
        raise ValueError(f"{unclosed[0]!r} is not closed")
    return _CODE_OR_LINK.sub(_plain_link, _ROLE.sub(_plain_role, source))


def _plain_link(found: re.Match[str]) -> str:
    return found["text"] or (f"*{_title(found['page'])}*" if found["page"] else found[0])


def _plain_role(role: re.Match[str]) -> str:
    name, text = role["name"], role["text"]
    if name == "index":
        return text.partition("<")[0].strip()
    if name == "glue:text":
        return f"`{text.partition(':')[0]}`"
    cited = [_cited(key.strip(), in_text=name == "cite:t") for key in text.split(",")]
    return ", ".join(cited) if name == "cite:t" else f"({'; '.join(cited)})"


def _cited(key: str, in_text: bool) -> str:
    """A reference as "Shi et al. 2024", in a sentence "Shi et al. (2024)", linked to where it can be read."""
    entry = _references()[key]
    people = entry.persons["author"]
    names = [" ".join(map(str, [*one.rich_prelast_names, *one.rich_last_names])) for one in people]
    authors = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) > 1 else "")
    said = f"{authors} ({entry.fields['year']})" if in_text else f"{authors} {entry.fields['year']}"
    return f"[{said}]({entry.fields['url']})" if "url" in entry.fields else said


@cache
def _references() -> dict[str, Entry]:
    return dict(parse_file(str(ROOT / "book" / "references.bib")).entries)


@cache
def _title(page: str) -> str:
    """The title of a page that a notebook links to: "lab" of another notebook, "../glossary" of a page of text."""
    if page.startswith("../"):
        text = (ROOT / "book" / f"{page[3:]}.md").read_text(encoding="utf-8")
    else:
        first = json.loads((ROOT / "notebooks" / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"][0]
        text = "".join(first["source"])
    return re.findall(r"^# +(.*?)\s*$", text, re.M)[0]
