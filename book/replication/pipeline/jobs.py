"""What the Snakefile's rules run, a process each: `python -m replication.pipeline.jobs RULE ARGUMENT...`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from mialib.commands.output import log_plainly
from mialib.store import write_json
from replication.profile import check_names, load_profile


def score(model: str, benchmark: str, receipt: str) -> None:
    """Score a benchmark's texts into the cache that notebooks read; a lab model that is not stored is trained first.

    The receipt is a file that stands for what is in the cache.
    """
    from mialib.catalog.benchmarks import load_benchmark
    from mialib.passes.cache import score_or_load

    write_json(receipt, score_or_load(model, load_benchmark(benchmark).texts).provenance)


def column(page: str, name: str, output: str) -> None:
    """Compute one column of a paper's table, or write down why that can't be done here."""
    from replication.studies import paper_tables

    profile = load_profile()
    columns = {f"{page}: {printed}": column for page, printed, column in paper_tables.columns_of(profile)}
    check_names([f"{page}: {name}"], columns, f"profile {profile.name} has no column")
    given = profile.notebooks[page].parameters
    measured = paper_tables.measure_or_say_why(given["paper"], given["items"], name, columns[f"{page}: {name}"])
    paper_tables.save_column(output, measured)
    done = sum(result.ours is not None for result in measured.results)
    print(f"{page}, {name}: {measured.unavailable or f'{done} numbers'}")


def notebook(name: str, page: str, results: str, failed: str, computed: str, skipped: str) -> None:
    """Make a page: execute its notebook with the profile's parameters, or write why it is `skipped`."""
    from replication.pipeline.notebooks import run_notebook

    given = {"output": Path(page), "results": Path(results), "failed": Path(failed)}
    columns = Path(computed) if computed else None
    run_notebook(name, load_profile(), **given, computed=columns, skipped=skipped)


def book(index: str, page: str = "") -> None:
    """Render the whole book, where a broken reference is an error, or one page with the pages of text, to `index`."""
    from replication.pipeline.report import write_lists

    profile = load_profile()
    write_lists(profile, Path("build") / profile.name, Path("book/pages"), page)
    folder = Path(index.partition("/_build/")[0])
    toc = folder / "_toc.yml"
    folder.mkdir(parents=True, exist_ok=True)
    toc.write_text(yaml.safe_dump(profile.table_of_contents(page or None), sort_keys=False), encoding="utf-8")
    strict = [] if page else ["-n", "-W", "--keep-going"]
    given = ["--config", "_config.yml", "--toc", str(toc.resolve()), "--path-output", str(folder), *strict]
    sys.exit(subprocess.call([str(Path(sys.executable).with_name("jupyter-book")), "build", "book", *given]))


if __name__ == "__main__":
    log_plainly()
    jobs: dict[str, Callable[..., None]] = {"score": score, "column": column, "notebook": notebook, "book": book}
    jobs[sys.argv[1]](*sys.argv[2:])
