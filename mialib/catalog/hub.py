"""The Hugging Face hub: whether it can be reached, which revision is meant, and what went wrong, in one sentence.

A repository is named `org/name`, or `org/name@revision` for a branch, a tag or a commit of it. Without a revision, the
commit is the pinned one (`data/revisions.yml`, which `mialib lock` writes), else that of `main` when this clone first
used it (`build/revisions.yml`).
"""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from filelock import FileLock
from pydantic import Field

from mialib.catalog.sources import KINDS
from mialib.shared.schema import read_yaml
from mialib.store import DATA, atomic_path, folder_of, home

logger = logging.getLogger(__name__)

Kind = Literal["model", "dataset"]
Revisions = dict[Kind, dict[str, Annotated[str, Field(pattern="^[0-9a-f]{40}$")]]]  # commits, by kind and name

PINS = DATA / "revisions.yml"
COMMITS_FILE = "revisions.yml"  # under `home`
PATHS = ("/", ".", "~")  # how names of folders begin, and none on the hub
TIMEOUT_SECONDS = 5
REACHED_SECONDS = 3
LOCAL_FOLDERS = {"model": "MIALIB_MODELS", "dataset": "MIALIB_BENCHMARKS"}  # they hold copies as org/name


class Unavailable(OSError):
    """A model or data set that can't be had or does not run here; the message is one sentence and says what to do."""


def split_name(name: str) -> tuple[str, str | None]:
    """A hub name as repository and revision; None for none."""
    repository, _, revision = name.partition("@")
    return repository, revision or None


def local_copy(path: str, kind: Kind) -> Path | None:
    """Where a copy of a repository or file lies under $MIALIB_MODELS or $MIALIB_BENCHMARKS; None where none does."""
    folder = folder_of(LOCAL_FOLDERS[kind])
    return copy if folder and (copy := folder / path).exists() else None


@cache
def why_not_asked() -> str:
    """Why the hub is not asked; "" where it answers. If it does not, its libraries use their caches from now on."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "is not asked (HF_HUB_OFFLINE is set)"
    try:
        get_session().head(constants.ENDPOINT, timeout=REACHED_SECONDS)
    except Exception as error:  # of the library that huggingface_hub asks by
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:  # it keeps a copy of the setting
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True
        return f"can't be reached ({constants.ENDPOINT}: {error})"
    return ""


def find_revision(name: str, kind: Kind) -> str:
    """The commit that stands for a hub name, 40 hex digits; Unavailable where none can be found out."""
    if name.startswith(PATHS):
        raise explain(name, kind, FileNotFoundError())
    why, (commit, _) = why_not_asked(), kept_commit(name, kind)
    if not why:
        return commit or _record(name, kind, ask_hub(name, kind, expand=["sha"]).sha)
    commit = commit or _cached_commit(name, kind)
    if commit in {snapshot.name for snapshot in cached_snapshots(name, kind)}:
        _warn_once(f"the hub {why}; using what is cached of it")
    return commit


def kept_commit(name: str, kind: Kind) -> tuple[str | None, Path | None]:
    """The commit that is pinned or was recorded for a name, and the file that says so; None for none."""
    for path in (PINS, home() / COMMITS_FILE):
        if commit := read_revisions(path).get(kind, {}).get(name):
            return commit, path
    return None, None


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def ask_hub(name: str, kind: Kind, **wanted: Any) -> Any:
    """What the hub's API says of a repository (its commit, files, access); Unavailable in one sentence."""
    from huggingface_hub import HfApi

    repository, revision = split_name(name)
    info = HfApi().model_info if kind == "model" else HfApi().dataset_info
    try:
        return info(repository, revision=revision, timeout=TIMEOUT_SECONDS, **wanted)
    except Exception as error:
        raise explain(name, kind, error) from error


def read_revisions(path: Path) -> Revisions:
    """{kind: {name: commit}}; empty where the file is not there. ValueError names what is no commit in it."""
    if not path.is_file():
        return {}
    return read_yaml(path, Revisions, "; a commit is 40 hex digits in quotes", empty={})


def write_revisions(path: Path, revisions: Revisions, header: str) -> None:
    """Write {kind: {name: commit}}, all or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(header + yaml.safe_dump(revisions), encoding="utf-8")


def lock(names: dict[Kind, Sequence[str]]) -> tuple[Revisions, list[str]]:
    """Pin the commit of each repository's `main`, as the hub says; returns all pins and why others could not be had.

    A repository that can't be had keeps its pin. Unavailable where the hub is not asked at all.
    """
    if why := why_not_asked():
        raise Unavailable(
            f"the commits of {sum(map(len, names.values()))} models and data sets are wanted, and the hub {why}; "
            "copies under $MIALIB_MODELS and $MIALIB_BENCHMARKS need no commit"
        )
    pins, lacking = read_revisions(PINS), []
    for kind, of_kind in names.items():
        for name in of_kind:
            try:
                pins.setdefault(kind, {})[name] = ask_hub(name, kind, expand=["sha"]).sha
            except Unavailable as error:
                lacking.append(str(error))
    if pins:
        write_revisions(PINS, pins, "# The commit that stands for each hub name, written by `mialib lock`.\n")
    return pins, lacking


def _record(name: str, kind: Kind, commit: str) -> str:
    """Keep a commit, and return the one that is kept: another process may have been the first to use the name."""
    path = home() / COMMITS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        revisions = read_revisions(path)
        if name not in revisions.setdefault(kind, {}):
            revisions[kind][name] = commit
            write_revisions(path, revisions, "# The commit of each hub name when this clone first used it.\n")
        return revisions[kind][name]


def _cache_of(name: str, kind: Kind) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=split_name(name)[0], repo_type=kind)


def cached_snapshots(name: str, kind: Kind) -> list[Path]:
    """The folder of each commit that the hub's cache holds of a repository, or a part of."""
    return sorted(_cache_of(name, kind).glob("snapshots/*"))


def _cached_commit(name: str, kind: Kind) -> str:
    """The commit that the hub's cache holds of a name: by a branch or tag it was fetched under, or the only one."""
    asked, folder = split_name(name)[1], _cache_of(name, kind)
    commits = [path.name for path in cached_snapshots(name, kind)]
    if asked in commits:
        return asked
    if (reference := folder / "refs" / (asked or "main")).is_file():
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
    causes = [error]  # and what led to it, also where a library meant to hide that
    while earlier := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(earlier)

    def is_of(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    thing = "model" if kind == "model" else "data set"
    built_in = [known for known in KINDS if "*" not in known] if kind == "model" else []
    meant = "".join(f"; did you mean {near}?" for near in get_close_matches(name, built_in, 1))
    copy = f"a copy in the folder {name} under ${LOCAL_FOLDERS[kind]}"
    address = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{split_name(name)[0]}"
    if name.startswith(PATHS):
        said = f"{name!r}: there is no such folder"
    elif any(isinstance(cause, OSError) and cause.errno == errno.ENOSPC for cause in causes):
        said = f"{name} does not fit on the disk of {constants.HF_HUB_CACHE}; make room"
    elif is_of(hub.GatedRepoError) or "is a gated dataset" in str(error):  # `datasets` hides the cause
        token = f"ask for access at {address}, then set HF_TOKEN to a token of that account"
        said = f"{name} is gated: {token}; or give {copy}"
    elif is_of(hub.RevisionNotFoundError):
        pins = "data/revisions.yml (`mialib lock` writes it anew)"
        said = f"{name} has no such revision on the hub; mend the name or the pin in {pins}"
    elif is_of(hub.RepositoryNotFoundError, hub.HFValidationError):
        said = (
            f"{name!r} is neither a folder here nor on the Hugging Face hub (or it is private, and HF_TOKEN is not its "
            f"owner's); give {'a file' if kind == 'dataset' else 'a folder'} or another name{meant}"
        )
    elif why := why_not_asked():
        commit, path = kept_commit(name, kind)
        state = "not in the Hugging Face cache" + (f" at commit {commit} (of {path})" if commit else "")
        said = f"{name!r} is no folder here and {state}, and the hub {why}; give a folder instead, or {copy}{meant}"
    else:  # where a download broke off, the libraries' own message blames the name
        broken = next((cause for cause in reversed(causes) if _is_of_the_connection(cause)), None)
        first = f"{type(broken or error).__name__}: {(str(broken or error).splitlines() or ['no message'])[0]}"
        do = "run again, which keeps whole files" if broken else "pin an older commit, if the hub's was changed"
        said = f"{name} could not be loaded from {address} ({first}); {do}, or give {copy}"
    return Unavailable(f"{thing} {said}")


def _is_of_the_connection(error: BaseException) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    # The hub's library has an httpx of its own, whose errors are no OSErrors.
    own = type(error).__module__.startswith("http")
    return own or isinstance(error, (ConnectionError, TimeoutError, HfHubHTTPError))
