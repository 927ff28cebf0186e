"""Benchmarks that say how often each text was inserted: files, and Hubble's as it lies on the hub."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mialib
from mialib.passes.inputs import Target, load_inputs
from replication.pages import times_inserted

ROWS = [("Never inserted", 0), ("Inserted once", 1), ("Inserted often", 64), ("Not either", 0)]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_text_is_a_member_where_it_was_inserted_and_a_page_reads_how_often(tmp_path, model_folder):
    bench = mialib.load_benchmark(write(tmp_path / "b.jsonl", [{"text": t, "duplicates": n} for t, n in ROWS]))
    assert bench.labels.tolist() == [0, 1, 1, 0] and bench.times == (0, 1, 64, 0)
    assert bench.take([2, 0], "some").times == (64, 0) and bench.cut(1).times == bench.times
    assert bench.snippets(1).times == (0, 0, 1, 1, 64, 64, 0, 0)
    rows = [{"text": "a", "label": 1, "duplicates": 2}, {"text": "b", "label": 0, "duplicates": 1}]
    with pytest.raises(ValueError, match=r"row 2: label 0, .* 1$"):
        mialib.load_benchmark(write(tmp_path / "b.jsonl", rows))
    path = write(tmp_path / "b.jsonl", [{"text": t, "duplicates": n} for t, n in ROWS])
    inputs = load_inputs(Target(model=model_folder, benchmark=path))
    np.testing.assert_array_equal(times_inserted(inputs), [0, 1, 64, 0])
    np.testing.assert_array_equal(times_inserted(inputs, "2,4"), [0, 2, 4, 0])


@pytest.mark.parametrize("as_text", [True, False])
def test_hubbles_file_is_read_as_it_lies_on_the_hub(as_text, tmp_path, monkeypatch):
    folder = tmp_path / "allegrolab" / "passages_wikipedia"
    folder.mkdir(parents=True)
    metas = [{"duplicates": n, "title": "x"} for _, n in ROWS]
    rows = [{"text": t, "meta": json.dumps(m) if as_text else m} for (t, _), m in zip(ROWS, metas, strict=True)]
    with gzip.open(folder / "passages_wikipedia_nodup.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(tmp_path))
    bench = mialib.load_benchmark("hubble_wikipedia")
    assert bench.times == (0, 1, 64, 0) and bench.labels.sum() == 2


def test_copyright_traps_are_chosen_by_length_and_times(tmp_path, monkeypatch):
    folder = tmp_path / "imperial-cpg" / "copyright-traps"
    (folder / "data").mkdir(parents=True)
    splits = ("seq_len_100_n_rep_1000", "seq_len_25_n_rep_10")
    for split in splits:
        rows = [{"text": f"{split} in", "label": 1}, {"text": f"{split} out", "label": 0}]
        pq.write_table(pa.Table.from_pylist(rows), folder / "data" / f"{split}-00000-of-00001.parquet")
    files = "".join(f"  - split: {split}\n    path: data/{split}-*\n" for split in splits)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n")
    monkeypatch.setenv("MIALIB_BENCHMARKS", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name, split in (("copyright_traps", splits[0]), ("copyright_traps/25/10", splits[1])):
        assert mialib.load_benchmark(name).texts == (f"{split} in", f"{split} out")
