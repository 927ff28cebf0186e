"""Generated Chinese patent texts: the lab's stand-in for the PatentMIA benchmark.

No real patent is copied. A small grammar of abstracts, claims, and embodiments (`patents.yml`) is filled with words of
jieba's lexicon, so a text has a patent's form, and enough chance in it to be memorized. In the templates,
    [a|b|c]  is one of the alternatives, evenly;
    {6~60}   is a number between the bounds, with their decimals, and {6-60} a range inside them;
    {part}   is a word of that class, drawn by its frequency in Chinese;
    {crop*}  is the one word of that class that the text is about;
    {new}    introduces a component, {last} is the newest one known, and {old} is another one known;
    {dose}   is every ingredient so far, each with an exact amount.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import jieba
import numpy as np

from mialib.shared.schema import Strict, read_yaml

SPREAD = 0.5  # words are drawn by frequency to this power: common ones recur, and rare ones still come up
UNLISTED = 100  # the frequency given to the few newer terms that the lexicon lacks
CHARACTERS_PER_WORD = 2.0  # more than any text has by jieba's count, so that none comes out short
MOST_CLAIMS = 8  # longer texts grow by embodiments, which introduce nothing, so names never run out

T = TypeVar("T")


class Rule(Strict):
    """A class of words of jieba's lexicon."""

    tags: str
    body: str  # the characters before the last; "" for any
    ends: str  # the last characters
    lengths: tuple[int, ...]
    least: int  # the least frequency


class Grammar(Strict):
    """What the texts are made of: classes of words, and templates by sector and kind."""

    words: dict[str, str]
    rules: dict[str, Rule]
    unwanted: tuple[str, ...]
    sectors: dict[str, dict[str, tuple[str, ...]]]
    abstracts: tuple[str, ...]
    claim: str


@cache
def grammar() -> Grammar:
    """What `patents.yml` says."""
    return read_yaml(Path(__file__).with_suffix(".yml"), Grammar)


@dataclass
class _Draft:
    """A text being written: the words it is about, and its components with their amounts."""

    rng: np.random.Generator
    templates: dict[str, tuple[str, ...]]  # of its sector, by kind
    topics: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    amounts: list[tuple[int, int]] = field(default_factory=list)


def generate_patents(n: int, *, seed: int, min_words: int = 128) -> list[str]:
    """Write n texts of at least min_words jieba words; text i depends on seed, i and min_words, not on n."""
    return [_patent(np.random.default_rng([seed, index]), min_words) for index in range(n)]


def _patent(rng: np.random.Generator, min_words: int) -> str:
    """One text: abstract, claims, embodiments."""
    draft = _Draft(rng, _choose(rng, list(grammar().sectors.values())))
    # Half of the devices have reference numerals, which begin with the claims.
    numeral = _choose(rng, ["", *draft.templates.get("numeral", ())])
    chain: list[int] = []  # the components that a claim and those it refers to have introduced
    kinds = ("title", "field", "opening", "effect")
    phrases = {kind: _expand(_choose(rng, draft.templates[kind]), draft, chain) for kind in kinds}
    claimed, _, rest = phrases["title"].partition("~")
    phrases["title"] = claimed + rest
    text = _named(_alternatives(rng, _choose(rng, grammar().abstracts)).format(**phrases), draft, "")
    text += _named(f"权利要求书：1. 一种{claimed}，其特征在于，{phrases['opening']}。", draft, numeral)
    chains = [chain]
    details = rng.permutation(draft.templates["detail"]).tolist()
    enough = min_words * CHARACTERS_PER_WORD
    while len(chains) < 2 or (len(chains) < MOST_CLAIMS and len(text) < 0.75 * enough):
        base = _below(rng, len(chains))
        chain = list(chains[base])
        detail = _expand(details[len(chains) % len(details)], draft, chain)
        chains.append(chain)
        claim = grammar().claim.format(number=len(chains), base=base + 1, claimed=claimed, detail=detail)
        text += _named(_alternatives(rng, claim), draft, numeral)
    examples = 0
    while examples == 0 or len(text) < enough:
        examples += 1
        example = _expand(_choose(rng, draft.templates["example"]), draft, list(range(len(draft.names))))
        text += _named(f"实施例{examples}：{example}。", draft, numeral)
    return text


def _expand(template: str, draft: _Draft, chain: list[int]) -> str:
    """The template filled in; a component stands as "<index>", and the new ones join the chain."""
    rng = draft.rng
    used: set[int | str] = set()  # a sentence repeats no word and, while there are others, no component

    def fill(match: re.Match[str]) -> str:
        slot = match[1]
        if bounds := re.fullmatch(r"([\d.]+)([~-])([\d.]+)", slot):
            return _number(rng, *bounds.groups())
        if slot == "new":
            return _introduce(draft, chain)
        if slot == "last":
            return f"<{chain[-1]}>"
        if slot == "old":
            component = _choose(rng, [index for index in chain[:-1] if index not in used] or chain[:-1])
            used.add(component)
            return f"<{component}>"
        if slot == "dose":
            exact = [low + _below(rng, high - low + 1) for low, high in draft.amounts]
            return "、".join(f"<{index}>{amount}份" for index, amount in enumerate(exact))
        if slot in draft.topics:
            return draft.topics[slot]
        words, sums = _classes()[slot.removesuffix("*")]
        while (word := words[bisect(sums, rng.random() * sums[-1])])[:2] in used:
            pass
        used.add(word[:2])
        if slot.endswith("*"):
            draft.topics[slot] = word
        return word

    return re.sub(r"\{([^}]+)\}", fill, _alternatives(rng, template))


def _introduce(draft: _Draft, chain: list[int]) -> str:
    """A component of a new name, added to the draft and the chain; an ingredient comes with its amount."""
    while (name := _expand(draft.templates["name"][0], draft, chain)) in draft.names:
        pass
    low = 1 + _below(draft.rng, 40)
    high = low + 1 + _below(draft.rng, 15)
    chain.append(len(draft.names))
    draft.names.append(name)
    draft.amounts.append((low, high))
    return f"<{chain[-1]}>" + "".join(f"{low}-{high}{unit}" for unit in draft.templates.get("unit", ()))


def _named(text: str, draft: _Draft, numeral: str) -> str:
    """The text with its components' names, followed by reference numerals where their form is given."""

    def name(match: re.Match[str]) -> str:
        return draft.names[int(match[1])] + numeral.replace("#", str(int(match[1]) + 1))

    return re.sub(r"<(\d+)>", name, text)


def _number(rng: np.random.Generator, low: str, sign: str, high: str) -> str:
    """A number from low to high with low's decimals ("~"), or a range of two of them ("-")."""
    places = len(low.partition(".")[2])
    first, last = round(float(low) * 10**places), round(float(high) * 10**places)
    start = first + _below(rng, (last - first) // (1 if sign == "~" else 2) + 1)
    numbers = [start] if sign == "~" else [start, start + 1 + _below(rng, last - start)]
    return "-".join(f"{value / 10**places:.{places}f}" for value in numbers)


def _alternatives(rng: np.random.Generator, template: str) -> str:
    """The template with each "[a|b|c]" replaced by one of its alternatives."""
    return re.sub(r"\[([^]]*)\]", lambda match: _choose(rng, match[1].split("|")), template)


def _choose(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, evenly."""
    return options[_below(rng, len(options))]


def _below(rng: np.random.Generator, bound: int) -> int:
    """A whole number from 0 to bound - 1, evenly; much faster than rng.integers for one number."""
    return int(rng.random() * bound)


@cache
def _classes() -> dict[str, tuple[list[str], list[float]]]:
    """Each class's words, with the running sum of their weights."""
    lines = (Path(jieba.__file__).parent / "dict.txt").read_text(encoding="utf-8").splitlines()
    entries = [(word, int(count), tag) for word, count, tag in (line.split(" ") for line in lines)]
    words = {name: listed.split() for name, listed in grammar().words.items()}
    for name, rule in grammar().rules.items():
        words[name] = [
            word
            for word, count, tag in entries
            if count >= rule.least and tag in rule.tags.split() and len(word) in rule.lengths and word[-1] in rule.ends
            if word not in grammar().unwanted and (not rule.body or set(word[:-1]) <= set(rule.body))
        ]
    counts = {word: count for word, count, _ in entries}
    return {
        name: (terms, list(accumulate(counts.get(word, UNLISTED) ** SPREAD for word in terms)))
        for name, terms in words.items()
    }
