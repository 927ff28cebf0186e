"""The Hugging Face hub: which commit a name stands for, and errors of its libraries as one sentence.

A repository is named `org/name`, or `org/name@revision` for a branch, a tag or a commit of it. Without a revision the
commit is the one that `data/revisions.yml` pins, else that of the hub's `main`.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from mialib.shared.schema import read_yaml
from mialib.store import DATA, folder_of

logger = logging.getLogger(__name__)

Kind = Literal["model", "dataset"]
Revisions = dict[Kind, dict[str, Annotated[str, Field(pattern="^[0-9a-f]{40}$")]]]  # commits, by kind and name

PINS = DATA / "revisions.yml"
PATHS = ("/", ".", "~")  # how names of folders begin, and none on the hub
TIMEOUT_SECONDS, REACHED_SECONDS = 5, 3
LOCAL_FOLDERS = {"model": "MIALIB_MODELS", "dataset": "MIALIB_BENCHMARKS"}  # they hold copies as org/name


class Unavailable(OSError):
    """A model or data set can't be loaded or run here; the message says in one sentence what to do."""


def split_name(name: str) -> tuple[str, str | None]:
    """Split a hub name into repository and revision; None for none."""
    repository, _, revision = name.partition("@")
    return repository, revision or None


def local_copy(path: str, kind: Kind) -> Path | None:
    """Where a copy of a repository or file is, under $MIALIB_MODELS or $MIALIB_BENCHMARKS; None where there is none."""
    folder = folder_of(LOCAL_FOLDERS[kind])
    return copy if folder and (copy := folder / path).exists() else None


@cache
def why_unreachable() -> str:
    """The reason why the hub can't be asked, or ""."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "is not asked (HF_HUB_OFFLINE is set)"
    try:
        get_session().head(constants.ENDPOINT, timeout=REACHED_SECONDS)
    except Exception as error:  # of the HTTP client that the hub's library brings
        return f"can't be reached ({constants.ENDPOINT}: {error})"
    return ""


@cache
def _go_offline(why: str) -> None:
    """Put the hub's libraries into offline mode for the rest of the process."""
    from huggingface_hub import constants

    logger.warning("the hub %s; its cache is used", why)
    constants.HF_HUB_OFFLINE = True
    if "datasets" in sys.modules:  # it keeps a copy of the setting
        sys.modules["datasets"].config.HF_HUB_OFFLINE = True


def find_revision(name: str, kind: Kind) -> str:
    """Find the commit that a hub name stands for, 40 hex digits; Unavailable where that fails.

    Where the hub is unreachable the commit is that in its cache, and its libraries go into offline mode.
    """
    if name.startswith(PATHS):
        raise explain(name, kind, FileNotFoundError())
    commit, why = pinned_commit(name, kind), why_unreachable()
    if not why:
        return commit or _commit_on_hub(name, kind)
    commit = commit or _cached_commit(name, kind)
    _go_offline(why)
    return commit


def pinned_commit(name: str, kind: Kind) -> str | None:
    """The commit that `data/revisions.yml` pins for a name; None where it has none."""
    return read_revisions(PINS).get(kind, {}).get(name)


@cache  # one commit a process: `main` may move meanwhile
def _commit_on_hub(name: str, kind: Kind) -> str:
    return ask_hub(name, kind, expand=["sha"]).sha


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
    """{kind: {name: commit}}; empty where the file is not there. ValueError for a value that is no commit."""
    return read_yaml(path, Revisions, "; a commit is 40 hex digits in quotes", empty={}) if path.is_file() else {}


def _cache_of(name: str, kind: Kind) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=split_name(name)[0], repo_type=kind)


def cached_snapshots(name: str, kind: Kind) -> list[Path]:
    """The folder of each commit of a repository that the hub's cache holds, or holds in part."""
    return sorted(_cache_of(name, kind).glob("snapshots/*"))


def _cached_commit(name: str, kind: Kind) -> str:
    """The commit that the hub's cache holds of a name: the branch's or tag's that was fetched, or the only one."""
    revision, folder = split_name(name)[1], _cache_of(name, kind)
    commits = [path.name for path in cached_snapshots(name, kind)]
    if revision in commits:
        return str(revision)
    if (reference := folder / "refs" / (revision or "main")).is_file():
        return reference.read_text().strip()
    if revision or not commits:
        raise explain(name, kind, ConnectionError())
    if len(commits) > 1:
        listed = f"{folder} holds {len(commits)} commits ({', '.join(commits)})"
        raise Unavailable(f"{listed}, and the hub can't be asked which is `main`; name one as {name}@COMMIT")
    return commits[0]


def explain(name: str, kind: Kind, error: BaseException) -> Unavailable:
    """Turn an error of the hub's libraries into one sentence: what is missing, why, and what to do."""
    from huggingface_hub import errors as hub

    if isinstance(error, Unavailable):
        return error
    causes = [error]  # and what led to it, also where a library meant to hide that
    while earlier := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(earlier)
    kinds = tuple(map(type, causes))
    copy = f"put a copy into the folder {name} under ${LOCAL_FOLDERS[kind]}"
    if hub.GatedRepoError in kinds or "is a gated dataset" in str(error):  # `datasets` hides the cause
        why = f"is gated: ask for access on its page and set HF_TOKEN to your token, or {copy}"
    elif hub.RevisionNotFoundError in kinds:
        why = "has no such revision on the hub; correct the name, or its pin in data/revisions.yml"
    elif name.startswith(PATHS) or {hub.RepositoryNotFoundError, hub.HFValidationError} & {*kinds}:
        why = "is neither a folder or file here nor on the Hugging Face hub; a private repository needs HF_TOKEN"
    elif reason := why_unreachable():
        at = f" at commit {commit} (of {PINS})" if (commit := pinned_commit(name, kind)) else ""
        why = f"is not in the Hugging Face cache{at}, and the hub {reason}; {copy}"
    else:  # where a download broke off, the libraries' own message blames the name
        connection = [c for c in causes if isinstance(c, OSError) or type(c).__module__.startswith("http")]
        cause = (connection or [error])[-1]
        said = f"{type(cause).__name__}: {(str(cause).splitlines() or ['no message'])[0]}"
        why = f"could not be loaded ({said}); run again, pin another commit, or {copy}"
    return Unavailable(f"{'model' if kind == 'model' else 'data set'} {name!r} {why}")
