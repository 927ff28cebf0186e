"""Detectors since the four papers, as in their authors' code; the sign is turned so that higher is a member.

ValueError where passes over a text have other tokens.
"""

from functools import partial
from typing import Annotated

import numpy as np

from mialib.detectors.papers import K_GRID, calibrated, first_occurrences, standardized
from mialib.detectors.registry import TEMPERATURE, Percent, detector, lowest_mean
from mialib.metrics import FloatArray
from mialib.token_stats import TokenRow

later = partial(detector, is_later=True)
TEMPERED = "the pass at temperature 2"
GAP_K_VARIANCE, GAP_K_WINDOW = 1e-8, 3  # nats^2 and tokens
WBC_WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)  # tokens
CAMIA_TOKENS, CAMIA_BINS = 200, 3
CODEC_TOKENS = slice(10, -1)  # of a text, as in its authors' code
RENYI_GRID = {"order": [1, np.inf], **K_GRID}
Weight = Annotated[float, "weight of the deviation of log p"]
AECA_GRID = {"weight": list(range(1, 11))}  # its authors choose by the labels of the judged texts
Gamma = Annotated[float, "weight of the pass after members"]
CON_RECALL_GRID = {"gamma": [i / 10 for i in range(1, 11)]}


@later("gap_k", "Gap-K%", "Kwak and Kim 2026", reads=("log_prob_var", "top_log_prob"), grid=K_GRID)
def gap_k(row: TokenRow, *, k: Percent = 20) -> float:
    """Gap-K%: mean of the lowest k% of z_i = (log p(x_i) - max_v log p(v)) / sigma_i, smoothed.

    A smoothed value is the mean of three neighbouring ones, as in its authors' code; a text of fewer tokens is not
    smoothed. Others report that the paper takes six for its LLaMA models.
    """
    z = (row.log_prob.astype(np.float64) - row.top_log_prob) / np.sqrt(np.maximum(row.log_prob_var, GAP_K_VARIANCE))
    return lowest_mean(_window_sums(z, GAP_K_WINDOW) / GAP_K_WINDOW if len(z) >= GAP_K_WINDOW else z, k)


@later("max_renyi", "MaxRényi-K%", "Li et al. 2024", reads=("entropy", "top_log_prob"), grid=RENYI_GRID)
def max_renyi(
    row: TokenRow, *, order: Annotated[float, "of the entropy, 1 or infinity"] = np.inf, k: Percent = 10
) -> float:
    """MaxRényi-K%: minus the mean of the highest k% of the tokens' Rényi entropies.

    Of order 1 it is Shannon's entropy, of order infinity -max_v log p(v).
    """
    if order not in (1, np.inf):
        raise ValueError(f"order is 1 or infinity, got {order}")
    return lowest_mean(-row.entropy if order == 1 else row.top_log_prob, k)


@later("max_renyi_half", "MaxRényi-K%, order ½", "Li et al. 2024", reads=("token_ids",), grid=K_GRID)
def max_renyi_half(row: TokenRow, *, tempered: TokenRow, k: Percent = 10) -> float:
    """MaxRényi-K% of order 1/2, whose entropy is 2 log sum_v p(v)^(1/2), from a pass at temperature 2."""
    _check_same_tokens(row, tempered, TEMPERED)
    log_sum = row.log_prob.astype(np.float64) / TEMPERATURE - tempered.log_prob  # log sum_v p(v)^(1/2)
    return lowest_mean(-2 * log_sum, k)


# ACMIA's authors choose one of 51 temperatures by the labels of the judged texts; here it is fixed. They take the
# derivative as a difference of two temperatures. All three are means over a text's first occurrences of tokens.
@later("acmia_ac", "ACMIA, AC", "Zade et al. 2025", reads=("token_ids",))
def acmia_ac(row: TokenRow, *, tempered: TokenRow) -> float:
    """ACMIA's calibration: mean of log p - log p_2, p_2 being p at temperature 2."""
    return float(_above(row, tempered, TEMPERED)[first_occurrences(row)].mean())


@later("acmia_deriv", "ACMIA, DerivAC", "Zade et al. 2025", reads=("token_ids", "entropy"))
def acmia_deriv(row: TokenRow) -> float:
    """ACMIA's derivative: mean of log p + H, which is d log p_t / d(1/t) at temperature t = 1."""
    return float((row.log_prob.astype(np.float64) + row.entropy)[first_occurrences(row)].mean())


@later("acmia_norm", "ACMIA, NormAC", "Zade et al. 2025", reads=("token_ids", "entropy", "log_prob_var"))
def acmia_norm(row: TokenRow) -> float:
    """ACMIA's normalization: mean of (log p + H) / sigma at temperature 1, which are Min-K%++'s values."""
    return float(standardized(row)[first_occurrences(row)].mean())


# PAC also calibrates it by the distance of the text with words swapped, which takes passes of its own; left out here.
@later("polarized", "Polarized distance", "Ye et al. 2024")
def polarized(row: TokenRow) -> float:
    """Minus PAC's polarized distance: mean of the lowest 30% of log p minus mean of the highest 5%."""
    return lowest_mean(row.log_prob, 30) + lowest_mean(-row.log_prob, 5)


@later("aeca", "AECA", "Ke et al. 2026", reads=("token_ids",), grid=AECA_GRID)
def aeca(row: TokenRow, *, frequency: FloatArray, weight: Weight = 1) -> float:
    """AECA: standard deviation of alpha_i - alpha_(i+1) minus `weight` times that of log p; 0 follows the last alpha.

    alpha_i = -p(x_i) log p(x_i; D') is DC-PDD's, without its bound, and `frequency` is log p(v; D') for each v, (V,).
    """
    return float(np.diff(calibrated(row, frequency), append=0).std() - weight * row.log_prob.std(dtype=np.float64))


@later("wbc", "WBC", "Chen et al. 2026", reads=("token_ids",))
def wbc(row: TokenRow, *, reference: TokenRow) -> float:
    """WBC: the share of windows whose summed loss is larger under the reference, a mean over window lengths."""
    lengths = np.minimum(WBC_WINDOWS, len(row.log_prob))  # a window is at most the text
    difference = _above(row, reference, "the reference")
    return float(np.mean([(_window_sums(difference, n) > 0).mean() for n in lengths]))


@later("ez_mia", "EZ-MIA", "Ilić et al. 2026", reads=("token_ids", "top_log_prob"), version=2)
def ez_mia(row: TokenRow, *, reference: TokenRow) -> float:
    """EZ-MIA: over the tokens after the first that are not the likeliest, the sum of the positive log p - log p_ref
    over that of the negative ones, without its sign; 0 below two such tokens, and where none is negative.
    """
    difference = _above(row, reference, "the reference")[1:][row.log_prob[1:] < row.top_log_prob[1:]]
    below = -difference[difference < 0].sum()
    return float(difference[difference > 0].sum() / below) if len(difference) >= 2 and below else 0.0


@later("recall", "ReCaLL", "Xie et al. 2024", reads=("token_ids",))
def recall(row: TokenRow, *, after_non_members: TokenRow) -> float:
    """ReCaLL: mean log p after known non-members over mean log p, of the tokens that both have."""
    alone, after = _shared(row, after_non_members)
    return after / alone


@later("con_recall", "Con-ReCall", "Wang et al. 2025", reads=("token_ids",), grid=CON_RECALL_GRID)
def con_recall(row: TokenRow, *, after_non_members: TokenRow, after_members: TokenRow, gamma: Gamma = 1) -> float:
    """Con-ReCall: mean log p after known non-members minus `gamma` times that after known members, over mean log p."""
    alone, after_others, after_own = _shared(row, after_non_members, after_members)
    return (after_others - gamma * after_own) / alone


@later("codec", "CoDeC", "Zawalski et al. 2026", reads=("token_ids",))
def codec(row: TokenRow, *, after_others: TokenRow) -> float:
    """CoDeC: mean log p minus mean log p after another text of the same set, without the first ten tokens and the last.

    0 for a text of fewer than 12 tokens. A set's number is the share of its texts above 0, those at 0 left out.
    """
    alone, after = (TokenRow._make(column[CODEC_TOKENS] for column in of) for of in (row, after_others))
    if not len(alone.log_prob) or not len(after.log_prob):
        return 0.0
    of_alone, of_after = _shared(alone, after)
    return of_alone - of_after


def _shared(row: TokenRow, *others: TokenRow) -> list[np.float64]:
    """Mean log p, nats, of a text alone and after other texts, over the first tokens that all passes have."""
    for other in others:
        if not np.array_equal(row.token_ids[: len(other.token_ids)], other.token_ids[: len(row.token_ids)]):
            raise ValueError("the pass after known texts is of other texts, or of another tokenizer")
    n = min(len(of.log_prob) for of in (row, *others))
    return [of.log_prob[:n].mean(dtype=np.float64) for of in (row, *others)]


def _window_sums(values: FloatArray, window: int) -> FloatArray:
    """Sums of `window` neighbouring values, (n - window + 1,)."""
    return np.convolve(values, np.ones(window), "valid")


def _check_same_tokens(row: TokenRow, other: TokenRow, what: str) -> None:
    """ValueError where two passes of one text read different tokens."""
    if not np.array_equal(row.token_ids, other.token_ids):
        raise ValueError(f"{what} reads other tokens; take one of the same texts, tokenizer and start token")


def _above(row: TokenRow, other: TokenRow, what: str) -> FloatArray:
    """log p of each token minus that in another pass, (n,) nats."""
    _check_same_tokens(row, other, what)
    return row.log_prob.astype(np.float64) - other.log_prob


# CAMIA's signals of a text's first 200 tokens. Its authors take each one's sign from labelled texts; here it is fixed.
@later("camia_above", "CAMIA, above", "Chang et al. 2025")
def camia_above(row: TokenRow, *, cutoff: Annotated[float, "log p of a token that counts, nats"] = -1) -> float:
    """CAMIA's count above a cutoff: the share of tokens whose log p is at least `cutoff` nats."""
    return float((row.log_prob[:CAMIA_TOKENS] >= cutoff).mean())


@later("camia_rising", "CAMIA, rising", "Chang et al. 2025")
def camia_rising(row: TokenRow) -> float:
    """CAMIA's count above what came before: the share of tokens whose log p is above the mean of those before them."""
    log_prob = row.log_prob[:CAMIA_TOKENS].astype(np.float64)
    if len(log_prob) < 2:
        return 0.0
    before = np.cumsum(log_prob)[:-1] / np.arange(1, len(log_prob))
    return float((log_prob[1:] > before).mean())


# Its authors' script takes it over repeats of the text, five of them; this is that of the text alone.
@later("camia_slope", "CAMIA, slope", "Chang et al. 2025")
def camia_slope(row: TokenRow) -> float:
    """CAMIA's slope: that of the least-squares line through log p, nats per token; 0 for a text of one token."""
    log_prob = row.log_prob[:CAMIA_TOKENS].astype(np.float64)
    place = np.arange(len(log_prob)) - (len(log_prob) - 1) / 2
    return float(place @ log_prob / (place @ place or 1.0))


@later("camia_lz", "CAMIA, Lempel-Ziv", "Chang et al. 2025")
def camia_lz(row: TokenRow) -> float:
    """Minus CAMIA's Lempel-Ziv complexity: the phrases that the binned log p falls into, a token.

    log p is binned in hundredths of its range up to 0, and these in three equal parts. A phrase is the shortest run of
    bins that is not an earlier phrase.
    """
    log_prob = row.log_prob[:CAMIA_TOKENS].astype(np.float64)
    hundredths = np.digitize(log_prob, np.linspace(log_prob.min(), 0, 100), right=True)
    binned = np.searchsorted(np.linspace(hundredths.min(), hundredths.max(), CAMIA_BINS + 1)[1:], hundredths).tolist()
    phrases, begin = set(), 0
    for end in range(1, len(binned) + 1):
        if (phrase := tuple(binned[begin:end])) not in phrases:
            phrases.add(phrase)
            begin = end
    return -len(phrases) / len(binned)
