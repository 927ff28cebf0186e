"""The registry of detectors, and what scores texts with one of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from reprlib import repr as short_repr  # of any value, however long
from typing import Annotated, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from mialib.frequency import TokenFrequency
from mialib.model_selection import Grid
from mialib.plain import plain_array
from mialib.store import hash_texts
from mialib.text import check_texts
from mialib.token_stats import TokenStats, check_known, same_or_unknown

FloatArray = NDArray[np.float64]
Percent = Annotated[float, "percent of the tokens"]  # a hyperparameter that several detectors have
TEMPERATURE = 2.0  # of the pass that a detector gets as `tempered`

# What `detect` takes -> what the function of one text is given.
INPUTS = {
    "texts": "text",
    "lowercase": "lowercase",
    "reference": "reference",
    "frequency": "frequency",
    "neighbors": "neighbors",
    "tempered": "tempered",
    "after_non_members": "after_non_members",
    "after_members": "after_members",
}


@dataclass(frozen=True)
class Option:
    """A hyperparameter of a detector."""

    default: float | bool
    meaning: str  #: with its unit


@dataclass(frozen=True)
class Detector:
    """A registered detector: its function of one text, what it needs, and its hyperparameters."""

    name: str
    label: str  #: as the papers' tables print it
    source: str  #: who proposed it, and when
    score_text: Callable[..., float]
    needs: tuple[str, ...]  #: keys of INPUTS
    options: dict[str, Option]
    reads: tuple[str, ...] = ()  #: columns of TokenRow, besides log_prob
    grid: Grid = field(default_factory=dict)  #: a paper's candidates for the hyperparameters; empty for none
    is_later: bool = False  #: than the four papers, whose tables do not have it
    version: int = 1  #: raised by hand when its scores change, as in `mialib.versions`

    @property
    def equation(self) -> str:
        """What it computes: the first paragraph of its docstring."""
        return " ".join((inspect.getdoc(self.score_text) or "").partition("\n\n")[0].split())

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The default of each."""
        return {name: option.default for name, option in self.options.items()}


DETECTORS: dict[str, Detector] = {}


def detector(
    name: str,
    label: str,
    source: str,
    reads: tuple[str, ...] = (),
    grid: Grid | None = None,
    is_later: bool = False,
    version: int = 1,
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Register a function of one text under `name`.

    Its keyword arguments that INPUTS names are what it needs; each other one is a hyperparameter, whose annotation says
    what it means: `k: Annotated[float, "percent of the tokens"] = 20`.
    """

    def register(score_text: Callable[..., float]) -> Callable[..., float]:
        keywords = list(inspect.signature(score_text).parameters.values())[1:]
        given = {argument: keyword for keyword, argument in INPUTS.items()}
        hints = get_type_hints(score_text, include_extras=True)
        options = {p.name: Option(p.default, _meaning(hints, p.name)) for p in keywords if p.name not in given}
        DETECTORS[name] = Detector(
            name=name,
            label=label,
            source=source,
            score_text=score_text,
            needs=tuple(given[p.name] for p in keywords if p.name in given),
            options=options,
            reads=reads,
            grid=grid or {},
            is_later=is_later,
            version=version,
        )
        return score_text

    return register


def _meaning(hints: Mapping[str, Any], option: str) -> str:
    """What a hyperparameter's annotation says that it means."""
    said = getattr(hints.get(option), "__metadata__", None)
    if not said:
        raise TypeError(f'say what {option} means, with its unit: `{option}: Annotated[float, "..."]`')
    return said[0]


def detect(name: str, stats: TokenStats, **given: Any) -> FloatArray:
    """Score N texts with one detector, (N,) float64; higher means more likely a member.

    `stats` are the model's token statistics. `given` are hyperparameters, and what the detector needs besides:

    - `texts`: the N texts
    - `lowercase`, `reference`, `tempered`: TokenStats of lowercased texts, of a reference model, at TEMPERATURE
    - `after_non_members`, `after_members`: TokenStats of the texts, each read after known texts
    - `frequency`: TokenFrequency of a reference corpus
    - `neighbors`: mean log p of each text's neighbors, (N, M) in nats

    What it does not need is not looked at. ValueError for an unknown detector or hyperparameter, a missing input, a
    column that the model does not give, inputs of other texts or another tokenizer than the statistics (as far as both
    name theirs, which they no longer do after `take` or `prefix`), a reference that is the model itself, and, naming
    the text, a statistic or a score that is not finite.
    """
    chosen = get_detector(name)
    inputs = {need: given.pop(need, None) for need in INPUTS}
    if unknown := sorted(set(given) - set(chosen.hyperparameters)):
        known = ", ".join(chosen.hyperparameters) or "none"
        raise ValueError(f"detector {name!r} has no hyperparameter {unknown[0]!r}; it has: {known}")
    for option, value in given.items():
        check_hyperparameter(name, option, value, chosen.hyperparameters[option])
    _check_pass(stats, f"detector {name!r}: the statistics")
    check_known(chosen.reads, stats.lacks, f"detector {name!r}")
    if missing := [need for need in chosen.needs if inputs[need] is None]:
        raise ValueError(f"detector {name!r} needs {' and '.join(f'{need}=' for need in missing)}")
    shared, per_text = {}, {}
    for need in chosen.needs:
        if need == "frequency":
            shared["frequency"] = check_vocabulary(inputs[need], stats).log_probability
        else:
            per_text[INPUTS[need]] = check_input(need, inputs[need], stats, f"detector {name!r}")
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


def check_input(need: str, given: Any, stats: TokenStats, what: str) -> Any:
    """What a detector needs of each text; ValueError where it is of another kind, of other texts, or not finite."""
    if need == "texts":
        given = check_texts(given, f"{what}: texts")
        is_same = same_or_unknown(stats.provenance, {"texts": hash_texts(given)})
    elif need == "neighbors":
        given, is_same = check_neighbors(given), True
    else:
        _check_pass(given, f"{what}: {need}")
        expected = {"texts": stats.provenance.get("lowercased")} if need == "lowercase" else {}
        is_same = same_or_unknown(stats.provenance | expected, given.provenance)
    if len(given) != len(stats):
        raise ValueError(f"{what}: {need} holds {len(given)} texts, the statistics {len(stats)}")
    if not is_same:
        raise ValueError(f"{what}: {need} is of other texts than the statistics, or of the same in another order")
    if need == "tempered":
        check_temperature(given)
    if need == "reference" and _is_same_model(stats, given):
        raise ValueError(f"{what}: the reference gives the model's own log-probs; give another model")
    return given


def _is_same_model(stats: TokenStats, reference: TokenStats) -> bool:
    """Whether two models, which a provenance names, give the same log-probs throughout."""
    are_named = "model" in stats.provenance and "model" in reference.provenance
    return are_named and np.array_equal(stats.log_prob, reference.log_prob)


def _check_pass(stats: Any, what: str) -> None:
    """ValueError for what is no token statistics, and for a number in them that is not finite."""
    if not isinstance(stats, TokenStats):
        raise ValueError(f"{what}: TokenStats, which Scorer.score gives, are expected; got {type(stats).__name__}")
    stats.check_finite()


def check_vocabulary(frequency: TokenFrequency, stats: TokenStats) -> TokenFrequency:
    """The frequencies, unless they count another tokenizer's tokens than the statistics hold."""
    if not isinstance(frequency, TokenFrequency):
        raise ValueError(f"frequency: TokenFrequency, as of count_tokens, is expected; got {type(frequency).__name__}")
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


def check_temperature(tempered: TokenStats) -> None:
    """ValueError for a pass at another temperature than TEMPERATURE."""
    if "model" in tempered.provenance and (found := tempered.provenance.get("temperature", 1)) != TEMPERATURE:
        raise ValueError(f"tempered: a pass at temperature {TEMPERATURE:g} is needed, this one is at {found:g}")


def check_neighbors(neighbors: FloatArray) -> FloatArray:
    """Mean log p of neighbors as (N, M) float64, M at least 1; ValueError for another shape or a number not finite."""
    neighbors = plain_array(neighbors, "neighbors", np.float64)
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


def describe_options(options: Mapping[str, Any]) -> str:
    """Hyperparameters in a few characters: "ε = 2.5, k = 40"."""
    return ", ".join(f"{symbol(name)} = {value:g}" for name, value in options.items())


def symbol(hyperparameter: str) -> str:
    """A hyperparameter as the papers print it."""
    return {"entropy_threshold": "ε"}.get(hyperparameter, hyperparameter)
