"""Models with a LoRA adapter of PEFT: its folder, or `adapter:ORG/NAME` for one on the hub.

The base is the model that the adapter's config names, in any form that a model may have. Without the adapter it is the
natural reference for detectors that take one.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mialib.catalog.hub import find_revision, local_copy, split_name
from mialib.catalog.models import ADAPTER_CONFIG, Weights, model_revision
from mialib.catalog.sources import source_of
from mialib.extras import require
from mialib.store import hash_files, hash_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PREFIX = "adapter:"
ADAPTER_FILES = (ADAPTER_CONFIG, "adapter_model.safetensors", "adapter_model.bin")


class Adapter(Weights):
    """An adapter on its base; what is not said here is the base's."""

    def place(self, model: str) -> Path:
        """The adapter's folder: it, a copy under $MIALIB_MODELS, or what is fetched of the hub's."""
        name = model.removeprefix(PREFIX)
        folder = Path(name) if Path(name).is_dir() else local_copy(name, "model")
        if folder is None:
            from huggingface_hub import snapshot_download

            commit = find_revision(name, "model")
            folder = Path(snapshot_download(split_name(name)[0], revision=commit, allow_patterns=list(ADAPTER_FILES)))
        if not (folder / ADAPTER_CONFIG).is_file():
            raise FileNotFoundError(f"model {model}: {folder} has no {ADAPTER_CONFIG}; give an adapter's folder")
        return folder

    def base(self, model: str) -> str:
        """The model that it was trained on; ValueError where its config names none."""
        path = self.place(model) / ADAPTER_CONFIG
        try:
            name = json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"]
        except (ValueError, KeyError, TypeError):
            name = None
        if not isinstance(name, str) or not name:
            raise ValueError(f"{path} does not name the model that it was trained on (base_model_name_or_path)")
        beside = path.parent / name  # a path may be meant from the adapter's folder
        name = str(beside) if not Path(name).exists() and beside.exists() else name
        if source_of(name) is self:
            raise ValueError(f"{path}: its base {name} is an adapter too; merge that into its own base first")
        return name

    def folder(self, model: str) -> Path | None:
        """The base's."""
        base = self.base(model)
        return source_of(base).folder(base)

    def tokenizer(self, model: str) -> str | None:
        """The base's: an adapter that adds tokens of its own is refused where its weights are read."""
        base = self.base(model)
        return source_of(base).tokenizer(base)

    def revision(self, model: str) -> str:
        """Of adapter and base."""
        folder = self.place(model)
        files = [folder / name for name in ADAPTER_FILES if (folder / name).is_file()]
        return hash_of([hash_files(files), model_revision(self.base(model))])

    def versions(self, model: str) -> dict[str, int]:
        """The base's."""
        base = self.base(model)
        return source_of(base).versions(base)

    def complete(self, model: str, base: PreTrainedModel) -> PreTrainedModel:
        """The base, whose layers are wrapped by the adapter's from here on; ValueError for one that does not fit."""
        require("peft", f"model {model}")
        from peft import PeftConfig, PeftModel

        folder = self.place(model)
        try:
            config = PeftConfig.from_pretrained(str(folder))
            if config.peft_type != "LORA":
                raise ValueError(f"it is of the type {config.peft_type}, and LORA alone is read")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of what peft asks transformers
                adapted = PeftModel(base, config)  # type: ignore[arg-type]
                report = adapted.load_adapter(str(folder), "default")
        except Exception as error:  # of many classes
            said = " ".join(str(error).split())
            raise ValueError(
                f"model {model}: its adapter does not fit its base {self.base(model)} ({said:.300})"
            ) from error
        lacking = [key for key in report.missing_keys if "lora_" in key or "modules_to_save" in key]
        if lacking or report.unexpected_keys:
            odd = (lacking or report.unexpected_keys)[0]
            what = (
                "lacks weights that its config asks for" if lacking else "has weights that its config does not ask for"
            )
            raise ValueError(f"model {model}: its adapter {what}, first {odd}; get it again")
        return cast("PreTrainedModel", adapted.get_base_model())
