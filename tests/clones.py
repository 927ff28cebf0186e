"""Processes that run a clone's own code."""

import os

from mialib.store import ROOT


def python_path(clone=ROOT):
    """The PYTHONPATH on which a clone's three packages come before the installed ones."""
    return os.pathsep.join(str(clone / folder) for folder in ("", "audit", "book"))
