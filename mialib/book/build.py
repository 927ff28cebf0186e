"""What a build consists of: its jobs, what each waits for, and about how long each takes.

What a page takes is read off its notebook and its parameters: the models, benchmarks and corpora that they name, the
claims whose verdicts it shows, and the modules that it imports. The Snakefile makes rules of this, `mialib build` a
plan and an estimate. Nothing here loads torch.
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

from mialib.book.notebooks import NOTEBOOKS, read_notebook
from mialib.book.profile import Page, Profile, load_profile
from mialib.detectors import DETECTORS
from mialib.lab.corpora import corpora_of
from mialib.lab.models import corpora_of_recipe
from mialib.store import DATA, ROOT

CLAIMS = DATA / "claims.yml"
LAB = "build/lab"  # where the receipts of corpora and models lie; all profiles share them
TYPICAL = DATA / "durations.json"  # seconds of jobs on two idle cores: a copy of a build's durations.json
UNKNOWN_SECONDS = 10.0  # of a job of which nothing is known


# --- what a page takes ---


@dataclass(frozen=True)
class Needs:
    """What a page takes, by name."""

    models: tuple[str, ...]  # of the profile
    scored: tuple[tuple[str, str], ...]  # pairs of model and benchmark that the profile scores beforehand
    corpora: tuple[str, ...]  # of the profile
    files: tuple[str, ...]  # of texts, as paths
    modules: tuple[str, ...]  # of mialib that its code imports, such as "book.figures"


def needs_of(page: Page, profile: Profile, folder: Path = NOTEBOOKS, claims: Path = CLAIMS) -> Needs:
    """What a page takes, as its notebook in `folder`, its parameters and the tests in `claims` say.

    Every string of its code counts that is such a name, or a comma-separated list of them, parameters' defaults only
    where the profile gives no other value.
    """
    notebook = read_notebook(folder / f"{page.notebook}.ipynb")
    parameters = notebook.defaults | page.parameters
    strings = {*_strings(list(parameters.values())), *notebook.strings}
    shown = set() if notebook.shows_all_claims else strings
    models = None if notebook.shows_all_claims else set(_strings(parameters.get("models", [])))
    strings |= set(_names_in_claims(claims, shown, models))
    named = {part.partition("@")[0] for string in strings for part in re.split("[:~]", string)}
    models = sorted(named & set(profile.models))
    return Needs(
        models=tuple(models),
        scored=tuple((m, b) for m in models for b in profile.models[m].benchmarks if b in strings),
        corpora=tuple(sorted(named & set(profile.corpora))),
        files=tuple(sorted(string for string in strings if os.path.isfile(string))),
        modules=notebook.modules,
    )


def _strings(value: Any) -> Iterator[str]:
    """All strings in a parameter's value, comma-separated ones apart."""
    if isinstance(value, str):
        yield from (part.strip() for part in value.split(","))
    elif isinstance(value, Mapping):
        yield from _strings(list(value.values()))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _strings(entry)


def _names_in_claims(path: Path, ids: Iterable[str], models: set[str] | None) -> Iterator[str]:
    """The names in the tests of the claims with these `ids` in the settings of these `models`; None: in all tests."""
    file = _read_yaml(path, path.stat().st_mtime_ns)
    for claim in file["claims"]:
        for setting in claim["where"]:
            place = file["settings"][setting]
            if models is None or (claim["id"] in ids and place["model"] in models):
                for side in _sides(claim, setting):
                    yield from _names_in_side(side, setting, place)


def _sides(claim: Mapping[str, Any], setting: str) -> Iterator[Mapping[str, Any]]:
    """The sides of a claim in a setting, and of the tests that it has replaced."""
    for test in (claim, *(claim | change.get("was", {}) for change in claim.get("history", ()))):
        for side in (test["a"], *test["against"]):
            if side != "chance" and setting in side.get("only", claim["where"]):
                yield side


def _names_in_side(side: Mapping[str, Any], setting: str, place: Mapping[str, Any]) -> Iterator[str]:
    known = DETECTORS.get(side["detector"])  # None: the probe
    reference = place.get("reference") if known and "reference" in known.needs else None
    yield side.get("model", {}).get(setting, place["model"])
    yield place["benchmark"]
    yield from filter(None, [side.get("corpus", place.get("corpus")), side.get("training")])
    yield from filter(None, [reference, place.get("masked")])  # a verdict's key holds the setting's masked model


@cache
def _read_yaml(path: Path, _mtime_ns: int) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


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
    for name, corpus in profile.corpora.items():
        jobs.append(
            Job("corpus", name, corpus_receipt(name), (corpus_receipt(corpus.apart_from),) if corpus.apart_from else ())
        )
    for name, model in profile.models.items():
        if model.recipe:
            base = [model_receipt(model.unlearn.base)] if model.unlearn else []
            corpora = [corpus_receipt(corpus) for corpus in corpora_of_recipe(model.recipe)]
            jobs.append(Job("train", name, model_receipt(name), (*base, *corpora)))
        for benchmark in model.benchmarks:
            waits_for = [model_receipt(name)] if model.recipe else []
            if benchmark.startswith("lab/"):
                waits_for += [corpus_receipt(corpus) for corpus in corpora_of(benchmark)]
            output = score_receipt(profile.name, name, benchmark)
            jobs.append(Job("score", f"{name} on {benchmark}", output, tuple(waits_for)))
    for name, of_page in needs.items():
        of_columns = list((columns or {}).get(name, ()))
        jobs += [Job("column", f"{name}, {Path(path).stem}", path) for path in of_columns]
        waits_for = [model_receipt(model) for model in of_page.models if profile.models[model].recipe]
        waits_for += [score_receipt(profile.name, *pair) for pair in of_page.scored]
        waits_for += [corpus_receipt(corpus) for corpus in of_page.corpora]
        jobs.append(Job("notebook", name, page_file(name), (*waits_for, *of_columns)))
        jobs.append(Job("page", name, single_page(profile.name, name), (page_file(name),)))
    jobs.append(Job("book", "", book_index(profile.name), tuple(page_file(name) for name in profile.notebooks)))
    return {job.output: job for job in jobs}


def corpus_receipt(corpus: str) -> str:
    """The file that says what a lab corpus is."""
    return f"{LAB}/corpora/{corpus.removeprefix('lab/')}.json"


def model_receipt(model: str) -> str:
    """The file that says how a lab model was trained."""
    return f"{LAB}/models/{model.removeprefix('lab/')}.json"


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
