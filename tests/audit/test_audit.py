"""`mialib audit`: what it refuses to conclude from, what it says, and how often it errs."""

import csv
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import MARKUP, quick_baselines
from typer.testing import CliRunner

from mialib.blind import BLIND
from mialib.calibration import p_values
from mialib_audit import audit as auditing
from mialib_audit import evidence
from mialib_audit.commands import app
from mialib_audit.files import TextFile, read_files

NOUNS = ["mill", "river", "engine", "garden", "market", "harbor", "stone", "tower", "bridge", "field"]
VERBS = ["stands near", "was sold with", "lies behind", "belongs to", "looks like"]


def sentences(n, seed, more=""):
    """Different sentences of one kind."""
    rng = np.random.default_rng(seed)
    made = {}
    while len(made) < n:
        made[f"The {' '.join(rng.choice(NOUNS, 12))} {rng.choice(VERBS)} number {rng.integers(10**6)}{more}"] = None
    return list(made)


def write(path, texts, sources=None):
    rows = [{"text": text} | ({"source": sources[i]} if sources else {}) for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "mine.jsonl", sentences(30, 0)), write(tmp_path / "unseen.jsonl", sentences(60, 1))


@pytest.fixture
def two_baselines():
    """The latest year and the length alone."""
    with quick_baselines(*BLIND.keys() - {"year", "length"}):
        yield


cheap = pytest.mark.usefixtures("two_baselines")


@pytest.fixture
def audit(model_folder, files, tmp_path):
    """A function that audits a file, against the unseen one where no other is given; returns what is printed and the
    report, where there is one."""

    def run(mine, *more, non_members=files[1], output=tmp_path / "out", exit_code=0, force=True):
        arguments = [mine, "--model", model_folder, "--non-members", non_members, *more, "--output", output]
        arguments += ["--force"] if force else []
        found = CliRunner().invoke(app, ["audit", *map(str, arguments)])
        assert found.exit_code == exit_code, (found.output, found.exception)
        if exit_code == 1:
            return str(found.exception)
        return found.output, json.loads((output / "report.json").read_text())

    return run


MIN_K = ("--detector", "min_k")


@cheap
def test_a_report_says_what_it_found_and_what_it_rests_on(model_folder, files, audit, tmp_path):
    seen = write(tmp_path / "seen.jsonl", sentences(30, 2))
    said, report = audit(files[0], "--members", seen, "--dtype", "bfloat16")
    assert report["verdict"]["concludes"] and report["decider"] == "min_k++"
    assert said.splitlines()[:-1] == report["verdict"]["sentences"]
    question, compared, _, not_shown = said.splitlines()[:4]
    assert model_folder in question and f"{report['blind']['could_miss']:.2f}" in not_shown
    assert re.search("30 .* 60 .* 30 .*Min-K%", compared)
    assert [row["auc"] for row in report["power"]] == [0.55, 0.6, 0.7, 0.8]
    assert np.all(np.diff([row["power"] for row in report["power"]]) >= 0)
    assert report["start_token"]["start_token"] == "none" and 0 < report["start_token"]["p"] <= 1
    assert set(report["detectors"]["min_k"]) >= {"threshold", "fpr_interval", "n_called", "set_p", "auc", "tpr"}
    assert report["provenance"][0]["model"] == model_folder and report["target"]["dtype"] == "bfloat16"
    assert {ran["dtype"] for ran in report["provenance"] if "model" in ran} == {"bfloat16"}
    [head, *rows] = csv.reader((tmp_path / "out" / "scores.csv").open())
    assert len(rows) == 30 and head[:5] == ["number", "text", "copy_of", "min_k++ score", "min_k++ p"]
    assert rows[3][0] == "3" and float(rows[3][3]) == report["scores"][3]["min_k++"]["score"]
    called = sum(row["min_k++"]["is_called"] for row in report["scores"])
    assert called == report["detectors"]["min_k++"]["n_called"]
    page = html.unescape((tmp_path / "out" / "report.html").read_text())
    assert all(sentence in page for sentence in report["verdict"]["sentences"])


@cheap
def test_files_that_differ_without_the_model_are_refused_and_nothing_is_scored(files, audit, tmp_path):
    audit(files[0], *MIN_K)
    assert (tmp_path / "out" / "scores.csv").is_file()
    later = write(tmp_path / "later.jsonl", sentences(30, 3, more=" in 2031"))
    said, report = audit(later, *MIN_K, exit_code=3)
    assert not report["verdict"]["concludes"] and report["blind"]["separated_by"]
    assert re.search(r"latest year (1\.0|0\.9)", said)
    assert not {"scores", "detectors", "set", "power"} & set(report) and "evidence" not in said
    assert not (tmp_path / "out" / "scores.csv").exists(), "of the earlier audit"


@cheap
def test_files_that_differ_in_what_fits_the_context_are_refused_though_whole_they_do_not(audit, tmp_path):
    def written(name, years, seed):
        """Each text begins with a year, is longer than the context, and ends in a later one."""
        texts = sentences(30, seed, more=" and the old mill stands near the river" * 20 + " in 2031")
        return write(tmp_path / name, [f"In {year} {text}" for year, text in zip(years, texts, strict=True)])

    early, late = ([1900 + 3 * i + by for i in range(30)] for by in (0, 95))
    mine, unseen = written("mine.jsonl", early, 0), written("unseen.jsonl", late, 1)
    _, report = audit(mine, *MIN_K, non_members=unseen, exit_code=3)
    assert "latest year" in report["blind"]["separated_by"][0]
    assert not {"scores", "detectors", "set"} & set(report)


def test_a_difference_of_format_alone_is_refused(audit, tmp_path):
    mine = write(tmp_path / "mine.jsonl", [text.replace(" ", "\n", 1) for text in sentences(30, 3)])
    with quick_baselines("naive_bayes", "year", "length", "zlib"):
        told = audit(mine, exit_code=3)[1]["blind"]["separated_by"]
    assert any(of.startswith("formatting ") for of in told) and not any(of.startswith("tf-idf ") for of in told)


@cheap
def test_known_members_that_differ_from_the_non_members_show_no_auc(files, audit, tmp_path):
    members = write(tmp_path / "seen.jsonl", sentences(30, 2, more=" in 2031"))
    _, report = audit(files[0], "--members", members)
    assert report["members"]["blind"]["separated_by"] and "auc" not in report["detectors"]["min_k"]


@cheap
def test_a_detector_that_scores_all_texts_alike_decides_nothing(files, audit, monkeypatch):
    real = auditing.score_all

    def flat(inputs, names, **options):
        return {name: np.zeros(len(inputs.texts)) if name == "zlib" else of for name, of in real(inputs, names).items()}

    monkeypatch.setattr(auditing, "score_all", flat)
    assert "Zlib" in audit(files[0], "--detector", "zlib,min_k", exit_code=1)
    _, report = audit(files[0], "--detector", "min_k,zlib")
    assert list(report["left_out"]) == ["zlib"] and list(report["detectors"]) == ["min_k"]


@cheap
def test_sources_do_not_hide_a_difference_of_the_files(audit, tmp_path):
    """With six authors there are too few to fold by; the texts are then folded one by one, and refused all the same."""
    mine = write(tmp_path / "mine.jsonl", sentences(60, 5, more=" in 2031"), [f"author {i % 6}" for i in range(60)])
    known = write(tmp_path / "known.jsonl", sentences(60, 6), [f"writer {i % 20}" for i in range(60)])
    audit(mine, non_members=known, exit_code=3)


@cheap
def test_the_report_holds_its_settings_and_the_detectors_in_their_order(files, audit, tmp_path):
    (corpus := tmp_path / "corpus.txt").write_text("\n".join(sentences(50, 9)))
    given = ("--detector", "dc_pdd", "--corpus", corpus, "-o", "dc_pdd.a=0.1", "-o", "dc_pdd.lup=True", "--fpr", "0.1")
    _, report = audit(files[0], *given)
    assert report["target"]["corpus"] == str(corpus) and report["rules"]["options"] == {"dc_pdd": {"a": 0.1, "lup": 1}}
    assert isinstance(report["rules"]["options"]["dc_pdd"]["lup"], int), "a flag is no float"
    assert (report["rules"]["fpr"], report["set_level"], report["decider_is_default"]) == (0.1, 0.05, False)
    chosen = ("--detector", "zlib,min_k", "-o", "min_k.k=50", "-o", "min_k++.k=10", "--detector", "min_k++")
    _, report = audit(files[0], *chosen)
    assert report["decider"] == "zlib" and list(report["detectors"]) == ["zlib", "min_k", "min_k++"]


@cheap
def test_an_answer_that_depends_on_the_start_token_is_told():
    report = {
        "texts": {"n": 30, "n_copies": 0, "file": "it's <mine>"},
        "non_members": {"n": 37, "file": "unseen"},
        "target": {"model": "m"},
        "set_level": 0.05,
        "blind": {"is_measured": True, "separated_by": [], "could_miss": 0.6},
        "decider": "min_k",
        "decider_is_default": False,
        "coin": {"why": "no coin", "rows": {}},
        "detectors": {"min_k": {"n_called": 1, "fpr_interval": [0.0, 0.1], "mean_fpr": 1 / 38}},
        "set": {"p": 0.03, "n": 30, "n_known": 37, "unit": "text", "why": ""},
        "power": [{"auc": 0.6, "power": 0.5}],
        "start_token": {"start_token": "none", "p": 0.4},
    }
    said = " ".join(auditing.verdict(report)["sentences"])
    assert all(number in said for number in ("p = 0.4:", "1 of 30 ", "2.6%", "0.8 of 30", "0.60", "it's <mine>"))
    report["start_token"]["p"] = 0.01
    assert "0.01" not in " ".join(auditing.verdict(report)["sentences"])


def test_a_target_fdr_flags_a_set_of_texts_in_the_report(files, audit, tmp_path, monkeypatch):
    """Of 20 texts and a copy the first six score above all 60 known non-members: p = 1/61, times 20/6 is 0.055."""
    texts = sentences(20, 0)
    mine = write(tmp_path / "mine.jsonl", [*texts, texts[0] + " and more"])
    scores = np.concatenate([np.full(6, 3.0), np.full(15, -3.0), np.linspace(-1, 1, 60)])
    monkeypatch.setattr(auditing, "score_all", lambda *_, **__: {"min_k": scores})
    _, report = audit(mine, *MIN_K)
    assert "flagged" not in report["detectors"]["min_k"] and "is_flagged" not in report["scores"][0]["min_k"]
    said, report = audit(mine, *MIN_K, "--fdr", "0.06")
    assert "6 of 20 texts" in said and "0.4 of 6" in said
    assert report["detectors"]["min_k"]["flagged"]["n_flagged"] == 6
    assert [row["min_k"]["is_flagged"] for row in report["scores"]] == [True] * 6 + [False] * 15
    [head, first, *_] = csv.reader((tmp_path / "out" / "scores.csv").open())
    assert head[3:] == [f"min_k {what}" for what in ("score", "p", "is_called", "is_flagged")]
    assert first[6] == "True" and (tmp_path / "out" / "report.html").read_text().count('class="called"') == 6
    assert "--fdr 0.01" in audit(mine, *MIN_K, "--fdr", "0.01", exit_code=1)


@cheap
def test_copies_count_once_and_sources_as_one(audit, tmp_path):
    own = sentences(12, 5)
    texts = [*own, own[0], own[1], own[2] + " and more"]
    mine = write(tmp_path / "mine.jsonl", texts, [f"author {i % 3}" for i in range(15)])
    known = write(tmp_path / "known.jsonl", sentences(60, 6), [f"writer {i % 20}" for i in range(60)])
    _, report = audit(mine, non_members=known)
    assert [row["copy_of"] for row in report["scores"]][12:14] == [0, 1] and report["texts"]["n_copies"] == 3
    assert (report["set"]["n"], report["set"]["n_known"], report["set"]["unit"]) == (3, 20, "source")


def test_each_source_counts_by_equally_many_texts():
    """Of a set with 2 and 3 texts a source the first 2 of each; of known sources those that have 2."""
    of_set, scores = (["a", "b", "a", "b", "b"], np.array([1.0, 2, 3, 4, 99])), np.array([1.0, 50, 3, 4, 6, 90, 70])
    known = TextFile("b", ("t",) * 7, sources=("x", "y", "x", "z", "z", "z", "w"))
    assert evidence.means_of_sources(*of_set, known, scores)[2] == 1, "half of the known sources have one text"
    known = TextFile("b", ("t",) * 7, sources=("x", "w", "x", "z", "z", "w", "v"))
    of_set, of_known, n_each = evidence.means_of_sources(*of_set, known, scores)
    assert n_each == 2 and of_set.tolist() == [2, 3] and of_known.tolist() == [2, 70, 5]


@cheap
def test_of_a_labelled_file_the_right_texts_are_known(files, audit, tmp_path):
    texts, labels = sentences(90, 6), [1] * 40 + [0] * 52
    copies, known = [texts[-1], texts[-2] + " again"], tmp_path / "known.jsonl"
    rows = [{"text": text, "label": label} for text, label in zip([*texts, *copies], labels, strict=True)]
    known.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert audit(files[0], *MIN_K, non_members=known)[1]["non_members"]["n"] == 50, (
        "those labelled 0, copies and near copies once"
    )
    assert read_files(known, None, None)[0].texts == tuple(texts[:40]), "judged where no others are known"
    with pytest.raises(ValueError, match="no labels"):
        read_files(Path(files[0]), None, None)


def test_a_text_in_two_files_is_refused_and_too_few_are_told(audit, tmp_path):
    both = write(tmp_path / "both.jsonl", [*sentences(30, 7), *sentences(60, 1)[3:28]])
    said = audit(both, exit_code=1)
    assert re.search(r"unseen\.jsonl .*both\.jsonl .*25", said)
    near = write(tmp_path / "near.jsonl", [*sentences(30, 7), sentences(60, 1)[3] + " and one word more"])
    assert re.search(r"near\.jsonl .*: 1\.", audit(near, exit_code=1))
    assert not audit(write(tmp_path / "few.jsonl", sentences(4, 4)))[1]["blind"]["is_measured"]


@cheap
def test_markup_in_a_text_is_text_in_the_report(audit, tmp_path):
    audit(write(tmp_path / "mine.jsonl", [*sentences(20, 8), f"The mill {MARKUP} stands"]))
    assert "<img" not in (tmp_path / "out" / "report.html").read_text()


def test_a_set_without_a_member_is_called_as_often_as_it_should_be():
    """Halves of one pool of unseen texts: the share of texts called, and of sets."""
    rng = np.random.default_rng(9)
    pool = rng.normal(size=400)
    called, sets = [], []
    for _ in range(300):
        order = rng.permutation(400)
        own, known = pool[order[:200]], pool[order[200:]]
        decided = evidence.decide_texts(p_values(own, known), known, fpr=0.05)
        called.append(decided["n_called"] / 200)
        files = (TextFile(name, ("t",) * 200) for name in "ab")
        of_set = evidence.set_test(*files, own, known)
        sets.append(of_set["p"] <= 0.05)
    assert np.mean(called) == pytest.approx(0.05, abs=0.005)
    assert 0.02 < np.mean(sets) < 0.09


@cheap
def test_who_repeats_an_audit_is_told_the_first_thing_that_differs(files, audit, tmp_path, monkeypatch):
    monkeypatch.setattr("mialib.cache.recomputed", None)
    _, report = audit(files[0], *MIN_K, "--fdr", "0.2")
    path = tmp_path / "out" / "report.json"

    def verify(change=lambda report: None):
        changed = json.loads(json.dumps(report))
        change(changed)
        path.write_text(json.dumps(changed))
        auditing.verify(path)

    verify()
    verify(lambda of: of["known_scores"]["min_k"].append(of["known_scores"]["min_k"].pop() + 1e-7))  # is rounding
    for change, culprit in (
        (lambda of: of["scores"][3]["min_k"].update(score=-9.5), "score, min_k, 3: -9.5"),
        (lambda of: of["scores"][3]["min_k"].update(p=0.001), "scores, 3, min_k, p: 0.001 "),
        (lambda of: of["verdict"]["sentences"].append("It was."), "verdict, sentences: "),
        (lambda of: of["provenance"][0].update(revision="r"), "revision of .*: 'r'"),
        (lambda of: of["provenance"][-1].update(mialib="9"), "version of mialib: '9'"),
        (lambda of: of.pop("rules"), "rules"),
    ):
        with pytest.raises(ValueError, match=culprit):
            verify(change)
    with open(files[1], "a") as file:
        file.write("\n")
    path.write_text(json.dumps(report))
    done = CliRunner().invoke(app, ["audit", "--verify", str(path)])
    assert done.exit_code == 1 and files[1] in str(done.exception)
    assert CliRunner().invoke(app, ["audit", files[0]]).exit_code == 2, "no --model, no --output"
