"""What data/models.yml and data/benchmarks.yml say."""

import re

import pytest

from mialib.catalog import registry
from mialib.catalog.benchmarks import find_part
from mialib.catalog.registry import find_model, known_benchmarks, known_models
from mialib.store import ROOT


def test_every_reference_model_is_an_entry_at_any_revision_and_no_commit_is_held():
    known = known_models()
    for name, model in known.items():
        for paper, reference in model.references.items():
            assert paper in ("dc-pdd", "surp", "probe") and reference in known and reference != name
            assert known[reference].billions < model.billions, f"{reference} is not smaller than {name}"
            assert known[reference].start_token == model.start_token
    for path in (registry.MODELS, registry.BENCHMARKS):
        assert not re.search(r"\b[0-9a-f]{7,40}\b", path.read_text())
    assert not (ROOT / "data" / "revisions.yml").exists()
    assert find_model("facebook/opt-6.7b@step3") == find_model("facebook/opt-6.7b") is not None
    assert find_model("opt-6.7b") is None and find_model("lab/en-25k") is None


def test_names_are_the_hubs_and_say_how_large_the_model_is():
    for name, model in known_models().items():
        assert re.fullmatch(r"[A-Za-z0-9_-]+/[A-Za-z0-9._-]+", name) or name.startswith("api:")
        is_api = name.startswith("api:")
        assert is_api == (model.access == "api") == bool(model.tokenizer) == (model.billions is None)
        assert bool(model.licence and model.start_token)
        size = re.search(r"(\d+(?:\.\d+)?)(b|m)(?!\w)", name.lower())
        if size and model.billions:
            assert model.billions == pytest.approx(float(size[1]) * {"b": 1, "m": 1e-3}[size[2]], rel=0.25), name
        if model.billions:  # two or four bytes a parameter on the hub
            assert 1.9 < model.download_gb / model.billions < 4.4, name


def test_every_benchmark_has_its_sizes_and_fills_its_braces():
    for name, known in known_benchmarks().items():
        part = find_part(f"{name}-{known.lengths[0]}" if known.lengths else name)
        patterns = [*known.local, *(value for of in known.hub for value in (of.config, of.split, of.file) if value)]
        assert all("{" not in part.fill(pattern) for pattern in patterns) and patterns
        assert set(known.lengths) in (set(known.examples), set()) or not known.examples
        assert known.columns[1] in ("label", "duplicates")
        assert known.paper in (ROOT / "book" / "references.bib").read_text()
