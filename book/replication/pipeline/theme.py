"""A Sphinx extension, listed in `_config.yml`: what Jupyter Book 1.x and its theme have no option for.

A page's answer comes first, tables are numbered, pages have a description, and no file is there that no page loads.
"""

import base64
import gzip
import json
import logging
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape, unescape
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin
from zlib import crc32

import numpy as np
import sphinx.ext.autodoc
import sphinx.util.inspect
import sphinx.util.typing
import yaml
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.writers.html5 import HTML5Translator

from mialib.cache import write_once
from mialib.store import ROOT, checksum_of, home
from replication.pipeline.notebooks import NOTEBOOKS
from replication.pipeline.student import SOLUTION, student_notebook
from replication.profile import INSTALLS
from replication.tables import SAVED

# Of MathJax what this book's equations load; the whole is 24 MB.
MATHJAX = ("core", "input/tex", "output/chtml", "a11y/assistive-mml")
MATHJAX_FILES = ("startup.js", *(f"{part}.js" for part in MATHJAX), "output/chtml/fonts/tex.js")
MATHJAX_FONTS = "output/chtml/fonts/woff-v2"
# Copied with the theme and loaded by no page. The icons' font and its style sheet stay.
UNUSED = ("**/*.map", "**/*.ttf", "scripts/fontawesome.js*", "*webpack-macros.html", "locales")
# MicroPython for the editor of replication.studies.playground, of the npm registry. MIT licence.
INTERPRETER = "@micropython/micropython-webassembly-pyscript@1.27.0"
INTERPRETER_SHA256 = "303919763c8ebfe5923b9da66226c20dce44ad72b604b225fb39338ea15367af"
NUMBER = "Table %s."  # as in _config.yml
CAPTION = re.compile(f"<caption[^>]*>((?!{SAVED}).*?)</caption>", re.S)
TABLES = '<ol class="list-of-tables">'  # what a page of the book has where the list of tables is to be
ON_MOST_PAGES = ("What this page ran", "Each claim's tests:")  # captions that the list of tables leaves out
logger = logging.getLogger(__name__)
FOLD = "All code and tables of this page"  # at its end
EXECUTED = "executed"  # the branch of the notebooks that readers run elsewhere
INSTALL = "install"  # the id of their first cell
STRINGIFY = sphinx.util.typing.stringify_annotation
DESCRIPTION_LENGTH = 200  # characters, about what a search engine shows


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("config-inited", configure)
    app.connect("autodoc-process-signature", lambda *said: (without_reprs(said[-2]), said[-1]))
    for module in (sphinx.ext.autodoc, sphinx.util.inspect, sphinx.util.typing):
        module.stringify_annotation = as_written  # type: ignore[attr-defined]
    app.connect("doctree-read", show_answers_first)
    app.connect("doctree-read", gather_folds)
    app.connect("doctree-read", unlink_pages_left_out)
    tables: list[Captioned] = []  # number 1, 2, ...
    app.connect("env-get-updated", partial(count_tables, tables))  # after Sphinx has counted figures
    app.connect("env-updated", pages_with_terms)
    app.connect("doctree-resolved", partial(number_tables, tables))
    app.connect("html-page-context", describe_page)
    app.connect("build-finished", finish)
    app.add_node(nodes.citation, override=True, html=(visit_reference, HTML5Translator.depart_citation))
    # Where this file has changed, Sphinx writes all pages anew, and not those alone whose text has changed.
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": crc32(Path(__file__).read_bytes())}


def as_written(annotation: Any, mode: Any = "fully-qualified-except-typing", *more: Any) -> str:
    """A type as text: an array's as in the code, `NDArray[np.int8]`, without the generics that NumPy makes of it."""
    if get_origin(annotation) is np.ndarray:
        [kind] = get_args(get_args(annotation)[1])
        return f"NDArray[np.{getattr(kind, '__name__', kind)}]"
    return STRINGIFY(annotation, mode, *more)


def without_reprs(signature: str | None) -> str | None:
    """A signature without defaults such as `<factory>`, which are no Python: Sphinx would print it as it is."""
    return signature and re.sub("= ?<[^<>]*>", "= ...", signature)


def configure(_app: Sphinx, config: Config) -> None:
    """Set the options of the theme and of MathJax."""
    # The theme opens a menu by the first button of its kind, which would be a hidden one in this bar.
    config.html_theme_options["navbar_persistent"] = []
    if address := repository():  # Binder and Colab run what the workflow has pushed to this branch
        binder, colab = "https://mybinder.org", "https://colab.research.google.com"
        buttons = {"binderhub_url": binder, "colab_url": colab, "notebook_interface": "jupyterlab"}
        where = {"repository_url": address, "repository_branch": EXECUTED, "path_to_docs": ""}
        config.html_theme_options |= where | {"launch_buttons": buttons}
    config.mathjax_path = "mathjax/startup.js"
    config.mathjax3_config = {
        "loader": {"load": list(MATHJAX)},
        "options": {"enableMenu": False},
        "tex": {"packages": {"[-]": ["autoload", "require"]}},  # they would look for files that are not copied
    }


def repository() -> str:
    """The address of the repository that a GitHub Action builds the book of; "" elsewhere, as it is not known there."""
    name = os.environ.get("GITHUB_REPOSITORY", "")
    return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else ""


def pages_with_terms(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Pages to write though they did not change: those with index entries, which search forgets of all others."""
    return sorted(page for page, entries in env.domains["index"].data["entries"].items() if entries)


def show_answers_first(_app: Sphinx, doctree: nodes.document) -> None:
    """Show what cells with the tag `answer` print below a page's question, though they run later.

    That is below a page's first paragraphs, above what to see in the figure and what runs here. The code stays where it
    is.
    """
    first = next(iter(doctree.findall(nodes.section)), None)
    cells = [node for node in doctree.findall(nodes.container) if "tag_answer" in node["classes"]]
    outputs = [of for cell in cells for of in cell.children if "cell_output" in of.get("classes", ())]
    if first is None or not outputs:
        return
    for output in outputs:
        output.parent.remove(output)
    kinds, later = nodes.title | nodes.paragraph | nodes.Invisible, ("In the figure", "What runs here.")
    is_question = (isinstance(node, kinds) and not node.astext().startswith(later) for node in first)
    at = sum(takewhile(bool, is_question))
    first[at:at] = [nodes.container("", output, classes=["cell"]) for output in outputs]


def gather_folds(_app: Sphinx, doctree: nodes.document) -> None:
    """Move what a page folds, code and whole cells with their tables, into one fold at its end; solutions stay.

    An exercise's check goes there, too, unless it runs in the page, by the script of book.js.
    """
    fold = HideCodeCellNode(prompt_show=FOLD, prompt_hide=FOLD, classes=["above-input", "all-code"])
    for cell in list(doctree.findall(nodes.container)):
        is_check = "tag_check" in cell["classes"] and "tag_in-page" not in cell["classes"]
        if not (is_check or "hide_mode" in cell) or "tag_solution" in cell["classes"]:
            continue
        is_whole = cell.attributes.pop("hide_mode", "all") == "all"
        moved = cell if is_whole else nodes.container("", classes=["cell"])
        of = cell if is_whole else cell[0]
        of.parent.remove(of)
        moved += [] if is_whole else [of]
        fold += [nodes.rubric("", cell.get("prompt_show", "Check of an exercise")), moved]
    first = next(iter(doctree.findall(nodes.section)), None)
    if first is not None and fold.children:
        first += nodes.container("", fold, classes=["cell"])


def unlink_pages_left_out(app: Sphinx, doctree: nodes.document) -> None:
    """Of a link to a page that this profile's book leaves out its words stay, or that page's title."""
    for link in [*doctree.findall(pending_xref)]:
        name, root = Path(link["reftarget"].partition("#")[0]).stem, Path(app.srcdir)
        pages = [path for path in (root / f"{name}.md", NOTEBOOKS / f"{name}.ipynb") if path.is_file()]
        if pages and not {name, f"pages/{name}"} & app.env.found_docs:
            title = re.search(r"# ([^:\n\\]+)", pages[0].read_text(encoding="utf-8"))
            link.replace_self(nodes.inline(text=link.astext() or (title[1] if title else name)))


# --- a page's head ---


def describe_page(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give a page a description, what a link to it shows elsewhere, unless it has them, and how to cite it."""
    title = escape(app.env.titles[page].astext() if page in app.env.titles else app.config.html_title)
    text = description(doctree) if doctree else ""
    tags = {
        'name="description"': text,
        'property="og:type"': "article",
        'property="og:site_name"': escape(app.config.html_title),
        'property="og:title"': title,
        'property="og:description"': text,
        'property="og:url"': escape(context.get("pageurl") or ""),
        'name="twitter:card"': "summary",
    }
    known = context.get("metatags", "")
    new = [f'<meta {name} content="{value}" />' for name, value in tags.items() if value and name not in known]
    context["metatags"] = "\n".join([known, *new])
    if doctree:
        entry = escape(citation(page, unescape(title), context.get("pageurl") or ""))
        context["body"] += f'<details class="cite"><summary>Cite this page</summary><pre>{entry}</pre></details>'


def citation(page: str, title: str, address: str) -> str:
    """A page's BibTeX entry, by CITATION.cff; without an address where none is known."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    names = (who.get("name") or "{given-names} {family-names}".format(**who) for who in cff["authors"])
    fields = {
        "title": "{" + re.sub(r"([%&#_$])", r"\\\1", title) + "}",
        "author": " and ".join(f"{{{name}}}" for name in names),
        "howpublished": f"{cff['title']}, version {cff['version']}",
        "year": str(cff["date-released"])[:4],
        "url": address,
    }
    lines = (f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@misc{{mialib-{page.rpartition('/')[2]},\n{''.join(lines)}}}"


def description(doctree: nodes.document) -> str:
    """A page's first paragraph as far as whole sentences fit, without the label in bold that it may begin with."""
    for paragraph in doctree.findall(nodes.paragraph):
        parts = [part for part in paragraph.children if part.astext()]
        has_label = bool(parts) and isinstance(parts[0], nodes.strong)
        text = " ".join("".join(part.astext() for part in parts[has_label:]).split())
        if len(text) >= 40:  # not a lone link or label
            cut = text[:DESCRIPTION_LENGTH]
            return escape(text if cut == text else cut[: cut.rfind(". ") + 1] or cut[: cut.rfind(" ")] + " …")
    return ""


# --- tables ---


class Captioned(NamedTuple):
    """A table with a caption."""

    page: str
    place: str  # its id
    caption: str


def count_tables(tables: list[Captioned], app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Find all tables with a caption in the book's order, and give those in Markdown their numbers; pages with any."""
    for page in in_reading_order(env.toctree_includes, app.config.root_doc):
        for node in with_caption(env.get_doctree(page)):
            if isinstance(node, nodes.table):
                tables.append(Captioned(page, node["ids"][0], node[0].astext()))
                env.toc_fignumbers.setdefault(page, {}).setdefault("table", {})[node["ids"][0]] = (len(tables),)
                continue
            for caption in CAPTION.findall(node.astext()):
                tables.append(Captioned(page, f"table-{len(tables) + 1}", unescape(re.sub("<[^>]*>", "", caption))))
    return sorted({table.page for table in tables})


def in_reading_order(includes: Mapping[str, Sequence[str]], page: str) -> Iterator[str]:
    """A page and those below it in the menu, each before those after it."""
    yield page
    for below in includes.get(page, ()):
        yield from in_reading_order(includes, below)


def with_caption(doctree: nodes.document) -> list[nodes.Element]:
    """A page's tables that have a caption: those in Markdown, and outputs of cells in HTML."""

    def has_caption(node: nodes.Node) -> bool:
        in_markdown = isinstance(node, nodes.table) and isinstance(node[0], nodes.title)
        return in_markdown or (isinstance(node, nodes.raw) and "<caption" in node.astext())

    return list(doctree.findall(has_caption))


def number_tables(tables: list[Captioned], app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Write the numbers into a page's outputs, and the list of tables where a page asks for it."""
    here = (i for i, table in enumerate(tables, start=1) if table.page == page)

    def numbered(caption: re.Match[str]) -> str:
        i = next(here)
        return f'<caption id="table-{i}"><span class="caption-number">{NUMBER % i} </span>{caption[1]}</caption>'

    for node in with_caption(doctree):
        if isinstance(node, nodes.table):
            next(here)
        else:
            node[:] = [nodes.Text(CAPTION.sub(numbered, node.astext()))]
    for node in doctree.findall(lambda node: isinstance(node, nodes.raw) and node.astext().startswith(TABLES)):
        entries = [
            f'<li value="{i}"><a href="{app.builder.get_relative_uri(page, table.page)}#{table.place}">'
            f"{escape(table.caption)}</a>, {escape(app.env.titles[table.page].astext())}</li>"
            for i, table in enumerate(tables, start=1)
            if not table.caption.startswith(ON_MOST_PAGES)
        ]
        node[:] = [nodes.Text(f"{TABLES}{''.join(entries)}</ol>")]


def visit_reference(translator: HTML5Translator, node: nodes.citation) -> None:
    """An entry of a list of references is an item of that list to a screen reader, too."""
    HTML5Translator.visit_citation(translator, node)
    translator.body[-1] = translator.body[-1].replace("doc-biblioentry", "listitem")


# --- files ---


def finish(app: Sphinx, error: Exception | None) -> None:
    """Copy MathJax, remove what no page loads, and empty the notebooks that readers download."""
    if error or app.builder.format != "html":
        return
    out, runs_python = Path(app.outdir), False
    copy_mathjax(out / "_static" / "mathjax")
    for pattern in UNUSED:
        for path in out.joinpath("_static").glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in out.joinpath("_sources").rglob("*.ipynb"):
        notebook = path.read_text(encoding="utf-8")
        runs_python |= "playground.editor(" in notebook or '"in-page"' in notebook
        path.write_text(downloaded(notebook, repository()), encoding="utf-8")
    if runs_python:
        copy_interpreter(out / "_static" / "micropython.js")


def copy_mathjax(target: Path) -> None:
    """Copy the part of MathJax that pages load from the package that holds it whole."""
    shutil.rmtree(target, ignore_errors=True)
    package = find_spec("sphinx-mathjax-offline")
    assert package and package.submodule_search_locations
    [folder] = package.submodule_search_locations
    source = Path(folder) / "static" / "mathjax"
    for name in MATHJAX_FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, target / name)
    shutil.copytree(source / MATHJAX_FONTS, target / MATHJAX_FONTS)


def copy_interpreter(target: Path) -> None:
    """Write the editor's interpreter as a script, fetched once, to `target`; a warning where npm can't fetch it."""
    try:
        script = write_once(home() / "models" / f"micropython-{INTERPRETER_SHA256[:16]}.js", fetch_interpreter)
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()[-1:] or [error]
        logger.warning("no editor in the pages: npm can't fetch %s (%s)", INTERPRETER, why[0])
    else:
        shutil.copy(script, target)


def fetch_interpreter(to: Path) -> None:
    """Write MicroPython's module and WebAssembly as one script; OSError for another file than the one expected."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--fetch-retries=0", "--fetch-timeout=30000"]
        subprocess.run(["npm", "pack", INTERPRETER, *options], capture_output=True, check=True, timeout=120, cwd=folder)
        archive = next(Path(folder).glob("*.tgz"), None)
        if archive is None:
            raise OSError("npm pack wrote no file")
        if (checksum := checksum_of(archive)) != INTERPRETER_SHA256:
            raise OSError(f"it has the SHA-256 {checksum}, and {INTERPRETER_SHA256} is expected")
        with tarfile.open(archive) as content:
            files = [content.extractfile(f"package/micropython.{ending}") for ending in ("mjs", "wasm")]
            source, wasm = (file.read() for file in files if file)
    licence = re.sub("Copyright.*", "Copyright (c) 2013-2025 Damien P. George", (ROOT / "LICENSE").read_text("utf-8"))
    # On a page that is opened as a file a worker can't be a module.
    plain = re.sub(r"\bexport (default \w+;?|(?=async))", "", source.decode())
    plain = f"(async () => {{{plain.replace('import.meta.url', 'location.href')}\n}})();"
    parts = {"source": plain, "wasm": base64.b64encode(gzip.compress(wasm, mtime=0)).decode()}
    to.write_text(f"/* {INTERPRETER}\n{licence}*/\nwindow.MICROPYTHON = {json.dumps(parts)};\n", encoding="utf-8")


def downloaded(notebook: str, address: str = "") -> str:
    """A notebook's student edition, as JSON, with a first cell that installs the packages if `address` is known."""
    content = json.loads(notebook)
    if any(SOLUTION in cell["metadata"].get("tags", []) for cell in content["cells"]):
        content = student_notebook(content, "student")
    if address and not any(cell.get("id") == INSTALL for cell in content["cells"]):
        at = f"@{sha}" if (sha := os.environ.get("GITHUB_SHA")) else ""  # the commit that the Action builds
        clone = f"git+{address}{at}"
        fetch = f"%pip install --quiet {clone} {clone}#subdirectory=audit {clone}#subdirectory=book"
        source = f"{INSTALLS}except ModuleNotFoundError:\n    {fetch}"
        content["cells"].insert(0, {"cell_type": "code", "id": INSTALL, "metadata": {}, "source": source})
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
