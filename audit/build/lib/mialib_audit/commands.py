"""The commands that mialib-audit adds to `mialib`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mialib.commands import cli
from mialib.commands.output import say

app = cli.app


@app.command("audit")
@cli.input_options(dear=False)
def audit_command(
    context: typer.Context,
    texts: Annotated[Path | None, typer.Argument(help="a file of texts, as for detect")] = None,
    model: Annotated[str | None, typer.Option(help=cli.MODEL_HELP)] = None,
    output: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="a folder for report.html, report.json and, if it concludes, scores.csv"),
    ] = None,
    non_members: Annotated[
        Path | None, typer.Option(help="a file of texts like these that the model can't have seen; see below")
    ] = None,
    members: Annotated[Path | None, typer.Option(help="a file of texts like these that it has surely seen")] = None,
    detector: cli.Detectors = None,
    option: cli.Hyperparameters = None,
    *,
    inputs: dict[str, Any],
    fpr: Annotated[float, typer.Option(min=0, max=1, help="share of non-members that may be called members")] = 0.05,
    fdr: cli.Fdr = None,
    start_token: cli.StartToken = "auto",
    dtype: cli.DtypeOption = "auto",
    fresh: cli.Fresh = False,
    force: Annotated[bool, typer.Option("--force", help="replace an earlier report in that folder")] = False,
    report_file: Annotated[
        Path | None, typer.Option("--verify", help="a report.json: audit again, and name the first difference")
    ] = None,
) -> None:
    """Was this in the training data? A report with its own limits.

    First it checks whether the texts and the known non-members can be separated without the model. If so, nothing is
    scored, the report says what separates them, and the exit code is 3. Else it has each text's p-value, the set's,
    what another start token gives, how much such a set could show and, where a coin decided on each text (`mialib
    canaries`), a lower bound on epsilon. The first detector decides, by default Min-K%++, or Ref for an adapter on its
    base. Without --non-members the texts have labels, and members are compared with non-members. A column `source`
    helps.
    """
    from mialib.cache import start_fresh
    from mialib.reports.detection import parse_options, split_names
    from mialib_audit.audit import FILES, Rules, audit, verify, write
    from mialib_audit.files import read_files

    if fresh or report_file:
        start_fresh()
    if report_file:
        verify(report_file)
        return say(f"{report_file}: the same files and the same model give the same report")
    if not (texts and model and output):
        context.fail("an audit needs TEXTS, --model and --output; or give --verify and a report.json")
    files = (texts, non_members, members, *cli.names_in(inputs))
    cli.check_read_once(*files)
    existing = [output / name for name in FILES if (output / name).exists()]
    if existing and not force:
        raise ValueError(f"{existing[0]} exists; give another --output, or --force to replace this report")
    for path in (output, *existing):
        cli.check_output(path, *files, model)
    target = cli.target_of(texts, model=model, start_token=start_token, dtype=dtype, **inputs)
    judged, known, known_members = read_files(texts, non_members, members)
    rules = Rules(split_names(detector or []), parse_options(option or []), fpr, fdr)
    report = audit(judged, target, known, known_members, rules)
    paths = write(report, output)
    for line in (*report["verdict"]["sentences"], f"{', '.join(path.name for path in paths)} in {output}"):
        say(line)
    if not report["verdict"]["concludes"]:
        raise typer.Exit(3)


@app.command("recite")
def recite_command(
    texts: cli.TextsArgument,
    model: cli.ModelOption,
    controls: Annotated[
        Path | None, typer.Option(help="a file of texts like these that are younger than the model")
    ] = None,
    prompt: Annotated[
        list[int] | None, typer.Option(min=2, help="words of the text that the model is given; default: 10, 20 and 40")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(dir_okay=False, help="a .json file for the numbers of each text")
    ] = None,
    start_token: cli.StartToken = "auto",
    dtype: cli.DtypeOption = "auto",
    fresh: cli.Fresh = False,
) -> None:
    """Does the model recite these texts? How many of the 50 tokens after a prompt it reproduces before a mistake.

    Each prompt is also given with half of its words exchanged. With --controls a p-value says whether that costs the
    texts more than younger ones: then the model knows their wording, not just their topic. Best of 90 words or more.
    """
    from mialib.cache import start_fresh
    from mialib.store import write_json
    from mialib_audit.files import TextFile
    from mialib_audit.recite import PROMPTS, report, sentences

    if fresh:
        start_fresh()
    cli.check_read_once(texts, controls)
    if output:
        cli.check_output(output, texts, controls, model)
    files = TextFile.read(texts), TextFile.read(controls, 0) if controls else None
    made = report(model, *files, prompt or PROMPTS, start_token=start_token, dtype=dtype)
    if output:
        write_json(output, made)
    for line in sentences(made):
        say(line)


@app.command("canaries")
def canaries_command(
    output: Annotated[Path, typer.Argument(help="a folder for train.jsonl, canaries.jsonl and seal.json")],
    texts: Annotated[
        Path | None, typer.Option(help="a file of unpublished texts like the training data; default: random words")
    ] = None,
) -> None:
    """Make texts of which a coin puts half into your training, 1, 4 or 16 times, to audit it afterwards.

    Mix train.jsonl into the training data, keep canaries.jsonl, and publish its SHA-256 (seal.json) before you train.
    Then `mialib audit canaries.jsonl --model MODEL --output report` shows AUC, TPR and a lower bound on epsilon.
    """
    from mialib.shared.files import load_texts
    from mialib_audit.canaries import make_canaries

    seal = make_canaries(output, load_texts(texts) if texts else ())
    say(f"{output / 'train.jsonl'}: {seal['n_inserted']} texts to mix into the training data")
    say(f"{output / seal['file']}: all {seal['n']} canaries; keep it from whoever trains. SHA-256 {seal['sha256']}")
