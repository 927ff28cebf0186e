"""`mialib audit`: one report on one set of texts, which says what its answer rests on.

    report = audit(texts, target, non_members)    plain data, as in report.json
    write(report, folder)                         report.html, report.json and, if it concludes, scores.csv
    verify(folder / "report.json")                the same audit again, for someone who doubts it

Each step only if the one before allows it: Do the texts alone separate the two files? If so, nothing is scored and
nothing concluded. Then the scores, the texts called, the set's p-value, what another start token would give, how often
a set of this size would be found, and, where a coin decided on each text, a lower bound on epsilon.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from reprlib import repr as short_repr  # of any value, however long or nested
from typing import Any

import numpy as np

from mialib.calibration import p_values
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS, FloatArray
from mialib.passes.inputs import Inputs, Target, score_all, scores_of, signature, unavailable_reason
from mialib.reports.detection import (
    ALL,
    check_options,
    check_rate,
    check_target,
    explain_flagged,
    explain_many,
    pick_detectors,
)
from mialib.store import atomic_path, checksum_of, mialib_version, write_json
from mialib.text import excerpt, language_of
from mialib.versions import versions_of
from mialib_audit.evidence import SET_LEVEL, coin_table, decide_texts, separate, set_test
from mialib_audit.files import TextFile, drop_copies, read_files
from mialib_audit.power import power
from mialib_audit.templates import macros

FILES = ("report.html", "report.json", "scores.csv")  # that a report is written to
FILES_READ = ("texts", "non_members", "members")  # in a report; the last is optional
SAME_PASS = ("model", "revision", "tokenizer", "dtype", "start_token")  # must match when an audit is repeated
ROUNDING = 1e-6  # of what is computed from the same scores
ROUNDING_OF_SCORES = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 2e-2}  # by the weights' type

Scores = dict[str, FloatArray]  # of the texts of all files, by detector

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """How an audit decides: the first of `detectors` decides, by default Min-K%++ or what the model allows."""

    detectors: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # hyperparameters, by detector
    fpr: float = 0.05
    fdr: float | None = None


def audit(
    texts: TextFile,
    target: Target,
    non_members: TextFile,
    members: TextFile | None = None,
    rules: Rules | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the report. It ends with the blind baselines if they separate the two files.

    With an `earlier` report its scores are taken; ValueError if the models, or the scores beyond rounding, differ now.
    ValueError also for a text that is in two files, too few known non-members for a rate, a named detector that is not
    applicable, and one that scores all texts alike and would decide.
    """
    rules, language = rules or Rules(), language_of(texts.texts)
    files, copies = drop_copies([texts, non_members, *([members] if members else [])], language)
    texts, non_members = files[:2]
    originals = [i for i in range(len(texts.texts)) if i not in copies]
    for option, rate in (("--fpr", rules.fpr), ("--fdr", rules.fdr)):
        if rate is not None:
            check_rate(rate, len(non_members.texts), non_members.name, option)
    names, named = _names_to_run(rules.detectors, target)
    check_options(rules.options, names)
    check_target(target, [text for file in files for text in file.texts])
    for model in target.models():
        find(model).check()
    report: dict[str, Any] = {what: file.describe() for what, file in zip(FILES_READ, files, strict=False)}
    report["texts"]["n_copies"] = len(copies)
    report |= {"target": target.model_dump(exclude_defaults=True), "rules": asdict(rules), "set_level": SET_LEVEL}
    report |= {"provenance": [{"mialib": mialib_version(), "versions": versions_of("blind")}]}

    def are_separable(files: Sequence[TextFile], n_words: int | None = None) -> bool:
        report["blind"] = separate(files[0].take(originals), files[1], language, n_words)
        for members in files[2:]:
            report["members"]["blind"] = separate(members, files[1], language, n_words)
        return bool(report["blind"]["separated_by"])

    if are_separable(files):
        return report | {"verdict": verdict(report)}
    inputs = Inputs(target, tuple(text for file in files for text in file.texts), language)
    if inputs.stats.n_cut.any():  # the scored part of the texts may be easier to separate than the whole texts
        scored = iter(inputs.scored_parts())
        cut = [replace(file, texts=tuple(next(scored) for _ in file.texts)) for file in files]
        if are_separable(cut, int(inputs.stats.n_tokens.max())):
            return report | {"verdict": verdict(report)}

    scores, left_out = _scores(inputs, names, named, rules)
    if earlier:
        scores = _earlier_scores(earlier, scores, inputs.passes())
    decider, ends = next(iter(scores)), np.cumsum([len(file.texts) for file in files])[:-1]
    by_file = {name: np.split(values, ends) for name, values in scores.items()}
    p = {name: p_values(judged, known) for name, (judged, known, *_) in by_file.items()}
    judged = texts.take(originals)
    sets = {name: set_test(judged, non_members, own[originals], known) for name, (own, known, *_) in by_file.items()}
    n_shown = 3 if members and report["members"]["blind"]["is_alike"] else 2
    run = {"signature": signature(inputs.stats.provenance)}
    logger.info("%s", run["signature"])
    other_start, other_passes = _other_start_token(inputs, judged, non_members, decider, rules)
    report |= {
        "decider": decider,
        "decider_is_default": not named,
        "detectors": {
            name: decide_texts(p[name][originals], *parts[1:n_shown], fpr=rules.fpr, fdr=rules.fdr)
            | {"set_p": sets[name]["p"]}
            for name, parts in by_file.items()
        },
        "left_out": left_out,
        "set": sets[decider],
        "start_token": other_start,
        "coin": coin_table(judged, non_members, by_file[decider][0][originals], by_file[decider][1]),
        "power": power(sets[decider]["n"], sets[decider]["n_known"], SET_LEVEL),
        "provenance": [*inputs.passes(), *other_passes, run | report["provenance"][0]],
    }
    report["scores"] = _rows(report, texts, copies, scores, p)
    report["known_scores"] = {name: values[len(texts.texts) :].tolist() for name, values in scores.items()}
    return report | {"verdict": verdict(report)}


def _names_to_run(detectors: Sequence[str], target: Target) -> tuple[list[str], list[str]]:
    """Return the detectors to run, the deciding one first, and those that were asked for by name.

    By default Min-K%++ decides, Min-K% if an API gives no entropies, and Ref for an adapter on its base.
    """
    named = [name for name in detectors if name != ALL]
    if "neighbor" in named:
        raise ValueError("audit does not run neighbor, which asks a second model about every word; detect does")
    names = pick_detectors(detectors, target)
    is_on_its_base = target.reference and target.reference == find(target.model).base
    usual = (*(["ref"] if is_on_its_base else []), "min_k++", "min_k")
    first = named or [next((name for name in usual if name in names), names[0])]
    return list(dict.fromkeys([*first, *names])), named


def _scores(inputs: Inputs, names: Sequence[str], named: Sequence[str], rules: Rules) -> tuple[Scores, dict[str, str]]:
    """Return each detector's scores of the texts of all files, and why detectors are left out."""
    reasons = {name: unavailable_reason(inputs, name) for name in names}
    for name in named:
        if reasons[name]:
            raise ValueError(f"detector {name} is not applicable: {reasons[name]}")
    left_out = {name: f"not applicable, since {why}" for name, why in reasons.items() if why}
    able = [name for name in names if not reasons[name]]
    scores = {name: values for name, values in score_all(inputs, able, **rules.options).items() if values is not None}
    alike = {name: "it scores all texts alike" for name, values in scores.items() if np.ptp(values) == 0}
    if able[0] in alike:
        raise ValueError(f"{DETECTORS[able[0]].label} scores all texts alike, so it decides nothing; name another")
    return {name: values for name, values in scores.items() if name not in alike}, left_out | alike


def _other_start_token(
    inputs: Inputs, texts: TextFile, non_members: TextFile, decider: str, rules: Rules
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the set's p-value with the other start token (none, or the tokenizer's own), and the passes it took.

    None if there is no other, and for log-probs that come from elsewhere, which cost time or money.
    """
    token = inputs.stats.provenance.get("start_token_id")
    other = None if inputs.target.start_token is not None else "auto"
    if not inputs.source.has_weights or (token is None and other is None):
        return None, []
    both, found = (*texts.texts, *non_members.texts), {"start_token": other or "none"}
    changed = Inputs(inputs.target.but(start_token=other), both, inputs.language)
    n_tokens = dict(zip(inputs.texts, inputs.stats.n_tokens, strict=True))
    if other is None and any(n_tokens[text] < 2 for text in both):
        return found | {"why": "a text has one token, of which nothing would be left"}, []
    if why := unavailable_reason(changed, decider):
        return found | {"why": why}, []
    scores = np.split(scores_of(changed, decider, **rules.options.get(decider, {})), [len(texts.texts)])
    return found | {"p": set_test(texts, non_members, *scores)["p"]}, changed.passes()


def _rows(
    report: Mapping[str, Any], texts: TextFile, copies: Mapping[int, int], scores: Scores, p: Scores
) -> list[dict[str, Any]]:
    """Return what each detector says of each text to judge; `scores` begin with theirs."""
    rows: list[dict[str, Any]] = [
        {"text": excerpt(text, 80), "copy_of": copies.get(i)} for i, text in enumerate(texts.texts)
    ]
    for name, decided in report["detectors"].items():
        for row, score, p_value in zip(rows, scores[name].tolist(), p[name].tolist(), strict=False):
            row[name] = {"score": score, "p": p_value, "is_called": p_value <= report["rules"]["fpr"]}
            row[name] |= {"is_flagged": p_value <= decided["flagged"]["up_to_p"]} if "flagged" in decided else {}
    return rows


def verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows from a report, in sentences, and whether anything does."""
    concludes, outlook = "decider" in report, ""
    if concludes:
        decided, n = report["detectors"][report["decider"]], report["texts"]["n"] - report["texts"]["n_copies"]
        flagged = decided.get("flagged")
        outlook = explain_flagged(flagged) if flagged else explain_many(decided["mean_fpr"], n)
    labels = {name: detector.label for name, detector in DETECTORS.items()}
    paragraphs = str(macros(Path(__file__).with_suffix(".txt")).verdict(report, labels, outlook)).split("\n\n")
    return {"concludes": concludes, "sentences": [" ".join(text.split()) for text in paragraphs if text.strip()]}


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the report as a page, as JSON and, if it concludes, its scores as CSV; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    page, data, scores = (folder / name for name in FILES)
    labels = {name: detector.label for name, detector in DETECTORS.items()}
    with atomic_path(page) as temporary:
        html = macros(Path(__file__).with_suffix(".html")).page(report, labels)
        temporary.write_text(str(html), encoding="utf-8")
    write_json(data, report)
    scores.unlink(missing_ok=True)  # of an earlier audit, which this one may not replace
    if not report["verdict"]["concludes"]:
        return [page, data]
    with atomic_path(scores) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows, names = csv.writer(file), list(report["detectors"])
        columns = [f"{name} {what}" for name in names for what in report["scores"][0][name]]
        rows.writerow(["number", "text", "copy_of", *columns])
        for number, row in enumerate(report["scores"]):
            rows.writerow([number, row["text"], row["copy_of"], *(v for name in names for v in row[name].values())])
    return [page, data, scores]


def verify(path: Path) -> None:
    """Repeat an audit from the files and the model that its report.json names.

    ValueError for the first difference: the version of mialib, a file, the model, a score beyond the rounding of the
    weights' type, or what follows from the scores. That is computed from the report's own scores, since rounding may
    swap the ranks of two texts.
    """
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        version, target, rules = earlier["provenance"][-1]["mialib"], Target(**earlier["target"]), earlier["rules"]
        paths = [Path(earlier[what]["file"]) if what in earlier else None for what in FILES_READ]
        rules = Rules(**rules)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path}: not the report.json of an audit, or of an older mialib ({error})") from None
    _check_same(version, mialib_version(), f"{path}, version of mialib")
    for what, file in zip(FILES_READ, paths, strict=True):
        if file:
            _check_same(earlier[what]["sha256"], checksum_of(file), f"{path}, SHA-256 of {file}")
    texts, non_members, members = paths
    files = read_files(texts or path, None if non_members == texts else non_members, members)
    now = audit(files[0], target, *files[1:], rules, earlier)
    del earlier["provenance"], now["provenance"]  # which also names device and libraries
    _check_same(earlier, json.loads(json.dumps(now)), str(path))


def _earlier_scores(earlier: Mapping[str, Any], scores: Scores, passes: Sequence[Mapping[str, Any]]) -> Scores:
    """Return the scores of an earlier report, if the models and the scores are the same now."""
    for before, now in zip(earlier["provenance"], passes, strict=False):
        for key in SAME_PASS:
            _check_same(before.get(key), now.get(key), f"{key} of {now['model']}")
    rounding = max(ROUNDING_OF_SCORES.get(run.get("dtype", ""), ROUNDING_OF_SCORES["float32"]) for run in passes)
    written = {
        name: [*(row[name]["score"] for row in earlier["scores"]), *earlier["known_scores"][name]]
        for name in earlier["detectors"]
    }
    _check_same(written, {name: values.tolist() for name, values in scores.items()}, "score", rounding)
    return {name: np.array(values) for name, values in written.items()}


def _check_same(before: Any, now: Any, place: str, rounding: float = ROUNDING) -> None:
    """ValueError, naming the place, for the first difference; numbers may differ by a share of 1 or of their size."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            _check_same(before.get(key), now.get(key), f"{place}, {key}", rounding)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, pair in enumerate(zip(before, now, strict=True)):
            _check_same(*pair, f"{place}, {i}", rounding)
    elif isinstance(before, float) and isinstance(now, float):
        if not abs(before - now) <= rounding * max(1, abs(before)):
            raise ValueError(f"{place}: {before!r} in the report, {now!r} now (up to {rounding:g} is rounding)")
    elif before != now:
        raise ValueError(f"{place}: {short_repr(before)} in the report, {short_repr(now)} now")
