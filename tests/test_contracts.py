"""The floors of the house import only what lies below them: the contracts of pyproject.toml, and that they hold."""

import os
import shutil
import subprocess
import sys

import pytest

from mialib.store import PACKAGE, ROOT

CHECK = "from importlinter.cli import lint_imports_command as check; check(['--no-cache'])"


def check_contracts(root):
    """How the contracts of a tree end, and what is said of them."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package and its contracts."""
    root = tmp_path_factory.mktemp("house")
    shutil.copytree(PACKAGE, root / "mialib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def test_every_arrow_points_downward():
    code, said = check_contracts(ROOT)
    assert code == 0 and "1 kept, 0 broken" in said, said


@pytest.mark.parametrize(
    ("module", "line", "offence"),
    [
        (
            "scoring",
            "def f():\n    from mialib.book import figures\n",
            "mialib.scoring is not allowed to import mialib.book",
        ),
        ("text", "from mialib import benchmarks\n", "mialib.text is not allowed to import mialib.benchmarks"),
        (
            "catalog/hub",
            "from mialib.passes.inputs import Target\n",
            "mialib.catalog is not allowed to import mialib.passes",
        ),
        ("builders/fetch", "from mialib.book import tables\n", "mialib.builders is not allowed to import mialib.book"),
        ("unplaced", "", "not listed as layers: - mialib.unplaced"),
    ],
)
def test_a_forbidden_import_is_caught(copy, module, line, offence):
    path = copy / "mialib" / f"{module}.py"
    before = path.read_text() if path.is_file() else None
    path.write_text((before or "") + line)
    try:
        code, said = check_contracts(copy)
    finally:
        path.write_text(before) if before is not None else path.unlink()
    assert code == 1 and offence in " ".join(said.split()), said
