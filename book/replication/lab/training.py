"""Training the lab's models: from scratch on members and background, unlearning, and masked on background alone.

Everything is seeded and runs on one thread, so a recipe gives the same weights whenever it runs on one machine's CPU.
`train` also takes a GPU, whose sums come in no fixed order: there a recipe gives almost the same weights.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForMaskedLM,
)

from mialib.attacks.head_loss import HeadLoss, one_thread
from mialib.batches import SECONDS_A_PART, encode, right_padded, token_batches
from mialib.cache import Checkpoints
from mialib.models import LoadedModel
from replication.lab.recipes import AnyRecipe, Masked, Seen, Training, TrainingOn, Unlearning

WARMUP_STEPS = 20
TOKENS_AT_ONCE = 1024  # with their logits, where no gradient is wanted
KEEPING_SHARE = 0.01  # of a training's time, to keep how far it is
TokenIds = list[int]


def train(
    name: str,
    recipe: Training | TrainingOn,
    start: PreTrainedTokenizerBase | LoadedModel,
    texts: list[str],
    times: list[int],
    folder: Path,
    device: str = "cpu",
    parts: Checkpoints | None = None,
) -> dict[str, Any]:
    """Train on texts, each seen so many times, save the model with its tokenizer, and return its card.

    `start` is the tokenizer of a new GPT-NeoX, or a model that is trained on: it is changed, and its start token stands
    before each text. Where a run is broken off, the next goes on from what it kept in `parts`, to the same weights.
    """
    torch.manual_seed(recipe.seed)
    loss = _loss
    if isinstance(start, LoadedModel):
        model, tokenizer = start.model.requires_grad_(True), start.tokenizer
        tokenizer.bos_token = start.start_token
        loss = _bfloat16_loss if isinstance(recipe, TrainingOn) and recipe.is_bfloat16 else _loss
    else:
        assert isinstance(recipe, Training)
        model, tokenizer = _new_model(recipe, start), start
    model.to(device)  # type: ignore[arg-type]  # transformers' decorator hides torch's types
    batches = _batches(_encode(tokenizer, texts, recipe.context_tokens), times, recipe)
    with one_thread(), tf32_products(device):
        outcome = _optimize(name, model, batches, recipe.learning_rate, loss, parts)
    _save(model, tokenizer, folder)
    return _card(name, model, recipe) | outcome


def _new_model(recipe: Training, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    config = GPTNeoXConfig(
        **_shape(recipe, tokenizer),
        max_position_embeddings=recipe.context_tokens,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return GPTNeoXForCausalLM(config)


def _shape(recipe: Training | Masked, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The sizes in a model's config."""
    return {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": recipe.layers,
        "hidden_size": recipe.hidden_size,
        "intermediate_size": 4 * recipe.hidden_size,
        "num_attention_heads": recipe.heads,
    }


def train_masked(
    name: str,
    recipe: Masked,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    folder: Path,
    parts: Checkpoints | None = None,
) -> dict[str, Any]:
    """Train a RoBERTa on texts, save it with its tokenizer, and return its card; `parts` as for `train`.

    Each token is masked in turn and seen with the few around it, as neighbors are made, not 15% of a whole text at a
    time (Devlin et al. 2019): on a corpus of the lab's size a model of the lab's learns nothing from that but how
    frequent tokens are, because it never finds out which positions to attend to. The padding token's id is 0, since
    RoBERTa counts positions from it on.
    """
    rows = [row for ids in encode(tokenizer, texts) for row in _masked_windows(tokenizer, ids, recipe.context_tokens)]
    torch.manual_seed(recipe.seed)
    config = RobertaConfig(
        **_shape(recipe, tokenizer),
        max_position_embeddings=recipe.context_tokens + tokenizer.pad_token_id + 1,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=None,
    )
    model = RobertaForMaskedLM(config)
    batches = _batches(rows, [recipe.epochs] * len(rows), recipe)
    with one_thread():
        loss = partial(_masked_loss, mask_token_id=tokenizer.mask_token_id)
        outcome = _optimize(name, model, batches, recipe.learning_rate, loss, parts)
    _save(model, tokenizer, folder)
    return _card(name, model, recipe) | outcome


def unlearn(
    name: str,
    recipe: Unlearning,
    base: Path,
    forgotten: list[str],
    retained: list[str],
    non_members: list[str],
    folder: Path,
) -> dict[str, Any]:
    """Make a trained model forget some texts: ascend on their loss, descend on that of others that it was trained on.

    What the two kinds of text have in common cancels out, so the others are spared ("gradient difference", Liu et al.
    2022). Stops at the first epoch after which the mean loss of the texts to be forgotten is at least that of the
    non-members *under the same weights*: a model that only becomes worse at everything never gets there. RuntimeError
    where `max_epochs` do not suffice.
    """
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(base)
    forgotten_ids, retained_ids, unseen_ids = (
        _encode(tokenizer, texts, model.config.max_position_embeddings) for texts in (forgotten, retained, non_members)
    )
    rng = np.random.default_rng(recipe.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    with one_thread():
        losses = [(mean_loss(model, forgotten_ids), mean_loss(model, unseen_ids))]
        while losses[-1][0] < losses[-1][1]:
            if len(losses) > recipe.max_epochs:
                raise RuntimeError(
                    f"{name}: after {recipe.max_epochs} epochs of ascent the loss is {losses[-1][0]:.3f} nats, that of "
                    f"non-members {losses[-1][1]:.3f}; raise its learning_rate or max_epochs"
                )
            order = rng.permutation(len(forgotten_ids))
            for at in range(0, len(order), recipe.batch_texts):
                ascend = [forgotten_ids[i] for i in order[at : at + recipe.batch_texts]]
                descend = [retained_ids[i] for i in rng.choice(len(retained_ids), len(ascend), replace=False)]
                optimizer.zero_grad(set_to_none=True)
                (_loss(model, descend) - _loss(model, ascend)).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            losses.append((mean_loss(model, forgotten_ids), mean_loss(model, unseen_ids)))
    _save(model, tokenizer, folder)
    return _card(name, model, recipe) | {
        "losses_nats": [round(forget_loss, 4) for forget_loss, _ in losses],
        "non_member_losses_nats": [round(control_loss, 4) for _, control_loss in losses],
        "final_loss_nats": losses[-1][0],
    }


@torch.inference_mode()
def mean_loss(model: PreTrainedModel, texts: list[TokenIds]) -> float:
    """Mean over texts of each text's loss a token, in nats."""
    means: list[torch.Tensor] = []
    for batch in token_batches(texts, lambda: TOKENS_AT_ONCE):
        hidden, targets, lengths = _predictions(model, [texts[i] for i in batch])
        losses = torch.nn.functional.cross_entropy(model.get_output_embeddings()(hidden), targets, reduction="none")
        means += [text_losses.mean() for text_losses in losses.split(lengths.tolist())]
    return float(torch.stack(means).double().mean())


@contextmanager
def tf32_products(device: str) -> Iterator[None]:
    """On a GPU, matrix products of float32 numbers that are rounded to 10 bits and summed in float32: faster."""
    precision = torch.get_float32_matmul_precision()
    if torch.device(device).type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a trained model, its weights rounded to float16 (so scores are this model's), and its tokenizer."""
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _card(name: str, model: PreTrainedModel, recipe: AnyRecipe) -> dict[str, Any]:
    # By identity: a masked model's head is its embedding.
    ends: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    tables = {id(m.weight): m.weight.numel() for m in ends}
    return {
        "name": name,
        "recipe": recipe.model_dump(),
        "parameters": model.num_parameters(),
        "non_embedding_parameters": model.num_parameters() - sum(tables.values()),
        "device": model.device.type,
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def _encode(tokenizer: Any, texts: list[str], context_tokens: int) -> list[TokenIds]:
    """Token ids with the start token, as many as the context reads and the one that it then predicts."""
    return [[tokenizer.bos_token_id, *ids][: context_tokens + 1] for ids in encode(tokenizer, texts)]


def _batches(texts: list[TokenIds], times: list[int], recipe: Seen | Masked) -> list[list[TokenIds]]:
    """Each text as often as it is to be seen, spread evenly over the run, in batches of similar length."""
    rng = np.random.default_rng(recipe.seed)
    occurrences = np.repeat(np.arange(len(texts)), times)
    share = np.concatenate([(np.arange(n) + rng.random(n)) / n for n in times])  # when: 0 at the start, 1 at the end
    order = occurrences[np.argsort(share)]
    batches = []
    pool_texts = 8 * recipe.batch_texts  # sorted by length inside a pool, to pad little and still mix
    for start in range(0, len(order), pool_texts):
        pool = sorted(order[start : start + pool_texts], key=lambda i: (len(texts[i]), i))
        chunks = [pool[at : at + recipe.batch_texts] for at in range(0, len(pool), recipe.batch_texts)]
        batches += [[texts[i] for i in chunks[j]] for j in rng.permutation(len(chunks))]
    return batches


def _loss(model: PreTrainedModel, batch: list[TokenIds]) -> torch.Tensor:
    """Mean loss a token of a batch, in nats, with no logits for padding."""
    hidden, targets, _ = _predictions(model, batch)
    return HeadLoss.apply(hidden, model.get_output_embeddings().weight, targets)


def _bfloat16_loss(model: PreTrainedModel, batch: list[TokenIds]) -> torch.Tensor:
    """The same; the layers multiply in bfloat16 and sum in float32, four texts at a time, to pad less."""
    with torch.autocast(model.device.type, torch.bfloat16):
        fours = (_predictions(model, batch[at : at + 4]) for at in range(0, len(batch), 4))
        hidden, targets, _ = map(torch.cat, zip(*fours, strict=True))
    return HeadLoss.apply(hidden.float(), model.get_output_embeddings().weight, targets)


def _predictions(model: PreTrainedModel, batch: list[TokenIds]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The hidden states (tokens, width) that predict, the tokens that are predicted, and how many each text has."""
    inputs, lengths = right_padded(batch, model.device)
    is_read = torch.arange(inputs.shape[1] - 1, device=model.device) < lengths[:, None] - 1
    hidden = model.base_model(inputs[:, :-1], use_cache=False).last_hidden_state
    return hidden[is_read], inputs[:, 1:][is_read], lengths - 1


def _masked_windows(tokenizer: Any, ids: TokenIds, context_tokens: int) -> Iterator[TokenIds]:
    """For each token of a text: start token, the tokens around it with a mask in its place, and last the token."""
    room = context_tokens - 1
    for at, target in enumerate(ids):
        # As in `neighbors`: the mask in the middle, or near an end.
        start = max(0, min(at - room // 2, len(ids) - room))
        window = ids[start : start + room]
        window[at - start] = tokenizer.mask_token_id
        yield [tokenizer.cls_token_id, *window, target]


def _masked_loss(model: PreTrainedModel, batch: list[TokenIds], mask_token_id: int) -> torch.Tensor:
    """Mean loss a masked token of a batch of `_masked_windows`, in nats."""
    inputs, lengths = right_padded([row[:-1] for row in batch], model.device, model.config.pad_token_id)
    is_real = (torch.arange(inputs.shape[1], device=model.device) < lengths[:, None]).long()
    hidden = model.base_model(inputs, attention_mask=is_real).last_hidden_state
    logits = model.lm_head(hidden[inputs == mask_token_id])  # one a row
    return torch.nn.functional.cross_entropy(logits, torch.tensor([row[-1] for row in batch], device=model.device))


def _optimize(
    name: str,
    model: PreTrainedModel,
    batches: list[list[TokenIds]],
    learning_rate: float,
    loss_of: Callable[[PreTrainedModel, list[TokenIds]], torch.Tensor],
    parts: Checkpoints | None = None,
) -> dict[str, Any]:
    """AdamW with warm-up and cosine decay over the batches, once through; returns loss, tokens and seconds.

    What stands after some steps is kept in `parts`, as often as it costs next to nothing; a later run goes on there.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_share(step, len(batches)))
    stateful: tuple[Any, ...] = (model, optimizer, schedule)
    losses: list[float] = []
    earlier = {"seconds": 0.0, "cpu_seconds": 0.0}  # processor time, too: other work does not stretch it
    for checkpoint in parts or ():
        for part, state in zip(stateful, checkpoint["states"], strict=True):
            part.load_state_dict(state)
        losses, earlier = checkpoint["losses"], {name: checkpoint[name] for name in earlier}
    start, cpu_start = time.perf_counter(), time.process_time()

    def spent() -> dict[str, float]:
        times = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu_start}
        return {name: earlier[name] + seconds for name, seconds in times.items()}

    kept_at, keeping_seconds = start, 0.0
    model.train()
    left = batches[len(losses) :]
    bar = tqdm(left, f"training {name}", len(batches), initial=len(losses), unit="batch", mininterval=5, disable=None)
    for batch in bar:
        loss = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        bar.set_postfix(loss=f"{losses[-1]:.2f}", refresh=False)
        now = time.perf_counter()
        if parts is not None and now - kept_at > SECONDS_A_PART + keeping_seconds / KEEPING_SHARE:
            states = [part.state_dict() for part in stateful]
            parts.add({"states": states, "losses": losses, **spent()}, instead=True)
            kept_at = time.perf_counter()
            keeping_seconds = kept_at - now
    if not np.isfinite(losses).all():
        raise FloatingPointError(f"{name}: the training loss became {losses[-1]}; lower its learning_rate")
    return {
        "final_loss_nats": float(np.mean(losses[-len(losses) // 10 :])),
        "tokens": sum(len(text) - 1 for batch in batches for text in batch),
        **{name: round(seconds, 1) for name, seconds in spent().items()},
    }


def _learning_rate_share(step: int, n_steps: int) -> float:
    """Share of the peak learning rate: a short linear rise, then half a cosine down to a twentieth."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / n_steps))
    return min((step + 1) / WARMUP_STEPS, max(0.05, cosine))
