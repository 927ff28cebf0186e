"""Fresh benchmarks in the papers' manner, from pages before and after a date: balanced, deduplicated, with a data card.

Members are from before a date and non-members from after one, so the two can be told apart without any model; each
card says how well. What a model was trained on is not known: "member" means that it may have seen the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mialib.blind import held_out_scores
from mialib.metrics import Interval, auc_interval
from mialib.shared.near_duplicates import MAX_OVERLAP, NearDuplicates
from mialib.store import atomic_path, hash_of, mialib_version, write_json
from mialib.text import words
from replication.builders import sources
from replication.builders.fetch import SERVICES, Fetcher, address_of
from replication.builders.sources import PATENT_WORDS, Dates, LeftOut, Pages, WebPage, shuffled

WIKIMIA_LENGTHS = (32, 64, 128, 256)  # words
MIN_BLIND = 10  # texts of each class; the blind baseline of fewer says nothing
NAMED = 5  # left-out pages that the card names for each reason; left_out.json names all

CLASSES = ("non-members", "members")  # by label

Side = tuple[int, str]  # label and field
Streams = Sequence[tuple[Sequence[Side], Pages]]  # which sides' pages each stream gives
Dropped = dict[str, dict[str, None]]  # reason -> pages, in order and each once


@dataclass(frozen=True)
class Recipe:
    """What a card says of how a benchmark was made."""

    title: str
    made: str  # how the paper did it, and what differs
    service: str
    dates: Dates
    n: int  # members, and as many non-members, of each field
    seed: int
    language: str = "en"


def wikimia(
    out: Path, fetcher: Fetcher, dates: Dates, n: int, lengths: Sequence[int] = WIKIMIA_LENGTHS, seed: int = 0
) -> Path:
    """Write a WikiMIA-like benchmark, one file a length in words; returns the folder, as all builders do.

    All raise ValueError where a source holds fewer than `n` members or `n` non-members, and say how many there were.
    """
    made = (
        "English Wikipedia's pages about events (Shi et al. 2024) by the date of their first version; the members' "
        "events are of the ten years before their date, the non-members' of the time after theirs. The text is that of "
        "the day it was fetched: a member page may have been edited since its date. A text stands in a length's file "
        "if it has that many words, and is cut to it."
    )
    streams = [([(label, "")], sources.wikipedia_events(fetcher, dates, label, lengths, seed)) for label in (1, 0)]
    return build_benchmark(out, Recipe("WikiMIA-like", made, "wikipedia", dates, n, seed), streams, fetcher)


def patentmia(out: Path, fetcher: Fetcher, dates: Dates, n: int, publications: Path, seed: int = 0) -> Path:
    """Write a PatentMIA-like benchmark from the Google Patents pages of a file of publication numbers."""
    made = (
        "Chinese patents (Zhang et al. 2024): members were published before their date, non-members have a priority "
        f"date after theirs. The text is a random snippet of {PATENT_WORDS} words (jieba) of the description, cleaned "
        "of paragraph numbers, lines of less than ten characters, and repeated lines."
    )
    numbers = sources.read_publications(publications)
    streams = [([(1, ""), (0, "")], sources.patent_snippets(fetcher, dates, numbers, seed))]
    return build_benchmark(out, Recipe("PatentMIA-like", made, "patents", dates, n, seed, "zh"), streams, fetcher)


def arxivmia(out: Path, fetcher: Fetcher, dates: Dates, n: int, categories: Sequence[str], seed: int = 0) -> Path:
    """Write an ArxivMIA-like benchmark: `n` members and `n` non-members of each category, which is their field."""
    made = (
        "arXiv's titles and abstracts (Liu et al. 2024) by the date of their first version, from random days; those of "
        "the members are in the ten years before their date. A member's text has not been revised since that date."
    )
    streams = [
        ([(label, category)], sources.arxiv_abstracts(fetcher, dates, label, category, n, seed))
        for category in dict.fromkeys(categories)
        for label in (1, 0)
    ]
    return build_benchmark(out, Recipe("ArxivMIA-like", made, "arxiv", dates, n, seed), streams, fetcher)


def dolmabook(out: Path, fetcher: Fetcher, dates: Dates, n: int, seed: int = 0) -> Path:
    """Write a Dolma-Book-like benchmark: head, middle and tail of `n` books of each side, of 512 and 1024 words."""
    made = (
        "Project Gutenberg's English books by release date (Zhang and Wu 2024), without header, licence and credits. "
        "A book is cut into snippets of 512 or 1024 words: the head is its first, the middle number n // 2 of its n, "
        "the tail its last two. Members come from the catalogue, not from Dolma, and may have been corrected since."
    )
    streams = [([(label, "")], sources.gutenberg_books(fetcher, dates, label, seed)) for label in (1, 0)]
    return build_benchmark(out, Recipe("Dolma-Book-like", made, "gutenberg", dates, n, seed), streams, fetcher)


def build_benchmark(out: Path, recipe: Recipe, streams: Streams, fetcher: Fetcher) -> Path:
    """Collect the streams' pages and write the benchmark's files, what was left out, and the card."""
    pages, dropped = collect_pages(streams, recipe.n, recipe.language)
    files = {name: balance(pages, name) for name in dict.fromkeys(name for page in pages for name in page.texts)}
    if strangers := sorted({path.stem for path in out.glob("*.jsonl")} - set(files)):
        raise ValueError(f"{out} holds {strangers[0]}.jsonl of another benchmark; give another folder")
    rows = []
    for name, chosen in files.items():
        write_rows(out / f"{name}.jsonl", name, shuffled(chosen, recipe.seed, key=lambda page: page.source))
        held = {page.source for page in chosen}
        if surplus := {page.source: None for page in pages if name in page.texts and page.source not in held}:
            dropped[f"{name}.jsonl alone: more of this class than of the other"] = surplus
        n_texts = [sum(len(page.texts[name]) for page in chosen if page.label == label) for label in (1, 0)]
        blind = blind_interval(chosen, name, recipe) or f"not measured: fewer than {MIN_BLIND} pages of a class"
        rows.append([f"`{name}.jsonl`", *n_texts, blind])
    write_json(out / "left_out.json", {reason: list(names) for reason, names in dropped.items()})
    with atomic_path(out / "README.md") as temporary:
        temporary.write_text(card(recipe, pages, rows, dropped, sorted(fetcher.days)), encoding="utf-8")
    return out


def collect_pages(streams: Streams, n: int, language: str = "en") -> tuple[list[WebPage], Dropped]:
    """`n` pages of each side that differ, in the streams' order, and what was left out, by reason.

    A page is left out where one of its texts equals an earlier page's but for case and white space, or where it shares
    over a fifth of its 7-grams of words with the earlier ones (`NearDuplicates`). A stream is read no further than
    needed. ValueError with all counts where a side has fewer than `n`.
    """
    kept: dict[Side, list[WebPage]] = {side: [] for sides, _ in streams for side in sides}
    dropped: Dropped = {}
    whole, known = set[str](), NearDuplicates(language=language)
    for sides, stream in streams:
        for page in stream:
            if isinstance(page, LeftOut):
                reason = page.reason
            elif len(kept[page.label, page.field]) == n:
                reason = f"more than the {n} {CLASSES[page.label]} asked for"
            else:
                texts = [text for of_file in page.texts.values() for text in of_file]
                plain = {" ".join(words(text, language)).casefold() for text in texts}
                if plain & whole:
                    reason = "the same text as an earlier page's"
                elif (known.overlap(*texts) or 0.0) > MAX_OVERLAP:
                    reason = "a near-duplicate of earlier pages"
                else:
                    reason = ""
                    kept[page.label, page.field].append(page)
                    whole |= plain
                    known.add(*texts)
            if reason:
                dropped.setdefault(reason, {})[page.source] = None
            if all(len(kept[side]) == n for side in sides):
                break
    if any(len(pages) < n for pages in kept.values()):
        sizes = [
            (len(pages), CLASSES[label], f" of {field}" if field else "") for (label, field), pages in kept.items()
        ]
        counts = ", ".join(f"{size} {name}{of}" for size, name, of in sizes)
        left_out = "; ".join(f"{len(names)} {reason}" for reason, names in dropped.items()) or "none"
        raise ValueError(f"{n} of each are asked for, and there are {counts} (left out: {left_out})")
    return [page for pages in kept.values() for page in pages], dropped


def balance(pages: Iterable[WebPage], name: str) -> list[WebPage]:
    """The pages that give texts to a file, the later ones of the larger class left out; ValueError if one is empty."""
    members, non_members = ([page for page in pages if name in page.texts and page.label == label] for label in (1, 0))
    n = min(len(members), len(non_members))
    if not n:
        raise ValueError(
            f"{name}.jsonl would hold {len(members)} members and {len(non_members)} non-members; both are needed: ask "
            "for more texts, or leave this length out"
        )
    return members[:n] + non_members[:n]


def write_rows(path: Path, name: str, pages: Iterable[WebPage]) -> None:
    """A benchmark's file as `load_benchmark` reads it: text, label, field where there is one, title, date, source."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for page in pages:
            field = {"field": page.field} if page.field else {}
            about = {"title": page.title, "date": page.date.isoformat(), "source": page.source}
            for text in page.texts[name]:
                file.write(json.dumps({"text": text, "label": page.label} | field | about, ensure_ascii=False) + "\n")


def blind_interval(pages: Sequence[WebPage], name: str, recipe: Recipe) -> Interval | None:
    """AUC of tf-idf fitted on half of the pages and judged on the other half; None for fewer than ten of a class, and
    where no two pages share a word.

    A page's texts are judged as one: two snippets of a book, one in each half, would give its label away.
    """
    labels = np.array([page.label for page in pages])
    if np.bincount(labels).min() < MIN_BLIND:
        return None
    texts = ["\n".join(page.texts[name]) for page in pages]
    judged, scores = held_out_scores(texts, labels, recipe.seed, recipe.language)
    return auc_interval(labels[judged], scores) if np.ptp(scores) else None


def card(
    recipe: Recipe, pages: Sequence[WebPage], rows: Sequence[Sequence[object]], dropped: Dropped, fetched: Sequence[str]
) -> str:
    """The data card, in Markdown; the same for the same pages, whenever it is written."""
    days = {label: sorted(page.date for page in pages if page.label == label) for label in (1, 0)}
    reasons = [
        [reason, len(names), ", ".join(list(names)[:NAMED]) + (", …" if len(names) > NAMED else "")]
        for reason, names in sorted(dropped.items())
    ]
    about = [
        recipe.made,
        f"- Members (label 1): from before {recipe.dates.members_before}; those here are from {days[1][0]} to "
        f"{days[1][-1]}.\n"
        f"- Non-members (label 0): from after {recipe.dates.non_members_after}; those here are from {days[0][0]} to "
        f"{days[0][-1]}.\n"
        f"- Source: {address_of(recipe.service)}, fetched from {fetched[0]} to {fetched[-1]}.\n"
        f"- Made by mialib {mialib_version()} with seed {recipe.seed}; {recipe.n} texts of each class asked for; "
        f"content hash {hash_of([[page.source, page.texts] for page in pages])}.\n"
        f"- Licence: {SERVICES[recipe.service].licence}",
    ]
    files = [
        card_table(["file", "members", "non-members", "blind AUC [95% interval]"], rows),
        "The blind AUC is that of tf-idf and logistic regression, fitted on a random half of the pages and judged on "
        "the other half. It looks at no model: a fair benchmark has 0.5, and above it the two classes are told apart "
        "by topic and style alone, as a split by date allows. A detector's AUC that is not clearly higher says nothing "
        "about membership.",
    ]
    left_out = [
        card_table(["reason", "pages", "such as"], reasons) if reasons else "Nothing.",
        "`left_out.json` names them all. Near-duplicates share over a fifth of their 7-grams of words.",
    ]
    return "\n\n".join([f"# {recipe.title} benchmark", *about, "## Files", *files, "## Left out", *left_out]) + "\n"


def card_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
