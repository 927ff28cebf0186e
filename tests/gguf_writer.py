"""Write a tiny model as llama.cpp's converters do, to compare what mialib reads with the model itself."""

import json

import gguf
import numpy as np
import torch

TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # of GPT-2


def in_llama_cpps_order(name, weight, architecture, config):
    """A weight as the converter of its architecture changes it."""
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        n = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return weight.reshape(n, 2, len(weight) // n // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    if (architecture.startswith("gemma") or architecture == "nemotron") and name.endswith("norm.weight"):
        return weight + 1
    if architecture == "gpt2" and name.endswith(TRANSPOSED):
        return weight.T
    if name.endswith("A_log"):
        return -np.exp(weight)
    if "query_key_value" in name:
        n = config.num_attention_heads
        n_groups = n if architecture == "bloom" else config.num_kv_heads
        groups = weight.reshape(n_groups, n // n_groups + 2, -1, *weight.shape[1:])
        parts = [groups[:, :-2], groups[:, [-2]], groups[:, [-1]]]
        return np.concatenate([part.reshape(-1, *weight.shape[1:]) for part in parts])
    return weight.squeeze(1) if "conv" in name and weight.ndim == 3 else weight


def pieces(name, weight, architecture):
    """A weight under the names that the name map knows: experts' gates and ups are apart."""
    if "experts." not in name:
        return [(name, weight)]
    weight = weight.swapaxes(1, 2) if architecture == "gpt-oss" and weight.ndim == 3 else weight
    end = ".bias" if name.endswith("_bias") else ".weight"
    name = name.removesuffix("_bias")
    if "gate_up" not in name:
        return [(name + end, weight)]
    halves = (weight[:, ::2], weight[:, 1::2]) if architecture == "gpt-oss" else np.split(weight, 2, axis=1)
    return [(name.replace("gate_up", of) + end, half) for of, half in zip(("gate", "up"), halves, strict=True)]


def tensor_name(names, name):
    stem, end = (name, "") if name.endswith(("A_log", ".D")) else name.rsplit(".", 1)
    stem, end = (name, ".weight") if end == "sinks" else (stem, "." + end if end else "")
    return (names.get_name(stem) or names.get_name(stem.removeprefix("transformer."))) + end


def write_gguf(path, model, tokenizer, architecture, fields, *, kind="F32", pre="gpt-2", tensors=None, without=()):
    """Write the file."""
    of, config, state = gguf.GGMLQuantizationType[kind], model.config, model.state_dict()
    writer = gguf.GGUFWriter(str(path), architecture)
    for name, value in fields.items():
        name = name if name.startswith(("tokenizer.", "general.", "somebody.")) else f"{architecture}.{name}"
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(name, value)
    vocabulary = tokenizer.get_vocab()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    writer.add_token_types([3 if i in tokenizer.all_special_ids else 1 for i in range(len(tokenizer))])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, np.asarray(tensor, np.float32))
    (number,) = (number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    for name, tensor in state.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for piece, weight in pieces(
            name, in_llama_cpps_order(name, tensor.numpy(), architecture, config), architecture
        ):
            own = tensor_name(names, piece)
            if own in without:
                continue
            if weight.ndim != 2 or kind == "F32":
                writer.add_tensor(own, np.ascontiguousarray(weight))
                continue
            writer.add_tensor(own, gguf.quants.quantize(weight, of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def perturbed(model):
    """The model, its norms and biases not all ones and zeros, so that each of them counts."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1 and not name.endswith(".D"):
                weight.add_(torch.randn_like(weight), alpha=0.3)
    return model
