"""The papers' own tables, on the papers' own models and benchmarks: each printed number beside ours.

A profile's page that runs the notebook `paper_table` says, for each printed column, what it was made of.
`measure_column` computes one; the pipeline runs it once a column, as a job of its own, and the notebook collects what
is there. A column that can't be had here keeps its printed numbers, and says "not run" beside them and why.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from mialib.attacks.probe import N_TRAINING
from mialib.catalog.hub import Unavailable
from mialib.catalog.sources import find
from mialib.passes.inputs import Inputs, Target, load_inputs, score_all
from mialib.shared.schema import one_line
from mialib.store import write_json
from replication import blind_tables, pages
from replication.profile import PAPER_TABLE, Profile, check_names
from replication.published import printed
from replication.results import Result, measure
from replication.studies import probe_tables
from replication.studies.tuning import tune_two_ways

NOT_RUN = "not run"
OTHER_START = "auc_other_start"  # the metric of an AUC with the other convention of the start token
SOURCES = {"the reference model": "reference", "the reference corpus": "corpus", "neighbors": "masked"}


class Column(Target):
    """What a printed column, or a printed row of DC-PDD's Tables 4 and 5, was made of.

    `start_token` is the paper's own convention, as far as it can be known: "auto" is the registry's token, which is
    what DC-PDD says that it prepends (Section 4). The SURP and the probe paper do not say what they do.
    """

    a: PositiveFloat = 0.01  # DC-PDD's bound
    a_values: tuple[PositiveFloat, ...] = ()  # instead: one number for each (Table 5)
    corpora: dict[str, str] = Field(default_factory=dict)  # instead: by printed name (Table 4)
    unseen: str | None = None  # what the probe learns from, as in `replication.builders.unseen`
    n_training: PositiveInt = N_TRAINING
    fields: dict[str, str] = Field(default_factory=dict)  # further printed columns, of one domain each (probing)
    note: str = ""  # what the page says of it besides

    @property
    def has_other_start_token(self) -> bool:
        """Whether AUCs with the other convention are shown beside: not of one detector, nor where passes are paid."""
        return not (self.a_values or self.corpora or not find(self.model).has_weights)

    @property
    def n_passes(self) -> int:
        """How often the model reads the texts: as they are, mostly in lower case, and after the other start token."""
        return (1 if self.a_values or self.corpora else 2) + self.has_other_start_token


class FigureColumn(Column):
    """What a figure's page runs, after one start token: DC-PDD's read no lower case, the others may."""

    @property
    def n_passes(self) -> int:
        """How often the model reads the texts, at most."""
        return 1 if self.corpus else 2


@dataclass(frozen=True)
class MeasuredColumn:
    """A printed column's numbers beside ours, what could not be run of it, and what ran."""

    results: list[Result]
    notes: list[str]
    provenance: list[dict[str, Any]]
    unavailable: str = ""  # why nothing was run


def read_columns(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, Column]:
    """A page's `columns` parameter, checked; ValueError names the column and what is wrong in it."""
    checked = {}
    for name, column in columns.items():
        try:
            checked[name] = Column.model_validate(column)
        except ValidationError as error:
            raise ValueError(f"column {name!r}: {one_line(error)}") from None
    return checked


def columns_of(profile: Profile) -> list[tuple[str, str, Column]]:
    """Each page of a profile that is made of columns, each printed column and what it is made of."""
    pages = {name: page for name, page in profile.notebooks.items() if page.notebook == PAPER_TABLE}
    return [(name, *of) for name, page in pages.items() for of in read_columns(page.parameters["columns"]).items()]


def columns_of_figures(profile: Profile) -> list[tuple[str, str, Column]]:
    """What `columns_of` gives, of the other pages that run the papers' models: each model, on what, and with what.

    Nothing where the profile brings models of its own.
    """
    columns: list[tuple[str, str, Column]] = []
    for name, page in ({} if profile.models else profile.notebooks).items():
        parameters = page.parameters
        if "models" not in parameters:
            continue
        models, benchmarks = pages.as_list(parameters["models"]), pages.as_list(parameters["benchmarks"])
        models = models * len(benchmarks) if len(models) == 1 else models
        more: dict[str, Any] = {key: parameters.get(key) for key in ("references", "corpora", "masked", "n_neighbors")}
        n_training = max(parameters.get("sizes", [N_TRAINING]))
        probe = {"unseen": pages.optional(parameters.get("real")), "n_training": n_training}
        for target in pages.targets(models, benchmarks, **more):
            columns.append((name, target.column, FigureColumn.model_validate(target.model_dump() | probe)))
    return columns


def is_whole(path: str | Path) -> bool:
    """Whether a kept column, or a page's results, have all that could be had; if not, they may be tried again."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    return not content.get("unavailable") and not content.get("notes")


def choose_columns(profile: Profile, only: Sequence[str]) -> list[tuple[str, str, Column]]:
    """The columns whose model, benchmark or page is named in `only`, all where it is empty; ValueError for another.

    Of the tables, then of the figures.
    """
    every = columns_of(profile) + columns_of_figures(profile)
    names = [{page, column.model, column.benchmark} for page, _, column in every]
    check_names(only, set().union(*names), f"profile {profile.name} has no model, benchmark or page of the papers'")
    return [one for one, of_one in zip(every, names, strict=True) if not only or of_one & set(only)]


def file_name(column: str) -> str:
    """A printed column's name as a file's, without suffix."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", column)


def measure_column(paper: str, items: Mapping[str, str], name: str, column: Column) -> MeasuredColumn:
    """A column's numbers beside those that `items`, {metric: item of the paper}, print under `name`.

    Without its reference model, corpus, masked model or unseen texts it is measured all the same, and a note says what
    is lacking. Unavailable where its model or benchmark can't be had.
    """
    inputs, notes = _load(column)
    measurement = MEASURE[paper](inputs, items, name, column)
    cells: dict[tuple[str, str, str], Result] = {}
    for result in (*measurement.results, *printed_alone(paper, items, name, column)):
        cells.setdefault((result.row, result.column, result.metric), result)
    others, why_not = _other_start_token(inputs, paper, items, name, column)
    results = [*map(_not_run, cells.values()), *others]
    benchmark = inputs.scored_benchmark
    domains, parts = np.array(benchmark.domains), {name: benchmark}
    for field, domain in column.fields.items():
        parts[field] = benchmark.take(np.flatnonzero(domains == domain), field)
    results += blind_tables.baseline_results(results, parts)
    return MeasuredColumn(results, notes + why_not + measurement.notes, measurement.provenance)


def _other_start_token(
    inputs: Inputs, paper: str, items: Mapping[str, str], name: str, column: Column
) -> tuple[list[Result], list[str]]:
    """AUCs where nothing is prepended, or a start token where the column has none, and a note where there are none.

    Of the detectors that take one pass of the model over the texts, which is the one pass more that this costs.
    """
    if not column.has_other_start_token:
        return [], []
    changes = {"start_token": None if column.start_token else "auto"} | dict.fromkeys(SOURCES.values())
    variant = column.model_copy(update=changes)
    measure_other = MEASURE | {"probe": partial(_probe, learns=False)}
    try:
        again = load_inputs(variant).given(frequency=inputs["frequency"], lowercase=None)
        results = measure_other[paper](again, {"auc": items["auc"]}, name, variant).results
    except ValueError as error:  # a text of one token, say, of which nothing would be scored
        return [], [f"without the other start token: {error}"]
    aucs = [of for of in results if (of.column, of.metric) == (name, "auc") and of.ours is not None]
    return [replace(of, metric=OTHER_START, published=None, published_column=None) for of in aucs], []


def printed_alone(paper: str, items: Mapping[str, str], name: str, column: Column) -> list[Result]:
    """The printed numbers of a column, and the AUCs of its fields, with none of ours."""
    results = []
    for heading in (name, *column.fields):
        its_items = items if heading == name else {"auc": items["auc"]}
        for metric, rows in printed(paper, its_items, heading).items():
            for row, (value, _) in rows.items():
                about = {"row": row, "column": heading, "metric": metric, "published_column": heading}
                results.append(_not_run(Result.of(interval=None, published=value, **about)))
    return results


def _not_run(result: Result) -> Result:
    """The result, which says so where its number is printed and ours is lacking for no other reason."""
    is_lacking = result.ours is None and result.published is not None
    return replace(result, why=result.why or (NOT_RUN if is_lacking else ""))


def _load(column: Column) -> tuple[Inputs, list[str]]:
    """Everything that the column needs and that can be had, and a note for each thing that can't."""
    pages.check_size(column.model)
    inputs, notes = load_inputs(column.but(**dict.fromkeys(SOURCES.values()))), []
    for what, source in SOURCES.items():
        try:
            inputs = inputs.retarget(**{source: getattr(column, source)})
        except Unavailable as error:
            notes.append(f"without {what}: {error}")
    return inputs, notes


def _dc_pdd(inputs: Inputs, items: Mapping[str, str], name: str, column: Column) -> MeasuredColumn:
    """DC-PDD's Tables 2 and 3, a column of all detectors; or a row of Table 4 or 5, DC-PDD alone."""
    variants = {f"{a:g}": (a, column.corpus) for a in column.a_values}
    variants |= {label: (column.a, corpus) for label, corpus in column.corpora.items()}
    scores, notes = {} if variants else score_all(inputs, dc_pdd={"a": column.a}), []
    for label, (a, corpus) in variants.items():
        try:
            of = inputs.retarget(corpus=corpus) if column.corpora else inputs
        except Unavailable as error:
            notes.append(f"without the corpus {corpus}: {error}")
            of = inputs
        scores[label] = score_all(of, ["dc_pdd"], dc_pdd={"a": a})["dc_pdd"]
    beside: dict[str, Any] = {"printed": printed("dc-pdd", items, name), "published_column": name}
    star = None if variants else ("dc_pdd", "min_k")
    return MeasuredColumn(measure(inputs.labels, scores, name, items, star=star, **beside), notes, inputs.passes())


def _surp(inputs: Inputs, items: Mapping[str, str], name: str, column: Column) -> MeasuredColumn:
    """SURP's tables: hyperparameters the best on the reported texts, and chosen on others."""
    return MeasuredColumn(tune_two_ways(inputs).results(name, items["auc"], name), [], inputs.passes())


def _probe(
    inputs: Inputs, items: Mapping[str, str], name: str, column: Column, *, learns: bool = True
) -> MeasuredColumn:
    """The probe paper's tables: baselines and, where it learns, the probe, on texts that it was not chosen on."""
    sources = {probe_tables.REAL: column.unseen} if column.unseen else {}
    notes = [] if sources else ["without unseen texts, which the probe learns from"]
    score = probe_tables.probe_column if learns else probe_tables.baseline_column
    try:
        probed = score(inputs, sources, n_training=column.n_training)
    except Unavailable as error:
        notes.append(f"without the probe: {error}")
        probed = score(inputs, {})
    results = probed.results(name, items, name)
    for field, domain in column.fields.items():
        results += probed.results(field, {"auc": items["auc"]}, field, domain)
    return MeasuredColumn(results, notes, probed.passes())


MEASURE = {"dc-pdd": _dc_pdd, "surp": _surp, "probe": _probe}


def save_column(path: str | Path, measured: MeasuredColumn) -> None:
    """Write a column, all or nothing."""
    write_json(path, asdict(measured))


def load_column(path: str | Path) -> MeasuredColumn:
    """Read what `save_column` wrote."""
    column = json.loads(Path(path).read_text(encoding="utf-8"))
    return MeasuredColumn(**column | {"results": [Result(**fields) for fields in column["results"]]})


def measure_or_say_why(paper: str, items: Mapping[str, str], name: str, column: Column) -> MeasuredColumn:
    """A column, or its printed numbers and why it can't be run here: one that fails must not cost the others."""
    import torch

    alone = printed_alone(paper, items, name, column)  # an error in its names is one of the profile
    try:
        return measure_column(paper, items, name, column)
    except (OSError, ValueError, MemoryError, ArithmeticError, torch.OutOfMemoryError) as error:
        return MeasuredColumn(alone, [], [], (str(error).splitlines() or [type(error).__name__])[0])


def collect_columns(
    paper: str, items: Mapping[str, str], columns: Mapping[str, Column], computed: str | Path = ""
) -> dict[str, MeasuredColumn]:
    """Collect all columns of a page: from the files in the folder `computed`, or computed here where that is empty."""
    if not computed:
        return {name: measure_or_say_why(paper, items, name, column) for name, column in columns.items()}
    columns_by_name = {}
    for name, column in columns.items():
        path = Path(computed) / f"{file_name(name)}.json"
        alone = MeasuredColumn(printed_alone(paper, items, name, column), [], [], "not asked for in this run")
        columns_by_name[name] = load_column(path) if path.is_file() else alone
    return columns_by_name
