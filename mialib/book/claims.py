"""The papers' claims as tables: `verdicts` of a page's models, and all of them. `mialib.book.judging` judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from IPython.display import Markdown
from pandas.io.formats.style import Styler

from mialib.book.judging import Claim, Judgement, Side, judge_on
from mialib.book.pages import as_list
from mialib.book.results import DASH, Result, unbroken
from mialib.book.tables import small, symbol
from mialib.detectors import DETECTORS
from mialib.metrics import Comparison, Interval
from mialib.passes.inputs import Target


def verdicts(models: Any, ids: Sequence[str]) -> Styler | Markdown:
    """The claims with these ids over all training seeds, in the settings of a page's models.

    A sentence where no claim is tested on them. ValueError for an unknown id.
    """
    if judgements := judge_on(as_list(models), ids):
        return claims_table(judgements)
    return Markdown("No claim of `data/claims.yml` is tested on these models; the book's own page has the lab's.")


def claims_table(judgements: Sequence[Judgement]) -> Styler:
    """One row a claim and setting: published, where and what is tested, ours over the training seeds, verdict."""
    rows, printed = [], ""
    for j in judgements:
        sides = [side if isinstance(side, str) else _describe(side, j.setting, j.place) for side in j.claim.against]
        differences = "; ".join(f"{c.difference} against {s}" for c, s in zip(j.comparisons, sides, strict=True))
        expected = "" if j.claim.margin is None else f" (expected within ±{j.claim.margin:g})"
        is_new, printed = j.claim.id != printed, j.claim.id
        of_a = _describe(j.claim.a, j.setting, j.place)
        rows.append(
            {
                "claim": f"{j.claim.claim} ({j.claim.paper}; test fixed {j.claim.fixed})" if is_new else "",
                "published": j.claim.published if is_new else "",
                "where": _describe_place(j),
                "difference of AUC [95% interval]": f"{of_a}: {differences}{expected}",
                "verdict": f"{j.verdict}{_at_chance(j)} ({len(j.seeds)} seed{'s' if len(j.seeds) > 1 else ''})",
            }
        )
    return pd.DataFrame(rows).style.hide(axis="index")


def ledger_table(judgements: Sequence[Judgement]) -> Styler:
    """One row a claim: published, this build's seed, the recorded ones, and the verdict of all, a line a setting.

    Of a claim against several others the difference that speaks most against it is shown, with how many there are.
    """
    rows: dict[str, dict[str, str]] = {}
    for j in judgements:
        n = f" (worst of {len(j.comparisons)})" if len(j.comparisons) > 1 else ""
        lines = {"verdict": f"{j.setting}: {unbroken(j.verdict)}{_at_chance(j)}"} | {
            f"{name}: difference of AUC": f"{j.setting}: {unbroken(_worst(j.claim, of) or DASH)}{n}"
            for name, of in (("this build", j.live), ("recorded seeds", j.recorded))
        }
        stated = {"claim": f"{unbroken(j.claim.paper)}: {j.claim.claim}", "verdict": "", "published": j.claim.published}
        row = rows.setdefault(j.claim.id, stated)  # the verdict early: a narrow page cuts the last columns off
        row |= {name: "<br>".join(filter(None, [row.get(name), line])) for name, line in lines.items()}
    return small(pd.DataFrame(rows.values())).hide(axis="index")


def summary(judgements: Sequence[Judgement]) -> str:
    """How many verdicts of each kind, and which recorded seeds were left out, in Markdown."""
    counts = Counter(j.verdict for j in judgements)
    of_each = ", ".join(f"{counts[name]} {name}" for name in ("supported", "not supported", "inconclusive"))
    n_seeds = [len(j.seeds) for j in judgements]
    seeds = " to ".join(map(str, sorted({min(n_seeds), max(n_seeds)})))
    text = f"**{len(judgements)} tests**: {of_each}. Training seeds behind each: {seeds}."
    lines = [f"- {j.claim.id}, {j.setting}, seed {seed}" for j in judgements for seed in j.left_out]
    return "\n".join(
        [text, "", "Left out, since recorded for another test or other texts:", "", *lines] if lines else [text]
    )


def claim_results(judgements: Sequence[Judgement]) -> list[Result]:
    """Every comparison of every claim as a result."""
    return [
        Result.of(row=j.claim.id, column=f"{j.setting}, comparison {i}", metric="auc_difference", interval=c.difference)
        for j in judgements
        for i, c in enumerate(j.comparisons)
    ]


def _at_chance(judgement: Judgement) -> str:
    """What stands beside the verdict of an equality between sides that all tell nothing."""
    return " (all sides at chance)" if judgement.all_at_chance else ""


def _worst(claim: Claim, comparisons: Sequence[Comparison]) -> Interval | None:
    """The difference farthest from what a claim expects: the lowest, or, where equality is expected, from 0."""
    differences = [comparison.difference for comparison in comparisons]
    far = (lambda d: -abs(d.estimate)) if claim.expect == "equivalent" else (lambda d: d.estimate)
    return min(differences, key=far, default=None)


def _describe_place(judgement: Judgement) -> str:
    """A setting's name, model and benchmark, and the groups of texts where a test is not of members and non-members."""
    claim, place = judgement.claim, judgement.place
    model = claim.a.model.get(judgement.setting, place.model)
    groups = [
        f"{group.of}, group {group.group[0]} of {group.group[1]}" if group.group else group.of
        for group in (claim.positive, claim.negative)
    ]
    length = f" at {place.n_words} words" if place.n_words else ""
    of_groups = "" if groups == ["members", "non-members"] else f" ({' − '.join(groups)})"
    return f"{judgement.setting}: {model} on {place.benchmark}{length}{of_groups}"


def _describe(side: Side, setting: str, place: Target) -> str:
    """What is particular to one side of a comparison, in a few words."""
    options = side.resolved_options()
    chosen = ", ".join(symbol(name) for name, value in options.items() if isinstance(value, list))
    parts = [f"{symbol(name)} = {value:g}" for name, value in options.items() if not isinstance(value, list)]
    parts += [f"{chosen} chosen on a fifth"] if chosen else []
    parts += [side.model[setting]] if setting in side.model else []
    parts += [{"all": "mean over snippets"}.get(side.part, side.part)] if side.part else []
    parts += [f"{side.n_words[setting]} words"] if setting in side.n_words else []
    parts += [f"corpus {side.corpus}"] if side.corpus else []
    parts += [f"from {side.n_training} texts of {side.training}"] if side.training else []
    parts += [f"{place.n_neighbors} a text"] if side.detector == "neighbor" else []
    label = "Probe" if side.training else DETECTORS[side.detector].label
    return label + (f" ({', '.join(parts)})" if parts else "")
