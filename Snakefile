# The pipeline: corpus -> train -> score -> notebook -> book. `make book` runs it; so does `snakemake --cores 2`.
# Each stage is a command that a person can type (`mialib --help`). Snakemake knows what is stale: inputs by their time,
# recipes and code by the `params:` below, since it does not see edits to an imported package.
import os
from glob import glob
from pathlib import Path

PROFILE = config.get("profile", "lab")
PROFILE_FILE = f"data/profiles/{PROFILE}.yml"
ONLY = (config.get("only") or "").split()  # models, benchmarks or pages of the papers' tables
os.environ["MIALIB_PROFILE"] = PROFILE_FILE
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from mialib.config import PAPER_TABLE, load_profile
from mialib.lab import corpora_of, corpora_of_recipe, corpus_made_by, model_made_by
from mialib.notebooks import NOTEBOOKS
from mialib.store import code_hash, hash_files, hash_of, PACKAGE
from mialib.token_stats import MADE_BY

profile = load_profile(PROFILE_FILE)
OUT = f"build/{PROFILE}"
MODELS = {safe: name for name in profile.models for safe in [name.replace("/", "--")]}
CORPORA = {name.removeprefix("lab/"): name for name in profile.corpora}
BENCHMARKS = {name.replace("/", "--"): name for model in profile.models.values() for name in model.benchmarks}

COLUMNS = {}
# Only where they are needed: each job's own Snakemake reads this file, and would load half a second's worth of modules.
if ONLY or any(page.notebook == PAPER_TABLE for page in profile.notebooks.values()):
    from mialib import paper_tables

    COLUMNS = {
        (page, paper_tables.file_name(name)): (name, column)
        for page, name, column in paper_tables.choose_columns(profile, ONLY)
    }
SCORE_CODE = code_hash(*MADE_BY, "benchmarks")
# What a column's numbers hang on: not how the lab is made. Scored texts are kept, so that making one anew takes little.
COLUMN_CODE = code_hash(
    *MADE_BY, "api", "benchmarks", "published_benchmarks", "cache", "detectors", "evaluate", "metrics", "surp", "probe",
    "probed", "blind", "leaks", "training", "neighbors", "frequency", "reference", "choose", "unseen", "paper_tables", "hub", "registry",
)
NOTEBOOK_CODE = hash_files(PACKAGE.glob("*.py"))


def made_from(model):
    """The files that a lab model's recipe starts from: its corpus, or the model that it unlearns."""
    entry = profile.models[f"lab/{model}"]
    if entry.unlearn:
        return trained(entry.unlearn.base)
    return [path for corpus in corpora_of_recipe(entry.recipe) for path in dealt(corpus)]


def trained(name):
    """The receipt of a lab model's training; nothing for a model from elsewhere."""
    return [f"build/lab/models/{name.removeprefix('lab/')}.json"] if name.startswith("lab/") else []


def dealt(name):
    """The receipts of a lab benchmark's corpora; the file itself for one that is a file; none of a published one."""
    if name.startswith("lab/"):
        return [f"build/lab/corpora/{corpus.removeprefix('lab/')}.json" for corpus in corpora_of(name)]
    return [name] if os.path.isfile(name) else []


def is_paper_table(page):
    """Whether a page is made of columns that jobs of their own compute."""
    return profile.notebooks[page].notebook == PAPER_TABLE


def columns_of(page):
    """The files of the columns of a page that are asked for. It also shows what it finds of earlier runs."""
    return [f"{OUT}/columns/{page}/{column}.json" for of, column in COLUMNS if of == page]


def asked(page, column):
    """The file whose time says when a column was asked for: one that is newer than the column has it made again."""
    return f"{OUT}/asked/{page}/{column}"


# What could not be had is tried again in each run that asks for it. Not by the jobs' own Snakemakes, which read this
# file as well.
if workflow.is_main_process:
    for page, column in COLUMNS:
        path, stamp = Path(f"{OUT}/columns/{page}/{column}.json"), Path(asked(page, column))
        if not stamp.is_file() or (path.is_file() and not paper_tables.is_whole(path)):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text("the time of this file counts\n")  # not empty: of small files Snakemake compares the content


localrules: all, toc


rule all:
    input: f"{OUT}/book/_build/html/index.html",


# Corpora and models know themselves whether they are up to date. What Snakemake keeps is a receipt: it removes a rule's
# outputs before it runs it, and would remove a trained model whose corpus was only gathered anew.
rule corpus:
    output: "build/lab/corpora/{corpus}.json",
    params:
        recipe=lambda w: hash_of(profile.corpora[CORPORA[w.corpus]].model_dump()),
        made_by=lambda w: hash_of(corpus_made_by(profile.corpora[CORPORA[w.corpus]])),
    shell: "mialib lab corpus lab/{wildcards.corpus} --receipt {output}"


rule train:
    input: lambda w: made_from(w.model),
    output: "build/lab/models/{model}.json",
    params:
        recipe=lambda w: hash_of(profile.models[f"lab/{w.model}"].recipe.model_dump()),
        made_by=hash_of(model_made_by()),
    threads: 1
    priority: 10
    shell: "mialib lab train lab/{wildcards.model} --receipt {output}"


rule score:
    input:
        lambda w: trained(MODELS[w.model]),
        lambda w: dealt(BENCHMARKS[w.benchmark]),
    output: f"{OUT}/scored/{{model}}-on-{{benchmark}}.json",
    params:
        model=lambda w: MODELS[w.model],
        benchmark=lambda w: BENCHMARKS[w.benchmark],
        code=SCORE_CODE,
    shell: "mialib score {params.model} {params.benchmark} --receipt {output}"


rule column:
    input:
        lambda w: asked(w.page, w.column),
        "data/published.csv",
        "data/models.yml",
        "data/benchmarks.yml",
        glob("data/revisions.yml"),
    output: f"{OUT}/columns/{{page}}/{{column}}.json",
    params:
        name=lambda w: COLUMNS[w.page, w.column][0],
        made_of=lambda w: hash_of(COLUMNS[w.page, w.column][1].model_dump()),
        printed_in=lambda w: hash_of([profile.notebooks[w.page].parameters[name] for name in ("paper", "items")]),
        code=COLUMN_CODE,
    resources:
        gpu=1,
    shell: "mialib column {wildcards.page} {params.name:q} {output}"


rule notebook:
    input:
        lambda w: f"{NOTEBOOKS}/{profile.notebooks[w.notebook].notebook}.ipynb",
        lambda w: columns_of(w.notebook),
        "data/published.csv",
        "data/claims.yml",
        glob("data/recorded/**/*.parquet", recursive=True) + glob("data/recorded/*.json"),
        [trained(name) for name in profile.models],
        [
            f"{OUT}/scored/{name.replace('/', '--')}-on-{benchmark.replace('/', '--')}.json"
            for name, model in profile.models.items()
            for benchmark in model.benchmarks
        ],
    output:
        page="book/pages/{notebook}.ipynb",
        results=f"{OUT}/results/{{notebook}}.json",
    params:
        failed=f"{OUT}/logs/{{notebook}}.ipynb",
        computed=lambda w: f"--computed {OUT}/columns/{w.notebook}" if is_paper_table(w.notebook) else "",
        parameters=lambda w: hash_of(profile.notebooks[w.notebook].model_dump()),
        code=NOTEBOOK_CODE,
    # As many run side by side as there are cores; further threads would be in each other's way.
    threads: 1
    shell:
        "OMP_NUM_THREADS={threads} "
        "mialib notebook {wildcards.notebook} {output.page} --results {output.results} --failed {params.failed}"
        " {params.computed}"


rule toc:
    input: PROFILE_FILE,
    output: f"{OUT}/_toc.yml",
    shell: "mialib toc {output}"


rule book:
    input:
        "_config.yml",
        f"{OUT}/_toc.yml",
        [f"book/pages/{name}.ipynb" for name in profile.notebooks],
        [path for pattern in ("*.md", "*.bib", "figures/*", "_static/*") for path in sorted(glob(f"book/{pattern}"))],
    output: f"{OUT}/book/_build/html/index.html",
    log: f"{OUT}/logs/book.log",
    shell:
        'jupyter-book build book --config _config.yml --toc "$PWD/{input[1]}" --path-output {OUT}/book'
        " -n -W --keep-going > {log} 2>&1 || (tail -n 60 {log} && exit 1)"
