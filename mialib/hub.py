"""The Hugging Face hub: whether it can be reached, which revision is meant, and what went wrong, in one sentence.

A repository is named `org/name`, or `org/name@revision` for a branch, a tag or a commit of it. Without one, the commit
is the pinned one (`data/revisions.yml`, which `mialib lock` writes), else the one that `main` was at when this clone
first used it, kept in `build/revisions.yml`. So a number is never made from two states of one model.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from filelock import FileLock

from mialib.store import ROOT, atomic_path, home

logger = logging.getLogger(__name__)

Kind = Literal["model", "dataset"]

PINS = ROOT / "data" / "revisions.yml"
TIMEOUT_SECONDS = 5
REACHED_SECONDS = 3
LOCAL_FOLDERS = {"model": "MIALIB_MODELS", "dataset": "MIALIB_BENCHMARKS"}  # they hold copies as org/name


class Unavailable(OSError):
    """A model or data set that can't be had or does not run here; the message is one sentence and says what to do.

    A profile with `skip_unavailable` goes on without it and says so where its numbers would stand.
    """


def split_name(name: str) -> tuple[str, str | None]:
    """A hub name as repository and revision; None for none."""
    repository, _, revision = name.partition("@")
    return repository, revision or None


def local_copy(path: str, kind: Kind) -> Path | None:
    """Where a copy of a repository or file lies under $MIALIB_MODELS or $MIALIB_BENCHMARKS; None where none does."""
    folder = os.environ.get(LOCAL_FOLDERS[kind])
    copy = Path(folder) / path if folder else None
    return copy if copy and copy.exists() else None


@cache
def work_offline_without_the_hub() -> None:
    """Where the Hugging Face hub can't be reached, look into its cache alone, instead of trying for half a minute."""
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return
    try:
        httpx.head(constants.ENDPOINT, timeout=REACHED_SECONDS)
    except httpx.TransportError as error:
        logger.warning("%s can't be reached (%s); using what is cached of it", constants.ENDPOINT, error)
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:  # it keeps a copy of the setting
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True


def can_be_reached() -> bool:
    """Whether the hub answers, and nobody asked to work without it."""
    from huggingface_hub import constants

    work_offline_without_the_hub()
    return not constants.HF_HUB_OFFLINE


def find_revision(name: str, kind: Kind) -> str:
    """The commit that stands for a hub name, 40 hex digits; Unavailable where none can be found out."""
    pinned = read_revisions(PINS).get(kind, {}).get(name)
    recorded = pinned or read_revisions(_recorded()).get(kind, {}).get(name)
    if recorded:
        return recorded
    if not can_be_reached():
        return _cached_commit(name, kind)
    commit = ask_hub(name, kind).sha
    _record(name, kind, commit)
    return commit


def ask_hub(name: str, kind: Kind, **wanted: Any) -> Any:
    """What the hub's API says of a repository (its commit, files, access); Unavailable in one sentence."""
    from huggingface_hub import HfApi

    repository, revision = split_name(name)
    info = HfApi().model_info if kind == "model" else HfApi().dataset_info
    try:
        return info(repository, revision=revision, timeout=TIMEOUT_SECONDS, **wanted)
    except Exception as error:
        raise explain(name, kind, error) from error


def read_revisions(path: Path) -> dict[str, dict[str, str]]:
    """{kind: {name: commit}}; empty where the file is not there."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}


def write_revisions(path: Path, revisions: dict[str, dict[str, str]], header: str) -> None:
    """Write {kind: {name: commit}}, all or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(header + yaml.safe_dump(revisions), encoding="utf-8")


def lock(names: dict[Kind, Iterable[str]]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Ask the hub for the commit of each repository's `main` and pin it; returns the pins and what could not be had.

    A repository that can't be had keeps the pin that it has.
    """
    pins, lacking = read_revisions(PINS), []
    for kind, of_kind in names.items():
        for name in of_kind:
            try:
                pins.setdefault(kind, {})[name] = ask_hub(name, kind).sha
            except Unavailable as error:
                lacking.append(str(error))
    if pins:
        write_revisions(PINS, pins, "# The commit that stands for each hub name, written by `mialib lock`.\n")
    return pins, lacking


def _recorded() -> Path:
    return home() / "revisions.yml"


def _record(name: str, kind: Kind, commit: str) -> None:
    path = _recorded()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        revisions = read_revisions(path)
        revisions.setdefault(kind, {})[name] = commit
        write_revisions(path, revisions, "# The commit that stood for each hub name when this clone first used it.\n")


def _cached_commit(name: str, kind: Kind) -> str:
    """The commit that the hub's cache holds of a name: by a branch or tag it was fetched under, or the only one."""
    from huggingface_hub import constants

    repository, asked = split_name(name)
    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{repository.replace('/', '--')}"
    commits = [path.name for path in sorted(folder.glob("snapshots/*"))]
    reference = folder / "refs" / (asked or "main")
    if asked in commits:
        return asked
    if reference.is_file():
        return reference.read_text().strip()
    if asked or not commits:
        raise explain(name, kind, ConnectionError())
    if len(commits) > 1:
        raise Unavailable(
            f"{folder} holds {len(commits)} commits, and the hub can't be asked which is meant; pin one of them in "
            f"data/revisions.yml: {', '.join(commits)}"
        )
    return commits[0]


def explain(name: str, kind: Kind, error: BaseException) -> Unavailable:
    """An error of the hub's libraries as one sentence: what was wanted, what is in the way, and what to do."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub

    if isinstance(error, Unavailable):
        return error
    repository, _ = split_name(name)
    thing = {"model": "model", "dataset": "data set"}[kind]
    copy = f"a copy in the folder {repository} under ${LOCAL_FOLDERS[kind]}"
    address = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{repository}"
    causes = list(_causes(error))
    if _has(causes, hub.GatedRepoError):
        return Unavailable(
            f"{thing} {name} is gated: ask for access at {address}, then set HF_TOKEN to a token of that account; "
            f"or give {copy}"
        )
    if _has(causes, hub.RevisionNotFoundError):
        return Unavailable(
            f"{thing} {name} has no such revision on the hub; mend the name or the pin in data/revisions.yml "
            "(`mialib lock` writes it anew)"
        )
    if _has(causes, hub.RepositoryNotFoundError, hub.HFValidationError):
        return Unavailable(
            f"{thing} {name!r} is neither a folder here nor on the Hugging Face hub (or it is private, and HF_TOKEN is "
            f"not its owner's); give {'a file' if kind == 'dataset' else 'a folder'} or another name"
        )
    if constants.HF_HUB_OFFLINE:
        why = "is not asked (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else "can't be reached"
        return Unavailable(
            f"{thing} {name!r} is no folder here and not in the Hugging Face cache, and the hub {why}; "
            f"give a folder instead, or {copy}"
        )
    first = causes[-1]  # the libraries' own messages blame the name where a download broke off
    says = str(first).splitlines()[0] if str(first) else "no message"
    return Unavailable(
        f"{thing} {name} could not be loaded from {address} ({type(first).__name__}: {says}); run again, which keeps "
        f"the files that are whole, or give {copy}"
    )


def _has(causes: Sequence[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in causes)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, also where a library meant to hide that."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
