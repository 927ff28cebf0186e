"""Did models read docstrings from before their cut-off? As `data/cut_off.yml` registers it.

Docstrings by the quarter of their first release, and in two versions: `mialib record-real --quarters FILE --pairs FILE`
scores both for the page.
"""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
import yaml
from numpy.typing import NDArray

from mialib.blind import BLIND
from mialib.catalog.benchmarks import load_benchmark
from mialib.metrics import Interval, auc, placements, split_scores
from mialib.passes.cache import blind_or_load, score_or_load
from mialib.passes.inputs import Target, inputs_of
from mialib.passes.leaks import widen
from mialib.shared.files import read_rows
from mialib.store import hash_texts
from replication import BOOK_DATA
from replication.real import stem_of
from replication.real_model import FOLDER, rows_of
from replication.recorded import read_recorded, write_recorded
from replication.results import BLIND_PREFIX, Result, load_results, save

REGISTERED: dict[str, Any] = yaml.safe_load((BOOK_DATA / "cut_off.yml").read_text(encoding="utf-8"))
POWER = 0.84  # standard errors: a jump so far above what is needed is found in 80% of cases
Floats = NDArray[np.float64]


class Jump(NamedTuple):
    """The jump at the registered date, and at each placebo date."""

    jump: float
    placebos: dict[date, float]

    @property
    def p(self) -> float:
        """The rank of the jump among those at all dates, as a share."""
        return (1 + sum(of >= self.jump for of in self.placebos.values())) / (1 + len(self.placebos))

    @property
    def can_show(self) -> float:
        """The jump that is above all placebos in 80% of cases, if it varies as they do."""
        jumps = list(self.placebos.values())
        return max(jumps) + POWER * float(np.std(jumps, ddof=1))


def quarter_of(day: date) -> int:
    """The number of a day's quarter, counted from the year 0."""
    return day.year * 4 + (day.month - 1) // 3


def first_day(quarter: int) -> date:
    """The first day of a quarter."""
    return date(quarter // 4, quarter % 4 * 3 + 1, 1)


def differences(scores: Floats, others: Floats, packages: Sequence[str]) -> Floats:
    """Each text's score by one model minus that by another, minus the mean of that in its package, (N,)."""
    number = np.unique(packages, return_inverse=True)[1]
    of_text = scores - others
    return of_text - (np.bincount(number, of_text) / np.bincount(number))[number]


def find_jump(difference: Floats, quarters: NDArray[np.int64], day: date, window: int) -> Jump:
    """The mean of the quarters before a day minus that of those after it, and the same at each placebo date.

    ValueError where a window has no texts.
    """
    at = quarter_of(day)
    dates = range(int(quarters.min()) + window, int(quarters.max()) - window + 2)

    def jump(at: int) -> float:
        before, after = ((quarters >= start) & (quarters < start + window) for start in (at - window, at))
        if not (before.any() and after.any()):
            raise ValueError(
                f"{window} quarters before or after {first_day(at)} have no texts; give texts of all quarters"
            )
        return float(difference[before].mean() - difference[after].mean())

    return Jump(jump(at), {first_day(other): jump(other) for other in dates if abs(other - at) >= window})


def by_quarter(difference: Floats, quarters: NDArray[np.int64]) -> dict[date, Interval]:
    """The mean of each quarter with its 95% interval."""
    found = {}
    for quarter in np.unique(quarters):
        of = difference[quarters == quarter]
        reach = scipy.stats.t.ppf(0.975, len(of) - 1) * of.std(ddof=1) / np.sqrt(len(of)) if len(of) > 1 else np.inf
        found[first_day(int(quarter))] = Interval(float(of.mean()), float(of.mean() - reach), float(of.mean() + reach))
    return found


def paired_auc(labels: NDArray[np.int8], scores: Floats, pairs: Sequence[str]) -> Interval:
    """The AUC of members and non-members that come in pairs, with a 95% interval over pairs (DeLong et al. 1988)."""
    order = np.argsort(pairs, kind="stable")
    of_members, of_others = placements(*split_scores(labels[order], scores[order]))
    reach = 1.96 * np.std(of_members + of_others, ddof=1) / np.sqrt(len(of_members))
    estimate = auc(labels, scores)
    return Interval(estimate, max(0.0, estimate - reach), min(1.0, estimate + reach))


def blind_of_pairs(path: Path, column: str) -> list[Result]:
    """The blind baselines of pairs: both versions of a docstring are in one fold."""
    of = load_benchmark(str(path))
    groups = np.unique(of.sources, return_inverse=True)[1]
    scores = {kind: blind_or_load(of.texts, of.labels, kind, language=of.language, groups=groups) for kind in BLIND}
    return [
        Result.of(row=BLIND_PREFIX + BLIND[kind].label, column=column, metric="auc", interval=interval, why="all alike")
        for kind, values in scores.items()
        for interval in [widen(paired_auc(of.labels, values, of.sources)) if np.ptp(values) else None]
    ]


def record_docstrings(pairs: Path | None, quarters: Path | None, models: Sequence[str]) -> list[Path]:
    """Write what these models say of each text to the folder of the records; other models' records stay. No text."""
    written = []
    if pairs:
        save("pairs", blind_of_pairs(pairs, "pairs"), paper="none", item="blind baselines", out=FOLDER / "pairs.json")
        rows = [row for model in models for row in _pair_rows(pairs, model)]
        written += [FOLDER / "pairs.json", _write(FOLDER / "pairs.parquet", rows)]
    if quarters:
        written.append(_write(FOLDER / "quarters.parquet", [_quarter_row(quarters, model) for model in models]))
    return written


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    models = {row["model"] for row in rows}
    rows = [*(row for row in read_recorded(path) if row["model"] not in models), *rows]
    if len({row["texts"] for row in rows}) > 1:
        raise ValueError(f"{path} has scores of other texts than these; remove it, and record all models again")
    write_recorded(path, rows)
    return path


def _pair_rows(path: Path, model: str) -> list[dict[str, Any]]:
    labelled = load_benchmark(str(path))
    target = Target(model=model, benchmark=str(path))
    number = np.unique(labelled.sources, return_inverse=True)[1]
    about = {"model": stem_of(model), "pairs": number.astype(np.int32)}
    return [row | about for row in rows_of(inputs_of(target, labelled), "pairs", REGISTERED["pairs"]["detectors"])]


def _quarter_row(path: Path, model: str) -> dict[str, Any]:
    """A model's log-probability per byte of each text, and the text's package and day of first release."""
    rows = read_rows(str(path))
    texts = [row["text"] for row in rows]
    stats = score_or_load(model, texts)
    sums = np.add.reduceat(stats.log_prob.astype(float), stats.offsets[:-1])
    per_byte = sums / [len(text.encode()) for text in texts]
    about = {"days": [row["date"] for row in rows], "packages": [row["field"] for row in rows]}
    made_by = {key: stats.provenance[key] for key in ("revision", "dtype")}
    return {
        "model": stem_of(model),
        "scores": per_byte.astype(np.float32),
        "texts": hash_texts(texts),
        **about,
        "made_by": json.dumps(made_by),
    }


def load_quarters() -> tuple[dict[str, Floats], NDArray[np.int64], list[str]]:
    """Each text's score by model, (N,), its quarter, and its package; empty where nothing is recorded."""
    rows = read_recorded(FOLDER / "quarters.parquet")
    if not rows:
        return {}, np.array([], np.int64), []
    quarters = np.array([quarter_of(date.fromisoformat(day)) for day in rows[0]["days"]])
    return {row["model"]: np.array(row["scores"], float) for row in rows}, quarters, rows[0]["packages"]


def load_pairs() -> tuple[dict[tuple[str, str], Interval], list[Result], int]:
    """The AUC by model and detector, the blind baselines, and how many pairs there are."""
    rows = read_recorded(FOLDER / "pairs.parquet")
    aucs = {
        (row["model"], row["detector"]): paired_auc(
            np.array(row["labels"], np.int8), np.array(row["scores"], float), row["pairs"]
        )
        for row in rows
    }
    return aucs, load_results(FOLDER / "pairs.json"), len(rows[0]["labels"]) // 2 if rows else 0
