"""The benchmark of speed: its arithmetic by hand, its rows against each other, and its page on a tiny geometry."""

import pytest
from page_code import page_of

from replication.results import load_results
from replication.studies import bench

# Of the papers' models, counted once on their own configurations.
PARAMETERS = {
    "pythia-70m": 70_426_624,
    "pythia-6.9b": 6_857_302_016,
    "llama-13b": 13_015_864_320,
    "qwen1.5-14b": 14_167_290_880,
}


@pytest.fixture
def tiny_geometries(monkeypatch):
    monkeypatch.setitem(bench.GEOMETRIES, "tiny", ("gpt_neox", 2, 8, 2, 32, 5000))
    monkeypatch.setitem(bench.GEOMETRIES, "tiny-llama", ("llama", 1, 8, 2, 24, 5000))


def test_flops_and_least_seconds_are_those_counted_by_hand(tiny_geometries):
    # A layer: 4 matrices of 8 x 8 and two of 8 x 32, 768 weights; two layers and a head of 8 x 5000: 41,536.
    assert bench.multiplied_parameters("tiny") == 41_536
    # Texts of 3 and 1 tokens: 4 tokens; pairs of a token and one that it sees 1 + 2 + 3 and 1, with 4 x 2 x 8 each.
    assert bench.forward_flops("tiny", [3, 1]) == 2 * 41_536 * 4 + 64 * 7
    assert bench.least_seconds("tiny", [3, 1], 1e6, 1e5, 2) == pytest.approx(
        {"products": 0.332736, "weights, one text at a time": 1.66144}
    )


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_geometry_is_its_model(name):
    assert bench.empty_model(name).num_parameters() == PARAMETERS[name]


def test_a_row_that_does_other_work_is_an_error(tiny_geometries, monkeypatch):
    def wrong(*args, **kwargs):
        row = of_one(*args, **kwargs)
        return row._replace(log_prob=row.log_prob + 0.01)

    of_one = bench.score_alone
    monkeypatch.setattr(bench, "score_alone", wrong)
    with pytest.raises(ValueError, match=r"log_prob .*0\.01 .*0\.001"):
        bench.time_ways("tiny", n_texts=2, n_rounds=1, n_threads=1)


def test_the_page_runs_on_another_geometry(tiny_geometries, tmp_path):
    path = tmp_path / "results.json"
    page_of("speed", geometry="tiny", n_texts="3", n_rounds="2", out=str(path))
    found = load_results(path)
    assert [result.row for result in found] == [bench.FLOOR, bench.OURS, bench.LOOP]
    assert all(result.column == "tiny" and 0 < result.low <= result.ours <= result.high for result in found)
