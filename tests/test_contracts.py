"""What `make lint` checks holds: the style, the types, and that each floor of the house imports only from below it."""

import os
import subprocess
import sys

import pytest
from clones import python_path

from mialib.store import ROOT

CHECK = "from importlinter.cli import lint_imports_command as check; check(['--no-cache'])"


@pytest.mark.slow
def test_the_types_are_right():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_the_style_is_right(command):
    done = subprocess.run([sys.executable, "-m", "ruff", *command, "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_arrow_points_downward():
    environ = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=ROOT, env=environ, capture_output=True, text=True)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0 and "5 kept, 0 broken" in said, said
