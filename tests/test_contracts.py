"""The floors of the house import only what lies below them: the contracts of pyproject.toml, and that they hold."""

import os
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
    environ = os.environ | {"PYTHONPATH": python_path(root)}
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=root, env=environ, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.slow
def test_the_types_are_right():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_arrow_points_downward():
    code, said = check_contracts(ROOT)
    assert code == 0 and "5 kept, 0 broken" in said, said


OFFENCES = [  # one for each contract; a new file without a floor ends the check before the others
    ("mialib/scoring", "def f():\n    from replication import figures\n", "mialib.scoring -> replication"),
    ("mialib/scoring", "from mialib_audit import power\n", "mialib.scoring -> mialib_audit"),
    ("mialib_audit/power", "from replication import figures\n", "mialib_audit.power -> replication"),
    ("mialib/text", "from mialib import benchmarks\n", "mialib.text is not allowed to import mialib.benchmarks"),
    (
        "mialib/catalog/hub",
        "from mialib.passes import inputs\n",
        "mialib.catalog is not allowed to import mialib.passes",
    ),
    ("replication/builders/fetch", "from replication import tables\n", "replication.builders is not allowed to import"),
]


def test_forbidden_imports_and_a_file_without_a_floor_are_caught(tmp_path):
    for package in FOLDERS.values():
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line, _ in OFFENCES:
        with (tmp_path / f"{module}.py").open("a") as file:
            file.write(line)
    code, said = check_contracts(tmp_path)
    assert code == 1 and [offence for *_, offence in OFFENCES if offence not in said] == [], said
    (tmp_path / "mialib" / "unplaced.py").write_text("")
    code, said = check_contracts(tmp_path)
    assert code == 1 and "not listed as layers: - mialib.unplaced" in said, said
