"""A result is computed once and cached whole or not at all, under a name made of all that determines it."""

import numpy as np
import pytest

from mialib.cache import ARRAYS, JSON, Checkpoints, Format, cache_path, cached, is_cached, write_once

TEXT = Format(".txt", lambda text, path: path.write_text(text), lambda path: path.read_text())
FOLDER = Format("", lambda value, path: [path.mkdir(), (path / "a").write_text(value)], lambda p: (p / "a").read_text())


def test_a_file_or_folder_is_written_once_and_is_whole_or_not_there(tmp_path):
    path, calls = tmp_path / "deep" / "one.txt", []

    def write(to):
        calls.append(to)
        to.write_text("whole")
        assert not path.exists(), "it takes its place at the end"

    assert write_once(path, write) == write_once(path, write) == path
    assert len(calls) == 1 and path.read_text() == "whole" and not calls[0].exists()
    with pytest.raises(ZeroDivisionError):
        write_once(tmp_path / "folder", lambda to: [to.mkdir(), 1 / 0])
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")] == ["deep"]
    left = tmp_path / ".one.txt.abc123"  # by a run that was killed
    left.mkdir()
    (left / "one.txt").write_text("half")
    write_once(tmp_path / "one.txt", lambda to: to.write_text("whole"))
    assert not left.exists() and (tmp_path / "one.txt").read_text() == "whole"


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (JSON, {"a": [1, 2.5, None], "河": "é"}),
        (ARRAYS, {"scores": np.arange(3.0), "ids": np.array([[1], [2]], np.int32)}),
        (TEXT, "text"),
        (FOLDER, "text"),
    ],
    ids=["json", "arrays", "text", "folder"],
)
def test_a_result_is_read_back_as_it_was_computed(form, value, mialib_home):
    calls = []
    for _ in range(2):
        result = cached("kind", lambda: calls.append(1) or value, form, n=3, name="é")
        np.testing.assert_equal(result, value)
    path = cache_path("kind", form, name="é", n=3)
    assert calls == [1] and is_cached("kind", form, n=3, name="é")
    assert path.exists() and path.parent == mialib_home / "cache" / "kind" and path.suffix == form.suffix


def test_any_other_key_is_a_miss():
    calls = []
    for key in ({"n": 1}, {"n": 2}, {"n": 1, "m": None}, {"n": "1"}, {"n": 1}):
        cached("kind", lambda: calls.append(1) or [], JSON, **key)
    cached("another kind", lambda: calls.append(1) or [], JSON, n=1)
    assert len(calls) == 5


@pytest.mark.parametrize("form", [JSON, ARRAYS], ids=["json", "arrays"])
def test_a_damaged_file_is_an_error_that_names_it(form):
    path = cache_path("kind", form)
    cached("kind", lambda: {"scores": np.arange(3.0).tolist()}, form)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=path.name):
        cached("kind", dict, form)


def test_a_computation_that_broke_off_resumes_from_its_checkpoints():
    done = []

    def make(checkpoints, stop_at=None):
        numbers = [number for checkpoint in checkpoints for number in checkpoint]
        for number in range(len(numbers), 5):
            if number == stop_at:
                raise KeyboardInterrupt
            done.append(number)
            checkpoints.add([number])
            numbers.append(number)
        return numbers

    path = cache_path("squares", JSON, of=1)
    with pytest.raises(KeyboardInterrupt):
        cached("squares", lambda checkpoints: make(checkpoints, 3), JSON, JSON, of=1)
    assert not path.exists()
    assert cached("squares", make, JSON, JSON, of=1) == done == [0, 1, 2, 3, 4], "nothing twice"
    assert [p for p in path.parent.iterdir() if p.suffix != ".lock"] == [path]


def test_a_checkpoint_may_stand_for_all_before_it(tmp_path):
    checkpoints = Checkpoints(tmp_path, JSON)
    for checkpoint in ("a", "b", "c"):
        checkpoints.add(checkpoint, instead=True)
        assert [*checkpoints] == [*Checkpoints(tmp_path, JSON)] == [checkpoint]
    (tmp_path / ".000000.json.abcd").mkdir()  # by a run that was killed while it wrote
    assert [*Checkpoints(tmp_path, JSON)] == ["c"]
