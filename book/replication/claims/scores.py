"""The scores that a claim's test compares: computed, or as `mialib record` recorded them for three training seeds.

A recorded row counts only for the same test, texts and versions (`versions_behind_test`; "claims" is the version of
this module's own part); what is left out is named on the page. Without a recorded seed 0, as for a file of claims of
your own, seed 0 is computed.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.attacks.probe import collect, fit_probes, probe_candidates
from mialib.cache import ARRAYS, cached
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.sources import find
from mialib.detectors import FloatArray
from mialib.model_selection import Candidates, Indices, folds
from mialib.models import device_type
from mialib.passes.inputs import Inputs, Target, load_inputs, score_grid, versions_behind
from mialib.store import hash_of, version
from mialib.versions import versions_of
from replication import BOOK_DATA
from replication.builders.unseen import APART, load_unseen
from replication.claims.spec import AS_RECORDED, NO_CORPUS, PROBE, Claim, Claims, Side
from replication.lab.source import Lab, of_seed
from replication.real import Real
from replication.recorded import (
    UNTOUCHED,
    identity_of,
    is_recorded,
    read_recorded,
    recorded_models,
    recorded_probe,
    weights_of,
    why_not_counted,
)
from replication.results import document_means

RECORDED_FILE = BOOK_DATA / "recorded" / "claims.parquet"
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "jieba")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JudgedTexts:
    """Which of a benchmark's texts a claim is tested on in a setting."""

    numbers: NDArray[np.int64]  # (N,), in the benchmark
    labels: NDArray[np.int8]  # (N,), 1 = positive
    runs: list[tuple[Indices, Indices]]  # of each of F folds the texts to choose on, and to judge on
    revision: str  # a hash of the benchmark's revision, the labels and the folds


def judged_texts(claims: Claims, claim: Claim, setting: str) -> JudgedTexts:
    """The texts of a test; no text of a lab benchmark is read for it."""
    revision, labels = _revision_and_labels(claims.settings[setting].benchmark)
    positive, negative = (group.indices(labels) for group in (claim.positive, claim.negative))
    numbers = np.concatenate([positive, negative])
    labels = np.repeat(np.array([1, 0], np.int8), [len(positive), len(negative)])
    has_recorded_probe = any(side.training == AS_RECORDED for side in claim.scored)
    if has_recorded_probe:  # without the texts on which its layer and learning rate were chosen, with any seed
        is_judged = np.isin(numbers, recorded_probe(claims.settings[setting].model)[1])
        numbers, labels = numbers[is_judged], labels[is_judged]
    everything = np.arange(len(labels))
    has_choice = not has_recorded_probe and any(side.is_chosen for side in claim.scored)
    runs = folds(labels) if has_choice else [(everything, everything)]
    return JudgedTexts(numbers, labels, runs, hash_of([revision, labels.tolist(), [idx.tolist() for _, idx in runs]]))


@cache
def _revision_and_labels(benchmark: str) -> tuple[str, NDArray[np.int8]]:
    if isinstance(source := find(benchmark), Lab):
        return source.labels
    loaded = load_benchmark(benchmark)
    return loaded.revision, loaded.labels


# --- computing them ---


def score_claim(claims: Claims, claim: Claim, setting: str, seed: int) -> FloatArray:
    """Score a claim's texts by all sides under models trained from `seed`; seed 0 is the recipe's own.

    The scores are (sides, F, N), with F folds to choose on, 1 without choices, and NaN for a fold's own texts.
    ValueError where a detector is not applicable in the setting, or some of the lab's texts can't be read.
    """
    place, texts = claims.settings[setting], judged_texts(claims, claim, setting)
    if isinstance(benchmark := find(place.benchmark), Lab):
        benchmark.check_whole()
    scores = np.full((len(claim.sides), len(texts.runs), len(texts.labels)), np.nan)
    for i, side in enumerate(claim.sides):
        if isinstance(side, str):  # chance: all texts tie, which is an AUC of 0.5
            candidates = Candidates(({},), np.zeros((1, len(texts.labels))))
        else:
            target = place.but(
                model=of_seed(side.model.get(setting, place.model), seed),
                reference=place.reference and of_seed(place.reference, seed),
                corpus=place.corpus if side.corpus in (None, NO_CORPUS) else side.corpus,
                n_words=side.n_words.get(setting, place.n_words),
                part=side.part or place.part,
            )
            candidates = side_candidates(target, side.alone, seed).take(texts.numbers)
        for f, (val_idx, test_idx) in enumerate(texts.runs):
            scores[i, f, test_idx] = candidates.scores[candidates.best(texts.labels, val_idx), test_idx]
    return scores


def claim_scores(claims: Claims, claim: Claim, setting: str, seed: int = 0) -> FloatArray:
    """`score_claim`, cached on disk."""

    def make() -> dict[str, FloatArray]:
        return {"scores": score_claim(claims, claim, setting, seed)}

    return cached("claims", make, ARRAYS, **determined_by(claims, claim, setting, seed))["scores"]


def determined_by(claims: Claims, claim: Claim, setting: str, seed: int = 0) -> dict[str, Any]:
    """What determines the scores of a test under one seed."""
    place = claims.settings[setting]
    corpora = {side.corpus or place.corpus for side in claim.scored if side.detector == "dc_pdd"} - {NO_CORPUS}
    corpora |= {side.training.partition(":")[0] for side in claim.scored if side.training and not side.is_sampled}
    corpora = set() if isinstance(find(place.model), Real) else corpora  # whose revision holds its counts
    return {
        "test": claims.test_hash(claim, setting),
        "seed": seed,
        "models": [_model_revision(name) for name in claims.models(claim, setting, seed)],
        "benchmark": _revision_and_labels(place.benchmark)[0],
        "corpora": [_corpus_identity(name) for name in sorted(filter(None, corpora - {APART, AS_RECORDED}))],
        "device": device_type(),
        "versions": versions_behind_test(claim),
        "libraries": [version(name) for name in LIBRARIES],
    }


def versions_behind_test(claim: Claim) -> dict[str, int]:
    """The versions of all that makes a test's scores: of its detectors and their inputs, of training and choosing."""
    versions = versions_of("claims", "training", *["choosing"] * any(side.is_chosen for side in claim.scored))
    for side in claim.scored:
        if side.detector == PROBE:
            versions |= versions_of("activations", "probe", "unseen", *["sampling"] * side.is_sampled)
        else:
            versions |= versions_behind(side.detector)
    return dict(sorted(versions.items()))


# Sides and claims share these.
_inputs = cache(load_inputs)
_model_revision, _corpus_identity = cache(lambda name: find(name).revision), cache(identity_of)


@cache
def side_candidates(target: Target, side: Side, seed: int) -> Candidates:
    """The scores of a side at each of its candidate options, one where nothing is to be chosen.

    The probe's candidates are every learning rate and layer; the training seed also draws its unseen texts and coin.
    """
    if side.training == AS_RECORDED:
        return Candidates(({},), recorded_probe(target.model)[0][None])
    if side.detector == PROBE and side.training:
        benchmark = load_benchmark(target.benchmark, target.n_words)
        unseen = load_unseen(side.training, benchmark, side.n_training, seed)
        collected = collect(target.model, benchmark.texts, unseen, seed=seed)
        return probe_candidates(fit_probes(collected.proxies, collected.coin), collected.target)
    inputs = _inputs(target)
    if side.corpus == NO_CORPUS:
        counted = inputs["frequency"]
        inputs = inputs.given(frequency=replace(counted, counts=np.zeros_like(counted.counts)))
    return _grid_candidates(inputs, side)


def _grid_candidates(inputs: Inputs, side: Side) -> Candidates:
    """Every point of a detector's grid. A document has its snippets' mean score, or that of the last of its tail."""
    options = side.resolved_options().items()
    grid = {name: value if isinstance(value, list) else [value] for name, value in options}
    candidates, document = score_grid(inputs, side.detector, grid), inputs.labelled.document
    if inputs.target.part is None or document is None:
        return candidates
    if inputs.target.part == "all":
        return Candidates(candidates.options, np.stack([document_means(s, document) for s in candidates.scores]))
    return candidates.take(np.flatnonzero(np.append(np.diff(document) > 0, True)))


# --- recorded seeds ---


def seeds_of(claims: Claims, claim: Claim, setting: str) -> tuple[NDArray[np.int8], dict[int, FloatArray], list[str]]:
    """A test's labels, its scores by training seed, and which recorded seeds are left out, each with why."""
    labels = judged_texts(claims, claim, setting).labels
    if is_recorded(claims.settings[setting].model):
        seeds_by_model = recorded_models()
        names = {name.partition("@")[0] for name in claims.models(claim, setting)}
        shared = set.intersection(*(set(seeds_by_model[name]) for name in names if not name.endswith(UNTOUCHED)))
        return labels, {seed: claim_scores(claims, claim, setting, seed) for seed in sorted(shared)}, []
    # Those of the same test, whichever claim it was recorded for; without any, those under the claim's id.
    same = {
        row["seed"]: row for row in read_recorded(RECORDED_FILE, setting=setting, test=claims.test_hash(claim, setting))
    }
    scores, left_out = {}, []
    for row in [*same.values()] or read_recorded(RECORDED_FILE, setting=setting, claim=claim.id):
        if why := _why_left_out(claims, claim, setting, row):
            left_out.append(f"seed {row['seed']}: recorded for {why}")
        else:
            scores[row["seed"]] = np.array(row["scores"], np.float64)
    if 0 not in scores:
        scores[0] = claim_scores(claims, claim, setting)
    return labels, dict(sorted(scores.items())), left_out


def _why_left_out(claims: Claims, claim: Claim, setting: str, row: Mapping[str, Any]) -> str:
    """Say what else than this test today a recorded row was computed for; "" where it counts."""
    test, texts = claims.test_hash(claim, setting), judged_texts(claims, claim, setting).revision
    return why_not_counted(row, test, texts, claims.models(claim, setting), versions_behind_test(claim))


def seed_rows(claims: Claims, seeds: Iterable[int]) -> list[dict[str, Any]]:
    """The rows to record: scores of all claims' tests under models of these seeds. A row that still counts stays.

    Claims with the same sides share a row.
    """
    recorded = {(row["test"], row["seed"]): row for row in read_recorded(RECORDED_FILE)}
    tests: dict[str, tuple[Claim, str]] = {}
    for claim, setting in claims.tests():
        if not is_recorded(claims.settings[setting].model):  # the ladder's token statistics are recorded
            for one in (claim, *([claim.against_control()] if claim.control else [])):
                tests.setdefault(claims.test_hash(one, setting), (one, setting))
    rows = []
    for seed, (test, (claim, setting)) in product(seeds, tests.items()):
        row = recorded.get((test, seed))
        if row is None or _why_left_out(claims, claim, setting, row):
            logger.info("seed %d: %s, %s", seed, claim.id, setting)
            row = {
                "claim": claim.id,
                "setting": setting,
                "seed": seed,
                "test": test,
                "texts": judged_texts(claims, claim, setting).revision,
                "weights": weights_of(*claims.models(claim, setting, seed)),
                "versions": json.dumps(versions_behind_test(claim)),
                "scores": claim_scores(claims, claim, setting, seed),
            }
        # A list of lists of arrays: parquet has no arrays of three dimensions.
        rows.append(row | {"claim": claim.id, "scores": [list(np.array(of, np.float32)) for of in row["scores"]]})
    return rows
