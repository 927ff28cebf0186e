"""The registry of detectors, and what scores texts with one of them."""

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
from mialib.metrics import FloatArray
from mialib.model_selection import Grid
from mialib.plain import check_one_of, finite_numbers
from mialib.store import hash_texts
from mialib.text import check_texts
from mialib.token_stats import TokenStats, check_known, same_or_unknown

ScoreText = Callable[..., float]
Percent = Annotated[float, "percent of the tokens"]  # a hyperparameter that several detectors have
TEMPERATURE = 2.0  # of the pass that a detector gets as `tempered`


@dataclass(frozen=True)
class Option:
    """A hyperparameter of a detector."""

    default: float | bool
    meaning: str  #: what it does, with its unit


@dataclass(frozen=True)
class Detector:
    """A registered detector."""

    name: str
    label: str  #: as the papers' tables print it
    source: str  #: who proposed it, and when
    score_text: ScoreText
    needs: tuple[str, ...]  #: the inputs, as `detect` calls them
    options: dict[str, Option]  #: its hyperparameters
    reads: tuple[str, ...] = ()  #: columns of TokenRow besides log_prob; an API does not give all of them
    grid: Grid = field(default_factory=dict)  #: a paper's candidates for the hyperparameters; empty for none
    is_later: bool = False  #: published after the four papers, so not in their tables
    version: int = 1  #: raised by hand when the detector's scores change, as in `mialib.versions`

    @property
    def equation(self) -> str:
        """The first paragraph of the docstring of `score_text`."""
        return " ".join((inspect.getdoc(self.score_text) or "").partition("\n\n")[0].split())

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The default of each hyperparameter."""
        return {name: option.default for name, option in self.options.items()}


DETECTORS: dict[str, Detector] = {}


def detector(name: str, label: str, source: str, **more: Any) -> Callable[[ScoreText], ScoreText]:
    """Register a function of one text under `name`; `more` are further fields of `Detector`, from `reads` on.

    A keyword argument without a default is an input, by its name; one with a default is a hyperparameter, whose
    annotation says what it means: `k: Annotated[float, "percent of the tokens"] = 20`.
    """

    def register(score_text: ScoreText) -> ScoreText:
        hints = get_type_hints(score_text, include_extras=True)
        needs, options = [], {}
        for keyword in list(inspect.signature(score_text).parameters.values())[1:]:
            if keyword.default is keyword.empty:
                needs.append("texts" if keyword.name == "text" else keyword.name)
            elif meaning := getattr(hints.get(keyword.name), "__metadata__", None):
                options[keyword.name] = Option(keyword.default, meaning[0])
            else:
                form = f'{keyword.name}: Annotated[float, "..."]'
                raise TypeError(f"say what {keyword.name} means, with its unit: `{form}`")
        DETECTORS[name] = Detector(name, label, source, score_text, tuple(needs), options, **more)
        return score_text

    return register


def detect(name: str, stats: TokenStats, **given: Any) -> FloatArray:
    """Score N texts with one detector, (N,) float64; higher means more likely a member.

    `stats` are the model's token statistics. `given` are hyperparameters and the detector's other inputs:

    - `texts`: the N texts; the detector reads what was scored of each
    - `lowercase`, `reference`, `tempered`: TokenStats of the lowercased texts, of a reference model, and at TEMPERATURE
    - `after_non_members`, `after_members`, `after_others`: TokenStats of the texts, each read after known texts, or
      after another one of the N
    - `frequency`: TokenFrequency of a reference corpus
    - `neighbors`: mean log p of each text's neighbors, (N, M) in nats

    Inputs that the detector does not need are ignored. ValueError for an unknown detector or hyperparameter, a missing
    input, a column that the model does not give, a reference that is the model itself, and inputs of other texts or of
    another tokenizer (after `take` or `prefix` the texts can't be compared). ValueError, naming the text, for a
    statistic or a score that is not finite.

    >>> stats = Scorer("smollm2-135m").score(["The river rises in the hills.", "No minutes survive."], progress=False)
    >>> detect("min_k", stats, k=20).shape
    (2,)
    >>> DETECTORS["min_k"].source
    'Shi et al. 2024'
    """
    chosen, what = get_detector(name), f"detector {name!r}"
    inputs = {need: given.pop(need, None) for need in {need for of in DETECTORS.values() for need in of.needs}}
    check_hyperparameters(name, given)
    _check_pass(stats, f"{what}: the statistics")
    check_known(chosen.reads, stats.lacks, what)
    if missing := [need for need in chosen.needs if inputs[need] is None]:
        raise ValueError(f"{what} needs {' and '.join(f'{need}=' for need in missing)}")
    per_text = {n: _check_input(n, inputs[n], stats, f"{what}: {n}") for n in chosen.needs if n != "frequency"}
    if "frequency" in chosen.needs:
        given["frequency"] = check_vocabulary(inputs["frequency"], stats).log_probability
    scores = np.empty(len(stats))
    for i, row in enumerate(stats):
        of_text = {"text" if need == "texts" else need: values[i] for need, values in per_text.items()}
        scores[i] = chosen.score_text(row, **of_text, **given)
        if not np.isfinite(scores[i]):
            raise ValueError(f"{what} gives {scores[i]} for text {i} ({len(row.log_prob)} tokens)")
    return scores


def get_detector(name: str) -> Detector:
    """The registered detector, or a ValueError that names all of them."""
    if name == "probe":
        raise ValueError("the probe reads a model's weights, not token statistics: call mialib.probe_scores")
    check_one_of(name, DETECTORS, "detector")
    return DETECTORS[name]


def check_hyperparameters(name: str, values: Mapping[str, Any]) -> None:
    """ValueError for a hyperparameter that a detector lacks, and for a value that is no number, or no flag."""
    options = get_detector(name).options
    for option, value in values.items():
        if option not in options:
            has = ", ".join(options) or "none"
            raise ValueError(f"detector {name!r} has no hyperparameter {option!r}; it has: {has}")
        is_flag = isinstance(options[option].default, bool)
        if not (_is_flag(value) if is_flag else _is_number(value)):
            wanted = "True or False" if is_flag else "a number"
            raise ValueError(f"detector {name!r}: {option} is {wanted}, got {short_repr(value)}")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_ | int) and value in (0, 1)


def _is_number(value: Any) -> bool:
    """Whether a float64 holds it."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    except OverflowError:
        return False


def _check_input(need: str, given: Any, stats: TokenStats, what: str) -> Any:
    """What a detector needs of each text; ValueError where it is of another kind, of other texts, or not finite."""
    own, other = stats.provenance, {}
    if need == "neighbors":
        given = finite_numbers(given, what, n_axes=2)
        if not given.shape[1]:
            raise ValueError(f"{what}: no text has a neighbor")
    elif need == "texts":
        given = check_texts(given, what)
        other = {"texts": hash_texts(given)}
    else:
        _check_pass(given, what)
        other = given.provenance
    if len(given) != len(stats):
        raise ValueError(f"{what} holds {len(given)} texts, the statistics {len(stats)}")
    if not same_or_unknown(own | {"texts": own.get("lowercased" if need == "lowercase" else "texts")}, other):
        raise ValueError(f"{what} is of other texts than the statistics, or of the same in another order")
    if need == "texts":
        return stats.scored_parts(given)
    if need == "tempered" and "model" in other and (found := other.get("temperature", 1)) != TEMPERATURE:
        raise ValueError(f"{what}: a pass at temperature {TEMPERATURE:g} is needed, this one is at {found:g}")
    # Lowercased texts may be the texts themselves; any other pass of the same numbers is the model's own once more.
    if need != "lowercase" and "model" in own and "model" in other and np.array_equal(stats.log_prob, given.log_prob):
        raise ValueError(f"{what} gives the model's own log-probs; give another model's, or those of another pass")
    return given


def _check_pass(stats: Any, what: str) -> None:
    """ValueError for what is not token statistics, and for a number in them that is not finite."""
    if not isinstance(stats, TokenStats):
        raise ValueError(f"{what}: TokenStats, which Scorer.score gives, are expected; got {type(stats).__name__}")
    stats.check_finite()


def check_vocabulary(frequency: TokenFrequency, stats: TokenStats) -> TokenFrequency:
    """The frequencies, unless they count another tokenizer's tokens than the statistics hold."""
    if not isinstance(frequency, TokenFrequency):
        raise ValueError(f"frequency: TokenFrequency, as of count_tokens, is expected; got {type(frequency).__name__}")
    tokenizer, largest = stats.provenance.get("tokenizer"), stats.token_ids.max(initial=0)
    if (tokenizer and frequency.tokenizer and tokenizer != frequency.tokenizer) or largest >= len(frequency.counts):
        raise ValueError(
            f"the frequencies ({frequency.name}) count {len(frequency.counts)} tokens of tokenizer "
            f"{frequency.tokenizer or 'unknown'}, and the statistics hold token {largest} of {tokenizer or 'unknown'}"
        )
    return frequency


def check_k(*ks: float, or_zero: bool = False) -> None:
    """ValueError for a k outside (0, 100]; `or_zero` allows 0, which is a percentile but takes no token."""
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
