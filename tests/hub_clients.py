"""A user of the hub on localhost: the command line in a fresh process, or the libraries of this one, pointed at it."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass

import yaml
from clones import python_path

from mialib.catalog import hub as mialib_hub
from mialib.catalog.loading import unload

CHILD = """
import sys
from pathlib import Path

import mialib.catalog.hub
from mialib.commands import main

mialib.catalog.hub.PINS = Path(sys.argv.pop(1))
main()
"""


@dataclass(frozen=True)
class Told:
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str
    seconds: float


def run_mialib(endpoint, home, *commands, **environ):
    """What each of these command lines (a list of words each) does in a fresh process.

    `home` holds the hub's cache (hf), what mialib keeps (mialib) and the pins (revisions.yml).
    """
    home.mkdir(exist_ok=True, parents=True)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": python_path(),
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "MIALIB_HOME": str(home / "mialib"),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # datasets would count its downloads at another host
        "NO_PROXY": "127.0.0.1,localhost",
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
    } | {name: str(value) for name, value in environ.items()}
    told = []
    for command in commands:
        words = [sys.executable, "-c", CHILD, str(home / "revisions.yml"), *map(str, command)]
        start = time.perf_counter()
        done = subprocess.run(words, env=environ, cwd=home, capture_output=True, text=True, timeout=300)
        told.append(Told(done.returncode, done.stdout, done.stderr, time.perf_counter() - start))
    return told


def pin(revisions):
    """Write {kind: {name: commit}} into the file of pins."""
    mialib_hub.PINS.parent.mkdir(parents=True, exist_ok=True)
    mialib_hub.PINS.write_text(yaml.safe_dump(revisions))


def forget_the_hub():
    """Have this process ask again whether the hub can be reached, and for its commits."""
    for function in (mialib_hub.why_unreachable, mialib_hub._go_offline, mialib_hub._commit_on_hub):
        function.cache_clear()


@contextmanager
def pointed_at(monkeypatch, endpoint, cache, *, offline=False):
    """Until the block ends the Hugging Face libraries and mialib know this hub and this cache alone.

    The libraries read their settings once, when they are imported, and each keeps copies: all are replaced.
    """
    import datasets
    from huggingface_hub import constants, hf_api
    from transformers.utils import hub as hub_of_transformers

    with monkeypatch.context() as patch:
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        patch.setenv("HF_TOKEN_PATH", str(cache / "token"))
        patch.setattr(constants, "ENDPOINT", endpoint)
        patch.setattr(hf_api.api, "endpoint", endpoint)
        patch.setattr(hub_of_transformers, "_hf_api", None)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(constants, "HF_HUB_OFFLINE", offline)
        patch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
        patch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
        patch.setattr(datasets.config, "HF_ENDPOINT", endpoint)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", offline)
        patch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache / "datasets")
        patch.setattr(mialib_hub, "PINS", cache / "revisions.yml")
        forget_the_hub()
        unload()  # a model of another hub's, maybe of the same name and commit
        try:
            yield
        finally:
            forget_the_hub()
