"""What a page takes is read off its parameters."""

import ast

import nbformat
import pytest
from nbformat import write
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mialib.store import ROOT
from replication.pipeline import needs as build
from replication.pipeline.code import imported_modules
from replication.pipeline.needs import needs_of
from replication.pipeline.notebooks import NOTEBOOKS, read_notebook, with_values
from replication.profile import Profile, load_profile

LAB = load_profile(ROOT / "data" / "profiles" / "lab.yml")
CORPUS = {"source": "patents", "language": "zh", "words": 8, "members": 4, "non_members": 4, "seed": 0}
TRAINED = CORPUS | {"background": 4, "reference": 4, "vocab_size": 300}
RECIPE = {"corpus": "lab/a", "layers": 1, "hidden_size": 8, "heads": 1}
MODELS = {
    "lab/small": {"benchmarks": ["lab/a"], "train": RECIPE},
    "lab/large": {"benchmarks": ["lab/a", "lab/a~lab/b"], "train": RECIPE},
    "lab/forgetful": {"benchmarks": ["lab/a"], "unlearn": {"base": "lab/large", "texts": 2, "learning_rate": 0.1}},
    "lab/masked": {"benchmarks": [], "masked": RECIPE | {"epochs": 1, "learning_rate": 0.1, "context_tokens": 4}},
}


@pytest.fixture
def take(tmp_path):
    """A function from a notebook's cells and the profile's parameters to what the page takes."""

    def needs(defaults, *cells, **parameters):
        code = [new_code_cell(defaults, metadata={"tags": ["parameters"]}), *map(new_code_cell, cells)]
        write(new_notebook(cells=[new_markdown_cell("lab/small"), *code]), tmp_path / "page.ipynb")
        book = [{"caption": "c", "pages": [{"notebook": "page", "parameters": parameters}]}]
        profile = Profile.model_validate(
            {"name": "p", "landing": {"page": "start"}, "book": book, "models": MODELS}
            | {"corpora": {"lab/a": TRAINED, "lab/b": CORPUS}}
        )
        return needs_of(profile.notebooks["page"], profile, tmp_path)

    return needs


def test_a_pages_models_and_modules_are_those_of_its_parameters_and_imports(take):
    assert take('models = "lab/small"', 'load("lab/large")').models == ("lab/small",), "names in parameters alone count"
    assert take('models = "lab/small"', models=["lab/large"]).models == ("lab/large",)
    assert take('models = "lab/small, lab/large"').models == ("lab/large", "lab/small")
    imports = "import mialib\nfrom replication import figures, pages\nfrom mialib.metrics import auc\n"
    assert take("x = 1", imports + "mialib.detect('ppl', stats)").modules == (
        "mialib.detectors",
        "mialib.metrics",
        "replication.figures",
        "replication.pages",
    )
    assert imported_modules("from mialib import auc, blind") == {"mialib.metrics", "mialib.blind"}


@pytest.mark.parametrize(
    ("defaults", "models"),
    [
        ('references = ["-", "lab/small"]', {"lab/small"}),
        ('masked = "lab/masked"', {"lab/masked"}),
        ('synthetic = "sampled:lab/large"', {"lab/large"}),
        ('models = "lab/small@1"', {"lab/small"}),
        ('models = "EleutherAI/pythia-70m"', set()),
    ],
)
def test_a_model_is_found_in_whichever_parameter_names_it(take, defaults, models):
    assert set(take(defaults).models) == models


def code_of(path):
    """The code of a notebook's cells but the parameters."""
    cells = nbformat.read(path, as_version=4).cells
    return [of.source for of in cells if of.cell_type == "code" and "parameters" not in of.metadata.get("tags", [])]


@pytest.mark.parametrize("name", ["lab", "recorded", "paper"])
def test_a_page_names_in_its_parameters_all_that_its_code_asks_for(name):
    profile = load_profile(ROOT / "data" / "profiles" / f"{name}.yml")
    for page in profile.notebooks.values():
        notebook = read_notebook(NOTEBOOKS / f"{page.notebook}.ipynb")
        of_page = build.names_in(build.strings_in(notebook.defaults | page.parameters))
        nodes = [of for code in code_of(NOTEBOOKS / f"{page.notebook}.ipynb") for of in ast.walk(ast.parse(code))]
        strings = {of.value for of in nodes if isinstance(of, ast.Constant) and isinstance(of.value, str)}
        asked = build.names_in(strings) & {*profile.models, *profile.corpora}
        assert asked <= of_page, page.notebook


def test_benchmarks_give_corpora_pairs_and_files(take, tmp_path):
    needs = take('models = "lab/large"\nbenchmarks = "lab/a:non_member~lab/b"')
    assert needs.corpora == ("lab/a", "lab/b") and needs.scored == ()
    needs = take('models = "lab/large"\nbenchmarks = ["lab/a", "lab/a~lab/b"]\ncorpora = "lab/a:30k"')
    assert needs.scored == (("lab/large", "lab/a"), ("lab/large", "lab/a~lab/b"))
    texts = tmp_path / "texts.jsonl"
    texts.write_text("")
    assert take("x = 1", benchmarks=f"{texts}, nowhere.jsonl").files == (str(texts),)
    with pytest.raises(ValueError):
        take("models = load()")


def test_a_page_takes_its_own_models_and_a_page_of_verdicts_all():
    of_page = {name: needs_of(page, LAB) for name, page in LAB.notebooks.items()}
    assert of_page["surp_figure_4"].scored == (("lab/en-900k", "lab/en"), ("lab/zh-400k", "lab/zh"))
    assert of_page["detectors_from_scratch"].models == ("lab/en-400k", "lab/en-900k"), "the editor has the second"
    assert of_page["registry"].models == ()
    assert {"lab/en-400k", "lab/en-masked"} <= set(of_page["probe_tables_2_3"].models)
    for name in ("claims", "index"):
        assert set(needs_of(LAB.notebooks[name], LAB).models) == set(LAB.models)
    assert "lab/zh-400k" not in needs_of(LAB.notebooks["blind_benchmarks"], LAB).models
    assert needs_of(LAB.notebooks["claims"], LAB).scored == (), "and waits for no score: its seeds are recorded"


def test_a_recipe_of_a_model_of_its_base_and_of_a_corpus_make_its_hash():
    def hash_with(models=(), corpora=()):
        changed = {"models": MODELS | dict(models), "corpora": {"lab/a": TRAINED, "lab/b": CORPUS} | dict(corpora)}
        profile = Profile.model_validate({"name": "p", "landing": {"page": "start"}, "book": []} | changed)
        return build.recipes_hash(profile, ["lab/forgetful"], ["lab/a"])

    wider = {"benchmarks": ["lab/a"], "train": RECIPE | {"hidden_size": 16}}
    assert hash_with() == hash_with(models={"lab/small": wider}) == hash_with(corpora={"lab/b": CORPUS | {"seed": 7}})
    assert len({hash_with(), hash_with({"lab/large": wider}), hash_with((), {"lab/a": TRAINED | {"seed": 7}})}) == 3


def test_another_package_file_or_corpus_to_be_apart_from_changes_the_hash(monkeypatch, tmp_path):
    (tmp_path / "mine.txt").write_text("one\n")
    mine = TRAINED | {"source": "file", "path": str(tmp_path / "mine.txt")}
    apart = CORPUS | {"source": "docstrings", "packages": ["networkx"], "language": "en", "apart_from": "lab/a"}

    def hash_of(name):
        corpora = {"lab/a": mine, "lab/b": apart}
        profile = Profile.model_validate({"name": "p", "landing": {"page": "start"}, "book": [], "corpora": corpora})
        return build.recipes_hash(profile, [], [name])

    before = hash_of("lab/a"), hash_of("lab/b")
    (tmp_path / "mine.txt").write_text("two\n")
    after = hash_of("lab/a"), hash_of("lab/b")
    assert before[0] != after[0] and before[1] != after[1]
    monkeypatch.setattr("replication.lab.corpora.version", lambda name: "0.1+cpu")
    assert hash_of("lab/b") != after[1]


def test_a_notebook_is_read_and_its_values_are_replaced_without_being_run(tmp_path):
    code = 'a = 1  # "one"\nb = [\n    "ä",\n    2,\n]  # two\nc = "x"'
    assert with_values(code, {"b": ["y"], "c": 3}) == "a = 1  # \"one\"\nb = ['y']  # two\nc = 3"
    cells = [
        new_code_cell('models = ["m"]\nn = -1', metadata={"tags": ["parameters", "hide-input"]}),
        new_code_cell('raise RuntimeError("never")'),
    ]
    write(new_notebook(cells=cells), tmp_path / "page.ipynb")
    source = read_notebook(tmp_path / "page.ipynb")
    assert source.defaults == {"models": ["m"], "n": -1} and source.modules == ()
