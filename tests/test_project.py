"""The project's own files: ranges, pins and the conda door agree, and the profile, notebooks and pages fit together."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from types import ModuleType

import nbformat
import pytest
import yaml
from clones import python_path
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
WITHOUT_METHOD = {"registry"}


RANGES = [line for project in (PROJECT, *OTHERS) for line in project["dependencies"]]
RANGES += [line for extra in PROJECT["optional-dependencies"].values() for line in extra]


@pytest.mark.parametrize("line", [line for line in RANGES if not line.startswith("mialib")])
def test_every_range_is_pinned_and_holds_its_pin(line):
    requirement = Requirement(line)
    pin = PINS.get(canonicalize_name(requirement.name))
    assert pin, f"{requirement.name} is not in requirements.lock: run `make lock`"
    assert requirement.specifier.contains(pin), f"{line} does not admit the pinned {pin}: run `make lock`"


def test_mialib_requires_little_and_each_extra_is_named_where_it_is_missing():
    assert len(PROJECT["dependencies"]) <= 14
    extras = PROJECT["optional-dependencies"]
    for package, extra in EXTRAS.items():
        distribution = {"google.protobuf": "protobuf"}.get(package, package)
        assert distribution in [Requirement(line).name for line in extras[extra]]
    assert set(extras) == {"dev", *EXTRAS.values()}


def test_lock_holds_pins_and_no_addresses():
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines), "not an exact pin"


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
def test_profile_names_pages_and_notebooks_that_exist(path):
    profile = load_profile(path)
    for page in profile.notebooks.values():
        assert (ROOT / "notebooks" / f"{page.notebook}.ipynb").is_file()
    for chapter in profile.book:
        for page in chapter.pages:
            assert page.notebook or (ROOT / "book" / f"{page.page}.md").is_file()


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_links_of_text_pages_lead_to_pages_of_every_book_they_stand_in(path):
    profile = load_profile(path)
    pages = [profile.landing, *(page for chapter in profile.book for page in chapter.pages)]
    there = {page.file for page in pages}
    for page in pages:
        if not page.notebook:
            text = (ROOT / "book" / f"{page.page}.md").read_text(encoding="utf-8")
            assert {link for link in re.findall(r"\]\(([a-z_/]+)\)", text)} <= there, page.file


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def tags(cell):
    return set(cell.metadata.get("tags", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_source_notebook_is_clean_and_parameterized(path):
    code = code_cells(path)
    assert ["parameters" in tags(cell) for cell in code] == [True] + [False] * (len(code) - 1)
    done = [n for n in ast.parse(code[1].source).body if not isinstance(n, ast.Import | ast.ImportFrom)]
    assert ast.unparse(done[0]) == "pages.begin()", "which checks the parameters before anything is done"
    for cell in code:
        assert not cell.outputs and cell.execution_count is None, "outputs belong in build/, not in git"
        assert not {tag for tag in tags(cell) if tag.startswith("remove-")}, "what is not the point folds: hide-input"
    assert nbformat.read(path, as_version=4).cells[0].source.startswith("# "), "a page begins with its title"


def names_bound(cells):
    """The names that cells bind at their top level: what a later cell may take from them."""
    tops = [node for cell in cells for node in ast.parse(cell.source).body]
    targets = [t for node in tops if isinstance(node, ast.Assign) for target in node.targets for t in ast.walk(target)]
    functions = {node.name for node in tops if isinstance(node, ast.FunctionDef)}
    return functions | {t.id for t in targets if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}


def names_read(cells):
    """The names that cells read."""
    nodes = [node for cell in cells for node in ast.walk(ast.parse(cell.source))]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_page_about_a_method_shows_it(path):
    method = [cell for cell in code_cells(path) if "method" in tags(cell)]
    others = [cell for cell in code_cells(path) if "method" not in tags(cell)]
    assert bool(method) != (path.stem in WITHOUT_METHOD), (
        "one visible cell at least, or an entry in the list of those without"
    )
    for cell in method:
        assert not {tag for tag in tags(cell) if tag.startswith("hide-")}, "a method stands in the open"
        lines = cell.source.splitlines()
        assert len(lines) <= 25 and max(map(len, lines)) <= 100, "a method fits on a blackboard"
        computes = ast.BinOp | ast.Compare | ast.Call
        assert any(isinstance(node, computes) for node in ast.walk(ast.parse(cell.source))), "a method computes"
    if method:
        assert names_bound(method) & names_read(others), "the page's numbers come from its method"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_text_takes_the_numbers_that_its_page_gives_it(path):
    cells = nbformat.read(path, as_version=4).cells
    used = {name: c for c in cells for name in re.findall(r"\{glue:text\}`(\w+)", c.source) if c.cell_type != "code"}
    calls = [
        node for cell in code_cells(path) for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)
    ]
    given = [word.arg for call in calls if ast.unparse(call.func) == "pages.glue" for word in call.keywords]
    assert sorted(given) == sorted(used), [used[name].source for name in used.keys() - set(given)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_all_that_a_notebook_takes_from_mialib_is_there(path):
    tree = list(ast.walk(ast.parse("\n".join(cell.source for cell in code_cells(path)))))
    objects = {"mialib": mialib}
    for node in tree:
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "mialib":
            for alias in node.names:
                objects[alias.asname or alias.name] = taken(node.module, alias.name)
    for node in tree:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of = objects.get(node.value.id)
            if of is mialib or isinstance(of, ModuleType):
                assert hasattr(of, node.attr), f"{of.__name__} has no {node.attr}"


def taken(module, name):
    """What `from module import name` binds."""
    if hasattr(import_module(module), name):
        return getattr(import_module(module), name)
    return import_module(f"{module}.{name}")


# Pages that need not say whether their benchmarks leak, and why.
WITHOUT_LEAK_NOTE = {
    "blind_benchmarks": "is about nothing else",
    "lab": "shows every blind baseline",
    "probe_table_1": "its AUC is of a blind classifier, and not of members",
    "two_sources": "prints the papers' numbers alone",
    "coverage": "its scores are drawn, and no benchmark's",
    "dc_pdd_table_1": "prints no AUC",
    "registry": "prints no AUC",
    "speed": "prints no AUC",
    "real_docstrings": "its table has every blind baseline",
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_page_that_prints_an_auc_says_whether_its_benchmarks_leak(path):
    shown = [tree.body[-1] for cell in code_cells(path) if (tree := ast.parse(cell.source)).body]
    calls = [node for end in shown for node in ast.walk(end) if isinstance(node, ast.Call)]
    says = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)} & {"leak_note", "summarize"}
    assert len(says) == (path.stem not in WITHOUT_LEAK_NOTE), "once, as a cell's output, or a reason why not"


def draws(tree):
    """Whether a cell calls a function of `figures` outside of what it defines."""
    nodes = [node for top in tree.body if not isinstance(top, ast.FunctionDef) for node in ast.walk(top)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return any(isinstance(f.value, ast.Name) and f.value.id == "figures" and f.attr != "use_style" for f in calls)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_figure_has_caption_name_and_alt_text(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code" or not draws(ast.parse(cell.source)):
            continue
        figure = cell.metadata["mystnb"]
        assert figure["figure"]["caption"] and figure["figure"]["name"].startswith("fig-")
        assert len(figure["image"]["alt"]) > 40


def test_the_page_of_the_library_has_every_public_name():
    page = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. (?:auto\w+|py:data):: mialib\.(\w+)$", page, re.M)
    assert sorted(documented) == sorted(mialib.__all__)


TRACKED = ("*.md", "*.toml", "*.yml", "*.yaml", "*.py", "*.ipynb", "Snakefile", "Makefile", "*.csv", "*.svg")


def test_every_module_and_file_of_mialib_that_is_named_is_there():
    if not (ROOT / ".git").exists():
        pytest.skip("no clone: what is the project's own is not known")
    command = ["git", "ls-files", *TRACKED, ":!tests", ":!CHANGELOG.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lost = []
    for name in listed.split("\n")[:-1]:
        text = (ROOT / name).read_text(encoding="utf-8")
        for path in re.findall(
            r"(?<![\w/.-])(?:mialib|audit/mialib_audit|book/replication)/[\w/]+\.(?:py|yml)\b", text
        ):
            lost += [] if (ROOT / path).is_file() else [f"{name}: {path}"]
        for dotted in re.findall(r"(?<![\w/.-])(?:mialib|mialib_audit|replication)(?:\.[a-z_]\w*)+", text):
            lost += [] if leads_somewhere(dotted) else [f"{name}: {dotted}"]
    assert not lost


def leads_somewhere(dotted):
    """Whether a dotted name is a module, or a name that one defines. `mialib.data` is a folder of the wheel alone."""
    package, *parts = dotted.split(".")
    file = FOLDERS[package]
    while parts and ((file / parts[0]).is_dir() or (file / f"{parts[0]}.py").is_file()):
        file /= parts.pop(0)
    if not parts or parts == ["data"]:
        return True
    source = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    defined = re.search(rf"^(?:(?:def|class) )?{parts[0]}\b", source, re.M)
    return bool(defined) or (file == ROOT / "mialib" and parts[0] in dir(mialib))


def test_the_picture_of_the_house_has_every_room():
    drawn = set(
        re.findall(r'<text class="(?:name|file)"[^>]*>(\w+)<', (ROOT / "book" / "figures" / "house.svg").read_text())
    )
    folders = {path.parent.name for path in (ROOT / "mialib").glob("*/__init__.py")}
    assert drawn == FOLDERS.keys() | folders | {path.stem for path in (ROOT / "mialib").glob("*.py")} - {"__init__"}


WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text())


def test_the_workflow_runs_the_readmes_commands_and_only_those_of_the_makefile():
    steps = [step.get("run", "") for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert {"make test", "make book"} <= set(steps)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {step.removeprefix("make ") for step in steps if step.startswith("make ")} <= targets
    assert set(WORKFLOW[True]) == {"push", "pull_request", "schedule", "workflow_dispatch"}, "YAML reads `on` as true"
    for job in ("publish", "release"):
        assert WORKFLOW["jobs"][job]["needs"] == "book", "nothing is published that was not tested"


def test_the_workflows_check_fails_where_a_page_is_missing_or_empty(tmp_path):
    [command] = [step["run"] for step in WORKFLOW["jobs"]["book"]["steps"] if "check_pages" in step.get("run", "")]
    code = re.fullmatch(r'\.venv/bin/python -c "(.*)"', command)[1]
    lab = load_profile(ROOT / "data" / "profiles" / "lab.yml")
    files = {page["file"] for part in lab.table_of_contents()["parts"] for page in part["chapters"]}
    files |= {lab.landing.file, "index"}

    def check():
        environment = os.environ | {"HTML": str(tmp_path), "PYTHONPATH": python_path()}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    for file in files:
        (tmp_path / f"{file}.html").parent.mkdir(exist_ok=True)
        (tmp_path / f"{file}.html").write_text("<h1>")
    assert f"all {len(files)} pages" in check().stdout
    (tmp_path / "index.html").write_text("")
    done = check()
    assert done.returncode == 1 and f"1 of {len(files)} pages are missing or empty" in done.stderr


def test_the_container_files_name_what_is_there():
    container = (ROOT / "Containerfile").read_text()
    developing = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    python = re.search(r"^FROM python:([\d.]+)-slim$", container, re.M)[1]
    assert developing["image"] == f"python:{python}" and f">={python}" == PROJECT["requires-python"]
    makefile = (ROOT / "Makefile").read_text()
    for command in (*re.findall(r"^RUN (make .*)", container, re.M), developing["postCreateCommand"]):
        assert command == "make .venv/installed" and "INSTALLED = .venv/installed" in makefile
    assert 'CMD ["make", "book"]' in container
    ignored = (ROOT / ".gitignore").read_text()
    for line in (ROOT / ".dockerignore").read_text().split():
        assert line.removeprefix("**/") in ignored, f"{line}: only what is generated is left out"
