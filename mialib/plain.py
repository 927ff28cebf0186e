"""What callers give, as plain lists and arrays in the container's own order.

A list, tuple, generator, pandas Series of any index, NumPy, Arrow or `datasets` column of equal values mean the same.
"""

from collections.abc import Iterable, Mapping, Set
from difflib import get_close_matches
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def plain_list(values: Any, name: str) -> list[Any]:
    """The values in order; ValueError, with the name, for one string, a table, a dict or a set (which has no order)."""
    _check_unmasked(values, name)
    is_list = hasattr(values, "__iter__") and not isinstance(values, str | bytes | Mapping | Set)
    if not is_list or getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name}: a list is expected, got {_described(values)}")
    return values.to_pylist() if hasattr(values, "to_pylist") else list(values)  # Arrow's own values are not Python's


def plain_array(values: ArrayLike, name: str, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Numbers as an array of one dimension or more; ValueError, with the name, for what is not numbers."""
    _check_unmasked(values, name)
    if not hasattr(values, "__array__"):
        values = plain_list(values, name)
    try:
        array = np.asarray(values, dtype)
        array = np.array(array.tolist()) if array.dtype.kind == "O" else array  # as of pandas' own kinds of integers
    except (ValueError, TypeError, RuntimeError) as error:  # torch's, of a tensor with gradients, is of the last kind
        raise ValueError(f"{name}: numbers are expected ({error})") from None
    if not array.ndim or array.dtype.kind not in "biuf":
        wrong = next((value for value in array.flat if not isinstance(value, Number)), values)
        raise ValueError(f"{name}: a list of numbers is expected, got {_described(wrong)}")
    return array


def finite_numbers(values: ArrayLike, name: str, n_axes: int = 1, at_least: int = 0) -> NDArray[np.float64]:
    """Numbers as float64; ValueError, with the name, for another shape, too few, and one that is not finite."""
    array = plain_array(values, name, np.float64)
    if array.ndim != n_axes or len(array) < at_least:
        wanted = f"{n_axes} axes" if n_axes > 1 else "a list"
        raise ValueError(f"{name}: {wanted} of at least {at_least} is expected, got the shape {array.shape}")
    if len(wrong := np.argwhere(~np.isfinite(array))):
        at = tuple(wrong[0].tolist())
        raise ValueError(f"{name}: number {', '.join(map(str, at))} is {array[at]}, which is not finite")
    return array


def check_share(share: float, name: str, *, or_all: bool = False) -> None:
    """ValueError for a share outside (0, 1), or outside [0, 1] where none or all will do."""
    if not (0 < share < 1 or (or_all and share in (0, 1))):
        raise ValueError(f"{name} lies between 0 and 1{'' if or_all else ', both excluded'}; got {share:g}")


def plain_numbers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """A list of whole numbers, (N,); ValueError where one is not whole."""
    numbers = plain_array(values, name)
    if numbers.ndim != 1 or (numbers != np.floor(numbers)).any():
        raise ValueError(f"{name}: a list of whole numbers is expected, got {numbers.dtype} of shape {numbers.shape}")
    return numbers.astype(np.int64)


def plain_indices(indices: ArrayLike, n: int, name: str) -> NDArray[np.int64]:
    """Which of `n` things, by their numbers or by a mask of `n` truth values, as their numbers.

    ValueError for a mask of another length and for a number that is not whole; IndexError for one that is too large.
    """
    array = plain_array(indices, name)
    if array.dtype.kind == "b":
        if array.shape != (n,):
            raise ValueError(f"{name}: a mask of {n} values is expected, got one of shape {array.shape}")
        return np.flatnonzero(array)
    numbers = plain_numbers(array, name)
    if len(wrong := numbers[(numbers >= n) | (numbers < -n)]):
        raise IndexError(f"{name}: number {wrong[0]} of {n}")
    return numbers % max(n, 1)  # one from the end as one from the beginning


def check_one_of(name: str, known: Iterable[str], what: str) -> None:
    """ValueError for a name that is none of the known ones."""
    if name not in (names := list(known)):
        raise ValueError(f"unknown {what} {name!r}{did_you_mean(name, names)}; known: {', '.join(names)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to add to an error: (did you mean 'min_k'?) after a space, or nothing where no known name is alike."""
    in_small_letters = {one.lower(): one for one in known}
    alike = get_close_matches(name.lower(), in_small_letters, n=1)
    return f" (did you mean {in_small_letters[alike[0]]!r}?)" if alike else ""


def _check_unmasked(values: Any, name: str) -> None:
    if np.ma.is_masked(values):
        raise ValueError(f"{name}: {np.ma.count_masked(values)} of {values.size} values are masked; take them out")


def _described(value: Any) -> str:
    return f"one string {value[:60]!r}" if isinstance(value, str) else type(value).__name__
