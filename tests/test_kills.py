"""A scoring run that is stopped again and again resumes, and gives the same bits as one that was not."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from clones import python_path

pytestmark = pytest.mark.slow

# Batches of few tokens, each slow, and a checkpoint after each.
RUN = """
import time
from mialib import batches, scoring
forward = scoring.LoadedScorer._forward
scoring.LoadedScorer._forward = lambda *given: time.sleep(0.2) or forward(*given)
scoring.TOKENS_PER_BATCH = {"cpu": 40}
batches.SECONDS_A_PART = 0
from mialib.commands import main
main()
"""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def start(home, model, texts):
    environ = {**os.environ, "PYTHONPATH": python_path(), "MIALIB_HOME": str(home)}
    command = [sys.executable, "-c", RUN, "score", model, texts]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers(home):
    return {path.name: path.read_bytes() for path in (home / "cache" / "token_stats").glob("*.parquet")}


def checkpoints(home):
    return {str(path) for path in home.glob("cache/token_stats/*.checkpoints/*.parquet")}


def leftovers(home):
    return [path for path in home.rglob(".*") if path.suffix != ".lock"]


def test_a_scoring_run_that_is_stopped_three_times_gives_the_same_bits(model_folder, tmp_path):
    texts, home, whole = tmp_path / "texts.jsonl", tmp_path / "home", tmp_path / "whole"
    rows = [{"text": f"The Mill number {i} stands near the old River", "label": i % 2} for i in range(40)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert start(whole, model_folder, texts).wait(300) == 0
    assert len(answers(whole)) == 2, "the pass, and that of the lowercased texts"
    for n, number in enumerate(SIGNALS):
        before, process = checkpoints(home), start(home, model_folder, texts)
        until = time.monotonic() + 300
        while len(checkpoints(home) - before) < 2 + n:
            assert process.poll() is None and time.monotonic() < until, process.communicate()
            time.sleep(0.01)
        assert before <= checkpoints(home) or answers(home), "it resumed, and did not begin again"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert "Traceback" not in said
        if number != signal.SIGKILL:
            assert process.returncode == 130 and said.splitlines()[-1].startswith("mialib: stopped")
            assert not leftovers(home)
    assert start(home, model_folder, texts).wait(300) == 0
    assert answers(home) == answers(whole)
    assert not checkpoints(home) and not leftovers(home)
