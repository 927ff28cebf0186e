"""What pyproject.toml can't say: a clone's `data/` is a wheel's `replication/data/`."""

from tempfile import TemporaryDirectory

from setuptools import find_packages, setup

folder = TemporaryDirectory()
setup(
    packages=[*find_packages(include=["replication", "replication.*"]), "replication.data"],
    package_dir={"replication.data": "../data"},
    options={"build": {"build_base": folder.name}},
)
