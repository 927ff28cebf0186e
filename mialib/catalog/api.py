"""Models behind an API: token log-probs from any OpenAI-compatible completions endpoint.

A model `api:NAME` is asked to repeat a prompt (`echo`) with the log-prob of each of its tokens. Address and key come
from the environment, OPENAI_BASE_URL and OPENAI_API_KEY, as the `openai` client reads them; the key is written nowhere.

    tokenizer known    ids of the start token and the text are sent: the numbers are those of `mialib.Scorer`
    not known          the text is sent, and its first token is not scored: nothing stands before it

An API gives neither entropy nor variance. What it lacks is NaN (-1 for token ids) and named in `TokenStats.lacks`.
Each reply is kept as soon as it is there, so that an interrupted run goes on where it stopped. Of a failure, requests
that are under way are waited for; on Ctrl-C they are not, so at most `AT_ONCE` of them are paid for again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import os
import re
import socket
import textwrap
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit
from urllib.request import getproxies

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mialib.batches import encode
from mialib.catalog import logprobs, retries
from mialib.catalog.hub import Unavailable
from mialib.catalog.models import load_tokenizer, start_token_of
from mialib.catalog.registry import log_probs_alone, tokenizer_of_api
from mialib.catalog.replies import append_line, line_of, read_lines
from mialib.catalog.retries import EndlessError
from mialib.catalog.sources import Source
from mialib.models import find_start_token, tokenizer_hash
from mialib.shared.kept import STATS, alone, keep, kept_path
from mialib.store import atomic_path, hash_of, hash_texts, mialib_version
from mialib.text import check_texts, excerpt, printable
from mialib.token_stats import TokenRow, TokenStats, check_likely
from mialib.versions import versions_of

if TYPE_CHECKING:
    import httpx2
    import openai
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"  # where the client asks by default
AT_ONCE = 8  # requests under way
RETRIES = 4  # of one request, by the client: it waits half a second, then longer, or as long as Retry-After says
CONNECT_SECONDS = 10
PORTS = {"http": 80, "https": 443}
BYTES_A_TOKEN = 4  # a guess, for English
ESCAPED_BYTE = r"\\x[0-9a-f]{2}"
MOST_SAID = 10_000  # characters of a server's words
SHORTEST_SECRET = 8  # characters; a shorter key ("none", "EMPTY") hides nothing and may be part of any message


@dataclass(frozen=True)
class ApiModel:
    """A model behind an endpoint, and how texts are sent to it."""

    name: str  # with the prefix
    endpoint: str  # its address, without secrets
    tokenizer: PreTrainedTokenizerBase | None
    tokenizer_hash: str | None
    start_token_id: int | None

    def determined_by(self) -> dict[str, Any]:
        """What a text's reply depends on besides the text."""
        return {
            "endpoint": self.endpoint,
            "model": self.name,
            "tokenizer": self.tokenizer_hash,
            "start_token_id": self.start_token_id,
        }


class Api(Source):
    """`api:NAME`: it gives the log-prob of each of a text's tokens, and nothing else."""

    is_fetched = True

    def no_weights(self, model: str) -> NoReturn:
        """ValueError: the weights are elsewhere."""
        raise ValueError(
            f"{model} is behind an API and its weights are not here; only its texts' log-probs can be had, by "
            "`mialib detect` and `mialib score`"
        )

    def tokenizer(self, model: str) -> str | None:
        """What MIALIB_API_TOKENIZER or the registry names."""
        return tokenizer_of_api(model)

    def vocabulary_size(self, model: str) -> int:
        """|V|, as far as the tokenizer says."""
        return vocabulary_size(load_tokenizer(model))

    def lacks(self, model: str) -> dict[str, str]:
        """All but the actual tokens' log-probs."""
        return lacks(model)

    def score(
        self,
        model: str,
        texts: Sequence[str],
        *,
        start_token: str | None = "auto",
        after: str = "",
        temperature: float = 1.0,
        **_: Any,
    ) -> TokenStats:
        """Log-probs of the texts; each reply is kept. ValueError for texts after others or at another temperature."""
        if after or temperature != 1:
            raise ValueError(f"{model}: an API is asked for texts alone, not after others or at another temperature")
        loaded = load_api_model(model, start_token)
        asked = loaded.determined_by()
        # One file for all texts, so that a list with a text more or less pays for the others once; one run at a time.
        replies = kept_path("token_stats", STATS, **asked).with_suffix(".replies.jsonl")
        was_asked = []

        def make() -> TokenStats:
            with alone(replies):
                was_asked.append(True)
                return score(loaded, texts, replies)

        stats = keep("token_stats", make, STATS, texts=hash_texts(texts), **versions_of("api"), **asked)
        if was_asked:
            with alone(replies):
                drop_replies(replies, texts)
        return stats


def lacks(model: str) -> dict[str, str]:
    """Which columns of token statistics the API does not give, and why."""
    return log_probs_alone(model, f"the API of {model}")


class Logprobs(BaseModel):
    """The part of a reply that is read: a log-prob for each token of prompt and completion."""

    model_config = ConfigDict(strict=True)  # "-1.5" and false are no log-probs

    tokens: list[str]
    token_logprobs: list[float | None]


class Choice(BaseModel):
    """A completion, of which one is asked for."""

    index: int = 0
    logprobs: Logprobs


class Reply(BaseModel):
    """A completions endpoint's reply."""

    model: str = "unnamed"
    choices: list[Choice] = Field(min_length=1)


class RefusedError(ValueError):
    """The endpoint will not answer this prompt as it was sent (400, 422)."""


def _url() -> str:
    url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        shown = re.sub("//[^@]*@", "//", url)  # without user and password
        raise ValueError(f"OPENAI_BASE_URL: {shown!r} is no address ({error})") from None
    return url


def endpoint() -> str:
    """The endpoint's address, without user, password and query, which may be secret."""
    url = urlsplit(_url())
    return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path.rstrip("/"), "", ""))


def load_api_model(model: str, start_token: str | None = "auto") -> ApiModel:
    """A model behind the environment's endpoint, or a file of log-probs; nothing is asked yet.

    `start_token` as for `mialib.catalog.models.load_model`, of no family. ValueError for a start token without a
    tokenizer.
    """
    if tokenizer_of_api(model) is None:
        if start_token not in ("auto", None):
            raise ValueError(f"start token {start_token!r} can't be sent: {lacks(model)['token_ids']}")
        return ApiModel(model, endpoint(), tokenizer=None, tokenizer_hash=None, start_token_id=None)
    tokenizer = load_tokenizer(model)
    return ApiModel(
        model,
        endpoint(),
        tokenizer=tokenizer,
        tokenizer_hash=tokenizer_hash(tokenizer),
        start_token_id=find_start_token(tokenizer, "", start_token_of(model, start_token)),
    )


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """|V| of a model of which only the tokenizer is known."""
    return max(tokenizer.get_vocab().values()) + 1


def score(model: ApiModel, texts: Sequence[str], replies: Path) -> TokenStats:
    """Token statistics of each text, in the order given; texts whose reply is in the file `replies` are not asked for.

    ValueError, naming the text, for one that is empty or leaves no token to score, for one that the endpoint refuses,
    and for a reply that is none; ValueError for log-probs far below guessing; Unavailable where the endpoint refuses
    the key, knows no such model or fails for good.
    """
    check_texts(texts, "texts to score")
    prompts = _prompts(model, texts)
    names = [hash_texts([text]) for text in texts]
    kept = read_replies(replies, model)
    missing: dict[str, int] = {}
    for i, name in enumerate(names):
        if name not in kept:
            missing.setdefault(name, i)
    if missing:
        _check_key(model)
        _check_address()
        logger.info("%s", _estimate(model, texts, list(missing.values()), prompts))
        try:
            _until_done(partial(_ask_all, model, texts, missing, prompts, replies, kept))
        except (ValueError, OSError) as error:
            n_kept = len(kept.keys() & set(names))
            kept_so_far = f". Of {len(set(names))} different texts {n_kept} are kept; a rerun goes on from there"
            kind = Unavailable if isinstance(error, OSError) else ValueError
            raise kind(f"{error}{kept_so_far if n_kept else ''}") from None

    rows = []
    for name, prompt in zip(names, prompts, strict=True):
        log_prob = np.asarray(kept[name]["log_prob"], np.float32)
        unknown = np.full(len(log_prob), np.nan, np.float32)
        ids = np.full(len(log_prob), -1) if isinstance(prompt, str) else prompt[1:]
        rows.append(TokenRow(np.asarray(ids, np.int32), log_prob, unknown, unknown, unknown))
    reported = sorted({kept[name]["model"] for name in names})
    stats = TokenStats.from_rows(rows, provenance=_provenance(model, texts, reported))
    try:
        check_likely(stats, model.name)
    except ValueError:
        drop_replies(replies, texts)  # a model that is mended there is asked again
        raise
    return stats


def _provenance(model: ApiModel, texts: Sequence[str], reported: Sequence[str]) -> dict[str, Any]:
    return {
        "model": model.name,
        "revision": f"{', '.join(reported)} at {model.endpoint}",
        "tokenizer": model.tokenizer_hash,
        "dtype": "not known",
        "device": "API",
        "start_token_id": model.start_token_id,
        "max_tokens": None,
        "texts": hash_texts(texts),
        "n_texts": len(texts),
        "lacks": lacks(model.name),
        "mialib": mialib_version(),
        "versions": versions_of("api"),
    }


def read_replies(path: Path, model: ApiModel) -> dict[str, dict[str, Any]]:
    """The replies of earlier runs by their text's hash: log-probs, and the model as the endpoint calls it.

    Those that another model, endpoint or tokenizer gave are left out with a warning.
    """
    rows, asked = read_lines(path), hash_of(model.determined_by())
    own = [row for row in rows if row.get("asked", asked) == asked]  # which lines of before it was written lack
    if len(own) < len(rows):
        others = len(rows) - len(own)
        logger.warning("%s: %d replies of another model, endpoint or tokenizer; left out and asked for", path, others)
    return {reply["text"]: reply for reply in own}


def drop_replies(path: Path, texts: Sequence[str]) -> None:
    """Remove these texts' replies, and the file where no other's is left."""
    done = {hash_texts([text]) for text in texts}
    left = [reply for reply in read_lines(path) if reply["text"] not in done]
    if left:
        with atomic_path(path) as temporary:
            temporary.write_text("".join(map(line_of, left)), encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def _prompts(model: ApiModel, texts: Sequence[str]) -> list[str] | list[list[int]]:
    """What is sent: token ids, start token first, or the texts themselves where no tokenizer is known."""
    if model.tokenizer is None:
        return list(texts)
    start = [] if model.start_token_id is None else [model.start_token_id]
    encoded = encode(model.tokenizer, texts)
    prompts = [start + ids for ids in encoded]
    for i, ids in enumerate(prompts):
        if len(ids) < 2:
            raise ValueError(_nothing_to_score(i, len(ids), texts[i]))
    return prompts


def _nothing_to_score(i: int, n_tokens: int, text: str) -> str:
    return f"text {i} has {n_tokens} token and no start token is prepended, so nothing can be scored: {excerpt(text)}"


def _estimate(
    model: ApiModel, texts: Sequence[str], missing: Sequence[int], prompts: list[str] | list[list[int]]
) -> str:
    """What asking for the missing texts takes: requests, tokens and, at MIALIB_API_PRICE, US dollars."""
    price = price_a_million()
    if model.tokenizer is None:
        n_tokens = sum(len(texts[i].encode()) for i in missing) // BYTES_A_TOKEN
        counted = f"about {n_tokens:,} tokens (an estimate: {BYTES_A_TOKEN} bytes each)"
    else:
        n_tokens = sum(len(prompts[i]) for i in missing)
        counted = f"{n_tokens:,} tokens"
    dollars = "" if price is None else f", about ${n_tokens * price / 1e6:.4f} at ${price:g} a million tokens"
    return f"{model.name} at {model.endpoint}: {len(missing)} requests, {counted}{dollars}"


def price_a_million() -> float | None:
    """US dollars a million tokens, as $MIALIB_API_PRICE says; None where it does not."""
    return _number("MIALIB_API_PRICE")


def _number(variable: str) -> float | None:
    """A positive number from the environment, None where it is not set."""
    value = os.environ.get(variable)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{variable}: a positive number is expected, got {value!r}")
    return number


def _until_done(start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do asynchronous work, in a thread of its own: in a notebook this one is busy with another loop.

    What stops this thread, such as Ctrl-C, stops the work wherever it waits, or before it begins.
    """
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
    is_stopped = threading.Event()

    async def run() -> None:
        running.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        if not is_stopped.is_set():
            await start()

    with ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(lambda: asyncio.run(run())).result()
        except Exception:
            raise
        except BaseException:
            is_stopped.set()
            if running.done():  # if not, it sees that it is stopped, should it begin at all
                loop, task = running.result()
                with suppress(RuntimeError):  # it has just ended
                    loop.call_soon_threadsafe(task.cancel)
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

    The first failure stops the run; replies to requests that are under way are still waited for and kept.
    """
    from tqdm import tqdm

    asked, left, failures = hash_of(model.determined_by()), deque(missing), []

    async def ask(name: str, max_tokens: int) -> None:
        i = missing[name]
        try:
            reply = await _ask(client, model, prompts[i], max_tokens)
            log_prob = prompt_log_probs(reply, model, prompts[i], max_tokens)
        except ValueError as error:
            raise type(error)(f"text {i} ({excerpt(texts[i])}): {_without_secrets(str(error))}") from None
        if not log_prob:
            raise ValueError(_nothing_to_score(i, 1, texts[i]))
        row = {"asked": asked, "text": name, "model": reply.model, "log_prob": log_prob}
        append_line(replies, row)
        kept[name] = row
        bar.update()

    async def ask_for_what_is_left(max_tokens: int) -> None:
        try:
            while left:
                await ask(left.popleft(), max_tokens)
        except Exception as failure:
            left.clear()
            failures.append(failure)

    with tqdm(total=len(missing), unit="text", desc=printable(model.name), disable=None) as bar:
        async with _client(model) as client:
            first, max_tokens = left.popleft(), 0
            try:
                await ask(first, max_tokens)
            except RefusedError:
                max_tokens = 1  # which some servers write at least; a prompt that is bad in itself is refused again
                await ask(first, max_tokens)
            await asyncio.gather(*(ask_for_what_is_left(max_tokens) for _ in range(AT_ONCE)))
    if failures:
        raise failures[0]


def _check_key(model: ApiModel) -> None:
    if not api_key():
        raise Unavailable(f"set OPENAI_API_KEY to your key for {model.endpoint}, or to any word where it asks for none")


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


def _client(model: ApiModel) -> openai.AsyncOpenAI:
    import openai

    per_minute = _number("MIALIB_API_REQUESTS_PER_MINUTE")
    wait = _pacer(60 / per_minute if per_minute else 0.0)

    class Client(openai.DefaultAsyncHttpxClient):
        """Tells of what the client does in silence: ask again. Waits for a whole reply, and not without end."""

        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            if (n := int(request.headers.get("x-stainless-retry-count", 0))) > 0:
                logger.warning("%s failed or did not answer; asked again, %d of %d times", endpoint(), n, RETRIES)
            await wait()
            try:
                async with asyncio.timeout(retries.REPLY_SECONDS):
                    return await super().send(request, **options)
            except TimeoutError:
                raise EndlessError(f"{endpoint()} has sent no whole reply in {retries.REPLY_SECONDS:g} s") from None

    http = Client(event_hooks={"response": [_bound]}, follow_redirects=False)  # texts go to the named host alone
    return openai.AsyncOpenAI(
        api_key=api_key(),
        base_url=_url(),
        max_retries=RETRIES,
        timeout=retries.REPLY_SECONDS,
        http_client=http,
        default_headers={"Accept-Encoding": "identity"},  # so that a reply is as large as what is sent
    )


async def _bound(response: httpx2.Response) -> None:
    """Let a reply be read as far as `counter` allows; EndlessError for one that is compressed, unasked."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = retries.counter(endpoint())
            async for chunk in sent:
                yield count(chunk)

        async def aclose(self) -> None:
            await sent.aclose()

    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise EndlessError(f"{endpoint()} sends a compressed reply, which was not asked for")
    sent, response.stream = response.stream, Bounded()


def _check_address() -> None:
    """ValueError or Unavailable where nothing can listen at the endpoint, before the client tries again and again."""
    url = urlsplit(_url())
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"OPENAI_BASE_URL: an address with http:// or https:// is expected, got {endpoint()!r}")
    if {url.scheme, "all"} & getproxies().keys():
        return  # the proxy knows
    try:
        socket.create_connection((url.hostname, url.port or PORTS[url.scheme]), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise Unavailable(f"{endpoint()} can't be reached ({error}); check OPENAI_BASE_URL and the network") from None


def _pacer(seconds: float) -> Callable[[], Awaitable[None]]:
    """A function that lets one call pass at once and each further one `seconds` after the one before."""
    next_at = 0.0

    async def wait() -> None:
        nonlocal next_at
        now = time.monotonic()
        at = max(now, next_at)
        next_at = at + seconds
        await asyncio.sleep(at - now)

    return wait


async def _ask(client: openai.AsyncOpenAI, model: ApiModel, prompt: str | list[int], max_tokens: int) -> Reply:
    """One request; the client retries where that may help. Errors are sentences without secrets."""
    import openai

    name = model.name.removeprefix("api:")
    try:
        raw = await client.completions.with_raw_response.create(
            model=name, prompt=prompt, echo=True, logprobs=1, max_tokens=max_tokens, temperature=0
        )
        reply = Reply.model_validate_json(raw.http_response.text)
        return reply.model_copy(update={"model": printable(_without_secrets(reply.model))})
    except openai.AuthenticationError:
        raise Unavailable(f"{model.endpoint} refuses the key (401); check OPENAI_API_KEY") from None
    except openai.NotFoundError:
        raise Unavailable(
            f"{model.endpoint} has no model {name!r} or no completions endpoint (404); check the name and "
            "OPENAI_BASE_URL"
        ) from None
    except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
        raise RefusedError(
            f"{model.endpoint} refuses it ({_said(error)}); where it is too long for the model, cut it or leave it out"
        ) from None
    except openai.APIConnectionError as error:
        raise Unavailable(
            f"{model.endpoint} can't be reached or breaks off ({_said(error.__cause__ or error)})"
        ) from None
    except openai.OpenAIError as error:
        if isinstance(error, openai.APIStatusError) and error.response.is_redirect:
            to = urlsplit(_without_secrets(error.response.headers.get("Location", ""))).hostname or "another address"
            raise Unavailable(
                f"{model.endpoint} sends requests on to {to}, which gets no text unasked; where you trust it, set "
                "OPENAI_BASE_URL to its address"
            ) from None
        raise Unavailable(f"{model.endpoint} fails ({_said(error)})") from None
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise ValueError(
            f"{model.endpoint} sends no completion with log-probs ({where}{': ' if where else ''}{wrong['msg']}); does "
            "it support `echo` with `logprobs`?"
        ) from None


def _said(error: BaseException) -> str:
    """What an error says, or the endpoint in it, on one line and without secrets."""
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    said = f"{f'{status}: ' if status else ''}{said or error or type(error).__name__}"
    return textwrap.shorten(_without_secrets(said), 300, placeholder="…")


def _without_secrets(text: str) -> str:
    """The text without key, user, password and query, however a message, a header or JSON writes them.

    What is past `MOST_SAID`, which only a hostile server sends, is left out.
    """
    text = text[:MOST_SAID]
    for secret in _secrets(_url(), os.environ.get("OPENAI_API_KEY", "")):
        text = secret.sub("***", text)
    return text


@cache
def _secrets(address: str, key: str) -> list[re.Pattern[str]]:
    url = urlsplit(address)
    login = f"{url.username}:{url.password}" if url.password else ""
    basic = {base64.b64encode(form.encode()).decode() for form in (login, unquote(login))}
    given = (key.strip(), url.username or "", url.password or "", url.query, *(v for _, v in parse_qsl(url.query)))
    secrets = sorted(basic | {form for of in given for form in (of, unquote(of))}, key=len, reverse=True)
    return [
        re.compile("".join(map(_ways_to_write, secret)), re.IGNORECASE)
        for secret in secrets
        if len(secret) >= SHORTEST_SECRET
    ]


def _ways_to_write(character: str) -> str:
    """A pattern of a character as it is and as JSON, Python, addresses and HTML escape it."""
    n, in_json = ord(character), json.dumps(character)[1:-1]
    in_address = "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    ways = (f"&#x{n:x};", f"&#{n};", f"\\u{n:04x}", f"\\x{n:02x}", in_address, in_json, character)  # longer ones first
    return rf"\\{{0,4}}(?:{'|'.join(map(re.escape, ways))})"


def prompt_log_probs(reply: Reply, model: ApiModel, prompt: str | list[int], max_tokens: int) -> list[float]:
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
    if isinstance(prompt, str):
        sent, begins, ends = prompt, (0, 1), range(max(0, len(tokens) - max_tokens), len(tokens) + 1)
        advice = "set MIALIB_API_TOKENIZER, so that token ids are sent"
    else:
        if not len(prompt) <= len(tokens) <= len(prompt) + max_tokens:
            raise ValueError(f"the reply holds {len(tokens)} tokens where {len(prompt)} were sent")
        n_start = int(model.start_token_id is not None)
        sent, begins, ends = model.tokenizer.decode(prompt[n_start:]), (n_start,), (len(prompt),)
        advice = "is MIALIB_API_TOKENIZER this model's own tokenizer?"
    fitting = [end for end in ends if any(spell(tokens[begin:end], sent) for begin in begins)]
    if not fitting:
        raise ValueError(
            f"the reply's tokens spell {excerpt(_without_secrets(''.join(tokens)))}, not what was sent; {advice}"
        )
    if not isinstance(prompt, str):
        for token_id, received in zip(prompt[n_start:], tokens[n_start:], strict=False):
            if _is_another(wanted := model.tokenizer.decode([token_id]), received):
                raise ValueError(f"the reply holds the token {received!r} where {wanted!r} was sent; {advice}")
    found = log_probs[1 : fitting[0]]
    for at, value in enumerate(found, start=1):
        if value is None or not logprobs.NO_LOG_PROB < value <= logprobs.LARGEST_LOG_PROB:
            raise ValueError(f"token {at} of the reply ({tokens[at]!r}): log-prob {value}")
    return found


def _is_another(sent: str, received: str) -> bool:
    """Whether a token is surely not the one that was sent; servers write anything but plain words in their own ways."""
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
