"""What a build found, as lists: from results, notebooks' metadata and the profile."""

import re

from mialib.metrics import Interval
from mialib.store import ROOT, write_json
from replication.claims.tables import VERDICT
from replication.pipeline import report
from replication.profile import load_profile
from replication.results import Result

LAB = load_profile(ROOT / "data" / "profiles" / "lab.yml")
PAPER = load_profile(ROOT / "data" / "profiles" / "paper.yml")


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


def test_the_list_counts_a_claims_last_verdict_and_says_what_did_not_run(tmp_path):
    claim, of = "dc-pdd-beats-min-k", {"column": "English", "metric": VERDICT, "interval": None}
    former = Result.of(row=f"{claim} until 2026-01-01", why="supported", **of)
    verdicts = [vars(one) for one in (former, Result.of(row=claim, why="not supported", **of))]
    measured = Result.of(row="PPL", column="a|b", metric="auc", interval=Interval(0.6, 0.5, 0.7), published=0.65)
    for page, results in (("claims", verdicts), ("dc_pdd_tables_2_3", [vars(measured)])):
        write_json(tmp_path / "results" / f"{page}.json", {"results": results, "versions": {}})
    text = report.papers_tables(LAB, tmp_path)
    [row] = [line for line in text.splitlines() if line.startswith("| [Table 2](pages/dc_pdd_tables_2_3)")]
    assert "1 not supported" in row and text.count("1 not supported") == 1, "the claim is of Table 2 alone"
    assert not re.search(r"\| (?:\d+ )?supported", text), "a former test's verdict does not count"
    assert report.NOT_RUN in next(line for line in text.splitlines() if "(pages/surp_figure_4)" in line)
