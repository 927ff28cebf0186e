"""Installed from a wheel, without a clone: the same commands, choices and numbers as in the clone."""

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import time
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest
import release

from mialib.commands.packages import PACKAGE_OF
from mialib.store import PACKAGE, ROOT
from replication.pipeline import theme
from replication.pipeline.code import FOLDERS

pytestmark = pytest.mark.slow
PRINT_CHOICES = """
import json, os, torch
from mialib import store
from replication import BOOK_DATA
from replication.claims.spec import load_claims
from replication.profile import load_profile
from replication.published import load_published
from mialib.catalog.sources import find
from mialib.catalog.registry import known_benchmarks, known_models
from replication.lab.patents import generate_patents
from replication.lab.recipes import load_recipes

cuda = torch.device("cuda")
del os.environ["MIALIB_HOME"]
print(json.dumps({
    "package": str(store.PACKAGE),
    "home": str(store.home()),
    "models": {
        name: [known.model_dump(), known.billions and str(find(name).dtype_on(cuda)), find(name).start_token()]
        for name, known in known_models().items()
    },
    "benchmarks": {name: known.model_dump() for name, known in known_benchmarks().items()},
    "published": load_published().to_csv(),
    "recipes": load_recipes().model_dump_json(),
    "claims": load_claims().model_dump_json(),
    "paper": load_profile(BOOK_DATA / "profiles" / "paper.yml").model_dump_json(),
    "patent": generate_patents(1, seed=0),
}))
"""


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
MIALIB = {"detect", "detectors", "blind", "score", "fetch"}
MAIN = "from mialib.commands import main; main()"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels, by the packages' names."""
    folder = tmp_path_factory.mktemp("wheels")
    try:  # the build's own needs are at hand, or are downloaded
        isolated = [] if int(version("setuptools").partition(".")[0]) < 77 else ["--no-build-isolation"]
    except ModuleNotFoundError:
        isolated = []
    sources = [str(ROOT / package) for package in ("", "audit", "book")]
    subprocess.run([*PIP, "wheel", *sources, "--no-deps", *isolated, "--wheel-dir", str(folder)], check=True)
    found = {path.name.partition("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}
    assert found["mialib"].stat().st_size < 1_000_000
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheels):
    """A folder that holds what the wheels hold, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([*PIP, "install", "--no-deps", "--target", str(folder), *map(str, wheels.values())], check=True)
    return folder


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """A folder of all that is installed but our packages."""
    folder = tmp_path_factory.mktemp("libraries")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "mialib" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize("n", [1, 3])
def test_help_lists_what_is_installed_and_a_missing_command_says_what_to_install(n, wheels, libraries, tmp_path):
    packages = ["mialib", "mialib-audit", "mialib-replication"][:n]
    for package in packages:
        ZipFile(wheels[package]).extractall(tmp_path / package)
    path = os.pathsep.join([*(str(tmp_path / package) for package in packages), str(libraries)])

    def run(*arguments):
        command = [sys.executable, "-S", "-c", MAIN, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
        )

    listed = set(re.findall(r"^  ([a-z-]+)  ", run("--help").stdout, re.M)) - {"--help", "--version"}
    assert listed == MIALIB | {name for name, package in PACKAGE_OF.items() if package in packages}
    for name in ("audit", "canaries", "lab", "view", "plan"):
        done = run(name, "--help")
        assert done.returncode == (0 if name in listed else 2), done.stderr
        assert name in listed or PACKAGE_OF[name] in done.stderr


@pytest.fixture
def run(installed, tmp_path):
    """A function that runs a command from a folder of its own: from the wheel, or from the clone."""

    def run_from(source, *arguments):
        where = tmp_path / source
        where.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MIALIB_")}
        environment |= {
            "PYTHONPATH": str(installed)
            if source == "wheel"
            else os.pathsep.join(str(ROOT / package) for package in ("", "audit", "book"))
        }
        environment |= {"HOME": str(where), "MIALIB_HOME": str(where / "kept")}
        return subprocess.run(
            [sys.executable, *map(str, arguments)], cwd=where, env=environment, capture_output=True, text=True
        )

    return run_from


@pytest.fixture
def mialib(installed, run):
    """A function that runs `mialib` with arguments and returns its result from the wheel, then from the clone."""
    script = installed / "bin" / "mialib"
    return lambda *arguments: [run(source, script, *arguments) for source in ("wheel", "clone")]


def test_a_releases_files_are_complete(tmp_path, monkeypatch):
    """The wheels are built from the sdists, so what they hold is in these."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    if int(version("setuptools").partition(".")[0]) < 77 or not (ROOT / ".git").exists():
        pytest.skip("needs a clone, and setuptools 77, which `make release` installs")
    monkeypatch.chdir(tmp_path)
    made = release.build(Path("once"))
    wheels = {path.name.partition("-")[0]: set(ZipFile(path).namelist()) for path in made if path.suffix == ".whl"}
    assert wheels.keys() == {"mialib", "mialib_audit", "mialib_replication"}
    [wheel] = (tmp_path / "once").glob("mialib-*.whl")
    shown = ZipFile(wheel).read(f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info/METADATA").decode()
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert links and all(link.startswith("https://") for link in links), "the package index shows no others"
    assert "](https://github.com/owner/name/raw/HEAD/book/figures/token_view.png)" in shown
    assert "mialib/data/models.yml" in wheels["mialib"]
    assert "replication/data/claims.yml" in wheels["mialib_replication"]
    assert all(any(name.endswith("licenses/LICENSE") for name in names) for names in wheels.values())


def same_output(results):
    wheel, clone = results
    assert wheel.returncode == clone.returncode == 0, wheel.stderr + clone.stderr
    assert wheel.stdout == clone.stdout
    return wheel.stdout


def test_the_wheels_hold_every_module_and_template(installed):
    def files(package):
        kinds = (".py", ".yml", ".css", ".html", ".md", ".txt")
        return {path.relative_to(package) for path in package.rglob("*") if path.suffix in kinds}

    for name, package in FOLDERS.items():
        of_wheel = files(installed / name)
        assert {path for path in of_wheel if path.parts[0] != "data"} == files(package), name
    data = [{p.relative_to(of) for p in of.rglob("*.*")} for of in (ROOT / "data", installed / "replication" / "data")]
    assert data[0] == data[1]


def test_registries_published_numbers_and_recipes_are_the_clones(run, installed, tmp_path):
    wheel, clone = (json.loads(run(source, "-c", PRINT_CHOICES).stdout) for source in ("wheel", "clone"))
    assert wheel.pop("package") == str(installed / "mialib") and clone.pop("package") == str(PACKAGE)
    assert wheel.pop("home") == str(tmp_path / "wheel" / ".cache" / "mialib") and clone.pop("home") == str(
        ROOT / "build"
    )
    assert wheel == clone and len(wheel["models"]) > 30 and len(wheel["benchmarks"]) > 5


@pytest.fixture
def texts_file(tmp_path):
    path = tmp_path / "texts.jsonl"
    rows = [{"text": f"The stone number {i} stands near the river", "label": i % 2} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_each_command_gives_the_clones_numbers(mialib, model_folder, texts_file, tmp_path):
    known = tmp_path / "known.txt"
    known.write_text("".join(f"The letter number {i} stands near the mill\n" for i in range(25)))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"The window number {i} stands near the forest\n" for i in range(25)))
    given = ["--model", model_folder, "--corpus", corpus]
    out = same_output(mialib("detect", texts_file, *given, "--calibrate", known, "--json"))
    assert {"ppl", "min_k++", "surp", "dc_pdd", "p_values"} <= json.loads(out.splitlines()[0]).keys()
    same_output(mialib("view", texts_file, *given, "-o", "page.html"))
    pages = [(tmp_path / source / "page.html").read_text() for source in ("wheel", "clone")]
    assert pages[0] == pages[1] and "mv-strip" in pages[0]
    assert "40 texts" in same_output(mialib("score", model_folder, texts_file))
    assert "tf-idf" in same_output(mialib("blind", texts_file))


def test_the_first_two_commands_on_the_lab_give_the_clones_numbers_within_seconds(mialib, tmp_path):
    """The lab comes along: nothing is trained or fetched."""
    began = time.monotonic()
    rows = [json.loads(line) for line in same_output(mialib("lab", "texts", "lab/en", "--sample", "30")).splitlines()]
    assert sum(row["label"] for row in rows) == 15 and len(rows) == 30
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = same_output(mialib("detect", tmp_path / "texts.jsonl", "--model", "lab/en-25k", "--corpus", "lab/en"))
    assert "AUC [95% interval] of 15 members and 15 non-members" in found and "dc_pdd" in found
    assert time.monotonic() - began < 120  # of four processes; 30 seconds for two


@pytest.fixture
def papermill(run, tmp_path):
    """A function that runs a page's download by papermill, without a clone and in an empty folder."""

    def run_download(name, *arguments):
        (tmp_path / "wheel").mkdir()
        notebook = theme.downloaded((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
        (tmp_path / "wheel" / f"{name}.ipynb").write_text(notebook, encoding="utf-8")
        done = run("wheel", "-m", "papermill", f"{name}.ipynb", "out.ipynb", *arguments)
        assert done.returncode == 0, done.stderr[-2000:]
        [results] = (tmp_path / "wheel" / "kept").rglob(f"{name}.json")
        out = (tmp_path / "wheel" / "out.ipynb").read_text(encoding="utf-8")
        outputs = [str(cell.get("outputs")) for cell in json.loads(out)["cells"]]
        assert sum("Not answered yet" in of for of in outputs) == notebook.count("except NotImplementedError") > 0
        assert '<div class=\\"ms\\"' in out, "its slider is there"
        return results.read_text(encoding="utf-8")  # they lie where mialib keeps what it computes

    return run_download


def test_the_books_example_of_a_download_runs(papermill, model_folder, texts_file):
    text = (ROOT / "book" / "how_to_read.md").read_text(encoding="utf-8")
    [(name, options)] = re.findall(r"^papermill (\w+)\.ipynb out\.ipynb (.*?) *(?:#.*)?$", text, re.M)
    meant = {"FOLDER_OR_HUB_NAME": model_folder, "texts.jsonl": texts_file}
    assert model_folder in papermill(name, *(meant.get(word, word) for word in shlex.split(options)))
