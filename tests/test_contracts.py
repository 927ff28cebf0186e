"""The floors of the house import only what lies below them: the contracts of pyproject.toml, and that they hold."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest
from clones import python_path

from mialib.store import ROOT
from replication.pipeline.code import FOLDERS

CHECK = "from importlinter.cli import lint_imports_command as check; check(['--no-cache'])"


def check_contracts(root):
    """How the contracts of a tree end, and what is said of them."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=root,
        env=os.environ | {"PYTHONPATH": python_path(root)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the packages and their contracts."""
    root = tmp_path_factory.mktemp("house")
    for package in FOLDERS.values():
        shutil.copytree(package, root / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.mark.slow
def test_the_types_are_right():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_arrow_points_downward():
    code, said = check_contracts(ROOT)
    assert code == 0 and "5 kept, 0 broken" in said, said


@pytest.mark.parametrize(
    ("module", "line", "offence"),
    [
        ("mialib/scoring", "def f():\n    from replication import figures\n", "mialib.scoring -> replication"),
        ("mialib/scoring", "from mialib_audit import power\n", "mialib.scoring -> mialib_audit"),
        ("mialib_audit/power", "from replication import figures\n", "mialib_audit.power -> replication"),
        ("mialib/text", "from mialib import benchmarks\n", "mialib.text is not allowed to import mialib.benchmarks"),
        (
            "mialib/catalog/hub",
            "from mialib.passes.inputs import Target\n",
            "mialib.catalog is not allowed to import mialib.passes",
        ),
        (
            "replication/builders/fetch",
            "from replication import tables\n",
            "replication.builders is not allowed to import replication.tables",
        ),
        ("mialib/unplaced", "", "not listed as layers: - mialib.unplaced"),
    ],
)
def test_a_forbidden_import_is_caught(copy, module, line, offence):
    path = copy / f"{module}.py"
    before = path.read_text() if path.is_file() else None
    path.write_text((before or "") + line)
    try:
        code, said = check_contracts(copy)
    finally:
        path.write_text(before) if before is not None else path.unlink()
    assert code == 1 and offence in " ".join(said.split()), said


# --- tests keep to their wing ---

WING_TESTED_IN = {
    "pipeline": "book",
    "studies": "book",
    "detectors": "core",
    "remote": "catalog",
    "reports": "commands",
}
FILES_TESTED_IN = {"mialib": "core", "mialib_audit": "audit", "replication": "book"}  # those in no wing
OF_NAMED_TUPLES = {"_replace", "_fields", "_asdict", "_make"}


def wing_of(module):
    """The folder of the tests of a module."""
    package, *folders = module.split(".")
    is_wing = len(folders) > 1 and (FOLDERS[package] / folders[0] / "__init__.py").is_file()
    return WING_TESTED_IN.get(folders[0], folders[0]) if is_wing else FILES_TESTED_IN[package]


def private_names_of_other_wings(path):
    """Where a test reaches for a private name of a module or class of another wing than its own folder's."""
    tree = ast.parse(path.read_text())
    wing = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOLDERS:
            wing |= {name.asname or name.name: wing_of(f"{node.module}.{name.name}") for name in node.names}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(name), private) if wing.get(name, path.parent.name) != path.parent.name:
                pass
            case ast.Call(ast.Attribute(_, "setattr"), [ast.Name(name), ast.Constant(str(private)), *_]) if (
                wing.get(name, path.parent.name) != path.parent.name
            ):
                pass
            case ast.Constant(str(text)) if re.fullmatch(r"(mialib|mialib_audit|replication)(\.\w+)+", text):
                name, _, private = text.rpartition(".")
                if wing_of(name) == path.parent.name:
                    continue
            case _:
                continue
        if private.startswith("_") and not private.startswith("__") and private not in OF_NAMED_TUPLES:
            yield f"{path.parent.name}/{path.name}, line {node.lineno}: {private} of {name}"


def test_no_test_patches_or_reads_a_private_name_of_another_wing(tmp_path):
    found = [line for path in sorted((ROOT / "tests").glob("*/*.py")) for line in private_names_of_other_wings(path)]
    assert not found, "\n".join(found)
    (tmp_path / "lab").mkdir()
    offence = tmp_path / "lab" / "test_x.py"
    offence.write_text(
        "from mialib import frequency\nfrom replication.lab import dealing\n"
        "monkeypatch.setattr(frequency, '_batches', 1)\ndealing._make()\nfrequency._batches()\n"
        "monkeypatch.setattr('mialib.passes.cache._made_by', 1)\n"
    )
    assert [line.split("line ")[1][0] for line in private_names_of_other_wings(offence)] == ["3", "5", "6"]
