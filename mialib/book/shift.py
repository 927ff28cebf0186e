"""The shift dial: the same members against non-members that are less and less like them, and the mirror test.

Membership is the same at each step, so what a detector's AUC gains on the way is not of membership. The mirror test
shows it alone: two sets that the model has never seen, the members' own non-members called members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mialib.benchmarks import Benchmark
from mialib.blind import PREFIX
from mialib.book import blind_tables as leaks
from mialib.book.results import Result
from mialib.book.results import curves as results_curves
from mialib.detectors import FloatArray
from mialib.metrics import Interval, at_level, auc_interval
from mialib.passes.inputs import SIGNIFICANT

BLIND = "tfidf"  # the baseline that says how far apart two sets are as text


@dataclass(frozen=True)
class Step:
    """Members and the non-members of one turn of the dial, with each detector's scores of them, (N,)."""

    name: str
    benchmark: Benchmark
    scores: Mapping[str, FloatArray]

    @property
    def column(self) -> str:
        """Heading of the members against these non-members."""
        return f"members − {self.name}"

    @property
    def mirror(self) -> str:
        """Heading of the members' own non-members against these."""
        return f"unseen − {self.name} (mirror)"


def measure(steps: Sequence[Step]) -> list[Result]:
    """AUC of each detector and of a blind baseline, a row each, at each step and in each step's mirror test.

    The first step's non-members are the members' own: dealt out by the same coin. ValueError unless all steps have the
    same members, and names of their own.
    """
    own, *others = steps
    if repeated := [name for name, n in Counter(step.name for step in steps).items() if n > 1]:
        raise ValueError(f"two steps are named {repeated[0]!r}, and their results would share a column; rename one")
    for step in others:
        _check_same_members(own.benchmark, step.benchmark)
    pairs = [(step.column, step.benchmark, step.scores) for step in steps]
    pairs += [(step.mirror, *_mirror(own, step)) for step in others]
    results = []
    for column, benchmark, scores in pairs:
        intervals = {name: auc_interval(benchmark.labels, values) for name, values in scores.items()}
        results += [Result.of(row=n, column=column, metric="auc", interval=i) for n, i in intervals.items()]
        results += leaks.measure(benchmark, column, ["auc"], kinds=[BLIND])
    return results


def _mirror(own: Step, other: Step) -> tuple[Benchmark, dict[str, FloatArray]]:
    """The two steps' non-members, the first's called members."""
    of = [(step, np.flatnonzero(step.benchmark.labels == 0)) for step in (own, other)]
    texts = tuple(step.benchmark.texts[i] for step, unseen in of for i in unseen)
    labels = np.repeat(np.array([1, 0], np.int8), [len(unseen) for _, unseen in of])
    revision = "~".join(step.benchmark.revision for step, _ in of)
    benchmark = Benchmark(other.mirror, texts, labels, revision, own.benchmark.language, own.benchmark.n_words)
    return benchmark, {name: np.concatenate([step.scores[name][unseen] for step, unseen in of]) for name in own.scores}


def _check_same_members(own: Benchmark, shifted: Benchmark) -> None:
    first, second = ({b.texts[i] for i in np.flatnonzero(b.labels == 1)} for b in (own, shifted))
    if first != second:
        raise ValueError(
            f"{own.name} and {shifted.name} have different members ({len(first - second)} of the first's {len(first)} "
            "are not in the second); give the same members with other non-members"
        )


def curves(results: Sequence[Result], steps: Sequence[Step]) -> dict[str, dict[str, dict[float, Interval]]]:
    """The AUCs as a figure's panels, along the dial: {panel: {row: {number of the step: interval}}}."""
    panels = {
        "members − non-members": {step.column: float(i) for i, step in enumerate(steps)},
        "mirror: no member on either side": {step.mirror: float(i) for i, step in enumerate(steps) if i},
    }
    return {title: found for title, x_of in panels.items() if (found := results_curves(results, "auc", x_of))}


def say_mirror(results: Sequence[Result], steps: Sequence[Step]) -> str:
    """In which direction each detector goes wrong in the mirror tests, where that is sure, in Markdown.

    Sure is where an interval excludes 0.5 whose level is 95% for all detectors of a step at once (Bonferroni).
    """
    lines = []
    for step in steps[1:]:
        found = [r for r in results if r.column == step.mirror and r.ours is not None]
        blind = next((r for r in found if r.row.startswith(PREFIX)), None)
        detectors = [r for r in found if r is not blind]
        level = 1 - SIGNIFICANT / max(1, len(detectors))
        intervals = {r.row: at_level(r.interval, level) for r in detectors}
        above = ", ".join(row for row, interval in intervals.items() if interval.low > 0.5) or "none"
        below = ", ".join(row for row, interval in intervals.items() if interval.high < 0.5) or "none"
        apart = f"blind baseline {blind.interval}" if blind else "too few texts for a blind baseline"
        lines.append(
            f"- **{step.name}** ({apart}): of {len(detectors)} detectors, surely above 0.5, so that they take the "
            f"members' kin for members: {above}; surely below, so that they take the strangers for members: {below}."
        )
    return "\n".join(lines)
