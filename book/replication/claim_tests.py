"""A claim of a paper as a test (`data/claims.yml`), and the scores that it compares. `replication.judging` judges them.

Recorded scores hold the versions of what makes them (`versions_behind_test`), "claims" for this module's own part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from mialib.attacks.activations import EPOCHS, PROMPT
from mialib.attacks.probe import LEARNING_RATES, N_TRAINING, collect, fit_probes, probe_candidates
from mialib.cache import ARRAYS, cached
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS, FloatArray, get_detector
from mialib.model_selection import Candidates, Indices, folds
from mialib.models import pick_device
from mialib.passes.inputs import Inputs, Target, load_inputs, score_grid, versions_behind
from mialib.shared.schema import Strict, read_yaml
from mialib.store import hash_of, version
from mialib.versions import versions_of
from replication import BOOK_DATA
from replication.builders.unseen import APART, SAMPLED, load_unseen
from replication.lab.recipes import by_group
from replication.lab.source import Lab, of_seed, recipes_of
from replication.recorded import identity_of, recorded_probe
from replication.results import document_means

CLAIMS_FILE = BOOK_DATA / "claims.yml"
CHANCE = "chance"
PROBE, AS_RECORDED = "probe", "recorded"
NO_CORPUS = "none"  # in the place of a corpus: every token is as frequent as any other
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "jieba")


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
    corpus: str | None = None  # in which DC-PDD counts tokens; "none": without one
    training: str | None = None  # unseen texts for the probe, as in `builders.unseen`, or AS_RECORDED
    n_training: PositiveInt = N_TRAINING
    only: tuple[str, ...] = ()  # the settings that it is compared in; (): all of the claim's
    printed: tuple[str, str] = ("", "")  # row and place in the paper's table, where not the detector's and the claim's

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
    def alone(self) -> Side:
        """The side without what is said of its comparison, which changes none of its scores."""
        return self.model_copy(update={"only": (), "printed": ("", "")})

    @property
    def _is_probe(self) -> bool:
        return self.detector == PROBE

    @property
    def is_sampled(self) -> bool:
        """Whether the probe's training texts are sampled from a model."""
        return (self.training or "").startswith(SAMPLED)

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
        return self.alone.model_dump(exclude_defaults=True) | {"options": self.resolved_options()} | probe


class PrintedIn(Strict):
    """Where the paper prints the leads that a claim is about: a table, and the beginnings of its columns."""

    item: str
    columns: tuple[str, ...] = ("",)
    paper: str = ""  # another than the claim's


class Change(Strict):
    """A change of a test, or of the rule by which all are judged."""

    date: date
    what: str
    why: str
    seen: str  # which results were known when it was changed
    was: dict[str, Any] = Field(default_factory=dict)  # the claim's fields before; that test is still judged


class Claim(Strict):
    """A claim of a paper and its test."""

    id: str
    paper: str
    claim: str
    published: str
    objection: str = ""  # the strongest one that the paper's authors could make to the verdict
    answer: str = ""  # ours to it
    printed: PrintedIn | None = None  # None: no table prints what is compared
    repeats: str = ""  # the claim that this one tests once more: at other sizes or lengths, or by TPR
    fixed: Literal["before", "after a note's figures", "after seed 0", "after all seeds"]  # what had been seen
    where: tuple[str, ...]  # names of settings
    positive: Group = Group(of="members")
    negative: Group = Group(of="non-members")
    a: Side
    against: tuple[Side | Literal["chance"], ...]
    control: Side | None = None  # of `equivalent`: if a equals this one too, nothing was learned
    confounded: str = ""  # what else than the claim its differences show; it has no other verdict then
    metric: Literal["auc", "tpr_at_5_fpr", "tpr_at_1_fpr"] = "auc"
    expect: Literal["greater", "equivalent"]
    margin: PositiveFloat | None = None  # of `equivalent`
    matters: PositiveFloat | None = None  # of `greater`: the smallest difference that matters; None: by the rule
    most: bool = False  # it is claimed of most of `against`, and not of each
    history: tuple[Change, ...] = ()
    former_of: str = ""  # the claim that has replaced this one, of a test that stands in a claim's history

    @model_validator(mode="after")
    def _says_what_it_expects(self) -> Claim:
        if (self.margin is not None) != (self.expect == "equivalent"):
            raise ValueError(f"claim {self.id}: `equivalent`, and nothing else, has a margin")
        if self.control and self.margin is None:
            raise ValueError(f"claim {self.id}: `equivalent`, and nothing else, has a control")
        if bool(self.objection) != bool(self.answer):
            raise ValueError(f"claim {self.id}: an objection and its answer come together")
        if self.metric != "auc" and CHANCE in self.against:
            raise ValueError(f"claim {self.id}: texts that all tie have no {self.metric}; compare it with a detector")
        for side in self.scored:
            if unknown := (set(side.model) | set(side.n_words) | set(side.only)) - set(self.where):
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

    def at(self, setting: str) -> Claim:
        """The claim against those that it is compared with in a setting."""
        here = [side for side in self.against if side == CHANCE or setting in (side.only or self.where)]
        return self.model_copy(update={"against": tuple(here)})

    def against_control(self) -> Claim:
        """The same test against its control alone, which is recorded by itself."""
        return self.model_copy(update={"id": f"{self.id}, control", "against": (self.control,), "control": None})

    def former(self) -> list[Claim]:
        """The tests that this one has replaced, each a claim of its own: their verdicts stay in the book."""
        now = self.model_dump(exclude={"history"})
        of_each = {f"{self.id} until {change.date}": change for change in self.history if change.was}
        fields = {name: {"id": name, "former_of": self.id, "history": [of]} for name, of in of_each.items()}
        return [Claim.model_validate(now | of.was | fields[name]) for name, of in of_each.items()]


class Untested(Strict):
    """A claim of a paper that no test here is of."""

    paper: str
    claim: str
    published: str
    why: str


class Claims(Strict):
    """The whole file."""

    history: tuple[Change, ...] = ()  # of the rule by which all claims are judged
    settings: dict[str, Target]
    claims: tuple[Claim, ...]
    untested: tuple[Untested, ...] = ()

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
        """Every claim in every setting that it is tested in, each followed by the tests that it has replaced."""
        every = [one for claim in self.claims for one in (claim, *claim.former())]
        return [(claim.at(name), name) for claim in every for name in claim.where]

    def test_hash(self, claim: Claim, setting: str) -> str:
        """What a recorded score must have been computed for: sides, groups, setting and recipes, not the wording."""
        sides = [side if side == CHANCE else side.resolved() for side in claim.sides]
        groups = [claim.positive.model_dump(), claim.negative.model_dump()]
        place = self.settings[setting].model_dump(exclude_defaults=True)
        return hash_of([sides, groups, place, recipes_of(self.models(claim, setting))])

    def models(self, claim: Claim, setting: str, seed: int = 0) -> list[str]:
        """The models that a test runs, those that write texts or neighbors for it included.

        Those whose scores are compared are of this training seed; who writes texts or neighbors stays.
        """
        place = self.settings[setting]
        names = {side.model.get(setting, place.model) for side in claim.scored}
        names |= {place.reference for side in claim.scored if side.detector == "ref"}
        helpers = {place.masked} | {side.training.removeprefix(SAMPLED) for side in claim.scored if side.is_sampled}
        return sorted({of_seed(name, seed) for name in names if name} | set(filter(None, helpers)))


def load_claims(path: str | Path = CLAIMS_FILE) -> Claims:
    """Read and check the claims; ValueError names the file and what is wrong in it."""
    return read_yaml(Path(path), Claims)


# --- scores ---


@dataclass(frozen=True)
class SeedScores:
    """The scores of one claim in one setting under one training seed: in the order of its sides."""

    seed: int
    scores: FloatArray  # (len(sides), F, N); F folds to choose on, 1 without; NaN for a fold's own texts
    texts: str  # a hash of the benchmark's revision, the texts' labels and the folds


@dataclass(frozen=True)
class JudgedTexts:
    """Which of a benchmark's texts a claim is tested on in a setting."""

    numbers: NDArray[np.int64]  # (N,), in the benchmark
    labels: NDArray[np.int8]  # (N,), 1 = positive
    runs: list[tuple[Indices, Indices]]  # of each of F folds the texts to choose on, and to judge on
    made_of: str  # a hash of the benchmark's revision, the labels and the folds


def judged_texts(claims: Claims, claim: Claim, setting: str) -> JudgedTexts:
    """The texts of a test; of a lab benchmark none is read for it."""
    revision, of_all = _dealt(claims.settings[setting].benchmark)
    positive, negative = (group.indices(of_all) for group in (claim.positive, claim.negative))
    numbers = np.concatenate([positive, negative])
    labels = np.repeat(np.array([1, 0], np.int8), [len(positive), len(negative)])
    is_recorded = any(side.training == AS_RECORDED for side in claim.scored)
    if is_recorded:  # without the texts on which its layer and learning rate were chosen, the same with each seed
        is_judged = np.isin(numbers, recorded_probe(claims.settings[setting].model)[1])
        numbers, labels = numbers[is_judged], labels[is_judged]
    everything = np.arange(len(labels))
    has_choice = not is_recorded and any(side.is_chosen for side in claim.scored)
    runs = folds(labels) if has_choice else [(everything, everything)]
    made_of = hash_of([revision, labels.tolist(), [test_idx.tolist() for _, test_idx in runs]])
    return JudgedTexts(numbers, labels, runs, made_of)


@cache
def _dealt(benchmark: str) -> tuple[str, NDArray[np.int8]]:
    """What names a benchmark's texts, and who of them is a member."""
    if isinstance(source := find(benchmark), Lab):
        return source.labels
    loaded = load_benchmark(benchmark)
    return loaded.revision, loaded.labels


def score_claim(claims: Claims, claim: Claim, setting: str, seed: int) -> SeedScores:
    """All sides' scores of a claim's texts under models trained from `seed`; seed 0 is the recipe's own.

    ValueError where a detector is not applicable in the setting, or some of the lab's texts can't be read.
    """
    place, texts = claims.settings[setting], judged_texts(claims, claim, setting)
    if isinstance(benchmark := find(place.benchmark), Lab):
        benchmark.check_whole()
    scores = np.full((len(claim.sides), len(texts.runs), len(texts.labels)), np.nan)
    for i, side in enumerate(claim.sides):
        if side == CHANCE:  # all texts tie, which is an AUC of 0.5
            candidates = Candidates(({},), np.zeros((1, len(texts.labels))))
        else:
            target = place.but(
                model=of_seed(side.model.get(setting, place.model), seed),
                reference=place.reference and of_seed(place.reference, seed),
                corpus=place.corpus if side.corpus in (None, NO_CORPUS) else side.corpus,
                n_words=side.n_words.get(setting, place.n_words),
                part=side.part or place.part,
            )
            candidates = _candidates(target, side.alone, seed).take(texts.numbers)
        for f, (val_idx, test_idx) in enumerate(texts.runs):
            scores[i, f, test_idx] = candidates.scores[candidates.best(texts.labels, val_idx), test_idx]
    return SeedScores(seed, scores, texts.made_of)


def claim_scores(claims: Claims, claim: Claim, setting: str, seed: int = 0) -> SeedScores:
    """`score_claim`, computed once and kept."""

    def make() -> dict[str, NDArray[Any]]:
        scored = score_claim(claims, claim, setting, seed)
        return {"scores": scored.scores, "texts": np.array(scored.texts)}

    kept = cached("claims", make, ARRAYS, **determined_by(claims, claim, setting, seed))
    return SeedScores(seed, kept["scores"], str(kept["texts"]))


def determined_by(claims: Claims, claim: Claim, setting: str, seed: int = 0) -> dict[str, Any]:
    """What determines the scores of a test under one seed."""
    place = claims.settings[setting]
    corpora = {side.corpus or place.corpus for side in claim.scored if side.detector == "dc_pdd"} - {NO_CORPUS}
    corpora |= {side.training.partition(":")[0] for side in claim.scored if side.training and not side.is_sampled}
    return {
        "test": claims.test_hash(claim, setting),
        "seed": seed,
        "models": [_model_revision(name) for name in claims.models(claim, setting, seed)],
        "benchmark": _dealt(place.benchmark)[0],
        "corpora": [_corpus_identity(name) for name in sorted(filter(None, corpora - {APART, AS_RECORDED}))],
        "device": pick_device().type,
        "versions": versions_behind_test(claim),
        "libraries": [version(name) for name in LIBRARIES],
    }


def versions_behind_test(claim: Claim) -> dict[str, int]:
    """The versions of all that makes a test's scores: of its detectors and what they need, of training and choosing."""
    found = versions_of("claims", "training", *(["choosing"] if any(side.is_chosen for side in claim.scored) else []))
    for side in claim.scored:
        if side.detector == PROBE:
            found |= versions_of("activations", "probe", "unseen", *(["sampling"] if side.is_sampled else []))
        else:
            found |= versions_behind(side.detector)
    return dict(sorted(found.items()))


# Sides and claims share these.
_inputs = cache(load_inputs)
_model_revision, _corpus_identity = cache(lambda name: find(name).revision), cache(identity_of)


@cache
def _candidates(target: Target, side: Side, seed: int) -> Candidates:
    """The scores of a side at each of its candidate options, one where nothing is to be chosen.

    Of the probe these are every learning rate and layer; the training seed also draws its unseen texts and coin.
    """
    if side.training == AS_RECORDED:
        return Candidates(({},), recorded_probe(target.model)[0][None])
    if side.detector != PROBE:
        inputs = _inputs(target)
        if side.corpus == NO_CORPUS:
            counted = inputs["frequency"]
            inputs = inputs.given(frequency=replace(counted, counts=np.zeros_like(counted.counts)))
        return _grid_candidates(inputs, side)
    benchmark = load_benchmark(target.benchmark, target.n_words)
    unseen = load_unseen(side.training, benchmark, side.n_training, seed)
    collected = collect(target.model, benchmark.texts, unseen, seed=seed)
    return probe_candidates(fit_probes(collected.proxies, collected.coin), collected.target)


def _grid_candidates(inputs: Inputs, side: Side) -> Candidates:
    """Every point of a detector's grid. Of a document's snippets the mean counts, or the last of its tail."""
    options = side.resolved_options().items()
    grid = {name: value if isinstance(value, list) else [value] for name, value in options}
    candidates, document = score_grid(inputs, side.detector, grid), inputs.benchmark.document
    if inputs.target.part is None or document is None:
        return candidates
    if inputs.target.part == "all":
        return Candidates(candidates.options, np.stack([document_means(s, document) for s in candidates.scores]))
    return candidates.take(np.flatnonzero(np.append(np.diff(document) > 0, True)))
