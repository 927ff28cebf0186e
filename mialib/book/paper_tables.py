"""The papers' own tables, on the papers' own models and benchmarks: each printed number beside ours.

A profile's page that runs the notebook `paper_table` says, for each printed column, what it was made of.
`measure_column` computes one; the pipeline runs it once a column, as a job of its own, and the notebook collects what
is there. A column that can't be had here keeps its printed numbers, and says "not run" beside them and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from mialib.blind import PREFIX
from mialib.book import blind_tables as leaks
from mialib.book import probe_tables as probed
from mialib.book import surp
from mialib.book.profile import PAPER_TABLE, Profile
from mialib.book.published import published_along
from mialib.book.results import DASH, Result
from mialib.catalog.api import is_api
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import count_parameters
from mialib.models import pick_device
from mialib.passes import inputs as evaluate
from mialib.passes.inputs import Inputs, Target
from mialib.schema import Strict, one_line
from mialib.store import write_json

if TYPE_CHECKING:
    import pandas as pd

NOT_RUN = "not run"
BILLIONS_WITHOUT_GPU = 0.5  # the largest model that a processor scores in an hour or so


class Column(Strict):
    """What a printed column, or a printed row of DC-PDD's Tables 4 and 5, was made of."""

    model: str
    benchmark: str
    reference: str | None = None  # the smaller model of Small Ref
    corpus: str | None = None  # the reference corpus of DC-PDD
    masked: str | None = None  # the masked language model of Neighbor
    n_neighbors: PositiveInt = 100
    a: PositiveFloat = 0.01  # DC-PDD's bound
    a_values: tuple[PositiveFloat, ...] = ()  # instead: one number for each (Table 5)
    corpora: dict[str, str] = Field(default_factory=dict)  # instead: by printed name (Table 4)
    unseen: str | None = None  # what the probe learns from, as in `mialib.unseen`
    n_training: PositiveInt = probed.N_TRAINING
    fields: dict[str, str] = Field(default_factory=dict)  # further printed columns, of one domain each (probing)
    note: str = ""  # what the page says of it besides

    @property
    def models(self) -> list[str]:
        """Every model that it takes."""
        return [name for name in (self.model, self.reference, self.masked) if name]


@dataclass(frozen=True)
class Measured:
    """A printed column's numbers beside ours, what could not be run of it, and what ran."""

    results: list[Result]
    notes: list[str]
    provenance: list[dict[str, Any]]
    unavailable: str = ""  # why nothing was run


def read_columns(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, Column]:
    """A page's `columns` parameter, checked; ValueError names the column and what is wrong in it."""
    return {name: _read_column(name, column) for name, column in columns.items()}


def _read_column(name: str, column: Mapping[str, Any]) -> Column:
    try:
        return Column.model_validate(column)
    except ValidationError as error:
        raise ValueError(f"column {name!r}: {one_line(error)}") from None


def columns_of(profile: Profile) -> Iterator[tuple[str, str, Column]]:
    """Each page of a profile that is made of columns, each printed column and what it is made of."""
    for name, page in profile.notebooks.items():
        if page.notebook == PAPER_TABLE:
            for printed, column in read_columns(page.parameters["columns"]).items():
                yield name, printed, column


def is_whole(path: str | Path) -> bool:
    """Whether a kept column has all that could be had of it; if not, it may be tried again."""
    kept = load_column(path)
    return not kept.unavailable and not kept.notes


def choose_columns(profile: Profile, only: Sequence[str]) -> list[tuple[str, str, Column]]:
    """The columns whose model, benchmark or page is named in `only`; all where it is empty. ValueError for a name that
    is none."""
    every = list(columns_of(profile))
    known = {word for page, _, column in every for word in (page, column.model, column.benchmark)}
    if unknown := sorted(set(only) - known):
        alike = get_close_matches(unknown[0], known, n=5, cutoff=0.4) or sorted(known)
        raise ValueError(
            f"profile {profile.name} has no model, benchmark or page {unknown[0]!r}; it has {', '.join(alike)}"
        )
    return [found for found in every if not only or {found[0], found[2].model, found[2].benchmark} & set(only)]


def file_name(column: str) -> str:
    """A printed column's name as a file's, without suffix."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", column)


def measure_column(paper: str, items: Mapping[str, str], name: str, column: Column) -> Measured:
    """A column's numbers beside those that `items`, {metric: item of the paper}, print under `name`.

    Without its reference model, corpus, masked model or unseen texts it is measured all the same, and a note says what
    is lacking. Unavailable where its model or benchmark can't be had.
    """
    inputs, notes = _load(column)
    own = MEASURE[paper](inputs, items, name, column)
    found = [result if result.ours is not None else _not_run(result) for result in own.results]
    has = {(result.row, result.column, result.metric) for result in found}
    printed = printed_alone(paper, items, name, column)
    found += [result for result in printed if (result.row, result.column, result.metric) not in has]
    domains = np.array(inputs.benchmark.domains)
    of_fields = {of: inputs.benchmark.take(np.flatnonzero(domains == field), of) for of, field in column.fields.items()}
    judged = {name: inputs.benchmark} | of_fields
    found += leaks.beside(found, judged, {of: benchmark.document for of, benchmark in judged.items()})
    return Measured(found, notes + own.notes, own.provenance)


def printed_alone(paper: str, items: Mapping[str, str], name: str, column: Column) -> list[Result]:
    """The printed numbers of a column, and the AUCs of its fields, with none of ours."""
    places = [(name, metric, item) for metric, item in items.items()]
    places += [(field, "auc", items["auc"]) for field in column.fields]
    return [
        _not_run(Result.of(row=row, column=of, metric=metric, interval=None, published=value, published_column=of))
        for of, metric, item in places
        for row, value in published_along(paper, item, of, metric).items()
    ]


def _not_run(result: Result) -> Result:
    return replace(result, why=NOT_RUN if result.published is not None else "")


def _load(column: Column) -> tuple[Inputs, list[str]]:
    """Everything that the column needs and that can be had, and a note for each thing that can't."""
    _check_gpu(column.model)
    benchmark, notes = load_benchmark(column.benchmark), []
    needs = set() if column.a_values or column.corpora else {"lowercase"}
    inputs = evaluate.inputs_of(Target(column.model, column.benchmark), benchmark, needs)
    for what, source, add in (
        ("the reference model", column.reference, evaluate.with_reference),
        ("the reference corpus", column.corpus, evaluate.with_corpus),
        ("neighbors", column.masked, lambda inputs, name: evaluate.with_neighbors(inputs, name, column.n_neighbors)),
    ):
        try:
            inputs = add(inputs, source) if source else inputs
        except Unavailable as error:
            notes.append(f"without {what}: {error}")
    return inputs, notes


def _check_gpu(model: str) -> None:
    """Unavailable for a large model on a machine where a table would take days, told by its config."""
    if is_api(model) or pick_device().type != "cpu":
        return
    billions = count_parameters(model, embeddings=True) / 1e9
    if billions > BILLIONS_WITHOUT_GPU:
        raise Unavailable(
            f"{model} has {billions:.1f} billion parameters, and this machine has no GPU; `mialib score` scores it all "
            "the same, if you have the days"
        )


def _dc_pdd(inputs: Inputs, items: Mapping[str, str], name: str, column: Column) -> Measured:
    """DC-PDD's Tables 2 and 3, a column of all detectors; or a row of Table 4 or 5, DC-PDD alone."""
    passes = [stats.provenance for stats in inputs.passes()]
    if not column.a_values and not column.corpora:
        scores = evaluate.score_all(inputs, dc_pdd={"a": column.a})
        named = replace(inputs, target=replace(inputs.target, published=name))
        star = ("dc_pdd", "min_k")
        return Measured(
            evaluate.measure(named, scores, paper="dc-pdd", items=items, column=name, star=star), [], passes
        )
    [(metric, item)] = items.items()
    printed, results, notes = published_along("dc-pdd", item, name, metric), [], []
    variants = [(f"{a:g}", a, column.corpus) for a in column.a_values]
    for label, a, corpus in variants or [(label, column.a, corpus) for label, corpus in column.corpora.items()]:
        try:
            of = evaluate.with_corpus(inputs, corpus) if column.corpora else inputs
        except Unavailable as error:
            notes.append(f"without the corpus {corpus}: {error}")
            of = inputs
        scores = evaluate.score_all(of, ["dc_pdd"], dc_pdd={"a": a})["dc_pdd"]
        interval = None if scores is None else evaluate.METRICS[metric](of.labels, scores)
        of_paper = {"published": printed.get(label), "published_column": name}
        results.append(Result.of(row=label, column=name, metric=metric, interval=interval, **of_paper))
    return Measured(results, notes, passes)


def _surp(inputs: Inputs, items: Mapping[str, str], name: str, column: Column) -> Measured:
    """SURP's tables: Min-K%'s and SURP's hyperparameters the best on the reported texts, and chosen on others.

    The two tails of a book (Dolma-Book) are dealt out and drawn together.
    """
    document = inputs.benchmark.document
    both = surp.both_ways(inputs, item=items["auc"], published=name, column=name, document=document)
    return Measured(both.results, [], [stats.provenance for stats in inputs.passes()])


def _probe(inputs: Inputs, items: Mapping[str, str], name: str, column: Column) -> Measured:
    """The probe paper's tables: baselines and the probe on the texts that the probe was not chosen on."""
    sources, notes = {probed.REAL: column.unseen} if column.unseen else {}, []
    if not sources:
        notes.append("without unseen texts, which the probe learns from")
    try:
        of = probed.probe_inputs(inputs, sources, n_training=column.n_training)
    except Unavailable as error:
        notes.append(f"without the probe: {error}")
        of = probed.probe_inputs(inputs, {})
    results = probed.measure(of, name, items, name)
    for printed, field in column.fields.items():
        results += probed.measure(of, printed, {"auc": items["auc"]}, printed, probed.texts_of_field(of, field))
    return Measured(results, notes, of.provenance())


MEASURE = {"dc-pdd": _dc_pdd, "surp": _surp, "probe": _probe}


# --- one file a column ------------------------------------------------------------------------------------------------


def save_column(path: str | Path, measured: Measured) -> None:
    """Write a column, all or nothing."""
    write_json(path, asdict(measured))


def load_column(path: str | Path) -> Measured:
    """Read what `save_column` wrote."""
    kept = json.loads(Path(path).read_text(encoding="utf-8"))
    return Measured(**kept | {"results": [Result(**fields) for fields in kept["results"]]})


def measure_or_say_why(paper: str, items: Mapping[str, str], name: str, column: Column) -> Measured:
    """A column, or its printed numbers and why it can't be run here: one that fails must not cost the others."""
    import torch

    printed = printed_alone(paper, items, name, column)
    try:
        return measure_column(paper, items, name, column)
    except (OSError, ValueError, MemoryError, ArithmeticError, torch.OutOfMemoryError) as error:
        return Measured(printed, [], [], (str(error).splitlines() or [type(error).__name__])[0])


def collect(
    paper: str, items: Mapping[str, str], columns: Mapping[str, Column], computed: str | Path = ""
) -> dict[str, Measured]:
    """All columns of a page: from the files in the folder `computed`, or computed here where that is empty."""
    found = {}
    for name, column in columns.items():
        path = Path(computed) / f"{file_name(name)}.json"
        if not computed:
            found[name] = measure_or_say_why(paper, items, name, column)
        elif path.is_file():
            found[name] = load_column(path)
        else:
            found[name] = Measured(printed_alone(paper, items, name, column), [], [], "not asked for in this run")
    return found


def detected_and_told(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """A page's results of detectors, and those of the blind baselines beside them."""
    results = list(results)
    told = [result for result in results if result.row.startswith(PREFIX)]
    return [result for result in results if result not in told], told


# --- what a page says -------------------------------------------------------------------------------------------------


def say_what_is_lacking(found: Mapping[str, Measured], columns: Mapping[str, Column]) -> str:
    """Each column that was not run, or not wholly, and why, in Markdown."""
    lines = []
    for name, of in found.items():
        rows = dict.fromkeys(result.row for result in of.results if result.why)
        reasons = [reason for reason in (of.unavailable, *of.notes, columns[name].note) if reason]
        if rows and not of.unavailable:
            reasons.insert(0, f"{', '.join(rows)} not run")
        if reasons:
            lines.append(f"- **{name}**: {'; '.join(reason.rstrip('.') for reason in reasons)}.")
    return "\n".join(lines) or "Every column was run, with all that it needs."


def say_agreement(results: Iterable[Result], metric: str) -> str:
    """How the numbers of one metric compare with the printed ones, in Markdown."""
    printed = [r for r in results if r.metric == metric and r.published is not None]
    both = [r for r in printed if r.ours is not None]
    if not both:
        return f"None of the {len(printed)} printed numbers was computed here."
    inside = sum(r.low <= r.published <= r.high for r in both)
    differences = [abs(r.ours - r.published) for r in both]
    far = both[int(np.argmax(differences))]
    return (
        f"Of {len(printed)} printed numbers {len(both)} were computed here. The printed one lies within our 95% "
        f"interval for {inside} of them. That interval is of the draw of texts, and the texts are the papers' own, so "
        f"the differences say more: their median is {np.median(differences):.3f}, the largest is "
        f"{far.ours - far.published:+.3f} ({far.row}, {far.column})."
    )


def column_table(paper: str, items: Mapping[str, str], columns: Mapping[str, Column]) -> pd.DataFrame:
    """What each printed column of a paper's tables is made of."""
    import pandas as pd

    rows = {
        name: {
            "model": column.model,
            "benchmark": column.benchmark,
            "smaller model": column.reference or DASH,
            "reference corpus": column.corpus or ", ".join(column.corpora.values()) or DASH,
            "neighbors by": f"{column.masked}, {column.n_neighbors} a text" if column.masked else DASH,
            "a": f"{column.a:g}" if column.corpus or column.corpora else DASH,
            "unseen texts": f"{column.unseen}, {column.n_training}" if column.unseen else DASH,
        }
        for name, column in columns.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=f"{paper}, {', '.join(items.values())}")
    return table.loc[:, (table != DASH).any()]
