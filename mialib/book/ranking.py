"""Which detector when: blocks, in each of which every detector has an AUC on the same texts.

A block is one model, from one training seed, on one benchmark cut to one length. In it each likelihood detector that
applies is scored with its paper's hyperparameters. The page `which_detector` ranks detectors over blocks and averages
their AUCs; the statistics are on that page.

    gather        the blocks of the live seed, and those that `mialib record` keeps as ranks in
                  `data/recorded/ranking.parquet`
    groups        which blocks belong together: all, one benchmark's, one model's, one length's
    runs          which detectors a bar joins, in a diagram of their order
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.book.pages import one_for_each, targets, whole_numbers
from mialib.book.profile import load_profile
from mialib.book.recorded import read_rows, write_rows
from mialib.catalog.corpora import reference_texts
from mialib.detectors import DETECTORS, FloatArray
from mialib.lab.models import of_seed, recipes_of
from mialib.metrics import aucs, placements, split_scores
from mialib.passes.inputs import Inputs, Target, cut_inputs, load_inputs, score_all, split_lengths
from mialib.store import DATA, hash_of, hash_texts

RECORDED_FILE = DATA / "recorded" / "ranking.parquet"
PAGE = "which_detector"  # whose parameters in the profile say what is recorded
OWN, SHIFTED = "without a shift", "with a shift"

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
    scores: Mapping[str, NDArray[Any]]  # (N,) each; of a recorded seed their ranks, which give the same AUC

    @property
    def cell(self) -> tuple[str, str, int]:
        """What the block is besides its seed."""
        return self.model, self.benchmark, self.n_words

    @cached_property
    def placements(self) -> dict[str, FloatArray]:
        """Each text's placement, (N,): the share of the other class that it lies on the right side of."""
        found = {}
        for name, scores in self.scores.items():
            found[name] = np.empty(len(self.labels))
            of_members, of_non_members = placements(*split_scores(self.labels, scores))
            found[name][self.labels == 1], found[name][self.labels == 0] = of_members, of_non_members
        return found

    @cached_property
    def auc(self) -> dict[str, float]:
        """Each detector's AUC; from its rank sum, so that detectors of one rank sum tie exactly."""
        found = aucs(self.labels, np.stack(list(self.scores.values())))
        return dict(zip(self.scores, found.tolist(), strict=True))


@dataclass(frozen=True)
class Gathered:
    """The blocks that a page ranks, and what the page says of them."""

    blocks: tuple[Block, ...]  # every cell has the same seeds
    left_out: tuple[str, ...]  # lengths and recorded seeds, a line each
    ran: tuple[Inputs, ...]


def columns(models: Any, benchmarks: Any, references: Any, corpora: Any, shifted: Any) -> list[tuple[Target, str]]:
    """A notebook's parameters as targets, each with its condition.

    `shifted` holds for each model, or once for all, a benchmark whose non-members are of another kind, or "-".
    """
    own = targets(models, benchmarks, references, corpora)
    others = zip(own, one_for_each(shifted, len(own), "shifted"), strict=True)
    return [(target, OWN) for target in own] + [(t.but(benchmark=name), SHIFTED) for t, name in others if name]


def gather(of_page: Sequence[tuple[Target, str]], lengths: Any, recorded: Path = RECORDED_FILE) -> Gathered:
    """The live blocks of seed 0, and the recorded ones of further seeds.

    A recorded block counts where it is of the same recipes, inputs, hyperparameters and texts as the live one; a seed
    that any cell lacks is left out of all, so that every cell has the same seeds.
    """
    live, left_out, ran = {}, [], []
    for target, condition in of_page:
        inputs = load_inputs(target)
        cuts, too_long = _cuts(inputs, lengths)
        for n_words, short in too_long.items():
            left_out.append(f"{target.benchmark}, {n_words} words: {short} of {len(inputs.labels)} texts are shorter")
        for n_words, cut in cuts.items():
            block = _block(inputs, cut, n_words, condition)
            live[block.cell] = block, made_for(target, n_words, block.scores), texts_of(inputs, cut)
        ran.append(inputs)
    further, stale = _recorded_blocks(live, recorded)
    blocks, incomplete = complete([block for block, _, _ in live.values()] + further)
    return Gathered(tuple(blocks), (*dict.fromkeys(left_out), *stale, *incomplete), tuple(ran))


def _cuts(inputs: Inputs, lengths: Any) -> tuple[dict[int, Inputs], dict[int, int]]:
    """The inputs cut to each length that the texts have, and the other lengths with how many texts are too short."""
    possible, too_long = split_lengths(inputs.benchmark, whole_numbers(lengths, "lengths"))
    return {n: cut_inputs(inputs, n)[0] for n in possible}, too_long


def _block(inputs: Inputs, cut: Inputs, n_words: int, condition: str, seed: int = 0) -> Block:
    model, benchmark = inputs.target.model.removesuffix(f"@{seed}"), inputs.target.benchmark
    texts = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) for text in inputs.texts]
    scores = {name: values for name, values in score_all(cut).items() if values is not None}
    return Block(model, benchmark, n_words, seed, condition, np.array(texts, np.int64), inputs.labels, scores)


def made_for(target: Target, n_words: int, detectors: Iterable[str]) -> str:
    """A hash of all but the texts that a recorded block must have been computed for: the target of seed 0, length,
    recipes, and each detector's hyperparameters."""
    fields = {name: getattr(target, name) for name in ("model", "benchmark", "reference", "corpus", "published")}
    options = {name: DETECTORS[name].hyperparameters for name in sorted(detectors)}
    recipes = recipes_of(name for name in (target.model, target.reference) if name)
    return hash_of([fields, n_words, options, recipes])


def texts_of(inputs: Inputs, cut: Inputs) -> str:
    """A hash of the texts that a block's scores depend on: cut, with their labels, the benchmark that models were
    trained on, and DC-PDD's reference corpus."""
    corpus = inputs.target.corpus
    of_corpus = hash_texts(reference_texts(corpus)) if corpus else None
    return hash_of([inputs.benchmark.revision, hash_texts(cut.texts), inputs.labels.tolist(), of_corpus])


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


# --- further seeds ---


def record(seeds: Iterable[int], path: Path = RECORDED_FILE) -> None:
    """Train and score the models of the profile's page from further seeds, and write each detector's ranks."""
    from scipy.stats import rankdata

    given, rows = load_profile().notebooks[PAGE].parameters, []
    names = ("models", "benchmarks", "references", "corpora", "shifted")
    for seed in seeds:
        for target, condition in columns(*(given[name] for name in names)):
            logger.info("seed %d: %s", seed, target.column)
            reference = target.reference and of_seed(target.reference, seed)
            inputs = load_inputs(target.but(model=of_seed(target.model, seed), reference=reference))
            for n_words, cut in _cuts(inputs, given["lengths"])[0].items():
                scores = _block(inputs, cut, n_words, condition, seed).scores
                row = {"model": target.model, "benchmark": target.benchmark, "n_words": n_words, "seed": seed}
                row |= {"made_for": made_for(target, n_words, scores), "texts": texts_of(inputs, cut)}
                # The lowest score has rank 1, equal scores have one rank: an AUC needs no more.
                ranks = [rankdata(values, "dense").astype(np.uint16) for values in scores.values()]
                rows.append(row | {"detectors": list(scores), "ranks": ranks})
    write_rows(path, rows)


def _recorded_blocks(
    live: Mapping[tuple[str, str, int], tuple[Block, str, str]], path: Path
) -> tuple[list[Block], list[str]]:
    """The recorded blocks of the live ones' cells, and a line for each that is of another test or other texts."""
    blocks, left_out = [], []
    for row in read_rows(path):
        if (cell := (row["model"], row["benchmark"], row["n_words"])) not in live:
            continue
        block, made, texts = live[cell]
        if (row["made_for"], row["texts"]) == (made, texts):
            ranks = [np.array(values, np.uint16) for values in row["ranks"]]
            scores = dict(zip(row["detectors"], ranks, strict=True))
            blocks.append(replace(block, seed=row["seed"], scores=scores))
        else:
            what = "another test" if row["texts"] == texts else "other texts"
            model, benchmark, n_words = cell
            left_out.append(f"{model} on {benchmark}, {n_words} words, seed {row['seed']}: recorded for {what}")
    return blocks, left_out


# --- groups of blocks, and runs of detectors ---


def applicable(blocks: Sequence[Block]) -> tuple[list[str], dict[str, int]]:
    """The detectors that all blocks have, in the registry's order, and the others with how many blocks lack them."""
    missing = {name: sum(name not in block.scores for block in blocks) for name in DETECTORS}
    return [name for name, n in missing.items() if n == 0], {n: m for n, m in missing.items() if 0 < m < len(blocks)}


def conditions(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """The blocks of each condition, and those without a shift where the most detectors apply, where these are fewer."""
    found = {name: [block for block in blocks if block.condition == name] for name in (OWN, SHIFTED)}
    most = max(len(block.scores) for block in found[OWN])
    every = [block for block in found[OWN] if len(block.scores) == most]
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
