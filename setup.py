"""What pyproject.toml can't say: a clone's `data/` is a wheel's `mialib/data/`, and `build/` is not for setuptools."""

from tempfile import TemporaryDirectory

from setuptools import find_packages, setup

folder = TemporaryDirectory()  # in build/, where mialib keeps what it computes, files of older wheels would stay
setup(
    packages=[*find_packages(include=["mialib", "mialib.*"]), "mialib.data"],
    package_dir={"mialib.data": "data"},
    options={"build": {"build_base": folder.name}},
)
