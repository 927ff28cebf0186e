"""Every causal architecture of transformers that can be built small: scored right, or refused in a sentence."""

import sys
import traceback
import warnings

import numpy as np
import pytest
import torch
from conftest import CONTEXT, TEXTS
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import mialib
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
