"""The detectors: each turns a text's token statistics into one score. Higher means more likely a member.

A detector is one decorated function of one text. Its first argument is the text's `TokenRow`. A keyword argument
without a default is an input that it needs besides the model's pass, such as another pass or the text; one with a
default is a hyperparameter: the default is the paper's, and its annotation says what it means. Tables, tests, `mialib
detectors` and the recorded seeds read the registry, so a function is all it takes.

    registry    how a detector is registered, checked and run
    papers      the detectors of the four papers and the baselines beside them
    since       detectors since then
"""

# ruff: noqa: F401, I001 (names that others take from here)

from mialib.detectors import papers, since  # which register their own
from mialib.detectors.papers import calibrated, first_occurrences, grid_candidates
from mialib.detectors.papers import standardized, surp_conditions, surp_grid
from mialib.detectors.registry import DETECTORS, TEMPERATURE, Detector, FloatArray, Option
from mialib.detectors.registry import check_hyperparameters, check_vocabulary, describe_options, detect, detector
from mialib.detectors.registry import get_detector, lowest_indices, lowest_mean, symbol
