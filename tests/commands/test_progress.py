"""`mialib build`: the plan before, the line of progress, where the time went."""

import json
import logging
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mialib.book import build as planning
from mialib.book.profile import load_profile
from mialib.commands import build
from mialib.store import ROOT

LAB = load_profile(ROOT / "data" / "profiles" / "lab.yml")
PAGES = ["registry", "two_sources"]
OUTPUTS = [planning.page_file(name) for name in PAGES] + [planning.book_index("lab")]


@pytest.fixture
def progress(tmp_path, monkeypatch, capsys):
    """Progress of two pages and a book, with a clock to set, and what it has shown so far."""
    monkeypatch.setattr(planning, "TYPICAL", tmp_path / "typical.json")
    monkeypatch.setattr(planning, "durations_file", lambda profile: tmp_path / f"{profile}.json")
    (tmp_path / "typical.json").write_text(
        json.dumps({"notebook registry": 100, "notebook two_sources": 300, "book": 20})
    )
    clock = {"now": 0.0}
    monkeypatch.setattr(build.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(build.jobs, "start_early", lambda: None)
    outputs = []
    made = build.Progress(LAB, outputs, n_cores=2)
    made.clock, made.shown, made.folder = clock, lambda: capsys.readouterr().err, tmp_path
    outputs += [*OUTPUTS, "build/lab/results/registry.json"]
    yield made
    made.ended.set()


def say(progress, event, at=0.0, level=logging.INFO, **fields):
    progress.clock["now"] = at
    progress.emit(logging.makeLogRecord({"event": event, "levelno": level, "msg": "", **fields}))


def start(progress, number, at=0.0):
    say(progress, "job_info", at, jobid=number, output=[OUTPUTS[number]])


def test_the_plan_comes_first_and_counts_each_job_once(progress):
    say(progress, "run_info")
    assert progress.shown() == "3 jobs, about 5 minutes on 2 cores\n"
    say(progress, "run_info")
    assert progress.shown() == ""


def test_what_is_left_counts_what_runs_and_how_fast_the_build_has_been(progress):
    say(progress, "run_info")
    start(progress, 0), start(progress, 1)
    assert progress.line() == "0 of 3 jobs, about 5 minutes left: notebook registry, notebook two_sources"
    progress.clock["now"] = 60
    assert progress.seconds_left() == 300 - 60 + 20
    say(progress, "job_finished", at=200, job_id=0)  # it was to take 100 seconds, so others may take longer too
    pace = (200 + build.AS_EXPECTED_SECONDS) / (100 + build.AS_EXPECTED_SECONDS)
    assert progress.seconds_left() == pace * 300 - 200 + pace * 20
    assert progress.line().startswith("1 of 3 jobs, about 5 minutes left: notebook two_sources")
    progress.clock["now"] = 2000
    assert progress.seconds_left() == pace * 300 / 10 + pace * 20, "a late job does not end at any moment"


def test_a_job_that_found_its_work_done_says_nothing_of_the_pace(progress):
    say(progress, "run_info")
    start(progress, 0)
    say(progress, "job_finished", at=1, job_id=0)
    assert progress.seconds_left() == 300 + 20


def test_an_error_is_shown_and_the_rest_of_snakemakes_words_is_not(progress):
    say(progress, "run_info")
    progress.shown()
    say(progress, None, msg="Building DAG of jobs...")
    say(progress, "progress", done=1, total=3)
    assert progress.shown() == ""
    say(progress, None, level=logging.ERROR, msg="score lab/en-25k failed: no memory")
    assert progress.shown() == "score lab/en-25k failed: no memory\n"


def test_the_end_says_where_the_time_went_and_keeps_how_long_jobs_took(progress):
    (progress.folder / "lab.json").write_text(json.dumps({"notebook registry": 9, "train lab/en": 7}))
    say(progress, "run_info")
    progress.shown()
    start(progress, 0), start(progress, 1)
    say(progress, "job_finished", at=60, job_id=0)
    say(progress, "job_finished", at=120, job_id=1)
    start(progress, 2, at=120)
    say(progress, "job_finished", at=150, job_id=2)
    progress.close()
    table = progress.shown()
    assert "2.5 minutes on 2 cores, which were busy 70% of the time" in table
    assert re.search(r"notebook +2 +3\.0 +86%", table) and re.search(r"book +1 +0\.5 +14%", table)
    slowest = re.findall(r"(\d+) s  (.*)", table)
    assert slowest == [("120", "notebook two_sources"), ("60", "notebook registry"), ("30", "book")]
    kept = json.loads((progress.folder / "lab.json").read_text())
    assert kept == {"book": 30, "notebook registry": 60, "notebook two_sources": 120, "train lab/en": 7}
    progress.close()
    assert progress.shown() == "", "once is enough"


def test_a_dry_run_names_the_jobs_in_order_and_keeps_nothing(progress):
    progress.dry_run = True
    say(progress, "run_info")
    assert progress.shown().splitlines()[1:] == ["  notebook registry", "  notebook two_sources", "  book"]
    start(progress, 0)
    progress.close()
    assert progress.shown() == "" and not (progress.folder / "lab.json").exists()


def test_a_column_of_a_papers_table_is_a_job_too(progress):
    progress.outputs.append("build/lab/columns/registry/a.json")
    say(progress, "run_info")
    assert progress.left["build/lab/columns/registry/a.json"].key == "column registry, a"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "10 seconds"), (42, "40 seconds"), (91, "2 minutes"), (900, "15 minutes")]
)
def test_a_time_is_said_in_words(seconds, words):
    assert build.in_words(seconds) == words


def test_a_page_that_there_is_not_is_answered_with_those_like_it():
    done = CliRunner().invoke(build.app, ["--page", "surp_figure4"])
    assert isinstance(done.exception, ValueError)
    assert "has no page 'surp_figure4'" in str(done.exception) and "surp_figure_4" in str(done.exception)


def test_of_two_builds_in_one_clone_the_second_is_an_error_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    holds = f"import pathlib; from mialib.commands import build; build.ROOT = pathlib.Path({str(tmp_path)!r})\n"
    holds += "with build.alone():\n    print('held', flush=True)\n    input()"
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match=f"another build runs in {re.escape(str(tmp_path))}"), build.alone():
            pass
        other.kill()
    with build.alone():
        assert (tmp_path / ".snakemake").is_dir()
