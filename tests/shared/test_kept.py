"""What is computed is kept once, whole or not at all, under a name that holds all that determines it."""

import errno
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from mialib.shared import kept
from mialib.shared.kept import ARRAYS, JSON, Format, Parts, keep, kept_path, once


def test_a_file_is_written_once_and_is_whole_or_not_there(tmp_path):
    path, made = tmp_path / "deep" / "one.txt", []

    def write(to):
        made.append(to)
        to.write_text("whole")
        assert path.exists() == (len(made) > 1), "it takes its place at the end"

    assert once(path, write) == once(path, write) == path
    assert len(made) == 1 and path.read_text() == "whole" and not made[0].exists()

    def fail(to):
        to.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        once(tmp_path / "two.txt", fail)
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")] == ["deep"]
    assert once(tmp_path / "two.txt", write).read_text() == "whole", "a failure leaves nothing in its way"


def test_a_folder_is_written_once_too(tmp_path):
    made = []

    def write(to):
        made.append(to)
        (to / "b").mkdir(parents=True)
        (to / "a").write_text("1")

    assert once(tmp_path / "model", write) == once(tmp_path / "model", write) and len(made) == 1
    (tmp_path / "model" / "a").write_text("2")
    assert once(tmp_path / "model", write) and len(made) == 2, "a damaged one is made anew"
    assert (tmp_path / "model" / "a").read_text() == "1" and len(list(tmp_path.glob("damaged-*-model"))) == 1
    with pytest.raises(ZeroDivisionError):
        once(tmp_path / "other", lambda to: [to.mkdir(), 1 / 0])
    assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".other.*/"))


def test_of_several_processes_one_writes_and_the_others_wait_for_it(tmp_path):
    program = textwrap.dedent(
        f"""
        import os, time
        from pathlib import Path
        from mialib.shared.kept import once

        def write(to):
            with open({str(tmp_path / "made")!r}, "a") as file:
                file.write("x")
            time.sleep(0.3)
            to.write_text(str(os.getpid()))

        print(once(Path({str(tmp_path / "one")!r}), write).read_text())
        """
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate()[0] for process in running}
    assert len(said) == 1 and (tmp_path / "made").read_text() == "x"


def test_a_wait_for_another_process_is_mentioned(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kept, "WAIT_SECONDS", 0.05)
    program = textwrap.dedent(
        f"""
        import sys
        from filelock import FileLock

        with FileLock({str(tmp_path / ".one.lock")!r}):
            print("held", flush=True)
            sys.stdin.readline()
        """
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other.stdout.readline()
    warn = kept.logger.warning

    def warn_and_let_go(*args):
        warn(*args)
        other.communicate("\n")

    monkeypatch.setattr(kept.logger, "warning", warn_and_let_go)
    assert once(tmp_path / "one", lambda to: to.write_text("whole")).read_text() == "whole"
    assert f"waiting for another process, which makes {tmp_path / 'one'} and holds" in caplog.text


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (JSON, {"a": [1, 2.5, None], "河": "é"}),
        (ARRAYS, {"scores": np.arange(3.0), "ids": np.array([[1], [2]], np.int32)}),
        (Format(".txt", lambda text, path: path.write_text(text), lambda path: path.read_text()), "text"),
    ],
    ids=["json", "arrays", "own"],
)
def test_what_is_kept_is_read_back_as_it_was_made(form, value, mialib_home):
    made = []
    first, again = (keep("kind", lambda: made.append(1) or value, form, n=3, name="é") for _ in range(2))
    for found in (first, again):
        assert found.keys() == value.keys() if isinstance(value, dict) else found == value
        np.testing.assert_equal(found, value)
    assert made == [1]
    path = kept_path("kind", form, name="é", n=3)
    assert path.is_file() and path.parent == mialib_home / "cache" / "kind" and path.suffix == form.suffix


def test_another_thing_that_determines_it_makes_it_anew():
    made = []
    for given in ({"n": 1}, {"n": 2}, {"n": 1, "m": None}, {"n": "1"}, {"n": 1}):
        keep("kind", lambda: made.append(1) or [], JSON, **given)
    keep("another kind", lambda: made.append(1) or [], JSON, n=1)
    assert len(made) == 5


FOLDER = Format("", lambda value, path: [path.mkdir(), (path / "a").write_text(value)], lambda p: (p / "a").read_text())


def kept_in(form):
    """The file of the bytes that hold a value of the form, and a function that keeps it and says if it was made."""
    value = {JSON: {"n": 1}, ARRAYS: {"n": np.arange(3)}, FOLDER: "text"}[form]
    made = []

    def ask():
        made.clear()
        found = keep("kind", lambda: made.append(1) or value, form, n=1)
        np.testing.assert_equal(found, value)
        return bool(made)

    path = kept_path("kind", form, n=1)
    return path / "a" if form is FOLDER else path, ask


@pytest.mark.parametrize("form", [JSON, ARRAYS, FOLDER], ids=["json", "arrays", "folder"])
def test_no_flipped_bit_is_read(form, caplog):
    file, ask = kept_in(form)
    assert ask() and not ask()
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.choice(8 * len(whole), 30):
        data = bytearray(whole)
        data[at // 8] ^= 1 << (at % 8)
        file.write_bytes(data)
        assert ask(), f"bit {at}"
        assert not ask()
    assert "set aside as damaged-" in caplog.text
    assert len(list(kept_path("kind", form, n=1).parent.glob("damaged-*"))) == 30


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "no checksum", "another key's", "garbled checksum", "a folder", "a loop"]
)
def test_a_damaged_file_is_made_anew(damage):
    file, ask = kept_in(JSON)
    ask()
    seal = file.with_name(f"{file.name}.sha256")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-3])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "no checksum":
        seal.unlink()
    elif damage in ("a folder", "a loop"):  # where the checksum belongs
        seal.unlink()
        seal.mkdir() if damage == "a folder" else seal.symlink_to(seal)
    elif damage == "garbled checksum":
        seal.write_bytes(b"\xff\xfe")
    else:
        keep("kind", lambda: {"n": 2}, JSON, n=2)
        other = kept_path("kind", JSON, n=2)
        file.write_bytes(other.read_bytes())
        seal.write_bytes(other.with_name(f"{other.name}.sha256").read_bytes())
    assert ask() and not ask()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_where_nothing_can_be_written_the_value_is_made_and_not_kept(number, caplog):
    def write(value, path):
        raise OSError(number, "no room here", str(path))

    made = []
    form = Format(".txt", write, lambda path: path.read_text())
    for n in (1, 2):
        assert keep("kind", lambda: made.append(1) or "value", form, n=1) == "value"
        assert len(made) == n
    assert "(no room here)" in caplog.text and "MIALIB_HOME" in caplog.text


def test_where_parts_of_a_killed_run_can_t_be_cleared_the_value_is_made_and_not_kept(monkeypatch, caplog):
    def refuse(*paths):
        if paths:
            raise PermissionError(errno.EACCES, "may not be written", str(paths[0]))

    form = Format(".txt", lambda value, path: path.write_text(value), lambda path: path.read_text())
    path = kept_path("kind", form)
    (folder := path.with_name(f"{path.name}.parts")).mkdir(parents=True)
    (folder / "left").touch()
    monkeypatch.setattr(kept, "remove", refuse)
    assert keep("kind", lambda parts: "value", form, form) == "value"
    assert "can't be kept (may not be written)" in caplog.text


def test_all_is_made_anew_once_where_that_is_asked_for(monkeypatch):
    made = []
    monkeypatch.setattr(kept, "ANEW", None)
    for expected in (1, 1):
        keep("kind", lambda: made.append(1) or "value", JSON, n=1)
        assert len(made) == expected
    kept.keep_nothing_of_before()
    for expected in (2, 2):
        keep("kind", lambda: made.append(1) or "value", JSON, n=1)
        assert len(made) == expected


def full(value, path):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_computation_that_broke_off_goes_on_from_its_parts_up_to_a_gap(mialib_home):
    done = []

    def make(parts, stop_after=None):
        found = [number for part in parts for number in part]
        for number in range(len(found), 5):
            if number == stop_after:
                raise KeyboardInterrupt
            done.append(number)
            parts.add([number])
            found.append(number)
        return found

    path = kept_path("squares", JSON, of=1)
    with pytest.raises(KeyboardInterrupt):
        keep("squares", lambda parts: make(parts, 3), JSON, JSON, of=1)
    assert len([*path.with_name(f"{path.name}.parts").glob("*.json")]) == 3
    assert keep("squares", make, JSON, JSON, of=1) == [0, 1, 2, 3, 4]
    assert done == [0, 1, 2, 3, 4], "nothing twice"
    assert {p.name for p in path.parent.iterdir() if p.suffix != ".lock"} == {path.name, f"{path.name}.sha256"}
    with pytest.raises(KeyboardInterrupt):
        keep("squares", lambda parts: make(parts, 3), JSON, JSON, of=2)
    (kept_path("squares", JSON, of=2).with_suffix(".json.parts") / "000001.json").write_text("[7]")
    assert keep("squares", make, JSON, JSON, of=2) == [0, 1, 2, 3, 4], "by position: the later part is not taken for it"


@pytest.fixture
def parts(tmp_path):
    """Three parts in a folder."""
    parts = Parts(tmp_path / "parts", JSON)
    for part in ("a", "b", "c"):
        parts.add(part)
    return parts


def test_what_comes_after_a_damaged_part_is_made_anew(parts, tmp_path, caplog):
    folder = tmp_path / "parts"
    damaged = folder / "000001.json"
    damaged.write_text(damaged.read_text().replace("b", "d"))
    again = Parts(folder, JSON)
    assert [*again] == ["a"] and "000001.json is not" in caplog.text
    again.add("e")  # which may be of other texts than the old second one
    assert [*again] == [*Parts(folder, JSON)] == ["a", "e"], "the old third one is none of this run's"


def test_a_missing_part_ends_them_too(parts, tmp_path):
    (tmp_path / "parts" / "000000.json").unlink()
    assert [*Parts(tmp_path / "parts", JSON)] == [] == [*(tmp_path / "parts").iterdir()]


def test_one_part_may_stand_for_all_before_it(tmp_path):
    parts = Parts(tmp_path, JSON)
    for part in ("a", "b", "c"):
        parts.add(part, instead=True)
        assert [*parts] == [*Parts(tmp_path, JSON)] == [part]
    left = tmp_path / ".last-000003.json.abcd"  # of a run that was killed while it wrote
    left.mkdir()
    again = Parts(tmp_path, JSON)
    again.add("d", instead=True)
    assert [*again] == ["d"] and len([*tmp_path.iterdir()]) == 2, "the part and its seal"


def test_where_a_part_cannot_be_kept_no_later_one_is(tmp_path, caplog, monkeypatch):
    parts = Parts(tmp_path / "parts", JSON)
    parts.add("whole")
    monkeypatch.setattr(parts, "form", JSON._replace(write=full))
    parts.add("lost")
    monkeypatch.setattr(parts, "form", JSON)
    parts.add("after the gap")
    assert [*parts] == ["whole", "lost", "after the gap"]
    assert caplog.text.count("No space left on device") == 1
    assert [*Parts(tmp_path / "parts", JSON)] == ["whole"]


def test_where_the_part_that_stands_for_all_cannot_be_kept_it_still_does(tmp_path, monkeypatch):
    parts = Parts(tmp_path, JSON)
    parts.add("a", instead=True)
    monkeypatch.setattr(parts, "form", JSON._replace(write=full))
    parts.add("ab", instead=True)
    assert [*parts] == ["ab"]
    parts.add("abc", instead=True)
    assert [*parts] == ["abc"]
    assert [*Parts(tmp_path, JSON)] == ["a"], "what a later run goes on from"


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "Permission denied", "a part"), OSError("the hub"), ValueError("no")],
    ids=str,
)
def test_an_error_of_making_is_none_of_keeping_and_nothing_is_made_twice_or_kept(error):
    made = []

    def make(parts):
        made.append("once")
        parts.add("a")
        raise error

    with pytest.raises(type(error)) as caught:
        keep("numbers", make, JSON, JSON, of=1)
    assert made == ["once"] and caught.value is error
    assert keep("numbers", lambda parts: "yes", JSON, JSON, of=1) == "yes"


def test_what_a_killed_run_left_is_cleaned_and_another_computations_part_not_taken(tmp_path):
    for name in ("one", "other"):
        Parts(tmp_path / name, JSON).add(name)
    for file in ("000000.json", "000000.json.sha256"):
        (tmp_path / "one" / file).write_bytes((tmp_path / "other" / file).read_bytes())
    assert [*Parts(tmp_path / "one", JSON)] == []
    left = tmp_path / ".one.txt.abc123"
    left.mkdir()
    (left / "one.txt").write_text("half")
    once(tmp_path / "one.txt", lambda to: to.write_text("whole"))
    assert not left.exists() and (tmp_path / "one.txt").read_text() == "whole"
