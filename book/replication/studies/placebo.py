"""Printed AUCs on published benchmarks beside those of a placebo: a model that can't have read either side, or that may
have read both.

What it has of a paper's lead over 0.5 need not be the paper's model remembering.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mialib.detectors import FloatArray
from mialib.metrics import Interval
from mialib.passes.inputs import Inputs, Target, load_inputs, score_all
from replication.can_have_read import has_read_neither
from replication.claims.printed import SIZES, auc_error
from replication.published import METHODS, PRINTED_ON, load_published
from replication.real import CORPORA, recorded_pairs
from replication.results import Result, label_of, measure
from replication.studies.tuning import candidates_of

N_DRAWS = 20_000


class PrintedAuc(NamedTuple):
    """An AUC that a paper prints on a benchmark, and its standard error, from the number of texts alone."""

    paper: str
    method: str
    model: str
    auc: float
    error: float


def printed_on(benchmark: str) -> Iterator[PrintedAuc]:
    """Every AUC that a paper prints of a detector of its table on a benchmark."""
    for paper, item, beginning in PRINTED_ON[benchmark]:
        cells = load_published(paper, item).query("metric == 'auc'").dropna(subset="value")
        for cell in cells[cells["column"].str.startswith(beginning)].itertuples():
            if cell.row in METHODS[paper].values():
                error = auc_error(cell.value, *SIZES[paper, beginning.removesuffix(" /")])
                yield PrintedAuc(paper, cell.row, cell.column.removeprefix(beginning).strip(), cell.value, error)


def scores_as_in(paper: str, inputs: Inputs) -> dict[str, FloatArray]:
    """Scores of a paper's methods, by its names and with its hyperparameters: SURP takes the best on the texts."""
    if paper == "surp":
        candidates = {method: of for method, of in candidates_of(inputs).items() if of}
        everything = np.arange(len(inputs.labels))
        return {method: of.scores[of.best(inputs.labels, everything)] for method, of in candidates.items()}
    names = {detector: method for detector, method in METHODS[paper].items() if detector not in ("neighbor", "probe")}
    return {names[detector]: of for detector, of in score_all(inputs, names).items() if of is not None}


def real_aucs(benchmarks: str) -> list[Result]:
    """The AUC of each detector of the papers, with its settings, of each recorded real model on each benchmark whose
    name begins so. A clean placebo is none."""
    found = []
    for model, benchmark in recorded_pairs():
        if benchmark.startswith(benchmarks) and not has_read_neither(model, benchmark):
            inputs = load_inputs(Target(model=model, benchmark=benchmark, corpus=CORPORA[0]))
            found += measure(inputs.labels, score_all(inputs), inputs.target.column)
    return [result for result in found if result.ours is not None]


def share_of_lead(placebo: Interval, printed: PrintedAuc) -> Interval | None:
    """(AUC of the placebo - 0.5) / (printed AUC - 0.5), and its 95% interval: both are drawn from normal distributions.

    They are of the same texts and drawn as if of others: the interval is too wide for a share above 0, too narrow for
    one below. None where the printed AUC itself is less than two standard errors above 0.5: there is no lead to share.
    """
    if printed.auc - 1.96 * printed.error <= 0.5:
        return None
    rng = np.random.default_rng(0)
    of_placebo = rng.normal(placebo.estimate, (placebo.high - placebo.low) / (2 * 1.96), N_DRAWS) - 0.5
    of_paper = np.maximum(rng.normal(printed.auc, printed.error, N_DRAWS) - 0.5, 1e-3)
    low, high = np.quantile(of_placebo / of_paper, [0.025, 0.975])
    return Interval((placebo.estimate - 0.5) / (printed.auc - 0.5), float(low), float(high))


def label(paper: str, method: str) -> str:
    """A paper's method by the name that all pages have."""
    return next(label_of(detector) for detector, name in METHODS[paper].items() if name == method)
