"""Question-answer sets: what is asked is true of the code that it is asked of."""

import ast
import re
from pathlib import Path

import jinja2
import pytest

from replication.lab.questions import choice_questions, context_questions

N_WORDS = 60


@pytest.fixture(scope="module")
def read_once(tmp_path_factory):
    return tmp_path_factory.mktemp("questions")


@pytest.fixture(autouse=True)
def share_what_is_read(read_once, monkeypatch):
    """The packages' source files are parsed once for all tests of this file."""
    monkeypatch.setenv("MIALIB_HOME", str(read_once))


def arguments_in_source(package):
    """Each function's arguments, by name; several of one name give several sets."""
    found = {}
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
                found.setdefault(node.name, []).append(names)
    return found


def test_a_context_question_is_answered_as_the_source_says():
    known = arguments_in_source(jinja2)
    asked = context_questions(["jinja2"], N_WORDS, seed=0)
    answers = []
    for item in asked:
        pattern = r"Question: Does (\w+) take an argument (\w+)\? Context: .+ Answer: (yes|no)"
        name, argument, answer = re.fullmatch(pattern, item.text).groups()
        takes = [argument in names for names in known[name]]
        assert any(takes) if answer == "yes" else not all(takes)
        answers.append(answer)
    assert len(asked) > 50 and 0.3 < answers.count("yes") / len(asked) < 0.7


def test_a_choice_question_has_five_names_and_the_right_one_is_the_one_described():
    asked = choice_questions(["jinja2"], N_WORDS, seed=0)
    letters = []
    for item in asked:
        sentence, listed, letter, name = re.fullmatch(
            r"Question: Which name fits\? (.+)\. (\(A\).+) Answer: \((.)\) (\w+)", item.text
        ).groups()
        options = dict(re.findall(r"\((.)\) (\w+)", listed))
        assert list(options) == list("ABCDE") and len(set(options.values())) == 5
        assert options[letter] == name == item.name and name not in sentence
        letters.append(letter)
    assert len(asked) > 50 and set(letters) == set("ABCDE")


@pytest.mark.parametrize("make", [context_questions, choice_questions])
def test_questions_keep_to_their_length_and_come_again_with_the_seed(make):
    once = make(["jinja2"], N_WORDS, seed=1)
    assert max(len(item.text.split()) for item in once) <= N_WORDS
    assert once == make(["jinja2"], N_WORDS, seed=1) != make(["jinja2"], N_WORDS, seed=2)
    assert len({item.name for item in once}) == len(once)
