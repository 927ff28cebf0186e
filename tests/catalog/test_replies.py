"""Replies that are stored, a line each."""

import pytest

from replication.remote.services import append_line, read_lines


@pytest.mark.parametrize("rest", [b"", b'{"text": "ab', '{"text": "é'.encode()[:-1], b" "])
def test_rows_come_back_and_a_last_line_that_was_cut_short_is_dropped_from_the_file_too(tmp_path, caplog, rest):
    path = tmp_path / "deep" / "replies.jsonl"
    assert read_lines(path) == []
    append_line(path, {"n": 1, "log_prob": [-1.5]})
    append_line(path, {"n": 2})
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    assert read_lines(path) == [{"n": 1, "log_prob": [-1.5]}, {"n": 2}]
    assert path.read_bytes() == whole and bool(caplog.text) is bool(rest)
    append_line(path, {"n": 3})
    assert [row["n"] for row in read_lines(path)] == [1, 2, 3]
