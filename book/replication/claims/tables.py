"""Claims and their verdicts as tables, sentences and results: of a page's models, or all of them."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

import pandas as pd
from IPython.display import HTML, Markdown
from pandas.io.formats.style import Styler

from mialib.detectors import DETECTORS, symbol
from mialib.metrics import Interval, clopper_pearson
from mialib.passes.inputs import Target
from replication import BOOK_DATA, figures
from replication.claims.over_seeds import auc_over_seeds
from replication.claims.printed import AS_PRINTED, Lead, power_at
from replication.claims.scores import seeds_of
from replication.claims.spec import AS_RECORDED, NO_CORPUS, Change, Claim, Claims, Group, Side
from replication.claims.verdict import SEEDS_OF_A_VERDICT, Judgement, judge_on, verdicts_of_each, worst_of
from replication.pages import as_list
from replication.published import PAPERS
from replication.recorded import UNTOUCHED
from replication.results import DASH, NO_DIFFERENCE, TOO_SMALL, VERDICTS, Result, direction, one_seed_says
from replication.tables import METRIC_LABELS, cards, small, text_table

FORMER_FILE = BOOK_DATA / "recorded" / "claims.json"  # what former tests and rules said, as they were last judged
OTHERS = "Claims of others"
LEADS = {"holds": "ahead by {:.3f}", "fails": "behind by {:.3f}", TOO_SMALL: "a tie", "open": "perhaps no lead"}
SCALES = {
    "lab": "lab, reduced scale",
    "ladder": "ladder, reduced scale",
    "real model": "real model, fine-tuned on the members",
    "benchmark": "real model, on a benchmark",
    "own model": "own model",
}
DIFFERENCE = "difference of AUC (or TPR) [95% interval]"  # a heading
EQUAL = 0.05  # of AUC or TPR: the margin within which most claimed equalities are expected
VERDICT = "verdict"  # the metric of a result that is one in words


# --- a page's claims ---


def verdicts(models: Any, ids: Sequence[str]) -> Styler | Markdown:
    """The claims with these ids over all training seeds, in the settings of a page's models, or a sentence for none."""
    if judgements := judge_on(as_list(models), ids):
        return claims_table(judgements, as_list(models))
    return Markdown("No claim of `data/claims.yml` is tested on these models; the book's own page has the lab's.")


# --- the ledger ---


@cache
def former_verdicts() -> dict[str, Any]:
    """Former "tests" with their verdicts, and verdicts that a change of the "rules" changed: a list of rows each."""
    return json.loads(FORMER_FILE.read_text(encoding="utf-8"))


def former_tests(claim: Claim, models: Collection[str] | None = None) -> list[dict[str, Any]]:
    """The former tests of a claim, those on these models; None: all."""
    dates = {str(change.date) for change in claim.history if change.was}
    tests = [one for one in former_verdicts()["tests"] if one["claim"] == claim.id and one["until"] in dates]
    return [one for one in tests if models is None or one["model"] in models]


def claims_table(judgements: Sequence[Judgement], former_on: Collection[str] | None = None) -> Styler:
    """One row a claim and setting: published, where and what is tested, ours over the training seeds, verdict.

    The rows of a claim's former tests on the models `former_on` follow; None: of all.
    """
    rows = []
    for group in _grouped(judgements, lambda j: j.claim.id).values():
        rows += [_row(j, is_first=j is group[0]) for j in group]
        rows += [one["row"] for one in former_tests(group[0].claim, former_on)]
    caption = "Each claim's tests: verdict, difference with its interval, printed leads, and the paper's words."
    return cards(pd.DataFrame(rows), caption)


def _row(j: Judgement, is_first: bool) -> dict[str, str]:
    claim, where = j.claim, (j.setting, j.place)
    pairs = zip(j.comparisons, claim.against, j.sizes, j.leads, strict=True)
    found = [
        f"{three_digits(c.difference)} against {_describe(side, *where)}" + _beside_printed(c.difference, size, leads)
        for c, side, size, leads in pairs
    ]
    if (control := j.control) and claim.control:
        against = f"{three_digits(control.difference)} against {_describe(claim.control, *where)}"
        found.append(f"{against}, the control (seeds: {j.n_control_seeds})")
    metric = "" if claim.metric == "auc" else f"{METRIC_LABELS[claim.metric]} of "
    differences = f" {found[0]}" if len(found) == 1 else "".join(f"\n• {one}" for one in found)
    expected = "" if claim.margin is None else f" (expected within ±{claim.margin:g})"
    dates = ", ".join(str(change.date) for change in claim.history)
    fixed = f"{claim.fixed}; history: {dates}" if dates else claim.fixed
    return {
        "claim": f"{claim.claim} ({claim.paper}; test fixed {fixed})" if is_first else "",
        "verdict": f"{_verdict_in_words(j)} ({len(j.seeds)} seed{'s' if len(j.seeds) > 1 else ''}"
        f"{', which vary more than texts do' if j.seeds_dominate else ''}; {SCALES[j.scale]})",
        "where": _describe_place(j),
        DIFFERENCE: f"{metric}{_describe(claim.a, *where)}:{differences}{expected}",
        "published": claim.published if is_first else "",
    }


def _grouped(judgements: Iterable[Judgement], key: Callable[[Judgement], str]) -> dict[str, list[Judgement]]:
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for j in judgements:
        groups[key(j)].append(j)
    return groups


def by_paper(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """The tests by the paper whose claim they are of, in the book's order."""
    groups = _grouped(judgements, lambda j: PAPERS.get(j.claim.paper, OTHERS))
    return {name: groups[name] for name in (*PAPERS.values(), OTHERS) if name in groups}


def by_claim(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """The tests of each claim, with those of the claims that repeat it (at other sizes or lengths, or by TPR)."""
    return _grouped(judgements, lambda j: j.claim.repeats or j.claim.id)


def tiles(judgements: Sequence[Judgement]) -> dict[str, list[tuple[str, str]]]:
    """By paper each claim in words, with the worst verdict of its tests and repetitions; in the verdicts' order."""
    return {
        paper: sorted(
            ((group[0].claim.claim, _worst_verdict(group)) for group in by_claim(of_paper).values()),
            key=lambda tile: VERDICTS.index(tile[1]),
        )
        for paper, of_paper in by_paper(judgements).items()
    }


def tiles_html(judgements: Sequence[Judgement]) -> HTML:
    """A tile a claim, with its words."""
    return figures.verdict_tiles(tiles(judgements))


def side_aucs(claims: Claims, claim_id: str, setting: str) -> dict[str, Interval]:
    """The AUC of each side of a test over all training seeds, by what the side is: side a first, chance left out."""
    [claim] = [claim for claim, where in claims.tests() if (claim.id, where) == (claim_id, setting)]
    labels, seeds, _ = seeds_of(claims, claim, setting)
    place = claims.settings[setting]
    return {
        _describe(side, setting, place): auc_over_seeds(labels, [scores[i] for scores in seeds.values()])
        for i, side in enumerate(claim.sides)
        if not isinstance(side, str)
    }


def best_auc(claims: Claims, setting: str) -> tuple[str, Interval]:
    """The highest AUC over all training seeds of any side of any test on a setting's members and non-members."""
    everyone = (Group(of="members"), Group(of="non-members"))
    ids = {
        claim.id: None
        for claim, where in claims.tests()
        if where == setting and claim.metric == "auc" and (claim.positive, claim.negative) == everyone
    }
    aucs = [side for name in ids for side in side_aucs(claims, name, setting).items()]
    return max(aucs, key=lambda side: side[1].estimate)


def difference_of(judgements: Sequence[Judgement], claim_id: str, setting: str) -> Interval:
    """The difference that a test found; of several the one that speaks most against its claim."""
    [judgement] = [j for j in judgements if (j.claim.id, j.setting) == (claim_id, setting)]
    return _worst(judgement)


def three_digits(interval: Interval) -> str:
    """An interval in a sentence or a claim's row, without a minus before 0.000."""
    estimate, low, high = (f"{round(x, 3) + 0.0:.3f}" for x in (interval.estimate, interval.low, interval.high))
    return f"{estimate} [{low}, {high}]"


def leads(difference: Interval) -> str:
    """How far one detector is ahead of another, in words ("ahead by 0.018"), by the rule of the verdicts."""
    return LEADS[one_seed_says(difference)].format(abs(difference.estimate))


def history_table(claims: Claims, judgements: Sequence[Judgement]) -> Styler:
    """One row a change of a test or of the rule: when, what, why, what had been seen, and verdicts before and after."""
    now = {(j.claim.id, j.setting): j.verdict for j in judgements}

    def change_row(claim: str, change: Change, before: str = "", after: str = "") -> dict[str, str]:
        about = {"date": str(change.date), "what changed": change.what, "why": change.why}
        verdicts = {"verdict before": before, "verdict now": after}
        return {"claim": claim, **about, "what had been seen": change.seen, **verdicts}

    rows = [change_row("all claims", change) for change in claims.history]
    for claim in claims.claims:
        after = "\n".join(f"{name}: {now.get((claim.id, name), DASH)}" for name in claim.where)
        for change in claim.history:
            former = [one for one in former_tests(claim) if one["until"] == str(change.date)]
            before = "\n".join(f"{one['setting']}: {one['verdict']}" for one in former)
            rows.append(change_row(claim.id, change, before, after))
    ids = {claim.id for claim in claims.claims}
    rows += [one["row"] for one in former_verdicts()["rules"] if one["claim"] in ids]
    caption = "Each change of a test or of the rule, with the verdicts before and after it."
    return small(pd.DataFrame(rows).fillna(""), caption).hide(axis="index")


def _supports_plainly(j: Judgement) -> bool:
    """Whether a test's intervals lie where the claim says, whatever difference matters."""
    if j.because or len(j.seeds) < SEEDS_OF_A_VERDICT:
        return False
    return worst_of(j.claim, [direction(c.difference, j.claim.margin) for c in j.comparisons]) == "supported"


def _lies_near_a_printed_lead(j: Judgement) -> bool | None:
    pairs = [(c.difference, leads) for c, leads in zip(j.comparisons, j.leads, strict=True) if leads]
    are_near = [
        any(lead.lead - EQUAL <= ours.low and ours.high <= lead.lead + EQUAL for lead in leads) for ours, leads in pairs
    ]
    return _holds(j.claim, are_near) if pairs else None


def _holds(claim: Claim, of_each: Sequence[bool]) -> bool:
    """Of all comparisons, or of more than half of them where the claim is about most."""
    return sum(of_each) > len(of_each) / 2 if claim.most else all(of_each)


CRITERIA: dict[str, Callable[[Judgement], bool | None]] = {  # what each says of a test; None: nothing
    "the difference has the claimed sign, or lies within the margin": lambda j: _holds(
        j.claim,
        [
            c.difference.estimate > 0 if j.claim.margin is None else abs(c.difference.estimate) <= j.claim.margin
            for c in j.comparisons
        ],
    ),
    "the 95% interval lies where the claim says": _supports_plainly,
    "the verdict of this book is “supported”": lambda j: j.verdict == "supported",
    "each lead is compatible with the printed ones": lambda j: (
        _holds(j.claim, [size in (AS_PRINTED, "") for size in j.sizes]) if any(j.leads) else None
    ),
    f"each lead's whole interval lies within {EQUAL:g} of a printed one": _lies_near_a_printed_lead,
}


def tally_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """For how many claims each criterion holds in all their own tests, without repetitions; shares with intervals."""
    rows = {}
    groups = by_claim([j for j in judgements if not j.claim.repeats]).values()
    for criterion, holds in CRITERIA.items():
        of_each = [[holds(j) for j in group] for group in groups]
        of_claims = [all(tests) for tests in of_each if None not in tests]
        share = clopper_pearson(sum(of_claims), len(of_claims)) if of_claims else DASH
        rows[criterion] = {"holds": sum(of_claims), "of claims": len(of_claims), "share [95% interval]": str(share)}
    return text_table(rows, "How many claims hold here, by five criteria")


def objections_table(judgements: Sequence[Judgement], paper: str) -> Styler:
    """One row a claim of a paper with a known objection: the verdict, the objection, and our answer.

    A verdict has three parts: direction, size beside the printed leads, scale. A claim's row has its repetitions' too.
    """
    rows = []
    for group in by_claim(by_paper(judgements).get(paper, [])).values():
        where: dict[str, dict[str, None]] = {}
        for j in group:
            size = j.sizes[[c.difference for c in j.comparisons].index(_worst(j))] or "no lead printed"
            words = f", {n} words" if (n := j.claim.a.n_words.get(j.setting)) else ""
            parts = f"{j.verdict}; {size}; {SCALES[j.scale]}"
            where.setdefault(parts, {})[f"{j.setting}{words}{_metric(j)}"] = None
        verdicts = "\n".join(f"• {parts}: {'; '.join(settings)}" for parts, settings in where.items())
        if (claim := group[0].claim).objection:
            rows.append((claim.claim, verdicts, claim.objection, claim.answer))
    columns = ["claim", "verdict: direction; size; scale", "what the authors could object", "our answer"]
    caption = f"{paper}: the strongest objections that we know, and our answers."
    return cards(pd.DataFrame(rows, columns=columns), caption)


def untested_table(claims: Claims) -> Styler:
    """The papers' claims that the book does not test, and why."""
    columns = ["paper", "claim", "published", "why"]
    table = pd.DataFrame([one.model_dump() for one in claims.untested], columns=columns)
    table = table.rename(columns={"why": "why it is not tested here"})
    return small(table, "The papers' claims that this book does not test.").hide(axis="index")


def summary(judgements: Sequence[Judgement]) -> str:
    """How many verdicts of each kind, and which recorded seeds are left out; Markdown."""
    counts, n_comparisons = Counter(j.verdict for j in judgements), [len(j.comparisons) for j in judgements]
    text = f"**{len(judgements)} tests**: {', '.join(f'{counts[name]} {name}' for name in VERDICTS)}."
    if sum(n_comparisons) > len(judgements):
        text += f" They make {sum(n_comparisons)} comparisons, at most {max(n_comparisons)} each."
    if n_former := sum(len(former_tests(claim)) for claim in {j.claim.id: j.claim for j in judgements}.values()):
        former = f"{n_former} former tests are" if n_former > 1 else "One former test is"
        text += f" {former} listed too, of claims whose test was changed."
    n_seeds = {len(j.seeds) for j in judgements}
    text += f" Training seeds per test: {' to '.join(map(str, sorted({min(n_seeds), max(n_seeds)})))}."
    lines = [f"- {j.claim.id}, {j.setting}, {why}" for j in judgements for why in j.left_out]
    return "\n".join([text, "", "Recorded seeds that are left out:", "", *lines] if lines else [text])


def claim_results(judgements: Sequence[Judgement]) -> list[Result]:
    """Every comparison of every claim as a result, and the verdict of each claim in each setting as one in words."""
    found, said = [], []
    for group in _grouped(judgements, lambda j: j.claim.id).values():
        metric = group[0].claim.metric
        tests = [(j.claim.id, j.setting, [c.difference for c in j.comparisons], j.verdict) for j in group]
        for one in former_tests(group[0].claim):
            intervals = [Interval(*ends) for ends in one["intervals"]]
            tests.append((f"{one['claim']} until {one['until']}", one["setting"], intervals, one["verdict"]))
        for name, setting, intervals, verdict in tests:
            for i, interval in enumerate(intervals):
                where = {"row": name, "column": f"{setting}, comparison {i}"}
                found.append(Result.of(**where, metric=f"{metric}_difference", interval=interval))
            said.append(Result(name, setting, VERDICT, None, None, None, why=verdict))
    return found + said


# --- words ---


def _worst(judgement: Judgement) -> Interval:
    """The difference farthest from what a claim expects: the lowest, or, where equality is expected, from 0."""
    differences = [comparison.difference for comparison in judgement.comparisons]
    is_equal = judgement.claim.expect == "equivalent"
    return min(differences, key=lambda d: -abs(d.estimate) if is_equal else d.estimate)


def _worst_verdict(group: Sequence[Judgement]) -> str:
    return max((j.verdict for j in group), key=VERDICTS.index)


def count_verdicts(verdicts: Iterable[str]) -> str:
    """Count verdicts in words: "3 supported, 1 inconclusive"."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def _metric(judgement: Judgement) -> str:
    return "" if judgement.claim.metric == "auc" else f", {METRIC_LABELS[judgement.claim.metric]}"


def _beside_printed(difference: Interval, size: str, leads: Sequence[Lead]) -> str:
    """How a lead of ours compares with the printed ones, and what the paper's sample and ours can show."""
    if not leads:
        return ""
    printed, n_shown = [lead.lead for lead in leads], sum(lead.could_be_shown for lead in leads)
    across = f"{min(printed):+.3f} to {max(printed):+.3f}" if len(leads) > 1 else f"{printed[0]:+.3f}"
    least = min(abs(lead) for lead in printed if lead)
    shown = f"the paper's sample could show {n_shown} of {len(leads)}"
    ours = f"ours would find a lead of {least:.3f} in {power_at(difference, least):.0%} of cases"
    return f" ({size}: {across}; {shown}, {ours})"


def _verdict_in_words(j: Judgement) -> str:
    """The verdict, with the comparisons of several that decide it, and the verdict before the rules."""
    decisive = ""
    if len(j.comparisons) > 1 and j.verdict in ("not supported", NO_DIFFERENCE):
        pairs = zip(j.claim.against, verdicts_of_each(j.claim, j, j.leads), strict=True)
        sides = [_describe(side, j.setting, j.place) for side, verdict in pairs if verdict == j.verdict]
        decisive = f" against {', '.join(sides)}"
    rows = [one["row"] for one in former_verdicts()["rules"] if one["row"]["claim"] == f"{j.claim.id}, {j.setting}"]
    plain = rows[0]["verdict before"] if rows else j.verdict
    before = f" (before the rules: {plain})" if plain != j.verdict else ""
    because = f" ({j.because})" if j.because else ""
    return f"{j.verdict}{because}{decisive}{before}"


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
    texts = "unseen texts" if side.training == AS_RECORDED else f"texts of {side.training}"
    parts = [f"{symbol(name)} = {value:g}" for name, value in options.items() if not isinstance(value, list)]
    parts += [
        f"{chosen} chosen on a fifth" if chosen else "",
        side.model.get(setting, ""),
        "mean over snippets" if side.part == "all" else side.part or "",
        f"{side.n_words[setting]} words" if setting in side.n_words else "",
        "no corpus" if side.corpus == NO_CORPUS else f"corpus {side.corpus}" if side.corpus else "",
        f"from {side.n_training} {texts}" if side.training else "",
        f"{place.n_neighbors} a text" if side.detector == "neighbor" else "",
    ]
    label = "Probe" if side.training else DETECTORS[side.detector].label
    if side.detector == "ref" and (place.reference or "").endswith(UNTOUCHED):
        label = "Ref, to the model before fine-tuning"
    described = ", ".join(filter(None, parts))
    return f"{label} ({described})" if described else label
