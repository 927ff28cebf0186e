"""The command line: each stage of the pipeline, and `mialib detect` for the person who just has a question."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replication.pipeline import jobs
from replication.pipeline import command as build

if TYPE_CHECKING:
    from mialib.passes.inputs import Target

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None
)
lab_app = typer.Typer(no_args_is_help=True, help="Models whose training set is known by coin flip.")
app.add_typer(lab_app, name="lab")
app.add_typer(build.app)
StartToken = Annotated[
    str, typer.Option(help="prepended to each text, so that its first token counts too: auto, none, or a token")
]


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print, with nothing in names and texts of others that a terminal would obey."""
    from mialib.text import printable

    typer.echo(printable(text), nl=nl, err=err)


def _make_anew(fresh: bool) -> bool:
    if fresh:
        from mialib.shared.kept import keep_nothing_of_before

        keep_nothing_of_before()
    return fresh


Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        callback=_make_anew,
        help="compute again what is kept. It is found by the content of texts, weights and tokenizer, the code and the "
        "libraries' versions; a large file's content is read again where its size or time has changed",
    ),
]
Detectors = Annotated[
    list[str] | None,
    typer.Option(help="detectors to run, also with commas between them; all: later ones too; default: the papers'"),
]
Hyperparameters = Annotated[list[str] | None, typer.Option("-o", help="a hyperparameter, such as min_k.k=10")]
MODEL_HELP = (
    "a Hugging Face name, a folder, a lab model such as lab/en-25k, api:NAME, or logprobs:FILE.jsonl, a file of "
    "log-probs that were computed elsewhere"
)
TextsArgument = Annotated[
    Path,
    typer.Argument(
        help="a file of texts: .jsonl, .json, .parquet, .csv, .tsv, or .txt with one a line, each as .gz too; - for "
        "standard input, whose form is told by how it begins"
    ),
]
ModelOption = Annotated[str, typer.Option("--model", help=MODEL_HELP)]
Reference = Annotated[str | None, typer.Option(help="a smaller model, for ref, wbc and ez_mia")]
CorpusOption = Annotated[
    str | None, typer.Option(help="a reference corpus, for dc_pdd: a file of texts, or a name such as lab/en")
]
NonMemberPrefix = Annotated[
    str | None, typer.Option(help="known non-members to read before each text, for recall: a file, or a corpus's name")
]
MemberPrefix = Annotated[str | None, typer.Option(help="known members to read before each text, for con_recall")]
Shots = Annotated[int, typer.Option(min=1, help="how many of them are read before each text")]
DAY = {"formats": ["%Y-%m-%d"], "metavar": "YYYY-MM-DD"}


@app.callback()
def _set_up() -> None:
    jobs.log_plainly()


def _target(
    texts: Path | str,
    model: str,
    start_token: str,
    reference: str | None = None,
    corpus: str | None = None,
    non_member_prefix: str | None = None,
    member_prefix: str | None = None,
    shots: int = 7,
    **others: Any,
) -> Target:
    """What commands score, of their options; `others` are further fields of a target."""
    from mialib.passes.inputs import Target

    return Target(
        model=model,
        benchmark=str(texts),
        reference=reference,
        corpus=corpus,
        non_member_prefix=non_member_prefix,
        member_prefix=member_prefix,
        n_shots=shots,
        start_token=start_token,
        **others,
    )


def _refuse_to_overwrite(output: Path, *read: str | Path | None) -> None:
    """ValueError where what is written would take the place of a file that is read; names are of no file."""
    from mialib.catalog.logprobs import LOGPROBS

    paths = [Path(str(path).removeprefix(LOGPROBS)) for path in read if path]
    if output.exists() and any(path.exists() and output.samefile(path) for path in paths):
        raise ValueError(f"--output {output}: this file is read, and would be overwritten; give another name")


def _check_read_once(*read: Path | str | None) -> None:
    """ValueError where two files are to be read from standard input, which can be read once."""
    if sum(str(path) == "-" for path in read) > 1:
        raise ValueError("-: standard input can be read once, and stands for several files; give the others by name")


def _check_stdout_is_open() -> None:
    """ValueError where standard output is closed, before anything is computed that would only be printed."""
    if sys.__stdout__ is None:
        raise ValueError("standard output is closed, so there is nowhere to print; write to a file or another command")


@app.command()
def detect(
    texts: TextsArgument,
    model: ModelOption,
    detector: Detectors = None,
    option: Hyperparameters = None,
    reference: Reference = None,
    corpus: CorpusOption = None,
    masked: Annotated[str | None, typer.Option(help="a masked model such as roberta-base, for neighbor")] = None,
    n_neighbors: Annotated[int, typer.Option(min=1, help="how many neighbors a text has")] = 100,
    non_member_prefix: NonMemberPrefix = None,
    member_prefix: MemberPrefix = None,
    shots: Shots = 7,
    calibrate: Annotated[
        Path | None, typer.Option(help="a file of known non-members like the texts; of a labelled one, its label 0")
    ] = None,
    fpr: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of them that may be called members; default 0.05")
    ] = None,
    start_token: StartToken = "auto",
    fresh: Fresh = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a text")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="a file for it: .csv and .jsonl hold numbers alone")
    ] = None,
) -> None:
    """Score texts: was each in the model's training data? Higher means more likely.

    With --calibrate, each score gets a p-value (the share of known non-members that score as high) and a star where
    it is at most --fpr. Below the table: the interval of the true FPR, and one p-value for all texts as a set. --json
    repeats these two with each text, as `thresholds` and `set_p_values`. Texts with labels (1 = member) get an AUC.
    """
    from mialib.commands.detection import (
        as_csv,
        as_json_lines,
        as_table,
        detect_texts,
        load_labelled,
        parse_options,
        split_names,
    )
    from mialib.store import atomic_path

    prefixes = non_member_prefix, member_prefix, shots
    target = _target(texts, model, start_token, reference, corpus, *prefixes, masked=masked, n_neighbors=n_neighbors)
    _check_read_once(texts, calibrate, corpus, non_member_prefix, member_prefix)
    if output and (output.is_dir() or output.suffix not in (".csv", ".jsonl", ".json", ".txt")):
        raise ValueError(f"--output {output}: a file ending in .csv, .jsonl, .json or .txt is expected")
    if output:
        _refuse_to_overwrite(output, texts, calibrate, corpus, non_member_prefix, member_prefix, model, reference)
    else:
        _check_stdout_is_open()
    (loaded, labels), names, options = load_labelled(texts), split_names(detector or []), parse_options(option or [])
    detection = detect_texts(loaded, target, names, calibrate, fpr, options, labels)
    suffix = output.suffix if output else ""
    if as_json or suffix in (".json", ".jsonl"):
        lines = as_json_lines(detection)
    else:
        lines = as_csv(detection) if suffix == ".csv" else as_table(detection, loaded, calibrate)
    if output:
        with atomic_path(output) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return
    for line in lines:
        say(line)


@app.command()
def detectors() -> None:
    """List the detectors: what each computes, who proposed it, what it needs and its hyperparameters."""
    from mialib.detectors import DETECTORS
    from mialib.passes.inputs import NEEDS

    for name, known in DETECTORS.items():
        say(f"{name:15} {known.label}, {known.source}" + (", since the four papers" if known.is_later else ""))
        say(f"{'':15} {known.equation}")
        if wanted := [NEEDS[need].option for need in known.needs if NEEDS[need].option]:
            say(f"{'':15} needs {' and '.join(wanted)}")
        for option, of in known.options.items():
            say(f"{'':15} -o {name}.{option}={of.default}  {of.meaning}")


@app.command()
def audit(
    texts: Annotated[Path, typer.Argument(help="a file of texts, as for detect")],
    model: ModelOption,
    non_members: Annotated[
        Path, typer.Option(help="a file of texts like these that the model can't have seen; a column source helps")
    ],
    output: Annotated[
        Path, typer.Option("--output", help="a folder for report.html, report.json and, if it concludes, scores.csv")
    ],
    members: Annotated[Path | None, typer.Option(help="a file of texts like these that it has surely seen")] = None,
    detector: Detectors = None,
    option: Hyperparameters = None,
    reference: Reference = None,
    corpus: CorpusOption = None,
    non_member_prefix: NonMemberPrefix = None,
    member_prefix: MemberPrefix = None,
    shots: Shots = 7,
    fpr: Annotated[float, typer.Option(min=0, max=1, help="share of non-members that may be called members")] = 0.05,
    start_token: StartToken = "auto",
    fresh: Fresh = False,
) -> None:
    """Was this in the training data? A report with its own limits.

    First whether the texts and the known non-members can be told apart without the model: if so nothing is scored, the
    report says why it concludes nothing, and the exit code is 3. Then each text's p-value, the set's, what another
    start token gives, and how much such a set could show. The first detector decides, by default Min-K%++.
    """
    from mialib.commands import audit as auditing
    from mialib.commands.detection import parse_options, split_names

    _check_read_once(texts, non_members, members, corpus, non_member_prefix, member_prefix)
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: a folder is expected, and this is a file")
    for name in auditing.FILES:
        _refuse_to_overwrite(
            output / name, texts, non_members, members, corpus, non_member_prefix, member_prefix, model, reference
        )
    auditing.check_folder(output)
    target = _target(texts, model, start_token, reference, corpus, non_member_prefix, member_prefix, shots)
    report = auditing.audit(
        auditing.Texts.read(texts),
        target,
        auditing.Texts.read_known(non_members),
        auditing.Texts.read_known(members, label=1) if members else None,
        split_names(detector or []),
        fpr,
        parse_options(option or []),
    )
    paths = auditing.write(report, output)
    for line in (*report["verdict"]["said"], f"{', '.join(path.name for path in paths)} in {output}"):
        say(line)
    if not report["verdict"]["concludes"]:
        raise typer.Exit(3)


@app.command()
def blind(
    benchmarks: Annotated[list[str], typer.Argument(help="files of labelled texts, or names such as wikimia-32")],
) -> None:
    """Does a benchmark leak? How well the texts alone separate its members, with no model looked at."""
    import pandas as pd

    from mialib.catalog.benchmarks import load_benchmark
    from mialib.passes.leaks import AT_CHANCE, by_domain, explain_below, measure_leaks

    _check_stdout_is_open()
    for name in benchmarks:
        benchmark = load_benchmark(name)
        found = {part.name: measure_leaks(part) for part in by_domain(benchmark)}
        n_members, n_non_members = (int((benchmark.labels == label).sum()) for label in (1, 0))
        say(f"{name}: {n_members} members, {n_non_members} non-members. A fair benchmark's AUC is 0.5, its TPR 0.05.\n")
        for metric, title in zip(AT_CHANCE, ("AUC", "TPR at 5% FPR"), strict=True):
            cells = {part: {of.label: str(of) for of in found[part] if of.metric == metric} for part in found}
            say(f"{title} of blind baselines [95% interval]\n{pd.DataFrame(cells).to_string()}\n")
        aucs = [of.interval for part in found.values() for of in part if of.metric == "auc"]
        say(explain_below(aucs), nl=False)


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
    fresh: Fresh = False,
) -> None:
    """Write texts as an HTML page, each token shaded by what a detector sees in it, its numbers on hover and focus.

    log_prob: Min-K% Prob. surprise: SURP. dc_pdd: DC-PDD. Tokens that count for the detector's score are framed.
    """
    from mialib.commands import token_view
    from mialib.catalog.models import load_tokenizer
    from mialib.catalog.sources import source_of
    from mialib.passes.inputs import Inputs
    from mialib.shared.files import load_texts
    from mialib.store import atomic_path, mialib_version
    from mialib.text import language_of

    _refuse_to_overwrite(output, texts, corpus, model)
    lacks = source_of(model).lacks(model)
    reasons = {name: token_view.unavailable_reason(name, lacks, corpus is not None) for name in by or token_view.WAYS}
    ways = [name for name, why in reasons.items() if not why]
    for why in filter(None, reasons.values()):
        if by or not ways:
            raise ValueError(why)
        logging.info("%s", why)
    loaded = load_texts(texts)
    shown = loaded[: token_view.MOST_TEXTS]
    notes = [f"Texts of {texts.name}, scored by {model}, mialib {mialib_version()}."]
    if len(shown) < len(loaded):
        notes.append(
            f"The first {len(shown)} of {len(loaded)} texts; a page holds no more. The others need a file of their own."
        )
        logging.info("%s", notes[-1])
    target = _target(texts, model, start_token, corpus=corpus)
    inputs, tokenizer = Inputs(target, tuple(shown), language_of(shown)), load_tokenizer(model)
    numbers = {f"Text {i}": i for i in range(len(shown))}
    by_way = [token_view.view_inputs(inputs, numbers, tokenizer, way) for way in ways]
    views = {title: [of_way[title] for of_way in by_way] for title in numbers}
    with atomic_path(output) as temporary:
        temporary.write_text(token_view.page(f"Token view of {texts.name}", views, notes), encoding="utf-8", newline="")
    say(f"{output}: {len(shown)} texts, coloured by {', '.join(ways)}")


@app.command()
def score(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    benchmark: Annotated[str, typer.Argument(help="a benchmark's name or file")],
    receipt: Annotated[
        Path | None, typer.Option(dir_okay=False, help="where to write what was scored, as JSON")
    ] = None,
    start_token: StartToken = "auto",
    fresh: Fresh = False,
) -> None:
    """Score a benchmark's texts, and the same lowercased, into the cache that notebooks read."""
    from mialib.catalog.models import check_loadable
    from mialib.passes.inputs import load_inputs
    from mialib.store import write_json

    if receipt:
        _refuse_to_overwrite(receipt, benchmark, model)
    check_loadable(model)
    inputs = load_inputs(_target(benchmark, model, start_token))
    passes = {"original": inputs.stats, "lowercase": inputs["lowercase"]}
    passes = {name: stats for name, stats in passes.items() if stats is not None}
    for name, stats in passes.items():
        say(f"{model} on {benchmark}, {name}: {len(stats)} texts, {stats.n_tokens.sum()} tokens")
    if receipt:
        write_json(receipt, {name: stats.provenance for name, stats in passes.items()})


@app.command()
def notebook(
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


@app.command()
def report(
    output: Annotated[Path, typer.Option("--output", dir_okay=False, help="the Markdown file to write")] = Path(
        "report.md"
    ),
) -> None:
    """Write the replication report of a finished build: scope, method, each number with tolerance and verdict."""
    from replication.pipeline import report as reports
    from replication.pipeline.notebooks import clone
    from replication.profile import load_profile
    from mialib.store import atomic_path

    clone()
    profile = load_profile()
    text = reports.report(profile, reports.build_folder(profile))
    with atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    say(f"{output}: {text.count(chr(10))} lines")


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

    clone()
    known = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    if unknown := [page for page in pages or [] if page not in known]:
        raise ValueError(f"there is no notebook {unknown[0]!r}; there are: {', '.join(known)}")
    written = write_builds([known[page] for page in pages or known], output)
    say(f"{output}: {len(written)} notebooks, half of them for students and half with the solutions")


@app.command()
def slides(
    pages: Annotated[
        list[str] | None, typer.Argument(metavar="[PAGE]...", help="pages in the order to show; default: the book's")
    ] = None,
    lesson: Annotated[int | None, typer.Option(min=1, help="only the pages of this lesson plan, in its order")] = None,
    output: Annotated[Path, typer.Option("--output", dir_okay=False, help="the HTML file to write")] = Path(
        "slides.html"
    ),
) -> None:
    """Write the figures of a finished build as slides, each with its caption: one HTML file that needs no other."""
    from replication.pipeline import slides as slide_show
    from replication.pipeline.notebooks import clone
    from replication.profile import load_profile
    from mialib.store import atomic_path

    if pages and lesson:
        raise ValueError("give pages or --lesson, not both")
    folder, of_book = clone() / "book" / "pages", load_profile().notebooks
    wanted = pages or (slide_show.lesson_pages(lesson) if lesson else list(of_book))
    if unknown := [page for page in wanted if page not in of_book]:
        raise ValueError(f"the book has no page {unknown[0]!r} that a notebook makes; it has: {', '.join(of_book)}")
    files = [folder / f"{page}.ipynb" for page in wanted]
    for missing in (file for file in files if not file.is_file()):
        logging.info("%s: left out, since it has not run", missing.stem)
    figures = [figure for file in files if file.is_file() for figure in slide_show.figures_of(file)]
    if not figures:
        raise ValueError(f"{folder} holds no figure of these pages: run `mialib build` first")
    title = "Was this text in the training data?" + (f" Lesson {lesson}" if lesson else "")
    with atomic_path(output) as temporary:
        temporary.write_text(slide_show.slides(figures, title), encoding="utf-8")
    say(f"{output}: {len(figures)} figures")


@app.command()
def column(
    page: Annotated[str, typer.Argument(help="a page of the profile with a paper's table")],
    name: Annotated[str, typer.Argument(help="the column, as the paper prints it")],
    output: Annotated[Path, typer.Argument(dir_okay=False, help="where its numbers go, as JSON")],
) -> None:
    """Compute one column of a paper's table, or write down why that can't be done here."""
    jobs.column(page, name, str(output))


@app.command()
def plan(
    only: Annotated[list[str] | None, typer.Argument(help="models, benchmarks or pages; default: all")] = None,
) -> None:
    """Say what the papers' tables of the profile take before anything is fetched or run."""
    from replication.pipeline.plan import describe, plan_columns, plan_downloads
    from replication.profile import load_profile

    _check_stdout_is_open()
    profile = load_profile()
    columns = plan_columns(profile, only or [])
    if not columns:
        say(f"profile {profile.name} has no tables of the papers' own models")
        return
    say(describe(columns, plan_downloads(profile, only or [])))


@app.command()
def lock() -> None:
    """Ask the hub for the commit of each model and data set of the registry and pin it in data/revisions.yml."""
    from mialib.catalog.corpora import HUB_CORPORA
    from mialib.catalog.hub import PINS
    from mialib.catalog.hub import lock as pin
    from mialib.catalog.registry import known_benchmarks, known_models

    models = [known.tokenizer if known.access == "api" else name for name, known in known_models().items()]
    data = [known.hub_id for known in known_benchmarks().values()]
    data += [known.hub_id for known in HUB_CORPORA.values()]
    pins, lacking = pin({"model": [name for name in models if name], "dataset": [name for name in data if name]})
    for problem in lacking:
        say(f"not pinned: {problem}", err=True)
    if not pins:
        raise ConnectionError("nothing could be pinned")
    say(f"{sum(map(len, pins.values()))} commits in {PINS}; {len(lacking)} names could not be had")


@app.command()
def record(
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="training seeds to record; default 0, 1, 2")] = None,
) -> None:
    """Train and score the seeds behind the claims' verdicts and the ranking, into data/recorded/."""
    from replication import judging, recorded_rows as recorded
    from replication.studies import ranking
    from replication.claim_tests import load_claims
    from replication.pipeline.notebooks import clone

    clone()
    of_seeds = seeds or [0, 1, 2]
    recorded.write_rows(ranking.RECORDED_FILE, ranking.rows_of(of_seeds))
    recorded.write_rows(judging.RECORDED_FILE, judging.rows_of(load_claims(), of_seeds))


@app.command("record-lab")
def record_lab(
    models: Annotated[
        list[str] | None, typer.Argument(help="of the profile recorded.yml; all, if none is named")
    ] = None,
) -> None:
    """Train and score the recorded ladder, where it is not yet in data/recorded/lab/; go on where that broke off."""
    from replication.studies import ladder
    from replication.pipeline.notebooks import clone
    from mialib.catalog.recorded import FOLDER

    clone()
    os.environ["MIALIB_PROFILE"] = str(ladder.PROFILE)
    for path in ladder.record(models or (), FOLDER):
        say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    left = [f"{name}@{seed}" for name, seed in ladder.find_left(FOLDER)]
    say(f"left to record: {', '.join(left) or 'nothing'}")


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
    from mialib.lab import corpora

    for row in corpora.rows_to_write(name, sample, seed):
        say(json.dumps(row))  # in ASCII: a terminal obeys none of it, and nothing has to be left out


@lab_app.command("build")
def lab_build(
    names: Annotated[list[str] | None, typer.Argument(help="corpora and models of the profile; default all")] = None,
    cores: Annotated[int, typer.Option(min=0, help="0: all of this machine")] = 0,
    store: Annotated[bool, typer.Option("--store", help="put what was made into data/lab, for the repository")] = False,
) -> None:
    """Deal out the lab's texts and train its models again, and say how they compare with those in data/lab."""
    from replication.pipeline import lab as building
    from mialib.lab.models import lab_recipe
    from mialib.lab.recipes import load_recipes

    _check_stdout_is_open()
    recipes = load_recipes()
    for name in names or ():
        if name not in recipes.corpora:
            lab_recipe(name)  # ValueError where there is no such model
    chosen = names or [*recipes.corpora, *(name for name, model in recipes.models.items() if model.recipe)]
    far = []
    for kind, group in building.in_order(chosen):
        done, make = [], building.deal if kind == "corpora" else building.train
        for made in building.side_by_side(make, group, cores or build.n_cores()):
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
    kind: Annotated[str, typer.Argument(help="wikimia, patentmia, arxivmia or dolmabook")],
    out: Annotated[Path, typer.Argument(file_okay=False, help="the folder to write the benchmark and its card to")],
    members_before: Annotated[datetime, typer.Option(help="members are from before this day", **DAY)],
    non_members_after: Annotated[datetime, typer.Option(help="non-members are from after this day", **DAY)],
    contact: Annotated[str, typer.Option(envvar="MIALIB_CONTACT", help="your address, for who runs the service")],
    texts: Annotated[int, typer.Option(min=1, help="members, and as many non-members; arxivmia: of a category")] = 250,
    length: Annotated[list[int] | None, typer.Option(min=1, help="wikimia: words; default 32, 64, 128, 256")] = None,
    publications: Annotated[Path | None, typer.Option(help="patentmia: a file of Chinese numbers, one a line")] = None,
    category: Annotated[list[str] | None, typer.Option(help="arxivmia: an archive or category: cs, math.AG")] = None,
    seed: Annotated[int, typer.Option(help="draws pages and snippets")] = 0,
    gap_seconds: Annotated[float | None, typer.Option(min=0, help="between requests; default: 1 to 3, by kind")] = None,
) -> None:
    """Build a fresh benchmark like a paper's, from pages before and after a date, with a data card.

    wikimia: Wikipedia's pages about events. patentmia: Chinese patents. arxivmia: abstracts. dolmabook: old books.
    """
    from replication.pipelineers import construct as builders
    from replication.pipelineers.fetch import Fetcher
    from replication.pipelineers.sources import Dates

    own = {"wikimia": "length", "patentmia": "publications", "arxivmia": "category", "dolmabook": ""}
    given = {"length": length, "publications": publications, "category": category}
    if kind not in own:
        raise ValueError(f"unknown kind of benchmark {kind!r}; known: {', '.join(own)}")
    if wrong := [name for name, value in given.items() if value and name != own[kind]]:
        raise ValueError(f"{kind} takes no --{wrong[0]}")
    if kind in ("patentmia", "arxivmia") and not given[own[kind]]:
        raise ValueError(f"{kind} needs --{own[kind]}")
    dates, fetcher = Dates(members_before.date(), non_members_after.date()), Fetcher(contact, gap_seconds)
    if kind == "wikimia":
        builders.wikimia(out, fetcher, dates, texts, length or builders.WIKIMIA_LENGTHS, seed)
    elif kind == "patentmia" and publications:
        builders.patentmia(out, fetcher, dates, texts, publications, seed)
    elif kind == "arxivmia" and category:
        builders.arxivmia(out, fetcher, dates, texts, category, seed)
    else:
        builders.dolmabook(out, fetcher, dates, texts, seed)
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
    """Time scoring on this machine: beside the bare forward pass, one text at a time, and one pass a detector.

    The models have random weights, so nothing is downloaded.
    """
    from dataclasses import asdict

    from replication.studies import bench as speed
    from replication.tables import printed
    from mialib.models import pick_device
    from mialib.store import write_json

    if not json_file:
        _check_stdout_is_open()
    measured = []
    for name in geometry or [speed.DEFAULT_GEOMETRY[pick_device().type]]:
        found = speed.time_ways(name, n_texts=texts, n_rounds=rounds, n_threads=threads, dtype=dtype)
        say(f"{printed(speed.bench_table(found))}\n\n{speed.describe(found)}\n")
        measured.append(asdict(found))
    if json_file:
        write_json(json_file, measured)


@app.command()
def coverage(
    simulations: Annotated[
        int | None, typer.Option(min=1, help="of each case; default 400, which take about five minutes")
    ] = None,
    seed: Annotated[int, typer.Option(help="draws the scores")] = 0,
    keep: Annotated[bool, typer.Option("--record", help="keep them in data/recorded/ for the book")] = False,
) -> None:
    """How often the intervals hold the truth, and set p-values call what they should not: by simulation."""
    from replication.studies import coverage as simulated
    from replication.pipeline.notebooks import clone

    if keep:
        clone()
    else:
        _check_stdout_is_open()
    n, results = simulations or simulated.SIMULATIONS, []
    for family, (title, _) in simulated.FAMILIES.items():
        found = simulated.simulate(family, n, seed)
        results += found
        say(f"{title}, share of simulations\n{simulated.table(found, family).to_string()}\n")
    if keep:
        simulated.record(results, n, seed)
