"""Does a benchmark leak? Blind baselines next to its detectors, marked where they separate the classes better.

A blind baseline (`mialib.blind`) sees the texts and no model. Where it does better than every detector, nothing shows
that the detectors' AUC is of membership.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from mialib.benchmarks import Benchmark
from mialib.blind import BLIND, N_FOLDS, TooFewTexts, blind_words
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.hub import Unavailable
from mialib.passes.leaks import by_domain, is_above_chance, measure_leaks
from mialib.store import version
from mialib.text import count_copies
from mialib.versions import versions_of
from replication import BOOK_DATA
from replication.published import best_printed
from replication.real import REAL
from replication.recorded import is_recorded, recorded_baselines
from replication.results import BLIND_PREFIX, BOTH, DASH, Result, load_results, save
from replication.tables import text_table

LEAKS = "†"
RECORDED = BOOK_DATA / "recorded" / "blind.json"
RECORD = ("wikimia-32", "wikimia-64", "wikimia-128", "wikimia-256", "arxiv_mia", "gutenberg")
RECORD_WORDS = ("wikimia-32", "arxiv_mia")  # whose texts may not be passed on, but single words of them


def measure_blind(
    benchmark: Benchmark, column: str, metrics: Iterable[str] = BOTH, *, kinds: Iterable[str] = BLIND
) -> list[Result]:
    """Blind baselines on a benchmark, a row each; of one whose texts are not here, as recorded."""
    if is_recorded(benchmark.name):
        aucs = recorded_baselines(benchmark.name) if "auc" in metrics else []
        return [Result(**fields | {"column": column}) for fields in aucs]
    if benchmark.name.startswith(REAL):
        found = [r for r in load_results(RECORDED) if r.column == benchmark.name.removeprefix(REAL)]
        return [replace(r, column=column) for r in found if r.metric in metrics]
    return [
        Result.of(row=BLIND_PREFIX + of.label, column=column, metric=of.metric, interval=of.interval, why=of.why)
        for of in measure_leaks(benchmark, metrics, kinds)
    ]


def baseline_results(detected: Iterable[Result], benchmarks: Mapping[str, Benchmark]) -> list[Result]:
    """The blind baselines of each column's benchmark, marked where one is above chance and above the best detector."""
    detected, found = list(detected), []
    for column, benchmark in benchmarks.items():
        metrics = [name for name in BOTH if any((r.column, r.metric) == (column, name) for r in detected)]
        found += measure_blind(benchmark, column, metrics) if metrics else []
    return [replace(result, marker=LEAKS) if _beats(result, detected) else result for result in found]


def _beats(result: Result, detected: Iterable[Result]) -> bool:
    best = highest(r for r in detected if (r.column, r.metric) == (result.column, result.metric))
    return is_sure(result) and best is not None and (result.ours or 0) > (best.ours or 0)


def is_sure(result: Result) -> bool:
    """Whether a baseline is significantly above chance, as one of several that are looked at."""
    return result.interval is not None and is_above_chance(result.metric, result.interval)


def highest(results: Iterable[Result]) -> Result | None:
    """The result of the highest estimate; None where none has one."""
    return max((r for r in results if r.ours is not None), key=lambda r: r.ours or 0, default=None)


def summarize(detected: Iterable[Result], baselines: Iterable[Result]) -> str:
    """In how many columns a blind baseline beats the best detector's AUC, or is at least above chance, in Markdown."""
    detected, baselines = ([r for r in of if r.metric == "auc"] for of in (detected, baselines))
    columns = list(dict.fromkeys(r.column for r in baselines if r.ours is not None))
    if (top := highest(baselines)) is None:
        return "No blind baseline could be fitted: there are too few texts."
    beaten: list[str] = []
    above_chance: list[str] = []
    for name in columns:
        best, of_column = highest(r for r in detected if r.column == name), [r for r in baselines if r.column == name]
        marked = highest(r for r in of_column if r.marker == LEAKS)
        if blind := marked or highest(filter(is_sure, of_column)):
            of_best = f", the best detector {best.row} {best.interval}" if best else ""
            (beaten if marked else above_chance).append(f"- `{name}`: {name_of(blind)} {blind.interval}{of_best}")
    said = (
        "**In no column is a blind baseline both above every detector and significantly "
        f"above chance.** The highest is {name_of(top)} with {top.interval} (`{top.column}`)."
    )
    if beaten:
        said = (
            f"{LEAKS} **In {len(beaten)} of {len(columns)} columns a blind baseline, which sees no model, beats every "
            "detector.** What a detector measures there need not be membership (estimates are compared, not "
            "intervals):\n\n" + "\n".join(beaten)
        )
    if above_chance:
        said += (
            f"\n\n**In {len(above_chance)} of {len(columns)} columns a blind baseline is significantly above chance, "
            "not above every detector.** The texts alone separate members there, so an AUC says little about "
            "membership:\n\n"
        ) + "\n".join(above_chance)
    return said


def leak_text(names: Iterable[str]) -> str:
    """Whether the texts alone separate the members of each whole benchmark, by name or file, in Markdown."""
    lines = []
    for name in dict.fromkeys(names):
        benchmark = load_benchmark(name)
        baselines = measure_blind(benchmark, name, ["auc"])
        if (best := highest(baselines)) is None:
            said = f"`{name}`: there are too few texts for blind baselines, so whether it leaks is not known."
        elif blind := highest(filter(is_sure, baselines)):
            said = (
                f"**`{name}` leaks**: {name_of(blind)}, which sees only the texts, separates its members from "
                f"non-members with an AUC of {blind.interval}. So an AUC on it says little about membership."
            )
        else:
            said = (
                f"`{name}`: no baseline that sees only the texts ({len(baselines)} tried) has an AUC significantly "
                f"above 0.5; the highest is {best.interval} ({name_of(best)})."
            )
        if copies := count_copies(benchmark.texts):
            said += f" Of its {len(benchmark)} texts {copies} repeat an earlier one, so all intervals are too narrow."
        lines.append(f"- {said}")
    return "\n".join(lines)


def name_of(result: Result) -> str:
    """A blind baseline's name."""
    return result.row.removeprefix(BLIND_PREFIX)


def measure_parts(name: str) -> tuple[list[Result], dict[str, Any]]:
    """A benchmark by name or file, and each of its domains where it has several; and what was measured."""
    benchmark = load_benchmark(name)
    results = [result for part in by_domain(benchmark) for result in measure_blind(part, part.name)]
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
        results += found
        sources.append(source | {"how": how})
    return results, sources


def record_baselines(names: Sequence[str] = RECORD, path: Path = RECORDED) -> None:
    """Measure benchmarks and write what the book shows where their texts are missing; records of others stay."""
    results, provenance = _recorded(path)
    for name in names:
        measured, provenance[name] = measure_parts(name)
        if name in RECORD_WORDS:
            provenance[name]["words"] = strongest_words(load_benchmark(name))
        of_name = _of(name, results)
        results = [result for result in results if result not in of_name] + measured
    save("blind", results, paper="none", item="blind baselines", ran=provenance.values(), out=path)


def strongest_words(benchmark: Benchmark) -> dict[str, list[str]]:
    """The words by which the word counter tells each side of a benchmark, the strongest first."""
    sides = blind_words(benchmark.texts, benchmark.labels, language=benchmark.language, groups=benchmark.document)
    return {side: list(words) for side, words in zip(("members", "non-members"), sides, strict=True)}


def words_or_recorded(names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """The strongest words of those benchmarks whose words are recorded, or whose texts are here."""
    _, provenance = _recorded(RECORDED)
    words = {}
    for name in names:
        with suppress(Unavailable, TooFewTexts):
            words[name] = provenance.get(name, {}).get("words") or strongest_words(load_benchmark(name))
    return words


def _recorded(path: Path) -> tuple[list[Result], dict[str, dict[str, Any]]]:
    if not path.is_file():
        return [], {}
    return load_results(path), {p["benchmark"]: p for p in json.loads(path.read_text())["provenance"]}


def _of(name: str, results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.column.split(", ")[0] == name]


def leak_table(results: Iterable[Result]) -> pd.DataFrame:
    """One row a benchmark: each blind baseline, and the best AUC that a paper prints of any detector on it."""
    rows: dict[str, dict[str, str]] = {}
    for result in (r for r in results if r.metric == "auc"):
        rows.setdefault(result.column, {})[name_of(result)] = str(result)
    for name, row in rows.items():
        if printed := best_printed(name):
            row |= {"best printed AUC": f"{printed.auc:.3f}", "of": f"{printed.method}, {printed.model}"}
    return text_table(rows, "AUC of blind baselines [95% interval]").fillna(DASH)
