"""`mialib build`: the plan before, the line of progress, where the time went."""

import json
import re
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from replication.commands import app
from replication.pipeline import command as build
from replication.pipeline import needs as planning

NAMES = ["notebook registry", "notebook two_sources", "book"]


@pytest.fixture
def progress(monkeypatch, capsys):
    """Progress of two pages and a book, with a clock to set, and what it has shown so far."""
    clock = {"now": 0.0}
    monkeypatch.setattr(build.time, "monotonic", lambda: clock["now"])
    made = build.Progress(NAMES, {"notebook registry": 100, "notebook two_sources": 300, "book": 20}, n_cores=2)
    made.clock, made.shown = clock, lambda: capsys.readouterr().err
    return made


def hear(progress, at, *lines):
    progress.clock["now"] = at
    for line in lines:
        progress.hear(f"{line}\n")


def test_what_is_left_counts_what_runs_and_at_least_the_longest_job(progress):
    assert progress.plan() == "3 jobs, about 5 minutes on 2 cores\n"
    hear(progress, 0, "begins: notebook registry", "begins: notebook two_sources")
    assert progress.line() == "0 of 3 jobs, about 5 minutes left: notebook registry, notebook two_sources"
    hear(progress, 200, "done: notebook registry")
    assert progress.line() == "1 of 3 jobs, about 2 minutes left: notebook two_sources"
    progress.clock["now"] = 2000
    assert progress.seconds_left() == 20, "a late job is about to end"


def test_how_long_a_profile_takes_is_not_said_before_a_job_of_it_has_ended():
    new = build.Progress(["score a on b", "score a on c"], {}, n_cores=1)
    assert "unknown" in new.plan() and "unknown" in new.line()
    new.taken["score a on d"] = 600.0
    assert new.line() == "0 of 2 jobs, about 20 minutes left: "


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_line_of_progress_is_shown_when_it_changes_and_in_a_log_rarely(is_terminal, progress, monkeypatch):
    monkeypatch.setattr(build.sys.stderr, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(build, "TICK_SECONDS", 0.001)
    hear(progress, 0, "begins: notebook registry", "begins: notebook two_sources")
    with progress.ticking():
        for second in range(0, 130, 5):
            progress.clock["now"] = second
            time.sleep(0.02)
    lines = re.split(r"[\r\n]+", progress.shown().strip())
    assert all(line != after for line, after in pairwise(lines)), "no line twice in a row"
    assert all(line.startswith("0 of 3 jobs, about ") for line in lines)
    assert len(lines) == (3 if is_terminal else 2), "in a log after 10 and 70 seconds"


def test_the_end_says_where_the_time_went_and_other_lines_are_shown(progress):
    hear(progress, 1, "score lab/en-25k failed (1), see a log:", "no memory")
    assert progress.shown() == "score lab/en-25k failed (1), see a log:\nno memory\n"
    hear(progress, 0, "begins: notebook registry", "begins: notebook two_sources")
    hear(progress, 60, "done: notebook registry")
    hear(progress, 120, "done: notebook two_sources", "begins: book")
    hear(progress, 150, "done: book")
    table = progress.table()
    assert "2.5 minutes on 2 cores, which were busy 70% of the time" in table
    assert re.search(r"notebook +2 +3\.0 +86%", table) and re.search(r"book +1 +0\.5 +14%", table)
    slowest = re.findall(r"(\d+) s  (.*)", table)
    assert slowest == [("120", "notebook two_sources"), ("60", "notebook registry"), ("30", "book")]


def test_how_long_jobs_took_is_kept_beside_what_others_took(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "durations_file", lambda profile: tmp_path / f"{profile}.json")
    (tmp_path / "lab.json").write_text(json.dumps({"notebook registry": 9, "score a on b": 7}))
    build._keep_durations("lab", {"notebook registry": 60.04})
    assert json.loads((tmp_path / "lab.json").read_text()) == {"notebook registry": 60.0, "score a on b": 7}


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "10 seconds"), (42, "40 seconds"), (91, "2 minutes"), (900, "15 minutes")]
)
def test_a_time_is_said_in_words(seconds, words):
    assert build.in_words(seconds) == words


def test_a_page_that_there_is_not_is_answered_with_those_like_it():
    done = CliRunner().invoke(app, ["build", "--page", "surp_figure4"])
    assert isinstance(done.exception, ValueError)
    assert "has no page 'surp_figure4'" in str(done.exception) and "surp_figure_4" in str(done.exception)


def test_a_notebook_that_is_missing_or_none_is_named_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "NOTEBOOKS", tmp_path)
    for content in (None, "{", "[]"):
        if content:
            (tmp_path / "registry.ipynb").write_text(content)
        done = CliRunner().invoke(app, ["build", "--page", "registry"])
        assert isinstance(done.exception, ValueError) and str(tmp_path / "registry.ipynb") in str(done.exception)


def test_of_two_builds_in_one_clone_the_second_is_an_error_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    holds = "import pathlib; from replication.pipeline import command as build\n"
    holds += f"build.ROOT = pathlib.Path({str(tmp_path)!r})\n"
    holds += "with build.one_build():\n    print('held', flush=True)\n    input()"
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match=f"another build runs in {re.escape(str(tmp_path))}"), build.one_build():
            pass
        other.kill()
    with build.one_build():
        assert (tmp_path / ".snakemake").is_dir()
