"""What a person would answer a page's question: yes, no, partly or can't tell here, with the numbers that carry it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from IPython.display import Markdown

from mialib.detectors import DETECTORS
from mialib.metrics import Interval
from replication.claims.spec import CHANCE, NO_CORPUS, Side
from replication.claims.tables import SCALES, former_tests, three_digits
from replication.claims.verdict import (
    SEEDS_OF_A_VERDICT,
    Judgement,
    book_claims,
    judge,
    judge_on,
    judge_on_benchmarks,
    verdicts_of_each,
)
from replication.pages import as_list
from replication.recorded import UNTOUCHED
from replication.results import CONFOUNDED, DASH, NO_DIFFERENCE, SMALLEST, UNSHOWN, direction
from replication.tables import METRIC_LABELS

YES, PARTLY, NO, CANT_TELL = "Yes", "Partly", "No", "Can't tell here"
STANDING = {"supported": YES, NO_DIFFERENCE: NO, "not supported": NO}  # the other verdicts: can't tell
SAID = {YES: "yes", PARTLY: "partly", NO: "no", CANT_TELL: "undecided"}
OPPOSITE = {YES: {NO}, NO: {YES}, PARTLY: {NO}}  # what a standing in the lab is contradicted by
NAMES = {"ppl": "perplexity", "probe": "the probe"}  # where a detector's label is not what one would say
CORPORA = {
    NO_CORPUS: "without a reference corpus",
    "installed/licences": "with a corpus of licences",
    "lab/en:100k": "with a corpus of fewer docstrings",
}
WITHOUT = {"lup": "LUP", "sfo": "SFO"}
ORDER = ("supported", NO_DIFFERENCE, "inconclusive", "not supported")  # of what is said
SCORE = {"auc": "AUC", "tpr_at_5_fpr": "TPR at 5% false alarms", "tpr_at_1_fpr": "TPR at 1% false alarms"}


def answer(models: Any, ids: Sequence[str]) -> Markdown:
    """A page's answer: in words for the first claim tested on its models, a line for each other, numbers in a fold.

    Of a claim of many settings the words count, and each setting's sentence is in the fold.

    Empty where no claim is tested on the models. ValueError for an unknown id.
    """
    judged = judge_on(as_list(models), ids)
    groups = [of_claim for name in ids if (of_claim := [j for j in judged if j.claim.id == name])]
    if not groups:
        return Markdown("")
    first, *rest = groups
    there = {name: [j for j in judge_on_benchmarks(name) if j.place.model in as_list(models)] for name in ids}
    in_words, short = sentences(first), in_short(first)
    said = f"**The answer. {_standings(standing(first), first, there)}.** The claim: *{first[0].claim.claim}* "
    said += f"({tested}) " if (tested := _models(first[0])) else ""
    lines = [said + (short or in_words)]
    lines += [f"- *{group[0].claim.claim}* {_standings(by_setting(group), group, there)}." for group in rest]
    texts = [in_words] * bool(short) + [in_numbers(group, as_list(models)) for group in groups]
    fold = f"<details><summary>In numbers</summary>{''.join(f'<p>{text}</p>' for text in texts)}</details>"
    return Markdown("\n".join([lines[0], "", *lines[1:], "", fold]))


def _standings(said: str, group: Sequence[Judgement], there: Mapping[str, Sequence[Judgement]]) -> str:
    """What the models trained here say and, where they are asked, what real models say on a benchmark."""
    of_real = real_counts(there[group[0].claim.id])
    return f"{said}, with our models. {of_real}" if of_real else said


def real_counts(on_benchmarks: Sequence[Judgement]) -> str:
    """In how many tests with real models a claim stands, and in how many not; "" for none."""
    n_of = Counter(_standing_of(j) for j in on_benchmarks)
    said = ", ".join(f"{said} in {n_of[standing]}" for standing, said in SAID.items() if n_of[standing])
    return f"Of {len(on_benchmarks)} tests with real models on WikiMIA: {said}" if on_benchmarks else ""


def beside_real_models(judgements: Sequence[Judgement]) -> dict[str, dict[str, str]]:
    """By claim its standing in the lab and with real models on a benchmark, where it can be tested with these."""
    rows = {}
    for name in dict.fromkeys(j.claim.id for j in judgements):
        in_lab, there = [j for j in judgements if j.claim.id == name], judge_on_benchmarks(name)
        if there:
            against = {_standing_of(j) for j in there} & OPPOSITE.get(standing(in_lab).partition(",")[0], set())
            said = real_counts(there).partition(": ")[2]
            row = {"in the lab": standing(in_lab), "real models on WikiMIA": said, "differ": "yes" if against else ""}
            rows[in_lab[0].claim.claim] = row
    return rows


def beside_the_lab(models: Sequence[str]) -> tuple[dict[str, dict[str, str]], str]:
    """The tests that repeat a claim on models beside the lab: a row each with the lab's verdicts, and what changes."""
    stated, end = book_claims(), "-on-the-ladder"
    same = {"dc-pdd-beats-its-baselines": "dc-pdd-beats-all-baselines"}  # where the names differ
    said, rows, n_compared, n_flipped = {c.id: c.claim for c in stated.claims}, {}, 0, 0
    for j in judge_on(models, [name for name in said if name.endswith(end)]):
        own, language = j.claim.id.removesuffix(end), j.setting.split()[0]
        alike = (language, "Short English", "Repeats") if language == "English" else (language,)
        tests = [(c, setting) for c, setting in stated.tests() if c.id == same.get(own, own) and setting in alike]
        of_lab = [judge(stated, *test).verdict for test in tests]
        n_compared += bool(of_lab)
        n_flipped += {"supported", "not supported"} <= {*of_lab, j.verdict}
        here = f"{j.verdict} (seeds: {len(j.seeds)})"
        rows[f"{said[j.claim.id]} ({language})"] = {"the lab's own models": ", ".join(of_lab) or DASH, "here": here}
    return rows, f"{n_flipped or 'None'} of {n_compared} verdicts {'change' if n_flipped > 1 else 'changes'}"


def standing(group: Sequence[Judgement]) -> str:
    """Yes, no, partly or can't tell here: a claim in all its settings on a page.

    "No, as far as can be told" where one says no and another can't tell; yes likewise.
    """
    of_each = {_standing_of(j) for j in group}
    if len(of_each) == 1:
        return of_each.pop()
    return PARTLY if {YES, NO} <= of_each else f"{YES if YES in of_each else NO}, as far as can be told"


def _standing_of(j: Judgement) -> str:
    has_too_few = len(j.seeds) < SEEDS_OF_A_VERDICT and not j.is_on_benchmark
    return CANT_TELL if has_too_few else STANDING.get(j.verdict, CANT_TELL)


def by_setting(group: Sequence[Judgement]) -> str:
    """What the settings say, each where they differ; and which models judged, where the claim is about size."""
    said: dict[str, list[str]] = {}
    for j in group:
        where = book_claims().in_words.get(j.setting, j.setting).rstrip(",")
        models = f" ({of})" if (of := _models(j)) else ""
        said.setdefault(SAID[_standing_of(j)], []).append(f"{where[0].lower()}{where[1:]}{models}")
    of_each = {word: " and ".join(dict.fromkeys(where)) for word, where in said.items()}
    if len(of_each) > 1:
        first, *others = [f"{word} {of_each[word]}" for word in SAID.values() if word in of_each]
        return "; ".join([f"{first[0].upper()}{first[1:]}", *others])
    return f"{standing(group)}, {', '.join(of_each.values())}" if any(map(_models, group)) else standing(group)


def _models(j: Judgement) -> str:
    """The models of a claim on size, the larger first, and of a test beside the lab; "" for another."""
    smaller = {side.model.get(j.setting, "") for side in j.claim.against if isinstance(side, Side)} - {""}
    if len(j.claim.against) == 1 and smaller:
        return f"`{j.place.model}` against `{smaller.pop()}`"
    return f"`{j.place.model}`" if j.scale in ("ladder", "real model") else ""


def in_short(group: Sequence[Judgement]) -> str:
    """Of a claim to beat others in more than two settings: in how many it holds, and how often each other is beaten."""
    claim, models = group[0].claim, dict.fromkeys(f"`{j.place.model}`" for j in group)
    others = [side.detector for side in claim.against if isinstance(side, Side)]
    if len(group) < 3 or claim.margin or CHANCE in claim.against or claim.a.detector in others:
        return ""
    verdicts: dict[str, list[str]] = {}
    for j in group:
        for side, verdict in zip(j.claim.against, verdicts_of_each(j.claim, j, j.leads), strict=True):
            assert isinstance(side, Side)
            verdicts.setdefault(_other(side, j, False), []).append(verdict)
    said = []
    for verb, verdict in (("trails", "not supported"), ("beats", "supported")):
        names: dict[str, list[str]] = {}
        for name, of_each in verdicts.items():
            if n := of_each.count(verdict):
                among = len(of_each) if len(of_each) == len(group) else f"the {len(of_each)} tests that have it"
                count = f"in all {n}" if n == len(group) else f"in {n} of {among}"
                names.setdefault(count, []).append(name)
        said += [f"{verb} {', '.join(f'{_listed(of)} {count}' for count, of in names.items())}"] if names else []
    n_held, settings = sum(j.verdict == "supported" for j in group), [j.setting for j in group]
    where = ", ".join(models) if len(models) == len(group) else "; ".join(settings)
    held = f"It holds in {n_held or 'none'} of {len(group)} tests ({where})."
    return f"{held} {_name(claim.a, group[0])} {'; it '.join(said)}." if said else held


def sentences(group: Sequence[Judgement]) -> str:
    """What was found in each setting, a sentence each, and why it can't be told where it can't."""
    findings, reasons = [], [j.because for j in group]
    for j in group:
        where = book_claims().in_words.get(j.setting, f"{j.setting}:")
        if j.verdict != CONFOUNDED:
            findings.append(f"{' '.join(filter(None, [where, j.claim.texts]))} {_finding(j)}.")
        if len(j.seeds) < SEEDS_OF_A_VERDICT:
            reasons.append(f"a verdict takes {SEEDS_OF_A_VERDICT} training seeds; here we have {len(j.seeds)}")
        if UNSHOWN in verdicts_of_each(j.claim, j, j.leads):
            reasons.append(
                "with the paper's number of texts, some of its leads would be found in under a third of cases"
            )
    return " ".join([*findings, *(f"{reason[0].upper()}{reason[1:]}." for reason in dict.fromkeys(reasons) if reason)])


def _finding(j: Judgement) -> str:
    """ "Min-K% Prob beats perplexity and Zlib by 0.10 to 0.13 in AUC, but trails Small Ref by 0.015 in AUC"."""
    of_each = verdicts_of_each(j.claim, j, j.leads)
    subject, score = _name(j.claim.a, j), SCORE[j.claim.metric]
    if set(j.claim.against) == {CHANCE}:
        return f"{subject}'s {score} {_beside_chance(j, of_each[0])}"
    by_verdict: dict[str, list[tuple[Side, Interval]]] = {}
    for verdict, side, comparison in zip(of_each, j.claim.against, j.comparisons, strict=True):
        assert isinstance(side, Side)
        if verdict == UNSHOWN:  # of the paper's lead; ours is what it is
            verdict = direction(comparison.difference, j.claim.margin, SMALLEST)
        by_verdict.setdefault(verdict, []).append((side, comparison.difference))
    is_itself = all(isinstance(side, Side) and side.detector == j.claim.a.detector for side in j.claim.against)
    said = [_clause(j, verdict, by_verdict[verdict], is_itself) for verdict in sorted(by_verdict, key=ORDER.index)]
    if off := _left_out(j.claim.a):
        subject = f"{subject} without {_listed(off)}"
    whose = f"the {score} of {subject}" if is_itself else subject
    if len(said) == 2:
        return f"{whose} {said[0]}{', but' if 'supported' in by_verdict else ' and'} {said[1]}"
    return f"{whose} {said[0]}" if len(said) == 1 else f"{whose} {said[0]}; it {' and '.join(said[1:])}"


def _clause(j: Judgement, verdict: str, pairs: Sequence[tuple[Side, Interval]], is_itself: bool) -> str:
    """What one verdict says of the sides that have it; of the same detector, what is different about them."""
    differences = [of for _, of in pairs]
    others, by = _listed([_other(side, j, is_itself) for side, _ in pairs]), _range(differences)
    shown = ", ".join(f"{of.estimate:+.3f}".replace("-0.000", "0.000").replace("+0.000", "0.000") for of in differences)
    if j.claim.margin:
        beside = {"supported": "less than", "not supported": "more than"}.get(verdict, "perhaps more than")
        than = f"that {others}" if is_itself else others
        return f"differs from {than} by {shown}, {beside} the margin of {j.claim.margin:g}"
    if verdict == NO_DIFFERENCE:
        return f"{'is as high as' if is_itself else 'is level with'} {others} ({shown})"
    if verdict == "inconclusive":
        return f"is not significantly {'higher than' if is_itself else 'ahead of'} {others} ({shown})"
    if is_itself:
        higher = "higher" if verdict == "supported" else "lower"
        each = [f"{_range([of])} {higher} than {_other(side, j, is_itself)}" for side, of in pairs]
        return f"is {' and '.join(each)}" if len(pairs) < 3 else f"is {by} {higher} than {others}"
    return f"{'beats' if verdict == 'supported' else 'trails'} {others} by {by} in {SCORE[j.claim.metric]}"


def _beside_chance(j: Judgement, verdict: str) -> str:
    difference = j.comparisons[0].difference
    score = f"is {0.5 + difference.estimate:.3f}"
    if verdict != "inconclusive":
        return f"{score} (0.5 is chance)"
    if j.claim.margin and not difference.low <= 0 <= difference.high:
        side = f"{'above' if difference.low > 0 else 'below'} chance (0.5)"
        return f"{score}: {side}, but perhaps by less than the margin of {j.claim.margin:g}"
    return f"{score}, not significantly different from chance (0.5)"


def _name(side: Side, j: Judgement) -> str:
    if side.detector == "ref" and (j.place.reference or "").endswith(UNTOUCHED):
        return "the ratio to the model before fine-tuning"
    label = DETECTORS[side.detector].label if side.detector in DETECTORS else side.detector
    return NAMES.get(side.detector, label)


def _other(side: Side, j: Judgement, is_itself: bool) -> str:
    """The other side in words; of the same detector, what is different about it."""
    if not is_itself:
        return _name(side, j)
    if side.corpus:
        return CORPORA.get(side.corpus, "with another corpus")
    if side.part:
        return f"with the {side.part}"
    if j.setting in side.n_words and side.n_words != j.claim.a.n_words:
        return f"with texts of {side.n_words[j.setting]} words"
    if side.n_training != j.claim.a.n_training:
        return f"with {side.n_training} training texts"
    if side.training != j.claim.a.training:
        return "with real unseen texts"
    if side.model != j.claim.a.model:
        return "with a smaller model" if side.model else "after training without duplicates"
    if off := [name for name in _left_out(side) if name not in _left_out(j.claim.a)]:
        return f"without {_listed([*off, *_left_out(j.claim.a)])}"
    options = side.resolved_options()
    if options.get("entropy_threshold") == float("inf"):
        return "with low probability alone"
    if options.get("k") == 100 and "entropy_threshold" in options:
        return "with low entropy alone"
    return f"with {', '.join(f'{name} = {value:g}' for name, value in options.items())}"


def _left_out(side: Side) -> list[str]:
    """The steps of DC-PDD that a side leaves out."""
    options = {} if side.training else side.resolved_options()
    return [WITHOUT[name] for name, value in options.items() if value is False]


def _listed(names: Sequence[str]) -> str:
    head, *tail = dict.fromkeys(names)
    names = [head, *(name.removeprefix("with ") for name in tail)]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.0995 else f"{value:.3f}"


def _range(differences: Sequence[Interval]) -> str:
    values = [abs(of.estimate) for of in differences]
    ends = dict.fromkeys([_digits(min(values)), _digits(max(values))])
    return " to ".join(ends)


def _minus(side: Side | str, j: Judgement) -> str:
    """What is subtracted: "that of perplexity", "that with a = 10", 0.5."""
    is_itself = isinstance(side, Side) and side.detector == j.claim.a.detector
    return f"that {'' if is_itself else 'of '}{_other(side, j, is_itself)}" if isinstance(side, Side) else "0.5"


def in_numbers(group: Sequence[Judgement], models: Sequence[str]) -> str:
    """A claim's verdicts with intervals, models and scale, and what its former tests said."""
    claim = group[0].claim
    tests = []
    for j in group:
        against = "; ".join(
            f"minus {escape(_minus(side, j))}: {three_digits(c.difference)}"
            for side, c in zip(j.claim.against, j.comparisons, strict=True)
        )
        because, model = f" ({escape(j.because)})" if j.because else "", claim.a.model.get(j.setting, j.place.model)
        tests.append(
            f"{escape(j.setting)}, <code>{escape(model)}</code> ({SCALES[j.scale]}): "
            f"<b>{j.verdict}</b>{because}, "
            f"{METRIC_LABELS[claim.metric]} {against}"
        )
    now = {j.verdict for j in group}
    before = [
        f"{one['verdict']} until {one['until']}" for one in former_tests(claim, models) if one["verdict"] not in now
    ]
    former = f" By its former tests: {', '.join(dict.fromkeys(before))}." if before else ""
    return f"<i>{escape(claim.claim)}</i> {'. '.join(tests)}.{former}"
