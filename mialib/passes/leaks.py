"""Does a benchmark leak? How well baselines that see only the texts separate its members from its non-members."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.blind import BLIND, N_FOLDS, TooFewTexts
from mialib.bootstrap import at_level, text_auc_interval
from mialib.metrics import FloatArray, Interval, non_members_needed, tpr_at_fpr_interval
from mialib.passes.cache import blind_or_load

ALL_ALIKE = "all alike"  # what is said of a baseline that gives every text the same score
# The highest of several baselines is looked at, so its test allows for all of them at once (Bonferroni).
LEVEL = 1 - 0.05 / len(BLIND)
AT_CHANCE = {"auc": 0.5, "tpr_at_5_fpr": 0.05}  # the metrics, and what a baseline that knows nothing has

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leak:
    """One metric of a blind baseline, with the interval that allows for its folds and for snippets of one document."""

    label: str
    metric: str  # a key of AT_CHANCE
    interval: Interval | None
    why: str = ""  # there is no interval

    @property
    def is_sure(self) -> bool:
        """Whether it is significantly above chance, as one of several that are looked at."""
        return self.interval is not None and is_above_chance(self.metric, self.interval)

    def __str__(self) -> str:
        return str(self.interval or self.why)


def measure_leaks(
    benchmark: Benchmark, metrics: Iterable[str] = tuple(AT_CHANCE), kinds: Iterable[str] = BLIND
) -> list[Leak]:
    """Measure the blind baselines of a benchmark; with too few texts, each says so."""
    labels, document, language = benchmark.labels, benchmark.document, benchmark.language
    scores: dict[str, FloatArray | None]
    options: dict[str, Any] = {"language": language, "groups": document}
    try:
        scores = {kind: blind_or_load(benchmark.texts, labels, kind, **options) for kind in kinds}
    except TooFewTexts as error:
        scores = dict.fromkeys(kinds)
        logger.warning("%s: no blind baselines, since %s", benchmark.name, error)
    return [
        Leak(BLIND[kind].label, metric, *_interval(benchmark, metric, kind_scores))
        for metric in metrics
        for kind, kind_scores in scores.items()
    ]


def _interval(benchmark: Benchmark, metric: str, scores: FloatArray | None) -> tuple[Interval | None, str]:
    labels, document = benchmark.labels, benchmark.document
    if scores is None:
        return None, "too few texts"
    if np.ptp(scores) == 0:
        return None, ALL_ALIKE  # as where no text mentions a year
    if metric == "auc":
        return widen(text_auc_interval(labels, scores, document)), ""
    if document is not None:
        return None, "not of snippets"  # no interval of it allows for documents
    if (labels == 0).sum() < (needed := non_members_needed(0.05)):
        return None, f"needs {needed}"
    return widen(tpr_at_fpr_interval(labels, scores, fpr=0.05)), ""


def is_above_chance(metric: str, interval: Interval) -> bool:
    """Whether an interval lies above chance at `LEVEL`."""
    return at_level(interval, LEVEL).low > AT_CHANCE[metric]


def explain_below(intervals: Iterable[Interval | None]) -> str:
    """What an AUC significantly below 0.5 means, in a sentence, where there is one; else nothing."""
    if not any(interval and interval.high < AT_CHANCE["auc"] for interval in intervals):
        return ""
    return (
        "An interval below 0.5 is no leak: cross-validation pushes blind AUCs of small sets below 0.5, since the text "
        "that is scored makes its own class rarer among those learned from.\n"
    )


def widen(interval: Interval, n_folds: int = N_FOLDS) -> Interval:
    """The interval of a metric of out-of-fold scores, given the one that takes them for independent.

    They are not: the folds' classifiers share most of what they learned from. Nadeau and Bengio (2003) count that in by
    a variance larger by 1 + K / (K - 1) for K folds: 1.45 times the width for ten. A rule of thumb; clipped to [0, 1].
    """
    factor = sqrt(1 + n_folds / (n_folds - 1))
    low, high = (interval.estimate + factor * (end - interval.estimate) for end in (interval.low, interval.high))
    return replace(interval, low=max(0.0, low), high=min(1.0, high))


def by_domain(benchmark: Benchmark) -> list[Benchmark]:
    """A benchmark and, where it has several domains, each of them by itself: "NAME, DOMAIN"."""
    domains = np.array(benchmark.domains)
    names = list(dict.fromkeys(benchmark.domains))
    parts = [benchmark.take(np.flatnonzero(domains == of), f"{benchmark.name}, {of}") for of in names]
    return [benchmark, *(parts if len(parts) > 1 else [])]
