"""Loading a language model by hub name, folder or lab name: causal, to score with, or masked, to make neighbors with.

The only file that imports transformers' Auto classes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mialib.api import refuse_api, tokenizer_name
from mialib.store import hash_files, hash_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# Families whose papers prepend another token than the tokenizer's own start token (DC-PDD, Section 4).
START_TOKEN_OF_FAMILY = {"opt": "<s>", "baichuan": "</s>"}
MODEL_FILES = (".json", ".safetensors", ".bin", ".model", ".txt")
NOT_MODEL_FILES = ("lab.json",)  # the lab's card holds the training's seconds
DTYPES = ("auto", "float32", "bfloat16", "float16")
HUB_TIMEOUT_SECONDS = 3
HEAD_TOLERANCE = 1e-5  # how far head(base(x)) may lie from the model's own logits, beside the largest of them


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to score, and what its results must record."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    start_token_id: int | None
    revision: str  # hub commit or content hash of the weights
    tokenizer_hash: str
    max_tokens: int  # the context: how many tokens the model reads, the start token included
    vocab_size: int  # rows of the output head


def local_path(name: str) -> Path | None:
    """The folder of a local or lab model (a lab model that is not there yet is trained first), None for a hub name."""
    refuse_api(name)
    if name.startswith("lab/"):
        from mialib.lab import lab_model

        return lab_model(name)
    if Path(name).is_dir():
        return Path(name)
    work_offline_without_the_hub()
    return None


@cache
def work_offline_without_the_hub() -> None:
    """Where the Hugging Face hub can't be reached, look into its cache alone, instead of trying for half a minute."""
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return
    try:
        httpx.head(constants.ENDPOINT, timeout=HUB_TIMEOUT_SECONDS)
    except httpx.TransportError as error:
        logger.warning("%s can't be reached (%s); using what is cached of it", constants.ENDPOINT, error)
        constants.HF_HUB_OFFLINE = True


def pick_device(device: str = "auto") -> torch.device:
    """The wanted device; "auto" takes CUDA, then Apple's GPU, then the CPU."""
    import torch

    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The weights' type; "auto" is bfloat16 on CUDA and float32 elsewhere."""
    import torch

    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    if dtype == "auto":
        dtype = "bfloat16" if device.type == "cuda" else "float32"
    return getattr(torch, dtype)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub name, folder or lab model."""
    from transformers import AutoTokenizer

    name = tokenizer_name(name)
    try:
        return AutoTokenizer.from_pretrained(local_path(name) or name)
    except (OSError, ValueError) as error:
        raise _not_loadable(name, error) from error


def load_model(
    name: str, *, device: str = "auto", dtype: str = "auto", start_token: str | None = "auto"
) -> LoadedModel:
    """Load a causal language model for scoring.

    `start_token` is prepended to each text so that its first token is predicted too (DC-PDD, Eq. 2): "auto" takes the
    papers' choice for the family, else the tokenizer's start token, else its end token; None prepends nothing.
    """
    from transformers import AutoModelForCausalLM

    where = pick_device(device)
    torch_dtype = pick_dtype(dtype, where)
    folder = local_path(name)
    tokenizer = load_tokenizer(name)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder or name, dtype=torch_dtype)
    except (OSError, ValueError) as error:
        raise _not_loadable(name, error) from error
    model.to(where).eval().requires_grad_(False)
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        start_token_id=find_start_token(tokenizer, model.config.model_type, start_token),
        revision=model_revision(name),
        tokenizer_hash=tokenizer_hash(tokenizer),
        max_tokens=getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length,
        vocab_size=model.get_output_embeddings().weight.shape[0],
    )


def load_masked_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a masked language model (BERT, RoBERTa and their like) in float32, and its tokenizer."""
    import torch
    from transformers import AutoModelForMaskedLM

    tokenizer = load_tokenizer(name)
    try:
        model = AutoModelForMaskedLM.from_pretrained(local_path(name) or name, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise _not_loadable(name, error, "masked") from error
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise ValueError(f"the tokenizer of {name} lacks a mask or a padding token, so it is not a masked model's")
    if not (hasattr(model, "lm_head") or hasattr(model, "cls")):
        raise ValueError(
            f"{name} is a {model.config.model_type}; masked models of the BERT and RoBERTa families can be used"
        )
    return model.to(pick_device()).eval().requires_grad_(False), tokenizer


def _not_loadable(name: str, error: Exception, kind: str = "causal") -> OSError:
    from huggingface_hub import constants

    if not Path(name).is_dir() and constants.HF_HUB_OFFLINE:
        return OSError(
            f"model {name!r} is no folder here and not in the Hugging Face cache, and the hub can't be reached; "
            "give a folder saved by save_pretrained instead"
        )
    if Path(name).is_dir():
        problem = f"is a folder, but not one that save_pretrained wrote for a {kind} language model and its tokenizer"
    else:
        problem = "is neither a folder here nor could it be loaded from the Hugging Face hub"
    return OSError(
        f"model {name!r} {problem} ({type(error).__name__}: {str(error).splitlines()[0]}); "
        "give a folder saved by save_pretrained instead"
    )


def find_start_token(tokenizer: PreTrainedTokenizerBase, family: str, start_token: str | None = "auto") -> int | None:
    """The id of the token to prepend, None for none; ValueError where the tokenizer has no such token."""
    if start_token is None:
        return None
    if start_token == "auto":
        wanted = START_TOKEN_OF_FAMILY.get(family) or tokenizer.bos_token or tokenizer.eos_token
        if wanted is None:
            raise ValueError("the tokenizer has neither a start nor an end token; pass start_token= a token or None")
        start_token = wanted
    token_id = tokenizer.convert_tokens_to_ids(start_token)
    if token_id is None or (token_id == tokenizer.unk_token_id and start_token != tokenizer.unk_token):
        raise ValueError(f"start token {start_token!r} is not in the tokenizer's vocabulary")
    return token_id


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Content hash of a tokenizer: two that share it turn any text into the same ids."""
    if tokenizer.is_fast:
        # How the last call padded and truncated is kept in there too, and is no part of the tokenizer.
        return hash_of(json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None})
    return hash_of([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])


def vocabulary_size(name: str) -> int:
    """|V|, the rows of the model's output, read from its config alone."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(local_path(name) or name).vocab_size


def count_parameters(name: str) -> int:
    """Parameters outside the embeddings and the output head, from the config alone: nothing is downloaded or filled."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(local_path(name) or name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tables = {id(m.weight): m.weight.numel() for m in (model.get_input_embeddings(), model.get_output_embeddings())}
    return model.num_parameters() - sum(tables.values())


def model_revision(name: str) -> str:
    """What pins weights, config and tokenizer: the content hash of a folder's files, or the hub's commit."""
    folder = local_path(name)
    if folder is None:
        return _hub_commit(name)
    files = sorted(p for p in folder.iterdir() if p.suffix in MODEL_FILES and p.name not in NOT_MODEL_FILES)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: config.json, weights and tokenizer files are expected")
    return _hash_once(tuple((p, p.stat().st_size, p.stat().st_mtime_ns) for p in files))


@cache
def _hash_once(stamped: tuple[tuple[Path, int, int], ...]) -> str:
    return hash_files(path for path, _, _ in stamped)


def _hub_commit(name: str) -> str:
    from transformers import AutoConfig

    try:
        return f"{name}@{AutoConfig.from_pretrained(name)._commit_hash}"
    except OSError as error:
        raise _not_loadable(name, error) from error


def find_head(loaded: LoadedModel) -> torch.nn.Linear | None:
    """The output head, where head(base(x)) is the whole model; None where the family does more than that.

    Gemma and Cohere, for example, change the logits after the head. Such a model runs whole, with a batch's logits in
    memory.
    """
    import torch

    model = loaded.model
    inputs = torch.arange(min(8, loaded.vocab_size), device=model.device)[None]
    with torch.inference_mode():
        whole = model(inputs, use_cache=False).logits.float()
        head = model.get_output_embeddings()
        split = head(model.base_model(inputs, use_cache=False).last_hidden_state).float()
    scale = whole.abs().max().clamp(min=1)
    same = split.shape == whole.shape and (split - whole).abs().max() <= HEAD_TOLERANCE * scale
    if same and isinstance(head, torch.nn.Linear):
        return head
    logger.warning("%s: the head alone does not give the model's logits; running the whole model", model.name_or_path)
    return None
