"""Docstrings of the releases of Python packages, from a package index: those of an old release, and those new since.

Nothing is installed or imported: an archive's Python files are read in memory and parsed.
"""

import hashlib
import io
import logging
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from email.parser import Parser
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


def find_releases(fetcher: Fetcher, package: str, before: date) -> tuple[Release, Release]:
    """The newest final release that was uploaded before a day, and the newest of all."""
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
    old = [file for file in files if file.day < before]
    if not old:
        first = min(file.day for file in files)
        raise ValueError(
            f"{package} has no final release from before {before}, the first is from {first}: leave it out, or give a "
            "later date"
        )
    return _newest(old), _newest(files)


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
            try:
                tree = parse_source(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError):  # of nesting that is too deep
                contents.unread.append(name)
                continue
            for docstring in READ["docstring"](release.package, name, tree):
                contents.docstrings.append((HALF_PAIR.sub("\ufffd", docstring.text), name, docstring.path))
        elif path.match("PKG-INFO" if release.kind == SDIST else "*.dist-info/METADATA") and len(path.parts) <= 2:
            contents = contents._replace(licence=_licence(source))
    return contents


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


def docstring_pages(
    old: Release,
    new: Release,
    contents: Mapping[str, Contents],
    known: NearDuplicates,
    lengths: Sequence[int],
    seed: int,
) -> Pages:
    """The newest release's docstrings, cut to each of the lengths in words; members are in the old release, too.

    `contents` are by file name. A non-member, whole and cut, shares at most a fifth of its 7-grams with `known`.
    """
    before, places = {text for text, *_ in contents[old.file].docstrings}, Counter[str]()
    for release in (old, new):
        for file in contents[release.file].unread:
            yield LeftOut(f"{release.file}/{file}", "a file that this Python cannot parse")
    for text, file, path in shuffled(contents[new.file].docstrings, seed):
        source = f"{new.package}-{new.version}/{file}" + (f":{path}" if path else "")
        places[source] += 1
        if places[source] > 1:  # a name that is defined twice
            source += f"#{places[source]}"
        label, words = int(text in before), text.split(" ")
        texts = {docstrings_file(n): (" ".join(words[:n]),) for n in sorted(lengths) if n <= len(words)}
        if not texts:
            yield LeftOut(source, f"shorter than {min(lengths)} words")
        elif not label and any(known.holds(*some) for some in ((text,), *texts.values())):
            yield LeftOut(source, "neither unchanged nor new since the old releases")
        else:
            yield WebPage(path or file, (old if label else new).day, source, label, texts, new.package)


def docstrings_file(n_words: int) -> str:
    """The name of the file of docstrings cut to a length, without suffix."""
    return f"docstrings-{n_words}"
