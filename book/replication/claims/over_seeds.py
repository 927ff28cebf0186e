"""Two detectors compared over several training seeds, with intervals that cover texts, seeds and choices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib import metrics
from mialib.metrics import Comparison, FloatArray, Interval, split_scores, variance_of_mean
from mialib.plain import plain_array

BySeed = Sequence[ArrayLike]  # scores of the same texts by models of several training seeds
Runs = list[tuple[FloatArray, FloatArray]]  # of each seed, both sides' checked scores, (folds, N) each


def compare_auc_over_seeds(labels: ArrayLike, scores_a: BySeed, scores_b: BySeed) -> Comparison:
    """Mean AUC difference a minus b over training seeds, with a 95% interval that covers texts, seeds *and* choices.

    `scores_a[s]` and `scores_b[s]` are the scores of the same texts under models of seed s, (N,); or (F, N), where
    hyperparameters were chosen on each of F folds of the texts in turn, NaN for the fold's own texts. Three variances
    are added: DeLong's over texts, of the placements averaged over seeds and folds, that between the seeds'
    differences, and that between the folds'. The t quantile has Satterthwaite's degrees of freedom, since few seeds or
    folds estimate a variance poorly. Where all three are 0, see `mialib.metrics.compared`.
    """
    labels, runs = _pair_seeds(labels, scores_a, scores_b)
    placed = [(_placed(labels, a), _placed(labels, b)) for a, b in runs]
    apart = np.array([a - b for a, b in placed])  # (seeds, folds, N), NaN where not judged
    members, non_members = (np.compress(labels == label, apart, axis=2) for label in (1, 0))
    of_texts = sum(variance_of_mean(np.nanmean(part, axis=(0, 1))) for part in (members, non_members))
    are_certain = all(np.isin(part[~np.isnan(part)], (0, 1)).all() for pair in placed for part in pair)
    return _over_runs(np.nanmean(members, axis=2), of_texts, labels, runs, are_certain)


def compare_tpr_at_fpr_over_seeds(
    labels: ArrayLike,
    scores_a: BySeed,
    scores_b: BySeed,
    fpr: float = 0.05,
    n_resamples: int = metrics.RESAMPLES,
) -> Comparison:
    """Mean difference of the TPR at an FPR over training seeds; its 95% interval covers texts, seeds and choices.

    Scores, and how the variances are added, as in `compare_auc_over_seeds`. The variance over texts is a bootstrap's:
    in each resample all seeds, folds and both sides have the same texts.
    """
    labels, runs = _pair_seeds(labels, scores_a, scores_b)
    times = metrics.resampled_texts(_n_texts(labels), n_resamples)

    def resampled(row: FloatArray) -> FloatArray:
        judged = ~np.isnan(row)
        of_members, of_others = (of[:, judged[labels == label]] for of, label in zip(times, (1, 0), strict=True))
        return metrics.resampled_tprs(*split_scores(labels[judged], row[judged]), of_members, of_others, fpr)

    # (sides, seeds, folds, 1 + resamples)
    tprs = np.array([[[resampled(row) for row in pair[side]] for pair in runs] for side in (0, 1)])
    apart = tprs[0] - tprs[1]
    of_texts = float(np.nanmean(apart, axis=(0, 1))[1:].var(ddof=1))
    return _over_runs(apart[..., 0], of_texts, labels, runs, bool(np.isin(tprs, (0, 1)).all()))


def compared(
    difference: float,
    of_texts: float,
    parts: Sequence[tuple[float, int]],
    n_texts: tuple[int, int],
    level: float = 0.95,
) -> Comparison:
    """A difference with its t interval and p-value, as `compare_auc_over_seeds` describes them.

    `of_texts` is the variance over texts, `parts` are further variances of the mean, each with the number (of seeds,
    say) that it rests on, `n_texts` the numbers of members and non-members.
    """
    variance = of_texts + sum(part for part, _ in parts)
    spread = sum(part**2 / (n - 1) for part, n in parts)
    return metrics.compared(difference, variance, n_texts, level, variance**2 / spread if spread else np.inf)


def auc_over_seeds(labels: ArrayLike, scores: BySeed) -> Interval:
    """Mean AUC over training seeds, with an interval in [0, 1] that covers texts and seeds.

    `scores` as in `compare_auc_over_seeds`. The interval is that of the comparison with chance, where all texts tie.
    """
    above_chance = compare_auc_over_seeds(labels, scores, [np.zeros_like(of_seed) for of_seed in scores]).difference
    low, high = max(0.0, 0.5 + above_chance.low), min(1.0, 0.5 + above_chance.high)
    return Interval(0.5 + above_chance.estimate, low, high)


def _over_runs(by_run: FloatArray, of_texts: float, labels: NDArray[Any], runs: Runs, are_certain: bool) -> Comparison:
    """The mean of differences (seeds, folds), compared; `of_texts` is its variance over texts."""
    difference, n_texts = float(by_run.mean()), _n_texts(labels)
    if not difference and are_certain and not all(np.array_equal(a, b, equal_nan=True) for a, b in runs):
        return metrics.alike_by_few(n_texts, 0.95)
    parts = [(variance_of_mean(by_run.mean(axis=1 - axis)), n) for axis, n in enumerate(by_run.shape) if n > 1]
    return compared(difference, of_texts, parts, n_texts)


def _n_texts(labels: NDArray[Any]) -> tuple[int, int]:
    return int((labels == 1).sum()), int((labels == 0).sum())


def _pair_seeds(labels: ArrayLike, scores_a: BySeed, scores_b: BySeed) -> tuple[NDArray[Any], Runs]:
    """The labels, and each seed's checked scores."""
    if not len(scores_a) or len(scores_a) != len(scores_b):
        raise ValueError(f"{len(scores_a)} and {len(scores_b)} seeds; at least one, and the same for both, are needed")
    labels = plain_array(labels, "labels")
    return labels, [(_rows(labels, a), _rows(labels, b)) for a, b in zip(scores_a, scores_b, strict=True)]


def _rows(labels: NDArray[Any], scores: ArrayLike) -> FloatArray:
    """Scores (N,) or (F, N) as (F, N), checked: NaN only for a text of one of several folds."""
    rows = np.atleast_2d(plain_array(scores, "scores", np.float64))
    for row in rows:
        split_scores(labels, row if len(rows) == 1 else np.where(np.isnan(row), 0, row))
    if len(rows) > 1 and (n_unjudged := np.isnan(rows).sum(axis=0)).max() > 1:
        most = n_unjudged.max()
        raise ValueError(f"text {n_unjudged.argmax()} is not judged in {most} folds; at most its own is one")
    return rows


def _placed(labels: NDArray[Any], rows: FloatArray) -> FloatArray:
    """Each text's placement, (F, N) like its scores, and NaN where they are."""
    placed = np.full(rows.shape, np.nan)
    for row, of_row in zip(rows, placed, strict=True):
        judged = ~np.isnan(row)
        above, below = metrics.placements(*split_scores(labels[judged], row[judged]))
        of_row[judged & (labels == 1)], of_row[judged & (labels == 0)] = above, below
    return placed
