"""`mialib build` and `mialib lab build`: how many cores there are, and Snakemake's command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from replication.pipeline.notebooks import clone
from replication.profile import load_profile

OPTIONS = ["--rerun-incomplete", "--show-failed-logs", "--quiet", "reason", "host", "--scheduler", "greedy"]
OPTIONS += ["--resources", "gpu=1", "--max-checksum-file-size", "0"]


def build(page: str, profile: str, only: str, cores: int, others: Sequence[str]) -> None:
    """Become Snakemake, which builds the book or one page of it and says how far it is; `others` are its own options.

    ValueError for a page that the profile lacks.
    """
    root = clone()
    pages = load_profile(root / "data" / "profiles" / f"{profile}.yml").notebooks
    if page and page not in pages:
        alike = get_close_matches(page, pages, n=3, cutoff=0.4)
        said = f"did you mean {' or '.join(alike)}?" if alike else f"it has: {', '.join(pages)}"
        raise ValueError(f"profile {profile} has no page {page!r} that a notebook makes; {said}")
    config = ["--config", f"profile={profile}", f"only={only}", f"page={page}"]
    os.chdir(root)
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores or n_cores()), *OPTIONS, *config, *others]
    os.execv(sys.executable, command)


def n_cores() -> int:
    """The cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
