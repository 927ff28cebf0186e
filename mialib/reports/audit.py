"""`mialib audit`: texts, a model and known non-members to one report that says what the answer rests on.

    report = audit(texts, model_target, non_members)      a plain dict, which is the report's JSON
    write(report, folder)                                 report.html, report.json and, where it
                                                      concludes, scores.csv
    verify(folder / "report.json")                        the same again, for someone who doubts it

The order is that of what an answer needs: can the two files be told apart without a model? If so nothing is scored
and nothing concluded. Then the scores, the texts called, the set's p-value, what another start token would give, how
often a set of this size would be found, and, where a coin decided on each text, a lower bound on epsilon.
"""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import comb
from pathlib import Path
from reprlib import repr as short_repr  # of any value, however long or nested
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.calibration import decide, fewest_pairs, p_values, set_p_value
from mialib.catalog.models import CAUSAL_TOLERANCE, NARROW_TOLERANCE, check_loadable
from mialib.catalog.sources import source_of
from mialib.catalog.stored import checksum_of
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import auc_interval, epsilon_bound, tpr_at_fpr_interval
from mialib.passes.inputs import Inputs, Target, score_all, scores_of, signature, unavailable_reason
from mialib.passes.leaks import LEVEL, explain_below, measure_leaks
from mialib.passes.needs import settings
from mialib.reports.canaries import check_seal
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
from mialib.shared.files import (
    COIN_COLUMN,
    LABEL_COLUMN,
    SOURCE_COLUMN,
    first_of,
    labels_of,
    read_rows,
    texts_of,
    times_of,
)
from mialib.shared.near_duplicates import near_copies
from mialib.shared.templates import macros
from mialib.store import atomic_path, hash_files, hash_texts, mialib_version, write_json
from mialib.text import excerpt, language_of
from mialib.versions import versions_of

Copies = Mapping[int, int]  # texts that repeat an earlier one, by their numbers, and its number
Options = Mapping[str, Mapping[str, Any]]  # hyperparameters by detector
Scores = Mapping[str, FloatArray]  # of all files' texts, by detector

logger = logging.getLogger(__name__)

SET_LEVEL = 0.05  # a set's p-value that counts as evidence
MOST_NAMED = 20  # texts in two files that an error names
POWER_AUCS = (0.55, 0.6, 0.7, 0.8)  # detectors that the power is given for
POWER_DRAWS = 1000
FILES_READ = ("texts", "non_members", "members")  # of which the last may not be there
FILES = ("report.html", "report.json", "scores.csv")  # that a report is written to
OF_SCORES = "hash of scores.csv"  # in report.json: tells an audit's files from others of these names
SETTINGS = (*(setting.field for setting in settings(dear=False)), "dtype")  # in the report
LEVEL_OF_BOUNDS = 0.95  # of all lower bounds on epsilon together
FPR_OF_CANARIES = 0.01
OF_A_PASS = ("model", "revision", "tokenizer", "dtype", "start_token")  # what has to be the same the second time
ROUNDING = 1e-6  # of what is computed from the same scores


@dataclass(frozen=True)
class TextFile:
    """A file's texts, and the source (author, book) of each where the file says it."""

    name: str
    texts: tuple[str, ...]
    sources: tuple[str, ...] = ()
    why_no_sources: str = ""
    coin: tuple[int, ...] = ()  # how often each is inserted if its fair coin says so; empty where no coin decided
    sha256: str = ""  # of the file

    @classmethod
    def read(cls, path: Path, label: int | None = None) -> TextFile:
        """The texts to judge, or known non-members (0) or members (1): of a labelled file those labelled so, copies
        once. A column `source` names each one's author or book."""
        if label is None:
            rows = read_rows(path)
            texts = texts_of(rows, str(path))
            if any(LABEL_COLUMN in row for row in rows):
                logger.info("%s: its labels are not looked at", path)
        else:
            known = load_known(path, label)
            texts, rows = list(known), list(known.values())
        n_lacking = sum(not row.get(SOURCE_COLUMN) for row in rows)
        sources = () if n_lacking else tuple(str(row[SOURCE_COLUMN]) for row in rows)
        why = f"{path}: {n_lacking} of {len(rows)} texts have no `{SOURCE_COLUMN}`" if n_lacking else ""
        coin = () if label is None else times_of(rows, str(path), COIN_COLUMN)
        return cls(str(path), tuple(texts), sources, why, coin, checksum_of(path) if path.is_file() else "")

    def take(self, indices: Sequence[int]) -> TextFile:
        """Some of the texts."""
        texts, sources = (tuple(of[i] for i in indices if of) for of in (self.texts, self.sources))
        return replace(self, texts=texts, sources=sources, coin=tuple(self.coin[i] for i in indices if self.coin))


def read_files(
    texts: Path, non_members: Path | None, members: Path | None
) -> tuple[TextFile, TextFile, TextFile | None]:
    """The texts to judge, known non-members and known members. Without `non_members` the texts have labels, and those
    labelled 1 are compared with those labelled 0; ValueError where they have none, and as for `check_seal`.
    """
    if non_members is None and labels_of(read_rows(texts), str(texts)) is None:
        raise ValueError(f"{texts}: its texts have no labels; give --non-members, a file of known non-members")
    if non_members is None:
        check_seal(texts)
    known = TextFile.read(non_members or texts, 0)
    return TextFile.read(texts, None if non_members else 1), known, TextFile.read(members, 1) if members else None


def audit(
    texts: TextFile,
    target: Target,
    non_members: TextFile,
    members: TextFile | None = None,
    detectors: Sequence[str] = (),
    fpr: float = 0.05,
    options: Options | None = None,
    fdr: float | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The report. The first of `detectors` decides, by default Min-K%++ or what the model allows; others are shown.

    `fpr` and `fdr` as for `detect_texts`, and both may be given. With an `earlier` report its scores are taken;
    ValueError where the models, or the scores beyond rounding, are others now.
    Where the two files are told apart without the model nothing is scored: the report ends with the blind baselines.
    ValueError where a text stands in two of the files or nearly so, for too few known non-members for a rate, for a
    detector that is asked for by its name and not applicable, and for one that scores all texts alike and would decide.
    """
    language, options = language_of(texts.texts), options or {}
    files, copies = _without_copies([texts, non_members, *([members] if members else [])], language)
    non_members, members = files[1], files[2] if members else None
    kept = [i for i in range(len(texts.texts)) if i not in copies]
    once = texts.take(kept)
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
        "fdr": fdr,
        "set_level": SET_LEVEL,
        "settings": {
            "detectors": list(detectors),
            "options": options,
            "start_token": target.start_token or "none",
            **{name: getattr(target, name) for name in SETTINGS},
        },
        "blind": _blind(once, non_members, language),
        "left_out": {},
        "provenance": [{"mialib": mialib_version(), "versions": versions_of("blind")}],
    }
    if members:
        report["members"] = _described(members) | {"blind": _blind(members, non_members, language)}
    if report["blind"]["told_apart_by"]:
        return report | {"verdict": _refusal(report)}

    inputs = Inputs(target, tuple(text for file in files for text in file.texts), language)
    if inputs.stats.n_cut.any():  # what was scored of the texts may be easier to tell apart than the whole texts
        scored, n_words = iter(inputs.scored_parts()), int(inputs.stats.n_tokens.max())
        read = [replace(file, texts=tuple(islice(scored, len(file.texts)))) for file in files]
        report["blind"] = _blind(read[0].take(kept), read[1], language, n_words)
        if members:
            report["members"]["blind"] = _blind(read[2], read[1], language, n_words)
        if report["blind"]["told_apart_by"]:
            return report | {"verdict": _refusal(report)}
    scores, report["left_out"] = _scores(inputs, names, named, options)
    if earlier:
        scores = _scores_of(earlier, scores, inputs.passes())
    decider, ends = next(iter(scores)), np.cumsum([len(file.texts) for file in files])[:-1]
    parts = {name: np.split(of, ends) for name, of in scores.items()}  # the scores of each of the files
    p = {name: p_values(own, known) for name, (own, known, *_) in parts.items()}
    of_set = {name: _set_p(once, non_members, own[kept], known) for name, (own, known, *_) in parts.items()}
    shown = members and report["members"]["blind"]["is_alike"]
    known_scores = {name: of[1 : 3 if shown else 2] for name, of in parts.items()}
    made = {"signature": signature(inputs.stats.provenance)}
    logger.info("%s", made["signature"])
    other_start, other_passes = _other_start_token(inputs, once, non_members, decider, options)
    report |= {
        "decider": decider,
        "decider_is_default": not named,
        "detectors": {
            name: _decided(of[kept], *known_scores[name], fpr=fpr, fdr=fdr) | {"set_p": of_set[name]["p"]}
            for name, of in p.items()
        },
        "set": of_set[decider],
        "start_token": other_start,
        "coin": _by_coin(once, non_members, parts[decider][0][kept], parts[decider][1]),
        "power": _power(of_set[decider]["n"], of_set[decider]["n_known"]),
        "provenance": [*inputs.passes(), *other_passes, made | report["provenance"][0]],
    }
    report["scores"] = _rows(report, texts, copies, scores, p)
    report["known_scores"] = {name: of[len(texts.texts) :].tolist() for name, of in scores.items()}
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


def _described(file: TextFile) -> dict[str, Any]:
    return {"file": file.name, "n": len(file.texts), "hash": hash_texts(file.texts), "sha256": file.sha256}


def _names_to_run(detectors: Sequence[str], target: Target) -> tuple[list[str], list[str]]:
    """The detectors to run, the one that decides first, and those of them that were asked for by their names.

    Where none was, Min-K%++ decides, or Min-K% where an API gives no more; about an adapter on its base Ref does.
    """
    named = [name for name in detectors if name != ALL]
    if "neighbor" in named:
        raise ValueError("audit does not run neighbor, which asks a second model about every word; detect does")
    names = pick_detectors(detectors, target)
    is_on_its_base = target.reference and target.reference == source_of(target.model).base(target.model)
    usual = (*(["ref"] if is_on_its_base else []), "min_k++", "min_k")
    first = named or [next((name for name in usual if name in names), names[0])]
    return list(dict.fromkeys([*first, *names])), named


def _scores(
    inputs: Inputs, names: Sequence[str], named: Sequence[str], options: Options
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """Each detector's scores of the texts of all files, and why detectors are left out."""
    reasons = {name: unavailable_reason(inputs, name) for name in names}
    if why := next((f"detector {name} is not applicable: {reasons[name]}" for name in named if reasons[name]), ""):
        raise ValueError(why)
    left_out = {name: f"not applicable, since {why}" for name, why in reasons.items() if why}
    able = [name for name in names if not reasons[name]]
    scores = {name: of for name, of in score_all(inputs, able, **options).items() if of is not None}
    alike = {name: "it scores all texts alike" for name, of in scores.items() if np.ptp(of) == 0}
    if able[0] in alike:
        raise ValueError(f"{DETECTORS[able[0]].label} scores all texts alike, so it decides nothing; name another")
    return {name: of for name, of in scores.items() if name not in alike}, left_out | alike


def _scores_of(
    earlier: Mapping[str, Any], scores: Scores, passes: Sequence[Mapping[str, Any]]
) -> dict[str, FloatArray]:
    """The scores of an earlier report, if the models and the scores are the same now."""
    for before, now in zip(earlier["provenance"], passes, strict=False):
        for key in OF_A_PASS:
            _check_same(before.get(key), now.get(key), f"{key} of {now['model']}")
    is_narrow = any(of.get("dtype") in ("bfloat16", "float16") for of in passes)
    tolerance = NARROW_TOLERANCE if is_narrow else CAUSAL_TOLERANCE
    written = {
        name: [*(row[name]["score"] for row in earlier["scores"]), *earlier["known_scores"][name]]
        for name in earlier["detectors"]
    }
    _check_same(written, {name: of.tolist() for name, of in scores.items()}, "score", tolerance)
    return {name: np.array(of) for name, of in written.items()}


def _check_same(before: Any, now: Any, place: str, tolerance: float = ROUNDING) -> None:
    """ValueError, naming the place, for the first difference; numbers may differ by a share of 1 or of their size."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            _check_same(before.get(key), now.get(key), f"{place}, {key}", tolerance)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, pair in enumerate(zip(before, now, strict=True)):
            _check_same(*pair, f"{place}, {i}", tolerance)
    elif isinstance(before, float) and isinstance(now, float):
        if not abs(before - now) <= tolerance * max(1, abs(before)):
            raise ValueError(f"{place}: {before!r} in the report, {now!r} now (up to {tolerance:g} is rounding)")
    elif before != now:
        raise ValueError(f"{place}: {short_repr(before)} in the report, {short_repr(now)} now")


def _blind(texts: TextFile, non_members: TextFile, language: str, n_words: int | None = None) -> dict[str, Any]:
    """How well the texts alone tell the two files apart, by baselines that look at no model.

    Where there are ten sources of each file or more, all texts of one share a fold: otherwise a baseline knows a source
    again. Where there are fewer, it may, and then the sources are a difference of the files. Texts that are cut have
    at most `n_words` words.
    """
    files = (texts, non_members)
    sources = [f"{file.name} {source}" for file in files for source in file.sources or range(len(file.texts))]
    labels = np.repeat([1, 0], [len(file.texts) for file in files]).astype(np.int8)
    of_both = (*texts.texts, *non_members.texts)
    both = Benchmark("the two files", of_both, labels, "none", language, n_words, sources=tuple(sources))
    found = measure_leaks(both, ["auc"])
    if not any(of.interval for of in found):
        found = measure_leaks(replace(both, sources=()), ["auc"])
    intervals = {of.label: of.interval for of in found if of.interval}
    return {
        "baselines": [
            {"name": of.label, "auc": asdict(of.interval) if of.interval else None, "why": of.why} for of in found
        ],
        "level": LEVEL,
        "told_apart_by": [f"{of.label} {of.interval}" for of in found if of.is_sure],
        "could_miss": max((interval.high for interval in intervals.values()), default=None),
        "note": explain_below(intervals.values()),
        "is_known": bool(intervals),
        "is_alike": bool(intervals) and not any(of.is_sure for of in found),
    }


def _set_p(texts: TextFile, non_members: TextFile, own: FloatArray, known: FloatArray) -> dict[str, Any]:
    """The set's p-value: of its texts, or of its sources where both files name them."""
    why, n_each, unit = texts.why_no_sources or non_members.why_no_sources, None, "texts"
    if texts.sources and non_members.sources:
        of_set, of_known, n_each = _means_of_sources(texts.sources, own, non_members, known)
        why = (
            f"{_count(len(of_set), 'source')} against {len(of_known)} of known non-members, of "
            f"{_count(n_each, 'text')} or more each, allow no p-value of {SET_LEVEL:g}"
        )
        if comb(len(of_set) + len(of_known), len(of_set)) * SET_LEVEL >= 1:
            own, known, unit, why = of_set, of_known, "sources", ""
    n = {"n": len(own), "n_known": len(known), "unit": unit, "texts_a_source": n_each if unit == "sources" else None}
    return {"p": set_p_value(own, known), **n, "why": why}


def _means_of_sources(
    sources: Sequence[str], own: FloatArray, non_members: TextFile, known: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """The mean scores of the set's sources and of the known ones, and of how many texts each is.

    Means of few texts scatter more than those of many. So each source counts by as many of its first texts as the
    smallest source of the set has and at least half of the known ones have; a known source with fewer is left out.
    """
    n_each = min(*Counter(sources).values(), median_low(Counter(non_members.sources).values()))

    def means(of: Sequence[str], scores: FloatArray) -> FloatArray:
        places = [np.flatnonzero(np.array(of) == source) for source in dict.fromkeys(of)]
        return np.array([scores[at[:n_each]].mean() for at in places if len(at) >= n_each])

    return means(sources, own), means(non_members.sources, known), n_each


def _decided(
    p: FloatArray, known: FloatArray, members: FloatArray | None = None, *, fpr: float, fdr: float | None = None
) -> dict[str, Any]:
    """What one detector says: texts called, by their p-values, the threshold and its true FPR's interval, and what
    known members show, if their scores are given."""
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


def _rows(
    report: Mapping[str, Any], texts: TextFile, copies: Copies, scores: Scores, p: Scores
) -> list[dict[str, Any]]:
    """What each detector says of each of the texts; `scores` begin with theirs."""
    rows: list[dict[str, Any]] = [
        {"text": excerpt(text, 80), "copy_of": copies.get(i)} for i, text in enumerate(texts.texts)
    ]
    for name, found in report["detectors"].items():
        for row, score, of_text in zip(rows, scores[name].tolist(), p[name].tolist(), strict=False):
            row[name] = {"score": score, "p": of_text, "is_called": of_text <= report["fpr"]}
            row[name] |= {"is_flagged": of_text <= found["flagged"]["up_to_p"]} if "flagged" in found else {}
    return rows


def _count(n: int, unit: str) -> str:
    return f"{n} {unit}{'' if n == 1 else 's'}"


def _other_start_token(
    inputs: Inputs, once: TextFile, non_members: TextFile, decider: str, options: Options
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The set's p-value with the other start token, none or the tokenizer's own, and what ran for it.

    None where there is no other, and for log-probs that come from elsewhere, which cost time or money.
    """
    own = inputs.stats.provenance.get("start_token_id")
    other = None if inputs.target.start_token is not None else "auto"
    if not inputs.source.has_weights or (own is None and other is None):
        return None, []
    texts, name = (*once.texts, *non_members.texts), {"start_token": other or "none"}
    changed = Inputs(inputs.target.but(start_token=other), texts, inputs.language)
    n_tokens = dict(zip(inputs.texts, inputs.stats.n_tokens, strict=True))
    if other is None and any(n_tokens[text] < 2 for text in texts):
        return name | {"why": "a text has one token, of which nothing would be left"}, []
    if why := unavailable_reason(changed, decider):
        return name | {"why": why}, []
    scores = np.split(scores_of(changed, decider, **options.get(decider, {})), [len(once.texts)])
    return name | {"p": _set_p(once, non_members, *scores)["p"]}, changed.passes()


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


def _by_coin(texts: TextFile, non_members: TextFile, own: FloatArray, known: FloatArray) -> dict[str, Any]:
    """What the decider's scores show where a coin decided, of all texts and by how often they were inserted.

    AUC and TPR compare the members inserted so often with all non-members; the bound on epsilon, with those that would
    have been, for which the coin was fair. Half of these are guessed (`epsilon_bound`), which is fixed beforehand, as
    the detector is. A number that is not available is replaced by a sentence that says why.
    """
    if not (texts.coin and non_members.coin):
        return {"why": f"no column `{COIN_COLUMN}` says that a coin decided which texts were used", "rows": {}}
    labels, scores = np.repeat([1, 0], [len(own), len(known)]), np.concatenate([own, known])
    times = np.array([*texts.coin, *non_members.coin])
    groups = {"all": times > 0} | {f"{n}": times == n for n in np.unique(times).tolist()}
    groups = groups if len(groups) > 2 else {"all": times > 0}
    level = 1 - (1 - LEVEL_OF_BOUNDS) / len(groups)

    def row(of: NDArray[np.bool_]) -> dict[str, Any]:
        shown, n_guesses = of | (labels == 0), 2 * (int(of.sum()) // 4)
        return {
            "n": int(labels[of].sum()),
            "auc": _or_why(lambda: asdict(auc_interval(labels[shown], scores[shown]))),
            "tpr": _or_why(lambda: asdict(tpr_at_fpr_interval(labels[shown], scores[shown], FPR_OF_CANARIES))),
            "n_guesses": n_guesses,
            "epsilon": _or_why(lambda: epsilon_bound(labels[of], scores[of], n_guesses, level)),
        }

    return {"why": "", "fpr": FPR_OF_CANARIES, "level": level, "rows": {name: row(of) for name, of in groups.items()}}


def _or_why(measure: Callable[[], Any]) -> Any:
    """A measure, or why it is not available."""
    try:
        return measure()
    except ValueError as error:
        return str(error)


def _first_lines(report: Mapping[str, Any], answer: str, not_shown: Sequence[str]) -> list[str]:
    """The question, what was compared, the answer and what it does not show."""
    texts, known, by, others = report["texts"], report["non_members"], "", ""
    if members := report.get("members"):
        others = f" and {_count(members['n'], 'known member')} of {members['file']}"
    if "decider" in report:
        by = f", by {DETECTORS[report['decider']].label}"
        by += ", the default" if report["decider_is_default"] else ", the first that was asked for"
        if not report["coin"]["why"]:
            by += f". The file, whose SHA-256 is {texts['sha256']}, says that a coin decided on each text"
    return [
        f"Question: does {report['model']} show that it was trained on these texts?",
        f"Compared: {_count(texts['n'], 'text')} of {texts['file']} with "
        f"{_count(known['n'], 'known non-member')} of {known['file']}{others}{by}.",
        f"Answer: {answer}",
        f"Not shown: {'; '.join(not_shown)}.",
    ]


def _refusal(report: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict where the two files can be distinguished without the model."""
    answer = (
        "no conclusion. The two files can be distinguished without the model, with an AUC of: "
        f"{'; '.join(report['blind']['told_apart_by'])}. A detector sees that difference too, so its answer would be "
        "of the files and not of the model."
    )
    said = _first_lines(report, answer, ["anything about the model, since no detector was run"])
    said.append("Give known non-members of the same source, style, format and date as the texts.")
    return {"concludes": False, "said": said}


def _conclusion(report: Mapping[str, Any]) -> dict[str, Any]:
    """What follows, in sentences."""
    of_set, blind, coin = (report[key] for key in ("set", "blind", "coin"))
    of_decider = report["detectors"][report["decider"]]
    of_what = f"p = {of_set['p']:.3g}, {_count(of_set['n'], of_set['unit'].removesuffix('s'))}"
    if of_set["p"] <= SET_LEVEL:
        answer = (
            f"evidence that some were used, if the files differ in nothing else: as a set they score higher than the "
            f"known non-members ({of_what}; {SET_LEVEL:g} or less counts)."
        )
    else:
        at = next(row for row in report["power"] if row["auc"] == 0.6)
        answer = (
            f"no evidence that they were used ({of_what}; {SET_LEVEL:g} or less would count). A detector with an AUC "
            f"of 0.6 between {of_set['unit']} would find such a set, if all are members, in {at['power']:.0%} of cases."
        )
    other = report["start_token"]
    if other and "p" in other and (other["p"] <= SET_LEVEL) != (of_set["p"] <= SET_LEVEL):
        answer += (
            f" With start token {other['start_token']} it is p = {other['p']:.3g}: the answer hangs on a convention, "
            "so it is no answer."
        )
    bounds = {name: of["epsilon"] for name, of in coin["rows"].items() if not isinstance(of["epsilon"], str)}
    if bounds:
        named = (f"{of:.2f} ({'all' if name == 'all' else f'inserted {name}x'})" for name, of in bounds.items())
        answer += f" Epsilon is at least {', '.join(named)}, with {LEVEL_OF_BOUNDS:.0%} confidence in all."
    if not coin["why"]:
        unknown = "that the list is older than the training: compare its SHA-256 with the one published before"
    elif blind["is_known"]:
        could = f"up to an AUC of {blind['could_miss']:.2f}, which so few texts could hide"
        unknown = f"a difference between the files that needs no model, {could}"
    else:
        unknown = "that the two files are alike; to check it takes ten texts of each"
    of_epsilon = f"a lower bound on epsilon, since {coin['why']}" if coin["why"] else "an upper bound on epsilon"
    said = _first_lines(report, answer, ["that any one text was used, or was not", unknown, of_epsilon])
    if of_set["unit"] == "texts" and coin["why"]:
        why = f"Not tested by source: {of_set['why']}. " if of_set["why"] else ""
        said.append(f"{why}This p takes the texts for independent; for texts of few sources it is too small.")
    n, (low, high) = report["texts"]["n"] - report["texts"]["n_copies"], of_decider["fpr_interval"]
    mean, n_called, flagged = of_decider["mean_fpr"], of_decider["n_called"], of_decider.get("flagged")
    said.append(
        f"{n_called} of {_count(n, 'text')} {'is' if n_called == 1 else 'are'} called. On average at most "
        f"{100 * mean:.1f}% of unused texts like the known non-members are, {mean * n:.1f} of {n}; with these known "
        f"non-members the share lies between {100 * low:.1f}% and {100 * high:.1f}% (95% interval)."
    )
    said += filter(None, [explain_flagged(flagged) if flagged else explain_many(mean, n)])
    if (members := report.get("members")) and not members["blind"]["is_alike"]:
        told = "; ".join(members["blind"]["told_apart_by"])
        why = f"the texts alone distinguish them from the known non-members ({told})" if told else "too few to compare"
        said.append(f"The detectors' AUC on the known members is not shown: {why}.")
    return {"concludes": True, "said": said}


def verify(path: Path) -> None:
    """Repeat an audit from the files and the model that its report.json names, and compare all with it.

    ValueError for the first thing that differs: the version of mialib, a file, the model, a score beyond the rounding
    of its number format, or what follows from the scores. That is computed from the report's own scores, since rounding
    may swap the ranks of two texts.
    """
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        of_csv, version, settings = earlier.pop(OF_SCORES), earlier["provenance"][-1]["mialib"], earlier["settings"]
        sums = {Path(earlier[of]["file"]): earlier[of]["sha256"] for of in FILES_READ if of in earlier}
        texts, non_members, members = (Path(earlier[of]["file"]) if of in earlier else None for of in FILES_READ)
        given = {name: settings[name] for name in ("start_token", *SETTINGS)}
        target = Target(model=earlier["model"], benchmark=str(texts), **given)
        more = (settings["detectors"], earlier["fpr"], settings["options"], earlier["fdr"], earlier)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the report.json of an audit, or of an older mialib ({error})") from None
    _check_same(version, mialib_version(), f"{path}, version of mialib")
    for file, before in sums.items():
        _check_same(before, checksum_of(file), f"{path}, SHA-256 of {file}")
    if (table := path.with_name(FILES[2])).exists():
        _check_same(of_csv, hash_files([table]), f"{path}, hash of {table}")
    files = read_files(texts or path, None if non_members == texts else non_members, members)
    now = audit(files[0], target, *files[1:], *more)
    del earlier["provenance"], now["provenance"]  # which also names device and libraries
    _check_same(earlier, json.loads(json.dumps(now)), str(path))


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
    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)
    labels = {name: of.label for name, of in DETECTORS.items()}
    html = str(macros(Path(__file__).with_suffix(".html")).page(report, labels, _count))
    page, data, scores = (folder / name for name in FILES)
    scores.unlink(missing_ok=True)  # an earlier audit's
    if concludes := report["verdict"]["concludes"]:
        with atomic_path(scores) as temporary:
            _write_scores(report, temporary)
            write_json(data, {**report, OF_SCORES: hash_files([temporary])})
    else:
        write_json(data, {**report, OF_SCORES: None})
    with atomic_path(page) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return [page, data, *([scores] if concludes else [])]


def _write_scores(report: Mapping[str, Any], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows, names = csv.writer(file), list(report["detectors"])
        of_names = [f"{name} {what}" for name in names for what in report["scores"][0][name]]
        rows.writerow(["number", "text", "copy_of", *of_names])
        for number, row in enumerate(report["scores"]):
            rows.writerow([number, row["text"], row["copy_of"], *(v for name in names for v in row[name].values())])
