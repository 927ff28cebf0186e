"""What a finished build found, from its results: the papers' tables and figures, a status page, a replication report.

    write_lists    the lists that pages of the book include: printed items, figures, and notebooks with run times
    report         the replication report, in the form that journals ask for

The ledger is what the claims' page wrote: each comparison with its interval, and each verdict.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mialib.store import ROOT, atomic_path
from replication.claim_tests import Claim, load_claims
from replication.claims import VERDICT
from replication.pipeline.notebooks import NOTEBOOKS, read_notebook
from replication.pipeline.slides import figures_of
from replication.profile import Profile
from replication.published import PAPERS, load_published
from replication.results import DASH, SMALLEST, VERDICTS, Result, load_results, verdict
from replication.tables import markdown_table

LISTS = ("_papers_tables.md", "_figures.md", "_status.md")  # in book/pages/, included by pages of text
NOT_RUN = "not run in this build"


@dataclass(frozen=True)
class PrintedItem:
    """A table or figure that a paper prints."""

    paper: str
    item: str  # "Table 1", "Figure 3a"
    pages: tuple[str, ...] = ()  # of the profile


@dataclass(frozen=True)
class Judged:
    """A claim's test in one setting, as the build's ledger has it."""

    claim: Claim
    setting: str
    differences: tuple[Result, ...]
    verdict: str


# --- what there is ---


def printed_items(profile: Profile) -> list[PrintedItem]:
    """Every table and figure of the papers with the profile's pages that replicate it, in the papers' order.

    These are the items of data/published.csv, and those that a notebook says its results are of (a figure without
    printed numbers has none there).
    """
    pages: dict[tuple[str, str], list[str]] = {}
    for name, page in profile.notebooks.items():
        for key in _replicates(NOTEBOOKS / f"{page.notebook}.ipynb", page.parameters):
            pages.setdefault(key, []).append(name)
    for paper, item in load_published()[["paper", "item"]].drop_duplicates().itertuples(index=False):
        for title in _titles(item):
            # The csv has Figure 3, whose halves 3a and 3b have a page each.
            if not any(p == paper and i.startswith(title) and i[len(title) :] in ("", "a", "b") for p, i in pages):
                pages[paper, title] = []
    order = list(PAPERS)
    keys = sorted((key for key in pages if key[0] in PAPERS), key=lambda key: (order.index(key[0]), _place(key[1])))
    return [PrintedItem(*key, tuple(pages[key])) for key in keys]


def _replicates(path: Path, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The papers' items that a notebook saves its results as: (paper, title)."""
    given = read_notebook(path).defaults | parameters
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "results.save":
                said = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
                items = given.get("items") or {}
                named = [said["item"]] if "item" in said else list(items.values() if isinstance(items, dict) else items)
                paper = said.get("paper", given.get("paper"))
                return [(paper, title) for item in named for title in _titles(item)]
    return []


def _titles(item: str) -> list[str]:
    """ "tables 2 and 3" or "table-2" as titles; of anything else none."""
    found = re.fullmatch(r"(table|figure)s?[ -](\w+)(?: and (\w+))?", item)
    return [f"{found[1].title()} {number}" for number in found.groups()[1:] if number] if found else []


def _place(title: str) -> tuple[bool, int, str]:
    kind, number = title.split()
    return kind == "Figure", int(re.match(r"\d+", number)[0]), number


def read_ledger(path: Path) -> list[Judged]:
    """The verdicts of a build's claims page; none where it has not run. Former tests are left out."""
    if not path.is_file():
        return []
    found, known = load_results(path), {claim.id: claim for claim in load_claims().claims}
    judged = []
    for result in found:
        if result.metric == VERDICT and result.row in known:
            begins = f"{result.column}, comparison "
            of_test = [r for r in found if r.row == result.row and r.column.startswith(begins)]
            judged.append(Judged(known[result.row], result.column, tuple(of_test), result.why))
    return judged


def count_verdicts(judged: Iterable[Judged]) -> str:
    """ "3 supported, 1 inconclusive", or a dash."""
    counts = Counter(j.verdict for j in judged)
    return ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name]) or DASH


def command(page: str, profile: Profile) -> str:
    """The papermill command that runs a page with the profile's parameters, from the root of a clone."""
    of = profile.notebooks[page]
    words = [".venv/bin/papermill", f"notebooks/{of.notebook}.ipynb", "out.ipynb"]
    for name, value in of.parameters.items():
        if isinstance(value, dict):
            words += ["-y", shlex.quote(json.dumps({name: value}))]
        else:
            words += ["-p", name, shlex.quote(",".join(map(str, value)) if isinstance(value, list) else str(value))]
    return " ".join(words)


# --- the lists in the book ---


def papers_tables(profile: Profile, build: Path) -> str:
    """Markdown, a section a paper: of each printed table and figure its page, verdicts, status and notebook; commands.

    The verdicts stand before the status, so that a phone shows them without scrolling sideways.
    """
    ledger, items, parts = read_ledger(build / "results" / "claims.json"), printed_items(profile), []
    for paper, title in PAPERS.items():
        rows: list[list[str]] = []
        commands: dict[str, list[str]] = {}
        for one in (one for one in items if one.paper == paper):
            if not one.pages:
                rows.append([one.item, DASH, "published numbers only", DASH])
            for page in one.pages:
                notebook = profile.notebooks[page].notebook
                ids = read_notebook(NOTEBOOKS / f"{notebook}.ipynb").strings
                said = count_verdicts(j for j in ledger if j.claim.id in ids)
                status = "replicated" if (build / "results" / f"{page}.json").is_file() else NOT_RUN
                rows.append([f"[{one.item}](pages/{page})", said, status, f"`{notebook}`"])
                commands.setdefault(page, []).append(one.item)
        parts.append(
            f"## {title}\n\n{markdown_table(['printed', 'verdicts of its claims', 'status', 'notebook'], rows)}"
        )
        if commands:
            each = [f"# {', '.join(of_page)}\n{command(page, profile)}" for page, of_page in commands.items()]
            code = "\n\n".join(each)
            parts.append(f"````{{dropdown}} Commands: {title}\n```bash\n{code}\n```\n````")
    return "\n\n".join(parts) + "\n"


def own_figures(names: Iterable[str], pages: Path) -> str:
    """Markdown: the figures of pages in the order given, each with its number and a link, its page, what it shows."""
    rows = []
    for name in names:
        path = pages / f"{name}.ipynb"
        for figure in figures_of(path) if path.is_file() else []:
            first = re.split(r"(?<=[.?!]) ", figure.caption)[0]
            rows.append([f"{{numref}}`%s <{figure.name}>`", f"[](pages/{name})", first])
    return markdown_table(["figure", "page", "shows"], rows) + "\n"


def status(profile: Profile, build: Path, pages: Path) -> str:
    """Markdown: how long each notebook ran and when, and the versions of Python and the libraries."""
    rows, versions, seconds = [], {}, 0.0
    for name in profile.notebooks:
        path, results = pages / f"{name}.ipynb", build / "results" / f"{name}.json"
        ran = json.loads(path.read_text(encoding="utf-8"))["metadata"] if path.is_file() else {}
        took, end = (ran.get("papermill", {}).get(key) for key in ("duration", "end_time"))
        if took is None:
            rows.append([f"[](pages/{name})", NOT_RUN, DASH])
        else:
            seconds += took
            rows.append([f"[](pages/{name})", f"{took:.1f}", f"{end[:16].replace('T', ' ')} UTC"])
            versions.setdefault("python", set()).add(ran.get("language_info", {}).get("version", DASH))
        used = json.loads(results.read_text(encoding="utf-8")).get("versions", {}) if results.is_file() else {}
        for library, version in used.items():
            versions.setdefault(library, set()).add(version)
    libraries = [[name, ", ".join(sorted(found))] for name, found in versions.items()]
    of_pages = markdown_table(["page", "run time (s)", "finished"], rows)
    of_libraries = markdown_table(["library", "version"], libraries)
    return f"{of_pages}\n\nAll notebooks together: {seconds / 60:.1f} minutes.\n\n{of_libraries}\n"


def write_lists(profile: Profile, build: Path, pages: Path, page: str = "") -> None:
    """Write the lists that pages of the book include, into `pages`, before it, or one page of it, is rendered."""
    figures = own_figures([page] if page else profile.notebooks, pages)  # others have no number in a book of one page
    lists = papers_tables(profile, build), figures, status(profile, build, pages)
    for name, text in zip(LISTS, lists, strict=True):
        pages.mkdir(parents=True, exist_ok=True)
        with atomic_path(pages / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


# --- the report ---


def report(profile: Profile, build: Path) -> str:
    """The replication report in Markdown; ValueError where the claims page has not run."""
    ledger_file = build / "results" / "claims.json"
    ledger = read_ledger(ledger_file)
    if not ledger:
        raise ValueError(f"{ledger_file} holds no verdicts: run `mialib build` first")
    versions = json.loads(ledger_file.read_text(encoding="utf-8"))["versions"]
    claims = load_claims()
    n_claims = len({j.claim.id for j in ledger})
    items = printed_items(profile)
    replicated = [one for one in items if any((build / "results" / f"{p}.json").is_file() for p in one.pages)]
    parts = [
        "# Replication report",
        "## Scope",
        "Four papers on detecting whether a text was in a language model's training data: "
        f"{', '.join(PAPERS.values())}. Profile `{profile.name}`: "
        f"{len(replicated)} of {len(items)} printed tables and figures are "
        "replicated, and "
        f"{n_claims} claims are tested in {len(ledger)} places (a claim in a setting). {len(claims.untested)} further "
        "claims are not tested; the last section says why.",
        "## Method",
        "Each claim is a comparison of two AUCs (or TPRs at 5% FPR) on the same texts, in the lab's models, "
        "whose members a random number generator chose. The interval (95%) covers the draw of texts and of three "
        "training seeds. *Tolerance* is the margin of an equality, or the smallest difference that matters. "
        "*Deviation* is our difference minus the smallest lead that the paper prints, where it prints one; the models "
        "and texts differ, so it measures no error. The verdict rests on the interval and the tolerance alone.",
        "Software: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "## Results",
        f"{count_verdicts(ledger)}.",
    ]
    for paper in dict.fromkeys(j.claim.paper for j in ledger):
        rows = [row for j in ledger if j.claim.paper == paper for row in _rows(j)]
        head = ["claim", "published", "setting", "ours [95%]", "tolerance", "deviation", "verdict"]
        parts += [f"### {PAPERS.get(paper, paper)}", markdown_table(head, rows)]
    parts += [
        "### Numbers printed beside ours",
        "The lab's models are not the papers', so the heights of these numbers can't be compared: the deviation says "
        "how far apart they are, and *inside* that the published number lies in our interval.",
        _numbers(profile, build),
        "## What was easy",
        "The detectors are functions of a few numbers a token, so one forward pass serves all of them and every "
        "hyperparameter. The papers give their main equations and default values.",
        "## What was hard",
        "The papers leave choices open (the start token, how many tokens k% are, on which texts hyperparameters were "
        "chosen), which the page on these choices measures. Their benchmarks are split by date, and can be told apart "
        "without a model. Membership in the papers' own models is not known for certain, so models had to be trained.",
        "## What is not tested",
        "\n".join(f"- {PAPERS.get(one.paper, one.paper)}: {one.claim} *{one.why}*" for one in claims.untested),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(judged: Judged) -> list[tuple[str, ...]]:
    """A row for each comparison of a test with its own verdict; what they share, the claim's among it, in the first."""
    claim, rows = judged.claim, []
    sides = claim.at(judged.setting).against
    for i, (result, side) in enumerate(zip(judged.differences, sides, strict=True)):
        effect = getattr(side, "effect", None)
        name = side if isinstance(side, str) else side.detector
        tolerance = f"±{claim.margin or claim.matters or SMALLEST:g}"
        deviation = DASH if effect is None else f"{result.ours - effect:+.3f}"
        own = verdict(result.interval, claim.margin, claim.matters or SMALLEST)
        stated = f"{claim.claim} **{judged.verdict}**"
        shared = (stated, claim.published, judged.setting) if i == 0 else ("", "", "")
        rows.append((*shared, f"against {name}: {result.interval}", tolerance, deviation, own))
    return rows


def _numbers(profile: Profile, build: Path) -> str:
    rows = []
    for name in profile.notebooks:
        path = build / "results" / f"{name}.json"
        for r in load_results(path) if path.is_file() else []:
            if r.published is not None and r.ours is not None:
                inside = "inside" if r.low <= r.published <= r.high else "outside"
                number = f"{r.row}, {r.column}, {r.metric}"
                rows.append([name, number, f"{r.published:g}", r.interval, f"{r.ours - r.published:+.3f}", inside])
    return markdown_table(["page", "number", "published", "ours [95%]", "deviation", "verdict"], rows)


def build_folder(profile: Profile) -> Path:
    """Where a profile's build keeps its results."""
    return ROOT / "build" / profile.name
