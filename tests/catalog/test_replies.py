"""Replies that are kept, a line each."""

import pytest

from mialib.catalog.replies import append_line, read_lines


def test_lines_come_back_as_they_were_added(tmp_path):
    path = tmp_path / "deep" / "replies.jsonl"
    assert read_lines(path) == []
    rows = [{"text": "a\nb\u2028c é河"}, [1, 2.5], "half a pair \ud83d"]
    for row in rows:
        append_line(path, row)
    assert read_lines(path) == rows and len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("rest", [b'{"text": "ab', '{"text": "é'.encode()[:-1], b" "])
def test_a_last_line_that_was_cut_short_is_dropped_from_the_file_too(tmp_path, rest):
    path = tmp_path / "replies.jsonl"
    append_line(path, {"n": 1})
    append_line(path, {"n": 2})
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    assert read_lines(path) == [{"n": 1}, {"n": 2}]
    assert path.read_bytes() == whole
    append_line(path, {"n": 3})
    assert read_lines(path) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_file_of_nothing_but_a_cut_line_is_empty(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text('{"n":')
    assert read_lines(path) == [] and path.read_bytes() == b""
