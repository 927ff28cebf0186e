"""The papers' claims as tests fixed beforehand (`data/claims.yml`), and what the lab says of each.

A lab verdict rests on several training seeds: seed 0 is computed live, the others are recorded once by `mialib record`
as scores in `data/recorded/claims.parquet`, each with a hash of the test and of the texts that it was computed from. A
recorded seed whose hashes are not those of the live one is left out, and the page says so.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import Field

from mialib.config import Strict, one_line
from mialib.detectors import FloatArray
from mialib.evaluate import Inputs, Target, cut_inputs, load_inputs, score_all
from mialib.metrics import Comparison, compare_auc_over_seeds
from mialib.results import Result, verdict
from mialib.store import ROOT, atomic_path, hash_of, mialib_version

CLAIMS_FILE = ROOT / "data" / "claims.yml"
RECORDED_FILE = ROOT / "data" / "recorded" / "claims.parquet"
CHANCE = "chance"


class Setting(Strict):
    """Where a claim is tested, unless one of its sides says otherwise."""

    model: str
    benchmark: str
    corpus: str


class Side(Strict):
    """One side of a comparison: a detector and what differs from the setting, for some settings by name."""

    detector: str
    options: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, str] = Field(default_factory=dict)
    n_words: dict[str, int] = Field(default_factory=dict)
    corpus: str | None = None


class Claim(Strict):
    """A claim of a paper and its test."""

    id: str
    paper: str
    claim: str
    published: str
    fixed: Literal["before", "after seed 0"]
    only: tuple[str, ...] = ()  # names of settings; all where empty
    a: Side
    against: tuple[Side | Literal["chance"], ...]
    expect: Literal["greater", "equivalent"]
    margin: float | None = None


class Claims(Strict):
    """The whole file."""

    settings: dict[str, Setting]
    claims: tuple[Claim, ...]

    def tests(self) -> list[tuple[Claim, str]]:
        """Every claim in every setting that it is tested in."""
        return [(claim, name) for claim in self.claims for name in (claim.only or self.settings)]

    def test_hash(self, claim: Claim, setting: str) -> str:
        """What a recorded score must have been computed for: sides and setting, not the wording."""
        sides = [claim.a, *claim.against]
        return hash_of(
            [side if side == CHANCE else side.model_dump() for side in sides] + [self.settings[setting].model_dump()]
        )


@dataclass(frozen=True)
class SeedScores:
    """The scores of one claim in one setting under one training seed: first side a, then each it is held against."""

    seed: int
    scores: FloatArray  # (1 + len(against), N)
    texts: str  # the benchmark's revision


@dataclass(frozen=True)
class Judgement:
    """What the lab says of one claim in one setting."""

    claim: Claim
    setting: str
    seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]  # one for each side that a is held against; covers texts and seeds
    verdict: str


def load_claims(path: str | Path = CLAIMS_FILE) -> Claims:
    """Read and check the claims; ValueError names the file and what is wrong in it."""
    try:
        return Claims.model_validate(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}") from None


def score_claim(claims: Claims, claim: Claim, setting: str, seed: int) -> tuple[Inputs, SeedScores]:
    """Score all sides of a claim in a setting, with models trained from `seed` (0 is the recipe's own)."""
    first = _inputs(claims.settings[setting], setting, claim.a, seed)
    rows = []
    for side in (claim.a, *claim.against):
        if side == CHANCE:
            rows.append(np.zeros(len(first.labels)))  # ties throughout: an AUC of 0.5
            continue
        inputs = _inputs(claims.settings[setting], setting, side, seed)
        scores = score_all(inputs, [side.detector], **{side.detector: side.options})[side.detector]
        if scores is None:
            raise ValueError(f"claim {claim.id}: {side.detector} is not applicable in setting {setting}")
        rows.append(scores)
    return first, SeedScores(seed, np.array(rows), first.benchmark.revision)


def _inputs(setting: Setting, name: str, side: Side, seed: int) -> Inputs:
    model = side.model.get(name, setting.model) + (f"@{seed}" if seed else "")
    return _load(Target(model, setting.benchmark, corpus=side.corpus or setting.corpus), side.n_words.get(name))


@cache
def _load(target: Target, n_words: int | None) -> Inputs:
    inputs = load_inputs(target)
    return inputs if n_words is None else cut_inputs(inputs, n_words)[0]


def judge(claim: Claim, setting: str, labels: Sequence[int], seeds: Sequence[SeedScores]) -> Judgement:
    """The verdict of several training seeds on the same texts; "inconclusive" for fewer than three."""
    comparisons = tuple(
        compare_auc_over_seeds(labels, [s.scores[0] for s in seeds], [s.scores[i] for s in seeds])
        for i in range(1, 1 + len(claim.against))
    )
    found = {verdict(c.difference, margin=claim.margin if claim.expect == "equivalent" else None) for c in comparisons}
    worst_first = ("not supported", "inconclusive", "supported")
    overall = next(name for name in worst_first if name in found) if len(seeds) >= 3 else "inconclusive"
    return Judgement(claim, setting, tuple(s.seed for s in seeds), comparisons, overall)


def judge_all(claims: Claims, recorded: Path = RECORDED_FILE) -> tuple[list[Judgement], list[str]]:
    """Every claim in every setting, from the live seed and the recorded ones, and a line for each seed left out."""
    kept = load_recorded(recorded)
    judgements, left_out = [], []
    for claim, setting in claims.tests():
        inputs, live = score_claim(claims, claim, setting, seed=0)
        seeds = [live]
        for of_seed, test in kept.get((claim.id, setting), []):
            if test == claims.test_hash(claim, setting) and of_seed.texts == live.texts:
                seeds.append(of_seed)
            else:
                left_out.append(f"{claim.id}, {setting}, seed {of_seed.seed}: recorded for another test or other texts")
        judgements.append(judge(claim, setting, inputs.labels, seeds))
    return judgements, left_out


def record(claims: Claims, seeds: Iterable[int], path: Path = RECORDED_FILE) -> None:
    """Train, score and write the scores of further seeds, with provenance in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for seed in seeds:
        for claim, setting in claims.tests():
            _, found = score_claim(claims, claim, setting, seed)
            rows.append(
                {
                    "claim": claim.id,
                    "setting": setting,
                    "seed": seed,
                    "test": claims.test_hash(claim, setting),
                    "texts": found.texts,
                    "scores": found.scores.astype(np.float32).tolist(),
                }
            )
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    provenance = {
        "mialib": mialib_version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: version(name) for name in libraries},
    }
    schema = pa.schema(
        {
            "claim": pa.string(),
            "setting": pa.string(),
            "seed": pa.int32(),
            "test": pa.string(),
            "texts": pa.string(),
            "scores": pa.list_(pa.list_(pa.float32())),
        },
        metadata={"provenance": json.dumps(provenance)},
    )
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")


def load_recorded(path: Path = RECORDED_FILE) -> dict[tuple[str, str], list[tuple[SeedScores, str]]]:
    """Recorded scores and the hash of the test that they are of, by claim and setting; empty where there are none."""
    import pyarrow.parquet as pq

    kept: dict[tuple[str, str], list[tuple[SeedScores, str]]] = {}
    for row in pq.read_table(path).to_pylist() if path.is_file() else []:
        scores = SeedScores(row["seed"], np.array(row["scores"], np.float64), row["texts"])
        kept.setdefault((row["claim"], row["setting"]), []).append((scores, row["test"]))
    return kept


def recorded_provenance(path: Path = RECORDED_FILE) -> dict[str, str]:
    """What the recorded seeds were computed with."""
    import pyarrow.parquet as pq

    return json.loads(pq.read_schema(path).metadata[b"provenance"])


def claim_results(judgements: Sequence[Judgement]) -> list[Result]:
    """Every comparison of every claim as a result."""
    return [
        Result.of(row=j.claim.id, column=f"{j.setting}, comparison {i}", metric="auc_difference", interval=c.difference)
        for j in judgements
        for i, c in enumerate(j.comparisons)
    ]


def summary(judgements: Sequence[Judgement], left_out: Sequence[str]) -> str:
    """How many verdicts of each kind, and what recorded seeds were left out, in Markdown."""
    counts = Counter(j.verdict for j in judgements)
    n_seeds = sorted({len(j.seeds) for j in judgements})
    lines = [
        f"**{len(judgements)} tests**: "
        + ", ".join(f"{counts[name]} {name}" for name in ("supported", "not supported", "inconclusive"))
        + f". Training seeds behind each: {' to '.join(map(str, sorted({n_seeds[0], n_seeds[-1]})))}."
    ]
    if left_out:
        lines += ["", "Recorded seeds that were left out:", "", *(f"- {line}" for line in left_out)]
    return "\n".join(lines)


def describe_recorded(path: Path = RECORDED_FILE) -> str:
    """What the recorded seeds were computed with, in a sentence."""
    if not path.is_file():
        return "No further seeds are recorded."
    made_with = ", ".join(f"{name} {value}" for name, value in recorded_provenance(path).items())
    return f"The recorded seeds were computed with {made_with}."
