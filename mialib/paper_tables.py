"""The papers' own tables, on the papers' own models and benchmarks: each printed number beside ours.

A profile's page that runs the notebook `paper_table` says, for each printed column, what it was made of.
`measure_column` computes one; the pipeline runs it once a column, as a job of its own, and the notebook collects what
is there. A column that can't be had here keeps its printed numbers, and says "not run" beside them and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from mialib import evaluate, probed, surp
from mialib.benchmarks import load_benchmark
from mialib.config import Profile, Strict
from mialib.evaluate import Inputs, Target
from mialib.hub import Unavailable
from mialib.published import published_along
from mialib.results import Result
from mialib.store import write_json

NOTEBOOK = "paper_table"
NOT_RUN = "not run"


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
    """A page's `columns` parameter, checked."""
    return {name: Column.model_validate(column) for name, column in columns.items()}


def columns_of(profile: Profile) -> Iterator[tuple[str, str, Column]]:
    """Each page of a profile that is made of columns, each printed column and what it is made of."""
    for name, page in profile.notebooks.items():
        if page.notebook == NOTEBOOK:
            for printed, column in read_columns(page.parameters["columns"]).items():
                yield name, printed, column


def choose_columns(profile: Profile, only: Sequence[str]) -> list[tuple[str, str, Column]]:
    """The columns whose model, benchmark or page is named in `only`; all where it is empty. ValueError for a name that
    is none."""
    every = list(columns_of(profile))
    known = {word for page, _, column in every for word in (page, column.model, column.benchmark)}
    if unknown := sorted(set(only) - known):
        raise ValueError(
            f"profile {profile.name} has no model, benchmark or page {unknown[0]!r}; it has: {', '.join(sorted(known))}"
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
    measured = MEASURE[paper](inputs, items, name, column, notes)
    found = [result if result.ours is not None else _not_run(result) for result in measured]
    has = {(result.row, result.column, result.metric) for result in found}
    printed = printed_alone(paper, items, name, column)
    found += [result for result in printed if (result.row, result.column, result.metric) not in has]
    return Measured(found, notes, [stats.provenance for stats in inputs.passes()])


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
    benchmark, notes = load_benchmark(column.benchmark), []
    inputs = evaluate.inputs_of(Target(column.model, column.benchmark), benchmark, {"lowercase"})
    for what, source, add in (
        ("the reference model", column.reference, evaluate.with_reference),
        ("the reference corpus", column.corpus, evaluate.with_corpus),
        ("neighbors", column.masked, lambda inputs, name: evaluate.with_neighbors(inputs, name, column.n_neighbors)),
    ):
        inputs = _with(inputs, source, add, what, notes)
    return inputs, notes


def _with(
    inputs: Inputs, source: str | None, add: Callable[[Inputs, str], Inputs], what: str, notes: list[str]
) -> Inputs:
    try:
        return add(inputs, source) if source else inputs
    except Unavailable as error:
        notes.append(f"without {what}: {error}")
        return inputs


def _dc_pdd(inputs: Inputs, items: Mapping[str, str], name: str, column: Column, notes: list[str]) -> list[Result]:
    """DC-PDD's Tables 2 and 3, a column of all detectors; or a row of Table 4 or 5, DC-PDD alone."""
    if column.a_values or column.corpora:
        [(metric, item)] = items.items()
        printed = published_along("dc-pdd", item, name, metric)
        variants = {f"{a:g}": (inputs, a) for a in column.a_values} or {
            label: (with_it, column.a)
            for label, corpus in column.corpora.items()
            for with_it in [_with(inputs, corpus, evaluate.with_corpus, f"the corpus {corpus}", notes)]
        }
        return [
            Result.of(
                row=label,
                column=name,
                metric=metric,
                interval=_dc_pdd_interval(of, a, metric),
                published=printed.get(label),
                published_column=name,
            )
            for label, (of, a) in variants.items()
        ]
    scores = evaluate.score_all(inputs, dc_pdd={"a": column.a})
    named = replace(inputs, target=replace(inputs.target, published=name))
    return evaluate.measure(named, scores, paper="dc-pdd", items=items, column=name, star=("dc_pdd", "min_k"))


def _dc_pdd_interval(inputs: Inputs, a: float, metric: str) -> Any:
    scores = evaluate.score_all(inputs, ["dc_pdd"], dc_pdd={"a": a})["dc_pdd"]
    return None if scores is None else evaluate.METRICS[metric](inputs.labels, scores)


def _surp(inputs: Inputs, items: Mapping[str, str], name: str, column: Column, notes: list[str]) -> list[Result]:
    """SURP's tables: Min-K%'s and SURP's hyperparameters the best on the reported texts, and chosen on others."""
    return surp.both_ways(inputs, item=items["auc"], published=name, column=name).results


def _probe(inputs: Inputs, items: Mapping[str, str], name: str, column: Column, notes: list[str]) -> list[Result]:
    """The probe paper's tables: baselines and the probe on the texts that the probe was not chosen on."""
    if column.unseen is None:
        notes.append("without the probe: no unseen texts are named that it could learn from")
        return []
    try:
        of = probed.probe_inputs(inputs, {probed.REAL: column.unseen}, n_training=column.n_training)
    except Unavailable as error:
        notes.append(f"without the probe: {error}")
        return []
    results = probed.measure(of, name, items, name)
    for printed, field in column.fields.items():
        results += probed.measure(of, printed, {"auc": items["auc"]}, printed, probed.texts_of_field(of, field))
    return results


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
    """A column, or its printed numbers and why it can't be run here."""
    try:
        return measure_column(paper, items, name, column)
    except Unavailable as error:
        return Measured(printed_alone(paper, items, name, column), [], [], str(error))


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


# --- what a page says -------------------------------------------------------------------------------------------------


def say_what_is_lacking(found: Mapping[str, Measured]) -> str:
    """Each column that was not run, or not wholly, and why, in Markdown."""
    lines = [f"- **{name}**: not run: {of.unavailable}." for name, of in found.items() if of.unavailable]
    lines += [f"- **{name}**: {note}." for name, of in found.items() for note in of.notes]
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
        f"interval for {inside} of them. That interval is of the draw of texts; on the same texts and model nothing "
        f"should differ but rounding, so the differences say more: their median is {np.median(differences):.3f}, the "
        f"largest is "
        f"{far.ours - far.published:+.3f} ({far.row}, {far.column})."
    )
