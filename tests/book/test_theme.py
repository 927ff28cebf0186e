"""What the extension of Sphinx does to pages; that they then work in a browser is tests/test_browser.py's matter."""

import json
import re
from types import SimpleNamespace

from docutils import nodes
from docutils.utils import new_document

from replication.pipeline import theme


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


def test_tables_are_numbered_in_the_books_order_and_listed():
    def page(*parts):
        document = new_document("page")
        document += [nodes.raw("", part, format="html") if isinstance(part, str) else part for part in parts]
        return document

    by_hand = nodes.table("", nodes.title(text="by hand"), ids=["id1"])
    pages = {"index": page("<table><caption>a &amp; b</caption></table>", by_hand)}
    pages["list"] = page(f"{theme.TABLES}</ol>")
    pages["pages/b"] = page("<table><caption><b>c</b></caption></table><table><caption>What this page ran</caption>")
    env = SimpleNamespace(
        toctree_includes={"index": ["pages/b", "list"]},
        toc_fignumbers={},
        get_doctree=pages.get,
        titles={name: nodes.title(text=f"Title of {name}") for name in pages},
    )
    builder = SimpleNamespace(get_relative_uri=lambda page, at: f"{at}.html")
    app, tables = SimpleNamespace(env=env, config=SimpleNamespace(root_doc="index"), builder=builder), []
    assert list(theme.in_reading_order(env.toctree_includes, "index")) == ["index", "pages/b", "list"]
    assert theme.count_tables(tables, app, env) == ["index", "pages/b"]
    assert env.toc_fignumbers == {"index": {"table": {"id1": (2,)}}}
    for name, doctree in pages.items():
        theme.number_tables(tables, app, doctree, name)
    html = {name: "".join(node.astext() for node in doctree.findall(nodes.raw)) for name, doctree in pages.items()}
    assert re.search(r'<caption id="table-1">.* 1\. </span>a &amp; b</caption>', html["index"])
    assert re.search(r'<caption id="table-3">.* 3\. </span><b>c</b></caption>', html["pages/b"])
    assert re.findall(r'<li value="(\d)"><a href="([^"]*)">([^<]*)</a>, ([^<]*)<', html["list"]) == [
        ("1", "index.html#table-1", "a &amp; b", "Title of index"),
        ("2", "index.html#id1", "by hand", "Title of index"),
        ("3", "pages/b.html#table-3", "c", "Title of pages/b"),
    ]
