"""The detectors: each turns a text's token statistics into one score. Higher means more likely a member.

A detector is one decorated function of one text. Its first argument is the text's `TokenRow`; keyword arguments
named in INPUTS are what it needs besides the target model's pass, and every other keyword is a hyperparameter whose
default the paper prints and whose annotation says what it means; a detector that a paper tunes has a `grid` of
candidates besides. `reads` names the columns of the pass that it reads besides log_prob, since a model behind an API
does not give them all. Tables, tests, `mialib detectors` and the recorded seeds read the registry, so a function is all
it takes.

    registry    how a detector is registered, checked and run
    papers      the detectors of the four papers and the baselines beside them
    since       detectors since then
"""

from mialib.detectors import since  # noqa: F401 - registers its own
from mialib.detectors.papers import (
    SMALLEST_VARIANCE,
    SURP_GRID,
    calibrated,
    first_occurrences,
    score_grid,
    surp_conditions,
    surp_grid,
)
from mialib.detectors.registry import (
    DETECTORS,
    TEMPERATURE,
    Detector,
    FloatArray,
    Option,
    check_vocabulary,
    describe_options,
    detect,
    detector,
    get_detector,
    lowest_indices,
    lowest_mean,
    symbol,
)

__all__ = [
    "DETECTORS",
    "SMALLEST_VARIANCE",
    "SURP_GRID",
    "TEMPERATURE",
    "Detector",
    "FloatArray",
    "Option",
    "calibrated",
    "check_vocabulary",
    "describe_options",
    "detect",
    "detector",
    "first_occurrences",
    "get_detector",
    "lowest_indices",
    "lowest_mean",
    "score_grid",
    "surp_conditions",
    "surp_grid",
    "symbol",
]
