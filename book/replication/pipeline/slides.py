"""Slides in one HTML file: a lesson's, written in `book/lessons.md`, or all figures and equations of executed pages."""

import ast
import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import escape
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from mialib.store import ROOT
from mialib_audit.templates import macros
from replication.pipeline.student import plain

SVG, PNG = "image/svg+xml", "image/png"
LESSONS = ROOT / "book" / "lessons.md"
METHOD = "{method} "  # of a block of code: the page whose functions it names
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKDOWN.use(
    dollarmath_plugin, renderer=lambda tex, how: escape(f"\\[{tex}\\]" if how["display_mode"] else f"\\({tex}\\)")
)


@dataclass(frozen=True)
class Slide:
    """A slide of a lesson, or a figure or an equation of an executed page, and what to say. Its texts are Markdown."""

    page: str  # the page's title, or the slide's
    section: str  # the heading that it stands under, "" for the page's own
    notes: str  # the paragraph before it
    body: str = ""  # HTML, of a lesson's slide alone
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
                found.append(Slide(headings[0], "".join(headings[1:][-1:]), notes, "", "", *of))
                notes = ""
    return found


def lesson(number: int, pages: Path) -> tuple[str, list[Slide]]:
    """A lesson's title, and its slides with what they show of the executed `pages`; ValueError for no such lesson.

    A slide without a text is the one of the same title in an earlier lesson.
    """
    lessons = re.findall(r"^# Lesson (\d+): (.*)\n((?:(?!# ).*\n)*)", LESSONS.read_text(encoding="utf-8"), re.M)
    titles = {int(n): title for n, title, _ in lessons}
    if number not in titles:
        raise ValueError(f"there is no lesson {number}; there are: {', '.join(map(str, titles))}")
    texts, shown = dict[str, str](), list[Slide]()
    for n, _, deck in lessons[: list(titles).index(number) + 1]:
        start = 0
        for title, minutes, text in re.findall(r"^## (.*) \((\d+) min\)\n((?:(?!## ).*\n)*)", deck, re.M):
            texts[title] = text.strip() or texts[title]
            end, lines = start + int(minutes), texts[title].splitlines()
            notes = " ".join(line.strip("> ") for line in lines if line.startswith(">"))
            if int(n) == number:
                body = MARKDOWN.render("\n".join(line for line in lines if line[:1] != ">"), {"pages": pages})
                shown.append(Slide(title, "", f"**{start}–{end} min.** {notes}", body))
            start = end
    return f"Lesson {number}: {titles[number]}", shown


def _ran(pages: Path, page: str) -> Path:
    path = pages / f"{page}.ipynb"
    if not path.is_file():
        raise ValueError(f"the page {page} has not run: run `mialib build` first")
    return path


def _figure(_renderer: Any, tokens: Sequence[Token], at: int, _options: Any, env: Any) -> str:
    """`![](page#name)`: a page's figure with its caption."""
    page, _, name = str(tokens[at].attrs["src"]).partition("#")
    [figure] = [one for one in slides_of(_ran(env["pages"], page)) if one.name == name]
    caption = MARKDOWN.renderInline(figure.caption)
    return f'<img src="{figure.source}" alt="{escape(figure.alt)}"><small>{caption}</small>'


def _code(_renderer: Any, tokens: Sequence[Token], at: int, _options: Any, env: Any) -> str:
    """A block of code; of `METHOD` the functions that it names, as the page has them, without docstrings."""
    code, page = tokens[at].content, tokens[at].info.removeprefix(METHOD)
    if page != tokens[at].info:
        cells = json.loads(_ran(env["pages"], page).read_text(encoding="utf-8"))["cells"]
        methods = ["".join(cell["source"]) for cell in cells if "method" in cell["metadata"].get("tags", ())]
        code = "\n".join(function_in("\n".join(methods), name) for name in code.split())
    return str(highlight(code, PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True)))


def function_in(code: str, name: str) -> str:
    """A function's lines of a page's code, without its docstring."""
    [function] = [one for one in ast.parse(code).body if isinstance(one, ast.FunctionDef) and one.name == name]
    first = function.body[ast.get_docstring(function) is not None].lineno
    lines = code.splitlines()
    return "\n".join(
        [*lines[function.lineno - 1 : function.body[0].lineno - 1], *lines[first - 1 : function.end_lineno]]
    )


MARKDOWN.add_render_rule("image", _figure)
MARKDOWN.add_render_rule("fence", _code)


def slides(shown: Sequence[Slide], title: str, on_paper: bool = False) -> str:
    """One HTML file without others: arrow keys go from slide to slide, or notes are beside slides, on paper."""
    package = Path(str(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline")))
    mathjax = (package / "static" / "mathjax" / "tex-svg.js").read_text(encoding="utf-8")
    show = macros(Path(__file__).with_suffix(".html"), as_html=MARKDOWN.renderInline)
    return str(show.slides(title, shown, mathjax, on_paper))
