"""Models with a LoRA adapter of PEFT: its folder, or `adapter:ORG/NAME` for one on the hub.

The base is the model that the adapter's config names, in any form that a model may have. Without the adapter it is the
natural reference for detectors that take one.
"""

from __future__ import annotations

import json
import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mialib.catalog.hub import find_revision, local_copy, split_name
from mialib.catalog.models import ADAPTER_CONFIG, Weights, find_weights
from mialib.extras import require
from mialib.store import hash_files, hash_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PREFIX = "adapter:"
ADAPTER_FILES = (ADAPTER_CONFIG, "adapter_model.safetensors", "adapter_model.bin")


class Adapter(Weights):
    """An adapter on its base; all else is the base's."""

    @cached_property
    def place(self) -> Path:
        """The adapter's folder: the named one, a copy under $MIALIB_MODELS, or one fetched from the hub."""
        name = self.name.removeprefix(PREFIX)
        folder = Path(name) if Path(name).is_dir() else local_copy(name, "model")
        if folder is None:
            from huggingface_hub import snapshot_download

            commit = find_revision(name, "model")
            folder = Path(snapshot_download(split_name(name)[0], revision=commit, allow_patterns=list(ADAPTER_FILES)))
        return folder

    @property
    def base(self) -> str:
        """The name of the model that it was trained on."""
        return self.base_model.name

    @cached_property
    def base_model(self) -> Weights:
        """The model that it was trained on; ValueError where the config names none."""
        path = self.place / ADAPTER_CONFIG
        name = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
        if not name:
            raise ValueError(f"{path} does not name the model that it was trained on (base_model_name_or_path)")
        beside = path.parent / name  # a path may be meant from the adapter's folder
        base = find_weights(str(beside) if not Path(name).exists() and beside.exists() else name)
        if isinstance(base, Adapter):
            raise ValueError(f"{path}: its base {base.name} is an adapter too; merge that into its own base first")
        return base

    @property
    def folder(self) -> Path | None:
        """The folder of the base."""
        return self.base_model.folder

    @property
    def tokenizer(self) -> str | None:
        """The tokenizer of the base: an adapter that adds tokens of its own is refused where its weights are read."""
        return self.base_model.tokenizer

    @property
    def revision(self) -> str:
        """A hash of adapter and base."""
        files = [self.place / name for name in ADAPTER_FILES if (self.place / name).is_file()]
        return hash_of([hash_files(files), self.base_model.revision])

    @property
    def versions(self) -> dict[str, int]:
        """The versions of the base."""
        return self.base_model.versions

    def complete(self, base: PreTrainedModel) -> PreTrainedModel:
        """Wrap the base's layers by the adapter's, in place; ValueError for an adapter that does not fit."""
        require("peft", f"model {self.name}")
        from peft import PeftConfig, PeftModel

        folder = self.place
        try:
            config = PeftConfig.from_pretrained(str(folder))
            if config.peft_type != "LORA":
                raise ValueError(f"it is of the type {config.peft_type}, and LORA alone is read")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of what peft asks transformers
                adapted = PeftModel(base, config)  # type: ignore[arg-type]
                report = adapted.load_adapter(str(folder), "default")
        except Exception as error:  # of many classes
            said = f"its adapter does not fit its base {self.base} ({' '.join(str(error).split()):.300})"
            raise ValueError(f"model {self.name}: {said}") from error
        missing = [key for key in report.missing_keys if "lora_" in key or "modules_to_save" in key]
        if odd := missing or report.unexpected_keys:
            what = "lacks weights of its config" if missing else "has weights that its config does not ask for"
            raise ValueError(f"model {self.name}: its adapter {what}, first {odd[0]}; get it again")
        return cast("PreTrainedModel", adapted.get_base_model())
