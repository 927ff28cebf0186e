"""The table of token statistics: what goes in comes out, by row, by prefix and from disk."""

import dataclasses
import json
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SENTENCES, TEXTS
from transformers import AutoTokenizer

import mialib
from mialib import TokenFrequency, TokenStats
from mialib.token_stats import COLUMNS, NUMBERS, TokenRow, check_likely

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


# --- rows ---


def test_rows_come_out_as_they_went_in(stats):
    assert_same(stats, rows())
    assert stats.n_tokens.tolist() == LENGTHS
    assert stats.offsets.tolist() == [0, 3, 4, 9, 11]


def test_a_row_has_its_columns_by_name(stats):
    expected = rows()[2]
    for name, dtype in COLUMNS.items():
        np.testing.assert_array_equal(getattr(stats[2], name), getattr(expected, name))
        assert getattr(stats[2], name).dtype == dtype


def test_a_negative_index_counts_from_the_end(stats):
    for i in range(1, 5):
        np.testing.assert_array_equal(stats[-i].log_prob, rows()[4 - i].log_prob)
    np.testing.assert_array_equal(stats[np.int64(-1)].log_prob, rows()[3].log_prob)


@pytest.mark.parametrize("index", [4, -5, 100])
def test_an_index_out_of_range_is_an_error_with_both_numbers(index, stats):
    with pytest.raises(IndexError, match=f"text {index} of 4"):
        stats[index]


def test_iterating_gives_each_text_once(stats):
    assert [len(row.log_prob) for row in stats] == LENGTHS
    assert [len(row.log_prob) for row in reversed(stats)] == LENGTHS[::-1]


def test_without_n_cut_nothing_was_cut():
    assert TokenStats.from_rows(rows(), provenance={}).n_cut.tolist() == [0, 0, 0, 0]


def test_no_rows_are_an_empty_table():
    empty = TokenStats.from_rows([], provenance={})
    assert len(empty) == 0
    assert list(empty) == []
    with pytest.raises(IndexError):
        empty[0]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_unequal_length_are_an_error_with_both_numbers(name, stats):
    with pytest.raises(ValueError, match=f"column {name} has 10 entries, the offsets say 11"):
        dataclasses.replace(stats, **{name: getattr(stats, name)[:-1]})


def test_an_n_cut_for_other_texts_is_an_error():
    with pytest.raises(ValueError, match="n_cut has 3 entries for 4 texts"):
        TokenStats.from_rows(rows(), n_cut=[0, 0, 0], provenance={})


# --- prefixes ---


def test_taken_texts_stand_in_the_order_asked_for(stats):
    taken = stats.take(np.array([2, 0, 2]))
    assert_same(taken, [rows()[i] for i in (2, 0, 2)])
    assert taken.n_cut.tolist() == [0, 0, 0] and stats.take([1]).n_cut.tolist() == [7]
    assert taken.provenance == stats.provenance | {"taken": True}
    with pytest.raises(IndexError):
        stats.take([4])


def test_a_prefix_has_each_texts_first_tokens(stats):
    prefix = stats.prefix([2, 1, 5, 1])
    for row, whole, n in zip(prefix, stats, [2, 1, 5, 1], strict=True):
        for column, whole_column in zip(row, whole, strict=True):
            np.testing.assert_array_equal(column, whole_column[:n])
    assert prefix.provenance == stats.provenance | {"prefix": True}


def test_the_statistics_of_a_prefix_are_those_of_scoring_it(model_folder):
    scorer = mialib.Scorer(model_folder)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    n_tokens = [3, 1, 20, 2, 9, 4, 31, 5, 12]
    prefixes = [tokenizer.decode(ids[:n]) for ids, n in zip(scorer.token_ids(TEXTS), n_tokens, strict=True)]
    # Only where the cut text has the prefix's tokens; a cut through a Chinese character has others.
    same = [
        i
        for i, (cut, ids) in enumerate(zip(scorer.token_ids(prefixes), scorer.token_ids(TEXTS), strict=True))
        if cut == ids[: n_tokens[i]]
    ]
    assert len(same) >= 6
    from_whole = scorer.score(TEXTS, progress=False).prefix(n_tokens)
    rescored = scorer.score(prefixes, progress=False)
    for i in same:
        np.testing.assert_array_equal(from_whole[i].token_ids, rescored[i].token_ids)
        for name in NUMBERS:
            np.testing.assert_allclose(getattr(from_whole[i], name), getattr(rescored[i], name), rtol=1e-5, atol=1e-5)


def test_a_prefix_longer_than_its_text_is_an_error_that_names_it(stats):
    with pytest.raises(ValueError, match="text 1 has 1 scored tokens, 2 were asked for"):
        stats.prefix([2, 2, 2, 2])


@pytest.mark.parametrize("n", [0, -1])
def test_a_prefix_of_no_tokens_is_an_error_that_names_its_text(n, stats):
    with pytest.raises(ValueError, match=f"text 2 .* {n} were asked for"):
        stats.prefix([1, 1, n, 1])


@pytest.mark.parametrize("n_tokens", [[1, 1, 1], [1], [1, 1, 1, 1, 1]])
def test_prefix_lengths_for_another_number_of_texts_are_an_error(n_tokens, stats):
    with pytest.raises(ValueError):
        stats.prefix(n_tokens)


# --- finite or not ---


def test_finite_statistics_pass(stats):
    assert stats.check_finite() is None


@pytest.mark.parametrize(("entry", "place"), [(0, "text 0, token 0"), (3, "text 1, token 0"), (10, "text 3, token 1")])
@pytest.mark.parametrize("column", NUMBERS)
def test_a_number_that_is_not_finite_is_named_by_text_token_and_column(column, entry, place, stats):
    getattr(stats, column)[entry] = np.nan
    with pytest.raises(ValueError, match=f"{place}: {column} is nan"):
        stats.check_finite()


def test_a_text_without_tokens_is_named():
    with pytest.raises(ValueError, match="text 2 has no scored token"):
        TokenStats.from_rows(rows([1, 2, 0]), provenance={}).check_finite()


# --- on disk ---


def test_saving_and_loading_keeps_everything(stats, tmp_path):
    path = tmp_path / "a folder" / "stats.parquet"
    stats.save(path)
    loaded = TokenStats.load(str(path))
    assert_same(loaded, stats)
    np.testing.assert_array_equal(loaded.offsets, stats.offsets)
    np.testing.assert_array_equal(loaded.n_cut, stats.n_cut)
    assert loaded.provenance == stats.provenance
    for name in ("offsets", "n_cut", *COLUMNS):
        assert getattr(loaded, name).dtype == getattr(stats, name).dtype
    assert [file.name for file in path.parent.iterdir()] == ["stats.parquet"], "no temporary file may be left"


def test_scored_statistics_survive_the_disk(model_folder, tmp_path):
    scorer = mialib.Scorer(model_folder)
    stats = scorer.score([*TEXTS, " ".join(SENTENCES)], progress=False)
    assert stats.n_cut[-1] > 0
    stats.save(tmp_path / "stats.parquet")
    loaded = TokenStats.load(tmp_path / "stats.parquet")
    assert_same(loaded, stats)
    assert loaded.n_cut.tolist() == stats.n_cut.tolist()
    assert loaded.provenance == stats.provenance == scorer.provenance([*TEXTS, " ".join(SENTENCES)])


def test_an_older_file_is_read_and_a_detector_that_needs_what_it_lacks_says_so(stats, tmp_path):
    path = tmp_path / "stats.parquet"
    stats.save(path)
    table = pq.read_table(path).drop_columns("top_log_prob")
    header = json.loads(table.schema.metadata[b"mialib"]) | {"format": 1}
    pq.write_table(table.replace_schema_metadata({"mialib": json.dumps(header)}), path)
    older = TokenStats.load(path)
    np.testing.assert_array_equal(older.log_prob, stats.log_prob)
    assert np.isnan(older.top_log_prob).all()
    older.check_finite()
    assert mialib.detect("ppl", older).tolist() == mialib.detect("ppl", stats).tolist()
    with pytest.raises(ValueError, match="'gap_k' is not applicable: its file is of an older version of mialib"):
        mialib.detect("gap_k", older)


def test_an_empty_table_survives_the_disk(tmp_path):
    TokenStats.from_rows([], provenance={"n_texts": 0}).save(tmp_path / "stats.parquet")
    assert len(TokenStats.load(tmp_path / "stats.parquet")) == 0


def test_the_file_has_one_row_a_text_that_any_parquet_reader_reads(stats, tmp_path):
    stats.save(tmp_path / "stats.parquet")
    frame = pd.read_parquet(tmp_path / "stats.parquet")
    assert len(frame) == 4
    assert [len(value) for value in frame["log_prob"]] == LENGTHS


def test_a_save_that_breaks_off_leaves_the_old_file_and_no_other(stats, tmp_path, monkeypatch):
    path = tmp_path / "stats.parquet"
    stats.save(path)

    def fill_the_disk(_, where, **__):
        where.write_text("half a table")
        raise OSError("no space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fill_the_disk)
    with pytest.raises(OSError, match="no space left"):
        TokenStats.from_rows(rows([2]), provenance={}).save(path)
    assert_same(TokenStats.load(path), stats)
    assert list(tmp_path.iterdir()) == [path]


def test_a_mean_log_prob_far_below_guessing_is_refused():
    def of_mean(mean):
        given = [row._replace(log_prob=np.full_like(row.log_prob, mean)) for row in rows([2, 7])]
        return TokenStats.from_rows(given, provenance={})

    check_likely(of_mean(-49.9), "x")
    check_likely(TokenStats.from_rows([], provenance={}), "x")
    with pytest.raises(ValueError, match=r"x gives .* -50.1, .* -13.8; its weights are broken"):
        check_likely(of_mean(-50.1), "x")


def test_a_foreign_parquet_is_an_error_that_names_it(tmp_path):
    pd.DataFrame({"log_prob": [[1.0]]}).to_parquet(tmp_path / "foreign.parquet")
    with pytest.raises(ValueError, match=r"foreign\.parquet: token statistics of format None, not 2"):
        TokenStats.load(tmp_path / "foreign.parquet")


def test_a_file_whose_columns_do_not_fit_is_an_error_that_names_the_column(stats, tmp_path):
    stats.save(path := tmp_path / "stats.parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["entropy"]), path)
    with pytest.raises(ValueError, match=r"stats\.parquet: token statistics without the column entropy"):
        TokenStats.load(path)
    entries = table.column("entropy").to_pylist()
    entries[0], entries[1] = entries[0] + entries[1][:1], entries[1][1:]  # as many in all
    at = table.schema.get_field_index("entropy")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(entries, table.schema.field(at).type)), path)
    with pytest.raises(ValueError, match=r"stats\.parquet: texts have other numbers of tokens in entropy"):
        TokenStats.load(path)


def test_a_table_of_frequencies_is_no_table_of_statistics(tmp_path):
    TokenFrequency(counts=np.ones(5, int), name="C4").save(tmp_path / "frequency.parquet")
    with pytest.raises(ValueError, match=r"frequency\.parquet: token statistics of format None"):
        TokenStats.load(tmp_path / "frequency.parquet")


def test_a_file_that_is_no_parquet_is_a_value_error(tmp_path):
    (tmp_path / "stats.parquet").write_text("no parquet")
    with pytest.raises(ValueError):
        TokenStats.load(tmp_path / "stats.parquet")


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


@pytest.mark.parametrize("other", [b"", b"PAR1", b"no parquet", None])
def test_what_is_no_file_of_statistics_is_a_value_error_that_names_it(other, tmp_path):
    path = tmp_path / "other.parquet"
    path.mkdir() if other is None else path.write_bytes(other)
    for kind in (TokenStats, TokenFrequency):
        with pytest.raises(ValueError, match=r"other\.parquet holds no token"):
            kind.load(path)
