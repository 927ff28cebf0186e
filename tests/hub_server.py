"""A Hugging Face hub on localhost, for tests: folders of models and data sets, served as huggingface_hub asks for them.

Point a fresh process at it with HF_ENDPOINT (the libraries read that once, when they are imported) and give it an empty
HF_HOME. This is the reading part of the hub's protocol: the start page, what a repository is, its file list, its files.
As on the hub, `resolve` sends small files itself and redirects to another host for big ones (here the same server under
the name `localhost`): their size and hash come with the redirect, and no token may reach that host. xet, uploads,
accounts and the data set viewer are missing. Files are read anew at each request, but a commit stays what it was.

Written for huggingface_hub 2.4, transformers 5.23 and datasets 5.2.
"""

import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_of_a_user_with_access"  # any other token is of a user without
BIG_SUFFIXES = (".safetensors", ".bin", ".parquet")  # what the hub keeps outside git, in LFS
BRANCH = "main"


class Request(NamedTuple):
    """One request as the server saw it."""

    method: str
    path: str  # with the query, as sent


class Answer(NamedTuple):
    """What to send; for HEAD, the body only counts."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class Repo(NamedTuple):
    """One folder under its hub name."""

    kind: str  # "models" or "datasets"
    name: str  # "owner/name"
    folder: Path
    commit: str  # 40 hexadecimal digits, made of the content
    revisions: set[str]  # every name of that commit

    def files(self):
        """The files by their path in the repository."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in paths}


class Hub(NamedTuple):
    """A running hub."""

    endpoint: str
    repos: dict[tuple[str, str], Repo]
    gated: set[str]
    requests: list[Request]
    close: Any  # a function: from now on connections are refused

    def commit(self, name):
        """The commit of a model or data set."""
        [commit] = [repo.commit for repo in self.repos.values() if repo.name == name]
        return commit

    def asked(self, part, method="GET"):
        """The requests whose path contains `part`."""
        return [request for request in self.requests if part in request.path and request.method == method]


@contextmanager
def serve_hub(*, models=None, datasets=None, revisions=None, gated=()):
    """Serve folders as models and data sets of these names ("owner/name") until the block ends.

    Each has one commit, under `main`, its hash, and the names that `revisions` gives it besides. A `gated` one keeps
    its files (not its file list) from all but `TOKEN`.
    """
    repos = {
        (kind, name): make_repo(kind, name, Path(folder), (revisions or {}).get(name, ()))
        for kind, folders in (("models", models), ("datasets", datasets))
        for name, folder in (folders or {}).items()
    }

    class Handler(BaseHTTPRequestHandler):  # HTTP/1.0: no connection outlives its answer, nor the server
        def do_GET(self):
            headers = {name.lower(): value for name, value in self.headers.items()}
            hub.requests.append(Request(self.command, self.path))
            answer = answer_to(hub, self.path, headers, self.rfile.read(int(headers.get("content-length", 0))))
            self.send_response(answer.status)
            for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def close():
        server.shutdown()
        server.server_close()

    hub = Hub(f"http://127.0.0.1:{server.server_port}", repos, set(gated), [], close)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield hub
    finally:
        close()


def make_repo(kind, name, folder, revisions):
    content = hashlib.sha1(f"{kind}/{name}".encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return Repo(kind, name, folder, content.hexdigest(), {BRANCH, content.hexdigest(), *revisions})


# Where the parts of a path are: an owner and a name, and behind them a revision, in which a slash is written %2F.
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+|[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.+))?)?")
FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/(resolve|lfs)/([^/]+)/(.+)")


def answer_to(hub, target, headers, body):
    url = urlsplit(target)
    if url.path == "/":
        return Answer(200, {})
    if match := API.fullmatch(url.path):
        kind, name, what, revision, path = match.groups()
    elif match := FILE.fullmatch(url.path):
        prefix, name, what, revision, path = match.groups()
        kind = "datasets" if prefix else "models"
    else:
        return error(404, None, "Sorry, we can't find the page you are looking for.")
    revision, path = unquote(revision or BRANCH), unquote(path or "")
    repo = hub.repos.get((kind, name))
    if repo is None:
        # The hub does not tell strangers which names exist. It sends them no code either, but huggingface_hub takes
        # that for a missing repository only at an https address.
        return error(404 if "authorization" in headers else 401, "RepoNotFound", "Invalid username or password.")
    if revision not in repo.revisions:
        return error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    if what in (None, "revision"):
        return as_json(description(repo, name in hub.gated, with_sizes="blobs" in parse_qs(url.query)))
    if what == "tree":
        return tree(repo, path, recursive=parse_qs(url.query).get("recursive") == ["true"])
    if what == "paths-info":
        wanted = parse_qs(body.decode()).get("paths", [])
        return as_json([entry for entry in entries(repo) if entry["path"] in wanted])
    if what == "resolve":
        return resolve(hub, repo, path, headers)
    return part_of_file(repo.files()[path].read_bytes(), headers)


def resolve(hub, repo, path, headers):
    """A file, or where to get it."""
    commit, token = {"X-Repo-Commit": repo.commit}, headers.get("authorization")
    if repo.name in hub.gated and token != f"Bearer {TOKEN}":
        message = f"Access to {repo.kind.removesuffix('s')} {repo.name} is restricted"
        return error(403 if token else 401, "GatedRepo", message)  # the code is what huggingface_hub goes by
    if path not in repo.files():
        return error(404, "EntryNotFound", "Entry not found", commit)
    data = repo.files()[path].read_bytes()
    if not path.endswith(BIG_SUFFIXES):
        answer = part_of_file(data, headers)
        return answer._replace(headers=answer.headers | commit | {"ETag": f'"{git_hash(data)}"'})
    prefix = "datasets/" if repo.kind == "datasets" else ""
    place = f"{hub.endpoint.replace('127.0.0.1', 'localhost')}/{prefix}{repo.name}/lfs/{repo.commit}/{path}"
    linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
    return Answer(302, commit | linked | {"Location": place})


def part_of_file(data, headers):
    """The whole file, or what a Range header asks for of it."""
    kind = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
    if "range" not in headers:
        return Answer(200, kind, data)
    first, _, last = headers["range"].removeprefix("bytes=").partition("-")
    part = data[int(first) : int(last) + 1 if last else None]
    if not part:
        return Answer(416, {"Content-Range": f"bytes */{len(data)}"})
    return Answer(206, kind | {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"}, part)


def description(repo, is_gated, with_sizes):
    about = {"id": repo.name, "author": repo.name.partition("/")[0], "sha": repo.commit, "private": False}
    about |= {"gated": "auto" if is_gated else False, "disabled": False, "tags": [], "downloads": 0, "likes": 0}
    files = repo.files().items()
    sizes = [{"size": place.stat().st_size} if with_sizes else {} for _, place in files]
    return about | {"siblings": [{"rfilename": path} | size for (path, _), size in zip(files, sizes, strict=True)]}


def tree(repo, folder, recursive):
    inside = [entry for entry in entries(repo) if not folder or entry["path"].startswith(f"{folder}/")]
    if not inside:
        return error(404, "EntryNotFound", f"{folder} does not exist on {BRANCH!r}")
    depth = folder.count("/") + 1 if folder else 0
    return as_json([entry for entry in inside if recursive or entry["path"].count("/") == depth])


def entries(repo):
    """Every file and folder as the hub lists them."""
    listed = []
    for path, place in repo.files().items():
        data = place.read_bytes()
        listed.append({"type": "file", "path": path, "size": len(data), "oid": git_hash(data)})
        if path.endswith(BIG_SUFFIXES):
            listed[-1]["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    folders = {parent.as_posix() for path in repo.files() for parent in PurePosixPath(path).parents} - {"."}
    listed += [{"type": "directory", "path": path, "size": 0, "oid": git_hash(path.encode())} for path in folders]
    return sorted(listed, key=lambda entry: entry["path"])


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def as_json(content):
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())


def error(status, code, message, headers=()):
    answer = as_json({"error": message})
    codes = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
    return Answer(status, answer.headers | codes | dict(headers), answer.body)
