"""The commands that the book's package adds to `mialib`: building the book, recording, benchmarks of today."""

import json
import logging
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from mialib.commands.cli import (
    DtypeOption,
    Fresh,
    ModelOption,
    StartToken,
    TextsArgument,
    app,
    check_output,
    target_of,
)
from mialib.commands.output import say
from replication import BOOK_DATA

SNAKEMAKE = ["--rerun-incomplete", "--show-failed-logs", "--quiet", "reason", "host", "--scheduler", "greedy"]
SNAKEMAKE += ["--resources", "gpu=1", "--max-checksum-file-size", "0"]
DAY = {"formats": ["%Y-%m-%d"], "metavar": "YYYY-MM-DD"}
MONTH = {"formats": ["%Y-%m-%d", "%Y-%m"], "metavar": "YYYY-MM[-DD]"}
lab_app = typer.Typer(no_args_is_help=True, help="Models whose training set is known by coin flip.")
app.add_typer(lab_app, name="lab")


def n_cores() -> int:
    """The cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@app.command("build", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def build_command(
    context: typer.Context,
    page: Annotated[str, typer.Option(help="one page alone, and only what it needs; default: the book")] = "",
    profile: Annotated[str, typer.Option(help="lab, recorded or paper: a file of data/profiles/")] = "lab",
    only: Annotated[str, typer.Option(help="of the papers' tables only these models, benchmarks or pages")] = "",
    cores: Annotated[int, typer.Option(min=0, help="jobs at once; 0: as many as there are cores")] = 0,
) -> None:
    """Build the book, or one page of it: score and run what is not there or stale, and render it.

    Other options are Snakemake's: -n says what would be run, --unlock removes the lock of a build that was killed.
    """
    from replication.pipeline.notebooks import clone
    from replication.profile import check_names, load_profile

    root = clone()
    pages = load_profile(root / "data" / "profiles" / f"{profile}.yml").notebooks
    check_names([page] if page else [], pages, f"profile {profile} has no page of a notebook")
    config = ["--config", f"profile={profile}", f"only={only}", f"page={page}"]
    os.chdir(root)
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores or n_cores()), *SNAKEMAKE, *config]
    os.execv(sys.executable, [*command, *context.args])


@app.command("notebook")
def notebook_command(
    name: Annotated[str, typer.Argument(help="a page of the profile that a notebook makes")],
    output: Annotated[Path, typer.Argument(dir_okay=False, help="where the executed notebook goes")],
    results: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="where its results go, as JSON; default: beside it, with the ending .json"),
    ] = None,
    failed: Annotated[Path, typer.Option(dir_okay=False, help="where the partial copy goes if a cell fails")] = Path(
        "failed.ipynb"
    ),
    computed: Annotated[Path | None, typer.Option(help="a folder of a paper's columns that are computed")] = None,
) -> None:
    """Make a page: execute its notebook with the profile's parameters; one that it does not have is an error."""
    from replication.pipeline.notebooks import run_notebook
    from replication.profile import load_profile

    results = results or output.with_suffix(".json")
    run_notebook(name, load_profile(), output=output, failed=failed, results=results, computed=computed)
    say(f"{output}; its results: {results}")


@app.command("grade")
def grade_command(
    submissions: Annotated[
        list[Path], typer.Argument(help="files that the editor in a page saved, or folders of them")
    ],
) -> None:
    """Rank detectors that were written in a page of the book, on the texts whose labels the page does not have."""
    from mialib.commands.output import as_columns
    from replication.studies import playground

    names = {  # by file: as it was given, or what is below a folder
        path: str(path.relative_to(given) if given.is_dir() else given)
        for given in submissions
        for path in (sorted(filter(Path.is_file, given.rglob("*"))) if given.is_dir() else [given])
    }
    judged, refused = playground.grade(names)
    for path, why in refused.items():
        say(f"not judged: {names[path]}: {why}", err=True)
    if not judged:
        raise ValueError("no file of scores was judged")
    ranked = sorted(judged, key=lambda path: -judged[path].estimate)
    places = {path: 1 + sum(of.estimate > judged[path].estimate for of in judged.values()) for path in ranked}
    columns = {"place": {names[path]: str(places[path]) for path in ranked}}
    say(as_columns(columns | {"AUC on the other texts": {names[path]: str(judged[path]) for path in ranked}}))


@app.command()
def student(
    pages: Annotated[
        list[str] | None, typer.Argument(metavar="[PAGE]...", help="names from notebooks/; default: all of them")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", file_okay=False, help="the folder; below it student/ and solution/")
    ] = Path("handout"),
) -> None:
    """Write notebooks for students, without any solution, and the same with the solutions.

    A code cell tagged `exercise` stays as a stub, the one tagged `check` tells whether it is done, and the one tagged
    `solution` is left out, as are solutions in the text, all outputs and all metadata.
    """
    from replication.pipeline.notebooks import NOTEBOOKS, clone
    from replication.pipeline.student import write_builds
    from replication.profile import check_names

    clone()
    paths = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    check_names(pages or [], paths, f"{NOTEBOOKS} has no notebook")
    written = write_builds([paths[page] for page in pages or paths], output)
    say(f"{output}: {len(written)} notebooks, half of them for students and half with the solutions")


@app.command("slides")
def slides_command(
    pages: Annotated[
        list[str] | None, typer.Argument(metavar="[PAGE]...", help="pages in the order to show; default: the book's")
    ] = None,
    lesson: Annotated[int | None, typer.Option(min=1, help="the slides of this lesson, with notes")] = None,
    output: Annotated[Path, typer.Option("--output", dir_okay=False, help="the HTML file to write")] = Path(
        "slides.html"
    ),
) -> None:
    """Write a lesson, or all figures and equations of a finished build, as slides: one HTML file without others."""
    from mialib.store import atomic_path
    from replication.pipeline import slides as slide_show
    from replication.pipeline.notebooks import clone
    from replication.profile import check_names, load_profile

    if pages and lesson:
        raise ValueError("give pages or --lesson, not both")
    folder, of_book = clone() / "book" / "pages", load_profile().notebooks
    if lesson:
        title, shown = slide_show.lesson(lesson, folder)
    else:
        check_names(pages or (), of_book, "the book has no page of a notebook")
        files = [folder / f"{page}.ipynb" for page in pages or of_book]
        for missing in (file for file in files if not file.is_file()):
            logging.info("%s: left out, since it has not run", missing.stem)
        title = "Was this text in the training data?"
        shown = [slide for file in files if file.is_file() for slide in slide_show.slides_of(file)]
    if not shown:
        raise ValueError(f"{folder} holds no figure of these pages: run `mialib build` first")
    with atomic_path(output) as temporary:
        temporary.write_text(slide_show.slides(shown, title), encoding="utf-8")
    say(f"{output}: {len(shown)} slides")


@app.command()
def pdf(
    lesson: Annotated[int | None, typer.Option(min=1, help="the slides of this lesson with their notes")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", dir_okay=False, help="the PDF to write; default: book.pdf or lesson1.pdf")
    ] = None,
) -> None:
    """Print the finished book, or a lesson, by this machine's browser: folds are open, folded code is left out."""
    from replication.pipeline import slides as slide_show
    from replication.pipeline.needs import book_index, check_pages
    from replication.pipeline.notebooks import clone
    from replication.pipeline.pdf import one_page, print_page
    from replication.profile import load_profile

    profile, root = load_profile(), clone()
    output = output or Path(f"lesson{lesson}.pdf" if lesson else "book.pdf")
    if lesson:
        title, shown = slide_show.lesson(lesson, root / "book" / "pages")
        print_page(slide_show.slides(shown, title, on_paper=True), output.with_suffix(".html"), output)
    else:
        html = (root / book_index(profile.name)).parent
        check_pages(html, profile)
        print_page(one_page(html, [page.file for page in profile.pages]), html / "whole_book.html", output)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


@app.command("column")
def column_command(
    page: Annotated[str, typer.Argument(help="a page of the profile with a paper's table")],
    name: Annotated[str, typer.Argument(help="the column, as the paper prints it")],
    output: Annotated[Path, typer.Argument(dir_okay=False, help="where its numbers go, as JSON")],
) -> None:
    """Compute one column of a paper's table, or write down why that can't be done here."""
    from replication.pipeline import jobs

    jobs.column(page, name, str(output))


@app.command()
def plan(
    only: Annotated[list[str] | None, typer.Argument(help="models, benchmarks or pages; default: all")] = None,
    texts: Annotated[Path | None, typer.Option(help="say what scoring a file of texts takes instead")] = None,
    model: Annotated[str, typer.Option(help="the model to score them with")] = "smollm2-135m",
) -> None:
    """Say how long the profile's book takes here and what its papers' tables take; or what a file of texts does."""
    from mialib.shared.files import load_texts
    from replication.pipeline.estimate import describe_time, durations
    from replication.pipeline.plan import describe_plan, describe_texts, plan_columns, plan_downloads
    from replication.profile import load_profile

    if texts:
        return say(describe_texts(model, load_texts(texts), str(texts)))
    profile = load_profile()
    columns, downloads = plan_columns(profile, only or []), plan_downloads(profile, only or [])
    say(describe_plan(columns, downloads) if downloads else f"profile {profile.name} takes nothing from elsewhere")
    if not only and (jobs := [job for job in durations(profile.name) if not job.startswith("page ")]):
        say(describe_time(profile.name, jobs, n_cores()))


@app.command("lock")
def lock_command() -> None:
    """Ask the hub for the commit of each model and data set of the registry and pin it in data/revisions.yml."""
    from mialib.catalog.corpora import HUB_CORPORA
    from mialib.catalog.hub import PINS
    from mialib.catalog.registry import known_benchmarks, known_models
    from replication.pipeline.pins import pin

    models = [known.tokenizer if known.access == "api" else name for name, known in known_models().items()]
    data = [known.hub_id for known in known_benchmarks().values()]
    data += [known.hub_id for known in HUB_CORPORA.values()]
    pins, lacking = pin({"model": [name for name in models if name], "dataset": [name for name in data if name]})
    for problem in lacking:
        say(f"not pinned: {problem}", err=True)
    if not pins:
        raise ConnectionError("nothing could be pinned")
    say(f"{sum(map(len, pins.values()))} commits in {PINS}; {len(lacking)} names could not be had")


@app.command("record")
def record_command(
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="training seeds to record; default 0, 1, 2")] = None,
) -> None:
    """Train and score the seeds behind the claims' verdicts and the ranking, into data/recorded/."""
    from replication import recorded
    from replication.claims import scores
    from replication.claims.spec import load_claims
    from replication.pipeline.notebooks import clone
    from replication.studies import ranking

    clone()
    of_seeds = seeds or [0, 1, 2]
    recorded.write_recorded(ranking.RECORDED_FILE, ranking.rank_rows(of_seeds))
    recorded.write_recorded(scores.RECORDED_FILE, scores.seed_rows(load_claims(), of_seeds))


@app.command("record-lab")
def record_lab(
    models: Annotated[
        list[str] | None, typer.Argument(help="of the profile recorded.yml; all, if none is named")
    ] = None,
) -> None:
    """Train and score the recorded ladder, where it is not yet in data/recorded/lab/; go on where that broke off."""
    from replication.pipeline.notebooks import clone
    from replication.recorded import LADDER_FOLDER
    from replication.studies import ladder

    clone()
    os.environ["MIALIB_PROFILE"] = str(ladder.PROFILE)
    for path in ladder.record_ladder(models or (), LADDER_FOLDER):
        say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    left = [f"{name}@{seed}" for name, seed in ladder.find_left(LADDER_FOLDER)]
    say(f"left to record: {', '.join(left) or 'nothing'}")


@app.command("record-passes")
def record_passes_command(
    models: Annotated[list[str] | None, typer.Argument(help="by default those of the profile real.yml")] = None,
    benchmark: Annotated[list[str] | None, typer.Option(help="by default WikiMIA at each length, and ArxivMIA")] = None,
) -> None:
    """Write what real models make of published benchmarks, token by token, into data/recorded/real/.

    Passes and counts are cached: `mialib score` makes one beforehand, if you like in parts.
    """
    from replication import real
    from replication.pipeline.notebooks import clone
    from replication.profile import load_profile

    clone()
    profile = load_profile(BOOK_DATA / "profiles" / "real.yml")
    for path in real.record_passes(models or list(profile.models), benchmark or real.BENCHMARKS, real.CORPORA):
        say(f"{path.relative_to(real.FOLDER)}: {path.stat().st_size / 1e3:.0f} kB")


@app.command("record-real")
def record_real(
    benchmarks: Annotated[
        list[str] | None, typer.Argument(help="further files of labelled texts, such as docstrings-64.jsonl")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="a file of `construct docstrings --pairs`; records it alone")
    ] = None,
    quarters: Annotated[Path | None, typer.Option(help="a file of `construct docstrings --since`; the same")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="of pairs and quarters, each of several; as for detect")
    ] = None,
) -> None:
    """Copy what the probe found in `make book PROFILE=real`, and each text's scores, into data/recorded/real/."""
    from mialib.store import home
    from replication import real, real_model
    from replication.pipeline.notebooks import clone
    from replication.studies import cut_off

    clone()
    if pairs or quarters:
        written = cut_off.record_docstrings(pairs, quarters, model or [real_model.MODEL])
    else:
        written = real_model.record(home() / "real" / "results", [*real.BENCHMARKS, *(benchmarks or ())])
    for path in written:
        say(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


@app.command()
def view(
    texts: TextsArgument,
    model: ModelOption,
    output: Annotated[Path, typer.Option("--output", "-o", dir_okay=False, help="the .html file to write")],
    by: Annotated[list[str] | None, typer.Option(help="log_prob, surprise, dc_pdd; default: all that can")] = None,
    corpus: Annotated[
        str | None, typer.Option(help="a reference corpus, for dc_pdd: a file of texts, or a name such as lab/en")
    ] = None,
    start_token: StartToken = "auto",
    dtype: DtypeOption = "auto",
    fresh: Fresh = False,
) -> None:
    """Write texts as an HTML page, each token shaded by what a detector sees in it, its numbers on hover and focus.

    log_prob: Min-K% Prob. surprise: SURP. dc_pdd: DC-PDD. Tokens that count for the detector's score are framed.
    """
    from mialib.cache import start_fresh
    from replication import token_view

    if fresh:
        start_fresh()
    check_output(output, texts, corpus, model)
    target = target_of(texts, model=model, start_token=start_token, corpus=corpus, dtype=dtype)
    n, ways = token_view.write_page(texts, target, by or (), output)
    say(f"{output}: {n} texts, coloured by {', '.join(ways)}")


@lab_app.command("texts")
def lab_texts(
    name: Annotated[
        str,
        typer.Argument(
            help="a corpus such as lab/en, one of its roles (lab/en:reference), or members of one and non-members of "
            "another (lab/en~lab/elsewhere)"
        ),
    ],
    sample: Annotated[
        int | None, typer.Option(min=1, help="so many at random, half of them members; default all")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the random choice")] = 0,
) -> None:
    """Write members and non-members of the lab as JSON lines, each with its label (1 = member)."""
    from replication.lab.source import rows_to_write

    for row in rows_to_write(name, sample, seed):
        say(json.dumps(row))  # in ASCII: a terminal obeys none of it, and nothing has to be left out


@lab_app.command("build")
def lab_build(
    names: Annotated[list[str] | None, typer.Argument(help="corpora and models of the profile; default all")] = None,
    cores: Annotated[int, typer.Option(min=0, help="0: all of this machine")] = 0,
    store: Annotated[bool, typer.Option("--store", help="put what was made into data/lab, for the repository")] = False,
) -> None:
    """Deal out the lab's texts and train its models again, and say how they compare with those in data/lab."""
    from replication.lab import building
    from replication.lab.recipes import load_recipes
    from replication.lab.source import lab_recipe

    recipes = load_recipes()
    for name in names or ():
        if name not in recipes.corpora:
            lab_recipe(name)  # ValueError where there is no such model
    chosen = names or [*recipes.corpora, *(name for name, model in recipes.models.items() if model.recipe)]
    far = []
    for kind, group in building.in_order(chosen):
        done, make = [], building.deal if kind == "corpora" else building.train_anew
        for made in building.side_by_side(make, group, cores or n_cores()):
            say(f"{made.name}: {made.says}")
            done.append(made)
        if store:
            building.store(kind, done)
            building.write_sums()
        far += [made.name for made in done if made.is_far]
    if store:
        say("stored; `mialib record` scores the seeds behind claims and ranking with these models")
    elif far:
        raise ValueError(f"not the lab that is stored: {', '.join(far)}")


@app.command()
def construct(
    kind: Annotated[str, typer.Argument(help="wikimia, patentmia, arxivmia, dolmabook or docstrings")],
    out: Annotated[Path, typer.Argument(file_okay=False, help="the folder to write the benchmark and its card to")],
    members_before: Annotated[datetime | None, typer.Option(help="members are from before this day", **DAY)] = None,
    non_members_after: Annotated[
        datetime | None, typer.Option(help="non-members are from after this day", **DAY)
    ] = None,
    released_before: Annotated[
        datetime | None, typer.Option(help="docstrings: members were released before this day or month", **MONTH)
    ] = None,
    packages: Annotated[str, typer.Option(help="docstrings: names in the package index: numpy,scipy")] = "",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="docstrings: two versions of one docstring, before the date and rewritten")
    ] = False,
    since: Annotated[
        datetime | None,
        typer.Option(help="docstrings: by the quarter of their first release, from this one on", **MONTH),
    ] = None,
    contact: Annotated[
        str, typer.Option(envvar="MIALIB_CONTACT", help="your address, for who runs the service; docstrings: optional")
    ] = "",
    texts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="members, and as many non-members; arxivmia: of a category, docstrings: of a package (with --since: "
            "at most of a package and quarter); default: 250, docstrings: all",
        ),
    ] = None,
    length: Annotated[
        list[int] | None,
        typer.Option(min=1, help="words; wikimia: default 32, 64, 128, 256, docstrings: default 64"),
    ] = None,
    publications: Annotated[Path | None, typer.Option(help="patentmia: a file of Chinese numbers, one a line")] = None,
    category: Annotated[list[str] | None, typer.Option(help="arxivmia: an archive or category: cs, math.AG")] = None,
    seed: Annotated[int, typer.Option(help="draws pages and snippets")] = 0,
    gap_seconds: Annotated[float | None, typer.Option(min=0, help="between requests; default: 1 to 3, by kind")] = None,
) -> None:
    """Build a fresh benchmark, from pages before and after a date, with a data card.

    wikimia: Wikipedia's pages about events. patentmia: Chinese patents. arxivmia: abstracts. dolmabook: old books.
    docstrings: those of Python packages that have not changed since a date, against new ones.
    """
    from replication.builders import construct as builders
    from replication.builders.fetch import Fetcher
    from replication.builders.sources import Dates
    from replication.profile import check_names

    by_date = {"members-before": members_before, "non-members-after": non_members_after}
    given: dict[str, Any] = {**by_date, "released-before": released_before, "length": length, "category": category}
    given |= {
        "packages": packages.replace(",", " ").split(),
        "publications": publications,
        "pairs": pairs,
        "since": since,
    }
    needs = {"wikimia": [*by_date], "patentmia": [*by_date, "publications"], "arxivmia": [*by_date, "category"]}
    needs |= {"dolmabook": [*by_date], "docstrings": ["released-before", "packages"]}
    check_names([kind], needs, "there is no kind of benchmark")
    takes = {*needs[kind], *{"wikimia": ["length"], "docstrings": ["length", "pairs", "since"]}.get(kind, [])}
    if wrong := [name for name, value in given.items() if value and name not in takes]:
        raise ValueError(f"{kind} takes no --{wrong[0]}")
    if lacking := [name for name in needs[kind] if not given[name]]:
        raise ValueError(f"{kind} needs --{lacking[0]}")
    fetcher = Fetcher(contact or None if kind == "docstrings" else contact, gap_seconds)
    if kind == "docstrings":
        day, lengths = given["released-before"].date(), length or builders.DOCSTRING_LENGTHS
        of = since.date() if since else None
        builders.docstrings(out, fetcher, day, given["packages"], texts, lengths, seed, pairs=pairs, since=of)
    else:
        dates = Dates(*(given[name].date() for name in by_date))
        more = {"wikimia": length or builders.WIKIMIA_LENGTHS, "patentmia": publications, "arxivmia": category}
        build = getattr(builders, kind)
        build(out, fetcher, dates, texts or 250, *([more[kind]] if kind in more else []), seed=seed)
    files = ", ".join(sorted(path.name for path in out.glob("*.jsonl")))
    say(f"{out}: {files}; what is in them, and how fair the split is: {out / 'README.md'}")


@app.command()
def bench(
    geometry: Annotated[
        list[str] | None, typer.Option(help="a model's sizes, such as pythia-70m; default: one that fits")
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="how many texts, of 30 to 260 tokens")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="how often each way is timed, in turns")] = 5,
    threads: Annotated[int | None, typer.Option(min=1, help="of the processor")] = None,
    dtype: Annotated[str, typer.Option(help="the weights' type; default: as for scoring")] = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="where all that was measured goes")
    ] = None,
) -> None:
    """Time scoring on this machine, beside the bare forward pass and a loop over single texts.

    The models have random weights, so nothing is downloaded.
    """
    from dataclasses import asdict

    from mialib.models import pick_device
    from mialib.store import write_json
    from replication.studies import bench as speed
    from replication.tables import as_text

    measured = []
    for name in geometry or [speed.DEFAULT_GEOMETRY[pick_device().type]]:
        found = speed.time_ways(name, n_texts=texts, n_rounds=rounds, n_threads=threads, dtype=dtype)
        say(f"{as_text(speed.bench_table(found))}\n\n{speed.describe_bench(found)}\n")
        measured.append(asdict(found))
    if json_file:
        write_json(json_file, measured)


@app.command()
def coverage(
    simulations: Annotated[int, typer.Option(min=1, help="of each case; 400 take about five minutes")] = 400,
    seed: Annotated[int, typer.Option(help="draws the scores")] = 0,
    keep: Annotated[bool, typer.Option("--record", help="keep them in data/recorded/ for the book")] = False,
) -> None:
    """How often the intervals hold the truth, and set p-values call what they should not: by simulation, in a clone."""
    from replication.pipeline.notebooks import clone

    sys.path.append(str(clone() / "tools"))
    from simulate_coverage import run

    run(simulations, seed, keep)


@app.command("record-blind")
def record_blind(
    benchmarks: Annotated[
        list[str] | None, typer.Argument(help="names such as wikimia-32; default: the book's")
    ] = None,
) -> None:
    """Measure the blind baselines of benchmarks, and keep them in data/recorded/ for machines without their texts."""
    from replication import blind_tables
    from replication.pipeline.notebooks import clone

    clone()
    blind_tables.record_baselines(benchmarks or blind_tables.RECORD)
