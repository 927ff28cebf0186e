"""What the tests share: tiny models of the papers' families, and a home folder that no test leaves anything in.

The models have random weights, drawn wide enough that their predictions are far from uniform.
"""

import atexit
import json
import os
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported: no test may reach the network
os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp()  # where transformers copies the code that a model brings along
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()  # its tables of Unicode, not in the repository
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read with numpy and torch: workers side by side have a core each

import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
import transformers
from hub_clients import pointed_at
from hub_server import serve_hub
from hypothesis import HealthCheck, settings
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from mialib.benchmarks import Benchmark
from mialib.blind import BLIND
from mialib.passes.inputs import Target, inputs_of, load_inputs
from mialib.store import ROOT
from mialib.token_stats import TokenRow, TokenStats

for temporary in ("HF_MODULES_CACHE", "HYPOTHESIS_STORAGE_DIRECTORY"):
    atexit.register(shutil.rmtree, os.environ[temporary], ignore_errors=True)
transport = httpx._transports.default
transport.create_ssl_context = cache(transport.create_ssl_context)  # it reads all certificates for each client
sys.modules["rfc3987_syntax"] = None  # with it nbformat takes 3 s to import, for a grammar of addresses
torch.set_num_threads(1)  # tiny matrices: a second thread only waits, and waits long where cores are shared
transformers.utils.logging.disable_progress_bar()
COPIES = os.environ.get("MIALIB_BENCHMARKS")  # a person's, before each test is kept from it

SENTENCES = [
    "The river rises in the hills above the old mill and runs south through three villages.",
    "In spring the river floods the lower meadows, and the mill stands in water for a week.",
    "She wrote the letter twice: once in anger, and once, a week later, in earnest.",
    "A letter that is never sent teaches its writer more than one that is.",
    "The committee met on 14 May 1987 and again in June; no minutes of either meeting survive.",
    "Prices rose by 3.5% in the first quarter, by 4.1% in the second, and not at all in the third.",
    "def mean(values): return sum(values) / len(values)",
    "这条河发源于北方的山地，流经三个村庄。",
]
# Of many lengths, from one token to most of the tiny models' context, in no order.
TEXTS = [
    SENTENCES[0],
    "the",
    SENTENCES[4],
    "The mill",
    SENTENCES[7],
    "week week week week week week",
    SENTENCES[6] + "\n\n    " + SENTENCES[2],
    "Naïve café 🙂",
    SENTENCES[3],
]
NOUNS = ["river", "stone", "garden", "window", "letter", "market", "engine", "harbor"]
CONTEXT = 96  # tokens

OF_A_LLAMA = {"initializer_range": 0.3, "intermediate_size": 64}
# What differs between the families' configurations; the rest is in `tiny_model`.
FAMILIES = {
    "gpt_neox": {"config": "GPTNeoXConfig"} | OF_A_LLAMA,
    "gpt_neo": {"config": "GPTNeoConfig", "initializer_range": 0.3, "num_layers": 2, "num_heads": 4}
    | {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    # The projection before the head, as in OPT-350M.
    "opt": {"config": "OPTConfig", "init_std": 0.3, "ffn_dim": 64, "word_embed_proj_dim": 16},
    "llama": {"config": "LlamaConfig"} | OF_A_LLAMA,
    "qwen2": {"config": "Qwen2Config", "tie_word_embeddings": True} | OF_A_LLAMA,
    "olmo": {"config": "OlmoConfig"} | OF_A_LLAMA,
    "gpt2": {"config": "GPT2Config", "initializer_range": 0.3},
    # The only one whose head has a bias.
    "phi": {"config": "PhiConfig"} | OF_A_LLAMA,
}
# These run whole: most of them change the logits after the head.
AFTER_THE_HEAD = {
    "gemma2": {"config": "Gemma2Config", "head_dim": 8, "final_logit_softcapping": 5.0} | OF_A_LLAMA,
    "cohere": {"config": "CohereConfig", "logit_scale": 0.25} | OF_A_LLAMA,
    # Its base model has no name of its own, so its head is not known apart.
    "llama4": {"config": "Llama4TextConfig", "intermediate_size_mlp": 64, "num_local_experts": 2, "head_dim": 8}
    | OF_A_LLAMA,
}

# How many cases a property is held against (tests/properties): the same ones in each run, and none is kept.
for name, cases in {"thorough": 80, "fast": 25}.items():
    settings.register_profile(
        name,
        max_examples=cases,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
settings.load_profile("fast")


@pytest.fixture(autouse=True, scope="session")
def shared_home(tmp_path_factory):
    """The home of what is made for several tests: of fixtures that live longer than a test, and of whole pages."""
    folder = tmp_path_factory.mktemp("shared_home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIALIB_HOME", str(folder))
        yield folder


@pytest.fixture
def home_of_all_pages(mialib_home, shared_home, monkeypatch):
    """The same texts under the same models, and their blind baselines, are computed once for all pages."""
    monkeypatch.setenv("MIALIB_HOME", str(shared_home))


@pytest.fixture(autouse=True)
def mialib_home(tmp_path, monkeypatch):
    """Each test keeps what it computes in a folder of its own, and a person's own settings change none."""
    for name in [name for name in os.environ if name.startswith("MIALIB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "mialib_home"
    monkeypatch.setenv("MIALIB_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def built_copy(tmp_path_factory):
    """A copy of what `make book` has computed, where it has, so that no test changes a finished build."""
    folder = tmp_path_factory.mktemp("built")
    for name in ("cache", "models"):
        if (ROOT / "build" / name).is_dir():
            shutil.copytree(ROOT / "build" / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def built_home(mialib_home, built_copy, monkeypatch):
    """The home of a slow test that reads the lab's texts and scores."""
    monkeypatch.setenv("MIALIB_HOME", str(built_copy))


@pytest.fixture
def at_hub(tmp_path, monkeypatch):
    """A function like `serve_hub`; until its block ends this process knows that hub alone, and a cache of its own."""

    @contextmanager
    def serve(*, cache="cache", **served):
        with serve_hub(**served) as hub, pointed_at(monkeypatch, hub.endpoint, tmp_path / cache):
            yield hub

    return serve


@contextmanager
def quick_baselines(*kinds):
    """The blind baselines but for these kinds; those of n-grams try one C. Tests of the real ones need another home."""

    def classifier(folds):
        return make_pipeline(TfidfTransformer(), LogisticRegression(C=10))

    whole = dict(BLIND)
    for name in kinds:
        del BLIND[name]
    for name in BLIND.keys() & {"tfidf", "formatting"}:
        BLIND[name] = replace(BLIND[name], classifier=classifier)
    try:
        yield
    finally:
        BLIND.clear()
        BLIND.update(whole)  # in their order, which messages and tables show


@pytest.fixture
def cheap_baselines():
    """Those blind baselines alone that look at one number of a text."""
    with quick_baselines("tfidf", "naive_bayes", "formatting"):
        yield


def make_tokenizer(special=("<s>", "</s>", "<pad>"), vocab_size=320, **special_tokens):
    """A byte-level BPE tokenizer, trained on the sentences above; by default with <s> and </s>."""
    special_tokens = special_tokens or {"bos_token": "<s>", "eos_token": "</s>"}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **special_tokens)


def make_glm_tokenizer():
    """One that itself prepends two tokens, and names no start token."""
    tokenizer = make_tokenizer(["<|endoftext|>", "[gMASK]", "<sop>"], eos_token="<|endoftext|>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[gMASK] <sop> $A", special_tokens=[("[gMASK]", 1), ("<sop>", 2)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


def save_tiny_model(folder, config, *, tokenizer=None, seed=0, **settings):
    """A model of two layers with random weights, written with its tokenizer as `save_pretrained` does."""
    tokenizer = tokenizer or make_tokenizer()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": CONTEXT}
    sizes |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    # These two name the sizes otherwise, or have no such setting.
    if config in ("GPTNeoConfig", "GPT2Config", "GPTNeoXConfig", "OPTConfig"):
        del sizes["num_key_value_heads"]
    if config == "GPTNeoConfig":
        del sizes["num_hidden_layers"], sizes["num_attention_heads"]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**sizes | settings))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # they start at zero, where a forgotten bias would go unseen
            torch.nn.init.normal_(parameter, std=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A function from a family's name (and settings that differ) to the folder of its tiny model, made once."""
    made = {}

    def folder_of(family, **settings):
        key = (family, repr(sorted(settings.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            made[key] = save_tiny_model(folder, **(FAMILIES | AFTER_THE_HEAD)[family] | settings)
        return made[key]

    return folder_of


@pytest.fixture(scope="session")
def model_folder(tiny_model):
    """The tiny model of tests that need just one."""
    return tiny_model("gpt_neox")


@pytest.fixture(scope="session")
def reference_folder(tiny_model):
    """Another tiny model with the same tokenizer, as a reference."""
    return tiny_model("gpt_neox", seed=1)


def save_tiny_masked_model(folder):
    """A tiny masked model with random weights, and a tokenizer that knows many of the sentences' words."""
    special = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "mask_token": "<mask>"}
    tokenizer = make_tokenizer([*special.values()], vocab_size=600, **special, model_max_length=CONTEXT)
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": CONTEXT + 2, "pad_token_id": 1}
    config = transformers.RobertaConfig(**sizes, initializer_range=0.3)
    transformers.RobertaForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory):
    return save_tiny_masked_model(tmp_path_factory.mktemp("masked"))


@pytest.fixture
def inputs(model_folder, tmp_path):
    """Eight texts of seven words under the tiny model."""
    rows = [{"text": f"The {noun} stands near the old Mill", "label": i % 2} for i, noun in enumerate(NOUNS)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_inputs(Target(model=model_folder, benchmark=str(path)))


@pytest.fixture
def benchmark_file(tmp_path):
    """Sixteen English texts of eight words, half of them members, none equal."""
    return write_texts(tmp_path / "texts.jsonl")


def write_texts(path):
    with path.open("w") as file:
        for i, noun in enumerate(NOUNS):
            for label in (0, 1):
                text = f"The {noun} number {i} stands {'near' if label else 'behind'} the old Mill"
                file.write(json.dumps({"text": text, "label": label}) + "\n")
    return str(path)


@pytest.fixture
def corpus_file(tmp_path):
    """A reference corpus of two lines."""
    path = tmp_path / "corpus.txt"
    path.write_text("The river runs behind the mill\nThe old engine stands near the market\n")
    return str(path)


def random_rows(seed, lengths):
    """Made token statistics with tied log-probs and entropies on both sides of SURP's thresholds."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in lengths:
        log_prob = -rng.exponential(3, n)
        log_prob[rng.random(n) < 0.2] = -2.5
        spread = rng.gamma(2, 1.5, n), rng.gamma(2, 2, n) + 0.01
        rows.append(TokenRow(rng.integers(0, 50, n), log_prob, *spread, np.maximum(log_prob, -rng.exponential(1, n))))
    return rows


def made_inputs(rows, labels, *, lowercase=None, domains=(), name="made"):
    """Inputs of made statistics: no model has been run, and what is not given is lacking."""
    rows = [row if isinstance(row, TokenRow) else made_row(*row) for row in rows]
    texts = tuple(f"Text number {i}" for i in range(len(rows)))
    benchmark = Benchmark(name, texts, np.array(labels), "r", domains=tuple(domains))
    return inputs_of(Target(model="made/model", benchmark=name), benchmark).given(
        stats=TokenStats.from_rows(rows, provenance={}),
        lowercase=None if lowercase is None else TokenStats.from_rows(lowercase, provenance={}),
        **dict.fromkeys(("reference", "frequency", "neighbors", "tempered")),
    )


def made_row(log_prob, entropy):
    """One text of these log-probs and entropies."""
    n = len(log_prob)
    log_prob = np.array(log_prob, float)
    return TokenRow(np.arange(n), log_prob, np.array(entropy, float), np.ones(n), np.maximum(log_prob, -0.5))


MARKUP = "<img src=x onerror=alert(1)>"  # where a name or a text is taken for markup, a browser would run this


def page_parameters(models, folder):
    """Parameters for any page but the lab's own, as papermill's -p gives them, and what differs for some pages.

    Names of files and texts hold markup and what ends a quotation in Markdown.
    """

    def write(name, places):
        rows = [
            {"text": f"The {noun} number {i} stands {place} the old Mill and runs {i} times", "label": int(is_member)}
            for i in range(4)
            for noun in NOUNS
            for is_member, place in zip((True, False), places, strict=True)
        ]
        for row, ends in zip(
            rows, ("</td></pre>", "`````", "\n\n~~~~~\n", "-->", "{raw}", "[a](javascript:alert(1))"), strict=False
        ):
            row["text"] = f"{MARKUP} {ends} {MARKUP} {row['text']}"
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(folder / name)

    texts, shifted = write(f"texts {MARKUP}.jsonl", ("near", "behind")), write("shifted.jsonl", ("near", "under"))
    (folder / "corpus.txt").write_text("The river runs behind the mill\nThe old engine stands near the market\n" * 50)
    (folder / "unseen.txt").write_text("".join(f"The old Mill {i} stands {2 * i} miles off\n" for i in range(8)))
    return dict.fromkeys(("references", "published", "shifted", "masked", "synthetic"), "-") | {
        "models": models[0],
        "benchmarks": texts,
        "corpora": str(folder / "corpus.txt"),
        "lengths": "4, 8",
        "segment_words": "4",
        "repeats": "1, 4",
        "real": "apart",
        "n_training": "12",
        "n_words": "8",
        "fields": "",
        "out": str(folder / "results.json"),
    }, {
        "blind_benchmarks": {"coin_split": texts},
        "coverage": {"n_live": "20"},
        "dc_pdd_figure_1": {"words": "6"},
        "dc_pdd_figure_2": {"a_values": "0.001, 0.1"},
        "dc_pdd_figure_3b": {"lengths": "4, 8, 512"},
        "dc_pdd_table_4": {"corpora": ", ".join([str(folder / "corpus.txt"), f"{folder / 'corpus.txt'}:40"])}
        | {"a_values": "0.001, 0.1"},
        "dc_pdd_table_5": {"a_values": "0.001, 0.01, 0.1"},
        "probe_table_1": {"lengths": "-"},
        "probe_tables_2_3": {"lengths": "-"},
        "probe_figure_3": {"real": str(folder / "unseen.txt"), "sizes": "4, 6"},
        "distribution_shift": {"benchmarks": f"{texts}, {shifted}", "names": "own, shifted"},
        "since_the_papers": {"benchmarks": f"{texts}, {shifted}", "names": "own, shifted"}
        | {"non_member_prefixes": str(folder / "unseen.txt"), "member_prefixes": "-", "n_shots": "1"},
        "surp_shift": {"benchmarks": f"{texts}, {shifted}"},
        "decisions": {"benchmarks": f"{texts}, {shifted}", "fprs": "0.01, 0.1", "set_sizes": "1, 5, 50"}
        | {"ladder": "-"},
        "which_detector": {"shifted": shifted},
        "surp_deduplicated": {"models": ", ".join(models)},
        "surp_figure_2": {"entropy_threshold": "9", "k": "80"},  # a random model is nowhere sure of the next token
    }


@pytest.fixture
def published_copy(monkeypatch):
    """The folder of the real benchmarks, which the repository does not hold."""
    folder = COPIES or Path(__file__).parents[2] / "shared" / "benchmarks"
    if not (Path(folder) / "wikimia" / "32.jsonl").is_file():
        pytest.skip(f"no benchmark texts at {folder}; set MIALIB_BENCHMARKS to a folder that holds wikimia/32.jsonl")
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(folder))
    return Path(folder)
