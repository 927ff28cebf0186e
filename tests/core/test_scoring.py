"""One batched pass gives what one text at a time gives, whatever the batch, the order, the family and the padding."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import oracles
import pytest
import torch
from conftest import (
    AFTER_THE_HEAD,
    CONTEXT,
    FAMILIES,
    SENTENCES,
    TEXTS,
    make_glm_tokenizer,
    make_tokenizer,
    save_tiny_model,
)
from oracles import assert_agree, assert_rows_agree, naive_statistics
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoTokenizer

import mialib
from mialib import batches, models, scoring
from mialib.attacks.neighbors import log_probs_of_variants
from mialib.models import find_start_tokens, tokenizer_hash
from mialib.scoring import head_statistics, row_statistics
from mialib.token_stats import COLUMNS, StatsPart, TokenStats


def score(scorer, texts=TEXTS):
    return scorer.score(texts, progress=False)


def batch_budget(monkeypatch, n_tokens):
    monkeypatch.setattr(scoring, "TOKENS_PER_BATCH", {"cpu": n_tokens})


@pytest.fixture(scope="module")
def reference(model_folder):
    return naive_statistics(model_folder, TEXTS, start_token_id=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_agree_with_one_text_at_a_time_in_float64(family, tiny_model):
    scorer = mialib.Scorer(tiny_model(family))
    assert_agree(score(scorer), naive_statistics(tiny_model(family), TEXTS, start_token_id=0))
    # Random weights far from uniform: agreement on flat distributions would show little.
    uniform = np.log(scorer.loaded.vocab_size)
    assert score(scorer).entropy.min() < 0.7 * uniform
    assert scorer._head is not None, "the head must run apart, or the memory bound is lost"


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2"])
def test_scores_agree_where_the_model_has_more_outputs_than_the_tokenizer_tokens(family, tiny_model):
    folder = tiny_model(family, vocab_size=384)
    scorer = mialib.Scorer(folder)
    assert scorer.loaded.vocab_size == 384 > len(scorer.loaded.tokenizer)
    assert_agree(score(scorer), naive_statistics(folder, TEXTS, start_token_id=0))


@pytest.mark.parametrize("family", AFTER_THE_HEAD)
def test_a_model_that_changes_logits_after_its_head_runs_whole(family, tiny_model, caplog):
    scorer = mialib.Scorer(tiny_model(family))
    assert scorer._head is None
    assert "running the whole model" in caplog.text
    assert_agree(score(scorer), naive_statistics(tiny_model(family), TEXTS, start_token_id=0))


def test_a_soft_cap_that_hardly_shows_in_small_logits_is_still_seen(tiny_model):
    # Logits near 1 under a cap of 30 change by z^3 / 2700, well under a thousandth, but more than the agreement allows.
    folder = tiny_model("gemma2", initializer_range=0.06, final_logit_softcapping=30.0)
    assert_agree(score(mialib.Scorer(folder)), naive_statistics(folder, TEXTS, start_token_id=0))


@pytest.mark.parametrize("family", ["llama", "phi"])
def test_bfloat16_weights_give_float32_statistics(family, tiny_model, monkeypatch):
    batch_budget(monkeypatch, 1)  # one text a batch, longest first
    scorer = mialib.Scorer(tiny_model(family, vocab_size=384), dtype="bfloat16")
    hidden_states = []
    scorer.loaded.model.base_model.register_forward_hook(lambda _, __, out: hidden_states.append(out[0]))
    stats = score(scorer)
    assert scorer.loaded.model.dtype == hidden_states[0].dtype == torch.bfloat16
    assert {column.dtype for column in (stats.log_prob, stats.entropy, stats.log_prob_var)} == {np.dtype("float32")}

    head = scorer.loaded.model.get_output_embeddings().double()
    reference = [None] * len(TEXTS)
    order = sorted(range(len(TEXTS)), key=lambda i: (-stats.n_tokens[i], -len(TEXTS[i]), i))
    for i, hidden in zip(order, hidden_states, strict=True):
        log_p = torch.log_softmax(head(hidden[0].double()), dim=-1)
        ids = torch.tensor(stats[i].token_ids).long()
        entropy = -(log_p.exp() * log_p).sum(-1)
        variance = (log_p.exp() * (log_p + entropy[:, None]) ** 2).sum(-1)
        reference[i] = (ids, log_p.gather(-1, ids[:, None])[:, 0], entropy, variance, log_p.amax(-1))
    # The same tolerances as in float32: nothing after the hidden states is rounded to bfloat16, whose logits
    # alone would be off by 0.01 nats and more.
    assert_agree(stats, [[column.numpy() for column in row] for row in reference])


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("family", ["gpt_neox", "phi"])  # without and with a bias of the head
def test_the_way_of_other_devices_agrees_with_a_processors(family, temperature, tiny_model, monkeypatch):
    scorer = mialib.Scorer(tiny_model(family), device="cpu")
    if family == "phi":
        torch.nn.init.normal_(scorer._head.bias, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(0, scorer.loaded.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0))
    targets, is_wanted = torch.arange(20), torch.ones(3, 9, dtype=torch.bool)
    is_wanted[1, 2:] = False
    with torch.inference_mode():
        by_columns = scorer._statistics(ids, is_wanted, targets, temperature)
        monkeypatch.setattr(scorer, "device", torch.device("mps"))  # rows of logits at a time, whole
        monkeypatch.setitem(scoring.LOGITS_AT_ONCE_BYTES, "mps", 4 * scorer.loaded.vocab_size * 3)
        monkeypatch.setattr(scoring, "head_statistics", None)
        np.testing.assert_allclose(scorer._statistics(ids, is_wanted, targets, temperature), by_columns, atol=1e-5)


@pytest.mark.parametrize(("n_tokens", "n_texts"), [(1, 100), (60, 100), (150, 2), (100_000, 100)])
def test_scores_do_not_depend_on_batches_or_order(n_tokens, n_texts, model_folder, reference, monkeypatch):
    batch_budget(monkeypatch, n_tokens)
    monkeypatch.setattr(scoring, "TEXTS_AT_ONCE", n_texts)
    order = [*np.random.default_rng(0).permutation(len(TEXTS)), 0]  # one of them twice
    stats = score(mialib.Scorer(model_folder), [TEXTS[i] for i in order])
    assert_agree(stats, [reference[i] for i in order])


@pytest.mark.parametrize("n_parts", [1, 5])
def test_scoring_that_broke_off_goes_on_to_the_same_bits(n_parts, model_folder, monkeypatch):
    monkeypatch.setattr(batches, "SECONDS_A_PART", 0)  # a part a text
    batch_budget(monkeypatch, 64)
    texts, saved, forwards = TEXTS * 3, [], []
    whole = score(mialib.Scorer(model_folder), texts)

    def save(part):
        saved.append(part)
        if len(saved) == n_parts:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mialib.Scorer(model_folder).score(texts, progress=False, saved=saved, save=save)
    assert sum(len(part.numbers) for part in saved) == n_parts
    scorer = mialib.Scorer(model_folder)
    forward = scorer._forward
    monkeypatch.setattr(scorer, "_forward", lambda ids, *of: forwards.append(len(ids)) or forward(ids, *of))
    again = scorer.score(texts, progress=False, saved=saved)
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(again, column), getattr(whole, column))
    np.testing.assert_array_equal(again.n_cut, whole.n_cut)
    assert again.provenance == whole.provenance
    # A batch that is not whole is scored again, so that it is the batch of before; the others are not.
    assert len(texts) - n_parts <= sum(forwards) < len(texts) - n_parts + max(forwards)


@pytest.mark.parametrize("n_parts", [1, 3, 50])
def test_parts_of_a_pass_are_of_its_batches_and_hold_its_bits(n_parts, model_folder, tmp_path, monkeypatch):
    batch_budget(monkeypatch, 64)
    monkeypatch.setattr(scoring, "TEXTS_AT_ONCE", 10)
    texts, scorer, run = [text for text in TEXTS for _ in range(3)], mialib.Scorer(model_folder), []
    forward = scorer._forward
    monkeypatch.setattr(scorer, "_forward", lambda ids, *of: run.append(ids) or forward(ids, *of))
    whole, of_whole = score(scorer, texts), run.copy()
    run.clear()
    for number in range(1, n_parts + 1):
        scorer.score(texts, part=(number, n_parts), progress=False).save(tmp_path / f"{number}.parquet")
    assert sorted(run) == sorted(of_whole), "the batches of the whole, each once"
    parts = [StatsPart.load(tmp_path / f"{number}.parquet") for number in range(1, n_parts + 1)]
    assert sorted(np.concatenate([part.numbers for part in parts])) == list(range(len(texts)))
    assert n_parts == 50 or min(len(part.numbers) for part in parts) >= len(texts) / n_parts / 2
    joined = TokenStats.joined(parts, provenance=parts[0].stats.provenance)
    for column in (*COLUMNS, "n_cut", "offsets"):
        np.testing.assert_array_equal(getattr(joined, column), getattr(whole, column))
    assert joined.provenance == whole.provenance
    run.clear()
    scorer.score(texts, part=(1, n_parts), progress=False, saved=parts[:1])
    assert not run, "a part goes on from what is there of it"


def limited_memory(scorer, n_tokens, error, monkeypatch):
    """A scorer whose forward pass fits only so many tokens, padding included; returns the sizes that were tried."""
    forward, tried = scorer._forward, []

    def limited(token_ids, *of):
        tried.append(len(token_ids) * len(token_ids[0]))
        if tried[-1] > n_tokens:
            raise error
        return forward(token_ids, *of)

    monkeypatch.setattr(scorer, "_forward", limited)
    return tried


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate")])
def test_a_batch_that_does_not_fit_is_halved_and_later_ones_are_smaller(error, model_folder, reference, monkeypatch):
    scorer, given = mialib.Scorer(model_folder), {"after": "The old mill.\n", "temperature": 2.0, "progress": False}
    whole = scorer.score(TEXTS, **given)
    tried = limited_memory(scorer, 150, error, monkeypatch)
    halved = scorer.score(TEXTS, **given)
    np.testing.assert_array_equal(halved.offsets, whole.offsets)
    np.testing.assert_allclose(halved.log_prob, whole.log_prob, atol=1e-5)
    assert max(tried) > 150 >= scorer.tokens_per_batch
    tried.clear()
    assert_agree(score(scorer), reference)
    assert max(tried) <= 150, "what did not fit is not tried again"


def random_logits(rows, vocabulary, scale=3.0, seed=0):
    return scale * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def one_far_above(margin):
    logits = random_logits(4, 50_304, scale=1.0)
    logits[:, 7] = logits.amax(1) + margin
    return logits


def masked():
    logits = random_logits(4, 50_304)
    logits[:, 1::2] = -torch.inf
    return logits


ROWS = {
    "random": lambda: random_logits(4, 50_304),
    "flat": lambda: random_logits(4, 50_304, scale=0.01),
    "p near 1": lambda: one_far_above(25.0),
    "p = 1 but for e-40": lambda: one_far_above(40.0),
    "around -90": lambda: random_logits(4, 50_304, scale=1.0) - 90,
    "half masked": masked,
    "vocabulary of 152,064": lambda: random_logits(2, 152_064),
}


def head_of(logits, bias=None):
    """Hidden states and an output head whose product is exactly these logits, to which a bias is added."""
    head = torch.nn.Linear(len(logits), logits.shape[1], bias=bias is not None).requires_grad_(False)
    head.weight.copy_(logits.T)
    if bias is not None:
        head.bias.copy_(bias)
    return torch.eye(len(logits)), head


@pytest.mark.parametrize("case", ROWS)
def test_row_statistics_agree_with_sums_over_the_vocabulary_in_float64(case):
    logits = ROWS[case]()
    targets = torch.tensor([0, 2, 50_000, 4][: len(logits)])
    assert_rows_agree(row_statistics(logits.clone(), targets), logits, targets)


@pytest.mark.parametrize(
    ("case", "n_columns"),
    [*((case, 7001) for case in ROWS if case != "half masked"), ("random", 1024), ("random", 50_304)],
)
def test_statistics_by_blocks_of_columns_agree_with_sums_over_the_vocabulary_in_float64(case, n_columns):
    logits = ROWS[case]()
    targets = torch.tensor([0, 2, 50_000, 4][: len(logits)])
    assert_rows_agree(head_statistics(*head_of(logits), targets, n_columns), logits, targets)


@pytest.mark.parametrize("descending", [False, True])
def test_blocks_whose_maximum_rises_or_falls_all_the_way_lose_no_digits(descending):
    logits = random_logits(3, 4096, scale=8.0).sort(dim=1, descending=descending)[0]
    targets = torch.tensor([0, 2048, 4095])  # 2048 is the first of a block
    assert_rows_agree(head_statistics(*head_of(logits), targets, 256), logits, targets)


def test_bfloat16_weights_lose_nothing_beyond_their_own_rounding():
    hidden, weight = random_logits(40, 512).bfloat16(), random_logits(3000, 512, scale=0.3).bfloat16()
    head = torch.nn.Linear(512, 3000, bias=False).requires_grad_(False).bfloat16()
    head.weight.copy_(weight)
    targets = torch.arange(40)
    for rows in (hidden, hidden.float() + 1e-4):  # numbers of bfloat16, and others, which must not be rounded to it
        assert_rows_agree(head_statistics(rows, head, targets, 256), rows.double() @ weight.double().T, targets)
    assert torch.backends.mkldnn.matmul.fp32_precision != "bf16"


def test_products_may_be_rounded_only_where_nothing_is_lost(monkeypatch):
    asked, half, cpu = torch.backends.mkldnn.matmul, torch.ones(1).bfloat16(), torch.device("cpu")
    for factors, exact in (((half, half), True), ((half, half.float()), False)):
        with models.exact_products(*factors):
            assert (asked.fp32_precision == "bf16") == exact
    for keeps, n, device in (
        (True, 10**7, cpu),
        (True, 10**6, cpu),
        (False, 10**7, cpu),
        (True, 10**7, torch.device("cuda")),
    ):
        monkeypatch.setattr(models, "keeps_float32", lambda keeps=keeps: keeps)
        with models.fast_products(SimpleNamespace(device=device, num_parameters=lambda n=n: n)):
            assert (asked.fp32_precision == "bf16") == (keeps and n == 10**7 and device == cpu)


def test_blocks_and_tokens_that_are_masked_add_nothing():
    logits, bias = random_logits(3, 600), torch.zeros(600)
    bias[:256], bias[300::2] = -torch.inf, -torch.inf  # the first block whole
    targets = torch.tensor([257, 299, 301])
    found = head_statistics(*head_of(logits, bias), targets, 128)
    assert_rows_agree(found, logits + bias, targets)
    log_prob, entropy, variance, top_log_prob = row_statistics(
        torch.tensor([[0.0, 0.0, -torch.inf]]), torch.tensor([2])
    )
    assert log_prob.item() == -torch.inf  # which the scorer reports as an error, see below
    assert entropy.item() == -top_log_prob.item() == pytest.approx(np.log(2))
    assert variance.item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("case", ["random", "p near 1", "around -90"])
def test_the_variance_is_the_second_derivative_of_log_sum_exp(case):
    # Var = d^2/db^2 log sum_v e^(b z_v) at b = 1, here by a central difference in 40 digits.
    logits = ROWS[case]()[:1, :2000].contiguous()
    _, entropy, variance, _ = row_statistics(logits.clone(), torch.tensor([0]))
    with mpmath.workdps(40):
        z = [mpmath.mpf(v) for v in logits[0].double().tolist()]
        h = mpmath.mpf("1e-6")
        below, at, above = (mpmath.log(sum(mpmath.exp(b * v) for v in z)) for b in (1 - h, 1, 1 + h))
        assert variance.item() == pytest.approx(float((above - 2 * at + below) / h**2), rel=2e-5)
        # And by the first derivative, sum p z: H = log sum e^z - sum p z.
        assert entropy.item() == pytest.approx(float(at - (above - below) / (2 * h)), abs=5e-6, rel=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_log_prob_that_is_not_finite_names_the_text(value, model_folder):
    scorer = mialib.Scorer(model_folder)
    week = scorer.token_ids(["week"])[0][0]
    # The output row of the token that only one of the texts holds; NaN and inf there spoil each row's sum.
    scorer._head.weight.data[week] = value if np.isnan(value) else torch.sign(scorer._head.weight[week]) * value
    with pytest.raises(ValueError, match=r"text \d, token \d+: log-prob .*nan"):
        score(scorer, ["the mill", "week"])


def test_a_target_that_the_model_rules_out_names_the_text(model_folder, monkeypatch):
    scorer = mialib.Scorer(model_folder)
    week = scorer.token_ids(["week"])[0][0]
    bias = torch.zeros(scorer.loaded.vocab_size)
    bias[week] = -torch.inf
    monkeypatch.setattr(scorer, "_head", SimpleNamespace(weight=scorer._head.weight, bias=bias))
    with pytest.raises(ValueError, match=r"text 1, token 0: log-prob -inf.*'week'"):
        score(scorer, ["the mill", "week"])


@pytest.fixture
def peak_mb():
    """A function that says how far memory has grown at its peak, since the test began."""
    status = Path("/proc/self/status")

    def peak():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1024

    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is taken now
        before = peak()
    except (OSError, TypeError):
        pytest.skip("reads and resets peak memory in Linux's way")
    return lambda: peak() - before


def test_memory_stays_under_a_gigabyte_at_a_vocabulary_of_152064(tmp_path, peak_mb):
    # All logits of the 2,300 tokens at once would take 1.4 GB, and a softmax as much again.
    save_tiny_model(tmp_path, "LlamaConfig", hidden_size=8, intermediate_size=8, vocab_size=152_064)
    stats = score(mialib.Scorer(tmp_path), [SENTENCES[4] + str(i) for i in range(40)])
    assert stats.n_tokens.sum() > 2300 and peak_mb() < 1024


def test_a_long_text_is_cut_and_counted_in_little_memory(model_folder, peak_mb):
    """Of a hundred texts of 200,000 characters each no more are tokenized at once than fit."""
    stats = score(mialib.Scorer(model_folder), ["week" * 250_000, *["the mill " * 10_000] * 20])
    assert peak_mb() < 900
    n_tokens = [len(ids) for ids in batches.encode(make_tokenizer(), ["week" * 2000, "the mill " * 10_000])]
    assert stats.n_cut[:2].tolist() == [125 * n_tokens[0] - CONTEXT, n_tokens[1] - CONTEXT]


def test_the_start_token_predicts_the_first_token_and_without_it_the_text_begins_itself(model_folder):
    with_start = score(mialib.Scorer(model_folder))
    without = score(mialib.Scorer(model_folder, start_token=None))
    ids = AutoTokenizer.from_pretrained(model_folder)(TEXTS)["input_ids"]
    assert [row.token_ids.tolist() for row in with_start] == ids
    assert [row.token_ids.tolist() for row in without] == [text[1:] for text in ids]
    assert not np.allclose(with_start[0].log_prob[1:], without[0].log_prob), "the start token is context too"
    # The reference's start token may be any token: here each text's own first one, the rest being the text.
    stats = score(mialib.Scorer(model_folder, start_token=None))
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    for row, text in zip(stats, TEXTS, strict=True):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            log_p = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        expected = [float(log_p[i, ids[i + 1]]) for i in range(len(ids) - 1)]
        np.testing.assert_allclose(row.log_prob, expected, atol=1e-4)


def test_a_tokenizer_that_adds_a_start_token_itself_gets_no_second_one(model_folder, tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    AutoModelForCausalLM.from_pretrained(model_folder).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("the")["input_ids"][0] == 0, "the tokenizer must add one"
    assert_agree(score(mialib.Scorer(str(tmp_path))), naive_statistics(model_folder, TEXTS, start_token_id=0))


def test_auto_takes_the_start_token_then_the_end_token_then_fails(tmp_path):
    both = make_tokenizer(bos_token="<s>", eos_token="</s>")
    end_alone, unknown = make_tokenizer(eos_token="</s>"), make_tokenizer(unk_token="<pad>", eos_token="</s>")
    same = make_tokenizer(bos_token="</s>", eos_token="</s>")
    assert (find_start_tokens(both, "llama"), find_start_tokens(end_alone, "qwen2")) == ((0,), (1,))
    assert (find_start_tokens(same, "opt"), find_start_tokens(same, "llama")) == ((0,), (1,)), "OPT's paper's own token"
    assert find_start_tokens(unknown, "llama", "<pad>") == (2,)
    with pytest.raises(ValueError, match="start"):
        find_start_tokens(make_tokenizer(pad_token="<pad>"), "qwen2")
    with pytest.raises(ValueError, match="'<nowhere>'"):  # which is not taken for the unknown token
        find_start_tokens(unknown, "llama", "<nowhere>")
    folder = save_tiny_model(tmp_path, **FAMILIES["gpt_neox"], tokenizer=end_alone)
    scorer = mialib.Scorer(folder)
    assert scorer.loaded.start_token_ids == (1,)
    assert_agree(score(scorer), naive_statistics(folder, TEXTS, start_token_id=1))


@pytest.fixture
def glm_folder(tmp_path):
    return save_tiny_model(tmp_path / "glm", **FAMILIES["llama"], tokenizer=make_glm_tokenizer())


def test_after_several_start_tokens_the_text_alone_is_scored(glm_folder):
    scorer = mialib.Scorer(glm_folder)
    stats, texts = score(scorer), [*TEXTS, "e"]
    assert_agree(stats, naive_statistics(glm_folder, TEXTS, start_token_id=(1, 2)))
    assert (stats.provenance["start_token_id"], stats.provenance["start_token"]) == ([1, 2], "[gMASK]<sop>")
    assert_agree(score(scorer, texts), naive_statistics(glm_folder, texts, start_token_id=(1, 2)))
    long = "Q" * (2 * CONTEXT)
    assert score(scorer, [long]).n_tokens.tolist() == [CONTEXT - 1]  # both start tokens are read
    before = [1, 2, *scorer.token_ids([TEXTS[3]])[0]]
    after = scorer.score(TEXTS[:5], after=TEXTS[3], progress=False)
    assert_agree(after, naive_statistics(glm_folder, TEXTS[:5], start_token_id=before))
    single = mialib.Scorer(glm_folder, start_token="<sop>")
    assert_agree(score(single), naive_statistics(glm_folder, TEXTS, start_token_id=2))


def test_variants_share_what_several_start_tokens_predict(glm_folder):
    scorer, text = mialib.Scorer(glm_folder), TEXTS[0]
    variants = [text, text.replace("mill", "stone"), "A" + text, text[:30], "the"]
    found = log_probs_of_variants(scorer, score(scorer, [text])[0], variants)
    for log_prob, row in zip(found, score(scorer, variants), strict=True):
        np.testing.assert_allclose(log_prob, row.log_prob, atol=1e-5)


def test_special_tokens_are_text_inside_a_text_and_one_token_is_scored(model_folder):
    scorer = mialib.Scorer(model_folder)
    stats = score(scorer, ["e", TEXTS[0]])
    assert stats.n_tokens.tolist() == [1, 42]
    assert_agree(stats, naive_statistics(model_folder, ["e", TEXTS[0]], start_token_id=0))
    assert len(score(scorer, [])) == 0
    scorer = mialib.Scorer(model_folder)
    tokenizer = scorer.loaded.tokenizer
    text = f"before {tokenizer.eos_token} after {tokenizer.bos_token}"
    [row] = scorer.score([text], progress=False)
    assert not set(row.token_ids.tolist()) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(row.token_ids) == text
    counts = mialib.count_tokens([text], tokenizer, scorer.loaded.vocab_size, name="one text").counts
    np.testing.assert_array_equal(counts, np.bincount(row.token_ids, minlength=len(counts)))


@pytest.mark.parametrize(
    ("texts", "given", "said"),
    [
        (["a text", "  \n"], {}, "text 1 is empty: "),
        ("the river", {}, "a list "),  # not of letters
        ([TEXTS[0], "e"], {"after": "The old mill.\n"}, "text 1 "),
        ([*TEXTS[:3], "e", TEXTS[4]], {}, "text 3 .*'e'"),
        *((TEXTS, {"temperature": of}, f"temperature .*{of}") for of in (0, np.nan, np.inf)),
    ],
)
def test_what_cannot_be_scored_is_named(texts, given, said, model_folder, monkeypatch):
    monkeypatch.setattr(scoring, "TEXTS_AT_ONCE", 2)
    with pytest.raises(ValueError, match=said):
        mialib.Scorer(model_folder, start_token=None).score(texts, progress=False, **given)


def test_a_text_longer_than_the_context_is_cut_counted_and_reported(model_folder, caplog):
    scorer = mialib.Scorer(model_folder)
    long = " ".join(SENTENCES)
    n_tokens = len(scorer.token_ids([long])[0])
    assert n_tokens > CONTEXT
    stats = score(scorer, [TEXTS[0], long, TEXTS[1]])

    n_scored = stats.n_tokens[1]
    assert n_scored == CONTEXT  # the model reads the start token and all scored tokens but the last
    assert stats.n_cut.tolist() == [0, n_tokens - n_scored, 0]
    assert re.search(rf"1 of 3 texts .*{CONTEXT} tokens.*{n_tokens - n_scored} tokens", caplog.text)

    short = naive_statistics(model_folder, [TEXTS[0], TEXTS[1]], start_token_id=0)
    ids = scorer.token_ids([long])[0][:n_scored]
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float64)
    with torch.no_grad():
        log_p = torch.log_softmax(model(torch.tensor([[0, *ids[:-1]]])).logits[0], -1)
    np.testing.assert_allclose(stats[1].log_prob, [float(log_p[i, t]) for i, t in enumerate(ids)], atol=1e-4)
    assert_agree([stats[0], stats[2]], short)

    caplog.clear()
    text = "Q" * CONTEXT  # a letter that the tokenizer's sentences lack, so it joins no other
    fits = score(scorer, [text])
    assert (fits.n_tokens.tolist(), fits.n_cut.tolist()) == ([CONTEXT], [0]) and "longer than" not in caplog.text


def test_provenance_pins_model_texts_and_settings_and_the_tokenizers_hash_its_tokens(model_folder, tiny_model):
    scorer = mialib.Scorer(model_folder)
    recorded = score(scorer).provenance
    assert recorded == scorer.provenance(TEXTS)
    expected = {"model": model_folder, "dtype": "float32", "start_token_id": 0, "n_texts": len(TEXTS)}
    assert {name: recorded[name] for name in expected} == expected
    without, other = mialib.Scorer(model_folder, start_token=None), mialib.Scorer(tiny_model("llama"))
    assert recorded["texts"] != scorer.provenance(TEXTS[::-1])["texts"]
    assert recorded["start_token_id"] != without.provenance(TEXTS)["start_token_id"]
    assert recorded["revision"] != other.provenance(TEXTS)["revision"]
    assert recorded["tokenizer"] == other.provenance(TEXTS)["tokenizer"]
    tokenizer = make_tokenizer(bos_token="<s>", pad_token="<pad>")
    before = tokenizer_hash(tokenizer)
    tokenizer(TEXTS, padding=True, truncation=True, max_length=8)
    assert tokenizer_hash(tokenizer) == before
    other = make_tokenizer(bos_token="<s>", pad_token="<pad>")
    other.add_tokens(["millstone"])
    assert tokenizer_hash(other) != before


@pytest.mark.parametrize("family", ["gpt_neox", "phi", *AFTER_THE_HEAD])  # no bias, a bias, the whole model
def test_another_temperature_agrees_with_its_full_softmax(family, tiny_model):
    temperature = 2
    scorer = mialib.Scorer(tiny_model(family))
    found = scorer.score(TEXTS, temperature=temperature, progress=False)
    assert_agree(found, naive_statistics(tiny_model(family), TEXTS, start_token_id=0, temperature=temperature))
    assert found.provenance == score(scorer).provenance | {"temperature": temperature}


def test_what_a_tempered_pass_is_for_agrees_with_the_whole_distribution(model_folder):
    scorer, texts = mialib.Scorer(model_folder), [text for text in TEXTS if len(text) < 25]  # the oracle is slow
    temperatures = (1.0, mialib.detectors.TEMPERATURE)
    own, tempered = (scorer.score(texts, temperature=temperature, progress=False) for temperature in temperatures)
    for i, row in enumerate(own):
        ids = torch.tensor([[*scorer.loaded.start_token_ids, *row.token_ids]])
        with torch.no_grad():
            log_p = torch.log_softmax(scorer.loaded.model.double()(ids).logits[0, :-1], dim=-1).tolist()
        of = oracles.of_tempered(log_p, row.token_ids.tolist(), 20)
        for name, options in (("max_renyi_half", {"k": 20}), ("acmia_ac", {}), ("acmia_deriv", {}), ("acmia_norm", {})):
            score_of = mialib.DETECTORS[name].score_text
            given = {"tempered": tempered[i]} if mialib.DETECTORS[name].needs else {}
            assert score_of(row, **given, **options) == pytest.approx(of[name], rel=2e-4, abs=2e-4), (i, name)


@pytest.mark.parametrize("start_token", ["auto", None])
def test_texts_after_others_are_scored_as_one_whole_text_would_be(model_folder, start_token, monkeypatch):
    monkeypatch.setattr(scoring, "TEXTS_AT_ONCE", 2)
    scorer = mialib.Scorer(model_folder, start_token=start_token)
    before, texts = "The old mill stands near the river.\n", TEXTS[:5]
    found = scorer.score(texts, after=before, progress=False)
    n_before = len(scorer.token_ids([before])[0])
    for text, row in zip(texts, found, strict=True):
        own = scorer.token_ids([text])[0]
        ids = [*scorer.loaded.start_token_ids, *scorer.token_ids([before])[0], *own]
        begin = max(0, len(scorer.loaded.start_token_ids) - 1)
        [whole] = scorer.score_batch([ids[: scorer.loaded.max_tokens + 1]], [begin])
        n = len(whole.log_prob) - n_before
        assert row.token_ids.tolist() == whole.token_ids[-n:].tolist()
        np.testing.assert_allclose(row.log_prob, whole.log_prob[-n:], atol=1e-5)
    assert found.provenance["after"] and "after" not in scorer.score(texts, progress=False).provenance


ROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [8.0] * 4}
LONGROPE = {"config": "Phi3Config", "initializer_range": 0.3, "intermediate_size": 64} | {
    "max_position_embeddings": CONTEXT,
    "original_max_position_embeddings": 24,
    "rope_parameters": ROPE | {"original_max_position_embeddings": 24},
}


@pytest.mark.parametrize("family", [*FAMILIES, *AFTER_THE_HEAD, "longrope"])
def test_a_text_scores_the_same_alone_and_beside_a_longer_one(family, tiny_model, tmp_path, monkeypatch):
    """A model with LongRoPE turns all positions by other angles where the batch's longest text is long."""
    folder = save_tiny_model(tmp_path, **LONGROPE) if family == "longrope" else tiny_model(family)
    monkeypatch.setattr(batches, "PADDING_SHARE", 1.0)  # any two texts may share a batch
    scorer, texts = mialib.Scorer(folder), ["q" * n for n in (3, 22, 23, 24, 25, 26, 60)]
    alone = [score(scorer, [text])[0] for text in texts]
    assert {len(row.log_prob) for row in alone} >= {24, 25}, "both sides of the border"
    for row, its_own in zip(score(scorer, texts), alone, strict=True):
        np.testing.assert_allclose(np.array(row), np.array(its_own), atol=1e-4)
    if family == "longrope":
        [of_variant] = log_probs_of_variants(scorer, score(scorer, ["q" * 25])[0], ["q" * 24])
        np.testing.assert_allclose(of_variant, score(scorer, ["q" * 24])[0].log_prob, atol=1e-4)


def test_threads_that_share_a_scorer_take_turns(model_folder):
    scorer = mialib.Scorer(model_folder)
    lists = [TEXTS[i:] + TEXTS[:i] for i in range(len(TEXTS))]
    expected = [score(scorer, texts) for texts in lists]
    with ThreadPoolExecutor(4) as pool:
        for ours, theirs in zip(pool.map(lambda texts: score(scorer, texts), 3 * lists), 3 * expected, strict=True):
            np.testing.assert_array_equal(ours.log_prob, theirs.log_prob)


def test_a_batch_may_fill_its_budget_and_a_quarter_of_a_row_may_be_padding():
    def batched(lengths, budget=100, borders=(), n_free=0):
        return list(batches.token_batches([[0] * n for n in lengths], lambda: budget, borders, n_free=n_free))

    together, apart = [[0, 1]], [[0], [1]]
    assert batched([4, 4], budget=8) == together and batched([4, 4], budget=7) == apart
    assert batched([4, 3]) == together and batched([5, 3]) == apart
    assert batched([4, 3], borders=[3]) == apart and batched([4, 3], borders=[2, 4]) == together
    assert batched([5, 3], n_free=2) == together and batched([5, 3, 3], n_free=3) == [[0, 1], [2]]
