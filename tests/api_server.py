"""A completions endpoint on localhost, for tests: it runs a tiny model, and does wrong where it is told to."""

import json
import socket
import sys
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from replication.remote.api import PROBE

KEY = "sk-a-secret-key-of-the-tests"


@cache
def load(folder):
    """The model and the tokenizer of a folder, for all servers."""
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


class Server(ThreadingHTTPServer):
    """A completions endpoint: echo with log-probs, of a model given as a folder, to which words that stand twice are
    likely the second time, as to any that has learned something.

    `before` is called with a request's handler and body and may answer in the model's place; then it returns True.
    `change` is called with a reply before it is sent. The probe is answered without them; `of_probe` may answer it.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.tokenizer = load(folder)
        self.asked, self.at = [], []
        self.before, self.change = lambda handler, body: False, lambda reply: None
        self.of_probe, self.probes = lambda handler, body: False, []
        self.takes_ids = True
        self.adds_start_token = False
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def prompts(self):
        return [body["prompt"] for body in self.asked]

    def handle_error(self, request, client_address):
        """Say nothing of a client that is gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def complete(self, body):
        ids = body["prompt"]
        if isinstance(ids, str):
            ids = self.tokenizer(ids, add_special_tokens=False)["input_ids"]
            ids = [self.tokenizer.bos_token_id] * self.adds_start_token + ids
        n_prompt = len(ids)
        with self.lock, torch.inference_mode():
            log_p = self.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        log_probs = [None, *(float(log_p[at, token]) for at, token in enumerate(ids[1:]))]
        if self.is_probe(body):
            second = n_prompt // 2 + 1
            log_probs[second:] = [-0.1] * len(log_probs[second:])
        for _ in range(body["max_tokens"]):
            token = int(log_p[-1].argmax())
            ids, log_probs = [*ids, token], [*log_probs, float(log_p[-1, token])]
        tokens = [self.tokenizer.decode([token]) for token in ids]
        logprobs = {"tokens": tokens, "token_logprobs": log_probs, "text_offset": [], "top_logprobs": None}
        choice = {"index": 0, "text": "".join(tokens), "finish_reason": "length", "logprobs": logprobs}
        reply = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny-1", "choices": [choice]}
        return reply | {"usage": {"prompt_tokens": n_prompt, "completion_tokens": body["max_tokens"]}}

    def is_probe(self, body):
        """Whether a prompt ends as the probe does."""
        prompt = body["prompt"]
        return (prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)).endswith(PROBE)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_probe = self.server.is_probe(body)
        with self.server.lock:
            (self.server.probes if is_probe else self.server.asked).append(body)
            self.server.at += [] if is_probe else [time.monotonic()]
        if (self.server.of_probe if is_probe else self.server.before)(self, body):
            return
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.refuse(401, f"Incorrect API key provided: {self.headers['Authorization']}")
        if self.path != "/v1/completions" or body["model"] != "tiny":
            return self.refuse(404, f"The model {body['model']} does not exist")
        if not (body["echo"] and body["logprobs"] == 1 and body["temperature"] == 0):
            return self.refuse(400, "echo, logprobs and temperature are expected")
        if not (self.server.takes_ids or isinstance(body["prompt"], str)):
            return self.refuse(500, "1 validation error: prompt: input should be a valid string")
        reply = self.server.complete(body)
        if not is_probe:
            self.server.change(reply)
        self.send(200, json.dumps(reply))

    def refuse(self, status, message, **headers):
        self.send(status, json.dumps({"error": {"message": message, "type": "error"}}), **headers)
        return True

    def send(self, status, text, content_type="application/json", **headers):
        data = text.encode()
        self.send_response(status)
        for name, value in ({"Content-Type": content_type, "Content-Length": len(data)} | headers).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)
        return True

    def log_message(self, *args):
        pass


def stop_after(n):
    """Cut the connection of each request after the first n, before a reply."""
    answered = []

    def before(handler, body):
        answered.append(body)
        if len(answered) <= n:
            return False
        handler.connection.shutdown(socket.SHUT_RDWR)
        return True

    return before


def of_logprobs(change):
    """A change to the lists of a reply's log-probs."""
    return lambda reply: change(reply["choices"][0]["logprobs"])


def set_log_prob(at, value):
    return of_logprobs(lambda logprobs: logprobs["token_logprobs"].__setitem__(at, value))
