"""The list of texts of *Can it recite?*, and what is recorded of them."""

import io
import json
import tarfile
from collections import Counter

import pytest

from mialib.store import hash_texts
from replication.studies import recitation


def test_the_list_is_what_the_rules_say():
    passages, rules = recitation.read_list(), recitation.rules()
    by_hand = {kind: len(of) for kind, of in rules["passages"].items()}
    assert Counter(passage.kind for passage in passages) == rules["docstrings"] | by_hand
    assert len({passage.hash for passage in passages}) == len(passages)
    n_tests = len(rules["models"]) * (len(rules["docstrings"] | by_hand) - 1) * len(rules["prompts"])
    assert f"{n_tests} tests" in rules["correction"]


def test_a_passage_is_read_as_it_was_when_the_list_was_made(tmp_path):
    passages = {passage.name: passage for passage in recitation.read_list()}
    n_words, licence = recitation.rules()["words"], passages["MIT"]
    text = recitation.text_at(licence, n_words, tmp_path)
    assert text.startswith(licence.start) and hash_texts([text]) == licence.hash
    assert recitation.text_at(passages["Hamlet"], n_words, tmp_path) == "", "its archive is not here"
    assert recitation.text_at(licence._replace(place="no-such-package:LICENSE"), n_words, tmp_path) == ""
    of_library = next(of for of in passages.values() if of.kind == "Python's docstrings")
    assert len(recitation.text_at(of_library, n_words, tmp_path).split()) == n_words


def test_an_archive_must_be_the_one_that_the_rules_name(tmp_path):
    path = tmp_path / "brotli-1.2.1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("brotli-1.2.1/verses.jsonl"), io.BytesIO())
    with pytest.raises(ValueError, match="its SHA-256 is not"):
        recitation.read_archived(path, "verses.jsonl")


def test_a_passage_that_was_not_there_does_not_count(tmp_path, monkeypatch):
    passages = recitation.read_list()
    recited = [[i, 1] for i in range(len(passages))]
    first = next(i for i, passage in enumerate(passages) if passage.kind == "PEPs")
    recited[first] = None
    monkeypatch.setattr(recitation, "RECORDED", tmp_path / "recitation.json")
    assert recitation.counts() == {}
    recitation.RECORDED.write_text(json.dumps({"a": {"recited": {"10": recited}, "provenance": {}}}))
    counts = recitation.counts()["a"]
    assert counts["PEPs"][10].tolist() == [list(range(first + 1, first + 8)), [1] * 7]
    assert counts["licences"][10].shape == (2, 26)
