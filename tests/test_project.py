"""The project's own files: ranges, pins and the conda door agree, and the profile, notebooks and pages fit together."""

import ast
import re
import tomllib
from importlib import import_module

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mialib.book.profile import load_profile
from mialib.store import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.M))
PINS = {canonicalize_name(name): version for name, version in PINS.items()}
PROFILES = sorted((ROOT / "data" / "profiles").glob("*.yml"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("line", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
def test_every_range_is_pinned_and_holds_its_pin(line):
    requirement = Requirement(line)
    pin = PINS.get(canonicalize_name(requirement.name))
    assert pin, f"{requirement.name} is not in requirements.lock: run `make lock`"
    assert requirement.specifier.contains(pin), f"{line} does not admit the pinned {pin}: run `make lock`"


def test_lock_holds_pins_and_no_addresses():
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines), "not an exact pin"


def test_conda_environment_installs_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert pip == {"pip": ["--requirement requirements.lock", "--editable ."]}
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_source_notebook_is_clean_parameterized_and_short(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
    for cell in code:
        assert not cell.outputs and cell.execution_count is None, "outputs belong in build/, not in git"
        assert len(cell.source.splitlines()) <= 25, "logic belongs in mialib"
    assert notebook.cells[0].source.startswith("# "), "a page begins with its title"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_all_that_a_notebook_takes_from_mialib_is_there(path):
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    tree = list(ast.walk(ast.parse("\n".join(code))))
    modules = {}
    for node in tree:
        if not isinstance(node, ast.ImportFrom) or node.module.split(".")[0] != "mialib":
            continue
        for alias in node.names:
            if node.module == "mialib":
                modules[alias.asname or alias.name] = import_module(f"mialib.{alias.name}")
            else:
                assert hasattr(import_module(node.module), alias.name), f"{node.module} has no {alias.name}"
    for node in tree:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"mialib.{node.value.id} has no {node.attr}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_figure_has_caption_name_and_alt_text(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code" or not re.search(r"^figures\.(?!use_style)\w+\(", cell.source, re.M):
            continue
        figure = cell.metadata["mystnb"]
        assert figure["figure"]["caption"] and figure["figure"]["name"].startswith("fig-")
        assert len(figure["image"]["alt"]) > 40
