"""The book as one PDF: each place has a name of its own, and links lead there."""

import re

import pytest

from replication.pipeline import pdf

HEAD = '<html><head><link rel="stylesheet" href="../_static/book.css"></head><body>'


@pytest.fixture
def book(tmp_path):
    (tmp_path / "pages").mkdir()
    for name, text in {
        "pages/lab": '<a href="#id1">here</a> <a href="../trust.html#id1">there</a> <a href="../genindex.html">none</a>'
        '<img src="../_images/a.svg"><details><summary>More</summary>folded</details><script>alert("x")</script>',
        "trust": '<a href="pages/lab.html">the lab</a> <a href="https://example.org/#id1">away</a>',
    }.items():
        article = f'<article class="bd-article"><h1>{name}<a class="headerlink" href="#x">#</a></h1><p id="id1">{text}'
        (tmp_path / f"{name}.html").write_text(f"{HEAD}{article}</article></body></html>")
    return tmp_path


def test_links_lead_to_the_same_places_in_one_page(book):
    html = pdf.one_page(book, ["pages/lab", "trust"])
    ids = re.findall(r' id="([^"]*)"', html)
    assert sorted(ids) == ["pages/lab.", "pages/lab.id1", "trust.", "trust.id1"]
    links = re.findall(r'<a href="([^"]*)">(here|there|the lab|away)<', html)
    of_book = ("#pages/lab.id1", "here"), ("#trust.id1", "there"), ("#pages/lab.", "the lab")
    assert links == [*of_book, ("https://example.org/#id1", "away")]
    assert "<a >none</a>" in html and "<details open>" in html and "<script" not in html
    assert 'src="_images/a.svg"' in html and 'href="_static/book.css"' in html
