"""Replies that are kept, a line each."""

import pytest

from replication.remote.replies import append_line, read_lines


def test_a_line_that_is_not_as_it_was_written_is_left_out_by_its_number(tmp_path, caplog):
    path = tmp_path / "deep" / "replies.jsonl"
    assert read_lines(path) == []
    for n in range(5):
        append_line(path, {"n": n, "log_prob": [-1.5]})
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[3] = lines[1].replace(b"-1.5", b"-1.4"), b"\xff{" + lines[3]
    path.write_bytes(b"".join(lines))
    assert [row["n"] for row in read_lines(path)] == [0, 2, 4]
    assert "line 2, 4: damaged" in caplog.text


def test_another_file_is_neither_read_nor_changed(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "mine"}\n{"te')
    with pytest.raises(ValueError, match=r"texts\.jsonl: .* 1 "):
        read_lines(path)
    assert path.read_text() == '{"text": "mine"}\n{"te'


@pytest.mark.parametrize("rest", [b'{"text": "ab', '{"text": "é'.encode()[:-1], b" "])
def test_a_last_line_that_was_cut_short_is_dropped_from_the_file_too(tmp_path, caplog, rest):
    path = tmp_path / "replies.jsonl"
    append_line(path, {"n": 1})
    append_line(path, {"n": 2})
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    assert read_lines(path) == [{"n": 1}, {"n": 2}]
    assert path.read_bytes() == whole and "replies.jsonl: its last line" in caplog.text
    append_line(path, {"n": 3})
    assert read_lines(path) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_cut_line_and_an_empty_file_are_told_and_a_folder_is_an_error(tmp_path, caplog):
    path = tmp_path / "replies.jsonl"
    path.write_text('{"n":')
    assert read_lines(path) == [] and path.read_bytes() == b""
    (tmp_path / "one.jsonl").touch()
    assert read_lines(tmp_path / "one.jsonl") == [] and "one.jsonl is empty" in caplog.text
    (tmp_path / "two.jsonl").mkdir()
    with pytest.raises(IsADirectoryError, match="two"):
        read_lines(tmp_path / "two.jsonl")
