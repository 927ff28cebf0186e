"""A page's parameters as lists and targets, as papermill's -p or a profile gives them."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import nbformat
import numpy as np
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from page_code import functions_of

matplotlib.use("Agg")

from mialib.benchmarks import Benchmark
from mialib.metrics import Interval
from mialib.passes.inputs import Target, inputs_of
from replication import pages
from replication.pages import load_columns, numbers, targets, whole_numbers
from replication.pipeline import theme


def test_targets_take_lists_or_comma_separated_text_and_share_single_entries():
    listed = targets(["a", "b"], "x", ["-", "r"], None, published="P / Q")
    typed = targets("a, b", "x", "-, r", "", published="P / Q")
    assert listed == typed
    assert [t.benchmark for t in listed] == ["x", "x"]
    assert [t.reference for t in listed] == [None, "r"]
    assert [t.published for t in listed] == ["P / Q"] * 2
    assert listed[1].column == "b on x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "x"), "model"),
        (("a", ""), "benchmarks"),
        (("a, b, c", "x, y"), "benchmarks: 2 .* 3 .*-p benchmarks a,b,c$"),
        (("a", "x, y"), "benchmarks: 2 .* 1 .*-p benchmarks a$"),
        (("a, a", "x"), "'a on x' .*twice"),
    ],
)
def test_targets_that_do_not_fit_are_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        targets(*arguments)


def test_a_parameters_numbers_and_start_token():
    assert [t.start_token for t in targets("a, b", "c")] == ["auto", "auto"]
    assert [t.start_token for t in targets("a, b", "c", start_token="none")] == [None, None]
    assert [t.start_token for t in targets("a", "c", start_token="</s>")] == ["</s>"]
    with pytest.raises(ValueError, match=r"^n_words: .*-3") as caught:
        targets("a", "b", n_words=-3)
    assert "\n" not in str(caught.value)
    assert numbers("0.5, 2", "fprs") == [0.5, 2.0] and whole_numbers([3, "4"], "lengths") == [3, 4]
    for wrong in ("0", "2.5", "x", [-1]):
        with pytest.raises(ValueError, match=r"^lengths: "):
            whole_numbers(wrong, "lengths")


def test_a_benchmark_too_small_to_choose_and_to_judge_on_says_how_many_texts_it_takes(model_folder, benchmark_file):
    path = Path(benchmark_file)
    lines = path.read_text().splitlines(keepends=True)  # non-members and members in turn
    for n, is_enough in ((2, False), (3, False), (4, True)):
        path.write_text("".join(lines[:n]))
        with nullcontext() if is_enough else pytest.raises(ValueError, match=f"{path.name}.* 2 of each"):
            assert len(load_columns(model_folder, benchmark_file)[0].texts) == n


PARAMETERS = 'models = "a"  # or several\nbenchmarks = ["b"]\nout = ""'
BEGIN = "from replication import pages\npages.begin()\n"


def page_of(*sources):
    """A page of parameters and these cells."""
    cells = [new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}), *map(new_code_cell, sources)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return new_notebook(cells=cells, metadata=kernel)


def errors_of(page):
    """What the errors that a page shows are called, and their lines."""
    outputs = [output for cell in page.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    return [(error.ename, "\n".join(error.traceback).strip().splitlines()) for error in outputs]


def test_a_download_refuses_a_parameter_that_it_lacks_under_plain_papermill(tmp_path):
    (tmp_path / "page.ipynb").write_text(theme.downloaded(nbformat.writes(page_of(BEGIN))))
    given = {"model": "c", "benchmarks": "d", "seed": 3}
    with pytest.raises(papermill.PapermillExecutionError):
        papermill.execute_notebook(tmp_path / "page.ipynb", tmp_path / "out.ipynb", given, progress_bar=False)
    [(kind, lines)] = errors_of(nbformat.read(tmp_path / "out.ipynb", as_version=4))
    assert (
        kind == "ValueError"
        and "'model' (did you mean 'models'?), 'seed'; it has: benchmarks, models, out" in lines[-1]
    )
    assert len(lines) <= 3


def test_other_members_are_an_error_that_counts_them():
    def column(name, *texts):
        return inputs_of(Target(model="m", benchmark=name), Benchmark(name, texts, np.array([1, 1, 0]), "r"))

    pages.check_same_members([own := column("own", "a", "b", "c"), column("alike", "b", "a", "d")])
    with pytest.raises(ValueError, match=r"own and other .*1 .*2"):
        pages.check_same_members([own, column("other", "new", "a", "c")])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_shift_surely_misleads_by_what_holds_for_all_detectors_of_a_step_at_once(sign):
    """An AUC 2.3 standard errors from 0.5: beyond 1.96, of one detector, and not beyond 2.69, of seven."""
    surely_misled = functions_of("distribution_shift")["surely_misled"]

    def said(n_detectors, at):
        estimate = 0.5 + sign * at * 0.02
        interval = Interval(estimate, estimate - 1.96 * 0.02, estimate + 1.96 * 0.02)
        above, below = surely_misled({f"d{i}": interval for i in range(n_detectors)})
        return "d0" in (above if sign > 0 else below)

    assert said(1, 2.3) and not said(1, 1.9) and not said(7, 2.3) and said(7, 2.8)


def test_the_last_model_of_each_benchmark():
    pairs = [("small", "a"), ("middle", "a"), ("large", "a"), ("only", "b")]
    columns = [SimpleNamespace(target=Target(model=model, benchmark=benchmark)) for model, benchmark in pairs]
    chosen = [column.target.model for column in pages.last_of_each(columns)]
    assert chosen == ["large", "only"]
