"""Slides and the list of figures hold what the executed pages show, in the book's order."""

import re
import shutil
from base64 import b64decode

import pytest
from test_browser import FLAGS
from typer.testing import CliRunner

from mialib.store import ROOT, write_json
from replication.commands import app
from replication.pipeline import slides

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


def test_the_command_shows_pages_in_the_order_given_and_says_which_have_not_run(page, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MIALIB_PROFILE", str(ROOT / "data" / "profiles" / "lab.yml"))
    monkeypatch.setattr("replication.pipeline.notebooks.clone", lambda: tmp_path)
    for name, title in (("claims", "Claims"), ("index", "Start")):
        write_json(
            tmp_path / "book" / "pages" / f"{name}.ipynb",
            {"cells": [markdown(f"# {title}"), drawn(f"fig-{name}", "One.")]},
        )
    caplog.set_level("INFO")
    run = CliRunner().invoke(app, ["slides", "index", "lab", "claims", "--output", str(tmp_path / "s.html")])
    assert "2 figures and 0 equations" in run.stdout and "lab: left out" in caplog.text
    assert re.findall(r"<h1>(\w+)</h1>", (tmp_path / "s.html").read_text(encoding="utf-8")) == ["Start", "Claims"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium on this machine")
def test_arrow_keys_go_from_slide_to_slide(page, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    (tmp_path / "s.html").write_text(slides.slides(slides.slides_of(page) * 3, "All"), encoding="utf-8")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        tab = browser.new_page()
        tab.goto((tmp_path / "s.html").as_uri())
        assert tab.locator("mjx-container").count() == 12 and not tab.locator("mjx-merror, aside:visible").count()
        assert tab.locator("section.upright").count() == 3
        tab.keyboard.press("n")
        assert tab.locator("aside:visible").count() == 3
        for key, place in (("ArrowRight", 1), (" ", 2), ("ArrowLeft", 1), ("End", 9), ("ArrowDown", 9), ("Home", 0)):
            tab.keyboard.press(key)
            tab.wait_for_function(f"Math.round(scrollY / innerHeight) == {place}", timeout=5000)
        browser.close()
