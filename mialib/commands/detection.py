"""`mialib detect`: was each of these texts in the model's training data? From files and options to what is printed.

pick_detectors   those asked for, or all that the model and the given sources allow
answer           their scores, and, with known non-members, p-values, thresholds and a p-value of all texts as one set
as_table, as_json_lines   what is printed of that
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import load_non_members
from mialib.calibration import Decision, decide, p_values, set_p_value
from mialib.catalog.api import is_api, lacks
from mialib.catalog.models import load_config
from mialib.detectors import DETECTORS, detect, get_detector
from mialib.passes.cache import count_or_load, neighbor_log_probs_or_load, score_or_load
from mialib.text import excerpt, language_of
from mialib.token_stats import check_known

FPR = 0.05  # share of non-members that may be called members
NOTE = (
    "Higher = more likely in the training data. A score alone decides nothing: compare with known non-members "
    "(--calibrate)."
)

logger = logging.getLogger(__name__)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Sources:
    """What a detector may need beside the model and the texts; each by the option that gives it."""

    reference: str | None = None  # a smaller model
    corpus: str | None = None  # of which tokens are counted
    masked: str | None = None  # a masked language model
    n_neighbors: int = 100

    def options(self) -> dict[str, tuple[str, str | None]]:
        """By a detector's need: the option that meets it, and what was given for it."""
        return {
            "reference": ("--reference", self.reference),
            "frequency": ("--corpus", self.corpus),
            "neighbors": ("--masked", self.masked),
        }


@dataclass(frozen=True)
class Answer:
    """Scores by detector, (N,); what known non-members make of them stands beside, by detector too, or is empty."""

    scores: dict[str, FloatArray]
    p: dict[str, FloatArray]  # (N,)
    decisions: dict[str, Decision]
    set_p: dict[str, float]


def pick_detectors(asked: Sequence[str], model: str, sources: Sources) -> list[str]:
    """The detectors asked for, or all that can run; one that the model leaves no way to run is logged with the reason.

    ValueError for one asked for that is unknown or lacks a source.
    """
    options, unknown = sources.options(), lacks(model)
    for name in asked:
        lacking = [options[need][0] for need in get_detector(name).needs if need in options and not options[need][1]]
        if lacking:
            raise ValueError(f"detector {name} needs {lacking[0]}")
        check_known(DETECTORS[name].reads, unknown, f"detector {name}")
    if asked:
        return list(asked)
    can = {"texts", "lowercase", *(need for need, (_, given) in options.items() if given)}
    possible = [name for name, known in DETECTORS.items() if set(known.needs) <= can]
    left_out = [name for name in possible if not set(DETECTORS[name].reads).isdisjoint(unknown)]
    if left_out:
        reasons = {unknown[column] for name in left_out for column in DETECTORS[name].reads if column in unknown}
        logger.info("%s: not applicable, since %s", ", ".join(left_out), "; ".join(sorted(reasons)))
    return [name for name in possible if name not in left_out]


def answer(
    texts: Sequence[str],
    names: Sequence[str],
    model: str,
    sources: Sources,
    calibrate: Path | None = None,
    fpr: float | None = None,
) -> Answer:
    """Score texts by detectors, and decide by the known non-members of a file where one is given.

    `fpr` is the share of them that may be called members, `FPR` where it is None. Before anything is scored: ValueError
    for known non-members that can decide nothing at it, OSError for a model that can't be had.
    """
    if fpr is not None and calibrate is None:
        raise ValueError("--fpr needs --calibrate, a file of known non-members")
    fpr = FPR if fpr is None else fpr
    known = _load_known(calibrate, texts, fpr) if calibrate else []
    needs = {need for name in names for need in DETECTORS[name].needs}
    given = {"reference": sources.reference, "neighbors": sources.masked}
    for name in (model, *(given[need] for need in given if need in needs)):
        if not is_api(name):
            load_config(name)
    scores = score_texts(texts, names, model, sources)
    of_known = score_texts(known, names, model, sources) if known else {}
    return Answer(
        scores,
        p={name: p_values(scores[name], values) for name, values in of_known.items()},
        decisions={name: decide(values, fpr) for name, values in of_known.items()},
        set_p={name: set_p_value(scores[name], values) for name, values in of_known.items()},
    )


def _load_known(path: Path, texts: Sequence[str], fpr: float) -> list[str]:
    if not 0 < fpr < 1:
        raise ValueError(
            f"--fpr {fpr:g} would call {'everything' if fpr else 'nothing'} a member; give a share between 0 and 1"
        )
    known = load_non_members(path)
    if same := set(known) & set(texts):
        raise ValueError(f"{path}: {len(same)} of its texts are among those to score; give others")
    if 1 / (len(known) + 1) > fpr:
        raise ValueError(
            f"{path} holds {len(known)} texts; the smallest p-value is then {1 / (len(known) + 1):.3g}, and "
            f"nothing could be called a member at --fpr {fpr:g}: give more known non-members"
        )
    return known


def score_texts(texts: Sequence[str], names: Sequence[str], model: str, sources: Sources) -> dict[str, FloatArray]:
    """Each detector's scores, (N,), from the passes and counts that they need together."""
    needs = {need for name in names for need in DETECTORS[name].needs}
    given = {"texts": texts}
    if "frequency" in needs:
        given["frequency"] = count_or_load(sources.corpus, model)
    if "lowercase" in needs:
        given["lowercase"] = score_or_load(model, [text.lower() for text in texts])
    if "reference" in needs:
        given["reference"] = score_or_load(sources.reference, texts)
    if "neighbors" in needs:
        given["neighbors"] = neighbor_log_probs_or_load(
            model, texts, sources.masked, n_neighbors=sources.n_neighbors, language=language_of(texts)
        )
    stats = score_or_load(model, texts)
    return {name: detect(name, stats, **given) for name in names}


def as_json_lines(found: Answer) -> Iterator[str]:
    """One JSON object a text; what is said of all texts together stands in each."""
    of_all = {
        "thresholds": {
            name: {"threshold": d.threshold, "fpr": d.wanted_fpr, "fpr_interval": [d.fpr.low, d.fpr.high]}
            for name, d in found.decisions.items()
        },
        "set_p_values": found.set_p,
    }
    for i in range(len(next(iter(found.scores.values())))):
        row = {"text": i} | {name: float(values[i]) for name, values in found.scores.items()}
        if found.p:
            row["p_values"] = {name: float(values[i]) for name, values in found.p.items()}
            row["members"] = [name for name in found.p if _is_called(found, name, i)]
            row |= of_all
        yield json.dumps(row)


def as_table(found: Answer, texts: Sequence[str], known_from: Path | None = None) -> Iterator[str]:
    """A line a text, a column a detector, and below what the numbers mean."""
    width = 20 if found.p else 10
    yield "  ".join([f"{'text':>5}", *(f"{name:>{width}}" for name in found.scores), "beginning"])
    for i, text in enumerate(texts):
        cells = [f"{_cell(found, name, i):>{width}}" for name in found.scores]
        yield "  ".join([f"{i:5d}", *cells, excerpt(text, 50)])
    yield from _explain_decisions(found, len(texts), known_from) if found.p else [NOTE]
    if "surp" in found.scores and (found.scores["surp"] == 0).any():
        yield "surp 0.0000: the text has no surprising token, so it holds no evidence for surp."


def _cell(found: Answer, name: str, i: int) -> str:
    score = f"{found.scores[name][i]:.4f}"
    if not found.p:
        return score
    return f"{score} (p {found.p[name][i]:.3f}){'*' if _is_called(found, name, i) else ' '}"


def _is_called(found: Answer, name: str, i: int) -> bool:
    return bool(found.p[name][i] <= found.decisions[name].wanted_fpr)


def _explain_decisions(found: Answer, n_texts: int, known_from: Path | None) -> Iterator[str]:
    decisions = list(found.decisions.values())
    low, high = min(d.fpr.low for d in decisions), max(d.fpr.high for d in decisions)
    of_set = ", ".join(f"{p:.3g} ({name})" for name, p in found.set_p.items())
    yield (
        f"* at most {100 * decisions[0].wanted_fpr:g}% of non-members like those of {known_from} would score as high. "
        "One detector, chosen beforehand: of several that are looked at, one calls more."
    )
    yield (
        f"That holds on average; with these {decisions[0].n_known} known non-members the true share lies between "
        f"{100 * low:.3g}% and {100 * high:.3g}% (95% interval)."
    )
    all_texts = f"All {n_texts} texts" if n_texts > 1 else "The text"
    yield (
        f"{all_texts} as one set: p = {of_set}, if they are one author's or one test set and, but for "
        "membership, like the known non-members."
    )
