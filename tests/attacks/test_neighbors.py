"""Neighbors: one word and no more, the published ranking, and nothing that depends on the batch."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import CONTEXT, SENTENCES
from transformers import AutoModelForMaskedLM, AutoTokenizer

from mialib import batches
from mialib.attacks import neighbors
from mialib.attacks.neighbors import log_probs_of_variants, make_neighbors, neighbor_log_probs
from mialib.catalog.loading import Scorer, load_model
from mialib.passes import cache
from mialib.scoring import LoadedScorer
from mialib.text import word_spans
from mialib.versions import VERSIONS

ODD = "  The  mill,\n\tstands (near)\n\n    the\u00a0river <mask> </s> — Naïve café 🙂! \n"
TEXTS = [SENTENCES[0], ODD, SENTENCES[6], "the mill", SENTENCES[4]]
N = 20


@pytest.fixture(scope="module")
def made(masked_folder):
    return make_neighbors(TEXTS, masked_folder, n_neighbors=N, progress=False)


def replaced(text, neighbor, language="en"):
    """The one word of `text` that the neighbor has another for, and that other; fails where anything else differs."""
    fitting = []
    for start, end in word_spans(text, language):
        tail = len(text) - end
        if neighbor.startswith(text[:start]) and neighbor.endswith(text[end:]) and len(neighbor) > start + tail:
            fitting.append((text[start:end], neighbor[start : len(neighbor) - tail]))
    assert fitting, f"{neighbor!r} is not {text!r} with one word replaced"
    return fitting[0]


def test_neighbors_differ_in_one_word_and_punctuation_stays(made, masked_folder):
    for text, of_text in zip(TEXTS, made, strict=True):
        assert len(set(of_text)) == len(of_text) == N and text not in of_text
        for neighbor in of_text:
            old, new = replaced(text, neighbor)
            assert new.casefold() != old.casefold() and new and not any(c.isspace() for c in new)
            assert len(neighbor.split()) == len(text.split())
    for of_text in make_neighbors(['"(mill),"', "-- ?! the ..."], masked_folder, n_neighbors=30, progress=False):
        for neighbor in of_text:
            assert neighbor.removeprefix('"(').removesuffix('),"').isalnum() or (
                neighbor.startswith("-- ?! ") and neighbor.endswith(" ...") and neighbor[6:-4].isalnum()
            )


def naive(text, folder, n):
    """p(w~) / (1 - p(w)) of every word of the text, one pass a word, no batch, the whole model, in float64."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
    strings = [tokenizer.decode([v]) for v in range(len(tokenizer))]
    found = {}
    for word in text.split():  # texts of these tests have no word twice, and no punctuation
        before, after = text.split(word)
        left = tokenizer(before.removesuffix(" "), add_special_tokens=False)["input_ids"]
        right = tokenizer(after, add_special_tokens=False)["input_ids"]
        ids = [tokenizer.cls_token_id, *left, tokenizer.mask_token_id, *right, tokenizer.sep_token_id]
        with torch.no_grad():
            p = model(torch.tensor([ids])).logits[0, 1 + len(left)].softmax(-1).tolist()
        space = " " if before.endswith(" ") else ""
        p_word = sum(p[v] for v, string in enumerate(strings) if string == space + word)
        for v, string in enumerate(strings):
            other = string.removeprefix(space)
            if string.startswith(space) and other.isalnum() and other.casefold() != word.casefold():
                found[before + string.removeprefix(space) + after] = p[v] / (1 - p_word)
    return sorted(found, key=found.get, reverse=True)[:n]


@pytest.mark.parametrize("text", ["The mill stands above one river", "river unseen\nvillages", "letter"])
def test_the_ranking_is_the_published_one_computed_word_by_word(text, masked_folder):
    assert make_neighbors([text], masked_folder, n_neighbors=N, progress=False)[0] == naive(text, masked_folder, N)


def test_a_word_that_the_model_expects_makes_room_for_its_replacements(masked_folder):
    # The factor 1 / (1 - p(w)): without it the order is another.
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(masked_folder), AutoTokenizer.from_pretrained(masked_folder)
    bias = model.lm_head.bias.data
    bias[tokenizer(" mill", add_special_tokens=False)["input_ids"][0]] += 30
    assert len(tokenizer(" mill", add_special_tokens=False)["input_ids"]) == 1
    folder = str(masked_folder) + "-sure"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text = "The mill stands"
    found = make_neighbors([text], folder, n_neighbors=N, progress=False)[0]
    assert found == naive(text, folder, N)
    assert sum(replaced(text, neighbor)[0] == "mill" for neighbor in found) > 1


@pytest.mark.parametrize("budget", [1, 60])
def test_batches_the_other_texts_and_their_order_change_nothing(masked_folder, made, monkeypatch, budget):
    monkeypatch.setattr(neighbors, "TOKENS_PER_BATCH", budget)
    assert make_neighbors(TEXTS[::-1], masked_folder, n_neighbors=N, progress=False)[::-1] == made
    assert make_neighbors(TEXTS[2:3], masked_folder, n_neighbors=N, progress=False) == made[2:3]


def test_the_seed_draws_the_words_and_chinese_ones_are_jiebas(masked_folder):
    text, short = SENTENCES[0], "The old mill"
    options = {"n_neighbors": 5, "progress": False}
    first, again, other = (make_neighbors([text, short], masked_folder, seed=seed, **options) for seed in (0, 0, 1))
    assert first == again
    assert first[0] != other[0]
    assert first[1] == other[1], "of three words all are masked"
    text = SENTENCES[7]
    for neighbor in make_neighbors([text], masked_folder, n_neighbors=N, language="zh", progress=False)[0]:
        old, new = replaced(text, neighbor, "zh")
        assert old != new and len(list(word_spans(new, "zh"))) == 1


def test_padding_is_not_seen_and_the_characters_of_a_mask_are_text(masked_folder):
    # Words of very different lengths: the rows of one text differ in length, and the shorter are padded.
    text = f"The {'mill' * 10} stands {'river' * 6} near a {'week' * 3} letter"
    model, tokenizer = neighbors.load_masked_model(masked_folder)
    rows = neighbors._masked_rows(text, neighbors._word_cores(text, "en"), tokenizer, CONTEXT)
    assert len({len(row.token_ids) for row in rows}) > 3
    together = neighbors._logits_at_mask(model, tokenizer, rows)
    for row, logits in zip(rows, together, strict=True):
        alone = model(torch.tensor([row.token_ids])).logits[0, row.mask_at]
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-4)
    _, tokenizer = neighbors.load_masked_model(masked_folder)
    for row in neighbors._masked_rows(ODD, neighbors._word_cores(ODD, "en"), tokenizer, CONTEXT):
        assert [at for at, v in enumerate(row.token_ids) if v == tokenizer.mask_token_id] == [row.mask_at]


def test_a_text_longer_than_the_context_is_seen_around_each_word(masked_folder, caplog):
    caplog.set_level("INFO")
    text = " ".join(SENTENCES[:6])
    found = make_neighbors(["The mill", text], masked_folder, n_neighbors=150, progress=False)[1]
    assert len(set(found)) == 150
    assert "1 of 2 texts" in caplog.text and f"{CONTEXT} tokens" in caplog.text
    _, tokenizer = neighbors.load_masked_model(masked_folder)
    spans = neighbors._word_cores(text, "en")
    for row in neighbors._masked_rows(text, spans, tokenizer, CONTEXT):
        assert len(row.token_ids) == CONTEXT and row.token_ids[row.mask_at] == tokenizer.mask_token_id
        assert row.token_ids[0] == tokenizer.cls_token_id and row.token_ids[-1] == tokenizer.sep_token_id
    config = SimpleNamespace(model_type="roberta", pad_token_id=1, max_position_embeddings=514)
    assert neighbors._context(SimpleNamespace(config=config), SimpleNamespace(model_max_length=10**30)) == 512


def test_log_probs_are_the_means_of_each_neighbor(model_folder, made):
    scorer = Scorer(model_folder)
    stats = scorer.score(TEXTS, progress=False)
    means = neighbor_log_probs(scorer, stats, [of_text[:3] for of_text in made], progress=False)
    assert means.shape == (len(TEXTS), 3) and means.dtype == np.float64
    for i, of_text in enumerate(made):
        for j, neighbor in enumerate(of_text[:3]):
            alone = scorer.score([neighbor], progress=False)[0].log_prob.mean(dtype=np.float64)
            assert means[i, j] == pytest.approx(alone, abs=1e-5)
    assert neighbor_log_probs(scorer, stats.take([]), [], progress=False).shape == (0, 0)
    with pytest.raises(ValueError):
        neighbor_log_probs(scorer, stats.take([0, 1]), [["a"], ["a", "b"]], progress=False)


def test_neighbors_that_broke_off_go_on(masked_folder, model_folder, made, monkeypatch):
    monkeypatch.setattr(batches, "SECONDS_A_PART", -1)  # a part a text
    scorer, saved = Scorer(model_folder), []
    own = scorer.score(TEXTS, progress=False)
    whole = neighbor_log_probs(scorer, own, made, progress=False)

    def save(part):
        saved.append(part)
        if len(saved) == 2:
            raise KeyboardInterrupt

    for run, expected in (
        (partial(make_neighbors, TEXTS, masked_folder, n_neighbors=N), made),
        (partial(neighbor_log_probs, scorer, own, made), whole),
    ):
        saved.clear()
        with pytest.raises(KeyboardInterrupt):
            run(progress=False, save=save)
        rest = []
        np.testing.assert_array_equal(run(progress=False, saved=saved, save=rest.append), expected)
        assert len(rest) == len(TEXTS) - 3, "all but the two that were there, and the last"


@pytest.mark.parametrize("change", ["texts", "n_neighbors", "version", "jieba"])
def test_the_cache_misses_when_anything_that_matters_changes(masked_folder, monkeypatch, change):
    texts, options = ["The mill stands near the river", "The old mill"], {"n_neighbors": 3}
    cache.neighbors_or_load(texts, masked_folder, **options)
    calls = []
    monkeypatch.setattr(neighbors, "make_neighbors", lambda texts, *_, **__: calls.append(1) or [["a"]] * len(texts))
    if change == "texts":
        texts = texts[::-1]
    elif change == "version":
        monkeypatch.setitem(VERSIONS, "neighbors", 0)
    elif change == "jieba":
        monkeypatch.setattr(cache, "version", lambda _: "another")
    else:
        options["n_neighbors"] = 4
    cache.neighbors_or_load(texts, masked_folder, **options)
    assert calls == [1]


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += ["the", "mill", "stands", "river", "##s", "##ing", ",", "old", "cafe"]


@pytest.fixture(scope="module")
def uncased(tmp_path_factory):
    """A masked model whose tokenizer is WordPiece's in lower case."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = tmp_path_factory.mktemp("uncased")
    BertTokenizerFast(vocab={piece: i for i, piece in enumerate(PIECES)}, model_max_length=32).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(PIECES), max_position_embeddings=32, **sizes)
    BertForMaskedLM(config).save_pretrained(folder)
    return str(folder)


def test_a_cased_model_proposes_no_other_case_and_wordpiece_no_continuations(uncased, masked_folder):
    [found] = make_neighbors(["the mill,\nrivers"], uncased, n_neighbors=16, progress=False)
    words = {"the", "mill", "stands", "river", "old", "cafe"}
    expected = {f"{w} mill,\nrivers" for w in words - {"the"}} | {f"the {w},\nrivers" for w in words - {"mill"}}
    assert set(found) == expected | {f"the mill,\n{w}" for w in words}
    _, unspaced = neighbors._vocabularies(*neighbors.load_masked_model(masked_folder), "en")
    others = set(unspaced.word_of.values()) - {"A", "a"}
    assert len(others) == len(unspaced.word_of) - 2
    [found] = make_neighbors(["A"], masked_folder, n_neighbors=len(others), progress=False)
    assert set(found) == others


def test_an_uncased_model_proposes_no_word_for_itself(uncased):
    """It reads a word of any case, and of any accents, as the same token, so its neighbors are the same words."""
    small, large = "the mill stands cafe", "The MILL stands Café"
    own, upper = (make_neighbors([text], uncased, n_neighbors=20, progress=False)[0] for text in (small, large))
    assert [replaced(large, neighbor) for neighbor in upper] == [
        (large.split()[small.split().index(old)], new) for old, new in (replaced(small, neighbor) for neighbor in own)
    ]
    with pytest.raises(ValueError, match="21 "):
        make_neighbors([large], uncased, n_neighbors=21, progress=False)


# --- variants of a scored text ---


@pytest.mark.parametrize("start_token", ["auto", None])
def test_a_variant_with_another_first_token_shares_nothing(model_folder, start_token):
    scorer = LoadedScorer(load_model(model_folder, start_token=start_token))
    own = scorer.score(["the mill stands near the river"], progress=False)[0]
    variant = "week mill stands near the river"
    [found] = log_probs_of_variants(scorer, own, [variant])
    np.testing.assert_allclose(found, scorer.score([variant], progress=False)[0].log_prob, atol=1e-5)
