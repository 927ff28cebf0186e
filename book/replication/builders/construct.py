"""Fresh benchmarks from pages, or docstrings, before and after a date: balanced, deduplicated, with a data card.

Members are from before a date and non-members from after one, so words alone may separate the two; each card says how
well. What a model was trained on is not known: "member" means that it may have seen the text.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
from jinja2 import Template
from packaging.utils import canonicalize_name

from mialib.benchmarks import PARTS
from mialib.blind import held_out_scores
from mialib.metrics import Interval, auc_interval
from mialib.store import atomic_path, hash_of, mialib_version, write_json
from replication.builders import releases, sources
from replication.builders.fetch import SERVICES, Fetcher, address_of, without_password
from replication.builders.sources import EXCERPT_WORDS, PATENT_WORDS, Dates, LeftOut, Pages, WebPage, shuffled
from replication.lab.near_duplicates import NearDuplicates

WIKIMIA_LENGTHS = (32, 64, 128, 256)  # words
DOCSTRING_LENGTHS = (64,)
MIN_BLIND = 10  # texts of each class; the blind baseline of fewer says nothing
NAMED = 5  # left-out pages that the card names for each reason; left_out.json names all

CLASSES = ("non-members", "members")  # by label
NOT_NEW = {"": ""} | {
    NearDuplicates.REPEATED: "the same text as an earlier page's",
    NearDuplicates.NEARLY_COPIED: "a near-duplicate of earlier pages",
}

RULES = {  # which non-members and which members of docstrings there are, by kind
    "docstrings": (
        "in the newest release, sharing at most a fifth of their 7-grams of words with all old docstrings",
        "in the release from before {before} and, unchanged, in the newest one of the same package",
    ),
    "pairs": (
        "of the same object in the newest release, rewritten: over half of the file's words differ, the whole lengths "
        "by at most a fifth",
        "in the release from before {before}",
    ),
    "quarters": (
        "first released on or after {before}, else like the members",
        "first released before {before}, in the newest release still, and sharing at most a fifth of their 7-grams of "
        "words with all docstrings of earlier quarters",
    ),
}

Side = tuple[int, str]  # label and field
Streams = Sequence[tuple[Sequence[Side], Pages]]  # which sides' pages each stream gives
Dropped = dict[str, dict[str, None]]  # reason -> pages, in order and each once


@dataclass(frozen=True)
class Recipe:
    """What a card says of how a benchmark was made; its prose is in `construct.md`, by the kind's title."""

    title: str
    service: str
    rules: tuple[str, str]  # which non-members and which members there are
    n: int | None  # members, and as many non-members, of each field; None: as many as there are
    seed: int
    language: str = "en"
    before: date | None = None  # of docstrings: the day before which the old releases were uploaded
    releases: Sequence[Sequence[object]] = ()  # of docstrings: rows of their table
    kind: str = "docstrings"  # of docstrings: a key of `RULES`


def wikimia(
    out: Path, fetcher: Fetcher, dates: Dates, n: int, lengths: Sequence[int] = WIKIMIA_LENGTHS, seed: int = 0
) -> Path:
    """Write a WikiMIA-like benchmark, one file a length in words; returns the folder, as all builders do.

    All raise ValueError where a source holds fewer than `n` members or `n` non-members, and say how many there were,
    and, before anything is fetched, where the folder holds another benchmark.
    """
    streams = [([(label, "")], sources.wikipedia_events(fetcher, dates, label, lengths, seed)) for label in (1, 0)]
    recipe = Recipe("WikiMIA-like", "wikipedia", dates.rules, n, seed)
    return build_benchmark(out, recipe, [str(length) for length in sorted(lengths)], streams, fetcher)


def patentmia(out: Path, fetcher: Fetcher, dates: Dates, n: int, publications: Path, seed: int = 0) -> Path:
    """Write a PatentMIA-like benchmark from the Google Patents pages of a file of publication numbers."""
    numbers = sources.read_publications(publications)
    streams = [([(1, ""), (0, "")], sources.patent_snippets(fetcher, dates, numbers, seed))]
    recipe = Recipe("PatentMIA-like", "patents", dates.rules, n, seed, "zh")
    return build_benchmark(out, recipe, [str(PATENT_WORDS)], streams, fetcher)


def arxivmia(out: Path, fetcher: Fetcher, dates: Dates, n: int, categories: Sequence[str], seed: int = 0) -> Path:
    """Write an ArxivMIA-like benchmark: `n` members and `n` non-members of each category, which is their field."""
    streams = [
        ([(label, category)], sources.arxiv_abstracts(fetcher, dates, label, category, n, seed))
        for category in dict.fromkeys(categories)
        for label in (1, 0)
    ]
    recipe = Recipe("ArxivMIA-like", "arxiv", dates.rules, n, seed)
    return build_benchmark(out, recipe, ["abstracts"], streams, fetcher)


def dolmabook(out: Path, fetcher: Fetcher, dates: Dates, n: int, seed: int = 0) -> Path:
    """Write a Dolma-Book-like benchmark: head, middle and tail of `n` books of each side, of 512 and 1024 words."""
    streams = [([(label, "")], sources.gutenberg_books(fetcher, dates, label, seed)) for label in (1, 0)]
    recipe = Recipe("Dolma-Book-like", "gutenberg", dates.rules, n, seed)
    names = [f"{part}-{length}" for length in EXCERPT_WORDS for part in PARTS]
    return build_benchmark(out, recipe, names, streams, fetcher)


def docstrings(
    out: Path,
    fetcher: Fetcher,
    before: date,
    packages: Sequence[str],
    n: int | None = None,
    lengths: Sequence[int] = DOCSTRING_LENGTHS,
    seed: int = 0,
    *,
    pairs: bool = False,
    since: date | None = None,
) -> Path:
    """Write a benchmark of packages' docstrings: those unchanged since before a day, and those new since.

    With `pairs`: two versions of one docstring, from before that day and of today. With `since`: docstrings by the
    quarter of their first release, at most `n` of a package and quarter. A package is a field. ValueError for a package
    that the index does not have, or not from before that day.
    """
    if pairs and since:
        raise ValueError("give --pairs or --since: pairs are of two releases, not of one a quarter")
    names = [releases.docstrings_file(length) for length in sorted(lengths)]
    refuse_others(out, names)
    fields = list(dict.fromkeys(canonicalize_name(package, validate=True) for package in packages))
    days = releases.starts_of_quarters(since) if since else [before]
    of_package = [releases.find_releases(fetcher, package, days) for package in fields]
    if all(len(of) == 1 for of in of_package):
        raise ValueError(f"no new release of {', '.join(fields)} since {before}; give an earlier date")
    every = [release for of in of_package for release in of]
    contents = {release.file: releases.read_release(fetcher, release) for release in every}
    make: Callable[..., Pages] = releases.rewritten_pages
    kind, about = "pairs", (contents, before, lengths, seed)
    if not pairs:
        kind, new = "docstrings", releases.new_docstrings(releases.first_releases(every, contents), days, lengths)
        make = partial(releases.docstring_pages, new_in=new)
    if since:
        kind, make = "quarters", partial(make, n_of_release=n or len(new))
    streams = [([(1, of[-1].package), (0, of[-1].package)], make(of, *about)) for of in of_package]
    table = [(r.package, r.version, r.day, f"`{r.file}`", f"`{r.sha256}`", contents[r.file].licence) for r in every]
    others, members = (rule.format(before=before) for rule in RULES[kind])
    recipe = Recipe(
        "Docstrings", "pypi", (others, members), None if since else n, seed, before=before, releases=table, kind=kind
    )
    return build_benchmark(out, recipe, names, streams, fetcher)


def refuse_others(out: Path, names: Sequence[str]) -> None:
    """ValueError where a folder holds a benchmark's files of other names than these."""
    if strangers := sorted({path.stem for path in out.glob("*.jsonl")} - set(names)):
        raise ValueError(f"{out} holds {strangers[0]}.jsonl of another benchmark; give another folder")


def build_benchmark(out: Path, recipe: Recipe, names: Sequence[str], streams: Streams, fetcher: Fetcher) -> Path:
    """Collect the streams' pages and write the benchmark's files of these names, what was left out, and the card."""
    refuse_others(out, names)
    pages, dropped = collect_pages(streams, recipe.n, recipe.language)
    files = {name: balance(pages, name) for name in names}
    if recipe.kind == "quarters":
        files = {name: [page for page in pages if name in page.texts] for name in names}
    rows = []
    for name, chosen in files.items():
        write_rows(out / f"{name}.jsonl", name, shuffled(chosen, recipe.seed, key=lambda page: page.source))
        held = {page.source for page in chosen}
        if surplus := {page.source: None for page in pages if name in page.texts and page.source not in held}:
            dropped[f"{name}.jsonl alone: more of this class than of the other"] = surplus
        n_texts = [sum(len(page.texts[name]) for page in chosen if page.label == label) for label in (1, 0)]
        blind = (
            blind_interval(chosen, name, recipe.seed, recipe.language)
            or f"not measured: fewer than {MIN_BLIND} pages of a class"
        )
        rows.append([f"`{name}.jsonl`", *n_texts, blind])
    write_json(out / "left_out.json", {reason: list(names) for reason, names in dropped.items()})
    with atomic_path(out / "README.md") as temporary:
        temporary.write_text(card(recipe, pages, files, rows, dropped, sorted(fetcher.days)), encoding="utf-8")
    return out


def collect_pages(streams: Streams, n: int | None, language: str = "en") -> tuple[list[WebPage], Dropped]:
    """`n` pages of each side, or all, that differ, in the streams' order, and what was left out, by reason.

    A page is left out where one of its texts equals an earlier page's but for case and white space, or where it shares
    over a fifth of its 7-grams of words with the earlier ones (`NearDuplicates`). A stream is read no further than
    needed. ValueError with all counts where a side has fewer than `n`.
    """
    by_side: dict[Side, list[WebPage]] = {side: [] for sides, _ in streams for side in sides}
    dropped: Dropped = {}
    index = NearDuplicates(language=language)
    for sides, stream in streams:
        for found in stream:
            page, *others = found if isinstance(found, list) else [found]
            if isinstance(page, LeftOut):
                reason = page.reason
            elif len(by_side[page.label, page.field]) == n:
                reason = f"more than the {n} {CLASSES[page.label]} asked for"
            else:
                texts = (text for of in (page, *others) for some in of.texts.values() for text in some)
                reason = NOT_NEW[index.add_if_new(*texts)]
                for of in (page, *others) if not reason else ():
                    by_side[of.label, of.field].append(of)
            if reason:
                dropped.setdefault(reason, {})[page.source] = None
            if all(len(by_side[side]) == n for side in sides):
                break
    if n is not None and any(len(pages) < n for pages in by_side.values()):
        sizes = [
            (len(pages), CLASSES[label], f" of {field}" if field else "") for (label, field), pages in by_side.items()
        ]
        counts = ", ".join(f"{size} {name}{of}" for size, name, of in sizes)
        left_out = "; ".join(f"{len(names)} {reason}" for reason, names in dropped.items()) or "none"
        raise ValueError(f"{n} of each are asked for, and there are {counts} (left out: {left_out})")
    return [page for pages in by_side.values() for page in pages], dropped


def balance(pages: Iterable[WebPage], name: str) -> list[WebPage]:
    """The pages that give texts to a file, of each field the later ones of the larger class left out."""
    sides: dict[Side, list[WebPage]] = {}
    for page in sorted(pages, key=lambda page: -page.label):
        if name in page.texts:
            sides.setdefault((page.label, page.field), []).append(page)
    smaller = {field: min(len(sides.get((label, field), ())) for label in (1, 0)) for _, field in sides}
    if not any(smaller.values()):
        members, non_members = (sum(len(of) for (side, _), of in sides.items() if side == label) for label in (1, 0))
        raise ValueError(
            f"{name}.jsonl would hold {members} members and {non_members} non-members; both are needed: ask for more "
            "texts, or leave this length out"
        )
    return [page for (_, field), of in sides.items() for page in of[: smaller[field]]]


def write_rows(path: Path, name: str, pages: Iterable[WebPage]) -> None:
    """A benchmark's file as `load_benchmark` reads it: text, label, field where there is one, title, date, source."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for page in pages:
            field = {"field": page.field} if page.field else {}
            about = {"title": page.title, "date": page.date.isoformat(), "source": page.source}
            for text in page.texts[name]:
                file.write(json.dumps({"text": text, "label": page.label} | field | about, ensure_ascii=False) + "\n")


def blind_interval(pages: Sequence[WebPage], name: str, seed: int, language: str = "en") -> Interval | None:
    """AUC of tf-idf fitted on half of the pages and judged on the other half; None for fewer than ten of a class, and
    where no two pages share a word.

    A page's texts are judged as one: two snippets of a book, one in each half, would give its label away.
    """
    labels = np.array([page.label for page in pages])
    if np.bincount(labels).min() < MIN_BLIND:
        return None
    texts = ["\n".join(page.texts[name]) for page in pages]
    sources = [page.source for page in pages]  # of a pair, the same
    numbers, scores = held_out_scores(texts, labels, seed, language, groups=sources)
    return auc_interval(labels[numbers], scores) if np.ptp(scores) else None


def card(
    recipe: Recipe,
    pages: Sequence[WebPage],
    files: Mapping[str, Sequence[WebPage]],
    rows: Sequence[Sequence[object]],
    dropped: Dropped,
    fetched: Sequence[str],
) -> str:
    """Render the data card, in Markdown; the same for the same pages, whenever it is written."""
    counts = {name: Counter(page.field for page in chosen if page.label) for name, chosen in files.items()}
    fields = dict.fromkeys(page.field for page in pages if page.field)
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"), trim_blocks=True)
    return template.render(
        recipe=recipe,
        days=[sorted(page.date for page in pages if page.label == label) for label in (0, 1)],
        address=without_password(address_of(recipe.service)),
        licence=SERVICES[recipe.service].licence,
        fetched=fetched,
        version=mialib_version(),
        hash=hash_of([[page.source, page.texts] for page in pages]),
        files=rows,
        names=[f"`{name}.jsonl`" for name in files],
        fields=[[field, *(count[field] for count in counts.values())] for field in fields],
        reasons=[
            [reason, len(names), ", ".join(list(names)[:NAMED]) + (", …" if len(names) > NAMED else "")]
            for reason, names in sorted(dropped.items())
        ],
    )
