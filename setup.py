"""What pyproject.toml can't say: a clone's `data/` is a wheel's `mialib/data/`, and `build/` is not for setuptools.

Where the repository's address is known, as in its workflow, the README of the package index has links that lead there.
"""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import find_packages, setup

readme = Path("README.md").read_text(encoding="utf-8")
if repository := os.environ.get("GITHUB_REPOSITORY"):
    for link, kind in ((r"(!\[[^]]*\]\()", "raw"), (r"(\[[^]]*\]\()", "blob")):
        readme = re.sub(rf"{link}(?!https?:)", rf"\1https://github.com/{repository}/{kind}/HEAD/", readme)
folder = TemporaryDirectory()  # in build/, where mialib keeps what it computes, files of older wheels would stay
setup(
    long_description=readme,
    long_description_content_type="text/markdown",
    packages=[*find_packages(include=["mialib", "mialib.*"]), "mialib.data"],
    package_dir={"mialib.data": "data"},
    options={"build": {"build_base": folder.name}},
)
