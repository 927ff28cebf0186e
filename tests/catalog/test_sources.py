"""What a name stands for: `mialib.catalog.sources`."""

import pytest

from mialib.catalog import sources
from mialib.catalog.hub import Unavailable
from mialib.catalog.registry import known_models
from mialib.catalog.sources import KINDS, Source, find
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
    "a/model.gguf": "Gguf",
    "smollm2-135m": "Gguf",
    "gemma-3-270m": "Gguf",
    "google/gemma-3-270m": "Weights",
    "smollm2-135m-ours": "Weights",
    "adapter:org/name": "Adapter",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_one_kind(name):
    assert type(find(name)).__name__ == NAMES[name]


def test_a_hub_name_and_its_alias_are_a_copy_in_one_file_which_either_names(tmp_path, monkeypatch):
    monkeypatch.setenv("MIALIB_MODELS", str(tmp_path))
    by_alias, by_name = tmp_path / "gemma-3-270m.gguf", tmp_path / "google" / "gemma-3-270m.gguf"
    with pytest.raises(OSError, match=r"gemma-3-270m\.gguf under \$MIALIB_MODELS"):
        _ = find("gemma-3-270m").path
    by_alias.touch()
    assert find("gemma-3-270m").path == find("google/gemma-3-270m").path == by_alias
    by_alias.rename(tmp_path / "other.gguf")
    by_name.parent.mkdir()
    by_name.touch()
    assert find("gemma-3-270m").path == find("google/gemma-3-270m").path == by_name
    assert type(find("google/gemma-3-270m@main")).__name__ == type(find("google/gemma-3-1b")).__name__ == "Weights"
    (tmp_path / "google" / "gemma-3-270m").mkdir()  # the whole model, which the hub name means
    assert type(find("google/gemma-3-270m")).__name__ == "Weights" and find("gemma-3-270m").path == by_name


def test_each_alias_is_of_one_model_and_has_its_start_token():
    aliases = {known.alias: known for known in known_models().values() if known.alias}
    assert len(aliases) == sum(known.alias is not None for known in known_models().values())
    assert all(find(alias).start_token() == known.start_token for alias, known in aliases.items())


class Constant(Source):
    """A kind that another package might add."""

    def score(self, texts, options):
        return TokenStats.from_rows([], provenance={"model": self.name})


def test_a_new_kind_is_one_class_and_its_line(monkeypatch):
    monkeypatch.setattr(sources, "KINDS", {"constant:*": f"{__name__}:Constant", **KINDS})
    assert score_or_load("constant:1", []).provenance == {"model": "constant:1"}
    assert type(find("lab/en-25k")).__name__ == "Lab"


def test_a_misspelt_alias_is_told_and_a_hub_name_that_is_like_one_is_not():
    with pytest.raises(Unavailable, match=r"no model 'smolm2-135m' here .did you mean 'smollm2-135m'"):
        find("smolm2-135m").check()
    with pytest.raises(Unavailable, match=r"^model 'Qwen/Qwen2.5-Coder-7B'"):
        find("Qwen/Qwen2.5-Coder-7B").check()
