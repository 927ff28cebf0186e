"""The hub on localhost, which other tests rely on, answers as the real one does."""

import httpx
import pytest
from hub_server import TOKEN, serve_hub


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
