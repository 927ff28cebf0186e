"""What pyproject.toml can't say: the version is mialib's, and a clone's `data/` is a wheel's `replication/data/`."""

import tomllib
from email.parser import HeaderParser
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

folder = TemporaryDirectory()
info = Path("PKG-INFO")  # in an sdist, which has no clone around it, and `data/` of its own
if info.is_file():
    version = HeaderParser().parsestr(info.read_text(encoding="utf-8"))["Version"]
else:
    version = tomllib.loads(Path("../pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


class SdistWithData(sdist):
    """Puts the clone's `data/` into the archive."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Called by setuptools, whose `files` of the package of data are in `../data`."""
        data = [file for file in files if Path(file).parts[:2] == ("..", "data")]
        super().make_release_tree(base_dir, [file for file in files if file not in data])
        for file in data:
            place = Path(base_dir, *Path(file).parts[1:])
            place.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(file, str(place))


setup(
    version=version,
    packages=[*find_packages(include=["replication", "replication.*"]), "replication.data"],
    package_dir={"replication.data": "data" if info.is_file() else "../data"},
    options={"build": {"build_base": folder.name}},
    cmdclass={"sdist": SdistWithData},
)
