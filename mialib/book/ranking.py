"""Which detector when: blocks, in each of which every detector has an AUC on the same texts.

A block is one model, from one training seed, on one benchmark cut to one length. In it each likelihood detector that
applies is scored. Hyperparameters of a detector that a paper tunes are chosen on each fifth of the texts in turn, and
all detectors are judged on the other four fifths: an AUC is the mean over the five. The page `which_detector` ranks
detectors over blocks and averages their AUCs; the statistics are on that page.

    gather        the blocks that `mialib record` keeps as ranks in `data/recorded/ranking.parquet`; where no seed 0 is
                  recorded, those of models of your own, say, seed 0 is computed
    groups        which blocks belong together: all, one benchmark's, one model's, one length's
    runs          which detectors a bar joins, in a diagram of their order
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.book.pages import check_enough, one_for_each, targets, whole_numbers
from mialib.book.profile import load_profile
from mialib.book.recorded import read_rows, scores_code
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import own_counts, reference_texts
from mialib.catalog.models import model_revision
from mialib.detectors import DETECTORS, FloatArray
from mialib.lab.models import of_seed, recipes_of
from mialib.metrics import placements
from mialib.model_selection import HELD_OUT, Indices, folds
from mialib.passes.inputs import Inputs, Target, cut_inputs, load_inputs, score_all, score_grid, split_lengths
from mialib.store import DATA, hash_of, hash_texts

RECORDED_FILE = DATA / "recorded" / "ranking.parquet"
KEY = ("model", "benchmark", "n_words")  # of a seed's row
PAGE = "which_detector"  # whose parameters in the profile say what is recorded
DEAR = {"neighbors", "tempered"}  # what would cost a pass or more of every model for one detector or two
OWN, SHIFTED = "without a shift", "with a shift"
AT_DEFAULT = " at its default"  # after a tuned detector's name: the same where nothing is chosen; it is not ranked

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
    texts: NDArray[np.int64]  # (N,): a hash of each whole text, which is the same in all blocks that it is in
    labels: NDArray[np.int8]  # (N,), 1 = member
    scores: Mapping[str, NDArray[Any]]  # (F, N) each, as each fold chose; of a recorded seed ranks, of the same AUC
    chosen: Mapping[str, Sequence[dict[str, float]]] = field(default_factory=dict)  # by fold

    @property
    def cell(self) -> tuple[str, str, int]:
        """What the block is besides its seed."""
        return self.model, self.benchmark, self.n_words

    @property
    def detectors(self) -> list[str]:
        """Those that apply, in the registry's order."""
        return [name for name in DETECTORS if name in self.scores]

    @cached_property
    def judged(self) -> list[Indices]:
        """The texts that each of the F folds judges: all but those that it chooses on."""
        return [test_idx for _, test_idx in folds(self.labels)]

    @cached_property
    def _placed(self) -> FloatArray:
        """Each text's placement among those that a fold judges, (detectors, F, N), NaN where it does not."""
        every = np.stack(list(self.scores.values()))
        placed = np.full(every.shape, np.nan)
        for f, test_idx in enumerate(self.judged):
            members, others = (test_idx[self.labels[test_idx] == label] for label in (1, 0))
            placed[:, f, members], placed[:, f, others] = placements(every[:, f, members], every[:, f, others])
        return placed

    @cached_property
    def placements(self) -> dict[str, FloatArray]:
        """Each text's placement, (N,), the mean over the folds that judge it: the share of the fold's texts of the
        other class that it lies on the right side of."""
        return dict(zip(self.scores, np.nanmean(self._placed, axis=1), strict=True))

    @cached_property
    def auc_by_fold(self) -> dict[str, FloatArray]:
        """Each detector's AUC on the texts that each fold judges, (F,)."""
        return dict(zip(self.scores, np.nanmean(self._placed[..., self.labels == 1], axis=2), strict=True))

    @cached_property
    def auc(self) -> dict[str, float]:
        """Each detector's AUC, the mean over the folds."""
        return {name: float(by_fold.mean()) for name, by_fold in self.auc_by_fold.items()}


@dataclass(frozen=True)
class Gathered:
    """The blocks that a page ranks, and what the page says of them."""

    blocks: tuple[Block, ...]  # every cell has the same seeds
    left_out: tuple[str, ...]  # lengths and recorded seeds, a line each
    ran: tuple[Inputs, ...]  # what was not recorded


def columns(models: Any, benchmarks: Any, references: Any, corpora: Any, shifted: Any) -> list[tuple[Target, str]]:
    """A notebook's parameters as targets, each with its condition.

    `shifted` holds for each model, or once for all, a benchmark whose non-members are of another kind, or "-".
    """
    own = targets(models, benchmarks, references, corpora)
    others = zip(own, one_for_each(shifted, len(own), "shifted"), strict=True)
    return [(target, OWN) for target in own] + [(t.but(benchmark=name), SHIFTED) for t, name in others if name]


def gather(of_page: Sequence[tuple[Target, str]], lengths: Any, recorded: Path = RECORDED_FILE) -> Gathered:
    """The blocks of each target at each length that its texts have.

    A recorded block counts where it is of the recipes, inputs, hyperparameters, texts and code of today. Seed 0 is
    computed where it is not recorded. A seed that any cell lacks is left out of all, so that every cell has the same.
    """
    blocks, left_out, ran = [], [], []
    rows, of_other_code = read_rows(recorded), []
    for target, condition in of_page:
        benchmark = load_benchmark(target.benchmark)
        check_enough(target.benchmark, benchmark.labels, round(1 / HELD_OUT))
        possible, too_long = split_lengths(benchmark, whole_numbers(lengths, "lengths"))
        for n_words, short in too_long.items():
            left_out.append(f"{target.benchmark}, {n_words} words: {short} of {len(benchmark.texts)} texts are shorter")
        inputs = None
        for n_words in possible:
            cell = (target.model, target.benchmark, n_words)
            texts, found = texts_of(benchmark, n_words, target.corpus), []
            for row in [row for row in rows if (row["model"], row["benchmark"], row["n_words"]) == cell]:
                if row.get("code") != _code():  # a file from before it was recorded has none
                    of_other_code.append(row["seed"])
                elif recorded_for := _recorded_for(row, target, n_words, texts):
                    of_row = f"{target.model} on {target.benchmark}, {n_words} words, seed {row['seed']}"
                    left_out.append(f"{of_row}: recorded for {recorded_for}")
                else:
                    found.append(_recorded_block(row, benchmark, condition))
            if 0 not in {block.seed for block in found}:
                inputs = inputs or load_inputs(target)
                found.append(_block(inputs, cut_inputs(inputs, n_words)[0], n_words, condition))
            blocks += found
        ran += [inputs] if inputs else []
    if of_other_code:
        seeds = ", ".join(map(str, sorted(set(of_other_code))))
        left_out.append(
            f"{len(of_other_code)} recorded blocks (seeds {seeds}): another version of the code computed their scores; "
            "`mialib record` computes them anew"
        )
    blocks, incomplete = complete(blocks)
    return Gathered(tuple(blocks), (*dict.fromkeys(left_out), *incomplete), tuple(ran))


def _block(inputs: Inputs, cut: Inputs, n_words: int, condition: str, seed: int = 0) -> Block:
    model, benchmark = inputs.target.model.removesuffix(f"@{seed}"), inputs.target.benchmark
    scores, chosen = {}, {}
    ranked = [name for name, known in DETECTORS.items() if not DEAR & set(known.needs)]
    for name, at_default in score_all(cut, ranked).items():
        if at_default is None:
            continue
        by_fold = score_grid(cut, name).by_fold(inputs.labels)  # without a grid the default is the one candidate
        scores[name] = by_fold.scores
        if DETECTORS[name].grid:
            chosen[name] = by_fold.options
            scores[name + AT_DEFAULT] = np.broadcast_to(at_default, by_fold.scores.shape)
    return Block(model, benchmark, n_words, seed, condition, _numbers(inputs.texts), inputs.labels, scores, chosen)


def _numbers(texts: Sequence[str]) -> NDArray[np.int64]:
    """A hash of each text, (N,)."""
    return np.array([int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) for text in texts], np.int64)


def made_for(target: Target, n_words: int, detectors: Iterable[str]) -> str:
    """A hash of all but the texts that a recorded block must have been computed for: the target of seed 0, length,
    recipes, and each detector's hyperparameters and their candidates; `detectors` as a block names its scores."""
    fields = {name: getattr(target, name) for name in ("model", "benchmark", "reference", "corpus", "published")}
    known = sorted(set(detectors) & DETECTORS.keys())  # and not those that are at their default besides
    options = {name: [DETECTORS[name].hyperparameters, DETECTORS[name].grid] for name in known}
    recipes = recipes_of(name for name in (target.model, target.reference) if name)
    return hash_of([fields, n_words, options, recipes])


def weights_of(target: Target) -> str:
    """A hash of the weights and tokenizers of a target's models."""
    return hash_of([model_revision(name) for name in (target.model, target.reference) if name])


def texts_of(benchmark: Benchmark, n_words: int, corpus: str | None) -> str:
    """A hash of the texts that a block's scores depend on: cut, with their labels and the fold that each chooses in,
    the benchmark that models were trained on, and DC-PDD's reference corpus."""
    cut, counts = benchmark.cut(n_words), own_counts(corpus) if corpus else None
    of_corpus = (hash_of(counts.counts.tolist()) if counts else hash_texts(reference_texts(corpus))) if corpus else None
    chosen_on = [val_idx.tolist() for val_idx, _ in folds(benchmark.labels)]
    return hash_of([benchmark.revision, hash_texts(cut.texts), benchmark.labels.tolist(), chosen_on, of_corpus])


def complete(blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """The blocks of the seeds that every cell has, and a line for each other seed."""
    cells, cells_of = {block.cell for block in blocks}, {}
    for block in blocks:
        cells_of.setdefault(block.seed, set()).add(block.cell)
    lacking = {seed: len(cells) - len(found) for seed, found in sorted(cells_of.items()) if found != cells}
    lines = [
        f"seed {seed}: {n} of {len(cells)} blocks have no recorded scores of it that fit this build"
        for seed, n in lacking.items()
    ]
    return [block for block in blocks if block.seed not in lacking], lines


# --- recorded seeds ---


def rows_of(seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Each detector's ranks under the models of the profile's page, trained from these seeds: what is recorded.

    Seed 0 is the model that is stored.
    """
    given, rows, code = load_profile().notebooks[PAGE].parameters, [], _code()
    names = ("models", "benchmarks", "references", "corpora", "shifted")
    for seed in seeds:
        for target, condition in columns(*(given[name] for name in names)):
            logger.info("seed %d: %s", seed, target.column)
            reference = target.reference and of_seed(target.reference, seed)
            inputs = load_inputs(target.but(model=of_seed(target.model, seed), reference=reference))
            for n_words in split_lengths(inputs.benchmark, whole_numbers(given["lengths"], "lengths"))[0]:
                block = _block(inputs, cut_inputs(inputs, n_words)[0], n_words, condition, seed)
                row = {"model": target.model, "benchmark": target.benchmark, "n_words": n_words, "seed": seed}
                texts = texts_of(inputs.benchmark, n_words, target.corpus)
                row |= {"made_for": made_for(target, n_words, block.scores), "texts": texts, "code": code}
                row["weights"] = weights_of(inputs.target)
                ranks, of_fold = zip(*map(_distinct_ranks, block.scores.values()), strict=True)
                row |= {"detectors": [*block.scores], "ranks": ranks, "of_fold": of_fold}
                rows.append(row | {"chosen": json.dumps(block.chosen)})
    return rows


def _code() -> str:
    return scores_code("passes.inputs", "model_selection")


def _distinct_ranks(scores: FloatArray) -> tuple[list[NDArray[np.uint16]], NDArray[np.uint8]]:
    """A detector's (F, N) scores as the different rows of ranks among them, and the number of each fold's row.

    The lowest score has rank 1, equal scores have one rank: an AUC needs no more.
    """
    from scipy.stats import rankdata

    ranks, of_fold = np.unique(rankdata(scores, "dense", axis=1), axis=0, return_inverse=True)
    return list(ranks.astype(np.uint16)), of_fold.astype(np.uint8)


def _recorded_for(row: Mapping[str, Any], target: Target, n_words: int, texts: str) -> str:
    """What else than asked for a row was recorded for; "" where it fits."""
    if row["texts"] != texts:
        return "other texts"
    is_same_test = row["made_for"] == made_for(target, n_words, row["detectors"])
    has_weights = row["seed"] != 0 or row.get("weights") == weights_of(target)
    return "" if is_same_test and has_weights else "another test, or other weights"


def _recorded_block(row: Mapping[str, Any], benchmark: Benchmark, condition: str) -> Block:
    pairs = zip(row["ranks"], row["of_fold"], strict=True)
    ranks = [np.array(distinct, np.uint16)[of_fold] for distinct, of_fold in pairs]
    scores = dict(zip(row["detectors"], ranks, strict=True))
    cell, texts = (row["model"], row["benchmark"], row["n_words"]), _numbers(benchmark.texts)
    return Block(*cell, row["seed"], condition, texts, benchmark.labels, scores, json.loads(row["chosen"]))


# --- groups of blocks, and runs of detectors ---


def applicable(blocks: Sequence[Block]) -> tuple[list[str], dict[str, int]]:
    """The detectors that all blocks have, in the registry's order, and the others with how many blocks lack them."""
    missing = {name: sum(name not in block.scores for block in blocks) for name in DETECTORS}
    return [name for name, n in missing.items() if n == 0], {n: m for n, m in missing.items() if 0 < m < len(blocks)}


def conditions(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """The blocks of each condition, and those without a shift where the most detectors apply, where these are fewer."""
    found = {name: [block for block in blocks if block.condition == name] for name in (OWN, SHIFTED)}
    most = max(len(block.detectors) for block in found[OWN])
    every = [block for block in found[OWN] if len(block.detectors) == most]
    if len(every) < len(found[OWN]):
        found[f"{OWN}, where {most} detectors apply"] = every
    return {name: of_condition for name, of_condition in found.items() if of_condition}


def groups(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """All blocks of a condition, then those of each benchmark, of each model, and of each benchmark at each length.

    A set of blocks comes once, under the first of its names.
    """
    several = len({block.benchmark for block in blocks}) > 1
    names: list[Callable[[Block], str]] = [
        lambda block: "all",
        lambda block: block.benchmark,
        lambda block: block.model,
        lambda block: f"{block.benchmark}, {block.n_words} words" if several else f"{block.n_words} words",
    ]
    named: dict[str, list[Block]] = {}
    for name_of in names:
        for of_group, block in [(name_of(block), block) for block in blocks]:
            named.setdefault(of_group, []).append(block)
    first_name: dict[frozenset[int], str] = {}
    for name, of_group in named.items():
        first_name.setdefault(frozenset(map(id, of_group)), name)
    return {name: named[name] for name in first_name.values()}


def runs(names: Sequence[str], apart: Callable[[str, str], bool]) -> list[tuple[str, ...]]:
    """The longest runs of two or more neighbors in an order of which no pair is apart; no run lies within another.

    `apart` says it of a pair, the first in the order first.
    """
    found: list[tuple[str, ...]] = []
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not any(apart(name, names[end]) for name in names[start:end]):
            end += 1
        if end - start > 1 and not (found and names[end - 1] in found[-1]):
            found.append(tuple(names[start:end]))
    return found
