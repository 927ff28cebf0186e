"""Pages for fresh benchmarks, from Wikipedia, Google Patents, arXiv and Project Gutenberg.

Each source is a generator of pages. What it cannot use it yields as a `LeftOut` with the reason, so nothing is dropped
silently.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree

from mialib.benchmarks import PARTS, snippets_at, split_into_snippets
from mialib.store import hash_of
from mialib.text import excerpt, word_spans
from replication.builders.fetch import SERVICES, Fetcher

T = TypeVar("T")
YEARS_OF_MEMBERS = 10  # before their date: those that Wikipedia's events and arXiv's abstracts are from
TOO_LATE, TOO_EARLY = "too late for a member", "too early for a non-member"


@dataclass(frozen=True)
class Dates:
    """Members are from before one date, non-members from after another; the dates themselves belong to neither."""

    members_before: date
    non_members_after: date

    def __post_init__(self) -> None:
        if self.members_before > self.non_members_after:
            raise ValueError(
                f"members from before {self.members_before} overlap with non-members from after "
                f"{self.non_members_after}; the first date must not be the later one"
            )
        if self.non_members_after >= self.days(0)[1]:
            raise ValueError(f"nothing is from after {self.non_members_after} yet; give an earlier date")

    def days(self, label: int) -> tuple[date, date]:
        """The first and the last day that members (label 1) or non-members, these until yesterday, are looked for."""
        one, before = timedelta(days=1), self.members_before
        if label:
            return before.replace(year=before.year - YEARS_OF_MEMBERS, day=1), before - one
        return self.non_members_after + one, date.today() - one

    @property
    def rules(self) -> tuple[str, str]:
        """Which non-members and which members there are."""
        return f"from after {self.non_members_after}", f"from before {self.members_before}"

    def holds(self, label: int, day: date) -> bool:
        """Whether a page of that day is on the label's side."""
        return day < self.members_before if label else day > self.non_members_after


@dataclass(frozen=True)
class WebPage:
    """A page that a benchmark can hold, and what it gives to each of its files."""

    title: str
    date: date  # the one that makes it a member or not
    source: str  # its address
    label: int  # 1 = member
    texts: Mapping[str, Sequence[str]]  # file name without suffix -> texts
    field: str = ""


class LeftOut(NamedTuple):
    """A page that a benchmark cannot hold, and why."""

    source: str
    reason: str


Pages = Iterator[WebPage | LeftOut | list[WebPage]]  # a list: the two versions of one text


class Unusable(ValueError):
    """Why a page, though well-formed, cannot be used."""


def page_or_reason(source: str, make: Callable[..., WebPage], *arguments: Any) -> WebPage | LeftOut:
    """What `make` returns of what it is given, or the reason why it cannot."""
    try:
        return make(*arguments)
    except Unusable as error:
        return LeftOut(source, str(error))
    except FileNotFoundError:
        return LeftOut(source, "not there")
    except KeyError as error:
        return LeftOut(source, f"malformed: no {error.args[0]}")
    except (IndexError, ValueError) as error:
        return LeftOut(source, f"malformed: {error}")


def require(usable: bool, otherwise: str) -> None:
    """Raise `Unusable` with this reason unless the page is."""
    if not usable:
        raise Unusable(otherwise)


def shuffled(items: Iterable[T], seed: int, key: Callable[[T], Any] = str) -> list[T]:
    """The items in an order that `seed` and their keys alone decide, so it outlives a source's growth."""
    return sorted(items, key=lambda item: hash_of([seed, key(item)]))


def _day(text: str) -> date:
    """The day that an ISO date or time begins with."""
    return date.fromisoformat(text[:10])


# --- Wikipedia --------------------------------------------------------------------------------------------------------

SUBCATEGORY_LEVELS = 2  # followed below "Category:2025 events" where that holds too few pages
CATEGORIES_AT_ONCE = 50  # are listed before their pages are read, so that a text is from any of them
LIST = "a list or disambiguation page"
LIST_TITLE = re.compile(r"(Lists? of|Timeline of|Index of|Outline of|Deaths in) |\d{4} in ")
END_MATTER = re.compile(
    r"^==+ *(See also|Notes|References|Sources|Further reading|External links) *==+$.*", re.M | re.S
)
HEADING = re.compile(r"^==+ .* ==+$", re.M)


def wikipedia_events(fetcher: Fetcher, dates: Dates, label: int, lengths: Sequence[int], seed: int) -> Pages:
    """Pages about the events of the side's years that were created in its time, cut to each of the lengths in words."""
    first, last = dates.days(label)
    level = [f"Category:{year} events" for year in range(first.year, last.year + 1)]
    titles = set(level)
    for _ in range(SUBCATEGORY_LEVELS + 1):
        below: list[str] = []
        for start in range(0, len(level), CATEGORIES_AT_ONCE):
            some = level[start : start + CATEGORIES_AT_ONCE]
            pages = {page["title"]: page for category in some for page in _category(fetcher, category)}
            new_titles = shuffled(set(pages) - titles, seed)
            titles |= set(new_titles)
            below += [title for title in new_titles if pages[title]["ns"] == 14]
            for title in new_titles:
                if pages[title]["ns"] == 0:
                    yield _wikipedia_page(fetcher, pages[title], dates, label, lengths)
        level = shuffled(below, seed)


def _category(fetcher: Fetcher, title: str) -> list[dict[str, Any]]:
    """A category's articles (`ns` 0) and subcategories (14); a reply holds 500, and `continue` while there are more."""
    params: dict[str, Any] = {"list": "categorymembers", "cmtitle": title, "cmnamespace": "0|14", "cmlimit": 500}
    members: list[dict[str, Any]] = []
    while True:
        reply = _wikipedia_reply(fetcher, "categorymembers", params)
        members += reply["query"]["categorymembers"]
        if not reply.get("continue"):
            return members
        params |= reply["continue"]


def _wikipedia_page(
    fetcher: Fetcher, member: Mapping[str, Any], dates: Dates, label: int, lengths: Sequence[int]
) -> WebPage | LeftOut:
    title = member["title"]
    if LIST_TITLE.match(title):
        return LeftOut(title, LIST)
    # MediaWiki gives a whole page's extract, and its oldest revision, for one page at a time only.
    params = {"prop": "extracts|revisions|pageprops|info", "explaintext": 1, "exsectionformat": "wiki", "inprop": "url"}
    params |= {"exlimit": 1, "rvprop": "timestamp", "rvdir": "newer", "rvlimit": 1, "ppprop": "disambiguation"}
    reply = _wikipedia_reply(fetcher, "pages", params | {"pageids": member["pageid"]})

    def make() -> WebPage:
        page = reply["query"]["pages"][0]
        require("missing" not in page and not page.get("redirect"), "deleted or a redirect")
        require("disambiguation" not in page.get("pageprops", {}), LIST)
        created = _day(page["revisions"][0]["timestamp"])
        require(dates.holds(label, created), TOO_LATE if label else TOO_EARLY)
        words = HEADING.sub("", END_MATTER.sub("", page["extract"])).split()
        require(len(words) >= min(lengths), f"shorter than {min(lengths)} words")
        texts = {str(n): (" ".join(words[:n]),) for n in sorted(lengths) if n <= len(words)}
        return WebPage(title, created, page["fullurl"], label, texts)

    return page_or_reason(title, make)


def _wikipedia_reply(fetcher: Fetcher, key: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """One reply of the API's action `query`; an error, too, comes as JSON with status 200."""

    def parse(text: str) -> dict[str, Any]:
        reply = json.loads(text)
        if not isinstance(reply, dict) or not isinstance(reply.get("query", {}).get(key), list):
            raise ValueError(f"no {key} in the reply {excerpt(text, 200)}")
        return reply

    general = {"action": "query", "format": "json", "formatversion": 2}
    return fetcher.get("wikipedia", params={**general, **params}, parse=parse)


# --- Google Patents ---------------------------------------------------------------------------------------------------

PATENT_WORDS = 512
MIN_LINE = 10  # characters; a shorter line is a heading or a figure's label
MIN_CHINESE = 0.3  # of a text's characters


def read_publications(path: Path) -> list[str]:
    """The distinct publication numbers of a text file, one a line; ValueError for a line that is not a Chinese one."""
    numbers = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    for i, number in enumerate(numbers, start=1):
        if number and not re.fullmatch(r"CN\d+[A-Z]\d?", number):
            raise ValueError(f"{path}, line {i}: {number!r} is no Chinese publication number such as CN112345678A")
    return list(dict.fromkeys(filter(None, numbers)))


def patent_snippets(fetcher: Fetcher, dates: Dates, numbers: Sequence[str], seed: int) -> Pages:
    """A random snippet of 512 words of each publication's description (Zhang et al. 2024, Section 2.2).

    Members were *published* before their date; non-members have a *priority* date after theirs.
    """
    for number in shuffled(numbers, seed):
        yield page_or_reason(number, _patent, fetcher, dates, number, seed)


def _patent(fetcher: Fetcher, dates: Dates, number: str, seed: int) -> WebPage:
    title, priority, published, description = parse_patent(fetcher.get("patents", f"/{number}/zh"))
    label = int(dates.holds(1, published))
    require(bool(label) or dates.holds(0, priority), "neither published early nor of a late priority")
    text = clean_chinese(description)
    require(len(re.findall(r"[\u4e00-\u9fff]", text)) >= MIN_CHINESE * len(text), "not in Chinese")
    spans = list(word_spans(text, "zh"))
    require(len(spans) >= PATENT_WORDS, f"shorter than {PATENT_WORDS} words")
    start = int(hash_of([seed, number]), 16) % (len(spans) - PATENT_WORDS + 1)
    snippet = text[spans[start][0] : spans[start + PATENT_WORDS - 1][1]]
    address = f"{SERVICES['patents'].address}/{number}/zh"
    return WebPage(title, published if label else priority, address, label, {str(PATENT_WORDS): (snippet,)})


def parse_patent(html: str) -> tuple[str, date, date, str]:
    """Title, priority date, publication date and description of a Google Patents page, a line for each of its blocks.

    Tables of cited and similar documents name their dates alike, so the first date outside a table is the page's own.
    ValueError for a page without a date or a description.
    """
    from bs4 import BeautifulSoup

    page = BeautifulSoup(html, "html.parser")

    def day(name: str) -> date:
        times = [tag for tag in page.find_all("time", itemprop=name) if not tag.find_parent("tr")]
        if not times:
            raise ValueError(f"no {name}")
        return _day(str(times[0].get("datetime", "")))

    description = page.select_one('section[itemprop="description"] [itemprop="content"]')
    if description is None:
        raise ValueError("no description")
    for block in description.find_all(["div", "p", "li", "heading", "br"]):
        block.insert_before("\n")
        block.append("\n")
    meta = page.find("meta", attrs={"name": "DC.title"})
    title = str(meta["content"]) if meta else ""
    return " ".join(title.split()), day("priorityDate"), day("publicationDate"), description.get_text()


def clean_chinese(text: str) -> str:
    """The text's lines without paragraph numbers, surplus white space, short lines (headings), and repeated lines.

    The paper cleans much as ChineseWebText does, by length, share of Chinese characters and repetition, and gives no
    numbers: MIN_LINE and MIN_CHINESE are ours.
    """
    lines = (" ".join(re.sub(r"^\s*[\[【]\d{4}[\]】]", "", line).split()) for line in text.splitlines())
    return "\n".join(dict.fromkeys(line for line in lines if len(line) >= MIN_LINE))


# --- arXiv ------------------------------------------------------------------------------------------------------------

ATOM = {
    "": "http://www.w3.org/2005/Atom",
    "opensearch": "http://a9.com/-/spec/opensearch/1.1/",
    "arxiv": "http://arxiv.org/schemas/atom",
}
PER_REPLY = 500  # entries; arXiv gives up to 2000, and sometimes fewer than asked for
PER_DAY = 10  # abstracts, so that they are from many days
MAX_EMPTY_DAYS = 60  # before a category is taken for a slip of the pen


def arxiv_abstracts(fetcher: Fetcher, dates: Dates, label: int, category: str, n: int, seed: int) -> Pages:
    """Titles and abstracts of an archive (cs) or category (cs.CL) by their first version's date, from random days.

    The feed gives the newest version, so a member that was revised after its date is left out: its text is new.
    """
    first, last = dates.days(label)
    days = [first + timedelta(days=i) for i in range((last - first).days + 1)]
    per_day, n_found = max(PER_DAY, ceil(3 * n / len(days))), 0
    for i, day in enumerate(shuffled(days, seed), start=1):
        entries = shuffled(_arxiv_day(fetcher, category, day), seed, key=lambda entry: _inside(entry, "id"))
        n_found += len(entries)
        if i == MAX_EMPTY_DAYS and not n_found:
            raise ValueError(f"arXiv has nothing of {category!r} on {i} random days; is it a category (cs, math.AG)?")
        for entry in entries[:per_day]:
            source = _inside(entry, "id") or f"an entry of {day}"
            yield page_or_reason(source, _arxiv_page, entry, dates, label, category)


def _arxiv_day(fetcher: Fetcher, category: str, day: date) -> list[ElementTree.Element]:
    """All entries that were submitted on a day (GMT); a reply has the next ones, and the number of all."""
    when = f"submittedDate:[{day:%Y%m%d}0000 TO {day:%Y%m%d}2359]"
    params = {"search_query": f"(cat:{category} OR cat:{category}.*) AND {when}", "max_results": PER_REPLY}
    params |= {"sortBy": "submittedDate", "sortOrder": "ascending"}
    entries: list[ElementTree.Element] = []

    def parse(text: str) -> tuple[int, list[ElementTree.Element]]:
        try:
            feed = ElementTree.fromstring(text)
            total = int(_inside(feed, "opensearch:totalResults"))
        except (ElementTree.ParseError, ValueError) as error:
            raise ValueError(f"not an Atom feed with opensearch:totalResults ({error})") from None
        elements = feed.findall("entry", ATOM)
        if elements and "/api/errors" in _inside(elements[0], "id"):
            raise ValueError(f"arXiv says: {_inside(elements[0], 'summary')}")
        if not elements and total > len(entries):  # this happens, and passes
            raise ValueError(f"no entries after number {len(entries)} of {total}")
        return total, elements

    total = 1
    while len(entries) < total:
        total, found = fetcher.get("arxiv", params=params | {"start": len(entries)}, parse=parse)
        entries += found
    return entries


def _arxiv_page(entry: ElementTree.Element, dates: Dates, label: int, category: str) -> WebPage:
    """An entry as ArxivMIA writes it; `published` is the first version's date, `updated` this one's."""
    title, abstract = _inside(entry, "title"), _inside(entry, "summary")
    primary = entry.find("arxiv:primary_category", ATOM)
    if primary is None or not (title and abstract):
        raise ValueError("no title, summary or primary_category")
    submitted, revised = _day(_inside(entry, "published")), _day(_inside(entry, "updated"))
    require(f"{primary.get('term')}.".startswith(f"{category}."), "of another primary category")
    require(dates.holds(label, submitted), TOO_LATE if label else TOO_EARLY)
    require(not label or dates.holds(label, revised), "a member revised since its date")
    texts = {"abstracts": (f"Title: {title}\nAbstract: {abstract}",)}
    return WebPage(title, submitted, _inside(entry, "id"), label, texts, field=category)


def _inside(element: ElementTree.Element, name: str) -> str:
    """The text of an element inside this one, white space collapsed; "" where there is none."""
    return " ".join(element.findtext(name, "", ATOM).split())


# --- Project Gutenberg ------------------------------------------------------------------------------------------------

CATALOGUE = "/cache/epub/feeds/pg_catalog.csv"  # Text#,Type,Issued,Title,Language,Authors,Subjects,LoCC,Bookshelves
START = re.compile(r"^\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG EBOOK.*?\*\*\*", re.M | re.S | re.I)
END = re.compile(r"^\*\*\* ?END OF TH(?:E|IS) PROJECT GUTENBERG EBOOK|^End of (?:the )?Project Gutenberg", re.M | re.I)
# Older books name their makers inside the text, newer ones in the header: it would tell the release date.
CREDITS = re.compile(r"\s*(?:E-text prepared|(?:This eBook was )?Produced|Transcribed) (?:by|from)\b.*?\n\s*\n", re.S)
EXCERPT_WORDS = (512, 1024)
MIN_BOOK_WORDS = 4 * max(EXCERPT_WORDS)  # so that head, middle and the tail's two share no word


def gutenberg_books(fetcher: Fetcher, dates: Dates, label: int, seed: int) -> Pages:
    """Places in English books that were released in the side's time (Dolma-Book: Zhang and Wu 2024, Section 5.1)."""

    def parse(text: str) -> list[dict[str, str]]:
        rows = list(csv.DictReader(io.StringIO(text.lstrip("\ufeff")), restval=""))
        if columns := {"Text#", "Type", "Issued", "Title", "Language"} - set(rows[0] if rows else ()):
            raise ValueError(f"the catalogue has no column {', '.join(sorted(columns))}")
        return rows

    catalogue = fetcher.get("gutenberg", CATALOGUE, parse=parse)
    books = [row for row in catalogue if (row["Type"], row["Language"]) == ("Text", "en")]
    for row in shuffled(books, seed, key=lambda row: row["Text#"]):
        try:
            is_wanted = dates.holds(label, _day(row["Issued"]))
        except ValueError:
            is_wanted = True  # malformed: left out below, by name
        if is_wanted:
            yield page_or_reason(f"book {row['Text#']}", _gutenberg_book, fetcher, row, label)


def _gutenberg_book(fetcher: Fetcher, row: Mapping[str, str], label: int) -> WebPage:
    number, issued = int(row["Text#"]), _day(row["Issued"])
    text = strip_gutenberg(fetcher.get("gutenberg", f"/cache/epub/{number}/pg{number}.txt"))
    require(len(text.split()) >= MIN_BOOK_WORDS, f"shorter than {MIN_BOOK_WORDS} words")
    texts: dict[str, tuple[str, ...]] = {}
    for n_words in EXCERPT_WORDS:
        snippets = split_into_snippets(text, n_words)
        texts |= {f"{part}-{n_words}": tuple(snippets_at(snippets, part)) for part in PARTS}
    title, address = " ".join(row["Title"].split()), f"https://www.gutenberg.org/ebooks/{number}"
    return WebPage(title, issued, address, label, texts)


def strip_gutenberg(text: str) -> str:
    """A book between its START and END markers, without credits; ValueError where a marker is missing."""
    text = text.replace("\r\n", "\n")
    start = START.search(text)
    end = END.search(text, start.end()) if start else None
    if not start or not end:
        raise ValueError(f"no {'END' if start else 'START'} marker")
    book = text[start.end() : end.start()]
    return book[who.end() :] if (who := CREDITS.match(book)) else book
