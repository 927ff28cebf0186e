"""The project's own files: ranges, pins and the conda door agree, and the profile, notebooks and pages fit together."""

import ast
import re
import subprocess
import tomllib
from functools import cache

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import mialib
from mialib.extras import EXTRAS
from mialib.store import ROOT
from replication.pipeline.code import FOLDERS
from replication.profile import load_profile

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHERS = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("audit", "book")]
PINS = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.M))
PINS = {canonicalize_name(name): version for name, version in PINS.items()}
PROFILES = sorted((ROOT / "data" / "profiles").glob("*.yml"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Pages that tabulate or point elsewhere; every other one is about a method or a statistic.
WITHOUT_METHOD = {"index", "registry"}


RANGES = [line for project in (PROJECT, *OTHERS) for line in project["dependencies"]]
# wordfreq, 57 MB, is read to record how often tokens occur, and by no build.
EXTRAS_OF_A_BUILD = [extra for name, extra in PROJECT["optional-dependencies"].items() if name != "wordfreq"]
RANGES += [line for extra in EXTRAS_OF_A_BUILD for line in extra]


def test_every_range_is_pinned_and_holds_its_pin():
    for line in [line for line in RANGES if not line.startswith("mialib")]:
        requirement = Requirement(line)
        pin = PINS.get(canonicalize_name(requirement.name))
        assert pin and requirement.specifier.contains(pin), f"{line}, pinned at {pin}: run `make lock`"


def test_a_floor_is_a_version_that_was_tried():
    tried = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8"), re.M))
    extras = [
        line
        for name in set(PROJECT["optional-dependencies"]) - {"dev", "wordfreq"}
        for line in PROJECT["optional-dependencies"][name]
    ]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        [floor] = [of for of in requirement.specifier if of.operator != "!="]  # a single version that is wrong
        version = Version(tried[requirement.name])
        is_on_gpu = requirement.name == "torch"  # data/recorded/gpu.json
        assert floor.operator == ">=" and (Version(floor.version) == version or is_on_gpu), requirement


def test_mialib_requires_little_and_each_extra_is_named_where_it_is_missing():
    assert len(PROJECT["dependencies"]) <= 14
    extras = PROJECT["optional-dependencies"]
    for package, extra in EXTRAS.items():
        distribution = {"google.protobuf": "protobuf"}.get(package, package)
        assert distribution in [Requirement(line).name for line in extras[extra]]
    assert set(extras) == {"dev", *EXTRAS.values()}


def test_the_version_is_in_one_place_and_what_names_it_agrees():
    assert all(project.get("dynamic") == ["version"] and "version" not in project for project in OTHERS)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.findall(r"^## ([\d.]+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[0]
    assert (cited["version"], str(cited["date-released"])) == released == (PROJECT["version"], released[1])
    licences = {(ROOT / folder / "LICENSE").read_bytes() for folder in ("", "audit", "book")}
    assert len(licences) == 1, "each archive has its own copy"


def test_conda_environment_installs_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert pip == {
        "pip": ["--requirement requirements.lock", "--editable .", "--editable ./audit", "--editable ./book"]
    }
    python = Requirement(conda[0])
    assert python.name == "python" and python.specifier.contains("3.11")
    assert PROJECT["requires-python"] == ">=3.11"


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_a_profiles_pages_exist_and_links_of_its_text_pages_lead_to_them(path):
    profile = load_profile(path)
    pages = [profile.landing, *(page for chapter in profile.book for page in chapter.pages)]
    for page in pages:
        if page.notebook:
            assert (ROOT / "notebooks" / f"{page.notebook}.ipynb").is_file()
            continue
        text = (ROOT / "book" / f"{page.page}.md").read_text(encoding="utf-8")
        assert not re.search("^`+{(table|dropdown|glossary)}", text, re.M), "such a fence hides its content on GitHub"
        assert set(re.findall(r"\]\(([a-z_/]+)(?:\.md)?\)", text)) <= {page.file for page in pages}, page.file


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def tags(cell):
    return set(cell.metadata.get("tags", []))


def draws(tree):
    """Whether a cell calls a function of `figures` outside of what it defines."""
    nodes = [node for top in tree.body if not isinstance(top, ast.FunctionDef) for node in ast.walk(top)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return any(
        isinstance(f.value, ast.Name) and f.value.id == "figures" and f.attr not in ("use_style", "in_words")
        for f in calls
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_source_notebook_is_clean_its_method_open_and_its_figures_said_in_words(path):
    code = code_cells(path)
    assert ["parameters" in tags(cell) for cell in code] == [True] + [False] * (len(code) - 1)
    is_landing = path.stem == "index"  # which shows no code
    assert tags(code[0]) - ({"hide-input"} if is_landing else set()) == {"parameters"}, "they are in the open"
    done = [n for n in ast.parse(code[1].source).body if not isinstance(n, ast.Import | ast.ImportFrom)]
    assert ast.unparse(done[0]) == "pages.begin()", "which checks the parameters before anything is done"
    for cell in code:
        assert not cell.outputs and cell.execution_count is None, "outputs belong in build/, not in git"
        assert not {tag for tag in tags(cell) if tag.startswith("remove-")}, "what is not the point folds: hide-input"
        is_folded = bool({"hide-input", "hide-cell"} & tags(cell))
        assert not is_folded or "solution" in tags(cell) or cell.source.startswith("# "), "a fold says what it holds"
        if "method" in tags(cell):
            lines = cell.source.splitlines()
            assert not is_folded and len(lines) <= 25 and max(map(len, lines)) <= 100, "a method fits on a blackboard"
        if draws(ast.parse(cell.source)):
            shown = cell.metadata["mystnb"]
            assert shown["figure"]["caption"] and shown["figure"]["name"].startswith("fig-")
            assert len(shown["image"]["alt"]) > 40
    has_method = any("method" in tags(cell) for cell in code)
    assert has_method != (path.stem in WITHOUT_METHOD), "a visible cell, or an entry in the list of those without"
    assert nbformat.read(path, as_version=4).cells[0].source.startswith("# "), "a page begins with its title"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_text_takes_the_numbers_that_its_page_gives_it(path):
    cells = nbformat.read(path, as_version=4).cells
    used = {
        name: c for c in cells for name in re.findall(r"\{glue(?::text)?\}[` ](\w+)", c.source) if c.cell_type != "code"
    }
    calls = [
        node for cell in code_cells(path) for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)
    ]
    given = [word.arg for call in calls if ast.unparse(call.func) == "pages.glue" for word in call.keywords]
    assert sorted(given) == sorted(used), [used[name].source for name in used.keys() - set(given)]


# Pages that need not say whether their benchmarks leak, and why.
WITHOUT_LEAK_NOTE = {
    "blind_benchmarks": "is about nothing else",
    "lab": "shows every blind baseline",
    "index": "its figure has the word counter on each",
    "probe_table_1": "its AUC is of a blind classifier, and not of members",
    "two_sources": "prints the papers' numbers alone",
    "coverage": "its scores are drawn, and no benchmark's",
    "dc_pdd_table_1": "prints no AUC",
    "registry": "prints no AUC",
    "speed": "prints no AUC",
    "real_docstrings": "its table has every blind baseline",
    "recitation": "prints no AUC",
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_page_that_prints_an_auc_says_whether_its_benchmarks_leak(path):
    shown = [tree.body[-1] for cell in code_cells(path) if (tree := ast.parse(cell.source)).body]
    calls = [node for end in shown for node in ast.walk(end) if isinstance(node, ast.Call)]
    says = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)} & {"leak_note", "summarize"}
    assert len(says) == (path.stem not in WITHOUT_LEAK_NOTE), "once, as a cell's output, or a reason why not"


def test_the_page_of_the_library_has_every_public_name():
    page = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    documented = re.findall(r"^ +\.\. (?:auto\w+|py:data):: mialib\.(\w+)$", page, re.M)
    assert sorted(documented) == sorted(mialib.__all__)


def test_every_module_and_file_that_is_named_is_there():
    if not (ROOT / ".git").exists():
        pytest.skip("no clone: what is the project's own is not known")
    kinds = ("*.md", "*.toml", "*.yml", "*.yaml", "*.py", "*.ipynb", "Snakefile", "Makefile", "*.svg")
    command = ["git", "ls-files", *kinds, ":!tests", ":!CHANGELOG.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    folders, packages, lost = "mialib|audit/mialib_audit|book/replication", "mialib|mialib_audit|replication", []
    for name in listed:
        text = (ROOT / name).read_text(encoding="utf-8")
        paths = re.findall(rf"(?<![\w/.-])(?:{folders})/[\w/]+\.(?:py|yml)\b", text)
        lost += [(name, path) for path in paths if not (ROOT / path).is_file()]
        dotted = re.findall(rf"(?<![\w/.-])(?:{packages})(?:\.[a-z_]\w*)+", text)
        lost += [(name, of) for of in dotted if not of.endswith(".data") and not leads_somewhere(of)]
    assert not lost


@cache
def leads_somewhere(dotted):
    """Whether a dotted name is a module, or a name that one defines; nothing is imported, for lack of Triton."""
    package, *parts = dotted.split(".")
    file = FOLDERS[package]
    while parts and ((file / parts[0]).is_dir() or (file / f"{parts[0]}.py").is_file()):
        file /= parts.pop(0)
    source = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    is_defined = parts and re.search(rf"^(?:(?:def|class) )?{parts[0]}\b", source, re.M)
    return not parts or bool(is_defined) or (package == "mialib" and parts[0] in dir(mialib))


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem not in {"index", "speed"}], ids=lambda p: p.stem)
def test_a_page_that_asks_is_answered_in_words_and_ends_with_what_to_remember(path):
    first, *others = nbformat.read(path, as_version=4).cells
    answer = [of for of in first.source.split("\n\n") if of.startswith("**The answer.**")]
    has_verdict = any("claims.answer(" in cell.source for cell in others)
    asks = "?" in first.source.partition("**The answer.**")[0]
    assert answer or has_verdict or not asks
    assert not re.search(r"\b(?:lab|recorded)/|`[a-z]+(?:-[a-z]+)+`", "".join(answer)), "no internal name in an answer"
    title, *lines = others[-1].source.split("\n\n", 1)
    assert title == "## What to remember" and 1 <= lines[0].count("\n") + 1 <= 3
