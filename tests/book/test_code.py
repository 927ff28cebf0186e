"""Which code a page is made by: `replication.pipeline.code`."""

import grimp
import pytest

from mialib.catalog.sources import KINDS
from replication.pipeline import code


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of a few modules, in mialib's place: `edit` writes a module, `code_hash` forgets what it knew."""
    forget()
    monkeypatch.setattr(code, "FOLDERS", {"mialib": tmp_path / "mialib"})
    modules = {
        "__init__": "",
        "top": "from mialib.wing.middle import value\n\ndef f(x):\n    return x + value\n",
        "wing/__init__": "",
        "wing/middle": "def late():\n    from mialib import low\n    return low.n\n\nvalue = 1\n",
        "low": "n = 1\n",
        "unrelated": "import mialib_other.top\nfrom mialibs import low\n",
    }
    for name, source in modules.items():
        edit(tmp_path, name, source)
    yield tmp_path
    forget()


def forget():
    for known in (code.code_hash, code.import_closure, code._imports_of, code._hash):
        known.cache_clear()


def edit(folder, module, source):
    path = folder / "mialib" / f"{module}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


def code_hash(*modules):
    forget()
    return code.code_hash(*modules)


def test_an_edit_to_docstrings_comments_or_layout_changes_nothing(package):
    before = code_hash("mialib.top")
    edit(
        package,
        "top",
        '"""A module."""\n\n# a comment\nfrom mialib.wing.middle import (\n    value,\n)\n\n\n'
        'def f(x):  # another\n    """Add."""\n    return (x + value)\n',
    )
    edit(package, "low", '"""Low."""\nn = 1  # one\n')
    assert code_hash("mialib.top") == before


@pytest.mark.parametrize("module", ["top", "wing/middle", "low"])
def test_an_edit_to_code_of_an_imported_module_counts(package, module):
    before, apart = code_hash("mialib.top"), code_hash("mialib.unrelated")
    path = package / "mialib" / f"{module}.py"
    edit(package, module, path.read_text() + "\n\ndef g():\n    return 2\n")
    assert code_hash("mialib.top") != before and code_hash("mialib.unrelated") == apart


def test_data_beside_a_module_is_part_of_its_code(package):
    before, other = code_hash("mialib.top"), code_hash("mialib.unrelated")
    data = package / "mialib" / "wing" / "middle.html"
    data.write_text("<p>a")
    with_data = code_hash("mialib.top")
    data.write_text("<p>b")
    assert len({before, with_data, code_hash("mialib.top")}) == 3 and code_hash("mialib.unrelated") == other


def test_the_closures_are_those_that_grimp_finds():
    graph = grimp.build_graph("mialib", "mialib_audit", "replication", exclude_type_checking_imports=True)
    packages = {
        ".".join([name, *path.parent.relative_to(folder).parts])
        for name, folder in code.FOLDERS.items()
        for path in folder.rglob("__init__.py")
    }
    modules = graph.modules - packages
    assert len(modules) > 80
    kinds = {code.module_of(prefix).partition(":")[0] for prefix in KINDS}  # imported when a name of theirs is met
    of_kinds = kinds.union(*map(graph.find_upstream_modules, kinds))
    for module in modules:
        upstream = graph.find_upstream_modules(module) | {module}
        upstream |= of_kinds if "mialib.catalog.sources" in upstream else set()
        assert code.import_closure(module) - packages == upstream - packages, module
