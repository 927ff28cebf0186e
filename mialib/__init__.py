"""mialib: was this text in the model's training data?

To read it, take the files of this folder in this order; they import nothing of its folders.

    store, plain, versions    files and the hashes in their names; what callers give, as arrays; versions of numbers
    text, benchmarks          texts with known membership
    models, batches, kernels, scoring, token_stats
                              one forward pass, from texts to four numbers a token
    frequency, detectors      from these numbers to a score a text; higher = more likely a member
    metrics, calibration, bootstrap
                              how well scores separate, and what a score decides
    model_selection, blind    hyperparameters chosen on other texts; how far the texts alone separate

    catalog/    what a name means                   reports/     what a person reads
    attacks/    neighbors, the probe                commands/    what a person types
    passes/     from names to stored passes         shared/      what these folders share

Names are imported on first use, so that `import mialib` and `mialib --help` load neither torch nor transformers.
"""

from importlib import import_module
from typing import Any

NAMES_OF = {
    "attacks.neighbors": ["make_neighbors"],
    "attacks.probe": ["probe_scores"],
    "benchmarks": ["Benchmark"],
    "blind": ["blind_scores"],
    "catalog.benchmarks": ["load_benchmark"],
    "catalog.loading": ["Scorer"],
    "detectors": ["DETECTORS", "detect", "surp_grid"],
    "frequency": ["TokenFrequency", "count_tokens"],
    "metrics": ["auc", "auc_interval", "compare_auc", "epsilon_bound", "roc", "tpr_at_fpr", "tpr_at_fpr_interval"],
    "token_stats": ["TokenStats"],
}
HOME_OF = {name: home for home, names in NAMES_OF.items() for name in names}
__all__ = sorted(HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in HOME_OF:
        raise AttributeError(f"module 'mialib' has no attribute {name!r}")
    return getattr(import_module(f"mialib.{HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
