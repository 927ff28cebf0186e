"""Files are whole or not there, and hashes tell apart what has to be told apart."""

import errno
import json
import os
import subprocess
import sys

import grimp
import pytest

from mialib import store


def test_a_new_folder_takes_the_place_of_an_old_one(tmp_path):
    for content in ("old", "new"):
        with store.atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["new"]


def test_a_link_is_written_through_and_a_pipe_is_written_to(tmp_path):
    target, link, pipe = tmp_path / "there" / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    for content in ("new", "newer"):  # its target is not there, and is there
        store.write_json(link, content)
        assert link.is_symlink() and json.loads(target.read_text()) == content
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    store.write_json(pipe, "new")
    assert reader.communicate()[0] == b'"new"\n' and pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir() if path.name[0] == "."} == set()


def test_standard_output_is_written_to_whatever_it_is(tmp_path):
    program = "from mialib import store; store.write_json('/dev/fd/1', 1); print('after')"
    (tmp_path / "out").write_text("before\n")
    with (tmp_path / "out").open("a") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\n1\nafter\n"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "1\nafter\n"


# --- hashes of content ---


INTERRUPTED = {
    "after the folder is made": """
mkdir = Path.mkdir
def make_and_stop(self, *args, **options):
    mkdir(self, *args, **options)
    if self.name.startswith("."):
        raise KeyboardInterrupt
Path.mkdir = make_and_stop
""",
    "before it is removed": """
rmtree = shutil.rmtree
def stop(*args, **options):
    shutil.rmtree = rmtree
    raise KeyboardInterrupt
shutil.rmtree = stop
""",
}


@pytest.mark.parametrize("at", INTERRUPTED)
def test_a_signal_at_the_worst_moment_leaves_no_temporary_folder(at, tmp_path):
    program = f"""
import shutil
from pathlib import Path
from mialib.store import atomic_path
{INTERRUPTED[at]}
with atomic_path({str(tmp_path / "a")!r}) as temporary:
    temporary.write_text("1")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "KeyboardInterrupt" in done.stderr and not list(tmp_path.glob(".*"))


def test_no_two_lists_of_texts_share_a_hash():
    lists = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["c", "ab"], []]
    assert len({store.hash_texts(texts) for texts in lists}) == len(lists)


def test_a_hash_of_files_is_of_names_and_contents_and_not_of_places(tmp_path):
    def write(folder, **contents):
        (tmp_path / folder).mkdir()
        for name, content in contents.items():
            (tmp_path / folder / name).write_text(content)
        return store.hash_files((tmp_path / folder).iterdir())

    first = write("one", a="1", b="2")
    assert write("two", b="2", a="1") == first
    assert len({first, write("three", a="2", b="1"), write("four", a="1", c="2"), write("five", a="1")}) == 4


# --- what an edit to code makes stale ---


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of a few modules, in mialib's place: `edit` writes a module, `code_hash` forgets what it knew."""
    forget()
    monkeypatch.setattr(store, "PACKAGE", tmp_path / "mialib")
    modules = {
        "__init__": "",
        "top": "from mialib.wing.middle import value\n\ndef f(x):\n    return x + value\n",
        "wing/__init__": "",
        "wing/middle": "def late():\n    from mialib import low\n    return low.n\n\nvalue = 1\n",
        "low": "n = 1\n",
        "apart": "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from mialib.top import f\nelse:\n    from mialib import low\n",
        "unrelated": "import mialib_other.top\nfrom mialibs import low\n",
        "plain": "import mialib.wing.middle as m\n",
    }
    for name, source in modules.items():
        edit(tmp_path, name, source)
    yield tmp_path
    forget()


def forget():
    for known in (store.import_closure, store.imported_modules, store._code):
        known.cache_clear()


def edit(folder, module, source):
    path = folder / "mialib" / f"{module}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


def code_hash(*modules, **options):
    forget()
    store.code_hash.cache_clear()
    return store.code_hash(*modules, **options)


def test_a_closure_is_all_that_a_module_imports_whenever_it_does(package):
    assert store.import_closure("top") == {"top", "wing.middle", "low"}, "an import inside a function counts too"
    assert store.import_closure("wing.middle") == {"wing.middle", "low"}
    assert store.import_closure("unrelated") == {"unrelated"}
    assert store.import_closure("plain") == {"plain", "wing.middle", "low"}


def test_what_only_type_checkers_import_does_not_count(package):
    assert store.import_closure("apart") == {"apart", "low"}
    before = code_hash("apart")
    edit(package, "top", "def f(x):\n    return 7\n")
    assert code_hash("apart") == before


def test_an_edit_to_docstrings_comments_or_layout_changes_nothing(package):
    before = code_hash("top")
    edit(
        package,
        "top",
        '"""A module."""\n\n# a comment\nfrom mialib.wing.middle import (\n    value,\n)\n\n\n'
        'def f(x):  # another\n    """Add."""\n    return (x + value)\n',
    )
    edit(package, "low", '"""Low."""\nn = 1  # one\n')
    assert code_hash("top") == before


def test_a_docstring_is_a_string_that_stands_first_and_no_other(package):
    edit(package, "low", 'class A:\n    """A."""\n\nn = 1\n')
    before = code_hash("low")
    edit(package, "low", 'class A:\n    """B."""\n\nn = 1\n')
    assert code_hash("low") == before
    edit(package, "low", 'class A:\n    text = """B."""\n\nn = 1\n')
    assert code_hash("low") != before


@pytest.mark.parametrize("module", ["top", "wing/middle", "low"])
def test_an_edit_to_code_of_an_imported_module_counts(package, module):
    before, apart = code_hash("top"), code_hash("unrelated")
    path = package / "mialib" / f"{module}.py"
    edit(package, module, path.read_text() + "\n\ndef g():\n    return 2\n")
    assert code_hash("top") != before and code_hash("unrelated") == apart


@pytest.mark.parametrize("suffix", [".yml", ".html", ".css"])
def test_data_beside_a_module_is_part_of_its_code(package, suffix):
    before, other = code_hash("top"), code_hash("unrelated")
    data = package / "mialib" / "wing" / f"middle{suffix}"
    data.write_text("words: [a, b]\n")
    with_data = code_hash("top")
    data.write_text("words: [a, c]\n")
    assert len({before, with_data, code_hash("top")}) == 3 and code_hash("unrelated") == other


def test_modules_apart_do_not_count_and_neither_does_what_they_alone_import(package):
    assert store.import_closure("top", ("wing",)) == store.import_closure("top", ("wing.middle",)) == {"top"}
    before = code_hash("top", apart=("wing",))
    edit(package, "low", "n = 2\n")
    edit(package, "wing/middle", "value = 2\n")
    assert code_hash("top", apart=("wing",)) == before != code_hash("top")


def test_several_modules_hash_as_one_set_whatever_their_order(package):
    assert code_hash("top", "unrelated") == code_hash("unrelated", "top", "low") != code_hash("top")


def test_the_closures_are_those_that_grimp_finds():
    graph = grimp.build_graph("mialib", exclude_type_checking_imports=True)
    folders = {f"mialib.{path.parent.name}" for path in store.PACKAGE.glob("*/__init__.py")}
    modules = graph.modules - folders - {"mialib"}
    assert len(folders) == 9 and len(modules) > 40
    for module in modules:
        found = {f"mialib.{name}" for name in store.import_closure(module.removeprefix("mialib."))}
        assert found - folders == graph.find_upstream_modules(module) - folders - {"mialib"} | {module}, module


# --- where things lie ---


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


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    for name in (None, "another"):
        with pytest.raises(OSError) as caught, store.atomic_path(tmp_path / "a.json"):
            raise OSError(errno.ENOSPC, "No space left on device", name)
        assert caught.value.filename == (name or str(tmp_path / "a.json"))
    with pytest.raises(OSError) as caught, store.atomic_path(tmp_path / "a.json"):
        raise OSError("of something else")
    assert str(caught.value) == "of something else"


def test_json_is_written_whole_and_for_people(tmp_path):
    store.write_json(tmp_path / "a.json", {"河": [1]})
    assert (tmp_path / "a.json").read_text() == '{\n "河": [\n  1\n ]\n}\n'
    with pytest.raises(TypeError):
        store.write_json(tmp_path / "a.json", {"x": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"河": [1]}


def test_the_code_of_trainings_is_that_of_training_alone():
    assert store.import_closure("lab.training") == {"lab.training", "batches"}, "every model would be trained anew"
