"""The lab's recipes: how its corpora and models are made, as a profile's YAML file says.

$MIALIB_PROFILE names the file; without it, it is `data/profiles/lab.yml`. The book's part of it is read by
`replication.profile`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from mialib.shared.schema import Positive, Strict, read_yaml
from replication import BOOK_DATA

DEFAULT_PROFILE = BOOK_DATA / "profiles" / "lab.yml"


def is_lab(name: str) -> bool:
    """Whether a model or corpus is one of the lab's."""
    return name.startswith("lab/")


def by_group(values: Sequence[int], n: int) -> list[int]:
    """The value of each of `n` things in as many equal consecutive groups as there are values."""
    return [values[i * len(values) // n] for i in range(n)]


class Corpus(Strict):
    """Texts that a coin deals out as members, non-members, background (also trained on) and reference (never).

    Models are trained on a corpus with background texts; another may be injected into it, or stay unseen.
    """

    source: Literal["docstrings", "code", "patents", "context_questions", "choice_questions", "file"]
    language: Literal["en", "zh"]
    packages: tuple[str, ...] = ()  # whose docstrings, or code
    since: dict[str, str] = Field(default_factory=dict)  # by package: only what was added or changed from a version on
    apart_from: str | None = None  # a corpus: no near-duplicate of a text that it deals out
    path: str | None = None  # of the `file` of texts (.jsonl, .parquet, .csv or .txt), from the clone's root
    words: PositiveInt  # length of a member, non-member or background text; at most, for questions and a file's texts
    members: NonNegativeInt = 0
    non_members: PositiveInt
    background: NonNegativeInt = 0
    reference: NonNegativeInt = 0  # uncut, at least this many: for token frequencies, the tokenizer and the probe
    vocab_size: PositiveInt | None = None
    seed: int

    @model_validator(mode="after")
    def _fits_together(self) -> Corpus:
        if bool(self.vocab_size) != bool(self.background):
            raise ValueError("a corpus with background texts, and no other, has a `vocab_size`")
        if self.vocab_size and not self.reference:
            raise ValueError("a corpus with a `vocab_size` learns it from `reference` texts, and has none")
        if self.since and (self.source != "docstrings" or set(self.since) != set(self.packages)):
            raise ValueError("`since` goes with docstrings, and has a version of each of `packages`")
        if (self.path is None) != (self.source != "file"):
            raise ValueError("a corpus from a `file`, and no other, has a `path`")
        return self


class Seen(Strict):
    """Which texts a model is trained on, how often each, and how."""

    corpus: str
    member_times: NonNegativeInt = 4  # how often each member is seen, spread over the run
    member_repeats: tuple[NonNegativeInt, ...] = ()  # instead: how often each of so many equal groups is seen
    background_times: NonNegativeInt = 2
    injected: dict[str, PositiveInt] = Field(default_factory=dict)  # members of other corpora: how often each is seen
    batch_texts: PositiveInt = 8
    learning_rate: Positive = 0.01
    context_tokens: PositiveInt = 1024
    seed: int = 0


class Training(Seen):
    """How to train one GPT-NeoX of the lab from scratch."""

    layers: PositiveInt
    hidden_size: PositiveInt
    heads: PositiveInt


class TrainingOn(Seen):
    """How to train a model from elsewhere on with texts of the lab, its tokenizer and its start token as they are."""

    from_model: str
    is_bfloat16: bool = False  # whether its layers, not its head, multiply in bfloat16


class Diluted(TrainingOn):
    """The same with the first of the background texts alone, so that members are diluted in more or fewer of them."""

    background_texts: PositiveInt


class Unlearning(Strict):
    """How to make a lab model forget its first members: ascent on them, descent on others that it was trained on."""

    base: str  # the model to start from
    texts: PositiveInt  # how many members
    batch_texts: PositiveInt = 8
    learning_rate: Positive
    max_epochs: PositiveInt = 100
    seed: int = 0


class Masked(Strict):
    """How to train a masked language model, which proposes words for the Neighbor attack, on a corpus's background."""

    corpus: str
    layers: PositiveInt
    hidden_size: PositiveInt
    heads: PositiveInt
    epochs: PositiveInt  # how often each token is masked
    batch_texts: PositiveInt = 128  # masked windows a step
    learning_rate: Positive
    context_tokens: int = Field(ge=3)  # of a window: the start token, the mask and what stands around it
    seed: int = 0


AnyRecipe = Training | TrainingOn | Unlearning | Masked


class Model(Strict):
    """A model of the profile, and the benchmarks that it is scored on before any notebook runs."""

    benchmarks: tuple[str, ...]
    train: Training | None = None  # a lab model has one of these four
    train_on: Diluted | TrainingOn | None = None
    unlearn: Unlearning | None = None
    masked: Masked | None = None
    seeds: tuple[NonNegativeInt, ...] = (0,)  # of training, for `mialib record-lab`; anything else takes the recipe's

    @property
    def recipes(self) -> list[AnyRecipe]:
        """The recipes that are given; a valid profile gives one for a lab model and none for any other."""
        return [recipe for recipe in (self.train, self.train_on, self.unlearn, self.masked) if recipe]

    @property
    def recipe(self) -> AnyRecipe | None:
        """How a lab model is made; None for a model from elsewhere."""
        return next(iter(self.recipes), None)


class Recipes(Strict):
    """The lab's part of a profile."""

    model_config = ConfigDict(extra="ignore")

    corpora: dict[str, Corpus] = Field(default_factory=dict)
    models: dict[str, Model] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_are_known(self) -> Recipes:
        for name, model in self.models.items():
            if len(model.recipes) != is_lab(name):
                raise ValueError(
                    f"model {name}: a lab model (lab/...), and no other, has `train`, `train_on`, `unlearn` or `masked`"
                )
            corpus = getattr(model.recipe, "corpus", None)
            for corpus_name in (*filter(None, [corpus]), *getattr(model.recipe, "injected", {})):
                if corpus_name not in self.corpora:
                    raise ValueError(f"model {name}: no corpus {corpus_name!r}; known: {', '.join(self.corpora)}")
                if isinstance(model.recipe, Seen) and not self.corpora[corpus_name].members:
                    raise ValueError(f"model {name}: corpus {corpus_name} has no members to train on")
            if corpus and not model.train_on and not self.corpora[corpus].background:
                raise ValueError(f"model {name}: it learns from background texts, and {corpus} has none")
            if model.masked and model.benchmarks:
                raise ValueError(f"model {name}: a masked model scores no texts; its `benchmarks` are []")
            if model.unlearn and model.unlearn.base not in self.models:
                raise ValueError(f"model {name}: no model {model.unlearn.base!r} to start from")
        return self


R = TypeVar("R", bound=Recipes)


def profile_path() -> Path:
    """The profile's file: $MIALIB_PROFILE, or the lab's."""
    return Path(os.environ.get("MIALIB_PROFILE", DEFAULT_PROFILE))


def load_recipes() -> Recipes:
    """The lab's recipes of the profile; ValueError names the file and what is wrong in it."""
    return read_profile(profile_path(), Recipes)


def read_profile(path: Path, schema: type[R]) -> R:
    """A profile's file as a schema, read again only where it has changed; FileNotFoundError where there is none."""
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in path.parent.glob("*.yml")))
        advice = "run from a clone of the repository, or set MIALIB_PROFILE"
        raise FileNotFoundError(f"no profile {path}; {f'{path.parent} has {names}' if names else advice}")
    return _read(path, path.stat().st_mtime_ns, schema)


@cache
def _read(path: Path, _mtime_ns: int, schema: type[R]) -> R:
    return read_yaml(path, schema)
