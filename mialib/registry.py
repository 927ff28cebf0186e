"""The models and benchmarks of the papers: what `data/models.yml` and `data/benchmarks.yml` say of them.

A registry entry holds what a person would have to look up: the name on the hub, the papers' name for it, its licence
and how one gets at it. It holds no commit hashes: those are the hub's to tell (`mialib.hub`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, TypeAdapter, ValidationError, model_validator

from mialib.config import Strict, one_line
from mialib.hub import split_name
from mialib.results import DASH, Result
from mialib.store import ROOT

if TYPE_CHECKING:
    import pandas as pd

MODELS = ROOT / "data" / "models.yml"
BENCHMARKS = ROOT / "data" / "benchmarks.yml"
API = "api:"  # how the name of a model behind an API begins


class KnownModel(Strict):
    """A model that a paper uses, under its name on the hub."""

    printed: tuple[str, ...] = ()  # how the papers spell it, where they name it
    billions: PositiveFloat | None = None  # of parameters, embeddings included; None behind an API
    download_gb: NonNegativeFloat = 0  # of the weight files that are fetched
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # of the weights on a GPU
    start_token: str  # prepended to each text
    references: dict[str, str] = Field(default_factory=dict)  # by paper: the smaller model of its Small Ref
    licence: str
    access: Literal["open", "gated", "api"] = "open"
    remote_code: bool = False  # it runs Python code that is published beside the weights
    tokenizer: str | None = None  # of a model behind an API: a hub name with the same tokens
    note: str = ""


class HubPart(Strict):
    """A split of a hub's data set, or a file of it with one text a line, each a JSON string."""

    config: str | None = None
    split: str | None = None
    file: str | None = None
    role: Literal["", "dev", "test", "member", "nonmember"] = ""  # what its texts are; a file's give their label

    @model_validator(mode="after")
    def _is_one_of_both(self) -> HubPart:
        if (self.split is None) == (self.file is None):
            raise ValueError("a part of a data set is either a `split` or a `file`")
        if bool(self.file) != (self.role in ("member", "nonmember")):
            raise ValueError("a file of texts, and nothing else, has the role `member` or `nonmember`")
        return self


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
    unseen: str | None = None  # a local file of texts that its models have not seen, for the probe
    examples: dict[PositiveInt, PositiveInt]  # how many, by about how many words they have
    licence: str
    access: Literal["open", "gated", "none"] = "open"  # none: on no hub
    note: str = ""

    @model_validator(mode="after")
    def _can_be_had(self) -> KnownBenchmark:
        if not (bool(self.hub_id) == bool(self.hub) == (self.access != "none")):
            raise ValueError("a benchmark on the hub has `hub_id` and `hub`; one on no hub has `access: none`")
        if not self.hub and not self.local:
            raise ValueError("a benchmark on no hub has `local` files")
        return self


def known_models() -> dict[str, KnownModel]:
    """All models of the papers by their names on the hub; one behind an API is `api:NAME`."""
    return _read(MODELS, KnownModel)


def known_benchmarks() -> dict[str, KnownBenchmark]:
    """All published benchmarks by the names that `load_benchmark` takes."""
    return _read(BENCHMARKS, KnownBenchmark)


def find_model(name: str) -> KnownModel | None:
    """What is known of a model, at whichever revision; None for one that no paper uses."""
    return known_models().get(split_name(name)[0])


@cache
def _read(path: Path, kind: type[Strict]) -> dict[str, Strict]:
    if not path.is_file():  # mialib is installed without its clone: nothing is known, and all else works
        return {}
    try:
        return TypeAdapter(dict[str, kind]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}") from None


def known_models_tables(models: Mapping[str, KnownModel]) -> list[pd.DataFrame]:
    """The registry's models: how large they are and what they are called; then how one gets at them."""
    import pandas as pd

    size, access = {}, {}
    for name, known in models.items():
        is_here = known.billions is not None  # not behind an API
        size[name] = {
            "billions": f"{known.billions:g}" if is_here else DASH,
            "GB": f"{known.download_gb:g}" if is_here else DASH,
            "on a GPU": known.dtype if is_here else DASH,
            "start token": known.start_token,
            "in the papers": ", ".join(known.printed) or DASH,
        }
        access[name] = {
            "smaller model": ", ".join(dict.fromkeys(known.references.values())) or DASH,
            "licence": known.licence,
            "access": "its own code" if known.remote_code else known.access,
        }
    return [pd.DataFrame.from_dict(rows, orient="index") for rows in (size, access)]


def known_benchmarks_tables(benchmarks: Mapping[str, KnownBenchmark]) -> list[pd.DataFrame]:
    """The registry's benchmarks by the names that `load_benchmark` takes, and what stands for the capitals in them."""
    import pandas as pd

    rows, choices = {}, {}
    for name, known in benchmarks.items():
        to_choose = "".join(f"/{choice.upper()}" for choice in known.choices) + ("-LENGTH" if known.lengths else "")
        rows[name + to_choose] = {
            "what": known.title,
            "hub": known.hub_id or DASH,
            "examples (words)": ", ".join(f"{n} ({words})" for words, n in known.examples.items()),
            "licence": known.licence,
            "access": "not on the hub" if known.access == "none" else known.access,
        }
        for choice, values in known.choices.items():
            choices[f"{name}: {choice.upper()}"] = {"one of": ", ".join(values)}
    return [pd.DataFrame.from_dict(of, orient="index") for of in (rows, choices)]


def notes_of(known: Mapping[str, KnownModel | KnownBenchmark]) -> str:
    """What the registry adds to single entries, in Markdown."""
    notes: dict[str, list[str]] = {}
    for name, entry in known.items():
        if entry.note:
            notes.setdefault(entry.note, []).append(f"`{name}`")
    return "\n".join(f"- {', '.join(names)}: {note}" for note, names in notes.items())


def registry_sizes(models: Mapping[str, KnownModel], benchmarks: Mapping[str, KnownBenchmark]) -> list[Result]:
    """How large the registry's models are (billions of parameters), and how many examples each benchmark has."""
    sizes = {name: known.billions for name, known in models.items()}
    sizes |= {name: max(known.examples.values()) for name, known in benchmarks.items()}
    return [
        Result(row=name, column="size", metric="size", ours=size, low=size, high=size) for name, size in sizes.items()
    ]
