"""`mialib recite`: what counts as recited, the edits, the p-value, and a model that was taught a text."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from test_audit import sentences
from typer.testing import CliRunner

from mialib.catalog.loading import load_scorer
from mialib.token_stats import TokenRow
from mialib_audit import recite
from mialib_audit.commands import app

PROMPT, AFTER = 4, 50


def words(seed, n=60):
    """A text of short words."""
    return " ".join(np.random.default_rng(seed).choice(["mill", "old", "the", "near", "of", "lies", "and", "sea"], n))


@pytest.fixture(scope="module")
def taught(tmp_path_factory, model_folder):
    """A tiny model that was trained on four texts until it knows them, and these texts."""
    scorer, texts = load_scorer(model_folder), [words(seed) for seed in range(4)]
    model, tokenizer = scorer.loaded.model.train().requires_grad_(True), scorer.loaded.tokenizer
    ids = [torch.tensor([[*scorer.loaded.start_token_ids, *of]]) for of in scorer.token_ids(texts)]
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(150):
        optimizer.zero_grad()
        sum(model(input_ids=of, labels=of).loss for of in ids).backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("taught")
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return str(folder), texts


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def row(is_likeliest):
    """A text's statistics where these tokens are the likeliest."""
    top = np.full(len(is_likeliest), -1, np.float32)
    return TokenRow(top, np.where(is_likeliest, top, top - 1), top, top, top)


def test_what_follows_the_first_mistake_does_not_count():
    assert recite.n_recited(row([0] * 3 + [1] * 50), 3) == 50
    assert recite.n_recited(row([1] * 3 + [0] + [1] * 60), 3) == 0
    assert recite.n_recited(row([0] * 3 + [1] * 7 + [0] + [1] * 49), 3) == 7


def test_half_of_the_prompts_words_are_exchanged_for_others_of_the_text():
    text = " ".join(f"w{i}" for i in range(30))
    edited = recite.edited_prompt(text, 10).split()
    assert len(edited) == 10 and set(edited) <= set(text.split())
    assert sum(word != f"w{i}" for i, word in enumerate(edited)) == 5
    assert recite.edited_prompt(text, 10).split() == edited, "the text alone draws them"
    assert recite.edited_prompt("one One\tone  two", 4).count("two") > 1, "another case is no other word"


def test_the_p_value_is_that_of_all_divisions():
    counts = np.array([[9, 5, 5, 0, 3, 5, 1, 0, 0, 2, 0, 1], [1, 0, 2, 0, 0, 1, 1, 0, 1, 0, 0, 0]])
    costs, n = counts[0] - counts[1], 4
    ranks = np.array([(costs < of).sum() + ((costs == of).sum() + 1) / 2 for of in costs])
    sums = np.array([ranks[list(some)].sum() for some in combinations(range(len(costs)), n)])
    assert recite.difference_p(counts, n) == pytest.approx((sums >= ranks[:n].sum()).mean())
    big = np.concatenate([np.repeat([3, 0], 30), np.repeat([2, 0], [5, 75])])
    assert recite.difference_p(np.array([big, 0 * big]), 60) < 1e-6, "below what random divisions can show"


def test_holm_multiplies_the_lowest_by_all_and_never_falls():
    assert recite.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert recite.holm([0.5, 0.9]).tolist() == [1, 1]


@pytest.mark.parametrize("start_token", ["auto", None])
def test_it_counts_what_greedy_generation_gives(start_token, taught):
    folder, texts = taught
    known = [*texts[:2], *(words(seed) for seed in (10, 11))]
    found, _ = recite.recite(folder, known, [PROMPT, 6], start_token=start_token)
    if start_token:  # as it was taught
        assert (found[PROMPT][0, :2] == AFTER).all() and (found[PROMPT][0, 2:] < AFTER).all()
    scorer = load_scorer(folder, start_token=start_token)
    model = scorer.loaded.model
    for n, counts in found.items():
        for i, text in enumerate(known):
            start = " ".join(text.split()[:n])
            for given, count in ((start, counts[0, i]), (recite.edited_prompt(text, n), counts[1, i])):
                begin = torch.tensor([[*scorer.loaded.start_token_ids, *scorer.token_ids([given])[0]]])
                said = model.generate(begin, max_new_tokens=AFTER, do_sample=False, eos_token_id=None, pad_token_id=2)
                truth = scorer.token_ids([text])[0][len(scorer.token_ids([start])[0]) :][:AFTER]
                same = np.array(said[0, begin.shape[1] :].tolist()) == np.array(truth)
                assert count == np.logical_and.accumulate(same).sum(), (n, i)


def test_a_model_that_does_not_tell_its_likeliest_tokens_is_refused(tmp_path):
    known = {"text": "one two", "token_ids": [1, 2], "log_probs": [-1.0, -2.0]}
    (tmp_path / "l.jsonl").write_text(json.dumps(known))
    with pytest.raises(ValueError, match="likeliest"):
        recite.recite(f"logprobs:{tmp_path / 'l.jsonl'}", ["one two"])


def test_the_report_says_what_is_recited_and_whether_more_than_of_controls(taught, tmp_path):
    folder, texts = taught
    own = write(tmp_path / "own.jsonl", [*texts, texts[0]])
    controls = write(tmp_path / "young.jsonl", [words(seed) for seed in range(20, 40)])
    arguments = ["recite", own, "--model", folder, "--prompt", PROMPT, "--prompt", 6]

    def run(*more, exit_code=0):
        done = CliRunner().invoke(app, list(map(str, [*arguments, *more])))
        assert done.exit_code == exit_code, (done.output, done.exception)
        return done.output if exit_code == 0 else str(done.exception)

    said = run("--controls", controls, "--output", tmp_path / "out.json")
    made = json.loads((tmp_path / "out.json").read_text())
    assert "4 of 4 (50.0)" in said and "as if the model had read them" in said, "the copy counts once"
    assert made["recited, and after edits"]["4"]["texts"][0] == [AFTER] * 4
    assert max(made["p, Holm"].values()) < 0.01 and f"50 tokens: '{texts[0][:20]}" in said
    assert "there is no p-value" in run()
    turned = CliRunner().invoke(
        app, ["recite", str(controls), "--model", folder, "--prompt", "4", "--controls", str(own)]
    )
    assert "no more than the controls" in turned.output
    assert "are, exactly or nearly, in" in run("--controls", own, exit_code=1)
    short = write(tmp_path / "short.jsonl", sentences(3, 0))
    arguments[1] = short
    assert "tokens follow the prompt" in run(exit_code=1) and "give a shorter --prompt" in run(
        "--prompt", 40, exit_code=1
    )
