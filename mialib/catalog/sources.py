"""What kind of thing a name stands for: the one place that looks at how a name begins.

    lab/en-25k          a model of known training set      the book's package
    recorded/notes      what is recorded of larger models  the book's package
    api:gpt-4o          a model behind an API              the book's package
    logprobs:a.jsonl    log-probs that others computed     mialib.catalog.logprobs
    model.gguf          a model in one file                mialib.catalog.gguf
    smollm2-135m        one that the package index has     mialib.catalog.gguf
    adapter:org/name    an adapter on its base             mialib.catalog.adapters
    any other name      a folder, or a model on the hub    mialib.catalog.models

A folder that holds an adapter alone is one too. A new kind is one file with a class that has what `Source` has, and its
line in KINDS. Another package brings its class as an entry point of the group `mialib.catalog.sources`, by the kind's
name ("api"), in the place of one that is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mialib.benchmarks import Benchmark
    from mialib.frequency import TokenFrequency
    from mialib.token_stats import TokenStats

Dtype = Literal["auto", "float32", "bfloat16", "float16"]  # of a model's weights
KINDS = {  # what names look like -> a module, imported when such a name is first met, and its class
    "lab/*": "",
    "recorded/*": "",
    "api:*": "",
    "logprobs:*": "mialib.catalog.logprobs:Logprobs",
    "*.gguf": "mialib.catalog.gguf:Gguf",
    "smollm2-135m": "mialib.catalog.gguf:Fetched",
    "adapter:*": "mialib.catalog.adapters:Adapter",
    "*": "mialib.catalog.models:Weights",
}


class PartsMissing(ValueError):
    """A part of a pass is kept, and can't be joined since others are not here yet."""


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
    """One kind of models, benchmarks and reference corpora; every method takes a whole name of it.

    The defaults are of a kind that has no weights here, and no benchmarks or corpora of its own.
    """

    has_weights = False  # its models can be run here
    has_texts = True  # its benchmarks' texts are here
    scores_any_text = True  # and not only those that it was made of
    is_fetched = False  # it has to be fetched from elsewhere first
    gpu_dtype = "bfloat16"  # of a model's weights on a GPU, where the registry says nothing of it

    # --- models ---

    def no_weights(self, model: str) -> NoReturn:
        """ValueError that says why the model's weights are not here."""
        raise NotImplementedError

    def folder(self, model: str) -> Path | None:
        """The folder that holds the model; None where it is on the hub. ValueError where it has no weights."""
        self.no_weights(model)

    def check(self, model: str) -> None:
        """Raise as scoring would for a name that leads to no model, before anything that costs time."""

    def revision(self, model: str) -> str:
        """What pins weights, config and tokenizer. ValueError where it has no weights."""
        self.no_weights(model)

    def versions(self, model: str) -> dict[str, int]:
        """The versions (`mialib.versions`) of what makes weights or tokens of the model's files."""
        return {}

    def base(self, model: str) -> str | None:
        """The model that an adapter was trained on; None for a whole model."""
        return None

    def tokenizer(self, model: str) -> str | None:
        """The hub name or folder of the model's tokenizer; None if not known."""
        return model

    def vocabulary_size(self, model: str) -> int:
        """Tokens that the model can give."""
        self.no_weights(model)

    def count_parameters(self, model: str, embeddings: bool) -> int:
        """Parameters, with or without embeddings and output head."""
        self.no_weights(model)

    def lacks(self, model: str) -> dict[str, str]:
        """Which columns of token statistics the model does not give, and why."""
        return {}

    def score(self, model: str, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """Token statistics of texts, from what is kept if they are there; ValueError for a pass that can't be had."""
        raise NotImplementedError

    def trained_on(self, model: str) -> list[str]:
        """The texts that the model is known to be trained on."""
        return []

    def times_seen(self, model: str, texts: Sequence[str]) -> NDArray[Any] | None:
        """How often the model has seen each text in training, (N,); None where that is not known."""
        return None

    def training_seed(self, model: str) -> int | None:
        """The seed that the model was trained from, where that is known."""
        return None

    # --- benchmarks and corpora ---

    def benchmark(self, name: str) -> Benchmark | None:
        """A benchmark of this kind."""
        return None

    def labels(self, benchmark: str) -> tuple[str, NDArray[Any]] | None:
        """A benchmark's revision and labels, where they are known without reading its texts."""
        return None

    def check_whole(self, benchmark: str) -> None:
        """ValueError where some of a benchmark's texts can't be read."""

    def corpus(self, name: str) -> Iterable[str] | None:
        """The texts of a reference corpus of this kind."""
        return None

    def unseen(self, name: str) -> Iterable[str] | None:
        """Texts that no model was trained on, for the probe."""
        return None

    def frequency(self, corpus: str) -> TokenFrequency | None:
        """How often each token occurs in a corpus that has no texts here."""
        return None

    def own_counts(self, corpus: str) -> TokenFrequency | None:
        """How often each token of a corpus's own tokenizer occurs in it, where it has one: no text is read for it."""
        return None

    def hashes(self, corpus: str) -> set[str] | None:
        """The hash of each text of a corpus, where they are known without reading its texts."""
        return None

    def language(self, corpus: str) -> str | None:
        """A corpus's language, where it is known without reading its texts: "en" or "zh"."""
        return None


def module_of(pattern: str) -> str:
    """Which module and class is the kind whose names look so; ValueError where it takes the book's package."""
    brought = {of.name: of.value for of in entry_points(group="mialib.catalog.sources")}
    if found := brought.get(pattern.rstrip(":/*"), KINDS[pattern]):
        return found
    names = pattern.rstrip("*")
    raise ValueError(
        f"names that begin with {names} come with the book's package: in a clone, `pip install ./audit ./book`"
    )


@cache
def _kind(pattern: str) -> Source:
    module, _, name = module_of(pattern).partition(":")
    return getattr(import_module(module), name)()


def source_of(name: str) -> Source:
    """The kind of a model's, benchmark's or corpus's name."""
    pattern = next(pattern for pattern in KINDS if fnmatchcase(name, pattern))
    is_adapter = (
        pattern == "*" and Path(name, "adapter_config.json").is_file() and not Path(name, "config.json").is_file()
    )
    return _kind("adapter:*" if is_adapter else pattern)
