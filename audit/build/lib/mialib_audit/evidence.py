"""From scores to evidence: whether the texts alone separate the files, a set's p-value, and epsilon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from math import comb
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.calibration import decide, set_p_value
from mialib.metrics import FloatArray, auc_interval, epsilon_bound, tpr_at_fpr_interval
from mialib.passes.leaks import LEVEL, explain_below, measure_leaks
from mialib.reports.detection import flag
from mialib.shared.files import COIN_COLUMN
from mialib_audit.files import TextFile

SET_LEVEL = 0.05  # a set's p-value that counts as evidence
EPSILON_LEVEL = 0.95  # of all lower bounds on epsilon together
CANARIES_FPR = 0.01


def separate(texts: TextFile, non_members: TextFile, language: str, n_words: int | None = None) -> dict[str, Any]:
    """Measure how well baselines that see no model separate two files.

    If both files have at least ten sources, all texts of a source share a fold: otherwise a baseline recognises a
    source. With fewer sources it may, and then the sources are a difference of the files. Texts that were cut have at
    most `n_words` words.
    """
    files = (texts, non_members)
    sources = [f"{file.name} {source}" for file in files for source in file.sources or range(len(file.texts))]
    labels = np.repeat([1, 0], [len(file.texts) for file in files]).astype(np.int8)
    all_texts = (*texts.texts, *non_members.texts)
    both = Benchmark("the two files", all_texts, labels, "none", language, n_words, sources=tuple(sources))
    leaks = measure_leaks(both, ["auc"])
    if not any(leak.interval for leak in leaks):
        leaks = measure_leaks(replace(both, sources=()), ["auc"])
    intervals = [leak.interval for leak in leaks if leak.interval]
    separated_by = [f"{leak.label} {leak.interval}" for leak in leaks if leak.is_sure]
    return {
        "baselines": [
            {
                "name": leak.label,
                "auc": asdict(leak.interval) if leak.interval else None,
                "why": leak.why,
                "is_sure": leak.is_sure,
            }
            for leak in leaks
        ],
        "level": LEVEL,
        "separated_by": separated_by,
        "could_miss": max((interval.high for interval in intervals), default=None),
        "note": explain_below(intervals),
        "is_measured": bool(intervals),
        "is_alike": bool(intervals) and not separated_by,
    }


def decide_texts(
    p: FloatArray, known: FloatArray, members: FloatArray | None = None, *, fpr: float, fdr: float | None = None
) -> dict[str, Any]:
    """Return what one detector decides: texts called by their p-values, the threshold, and the interval of its FPR.

    With the scores of known members, also AUC and TPR on them.
    """
    decision = decide(known, fpr)
    found: dict[str, Any] = {
        "threshold": decision.threshold,
        "mean_fpr": decision.mean_fpr,
        "fpr_interval": [decision.fpr.low, decision.fpr.high],
        "n_called": int((p <= fpr).sum()),
    }
    found |= {"flagged": flag(p, len(known), fdr)} if fdr else {}
    if members is not None:
        labels, scores = np.repeat([1, 0], [len(members), len(known)]), np.concatenate([members, known])
        found |= {"auc": asdict(auc_interval(labels, scores))}
        found |= {"tpr": asdict(tpr_at_fpr_interval(labels, scores, fpr))} if len(known) >= 1 / fpr else {}
    return found


def set_test(texts: TextFile, non_members: TextFile, scores: FloatArray, known: FloatArray) -> dict[str, Any]:
    """Return the set's p-value: of its sources if both files name them, else of its texts."""
    why, n_each, unit = texts.why_no_sources or non_members.why_no_sources, None, "text"
    if texts.sources and non_members.sources:
        means, known_means, n_each = means_of_sources(texts.sources, scores, non_members, known)
        if comb(len(means) + len(known_means), len(means)) * SET_LEVEL >= 1:
            scores, known, unit = means, known_means, "source"
        else:
            why = (
                f"with {len(means)} and {len(known_means)} sources (of {n_each} texts or more each) no p-value of "
                f"{SET_LEVEL:g} is possible"
            )
    n_each = n_each if unit == "source" else None
    numbers = {"n": len(scores), "n_known": len(known), "unit": unit, "texts_a_source": n_each}
    return {"p": set_p_value(scores, known), **numbers, "why": why}


def means_of_sources(
    sources: Sequence[str], scores: FloatArray, non_members: TextFile, known: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """Return the mean scores of the set's sources and of the known ones, and the number of texts in each mean.

    Means of few texts vary more than means of many. So each source counts by its first n texts, where n is the size of
    the set's smallest source, or the median size of the known sources if that is smaller; smaller ones are left out.
    """
    n_each = min(*Counter(sources).values(), median_low(Counter(non_members.sources).values()))

    def means(names: Sequence[str], values: FloatArray) -> FloatArray:
        places = [np.flatnonzero(np.array(names) == source) for source in dict.fromkeys(names)]
        return np.array([values[at[:n_each]].mean() for at in places if len(at) >= n_each])

    return means(sources, scores), means(non_members.sources, known), n_each


def coin_table(texts: TextFile, non_members: TextFile, scores: FloatArray, known: FloatArray) -> dict[str, Any]:
    """Return what the scores show where a coin decided: in all texts, and by how often they were inserted.

    AUC and TPR compare the members inserted n times with all non-members. The bound on epsilon compares them with the
    texts that the coin kept out and that would have been inserted n times: for these the coin was fair. Half of the
    texts are guessed (`epsilon_bound`), which is fixed beforehand, as the detector is. A number that is not available
    is replaced by the reason.
    """
    if not (texts.coin and non_members.coin):
        return {"why": f"no column `{COIN_COLUMN}` says that a coin decided which texts were used", "rows": {}}
    labels, all_scores = np.repeat([1, 0], [len(scores), len(known)]), np.concatenate([scores, known])
    times = np.array([*texts.coin, *non_members.coin])
    groups = {"all": times > 0} | {f"{n}": times == n for n in np.unique(times).tolist()}
    groups = groups if len(groups) > 2 else {"all": times > 0}
    level = 1 - (1 - EPSILON_LEVEL) / len(groups)

    def row(group: NDArray[np.bool_]) -> dict[str, Any]:
        shown, n_guesses = group | (labels == 0), 2 * (int(group.sum()) // 4)
        return {
            "n": int(labels[group].sum()),
            "auc": _or_reason(lambda: asdict(auc_interval(labels[shown], all_scores[shown]))),
            "tpr": _or_reason(lambda: asdict(tpr_at_fpr_interval(labels[shown], all_scores[shown], CANARIES_FPR))),
            "n_guesses": n_guesses,
            "epsilon": _or_reason(lambda: epsilon_bound(labels[group], all_scores[group], n_guesses, level)),
        }

    rows = {name: row(group) for name, group in groups.items()}
    return {"why": "", "fpr": CANARIES_FPR, "level": level, "together": EPSILON_LEVEL, "rows": rows}


def _or_reason(measure: Callable[[], Any]) -> Any:
    """Return a measure, or why it is not available."""
    try:
        return measure()
    except ValueError as error:
        return str(error)
