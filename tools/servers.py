"""Real servers of completions beside the model that mialib scores itself: which work, which not, and how exactly.

    python tools/servers.py llama.cpp --python OTHER/bin/python     `pip install "llama-cpp-python[server]"` lies there
    python tools/servers.py vllm --python OTHER/bin/python          `pip install vllm` lies there

The server gets SmolLM2-135M (`mialib fetch smollm2-135m`) and is asked in a folder of its own. A row is a way to ask:
with the model's tokenizer (token ids, start token first) or without it (the server cuts the texts). A server that
answers gives the largest and the mean difference of a token's log-prob (nats) to the local pass; one that does not is
quoted. With the tokenizer it is also stopped amid a run and started again, and asked for a text beyond its context.
The exit status is 1 where log-probs came that are not the local ones: refused is safe, wrong is not.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import httpx
import numpy as np

from mialib.catalog.sources import find
from mialib.passes.cache import score_or_load
from mialib.store import home

MODEL, START_TOKEN, PORT, CONTEXT = "smollm2-135m", "<|endoftext|>", 8765, 1024
MOST_APART = {"llama.cpp": 1.0, "vllm": 1e-3}  # nats: llama.cpp multiplies in 8 bits, vLLM in float32
SERVE = {  # the arguments of Python: of the model's folder, and of its GGUF file
    "llama.cpp": "-m llama_cpp.server --model {gguf} --logits_all true --n_ctx {context} --port {port}",
    "vllm": "-m vllm.entrypoints.openai.api_server --model {folder} --served-model-name smollm2-135m --dtype float32 "
    "--max-model-len {context} --enforce-eager --port {port}",
}
PACKAGE = {"llama.cpp": "llama_cpp_python", "vllm": "vllm"}
ORDINARY = [
    f"{who} {did} the {what} before the {when} of {year}, as the report says on page {year % 97}."
    for who in ("A committee", "My grandmother", "The port of Rotterdam")
    for did in ("sold", "measured")
    for what in ("bridge", "old archive")
    for when, year in (("winter", 1987), ("floods", 2011))
]
UNUSUAL = [
    "Grüße aus Köln: naïve Café-Preise, 5 €",
    "今天天气很好，我们去公园散步。",
    "def f(x):\n\treturn x  # 🙂",
    "  spaces before",
]
TEXTS = {
    "ordinary": ORDINARY,
    "unusual": UNUSUAL,
    "space end": ["a space at the end "],
    "marked": ["What <|endoftext|> means inside a text"],
    "too long": [" ".join(f"Then came number {i}." for i in range(600))],
}


@contextmanager
def server(command: list[str], log: Path) -> Iterator[None]:
    """A running server, once it answers; SystemExit with the end of its log where it ends or takes ten minutes."""
    process = subprocess.Popen(command, stdout=log.open("a"), stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{PORT}/v1/models").raise_for_status()
                break
            except httpx.HTTPError:
                if process.poll() is not None:
                    break
                time.sleep(1)
        else:
            process.kill()
        if process.poll() is not None:
            sys.exit(f"the server did not start:\n{log.read_text()[-2000:]}")
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with what it started: one that ends in peace waits for its requests
        process.wait()


def asked(texts: list[str], model: str, start_token: str | None) -> tuple[float, str]:
    """The largest difference of a token's log-prob to the local pass, nats, NaN where refused; and what came."""
    try:
        stats = score_or_load(f"api:{MODEL}", texts, start_token=start_token)
    except (ValueError, OSError) as error:
        return np.nan, f"refused: {error}"
    local = score_or_load(model, texts, start_token=start_token)
    if others := np.count_nonzero(stats.n_tokens != local.n_tokens):
        return np.nan if start_token is None else np.inf, f"read as other tokens: {others} of {len(texts)} texts"
    gap = np.abs(stats.log_prob - local.log_prob)
    said = f"largest difference {gap.max():.1e}, mean {gap.mean():.1e} over {len(gap)} tokens"
    return float(gap.max()), f"sent as {stats.provenance['sent_as']}: {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=SERVE)
    parser.add_argument("--python", default=sys.executable, help="of the environment that the server is installed in")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    code = f"from importlib.metadata import version; print(version({PACKAGE[options.server]!r}))"
    found = subprocess.run([options.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    os.environ |= {"OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1", "OPENAI_API_KEY": "none"}
    folder = str(find(MODEL).folder)
    [gguf] = (home() / "models").glob(f"{MODEL}-*.gguf")
    arguments = SERVE[options.server].format(folder=folder, gguf=gguf, context=CONTEXT, port=PORT)
    print(f"{options.server} {found}, {MODEL}, {CONTEXT} tokens of context")
    gaps: list[float] = []

    def ask(way: str, what: str, texts: list[str]) -> None:
        os.environ["MIALIB_API_TOKENIZER"], began = folder if way == "with" else "", time.monotonic()
        gap, said = asked(texts, folder, START_TOKEN if way == "with" else None)
        gaps.append(gap)
        print(f"{way:8} {what:9} {len(texts):3} texts {time.monotonic() - began:5.1f} s  {said}", flush=True)

    with TemporaryDirectory() as kept:
        os.environ["MIALIB_HOME"] = kept
        start = partial(server, [options.python, *arguments.split()], Path(kept, "server.log"))
        with start():
            for way in ("with", "without"):
                for what, texts in TEXTS.items():
                    ask(way, what, texts)
                    if what == "ordinary" and np.isnan(gaps[-1]):  # the others would be refused alike
                        break
            many = [f"{i}. {text}" for i in range(20) for text in ORDINARY]
            amid = Thread(target=ask, args=("with", "restarted", many))
            amid.start()
            while amid.is_alive() and not any(Path(kept).rglob("*.replies.jsonl")):
                time.sleep(0.2)
        with start():
            amid.join()
            ask("with", "again", many)  # what is kept is not asked for anew
    if (worst := max([0.0, *(gap for gap in gaps if not np.isnan(gap))])) > MOST_APART[options.server]:
        sys.exit(f"{options.server}: log-probs came that are {worst:.2g} nats from the local ones")


if __name__ == "__main__":
    main()
