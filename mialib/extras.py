"""Packages that only some models, texts or benchmarks need: extras of `mialib`, named where one is missing."""

from importlib import import_module
from typing import Any

EXTRAS = {  # package: the extra that brings it
    "datasets": "benchmarks",
    "gguf": "gguf",
    "jieba": "chinese",
    "peft": "peft",
    "sentencepiece": "sentencepiece",
    "google.protobuf": "sentencepiece",
    "wordfreq": "wordfreq",
}


def require(package: str, what: str) -> Any:
    """Import a package of an extra; ModuleNotFoundError says what to install for `what`."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name not in (package, package.partition(".")[0]):  # it lacks a package itself
            raise
        raise ModuleNotFoundError(
            f"{what}: this needs the package {package}: pip install 'mialib[{EXTRAS[package]}]'", name=package
        ) from None
