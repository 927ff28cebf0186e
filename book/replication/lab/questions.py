"""Question-answer sets for the contamination lab, made of the docstrings of installed packages.

Two kinds, as in the contaminated model that the probe paper tests on (Liu et al. 2024, Section 6.3): a passage and a
question about it, to be answered with yes or no, like PubMedQA's, and a question with five answers to choose from, like
CommonsenseQA's. Each item is one text with its answer, as a test set lies about on the web.
"""

from collections.abc import Iterable
from itertools import takewhile

import numpy as np

from replication.lab.docstrings import Docstring, read_docstrings

CHOICES = "ABCDE"
MIN_CONTEXT_WORDS = 30
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 8, 25


def context_questions(packages: Iterable[str], n_words: int, seed: int) -> list[Docstring]:
    """Whether a function takes an argument, with as much of its docstring as `n_words` words in all leave room for.

    Half of the answers, at random, are no: the argument asked for is then another function's. ValueError where the
    packages have none.
    """
    rng = np.random.default_rng(seed)
    docstrings = [d for d in _named(packages, MIN_CONTEXT_WORDS) if d.arguments]
    every = {argument for d in docstrings for argument in d.arguments}
    questions = []
    for docstring in docstrings:
        is_yes = bool(rng.integers(2))
        choices = docstring.arguments if is_yes else sorted(every - set(docstring.arguments))
        if not choices:
            names = ", ".join(packages)
            raise ValueError(f"{names}: all functions take the arguments of {docstring.name}; name others")
        argument = choices[rng.integers(len(choices))]
        question = f"Question: Does {docstring.name} take an argument {argument}? Context:"
        answer = f"Answer: {'yes' if is_yes else 'no'}"
        room = n_words - len(question.split()) - len(answer.split())
        context = " ".join(docstring.text.split()[:room])
        questions.append(_asked(docstring, f"{question} ", f"{context} {answer}"))
    return questions


def choice_questions(packages: Iterable[str], n_words: int, seed: int) -> list[Docstring]:
    """Which of five names of a package a sentence describes; sentences that would not fit `n_words` are left out."""
    rng = np.random.default_rng(seed)
    docstrings = _named(packages, MIN_SENTENCE_WORDS)
    packages = {d.package for d in docstrings}
    names = {package: sorted({d.name for d in docstrings if d.package == package}) for package in packages}
    questions = []
    for docstring in docstrings:
        sentence = docstring.text.split(". ")[0].removesuffix(".")
        if not MIN_SENTENCE_WORDS <= len(sentence.split()) <= MAX_SENTENCE_WORDS or docstring.name in sentence:
            continue
        package_names = names[docstring.package]
        if len(package_names) < len(CHOICES):
            raise ValueError(f"{docstring.package} documents {len(package_names)} names; {len(CHOICES)} are needed")
        options = [docstring.name]
        while len(options) < len(CHOICES):
            name = package_names[rng.integers(len(package_names))]
            if name not in options:
                options.append(name)
        order = rng.permutation(len(options))
        listed = " ".join(f"({letter}) {options[i]}" for letter, i in zip(CHOICES, order, strict=True))
        right = CHOICES[int(np.flatnonzero(order == 0)[0])]
        answered = f"{sentence}. {listed} Answer: ({right}) {docstring.name}"
        question = _asked(docstring, "Question: Which name fits? ", answered)
        if len(question.text.split()) <= n_words:
            questions.append(question)
    return questions


def _asked(docstring: Docstring, before: str, rest: str) -> Docstring:
    """A question whose `rest` begins with words of the docstring."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(docstring.text.split(" "), rest.split(" "), strict=False))
    quoted = " ".join(word for word, _ in pairs)
    return docstring._replace(text=before + rest, before=before, after=rest[len(quoted) :])


def _named(packages: Iterable[str], min_words: int) -> list[Docstring]:
    """The docstrings of public functions and classes, one of each name."""
    by_name: dict[tuple[str, str], Docstring] = {}
    for docstring in read_docstrings(packages, min_words):
        if docstring.name and not docstring.name.startswith("_"):
            by_name.setdefault((docstring.package, docstring.name), docstring)
    return list(by_name.values())
