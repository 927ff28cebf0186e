"""The hub on localhost, which other tests rely on, answers as the real one does."""

import httpx
import pytest
from hub_server import TOKEN, serve_hub


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", "/").replace("_", ".")).write_text(text)
    return folder


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
