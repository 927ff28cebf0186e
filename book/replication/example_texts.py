"""Which texts a page shows token by token, chosen by a rule, and what all texts say of what one strip seems to show."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from mialib.bootstrap import resamples
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Interval
from mialib.passes.inputs import Inputs
from replication import token_view
from replication.results import Result
from replication.tables import text_table


def typical_pair(labels: ArrayLike, scores: ArrayLike, quantile: float = 0.5) -> tuple[int, int]:
    """The member and the non-member whose score is at a quantile of its class, by default the median.

    Between two texts it is the lower one. Chosen by a rule, so that nobody picks an example.
    """
    labels, scores = np.asarray(labels), np.asarray(scores)
    pair = []
    for label in (1, 0):
        texts = np.flatnonzero(labels == label)
        by_score = texts[np.argsort(scores[texts], kind="stable")]
        pair.append(int(by_score[int(quantile * (len(texts) - 1))]))
    return pair[0], pair[1]


def ranks(scores: ArrayLike) -> NDArray[np.int64]:
    """Each text's rank by score, 1 for the one most likely a member; ties share the better rank."""
    return rankdata(-np.asarray(scores), method="min").astype(np.int64)


def shade_shares(inputs: Inputs, by: str, **hyperparameters: float) -> list[Result]:
    """The share of a text's tokens in each shade of the legend: its mean over members, over non-members, and the
    difference, with percentile bootstrap intervals over texts.

    Rows are the legend's words, the metric names the way. What one strip seems to show, all texts are asked here.
    """
    way, options, given = token_view.resolve(inputs.stats, by, token_view.frequency_for(inputs, by), hyperparameters)
    names = [*way.levels, way.unshaded] if way.unshaded else list(way.levels)
    shares = np.zeros((len(inputs.labels), len(names)))
    for i, row in enumerate(inputs.stats):
        levels = [len(way.levels) if level is None else level for level in way.see(row, **options, **given)[0]]
        shares[i] = np.bincount(levels, minlength=len(names)) / len(levels)
    means, resampled = {}, {}
    for name, label in (("members", 1), ("non-members", 0)):
        of_class = shares[inputs.labels == label]
        means[name] = of_class.mean(0)
        resampled[name] = resamples(len(of_class), seed=label) @ of_class / len(of_class)
    for values in (means, resampled):
        values["difference"] = values["members"] - values["non-members"]
    found = []
    for column, of_column in resampled.items():
        ends = np.quantile(of_column, [0.025, 0.975], axis=0)
        for name, mean, low, high in zip(names, means[column], *ends, strict=True):
            interval = Interval(float(mean), float(low), float(high))
            found.append(Result.of(row=name, column=column, metric=f"share of tokens by {by}", interval=interval))
    return found


def score_table(
    views: Mapping[str, Mapping[str, token_view.TokenView]], texts: Mapping[str, int], scores: Mapping[str, FloatArray]
) -> pd.DataFrame:
    """A row a text: score, rank, tokens counted; {way: {text: view}}, {text: its number}, {detector: (N,) scores}."""
    cells: dict[str, dict[str, str]] = {}
    for by, of_texts in views.items():
        detector = token_view.WAYS[by].detector
        label, place_of = DETECTORS[detector].label, ranks(scores[detector])
        for name, view in of_texts.items():
            row, place = cells.setdefault(name, {}), place_of[texts[name]]
            row[f"{label}: score (rank of {len(place_of)})"] = f"{token_view.number(view.score, 4)} ({place})"
            row[f"{label}: tokens that count"] = f"{view.n_counted} of {len(view.tokens)}"
    return text_table(cells, "Both texts' scores, ranks, and how many tokens count")
