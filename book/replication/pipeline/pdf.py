"""HTML as a PDF, by a browser: all articles of the finished book, or a lesson's slides with their notes."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from posixpath import dirname, join, normpath

from mialib_audit.templates import macros

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
FLAGS: tuple[str, ...] = ("--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking")
FLAGS += ("--no-pdf-header-footer", "--generate-pdf-document-outline")
FLAGS += ("--virtual-time-budget=300000",)  # the milliseconds that MathJax may take


def print_page(text: str, path: Path, output: Path) -> None:
    """Print a page of HTML, which is at `path` meanwhile; ValueError without a browser, or where it fails."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ValueError(f"a PDF takes a browser, and none is installed here: install one of {', '.join(BROWSERS)}")
    path.write_text(text, encoding="utf-8")
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and not os.geteuid() else []  # there is no sandbox for root
    try:
        given = [*FLAGS, *as_root, f"--print-to-pdf={output.resolve()}", path.resolve().as_uri()]
        done = subprocess.run([browser, *given], capture_output=True, text=True, timeout=1200)
    finally:
        path.unlink()
    if done.returncode or not output.is_file():
        raise ValueError(f"{browser} printed no PDF: {done.stderr.strip()[-500:]}")


def one_page(html: Path, pages: Sequence[str]) -> str:
    """The articles of a finished book's pages, such as "pages/lab", as one page of HTML: folds open, no scripts."""
    articles = []
    for page in pages:
        text = (html / f"{page}.html").read_text(encoding="utf-8")
        article = re.findall('<article class="bd-article">(.*?)</article>', text, re.S)[0]
        article = re.sub(r"<script\b.*?</script>", "", article, flags=re.S).replace("<details", "<details open")
        title = re.findall(r'<h1>(.*?)(?:<a class="headerlink"|</h1>)', article, re.S)[0]
        articles.append((page, title, in_one_page(article, page, pages)))
    head = re.findall("<head>.*?</head>", (html / f"{pages[0]}.html").read_text(encoding="utf-8"), re.S)[0]
    return str(macros(Path(__file__).with_suffix(".html")).book(in_one_page(head, pages[0], pages), articles))


def in_one_page(html: str, page: str, pages: Sequence[str]) -> str:
    """A page's HTML with ids that begin with the page's name, and links to them; a link to no page of these is none."""

    def moved(found: re.Match[str]) -> str:
        kind, path, place = found.groups()
        at = normpath(join(dirname(page), path)) if path else f"{page}.html"
        return f'{kind}="{at}"' if (of := at.removesuffix(".html")) == at else f'href="#{of}.{place}"' * (of in pages)

    html = re.sub(r'(<[a-z][^<>]*?\sid=")', rf"\g<1>{page}.", html)
    return re.sub(r'\b(href|src)="(?![a-z]+:)([^"#]*)#?([^"]*)"', moved, html)
