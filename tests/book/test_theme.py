"""What is mended in the finished pages; that they then work in a browser is tests/test_browser.py's matter."""

import json
import re
from types import SimpleNamespace

import pytest
from docutils import nodes
from docutils.utils import new_document
from pybtex.database import parse_string
from sphinx.addnodes import pending_xref

from replication.pipeline import theme

PAGE = """<html lang="en" data-content_root="./" data-theme="auto">
<head><script>document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";</script>
<link rel="stylesheet" type="text/css" href="../_static/sphinx-thebe.css?v=4f" />
<script defer src="../_static/scripts/fontawesome.js?digest=55"></script>
<script>const THEBE_JS_URL = "https://unpkg.com/thebe"; const thebe_selector = ".cell"</script>
<script async="async" src="../_static/sphinx-thebe.js?v=c1"></script>
<script src="../_static/doctools.js"></script></head>
<body><script type="text/x-thebe-config">
  { requestKernel: true }
</script><script>kernelName = 'python3'</script><p>Text</p></body></html>"""


def test_a_page_keeps_what_it_uses_and_is_mended_once():
    edited = theme.edited(PAGE)
    assert not re.search("thebe|fontawesome|kernelName|auto", edited, re.I)
    assert "doctools.js" in edited and "<p>Text</p>" in edited and '<html lang="en" data-content_root="./">' in edited
    assert theme.edited(edited) == edited
    edited = theme.edited(TABLE)
    assert re.findall(r'<th scope="(\w+)"', edited) == ["colgroup", "col", "rowgroup", "row"]
    assert re.sub(' scope="\\w+"', "", edited) == TABLE.replace(' scope="row"', "")
    assert theme.edited(edited) == edited
    fold = '<summary aria-label="Toggle hidden content"><p class="collapsed">Code: the table</p></summary>'
    assert theme.edited(fold) == '<summary><p class="collapsed">Code: the table</p></summary>'
    number = '<span class="caption-number">This book\'s figure 2 </span>'
    assert theme.edited(theme.edited(number)) == '<span class="caption-number">This book\'s figure 2. </span>'


TABLE = """<table><thead><tr><th class="a" colspan="2">A</th><th>B</th></tr></thead>
<tbody><tr><th rowspan="2">x</th><th scope="row">y</th><td>1</td></tr></tbody></table>"""


def test_a_downloaded_notebook_has_its_code_and_no_outputs():
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["中文"]},
        {"cell_type": "code", "metadata": {}, "source": ["1 + 1"], "outputs": [{"data": "2"}], "execution_count": 3},
    ]
    emptied = json.loads(theme.downloaded(json.dumps({"cells": cells, "nbformat": 4})))
    assert emptied["cells"][0] == cells[0]
    assert emptied["cells"][1] == cells[1] | {"outputs": [], "execution_count": None}


def test_where_the_repository_is_known_a_notebook_installs_mialib_and_pages_have_buttons(monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    config = SimpleNamespace(html_theme_options={}, html_context={})
    theme.configure(None, config)
    assert "launch_buttons" not in config.html_theme_options, "an address that is not known is not made up"
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/mialib")
    monkeypatch.setenv("GITHUB_SHA", "1234abc")
    theme.configure(None, config)
    options = config.html_theme_options
    assert options["repository_url"] == "https://github.com/somebody/mialib"
    assert {"binderhub_url", "colab_url"} <= set(options["launch_buttons"])
    once = theme.downloaded(json.dumps({"cells": [], "nbformat": 4}), theme.repository())
    [cell] = json.loads(once)["cells"]
    clone = "git+https://github.com/somebody/mialib@1234abc"
    assert cell["source"].endswith(f"%pip install --quiet {clone} {clone}#subdirectory=audit {clone}#subdirectory=book")
    assert json.loads(theme.downloaded(once, theme.repository())) == json.loads(once), "one cell, not two"


LONG = "word " * 60


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        (["Short.", "A text & its model: forty characters long"], "A text &amp; its model: forty characters long"),
        ([f"One sentence of some length stands here. {LONG}"], "One sentence of some length stands here."),
        ([LONG], LONG[: theme.DESCRIPTION_LENGTH].rstrip() + " …"),
        ([], ""),
    ],
)
def test_a_description_is_the_first_paragraph_as_far_as_whole_sentences_fit(paragraphs, expected):
    document = new_document("page")
    document += [nodes.paragraph(text, text) for text in paragraphs]
    assert theme.description(document) == expected


def test_a_page_is_cited_as_bibtex_with_an_address_where_one_is_known():
    entry = theme.citation("pages/sweep", "Min-K% Prob & more", "https://example.org/sweep.html")
    [(key, parsed)] = parse_string(entry, "bibtex").entries.items()
    assert key == "mialib-sweep" and parsed.fields["title"] == r"{Min-K\% Prob \& more}"
    assert parsed.persons["author"] and "version" in parsed.fields["howpublished"]
    assert parsed.fields["url"].startswith("https") and "url" not in theme.citation("trust", "What it proves", "")


def test_tables_are_numbered_in_the_books_order_and_listed(tmp_path):
    def page(title, *captions):
        tables = "".join(f"<table><caption>{caption}</caption></table>" for caption in captions)
        return f'<h1>{title}<a class="headerlink" href="#x">#</a></h1>{tables}'

    first, second, listing = tmp_path / "index.html", tmp_path / "pages" / "b.html", tmp_path / "pages" / "list.html"
    by_hand = '<span class="caption-text">c of <em>it</em></span><a class="headerlink" href="#id1" title="Link">#</a>'
    pages = {second: page("The <em>second</em>", by_hand), first: page("The first", "a", "b")}
    pages[listing] = f"{theme.TABLES}</ol>"
    order = list(theme.in_reading_order({"index": ["pages/b", "pages/list"]}, "index"))
    assert order == ["index", "pages/b", "pages/list"]
    for _ in range(2):  # a page that was numbered before is numbered anew
        theme.number_tables(pages, [tmp_path / f"{name}.html" for name in order])
        assert re.search(f'id="table-3">.* 3\\. .*{re.escape(by_hand)}</caption>', pages[second])
        assert pages[listing].count("<li ") == 3
        assert '<li value="2"><a href="../index.html#table-2">b</a>, The first</li>' in pages[listing]
        assert '<li value="3"><a href="b.html#table-3">c of it</a>, The second</li></ol>' in pages[listing]


def test_what_an_answers_cell_prints_comes_below_the_question_and_its_code_stays():
    def cell(code, output, *classes):
        parts = [nodes.container("", nodes.paragraph(text=code), classes=["cell_input"])]
        parts += [nodes.container("", nodes.paragraph(text=output), classes=["cell_output"])] * bool(output)
        return nodes.container("", *parts, classes=["cell", *classes])

    page = new_document("page")
    later = nodes.section("", nodes.title(text="Later"), cell("c", "answer", "tag_answer"), cell("d", "other"))
    words, what_runs = nodes.paragraph(text="Words"), nodes.paragraph(text="What runs here. A model.")
    page += nodes.section("", nodes.title(text="Question"), words, cell("p", ""), later)
    with_what_runs = page.deepcopy()
    with_what_runs[0].insert(2, what_runs)
    theme.show_answers_first(None, with_what_runs)
    assert with_what_runs.astext().split()[:4] == ["Question", "Words", "answer", "What"]
    theme.show_answers_first(None, page)
    assert page.astext().split() == ["Question", "Words", "answer", "p", "Later", "c", "d", "other"]
    page[0].insert(1, nodes.enumerated_list("", nodes.list_item("", nodes.paragraph(text="finding"))))
    page[0] += cell("e", "picture", "tag_answer")
    theme.show_answers_first(None, page)
    assert page.astext().split()[:3] == ["Question", "picture", "finding"]
    theme.show_answers_first(None, new_document("page without a section"))


def test_of_a_link_to_a_page_that_the_book_leaves_out_its_words_stay(tmp_path):
    (tmp_path / "trust.md").write_text("# What it proves\n")
    links = {"surp_table_1": "", "../trust": "", "token_view": "the *view*", "claims": "kept", "nowhere": "kept too"}
    document = new_document("page")
    for target, words in links.items():
        document += pending_xref("", nodes.inline(text=words), reftarget=target)
    app = SimpleNamespace(srcdir=tmp_path, env=SimpleNamespace(found_docs={"pages/claims"}))
    theme.unlink_pages_left_out(app, document)
    assert [node.astext() for node in document] == ["SURP, Table 1", "What it proves", "the *view*", "kept", "kept too"]
    assert len(list(document.findall(pending_xref))) == 2
