"""Min-K% Prob's pages: their own functions by hand, and those of the lab alone on a tiny model."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import yaml
from page_code import functions_of, method_of, page_of

from mialib.metrics import Interval
from replication import example_texts, profile
from replication.results import load_results

matplotlib.use("Agg")

LABELS = np.repeat([1, 0], [6, 10])
RECIPE = {"corpus": "lab/tiny", "layers": 1, "hidden_size": 16, "heads": 2}


@pytest.fixture
def lab_profile(tmp_path, monkeypatch):
    """A profile of three models that nothing is trained for: equal counts, repeats, unlearned."""
    models = {
        "lab/equal": {"benchmarks": [], "train": RECIPE},
        "lab/repeats": {"benchmarks": [], "train": RECIPE | {"member_repeats": [1, 8]}},
        "lab/unlearned": {"benchmarks": [], "unlearn": {"base": "lab/equal", "texts": 7, "learning_rate": 0.1}},
    }
    corpus = {"source": "docstrings", "language": "en", "words": 40, "seed": 1, "vocab_size": 512}
    corpus |= dict.fromkeys(["members", "non_members", "background", "reference"], 20)
    made = {"name": "t", "corpora": {"lab/tiny": corpus}, "models": models, "landing": {"page": "i"}, "book": []}
    path = tmp_path / "profile.yml"
    path.write_text(yaml.safe_dump(made))
    monkeypatch.setenv("MIALIB_PROFILE", str(path))
    return profile.load_profile(path)


def page(name, folder, **parameters):
    """The page's names and its results."""
    names = page_of(name, out=str(folder / "results.json"), **parameters)
    return names, load_results(folder / "results.json")


def test_the_text_at_a_quantile_is_of_its_class_and_in_order():
    scores = np.random.default_rng(3).normal(size=16) + LABELS
    pairs = [example_texts.typical_pair(LABELS, scores, quantile) for quantile in (0, 0.5, 1)]
    for place, label in enumerate((1, 0)):
        own, found = np.sort(scores[label == LABELS]), [pair[place] for pair in pairs]
        assert (LABELS[found] == label).all()
        assert scores[found[0]] == own[0] and scores[found[2]] == own[-1]
        assert (own < scores[found[1]]).sum() == (len(own) - 1) // 2


def test_the_forgotten_are_the_first_members_and_the_first_above_wants_both():
    first_above = functions_of("min_k_contamination")["first_above"]
    curve = {1: Interval(0.8, 0.4, 1), 2: Interval(0.7, 0.6, 0.8), 4: Interval(0.9, 0.8, 1), 8: Interval(1, 0.9, 1)}
    assert first_above(curve, 0.75, low=0.5) == 4
    assert first_above(curve, 1.0, low=0.5) is None
    labels = [0, 1, 1, 0, 1]
    assert {name: texts.tolist() for name, texts in audit(labels, 2)["groups"].items()} == {
        "forgotten": [1, 2],
        "retained": [4],
    }
    assert list(audit(labels, 3)["groups"]) == ["forgotten"], "no empty group"
    says = {
        (0.46, 0.54): "holds",
        (0.51, 0.54): "holds",
        (0.51, 0.6): "fails",
        (0.4, 0.49): "fails",
        (0.46, 0.56): "open",
    }
    for (low, high), expected in says.items():  # within 0.05 of chance; told apart by less than matters
        assert audit(labels, 1)["indistinguishable"](Interval((low + high) / 2, low, high)) == expected


def audit(labels, n_forgotten, margin=0.05):
    return method_of("min_k_unlearning", labels=np.asarray(labels), n_forgotten=n_forgotten, margin=margin)


def test_how_many_were_forgotten_is_known(lab_profile, tiny_model, benchmark_file, tmp_path, monkeypatch):
    before, after = tiny_model("gpt_neox"), tiny_model("llama")
    given = {"benchmarks": benchmark_file, "corpora": "-", "detectors": "min_k"}
    with pytest.raises(ValueError, match=f"{after}: "):
        page("min_k_unlearning", tmp_path, models=f"{before},{after}", **given)
    with pytest.raises(ValueError, match="9 of 8 members"):
        page("min_k_unlearning", tmp_path, models=f"{before},{after}", forgotten=9, **given)
    # In the place of one that was trained.
    monkeypatch.setattr("replication.lab.source.Lab.folder", Path(after))
    monkeypatch.setattr("replication.lab.source.forgotten_texts", lambda name: ["of the recipe"] * 7)
    names, found = page("min_k_unlearning", tmp_path, models=f"{before},lab/unlearned", **given)
    assert names["n_forgotten"] == 7 and all(np.isfinite(r.ours) for r in found)
