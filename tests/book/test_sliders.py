"""The sliders: their numbers are mialib's, their JSON can be read, and a label's markup shows as text."""

import json
import re
import shutil

import numpy as np
import pytest

from mialib.metrics import auc_interval
from replication.sliders import BARS, slider, slider_data

HOSTILE = "</script><img src=x onerror=alert(1)> \"k\" & 'k' {{ 7 * 7 }}"
LABELS = np.repeat([1, 0], [30, 50])


@pytest.fixture
def scores():
    return np.random.default_rng(0).normal(size=(3, 2, 80)) + LABELS


def json_of(html):
    """The numbers that the page's script reads."""
    [found] = re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)
    return json.loads(found)


def test_every_cell_has_mialibs_auc_and_counts_each_text_once(scores):
    html = slider(LABELS, scores, {"a": [0.1, 1, 10], "k": [20, 40]}, [1, 40], title="T").data
    data = json_of(html)
    assert data == slider_data(LABELS, scores, {"a": [0.1, 1, 10], "k": [20, 40]})
    assert data["values"] == [["0.1", "1", "10"], ["20", "40"]]
    for cell, of_cell in zip(data["cells"], scores.reshape(6, 80), strict=True):
        auc = auc_interval(LABELS, of_cell)
        assert cell["auc"] == str(auc)
        assert cell["ends"] == pytest.approx([auc.estimate, auc.low, auc.high], abs=5e-5)
        edges = np.linspace(of_cell.min(), of_cell.max(), BARS + 1)
        for name, label in (("members", 1), ("non_members", 0)):
            assert cell[name] == np.histogram(of_cell[label == LABELS], edges)[0].tolist()
    assert re.findall(r'value="(\d)"', html) == ["1", "1"], "each slider stands at its start"
    assert html.count("<td>") == 6, "the table that remains without a script"


def test_equal_scores_fall_into_one_bar_and_no_label_becomes_markup(scores):
    [cell] = slider_data(LABELS, np.zeros((1, 80)), {"k": [5]})["cells"]
    assert cell["members"] == [30] + [0] * (BARS - 1) and cell["non_members"][0] == 50
    assert cell["scores"] == ["0", "0"] and cell["ends"][0] == 0.5
    html = slider(LABELS, scores[:, 0], {HOSTILE: [1, 2, 3]}, [1], title=HOSTILE, unit=HOSTILE).data
    assert "<img" not in html and html.count("</script>") == 2 and html.count("{{ 7 * 7 }}") >= 3
    plain = slider(LABELS, scores[:, 0], {"k": [5, 20, 60]}, [18], title="T").data
    assert all(f"<td>{auc_interval(LABELS, values)}</td>" in plain for values in scores[:, 0])
    assert 'value="1"' in plain, "the nearest value to the wanted start"
    assert not re.findall(r"https?:|src=|href=|@import|url\(", plain), "no other host is asked"
    json_of(html)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium on this machine: apt-get install chromium")
def test_a_key_moves_the_slider_and_the_figure_and_without_scripts_there_is_a_table(scores, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    ks = [20, 40]
    html = slider(LABELS, scores[0], {"k": ks}, [20], title="T").data
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{html}")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for script in (False, True):
            page = browser.new_context(java_script_enabled=script).new_page()
            page.goto(f"file://{tmp_path}/page.html")
            assert page.locator("table").is_visible() != script and page.locator("svg").is_visible() == script
        drawn = []
        for k, values in zip(ks, scores[0], strict=True):
            assert page.get_by_label("k", exact=True).get_attribute("aria-valuetext") == str(k)
            assert page.locator(".ms-auc").inner_text() == str(auc_interval(LABELS, values))
            drawn.append(page.locator("svg path").evaluate_all("paths => paths.map(p => p.getAttribute('d'))"))
            page.get_by_label("k", exact=True).press("ArrowRight")
        assert len({path for both in drawn for path in both}) == 4, "both histograms are others"
        browser.close()
