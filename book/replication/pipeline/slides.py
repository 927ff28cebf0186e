"""Executed pages' figures and equations: as slides in one HTML file, and the list of figures in the book."""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import escape
from mdit_py_plugins.dollarmath import dollarmath_plugin

from mialib.store import ROOT
from mialib_audit.templates import macros
from replication.pipeline.student import plain

SVG, PNG = "image/svg+xml", "image/png"
TEACHING = ROOT / "book" / "teaching.md"
MARKDOWN = MarkdownIt("commonmark", {"html": False}).use(
    dollarmath_plugin, renderer=lambda tex, how: escape(f"\\[{tex}\\]" if how["display_mode"] else f"\\({tex}\\)")
)


@dataclass(frozen=True)
class Slide:
    """A figure or an equation of an executed page, and what to say. Its texts are Markdown."""

    page: str  # the page's title
    section: str  # the heading that it stands under, "" for the page's own
    notes: str  # the paragraph before it
    equation: str = ""  # TeX; "" of a figure, which has the following instead
    name: str = ""  # its label in the book
    caption: str = ""
    alt: str = ""
    source: str = ""  # the image as a data URI


def slides_of(notebook: Path) -> list[Slide]:
    """The figures and equations of a page, from top to bottom; no figure of a page that has not run."""
    found, headings, notes = [], [notebook.stem], ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            tokens = MARKDOWN.parse("".join(cell["source"]))  # what is in code and in boxes is one token
            for token, text in pairwise([*tokens, *tokens[-1:]]):
                if token.type == "heading_open":
                    headings, notes = [*headings[token.tag == "h1" :], text.content], ""
                elif token.type == "paragraph_open" and not token.level:
                    notes = plain(text.content)
                elif token.type == "math_block":
                    found.append(Slide(headings[0], "".join(headings[1:][-1:]), notes, equation=token.content.strip()))
                    notes = ""
            continue
        shown = cell["metadata"].get("mystnb", {})
        for output in cell["outputs"] if "figure" in shown else ():
            media_type = next((one for one in (SVG, PNG) if one in output.get("data", {})), None)
            if media_type:
                data = "".join(output["data"][media_type])
                data = base64.b64encode(data.encode()).decode() if media_type == SVG else data
                name, caption = (shown["figure"][key] for key in ("name", "caption"))
                of = name, caption, shown.get("image", {}).get("alt", ""), f"data:{media_type};base64,{data}"
                found.append(Slide(headings[0], "".join(headings[1:][-1:]), notes, "", *of))
                notes = ""
    return found


def lesson_pages(number: int, plan: Path = TEACHING) -> list[str]:
    """The notebooks' pages that the table of a lesson plan links to, in its order; ValueError for no such lesson."""
    plans = re.findall(r"^## Lesson (\d+).*?\n(.*?)(?=^## |\Z)", plan.read_text(encoding="utf-8"), re.M | re.S)
    of = {int(n): "\n".join(line for line in text.splitlines() if line.startswith("|")) for n, text in plans}
    if number not in of:
        raise ValueError(f"there is no lesson {number}; there are: {', '.join(map(str, of))}")
    return list(dict.fromkeys(re.findall(r"\]\(pages/(\w+)\)", of[number])))


def slides(shown: Sequence[Slide], title: str) -> str:
    """One HTML file that needs no other: a figure or an equation a slide; arrow keys go from one to the next."""
    package = Path(str(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline")))
    mathjax = (package / "static" / "mathjax" / "tex-svg.js").read_text(encoding="utf-8")
    return str(macros(Path(__file__).with_suffix(".html"), as_html=MARKDOWN.renderInline).slides(title, shown, mathjax))
