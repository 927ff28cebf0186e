"""Fresh benchmarks, built through a real local server that speaks the four services' formats."""

import json
import re
import sys
from collections import Counter
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
import web
from typer.testing import CliRunner

from mialib.catalog.benchmarks import load_benchmark
from mialib.text import split_into_snippets, words
from replication.builders import construct, fetch, releases
from replication.builders.fetch import Fetcher
from replication.builders.sources import Dates, LeftOut, WebPage, clean_chinese, parse_patent, strip_gutenberg
from replication.commands import app
from replication.remote import services

DATES = Dates(date(2017, 1, 1), date(2025, 1, 1))


@pytest.fixture
def serve(monkeypatch):
    """A function from a service's name and its answers to a running server."""
    monkeypatch.setattr(services, "FIRST_WAIT", 0)
    monkeypatch.setattr(
        construct, "MIN_BLIND", 1000
    )  # a baseline takes longer than all else, and has a test of its own
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers = []

    def start(service, answer):
        servers.append(web.Web(answer))
        paths = {"wikipedia": "/w/api.php", "patents": "/patent", "arxiv": "/api/query", "pypi": "/simple"}
        address = f"http://127.0.0.1:{servers[-1].port}{paths.get(service, '')}"
        monkeypatch.setenv(f"MIALIB_{service.upper()}_URL", address)
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def fetcher(gap_seconds=0):
    return Fetcher("tests@example.org", gap_seconds)


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def left_out(folder):
    return json.loads((folder / "left_out.json").read_text(encoding="utf-8"))


def test_wikimia_holds_the_first_words_of_pages_by_creation_date(serve, tmp_path):
    wiki = web.wikipedia(n_members=12, n_non_members=11, words=300)
    for i in range(3):  # too short for 256 words: in the other files only
        wiki.add("Category:2025 events", f"Short event {i}", f"2025-04-0{i + 1}", web.prose(f"s{i}", 200, web.NEW))
    serve("wikipedia", wiki)
    out = construct.wikimia(tmp_path / "out", fetcher(), DATES, 12, seed=3)
    assert {path.name for path in out.iterdir()} == {
        *(f"{n}.jsonl" for n in (32, 64, 128, 256)),
        "README.md",
        "left_out.json",
    }
    pages = {page["title"]: page for page in wiki.pages.values()}
    for n_words in (32, 64, 128, 256):
        path = out / f"{n_words}.jsonl"
        bench = load_benchmark(path)
        assert bench.labels.sum() * 2 == len(bench), "as many members as non-members"
        for row in rows_of(path):
            assert list(row) == ["text", "label", "title", "date", "source"]
            assert row["text"].split() == pages[row["title"]]["extract"].split()[:n_words]
            assert row["date"] == pages[row["title"]]["revisions"][0]["timestamp"][:10]
            assert row["source"] == pages[row["title"]]["fullurl"]
            assert row["label"] == (row["date"] < "2017-01-01") and (row["label"] or row["date"] > "2025-01-01")
        if n_words < 256:
            assert len(bench) == 24
    long = {row["title"] for row in rows_of(out / "256.jsonl")}
    assert not any(title.startswith("Short") for title in long) and 18 <= len(long) <= 22
    # what 256.jsonl lacks of the members is accounted for
    surplus = left_out(out)["256.jsonl alone: more of this class than of the other"]
    assert len(surplus) == 12 - len(long) // 2


def test_wikimia_leaves_out_lists_redirects_short_and_malformed_pages_and_says_so(serve, tmp_path):
    wiki = web.wikipedia(n_members=10, n_non_members=10)
    text = web.prose("other", 300)
    odd = [
        ("a list or disambiguation page", "List of floods", "2012-01-01", text, {}),
        ("a list or disambiguation page", "2012 in film", "2012-01-01", text, {}),
        ("a list or disambiguation page", "Flood", "2012-01-01", text, {"pageprops": {"disambiguation": ""}}),
        ("deleted or a redirect", "Old flood", "2012-01-01", "", {"redirect": True}),
        ("too late for a member", "Late flood", "2019-01-01", text, {}),
        ("too late for a member", "On the day", "2017-01-01", text, {}),
        ("shorter than 32 words", "Brief flood", "2012-01-01", "A flood.\n\n\n== References ==\n" + text, {}),
        ("malformed: no revisions", "Undated flood", "2012-01-01", text, {}),
        ("malformed: no extract", "Empty flood", "2012-01-01", text, {}),
    ]
    for reason, title, day, said, more in odd:
        wiki.add("Category:2012 events", title, day, said, **more)
        if reason.startswith("malformed"):
            del wiki.pages[len(wiki.pages)][reason.split()[-1]]
    wiki.add("Category:2025 events", "Planned flood", "2024-01-01", text)
    serve("wikipedia", wiki)
    with pytest.raises(ValueError, match=r"11 .* 10 members, 10 non-members") as caught:
        construct.wikimia(tmp_path / "out", fetcher(), DATES, 11)
    assert not (tmp_path / "out").exists(), "nothing half-made"
    expected = {title: reason for reason, title, *_ in odd} | {"Planned flood": "too early for a non-member"}
    for reason, n in Counter(expected.values()).items():
        assert f"{n} {reason}" in str(caught.value)
    out = construct.wikimia(tmp_path / "out", fetcher(), DATES, 10)
    found = {name: reason for reason, names in left_out(out).items() for name in names}
    assert found and found.items() <= expected.items(), "those that the seed came upon"
    card = (out / "README.md").read_text()
    for reason, n in Counter(found.values()).items():
        assert f"| {reason} | {n} | " in card


def test_headings_and_end_matter_are_no_text(serve, tmp_path):
    wiki = web.wikipedia(n_members=0, n_non_members=1)
    text = f"One {web.prose('a', 40)}\n\n== Course ==\nTwo {web.prose('b', 40)}\n\n== See also ==\nThree"
    wiki.add("Category:2012 events", "Flood", "2012-01-01", text)
    serve("wikipedia", wiki)
    out = construct.wikimia(tmp_path / "out", fetcher(), DATES, 1, lengths=[82])
    [text] = [row["text"] for row in rows_of(out / "82.jsonl") if row["label"]]
    assert text == f"One {web.prose('a', 40)} Two {web.prose('b', 40)}"


@pytest.fixture(scope="module")
def patents():
    """Eight pages of each side and some that cannot be used."""
    texts = web.patent_texts(19)
    pages = {}
    for i in range(8):
        pages[f"CN10{i}A"] = web.patent_page(f"装置{i}", "2018-05-01", f"2020-01-{i + 1:02d}", texts[i])
        pages[f"CN20{i}A"] = web.patent_page(f"方法{i}", f"2024-06-{i + 1:02d}", "2025-06-01", texts[8 + i])
    pages["CN301A"] = web.patent_page("其间", "2022-06-01", "2024-06-01", texts[16])
    pages["CN302A"] = web.patent_page("English", "2018-05-01", "2020-01-01", [web.prose("English", 900)])
    pages["CN303A"] = web.patent_page("短", "2018-05-01", "2020-01-01", texts[17][:3])
    pages["CN304A"] = "<html><body>Sorry</body></html>"
    pages["CN305A"] = web.patent_page("无日期", "", "2020-01-01", texts[18])
    return pages


PATENT_DATES = Dates(date(2023, 1, 1), date(2024, 3, 1))


def test_patentmia_holds_a_random_snippet_of_512_words_a_page(serve, tmp_path, patents):
    serve("patents", web.Patents(patents))
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("\n".join([*patents, "CN306A", "", "CN100A"]))
    with pytest.raises(ValueError) as caught:
        construct.patentmia(tmp_path / "out", fetcher(), PATENT_DATES, 9, numbers)
    assert "8 members, 8 non-members" in str(caught.value)
    for reason in (
        "1 neither published early nor of a late priority",
        "1 not in Chinese",
        "1 shorter than 512 words",
        "1 not there",
        "1 malformed: no description",
        "1 malformed: Invalid isoformat string: ''",
    ):
        assert reason in str(caught.value)
    out = construct.patentmia(tmp_path / "out", fetcher(), PATENT_DATES, 8, numbers)
    rows = rows_of(out / "512.jsonl")
    assert len(rows) == 16 and load_benchmark(out / "512.jsonl").labels.sum() == 8
    starts = set()
    for row in rows:
        number = re.search(r"CN\d+A", row["source"])[0]
        assert row["label"] == (number < "CN2") and row["date"][:7] == ("2020-01" if row["label"] else "2024-06")
        assert row["title"].startswith("装置" if row["label"] else "方法")
        whole = clean_chinese(parse_patent(patents[number])[3])
        assert row["text"] in whole and "权利要求在此" not in whole
        assert "技术领域" not in whole.splitlines() and not re.search(r"\[\d{4}\]", whole)
        assert abs(len(words(row["text"], "zh")) - 512) <= 3, "jieba may see the snippet's ends otherwise"
        starts.add(whole.index(row["text"]))
    assert len(starts) > 8, "the snippets begin anywhere"


def test_patents_are_read_and_cleaned_by_hand():
    html = web.patent_page("装置", "2021-02-03", "2022-03-04", ["第一段的内容在这里。"])
    table = html[html.index("<table>") : html.index("</table>") + 8]
    for page in (html, html.replace("<article", f"{table}<article")):
        title, priority, published, _ = parse_patent(page)
        assert (title, priority, published) == ("装置", date(2021, 2, 3), date(2022, 3, 4))
    lines = ["技术领域", " [0001]  本发明涉及　一种用于 测试的装置。", "图1"]
    lines += ["【0002】2024年本发明涉及一种装置。", "本发明涉及 一种用于 测试的装置。"]
    assert clean_chinese("\n".join(lines)) == "本发明涉及 一种用于 测试的装置。\n2024年本发明涉及一种装置。"


def test_arxivmia_balances_each_category_over_days_of_many_pages(serve, tmp_path):
    arxiv = web.Arxiv(per_day=7)
    server = serve("arxiv", arxiv)
    out = construct.arxivmia(tmp_path / "out", fetcher(), DATES, 15, ["cs", "math"])
    rows = rows_of(out / "abstracts.jsonl")
    assert Counter((row["field"], row["label"]) for row in rows) == {(f, y): 15 for f in ("cs", "math") for y in (0, 1)}
    assert load_benchmark(out / "abstracts.jsonl").domains[0] == rows[0]["field"]
    for row in rows:
        day, i = date.fromisoformat(row["date"]), int(row["source"][-5:-2])
        assert DATES.holds(row["label"], day) and day.year >= 2007
        entry = f"Title: On {row['field']} {day} {i}\nAbstract: "
        assert row["text"] == entry + web.prose(f"{row['field']}{day}{i}", 80, web.OLD if row["label"] else web.NEW)
    # a day's seven entries come in three replies
    days = Counter(arxiv.asked)
    assert {n for (_, day), n in days.items() if day.weekday() != 6} == {3}
    assert all("start=0" in address or "start=3" in address or "start=6" in address for address in server.addresses)


def test_arxivmia_leaves_out_other_primary_categories_revised_members_and_malformed_entries(serve, tmp_path):
    arxiv = web.Arxiv(
        per_day=6,
        primary=lambda i, own: "math.AB" if i == 0 else own,
        updated=lambda i, own: "2018-01-01T00:00:00Z" if i == 1 and own < "2018" else own,
        summary=lambda i, own: "" if i == 2 else own,
    )
    serve("arxiv", arxiv)
    out = construct.arxivmia(tmp_path / "out", fetcher(), DATES, 12, ["cs"])
    names = left_out(out)
    assert {i for name in names["of another primary category"] for i in [name[-5:-2]]} == {"000"}
    assert {name[-5:-2] for name in names["a member revised since its date"]} == {"001"}
    assert {name[-5:-2] for name in names["malformed: no title, summary or primary_category"]} == {"002"}
    assert {row["source"][-5:-2] for row in rows_of(out / "abstracts.jsonl") if not row["label"]} >= {"001"}


def gutenberg(n=10):
    books = web.Gutenberg()
    for i in range(n):
        books.add(f"2010-01-{i + 1:02d}", web.book(f"old{i}"), title=f"Old, {i}")
        books.add(f"2025-02-{i + 1:02d}", web.book(f"new{i}", credits=""), title=f"New, {i}")
    return books


def test_dolmabook_holds_head_middle_and_tail_of_each_book(serve, tmp_path):
    books = gutenberg()
    books.add("2010-01-01", web.book("French"), language="fr")
    books.add("2010-01-01", web.book("Audio"), kind="Sound")
    books.add("2020-01-01", web.book("Between"))
    short = books.add("2010-01-01", web.book("Short", words=4000))
    bare = books.add("2010-01-01", web.prose("bare", 5000))
    open_ended = books.add("2010-01-01", web.book("open").partition("*** END")[0])
    absent = books.add("2010-01-01", "")
    undated = books.add("n/a", web.book("undated"))
    serve("gutenberg", books)
    with pytest.raises(ValueError) as caught:
        construct.dolmabook(tmp_path / "out", fetcher(), DATES, 11)
    assert "there are 10 members, 10 non-members" in str(caught.value)
    out = construct.dolmabook(tmp_path / "out", fetcher(), DATES, 10, seed=5)
    reasons = {
        f"book {short}": "shorter than 4096 words",
        f"book {bare}": "malformed: no START marker",
        f"book {open_ended}": "malformed: no END marker",
        f"book {absent}": "not there",
        f"book {undated}": "malformed: Invalid isoformat string: 'n/a'",
    }
    found = {name: reason for reason, names in left_out(out).items() for name in names}
    assert found and found.items() <= reasons.items()
    assert all(reason in str(caught.value) for reason in reasons.values())
    for n_words in (512, 1024):
        for place, own in (("head", [0]), ("middle", [None]), ("tail", [-2, -1])):
            rows = rows_of(out / f"{place}-{n_words}.jsonl")
            assert Counter(row["label"] for row in rows) == {0: 10 * len(own), 1: 10 * len(own)}
            for number, text in books.texts.items():
                address = f"https://www.gutenberg.org/ebooks/{number}"
                texts = [row["text"] for row in rows if row["source"] == address]
                if number <= 20:
                    snippets = split_into_snippets(strip_gutenberg(text), n_words)
                    assert texts == [snippets[len(snippets) // 2 if i is None else i] for i in own]
                else:
                    assert not texts
    assert rows[0]["title"] in [f"{side}, {i}" for side in ("Old", "New") for i in range(10)]


def test_what_is_taken_off_and_a_stream_is_read_until_both_are_full():
    text = strip_gutenberg(web.book("a", words=50))
    assert text.split() == web.prose("a", 50).split()
    old = "*** START OF THIS PROJECT GUTENBERG EBOOK A\nLONG TITLE ***\nText.\nEnd of Project Gutenberg's A\n"
    assert strip_gutenberg(f"{old}\n*** END OF THIS PROJECT GUTENBERG EBOOK A ***").split() == ["Text."]
    stream = iter([page(web.prose(str(i), 40), int(i < 3), source=str(i)) for i in range(6)])
    pages, dropped = construct.collect_pages([([(1, ""), (0, "")], stream)], 2)
    assert [p.source for p in pages] == ["0", "1", "3", "4"]
    assert dropped == {"more than the 2 members asked for": {"2": None}} and next(stream).source == "5"


def page(text, label=1, source=None):
    return WebPage("A title", date(2010, 1, 1), source or text[:20], label, {"all": (text,)})


def test_near_copies_and_equal_beginnings_are_left_out_and_counted():
    first, other = web.prose("first", 100), web.prose("other", 100)
    # 94 7-grams; the first 24 words hold 18 of them, the first 25 hold 19, which is over a fifth
    below, above = (f"{' '.join(first.split()[:n])} {web.prose(f'rest{n}', 100 - n)}" for n in (24, 25))
    stream = [page(first), page(first.upper().replace(" ", "\n"), source="b"), page(above, source="c"), page(below)]
    non_members = [
        page(first, 0, source="d"),
        page(other, 0),
        LeftOut("e", "no reason"),
        page(web.prose("last", 50), 0),
    ]
    pages, dropped = construct.collect_pages([([(1, "")], iter(stream)), ([(0, "")], iter(non_members))], 2)
    assert [p.texts["all"][0] for p in pages] == [first, below, other, web.prose("last", 50)]
    assert {reason: list(names) for reason, names in dropped.items()} == {
        "the same text as an earlier page's": ["b", "d"],
        "a near-duplicate of earlier pages": ["c"],
        "no reason": ["e"],
    }
    # A file of short texts would hold one text with two labels, which `load_benchmark` refuses.
    begin = web.prose("begin", 8)
    texts = [{"8": (begin,), "200": (f"{begin} {web.prose(str(i), 192)}",)} for i in range(2)]
    pages = [
        WebPage("t", date(2010, 1, 1), str(i), 1, text) for i, text in enumerate([*texts, {"8": ("other words",)}])
    ]
    kept, dropped = construct.collect_pages([([(1, "")], iter(pages))], 2)
    assert [p.source for p in kept] == ["0", "2"] and list(dropped) == ["the same text as an earlier page's"]


def test_one_seed_gives_one_benchmark_in_any_order_and_a_rerun_fetches_nothing(serve, tmp_path, monkeypatch):
    wiki = web.wikipedia(20, 20)
    server = serve("wikipedia", wiki)
    first = contents(construct.wikimia(tmp_path / "a", fetcher(), DATES, 10, seed=1))
    n_requests = len(server.requests)
    assert contents(construct.wikimia(tmp_path / "b", fetcher(), DATES, 10, seed=1)) == first
    assert len(server.requests) == n_requests == len(set(server.addresses))
    other = contents(construct.wikimia(tmp_path / "c", fetcher(), DATES, 10, seed=2))
    assert other["64.jsonl"] != first["64.jsonl"]

    def built(folder, reverse):
        monkeypatch.setenv("MIALIB_HOME", str(tmp_path / f"home of {folder}"))
        wiki = web.wikipedia(20, 20)
        for members in wiki.members.values():
            members.sort(key=lambda member: member["title"], reverse=reverse)
        serve("wikipedia", wiki)
        return (construct.wikimia(tmp_path / folder, fetcher(), DATES, 10) / "64.jsonl").read_bytes()

    assert built("a", False) == built("b", True)


def test_the_blind_baseline_of_one_kind_of_text_is_near_chance_and_judges_tails_as_one():
    pages = [page(web.prose(f"text {i}", 60), i % 2, source=str(i)) for i in range(200)]
    interval = construct.blind_interval(pages, "all", seed=0)
    assert interval.low < 0.5 < interval.high and interval.high - interval.low > 0.15
    assert construct.blind_interval(pages[:18], "all", seed=0) is None
    # Both tails of a book share its own words: apart, one in each half would give the other's label away.
    own = [" ".join(f"book{i}word{j}" for j in range(30)) for i in range(60)]
    tails = [tuple(f"{words_of} {web.prose(f'{i} {end}', 30)}" for end in "ab") for i, words_of in enumerate(own)]
    pages = [WebPage("t", date(2010, 1, 1), str(i), i % 2, {"tail": texts}) for i, texts in enumerate(tails)]
    interval = construct.blind_interval(pages, "tail", seed=0)
    assert interval.low <= 0.5 <= interval.high


def gaps(server):
    """Seconds from each reply to the next request."""
    times = server.requests
    return [after[0] - before[1] for before, after in pairwise(times)]


def test_requests_are_apart_and_say_who_asks(serve):
    server = serve("gutenberg", lambda path, query: path)
    client = fetcher(0.15)
    assert [client.get("gutenberg", f"/{i}") for i in (1, 2, 3, 1)] == ["/1", "/2", "/3", "/1"]
    assert len(server.requests) == 3 and min(gaps(server)) >= 0.15
    assert all("tests@example.org" in agent for *_, agent in server.requests)
    assert fetch.SERVICES["arxiv"].gap_seconds == 3 and min(s.gap_seconds for s in fetch.SERVICES.values()) == 1


BY_DATE = ["--members-before", "2017-01-01", "--non-members-after", "2025-01-01", "--texts", "10", "--gap-seconds", "0"]


def run(*arguments):
    found = CliRunner().invoke(app, ["construct", *map(str, arguments), *BY_DATE], env={"MIALIB_CONTACT": "a@b.org"})
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def test_each_builder_on_the_command_line(serve, tmp_path, patents):
    serve("wikipedia", web.wikipedia(10, 10))
    serve("arxiv", web.Arxiv())
    serve("gutenberg", gutenberg())
    serve("patents", web.Patents(patents))
    assert "64.jsonl" in run("wikimia", tmp_path / "w", "--length", 64)
    assert {p.name for p in (tmp_path / "w").glob("*.jsonl")} == {"64.jsonl"}
    run("arxivmia", tmp_path / "a", "--category", "cs", "--category", "math")
    run("dolmabook", tmp_path / "d", "--seed", 1)
    (tmp_path / "numbers.txt").write_text("\n".join(patents))
    command = ["construct", "patentmia", str(tmp_path / "p"), "--publications", str(tmp_path / "numbers.txt")]
    command += ["--members-before", "2023-01-01", "--non-members-after", "2024-03-01", "--texts", "8"]
    assert CliRunner().invoke(app, [*command, "--contact", "a@b.org", "--gap-seconds", "0"]).exit_code == 0
    sizes = {p: len(load_benchmark(p)) for p in tmp_path.glob("[wadp]/*.jsonl")}
    assert sorted(sizes.values()) == [16, 20, 20, 20, 20, 20, 40, 40, 40]


BEFORE = date(2023, 2, 1)
LICENCE = "Metadata-Version: 2.4\nLicense-Expression: BSD-3-Clause\n"


def module(*texts):
    """A module that must not be imported, with functions of these docstrings."""
    functions = [f'def f{i}():\n    """{text}"""\n' for i, text in enumerate(texts)]
    return "\n".join(['raise RuntimeError("imported")', *functions])


def docs(side, package, n=12):
    return [web.prose(f"{side} {package} {i}", 80) for i in range(n)]


@pytest.fixture
def index():
    """`river`, whose old release is an sdist and whose import name is `mill`, and `stone`, each with 12 of a side."""
    index, old, new = web.Index(), docs("old", "river"), docs("new", "river")
    changed, near = (f"{text[:200]} {web.prose(text, 40)}" for text in (old[0], new[0]))
    files = {
        "src/mill/a.py": module(*old, "Too short."),
        "PKG-INFO": LICENCE,
        "src/mill/tests/test_a.py": module(new[1]),
    }
    index.add("river", "river-1.0.tar.gz", "2022-05-05", files)
    lost = docs("old", "stone")[11]  # no longer in `stone`
    files = {"mill/b.py": module(*old, *new, changed, near, lost, "Too short."), "mill/c.py": "print '2'"}
    index.add("river", "river-2.0-py3-none-any.whl", "2025-05-05", files | {"river-2.0.dist-info/METADATA": LICENCE})
    for name, more in {
        "river-1.1.tar.gz": {"upload-time": "2023-02-01T00:00:00Z"},
        "river-2.0-cp311-cp311-win32.whl": {},
        "river-2.0.tar.gz": {},
        "river-2.1-py3-none-any.whl": {"yanked": "broken"},
        "river-3.0rc1-py3-none-any.whl": {},
        "river-4.0.win32.exe": {},
    }.items():
        index.add("river", name, "2025-05-05", {"a.py": "an archive that must not be read"}, **more)
    index.add("stone", "stone-1-py3-none-any.whl", "2022-06-06", {"stone.py": module(*docs("old", "stone"))})
    new = [*docs("old", "stone", 11), *docs("new", "stone", 20)]
    index.add("stone", "stone-2-cp311-cp311-win32.whl", "2025-06-06", {"stone.py": module(*new)})
    return index


def test_docstrings_that_stand_since_a_date_against_new_ones_balanced_by_package(serve, index, tmp_path):
    server = serve("pypi", index)
    out = construct.docstrings(tmp_path / "out", fetcher(), BEFORE, ["River", "stone", "river"])
    assert {Path(address).name for address in server.addresses} == {
        *("river", "river-1.0.tar.gz", "river-2.0-py3-none-any.whl"),
        *("stone", "stone-1-py3-none-any.whl", "stone-2-cp311-cp311-win32.whl"),
    }
    rows = rows_of(out / "docstrings-64.jsonl")
    counts = {("river", 1): 12, ("river", 0): 12, ("stone", 1): 11, ("stone", 0): 11}
    assert Counter((row["field"], row["label"]) for row in rows) == counts
    olds = {" ".join(text.split()[:64]) for package in ("river", "stone") for text in docs("old", package)}
    assert all((row["text"] in olds) == row["label"] for row in rows)
    assert {row["date"] for row in rows if row["field"] == "river" and row["label"]} == {"2022-05-05"}
    assert {row["source"] for row in rows} >= {f"river-2.0/mill/b.py:f{i}" for i in range(12)}
    names = left_out(out)
    [(near, *rest)] = [names.pop("a near-duplicate of earlier pages")]
    assert near in ("river-2.0/mill/b.py:f12", "river-2.0/mill/b.py:f25") and not rest
    assert len(names.pop("docstrings-64.jsonl alone: more of this class than of the other")) == 9
    assert {reason: sorted(of) for reason, of in names.items()} == {
        "a file that this Python cannot parse": ["river-2.0-py3-none-any.whl/mill/c.py"],
        "neither unchanged nor new since the old releases": [f"river-2.0/mill/b.py:f{i}" for i in (24, 26)],
        "shorter than 64 words": ["river-2.0/mill/b.py:f27"],
    }
    card = (out / "README.md").read_text()
    assert all(file["hashes"]["sha256"] in card for file in index.packages["river"][:2]) and "BSD-3-Clause" in card
    assert not {"mill", "stone"} & set(sys.modules)
    # a rerun asks the index for new releases, and fetches no archive
    n_requests = len(server.requests)
    again = construct.docstrings(tmp_path / "again", fetcher(), BEFORE, ["river", "stone"])
    assert len(server.requests) == n_requests + 2 and contents(again) == contents(out)


def test_pairs_are_two_versions_of_one_docstring_rewritten_within_a_fifth_of_its_length(serve, tmp_path):
    old, other = docs("old", "river", 8), docs("new", "river", 8)
    index, kept = web.Index(), old[1].split()
    less_changed = " ".join([*kept[:40], *other[1].split()[40:]])
    new = [other[0], less_changed, f"{other[2]} {other[3]}", old[3], old[5], old[4], "Too short."]
    twice = 'def g():\n    """{}"""\n' * 2
    for number, (texts, moved) in enumerate([(old, "a.py"), ([*new, other[7]], "b.py")], start=1):
        files = {
            "mill/m.py": module(*texts),
            f"mill/{moved}": module(*texts[:1]),
            "mill/t.py": twice.format(*texts[:2]),
        }
        index.add("river", f"river-{number}-py3-none-any.whl", f"202{number}-05-05", files)
    serve("pypi", index)
    out = construct.docstrings(tmp_path / "out", fetcher(), date(2022, 1, 1), ["river"], pairs=True)
    rows = sorted(rows_of(out / "docstrings-64.jsonl"), key=lambda row: (row["source"], -row["label"]))
    expected = [(i, label, side[i]) for i in (0, 7) for label, side in ((1, old), (0, other))]
    assert [(row["source"], row["label"], row["text"]) for row in rows] == [
        (f"river/mill/m.py:f{i}", label, " ".join(text.split()[:64])) for i, label, text in expected
    ]
    assert [row["date"] for row in rows] == ["2021-05-05", "2022-05-05"] * 2
    assert {reason: sorted(names) for reason, names in left_out(out).items()} == {
        "a name that is defined twice": ["river/mill/t.py:g"],
        "new, or at another place in the old release": ["river/mill/b.py:f0"],
        "unchanged, or what another docstring was": [f"river/mill/m.py:f{i}" for i in (3, 4, 5)],
        "shorter than 64 words, or less changed": [f"river/mill/m.py:f{i}" for i in (1, 2, 6)],
    }


@pytest.mark.parametrize(
    ("old", "new", "distance"),
    [("a b c", "a b c", 0), ("a b c", "x a b c", 1), ("a b c d", "b c d a", 2), ("a b", "c d e", 3), ("", "a", 1)],
)
def test_words_are_added_removed_or_replaced(old, new, distance):
    assert releases.edit_distance(old.split(), new.split()) == distance


def test_docstrings_have_the_day_of_their_first_release_by_quarter(serve, tmp_path):
    texts, index = [web.prose(f"text {i}", 80) for i in range(9)], web.Index()
    near = f"{texts[0][:300]} {web.prose('near', 40)}"
    days = ["2018-12-31", "2019-02-01", "2019-03-30", "2019-07-01", "2019-07-02"]
    held = [texts[:2], texts[:3], texts[:4], [texts[8], *texts[:6]], [*texts[:8], near]]
    for number, (day, some) in enumerate(zip(days, held, strict=True)):
        index.add("river", f"river-{number}-py3-none-any.whl", day, {"mill.py": module(*some)})
    server = serve("pypi", index)
    since = {"since": date(2019, 1, 15)}
    out = construct.docstrings(tmp_path / "out", fetcher(), date(2019, 5, 1), ["river"], **since)
    read = {Path(address).name[6] for address in server.addresses if address.endswith(".whl")}
    assert read == set("024"), "the last release of each quarter"
    found = {row["text"]: (row["date"], row["label"]) for row in rows_of(out / "docstrings-64.jsonl")}
    third, first = ("2019-03-30", 1), ("2019-07-02", 0)
    assert found == {" ".join(texts[i].split()[:64]): third if i < 4 else first for i in range(2, 8)}
    assert len(left_out(out)["in the first release that was read"]) == 2
    few = construct.docstrings(tmp_path / "few", fetcher(), date(2019, 5, 1), ["river"], 1, **since)
    assert sorted(row["date"] for row in rows_of(few / "docstrings-64.jsonl")) == ["2019-03-30", "2019-07-02"]
    with pytest.raises(ValueError, match="2999-01-15 is after today"):
        construct.docstrings(tmp_path / "late", fetcher(), BEFORE, ["river"], since=date(2999, 1, 15))
    with pytest.raises(ValueError, match="--pairs or --since"):
        construct.docstrings(tmp_path / "both", fetcher(), BEFORE, ["river"], pairs=True, **since)
