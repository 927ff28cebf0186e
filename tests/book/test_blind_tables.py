"""Blind baselines beside the detectors: marked where they do better, in words too, recorded where texts are lacking."""

import json

import numpy as np
import pytest
from conftest import quick_baselines
from typer.testing import CliRunner

from mialib.benchmarks import Benchmark
from mialib.blind import BLIND
from mialib.bootstrap import at_level
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.hub import Unavailable
from mialib.metrics import Interval
from mialib.passes import leaks
from mialib.versions import VERSIONS
from replication import blind_tables, pages
from replication.commands import app
from replication.published import best_printed, load_published
from replication.results import Result, load_results

WORDS = [f"word{i}" for i in range(60)]


@pytest.fixture(scope="module")
def home_of_this_file(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def mialib_home(home_of_this_file, monkeypatch):
    """One for all of this file's tests: its few benchmarks are fitted once."""
    monkeypatch.setenv("MIALIB_HOME", str(home_of_this_file))


def texts_of(words, n, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, 30)) for _ in range(n)]


def benchmark(first, second, n=40, name="b", domains=()):
    texts = (*texts_of(first, n, 0), *texts_of(second, n, 1))
    return Benchmark(name, texts, np.repeat([1, 0], n), f"{name} {n}", domains=domains)


def detected(auc, column="b", metric="auc"):
    return Result.of(row="Zlib", column=column, metric=metric, interval=Interval(auc, auc - 0.1, auc + 0.1))


@pytest.fixture
def few_baselines():
    """Without the two that take as long as all others, and find what tf-idf finds."""
    with quick_baselines("naive_bayes", "formatting"):
        yield


few = pytest.mark.usefixtures("few_baselines")
FAIR, LEAKING = benchmark(WORDS, WORDS, name="fair"), benchmark(WORDS[:40], WORDS[20:], name="leaking")


@few
def test_every_baseline_stands_in_the_column_of_its_benchmark_in_the_metrics_of_its_detectors():
    found = [detected(0.7, "fair"), detected(0.6, "leaking"), detected(0.2, "leaking", "tpr_at_5_fpr")]
    baselines = blind_tables.baseline_results(found, {"fair": FAIR, "leaking": LEAKING})
    assert {str(r) for r in baselines if r.row == "Blind: latest year"} == {"all alike"}, "no text mentions a year"
    rows = [f"Blind: {known.label}" for known in BLIND.values()]
    assert [r.row for r in baselines if r.column == "fair"] == rows
    assert [(r.row, r.metric) for r in baselines if r.column == "leaking"] == [
        (row, metric) for metric in ("auc", "tpr_at_5_fpr") for row in rows
    ]


@few
def test_a_baseline_is_marked_where_it_surely_beats_the_best_detector():
    found = [detected(0.8, "fair"), detected(0.5, "fair"), detected(0.8, "leaking")]
    baselines = blind_tables.baseline_results(found, {"fair": FAIR, "leaking": LEAKING})
    for result in baselines:
        assert (result.marker == "†") == (result.ours is not None and result.ours > 0.8)
    assert {r.column for r in baselines if r.marker} == {"leaking"}
    baselines = blind_tables.baseline_results([detected(0.1, "fair")], {"fair": FAIR})
    assert any(r.ours is not None and r.ours > 0.1 for r in baselines)
    sure = {r.row: r.ours is not None and at_level(r.interval, 0.99).low > 0.5 for r in baselines}  # one of five
    assert {r.row: r.marker == "†" for r in baselines} == sure


@few
def test_a_benchmark_that_leaks_is_named():
    found = [detected(1.0, "fair"), detected(1.0, "leaking")]
    said = blind_tables.summarize(found, blind_tables.baseline_results(found, {"fair": FAIR, "leaking": LEAKING}))
    assert "In no column" in said and "1 of 2 columns" in said and "`fair`" not in said
    assert "- `leaking`: " in said and "Zlib 1.000" in said


@pytest.fixture
def leaking_file(tmp_path):
    path = tmp_path / "leaking.jsonl"
    rows = zip(LEAKING.texts, LEAKING.labels.tolist(), ["a", "b"] * 40, strict=True)
    path.write_text("".join(json.dumps({"text": t, "label": y, "domain": d}) + "\n" for t, y, d in rows))
    with quick_baselines(*BLIND.keys() - {"tfidf", "length"}):
        yield path


def dated_file(path, years_of_members, years_of_others, n=40):
    rng = np.random.default_rng(0)
    rows = [
        {"text": f"{' '.join(rng.choice(WORDS, 10))} in {rng.integers(*years)} {i}", "label": label}
        for i in range(n)
        for label, years in ((1, years_of_members), (0, years_of_others))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.usefixtures("cheap_baselines")
def test_a_page_says_of_each_benchmark_whether_it_leaks(tmp_path, monkeypatch):
    older = dated_file(tmp_path / "older.jsonl", (1980, 2010), (2015, 2024))
    mixed = dated_file(tmp_path / "mixed.jsonl", (1980, 2024), (1980, 2024))
    few = dated_file(tmp_path / "few.jsonl", (1980, 2010), (2015, 2024), n=4)
    leaks, does_not, unknown = pages.leak_note(f"{older}, {mixed}, {older}, {few}").data.split("\n")
    year = blind_tables.measure_blind(load_benchmark(older), older, ["auc"], kinds=["year"])[0].interval
    assert older in leaks and "leaks" in leaks and "latest year" in leaks and str(year) in leaks and year.low > 0.5
    assert mixed in does_not and f"({len(BLIND)} tried)" in does_not
    assert few in unknown and "too few texts" in unknown
    with monkeypatch.context() as patch:
        patch.setattr("mialib.blind.blind_scores", None)
        assert pages.leak_note([older]).data == leaks, "computed once"


def test_a_page_says_how_many_texts_of_a_benchmark_are_copies(tmp_path):
    once = dated_file(tmp_path / "once.jsonl", (1980, 2024), (1980, 2024), n=4)
    (tmp_path / "twice.jsonl").write_text(2 * (tmp_path / "once.jsonl").read_text())
    with pytest.warns(UserWarning, match="8 of its 16 texts"):
        said = blind_tables.leak_text([once, str(tmp_path / "twice.jsonl")]).split("\n")
    assert "repeat" not in said[0] and "Of its 16 texts 8 repeat" in said[1]


def test_a_benchmark_with_domains_is_measured_by_domain_and_printed_a_row_a_baseline(leaking_file):
    results, source = blind_tables.measure_parts(str(leaking_file))
    assert list(dict.fromkeys(r.column for r in results)) == [f"{leaking_file}{d}" for d in ("", ", a", ", b")]
    whole = {r.row: r.ours for r in results if r.column == str(leaking_file) and r.metric == "auc"}
    assert whole == {r.row: r.ours for r in blind_tables.measure_blind(load_benchmark(str(leaking_file)), "b", ["auc"])}
    assert (source["members"], source["non_members"]) == (40, 40)
    ran = CliRunner().invoke(app, ["blind", str(leaking_file)])
    assert ran.exit_code == 0, ran.output
    tfidf = next(line for line in ran.output.splitlines() if line.startswith("tf-idf"))
    [result] = [r for r in blind_tables.measure_blind(LEAKING, "b", ["auc"], kinds=["tfidf"])]
    assert str(result) in tfidf and "TPR at 5% FPR" in ran.output
    sides = [line.partition(":") for line in ran.output.splitlines()[-2:]]
    assert [side for side, *_ in sides] == ["members", "non-members"]
    for (_, _, said), words in zip(sides, (WORDS[:20], WORDS[40:]), strict=True):
        assert len(set(said.strip().split(", ")) & set(words)) >= 10, "words that the other side does not have"


def test_what_can_not_be_had_is_shown_as_recorded_and_the_page_says_so(leaking_file, monkeypatch, tmp_path):
    recorded = tmp_path / "blind.json"
    monkeypatch.setattr(blind_tables, "RECORDED", recorded)
    monkeypatch.setattr(blind_tables, "RECORD_WORDS", [str(leaking_file)])
    measured, sources = blind_tables.measure_or_recorded([str(leaking_file)])
    assert [s["how"] for s in sources] == ["measured here"]
    blind_tables.record_baselines([str(leaking_file)], recorded)
    assert load_results(recorded) == measured
    other = tmp_path / "other.jsonl"
    other.write_bytes(leaking_file.read_bytes())
    blind_tables.record_baselines([str(other)], recorded)
    assert [r for r in load_results(recorded) if r.column.startswith(str(leaking_file))] == measured, "others stay"

    def gone(name):
        raise Unavailable(f"{name} is gone")

    monkeypatch.setattr(blind_tables, "load_benchmark", gone)
    kept, sources = blind_tables.measure_or_recorded([str(leaking_file), "other"])
    assert kept == measured and [s["how"] for s in sources] == ["recorded", "not to be had here"]
    [words] = blind_tables.words_or_recorded([str(leaking_file), "other"]).values()
    assert set(words["members"]) & set(WORDS[:20]) and set(words["non-members"]) & set(WORDS[40:])
    monkeypatch.setitem(VERSIONS, "blind", 0)
    assert blind_tables.measure_or_recorded([str(leaking_file)])[1][0]["how"] == "recorded by another version"


def test_the_best_printed_number_and_a_widened_interval():
    published = load_published("surp", "table-1")
    cells = published[published["column"].str.startswith("WikiMIA-32 /")]
    assert best_printed("wikimia-32").auc == max(cells["value"].max(), 0.868)
    assert str(best_printed("arxiv_mia, cs")) == "0.673 (Probe w. Synthetic Data, OpenLLaMA-13B; probe)"
    assert best_printed("gutenberg") is None
    assert leaks.widen(Interval(0.5, 0.4, 0.6), n_folds=2) == Interval(
        0.5, pytest.approx(0.5 - 0.1 * 3**0.5), pytest.approx(0.5 + 0.1 * 3**0.5)
    )
    assert leaks.widen(Interval(0.99, 0.98, 1.0)).high == 1.0


@pytest.mark.slow
def test_the_papers_benchmarks_leak_as_recorded(published_copy):
    """The issue's floors: WikiMIA 32 / 64 / 128 / 256 and ArxivMIA's computer science."""
    results, _ = blind_tables.measure_or_recorded(blind_tables.RECORD)
    measured = [r for r in results if r.metric == "auc" and r.ours is not None]  # Gutenberg's texts are all of a length
    best = {name: max(r.ours for r in measured if r.column == name) for name in {r.column for r in measured}}
    floors = {"wikimia-32": 0.97, "wikimia-64": 0.97, "wikimia-128": 0.94, "wikimia-256": 0.88, "arxiv_mia, cs": 0.673}
    assert {name: best[name] >= floor for name, floor in floors.items()} == dict.fromkeys(floors, True)
    recorded = {(r.row, r.column, r.metric): r.ours for r in load_results(blind_tables.RECORDED)}
    assert {(r.row, r.column, r.metric): r.ours for r in results} == pytest.approx(recorded, abs=0.005)
