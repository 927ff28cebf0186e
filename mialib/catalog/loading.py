"""Loading the weights of a model by its name. The causal model that was asked for last stays loaded."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mialib import scoring
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import (
    ADAPTER_CONFIG,
    SPARE_BYTES,
    Weights,
    find_weights,
    hash_of_tokenizer,
    load_tokenizer,
    silent_transformers,
)
from mialib.catalog.sources import find
from mialib.models import LoadedModel, free_bytes, pick_device
from mialib.shared.files import first_of
from mialib.store import hash_of, home

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# The causal mask of GPT-2 and GPT-Neo, and OPT's version number.
OLD_BUFFER = re.compile(r"\.attn(\.attention)?\.(masked_)?bias$|rotary_emb\.inv_freq$|decoder\.version$")
LAYER_NUMBER = re.compile(r"\.\d+\.")  # in a weight's name

_loaded: dict[str, Scorer] = {}  # the one that was asked for last


def load_model(
    name: str, *, device: str = "auto", dtype: str = "auto", start_token: str | None = "auto"
) -> LoadedModel:
    """Load a causal language model for scoring.

    `start_token` as for `mialib.models.find_start_tokens`; "auto" is, for a model that the registry names, what one
    paper, DC-PDD, prepends. Much public code prepends nothing to Pythia and its like, which is None. Unavailable for a
    model that can't be loaded or does not fit; ValueError for a whole one with an adapter beside it.
    """
    source, where = find_weights(name), pick_device(device)
    torch_dtype = source.dtype_on(where, dtype)
    too_large = source.why_too_large(where, torch_dtype.itemsize)
    if too_large and not find_spec("accelerate"):  # which spreads it
        raise Unavailable(too_large)
    folder, tokenizer = source.folder, load_tokenizer(name)
    if folder and (folder / ADAPTER_CONFIG).is_file():
        said = f"the adapter beside its weights ({ADAPTER_CONFIG}) would not be read"
        raise ValueError(f"model {name}: {said}; merge it into the weights, or score a folder without it")
    base = _load_weights(source.auto_class(), source, torch_dtype, where, is_spread=bool(too_large))
    return LoadedModel.of(
        source.complete(base),
        tokenizer,
        name=name,
        revision=source.revision,
        start_token=source.start_token(start_token),
        hash_of_tokenizer=hash_of_tokenizer(name),
    )


def _load_weights(
    family: Any,
    source: Weights,
    dtype: torch.dtype,
    where: torch.device,
    kind: str = "causal",
    is_spread: bool = False,
) -> PreTrainedModel:
    """Load a model with all weights from its files.

    ValueError that names the weights that the files lack, and those that they hold and the model does not take.
    """
    from transformers.utils import logging as theirs

    if not sys.stderr.isatty():  # a page or a log would keep the bar
        theirs.disable_progress_bar()
    name, options = source.name, {"dtype": dtype, "output_loading_info": True, "ignore_mismatched_sizes": True}
    if kind == "causal" and source.is_of_few_bits:
        options["device_map"] = {"": where}
    elif is_spread:
        logger.warning("%s does not fit on %s: it is spread over GPUs, memory and disk, which is slower", name, where)
        offloaded = {"offload_folder": str(home() / "offloaded" / hash_of(source.revision))}
        options |= {"device_map": "auto", "max_memory": free_places(), **offloaded}
    try:
        with silent_transformers():  # its table of what is lacking prints names as they are; we say it below
            model, report = family.from_pretrained(**source.arguments, **options)
    except Exception as error:
        raise source.not_loadable(error, kind) from error
    if missing := sorted(report["missing_keys"]) + sorted(key for key, *_ in report["mismatched_keys"]):
        said = f"{len(missing)} weights are missing from its files, or have another shape, and would be random"
        raise ValueError(f"model {name}: {said}: {first_of(missing, 3)}; get its files again")
    unexpected = [key for key in sorted(report["unexpected_keys"]) if not OLD_BUFFER.search(key)]
    if kind == "masked":  # whole modules beside a masked model, such as BERT's second head, are left out
        places = {LAYER_NUMBER.sub(".n.", key) for key in model.state_dict()}
        unexpected = [key for key in unexpected if LAYER_NUMBER.sub(".n.", key) in places]
    if unexpected:
        said = f"its config.json has no place for weights of its files: {first_of(unexpected, 3)}"
        raise ValueError(f"model {name}: {said}; get its files again, or a copy without these")
    if "device_map" not in options:
        model = model.to(where)
    return model


class Scorer(scoring.LoadedScorer):
    """A causal language model that scores texts.

    `model` is a Hugging Face name, a folder written by `save_pretrained`, a lab model (`lab/en-25k`), or a loaded
    transformers model with its `tokenizer`; the loaded model is switched to inference, without gradients. `device` is
    by default what the machine has. `dtype` is by default float32 on the CPU; on CUDA it is the type in
    `data/models.yml`, else bfloat16. `start_token` is prepended to each text: "auto" (that of
    `data/models.yml`, else the tokenizer's), a token, or None.

    >>> stats = Scorer("smollm2-135m").score(["The river rises in the hills.", "The mill"], progress=False)
    >>> len(stats)
    2
    """

    def __init__(
        self,
        model: str | Path | PreTrainedModel | LoadedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        start_token: str | None = "auto",
    ) -> None:
        options: dict[str, Any] = {"device": device, "dtype": dtype, "start_token": start_token}
        read: Collection[str] = ()  # the options that still matter
        if isinstance(model, str | Path) and tokenizer is None:
            loaded, read = load_model(str(model), **options), options
        elif isinstance(model, LoadedModel) and tokenizer is None:
            loaded = model
        elif hasattr(model, "get_output_embeddings") and tokenizer is not None:
            name, read = getattr(model, "name_or_path", "") or type(model).__name__, {"start_token"}
            weights, start_token = cast("PreTrainedModel", model), find(name).start_token(start_token)
            loaded = LoadedModel.of(weights, tokenizer, name=name, start_token=start_token)
        else:
            kinds = f"{type(model).__name__} and {type(tokenizer).__name__}"
            raise ValueError(f"a model's name or folder, or a loaded model and its tokenizer are expected, got {kinds}")
        if too_late := [name for name, value in options.items() if name not in read and value != "auto"]:
            raise ValueError(f"the model is loaded already; give {too_late[0]} where it is loaded")
        super().__init__(loaded)


def load_scorer(name: str, *, device: str = "auto", dtype: str = "auto", start_token: str | None = "auto") -> Scorer:
    """A `Scorer` of a model by name; the one that was asked for last stays loaded."""
    model, where = find_weights(name), pick_device(device)
    key = hash_of([model.revision, name, str(where), str(model.dtype_on(where, dtype)), model.start_token(start_token)])
    if key not in _loaded:
        unload()  # before the next one is loaded: both need not fit
        _loaded[key] = Scorer(name, device=device, dtype=dtype, start_token=start_token)
    return _loaded[key]


def unload() -> None:
    """Drop the model that `load_scorer` holds, so that another one has its memory."""
    _loaded.clear()


def load_masked_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a masked language model (BERT, RoBERTa and their like) in float32, and its tokenizer."""
    import torch
    from transformers import AutoModelForMaskedLM

    source, tokenizer = find_weights(name), load_tokenizer(name)
    model = _load_weights(AutoModelForMaskedLM, source, torch.float32, pick_device(), "masked")
    has_tokens = None not in (tokenizer.mask_token_id, tokenizer.pad_token_id)
    if not has_tokens or not (hasattr(model, "lm_head") or hasattr(model, "cls")):
        wanted = "a masked model of the BERT or RoBERTa family, with a mask and a padding token, is expected"
        raise ValueError(f"model {name} is a {model.config.model_type}; {wanted}")
    return model.eval().requires_grad_(False), tokenizer


def free_places() -> dict[int | str, int]:
    """The bytes that a model may take of each GPU and of the memory; the rest of it goes to the disk."""
    import torch

    places: dict[int | str, torch.device] = {i: torch.device("cuda", i) for i in range(torch.cuda.device_count())}
    places["cpu"] = torch.device("cpu")
    return {of: max(0, free_bytes(device) - SPARE_BYTES) for of, device in places.items()}
