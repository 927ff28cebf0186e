"""A line now and then where there is no terminal."""

import logging
from itertools import pairwise

import pytest

import mialib
from mialib import progress
from mialib.progress import progress as progress_of


@pytest.fixture
def clock(monkeypatch):
    at = {"now": 1000.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: at["now"])
    return at


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3, "10 seconds"), (84, "80 seconds"), (90, "2 minutes"), (7140, "119 minutes"), (7200, "2 hours")],
)
def test_a_duration_in_words(seconds, said):
    assert progress.in_words(seconds) == said


def test_the_first_line_comes_after_ten_seconds_and_then_they_become_rare(clock, caplog):
    caplog.set_level(logging.INFO)
    said = []
    with progress_of("lab/en", dict.fromkeys(range(7201), 1)) as tell:
        for second in range(7200):
            clock["now"] = 1000.0 + second
            tell([second], 1)
            said += [second] * (len(caplog.records) - len(said))
    assert said[:3] == [10, 70, 140] and 12 < len(said) < 20
    pauses = [later - earlier for earlier, later in pairwise(said)]
    assert pauses == sorted(pauses) and pauses[0] == 60 and pauses[-1] == 600


def test_a_line_says_what_is_done_how_fast_and_how_long_it_still_takes(clock, caplog):
    caplog.set_level(logging.INFO)
    sizes = {i: 100 for i in range(40)}
    with progress_of("lab/en", sizes) as tell:
        tell(range(10), 0)  # of an earlier run: they took no time now
        for i in range(10, 40):
            clock["now"] += 20
            tell([i], 3000)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "lab/en: 11 of 40 texts, 150 tokens a second, about 10 minutes left"
    assert lines[1] == "lab/en: 14 of 40 texts, 150 tokens a second, about 9 minutes left"
    assert len(lines) == 4, "not when all is done"
    caplog.clear()
    with progress_of("lab/en", sizes, shown=False) as tell:
        clock["now"] += 100
        tell([0], 30)
    assert not caplog.records


def test_time_is_of_the_work_and_not_of_the_number_of_texts(clock, caplog):
    """Long texts are scored first: by their number, as much time would be left as forty of them take."""
    caplog.set_level(logging.INFO)
    with progress_of("m", {0: 6000, **dict.fromkeys(range(1, 40), 100)}) as tell:
        clock["now"] += 600
        tell([0], 1000)
    assert caplog.messages == ["m: 1 of 40 texts, 2 tokens a second, about 6 minutes left"]


def test_scoring_says_how_far_it_is(model_folder, clock, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    scorer = mialib.Scorer(model_folder)
    scorer.tokens_per_batch = 1
    forward = scorer.score_batch

    def slow(*given):
        clock["now"] += 15
        return forward(*given)

    monkeypatch.setattr(scorer, "score_batch", slow)
    texts = [f"The mill number {i} stands near the river" for i in range(6)]
    scorer.score(texts)
    assert caplog.messages[0].startswith(f"{model_folder}: 1 of 6 texts, ")
    assert caplog.messages[0].endswith(" tokens a second, about 80 seconds left") and len(caplog.messages) == 2
