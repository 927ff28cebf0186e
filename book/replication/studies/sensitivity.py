"""Other readings of what the papers leave open, each against ours on the same texts.

Setup(inputs)                     one target: its texts whole and cut, each with every detector's scores (Texts)
Reading(choice, words, scores)    what others do: other scores, or another rule for the TPR
readings()                        those of this module; the page `sensitivity` adds its own
compare_reading(setup, reading)   differences of AUC and TPR with intervals
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from zlib import compress

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.io.formats.style import Styler
from scipy.stats import norm
from torch import Tensor

from mialib import metrics
from mialib.catalog.models import load_tokenizer
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Interval, split_scores
from mialib.passes.cache import score_or_load
from mialib.passes.inputs import PASSES as INPUT_PASSES
from mialib.passes.inputs import Inputs, cut_inputs, score_all, split_lengths, unavailable_reason
from mialib.token_stats import TokenRow, TokenStats
from replication.results import Result, label_of, needs_more, unbroken
from replication.studies.other_passes import other_statistics
from replication.tables import small

PASSES = ("stats", "lowercase", "reference")  # that the papers' detectors read
FPR = 0.05
SHORT_K = 5  # Min-K%'s k on the texts cut short: of fewer than 20 tokens it leaves none
N_RESAMPLES = 1000
FEWEST = 10  # scored texts of a class for a difference of AUCs: with 5 the 95% interval covers 83%, with 10 92%

Rule = Callable[[FloatArray, FloatArray], float]  # FPR and TPR of each threshold, both from 0 to 1 -> TPR


class NotApplicable(ValueError):
    """A reading has no meaning for this model and these texts; says why in one sentence."""


# --- TPR at an FPR ---


def at_most(fpr: FloatArray, tpr: FloatArray) -> float:
    """Ours, `metrics.tpr_at_fpr`: the largest TPR of a threshold whose FPR is at most 5%."""
    return float(tpr[fpr <= FPR + 1e-12].max())


# --- paired differences, where a reading may give some texts no score ---


def compare_aucs(labels: ArrayLike, other: ArrayLike, ours: ArrayLike) -> Interval:
    """AUC of `other` on the texts that it scores minus AUC of `ours` on all of them, (N,) each, paired.

    Where `other` is NaN for some texts, its AUC is a mean over fewer placements, and each weighs more in the variance
    of the difference, by N over the number that is left. NotApplicable for fewer than `FEWEST` scored of a class.
    """
    labels, other, ours = np.asarray(labels), np.asarray(other, np.float64), np.asarray(ours, np.float64)
    scored = ~np.isnan(other)
    if scored.all():
        return metrics.compare_auc(labels, other, ours).difference
    members, non_members = (int((scored & (labels == label)).sum()) for label in (1, 0))
    if min(members, non_members) < FEWEST:
        raise NotApplicable(
            f"{members} members and {non_members} non-members are scored, and it takes {FEWEST} of each"
        )
    sides, our_sides = split_scores(labels[scored], other[scored]), split_scores(labels, ours)
    difference, variance = metrics.auc(labels[scored], other[scored]) - metrics.auc(labels, ours), 0.0
    for label, left, whole in zip((1, 0), metrics.placements(*sides), metrics.placements(*our_sides), strict=True):
        mask = scored[labels == label]
        influence = -(whole - whole.mean())
        influence[mask] += (left - left.mean()) * len(mask) / mask.sum()
        variance += influence.var(ddof=1) / len(mask)
    half = norm.ppf(0.975) * np.sqrt(variance)
    return Interval(float(difference), float(difference - half), float(difference + half))


def compare_tprs(labels: ArrayLike, other: ArrayLike, ours: ArrayLike, rule: Rule = at_most) -> Interval:
    """TPR at 5% FPR of `other` by a rule, on the texts that it scores, minus that of `ours` by ours, paired.

    Where more than the scores differs, in the rule or in the texts, the interval's ends are NaN.
    """
    labels, other, ours = np.asarray(labels), np.asarray(other, np.float64), np.asarray(ours, np.float64)
    if rule is at_most and not np.isnan(other).any():
        return metrics.compare_tpr_at_fpr(labels, other, ours, FPR, n_resamples=N_RESAMPLES).difference
    difference = height(labels, other, rule) - metrics.tpr_at_fpr(labels, ours, FPR)
    return Interval(difference, np.nan, np.nan)


def height(labels: ArrayLike, scores: FloatArray, rule: Rule) -> float:
    """The TPR by a rule of the texts that have a score."""
    labels, scored = np.asarray(labels), ~np.isnan(scores)
    return rule(*metrics.roc(labels[scored], scores[scored])[:2])


# --- what a reading is a function of ---


@dataclass(frozen=True)
class Texts:
    """Texts, and the scores of every detector that applies to them, as mialib computes them."""

    inputs: Inputs
    ours: dict[str, FloatArray]  # (N,) by detector
    k: float  # of Min-K% and Min-K%++

    @classmethod
    def of(cls, inputs: Inputs, k: float = DETECTORS["min_k"].hyperparameters["k"]) -> Texts:
        """The scores of all detectors, by default with the papers' k."""
        return cls(inputs, applicable_scores(inputs, **{name: {"k": k} for name in ("min_k", "min_k++")}), k)

    @property
    def labels(self) -> NDArray[np.int8]:
        """(N,), 1 = member."""
        return self.inputs.labels

    def rows(self, name: str = "stats") -> list[TokenRow]:
        """The statistics of each text, in float64, from one of PASSES."""
        return [TokenRow(row.token_ids, *(of.astype(np.float64) for of in row[1:])) for row in self.inputs[name]]


Scored = tuple[Texts, dict[str, FloatArray]]  # other scores of these texts, (N,) by detector


@dataclass(frozen=True, eq=False)
class Setup:
    """One target: its texts whole, cut short for k% of few tokens, and cut to a length that only some detectors see."""

    inputs: Inputs
    n_words: int = 16  # of the texts cut short
    cut_words: int = 32  # of those cut to a length

    @cached_property
    def whole(self) -> Texts:
        """The texts as they are."""
        return Texts.of(self.inputs)

    @cached_property
    def short(self) -> Texts:
        """Cut to a few words, with k = 5."""
        return Texts.of(self._cut(self.n_words), SHORT_K)

    @cached_property
    def cut(self) -> Texts:
        """Cut to a length."""
        return Texts.of(self._cut(self.cut_words))

    def _cut(self, n_words: int) -> Inputs:
        try:
            split_lengths(self.inputs.labelled, [n_words])
        except ValueError as error:
            raise NotApplicable(str(error)) from error
        return cut_inputs(self.inputs, n_words)[0]


def applicable_scores(inputs: Inputs, **given: Any) -> dict[str, FloatArray]:
    """`score_all` without the detectors that are not applicable."""
    return {name: scores for name, scores in score_all(inputs, **given).items() if scores is not None}


def rescored(
    setup: Setup, detectors: Iterable[str] | None = None, **passes: TokenStats | None
) -> tuple[Texts, dict[str, FloatArray]]:
    """The whole texts, and the scores of detectors with other passes in the place of ours: `stats`, `reference`, ..."""
    try:
        for stats in filter(None, passes.values()):
            stats.check_finite()
    except ValueError as error:
        raise NotApplicable(str(error)) from error
    names = [name for name in detectors or setup.whole.ours if name in setup.whole.ours]
    return setup.whole, applicable_scores(setup.inputs.given(**passes), detectors=names)


def check_first_token(inputs: Inputs) -> None:
    """NotApplicable where the first token is not scored, or a text has no other."""
    if inputs.stats.provenance.get("start_token_id") is None:
        raise NotApplicable("our own pass of this model has no start token")
    if min(inputs[name].n_tokens.min() for name in PASSES if inputs[name] is not None) < 2:
        raise NotApplicable("a text has one token, which is the first: nothing of it would be scored")


@dataclass(frozen=True)
class Reading:
    """What others do, where the papers leave a choice open.

    `scores` takes a setup and gives the texts and other scores (N,) by detector, NaN where a text gets none.
    """

    choice: str
    words: str
    scores: Callable[[Setup], Scored]
    detector: str | None = None  # None: it concerns all whose scores it gives
    rule: Rule = at_most
    runs_model: bool = False  # it takes a pass over the model's weights
    is_mistake: bool = False  # no paper leaves it open

    def __str__(self) -> str:
        return f"{self.choice}: {self.words}"

    @property
    def said(self) -> str:
        """Its words for a reader, who is told of a mistake."""
        return f"{self.words} (a mistake)" if self.is_mistake else self.words


# --- measuring ---


@dataclass(frozen=True)
class Finding:
    """One reading and detector against ours; only `why` where it is not applicable."""

    reading: Reading
    column: str  # the target's
    detector: str | None
    why: str = ""
    aucs: tuple[Interval, Interval] | None = None  # ours, other
    auc: Interval | None = None  # other minus ours
    tpr: Interval | None = None  # other minus ours
    tpr_needs: str = ""  # what to say in its place where the non-members are too few for one

    @property
    def label(self) -> str:
        """The detector as the papers' tables print it."""
        return label_of(self.detector) if self.detector else "all"

    @property
    def moved(self) -> tuple[float, float]:
        """How far AUC and TPR move."""
        if not self.auc:
            return -1.0, -1.0
        return abs(self.auc.estimate), abs(self.tpr.estimate) if self.tpr else 0.0


def compare_reading(setup: Setup, reading: Reading) -> list[Finding]:
    """Compare one reading on one target: a finding a detector, or one that says why it is not applicable."""
    column = setup.inputs.target.column
    try:
        if reading.detector in DETECTORS and reading.detector not in setup.whole.ours:
            raise NotApplicable(unavailable_reason(setup.inputs, reading.detector))
        if reading.runs_model and not setup.inputs.source.has_weights:
            raise NotApplicable("the model is behind an API, and this takes a pass of its own over its weights")
        return _compare(reading, column, *reading.scores(setup))
    except NotApplicable as error:
        return [Finding(reading, column, reading.detector, why=str(error))]


def _compare(reading: Reading, column: str, texts: Texts, other: dict[str, FloatArray]) -> list[Finding]:
    """A finding for each detector that the reading concerns: its scores beside ours."""
    rule, labels = reading.rule, texts.labels
    needs, findings = needs_more("tpr_at_5_fpr", labels), []
    for name in [reading.detector] if reading.detector else other:
        ours, theirs = texts.ours[name], other[name]
        difference, scored = compare_aucs(labels, theirs, ours), ~np.isnan(theirs)
        finding = Finding(
            reading=reading,
            column=column,
            detector=name,
            aucs=(metrics.auc_interval(labels, ours), metrics.auc_interval(labels[scored], theirs[scored])),
            auc=difference,
            tpr=None if needs else compare_tprs(labels, theirs, ours, rule),
            tpr_needs=needs,
        )
        findings.append(finding)
    return findings


def most_moved(findings: Iterable[Finding]) -> list[Finding]:
    """Of each reading and target the detector whose AUC it moves most, or whose TPR where no AUC moves."""
    most: dict[tuple[str, Reading], Finding] = {}
    for finding in findings:
        key = finding.column, finding.reading
        most[key] = max(most.get(key, finding), finding, key=lambda one: one.moved)
    return list(most.values())


def as_results(findings: Iterable[Finding]) -> list[Result]:
    """Every finding as results: what each reading adds to AUC and TPR of each detector, and both AUCs."""
    results = []
    for f in findings:
        ours, other = f.aucs or (None, None)
        intervals = {"auc_difference": f.auc, "tpr_at_5_fpr_difference": f.tpr, "auc_ours": ours, "auc_other": other}
        about = {"row": f"{f.reading} ({f.label})", "column": f.column, "why": f.why or f.tpr_needs}
        results += [Result.of(metric=metric, interval=interval, **about) for metric, interval in intervals.items()]
    return [r if r.low is None or np.isfinite(r.low) else replace(r, low=None, high=None) for r in results]


# --- the readings, without those that the page `sensitivity` defines itself ---

OURS = {  # each choice in the ledger's order, and what this book does
    "sign": "high = member",
    "TPR at 5% FPR": "largest TPR with FPR ≤ 5%",
    "k% of n tokens": "max(1, ⌊nk/100⌋)",
    "first token": "scored, after a start token",
    "SURP, low probability": "strictly below the percentile",
    "SURP, no surprising token": "0 nats",
    "Min-K%++ moments": "weighted by p",
    "DC-PDD, frequency": "smoothed and relative",
    "DC-PDD, logarithm": "natural",
    "DC-PDD, length": "all see the same cut",
    "Small Ref, Lowercase": "ratio of log-perplexities",
    "Zlib": "log-perplexity per compressed byte",
    "padding": "no token of a text",
    "NaN": "an error that names the text",
    "precision": "statistics in float32",
}


def each(texts: Texts, detector: str, score: Callable[..., float], *others: str) -> Scored:
    """Other scores of one detector, a text at a time, from its rows in ours and in `others`, further passes."""
    rows = zip(*map(texts.rows, ("stats", *others)), strict=True)
    return texts, {detector: np.array([score(*of_text) for of_text in rows])}


def no_start_token(setup: Setup) -> Scored:
    """The first token is read and not scored; without Lowercase, which has no such pass."""
    check_first_token(setup.inputs)
    texts, of = setup.inputs.texts, setup.inputs.target
    models = {"stats": of.model, "reference": of.reference}
    passes = {name: score_or_load(model, texts, start_token=None) if model else None for name, model in models.items()}
    return rescored(setup, None, **passes, lowercase=None)


def first_token_left_out(setup: Setup) -> Scored:
    """The first token is read after a start token, and left out."""
    check_first_token(setup.inputs)
    passes = {name: stats for name in INPUT_PASSES if (stats := setup.inputs[name]) is not None}
    left = {name: [TokenRow(*(of[1:] for of in row)) for row in stats] for name, stats in passes.items()}
    return rescored(
        setup,
        None,
        **{name: TokenStats.from_rows(rows, provenance=passes[name].provenance) for name, rows in left.items()},
    )


def surp(row: TokenRow, empty: float = 0.0, k: float = 40, *, of_range: bool = False) -> float:
    """SURP at an entropy below 2.5 nats; `empty` is the score of a text without a surprising token."""
    log_prob = row.log_prob
    bound = log_prob.min() + k / 100 * np.ptp(log_prob) if of_range else np.percentile(log_prob, k)
    surprising = (row.entropy < 2.5) & (log_prob < bound)
    return float(log_prob[surprising].mean()) if surprising.any() else empty


def plain_moments(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Log p of each target, minus its plain mean over the vocabulary, and the plain variance."""
    log_z = logits.logsumexp(-1, keepdim=True)  # log p = logit - log Z has the logits' variance
    mean = logits.mean(-1, keepdim=True)
    log_p = logits.gather(-1, targets[:, None]) - log_z
    return log_p[:, 0], (log_z - mean)[:, 0], (logits - mean).square().mean(-1)


def in_bfloat16(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Ours, with logits and softmax in bfloat16."""
    log_p, p = logits.bfloat16().log_softmax(-1), logits.bfloat16().softmax(-1)
    entropy = -(p * log_p).sum(-1)
    variance = (p * (log_p + entropy[:, None]).square()).sum(-1)
    return log_p.gather(-1, targets[:, None])[:, 0], entropy, variance


def log_p_alone(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Log p of each target; 0 and 1 in the places of entropy and variance."""
    log_p = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return log_p, log_p.new_zeros(len(log_p)), log_p.new_ones(len(log_p))


def other_pass(setup: Setup, name: str, detectors: Sequence[str]) -> Scored:
    """Detectors of the statistics by one of two functions, which share a pass."""
    functions = {"unweighted": plain_moments, "bfloat16": in_bfloat16}
    stats = other_statistics(setup.inputs.target.model, setup.inputs.texts, functions)[name]
    return rescored(setup, detectors, stats=stats)


def padding_as_a_token(setup: Setup, batch: int = 8) -> Scored:
    """Min-K% of the short texts with the end-of-text token, which pads, after each but the longest of a batch."""
    texts, model = setup.short, setup.inputs.target.model
    padding = load_tokenizer(model).eos_token_id
    if padding is None:
        raise NotApplicable("the tokenizer has no end-of-text token to pad with")
    passes = other_statistics(model, texts.inputs.texts, {"log_p": log_p_alone}, then=padding)["log_p"]
    log_prob, after = [row.log_prob for row in texts.rows()], [row.log_prob[-1] for row in passes]
    return texts, {"min_k": padding_counted(log_prob, after, texts.k, batch)}


def padding_counted(log_prob: Sequence[NDArray[Any]], after: Sequence[float], k: float, batch: int) -> FloatArray:
    """Min-K% where each text, but the longest of each batch, ends in one more token, of log-prob `after`."""
    n = np.array([len(of) for of in log_prob])
    is_padded = [n[i] < n[i - i % batch :][:batch].max() for i in range(len(n))]
    pairs = zip(log_prob, after, is_padded, strict=True)
    ordered = [np.sort(np.append(of, token) if longer else of) for of, token, longer in pairs]
    return np.array([of[: max(1, int(len(of) * k / 100))].mean() for of in ordered])


def smoothed(counts: NDArray[np.int64]) -> FloatArray:
    """Log relative frequency of each token, with one added to each count."""
    return np.asarray(np.log(counts + 1) - np.log(counts.sum() + len(counts)))


def dc_pdd(setup: Setup, log_frequency: Callable[[NDArray[np.int64]], FloatArray] = smoothed) -> Scored:
    """DC-PDD, the mean of min(alpha, 0.01), with another log frequency made of the corpus's counts."""
    frequency = log_frequency(setup.inputs["frequency"].counts)

    def score(row: TokenRow) -> float:
        first = np.unique(row.token_ids, return_index=True)[1]
        alpha = -np.exp(row.log_prob[first]) * frequency[row.token_ids[first]]
        return float(0.01 - np.maximum(0.01 - alpha, 0).mean())

    return each(setup.whole, "dc_pdd", score)


def zlib_literal(setup: Setup) -> Scored:
    """Zlib of the perplexity, by compressed bytes."""
    sizes = [len(compress(text.encode())) for text in setup.inputs.texts]
    perplexity = np.array([np.exp(-row.log_prob.mean()) for row in setup.whole.rows()])
    return setup.whole, {"zlib": -perplexity / sizes}


def readings() -> list[Reading]:
    """What others do in each choice."""
    one_pass = ["ppl", "zlib", "min_k", "min_k++", "dc_pdd", "surp"]
    counts_of: dict[str, Callable[..., FloatArray]] = {  # another logarithm of a corpus's counts
        "raw counts: log(count + 1)": lambda n: np.log(n + 1),
        "base 2": lambda n: smoothed(n) / np.log(2),
        "base 10": lambda n: smoothed(n) / np.log(10),
    }

    def of_surp(choice: str, words: str, **how: Any) -> Reading:
        return Reading(choice, words, lambda s: each(s.whole, "surp", partial(surp, **how)), "surp")

    def of_counts(choice: str, words: str, **about: bool) -> Reading:
        return Reading(choice, words, lambda s: dc_pdd(s, counts_of[words]), "dc_pdd", **about)  # type: ignore[arg-type]

    def of_pair(detector: str, label: str, other: str) -> Reading:
        words = f"{label}: the literal equation, a ratio of perplexities (the order of a difference of log-probs)"
        return Reading(
            "Small Ref, Lowercase",
            words,
            lambda s: each(s.whole, detector, lambda row, other: row.log_prob.mean() - other.log_prob.mean(), other),
            detector,
        )

    return [
        Reading("first token", "no start token, so not scored", no_start_token, runs_model=True),
        Reading(
            "precision",
            "logits and softmax in bfloat16",
            lambda s: other_pass(s, "bfloat16", one_pass),
            runs_model=True,
        ),
        Reading(
            "sign",
            "negated once too often: 1 − AUC",
            lambda s: (s.whole, {name: -scores for name, scores in s.whole.ours.items()}),
            is_mistake=True,
        ),
        Reading("first token", "start token, but the first is left out", first_token_left_out),
        of_surp("SURP, low probability", "k% of the range of log p", of_range=True),
        of_surp("SURP, no surprising token", "−100 nats", empty=-100.0),
        Reading(
            "Min-K%++ moments",
            "plain mean and deviation over the vocabulary",
            lambda s: other_pass(s, "unweighted", ["min_k++"]),
            "min_k++",
            runs_model=True,
        ),
        of_counts("DC-PDD, frequency", "raw counts: log(count + 1)", is_mistake=True),
        of_counts("DC-PDD, logarithm", "base 2"),
        of_counts("DC-PDD, logarithm", "base 10"),
        Reading(
            "DC-PDD, length",
            "DC-PDD whole, the others cut",
            lambda s: (s.cut, {"dc_pdd": s.whole.ours["dc_pdd"]}),
            "dc_pdd",
        ),
        of_pair("ref", "Small Ref", "reference"),
        of_pair("lowercase", "Lowercase", "lowercase"),
        Reading("Zlib", "the literal equation: perplexity per compressed byte", zlib_literal, "zlib"),
        Reading(
            "Zlib",
            "divided by characters too",
            lambda s: (s.whole, {"zlib": s.whole.ours["zlib"] / list(map(len, s.inputs.texts))}),
            "zlib",
        ),
        Reading(
            "padding",
            "the first padding token counts (short texts, k = 5)",
            padding_as_a_token,
            "min_k",
            runs_model=True,
            is_mistake=True,
        ),
    ]


def ledger(findings: Sequence[Finding], caption: str) -> Styler:
    """One row a reading, a column a target: what it does to the detector that it moves most."""
    rows: dict[Reading, dict[str, str]] = {}
    for f in most_moved(findings):
        of = f.reading
        row = rows.setdefault(of, {"choice": of.choice, "ours": OURS[of.choice], "other": of.said})
        moved = f.auc if of.rule is at_most else f.tpr
        if moved is None:
            row[f.column] = f.tpr_needs or "not applicable"
        elif np.isnan(moved.low):
            row[f.column] = unbroken(f"{f.label}: TPR {moved.estimate:+.3f}")
        else:
            row[f.column] = unbroken(f"{f.label}: {moved}")
    table = pd.DataFrame(sorted(rows.values(), key=lambda row: list(OURS).index(row["choice"])))
    return small(table, caption).hide(axis="index")
