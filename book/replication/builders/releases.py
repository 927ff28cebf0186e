"""Docstrings of the releases of Python packages, from a package index: those that stayed, are new, or were rewritten.

Nothing is installed or imported: an archive's Python files are read in memory and parsed.
"""

import hashlib
import io
import logging
import sys
import tarfile
import zipfile
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from email.parser import Parser
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import httpx
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from mialib.cache import JSON, cached
from mialib.text import HALF_PAIR
from mialib.versions import versions_of
from replication.builders.fetch import Fetcher, address_of, without_password
from replication.builders.sources import LeftOut, Pages, WebPage, shuffled
from replication.lab.docstrings import READ, is_test, parse_source
from replication.lab.near_duplicates import NearDuplicates

logger = logging.getLogger(__name__)

INDEX_JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691; upload times and sizes: PEP 700
ANOTHER_INDEX = "name another index in MIALIB_PYPI_URL"
PURE_WHEEL, WHEEL, SDIST = range(3)  # in the order in which they are preferred
MAX_CHANGE, MIN_EDITED = 0.2, 0.5  # of a rewritten docstring: its length, and the share of its words
LICENCE_CHARACTERS = 60  # some packages put the licence's whole text in its place


class Release(NamedTuple):
    """The file of a release that is read."""

    package: str
    version: Version
    file: str
    url: str
    sha256: str
    day: date  # of its upload
    kind: int
    size: int


class Contents(NamedTuple):
    """What an archive holds."""

    docstrings: list[tuple[str, str, str]]  # text, file, names inside the file
    unread: list[str]  # files that this Python cannot parse
    licence: str


def find_releases(fetcher: Fetcher, package: str, days: Sequence[date]) -> list[Release]:
    """The newest final release that was uploaded before each of some days, and the newest of all, each once."""
    url = f"{address_of('pypi')}/{package}/"
    reply, address = fetcher.ask("pypi", url, headers={"Accept": INDEX_JSON}), without_password(url)
    if reply.status_code != 200:
        raise ValueError(f"{package}: {address} does not exist (answer {reply.status_code}); check the package's name")
    try:
        files = [release for file in reply.json()["files"] if (release := _release(package, url, file))]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{package}: {address} does not answer as {INDEX_JSON}; {ANOTHER_INDEX}") from None
    if not files:
        raise ValueError(
            f"{package}: {address} lists no wheel or sdist of a final release with SHA-256 and time of upload; leave "
            f"the package out, or {ANOTHER_INDEX}"
        )
    if (first := min(file.day for file in files)) >= days[-1]:
        raise ValueError(
            f"{package} has no final release from before {days[-1]}, the first is from {first}: leave it out, or give "
            "a later date"
        )
    before = [[file for file in files if file.day < day] for day in (*days, date.max)]
    return list(dict.fromkeys(_newest(some) for some in before if some))


def _release(package: str, index: str, file: Mapping[str, Any]) -> Release | None:
    """An entry of the index; None for what is neither wheel nor sdist, not final, yanked, or of an unknown time."""
    name = file["filename"]
    try:
        if name.endswith(".whl"):
            _, version, _, tags = parse_wheel_filename(name)
            kind = PURE_WHEEL if all(tag.platform == "any" for tag in tags) else WHEEL
        else:
            (_, version), kind = parse_sdist_filename(name), SDIST
    except ValueError:  # an installer, or a version from before PEP 440
        return None
    uploaded, sha256 = file.get("upload-time"), file["hashes"].get("sha256")
    if version.is_prerelease or file.get("yanked") or not uploaded or not sha256:
        return None
    url, day = str(httpx.URL(index).join(file["url"])), datetime.fromisoformat(uploaded).date()
    return Release(package, version, name, url, sha256, day, kind, file.get("size", 0))


def _newest(files: Sequence[Release]) -> Release:
    """The file to read of the highest version."""
    highest = max(file.version for file in files)
    return min((f for f in files if f.version == highest), key=lambda f: (f.kind, f.size, f.file))


def read_release(fetcher: Fetcher, release: Release) -> Contents:
    """The docstrings of a release, kept; ValueError where the file is not the one that the index lists."""

    def make() -> Contents:
        reply = fetcher.ask("pypi", release.url, headers={"Accept-Encoding": "identity"})
        place = f"{release.package}: {without_password(release.url)}"
        if reply.status_code != 200:
            raise ValueError(f"{place} does not exist (answer {reply.status_code}), though listed; {ANOTHER_INDEX}")
        if hashlib.sha256(reply.content).hexdigest() != release.sha256:
            raise ValueError(f"{place} is not the file that the index lists: its SHA-256 differs; {ANOTHER_INDEX}")
        logger.info("%s: %.1f MB", release.file, len(reply.content) / 1e6)
        return _contents(release, reply.content)

    made_by: dict[str, Any] = {"sha256": release.sha256, "python": list(sys.version_info[:2])}
    made_by |= versions_of("gathering")
    docstrings, unread, licence = cached("releases", make, JSON, **made_by)
    return Contents([(text, name, path) for text, name, path in docstrings], unread, licence)


def _contents(release: Release, archive: bytes) -> Contents:
    contents = Contents([], [], "")
    for name, data in _files(release, archive):
        path, source = PurePosixPath(name), data.decode("utf-8", errors="replace")
        if path.suffix == ".py" and not is_test(path):
            if (docstrings := _docstrings(source)) is None:
                contents.unread.append(name)
            for text, place in docstrings or ():
                contents.docstrings.append((text, name, place))
        elif path.match("PKG-INFO" if release.kind == SDIST else "*.dist-info/METADATA") and len(path.parts) <= 2:
            contents = contents._replace(licence=_licence(source))
    return contents


@lru_cache(maxsize=10_000)  # most files are the same in a package's next release
def _docstrings(source: str) -> tuple[tuple[str, str], ...] | None:
    """The docstrings of a file, each with the names inside it; None where this Python cannot parse it."""
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of nesting that is too deep
        return None
    return tuple((HALF_PAIR.sub("\ufffd", of.text), of.path) for of in READ["docstring"]("", "", tree))


def _files(release: Release, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The Python files and metadata of an archive, without the folder that all of an sdist is in."""
    endings = (".py", "METADATA", "PKG-INFO")
    if release.file.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(archive)) as content:
            read = [(name, content.read(name)) for name in content.namelist() if name.endswith(endings)]
    else:
        with tarfile.open(fileobj=io.BytesIO(archive)) as content:
            members = [file for file in content if file.isfile() and file.name.endswith(endings)]
            read = [(file.name, opened.read()) for file in members if (opened := content.extractfile(file))]
    for name, data in sorted(read):
        yield name.partition("/")[2] if release.kind == SDIST else name, data


def _licence(metadata: str) -> str:
    """The licence that a package's metadata names."""
    about = Parser().parsestr(metadata, headersonly=True)
    classes = [line.split(" :: ")[-1] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    licence = about["License-Expression"] or ", ".join(classes) or about["License"] or "not named"
    return " ".join(licence.split())[:LICENCE_CHARACTERS]


def starts_of_quarters(since: date) -> list[date]:
    """The first days of quarters, from the one of a day to that of today."""
    if since > (today := date.today()):
        raise ValueError(f"{since} is after today, {today}")
    first, last = (day.year * 4 + (day.month - 1) // 3 for day in (since, today))
    return [date(quarter // 4, quarter % 4 * 3 + 1, 1) for quarter in range(first, last + 1)]


def first_releases(releases: Iterable[Release], contents: Mapping[str, Contents]) -> dict[str, Release]:
    """The first release, by day, that holds each docstring; `contents` are by file name."""
    latest_first = sorted(releases, key=lambda release: release.day, reverse=True)
    return {text: release for release in latest_first for text, *_ in contents[release.file].docstrings}


def new_docstrings(first: Mapping[str, Release], days: Sequence[date], lengths: Sequence[int]) -> dict[str, Release]:
    """The docstrings that are long enough and new in the first release that holds them, of those given, and that one.

    A new one, whole and cut, shares at most a fifth of its 7-grams with all docstrings that were released before the
    last of `days` that its own release is not before.
    """
    known, new = NearDuplicates(), dict[str, Release]()
    for since, group in groupby(sorted(first, key=lambda text: first[text].day), lambda t: bisect(days, first[t].day)):
        texts = list(group)
        for text in texts if since else ():
            if (cut := cut_to(text, lengths)) and not any(known.holds(*some) for some in ((text,), *cut.values())):
                new[text] = first[text]
        known.add(*texts)
    return new


def docstring_pages(
    releases: Sequence[Release],
    contents: Mapping[str, Contents],
    before: date,
    lengths: Sequence[int],
    seed: int,
    new_in: Mapping[str, Release],
    n_of_release: int | None = None,
) -> Pages:
    """The newest release's docstrings, cut to each of the lengths in words; members were in one from before a day, too.

    With `n_of_release`, each is new in a release after the first that was read, and at most so many are of one.
    """
    new, places, n_of = releases[-1], Counter[str](), Counter[Release]()
    first = first_releases(releases, contents)
    yield from _unread(releases, contents)
    for text, file, path in shuffled(contents[new.file].docstrings, seed):
        source = f"{new.package}-{new.version}/{file}" + (f":{path}" if path else "")
        places[source] += 1
        if places[source] > 1:  # a name that is defined twice
            source += f"#{places[source]}"
        release, texts = first[text], cut_to(text, lengths)
        label = int(release.day < before)
        if not texts:
            yield LeftOut(source, f"shorter than {min(lengths)} words")
        elif n_of_release and release == releases[0]:
            yield LeftOut(source, "in the first release that was read")
        elif new_in.get(text) != release and (n_of_release or not label):
            yield LeftOut(source, "neither unchanged nor new since the old releases")
        elif n_of[release] == n_of_release:
            yield LeftOut(source, f"more than {n_of_release} of a release")
        else:
            n_of[release] += 1
            yield WebPage(path or file, release.day, source, label, texts, new.package)


def rewritten_pages(
    releases: Sequence[Release],
    contents: Mapping[str, Contents],
    before: date,
    lengths: Sequence[int],
    seed: int,
) -> Pages:
    """An object's docstring in the old release, a member, and in the newest, where it was rewritten, of one source.

    The object is the same where file and names inside it are: one that moved, or is defined twice, is left out.
    """
    (old, old_texts), (new, new_texts) = ((of, _by_place(contents[of.file])) for of in (releases[0], releases[-1]))
    first = first_releases(releases, contents)
    yield from _unread(releases, contents)
    for file, path in shuffled(new_texts, seed):
        source = f"{new.package}/{file}" + (f":{path}" if path else "")
        text, rewritten = old_texts.get((file, path)), new_texts[file, path]
        if text is None:
            yield LeftOut(source, "new, or at another place in the old release")
        elif not (text and rewritten):
            yield LeftOut(source, "a name that is defined twice")
        elif first[rewritten].day < before:
            yield LeftOut(source, "unchanged, or what another docstring was")
        elif not (texts := cut_rewritten(text, rewritten, lengths)):
            yield LeftOut(source, f"shorter than {min(lengths)} words, or less changed")
        else:
            versions = [{name: (both[1 - label],) for name, both in texts.items()} for label in (0, 1)]
            yield [
                WebPage(path or file, r.day, source, of, versions[of], new.package) for r, of in ((old, 1), (new, 0))
            ]


def _unread(releases: Iterable[Release], contents: Mapping[str, Contents]) -> Iterator[LeftOut]:
    for release in releases:
        for file in contents[release.file].unread:
            yield LeftOut(f"{release.file}/{file}", "a file that this Python cannot parse")


def _by_place(contents: Contents) -> dict[tuple[str, str], str]:
    """The docstring of each file and names inside it; "" where there are several."""
    texts: dict[tuple[str, str], str] = {}
    for text, file, path in contents.docstrings:
        texts[file, path] = "" if (file, path) in texts else text
    return texts


def cut_to(text: str, lengths: Sequence[int]) -> dict[str, tuple[str]]:
    """The first words of a text that has so many, by file."""
    words = text.split(" ")
    return {docstrings_file(n): (" ".join(words[:n]),) for n in sorted(lengths) if n <= len(words)}


def cut_rewritten(old: str, new: str, lengths: Sequence[int]) -> dict[str, tuple[str, str]]:
    """The first words of two texts whose lengths differ by at most a fifth, where over half of these words do, by file.

    The recipe of WikiMIA_2024-Hard (Hallinan et al. 2025), on the words that the file holds.
    """
    n_old, n_new = (text.count(" ") + 1 for text in (old, new))
    if abs(n_new - n_old) > MAX_CHANGE * n_old:
        return {}
    found = {}
    for n in lengths:
        of_old, of_new = (text.split(" ")[:n] for text in (old, new))
        if len(of_old) == len(of_new) == n and edit_distance(of_old, of_new) > MIN_EDITED * n:
            found[docstrings_file(n)] = " ".join(of_old), " ".join(of_new)
    return found


def edit_distance(old: Sequence[str], new: Sequence[str]) -> int:
    """How many words must be added, removed or replaced (Levenshtein 1966)."""
    row = list(range(len(new) + 1))
    for i, word in enumerate(old, start=1):
        corner, row[0] = row[0], i
        for j, other in enumerate(new, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (word != other))
    return row[-1]


def docstrings_file(n_words: int) -> str:
    """The name of the file of docstrings cut to a length, without suffix."""
    return f"docstrings-{n_words}"
