"""What the probe paper's pages compute: the probe beside the likelihood detectors, on the same texts.

The probe needs texts to choose on and unseen texts to learn from, so everything is judged on what is left:

    unseen (lab/en:reference, ...)   the probe learns from them                       mialib.unseen
    validation, a fifth              layer and learning rate are chosen on it         mialib.probe
    test, four fifths                all methods are judged on it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mialib.choose import Indices
from mialib.detectors import DETECTORS
from mialib.evaluate import (
    METRICS,
    FloatArray,
    Inputs,
    Target,
    cut_inputs,
    load_inputs,
    score_all,
    with_neighbors,
)
from mialib.metrics import Comparison, auc, auc_interval, compare_auc
from mialib.probe import (
    LEARNING_RATES,
    N_TRAINING,
    Collected,
    ProbeScores,
    choose_probe,
    collect,
    own_texts_scores,
    probe_scores,
    supervised_scores,
)
from mialib.published import published_along
from mialib.results import Result
from mialib.unseen import APART, load_unseen, set_apart

PAPER = "probe"
# The paper's baselines, as it prints them.
BASELINES = {
    "ppl": "Loss Attack",
    "neighbor": "Neighbor Attack",
    "min_k": "Min-K% Prob",
    "zlib": "Zlib Compression",
    "lowercase": "Lowercased Text",
    "ref": "Smaller Model",
}
REAL, SYNTHETIC = "Probe w. Real Data", "Probe w. Synthetic Data"


@dataclass(frozen=True)
class Probed:
    """One column of Tables 2 to 4: all texts, and the probes of each source of unseen ones."""

    inputs: Inputs  # without the texts that were set apart
    probes: dict[str, ProbeScores]  # by the row that they stand in
    collected: dict[str, Collected]
    scores: dict[str, FloatArray | None]  # (N,) by row: the baselines, our other detectors, the probes

    @property
    def test(self) -> Indices:
        """The texts to judge on, by their numbers."""
        return next(iter(self.probes.values())).test

    @property
    def labels(self) -> NDArray[np.int8]:
        """(len(test),), 1 = member."""
        return self.inputs.labels[self.test]

    def on_test(self, row: str) -> FloatArray | None:
        """A method's scores of the texts to judge on; None where it is not applicable."""
        scores = self.scores[row]
        return None if scores is None else scores[self.test]


def load(target: Target, n_words: int | None = None, masked: str | None = None, n_neighbors: int = 100) -> Inputs:
    """The target's texts, whole or cut, with their neighbors where a masked model is named."""
    inputs = load_inputs(target)
    if n_words is not None:
        inputs, _ = cut_inputs(inputs, n_words)
    return inputs if masked is None else with_neighbors(inputs, masked, n_neighbors)


def probe_inputs(
    inputs: Inputs,
    sources: Mapping[str, str],
    *,
    n_training: int = N_TRAINING,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
) -> Probed:
    """The probe that learns from each of `sources`, unseen texts named as in `mialib.unseen`, by the row it stands in.

    The validation texts are the benchmark's own where it has some, else a fifth that `seed` deals out.
    """
    training = {}
    if APART in sources.values():
        kept, apart = set_apart(inputs.benchmark, n_training, seed)
        training = {row: apart for row, source in sources.items() if source == APART}
        inputs = inputs.take(kept, inputs.benchmark.name)
    training |= {
        row: load_unseen(source, inputs.benchmark, n_training, seed)
        for row, source in sources.items()
        if source != APART
    }
    validation = np.array(inputs.benchmark.validation) if inputs.benchmark.validation else None
    model, texts, collected, probes = inputs.target.model, inputs.benchmark.texts, {}, {}
    for row, unseen in training.items():
        collected[row] = collect(model, texts, unseen, learning_rates=learning_rates, seed=seed)
        probes[row] = choose_probe(*collected[row], inputs.labels, seed, validation)
    likelihoods = {BASELINES.get(name, DETECTORS[name].label): of for name, of in score_all(inputs).items()}
    likelihoods.setdefault(BASELINES["neighbor"], None)
    in_order = dict.fromkeys([*BASELINES.values(), *likelihoods])
    scores = {row: likelihoods[row] for row in in_order} | {row: probes[row].scores for row in sources}
    return Probed(inputs, probes, collected, scores)


def measure(
    probed: Probed,
    column: str,
    items: Mapping[str, str],
    published: str | None = None,
    texts: Indices | None = None,
) -> list[Result]:
    """Each method's metrics on the test texts, or on those of them that are among `texts`.

    `items` says which item of the paper prints each metric; `published` is its column that stands beside ours.
    """
    judged = probed.test if texts is None else np.intersect1d(probed.test, texts)
    labels, results = probed.inputs.labels[judged], []
    for metric, item in items.items():
        printed = published_along(PAPER, item, published, metric) if published else {}
        for row, scores in probed.scores.items():
            results.append(
                Result.of(
                    row=row,
                    column=column,
                    metric=metric,
                    interval=None if scores is None else METRICS[metric](labels, scores[judged]),
                    published=printed.get(row),
                    published_column=published,
                )
            )
    return results


def against_baselines(probed: Probed, row: str = REAL) -> dict[str, Comparison | None]:
    """A probe's AUC minus each baseline's on the test texts."""
    return {
        f"{row} − {other}": None
        if probed.scores[other] is None
        else compare_auc(probed.labels, probed.on_test(row), probed.on_test(other))
        for other in BASELINES.values()
    }


def leak(probed: Probed, row: str = REAL) -> Comparison:
    """AUC of the probe with each split standardized by itself, as the authors' code does it, minus that of ours."""
    probe = probed.probes[row]
    return compare_auc(probed.labels, probe.leaking.scores[probe.test], probe.chosen.scores[probe.test])


def measure_controls(probed: Probed, column: str, row: str = REAL) -> list[Result]:
    """AUC at each layer of a probe that is told who is a member, and, by learning rate, of one judged on its proxy."""
    collected = probed.collected[row]
    columns = {
        "membership, told": (probed.inputs.labels, supervised_scores(collected.target, probed.inputs.labels)),
        **{
            f"the coin, rate {rate:g}": (collected.coin, scores) for rate, scores in own_texts_scores(collected).items()
        },
    }
    return [
        Result.of(
            row=f"layer {layer}",
            column=f"{column}: {name}",
            metric="auc",
            interval=auc_interval(labels, of_layer),
        )
        for name, (labels, scores) in columns.items()
        for layer, of_layer in enumerate(scores, start=1)
    ]


def by_neighbors(probed: Probed, counts: Sequence[int]) -> list[Result]:
    """The Neighbor attack's AUC on the test texts with each text's first so many neighbors, the most plausible ones."""
    inputs = probed.inputs
    if inputs.neighbors is None:
        return []
    results = []
    for n in sorted(n for n in counts if n <= inputs.neighbors.shape[1]):
        scores = score_all(replace(inputs, neighbors=inputs.neighbors[:, :n]), ["neighbor"])["neighbor"]
        interval = auc_interval(probed.labels, scores[probed.test])
        results.append(Result.of(row=f"{n}", column=inputs.target.column, metric="auc", interval=interval))
    return results


def by_number_of_texts(
    inputs: Inputs,
    source: str,
    sizes: Sequence[int],
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
) -> dict[int, ProbeScores]:
    """The probe with each number of training texts, a smaller set part of every larger one (Figure 3)."""
    benchmark = inputs.benchmark
    unseen = load_unseen(source, benchmark, max(sizes), seed)
    validation = np.array(benchmark.validation) if benchmark.validation else None
    given = {"validation": validation, "learning_rates": learning_rates, "seed": seed}
    return {
        n: probe_scores(inputs.target.model, benchmark.texts, inputs.labels, unseen[:n], **given) for n in sorted(sizes)
    }


def describe_choice(probed: Probed) -> dict[str, dict[str, str]]:
    """What each probe chose on the validation texts, and what it got there and on the others."""
    rows = {}
    for row, probe in probed.probes.items():
        on_validation = probe.chosen.validation_aucs
        rows[row] = {
            "learning rate": f"{probe.chosen.learning_rate:g}",
            "layer": f"{probe.chosen.layer} of {on_validation.shape[1]}",
            f"AUC on the {len(probe.validation)} validation texts": f"{on_validation.max():.3f}",
            f"AUC on the {len(probe.test)} test texts": f"{auc(probed.labels, probed.on_test(row)):.3f}",
            "as the authors' code standardizes": f"{auc(probed.labels, probe.leaking.scores[probe.test]):.3f}",
        }
    return rows
