"""What a model's name leads to: its own weights, and a tokenizer that cuts texts as its file says."""

import json
import re

import pytest
import transformers
from conftest import FAMILIES, TEXTS, make_glm_tokenizer, make_tokenizer, save_tiny_model
from tokenizers import Regex, Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from mialib.batches import encode
from mialib.catalog import loading, models
from mialib.catalog.loading import load_scorer
from mialib.catalog.sources import find
from mialib.models import find_start_tokens, tokenizer_hash


@pytest.fixture
def loads(monkeypatch):
    """The names of the models that are loaded, in order."""
    monkeypatch.setattr(loading, "_loaded", {})
    names, load = [], loading.load_model
    monkeypatch.setattr(loading, "load_model", lambda name, **options: names.append(name) or load(name, **options))
    return names


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"start_token": None}, {"start_token": "</s>"}])
def test_a_model_asked_for_otherwise_is_loaded_anew(loads, model_folder, options):
    load_scorer(model_folder)
    assert load_scorer(model_folder, **options) is load_scorer(model_folder, **options)
    assert loads == [model_folder] * 2


def test_other_weights_in_the_same_folder_are_loaded_anew(loads, tmp_path):
    for seed in (0, 1):
        folder = save_tiny_model(tmp_path, **FAMILIES["gpt_neox"], seed=seed)
        load_scorer(folder), load_scorer(folder)
    assert loads == [folder] * 2


def save_tokenizer(folder, tokenizer, model_type, declared=None, **settings):
    """A tokenizer beside a config, as `save_pretrained` writes it, with another class declared."""
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type} | settings))
    file = folder / "tokenizer_config.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | ({"tokenizer_class": declared} if declared else {})))
    return str(folder)


def cut_by_file(folder, texts):
    """Token ids by the file alone."""
    file = Tokenizer.from_file(f"{folder}/tokenizer.json")
    return [file.encode(text, add_special_tokens=False).ids for text in texts]


OWN_TEXTS = [*models.CUT_TEXTS, *TEXTS]


@pytest.mark.parametrize(
    ("model_type", "declared"),
    [
        ("qwen2", None),
        ("llama", "Qwen2TokenizerFast"),
        ("gemma", "GemmaTokenizer"),  # which can't cut with this vocabulary at all
        ("mbart", "MBartTokenizer"),  # which can't be loaded with it
    ],
)
def test_the_tokenizer_that_lies_beside_the_weights_cuts_the_texts(model_type, declared, tmp_path):
    own = make_tokenizer(bos_token="<s>", eos_token="</s>", model_max_length=77)
    folder = save_tokenizer(tmp_path, own, model_type, declared)
    tokenizer = models.load_tokenizer(folder)
    expected = cut_by_file(folder, OWN_TEXTS)
    assert encode(tokenizer, OWN_TEXTS) == expected != []
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.model_max_length) == ("<s>", "</s>", 77)
    assert len(tokenizer) == len(own) and models.tokenizer_facts(find(folder))["special_tokens"] is not None
    facts = models.tokenizer_facts(find(folder))
    reading = {name: fact for name, fact in facts.items() if name != "hash"}
    assert find(folder).pass_key()["tokenizer"] == reading  # what was kept before does not count
    models._tokenizers.clear()
    assert encode(models.load_tokenizer(folder), OWN_TEXTS) == expected  # as decided before
    assert models.load_tokenizer(folder).eos_token == "</s>"


def test_the_class_names_special_tokens_that_the_file_only_holds(tmp_path):
    own = make_tokenizer(["<s>", "</s>", "<|endoftext|>"], pad_token="</s>")
    folder = save_tokenizer(tmp_path, own, "gpt_neox", "GPTNeoXTokenizer")
    models._tokenizers.clear()
    assert encode(models.load_tokenizer(folder), OWN_TEXTS) == cut_by_file(folder, OWN_TEXTS)
    assert models.load_tokenizer(folder).bos_token == "<|endoftext|>"
    models._tokenizers.clear()
    assert models.load_tokenizer(folder).bos_token == "<|endoftext|>"


def test_a_hub_models_own_tokenizer_cuts_its_texts(at_hub, tmp_path):
    folder = save_tokenizer(tmp_path, make_tokenizer(), "qwen2")
    with at_hub(models={"o/m": folder}):
        assert encode(models.load_tokenizer("o/m"), OWN_TEXTS) == cut_by_file(folder, OWN_TEXTS)
        assert encode(AutoTokenizer.from_pretrained(folder), OWN_TEXTS) != cut_by_file(folder, OWN_TEXTS)


@pytest.mark.parametrize(("model_type", "name"), [("qwen2", "Qwen2Tokenizer"), ("llama", "LlamaTokenizer")])
def test_an_ordinary_tokenizer_is_transformers_own_and_compared_once(model_type, name, tmp_path, monkeypatch):
    ends = ["<|endoftext|>", "<s>", "</s>", "<unk>"]
    content = json.loads(make_tokenizer(ends, bos_token="<s>").backend_tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in content["merges"]]
    folder = save_tokenizer(tmp_path, getattr(transformers, name)(vocab=content["vocab"], merges=merges), model_type)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert tokenizer_hash(models.load_tokenizer(folder)) == tokenizer_hash(theirs)
    assert type(theirs).__name__ == name and "tokenizer" not in find(folder).pass_key()
    monkeypatch.setattr(Tokenizer, "from_file", None)
    models._tokenizers.clear()
    assert tokenizer_hash(models.load_tokenizer(folder)) == tokenizer_hash(theirs)


@pytest.mark.parametrize("is_tekken", [True, False])
def test_mistrals_pattern_is_mended_in_its_own_vocabulary_alone_and_nothing_is_advised(is_tekken, tmp_path, capfd):
    backend, text = Tokenizer(BPE()), "in 1987 theRiver"
    # Llama 3's pattern, which Mistral's own files have by mistake.
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(parts)
    special = ["<s>", "</s>", "[TOOL_CALLS]" if is_tekken else "<tool>"]
    backend.train_from_iterator(
        [text] * 9 + [" the River"] * 20, trainers.BpeTrainer(special_tokens=special, show_progress=False)
    )
    content = json.loads(backend.to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"☃{i}": len(vocabulary) + i for i in range(100_000)}  # transformers looks at large ones alone
    own = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(content)), bos_token="<s>")
    folder = save_tokenizer(tmp_path, own, "mistral", transformers_version="4.50.0")
    capfd.readouterr()
    tokenizer = models.load_tokenizer(folder)
    tokens = tokenizer.convert_ids_to_tokens(encode(tokenizer, [text])[0])
    mended = ["in", "Ġ", "1", "9", "8", "7", "Ġthe", "River"]
    assert tokens == (mended if is_tekken else ["in", "Ġ", "198", "7", "ĠtheRiver"])
    assert ("fix_mistral_regex" in models.tokenizer_facts(find(folder))) is is_tekken
    assert "regex" not in "".join(capfd.readouterr())


def test_several_start_tokens_are_taken_where_the_tokenizer_prepends_them_or_one_names_them():
    glm, other = make_glm_tokenizer(), make_tokenizer(["<|endoftext|>", "[gMASK]", "<sop>"], eos_token="<|endoftext|>")
    assert find_start_tokens(glm, "glm") == find_start_tokens(other, "glm", "[gMASK]<sop>") == (1, 2)
    assert find_start_tokens(other, "glm") == (0,) == find_start_tokens(glm, "glm", "<|endoftext|>")
    assert find_start_tokens(glm, "glm", "<sop>") == (2,) and find_start_tokens(glm, "glm", "none") == ()
    for text in ("the river", "<sop>the", "<sop> <sop>", "<nowhere>"):
        with pytest.raises(ValueError, match=re.escape(repr(text))):
            find_start_tokens(glm, "glm", text)
