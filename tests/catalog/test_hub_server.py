"""The hub on localhost serves the libraries themselves, and they fail as at the real one.

The libraries read HF_ENDPOINT and HF_HOME when they are imported, so each group of questions has a process of its own.
What they do where a download breaks or the hub is away is pinned here, since mialib's messages rely on it.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import TOKEN, serve_hub

PYTHIA, GATED, CUT = "EleutherAI/pythia-70m", "owner/gated", "owner/cut"
WIKIMIA, ARXIV, BOTH = "swj0419/WikiMIA", "zhliu/ArxivMIA", "owner/both-configs"
NO_COMMIT = "0" * 40

CHILD = """
import hashlib, json, os, sys
from pathlib import Path

def chain(error):
    names = []
    while error is not None:
        names.append(type(error).__name__)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return list(dict.fromkeys(names))

def weights(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()

def rows(data):
    return {name: rows(split) for name, split in data.items()} if isinstance(data, dict) else list(data["text"])

def commit(data):
    return Path(data.cache_files[0]["filename"]).parent.name

imports, questions = json.loads(sys.argv[1])
exec(imports)
answers = {}
for name, question in questions.items():
    try:
        answers[name] = eval(question)
    except Exception as error:
        answers[name] = {"chain": chain(error), "says": str(error), "is_os_error": isinstance(error, OSError)}
print(json.dumps(answers))
"""
MODELS = """
from huggingface_hub import resolve_revision
from transformers import AutoModelForCausalLM as Model, AutoTokenizer as Tokenizer
"""
DATA = """
from datasets import load_dataset as load
from huggingface_hub import HfApi, hf_hub_download, resolve_revision
"""


def ask(hub, home, imports, questions, **environ):
    """The values of Python expressions in a fresh process that knows this hub alone, or what each raised."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": hub.endpoint,
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # datasets would count its downloads at another host
        "NO_PROXY": "127.0.0.1,localhost",
        "OMP_NUM_THREADS": "1",
    } | environ
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, json.dumps([imports, questions])]
    done = subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def cached(home, name):
    """The names of a repository's files in the hub's cache, without locks and notes of what is missing."""
    folder = f"hf/hub/*--{name.replace('/', '--')}/snapshots/*/**/*"
    return {path.name for path in home.glob(folder) if path.is_file()}


def unfinished(home):
    return [path for path in home.rglob("*") if "incomplete" in path.name]


def unserved(hub):
    """What was asked for that this hub knows nothing of."""
    return {r.path for r in hub.requests if r.status == 404 and r.code is None}


# The protocol itself.


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", "/").replace("_", ".")).write_text(text)
    return folder


def test_commit_names_and_content(tmp_path):
    one, two = write(tmp_path / "one", a_txt="abc"), write(tmp_path / "two", a_txt="abd")
    with serve_hub(models={"o/one": one, "o/two": two}, revisions={"o/one": ["v1", "refs/pr/1"]}) as hub:
        sha = hub.commit("o/one")
        assert len(sha) == 40 and sha != hub.commit("o/two")
        for revision in ("main", "v1", "refs%2Fpr%2F1", sha):
            answer = httpx.get(f"{hub.endpoint}/o/one/resolve/{revision}/a.txt")
            assert (answer.text, answer.headers["X-Repo-Commit"]) == ("abc", sha)
            assert httpx.get(f"{hub.endpoint}/api/models/o/one/revision/{revision}").json()["sha"] == sha
        # What `git hash-object` says of a file that holds "abc".
        assert answer.headers["ETag"] == '"f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"'
        assert httpx.head(hub.endpoint).status_code == 200
        assert [r.n_bytes for r in hub.asked("/resolve/v1/")] == [3]
        hub.close()
        with pytest.raises(httpx.ConnectError):
            httpx.head(hub.endpoint)
    with serve_hub(models={"o/one": one}) as again:
        assert again.commit("o/one") == sha


@pytest.mark.parametrize(
    ("path", "token", "status", "code"),
    [
        ("/o/none/resolve/main/a.txt", None, 401, "RepoNotFound"),
        ("/o/none/resolve/main/a.txt", "hf_x", 404, "RepoNotFound"),
        ("/datasets/o/open/resolve/main/a.txt", "hf_x", 404, "RepoNotFound"),  # that name is a model's
        ("/api/models/o/none", None, 401, "RepoNotFound"),
        ("/o/open/resolve/v9/a.txt", None, 404, "RevisionNotFound"),
        ("/api/models/o/open/revision/v9", None, 404, "RevisionNotFound"),
        ("/o/open/resolve/main/b.txt", None, 404, "EntryNotFound"),
        ("/api/models/o/open/tree/main/folder", None, 404, "EntryNotFound"),
        ("/o/gated/resolve/main/a.txt", None, 401, "GatedRepo"),
        ("/o/gated/resolve/main/a.txt", "hf_x", 403, "GatedRepo"),
        ("/o/gated/resolve/main/a.txt", TOKEN, 200, None),
        ("/api/models/o/gated/tree/main", None, 200, None),  # who may not read the files may still list them
        ("/api/whoami-v2", None, 404, None),
    ],
)
def test_error_codes(tmp_path, path, token, status, code):
    folder = write(tmp_path / "one", a_txt="abc")
    with serve_hub(models={"o/open": folder, "o/gated": folder}, gated={"o/gated"}) as hub:
        answer = httpx.head(hub.endpoint + path, headers={"Authorization": f"Bearer {token}"} if token else {})
        assert (answer.status_code, answer.headers.get("X-Error-Code"), answer.content) == (status, code, b"")
        assert [(r.method, r.path, r.status, r.code) for r in hub.requests] == [("HEAD", path, status, code)]


def test_files_are_listed_as_on_the_hub(tmp_path):
    folder = tmp_path / "one"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("# One")
    (folder / "data" / "a.parquet").write_bytes(b"12345")
    with serve_hub(datasets={"o/one": folder}) as hub:
        url = f"{hub.endpoint}/api/datasets/o/one"
        top = httpx.get(f"{url}/tree/main").json()
        everything = httpx.get(f"{url}/tree/main?recursive=true").json()
        below = httpx.get(f"{url}/tree/main/data").json()
        [info] = httpx.post(f"{url}/paths-info/main", data={"paths": ["README.md"], "expand": False}).json()
    assert [(entry["type"], entry["path"]) for entry in top] == [("file", "README.md"), ("directory", "data")]
    assert [entry["path"] for entry in everything] == ["README.md", "data", "data/a.parquet"]
    assert below == everything[2:] and below[0]["size"] == below[0]["lfs"]["size"] == 5
    assert (info["path"], info["size"]) == ("README.md", 5)


def test_parts_of_a_big_file_come_from_another_host_and_break_off(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"0123456789")
    with serve_hub(models={"o/one": folder}, truncate={"o/one": 6}, truncate_once=True) as hub:
        found = httpx.head(f"{hub.endpoint}/o/one/resolve/main/a.bin")
        assert (found.status_code, found.headers["X-Linked-Size"]) == (302, "10")
        place = found.headers["Location"]
        assert place.startswith("http://localhost:")
        with pytest.raises(httpx.RemoteProtocolError, match="received 6 bytes, expected 10"):
            httpx.get(place)
        assert httpx.get(place).content == b"0123456789"
        part = httpx.get(place, headers={"Range": "bytes=7-"})
        assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"789", "bytes 7-9/10")
        assert httpx.get(place, headers={"Range": "bytes=2-3"}).content == b"23"
        assert httpx.get(place, headers={"Range": "bytes=10-"}).status_code == 416
        hub.truncate["o/one"] = 2
        assert (
            httpx.get(f"{hub.endpoint}/api/models/o/one/tree/main").json()[0]["path"] == "a.bin"
        )  # a file alone breaks
        assert httpx.get(place).content == b"0123456789"  # this file has had its turn


# huggingface_hub


def test_a_broken_download_goes_on_after_the_last_ten_mebibytes(tmp_path):
    content = random.Random(0).randbytes(15_000_000)
    folder = tmp_path / "big"
    folder.mkdir()
    (folder / "a.bin").write_bytes(content)
    with serve_hub(models={"o/big": folder}, truncate={"o/big": 12_000_000}) as hub:
        path = ask(hub, tmp_path / "home", DATA, {"path": 'hf_hub_download("o/big", "a.bin")'})["path"]
        downloads = [(r.headers.get("range"), r.n_bytes) for r in hub.asked("/lfs/")]
    assert Path(path).read_bytes() == content
    assert downloads == [(None, 12_000_000), ("bytes=10485760-", 4_514_240)]


# transformers

ONLINE = {
    "folder": "weights(Model.from_pretrained({folder!r}))",
    "main": "weights(Model.from_pretrained({PYTHIA!r}))",
    "words": "len(Tokenizer.from_pretrained({PYTHIA!r}))",
    "commit": "weights(Model.from_pretrained({PYTHIA!r}, revision={commit!r}))",
    "tag": "weights(Model.from_pretrained({PYTHIA!r}, revision='step1000'))",
    "resolved": "resolve_revision({PYTHIA!r}).resolved",
    "no_tag": "Model.from_pretrained({PYTHIA!r}, revision='step9')",
    "no_commit": "Model.from_pretrained({PYTHIA!r}, revision={NO_COMMIT!r})",
    "no_model": "Model.from_pretrained('owner/none')",
    "no_model_resolved": "resolve_revision('owner/none').resolved",
    "gated": "Model.from_pretrained({GATED!r})",
    "gated_words": "Tokenizer.from_pretrained({GATED!r})",
    "other_user": "os.environ.update(HF_TOKEN='hf_x') or Model.from_pretrained({GATED!r})",
    "this_user": "os.environ.update(HF_TOKEN={TOKEN!r}) or weights(Model.from_pretrained({GATED!r}))",
}


@pytest.mark.slow
def test_models(tmp_path, model_folder):
    home = tmp_path / "home"
    models = {PYTHIA: model_folder, GATED: model_folder}
    with serve_hub(models=models, revisions={PYTHIA: ["step1000"]}, gated={GATED}) as hub:
        known = globals() | {"folder": model_folder, "commit": hub.commit(PYTHIA)}
        online = ask(hub, home, MODELS, {name: question.format(**known) for name, question in ONLINE.items()})
    assert {online[name] for name in ("main", "commit", "tag", "this_user")} == {online["folder"]}
    assert online["words"] == 320 and online["resolved"] == hub.commit(PYTHIA)
    for name, classes, words in (
        ("no_tag", ["OSError", "RevisionNotFoundError", "HTTPStatusError"], "step9 is not a valid git identifier"),
        ("no_commit", ["OSError", "RevisionNotFoundError", "HTTPStatusError"], f"{NO_COMMIT} is not a valid git"),
        ("no_model", ["OSError", "RepositoryNotFoundError", "HTTPStatusError"], "owner/none is not a local folder"),
        ("no_model_resolved", ["RepositoryNotFoundError", "HTTPStatusError"], "401 Client Error."),
        ("gated", ["OSError", "GatedRepoError", "HTTPStatusError"], "You are trying to access a gated repo."),
        ("gated_words", ["OSError", "GatedRepoError", "HTTPStatusError"], "You are trying to access a gated repo."),
        ("other_user", ["OSError", "GatedRepoError", "HTTPStatusError"], "You are trying to access a gated repo."),
    ):
        assert online[name]["chain"] == classes
        assert online[name]["says"].startswith(words)
    assert "401 Client Error" in online["gated"]["says"] and "403 Client Error" in online["other_user"]["says"]

    # Weights are loaded once for three names of the commit, and no token travels to where they lie.
    assert [r.headers.get("authorization") for r in hub.asked("/lfs/")] == [None, None]
    assert unserved(hub) <= {"/api/agent-harnesses"}

    names = ("main", "words", "commit", "tag", "resolved", "no_tag", "no_model", "no_model_resolved")
    questions = {name: ONLINE[name].format(**known) for name in names}
    offline = ask(hub, home, MODELS, questions, HF_HUB_OFFLINE="1")
    assert {offline[name] for name in ("main", "commit", "tag")} == {online["folder"]}
    assert offline["words"] == 320 and offline["resolved"] == hub.commit(PYTHIA)
    for name in ("no_tag", "no_model"):  # what is not cached and what is not there look the same
        assert offline[name]["chain"] == ["OSError", "LocalEntryNotFoundError"]
        assert offline[name]["says"].startswith("We couldn't connect to")
    unresolved = offline["no_model_resolved"]
    assert unresolved["chain"] == ["RevisionResolutionError", "OfflineModeIsEnabled"] and not unresolved["is_os_error"]


@pytest.mark.slow
def test_broken_model_downloads(tmp_path, model_folder):
    """Less than 10 MiB is begun anew, five times at most; what is left is an error, and nothing that looks whole."""
    home = tmp_path / "home"
    questions = {"model": f"weights(Model.from_pretrained({CUT!r}))"}
    with serve_hub(models={CUT: model_folder}, truncate={CUT: 100_000}) as hub:
        broken = ask(hub, home, MODELS, questions)["model"]
        assert [(r.headers.get("range"), r.n_bytes) for r in hub.asked("/lfs/")] == [(None, 100_000)] * 6
        # The cause is no OSError, and the sentence around it blames the name.
        assert broken["chain"] == ["OSError", "RemoteProtocolError"]
        assert broken["says"].startswith(f"Can't load the model for '{CUT}'.")
        assert cached(home, CUT) == {"config.json"} and unfinished(home) == []
        hub.truncate.clear()
        whole = ask(hub, home, MODELS, questions | {"folder": f"weights(Model.from_pretrained({model_folder!r}))"})
    assert whole["model"] == whole["folder"]


# datasets


def texts(name, n=4):
    return [{"text": f"{name}, text {i}", "label": i % 2} for i in range(n)]


@pytest.fixture
def data_sets(tmp_path):
    """Two data sets: parquet files with splits in the README's header, as WikiMIA's, and JSONL files named by split."""
    wikimia, arxiv = tmp_path / "wikimia", tmp_path / "arxiv"
    (wikimia / "data").mkdir(parents=True)
    arxiv.mkdir()
    for length in (32, 64):
        path = wikimia / "data" / f"WikiMIA_length{length}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(texts(f"WikiMIA {length}")), path)
    header = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: WikiMIA_length32
    path: data/WikiMIA_length32-*
  - split: WikiMIA_length64
    path: data/WikiMIA_length64-*
- config_name: long
  data_files:
  - split: WikiMIA_length64
    path: data/WikiMIA_length64-*
---
# WikiMIA
"""
    (wikimia / "README.md").write_text(header)
    for split in ("dev", "test"):
        (arxiv / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts(f"ArxivMIA {split}")))
    return wikimia, arxiv


def column(name):
    return [row["text"] for row in texts(name)]


@pytest.mark.slow
def test_data_sets(tmp_path, data_sets):
    wikimia, arxiv = data_sets
    home = tmp_path / "home"
    datasets = {WIKIMIA: wikimia, ARXIV: arxiv, BOTH: wikimia, GATED: arxiv}
    with serve_hub(datasets=datasets, revisions={WIKIMIA: ["v1"]}, gated={GATED}) as hub:
        first, arxiv_commit = hub.commit(WIKIMIA), hub.commit(ARXIV)
        online = ask(
            hub,
            home,
            DATA,
            {
                "sha": f"HfApi().dataset_info({WIKIMIA!r}, timeout=5).sha",
                "split": f"rows(load({WIKIMIA!r}, split='WikiMIA_length32', revision={first!r}))",
                "commit": f"commit(load({WIKIMIA!r}, split='WikiMIA_length32', revision={first!r}))",
                "tag": f"rows(load({WIKIMIA!r}, split='WikiMIA_length64', revision='v1'))",
                "jsonl": f"rows(load({ARXIV!r}, revision={arxiv_commit!r}))",
                "both": f"rows(load({BOTH!r}))",
                "long": f"rows(load({BOTH!r}, 'long'))",
                "no_split": f"load({WIKIMIA!r}, split='WikiMIA_length7', revision={first!r})",
                "no_config": f"load({WIKIMIA!r}, 'short', revision={first!r})",
                "no_revision": f"load({WIKIMIA!r}, revision='v9')",
                "no_revision_info": f"HfApi().dataset_info({WIKIMIA!r}, revision='v9')",
                "no_data": "load('owner/none')",
                "no_data_info": "HfApi().dataset_info('owner/none')",
                "gated_info": f"HfApi().dataset_info({GATED!r}).sha",
                "gated": f"load({GATED!r})",
                "other_user": f"os.environ.update(HF_TOKEN='hf_x') or load({GATED!r})",
                "this_user": f"os.environ.update(HF_TOKEN={TOKEN!r}) or rows(load({GATED!r}))",
            },
        )
    assert unserved(hub) <= {"/api/agent-harnesses"}
    assert online["sha"] == online["commit"] == first
    assert online["split"] == column("WikiMIA 32") and online["tag"] == column("WikiMIA 64")
    both = {f"WikiMIA_length{length}": column(f"WikiMIA {length}") for length in (32, 64)}
    assert online["both"] == both and online["long"] == {"WikiMIA_length64": column("WikiMIA 64")}
    jsonl = {"validation": column("ArxivMIA dev"), "test": column("ArxivMIA test")}  # "dev" goes by that name
    assert online["jsonl"] == online["this_user"] == jsonl
    assert online["gated_info"] == hub.commit(GATED)
    for name, classes, words in (
        ("no_split", ["ValueError"], 'Unknown split "WikiMIA_length7". Should be one of'),
        ("no_config", ["ValueError"], "BuilderConfig 'short' not found. Available: ['default', 'long']"),
        (
            "no_revision",
            ["DatasetNotFoundError", "RevisionNotFoundError", "HTTPStatusError"],
            f"Revision 'v9' doesn't exist for dataset '{WIKIMIA}' on the Hub.",
        ),
        ("no_revision_info", ["RevisionNotFoundError", "HTTPStatusError"], "404 Client Error."),
        ("no_data", ["DatasetNotFoundError"], "Dataset 'owner/none' doesn't exist on the Hub or cannot be accessed."),
        ("no_data_info", ["RepositoryNotFoundError", "HTTPStatusError"], "401 Client Error."),
        ("gated", ["DatasetNotFoundError"], f"Dataset '{GATED}' is a gated dataset on the Hub. You must be"),
        ("other_user", ["DatasetNotFoundError"], f"Dataset '{GATED}' is a gated dataset on the Hub. Visit the"),
    ):
        assert online[name]["chain"] == classes
        assert online[name]["says"].startswith(words)

    # The hub moves on, and both commits are in the cache.
    path = wikimia / "data" / "WikiMIA_length32-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(texts("New")), path)
    with serve_hub(datasets={WIKIMIA: wikimia}) as later:
        second = later.commit(WIKIMIA)
        split = "split='WikiMIA_length32'"
        resolved = f"resolve_revision({WIKIMIA!r}, repo_type='dataset').resolved"  # and the cache remembers `main`
        question = f"rows(load({WIKIMIA!r}, {split}, revision={second!r}))"
        newer = ask(later, home, DATA, {"resolved": resolved, "rows": question})
    assert newer == {"resolved": second, "rows": column("New")} and second != first

    file = "'data/WikiMIA_length32-00000-of-00001.parquet', repo_type='dataset'"
    offline = ask(
        later,
        home,
        DATA,
        {
            "sha": f"HfApi().dataset_info({WIKIMIA!r}, timeout=5).sha",
            "resolved": resolved,
            "plain": f"rows(load({WIKIMIA!r}, {split}))",
            "first": f"rows(load({WIKIMIA!r}, {split}, revision={first!r}))",
            "nowhere": f"rows(load({WIKIMIA!r}, {split}, revision={NO_COMMIT!r}))",
            "commit": f"commit(load({WIKIMIA!r}, {split}, revision={first!r}))",
            "jsonl": f"rows(load({ARXIV!r}, revision={arxiv_commit!r}))",
            "both": f"load({BOTH!r})",
            "both_default": f"rows(load({BOTH!r}, 'default'))",
            "no_split": f"load({WIKIMIA!r}, split='WikiMIA_length7')",
            "no_config": f"load({WIKIMIA!r}, 'long')",
            "no_data": "load('owner/none')",
            "file_of_first": f"hf_hub_download({WIKIMIA!r}, {file}, revision={first!r})",
            "file_of_second": f"hf_hub_download({WIKIMIA!r}, {file}, revision={second!r})",
            "file_of_tag": f"hf_hub_download({WIKIMIA!r}, {file}, revision='v1')",
            "file_of_nowhere": f"hf_hub_download({WIKIMIA!r}, {file}, revision={NO_COMMIT!r})",
        },
        HF_HUB_OFFLINE="1",
    )
    # `load_dataset` looks at no revision: it takes the commit that was prepared last, and says so in a warning alone.
    assert offline["plain"] == offline["first"] == offline["nowhere"] == column("New")
    assert offline["commit"] == offline["resolved"] == second
    assert offline["jsonl"] == jsonl and offline["both_default"] == both
    # A downloaded file is found by its commit.
    assert [pq.read_table(offline[f"file_of_{name}"])["text"].to_pylist() for name in ("first", "second", "tag")] == [
        column("WikiMIA 32"),
        column("New"),
        column("WikiMIA 32"),
    ]
    for name, classes, words in (
        ("sha", ["OfflineModeIsEnabled"], "Cannot reach http://127.0.0.1:"),
        ("both", ["ValueError"], f"There are multiple '{BOTH}' configurations in the cache: "),
        ("no_split", ["ValueError"], 'Unknown split "WikiMIA_length7"'),
        ("no_config", ["ValueError"], f"Couldn't find cache for {WIKIMIA} for config 'long'"),
        ("no_data", ["ConnectionError"], "Couldn't reach 'owner/none' on the Hub (OfflineModeIsEnabled)"),
        ("file_of_nowhere", ["LocalEntryNotFoundError", "OfflineModeIsEnabled"], "An error happened while trying to"),
    ):
        assert offline[name]["chain"] == classes
        assert offline[name]["says"].startswith(words)


@pytest.mark.slow
def test_broken_data_downloads(tmp_path, data_sets):
    home = tmp_path / "home"
    with serve_hub(datasets={CUT: data_sets[0]}, truncate={CUT: 500}) as hub:
        question = {"rows": f"rows(load({CUT!r}, split='WikiMIA_length32', revision={hub.commit(CUT)!r}))"}
        broken = ask(hub, home, DATA, question)["rows"]
        assert broken["chain"] == ["RemoteProtocolError"] and not broken["is_os_error"]
        assert broken["says"].startswith("peer closed connection without sending complete message body (received 500")
        assert cached(home, CUT) == {"README.md"} and unfinished(home) == []
        assert ask(hub, home, DATA, question, HF_HUB_OFFLINE="1")["rows"]["chain"] == ["ConnectionError"]
        hub.truncate.clear()
        assert ask(hub, home, DATA, question)["rows"] == column("WikiMIA 32")
