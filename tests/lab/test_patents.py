"""The generated patents: what the lab takes from them, and that they read like patents."""

import logging
import re

import jieba
import numpy as np
import pytest

from replication.lab.patents import CHARACTERS_PER_WORD, _classes, generate_patents, grammar

jieba.setLogLevel(logging.ERROR)


@pytest.fixture(scope="module")
def texts():
    return generate_patents(300, seed=5)


@pytest.fixture(scope="module")
def words(texts):
    return [jieba.lcut(text) for text in texts]


def test_texts_are_distinct_seeded_and_long_enough(texts, words):
    assert generate_patents(300, seed=5) == texts and len(set(texts)) == 300
    assert not set(generate_patents(300, seed=6)) & set(texts)
    assert generate_patents(5, seed=5) == generate_patents(50, seed=5)[:5] == texts[:5]
    assert generate_patents(0, seed=5) == []
    lengths = [len(text) for text in words]
    assert min(lengths) >= 128
    assert 150 <= np.median(lengths) <= 220
    # The length is kept by counting characters, so no text may come near the bound on characters per word.
    assert max(len(text) / length for text, length in zip(texts, lengths, strict=True)) < 0.97 * CHARACTERS_PER_WORD


def test_claims_refer_back_and_all_words_are_used(texts):
    for text in texts:
        assert text.startswith(("本发明", "发明名称：一种"))
        claims = re.split(r"(?<=[：。])(?=\d+\. )", text.partition("实施例1：")[0])[1:]
        assert [int(claim.partition(".")[0]) for claim in claims] == list(range(1, len(claims) + 1))
        assert len(claims) >= 2 and "其特征在于" in claims[0]
        for number, claim in enumerate(claims[1:], start=2):
            assert 1 <= int(re.search(r"权利要求(\d+)所述的", claim)[1]) < number
    assert np.mean([text.count("所述") for text in texts]) > 5
    templates = [line for sector in grammar().sectors.values() for lines in sector.values() for line in lines]
    asked = {slot for line in templates for slot in re.findall(r"\{([a-z]+)\*?\}", line)}
    assert asked - {"new", "old", "last", "dose"} == grammar().words.keys() | grammar().rules.keys()
    assert all(len(found) == len(set(found)) > 9 for found, _ in _classes().values())


def test_texts_are_not_near_duplicates(words):
    grams = [{tuple(text[i : i + 7]) for i in range(len(text) - 6)} for text in words[:150]]
    rng = np.random.default_rng(0)
    pairs = [rng.choice(len(grams), 2, replace=False) for _ in range(2000)]
    shared = [len(grams[a] & grams[b]) / min(len(grams[a]), len(grams[b])) for a, b in pairs]
    assert np.median(shared) < 0.07
    nearest = [max(len(a & b) / len(a) for b in grams if b is not a) for a in grams]
    assert max(nearest) < 0.4
