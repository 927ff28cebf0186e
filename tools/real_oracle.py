"""Hold what is recorded of a real model against a loop in float64, text by text, by the formulas of the tests.

    python tools/real_oracle.py gemma-3-270m wikimia-64 FOUND.jsonl
    python tools/real_oracle.py qwen2.5-coder-1.5b wikimia-64 FOUND.jsonl --texts 30  # where all would take a night

Each text's scores are added to FOUND.jsonl, which resumes there. It then prints, over these texts, the AUC of six
detectors by the loop and by what `data/recorded/real/` holds, the largest difference of a score, and how far log-probs
of the first 30 texts lie from today's pass.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import mialib
from mialib.catalog.sources import find
from mialib.passes.cache import score_or_load
from mialib.passes.inputs import Target, load_inputs, score_all

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import oracles

N_BY_TOKEN = 30  # texts whose log-probs are compared one by one


def statistics(model: torch.nn.Module, ids: list[int], start: int) -> list[np.ndarray]:
    """Log-prob, entropy and variance of each token, in float64."""
    with torch.no_grad():
        log_p = torch.log_softmax(model(torch.tensor([[start, *ids]])).logits[0, :-1].double(), dim=-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    variance = (log_p.exp() * (log_p + entropy[:, None]) ** 2).sum(-1)
    return [of.numpy() for of in (log_p[torch.arange(len(ids)), torch.tensor(ids)], entropy, variance)]


def main() -> None:
    """Run the loop where it stopped, then print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("benchmark")
    parser.add_argument("found", type=Path)
    parser.add_argument("--texts", type=int, help="how many of the first texts; all, if none is given")
    given = parser.parse_args()
    benchmark = mialib.load_benchmark(given.benchmark)
    texts, labels = benchmark.texts[: given.texts], benchmark.labels[: given.texts]
    folder = find(given.model).folder
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    start = tokenizer.token_to_id(find(given.model).start_token())
    lines = given.found.read_text().splitlines() if given.found.exists() else []
    if len(lines) < len(texts):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        with given.found.open("a") as file:
            for text in texts[len(lines) :]:
                ids, lower = (tokenizer.encode(of, add_special_tokens=False).ids for of in (text, text.lower()))
                log_prob, entropy, variance = statistics(model, ids, start)
                scores = {
                    "ppl": oracles.ppl(log_prob),
                    "lowercase": oracles.ratio(log_prob, statistics(model, lower, start)[0]),
                    "zlib": oracles.zlib_score(log_prob, text),
                    "min_k": oracles.min_k(log_prob, 20),
                    "min_k++": oracles.min_k_plus_plus(log_prob, entropy, variance, 20),
                    "surp": oracles.surp(log_prob, entropy, 2.5, 40) or 0.0,
                }
                file.write(json.dumps({"ids": ids, "log_prob": log_prob.tolist(), "scores": scores}) + "\n")
                file.flush()
        del model  # today's pass loads it again, in float32
        lines = given.found.read_text().splitlines()
    rows = [json.loads(line) for line in lines[: len(texts)]]
    recorded = score_all(load_inputs(Target(model=f"real/{given.model}", benchmark=f"real/{given.benchmark}")))
    for name in rows[0]["scores"]:
        ours, loop = recorded[name][: len(rows)], [row["scores"][name] for row in rows]
        off = np.abs(ours - loop).max()
        aucs = f"AUC recorded {mialib.auc(labels, ours):.4f}, by the loop {mialib.auc(labels, loop):.4f}"
        print(f"{name:10} {len(rows)} texts: {aucs}; scores differ by at most {off:.1e}")
    compared = texts[:N_BY_TOKEN]
    pairs = list(zip(score_or_load(given.model, compared), rows[: len(compared)], strict=True))
    assert all(row.token_ids.tolist() == of["ids"] for row, of in pairs)
    off = max(np.abs(row.log_prob - of["log_prob"]).max() for row, of in pairs)
    print(f"{len(pairs)} texts, {sum(len(of['ids']) for _, of in pairs)} tokens: log-probs differ by at most {off:.1e}")


if __name__ == "__main__":
    main()
