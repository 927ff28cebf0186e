"""What it costs scoring to lose nothing and to say nothing wrong: two tables.

    python tools/scoring_costs.py            some five minutes on a free core
    python tools/scoring_costs.py memory     this one alone; or `seconds`

memory     the most that `mialib score` takes, in a new process for each number of short texts
seconds    processor seconds of all that a score would not need where nothing breaks: checkpoints on disk, a
           hash of the weights, and checks of model and numbers. The model has the shape of Pythia-70M, the
           smallest of the papers' family: the larger the model, the smaller these shares
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # whose tiny models serve here too
VOCABULARY = ("river", "stone", "garden", "meets", "leaves", "window", "letter", "market", "carries", "hides", "engine")
NUMBERS_OF_TEXTS = (1_000, 3_000, 10_000, 30_000, 100_000)
WORDS = 8
PYTHIA_70M = {"num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
N_TEXTS, N_WORDS = 400, 60


def some_texts(n: int, n_words: int) -> list[str]:
    rng = random.Random(0)
    return [f"The {' '.join(rng.choices(VOCABULARY, k=n_words))} {rng.randrange(10**6)}" for _ in range(n)]


def memory(folder: Path) -> str:
    """Peak memory of the command against the number of texts."""
    from conftest import FAMILIES, save_tiny_model

    model = save_tiny_model(folder / "tiny", **FAMILIES["gpt_neox"])
    lines, first = (
        [f"{'texts':>9}  {'tokens':>11}  {'peak (MB)':>9}  {'growth (MB)':>11}  {'of it the result (MB)':>21}"],
        0.0,
    )
    for n in NUMBERS_OF_TEXTS:
        home, texts = folder / f"home-{n}", folder / f"{n}.jsonl"
        rows = ({"text": text, "label": i % 2} for i, text in enumerate(some_texts(n, WORDS)))
        texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        said = os.open(folder / f"{n}.log", os.O_WRONLY | os.O_CREAT)
        command = [sys.executable, "-c", "from mialib.commands import main; main()"]
        child = os.posix_spawn(
            sys.executable,
            [*command, "score", model, str(texts)],
            os.environ | {"PYTHONPATH": str(ROOT), "MIALIB_HOME": str(home), "HF_HUB_OFFLINE": "1"},
            file_actions=[(os.POSIX_SPAWN_DUP2, said, 1), (os.POSIX_SPAWN_DUP2, said, 2)],
        )
        _, status, used = os.wait4(child, 0)
        if status:
            raise RuntimeError(f"scoring {n} texts failed:\n{(folder / f'{n}.log').read_text()}")
        # Both passes' numbers, of the texts and of the same lowercased, are in memory at the end: 20 bytes a token.
        n_tokens = sum(int(found) for found in re.findall(r"(\d+) tokens", (folder / f"{n}.log").read_text()))
        peak = used.ru_maxrss / 1e3
        first = first or peak
        lines.append(f"{n:>9,}  {n_tokens:>11,}  {peak:>9,.0f}  {peak - first:>11,.0f}  {n_tokens * 20 / 1e6:>21,.0f}")
    return "\n".join(lines)


class Clock:
    """Processor seconds of functions by name, each without those of the timed functions that it calls."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = threading.local()

    def time(self, of: object, function: str, name: str) -> None:
        plain = getattr(of, function)
        setattr(of, function, self.timed(plain, name))

    def timed(self, plain: Callable, name: str) -> Callable:
        def timed(*arguments: object, **options: object) -> object:
            before, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
            began = time.thread_time()
            try:
                return plain(*arguments, **options)
            finally:
                took = time.thread_time() - began
                self.seconds[name] += took - self._inner.seconds
                self._inner.seconds = before + took

        return timed


def seconds(folder: Path) -> str:
    """Processor seconds of what keeps and checks, and their share of all that scoring takes."""
    import torch
    from conftest import save_tiny_model

    os.environ |= {"MIALIB_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    torch.set_num_threads(1)

    from mialib import cache as disk
    from mialib import scoring
    from mialib.catalog import loading, models
    from mialib.passes import cache

    sizes = {"vocab_size": 50304, "max_position_embeddings": 2048}
    model = save_tiny_model(folder / "70m", "GPTNeoXConfig", **PYTHIA_70M | sizes)
    texts = some_texts(N_TEXTS, N_WORDS)
    clock, work = Clock(), "scoring itself"
    clock.time(disk.Checkpoints, "add", "parts written")
    models.STATS_PARTS = models.STATS_PARTS._replace(read=clock.timed(models.STATS_PARTS.read, "parts read"))
    clock.time(scoring.TokenStats, "joined", "parts joined")
    clock.time(models, "_hash_once", "hash of the weights")
    clock.time(scoring, "check_model", "check of the model")
    clock.time(scoring.LoadedScorer, "check_finite", "check of each log-prob")
    clock.time(loading.Scorer, "encode", "check of each token")
    clock.time(scoring.LoadedScorer, "encode", work)  # what the method above adds a check to
    began = time.process_time()
    stats = cache.score_or_load(model, texts)
    total = time.process_time() - began
    del clock.seconds[work]
    found = [
        *clock.seconds.most_common(),
        ("all of these", clock.seconds.total()),
        ("scoring with all of these", total),
    ]
    lines = [f"{name:<26}  {s:>8.3f} s  {s / total:>7.3%}" for name, s in found]
    return "\n".join([f"{N_TEXTS} texts, {stats.n_tokens.sum():,} tokens, the shape of Pythia-70M, one core:", *lines])


TABLES = {"memory": memory, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs scoring to lose nothing and to say nothing wrong.")
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="these alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="costs-") as folder:
        for name in given.tables or TABLES:
            (Path(folder) / name).mkdir()
            print(TABLES[name](Path(folder) / name), flush=True)


if __name__ == "__main__":
    main()
