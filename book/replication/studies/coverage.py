"""The page on coverage: what `mialib coverage --record` simulated (tools/simulate_coverage.py), as tables."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from replication import BOOK_DATA
from replication.results import DASH, Result, load_results

RECORDED = BOOK_DATA / "recorded" / "coverage.json"
TITLES = {
    "auc": "An AUC's interval holds the true AUC",
    "tpr": "A TPR's interval holds the true TPR",
    "auc_difference": "The interval of two detectors' AUC difference holds the true difference",
    "tpr_difference": "The interval of two detectors' TPR difference holds the true difference",
    "seeds": "The interval of a difference over three training seeds holds the true difference",
    "set": "A set without a member is called members at p ≤ 0.05",
    "set_power": "A set of members, half a standard deviation higher, is called members at p ≤ 0.05",
    "non_use": "A set is called unused at p ≤ 0.05",
}


def load_simulated() -> tuple[list[Result], dict[str, Any]]:
    """The recorded shares, and what they were made by."""
    return load_results(RECORDED), json.loads(RECORDED.read_text())["provenance"][0]


def coverage_table(results: Sequence[Result], family: str) -> pd.DataFrame:
    """A family's shares, a row a size; of an AUC's interval the lowest and the highest share of the distributions."""
    shares: dict[str, dict[str, list[Result]]] = {}
    for r in (r for r in results if r.metric == family):
        column = f"AUC {r.column.split(', ')[0]}" if family == "auc" else r.column
        shares.setdefault(r.row, {}).setdefault(column, []).append(r)
    rows = {row: {column: _cell(of) for column, of in columns.items()} for row, columns in shares.items()}
    return pd.DataFrame.from_dict(rows, orient="index").fillna(DASH)


def _cell(results: Sequence[Result]) -> str:
    if results[0].why:
        return results[0].why
    low, high = (f"{end(r.ours or 0 for r in results):.3f}" for end in (min, max))
    return low if len(results) == 1 else f"{low} to {high}"
