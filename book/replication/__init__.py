"""The book that replicates four papers: results, published numbers, claims, tables and figures, on `mialib`."""

from pathlib import Path

PACKAGE = Path(__file__).parent
# A wheel brings its copy along.
BOOK_DATA = PACKAGE / "data" if (PACKAGE / "data").is_dir() else PACKAGE.parent.parent / "data"
