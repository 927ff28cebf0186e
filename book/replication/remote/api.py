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

import asyncio
import base64
import json
import logging
import math
import os
import re
import textwrap
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from tenacity import AsyncRetrying

from mialib.batches import encode
from mialib.cache import STATS, cache_path, cached, locked
from mialib.catalog import logprobs
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import PassOptions, find
from mialib.models import find_start_tokens, recorded_start, tokenizer_hash
from mialib.progress import progress
from mialib.shared.schema import Positive
from mialib.store import atomic_path, hash_of, hash_texts
from mialib.text import check_texts, excerpt, printable
from mialib.token_stats import TokenStats
from mialib.versions import versions_of
from replication.remote import retries
from replication.remote.replies import append_line, line_of, read_lines

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
AT_ONCE = 8  # requests under way
CONNECT_SECONDS = 10
BYTES_A_TOKEN = 4  # a guess, for English
WORDS = "violin gravel Tuesday saucer eleven harbour purple wizard lemon cactus jury velvet oxygen pigeon ladder marble"
PROBE = f"{WORDS}\n{WORDS}"
LEAST_GAIN = 1.0  # nats per token, by which the probe's words are likelier the second time
ID_PREFIX = "token_id:"  # what vLLM writes before a token's id, in place of a token (--return-tokens-as-token-ids)
ESCAPED_BYTE = r"\\x[0-9a-f]{2}"
MOST_SAID = 10_000  # characters of a server's words
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
        """A model behind the environment's endpoint; ValueError for a start token without a tokenizer."""
        api = find(name)
        if api.tokenizer is None:
            if start_token not in ("auto", None):
                raise ValueError(f"start token {start_token!r} can't be sent: {api.lacks['token_ids']}")
            return cls(name, endpoint())
        tokenizer = load_tokenizer(name)
        return cls(name, endpoint(), tokenizer, find_start_tokens(tokenizer, "", api.start_token(start_token)))

    @cached_property
    def determined_by(self) -> dict[str, Any]:
        """What a text's reply depends on besides the text."""
        return {
            "endpoint": self.endpoint,
            "model": self.name,
            "tokenizer": tokenizer_hash(self.tokenizer) if self.tokenizer else None,
            "start_token_id": recorded_start(self.start_token_ids),
        }

    def spelling(self, token_ids: list[int]) -> str:
        """The text that tokens spell."""
        return str(self.tokenizer.decode(token_ids)) if self.tokenizer else ""

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
        return f"{self.spelling(list(self.start_token_ids))}{text}" if way == "start token and text" else text

    def prompts(self, texts: Sequence[str]) -> list[str] | list[list[int]]:
        """What a reply to each text must spell: the text, or the ids of its tokens with the start tokens' first.

        ValueError, naming the text, for one that leaves no token to score.
        """
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
        """Log-probs of the texts; each reply is kept. ValueError for texts after others or at another temperature."""
        if not options.is_of_texts_alone:
            raise ValueError(
                f"{self.name}: an API is asked for texts alone, not after others or at another temperature"
            )
        api_model = ApiModel.of(self.name, options.start_token)
        asked = api_model.determined_by
        # One file for all texts, so that a list with a text more or less pays for the others once; one run at a time.
        replies = cache_path("token_stats", STATS, **asked).with_suffix(".replies.jsonl")
        was_asked = []

        def make() -> TokenStats:
            with locked(replies):
                was_asked.append(True)
                return score_by_api(api_model, texts, replies)

        key: dict[str, Any] = asked | {"texts": hash_texts(texts)} | versions_of("api")
        stats = cached("token_stats", make, STATS, **key)
        if was_asked:
            with locked(replies):
                drop_replies(replies, texts)
        return stats


class TokenLogProbs(BaseModel):
    """The part of a reply that is read: a log-prob for each token of prompt and completion."""

    model_config = ConfigDict(strict=True)  # "-1.5" and false are no log-probs

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: Any = None  # some servers' likeliest tokens, each in its own form


class Choice(BaseModel):
    """A completion, of which one is asked for."""

    index: int = 0
    logprobs: TokenLogProbs


class Usage(BaseModel):
    """What a request took, in tokens."""

    prompt_tokens: int | None = None


class Reply(BaseModel):
    """A completions endpoint's reply."""

    model: str = "unnamed"
    choices: list[Choice] = Field(min_length=1)
    usage: Usage | None = None


class RefusedError(ValueError):
    """The endpoint will not answer this prompt as it was sent (400, 422; of the probe, 500)."""


def _url() -> str:
    """The address in the environment; the ValueError for one that is wrong does not show it, as it may hold secrets."""
    url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    try:
        parts, _ = urlsplit(url), httpx.URL(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        is_address = False
    if not is_address:
        raise ValueError("OPENAI_BASE_URL: an address such as http://localhost:8000/v1 is expected")
    return url


def endpoint() -> str:
    """The endpoint's address, without user, password and query, which may be secret."""
    url = urlsplit(_url())
    return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path.rstrip("/"), "", ""))


def score_by_api(model: ApiModel, texts: Sequence[str], replies: Path) -> TokenStats:
    """Token statistics of each text, in the order given; texts whose reply is in the file `replies` are not asked for.

    ValueError, naming the text, for one that is empty or leaves no token to score, for one that the endpoint refuses,
    and for a reply that is none; ValueError for log-probs far below guessing, or of other tokens than they stand at;
    Unavailable where the endpoint refuses the key, knows no such model or fails for good.
    """
    check_texts(texts, "texts to score")
    prompts, names = model.prompts(texts), [hash_texts([text]) for text in texts]
    kept = read_replies(replies, model)
    missing: dict[str, int] = {}  # of equal texts the first
    for i, name in enumerate(names):
        if name not in kept:
            missing.setdefault(name, i)
    if missing:
        if not api_key():
            raise Unavailable(
                f"set OPENAI_API_KEY to your key for {model.endpoint}, or to any word where it asks for none"
            )
        logger.info("%s", _estimate(model, [prompts[i] for i in missing.values()]))
        try:
            _until_done(partial(_ask_all, model, texts, missing, prompts, replies, kept))
        except (ValueError, OSError) as error:
            n_kept, n_all = len(kept.keys() & set(names)), len(set(names))
            so_far = f". Of {n_all} different texts {n_kept} are kept; a rerun goes on from there" if n_kept else ""
            raise (Unavailable if isinstance(error, OSError) else ValueError)(f"{error}{so_far}") from None

    begin = max(0, len(model.start_token_ids) - 1)  # of several start tokens the last one predicts the text
    ids = [None if isinstance(prompt, str) else prompt[1 + begin :] for prompt in prompts]
    log_probs = [kept[name]["log_prob"][begin:] for name in names]
    rows = [logprobs.Known(*row) for row in zip(ids, log_probs, strict=True)]
    reported = sorted({kept[name]["model"] for name in names})
    provenance = {
        "revision": f"{', '.join(reported)} at {model.endpoint}",
        "tokenizer": model.determined_by["tokenizer"],
        "device": "API",
        "start_token_id": recorded_start(model.start_token_ids),
        "sent_as": ", ".join(sorted({kept[name].get("sent_as", "not known") for name in names})),
        "versions": versions_of("api"),
    }
    try:
        return logprobs.known_log_probs(Api(model.name), texts, rows, provenance)
    except ValueError:
        drop_replies(replies, texts)  # a model that is mended there is asked again
        raise


def read_replies(path: Path, model: ApiModel) -> dict[str, dict[str, Any]]:
    """The replies of earlier runs by their text's hash: log-probs, and the model as the endpoint calls it.

    Those that another model, endpoint or tokenizer gave are left out with a warning.
    """
    rows, asked = read_lines(path), hash_of(model.determined_by)
    own = [row for row in rows if row.get("asked", asked) == asked]  # the oldest lines don't say what was asked
    if n_others := len(rows) - len(own):
        logger.warning("%s: %d replies of another model, endpoint or tokenizer; left out and asked for", path, n_others)
    return {row["text"]: row for row in own}


def drop_replies(path: Path, texts: Sequence[str]) -> None:
    """Remove these texts' replies, and the file where no other's is left."""
    done = {hash_texts([text]) for text in texts}
    left = [reply for reply in read_lines(path) if reply["text"] not in done]
    if left:
        with atomic_path(path) as temporary:
            temporary.write_text("".join(map(line_of, left)), encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def _nothing_to_score(i: int, n_tokens: int, text: str) -> ValueError:
    return ValueError(
        f"text {i} has {n_tokens} token and no start token is prepended, so nothing can be scored: {excerpt(text)}"
    )


def _estimate(model: ApiModel, prompts: Sequence[str | list[int]]) -> str:
    """What these requests take: tokens and, at MIALIB_API_PRICE, US dollars."""
    if model.tokenizer is None:
        n_tokens = sum(len(str(text).encode()) for text in prompts) // BYTES_A_TOKEN
        counted = f"about {n_tokens:,} tokens (an estimate: {BYTES_A_TOKEN} bytes each)"
    else:
        n_tokens = sum(map(len, prompts))
        counted = f"{n_tokens:,} tokens"
    price = price_a_million()
    dollars = "" if price is None else f", about ${n_tokens * price / 1e6:.4f} at ${price:g} a million tokens"
    return f"{model.name} at {model.endpoint}: {len(prompts)} requests, {counted}{dollars}"


def price_a_million() -> float | None:
    """$MIALIB_API_PRICE: US dollars a million tokens; None where it is not set."""
    return _number("MIALIB_API_PRICE")


def _number(variable: str) -> float | None:
    """A positive number from the environment, None where it is not set."""
    value = os.environ.get(variable)
    try:
        return TypeAdapter(Positive).validate_python(value) if value else None
    except ValidationError:
        raise ValueError(f"{variable}: a positive number is expected, got {value!r}") from None


def api_key() -> str:
    """The key in the environment, without the white space around it that a line of a file may leave; "" for none.

    ValueError, which does not show it, where it holds a character that no request's header can carry.
    """
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if wrong := [at for at, sign in enumerate(key, start=1) if not "!" <= sign <= "~"]:
        raise ValueError(
            f"OPENAI_API_KEY: its character {wrong[0]} of {len(key)} is none that a key has; typographic quotes, a "
            "space? Set it again, without quotes"
        )
    return key


# --- asking -----------------------------------------------------------------------------------------------------------


def _until_done(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do asynchronous work in a thread of its own, since in a notebook this thread already runs a loop.

    What stops this thread, such as Ctrl-C, also stops the work, even before it begins.
    """
    loop = asyncio.new_event_loop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(work())

    def stop() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    with ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(run).result()
        except BaseException:
            with suppress(RuntimeError):  # the work has ended, and its loop with it
                loop.call_soon_threadsafe(stop)
            raise


async def _ask_all(
    model: ApiModel,
    texts: Sequence[str],
    missing: Mapping[str, int],
    prompts: list[str] | list[list[int]],
    replies: Path,
    kept: dict[str, dict[str, Any]],
) -> None:
    """Append the reply to each missing text to the file `replies` and to `kept`, several requests at once.

    The first failure stops the run; replies to requests under way are still waited for and kept.
    """
    asked, left, failures = hash_of(model.determined_by), deque(missing), []

    async def ask_for_one(name: str, way: str) -> None:
        i = missing[name]
        try:
            reply = await _ask(client, wait, model, model.sent(way, prompts[i], texts[i]))
            log_prob = prompt_log_probs(reply, model, prompts[i])
        except ValueError as error:
            raise type(error)(f"text {i} ({excerpt(texts[i])}): {_without_secrets(str(error))}") from None
        if not log_prob:
            raise _nothing_to_score(i, 1, texts[i])
        row = {"asked": asked, "text": name, "sent_as": way, "log_prob": log_prob}
        row["model"] = printable(_without_secrets(reply.model))
        append_line(replies, row)
        kept[name] = row
        tell([i], len(log_prob))

    async def ask_for_what_is_left(way: str) -> None:
        try:
            while left:
                await ask_for_one(left.popleft(), way)
        except Exception as failure:
            left.clear()
            failures.append(failure)

    headers, wait = {"Authorization": f"Bearer {api_key()}"}, _pacer()
    timeout = httpx.Timeout(retries.REPLY_SECONDS, connect=CONNECT_SECONDS)
    with progress(model.name, {i: len(texts[i]) for i in missing.values()}) as tell:
        async with httpx.AsyncClient(headers=headers, timeout=timeout) as client:
            way = await _find_way(client, wait, model)
            await asyncio.gather(*(ask_for_what_is_left(way) for _ in range(AT_ONCE)))
    if failures:
        raise failures[0]


async def _find_way(client: httpx.AsyncClient, wait: Callable[[], Awaitable[None]], model: ApiModel) -> str:
    """Send the probe in each way until the endpoint reads its tokens; ValueError where it does in none.

    ValueError also for log-probs that are not of the tokens at which they stand.
    """
    [prompt], refusals = model.prompts([PROBE]), []
    for way in model.ways:
        try:
            sent, may_refuse = model.sent(way, prompt, PROBE), way != model.ways[-1]
            reply = await _ask(client, wait, model, sent, is_first=True, may_refuse=may_refuse)
            log_probs = prompt_log_probs(reply, model, prompt)
        except ValueError as error:
            refusals.append(f"as {way}: {_without_secrets(str(error))}")
            if way == "token ids" and not isinstance(error, RefusedError):
                break  # it reads other tokens than were sent
            continue
        half = len(log_probs) // 2
        gain = sum(log_probs[-half:]) / half - sum(log_probs[:half]) / half
        if not gain >= LEAST_GAIN:
            raise ValueError(_misplaced(model, next(c.logprobs for c in reply.choices if c.index == 0), gain))
        instead = f" ({'; '.join(refusals)})" if refusals else ""
        logger.info("%s takes %s%s; repeated words gain %.1f nats per token", model.endpoint, way, instead, gain)
        return way
    raise ValueError(f"{model.endpoint} does not answer a probe of {len(PROBE.split())} words, {'; '.join(refusals)}")


def _misplaced(model: ApiModel, of_probe: TokenLogProbs, gain: float) -> str:
    """What is wrong with log-probs by which words that stand twice are not far likelier the second time."""
    said = (
        f"{model.endpoint}: {len(WORDS.split())} repeated words gain {gain:.2f} nats per token the second time; "
        f"from a model that has learned to read, {LEAST_GAIN:g} and more are expected"
    )
    n = len(of_probe.tokens) // 2
    tokens = [token.strip() for token in of_probe.tokens][-n:]
    likeliest = [
        max(of, key=of.get).strip() if isinstance(of, dict) and of else "" for of in of_probe.top_logprobs or []
    ]
    early = [i for i, (top, following) in enumerate(zip(likeliest[-n:], tokens[1:], strict=False)) if top == following]
    if len(early) < n / 2:
        return f"{said}. Its log-probs are of other tokens, or the model has learned nothing"
    at = next((i for i in early if tokens[i] and tokens[i + 1]), early[0])
    return (
        f"{said}. It is off by one row: where {tokens[at]!r} stands, the next token, {tokens[at + 1]!r}, is likeliest. "
        "The server is at fault: take another version, or another server, and report it there"
    )


def _pacer() -> Callable[[], Awaitable[None]]:
    """A function that lets calls pass as often as $MIALIB_API_REQUESTS_PER_MINUTE says, without it at once."""
    per_minute, next_at = _number("MIALIB_API_REQUESTS_PER_MINUTE") or math.inf, 0.0

    async def wait() -> None:
        nonlocal next_at
        now = time.monotonic()
        at = max(now, next_at)
        next_at = at + 60 / per_minute
        await asyncio.sleep(at - now)

    return wait


async def _ask(
    client: httpx.AsyncClient,
    wait: Callable[[], Awaitable[None]],
    model: ApiModel,
    prompt: str | list[int],
    is_first: bool = False,
    may_refuse: bool = False,
) -> Reply:
    """One request, tried again where that may help. Errors are sentences without secrets.

    Where no one answers the first one the address is wrong; later on a server may be starting anew. Where it
    `may_refuse`, a 500 is final: so some servers refuse token ids.
    """
    base = httpx.URL(_url())
    url = base.copy_with(path=f"{base.path.rstrip('/')}/completions")
    asked = {"model": model.name.removeprefix("api:"), "prompt": prompt, "echo": True, "logprobs": 1}
    asked |= {"max_tokens": 1, "temperature": 0}

    async def once() -> bytes:
        await wait()
        try:
            async with asyncio.timeout(retries.REPLY_SECONDS), client.stream("POST", url, json=asked) as stream:
                count = retries.counter(model.endpoint)
                body = b"".join([count(chunk) async for chunk in stream.aiter_bytes()])
        except httpx.ConnectError as error:
            if is_first:
                raise Unavailable(f"{_said(error)}; {CHECK_NETWORK}") from None
            raise
        return retries.whole(stream, body).raise_for_status().content

    try:
        final = {500} if may_refuse else set()
        return Reply.model_validate_json(await retries.retrying(AsyncRetrying, _said, final)(once))
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status in {400, 422} | final:
            raise RefusedError(f"{_said(error)}; if it is too long for the model, cut it or leave it out") from None
        advice = ADVICE.get(307 if error.response.is_redirect else status)
        raise Unavailable("; ".join(filter(None, (_said(error), advice)))) from None
    except httpx.HTTPError as error:
        raise Unavailable(f"{_said(error)}; {CHECK_NETWORK}") from None
    except TimeoutError:
        raise Unavailable(f"{model.endpoint} has sent no whole reply in {retries.REPLY_SECONDS:g} s") from None
    except ValidationError as error:
        [wrong, *_] = error.errors()  # whose input, which may hold the key, is not shown
        where = "".join(f"{part}." for part in wrong["loc"])[:-1]
        raise ValueError(
            f"{model.endpoint} sends no completion with log-probs ({where}: {wrong['msg']}); does it support `echo` "
            "with `logprobs`?"
        ) from None


def _said(error: BaseException) -> str:
    """How the endpoint fails: what it answers, or what the connection says, on one line and without secrets."""
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.HTTPStatusError):
        reply = error.response
        try:
            said = reply.headers.get("Location") or reply.json()["error"]["message"]
        except (ValueError, LookupError, TypeError, RecursionError):  # no JSON, or another server's
            said = reply.text
        said = f"{reply.status_code}: {said}"
    return f"{endpoint()} fails ({textwrap.shorten(_without_secrets(said), 300, placeholder='…')})"


def _without_secrets(text: str) -> str:
    """The text without key, user, password and query, however a message, a header or JSON writes them.

    What is past `MOST_SAID`, which only a hostile server sends, is left out.
    """
    url, key = urlsplit(_url()), os.environ.get("OPENAI_API_KEY", "").strip()
    login = f"{url.username}:{url.password}" if url.password else ""
    given = (key, url.username or "", url.password or "", url.query, *(v for _, v in parse_qsl(url.query)))
    secrets = {form for secret in given for form in (secret, unquote(secret))}
    secrets |= {base64.b64encode(form.encode()).decode() for form in (login, unquote(login))}
    text = text[:MOST_SAID]
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = re.sub("".join(map(_ways_to_write, secret)), "***", text, flags=re.IGNORECASE)
    return text


def _ways_to_write(character: str) -> str:
    """A pattern of a character as it is and as JSON, Python, addresses and HTML escape it."""
    n, in_json = ord(character), json.dumps(character)[1:-1]
    in_address = "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    ways = (f"&#x{n:x};", f"&#{n};", f"\\u{n:04x}", f"\\x{n:02x}", in_address, in_json, character)  # longer ones first
    return rf"\\{{0,4}}(?:{'|'.join(map(re.escape, ways))})"


# --- reading a reply --------------------------------------------------------------------------------------------------


def prompt_log_probs(reply: Reply, model: ApiModel, prompt: str | list[int]) -> list[float]:
    """Log p of each of the prompt's tokens but the first, nats, out of a reply that may end in a surplus token.

    The first has nothing before it. Where the text was sent, a start token of the server's own may be the first.
    ValueError for another number of tokens, for tokens that spell another text, for a log-prob that is none, and for
    none or several choices of index 0.
    """
    asked_for = [choice.logprobs for choice in reply.choices if choice.index == 0]
    if len(asked_for) != 1:
        raise ValueError(f"the reply holds {len(asked_for)} choices of index 0 where one was asked for")
    tokens, log_probs = asked_for[0].tokens, asked_for[0].token_logprobs
    if len(tokens) != len(log_probs):
        raise ValueError(f"the reply holds {len(tokens)} tokens and {len(log_probs)} log-probs")
    are_ids = bool(tokens) and all(re.fullmatch(f"{ID_PREFIX}[0-9]+", token) for token in tokens)
    if isinstance(prompt, str):
        advice = "set MIALIB_API_TOKENIZER, so that token ids are sent"
        if are_ids:
            raise ValueError(f"the reply holds token ids ({tokens[-1]!r}) in place of tokens; {advice} and compared")
        ends = range(max(0, len(tokens) - 1), len(tokens) + 1)
        fitting = [end for end in ends if spell(tokens[:end], prompt) or spell(tokens[1:end], prompt)]
        if len(fitting) > 1 and prompt[-1:].isspace():  # was it the text's last token, or written after it?
            fitting = [end for end in fitting if reply.usage and end == reply.usage.prompt_tokens]
            advice = "strip the white space at the text's end"
    else:
        advice = "is MIALIB_API_TOKENIZER this model's own tokenizer?"
        if not len(prompt) <= len(tokens) <= len(prompt) + 1:
            raise ValueError(f"the reply holds {len(tokens)} tokens where {len(prompt)} were sent")
        sent = slice(len(model.start_token_ids), len(prompt))
        fitting = [len(prompt)] if are_ids or spell(tokens[sent], model.spelling(prompt[sent])) else []
        for token_id, received in zip(prompt[sent], tokens[sent], strict=True) if fitting else ():
            wanted = f"{ID_PREFIX}{token_id}" if are_ids else model.spelling([token_id])
            if received != wanted if are_ids else _is_another(wanted, received):
                raise ValueError(f"the reply holds the token {received!r} where {wanted!r} was sent; {advice}")
    if not fitting:
        spelled = excerpt(_without_secrets("".join(tokens)))
        raise ValueError(f"the reply's tokens spell {spelled}, not what was sent; {advice}")
    scored = []
    for at, value in enumerate(log_probs[1 : fitting[0]], start=1):
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
