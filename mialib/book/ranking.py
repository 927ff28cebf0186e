"""Which detector when: all of them on the same texts, over models, lengths and seeds, with and without a shift.

A block is one model, from one training seed, on one benchmark cut to one length. In it each likelihood detector that
applies, with its paper's hyperparameters, has an AUC on the same texts.

blocks     gather: the live seed's, and those that `mialib record` keeps as ranks in `data/recorded/ranking.parquet`
ranks      rank: Friedman's test and Nemenyi's critical difference over blocks (Demsar 2006)
intervals  over_blocks: mean AUCs and their differences, with intervals for texts and seeds that blocks share
tables     overall_table, when_table, group_table
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mialib.book.profile import load_profile
from mialib.book.results import DASH, Result
from mialib.book.seeds import of_seed, read_recorded, recipes, write_recorded
from mialib.catalog.corpora import reference_texts
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import Comparison, Interval, aucs, compared, placements, split_scores
from mialib.passes.inputs import (
    SIGNIFICANT,
    Inputs,
    Target,
    cut_inputs,
    load_inputs,
    one_for_each,
    score_all,
    split_lengths,
    targets,
    whole_numbers,
)
from mialib.store import ROOT, hash_of, hash_texts

if TYPE_CHECKING:
    import pandas as pd

RECORDED_FILE = ROOT / "data" / "recorded" / "ranking.parquet"
PAGE = "which_detector"  # whose parameters in the profile say what is recorded
OWN, SHIFTED = "without a shift", "with a shift"
BASELINE = "ppl"  # what each detector is held against

logger = logging.getLogger(__name__)


# --- blocks ---


@dataclass(frozen=True)
class Block:
    """Every applicable detector's scores of the same N texts, under one model from one training seed."""

    model: str  # without the seed
    benchmark: str
    n_words: int  # what the texts were cut to
    seed: int
    condition: str  # OWN or SHIFTED
    texts: NDArray[np.int64]  # (N,): a hash of each whole text, by which blocks know the texts that they share
    labels: NDArray[np.int8]  # (N,), 1 = member
    scores: Mapping[str, NDArray[Any]]  # (N,) each; of a recorded seed their ranks, which give the same AUC

    @property
    def cell(self) -> tuple[str, str, int]:
        """What the block is besides its seed."""
        return self.model, self.benchmark, self.n_words

    @cached_property
    def placed(self) -> dict[str, FloatArray]:
        """Each text's placement, (N,): the share of the other class that it lies on the right side of."""
        found = {}
        for name, scores in self.scores.items():
            above, below = placements(*split_scores(self.labels, scores))
            found[name] = np.empty(len(self.labels))
            found[name][self.labels == 1], found[name][self.labels == 0] = above, below
        return found

    @cached_property
    def auc_of(self) -> dict[str, float]:
        """Each detector's AUC; from its rank sum, so that detectors of one rank sum tie exactly."""
        found = aucs(self.labels, np.stack(list(self.scores.values())))
        return dict(zip(self.scores, found.tolist(), strict=True))

    def auc(self, detector: str) -> float:
        """One detector's AUC."""
        return self.auc_of[detector]


@dataclass(frozen=True)
class Gathered:
    """What a page ranks: the blocks, and what is to be said of them."""

    blocks: tuple[Block, ...]  # every cell has the same seeds
    left_out: tuple[str, ...]  # lengths and recorded seeds, a line each
    provenance: tuple[dict[str, Any], ...]


def columns(models: Any, benchmarks: Any, references: Any, corpora: Any, shifted: Any) -> list[tuple[Target, str]]:
    """A notebook's parameters as targets, each with its condition.

    `shifted` holds for each model, or once for all, a benchmark whose non-members are of another kind, or "-".
    """
    own = targets(models, benchmarks, references, corpora)
    moved = [
        replace(target, benchmark=name)
        for target, name in zip(own, one_for_each(shifted, len(own), "shifted"), strict=True)
        if name
    ]
    return [(target, OWN) for target in own] + [(target, SHIFTED) for target in moved]


def gather(of_page: Sequence[tuple[Target, str]], lengths: Any, recorded: Path = RECORDED_FILE) -> Gathered:
    """The live blocks of seed 0, and the recorded ones of further seeds.

    A recorded block counts where it is of the same recipes, inputs, hyperparameters and texts as the live one; a seed
    that any cell lacks is left out of all, so that every cell has the same seeds.
    """
    live, left_out, passes = {}, [], []
    for target, condition in of_page:
        inputs = load_inputs(target)
        passes += [stats.provenance for stats in inputs.passes()]
        cuts, too_long = _cuts(inputs, lengths)
        left_out += [
            f"{target.benchmark}, {n} words: {short} of {len(inputs.labels)} texts are shorter"
            for n, short in too_long.items()
        ]
        for n_words, cut in cuts.items():
            block = _block(inputs, cut, n_words, condition)
            live[block.cell] = block, made_for(target, n_words, block.scores), texts_of(inputs, cut)
    further, stale = _recorded_blocks(live, recorded)
    blocks, incomplete = complete([block for block, _, _ in live.values()] + further)
    left_out = [*dict.fromkeys(left_out), *stale, *incomplete]
    return Gathered(tuple(blocks), tuple(left_out), tuple(passes))


def _cuts(inputs: Inputs, lengths: Any) -> tuple[dict[int, Inputs], dict[int, int]]:
    """The inputs cut to each length that the texts have, and the other lengths with how many texts are too short."""
    kept, too_long = split_lengths(inputs.benchmark, whole_numbers(lengths, "lengths"))
    return {n: _cut(inputs, n) for n in kept}, too_long


def _cut(inputs: Inputs, n_words: int) -> Inputs:
    """The inputs cut; as they are where the texts are no longer than that, which saves to tokenize them anew."""
    cut = inputs.benchmark.cut(n_words)
    return replace(inputs, benchmark=cut) if cut.texts == inputs.benchmark.texts else cut_inputs(inputs, n_words)[0]


def _block(inputs: Inputs, cut: Inputs, n_words: int, condition: str, seed: int = 0) -> Block:
    scores = {name: values for name, values in score_all(cut).items() if values is not None}
    ids = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) for text in inputs.benchmark.texts]
    model = inputs.target.model.removesuffix(f"@{seed}")
    return Block(
        model, inputs.target.benchmark, n_words, seed, condition, np.array(ids, np.int64), inputs.labels, scores
    )


def made_for(target: Target, n_words: int, detectors: Iterable[str]) -> str:
    """A hash of all but the texts that a recorded block must have been computed for: the target of seed 0, length,
    recipes, and each detector's hyperparameters."""
    options = {name: DETECTORS[name].hyperparameters for name in sorted(detectors)}
    of_models = recipes(name for name in (target.model, target.reference) if name)
    return hash_of([asdict(target), n_words, options, of_models])


def texts_of(inputs: Inputs, cut: Inputs) -> str:
    """A hash of the texts that a block's scores hang on: cut, with their labels, the benchmark that models were
    trained on, and DC-PDD's reference corpus."""
    corpus = inputs.target.corpus
    return hash_of(
        [
            inputs.benchmark.revision,
            hash_texts(cut.benchmark.texts),
            inputs.labels.tolist(),
            hash_texts(reference_texts(corpus)) if corpus else None,
        ]
    )


def complete(blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """The blocks of the seeds that every cell has, and a line for each other seed."""
    cells, seeds_of = dict.fromkeys(block.cell for block in blocks), {}
    for block in blocks:
        seeds_of.setdefault(block.seed, set()).add(block.cell)
    lacking = {seed: len(cells) - len(have) for seed, have in sorted(seeds_of.items()) if len(have) < len(cells)}
    lines = [
        f"seed {seed}: {n} of {len(cells)} blocks have no recorded scores of it that fit this build"
        for seed, n in lacking.items()
    ]
    return [block for block in blocks if block.seed not in lacking], lines


# --- further seeds ---


def record(seeds: Iterable[int], path: Path = RECORDED_FILE) -> None:
    """Train and score the models of the profile's page from further seeds, and keep each detector's ranks."""
    import pyarrow as pa
    from scipy.stats import rankdata

    given, rows = load_profile().notebooks[PAGE].parameters, []
    names = ("models", "benchmarks", "references", "corpora", "shifted")
    for seed in seeds:
        for target, condition in columns(*(given[name] for name in names)):
            logger.info("seed %d: %s", seed, target.column)
            reference = of_seed(target.reference, seed) if target.reference else None
            inputs = load_inputs(replace(target, model=of_seed(target.model, seed), reference=reference))
            for n_words, cut in _cuts(inputs, given["lengths"])[0].items():
                block = _block(inputs, cut, n_words, condition, seed)
                ranks = {name: rankdata(scores, "dense").astype(np.uint16) for name, scores in block.scores.items()}
                rows.append(
                    {
                        **dict(zip(("model", "benchmark", "n_words"), block.cell, strict=True)),
                        "seed": seed,
                        "made_for": made_for(target, n_words, ranks),
                        "texts": texts_of(inputs, cut),
                        "detectors": list(ranks),
                        "ranks": [values.tolist() for values in ranks.values()],
                    }
                )
    types = {
        "model": pa.string(),
        "benchmark": pa.string(),
        "n_words": pa.int32(),
        "seed": pa.int32(),
        "made_for": pa.string(),
        "texts": pa.string(),
        "detectors": pa.list_(pa.string()),
        "ranks": pa.list_(pa.list_(pa.uint16())),  # the lowest score 1, equal scores alike: the AUC needs no more
    }
    write_recorded(path, rows, types)


def _recorded_blocks(
    live: Mapping[tuple[str, str, int], tuple[Block, str, str]], path: Path
) -> tuple[list[Block], list[str]]:
    """The recorded blocks of the live ones' cells, and a line for each that is of another test or other texts."""
    blocks, left_out = [], []
    for row in read_recorded(path):
        if (cell := (row["model"], row["benchmark"], row["n_words"])) not in live:
            continue
        block, made, texts = live[cell]
        if (row["made_for"], row["texts"]) == (made, texts):
            ranks = {
                name: np.array(values, np.uint16) for name, values in zip(row["detectors"], row["ranks"], strict=True)
            }
            blocks.append(replace(block, seed=row["seed"], scores=ranks))
        else:
            what = "another test" if row["texts"] == texts else "other texts"
            name = f"{cell[0]} on {cell[1]}, {cell[2]} words"
            left_out.append(f"{name}, seed {row['seed']}: recorded for {what}")
    return blocks, left_out


# --- ranks over blocks ---


@dataclass(frozen=True)
class Ranking:
    """How detectors place over blocks; by mean rank, the best (1) first."""

    detectors: tuple[str, ...]
    mean_rank: FloatArray  # (D,)
    left_out: Mapping[str, int]  # a detector that some blocks lack, and how many
    n_blocks: int
    p_value: float | None  # Friedman's test; None for fewer than 2 blocks or 3 detectors
    critical_difference: float | None  # Nemenyi's, at 5%, in ranks; None where there is no test
    not_apart: tuple[tuple[str, ...], ...]  # runs of detectors whose ranks lie no further apart than that


def applicable(blocks: Sequence[Block]) -> tuple[list[str], dict[str, int]]:
    """The detectors that all blocks have, in the registry's order, and the others with how many blocks lack them."""
    lacking = {
        name: n for name in DETECTORS if 0 < (n := sum(name not in block.scores for block in blocks)) < len(blocks)
    }
    return [name for name in DETECTORS if all(name in block.scores for block in blocks)], lacking


def rank(blocks: Sequence[Block]) -> Ranking:
    """Average ranks, Friedman's test and Nemenyi's critical difference (Demsar 2006, Eq. 4), over the detectors that
    all blocks have.

    The test takes blocks for independent. Blocks that share texts or models are not, and it is then too sure.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    detectors, left_out = applicable(blocks)
    by_block = np.array([[block.auc(name) for name in detectors] for block in blocks])  # (B, D)
    mean = rankdata(-by_block, axis=1).mean(axis=0)
    n, k = by_block.shape
    p_value = critical = None
    if n >= 2 and k >= 3:
        same = np.ptp(by_block, axis=1).max() == 0  # the statistic is 0 / 0 where every block is one tie
        p_value = 1.0 if same else float(friedmanchisquare(*by_block.T).pvalue)
        quantile = studentized_range.ppf(1 - SIGNIFICANT, k, np.inf) / np.sqrt(2)
        critical = float(quantile * np.sqrt(k * (k + 1) / (6 * n)))
    order = np.argsort(mean, kind="stable")
    names, mean = tuple(detectors[i] for i in order), mean[order]
    apart = {
        pair: critical is not None and mean[names.index(pair[1])] - mean[names.index(pair[0])] > critical
        for pair in combinations(names, 2)
    }
    return Ranking(names, mean, left_out, n, p_value, critical, runs(names, apart))


def runs(names: Sequence[str], apart: Mapping[tuple[str, str], bool]) -> tuple[tuple[str, ...], ...]:
    """The longest runs of two or more neighbors in an order of which no pair is apart; no run lies within another.

    `apart` says it of each pair, the first in the order first.
    """
    found: list[tuple[str, ...]] = []
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not any(apart[names[i], names[end]] for i in range(start, end)):
            end += 1
        if end - start > 1 and not (found and names[end - 1] in found[-1]):
            found.append(tuple(names[start:end]))
    return tuple(found)


# --- intervals ---


@dataclass(frozen=True)
class Averaged:
    """Detectors' AUCs averaged over blocks, with what their intervals need.

    The variance has two parts, as in `compare_auc_over_seeds`. That over texts is DeLong's, of each text's placements
    *summed over all blocks that it is in*, so that texts which blocks share count once. That over training seeds is the
    variance between the seeds' averages over all cells; blocks of one seed may go together in any way. Intervals cover
    other texts and other seeds, for these models, corpora and lengths. A bootstrap over three seeds would make their
    part a third too small, and knows ten resamples; here a t interval has Satterthwaite's degrees of freedom.
    """

    detectors: tuple[str, ...]
    by_seed: FloatArray  # (S, D): the mean AUC of each training seed's blocks
    influence: FloatArray  # (T, D): of each of the T different texts; its squares sum to the variance over texts
    n_texts: tuple[int, int]  # members and non-members, of the block that has the fewest

    def mean_auc(self, detector: str, level: float = 0.95) -> Interval:
        """A detector's mean AUC."""
        found = self._compare(self._weight(detector), 0.5, level).difference
        low, high = (min(1.0, max(0.0, 0.5 + end)) for end in (found.low, found.high))
        return Interval(0.5 + found.estimate, low, high, level)

    def difference(self, a: str, b: str, level: float = 0.95) -> Comparison:
        """The mean AUC of `a` minus that of `b`, on the same blocks."""
        return self._compare(self._weight(a) - self._weight(b), 0.0, level)

    def _weight(self, detector: str) -> FloatArray:
        return np.eye(len(self.detectors))[self.detectors.index(detector)]

    def _compare(self, weight: FloatArray, chance: float, level: float) -> Comparison:
        estimates = self.by_seed @ weight - chance
        # A single text of a class says nothing of its spread.
        of_texts = float(np.sum((self.influence @ weight) ** 2)) if min(self.n_texts) > 1 else np.inf
        n = len(estimates)
        parts = [(float(estimates.var(ddof=1) / n), n)] if n > 1 else []
        return compared(float(estimates.mean()), of_texts, parts, self.n_texts, level)


def average(blocks: Sequence[Block], detectors: Sequence[str] | None = None) -> Averaged:
    """Average over blocks, of the detectors that all of them have; ValueError where not every cell has each seed."""
    names = tuple(applicable(blocks)[0] if detectors is None else detectors)
    seeds = sorted({block.seed for block in blocks})
    if len(blocks) != len(seeds) * len({block.cell for block in blocks}):
        raise ValueError(f"{len(blocks)} blocks of {len(seeds)} training seeds: every cell needs a block of each seed")
    _, texts = np.unique(np.concatenate([block.texts for block in blocks]), return_inverse=True)
    influence, by_seed, at = np.zeros((texts.max() + 1, len(names))), np.zeros((len(seeds), len(names))), 0
    for block in blocks:
        placed = np.stack([block.placed[name] for name in names], axis=1)  # (N, D)
        of_block = np.zeros_like(placed)
        for own in (block.labels == 1, block.labels == 0):
            n = int(own.sum())
            of_block[own] = (placed[own] - placed[own].mean(axis=0)) / np.sqrt(n * max(n - 1, 1)) / len(blocks)
        np.add.at(influence, texts[at : at + len(placed)], of_block)
        by_seed[seeds.index(block.seed)] += placed[block.labels == 1].mean(axis=0) * len(seeds) / len(blocks)
        at += len(placed)
    n_members, n_non_members = (min(int((block.labels == label).sum()) for block in blocks) for label in (1, 0))
    return Averaged(names, by_seed, influence, (n_members, n_non_members))


@dataclass(frozen=True)
class Order:
    """Detectors by their mean AUC over blocks, the highest first, and which of them can be told apart."""

    detectors: tuple[str, ...]
    mean_auc: FloatArray  # (D,)
    lead: Interval | None  # the first's AUC minus the second's; simultaneous, None for a single detector
    beside_best: tuple[str, ...]  # those that can't be told from the first
    not_apart: tuple[tuple[str, ...], ...]


def order(blocks: Sequence[Block]) -> Order:
    """The detectors that all blocks have by mean AUC, every pair compared.

    Which two are first is known from the same AUCs only, so the level is 95% for all pairs at once (Bonferroni).
    """
    averaged = average(blocks)
    mean = averaged.by_seed.mean(axis=0)
    best_first = np.argsort(-mean, kind="stable")
    names = tuple(averaged.detectors[i] for i in best_first)
    pairs = list(combinations(names, 2))
    level = 1 - SIGNIFICANT / max(1, len(pairs))
    intervals = {pair: averaged.difference(*pair, level).difference for pair in pairs}
    apart = {pair: interval.low > 0 for pair, interval in intervals.items()}
    beside_best = tuple(name for name in names[1:] if not apart[names[0], name])
    return Order(names, mean[best_first], intervals[pairs[0]] if pairs else None, beside_best, runs(names, apart))


@dataclass(frozen=True)
class OrderLine:
    """Detectors along a line, by the papers' labels: what `figures.order_diagrams` draws."""

    places: Mapping[str, float]
    not_apart: tuple[tuple[str, ...], ...]
    critical_difference: float | None = None


def by_rank(blocks: Sequence[Block]) -> OrderLine:
    """Mean ranks, with Nemenyi's critical difference."""
    found = rank(blocks)
    return _line(found.detectors, found.mean_rank, found.not_apart, found.critical_difference)


def by_auc(blocks: Sequence[Block]) -> OrderLine:
    """Mean AUCs, with simultaneous paired intervals over texts and seeds."""
    found = order(blocks)
    return _line(found.detectors, found.mean_auc, found.not_apart, None)


def _line(
    detectors: Sequence[str], values: FloatArray, not_apart: Sequence[Sequence[str]], critical: float | None
) -> OrderLine:
    labels = {name: DETECTORS[name].label for name in detectors}
    together = tuple(tuple(labels[name] for name in run) for run in not_apart)
    return OrderLine(dict(zip(labels.values(), values.tolist(), strict=True)), together, critical)


# --- groups ---


def conditions(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """The blocks of each condition, and those without a shift where the most detectors apply, where these are fewer."""
    found = {name: [block for block in blocks if block.condition == name] for name in (OWN, SHIFTED)}
    most = max(len(block.scores) for block in found[OWN])
    every = [block for block in found[OWN] if len(block.scores) == most]
    if len(every) < len(found[OWN]):
        found[f"{OWN}, where {most} detectors apply"] = every
    return {name: own for name, own in found.items() if own}


def groups(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """All blocks of a condition, then those of each benchmark, of each model, and of each benchmark at each length.

    A set of blocks comes once, under the first of its names.
    """
    named: dict[str, list[Block]] = {"all": list(blocks)}
    several = len({block.benchmark for block in blocks}) > 1
    length_of = (lambda b: f"{b.benchmark}, {b.n_words} words") if several else (lambda b: f"{b.n_words} words")
    for name_of in (lambda b: b.benchmark, lambda b: b.model, length_of):
        for block in blocks:
            named.setdefault(name_of(block), []).append(block)
    found: dict[frozenset[tuple[Any, ...]], tuple[str, list[Block]]] = {}
    for name, own in named.items():
        found.setdefault(frozenset((*block.cell, block.seed) for block in own), (name, own))
    return dict(found.values())


# --- tables ---


def overall_table(blocks: Sequence[Block]) -> pd.DataFrame:
    """One row a detector, by mean rank: rank, in how many blocks it is first, mean AUC, and that minus PPL's."""
    import pandas as pd

    ranking, averaged = rank(blocks), average(blocks)
    by_block = np.array([[block.auc(name) for name in ranking.detectors] for block in blocks])
    n_first = (by_block == by_block.max(axis=1, keepdims=True)).sum(axis=0)  # who share the first place all have it
    rows = {}
    for name, place, first in zip(ranking.detectors, ranking.mean_rank, n_first, strict=True):
        against = averaged.difference(name, BASELINE).difference
        rows[DETECTORS[name].label] = {
            "mean rank": f"{place:.2f}",
            f"first, of {len(blocks)} blocks": str(first),
            "mean AUC [95% interval]": str(averaged.mean_auc(name)),
            f"minus {DETECTORS[BASELINE].label}": DASH if name == BASELINE else str(against),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def when_table(blocks: Sequence[Block]) -> pd.DataFrame:
    """One row a group of blocks: the detector of the highest mean AUC, the next, and whether they can be told apart."""
    import pandas as pd

    rows = {}
    for name, own in groups(blocks).items():
        found = order(own)
        labels = [f"{DETECTORS[d].label} {auc:.3f}" for d, auc in zip(found.detectors, found.mean_auc, strict=True)]
        rows[name] = {
            "blocks": len(own),
            "best": labels[0],
            "next": labels[1] if len(labels) > 1 else DASH,
            "lead [95% for all pairs]": str(found.lead) if found.lead else DASH,
            "not told from the best": ", ".join(DETECTORS[d].label for d in found.beside_best) or "none",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def group_table(blocks: Sequence[Block]) -> pd.DataFrame:
    """Mean AUC and, in parentheses, mean rank of each detector in each group; ranks are over those that apply in it."""
    import pandas as pd

    rows = {}
    for name, own in groups(blocks).items():
        ranking = rank(own)
        means = dict(zip((averaged := average(own)).detectors, averaged.by_seed.mean(axis=0), strict=True))
        places = dict(zip(ranking.detectors, ranking.mean_rank, strict=True))
        rows[name] = {d.label: f"{means[n]:.3f} ({places[n]:.1f})" for n, d in DETECTORS.items() if n in means}
    table = pd.DataFrame.from_dict(rows, orient="index")
    known = [detector.label for detector in DETECTORS.values() if detector.label in table.columns]
    return table[known].fillna(DASH).rename_axis(columns="mean AUC (mean rank)")


def ranking_results(blocks: Sequence[Block]) -> list[Result]:
    """Mean AUC, mean rank (which has no interval) and, but for PPL itself, difference to PPL of each detector: a column
    a condition and group."""
    results = []
    for condition, of_condition in conditions(blocks).items():
        for group, own in groups(of_condition).items():
            column, ranking, averaged = f"{condition}: {group}", rank(own), average(own)
            for name, place in zip(ranking.detectors, ranking.mean_rank.tolist(), strict=True):
                row = DETECTORS[name].label
                results += [
                    Result.of(row=row, column=column, metric="auc", interval=averaged.mean_auc(name)),
                    Result(row=row, column=column, metric="mean_rank", ours=place, low=place, high=place),
                ]
                if name != BASELINE:
                    difference = averaged.difference(name, BASELINE).difference
                    results.append(Result.of(row=row, column=column, metric="auc_difference", interval=difference))
    return results


# --- words ---


def says(ranking: Ranking) -> str:
    """Friedman's test and the critical difference in a sentence, and which detectors were not ranked."""
    if ranking.critical_difference is None:
        text = (
            f"{_of(ranking.n_blocks, 'block')} and {_of(len(ranking.detectors), 'detector')}: Friedman's test needs at "
            "least two blocks and three detectors, so there is no critical difference."
        )
    else:
        text = (
            f"{_of(ranking.n_blocks, 'block')}, {len(ranking.detectors)} detectors: Friedman's *p* = "
            f"{ranking.p_value:.2g}, critical difference {ranking.critical_difference:.2f} ranks."
        )
    if ranking.left_out:
        lacking = ", ".join(
            f"{DETECTORS[n].label} (missing in {of} of {ranking.n_blocks})" for n, of in ranking.left_out.items()
        )
        text += f" Not ranked, since they do not apply everywhere: {lacking}."
    return text


def _of(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def describe(gathered: Gathered) -> str:
    """How many blocks there are of what, and what was left out, in Markdown."""
    blocks = gathered.blocks
    cells, n_seeds = {block.cell for block in blocks}, len({block.seed for block in blocks})
    lines = [
        f"**{_of(len(blocks), 'block')}**: {_of(len(cells), 'combination')} of model, benchmark and length, "
        f"{_of(n_seeds, 'training seed')} each."
    ]
    if gathered.left_out:
        lines += ["", "Left out:", "", *(f"- {line}" for line in gathered.left_out)]
    return "\n".join(lines)


def place_of_difference(result: Result) -> tuple[str, str, str] | None:
    """Panel, series and row of a difference over all blocks of the two conditions."""
    condition, _, group = result.column.partition(": ")
    if group != "all" or condition not in (OWN, SHIFTED):
        return None
    return "all blocks", condition, result.row
