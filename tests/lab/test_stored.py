"""The stored lab: what is stored is whole and of the profile's recipes, and no text of others is in it."""

import ast
import csv
import json
import re
import shutil
from functools import cache
from importlib.metadata import version

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from test_lab import TINY
from tokenizers import Tokenizer
from typer.testing import CliRunner

from mialib import Scorer
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.sources import find
from mialib.passes.cache import count_or_load
from mialib.store import DATA, ROOT, checksum_of
from replication.commands import app
from replication.lab import building, docstrings, source
from replication.lab.corpora import ROLES, TEXTS
from replication.lab.recipes import load_recipes
from replication.lab.source import LabCorpus, model_folder

RECIPES = load_recipes()
TRAINED = [name for name, model in RECIPES.models.items() if model.recipe]
WINDOW = 12  # words in a row that no two people write by chance


@pytest.fixture
def nothing_is_made(monkeypatch):
    def never(*_, **__):
        raise AssertionError("made here, and not stored")

    monkeypatch.setattr(source, "deal_again", never)
    monkeypatch.setattr(source, "train_again", never)


def test_every_corpus_and_model_is_stored_with_its_checksums_and_without_a_path(nothing_is_made):
    assert len(TRAINED) == 18 and len(RECIPES.corpora) == 8
    for name in RECIPES.corpora:
        assert LabCorpus(name).folder == source.STORED / "corpora" / name.removeprefix("lab/")
    for name in TRAINED:
        assert model_folder(name) == source.STORED / "models" / name.removeprefix("lab/")
    files = {path for path in source.STORED.rglob("*") if path.is_file() and path.name != building.SUMS}
    lines = (source.STORED / building.SUMS).read_text().splitlines()
    sums = {source.STORED / name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    assert sums == {path: checksum_of(path) for path in files}
    cards = [
        [json.loads(path.read_text()) for path in sorted(source.STORED.glob(f"{kind}/*/{name}"))]
        for kind, name in source.CARDS.items()
    ]
    said = (source.STORED / "README.md").read_text()
    assert building.data_card(*cards).partition("## Packages")[0] == said.partition("## Packages")[0]
    assert sum(path.stat().st_size for path in files) < 36.5e6
    for path in source.STORED.rglob("*.json"):
        found = re.findall(r"seconds|device|/(?:work|home|tmp|root)/|20[23]\d-\d\d-\d\d", path.read_text())
        assert not found or path.name == "tokenizer.json", (path, found)


@pytest.mark.parametrize("name", [name for name, of in RECIPES.corpora.items() if of.source != "patents"])
def test_the_coin_alone_gave_the_roles(name):
    """Undoing the shuffle, by the card alone, puts the texts back into the order of packages and files."""
    folder = source.STORED / "corpora" / name.removeprefix("lab/")
    card = json.loads((folder / "card.json").read_text())
    with (folder / "places.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    order = np.random.default_rng(card["recipe"]["seed"]).permutation(card["dealt_from"])
    undone = [rows[i] for i in np.argsort(order[: len(rows)])]
    places = [(row["package"], row["file"]) for row in undone]
    assert places == sorted(places) and len(set(places)) > 20
    sizes = [card["recipe"][role] for role in ("members", "non_members", "background")]
    expected = np.repeat(ROLES, [*sizes, len(rows) - sum(sizes)]).tolist()
    assert [row["role"] for row in rows] == expected


def test_weights_are_float16_and_read_back_as_float32():
    import torch
    from safetensors.torch import load_file

    weights = load_file(source.STORED / "models" / "en-25k" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    model = Scorer("lab/en-25k").loaded.model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.get_output_embeddings().weight, weights["embed_out.weight"].float())


def test_another_recipe_or_seed_is_no_stored_model(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(source, "train_again", lambda name: made.append(name) or tmp_path)
    monkeypatch.setattr(source, "deal_again", lambda name: made.append(name) or tmp_path)
    model_folder("lab/en-25k@1")
    profile = yaml.safe_load((DATA / "profiles" / "lab.yml").read_text())
    profile["models"]["lab/en-25k"]["train"]["hidden_size"] = 16
    profile["models"]["lab/en-400k"]["train"]["learning_rate"] = 0.5
    profile["corpora"]["lab/zh"]["seed"] = 1
    (tmp_path / "other.yml").write_text(yaml.safe_dump(profile))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "other.yml"))
    for name in ("lab/en-25k", "lab/en-400k-unlearned", "lab/zh-100k"):
        model_folder(name)
    assert LabCorpus("lab/zh").folder == tmp_path
    assert made == ["lab/en-25k@1", "lab/en-25k", "lab/en-400k-unlearned", "lab/zh-100k", "lab/zh"]
    assert model_folder("lab/en-100k").parent == source.STORED / "models"
    profile["corpora"]["lab/en"]["seed"] = 1
    (tmp_path / "third.yml").write_text(yaml.safe_dump(profile))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "third.yml"))
    assert LabCorpus("lab/later").folder == tmp_path
    assert made[-1] == "lab/later", "its texts are to be apart from those of another lab/en"


@cache
def docstrings_in(package, name, path):
    return [*docstrings._docstrings_of(package, name, ast.parse(path.read_text(encoding="utf-8")))]


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """Packages whose docstrings are as if another version were installed than the one that the lab was made with."""
    packages = {"numpy"}

    def read(package, name, path, names):
        found = docstrings_in(package, name, path)
        return [of._replace(text=f"Changed. {of.text}") for of in found] if package in packages else found

    monkeypatch.setattr(docstrings, "parse", lambda path: path)
    monkeypatch.setitem(docstrings.READ, "docstring", read)
    monkeypatch.setenv("MIALIB_HOME", str(tmp_path / "changed"))
    return packages


def test_another_version_of_a_package_costs_the_texts_that_it_changed(changed, monkeypatch, tmp_path):
    read = source.read_corpus  # without the reference texts, which are in as many files again
    monkeypatch.setattr(source, "read_corpus", lambda of: [row for row in read(of) if row.role != "reference"])
    with pytest.warns(UserWarning, match=r"lab/books, \S+: \d+ of 100 .*numpy==\S+ \(installed: \S+\)") as said:
        there = load_benchmark("lab/books")
    n_members, n_others = (int(re.search(r"(\d+) of", str(w.message))[1]) for w in said)
    assert there.labels.tolist() == [1] * n_members + [0] * n_others and 50 < n_members < 100
    assert "numpy" not in there.domains and there.revision.startswith(find("lab/books").labels[0])
    assert len(find("lab/books").labels[1]) == 200, "who has which role is stored"
    repeats = source.lab_recipe("lab/books-25k").model_copy(update={"member_repeats": (1, 2, 4)})

    def times_of(texts):
        seen = dict(zip(*source.texts_and_times(repeats), strict=True))
        return [seen.get(text, 0) for text in texts]

    times = times_of(there.texts)
    scorer = Scorer("lab/books-25k")
    some = [*there.texts[:4], *there.texts[-4:]]
    here, counted = scorer.score(some, progress=False), count_or_load("lab/books", "lab/books-25k")
    with pytest.raises(ValueError, match=r"install .*numpy=="):
        LabCorpus("lab/books").check_whole()
    changed.clear()
    monkeypatch.setenv("MIALIB_HOME", str(tmp_path / "as it was"))
    whole = load_benchmark("lab/books")
    assert len(whole.texts) > len(there.texts)
    assert [text for text in whole.texts if text in set(there.texts)] == list(there.texts)
    np.testing.assert_array_equal(here.log_prob, scorer.score(some, progress=False).log_prob)
    assert np.array_equal(counted.counts, count_or_load("lab/books", "lab/books-25k").counts), "they are stored, too"
    assert times == times_of(there.texts), "groups are those of all members"


def test_the_stored_counts_are_those_of_the_reference_texts_and_take_none(monkeypatch):
    from mialib.frequency import count_tokens

    counted = count_or_load("lab/zh", "lab/zh-25k")
    tokenizer = LabCorpus("lab/zh").tokenizer
    again = count_tokens(LabCorpus("lab/zh").texts("reference"), tokenizer, len(tokenizer), name="again")
    assert np.array_equal(counted.counts, again.counts)
    monkeypatch.setattr(LabCorpus, "read", lambda *_: pytest.fail("a text is read"))
    assert count_or_load("lab/en", "lab/en-25k").n_tokens > 100_000
    assert find("lab/en").labels[1].sum() == 500


def test_samples_are_half_members_of_a_role_or_of_the_seed(monkeypatch):
    read = source.read_corpus  # of the docstrings few, since each file that one is in is parsed
    monkeypatch.setattr(source, "read_corpus", lambda of: read(of)[: 20 if of.name == "later" else None])

    def rows(name, *options):
        done = CliRunner().invoke(app, ["lab", "texts", name, *options])
        return [json.loads(line) for line in done.stdout.splitlines()]

    few = rows("lab/zh", "--sample", "7")
    assert [row["label"] for row in few] == [1, 1, 1, 1, 0, 0, 0] and few == rows("lab/zh", "--sample", "7")
    assert few != rows("lab/zh", "--sample", "7", "--seed", "1")
    assert few[0]["coin_duplicates"] == 1 and len(rows("lab/zh~lab/later", "--sample", "2")[0]) == 2, "no coin there"
    every, benchmark = rows("lab/zh"), load_benchmark("lab/zh")
    assert [row["text"] for row in every] == list(benchmark.texts) and all(row in every for row in few)
    done = CliRunner().invoke(app, ["lab", "texts", "lab/zh", "--sample", "2000"])
    assert re.search("lab/zh .*500 .*member.*1000 ", str(done.exception))
    of_reference, later = (rows(name, "--sample", "3") for name in ("lab/zh:reference", "lab/later"))
    assert [row["label"] for row in (*of_reference, *later)] == [0] * 6
    assert {row["text"] for row in of_reference} < set(LabCorpus("lab/zh").texts("reference"))


@pytest.mark.slow  # a small corpus that is dealt out twice, in test_lab.py, and the checksums above are the fast ones
def test_the_lab_is_built_stored_and_found_equal_or_apart(tmp_path, monkeypatch):
    (tmp_path / "tiny.yml").write_text(yaml.safe_dump(TINY))
    monkeypatch.setenv("MIALIB_PROFILE", str(tmp_path / "tiny.yml"))
    monkeypatch.setattr(source, "STORED", tmp_path / "stored")
    source.STORED.mkdir()

    def build(*options):
        return CliRunner().invoke(app, ["lab", "build", "--cores", "1", *options])

    before = build("lab/tiny", "lab/tiny-5k")
    assert before.exit_code == 0 and before.stdout.count("none of this recipe is stored") == 2
    assert build("--store").exit_code == 0
    files = {path: path.read_bytes() for path in source.STORED.rglob("*") if path.is_file()}
    assert not [path for path in files if path.name == TEXTS and "zh" not in path.parent.name]
    again = build("--store")
    assert again.stdout.count(", equal") == 4 and again.stdout.count("; equal bit for bit") == 2
    assert files == {path: path.read_bytes() for path in source.STORED.rglob("*") if path.is_file()}, "the same bytes"
    assert model_folder("lab/tiny-5k") == source.STORED / "models" / "tiny-5k"
    assert (source.STORED / "README.md").read_text().count("lab/tiny") >= 6

    for name, kind in (("models/tiny-5k/config.json", "lab/tiny-5k"), ("corpora/tiny/counts.parquet", "lab/tiny")):
        whole = (source.STORED / name).read_bytes()
        (source.STORED / name).write_bytes(whole + b" ")
        assert f"{name.rpartition('/')[2]}\n" in build(kind).stdout and build(kind).exit_code == 1, "every file counts"
        (source.STORED / name).write_bytes(whole)

    other = source.train_again("lab/tiny-5k@1")
    shutil.copy(other / "model.safetensors", source.STORED / "models" / "tiny-5k")
    apart = build("lab/tiny-5k")
    assert re.search("apart .*weights .*cosine .*AUCs ", apart.stdout)
    with monkeypatch.context() as patch:
        patch.setattr(building, "FAR_AUC", -1.0)
        assert ": lab/tiny-5k" in str(build("lab/tiny-5k").exception)

    changed = json.loads(json.dumps(TINY))
    changed["corpora"]["lab/tiny"]["seed"] = 9
    changed["corpora"]["lab/tiny-elsewhere"] |= {"packages": ["pydantic"], "apart_from": "lab/tiny"}
    (tmp_path / "tiny.yml").write_text(yaml.safe_dump(changed))
    assert "lab/tiny" in str(build("lab/tiny").exception), "another recipe than the stored one's"
    assert build("--store").exit_code == 0
    dealt = {text for role in ROLES[:3] for text in LabCorpus("lab/tiny").texts(role)}
    assert not dealt & set(LabCorpus("lab/tiny-elsewhere").texts("non_member")), "apart from the new one"
    assert build("lab/tiny", "lab/tiny-elsewhere").stdout.count(", equal") == 2


@pytest.mark.slow
def test_no_sentence_of_another_package_is_in_the_repository(built_home):
    """Neither as text nor as token ids that a stored tokenizer reads."""
    texts = []
    for name, corpus in RECIPES.corpora.items():
        if corpus.source in ("docstrings", "code"):
            texts += [text for role in ROLES for text in LabCorpus(name).texts(role)]
    windows = {window for text in texts for window in windows_of(text)}
    assert len(windows) > 500_000
    kinds = {".py", ".md", ".ipynb", ".yml", ".csv", ".json", ".html", ".css", ".svg", ".toml", ".txt"}
    skipped = {".venv", "build", ".git", "pages"}
    checked = 0
    for path in ROOT.rglob("*"):
        if path.suffix in kinds and path.is_file() and not skipped & set(path.relative_to(ROOT).parts):
            found = windows & set(windows_of(path.read_text(encoding="utf-8").replace("\\n", " ")))
            assert not found, (path, sorted(found)[:2])
            checked += 1
    assert checked > 300
    for path in sorted((DATA / "recorded").rglob("*.parquet")):
        table = pq.read_table(path)
        for column in table.column_names:
            if column == "token_ids":
                for tokenizer in sorted(source.STORED.glob("corpora/*/tokenizer.json")):
                    read = Tokenizer.from_file(str(tokenizer)).decode_batch(table[column].to_pylist())
                    assert not windows & {window for text in read for window in windows_of(text)}, (path, tokenizer)
            elif str(table[column].type) == "string":
                assert not windows & {window for text in table[column].to_pylist() for window in windows_of(text)}


def windows_of(text):
    words = text.split()
    return (" ".join(words[i : i + WINDOW]) for i in range(len(words) - WINDOW + 1))


def test_the_packages_are_those_of_the_lock():
    """What `make install` installs has all texts; else each page of the book would say how many are missing."""
    lock = (ROOT / "requirements.lock").read_text().lower().replace("_", "-")
    for path in source.STORED.glob("corpora/*/card.json"):
        for of in json.loads(path.read_text())["sources"]:
            assert of.lower().replace("_", "-") in lock, f"{of} of {path.parent.name}"
            assert version(of.partition("==")[0])
