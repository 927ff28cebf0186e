"""What a run of the papers' tables takes: hours and memory by hand, and what is to be downloaded."""

import pytest
from hub_clients import pointed_at

from mialib.store import DATA
from replication.pipeline import estimate
from replication.pipeline.plan import describe_plan, gpu_hours, memory_gb, plan_columns, plan_downloads
from replication.profile import Profile, load_profile
from replication.studies.paper_tables import Column

PAPER = load_profile(DATA / "profiles" / "paper.yml")
WIKIMIA, MIMIR, C4 = "swj0419/WikiMIA", "iamgroot42/mimir", "allenai/c4"


def profile_of(**columns):
    page = {"notebook": "paper_table", "name": "page", "title": "Page"}
    page["parameters"] = {"paper": "surp", "items": {"auc": "table-1"}, "columns": columns}
    return Profile(name="test", landing={"page": "x"}, book=[{"caption": "c", "pages": [page]}])


@pytest.fixture
def without_hub(tmp_path, monkeypatch):
    with pointed_at(monkeypatch, "http://127.0.0.1:9", tmp_path / "cache", offline=True):
        yield


def downloads(profile, *only):
    return {found.name: found for found in plan_downloads(profile, only)}


def test_hours_and_memory_by_hand():
    column = Column(model="facebook/opt-6.7b", benchmark="wikimia-128", reference="facebook/opt-350m", corpus="c4:1G")
    operations = 3 * 2 * 6.658e9 * 48_000 + 2 * 0.331e9 * 48_000
    assert operations == pytest.approx(1.9493e15, rel=1e-4)
    assert gpu_hours(column) == pytest.approx(19.4928 / 3600, rel=1e-4)  # at 10^14 a second
    assert gpu_hours(column, teraflops=1) == pytest.approx(1949.28 / 3600, rel=1e-4)
    assert memory_gb(column) == pytest.approx(6.658 * 2 + 2)
    column = Column(model="EleutherAI/gpt-neo-2.7B", benchmark="wikimia-32", masked="x/y", n_neighbors=25)
    assert gpu_hours(column) == pytest.approx(2 * 2.651e9 * 37_248 * 28 / 1e14 / 3600)
    assert memory_gb(column) == pytest.approx(2.651 * 4 + 2)  # float32
    column = Column(model="EleutherAI/pythia-2.8b", benchmark="wikimia-32", unseen="apart", n_training=194)
    passes = 3 + 4 * 1.25 + 3 * 6 * 0.25
    assert gpu_hours(column) == pytest.approx(2 * 2.775e9 * 37_248 * passes / 1e14 / 3600)
    assert memory_gb(column) == pytest.approx(2.775 * 16 + 2)
    assert gpu_hours(Column(model="o/m", benchmark="wikimia-32")) is None
    assert gpu_hours(Column(model="facebook/opt-6.7b", benchmark="texts.jsonl")) is None
    assert memory_gb(Column(model="api:davinci-002", benchmark="bookmia")) is None


def test_a_builds_time_is_that_of_its_timed_jobs_and_says_what_was_not_timed(monkeypatch):
    timed = {"calibration": 0.5, "timed_with": {"real": "gpt2"}, "jobs": {"real": {"a": 3600.0, "b": 7200.0}}}
    monkeypatch.setattr(estimate, "DURATIONS", timed)
    monkeypatch.setattr(estimate, "calibrate", lambda: 1.0)  # half as fast
    said = estimate.describe_time("real", ["a", "b", "c"], 2)
    assert said.startswith("About 4 hours on 2 ") and "(with gpt2 alone" in said and said.endswith("not counted: 1")
    assert "not counted" not in estimate.describe_time("real", ["a", "b"], 2)


def test_the_plan_adds_up_and_has_the_reference_corpora(without_hub):
    found = downloads(PAPER)
    assert found[C4].gb == pytest.approx(15 * 0.41) and found[C4].licence == "odc-by"  # once, not c4:1G and c4:10G too
    assert found["CASIA-LM/ChineseWebText"].gb == pytest.approx(5 * 3.2)
    assert downloads(PAPER, "paper_dc_pdd_table_4")[C4].gb == pytest.approx(10 * 0.41)
    model = {"model": "facebook/opt-350m", "benchmark": "wikimia-32"}
    falling = profile_of(one=model | {"corpus": "c4:2G"}, two=model | {"corpus": "c4:1G"})
    assert downloads(falling)[C4].gb == pytest.approx(2 * 0.41)
    only = ["paper_dc_pdd_table_4"]
    columns, found = plan_columns(PAPER, only), plan_downloads(PAPER, only)
    text = describe_plan(columns, found)
    for name, gb, licence in (("EleutherAI/pythia-6.9b", "13.8 GB", "apache-2.0"), (C4, "4.1 GB", "odc-by")):
        [line] = [line for line in text.splitlines() if f" {name} " in line]
        assert gb in line and licence in line
    assert all(said in text for said in ("1 jobs", "18 GB", "3 of 3"))
