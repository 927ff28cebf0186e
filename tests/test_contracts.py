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


def test_every_arrow_points_downward_and_one_that_does_not_is_caught(tmp_path):
    code, said = check_contracts(ROOT)
    assert code == 0 and "5 kept, 0 broken" in said, said
    for package in FOLDERS.values():
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in {
        "mialib/text": "from mialib import benchmarks",
        "mialib_audit/power": "import replication",
    }.items():
        with (tmp_path / f"{module}.py").open("a") as file:
            file.write(line)
    code, said = check_contracts(tmp_path)
    assert code == 1 and "3 kept, 2 broken" in said, said
    assert "mialib.text is not allowed to import mialib.benchmarks" in said
    assert "mialib_audit is not allowed to import replication" in said
