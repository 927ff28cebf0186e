"""How long a build takes on this machine, from the processor seconds of its jobs on ours: `data/durations.json`."""

import json
import time
from collections.abc import Iterable

import numpy as np
from threadpoolctl import threadpool_limits

from mialib.progress import in_words
from replication import BOOK_DATA

DURATIONS = json.loads((BOOK_DATA / "durations.json").read_text(encoding="utf-8"))


def durations(profile: str) -> dict[str, float]:
    """Processor seconds of a profile's jobs on our machine, by their messages."""
    return DURATIONS["jobs"].get(profile, {})


def calibrate() -> float:
    """Seconds that a loop of Python and products of matrices take on this machine, as busy as it is now: about one."""
    began, matrix = time.perf_counter(), np.ones((512, 512), np.float32)
    sum(i * i % 7 for i in range(6_000_000))
    with threadpool_limits(1):  # as a job
        for _ in range(120):
            matrix @ matrix
    return time.perf_counter() - began


def describe_time(profile: str, jobs: Iterable[str], cores: int) -> str:
    """How long jobs take on this machine, by their messages, in words; a job that was not timed counts nothing."""
    timed, jobs, name = durations(profile), list(jobs), DURATIONS["timed_with"].get(profile)
    seconds, factor = [timed[job] for job in jobs if job in timed], calibrate() / DURATIONS["calibration"]
    wall = max(sum(seconds) / cores, max(seconds, default=0)) * factor
    model = f" (with {name} alone; larger models take longer)" if name else ""
    left_out = f"; jobs never timed, not counted: {n}" if (n := len(jobs) - len(seconds)) else ""
    return (
        f"About {in_words(wall)} on {cores} of this machine's cores: {sum(seconds):,.0f} processor seconds where the "
        f"jobs were timed{model}, and a calibration took {factor:.1f} times as long just now as there{left_out}"
    )
