"""Texts like a benchmark's that no model has seen, written by a model: the probe's synthetic training data.

`write_synthetic` asks a chat model behind an OpenAI-compatible address, as the paper asks ChatGPT (Liu et al. 2024,
Appendix A); `sample_synthetic` samples from a causal language model here.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from mialib.batches import encode
from mialib.cache import JSON, cached
from mialib.catalog.models import find_weights
from mialib.models import LoadedModel
from mialib.store import hash_of, hash_texts, version
from mialib.text import check_texts, count_words, cut_to_words, excerpt
from mialib.versions import versions_of
from replication.lab.near_duplicates import NearDuplicates
from replication.lab.source import Lab
from replication.remote.api import api_key, masked
from replication.remote.services import append_line, read_lines, retrying

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

N_EXAMPLES = 5
TEXTS_PER_REPLY = 10  # the template's [Specified Number]; the paper does not say which
# Table 5. The examples are numbers 1 to 5 of the list.
TEMPLATE = """\
I am creating a dataset and need to generate data that is similar but not identical to the following examples. \
Here are 5 examples from my dataset:
{examples}
Please generate {n} new data points that are similar in style and structure to these examples but are unique in \
content. Format the responses as a numbered list, starting from 6 onwards. Each data point should start on a new line \
and be prefixed with its corresponding number followed by a period and a space.
For example:
6. [New Data Point 1]
7. [New Data Point 2]
..."""

TIMEOUT_SECONDS = 300
MAX_USELESS_REPLIES = 5  # in a row: each costs money

PROMPT_TOKENS = 8  # of a text, which a sample continues
SAMPLES_AT_ONCE = 64
SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 0.95}
TOKENS_PER_WORD = 4  # a sample may have this many, and ends where it has its words
SPACES = ("Ġ", "▁")  # how byte-level and sentencepiece tokens write the space before them
MAX_SAMPLES_PER_TEXT = 20  # tried for each one asked for


# --- a chat model -----------------------------------------------------------------------------------------------------


def write_synthetic(
    sources: Sequence[str], n: int, path: str | Path, *, base_url: str, model: str, seed: int = 0, language: str = "en"
) -> list[str]:
    """`n` new texts like `sources`, asked for ten at a time with five examples that `seed` draws for each request.

    `base_url` is an OpenAI-compatible address (POST {base_url}/chat/completions); the key, where one is needed, is read
    from $OPENAI_API_KEY and kept nowhere. Each reply is added to the JSONL `path` at once; a run that finds the file
    goes on where it ends. Texts that repeat or nearly copy a source or an earlier text are left out (see `NewTexts`).
    RuntimeError where five replies in a row hold nothing new.
    """
    check_texts(sources, "sources")
    if len(sources) < N_EXAMPLES:
        raise ValueError(f"{len(sources)} sources; a prompt shows {N_EXAMPLES} of them")
    path, made_by = Path(path), hash_of([list(sources), model, seed, TEMPLATE, TEXTS_PER_REPLY])
    for number, row in enumerate(rows := read_lines(path), start=1):
        if row.get("made_by") != made_by:
            raise ValueError(
                f"{path}, line {number}: from other sources, another model or another seed; give another file"
            )
    replies = [row["reply"] for row in rows]
    collector = NewTexts(sources, language)
    texts = [text for reply in replies for text in collector.take(parse_numbered(reply))]
    key, useless = api_key(), 0
    with httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=TIMEOUT_SECONDS) as client:
        while len(texts) < n:
            rng = np.random.default_rng([seed, len(replies)])  # a resumed run draws what a whole one does
            examples = [sources[i] for i in rng.choice(len(sources), N_EXAMPLES, replace=False)]
            reply = _ask(client, f"{base_url.rstrip('/')}/chat/completions", model, build_prompt(examples))
            append_line(path, {"made_by": made_by, "reply": reply})
            replies.append(reply)
            additions = collector.take(parse_numbered(reply))
            texts += additions
            useless = 0 if additions else useless + 1
            if useless == MAX_USELESS_REPLIES:
                raise RuntimeError(
                    f"{useless} replies of {model} in a row hold no new text ({len(texts)} of {n} are there; left out: "
                    f"{dict(collector.left_out)}); the last one: {excerpt(reply)}"
                )
    logger.info("%s: %d texts; left out: %s", path, len(texts), dict(collector.left_out))
    return texts[:n]


def build_prompt(examples: Sequence[str]) -> str:
    """The appendix's prompt with five examples (Table 5)."""
    numbered = "\n".join(f"{i}. {example}" for i, example in enumerate(examples, start=1))
    return TEMPLATE.replace("{n}", str(TEXTS_PER_REPLY)).replace("{examples}", numbered)


def parse_numbered(reply: str) -> list[str]:
    """The items of a reply's numbered list, without their numbers; what comes before the first is left out.

    An item may have several lines: one that begins with another number than the next item's belongs to it.
    """
    items: list[list[str]] = []
    expected = None
    for line in reply.split("\n"):
        numbered = re.match(r"\s*(\d+)\.\s+(.*)", line)
        if numbered and expected in (None, int(numbered[1])):
            items.append([numbered[2]])
            expected = int(numbered[1]) + 1
        elif items:
            items[-1].append(line)
    return [text for item in items if (text := "\n".join(item).strip())]


def _ask(client: httpx.Client, url: str, model: str, prompt: str) -> str:
    """One chat completion, tried again with back-off where that may help."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    try:
        response = retrying(lambda: client.post(url, json=body).raise_for_status())
    except httpx.HTTPStatusError as error:
        message = excerpt(masked(error.response.text), 200)
        raise ConnectionError(f"{url} answered {error.response.status_code}: {message}") from None
    except httpx.HTTPError as error:
        raise ConnectionError(f"{url}: {type(error).__name__} ({error})") from None
    try:
        content = response.json()["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        content = None
    if not isinstance(content, str):
        raise ValueError(f"{url}: no chat completion, but {excerpt(response.text, 200)}")
    return content


# --- a causal language model ------------------------------------------------------------------------------------------


def sample_synthetic(
    model: str,
    texts: Sequence[str],
    n: int,
    *,
    n_words: int,
    seed: int = 0,
    known: Iterable[str] = (),
    language: str = "en",
) -> list[str]:
    """`n` texts of `n_words` words sampled at temperature 1, each from the first eight tokens of one of `texts`.

    `texts` are the benchmark's, as in the paper's prompt, or others like them. Left out are samples that end early,
    repeat, or nearly copy one of `texts`, of `known` (such as the model's training texts), or an earlier sample;
    RuntimeError where these are too many. The same seed gives the same texts on one machine.
    """
    import torch
    from transformers import StoppingCriteriaList

    from mialib.catalog.loading import load_scorer

    check_texts(texts, "texts to begin from")
    loaded = load_scorer(model).loaded
    encoded = encode(loaded.tokenizer, texts)
    start = list(loaded.start_token_ids)
    prompts = [start + ids[:PROMPT_TOKENS] for ids in encoded if len(ids) >= PROMPT_TOKENS]  # equally long: no padding
    if not prompts:
        raise ValueError(f"none of the {len(texts)} texts has the {PROMPT_TOKENS} tokens that a sample begins with")
    n_new = min(TOKENS_PER_WORD * n_words, loaded.max_tokens - len(prompts[0]))
    # Chinese is cut by jieba, which only sees words where a text is whole.
    enough = None if language == "zh" else _enough_words(loaded, n_words, len(prompts[0]))
    collector, n_tried, n_short = NewTexts([*texts, *known], language), 0, 0
    samples: list[str] = []
    cuda = [loaded.model.device] if loaded.model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), torch.inference_mode():
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        while len(samples) < n:
            if n_tried >= MAX_SAMPLES_PER_TEXT * n:
                raise RuntimeError(
                    f"{model}: {len(samples)} of {n} texts after {n_tried} samples ({n_short} shorter than "
                    f"{n_words} words; left out: {dict(collector.left_out)}); begin from more texts, "
                    "or ask for fewer words"
                )
            numbers = rng.choice(len(prompts), SAMPLES_AT_ONCE)
            inputs = torch.tensor([prompts[i] for i in numbers], device=loaded.model.device)
            outputs = loaded.model.generate(  # type: ignore[operator]  # the class of causal models has it
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=n_new,
                stopping_criteria=StoppingCriteriaList([enough]) if enough else None,
                pad_token_id=loaded.tokenizer.eos_token_id,
                **SAMPLING,
            )
            decoded = loaded.tokenizer.batch_decode(outputs[:, len(start) :], skip_special_tokens=True)
            long = [text for text in decoded if count_words(text, language) >= n_words]
            n_tried, n_short = n_tried + len(decoded), n_short + len(decoded) - len(long)
            samples += collector.take(cut_to_words(text.strip(), n_words, language) for text in long)
    logger.info("%s: %d samples, %d too short; left out: %s", model, n_tried, n_short, dict(collector.left_out))
    return samples[:n]


def _enough_words(loaded: LoadedModel, n_words: int, n_prompt: int) -> Callable[..., torch.Tensor]:
    """Whether each sample has begun a word more than it needs after the prompt, by tokens that begin with a space."""
    import torch

    tokens = loaded.tokenizer.convert_ids_to_tokens(list(range(len(loaded.tokenizer))))
    begins_word = torch.zeros(loaded.vocab_size, dtype=torch.bool, device=loaded.model.device)
    begins_word[[i for i, token in enumerate(tokens) if token.startswith(SPACES)]] = True
    return lambda input_ids, *_, **__: begins_word[input_ids[:, n_prompt:]].sum(-1) > n_words


def sample_or_load(
    model: str, texts: Sequence[str], n: int, *, n_words: int, seed: int = 0, language: str = "en"
) -> list[str]:
    """`sample_synthetic`'s texts, kept; those of a lab model are none of its training texts, which are known."""
    source = find_weights(model)
    training_texts = source.trained_on if isinstance(source, Lab) else []
    options: dict[str, Any] = {"n_words": n_words, "seed": seed, "language": language}
    key = source.pass_key() | options | versions_of("sampling") | {"n": n, "jieba": version("jieba")}
    key |= {"texts": hash_texts(texts), "known": hash_texts(training_texts)}
    return cached("synthetic", lambda: sample_synthetic(model, texts, n, known=training_texts, **options), JSON, **key)


# --- what is new ------------------------------------------------------------------------------------------------------


class NewTexts:
    """Takes texts one after the other and leaves out blank ones and those that repeat or nearly copy earlier ones.

    `left_out` counts why. Near-duplicates share more than a fifth of their 7-grams of words with earlier texts.
    """

    def __init__(self, sources: Iterable[str], language: str = "en") -> None:
        self.left_out: Counter[str] = Counter()
        self._known = NearDuplicates(sources, language)

    def take(self, texts: Iterable[str]) -> list[str]:
        """Return the texts that are new."""
        additions = []
        for text in texts:
            if reason := self._known.add_if_new(text) if text.strip() else "blank":
                self.left_out[reason] += 1
            else:
                additions.append(text)
        return additions
