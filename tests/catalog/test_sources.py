"""What a name stands for: `mialib.catalog.sources`."""

import re

import pytest

from mialib.catalog import sources
from mialib.catalog.registry import known_models
from mialib.catalog.sources import KINDS, Source, source_of
from mialib.passes.cache import score_or_load
from mialib.token_stats import TokenStats
from replication.pipeline.code import FOLDERS

NAMES = {
    "lab/en-25k": "ProfileLab",
    "recorded/docstrings-5m@1": "Recorded",
    "api:gpt": "Api",
    "logprobs:a/lab/b.jsonl": "Logprobs",
    "EleutherAI/pythia-70m": "Weights",
    "./lab/en": "Weights",
    "labs/en": "Weights",
    "a/model.gguf": "Gguf",
    "smollm2-135m": "Fetched",
    "smollm2-135m-ours": "Weights",
    "adapter:org/name": "Adapter",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_one_kind(name):
    assert type(source_of(name)).__name__ == NAMES[name]


def test_each_model_that_comes_as_a_wheel_is_a_kind():
    assert {known.alias for known in known_models().values() if known.wheel} <= KINDS.keys()


def test_no_other_file_asks_how_a_name_begins():
    prefixes = "|".join(prefix for pattern in KINDS if (prefix := pattern.rstrip("*")) and "*" not in prefix)
    asks = re.compile(rf'startswith\(\(?"(?:{prefixes})"')
    found = {path.name for folder in FOLDERS.values() for path in folder.rglob("*.py") if asks.search(path.read_text())}
    assert found == {"recipes.py"}, "of recipes, before any source is imported"


class Constant(Source):
    """A kind that another package might add."""

    def score(self, model, texts, options):
        return TokenStats.from_rows([], provenance={"model": model})


def test_a_new_kind_is_one_class_and_its_line(monkeypatch):
    monkeypatch.setattr(sources, "KINDS", {"constant:*": f"{__name__}:Constant", **KINDS})
    assert score_or_load("constant:1", []).provenance == {"model": "constant:1"}
    assert type(source_of("lab/en-25k")).__name__ == "ProfileLab"


@pytest.fixture
def without_the_book(monkeypatch):
    """As where `mialib` alone is installed."""
    monkeypatch.setattr(sources, "entry_points", lambda group: [])
    sources._kind.cache_clear()
    yield
    sources._kind.cache_clear()


def test_without_the_books_package_the_stored_lab_is_there_and_other_kinds_say_what_to_install(without_the_book):
    lab = source_of("lab/en-25k")
    assert type(lab).__name__ == "Lab" and (lab.folder("lab/en-25k") / "model.safetensors").is_file()
    assert lab.training_seed("lab/en-25k") == 0 and len(lab.labels("lab/en")[1]) == 1000
    assert lab.times_seen("lab/zh-25k", lab.texts("lab/zh", "member")[:2]).tolist() == [4, 4]
    for name in ("lab/en-25k@1", "lab/nope", "api:gpt", "recorded/docstrings-5m"):
        with pytest.raises(ValueError, match=r"pip install \./book"):
            source_of(name).check(name)
