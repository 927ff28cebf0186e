"""A detector of your own and its AUC beside Min-K%++: python examples/my_detector.py [TEXTS MODEL], in a clone."""

import sys
from typing import Annotated

import mialib
from mialib.detectors.registry import detector
from mialib.token_stats import TokenRow


@detector("sure", "Sure tokens", "You 2026")
def sure(row: TokenRow, *, least: Annotated[float, "log p of a sure token, nats"] = -0.1) -> float:
    """The share of a text's tokens whose log p is at least `least`."""
    return float((row.log_prob >= least).mean())


file, model = sys.argv[1:] or ("examples/texts.jsonl", "smollm2-135m")  # needs `pip install ".[gguf]"`
bench = mialib.load_benchmark(file)
stats = mialib.Scorer(model).score(bench.texts)
for name in ("sure", "min_k++"):
    print(name, mialib.auc_interval(bench.labels, mialib.detect(name, stats)))
