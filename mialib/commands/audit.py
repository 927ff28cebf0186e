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
from mialib.catalog.models import check_loadable
from mialib.catalog.registry import is_api
from mialib.commands.detection import ALL, check_fpr, check_options, load_known, pick_detectors
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Interval, auc_interval, tpr_at_fpr_interval
from mialib.passes.inputs import Inputs, Target, score_all, scores_of, unavailable_reason
from mialib.shared.files import LABEL_COLUMN, SOURCE_COLUMN, read_rows, texts_of
from mialib.shared.near_duplicates import MAX_OVERLAP, NearDuplicates
from mialib.store import atomic_path, mialib_version, write_json
from mialib.text import excerpt, language_of

logger = logging.getLogger(__name__)

SET_LEVEL = 0.05  # a set's p-value that counts as evidence
NEAR_COPY = 0.5  # share of a text's seven-word sequences in the other file above which it is a copy, not just alike
POWER_AUCS = (0.55, 0.6, 0.7, 0.8)  # detectors that the power is given for
POWER_DRAWS = 1000
DOES_NOT_PROVE = (
    "A text that is called is not proven to have been used: of non-members, too, about the wanted share is called.",
    "A model may know a text from a copy, a quotation, a translation or a review of it.",
    "A text that is not called is not proven to be unused: most members of a large model are found by no detector.",
    "Of several audits, with other detectors, options or files, one that is picked for its answer proves nothing.",
    "Whether a right was broken is no question of statistics.",
)
SETTINGS = ("reference", "corpus", "non_member_prefix", "member_prefix", "start_token")  # of a target, in the report


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
        if any(LABEL_COLUMN in row for row in rows):
            logger.info("%s: its labels are not looked at", path)
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

    Where the two files are told apart without the model nothing is scored: the report ends with the blind baselines.
    ValueError where a text stands in two of the files or nearly so, for too few known non-members for the FPR, for a
    detector that is asked for by its name and not applicable, and for one that scores all texts alike and would decide.
    """
    files = [texts, non_members, *([members] if members else [])]
    language, options = language_of(texts.texts), options or {}
    _check_apart(files, language)
    check_fpr(fpr, len(non_members.texts), non_members.name)
    names = pick_detectors(detectors, target)
    is_named = bool(detectors) and ALL not in detectors
    if not is_named:
        names = _first_decides(names)
    check_options(options, names)
    for model in filter(None, (target.model, target.reference)):
        check_loadable(model)
    copies = _copies(texts.texts, language)
    report = {
        "texts": {"file": texts.name, "n": len(texts.texts), "n_copies": len(copies)},
        "non_members": {"file": non_members.name, "n": len(non_members.texts)},
        "model": target.model,
        "fpr": fpr,
        "set_level": SET_LEVEL,
        "settings": {"detectors": list(detectors) or "default", "options": options}
        | {name: getattr(target, name) for name in SETTINGS},
        "blind": _blind(texts, non_members, language, copies),
        "does_not_prove": list(DOES_NOT_PROVE),
        "provenance": [{"mialib": mialib_version()}],
    }
    if members:
        of_members = {"file": members.name, "n": len(members.texts), "blind": _blind(members, non_members, language)}
        report |= {"members": of_members}
    if report["blind"]["told_apart_by"]:
        return report | {"verdict": _refusal(report["blind"])}

    inputs = Inputs(target, tuple(text for file in files for text in file.texts), language)
    for name in [name for name in names if unavailable_reason(inputs, name)]:
        if is_named:
            raise ValueError(f"detector {name} is not applicable: {unavailable_reason(inputs, name)}")
        logger.info("%s: not applicable, since %s", name, unavailable_reason(inputs, name))
        names.remove(name)
    scores = _without_those_alike(score_all(inputs, names, **options), names[0])
    parts = {name: np.split(of, np.cumsum([len(file.texts) for file in files])[:-1]) for name, of in scores.items()}
    decider = next(iter(scores))
    of_set = {name: _set_p(texts, non_members, *parts[name][:2], copies) for name in scores}
    other_start, other_passes = _other_start_token(inputs, texts, non_members, copies, decider, options)
    p = {name: p_values(*parts[name][:2]) for name in scores}
    is_told_apart = bool(members and report["members"]["blind"]["told_apart_by"])
    report |= {
        "decider": decider,
        "decider_is_default": not is_named,
        "detectors": {
            name: _decided(parts[name][: 2 if is_told_apart else 3], p[name], fpr, of_set[name]["p"], copies)
            for name in scores
        },
        "set": of_set[decider],
        "start_token": other_start,
        "power": _power(of_set[decider]["n"], of_set[decider]["n_known"]),
        "provenance": [*inputs.passes(), *other_passes, *report["provenance"]],
        "scores": [
            {"text": excerpt(text, 80), "copy_of": copies.get(i)}
            | {
                name: {"score": float(parts[name][0][i]), "p": float(p[name][i]), "is_called": bool(p[name][i] <= fpr)}
                for name in scores
            }
            for i, text in enumerate(texts.texts)
        ],
    }
    return report | {"verdict": _conclusion(report)}


def _check_apart(files: Sequence[Texts], language: str) -> None:
    """ValueError where texts stand in two of the files, word by word or nearly: they are known and judged at once."""
    for number, file in enumerate(files):
        for other in files[:number]:
            of_other = set(other.texts)
            if same := [text for text in file.texts if text in of_other]:
                raise ValueError(
                    f"{excerpt(same[0])} stands in {other.name} and in {file.name} ({len(same)} such in all); take "
                    "each out of one"
                )
            seen = NearDuplicates(other.texts, language=language)
            if near := [i for i, text in enumerate(file.texts) if (seen.overlap(text) or 0) > NEAR_COPY]:
                raise ValueError(
                    f"{file.name}, text {near[0]}: {excerpt(file.texts[near[0]])} has over half of its seven-word "
                    f"sequences in {other.name} too ({len(near)} such in all); take out texts that repeat the other "
                    "file's, or what all texts begin or end with"
                )


def _without_those_alike(scores: Mapping[str, FloatArray | None], decider: str) -> dict[str, FloatArray]:
    """The detectors that tell any two texts apart; ValueError where the one that would decide does not."""
    kept = {name: of for name, of in scores.items() if of is not None and np.ptp(of) > 0}
    if decider not in kept:
        raise ValueError(f"{DETECTORS[decider].label} scores all texts alike, so it can decide nothing; name another")
    for name in set(scores) - set(kept):
        logger.info("%s: left out, since it scores all texts alike", name)
    return kept


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


def _blind(texts: Texts, non_members: Texts, language: str, copies: Mapping[int, Any] | None = None) -> dict[str, Any]:
    """How well the texts alone tell the two files apart, by baselines that look at no model.

    Without copies, and with all texts of a source on one side of each division of the cross-validation: otherwise a
    baseline knows a source, or a text, again.
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


def _decided(
    parts: Sequence[FloatArray], p: FloatArray, fpr: float, p_of_set: float, copies: Mapping[int, Any]
) -> dict[str, Any]:
    """What one detector says: texts called, copies once, the threshold and its true FPR's interval, and what known
    members show.
    """
    _, known, *members = parts
    decision = decide(known, fpr)
    once = [i for i in range(len(p)) if i not in copies]
    found = {
        "threshold": decision.threshold,
        "fpr_interval": [decision.fpr.low, decision.fpr.high],
        "n_called": int((p[once] <= fpr).sum()),
        "set_p": p_of_set,
    }
    for of_members in members:
        labels, scores = np.repeat([1, 0], [len(of_members), len(known)]), np.concatenate([of_members, known])
        found |= {"auc": _interval(auc_interval(labels, scores))}
        if len(known) >= 1 / fpr:
            found |= {"tpr": _interval(tpr_at_fpr_interval(labels, scores, fpr))}
    return found


def _count(n: int, unit: str) -> str:
    return f"{n} {unit}{'' if n == 1 else 's'}"


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


def _refusal(blind: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict where the two files are told apart without the model."""
    return {
        "concludes": False,
        "said": [
            f"No conclusion. The two files are told apart without the model: {blind['told_apart_by']} does so with "
            f"an AUC of {blind['auc']}. A detector sees that difference too, so its answer would be of the files "
            "and not of the model. Nothing was scored.",
            "Give known non-members of the same source, style, format and date as the texts.",
        ],
    }


def _conclusion(report: Mapping[str, Any]) -> dict[str, Any]:
    """What follows, in sentences."""
    of_set, decider, fpr = report["set"], report["decider"], report["fpr"]
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
    if of_set["why"]:
        said.append(
            f"Not tested by source: {of_set['why']}. Texts of one source are alike, and p may then be too small."
        )
    n, (low, high) = report["texts"]["n"] - report["texts"]["n_copies"], of_decider["fpr_interval"]
    said.append(
        f"{of_decider['n_called']} of {_count(n, 'text')} {'is' if of_decider['n_called'] == 1 else 'are'} called. Of "
        f"texts that were not used, and are like the known non-members, {100 * fpr:g}% would be on average, which is "
        f"{fpr * n:.1f} of {n}; with these known non-members between {100 * low:.1f}% and {100 * high:.1f}% (95% "
        "interval)."
    )
    if (members := report.get("members")) and (blind := members["blind"])["told_apart_by"]:
        said.append(
            f"The known members are told from the known non-members without the model ({blind['told_apart_by']}, AUC "
            f"{blind['auc']}), so the detectors' AUC on them is not shown: it would not be of membership."
        )
    return {"concludes": True, "said": said}


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """The report as a page, as JSON and, where it concludes, its scores as CSV, in a folder; the paths."""
    from jinja2 import Environment, FileSystemLoader

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output {folder}: a folder is expected, and this is a file")
    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    html = environment.get_template("audit.html").render(
        report=report, labels={n: d.label for n, d in DETECTORS.items()}
    )
    page, data, scores = (folder / name for name in ("report.html", "report.json", "scores.csv"))
    with atomic_path(page) as temporary:
        temporary.write_text(html, encoding="utf-8")
    write_json(data, report)
    if not report["verdict"]["concludes"]:
        scores.unlink(missing_ok=True)  # of an earlier audit
        return [page, data]
    with atomic_path(scores) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        names = list(report["detectors"])
        rows.writerow(
            ["text", "copy_of", *(f"{name} {what}" for name in names for what in ("score", "p", "is_called"))]
        )
        for row in report["scores"]:
            rows.writerow([row["text"], row["copy_of"], *(v for name in names for v in row[name].values())])
    return [page, data, scores]
