"""Every causal architecture of transformers that can be built small: scored right, or refused in a sentence."""

import json
import re
import sys
import traceback
import warnings

import numpy as np
import pytest
import torch
import transformers
from conftest import CONTEXT, TEXTS
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

import mialib
from mialib.batches import encode
from mialib.catalog.models import CUT_TEXTS, load_tokenizer
from mialib.catalog.sources import find
from mialib.passes.cache import score_or_load
from mialib.store import PACKAGE

NATS = 3e-5
MOST_PARAMETERS = 4_000_000
SIZES = {  # by every name that a config has for them
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), CONTEXT),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "lru_width"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "decoder_ffn_dim", "encoder_ffn_dim", "dff"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_blocks", "num_key_value_heads", "num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("head_dim", "kv_channels", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "state_size"), 8),
    **dict.fromkeys(("rotary_dim", "mamba_d_state", "mamba_n_heads", "mamba_d_head", "hidden_size_per_layer_input"), 8),
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "n_group": 1, "topk_group": 1, "time_step_rank": 4},
}
OF_ALL = {"initializer_range": 0.1, "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1}
OF_ONE = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "falcon": {"head_dim": None},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "prophetnet": {"num_hidden_layers": None, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "max_position_embeddings": 256},
    "xlnet": {"max_position_embeddings": None},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}
SCORED = {  # in every release: else a change of transformers could leave this file with nothing to do
    *("bloom", "codegen", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone4", "falcon", "falcon_mamba"),
    *("gemma", "gemma2", "gemma3_text", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj"),
    *("granite", "helium", "jamba", "llama", "llama4_text", "mamba", "mamba2", "mistral", "mixtral", "mpt", "olmo"),
    *("olmo2", "olmo3", "olmoe", "opt", "persimmon", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3"),
    *("qwen3_moe", "qwen3_next", "rwkv", "smollm3", "stablelm", "starcoder2", "xglm"),
}
REFUSED = {"bert", "prophetnet", "roberta", "xlm"}


def tiny(family):
    """A model with random weights; None where its config can't be made small."""
    kind = CONFIG_MAPPING[family]
    try:
        default = kind()
        sizes = {name: n for name, n in SIZES.items() if getattr(default, name, None) is not None}
        if "kv_lora_rank" in sizes:  # its keys and values have as many heads as its queries
            sizes["num_key_value_heads"] = 4
        more = OF_ONE.get(family, {})
        sizes |= OF_ALL | {"vocab_size": 320} | {name: n for name, n in more.items() if n is not None}
        config = kind(**{name: n for name, n in sizes.items() if more.get(name, n) is not None})
        with torch.device("meta"):
            if AutoModelForCausalLM.from_config(config).num_parameters() > MOST_PARAMETERS:
                return None
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    except Exception as error:  # of any class: its config has sizes that depend on each other
        print(type(error).__name__, error)
        return None
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_an_architecture_is_scored_as_a_plain_loop_does_or_refused_in_a_sentence(family, tokenizer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tiny(family)
    if model is None:
        assert family not in SCORED
        pytest.skip("its config can't be made small by the sizes of this file")
    try:
        stats = mialib.Scorer(model, tokenizer).score(TEXTS, progress=False)
    except ValueError:
        raised_in = traceback.extract_tb(sys.exc_info()[2])[-1].filename
        assert raised_in.startswith(str(PACKAGE)) and family not in SCORED
        return
    assert family not in REFUSED
    assert stats.log_prob.std() > 10 * NATS
    for row, text in zip(stats, TEXTS, strict=True):
        ids = torch.tensor([[0, *tokenizer(text)["input_ids"]]])
        with torch.no_grad():
            log_p = torch.log_softmax(model(ids, use_cache=False).logits[0, :-1].double(), dim=-1)
        np.testing.assert_allclose(row.log_prob, log_p.gather(-1, ids[0, 1:, None])[:, 0], atol=NATS)
        np.testing.assert_allclose(row.entropy, -(log_p.exp() * log_p).sum(-1), atol=NATS)


OF_PARTS = {  # further sizes of what reads images and sound
    **dict.fromkeys(("depth", "num_heads"), 2),
    **dict.fromkeys(("embed_dim", "out_hidden_size", "projection_dim"), 32),
    **{"patch_size": 14, "image_size": 28, "num_mel_bins": 16},
    **{"fullatt_block_indexes": [0], "deepstack_visual_indexes": [0]},
}
NESTED = {  # of causal models whose config nests that of their text part: scored in every release
    *("aya_vision", "gemma3", "got_ocr2", "idefics3", "internvl", "llava", "llava_next", "mistral3", "mllama", "ovis2"),
    *("qwen2_5_vl", "qwen2_audio", "qwen2_vl", "qwen3_5", "qwen3_vl", "qwen3_vl_moe", "smolvlm", "voxtral"),
}
NOT_OF_TEXT_ALONE = {"blip-2", "clip", "kosmos-2", "paligemma", "siglip", "vision-encoder-decoder"}


def tiny_nested(family):
    """A model of several parts with random weights; None where its config can't be made small."""
    kind = CONFIG_MAPPING[family]
    try:
        default, parts = kind(), {}
        for name in kind.sub_configs:
            if part := getattr(default, name, None):
                sizes = SIZES | OF_PARTS | OF_ALL | {"vocab_size": 320}
                parts[name] = {size: n for size, n in sizes.items() if getattr(part, size, None) is not None}
                parts[name]["model_type"] = part.model_type
                if layers := getattr(part, "layer_types", None):
                    parts[name]["layer_types"] = [min(layers), max(layers)]
                if family.startswith(("qwen", "glm")) and "text" in name:
                    sections = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1e4}
                    parts[name]["rope_parameters"] = sections
        config = kind(**parts)
        name = MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.get(family)
        make = getattr(transformers, name)._from_config if name else AutoModel.from_config
        with torch.device("meta"):
            if make(config).num_parameters() > 5 * MOST_PARAMETERS:
                return None
        torch.manual_seed(0)
        return make(config).eval()
    except Exception as error:  # of any class: its config has sizes that depend on each other
        print(type(error).__name__, error)
        return None


QUICK = {"gemma3", "mistral3", "qwen2_5_vl", "clip", "kosmos-2"}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[] if family in QUICK else pytest.mark.slow)
        for family in sorted(NESTED | NOT_OF_TEXT_ALONE)
    ],
)
def test_the_text_part_of_a_multimodal_model_is_scored_as_the_whole_does_or_refused_in_a_sentence(
    family, tokenizer, tmp_path
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tiny_nested(family)
    if model is None:
        assert family not in NESTED | NOT_OF_TEXT_ALONE
        pytest.skip("its config can't be made small by the sizes of this file")
    model.save_pretrained(tmp_path), tokenizer.save_pretrained(tmp_path)
    try:
        stats = score_or_load(str(tmp_path), TEXTS)
    except ValueError as error:
        assert family not in NESTED and re.search(r"is multimodal|is not causal", str(error))
        return
    assert family not in NOT_OF_TEXT_ALONE
    assert stats.provenance["max_tokens"] == CONTEXT and find(str(tmp_path)).vocabulary_size == 320
    assert find(str(tmp_path)).count_parameters(embeddings=True) == model.num_parameters()
    for row, text in zip(stats, TEXTS, strict=True):
        ids = torch.tensor([[0, *tokenizer(text)["input_ids"]]])
        with torch.no_grad():
            log_p = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0, :-1].double(), dim=-1)
        np.testing.assert_allclose(row.log_prob, log_p.gather(-1, ids[0, 1:, None])[:, 0], atol=NATS)


DECLARED = (None, "LlamaTokenizer", "Qwen2TokenizerFast")


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["of its type", "nothing", *DECLARED])
def test_under_every_type_of_model_the_tokenizer_beside_the_weights_cuts_texts(declared, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    content, texts = json.loads(file.read_text()), [*CUT_TEXTS, *TEXTS]
    expected = encode(tokenizer, texts)
    for family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
        name = TOKENIZER_MAPPING_NAMES.get(family) if declared == "of its type" else declared
        file.write_text(json.dumps(content | ({"tokenizer_class": name} if name else {})))
        if declared == "nothing":
            file.unlink()
        assert encode(load_tokenizer(str(tmp_path)), texts) == expected, family
