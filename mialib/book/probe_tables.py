"""What the probe paper's pages compute: the probe beside the likelihood detectors, on the same texts.

The probe needs texts to choose on and unseen texts to learn from, so everything is judged on what is left:

    unseen (lab/en:reference, ...)   the probe learns from them                       mialib.unseen
    validation, a fifth              layer and learning rate are chosen on it         mialib.probe
    test, four fifths                all methods are judged on it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mialib.attacks.probe import (
    LEARNING_RATES,
    N_TRAINING,
    Collected,
    ProbeScores,
    choose_probe,
    collect,
    judge_half,
    validation_and_test,
)
from mialib.attacks.unseen import APART, load_unseen, set_apart
from mialib.benchmarks import Benchmark
from mialib.blind import ALL_ALIKE, held_out_scores
from mialib.book.published import load_published, published_along
from mialib.book.results import Result
from mialib.catalog.models import model_revision
from mialib.detectors import DETECTORS
from mialib.metrics import Comparison, auc, auc_interval, compare_auc
from mialib.model_selection import Indices
from mialib.passes.inputs import (
    METRICS,
    FloatArray,
    Inputs,
    Target,
    as_list,
    cut_inputs,
    load_inputs,
    optional,
    score_all,
    scores_of,
    sizes_of,
    tokens_a_text,
    whole_numbers,
    with_neighbors,
)
from mialib.store import hash_texts
from mialib.text import language_of

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
    unseen: dict[str, list[str]]  # what each probe learned from, by the row that it stands in
    probes: dict[str, ProbeScores]
    collected: dict[str, Collected]
    scores: dict[str, FloatArray | None]  # (N,) by row: the baselines, our other detectors, the probes
    test: Indices  # the texts to judge on, by their numbers

    @property
    def labels(self) -> NDArray[np.int8]:
        """(len(test),), 1 = member."""
        return self.inputs.labels[self.test]

    @property
    def judged(self) -> Benchmark:
        """The texts to judge on."""
        return self.inputs.benchmark.take(self.test, f"{self.inputs.benchmark.name}, judged on")

    def on_test(self, row: str) -> FloatArray | None:
        """A method's scores of the texts to judge on; None where it is not applicable."""
        scores = self.scores[row]
        return None if scores is None else scores[self.test]

    def provenance(self) -> list[dict[str, Any]]:
        """What ran: each pass over texts, the neighbors, and the proxies with a hash of what they learned from."""
        passes = [stats.provenance for stats in self.inputs.passes()]
        same = {name: passes[0][name] for name in ("dtype", "device", "mialib")}
        if self.inputs.masked:
            made = {"model": f"neighbors by {self.inputs.masked}", "revision": model_revision(self.inputs.masked)}
            passes.append(made | same | {"texts": passes[0]["texts"], "n_texts": self.inputs.neighbors.size})
        for row, texts in self.unseen.items():
            made = {"model": f"proxies of {passes[0]['model']}, {row}", "revision": passes[0]["revision"]}
            passes.append(made | same | {"texts": hash_texts(texts), "n_texts": len(texts)})
        return passes


def lengths_of(value: Any, name: str = "lengths") -> list[int | None]:
    """A notebook parameter as lengths in words, None for whole texts: "-"."""
    return [None if optional(n) is None else whole_numbers(n, name)[0] for n in as_list(value)] or [None]


def sources_of(real: str, synthetic: str) -> dict[str, str]:
    """The unseen texts of each row of the probe; "-" for a row that is left out."""
    named = {row: source for row, source in ((REAL, optional(real)), (SYNTHETIC, optional(synthetic))) if source}
    if not named:
        raise ValueError("real and synthetic are both empty; the probe needs unseen texts to learn from")
    return named


def load(target: Target, n_words: int | None = None, masked: str | None = None, n_neighbors: int = 100) -> Inputs:
    """The target's texts, whole or cut, with their neighbors where a masked model is named."""
    inputs = load_inputs(target)
    if n_words is not None:
        inputs, _ = cut_inputs(inputs, n_words)
    return with_neighbors(inputs, masked, n_neighbors) if optional(masked) else inputs


def probe_columns(
    wanted: Iterable[Target],
    lengths: Sequence[int | None],
    sources: Mapping[str, str],
    *,
    masked: str | None = None,
    n_neighbors: int = 100,
    n_training: int = N_TRAINING,
) -> dict[str, Probed]:
    """Each target at each length, by what to head its column with; with neighbors at the first length alone."""
    columns = {}
    for n_words, target in product(lengths, wanted):
        name = target.column if n_words is None else f"{target.column}, {n_words} words"
        inputs = load(target, n_words, masked if n_words == lengths[0] else None, n_neighbors)
        columns[name] = probe_inputs(inputs, sources, n_training=n_training)
    return columns


def texts_of_field(probed: Probed, field: str) -> Indices:
    """The numbers of the texts of one domain; ValueError where there are none."""
    domains = np.array(probed.inputs.benchmark.domains)
    if field not in domains:
        known = ", ".join(sorted(set(domains.tolist()))) or "none"
        raise ValueError(f"{probed.inputs.benchmark.name} has no texts of {field!r}; it has: {known}")
    return np.flatnonzero(domains == field)


def unseen_texts(
    benchmark: Benchmark, sources: Mapping[str, str], n: int, seed: int = 0
) -> tuple[Indices, dict[str, list[str]]]:
    """`n` unseen texts of each source, and the numbers of the benchmark's texts that were not set apart for that."""
    kept, apart = np.arange(len(benchmark)), []
    if APART in sources.values():
        kept, apart = set_apart(benchmark, n, seed)
        benchmark = benchmark.take(kept, benchmark.name)
    return kept, {
        row: apart if source == APART else load_unseen(source, benchmark, n, seed) for row, source in sources.items()
    }


def probe_inputs(
    inputs: Inputs,
    sources: Mapping[str, str],
    *,
    n_training: int = N_TRAINING,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
) -> Probed:
    """The probe that learns from each of `sources`, unseen texts named as in `mialib.unseen`, by the row it stands in;
    with none, its baselines alone, judged on the same texts.

    The validation texts are the benchmark's own where it has some, else a fifth that `seed` deals out.
    """
    kept, training = unseen_texts(inputs.benchmark, sources, n_training, seed)
    inputs = inputs.take(kept, inputs.benchmark.name)
    likelihoods = {BASELINES.get(name, DETECTORS[name].label): of for name, of in score_all(inputs).items()}
    likelihoods.setdefault(BASELINES["neighbor"], None)
    in_order = {row: likelihoods[row] for row in dict.fromkeys([*BASELINES.values(), *likelihoods])}
    return probe_with(inputs, training, in_order, learning_rates=learning_rates, seed=seed)


def probe_with(
    inputs: Inputs,
    training: Mapping[str, list[str]],
    likelihoods: Mapping[str, FloatArray | None],
    *,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seed: int = 0,
) -> Probed:
    """The probe that learns from each list of unseen texts, beside scores that are there already."""
    model, texts, collected, probes = inputs.target.model, inputs.benchmark.texts, {}, {}
    validation, test = validation_and_test(inputs.labels, seed, validation_of(inputs.benchmark))
    for row, unseen in training.items():
        collected[row] = collect(model, texts, unseen, learning_rates=learning_rates, seed=seed)
        probes[row] = choose_probe(*collected[row], inputs.labels, seed, validation)
    scores = dict(likelihoods) | {row: probe.scores for row, probe in probes.items()}
    return Probed(inputs, dict(training), probes, collected, scores, test)


def validation_of(benchmark: Benchmark) -> Indices | None:
    """The texts that the benchmark says to choose on; None where it does not say."""
    return np.array(benchmark.validation) if benchmark.validation else None


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


def measure_fields(columns: Iterable[tuple[str, Probed]], fields: Sequence[str]) -> list[Result]:
    """Each method's AUC on the test texts of each domain, a column for each target and domain."""
    return [
        result
        for name, of in columns
        for field in fields
        for result in measure(of, f"{name}: {field}", {"auc": "table-2"}, texts=texts_of_field(of, field))
    ]


def against_baselines(probed: Probed, row: str = REAL) -> dict[str, Comparison | None]:
    """A probe's AUC minus each baseline's on the test texts."""
    return {
        f"{row} − {other}": None
        if probed.scores[other] is None
        else compare_auc(probed.labels, probed.on_test(row), probed.on_test(other))
        for other in BASELINES.values()
    }


def leak(probed: Probed, row: str = REAL) -> Comparison:
    """AUC of the probe that the authors' code would choose and score, each split standardized by itself, minus ours."""
    probe = probed.probes[row]
    return compare_auc(probed.labels, probe.leaking.scores[probe.test], probe.chosen.scores[probe.test])


def measure_controls(probed: Probed, column: str, row: str = REAL) -> list[Result]:
    """AUC at each layer of a probe that is told who is a member, and, by learning rate, of one judged on its proxy.

    Each is fitted on a half of the texts and judged on the other.
    """
    collected = probed.collected[row]
    activations = {"membership, told": (collected.target.values, probed.inputs.labels)}
    activations |= {f"the coin, rate {rate:g}": (of, collected.coin) for rate, of in collected.proxies.items()}
    results = []
    for name, (values, labels) in activations.items():
        judged, logits = judge_half(values, labels)
        results += [
            Result.of(
                row=f"layer {layer}",
                column=f"{column}: {name}",
                metric="auc",
                interval=auc_interval(labels[judged], of_layer),
            )
            for layer, of_layer in enumerate(logits, start=1)
        ]
    return results


def say_controls(results: Sequence[Result]) -> str:
    """What `measure_controls` found, in words: how many of each control lie above chance with their interval."""
    said = []
    for name in ("membership, told", "the coin"):
        intervals = [result for result in results if f": {name}" in result.column]
        above = sum(r.low > 0.5 for r in intervals)
        said.append(f"**{name}**: {above} of {len(intervals)} intervals lie above 0.5")
    return "; ".join(said) + ". Of intervals at chance one in forty would, too."


def by_neighbors(probed: Probed, counts: Sequence[int]) -> list[Result]:
    """The Neighbor attack's AUC on the test texts with each text's first so many neighbors, the most plausible ones."""
    inputs = probed.inputs
    if inputs.neighbors is None:
        return []
    results = []
    for n in sorted(n for n in counts if n <= inputs.neighbors.shape[1]):
        scores = scores_of(replace(inputs, neighbors=inputs.neighbors[:, :n]), "neighbor")
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
) -> dict[int, Probed]:
    """The probe with each number of training texts, a smaller set part of every larger one (Figure 3)."""
    kept, unseen = unseen_texts(inputs.benchmark, {REAL: source}, max(sizes), seed)
    inputs = inputs.take(kept, inputs.benchmark.name)
    given = {"learning_rates": learning_rates, "seed": seed}
    return {n: probe_with(inputs, {REAL: unseen[REAL][:n]}, {}, **given) for n in sorted(sizes)}


def measure_by_number(found: Mapping[int, Probed]) -> list[Result]:
    """AUC from each number of texts, a column each: on the test texts, and of the chosen probe's proxy on its own."""
    results = []
    for n, of in found.items():
        collected, chosen = of.collected[REAL], of.probes[REAL].chosen
        judged, logits = judge_half(collected.proxies[chosen.learning_rate], collected.coin)
        for row, labels, scores in (
            ("on the benchmark", of.labels, of.on_test(REAL)),
            ("on its own texts", collected.coin[judged], logits[chosen.layer - 1]),
        ):
            results.append(Result.of(row=row, column=f"{n}", metric="auc", interval=auc_interval(labels, scores)))
    return results


def compare_numbers(found: Mapping[int, Probed], number: int) -> dict[str, Comparison]:
    """The AUC from one number of texts, or the smallest where that was not run, minus that from each other number."""
    number = number if number in found else min(found)
    of = found[number]
    return {
        f"{number} − {n} texts": compare_auc(of.labels, of.on_test(REAL), other.on_test(REAL))
        for n, other in found.items()
        if n != number
    }


def compare_models(of: Probed, other: Probed, rows: Sequence[str]) -> dict[str, Comparison | None]:
    """One target's AUC minus another's on the same test texts, for each method that both have; empty for one target.

    ValueError where the two are of different texts.
    """
    if of is other:
        return {}
    if of.inputs.benchmark.texts != other.inputs.benchmark.texts:
        raise ValueError(f"{of.inputs.target.column} and {other.inputs.target.column} are not of the same texts")
    return {
        row: None
        if of.scores[row] is None or other.scores[row] is None
        else compare_auc(of.labels, of.on_test(row), other.on_test(row))
        for row in rows
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


def describe_data(benchmark: Benchmark, tokenizer: str, unseen: Mapping[str, Sequence[str]], name: str) -> list[Result]:
    """Table 1's row of a benchmark: tokens a text, examples, and how many unseen texts of each kind there are."""
    n_members = int(benchmark.labels.sum())
    facts = {
        "Avg. Tokens": round(float(np.mean(tokens_a_text(benchmark, tokenizer))), 1),
        "Members": n_members,
        "Non-Members": len(benchmark) - n_members,
        "Total": len(benchmark),
        **{kind: len(texts) for kind, texts in unseen.items()},
    }
    return sizes_of(name, facts)


def non_members(benchmark: Benchmark) -> list[str]:
    """The texts that the benchmark says were not trained on."""
    return [benchmark.texts[i] for i in np.flatnonzero(benchmark.labels == 0)]


def tell_apart(texts: Sequence[str], others: Sequence[str], row: str, column: str) -> Result:
    """AUC of a classifier that sees no model, told which are which of a half of the texts and judged on the other.

    0.5 where the two are one distribution; no AUC where no two of the texts have a word in common.
    """
    labels = np.repeat([1, 0], [len(texts), len(others)])
    judged, scores = held_out_scores([*texts, *others], labels, language=language_of(texts))
    told = np.ptp(scores) > 0
    interval = auc_interval(labels[judged], scores) if told else None
    return Result.of(row=row, column=column, metric="auc", interval=interval, why="" if told else ALL_ALIKE)


def printed_data() -> pd.DataFrame:
    """Table 1 as the paper prints it."""
    cells = load_published(PAPER, "table-1")
    table = cells.pivot(index="row", columns="column", values="value").map("{:,g}".format)
    in_order = [list(dict.fromkeys(cells[axis])) for axis in ("row", "column")]
    return table.loc[in_order[0], in_order[1]].rename_axis(index=None, columns=None)
