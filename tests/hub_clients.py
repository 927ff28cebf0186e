"""A user of the hub on localhost: the command line in a fresh process, or the libraries of this one, pointed at it."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import yaml
from clones import python_path

from mialib.catalog import hub as mialib_hub
from mialib.catalog.models import unload

CHILD = """
import json, os, sys, tempfile, time, traceback
from pathlib import Path

commands, pins = json.loads(sys.argv[1])
import mialib.catalog.hub
from mialib.commands import main

mialib.catalog.hub.PINS = Path(pins)
real = os.dup(1), os.dup(2)
told = []
for command in commands:
    files = [tempfile.TemporaryFile() for _ in range(2)]
    for at, file in enumerate(files, start=1):
        os.dup2(file.fileno(), at)
    start, code, sys.argv = time.perf_counter(), 0, ["mialib", *command]
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        code = 70
        traceback.print_exc()
    sys.stdout.flush(), sys.stderr.flush()
    seconds = time.perf_counter() - start
    for at, saved in enumerate(real, start=1):
        os.dup2(saved, at)
    [file.seek(0) for file in files]
    told.append([code, *(file.read().decode() for file in files), seconds])
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Told:
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def sentence(self):
        """The only line on stderr but progress bars, of a command that failed as it should."""
        lines = [line for line in self.err.splitlines(keepends=True) if line.strip() and "text/s" not in line]
        assert self.code == 1 and len(lines) == 1 and lines[0].startswith("mialib: "), self
        return lines[0].removeprefix("mialib: ").strip()


def run_mialib(endpoint, home, *commands, **environ):
    """What each of these command lines (a list of words each) does, in one fresh process, whose imports they share.

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
    words = json.dumps([[list(map(str, command)) for command in commands], str(home / "revisions.yml")])
    child = [sys.executable, "-c", CHILD, words]
    done = subprocess.run(child, env=environ, cwd=home, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [Told(*told) for told in json.loads(done.stdout.splitlines()[-1])]


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
