"""The Min-K% Prob paper's overview figure, sweep and case studies: functions of scores and token statistics.

overview       text_at_quantile, work_text: one text, token by token
sweep          choose_and_judge: a hyperparameter picked on one half of the texts and judged on the other
contamination  times_seen, measure_members, rank_correlation, first_above
books          snippet_inputs, per_document, snippet_auc_interval, mean_interval: documents, not snippets, are drawn
unlearning     count_forgotten, measure_members, indistinguishable, reach_at_chance
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.benchmarks import Benchmark, excerpt, load_benchmark, word_spans
from mialib.cache import score_or_load
from mialib.config import Training, Unlearning
from mialib.detectors import DETECTORS, FloatArray
from mialib.evaluate import Inputs, Target
from mialib.lab import lab_recipe
from mialib.metrics import Comparison, Interval, auc, auc_interval, compare_auc
from mialib.models import load_tokenizer
from mialib.results import Result
from mialib.training import by_group, member_times

Indices = NDArray[np.int64]
RESAMPLES = 2000


# --- overview: one text, token by token ---


@dataclass(frozen=True)
class WorkedToken:
    """One token of a text, decoded alone."""

    text: str
    log_prob: float  # nats
    is_selected: bool  # among the k% with the lowest log p


@dataclass(frozen=True)
class WorkedText:
    """A text's tokens with what Min-K% Prob makes of them."""

    tokens: tuple[WorkedToken, ...]
    score: float  # mean log p of the selected tokens


def text_at_quantile(labels: ArrayLike, scores: FloatArray, label: int, quantile: float = 0.5) -> int:
    """The text of one class whose score is at a quantile of its class's scores: a rule, so that nobody picks it."""
    if not 0 <= quantile <= 1:
        raise ValueError(f"a quantile lies in [0, 1], got {quantile}")
    own = np.flatnonzero(np.asarray(labels) == label)
    order = own[np.argsort(scores[own], kind="stable")]
    return int(order[round(quantile * (len(order) - 1))])


def work_text(inputs: Inputs, index: int, k: float = 20) -> WorkedText:
    """Text `index` as Min-K% Prob sees it."""
    row = inputs.stats[index]
    log_prob = row.log_prob.astype(np.float64)
    tokenizer = load_tokenizer(inputs.target.model)
    selected = np.argsort(log_prob, kind="stable")[: max(1, int(len(log_prob) * k / 100))]
    tokens = (
        WorkedToken(
            text=tokenizer.decode([token], clean_up_tokenization_spaces=False),
            log_prob=float(log_prob[i]),
            is_selected=i in selected,
        )
        for i, token in enumerate(row.token_ids.tolist())
    )
    return WorkedText(tuple(tokens), score=float(log_prob[selected].mean()))


def conclude(text: WorkedText, *, is_member: bool, threshold: float) -> str:
    """The score of a worked text, and whether the decision that a threshold makes of it is right, in two lines."""
    is_called = text.score > threshold
    n = sum(token.is_selected for token in text.tokens)
    decision = "above it: called a member" if is_called else "not above it: not called a member"
    truth = "the model has seen it" if is_member else "the model has never seen it"
    score, bar = (f"{value:.2f}".replace("-", "−") for value in (text.score, threshold))
    return (
        f"Score: mean log p of the {n} framed tokens = {score} nats.\n"
        f"Threshold {bar}, {decision}. {'Right' if is_called == is_member else 'Wrong'}: {truth}."
    )


# --- sweep: a hyperparameter picked on one half, judged on the other ---


def random_halves(labels: ArrayLike, seed: int = 0) -> tuple[Indices, Indices]:
    """The texts in two random halves, each with half of every class."""
    labels, rng = np.asarray(labels), np.random.default_rng(seed)
    dealt = [np.array_split(rng.permutation(np.flatnonzero(labels == label)), 2) for label in np.unique(labels)]
    first, second = (np.sort(np.concatenate(half)) for half in zip(*dealt, strict=True))
    return first, second


def choose_and_judge(
    labels: ArrayLike, scores: Mapping[float, FloatArray], default: float, seed: int = 0
) -> tuple[float, Comparison]:
    """The best value other than the default on a random half of the texts; on the other half, default minus it.

    Choosing and judging on the same texts would favour the value that was chosen.
    """
    labels = np.asarray(labels)
    chosen_on, judged_on = random_halves(labels, seed)
    others = [value for value in scores if value != default]
    best = max(others, key=lambda value: auc(labels[chosen_on], scores[value][chosen_on]))
    return best, compare_auc(labels[judged_on], scores[default][judged_on], scores[best][judged_on])


# --- contamination and unlearning: some of the members ---


def measure_members(
    labels: ArrayLike, scores: Mapping[str, FloatArray | None], members: ArrayLike, column: str
) -> list[Result]:
    """AUC of each detector, some of the members (by index) against all non-members."""
    labels, members = np.asarray(labels), np.asarray(members)
    if not (labels[members] == 1).all():
        raise ValueError(f"text {members[labels[members] != 1][0]} is not a member")
    some = np.concatenate([members, np.flatnonzero(labels == 0)])
    return [
        Result.of(
            row=DETECTORS[name].label,
            column=column,
            metric="auc",
            interval=None if values is None else auc_interval(labels[some], values[some]),
        )
        for name, values in scores.items()
    ]


def times_seen(model: str, n_members: int, repeats: Sequence[int] = ()) -> Indices:
    """How often each member was seen in training, (n_members,): what the lab model's recipe says.

    For another model, `repeats` says how often each of so many equal consecutive groups of members was.
    """
    if repeats:
        return np.array(by_group(repeats, n_members))
    recipe = lab_recipe(model) if model.startswith("lab/") else None
    if not isinstance(recipe, Training):
        raise ValueError(
            f"{model}: it is not known how often it has seen each member; give `repeats`, such as 1,4,16, "
            "for equal consecutive groups of members"
        )
    if not recipe.member_repeats:
        raise ValueError(f"{model}: all members were seen {recipe.member_times} times; a model with repeats is needed")
    return np.array(member_times(recipe, n_members))


def rank_correlation(x: ArrayLike, y: ArrayLike, level: float = 0.95, seed: int = 0) -> Interval:
    """Spearman's rank correlation over texts, with a percentile bootstrap interval that resamples the texts."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(x) != len(y) or np.ptp(x) == 0 or np.ptp(y) == 0:
        raise ValueError(f"a rank correlation needs two lists of one length that both vary, got {len(x)} and {len(y)}")
    drawn = np.random.default_rng(seed).integers(len(x), size=(RESAMPLES, len(x)))
    low, high = np.nanquantile(_spearman(x[drawn], y[drawn]), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(_spearman(x, y)), float(low), float(high), level)


def _spearman(x: FloatArray, y: FloatArray) -> FloatArray:
    """Along the last axis; NaN where one side does not vary."""
    from scipy.stats import rankdata

    x, y = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (rankdata(x, axis=-1), rankdata(y, axis=-1)))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))


def first_above(curve: Mapping[float, Interval], estimate: float, low: float) -> float | None:
    """The smallest x whose estimate is above one bar and its interval above another; None where there is none."""
    found = [x for x, interval in curve.items() if interval.estimate > estimate and interval.low > low]
    return min(found, default=None)


# --- books: a long document by its snippets ---


def split_into_snippets(text: str, n_words: int, language: str = "en") -> list[str]:
    """Consecutive snippets of `n_words` words, white space inside kept; a shorter rest at the end is left out."""
    if n_words < 1:
        raise ValueError(f"a snippet of {n_words} words; at least 1 is needed")
    spans = list(word_spans(text, language))
    if len(spans) < n_words:
        raise ValueError(f"a document of {len(spans)} words has no snippet of {n_words}: {excerpt(text)}")
    return [text[spans[at][0] : spans[at + n_words - 1][1]] for at in range(0, len(spans) - n_words + 1, n_words)]


def snippet_benchmark(documents: Benchmark, n_words: int) -> tuple[Benchmark, Indices]:
    """All documents' snippets, each with its document's label, and the index of each snippet's document."""
    split = [split_into_snippets(text, n_words, documents.language) for text in documents.texts]
    document = np.repeat(np.arange(len(split)), [len(snippets) for snippets in split])
    snippets = replace(
        documents,
        name=f"{documents.name}, snippets of {n_words} words",
        texts=tuple(snippet for of_document in split for snippet in of_document),
        labels=documents.labels[document],
        n_words=n_words,
    )
    return snippets, document


def snippet_inputs(target: Target, n_words: int) -> tuple[Inputs, Indices]:
    """The snippets of a benchmark's documents, each scored by itself, and the index of each snippet's document."""
    snippets, document = snippet_benchmark(load_benchmark(target.benchmark), n_words)
    stats = score_or_load(target.model, snippets.texts)
    return Inputs(target, snippets, stats, lowercase=None, reference=None, frequency=None), document


def per_document(values: ArrayLike, document: Indices) -> FloatArray:
    """Mean of a value over each document's snippets, (D,): of scores, or of "above the threshold"."""
    return np.bincount(document, weights=np.asarray(values, float)) / np.bincount(document)


def snippet_auc_interval(
    labels: ArrayLike, scores: FloatArray, document: Indices, level: float = 0.95, seed: int = 0
) -> Interval:
    """AUC of single snippets, with a percentile bootstrap interval that resamples whole documents.

    The snippets of one document are alike, so an interval that took them for independent would be too short.
    """
    labels, rng = np.asarray(labels), np.random.default_rng(seed)
    members, non_members = ([scores[document == d] for d in np.unique(document[labels == label])] for label in (1, 0))
    pairs = np.array([[len(a) * len(b) for b in non_members] for a in members], float)  # (members, non-members)
    wins = np.array([[(np.sign(a[:, None] - b) + 1).sum() / 2 for b in non_members] for a in members])

    def of(times_a: FloatArray, times_b: FloatArray) -> FloatArray:
        return ((times_a @ wins) * times_b).sum(axis=-1) / ((times_a @ pairs) * times_b).sum(axis=-1)

    resampled = of(_resamples(len(members), rng), _resamples(len(non_members), rng))
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(wins.sum() / pairs.sum()), float(low), float(high), level)


def mean_interval(values: ArrayLike, level: float = 0.95, seed: int = 0) -> Interval:
    """A mean over texts or documents with its percentile bootstrap interval."""
    values = np.asarray(values, float)
    resampled = _resamples(len(values), np.random.default_rng(seed)) @ values / len(values)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high), level)


def _resamples(n: int, rng: np.random.Generator) -> FloatArray:
    """How often each of n things is drawn in each bootstrap resample, (RESAMPLES, n)."""
    return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)


# --- unlearning ---


def count_forgotten(model: str) -> int:
    """How many of its benchmark's first members an unlearned lab model was made to forget."""
    recipe = lab_recipe(model) if model.startswith("lab/") else None
    if not isinstance(recipe, Unlearning):
        raise ValueError(
            f"{model}: it is not known which members it was made to forget; give `forgotten`, their number"
        )
    return recipe.texts


def indistinguishable(interval: Interval, margin: float = 0.05) -> str:
    """The verdict on "these texts cannot be told apart" from the interval of an AUC.

    "supported" where the whole interval lies within 0.5 ± margin, else "not supported" where it excludes 0.5, in
    either direction, else "inconclusive".
    """
    if 0.5 - margin <= interval.low and interval.high <= 0.5 + margin:
        return "supported"
    return "not supported" if interval.low > 0.5 or interval.high < 0.5 else "inconclusive"


def reach_at_chance(n_members: int, n_non_members: int, level: float = 0.95) -> float:
    """Half the width of an AUC's interval where scores say nothing: what so many texts can resolve at best."""
    from scipy.stats import norm

    return float(
        norm.ppf((1 + level) / 2) * np.sqrt((n_members + n_non_members + 1) / (12 * n_members * n_non_members))
    )
