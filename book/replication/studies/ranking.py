"""Which detector when: blocks, in each of which every detector has an AUC on the same texts.

A block is one model, from one training seed, on one benchmark cut to one length. Hyperparameters of a detector that a
paper tunes are chosen on each fifth of the texts in turn, and all detectors are judged on the other four fifths: an AUC
is the mean over the five. The page `which_detector` ranks detectors over blocks; the statistics are on that page.

    gather        the blocks that `mialib record` keeps as ranks in `data/recorded/ranking.parquet`, a row a detector;
                  where no seed 0 is recorded, of models of your own, say, it is computed
    groups        which blocks belong together: all, one benchmark's, one model's, one length's
    rank          mean ranks
    average       mean AUCs and their errors, over blocks that share texts
"""

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from mialib.benchmarks import Benchmark
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import reference_texts
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import placements
from mialib.model_selection import HELD_OUT, Indices, folds
from mialib.passes.inputs import (
    NEEDS,
    Inputs,
    Target,
    cut_inputs,
    load_inputs,
    score_grid,
    split_lengths,
    unavailable_reason,
    versions_behind,
)
from mialib.store import hash_of, hash_texts
from mialib.versions import versions_of
from replication import BOOK_DATA
from replication.lab.source import Lab, of_seed, recipes_of
from replication.pages import check_enough, one_for_each, targets, whole_numbers
from replication.profile import load_profile
from replication.recorded import read_recorded, weights_of, why_not_counted

RECORDED_FILE = BOOK_DATA / "recorded" / "ranking.parquet"
BLOCK = ("model", "benchmark", "n_words", "seed")  # the columns that name a recorded row's block
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
    scores: Mapping[str, NDArray[Any]]  # (F, N) each, as each fold chose; of a recorded seed ranks, of the same AUC

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
    page_targets = targets(models, benchmarks, references, corpora)
    pairs = zip(page_targets, one_for_each(shifted, len(page_targets), "shifted"), strict=True)
    return [(target, OWN) for target in page_targets] + [(t.but(benchmark=name), SHIFTED) for t, name in pairs if name]


def gather_scores(page: Sequence[tuple[Target, str]], lengths: Any, recorded: Path = RECORDED_FILE) -> Gathered:
    """The blocks of each target at each length that its texts have.

    A recorded detector counts where it is of today's recipes, inputs, hyperparameters, texts and versions. Seed 0 is
    computed where nothing of it is recorded. A seed that any cell lacks is left out of all.
    """
    blocks, left_out, ran = [], [], []
    recorded_rows: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)  # by cell
    not_counted: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by reason
    for row in read_recorded(recorded):
        recorded_rows[row["model"], row["benchmark"], row["n_words"]].append(row)
    for target, condition in page:
        benchmark, inputs = load_benchmark(target.benchmark), None
        check_enough(target.benchmark, benchmark.labels, round(1 / HELD_OUT))
        cut_lengths, too_long = split_lengths(benchmark, whole_numbers(lengths, "lengths"))
        for n_words, short in too_long.items():
            left_out.append(f"{target.benchmark}, {n_words} words: {short} of {len(benchmark.texts)} texts are shorter")
        for n_words in cut_lengths:
            texts = texts_hash(benchmark, n_words, target.corpus)
            by_seed: dict[int, list[dict[str, Any]]] = defaultdict(list)
            for row in recorded_rows[target.model, target.benchmark, n_words]:
                why = _recorded_for(row, target, n_words, texts)
                (not_counted[why] if why else by_seed[row["seed"]]).append(row)
            blocks += [_recorded_block(rows, benchmark, condition) for rows in by_seed.values()]
            if 0 not in by_seed:
                inputs = inputs or load_inputs(target)
                blocks.append(_block(inputs, cut_inputs(inputs, n_words)[0], n_words, condition))
        ran += [inputs] if inputs else []
    for why, rows in not_counted.items():
        of = "; ".join(", ".join(map(str, sorted({row[name] for row in rows}))) for name in ("detector", "seed"))
        left_out.append(f"{len(rows)} recorded rows (detectors and seeds {of}): they are of {why}")
    names = {row["detector"] for rows in recorded_rows.values() for row in rows}
    if names and (additions := {name for target, _ in page for name in ranked(target)} - names):
        left_out.append(f"{', '.join(sorted(additions))}: nothing is recorded; `mialib record` computes it")
    blocks, incomplete = complete(blocks)
    return Gathered(tuple(blocks), (*dict.fromkeys(left_out), *incomplete), tuple(ran))


def _block(inputs: Inputs, cut: Inputs, n_words: int, condition: str, seed: int = 0) -> Block:
    model, benchmark = inputs.target.model.removesuffix(f"@{seed}"), inputs.target.benchmark
    scores = {
        name: score_grid(cut, name).by_fold(inputs.labels).scores  # without a grid the default is the one candidate
        for name in ranked(inputs.target)
        if not unavailable_reason(cut, name)
    }
    return Block(model, benchmark, n_words, seed, condition, _numbers(inputs.texts), inputs.labels, scores)


def ranked(target: Target) -> list[str]:
    """The detectors that are ranked: those for which the target names all that they need."""
    needs = {name for name, need in NEEDS.items() if not need.is_dear and need.is_named(target)}
    return [name for name, entry in DETECTORS.items() if set(entry.needs) <= needs]


def _numbers(texts: Sequence[str]) -> NDArray[np.int64]:
    """A hash of each text, (N,)."""
    return np.array([int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) for text in texts], np.int64)


def made_for(target: Target, n_words: int, detector: str) -> str:
    """A hash of all but the texts that a recorded row must have been computed for: the target of seed 0, length,
    recipes, and the detector's hyperparameters and their candidates."""
    fields = {name: getattr(target, name) for name in ("model", "benchmark", "reference", "corpus", "published")}
    entry = DETECTORS[detector]
    return hash_of([fields, n_words, [detector, entry.hyperparameters, entry.grid], recipes_of(target.models())])


def versions_behind_row(detector: str) -> dict[str, int]:
    """The versions of all that makes a detector's ranks."""
    return versions_of("training", "choosing") | versions_behind(detector)


def texts_hash(benchmark: Benchmark, n_words: int, corpus: str | None) -> str:
    """A hash of the texts that a block's scores depend on: cut, with their labels and the fold that each chooses in,
    the benchmark that models were trained on, and DC-PDD's reference corpus."""
    corpus_hash = None
    if corpus:
        counts = source.frequency if isinstance(source := find(corpus), Lab) else None
        corpus_hash = hash_of(counts.counts.tolist()) if counts else hash_texts(reference_texts(corpus))
    texts, chosen_on = benchmark.cut(n_words).texts, [val_idx.tolist() for val_idx, _ in folds(benchmark.labels)]
    return hash_of([benchmark.revision, hash_texts(texts), benchmark.labels.tolist(), chosen_on, corpus_hash])


def complete(blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """The blocks of the seeds that every cell has, and a line for each other seed."""
    n_cells, n_by_seed = len({b.cell for b in blocks}), Counter(seed for seed, _ in {(b.seed, b.cell) for b in blocks})
    gaps = {seed: n_cells - n for seed, n in sorted(n_by_seed.items()) if n < n_cells}
    what = f"of {n_cells} blocks have no recorded scores of it that fit this build"
    lines = [f"seed {seed}: {n} {what}" for seed, n in gaps.items()]
    return [block for block in blocks if block.seed not in gaps], lines


# --- recorded seeds ---


def rank_rows(seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Each detector's ranks under the models of the profile's page, trained from these seeds: what is recorded.

    Seed 0 is the model that is stored. A detector's (F, N) scores are kept as ranks, which are all that an AUC needs:
    the different rows among them, and the number of each fold's row. The lowest score has rank 1.
    """
    parameters, rows = load_profile().notebooks[PAGE].parameters, []
    pairs = columns(*(parameters[name] for name in ("models", "benchmarks", "references", "corpora", "shifted")))
    for seed, (target, condition) in product(seeds, pairs):
        logger.info("seed %d: %s", seed, target.column)
        reference = target.reference and of_seed(target.reference, seed)
        inputs = load_inputs(target.but(model=of_seed(target.model, seed), reference=reference))
        for n_words in split_lengths(inputs.labelled, whole_numbers(parameters["lengths"], "lengths"))[0]:
            block = _block(inputs, cut_inputs(inputs, n_words)[0], n_words, condition, seed)
            head = dict(zip(BLOCK, (*block.cell, seed), strict=True))
            head["texts"] = texts_hash(inputs.labelled, n_words, target.corpus)
            head["weights"] = weights_of(*inputs.target.models())
            for name, scores in block.scores.items():
                row: dict[str, Any] = {"detector": name, "made_for": made_for(target, n_words, name)}
                row["versions"] = json.dumps(versions_behind_row(name))
                ranks, rank_rows = np.unique(rankdata(scores, "dense", axis=1), axis=0, return_inverse=True)
                row["ranks"], row["of_fold"] = list(ranks.astype(np.uint16)), rank_rows.astype(np.uint8)
                rows.append(head | row)
    return rows


def _recorded_for(row: dict[str, Any], target: Target, n_words: int, texts: str) -> str:
    """Say what else than asked for a row was recorded for; "" where it fits."""
    detector = row["detector"]
    if detector not in DETECTORS:
        return "a detector that is no longer there"
    row, test = row | {"test": row["made_for"]}, made_for(target, n_words, detector)
    return why_not_counted(row, test, texts, target.models(), versions_behind_row(detector))


def _recorded_block(rows: Sequence[Mapping[str, Any]], benchmark: Benchmark, condition: str) -> Block:
    scores = {row["detector"]: np.array(row["ranks"], np.uint16)[row["of_fold"]] for row in rows}
    model, _, n_words, seed = (rows[0][name] for name in BLOCK)
    texts = _numbers(benchmark.texts)
    return Block(model, rows[0]["benchmark"], n_words, seed, condition, texts, benchmark.labels, scores)


# --- groups of blocks ---


def applicable(blocks: Sequence[Block]) -> tuple[list[str], dict[str, int]]:
    """The detectors that all blocks have, in the registry's order, and the others with how many blocks lack them."""
    missing = {name: sum(name not in block.scores for block in blocks) for name in DETECTORS}
    return [name for name, n in missing.items() if n == 0], {n: m for n, m in missing.items() if 0 < m < len(blocks)}


def conditions(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """The blocks of each condition, and those without a shift where the most detectors apply, where these are fewer."""
    groups = {name: [block for block in blocks if block.condition == name] for name in (OWN, SHIFTED)}
    most = max(len(block.detectors) for block in groups[OWN])
    every = [block for block in groups[OWN] if len(block.detectors) == most]
    if len(every) < len(groups[OWN]):
        groups[f"{OWN}, where {most} detectors apply"] = every
    return {name: group for name, group in groups.items() if group}


def groups(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """All blocks of a condition, then those of each benchmark, of each model, and of each benchmark at each length.

    A set of blocks comes once, under the first of its names.
    """
    several = len({block.benchmark for block in blocks}) > 1

    def names(block: Block) -> tuple[str, ...]:
        length = f"{block.n_words} words"
        return "all", block.benchmark, block.model, f"{block.benchmark}, {length}" if several else length

    groups: dict[str, list[Block]] = {}
    for kind, block in product(range(4), blocks):
        groups.setdefault(names(block)[kind], []).append(block)
    first_names = {frozenset(map(id, group)): name for name, group in reversed(groups.items())}
    return {name: group for name, group in groups.items() if name in first_names.values()}


# --- statistics of several blocks ---


def rank(blocks: Sequence[Block]) -> dict[str, float]:
    """Each detector's mean rank, 1 for the highest AUC."""
    detectors, _ = applicable(blocks)
    auc = np.array([[block.auc[d] for d in detectors] for block in blocks])  # (N, k)
    return dict(zip(detectors, rankdata(-auc, axis=1).mean(axis=0).tolist(), strict=True))


def average(blocks: Sequence[Block]) -> tuple[list[str], FloatArray, FloatArray, tuple[int, int]]:
    """Names of k detectors, "chance" the last; mean AUC by training seed and fold, (S, F, k); what each of the T texts
    adds to the mean's error, (T, k), as the page says; and the fewest members and non-members of a block."""
    names = [*applicable(blocks)[0], "chance"]
    seeds, B = sorted({block.seed for block in blocks}), len(blocks)
    assert len({block.cell for block in blocks}) * len(seeds) == B, "a cell lacks a seed"
    texts = np.unique(np.concatenate([block.texts for block in blocks]))
    n_folds = len(blocks[0].judged)
    auc, e = np.zeros((len(seeds), n_folds, len(names))), np.zeros((len(texts), len(names)))
    for block in blocks:
        of_fold = block.auc_by_fold | {"chance": np.full(n_folds, 0.5)}
        placed = block.placements | {"chance": np.full(len(block.texts), 0.5)}
        auc[seeds.index(block.seed)] += np.stack([of_fold[d] for d in names], axis=1) * len(seeds) / B
        V = np.stack([placed[d] for d in names], axis=1)
        for own in (block.labels == 1, block.labels == 0):
            n, at = own.sum(), np.searchsorted(texts, block.texts[own])
            np.add.at(e, at, (V[own] - V[own].mean(axis=0)) / np.sqrt(n * (n - 1)) / B)
    n_members, n_others = (min(int((block.labels == y).sum()) for block in blocks) for y in (1, 0))
    return names, auc, e, (n_members, n_others)
