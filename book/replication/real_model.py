"""What is recorded of SmolLM2-135M besides its token statistics (`replication.real`): probes, and each text's score.

`data/recorded/real/` has the results of the probe's pages that the profile `real` runs (`mialib record-real` copies
them from a finished build), and by benchmark and detector each text's score: `scores.parquet`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import reference_texts
from mialib.passes.inputs import Inputs, Target, inputs_of, score_all, versions_behind
from mialib.shared.files import is_file_of_texts
from mialib_audit.audit import audit
from mialib_audit.files import TextFile
from replication import BOOK_DATA, blind_tables
from replication.profile import load_profile
from replication.recorded import read_recorded, write_recorded
from replication.results import Result, load_results, save

FOLDER = BOOK_DATA / "recorded" / "real"
SCORES = "scores.parquet"
MODEL = "smollm2-135m"
CORPUS = "lab/en"  # for DC-PDD
N_AUDITED = 200  # texts of a file of an audit
FIXED, N_FIXED = "lab/en", 25  # members, and as many non-members: texts that every clone has, to check the scores by


def results_of(page: str) -> list[Result]:
    """What a page of the profile found with the real model, or blind baselines on a file of texts, as recorded."""
    return load_results(FOLDER / f"{page}.json")


def probed() -> list[Result]:
    """What the probe's pages of the profile `real` found, as recorded; nothing on these pages themselves."""
    if load_profile().name == "real":
        return []
    return [of for page in ("probe_wikimia", "probe_arxiv") for of in results_of(page)]


def load_scores(benchmark: str) -> tuple[NDArray[np.int8], list[str], dict[str, NDArray[np.float64]]]:
    """Who is a member, (N,), each text's domain, and its scores, (N,), by detector; ValueError for others."""
    if not (rows := read_recorded(FOLDER / SCORES, benchmark=benchmark)):
        raise ValueError(f"no scores of {benchmark} are recorded in {FOLDER / SCORES}")
    scores = {row["detector"]: np.array(row["scores"], float) for row in rows}
    return np.array(rows[0]["labels"], np.int8), rows[0]["domains"], scores


def record(results: Path, benchmarks: Sequence[str]) -> list[Path]:
    """Copy the results of a build's pages of the probe, and write each text's scores on these benchmarks."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(results.glob("probe_*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        (FOLDER / path.name).write_text(json.dumps(kept, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(FOLDER / path.name)
    for path in map(Path, filter(is_file_of_texts, benchmarks)):
        blind = blind_tables.measure_blind(load_benchmark(str(path)), path.stem, ["auc"])
        save(path.stem, blind, paper="none", item="blind baselines", out=FOLDER / f"{path.stem}.json")
        audited = json.dumps(audits(path), ensure_ascii=False)
        (FOLDER / f"{path.stem}-audits.json").write_text(f"{audited}\n", encoding="utf-8")
        written += [FOLDER / f"{path.stem}.json", FOLDER / f"{path.stem}-audits.json"]
    write_recorded(FOLDER / SCORES, [row for name in (*benchmarks, FIXED) for row in score_rows(name)])
    return [*written, FOLDER / SCORES]


def score_rows(benchmark: str) -> list[dict[str, Any]]:
    """By detector the score of each text of a benchmark, in its order, who is a member, and what made them."""
    target, texts = Target(model=MODEL, benchmark=benchmark, corpus=CORPUS), load_benchmark(benchmark)
    if benchmark == FIXED:
        texts = texts.take(np.concatenate([np.flatnonzero(texts.labels == label)[:N_FIXED] for label in (1, 0)]), FIXED)
    return rows_of(inputs_of(target, texts), Path(benchmark).stem if is_file_of_texts(benchmark) else benchmark)


def rows_of(inputs: Inputs, name: str, detectors: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The same of other inputs, under a name of their own, by some detectors."""
    about: dict[str, Any] = {"model": inputs.target.model, "weights": inputs.source.revision, "benchmark": name}
    about |= {"texts": inputs.labelled.revision, "labels": inputs.labels, "domains": list(inputs.labelled.domains)}
    return [
        about | {"detector": name, "versions": json.dumps(versions_behind(name)), "scores": scores.astype(np.float32)}
        for name, scores in score_all(inputs, detectors).items()
        if scores is not None
    ]


def audits(path: Path) -> dict[str, list[str]]:
    """What three audits of the real model say, against new docstrings that it can hardly have read: of texts that it
    has surely read, of old docstrings, and of other new ones. `path` is a file of `mialib construct docstrings`."""
    labelled, rng = load_benchmark(str(path)), np.random.default_rng(0)
    old, new = ([labelled.texts[i] for i in rng.permutation(np.flatnonzero(labelled.labels == of))] for of in (1, 0))
    n_words = max(len(text.split()) for text in new)
    licences = dict.fromkeys(" ".join(text.split()[:n_words]) for text in reference_texts("installed/licences"))
    tried = {"licences": list(licences), "old docstrings": old, "other new docstrings": new[N_AUDITED:]}
    known, target = TextFile("new docstrings", tuple(new[:N_AUDITED])), Target(model=MODEL, benchmark=str(path))
    files = {what: TextFile(what, tuple(texts[:N_AUDITED])) for what, texts in tried.items()}
    return {f"{len(of.texts)} {what}": audit(of, target, known)["verdict"]["sentences"] for what, of in files.items()}
