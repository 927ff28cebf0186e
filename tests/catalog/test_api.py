"""Models behind an API: a real server on localhost that speaks the protocol and runs a tiny model."""

import json
import logging
import re
import threading
import traceback
from collections import Counter

import numpy as np
import pytest
from api_server import KEY, Server, of_logprobs, set_log_prob, stop_after
from conftest import SENTENCES, TEXTS, make_tokenizer, random_rows
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import mialib
from mialib import TokenStats
from mialib.catalog.hub import Unavailable
from mialib.detectors import DETECTORS
from mialib.passes.cache import (
    count_or_load,
    neighbor_log_probs_or_load,
    neighbors_or_load,
    score_cut_texts,
    score_or_load,
)
from mialib.passes.inputs import Target, load_inputs, score_all, score_grid
from mialib.store import hash_texts
from mialib.token_stats import COLUMNS, NUMBERS
from replication.remote import api, services
from replication.remote.services import read_lines
from replication.results import measure
from replication.tables import what_ran


@pytest.fixture
def server(model_folder, monkeypatch):
    server = Server(model_folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("MIALIB_API_TOKENIZER", "MIALIB_API_PRICE", "MIALIB_API_REQUESTS_PER_MINUTE"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def with_tokenizer(server, model_folder, monkeypatch):
    monkeypatch.setenv("MIALIB_API_TOKENIZER", model_folder)


@pytest.fixture(params=[False, True])
def has_tokenizer(request, server, model_folder, monkeypatch):
    """Whether the model's tokenizer is known: a test that asks for this runs both ways."""
    if request.param:
        monkeypatch.setenv("MIALIB_API_TOKENIZER", model_folder)
    return request.param


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(services, "MAX_ATTEMPTS", 1)


def local(folder, texts, start_token="auto"):
    return mialib.Scorer(folder, start_token=start_token).score(texts, progress=False)


def assert_same_log_probs(model, texts, locally, **options):
    ours = score_or_load(model, texts, **options)
    np.testing.assert_allclose(ours.log_prob, locally.log_prob, atol=1e-4)
    return ours


def assert_scores_agree(ours, locally, names, given, given_locally):
    for name in names:
        needs = DETECTORS[name].needs
        found = mialib.detect(name, ours, **{need: given[need] for need in needs})
        expected = mialib.detect(name, locally, **{need: given_locally[need] for need in needs})
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0, err_msg=name)


def test_with_a_tokenizer_all_scores_are_those_of_the_local_model(server, with_tokenizer, model_folder, tiny_model):
    corpus = mialib.store.home() / "corpus.txt"
    corpus.parent.mkdir(parents=True)
    corpus.write_text("\n".join(SENTENCES * 3))
    lowered = [text.lower() for text in TEXTS]
    reference = local(tiny_model("gpt2"), TEXTS)
    given = {"texts": TEXTS, "reference": reference}
    by_api, by_model = (
        given | {"lowercase": score_or_load(m, lowered), "frequency": count_or_load(str(corpus), m)}
        for m in ("api:tiny", model_folder)
    )
    ours, locally = score_or_load("api:tiny", TEXTS), local(model_folder, TEXTS)
    assert [row.token_ids.tolist() for row in ours] == [row.token_ids.tolist() for row in locally]
    np.testing.assert_allclose(ours.log_prob, locally.log_prob, atol=1e-4)
    names = ("ppl", "lowercase", "zlib", "ref", "min_k", "dc_pdd")
    assert_scores_agree(ours, locally, names, by_api, by_model)
    assert all(prompt[0] == 0 for prompt in server.prompts()), "the start token goes first"
    of_papers = {name for name, known in DETECTORS.items() if not known.is_later}
    assert set(names) | {"min_k++", "surp", "neighbor"} == of_papers, "a new detector: does an API give its columns?"


def write_ids(server, change=lambda ids: ids):
    """Have the server write `token_id:5` in place of each token, as vLLM does after --return-tokens-as-token-ids."""
    complete = server.complete

    def with_ids(body):
        reply, ids = complete(body), body["prompt"]
        if isinstance(ids, str):
            ids = server.tokenizer(ids, add_special_tokens=False)["input_ids"]
        [choice] = reply["choices"]
        choice["logprobs"]["tokens"] = [f"token_id:{i}" for i in [*change(list(ids)), *[5] * body["max_tokens"]]]
        return reply

    server.complete = with_ids


@pytest.mark.parametrize("takes_ids", [True, False])
def test_token_ids_in_place_of_tokens_are_taken(takes_ids, server, with_tokenizer, model_folder):
    server.takes_ids = takes_ids
    write_ids(server)
    assert_same_log_probs("api:tiny", TEXTS, local(model_folder, TEXTS))


def test_other_token_ids_than_were_sent_are_refused(server, with_tokenizer, monkeypatch):
    write_ids(server, lambda ids: [*ids[:2], ids[2] + 1, *ids[3:]])
    with pytest.raises(ValueError, match="MIALIB_API_TOK"):
        score_or_load("api:tiny", TEXTS)
    monkeypatch.delenv("MIALIB_API_TOKENIZER")
    with pytest.raises(ValueError, match="MIALIB_API_TOKENIZER"):
        score_or_load("api:tiny", TEXTS)


def test_a_prefix_cache_that_leaves_zeros_is_named_and_asked_again(server, with_tokenizer, model_folder):
    def leave_zeros(reply):
        [choice] = reply["choices"]
        log_probs = choice["logprobs"]["token_logprobs"]
        log_probs[1:17] = [0.0] * len(log_probs[1:17])

    server.change = leave_zeros
    with pytest.raises(ValueError, match="text 0, scored tokens 0 to 15"):
        score_or_load("api:tiny", TEXTS)
    server.change = lambda reply: None
    assert_same_log_probs("api:tiny", TEXTS, local(model_folder, TEXTS))


@pytest.mark.parametrize("adds_start_token", [False, True])
def test_without_a_tokenizer_no_first_token(server, model_folder, reference_folder, adds_start_token):
    server.adds_start_token = adds_start_token
    start, lowered = "auto" if adds_start_token else None, [text.lower() for text in TEXTS]
    ours, locally = score_or_load("api:tiny", TEXTS), local(model_folder, TEXTS, start)
    given, given_locally = (
        {"texts": TEXTS, "lowercase": lowercase, "reference": local(reference_folder, TEXTS, start)}
        for lowercase in (score_or_load("api:tiny", lowered), local(model_folder, lowered, start))
    )
    assert_scores_agree(ours, locally, ("ppl", "lowercase", "zlib", "ref", "min_k"), given, given_locally)
    assert (ours.token_ids == -1).all()
    assert ours.n_tokens.tolist() == locally.n_tokens.tolist()


@pytest.mark.parametrize("start_token", [None, "</s>"])
def test_the_start_token_is_the_callers_choice(server, with_tokenizer, model_folder, start_token):
    locally = local(model_folder, TEXTS, start_token=start_token)
    ours = assert_same_log_probs("api:tiny", TEXTS, locally, start_token=start_token)
    assert ours.token_ids.tolist() == locally.token_ids.tolist()


@pytest.mark.parametrize("adds_start_token", [False, True])
def test_a_server_that_takes_no_ids_is_sent_text_that_it_cuts_alike(
    server, with_tokenizer, model_folder, adds_start_token
):
    server.takes_ids, server.adds_start_token = False, adds_start_token
    ours = assert_same_log_probs("api:tiny", TEXTS, local(model_folder, TEXTS))
    assert ours.provenance["sent_as"] == ("text" if adds_start_token else "start token and text")
    assert all(isinstance(prompt, str) for prompt in server.prompts()) and len(server.prompts()) == len(TEXTS)
    assert len(server.probes) == 2 + adds_start_token, "a 500 is not asked for again while another way is left"


def test_white_space_that_ends_a_text_is_no_token_that_was_written_after_it(server, model_folder):
    texts = [f"{SENTENCES[0]} "]
    assert_same_log_probs("api:tiny", texts, local(model_folder, texts, start_token=None))
    server.change = lambda reply: reply.pop("usage")
    with pytest.raises(ValueError, match="text 0"):
        score_or_load("api:tiny", ["a  "])


def test_log_probs_of_other_tokens_are_refused_before_any_text_is_sent(server):
    def answer(handler, body):
        of = (reply := server.complete(body))["choices"][0]["logprobs"]
        of["token_logprobs"][1:] = [-9.0] * (len(of["tokens"]) - 1)
        return handler.send(200, json.dumps(reply))

    server.of_probe = answer
    with pytest.raises(ValueError, match=re.escape(server.url)):
        score_or_load("api:tiny", TEXTS)
    assert not server.asked


def test_neighbors_are_scored_by_the_api(server, with_tokenizer, model_folder, masked_folder):
    texts = SENTENCES[:2]
    ours = neighbor_log_probs_or_load("api:tiny", texts, masked_folder, n_neighbors=3)
    made = neighbors_or_load(texts, masked_folder, n_neighbors=3)
    expected = [[row.log_prob.mean() for row in local(model_folder, of_text)] for of_text in made]
    np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_cut_texts_are_asked_for_where_they_are_no_prefix(server, with_tokenizer, model_folder, monkeypatch):
    whole, cut = SENTENCES[:2], [text[:22] for text in SENTENCES[:2]]
    expected, n_reused = score_cut_texts(model_folder, score_or_load(model_folder, whole), cut)
    ours, n_reused_by_api = score_cut_texts("api:tiny", score_or_load("api:tiny", whole), cut)
    np.testing.assert_allclose(ours.log_prob, expected.log_prob, atol=1e-4)
    assert n_reused_by_api == n_reused
    monkeypatch.delenv("MIALIB_API_TOKENIZER")
    assert score_cut_texts("api:tiny", score_or_load("api:tiny", whole), cut)[1] == 0


def test_a_detector_whose_columns_an_api_lacks_is_not_applicable(with_tokenizer, corpus_file, monkeypatch):
    stats = score_or_load("api:tiny", TEXTS)
    assert np.isnan(stats.entropy).all() and np.isnan(stats.log_prob_var).all()
    assert set(stats.lacks) == {"entropy", "log_prob_var", "top_log_prob"}
    for ask in (lambda: mialib.detect("min_k++", stats), lambda: mialib.surp_grid(stats, [2.5], [40])):
        with pytest.raises(ValueError, match="api:tiny"):
            ask()
    monkeypatch.delenv("MIALIB_API_TOKENIZER")
    stats = score_or_load("api:tiny", TEXTS)
    assert set(stats.lacks) == {"entropy", "log_prob_var", "top_log_prob", "token_ids"}
    flat = mialib.TokenFrequency(np.ones(400, np.int64), "flat")
    for ask in (
        lambda: mialib.detect("dc_pdd", stats, frequency=flat),
        lambda: count_or_load(corpus_file, "api:tiny"),
        lambda: score_or_load("api:tiny", TEXTS, start_token="<s>"),
    ):
        with pytest.raises(ValueError, match="MIALIB_API_TOKENIZER"):
            ask()
    with pytest.raises(ValueError, match="weights"):
        mialib.Scorer("api:tiny")


@pytest.mark.parametrize(("column", "is_known_to_lack"), [("entropy", False), ("log_prob", True)])
def test_statistics_without_entropy_are_checked_as_strictly_otherwise(column, is_known_to_lack):
    [row] = random_rows(0, [5])
    lacking = {"lacks": {"entropy": "none is given"}}
    TokenStats.from_rows([row._replace(entropy=np.full(5, np.nan))], provenance=lacking).check_finite()
    stats = TokenStats.from_rows(
        [row._replace(**{column: np.full(5, np.nan)})], provenance=lacking if is_known_to_lack else {}
    )
    with pytest.raises(ValueError, match=f"{column} is nan"):
        stats.check_finite()


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_reads_no_column_that_it_does_not_name(name):
    rows = random_rows(1, [7, 12])
    unread = set(COLUMNS) - {"log_prob", *DETECTORS[name].reads}
    poison = {"token_ids": 49} | dict.fromkeys(NUMBERS, np.nan)
    poisoned = [row._replace(**{c: np.full(len(row.log_prob), poison[c]) for c in unread}) for row in rows]
    given = {
        "texts": ["one", "two"],
        "lowercase": TokenStats.from_rows(rows[::-1], provenance={}),
        "reference": TokenStats.from_rows(rows[::-1], provenance={}),
        "frequency": mialib.TokenFrequency(np.arange(50), "made"),
        "neighbors": np.full((2, 3), -2.0),
    }
    given |= dict.fromkeys(
        ("after_non_members", "after_members", "after_others"), TokenStats.from_rows(rows, provenance={})
    )
    if name in ("wbc", "ez_mia", "max_renyi_half", "acmia_ac"):  # of the same tokens
        given["reference"] = given["tempered"] = TokenStats.from_rows(
            [row._replace(log_prob=row.log_prob - 1) for row in rows], provenance={}
        )
    given = {need: given[need] for need in DETECTORS[name].needs}
    expected = mialib.detect(name, TokenStats.from_rows(rows, provenance={}), **given)
    lacking = {"lacks": dict.fromkeys(unread, "it is not read")}
    np.testing.assert_array_equal(
        mialib.detect(name, TokenStats.from_rows(poisoned, provenance=lacking), **given), expected
    )


def test_a_tables_dashes(server, model_folder, benchmark_file, corpus_file, has_tokenizer):
    reference = model_folder if has_tokenizer else None
    inputs = load_inputs(Target(model="api:tiny", benchmark=benchmark_file, reference=reference, corpus=corpus_file))
    scores = score_all(inputs)
    dashes = {"min_k++", "surp"} | (set() if has_tokenizer else {"dc_pdd", "ref"})
    assert {name for name, values in scores.items() if values is None} == dashes
    measured = {r.row: r.ours for r in measure(inputs.labels, scores, inputs.target.column)}
    assert measured["SURP"] is None and (measured["DC-PDD"] is not None) == has_tokenizer
    with pytest.raises(ValueError, match="api:tiny"):
        score_grid(inputs, "surp", {"k": [20, 40]})
    assert f"api:tiny (tiny-1 at {server.url}, " in what_ran([inputs]).loc["api:tiny"].item()


def replies_files():
    return list(mialib.store.home().rglob("*.replies.jsonl"))


def test_a_second_run_asks_for_nothing_and_needs_no_endpoint(server, with_tokenizer, monkeypatch):
    first = score_or_load("api:tiny", TEXTS)
    assert len(server.asked) == len(TEXTS) and not replies_files()
    server.shutdown()
    monkeypatch.delenv("OPENAI_API_KEY")
    again = score_or_load("api:tiny", TEXTS)
    np.testing.assert_array_equal(again.log_prob, first.log_prob)
    assert again.provenance == first.provenance
    assert first.provenance["revision"] == f"tiny-1 at {server.url}" and first.provenance["n_texts"] == len(TEXTS)


@pytest.mark.parametrize("differs", ["model", "endpoint", "text", "start token", "tokenizer"])
def test_what_misses_the_cache(server, with_tokenizer, impatient, monkeypatch, differs):
    score_or_load("api:tiny", TEXTS, start_token=None)
    server.before = server.of_probe = lambda handler, body: handler.refuse(401, "asked")
    if differs == "endpoint":
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/")
        assert len(score_or_load("api:tiny", TEXTS, start_token=None)) == len(TEXTS), "the same but for a slash"
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/other")
    if differs == "tokenizer":
        monkeypatch.delenv("MIALIB_API_TOKENIZER")
    with pytest.raises(Unavailable, match="401"):
        score_or_load(
            "api:other" if differs == "model" else "api:tiny",
            [*TEXTS, "one more text"] if differs == "text" else TEXTS,
            start_token="</s>" if differs == "start token" else None,
        )


def test_a_run_that_breaks_off_goes_on(server, model_folder, impatient, has_tokenizer):
    server.before = stop_after(3)
    with pytest.raises(Unavailable, match=f"{len(TEXTS)} different texts 3 "):
        score_or_load("api:tiny", TEXTS)
    [replies] = replies_files()
    assert len(replies.read_text().splitlines()) == 3 and not list(mialib.store.home().rglob("*.parquet"))
    with replies.open("a") as file:
        file.write('{"text": "ab')  # as a crash leaves a line
    server.before = lambda handler, body: False
    server.asked.clear()
    stats = score_or_load("api:tiny", TEXTS)
    assert len(server.asked) == len(TEXTS) - 3
    assert not replies.exists()
    expected = local(model_folder, TEXTS, start_token="auto" if has_tokenizer else None)
    np.testing.assert_allclose(stats.log_prob, expected.log_prob, atol=1e-4)


def test_a_list_without_the_text_that_failed_pays_for_no_other_again(server, impatient):
    bad = "word " * 200
    server.before = lambda handler, body: body["prompt"] == bad and handler.refuse(400, "maximum context length is 96")
    with pytest.raises(ValueError, match=r"text 4 .*maximum context length is 96"):
        score_or_load("api:tiny", [*SENTENCES[:4], bad])
    paid = [prompt for prompt in server.prompts() if prompt != bad]
    server.asked.clear()
    assert len(score_or_load("api:tiny", SENTENCES[:4])) == 4
    assert Counter(paid + server.prompts()) == Counter(SENTENCES[:4])


def test_costs_are_of_what_is_missing(server, with_tokenizer, monkeypatch, caplog, impatient):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("MIALIB_API_PRICE", "2000")
    server.before = stop_after(1)
    with pytest.raises(Unavailable):
        score_or_load("api:tiny", SENTENCES[:3])
    server.before = lambda handler, body: False
    kept = {reply["text"] for reply in read_lines(replies_files()[0])}
    score_or_load("api:tiny", SENTENCES[:3])
    score_or_load("api:tiny", SENTENCES[:3])
    n = {hash_texts([t]): 1 + len(make_tokenizer()(t, add_special_tokens=False)["input_ids"]) for t in SENTENCES[:3]}
    total, left = sum(n.values()), sum(count for name, count in n.items() if name not in kept)
    found = re.findall(r"(\d+) requests, (\d+) tokens.* about \$([\d.]+)", caplog.text)
    assert found == [("3", f"{total}", f"{total / 500:.4f}"), ("2", f"{left}", f"{left / 500:.4f}")]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (of_logprobs(lambda of: of["token_logprobs"].pop()), ""),
        (of_logprobs(lambda of: [of[k].pop() for k in 2 * ["tokens", "token_logprobs"]]), ""),
        (set_log_prob(3, None), "token 3 .*None"),
        (set_log_prob(3, float("nan")), "token 3 .*nan"),
        (set_log_prob(1, False), r"token_logprobs\.1"),
        (of_logprobs(lambda of: of["tokens"].__setitem__(3, "XYZ")), "XYZ"),
        (lambda reply: reply["choices"][0].update(logprobs=None), r"choices\.0\.logprobs"),
    ],
)
def test_a_wrong_reply_names_the_text(server, change, wrong, has_tokenizer):
    server.change = change
    with pytest.raises(ValueError, match=f"text 0 .*{wrong}"):
        score_or_load("api:tiny", [SENTENCES[0]])
    assert not list(mialib.store.home().rglob("*.parquet")) and not replies_files(), "a bad reply is not kept"


def test_tokens_in_another_order_are_an_error(server, with_tokenizer):
    def move_a_letter(of):
        first, second = of["tokens"][1:3]
        of["tokens"][1:3] = [first + second[:1], second[1:]]  # they spell the same text

    server.change = of_logprobs(move_a_letter)
    with pytest.raises(ValueError, match="text 0"):
        score_or_load("api:tiny", ["millmillmillmill"])


def test_another_models_tokenizer_is_found_out(server, tmp_path, monkeypatch):
    other = json.loads(make_tokenizer().backend_tokenizer.to_str())
    ids = other["model"]["vocab"]
    ids["e"], ids["o"] = ids["o"], ids["e"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(other)), bos_token="<s>")
    tokenizer.save_pretrained(tmp_path / "other")
    monkeypatch.setenv("MIALIB_API_TOKENIZER", str(tmp_path / "other"))
    with pytest.raises(ValueError, match="MIALIB_API_TOKENIZER"):
        score_or_load("api:tiny", [SENTENCES[6]])


def assert_key_is_nowhere(*outputs):
    for output in outputs:
        assert KEY not in output
    for path in mialib.store.home().rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_the_key_is_in_no_file_log_or_provenance(server, with_tokenizer, impatient, caplog, capfd):
    """Not even where the server tells it: as the model's name, or in an error after some replies."""
    caplog.set_level(logging.DEBUG)
    server.change = lambda reply: reply.update(model=f"tiny of {KEY}")
    answered = stop_after(3)
    server.before = lambda handler, body: answered(handler, body) and handler.refuse(500, KEY)
    with pytest.raises(OSError) as caught:
        score_or_load("api:tiny", TEXTS)
    assert_key_is_nowhere("".join(traceback.format_exception(caught.value)), caplog.text)
    server.before = lambda handler, body: False
    stats = score_or_load("api:tiny", TEXTS)
    assert_key_is_nowhere(json.dumps(stats.provenance), caplog.text, *capfd.readouterr())
    assert stats.provenance["revision"].startswith("tiny of *** at http://127")


def test_the_key_is_masked_as_it_is_and_as_an_address_writes_it_and_the_address_has_no_password(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " a/key+of=state\n")
    assert api.api_key() == "a/key+of=state"
    assert api.masked("it says a/key+of=state, a%2Fkey%2Bof%3Dstate.") == "it says ***, ***."
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert api.masked("none of it") == "none of it"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://user:password-1@example.org:8000/v1/?key=another-secret")
    assert api.endpoint() == "https://example.org:8000/v1"


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        (["The", " mill"], "The mill", True),
        (["The", "mill"], "The mill", True),  # spaces stripped
        (["▁The", "▁mill"], "The mill", True),
        (["The", " mill"], "The mills", False),
        (["caf", "\ufffd", "\ufffd"], "café", True),
        (["caf", "bytes:\\xc3", "bytes:\\xa9", " bar"], "café bar", True),
        (["caf", "\ufffd", "\ufffd", "!"], "café", False),
        (["bytes:", " a"], "bytes: a", True),
        (["这条", "河"], "这条河", True),
    ],
)
def test_tokens_spell_a_text(tokens, text, expected):
    assert api.spell(tokens, text) is expected
