"""What a name stands for: `mialib.catalog.sources`."""

import re
from pathlib import Path

import pytest

from mialib.catalog import sources
from mialib.catalog.sources import KINDS, Source, source_of
from mialib.passes.cache import score_or_load
from mialib.token_stats import TokenStats

NAMES = {
    "lab/en-25k": "Lab",
    "recorded/docstrings-5m@1": "Recorded",
    "api:gpt": "Api",
    "logprobs:a/lab/b.jsonl": "Logprobs",
    "EleutherAI/pythia-70m": "Weights",
    "./lab/en": "Weights",
    "labs/en": "Weights",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_one_kind(name):
    assert type(source_of(name)).__name__ == NAMES[name]


def test_no_other_file_asks_how_a_name_begins():
    package = Path(sources.__file__).parents[1]
    prefixes = "|".join(prefix for prefix in KINDS if prefix)
    asks = re.compile(rf'startswith\(\(?"(?:{prefixes})"')
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if asks.search(path.read_text())}
    assert found == {"lab/recipes.py"}, "of recipes, before any source is imported"


class Constant(Source):
    """A kind that another package might add."""

    def score(self, model, texts, options):
        return TokenStats.from_rows([], provenance={"model": model})


def test_a_new_kind_is_one_class_and_its_line(monkeypatch):
    monkeypatch.setattr(sources, "KINDS", {"constant:": f"{__name__}:Constant", **KINDS})
    assert score_or_load("constant:1", []).provenance == {"model": "constant:1"}
    assert type(source_of("lab/en-25k")).__name__ == "Lab"
