"""`mialib build`: Snakemake, with a plan before, one line of progress, and where the time went after."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer

from mialib.book import build as planning
from mialib.book import jobs
from mialib.book.build import Job
from mialib.book.notebooks import clone
from mialib.book.profile import Profile, load_profile
from mialib.store import ROOT, write_json

app = typer.Typer()
SLOWEST = 10  # jobs in the table at the end
AS_EXPECTED_SECONDS = 100.0  # of jobs that count as having taken what was expected, so that the first says little
REPORT_SECONDS = 30.0  # between two lines of progress where they don't overwrite each other


@app.command()
def build(
    page: Annotated[str, typer.Option(help="one page alone, and only what it needs; default: the book")] = "",
    profile: Annotated[str, typer.Option(help="lab, recorded or paper: a file of data/profiles/")] = "lab",
    only: Annotated[str, typer.Option(help="of the papers' tables only these models, benchmarks or pages")] = "",
    cores: Annotated[int, typer.Option(min=0, help="jobs at once; 0: as many as there are cores")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="say what would be run")] = False,
) -> None:
    """Build the book, or one page of it: score and run what is not there or stale, and render it."""
    loaded = load_profile(clone() / "data" / "profiles" / f"{profile}.yml")
    if page and page not in loaded.notebooks:
        alike = get_close_matches(page, loaded.notebooks, n=5, cutoff=0.4) or loaded.notebooks
        raise ValueError(f"profile {profile} has no page {page!r} that a notebook makes; it has: {', '.join(alike)}")
    target = planning.single_page(profile, page) if page else planning.book_index(profile)
    with alone():
        _in_thread(_snakemake, loaded, target, only, cores or n_cores(), dry_run)
    if not dry_run:
        typer.echo(f"The {'page' if page else 'book'} is ready: open {ROOT / target}")


@contextmanager
def alone() -> Iterator[None]:
    """Of two builds in one clone the second is an error. Snakemake's own lock would outlive a build that was killed."""
    from filelock import FileLock, Timeout

    (ROOT / ".snakemake").mkdir(exist_ok=True)
    try:
        with FileLock(ROOT / ".snakemake" / "build.lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(f"another build runs in {ROOT}; wait for it, or stop it") from None


def _in_thread(call: Callable[..., None], *arguments: Any) -> None:
    """A call in another thread: in this one Snakemake would hear the signals, and wait for jobs that take minutes.

    A signal ends this process without waiting for the thread, and jobs end with the process.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            done.set_result(call(*arguments))
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    done.result()


def n_cores() -> int:
    """Of this machine, those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _snakemake(profile: Profile, target: str, only: str, n_cores: int, dry_run: bool) -> None:
    """Have Snakemake make a file; ValueError where a job fails, with what it said."""
    from snakemake.api import SnakemakeApi
    from snakemake.exceptions import WorkflowError
    from snakemake.scheduling import greedy
    from snakemake.settings import types as settings

    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs: list[str] = []  # of the jobs to run, which Snakemake fills in before it starts
    progress = Progress(profile, outputs, n_cores, dry_run)
    with SnakemakeApi(settings.OutputSettings()) as api:
        api.logger_manager.logger.handlers[:] = [progress]
        api.logger_manager.logger.propagate = False
        workflow = api.workflow(
            resource_settings=settings.ResourceSettings(cores=n_cores, resources={"gpu": 1}),
            config_settings=settings.ConfigSettings(config={"profile": profile.name, "only": only}),
            snakefile=ROOT / "Snakefile",
            workdir=ROOT,
        )
        given = settings.DAGSettings(targets={target}, force_incomplete=True, max_checksum_file_size=0)
        try:
            workflow.dag(given).execute_workflow(
                pseudo_executor="dryrun" if dry_run else None,
                execution_settings=settings.ExecutionSettings(use_threads=True, lock=False),  # see alone
                scheduling_settings=settings.SchedulingSettings(scheduler="greedy"),
                scheduler_settings=greedy.SchedulerSettings(omit_prioritize_by_temp_and_input=True),
                updated_files=outputs,
            )
        except WorkflowError as error:
            raise ValueError(str(error)) from None
        finally:
            progress.close()


class Progress(logging.Handler):
    """Snakemake's log as one line: how many jobs are done, and about how long the others take.

    `outputs` are the files that will be made, which Snakemake fills in before it says how many jobs there are. Errors
    and warnings are shown as they come; all that Snakemake says is in `.snakemake/log`.
    """

    def __init__(self, profile: Profile, outputs: list[str], n_cores: int, dry_run: bool = False) -> None:
        super().__init__()
        self.profile, self.outputs, self.n_cores, self.dry_run = profile, outputs, n_cores, dry_run
        self.left: dict[str, Job] = {}  # jobs that are not done, by output
        self.expected: dict[str, float] = {}  # seconds, by job
        self.taken: dict[str, float] = {}
        self.running: dict[int, tuple[str, float]] = {}  # by Snakemake's number: output, since when
        self.n_jobs, self.began = 0, time.monotonic()
        self.ended = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one of Snakemake's messages."""
        event = str(getattr(record, "event", None))
        if event == "run_info" and not self.n_jobs:
            self._plan()
        elif event == "job_info" and not self.dry_run:
            self.running.setdefault(record.jobid, (record.output[0], time.monotonic()))
        elif event == "job_finished" and record.job_id in self.running:
            output, since = self.running.pop(record.job_id)
            if job := self.left.pop(output, None):
                self.taken[job.key] = time.monotonic() - since
        elif event == "job_error" or record.levelno >= logging.WARNING:
            self._show(record.getMessage() + "\n")

    def _plan(self) -> None:
        columns: dict[str, list[str]] = {}
        for output in self.outputs:
            if Path(output).parts[2:3] == ("columns",):
                columns.setdefault(Path(output).parts[3], []).append(output)
        needs = {name: planning.needs_of(page, self.profile) for name, page in self.profile.notebooks.items()}
        every = planning.jobs_of(self.profile, needs, columns)
        self.left = {output: job for output, job in every.items() if output in self.outputs}
        durations = planning.load_durations(self.profile.name)
        self.expected = {job.key: planning.expected_seconds(job, durations) for job in self.left.values()}
        self.n_jobs = len(self.left)
        cores = f"{self.n_cores} core{'s' if self.n_cores > 1 else ''}"
        self._show(f"{self.n_jobs} jobs, about {in_words(self.seconds_left())} on {cores}\n")
        if self.dry_run:
            self._show("".join(f"  {job.key}\n" for job in self.left.values()))
        else:
            jobs.start_early()
            threading.Thread(target=self._tick, daemon=True).start()

    def seconds_left(self) -> float:
        """An estimate, from what the jobs took before and how fast this build's have been so far."""
        worked = [key for key, taken in self.taken.items() if taken > self.expected[key] / 3]  # others found it made
        expected, taken = (sum(of[key] for key in worked) for of in (self.expected, self.taken))
        pace = (taken + AS_EXPECTED_SECONDS) / (expected + AS_EXPECTED_SECONDS)
        now, since = time.monotonic(), dict(list(self.running.values()))
        seconds = {}
        left = dict(self.left)  # a job may end meanwhile
        for output, job in left.items():
            seconds[output] = self.expected[job.key] * pace
            if output in since:  # one that takes longer than expected is not about to end at any moment
                seconds[output] = max(seconds[output] - (now - since[output]), seconds[output] / 10)
        return planning.simulate(left, seconds, self.n_cores, since)

    def line(self) -> str:
        """The line of progress."""
        names = [self.left[output].key for output, _ in list(self.running.values()) if output in self.left]
        done = self.n_jobs - len(self.left)
        return f"{done} of {self.n_jobs} jobs, about {in_words(self.seconds_left())} left: {', '.join(names)}"

    def _tick(self) -> None:
        on_terminal = sys.stderr.isatty()
        while not self.ended.wait(1.0 if on_terminal else REPORT_SECONDS):
            width = shutil.get_terminal_size().columns - 1
            self._show(f"\r{self.line()[:width].ljust(width)}" if on_terminal else f"{self.line()}\n")

    def _show(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def close(self) -> None:
        """Keep how long the jobs took, and say where the time went."""
        super().close()
        has_ended = self.ended.is_set()
        self.ended.set()
        if has_ended or not self.taken:
            return
        file = planning.durations_file(self.profile.name)
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        write_json(file, dict(sorted((kept | {key: round(s, 1) for key, s in self.taken.items()}).items())))
        self._show(("\n" if sys.stderr.isatty() else "") + self.table(time.monotonic() - self.began))

    def table(self, seconds: float) -> str:
        """Where the time went: by rule, and the slowest jobs."""
        total = sum(self.taken.values())
        by_rule: dict[str, list[float]] = {}
        for key, of_job in self.taken.items():
            by_rule.setdefault(key.partition(" ")[0], []).append(of_job)
        busy = total / (seconds * self.n_cores)
        lines = [f"{seconds / 60:.1f} minutes on {self.n_cores} cores, which were busy {busy:.0%} of the time", ""]
        lines.append(f"{'rule':10}{'jobs':>6}{'minutes':>10}{'share':>8}")
        for rule, of_rule in sorted(by_rule.items(), key=lambda item: -sum(item[1])):
            lines.append(f"{rule:10}{len(of_rule):6}{sum(of_rule) / 60:10.1f}{sum(of_rule) / total:8.0%}")
        slowest = sorted(self.taken.items(), key=lambda item: -item[1])[:SLOWEST]
        lines += ["", "the slowest jobs", *(f"{of_job:8.0f} s  {key}" for key, of_job in slowest), ""]
        return "\n".join(lines) + "\n"


def in_words(seconds: float) -> str:
    """ "40 seconds", "7 minutes"."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    return f"{seconds / 60:.0f} minutes"
