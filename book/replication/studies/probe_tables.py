"""A column of the probe paper's tables: its baselines and the probe, judged on texts that nothing was chosen on.

unseen (lab/en:reference, ...)   the probe learns from them                       replication.builders.unseen
validation, a fifth              layer and learning rate are chosen on it         mialib.attacks.probe
test, four fifths                all methods are judged on it
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.attacks.probe import N_TRAINING, probe_scores, validation_and_test
from mialib.benchmarks import Benchmark
from mialib.catalog.models import find_weights
from mialib.detectors import FloatArray
from mialib.model_selection import Indices
from mialib.models import pick_device
from mialib.passes.inputs import Inputs, score_all
from mialib.store import hash_texts, mialib_version
from replication import results
from replication.builders.unseen import unseen_texts
from replication.profile import check_names
from replication.published import METHODS, printed
from replication.results import Result, label_of

PAPER = "probe"
# The paper's baselines, as it prints them.
BASELINES = {detector: row for detector, row in METHODS[PAPER].items() if detector != "probe"}
REAL, SYNTHETIC = METHODS[PAPER]["probe"], "Probe w. Synthetic Data"


@dataclass(frozen=True)
class ProbeColumn:
    """All texts of one column, what the probe may learn from and be chosen on, and every method's scores."""

    inputs: Inputs  # without the texts that were set apart
    unseen: dict[str, list[str]]  # what each probe learns from, by its row
    val_idx: Indices
    test_idx: Indices
    scores: dict[str, FloatArray | None]  # (N,) by row; None for a method that is not applicable

    @property
    def labels(self) -> NDArray[np.int8]:
        """(len(test_idx),), 1 = member."""
        return self.inputs.labels[self.test_idx]

    @property
    def judged(self) -> Benchmark:
        """The texts to judge on."""
        return self.inputs.labelled.take(self.test_idx, f"{self.inputs.labelled.name}, test texts")

    def on_test(self) -> dict[str, FloatArray | None]:
        """Every method's scores of the texts to judge on."""
        return results.take(self.scores, self.test_idx)

    def results(
        self, column: str, items: Mapping[str, str], published: str | None = None, domain: str | None = None
    ) -> list[Result]:
        """Each method's metrics on the test texts, or on the test texts of one domain.

        `items` says which item of the paper prints each metric; `published` is the printed column to show next to ours.
        ValueError for a domain without texts.
        """
        numbers = self.test_idx
        if domain is not None:
            domains = np.array(self.inputs.labelled.domains)
            check_names([domain], {*domains.tolist()}, f"{self.inputs.labelled.name} has no texts of")
            numbers = numbers[domains[numbers] == domain]
        scores = results.take(self.scores, numbers)
        beside: dict[str, Any] = {"printed": printed(PAPER, items, published), "published_column": published}
        return results.measure(self.inputs.labels[numbers], scores, column, items, **beside)

    def passes(self) -> list[dict[str, Any]]:
        """What ran: each pass over the texts, the neighbors, and the proxies with a hash of what they learned from."""
        target, passes = self.inputs.target, self.inputs.passes()
        if target.masked and self.inputs.loaded.get("neighbors") is not None:
            facts = provenance(f"neighbors by {target.masked}", target.masked, self.inputs.texts)
            passes.append(facts | {"n_texts": self.inputs["neighbors"].size})
        texts_by_pass = {f"proxies of {target.model}, {row}": texts for row, texts in self.unseen.items()}
        return passes + [provenance(name, target.model, texts) for name, texts in texts_by_pass.items()]


def provenance(name: str, model: str, texts: Sequence[str]) -> dict[str, Any]:
    """What `results.save` keeps of a run of a model on texts that is no pass of `Inputs`, under a name of its own."""
    source, device = find_weights(model), pick_device()
    return {
        "model": name,
        "revision": source.revision,
        "dtype": str(source.dtype_on(device)).removeprefix("torch."),
        "device": device.type,
        "mialib": mialib_version(),
        "texts": hash_texts(texts),
        "n_texts": len(texts),
    }


def baseline_column(inputs: Inputs, sources: Mapping[str, str], *, n_training: int = N_TRAINING) -> ProbeColumn:
    """The baselines, then our other detectors, and unseen texts for a probe of each of `sources`.

    `sources` are named as in `replication.builders.unseen`, by the row that the probe will have. The validation texts
    are the benchmark's own where it has some, else a random fifth.
    """
    left, training_texts = unseen_texts(inputs.labelled, sources, n_training)
    inputs = inputs.take(left, inputs.labelled.name)
    val_idx, test_idx = split_of(inputs.labelled)
    scores = {BASELINES.get(name, label_of(name)): of for name, of in score_all(inputs).items()}
    return ProbeColumn(inputs, training_texts, val_idx, test_idx, dict.fromkeys(BASELINES.values()) | scores)


def split_of(benchmark: Benchmark) -> tuple[Indices, Indices]:
    """The texts to choose a probe on, which the benchmark may name, and those to judge on."""
    validation = np.array(benchmark.validation) if benchmark.validation else None
    return validation_and_test(benchmark.labels, validation=validation)


def probe_column(inputs: Inputs, sources: Mapping[str, str], *, n_training: int = N_TRAINING) -> ProbeColumn:
    """`baseline_column`, and below it the probe that learns from each of the sources; of none, the baselines alone."""
    column = baseline_column(inputs, sources, n_training=n_training)
    model, texts, labels = column.inputs.target.model, column.inputs.texts, column.inputs.labels
    for row, training_texts in column.unseen.items():
        column.scores[row] = probe_scores(model, texts, labels, training_texts, validation=column.val_idx).scores
    return column
