"""What the Snakefile's rules do, each in a process that is forked from one that has imported everything.

Importing torch, transformers, scikit-learn, matplotlib and Jupyter takes about five seconds of a processor, and a build
has some 70 jobs: a third of its time. Where forking is not safe (outside Linux), each job imports what it needs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import yaml

from mialib.commands.output import log_plainly
from mialib.store import write_json
from replication.pipeline.notebooks import forked_kernel, run_notebook
from replication.profile import load_profile

TAIL_LINES = 30  # of a failed job's log, in the error
LOCK = Lock()
PRELOADED = [  # all that a job imports
    *("ipykernel.kernelapp", "matplotlib.pyplot", "pandas", "papermill", "pyarrow.parquet", "scipy.stats", "seaborn"),
    *("sklearn.feature_extraction.text", "sklearn.linear_model", "sklearn.model_selection", "torch"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.gpt_neox.modeling_gpt_neox", "transformers.models.roberta.modeling_roberta"),
    "mialib.passes.inputs",
]


def run(name: str, job: Callable[..., None], *arguments: Any, log: str | Path) -> None:
    """Run a job of this module in a process of its own; what it prints goes to `log`.

    It prints two lines, one when it begins and one when it is done; `mialib build` shows its progress by them.
    Where it fails, the second gives the log's last lines, and RuntimeError is raised.
    """
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    Path(log).write_text("")
    print(f"begins: {name}", flush=True)
    process = _context().Process(target=_in_process, args=(job.__name__, [str(a) for a in arguments], str(log)))
    # A start looks after all processes that have ended; two threads that ask after one at once make it a failure.
    with LOCK:
        process.start()
    wait([process.sentinel])
    with LOCK:
        process.join()
    if process.exitcode:
        lines = Path(log).read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        print("\n".join([f"{name} failed ({process.exitcode}), see {log}:", *lines]), flush=True)
        raise RuntimeError(f"{name} failed ({process.exitcode}), see {log}")
    print(f"done: {name}", flush=True)


@cache
def _context() -> BaseContext:
    # As many jobs run side by side as there are cores: each takes one thread, also of libraries that take all cores.
    for name in ("OMP", "OPENBLAS", "MKL", "RAYON"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # read as matplotlib is imported
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _in_process(job: str, arguments: list[str], log: str) -> None:
    multiprocessing.set_start_method(None, force=True)  # the platform's own, and not the one that made this process
    descriptor = os.open(log, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    log_plainly()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what is being written is removed
    end_with_the_parent()
    globals()[job](*arguments)


def check_processors(asked: Iterable[tuple[str, str, int]]) -> None:
    """ValueError where a job asks for more processors than any node has: Slurm would let it wait without a word.

    `asked` holds a job's rule, its Slurm partitions ("" where none is named) and its processors.
    """
    for rule, partition, n in sorted(set(asked)):
        listed = ["sinfo", "--noheader", "--Node", "--format=%c", *([f"--partition={partition}"] if partition else [])]
        done = subprocess.run(listed, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"sinfo: {done.stderr.strip()}")
        nodes = done.stdout.split()
        if nodes and n > (largest := max(map(int, nodes))):
            where = f"partition {partition}" if partition else "Slurm"
            raise ValueError(
                f"a job {rule} asks for {n} processors, and the largest node of {where} has {largest}: "
                "set cpus_per_task in data/slurm/config.yaml"
            )


def end_with_the_parent() -> None:
    """Have this process end when its parent does: a build that ends, however it does, leaves no job behind."""

    def watch() -> None:
        wait([multiprocessing.parent_process().sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, daemon=True).start()


# --- the jobs; a receipt is a file that stands for what lies in the cache ---


def score(model: str, benchmark: str, receipt: str) -> None:
    """Score a benchmark's texts into the cache that notebooks read; a lab model that is not stored is trained first."""
    from mialib.catalog.benchmarks import load_benchmark
    from mialib.passes.cache import score_or_load

    write_json(receipt, score_or_load(model, load_benchmark(benchmark).texts).provenance)


def column(page: str, name: str, output: str) -> None:
    """Compute one column of a paper's table, or write down why that can't be done here."""
    from replication.studies import paper_tables

    profile = load_profile()
    columns = {(of, printed): column for of, printed, column in paper_tables.columns_of(profile)}
    if (page, name) not in columns:
        known = "; ".join(f"{of}: {printed}" for of, printed in columns)
        raise ValueError(f"profile {profile.name} has no column {name!r} on a page {page!r}; it has: {known}")
    given = profile.notebooks[page].parameters
    measured = paper_tables.measure_or_say_why(given["paper"], given["items"], name, columns[page, name])
    paper_tables.save_column(output, measured)
    done = sum(result.ours is not None for result in measured.results)
    print(f"{page}, {name}: {measured.unavailable or f'{done} numbers'}")


def notebook(name: str, page: str, results: str, failed: str, computed: str = "", skipped: str = "") -> None:
    """Make a page: execute its notebook with the profile's parameters, or write why it is `skipped`."""
    given: dict[str, Any] = {"output": Path(page), "results": Path(results), "failed": Path(failed)}
    with forked_kernel() as kernel:
        given |= {"computed": Path(computed) if computed else None, "skipped": skipped, "kernel": kernel}
        run_notebook(name, load_profile(), **given)


def book(index: str, page: str = "") -> None:
    """Render the whole book, where a broken reference is an error, or one page with the pages of text, to `index`."""
    from replication.pipeline.report import build_folder, write_lists

    profile = load_profile()
    write_lists(profile, build_folder(profile), Path("book/pages"), page)
    folder = Path(index.partition("/_build/")[0])
    toc = folder / "_toc.yml"
    folder.mkdir(parents=True, exist_ok=True)
    toc.write_text(yaml.safe_dump(profile.table_of_contents(page or None), sort_keys=False), encoding="utf-8")
    strict = [] if page else ["-n", "-W", "--keep-going"]
    given = ["--config", "_config.yml", "--toc", str(toc.resolve()), "--path-output", str(folder), *strict]
    sys.exit(subprocess.call([str(Path(sys.executable).with_name("jupyter-book")), "build", "book", *given]))
