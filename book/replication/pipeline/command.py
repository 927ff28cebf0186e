"""`mialib build`: Snakemake's command line, with a plan before, one line of progress, and where the time went after."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

import typer
from filelock import FileLock, Timeout

from mialib.progress import in_words, line_clock
from mialib.store import ROOT, write_json
from replication.pipeline import needs as planning
from replication.pipeline.notebooks import NOTEBOOKS, clone, read_notebook, why_not_run
from replication.profile import load_profile

TICK_SECONDS = 1.0
SLOWEST = 10  # jobs in the table at the end
TAIL_LINES = 60  # of what Snakemake says, where it fails and no job did
PLANNED = re.compile(r"^(?:local)?rule (\w+):\n(?:    .*\n)*?    output: ([^,\n]+)", re.M)  # of a dry run
DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


def build(page: str, profile: str, only: str, cores: int, dry_run: bool) -> None:
    """Build the book, or one page of it; what the arguments mean is said where the command is (`commands`)."""
    file = clone() / "data" / "profiles" / f"{profile}.yml"
    pages = load_profile(file).notebooks
    if page and page not in pages:
        alike = get_close_matches(page, pages, n=3, cutoff=0.4)
        said = f"did you mean {' or '.join(alike)}?" if alike else f"it has: {', '.join(pages)}"
        raise ValueError(f"profile {profile} has no page {page!r} that a notebook makes; {said}")
    for name in [page] if page else pages:
        notebook = NOTEBOOKS / f"{pages[name].notebook}.ipynb"
        if not notebook.is_file():
            raise ValueError(f"{file} names the notebook {notebook}, which does not exist")
        read_notebook(notebook)
    target, cores = planning.single_page(profile, page) if page else planning.book_index(profile), cores or n_cores()
    made = planning.made_files(profile, page) if page else ["all"]  # named, so that one that was deleted is missed
    given = [target, *made, "--cores", str(cores), "--config", f"profile={profile}", f"only={only}"]
    with one_build():
        planned = "".join(_snakemake(profile, *given, "--dry-run"))
        names = dict.fromkeys(planning.job_name(rule, output) for rule, output in PLANNED.findall(planned))
        progress = Progress(names, planning.load_durations(profile), cores)
        if names:
            say_progress(progress.plan())
        if dry_run:
            return say_progress("".join(f"  {name}\n" for name in names))
        if names:
            with progress.ticking():
                try:
                    for line in _snakemake(profile, *given):
                        progress.hear(line)
                finally:
                    _keep_durations(profile, progress.taken)
            say_progress(progress.table())
        for name in [page] if page else pages:
            if why := why_not_run(ROOT / "build" / profile / "results" / f"{name}.json"):
                say_progress(f"{name} was not run: {why}\n")
    typer.echo(f"The {'page' if page else 'book'} is ready: open {ROOT / target}")


def say_progress(text: str) -> None:
    """Say something to whoever waits."""
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def one_build() -> Iterator[None]:
    """Of two builds in one clone the second is an error. Snakemake's own lock would outlive a build that was killed."""
    (ROOT / ".snakemake").mkdir(exist_ok=True)
    try:
        with FileLock(ROOT / ".snakemake" / "build.lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(f"another build runs in {ROOT}; wait for it, or stop it") from None


def n_cores() -> int:
    """Of this machine, those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _snakemake(profile: str, *arguments: str) -> Iterator[str]:
    """The lines that Snakemake prints, as they come; ValueError where it fails.

    It has a session of its own, so that a terminal's Ctrl-C reaches this process alone, which then ends it at once.
    Its jobs end when it does (see `jobs`).
    """
    said = ROOT / "build" / profile / "logs" / "snakemake.log"
    said.parent.mkdir(parents=True, exist_ok=True)
    options = ["--nolock", "--rerun-incomplete", "--force-use-threads", "--resources", "gpu=1"]
    options += ["--scheduler", "greedy", "--max-checksum-file-size", "0"]
    command = [sys.executable, "-m", "snakemake", *arguments, *options]

    def end_with_parent() -> None:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

    own = {"start_new_session": True, "preexec_fn": end_with_parent if sys.platform == "linux" else None}
    with said.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, **own)
    try:
        last: deque[str] = deque(maxlen=TAIL_LINES)  # a dry run gives its errors here
        for line in process.stdout:
            last.append(line.rstrip())
            yield line
        if process.wait():
            tail = [*said.read_text(encoding="utf-8").splitlines(), *last][-TAIL_LINES:]
            failed = [line.partition(" failed (")[0] for line in last if " failed (" in line]
            why = f"{failed[-1]} failed" if failed else "\n".join(["Snakemake said:", *tail])
            raise ValueError(f"the build is not complete; {why}")
    finally:
        process.kill()
        process.wait()


class Progress:
    """Of the jobs of a build, what is done, what runs, and about how long the others take."""

    def __init__(self, names: Iterable[str], durations: dict[str, float], n_cores: int) -> None:
        self.left = set(names)
        self.durations = durations
        self.n_jobs, self.n_cores = len(self.left), n_cores
        self.running: dict[str, float] = {}  # since when
        self.taken: dict[str, float] = {}  # seconds
        self.began = time.monotonic()

    def hear(self, line: str) -> None:
        """Take a line of `jobs.run`: a job begins or is done. All others are shown."""
        what, _, name = line.strip().partition(": ")
        if what == "begins":
            self.running[name] = time.monotonic()
        elif what == "done" and name in self.running:
            self.taken[name] = time.monotonic() - self.running.pop(name)
            self.left.discard(name)
        else:
            say_progress(line)

    def seconds_left(self) -> float:
        """What is left of each job, spread over the cores, or what the longest job takes."""
        now, known = time.monotonic(), self.durations | self.taken
        expected = {name: planning.expected_seconds(name, known) for name in list(self.left)}  # a job may end meanwhile
        seconds = [max(of_job - now + self.running.get(name, now), 0.0) for name, of_job in expected.items()]
        return max([sum(seconds) / self.n_cores, *seconds])

    def how_long(self) -> str:
        """What is left, in words; of a kind of job that never ran nothing is known before the first has ended."""
        known = set(map(planning.rule_of, self.durations | self.taken))
        unknown = set(map(planning.rule_of, list(self.left))) - known
        if unknown and not known:
            return "an unknown time"
        return f"{'at least' if unknown else 'about'} {in_words(self.seconds_left())}"

    def plan(self) -> str:
        """How much there is to do."""
        cores = f"{self.n_cores} core{'s' if self.n_cores > 1 else ''}"
        return f"{self.n_jobs} jobs, {self.how_long()} on {cores}\n"

    def line(self) -> str:
        """The line of progress."""
        done = self.n_jobs - len(self.left)
        return f"{done} of {self.n_jobs} jobs, {self.how_long()} left: {', '.join([*self.running])}"

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Show the line of progress each time it changes: on a terminal in one place, elsewhere now and then."""
        on_terminal, ended, is_time = sys.stderr.isatty(), threading.Event(), line_clock()

        def tick() -> None:
            shown = ""
            while not ended.wait(TICK_SECONDS):
                if (line := self.line()) == shown or not (on_terminal or is_time()):
                    continue
                shown, width = line, shutil.get_terminal_size().columns - 1
                say_progress(f"\r{line[:width].ljust(width)}" if on_terminal else f"{line}\n")

        threading.Thread(target=tick, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            say_progress("\n" if on_terminal else "")

    def table(self) -> str:
        """Where the time went: by rule, and the slowest jobs."""
        seconds, total = time.monotonic() - self.began, sum(self.taken.values())
        busy = total / (seconds * self.n_cores)
        by_rule: dict[str, list[float]] = {}
        for name, of_job in self.taken.items():
            by_rule.setdefault(planning.rule_of(name), []).append(of_job)
        rules = sorted(by_rule.items(), key=lambda item: -sum(item[1]))
        slowest = sorted(self.taken.items(), key=lambda item: -item[1])[:SLOWEST]
        lines = [
            f"{seconds / 60:.1f} minutes on {self.n_cores} cores, which were busy {busy:.0%} of the time\n",
            f"{'rule':10}{'jobs':>6}{'minutes':>10}{'share':>8}",
            *(f"{rule:10}{len(of):6}{sum(of) / 60:10.1f}{sum(of) / total:8.0%}" for rule, of in rules),
            "\nthe slowest jobs",
            *(f"{of_job:8.0f} s  {name}" for name, of_job in slowest),
        ]
        return "\n".join(lines) + "\n\n"


def _keep_durations(profile: str, taken: dict[str, float]) -> None:
    file = planning.durations_file(profile)
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    write_json(file, dict(sorted((kept | {name: round(seconds, 1) for name, seconds in taken.items()}).items())))
