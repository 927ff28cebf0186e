# The pipeline: score -> notebook -> book. `make book` runs it, which is `mialib build`.
# What the rules do is in book/replication/pipeline/jobs.py, what a page takes in needs.py beside it. Snakemake knows what is
# stale: inputs by their time, recipes and code by the `params:` below, since it does not see edits to an imported package.
import os
from glob import glob
from importlib.metadata import version
from pathlib import Path

PROFILE = config.get("profile", "lab")
PROFILE_FILE = f"data/profiles/{PROFILE}.yml"
ONLY = (config.get("only") or "").split()  # models, benchmarks or pages of the papers' tables
os.environ["MIALIB_PROFILE"] = PROFILE_FILE
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from replication.pipeline import needs as build, jobs
from replication.lab.source import corpora_of
from replication.profile import PAPER_TABLE, load_profile
from replication.pipeline.code import code_hash
from mialib.store import hash_of
from mialib.versions import versions_of

profile = load_profile(PROFILE_FILE)
OUT = f"build/{PROFILE}"
STORED = "data/lab/SHA256SUMS"  # it changes with each file of the stored lab

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
DURATIONS = build.load_durations(PROFILE)
# Nothing that a column's numbers hang on is kept with it, so its code counts; texts that are scored are in the cache.
COLUMN_CODE = code_hash("replication.studies.paper_tables") if COLUMNS else ""


OF_MODELS = ("torch", "transformers", "tokenizers")  # the libraries that make and run them


def versions(*packages):
    return [version(package) for package in packages]


def names_of(scored):
    """The model and the benchmark of a score."""
    return SCORED[f"{OUT}/scored/{scored}.json"]


def priority(rule, output):
    """The longest job goes first, so that no core is idle in the end."""
    return build.expected_seconds(build.job_name(rule, output), DURATIONS)


def notebook_of(page):
    return f"notebooks/{profile.notebooks[page].notebook}.ipynb"


localrules: all, page, book


# Each result is named, since Snakemake does not miss a file that only a file which exists was made of.
rule all:
    input:
        build.book_index(PROFILE),
        [path for name in NEEDS for path in (*build.made_files(PROFILE, name), *columns_of(name))],


onstart:
    if workflow.executor_plugin.name == "slurm":
        jobs.check_processors(
            (job.rule.name, job.resources.get("slurm_partition", ""), job.resources.get("cpus_per_task", job.threads))
            for job in workflow.dag.needrun_jobs()
            if not job.is_local
        )


# Scores know themselves whether they are up to date. What Snakemake keeps is a receipt: it removes a rule's outputs
# before it runs it.
rule score:
    input: STORED,
    output: f"{OUT}/scored/{{scored}}.json",
    log: f"{OUT}/logs/score-{{scored}}.log",
    params:
        names=lambda w: names_of(w.scored),
        recipes=lambda w: build.recipes_hash(profile, names_of(w.scored)[:1], corpora_of(names_of(w.scored)[1])),
        made_by=hash_of([versions_of("scoring"), *versions(*OF_MODELS)]),
    priority: lambda w: priority("score", f"{OUT}/scored/{w.scored}.json")
    run:
        jobs.run(build.job_name("score", output[0]), jobs.score, *params.names, output[0], log=log[0])


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
    run:
        jobs.run(build.job_name("column", output[0]), jobs.column, wildcards.page, params.name, output[0], log=log[0])


rule notebook:
    input:
        lambda w: [build.score_receipt(PROFILE, *pair) for pair in NEEDS[w.notebook].scored] + columns_of(w.notebook),
        lambda w: [asked(w.notebook)] if w.notebook in FIGURES else [],
        lambda w: NEEDS[w.notebook].files,
        lambda w: notebook_of(w.notebook),
        STORED,
        "data/published.csv",
        "data/claims.yml",
        "data/models.yml",
        "data/benchmarks.yml",
        glob("data/revisions.yml"),
        glob("data/recorded/**/*.parquet", recursive=True) + glob("data/recorded/*.json"),
    output:
        build.made_files(PROFILE, "{notebook}"),
    log: f"{OUT}/logs/notebook-{{notebook}}.log",
    params:
        parameters=lambda w: hash_of(profile.notebooks[w.notebook].model_dump()),
        recipes=lambda w: build.recipes_hash(profile, NEEDS[w.notebook].models, NEEDS[w.notebook].corpora),
        code=lambda w: code_hash("replication.pipeline.notebooks", *NEEDS[w.notebook].modules),
        versions=hash_of(versions("numpy", "scipy", "scikit-learn", "matplotlib", "jieba", *OF_MODELS)),
        computed=lambda w: f"{OUT}/columns/{w.notebook}" if profile.notebooks[w.notebook].notebook == PAPER_TABLE else "",
        failed=f"{OUT}/logs/{{notebook}}.ipynb",
    priority: lambda w: priority("notebook", build.page_file(w.notebook))
    resources:
        gpu=lambda w: int(w.notebook in FIGURES),
    run:
        skipped = "it was not asked for in this run" if wildcards.notebook in FIGURES - ASKED else ""
        given = wildcards.notebook, *output, params.failed, params.computed, skipped
        jobs.run(build.job_name("notebook", output[0]), jobs.notebook, *given, log=log[0])


# What the book is made of besides its pages. report.py writes three lists of results.
TEXT = ["_config.yml", "CITATION.cff", *(f"book/replication/pipeline/{name}.py" for name in ("theme", "report", "slides", "student")), PROFILE_FILE]
TEXT += [path for pattern in ("*.md", "*.bib", "figures/*", "_static/*") for path in sorted(glob(f"book/{pattern}"))]


rule book:
    input: [build.page_file(name) for name in profile.notebooks], TEXT,
    output: build.book_index(PROFILE),
    log: f"{OUT}/logs/book.log",
    run:
        jobs.run("book", jobs.book, output[0], log=log[0])


rule page:
    input: build.page_file("{notebook}"), TEXT,
    output: build.single_page(PROFILE, "{notebook}"),
    log: f"{OUT}/logs/page-{{notebook}}.log",
    run:
        jobs.run(build.job_name("page", output[0]), jobs.book, output[0], wildcards.notebook, log=log[0])
