"""The figures of executed pages in the book's order: as slides in one HTML file, and as the list in the book."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from mialib.shared.templates import macros
from mialib.store import ROOT

SVG, PNG = "image/svg+xml", "image/png"
TEACHING = ROOT / "book" / "teaching.md"


@dataclass(frozen=True)
class Figure:
    """A figure of an executed page. Its texts are Markdown."""

    page: str  # the page's title
    section: str  # the heading that it stands under, "" for the page's own
    name: str  # its label in the book
    caption: str
    alt: str
    media_type: str
    image: bytes

    @property
    def source(self) -> str:
        """The image as a data URI."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.image).decode()}"

    @property
    def is_upright(self) -> bool:
        """Whether it is an SVG that is higher than wide: its caption then stands beside it."""
        found = re.search(rb'viewBox="\S+ \S+ (\S+) (\S+)"', self.image[:2000])
        return bool(found) and float(found[2]) > float(found[1])


def figures_of(notebook: Path) -> list[Figure]:
    """The figures of a page, from top to bottom; none of a page that has not run."""
    found, headings = [], []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            tokens = MarkdownIt().parse("".join(cell["source"]))  # without headings in code and in boxes
            headings += [text.content for opened, text in pairwise(tokens) if opened.type == "heading_open"]
            continue
        shown = cell["metadata"].get("mystnb", {})
        for output in cell["outputs"] if "figure" in shown else ():
            media_type = next((one for one in (SVG, PNG) if one in output.get("data", {})), None)
            if media_type:
                data = "".join(output["data"][media_type])
                image = data.encode() if media_type == SVG else base64.b64decode(data)
                title, *sections = headings or [notebook.stem]
                section, alt = sections[-1] if sections else "", shown.get("image", {}).get("alt", "")
                name, caption = (shown["figure"][key] for key in ("name", "caption"))
                found.append(Figure(title, section, name, caption, alt, media_type, image))
    return found


def lesson_pages(number: int, plan: Path = TEACHING) -> list[str]:
    """The notebooks' pages that the table of a lesson plan links to, in its order; ValueError for no such lesson."""
    plans = re.findall(r"^## Lesson (\d+).*?\n(.*?)(?=^## |\Z)", plan.read_text(encoding="utf-8"), re.M | re.S)
    of = {int(n): "\n".join(line for line in text.splitlines() if line.startswith("|")) for n, text in plans}
    if number not in of:
        raise ValueError(f"there is no lesson {number}; there are: {', '.join(map(str, of))}")
    return list(dict.fromkeys(re.findall(r"\]\(pages/(\w+)\)", of[number])))


def slides(figures: Sequence[Figure], title: str) -> str:
    """One HTML file that needs no other: a figure a slide, and the arrow keys go from one to the next."""
    return str(macros(Path(__file__).with_suffix(".html"), with_math=with_math).slides(title, figures))


def with_math(text: str) -> Markup:
    """A caption or heading as HTML: its symbols in italics, all else as it is."""
    parts = text.split("$")  # every second one is a symbol
    return Markup("").join(
        Markup("<i>{}</i>").format(part.lstrip("\\")) if i % 2 else escape(part) for i, part in enumerate(parts)
    )
