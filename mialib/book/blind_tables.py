"""Does a benchmark leak? Blind baselines beside its detectors, marked where they tell members better.

A blind baseline (`mialib.blind`) sees the texts and no model. Where it does better than every detector, nothing shows
that the detectors' AUC is of membership.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.blind import ALL_ALIKE, BLIND, N_FOLDS, PREFIX, TooFewTexts, widen
from mialib.book.published import best_printed
from mialib.book.results import BOTH, DASH, Result, interval_of, load_results, save
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.hub import Unavailable
from mialib.metrics import at_level
from mialib.passes.cache import blind_or_load
from mialib.store import DATA, code_hash

LEAKS = "†"
# A baseline is one of several, and the highest is looked at: what it is sure to be above holds for all of them at once
# (Bonferroni).
LEVEL = 1 - 0.05 / len(BLIND)
CHANCE = {"auc": 0.5, "tpr_at_5_fpr": 0.05}
RECORDED = DATA / "recorded" / "blind.json"
RECORD = ("wikimia-32", "wikimia-64", "wikimia-128", "wikimia-256", "arxiv_mia", "gutenberg")

logger = logging.getLogger(__name__)


def measure(
    benchmark: Benchmark, column: str, metrics: Iterable[str] = BOTH, *, kinds: Iterable[str] = BLIND
) -> list[Result]:
    """Blind baselines on a benchmark, a row each, with intervals that know of the folds and of its documents."""
    labels, document = benchmark.labels, benchmark.document
    given = {"language": benchmark.language, "groups": document}
    try:
        scores = {kind: blind_or_load(benchmark.texts, labels, kind, **given) for kind in kinds}
    except TooFewTexts as error:
        scores = dict.fromkeys(kinds)
        logger.warning("%s has no blind baselines: %s", column, error)

    def of(metric: str, kind: str, values: NDArray[np.float64] | None) -> Result:
        interval, why = None, ""
        if values is None:
            why = "too few texts"
        elif np.ptp(values) == 0:
            why = ALL_ALIKE  # no text mentions a year, say
        elif document is not None and metric != "auc":
            why = "not of snippets"  # there is no interval of it that knows of documents
        else:
            interval = widen(interval_of(metric, labels, values, document))
        return Result.of(row=PREFIX + BLIND[kind].label, column=column, metric=metric, interval=interval, why=why)

    return [of(metric, kind, values) for metric in metrics for kind, values in scores.items()]


def baseline_results(detected: Iterable[Result], benchmarks: Mapping[str, Benchmark]) -> list[Result]:
    """The blind baselines of each column's benchmark, in the metrics of its detectors' results.

    Marked where one's estimate is above the best detector's of its column and it is surely above chance, at `LEVEL`.
    """
    detected, found = list(detected), []
    for column, benchmark in benchmarks.items():
        metrics = [name for name in BOTH if any(r.column == column and r.metric == name for r in detected)]
        found += measure(benchmark, column, metrics) if metrics else []
    return [replace(result, marker=LEAKS) if _beats(result, detected) else result for result in found]


def _beats(result: Result, detected: Sequence[Result]) -> bool:
    best = _best(r for r in detected if (r.column, r.metric) == (result.column, result.metric))
    if result.ours is None or best is None:
        return False
    return result.ours > best.ours and at_level(result.interval, LEVEL).low > CHANCE[result.metric]


def _best(results: Iterable[Result]) -> Result | None:
    return max((r for r in results if r.ours is not None), key=lambda r: r.ours, default=None)


def summarize(detected: Iterable[Result], baselines: Iterable[Result], metric: str = "auc") -> str:
    """In how many columns a blind baseline beats the best detector, and by how much, in Markdown."""
    detected, baselines = ([r for r in of if r.metric == metric] for of in (detected, baselines))
    columns = list(dict.fromkeys(r.column for r in baselines if r.ours is not None))
    if not columns:
        return "No blind baseline could be fitted: there are too few texts."
    leaking = {name: _best(r for r in baselines if r.column == name and r.marker == LEAKS) for name in columns}
    leaking = {name: blind for name, blind in leaking.items() if blind}
    if not leaking:
        highest = _best(baselines)
        return (
            f"**In none of {len(columns)} columns does a blind baseline beat every detector and lie surely above "
            f"chance.** The highest is {name_of(highest)} with {highest.interval} (`{highest.column}`)."
        )
    best = {name: _best(r for r in detected if r.column == name) for name in leaking}
    lines = [
        f"- `{name}`: {name_of(blind)} {blind.interval}, the best detector {best[name].row} {best[name].interval}"
        for name, blind in leaking.items()
    ]
    return (
        f"{LEAKS} **In {len(leaking)} of {len(columns)} columns a blind baseline, which sees no model, beats every "
        "detector.** What a detector measures there need not be membership (estimates are compared; the intervals say "
        "how sure each is):\n\n" + "\n".join(lines)
    )


def explain_below(results: Iterable[Result]) -> str:
    """What an AUC surely below 0.5 means, in a sentence, where there is one; else nothing."""
    if not any(r.metric == "auc" and r.high is not None and r.high < CHANCE["auc"] for r in results):
        return ""
    return (
        "An interval below 0.5 is no leak: a text that is scored is missing from those learned from, which in a small "
        "set tilts them against it.\n"
    )


def name_of(result: Result) -> str:
    """A blind baseline's name."""
    return result.row.removeprefix(PREFIX)


# --- the published benchmarks -----------------------------------------------------------------------------------------


def measure_parts(name: str) -> tuple[list[Result], dict[str, Any]]:
    """A benchmark by name or file, and each of its domains where it has several; and what was measured."""
    benchmark = load_benchmark(name)
    parts = dict.fromkeys(benchmark.domains) if len(set(benchmark.domains)) > 1 else {}
    results = measure(benchmark, name)
    for part in parts:
        of_part = [i for i, domain in enumerate(benchmark.domains) if domain == part]
        results += measure(benchmark.take(of_part, f"{name}, {part}"), f"{name}, {part}")
    return results, {
        "benchmark": name,
        "revision": benchmark.revision,
        "members": int(benchmark.labels.sum()),
        "non_members": int((1 - benchmark.labels).sum()),
        "folds": N_FOLDS,
        "code": code_hash("blind"),
        "scikit-learn": version("scikit-learn"),
    }


def measure_or_recorded(names: Iterable[str]) -> tuple[list[Result], list[dict[str, Any]]]:
    """The blind baselines of benchmarks; what was recorded of one that can't be had here, which its provenance says."""
    kept = load_results(RECORDED) if RECORDED.is_file() else []
    provenance = {p["benchmark"]: p for p in _recorded_provenance()}
    results, sources = [], []
    for name in names:
        try:
            found, source = measure_parts(name)
            source["how"] = "measured here"
        except Unavailable:
            found = [r for r in kept if r.column.split(", ")[0] == name]
            source = provenance.get(name, {"benchmark": name})
            is_older = source.get("code") != code_hash("blind")
            how = f"recorded{' by other code' if is_older else ''}" if found else "not to be had here"
            source = source | {"how": how}
        results, sources = [*results, *found], [*sources, source]
    return results, sources


def _recorded_provenance() -> list[dict[str, Any]]:
    return json.loads(RECORDED.read_text())["provenance"] if RECORDED.is_file() else []


def record(names: Sequence[str] = RECORD, path: Path = RECORDED) -> None:
    """Measure benchmarks and write what the book shows where their texts can't be had; others that are kept stay."""
    found = {name: measure_parts(name) for name in names}
    kept = {p["benchmark"]: p for p in json.loads(path.read_text())["provenance"]} if path.is_file() else {}
    results = [r for r in (load_results(path) if kept else []) if r.column.split(", ")[0] not in found]
    results += [result for of, _ in found.values() for result in of]
    provenance = kept | {name: source for name, (_, source) in found.items()}
    save("blind", results, paper="none", item="blind baselines", ran=provenance.values(), out=path)


def leak_table(results: Iterable[Result], metric: str = "auc") -> pd.DataFrame:
    """One row a benchmark: each blind baseline, and the best AUC that a paper prints of any detector on it."""
    rows: dict[str, dict[str, str]] = {}
    for result in (r for r in results if r.metric == metric):
        rows.setdefault(result.column, {})[name_of(result)] = str(result)
    if metric == "auc":
        for name, row in rows.items():
            if printed := best_printed(name):
                row |= {"best printed AUC": f"{printed.auc:.3f}", "of": f"{printed.method}, {printed.model}"}
    return pd.DataFrame.from_dict(rows, orient="index").fillna(DASH)


def sources_table(sources: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """What was measured, a row a benchmark, and whether here or elsewhere."""
    rows = {
        source["benchmark"]: {
            "members / non-members": f"{source['members']} / {source['non_members']}" if "members" in source else DASH,
            "hash or commit": source.get("revision", DASH)[:16],
            "how": source["how"] + (f", scikit-learn {source['scikit-learn']}" if "scikit-learn" in source else ""),
        }
        for source in sources
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def say_leaks(results: Iterable[Result]) -> str:
    """Whether a benchmark's best blind baseline surely, at `LEVEL`, beats the papers' best AUC on it, in Markdown."""
    results = [r for r in results if r.metric == "auc"]
    lines = []
    for name in dict.fromkeys(r.column for r in results):
        blind, printed = _best(r for r in results if r.column == name), best_printed(name)
        if blind is None or printed is None:
            continue
        sure = at_level(blind.interval, LEVEL)
        beats = "beats" if sure.low > printed.auc else "is below" if sure.high < printed.auc else "is not told from"
        lines.append(f"- **{name}**: {name_of(blind)}, {blind.interval}, {beats} the papers' best, {printed}.")
    if not lines:
        return "None of these benchmarks is one that the papers print AUCs of."
    said = (
        f"The highest of {len(BLIND)} is looked at, so it is compared at {LEVEL:.0%}; the intervals shown are of 95%."
    )
    return "\n".join([*lines, "", said])
