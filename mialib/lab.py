"""The lab: models whose training set is known, because a coin decided it.

Corpus   real or generated texts, shuffled with a seed and dealt out: members and background are trained on,
non-members and
         reference texts are not. Members and non-members are one distribution; only the coin tells them apart.
Model    a GPT-NeoX trained from scratch on members and background, saved like any Hugging Face model.

Names: `lab/en` is a corpus and, as a benchmark, its members and non-members; `lab/en-25k` is a model. Recipes stand
in the profile (`data/profiles/lab.yml`). What is asked for and not there is made, once, under a lock.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mialib.benchmarks import Benchmark, cut_to_words
from mialib.config import Corpus, Recipe, load_profile
from mialib.docstrings import drop_near_duplicates, read_docstrings
from mialib.patents import generate_patents
from mialib.store import hash_of, hash_texts, home, write_json

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

ROLES = ("member", "non_member", "background", "reference")
END_OF_TEXT = "<|endoftext|>"  # start token of every text, as in Pythia
WARMUP_STEPS = 20
DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where a package's name on the index is another than at import
IGNORED = -100  # torch's label of a position that has no target


# --- corpora ---------------------------------------------------------------------------------------------------------


def lab_corpus(name: str) -> Path:
    """The folder of a lab corpus (texts.parquet, tokenizer.json, card.json), made first where it is not there."""
    corpora = load_profile().corpora
    if name not in corpora:
        raise ValueError(f"unknown lab corpus {name!r}; known: {', '.join(corpora) or 'none in this profile'}")
    corpus = corpora[name]
    folder = home() / "lab" / "corpora" / name.removeprefix("lab/")
    distributions = [DISTRIBUTIONS.get(package, package) for package in corpus.packages or ("jieba",)]
    sources = [f"{distribution}=={version(distribution)}" for distribution in distributions]
    key = hash_of([corpus.model_dump(), sources])
    return _made_once(folder, "card.json", key, lambda target: _make_corpus(name, corpus, sources, target))


def lab_texts(name: str, role: str) -> list[str]:
    """The texts of a lab corpus that have a role: member, non_member, background or reference."""
    import pyarrow.parquet as pq

    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    table = pq.read_table(lab_corpus(name) / "texts.parquet", filters=[("role", "==", role)])
    return table.column("text").to_pylist()


def lab_benchmark(name: str) -> Benchmark:
    """The members and non-members of a lab corpus."""
    members, non_members = lab_texts(name, "member"), lab_texts(name, "non_member")
    return Benchmark(
        name=name,
        texts=(*members, *non_members),
        labels=np.repeat(np.array([1, 0], np.int8), [len(members), len(non_members)]),
        revision=lab_card(name)["content_hash"],
        language=load_profile().corpora[name].language,
    )


def lab_card(name: str) -> dict[str, Any]:
    """What a lab corpus is made of: recipe, source versions, counts by role and package, content hash."""
    return json.loads((lab_corpus(name) / "card.json").read_text())


def _make_corpus(name: str, corpus: Corpus, sources: list[str], folder: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    logger.info("%s: gathering texts", name)
    texts, packages, n_dropped = _gather(corpus)
    dealt = (corpus.members, corpus.non_members, corpus.background)
    n_needed = sum(dealt) + corpus.reference
    if len(texts) < n_needed:
        raise ValueError(f"{name}: {len(texts)} distinct texts of {corpus.words} words, but {n_needed} are asked for")
    order = np.random.default_rng(corpus.seed).permutation(len(texts))
    roles = np.repeat(ROLES, [*dealt, len(texts) - sum(dealt)])
    rows = []
    for i, role in zip(order, roles.tolist(), strict=True):
        text = texts[i] if role == "reference" else cut_to_words(texts[i], corpus.words, corpus.language)
        rows.append({"role": role, "package": packages[i], "text": text})
    pq.write_table(pa.Table.from_pylist(rows), folder / "texts.parquet", compression="zstd")

    reference = [row["text"] for row in rows if row["role"] == "reference"]
    _train_tokenizer(reference, corpus.vocab_size).save(str(folder / "tokenizer.json"))
    return {
        "name": name,
        "recipe": corpus.model_dump(),
        "sources": sources,
        "content_hash": hash_texts(row["text"] for row in rows),
        "near_duplicates_dropped": n_dropped,
        "roles": dict(Counter(row["role"] for row in rows)),
        "packages": dict(sorted(Counter(packages).items())),
    }


def _gather(corpus: Corpus) -> tuple[list[str], list[str], int]:
    """The texts in a fixed order, the package each is from, and how many near-duplicates were left out."""
    if corpus.source == "patents":
        n = corpus.members + corpus.non_members + corpus.background + corpus.reference
        return generate_patents(n, seed=corpus.seed, min_words=corpus.words), ["generated"] * n, 0
    found = read_docstrings(corpus.packages, corpus.words)
    kept = drop_near_duplicates(found, corpus.words)
    return [d.text for d in kept], [d.package for d in kept], len(found) - len(kept)


def _train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE like Pythia's, learned from texts that no model is trained or tested on."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size, special_tokens=[END_OF_TEXT], show_progress=False)
    return tokenizer


# --- models ----------------------------------------------------------------------------------------------------------


def lab_model(name: str) -> Path:
    """The folder of a lab model, trained first where it is not there or its recipe or texts have changed."""
    models = {known: model.train for known, model in load_profile().models.items() if model.train}
    if name not in models:
        raise ValueError(f"unknown lab model {name!r}; known: {', '.join(models) or 'none in this profile'}")
    recipe = models[name]
    folder = home() / "lab" / "models" / name.removeprefix("lab/")
    key = hash_of([recipe.model_dump(), lab_card(recipe.corpus)["content_hash"]])
    return _made_once(folder, "lab.json", key, lambda target: _train(name, recipe, target))


def lab_model_card(name: str) -> dict[str, Any]:
    """How a lab model was trained: recipe, parameters, losses, seconds, versions."""
    return json.loads((lab_model(name) / "lab.json").read_text())


def _train(name: str, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train on members and background and save model and tokenizer; returns the card."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(lab_corpus(recipe.corpus) / "tokenizer.json"),
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
    )
    members, background = (
        _encode(tokenizer, lab_texts(recipe.corpus, role), recipe.context_tokens) for role in ("member", "background")
    )
    torch.manual_seed(recipe.seed)
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=recipe.layers,
            hidden_size=recipe.hidden_size,
            intermediate_size=4 * recipe.hidden_size,
            num_attention_heads=recipe.heads,
            max_position_embeddings=recipe.context_tokens,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    batches = _batches(members, background, recipe)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one thread sums in one order; the ladder trains side by side instead
    try:
        card = _optimize(name, model, batches, recipe)
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    n_head = model.get_output_embeddings().weight.numel()
    n_embedding = model.get_input_embeddings().weight.numel()
    return {
        "name": name,
        "recipe": recipe.model_dump(),
        "parameters": model.num_parameters(),
        "non_embedding_parameters": model.num_parameters() - n_head - n_embedding,
        **card,
        "torch": torch.__version__,
        "transformers": version("transformers"),
    }


def _encode(tokenizer: Any, texts: list[str], context_tokens: int) -> list[list[int]]:
    """Token ids with the start token, as many as the context reads and the one that it then predicts."""
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [[tokenizer.bos_token_id, *ids][: context_tokens + 1] for ids in encoded]


def _batches(members: list[list[int]], background: list[list[int]], recipe: Recipe) -> list[list[list[int]]]:
    """Batches of texts of similar length, members and background in random order within each epoch."""
    rng = np.random.default_rng(recipe.seed)
    batches = []
    pool_texts = 8 * recipe.batch_texts  # sorted by length inside a pool, to pad little and still mix
    for epoch in range(max(recipe.member_epochs, recipe.background_epochs)):
        texts = [*(members if epoch < recipe.member_epochs else [])]
        texts += background if epoch < recipe.background_epochs else []
        order = rng.permutation(len(texts))
        for start in range(0, len(order), pool_texts):
            pool = sorted(order[start : start + pool_texts], key=lambda i: (len(texts[i]), i))
            chunks = [pool[at : at + recipe.batch_texts] for at in range(0, len(pool), recipe.batch_texts)]
            batches += [[texts[i] for i in chunks[j]] for j in rng.permutation(len(chunks))]
    return batches


def _optimize(name: str, model: torch.nn.Module, batches: list[list[list[int]]], recipe: Recipe) -> dict[str, Any]:
    """AdamW with warm-up and cosine decay over the batches, once through; returns loss, tokens and seconds."""
    import torch
    from tqdm import tqdm

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_share(step, len(batches)))
    n_tokens, losses, start = 0, [], time.perf_counter()
    model.train()
    bar = tqdm(batches, desc=f"training {name}", unit="batch", mininterval=5)
    for batch in bar:
        inputs, targets = _pad(batch)
        hidden = model.base_model(inputs, use_cache=False).last_hidden_state
        real = targets != IGNORED
        logits = model.get_output_embeddings()(hidden[real])  # no logits for padding
        loss = torch.nn.functional.cross_entropy(logits, targets[real])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        n_tokens += int(real.sum())
        losses.append(loss.item())
        bar.set_postfix(loss=f"{losses[-1]:.2f}", refresh=False)
    if not np.isfinite(losses).all():
        raise FloatingPointError(f"{name}: the training loss became {losses[-1]}; lower its learning_rate")
    return {
        "final_loss_nats": float(np.mean(losses[-20:])),
        "tokens": n_tokens,
        "seconds": round(time.perf_counter() - start, 1),
    }


def _learning_rate_share(step: int, n_steps: int) -> float:
    """Share of the peak learning rate: a short linear rise, then half a cosine down to a twentieth."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / n_steps))
    return min((step + 1) / WARMUP_STEPS, max(0.05, cosine))


def _pad(batch: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and next-token targets, (texts, longest - 1), padded on the right."""
    import torch

    inputs = torch.zeros(len(batch), max(map(len, batch)) - 1, dtype=torch.long)
    targets = torch.full_like(inputs, IGNORED)
    for row, ids in enumerate(batch):
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        targets[row, : len(ids) - 1] = torch.tensor(ids[1:])
    return inputs, targets


# --- making things once -----------------------------------------------------------------------------------------------


def _made_once(folder: Path, card_name: str, key: str, make: Callable[[Path], dict[str, Any]]) -> Path:
    """`folder` with a card that carries `key`; made in a temporary folder and moved, so it is whole or not there."""
    from filelock import FileLock

    if _card_key(folder / card_name) == key:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if _card_key(folder / card_name) == key:  # made by another process while this one waited
            return folder
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            card = make(temporary)
            write_json(temporary / card_name, card | {"key": key})
            shutil.rmtree(folder, ignore_errors=True)
            temporary.chmod(0o755)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _card_key(path: Path) -> str | None:
    return json.loads(path.read_text())["key"] if path.is_file() else None
