"""The detectors: each turns a text's token statistics into one score. Higher means more likely a member.

A detector is one decorated function of one text. Its first argument is the text's `TokenRow`; keyword arguments
named in INPUTS are what it needs besides the target model's pass, and every other keyword is a hyperparameter whose
default the paper prints; a detector that a paper tunes has a `grid` of candidates besides. `reads` names the columns of
the pass that it reads besides log_prob, since a model behind an API does not give them all. Tables, tests and the
command line read the registry, so a function here is all it takes.
"""

from __future__ import annotations

import inspect
import math
import zlib as zlib_library
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from numbers import Real
from reprlib import repr as short_repr  # of any value, however long
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.frequency import TokenFrequency
from mialib.model_selection import Candidates, Grid
from mialib.token_stats import TokenRow, TokenStats, check_known

FloatArray = NDArray[np.float64]

# What `detect` takes -> what the function of one text is given.
INPUTS = {
    "texts": "text",
    "lowercase": "lowercase",
    "reference": "reference",
    "frequency": "frequency",
    "neighbors": "neighbors",
}
# log p is exact only to about 1e-7, so a variance below this is a distribution with all its mass on one token.
SMALLEST_VARIANCE = 1e-12  # nats^2


@dataclass(frozen=True)
class Detector:
    """A registered detector: its function of one text, what it needs, and its hyperparameters' defaults."""

    name: str
    label: str  # as the papers' tables print it
    score_text: Callable[..., float]
    needs: tuple[str, ...]  # keys of INPUTS
    hyperparameters: dict[str, Any]
    reads: tuple[str, ...] = ()  # columns of TokenRow, besides log_prob
    grid: Grid = field(default_factory=dict)  # a paper's candidates for the hyperparameters; empty for none


DETECTORS: dict[str, Detector] = {}


def detector(
    name: str, label: str, reads: tuple[str, ...] = (), grid: Grid | None = None
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register a function of one text under `name`."""

    def register(score_text: Callable[..., float]) -> Callable[..., float]:
        keywords = list(inspect.signature(score_text).parameters.values())[1:]
        given = {argument: keyword for keyword, argument in INPUTS.items()}
        DETECTORS[name] = Detector(
            name=name,
            label=label,
            score_text=score_text,
            needs=tuple(given[p.name] for p in keywords if p.name in given),
            hyperparameters={p.name: p.default for p in keywords if p.name not in given},
            reads=reads,
            grid=grid or {},
        )
        return score_text

    return register


def detect(name: str, stats: TokenStats, **given: Any) -> FloatArray:
    """Scores of all texts, shape (N,) float64; higher means more likely a member.

    `given` holds the detector's hyperparameters and what it needs besides `stats`: `texts`; `lowercase` and
    `reference`, the statistics of the lowercased texts and of the same texts under a reference model; `frequency`, the
    token frequencies of a reference corpus; `neighbors`, the mean log p of each text's neighbors, (N, M) in nats. What
    it does not need is not looked at. ValueError for an unknown detector or hyperparameter, a missing input, a column
    that the model does not give, inputs of another number of texts or another tokenizer, and, naming the text, for a
    statistic or a score that is not finite.
    """
    chosen = get_detector(name)
    inputs = {need: given.pop(need, None) for need in INPUTS}
    if unknown := sorted(set(given) - set(chosen.hyperparameters)):
        known = ", ".join(chosen.hyperparameters) or "none"
        raise ValueError(f"detector {name!r} has no hyperparameter {unknown[0]!r}; it has: {known}")
    for option, value in given.items():
        check_hyperparameter(name, option, value, chosen.hyperparameters[option])
    check_known(chosen.reads, stats.lacks, f"detector {name!r}")
    if missing := [need for need in chosen.needs if inputs[need] is None]:
        raise ValueError(f"detector {name!r} needs {' and '.join(f'{need}=' for need in missing)}")
    for table in (stats, inputs["lowercase"], inputs["reference"]):
        if table is not None:
            table.check_finite()
    if inputs["neighbors"] is not None:
        inputs["neighbors"] = check_neighbors(inputs["neighbors"])
    shared, per_text = {}, {}
    for need in chosen.needs:
        if need == "frequency":
            shared["frequency"] = check_vocabulary(inputs[need], stats).log_probability
        elif len(inputs[need]) != len(stats):
            n_given = len(inputs[need])
            raise ValueError(f"detector {name!r}: {need} holds {n_given} texts, the statistics {len(stats)}")
        else:
            per_text[INPUTS[need]] = inputs[need]
    scores = np.empty(len(stats))
    for i, row in enumerate(stats):
        own = {argument: values[i] for argument, values in per_text.items()}
        scores[i] = chosen.score_text(row, **own, **shared, **given)
        if not np.isfinite(scores[i]):
            raise ValueError(f"detector {name!r} gives {scores[i]} for text {i} ({len(row.log_prob)} tokens)")
    return scores


def get_detector(name: str) -> Detector:
    """The registered detector, or a ValueError that names all of them."""
    if name == "probe":
        raise ValueError("the probe reads a model's weights, not token statistics: call mialib.probe_scores")
    if name not in DETECTORS:
        raise ValueError(f"unknown detector {name!r}; known: {', '.join(DETECTORS)}")
    return DETECTORS[name]


def check_hyperparameter(detector: str, option: str, value: Any, default: float) -> None:
    """ValueError for a hyperparameter that is no number, or is neither True nor False where its default is."""
    if isinstance(default, bool):
        is_known, wanted = isinstance(value, bool | np.bool_ | int) and value in (0, 1), "True or False"
    else:
        is_known, wanted = _is_number(value), "a number"
    if not is_known:
        raise ValueError(f"detector {detector!r}: {option} is {wanted}, got {short_repr(value)}")


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float64 holds, or infinite."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    except OverflowError:
        return False


def check_vocabulary(frequency: TokenFrequency, stats: TokenStats) -> TokenFrequency:
    """The frequencies, unless they count another tokenizer's tokens than the statistics hold."""
    tokenizer = stats.provenance.get("tokenizer")
    if tokenizer and frequency.tokenizer and tokenizer != frequency.tokenizer:
        raise ValueError(
            f"the frequencies count tokens of tokenizer {frequency.tokenizer} ({frequency.name}), "
            f"the statistics hold tokens of {tokenizer} ({stats.provenance.get('model')})"
        )
    largest = int(stats.token_ids.max(initial=0))
    if largest >= len(frequency.counts):
        raise ValueError(
            f"token id {largest} of the statistics lies outside the vocabulary of "
            f"{len(frequency.counts)} tokens that {frequency.name} counts"
        )
    return frequency


def check_neighbors(neighbors: FloatArray) -> FloatArray:
    """Mean log p of neighbors as (N, M) float64, M at least 1; ValueError for another shape or a number not finite."""
    neighbors = np.asarray(neighbors, np.float64)
    if neighbors.ndim != 2 or not neighbors.shape[1]:
        raise ValueError(f"neighbors: mean log p of shape (texts, neighbors) is expected, got {neighbors.shape}")
    if len(wrong := np.argwhere(~np.isfinite(neighbors))):
        text, neighbor = wrong[0]
        raise ValueError(f"text {text}, neighbor {neighbor}: mean log p is {neighbors[text, neighbor]}")
    return neighbors


def check_k(*ks: float, or_zero: bool = False) -> None:
    """ValueError for a k that is no percentage; 0, of which there are no tokens, is one for SURP's percentile alone."""
    for k in ks:
        if not (0 < k <= 100 or (or_zero and k == 0)):
            raise ValueError(f"k is a percentage in {'[' if or_zero else '('}0, 100], got {k}")


def lowest_indices(values: NDArray[np.floating], k: float) -> NDArray[np.int64]:
    """Which values are the lowest k percent, at least one, the lowest first: those that `lowest_mean` averages."""
    check_k(k)
    return np.argsort(values, kind="stable")[: max(1, int(len(values) * k / 100))]


def lowest_mean(values: NDArray[np.floating], k: float) -> float:
    """Mean of the lowest k percent of the values, at least one: max(1, floor(n k / 100)) of n."""
    check_k(k)
    m = max(1, int(len(values) * k / 100))
    return float(np.partition(values.astype(np.float64), m - 1)[:m].mean())


@detector("ppl", "PPL")
def ppl(row: TokenRow) -> float:
    """The LOSS attack: mean_i log p(x_i | x_<i), i.e. minus the log-perplexity (Yeom et al. 2018)."""
    return row.log_prob.mean(dtype=np.float64)


@detector("lowercase", "Lowercase")
def lowercase(row: TokenRow, *, lowercase: TokenRow) -> float:
    """- log PPL(x) / log PPL(lowercase x), natural logs (Carlini et al. 2021)."""
    return -ppl(row) / ppl(lowercase)


@detector("zlib", "Zlib")
def zlib(row: TokenRow, *, text: str) -> float:
    """- log PPL(x) / bytes of zlib(x) (Carlini et al. 2021)."""
    return ppl(row) / len(zlib_library.compress(text.encode()))


@detector("ref", "Small Ref")
def ref(row: TokenRow, *, reference: TokenRow) -> float:
    """- log PPL(x) / log PPL_ref(x), the reference a smaller model of the same family (Carlini et al. 2021)."""
    return -ppl(row) / ppl(reference)


# Its own paper keeps k = 20. SURP's takes "the best parameter value" and does not say of which.
K_GRID = {"k": list(range(10, 101, 10))}


@detector("min_k", "Min-K% Prob", grid=K_GRID)
def min_k(row: TokenRow, *, k: float = 20) -> float:
    """Min-K% Prob: mean log p of the k% of tokens with the lowest log p (Shi et al. 2024)."""
    return lowest_mean(row.log_prob, k)


@detector("min_k++", "Min-K%++ Prob", reads=("entropy", "log_prob_var"), grid=K_GRID)  # as the authors' code sweeps
def min_k_plus_plus(row: TokenRow, *, k: float = 20) -> float:
    """Min-K%++: mean of the lowest k% of z_i = (log p(x_i) - mu_i) / sigma_i (Zhang et al. 2024).

    mu_i = E[log p(v | x_<i)] = -H_i and sigma_i^2 = Var[log p(v | x_<i)], both over v ~ p(. | x_<i).
    """
    centred = row.log_prob.astype(np.float64) + row.entropy
    return lowest_mean(centred / np.sqrt(np.maximum(row.log_prob_var, SMALLEST_VARIANCE)), k)


def calibrated(row: TokenRow, frequency: FloatArray) -> FloatArray:
    """DC-PDD's alpha_i = -p(x_i; M) log p(x_i; D') of each token, (n,) (Zhang et al. 2024, Eq. 6)."""
    return -np.exp(row.log_prob.astype(np.float64)) * frequency[row.token_ids]


def first_occurrences(row: TokenRow) -> NDArray[np.int64]:
    """Where each token of a text occurs first: those that DC-PDD averages (Eq. 8)."""
    return np.unique(row.token_ids, return_index=True)[1]


@detector("dc_pdd", "DC-PDD", reads=("token_ids",))
def dc_pdd(row: TokenRow, *, frequency: FloatArray, a: float = 0.01, lup: bool = True, sfo: bool = True) -> float:
    """DC-PDD: beta = mean over first occurrences of min(alpha_i, a) (Zhang et al. 2024, Eq. 6-8).

    alpha_i = -p(x_i; M) log p(x_i; D'). `frequency` is log p(v; D') for each v, shape (V,). `lup` limits the upper
    bound to `a` (Eq. 7), `sfo` keeps each token's first occurrence alone (Eq. 8); CLD is neither, +LUP the first.
    """
    alpha = calibrated(row, frequency)
    if sfo:
        alpha = alpha[first_occurrences(row)]
    # As a distance from the bound, so that texts whose every token reaches it tie exactly, whatever their length.
    return float(a - np.maximum(a - alpha, 0).mean()) if lup else float(alpha.mean())


SURP_GRID = {"entropy_threshold": np.arange(0.5, 10.25, 0.5).tolist(), **K_GRID}


@detector("surp", "SURP", reads=("entropy",), grid=SURP_GRID)  # Section 5.2
def surp(row: TokenRow, *, entropy_threshold: float = 2.5, k: float = 40) -> float:
    """SURP: mean log p of tokens with H_i < entropy_threshold and log p_i < L^k (Zhang and Wu 2024, Eq. 1-4).

    L^k is the k-th percentile of the text's log p. A text without a surprising token scores 0 nats: it surprises the
    model least. The defaults are the best cell of the paper's Figure 4, of one model and benchmark; the paper
    recommends none, and searches its grid for each.
    """
    is_sure, is_low = surp_conditions(row, entropy_threshold, k)
    surprising = row.log_prob[is_sure & is_low].astype(np.float64)
    return float(surprising.mean()) if len(surprising) else 0.0


def surp_conditions(
    row: TokenRow, entropy_threshold: ArrayLike, k: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tokens have low entropy (Eq. 2) and which low probability (Eq. 3); those of both are surprising.

    Each (n,) for one hyperparameter; (E, n) for E thresholds, (K, n) for K percentiles. The percentile is interpolated
    between the text's sorted log p, and low is strictly below it.
    """
    check_k(*np.ravel(k), or_zero=True)
    if np.isnan(entropy_threshold).any():
        raise ValueError("entropy_threshold is a number, got nan")
    log_prob = row.log_prob.astype(np.float64)
    is_sure = row.entropy < np.asarray(entropy_threshold, np.float64)[..., None]
    return is_sure, log_prob < np.percentile(log_prob, k)[..., None]


@detector("neighbor", "Neighbor")
def neighbor(row: TokenRow, *, neighbors: FloatArray) -> float:
    """The Neighbor attack: mean loss of a text's neighbors minus its own loss (Mattern et al. 2023, Eq. 2).

    `neighbors` is the mean log p of each, shape (M,) in nats, so the score is mean log p(x) - mean_j mean log p(x~_j).
    """
    return ppl(row) - neighbors.mean()


def surp_grid(
    stats: TokenStats, entropy_thresholds: Sequence[float], ks: Sequence[float]
) -> tuple[FloatArray, NDArray[np.int64]]:
    """SURP of every text at every pair of hyperparameters.

    Returns scores of shape (E, K, N) and, of the same shape, how many surprising tokens each text has (a count of 0
    scores 0 nats, as in `surp`). Both conditions are 0/1 matrices, so one matrix product sums a whole grid.
    """
    check_known(DETECTORS["surp"].reads, stats.lacks, "SURP")
    stats.check_finite()
    shape = (len(entropy_thresholds), len(ks), len(stats))
    totals, counts = np.empty(shape), np.empty(shape)
    for i, row in enumerate(stats):
        is_sure, is_low = (of.astype(np.float64) for of in surp_conditions(row, entropy_thresholds, ks))
        totals[:, :, i] = is_sure @ (is_low * row.log_prob).T
        counts[:, :, i] = is_sure @ is_low.T
    scores = np.divide(totals, counts, out=np.zeros(shape), where=counts > 0)
    return scores, counts.astype(np.int64)


def score_grid(detector: str, stats: TokenStats, grid: Grid, **given: Any) -> Candidates:
    """A detector's scores at every point of a grid, the last hyperparameter varying fastest; `given`: see `detect`."""
    options = tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    if detector == "surp" and list(grid) == ["entropy_threshold", "k"]:
        return Candidates(options, surp_grid(stats, *grid.values())[0].reshape(len(options), -1))
    return Candidates(options, np.stack([detect(detector, stats, **given, **point) for point in options]))
