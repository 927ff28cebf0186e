"""One forward pass over ordinary texts, before a model scores any: are its numbers those of a causal language model?"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from mialib.batches import encode, right_padded
from mialib.models import ORDINARY_TEXTS, LoadedModel, fast_products, multimodal_error
from mialib.token_stats import check_likely

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

N_TOKENS = 8  # of each: among few tokens one that is changed shows more
# Distances of logits, as a share of the largest.
SAME_LOGITS = 1e-6
CAUSAL_TOLERANCE, NARROW_TOLERANCE = 1e-4, 2e-2  # of weights of four bytes, and of fewer
HEAD_TOLERANCE = 1e-5
LENGTH_MATTERS = ("prophetnet", "xlm-prophetnet")  # to their logits: how many tokens follow


def check_model(loaded: LoadedModel) -> torch.nn.Linear | None:
    """Run the model once over ordinary texts, and return its output head where head(base(x)) is the whole model.

    None where the logits change after the head, as in Gemma. ValueError for a model whose scores would mean nothing:
    it has no context or its tokenizer no tokens, the tokenizer or the start token is another model's, each token gets
    the same logit, the model is not causal (BERT, say: a text's last token changes the logits before it), or it is far
    worse than guessing at each text.
    """
    name, family = loaded.name, loaded.model.config.model_type
    inputs, n_tokens = _ordinary_inputs(loaded)
    try:
        with torch.inference_mode(), fast_products(loaded.model):
            logits, hidden = _logits_and_hidden_states(loaded.model, inputs)  # (texts, n, V), (texts, n, D)
    except Exception as error:
        if loaded.model.config.get_text_config() is loaded.model.config:
            raise
        raise multimodal_error(name, family, (str(error).splitlines() or ["?"])[0]) from error
    if not logits.isfinite().all():
        return _head_of(loaded, logits, hidden)  # the first text that is scored says where
    largest = logits.abs().max()
    if not (logits.amax(-1) - logits.amin(-1) > SAME_LOGITS * largest).any():
        raise ValueError(f"model {name} gives each token the same probability; are its weights all alike?")
    tolerance = CAUSAL_TOLERANCE if loaded.model.dtype.itemsize >= 4 else NARROW_TOLERANCE
    n_before = n_tokens[0] - 1  # the first two rows differ in their last token alone
    is_changed = n_before > 0 and (logits[0, :n_before] - logits[1, :n_before]).abs().max() > tolerance * largest
    if is_changed or family in LENGTH_MATTERS:
        raise ValueError(
            f"model {name} ({family}) is not causal: a token changes what is predicted before it, so its log-probs are "
            "not those of a next token"
        )
    following = inputs[:, 1:, None]
    log_probs = logits[:, :-1].log_softmax(-1).gather(-1, following)[..., 0]  # (texts, n - 1)
    means = [float(log_probs[row, : n - 1].mean()) for row, n in enumerate(n_tokens) if n > 1]
    check_likely(max(means, default=0.0), name)
    return _head_of(loaded, logits, hidden)


def _ordinary_inputs(loaded: LoadedModel) -> tuple[torch.Tensor, list[int]]:
    """Ordinary texts as token ids, (texts, n), the first one twice with two last tokens; and their lengths.

    ValueError for a context, tokenizer or start token that is not the model's.
    """
    tokenizer, name, n_embedded = loaded.tokenizer, loaded.name, loaded.n_embedded
    if loaded.max_tokens < 1:
        raise ValueError(f"model {name}: a context of {loaded.max_tokens} tokens; its config.json is wrong")
    texts = encode(tokenizer, ORDINARY_TEXTS)
    if not texts[0]:
        raise ValueError(f"model {name}: its tokenizer makes no token of {ORDINARY_TEXTS[0]!r}; are its files there?")
    added = tokenizer.get_added_vocab()  # such as <pad>, which no text gives
    token_ids = {number for token, number in tokenizer.get_vocab().items() if token not in added}
    if (token_id := max({*token_ids, *loaded.start_token_ids})) >= n_embedded:
        token = tokenizer.convert_ids_to_tokens(token_id)
        raise ValueError(
            f"model {name} embeds {n_embedded} tokens, and its tokenizer has a number {token_id} ({token!r}); is it "
            "another model's tokenizer, or its start token another's (--start-token)?"
        )
    rows = [[*loaded.start_token_ids, *ids][: min(N_TOKENS, loaded.max_tokens)] for ids in texts]
    rows = [row for row in rows if max(row) < n_embedded and len(set(row)) > 1]
    rows = rows or [[*range(n_embedded // 2, min(n_embedded // 2 + 8, n_embedded))][: loaded.max_tokens]]
    other_end = next((token_id for token_id in rows[0] if token_id != rows[0][-1]), rows[0][-1])
    inputs, n_tokens = right_padded([rows[0], [*rows[0][:-1], other_end], *rows[1:]], loaded.device)
    return inputs, n_tokens.tolist()


def _logits_and_hidden_states(model: PreTrainedModel, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The whole model's logits, float32, and what its base alone makes of the same inputs, where it says so."""
    base_outputs: list[torch.Tensor | None] = []

    def record(_: object, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        tensors = [key for key, value in keywords.items() if isinstance(value, torch.Tensor) and key != "input_ids"]
        if not tensors and (arguments == (inputs,) or keywords.get("input_ids") is inputs):  # as scoring calls it
            base_outputs.append(getattr(output, "last_hidden_state", None))

    hook = model.base_model.register_forward_hook(record, with_kwargs=True)
    try:
        logits = model(inputs, use_cache=False).logits.float()
    finally:
        hook.remove()
    if not base_outputs:  # the model calls its base in another way, as OPT does
        base_outputs = [getattr(model.base_model(inputs, use_cache=False), "last_hidden_state", None)]
    return logits, base_outputs[-1]


def _head_of(loaded: LoadedModel, logits: torch.Tensor, hidden: torch.Tensor | None) -> torch.nn.Linear | None:
    """The output head, if it makes the logits of the hidden states."""
    model, head = loaded.model, loaded.model.get_output_embeddings()
    is_same, largest = False, logits.abs().max().clamp(min=1)
    if hidden is not None:  # as Llama 4's base does not say
        with torch.inference_mode(), fast_products(model):
            from_head = head(hidden).float()
        is_same = from_head.shape == logits.shape and bool((from_head - logits).abs().max() <= HEAD_TOLERANCE * largest)
    if is_same and isinstance(head, torch.nn.Linear) and head.weight.device == loaded.device:
        return head
    if not (is_same and hasattr(model, "hf_device_map")):  # a spread model's head is moved to where it is needed
        logger.warning("%s: the head alone does not give its logits; running the whole model", model.name_or_path)
    return None
