"""The papers' claims as tests (`data/claims.yml`), and what the lab says of each.

    load_claims   the file: each claim is a comparison of AUCs in some settings
    score_claim   the scores of all sides of a claim in a setting, under models of one training seed
    judge         the verdict of several seeds; judge_once keeps it

A verdict rests on several training seeds. Seed 0 is computed here. The others are recorded by `mialib record` as scores
in `data/recorded/claims.parquet`, each with a hash of its test and of its texts. Where these are not those of this
build, the seed is left out, and the page says so. Tables of judgements are in `mialib.book.claims`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, TypeAdapter, model_validator

from mialib.attacks.activations import EPOCHS, PROMPT
from mialib.attacks.probe import LEARNING_RATES, N_TRAINING, collect, fit_probes, probe_candidates
from mialib.attacks.unseen import APART, SAMPLED, load_unseen
from mialib.book.intervals import document_means
from mialib.book.recorded import read_rows, write_rows
from mialib.book.results import verdict
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import corpus_identity
from mialib.catalog.models import model_revision
from mialib.detectors import DETECTORS, FloatArray, get_detector
from mialib.lab.models import by_group, of_seed, recipes_of
from mialib.metrics import Comparison, compare_auc_over_seeds
from mialib.model_selection import Candidates, folds
from mialib.models import pick_device
from mialib.passes.inputs import Inputs, Target, load_inputs, score_grid
from mialib.shared.kept import ARRAYS, JSON, keep
from mialib.shared.schema import Strict, read_yaml
from mialib.store import DATA, code_hash, hash_files, hash_of, version

CLAIMS_FILE = DATA / "claims.yml"
RECORDED_FILE = DATA / "recorded" / "claims.parquet"
CHANCE = "chance"
PROBE = "probe"
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "jieba")

logger = logging.getLogger(__name__)


# --- the file ---


class Group(Strict):
    """Some of a benchmark's texts: one class, or one of equal consecutive groups of it."""

    of: Literal["members", "non-members"]
    group: tuple[PositiveInt, PositiveInt] | None = None  # (1, 7): the first of seven; None: the whole class

    @model_validator(mode="after")
    def _is_one_of_its_groups(self) -> Group:
        if self.group and self.group[0] > self.group[1]:
            raise ValueError(f"group {self.group[0]} of {self.group[1]} does not exist")
        return self

    def indices(self, labels: NDArray[np.int8]) -> NDArray[np.int64]:
        """The numbers of the group's texts."""
        of_class = np.flatnonzero(labels == (self.of == "members"))
        if self.group is None:
            return of_class
        number, n_groups = self.group
        return of_class[np.array(by_group(range(1, n_groups + 1), len(of_class))) == number]


class Side(Strict):
    """One side of a comparison: a detector, and by setting what differs there from the setting's target.

    An option that is a list is chosen, by AUC, on each fifth of the texts in turn; "grid" is the detector's whole grid.
    So are the learning rate and layer of the probe, which is no registered detector and learns from `training` texts.
    With any such side, all sides are judged on the other four fifths.
    """

    detector: str
    options: dict[str, float | bool | list[float]] | Literal["grid"] = Field(default_factory=dict)
    model: dict[str, str] = Field(default_factory=dict)
    n_words: dict[str, int] = Field(default_factory=dict)
    part: Literal["head", "middle", "tail", "all"] | None = None  # of long documents, in snippets of n_words
    corpus: str | None = None
    training: str | None = None  # unseen texts for the probe, named as in `mialib.attacks.unseen`
    n_training: PositiveInt = N_TRAINING

    @model_validator(mode="after")
    def _has_what_its_detector_needs(self) -> Side:
        if self._is_probe != bool(self.training):
            raise ValueError("the probe, and nothing else, has `training` texts")
        if not self._is_probe and not get_detector(self.detector).grid and self.options == "grid":
            known = ", ".join(name for name, detector in DETECTORS.items() if detector.grid)
            raise ValueError(f"detector {self.detector!r} has no grid; those of {known} are known")
        return self

    def __hash__(self) -> int:
        return hash(hash_of(self.model_dump()))  # some fields are dicts, which have none

    @property
    def _is_probe(self) -> bool:
        return self.detector == PROBE

    @property
    def is_sampled(self) -> bool:
        """Whether the probe's training texts are sampled from a model."""
        return bool(self.training) and self.training.startswith(SAMPLED)

    @property
    def is_chosen(self) -> bool:
        """Whether an option is to be chosen."""
        return self._is_probe or any(isinstance(value, list) for value in self.resolved_options().values())

    def resolved_options(self) -> dict[str, Any]:
        """The options, the grid written out."""
        return dict(DETECTORS[self.detector].grid) if self.options == "grid" else dict(self.options)

    def resolved(self) -> dict[str, Any]:
        """All that determines the side's scores in a setting; a field added later changes no side that lacks it."""
        probe = {"learning_rates": LEARNING_RATES, "epochs": EPOCHS, "prompt": PROMPT} if self._is_probe else {}
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
        for side in self.scored:
            if unknown := (set(side.model) | set(side.n_words)) - set(self.where):
                raise ValueError(f"claim {self.id}: it is not tested in {unknown.pop()!r}")
            if side.part and (lacking := set(self.where) - set(side.n_words)):
                raise ValueError(f"claim {self.id}: a part of documents needs n_words for {lacking.pop()!r}")
        return self

    @property
    def sides(self) -> list[Side | Literal["chance"]]:
        """Side a, then each that it is compared with."""
        return [self.a, *self.against]

    @property
    def scored(self) -> list[Side]:
        """The sides that have scores: all but chance."""
        return [side for side in self.sides if side != CHANCE]


class Claims(Strict):
    """The whole file."""

    settings: dict[str, Target]
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _settings_are_known(self) -> Claims:
        for name, place in self.settings.items():
            if bool(place.masked) != ("n_neighbors" in place.model_fields_set):
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
        sides = [side if side == CHANCE else side.resolved() for side in claim.sides]
        groups = [claim.positive.model_dump(), claim.negative.model_dump()]
        place = self.settings[setting].model_dump(exclude_defaults=True)
        return hash_of([sides, groups, place, recipes_of(self.models(claim, setting))])

    def models(self, claim: Claim, setting: str) -> list[str]:
        """The models that a test runs, those that write texts or neighbors for it included."""
        place = self.settings[setting]
        names = {side.model.get(setting, place.model) for side in claim.scored} | {place.masked}
        names |= {place.reference for side in claim.scored if side.detector == "ref"}
        names |= {side.training.removeprefix(SAMPLED) for side in claim.scored if side.is_sampled}
        return sorted(filter(None, names))


def load_claims(path: str | Path = CLAIMS_FILE) -> Claims:
    """Read and check the claims; ValueError names the file and what is wrong in it."""
    return read_yaml(Path(path), Claims)


# --- scores ---


@dataclass(frozen=True)
class SeedScores:
    """The scores of one claim in one setting under one training seed: first side a, then each that it is against."""

    seed: int
    scores: FloatArray  # (1 + len(against), F, N); F folds to choose on, 1 without; NaN for a fold's own texts
    texts: str  # a hash of the benchmark's revision, the texts' labels and the folds


def score_claim(claims: Claims, claim: Claim, setting: str, seed: int) -> tuple[NDArray[np.int8], SeedScores]:
    """Labels of a claim's texts, and all sides' scores of them under models trained from `seed`.

    Seed 0 is the recipe's own. ValueError where a detector is not applicable in the setting.
    """
    place = claims.settings[setting]
    benchmark = _benchmark(place.benchmark)
    positive, negative = (group.indices(benchmark.labels) for group in (claim.positive, claim.negative))
    texts = np.concatenate([positive, negative])
    labels = np.repeat(np.array([1, 0], np.int8), [len(positive), len(negative)])
    everything = np.arange(len(labels))
    runs = folds(labels) if any(side.is_chosen for side in claim.scored) else [(everything, everything)]
    scores = np.full((len(claim.sides), len(runs), len(labels)), np.nan)
    for i, side in enumerate(claim.sides):
        if side == CHANCE:  # all texts tie, which is an AUC of 0.5
            candidates = Candidates(({},), np.zeros((1, len(labels))))
        else:
            candidates = _candidates(_target(place, setting, side, seed), side, seed).take(texts)
        for f, (val_idx, test_idx) in enumerate(runs):
            scores[i, f, test_idx] = candidates.scores[candidates.best(labels, val_idx), test_idx]
    made_of = hash_of([benchmark.revision, labels.tolist(), [test_idx.tolist() for _, test_idx in runs]])
    return labels, SeedScores(seed, scores, made_of)


def _target(place: Target, setting: str, side: Side, seed: int) -> Target:
    return place.but(
        model=of_seed(side.model.get(setting, place.model), seed),
        reference=place.reference and of_seed(place.reference, seed),
        corpus=side.corpus or place.corpus,
        n_words=side.n_words.get(setting, place.n_words),
        part=side.part or place.part,
    )


# Sides and claims share these.
_inputs, _benchmark = cache(load_inputs), cache(load_benchmark)
_model_revision, _corpus_identity = cache(model_revision), cache(corpus_identity)


@cache
def _candidates(target: Target, side: Side, seed: int) -> Candidates:
    """The scores of a side at each of its candidate options, one where nothing is to be chosen."""
    return _probe_candidates(target, side, seed) if side.detector == PROBE else _grid_candidates(_inputs(target), side)


def _grid_candidates(inputs: Inputs, side: Side) -> Candidates:
    """Every point of a detector's grid. Of a document's snippets the mean counts, or the last of its tail."""
    options = side.resolved_options().items()
    grid = {name: value if isinstance(value, list) else [value] for name, value in options}
    candidates, document = score_grid(inputs, side.detector, grid), inputs.benchmark.document
    if inputs.target.part is None or document is None:
        return candidates
    if inputs.target.part == "all":
        means = [document_means(scores, document) for scores in candidates.scores]
        return Candidates(candidates.options, np.stack(means))
    return candidates.take(np.flatnonzero(np.append(np.diff(document) > 0, True)))


def _probe_candidates(target: Target, side: Side, seed: int) -> Candidates:
    """Every learning rate and layer; the training seed also draws the unseen texts and flips the coin."""
    benchmark = load_benchmark(target.benchmark, target.n_words)
    unseen = load_unseen(side.training, benchmark, side.n_training, seed)
    collected = collect(target.model, benchmark.texts, unseen, seed=seed)
    return probe_candidates(fit_probes(collected.proxies, collected.coin), collected.target)


# --- verdicts ---


@dataclass(frozen=True)
class Judgement:
    """What the lab says of one claim in one setting."""

    claim: Claim
    setting: str
    place: Target
    seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]  # with each side that a is against; covers texts and seeds
    verdict: str
    all_at_chance: bool  # an equality of sides of which none tells the texts apart: it says nothing of what was varied
    live: tuple[Comparison, ...]  # the same of the seed that this build trained
    recorded: tuple[Comparison, ...]  # and of the recorded ones; empty where there are none
    left_out: tuple[int, ...] = ()  # recorded seeds of another test or other texts


def judge(claim: Claim, setting: str, place: Target, labels: Sequence[int], seeds: Sequence[SeedScores]) -> Judgement:
    """The verdict of several training seeds on the same texts; "inconclusive" for fewer than three."""

    def compare(some: Sequence[SeedScores]) -> tuple[Comparison, ...]:
        others = range(1, 1 + len(claim.against)) if some else ()
        of_a = [s.scores[0] for s in some]
        return tuple(compare_auc_over_seeds(labels, of_a, [s.scores[i] for s in some]) for i in others)

    comparisons = compare(seeds)
    verdicts = {verdict(c.difference, claim.margin) for c in comparisons}
    worst_first = ("not supported", "inconclusive", "supported")
    return Judgement(
        claim=claim,
        setting=setting,
        place=place,
        seeds=tuple(s.seed for s in seeds),
        comparisons=comparisons,
        verdict=next(name for name in worst_first if name in verdicts) if len(seeds) >= 3 else "inconclusive",
        all_at_chance=claim.expect == "equivalent" and CHANCE not in claim.against and _all_at_chance(labels, seeds),
        live=compare([s for s in seeds if s.seed == 0]),
        recorded=compare([s for s in seeds if s.seed != 0]),
    )


def _all_at_chance(labels: Sequence[int], seeds: Sequence[SeedScores]) -> bool:
    """Whether the interval of each side's AUC contains 0.5, by the comparison with what scores all texts alike."""
    by_side = [[s.scores[i] for s in seeds] for i in range(len(seeds[0].scores))]
    above_chance = [compare_auc_over_seeds(labels, of, [np.zeros_like(one) for one in of]).difference for of in by_side]
    return all(interval.low <= 0 <= interval.high for interval in above_chance)


_AS_JSON = TypeAdapter(Judgement)


def judge_once(claims: Claims, claim: Claim, setting: str, recorded: Path = RECORDED_FILE) -> Judgement:
    """What all seeds say of a claim in a setting, judged once for all pages: scores and judgements are kept."""

    def make() -> Any:
        labels, seeds, left_out = seeds_of(claims, claim, setting, recorded)
        judgement = judge(claim, setting, claims.settings[setting], labels, seeds)
        return _AS_JSON.dump_python(judgement) | {"left_out": left_out}

    rows = hash_files([recorded]) if recorded.is_file() else None
    stated = {"claim": claim.model_dump(), "setting": setting, "recorded": rows}
    kept = keep("judgements", make, JSON, **stated, **_determined_by(claims, claim, setting))
    return _AS_JSON.validate_python(kept)


def seeds_of(
    claims: Claims, claim: Claim, setting: str, recorded: Path = RECORDED_FILE
) -> tuple[NDArray[np.int8], list[SeedScores], list[int]]:
    """A test's labels, the scores of the live seed and of the recorded ones, and which recorded ones are left out.

    Those are left out that were recorded for another test or other texts.
    """

    def make() -> dict[str, NDArray[Any]]:
        labels, live = score_claim(claims, claim, setting, seed=0)
        return {"labels": labels, "scores": live.scores, "texts": np.array(live.texts)}

    kept = keep("claims", make, ARRAYS, **_determined_by(claims, claim, setting))
    seeds, left_out = [SeedScores(0, kept["scores"], str(kept["texts"]))], []
    for seed, test in load_recorded(claim.id, setting, recorded):
        if (test, seed.texts) == (claims.test_hash(claim, setting), seeds[0].texts):
            seeds.append(seed)
        else:
            left_out.append(seed.seed)
    return kept["labels"], seeds, left_out


def _determined_by(claims: Claims, claim: Claim, setting: str) -> dict[str, Any]:
    """What determines the live scores of a test."""
    place = claims.settings[setting]
    corpora = {side.corpus or place.corpus for side in claim.scored if side.detector == "dc_pdd"}
    corpora |= {side.training.partition(":")[0] for side in claim.scored if side.training and not side.is_sampled}
    return {
        "test": claims.test_hash(claim, setting),
        "models": [_model_revision(name) for name in claims.models(claim, setting)],
        "benchmark": _benchmark(place.benchmark).revision,
        "corpora": [_corpus_identity(name) for name in sorted(filter(None, corpora - {APART}))],
        "device": pick_device().type,
        "code": code_hash("book.judging", "lab.training", apart=("lab",)),
        "versions": [version(name) for name in LIBRARIES],
    }


def judge_all(claims: Claims, recorded: Path = RECORDED_FILE) -> list[Judgement]:
    """Every claim in every setting, from the live seed and the recorded ones."""
    return [judge_once(claims, claim, setting, recorded) for claim, setting in claims.tests()]


def judge_on(models: Sequence[str], ids: Sequence[str]) -> list[Judgement]:
    """The claims with these ids in the settings of these models: what a page that ran them says over all seeds.

    Empty where the models are others than the claims are tested on. ValueError for an unknown id.
    """
    claims = load_claims()
    if unknown := set(ids) - {claim.id for claim in claims.claims}:
        raise ValueError(f"{CLAIMS_FILE}: no claim {unknown.pop()!r}")
    tests = [(claim, name) for claim, name in claims.tests() if claim.id in ids]
    return [judge_once(claims, *test) for test in tests if claims.settings[test[1]].model in models]


# --- further seeds ---


def record(claims: Claims, seeds: Iterable[int], path: Path = RECORDED_FILE) -> None:
    """Train, score and write the scores of further seeds, with provenance in the file's metadata."""
    rows = []
    for seed in seeds:
        for claim, setting in claims.tests():
            logger.info("seed %d: %s, %s", seed, claim.id, setting)
            _, scored = score_claim(claims, claim, setting, seed)
            of_test = {"claim": claim.id, "setting": setting, "seed": seed, "test": claims.test_hash(claim, setting)}
            # A list of lists of arrays: parquet has no arrays of three dimensions.
            scores = [list(of_side) for of_side in scored.scores.astype(np.float32)]
            rows.append(of_test | {"texts": scored.texts, "scores": scores})
    write_rows(path, rows)


def load_recorded(claim: str, setting: str, path: Path = RECORDED_FILE) -> list[tuple[SeedScores, str]]:
    """Recorded scores of a claim, by its id, in a setting, each with the hash of the test that it is of."""
    return [
        (SeedScores(row["seed"], np.array(row["scores"], np.float64), row["texts"]), row["test"])
        for row in read_rows(path, claim=claim, setting=setting)
    ]
