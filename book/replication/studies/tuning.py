"""Hyperparameters chosen in two ways: on all texts, as the SURP paper does, and on a fifth that is not reported.

The first way looks better than it is: the best of many on the texts that it is judged on is partly luck there. SURP's
Tables 1 to 3 show both ways side by side, and `gap` measures how far they lie apart. `tune_once` takes the second way
for columns that differ in their non-members alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mialib.detectors import DETECTORS, describe_options
from mialib.metrics import FloatArray, aucs
from mialib.model_selection import HELD_OUT, Candidates, Indices, stratified_split
from mialib.passes.inputs import Inputs, score_all, score_grid, unavailable_reason
from replication import published
from replication.published import printed, printed_column
from replication.results import Result, measure
from replication.tables import text_table

PAPER = "surp"
# The rows of the paper's tables, by detector.
METHODS = published.METHODS["surp"]
GAP_SPLITS = 10


@dataclass(frozen=True)
class Gap:
    """How much higher an AUC is where hyperparameters are chosen on the texts judged, over random splits."""

    mean: float
    largest: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} (up to {self.largest:.3f})"


def gap(candidates: Candidates, labels: ArrayLike, document: Indices | None = None) -> Gap:
    """AUC of what four fifths of the texts choose minus AUC of what the other fifth chooses, both on the four fifths.

    It is never negative: the best of many on the judged texts is partly luck there, and a fifth chooses worse.
    """
    labels, gaps = np.asarray(labels), []
    for seed in range(GAP_SPLITS):
        val_idx, test_idx = stratified_split(labels, HELD_OUT, seed, document)
        pair = [candidates.best(labels, test_idx), candidates.best(labels, val_idx)]
        best, tuned = aucs(labels[test_idx], candidates.scores[pair][:, test_idx])
        gaps.append(float(best - tuned))
    return Gap(float(np.mean(gaps)), max(gaps))


def candidates_of(inputs: Inputs) -> dict[str, Candidates | None]:
    """Each method's scores at every point of its grid, by the paper's name; None where it is not applicable."""
    return {
        name: None if unavailable_reason(inputs, detector) else score_grid(inputs, detector)
        for detector, name in METHODS.items()
    }


@dataclass(frozen=True)
class TunedTwoWays:
    """All methods on one benchmark: the hyperparameters that all texts choose, and those that a fifth chooses."""

    inputs: Inputs
    candidates: Mapping[str, Candidates | None]  # by method, as `candidates_of` gives them
    best_on_all: Mapping[str, int]  # the number of the best candidate, of each method that is applicable
    best_on_fifth: Mapping[str, int]
    test_idx: Indices  # the other four fifths

    @property
    def labels(self) -> NDArray[np.int8]:
        """Of the texts that nothing was chosen on."""
        return self.inputs.labels[self.test_idx]

    @property
    def held_out(self) -> dict[str, FloatArray | None]:
        """Scores of the texts that nothing was chosen on, with what the fifth chose."""
        best = self.best_on_fifth
        return {name: c.scores[best[name], self.test_idx] if c else None for name, c in self.candidates.items()}

    @cached_property
    def gaps(self) -> dict[str, Gap]:
        """The gap of each method that has something to choose."""
        labels, document = self.inputs.labels, self.inputs.labelled.document
        return {name: gap(c, labels, document) for name, c in self.candidates.items() if c and len(c.options) > 1}

    def options(self, method: str) -> dict[str, dict[str, float]]:
        """What was chosen for a method, by the metric of `results`."""
        options = candidates.options if (candidates := self.candidates[method]) else ()
        return {"auc": options[self.best_on_all[method]], "auc_held_out": options[self.best_on_fifth[method]]}

    def results(self, column: str = "", item: str = "", published: str | None = None) -> list[Result]:
        """AUC of every method: "auc" chosen and judged on all texts, "auc_held_out" chosen on a fifth and judged on the
        others.

        `published` is the column of the paper's `item` to show next to "auc", if the item has it; of documents with
        several texts, intervals draw whole documents.
        """
        column, published = column or self.inputs.target.column, published and printed_column(PAPER, item, published)
        document, best = self.inputs.labelled.document, self.best_on_all
        on_all = {name: c.scores[best[name]] if c else None for name, c in self.candidates.items()}
        documents = None if document is None else document[self.test_idx]
        paper: dict[str, Any] = {"printed": printed(PAPER, {"auc": item}, published), "published_column": published}
        return [
            *measure(self.inputs.labels, on_all, column, document=document, **paper),
            *measure(self.labels, self.held_out, column, named="auc_held_out", document=documents),
        ]


def tune_two_ways(inputs: Inputs) -> TunedTwoWays:
    """Every method of the paper's tables, its hyperparameters chosen on all texts and on a random fifth.

    Of documents that have several texts the fifth is whole documents: a document's texts are alike.
    """
    labels, candidates = inputs.labels, candidates_of(inputs)
    val_idx, test_idx = stratified_split(labels, HELD_OUT, document=inputs.labelled.document)
    on_all = {name: c.best(labels) for name, c in candidates.items() if c}
    on_fifth = {name: c.best(labels, val_idx) for name, c in candidates.items() if c}
    return TunedTwoWays(inputs, candidates, on_all, on_fifth, test_idx)


def choice_table(columns: Mapping[str, TunedTwoWays], measured: Iterable[Result]) -> pd.DataFrame:
    """One row a column and method with hyperparameters: AUC and choice of each way, and the gap between the two."""
    result, rows = {(r.column, r.row, r.metric): r for r in measured}, {}
    for column, tuned in columns.items():
        for method, its_gap in tuned.gaps.items():
            on_all, on_fifth = (
                f"{result[column, method, metric]}, {describe_options(options)}"
                for metric, options in tuned.options(method).items()
            )
            rows[f"{column}: {method}"] = {"paper's way": on_all, "chosen on a fifth": on_fifth, "gap": str(its_gap)}
    return text_table(rows, "AUC with hyperparameters chosen in the paper's way and on a fifth of the texts")


def tune_once(
    columns: Sequence[Inputs], detectors: Sequence[str]
) -> tuple[list[Inputs], list[dict[str, FloatArray]], dict[str, dict[str, float]]]:
    """Columns with the same members, each detector's scores of them, and the hyperparameters that were chosen.

    A random fifth of the first column's texts chooses for all columns. It is left out of each, so that all are judged
    on the same members, none of which was chosen on. Detectors that are not applicable have no scores.
    """
    first, choices = columns[0], {}
    val_idx, _ = stratified_split(first.labels, HELD_OUT)
    for name in detectors:
        if DETECTORS[name].grid and not unavailable_reason(first, name):
            candidates = score_grid(first, name)
            choices[name] = candidates.options[candidates.best(first.labels, val_idx)]
    left_out, judged, scored = {first.texts[i] for i in val_idx}, [], []
    for column in columns:
        rest = [i for i, text in enumerate(column.texts) if text not in left_out]
        judged.append(column.take(rest, column.target.benchmark))
        scores = score_all(judged[-1], detectors, **choices)
        scored.append({name: of for name, of in scores.items() if of is not None})
    return judged, scored, choices
