"""What a build consists of: its jobs, what each waits for, and about how long each takes.

What a page takes is read off its notebook and its parameters: the models, benchmarks and corpora that they name, and
the modules that it imports. The Snakefile makes rules of this, `mialib build` a plan and an estimate. Nothing here
loads torch.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from mialib.book.code import import_closure
from mialib.book.notebooks import NOTEBOOKS, read_notebook
from mialib.book.profile import Page, Profile, load_profile
from mialib.lab.dealing import sources_of
from mialib.lab.models import corpora_of_recipe
from mialib.lab.recipes import Model
from mialib.store import DATA, ROOT, hash_of

CLAIMS = DATA / "claims.yml"
TYPICAL = DATA / "durations.json"  # seconds of jobs on two idle cores: a copy of a build's durations.json
UNKNOWN_SECONDS = 10.0  # of a job of which nothing is known


# --- what a page takes ---


@dataclass(frozen=True)
class Needs:
    """What a page takes, by name."""

    models: tuple[str, ...]  # of the profile; those of all claims, too, where it shows verdicts
    scored: tuple[tuple[str, str], ...]  # pairs of model and benchmark that the profile scores beforehand
    corpora: tuple[str, ...]  # of the profile
    files: tuple[str, ...]  # of texts, as paths
    modules: tuple[str, ...]  # of mialib that its code imports, such as "book.figures"


def needs_of(page: Page, profile: Profile, folder: Path = NOTEBOOKS, claims: Path = CLAIMS) -> Needs:
    """What a page takes, as its notebook in `folder` and its parameters say.

    Every string of its code counts that is such a name, or a comma-separated list of them, parameters' defaults only
    where the profile gives no other value.
    """
    notebook = read_notebook(folder / f"{page.notebook}.ipynb")
    parameters = notebook.defaults | page.parameters
    strings = {*_strings(list(parameters.values())), *notebook.strings}
    named, judged = _names_in(strings), set()
    if any("book.judging" in import_closure(module) for module in notebook.modules):
        judged = _names_in_claims(claims, claims.stat().st_mtime_ns)
    models = sorted(named & set(profile.models))
    return Needs(
        models=tuple(sorted((named | judged) & set(profile.models))),
        scored=tuple((m, b) for m in models for b in profile.models[m].benchmarks if b in strings),
        corpora=tuple(sorted((named | judged) & set(profile.corpora))),
        files=tuple(sorted(string for string in strings if os.path.isfile(string))),
        modules=notebook.modules,
    )


def _names_in(strings: Iterable[str]) -> set[str]:
    """What strings may name: models, corpora and benchmarks, as in `lab/en-25k@1`, `lab/en:reference` and
    `lab/en~lab/code`."""
    return {part.partition("@")[0] for string in strings for part in re.split("[:~]", string)}


@cache
def _names_in_claims(path: Path, _mtime_ns: int) -> frozenset[str]:
    return frozenset(_names_in(_strings(yaml.safe_load(path.read_text(encoding="utf-8")))))


def _strings(value: Any) -> Iterator[str]:
    """All strings in a parameter's value, comma-separated ones apart."""
    if isinstance(value, str):
        yield from (part.strip() for part in value.split(","))
    elif isinstance(value, Mapping):
        yield from _strings(list(value.values()))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _strings(entry)


def recipes_hash(profile: Profile, models: Iterable[str], corpora: Iterable[str]) -> str:
    """A hash of how these models, and those that they were made from, and these corpora are made.

    The versions of the packages that texts are read from count, and so does the content of a corpus's file.
    """
    recipes = [model.recipe for name in models for model in _lineage(profile, name) if model.recipe]
    names = {*corpora, *(corpus for recipe in recipes for corpus in corpora_of_recipe(recipe))} & set(profile.corpora)
    names |= {other for name in names if (other := profile.corpora[name].apart_from)}
    of_corpora = [[profile.corpora[name].model_dump(), sources_of(profile.corpora[name])] for name in sorted(names)]
    return hash_of([[recipe.model_dump() for recipe in recipes], of_corpora])


def _lineage(profile: Profile, name: str) -> list[Model]:
    """A model, and the one that it was made from."""
    model = profile.models[name]
    return [model, *(_lineage(profile, model.unlearn.base) if model.unlearn else [])]


# --- jobs ---


@dataclass(frozen=True)
class Job:
    """One job of the build."""

    rule: str  # of the Snakefile
    name: str
    output: str  # the file that stands for it, from the clone's root
    waits_for: tuple[str, ...] = ()  # outputs of other jobs

    @property
    def key(self) -> str:
        """Its name among all jobs."""
        return f"{self.rule} {self.name}".strip()


def jobs_of(
    profile: Profile, needs: Mapping[str, Needs], columns: Mapping[str, Iterable[str]] | None = None
) -> dict[str, Job]:
    """Every job of a profile's build by its output.

    `needs` is by page, and so is `columns`: the files of the columns of a paper's tables.
    """
    jobs = []
    for name, model in profile.models.items():
        for benchmark in model.benchmarks:
            jobs.append(Job("score", f"{name} on {benchmark}", score_receipt(profile.name, name, benchmark)))
    for name, of_page in needs.items():
        of_columns = list((columns or {}).get(name, ()))
        jobs += [Job("column", f"{name}, {Path(path).stem}", path) for path in of_columns]
        scored = [score_receipt(profile.name, *pair) for pair in of_page.scored]
        jobs.append(Job("notebook", name, page_file(name), (*scored, *of_columns)))
        jobs.append(Job("page", name, single_page(profile.name, name), (page_file(name),)))
    jobs.append(Job("book", "", book_index(profile.name), tuple(page_file(name) for name in profile.notebooks)))
    return {job.output: job for job in jobs}


def score_receipt(profile: str, model: str, benchmark: str) -> str:
    """The file that says what scored a benchmark."""
    return f"build/{profile}/scored/{_in_path(model)}-on-{_in_path(benchmark)}.json"


def _in_path(name: str) -> str:
    return name.replace("/", "--")


def page_file(name: str) -> str:
    """The executed notebook of a page."""
    return f"book/pages/{name}.ipynb"


def single_page(profile: str, name: str) -> str:
    """A page rendered by itself."""
    return f"build/{profile}/page/{name}/_build/html/pages/{name}.html"


def book_index(profile: str) -> str:
    """The rendered book's first page."""
    return f"build/{profile}/book/_build/html/index.html"


def check_pages(html: str | Path, profile: Profile | None = None) -> None:
    """FileNotFoundError unless a rendered book has its first page and every page of the profile, none of them empty."""
    profile = profile or load_profile()
    pages = [profile.landing, *(page for chapter in profile.book for page in chapter.pages)]
    wanted = ["index.html", *(f"{page.file}.html" for page in pages)]
    lost = [name for name in wanted if not (path := Path(html, name)).is_file() or not path.stat().st_size]
    if lost:
        raise FileNotFoundError(f"{len(lost)} of {len(wanted)} pages are missing or empty in {html}: {', '.join(lost)}")
    print(f"all {len(wanted)} pages are in {html}")


# --- how long ---


def load_durations(profile: str) -> dict[str, float]:
    """Seconds of jobs by key: as earlier builds of this clone took, and as is typical for those that never ran here."""
    found: dict[str, float] = {}
    for path in (TYPICAL, durations_file(profile)):
        found |= json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def durations_file(profile: str) -> Path:
    """Where a build keeps how long its jobs took."""
    return ROOT / "build" / profile / "durations.json"


def expected_seconds(job: Job, durations: Mapping[str, float]) -> float:
    """What a job takes, or others of its rule do, or a guess."""
    of_rule = [seconds for key, seconds in durations.items() if key.partition(" ")[0] == job.rule]
    return durations.get(job.key, median(of_rule) if of_rule else UNKNOWN_SECONDS)


def seconds_to_end(jobs: Mapping[str, Job], durations: Mapping[str, float]) -> dict[str, float]:
    """By output: a job's own seconds and those of the longest chain of jobs that wait for it.

    Started in this order, the longest first, jobs keep all cores busy to the end.
    """
    waiting: dict[str, list[str]] = {output: [] for output in jobs}
    for job in jobs.values():
        for output in job.waits_for:
            waiting.get(output, []).append(job.output)

    @cache
    def of(output: str) -> float:
        return expected_seconds(jobs[output], durations) + max(map(of, waiting[output]), default=0.0)

    return {output: of(output) for output in jobs}


def simulate(jobs: Mapping[str, Job], seconds: Mapping[str, float], n_cores: int, running: Iterable[str] = ()) -> float:
    """Seconds until all jobs are done on so many cores, each on one, by outputs; `running` ones go first."""
    rank = seconds_to_end(jobs, {job.key: seconds[output] for output, job in jobs.items()})
    running = set(running)
    order = sorted(jobs, key=lambda output: (output not in running, -rank[output]))
    left, ends, now = dict.fromkeys(order), [], 0.0
    done: set[str] = set()
    while left or ends:
        ready = [o for o in left if all(w in done or w not in jobs for w in jobs[o].waits_for)]
        for output in ready[: n_cores - len(ends)]:
            heapq.heappush(ends, (now + seconds[output], output))
            del left[output]
        now, output = heapq.heappop(ends)
        done.add(output)
    return now
