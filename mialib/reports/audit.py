"""`mialib audit`: texts, a model and known non-members to one report that says what the answer rests on.

    report = audit(texts, model_target, non_members)      a plain dict, which is the report's JSON
    write(report, folder)                                 report.html, report.json and, where it
                                                      concludes, scores.csv

The order is that of what an answer needs: can the two files be told apart without a model? If so nothing is scored
and nothing concluded. Then the scores, the texts called, the set's p-value, what another start token would give, and
how often a set of this size would be found.
"""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.calibration import decide, fewest_pairs, group_means, p_values, set_p_value
from mialib.catalog.models import check_loadable
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Interval, auc_interval, tpr_at_fpr_interval
from mialib.passes.inputs import Inputs, Target, score_all, scores_of, unavailable_reason
from mialib.passes.leaks import LEVEL, explain_below, measure_leaks
from mialib.reports.detection import (
    ALL,
    check_options,
    check_rate,
    check_target,
    explain_flagged,
    explain_many,
    flag,
    load_known,
    pick_detectors,
)
from mialib.shared.files import LABEL_COLUMN, SOURCE_COLUMN, first_of, read_rows, texts_of
from mialib.shared.near_duplicates import ngrams
from mialib.store import atomic_path, hash_files, hash_texts, mialib_version, write_json
from mialib.text import bare, excerpt, language_of, words
from mialib.versions import versions_of

logger = logging.getLogger(__name__)

MOST_HOLDERS = 100  # texts that share seven words, above which these are what such texts have in common
SET_LEVEL = 0.05  # a set's p-value that counts as evidence
MOST_NAMED = 20  # texts in two files that an error names
NEAR_COPY = 0.5  # share of a text's seven-word sequences in one other text above which it is a copy, not just alike
POWER_AUCS = (0.55, 0.6, 0.7, 0.8)  # detectors that the power is given for
POWER_DRAWS = 1000
DOES_NOT_PROVE = (
    "A text that is called is not proven to have been used: some texts that were not used are called too.",
    "A model may know a text from a copy, a quotation, a translation or a review of it.",
    "A text that is not called is not proven to be unused: most members of a large model are found by no detector.",
    "Of several audits, with other detectors, options or files, one that is picked for its answer proves nothing.",
    "Whether a right was broken is no question of statistics.",
)
FILES = ("report.html", "report.json", "scores.csv")  # that a report is written to
OF_SCORES = "hash of scores.csv"  # in report.json: tells an audit's files from others of these names
SETTINGS = ("reference", "corpus", "non_member_prefix", "member_prefix", "n_shots", "dtype")  # in the report


@dataclass(frozen=True)
class TextFile:
    """A file's texts, and the source (author, book) of each where the file says it."""

    name: str
    texts: tuple[str, ...]
    sources: tuple[str, ...] = ()
    why_no_sources: str = ""

    @classmethod
    def read(cls, path: Path) -> TextFile:
        """The texts to judge; a column `source` names each one's author or book."""
        rows = read_rows(path)
        if any(LABEL_COLUMN in row for row in rows):
            logger.info("%s: its labels are not looked at", path)
        return cls._of(path, texts_of(rows, str(path)), rows)

    @classmethod
    def read_known(cls, path: Path, label: int = 0) -> TextFile:
        """Known non-members (0) or members (1): of a labelled file those labelled so, copies once."""
        known = load_known(path, label)
        return cls._of(path, list(known), list(known.values()))

    @classmethod
    def _of(cls, path: Path, texts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> TextFile:
        lacking = [i for i, row in enumerate(rows) if not row.get(SOURCE_COLUMN)]
        if not lacking:
            return cls(str(path), tuple(texts), tuple(str(row[SOURCE_COLUMN]) for row in rows))
        some = len(lacking) < len(rows)
        why = f"{path}: {len(lacking)} of {len(rows)} texts have no `{SOURCE_COLUMN}`" if some else ""
        return cls(str(path), tuple(texts), why_no_sources=why)

    def take(self, indices: Sequence[int]) -> TextFile:
        """Some of the texts."""
        sources = tuple(self.sources[i] for i in indices) if self.sources else ()
        return replace(self, texts=tuple(self.texts[i] for i in indices), sources=sources)


def audit(
    texts: TextFile,
    target: Target,
    non_members: TextFile,
    members: TextFile | None = None,
    detectors: Sequence[str] = (),
    fpr: float = 0.05,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    fdr: float | None = None,
) -> dict[str, Any]:
    """The report. The first of `detectors` decides, by default Min-K%++ or what the model allows; others are shown.

    `fpr` and `fdr` as for `detect_texts`, and both may be given.
    Where the two files are told apart without the model nothing is scored: the report ends with the blind baselines.
    ValueError where a text stands in two of the files or nearly so, for too few known non-members for a rate, for a
    detector that is asked for by its name and not applicable, and for one that scores all texts alike and would decide.
    """
    language, options = language_of(texts.texts), options or {}
    files, copies = _without_copies([texts, non_members, *([members] if members else [])], language)
    non_members, members = files[1], files[2] if members else None
    check_rate(fpr, len(non_members.texts), non_members.name)
    if fdr is not None:
        check_rate(fdr, len(non_members.texts), non_members.name, "--fdr")
    names, named = _names_to_run(detectors, target)
    check_options(options, names)
    check_target(target, [text for file in files for text in file.texts])
    for model in filter(None, (target.model, target.reference)):
        check_loadable(model)
    report: dict[str, Any] = {
        "texts": _described(texts) | {"n_copies": len(copies)},
        "non_members": _described(non_members),
        "model": target.model,
        "fpr": fpr,
        "set_level": SET_LEVEL,
        "settings": _settings(target, detectors, options),
        "blind": _blind(texts, non_members, language, copies),
        "does_not_prove": list(DOES_NOT_PROVE),
        "left_out": {},
        "provenance": [{"mialib": mialib_version(), "versions": versions_of("blind")}],
    }
    if members:
        report["members"] = _described(members) | {"blind": _blind(members, non_members, language)}
    if report["blind"]["told_apart_by"]:
        return report | {"verdict": _refusal(report["blind"])}

    inputs = Inputs(target, tuple(text for file in files for text in file.texts), language)
    scores, report["left_out"] = _scores(inputs, names, named, options)
    decider, ends = next(iter(scores)), np.cumsum([len(file.texts) for file in files])[:-1]
    parts = {name: np.split(of, ends) for name, of in scores.items()}  # the scores of each of the files
    p = {name: p_values(own, known) for name, (own, known, *_) in parts.items()}
    of_set = {name: _set_p(texts, non_members, own, known, copies) for name, (own, known, *_) in parts.items()}
    n_shown = 3 if members and _is_alike(report["members"]["blind"]) else 2  # files: of members, only where alike
    other_start, other_passes = _other_start_token(inputs, texts, non_members, copies, decider, options)
    report |= {
        "decider": decider,
        "decider_is_default": not named,
        "detectors": {
            name: _decided(parts[name][:n_shown], p[name], fpr, of_set[name]["p"], copies, fdr) for name in scores
        },
        "set": of_set[decider],
        "start_token": other_start,
        "power": _power(of_set[decider]["n"], of_set[decider]["n_known"]),
        "provenance": [*inputs.passes(), *other_passes, *report["provenance"]],
    }
    report["scores"] = _rows(texts, copies, scores, p, fpr, report["detectors"])
    return report | {"verdict": _conclusion(report)}


def _without_copies(files: Sequence[TextFile], language: str) -> tuple[list[TextFile], dict[int, int]]:
    """The files without near-copies among the known texts, and the copies among those to judge, which stay.

    ValueError where a text stands in two files, word by word or nearly: it would be known and judged at once.
    """
    whose = [(number, i) for number, file in enumerate(files) for i in range(len(file.texts))]
    copies = near_copies([files[number].texts[i] for number, i in whose], language)
    for later, earlier in copies.items():
        (number, _), (other, _) = whose[later], whose[earlier]
        if number != other:
            both = [a for a, b in copies.items() if whose[a][0] == number and whose[b][0] == other]
            named = first_of([excerpt(files[number].texts[whose[a][1]]) for a in both], MOST_NAMED)
            raise ValueError(
                f"texts of {files[number].name} that stand, as they are or nearly, in {files[other].name} too: "
                f"{len(both)}. Take each out of one: {named}"
            )
    kept = [files[0]]
    for number, file in enumerate(files[1:], start=1):
        left_out = {whose[later][1] for later in copies if whose[later][0] == number}
        if left_out:
            logger.info("%s: %d of its texts nearly repeat others; each counts once", file.name, len(left_out))
        kept.append(file.take([i for i in range(len(file.texts)) if i not in left_out]))
    return kept, {later: earlier for later, earlier in copies.items() if whose[later][0] == 0}


def near_copies(texts: Sequence[str], language: str = "en") -> dict[int, int]:
    """The texts that repeat an earlier one, by their number, and the number of that one.

    Texts that are equal but for white space, and texts that share over half of the shorter one's seven-word sequences.
    Sequences that over a hundred texts share, such as a licence's, do not count. Texts of under seven words are
    compared whole.
    """
    copies: dict[int, int] = {}
    equal: dict[str, int] = {}
    holders: dict[tuple[str, ...], list[int]] = {}
    of_texts = [ngrams(words(text, language)) for text in texts]
    for i, (text, own) in enumerate(zip(texts, of_texts, strict=True)):
        held = [holders[ngram] for ngram in own if len(holders.get(ngram, ())) in range(1, MOST_HOLDERS + 1)]
        shared = Counter(j for numbers in held for j in numbers)
        near = [j for j, n in shared.items() if n > NEAR_COPY * min(len(own), len(of_texts[j]))]
        if equal.setdefault(bare(text), i) != i:
            copies[i] = equal[bare(text)]
        elif near:
            copies[i] = min(near)
        for ngram in own:
            holders.setdefault(ngram, []).append(i)
    return copies


def _described(file: TextFile) -> dict[str, Any]:
    return {"file": file.name, "n": len(file.texts), "hash": hash_texts(file.texts)}


def _settings(target: Target, detectors: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "detectors": list(detectors) or "default",
        "options": options,
        "start_token": target.start_token or "none",
        **{name: getattr(target, name) for name in SETTINGS},
    }


def _names_to_run(detectors: Sequence[str], target: Target) -> tuple[list[str], list[str]]:
    """The detectors to run, the one that decides first, and those of them that were asked for by their names.

    Where none was, Min-K%++ decides, or Min-K% where an API gives no more.
    """
    named = [name for name in detectors if name != ALL]
    if "neighbor" in named:
        raise ValueError("audit does not run neighbor, which asks a second model about every word; detect does")
    names = pick_detectors(detectors, target)
    first = named or [next((name for name in ("min_k++", "min_k") if name in names), names[0])]
    return list(dict.fromkeys([*first, *names])), named


def _scores(
    inputs: Inputs, names: Sequence[str], named: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """Each detector's scores of the texts of all files, and why detectors are left out."""
    left_out: dict[str, str] = {}
    for name in names:
        if why := unavailable_reason(inputs, name):
            if name in named:
                raise ValueError(f"detector {name} is not applicable: {why}")
            left_out[name] = f"not applicable, since {why}"
    able = [name for name in names if name not in left_out]
    scores = {name: of for name, of in score_all(inputs, able, **options).items() if of is not None}
    for name in [name for name, of in scores.items() if np.ptp(of) == 0]:
        if name == able[0]:
            raise ValueError(f"{DETECTORS[name].label} scores all texts alike, so it decides nothing; name another")
        left_out[name] = "it scores all texts alike"
        del scores[name]
    return scores, left_out


def _blind(
    texts: TextFile, non_members: TextFile, language: str, copies: Mapping[int, Any] | None = None
) -> dict[str, Any]:
    """How well the texts alone tell the two files apart, by baselines that look at no model.

    Without copies. Where there are ten sources of each file or more, all texts of one share a fold: otherwise a
    baseline knows a source again. Where there are fewer, it may, and then the sources are a difference of the files.
    """
    kept = [i for i in range(len(texts.texts)) if i not in (copies or {})]
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
    found = measure_leaks(both, ["auc"])
    if not any(of.interval for of in found):
        found = measure_leaks(replace(both, sources=()), ["auc"])
    intervals = {of.label: of.interval for of in found if of.interval}
    return {
        "baselines": [
            {"name": of.label, **dict(zip(("auc", "low", "high"), _ends(of.interval), strict=True)), "why": of.why}
            for of in found
        ],
        "level": LEVEL,
        "told_apart_by": [f"{of.label} {of.interval}" for of in found if of.is_sure],
        "could_miss": max((interval.high for interval in intervals.values()), default=None),
        "note": explain_below(intervals.values()),
        "is_known": bool(intervals),
    }


def _ends(interval: Interval | None) -> tuple[float | None, ...]:
    return (interval.estimate, interval.low, interval.high) if interval else (None, None, None)


def _is_alike(blind: Mapping[str, Any]) -> bool:
    """Whether two files were compared without the model and nothing was surely found."""
    return blind["is_known"] and not blind["told_apart_by"]


def _set_p(
    texts: TextFile, non_members: TextFile, own: FloatArray, known: FloatArray, copies: Mapping[int, Any]
) -> dict[str, Any]:
    """The set's p-value: of its texts without copies, or of its sources where both files name them."""
    kept = [i for i in range(len(own)) if i not in copies]
    why = texts.why_no_sources or non_members.why_no_sources
    if not why and bool(texts.sources) != bool(non_members.sources):
        why = f"{(non_members if texts.sources else texts).name} has no column `{SOURCE_COLUMN}`"
    if texts.sources and non_members.sources:
        of_set, of_known, n_each = _means_of_sources([texts.sources[i] for i in kept], own[kept], non_members, known)
        if comb(len(of_set) + len(of_known), len(of_set)) * SET_LEVEL >= 1:
            n = {"n": len(of_set), "n_known": len(of_known), "unit": "sources", "texts_a_source": n_each}
            return {"p": set_p_value(of_set, of_known), **n, "why": ""}
        why = (
            f"{_count(len(of_set), 'source')} against {len(of_known)} of known non-members, of "
            f"{_count(n_each, 'text')} or more each, allow no p-value of {SET_LEVEL:g}"
        )
    n = {"n": len(kept), "n_known": len(known), "unit": "texts", "texts_a_source": None}
    return {"p": set_p_value(own[kept], known), **n, "why": why}


def _means_of_sources(
    sources: Sequence[str], own: FloatArray, non_members: TextFile, known: FloatArray
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


def _decided(
    parts: Sequence[FloatArray],
    p: FloatArray,
    fpr: float,
    p_of_set: float,
    copies: Mapping[int, Any],
    fdr: float | None = None,
) -> dict[str, Any]:
    """What one detector says: texts called, copies once, the threshold and its true FPR's interval, and what known
    members show.

    `parts` are its scores of the texts, of the known non-members and, where they may be shown, of the known members;
    `p` are the texts' p-values.
    """
    _, known, *members = parts
    decision = decide(known, fpr)
    once = [i for i in range(len(p)) if i not in copies]
    found: dict[str, Any] = {
        "threshold": decision.threshold,
        "mean_fpr": decision.mean_fpr,
        "fpr_interval": [decision.fpr.low, decision.fpr.high],
        "n_called": int((p[once] <= fpr).sum()),
        "set_p": p_of_set,
    }
    found |= {"flagged": flag(p[once], len(known), fdr)} if fdr else {}
    for of_members in members:
        labels, scores = np.repeat([1, 0], [len(of_members), len(known)]), np.concatenate([of_members, known])
        found |= {"auc": _interval(auc_interval(labels, scores))}
        if len(known) >= 1 / fpr:
            found |= {"tpr": _interval(tpr_at_fpr_interval(labels, scores, fpr))}
    return found


def _rows(
    texts: TextFile,
    copies: Mapping[int, int],
    scores: Mapping[str, FloatArray],
    p: Mapping[str, FloatArray],
    fpr: float,
    decided: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """What each detector says of each of the texts; `scores` begin with theirs."""

    def said(name: str, i: int) -> dict[str, Any]:
        found = {"score": float(scores[name][i]), "p": float(p[name][i]), "is_called": bool(p[name][i] <= fpr)}
        flagged = decided[name].get("flagged")
        return found | ({"is_flagged": bool(p[name][i] <= flagged["up_to_p"])} if flagged else {})

    return [
        {"text": excerpt(text, 80), "copy_of": copies.get(i)} | {name: said(name, i) for name in scores}
        for i, text in enumerate(texts.texts)
    ]


def _count(n: int, unit: str) -> str:
    return f"{n} {unit}{'' if n == 1 else 's'}"


def _interval(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _other_start_token(
    inputs: Inputs,
    texts: TextFile,
    non_members: TextFile,
    copies: Mapping[int, Any],
    decider: str,
    options: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The set's p-value with the other start token, none or the tokenizer's own, and what ran for it.

    None where there is no other, and for log-probs that come from elsewhere, which cost time or money.
    """
    own = inputs.stats.provenance.get("start_token_id")
    other = None if inputs.target.start_token is not None else "auto"
    if not inputs.source.has_weights or (own is None and other is None):
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
    shifts, n_called = [np.sqrt(2) * norm.ppf(auc) for auc in POWER_AUCS], np.zeros(len(POWER_AUCS))
    for _ in range(POWER_DRAWS):
        own, known = rng.normal(size=n), np.sort(rng.normal(size=n_known))
        n_called += [np.searchsorted(known, own + shift).sum() >= fewest for shift in shifts]
    return [
        {"auc": auc, "power": power} for auc, power in zip(POWER_AUCS, (n_called / POWER_DRAWS).tolist(), strict=True)
    ]


def _refusal(blind: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict where the two files are told apart without the model."""
    return {
        "concludes": False,
        "said": [
            "No conclusion. The two files are told apart without the model, with an AUC of: "
            f"{'; '.join(blind['told_apart_by'])}. A detector sees that difference too, so its answer would be of the "
            "files and not of the model. Nothing was scored.",
            "Give known non-members of the same source, style, format and date as the texts.",
        ],
    }


def _conclusion(report: Mapping[str, Any]) -> dict[str, Any]:
    """What follows, in sentences."""
    of_set, decider = report["set"], report["decider"]
    label, of_decider = DETECTORS[decider].label, report["detectors"][decider]
    of_what = f"p = {of_set['p']:.3g}, {label}, {_count(of_set['n'], of_set['unit'].removesuffix('s'))}"
    said = []
    if not report["blind"]["is_known"]:
        said.append(
            "Whether the two files are alike could not be checked: it takes ten texts of each. What follows holds only "
            "if they are."
        )
    if of_set["p"] <= SET_LEVEL:
        said.append(
            f"The texts as a set score higher than the known non-members ({of_what}; {SET_LEVEL:g} or less counts): "
            "evidence that some were used, if the files differ in nothing else."
        )
    else:
        at = next(row for row in report["power"] if row["auc"] == 0.6)
        said.append(
            f"No evidence that the texts were used ({of_what}; {SET_LEVEL:g} or less would count). "
            f"A set of this size, all members, would be found in {at['power']:.0%} of cases by a detector with an AUC "
            f"of 0.6 between {of_set['unit']}."
        )
    if report["blind"]["is_known"]:
        said.append(
            "The two files are not surely told apart without the model; with so few texts a difference of an AUC up to "
            f"{report['blind']['could_miss']:.2f} could have been missed."
        )
    if of_set["unit"] == "texts":
        why = f"Not tested by source: {of_set['why']}. " if of_set["why"] else ""
        said.append(f"{why}This p takes the texts for independent; for texts of few sources it is too small.")
    other = report["start_token"]
    if other and "p" in other and (other["p"] <= SET_LEVEL) != (of_set["p"] <= SET_LEVEL):
        said.append(
            f"With start token {other['start_token']} it is p = {other['p']:.3g}: the answer hangs on a convention, so "
            "it is no answer."
        )
    n, (low, high) = report["texts"]["n"] - report["texts"]["n_copies"], of_decider["fpr_interval"]
    mean = of_decider["mean_fpr"]
    said.append(
        f"{of_decider['n_called']} of {_count(n, 'text')} {'is' if of_decider['n_called'] == 1 else 'are'} called. On "
        f"average at most {100 * mean:.1f}% of unused texts like the known non-members are, {mean * n:.1f} of {n}; "
        f"with these known non-members the share lies between {100 * low:.1f}% and {100 * high:.1f}% (95% interval)."
    )
    flagged = of_decider.get("flagged")
    said += [more] if (more := explain_flagged(flagged) if flagged else explain_many(mean, n)) else []
    if (members := report.get("members")) and not _is_alike(members["blind"]):
        told = "; ".join(members["blind"]["told_apart_by"])
        said.append(
            "The detectors' AUC on the known members is not shown: "
            + (
                f"they are told from the known non-members without the model ({told})."
                if told
                else "too few to compare."
            )
        )
    return {"concludes": True, "said": said}


def check_folder(folder: Path) -> None:
    """ValueError where a folder holds a file of a report's name that no earlier audit wrote, as its report.json tells:
    this one would replace it, or leave it beside a report of other texts."""
    page, data, scores = (folder / name for name in FILES)
    others = [path for path in (page, data, scores) if path.exists()]
    with suppress(OSError, ValueError, LookupError, TypeError):  # no report.json, or not an audit's
        written = json.loads(data.read_text(encoding="utf-8"))[OF_SCORES]
        others = [scores] if scores.exists() and written != hash_files([scores]) else []
    if others:
        named = ", ".join(map(str, others))
        raise ValueError(
            f"{named}: may be no audit's, or changed, or an older version's, and is not replaced; give another --output"
        )


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """The report as a page, as JSON and, where it concludes, its scores as CSV, in a folder; the paths.

    They take the place of an earlier audit's. ValueError as for `check_folder`.
    """
    from jinja2 import Environment, FileSystemLoader

    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    html = environment.get_template("audit.html").render(
        report=report, labels={n: d.label for n, d in DETECTORS.items()}, count=_count
    )
    page, data, scores = (folder / name for name in FILES)
    scores.unlink(missing_ok=True)  # an earlier audit's
    written = [page, data]
    if report["verdict"]["concludes"]:
        with atomic_path(scores) as temporary:
            _write_scores(report, temporary)
            write_json(data, {**report, OF_SCORES: hash_files([temporary])})
        written.append(scores)
    else:
        write_json(data, {**report, OF_SCORES: None})
    with atomic_path(page) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return written


def _write_scores(report: Mapping[str, Any], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows, names = csv.writer(file), list(report["detectors"])
        of_names = [f"{name} {what}" for name in names for what in report["scores"][0][name]]
        rows.writerow(["number", "text", "copy_of", *of_names])
        for number, row in enumerate(report["scores"]):
            rows.writerow([number, row["text"], row["copy_of"], *(v for name in names for v in row[name].values())])
