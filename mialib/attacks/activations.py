"""The hidden state of a prompted text's last token at every layer (Liu et al. 2024).

    activations(model, texts)                                        of the model itself
    activations(Proxy(model, member_texts, learning_rate), texts)    of a copy fine-tuned on some texts (Section 3.3)

Both are cached. A proxy's weights are not: it is trained again where its activations on other texts are asked for.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mialib.batches import encode, in_parts, right_padded, token_batches
from mialib.cache import ARRAYS, Checkpoints, cached
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import TRAINING_BYTES, find_weights
from mialib.models import LoadedModel, fast_products, pick_device, rope_borders
from mialib.store import hash_of, hash_texts
from mialib.text import check_texts, excerpt
from mialib.versions import versions_of

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

SAMPLE = "[SAMPLE]"
PROMPT = f"Here is a statement: {SAMPLE} \n Is the above statement correct? Answer:"  # Section 3.3
EPOCHS = 2  # each of them one batch of all member texts (Section 5.4)
TRAINING_TOKENS_AT_ONCE = 1024  # of that batch, with their logits and gradients in memory
TokenIds = list[int]


class Proxy(NamedTuple):
    """A copy of a model fine-tuned on some texts, by its recipe; the arguments of `train_proxy`."""

    model: str
    member_texts: Sequence[str]
    learning_rate: float


def activations(
    model: str | Proxy | LoadedModel, texts: Sequence[str], *, device: str = "auto", dtype: str = "auto"
) -> NDArray[np.float32]:
    """The hidden state of each prompted text's last token at every layer, (L + 1, N, D): embeddings, then each block.

    As in Hugging Face's `hidden_states`, most families' last one has gone through the final norm. Where a layer is
    narrower than D (OPT-350M's last), zeros fill it up. A text whose prompt is longer than the context loses its end,
    never the prompt's; a warning counts them. A model by name and a proxy go through the cache; a loaded model, whose
    weights may have changed, is run as it is. ValueError for an empty text and an activation that is not finite.
    """
    if isinstance(model, LoadedModel):
        return _run(model, texts)
    name = model.model if isinstance(model, Proxy) else model
    key = find_weights(name).pass_key(device=device, dtype=dtype) | versions_of("activations")
    key |= {"texts": hash_texts(texts)}
    if isinstance(model, Proxy):
        members = hash_texts(model.member_texts)
        key |= {"learning_rate": model.learning_rate, "epochs": EPOCHS, "members": members}

    def make(checkpoints: Checkpoints) -> dict[str, NDArray[Any]]:
        if isinstance(model, Proxy):  # of so few texts that training it takes longest
            return {"values": _run(train_proxy(*model, device=device, dtype=dtype), texts)}
        from mialib.catalog.loading import load_scorer

        return {"values": _run(load_scorer(model, device=device, dtype=dtype).loaded, texts, checkpoints)}

    return cached("activations", make, ARRAYS, ARRAYS, **key)["values"]


def encode_prompts(loaded: LoadedModel, texts: Sequence[str]) -> tuple[list[TokenIds], NDArray[np.int64]]:
    """Token ids of each text in the prompt, start token first, and how many characters each text lost, (N,).

    A text is cut to the longest beginning whose whole prompt fits the context. ValueError where none does.
    """
    texts = check_texts(texts, "texts to probe")
    start = list(loaded.start_token_ids)
    room = loaded.max_tokens - len(start)

    def ids_of(some: Sequence[str]) -> list[TokenIds]:
        return encode(loaded.tokenizer, [PROMPT.replace(SAMPLE, text) for text in some])

    token_ids, n_cut = ids_of(texts), np.zeros(len(texts), np.int64)
    for i, text in enumerate(texts):
        if len(token_ids[i]) <= room:
            continue
        fits = bisect_right(range(len(text)), room, key=lambda n: len(ids_of([text[:n]])[0])) - 1
        if fits < 1:
            raise ValueError(
                f"{loaded.name}: a context of {loaded.max_tokens} tokens holds the prompt and nothing of text {i}; "
                f"the probe needs a longer one: {excerpt(text)}"
            )
        token_ids[i], n_cut[i] = ids_of([text[:fits]])[0], len(text) - fits
    if n_cut.any():
        said = "%s: %d of %d texts and the prompt exceed its context of %d tokens; %d characters at their ends are cut"
        logger.warning(said, loaded.name, np.count_nonzero(n_cut), len(texts), loaded.max_tokens, n_cut.sum())
    return [start + ids for ids in token_ids], n_cut


def _run(loaded: LoadedModel, texts: Sequence[str], checkpoints: Checkpoints | None = None) -> NDArray[np.float32]:
    """One forward pass, rows padded on the right: no real token of a causal model sees what comes after it.

    `checkpoints` holds what an earlier run finished, and is given what this one does.
    """
    import torch

    from mialib.scoring import fitting_tokens

    token_ids, _ = encode_prompts(loaded, texts)
    device = loaded.device
    budget = fitting_tokens(loaded, every_layer=True)
    done, is_done = list(checkpoints or ()), np.zeros(len(texts), bool)
    for part in done:
        is_done[part["numbers"]] = True

    def last_states(batch: list[int]) -> tuple[list[int], NDArray[np.float32]]:
        inputs, lengths = right_padded([token_ids[i] for i in batch], device)
        with torch.inference_mode(), fast_products(loaded.model):
            states = loaded.model.base_model(inputs, output_hidden_states=True, use_cache=False).hidden_states
        values = np.zeros((len(states), len(batch), max(state.shape[-1] for state in states)), np.float32)
        rows = torch.arange(len(batch), device=device)
        for layer, state in enumerate(states):
            values[layer, :, : state.shape[-1]] = state[rows, lengths - 1].float().cpu().numpy()
        return batch, values

    batches = token_batches(token_ids, lambda: budget, rope_borders(loaded.model.config))
    for some in in_parts(last_states(batch) for batch in batches if not is_done[batch].all()):
        numbers, values = np.concatenate([n for n, _ in some]), np.concatenate([v for _, v in some], axis=1)
        done.append({"numbers": numbers, "values": values})
        is_done[numbers] = True
        if checkpoints is not None and not is_done.all():
            checkpoints.add(done[-1])
    if not done:
        return np.zeros((0, 0, 0), np.float32)
    n_layers, _, width = done[0]["values"].shape
    values = np.empty((n_layers, len(texts), width), np.float32)
    for part in reversed(done):  # where a text is in two parts, the first one's counts
        values[:, part["numbers"]] = part["values"]
    for layer, i in np.argwhere(~np.isfinite(values).all(axis=2)):
        raise ValueError(
            f"text {i}: layer {layer} of {loaded.name} in {loaded.model.dtype} is not finite; is its dtype wide "
            f"enough, and its learning rate low enough? {excerpt(texts[i])}"
        )
    return values


# --- the proxy --------------------------------------------------------------------------------------------------------


def train_proxy(
    model: str, member_texts: Sequence[str], learning_rate: float, *, device: str = "auto", dtype: str = "auto"
) -> LoadedModel:
    """A copy of a model, by name or folder, fine-tuned on the prompted texts: one batch of them all, an epoch a step.

    AdamW at a constant learning rate, without weight decay or dropout, on the mean loss a token of the whole prompt, as
    in the authors' code. The batch goes through in chunks whose gradients add up. Weights and optimizer are float32, 16
    bytes a parameter, since most steps of this size would round to nothing in bfloat16; at the end the weights take the
    `dtype` of the target. FloatingPointError where the loss becomes NaN or infinite.
    """
    import torch

    from mialib.attacks.head_loss import one_thread
    from mialib.catalog.loading import load_model, unload
    from mialib.model_check import check_model

    unload()  # the model itself, if it is still there: both need not fit
    source = find_weights(model)
    if source.is_of_few_bits:
        raise ValueError(f"{model}: its weights are of few bits, and the probe trains a copy; give the whole model")
    if too_large := source.why_too_large(pick_device(device), TRAINING_BYTES):
        raise Unavailable(too_large)
    loaded = load_model(model, device=device, dtype="float32")
    weights = loaded.model.requires_grad_(True)
    token_ids, _ = encode_prompts(loaded, member_texts)
    head = check_model(loaded)
    n_predicted = sum(len(ids) - 1 for ids in token_ids)
    optimizer = torch.optim.AdamW(weights.parameters(), lr=learning_rate, weight_decay=0.0)
    with one_thread():
        for _ in range(EPOCHS):
            optimizer.zero_grad(set_to_none=True)
            for chunk in token_batches(token_ids, lambda: TRAINING_TOKENS_AT_ONCE, rope_borders(weights.config)):
                loss = _summed_loss(weights, head, [token_ids[i] for i in chunk]) / n_predicted
                if not torch.isfinite(loss):
                    raise FloatingPointError(
                        f"{model}: the proxy's loss became {loss.item()} at learning rate {learning_rate:g}; lower it"
                    )
                loss.backward()
            optimizer.step()
    of_type = source.dtype_on(weights.device, dtype)
    weights.requires_grad_(False).to(of_type)  # type: ignore[arg-type]  # transformers' decorator hides torch's types
    recipe = {"of": loaded.revision, "members": hash_texts(member_texts), "rate": learning_rate, "epochs": EPOCHS}
    return replace(loaded, name=f"proxy of {model} at learning rate {learning_rate:g}", revision=hash_of(recipe))


def _summed_loss(model: Any, head: torch.nn.Linear | None, token_ids: list[TokenIds]) -> torch.Tensor:
    """The loss of all tokens but the first of each text, summed, in nats; without the logits at once where it can."""
    import torch

    from mialib.attacks.head_loss import HeadLoss

    inputs, lengths = right_padded(token_ids, model.device)
    is_real = torch.arange(inputs.shape[1] - 1, device=model.device) < lengths[:, None] - 1
    targets = inputs[:, 1:][is_real]
    if head is not None and head.bias is None:
        hidden = model.base_model(inputs, use_cache=False).last_hidden_state[:, :-1][is_real]
        return len(targets) * HeadLoss.apply(hidden, head.weight, targets)
    logits = model(inputs, use_cache=False).logits[:, :-1][is_real]
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
