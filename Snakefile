# The pipeline: score -> notebook -> book. `make book` runs it, which is `mialib build`.
# What the rules run is in book/replication/pipeline/jobs.py, what a page takes in needs.py beside it. Snakemake knows what is
# stale: inputs by their time, recipes and code by the `params:` below, since it does not see edits to an imported package.
import os
import shlex
import sys
from functools import cache
from glob import glob
from importlib.metadata import version
from pathlib import Path

PROFILE = config.get("profile", "lab")
PROFILE_FILE = f"data/profiles/{PROFILE}.yml"
PAGE = config.get("page") or ""  # one page alone
ONLY = (config.get("only") or "").split()  # models, benchmarks or pages of the papers' tables
os.environ["MIALIB_PROFILE"] = PROFILE_FILE
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
for library in ("OMP", "OPENBLAS", "MKL", "RAYON"):  # as many jobs run at once as there are cores
    os.environ[f"{library}_NUM_THREADS"] = "1"

from replication.pipeline import estimate, needs as build
from replication.lab.source import corpora_of
from replication.profile import PAPER_TABLE, load_profile
from replication.pipeline.code import code_hash
from replication.pipeline.notebooks import why_not_run
from mialib.store import hash_files, hash_of
from mialib.versions import versions_of

profile = load_profile(PROFILE_FILE)
OUT = f"build/{PROFILE}"
# What any page may read, by content: the stored lab (by its sums), registries, claims, printed and recorded numbers.
DATA = [f"data/{name}" for name in ("lab/SHA256SUMS", "published.csv", "claims.yml", "models.yml", "benchmarks.yml")]
DATA += glob("data/revisions.yml") + glob("data/recorded/**/*.parquet", recursive=True) + glob("data/recorded/*.json")
DATA = hash_files(map(Path, DATA))
JOB = f"{shlex.quote(sys.executable)} -m replication.pipeline.jobs"
DURATIONS = estimate.durations(PROFILE)

COLUMNS, FIGURES, ASKED = {}, set(), set()
if ONLY or not profile.models:
    from replication.studies import paper_tables

    FIGURES = {page for page, _, _ in paper_tables.columns_of_figures(profile)}  # they run the papers' models themselves
    chosen = paper_tables.choose_columns(profile, ONLY)
    COLUMNS = {
        (page, paper_tables.file_name(name)): (name, column) for page, name, column in chosen if page not in FIGURES
    }
    ASKED = {page for page, _, _ in chosen}


def columns_of(page):
    """The files of the columns of a page that are asked for. It also shows what it finds of earlier runs."""
    return [f"{OUT}/columns/{page}/{column}.json" for of, column in COLUMNS if of == page]


def asked(page, column="page"):
    """The file whose time says when a column or a figure's page was asked for: if it is newer, that is made again."""
    return f"{OUT}/asked/{page}/{column}"


# What could not be had is tried again in each run that asks for it. Not by the Snakemakes of a cluster's jobs, which
# read this file as well.
if workflow.is_main_process:
    made = [(page, f"{OUT}/columns/{page}/{column}.json", asked(page, column)) for page, column in COLUMNS]
    made += [(page, f"{OUT}/results/{page}.json", asked(page)) for page in FIGURES]
    for page, path, stamp in ((page, Path(path), Path(stamp)) for page, path, stamp in made):
        if not stamp.is_file() or (page in ASKED and path.is_file() and not paper_tables.is_whole(path)):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text("the time of this file counts\n")  # not empty: of small files Snakemake compares the content

NEEDS = {name: build.needs_of(page, profile) for name, page in profile.notebooks.items()}
SCORED = {
    build.score_receipt(PROFILE, name, benchmark): (name, benchmark)
    for name, model in profile.models.items()
    for benchmark in model.benchmarks
}
# A column's file holds nothing of what its numbers depend on, so its code counts; texts that are scored are in the cache.
COLUMN_CODE = code_hash("replication.studies.paper_tables") if COLUMNS else ""
STORED = hash_files([Path("data/lab/SHA256SUMS")])  # it changes with each file of the stored lab
OF_MODELS = ("torch", "transformers", "tokenizers")  # the libraries that make and run them
READY = build.single_page(PROFILE, PAGE) if PAGE else build.book_index(PROFILE)


def versions(*packages):
    return [version(package) for package in packages]


def names_of(scored):
    """The model and the benchmark of a score."""
    return SCORED[f"{OUT}/scored/{scored}.json"]


# Snakemake asks for the parameters of all jobs that are ready each time that one ends, hence the caches.
@cache
def recipes_of_score(scored):
    model, benchmark = names_of(scored)
    return build.recipes_hash(profile, [model], corpora_of(benchmark))


@cache
def page_is_made_of(name):
    needs, libraries = NEEDS[name], versions("numpy", "scipy", "scikit-learn", "matplotlib", "jieba", *OF_MODELS)
    code = code_hash("replication.pipeline.notebooks", *needs.modules)
    recipes = build.recipes_hash(profile, needs.models, needs.corpora)
    return [hash_of(part) for part in (profile.notebooks[name].model_dump(), recipes, code, libraries)]


def skipped(page):
    return "it was not asked for in this run" if page in FIGURES - ASKED else ""


localrules: all, page, book


# Each result is named, since Snakemake does not miss a file that only a file which exists was made of.
rule all:
    message: "all"
    input:
        READY,
        [path for name in ([PAGE] if PAGE else NEEDS) for path in (*build.made_files(PROFILE, name), *columns_of(name))],


onstart:
    if DURATIONS and workflow.cores:
        jobs = [job.message for job in workflow.dag.needrun_jobs() if job.message != "all"]
        print(estimate.describe_time(PROFILE, jobs, workflow.cores), flush=True)


onsuccess:
    for name in [PAGE] if PAGE else NEEDS:
        if why := why_not_run(Path(f"{OUT}/results/{name}.json")):
            print(f"{name} was not run: {why}")
    print(f"The {'page' if PAGE else 'book'} is ready: open {Path(READY).resolve()}")


# Scores know themselves whether they are up to date. Snakemake keeps a receipt: it removes a rule's outputs before it
# runs it.
rule score:
    output: f"{OUT}/scored/{{scored}}.json",
    log: f"{OUT}/logs/score-{{scored}}.log",
    params:
        names=lambda w: names_of(w.scored),
        recipes=lambda w: recipes_of_score(w.scored),
        made_by=hash_of([versions_of("scoring"), *versions(*OF_MODELS)]),
        stored=STORED,
    priority: lambda w: DURATIONS.get("score {} on {}".format(*names_of(w.scored)), 0)  # the longest job goes first
    message: "score {params.names[0]} on {params.names[1]}"
    shell: "{JOB} score {params.names:q} {output:q} >{log:q} 2>&1"


rule column:
    input:
        lambda w: asked(w.page, w.column),
        "data/published.csv",
        "data/models.yml",
        "data/benchmarks.yml",
        glob("data/revisions.yml"),
    output: f"{OUT}/columns/{{page}}/{{column}}.json",
    log: f"{OUT}/logs/column-{{page}}-{{column}}.log",
    params:
        name=lambda w: COLUMNS[w.page, w.column][0],
        made_of=lambda w: hash_of(COLUMNS[w.page, w.column][1].model_dump()),
        printed_in=lambda w: hash_of([profile.notebooks[w.page].parameters[name] for name in ("paper", "items")]),
        code=COLUMN_CODE,
    resources:
        gpu=1,
    message: "column {wildcards.page}, {wildcards.column}"
    shell: "{JOB} column {wildcards.page:q} {params.name:q} {output:q} >{log:q} 2>&1"


rule notebook:
    input:
        lambda w: [build.score_receipt(PROFILE, *pair) for pair in NEEDS[w.notebook].scored] + columns_of(w.notebook),
        lambda w: [asked(w.notebook)] if w.notebook in FIGURES else [],
        lambda w: NEEDS[w.notebook].files,
        lambda w: f"notebooks/{profile.notebooks[w.notebook].notebook}.ipynb",
    output:
        build.made_files(PROFILE, "{notebook}"),
    log: f"{OUT}/logs/notebook-{{notebook}}.log",
    params:
        data=DATA,
        made_of=lambda w: page_is_made_of(w.notebook),
        computed=lambda w: f"{OUT}/columns/{w.notebook}" if profile.notebooks[w.notebook].notebook == PAPER_TABLE else "",
        failed=f"{OUT}/logs/{{notebook}}.ipynb",
        skipped=lambda w: skipped(w.notebook),
    priority: lambda w: DURATIONS.get(f"notebook {w.notebook}", 0)
    resources:
        gpu=lambda w: int(w.notebook in FIGURES),
    message: "notebook {wildcards.notebook}"
    shell:
        "{JOB} notebook {wildcards.notebook:q} {output:q} {params.failed:q} '{params.computed}' '{params.skipped}' >{log:q} 2>&1"


# What the book is made of besides its pages. report.py writes three lists of results.
TEXT = ["_config.yml", "CITATION.cff", *(f"book/replication/pipeline/{name}.py" for name in ("theme", "report", "slides", "student")), PROFILE_FILE]
TEXT += [path for pattern in ("*.md", "*.bib", "figures/*", "_static/*", "_templates/*") for path in sorted(glob(f"book/{pattern}"))]


rule book:
    input: [build.page_file(name) for name in profile.notebooks], TEXT,
    output: build.book_index(PROFILE),
    log: f"{OUT}/logs/book.log",
    message: "book"
    shell: "{JOB} book {output:q} >{log:q} 2>&1"


rule page:
    input: build.page_file("{notebook}"), TEXT,
    output: build.single_page(PROFILE, "{notebook}"),
    log: f"{OUT}/logs/page-{{notebook}}.log",
    message: "page {wildcards.notebook}"
    shell: "{JOB} book {output:q} {wildcards.notebook:q} >{log:q} 2>&1"
