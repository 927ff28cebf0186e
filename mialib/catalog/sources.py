"""What a name stands for: `find(name)` gives a model, a benchmark or a reference corpus as one object.

A folder with an adapter alone is an adapter too. A hub name is one file where $MIALIB_MODELS has NAME.gguf or
ALIAS.gguf and no folder of that name. A new kind is one file with a heir of `Source`, and its line in KINDS.
Another package brings a class as an entry point of the group `mialib.catalog.sources`, under its prefix ("api"); its
line in KINDS is then empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    from mialib.benchmarks import Benchmark
    from mialib.catalog.registry import KnownModel
    from mialib.frequency import TokenFrequency
    from mialib.token_stats import TokenStats

Dtype = Literal["auto", "float32", "bfloat16", "float16"]  # of a model's weights
KINDS = {  # pattern of a name -> module, imported when such a name is first met, and class; "": an entry point
    "lab/*": "",  # lab/en-25k: a model of known training set
    "recorded/*": "",  # recorded/notes: recorded passes of larger models
    "real/*": "",  # real/gemma-3-270m: and of real ones
    "api:*": "",  # api:gpt-4o: a model behind an API
    "logprobs:*": "mialib.catalog.logprobs:Logprobs",  # logprobs:a.jsonl: log-probs computed elsewhere
    "*.gguf": "mialib.catalog.gguf:Gguf",  # a model in one file; smollm2-135m, the alias of a registered one, is too
    "adapter:*": "mialib.catalog.adapters:Adapter",  # adapter:org/name: an adapter on its base
    "*": "mialib.catalog.models:Weights",  # any other name: a folder, or a model on the hub
}


class PartsMissing(ValueError):
    """One part of a pass is scored, and the other parts are not here yet."""


@dataclass(frozen=True)
class PassOptions:
    """How a model reads texts: as for `Scorer` and its `score`."""

    device: str = "auto"
    dtype: Dtype = "auto"
    start_token: str | None = "auto"
    after: str = ""
    temperature: float = 1.0
    part: tuple[int, int] | None = None  # (3, 16) scores the third of sixteen; all are joined once the last is there

    @property
    def is_of_texts_alone(self) -> bool:
        """Whether nothing is read before them, at temperature 1: the one pass that needs no weights."""
        return not self.after and self.temperature == 1


class Source:
    """What one name stands for. By default it has no weights here, and is neither a benchmark nor a corpus."""

    has_weights = False  # the model can be run here
    scores_lowercase = True  # False: only the texts as they are
    scores_cuts = False  # whether `score` knows texts that are cut shorter as parts of the whole ones
    is_fetched = False  # it has to be fetched from elsewhere first
    gpu_dtype = "bfloat16"  # of the weights on a GPU, unless the registry has another

    def __init__(self, name: str) -> None:
        self.name = name

    # --- a model ---

    def no_weights(self) -> NoReturn:
        """ValueError that says why the weights are not here."""
        raise NotImplementedError

    @property
    def folder(self) -> Path | None:
        """The folder that holds the model; None for one on the hub. ValueError without weights."""
        self.no_weights()

    def check(self) -> None:
        """Raise as scoring would for a name without a model, before anything that costs time."""

    @property
    def revision(self) -> str:
        """What pins weights, config and tokenizer: a hash of their content, or the hub's commit."""
        self.no_weights()

    @property
    def versions(self) -> dict[str, int]:
        """The versions (`mialib.versions`) of what makes weights or tokens of the model's files."""
        return {}

    @property
    def base(self) -> str | None:
        """The model that an adapter was trained on; None for a whole model."""
        return None

    @property
    def known(self) -> KnownModel | None:
        """The registry's entry of the model, or of the base of an adapter."""
        from mialib.catalog.registry import find_model

        return find_model(self.base or self.name)

    def start_token(self, start_token: str | None = "auto") -> str | None:
        """A start token; for "auto" the registry's, if it knows the model (DC-PDD, Section 4)."""
        return self.known.start_token if self.known and start_token == "auto" else start_token

    @property
    def tokenizer(self) -> str | None:
        """The hub name or folder of the tokenizer; None if not known."""
        return self.name

    @property
    def vocabulary_size(self) -> int:
        """Tokens that the model can give."""
        self.no_weights()

    def count_parameters(self, *, embeddings: bool = False) -> int:
        """Parameters, with or without embeddings and output head: no weight is downloaded or filled for it."""
        self.no_weights()

    @property
    def lacks(self) -> dict[str, str]:
        """Which columns of token statistics the model does not give, or "texts", each with the reason."""
        return {}

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """Token statistics of texts, cached; ValueError for a pass that can't be had."""
        raise NotImplementedError

    def counts_in(self, corpus: str) -> TokenFrequency | None:
        """How often each of its tokens occurs in a reference corpus, where that is stored; no text is read for it."""
        return find(corpus).counts(self)

    # --- a benchmark or a reference corpus ---

    def benchmark(self) -> Benchmark | None:
        """The benchmark of this name."""
        return None

    def check_scorable(self, model: str) -> None:
        """ValueError if the model can't score this benchmark."""

    def texts(self) -> Iterable[str] | None:
        """The texts of the reference corpus of this name."""
        return None

    def counts(self, model: Source) -> TokenFrequency | None:
        """How often each of a model's tokens occurs in this corpus, where that is stored; no text is read for it."""
        return None


def module_of(pattern: str) -> str:
    """Which module and class stands for names like a pattern; ValueError if it comes with another package."""
    brought = {entry.name: entry.value for entry in entry_points(group="mialib.catalog.sources")}
    if place := KINDS[pattern] or brought.get(pattern.rstrip(":/*")):
        return place
    names = pattern.rstrip("*")
    raise ValueError(
        f"names that begin with {names} come with the book's package: in a clone, `pip install ./audit ./book`"
    )


@cache
def _class(pattern: str) -> type[Source]:
    module, _, name = module_of(pattern).partition(":")
    return getattr(import_module(module), name)


def find(name: str) -> Source:
    """Return the model, benchmark or corpus of a name. It need not exist: `check` and others raise."""
    pattern = next(pattern for pattern in KINDS if fnmatchcase(name, pattern))
    return _class(_kind_here(name) if pattern == "*" else pattern)(name)


def _kind_here(name: str) -> str:
    """The pattern of what a folder, a hub name or an alias is, by the files that are here."""
    from mialib.catalog.hub import local_copy
    from mialib.catalog.registry import find_model, gguf_copy

    if Path(name).exists():
        is_adapter = Path(name, "adapter_config.json").is_file() and not Path(name, "config.json").is_file()
        return "adapter:*" if is_adapter else "*"
    known = find_model(name)
    is_alias = known is not None and known.alias == name
    return "*.gguf" if is_alias or (not local_copy(name, "model") and gguf_copy(name)) else "*"
