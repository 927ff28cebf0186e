"""What the extension of Sphinx does to pages; that they then work in a browser is tests/test_browser.py's matter."""

import json
from types import SimpleNamespace

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
