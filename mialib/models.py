"""A language model that is loaded and ready to score. `mialib.catalog.models` finds one by its name."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, cast

from mialib.store import hash_of, version

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# DC-PDD (Section 4) prepends these instead of the tokenizer's own start token. The public code of Min-K% Prob and
# Min-K%++ takes what the tokenizer adds by itself, which is nothing for Pythia.
START_TOKEN_OF_FAMILY = {"opt": "<s>", "baichuan": "</s>"}
# Of several kinds: a model, or its tokenizer, may know one of them alone.
ORDINARY_TEXTS = (
    "The river rises in the hills above the old mill and runs south through three villages to the sea.",
    "这条河发源于北方的山地，向南流经三个村庄，最后流入大海。",
    "def mean(values):\n    return sum(values) / len(values)\n",
)
_ROUNDING = RLock()
LEAST_PARAMETERS = 10_000_000  # of a model whose products oneDNN multiplies


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to score, and what the provenance of its results names."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    start_token_ids: tuple[int, ...]  #: what is prepended to each text: one token, none, or several, such as GLM's two
    revision: str  #: hub commit or content hash of the weights
    tokenizer_hash: str
    max_tokens: int  #: the context: how many tokens the model reads, the start token included
    vocab_size: int  #: rows of the output head

    @property
    def device(self) -> torch.device:
        """The device of the model's input: that of its first weights that are not on the disk, else the CPU."""
        import torch

        return next((of.device for of in self.model.parameters() if not of.is_meta), torch.device("cpu"))

    @property
    def n_embedded(self) -> int:
        """The number of rows of the input embeddings; the model reads token ids below it."""
        return cast("torch.Tensor", self.model.get_input_embeddings().weight).shape[0]

    @property
    def start_token(self) -> str | None:
        """The start tokens as the tokenizer spells them; None if there are none."""
        return "".join(self.tokenizer.convert_ids_to_tokens(list(self.start_token_ids))) or None

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str,
        revision: str = "",
        start_token: str | None = "auto",
        hash_of_tokenizer: str | None = None,
    ) -> LoadedModel:
        """Make one from a causal model, which is switched to inference; `start_token` as in `find_start_tokens`.

        Pass `hash_of_tokenizer` if it is known: hashing a large tokenizer takes seconds.
        """
        config = model.config.get_text_config()
        context, head = getattr(config, "max_position_embeddings", None), model.get_output_embeddings()
        return cls(
            name=name,
            model=model.eval().requires_grad_(False),
            tokenizer=tokenizer,
            start_token_ids=find_start_tokens(tokenizer, config.model_type, start_token),
            revision=revision,
            tokenizer_hash=hash_of_tokenizer or tokenizer_hash(tokenizer),
            max_tokens=tokenizer.model_max_length if context is None else context,
            vocab_size=config.vocab_size if head is None else head.weight.shape[0],
        )


def rope_borders(config: PreTrainedConfig) -> tuple[int, ...]:
    """Numbers of tokens beyond which texts are read differently: texts on both sides must not share a batch."""
    # LongRoPE (Phi-3) turns all positions of a *batch* by other angles where its longest text passes the border.
    ropes = getattr(config.get_text_config(), "rope_parameters", None) or {}
    of_layers = [rope for rope in ropes.values() if isinstance(rope, dict)] or [ropes]  # one for each kind, or for all
    long = [rope for rope in of_layers if rope.get("rope_type") == "longrope"]
    return tuple(sorted({int(rope["original_max_position_embeddings"]) for rope in long}))


def pick_device(device: str = "auto") -> torch.device:
    """The wanted device; "auto" takes CUDA, then Apple's GPU, then the CPU. ValueError for one that is not here."""
    import torch

    if device != "auto":
        try:
            torch.empty(0, device=device)
            return torch.device(device)
        except (RuntimeError, AssertionError, TypeError) as error:
            why = (str(error).splitlines() or [""])[0]
            raise ValueError(f"device {device!r} can't be used here ({why}); give auto, cpu, cuda or mps") from None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def device_type(device: str = "auto") -> str:
    """The type of `pick_device`. torch, which takes seconds to import, is asked only if it may have a GPU."""
    return "cpu" if device == "auto" and version("torch").endswith("+cpu") else pick_device(device).type


def free_bytes(device: torch.device) -> int:
    """Memory that is free for a model on the device."""
    import psutil
    import torch

    if device.type != "cuda":
        return psutil.virtual_memory().available
    gc.collect()  # torch keeps the memory of deleted models until it is asked to give it back
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def find_start_tokens(
    tokenizer: PreTrainedTokenizerBase, family: str, start_token: str | None = "auto"
) -> tuple[int, ...]:
    """The ids of what is prepended to each text, so that its first token is predicted too (DC-PDD, Eq. 2).

    "auto" takes DC-PDD's choice for the model's family where the tokenizer knows that token, else the tokens that the
    tokenizer itself prepends if there are several ([gMASK]<sop> of GLM), else its start token, else its end token. A
    token, or several special ones in one string, is taken; None, or "none", prepends nothing. ValueError where the
    tokenizer has no such token.
    """
    if start_token is None or start_token.lower() == "none":
        return ()
    if start_token == "auto":
        start_token = START_TOKEN_OF_FAMILY.get(family)
        if start_token not in tokenizer.get_vocab():
            if len(several := prepended(tokenizer)) > 1:
                return several
            start_token = tokenizer.bos_token or tokenizer.eos_token
        if start_token is None:
            raise ValueError(
                "the tokenizer has neither a start nor an end token; give a start token (--start-token), or none "
                "(--start-token none)"
            )
    token_id = cast("int | None", tokenizer.convert_tokens_to_ids(start_token))
    if token_id is not None and (token_id != tokenizer.unk_token_id or start_token == tokenizer.unk_token):
        return (token_id,)
    several = tokenizer(start_token, add_special_tokens=False, split_special_tokens=False)["input_ids"]
    if several and set(several) <= set(tokenizer.get_added_vocab().values()) - {tokenizer.unk_token_id}:
        return tuple(several)
    raise ValueError(f"start token {start_token!r} is not in the tokenizer's vocabulary")


def prepended(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """What the tokenizer itself puts before a text."""
    plain, whole = (tokenizer("a", add_special_tokens=adds)["input_ids"] for adds in (False, True))
    return tuple(whole[: next((n for n in range(len(whole)) if whole[n : n + len(plain)] == plain), 0)])


def recorded_start(start_token_ids: Sequence[int]) -> int | list[int] | None:
    """Start tokens as keys and provenance have them: one is a number, and none is None."""
    return list(start_token_ids) if len(start_token_ids) > 1 else next(iter(start_token_ids), None)


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Content hash of a tokenizer: two that share it turn any text into the same ids."""
    if tokenizer.is_fast:  # how the last call padded and truncated is stored there too
        return hash_of(json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None})
    return hash_of([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])


@cache
def keeps_float32() -> bool:
    """Whether this processor's oneDNN keeps float32's digits where it may round to bfloat16; without AMX it does."""
    import torch

    factor = torch.full((256, 256), 1 + 2.0**-12)  # which bfloat16 rounds to 1
    with _allowed_to_round():
        products = [factor[:n] @ factor for n in (1, 16, 256)]
    return all(bool((product > 256.1).all()) for product in products)  # 256 times the square of 1.00024, or of 1


@contextmanager
def _allowed_to_round() -> Iterator[None]:
    import torch

    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with _ROUNDING:  # the setting is the process's
        before, matmul.fp32_precision = matmul.fp32_precision, "bf16"
        try:
            yield
        finally:
            matmul.fp32_precision = before


@contextmanager
def fast_products(model: PreTrainedModel) -> Iterator[None]:
    """Multiply float32 matrices by oneDNN on a processor; MKL, which torch takes, needs up to twice as long on AMD's.

    torch takes oneDNN where it may round factors to bfloat16, so this is done only where it does not (`keeps_float32`).
    A small model gains nothing: each new shape of a product costs oneDNN time.
    """
    is_large = model.device.type == "cpu" and model.num_parameters() >= LEAST_PARAMETERS
    with _allowed_to_round() if is_large and keeps_float32() else nullcontext():
        yield


@contextmanager
def exact_products(*factors: torch.Tensor) -> Iterator[None]:
    """The same for float32 copies of these factors, where all are bfloat16: float32 holds their products exactly."""
    import torch

    are_bfloat16 = all(of.dtype == torch.bfloat16 and of.device.type == "cpu" for of in factors)
    with _allowed_to_round() if are_bfloat16 else nullcontext():
        yield


def multimodal_error(name: str, family: str, why: str) -> ValueError:
    """What to raise for a model that reads more than text."""
    return ValueError(
        f"model {name} is multimodal ({family}), and its part for texts can't be scored alone ({why}); give a language "
        "model of texts alone"
    )
