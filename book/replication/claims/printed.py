"""By how much the papers print that one method leads another, and what samples of their size can show.

A paper prints AUCs to three digits without an interval. Their errors follow from the AUC and the numbers of texts
(Hanley and McNeil 1982). That of a difference on the same texts also depends on how closely the two methods' scores go
together, which no paper says. `CORRELATIONS` has what was measured, so each error is a range: of seven detectors with a
real model on WikiMIA (five in six lie within) and on ArxivMIA, of the probe with them, and of places of a
book with each other (in the lab). A TPR at 5% FPR has two
errors, of the members above the threshold and of the threshold; the ROC curve's slope there is taken from two normal
distributions of equal variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from mialib.metrics import Interval, exponential_variance
from replication.claims.spec import Claim, Side
from replication.published import METHODS, load_published
from replication.results import FPRS

CORRELATIONS = {"": (0.4, 0.9), "ArxivMIA": (-0.1, 0.9), "probe": (-0.15, 0.16)}
# Of two parts of one benchmark: WikiMIA's lengths are cut from the same articles (250 of its 776 texts of 32 words may
# be those of 128), Dolma-Book's places from the same books (measured with SURP in the lab).
CORRELATIONS |= {"parts of WikiMIA": (0.0, 0.5), "parts of Dolma": (0.15, 0.25)}
SIZES = {  # members and non-members of a benchmark, by paper; where it also sets some aside, all: the smaller error
    ("dc-pdd", "BookMIA"): (4935, 4935),  # Table 1, in halves
    ("dc-pdd", "PatentMIA"): (5000, 5000),
    ("dc-pdd", "WikiMIA"): (139, 111),  # of 128 words, as its text says that there are 250
    ("surp", "WikiMIA-32"): (387, 389),  # the public files
    ("surp", "WikiMIA-64"): (284, 258),
    ("surp", "WikiMIA-128"): (139, 111),
    ("surp", "Dolma-Book-head"): (978, 978),  # a text a book
    ("surp", "Dolma-Book-middle"): (978, 978),
    ("surp", "Dolma-Book-tail"): (1956, 1956),  # two a book
    ("probe", "WikiMIA"): (387, 289),  # Table 1
    ("probe", "ArxivMIA"): (1000, 1000),
    ("probe", "ArxivMIA-CS"): (400, 400),
    ("probe", "ArxivMIA-Math"): (600, 600),
    ("probe", "PubMedQA"): (1000, 1000),  # Section 6.3
    ("probe", "CommonsenseQA"): (1000, 1000),
}
POWER_33 = norm.ppf(0.975) + norm.ppf(1 / 3)  # standard errors of a lead that is found in a third of such samples
AS_PRINTED = "compatible with the printed leads"
SIZE_WORDS = ("smaller than the printed leads", AS_PRINTED, "larger than the printed leads")


@dataclass(frozen=True)
class Lead:
    """A printed lead of one method over another, or over chance."""

    where: str  # benchmark and model
    lead: float  # of AUC or TPR
    errors: tuple[float, float]  # its standard error at the highest and at the lowest correlation

    @property
    def could_be_shown(self) -> bool:
        """Whether a sample of the paper's size finds so large a lead in a third of cases (Simonsohn 2015), at best."""
        return self.lead >= POWER_33 * self.errors[0]


def leads_of(claim: Claim) -> tuple[tuple[Lead, ...], ...]:
    """The leads that the paper prints of each of a claim's comparisons; nothing where no table has it."""
    where = claim.printed
    if where is None:
        return tuple(() for _ in claim.against)
    paper = where.paper or claim.paper

    def row(side: Side) -> tuple[str, str]:
        return side.printed[0] or METHODS[paper][side.detector], side.printed[1]

    others = [None if isinstance(side, str) else row(side) for side in claim.against]
    return tuple(printed_leads(paper, where.item, where.columns, claim.metric, row(claim.a), b) for b in others)


@cache
def printed_leads(
    paper: str, item: str, columns: tuple[str, ...], metric: str, first: tuple[str, str], other: tuple[str, str] | None
) -> tuple[Lead, ...]:
    """The lead of one row of a paper's table over another, or over chance (None), in each of its columns.

    `columns` are benchmarks and models, or what they begin with. A row comes with what replaces the column's
    benchmark or model there ("" for nothing): ("SURP", "Dolma-Book-head"). A column that lacks one is left out.
    ValueError where no column is left.
    """
    cells = load_published(paper, item).query("metric == @metric")
    table = cells.pivot(index="row", columns="column", values="value")
    if table.index.str.contains(" / ").all():  # DC-PDD's Table 5 has its benchmarks as rows
        table = table.T
    found = []
    for column in [name for name in table.columns if name.startswith(tuple(columns))]:
        places = [_in_place(column, of[1]) for of in (first, other) if of]
        if any(place not in table.columns for place in places):
            continue
        rows = [of[0] for of in (first, other) if of]
        a, *rest = (float(table.loc[row, place]) for row, place in zip(rows, places, strict=True))
        b = rest[0] if rest else 0.5
        if a == a and b == b:  # no dash
            sizes = [SIZES[paper, place.partition(" / ")[0]] for place in places]
            errors = _errors(metric, (a, b)[: len(places)], sizes, _correlations(rows, places))
            found.append(Lead(column, round(a - b, 4), errors))
    if not found:
        raise ValueError(f"{paper} {item} prints no {metric} of {first} and {other} in columns {', '.join(columns)}")
    return tuple(found)


def size_of(ours: Interval, leads: Sequence[Lead]) -> str:
    """How our lead compares with all printed ones together, in words; "" where none is printed.

    It is like them where it lies in the 95% prediction interval of one more study (Higgins et al. 2009): around their
    weighted mean, with the errors of the mean and of ours, and the spread between the paper's k columns, by Student's t
    with k - 1 degrees of freedom. So a paper with more columns is no easier to agree with. Columns of the same texts
    are taken for independent, which makes the interval too narrow.
    """
    if not leads:
        return ""
    values, errors = np.array([of.lead for of in leads]), np.array([of.errors[1] for of in leads])
    spread = spread_between(values, errors).estimate if len(leads) > 1 else 0.0
    weights = 1 / (errors**2 + spread**2)
    error = float(spread**2 + 1 / weights.sum()) ** 0.5
    distance = ours.estimate - float(np.average(values, weights=weights))
    quantile = t.ppf(0.975, len(leads) - 1) if len(leads) > 1 else norm.ppf(0.975)
    width = ((quantile * error) ** 2 + ((ours.high - ours.low) / 2) ** 2) ** 0.5
    return SIZE_WORDS[1 + int(distance > width) - int(distance < -width)]


def power_at(ours: Interval, lead: float) -> float:
    """How often a sample with our interval's width finds a lead of this size at the 5% level."""
    error = (ours.high - ours.low) / 2 / norm.ppf(0.975)
    return float(norm.cdf(lead / error - norm.ppf(0.975))) if error else 1.0


def auc_error(auc: float, m: int, n: int) -> float:
    """The standard error of an AUC of m members and n non-members (Hanley and McNeil 1982), of exponential scores."""
    return exponential_variance(auc, m, n) ** 0.5


def tpr_error(tpr: float, m: int, n: int, fpr: float = 0.05) -> float:
    """The standard error of a TPR at a fixed FPR, of m members and n non-members."""
    tpr = min(max(tpr, 1 / m), 1 - 1 / m)  # none found, or all: as if it were one, or all but one
    slope = norm.pdf(norm.ppf(tpr)) / norm.pdf(norm.ppf(fpr))
    return float((tpr * (1 - tpr) / m + slope**2 * fpr * (1 - fpr) / n) ** 0.5)


def spread_between(estimates: ArrayLike, errors: ArrayLike) -> Interval:
    """By how much the true values behind (N,) estimates differ, as a standard deviation (τ), given their (N,) errors.

    Paule and Mandel's estimate with the 95% Q-profile interval (Viechtbauer 2007): for the right τ the weighted sum of
    squares is a draw from a chi-squared distribution of N - 1 degrees of freedom, N at least 2.
    """
    values, variances = np.asarray(estimates, float), np.asarray(errors, float) ** 2

    def excess(tau: float, wanted: float) -> float:
        weights = 1 / (variances + tau**2)
        return float(np.sum(weights * (values - np.average(values, weights=weights)) ** 2) - wanted)

    degrees, most = len(values) - 1, 100 * (np.ptp(values) + np.sqrt(variances.max()))
    wanted = (degrees, *chi2.ppf([0.975, 0.025], degrees))
    estimate, low, high = (0.0 if excess(0, of) <= 0 else float(brentq(excess, 0, most, args=(of,))) for of in wanted)
    return Interval(estimate, low, high)


def _correlations(rows: Sequence[str], places: Sequence[str]) -> tuple[float, float]:
    """The lowest and the highest correlation of two cells' AUCs."""
    benchmarks = {place.partition(" / ")[0] for place in places}
    if len(benchmarks) == 1:  # the same texts, perhaps under two models
        probe = "probe" if any(row.startswith("Probe") for row in rows) and len({*rows}) > 1 else ""
        return CORRELATIONS[probe or ("ArxivMIA" if min(benchmarks).startswith("ArxivMIA") else "")]
    families = {name.partition("-")[0] for name in benchmarks}
    return CORRELATIONS.get(f"parts of {families.pop()}", (0.0, 0.0)) if len(families) == 1 else (0.0, 0.0)


def _errors(
    metric: str, values: Sequence[float], sizes: Sequence[tuple[int, int]], between: tuple[float, float]
) -> tuple[float, float]:
    """The standard error of a difference, or of one value, at the highest and the lowest correlation."""
    error = auc_error if metric == "auc" else partial(tpr_error, fpr=FPRS[metric])
    of_each = [error(value, *size) for value, size in zip(values, sizes, strict=True)]
    if len(of_each) == 1:
        return of_each[0], of_each[0]
    a, b = of_each
    high, low = ((a**2 + b**2 - 2 * r * a * b) ** 0.5 for r in reversed(between))
    return high, low


def _in_place(column: str, other: str) -> str:
    """A column with another benchmark, or with another model ("/ Pythia-2.8B")."""
    benchmark, _, model = column.partition(" / ")
    if other.startswith("/ "):
        return f"{benchmark} {other}"
    return f"{other or benchmark} / {model}"
