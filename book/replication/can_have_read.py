"""What models can have read of the benchmarks' two sides, from `data/can_have_read.yml`.

A model that can have read neither side, or both, is a placebo: what a detector finds on it is not membership.
"""

from typing import Literal

import pandas as pd

from mialib.shared.schema import Strict, read_yaml
from replication import BOOK_DATA, tables
from replication.real import REAL, stem_of

PATH = BOOK_DATA / "can_have_read.yml"


class Answer(Strict):
    """Whether a model can have read one side of a benchmark."""

    answer: Literal["yes", "likely", "unknown", "unlikely", "no"]
    why: str


class CanHaveRead(Strict):
    """Sides of benchmarks, in words, where these are from, and each model's answers by side; `known` is of its data."""

    sides: dict[str, str]
    sources: dict[str, str]
    models: dict[str, dict[str, Answer | str]]


def can_have_read() -> CanHaveRead:
    """The file's content, checked."""
    return read_yaml(PATH, CanHaveRead)


def has_read_neither(recorded: str, benchmark: str) -> bool:
    """Whether `real/NAME`, a recorded model, can have read no side of a benchmark: a clean placebo.

    ValueError for a model of which the file says nothing.
    """
    family, all_of = benchmark.removeprefix(REAL).partition("-")[0], can_have_read()
    answers = next((of for name, of in all_of.models.items() if REAL + stem_of(name) == recorded), None)
    if answers is None:
        raise ValueError(f"say in data/can_have_read.yml what {recorded} can have read")
    sides = [answer for side, answer in answers.items() if side.partition(",")[0] == family]
    return all(isinstance(of, Answer) and of.answer == "no" for of in sides)


def table(model: str) -> pd.DataFrame:
    """What a model can have read: a row for each side, with the answer and why."""
    all_of = can_have_read()
    rows = {
        side: {"texts": what, "read?": found.answer, "why": found.why}
        for side, what in all_of.sides.items()
        if isinstance(found := all_of.models[model][side], Answer)
    }
    return tables.text_table(rows, f"What {model.rpartition('/')[2]} can have read")


def every_model() -> pd.DataFrame:
    """Every model's answers: a row a side, a column a model."""
    all_of = can_have_read()
    answers = {
        side: {
            model.rpartition("/")[2]: found.answer
            for model, of in all_of.models.items()
            if isinstance(found := of[side], Answer)
        }
        for side in all_of.sides
    }
    rows = {f"{side}: {all_of.sides[side]}": row for side, row in answers.items()}
    return tables.text_table(rows, "What each model can have read")
