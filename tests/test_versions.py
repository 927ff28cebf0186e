"""Whatever has a version gives the numbers that were recorded of it: changed numbers raise the version.

`python tests/test_versions.py` records in `tests/versions.json`, and refuses numbers that changed under an old version.
On another kind of processor, or with other libraries, numbers may differ by rounding, and drawn words by more.
"""

import json
import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_tokenizer
from gguf_writer import write_gguf
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from mialib import blind, calibration, metrics, model_selection
from mialib.attacks import activations, neighbors, probe
from mialib.benchmarks import Benchmark
from mialib.bootstrap import document_auc_interval
from mialib.catalog import logprobs
from mialib.catalog.loading import load_scorer
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import find
from mialib.detectors import DETECTORS, detect
from mialib.frequency import count_tokens
from mialib.passes.cache import score_or_load
from mialib.store import DATA, version
from mialib.text import cut_to_words
from mialib.token_stats import TokenRow, TokenStats
from mialib.versions import VERSIONS
from replication.builders import synthetic, unseen
from replication.claims import scores, spec
from replication.claims.over_seeds import compare_auc_over_seeds
from replication.lab import dealing, docstrings, training
from replication.lab.corpora import read_corpus
from replication.lab.patents import generate_patents
from replication.lab.recipes import Corpus, Masked, Training, Unlearning
from replication.remote import api

RECORDED = Path(__file__).with_name("versions.json")
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn")
MODEL, MASKED = "lab/en-25k", "lab/en-masked"
TEXTS = [
    "Return the mean of the values along an axis, ignoring those that are missing.",
    "Draw a line between two points of the figure, and label its end with the given text.",
]
CHINESE = "本实用新型公开了一种水泵，包括电机、壳体和两根轴，所述电机设于壳体内。"


def numbers_of(array):
    return np.asarray(array, np.float64).ravel().tolist()


# --- what each version is of ---


def scoring():
    """All that a pass can be asked for, and a text that is longer than the context."""
    scorer, long = load_scorer(MODEL), [" ".join(TEXTS * 40)]
    passes = [scorer.score(TEXTS, progress=False, **given) for given in ({}, {"after": TEXTS[1]}, {"temperature": 2.0})]
    passes.append(load_scorer(MODEL, start_token=None).score(TEXTS, progress=False))
    cut = scorer.score(long, progress=False)
    every = [numbers_of(row) for of_pass in passes for row in of_pass]
    return [*every, numbers_of(cut.n_cut), numbers_of([column[-3:] for column in cut[0]])]


def api_replies():
    """What is read of a reply, with a surplus token and with a server's own start token."""
    model = api.ApiModel("api:a", "http://a")
    given = {"tokens": ["<s>", "a", " b", "!"], "token_logprobs": [None, -1.5, -0.25, -3.0]}
    reply = api.Reply.model_validate({"model": "a", "choices": [{"index": 0, "logprobs": given}]})
    stats = logprobs.known_log_probs(api.Api("api:a"), ["a b"], [logprobs.Known(None, [-1.5, -0.25])], {})
    return [numbers_of(api.prompt_log_probs(reply, model, "a b")), numbers_of(stats.log_prob)]


def of_file():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text(json.dumps({"text": "a b", "token_ids": [1, 2, 3], "log_probs": [None, -1.5, -0.25]}) + "\n")
        return numbers_of(score_or_load(f"logprobs:{path}", ["a b"]).log_prob)


def of_gguf():
    """A scaled RoPE, weights of four bits and a piece of text, of a tiny file."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=len(tokenizer), tie_word_embeddings=True))
    fields = {"embedding_length": 32, "feed_forward_length": 64, "block_count": 1, "attention.head_count": 2}
    fields |= {"context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5}
    with tempfile.TemporaryDirectory() as folder:
        path, factors = Path(folder) / "a.gguf", {"rope_freqs.weight": [1, 1, 2, 2, 4, 4, 8, 8]}
        write_gguf(path, model, tokenizer, "llama", fields, kind="Q4_1", tensors=factors)
        loaded = load_scorer(str(path)).loaded
        weights = [numbers_of(weight.flatten()[:4]) for _, weight in sorted(loaded.model.state_dict().items())]
        return [*weights, loaded.model.config.rope_parameters["short_factor"], loaded.tokenizer(TEXTS[0])["input_ids"]]


def counting():
    tokenizer = load_tokenizer(MODEL)
    frequency = count_tokens(TEXTS, tokenizer, len(tokenizer), name="texts", tokenizer_hash="")
    return numbers_of(frequency.log_probability[:40]) + numbers_of(np.flatnonzero(frequency.counts))


def replaced_words():
    made = neighbors.make_neighbors(TEXTS, MASKED, n_neighbors=4, progress=False)
    scorer = load_scorer(MODEL)
    own = scorer.score(TEXTS, progress=False)
    return [*made[0], *made[1], *numbers_of(neighbors.neighbor_log_probs(scorer, own, made))]


def of_activations():
    plain = activations.activations(MODEL, TEXTS)
    proxy = activations.activations(activations.Proxy(MODEL, tuple(TEXTS[:1]), 1e-2), TEXTS)
    return [numbers_of(of[..., :3]) for of in (plain, proxy)]


def of_probe():
    rng = np.random.default_rng(0)
    labels = np.arange(20) % 2
    layers = rng.normal(size=(2, 20, 4)) + labels[:, None]
    fitted = probe.fit_probes({1e-3: layers}, labels)
    return numbers_of(probe.probe_candidates(fitted, layers).scores)


def sampling():
    return synthetic.sample_synthetic(MODEL, TEXTS, 2, n_words=24)


def of_blind():
    texts = [f"In {1990 + i} the mill number {i} ground {'rye' if i % 3 else 'wheat'} for a week" for i in range(30)]
    labels = np.arange(30) // 15
    chinese = [f"{i}号机器包括一个{'电机' if i % 3 else '水泵'}和{'两根' if i < 15 else '三根'}轴" for i in range(30)]
    found = {kind: numbers_of(blind.blind_scores(texts, labels, kind)) for kind in blind.BLIND}
    groups = np.repeat(np.arange(28), [2, *[1] * 13, 2, *[1] * 13])
    found["in groups"] = numbers_of(blind.blind_scores(texts, labels, "tfidf", groups=groups))
    found["Chinese"] = numbers_of(blind.blind_scores(chinese, labels, "tfidf", language="zh"))
    return found | {"words": cut_to_words(CHINESE, 7, "zh")}


def two_detectors():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    return labels, rng.normal(size=60) + labels, rng.normal(size=60) + labels / 2


def intervals():
    labels, first, second = two_detectors()
    found = [metrics.auc_interval(labels, first), metrics.tpr_at_fpr_interval(labels, first, fpr=0.1)]
    compared = [
        metrics.compare_auc(labels, first, second),
        metrics.compare_tpr_at_fpr(labels, first, second, fpr=0.1),
        compare_auc_over_seeds(labels, [first, second], [second, second]),
    ]
    found += [comparison.difference for comparison in compared]
    found.append(document_auc_interval(labels, first, np.arange(60) // 3))
    tests = (calibration.p_values(first[:5], second), calibration.set_p_value(first, second))
    tests += (calibration.non_use_p_value(second, first),)
    return [numbers_of([of.estimate, of.low, of.high]) for of in found] + [numbers_of(of) for of in tests]


def choosing():
    labels, first, second = two_detectors()
    candidates = model_selection.Candidates(({"k": 1}, {"k": 2}), np.stack([second, first]))
    chosen_on = [val_idx for val_idx, _ in model_selection.folds(labels)]
    splits = [of for seed in (0, 1) for of in model_selection.stratified_split(labels, 0.2, seed=seed)]
    best = [candidates.best(labels, of) for of in chosen_on]
    return [numbers_of(of) for of in (*chosen_on, *splits, best)]


def of_unseen():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unseen.txt"
        path.write_text("".join(f"The stone number {i} stands {7 * i} miles behind the mill\n" for i in range(12)))
        like = Benchmark("a", tuple(TEXTS * 6), np.arange(12, dtype=np.int8) % 2, "none", "en", n_words=6)
        kept, apart = unseen.set_apart(like, 2, seed=1)
        return [*unseen.load_unseen(str(path), like, 4, seed=2), *apart, numbers_of(kept)]


def of_claims():
    """A claim with a detector on all snippets of cut documents, one that is chosen, and the probe."""
    with tempfile.TemporaryDirectory() as folder:
        texts, unseen_texts = Path(folder) / "texts.jsonl", Path(folder) / "unseen.txt"
        rows = [{"text": f"{i} {TEXTS[i % 2]} {i * 7} {TEXTS[1 - i % 2]}", "label": i % 2} for i in range(12)]
        texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        unseen_texts.write_text("".join(f"The stone number {i} stands {7 * i} miles behind it\n" for i in range(8)))
        claim = {
            "id": "a",
            "paper": "min_k",
            "claim": "a",
            "published": "-",
            "fixed": "before",
            "where": ["here"],
            "a": {"detector": "ppl", "n_words": {"here": 6}, "part": "all"},
            "against": [
                {"detector": "min_k", "options": "grid"},
                {"detector": "probe", "training": str(unseen_texts), "n_training": 4},
            ],
            "expect": "greater",
        }
        stated = {"settings": {"here": {"model": MODEL, "benchmark": str(texts)}}, "claims": [claim]}
        claims = spec.Claims.model_validate(stated)
        return numbers_of(np.nan_to_num(scores.score_claim(claims, claims.claims[0], "here", 0)))


def gathering():
    source = 'def f(a, b):\n    """Add  a\n    to b."""\n    return a + b\n\n\nclass C:\n    """A class."""\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.py"
        path.write_text(source)
        of_kind = {kind: [*read("package", "a.py", docstrings.parse(path))] for kind, read in docstrings.READ.items()}
    found = {kind: [[one.text, one.name, one.path] for one in of] for kind, of in of_kind.items()}
    found["patents"] = generate_patents(2, seed=3)
    return found


def dealing_out():
    with tempfile.TemporaryDirectory() as folder:
        path, to = Path(folder) / "texts.txt", Path(folder) / "corpus"
        path.write_text("".join(f"The mill number {i} stands {7 * i} miles behind the old river\n" for i in range(60)))
        sizes = {"members": 4, "non_members": 4, "background": 8, "reference": 20, "vocab_size": 300}
        recipe = Corpus(source="file", language="en", path=str(path), words=8, seed=1, **sizes)
        dealing.make_corpus("lab/a", recipe, (), to)
        rows = read_corpus(to)
        tokenizer = dealing.corpus_tokenizer(to)
    return [f"{row.role}: {row.text}" for row in rows] + [numbers_of(tokenizer(TEXTS[0])["input_ids"])]


def trained():
    recipe = Training(corpus="lab/a", layers=1, hidden_size=16, heads=2, batch_texts=2, context_tokens=64)
    with tempfile.TemporaryDirectory() as folder:
        card = training.train("lab/a", recipe, load_tokenizer(MODEL), TEXTS, [3, 2], Path(folder))
        weights = load_scorer(folder).loaded.model.state_dict()
        base, forgotten = Path(folder), Path(folder) / "unlearned"
        forgetting = Unlearning(base="lab/a", texts=1, learning_rate=0.01, max_epochs=2)
        training.unlearn("lab/b", forgetting, base, TEXTS[:1], TEXTS[1:], ["A mill."], forgotten)
        weights |= {f"unlearned {k}": v for k, v in load_scorer(str(forgotten)).loaded.model.state_dict().items()}
        of_masked = Masked(
            corpus="lab/a", layers=1, hidden_size=16, heads=2, epochs=1, learning_rate=0.01, context_tokens=16
        )
        training.train_masked("lab/m", of_masked, load_tokenizer(MASKED), TEXTS, Path(folder) / "masked")
        weights |= {f"masked {k}": v for k, v in load_file(Path(folder) / "masked" / "model.safetensors").items()}
    return [numbers_of(weight.flatten()[:4]) for _, weight in sorted(weights.items())] + [card["parameters"]]


def of_detector(name):
    """A detector's scores of three texts whose statistics are drawn, not a model's."""
    rng, lengths = np.random.default_rng(1), (5, 17, 40)

    def drawn():
        rows = []
        for n in lengths:
            entropy, variance, top = rng.gamma(4, size=n), rng.gamma(2, size=n), -rng.gamma(1, size=n)
            rows.append(TokenRow(rng.integers(50, size=n), top - rng.gamma(2, size=n), entropy, variance, top))
        return TokenStats.from_rows(rows, provenance={})

    stats = drawn()
    same_tokens = {"token_ids": stats.token_ids}
    given = {need: drawn() for need in DETECTORS[name].needs}
    given = {need: TokenStats(**{**vars(of), **same_tokens}) for need, of in given.items()}
    tokenizer = load_tokenizer(MODEL)
    given |= {
        "texts": ["A text.", TEXTS[0], TEXTS[1] * 3],
        "frequency": count_tokens(TEXTS, tokenizer, len(tokenizer), name="texts", tokenizer_hash=""),
        "neighbors": rng.normal(-4, 1, size=(3, 6)),
    }
    known = DETECTORS[name]
    needed = {need: given[need] for need in known.needs}
    points = [
        {},
        *({option: another(default, known.grid.get(option))} for option, default in known.hyperparameters.items()),
    ]
    return [numbers_of(detect(name, stats, **needed, **point)) for point in points]


def another(default, grid):
    """Another value of a hyperparameter than its default."""
    return not default if isinstance(default, bool) else grid[0] if grid else 2 * default


COMPUTED = {
    "scoring": scoring,
    "api": api_replies,
    "logprobs": of_file,
    "gguf": of_gguf,
    "counting": counting,
    "neighbors": replaced_words,
    "activations": of_activations,
    "probe": of_probe,
    "sampling": sampling,
    "blind": of_blind,
    "intervals": intervals,
    "choosing": choosing,
    "unseen": of_unseen,
    "claims": of_claims,
    "gathering": gathering,
    "dealing": dealing_out,
    "training": trained,
}


def computed(name):
    """The version that a thing has today, and what it computes."""
    if name in DETECTORS:
        return {"version": DETECTORS[name].version, "gives": of_detector(name)}
    return {"version": VERSIONS[name], "gives": COMPUTED[name]()}


# --- the same as recorded? ---


def machine():
    """The kind of processor, what torch uses of it, and the libraries: where these are alike, so is every bit."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.is_file() else []
    processor = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return [processor, torch.backends.cpu.get_cpu_capability(), *(f"{name} {version(name)}" for name in LIBRARIES)]


def is_close(now, then):
    """The same but for rounding; of words, most of them."""
    if isinstance(now, dict):
        return now.keys() == then.keys() and all(is_close(now[key], then[key]) for key in now)
    if isinstance(now, list) and now and all(isinstance(one, str) for one in now):
        return len(now) == len(then) and np.mean([a == b for a, b in zip(now, then, strict=True)]) >= 0.5
    if isinstance(now, list):
        return len(now) == len(then) and all(is_close(a, b) for a, b in zip(now, then, strict=True))
    return now == then if isinstance(now, str) else bool(np.isclose(now, then, rtol=1e-3, atol=1e-4))


def is_same(now, then, recorded_on):
    """Bit for bit on the kind of machine that recorded it, elsewhere but for rounding."""
    if then.get("machine", recorded_on) == machine():
        return now["gives"] == then["gives"]
    return is_close(now["gives"], then["gives"])


@pytest.fixture(autouse=True)
def stored_lab(monkeypatch):
    monkeypatch.delenv("MIALIB_PROFILE", raising=False)


@pytest.mark.parametrize("name", [*COMPUTED, *DETECTORS])
def test_changed_numbers_raise_the_version(name):
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    now, then = computed(name), recorded["of"].get(name)
    assert then and then["version"] == now["version"], (
        f"record version {now['version']} of {name}: run `python tests/test_versions.py`"
    )
    assert is_same(now, then, recorded["machine"]), (
        f"{name} gives other numbers than its version {now['version']} did; raise it, then record"
    )


def test_all_that_has_a_version_is_held():
    assert COMPUTED.keys() == VERSIONS.keys()


def test_the_agreement_with_authors_code_is_of_todays_detectors():
    record = json.loads((DATA / "recorded" / "agreement.json").read_text(encoding="utf-8"))
    then = {name: found.get("version") for name, found in record["detectors"].items()}
    assert then == {name: DETECTORS[name].version for name in then}, "run tools/agreement.py"
    assert record["revision"] == find(record["model"]).revision, "run tools/agreement.py"


def main():
    """Record what is new or has another version; all else stays as it was recorded, on whatever machine."""
    recorded = (
        json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {"machine": machine(), "of": {}}
    )
    for name in (*COMPUTED, *DETECTORS):
        now, then = computed(name), recorded["of"].get(name, {})
        if then.get("version") != now["version"]:
            elsewhere = {} if recorded["machine"] == machine() else {"machine": machine()}
            recorded["of"][name] = now | elsewhere
            print(f"{name}, version {now['version']}: recorded")
        elif not is_same(now, then, recorded["machine"]):
            sys.exit(f"{name} gives other numbers than its version {now['version']} did; raise the version first")
    of = {name: recorded["of"][name] for name in (*COMPUTED, *DETECTORS)}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in of.items())
    text = f'{{"machine": {json.dumps(recorded["machine"])},\n"of": {{\n{lines}\n}}}}\n'
    RECORDED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ["MIALIB_HOME"] = tempfile.mkdtemp()  # nothing that is kept is taken for computed
    torch.set_num_threads(1)
    main()
