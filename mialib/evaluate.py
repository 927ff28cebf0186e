"""From a model and a benchmark to numbers: what a notebook calls.

targets = evaluate.targets(models=..., benchmarks=...)   what to run, a results table's columns
inputs  = evaluate.load_inputs(target)                   texts, labels and every pass a detector may need
scores  = evaluate.score_all(inputs)                     {detector: (N,) scores, or None where not applicable}
results = evaluate.measure(inputs, scores)               AUC and TPR with intervals, beside the published numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark, count_words, load_benchmark
from mialib.cache import count_or_load, neighbor_log_probs_or_load, score_cut_texts, score_or_load
from mialib.detectors import DETECTORS, FloatArray, detect, get_detector
from mialib.frequency import TokenFrequency
from mialib.metrics import (
    Comparison,
    auc_interval,
    compare_auc,
    compare_tpr_at_fpr,
    tpr_at_fpr_interval,
)
from mialib.models import load_tokenizer
from mialib.published import markers_along, published_along
from mialib.reference import warn_of_other_language
from mialib.results import Result
from mialib.token_stats import TokenStats

PASSES = ("lowercase", "reference")  # over the texts, beside the target's own
METRICS = {"auc": auc_interval, "tpr_at_5_fpr": tpr_at_fpr_interval}
SIGNIFICANT = 0.05
COMPARISONS = {"auc": compare_auc, "tpr_at_5_fpr": compare_tpr_at_fpr}
# DC-PDD's ablation (Section 5.2): the calibrated probabilities alone, then with each strategy.
ABLATION = {
    "CLD": {"lup": False, "sfo": False},
    "+LUP": {"lup": True, "sfo": False},
    "+SFO": {"lup": True, "sfo": True},
}


@dataclass(frozen=True)
class Target:
    """One column of a results table."""

    model: str
    benchmark: str
    reference: str | None = None  # a smaller model, for Small Ref
    corpus: str | None = None  # a reference corpus, for DC-PDD
    published: str | None = None  # the published table's column that stands beside it

    @property
    def column(self) -> str:
        """The column's heading."""
        return f"{self.model} on {self.benchmark}"


@dataclass(frozen=True)
class Inputs:
    """Everything the likelihood detectors of one target may need, text by text in the benchmark's order."""

    target: Target
    benchmark: Benchmark
    stats: TokenStats
    lowercase: TokenStats | None
    reference: TokenStats | None
    frequency: TokenFrequency | None
    neighbors: FloatArray | None = None  # (N, M): mean log p of each text's neighbors, nats
    masked: str | None = None  # the masked language model that made them

    @property
    def labels(self) -> NDArray[np.int8]:
        """(N,), 1 = member."""
        return self.benchmark.labels

    def passes(self) -> list[TokenStats]:
        """Every pass of a model over texts that was read."""
        return [stats for stats in (self.stats, self.lowercase, self.reference) if stats is not None]

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str) -> Inputs:
        """The same of the texts with these numbers, as a benchmark of another name."""
        return replace(
            self,
            target=replace(self.target, benchmark=name),
            benchmark=self.benchmark.take(indices, name),
            stats=self.stats.take(indices),
            lowercase=None if self.lowercase is None else self.lowercase.take(indices),
            reference=None if self.reference is None else self.reference.take(indices),
            neighbors=None if self.neighbors is None else self.neighbors[np.asarray(indices)],
        )

    def given(self) -> dict[str, Any]:
        """What `detect` takes by keyword."""
        return {
            "texts": self.benchmark.texts,
            "lowercase": self.lowercase,
            "reference": self.reference,
            "frequency": self.frequency,
            "neighbors": self.neighbors,
        }


def as_list(value: str | Sequence[Any] | float | None) -> list[Any]:
    """A notebook parameter as a list: a YAML list from a profile, or comma-separated text from papermill's `-p`."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return list(value) if isinstance(value, Sequence) else [value]


def optional(value: Any) -> Any:
    """A notebook parameter that may be none: "-" and the empty string are."""
    return None if value in ("", "-", None) else value


def whole_numbers(value: Any, name: str) -> list[int]:
    """A notebook parameter as positive whole numbers; ValueError, with the parameter's name, for anything else."""
    numbers = []
    for entry in as_list(value):
        if not str(entry).isdecimal() or int(entry) < 1:
            raise ValueError(f"{name}: a positive whole number is expected, got {entry!r}")
        numbers.append(int(entry))
    return numbers


def one_for_each(value: Any, n: int, name: str) -> list[Any]:
    """A notebook parameter with an entry for each of `n` things, or one for all of them; None for an empty or "-"."""
    entries = [optional(entry) for entry in as_list(value)] or [None]
    if len(entries) not in (1, n):
        raise ValueError(f"{name}: {len(entries)} entries for {n}; give one for each, or one for all")
    return entries * n if len(entries) == 1 else entries


def targets(
    models: str | Sequence[str],
    benchmarks: str | Sequence[str],
    references: str | Sequence[str | None] | None = None,
    corpora: str | Sequence[str | None] | None = None,
    published: str | Sequence[str | None] | None = None,
) -> list[Target]:
    """One target for each model; each other list is as long as `models`, or holds one entry for all of them, or is
    empty.

    An empty entry, or "-", means that there is none.
    """
    names = as_list(models)
    if not names:
        raise ValueError("models: at least one model is needed")
    columns: dict[str, list[Any]] = {}
    for field, value in {
        "benchmark": benchmarks,
        "reference": references,
        "corpus": corpora,
        "published": published,
    }.items():
        columns[field] = one_for_each(value, len(names), field)
    if None in columns["benchmark"]:
        raise ValueError("benchmarks: each model needs one")
    made = [Target(model, **{field: of[i] for field, of in columns.items()}) for i, model in enumerate(names)]
    for i, target in enumerate(made):
        if target.column in [other.column for other in made[:i]]:
            raise ValueError(f"{target.column!r} is asked for twice; a page has one column for each")
    return made


def load_inputs(target: Target, needs: Iterable[str] = PASSES) -> Inputs:
    """Load the benchmark and score it, or load its scores: the texts, lowercased, and under the reference model.

    The last two only where `needs` has them; reading less is quicker where it is known which detectors run. Neighbors
    take a hundred passes, and `with_neighbors` adds them where they are wanted.
    """
    return inputs_of(target, load_benchmark(target.benchmark), needs)


def inputs_of(target: Target, benchmark: Benchmark, needs: Iterable[str] = PASSES) -> Inputs:
    """What `load_inputs` gives, of a benchmark that is loaded already."""
    texts, needs = benchmark.texts, set(needs)
    has_lowercase = "lowercase" in needs and has_case(benchmark)
    inputs = Inputs(
        target=target,
        benchmark=benchmark,
        stats=score_or_load(target.model, texts),
        lowercase=score_or_load(target.model, lowered(benchmark)) if has_lowercase else None,
        reference=None,
        frequency=None,
    )
    if target.reference and "reference" in needs:
        inputs = with_reference(inputs, target.reference)
    return with_corpus(inputs, target.corpus) if target.corpus else inputs


def with_reference(inputs: Inputs, model: str) -> Inputs:
    """The same inputs with the texts' statistics under a smaller model, for Small Ref."""
    target = replace(inputs.target, reference=model)
    return replace(inputs, target=target, reference=score_or_load(model, inputs.benchmark.texts))


def with_neighbors(inputs: Inputs, masked_lm: str, n_neighbors: int = 100) -> Inputs:
    """The same inputs with the log-probs of each text's neighbors, which a masked language model makes."""
    benchmark = inputs.benchmark
    neighbors = neighbor_log_probs_or_load(
        inputs.target.model, benchmark.texts, masked_lm, n_neighbors=n_neighbors, language=benchmark.language
    )
    return replace(inputs, neighbors=neighbors, masked=masked_lm)


def with_corpus(inputs: Inputs, corpus: str) -> Inputs:
    """The same inputs with the token frequencies of a reference corpus; one in another language is warned of."""
    if "token_ids" in inputs.stats.lacks:
        return inputs
    warn_of_other_language(corpus, inputs.benchmark.texts, inputs.benchmark.name)
    target = replace(inputs.target, corpus=corpus)
    return replace(inputs, target=target, frequency=count_or_load(corpus, target.model))


def without_corpus(inputs: Inputs) -> Inputs:
    """The same inputs with all tokens equally frequent: DC-PDD without its calibration."""
    flat = TokenFrequency(np.zeros_like(inputs.frequency.counts), "all tokens alike", inputs.frequency.tokenizer)
    return replace(inputs, target=replace(inputs.target, corpus=None), frequency=flat)


def common_labels(columns: Sequence[Inputs]) -> NDArray[np.int8]:
    """The labels (N,) that columns of the same texts share; ValueError where their texts or labels differ."""
    first = columns[0]
    for other in columns[1:]:
        if other.benchmark.texts != first.benchmark.texts or not np.array_equal(other.labels, first.labels):
            raise ValueError(
                f"{first.target.column} and {other.target.column} are not of the same texts with the same labels; "
                "give both models one benchmark"
            )
    return first.labels


def has_case(benchmark: Benchmark) -> bool:
    """Whether lowercasing means anything: not in Chinese, where at most units and formulas have case."""
    return benchmark.language != "zh"


def lowered(benchmark: Benchmark) -> list[str]:
    """The texts in lower case."""
    return [text.lower() for text in benchmark.texts]


def cut_inputs(inputs: Inputs, n_words: int) -> tuple[Inputs, int]:
    """The same inputs with each text cut to `n_words` words, and how many texts needed no new forward pass.

    Without neighbors: those of a cut text are others.
    """
    cut = inputs.benchmark.cut(n_words)
    target = inputs.target
    stats, n_reused = score_cut_texts(target.model, inputs.stats, cut.texts)
    lowercase, reference = inputs.lowercase, inputs.reference
    if lowercase is not None:
        lowercase, _ = score_cut_texts(target.model, lowercase, lowered(cut))
    if reference is not None:
        reference, _ = score_cut_texts(target.reference, reference, cut.texts)
    made = replace(
        inputs, benchmark=cut, stats=stats, lowercase=lowercase, reference=reference, neighbors=None, masked=None
    )
    return made, n_reused


def split_lengths(benchmark: Benchmark, lengths: Iterable[int]) -> tuple[list[int], dict[int, int]]:
    """The lengths in words that the texts can be cut to, and the others with how many texts are too short for each.

    A length is left out where over half of the texts are shorter. ValueError where all are.
    """
    counts = np.array([count_words(text, benchmark.language) for text in benchmark.texts])
    short = {length: int(np.sum(counts < length)) for length in sorted(lengths)}
    left_out = {length: n for length, n in short.items() if n > len(counts) / 2}
    kept = [length for length in short if length not in left_out]
    if not kept:
        raise ValueError(
            f"{benchmark.name}: half of the texts have at most {int(np.median(counts))} words, "
            f"so they cannot be cut to {', '.join(map(str, short))}"
        )
    return kept, left_out


def score_all(
    inputs: Inputs, detectors: Iterable[str] | None = None, **hyperparameters: Mapping[str, Any]
) -> dict[str, FloatArray | None]:
    """Scores of each detector, None where an input or a column that it reads does not exist for this target (a dash in
    the tables).

    Without a choice, all detectors, but Neighbor only where neighbors were asked for: no page shows a row of dashes for
    want of a hundred passes. `hyperparameters` are given by detector: `min_k={"k": 10}`; ValueError for those of a
    detector that is not scored.
    """
    given = inputs.given()
    if detectors is None:
        detectors = [
            name for name, known in DETECTORS.items() if inputs.neighbors is not None or "neighbors" not in known.needs
        ]
    detectors = list(detectors)
    if unknown := [name for name in hyperparameters if name not in detectors]:
        raise ValueError(
            f"hyperparameters of {unknown[0]!r}, which is not among the detectors to score: {', '.join(detectors)}"
        )
    scores: dict[str, FloatArray | None] = {}
    for name in detectors:
        known = get_detector(name)
        needed = {need: given[need] for need in known.needs}
        is_known = set(known.reads).isdisjoint(inputs.stats.lacks)
        is_applicable = is_known and all(value is not None for value in needed.values())
        options = hyperparameters.get(name, {})
        scores[name] = detect(name, inputs.stats, **needed, **options) if is_applicable else None
    return scores


def labelled(scores: Mapping[str, FloatArray | None]) -> dict[str, FloatArray]:
    """The scores of the detectors that are applicable, by the names that tables print."""
    return {DETECTORS[name].label: values for name, values in scores.items() if values is not None}


def scores_of(inputs: Inputs, detector: str, **hyperparameters: Any) -> FloatArray:
    """One detector's scores; ValueError where it is not applicable to this target."""
    needed = {need: inputs.given()[need] for need in get_detector(detector).needs}
    return detect(detector, inputs.stats, **needed, **hyperparameters)


def ablation(inputs: Inputs, a: float) -> dict[str, FloatArray]:
    """DC-PDD's scores as the calibrated probabilities alone, with the upper bound `a`, and with first occurrences."""
    return {name: scores_of(inputs, "dc_pdd", a=a, **options) for name, options in ABLATION.items()}


def measure_named(labels: NDArray[np.int8], scores: Mapping[str, FloatArray], column: str) -> list[Result]:
    """AUC of scores by any name, a row each."""
    return [
        Result.of(row=name, column=column, metric="auc", interval=auc_interval(labels, values))
        for name, values in scores.items()
    ]


def describe(benchmark: Benchmark, tokenizers: Iterable[str]) -> list[Result]:
    """A benchmark's size: words a text, examples, the share of members, and tokens a text of each model's tokenizer."""
    counts = [count_words(text, benchmark.language) for text in benchmark.texts]
    facts = {
        "words a text (median)": np.median(counts),
        "shortest": min(counts),
        "longest": max(counts),
        "examples": len(benchmark),
        "members (%)": 100 * benchmark.labels.mean(),
    }
    for model in tokenizers:
        facts[f"tokens of {model} (median)"] = np.median(tokens_a_text(benchmark, model))
    return sizes_of(benchmark.name, facts)


def tokens_a_text(benchmark: Benchmark, tokenizer: str) -> list[int]:
    """How many tokens of a model each text has, without a start token."""
    encoded = load_tokenizer(tokenizer)(list(benchmark.texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [len(ids) for ids in encoded]


def sizes_of(row: str, facts: Mapping[str, float]) -> list[Result]:
    """Counts and sizes as results, a column each: they have no interval."""
    return [
        Result(row=row, column=name, metric="size", ours=float(value), low=float(value), high=float(value))
        for name, value in facts.items()
    ]


def measure(
    inputs: Inputs,
    scores: Mapping[str, FloatArray | None],
    *,
    paper: str | None = None,
    items: Mapping[str, str] | None = None,
    column: str | None = None,
    star: tuple[str, str] | None = None,
) -> list[Result]:
    """AUC and TPR@5%FPR of each detector with intervals.

    `items` says which item of `paper` prints each metric (`{"auc": "table-2"}`); only its metrics are computed. The
    published number stands beside ours where the target names a published column. `star` is a detector and the one
    that it is compared with: its cells are marked where it is significantly better (paired, two-sided p <= 0.05).
    """
    results = []
    for metric, item in (items or dict.fromkeys(METRICS)).items():
        printed = _printed(inputs.target, paper, item, metric)
        markers = _printed_markers(inputs.target, paper, item, metric)
        for name, values in scores.items():
            is_starred = bool(star) and name == star[0] and _is_better(inputs, scores, *star, metric)
            label = DETECTORS[name].label
            results.append(
                Result.of(
                    row=label,
                    column=column or inputs.target.column,
                    metric=metric,
                    interval=None if values is None else METRICS[metric](inputs.labels, values),
                    published=printed.get(label),
                    published_column=inputs.target.published,
                    marker="*" if is_starred else "",
                    published_marker=markers.get(label, ""),
                )
            )
    return results


def _is_better(inputs: Inputs, scores: Mapping[str, FloatArray | None], name: str, other: str, metric: str) -> bool:
    """Whether one detector is significantly better than another on the same texts."""
    comparison = compare(inputs, scores, name, other, metric)
    return comparison is not None and comparison.difference.estimate > 0 and comparison.p_value <= SIGNIFICANT


def _printed(target: Target, paper: str | None, item: str | None, metric: str) -> dict[str, float | None]:
    """The published numbers that stand beside a target's, empty where the target names none."""
    if not (target.published and paper and item):
        return {}
    return published_along(paper, item, target.published, metric)


def _printed_markers(target: Target, paper: str | None, item: str | None, metric: str) -> dict[str, str]:
    """The paper's marks of those numbers."""
    if not (target.published and paper and item):
        return {}
    return markers_along(paper, item, target.published, metric)


def sweep(
    inputs: Inputs,
    detector: str,
    hyperparameter: str,
    values: Sequence[float],
    *,
    paper: str | None = None,
    item: str | None = None,
    metrics: Sequence[str] = ("auc",),
) -> tuple[list[Result], dict[float, FloatArray]]:
    """Each metric of one detector over values of one hyperparameter, a row each, and the scores behind them.

    The published AUC stands beside each value that the item prints in its row `target.published`.
    """
    printed = _printed(inputs.target, paper, item, "auc")
    results, scores = [], {}
    for value in values:
        scores[value] = scores_of(inputs, detector, **{hyperparameter: value})
        for metric in metrics:
            results.append(
                Result.of(
                    row=f"{value:g}",
                    column=inputs.target.column,
                    metric=metric,
                    interval=METRICS[metric](inputs.labels, scores[value]),
                    published=printed.get(f"{value:g}") if metric == "auc" else None,
                    published_column=inputs.target.published,
                )
            )
    return results, scores


def compare(
    inputs: Inputs, scores: Mapping[str, FloatArray | None], name: str, other: str, metric: str = "auc"
) -> Comparison | None:
    """One detector's metric minus another's on the same texts, None where either is not applicable."""
    if scores.get(name) is None or scores.get(other) is None:
        return None
    return COMPARISONS[metric](inputs.labels, scores[name], scores[other])
