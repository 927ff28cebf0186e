"""A Hugging Face hub on localhost, for tests: folders of models and data sets, served as huggingface_hub asks for them.

Point a fresh process at it with HF_ENDPOINT (the libraries read that once, when they are imported) and give it an empty
HF_HOME. This is the reading part of the hub's protocol: the start page, what a repository is, its file list, its files.
As on the hub, `resolve` sends small files itself and redirects to another host for big ones (here the same server under
the name `localhost`): their size and hash come with the redirect, and no token may reach that host. xet, uploads,
accounts and the data set viewer are missing. Files are read anew at each request, but a commit stays what it was.

Written for huggingface_hub 2.4, transformers 5.23 and datasets 5.2.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_of_a_user_with_access"  # any other token is of a user without
BIG_SUFFIXES = (".safetensors", ".bin", ".parquet")  # what the hub keeps outside git, in LFS
BRANCH = "main"

# The hub's own words and codes: huggingface_hub makes its exceptions of X-Error-Code.
GATED_UNKNOWN_USER = "Access to {} is restricted. You must have access to it and be authenticated to access it."
GATED_KNOWN_USER = "Access to {} is restricted and you are not in the authorized list."


@dataclass(frozen=True)
class Request:
    """One request as the server saw it."""

    method: str
    path: str  # with the query, as sent
    headers: Mapping[str, str]  # names in lower case


@dataclass(frozen=True)
class Answer:
    """What to send; for HEAD, the body only counts."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Repo:
    """One folder under its hub name."""

    kind: str  # "models" or "datasets"
    name: str  # "owner/name"
    folder: Path
    commit: str  # 40 hexadecimal digits, made of the content
    revisions: frozenset[str]  # every name of that commit

    def files(self) -> dict[str, Path]:
        """The files by their path in the repository."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in paths}


@dataclass(frozen=True)
class Hub:
    """A running hub."""

    endpoint: str
    repos: Mapping[tuple[str, str], Repo]
    gated: set[str]
    requests: list[Request]
    close: Callable[[], None]  # from now on connections are refused

    def commit(self, name: str) -> str:
        """The commit of a model or data set."""
        [commit] = [repo.commit for repo in self.repos.values() if repo.name == name]
        return commit

    def asked(self, part: str, method: str = "GET") -> list[Request]:
        """The requests whose path contains `part`."""
        return [request for request in self.requests if part in request.path and request.method == method]


@contextmanager
def serve_hub(
    *,
    models: Mapping[str, str | Path] | None = None,
    datasets: Mapping[str, str | Path] | None = None,
    revisions: Mapping[str, Collection[str]] | None = None,
    gated: Collection[str] = (),
) -> Iterator[Hub]:
    """Serve folders as models and data sets of these names ("owner/name") until the block ends.

    Each has one commit, under `main`, its hash, and the names that `revisions` gives it besides. A `gated` one keeps
    its files (not its file list) from all but `TOKEN`.
    """
    repos = {
        (kind, name): _repo(kind, name, Path(folder), (revisions or {}).get(name, ()))
        for kind, folders in (("models", models), ("datasets", datasets))
        for name, folder in (folders or {}).items()
    }
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):  # HTTP/1.0: no connection outlives its answer, nor the server
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            answer = _answer(hub, self.path, headers, body)
            with lock:
                hub.requests.append(Request(self.command, self.path, headers))
            self.send_response(answer.status)
            for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def close() -> None:
        server.shutdown()
        server.server_close()

    endpoint = f"http://127.0.0.1:{server.server_port}"
    hub = Hub(endpoint, repos, set(gated), [], close)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield hub
    finally:
        close()


def _repo(kind: str, name: str, folder: Path, revisions: Collection[str]) -> Repo:
    content = hashlib.sha1(f"{kind}/{name}".encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    commit = content.hexdigest()
    return Repo(kind, name, folder, commit, frozenset({BRANCH, commit, *revisions}))


# Where the parts of a path are: an owner and a name, and behind them a revision, in which a slash is written %2F.
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+|[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.+))?)?")
FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/(resolve|lfs)/([^/]+)/(.+)")


def _answer(hub: Hub, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
    url = urlsplit(target)
    if url.path == "/":
        return Answer(200)
    if match := API.fullmatch(url.path):
        kind, name, what, revision, path = match.groups()
    elif match := FILE.fullmatch(url.path):
        prefix, name, what, revision, path = match.groups()
        kind = "datasets" if prefix else "models"
    else:
        return _error(404, None, "Sorry, we can't find the page you are looking for.")
    revision, path = unquote(revision or BRANCH), unquote(path or "")
    repo = hub.repos.get((kind, name))
    if repo is None:
        # The hub does not tell strangers which names exist. It sends them no code either, but huggingface_hub takes
        # that for a missing repository only at an https address.
        known = "authorization" in headers
        return _error(404 if known else 401, "RepoNotFound", "Invalid username or password.")
    if revision not in repo.revisions:
        return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    if what in (None, "revision"):
        return _json(_description(repo, name in hub.gated, with_sizes="blobs" in parse_qs(url.query)))
    if what == "tree":
        return _tree(repo, path, recursive=parse_qs(url.query).get("recursive") == ["true"])
    if what == "paths-info":
        wanted = parse_qs(body.decode()).get("paths", [])
        return _json([entry for entry in _entries(repo) if entry["path"] in wanted])
    if what == "resolve":
        return _resolve(hub, repo, path, headers)
    return _part_of_file(repo.files()[path].read_bytes(), headers.get("range"))


def _resolve(hub: Hub, repo: Repo, path: str, headers: Mapping[str, str]) -> Answer:
    """A file, or where to get it."""
    commit = {"X-Repo-Commit": repo.commit}
    token = headers.get("authorization")
    if repo.name in hub.gated and token != f"Bearer {TOKEN}":
        sentence = GATED_KNOWN_USER if token else GATED_UNKNOWN_USER
        what = f"{repo.kind.removesuffix('s')} {repo.name}"
        return _error(403 if token else 401, "GatedRepo", sentence.format(what))
    if path not in repo.files():
        return _error(404, "EntryNotFound", "Entry not found", commit)
    data = repo.files()[path].read_bytes()
    if not path.endswith(BIG_SUFFIXES):
        answer = _part_of_file(data, headers.get("range"))
        return Answer(answer.status, answer.headers | commit | {"ETag": f'"{_git_hash(data)}"'}, answer.body)
    prefix = "datasets/" if repo.kind == "datasets" else ""
    place = f"{hub.endpoint.replace('127.0.0.1', 'localhost')}/{prefix}{repo.name}/lfs/{repo.commit}/{path}"
    linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
    return Answer(302, commit | linked | {"Location": place})


def _part_of_file(data: bytes, wanted: str | None) -> Answer:
    """The whole file, or what a Range header asks for of it."""
    headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
    if wanted is None:
        return Answer(200, headers, data)
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start, stop = int(first), int(last) + 1 if last else len(data)
    part = data[start:stop]
    if not part:
        return Answer(416, {"Content-Range": f"bytes */{len(data)}"})
    return Answer(206, headers | {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"}, part)


def _description(repo: Repo, is_gated: bool, with_sizes: bool) -> dict[str, object]:
    files = repo.files().items()
    return {
        "id": repo.name,
        "author": repo.name.partition("/")[0],
        "sha": repo.commit,
        "private": False,
        "gated": "auto" if is_gated else False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "siblings": [
            {"rfilename": path} | ({"size": place.stat().st_size} if with_sizes else {}) for path, place in files
        ],
    }


def _tree(repo: Repo, folder: str, recursive: bool) -> Answer:
    inside = [entry for entry in _entries(repo) if not folder or entry["path"].startswith(f"{folder}/")]
    if not inside:
        return _error(404, "EntryNotFound", f"{folder} does not exist on {BRANCH!r}")
    depth = folder.count("/") + 1 if folder else 0
    return _json([entry for entry in inside if recursive or entry["path"].count("/") == depth])


def _entries(repo: Repo) -> list[dict[str, object]]:
    """Every file and folder as the hub lists them."""
    entries: list[dict[str, object]] = []
    for path, place in repo.files().items():
        data = place.read_bytes()
        entry = {"type": "file", "path": path, "size": len(data), "oid": _git_hash(data)}
        if path.endswith(BIG_SUFFIXES):
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        entries.append(entry)
    folders = {parent.as_posix() for path in repo.files() for parent in PurePosixPath(path).parents} - {"."}
    entries += [{"type": "directory", "path": path, "size": 0, "oid": _git_hash(path.encode())} for path in folders]
    return sorted(entries, key=lambda entry: str(entry["path"]))


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _json(content: object) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())


def _error(status: int, code: str | None, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    answer = _json({"error": message})
    codes = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
    return Answer(status, answer.headers | codes | dict(headers or {}), answer.body)
