"""A real HTTP server with small invented pages in the formats of the services that benchmarks are made from."""

import hashlib
import io
import json
import random
import re
import tarfile
import threading
import time
import zipfile
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from replication.lab.patents import generate_patents

OLD = [f"old{i}" for i in range(60)] + [f"word{i}" for i in range(300)]
NEW = [f"new{i}" for i in range(60)] + OLD[60:]


def prose(key, n, vocabulary=OLD):
    """`n` words that `key` draws; other keys give others."""
    return " ".join(random.Random(key).choices(vocabulary, k=n))


class Web:
    """Serves `answer(path, query)`, which returns a text, a status, or (status, headers, text).

    `requests` are (start, end, address, user agent), in seconds of time.monotonic.
    """

    def __init__(self, answer):
        self.answer, self.requests = answer, []
        handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": lambda h: self.serve(h)})
        handler.log_message = lambda *_: None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def serve(self, handler):
        begun = time.monotonic()
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        found = self.answer(parts.path, query)
        found = (found, {}, "") if isinstance(found, int) else found
        status, headers, text = found if isinstance(found, tuple) else (200, {}, found)
        self.requests.append((begun, time.monotonic(), handler.path, handler.headers["User-Agent"]))
        data = text if isinstance(text, bytes) else text.encode()
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    @property
    def addresses(self):
        return [address for _, _, address, _ in self.requests]


class Wikipedia:
    """The MediaWiki API: `list=categorymembers`, two members a reply, and one page's extract and first revision."""

    def __init__(self):
        self.pages, self.members = {}, {}

    def add(self, category, title, created, text, **more):
        number = len(self.pages) + 1
        self.pages[number] = {"pageid": number, "ns": 0, "title": title} | {
            "revisions": [{"timestamp": f"{created}T08:15:00Z"}],
            "extract": text,
            "fullurl": f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}",
            **more,
        }
        self.members.setdefault(category, []).append({"pageid": number, "ns": 0, "title": title})

    def add_subcategory(self, category, title):
        self.members.setdefault(category, []).append({"pageid": 900 + len(self.members), "ns": 14, "title": title})

    def __call__(self, path, query):
        assert path == "/w/api.php" and query["action"] == "query"
        assert (query["format"], query["formatversion"]) == ("json", "2")
        if query.get("list") == "categorymembers":
            found, start = self.members.get(query["cmtitle"], []), int(query.get("cmcontinue", 0))
            reply = {"batchcomplete": True, "query": {"categorymembers": found[start : start + 2]}}
            if start + 2 < len(found):
                reply["continue"] = {"cmcontinue": str(start + 2), "continue": "-||"}
            return json.dumps(reply)
        assert set(query["prop"].split("|")) == {"extracts", "revisions", "pageprops", "info"}
        assert (query["rvdir"], query["rvlimit"], query["explaintext"]) == ("newer", "1", "1")
        reply = {"continue": {"rvcontinue": "2|3", "continue": "||"}}  # there are newer revisions
        return json.dumps(reply | {"query": {"pages": [self.pages[int(query["pageids"])]]}})


def wikipedia(n_members=12, n_non_members=12, words=300):
    """Enough pages, all usable, on both sides of 2017 and 2025."""
    wiki = Wikipedia()
    for i in range(n_members):
        wiki.add(
            f"Category:{2010 + i % 3} events", f"Old event {i}", date(2013, 2, 1) + timedelta(i), prose(f"m{i}", words)
        )
    for i in range(n_non_members):
        wiki.add("Category:2025 events", f"New event {i}", date(2025, 3, 1) + timedelta(i), prose(f"n{i}", words, NEW))
    return wiki


def patent_page(title, priority, published, paragraphs):
    """A page of Google Patents: metadata in `itemprop` attributes, paragraphs in the description, tables after it."""
    lines = "\n".join(
        f'<div num="{i:04d}" class="description-paragraph">[{i:04d}]  {text}</div>'
        for i, text in enumerate(paragraphs, 1)
    )
    return f"""<!DOCTYPE html><html lang="en"><head><meta name="DC.type" content="patent">
<meta name="DC.title" content="{title}
    "></head><body><article class="result" itemscope itemtype="http://schema.org/ScholarlyArticle">
<h1 itemprop="pageTitle">{title} - Google Patents</h1>
<dl><dt>Priority date</dt><dd><time itemprop="priorityDate" datetime="{priority}">{priority}</time></dd>
<dt>Publication date</dt><dd><time itemprop="publicationDate" datetime="{published}">{published}</time></dd></dl>
<section itemprop="abstract"><h2>Abstract</h2><div itemprop="content" html>
<div class="abstract">摘要</div></div></section>
<section itemprop="description" itemscope><h2>Description</h2><div itemprop="content" html>
<div class="description"><heading>技术领域</heading>{lines}</div></div></section>
<section itemprop="claims" itemscope><div itemprop="content" html><div class="claim">权利要求在此</div></div></section>
<table><tr itemprop="similarDocuments"><td><time itemprop="publicationDate" datetime="1999-09-09">1999-09-09</time></td>
<td><time itemprop="priorityDate" datetime="1998-08-08">1998-08-08</time></td></tr></table>
</article></body></html>"""


def patent_texts(n):
    """The project's own generated patents, as paragraphs."""
    return [re.split(r"(?<=。)", text) for text in generate_patents(n, seed=7, min_words=700)]


class Patents:
    """Google Patents: one HTML page a publication number."""

    def __init__(self, pages):
        self.pages = pages  # number -> HTML

    def __call__(self, path, query):
        number = re.fullmatch(r"/patent/(\w+)/zh", path)[1]
        return self.pages.get(number, 404)


class Arxiv:
    """arXiv's API: any day but Sundays has `per_day` entries a category, and a reply holds at most three of them."""

    def __init__(self, per_day=4, **changes):
        self.per_day, self.changes, self.asked = per_day, changes, []

    def entry(self, category, day, i):
        about = {
            "id": f"http://arxiv.org/abs/{day:%y%m}.{day.day:02d}{i:03d}v1",
            "title": f"On  {category}\n {day} {i}",
        }
        vocabulary = OLD if day.year < 2020 else NEW
        about |= {"summary": prose(f"{category}{day}{i}", 80, vocabulary), "primary": f"{category}.AB"}
        about |= {"published": f"{day}T17:00:00Z", "updated": f"{day + timedelta(days=1)}T17:00:00Z"}
        about |= {name: change(i, about[name]) for name, change in self.changes.items()}
        return f"""<entry><id>{about["id"]}</id><updated>{about["updated"]}</updated>
<published>{about["published"]}</published><title>{escape(about["title"])}</title><summary>  {about["summary"]}
</summary><author><name>A. Author</name></author><arxiv:primary_category xmlns:arxiv="http://arxiv.org/schemas/atom"
term="{about["primary"]}" scheme="http://arxiv.org/schemas/atom"/><category term="{about["primary"]}"/></entry>"""

    def __call__(self, path, query):
        pattern = r"\(cat:(\S+) OR cat:\1\.\*\) AND submittedDate:\[(\d{8})0000 TO \2(?:2359)\]"
        category, day = re.fullmatch(pattern, query["search_query"]).groups()
        day = date.fromisoformat(day)
        self.asked.append((category, day))
        start = int(query["start"])
        total = 0 if day.weekday() == 6 or category not in ("cs", "math") else self.per_day
        entries = "\n".join(self.entry(category, day, i) for i in range(start, min(start + 3, total)))
        return f"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom"><title type="html">ArXiv Query</title><id>http://arxiv.org/api/x</id>
<opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{total}</opensearch:totalResults>
<opensearch:startIndex xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{start}</opensearch:startIndex>
{entries}</feed>"""


def book(key, words=5000, credits="Produced by A Volunteer and\nthe Distributed Proofreaders", vocabulary=OLD):
    """A Gutenberg text file: header, markers, text, licence."""
    text = "\r\n".join(re.findall(r"(?:\S+ ?){1,12}", prose(key, words, vocabulary)))
    return f"""\ufeffThe Project Gutenberg eBook of {key}\r\n\r\nRelease date: January 1, 2000 [eBook #1]\r\n\r\n\
*** START OF THE PROJECT GUTENBERG EBOOK {key.upper()} ***\r\n\r\n{credits}\r\n\r\n\r\n{text}\r\n\r\n\
*** END OF THE PROJECT GUTENBERG EBOOK {key.upper()} ***\r\n\r\nTHE FULL PROJECT GUTENBERG LICENSE\r\n"""


class Gutenberg:
    """A Gutenberg mirror: the catalogue and one text file a book."""

    HEADER = "Text#,Type,Issued,Title,Language,Authors,Subjects,LoCC,Bookshelves"

    def __init__(self):
        self.rows, self.texts = [], {}

    def add(self, issued, text, title="A Book", kind="Text", language="en"):
        number = len(self.rows) + 1
        self.rows.append(f'{number},{kind},{issued},"{title}",{language},"Writer, A., 1800-1870",Fiction,PR,')
        self.texts[number] = text
        return number

    def __call__(self, path, query):
        if path == "/cache/epub/feeds/pg_catalog.csv":
            return "\n".join([self.HEADER, *self.rows, ""])
        number = int(re.fullmatch(r"/cache/epub/(\d+)/pg\1\.txt", path)[1])
        return self.texts.get(number) or 404


def archive(name, files):
    """A wheel, or an sdist, all of whose files are in one folder."""
    data = io.BytesIO()
    if name.endswith(".whl"):
        with zipfile.ZipFile(data, "w") as content:
            for path, text in files.items():
                content.writestr(path, text)
    else:
        with tarfile.open(fileobj=data, mode="w:gz") as content:
            for path, text in files.items():
                entry = tarfile.TarInfo(f"{name.removesuffix('.tar.gz')}/{path}")
                entry.size = len(text.encode())
                content.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


class Index:
    """A package index that speaks the simple API in JSON; its files are at addresses relative to a package's."""

    def __init__(self):
        self.packages, self.archives = {}, {}

    def add(self, package, name, uploaded, files, **more):
        data = self.archives[name] = archive(name, files)
        about = {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": hashlib.sha256(data).hexdigest()}}
        about |= {"size": len(data), "upload-time": f"{uploaded}T12:00:00Z", "yanked": False, **more}
        self.packages.setdefault(package, []).append(about)

    def __call__(self, path, query):
        kind, name = path.strip("/").split("/")
        if kind == "files":
            return self.archives[name]
        return json.dumps({"name": name, "files": self.packages[name]}) if name in self.packages else 404
