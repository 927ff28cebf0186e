"""The book's part of a profile: its chapters and pages, and each notebook's parameters."""

from __future__ import annotations

import symtable
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from mialib.plain import did_you_mean
from mialib.shared.schema import Strict
from replication.lab.recipes import Recipes, profile_path, read_profile

PAPER_TABLE = "paper_table"  # the notebook that makes the pages of the papers' own tables
INSTALLS = "try:\n    import replication\n"  # how the cell begins with which a published notebook installs the packages
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]  # of no other folder


class Page(Strict):
    """A page of the book: a Markdown file in `book/`, or a notebook in `notebooks/` with its parameters."""

    page: FileName | None = None
    notebook: FileName | None = None
    name: FileName | None = None  # of a notebook's page, where one notebook makes several; each has a title too
    title: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Page:
        if (self.page is None) == (self.notebook is None):
            raise ValueError("a page is either `page: FILE` or `notebook: NAME`")
        if (self.parameters or self.name) and self.notebook is None:
            raise ValueError(f"page {self.page}: only a notebook takes parameters and a name")
        if (self.name is None) != (self.title is None):
            raise ValueError(f"page {self.name or self.notebook}: a `name` comes with a `title`")
        return self

    @property
    def file(self) -> str:
        """The page's path under `book/`, without suffix; executed notebooks lie in `book/pages/`."""
        return self.page or f"pages/{self.name or self.notebook}"


class Chapter(Strict):
    """A part of the table of contents."""

    caption: str
    pages: tuple[Page, ...]


class Profile(Recipes):
    """A whole profile."""

    model_config = ConfigDict(extra="forbid")

    name: FileName
    landing: Page
    book: tuple[Chapter, ...]

    @property
    def pages(self) -> list[Page]:
        """All pages in the book's order."""
        return [self.landing, *(page for chapter in self.book for page in chapter.pages)]

    @property
    def notebooks(self) -> dict[str, Page]:
        """Each page of the book that a notebook makes, by its name."""
        return {page.name or page.notebook: page for page in self.pages if page.notebook}

    def table_of_contents(self, page: str | None = None) -> dict[str, Any]:
        """The book's table of contents in Jupyter Book's format; of one notebook's page, it and the pages of text."""
        if page:
            texts = [{"file": of.file} for of in self.pages if of.page]
            root = {"format": "jb-book", "root": self.notebooks[page].file}
            return root | ({"chapters": texts} if texts else {})
        parts = [{"caption": of.caption, "chapters": [{"file": page.file} for page in of.pages]} for of in self.book]
        return {"format": "jb-book", "root": self.landing.file, "parts": parts}


def load_profile(path: str | Path | None = None) -> Profile:
    """Read and check a profile; ValueError names the file and what is wrong in it."""
    return read_profile(Path(path or profile_path()), Profile)


def check_names(names: Iterable[str], known: Iterable[str], where: str) -> None:
    """ValueError for names that are not known, each with the one that may be meant; `where` is lacking them."""
    known = list(known)
    if unknown := sorted(set(names) - set(known)):
        said = ", ".join(f"{name!r}{did_you_mean(name, known)}" for name in unknown)
        raise ValueError(f"{where} {said}; it has: {', '.join(sorted(known)) or 'none'}")


def names_given(code: str) -> set[str]:
    """The names that a cell binds for later ones."""
    symbols = symtable.symtable(code, "", "exec").get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
