"""`mialib audit`: texts, a model and known non-members to one report that says what the answer rests on.

    report = audit(texts, model_target, non_members)      a plain dict, which is the report's JSON
    write(report, folder)                                 report.html, report.json, scores.csv

The order is that of what an answer needs: can the two files be told apart without a model? If so nothing is concluded.
Then the scores, the texts called, the set's p-value, what another start token would give, and how often a set of this
size would be found.
"""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.book import blind_tables
from mialib.book.decisions import fewest_pairs
from mialib.calibration import decide, group_means, p_values, set_p_value
from mialib.catalog.registry import is_api
from mialib.commands.detection import ALL, check_fpr, check_options, load_known, pick_detectors
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Interval, auc_interval, tpr_at_fpr_interval
from mialib.passes.inputs import Inputs, Target, score_all, scores_of, unavailable_reason
from mialib.shared.files import SOURCE_COLUMN, read_rows, texts_of
from mialib.shared.near_duplicates import MAX_OVERLAP, NearDuplicates
from mialib.store import atomic_path, mialib_version, write_json
from mialib.text import excerpt, language_of

logger = logging.getLogger(__name__)

SET_LEVEL = 0.05  # a set's p-value that counts as evidence
POWER_AUCS = (0.55, 0.6, 0.7, 0.8)  # detectors that the power is given for
POWER_DRAWS = 1000
DOES_NOT_PROVE = (
    "A text that is called is not proven to have been used: of non-members, too, about the wanted share is called.",
    "A model may know a text from a copy, a quotation, a translation or a review of it.",
    "A text that is not called is not proven to be unused: most members of a large model are found by no detector.",
    "Whether a right was broken is no question of statistics.",
)


@dataclass(frozen=True)
class Texts:
    """A file's texts, and the source (author, book) of each where the file says it."""

    name: str
    texts: tuple[str, ...]
    sources: tuple[str, ...] = ()
    why_no_sources: str = ""

    @classmethod
    def read(cls, path: Path) -> Texts:
        """The texts to judge; a column `source` names each one's author or book."""
        rows = read_rows(path)
        return cls._of(path, texts_of(rows, str(path)), rows)

    @classmethod
    def read_known(cls, path: Path, label: int = 0) -> Texts:
        """Known non-members (0) or members (1): of a labelled file those labelled so, copies once."""
        known = load_known(path, label)
        return cls._of(path, list(known), list(known.values()))

    @classmethod
    def _of(cls, path: Path, texts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Texts:
        lacking = [i for i, row in enumerate(rows) if not row.get(SOURCE_COLUMN)]
        if not lacking:
            return cls(str(path), tuple(texts), tuple(str(row[SOURCE_COLUMN]) for row in rows))
        some = len(lacking) < len(rows)
        why = f"{path}: {len(lacking)} of {len(rows)} texts have no `{SOURCE_COLUMN}`" if some else ""
        return cls(str(path), tuple(texts), why_no_sources=why)


def audit(
    texts: Texts,
    target: Target,
    non_members: Texts,
    members: Texts | None = None,
    detectors: Sequence[str] = (),
    fpr: float = 0.05,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The report. The first of `detectors` decides, by default Min-K%++ or what the model allows; others are shown.

    ValueError where a text stands in two of the files, for too few known non-members for the FPR, and for a detector
    that is asked for by its name and not applicable.
    """
    files = [texts, non_members, *([members] if members else [])]
    _check_apart(files)
    check_fpr(fpr, len(non_members.texts), non_members.name)
    names = pick_detectors(detectors, target)
    check_options(options or {}, names)
    if not detectors or ALL in detectors:
        names = _first_decides(names)
    language = language_of(texts.texts)
    copies = _copies(texts.texts, language)
    blind = _blind(texts, non_members, copies, language)
    inputs = Inputs(target, tuple(text for file in files for text in file.texts), language)
    for name in [name for name in names if unavailable_reason(inputs, name)]:
        if detectors and ALL not in detectors:
            raise ValueError(f"detector {name} is not applicable: {unavailable_reason(inputs, name)}")
        logger.info("%s: not applicable, since %s", name, unavailable_reason(inputs, name))
        names.remove(name)
    scores = score_all(inputs, names, **(options or {}))
    parts = {name: np.split(of, np.cumsum([len(file.texts) for file in files])[:-1]) for name, of in scores.items()}
    decider = next(iter(scores))
    of_set = {name: _set_p(texts, non_members, *parts[name][:2], copies) for name in scores}
    other_start, other_passes = _other_start_token(inputs, texts, non_members, copies, decider, options or {})
    report = {
        "texts": {"file": texts.name, "n": len(texts.texts), "n_copies": len(copies)},
        "non_members": {"file": non_members.name, "n": len(non_members.texts)},
        "model": target.model,
        "decider": decider,
        "blind": blind,
        "detectors": {name: _decided(parts[name], fpr, of_set[name]["p"]) for name in scores},
        "set": of_set[decider],
        "start_token": other_start,
        "power": _power(of_set[decider]["n"], of_set[decider]["n_known"]),
        "provenance": [*inputs.passes(), *other_passes, {"mialib": mialib_version()}],
        "does_not_prove": list(DOES_NOT_PROVE),
        "scores": [
            {"text": excerpt(text, 80), "copy_of": copies.get(i)}
            | {name: {"score": float(parts[name][0][i])} for name in scores}
            for i, text in enumerate(texts.texts)
        ],
    }
    for name in scores:
        for row, p in zip(report["scores"], p_values(*parts[name][:2]).tolist(), strict=True):
            row[name] |= {"p": p, "is_called": p <= fpr}
    if members:
        report["members"] = {"file": members.name, "n": len(members.texts)}
    return report | {"fpr": fpr, "verdict": _verdict(report, fpr)}


def _check_apart(files: Sequence[Texts]) -> None:
    seen: dict[str, int] = {}
    for number, file in enumerate(files):
        for text in dict.fromkeys(file.texts):
            if (other := seen.setdefault(text, number)) != number:
                raise ValueError(
                    f"{excerpt(text)} stands in {files[other].name} and in {file.name}; take it out of one"
                )


def _first_decides(names: list[str]) -> list[str]:
    """Without a choice Min-K%++ decides, or Min-K% where an API gives no more."""
    first = next((name for name in ("min_k++", "min_k") if name in names), names[0])
    return [first, *(name for name in names if name != first)]


def _copies(texts: Sequence[str], language: str) -> dict[int, int | str]:
    """The texts that repeat earlier ones, with the number of its equal; "near" where one nearly repeats some."""
    first: dict[str, int] = {}
    seen, copies = NearDuplicates(language=language), {}
    for i, text in enumerate(texts):
        if first.setdefault(text, i) != i:
            copies[i] = first[text]
        elif (seen.overlap(text) or 0) > MAX_OVERLAP:
            copies[i] = "near"
        seen.add(text)
    return copies


def _blind(texts: Texts, non_members: Texts, copies: Mapping[int, Any], language: str) -> dict[str, Any]:
    """How well the texts alone tell the two files apart, by baselines that look at no model.

    Without copies, and with all texts of a source on one side of each division of the cross-validation: otherwise a
    baseline knows a source, or a text, again.
    """
    kept = [i for i in range(len(texts.texts)) if i not in copies]
    sources = [
        f"{file.name} {file.sources[i] if file.sources else i}"
        for file, of in ((texts, kept), (non_members, range(len(non_members.texts))))
        for i in of
    ]
    both = Benchmark(
        "the two files",
        (*(texts.texts[i] for i in kept), *non_members.texts),
        np.repeat([1, 0], [len(kept), len(non_members.texts)]).astype(np.int8),
        "none",
        language,
        sources=tuple(sources),
    )
    found = blind_tables.measure(both, both.name, ["auc"])
    sure = blind_tables.highest(filter(blind_tables.is_sure, found))
    return {
        "baselines": [
            {"name": blind_tables.name_of(r), "auc": r.ours, "low": r.low, "high": r.high, "why": r.why} for r in found
        ],
        "told_apart_by": blind_tables.name_of(sure) if sure else None,
        "auc": str(sure.interval) if sure else None,
        "is_known": any(r.ours is not None for r in found),
    }


def _set_p(
    texts: Texts, non_members: Texts, own: FloatArray, known: FloatArray, copies: Mapping[int, Any]
) -> dict[str, Any]:
    """The set's p-value: of its texts without copies, or of its sources where both files name them."""
    kept = [i for i in range(len(own)) if i not in copies]
    why = texts.why_no_sources or non_members.why_no_sources
    if texts.sources and non_members.sources:
        of_set, of_known, n_each = _means_of_sources([texts.sources[i] for i in kept], own[kept], non_members, known)
        if comb(len(of_set) + len(of_known), len(of_set)) * SET_LEVEL >= 1:
            n = {"n": len(of_set), "n_known": len(of_known), "unit": "sources", "texts_a_source": n_each}
            return {"p": set_p_value(of_set, of_known), **n, "why": ""}
        why = f"{len(of_known)} sources of known non-members with {n_each} texts or more are too few"
    n = {"n": len(kept), "n_known": len(known), "unit": "texts", "texts_a_source": None}
    return {"p": set_p_value(own[kept], known), **n, "why": why}


def _means_of_sources(
    sources: Sequence[str], own: FloatArray, non_members: Texts, known: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """The mean scores of the set's sources and of the known ones, and of how many texts each is.

    Means of few texts scatter more than those of many. So each source counts by as many of its first texts as the
    smallest source of the set has and at least half of the known ones have; a known source with fewer is left out.
    """
    n_each = min(*Counter(sources).values(), median_low(Counter(non_members.sources).values()))

    def means(of: Sequence[str], scores: FloatArray) -> FloatArray:
        place: Counter[str] = Counter()
        first = []
        for i, source in enumerate(of):
            place[source] += 1
            first += [i] if place[source] <= n_each else []
        kept = [i for i in first if place[of[i]] >= n_each]
        return group_means(scores[kept], [of[i] for i in kept])

    return means(sources, own), means(non_members.sources, known), n_each


def _decided(parts: Sequence[FloatArray], fpr: float, p_of_set: float) -> dict[str, Any]:
    """What one detector says: texts called, the threshold and its true FPR's interval, and what known members show."""
    own, known, *members = parts
    decision = decide(known, fpr)
    found = {
        "threshold": decision.threshold,
        "fpr_interval": [decision.fpr.low, decision.fpr.high],
        "n_called": int((p_values(own, known) <= fpr).sum()),
        "set_p": p_of_set,
    }
    for of_members in members:
        labels, scores = np.repeat([1, 0], [len(of_members), len(known)]), np.concatenate([of_members, known])
        found |= {"auc": _interval(auc_interval(labels, scores))}
        if len(known) >= 1 / fpr:
            found |= {"tpr": _interval(tpr_at_fpr_interval(labels, scores, fpr))}
    return found


def _interval(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _other_start_token(
    inputs: Inputs,
    texts: Texts,
    non_members: Texts,
    copies: Mapping[int, Any],
    decider: str,
    options: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The set's p-value with the other start token, none or the tokenizer's own, and what ran for it.

    None where there is no other, and for log-probs that come from elsewhere, which cost time or money.
    """
    own = inputs.stats.provenance.get("start_token_id")
    other = None if inputs.target.start_token is not None else "auto"
    if is_api(inputs.target.model) or (own is None and other is None):
        return None, []
    n, n_known = len(texts.texts), len(non_members.texts)
    changed = Inputs(inputs.target.but(start_token=other), inputs.texts[: n + n_known], inputs.language)
    name = {"start_token": other or "none"}
    if other is None and (inputs.stats.n_tokens[: n + n_known] < 2).any():
        return name | {"why": "a text has one token, of which nothing would be left"}, []
    if why := unavailable_reason(changed, decider):
        return name | {"why": why}, []
    scores = scores_of(changed, decider, **options.get(decider, {}))
    return name | {"p": _set_p(texts, non_members, scores[:n], scores[n:], copies)["p"]}, changed.passes()


def _power(n: int, n_known: int) -> list[dict[str, float]]:
    """How often a set of members of this size would be called, for detectors of given AUC on normal scores."""
    from scipy.stats import norm

    rng, fewest = np.random.default_rng(0), fewest_pairs(n, n_known, SET_LEVEL)
    draws = [(rng.normal(size=n), np.sort(rng.normal(size=n_known))) for _ in range(POWER_DRAWS)]

    def power(auc: float) -> float:
        shift = np.sqrt(2) * norm.ppf(auc)
        return float(np.mean([np.searchsorted(known, own + shift).sum() >= fewest for own, known in draws]))

    return [{"auc": auc, "power": power(auc)} for auc in POWER_AUCS]


def _verdict(report: Mapping[str, Any], fpr: float) -> dict[str, Any]:
    """What follows, in sentences, and whether anything does."""
    blind, of_set, decider = report["blind"], report["set"], report["decider"]
    label, n_called = DETECTORS[decider].label, report["detectors"][decider]["n_called"]
    if blind["told_apart_by"]:
        return {
            "concludes": False,
            "said": [
                f"No conclusion. The two files are told apart without the model: {blind['told_apart_by']} does so with "
                f"an AUC of {blind['auc']}. A detector sees that difference too, so its answer would be of the files "
                "and not of the model.",
                "Give known non-members of the same source, style and date as the texts.",
            ],
        }
    said = []
    if not blind["is_known"]:
        said.append(
            "Whether the two files are alike could not be checked: it takes ten texts of each. What follows holds only "
            "if they are."
        )
    if of_set["p"] <= SET_LEVEL:
        said.append(
            f"The texts as a set score higher than the known non-members (p = {of_set['p']:.3g}, {label}, "
            f"{of_set['n']} {of_set['unit']}): evidence that some were used, if the files differ in nothing else."
        )
    else:
        at = next(row for row in report["power"] if row["auc"] == 0.6)
        said.append(
            f"No evidence that the texts were used (p = {of_set['p']:.3g}, {label}, {of_set['n']} {of_set['unit']}). "
            f"A set of this size, all members, would be found in {at['power']:.0%} of cases by a detector with an AUC "
            f"of 0.6 between {of_set['unit']}."
        )
    n = report["texts"]["n"]
    said.append(
        f"{n_called} of {n} texts are called. Of non-members like the known ones at most {100 * fpr:g}% score as high, "
        f"which would be {fpr * n:.1f} of {n}."
    )
    return {"concludes": True, "said": said}


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """The report as a page, as JSON and its scores as CSV, in a folder; the paths."""
    from jinja2 import Environment, FileSystemLoader

    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    html = environment.get_template("audit.html").render(
        report=report, labels={n: d.label for n, d in DETECTORS.items()}
    )
    paths = [folder / name for name in ("report.html", "report.json", "scores.csv")]
    with atomic_path(paths[0]) as temporary:
        temporary.write_text(html, encoding="utf-8")
    write_json(paths[1], report)
    with atomic_path(paths[2]) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        names = list(report["detectors"])
        rows.writerow(
            ["text", "copy_of", *(f"{name} {what}" for name in names for what in ("score", "p", "is_called"))]
        )
        for row in report["scores"]:
            rows.writerow([row["text"], row["copy_of"], *(v for name in names for v in row[name].values())])
    return paths
