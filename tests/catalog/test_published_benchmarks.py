"""The papers' benchmarks by name, in the layouts that the hub and people's copies have them in."""

import warnings

import published_data
import pytest
from hub_clients import pin
from published_data import rows, write_jsonl

from mialib.catalog.benchmarks import find_part, is_published, load_benchmark
from mialib.catalog.hub import Unavailable
from mialib.catalog.registry import known_benchmarks
from mialib.text import count_words
from replication.builders.unseen import load_unseen

WIKIMIA, ARXIV, MIMIR = "swj0419/WikiMIA", "zhliu/ArxivMIA", "iamgroot42/mimir"


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """The folder of $MIALIB_BENCHMARKS."""
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(tmp_path / "copies"))
    return tmp_path / "copies"


@pytest.mark.parametrize(
    ("name", "length", "full"),
    [
        ("wikimia-64", None, "wikimia-64"),
        ("wikimia", 32, "wikimia-32"),
        ("mimir", None, "mimir/wikipedia_(en)/ngram_7_0.2"),
        ("mimir/github/ngram_13_0.8", None, "mimir/github/ngram_13_0.8"),
        ("dolma_book-512", None, "dolma_book/head-512"),
        ("wikimia_24-64", None, "wikimia_24-64"),
        ("olmo_mia/hard", None, "olmo_mia/hard"),
    ],
)
def test_a_name_is_filled_in_with_the_defaults(name, length, full):
    assert is_published(name) and find_part(name, length).name == full
    assert not any(map(is_published, ("wiki-64", "wikimia64", "mimirs/github", "texts.jsonl")))


def test_a_file_is_cut_to_the_length_asked_for(tmp_path):
    whole = [{"text": "one two three", "label": 1}, {"text": "four five six", "label": 0}]
    write_jsonl(path := tmp_path / "b.jsonl", whole)
    assert load_benchmark(path, length=2).texts == ("one two", "four five")
    text = "我来到北京清华大学，这条河流经三个村庄。"
    chinese = [{"text": text, "label": 1}, {"text": text[1:], "label": 0}]
    write_jsonl(path, chinese)
    assert load_benchmark(path, length=2, language="zh").texts == ("我来到", "来到北京")


def test_each_layout_of_the_hub_is_read(at_hub, tmp_path):
    data = {
        WIKIMIA: published_data.wikimia(tmp_path / "w"),
        ARXIV: published_data.arxiv_mia(tmp_path / "a"),
        MIMIR: published_data.mimir(tmp_path / "m"),
    }
    with at_hub(datasets=data) as served:
        wikimia, arxiv, mimir = map(load_benchmark, ("wikimia-64", "arxiv_mia", "mimir"))
        revisions = [served.commit(name) for name in data]
        wanted = {r.path.rsplit("/", 1)[1] for r in served.asked(MIMIR, "HEAD")}
    assert [bench.revision for bench in (wikimia, arxiv, mimir)] == revisions
    assert wikimia.texts[0].startswith("The river 64 number 0") and wikimia.labels.tolist() == [0, 1] * 4
    # ArxivMIA's development set is what hyperparameters are chosen on.
    assert arxiv.validation == (0, 1, 2, 3) and arxiv.texts[3].startswith("The dev") and arxiv.domains == ("cs",) * 12
    assert arxiv.texts[4].startswith("The test") and arxiv.labels.tolist() == [0, 1] * 6
    # A file of members, then one of non-members; a line separator in a text does not end it.
    assert mimir.labels.tolist() == [1] * 4 + [0] * 4
    assert mimir.texts[0] == "The stone 0\u2028of wikipedia_(en)_ngram_7_0.2" and mimir.texts[4].startswith(
        "The garden 0"
    )
    assert {name.replace("%28", "(").replace("%29", ")") for name in wanted} == {"wikipedia_(en)_ngram_7_0.2.jsonl"}


def test_offline_another_prepared_commit_is_not_taken_for_the_wanted_one(at_hub, tmp_path):
    folder = published_data.wikimia(tmp_path / "w")
    commits = []
    for word in ("river", "stone"):
        published_data.wikimia(folder, word)
        with at_hub(datasets={WIKIMIA: folder}) as served:
            commits.append(served.commit(WIKIMIA))
            assert word in load_benchmark("wikimia-32").texts[0]
    with at_hub(datasets={}) as served:
        served.close()
        for commit, word in zip(commits, ("river", "stone"), strict=True):
            pin({"dataset": {WIKIMIA: commit}})
            try:
                assert word in load_benchmark("wikimia-32").texts[0]
            except Unavailable as error:
                assert "holds commit" in str(error) and commit in str(error) and commit == commits[0]


def test_a_copy_in_the_hubs_layout_is_read_without_the_hub(copies):
    published_data.wikimia(copies / WIKIMIA)
    published_data.arxiv_mia(copies / ARXIV)
    published_data.mimir(copies / MIMIR)
    assert load_benchmark("wikimia-64").texts[0].startswith("The river 64")
    published_data.wikimia(copies / WIKIMIA, "stone")
    assert load_benchmark("wikimia-64").texts[0].startswith("The stone"), "as it is now, not as it was first prepared"
    assert load_benchmark("arxiv_mia").validation == (0, 1, 2, 3)
    mimir = load_benchmark("mimir/github")
    assert mimir.labels.tolist() == [1] * 4 + [0] * 4 and mimir.texts[0].endswith("of github_ngram_7_0.2")


def test_copies_win_over_the_hub_the_registrys_files_first_and_go_by_their_content(at_hub, tmp_path, copies):
    with at_hub(datasets={WIKIMIA: published_data.wikimia(tmp_path / "w")}) as served:
        published_data.wikimia(copies / WIKIMIA, "stone")
        in_layout = load_benchmark("wikimia-32")
        assert in_layout.texts[0].startswith("The stone") and served.requests == []
        write_jsonl(copies / "wikimia" / "32.jsonl", rows("garden", text="input"))
        local = load_benchmark("wikimia-32")
        assert local.texts[0].startswith("The garden") and load_benchmark("wikimia-64").texts[0].startswith("The stone")
        assert served.requests == []
    write_jsonl(copies / "wikimia" / "32.jsonl", rows("garden", text="input"))
    assert load_benchmark("wikimia-32").revision == local.revision != in_layout.revision
    write_jsonl(copies / "wikimia" / "32.jsonl", rows("letter", text="input"))
    assert load_benchmark("wikimia-32").revision != local.revision


def test_every_benchmark_with_local_files_is_read_from_them(copies):
    for name, known in known_benchmarks().items():
        if not known.local:
            continue
        part = find_part(f"{name}-{known.lengths[0]}" if known.lengths else name)
        extra = dict.fromkeys(known.columns[2:], "cs")
        for path in known.local:
            of_file = rows(path, text=known.columns[0], **extra)
            if "duplicates" in known.columns:  # how often each was inserted, and no label
                of_file = [{"text": row["text"], "duplicates": 4 * row["label"]} for row in of_file]
            write_jsonl(copies / part.fill(path), of_file)
        bench = load_benchmark(part.name)
        assert len(bench) == 8 * len(known.local) and bench.language == known.language
        assert len(bench.revision) == 16
        assert len(bench.validation) == (8 if name == "arxiv_mia" else 0)


def test_unseen_texts_come_with_arxiv_mia(copies):
    write_jsonl(copies / "arxiv_mia" / "arxiv_mia_dev.jsonl", rows("dev", field="cs"))
    write_jsonl(copies / "arxiv_mia" / "arxiv_mia_test.jsonl", rows("test", field="cs"))
    like = load_benchmark("arxiv_mia")
    with pytest.raises(Unavailable, match="arxiv_mia_train_real"):
        load_unseen("arxiv_mia", like, 2)
    write_jsonl(copies / "arxiv_mia" / "arxiv_mia_train_real.jsonl", [{"text": f"new text {i}"} for i in range(4)])
    assert len(load_unseen("arxiv_mia", like, 4)) == 4
    with pytest.raises(Unavailable, match="bookmia"):
        load_unseen("bookmia", like, 2)


@pytest.mark.parametrize(("length", "n_texts"), [(32, 776), (64, 542), (128, 250), (256, 82)])
def test_wikimia_has_as_many_texts_as_its_paper_says(length, n_texts, published_copy):
    bench = load_benchmark("wikimia", length=length)
    assert len(bench) == n_texts
    assert set(bench.labels.tolist()) == {0, 1}
    assert bench.name == f"wikimia-{length}"
    assert max(map(count_words, bench.texts)) == length


def test_arxiv_mia_loads_and_can_be_cut(published_copy):
    bench = load_benchmark("arxiv_mia")
    assert len(bench) == 2000 and bench.labels.sum() == 1000
    assert [bench.domains.count(field) for field in ("cs", "math")] == [800, 1200]
    assert len(bench.validation) == 400, "the published split is 2:8"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert max(map(count_words, load_benchmark("arxiv_mia", length=64).texts)) == 64
