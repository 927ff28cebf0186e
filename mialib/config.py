"""Profiles: one YAML file holds the lab's recipes, the models, the benchmarks, and the book with each notebook's
parameters.

$MIALIB_PROFILE names the file; without it, `data/profiles/lab.yml` in the clone is read. An unknown key is an error.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from mialib.store import ROOT

DEFAULT_PROFILE = ROOT / "data" / "profiles" / "lab.yml"
PAPER_TABLE = "paper_table"  # the notebook that makes the pages of the papers' own tables


class Strict(BaseModel):
    """Data from a YAML file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    def _has_a_tokenizer_where_it_has_background(self) -> Corpus:
        if bool(self.vocab_size) != bool(self.background):
            raise ValueError("a corpus with background texts, and no other, has a `vocab_size`")
        if self.vocab_size and not self.reference:
            raise ValueError("a corpus with a `vocab_size` learns it from `reference` texts, and has none")
        return self

    @model_validator(mode="after")
    def _has_a_version_of_each_package(self) -> Corpus:
        if self.since and (self.source != "docstrings" or set(self.since) != set(self.packages)):
            raise ValueError("`since` goes with docstrings, and has a version of each of `packages`")
        return self

    @model_validator(mode="after")
    def _has_a_path_where_it_is_a_file(self) -> Corpus:
        if (self.path is None) != (self.source != "file"):
            raise ValueError("a corpus from a `file`, and no other, has a `path`")
        return self


class Training(Strict):
    """How to train one GPT-NeoX of the lab from scratch."""

    corpus: str
    layers: PositiveInt
    hidden_size: PositiveInt
    heads: PositiveInt
    member_times: NonNegativeInt = 4  # how often each member is seen, spread over the run
    member_repeats: tuple[PositiveInt, ...] = ()  # instead: how often each of so many equal groups of members is seen
    background_times: PositiveInt = 2
    injected: dict[str, PositiveInt] = Field(
        default_factory=dict
    )  # members of other corpora, and how often each is seen
    batch_texts: PositiveInt = 8
    learning_rate: PositiveFloat = 0.01
    context_tokens: PositiveInt = 1024
    seed: int = 0


class Unlearning(Strict):
    """How to make a lab model forget its first members: ascent on them, descent on others that it was trained on."""

    base: str  # the model to start from
    texts: PositiveInt  # how many members
    batch_texts: PositiveInt = 8
    learning_rate: PositiveFloat
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
    learning_rate: PositiveFloat
    context_tokens: int = Field(ge=3)  # of a window: the start token, the mask and what stands around it
    seed: int = 0


class Model(Strict):
    """A model of the profile, and the benchmarks that it is scored on before any notebook runs."""

    benchmarks: tuple[str, ...]
    train: Training | None = None  # a lab model has one of these three
    unlearn: Unlearning | None = None
    masked: Masked | None = None
    seeds: tuple[NonNegativeInt, ...] = (0,)  # of training, for `mialib record-lab`; anything else takes the recipe's

    @property
    def recipes(self) -> list[Training | Unlearning | Masked]:
        """The recipes that are given; a valid profile gives one for a lab model and none for any other."""
        return [recipe for recipe in (self.train, self.unlearn, self.masked) if recipe]

    @property
    def recipe(self) -> Training | Unlearning | Masked | None:
        """How a lab model is made; None for a model from elsewhere."""
        return next(iter(self.recipes), None)


class Page(Strict):
    """A page of the book: a Markdown file in `book/`, or a notebook in `notebooks/` with its parameters."""

    page: str | None = None
    notebook: str | None = None
    name: str | None = None  # of a notebook's page, where one notebook makes several; each has a title too
    title: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Page:
        if (self.page is None) == (self.notebook is None):
            raise ValueError("a page is either `page: FILE` or `notebook: NAME`")
        if (self.parameters or self.name) and self.notebook is None:
            raise ValueError(f"page {self.page}: only a notebook takes parameters and a name")
        if (self.name is None) != (self.title is None):
            raise ValueError(f"page {self.name or self.notebook}: a `name` comes with a `title`")
        return self

    @property
    def file(self) -> str:
        """The page's path under `book/`, without suffix; executed notebooks lie in `book/pages/`."""
        return self.page or f"pages/{self.name or self.notebook}"


class Chapter(Strict):
    """A part of the table of contents."""

    caption: str
    pages: tuple[Page, ...]


class Profile(Strict):
    """A whole profile."""

    name: str
    corpora: dict[str, Corpus] = Field(default_factory=dict)
    models: dict[str, Model] = Field(default_factory=dict)
    landing: Page
    book: tuple[Chapter, ...]

    @model_validator(mode="after")
    def _names_are_known(self) -> Profile:
        for name, model in self.models.items():
            if len(model.recipes) != name.startswith("lab/"):
                raise ValueError(
                    f"model {name}: a lab model (lab/...), and no other, has `train`, `unlearn` or `masked`"
                )
            corpus = getattr(model.recipe, "corpus", None)
            for known in (*([corpus] if corpus else []), *getattr(model.recipe, "injected", {})):
                if known not in self.corpora:
                    raise ValueError(f"model {name}: no corpus {known!r}; known: {', '.join(self.corpora)}")
                if model.train and not self.corpora[known].members:
                    raise ValueError(f"model {name}: corpus {known} has no members to train on")
            if corpus and not self.corpora[corpus].background:
                raise ValueError(f"model {name}: it learns from background texts, and {corpus} has none")
            if model.masked and model.benchmarks:
                raise ValueError(f"model {name}: a masked model scores no texts; its `benchmarks` are []")
            if model.unlearn and model.unlearn.base not in self.models:
                raise ValueError(f"model {name}: no model {model.unlearn.base!r} to start from")
        return self

    @property
    def notebooks(self) -> dict[str, Page]:
        """Each page of the book that a notebook makes, by its name."""
        pages = [self.landing, *(page for chapter in self.book for page in chapter.pages)]
        return {page.name or page.notebook: page for page in pages if page.notebook}

    def table_of_contents(self) -> dict[str, Any]:
        """The book's table of contents in Jupyter Book's format."""
        parts = [
            {"caption": chapter.caption, "chapters": [{"file": page.file} for page in chapter.pages]}
            for chapter in self.book
        ]
        return {"format": "jb-book", "root": self.landing.file, "parts": parts}


def profile_path() -> Path:
    """The profile's file: $MIALIB_PROFILE, or the lab's."""
    return Path(os.environ.get("MIALIB_PROFILE", DEFAULT_PROFILE))


def load_profile(path: str | Path | None = None) -> Profile:
    """Read and check a profile; ValueError names the file and what is wrong in it."""
    path = Path(path or profile_path())
    if not path.is_file():
        raise FileNotFoundError(f"no profile {path}; run from a clone of the repository, or set MIALIB_PROFILE")
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, _mtime_ns: int) -> Profile:
    try:
        return Profile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """What is wrong in a YAML file, in one line: pydantic's and PyYAML's messages run over several."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors())
    return " ".join(str(error).split())
