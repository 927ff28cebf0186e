"""Synthetic texts: the appendix's prompt, a real server that fails in the usual ways, and samples of a tiny model."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from conftest import SENTENCES

from replication.builders.synthetic import NewTexts, build_prompt, parse_numbered, sample_synthetic, write_synthetic
from replication.remote import services

SOURCES = [f"Source number {i}: the {noun} stands behind the old mill, and nobody has painted it since {1900 + i}."
           for i, noun in enumerate(["gate", "bridge", "tower", "barn", "chapel", "school", "forge"])]  # fmt: skip


def new_text(i):
    words = np.random.default_rng(i).permutation(
        [f"{w}{i}" for w in ("some", "words", "that", "no", "other", "text", "has", "in", "it")]
    )
    return " ".join(words)


class ChatServer:
    """An OpenAI-compatible server on localhost; `drops` are the numbers of requests whose replies break off."""

    def __init__(self):
        self.drops, self.requests, self.n_answers = range(0), [], 0
        handler = type("Handler", (BaseHTTPRequestHandler,), {"do_POST": lambda h: self.answer(h)})
        handler.log_message = lambda *_: None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        is_whole = len(self.requests) not in self.drops
        self.requests.append((handler.path, handler.headers.get("Authorization"), body))
        listed = "\n".join(f"{6 + i}. {new_text(10 * self.n_answers + i)}" for i in range(10))
        self.n_answers += 1
        content = f"Here are ten data points:\n\n{listed}"
        answer = {"choices": [{"message": {"role": "assistant", "content": content}}]}
        data = json.dumps(answer).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data if is_whole else data[: len(data) // 2])
        handler.close_connection = True


@pytest.fixture
def chat(monkeypatch):
    monkeypatch.setattr(services, "FIRST_WAIT", 0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ChatServer()
    yield server
    server.server.shutdown()
    server.server.server_close()


def write(chat, path, n=25, **options):
    return write_synthetic(SOURCES, n, path, base_url=chat.url, model="tiny-chat", **options)


def test_prompt_is_table_5():
    assert build_prompt(["one", "two {n}", "three", "four", "five"]) == (
        "I am creating a dataset and need to generate data that is similar but not identical to the following "
        "examples. Here are 5 examples from my dataset:\n"
        "1. one\n2. two {n}\n3. three\n4. four\n5. five\n"
        "Please generate 10 new data points that are similar in style and structure to these examples but are unique "
        "in content. Format the responses as a numbered list, starting from 6 onwards. Each data point should start "
        "on a new line and be prefixed with its corresponding number followed by a period and a space.\n"
        "For example:\n6. [New Data Point 1]\n7. [New Data Point 2]\n..."
    )


@pytest.mark.parametrize(
    "reply, expected",
    [
        ("Sure!\n\n6. Title: A\nAbstract: B\n\n7. C ", ["Title: A\nAbstract: B", "C"]),
        ("1. starts\n2. at one", ["starts", "at one"]),
        ("6. In\n1987. was a year\n7. two", ["In\n1987. was a year", "two"]),
        ("6. one\x0b7. of the same item\n7. two", ["one\x0b7. of the same item", "two"]),
        ("6. \n7. two", ["two"]),
        ("3.5 percent", []),
    ],
)
def test_numbered_replies_are_taken_apart(reply, expected):
    assert parse_numbered(reply) == expected


def test_only_new_texts_are_kept():
    near = SENTENCES[0].replace("three villages", "four villages")
    first, last = "Wholly new.", "Another new one of more than seven words."
    new = NewTexts(SENTENCES)
    assert new.take([first, " ", "wholly  NEW.", SENTENCES[2].upper(), near, last]) == [first, last]
    assert new.left_out == Counter({"repeated": 2, "blank": 1, "nearly copied": 1})
    assert new.take(["Wholly new."]) == [], "it remembers"
    chinese = SENTENCES[7]
    in_chinese = NewTexts([chinese], "zh")
    assert not in_chinese.take([chinese.replace("。", "，向北。")])
    assert in_chinese.left_out == {"nearly copied": 1}


def test_texts_come_ten_a_reply_with_five_examples_that_the_seed_draws(chat, tmp_path):
    assert write(chat, tmp_path / "new.jsonl") == [new_text(i) for i in range(25)]
    assert len(chat.requests) == 3
    assert len((tmp_path / "new.jsonl").read_text().splitlines()) == 3
    path, authorization, body = chat.requests[0]
    assert path == "/v1/chat/completions" and authorization is None
    assert body["model"] == "tiny-chat" and body["messages"][0]["role"] == "user"
    prompts = [body["messages"][0]["content"] for _, _, body in chat.requests]
    shown = [[s for s in SOURCES if s in prompt] for prompt in prompts]
    assert [len(s) for s in shown] == [5, 5, 5] and len(set(prompts)) == 3
    write(chat, tmp_path / "again.jsonl")
    assert [body["messages"][0]["content"] for _, _, body in chat.requests[3:]] == prompts
    write(chat, tmp_path / "other.jsonl", seed=1)
    assert chat.requests[6][2]["messages"][0]["content"] not in prompts


def test_an_interrupted_run_goes_on_where_it_ended(chat, tmp_path):
    whole = write(chat, tmp_path / "whole.jsonl", n=40)
    prompts = [body["messages"][0]["content"] for _, _, body in chat.requests]
    chat.requests.clear()
    chat.n_answers, chat.drops = 0, range(2, 2 + services.MAX_ATTEMPTS)
    path = tmp_path / "new.jsonl"
    with pytest.raises(ConnectionError, match="RemoteProtocolError"):
        write(chat, path, n=40)
    assert len(path.read_text().splitlines()) == 2
    with path.open("a") as file:
        file.write('{"made_by": "brok')  # as a crash leaves a line
    chat.requests.clear()
    chat.n_answers, chat.drops = 2, range(0)
    assert write(chat, path, n=40) == whole
    assert [body["messages"][0]["content"] for _, _, body in chat.requests] == prompts[2:]
    chat.requests.clear()
    assert write(chat, path, n=40) == whole and chat.requests == []  # all is there: nothing is asked


@pytest.fixture(scope="module")
def wide_model(tiny_model):
    """Room for a sample; random weights, so its words are random bytes."""
    return tiny_model("gpt_neox", max_position_embeddings=512)


def test_samples_begin_as_texts_do_come_again_and_do_not_recite(wide_model, monkeypatch):
    before = torch.get_rng_state()
    texts = sample_synthetic(wide_model, SENTENCES, 6, n_words=5, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(texts)) == 6 and all(len(text.split()) == 5 for text in texts)
    beginnings = [" ".join(text.split()[:1]) for text in SENTENCES]
    assert all(text.startswith(tuple(beginnings)) for text in texts)
    assert sample_synthetic(wide_model, SENTENCES, 6, n_words=5, seed=1) == texts
    assert sample_synthetic(wide_model, SENTENCES, 6, n_words=5, seed=2) != texts
    texts = sample_synthetic(wide_model, SENTENCES, 4, n_words=9, seed=1)
    again = sample_synthetic(wide_model, SENTENCES, 4, n_words=9, seed=1, known=texts[:2])
    assert not set(texts[:2]) & set(again) and again[:2] == texts[2:]
