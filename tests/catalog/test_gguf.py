"""A GGUF file of each architecture and with each optional field is the model it was written from, or is refused."""

import re

import numpy as np
import pytest
import torch
from conftest import TEXTS, make_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from mialib.catalog.gguf_file import MODEL_TYPES, find_parts, unpack

gguf = pytest.importorskip("gguf")
from gguf_writer import perturbed, write_gguf  # noqa: E402

ROPE = {"rope_theta": 5e4, "rope_type": "default"}
LINEAR = {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 20.0}
SCALED = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
HALF = {"rope_parameters": ROPE | {"partial_rotary_factor": 0.5}}
LOCAL = {"sliding_attention": {"rope_type": "default", "rope_theta": 2e3}}
LOCAL["full_attention"] = {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4}
FACTORS = [1.0, 1.5, 2.0, 3.0]  # of the frequencies of heads of 8
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3 |= {"original_max_position_embeddings": 64}
LONG = {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS[::-1], "attention_factor": 1.1}
WIDE, WINDOW = {"head_dim": 16}, {"sliding_window": 8}
OF_WIDE, OF_WINDOW = {"attention.key_length": 16, "attention.value_length": 16}, {"attention.sliding_window": 8}
GEMMA, OF_GEMMA = WIDE | WINDOW | {"query_pre_attn_scalar": 16}, OF_WIDE | OF_WINDOW
MIXTURE = WIDE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
OF_MIXTURE = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
HARMLESS = {"general.quantized_by": "somebody", "somebody.quantize_version": 2, "logit_scale": 1.0}
HARMLESS |= {"tokenizer.ggml.add_padding_token": False, "tokenizer.ggml.remove_extra_whitespaces": False}
FORMS = {  # a name that begins with the architecture: what its config has besides BASE, and the file besides the usual
    "llama": ({}, {}),
    "llama and more that changes nothing": ({}, HARMLESS),
    "llama linear": (LINEAR, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama linear, an old file": (LINEAR, {"rope.scale_linear": 4.0}),
    "llama yarn": ({"rope_parameters": ROPE | YARN}, SCALED | {"rope.scaling.yarn_beta_fast": 20.0}),
    "llama none": ({}, {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}),
    "llama biases": ({"attention_bias": True, "mlp_bias": True}, {}),
    "llama wide": (WIDE, OF_WIDE | {"rope.dimension_count": 16}),
    "llama window": (WINDOW | {"model_type": "mistral"}, OF_WINDOW),
    "llama own output": ({"tie_word_embeddings": False}, {"vocab_size": 320}),
    "llama 3": ({"rope_parameters": ROPE | LLAMA_3}, {}),
    "qwen2": ({}, {}),
    "qwen2moe": (
        MIXTURE | {"head_dim": 8, "shared_expert_intermediate_size": 32},
        OF_MIXTURE | {"expert_shared_feed_forward_length": 32},
    ),
    "qwen3": (WIDE | {"attention_bias": True}, OF_WIDE),
    "qwen3moe": (MIXTURE | {"norm_topk_prob": True}, OF_MIXTURE | OF_WIDE),
    "phi3 half": (HALF | WINDOW, OF_WINDOW | {"rope.dimension_count": 4}),
    "phi3 long": (
        {"rope_parameters": ROPE | LONG | {"original_max_position_embeddings": 16}},
        {"rope.scaling.attn_factor": 1.1, "rope.scaling.original_context_length": 16},
    ),
    "gemma": (WIDE, OF_WIDE),
    "gemma2": (GEMMA | CAPS, OF_GEMMA | CAPS),
    "gemma2 46": (GEMMA | {"query_pre_attn_scalar": 8, "num_hidden_layers": 46, "initializer_range": 0.1}, OF_GEMMA),
    "gemma3": (
        GEMMA | {"num_hidden_layers": 7, "rope_parameters": LOCAL},
        OF_GEMMA | {"rope.freq_base_swa": 2e3, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    ),
    "gemma3 all windows": (
        GEMMA | {"layer_types": ["sliding_attention"] * 2, "rope_parameters": LOCAL},
        OF_GEMMA
        | {"rope.freq_base_swa": 2e3, "rope.scaling.factor": 8.0, "attention.sliding_window_pattern": [True, True]},
    ),
    "gemma3 no window": (
        GEMMA | {"layer_types": ["full_attention"] * 2, "rope_parameters": LOCAL},
        OF_GEMMA
        | {"rope.freq_base_swa": 2e3, "rope.scaling.factor": 8.0, "attention.sliding_window_pattern": [False, False]},
    ),
    "starcoder2": ({}, {}),
    "stablelm": (HALF | {"use_qkv_bias": True}, {"rope.dimension_count": 4, "use_parallel_residual": True}),
    "stablelm parallel": (HALF | {"use_parallel_residual": True}, {"rope.dimension_count": 4}),
    "gpt2": ({"n_inner": 48}, {"feed_forward_length": 48}),
    "bloom": ({}, {}),
    "falcon groups": ({"num_kv_heads": 2, "new_decoder_architecture": True}, {"attention.head_count_kv": 2}),
    "falcon old": ({"num_kv_heads": 4, "multi_query": False}, {"attention.head_count_kv": 4}),
    "falcon one": ({"num_kv_heads": 1, "multi_query": True}, {"attention.head_count_kv": 1}),
    "nemotron": (HALF, {"rope.dimension_count": 4}),
    "gpt-oss": (
        WIDE | WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2},
        OF_WIDE | OF_WINDOW | {"expert_count": 4, "expert_used_count": 2},
    ),
    "lfm2": (
        {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
        {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2]},
    ),
    "mamba": (
        {"state_size": 4},
        {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 4, "ssm.time_step_rank": 2},
    ),
}
BASE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BASE |= {"num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3, "rope_parameters": ROPE}
BASE |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None, "tie_word_embeddings": True}
LACKS = {  # what a config calls otherwise, or does not have
    "gpt2": ["intermediate_size", "num_key_value_heads", "rope_parameters"],
    "bloom": ["intermediate_size", "num_key_value_heads", "rope_parameters", "max_position_embeddings"],
    "falcon": ["intermediate_size", "num_key_value_heads"],
    "mamba": ["intermediate_size", "num_key_value_heads", "rope_parameters", "num_attention_heads"],
}
TENSORS = {"phi3 long": {"rope_factors_short.weight": FACTORS, "rope_factors_long.weight": FACTORS[::-1]}}


def llama_3_factors(width=8, base=5e4):
    """What the converter writes of Llama 3's scaling: by how much each frequency is divided."""
    wavelengths = 2 * np.pi * base ** (np.arange(0, width, 2) / width)
    smooth = (64 / wavelengths - 1) / 3
    between = 1 / ((1 - smooth) / 8 + smooth)
    return np.where(wavelengths < 16, 1, np.where(wavelengths > 64, 8, between))


TENSORS["llama 3"] = {"rope_freqs.weight": llama_3_factors()}


def write_form(form, path, **options):
    """A model with random weights, and the GGUF file of it."""
    architecture, tokenizer = form.split()[0], make_tokenizer()
    more, fields = FORMS[form]
    settings = {name: value for name, value in BASE.items() if name not in LACKS.get(architecture, [])} | more
    kind = settings.pop("model_type", MODEL_TYPES[architecture])
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), **settings)
    model = perturbed(AutoModelForCausalLM.from_config(config).eval())
    usual = {"context_length": 256, "embedding_length": 32, "block_count": config.num_hidden_layers}
    usual |= {"feed_forward_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2}
    if kind == "mamba":
        usual |= {"feed_forward_length": 0, "attention.head_count": 0, "attention.head_count_kv": 0}
    if kind in ("bloom", "gpt2"):
        usual |= {"feed_forward_length": 128, "attention.head_count_kv": 4}
    if kind == "falcon":
        usual["feed_forward_length"] = 128
    if "rope_parameters" in settings:
        usual["rope.freq_base"] = 5e4
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
    epsilon = next(getattr(config, name) for name in names if hasattr(config, name))
    is_plain = kind in ("starcoder2", "stablelm", "gpt2", "bloom", "falcon")
    usual["attention.layer_norm_epsilon" if is_plain else "attention.layer_norm_rms_epsilon"] = epsilon
    fields = usual | fields | options.pop("fields", {})
    fields = {name: value for name, value in fields.items() if value is not None}
    write_gguf(path, model, tokenizer, architecture, fields, tensors=TENSORS.get(form), **options)
    return model


def logits_of(model):
    with torch.inference_mode():
        return model(torch.arange(3, 43)[None]).logits


@pytest.mark.parametrize("form", FORMS)
def test_a_gguf_file_is_the_model_that_it_was_written_from(form, tmp_path):
    model = write_form(form, tmp_path / "model.gguf")
    unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "folder", dtype=torch.float32).eval()
    torch.testing.assert_close(logits_of(again), logits_of(model), rtol=0, atol=1e-4)


def test_each_architecture_has_a_form():
    assert {form.split()[0] for form in FORMS} == MODEL_TYPES.keys()


REFUSED = {  # what the file holds besides, and what the error has to name
    "attention.clamp_kqv": 8.0,
    "rope.scaling.alpha": 2.0,
    "rope.scaling.yarn_log_multiplier": 0.5,
    "rope.dimension_count": 4,
    "attention.causal": False,
    "expert_count": 4,
    "logit_scale": 0.5,
    "final_logit_softcapping": 3.0,
    "tokenizer.ggml.precompiled_charsmap": "abc",
    "tokenizer.ggml.remove_extra_whitespaces": True,
    "feed_forward_length": [64, 48],
    "vocab_size": 99,
    "attention.sliding_window_pattern": 2,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_nothing_takes_is_named(name, tmp_path):
    write_form("llama", tmp_path / "model.gguf", fields={name: REFUSED[name]})
    with pytest.raises(ValueError, match=re.escape(name)):
        unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")


@pytest.mark.parametrize(
    "name", ["context_length", "block_count", "attention.head_count", "attention.layer_norm_rms_epsilon"]
)
def test_a_field_that_a_model_needs_is_not_guessed(name, tmp_path):
    write_form("llama", tmp_path / "model.gguf", fields={name: None})
    with pytest.raises(ValueError, match=name.rpartition("_")[2]):
        unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")


def test_a_tensor_that_nothing_takes_and_a_weight_that_lacks_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(TENSORS, "llama", {"blk.0.attn_sinks.weight": FACTORS})
    write_form("llama", tmp_path / "more.gguf")
    monkeypatch.delitem(TENSORS, "llama")
    write_form("llama", tmp_path / "less.gguf", without=["blk.1.ffn_up.weight"])
    for name, culprit in {"more": "blk.0.attn_sinks.weight", "less": "model.layers.1.mlp.up_proj.weight"}.items():
        with pytest.raises(ValueError, match=re.escape(culprit)):
            unpack([tmp_path / f"{name}.gguf"], None, tmp_path / "folder")


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_rounded_weights_are_those_that_the_file_means(kind, tmp_path):
    model = write_form("qwen2", tmp_path / "model.gguf", kind=kind)
    unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "folder").state_dict()
    of = gguf.GGMLQuantizationType[kind]
    for name, weight in model.state_dict().items():
        weight = weight.numpy()
        if weight.ndim == 2:
            weight = gguf.quants.dequantize(gguf.quants.quantize(weight, of), of)
        np.testing.assert_array_equal(again[name].numpy(), weight.astype(np.float32), err_msg=name)


def test_a_model_in_parts_is_read_whole(tmp_path):
    model = write_form("llama", tmp_path / "whole.gguf")
    reader = gguf.GGUFReader(tmp_path / "whole.gguf")
    paths = [tmp_path / f"m-{i:05d}-of-00002.gguf" for i in (1, 2)]
    for i, path in enumerate(paths):
        writer = gguf.GGUFWriter(str(path), "llama")
        for field in list(reader.fields.values()) if i == 0 else []:
            if not field.name.startswith(("GGUF.", "general.architecture")):
                array = {"sub_type": field.types[-1]} if field.types[0] == gguf.GGUFValueType.ARRAY else {}
                writer.add_key_value(field.name, field.contents(), field.types[0], **array)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[i::2]:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    assert find_parts(paths[1]) == paths
    unpack(paths, None, tmp_path / "folder")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    torch.testing.assert_close(logits_of(again), logits_of(model), rtol=0, atol=1e-4)
    paths[0].unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(paths[0].name)):
        find_parts(paths[1])


def parts_of(tokenizer, text):
    return [part.replace("Ġ", " ") for part, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    "pre, text, parts",
    [
        ("gpt-2", "a  123's", ["a", " ", " 123", "'s"]),
        ("smollm", "a  123's", ["a", "  ", "1", "2", "3", "'s"]),
        ("llama-bpe", "a 1234's", ["a", " ", "123", "4", "'s"]),
        ("qwen2", "a 12's", ["a", " ", "1", "2", "'s"]),
        ("tekken", "aB 12's", ["a", "B", " ", "1", "2", "'s"]),
    ],
)
def test_texts_are_cut_as_the_file_says(pre, text, parts, tmp_path):
    write_form("llama", tmp_path / "model.gguf", pre=pre)
    unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert parts_of(tokenizer, text) == parts
    ids = tokenizer(TEXTS[:9], add_special_tokens=False)["input_ids"]
    assert tokenizer.batch_decode(ids) == TEXTS[:9]


def test_a_space_before_each_text_is_the_files(tmp_path):
    write_form("llama", tmp_path / "model.gguf", fields={"tokenizer.ggml.add_space_prefix": True})
    unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert parts_of(tokenizer, "a b") == parts_of(tokenizer, " a b") == [" a", " b"]


def test_an_unknown_way_of_cutting_is_refused_unless_the_models_tokenizer_lies_beside(tmp_path):
    write_form("llama", tmp_path / "model.gguf", pre="nobody-knows")
    with pytest.raises(ValueError, match="nobody-knows"):
        unpack([tmp_path / "model.gguf"], None, tmp_path / "folder")
    make_tokenizer().backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    unpack([tmp_path / "model.gguf"], tmp_path / "tokenizer.json", tmp_path / "folder")
    ids = AutoTokenizer.from_pretrained(tmp_path / "folder")(TEXTS[:5], add_special_tokens=False)["input_ids"]
    assert ids == make_tokenizer()(TEXTS[:5], add_special_tokens=False)["input_ids"]
    other = make_tokenizer(["<s>", "</s>", "<x>", "<pad>"], vocab_size=300)
    other.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="another model"):
        unpack([tmp_path / "model.gguf"], tmp_path / "tokenizer.json", tmp_path / "folder")


SPM = {"<unk>": 2, "<s>": 3, "  ": 4, "▁": 1, "a": 1, "b": 1, "ab": 1, "▁a": 1, "▁ab": 1, "bb": 1}
SPM |= {f"<0x{byte:02X}>": 6 for byte in range(256)}
SCORES = [{"bb": -1.0, "ab": -2.0, "▁a": -3.0, "▁ab": -4.0}.get(token, -9.0) for token in SPM]


@pytest.mark.parametrize(
    "prefix, text, tokens",
    [
        (True, "ab", ["▁ab"]),
        (False, "ab", ["ab"]),
        (False, "a  ab", ["a", "  ", "ab"]),  # two spaces are a token of their own
        (False, "abb", ["a", "bb"]),  # the score decides, not the order
        (False, "<s>é", ["<0x3C>", "<0x73>", "<0x3E>", "<0xC3>", "<0xA9>"]),  # a text holds no control tokens
    ],
)
def test_sentence_piece_merges_by_score_and_heeds_the_prefix_space(prefix, text, tokens):
    from mialib.catalog.gguf_file import Fields, GgufFile, tokenizer_of

    file = {"general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [*SPM]}
    file |= {"tokenizer.ggml.token_type": [*SPM.values()], "tokenizer.ggml.bos_token_id": 1}
    file |= {"tokenizer.ggml.scores": SCORES, "tokenizer.ggml.add_space_prefix": prefix}
    tokenizer = tokenizer_of(Fields(GgufFile(file, {})), None)
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens


@pytest.mark.parametrize(
    "kind, changes",
    [
        ("llama", {"scores": [-1000.0] * len(SPM)}),  # as a converter writes them that does not know them
        ("llama", {"scores": None}),
        ("llama", {"token_type": None}),
        ("gpt2", {"merges": None, "pre": "gpt-2"}),
        ("bert", {}),
    ],
)
def test_a_tokenizer_of_which_the_file_holds_too_little_is_refused(kind, changes):
    from mialib.catalog.gguf_file import Fields, GgufFile, tokenizer_of

    file = {"model": kind, "tokens": [*SPM], "token_type": [*SPM.values()], "scores": SCORES} | changes
    file = {f"tokenizer.ggml.{name}": value for name, value in file.items() if value is not None}
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        tokenizer_of(Fields(GgufFile(file | {"general.architecture": "llama"}, {})), None)
