"""Whatever container a caller's texts, labels, scores and numbers come in, one result comes of them, bit for bit."""

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from conftest import TEXTS
from hypothesis import given
from hypothesis import strategies as st

import mialib
from mialib.benchmarks import Benchmark
from mialib.calibration import p_values
from mialib.plain import plain_array, plain_indices
from mialib.text import check_texts


def shuffled(values):
    """A Series whose labels are those of another order, as after `sample`."""
    return pd.Series(values, index=np.random.default_rng(0).permutation(len(values)))


CONTAINERS = {
    "tuple": tuple,
    "generator": lambda values: (value for value in values),
    "array": np.array,
    "objects": lambda values: np.array(values, object),
    "Series": pd.Series,
    "shuffled Series": shuffled,
    "filtered Series": lambda values: pd.Series([None, *values, None])[1:-1],
    "Arrow": pa.array,
    "Arrow, in chunks": lambda values: pa.chunked_array([values[:1], values[1:]] if values[1:] else [values]),
    "datasets": lambda values: datasets.Dataset.from_dict({"column": values})["column"],
}
each_container = pytest.mark.parametrize("contained", CONTAINERS.values(), ids=CONTAINERS)
LABELS = [0, 1, 1, 0, 1, 0, 0, 1, 1]


@each_container
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("x{}".format), min_size=1, max_size=5)
)
def test_texts_are_those_of_the_container_in_its_order(contained, texts):
    texts = [text.replace("\0", "") for text in texts]  # NumPy drops it at a string's end
    found = check_texts(contained(texts), "texts")
    assert found == texts and {type(text) for text in found} == {str}


@each_container
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=5))
def test_numbers_are_those_of_the_container_in_its_order(contained, numbers):
    assert plain_array(contained(numbers), "scores").tolist() == numbers


@each_container
def test_each_public_function_gives_one_result(contained, model_folder):
    scorer = mialib.Scorer(model_folder)
    expected, stats = scorer.score(TEXTS, progress=False), scorer.score(contained(TEXTS), progress=False)
    for column in ("token_ids", "log_prob", "entropy", "log_prob_var"):
        np.testing.assert_array_equal(getattr(stats, column), getattr(expected, column))
    scores = mialib.detect("zlib", stats, texts=contained(TEXTS))
    np.testing.assert_array_equal(scores, mialib.detect("zlib", expected, texts=TEXTS))
    given = contained(LABELS), contained(scores.tolist())
    assert mialib.auc(*given) == mialib.auc(LABELS, scores)
    given = contained(LABELS), contained(scores.tolist()), contained(scores[::-1].tolist())
    assert mialib.compare_auc(*given) == mialib.compare_auc(LABELS, scores, scores[::-1])
    np.testing.assert_array_equal(p_values(contained(scores.tolist()), [0.0]), p_values(scores, [0.0]))
    taken = stats.take(contained([3, 0, 3]))
    assert [row.token_ids.tolist() for row in taken] == [stats[i].token_ids.tolist() for i in (3, 0, 3)]
    lengths = np.ones(len(TEXTS), int).tolist()
    assert stats.prefix(contained(lengths)).n_tokens.tolist() == lengths
    bench = Benchmark("b", contained(TEXTS), contained(LABELS), "r")
    assert bench.texts == tuple(TEXTS) and bench.labels.tolist() == LABELS
    assert bench.take(contained([1, 0]), "b").texts == (TEXTS[1], TEXTS[0])


@given(st.lists(st.booleans(), max_size=6))
def test_a_mask_takes_what_it_marks(mask):
    wanted = [i for i, is_wanted in enumerate(mask) if is_wanted]
    assert plain_indices(mask, len(mask), "texts").tolist() == wanted
    assert plain_indices(pd.Series(mask, dtype=bool), len(mask), "texts").tolist() == wanted


@pytest.mark.parametrize(
    ("wrong", "error"), [([2], IndexError), *((of, ValueError) for of in ([0.7], [True], [[0]], ["0"], 0))]
)
def test_what_names_no_texts_is_refused(wrong, error):
    with pytest.raises(error, match="texts to take"):
        plain_indices(wrong, 2, "texts to take")


@pytest.mark.parametrize("wrong", [None, "ab", ["a", "b"], [[1], [1, 2]], {"a": 1}, np.ma.array([1.0], mask=[1])])
def test_what_is_no_numbers_is_refused_by_its_name(wrong):
    with pytest.raises(ValueError, match=r"^scores: "):
        mialib.auc([0, 1], wrong)
    with pytest.raises(ValueError, match=r"^labels: "):
        mialib.auc(wrong, [0.0, 1.0])


def test_a_tensors_numbers_are_read():
    assert mialib.auc(torch.tensor([0, 1]), torch.tensor([0.5, 0.7])) == 1
