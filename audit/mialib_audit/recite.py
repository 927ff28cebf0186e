"""`mialib recite`: how far a model goes on, word by word, with a text whose beginning it is given.

A model that reproduces 50 tokens after a prompt has read the text: Carlini et al. (2021, 2023) call it *extractable*.
The statistic here is finer, and its highest value is theirs: how many of the next 50 tokens greedy decoding reproduces
*before its first mistake*. Up to there the model reads what it has written, the text itself. So nothing need be
generated: one pass over the text says of each token whether it is the likeliest, for prompts of all lengths. Edit
similarity or common n-grams would also count what follows a mistake, much of which texts on one topic share.

Easy texts are continued too. So each prompt is also edited: half of its words are exchanged for other words of the
text. The tokens that this costs are the text's difference, in which what the topic makes predictable cancels. Texts
that the model cannot have read (the controls) also lose by such edits, so the test compares the differences of both:
the one-sided rank-sum test, over all divisions of the ranks. Holm's method corrects for several prompts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.batches import encode_with_ends
from mialib.calibration import set_p_value
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import find
from mialib.commands.output import as_columns
from mialib.passes.cache import score_or_load
from mialib.text import cut_to_words, excerpt, language_of, word_spans
from mialib.token_stats import TokenRow
from mialib_audit.files import TextFile, drop_copies

PROMPTS = (10, 20, 40)  # words
N_TOKENS = 50  # of a continuation
EXCHANGED = 0.5  # of a prompt's words, in its edited version
COUNTED_UP_TO = 60  # texts on one side for which all divisions of the ranks are counted
N_SHOWN = 3  # texts


def edited_prompt(text: str, n_words: int, language: str = "en") -> str:
    """Exchange half of a text's first `n_words` words, drawn by the text, for other words of the text."""
    spans, rng = list(word_spans(text, language)), random.Random(f"{n_words} {text}")
    words, prompt = [text[start:end] for start, end in spans], text[: spans[n_words - 1][1]]
    for i in sorted(rng.sample(range(n_words), round(EXCHANGED * n_words)), reverse=True):
        others = [word for word in words if word.lower() != words[i].lower()]
        prompt = prompt[: spans[i][0]] + rng.choice(others or [words[i]]) + prompt[spans[i][1] :]
    return prompt


def n_recited(row: TokenRow, n_prompt: int) -> int:
    """How many of the 50 tokens after the first `n_prompt` are the likeliest one each, before the first that is not."""
    is_likeliest = row.log_prob == row.top_log_prob
    return int(np.logical_and.accumulate(is_likeliest[n_prompt : n_prompt + N_TOKENS]).sum())


def recite(
    model: str, texts: Sequence[str], prompts: Sequence[int] = PROMPTS, **loading: Any
) -> tuple[dict[int, NDArray[np.int64]], dict[str, Any]]:
    """Count the tokens that are recited of N texts after each prompt, as it is and edited: (2, N); and the provenance.

    `loading` is as for `score_or_load`. ValueError for a text too short, and a model without `top_log_prob`.
    """
    if why := find(model).lacks.get("top_log_prob"):
        raise ValueError(f"recite compares each token with the model's likeliest: {why}")
    language, tokenizer, prompts = language_of(texts), load_tokenizer(model), sorted(set(prompts), reverse=True)

    def read(text: str, given: str, n_before: int) -> tuple[str, int]:
        """What the model reads, up to the word of the last token that counts, and how many tokens the prompt has."""
        whole = given + text[n_before:]
        _, ends = encode_with_ends(tokenizer, whole)
        n_prompt = sum(end <= len(given) for end in ends)
        if len(ends) < n_prompt + N_TOKENS:
            lacking = f"{len(ends) - n_prompt} tokens follow the prompt, and {N_TOKENS} are needed"
            raise ValueError(f"{excerpt(text)}: {lacking}; give a shorter --prompt, or leave the text out")
        last = ends[n_prompt + N_TOKENS - 1]
        return next(whole[:end] for _, end in word_spans(whole, language) if end >= last), n_prompt

    asked: dict[int, list[tuple[str, int]]] = {n: [] for n in prompts}  # what is read, and where the prompt ends
    for n in prompts:
        starts = [cut_to_words(text, n, language) for text in texts]
        asked[n] += [read(text, start, len(start)) for text, start in zip(texts, starts, strict=True)]
        longest = [whole for whole, _ in asked[prompts[0]][: len(texts)]]  # one pass for the prompts of all lengths
        asked[n] = [(whole, n_prompt) for whole, (_, n_prompt) in zip(longest, asked[n], strict=True)]
        edits = [edited_prompt(text, n, language) for text in texts]
        asked[n] += [read(*of) for of in zip(texts, edits, map(len, starts), strict=True)]
    numbers = {text: i for i, text in enumerate(dict.fromkeys(text for of in asked.values() for text, _ in of))}
    stats = score_or_load(model, list(numbers), **loading)
    first = int(stats.provenance["start_token_id"] is None)  # without a start token nothing predicts token 0
    found = {n: [n_recited(stats[numbers[text]], at - first) for text, at in of] for n, of in sorted(asked.items())}
    return {n: np.reshape(counts, (2, len(texts))) for n, counts in found.items()}, stats.provenance


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values, (N,): rejecting those up to a level errs at all no more often than that (Holm 1979)."""
    p = np.asarray(p, float)
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def difference_p(counts: NDArray[np.int64], n_texts: int) -> float:
    """The p-value of the first `n_texts` against the others: do edits cost them more? `counts` as `recite` has them."""
    costs = counts[0] - counts[1]
    return set_p_value(costs[:n_texts], costs[n_texts:], counted_up_to=COUNTED_UP_TO)


def report(
    model: str, texts: TextFile, controls: TextFile | None, prompts: Sequence[int], **loading: Any
) -> dict[str, Any]:
    """Count what is recited of texts and controls, without near-copies, and compare them."""
    (_, *others), copies = drop_copies([texts, *([controls] if controls else [])], language_of(texts.texts))
    own = texts.take([i for i in range(len(texts.texts)) if i not in copies])
    n, every = len(own.texts), [text for file in (own, *others) for text in file.texts]
    found, provenance = recite(model, every, prompts, **loading)
    parts = {"texts": slice(n)} | ({"controls": slice(n, None)} if controls else {})
    rows = {words: {name: of[:, part].tolist() for name, part in parts.items()} for words, of in found.items()}
    files = {"texts": texts.describe()} | ({"controls": controls.describe()} if controls else {})
    made: dict[str, Any] = {"model": model, "files": files, "recited, and after edits": rows, "provenance": provenance}
    if controls:
        p = [difference_p(of, n) for of in found.values()]
        made["p"], made["p, Holm"] = (dict(zip(found, of, strict=True)) for of in (p, holm(p).tolist()))
    longest = sorted(range(n), key=lambda i: -found[min(found)][0, i])[:N_SHOWN]
    return made | {"longest": {excerpt(own.texts[i], 80): int(found[min(found)][0, i]) for i in longest}}


def sentences(made: Mapping[str, Any]) -> list[str]:
    """Say in plain English what a report found."""
    columns: dict[str, dict[str, str]] = {}
    for words, row in made["recited, and after edits"].items():
        for name, counts in row.items():
            for what, of in zip((name, f"{name}, edited"), counts, strict=True):
                cell = f"{sum(k == N_TOKENS for k in of)} of {len(of)} ({np.mean(of):.1f})"
                columns.setdefault(what, {})[f"{words} words"] = cell
        for name in ("p", "p, Holm") if "p" in made else ():
            columns.setdefault(name, {})[f"{words} words"] = f"{made[name][words]:.2g}"
    lines = [f"Texts whose next {N_TOKENS} tokens are recited word by word (mean tokens before a mistake), by prompt:"]
    lines += [as_columns(columns), *(f"{k} tokens: {text}" for text, k in made["longest"].items())]
    if "p" not in made:
        return [*lines, "Without --controls, texts like these that the model can't have read, there is no p-value."]
    lowest = min(made["p, Holm"].values())
    found = "more than the controls, as if the model had read them" if lowest <= 0.05 else "no more than the controls"
    return [
        *lines,
        f"The texts lose by edits of the prompt {found} (lowest p-value after Holm's correction: {lowest:.2g}).",
    ]
