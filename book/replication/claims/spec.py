"""A claim of a paper as a test: the schema of `data/claims.yml`."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from mialib.attacks.activations import EPOCHS, PROMPT
from mialib.attacks.probe import LEARNING_RATES, N_TRAINING
from mialib.detectors import DETECTORS, get_detector
from mialib.passes.inputs import Target
from mialib.shared.schema import Strict, read_yaml
from mialib.store import hash_of
from replication import BOOK_DATA
from replication.builders.unseen import SAMPLED
from replication.lab.recipes import by_group
from replication.lab.source import of_seed, recipes_of

CLAIMS_FILE = BOOK_DATA / "claims.yml"
CHANCE = "chance"
PROBE, AS_RECORDED = "probe", "recorded"
NO_CORPUS = "none"  # in place of a corpus: every token is as frequent as any other
BASE, SHORT_WORDS = "English", 32  # claims in this setting are tested on benchmarks too; a short text there


class Group(Strict):
    """Some of a benchmark's texts: one class, or one of equal consecutive groups of it."""

    of: Literal["members", "non-members"]
    group: tuple[PositiveInt, PositiveInt] | None = None  # (1, 7): the first of seven; None: the whole class

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
    If any side is chosen, all sides are judged on the other four fifths.
    """

    detector: str
    options: dict[str, float | bool | list[float]] | Literal["grid"] = Field(default_factory=dict)
    model: dict[str, str] = Field(default_factory=dict)
    n_words: dict[str, int] = Field(default_factory=dict)
    part: Literal["head", "middle", "tail", "all"] | None = None  # of long documents, in snippets of n_words
    corpus: str | None = None  # in which DC-PDD counts tokens; "none": without one
    training: str | None = None  # unseen texts for the probe, as in `builders.unseen`, or AS_RECORDED
    n_training: PositiveInt = N_TRAINING
    only: tuple[str, ...] = ()  # the settings in which it is compared; (): all settings of the claim
    printed: tuple[str, str] = ("", "")  # row and place in the paper's table, where not the detector's and the claim's

    @model_validator(mode="after")
    def _has_what_its_detector_needs(self) -> Side:
        if self._is_probe != bool(self.training):
            raise ValueError("the probe, and nothing else, has `training` texts")
        if not self._is_probe and not get_detector(self.detector).grid and self.options == "grid":
            raise ValueError(f"detector {self.detector!r} has no grid")
        return self

    def __hash__(self) -> int:
        return hash(hash_of(self.model_dump()))  # some fields are dicts, which can't be hashed

    @property
    def alone(self) -> Side:
        """The side without the fields on its comparison, which change none of its scores."""
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
    was: dict[str, Any] = Field(default_factory=dict)  # the claim's fields before


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
    texts: str = ""  # which texts it is about, for an answer, where not the setting's: "on texts seen once,"
    positive: Group = Group(of="members")
    negative: Group = Group(of="non-members")
    a: Side
    against: tuple[Side | Literal["chance"], ...]
    control: Side | None = None  # of `equivalent`: if a equals this one too, nothing was learned
    uninformative: str = ""  # why it could not have found what is true: no verdict but "supported" is given then
    confounded: str = ""  # what else than the claim its differences show; it has no other verdict then
    metric: Literal["auc", "tpr_at_5_fpr", "tpr_at_1_fpr"] = "auc"
    expect: Literal["greater", "equivalent"]
    margin: PositiveFloat | None = None  # of `equivalent`
    matters: PositiveFloat | None = None  # of `greater`: the smallest difference that matters; None: by the rule
    most: bool = False  # it is claimed of most of `against`, and not of each
    history: tuple[Change, ...] = ()

    @model_validator(mode="after")
    def _says_what_it_expects(self) -> Claim:
        if (self.margin is not None) != (self.expect == "equivalent") or (self.control and self.margin is None):
            raise ValueError(f"claim {self.id}: `equivalent`, and nothing else, has a margin and may have a control")
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
        return [side for side in self.sides if isinstance(side, Side)]

    def at(self, setting: str) -> Claim:
        """The claim against those that it is compared with in a setting."""
        here = [side for side in self.against if isinstance(side, str) or setting in (side.only or self.where)]
        return self.model_copy(update={"against": tuple(here)})

    def on_benchmark(self, setting: str, place: Target) -> Claim | None:
        """The claim with a real model on a benchmark: against the reference as the smaller model, texts of 32 words as
        the shorter ones, and without Small Ref where there is no reference. None where it can't be tested so, or has a
        control, which is of the lab."""
        n_words, is_short = int(place.benchmark.rpartition("-")[2]), self.a.n_words.get(BASE) == SHORT_WORDS
        is_other = self.positive.group or self.a.model or self.control or (self.a.n_words and not is_short)
        if BASE not in self.where or is_other:
            return None
        against: list[Side | Literal["chance"]] = []
        for side in self.at(BASE).against:
            if isinstance(side, str):
                against.append(side)
            elif side.detector != "ref" or place.reference:
                if (side.model and not place.reference) or (side.n_words and is_short != (n_words == SHORT_WORDS)):
                    return None
                model = {setting: place.reference} if side.model and place.reference else {}
                short = {setting: SHORT_WORDS} if side.n_words and not is_short else {}
                against.append(side.model_copy(update={"model": model, "n_words": short, "only": ()}))
        a, where = self.a.model_copy(update={"n_words": {}}), (setting,)
        return self.model_copy(update={"a": a, "against": tuple(against), "where": where})

    def against_control(self) -> Claim:
        """The same test against its control alone, whose scores are recorded separately."""
        return self.model_copy(update={"id": f"{self.id}, control", "against": (self.control,), "control": None})


class Untested(Strict):
    """A claim of a paper that the book does not test."""

    paper: str
    claim: str
    published: str
    why: str


class Claims(Strict):
    """The whole file."""

    history: tuple[Change, ...] = ()  # of the rule by which all claims are judged
    settings: dict[str, Target]
    in_words: dict[str, str] = Field(default_factory=dict)  # how an answer names a setting: "In English,"
    on_benchmarks: dict[str, Target] = Field(default_factory=dict)  # real models, on the papers' own benchmarks
    claims: tuple[Claim, ...]
    untested: tuple[Untested, ...] = ()

    @model_validator(mode="after")
    def _settings_are_known(self) -> Claims:
        for claim in self.claims:
            if unknown := set(claim.where) - set(self.settings):
                raise ValueError(f"claim {claim.id}: no setting {unknown.pop()!r}; known: {', '.join(self.settings)}")
        return self

    def tests(self) -> list[tuple[Claim, str]]:
        """Every claim in every setting that it is tested in."""
        return [(claim.at(name), name) for claim in self.claims for name in claim.where]

    def test_hash(self, claim: Claim, setting: str) -> str:
        """What a recorded score must have been computed for: sides, groups, setting and recipes, not the wording."""
        sides = [side.resolved() if isinstance(side, Side) else side for side in claim.sides]
        groups = [claim.positive.model_dump(), claim.negative.model_dump()]
        place = self.settings[setting].model_dump(exclude_defaults=True)
        return hash_of([sides, groups, place, recipes_of(self.models(claim, setting))])

    def models(self, claim: Claim, setting: str, seed: int = 0) -> list[str]:
        """The models that a test runs, those that write texts or neighbors for it included.

        The models whose scores are compared are those of this training seed; who writes texts or neighbors is the same.
        """
        place = self.settings[setting]
        names = {side.model.get(setting, place.model) for side in claim.scored}
        names |= {place.reference for side in claim.scored if side.detector == "ref" and place.reference}
        helpers = {(side.training or "").removeprefix(SAMPLED) for side in claim.scored if side.is_sampled}
        helpers |= {place.masked} if place.masked else set()
        return sorted({of_seed(name, seed) for name in names} | helpers)


def load_claims(path: str | Path = CLAIMS_FILE) -> Claims:
    """Read and check the claims; ValueError names the file and what is wrong in it."""
    return read_yaml(Path(path), Claims)
