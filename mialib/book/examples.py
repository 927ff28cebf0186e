"""Worked examples: two texts found by search, and what two detectors see in each of their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.detectors import calibrated, first_occurrences, lowest_indices
from mialib.frequency import TokenFrequency
from mialib.metrics import Interval, split_scores
from mialib.token_stats import TokenRow, TokenStats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class TokenCell:
    """One token of a text, with what Min-K% Prob and DC-PDD make of it."""

    text: str  # decoded alone: white space kept, a fragment of a character is �
    log_prob: float  # nats
    alpha: float  # DC-PDD's alpha_i, bounded by a
    is_lowest: bool  # among the k% that Min-K% Prob averages
    is_first: bool  # a first occurrence, which DC-PDD averages
    is_bounded: bool  # alpha_i has reached a


def token_cells(
    row: TokenRow, frequency: TokenFrequency, tokenizer: PreTrainedTokenizerBase, *, k: float, a: float
) -> list[TokenCell]:
    """Each token of a text with its part in both scores.

    Min-K% Prob is the mean `log_prob` of the lowest tokens, DC-PDD the mean `alpha` of the first occurrences.
    """
    log_prob = row.log_prob.astype(np.float64)
    alpha = calibrated(row, frequency.log_probability)
    lowest = set(lowest_indices(log_prob, k).tolist())
    first = set(first_occurrences(row).tolist())
    return [
        TokenCell(
            text=tokenizer.decode([int(row.token_ids[i])], clean_up_tokenization_spaces=False),
            log_prob=float(log_prob[i]),
            alpha=float(min(alpha[i], a)),
            is_lowest=i in lowest,
            is_first=i in first,
            is_bounded=bool(alpha[i] >= a),
        )
        for i in range(len(log_prob))
    ]


def commonness(stats: TokenStats, frequency: TokenFrequency) -> FloatArray:
    """How common the words of each text are: the mean log p(x_i; D') of its tokens, (N,) nats."""
    return np.array([frequency.log_probability[row.token_ids].mean() for row in stats])


def pair_differences(labels: ArrayLike, scores: ArrayLike) -> FloatArray:
    """Each member's score minus each non-member's, (members, non-members): above 0 where the detector is right."""
    members, non_members = split_scores(labels, scores)
    return members[:, None] - non_members[None, :]


def count_pairs(labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike) -> dict[tuple[bool, bool], int]:
    """How many pairs of a member and a non-member detectors A and B put in the right order: {(A right, B right): n}.

    Pairs that either detector ties are in none of the four.
    """
    a, b = pair_differences(labels, scores_a), pair_differences(labels, scores_b)
    untied = (a != 0) & (b != 0)
    return {(x, y): int(np.sum(untied & ((a > 0) == x) & ((b > 0) == y))) for x in (True, False) for y in (True, False)}


def find_pair(
    labels: ArrayLike, wrong: ArrayLike, right: ArrayLike, common: ArrayLike | None = None
) -> tuple[int, int] | None:
    """The member and the non-member that one detector orders most wrongly and the other most rightly.

    Of all pairs where detector `wrong` scores the non-member higher and `right` the member, the one whose gaps, in
    ranks among all texts, have the largest product; with `common`, the non-member's words must also be the
    commoner ones, and that gap is a factor too. Returns the two texts' numbers, the member's first; None where there is
    no such pair.
    """
    from scipy.stats import rankdata

    signed = [(wrong, -1), (right, 1)] + ([] if common is None else [(common, -1)])
    product = np.ones(())
    for values, sign in signed:
        gap = sign * pair_differences(labels, rankdata(values))
        product = product * np.maximum(gap, 0)
    if not product.max() > 0:
        return None
    member, non_member = np.unravel_index(product.argmax(), product.shape)
    labels = np.asarray(labels)
    return int(np.flatnonzero(labels == 1)[member]), int(np.flatnonzero(labels == 0)[non_member])


def ranks(scores: ArrayLike) -> NDArray[np.int64]:
    """Each text's rank by score, 1 for the one most likely a member; ties share the better rank."""
    from scipy.stats import rankdata

    return rankdata(-np.asarray(scores), method="min").astype(np.int64)


def share_commoner(
    labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, common: ArrayLike
) -> dict[tuple[bool, bool], float]:
    """In what share of each kind of pair (as in `count_pairs`) the non-member's words are the commoner; NaN of none."""
    a, b, c = (pair_differences(labels, values) for values in (scores_a, scores_b, common))
    untied = (a != 0) & (b != 0)
    kinds = {(x, y): untied & ((a > 0) == x) & ((b > 0) == y) for x in (True, False) for y in (True, False)}
    return {kind: float((c[chosen] < 0).mean()) if chosen.any() else np.nan for kind, chosen in kinds.items()}


def correlations(
    common: ArrayLike, scores: Mapping[str, ArrayLike], *, level: float = 0.95, n_resamples: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """Spearman's correlation of each detector's scores with the words' commonness, with bootstrap intervals.

    With two detectors, "difference" is the first's correlation minus the second's on the same resampled texts.
    """
    from scipy.stats import rankdata

    columns = np.stack([np.asarray(values, np.float64) for values in (common, *scores.values())])

    def of(chosen: NDArray[np.int64]) -> FloatArray:
        rho = np.atleast_2d(np.corrcoef(rankdata(columns[:, chosen], axis=1)))[0, 1:]
        return np.append(rho, rho[0] - rho[1]) if len(rho) == 2 else rho

    n, rng = columns.shape[1], np.random.default_rng(seed)
    estimate = of(np.arange(n))
    resampled = np.stack([of(rng.integers(n, size=n)) for _ in range(n_resamples)])
    low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    names = [*scores, "difference"][: len(estimate)]
    return {
        name: Interval(float(e), float(lo), float(hi), level)
        for name, e, lo, hi in zip(names, estimate, low, high, strict=True)
    }
