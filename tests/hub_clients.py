"""A user of the hub on localhost: the libraries of this process, pointed at it."""

from contextlib import contextmanager

import yaml

from mialib.catalog import hub as mialib_hub
from mialib.catalog.loading import unload


def pin(revisions):
    """Write {kind: {name: commit}} into the file of pins."""
    mialib_hub.PINS.parent.mkdir(parents=True, exist_ok=True)
    mialib_hub.PINS.write_text(yaml.safe_dump(revisions))


def forget_the_hub():
    """Have this process ask again whether the hub can be reached, and for its commits."""
    for function in (mialib_hub.why_unreachable, mialib_hub._go_offline, mialib_hub._commit_on_hub):
        function.cache_clear()


@contextmanager
def pointed_at(monkeypatch, endpoint, cache, *, offline=False):
    """Until the block ends the Hugging Face libraries and mialib know this hub and this cache alone.

    The libraries read their settings once, when they are imported, and each keeps copies: all are replaced.
    """
    import datasets
    from huggingface_hub import constants, hf_api
    from transformers.utils import hub as hub_of_transformers

    with monkeypatch.context() as patch:
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        patch.setenv("HF_TOKEN_PATH", str(cache / "token"))
        patch.setattr(constants, "ENDPOINT", endpoint)
        patch.setattr(hf_api.api, "endpoint", endpoint)
        patch.setattr(hub_of_transformers, "_hf_api", None)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(constants, "HF_HUB_OFFLINE", offline)
        patch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
        patch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
        patch.setattr(datasets.config, "HF_ENDPOINT", endpoint)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", offline)
        patch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache / "datasets")
        patch.setattr(mialib_hub, "PINS", cache / "revisions.yml")
        forget_the_hub()
        unload()  # a model of another hub's, maybe of the same name and commit
        try:
            yield
        finally:
            forget_the_hub()
