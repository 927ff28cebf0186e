"""`mialib lock`: pin the commit of each model and data set of the hub in data/revisions.yml."""

from collections.abc import Mapping, Sequence

import yaml

from mialib.catalog.hub import PINS, Kind, Revisions, Unavailable, ask_hub, read_revisions, why_unreachable
from mialib.store import atomic_path


def pin(names: Mapping[Kind, Sequence[str]]) -> tuple[Revisions, list[str]]:
    """Pin the commit of each repository's `main`; returns all pins, and why others could not be had.

    A repository that can't be had keeps its pin. Unavailable where the hub can't be asked.
    """
    if why := why_unreachable():
        raise Unavailable(f"the commits of models and data sets can't be pinned, since the hub {why}")
    pins, problems = read_revisions(PINS), []
    for kind, repositories in names.items():
        for name in repositories:
            try:
                pins.setdefault(kind, {})[name] = ask_hub(name, kind, expand=["sha"]).sha
            except Unavailable as error:
                problems.append(str(error))
    if pins:
        with atomic_path(PINS) as temporary:
            header = "# The commit that each hub name stands for, written by `mialib lock`.\n"
            temporary.write_text(header + yaml.safe_dump(pins), encoding="utf-8")
    return pins, problems
