"""Versions of all that computes numbers. Whoever changes its numbers raises the version, in the same commit.

Stored and recorded results count only if their versions are the current ones. Rewording a message, renaming a module or
adding a detector changes no number, so it raises nothing; nor do other batches, on which last bits depend anyway.
`tests/test_versions.py` compares each version with the exact numbers that it gave on tiny models. A detector declares
its own version.
"""

VERSIONS = {
    "scoring": 1,  # texts to token statistics, by a model that is here
    "gguf": 3,  # a GGUF file to weights and a tokenizer
    "api": 1,  # texts to token statistics, by a model behind an API
    "logprobs": 1,  # a file of log-probs to token statistics
    "counting": 1,  # the tokens of a reference corpus
    "neighbors": 1,  # words that a masked model replaces, and the mean log-probs of the resulting texts
    "activations": 1,  # of the probe, its proxies' training included
    "probe": 1,  # activations to scores
    "sampling": 1,  # unseen texts that a model writes for the probe
    "unseen": 1,  # which unseen texts the probe is given, drawn and cut
    "blind": 1,  # baselines that see no model
    "intervals": 1,  # of metrics and of their differences, and p-values
    "choosing": 1,  # of hyperparameters: the folds, and the best candidate by its AUC
    "gathering": 1,  # docstrings and code of installed packages
    "dealing": 1,  # a corpus: which text gets which role, its tokenizer
    "training": 1,  # of the lab's models
    "claims": 1,  # what a claim's test makes of scores: parts of documents, cuts, folds
}


def versions_of(*names: str) -> dict[str, int]:
    """These versions by name, for a result's key or provenance."""
    return {name: VERSIONS[name] for name in sorted(names)}
