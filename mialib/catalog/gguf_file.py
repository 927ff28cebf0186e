"""Read a GGUF file as a model of transformers: config, tokenizer, weights.

One walk over the file: each field is taken by an entry below or is one of `HARMLESS`, and each tensor becomes a weight
or a factor of the rotary embedding. A field that is left over, or has a value that can't be honoured, is refused by
name: one that nobody reads (a scaled RoPE, a soft-cap) makes another model of the same weights. What llama.cpp has in
its code and not in the file (how Gemma scales its queries, the default RoPE base) is here too.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mialib.store import write_json

if TYPE_CHECKING:
    from gguf import TensorNameMap
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast

SHARD_BYTES = 10**9  # of unpacked weights that are in memory at once, and in one file
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")  # as llama.cpp names the parts of a large file

# --- what changes a forward pass ---

MODEL_TYPES = {  # general.architecture -> transformers' model_type
    **{name: name for name in ("bloom", "falcon", "gemma", "gemma2", "gpt2", "lfm2", "llama", "mamba", "nemotron")},
    **{name: name for name in ("phi3", "qwen2", "qwen3", "stablelm", "starcoder2")},
    **{"gemma3": "gemma3_text", "gpt-oss": "gpt_oss", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"},
}
SETTINGS = {  # a field of the architecture -> the config's names for it, of which each config class has one at most
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size n_inner ffn_hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads num_kv_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "attention.layer_norm_epsilon": "layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps layer_norm_epsilon norm_epsilon norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_weights_norm": "norm_topk_prob",
    "shortconv.l_cache": "conv_L_cache",
    "ssm.conv_kernel": "conv_kernel",
    "ssm.inner_size": "intermediate_size",
    "ssm.state_size": "state_size",
    "ssm.time_step_rank": "time_step_rank",
}
# What the weights' shapes say too (and they are compared), so that a config needs no place for it.
IN_SHAPES = (
    *("embedding_length", "feed_forward_length", "expert_feed_forward_length", "attention.head_count_kv"),
    *("attention.key_length", "attention.value_length"),
    "context_length",  # Bloom has no limit
)
NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count", "expert_used_count")
EPSILONS = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon")  # each file has one
FIXED = {  # the one value that can be honoured
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "expert_gating_func": 1,  # softmax
    "expert_weights_scale": 1.0,
    "logit_scale": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "ssm.dt_b_c_rms": False,
    "tensor_data_layout": "jploski",  # of Falcon's queries, keys and values
    "tokenizer.ggml.remove_extra_whitespaces": False,
}
FLAGS = {  # a switch of the config -> the tensors by which the file says that it is on
    "attention_bias": r"attn_(q|qkv)\.bias",
    "bias": r"attn_qkv\.bias",
    "conv_bias": r"shortconv\.\w+\.bias",
    "mlp_bias": r"ffn_up\.bias",
    "qk_layernorm": r"attn_q_norm\.weight",
    "qkv_bias": r"attn_q\.bias",
    "use_bias": r"(attn_output|ssm_in)\.bias",
    "use_conv_bias": r"ssm_conv1d\.bias",
    "use_qkv_bias": r"attn_q\.bias",
}
BY_ARCHITECTURE: dict[str, dict[str, Any]] = {  # what llama.cpp's code has and the file does not say
    "qwen2moe": {"norm_topk_prob": False},
    "qwen3moe": {"norm_topk_prob": True},
    "lfm2": {"block_auto_adjust_ff_dim": False},
}
# Layers of the sizes of Gemma whose queries are scaled by the width of a head as hidden size / heads; in the others it
# is the head's own width.
LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
WINDOW = {"gemma2": 4096}  # where the file says nothing of it
WINDOW_PATTERN = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}  # each n-th layer sees the whole text
PLUS_ONE = ("gemma", "gemma2", "gemma3", "nemotron")  # whose norms' weights are stored with 1 added
QK_NORM = re.compile(r"([qk]_layernorm)\.norms\.(\d+)")  # of StableLM, a norm a head
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")

# --- what changes the cutting into tokens ---

# By kind, what it is built from.
TOKENIZER_FIELDS = {"gpt2": ("tokens", "merges"), "llama": ("tokens", "token_type", "scores")}
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # types of tokens
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|"
    r"\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# By `tokenizer.ggml.pre`: the patterns by which a text is cut, one after the other, before its pieces become tokens.
PATTERNS = {
    name: patterns
    for names, patterns in (
        ("gpt-2 mpt olmo jais phi-2", [GPT2_WORDS]),
        ("smollm starcoder refact command-r codeshell exaone", [r"\p{N}", GPT2_WORDS]),
        ("llama-bpe llama3 llama-v3 falcon3 lfm2 dbrx smaug-bpe", [WORDS % "{1,3}"]),
        ("qwen2 stablelm2 deepseek-r1-qwen", [WORDS % ""]),
        ("bloom", [r" ?[^(\s|.,!?…。，、।۔،)]+"]),
        ("gpt-4o", [CASED % (SUFFIXES, SUFFIXES, "{1,3}")]),
        ("tekken", [CASED % ("", "", "")]),
    )
    for name in names.split()
}
# Where a piece that is a token stays one.
WHOLE_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2", "tekken")
HARMLESS = re.compile(
    r"rope\.scaling\.finetuned$|tokenizer\.(chat_template|huggingface\.json)|"
    r"tokenizer\.ggml\.(add_\w+_token|\w+_token_ids?|token_type_count)$"
)


class Tensor(NamedTuple):
    """A tensor's place in a file, still quantized."""

    shape: tuple[int, ...]
    kind: int  # of gguf.GGMLQuantizationType
    raw: NDArray[np.uint8]


@dataclass(frozen=True)
class GgufFile:
    """The fields and tensors of a GGUF file, or of all its parts."""

    fields: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the kind of model."""
        return self.fields["general.architecture"]


def find_parts(path: Path) -> list[Path]:
    """The files of a model, one or NAME-00001-of-00003.gguf and so on; FileNotFoundError names one that is missing."""
    paths, name = [path], PART.search(path.name)
    if name:
        stem, n_parts = path.name[: name.start()], int(name[2])
        paths = [path.with_name(f"{stem}-{i:05d}-of-{n_parts:05d}.gguf") for i in range(1, n_parts + 1)]
    if lost := [part for part in paths if not part.is_file()]:
        raise FileNotFoundError(f"{lost[0]} does not exist; give another path" + ", or get all parts" * bool(name))
    return paths


def read_gguf(paths: Iterable[Path]) -> GgufFile:
    """Read fields and the places of tensors; ValueError for a file that is damaged or of an old version."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    fields: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for path in paths:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = _Reader(data)
        if data[:4] != b"GGUF" or reader.number("I") not in (2, 3):
            raise ValueError(f"{path.name} is no GGUF file of version 2 or 3; get it again, or convert the model anew")
        n_tensors, n_fields = reader.number("Q"), reader.number("Q")
        here = {reader.string(): reader.value(reader.number("I")) for _ in range(n_fields)}
        places = []
        for _ in range(n_tensors):
            name, n_dimensions = reader.string(), reader.number("I")
            shape = tuple(reversed([reader.number("Q") for _ in range(n_dimensions)]))
            places.append((name, shape, reader.number("I"), reader.number("Q")))
        alignment = here.get("general.alignment", 32)
        start = -(-reader.at // alignment) * alignment
        for name, shape, kind, offset in places:
            n_weights, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            size = int(np.prod(shape)) // n_weights * n_bytes
            if start + offset + size > len(data):
                raise ValueError(f"{path.name} is cut off inside {name}; get it again")
            raw = np.frombuffer(data, np.uint8, size, start + offset)
            tensors[name] = Tensor(shape, kind, raw)
        fields = here | fields
    if (n_wanted := fields.get("split.tensors.count", len(tensors))) != len(tensors):
        raise ValueError(f"its parts hold {len(tensors)} tensors instead of {n_wanted}")
    return GgufFile(fields, tensors)


def quantization_of(file: GgufFile) -> str:
    """How a file says that its weights were rounded ("Q4_K_M"), else the type of most of them."""
    from gguf import GGMLQuantizationType, LlamaFileType

    if (stated := file.fields.get("general.file_type")) in set(LlamaFileType):
        return LlamaFileType(stated).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    sizes: Counter[int] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.kind] += int(np.prod(tensor.shape))
    return GGMLQuantizationType(sizes.most_common(1)[0][0]).name


class _Reader:
    """Numbers and strings of a file, one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 4

    def number(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return value

    def string(self) -> str:
        n_bytes = self.number("Q")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, n_values = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(n_values)]
        return self.number(SCALARS[kind])


# --- config ---


class Fields(dict[str, Any]):
    """The fields of model and tokenizer, without the architecture's name; it records which were read."""

    def __init__(self, file: GgufFile) -> None:
        prefix = f"{file.architecture}."
        own = {name: value for name, value in file.fields.items() if name.startswith((prefix, "tokenizer."))}
        super().__init__({name.removeprefix(prefix): value for name, value in own.items()})
        self.taken: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """Read a field's value; of a list with the same value for all layers, that value."""
        self.taken.add(name)
        value = self.get(name, default)
        is_uniform = isinstance(value, list) and len(value) > 0 and all(of == value[0] for of in value)
        return value[0] if is_uniform and not name.startswith("tokenizer.") else value

    def check_all_taken(self) -> None:
        """ValueError for a field that nothing has read."""
        left = [f"{name} = {self[name]!r:.60}" for name in self if name not in self.taken and not HARMLESS.match(name)]
        if left:
            raise ValueError(f"mialib can't honour its fields {'; '.join(left)}")


def config_of(file: GgufFile, fields: Fields) -> PreTrainedConfig:
    """The model's config; ValueError for an architecture, or for a field that the config has no place for."""
    from transformers import AutoConfig

    architecture, tensors = file.architecture, file.tensors
    if architecture not in MODEL_TYPES:
        raise ValueError(f"mialib reads no {architecture} from GGUF, only {', '.join(sorted(MODEL_TYPES))}")
    model_type = MODEL_TYPES[architecture]
    if model_type == "llama" and fields.get("attention.sliding_window"):
        model_type = "mistral"  # a Llama with a window
    ids = {f"{token}_token_id": fields.get(f"tokenizer.ggml.{token}_token_id") for token in ("bos", "eos")}
    default = AutoConfig.for_model(model_type, **ids | {"pad_token_id": None})
    places = {*default.to_dict(), *default.attribute_map}
    if "attention.key_length" in fields:
        places.add("head_dim")  # Qwen3's mixture of experts reads it, though its config does not declare it

    needed = [name for name in NEEDED if SETTINGS[name].split()[0] in places]
    needed += ["attention.sliding_window"] * (architecture == "gpt-oss")
    needed += [name for name in EPSILONS[1:] if EPSILONS[0] not in fields]
    if missing := [name for name in needed if name not in fields]:
        raise ValueError(f"its field {architecture}.{missing[0]} is missing; get it again")
    settings: dict[str, Any] = {
        flag: any(map(re.compile(of).search, tensors)) for flag, of in FLAGS.items() if flag in places
    }
    n_tokens = tensors["token_embd.weight"].shape[0]
    settings |= {"vocab_size": n_tokens, "tie_word_embeddings": "output.weight" not in tensors}
    settings |= BY_ARCHITECTURE.get(architecture, {}) | ids | {"pad_token_id": None}
    if fields.take("vocab_size", n_tokens) != n_tokens:
        raise ValueError(f"its vocab_size is {fields['vocab_size']}, and it embeds {n_tokens} tokens; get it again")
    fields.taken.add("use_parallel_residual")  # stale in many files; the tensors say it
    if "use_parallel_residual" in places:
        settings["use_parallel_residual"] = "blk.0.ffn_norm.weight" not in tensors
    fields.taken |= {name for name, wanted in FIXED.items() if fields.get(name) == wanted}
    if architecture == "lfm2":  # layers without keys are convolutions
        settings["layer_types"] = ["full_attention" if n else "conv" for n in fields["attention.head_count_kv"]]
        fields["attention.head_count_kv"] = max(fields["attention.head_count_kv"])
    for name, attributes in SETTINGS.items():
        value = fields.take(name)
        if value is None or (value == 0 and type(value) is int):  # no heads, no experts, no window
            continue
        if value == 0 and name.endswith("softcapping") and name in places:
            settings[name] = None
            continue
        place = next((attribute for attribute in attributes.split() if attribute in places), None)
        if isinstance(value, list) or (place is None and name not in IN_SHAPES):  # it differs from layer to layer
            fields.taken.discard(name)
        elif place and settings.setdefault(place, value) != value:
            raise ValueError(f"its fields say {place} = {settings[place]} and {name} = {value}")

    n_layers, width = settings["num_hidden_layers"], settings["hidden_size"]
    n_heads = settings.get("num_attention_heads", 1)
    head_width = settings.get("head_dim", width // n_heads)
    usual = {"head_dim": head_width, "num_key_value_heads": n_heads, "sliding_window": WINDOW.get(architecture)}
    settings = {place: value for place, value in usual.items() if place in places} | settings
    if "query_pre_attn_scalar" in places:
        scale = fields.take("attention.scale")
        scalar = scale**-2 if scale else width // n_heads if n_layers == LAYERS_OF_27B[architecture] else head_width
        if abs(scalar - round(scalar)) > 1e-3:
            fields.taken.discard("attention.scale")
        settings["query_pre_attn_scalar"] = round(scalar)
    pattern = fields.get("attention.sliding_window_pattern", WINDOW_PATTERN.get(architecture))
    if pattern is not None and "layer_types" in places:
        fields.taken.add("attention.sliding_window_pattern")
        has_window = settings.get("sliding_window") is not None
        windows = pattern if isinstance(pattern, list) else [(i + 1) % pattern > 0 for i in range(n_layers)]
        names = ["sliding_attention" if has_window and window else "full_attention" for window in windows]
        settings["layer_types"] = names
    if architecture == "falcon":
        n_norms, n_groups = 1 + ("blk.0.attn_norm_2.weight" in tensors), settings["num_kv_heads"]
        is_new = n_norms == 2 or 1 < n_groups < n_heads
        settings |= {"new_decoder_architecture": is_new, "multi_query": n_groups == 1 and not is_new}
        settings["num_ln_in_parallel_attn"] = n_norms if is_new else None
    if "rope_parameters" in places:
        rope = _rope(fields, tensors, head_width, settings["max_position_embeddings"])
        if "sliding_attention" in default.rope_parameters:  # layers with a window have a base of their own, unscaled
            local = {"rope_type": "default", "rope_theta": fields.take("rope.freq_base_swa", 10_000.0)}
            rope = {"full_attention": rope, "sliding_attention": local}
        if architecture == "gpt-oss" and rope["rope_type"] == "yarn":
            rope["truncate"] = False
        settings["rope_parameters"] = rope
    config = AutoConfig.for_model(model_type, **settings)
    for place, value in settings.items():
        if (getattr(config, place) or None) != (value or None):
            raise ValueError(f"transformers made {place} = {getattr(config, place)} of its {value}")
    return config


def _rope(fields: Fields, tensors: dict[str, Tensor], head_width: int, context: int) -> dict[str, Any]:
    """The rotary embedding: base, width and scaling."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": fields.take("rope.freq_base", 10_000.0)}
    width = fields.take("rope.dimension_count", head_width)
    if width != head_width:
        rope["partial_rotary_factor"] = width / head_width
    kind = fields.take("rope.scaling.type", "linear")
    factor = fields.take("rope.scaling.factor") or fields.take("rope.scale_linear") or 1.0  # the last of old files
    fields.taken.add("rope.scale_linear")
    attention_factor = fields.take("rope.scaling.attn_factor", 1.0)
    original = fields.take("rope.scaling.original_context_length", context)
    yarn = {name: fields.take(f"rope.scaling.yarn_{name}") for name in ("attn_factor", "beta_fast", "beta_slow")}
    frequencies, short, long = (tensors.get(name) for name in ROPE_FACTORS)
    for name in ROPE_FACTORS:
        if name in tensors and (n := np.prod(tensors[name].shape)) != width // 2:
            raise ValueError(f"its {name} has {n} of {width // 2} frequencies; get it again")
    if frequencies or short or long:
        # What Llama 3 has (rope_freqs) is a factor for each frequency too, the same at any length.
        if kind not in ("none", "linear", "longrope", "llama3") or factor != 1 or (short is None) != (long is None):
            raise ValueError(f"mialib can't honour its factors of RoPE beside rope.scaling.type = {kind}")
        factors = {"short_factor": short or frequencies, "long_factor": long or frequencies}
        rope |= {name: dequantized(tensor).ravel().tolist() for name, tensor in factors.items() if tensor}
        rope |= {"rope_type": "longrope", "attention_factor": attention_factor}
        return rope | {"original_max_position_embeddings": original if long else context}
    if attention_factor != 1 or kind not in ("none", "linear", "yarn"):
        fields.taken -= {"rope.scaling.type", "rope.scaling.attn_factor"}
    if kind == "yarn":
        yarn["attention_factor"] = yarn.pop("attn_factor")
        rope |= {name: value for name, value in yarn.items() if value is not None}
        return rope | {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    return rope | {"rope_type": "linear", "factor": factor} if kind == "linear" and factor != 1 else rope


# --- tokenizer ---


def tokenizer_of(fields: Fields, beside: Path | None) -> PreTrainedTokenizerFast:
    """The file's tokenizer, or the `tokenizer.json` beside it; ValueError for one that can't be honoured."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    names = ("model", "pre", "tokens", "token_type", "scores", "merges")
    values = {name: fields.take(f"tokenizer.ggml.{name}") for name in names}
    kind, pre, tokens, types, scores, merges = values.values()
    missing = [name for name in TOKENIZER_FIELDS.get(kind, ()) if not values[name]]
    if not beside and (missing or kind not in TOKENIZER_FIELDS):
        why = f"mialib can't build its tokenizer ({', without '.join([str(kind), *missing])})"
        raise ValueError(f"{why}; put the model's tokenizer.json beside it")
    tokens, types = tokens or [], types or [1] * len(tokens or [])
    add_space = fields.take("tokenizer.ggml.add_space_prefix", kind == "llama")
    if beside:
        tokenizer = Tokenizer.from_file(str(beside))
        for i, (token, of_type) in enumerate(zip(tokens, types, strict=True)):
            if of_type == 1 and tokenizer.id_to_token(i) not in (token, None):
                pair = f"{tokenizer.id_to_token(i)!r}, not {token!r}"
                raise ValueError(f"{beside} is of another model: its token {i} is {pair}")
    elif kind == "gpt2":
        tokenizer = _byte_level(tokens, merges, pre, add_space)
    else:
        unknown = fields.get("tokenizer.ggml.unknown_token_id", types.index(UNKNOWN) if UNKNOWN in types else None)
        tokenizer = _sentence_piece(tokens, types, scores, None if unknown is None else tokens[unknown], add_space)
    if not beside:
        _add_tokens(tokenizer, tokens, types)
    special = {}
    for name, key in {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}.items():
        if (i := fields.take(f"tokenizer.ggml.{key}_token_id")) is not None and tokenizer.id_to_token(i) is not None:
            special[name] = tokenizer.id_to_token(i)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _byte_level(tokens: list[str], merges: list[str], pre: str, add_space: bool) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    if pre not in PATTERNS or (add_space and PATTERNS[pre] != [GPT2_WORDS]):
        space = " with a space before each text" * add_space
        why = f"mialib can't cut texts by tokenizer.ggml.pre = {pre}{space}"
        raise ValueError(f"{why}; put the model's tokenizer.json beside it")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=pre in WHOLE_WORDS_FIRST))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[pre]]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
    if add_space:  # before a text that does not begin with one
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    if pre == "qwen2":  # as in the model's tokenizer.json
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(
    tokens: list[str], types: list[int], scores: list[float], unknown: str | None, add_space: bool
) -> Tokenizer:
    """SentencePiece's BPE: of all pairs of neighbors that make a token, the one with the highest score is merged."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {token: i for i, token in enumerate(tokens)}
    by_score = [
        (-score, left, right)
        for token, of_type, score in zip(tokens, types, scores, strict=True)
        if of_type not in (UNKNOWN, CONTROL, USER_DEFINED, BYTE)  # never made by a merge
        for at in range(1, len(token))
        if (left := vocabulary.get(token[:at])) is not None and (right := vocabulary.get(token[at:])) is not None
    ]
    merges = [(tokens[left], tokens[right]) for _, left, right in sorted(by_score)]
    has_bytes = BYTE in types
    if len({score for score, *_ in by_score}) < 2 or not (has_bytes or unknown):
        raise ValueError("its tokens' scores or types say nothing; put the model's tokenizer.json beside it")
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes))
    spaces = [normalizers.Prepend("▁")] * add_space + [normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> None:
    """Add the tokens that no merge makes. A text may hold the user's, but no control tokens."""
    from tokenizers import AddedToken

    typed = list(zip(tokens, types, strict=True))
    control = [AddedToken(token, normalized=False, special=True) for token, kind in typed if kind in (UNKNOWN, CONTROL)]
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, kind in typed if kind == USER_DEFINED])


# --- weights ---


def restored_weights(
    file: GgufFile, config: PreTrainedConfig, shapes: dict[str, tuple[int, ...]]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each weight by its name in transformers, in float32 and in the shape of `shapes`.

    ValueError for weights that the file lacks or has in another shape, and for tensors that are none of the weights.
    """
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    (number,) = (number for number, name in MODEL_ARCH_NAMES.items() if name == file.architecture)
    names = get_tensor_name_map(number, config.num_hidden_layers)
    sources = {weight: _sources(weight, names, file.tensors) for weight in shapes}
    if config.tie_word_embeddings:
        sources = {weight: of for weight, of in sources.items() if of[0] not in ("output.weight", "lm_head.weight")}
    if lacking := [weight for weight, of in sources.items() if not set(of) <= file.tensors.keys()]:
        raise ValueError(f"it lacks {len(lacking)} weights of a {config.model_type}, first {lacking[0]}")
    left = file.tensors.keys() - {name for of in sources.values() for name in of} - set(ROPE_FACTORS)
    if left:
        raise ValueError(f"transformers' {config.model_type} has no place for its tensors {', '.join(sorted(left))}")
    for weight, of in sources.items():
        array = _restored(weight, [dequantized(file.tensors[name]) for name in of], of[0], file.architecture, config)
        wanted = shapes[weight]
        if [n for n in array.shape if n > 1] != [n for n in wanted if n > 1]:
            raise ValueError(f"its {of[0]} has the shape {array.shape}, and {wanted} is expected for {weight}")
        yield weight, np.ascontiguousarray(array.reshape(wanted), np.float32)


def dequantized(tensor: Tensor) -> NDArray[np.float32]:
    """A tensor's weights, in its shape."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType(tensor.kind)
    n_weights, n_bytes = GGML_QUANT_SIZES[kind]
    *rows, columns = tensor.shape
    return dequantize(tensor.raw.reshape(*rows, columns // n_weights * n_bytes), kind).reshape(tensor.shape)


def _sources(weight: str, names: TensorNameMap, tensors: Mapping[str, Tensor]) -> list[str]:
    """The file's names of the tensors that a weight is made of."""
    if "experts.gate_up_proj" in weight:
        return [name for of in ("gate", "up") for name in _sources(weight.replace("gate_up", of), names, tensors)]
    match = re.fullmatch(r"(?:transformer\.|backbone\.)?(.+?)(?:[._](weight|bias))?", QK_NORM.sub(r"\1", weight))
    assert match
    stem, end = match.groups()
    name = names.get_name(stem) or names.get_name(f"transformer.{stem}") or names.get_name(f"backbone.{stem}") or stem
    return [name if name in tensors else f"{name}.{end or 'weight'}"]


def _restored(
    weight: str, parts: list[NDArray[np.float32]], name: str, architecture: str, config: PreTrainedConfig
) -> NDArray[np.float32]:
    """Undo what llama.cpp's converters change in a weight."""
    array = parts[0]
    of_weight = name.removeprefix("blk.").partition(".")[2] or name  # without the layer's number
    if len(parts) == 2 and architecture == "gpt-oss":  # gate and up by turns
        array = np.stack(parts, axis=2).reshape(len(array), -1, *array.shape[2:])
    elif len(parts) == 2:
        array = np.concatenate(parts, axis=1)
    if architecture == "gpt-oss" and array.ndim == 3:
        array = array.swapaxes(1, 2)
    if architecture in PLUS_ONE and name.endswith("norm.weight"):
        return array - 1
    if architecture == "llama" and of_weight.startswith(("attn_q.", "attn_k.")):  # the halves of each head by turns
        n = config.num_attention_heads if "_q" in of_weight else config.num_key_value_heads
        return array.reshape(n, len(array) // n // 2, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
    if architecture == "gpt2" and array.ndim == 2 and of_weight.startswith(("attn_", "ffn_")):
        return array.T
    if architecture == "mamba" and of_weight == "ssm_a":
        return np.log(-array)
    if architecture == "stablelm" and (head := QK_NORM.search(weight)):
        return array[int(head[2])]
    if architecture in ("bloom", "falcon") and of_weight.startswith("attn_qkv"):  # by head, or group of heads
        n, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        n_groups = n if architecture == "bloom" else config.num_kv_heads
        heads = array.reshape(n + 2 * n_groups, width, *array.shape[1:])
        q = heads[:n].reshape(n_groups, -1, *heads.shape[1:])
        k, v = heads[n : n + n_groups, None], heads[n + n_groups :, None]
        return np.concatenate([q, k, v], axis=1).reshape(array.shape)
    return array


# --- all of it ---


def unpack(paths: list[Path], beside: Path | None, folder: Path) -> None:
    """Write a model of `paths` into a folder as `save_pretrained` does, its weights in float32.

    ValueError where the file is damaged, or holds what transformers has no place for.
    """
    import torch
    from safetensors.numpy import save_file
    from transformers import AutoModelForCausalLM

    folder.mkdir(exist_ok=True)
    file = read_gguf(paths)
    fields = Fields(file)
    config = config_of(file, fields)
    tokenizer = tokenizer_of(fields, beside)
    fields.check_all_taken()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    width = fields.get("rope.dimension_count")
    for name, buffer in model.named_buffers():
        if width and name.endswith("inv_freq") and 2 * len(buffer) != width:
            raise ValueError(f"rope.dimension_count is {width}, and transformers turns {2 * len(buffer)} dimensions")
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    weights: dict[str, NDArray[np.float32]] = {}  # of the file that comes next
    weight_map: dict[str, str] = {}

    def save() -> None:
        name = f"model-{len(weight_map):05d}.safetensors"
        save_file(weights, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(weights, name))
        weights.clear()

    for name, weight in restored_weights(file, config, shapes):
        weights[name] = weight
        if sum(of.nbytes for of in weights.values()) > SHARD_BYTES:
            save()
    if weights:
        save()
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    config.architectures, config.dtype = [type(model).__name__], "float32"
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
