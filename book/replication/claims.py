"""The papers' claims as tables: `verdicts` of a page's models, and all of them. `replication.judging` judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
from IPython.display import Markdown
from pandas.io.formats.style import Styler

from mialib.detectors import DETECTORS, symbol
from mialib.metrics import Comparison, Interval, clopper_pearson
from mialib.passes.inputs import Target
from replication.claim_tests import AS_RECORDED, CHANCE, NO_CORPUS, Change, Claim, Claims, Side
from replication.figures import Tested
from replication.judging import Judgement, aucs_of, judge_on, seeds_of, verdicts_of
from replication.pages import as_list
from replication.printed_leads import AS_PRINTED, Lead, power_at, spread_between
from replication.published import PAPERS
from replication.results import DASH, NO_DIFFERENCE, SMALLEST, VERDICTS, Result, verdict
from replication.tables import METRIC_LABELS, cards, small, text_table

OTHERS = "Claims of others"
LEADS = {
    "supported": "is ahead of",
    "not supported": "is behind",
    NO_DIFFERENCE: "is level with",
    "inconclusive": "is not told apart from",
}
SCALES = {
    "lab": "lab, reduced scale",
    "ladder": "ladder, reduced scale",
    "real model": "real model",
    "own model": "own model",
}
DIFFERENCE = "difference of AUC (or TPR) [95% interval]"  # a heading
EQUAL = 0.05  # of AUC or TPR: the margin within which most claimed equalities are expected
VERDICT = "verdict"  # the metric of a result that is one in words


def verdicts(models: Any, ids: Sequence[str]) -> Styler | Markdown:
    """The claims with these ids over all training seeds, in the settings of a page's models.

    A sentence where no claim is tested on them. ValueError for an unknown id.
    """
    if judgements := judge_on(as_list(models), ids):
        return claims_table(judgements)
    return Markdown("No claim of `data/claims.yml` is tested on these models; the book's own page has the lab's.")


def answer(models: Any, ids: Sequence[str]) -> Markdown:
    """A page's answer: the verdict on the first claim tested on its models, with the difference in each setting. Of one
    more claim the same; of several, how many have which verdict, each claim by the worst of its own.

    Of several comparisons the one that speaks most against the claim; a reason is told once, and former tests where
    they came out otherwise. Empty where no claim is tested on the models. ValueError for an unknown id.
    """
    judged = judge_on(as_list(models), ids)
    groups = [of for name in ids if (of := [j for j in judged if j.claim.id == name])]
    in_full, others = (groups, []) if len(groups) <= 2 else (groups[:1], groups[1:])
    sentences, told = ["**The answer.**"] if groups else [], {""}  # reasons that have been told
    for group in in_full:
        found: dict[str, list[str]] = {}
        for j in group:
            kind = "above chance" if set(j.claim.against) == {CHANCE} else "difference"
            difference = f"{METRIC_LABELS[j.claim.metric]} {kind} {three_digits(_worst(j.claim, j.comparisons))}"
            because = "" if j.because in told else f" ({j.because})"
            told.add(j.because)
            here = f"**{j.verdict}**{because} in {j.setting} (`{j.place.model}`), {difference}"
            found.setdefault(SCALES[j.scale], []).append(here)
        said = " ".join(f"Here ({scale}): {'; '.join(of)}." for scale, of in found.items())
        sentences.append(f"*{group[0].claim.claim}* {said}")
        now, former = {j.verdict for j in group}, [j for j in judged if j.claim.former_of == group[0].claim.id]
        before = {f"{j.verdict} until {j.claim.history[0].date}": None for j in former if j.verdict not in now}
        sentences += [f"By its former tests: {', '.join(before)}."] if before else []
    if others:
        counted = _counted(map(_worst_verdict, others))
        sentences.append(f"{len(others)} more claims, each with the worst of its verdicts: {counted}.")
    return Markdown(" ".join(sentences))


def claims_table(judgements: Sequence[Judgement]) -> Styler:
    """One row a claim and setting: published, where and what is tested, ours over the training seeds, verdict."""
    rows, printed = [], ""
    for j in judgements:
        claim, where = j.claim, (j.setting, j.place)
        pairs = zip(j.comparisons, claim.against, j.sizes, j.leads, strict=True)
        found = [
            f"{three_digits(c.difference)} against {_describe(side, *where)}" + _beside_printed(c.difference, size, of)
            for c, side, size, of in pairs
        ]
        if j.control and claim.control:
            of = f"{three_digits(j.control.difference)} against {_describe(claim.control, *where)}"
            found.append(f"{of}, the control (seeds: {j.n_control_seeds})")
        metric = "" if claim.metric == "auc" else f"{METRIC_LABELS[claim.metric]} of "
        differences = f" {found[0]}" if len(found) == 1 else "".join(f"\n• {one}" for one in found)
        expected = "" if claim.margin is None else f" (expected within ±{claim.margin:g})"
        stated = f"Former test, until {claim.history[0].date}: {claim.claim}" if claim.former_of else claim.claim
        dates = "" if claim.former_of else ", ".join(str(change.date) for change in claim.history)
        fixed = f"{claim.fixed}; history: {dates}" if dates else claim.fixed
        is_new, printed = claim.id != printed, claim.id
        rows.append(
            {
                "claim": f"{stated} ({claim.paper}; test fixed {fixed})" if is_new else "",
                "verdict": f"{_said(j)} ({len(j.seeds)} seed{'s' if len(j.seeds) > 1 else ''}"
                f"{', which vary more than texts do' if j.seeds_dominate else ''}; {SCALES[j.scale]})",
                "where": _describe_place(j),
                DIFFERENCE: f"{metric}{_describe(claim.a, *where)}:{differences}{expected}",
                "published": claim.published if is_new else "",
            }
        )
    caption = "Each claim's tests: verdict, difference with its interval, printed leads, and the paper's words."
    return cards(pd.DataFrame(rows), caption)


def _worst_verdict(group: Sequence[Judgement]) -> str:
    return max((j.verdict for j in group), key=VERDICTS.index)


def _counted(verdicts: Iterable[str]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def by_paper(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """The tests as they stand (no former ones) by the paper whose claim they are of, in the book's order."""
    groups: dict[str, list[Judgement]] = {name: [] for name in (*PAPERS.values(), OTHERS)}
    for j in judgements:
        if not j.claim.former_of:
            groups[PAPERS.get(j.claim.paper, OTHERS)].append(j)
    return {name: of for name, of in groups.items() if of}


def tiles(judgements: Sequence[Judgement]) -> dict[str, list[str]]:
    """By paper the verdict of each claim that stands alone: the worst of its own tests."""
    own = {paper: [j for j in of if not j.claim.repeats] for paper, of in by_paper(judgements).items()}
    return {paper: [_worst_verdict(group) for group in by_claim(of).values()] for paper, of in own.items()}


def forest_rows(judgements: Sequence[Judgement]) -> dict[str, dict[str, Tested]]:
    """What `figures.forest` draws, {claim: {setting: its test}}: the difference that speaks most against the claim."""
    rows: dict[str, dict[str, Tested]] = {}
    for j in judgements:
        if (worst := _worst(j.claim, j.comparisons)) is not None:
            n = f" (worst of {len(j.comparisons)})" if len(j.comparisons) > 1 else ""
            metric = "" if j.claim.metric == "auc" else f", {METRIC_LABELS[j.claim.metric]}"
            rows.setdefault(j.claim.claim, {})[f"{j.setting}{metric}{n}"] = Tested(worst, j.verdict, j.claim.margin)
    return rows


def side_aucs(stated: Claims, claim_id: str, setting: str) -> dict[str, Interval]:
    """The AUC of each side of a test over all training seeds, by what the side is: side a first, chance left out."""
    [claim] = [claim.at(setting) for claim in stated.claims if claim.id == claim_id and setting in claim.where]
    labels, seeds, _ = seeds_of(stated, claim, setting)
    place = stated.settings[setting]
    pairs = zip(claim.sides, aucs_of(labels, seeds), strict=True)
    return {_describe(side, setting, place): auc for side, auc in pairs if not isinstance(side, str)}


def difference_of(judgements: Sequence[Judgement], claim_id: str, setting: str) -> Interval:
    """The difference that a test found; of several the one that speaks most against its claim."""
    [judgement] = [j for j in judgements if (j.claim.id, j.setting) == (claim_id, setting)]
    return _worst(judgement.claim, judgement.comparisons)


def three_digits(interval: Interval) -> str:
    """An interval in a sentence or a claim's row, without a minus before 0.000."""
    estimate, low, high = (f"{round(x, 3) + 0.0:.3f}" for x in (interval.estimate, interval.low, interval.high))
    return f"{estimate} [{low}, {high}]"


def leads(difference: Interval) -> str:
    """How one detector compares with another, in words ("is ahead of"), by the rule of the verdicts."""
    return LEADS[verdict(difference, matters=SMALLEST)]


def history_table(stated: Claims, judgements: Sequence[Judgement]) -> Styler:
    """One row a change of a test or of the rule: when, what, why, what had been seen, and verdicts before and after."""
    said = {(j.claim.id, j.setting): f"{j.setting}: {j.verdict}" for j in judgements}

    def verdicts_of_all(claim: Claim) -> str:
        return "\n".join(said.get((claim.id, name), f"{name}: {DASH}") for name in claim.where)

    rows = [_changed("all claims", change) for change in stated.history]
    for claim in stated.claims:
        for change in claim.history:
            before = [verdicts_of_all(former) for former in claim.former() if former.history == (change,)]
            verdicts = {"verdict before": "\n".join(before), "verdict now": verdicts_of_all(claim)}
            rows.append(_changed(claim.id, change) | verdicts)
    rules = {
        "its verdict, without and with a smallest difference that matters": ("plain_verdict", "flat_verdict"),
        "its verdict, without and with what the paper prints and could show": ("flat_verdict", "verdict"),
    }
    rows += [
        {
            "claim": f"{j.claim.id}, {j.setting}",
            "what changed": what,
            "verdict before": getattr(j, before),
            "verdict now": getattr(j, after),
        }
        for what, (before, after) in rules.items()
        for j in judgements
        if getattr(j, before) != getattr(j, after)
    ]
    caption = "Each change of a test or of the rule, with the verdicts before and after it."
    return small(pd.DataFrame(rows).fillna(""), caption).hide(axis="index")


def by_claim(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """The tests of each claim that stands alone, with those that repeat it (at other sizes or lengths, or by TPR)."""
    groups: dict[str, list[Judgement]] = {}
    for j in judgements:
        if not j.claim.former_of:
            groups.setdefault(j.claim.repeats or j.claim.id, []).append(j)
    return groups


CRITERIA: dict[str, Callable[[Judgement], bool | None]] = {  # what each says of a test; None: nothing
    "the difference has the claimed sign, or lies within the margin": lambda j: all(
        c.difference.estimate > 0 if j.claim.margin is None else abs(c.difference.estimate) <= j.claim.margin
        for c in j.comparisons
    ),
    "the 95% interval lies where the claim says": lambda j: j.plain_verdict == "supported",
    "the verdict of this book is “supported”": lambda j: j.verdict == "supported",
    "each lead lies in the prediction interval around a printed one": lambda j: (
        {size or None for size in j.sizes} <= {AS_PRINTED, None} if any(j.leads) else None
    ),
    f"each lead's whole interval lies within {EQUAL:g} of a printed one": lambda j: (
        all(
            any(lead.lead - EQUAL <= c.difference.low and c.difference.high <= lead.lead + EQUAL for lead in leads)
            for c, leads in zip(j.comparisons, j.leads, strict=True)
            if leads
        )
        if any(j.leads)
        else None
    ),
}


def tally_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """Of how many claims each criterion holds in all of their own tests, repetitions apart; shares with intervals."""
    rows = {}
    for criterion, holds in CRITERIA.items():
        of_each = [[holds(j) for j in group if not j.claim.repeats] for group in by_claim(judgements).values()]
        said = [all(tests) for tests in of_each if tests and None not in tests]
        share = clopper_pearson(sum(said), len(said)) if said else None
        rows[criterion] = {"holds": sum(said), "of claims": len(said), "share [95% interval]": str(share or DASH)}
    return text_table(rows, "How many claims hold here, by five criteria")


def spread_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """Of each claim with several tests: what they say, and by how much their differences differ."""
    rows = {}
    for claim_id, group in by_claim(judgements).items():
        worst = [
            of for j in group if (of := _worst(j.claim, j.comparisons)) and j.claim.metric == group[0].claim.metric
        ]
        if len(worst) > 1:
            estimates = [of.estimate for of in worst]
            tau = spread_between(estimates, [(of.high - of.low) / 2 / 1.96 for of in worst])
            rows[claim_id] = {
                "verdicts": _counted(j.verdict for j in group),
                "lowest to highest": f"{min(estimates):+.3f} to {max(estimates):+.3f}",
                "τ [95% interval]": three_digits(tau),
            }
    caption = "Claims with several tests: the difference that speaks most against the claim, across settings"
    return text_table(rows, caption)


def objections_table(judgements: Sequence[Judgement], paper: str) -> Styler:
    """One row a claim of a paper to whose verdict we know an objection: the verdict, the objection, and our answer.

    A verdict has three parts: direction, size beside the printed leads, scale. Those of the claim's repetitions are in
    its row.
    """
    rows = []
    for group in by_claim(by_paper(judgements).get(paper, [])).values():
        where: dict[str, dict[str, None]] = {}
        for j in group:
            differences = [c.difference for c in j.comparisons]
            size = j.sizes[differences.index(_worst(j.claim, j.comparisons))] or "no lead printed"
            words = f", {n} words" if (n := j.claim.a.n_words.get(j.setting)) else ""
            metric = "" if j.claim.metric == "auc" else f", {METRIC_LABELS[j.claim.metric]}"
            where.setdefault(f"{j.verdict}; {size}; {SCALES[j.scale]}", {})[f"{j.setting}{words}{metric}"] = None
        verdicts = "\n".join(f"• {parts}: {'; '.join(settings)}" for parts, settings in where.items())
        if (claim := group[0].claim).objection:
            rows.append((claim.claim, verdicts, claim.objection, claim.answer))
    columns = ["claim", "verdict: direction; size; scale", "what the authors could object", "our answer"]
    return cards(
        pd.DataFrame(rows, columns=columns), f"{paper}: the strongest objections that we know, and our answers."
    )


def untested_table(stated: Claims) -> Styler:
    """The claims of the papers that no test here is of, and why."""
    columns = {"paper": "paper", "claim": "claim", "published": "published", "why": "why it is not tested here"}
    table = pd.DataFrame([one.model_dump() for one in stated.untested], columns=list(columns)).rename(columns=columns)
    return small(table, "The papers' claims that no test of this book is of.").hide(axis="index")


def summary(judgements: Sequence[Judgement]) -> str:
    """How many verdicts of each kind, and which recorded seeds are left out; Markdown."""
    now = [j for j in judgements if not j.claim.former_of]
    counts = Counter(j.verdict for j in now)
    n_former, n_comparisons = len(judgements) - len(now), [len(j.comparisons) for j in now]
    text = f"**{len(now)} tests**: {', '.join(f'{counts[name]} {name}' for name in VERDICTS)}."
    if sum(n_comparisons) > len(now):
        text += f" They make {sum(n_comparisons)} comparisons, at most {max(n_comparisons)} each."
    if n_former:
        former = f"{n_former} former tests are" if n_former > 1 else "One former test is"
        text += f" {former} run too, of claims whose test was changed."
    n_seeds = {len(j.seeds) for j in judgements}
    text += f" Training seeds behind each: {' to '.join(map(str, sorted({min(n_seeds), max(n_seeds)})))}."
    lines = [f"- {j.claim.id}, {j.setting}, {why}" for j in judgements for why in j.left_out]
    return "\n".join([text, "", "Recorded seeds that are left out:", "", *lines] if lines else [text])


def claim_results(judgements: Sequence[Judgement]) -> list[Result]:
    """Every comparison of every claim as a result, and the verdict of each claim in each setting as one in words."""
    found = []
    for j in judgements:
        for i, c in enumerate(j.comparisons):
            where = {"row": j.claim.id, "column": f"{j.setting}, comparison {i}"}
            found.append(Result.of(**where, metric=f"{j.claim.metric}_difference", interval=c.difference))
    said = [Result(j.claim.id, j.setting, VERDICT, None, None, None, why=j.verdict) for j in judgements]
    return found + said


def _beside_printed(difference: Interval, size: str, leads: Sequence[Lead]) -> str:
    """How a lead of ours compares with the printed ones, and what the paper's sample and ours can show."""
    if not leads:
        return ""
    printed, n_shown = [lead.lead for lead in leads], sum(lead.could_be_shown for lead in leads)
    across = f"{min(printed):+.3f} to {max(printed):+.3f}" if len(leads) > 1 else f"{printed[0]:+.3f}"
    least = min(abs(lead) for lead in printed if lead)
    found = power_at(difference, least)
    shown = f"the paper's sample could show {n_shown} of {len(leads)}"
    return f" ({size}: {across}; {shown}; our power for {least:.3f}: {found:.0%})"


def _said(judgement: Judgement) -> str:
    """The verdict, with the comparisons of several that decide it, and the verdict without the rule."""
    decisive = ""
    if len(judgement.comparisons) > 1 and judgement.verdict in ("not supported", NO_DIFFERENCE):
        pairs = zip(
            judgement.claim.against, verdicts_of(judgement.claim, judgement.comparisons, judgement.leads), strict=True
        )
        where = (judgement.setting, judgement.place)
        sides = [_describe(side, *where) for side, says in pairs if says == judgement.verdict]
        decisive = f" against {', '.join(sides)}"
    before = f" (before the rules: {judgement.plain_verdict})" if judgement.plain_verdict != judgement.verdict else ""
    because = f" ({judgement.because})" if judgement.because else ""
    return f"{judgement.verdict}{because}{decisive}{before}"


def _changed(claim: str, change: Change) -> dict[str, str]:
    about = {
        "date": str(change.date),
        "what changed": change.what,
        "why": change.why,
        "what had been seen": change.seen,
    }
    return {"claim": claim, **about, "verdict before": "", "verdict now": ""}


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
        f"{one.of} of part {one.group[0]} of {one.group[1]}" if one.group else one.of
        for one in (claim.positive, claim.negative)
    ]
    length = f" at {place.n_words} words" if place.n_words else ""
    of_groups = "" if groups == ["members", "non-members"] else f" ({' − '.join(groups)})"
    return f"{judgement.setting}: {model} on {place.benchmark}{length}{of_groups}"


def _describe(side: Side | str, setting: str, place: Target) -> str:
    """What is particular to one side of a comparison, in a few words; chance by its name."""
    if isinstance(side, str):
        return side
    options = side.resolved_options()
    chosen = ", ".join(symbol(name) for name, value in options.items() if isinstance(value, list))
    parts = [f"{symbol(name)} = {value:g}" for name, value in options.items() if not isinstance(value, list)]
    parts += [
        f"{chosen} chosen on a fifth" if chosen else "",
        side.model.get(setting, ""),
        "mean over snippets" if side.part == "all" else side.part or "",
        f"{side.n_words[setting]} words" if setting in side.n_words else "",
        "no corpus" if side.corpus == NO_CORPUS else f"corpus {side.corpus}" if side.corpus else "",
        f"from {side.n_training} {'unseen texts' if side.training == AS_RECORDED else f'texts of {side.training}'}"
        if side.training
        else "",
        f"{place.n_neighbors} a text" if side.detector == "neighbor" else "",
    ]
    label = "Probe" if side.training else DETECTORS[side.detector].label
    said = ", ".join(filter(None, parts))
    return f"{label} ({said})" if said else label
