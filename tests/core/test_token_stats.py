"""The table of token statistics: what goes in comes out, by row, by prefix and from disk."""

import dataclasses
import json
import random

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from mialib import TokenFrequency, TokenStats
from mialib.token_stats import COLUMNS, NUMBERS, StatsPart, TokenRow, check_likely

LENGTHS = [3, 1, 5, 2]


def rows(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return [
        TokenRow(
            rng.integers(0, 152_064, n).astype(np.int32),
            *(rng.normal(size=(4, n)) * [[9], [1], [1], [1]]).astype(np.float32),
        )
        for n in lengths
    ]


@pytest.fixture
def stats():
    provenance = {"model": "模型", "start_token_id": None, "n_texts": 4}
    return TokenStats.from_rows(rows(), n_cut=[0, 7, 0, 1], provenance=provenance)


def assert_same(stats, other):
    assert len(stats) == len(other)
    for row, expected in zip(stats, other, strict=True):
        for column, expected_column in zip(row, expected, strict=True):
            np.testing.assert_array_equal(column, expected_column)
            assert column.dtype == expected_column.dtype


def test_rows_come_out_as_they_went_in(stats):
    assert_same(stats, rows())
    assert stats.n_tokens.tolist() == LENGTHS
    assert stats.offsets.tolist() == [0, 3, 4, 9, 11]
    for name, dtype in COLUMNS.items():
        np.testing.assert_array_equal(getattr(stats[2], name), getattr(rows()[2], name))
        assert getattr(stats[2], name).dtype == dtype
    for i in range(1, 5):
        np.testing.assert_array_equal(stats[-i].log_prob, rows()[4 - i].log_prob)
    assert [len(row.log_prob) for row in reversed(stats)] == LENGTHS[::-1]
    assert TokenStats.from_rows(rows(), provenance={}).n_cut.tolist() == [0, 0, 0, 0]
    for index in (4, -5, 100):
        with pytest.raises(IndexError, match=f"text {index} of 4"):
            stats[index]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_unequal_length_are_an_error_with_both_numbers(name, stats):
    with pytest.raises(ValueError, match=f"{name} .*10 .*11"):
        dataclasses.replace(stats, **{name: getattr(stats, name)[:-1]})
    with pytest.raises(ValueError, match="n_cut"):
        TokenStats.from_rows(rows(), n_cut=[0, 0, 0], provenance={})


def test_the_scored_part_of_a_text_ends_where_its_last_scored_token_does(stats, tmp_path):
    texts = ["whole", "read|" + "unread." * 5, "whole too", "two of three"]
    known = dataclasses.replace(stats, n_unread=np.array([0, 35, 0, 6], np.int32))
    parts = ["whole", "read|", "whole too", "two of"]
    assert known.scored_parts(texts) == parts
    assert known.take([3, 1]).scored_parts(texts[3:0:-2]) == parts[3:0:-2]
    numbered = StatsPart(np.array([2, 3]), known.take([2, 3])), StatsPart(np.array([0, 1]), known.take([0, 1]))
    known.save(tmp_path / "stats.parquet")
    for other in (TokenStats.load(tmp_path / "stats.parquet"), TokenStats.joined(numbered, provenance={})):
        assert other.scored_parts(texts) == parts
    # Of an older file only the number of tokens is known: one was scored and seven were not, two and one.
    pq.write_table(pq.read_table(tmp_path / "stats.parquet").drop(["n_unread"]), tmp_path / "older.parquet")
    older = TokenStats.load(tmp_path / "older.parquet")
    assert older.scored_parts(texts) == stats.scored_parts(texts) == ["whole", "read|", "whole too", "two of t"]


def test_taken_texts_and_prefixes_say_that_they_are_such(stats):  # tests/properties has their rows
    taken = stats.take(np.array([2, 0, 2]))
    assert taken.n_cut.tolist() == [0, 0, 0] and stats.take([1]).n_cut.tolist() == [7]
    assert taken.provenance == stats.provenance | {"taken": True}
    with pytest.raises(IndexError):
        stats.take([4])
    assert stats.prefix([2, 1, 5, 1]).provenance == stats.provenance | {"prefix": True}


@pytest.mark.parametrize("column", NUMBERS)
def test_a_number_that_is_not_finite_is_named_by_text_token_and_column(column, stats):
    assert stats.check_finite() is None
    for entry, place in ((10, "text 3, token 1"), (3, "text 1, token 0"), (0, "text 0, token 0")):
        getattr(stats, column)[entry] = np.nan
        with pytest.raises(ValueError, match=f"{place}: {column} .*nan"):
            stats.check_finite()
    with pytest.raises(ValueError, match="text 2 "):
        TokenStats.from_rows(rows([1, 2, 0]), provenance={}).check_finite()


def test_saving_and_loading_keeps_everything(stats, tmp_path):
    path = tmp_path / "a folder" / "stats.parquet"
    stats.save(path)
    loaded = TokenStats.load(str(path))
    assert_same(loaded, stats)
    assert loaded.n_cut.tolist() == stats.n_cut.tolist() and loaded.provenance == stats.provenance
    assert (loaded.offsets.dtype, loaded.n_cut.dtype) == (stats.offsets.dtype, stats.n_cut.dtype)
    assert [file.name for file in path.parent.iterdir()] == ["stats.parquet"], "no temporary file may be left"
    assert json.loads(pq.read_schema(path).metadata[b"mialib"])["format"] == 2, "files that are there are of this one"
    assert [len(value) for value in pd.read_parquet(path)["log_prob"]] == LENGTHS, "any reader reads a row a text"


def test_a_mean_log_prob_far_below_guessing_is_refused():
    check_likely(-49.9, "x")
    with pytest.raises(ValueError, match=r"x .*-50.1"):
        check_likely(-50.1, "x")


def test_a_file_without_a_column_is_named(stats, tmp_path):
    stats.save(path := tmp_path / "stats.parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["entropy"]), path)
    with pytest.raises(ValueError, match=r"stats\.parquet"):
        TokenStats.load(path)


@pytest.mark.parametrize("kind", ["statistics", "frequencies"])
def test_no_flipped_bit_gives_other_numbers(kind, stats, tmp_path):
    """Of 150 flipped bits 41 once did."""
    path, rng = tmp_path / "kept.parquet", random.Random(0)
    frequency = TokenFrequency(np.arange(300), "corpus", "tokenizer")
    of, columns = (stats, [*COLUMNS, "offsets", "n_cut"]) if kind == "statistics" else (frequency, ["counts"])
    of.save(path)
    whole, n_refused = path.read_bytes(), 0
    for at in rng.sample(range(8 * len(whole)), 300):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            found = type(of).load(path)
        except ValueError as error:
            assert str(path) in str(error)
            n_refused += 1
        else:
            for name in columns:
                np.testing.assert_array_equal(getattr(found, name), getattr(of, name))
    assert n_refused > 150
