"""Jobs run in processes of their own, forked from one that has imported everything; so do pages' kernels."""

import json
import logging
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_code_cell, new_notebook

from replication.pipeline import jobs
from replication.pipeline.notebooks import forked_kernel, run_notebook
from replication.profile import Profile

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def score_log(folder, name):
    with pytest.raises(RuntimeError) as failed:
        jobs.run(
            f"score lab/en-25k on {name}",
            jobs.score,
            "lab/en-25k",
            name,
            folder / "receipt.json",
            log=folder / "logs" / "job.log",
        )
    assert f"score lab/en-25k on {name}" in str(failed.value) and str(folder) in str(failed.value)
    return (folder / "logs" / "job.log").read_text()


def test_log_lines_hold_nothing_that_a_terminal_would_obey(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    jobs.log_plainly()
    logging.getLogger("mialib").warning("%s says %r", "\x1b[31mit", "\x1b")
    assert capsys.readouterr().err == r"\x1b[31mit says '\x1b'" + "\n"
    logging.getLogger("mialib").warning("a call that is wrong", 1)  # is told, and ends nothing


def test_a_failed_job_shows_the_end_of_its_log_and_took_one_thread(tmp_path, capsys):
    log = score_log(tmp_path, "lab/nowhere")
    began, _, *shown = capsys.readouterr().out.splitlines()
    assert began == "begins: score lab/en-25k on lab/nowhere" and "'lab/nowhere'" in shown[-1]
    assert "Traceback" in log and not (tmp_path / "receipt.json").exists()
    score_log(tmp_path, "lab/nowhere")
    assert {os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL", "RAYON")} == {"1"}
    method = jobs._context().get_start_method()
    assert method == ("forkserver" if sys.platform == "linux" else "spawn")


def page(folder, *sources, kernel=None):
    cells = [new_code_cell("x = 1  # a number", metadata={"tags": ["parameters"]}), *map(new_code_cell, sources)]
    nbformat.write(new_notebook(cells=cells, metadata=KERNEL), folder / "page.ipynb")
    profile = Profile(name="t", landing={"notebook": "page", "parameters": {"x": 7}}, book=[])
    output = folder / "out.ipynb"
    run_notebook("page", profile, output=output, failed=folder / "failed.ipynb", folder=folder, kernel=kernel)
    return nbformat.read(output, as_version=4).cells


def shown_by_a_fork(folder):
    """A page's cells and the number of the process that forked to run it: a fresh one, which has drawn nothing yet."""
    sys.modules["loaded_here"] = Profile  # no other process has it
    with forked_kernel() as kernel:
        return os.getpid(), run_in(kernel, folder)


def run_in(kernel, folder):
    return page(
        folder,
        "import os, sys\nprint(os.getppid(), 'loaded_here' in sys.modules)\nprint('aside', file=sys.stderr)",
        "import matplotlib.pyplot as plt\nplt.subplots()[1].plot([1, 2]);",
        "from IPython.display import Markdown, display\ndisplay(Markdown('shown'))\nos.getpid()",
        kernel=kernel,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")
def test_a_page_runs_in_a_fork_of_this_process_and_shows_all_that_a_kernel_shows(tmp_path):
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        forked_by, cells = pool.submit(shown_by_a_fork, tmp_path).result()
    streams = {output.name: output.text for output in cells[1].outputs}
    assert streams == {"stdout": f"{forked_by} True\n", "stderr": "aside\n"}
    assert not Path(f"/proc/{cells[3].outputs[1].data['text/plain']}").exists(), "the kernel ends with the page"
    assert "image/png" in cells[2].outputs[-1].data
    assert cells[3].outputs[0].data["text/markdown"] == "shown"


def dies(folder):
    with forked_kernel() as kernel, pytest.raises(DeadKernelError):
        page(folder, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", kernel=kernel)


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")
def test_a_page_whose_kernel_is_killed_is_an_error_and_not_a_long_wait(tmp_path):
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(dies, tmp_path).result(timeout=60)


def test_the_book_of_one_page_holds_it_and_the_pages_of_text():
    book = [{"caption": "c", "pages": [{"notebook": "a"}, {"page": "how_to_read"}, {"notebook": "b"}]}]
    profile = Profile.model_validate({"name": "p", "landing": {"page": "start"}, "book": book})
    assert profile.table_of_contents("b") == {
        "format": "jb-book",
        "root": "pages/b",
        "chapters": [{"file": "start"}, {"file": "how_to_read"}],
    }


def look_around(path):
    """What a job finds."""
    import torch

    found = [torch.cuda.is_initialized(), threading.active_count(), torch.get_num_threads(), os.getppid()]
    found += ["matplotlib_inline.backend_inline" in sys.modules, os.environ["MPLBACKEND"]]
    Path(path).write_text(json.dumps(found))


@pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux alone")
def test_a_job_finds_everything_imported_and_nothing_begun(tmp_path):
    processes = [jobs._context().Process(target=look_around, args=(str(tmp_path / name),)) for name in "ab"]
    for process in processes:
        process.start()
        process.join()
    of_a, of_b = (json.loads((tmp_path / name).read_text()) for name in "ab")
    assert of_a == of_b, "of one parent"
    has_cuda, n_python_threads, n_threads, parent, has_backend, backend = of_a
    assert not has_cuda and n_python_threads == 1 and n_threads == 1 and parent != os.getpid()
    assert not has_backend, "a backend that is loaded before there is a kernel shows no figures"
    assert backend == "module://matplotlib_inline.backend_inline"
