"""Models by name: a folder, a copy under $MIALIB_MODELS, or the hub at a known commit; their configs and tokenizers.

It imports neither torch nor transformers until a config, a tokenizer or weights (`loading`) are read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from mialib.batches import encode
from mialib.cache import JSON, STATS, STATS_PARTS, Checkpoints, cached, cached_shards, is_cached
from mialib.catalog.hub import Unavailable, cached_snapshots, explain, find_revision, local_copy, split_name
from mialib.catalog.registry import known_models
from mialib.catalog.sources import Dtype, PartsMissing, PassOptions, Source, find
from mialib.extras import require
from mialib.models import ORDINARY_TEXTS, device_type, free_bytes, multimodal_error, prepended, tokenizer_hash
from mialib.plain import check_one_of, did_you_mean
from mialib.store import hash_files, hash_of, hash_texts, version
from mialib.token_stats import StatsPart, TokenStats
from mialib.versions import versions_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MODEL_FILES = (".json", ".safetensors", ".bin", ".model", ".txt", ".py", ".tiktoken", ".codes", ".spm", ".vocab")
ADAPTER_CONFIG = "adapter_config.json"
LAB_CARD = "lab.json"  # no part of the model: it holds the training's seconds
DTYPES = get_args(Dtype)
REMOTE_CODE_VARIABLE = "MIALIB_REMOTE_CODE"  # comma-separated names of models whose own code may run here
SPARE_BYTES = 2 * 10**9  # beside the weights: activations, logits, the libraries themselves
# Texts that tokenizers of one vocabulary may cut otherwise: digits, spaces, lines, case, accents and signs.
CUT_TEXTS = (
    *("In 2023 it's 3.14% of 1,000,000; I'M sure!\n\nYES", "two  spaces,   three,\tand a tab ", " a leading space"),
    *("\n\n  new\r\nlines \n\n\n", "if x[0]!=y:\n        return {'a':-1}\n\n\n# __init__", "helloWorld HELLO İstanbul"),
    *("🙂👩‍👩‍👧 ok", "é e\u0301 Ａ ﬁ ½ ²", "สวัสดี नमस्ते مرحبا", "non\u00a0breaking\u3000wide"),
    "这条河2023年，发源于 北方。",
)
TOKENIZER = "tokenizer.json"
MISTRAL_FLAG = "fix_mistral_regex"
TEKKEN_TOKEN = "[TOOL_CALLS]"  # in each vocabulary of Mistral's that has more than 100,000 tokens
TRAINING_BYTES = 16  # a parameter, in float32: weight, gradient and AdamW's two moments

_tokenizers: dict[str, PreTrainedTokenizerBase] = {}


class Weights(Source):
    """A folder that `save_pretrained` wrote, a copy under $MIALIB_MODELS, or a name on the hub."""

    has_weights = is_fetched = True

    @property
    def folder(self) -> Path | None:
        """The folder, or that of a copy; None for a name on the hub."""
        return Path(self.name) if Path(self.name).is_dir() else local_copy(self.name, "model")

    def check(self) -> None:
        """Raise as loading would, by the config alone."""
        try:
            self.auto_class()
        except Unavailable as error:
            aliases = [model.alias for model in known_models().values() if model.alias]
            if "/" not in self.name and (alike := did_you_mean(self.name, aliases)):
                raise Unavailable(f"there is no model {self.name!r} here{alike}: {error}") from None
            raise

    @property
    def revision(self) -> str:
        """The content hash of the files, or the hub's commit."""
        if files := self.files():
            return _hash_once(tuple((file, *_stamp(file)) for file in files))
        return f"{split_name(self.name)[0]}@{find_revision(self.name, 'model')}"

    def files(self) -> list[Path]:
        """The files that decide the scores: of weights, config and tokenizer; none of a name on the hub."""
        folder = self.folder
        if folder is None:
            return []
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} holds no model: config.json, weights and tokenizer files are expected")
        files = {p for p in folder.iterdir() if p.suffix in MODEL_FILES and p.name != LAB_CARD}
        for index in folder.glob("*.index.json"):  # of weights in several files, which may lie in subfolders
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            files |= {folder / name for name in names}
        return sorted(files)

    @property
    def vocabulary_size(self) -> int:
        """|V|, the rows of the model's output, read from the config alone."""
        return self.config.get_text_config().vocab_size

    def read_tokenizer(self, **flags: Any) -> PreTrainedTokenizerBase:
        """The tokenizer as transformers reads it."""
        from transformers import AutoTokenizer

        # The package mistral-common has no way to read special tokens in a text as text.
        return AutoTokenizer.from_pretrained(**self.arguments, mistral_format=False, **flags)

    def count_parameters(self, *, embeddings: bool = False) -> int:
        """Parameters, with or without embeddings and output head, from the config."""
        import torch
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        config, source, family = self.config, self.arguments, self.auto_class()
        code = getattr(config, "auto_map", {}).get("AutoModelForCausalLM")
        try:
            with torch.device("meta"):
                if code and source.pop("trust_remote_code"):  # `from_config` would take the code of the hub's `main`
                    empty = get_class_from_dynamic_module(code, **source)(config)
                else:
                    empty = family.from_config(config, trust_remote_code=False)
        except Exception as error:
            raise self.not_loadable(error) from error
        if embeddings:
            return empty.num_parameters()
        tables = {id(m.weight): m.weight.numel() for m in (empty.get_input_embeddings(), empty.get_output_embeddings())}
        return empty.num_parameters() - sum(tables.values())

    def complete(self, base: PreTrainedModel) -> PreTrainedModel:
        """Complete the loaded weights, as an adapter does."""
        return base

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """Score texts, cached; options as for `Scorer` and its `score`. PartsMissing names the missing parts."""
        after, temperature, part = options.after, options.temperature, options.part
        loading: dict[str, Any] = {"device": options.device, "dtype": options.dtype, "start_token": options.start_token}
        key = self.pass_key(**loading) | {"texts": hash_texts(texts)} | versions_of("scoring")
        key |= {"after": hash_texts([after])} if after else {}
        key |= {"temperature": temperature} if temperature != 1 else {}

        def make(
            checkpoints: Checkpoints, part: tuple[int, int] | None = None, saved: Sequence[StatsPart] = ()
        ) -> TokenStats:
            from mialib.catalog.loading import load_scorer

            scoring: dict[str, Any] = {"after": after, "temperature": temperature, "part": part}
            saved = [*saved, *checkpoints]
            return load_scorer(self.name, **loading).score(texts, **scoring, saved=saved, save=checkpoints.add)

        if part is None or is_cached("token_stats", STATS, **key):
            return cached("token_stats", make, STATS, STATS_PARTS, **key)
        cached("token_stats", partial(make, part=part), STATS, STATS_PARTS, **key, part=part)
        shards, missing = cached_shards("token_stats", STATS_PARTS, part[1], **key)
        if missing:
            raise PartsMissing(f"{self.name} on {len(texts)} texts: parts {', '.join(map(str, missing))} of {part[1]}")
        stats = TokenStats.joined(shards, provenance=shards[0].stats.provenance)
        if len(stats) < len(texts):
            return cached("token_stats", partial(make, saved=shards), STATS, STATS_PARTS, **key)
        del shards  # before the table is read again: not three times in memory
        return cached("token_stats", lambda _: stats, STATS, STATS_PARTS, **key)

    # --- how transformers loads it ---

    @property
    def arguments(self) -> dict[str, Any]:
        """What `from_pretrained` takes: the folder, or the hub name with its commit; of an adapter, its base's.

        Unavailable for a model that brings its own code, unless $MIALIB_REMOTE_CODE names it.
        """
        name, entry = self.base or self.name, self.known
        allowed = is_allowed_remote_code(name)
        if entry and entry.remote_code and not allowed:
            raise _needs_remote_code(name)
        if folder := self.folder:
            return {"pretrained_model_name_or_path": str(folder), "trust_remote_code": allowed}
        where = {"pretrained_model_name_or_path": split_name(name)[0], "revision": find_revision(name, "model")}
        return where | {"trust_remote_code": allowed}

    @property
    def config(self) -> Any:
        """The config, read without the weights."""
        from transformers import AutoConfig

        arguments = self.arguments
        try:
            with silent_transformers():
                return AutoConfig.from_pretrained(**arguments)
        except Exception as error:
            raise self.not_loadable(error) from error

    @property
    def is_of_few_bits(self) -> bool:
        """Whether the weights are a quantized checkpoint's, which the config says how to read."""
        return getattr(self.config, "quantization_config", None) is not None

    def auto_class(self) -> Any:
        """Transformers' class that loads the model; ValueError for a multimodal one without a causal text model."""
        from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM
        from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES

        config = self.config
        if config.get_text_config() is config or "AutoModelForCausalLM" in getattr(config, "auto_map", {}):
            return AutoModelForCausalLM
        if config.model_type in MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES and not config.is_encoder_decoder:
            return AutoModelForMultimodalLM
        raise multimodal_error(self.name, config.model_type, "transformers has no causal language model of it")

    def not_loadable(self, error: Exception, kind: str = "causal") -> OSError:
        """What to raise for an error of transformers."""
        name = self.base or self.name
        if "trust_remote_code" in str(error):
            return _needs_remote_code(name)
        folder = None if isinstance(error, Unavailable) else self.folder
        if folder is None:
            return explain(name, "model", error)
        why = f"{type(error).__name__}: {(str(error).splitlines() or ['?'])[0]}"
        wanted = f"a {kind} language model and its tokenizer, as save_pretrained writes them"
        return OSError(f"model {name!r}: the folder {folder} is not one of {wanted} ({why})")

    def dtype_name(self, device_type: str, dtype: str = "auto") -> str:
        """The name of the weights' type; "auto" is float32 on a CPU, else the registry's, else bfloat16."""
        check_one_of(dtype, DTYPES, "dtype")
        if dtype == "auto" and device_type == "cuda":
            dtype = self.known.dtype if self.known else self.gpu_dtype
        return "float32" if dtype == "auto" else dtype

    def dtype_on(self, device: torch.device, dtype: str = "auto") -> torch.dtype:
        """The weights' type on a device."""
        import torch

        return getattr(torch, self.dtype_name(device.type, dtype))

    def needed_bytes(self, bytes_a_parameter: int) -> int:
        """The memory that weights and a pass take; 0 for a model that is small and always here."""
        return self.count_parameters(embeddings=True) * bytes_a_parameter + SPARE_BYTES if self.is_fetched else 0

    def why_too_large(self, device: torch.device, bytes_a_parameter: int) -> str:
        """A sentence where the model needs more memory than is free on the device, before its weights are fetched."""
        if (needed := self.needed_bytes(bytes_a_parameter)) <= (free := free_bytes(device)):
            return ""
        sizes = f"needs {needed / 1e9:.1f} GB of memory, and {device} has {free / 1e9:.1f} GB free"
        return f"model {self.name} {sizes}; run it on a larger machine"

    def pass_key(
        self, *, device: str = "auto", dtype: str = "auto", start_token: str | None = "auto"
    ) -> dict[str, Any]:
        """The entries of a pass's cache key, without the texts and the versions of our code."""
        where, facts = device_type(device), tokenizer_facts(tokenizer_source(self.name))
        reading = {name: fact for name, fact in facts.items() if name != "hash"}
        return {
            "model": self.revision,
            "device": where,
            "dtype": f"torch.{self.dtype_name(where, dtype)}",
            "start_token": self.start_token(start_token),
            **({"tokenizer": reading} if reading else {}),
            "versions": [version(name) for name in ("torch", "transformers", "tokenizers")],
        } | self.versions


def find_weights(name: str) -> Weights:
    """Return the model of a name; ValueError where its weights are not here."""
    model = find(name)
    return model if isinstance(model, Weights) else model.no_weights()


def is_allowed_remote_code(name: str) -> bool:
    """Whether $MIALIB_REMOTE_CODE names the model."""
    return name in re.split(r"[,\s]+", os.environ.get(REMOTE_CODE_VARIABLE, ""))


def _needs_remote_code(name: str) -> Unavailable:
    return Unavailable(
        f"model {name} is Python code that its authors publish beside the weights; loading it runs that code here, "
        f"with all your rights. If you have read and trust it, set {REMOTE_CODE_VARIABLE}={name}"
    )


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; ValueError where none is known."""
    model = tokenizer_source(name)
    key = _tokenizer_key(model)
    if key not in _tokenizers:
        facts = tokenizer_facts(model)  # which loads it where they are not cached
    if key not in _tokenizers:
        _tokenizers[key] = _read_tokenizer(model, facts)
    return _tokenizers[key]


def hash_of_tokenizer(name: str) -> str:
    """The content hash of a model's tokenizer, which is loaded only where the cache lacks it."""
    return tokenizer_facts(tokenizer_source(name))["hash"]


def tokenizer_source(name: str) -> Weights:
    """The model that brings the tokenizer of a model; ValueError where none is known."""
    tokenizer = find(name).tokenizer
    if tokenizer is None:
        raise ValueError(f"no tokenizer is known for {name}: set MIALIB_API_TOKENIZER to a hub name or a folder")
    return find_weights(tokenizer)


def tokenizer_facts(model: Weights) -> dict[str, Any]:
    """The hash of a model's tokenizer, and how to read it where transformers' class would read it wrongly.

    Cached by the files' sizes and times, since both take seconds.

    - `special_tokens`: the class can't be loaded, or cuts texts otherwise than the model's tokenizer.json. That file is
      read alone, with these tokens, which only the class names.
    - `fix_mistral_regex`: the tokenizer.json needs this flag of transformers, and the vocabulary is Mistral's.
    - `start_tokens`: the tokenizer itself prepends several.
    """
    key = _tokenizer_key(model)

    def decide() -> dict[str, Any]:
        try:
            tokenizer = _read_tokenizer(model, {})
            reading = _mended(tokenizer, _tokenizer_file(model.arguments))
        except Unavailable:  # which may be so for a moment only
            raise
        except Exception:  # of many classes: transformers' class is not the file's
            if not _tokenizer_file(model.arguments):
                raise
            reading = {"special_tokens": {}}
        tokenizer = _tokenizers[key] = _read_tokenizer(model, reading) if reading else tokenizer
        several = {"start_tokens": tokens} if len(tokens := prepended(tokenizer)) > 1 else {}
        return reading | several | {"hash": tokenizer_hash(tokenizer)}

    versions = [version("transformers"), version("tokenizers")]
    return cached("tokenizer_facts", decide, JSON, files=key, texts=hash_texts(CUT_TEXTS), versions=versions)


def _mended(tokenizer: PreTrainedTokenizerBase, file: Path | None) -> dict[str, Any]:
    """How to read a tokenizer, as `tokenizer_facts` says, that transformers has read once."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    is_warned_of = tokenizer.is_fast and getattr(tokenizer.backend_tokenizer, MISTRAL_FLAG, None) is False
    # transformers warns of any large vocabulary in a model of Mistral's kind, and its pattern is that of one.
    if is_warned_of and TEKKEN_TOKEN in tokenizer.get_vocab() and MISTRAL_FLAG not in tokenizer.init_kwargs:
        return {MISTRAL_FLAG: True}
    is_of_model = not type(tokenizer).__module__.startswith("transformers.")  # whose code a person has allowed
    if not file or is_of_model or type(tokenizer) is PreTrainedTokenizerFast:
        return {}
    alone = Tokenizer.from_file(str(file))
    alone.encode_special_tokens = True
    alone.no_padding()
    alone.no_truncation()
    texts = [
        *ORDINARY_TEXTS,
        *CUT_TEXTS,
        *(f"a{token.content}b" for token in alone.get_added_tokens_decoder().values()),
    ]
    if encode(tokenizer, texts) == [cut.ids for cut in alone.encode_batch(texts, add_special_tokens=False)]:
        return {}
    vocabulary, named = alone.get_vocab(), tokenizer.special_tokens_map
    return {"special_tokens": {role: token for role, token in named.items() if token in vocabulary}}


def _tokenizer_key(model: Weights) -> str:
    """A hash of the arguments of `from_pretrained`, and of the sizes and times of the folder's files."""
    folder = model.folder
    files = [(file.name, *_stamp(file)) for file in sorted(folder.iterdir())] if folder else []
    return hash_of([model.arguments, files])


def _tokenizer_file(source: dict[str, Any]) -> Path | None:
    """The tokenizer.json beside a model's weights, in its folder or in the hub's cache."""
    place = source["pretrained_model_name_or_path"]
    folders = [Path(place)]
    if "revision" in source:
        folders = [folder for folder in cached_snapshots(place, "model") if folder.name == source["revision"]]
    return next((folder / TOKENIZER for folder in folders if (folder / TOKENIZER).is_file()), None)


def _read_tokenizer(model: Weights, reading: dict[str, Any]) -> PreTrainedTokenizerBase:
    """A tokenizer, read as `tokenizer_facts` says."""
    try:
        with silent_transformers():
            if "special_tokens" in reading:
                from transformers import PreTrainedTokenizerFast

                tokenizer = PreTrainedTokenizerFast.from_pretrained(**model.arguments)
                for role, token in reading["special_tokens"].items():
                    setattr(tokenizer, role, token)
            else:
                tokenizer = model.read_tokenizer(**{MISTRAL_FLAG: True} if MISTRAL_FLAG in reading else {})
    except Exception as error:
        for package in ("sentencepiece", "google.protobuf"):
            if package.removeprefix("google.") in str(error).lower():
                require(package, f"the tokenizer of {model.name}")
        raise model.not_loadable(error) from error
    if tokenizer.is_fast and type(tokenizer.backend_tokenizer.model).__name__ == "BPE":
        tokenizer.clean_up_tokenization_spaces = False  # as it is for BPE in any case, but with a warning
    return tokenizer


@contextmanager
def silent_transformers() -> Iterator[None]:
    """Silence transformers' advice to its callers: mialib follows it, or says itself what is wrong."""
    from transformers.utils import logging as theirs

    verbosity = theirs.get_verbosity()
    theirs.set_verbosity_error()
    try:
        yield
    finally:
        theirs.set_verbosity(verbosity)


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes with a file's content: a copy may keep size and time, but not all four."""
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


@cache
def _hash_once(stamped: tuple[tuple[Any, ...], ...]) -> str:
    """The hash of files, cached by their sizes and times: reading tens of gigabytes takes minutes."""
    files = [(str(path.resolve()), *stamp) for path, *stamp in stamped]
    return cached("hashes", lambda: hash_files(path for path, *_ in stamped), JSON, files=files)
