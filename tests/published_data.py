"""Tiny data sets in the layouts that the hub has the published benchmarks in."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq


def rows(name, n=8, text="text", **more):
    """Texts of which every second is a member."""
    return [{text: f"The {name} number {i} stands near the old Mill", "label": i % 2} | more for i in range(n)]


def write_jsonl(path, lines):
    """Write one JSON value a line, compressed where the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def write_parquet(path, of_rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(of_rows), path)


def wikimia(folder, word="river", **row):
    """A parquet file a split, which the README's header names."""
    files = []
    for length in (32, 64):
        write_parquet(
            folder / "data" / f"WikiMIA_length{length}-00000-of-00001.parquet",
            rows(f"{word} {length}", text="input", **row),
        )
        files.append(f"  - split: WikiMIA_length{length}\n    path: data/WikiMIA_length{length}-*\n")
    header = "---\nconfigs:\n- config_name: default\n  data_files:\n" + "".join(files) + "---\n"
    (folder / "README.md").write_text(header)
    return folder


def arxiv_mia(folder):
    """Two configs of one split each."""
    configs = []
    for part, n in (("dev", 4), ("test", 8)):
        write_jsonl(folder / f"arxiv_mia_{part}.jsonl", rows(f"{part} letter", n, field="cs"))
        configs.append(f"- config_name: arxiv_mia_{part}\n  data_files: arxiv_mia_{part}.jsonl\n")
    (folder / "README.md").write_text("---\nconfigs:\n" + "".join(configs) + "---\n")
    return folder


def mimir(folder):
    """Members and non-members in files of their own, a bare JSON string a line."""
    for part, word in (("train", "stone"), ("test", "garden")):
        for name in ("github_ngram_7_0.2", "wikipedia_(en)_ngram_7_0.2"):
            texts = [f"The {word} {i}\u2028of {name}" for i in range(4)]
            write_jsonl(folder / "cache_100_200_1000_512" / part / f"{name}.jsonl", texts)
    return folder


def c4(folder, n_files=2, n_texts=6):
    """The first files of C4's English part, with its other columns."""
    for number in range(n_files):
        texts = [f"File {number}, text {i}: the river runs south." for i in range(n_texts)]
        lines = [{"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": "http://x"} for text in texts]
        write_jsonl(folder / "en" / f"c4-train.{number:05d}-of-01024.json.gz", lines)
    return folder
