"""What a build found, as lists: from results, notebooks' metadata and the profile."""

import re

import pytest
from test_slides import drawn, markdown

from mialib.metrics import Interval
from mialib.store import ROOT, write_json
from replication.claims.spec import load_claims
from replication.claims.tables import VERDICT
from replication.pipeline import report
from replication.profile import load_profile
from replication.results import Result

LAB = load_profile(ROOT / "data" / "profiles" / "lab.yml")
PAPER = load_profile(ROOT / "data" / "profiles" / "paper.yml")


def saved(path, *results):
    rows = [vars(result) for result in results]
    write_json(path, {"results": rows, "versions": {"mialib": "0.1.0", "numpy": "2.4"}})


@pytest.fixture
def build(tmp_path):
    """A build in which two pages ran: the claims', with one verdict, and a table with one published number."""
    claim = next(c for c in load_claims().claims if c.id == "dc-pdd-beats-min-k")
    found = Interval(-0.02, -0.03, -0.01)
    saved(
        tmp_path / "results" / "claims.json",
        Result.of(row=claim.id, column="English, comparison 0", metric="auc_difference", interval=found),
        Result.of(row=f"{claim.id} until 2026-01-01", column="English", metric=VERDICT, interval=None, why="supported"),
        Result.of(row=claim.id, column="English", metric=VERDICT, interval=None, why="not supported"),
    )
    measured = Result.of(row="PPL", column="a|b", metric="auc", interval=Interval(0.6, 0.5, 0.7), published=0.65)
    saved(tmp_path / "results" / "dc_pdd_tables_2_3.json", measured)
    write_json(
        tmp_path / "pages" / "claims.ipynb",
        {
            "cells": [markdown("# Claims"), drawn("fig-claims", "One | two. And more.")],
            "metadata": {
                "papermill": {"duration": 90.0, "end_time": "2026-11-23T13:11:30.5+00:00"},
                "language_info": {"version": "3.11.7"},
            },
        },
    )
    return tmp_path


def test_every_printed_table_and_figure_is_listed_once_with_its_pages():
    items = report.printed_items(LAB)
    by_key = {(one.paper, one.item): one.pages for one in items}
    assert len(by_key) == len(items)
    assert by_key["dc-pdd", "Table 2"] == by_key["dc-pdd", "Table 3"] == ("dc_pdd_tables_2_3",)
    assert by_key["dc-pdd", "Figure 3a"] == ("dc_pdd_figure_3a",) and ("dc-pdd", "Figure 3") not in by_key
    titles = [one.item for one in items if one.paper == "surp"]
    assert titles == ["Table 1", "Table 2", "Table 3", "Figure 1", "Figure 2", "Figure 3", "Figure 4"]
    assert {key for key, of in by_key.items() if not of} == report.NO_NUMBERS.keys(), "the others have a page"
    by_key = {(one.paper, one.item): one.pages for one in report.printed_items(PAPER)}
    [page] = by_key["probe", "Table 2"]
    assert PAPER.notebooks[page].parameters["paper"] == "probe"
    assert not all(by_key.values()), "what that profile does not replicate keeps its row"


def test_the_list_says_page_status_verdicts_and_command(build):
    text = report.papers_tables(LAB, build)
    [row] = [line for line in text.splitlines() if line.startswith("| [Table 2](pages/dc_pdd_tables_2_3)")]
    assert "1 not supported" in row and "| the lab's models and a real model |" in row
    assert text.count("1 not supported") == 1, "the claim is of Table 2 alone, though the page of Table 3 tests it too"
    [row] = [line for line in text.splitlines() if line.startswith("| [Figure 4](pages/surp_figure_4)")]
    assert report.NOT_RUN in row
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {p}" for p in report.PAPERS.values()]
    assert "notebooks/dc_pdd_tables_2_3.ipynb out.ipynb -p models" in text
    assert "-p published 'WikiMIA / Pythia-6.9B,PatentMIA / Qwen1.5-14B'" in text
    assert not re.search(r"\| (?:\d+ )?supported", text), "a former test's verdict does not count"
