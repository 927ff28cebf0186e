"""The lab: texts, the coin, and training, on a profile small enough for seconds."""

import json
from collections import Counter
from types import SimpleNamespace

import jieba
import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import mialib
from mialib import Scorer
from mialib.attacks import head_loss
from mialib.cache import Checkpoints
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.sources import find
from mialib.store import home
from mialib.versions import VERSIONS
from replication.lab import dealing, source, training
from replication.lab.corpora import ROLES
from replication.lab.dealing import drop_near_duplicates
from replication.lab.docstrings import Docstring, read_docstrings
from replication.lab.recipes import Corpus, Diluted, load_recipes
from replication.lab.source import LabCorpus, lab_model_card, model_folder

TINY = yaml.safe_load("""
name: tiny
corpora:
  lab/tiny: {source: docstrings, language: en, packages: [pydantic], words: 40, members: 20, non_members: 20,
             background: 20, reference: 60, vocab_size: 512, seed: 1}
  lab/tiny-zh: {source: patents, language: zh, words: 40, members: 10, non_members: 10,
                background: 10, reference: 30, vocab_size: 512, seed: 1}
  # No model is trained on this one, and the next one is injected into others.
  lab/tiny-elsewhere: {source: docstrings, language: en, packages: [typer], words: 40, non_members: 15, seed: 2}
  lab/tiny-quiz: {source: choice_questions, language: en, packages: [typer], words: 40, members: 10, non_members: 10,
                  seed: 3}
models:
  lab/tiny-5k:
    benchmarks: [lab/tiny]
    train: {corpus: lab/tiny, layers: 1, hidden_size: 16, heads: 2, member_times: 2, background_times: 1,
            context_tokens: 128}
  lab/tiny-masked:
    benchmarks: []
    masked: {corpus: lab/tiny, layers: 1, hidden_size: 16, heads: 2, epochs: 1, batch_texts: 64, learning_rate: 0.01,
             context_tokens: 8}
landing: {page: index}
book: []
""")

TRAIN = TINY["models"]["lab/tiny-5k"]["train"]


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


def merged(of, changes):
    """A profile with some of its entries changed, however deep."""
    if not isinstance(of, dict) or not isinstance(changes, dict):
        return changes
    return of | {key: merged(of.get(key), value) for key, value in changes.items()}


@pytest.fixture
def use_profile(tmp_path, monkeypatch):
    """A function after which the tiny profile with some changes is in use."""

    def use(changes):
        path = tmp_path / f"profile-{len(list(tmp_path.iterdir()))}.yml"
        path.write_text(yaml.safe_dump(merged(TINY, changes)))
        monkeypatch.setenv("MIALIB_PROFILE", str(path))

    return use


@pytest.fixture
def use_empty_home(tiny_lab, tmp_path, monkeypatch):
    """A function after which all is to be made anew, but for the reading of the packages' source files."""

    def use():
        for folder in (tiny_lab / "home", tmp_path / "empty"):
            (folder / "cache").mkdir(parents=True, exist_ok=True)
        sources = tiny_lab / "home" / "cache" / "sources"
        sources.mkdir(exist_ok=True)
        (tmp_path / "empty" / "cache" / "sources").symlink_to(sources, target_is_directory=True)
        monkeypatch.setenv("MIALIB_HOME", str(tmp_path / "empty"))

    return use


def test_corpora_deal_out_each_text_once_and_chinese_ones_by_jiebas_words():
    texts = [text for role in ROLES for text in LabCorpus("lab/tiny").texts(role)]
    assert len(set(texts)) == len(texts)
    assert [len(LabCorpus("lab/tiny").texts(role)) for role in ROLES[:3]] == [20, 20, 20]
    assert all(len(text.split()) == 40 for text in LabCorpus("lab/tiny").texts("member"))
    benchmark = load_benchmark("lab/tiny")
    assert Counter(benchmark.labels.tolist()) == {0: 20, 1: 20}
    assert list(benchmark.texts[:20]) == LabCorpus("lab/tiny").texts("member")
    benchmark = load_benchmark("lab/tiny-zh")
    assert benchmark.language == "zh"
    assert {len([w for w in jieba.lcut(text) if w.strip()]) for text in benchmark.texts} == {40}


def test_corpus_card_fits_the_texts_and_is_the_same_when_they_are_made_again(use_empty_home):
    card = LabCorpus("lab/tiny").card
    assert sum(card["roles"].values()) == sum(card["packages"].values())
    assert card["sources"][0].startswith("pydantic==") and len(card["content_hash"]) == 16
    use_empty_home()
    assert LabCorpus("lab/tiny").card["content_hash"] == card["content_hash"]


def test_corpora_of_non_members_alone_and_overlaps(benchmark_file):
    name = "lab/tiny-elsewhere"
    card = LabCorpus(name).card
    assert card["roles"] == {"non_member": 15} and card["packages"] == {"typer": 15}
    assert card["tokenizer_hash"] is None and card["non_member_overlap"] == 0
    assert {p.name for p in LabCorpus(name).folder.iterdir()} == {"card.json", "places.csv", "texts.jsonl.gz"}
    assert LabCorpus(name).texts("member") == LabCorpus(name).texts("reference") == []
    with pytest.raises(ValueError, match="15 texts"):
        load_benchmark(name)
    found = source.training_overlaps("lab/tiny", load_benchmark("lab/tiny").texts)
    assert found.shape == (40,) and (found[:20] == 1).all()
    assert found[20:].mean() == pytest.approx(LabCorpus("lab/tiny").card["non_member_overlap"])
    name = "lab/tiny:background~lab/tiny-elsewhere"
    of_background = source.training_overlaps(name, load_benchmark(name).texts)
    assert (of_background[:20] == 1).all() and of_background[20:].max() < 0.2
    assert source.training_overlaps(benchmark_file, load_benchmark(benchmark_file).texts) is None


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("lab/tiny~lab/tiny-elsewhere", (("lab/tiny", "member"), ("lab/tiny-elsewhere", "non_member"))),
        ("lab/tiny:non_member~lab/tiny-elsewhere", (("lab/tiny", "non_member"), ("lab/tiny-elsewhere", "non_member"))),
        ("lab/tiny:background~lab/tiny:non_member", (("lab/tiny", "background"), ("lab/tiny", "non_member"))),
    ],
)
def test_a_benchmark_takes_its_sides_from_the_corpora_and_roles_that_it_names(name, sides):
    members, non_members = (LabCorpus(corpus).texts(role) for corpus, role in sides)
    benchmark = load_benchmark(name)
    assert benchmark.name == name and list(benchmark.texts) == members + non_members
    assert benchmark.labels.tolist() == [1] * len(members) + [0] * len(non_members)
    package = {"lab/tiny": "pydantic", "lab/tiny-elsewhere": "typer"}
    first, second = (package[corpus] for corpus, _ in sides)
    assert list(benchmark.domains) == [first] * len(members) + [second] * len(non_members)
    of = list(dict.fromkeys(corpus for corpus, _ in sides))
    assert benchmark.revision == "~".join(LabCorpus(corpus).card["content_hash"] for corpus in of)
    assert source.corpora_of(name) == of


def test_training_sees_members_and_background_and_nothing_else(monkeypatch, tmp_path):
    seen = {}
    encode = training._encode

    def spy(tokenizer, texts, context_tokens):
        seen["texts"], seen["ids"] = texts, encode(tokenizer, texts, context_tokens)
        return seen["ids"]

    monkeypatch.setattr(training, "_encode", spy)
    recipe = source.lab_recipe("lab/tiny-5k")
    texts, times = source.texts_and_times(recipe)
    training.train("lab/tiny-5k", recipe, LabCorpus("lab/tiny").tokenizer, texts, times, tmp_path)
    assert seen["texts"] == LabCorpus("lab/tiny").texts("member") + LabCorpus("lab/tiny").texts("background")
    assert all(ids[0] == 0 for ids in seen["ids"]), "each text starts with <|endoftext|>, as in scoring"


def test_injected_members_are_seen_as_often_as_the_recipe_says_and_non_members_never():
    quiz = [LabCorpus("lab/tiny-quiz").texts(role) for role in ("member", "non_member")]
    recipe = source.lab_recipe("lab/tiny-5k").model_copy(update={"injected": {"lab/tiny-quiz": 3}})
    members, background = LabCorpus("lab/tiny").texts("member"), LabCorpus("lab/tiny").texts("background")
    texts, times = source.texts_and_times(recipe)
    assert texts == members + background + quiz[0] and not set(texts) & set(quiz[1])
    assert times == [2] * len(members) + [1] * len(background) + [3] * len(quiz[0])
    assert source.member_corpora("lab/tiny-5k") == ["lab/tiny"] and source.member_corpora("lab/tiny-masked") == []
    alone, _ = source.texts_and_times(recipe.model_copy(update={"member_times": 0}))
    assert alone == background + quiz[0]
    n_seen = (len(members) + 2) // 3  # a third of the members; the others are left out
    some, _ = source.texts_and_times(recipe.model_copy(update={"member_repeats": (1, 0, 0)}))
    assert some == members[:n_seen] + background + quiz[0]


def test_tokenizer_learns_from_reference_texts_alone(monkeypatch, use_empty_home):
    learned_from = []
    train_tokenizer = dealing.train_tokenizer
    monkeypatch.setattr(
        dealing, "train_tokenizer", lambda texts, size: learned_from.extend(texts) or train_tokenizer(texts, size)
    )
    use_empty_home()
    assert LabCorpus("lab/tiny").texts("reference") == learned_from


@pytest.mark.parametrize("name", ["lab/tiny-5k", "lab/tiny-masked"])
def test_a_training_that_broke_off_goes_on_to_the_same_weights(name, use_empty_home, monkeypatch):
    whole = find(name).revision
    use_empty_home()
    monkeypatch.setattr(training, "SECONDS_A_PART", -1e9)  # after each step
    kept, steps = Checkpoints.add, []

    def add(self, part, **options):
        kept(self, part, **options)
        steps.append(len(part["losses"]))
        if len(steps) in (3, 7):
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "add", add)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            assert find(name).revision
    assert find(name).revision == whole
    assert steps == [*range(1, steps[-1] + 1)], "no step twice, and all of them"
    assert not list((home() / "lab" / "models").glob("*.parts"))


def test_a_model_from_elsewhere_is_trained_on_with_its_own_tokenizer(use_profile, model_folder):
    recipe = {"from_model": model_folder, "corpus": "lab/tiny", "member_times": 4, "background_times": 0}
    recipe |= {"batch_texts": 4, "learning_rate": 0.006, "is_bfloat16": True}
    use_profile({"models": {"lab/tiny-on": {"benchmarks": ["lab/tiny"], "train_on": recipe}}})
    texts, labels = load_benchmark("lab/tiny").texts, load_benchmark("lab/tiny").labels
    trained, base = mialib.Scorer("lab/tiny-on"), mialib.Scorer(model_folder)
    assert trained.loaded.tokenizer_hash == base.loaded.tokenizer_hash
    assert trained.loaded.start_token_ids == base.loaded.start_token_ids == (0,)
    gains = [np.array([row.log_prob.mean() for row in of.score(texts)]) for of in (trained, base)]
    gain = gains[0] - gains[1]
    assert gain[labels == 1].mean() > 1 and mialib.auc(labels, gain) > 0.6
    assert find("lab/tiny-on").times_seen(texts).tolist() == [4] * 20 + [0] * 20
    assert find("lab/tiny-on").trained_on == LabCorpus("lab/tiny").texts("member")


def test_head_loss_is_cross_entropy_with_its_gradients(monkeypatch):
    monkeypatch.setattr(head_loss, "ROWS_AT_ONCE", {"cpu": 7})  # so that there are several chunks, the last one short
    torch.manual_seed(0)
    hidden = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 30, (40,))
    ours = training.HeadLoss.apply(hidden, weight, targets)
    expected = torch.nn.functional.cross_entropy(hidden @ weight.T, targets)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(*(torch.autograd.grad(3 * loss, (hidden, weight)) for loss in (ours, expected)))
    # A token of probability e^-200, which float32 has not, costs ln 1e38; its gradient is 1 - 0.
    hidden = torch.tensor([[200.0]], requires_grad=True)
    loss = training.HeadLoss.apply(hidden, torch.tensor([[1.0], [0.0]]), torch.tensor([1]))
    assert loss.item() == pytest.approx(38 * np.log(10)) and torch.autograd.grad(loss, hidden)[0].item() == 1


def test_the_mean_loss_is_that_of_one_text_at_a_time(monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(model_folder("lab/tiny-5k"), dtype=torch.float32)
    texts = [[0, 5, 9, 2, 7], [0, 3], [0, 8, 8, 1], [0, 4, 4, 4, 4, 4, 11]]
    monkeypatch.setattr(training, "TOKENS_AT_ONCE", 9)  # more than one batch, of more than one text
    with torch.no_grad():
        alone = [model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item() for ids in texts]
    assert training.mean_loss(model, texts) == pytest.approx(np.mean(alone), abs=1e-6)


def test_products_are_rounded_on_a_gpu_alone_and_never_afterwards():
    for device, inside in (("cpu", "highest"), ("cuda", "high")):
        with pytest.raises(KeyError), training.tf32_products(device):
            assert torch.get_float32_matmul_precision() == inside
            raise KeyError
        assert torch.get_float32_matmul_precision() == "highest"


def test_each_text_is_seen_as_often_as_it_should_and_members_are_divided_equally():
    recipe = load_recipes().models["lab/tiny-5k"].train
    texts, times = [[i] * (2 + i % 5) for i in range(40)], [1 + i % 4 for i in range(40)]
    seen = [text[0] for batch in training._batches(texts, times, recipe) for text in batch]
    assert [seen.count(i) for i in range(40)] == times
    assert seen.index(3) < len(seen) / 3 and len(seen) - seen[::-1].index(3) > len(seen) * 2 / 3
    recipe = load_recipes().models["lab/tiny-5k"].train
    assert source.member_times(recipe, 3) == [2, 2, 2]
    repeated = recipe.model_copy(update={"member_repeats": (1, 2, 4)})
    assert source.member_times(repeated, 7) == [1, 1, 1, 2, 2, 4, 4]
    third = Diluted(corpus="c", from_model="m", member_repeats=(1, 0, 0), background_texts=3400)
    assert source.member_times(third, 100) == [1] * 34 + [0] * 66


@pytest.fixture
def unlearned(use_profile):
    """A profile with a model that has learned its members by heart and one that forgets the first five of them."""
    forgets = {"base": "lab/tiny-knows", "texts": 5, "learning_rate": 0.001}
    made = {
        "lab/tiny-knows": {"train": TRAIN | {"member_times": 30, "hidden_size": 32}},
        "lab/tiny-forgets": {"unlearn": forgets},
        "lab/tiny-remembers": {"unlearn": forgets | {"learning_rate": 1e-9, "max_epochs": 2}},
    }
    use_profile({"models": {name: {"benchmarks": []} | recipe for name, recipe in made.items()}})


def test_unlearning_stops_where_the_loss_is_that_of_texts_never_seen(unlearned):
    card = lab_model_card("lab/tiny-forgets")
    losses, of_non_members = card["losses_nats"], card["non_member_losses_nats"]
    assert len(losses) == len(of_non_members) > 1
    assert all(own < other for own, other in zip(losses[:-1], of_non_members[:-1], strict=True)), "not before"
    assert losses[-1] >= of_non_members[-1]
    assert source.lab_model_corpus("lab/tiny-forgets") == "lab/tiny"
    texts = [*load_benchmark("lab/tiny").texts, *LabCorpus("lab/tiny").texts("background")]
    scored = [Scorer(model).score(texts, progress=False) for model in ("lab/tiny-knows", "lab/tiny-forgets")]
    before, after = (np.array([-row.log_prob.mean() for row in stats]) for stats in scored)
    assert after[:5].mean() == pytest.approx(losses[-1], abs=1e-3)
    assert after[20:40].mean() == pytest.approx(of_non_members[-1], abs=1e-3)
    change = after - before
    assert change[:5].mean() > 2 * change[5:20].mean(), "the other members"
    assert change[:5].mean() > 3 * change[40:].mean(), "and the background are spared by the descent"
    with pytest.raises(RuntimeError, match=r"lab/tiny-remembers: .*2 epochs .*\d\.\d+ nats"):
        model_folder("lab/tiny-remembers")


def test_a_model_of_a_seed_is_an_ordinary_hugging_face_folder():
    assert source.lab_recipe("lab/tiny-5k@3") == source.lab_recipe("lab/tiny-5k").model_copy(update={"seed": 3})
    assert model_folder("lab/tiny-5k@3").name.startswith("tiny-5k@3-")
    with pytest.raises(ValueError, match="lab/tiny-5k@x"):
        model_folder("lab/tiny-5k@x")
    folder = model_folder("lab/tiny-5k")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "gpt_neox"
    assert tokenizer.decode(tokenizer("Return the graph.")["input_ids"]) == "Return the graph."
    card = lab_model_card("lab/tiny-5k")
    tables = 2 * model.config.vocab_size * model.config.hidden_size
    assert card["parameters"] == model.num_parameters() == card["non_embedding_parameters"] + tables


def test_a_masked_model_learns_from_background_alone(monkeypatch, use_empty_home):
    read = []
    monkeypatch.setattr(
        training, "train_masked", lambda name, recipe, tokenizer, texts, folder, parts: read.extend(texts) or {}
    )
    background = LabCorpus("lab/tiny").texts("background")
    use_empty_home()
    model_folder("lab/tiny-masked")
    assert read == background


def test_a_masked_model_is_a_roberta_that_reads_its_corpus_tokens_and_two_more():
    folder = model_folder("lab/tiny-masked")
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    causal = AutoTokenizer.from_pretrained(model_folder("lab/tiny-5k"))
    assert model.config.model_type == "roberta" and model.config.vocab_size == len(causal) + 2
    text = LabCorpus("lab/tiny").texts("member")[0]
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == causal(text)["input_ids"]
    card = lab_model_card("lab/tiny-masked")
    table = model.config.vocab_size * model.config.hidden_size  # the head is the embedding
    assert card["parameters"] == model.num_parameters() == card["non_embedding_parameters"] + table
    assert source.lab_model_corpus("lab/tiny-masked") == "lab/tiny"
    assert 0 < card["final_loss_nats"] < np.log(len(tokenizer))


def test_each_token_is_masked_in_turn_and_seen_with_what_is_around_it():
    tokenizer = SimpleNamespace(cls_token_id=90, mask_token_id=91)
    rows = list(training._masked_windows(tokenizer, [1, 2, 3, 4, 5], 4))
    assert rows == [[90, 91, 2, 3, 1], [90, 1, 91, 3, 2], [90, 2, 91, 4, 3], [90, 3, 91, 5, 4], [90, 3, 4, 91, 5]]
    assert list(training._masked_windows(tokenizer, [1, 2], 4)) == [[90, 91, 2, 1], [90, 1, 91, 2]]


def test_the_masked_loss_is_that_of_one_row_at_a_time():
    model = AutoModelForMaskedLM.from_pretrained(model_folder("lab/tiny-masked"), dtype=torch.float32)
    mask = model.config.vocab_size - 1
    batch = [[mask - 1, 5, mask, 7, 8, 6], [mask - 1, mask, 9, 4]]
    with torch.no_grad():
        alone = [model(torch.tensor([row[:-1]])).logits[0, row.index(mask)].log_softmax(-1)[row[-1]] for row in batch]
        loss = training._masked_loss(model, batch, mask)
    torch.testing.assert_close(loss, -(alone[0] + alone[1]) / 2)


@pytest.fixture
def trainings(monkeypatch, use_empty_home):
    """The names of the models that are trained, by a stub that trains nothing, in an empty home."""
    trained = []

    def train(name, recipe, tokenizer, texts, times, folder, device, parts):
        trained.append(name)
        folder.mkdir()
        return {}

    monkeypatch.setattr(training, "train", train)
    use_empty_home()
    return trained


@pytest.mark.parametrize("changes", [{"vocab_size": 600}, {"members": 15, "non_members": 25}, None])
def test_another_tokenizer_other_roles_or_other_code_train_anew(monkeypatch, trainings, use_profile, changes):
    model_folder("lab/tiny-5k")
    members = LabCorpus("lab/tiny").texts("member")
    if changes:
        use_profile({"corpora": {"lab/tiny": changes}})
    else:
        monkeypatch.setitem(VERSIONS, "training", 0)
    assert LabCorpus("lab/tiny").texts("member") == members[: (changes or {}).get("members")], "the same texts"
    for _ in range(2):
        model_folder("lab/tiny-5k")
    assert trainings == ["lab/tiny-5k"] * 2


def test_docstrings_are_long_in_one_order_and_no_near_duplicates():
    once, again = (read_docstrings(["pydantic"], min_words=60) for _ in range(2))
    assert once == again and len(once) > 100
    assert min(len(d.text.split()) for d in once) >= 60
    words = [f"w{i}" for i in range(50)]
    first, other = " ".join(words), " ".join(reversed(words))
    nearly = " ".join([*words[:45], "a", "b", "c", "d", "e"])
    corpus = Corpus(source="docstrings", language="en", words=50, non_members=1, seed=0)
    found = [Docstring("p", text) for text in (first, nearly, other, "too short for a seven")]
    assert [d.text for d in drop_near_duplicates(found, corpus, [])] == [first, other]
    assert [d.text for d in drop_near_duplicates(found, corpus, [first])] == [other]
    at_20 = corpus.model_copy(update={"words": 20})
    apart = Docstring("p", " ".join([*[f"v{i}" for i in range(20)], *words]))
    assert drop_near_duplicates([found[0], apart], at_20, []) == [found[0], apart], "its first 20 words are its own"


def test_a_corpus_deals_out_a_file_of_texts_and_its_identity_is_the_files(use_profile, tmp_path):
    path = tmp_path / "poems.jsonl"
    texts = [" ".join(f"w{i}-{j}" for j in range(30 + i)) for i in range(40)]

    def write(texts):
        rows = [{"input": t, "field": "odes" if i % 2 else "hymns"} for i, t in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write([*texts, texts[3]])
    recipe = dict.fromkeys(("members", "non_members", "background", "reference"), 10)
    recipe |= {"source": "file", "packages": [], "vocab_size": 300, "path": str(path)}
    use_profile({"corpora": {"lab/tiny": recipe}})
    card = LabCorpus("lab/tiny").card
    assert card["near_duplicates_dropped"] == 1 and card["packages"] == {"hymns": 20, "odes": 20}
    dealt = [text for role in ROLES for text in LabCorpus("lab/tiny").texts(role)]
    assert set(dealt[:30]) <= {" ".join(text.split()[:40]) for text in texts} and set(dealt[30:]) <= set(texts)
    assert len(set(dealt)) == 40
    assert LabCorpus("lab/tiny").card == card
    write(texts)
    assert LabCorpus("lab/tiny").card["near_duplicates_dropped"] == 0, "another file is another corpus"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"poems\.jsonl"):
        LabCorpus("lab/tiny").texts("member")
