"""Slides hold what the executed pages show, a lesson's also what is said; the list of figures has the book's order."""

import json
import re
from base64 import b64decode

import pytest

from mialib.store import ROOT, write_json
from replication.pipeline import slides

BUILT = ROOT / "book" / "pages"
TEACHING = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
LESSONS = {int(n): title for n, title in re.findall(r"^## (?=Lesson (\d+))(.*)", TEACHING, re.M)}
SVG = '<svg viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg"></svg>'


def markdown(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def drawn(name, caption, width=400, height=300):
    outputs = [
        {"output_type": "stream", "text": "not a figure"},
        {"output_type": "display_data", "data": {"image/svg+xml": [SVG.format(width, height)]}},
    ]
    shown = {"figure": {"name": name, "caption": caption}, "image": {"alt": 'dots, "framed"'}}
    return {"cell_type": "code", "metadata": {"mystnb": shown}, "source": "", "outputs": outputs}


@pytest.fixture
def page(tmp_path):
    cells = [
        markdown("# A page <b>"),
        drawn("fig-first", "AUC against $k$. Dotted: chance."),
        markdown(
            "## One\nText of {cite:t}`zhang2024surp`, <b>with</b> $a < b$:\n\n$$\nx < y_1\n$$\n\n"
            "```python\n# a comment\n```\n### The second of $\\alpha$"
        ),
        {"cell_type": "code", "metadata": {}, "source": "1", "outputs": [{"data": {"image/svg+xml": "no caption"}}]},
        drawn("fig-second", "A <script> & more.", 300, 400),
    ]
    write_json(tmp_path / "made.ipynb", {"cells": cells})
    return tmp_path / "made.ipynb"


def test_a_pages_figures_become_slides_in_which_foreign_text_is_text(page):
    first, second = (one for one in slides.slides_of(page) if one.name)
    assert (first.page, first.section, first.name) == ("A page <b>", "", "fig-first")
    assert (second.section, second.caption) == ("The second of $\\alpha$", "A <script> & more.")
    assert b64decode(first.source.removeprefix("data:image/svg+xml;base64,")) == SVG.format(400, 300).encode()
    _, equation, _ = slides.slides_of(page)
    assert (equation.section, equation.equation.strip(), equation.source) == ("One", "x < y_1", "")
    html = re.sub("<script>.*?</script>", "", slides.slides(slides.slides_of(page), "All"), flags=re.S)
    assert html.count("<section") == 4 and "<script" not in html
    assert re.findall(r"<h1>(.*?)</h1>", html) == ["All", *["A page &lt;b&gt;"] * 3]
    assert re.search(r"AUC against <\w[^>]*>\\\(k\\\)</\w+>\. Dotted", html) and "A &lt;script&gt; &amp; more." in html
    assert r"\[x &lt; y_1" in html and r"\(a &lt; b\)" in html and "Zhang and Wu (2024)</a>, &lt;b&gt;with" in html
    assert 'alt="dots, &#34;framed&#34;"' in html
    assert not re.search(r"src=.(?!data:)|<link", html), "nothing comes from elsewhere"


@pytest.fixture(scope="module")
def drawn_pages(tmp_path_factory):
    """The pages as they are before a build, but each figure is drawn."""
    folder = tmp_path_factory.mktemp("pages")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if "figure" in cell["metadata"].get("mystnb", {}):
                cell["outputs"] = [{"data": {"image/svg+xml": SVG.format(4, 3)}}]
        write_json(folder / path.name, notebook)
    return folder


@pytest.mark.parametrize("number", LESSONS)
def test_a_lessons_slides_say_one_thing_each_and_last_as_long_as_its_plan(number, drawn_pages):
    title, deck = slides.lesson(number, drawn_pages)
    plan = TEACHING.split(f"## {title}\n")[1].split("\n## ")[0]
    minutes = [list(map(int, re.match(r"\*\*(\d+)–(\d+) min\.\*\* .", slide.notes).groups())) for slide in deck]
    starts = {start for start, _ in minutes}
    assert {int(start) for start in re.findall(r"^\| (\d+)–", plan, re.M)} <= starts
    assert str(minutes[-1][1]) == re.findall(r"^\| \d+–(\d+)", plan, re.M)[-1]
    for slide in deck:
        said = re.sub(r"<(table|small|pre)\b.*?</\1>|\\\[.*?\\\]|<[^>]*>", " ", slide.body, flags=re.S)
        assert 0 < len(said.split()) <= 60 or "<img" in slide.body, slide.page
    assert any("probability that a random member scores above a random non-member" in slide.body for slide in deck)
    assert "?" in deck[0].page and "remember" in deck[-1].page
    html = slides.slides(deck, title)
    assert html.count("<section") == len(deck) + 1 and html.count("<aside") == len(deck)
