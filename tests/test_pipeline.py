"""What Snakemake would run again, asked of the built tree by a dry run. Needs a finished `make book`."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mialib.book import ranking
from mialib.book.profile import load_profile
from mialib.store import ROOT

BOOK = ROOT / "build" / "lab" / "book" / "_build" / "html"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BOOK.is_dir(), reason="no built book here: run `make book` first"),
]


def rules_to_run():
    """The rule of each job of a dry run, in order."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MIALIB_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["snakemake", "--dry-run", "--cores", "2", "--max-checksum-file-size", "0", "--nolock"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^(?:local)?rule (\w+):", done.stdout + done.stderr, re.M)


@contextmanager
def edited(path, append=""):
    """The file with text appended, or only touched; put back afterwards."""
    content, stat = path.read_bytes(), path.stat()
    try:
        path.write_bytes(content + append.encode())
        os.utime(path, (time.time() + 1, time.time() + 1))
        yield
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_nothing_is_stale_after_a_build():
    assert rules_to_run() == []


def test_a_touched_notebook_reruns_itself_and_the_book():
    with edited(ROOT / "notebooks" / "dc_pdd_table_5.ipynb"):
        assert sorted(set(rules_to_run())) == ["all", "book", "notebook"]
        assert rules_to_run().count("notebook") == 1


def test_an_edit_to_the_figures_module_trains_and_scores_nothing():
    with edited(ROOT / "mialib" / "figures.py", "\n# an edit\n"):
        assert set(rules_to_run()) == {"all", "book", "notebook"}


def test_an_edit_to_the_scoring_module_scores_again_and_trains_nothing():
    with edited(ROOT / "mialib" / "scoring.py", "\n# an edit\n"):
        assert set(rules_to_run()) == {"all", "book", "notebook", "score"}


def test_the_book_has_every_page_and_no_broken_image():
    pages = sorted(BOOK.rglob("*.html"))
    assert {"index.html", "how_to_read.html", "dc_pdd_tables_2_3.html", "surp_figure_4.html"} <= {p.name for p in pages}
    for page in pages:
        html = page.read_text()
        for source in re.findall(r'<img[^>]+src="([^"#:]+)"', html):
            assert (page.parent / source).is_file(), f"{page.name} shows {source}, which is not there"
        for image in re.findall(r"<img[^>]*>", html):
            assert 'alt="' in image, f"{page.name}: an image without alt text: {image[:100]}"


def test_a_recorded_seed_is_what_this_code_makes_of_it(monkeypatch):
    # Recorded seeds are matched by recipes and texts, not by code: an edit that leaves them behind shows here.
    monkeypatch.setenv("MIALIB_HOME", str(ROOT / "build"))
    monkeypatch.delenv("MIALIB_PROFILE", raising=False)
    given = load_profile().notebooks[ranking.PAGE].parameters
    of_page = ranking.columns(*(given[name] for name in ("models", "benchmarks", "references", "corpora", "shifted")))
    [(target, condition)] = [page for page in of_page if (page[0].model, page[1]) == ("lab/en-25k", ranking.OWN)]
    lengths = given["lengths"]
    recorded = {b.n_words: b for b in ranking.gather([(target, condition)], lengths).blocks if b.seed == 1}
    of_seed = replace(target, model="lab/en-25k@1")
    made = {b.n_words: b for b in ranking.gather([(of_seed, condition)], lengths, Path("none")).blocks}
    assert set(recorded) == set(made)
    for n_words, block in made.items():
        for name in block.scores:  # another processor rounds otherwise, and training carries that on
            assert block.auc(name) == pytest.approx(recorded[n_words].auc(name), abs=0.03), (name, n_words)
