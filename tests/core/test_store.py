"""Files are whole or not there, and hashes tell apart what has to be told apart."""

import json

import pytest

from mialib import store


def test_a_new_folder_takes_the_place_of_an_old_one(tmp_path):
    for content in ("old", "new"):
        with store.atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["new"]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), store.atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_hashes_tell_lists_and_files_apart(tmp_path):
    lists = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["c", "ab"], []]
    assert len({store.hash_texts(texts) for texts in lists}) == len(lists)

    def write(folder, **contents):
        (tmp_path / folder).mkdir()
        for name, content in contents.items():
            (tmp_path / folder / name).write_text(content)
        return store.hash_files((tmp_path / folder).iterdir())

    first = write("one", a="1", b="2")
    assert write("two", b="2", a="1") == first
    assert len({first, write("three", a="2", b="1"), write("four", a="1", c="2"), write("five", a="1")}) == 4


def test_home_is_what_the_environment_says(monkeypatch, tmp_path, mialib_home):
    assert store.home() == mialib_home
    monkeypatch.delenv("MIALIB_HOME")
    assert store.home() == store.ROOT / "build"
    monkeypatch.setenv("MIALIB_HOME", "")
    assert store.home() == store.ROOT / "build", "as if it were not set"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MIALIB_HOME", "~/x")
    assert store.home() == tmp_path / "x"
    monkeypatch.delenv("MIALIB_HOME")
    monkeypatch.setattr(store, "ROOT", tmp_path)
    assert store.home().parts[-2:] == (".cache", "mialib"), "installed, without a clone"


def test_json_is_written_whole(tmp_path):
    store.write_json(tmp_path / "a.json", {"河": [1]})
    with pytest.raises(TypeError):
        store.write_json(tmp_path / "a.json", {"x": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"河": [1]}
