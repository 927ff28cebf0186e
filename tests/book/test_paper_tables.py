"""The papers' tables: two tiny models under the papers' names and two benchmarks as the hub holds them."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial

import datasets
import numpy as np
import pytest
import yaml
from clones import python_path
from conftest import FAMILIES, SENTENCES, make_tokenizer, save_tiny_model
from page_code import functions_of

from mialib.blind import BLIND
from mialib.bootstrap import document_auc_interval
from mialib.catalog.hub import Unavailable
from mialib.detectors import detect
from mialib.metrics import auc, auc_interval
from mialib.model_selection import HELD_OUT, stratified_split
from mialib.passes.cache import score_or_load
from mialib.store import DATA, ROOT
from replication.pipeline import report
from replication.profile import load_profile
from replication.published import published_along
from replication.results import BLIND_PREFIX, Result, load_results
from replication.studies import paper_tables
from replication.studies.paper_tables import Column
from replication.tables import literal

pytestmark = pytest.mark.usefixtures("home_of_all_pages", "cheap_baselines")
LARGE, SMALL = "EleutherAI/pythia-2.8b", "EleutherAI/pythia-70m"
TABLES_2_3 = {"auc": "table-2", "tpr_at_5_fpr": "table-3"}


def save_texts(path, texts_of):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in texts_of), encoding="utf-8")


def texts(label, n=24):
    nouns, place = ["river", "stone", "garden", "window", "letter", "market"], ("near", "behind")[label]
    return [f"The {nouns[i % 6]} number {i} stands {place} the old Mill and runs {i} times" for i in range(n)]


TEXTS, LABELS = texts(1) + texts(0), np.repeat([1, 0], 24)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Local copies in the hub's layout: two models, WikiMIA's split of 32 words, and a domain of MIMIR."""
    folder = tmp_path_factory.mktemp("copies")
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|endoftext|>"]})
    settings = FAMILIES["gpt_neox"] | {"max_position_embeddings": 512}
    for seed, name in enumerate((LARGE, SMALL)):
        save_tiny_model(folder / "models" / name, tokenizer=tokenizer, seed=seed, **settings)
    rows = [{"input": text, "label": label} for text, label in zip(TEXTS, LABELS.tolist(), strict=True)]
    wikimia = folder / "data" / "swj0419" / "WikiMIA"
    save_texts(wikimia / "short.jsonl", rows)
    default = {"config_name": "default", "data_files": [{"split": "WikiMIA_length32", "path": "short.jsonl"}]}
    (wikimia / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': [default]})}---\n")
    for role, label in (("train", 1), ("test", 0)):
        path = folder / "data" / "iamgroot42" / "mimir" / "cache_100_200_1000_512" / role / "github_ngram_7_0.2.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(f"{text} in code") + "\n" for text in texts(label)))
    (folder / "corpus.txt").write_text("\n".join(SENTENCES * 20))
    return folder


@pytest.fixture(autouse=True)
def local(copies, monkeypatch):
    monkeypatch.setenv("MIALIB_MODELS", str(copies / "models"))
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(copies / "data"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", copies / "prepared")  # and not a person's, from elsewhere


def by_row(measured, metric="auc"):
    return {result.row: result for result in measured.results if result.metric == metric}


def test_a_column_holds_each_detectors_own_number_beside_the_printed_one(copies):
    column = Column(model=LARGE, benchmark="wikimia-32", reference=SMALL, corpus=str(copies / "corpus.txt"))
    measured = paper_tables.measure_column("dc-pdd", TABLES_2_3, "WikiMIA / Pythia-6.9B", column)
    assert measured.notes == [] and measured.unavailable == ""
    printed = published_along("dc-pdd", "table-2", "WikiMIA / Pythia-6.9B", "auc")
    found = by_row(measured)
    assert {row: found[row].published for row in printed} == printed
    stats, reference = score_or_load(LARGE, TEXTS), score_or_load(SMALL, TEXTS)
    assert found["PPL"].ours == pytest.approx(auc(LABELS, detect("ppl", stats)))
    assert found["Small Ref"].ours == pytest.approx(auc(LABELS, detect("ref", stats, reference=reference)))
    assert all(found[row].ours is not None for row in printed)
    assert by_row(measured, "tpr_at_5_fpr")["DC-PDD"].published == 0.245
    models = [done["model"] for done in measured.provenance]
    assert models == [LARGE, LARGE, SMALL]


def test_each_auc_has_the_one_with_the_other_start_token_beside_it_on_the_same_texts(copies):
    column = Column(model=LARGE, benchmark="wikimia-32", unseen="apart", n_training=8)
    measure = partial(paper_tables.measure_column, "probe", {"auc": "table-2"}, "WikiMIA / Pythia-2.8B")
    measured, found = measure(column), by_row(measure(column.but(start_token=None)))
    of_other = by_row(measured, paper_tables.OTHER_START)
    assert "Loss Attack" in of_other and not [row for row in of_other if row.startswith("Probe w.")]
    assert {row: of.ours for row, of in of_other.items()} == {row: found[row].ours for row in of_other}
    assert all(result.published is None for result in of_other.values())
    column = Column(model=LARGE, benchmark="wikimia-32", corpus=str(copies / "corpus.txt"), start_token=None)
    measured = paper_tables.measure_column("dc-pdd", TABLES_2_3, "WikiMIA / Pythia-6.9B", column)
    for metric, start_token in (("auc", None), (paper_tables.OTHER_START, "auto")):
        ppl = detect("ppl", score_or_load(LARGE, TEXTS, start_token=start_token))
        assert by_row(measured, metric)["PPL"].ours == pytest.approx(auc(LABELS, ppl))


def test_a_row_of_dc_pdds_table_5_is_one_number_a_bound(copies):
    values = [0.001, 0.01, 0.1, 1, 10]
    column = Column(model=LARGE, benchmark="wikimia-32", corpus=str(copies / "corpus.txt"), a_values=values)
    measured = paper_tables.measure_column("dc-pdd", {"auc": "table-5"}, "PatentMIA / Qwen1.5-14B", column)
    printed = published_along("dc-pdd", "table-5", "PatentMIA / Qwen1.5-14B", "auc")
    told = [result for result in measured.results if result.row.startswith(BLIND_PREFIX)]
    detected = [result for result in measured.results if result not in told]
    assert [result.row for result in detected] == list(printed)
    assert all(result.ours is not None and result.published == printed[result.row] for result in detected)
    assert len({result.ours for result in detected}) > 1
    assert len(told) == len(BLIND) and all(r.row.startswith("Blind: ") and r.column == detected[0].column for r in told)


def test_a_row_of_dc_pdds_table_4_has_the_corpora_that_are_there(copies):
    corpora = {"C4 / 1Gb": str(copies / "corpus.txt"), "C4 / 10Gb": "c4:10G"}
    column = Column(model=LARGE, benchmark="wikimia-32", corpora=corpora)
    measured = paper_tables.measure_column("dc-pdd", {"auc": "table-4"}, "Pythia-6.9B", column)
    found = by_row(measured)
    assert found["C4 / 1Gb"].ours is not None and found["C4 / 10Gb"].ours is None
    assert str(found["C4 / 10Gb"]) == "not run" == str(found["Case-law / 1Gb"])
    assert (found["C4 / 1Gb"].published, found["C4 / 10Gb"].published) == (0.688, 0.698)
    [note] = measured.notes
    assert "allenai/C4".lower() in note.lower()


def test_surps_columns_come_both_ways_and_the_probes_with_baselines():
    column = Column(model=LARGE, benchmark="mimir/github", reference=SMALL)
    measured = paper_tables.measure_column("surp", {"auc": "table-3"}, "Github / Pythia-2.8B", column)
    found = by_row(measured)
    printed = published_along("surp", "table-3", "Github / Pythia-2.8B", "auc")
    assert {row: found[row].published for row in printed} == printed
    assert str(found["Neighbor"]) == "not run", "no masked model was named, and the paper prints the number"
    assert set(by_row(measured, "auc_held_out")) == {row for row in found if not row.startswith("Blind: ")}
    assert found["MinK"].ours >= found["PPL"].ours, "k = 100 is PPL, and the best k is taken"
    column = Column(model=LARGE, benchmark="wikimia-32", reference=SMALL, unseen="apart", n_training=8)
    measured = paper_tables.measure_column("probe", TABLES_2_3, "WikiMIA / Pythia-2.8B", column)
    found = by_row(measured)
    assert found["Probe w. Real Data"].ours is not None and found["Probe w. Real Data"].published == 0.698
    assert str(found["Probe w. Synthetic Data"]) == str(found["Neighbor Attack"]) == "not run"


def test_the_tails_of_one_book_are_not_taken_for_independent_texts(copies):
    rows = [
        {"text": f"Book {i // 2}: {text}", "label": label, "source": f"book {label} {i // 2}"}
        for label in (1, 0)
        for i, text in enumerate(texts(label))
    ]
    save_texts(copies / "data" / "dolma_book" / "tail-1024.jsonl", rows)
    column = Column(model=LARGE, benchmark="dolma_book/tail-1024")
    found = by_row(paper_tables.measure_column("surp", {"auc": "table-2"}, "Dolma-Book-tail / OLMo-7B", column))
    ppl = detect("ppl", score_or_load(LARGE, [row["text"] for row in rows]))
    assert found["PPL"].ours == pytest.approx(auc(LABELS, ppl))
    assert found["PPL"].interval == document_auc_interval(LABELS, ppl, np.repeat(np.arange(24), 2))


def test_what_is_lacking_beside_the_model_is_left_out_and_said_and_the_rest_is_measured():
    lacking = {"reference": "EleutherAI/pythia-160m", "corpus": "c4:1G", "unseen": "arxiv_mia"}
    column = Column(model=LARGE, benchmark="wikimia-32", **lacking)
    measured = paper_tables.measure_column("dc-pdd", TABLES_2_3, "WikiMIA / Pythia-6.9B", column)
    found = by_row(measured)
    assert str(found["Small Ref"]) == str(found["DC-PDD"]) == "not run" and found["PPL"].ours is not None
    assert ["reference model" in measured.notes[0], "corpus" in measured.notes[1]] == [True, True]
    column = column.but(reference=SMALL, corpus=None)
    measured = paper_tables.measure_column("probe", TABLES_2_3, "WikiMIA / Pythia-2.8B", column)
    [said] = measured.notes
    assert "MIALIB_BENCHMARKS" in said and [done["model"] for done in measured.provenance] == [LARGE, LARGE, SMALL]
    found = by_row(measured)
    assert str(found["Probe w. Real Data"]) == str(found["Probe w. Synthetic Data"]) == "not run"
    _, judged = stratified_split(LABELS, HELD_OUT)  # as beside a probe
    loss = detect("ppl", score_or_load(LARGE, TEXTS))
    assert found["Loss Attack"].interval == auc_interval(LABELS[judged], loss[judged])
    assert all(found[row].ours is not None for row in ("Min-K% Prob", "Zlib Compression", "Smaller Model"))


def test_a_model_that_can_not_be_had_keeps_its_printed_numbers_and_says_why():
    column = Column(model="facebook/opt-6.7b", benchmark="wikimia-32")
    with pytest.raises(Unavailable, match=r"facebook/opt-6\.7b"):
        paper_tables.measure_column("dc-pdd", TABLES_2_3, "WikiMIA / OPT-6.7B", column)
    measured = paper_tables.measure_or_say_why("dc-pdd", TABLES_2_3, "WikiMIA / OPT-6.7B", column)
    assert "facebook/opt-6.7b" in measured.unavailable and measured.provenance == []
    assert {r.row: r.published for r in measured.results if r.metric == "auc"} == published_along(
        "dc-pdd", "table-2", "WikiMIA / OPT-6.7B", "auc"
    )
    assert {str(result) for result in measured.results} == {"not run"}
    api = Column(model="api:davinci-002", benchmark="wikimia-32")
    dashes = paper_tables.measure_or_say_why("dc-pdd", {"auc": "table-2"}, "BookMIA / GPT-3", api)
    assert str(by_row(dashes)["Min-K%++ Prob"]) == "–", "the paper prints none"


def test_a_column_that_fails_costs_no_other_and_a_kept_one_is_the_same(tmp_path):
    column = Column(model=LARGE, benchmark="wikimia-33")
    failed = paper_tables.measure_or_say_why("dc-pdd", TABLES_2_3, "WikiMIA / OPT-6.7B", column)
    assert "wikimia" in failed.unavailable and {str(r) for r in failed.results} == {"not run"}
    column = Column(model=LARGE, benchmark="wikimia-32", reference="EleutherAI/pythia-160m")
    measured = paper_tables.measure_column("dc-pdd", TABLES_2_3, "WikiMIA / Pythia-6.9B", column)
    paper_tables.save_column(tmp_path / "column.json", measured)
    assert paper_tables.load_column(tmp_path / "column.json") == measured


def test_a_page_takes_the_columns_that_are_computed(tmp_path):
    wanted = {
        name: Column(model=LARGE, benchmark="wikimia-32") for name in ("WikiMIA / OPT-6.7B", "WikiMIA / Llama-13B")
    }
    own = paper_tables.MeasuredColumn([], ["a note"], [])
    paper_tables.save_column(tmp_path / f"{paper_tables.file_name('WikiMIA / Llama-13B')}.json", own)
    found = paper_tables.collect_columns("dc-pdd", {"auc": "table-2"}, wanted, tmp_path)
    assert found["WikiMIA / Llama-13B"] == own
    assert found["WikiMIA / OPT-6.7B"].unavailable.startswith("not asked for")
    wanted["WikiMIA / Llama-13B"] = wanted["WikiMIA / Llama-13B"].model_copy(update={"note": "another note."})
    first, second = functions_of("paper_table")["what_is_lacking"](found, wanted).splitlines()
    assert literal("WikiMIA / OPT-6.7B") in first and "not asked for" in first
    assert literal("WikiMIA / Llama-13B") in second and literal("a note; another note") in second


def made_result(ours, published, half_width=0.1):
    interval = {} if ours is None else {"low": ours - half_width, "high": ours + half_width}
    fields = {"low": None, "high": None} | interval
    return Result(row="PPL", column="c", metric="auc", ours=ours, published=published, **fields)


def test_agreement_a_wrong_key_and_file_names():
    results = [made_result(0.6, 0.65), made_result(0.7, 0.9), made_result(None, 0.5), made_result(0.5, None)]
    page = functions_of("paper_table")
    both = page["apart"](results)
    assert np.allclose(both.apart, [-0.05, -0.2]) and both.inside.tolist() == [True, False]
    of_auc = page["agreement"](both).loc["auc"]
    expected = {"computed here": 2, "median difference": 0.125, "largest difference": 0.2, "in our interval": 1}
    assert of_auc.to_dict() == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"^column 'WikiMIA / OPT-6\.7B': modle: ") as caught:
        paper_tables.read_columns({"WikiMIA / OPT-6.7B": {"model": LARGE, "benchmark": "wikimia-32", "modle": "x"}})
    assert "\n" not in str(caught.value)
    profile = load_profile(DATA / "profiles" / "paper.yml")
    files = [(page, paper_tables.file_name(name)) for page, name, _ in paper_tables.columns_of(profile)]
    assert len(files) == len(set(files)) > 50


NOT_HERE = "EleutherAI/pythia-12b"
OF_SURP = {
    "Github / Pythia-2.8B": {"model": LARGE, "benchmark": "mimir/github", "reference": SMALL},
    "Github / Pythia-12B": {"model": NOT_HERE, "benchmark": "mimir/github"},
}
TABLE = {"notebook": "paper_table", "name": "tiny_surp_tables", "title": "A part of surp"}
TABLE["parameters"] = {"paper": "surp", "items": {"auc": "table-3"}, "columns": OF_SURP}
FIGURE = {"notebook": "surp_figure_2", "name": "not_here", "title": "Another"}
FIGURE["parameters"] = {"models": NOT_HERE, "benchmarks": "mimir/github", "entropy_threshold": 10, "k": 100}
PROFILE = {
    "name": "tiny",
    "landing": {"page": "paper_profile"},
    "book": [
        {"caption": "Tables", "pages": [TABLE, FIGURE]},
        {"caption": "Sources", "pages": [{"page": "how_to_read"}, {"page": "references"}]},
    ],
}


@pytest.mark.slow
def test_a_tiny_paper_profile_becomes_a_book_with_both_numbers(tmp_path):
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("Snakefile", "_config.yml", "pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, clone / name)
    for name in ("data", "notebooks", "mialib", "book"):
        ignored = shutil.ignore_patterns("__pycache__", "pages", "_build")
        shutil.copytree(ROOT / name, clone / name, ignore=ignored)
    (clone / "data" / "profiles" / "tiny.yml").write_text(yaml.safe_dump(PROFILE, sort_keys=False))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MIALIB_HOME")}
    environ |= {"PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}
    environ |= {"PYTHONPATH": python_path(clone), "OMP_NUM_THREADS": "1"}

    def build(*options):
        """What Snakemake says, and how many columns it computes, or would."""
        command = ["snakemake", "--cores", "2", "--resources", "gpu=1", "--max-checksum-file-size", "0", *options]
        command += ["--config", "profile=tiny", "only="]
        done = subprocess.run(command, cwd=clone, env=environ, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return len(re.findall(r"^Job \d+: column", done.stdout + done.stderr, re.M))

    build()
    results = clone / "build" / "tiny" / "results"
    found = {(r.column, r.row): r for r in load_results(results / "tiny_surp_tables.json") if r.metric == "auc"}
    assert found["Github / Pythia-2.8B", "PPL"].ours is not None
    printed = published_along("surp", "table-3", "Github / Pythia-2.8B", "auc")
    assert found["Github / Pythia-2.8B", "PPL"].published == printed["PPL"]
    assert str(found["Github / Pythia-12B", "PPL"]) == "not run"
    pages = clone / "build" / "tiny" / "book" / "_build" / "html" / "pages"
    html = (pages / "tiny_surp_tables.html").read_text()
    assert "A part of surp" in html and NOT_HERE in html and "not run" in html
    cell = found["Github / Pythia-2.8B", "SURP"]
    row = re.search(r"<th[^>]*>SURP</th>(.*?)</tr>", html, re.S)[1]
    assert [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", row, re.S)][:2] == [
        f"{cell.published:.3f}",
        str(cell),
    ]
    html = (pages / "not_here.html").read_text()
    assert "<figure" not in html and re.search(r"<strong>Not run</strong>: model .*EleutherAI/pythia-12b", html)
    listed = (clone / "book" / "pages" / "_papers_tables.md").read_text()
    assert report.NOT_RUN in next(row for row in listed.splitlines() if row.startswith("| [Figure 2]"))
    assert build("-np") == 1, "what could not be had is tried again, and nothing else is"
