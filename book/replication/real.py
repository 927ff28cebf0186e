"""Real language models on published benchmarks, as recorded: `real/gemma-3-270m` on `real/wikimia-64`.

`data/recorded/real/` has by benchmark what the texts are, and what each model made of them, all parquet:

    wikimia-64/texts.parquet          label and domain of each text, its bytes under zlib by word
    wikimia-64/gemma-3-270m.parquet   three float16 numbers a token, the tokens after each word, log-probs in lower case
    gemma-3-270m-counts.parquet       how often its tokens occur in the reference corpora, for DC-PDD

So the papers' detectors can be computed with any hyperparameters, and at any length, without texts and weights. Token
ids are replaced as in the recorded ladder (`replication.recorded`), which hides the words from a reader and not from a
search: whoever counts the same corpora can tell four tokens in five. In place of a text stands another one with as many
words, and as many bytes under zlib.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mialib.batches import encode
from mialib.benchmarks import Benchmark
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.gguf import Gguf
from mialib.catalog.models import load_tokenizer
from mialib.catalog.registry import KnownModel, find_model
from mialib.catalog.sources import PassOptions, Source, find
from mialib.frequency import TokenFrequency
from mialib.passes.cache import count_or_load, score_cut_texts, score_or_load
from mialib.store import hash_files, hash_texts
from mialib.text import word_spans
from mialib.token_stats import NUMBERS, TokenRow, TokenStats
from replication import BOOK_DATA
from replication.profile import check_names
from replication.recorded import COLUMNS, halves, hide_tokens, made_with, read_provenance, write_table

REAL = "real/"  # how the names begin
FOLDER = BOOK_DATA / "recorded" / "real"
TEXTS = "texts.parquet"
PLACE = re.compile(r"(\d+)\.([\w-]+)\.(\d+):")  # number of the text, benchmark, number of words
# The longest first, whose beginnings the others are (`score_nested`).
BENCHMARKS = ("wikimia-256", "wikimia-128", "wikimia-64", "wikimia-32", "arxiv_mia")
CORPORA = (  # DC-PDD's
    *("wordfreq/en", "wordfreq/en:10M", "installed/licences", "installed/licences:30k", "installed/licences:300k"),
    *("lab/en", "lab/en:30k", "lab/en:100k", "lab/en:300k"),
)
NOT_THERE = "the repository holds its token statistics on some benchmarks, not its weights"


class Real(Source):
    """A model, or a benchmark, of `data/recorded/real/`."""

    scores_cuts = True

    def no_weights(self) -> NoReturn:
        """ValueError: only what the model made of some benchmarks is here."""
        raise ValueError(f"{self.name}: this needs the model's weights; {NOT_THERE}")

    def check(self) -> None:
        """FileNotFoundError for a model of which nothing is recorded."""
        self._passes()

    @property
    def revision(self) -> str:
        """The content hash of what is recorded of it."""
        return hash_files([*self._passes(), FOLDER / f"{self._stem}-counts.parquet"])

    @property
    def known(self) -> KnownModel | None:
        """The registry's entry of the model."""
        return find_model(self._stem)

    def count_parameters(self, *, embeddings: bool = False) -> int:
        """The number in the provenance; with embeddings its makers', since a GGUF file may hold these twice."""
        if embeddings and self.known and self.known.billions:
            return round(self.known.billions * 1e9)
        made = read_provenance(self._passes()[0])
        return made["parameters" if embeddings else "non_embedding_parameters"]

    def counts_in(self, corpus: str) -> TokenFrequency:
        """How often each token occurs in a reference corpus; ValueError for one that was not counted."""
        path = FOLDER / f"{self._stem}-counts.parquet"
        made = read_provenance(path)
        check_names([corpus], made["corpora"], f"{self.name}: its tokens were not counted in")
        counts = pq.read_table(path, columns=[corpus])[corpus].to_numpy().astype(np.int64)
        return TokenFrequency(counts, corpus, made["tokenizer"])

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """The recorded statistics of texts of a `real/` benchmark, also of cut and of lowercased ones.

        ValueError for other texts, and for another pass than the recorded one.
        """
        if not options.is_of_texts_alone or options.start_token != "auto":
            raise ValueError(
                f"{self.name} is recorded after its start token, at temperature 1 and after no other texts"
            )
        places = [(place[2], int(place[1]), int(place[3])) for text in texts if (place := PLACE.match(text))]
        originals = [_stand_in_at(*place) for place in places]
        is_lower = list(texts) != originals
        if (
            list(texts) != [text.lower() if is_lower else text for text in originals]
            or len({p[0] for p in places}) != 1
        ):
            raise ValueError(f"{self.name} is recorded on the texts of one benchmark of real/; {NOT_THERE}")
        table, made = _pass(self._stem, places[0][0])
        all_rows, n_tokens = _rows(table, is_lower)
        ends = [n_tokens[number][n_words - 1] for _, number, n_words in places]
        rows = [
            TokenRow._make(column[:end] for column in all_rows[number])
            for (_, number, _), end in zip(places, ends, strict=True)
        ]
        known = ("log_prob",) if is_lower else COLUMNS
        about = made | {"model": self.name, "n_texts": len(texts)}
        about |= {"texts": hash_texts(texts), "lowercased": hash_texts(text.lower() for text in texts)}
        about["lacks"] = {name: f"{self.name} was recorded without it" for name in NUMBERS if name not in known}
        return TokenStats.from_rows(rows, n_cut=np.zeros(len(rows), np.int32), provenance=about)

    def benchmark(self) -> "StandIns":
        """The benchmark, with other texts in place of its own; FileNotFoundError for one that is not recorded."""
        path = FOLDER / self._stem / TEXTS
        if not path.is_file():
            known = ", ".join(sorted(f"{REAL}{of.parent.name}" for of in FOLDER.glob(f"*/{TEXTS}")))
            raise FileNotFoundError(f"no benchmark {self.name!r} is recorded; recorded are {known}")
        return _stand_ins(self.name, self._stem)

    def check_scorable(self, model: str) -> None:
        """ValueError for a model of which nothing is recorded: it would read the stand-ins."""
        if not model.startswith(REAL):
            stem = self.name.partition(",")[0].removeprefix(REAL)
            raise ValueError(f"{self.name}: {model} can't score it, its texts are not here; score {stem} itself")

    @property
    def _stem(self) -> str:
        return self.name.removeprefix(REAL)

    def _passes(self) -> list[Path]:
        """The files of what the model made of each benchmark."""
        if paths := sorted(FOLDER.glob(f"*/{self._stem}.parquet")):
            return paths
        known = sorted({path.stem for path in FOLDER.glob("*/*.parquet") if path.name != TEXTS})
        raise FileNotFoundError(f"no model {self.name!r} is recorded; recorded are {', '.join(known)}")


@cache
def recorded_pairs() -> list[tuple[str, str]]:
    """Each recorded model with each benchmark on which it is recorded, the smallest model first."""
    paths = [path for path in sorted(FOLDER.glob("*/*.parquet")) if path.name != TEXTS]
    sizes = {path: read_provenance(path)["parameters"] for path in paths}
    return [(f"{REAL}{path.stem}", f"{REAL}{path.parent.name}") for path in sorted(paths, key=lambda path: sizes[path])]


class StandIns(Benchmark):
    """A benchmark with other texts in place of its own: of as many words, and of as many bytes under zlib."""

    def cut(self, n_words: int) -> "StandIns":
        """Stand-ins for each text's first `n_words` words."""
        return _stand_ins(f"{self.name}, {n_words} words", self.name.partition(",")[0].removeprefix(REAL), n_words)

    def snippets(self, n_words: int, part: str = "all") -> NoReturn:
        """ValueError: there are no texts to divide."""
        raise ValueError(f"{self.name}: it has no snippets; its texts are not here")


@cache
def _zlib_bytes(benchmark: str) -> list[list[int]]:
    """A benchmark's texts' bytes under zlib after each of their words."""
    return pq.read_table(FOLDER / benchmark / TEXTS, columns=["zlib_bytes"])["zlib_bytes"].to_pylist()


def _stand_in_at(benchmark: str, number: int, n_words: int) -> str:
    """What stands for the first words of a text; "" where there is no such text."""
    sizes = _zlib_bytes(benchmark) if (FOLDER / benchmark / TEXTS).is_file() else []
    if number >= len(sizes) or not 0 < n_words <= len(sizes[number]):
        return ""
    return stand_in(f"{number}.{benchmark}", n_words, sizes[number][n_words - 1])


@cache
def _stand_ins(name: str, benchmark: str, n_words: int | None = None) -> StandIns:
    path = FOLDER / benchmark / TEXTS
    lengths = [min(len(sizes), n_words or len(sizes)) for sizes in _zlib_bytes(benchmark)]
    texts = tuple(_stand_in_at(benchmark, i, length) for i, length in enumerate(lengths))
    rows, about = pq.read_table(path).drop_columns("zlib_bytes").to_pydict(), read_provenance(path)
    more: dict[str, Any] = {"domains": tuple(rows.get("domain", ())), "validation": tuple(about["validation"])}
    return StandIns(name, texts, np.array(rows["label"], np.int8), about["revision"], n_words=n_words, **more)


@cache
def stand_in(name: str, n_words: int, n_bytes: int) -> str:
    """A text that begins with its name, has `n_words` words, and `n_bytes` bytes under zlib; ValueError for too few."""
    for seed in range(100):
        letters = "".join(Random(seed).choices(ascii_uppercase, k=2 * n_bytes))
        low, high = n_words, len(letters)
        while low < high:  # the fewest letters with so many bytes
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _packed(_of(name, n_words, letters[:middle])) < n_bytes else (low, middle)
        if _packed(text := _of(name, n_words, letters[:low])) == n_bytes:
            return text
    raise ValueError(f"{name}: no other text stands for {n_words} words of {n_bytes} bytes under zlib; take more words")


def _of(name: str, n_words: int, letters: str) -> str:
    """The name, and the letters in so many words."""
    ends = np.linspace(0, len(letters), n_words + 1).astype(int).tolist()
    return f"{name}.{n_words}:" + " ".join(letters[a:b] for a, b in pairwise(ends))


def _packed(text: str) -> int:
    return len(zlib.compress(text.encode()))


@cache
def _pass(model: str, benchmark: str) -> tuple[pa.Table, dict[str, Any]]:
    """What a model made of a benchmark, and its provenance."""
    path = FOLDER / benchmark / f"{model}.parquet"
    if not path.is_file():
        raise FileNotFoundError(f"{REAL}{model} is not recorded on {REAL}{benchmark}")
    made, of_texts = read_provenance(path), read_provenance(path.with_name(TEXTS))
    if made["benchmark"] != of_texts["revision"]:
        raise ValueError(f"{path} was recorded on other texts than those of {TEXTS} beside it; record it again")
    return pq.read_table(path), made


def _rows(table: pa.Table, is_lower: bool) -> tuple[list[TokenRow], list[NDArray[np.int16]]]:
    """The statistics of each text, or of the lowercased ones, and how many tokens it has after each word."""
    prefix = "lower_" if is_lower else ""

    def lists(name: str) -> list[NDArray[Any]]:
        column = table[prefix + name].combine_chunks()
        return np.split(column.flatten().to_numpy(), np.cumsum(column.value_lengths().to_numpy())[:-1])

    n_tokens, log_probs = lists("n_tokens"), [of.astype(np.float32) for of in lists("log_prob")]
    unknown = [np.full(len(of), np.nan, np.float32) for of in log_probs]
    if is_lower:  # whose log-probs alone are read
        ids = [np.full(len(of), -1, np.int32) for of in log_probs]
        return list(map(TokenRow, ids, log_probs, unknown, unknown, unknown)), n_tokens
    others = [[of.astype(np.float32) for of in lists(name)] for name in COLUMNS[1:]]
    return list(map(TokenRow, lists("token_ids"), log_probs, *others, unknown)), n_tokens


# --- recording ---


def record_passes(models: Sequence[str], benchmarks: Sequence[str], corpora: Sequence[str]) -> Iterator[Path]:
    """Write what models make of benchmarks, and how often their tokens occur in reference corpora; yields each file.

    Passes and counts are cached; `mialib score` makes them beforehand.
    """
    for model in models:
        stem, passes = stem_of(model), list[tuple[tuple[str, ...], TokenStats]]()
        counts = [count_or_load(corpus, model) for corpus in corpora]
        for name in benchmarks:
            benchmark = load_benchmark(name)
            folder = FOLDER / name
            yield _write_texts(folder / TEXTS, benchmark)
            for texts in (benchmark.texts, tuple(map(str.lower, benchmark.texts))):
                passes.append((texts, score_nested(model, texts, passes)))
            (_, scored), (_, lowercase) = passes[-2:]
            stats, hidden = hide_tokens(scored, counts)
            if stats.n_cut.any() or lowercase.n_cut.any():
                raise ValueError(
                    f"{model} reads {stats.provenance['max_tokens']} tokens, and a text of {name} has more"
                )
            columns: dict[str, NDArray[Any]] = {column: halves(getattr(stats, column), column) for column in COLUMNS}
            columns |= {"token_ids": stats.token_ids, "lower_log_prob": halves(lowercase.log_prob, "lower_log_prob")}
            offsets = dict.fromkeys(columns, stats.offsets) | {"lower_log_prob": lowercase.offsets}
            for column, of, texts in (
                ("n_tokens", scored, benchmark.texts),
                ("lower_n_tokens", lowercase, passes[-1][0]),
            ):
                ends = tokens_after_words(model, texts, of)
                columns[column] = np.concatenate(ends)
                offsets[column] = np.cumsum([0, *map(len, ends)])
            table = {key: pa.LargeListArray.from_arrays(offsets[key], pa.array(of)) for key, of in columns.items()}
            yield write_table(pa.table(table), folder / f"{stem}.parquet", _provenance(model, stats, benchmark))
        made = {"corpora": list(corpora), "tokenizer": counts[0].tokenizer, **made_with()}
        of_corpora = {corpus: of.counts.astype(np.int32) for corpus, of in zip(corpora, hidden, strict=True)}
        yield write_table(pa.table(of_corpora), FOLDER / f"{stem}-counts.parquet", made)


def score_nested(model: str, texts: Sequence[str], passes: Sequence[tuple[Sequence[str], TokenStats]]) -> TokenStats:
    """A pass over texts, of which those that begin a text of earlier passes take its statistics.

    The texts of WikiMIA's 32 words begin those of 64, these those of 128, and these those of 256.
    """
    rows = dict[int, TokenRow]()
    for whole, stats in passes:
        ends = {i: j for i, text in enumerate(texts) for j, other in enumerate(whole) if other.startswith(text)}
        if ends := {i: j for i, j in ends.items() if i not in rows}:
            cut, _ = score_cut_texts(model, stats.take(list(ends.values())), [texts[i] for i in ends])
            rows |= dict(zip(ends, cut, strict=True))
    n_cut, about = np.zeros(len(texts), np.int32), passes[0][1].provenance if passes else {}
    if left := [i for i in range(len(texts)) if i not in rows]:
        scored = score_or_load(model, [texts[i] for i in left])
        rows |= dict(zip(left, scored, strict=True))
        n_cut[left], about = scored.n_cut, scored.provenance
    about = about | {"texts": hash_texts(texts), "lowercased": hash_texts(map(str.lower, texts)), "n_texts": len(texts)}
    return TokenStats.from_rows([rows[i] for i in range(len(texts))], n_cut=n_cut, provenance=about)


def stem_of(model: str) -> str:
    """What a model is recorded as: the registry's alias, or the end of its name; ValueError for a file's path."""
    known = find(model).known
    if not known and Path(model).suffix == ".gguf":
        raise ValueError(
            f"{model}: give its name in data/models.yml, which has its start token; $MIALIB_MODELS says where it is"
        )
    return known.alias if known and known.alias else model.rpartition("/")[2]


def _provenance(model: str, stats: TokenStats, benchmark: Benchmark) -> dict[str, Any]:
    """What a pass was made of and on which texts, the model's sizes and, in a GGUF file, which weights."""
    source = find(model)
    about = stats.provenance | {"model": model, "benchmark": benchmark.revision, "recorded_with": made_with()}
    about |= {"parameters": source.count_parameters(embeddings=True)}
    about |= {"non_embedding_parameters": source.count_parameters()}
    return about | ({"sha256": source.checksum, "weights": source.quantization} if isinstance(source, Gguf) else {})


def _write_texts(path: Path, benchmark: Benchmark) -> Path:
    """Label, domain, and bytes under zlib after each word, of each text."""
    sizes = [[_packed(text[:end]) for _, end in word_spans(text)] for text in benchmark.texts]
    for of_text, text in zip(sizes, benchmark.texts, strict=True):
        of_text[-1] = _packed(text)  # with the white space at its end
    rows: dict[str, Any] = {"label": pa.array(benchmark.labels), "zlib_bytes": pa.array(sizes, pa.list_(pa.int16()))}
    if benchmark.domains:
        rows["domain"] = list(benchmark.domains)
    about = {"revision": benchmark.revision, "validation": list(benchmark.validation)}
    earlier = read_provenance(path).get("revision", benchmark.revision)
    if earlier != benchmark.revision and len(list(path.parent.glob("*.parquet"))) > 1:
        raise ValueError(
            f"{path} is of another copy of {benchmark.name}; remove the folder, and record all models again"
        )
    return write_table(pa.table(rows), path, about)


def tokens_after_words(model: str, texts: Sequence[str], stats: TokenStats) -> list[NDArray[np.int16]]:
    """How many of each text's tokens are those of its first word, of its first two words, and so on.

    Where a cut text has another last token than the whole one has at this place, the tokens that both have.
    """
    tokenizer, ends = load_tokenizer(model), []
    for text, row in zip(texts, stats, strict=True):
        cut = encode(tokenizer, [text[:end] for _, end in word_spans(text)])
        ids = row.token_ids
        shared = [_shared(np.array(of, np.int32), ids) for of in cut]
        shared[-1] = len(ids)
        ends.append(np.maximum(np.array(shared, np.int16), 1))
    return ends


def _shared(cut: NDArray[np.int32], whole: NDArray[np.int32]) -> int:
    """With how many tokens both begin."""
    n = min(len(cut), len(whole))
    differ = np.flatnonzero(cut[:n] != whole[:n])
    return int(differ[0]) if len(differ) else n
