"""The lab: texts, the coin, and training, on a profile small enough for seconds."""

import json
from collections import Counter

import numpy as np
import pytest
import yaml

from mialib import lab
from mialib.config import load_profile
from mialib.docstrings import Docstring, drop_near_duplicates, read_docstrings
from mialib.scoring import Scorer

TINY = {
    "name": "tiny",
    "corpora": {
        "lab/tiny": {
            "source": "docstrings",
            "language": "en",
            "packages": ["networkx"],
            "words": 40,
            "members": 20,
            "non_members": 20,
            "background": 20,
            "reference": 60,
            "vocab_size": 512,
            "seed": 1,
        },
        "lab/tiny-zh": {
            "source": "patents",
            "language": "zh",
            "words": 40,
            "members": 10,
            "non_members": 10,
            "background": 10,
            "reference": 30,
            "vocab_size": 512,
            "seed": 1,
        },
    },
    "models": {
        "lab/tiny-5k": {
            "benchmarks": ["lab/tiny"],
            "train": {
                "corpus": "lab/tiny",
                "layers": 1,
                "hidden_size": 16,
                "heads": 2,
                "member_times": 2,
                "background_times": 1,
                "context_tokens": 128,
            },
        }
    },
    "landing": {"page": "index"},
    "book": [],
}


@pytest.fixture(scope="module")
def tiny_lab(tmp_path_factory):
    """A folder with the tiny profile and everything made from it once."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "tiny.yml").write_text(yaml.safe_dump(TINY))
    return folder


@pytest.fixture(autouse=True)
def use_tiny_lab(tiny_lab, monkeypatch):
    monkeypatch.setenv("MIALIB_PROFILE", str(tiny_lab / "tiny.yml"))
    monkeypatch.setenv("MIALIB_HOME", str(tiny_lab / "home"))


def test_corpus_deals_out_each_text_once_and_balanced():
    texts = [text for role in lab.ROLES for text in lab.lab_texts("lab/tiny", role)]
    assert len(set(texts)) == len(texts)
    assert [len(lab.lab_texts("lab/tiny", role)) for role in lab.ROLES[:3]] == [20, 20, 20]
    assert all(len(text.split()) == 40 for text in lab.lab_texts("lab/tiny", "member"))


def test_corpus_card_records_hash_and_counts_that_fit_the_texts():
    card = lab.lab_card("lab/tiny")
    assert sum(card["roles"].values()) == sum(card["packages"].values())
    assert card["sources"][0].startswith("networkx==")
    assert len(card["content_hash"]) == 16


def test_corpus_is_the_same_when_made_twice(monkeypatch, tmp_path):
    first = lab.lab_card("lab/tiny")["content_hash"]
    monkeypatch.setenv("MIALIB_HOME", str(tmp_path))
    assert lab.lab_card("lab/tiny")["content_hash"] == first


def test_benchmark_has_the_members_first_labelled_one():
    benchmark = lab.lab_benchmark("lab/tiny")
    assert Counter(benchmark.labels.tolist()) == {0: 20, 1: 20}
    assert list(benchmark.texts[:20]) == lab.lab_texts("lab/tiny", "member")


def test_chinese_corpus_counts_words_with_jieba():
    import jieba

    benchmark = lab.lab_benchmark("lab/tiny-zh")
    assert benchmark.language == "zh"
    assert {len([w for w in jieba.lcut(text) if w.strip()]) for text in benchmark.texts} == {40}


def test_training_sees_members_and_background_and_nothing_else(monkeypatch, tmp_path):
    from mialib import training

    seen = {}
    encode = training._encode

    def spy(tokenizer, texts, context_tokens):
        seen["texts"], seen["ids"] = texts, encode(tokenizer, texts, context_tokens)
        return seen["ids"]

    monkeypatch.setattr(training, "_encode", spy)
    recipe = lab.lab_recipe("lab/tiny-5k")
    training.train("lab/tiny-5k", recipe, tmp_path)
    assert seen["texts"] == lab.lab_texts("lab/tiny", "member") + lab.lab_texts("lab/tiny", "background")
    assert all(ids[0] == 0 for ids in seen["ids"]), "each text starts with <|endoftext|>, as in scoring"


def test_tokenizer_learns_from_reference_texts_alone(monkeypatch, tmp_path):
    learned_from = []
    train_tokenizer = lab._train_tokenizer
    monkeypatch.setattr(
        lab, "_train_tokenizer", lambda texts, size: learned_from.extend(texts) or train_tokenizer(texts, size)
    )
    monkeypatch.setenv("MIALIB_HOME", str(tmp_path))
    assert lab.lab_texts("lab/tiny", "reference") == learned_from


def test_a_corpus_of_docstrings_holds_no_near_duplicates():
    found = read_docstrings(["networkx"], 40)
    kept = drop_near_duplicates(found, 40)
    card = lab.lab_card("lab/tiny")
    assert card["near_duplicates_dropped"] == len(found) - len(kept) > 0
    assert set(lab.lab_texts("lab/tiny", "reference")) <= {d.text for d in kept}
    assert 0 <= card["non_member_overlap"] < 0.05


def test_a_trained_model_knows_its_members_better(monkeypatch, tmp_path):
    memorized = json.loads(json.dumps(TINY))
    memorized["models"]["lab/tiny-5k"]["train"] |= {"member_times": 60, "hidden_size": 32}
    (tmp_path / "memorized.yml").write_text(yaml.safe_dump(memorized))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "memorized.yml"))
    monkeypatch.setenv("MIALIB_HOME", str(tmp_path))
    benchmark = lab.lab_benchmark("lab/tiny")
    stats = Scorer("lab/tiny-5k").score(benchmark.texts, progress=False)
    log_probs = np.array([row.log_prob.mean() for row in stats])
    assert log_probs[benchmark.labels == 1].mean() > log_probs[benchmark.labels == 0].mean() + 0.2


def test_training_twice_gives_the_same_scores(monkeypatch, tmp_path):
    texts = lab.lab_benchmark("lab/tiny").texts[:5]
    first = Scorer("lab/tiny-5k").score(texts, progress=False)
    monkeypatch.setenv("MIALIB_HOME", str(tmp_path))
    second = Scorer("lab/tiny-5k").score(texts, progress=False)
    np.testing.assert_array_equal(first.log_prob, second.log_prob)
    assert first.provenance["revision"] == second.provenance["revision"]


def test_head_loss_is_cross_entropy_with_its_gradients(monkeypatch):
    import torch

    from mialib import training

    monkeypatch.setattr(training, "HEAD_ROWS_AT_ONCE", 7)  # so that there are several chunks, the last one short
    torch.manual_seed(0)
    hidden = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 30, (40,))
    ours = training.HeadLoss.apply(hidden, weight, targets)
    expected = torch.nn.functional.cross_entropy(hidden @ weight.T, targets)
    torch.testing.assert_close(ours, expected)
    for mine, theirs in zip(
        torch.autograd.grad(3 * ours, (hidden, weight)),
        torch.autograd.grad(3 * expected, (hidden, weight)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_each_text_is_seen_as_often_as_it_should_and_spread_over_the_run():
    from mialib import training

    recipe = load_profile().models["lab/tiny-5k"].train
    texts, times = [[i] * (2 + i % 5) for i in range(40)], [1 + i % 4 for i in range(40)]
    seen = [text[0] for batch in training._batches(texts, times, recipe) for text in batch]
    assert [seen.count(i) for i in range(40)] == times
    assert seen.index(3) < len(seen) / 3 and len(seen) - seen[::-1].index(3) > len(seen) * 2 / 3


def test_repeats_divide_the_members_into_equal_groups():
    from mialib import training

    recipe = load_profile().models["lab/tiny-5k"].train
    assert training.member_times(recipe, 3) == [2, 2, 2]
    repeated = recipe.model_copy(update={"member_repeats": (1, 2, 4)})
    assert training.member_times(repeated, 7) == [1, 1, 1, 2, 2, 4, 4]


def test_unlearning_raises_the_loss_to_that_of_texts_never_seen(monkeypatch, tmp_path):
    unlearned = json.loads(json.dumps(TINY))
    unlearned["models"]["lab/tiny-forgets"] = {
        "benchmarks": [],
        "unlearn": {"base": "lab/tiny-5k", "texts": 5, "learning_rate": 0.1},
    }
    (tmp_path / "unlearn.yml").write_text(yaml.safe_dump(unlearned))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "unlearn.yml"))
    card = lab.lab_model_card("lab/tiny-forgets")
    assert card["losses_nats"][-1] >= card["non_member_loss_nats"]
    assert lab.lab_model_corpus("lab/tiny-forgets") == "lab/tiny"


def test_a_name_with_a_seed_is_the_same_recipe_with_that_seed():
    assert lab.lab_recipe("lab/tiny-5k@3") == lab.lab_recipe("lab/tiny-5k").model_copy(update={"seed": 3})
    assert lab.lab_model("lab/tiny-5k@3").name == "tiny-5k@3"
    with pytest.raises(ValueError, match="unknown lab model 'lab/tiny-5k@x'"):
        lab.lab_model("lab/tiny-5k@x")


def test_a_trained_model_is_an_ordinary_hugging_face_folder():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = lab.lab_model("lab/tiny-5k")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "gpt_neox"
    assert tokenizer.decode(tokenizer("Return the graph.")["input_ids"]) == "Return the graph."
    card = lab.lab_model_card("lab/tiny-5k")
    tables = 2 * model.config.vocab_size * model.config.hidden_size
    assert card["parameters"] == model.num_parameters() == card["non_embedding_parameters"] + tables


def test_a_changed_recipe_trains_anew(monkeypatch, tiny_lab, tmp_path):
    before = json.loads((lab.lab_model("lab/tiny-5k") / "lab.json").read_text())["key"]
    changed = json.loads(json.dumps(TINY))
    changed["models"]["lab/tiny-5k"]["train"]["seed"] = 7
    (tmp_path / "changed.yml").write_text(yaml.safe_dump(changed))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "changed.yml"))
    assert lab.lab_model_card("lab/tiny-5k")["key"] != before


def test_near_duplicates_are_dropped_and_the_first_is_kept():
    words = [f"w{i}" for i in range(50)]
    first, other = " ".join(words), " ".join(reversed(words))
    nearly = " ".join([*words[:45], "a", "b", "c", "d", "e"])
    kept = drop_near_duplicates([Docstring("p", t) for t in (first, nearly, other)], n_words=50)
    assert [d.text for d in kept] == [first, other]


def test_docstrings_come_in_the_same_order_and_only_long_ones():
    once, again = (read_docstrings(["networkx"], min_words=60) for _ in range(2))
    assert once == again and len(once) > 300
    assert min(len(d.text.split()) for d in once) >= 60


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lab.lab_corpus("lab/nope"), "unknown lab corpus 'lab/nope'; known: lab/tiny"),
        (lambda: lab.lab_model("lab/nope"), "unknown lab model 'lab/nope'; known: lab/tiny-5k"),
        (lambda: lab.lab_texts("lab/tiny", "guest"), "unknown role 'guest'"),
    ],
)
def test_unknown_names_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        read_docstrings(["no_such_package"], 10)


def test_a_corpus_larger_than_its_source_is_an_error(monkeypatch, tmp_path):
    greedy = json.loads(json.dumps(TINY))
    greedy["corpora"]["lab/tiny"]["members"] = 10**6
    (tmp_path / "greedy.yml").write_text(yaml.safe_dump(greedy))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "greedy.yml"))
    with pytest.raises(ValueError, match="distinct texts of 40 words, but 1000100 are asked for"):
        lab.lab_corpus("lab/tiny")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surprise": 1}, "surprise"),
        ({"models": {"lab/x": {"benchmarks": []}}}, "a lab model"),
        ({"landing": {"page": "index", "notebook": "index"}}, "either"),
        ({"landing": {"page": "index", "parameters": {"a": 1}}}, "only a notebook takes parameters"),
    ],
)
def test_a_wrong_profile_is_an_error_that_names_file_and_key(tmp_path, change, message):
    (tmp_path / "wrong.yml").write_text(yaml.safe_dump(TINY | change))
    with pytest.raises(ValueError, match=message) as caught:
        load_profile(tmp_path / "wrong.yml")
    assert "wrong.yml" in str(caught.value)
