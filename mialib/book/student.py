"""From one notebook two: one for students, without a solution anywhere in it, and one with the solutions.

How exercises stand in a notebook:

    a code cell tagged `exercise`    a stub that raises, for the student to complete
    a code cell tagged `solution`    the same, complete
    a code cell tagged `check`       asserts on the exercise's names; with the stub it fails
    Markdown                         `{admonition} Exercise` or `{exercise}`, then `{dropdown} Solution` or
                                     `{solution}`; or all cells from `{solution-start}` to `{solution-end}`

In the book the three code cells run one after the other, the solution folded. Outputs and metadata hold what a solution
printed, so both notebooks are written without any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mialib.store import atomic_path

KINDS = ("student", "solution")
EXERCISE, SOLUTION, CHECK = "exercise", "solution", "check"  # tags of code cells
_OPENS = re.compile(r"^(?P<fence>`{3,}|:{3,}|~{3,})\{(?P<name>[\w-]+)\} *(?P<title>.*?)\s*$")
_OPTION = re.compile(r"^:[\w-]+:.*$")


def write_builds(paths: Iterable[Path], output: Path) -> list[Path]:
    """Write the two notebooks of each of `paths` into `output`/student and `output`/solution; their paths.

    ValueError for a notebook whose exercises and solutions do not fit together.
    """
    written = []
    for path in paths:
        source = json.loads(path.read_text(encoding="utf-8"))
        for kind in KINDS:
            try:
                built = build(source, kind)
            except ValueError as error:
                raise ValueError(f"{path.name}: {error}") from None
            target = output / kind / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(target) as temporary:
                temporary.write_text(json.dumps(built, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            written.append(target)
    return written


def build(notebook: dict[str, Any], kind: str) -> dict[str, Any]:
    """A notebook (as JSON) for students or with solutions; in the latter a solution takes its stub's place."""
    if kind not in KINDS:
        raise ValueError(f"a build is {' or '.join(KINDS)}, got {kind!r}")
    check_exercises(notebook["cells"])
    is_student, cells, in_solution = kind == "student", [], False
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            opens, closes = ("{solution-start}" in source, "{solution-end}" in source)
            hidden = in_solution or opens or SOLUTION in _tags(cell)
            in_solution = (in_solution or opens) and not closes
            text = "" if hidden and is_student else _plain_exercises(source, is_student)
            if text.strip():
                cells.append(_cell(cell, text))
        elif is_student and (in_solution or SOLUTION in _tags(cell)):
            continue
        elif is_student or EXERCISE not in _tags(cell):
            cells.append(_cell(cell, source))
    kept = {key: notebook["metadata"][key] for key in ("kernelspec", "language_info") if key in notebook["metadata"]}
    return {"cells": cells, "metadata": kept, "nbformat": 4, "nbformat_minor": 5}


def check_exercises(cells: list[dict[str, Any]]) -> None:
    """ValueError unless code exercises come as stub, solution, check, and each gated solution ends."""
    found = [
        tag
        for cell in cells
        if cell["cell_type"] == "code"
        for tag in (EXERCISE, SOLUTION, CHECK)
        if tag in _tags(cell)
    ]
    if found != [EXERCISE, SOLUTION, CHECK] * (len(found) // 3):
        raise ValueError(
            f"code cells of an exercise are tagged exercise, solution, check, in this order; found {found}"
        )
    starts, ends = (sum(f"{{solution-{end}}}" in "".join(c["source"]) for c in cells) for end in ("start", "end"))
    if starts != ends:
        raise ValueError(f"{starts} cells begin a solution and {ends} end one")


def solutions_of(notebook: dict[str, Any]) -> list[str]:
    """All that a student's copy must not hold: the text of each solution, in the order of the notebook."""
    found, in_solution = [], False
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        opens, closes = "{solution-start}" in source, "{solution-end}" in source
        if in_solution or opens or SOLUTION in _tags(cell):
            found.append(source)
        elif cell["cell_type"] == "markdown":
            found += _solutions_in(source)
        in_solution = (in_solution or opens) and not closes
    return found


def _solutions_in(source: str) -> list[str]:
    found = []
    for name, title, body in _blocks(source):
        if _solves(name, title):
            found.append(body)
        elif _asks(name, title):  # a solution may stand inside of its exercise
            found += _solutions_in(body)
    return found


def _tags(cell: dict[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def _cell(cell: dict[str, Any], source: str) -> dict[str, Any]:
    """A cell with its tags and nothing else of its metadata, and no output."""
    made = {
        "cell_type": cell["cell_type"],
        "id": cell["id"],
        "metadata": {},
        "source": source.splitlines(keepends=True),
    }
    if tags := _tags(cell):
        made["metadata"] = {"tags": tags}
    return made | ({"execution_count": None, "outputs": []} if cell["cell_type"] == "code" else {})


def _solves(name: str, title: str) -> bool:
    return name == SOLUTION or (name in ("dropdown", "admonition") and title.lower().startswith("solution"))


def _asks(name: str, title: str) -> bool:
    return name == EXERCISE or (name in ("dropdown", "admonition") and title.lower().startswith("exercise"))


def _plain_exercises(source: str, without_solutions: bool) -> str:
    """Markdown whose exercises and solutions read well where no Sphinx renders them."""
    parts = []
    for name, title, body in _blocks(source):
        if _solves(name, title):
            # Sphinx-exercise's solutions have the exercise's label for a title.
            heading = title if title.lower().startswith("solution") else "Solution"
            parts.append("*Your answer:*\n" if without_solutions else _headed(heading, body))
        elif _asks(name, title):
            heading = title if title.lower().startswith("exercise") else f"Exercise {title}".strip()
            parts.append(_headed(heading, _plain_exercises(body, without_solutions)))
        else:
            parts.append(body)
    return "".join(parts).rstrip("\n")


def _headed(heading: str, body: str) -> str:
    return f"**{heading}{'' if heading.endswith(('.', '?', '!')) else '.'}** {body}\n"


def _blocks(source: str) -> list[tuple[str, str, str]]:
    """Markdown in pieces: (directive, title, body) of each exercise and solution, ("", "", text) of what is between.

    ValueError for one whose fence does not close: what follows could be taken for text.
    """
    pieces: list[tuple[str, str, str]] = []
    between: list[str] = []
    lines = iter(source.splitlines(keepends=True))
    for line in lines:
        opened = _OPENS.match(line)
        if not opened or not (_solves(opened["name"], opened["title"]) or _asks(opened["name"], opened["title"])):
            between.append(line)
            continue
        body: list[str] = []
        for inner in lines:
            if re.fullmatch(rf"{opened['fence'][0]}{{{len(opened['fence'])},}}\s*", inner):
                break
            body.append(inner)
        else:
            raise ValueError(f"{line.strip()!r} is not closed")
        while body and (_OPTION.match(body[0]) or not body[0].strip()):
            body.pop(0)
        pieces += [("", "", "".join(between)), (opened["name"], opened["title"], "".join(body).strip("\n"))]
        between = []
    return [*pieces, ("", "", "".join(between))]
