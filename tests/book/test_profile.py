"""The papers' profile names what the registry knows and has every printed column."""

from mialib.catalog.benchmarks import find_part, is_published
from mialib.catalog.corpora import HUB_CORPORA, split_prefix
from mialib.catalog.registry import known_benchmarks, known_models
from mialib.store import DATA
from replication.profile import load_profile
from replication.published import load_published
from replication.studies.paper_tables import columns_of

PAPER = load_profile(DATA / "profiles" / "paper.yml")
COLUMNS = [(PAPER.notebooks[page].parameters, name, column) for page, name, column in columns_of(PAPER)]
TABLES = {"dc-pdd": (2, 3, 4, 5), "surp": (1, 2, 3), "probe": (2, 3, 4)}
NOT_IN_THE_PROFILE = {
    # Its second corpus, case law, is on no list that we know of.
    ("dc-pdd", "table-4", "Case-law / 1Gb"),
    ("dc-pdd", "table-4", "Case-law / 10Gb"),
    ("probe", "table-3", "Avg."),  # of the other columns
}


def test_the_profile_names_only_what_is_known():
    known = known_models()
    for given, name, column in COLUMNS:
        assert all(model in known for model in column.models()), name
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
