"""What pyproject.toml can't say: the version is mialib's."""

import tomllib
from email.parser import HeaderParser
from pathlib import Path

from setuptools import setup

info = Path("PKG-INFO")  # in an sdist, which has no clone around it
if info.is_file():
    version = HeaderParser().parsestr(info.read_text(encoding="utf-8"))["Version"]
else:
    version = tomllib.loads(Path("../pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
setup(version=version)
