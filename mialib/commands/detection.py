"""`mialib detect`: was each of these texts in the model's training data? From options to what is printed.

detect_texts              scores and, with known non-members, p-values, thresholds and a p-value of all texts as one set
as_table, as_json_lines   what is printed of that
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mialib.calibration import Decision, decide, n_needed, p_values, set_p_value
from mialib.catalog.models import check_loadable
from mialib.catalog.registry import lacks
from mialib.detectors import DETECTORS, FloatArray, get_detector
from mialib.passes.inputs import NEEDS, Inputs, Target, score_all, unavailable_reason
from mialib.shared.files import LABEL_COLUMN, check_labels, load_texts, read_rows, texts_of
from mialib.text import excerpt, language_of
from mialib.token_stats import check_known

FPR = 0.05  # share of non-members that may be called members
NOTE = (
    "Higher = more likely in the training data. A score alone decides nothing: compare with known non-members "
    "(--calibrate)."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Detection:
    """Scores by detector, (N,), and what known non-members make of them; empty where there are none."""

    scores: dict[str, FloatArray]
    p: dict[str, FloatArray]  # (N,)
    decisions: dict[str, Decision]
    set_p: dict[str, float]

    def is_called(self, name: str, i: int) -> bool:
        """Whether a detector calls text `i` a member."""
        return bool(self.p[name][i] <= self.decisions[name].wanted_fpr)


def detect_texts(
    texts: Sequence[str],
    target: Target,
    asked: Sequence[str] = (),
    calibrate: Path | None = None,
    fpr: float | None = None,
) -> Detection:
    """Score texts by the detectors that are asked for, or by all that can run, and decide by the known non-members of a
    file where one is given.

    `fpr` is the share of them that may be called members, `FPR` where it is None. Before anything is scored: ValueError
    for a detector that is unknown or lacks something and for known non-members that can decide nothing, OSError for a
    model that can't be had.
    """
    names = pick_detectors(asked, target)
    if fpr is not None and calibrate is None:
        raise ValueError("--fpr needs --calibrate, a file of known non-members")
    fpr = FPR if fpr is None else fpr
    known = _load_known(calibrate, texts, fpr) if calibrate else []
    needed = {need for name in names for need in DETECTORS[name].needs}
    others = [getattr(target, NEEDS[need].made_from) for need in ("reference", "neighbors") if need in needed]
    for name in (target.model, *others):
        check_loadable(name)
    inputs = Inputs(target, (*texts, *known), language_of(texts))
    for need in ("stats", *sorted(needed, key=lambda need: need == "reference")):
        inputs[need]  # the target's own passes first, so that each model is loaded once
    scores = {name: values for name, values in score_all(inputs, names).items() if values is not None}
    for name in set(names) - set(scores):
        if asked:
            raise ValueError(f"detector {name} is not applicable: {unavailable_reason(inputs, name)}")
        logger.info("%s: not applicable, since %s", name, unavailable_reason(inputs, name))
    of_texts = {name: values[: len(texts)] for name, values in scores.items()}
    of_known = {name: values[len(texts) :] for name, values in scores.items() if known}
    return Detection(
        of_texts,
        p={name: p_values(of_texts[name], values) for name, values in of_known.items()},
        decisions={name: decide(values, fpr) for name, values in of_known.items()},
        set_p={name: set_p_value(of_texts[name], values) for name, values in of_known.items()},
    )


def pick_detectors(asked: Sequence[str], target: Target) -> list[str]:
    """The detectors asked for, or all that can run; one that the model leaves no way to run is logged with the reason.

    ValueError for one asked for that is unknown, or lacks what an option gives.
    """

    def lacking(name: str) -> list[str]:
        needs = [NEEDS[need] for need in get_detector(name).needs]
        return [need.option for need in needs if need.made_from and not getattr(target, need.made_from)]

    unknown = lacks(target.model)
    for name in asked:
        if options := lacking(name):
            raise ValueError(f"detector {name} needs {options[0]}")
        check_known(DETECTORS[name].reads, unknown, f"detector {name}")
    if asked:
        return list(asked)
    possible = [name for name in DETECTORS if not lacking(name)]
    left_out = [name for name in possible if not set(DETECTORS[name].reads).isdisjoint(unknown)]
    if left_out:
        reasons = {unknown[column] for name in left_out for column in DETECTORS[name].reads if column in unknown}
        logger.info("%s: not applicable, since %s", ", ".join(left_out), "; ".join(sorted(reasons)))
    return [name for name in possible if name not in left_out]


def _load_known(path: Path, texts: Sequence[str], fpr: float) -> list[str]:
    if not 0 < fpr < 1:
        raise ValueError(
            f"--fpr {fpr:g} would call {'everything' if fpr else 'nothing'} a member; give a share between 0 and 1"
        )
    known = load_non_members(path)
    if same := set(known) & set(texts):
        raise ValueError(f"{path}: {len(same)} of its texts are among those to score; give others")
    if len(known) < (needed := n_needed(fpr)):
        raise ValueError(
            f"{path} holds {len(known)} texts; the smallest p-value is then {1 / (len(known) + 1):.3g}, and "
            f"nothing could be called a member at --fpr {fpr:g}, which needs {needed} known non-members"
        )
    return known


def as_json_lines(detection: Detection) -> Iterator[str]:
    """One JSON object a text; what is said of all texts together stands in each."""
    of_all = {
        "thresholds": {
            name: {"threshold": d.threshold, "fpr": d.wanted_fpr, "fpr_interval": [d.fpr.low, d.fpr.high]}
            for name, d in detection.decisions.items()
        },
        "set_p_values": detection.set_p,
    }
    for i in range(len(next(iter(detection.scores.values())))):
        row = {"text": i} | {name: float(values[i]) for name, values in detection.scores.items()}
        if detection.p:
            row["p_values"] = {name: float(values[i]) for name, values in detection.p.items()}
            row["members"] = [name for name in detection.p if detection.is_called(name, i)]
            row |= of_all
        yield json.dumps(row)


def as_table(detection: Detection, texts: Sequence[str], known_from: Path | None = None) -> Iterator[str]:
    """A line a text, a column a detector, and below what the numbers mean."""
    width = 20 if detection.p else 10
    yield "  ".join([f"{'text':>5}", *(f"{name:>{width}}" for name in detection.scores), "beginning"])
    for i, text in enumerate(texts):
        cells = [f"{_cell(detection, name, i):>{width}}" for name in detection.scores]
        yield "  ".join([f"{i:5d}", *cells, excerpt(text, 50)])
    yield from _explain_decisions(detection, len(texts), known_from) if detection.p else [NOTE]
    if "surp" in detection.scores and (detection.scores["surp"] == 0).any():
        yield "surp 0.0000: the text has no surprising token, so it holds no evidence for surp."


def _cell(detection: Detection, name: str, i: int) -> str:
    score = f"{detection.scores[name][i]:.4f}"
    if not detection.p:
        return score
    return f"{score} (p {detection.p[name][i]:.3f}){'*' if detection.is_called(name, i) else ' '}"


def _explain_decisions(detection: Detection, n_texts: int, known_from: Path | None) -> Iterator[str]:
    decisions = list(detection.decisions.values())
    low, high = min(d.fpr.low for d in decisions), max(d.fpr.high for d in decisions)
    of_set = ", ".join(f"{p:.3g} ({name})" for name, p in detection.set_p.items())
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


def load_non_members(path: str | Path) -> list[str]:
    """The texts of a file of non-members; of one with labels those labelled 0 alone, and a line in the log says so.

    ValueError where a label is neither 0 nor 1, where some texts have none, and where all are 1.
    """
    path = Path(path)
    if path.suffix == ".txt":
        return load_texts(path)
    texts = texts_of(rows := read_rows(path), str(path))
    if not any(LABEL_COLUMN in row for row in rows):
        return texts
    if lacking := [i for i, row in enumerate(rows) if LABEL_COLUMN not in row]:
        raise ValueError(f"{path}, row {lacking[0] + 1}: no {LABEL_COLUMN!r}, which other rows have (1 = member)")
    labels = check_labels([row[LABEL_COLUMN] for row in rows], str(path))
    kept = [text for text, label in zip(texts, labels, strict=True) if label == 0]
    if not kept:
        raise ValueError(f"{path}: all {len(texts)} texts are labelled 1, members; known non-members are needed")
    if len(kept) < len(texts):
        logger.info("%s: its %d texts labelled 0 are the known non-members; the others are left out", path, len(kept))
    return kept
