"""What a build consists of: the files that it makes, and what each page takes.

What a page takes is in its parameters: the models, benchmarks and corpora that they name. The Snakefile makes rules of
this. Nothing here loads torch.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mialib.store import hash_of
from replication.lab.dealing import sources_of
from replication.lab.recipes import Model
from replication.lab.source import corpora_of_recipe
from replication.pipeline.code import import_closure
from replication.pipeline.notebooks import NOTEBOOKS, read_notebook
from replication.profile import Page, Profile, load_profile


@dataclass(frozen=True)
class Needs:
    """What a page takes, by name."""

    models: tuple[str, ...]  # of the profile; all of them where the page shows verdicts
    scored: tuple[tuple[str, str], ...]  # pairs of model and benchmark that the profile scores beforehand
    corpora: tuple[str, ...]  # of the profile; all of them where the page shows verdicts
    files: tuple[str, ...]  # of texts, as paths
    modules: tuple[str, ...]  # that its code imports, such as "replication.figures"


def needs_of(page: Page, profile: Profile, folder: Path = NOTEBOOKS) -> Needs:
    """What a page takes: what the parameters of its notebook in `folder`, as the profile sets them, name.

    A page of verdicts depends on all models and corpora, since a claim may be about any of them.
    """
    notebook = read_notebook(folder / f"{page.notebook}.ipynb")
    strings = set(strings_in(notebook.defaults | page.parameters))
    named = names_in(strings)
    models, corpora = (sorted(named & set(known)) for known in (profile.models, profile.corpora))
    judges = any("replication.claims.verdict" in import_closure(module) for module in notebook.modules)
    return Needs(
        models=tuple(sorted(profile.models) if judges else models),
        scored=tuple((m, b) for m in models for b in profile.models[m].benchmarks if b in strings),
        corpora=tuple(sorted(profile.corpora) if judges else corpora),
        files=tuple(sorted(string for string in strings if os.path.isfile(string))),
        modules=notebook.modules,
    )


def names_in(strings: Iterable[str]) -> set[str]:
    """What strings may name, as in `lab/en-25k@1`, `lab/en:reference` and `lab/en~lab/code`: models and corpora."""
    return {part.partition("@")[0] for string in strings for part in re.split("[:~]", string)}


def strings_in(value: Any) -> Iterator[str]:
    """All strings in a parameter's value; a comma-separated string is taken apart."""
    if isinstance(value, str):
        yield from (part.strip() for part in value.split(","))
    elif isinstance(value, Mapping | list | tuple):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from strings_in(entry)


def recipes_hash(profile: Profile, models: Iterable[str], corpora: Iterable[str]) -> str:
    """A hash of how these models, and those they were made from, and these corpora are made, and of what versions."""
    recipes = [model.recipe for name in models for model in _lineage(profile, name) if model.recipe]
    names = {*corpora, *(corpus for recipe in recipes for corpus in corpora_of_recipe(recipe))} & set(profile.corpora)
    names |= {other for name in names if (other := profile.corpora[name].apart_from)}
    of_corpora = [[profile.corpora[name].model_dump(), sources_of(profile.corpora[name])] for name in sorted(names)]
    return hash_of([[recipe.model_dump() for recipe in recipes], of_corpora])


def _lineage(profile: Profile, name: str) -> list[Model]:
    """A model, and the one that it was made from."""
    model = profile.models[name]
    return [model, *(_lineage(profile, model.unlearn.base) if model.unlearn else [])]


def score_receipt(profile: str, model: str, benchmark: str) -> str:
    """The file that says what scored a benchmark."""
    return f"build/{profile}/scored/" + f"{model}-on-{benchmark}".replace("/", "--") + ".json"


def page_file(name: str) -> str:
    """The executed notebook of a page."""
    return f"book/pages/{name}.ipynb"


def made_files(profile: str, name: str) -> list[str]:
    """What the notebook of a page makes: the page and its results."""
    return [page_file(name), f"build/{profile}/results/{name}.json"]


def single_page(profile: str, name: str) -> str:
    """A page rendered by itself."""
    return f"build/{profile}/page/{name}/_build/html/pages/{name}.html"


def book_index(profile: str) -> str:
    """The rendered book's first page."""
    return f"build/{profile}/book/_build/html/index.html"


def check_pages(html: str | Path, profile: Profile | None = None) -> None:
    """FileNotFoundError unless a rendered book has its first page and every page of the profile, none of them empty."""
    wanted = ["index.html", *(f"{page.file}.html" for page in (profile or load_profile()).pages)]
    lost = [name for name in wanted if not (path := Path(html, name)).is_file() or not path.stat().st_size]
    if lost:
        raise FileNotFoundError(f"{len(lost)} of {len(wanted)} pages are missing or empty in {html}: {', '.join(lost)}")
    print(f"all {len(wanted)} pages are in {html}")
