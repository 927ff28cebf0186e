"""Loading a language model by hub name, folder or lab name: causal, to score with, or masked, to make neighbors with.

The only file that imports transformers' Auto classes.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mialib.api import refuse_api, tokenizer_name
from mialib.hub import Unavailable, explain, find_revision, local_copy, split_name
from mialib.registry import find_model
from mialib.store import hash_files, hash_of, home, once, write_json

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# Families whose papers prepend another token than the tokenizer's own start token (DC-PDD, Section 4).
START_TOKEN_OF_FAMILY = {"opt": "<s>", "baichuan": "</s>"}
MODEL_FILES = (".json", ".safetensors", ".bin", ".model", ".txt", ".py")
NOT_MODEL_FILES = ("lab.json",)  # the lab's card holds the training's seconds
DTYPES = ("auto", "float32", "bfloat16", "float16")
REMOTE_CODE_VARIABLE = "MIALIB_REMOTE_CODE"  # comma-separated names of models whose own code may run here
SPARE_BYTES = 2 * 10**9  # beside the weights: activations, logits, the libraries themselves
TRAINING_BYTES = 16  # a parameter, in float32: weight, gradient and AdamW's two moments
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
    """The folder of a local or lab model (a lab model that is not there yet is trained first), None for a hub name.

    A copy of a hub model under $MIALIB_MODELS takes its place.
    """
    refuse_api(name)
    if name.startswith("lab/"):
        from mialib.lab import lab_model

        return lab_model(name)
    return Path(name) if Path(name).is_dir() else local_copy(name, "model")


def source_of(name: str) -> dict[str, Any]:
    """What a `from_pretrained` is given for a model's name: its folder, or its hub name with the commit.

    Unavailable for a model that brings its own code, unless $MIALIB_REMOTE_CODE names it.
    """
    allowed, known = is_allowed_remote_code(name), find_model(name)
    if known and known.remote_code and not allowed:
        raise _needs_remote_code(name)
    folder = local_path(name)
    if folder:
        return {"pretrained_model_name_or_path": str(folder), "trust_remote_code": allowed}
    return {
        "pretrained_model_name_or_path": split_name(name)[0],
        "revision": find_revision(name, "model"),
        "trust_remote_code": allowed,
    }


def is_allowed_remote_code(name: str) -> bool:
    """Whether $MIALIB_REMOTE_CODE names the model."""
    return name in re.split(r"[,\s]+", os.environ.get(REMOTE_CODE_VARIABLE, ""))


def _needs_remote_code(name: str) -> Unavailable:
    return Unavailable(
        f"model {name} is Python code that its authors publish beside the weights; loading it runs that code here, "
        f"with all your rights. If you have read and trust it, set {REMOTE_CODE_VARIABLE}={name}"
    )


def pick_device(device: str = "auto") -> torch.device:
    """The wanted device; "auto" takes CUDA, then Apple's GPU, then the CPU."""
    import torch

    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def pick_dtype(dtype: str, device: torch.device, model: str) -> torch.dtype:
    """The weights' type; "auto" is float32 on a CPU, on CUDA the type a known model is published in, else bfloat16."""
    import torch

    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    if dtype == "auto" and device.type == "cuda":
        known = find_model(model)
        dtype = known.dtype if known else "bfloat16"
    return getattr(torch, "float32" if dtype == "auto" else dtype)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub name, folder or lab model."""
    from transformers import AutoTokenizer

    name = tokenizer_name(name)
    try:
        return AutoTokenizer.from_pretrained(**source_of(name))
    except Exception as error:
        raise _not_loadable(name, error) from error


def load_model(
    name: str, *, device: str = "auto", dtype: str = "auto", start_token: str | None = "auto"
) -> LoadedModel:
    """Load a causal language model for scoring.

    `start_token` is prepended to each text so that its first token is predicted too (DC-PDD, Eq. 2): "auto" takes the
    papers' choice for the model or its family, else the tokenizer's start token, else its end token; None prepends
    nothing. Unavailable, in one sentence, for a model that can't be had or does not fit.
    """
    from transformers import AutoModelForCausalLM

    where = pick_device(device)
    torch_dtype = pick_dtype(dtype, where, name)
    check_fits(name, where, torch_dtype.itemsize)
    tokenizer = load_tokenizer(name)
    try:
        model = AutoModelForCausalLM.from_pretrained(**source_of(name), dtype=torch_dtype)
    except Exception as error:
        raise _not_loadable(name, error) from error
    model.to(where).eval().requires_grad_(False)
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        start_token_id=find_start_token(tokenizer, model.config.model_type, start_token_of(name, start_token)),
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
        model = AutoModelForMaskedLM.from_pretrained(**source_of(name), dtype=torch.float32)
    except Exception as error:
        raise _not_loadable(name, error, "masked") from error
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise ValueError(f"the tokenizer of {name} lacks a mask or a padding token, so it is not a masked model's")
    if not (hasattr(model, "lm_head") or hasattr(model, "cls")):
        raise ValueError(
            f"{name} is a {model.config.model_type}; masked models of the BERT and RoBERTa families can be used"
        )
    return model.to(pick_device()).eval().requires_grad_(False), tokenizer


def _not_loadable(name: str, error: Exception, kind: str = "causal") -> OSError:
    if isinstance(error, Unavailable):
        return error
    if "trust_remote_code" in str(error):
        return _needs_remote_code(name)
    folder = local_path(name)
    if folder is None:
        return explain(name, "model", error)
    return OSError(
        f"model {name!r} is a folder ({folder}), but not one that save_pretrained wrote for a {kind} language model "
        f"and its tokenizer ({type(error).__name__}: {(str(error).splitlines() or ['?'])[0]}); give one that is"
    )


def check_fits(name: str, device: torch.device, bytes_a_parameter: int) -> None:
    """Unavailable where a model from elsewhere, told by its config before its weights are downloaded, needs more memory
    than is free."""
    if name.startswith("lab/"):
        return
    needed = count_parameters(name, embeddings=True) * bytes_a_parameter + SPARE_BYTES
    free = free_bytes(device)
    if needed > free:
        raise Unavailable(
            f"model {name} needs {needed / 1e9:.1f} GB of memory at {bytes_a_parameter} bytes a parameter, and "
            f"{device} has {free / 1e9:.1f} GB free; run it on a larger machine"
        )


def free_bytes(device: torch.device) -> int:
    """Memory that a model could still take on the device."""
    import gc

    import psutil
    import torch

    if device.type != "cuda":
        return psutil.virtual_memory().available
    gc.collect()  # of models that are done with, torch keeps the memory until it is asked to give it back
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def start_token_of(name: str, start_token: str | None = "auto") -> str | None:
    """The start token that "auto" stands for, where the registry knows the model: its papers' choice."""
    known = find_model(name)
    return known.start_token if known and start_token == "auto" else start_token


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


def load_config(name: str) -> Any:
    """A model's config: a few kilobytes, without its weights."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(**source_of(name))
    except Exception as error:
        raise _not_loadable(name, error) from error


def vocabulary_size(name: str) -> int:
    """|V|, the rows of the model's output, read from its config alone."""
    return load_config(name).vocab_size


def count_parameters(name: str, *, embeddings: bool = False) -> int:
    """Parameters, with or without embeddings and output head, from the config: no weight is downloaded or filled."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    config, source = load_config(name), source_of(name)
    code = getattr(config, "auto_map", {}).get("AutoModelForCausalLM")
    try:
        with torch.device("meta"):
            if code and source.pop("trust_remote_code"):  # `from_config` would take the code of the hub's `main`
                model = get_class_from_dynamic_module(code, **source)(config)
            else:
                model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:
        raise _not_loadable(name, error) from error
    if embeddings:
        return model.num_parameters()
    tables = {id(m.weight): m.weight.numel() for m in (model.get_input_embeddings(), model.get_output_embeddings())}
    return model.num_parameters() - sum(tables.values())


def model_revision(name: str) -> str:
    """What pins weights, config and tokenizer: the content hash of a folder's files, or the hub's commit."""
    folder = local_path(name)
    if folder is None:
        return f"{split_name(name)[0]}@{find_revision(name, 'model')}"
    files = sorted(p for p in folder.iterdir() if p.suffix in MODEL_FILES and p.name not in NOT_MODEL_FILES)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: config.json, weights and tokenizer files are expected")
    return _hash_once(tuple((p, p.stat().st_size, p.stat().st_mtime_ns) for p in files))


@cache
def _hash_once(stamped: tuple[tuple[Path, int, int], ...]) -> str:
    """The hash of files, kept by their sizes and times: reading tens of gigabytes for each command takes minutes."""
    key = hash_of([(str(path.resolve()), size, time) for path, size, time in stamped])
    files = [path for path, _, _ in stamped]
    kept = once(home() / "cache" / "hashes" / f"{key}.json", lambda to: write_json(to, hash_files(files)))
    return json.loads(kept.read_text())


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
