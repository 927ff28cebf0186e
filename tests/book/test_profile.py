"""The book's part of a profile is checked where it is read."""

import pytest
import yaml

from replication.profile import load_profile

SMALL = {"name": "small", "corpora": {}, "models": {}, "landing": {"page": "index"}, "book": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surprise": 1}, "surprise"),
        ({"models": {"lab/x": {"benchmarks": []}}}, "a lab model"),
        ({"landing": {"page": "index", "notebook": "index"}}, "either"),
        ({"landing": {"page": "index", "parameters": {"a": 1}}}, "only a notebook takes parameters"),
        ({"landing": {"notebook": "index", "name": "start"}}, "a `name` comes with a `title`"),
        ({"landing": {"page": "../outside"}}, "landing.page"),
        ({"landing": {"notebook": "index", "name": "in/another", "title": "t"}}, "landing.name"),
    ],
)
def test_a_wrong_profile_is_an_error_that_names_file_and_key(tmp_path, change, message):
    (tmp_path / "wrong.yml").write_text(yaml.safe_dump(SMALL | change))
    with pytest.raises(ValueError, match=message) as caught:
        load_profile(tmp_path / "wrong.yml")
    assert "wrong.yml" in str(caught.value)
