"""What data/models.yml and data/benchmarks.yml say, and that the profile of the papers' tables agrees with it."""

import re
from pathlib import Path

import pytest

from mialib.book.paper_tables import columns_of
from mialib.book.profile import load_profile
from mialib.book.published import load_published
from mialib.catalog import registry
from mialib.catalog.benchmarks import find_part, is_published
from mialib.catalog.corpora import HUB_CORPORA, split_prefix
from mialib.catalog.registry import HubPart, KnownBenchmark, KnownModel, find_model, known_benchmarks, known_models

ROOT = Path(__file__).parents[1]
PAPER = load_profile(ROOT / "data" / "profiles" / "paper.yml")
COLUMNS = [(PAPER.notebooks[page].parameters, name, column) for page, name, column in columns_of(PAPER)]
TABLES = {"dc-pdd": (2, 3, 4, 5), "surp": (1, 2, 3), "probe": (2, 3, 4)}
NOT_IN_THE_PROFILE = {
    # Its second corpus, case law, is on no list that we know of.
    ("dc-pdd", "table-4", "Case-law / 1Gb"),
    ("dc-pdd", "table-4", "Case-law / 10Gb"),
    ("probe", "table-3", "Avg."),  # of the other columns
}


def test_every_reference_model_and_tokenizer_is_an_entry():
    known = known_models()
    for name, model in known.items():
        for paper, reference in model.references.items():
            assert paper in TABLES and reference in known and reference != name
            assert known[reference].billions < model.billions, f"{reference} is not smaller than {name}"
            assert known[reference].start_token == model.start_token


def test_names_are_the_hubs_and_say_how_large_the_model_is():
    for name, model in known_models().items():
        assert re.fullmatch(r"[A-Za-z0-9_-]+/[A-Za-z0-9._-]+", name) or name.startswith("api:")
        is_api = name.startswith("api:")
        assert is_api == (model.access == "api") == bool(model.tokenizer) == (model.billions is None)
        assert bool(model.licence and model.start_token)
        size = re.search(r"(\d+(?:\.\d+)?)(b|m)(?!\w)", name.lower())
        if size and model.billions:
            assert model.billions == pytest.approx(float(size[1]) * {"b": 1, "m": 1e-3}[size[2]], rel=0.25), name
        if model.billions:  # two or four bytes a parameter on the hub
            assert 1.9 < model.download_gb / model.billions < 4.4, name


def test_the_registry_holds_no_commit():
    for path in (registry.MODELS, registry.BENCHMARKS):
        assert not re.search(r"\b[0-9a-f]{7,40}\b", path.read_text())
    assert not (ROOT / "data" / "revisions.yml").exists()


def test_every_benchmark_has_its_sizes_and_fills_its_braces():
    for name, known in known_benchmarks().items():
        part = find_part(f"{name}-{known.lengths[0]}" if known.lengths else name)
        patterns = [*known.local, *(value for of in known.hub for value in (of.config, of.split, of.file) if value)]
        assert all("{" not in part.fill(pattern) for pattern in patterns) and patterns
        assert set(known.lengths) in (set(known.examples), set())
        assert known.columns[1] == "label" and known.paper in (ROOT / "book" / "references.bib").read_text()


def test_the_profile_names_only_what_is_known():
    known = known_models()
    for given, name, column in COLUMNS:
        assert all(model in known for model in column.models), name
        assert is_published(column.benchmark) and find_part(column.benchmark).name == column.benchmark
        assert column.unseen in (None, "apart") or known_benchmarks()[column.unseen].unseen
        for corpus in filter(None, (column.corpus, *column.corpora.values())):
            of, n_characters = split_prefix(corpus)
            assert of in HUB_CORPORA and n_characters
            language = find_part(column.benchmark).known.language
            assert of == {"en": "c4", "zh": "chinese_web_text"}[language]
        # The model is the one that the column's name prints.
        assert any(printed in name for printed in known[column.model].printed), f"{given['paper']}: {name}"


def test_small_ref_takes_the_registrys_reference():
    for given, name, column in COLUMNS:
        if given["items"].get("auc") in ("table-4", "table-5") and given["paper"] == "dc-pdd":
            assert column.reference is None  # DC-PDD alone is printed
        else:
            assert column.reference == known_models()[column.model].references.get(given["paper"]), name


def test_the_profile_has_every_printed_column_of_its_tables():
    """Or it is listed above, with the reason."""
    covered = {}
    for given, name, column in COLUMNS:
        for metric, item in given["items"].items():
            of = covered.setdefault((given["paper"], item, metric), set())
            of |= {
                name,
                *(column.fields if metric == "auc" else ()),
                *column.corpora,
                *(f"{a:g}" for a in column.a_values),
            }
    missing = set()
    for paper, numbers in TABLES.items():
        for number in numbers:
            printed = load_published(paper, f"table-{number}")
            for metric in printed["metric"].unique():
                of_metric = printed[printed["metric"] == metric]
                has = covered.pop((paper, f"table-{number}", metric))
                missing |= {(paper, f"table-{number}", name) for name in set(of_metric["column"]) - has}
                assert has <= {*of_metric["column"], *of_metric["row"]}
    assert missing == NOT_IN_THE_PROFILE and not covered


def test_a_model_is_known_at_any_revision_and_other_names_are_not():
    assert find_model("facebook/opt-6.7b@step3") == find_model("facebook/opt-6.7b") is not None
    assert find_model("opt-6.7b") is None and find_model("lab/en-25k") is None


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (KnownModel, "o/m: {printed: [M], start_token: <s>, licence: mit, revision: x}", "o/m.revision: Extra inputs"),
        (KnownModel, "o/m: {printed: [M], licence: mit}", "o/m.start_token: Field required"),
        (KnownModel, "o/m: {printed: [M], start_token: <s>, licence: mit, dtype: int8}", "o/m.dtype: Input should be"),
        (KnownModel, "o/m: [", "flow"),
        (KnownModel, "", "the file: Input should be a valid dictionary"),
        (
            KnownBenchmark,
            "b: {title: B, paper: p, columns: [text], examples: {1: 2}, licence: l, access: none}",
            "a benchmark on no hub has `local` files",
        ),
        (
            KnownBenchmark,
            "b: {title: B, paper: p, hub_id: o/b, columns: [text], examples: {1: 2}, licence: l}",
            "a benchmark on the hub has `hub_id` and `hub`",
        ),
        (HubPart, "b: {split: train, file: x.jsonl, role: member}", "either a `split` or a `file`"),
        (HubPart, "b: {file: x.jsonl}", "has the role `member` or `nonmember`"),
        (HubPart, "b: {split: train, role: member}", "has the role `member` or `nonmember`"),
    ],
)
def test_a_wrong_entry_is_named_in_one_line(tmp_path, kind, content, message):
    path = tmp_path / "known.yml"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        registry._read(path, kind)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_without_a_clone_nothing_is_known(tmp_path):
    assert registry._read(tmp_path / "none.yml", KnownModel) == {}
