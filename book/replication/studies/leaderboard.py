"""A board that scores anyone's detector and keeps the texts' labels to itself.

Every look at a result is a choice made on those texts: who tries often and keeps the best has fitted the noise. So the
board counts submissions, and half of the texts is judged only at the end, by `Board.reveal`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from reprlib import repr as short_repr

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Comparison, Interval, auc_interval, compare_auc
from mialib.model_selection import stratified_split
from mialib.passes.inputs import Inputs
from mialib.store import hash_of
from mialib.token_stats import TokenRow, TokenStats
from replication import pages
from replication.tables import comparison_table

BASELINE = "min_k++"
OPEN, KEPT_BACK = "first half", "second half"
AHEAD = f"AUC minus {DETECTORS[BASELINE].label}'s [95% interval]"


@dataclass(frozen=True)
class Submission:
    """What the board says of one detector on the first half of the texts."""

    name: str
    auc: Interval
    ahead: Comparison  # minus the baseline's AUC, paired
    n_submissions: int  # this one and all before it

    def __str__(self) -> str:
        hint = "\n    Below 0.5: is the sign right? Higher must mean member." if self.auc.high < 0.5 else ""
        return (
            f"{self.name} (submission {self.n_submissions})\n    AUC on the {OPEN}: {self.auc}\n"
            f"    minus {DETECTORS[BASELINE].label}'s: {self.ahead.difference}{hint}"
        )


def open_board(model: str, benchmark: str, **how: str) -> Board:
    """A board on one model and benchmark; `how` as for `pages.load_columns`."""
    [inputs] = pages.load_columns(model, benchmark, **how)
    return Board(inputs.stats, inputs.labels, inputs)


class Board:
    """Judges detectors on texts of known membership without handing out a label.

    `stats` are the token statistics of N texts, `labels` (N,) 1 for members; `inputs` are for `opened`.
    """

    def __init__(self, stats: TokenStats, labels: ArrayLike, inputs: Inputs | None = None) -> None:
        self._stats, self._inputs, self._is_open = stats, inputs, True
        self._order = np.argsort([hash_of(row.token_ids.tolist()) for row in stats])  # members may come first
        self._scores: dict[str, FloatArray] = {}
        self._half_of = dict(zip((OPEN, KEPT_BACK), stratified_split(labels := np.asarray(labels), 0.5), strict=True))
        self._labels = {half: labels[texts] for half, texts in self._half_of.items()}
        self._baseline = self._score(DETECTORS[BASELINE].score_text)

    @property
    def n_of_class(self) -> tuple[int, int]:
        """The members and non-members of the first half."""
        return int((self._labels[OPEN] == 1).sum()), int((self._labels[OPEN] == 0).sum())

    @property
    def stats(self) -> TokenStats:
        """The token statistics of all texts, in an order that tells no labels."""
        return self._stats.take(self._order)

    def opened(self) -> tuple[Inputs, dict[str, FloatArray]]:
        """The inputs of a closed board, with labels, and the scores of each submission, (N,) in their order."""
        if self._is_open or self._inputs is None:
            raise ValueError("labels are handed out after `reveal`, which closes the board")
        return self._inputs, self._scores

    @property
    def n_submissions(self) -> int:
        """How many detectors were submitted so far."""
        return len(self._scores)

    def submit(self, score_text: Callable[[TokenRow], float], name: str | None = None) -> Submission:
        """Judge a detector, a function of one text's statistics, on the first half. Higher = more likely a member."""
        if not self._is_open:
            raise ValueError("the second half has been shown, so this board is closed: what is tried is chosen on it")
        scores, n = self._score(score_text), self.n_submissions + 1
        name = str(name or getattr(score_text, "__name__", "detector"))
        name = f"{name} ({n})" if name in self._scores else name
        self._scores[name] = scores
        return Submission(name, *self._judge(scores, OPEN), n)

    def table(self, half: str = OPEN) -> pd.DataFrame:
        """All submissions, the highest AUC on the first half at the top: AUC and paired difference from Min-K%++."""
        if half == KEPT_BACK and self._is_open:
            raise ValueError("the second half is kept back until `reveal`, which closes the board")
        by_auc = sorted(self._scores, key=lambda name: -self._judge(self._scores[name], OPEN)[0].estimate)
        outcomes = {name: self._judge(self._scores[name], half) for name in by_auc}
        table = comparison_table({name: ahead for name, (_, ahead) in outcomes.items()}, AHEAD)
        table.insert(0, "AUC [95% interval]", [str(auc) for auc, _ in outcomes.values()])
        return table.rename_axis(columns=f"{half}, {self.n_submissions} submissions")

    def reveal(self) -> pd.DataFrame:
        """Close the board and judge all submissions on the second half too, in the order of the first half's AUCs.

        Only the first row's number is an honest one: that detector was chosen without these texts.
        """
        if not self._scores:
            raise ValueError("nothing was submitted")
        self._is_open = False
        first, second = self.table(OPEN), self.table(KEPT_BACK)
        columns = {
            f"AUC, {OPEN}": first.iloc[:, 0],
            f"AUC, {KEPT_BACK}": second.iloc[:, 0],
            f"{AHEAD}, {KEPT_BACK}": second[AHEAD],
        }
        return pd.DataFrame(columns).rename_axis(columns=f"Both halves, {self.n_submissions} submissions")

    def _judge(self, scores: FloatArray, half: str) -> tuple[Interval, Comparison]:
        labels, texts = self._labels[half], self._half_of[half]
        return auc_interval(labels, scores[texts]), compare_auc(labels, scores[texts], self._baseline[texts])

    def _score(self, score_text: Callable[[TokenRow], float]) -> FloatArray:
        scores = np.empty(len(self._stats))
        for i in self._order:
            row = TokenRow._make(column.copy() for column in self._stats[i])  # the caller may sort in place
            score = score_text(row)
            if not isinstance(score, Real) or not np.isfinite(score):
                raise ValueError(f"a detector returns one finite number, not {short_repr(score)} for a text")
            scores[i] = score
        return scores
