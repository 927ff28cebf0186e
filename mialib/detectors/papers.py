"""The detectors of the four papers, and the baselines that they compare with."""

import zlib as zlib_library
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.detectors.registry import DETECTORS, Percent, check_k, detect, detector, lowest_mean
from mialib.metrics import FloatArray
from mialib.model_selection import Candidates, Grid
from mialib.token_stats import TokenRow, TokenStats, check_known

# nats^2. log p is exact only to about 1e-7, so a variance below this is a distribution with all its mass on one token.
SMALLEST_VARIANCE = 1e-12
K_GRID = {"k": list(range(10, 101, 10))}
SURP_GRID = {"entropy_threshold": np.arange(0.5, 10.25, 0.5).tolist(), **K_GRID}  # Section 5.2


@detector("ppl", "PPL", "Yeom et al. 2018")
def ppl(row: TokenRow) -> float:
    """The LOSS attack: mean_i log p(x_i | x_<i), i.e. minus the log-perplexity."""
    return row.log_prob.mean(dtype=np.float64)


@detector("lowercase", "Lowercase", "Carlini et al. 2021")
def lowercase(row: TokenRow, *, lowercase: TokenRow) -> float:
    """- log PPL(x) / log PPL(lowercase x), natural logs."""
    return -ppl(row) / ppl(lowercase)


@detector("zlib", "Zlib", "Carlini et al. 2021")
def zlib(row: TokenRow, *, text: str) -> float:
    """- log PPL(x) / bytes of zlib(x)."""
    return ppl(row) / len(zlib_library.compress(text.encode()))


@detector("ref", "Small Ref", "Carlini et al. 2021")
def ref(row: TokenRow, *, reference: TokenRow) -> float:
    """- log PPL(x) / log PPL_ref(x), the reference a smaller model of the same family.

    Where one of them has the shorter context, both are of the tokens that it reads, as far as these are the same.
    """
    n = min(len(row.log_prob), len(reference.log_prob))
    if row.token_ids[0] >= 0 and np.array_equal(row.token_ids[:n], reference.token_ids[:n]):
        row, reference = (TokenRow._make(column[:n] for column in of) for of in (row, reference))
    return -ppl(row) / ppl(reference)


# Its own paper keeps k = 20. SURP's takes "the best parameter value" and does not say of which values.
@detector("min_k", "Min-K% Prob", "Shi et al. 2024", grid=K_GRID)
def min_k(row: TokenRow, *, k: Percent = 20) -> float:
    """Min-K% Prob: mean log p of the k% of tokens with the lowest log p."""
    return lowest_mean(row.log_prob, k)


def standardized(row: TokenRow) -> FloatArray:
    """Min-K%++'s (log p(x_i) - mu_i) / sigma_i of each token, (n,)."""
    centred = row.log_prob.astype(np.float64) + row.entropy
    return centred / np.sqrt(np.maximum(row.log_prob_var, SMALLEST_VARIANCE))


# Its grid is that of the authors' code.
@detector("min_k++", "Min-K%++ Prob", "Zhang et al. 2024", reads=("entropy", "log_prob_var"), grid=K_GRID)
def min_k_plus_plus(row: TokenRow, *, k: Percent = 20) -> float:
    """Min-K%++: mean of the lowest k% of z_i = (log p(x_i) - mu_i) / sigma_i.

    mu_i = E[log p(v | x_<i)] = -H_i and sigma_i^2 = Var[log p(v | x_<i)], both over v ~ p(. | x_<i).
    """
    return lowest_mean(standardized(row), k)


def calibrated(row: TokenRow, frequency: FloatArray) -> FloatArray:
    """DC-PDD's alpha_i = -p(x_i; M) log p(x_i; D') of each token, (n,) (Zhang et al. 2024, Eq. 6)."""
    return -np.exp(row.log_prob.astype(np.float64)) * frequency[row.token_ids]


def first_occurrences(row: TokenRow) -> NDArray[np.int64]:
    """Where each token of a text occurs first; DC-PDD averages over these (Eq. 8)."""
    return np.unique(row.token_ids, return_index=True)[1]


@detector("dc_pdd", "DC-PDD", "Zhang et al. 2024, Eq. 6-8", reads=("token_ids",))
def dc_pdd(
    row: TokenRow,
    *,
    frequency: FloatArray,
    a: Annotated[float, "upper bound of a token's alpha, nats"] = 0.01,
    lup: Annotated[bool, "whether alpha is bounded by a"] = True,
    sfo: Annotated[bool, "whether only a token's first occurrence counts"] = True,
) -> float:
    """DC-PDD: beta = mean over first occurrences of min(alpha_i, a).

    alpha_i = -p(x_i; M) log p(x_i; D'), and `frequency` is log p(v; D') for each v, (V,). The paper's CLD has neither
    `lup` (Eq. 7) nor `sfo` (Eq. 8), its +LUP the first.
    """
    alpha = calibrated(row, frequency)
    if sfo:
        alpha = alpha[first_occurrences(row)]
    # a minus a mean distance, so that texts whose every token reaches the bound tie exactly, whatever their length.
    return float(a - np.maximum(a - alpha, 0).mean()) if lup else float(alpha.mean())


@detector("surp", "SURP", "Zhang and Wu 2024, Eq. 1-4", reads=("entropy",), grid=SURP_GRID)
def surp(
    row: TokenRow,
    *,
    entropy_threshold: Annotated[float, "the model is sure below it, nats"] = 2.5,
    k: Annotated[float, "percentile of the text's log p that a surprising token lies below"] = 40,
) -> float:
    """SURP: mean log p of tokens with H_i < entropy_threshold and log p_i < L^k.

    L^k is the k-th percentile of the text's log p. A text without a surprising token scores 0 nats: it surprises the
    model least. The defaults are the best cell of the paper's Figure 4, for one model and benchmark; the paper searches
    its grid for each.
    """
    is_sure, is_low = surp_conditions(row, entropy_threshold, k)
    surprising = row.log_prob[is_sure & is_low].astype(np.float64)
    return float(surprising.mean()) if len(surprising) else 0.0


def surp_conditions(
    row: TokenRow, entropy_threshold: ArrayLike, k: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of n tokens have low entropy (Eq. 2) and which low probability (Eq. 3); surprising ones have both.

    Each is (n,) for one hyperparameter; (E, n) for E thresholds, (K, n) for K percentiles, which are interpolated.
    """
    check_k(*np.ravel(k), or_zero=True)
    log_prob = row.log_prob.astype(np.float64)
    is_sure = row.entropy < np.asarray(entropy_threshold, np.float64)[..., None]
    is_low = log_prob < np.percentile(log_prob, np.asarray(k, np.float64))[..., None]
    return is_sure, is_low


@detector("neighbor", "Neighbor", "Mattern et al. 2023, Eq. 2")
def neighbor(row: TokenRow, *, neighbors: FloatArray) -> float:
    """The Neighbor attack: mean loss of a text's neighbors minus its own loss.

    `neighbors` is the mean log p of each, (M,) nats, so the score is mean log p(x) - mean_j mean log p(x~_j).
    """
    return ppl(row) - neighbors.mean()


def surp_grid(
    stats: TokenStats, entropy_thresholds: Sequence[float], ks: Sequence[float]
) -> tuple[FloatArray, NDArray[np.int64]]:
    """SURP of N texts at E thresholds and K percentiles: scores and numbers of surprising tokens, both (E, K, N).

    >>> stats = Scorer("smollm2-135m").score(["The river rises in the hills.", "No minutes survive."], progress=False)
    >>> scores, n_surprising = surp_grid(stats, entropy_thresholds=[1.0, 2.0], ks=[20, 40, 60])
    >>> scores.shape
    (2, 3, 2)
    """
    check_known(DETECTORS["surp"].reads, stats.lacks, "SURP")
    stats.check_finite()
    totals, counts = np.empty((2, len(entropy_thresholds), len(ks), len(stats)))
    for i, row in enumerate(stats):
        is_sure, is_low = (of.astype(np.float64) for of in surp_conditions(row, entropy_thresholds, ks))
        totals[:, :, i] = is_sure @ (is_low * row.log_prob).T  # (E, n) @ (n, K): 0/1 matrices sum a whole grid
        counts[:, :, i] = is_sure @ is_low.T
    scores = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0)
    return scores, counts.astype(np.int64)


def grid_candidates(detector: str, stats: TokenStats, grid: Grid, **given: Any) -> Candidates:
    """A detector's scores at every point of a grid, the last hyperparameter varying fastest; `given`: see `detect`."""
    options = tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    if detector == "surp" and list(grid) == ["entropy_threshold", "k"]:
        return Candidates(options, surp_grid(stats, *grid.values())[0].reshape(len(options), -1))
    return Candidates(options, np.stack([detect(detector, stats, **given, **point) for point in options]))
