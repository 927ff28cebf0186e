"""From the scores of known non-members to a decision, about one text, many, or a set of texts. Higher = member.

All of it assumes that a text which is no member is *exchangeable* with the known non-members: its score may have any
rank among theirs, and all ranks are equally likely. Nothing is assumed of the scores' distribution.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from mialib.metrics import FloatArray, Interval, check_level, clopper_pearson, threshold_at_fpr
from mialib.plain import check_share, finite_numbers

KNOWN = "the scores of known non-members"
DIVISIONS, MOST_COUNTED = 19_999, 1000  # how many divisions are drawn; the most texts whose divisions are all counted
LAMBDA = 0.5  # Storey's: p-values above it are taken for those of non-members
EXACT_UP_TO = 8  # up to so many texts on one side the rank-sum test is exact, beyond it normal: scipy's own rule


def p_values(scores: ArrayLike, non_member_scores: ArrayLike) -> FloatArray:
    """How often a known non-member would score as high, (N,): (1 + how many of the n do) / (n + 1).

    The text counts as one of them, so no p-value is 0, and of non-members like the known ones at most a share p has a
    p-value of p or less (Phipson and Smyth 2010). That share is over the draw of the known non-members too, and the
    p-values are not independent (Bates et al. 2023). ValueError for scores that are no list of finite numbers.
    """
    scores, known = finite_numbers(scores, "scores"), np.sort(finite_numbers(non_member_scores, KNOWN, at_least=1))
    n_as_high = len(known) - np.searchsorted(known, scores, side="left")
    return (1 + n_as_high) / (len(known) + 1)


def flagged_up_to(p: ArrayLike, fdr: float) -> float:
    """The p-value up to which N texts are flagged at a target FDR, a fraction; 0 where none is.

    Benjamini and Hochberg (1995), on the texts' `p_values` (N,). Averaged over draws of texts and known non-members,
    the share of non-members among the flagged (0 where none is flagged) is at most the target FDR. The p-values depend
    on each other, since all compare with one set of known non-members, but the dependence is positive (PRDS), and with
    it the bound holds: Bates et al. 2023, for scores without ties; ties make p-values larger. It takes texts for drawn
    independently, so leave copies out. ValueError for an FDR outside (0, 1).
    """
    p = finite_numbers(p, "p-values", at_least=1)
    check_share(fdr, "a target FDR")
    adjusted = scipy.stats.false_discovery_control(p).round(12)  # so that 0.1 is not 0.10000000000000002
    return float(p[adjusted <= fdr].max(initial=0))


def share_of_members(p: ArrayLike, n_known: int, level: float = 0.95) -> Interval:
    """The share of members among N texts, as far as it shows, from `p_values` (N,) against n known non-members.

    It is 1 - pi0 of Storey (2002) at lambda = 1/2: pi0 = q / b, where q is the share of the texts with p > lambda and b
    the same share of all non-members, (n + 1 - k) / (n + 1) on average with k = floor(lambda (n + 1)). Members with
    p > lambda are counted as non-members, so the true share is larger where there are some, and the upper end of the
    interval does not bound it. The lower end does, with confidence (1 + level) / 2.

    The interval divides the ends of two others, each of level (1 + level) / 2: Clopper and Pearson's for q, and that of
    b, which is Beta(n + 1 - k, k) over draws of known non-members. Leave copies out.
    """
    p = finite_numbers(p, "p-values", at_least=1)
    check_level(level)
    if n_known < 1:
        raise ValueError(f"{n_known} known non-members; at least one is needed")
    k = math.floor(LAMBDA * (n_known + 1))
    q = clopper_pearson(int((p > LAMBDA).sum()), len(p), (1 + level) / 2)
    low, high = scipy.stats.beta.interval((1 + level) / 2, n_known + 1 - k, k)
    of_non_members = np.array([q.estimate * (n_known + 1) / (n_known + 1 - k), q.high / low, q.low / high])
    estimate, at_least, at_most = np.maximum(0, 1 - of_non_members).tolist()
    return Interval(estimate, at_least, at_most, level)


@dataclass(frozen=True)
class Decision:
    """A threshold: a text is called a member where its score is *above* it."""

    wanted_fpr: float
    threshold: float
    n_known: int  # known non-members that it rests on
    n_allowed: int  # how many of them may lie above it
    n_above: int  # how many do: fewer where scores tie
    fpr: Interval  # n_above / n_known, lower than the true FPR's mean, and the interval of the true FPR

    @property
    def mean_fpr(self) -> float:
        """The true FPR's mean over samples of known non-members; where scores tie, the most that it can be."""
        return (self.n_allowed + 1) / (self.n_known + 1)


def decide(
    non_member_scores: ArrayLike, fpr: float = 0.05, *, is_confident: bool = False, level: float = 0.95
) -> Decision:
    """The lowest threshold for a target FPR (a fraction), from known non-members' scores (n,), and what FPR it has.

    *On average* (the default) k = floor(fpr (n + 1)) - 1 of the n may lie above it: exactly the scores with a p-value
    of at most `fpr`. Without ties the true FPR is Beta(k + 1, n - k), whatever the scores' distribution: its mean,
    (k + 1) / (n + 1), is at most `fpr`, and in up to nearly half of all samples of non-members it is larger. *With
    confidence* (`is_confident`) k is the largest number for which even the upper end of the interval is at most `fpr`.

    The interval is Clopper and Pearson's (1934): its upper end, for k of n, is the quantile of that Beta, and its lower
    end, for the number that do lie above, errs on the safe side. ValueError for an FPR outside (0, 1), a score that is
    not finite, and too few known non-members, saying how many are needed.
    """
    known = finite_numbers(non_member_scores, KNOWN, at_least=1)
    n = len(known)
    n_allowed = may_lie_above(n, fpr, is_confident=is_confident, level=level)
    if n_allowed is None:
        needed = n_needed(fpr, is_confident=is_confident, level=level)
        how = f" with {(1 + level) / 2:.1%} confidence" if is_confident else ""
        raise ValueError(f"an FPR of {fpr:g}{how} needs {needed} known non-members, and there are {n}")
    threshold = float(threshold_at_fpr(known, n_allowed / n))
    n_above = int((known > threshold).sum())
    low, high = clopper_pearson(n_above, n, level).low, clopper_pearson(n_allowed, n, level).high
    return Decision(fpr, threshold, n, n_allowed, n_above, Interval(n_above / n, low, high, level))


def may_lie_above(n_known: int, fpr: float, *, is_confident: bool = False, level: float = 0.95) -> int | None:
    """How many of n known non-members may lie above the threshold of `decide`; None where n are too few for any."""
    if n_known < n_needed(fpr, is_confident=is_confident, level=level):
        return None
    n_allowed = math.floor(fpr * (n_known + 1) + 1e-9) - 1  # the tolerance keeps 0.29 * 100 from rounding down to 28
    if not is_confident:
        return n_allowed
    k = np.arange(n_allowed + 1)
    upper_ends = scipy.stats.beta.ppf((1 + level) / 2, k + 1, n_known - k)  # of the interval, were k above
    return max(0, int(np.searchsorted(upper_ends, fpr, side="right")) - 1)


def n_needed(fpr: float, *, is_confident: bool = False, level: float = 0.95) -> int:
    """The fewest known non-members that allow a threshold for a target FPR: none of them may lie above it."""
    check_share(fpr, "a target FPR")
    check_level(level)
    if is_confident:  # the upper end for 0 of n: (1 - level) / 2 = (1 - fpr)^n
        return math.ceil(math.log((1 - level) / 2) / math.log1p(-fpr) - 1e-9)
    return math.ceil(1 / fpr - 1 - 1e-9)


def set_p_value(scores: ArrayLike, non_member_scores: ArrayLike, *, counted_up_to: int = EXACT_UP_TO) -> float:
    """One p-value of a set of m texts, (m,) against (n,): do they score higher than known non-members?

    The one-sided rank-sum test (Mann and Whitney 1947), valid where a set without members is exchangeable with the
    known non-members. Texts of one author are alike and not exchangeable: give the means of authors.
    Their conformal p-values must not be combined as if they were independent (Fisher's method): where the n known ones
    happen to score low, all m are small together (Bates et al. 2023).

    Scores that tie share their mean rank. Where one side has at most `counted_up_to` texts all divisions of the ranks
    count, else the normal approximation. That fails where most scores are equal: then, and where there are ties and too
    many texts to count all divisions, `DIVISIONS` random ones are drawn, always the same, and no p-value is below
    1 / (DIVISIONS + 1). One text has the p-value that `p_values` gives.
    """
    scores = finite_numbers(scores, "the scores of a set", at_least=1)
    known = finite_numbers(non_member_scores, KNOWN, at_least=1)
    if len(scores) == 1:
        return float(p_values(scores, known)[0])
    ranks = scipy.stats.rankdata(np.concatenate([scores, known]))
    of_set, of_known = ranks[: len(scores)], ranks[len(scores) :]
    values, n_equal = np.unique(ranks, return_counts=True)
    if len(values) == 1:  # all scores are equal
        return 1.0
    has_ties, is_small = len(values) < len(ranks), min(len(scores), len(known)) <= counted_up_to
    if has_ties and is_small and len(ranks) <= MOST_COUNTED:
        if len(scores) <= counted_up_to:
            return _share_of_divisions(ranks, of_set)
        return _share_of_divisions(len(ranks) + 1 - ranks, len(ranks) + 1 - of_known)  # how low the known ones are
    if has_ties and (is_small or n_equal.max() > len(ranks) / 2):
        draws = np.random.default_rng(0).multivariate_hypergeometric(n_equal, len(scores), DIVISIONS, "marginals")
        return float((1 + (draws @ values >= of_set.sum() - 1e-6).sum()) / (DIVISIONS + 1))
    method = "exact" if is_small else "asymptotic"
    return float(scipy.stats.mannwhitneyu(scores, known, alternative="greater", method=method).pvalue)


def _share_of_divisions(ranks: FloatArray, of_few: FloatArray) -> float:
    """The share of all choices of k = len(of_few) of the ranks whose sum is at least that of `of_few`."""
    doubled, k = np.rint(2 * np.sort(ranks)).astype(np.int64), len(of_few)  # whole: a mean rank may end in a half
    ways = np.zeros((k + 1, doubled[-k:].sum() + 1))  # ways[i, s]: to choose i ranks whose sum is s / 2
    ways[0, 0] = 1
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, :-rank]
    return float(ways[k, round(2 * of_few.sum()) :].sum() / ways[k].sum())


def non_use_p_value(scores: ArrayLike, member_scores: ArrayLike) -> float:
    """`set_p_value` against the claim that a set was trained on: do its texts score lower than known members?"""
    return set_p_value(-finite_numbers(scores, "the scores of a set"), -finite_numbers(member_scores, "known members"))
