"""A file of log-probs as a model: what others computed is scored as what mialib computes, or refused."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from conftest import TEXTS

import mialib
from mialib.catalog.logprobs import check_possible
from mialib.passes.cache import count_or_load, score_or_load
from mialib.passes.inputs import Target, load_inputs, score_all
from mialib.token_stats import TokenRow, TokenStats


@pytest.fixture
def rows(model_folder):
    stats = mialib.Scorer(model_folder, start_token=None).score(TEXTS, progress=False)
    tokens = mialib.Scorer(model_folder).token_ids(TEXTS)
    return [
        {"text": text, "token_ids": ids, "log_probs": [None, *row.log_prob.tolist()]}
        for text, ids, row in zip(TEXTS, tokens, stats, strict=True)
    ]


@pytest.fixture
def written(tmp_path):
    def write(rows):
        path = tmp_path / "computed.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return f"logprobs:{path}"

    return write


def of_vllm(row):
    """The same line as vLLM prints it: by token id an object, also for tokens that do not stand there."""
    given = [
        value if value is None else {str(token): {"logprob": value, "rank": 2}, "9": {"logprob": -0.1, "rank": 1}}
        for value, token in zip(row["log_probs"], row["token_ids"], strict=True)
    ]
    return {"prompt": row["text"], "prompt_token_ids": row["token_ids"], "prompt_logprobs": given}


@pytest.mark.parametrize("form", [dict, of_vllm])
def test_scores_are_those_of_the_model_that_computed_them(form, rows, written, model_folder):
    rows = [row for row in rows if 9 not in row["token_ids"]]
    texts = [row["text"] for row in rows]
    name = written(map(form, rows[::-1]))
    ours, theirs = score_or_load(name, texts), score_or_load(model_folder, texts, start_token=None)
    for detector in ("ppl", "min_k", "polarized", "camia_lz"):
        np.testing.assert_allclose(mialib.detect(detector, ours), mialib.detect(detector, theirs))
    with pytest.raises(ValueError, match=r"computed\.jsonl .*entropy"):
        mialib.detect("min_k++", ours)
    with pytest.raises(ValueError, match="weights"):
        mialib.Scorer(name)


def test_a_first_token_is_scored_and_a_changed_file_read_anew(written, rows):
    name = written([{"text": "a b", "token_ids": [0, 3, 4], "log_probs": [-3, -1, -2.5]}])
    assert score_or_load(name, ["a b"]).log_prob.tolist() == [-3, -1, -2.5]
    before = score_or_load(written(rows), TEXTS).log_prob
    rows[0]["log_probs"][-1] = -9.0
    assert (score_or_load(written(rows), TEXTS).log_prob != before).sum() == 1


def test_with_a_tokenizer_token_ids_are_held_against_its_own(rows, written, model_folder, corpus_file, monkeypatch):
    monkeypatch.setenv("MIALIB_API_TOKENIZER", model_folder)
    name = written(rows)
    scores = [
        mialib.detect(
            "dc_pdd", score_or_load(model, TEXTS, start_token=start_token), frequency=count_or_load(corpus_file, model)
        )
        for model, start_token in ((name, "auto"), (model_folder, None))
    ]
    np.testing.assert_allclose(*scores)
    for row in rows:  # a server's own start token, with a log-prob or without, is no token of the text
        row["token_ids"] = [0, *row["token_ids"]]
        row["log_probs"] = [-5.0, -1.0, *row["log_probs"][1:]]
    with_start = score_or_load(written(rows), TEXTS)
    assert with_start.n_tokens.tolist() == [len(row["token_ids"]) - 1 for row in rows]
    assert (with_start[1].log_prob[0], with_start[1].token_ids[0]) == (-1, rows[1]["token_ids"][1])
    rows[2]["token_ids"][-1] += 1
    with pytest.raises(ValueError, match=r"computed\.jsonl, row 3: .*token ids"):
        score_or_load(written(rows), TEXTS)


def test_a_benchmark_has_a_dash_where_the_file_gives_too_little(rows, written, benchmark_file):
    texts = mialib.load_benchmark(benchmark_file).texts
    name = written({"text": text, "token_ids": [1, 2, 3], "log_probs": [None, -1, -len(text) / 9]} for text in texts)
    scores = score_all(load_inputs(Target(model=name, benchmark=benchmark_file)))
    assert {d for d, of in scores.items() if of is None} == {"lowercase", "ref", "min_k++", "dc_pdd", "surp"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_probs": [None, -1]}, "row 2: .*log_probs"),
        ({"log_probs": [None, None, -1]}, "row 2: token 1: "),
        ({"log_probs": [None, 0.5, -1]}, "row 2: token 1: 0.5"),
        ({"log_probs": [None, False, -1]}, "row 2: token 1: False"),
        ({"log_probs": [None, {"8": {"logprob": -1}}, -1]}, "row 2: token 1: "),
        ({"log_probs": [None, -1, -9999]}, "row 2: token 2: -9999"),
        ({"log_probs": [None], "token_ids": [1]}, "row 2: "),
        ({"token_ids": [1, True, 3]}, "row 2: .*token_ids"),
        ({"text": 5}, "row 2: "),
        ({"text": "a"}, "row 2: row 1 "),
    ],
)
def test_a_line_that_is_not_as_expected_is_named(changes, message, written):
    rows = [{"text": text, "token_ids": [1, 2, 3], "log_probs": [None, -n, -2]} for n, text in ((1, "a"), (2, "b"))]
    with pytest.raises(ValueError, match=message):
        score_or_load(written([rows[0], rows[1] | changes]), ["a"])


def test_log_probs_far_below_guessing_are_of_a_broken_model(rows, written):
    def of_mean(mean):
        n = [len(row["token_ids"]) - 1 for row in rows]
        given = [[mean - i, mean + i] * (m // 2) + [mean] * (m % 2) for i, m in enumerate(n, start=1)]
        return written([row | {"log_probs": [None, *of]} for row, of in zip(rows, given, strict=True)])

    assert len(score_or_load(of_mean(-49.9), TEXTS)) == len(TEXTS)
    with pytest.raises(ValueError, match=r"computed\.jsonl .* -65\.4"):
        score_or_load(of_mean(-65.4), TEXTS)


def test_what_the_file_lacks_is_named(rows, written):
    with pytest.raises(ValueError, match=r"text 1: .not in it"):
        score_or_load(written(rows), [TEXTS[0], "not in it"])
    with pytest.raises(ValueError, match="row 1: "):
        score_or_load(written([{"text": "a"}]), ["a"])
    for option, named in (({"dtype": "bfloat16"}, "--dtype"), ({"start_token": None}, "--start-token")):
        with pytest.raises(ValueError, match=named):
            score_or_load(written(rows), TEXTS, **option)


def test_a_text_whose_end_the_file_leaves_out_is_scored_up_to_there(rows, written, model_folder, monkeypatch, caplog):
    monkeypatch.setenv("MIALIB_API_TOKENIZER", model_folder)
    whole = score_or_load(written(rows), TEXTS)
    for start in ([], [0]):  # also where a start token of the server's own comes first
        cut = [dict(row) for row in rows]
        for row in cut:
            row["token_ids"] = start + row["token_ids"]
            row["log_probs"] = [None] * len(start) + ([-3.0] * len(start) + row["log_probs"])[len(start) :]
        n = len(cut[0]["token_ids"]) - 5
        cut[0] = {"text": TEXTS[0], "token_ids": cut[0]["token_ids"][:n], "log_probs": cut[0]["log_probs"][:n]}
        cut = [row if len(start) == 0 else row | {"log_probs": [None, -3.0, *row["log_probs"][2:]]} for row in cut]
        stats = score_or_load(written(cut), TEXTS)
        assert stats.n_cut.tolist() == [5] + [0] * (len(TEXTS) - 1)
        left = mialib.Scorer(model_folder).loaded.tokenizer.decode(rows[0]["token_ids"][:-5])
        assert stats.scored_parts(TEXTS) == [left, *TEXTS[1:]]
        log_probs = whole[0].log_prob[:-5].tolist()
        assert stats[0].log_prob.tolist() == ([-3.0] if start else []) + log_probs
        assert f"1 of {len(TEXTS)} texts have more tokens than the file; the last 5 " in caplog.text
        score = mialib.detect("zlib", stats, texts=TEXTS)[0]
        assert score == pytest.approx(stats[0].log_prob.mean() / len(zlib.compress(left.encode())))


def made_stats(*log_probs, token_ids=()):
    """Statistics of texts with these log-probs, of different tokens where no ids are given."""
    rows = []
    for i, of_text in enumerate(log_probs):
        ids = token_ids[i] if token_ids else range(100 * i, 100 * i + len(of_text))
        rows.append(TokenRow(np.array(ids), *[np.array(of_text, np.float32)] * 4))
    return TokenStats.from_rows(rows, provenance={})


ORDINARY = [-2.3, -0.7, -5.1, -0.02, -1.4, -3.3, -0.4, -7.9, -0.11, -2.8, -1.1, -0.6, -4.2, -0.3, -6.5, -0.9]
TWO = [-1.5, *ORDINARY[1:]], [-2.5, *ORDINARY[1:]]  # texts that begin differently


@pytest.mark.parametrize(
    ("log_probs", "said"),
    [
        ([ORDINARY, [0.0] * 16 + ORDINARY], "text 1, scored tokens 0 to 15: each log-prob is 0"),  # a cached block
        ([ORDINARY, [-0.0] * 8 + ORDINARY], "text 1, scored tokens 0 to 7: each log-prob is -0"),
        ([[0.0] * 30], "text 0, scored tokens 0 to 29"),
        ([ORDINARY + [0.0] * 16], "text 0, scored tokens 16 to 31: each log-prob is 0"),
        ([TWO[0], ORDINARY[:3] + [-10.3735] * 8 + ORDINARY], "text 1, scored tokens 3 to 10: each log-prob is -10.37"),
        ([[-1.5] * 12], "text 0, scored tokens 0 to 11: each log-prob is -1.5"),
        ([ORDINARY, TWO[0], ORDINARY[:8] + TWO[1]], "texts 0 and 2 begin with the same log-probs of other tokens"),
    ],
)
def test_log_probs_that_no_model_gives_are_refused(log_probs, said):
    with pytest.raises(ValueError, match=f"m: {said}.*prefix cache"):
        check_possible(made_stats(*log_probs), "m")
    check_possible(made_stats(*TWO), "m")


def test_what_a_model_recites_or_repeats_is_no_hole():
    fading = [-0.8, -0.1, -0.03, -0.004, -0.0009, -0.0002]  # as a model that reads the same again becomes sure
    for zeros in (20, 200):
        check_possible(made_stats(ORDINARY + fading + [0.0] * zeros), "m")
        check_possible(
            made_stats(ORDINARY + fading + [0.0] * zeros + [-0.0001, 0.0, -0.0003, -2.0], ORDINARY[::-1]), "m"
        )
    check_possible(made_stats([*ORDINARY, *[-0.08] * 14], token_ids=[[*range(16), *[3, 4] * 7]]), "m")  # "0 0 0 0"
    same = [*ORDINARY], [*ORDINARY[:12], *TWO[0]]
    check_possible(made_stats(*same, token_ids=[range(16), [*range(12), *range(50, 66)]]), "m")  # one beginning, twice


@pytest.mark.parametrize("n_digits", [None, 2])
@pytest.mark.parametrize("name", ["docstrings-smollm2@1", "docstrings-19m", "patents-5m"])
def test_no_real_models_log_probs_are_refused_however_they_are_rounded(name, n_digits):
    name = f"recorded/{name}"
    stats = score_or_load(
        name, mialib.load_benchmark(name.split("-")[0] + ("-smollm2-135m" * ("smollm2" in name))).texts
    )
    if n_digits:
        stats = replace(stats, log_prob=np.round(stats.log_prob.astype(np.float64), n_digits).astype(np.float32))
    check_possible(stats, name)
    rest = TokenStats.from_rows([TokenRow._make(column[1:] for column in row) for row in stats], provenance={})
    check_possible(rest, name)  # where a file has nothing for first tokens


def test_a_first_token_of_probability_one_is_named_with_its_row(rows, written):
    rows[1]["log_probs"][0] = 0.0
    with pytest.raises(ValueError, match=r"computed\.jsonl, row 2: the first log-prob is 0"):
        score_or_load(written(rows), TEXTS)
    rows[1]["log_probs"] = [None, *[0.0] * (len(rows[1]["log_probs"]) - 1)]
    rows[0]["log_probs"] = [None, *[0.0] * (len(rows[0]["log_probs"]) - 1)]
    with pytest.raises(ValueError, match=r"computed\.jsonl: text 0, scored tokens 0 to .* prefix cache"):
        score_or_load(written(rows), TEXTS)
