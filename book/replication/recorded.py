"""The recorded ladder: `recorded/docstrings-5m` is a model of which the repository holds what it made of the
benchmark `recorded/docstrings`; `recorded/docstrings-5m@1` is its training from seed 1.

`data/recorded/lab/` has three kinds of files, all parquet:

    docstrings.parquet             a benchmark: who is a member, and the token ids of each text
    docstrings-counts.parquet      how often its tokens occur in its reference texts, for DC-PDD
    docstrings-5m-seed-0.parquet   a training: three float16 numbers a token, how often each text was seen, provenance

A real model that was trained on has one more, of the model before (`docstrings-smollm2-untouched.parquet`), which
stands for each seed; and what the probe says of each text, in files that were recorded with it.

Of a model whose tokenizer anyone has, token ids would be other people's sentences. There an id says no more than how
often its token occurs in the reference texts, and which tokens of a text are the same: all that DC-PDD reads of it.
That keeps nobody from searching for a text: whoever has the model finds the words that give the recorded log-probs.

float16 moves an AUC by less than 0.002: most that of SURP, which compares log-probs with a percentile of them and
entropies with a bound. The texts themselves are not there, so what needs them (Zlib, Lowercase, another length) is not
applicable. `replication.studies.ladder` makes the files.

Files of rows, `data/recorded/*.parquet` (`mialib record`), hold scores and ranks of training seeds, so that a build
trains none. A row counts only where the versions of what computed it (`mialib.versions`) are today's.
"""

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mialib.attacks.probe import ProbeScores
from mialib.benchmarks import Benchmark
from mialib.catalog.corpora import corpus_identity
from mialib.catalog.sources import PassOptions, Source, find
from mialib.frequency import TokenFrequency
from mialib.store import atomic_path, hash_files, hash_of, mialib_version, version
from mialib.text import excerpt
from mialib.token_stats import NUMBERS, TokenStats
from replication import BOOK_DATA

LADDER_FOLDER = BOOK_DATA / "recorded" / "lab"
RECORDED = "recorded/"  # how the names of what is recorded begin
UNTOUCHED = "-untouched"  # how the name ends of a real model as it was before it was trained on
COLUMNS = ("log_prob", "entropy", "log_prob_var")  # what the papers' detectors read of a token
NOT_THERE = "the repository holds only per-token statistics of the recorded ladder, neither texts nor weights"


class Recorded(Source):
    """A model or a benchmark of the recorded ladder; FileNotFoundError for a name that is not recorded."""

    scores_lowercase = False

    def no_weights(self) -> NoReturn:
        """ValueError: only the model's pass over its benchmark is here."""
        raise ValueError(f"{self.name}: this needs the model's weights; {NOT_THERE}")

    def check(self) -> None:
        """FileNotFoundError for a model that is not recorded."""
        _training(self.name)

    @property
    def revision(self) -> str:
        """The content hash of the recording."""
        return hash_files([_training(self.name)])

    def count_parameters(self, *, embeddings: bool = False) -> int:
        """The number in the provenance."""
        return recorded_provenance(self.name)["parameters" if embeddings else "non_embedding_parameters"]

    @property
    def lacks(self) -> dict[str, str]:
        """The texts."""
        return {"texts": NOT_THERE}

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """The recorded statistics of texts of the benchmark, as `benchmark` names them.

        ValueError for other texts, for another pass than the recorded one, and for a training on other texts than those
        of its benchmark's file.
        """
        if not options.is_of_texts_alone or options.start_token != "auto":
            raise ValueError(
                f"{self.name} is recorded after its start token, at temperature 1 and after no other texts"
            )
        stats, wanted = _load(self.name, LADDER_FOLDER)[0], _numbers(self.name, texts)
        return stats if wanted == list(range(len(stats))) else stats.take(wanted)

    def times_seen(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """How often the model has seen each text in training, (N,); texts and errors as for `score`."""
        times = pq.read_table(_training(self.name), columns=["times"])["times"].to_numpy().astype(np.int64)
        return times[_numbers(self.name, texts)]

    def benchmark(self) -> Benchmark:
        """The benchmark with a number in place of each text."""
        path = _file(self.name)
        labels = pq.read_table(path, columns=["label"])["label"].to_numpy().astype(np.int8)
        provenance = read_provenance(path)
        texts = tuple(f"{self.name}, text {i}" for i in range(len(labels)))  # as `_numbers` knows them
        return WithoutTexts(self.name, texts, labels, revision=provenance["dealt"], language=provenance["language"])

    def check_scorable(self, model: str) -> None:
        """ValueError for a model that is not recorded."""
        if not is_recorded(model):
            raise ValueError(f"{self.name}: {model} can't score it; its texts are not here")

    @property
    def frequency(self) -> TokenFrequency:
        """How often each token occurs in the benchmark's reference texts."""
        return TokenFrequency.load(_file(self.name).with_name(f"{self.name.removeprefix(RECORDED)}-counts.parquet"))

    def counts(self, model: Source) -> TokenFrequency | None:
        """The same for a recorded model."""
        return self.frequency if isinstance(model, Recorded) else None


class WithoutTexts(Benchmark):
    """A benchmark with a number in place of each text."""

    def cut(self, n_words: int) -> NoReturn:
        """ValueError: there is nothing to cut."""
        raise ValueError(f"{self.name}: it can't be cut; its texts are not here")

    def snippets(self, n_words: int, part: str = "all") -> NoReturn:
        """The same."""
        self.cut(n_words)


def is_recorded(name: str) -> bool:
    """Whether a name is one of the recorded ladder's."""
    return isinstance(find(name), Recorded)


def identity_of(corpus: str) -> str:
    """What determines a reference corpus: its texts, or what is recorded of them."""
    source = find(corpus)
    return hash_of(source.frequency.counts.tolist()) if isinstance(source, Recorded) else corpus_identity(corpus)


def recorded_models() -> dict[str, list[int]]:
    """The models that are recorded, by benchmark and size, and the training seeds of each."""
    made = [read_provenance(path) for path in LADDER_FOLDER.glob("*-seed-*.parquet")]
    found: dict[str, list[int]] = {}
    for p in sorted(made, key=lambda p: (p["benchmark"], p["non_embedding_parameters"], p["seed"])):
        found.setdefault(p["model"], []).append(p["seed"])
    return found


def _numbers(model: str, texts: Sequence[str]) -> list[int]:
    stats, benchmark = _load(model, LADDER_FOLDER)
    known = {f"{benchmark}, text {i}": i for i in range(len(stats))}
    if unknown := next((text for text in texts if text not in known), None):
        raise ValueError(f"{model} is recorded on {benchmark} alone, not on {excerpt(unknown)}: {NOT_THERE}")
    return [known[text] for text in texts]


def recorded_baselines(name: str) -> list[dict[str, Any]]:
    """The AUCs of baselines that see no model, measured when a benchmark was recorded, as JSON of results."""
    return read_provenance(_file(name))["blind"]


def recorded_provenance(model: str) -> dict[str, Any]:
    """What a model was made by: recipe, tokens, seconds, device, versions, parameters."""
    return read_provenance(_training(model))


def recorded_probe(model: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What the probe says of each text, (N,), and the numbers of those on which it was not chosen."""
    made = recorded_provenance(model)
    if "probe" not in made:
        raise ValueError(f"no probe of {model} is recorded; {NOT_THERE}")
    scores = pq.read_table(_training(model), columns=["probe"])["probe"].to_numpy().astype(float)
    return scores, np.setdiff1d(np.arange(len(scores)), made["probe"]["validation"])


def _file(name: str) -> Path:
    path = LADDER_FOLDER / f"{name.removeprefix(RECORDED)}.parquet"
    if not path.is_file():
        benchmarks = sorted({read_provenance(p)["benchmark"] for p in LADDER_FOLDER.glob("*-seed-*.parquet")})
        raise FileNotFoundError(f"no {name!r} is recorded; recorded are {', '.join(benchmarks) or 'none'}")
    return path


def _training(model: str) -> Path:
    stem, _, seed = model.removeprefix(RECORDED).partition("@")
    path = LADDER_FOLDER / f"{stem}-seed-{seed or 0}.parquet"
    if stem.endswith(UNTOUCHED):
        path = LADDER_FOLDER / f"{stem}.parquet"
    if not path.is_file():
        known = [f"{name}@{seed}" for name, seeds in recorded_models().items() for seed in seeds]
        raise FileNotFoundError(f"no model {model!r} is recorded; recorded are {', '.join(known) or 'none'}")
    return path


@cache
def _load(model: str, folder: Path) -> tuple[TokenStats, str]:
    """A model's statistics and its benchmark's name."""
    path = _training(model)
    provenance, table = read_provenance(path), pq.read_table(path)
    of_texts = folder / f"{provenance['benchmark']}.parquet"
    if read_provenance(of_texts)["dealt"] != provenance["dealt"]:
        raise ValueError(f"{path} was recorded on other texts than those of {of_texts}; record it again")
    ids = pq.read_table(of_texts, columns=["token_ids"])["token_ids"].combine_chunks()
    lengths = ids.value_lengths().to_numpy()
    numbers = {name: table[name].combine_chunks().flatten().to_numpy().astype(np.float32) for name in COLUMNS}
    lacks = {name: f"{model} was recorded without it" for name in NUMBERS if name not in COLUMNS}
    stats = TokenStats(
        token_ids=ids.flatten().to_numpy().astype(np.int32),
        **numbers,
        **{name: np.full(lengths.sum(), np.nan, np.float32) for name in lacks},
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        n_cut=np.zeros(len(lengths), np.int32),
        provenance=provenance | {"model": model, "revision": hash_files([path]), "lacks": lacks},
    )
    return stats, f"{RECORDED}{provenance['benchmark']}"


def read_provenance(path: Path) -> dict[str, Any]:
    """What a recorded file says of itself; empty where it is not there, or is no recording."""
    return json.loads((pq.read_schema(path).metadata or {}).get(b"provenance", b"{}")) if path.is_file() else {}


def hide_tokens(stats: TokenStats, frequencies: Sequence[TokenFrequency]) -> tuple[TokenStats, list[TokenFrequency]]:
    """The same with other token ids, which the tokenizer turns into no text: DC-PDD's scores stay as they are.

    All tokens of the vocabulary are ordered by their counts in the corpora. A text's first token with these counts
    becomes the first of those that have them, its second another one, and so on.
    """
    of_token = np.stack([frequency.counts for frequency in frequencies], axis=1)  # (V, corpora)
    distinct, kind, n_of_kind = np.unique(of_token, axis=0, return_inverse=True, return_counts=True)
    first = np.cumsum(n_of_kind) - n_of_kind  # of the tokens with the same counts
    ids = np.empty_like(stats.token_ids)
    for start, end in pairwise(stats.offsets):
        known: dict[int, int] = {}  # of this text
        n_known: Counter[int] = Counter()
        for i, token in enumerate(stats.token_ids[start:end].tolist(), start):
            if token not in known:
                known[token] = int(first[kind[token]]) + n_known[kind[token]]
                n_known[kind[token]] += 1
            ids[i] = known[token]
    counts = np.repeat(distinct, n_of_kind, axis=0).T
    hidden = [replace(frequency, counts=of) for frequency, of in zip(frequencies, counts, strict=True)]
    return replace(stats, token_ids=ids), hidden


def save_benchmark(
    folder: Path,
    name: str,
    labels: NDArray[np.int8],
    stats: TokenStats,
    frequency: TokenFrequency,
    made_of: dict[str, Any],
) -> None:
    """Write who is a member, the token ids of each text, and the token counts of the reference texts."""
    of_texts = {"label": labels.astype(np.int8), "token_ids": _lists(stats, stats.token_ids)}
    frequency.save(folder / f"{name}-counts.parquet")
    write_table(pa.table(of_texts), folder / f"{name}.parquet", made_of)  # last: with it the benchmark is there


def save_training(path: Path, times: NDArray[np.int64], stats: TokenStats, provenance: dict[str, Any]) -> None:
    """Write a training's statistics in float16; ValueError for a number that is not finite in float16."""
    columns = {name: _lists(stats, halves(getattr(stats, name), f"{path}: a {name}")) for name in COLUMNS}
    write_table(pa.table({"times": times.astype(np.int32), **columns}), path, provenance)


def halves(values: NDArray[np.float32], what: str) -> NDArray[np.float16]:
    """The same in float16; ValueError for a number that is not finite there."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise ValueError(f"{what} is not finite in float16")
    return rounded


def add_probe(path: Path, probe: ProbeScores) -> None:
    """Write what the probe says of each text into a training's file, in float32, and how it was chosen."""
    made = {
        "layer": probe.layer,
        "learning_rate": probe.learning_rate,
        "learning_rates": probe.learning_rates,
        "validation_aucs": probe.validation_aucs.tolist(),
        "validation": probe.validation.tolist(),
        **made_with(),
    }
    table = pq.read_table(path).append_column("probe", pa.array(probe.scores.astype(np.float32)))
    write_table(table, path, read_provenance(path) | {"probe": made})


def _lists(stats: TokenStats, values: NDArray[Any]) -> Any:
    return pa.LargeListArray.from_arrays(pa.array(stats.offsets, pa.int64()), pa.array(values))


def write_table(table: Any, path: Path, provenance: dict[str, Any]) -> Path:
    """Write a table as parquet, its provenance in the file's metadata."""
    # A number's two bytes are stored apart: the upper ones are alike, so a file is a tenth smaller.
    is_half = [pa.types.is_large_list(f.type) and pa.types.is_float16(f.type.value_type) for f in table.schema]
    apart = {
        f"{name}.list.element": "BYTE_STREAM_SPLIT"
        for name, half in zip(table.column_names, is_half, strict=True)
        if half
    }
    smaller = {"compression": "zstd", "compression_level": 19, "use_dictionary": False, "column_encoding": apart}
    table = table.replace_schema_metadata({"provenance": json.dumps(provenance)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, **(smaller if apart else {}))
    return path


def write_recorded(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as parquet, with provenance in the file's metadata; a column's type is that of its NumPy arrays."""
    provenance = json.dumps(made_with() | {"machine": platform.machine()})
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"provenance": provenance})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_recorded(path: Path, **where: Any) -> list[dict[str, Any]]:
    """The rows whose columns have these values, all where none is named; none where there is no file."""
    filters = [(name, "==", value) for name, value in where.items()] or None
    return pq.read_table(path, filters=filters).to_pylist() if path.is_file() else []


@cache
def weights_of(*models: str) -> str:
    """A hash of these models' weights and tokenizers."""
    return hash_of([find(name).revision for name in models])


def why_not_counted(
    row: Mapping[str, Any], test: str, texts: str, models: Sequence[str], versions: Mapping[str, int]
) -> str:
    """Say what else than this test, its texts, models and versions a recorded row was computed for; "" where it counts.

    Weights count for seed 0 alone, whose models are stored.
    """
    if row["texts"] != texts:
        return "other texts"
    if row["test"] != test:
        return "another test"
    if row["seed"] == 0 and row["weights"] != weights_of(*models):
        return "other weights than those of data/lab"
    then = json.loads(row["versions"])
    differ = [name for name in {**then, **versions} if then.get(name) != versions.get(name)]
    said = ", ".join(f"{name} {then.get(name, 'none')}, now {versions.get(name, 'none')}" for name in differ)
    return f"other versions ({said})" if said else ""


def made_with() -> dict[str, str]:
    """The versions of mialib, Python and the libraries that compute."""
    libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
    return {"mialib": mialib_version(), "python": platform.python_version(), **libraries}
