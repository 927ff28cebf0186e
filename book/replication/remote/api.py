"""Models behind an API: token log-probs from any OpenAI-compatible completions endpoint.

A model `api:NAME` is asked to repeat a prompt (`echo`) with the log-prob of each of its tokens, and to write one more,
since some servers take 0 for "without limit". Address and key come from the environment, OPENAI_BASE_URL and
OPENAI_API_KEY; the key is written nowhere.

    tokenizer known    start token and text are sent, as token ids or, where the server takes none, as text that it cuts
                       into the same tokens: the numbers are those of `mialib.Scorer`
    not known          the text is sent, and its first token is not scored, since no token comes before it

Before the texts a probe finds out how the server takes a prompt, and whether each log-prob is of its own token: words
that nobody expects must be far likelier the second time.

What an API lacks (entropy, variance) is NaN (-1 for token ids) and named in `TokenStats.lacks`. Each reply is stored as
soon as it arrives, so an interrupted run continues where it stopped. After a failure, requests under way are waited
for; after Ctrl-C they are not, so at most `AT_ONCE` of them are paid for again.
"""

from __future__ import annotations

import logging
import math
import os
import re
import textwrap
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
from pydantic import AliasPath, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mialib.batches import encode
from mialib.cache import STATS, cache_path, cached, locked
from mialib.catalog import logprobs
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import PassOptions, find
from mialib.models import find_start_tokens, recorded_start, tokenizer_hash
from mialib.progress import progress
from mialib.shared.schema import Positive
from mialib.store import hash_texts
from mialib.text import check_texts, excerpt, printable
from mialib.token_stats import TokenStats
from mialib.versions import versions_of
from replication.remote.services import append_line, read_lines, retrying

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
AT_ONCE = 8  # requests under way
TIMEOUT = httpx.Timeout(120, connect=10)  # seconds
BYTES_A_TOKEN = 4  # a guess, for English
WORDS = "violin gravel Tuesday saucer eleven harbour purple wizard lemon cactus jury velvet oxygen pigeon ladder marble"
PROBE = f"{WORDS}\n{WORDS}"
LEAST_GAIN = 1.0  # nats per token, by which the probe's words are likelier the second time
ID_PREFIX = "token_id:"  # what vLLM writes before a token's id, in place of a token (--return-tokens-as-token-ids)
ESCAPED_BYTE = r"\\x[0-9a-f]{2}"
SHORTEST_SECRET = 8  # characters; a shorter key ("none", "EMPTY") hides nothing and may be part of any message
CHECK_NETWORK = "check OPENAI_BASE_URL and the network"
ADVICE = {  # by status
    307: "texts go to no other host unasked; if you trust it, set OPENAI_BASE_URL to its address",
    401: "check OPENAI_API_KEY",
    404: "check the model's name and OPENAI_BASE_URL: it may offer no completions",
}


@dataclass(frozen=True)
class ApiModel:
    """A model behind an endpoint, and how texts are sent to it: with a tokenizer as token ids, start tokens first."""

    name: str  # with the prefix
    endpoint: str  # its address, without secrets
    tokenizer: PreTrainedTokenizerBase | None = None
    start_token_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, start_token: str | None) -> ApiModel:
        """Find a model behind the environment's endpoint; ValueError for a start token without a tokenizer."""
        api = find(name)
        if api.tokenizer is None:
            if start_token not in ("auto", None):
                raise ValueError(f"start token {start_token!r} can't be sent: {api.lacks['token_ids']}")
            return cls(name, endpoint())
        tokenizer = load_tokenizer(name)
        return cls(name, endpoint(), tokenizer, find_start_tokens(tokenizer, "", api.start_token(start_token)))

    @cached_property
    def key(self) -> dict[str, Any]:
        """What a text's reply depends on besides the text."""
        tokenizer = tokenizer_hash(self.tokenizer) if self.tokenizer else None
        about = {"endpoint": self.endpoint, "model": self.name, "tokenizer": tokenizer}
        return about | {"start_token_id": recorded_start(self.start_token_ids)}

    def spelling(self, token_ids: Sequence[int]) -> str:
        """The text that tokens spell."""
        return str(self.tokenizer.decode(list(token_ids))) if self.tokenizer else ""

    @property
    def ways(self) -> list[str]:
        """How a text may be sent, the surest first; each reply shows whether the server read the same tokens."""
        if self.tokenizer is None:
            return ["text"]
        return ["token ids", *["start token and text"] * bool(self.start_token_ids), "text"]

    def sent(self, way: str, prompt: str | list[int], text: str) -> str | list[int]:
        """What is sent of a text and its prompt."""
        if way == "token ids":
            return prompt
        return f"{self.spelling(self.start_token_ids)}{text}" if way == "start token and text" else text

    def prompts(self, texts: Sequence[str]) -> list[str] | list[list[int]]:
        """What a reply to each text must spell: the text, or the ids of its tokens with the start tokens' first."""
        if self.tokenizer is None:
            return list(texts)
        prompts = [[*self.start_token_ids, *ids] for ids in encode(self.tokenizer, texts)]
        for i, ids in enumerate(prompts):
            if len(ids) < max(2, 1 + len(self.start_token_ids)):
                raise _nothing_to_score(i, len(ids), texts[i])
        return prompts


class Api(logprobs.LogProbsAlone):
    """`api:NAME`: it gives the log-prob of each of a text's tokens, and nothing else."""

    is_fetched = True

    @property
    def place(self) -> str:
        """The API."""
        return f"the API of {self.name}"

    def no_weights(self) -> NoReturn:
        """ValueError: the weights are elsewhere."""
        raise ValueError(
            f"{self.name} is behind an API and its weights are not here; only its texts' log-probs can be had, by "
            "`mialib detect` and `mialib score`"
        )

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """Log-probs of the texts; each reply is stored. ValueError for texts after others or at another temperature."""
        if not options.is_of_texts_alone:
            raise ValueError(
                f"{self.name}: an API is asked for texts alone, not after others or at another temperature"
            )
        api_model = ApiModel.of(self.name, options.start_token)
        # One file for all texts, so that a list with a text more or less pays for the others once; one run at a time.
        replies = cache_path("token_stats", STATS, **api_model.key).with_suffix(".replies.jsonl")
        was_asked = []

        def make() -> TokenStats:
            with locked(replies):
                was_asked.append(True)
                return score_by_api(api_model, texts, replies)

        key: dict[str, Any] = api_model.key | {"texts": hash_texts(texts)} | versions_of("api")
        stats = cached("token_stats", make, STATS, **key)
        if was_asked:
            with locked(replies):
                drop_replies(replies, texts)
        return stats


class Reply(BaseModel):
    """The part of a completions endpoint's reply that is read: a log-prob for each token of prompt and completion."""

    model_config = ConfigDict(strict=True)  # "-1.5" and false are no log-probs

    model: str = "unnamed"
    tokens: list[str] = Field(validation_alias=AliasPath("choices", 0, "logprobs", "tokens"))
    log_probs: list[float | None] = Field(validation_alias=AliasPath("choices", 0, "logprobs", "token_logprobs"))
    prompt_tokens: int | None = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))


class RefusedError(ValueError):
    """The endpoint will not answer this prompt as it was sent (400, 422; of the probe, 500)."""


# --- the environment ---


def _url() -> str:
    """The address in the environment; the ValueError for one that is wrong does not show it, as it may hold secrets."""
    url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    with suppress(httpx.InvalidURL):
        if httpx.URL(url).scheme in ("http", "https") and httpx.URL(url).host:
            return url
    raise ValueError("OPENAI_BASE_URL: an address such as http://localhost:8000/v1 is expected")


def endpoint() -> str:
    """The endpoint's address, without user, password and query, which may be secret."""
    url = urlsplit(_url())
    return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path.rstrip("/"), "", ""))


def api_key() -> str:
    """The key in the environment, without the white space around it that a line of a file may leave; "" for none."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not all("!" <= sign <= "~" for sign in key):
        raise ValueError("OPENAI_API_KEY: it has a character that no key has, such as a typographic quote or a space")
    return key


def masked(text: str) -> str:
    """The text without the key, as it is or as an address would write it."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    for written in (key, quote(key, safe="")):
        text = text.replace(written, "***") if len(key) >= SHORTEST_SECRET else text
    return text


def positive_number(variable: str) -> float | None:
    """Read a positive number from the environment; None where it is not set."""
    value = os.environ.get(variable)
    try:
        return TypeAdapter(Positive).validate_python(value) if value else None
    except ValidationError:
        raise ValueError(f"{variable}: a positive number is expected, got {value!r}") from None


# --- scoring ---


def score_by_api(model: ApiModel, texts: Sequence[str], replies: Path) -> TokenStats:
    """Token statistics of each text, in the order given; texts whose reply is in the file `replies` are not asked for.

    ValueError, naming the text, for one that leaves no token to score or that the endpoint refuses, and for a reply
    without plausible log-probs; Unavailable where the endpoint refuses the key, knows no such model or fails for good.
    """
    check_texts(texts, "texts to score")
    prompts, names = model.prompts(texts), [hash_texts([text]) for text in texts]
    answered = {row["text"]: row for row in read_lines(replies)}
    missing: dict[str, int] = {}  # of equal texts the first
    for i, name in enumerate(names):
        if name not in answered:
            missing.setdefault(name, i)
    if missing:
        if not api_key():
            raise Unavailable(f"set OPENAI_API_KEY to your key for {model.endpoint}; any word if it asks for none")
        logger.info("%s", _estimate(model, [prompts[i] for i in missing.values()]))
        try:
            _ask_all(model, texts, missing, prompts, replies, answered)
        except (ValueError, OSError) as error:
            n_done, n_all = len(answered.keys() & set(names)), len(set(names))
            so_far = f". Of {n_all} different texts {n_done} are kept; a rerun goes on from there" if n_done else ""
            raise (Unavailable if isinstance(error, OSError) else ValueError)(f"{error}{so_far}") from None

    begin = max(0, len(model.start_token_ids) - 1)  # of several start tokens the last one predicts the text
    ids = [None if isinstance(prompt, str) else prompt[1 + begin :] for prompt in prompts]
    log_probs = [answered[name]["log_prob"][begin:] for name in names]
    rows = [logprobs.Known(*row) for row in zip(ids, log_probs, strict=True)]
    reported = sorted({answered[name]["model"] for name in names})
    provenance = {
        "revision": f"{', '.join(reported)} at {model.endpoint}",
        "tokenizer": model.key["tokenizer"],
        "device": "API",
        "start_token_id": model.key["start_token_id"],
        "sent_as": ", ".join(sorted({answered[name].get("sent_as", "not known") for name in names})),
        "versions": versions_of("api"),
    }
    try:
        return logprobs.known_log_probs(Api(model.name), texts, rows, provenance)
    except ValueError:
        drop_replies(replies, texts)  # a model that is mended there is asked again
        raise


def drop_replies(path: Path, texts: Sequence[str]) -> None:
    """Remove these texts' replies, and the file where no other's is left."""
    hashes = {hash_texts([text]) for text in texts}
    left = [reply for reply in read_lines(path) if reply["text"] not in hashes]
    path.unlink(missing_ok=True)
    for reply in left:
        append_line(path, reply)


def _nothing_to_score(i: int, n_tokens: int, text: str) -> ValueError:
    return ValueError(
        f"text {i} has {n_tokens} token and no start token is prepended, so nothing can be scored: {excerpt(text)}"
    )


def _estimate(model: ApiModel, prompts: Sequence[str | list[int]]) -> str:
    """Say what these requests take: tokens and, at $MIALIB_API_PRICE a million, US dollars."""
    n_tokens = sum(map(len, prompts))
    counted = f"{n_tokens:,} tokens"
    if model.tokenizer is None:
        n_tokens = sum(len(str(text).encode()) for text in prompts) // BYTES_A_TOKEN
        counted = f"about {n_tokens:,} tokens (an estimate: {BYTES_A_TOKEN} bytes each)"
    price = positive_number("MIALIB_API_PRICE")
    dollars = "" if price is None else f", about ${n_tokens * price / 1e6:.4f} at ${price:g} a million tokens"
    return f"{model.name} at {model.endpoint}: {len(prompts)} requests, {counted}{dollars}"


# --- asking ---


def _ask_all(
    model: ApiModel,
    texts: Sequence[str],
    missing: Mapping[str, int],
    prompts: list[str] | list[list[int]],
    replies: Path,
    answered: dict[str, dict[str, Any]],
) -> None:
    """Append the reply to each missing text to the file `replies` and to `answered`, several requests at once.

    The first failure stops the run; replies to requests under way are still waited for and stored. The threads are
    daemons, so that Ctrl-C waits for none.
    """
    left, failures, saving, pace = deque(missing), list[Exception](), Lock(), _pacer()
    headers = {"Authorization": f"Bearer {api_key()}"}

    def ask_for(name: str, way: str) -> None:
        i = missing[name]
        try:
            reply = _ask(client, pace, model, model.sent(way, prompts[i], texts[i]))
            log_prob = prompt_log_probs(reply, model, prompts[i])
        except ValueError as error:
            raise type(error)(f"text {i} ({excerpt(texts[i])}): {masked(str(error))}") from None
        if not log_prob:
            raise _nothing_to_score(i, 1, texts[i])
        row = {"text": name, "sent_as": way, "log_prob": log_prob, "model": printable(masked(reply.model))}
        with saving:
            append_line(replies, row)
            answered[name] = row
            tell([i], len(log_prob))

    def work(way: str) -> None:
        try:
            while left:
                ask_for(left.popleft(), way)
        except Exception as failure:
            left.clear()
            failures.append(failure)

    with (
        progress(model.name, {i: len(texts[i]) for i in missing.values()}) as tell,
        httpx.Client(headers=headers, timeout=TIMEOUT) as client,
    ):
        way = _find_way(client, pace, model)
        threads = [Thread(target=work, args=(way,), daemon=True) for _ in range(min(AT_ONCE, len(missing)))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            left.clear()
    if failures:
        raise failures[0]


def _find_way(client: httpx.Client, pace: Callable[[], None], model: ApiModel) -> str:
    """Send the probe in each way until the endpoint reads its tokens; ValueError where it does in none."""
    [prompt], refusals = model.prompts([PROBE]), []
    for way in model.ways:
        try:
            sent, may_refuse = model.sent(way, prompt, PROBE), way != model.ways[-1]
            reply = _ask(client, pace, model, sent, is_first=True, may_refuse=may_refuse)
            log_probs = prompt_log_probs(reply, model, prompt)
        except ValueError as error:
            refusals.append(f"as {way}: {masked(str(error))}")
            if way == "token ids" and not isinstance(error, RefusedError):
                break  # it reads other tokens than were sent
            continue
        half = len(log_probs) // 2
        gain = sum(log_probs[-half:]) / half - sum(log_probs[:half]) / half
        if not gain >= LEAST_GAIN:
            raise ValueError(
                f"{model.endpoint}: repeated words gain {gain:.2f} nats per token, where {LEAST_GAIN:g} and more are "
                "expected. Its log-probs are of other tokens (off by one row?), or the model has learned nothing: take "
                "another version, or another server"
            )
        instead = f" ({'; '.join(refusals)})" if refusals else ""
        logger.info("%s takes %s%s; repeated words gain %.1f nats per token", model.endpoint, way, instead, gain)
        return way
    raise ValueError(f"{model.endpoint} does not answer a probe of {len(PROBE.split())} words, {'; '.join(refusals)}")


def _pacer() -> Callable[[], None]:
    """Return a function that lets calls pass as often as $MIALIB_API_REQUESTS_PER_MINUTE says, without it at once."""
    gap, next_at, turn = 60 / (positive_number("MIALIB_API_REQUESTS_PER_MINUTE") or math.inf), 0.0, Lock()

    def pace() -> None:
        nonlocal next_at
        with turn:
            time.sleep(max(0.0, next_at - time.monotonic()))
            next_at = time.monotonic() + gap

    return pace


def _ask(
    client: httpx.Client,
    pace: Callable[[], None],
    model: ApiModel,
    prompt: str | list[int],
    is_first: bool = False,
    may_refuse: bool = False,
) -> Reply:
    """One request, tried again where that may help.

    Where no one answers the first one the address is wrong; later on a server may be starting again. Where it
    `may_refuse`, a 500 is final: so some servers refuse token ids.
    """
    base = httpx.URL(_url())
    url = base.copy_with(path=f"{base.path.rstrip('/')}/completions")
    body = {"model": model.name.removeprefix("api:"), "prompt": prompt, "echo": True, "logprobs": 1}
    body |= {"max_tokens": 1, "temperature": 0}

    def once() -> bytes:
        pace()
        try:
            return client.post(url, json=body).raise_for_status().content
        except httpx.ConnectError as error:
            if is_first:
                raise Unavailable(f"{_said(error)}; {CHECK_NETWORK}") from None
            raise

    final = {500} if may_refuse else set()
    try:
        return Reply.model_validate_json(retrying(once, _said, final))
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status in {400, 422} | final:
            raise RefusedError(f"{_said(error)}; if it is too long for the model, cut it or leave it out") from None
        advice = ADVICE.get(307 if error.response.is_redirect else status)
        raise Unavailable("; ".join(filter(None, (_said(error), advice)))) from None
    except httpx.HTTPError as error:
        raise Unavailable(f"{_said(error)}; {CHECK_NETWORK}") from None
    except ValidationError as error:
        [wrong, *_] = error.errors()  # whose input, which may hold the key, is not shown
        where = ".".join(map(str, wrong["loc"]))
        raise ValueError(
            f"{model.endpoint} sends no completion with log-probs ({where}: {wrong['msg']}); does it support `echo` "
            "with `logprobs`?"
        ) from None


def _said(error: BaseException) -> str:
    """How the endpoint fails: what it answers, or what the connection says, on one line and without the key."""
    message = str(error) or type(error).__name__
    if isinstance(error, httpx.HTTPStatusError):
        reply = error.response
        try:
            message = reply.headers.get("Location") or reply.json()["error"]["message"]
        except (ValueError, LookupError, TypeError):  # no JSON, or another server's
            message = reply.text
        message = f"{reply.status_code}: {message}"
    return f"{endpoint()} fails ({textwrap.shorten(masked(message), 300, placeholder='…')})"


# --- reading a reply ---


def prompt_log_probs(reply: Reply, model: ApiModel, prompt: str | list[int]) -> list[float]:
    """Log p of each of the prompt's tokens but the first, nats, out of a reply that may end in a surplus token.

    The first has nothing before it. Where the text was sent, a start token of the server's own may be the first.
    ValueError for another number of tokens, for tokens that spell another text, and for a log-prob that is none.
    """
    tokens, log_probs = reply.tokens, reply.log_probs
    if len(tokens) != len(log_probs):
        raise ValueError(f"the reply holds {len(tokens)} tokens and {len(log_probs)} log-probs")
    are_ids = bool(tokens) and all(re.fullmatch(f"{ID_PREFIX}[0-9]+", token) for token in tokens)
    if isinstance(prompt, str):
        advice = "set MIALIB_API_TOKENIZER, so that token ids are sent"
        if are_ids:
            raise ValueError(f"the reply holds token ids ({tokens[-1]!r}) in place of tokens; {advice} and compared")
        ends = range(max(0, len(tokens) - 1), len(tokens) + 1)
        fits = [end for end in ends if spell(tokens[:end], prompt) or spell(tokens[1:end], prompt)]
        if len(fits) > 1 and prompt[-1:].isspace():  # was it the text's last token, or written after it?
            fits = [end for end in fits if end == reply.prompt_tokens]
            advice = "strip the white space at the text's end"
    else:
        advice = "is MIALIB_API_TOKENIZER this model's own tokenizer?"
        if not len(prompt) <= len(tokens) <= len(prompt) + 1:
            raise ValueError(f"the reply holds {len(tokens)} tokens where {len(prompt)} were sent")
        sent = slice(len(model.start_token_ids), len(prompt))
        fits = [len(prompt)] if are_ids or spell(tokens[sent], model.spelling(prompt[sent])) else []
        for token_id, received in zip(prompt[sent], tokens[sent], strict=True) if fits else ():
            wanted = f"{ID_PREFIX}{token_id}" if are_ids else model.spelling([token_id])
            if received != wanted if are_ids else _is_another(wanted, received):
                raise ValueError(f"the reply holds the token {received!r} where {wanted!r} was sent; {advice}")
    if not fits:
        spelled = excerpt(masked("".join(tokens)))
        raise ValueError(f"the reply's tokens spell {spelled}, not what was sent; {advice}")
    scored = []
    for at, value in enumerate(log_probs[1 : fits[0]], start=1):
        if not logprobs.is_log_prob(value):
            raise ValueError(f"token {at} of the reply ({tokens[at]!r}): log-prob {value}")
        scored.append(value)
    return scored


def _is_another(sent: str, received: str) -> bool:
    """Whether a token differs from the one that was sent; only plain words are written alike by all servers."""
    sent, received = (re.sub(r"[\s▁Ġ]", "", token) for token in (sent, received))
    return sent.isalnum() and received.isalnum() and sent != received


def spell(tokens: Sequence[str], text: str) -> bool:
    """Whether tokens join to a text, as servers write tokens.

    Spaces are not compared: some servers strip them or write "▁". A token that ends within a character has no text of
    its own; servers write U+FFFD, or OpenAI `bytes:\\xe2\\x80`. Then the ASCII characters are compared alone.
    """
    joined = "".join(
        re.sub(ESCAPED_BYTE, "\ufffd", t[6:]) if re.match("bytes:.*" + ESCAPED_BYTE, t) else t for t in tokens
    )
    joined, text = (re.sub(r"[\s▁]", "", s) for s in (joined, text))
    if "\ufffd" in joined:
        joined, text = (s.encode("ascii", "ignore").decode() for s in (joined, text))
    return joined == text
