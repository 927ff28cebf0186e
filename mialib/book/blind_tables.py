"""Does a benchmark leak? Blind baselines next to its detectors, marked where they separate the classes better.

A blind baseline (`mialib.blind`) sees the texts and no model. Where it does better than every detector, nothing shows
that the detectors' AUC is of membership.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mialib.benchmarks import Benchmark
from mialib.blind import BLIND, N_FOLDS, TooFewTexts
from mialib.book.intervals import at_level
from mialib.book.published import best_printed
from mialib.book.results import BLIND_PREFIX, BOTH, DASH, Result, interval_of, load_results, needs_more, save
from mialib.book.tables import METRIC_LABELS, text_table
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.hub import Unavailable
from mialib.catalog.recorded import recorded_baselines
from mialib.catalog.sources import source_of
from mialib.metrics import Interval
from mialib.passes.cache import blind_or_load
from mialib.store import DATA, version
from mialib.text import count_copies
from mialib.versions import versions_of

LEAKS = "†"
ALL_ALIKE = "all alike"  # what is said of a baseline that gives every text the same score
# The highest of several baselines is looked at: what it is surely above holds for all of them at once (Bonferroni).
LEVEL = 1 - 0.05 / len(BLIND)
AT_CHANCE = {"auc": 0.5, "tpr_at_5_fpr": 0.05}
RECORDED = DATA / "recorded" / "blind.json"
RECORD = ("wikimia-32", "wikimia-64", "wikimia-128", "wikimia-256", "arxiv_mia", "gutenberg")

logger = logging.getLogger(__name__)


def measure_blind(
    benchmark: Benchmark, column: str, metrics: Iterable[str] = BOTH, *, kinds: Iterable[str] = BLIND
) -> list[Result]:
    """Blind baselines on a benchmark, a row each; intervals allow for the folds and for snippets of one document."""
    if not source_of(benchmark.name).has_texts:  # their AUCs were recorded with what models made of them
        aucs = recorded_baselines(benchmark.name) if "auc" in metrics else []
        return [Result(**fields | {"column": column}) for fields in aucs]
    labels, document = benchmark.labels, benchmark.document
    given = {"language": benchmark.language, "groups": document}
    try:
        scores = {kind: blind_or_load(benchmark.texts, labels, kind, **given) for kind in kinds}
    except TooFewTexts as error:
        scores = dict.fromkeys(kinds)
        logger.warning("%s: no blind baselines, since %s", column, error)
    results = []
    for metric in metrics:
        for kind, values in scores.items():
            interval, why = None, ""
            if values is None:
                why = "too few texts"
            elif np.ptp(values) == 0:
                why = ALL_ALIKE  # as where no text mentions a year
            elif document is not None and metric != "auc":
                why = "not of snippets"  # no interval of it allows for documents
            elif not (why := needs_more(metric, labels)):
                interval = widen(interval_of(metric, labels, values, document))
            row = BLIND_PREFIX + BLIND[kind].label
            results.append(Result.of(row=row, column=column, metric=metric, interval=interval, why=why))
    return results


def baseline_results(detected: Iterable[Result], benchmarks: Mapping[str, Benchmark]) -> list[Result]:
    """The blind baselines of each column's benchmark, in the metrics of its detectors' results.

    Marked where one's estimate is above the best detector's of its column and it is surely above chance, at `LEVEL`.
    """
    detected, found = list(detected), []
    for column, benchmark in benchmarks.items():
        metrics = [name for name in BOTH if any(r.column == column and r.metric == name for r in detected)]
        found += measure_blind(benchmark, column, metrics) if metrics else []
    return [replace(result, marker=LEAKS) if _beats(result, detected) else result for result in found]


def _beats(result: Result, detected: Iterable[Result]) -> bool:
    beside = highest(r for r in detected if (r.column, r.metric) == (result.column, result.metric))
    if result.ours is None or beside is None:
        return False
    return result.ours > beside.ours and is_sure(result)


def is_sure(result: Result) -> bool:
    """Whether a baseline is surely above chance, as one of several that are looked at."""
    return result.ours is not None and at_level(result.interval, LEVEL).low > AT_CHANCE[result.metric]


def highest(results: Iterable[Result]) -> Result | None:
    """The result of the highest estimate; None where none has one."""
    return max((r for r in results if r.ours is not None), key=lambda r: r.ours, default=None)


def summarize(detected: Iterable[Result], baselines: Iterable[Result]) -> str:
    """In how many columns a blind baseline's AUC beats the best detector's, and where one tells members without beating
    it, in Markdown.
    """
    detected, baselines = ([r for r in of if r.metric == "auc"] for of in (detected, baselines))
    columns = list(dict.fromkeys(r.column for r in baselines if r.ours is not None))
    if not columns:
        return "No blind baseline could be fitted: there are too few texts."
    beaten, told = [], []
    for name in columns:
        best, of_column = highest(r for r in detected if r.column == name), [r for r in baselines if r.column == name]
        marked = highest(r for r in of_column if r.marker == LEAKS)
        if blind := marked or highest(filter(is_sure, of_column)):
            of_best = f", the best detector {best.row} {best.interval}" if best else ""
            (beaten if marked else told).append(f"- `{name}`: {name_of(blind)} {blind.interval}{of_best}")
    if beaten:
        said = (
            f"{LEAKS} **In {len(beaten)} of {len(columns)} columns a blind baseline, which sees no model, beats every "
            "detector.** What a detector measures there need not be membership (estimates are compared; the intervals "
            "say how sure each is):\n\n" + "\n".join(beaten)
        )
    else:
        blind = highest(baselines)
        said = (
            f"**In none of the {len(columns)} columns does a blind baseline both beat every detector and lie surely "
            f"above chance.** The highest is {name_of(blind)} with {blind.interval} (`{blind.column}`)."
        )
    if told:
        said += (
            f"\n\n**In {len(told)} of {len(columns)} columns a blind baseline is surely above chance, though not above "
            "every detector.** The texts alone tell members there, so an AUC says little of membership:"
            "\n\n" + "\n".join(told)
        )
    return said


def leak_note(names: Iterable[str]) -> str:
    """Whether the members of each benchmark, by name or file, can be told without any model, in Markdown.

    It is of whole texts, whatever a page cuts them to: a property of the benchmark, computed once and kept.
    """
    lines = []
    for name in dict.fromkeys(names):
        benchmark = load_benchmark(name)
        baselines = measure_blind(benchmark, name, ["auc"])
        if (best := highest(baselines)) is None:
            said = f"`{name}`: there are too few texts for blind baselines, so whether it leaks is not known."
        elif blind := highest(filter(is_sure, baselines)):
            said = (
                f"**`{name}` leaks**: {name_of(blind)}, which sees the texts and no model, tells its members with an "
                f"AUC of {blind.interval}. So an AUC on it says little of membership."
            )
        else:
            said = (
                f"`{name}`: none of {len(baselines)} baselines that see the texts and no model tells its members "
                f"surely; the highest AUC is {best.interval} ({name_of(best)})."
            )
        if copies := count_copies(benchmark.texts):
            said += f" Copies of others among its {len(benchmark)} texts: {copies}, so all intervals are too narrow."
        lines.append(f"- {said}")
    return "\n".join(lines)


def explain_below(results: Iterable[Result]) -> str:
    """What an AUC surely below 0.5 means, in a sentence, where there is one; else nothing."""
    if not any(r.metric == "auc" and r.high is not None and r.high < AT_CHANCE["auc"] for r in results):
        return ""
    return (
        "An interval below 0.5 is no leak: cross-validation pushes blind AUCs of small sets below 0.5, since the text "
        "that is scored makes its own class rarer among those learned from.\n"
    )


def name_of(result: Result) -> str:
    """A blind baseline's name."""
    return result.row.removeprefix(BLIND_PREFIX)


# --- the published benchmarks ---


def measure_parts(name: str) -> tuple[list[Result], dict[str, Any]]:
    """A benchmark by name or file, and each of its domains where it has several; and what was measured."""
    benchmark = load_benchmark(name)
    results = measure_blind(benchmark, name)
    if len(domains := dict.fromkeys(benchmark.domains)) > 1:
        for domain in domains:
            of_domain = np.flatnonzero(np.array(benchmark.domains) == domain)
            results += measure_blind(benchmark.take(of_domain, f"{name}, {domain}"), f"{name}, {domain}")
    return results, {
        "benchmark": name,
        "revision": benchmark.revision,
        "members": int(benchmark.labels.sum()),
        "non_members": int((1 - benchmark.labels).sum()),
        "folds": N_FOLDS,
        "versions": versions_of("blind"),
        "scikit-learn": version("scikit-learn"),
    }


def measure_or_recorded(names: Iterable[str]) -> tuple[list[Result], list[dict[str, Any]]]:
    """The blind baselines of benchmarks; what was recorded of one that can't be had here, which its provenance says."""
    recorded, provenance = _recorded(RECORDED)
    results, sources = [], []
    for name in names:
        try:
            found, source = measure_parts(name)
            how = "measured here"
        except Unavailable:
            found, source = _of(name, recorded), provenance.get(name, {"benchmark": name})
            is_older = source.get("versions") != versions_of("blind")
            how = f"recorded{' by another version' if is_older else ''}" if found else "not to be had here"
        results, sources = [*results, *found], [*sources, source | {"how": how}]
    return results, sources


def record(names: Sequence[str] = RECORD, path: Path = RECORDED) -> None:
    """Measure benchmarks and write what the book shows where their texts can't be had; what is recorded of others
    stays."""
    results, provenance = _recorded(path)
    for name in names:
        measured, source = measure_parts(name)
        of_name = _of(name, results)
        results = [*(result for result in results if result not in of_name), *measured]
        provenance[name] = source
    save("blind", results, paper="none", item="blind baselines", ran=provenance.values(), out=path)


def _recorded(path: Path) -> tuple[list[Result], dict[str, dict[str, Any]]]:
    if not path.is_file():
        return [], {}
    return load_results(path), {p["benchmark"]: p for p in json.loads(path.read_text())["provenance"]}


def _of(name: str, results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.column.split(", ")[0] == name]


def leak_table(results: Iterable[Result], metric: str = "auc") -> pd.DataFrame:
    """One row a benchmark: each blind baseline, and the best AUC that a paper prints of any detector on it."""
    rows: dict[str, dict[str, str]] = {}
    for result in (r for r in results if r.metric == metric):
        rows.setdefault(result.column, {})[name_of(result)] = str(result)
    for name, row in rows.items():
        if metric == "auc" and (printed := best_printed(name)):
            row |= {"best printed AUC": f"{printed.auc:.3f}", "of": f"{printed.method}, {printed.model}"}
    return text_table(rows, f"{METRIC_LABELS[metric]} of blind baselines [95% interval]").fillna(DASH)


def widen(interval: Interval, n_folds: int = N_FOLDS) -> Interval:
    """The interval of a metric of out-of-fold scores, given the one that takes them for independent.

    They are not: the folds' classifiers share most of what they learned from. Nadeau and Bengio (2003) count that in by
    a variance larger by 1 + K / (K - 1) for K folds: 1.45 times the width for ten. A rule of thumb; clipped to [0, 1].
    """
    factor = sqrt(1 + n_folds / (n_folds - 1))
    low, high = (interval.estimate + factor * (end - interval.estimate) for end in (interval.low, interval.high))
    return replace(interval, low=max(0.0, low), high=min(1.0, high))
