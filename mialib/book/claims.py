"""The papers' claims as tests fixed beforehand (`data/claims.yml`), and what the lab says of each.

A lab verdict rests on several training seeds: seed 0 is computed live, the others are recorded once by `mialib record`
as scores in `data/recorded/claims.parquet`, each with a hash of the test and of the texts that it was computed from. A
recorded seed whose hashes are not those of the live one is left out, and the page says so.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from mialib.attacks.probe import EPOCHS, LEARNING_RATES, N_TRAINING, PROMPT, collect, fit_probes, probe_candidates
from mialib.attacks.unseen import APART, SAMPLED, load_unseen
from mialib.benchmarks import document_means, last_of_each
from mialib.book.results import Result, verdict
from mialib.book.seeds import describe_recorded as describe
from mialib.book.seeds import of_seed, read_recorded, recipes, write_recorded
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import corpus_identity
from mialib.catalog.models import model_revision
from mialib.detectors import FloatArray, get_detector
from mialib.lab.models import by_group
from mialib.metrics import Comparison, compare_auc_over_seeds
from mialib.model_selection import GRIDS, Candidates, folds, score_grid
from mialib.models import pick_device
from mialib.passes.cache import arrays_once
from mialib.passes.inputs import Inputs, Target, cut_inputs, load_inputs, snippet_inputs, with_neighbors
from mialib.schema import Strict, one_line
from mialib.store import PACKAGE, ROOT, hash_files, hash_of

CLAIMS_FILE = ROOT / "data" / "claims.yml"
RECORDED_FILE = ROOT / "data" / "recorded" / "claims.parquet"
CHANCE = "chance"
PROBE = "probe"

logger = logging.getLogger(__name__)


class Setting(Strict):
    """Where a claim is tested, unless one of its sides says otherwise."""

    model: str
    benchmark: str
    reference: str | None = None
    corpus: str | None = None
    n_words: PositiveInt | None = None  # what the texts are cut to
    masked: str | None = None  # a masked language model, for Neighbor
    n_neighbors: PositiveInt | None = None  # how many it makes for each text


class Group(Strict):
    """Some of a benchmark's texts: one class, or one of equal consecutive groups of it."""

    of: Literal["members", "non-members"]
    group: tuple[PositiveInt, PositiveInt] | None = None  # (1, 7): the first of seven; all where empty

    @model_validator(mode="after")
    def _is_one_of_its_groups(self) -> Group:
        if self.group and self.group[0] > self.group[1]:
            raise ValueError(f"group {self.group[0]} of {self.group[1]} does not exist")
        return self

    def indices(self, labels: NDArray[np.int8]) -> NDArray[np.int64]:
        """The numbers of the group's texts."""
        own = np.flatnonzero(labels == (self.of == "members"))
        if self.group is None:
            return own
        number, n_groups = self.group
        return own[np.array(by_group(range(1, n_groups + 1), len(own))) == number]


class Side(Strict):
    """One side of a comparison: a detector and what differs from the setting, for some settings by name.

    An option that is a list is chosen, by AUC, on each fifth of the texts in turn; "grid" is the whole grid of
    `mialib.choose`. So are the learning rate and layer of the probe, which is no registered detector and learns from
    `training` texts. With any such side, all sides are judged on the other four fifths.
    """

    detector: str
    options: dict[str, float | bool | list[float]] | Literal["grid"] = Field(default_factory=dict)
    model: dict[str, str] = Field(default_factory=dict)
    n_words: dict[str, int] = Field(default_factory=dict)
    part: Literal["head", "middle", "tail", "all"] | None = None  # of long documents, in segments of n_words
    corpus: str | None = None
    training: str | None = None  # unseen texts for the probe, named as in `mialib.unseen`
    n_training: PositiveInt = N_TRAINING

    @model_validator(mode="after")
    def _has_what_its_detector_needs(self) -> Side:
        if (self.detector == PROBE) != bool(self.training):
            raise ValueError("the probe, and nothing else, has `training` texts")
        if self.detector == PROBE:
            return self
        get_detector(self.detector)
        if self.options == "grid" and self.detector not in GRIDS:
            raise ValueError(f"detector {self.detector!r} has no grid; those of {', '.join(GRIDS)} are known")
        return self

    def __hash__(self) -> int:
        return hash(hash_of(self.model_dump()))  # of the fields some are dicts, which have none

    def resolved_options(self) -> dict[str, Any]:
        """The options, the grid written out."""
        return dict(GRIDS[self.detector]) if self.options == "grid" else dict(self.options)

    @property
    def is_chosen(self) -> bool:
        """Whether an option is to be chosen."""
        return self.detector == PROBE or any(isinstance(value, list) for value in self.resolved_options().values())

    def resolved(self) -> dict[str, Any]:
        """All that determines the side's scores in a setting; a field added later changes no side that lacks it."""
        probe = {"learning_rates": LEARNING_RATES, "epochs": EPOCHS, "prompt": PROMPT} if self.detector == PROBE else {}
        return self.model_dump(exclude_defaults=True) | {"options": self.resolved_options()} | probe


class Claim(Strict):
    """A claim of a paper and its test."""

    id: str
    paper: str
    claim: str
    published: str
    fixed: Literal["before", "after seed 0"]
    where: tuple[str, ...]  # names of settings
    positive: Group = Group(of="members")
    negative: Group = Group(of="non-members")
    a: Side
    against: tuple[Side | Literal["chance"], ...]
    expect: Literal["greater", "equivalent"]
    margin: float | None = None

    @model_validator(mode="after")
    def _says_what_it_expects(self) -> Claim:
        if (self.margin is not None) != (self.expect == "equivalent"):
            raise ValueError(f"claim {self.id}: `equivalent`, and nothing else, has a margin")
        for side in (side for side in self.sides if side != CHANCE):
            if unknown := (set(side.model) | set(side.n_words)) - set(self.where):
                raise ValueError(f"claim {self.id}: it is not tested in {unknown.pop()!r}")
            if side.part and (lacking := set(self.where) - set(side.n_words)):
                raise ValueError(f"claim {self.id}: a part of documents needs n_words for {lacking.pop()!r}")
        return self

    @property
    def sides(self) -> list[Side | str]:
        """Side a, then each that it is held against."""
        return [self.a, *self.against]


class Claims(Strict):
    """The whole file."""

    settings: dict[str, Setting]
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _settings_are_known(self) -> Claims:
        for name, place in self.settings.items():
            if (place.masked is None) != (place.n_neighbors is None):
                raise ValueError(f"setting {name}: `masked` and `n_neighbors` come together")
        for claim in self.claims:
            if unknown := set(claim.where) - set(self.settings):
                raise ValueError(f"claim {claim.id}: no setting {unknown.pop()!r}; known: {', '.join(self.settings)}")
        return self

    def tests(self) -> list[tuple[Claim, str]]:
        """Every claim in every setting that it is tested in."""
        return [(claim, name) for claim in self.claims for name in claim.where]

    def test_hash(self, claim: Claim, setting: str) -> str:
        """What a recorded score must have been computed for: sides, groups, setting and recipes, not the wording."""
        place = self.settings[setting]
        sides = [side if side == CHANCE else side.resolved() for side in claim.sides]
        groups = [claim.positive.model_dump(), claim.negative.model_dump()]
        of_models = recipes(self.models(claim, setting))
        return hash_of([sides, groups, place.model_dump(exclude_defaults=True), of_models])

    def models(self, claim: Claim, setting: str) -> list[str]:
        """The models that a test runs, those that write texts or neighbors for it included."""
        place = self.settings[setting]
        targets = [_target(place, setting, side, 0) for side in claim.sides if side != CHANCE]
        named = {name for target in targets for name in (target.model, target.reference)}
        named |= {place.masked, *(side.training.removeprefix(SAMPLED) for side in claim.sides if _samples(side))}
        return sorted(name for name in named if name)


@dataclass(frozen=True)
class SeedScores:
    """The scores of one claim in one setting under one training seed: first side a, then each it is held against."""

    seed: int
    scores: FloatArray  # (1 + len(against), F, N); F folds to choose on, 1 without; NaN for a fold's own texts
    texts: str  # a hash of the benchmark's revision, the texts' labels and the folds


@dataclass(frozen=True)
class Judgement:
    """What the lab says of one claim in one setting."""

    claim: Claim
    setting: str
    place: Setting
    seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]  # one for each side that a is held against; covers texts and seeds
    verdict: str
    all_at_chance: bool  # an equality of sides of which none tells the texts apart: it says nothing of what was varied
    live: tuple[Comparison, ...]  # the same of the seed that this build trained
    recorded: tuple[Comparison, ...]  # and of the recorded ones; empty where there are none


def load_claims(path: str | Path = CLAIMS_FILE) -> Claims:
    """Read and check the claims; ValueError names the file and what is wrong in it."""
    try:
        return Claims.model_validate(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}") from None


def score_claim(claims: Claims, claim: Claim, setting: str, seed: int) -> tuple[NDArray[np.int8], SeedScores]:
    """Labels of a claim's texts, and all sides' scores of them under models trained from `seed`.

    Seed 0 is the recipe's own. ValueError where a detector is not applicable in the setting.
    """
    place = claims.settings[setting]
    benchmark = load_benchmark(place.benchmark)
    positive, negative = (group.indices(benchmark.labels) for group in (claim.positive, claim.negative))
    texts = np.concatenate([positive, negative])
    labels = np.repeat(np.array([1, 0], np.int8), [len(positive), len(negative)])
    everything = np.arange(len(labels))
    is_chosen = any(side.is_chosen for side in claim.sides if side != CHANCE)
    runs = folds(labels) if is_chosen else [(everything, everything)]
    scores = np.full((len(claim.sides), len(runs), len(labels)), np.nan)
    for i, side in enumerate(claim.sides):
        candidates = None
        if side != CHANCE:
            target = _target(place, setting, side, seed)
            n_words = side.n_words.get(setting, place.n_words)
            candidates = _candidates(target, side, n_words, (place.masked, place.n_neighbors), seed).take(texts)
        for f, (val_idx, test_idx) in enumerate(runs):
            # Against chance all texts tie, which is an AUC of 0.5.
            of_side = (
                np.zeros(len(labels)) if candidates is None else candidates.scores[candidates.best(labels, val_idx)]
            )
            scores[i, f, test_idx] = of_side[test_idx]
    made_of = hash_of([benchmark.revision, labels.tolist(), [test_idx.tolist() for _, test_idx in runs]])
    return labels, SeedScores(seed, scores, made_of)


def score_claim_once(claims: Claims, claim: Claim, setting: str) -> tuple[NDArray[np.int8], SeedScores]:
    """`score_claim` of seed 0, from the cache where it is there: many pages show the verdicts of their claims."""
    place, sides = claims.settings[setting], [side for side in claim.sides if side != CHANCE]
    corpora = {_target(place, setting, side, 0).corpus for side in sides}
    corpora |= {side.training.partition(":")[0] for side in sides if side.training and not _samples(side)} - {APART}

    def make() -> dict[str, NDArray[Any]]:
        labels, found = score_claim(claims, claim, setting, seed=0)
        return {"labels": labels, "scores": found.scores, "texts": np.array(found.texts)}

    kept = arrays_once(
        "claims",
        make,
        test=claims.test_hash(claim, setting),
        models=[model_revision(name) for name in claims.models(claim, setting)],
        benchmark=load_benchmark(place.benchmark).revision,
        corpora=[corpus_identity(name) for name in sorted(filter(None, corpora))],
        device=pick_device().type,
        code=hash_files(PACKAGE.glob("*.py")),
        versions=[version(name) for name in ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn")],
    )
    return kept["labels"], SeedScores(0, kept["scores"], str(kept["texts"]))


def _target(place: Setting, setting: str, side: Side, seed: int) -> Target:
    return Target(
        model=of_seed(side.model.get(setting, place.model), seed),
        benchmark=place.benchmark,
        reference=of_seed(place.reference, seed) if place.reference and side.detector == "ref" else None,
        corpus=(side.corpus or place.corpus) if side.detector == "dc_pdd" else None,
    )


def _samples(side: Side | str) -> bool:
    """Whether a side's training texts are sampled from a model."""
    return side != CHANCE and bool(side.training) and side.training.startswith(SAMPLED)


@cache
def _candidates(
    target: Target, side: Side, n_words: int | None, neighbors: tuple[str | None, int | None], seed: int
) -> Candidates:
    """The scores of a side at each of its candidate options, one where it has no list; many claims share them."""
    if side.detector == PROBE:
        return _probe_candidates(target, side, n_words, seed)
    return _grid_candidates(target, side, n_words, neighbors)


def _grid_candidates(
    target: Target, side: Side, n_words: int | None, neighbors: tuple[str | None, int | None]
) -> Candidates:
    """Every point of a detector's grid, from stored statistics."""
    grid = {name: value if isinstance(value, list) else [value] for name, value in side.resolved_options().items()}
    inputs, document = _load(target, n_words, get_detector(side.detector).needs, side.part, neighbors)
    candidates = score_grid(inputs, side.detector, grid)
    if side.part == "all":
        means = np.stack([document_means(scores, document) for scores in candidates.scores])
        candidates = Candidates(candidates.options, means)
    elif side.part is not None:  # of the tail's two snippets the last, so that no place has a mean's advantage
        candidates = candidates.take(last_of_each(document))
    return candidates


def _probe_candidates(target: Target, side: Side, n_words: int | None, seed: int) -> Candidates:
    """Every learning rate and layer; the training seed also draws the unseen texts and flips the coin."""
    benchmark = load_benchmark(target.benchmark, n_words)
    unseen = load_unseen(side.training, benchmark, side.n_training, seed)
    collected = collect(target.model, benchmark.texts, unseen, seed=seed)
    return probe_candidates(fit_probes(collected.proxies, collected.coin), collected.target)


@cache
def _load(
    target: Target,
    n_words: int | None,
    needs: tuple[str, ...],
    part: str | None,
    neighbors: tuple[str | None, int | None],
) -> tuple[Inputs, NDArray[np.int64] | None]:
    """A target's texts, whole or cut, or a part of its documents, with the number of each snippet's document."""
    if part is not None:
        return snippet_inputs(target, n_words, needs, part)
    inputs = load_inputs(target, needs)
    inputs = inputs if n_words is None else cut_inputs(inputs, n_words)[0]
    return (with_neighbors(inputs, *neighbors) if "neighbors" in needs else inputs), None


def judge(claim: Claim, setting: str, place: Setting, labels: Sequence[int], seeds: Sequence[SeedScores]) -> Judgement:
    """The verdict of several training seeds on the same texts; "inconclusive" for fewer than three."""

    def compare(some: Sequence[SeedScores]) -> tuple[Comparison, ...]:
        return tuple(
            compare_auc_over_seeds(labels, [s.scores[0] for s in some], [s.scores[i] for s in some])
            for i in range(1, 1 + len(claim.against))
        )

    comparisons = compare(seeds)
    found = {verdict(c.difference, margin=claim.margin if claim.expect == "equivalent" else None) for c in comparisons}
    worst_first = ("not supported", "inconclusive", "supported")
    overall = next(name for name in worst_first if name in found) if len(seeds) >= 3 else "inconclusive"
    live, recorded = [s for s in seeds if not s.seed], [s for s in seeds if s.seed]
    return Judgement(
        claim,
        setting,
        place,
        tuple(s.seed for s in seeds),
        comparisons,
        overall,
        claim.expect == "equivalent" and CHANCE not in claim.against and _all_at_chance(labels, seeds),
        compare(live) if live else (),
        compare(recorded) if recorded else (),
    )


def _all_at_chance(labels: Sequence[int], seeds: Sequence[SeedScores]) -> bool:
    """Whether the interval of each side's AUC contains 0.5, by the comparison with what scores all texts alike."""
    by_side = [[s.scores[i] for s in seeds] for i in range(len(seeds[0].scores))]
    above_chance = [compare_auc_over_seeds(labels, of, [np.zeros_like(one) for one in of]).difference for of in by_side]
    return all(interval.low <= 0 <= interval.high for interval in above_chance)


def judge_on(models: Sequence[str], ids: Sequence[str]) -> list[Judgement]:
    """The claims with these ids in the settings of these models: what a page that ran them says over all seeds.

    Empty where the models are others than the claims are tested on. ValueError for an unknown id.
    """
    claims = load_claims()
    if unknown := set(ids) - {claim.id for claim in claims.claims}:
        raise ValueError(f"{CLAIMS_FILE}: no claim {unknown.pop()!r}")
    tests = [
        (claim, name) for claim, name in claims.tests() if claim.id in ids and claims.settings[name].model in models
    ]
    return judge_all(claims, tests=tests)[0]


def judge_all(
    claims: Claims, recorded: Path = RECORDED_FILE, *, tests: Sequence[tuple[Claim, str]] | None = None
) -> tuple[list[Judgement], list[str]]:
    """Every claim in every setting, from the live seed and the recorded ones, and a line for each seed left out.

    `tests` are the ones to judge, all where it is not given.
    """
    kept = load_recorded(recorded)
    judgements, left_out = [], []
    for claim, setting in claims.tests() if tests is None else tests:
        labels, live = score_claim_once(claims, claim, setting)
        seeds = [live]
        for found, test in kept.get((claim.id, setting), []):
            if test == claims.test_hash(claim, setting) and found.texts == live.texts:
                seeds.append(found)
            else:
                left_out.append(f"{claim.id}, {setting}, seed {found.seed}: recorded for another test or other texts")
        judgements.append(judge(claim, setting, claims.settings[setting], labels, seeds))
    return judgements, left_out


def record(claims: Claims, seeds: Iterable[int], path: Path = RECORDED_FILE) -> None:
    """Train, score and write the scores of further seeds, with provenance in the file's metadata."""
    import pyarrow as pa

    rows = []
    for seed in seeds:
        for claim, setting in claims.tests():
            logger.info("seed %d: %s, %s", seed, claim.id, setting)
            _, found = score_claim(claims, claim, setting, seed)
            rows.append(
                {
                    "claim": claim.id,
                    "setting": setting,
                    "seed": seed,
                    "test": claims.test_hash(claim, setting),
                    "texts": found.texts,
                    "scores": found.scores.astype(np.float32).tolist(),
                }
            )
    columns = {
        "claim": pa.string(),
        "setting": pa.string(),
        "seed": pa.int32(),
        "test": pa.string(),
        "texts": pa.string(),
        "scores": pa.list_(pa.list_(pa.list_(pa.float32()))),
    }
    write_recorded(path, rows, columns)


def load_recorded(path: Path = RECORDED_FILE) -> dict[tuple[str, str], list[tuple[SeedScores, str]]]:
    """Recorded scores and the hash of the test that they are of, by claim and setting; empty where there are none."""
    kept: dict[tuple[str, str], list[tuple[SeedScores, str]]] = {}
    for row in read_recorded(path):
        scores = SeedScores(row["seed"], np.array(row["scores"], np.float64), row["texts"])
        kept.setdefault((row["claim"], row["setting"]), []).append((scores, row["test"]))
    return kept


def claim_results(judgements: Sequence[Judgement]) -> list[Result]:
    """Every comparison of every claim as a result."""
    return [
        Result.of(row=j.claim.id, column=f"{j.setting}, comparison {i}", metric="auc_difference", interval=c.difference)
        for j in judgements
        for i, c in enumerate(j.comparisons)
    ]


def summary(judgements: Sequence[Judgement], left_out: Sequence[str]) -> str:
    """How many verdicts of each kind, and what recorded seeds were left out, in Markdown."""
    counts = Counter(j.verdict for j in judgements)
    n_seeds = sorted({len(j.seeds) for j in judgements})
    lines = [
        f"**{len(judgements)} tests**: "
        + ", ".join(f"{counts[name]} {name}" for name in ("supported", "not supported", "inconclusive"))
        + f". Training seeds behind each: {' to '.join(map(str, sorted({n_seeds[0], n_seeds[-1]})))}."
    ]
    if left_out:
        lines += ["", "Recorded seeds that were left out:", "", *(f"- {line}" for line in left_out)]
    return "\n".join(lines)


def describe_recorded(path: Path = RECORDED_FILE) -> str:
    """What the recorded seeds were computed with, in a sentence."""
    return describe(path)
