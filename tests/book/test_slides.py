"""A lesson's slides hold what the pages show and what is said."""

import json
import re

import pytest

from mialib.store import ROOT, write_json
from replication.pipeline import slides

TEACHING = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
LESSONS = {int(n): title for n, title in re.findall(r"^## (?=Lesson (\d+))(.*)", TEACHING, re.M)}
SVG = '<svg viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg"></svg>'


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
