"""Fine-tune a real model with canaries in its training data, to see what an audit of them says.

    mialib canaries sealed
    python tools/lora_canaries.py sealed/train.jsonl adapter
    mialib audit sealed/canaries.jsonl --model adapter --output report

A LoRA adapter of SmolLM2-135M-Instruct sees each line of the file once, in its order: some minutes of one core. It
needs `pip install ".[gguf,peft]"`.
"""

from __future__ import annotations

import sys
import time

import torch
from peft import LoraConfig, get_peft_model

from mialib.catalog.loading import load_model
from mialib.shared.files import load_texts

MODEL = "smollm2-135m"
BATCH_TEXTS, LEARNING_RATE = 16, 1e-3


def main() -> None:
    """Train, save the adapter, and say how long it took."""
    texts, folder = load_texts(sys.argv[1]), sys.argv[2]
    base, began = load_model(MODEL, device="cpu", dtype="float32"), time.perf_counter()
    config = LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
    torch.manual_seed(0)
    model = get_peft_model(base.model, config)
    model.peft_config["default"].base_model_name_or_path = MODEL
    optimizer = torch.optim.AdamW([of for of in model.parameters() if of.requires_grad], lr=LEARNING_RATE)
    losses = []
    for at in range(0, len(texts), BATCH_TEXTS):
        of_texts = [[*base.start_token_ids, *ids] for ids in base.tokenizer(texts[at : at + BATCH_TEXTS])["input_ids"]]
        longest = max(map(len, of_texts))
        ids = torch.tensor([of + [0] * (longest - len(of)) for of in of_texts])
        is_text = torch.arange(longest) < torch.tensor([[len(of)] for of in of_texts])
        loss = model(input_ids=ids, attention_mask=is_text.long(), labels=ids.masked_fill(~is_text, -100)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.save_pretrained(folder)
    last = sum(losses[-10:]) / len(losses[-10:])
    print(f"{len(texts)} texts in {time.perf_counter() - began:.0f} s, {losses[0]:.2f} to {last:.2f} nats a token")


if __name__ == "__main__":
    main()
