"""The hub as a user meets it: which commit is meant, and what is cached."""

import json
import os
import shutil
import socket
from tempfile import mkdtemp

import numpy as np
import published_data
import pytest
import torch
import yaml
from conftest import FAMILIES, TEXTS, make_tokenizer, save_tiny_model
from hub_clients import pin, pointed_at
from oracles import assert_agree, naive_statistics
from published_data import write_jsonl
from typer.testing import CliRunner

import mialib
from mialib.catalog import hub, loading
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import corpus_identity, reference_texts
from mialib.catalog.hub import Unavailable, find_revision
from mialib.catalog.registry import known_models
from mialib.catalog.sources import find
from mialib.passes.cache import score_or_load
from replication.commands import app

PYTHIA, ROBERTA, C4 = "EleutherAI/pythia-70m", "FacebookAI/roberta-base", "allenai/c4"
WIKIMIA, ARXIV, MIMIR = "swj0419/WikiMIA", "zhliu/ArxivMIA", "iamgroot42/mimir"
A, B = "a" * 40, "b" * 40


def nowhere():
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(scope="session")
def pythia_folder(tmp_path_factory):
    """A tiny GPT-NeoX whose tokenizer has the start token of Pythia's."""
    tokenizer = make_tokenizer(["<|endoftext|>", "<pad>"], bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    return save_tiny_model(tmp_path_factory.mktemp("pythia"), **FAMILIES["gpt_neox"], tokenizer=tokenizer)


def test_what_was_fetched_once_is_used_without_the_hub(at_hub, tmp_path, monkeypatch, pythia_folder):
    datasets = {
        WIKIMIA: published_data.wikimia(tmp_path / "wikimia"),
        ARXIV: published_data.arxiv_mia(tmp_path / "arxiv"),
        MIMIR: published_data.mimir(tmp_path / "mimir"),
    }
    names = ["wikimia-64", "arxiv_mia", "mimir/github/ngram_7_0.2"]

    def scored():
        """From nothing but the hub's cache."""
        monkeypatch.setenv("MIALIB_HOME", mkdtemp(dir=tmp_path))
        return [score_or_load(PYTHIA, load_benchmark(name).texts) for name in names]

    with at_hub(models={PYTHIA: pythia_folder}, datasets=datasets):
        online = scored()
    assert [len(stats) for stats in online] == [8, 12, 8]
    for offline in (True, False):  # by HF_HUB_OFFLINE, and where the hub is gone
        with pointed_at(monkeypatch, nowhere(), tmp_path / "cache", offline=offline):
            for again, first in zip(scored(), online, strict=True):
                np.testing.assert_array_equal(again.log_prob, first.log_prob)
                assert again.provenance == first.provenance


def test_a_name_stands_for_mains_commit_until_one_is_pinned(at_hub, tmp_path, model_folder):
    folder, commits = shutil.copytree(model_folder, tmp_path / "model"), []
    for content in ("one", "two"):
        (folder / "README.md").write_text(content)
        with at_hub(models={"o/m": folder}, revisions={"o/m": ["step9", *commits]}) as served:
            commits.append(served.commit("o/m"))
            assert loading.load_model("o/m").revision == f"o/m@{commits[-1]}"
            for revision in ("step9", commits[0]):
                assert find(f"o/m@{revision}").revision.startswith("o/m@")
            assert find_revision("o/m@step9", "model") == commits[-1]
            n_asked = len(served.requests)
            pin({"model": {"o/m": commits[0]}})
            assert loading.load_model("o/m").revision == f"o/m@{commits[0]}"
            assert len(served.requests) == n_asked, "all of it is in the cache"
            hub.PINS.unlink()
    assert commits[0] != commits[1]


def test_cached_commits_are_told_apart_where_no_hub_answers(at_hub, tmp_path, monkeypatch, model_folder):
    folder, commits = shutil.copytree(model_folder, tmp_path / "model"), []
    for content in ("one", "two"):
        (folder / "README.md").write_text(content)
        with at_hub(models={"o/m": folder}) as served:
            commits.append(served.commit("o/m"))
            find("o/m").check()
    with pointed_at(monkeypatch, nowhere(), tmp_path / "cache", offline=True):
        with pytest.raises(Unavailable) as error:
            find_revision("o/m", "model")
        assert all(commit in str(error.value) for commit in commits)
        assert [find_revision(f"o/m@{commit}", "model") for commit in commits] == commits
        pin({"model": {"o/m": commits[1]}})
        assert find_revision("o/m", "model") == commits[1]


def test_lock_pins_what_can_be_reached_and_lists_the_rest(at_hub, tmp_path, model_folder):
    data = {WIKIMIA: published_data.wikimia(tmp_path / "w"), C4: published_data.c4(tmp_path / "c4")}
    served = {"models": {PYTHIA: model_folder, "Xenova/gpt-4": model_folder}, "datasets": data}
    with at_hub(**served, gated=[WIKIMIA]) as online:
        pin({"model": {"facebook/opt-350m": A, PYTHIA: B}})
        told = CliRunner().invoke(app, ["lock"])
        commits = {name: online.commit(name) for name in (PYTHIA, "Xenova/gpt-4", WIKIMIA, C4)}
        pins = yaml.safe_load(hub.PINS.read_text())
    assert told.exit_code == 0 and pins["model"].pop("facebook/opt-350m") == A  # what can't be reached keeps its pin
    assert pins["model"] | pins["dataset"] == commits
    assert "facebook/opt-350m" in told.output and "CASIA-LM/ChineseWebText" in told.output


CONFIGURATION = """
from transformers import LlamaConfig

class OwnConfig(LlamaConfig):
    model_type = "own"
"""
MODELING = """
import os
from transformers import LlamaForCausalLM
from .configuration_own import OwnConfig

os.environ["OWN_CODE_RAN"] = "yes"

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def own_code(tmp_path, tiny_model, monkeypatch):
    """The tiny model as one that needs its own code to be loaded."""
    monkeypatch.setenv("OWN_CODE_RAN", "")  # so that it is undone
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "own")
    (folder / "configuration_own.py").write_text(CONFIGURATION)
    (folder / "modeling_own.py").write_text(MODELING)
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    config |= {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": code}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", ["owner/own", "baichuan-inc/Baichuan-7B"])  # no paper's model, and one of the registry
def test_code_of_the_authors_runs_only_where_it_is_allowed(at_hub, monkeypatch, own_code, tiny_model, name):
    start = {"owner/own": 0, "baichuan-inc/Baichuan-7B": 1}[name]  # <s>, or the </s> of the paper
    with at_hub(models={name: own_code}) as served:
        with pytest.raises(Unavailable, match=f"MIALIB_REMOTE_CODE={name}"):
            loading.load_model(name)
        assert not os.environ["OWN_CODE_RAN"]
        assert served.asked(".py") == served.asked(".safetensors", "HEAD") == []
        assert bool(served.requests) == (name == "owner/own")  # a known one is refused before anything is asked
        monkeypatch.setenv("MIALIB_REMOTE_CODE", f"owner/other, {name}")
        stats = score_or_load(name, TEXTS[:3])
        assert os.environ["OWN_CODE_RAN"] == "yes"
        # All files, the code too, are of the commit that the score is recorded under.
        commit = served.commit(name)
        assert stats.provenance["revision"] == f"{name}@{commit}"
        assert served.asked(".py") and all(f"/resolve/{commit}/" in r.path for r in served.asked("/resolve/"))
    assert_agree(stats, naive_statistics(tiny_model("llama"), TEXTS[:3], start_token_id=start))


def test_a_folder_with_code_is_refused_and_allowed_likewise(monkeypatch, own_code):
    name = str(own_code)
    with pytest.raises(Unavailable, match=f"MIALIB_REMOTE_CODE={name}"):
        loading.load_model(name)
    assert not os.environ["OWN_CODE_RAN"]
    before = find(name).revision
    monkeypatch.setenv("MIALIB_REMOTE_CODE", name)
    assert loading.load_model(name).revision == before
    (own_code / "modeling_own.py").write_text(MODELING + "\n# changed\n")
    assert find(name).revision != before  # other code may give other numbers


def test_the_weights_type_is_the_registrys_on_a_gpu_and_float32_on_a_cpu():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    with_weights = {name: known for name, known in known_models().items() if find(name).has_weights}
    for name, known in with_weights.items():
        assert find(name).dtype_on(gpu, "auto") == getattr(torch, known.dtype)
        assert find(f"{name}@step1").dtype_on(gpu, "auto") == getattr(torch, known.dtype)
        assert find(name).dtype_on(cpu, "auto") == torch.float32
        assert find(name).dtype_on(cpu, "bfloat16") == torch.bfloat16
    assert find("owner/unknown").dtype_on(gpu, "auto") == torch.bfloat16
    assert find("lab/en-25k").dtype_on(gpu, "auto") == torch.float32
    with pytest.raises(ValueError, match="int8"):
        find("owner/unknown").dtype_on(cpu, "int8")


FAMILY_OF = {
    "EleutherAI/pythia-70m": "gpt_neox",
    "facebook/opt-350m": "opt",
    "huggyllama/llama-7b": "llama",
    "Qwen/Qwen1.5-1.8B": "qwen2",
}


@pytest.mark.parametrize("name", FAMILY_OF)
def test_each_family_is_loaded_by_its_hub_name_and_scored_with_its_start_token(name, tmp_path, monkeypatch):
    known = known_models()[name].start_token
    start_token = "</s>" if known == "auto" else known  # the tokenizer's own
    special = ["<pad>", "</s>", "<s>", "<|endoftext|>"]
    # The tokenizer's own start token is another one, as OPT's is.
    tokenizer = make_tokenizer(special, bos_token="</s>", eos_token="</s>")
    save_tiny_model(tmp_path / name, **FAMILIES[FAMILY_OF[name]], tokenizer=tokenizer)
    monkeypatch.setenv("MIALIB_MODELS", str(tmp_path))
    scorer = mialib.Scorer(name)
    assert scorer.loaded.start_token_ids == (special.index(start_token),)
    reference = naive_statistics(tmp_path / name, TEXTS, start_token_id=special.index(start_token))
    assert_agree(scorer.score(TEXTS, progress=False), reference)
    if name == "facebook/opt-350m":
        assert scorer.loaded.model.config.word_embed_proj_dim == 16 < scorer.loaded.model.config.hidden_size


def test_a_copy_of_a_model_wins_over_the_hub_and_goes_by_its_content(at_hub, tmp_path, monkeypatch, tiny_model):
    copy = shutil.copytree(tiny_model("llama"), tmp_path / "copies" / "o" / "m")
    monkeypatch.setenv("MIALIB_MODELS", str(tmp_path / "copies"))
    with at_hub(models={"o/m": tiny_model("gpt_neox")}) as served:
        loaded = loading.load_model("o/m")
        assert loaded.model.config.model_type == "llama" and served.requests == []
    assert loaded.revision == find(tiny_model("llama")).revision  # wherever it lies
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    assert find("o/m").revision != loaded.revision


def test_a_corpus_is_read_file_after_file_up_to_its_size(at_hub, tmp_path):
    folder = published_data.c4(tmp_path / "c4", n_files=3, n_texts=4)  # 37 characters a text
    with at_hub(datasets={C4: folder}) as served:
        assert "".join(reference_texts("c4:100"))[:40] == "File 0, text 0: the river runs south.Fil"
        assert sum(map(len, reference_texts("c4:148"))) == 148  # the first file to the last character
        assert not served.asked("c4-train.00001", "HEAD")
        texts = list(reference_texts("c4:150"))
        assert (len(texts), texts[-1]) == (5, "Fi") and served.asked("c4-train.00001", "HEAD")
        assert not served.asked("c4-train.00002", "HEAD")
        assert corpus_identity("c4:1k") == f"c4:1k of {C4}@{served.commit(C4)}"
        for read in (lambda: list(reference_texts("c4")), lambda: corpus_identity("c4")):
            with pytest.raises(ValueError, match="c4"):
                read()
        # This hub has three of its files, 444 characters.
        with pytest.raises(Unavailable, match=rf"{C4}.*c4-train.00003-of-01024"):
            list(reference_texts("c4:1k"))


def test_a_copy_of_a_corpus_is_read_and_goes_by_its_files(tmp_path, monkeypatch):
    folder = published_data.c4(tmp_path / C4, n_files=1)
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(tmp_path))
    assert sum(map(len, reference_texts("c4:200"))) == 200
    before = corpus_identity("c4:200")
    with pytest.raises(Unavailable, match=r"c4-train\.00001-of-01024"):
        list(reference_texts("c4:1k"))
    [path] = folder.rglob("*.gz")
    write_jsonl(path, [{"text": "Another text altogether"}] * 20)
    assert corpus_identity("c4:200") != before
