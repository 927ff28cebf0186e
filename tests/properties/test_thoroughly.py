"""The same properties once more, each held against many cases: those of the profile `thorough` (tests/conftest.py)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = 2_000


@pytest.mark.slow
def test_the_properties_hold_in_two_thousand_cases():
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    thorough = ["--hypothesis-profile=thorough", "--hypothesis-show-statistics"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *thorough, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == 0, done.stdout
    assert sum(map(int, re.findall(r"(\d+) passing,", done.stdout))) >= CASES, done.stdout
