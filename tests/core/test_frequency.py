"""Token frequencies: every occurrence counts, and Laplace smoothing gives what is never seen its share."""

import math
from collections import Counter

import numpy as np
import pytest
from conftest import SENTENCES, make_tokenizer
from tokenizers import processors

from mialib import TokenFrequency, count_tokens, frequency
from mialib.models import tokenizer_hash


def test_each_token_counts_each_time_or_is_an_error_outside_the_vocabulary(tokenizer):
    # `counts[ids] += 1` would count a token once a text.
    texts = [*SENTENCES, "week week week week", SENTENCES[0]]
    expected = Counter(token for text in texts for token in tokenizer(text)["input_ids"])
    counted = count_tokens(texts, tokenizer, len(tokenizer), name="sentences")
    assert {token: n for token, n in enumerate(counted.counts.tolist()) if n} == dict(expected)
    assert max(expected.values()) > len(texts)
    assert counted.n_tokens == expected.total()
    largest = max(tokenizer(SENTENCES[0])["input_ids"])
    with pytest.raises(ValueError, match=f"C4: .*{largest} .*{largest}"):
        count_tokens(["", SENTENCES[0]], tokenizer, largest, name="C4")


def test_laplace_smoothing_by_hand_over_the_models_vocabulary(tokenizer):
    # Counts 5, 0, 1, 0: N' = 6 and |V| = 4, so p = 6/10, 1/10, 2/10, 1/10 (Eq. 5), which sum to one.
    log_probability = TokenFrequency(counts=np.array([5, 0, 1, 0]), name="four tokens").log_probability
    np.testing.assert_allclose(np.exp(log_probability), [0.6, 0.1, 0.2, 0.1], rtol=1e-12)
    assert log_probability[1] == pytest.approx(math.log(0.1))
    # |V| of Eq. 5 is the model's; its spare rows have the probability of an unseen token.
    larger = count_tokens(SENTENCES, tokenizer, len(tokenizer) + 64, name="sentences")
    assert larger.counts.shape == larger.log_probability.shape == (len(tokenizer) + 64,)
    assert np.exp(larger.log_probability).sum() == pytest.approx(1)
    assert larger.log_probability[-1] == pytest.approx(-math.log(larger.n_tokens + len(tokenizer) + 64))


def test_a_count_that_broke_off_goes_on_where_it_stopped(tokenizer, monkeypatch):
    monkeypatch.setattr(frequency, "TEXTS_AT_ONCE", 2)
    monkeypatch.setattr(frequency, "SECONDS_BETWEEN_KEEPING", -1)
    seen, saved = [], []

    def tokenize(batch, **options):
        seen.extend(batch)
        return tokenizer(batch, **options)

    def broken():
        yield from SENTENCES[:5]
        raise ConnectionError("gone")

    def save(state):
        saved[:] = [{name: array.copy() for name, array in state.items()}]

    with pytest.raises(ConnectionError):
        count_tokens(broken(), tokenize, len(tokenizer), name="b", save=save)
    assert seen == SENTENCES[:4]
    seen.clear()
    counted = count_tokens(SENTENCES, tokenize, len(tokenizer), name="b", saved=saved)
    assert seen == SENTENCES[4:]
    np.testing.assert_array_equal(counted.counts, count_tokens(SENTENCES, tokenizer, len(tokenizer), name="b").counts)


def test_no_start_or_end_tokens_are_counted():
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    counted = count_tokens(["mill"], tokenizer, len(tokenizer), name="one word")
    assert counted.n_tokens == len(tokenizer("mill")["input_ids"]) - 2
    assert counted.counts[:3].sum() == 0  # <s>, </s>, <pad>


@pytest.mark.parametrize("texts", [[], [""], iter(())])
def test_an_empty_corpus_is_an_error_that_names_it(texts, tokenizer):
    with pytest.raises(ValueError, match="nothing here: "):
        count_tokens(texts, tokenizer, len(tokenizer), name="nothing here")


def test_saving_and_loading_keeps_everything(tokenizer, tmp_path):
    counted = count_tokens(SENTENCES, tokenizer, len(tokenizer), name="句子", tokenizer_hash=tokenizer_hash(tokenizer))
    counted.save(tmp_path / "a folder" / "frequency.parquet")
    loaded = TokenFrequency.load(str(tmp_path / "a folder" / "frequency.parquet"))
    np.testing.assert_array_equal(loaded.counts, counted.counts)
    np.testing.assert_array_equal(loaded.log_probability, counted.log_probability)
    assert (loaded.name, loaded.tokenizer) == ("句子", tokenizer_hash(tokenizer))
