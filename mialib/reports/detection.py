"""`mialib detect`: was each of these texts in the model's training data? From options to what is printed.

detect_texts              scores and, with known non-members, p-values, thresholds and a p-value of all texts as one set
as_table, as_json_lines, as_csv    what is printed of that
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.calibration import Decision, decide, flagged_up_to, n_needed, p_values, set_p_value, share_of_members
from mialib.catalog.corpora import HUB_CORPORA, reference_texts, split_prefix
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS, FloatArray, check_hyperparameters, get_detector
from mialib.metrics import Interval, auc_interval
from mialib.passes.inputs import NEEDS, Inputs, Target, score_all, signature, unavailable_reason
from mialib.plain import check_share
from mialib.shared.files import labels_of, read_rows, texts_of
from mialib.text import check_apart, excerpt, first_ones, language_of

ALL = "all"  # detectors
FPR = 0.05  # share of non-members that may be called members
NOTE = (
    "Higher = more likely in the training data, each detector (`mialib detectors` explains them) on its own scale. A "
    "score alone decides nothing: compare with known non-members (--calibrate)."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Detection:
    """Scores by detector, (N,), with p-values and decisions; these are empty without known non-members."""

    scores: dict[str, FloatArray]
    p: dict[str, FloatArray]  # (N,)
    decisions: dict[str, Decision]
    set_p: dict[str, float]
    labels: NDArray[np.int8] | None = None  # (N,), 1 = member
    flagged: dict[str, dict[str, Any]] = field(default_factory=dict)  # of `flag`, where there is a target FDR

    @cached_property
    def auc(self) -> dict[str, Interval]:
        """Each detector's AUC, where there are labels."""
        if self.labels is None or len(np.unique(self.labels)) < 2:
            return {}
        return {name: auc_interval(self.labels, of) for name, of in self.scores.items()}

    def up_to_p(self, name: str) -> float:
        """The p-value up to which a detector's texts get a star: those flagged at the target FDR, else those called."""
        return self.flagged[name]["up_to_p"] if self.flagged else self.decisions[name].wanted_fpr


def detect_texts(
    texts: Sequence[str],
    target: Target,
    asked: Sequence[str] = (),
    calibrate: Path | None = None,
    fpr: float | None = None,
    options: Mapping[str, Mapping[str, float]] | None = None,
    labels: NDArray[np.int8] | None = None,
    part: tuple[int, int] | None = None,
    fdr: float | None = None,
) -> Detection:
    """Score texts by the named detectors, or by all that can run, and decide by known non-members, if given.

    `fpr` is the share of them that may be called members, `FPR` where it is None; `part` as for `score_or_load`; `fdr`
    is the share of non-members that there may be among the flagged texts on average, None to flag none.
    ValueError, before scoring, for a detector that is unknown or lacks something and for known non-members that can
    decide nothing, OSError for a model that can't be loaded.
    """
    names = pick_detectors(asked, target)
    rates = {option: rate for option, rate in (("--fpr", fpr), ("--fdr", fdr)) if rate is not None}
    if rates and calibrate is None:
        raise ValueError(f"{next(iter(rates))} needs --calibrate, a file of known non-members")
    if len(rates) > 1:
        raise ValueError("--fpr and --fdr are two rules for a star; give one")
    check_options(options or {}, names)
    fpr = FPR if fpr is None else fpr
    known_texts = list(load_known(calibrate)) if calibrate else []
    check_apart(known_texts, texts, str(calibrate))
    for option, rate in ({"--fpr": fpr} | rates).items() if calibrate else ():
        check_rate(rate, len(known_texts), str(calibrate), option)
    check_target(target, (*texts, *known_texts))
    needs = {need for name in names for need in DETECTORS[name].needs}
    for model in target.models(needs):
        find(model).check()
    inputs = Inputs(target, (*texts, *known_texts), language_of(texts), part=part)
    # The target's own passes first, so that each model is loaded once.
    inputs.load("stats", *sorted(needs, key=lambda need: NEEDS[need].is_other_model))
    logger.info("%s", signature(inputs.stats.provenance))
    all_scores = score_all(inputs, names, **(options or {}))
    scores = {name: values for name, values in all_scores.items() if values is not None}
    for name in (name for name in names if name not in scores):
        if asked and ALL not in asked:
            raise ValueError(f"detector {name} is not applicable: {unavailable_reason(inputs, name)}")
        logger.info("%s: not applicable, since %s", name, unavailable_reason(inputs, name))
    once = first_ones(texts)
    n_copies = len(texts) - len(once)
    if known_texts and n_copies:
        message = "%d of the %d texts are copies of others: the p-value of the set counts each once"
        logger.info(message, n_copies, len(texts))
    text_scores = {name: values[: len(texts)] for name, values in scores.items()}
    known_scores = {name: values[len(texts) :] for name, values in scores.items() if known_texts}
    p = {name: p_values(text_scores[name], values) for name, values in known_scores.items()}
    detection = Detection(
        text_scores,
        p=p,
        decisions={name: decide(values, fpr) for name, values in known_scores.items()},
        set_p={name: set_p_value(text_scores[name][once], values) for name, values in known_scores.items()},
        labels=labels,
        flagged={name: flag(of[once], len(known_texts), fdr) for name, of in p.items() if fdr},
    )
    if detection.auc and n_copies:
        message = "%d of the %d texts are copies of others: AUCs' intervals take all for independent and are too narrow"
        logger.warning(message, n_copies, len(texts))
    return detection


def pick_detectors(asked: Sequence[str], target: Target) -> list[str]:
    """The detectors asked for, by default the papers' that can run; "all": every one that can run.

    The log says why others can't. ValueError for a detector that is asked for by its name and can't run, and for an
    option that none of the detectors reads.
    """
    named = [name for name in asked if name != ALL]
    for name in named:
        if why := why_not(name, target):
            raise ValueError(f"detector {name}: {why}")
    runs_all = not asked or ALL in asked
    names = [name for name, entry in DETECTORS.items() if asked or not entry.is_later] if runs_all else named
    _check_read(target, names)
    by_reason: dict[str, list[str]] = {}
    for name in names:
        by_reason.setdefault(why_not(name, target), []).append(name)
    names = by_reason.pop("", [])
    if by_reason:
        logger.info("not run: %s", "; ".join(f"{', '.join(of)} ({why})" for why, of in by_reason.items()))
    return names


def why_not(name: str, target: Target) -> str:
    """What the model does not give a detector, or which options it lacks; "" where it can run."""
    entry, lacks = get_detector(name), find(target.model).lacks
    if columns := [column for column in entry.reads if column in lacks]:
        return lacks[columns[0]]
    options = [NEEDS[need].option for need in entry.needs if not NEEDS[need].is_named(target)]
    return f"needs {' and '.join(options)}" if options else ""


def check_target(target: Target, texts: Sequence[str]) -> None:
    """ValueError for another model that is the model itself, and a reference corpus that holds texts to score.

    DC-PDD would find these texts' own tokens frequent, and those of other texts not. A corpus on the hub is not read.
    """
    for need in NEEDS.values():
        if need.names_model and need.source_in(target) == target.model:
            raise ValueError(f"{need.option} {target.model} is the model itself; give another")
    if target.corpus and split_prefix(target.corpus)[0] not in HUB_CORPORA:
        check_apart(reference_texts(target.corpus), texts, f"--corpus {target.corpus}")


def _check_read(target: Target, names: Sequence[str]) -> None:
    """ValueError for an option that none of the detectors reads."""
    read = {need for name in names for need in DETECTORS[name].needs}
    for name, need in NEEDS.items():
        source = need.source_in(target)
        if source and name not in read and source != find(target.model).base:
            readers = ", ".join(reader for reader, detector in DETECTORS.items() if name in detector.needs)
            raise ValueError(f"{need.option} is read by none of {', '.join(names)}; these read it: {readers}")


def flag(p: FloatArray, n_known: int, fdr: float) -> dict[str, Any]:
    """Flag texts at a target FDR by their p-values (N,), without copies.

    `most_false` is how many of these are not members, at most and on average; `share_of_members` is that of all texts.
    """
    up_to, share = flagged_up_to(p, fdr), share_of_members(p, n_known)
    n = {"n": len(p), "n_known": n_known, "n_flagged": (n_flagged := int((p <= up_to).sum()))}
    return n | {"fdr": fdr, "up_to_p": up_to, "most_false": fdr * n_flagged, "share_of_members": asdict(share)}


def explain_flagged(summary: Mapping[str, Any]) -> str:
    """What `flag` gives, in sentences."""
    n, n_flagged, n_known, fdr = (summary[key] for key in ("n", "n_flagged", "n_known", "fdr"))
    estimate, low, high = (f"{100 * summary['share_of_members'][end]:.1f}%" for end in ("estimate", "low", "high"))
    fewest = math.ceil(n / (fdr * (n_known + 1)) - 1e-9)
    message = (
        f"On average over such audits at most {100 * fdr:g}% of the flagged are not members, "
        f"{summary['most_false']:.1f} of {n_flagged}."
        if n_flagged
        else f"With {n_known} known non-members no fewer than {fewest} can be."
    )
    return (
        f"{n_flagged or 'None'} of {n} texts {'are' if n_flagged else 'is'} flagged at an FDR of {100 * fdr:g}%. "
        f"{message} Of all {n}, an estimated {estimate} are members [95% interval {low} to {high}]; members that score "
        "like non-members are not counted. Both take the texts for independent of each other."
    )


def explain_many(mean_fpr: float, n_texts: int) -> str:
    """A warning, or "": if no text is a member, one or more would still be called."""
    if (n_false := mean_fpr * n_texts) < 1:
        return ""
    return (
        f"If none of the {n_texts} texts is a member, up to {n_false:.1f} are still called on average. "
        "`--fdr 0.1` flags texts so that on average at most 10% of the flagged are not members."
    )


def check_rate(rate: float, n_known: int, file: str, option: str = "--fpr") -> None:
    """ValueError for an FPR or FDR that calls everything or nothing a member, with so many known non-members."""
    check_share(rate, option)
    if n_known < (needed := n_needed(rate)):
        message = f"{file} holds {n_known} texts, so the smallest p-value is {1 / (n_known + 1):.3g}"
        raise ValueError(f"{message}; to call a text a member, {option} {rate:g} needs {needed} known non-members")


def split_names(arguments: Sequence[str]) -> list[str]:
    """Names given one by one or with commas between them."""
    return [name.strip() for names in arguments for name in names.split(",") if name.strip()]


def parse_options(arguments: Sequence[str]) -> dict[str, dict[str, float]]:
    """Hyperparameters given as "min_k.k=10", by detector; ValueError, naming it, for one that is written otherwise."""
    options: dict[str, dict[str, float]] = {}
    for one in arguments:
        place, _, value = one.partition("=")
        detector, _, name = place.partition(".")
        value = {"true": "1", "false": "0"}.get(value.lower(), value)
        try:
            number = int(value) if value.isdecimal() else float(value)
        except ValueError:
            name = ""
        if not name:
            raise ValueError(f"-o {one}: DETECTOR.NAME=NUMBER is expected, such as min_k.k=10")
        if name in options.setdefault(detector, {}):
            raise ValueError(f"-o {one}: {place} is given twice")
        options[detector][name] = number
    return options


def check_options(options: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> None:
    """ValueError for a hyperparameter that no detector has, and for one of a detector that does not run."""
    for name, values in options.items():
        check_hyperparameters(name, values)
        if name not in names:
            raise ValueError(f"-o {name}.{next(iter(values))}: {name} does not run here; these do: {', '.join(names)}")


def as_json_lines(detection: Detection) -> Iterator[str]:
    """One JSON object a text; each repeats what holds for all texts together."""
    set_fields = {
        "thresholds": {
            name: {"threshold": d.threshold, "fpr": d.wanted_fpr, "fpr_interval": [d.fpr.low, d.fpr.high]}
            for name, d in detection.decisions.items()
        },
        "set_p_values": detection.set_p,
    } | ({"flagged_set": detection.flagged} if detection.flagged else {})
    n_texts = len(next(iter(detection.scores.values())))
    mean_fpr = max((of.mean_fpr for of in detection.decisions.values()), default=0.0)
    if not detection.flagged and (message := explain_many(mean_fpr, n_texts)):
        logger.warning(message)
    for i in range(n_texts):
        row: dict[str, Any] = {"text": i} | {name: float(values[i]) for name, values in detection.scores.items()}
        if detection.p:
            row["p_values"] = {name: float(values[i]) for name, values in detection.p.items()}
            row["called"] = [name for name, of in detection.decisions.items() if detection.p[name][i] <= of.wanted_fpr]
            if detection.flagged:
                row["flagged"] = [name for name, of in detection.p.items() if of[i] <= detection.up_to_p(name)]
            row |= set_fields
        if detection.labels is not None and detection.auc:
            row |= {"label": int(detection.labels[i]), "auc": {n: list(astuple(a)) for n, a in detection.auc.items()}}
        yield json.dumps(row)


def as_csv(detection: Detection) -> Iterator[str]:
    """A line a text: its number, the scores, and with known non-members the p-values; 1 where a target FDR flags it."""
    columns = detection.scores | {f"{name}_p": of for name, of in detection.p.items()}
    yield ",".join(["text", *columns, *(f"{name}_flagged" for name in detection.flagged)])
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        is_flagged = (str(int(detection.p[name][i] <= detection.up_to_p(name))) for name in detection.flagged)
        yield ",".join([str(i), *map(repr, map(float, row)), *is_flagged])


def as_table(detection: Detection, texts: Sequence[str], known_from: Path | None = None) -> Iterator[str]:
    """A line a text, a column a detector, and below what the numbers mean."""
    columns = [[name, *_cells(detection, name)] for name in detection.scores]
    widths = [max(10, *map(len, cells)) for cells in columns]
    for i, beginning in enumerate(["beginning", *(excerpt(text, 50) for text in texts)]):
        cells = [f"{cells[i]:>{width}}" for cells, width in zip(columns, widths, strict=True)]
        yield "  ".join([f"{i - 1 if i else 'text':>5}", *cells, beginning])
    yield from of_all_texts(detection, len(texts), known_from)
    if not detection.p:
        yield NOTE
    no_star = not detection.flagged and "surp" in detection.decisions and detection.decisions["surp"].threshold == 0
    if no_star or ("surp" in detection.scores and (detection.scores["surp"] == 0).any()):
        yield "surp 0.0000: the text has no surprising token, so it holds no evidence for surp." + (
            " Too many of the known non-members have none: no text can get a star by surp." if no_star else ""
        )


def of_all_texts(detection: Detection, n_texts: int, known_from: Path | None = None) -> Iterator[str]:
    """Lines about all texts together: the AUCs with labels, the p-values' meaning with known non-members."""
    if detection.labels is not None and detection.auc:
        n_members = int(detection.labels.sum())
        aucs = ", ".join(f"{name} {of}" for name, of in detection.auc.items())
        yield f"AUC [95% interval] of {n_members} members and {n_texts - n_members} non-members: {aucs}"
    if detection.p:
        yield from _explain_decisions(detection, n_texts, known_from)


def _cells(detection: Detection, name: str) -> list[str]:
    """A detector's column of the table, with 4 to 8 digits: as many as keep different scores apart."""
    scores = detection.scores[name]
    n_different = len(np.unique(scores))
    digits = next((d for d in range(4, 8) if len(np.unique(scores.round(d))) == n_different), 8)
    cells = [f"{score:.{digits}f}" for score in scores]
    if not detection.p:
        return cells
    limit, text_p = detection.up_to_p(name), detection.p[name]
    return [f"{cell} (p {p:.3f}){'*' if p <= limit else ' '}" for cell, p in zip(cells, text_p, strict=True)]


def _explain_decisions(detection: Detection, n_texts: int, known_from: Path | None) -> Iterator[str]:
    decisions = list(detection.decisions.values())
    choose = "Choose one detector beforehand: of several that are looked at, one calls more."
    if detection.flagged:
        yield f"* flagged, by comparison with the texts of {known_from}. {choose}"
        yield from (f"{name}: {explain_flagged(summary)}" for name, summary in detection.flagged.items())
    else:
        low, high = min(d.fpr.low for d in decisions), max(d.fpr.high for d in decisions)
        yield (
            f"* at most {100 * decisions[0].wanted_fpr:g}% of non-members like those of {known_from} would score as "
            f"high. {choose}\n"
            f"That holds on average; with these {decisions[0].n_known} known non-members the true share lies between "
            f"{100 * low:.3g}% and {100 * high:.3g}% (95% interval)."
        )
    yield (
        f"{'The bound' if detection.flagged else 'It'} holds if the texts differ from the known non-members in nothing "
        "but membership; `mialib audit` looks for differences that show without the model, and scores nothing where "
        "one is significant."
    )
    if not detection.flagged and (message := explain_many(decisions[0].mean_fpr, n_texts)):
        yield message
    set_p = ", ".join(f"{p:.3g} ({name})" for name, p in detection.set_p.items())
    yield (
        f"{f'All {n_texts} texts' if n_texts > 1 else 'The text'} as one set: p = {set_p}. It holds where they come "
        "one by one, as the known non-members do. Texts of one author or topic are alike and called far too often; "
        "`mialib audit` tests them by their source."
    )


def load_labelled(path: Path) -> tuple[list[str], NDArray[np.int8] | None]:
    """A file's texts and their labels, (N,), 1 = member; None, and a line in the log, where it has no such labels."""
    rows, labels = read_rows(path), None
    texts = texts_of(rows, str(path))
    try:
        labels = labels_of(rows, str(path))
    except ValueError as error:  # a column of that name with another meaning
        logger.info("no AUC is computed: %s", error)
    return texts, None if labels is None else np.array(labels, np.int8)


def load_known(path: Path, label: int = 0) -> dict[str, dict[str, Any]]:
    """Read known non-members (0), or members (1): the rows of a file by their texts, copies (see `bare`) once.

    Only rows with that label are read, if there are labels; the log says what is left out. ValueError for a label that
    is neither 0 nor 1, for labels of only some texts, and where no text has that label.
    """
    kind, rows = "members" if label else "non-members", read_rows(path)
    texts, labels = texts_of(rows, str(path)), labels_of(rows, str(path))
    numbers = [i for i in range(len(texts)) if labels is None or labels[i] == label]
    if not numbers:
        raise ValueError(f"{path}: all {len(texts)} texts are labelled {1 - label}; known {kind} are needed")
    if len(numbers) < len(texts):
        message = "%s: its %d texts labelled %d are the known %s; the others are left out"
        logger.info(message, path, len(numbers), label, kind)
    once = [numbers[i] for i in first_ones(texts[i] for i in numbers)]
    if len(once) < len(numbers):
        logger.info("%s: %d of its texts are copies of others; each counts once", path, len(numbers) - len(once))
    return {texts[i]: rows[i] for i in once}
