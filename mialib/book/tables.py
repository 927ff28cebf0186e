"""The book's tables: results, comparisons and cards as DataFrames of text, ready to be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Markdown
from pandas.io.formats.style import Styler

from mialib.book.claims import Claim, Judgement, Setting, Side
from mialib.book.examples import ranks
from mialib.book.profile import load_profile
from mialib.book.recorded import Recording
from mialib.book.results import DASH, ONE_SEED, Result, one_seed_says, unbroken
from mialib.catalog.api import is_api
from mialib.catalog.corpora import reference_texts
from mialib.detectors import DETECTORS
from mialib.lab.models import lab_recipe
from mialib.metrics import Comparison, Interval, mean_interval
from mialib.model_selection import symbol
from mialib.passes.inputs import Inputs, score_all
from mialib.token_stats import check_known

METRIC_LABELS = {"auc": "AUC", "tpr_at_5_fpr": "TPR at 5% FPR"}
METRIC_HEADINGS = METRIC_LABELS | {
    "tpr_at_1_fpr": "TPR at 1% FPR",
    "tpr_at_10_fpr": "TPR at 10% FPR",
    "auc_held_out": "AUC, hyperparameters chosen on other texts",
    "auc_by_times": "AUC by times seen",
    "auc_by_seed": "AUC by training seed",
    "mean_log_prob": "mean log p (nats)",
}


def results_table(results: Iterable[Result], metric: str) -> pd.DataFrame:
    """One metric as a table: rows as given, and for each column the published number and ours with its interval."""
    chosen = [result for result in results if result.metric == metric]
    if not chosen:
        raise ValueError(f"no results of metric {metric!r}")
    heading = f"{METRIC_HEADINGS.get(metric, metric)} [95% interval]"
    cells: dict[Any, dict[str, str]] = {}
    if not any(result.published_column for result in chosen):
        for result in chosen:
            cells.setdefault(result.column, {})[result.row] = str(result)
        return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=heading)
    for result in chosen:
        if result.published_column:
            printed = DASH if result.published is None else f"{result.published:.3f}{result.published_marker}"
            named = "" if result.published_column == result.column else f": {result.published_column}"
            cells.setdefault((result.column, f"published{named}"), {})[result.row] = printed
        cells.setdefault((result.column, "ours"), {})[result.row] = str(result)
    return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=[heading, ""])


def results_in_parts(results: Iterable[Result], metric: str, headings: Mapping[str, str]) -> list[pd.DataFrame]:
    """`results_table` of the columns that have a heading, under it, in tables of as many as fit a page."""
    chosen = [result for result in results if result.column in headings and result.metric == metric]
    columns = list(dict.fromkeys(result.column for result in chosen))
    at_once = 2 if any(result.published_column for result in chosen) else 4
    return [
        results_table([r for r in chosen if r.column in columns[at : at + at_once]], metric).rename(columns=headings)
        for at in range(0, len(columns), at_once)
    ]


def comparison_table(
    comparisons: dict[str, Comparison | None],
    claim: str,
    margin: float | None = None,
    p_value: str = "p (two-sided, paired DeLong)",
) -> pd.DataFrame:
    """One row a comparison: difference with interval, p-value, and whether it is positive as far as one seed can say.

    With a margin the claim is that the difference lies within ±margin; the p-value, which is of 0, is then left out.
    """
    rows = [
        {claim: str(c.difference), p_value: f"{c.p_value:.2g}", ONE_SEED: one_seed_says(c.difference, margin)}
        if c
        else {claim: DASH, p_value: DASH, ONE_SEED: "not applicable"}
        for c in comparisons.values()
    ]
    columns = [claim, p_value, ONE_SEED] if margin is None else [claim, ONE_SEED]
    return pd.DataFrame(rows, index=list(comparisons), columns=columns)


def provenance_table(provenance: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """What a page ran, one row a model; versions and profile in the corner, all content hashes in the results file."""
    rows: dict[str, dict[str, Any]] = {}
    for p in provenance:
        row = rows.setdefault(
            p["model"],
            {
                "weights": p["revision"] if is_api(p["model"]) else p["revision"].rpartition("@")[2][:10],
                "training seed": lab_recipe(p["model"]).seed if p["model"].startswith("lab/") else DASH,
                "dtype, device": f"{p['dtype']}, {p['device']}",
                "texts": {},
                "mialib": p["mialib"],
            },
        )
        row["texts"][p["texts"]] = p["n_texts"]
    for row in rows.values():
        passes = row["texts"]
        each = ", ".join(f"{n} ({name[:8]})" for name, n in passes.items())
        row["texts"] = each if len(passes) <= 2 else f"{sum(passes.values())} in {len(passes)} passes"
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(
        columns=f"profile {load_profile().name}; {libraries}"
    )


def recordings_table(recordings: Iterable[Recording]) -> pd.DataFrame:
    """What was recorded with what, a row a training."""
    rows = {}
    for recording in recordings:
        p = recording.provenance
        rows[f"{recording.model}@{recording.seed}"] = {
            "outside embeddings": f"{recording.parameters:,}",
            "learning rate": p["recipe"]["learning_rate"],
            "last loss (nats)": f"{p['final_loss_nats']:.2f}",
            "seconds": p["seconds"],
            "device": p["device"],
            "torch, transformers": f"{p['torch']}, {p['transformers']}",
            "mialib": f"code {p['code'][:10]}, commit {(p['commit'] or 'unknown')[:10]}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def entropy_table(columns: Sequence[Inputs]) -> pd.DataFrame:
    """How sure each model is on texts it has not seen: quartiles of the token entropy over non-members, in nats."""
    rows = {}
    for inputs in columns:
        check_known(["entropy"], inputs.stats.lacks, "a table of entropies")
        entropy = np.concatenate(
            [row.entropy for row, label in zip(inputs.stats, inputs.labels, strict=True) if not label]
        )
        low, middle, high = np.quantile(entropy, [0.25, 0.5, 0.75])
        rows[inputs.target.column] = {
            "lower quartile": f"{low:.2f}",
            "median": f"{middle:.2f}",
            "upper quartile": f"{high:.2f}",
            "tokens below 2.5 nats": f"{np.mean(entropy < 2.5):.0%}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def loss_table(columns: Sequence[Inputs]) -> pd.DataFrame:
    """Mean loss a token on members and on non-members, in nats."""
    rows = {}
    for inputs in columns:
        loss = -score_all(inputs, ["ppl"])["ppl"]
        of_members, of_non_members = loss[inputs.labels == 1].mean(), loss[inputs.labels == 0].mean()
        rows[inputs.target.column] = {
            "members (nats)": f"{of_members:.3f}",
            "non-members (nats)": f"{of_non_members:.3f}",
            "gap (nats)": f"{of_non_members - of_members:.3f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def corpus_table(cards: Mapping[str, dict[str, Any]]) -> pd.DataFrame:
    """One column a lab corpus: what its texts are and how they were dealt out."""
    columns = {}
    for name, card in cards.items():
        recipe, roles, n_dropped = card["recipe"], card["roles"], card["near_duplicates_dropped"]
        columns[name] = {
            "source": recipe["source"],
            "words a text": recipe["words"],
            "members": roles.get("member", DASH),
            "non-members": roles["non_member"],
            "background": roles.get("background", DASH),
            "reference texts (uncut)": roles.get("reference", DASH),
            "near-duplicates": "kept" if n_dropped is None else f"{n_dropped} dropped",
            "7-word sequences of non-members that were trained on": f"{card['non_member_overlap']:.1%}",
            "tokenizer": f"byte-level BPE, {recipe['vocab_size']} tokens" if recipe["vocab_size"] else DASH,
            "seed": recipe["seed"],
            "content hash": card["content_hash"],
        }
    return pd.DataFrame(columns)


def package_table(cards: Mapping[str, dict[str, Any]]) -> pd.DataFrame:
    """How many texts of each lab corpus are from each package."""
    packages = sorted({package for card in cards.values() for package in card["packages"]})
    return pd.DataFrame(
        {name: {p: str(card["packages"].get(p, DASH)) for p in packages} for name, card in cards.items()}
    )


def model_table(cards: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """One row a lab model: its size and how it was trained, or unlearned."""
    rows = {}
    for card in cards:
        recipe = card["recipe"]
        is_trained = "layers" in recipe
        rows[card["name"]] = {
            "layers × width": f"{recipe['layers']} × {recipe['hidden_size']}" if is_trained else "as its base",
            "parameters": f"{card['parameters']:,}",
            "outside embeddings": f"{card['non_embedding_parameters']:,}",
            "members / background seen": _times_seen(recipe) if is_trained else f"{recipe['base']}, then unlearned",
            "learning rate": recipe["learning_rate"],
            "seed": recipe["seed"],
            "last loss (nats)": f"{card['final_loss_nats']:.2f}",
            "seconds": card.get("seconds", DASH),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _times_seen(recipe: Mapping[str, Any]) -> str:
    """How often a training run saw each member, from the fewest to the most times, and the background."""
    if "epochs" in recipe:  # a masked model
        return f"0 / {recipe['epochs']} times"
    repeats = recipe["member_repeats"] or [recipe["member_times"]]
    of_members = f"{min(repeats)}–{max(repeats)}" if len(repeats) > 1 else f"{repeats[0]}"
    injected = "".join(f", {corpus} {n}" for corpus, n in recipe["injected"].items())
    return f"{of_members} / {recipe['background_times']} times{injected}"


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

    Of a claim against several others the difference that tells most against it stands here, with how many there are.
    """
    rows: dict[str, dict[str, str]] = {}
    for j in judgements:
        n = f" (worst of {len(j.comparisons)})" if len(j.comparisons) > 1 else ""
        lines = {"verdict": f"{j.setting}: {unbroken(j.verdict)}{_at_chance(j)}"} | {
            f"{name}: difference of AUC": f"{j.setting}: {unbroken(_worst(j.claim, of) or DASH)}{n}"
            for name, of in (("this build", j.live), ("recorded seeds", j.recorded))
        }
        said = {"claim": f"{unbroken(j.claim.paper)}: {j.claim.claim}", "verdict": "", "published": j.claim.published}
        row = rows.setdefault(j.claim.id, said)  # the verdict early: a narrow page cuts the last columns off
        row |= {name: "<br>".join(filter(None, [row.get(name), line])) for name, line in lines.items()}
    return small(pd.DataFrame(rows.values())).hide(axis="index")


def small(table: pd.DataFrame) -> Styler:
    """A wide table in small type."""
    props = "font-size: 0.78em; padding: 0.25em 0.4em; text-align: left"
    return table.style.set_table_styles([{"selector": "td, th", "props": props}])


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
    is_usual = groups == ["members", "non-members"]
    length = f" at {place.n_words} words" if place.n_words else ""
    return f"{judgement.setting}: {model} on {place.benchmark}{length}" + (
        "" if is_usual else f" ({' − '.join(groups)})"
    )


def verdicts(judgements: Sequence[Judgement]) -> Styler | Markdown:
    """The claims of a page's models over all training seeds; a sentence where no claim is tested on them."""
    if not judgements:
        return Markdown("No claim of `data/claims.yml` is tested on these models; the book's own page has the lab's.")
    return claims_table(judgements)


def _describe(side: Side, setting: str, place: Setting) -> str:
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


def interval_table(intervals: Mapping[str, Interval], heading: str, says: Callable[[Interval], str]) -> pd.DataFrame:
    """One row an estimate with its interval and what `says` makes of it."""
    rows = {name: {heading: str(interval), ONE_SEED: says(interval)} for name, interval in intervals.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def change_table(groups: Mapping[str, Sequence[np.ndarray]], quantity: str) -> pd.DataFrame:
    """One row a group of texts: mean of a quantity before and after, and of its change with an interval over texts."""
    rows = {
        name: {
            f"{quantity}: before": f"{before.mean():.3f}",
            "after": f"{after.mean():.3f}",
            "change [95% interval]": str(mean_interval(after - before)),
        }
        for name, (before, after) in groups.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def frequency_table(corpora: Mapping[str, Inputs], beside: Mapping[str, str]) -> pd.DataFrame:
    """One row a reference corpus: its size, and how much of the vocabulary and of the texts occurs in it."""
    rows = {}
    for name, inputs in corpora.items():
        counts, texts = inputs.frequency.counts, list(reference_texts(name))
        rows[name] = {
            "stands beside": beside.get(name, DASH),
            "characters / tokens": f"{sum(map(len, texts)):,} / {inputs.frequency.n_tokens:,}",
            "seen of the vocabulary": f"{np.mean(counts > 0):.0%}",
            "seen of the benchmark": f"{np.mean(counts[inputs.stats.token_ids] > 0):.1%}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def text_table(rows: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Rows of named cells, as they are."""
    return pd.DataFrame.from_dict(rows, orient="index")


def quoted(texts: Mapping[str, str]) -> Markdown:
    """Texts by name, as they are: nothing in them is taken for Markdown."""
    blocks = [f"`{name}`\n\n~~~~text\n{fill(text, 76)}\n~~~~" for name, text in texts.items()]
    return Markdown("\n\n".join(blocks) or "There are none.")


def plain_table(results: Iterable[Result], heading: str = "") -> pd.DataFrame:
    """Counts and sizes, which have no interval, as a table of rows and columns."""
    cells: dict[str, dict[str, str]] = {}
    for result in results:
        cells.setdefault(result.column, {})[result.row] = DASH if result.ours is None else f"{result.ours:,.6g}"
    return pd.DataFrame(cells).fillna(DASH).rename_axis(columns=heading)


def pair_table(
    texts: Mapping[str, int], common: np.ndarray, scores: Mapping[str, np.ndarray], published: Mapping[str, float]
) -> pd.DataFrame:
    """One row a text, by its number: how common its words are, and its score and rank under each detector."""
    return pd.DataFrame.from_dict(
        {
            name.replace("^1", "¹").replace("^2", "²"): {
                "commonness: mean log p(x; D')": f"{common[i]:.2f}",
                **{f"{d}: score (rank of {len(v)})": f"{v[i]:.4g} ({ranks(v)[i]})" for d, v in scores.items()},
                "published: Min-K% Prob": f"{published[name]:.2f}" if name in published else DASH,
            }
            for name, i in texts.items()
        },
        orient="index",
    )


def pair_counts_table(counts: Mapping[tuple[bool, bool], int], n_pairs: int, names: tuple[str, str]) -> pd.DataFrame:
    """Pairs of a member and a non-member by which of two detectors puts them in the right order."""
    first, second = names
    said = {True: "right", False: "wrong"}
    cells: dict[str, dict[str, str]] = {}
    for (x, y), n in counts.items():
        cells.setdefault(f"{second} {said[y]}", {})[f"{first} {said[x]}"] = f"{n:,} ({n / n_pairs:.1%})"
    return pd.DataFrame(cells)
