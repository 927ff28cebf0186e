"""The Min-K% Prob paper's overview figure, sweep and case studies: functions of scores and token statistics.

overview       text_at_quantile, work_text: one text, token by token
contamination  times_of_texts, measure_by_times, rank_correlation, first_above
unlearning     count_forgotten, forgotten_and_retained, measure_members, indistinguishable, reach_at_chance
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.book.results import Result
from mialib.catalog.models import load_tokenizer
from mialib.detectors import DETECTORS, FloatArray, lowest_indices
from mialib.lab.models import by_group, lab_recipe, member_times
from mialib.lab.recipes import Training, Unlearning
from mialib.metrics import Interval, auc_interval
from mialib.passes.inputs import Inputs

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
    selected = lowest_indices(log_prob, k)
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


# --- contamination and unlearning: some of the members ---


def measure_members(
    labels: ArrayLike, scores: Mapping[str, FloatArray | None], members: ArrayLike, column: str, metric: str = "auc"
) -> list[Result]:
    """AUC of scores by detector or by any other name, some of the members (by index) against all non-members."""
    labels, members = np.asarray(labels), np.asarray(members)
    if not (labels[members] == 1).all():
        raise ValueError(f"text {members[labels[members] != 1][0]} is not a member")
    some = np.concatenate([members, np.flatnonzero(labels == 0)])
    return [
        Result.of(
            row=DETECTORS[name].label if name in DETECTORS else name,
            column=column,
            metric=metric,
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


def times_of_texts(inputs: Inputs, repeats: Sequence[int] = ()) -> Indices:
    """How often each text was seen in training, (N,): 0 for a non-member, as `times_seen` says for a member."""
    is_member = inputs.labels == 1
    times = np.zeros(len(is_member), np.int64)
    times[is_member] = times_seen(inputs.target.model, int(is_member.sum()), repeats)
    return times


def measure_by_times(labels: ArrayLike, scores: Mapping[str, FloatArray | None], times: Indices) -> list[Result]:
    """`measure_members` of the members seen equally often, a column for each number; `times` as `times_of_texts`."""
    is_member = np.asarray(labels) == 1
    return [
        result
        for n in np.unique(times[is_member]).tolist()
        for result in measure_members(
            labels, scores, np.flatnonzero(is_member & (times == n)), f"seen {n}×", "auc_by_times"
        )
    ]


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


# --- unlearning ---


def count_forgotten(model: str) -> int:
    """How many of its benchmark's first members an unlearned lab model was made to forget."""
    recipe = lab_recipe(model) if model.startswith("lab/") else None
    if not isinstance(recipe, Unlearning):
        raise ValueError(
            f"{model}: it is not known which members it was made to forget; give `forgotten`, their number"
        )
    return recipe.texts


def forgotten_and_retained(labels: ArrayLike, n_forgotten: int) -> dict[str, Indices]:
    """The first `n_forgotten` members, and the others unless all were forgotten, by index."""
    members = np.flatnonzero(np.asarray(labels) == 1)
    if not 0 < n_forgotten <= len(members):
        raise ValueError(f"{n_forgotten} of {len(members)} members forgotten: `forgotten` is from 1 to {len(members)}")
    groups = {"forgotten": members[:n_forgotten], "retained": members[n_forgotten:]}
    return {name: texts for name, texts in groups.items() if len(texts)}


def indistinguishable(interval: Interval, margin: float = 0.05) -> str:
    """What one seed says of "these texts cannot be told apart", from the interval of an AUC.

    "holds" where the whole interval lies within 0.5 ± margin, else "fails" where it excludes 0.5, in either direction,
    else "open".
    """
    if 0.5 - margin <= interval.low and interval.high <= 0.5 + margin:
        return "holds"
    return "fails" if interval.low > 0.5 or interval.high < 0.5 else "open"


def reach_at_chance(n_members: int, n_non_members: int, level: float = 0.95) -> float:
    """Half the width of an AUC's interval where scores say nothing: what so many texts can resolve at best."""
    from scipy.stats import norm

    return float(
        norm.ppf((1 + level) / 2) * np.sqrt((n_members + n_non_members + 1) / (12 * n_members * n_non_members))
    )
