"""The finished book in a browser: errors, phone, weight, figures, and what screen readers meet.

It takes Debian's Chromium and a finished `make book`; MIALIB_BOOK names another rendered book.
"""

import os
import re
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

from mialib.store import ROOT

BOOK = Path(os.environ.get("MIALIB_BOOK") or ROOT / "build" / "lab" / "book" / "_build" / "html")
CHROMIUM = shutil.which("chromium")
QUIET = ("background-networking", "component-update", "sync")  # nothing that a browser does by itself
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", *(f"--disable-{name}" for name in QUIET)]
PAGES = sorted(path.relative_to(BOOK).as_posix() for path in BOOK.rglob("*.html") if path != BOOK / "index.html")
PHONE, LAPTOP, DESK = 390, 1280, 1400  # pixels
MB = 1e6
LANDING, CLAIMS, HEATMAPS = "pages/index.html", "pages/claims.html", "pages/surp_figure_4.html"
WIDE_TABLES = ("pages/sensitivity.html", "pages/which_detector.html")
LOOKED_AT = (LANDING, CLAIMS, HEATMAPS, "pages/token_view.html", "how_to_read.html", "references.html", "search.html")
# Of a page with its folds open: the words of tables that are on two lines, and the code that is wider than its box.
BROKEN_AND_CUT = """() => {
  document.querySelectorAll("article details").forEach((fold) => (fold.open = true));
  const broken = [], range = document.createRange();
  for (const cell of document.querySelectorAll("article table :is(td, th)")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode())
      for (const { 0: word, index } of texts.currentNode.data.matchAll(/[A-Za-z0-9]+/g)) {
        range.setStart(texts.currentNode, index);
        range.setEnd(texts.currentNode, index + word.length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) broken.push(word);
      }
  }
  const code = [...document.querySelectorAll("article :not(.output) > .highlight pre")];
  return [broken, code.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.textContent.slice(0, 60))];
}"""
# Of a figure: labels of an axis that touch, turned ones aside, and labels of rows whose lines end apart.
COLLIDING_AND_RAGGED = """() => {
  const faults = [];
  for (const axis of document.querySelectorAll("[id^='matplotlib.axis']")) {
    const labels = [...axis.querySelectorAll("[id*='tick_'] [id^='text_']")];
    const lines = (label) => [...label.querySelectorAll("text")].map((line) => line.getBoundingClientRect());
    const upright = labels.filter((label) => !/rotate\\(-?45/.test(label.innerHTML));
    upright.forEach((one, i) => upright.slice(i + 1).forEach((other) => {
      const beside = (a, b) => a.right + 3 < b.left || b.right + 3 < a.left;
      const touch = (a, b) => !beside(a, b) && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
      const isOn = lines(one).some((a) => lines(other).some((b) => touch(a, b)));
      if (isOn) faults.push([one.textContent, other.textContent]);
    }));
    for (const label of upright.filter((label) => label.parentElement.id.startsWith("ytick"))) {
      const ends = lines(label).map((line) => line.right);
      if (Math.max(...ends) - Math.min(...ends) > 2) faults.push([label.textContent, ends]);
    }
  }
  return faults;
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PAGES, reason=f"no rendered book at {BOOK}: run `make book`"),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine: apt-get install chromium"),
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """The address of a folder's files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def site():
    """The book's address."""
    with served(BOOK) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser, site):
    """Opens a page at a width, in a theme."""

    @contextmanager
    def opens(page, width=DESK, theme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        tab = context.new_page()
        tab.goto(site + page)
        yield tab
        context.close()

    return opens


@dataclass
class Visit:
    """What one page did."""

    files: dict[str, int] = field(default_factory=dict)  # bytes of each file that it asked for, by path
    elsewhere: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    width: int = 0  # of its content, on a phone
    broken_equations: int = 0
    broken_words: dict[int, list[str]] = field(default_factory=dict)  # of tables, by width
    cut_code: dict[int, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def visits(browser, site):
    """Each page, opened once on a phone."""
    tab = browser.new_page(viewport={"width": PHONE, "height": 844})
    of = {}
    for page in PAGES:
        visit = of[page] = Visit()
        listeners = {
            "console": lambda message, visit=visit: message.type == "error" and visit.errors.append(message.text),
            "pageerror": lambda error, visit=visit: visit.errors.append(str(error)),
            "request": lambda request, visit=visit: note(request.url, site, visit),
        }
        for event, listener in listeners.items():
            tab.on(event, listener)
        tab.goto(site + page)
        if tab.locator(".math").count():
            tab.evaluate("MathJax.startup.promise")
        visit.width = tab.evaluate("document.documentElement.scrollWidth")
        visit.broken_equations = tab.locator("mjx-merror, [data-mjx-error]").count()
        for width in (PHONE, LAPTOP) if page in WIDE_TABLES else (PHONE,):
            tab.set_viewport_size({"width": width, "height": 844})
            visit.broken_words[width], visit.cut_code[width] = tab.evaluate(BROKEN_AND_CUT)
        tab.set_viewport_size({"width": PHONE, "height": 844})
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
    tab.close()
    return of


def note(url, site, visit):
    if url.startswith(site):
        path = unquote(urlsplit(url).path).lstrip("/")
        visit.files[path] = (BOOK / path).stat().st_size if (BOOK / path).is_file() else 0
    elif not url.startswith(("data:", "blob:")):
        visit.elsewhere.append(url)


def test_no_page_logs_an_error_asks_another_host_scrolls_sideways_or_breaks_a_word(visits):
    for what, faults in {
        "errors": lambda visit: visit.errors,
        "elsewhere": lambda visit: visit.elsewhere,
        "wider than a phone": lambda visit: visit.width > PHONE,
        "equations that are not set": lambda visit: visit.broken_equations,
        "words on two lines": lambda visit: [word for words in visit.broken_words.values() for word in words],
        "code wider than its box": lambda visit: [line for lines in visit.cut_code.values() for line in lines],
    }.items():
        assert {page: found for page, visit in visits.items() if (found := faults(visit))} == {}, what


def test_pages_and_the_book_are_light(visits):
    users = Counter(file for visit in visits.values() for file in visit.files)
    shared = {file for file, n in users.items() if n > len(visits) / 4}
    own = {
        page: sum(size for file, size in visit.files.items() if file not in shared) / MB
        for page, visit in visits.items()
    }
    book = sum(path.stat().st_size for path in BOOK.rglob("*") if path.is_file()) / MB
    print(f"the whole book: {book:.1f} MB, {len(PAGES)} pages, the heaviest {max(own.values()):.2f}")
    assert {page: weight for page, weight in own.items() if weight > 1.5} == {}
    assert book < 20


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_screen_readers_and_weak_eyes_meet_no_serious_barrier(opened, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = Counter()
    serious = []
    for page in LOOKED_AT:
        with opened(page, theme=theme) as tab:
            rules = {} if theme == "light" else {"runOnly": ["color-contrast"]}
            for rule in axe.run(tab, options=rules).response["violations"]:
                found[rule["impact"]] += len(rule["nodes"])
                if rule["impact"] in ("critical", "serious"):
                    serious += [(page, rule["id"], node["html"][:120]) for node in rule["nodes"]]
    print(f"axe, {theme}, {len(LOOKED_AT)} pages: {dict(found)}")
    assert not serious


def test_the_labels_of_a_figures_axes_can_be_read(browser):
    """No two of an axis touch, and the lines of one in several end where they should, at the axis."""
    tab, faults = browser.new_page(), {}
    for page in PAGES:
        for name in set(re.findall(r"_images/[^\"]*\.svg", (BOOK / page).read_text(encoding="utf-8"))):
            tab.goto((BOOK / name).as_uri())
            faults[page, name] = tab.evaluate(COLLIDING_AND_RAGGED)
    tab.close()
    assert {figure: labels for figure, labels in faults.items() if labels} == {}
