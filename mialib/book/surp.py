"""The pages of the SURP paper: functions of stored token statistics.

Figure 4   auc_grid, compare_conditions: the heatmap, and each of the two conditions alone
variants   VARIANTS, compare_variants: other readings of "low probability" and of a text without a surprising token
Figure 2   token_cloud, mean_of_surprising: entropy against log-probability, token by token
Tables     both_ways: every method, hyperparameters chosen as the paper does and on held-out texts
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.book.published import load_published, published_along
from mialib.book.results import DASH, Result
from mialib.detectors import DETECTORS, FloatArray, below_percentile, surp_grid
from mialib.metrics import (
    Comparison,
    Interval,
    auc_interval,
    aucs,
    compare_auc,
    document_auc_interval,
    resamples,
    tpr_at_fpr_interval,
)
from mialib.model_selection import GRIDS, HELD_OUT, Candidates, Gap, describe_options, gap, score_grid, stratified_split
from mialib.passes.inputs import Inputs, score_all
from mialib.token_stats import TokenRow, check_known

if TYPE_CHECKING:
    import pandas as pd

IsLow = Callable[[FloatArray, ArrayLike], NDArray[np.bool_]]  # log p (n,), k -> (n,), or (K, n) for K of them

PAPER = "surp"
PAPERS_BEST = (2.5, 40.0)  # the best cell of the paper's Figure 4
# The rows of Tables 1 to 3, by detector. Where one is not in the registry its row holds the published number alone.
METHODS = {
    "ppl": "PPL",
    "ref": "Ref",
    "lowercase": "Lower",
    "zlib": "Zlib",
    "neighbor": "Neighbor",
    "min_k": "MinK",
    "surp": "SURP",
}
LOW_FPRS = {"tpr_at_1_fpr": 0.01, "tpr_at_5_fpr": 0.05, "tpr_at_10_fpr": 0.1}
MIN_DOMAIN_TEXTS = 15  # of a class


# --- Figure 4: the grid ---


@dataclass(frozen=True)
class SurpGrid:
    """SURP over all pairs of hyperparameters: rows are entropy thresholds (nats), columns are percentiles k."""

    scores: FloatArray  # (E, K, N)
    auc: FloatArray  # (E, K)
    texts_without: NDArray[np.int64]  # (E, K): texts that have no surprising token
    best: tuple[int, int]  # the cell of the highest AUC, chosen on the same texts as in the paper


def auc_grid(inputs: Inputs, entropy_thresholds: Sequence[float], ks: Sequence[float]) -> SurpGrid:
    """SURP's AUC at every pair of hyperparameters, from the statistics alone."""
    scores, counts = surp_grid(inputs.stats, entropy_thresholds, ks)
    grid = aucs(inputs.labels, scores.reshape(-1, scores.shape[-1])).reshape(scores.shape[:2])
    best = np.unravel_index(grid.argmax(), grid.shape)
    return SurpGrid(scores, grid, (counts == 0).sum(axis=-1), (int(best[0]), int(best[1])))


def grid_results(
    inputs: Inputs, grid: SurpGrid, entropy_thresholds: Sequence[float], ks: Sequence[float]
) -> list[Result]:
    """Every cell of a SURP grid as a result with its interval."""
    return [
        Result.of(
            row=f"entropy < {threshold:g}",
            column=f"{inputs.target.column}, k = {k:g}",
            metric="auc",
            interval=auc_interval(inputs.labels, grid.scores[i, j]),
        )
        for i, threshold in enumerate(entropy_thresholds)
        for j, k in enumerate(ks)
    ]


def compare_conditions(
    inputs: Inputs, entropy_thresholds: Sequence[float], ks: Sequence[float]
) -> dict[str, Comparison]:
    """SURP minus each of its two conditions alone, and minus Min-K%: hyperparameters of both sides are chosen on a
    fifth of the texts and judged on the others.

    A threshold alone is the paper's top row, k = 100; a percentile alone a threshold that every token is below. On the
    texts that are chosen on the best of a grid is at least the best of a part of it, and most cells have most luck.
    """
    grids = {
        "SURP": ("surp", {"entropy_threshold": entropy_thresholds, "k": ks}),
        "entropy threshold alone": ("surp", {"entropy_threshold": entropy_thresholds, "k": [100]}),
        "percentile alone": ("surp", {"entropy_threshold": [np.inf], "k": ks}),
        "Min-K% Prob": ("min_k", {"k": ks}),
    }
    val_idx, test_idx = stratified_split(inputs.labels, HELD_OUT)
    scores = {}
    for name, (detector, grid) in grids.items():
        candidates = score_grid(inputs, detector, grid)
        best = candidates.best(inputs.labels, val_idx)
        scores[f"{name} ({describe_options(candidates.options[best])})"] = candidates.scores[best][test_idx]
    (whole, of_surp), *others = scores.items()
    return {f"{whole} − {name}": compare_auc(inputs.labels[test_idx], of_surp, values) for name, values in others}


def printed_cells() -> dict[tuple[float, float], str]:
    """What the paper says in words of Figure 4's cells, by entropy threshold and k: an AUC, or that one is the best."""
    cells = load_published(PAPER, "figure-4")
    best = {row.metric: row.value for row in cells.itertuples() if row.metric.startswith("best_")}
    of_best = published_along(PAPER, "table-2", "Dolma-Book-middle / OLMo-7B", "auc")["SURP"]
    stated = {(best["best_entropy_threshold"], best["best_k"]): f"{of_best:.3f}, the best (Table 2)"}
    for row in cells[cells["metric"] == "auc"].itertuples():
        threshold, k = re.search(r"entropy threshold ([\d.]+) / k (\d+)", row.column).groups()
        stated[float(threshold), float(k)] = f"{row.value:.2f}"
    return stated


# --- other readings of the paper ---


def lowest_by_rank(log_prob: FloatArray, k: ArrayLike) -> NDArray[np.bool_]:
    """Other code's reading: the int(n k / 100) lowest by rank, ties by position, as in Min-K%."""
    ranks = np.argsort(np.argsort(log_prob, kind="stable"))
    return ranks < (len(log_prob) * np.asarray(k) / 100).astype(np.int64)[..., None]


def below_share_of_range(log_prob: FloatArray, k: ArrayLike) -> NDArray[np.bool_]:
    """The paper's sentence to the letter: strictly below the value k/100 of the way from the minimum to the maximum."""
    return log_prob < log_prob.min() + np.asarray(k)[..., None] / 100 * (log_prob.max() - log_prob.min())


def surprising(
    row: TokenRow,
    entropy_threshold: float,
    k: float,
    is_low: IsLow = below_percentile,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """A text's log p in float64, and which of its tokens have low entropy and low probability (Eq. 2 and 3)."""
    log_prob = row.log_prob.astype(np.float64)
    return log_prob, (row.entropy.astype(np.float64) < entropy_threshold) & is_low(log_prob, k)


def every_token(log_prob: FloatArray, _k: ArrayLike) -> NDArray[np.bool_]:
    """No limit on the probability."""
    return np.ones(len(log_prob), bool)


@dataclass(frozen=True)
class Variant:
    """A reading of Eq. 2 to 4."""

    is_low: IsLow
    without: float  # the score of a text without a surprising token, nats


VARIANTS = {
    "ours": Variant(below_percentile, 0.0),
    "by rank": Variant(lowest_by_rank, 0.0),
    "by range": Variant(below_share_of_range, 0.0),
    "empty scores −100": Variant(below_percentile, -100.0),
}


def variant_grid(
    inputs: Inputs, variant: Variant, entropy_thresholds: Sequence[float], ks: Sequence[float]
) -> tuple[Candidates, NDArray[np.bool_]]:
    """SURP's scores under a variant at each of C pairs of hyperparameters, and which texts have no surprising token
    there, (C, N)."""
    scores, counts = surp_grid(inputs.stats, entropy_thresholds, ks, variant.is_low)
    options = tuple({"entropy_threshold": threshold, "k": k} for threshold in entropy_thresholds for k in ks)
    is_without = (counts == 0).reshape(len(options), -1)
    return Candidates(options, np.where(is_without, variant.without, scores.reshape(is_without.shape))), is_without


def variant_scores(inputs: Inputs, variant: Variant, entropy_threshold: float, k: float) -> tuple[FloatArray, int]:
    """SURP's scores under a variant, (N,), and how many texts have no surprising token."""
    at_cell, is_without = variant_grid(inputs, variant, [entropy_threshold], [k])
    return at_cell.scores[0], int(is_without.sum())


@dataclass(frozen=True)
class VariantResult:
    """A reading of the equations at one cell."""

    name: str
    where: str  # what the cell is
    options: dict[str, float]  # the cell
    n_without: int  # judged texts without a surprising token
    auc: Interval
    change: Comparison | None  # its AUC minus that of our reading; None for ours


def compare_variants(inputs: Inputs, entropy_thresholds: Sequence[float], ks: Sequence[float]) -> list[VariantResult]:
    """Each reading of the equations at its own best cell on a fifth of the texts and at the paper's, on the others.

    At one reading's best cell the others would look worse than they are.
    """
    val_idx, test_idx = stratified_split(inputs.labels, HELD_OUT)
    labels = inputs.labels[test_idx]
    cells = {
        "own cell, chosen on a fifth": (entropy_thresholds, ks),
        "the paper's cell": tuple([x] for x in PAPERS_BEST),
    }
    results = []
    for where, grid in cells.items():
        ours = None
        for name, variant in VARIANTS.items():
            candidates, is_without = variant_grid(inputs, variant, *grid)
            best = candidates.best(inputs.labels, val_idx)
            scores, n_without = candidates.scores[best][test_idx], int(is_without[best][test_idx].sum())
            change = None if ours is None else compare_auc(labels, scores, ours)
            ours = scores if ours is None else ours
            interval = auc_interval(labels, scores)
            results.append(VariantResult(name, where, candidates.options[best], n_without, interval, change))
    return results


# --- Figure 2: tokens ---


@dataclass(frozen=True)
class TokenCloud:
    """Tokens of many texts, each with its entropy, its log-probability and whether its text was trained on."""

    entropy: FloatArray  # nats
    log_prob: FloatArray  # nats
    is_seen: NDArray[np.bool_]


def token_cloud(
    inputs: Inputs, *, entropy_threshold: float = np.inf, k: float = 100, n_tokens: int | None = None, seed: int = 0
) -> TokenCloud:
    """The surprising tokens of all texts (all tokens by default); at random `n_tokens` of each class, or as many as
    there are."""
    check_known(["entropy"], inputs.stats.lacks, "a figure of tokens' entropies")
    entropy, log_prob, is_seen = [], [], []
    for row, label in zip(inputs.stats, inputs.labels, strict=True):
        values, chosen = surprising(row, entropy_threshold, k, below_percentile if k < 100 else every_token)
        entropy.append(row.entropy[chosen].astype(np.float64))
        log_prob.append(values[chosen])
        is_seen.append(np.full(int(chosen.sum()), bool(label)))
    columns = [np.concatenate(column) for column in (entropy, log_prob, is_seen)]
    if n_tokens is not None:
        rng = np.random.default_rng(seed)
        own = [np.flatnonzero(columns[2] == seen) for seen in (True, False)]
        kept = np.concatenate([rng.permutation(texts)[:n_tokens] for texts in own])
        order = rng.permutation(kept)
        columns = [column[order] for column in columns]
    return TokenCloud(*columns)


def mean_of_surprising(
    inputs: Inputs, entropy_threshold: float, k: float, level: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """Mean log p of the surprising tokens of seen and of unseen texts, and the difference, in nats.

    Intervals by a bootstrap that draws texts: a text's tokens are alike. None where a class has no such token.
    """
    totals, counts = np.zeros(len(inputs.labels)), np.zeros(len(inputs.labels))
    for i, row in enumerate(inputs.stats):
        values, chosen = surprising(row, entropy_threshold, k)
        totals[i], counts[i] = values[chosen].sum(), chosen.sum()
    means = {}
    for name, label in (("seen", 1), ("unseen", 0)):
        own = np.flatnonzero(inputs.labels == label)
        if not counts[own].any():
            return {"seen": None, "unseen": None, "seen − unseen": None}
        drawn = resamples(len(own), seed + label)
        with np.errstate(invalid="ignore"):
            resampled = (drawn @ totals[own]) / (drawn @ counts[own])
        means[name] = (totals[own].sum() / counts[own].sum(), resampled)
    means["seen − unseen"] = tuple(a - b for a, b in zip(means["seen"], means["unseen"], strict=True))
    ends = [(1 - level) / 2, (1 + level) / 2]
    return {
        name: Interval(float(estimate), *map(float, np.nanquantile(resampled, ends)), level)
        for name, (estimate, resampled) in means.items()
    }


# --- Tables 1 to 3: every method, hyperparameters chosen in two ways ---


@dataclass(frozen=True)
class BothWays:
    """All methods of a table's column: results, and how the methods with hyperparameters chose theirs."""

    results: list[Result]  # metrics "auc" (chosen on the texts judged) and "auc_held_out"
    options: dict[tuple[str, str], dict[str, float]]  # what was chosen, by method and metric
    gaps: dict[str, Gap]  # of the methods that have something to choose
    test_idx: NDArray[np.int64]  # the texts of "auc_held_out"
    held_out: dict[str, FloatArray]  # each method's scores on them


def both_ways(
    inputs: Inputs,
    *,
    item: str | None = None,
    published: str | None = None,
    column: str | None = None,
    document: NDArray[np.int64] | None = None,
) -> BothWays:
    """AUC of each method of Tables 1 to 3, with Min-K%'s and SURP's hyperparameters chosen in two ways.

    "auc" is the paper's: the best on all texts, judged on all texts. "auc_held_out" chooses on a fifth of the texts and
    judges on the others, and so do the methods that have nothing to choose, so that its rows compare. `published` is
    the column of the paper's `item` that stands beside "auc", if it has such a column. `document` is the number of each
    text's document, where a document has several: documents are then dealt out and drawn whole.
    """
    column = column or inputs.target.column
    published = printed_column(item, published) if item and published else None
    printed = published_along(PAPER, item, published, "auc") if published else {}
    labels, everything = inputs.labels, np.arange(len(inputs.labels))
    val_idx, test_idx = stratified_split(labels, HELD_OUT, document=document)
    found = BothWays([], {}, {}, test_idx, {})
    for name, label in METHODS.items():
        candidates = _candidates_of(inputs, name)
        if candidates is not None and len(candidates.options) > 1:
            found.gaps[label] = gap(candidates, labels, document)
        for metric, fitted_on, texts in (("auc", everything, everything), ("auc_held_out", val_idx, test_idx)):
            interval = None
            if candidates is not None:
                best = candidates.best(labels, fitted_on)
                scores = candidates.scores[best][texts]
                interval = _interval(labels[texts], scores, None if document is None else document[texts])
                found.options[label, metric] = candidates.options[best]
                if metric == "auc_held_out":
                    found.held_out[label] = scores
            of_paper = {"published": printed.get(label), "published_column": published} if metric == "auc" else {}
            found.results.append(Result.of(row=label, column=column, metric=metric, interval=interval, **of_paper))
    return found


def _candidates_of(inputs: Inputs, name: str) -> Candidates | None:
    """A method's scores at each point of its grid, or the one that it has; None where it is not applicable."""
    if name in ("min_k", "surp"):
        return score_grid(inputs, name, GRIDS[name])
    scores = score_all(inputs, [name])[name] if name in DETECTORS else None
    return None if scores is None else Candidates(({},), scores[None])


def _interval(labels: NDArray[np.int8], scores: FloatArray, document: NDArray[np.int64] | None) -> Interval:
    if document is None or len(np.unique(document)) == len(document):
        return auc_interval(labels, scores)
    return document_auc_interval(labels, scores, np.unique(document, return_inverse=True)[1])


def tpr_results(labels: ArrayLike, scores: Mapping[str, FloatArray], column: str) -> list[Result]:
    """TPR of each method at 1, 5 and 10% FPR with bootstrap intervals."""
    return [
        Result.of(row=name, column=column, metric=metric, interval=tpr_at_fpr_interval(labels, values, fpr))
        for metric, fpr in LOW_FPRS.items()
        for name, values in scores.items()
    ]


def choice_table(columns: Mapping[str, BothWays]) -> pd.DataFrame:
    """One row a column and method: AUC and hyperparameters of each way of choosing, and the gap between the two."""
    import pandas as pd

    headings = {"auc": "paper's way", "auc_held_out": "chosen on a fifth"}
    rows = {
        f"{column}: {method}": {
            headings[r.metric]: f"{r}, {describe_options(both.options[method, r.metric])}"
            for r in both.results
            if r.row == method
        }
        | {"gap": str(of_method)}
        for column, both in columns.items()
        for method, of_method in both.gaps.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def printed_column(item: str, column: str) -> str | None:
    """The column `BENCHMARK / MODEL` of one of the paper's tables; None where the table has the model and not the
    benchmark, or the model is None: nothing then stands beside ours. ValueError for a model that it does not have."""
    columns = set(load_published(PAPER, item)["column"])
    models = sorted({name.rpartition(" / ")[2] for name in columns})
    model = column.rpartition(" / ")[2]
    if model not in [*models, "None"]:
        raise ValueError(f"{PAPER} {item} prints nothing of {model!r}; it has: {', '.join(models)}")
    return column if column in columns else None


def printed_table(item: str, model: str) -> pd.DataFrame:
    """What one of the paper's tables prints for one model: methods by benchmarks, or by domains, in its order."""
    cells = load_published(PAPER, item)
    cells = cells[cells["column"].str.endswith(f" / {model}")]
    benchmarks = cells["column"].str.removesuffix(f" / {model}")
    table = cells.assign(benchmark=benchmarks).pivot(index="row", columns="benchmark", values="value")
    return table.loc[cells["row"].unique(), benchmarks.unique()].rename_axis(index=None, columns=f"published: {model}")


def stated_gains() -> pd.DataFrame:
    """The gains over the strongest baseline that the paper's text states, in percent of its AUC."""
    stated = load_published(PAPER, "text").query("metric == 'auc_gain_percent'")
    return stated.set_index("column")[["value"]].set_axis(["SURP's stated gain (%)"], axis=1).rename_axis(index=None)


def compare_held_out(both: BothWays, labels: ArrayLike, method: str = "SURP", other: str = "MinK") -> Comparison:
    """One method's AUC minus another's on the texts that no hyperparameter was chosen on."""
    return compare_auc(np.asarray(labels)[both.test_idx], both.held_out[method], both.held_out[other])


def compare_models(labels: ArrayLike, first: BothWays, second: BothWays) -> dict[str, Comparison | None]:
    """The second model's AUC minus the first's on the same held-out texts, by method; None where one model lacks it."""
    methods = [name for name in METHODS.values() if name in first.held_out or name in second.held_out]
    return {
        name: compare_auc(np.asarray(labels)[first.test_idx], second.held_out[name], first.held_out[name])
        if name in first.held_out and name in second.held_out
        else None
        for name in methods
    }


def by_domain(inputs: Inputs) -> tuple[dict[str, Inputs], dict[str, tuple[int, int]]]:
    """The texts of each domain, and the domains left out with their numbers of members and non-members.

    A domain is left out where a class has fewer than 15 texts, of which a fifth would choose nothing. Texts
    whose domain is not known are one domain, named after the benchmark.
    """
    domains = np.array(inputs.benchmark.domains or [inputs.benchmark.name] * len(inputs.labels))
    kept, left_out = {}, {}
    for domain in sorted(set(domains.tolist())):
        texts = np.flatnonzero(domains == domain)
        n_members = int(inputs.labels[texts].sum())
        sizes = (n_members, len(texts) - n_members)
        if min(sizes) < MIN_DOMAIN_TEXTS:
            left_out[domain] = sizes
        else:
            kept[domain] = inputs.take(texts, f"{inputs.benchmark.name}: {domain}")
    return kept, left_out


def without_overlap(inputs: Inputs, overlaps: FloatArray | None, at_most: float) -> tuple[Inputs, int]:
    """The texts without the non-members that share more than `at_most` of their 7-grams with the training texts, and
    how many those are (MIMIR, Duan et al. 2024). `overlaps` of None: it is not known, and nothing is dropped."""
    if overlaps is None:
        return inputs, 0
    kept = np.flatnonzero((inputs.labels == 1) | (overlaps <= at_most))
    return inputs.take(kept, inputs.benchmark.name), len(inputs.labels) - len(kept)


def without_entropy(columns: Mapping[str, tuple[Inputs, BothWays]]) -> str:
    """In how many columns SURP's best threshold leaves out next to no token, so that it is Min-K% Prob there."""
    shares = [
        float(np.mean(inputs.stats.entropy < both.options["SURP", "auc"]["entropy_threshold"]))
        for inputs, both in columns.values()
    ]
    n = sum(share >= 0.99 for share in shares)
    return (
        f"In {n} of {len(shares)} columns at least 99% of the tokens lie below SURP's best entropy threshold: SURP is "
        "there, but for rounding, Min-K% Prob."
    )


def surp_readings_table(
    grids: Mapping[str, SurpGrid], thresholds: Sequence[float], ks: Sequence[float]
) -> pd.DataFrame:
    """SURP's AUC at the cells that the paper states in words, published and ours, and each grid's best cell."""
    import pandas as pd

    published = "published: OLMo-7B, Dolma-Book-middle"
    rows = {}
    for (threshold, k), stated in printed_cells().items():
        here = np.isclose(thresholds, threshold)[:, None] & np.isclose(ks, k)
        ours = {name: f"{grid.auc[here][0]:.3f}" if here.any() else DASH for name, grid in grids.items()}
        rows[f"ε = {threshold:g}, k = {k:g}"] = {published: stated} | ours
    rows["our best cell"] = {published: DASH} | {
        name: f"{grid.auc.max():.3f} at ε = {thresholds[grid.best[0]]:g}, k = {ks[grid.best[1]]:g}"
        for name, grid in grids.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def variants_table(found: Sequence[VariantResult]) -> pd.DataFrame:
    """One row a cell and reading of SURP's equations: AUC, its change, and the texts without a surprising token."""
    import pandas as pd

    rows = {
        f"{v.where}: {v.name}": {
            "cell": describe_options(v.options),
            "AUC [95% interval]": str(v.auc),
            "minus ours (paired)": str(v.change.difference) if v.change else DASH,
            "texts without": v.n_without,
        }
        for v in found
    }
    return pd.DataFrame.from_dict(rows, orient="index")
