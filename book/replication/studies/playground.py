"""An editor in a page: a student's `score(row)` is run in the browser and judged on texts of the lab.

The page holds what a detector reads of `2 * HALF` texts, each number rounded to one of at most 256 values, and the
labels and first tokens of the first half. The browser saves the scores of the second half as a file, which `grade`
judges. The HTML, style and script are in `playground.html`; `replication.pipeline.theme` puts the interpreter into
the book.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import HTML
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit
from scipy.stats import rankdata

from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.models import load_tokenizer
from mialib.detectors import DETECTORS, FloatArray
from mialib.metrics import FEW, Interval, auc, auc_interval
from mialib.passes.inputs import Inputs, score_all, scores_of
from mialib.store import hash_texts
from mialib.token_stats import NUMBERS, TokenStats
from mialib_audit.templates import macros
from replication import pages
from replication.token_view import LOG_PROB_STEPS, split_text

BENCHMARK = "lab/en"
HALF = 200  # texts, one half of them members
RIVAL = "min_k++"  # the detector to beat
SHOWN = 80  # tokens of a text that is shown, since a detector gets it wrong
TEMPLATE = Path(__file__).parents[1] / "playground.html"
# The values that a number is rounded to; ends between two of them are multiples of 1/4, as SURP's thresholds are.
VALUES: dict[str, FloatArray] = {
    "log_prob": -((np.arange(224)[::-1] / 50) ** 2),  # finer where the model is sure
    "entropy": np.arange(1, 64, 2) / 8,
    "log_prob_var": (np.arange(1, 42, 2) / 8) ** 2,
    "top_log_prob": -((np.arange(224)[::-1] / 50) ** 2),
    "log_frequency": -np.arange(32)[::-1] / 2,
    "is_first": np.arange(2.0),
}


def halves_of(texts: Sequence[str], labels: ArrayLike) -> list[NDArray[np.intp]]:
    """The numbers of the first half's and the second half's texts, (HALF,) each, by hash: no place tells a label.

    They are the shortest of each class, so that a page stays small; a coin decided the classes.
    """

    def by_hash(some: Iterable[int]) -> list[int]:
        return sorted(some, key=lambda i: hash_texts([texts[i]]))

    by_length = np.argsort([len(text) for text in texts], kind="stable")
    members, others = (by_hash(by_length[np.asarray(labels)[by_length] == label][:HALF]) for label in (1, 0))
    return [np.array(by_hash([*members[half], *others[half]])) for half in (slice(HALF // 2), slice(HALF // 2, HALF))]


def pack(columns: dict[str, FloatArray]) -> tuple[str, dict[str, FloatArray]]:
    """Columns of VALUES's names, (T,) each: a byte a number, column after column, as base64 of gzip; and as rounded."""
    rounded, codes = dict[str, FloatArray](), []
    for name, column in columns.items():
        values = VALUES[name]
        codes.append(np.searchsorted((values[1:] + values[:-1]) / 2, column).astype(np.uint8))
        rounded[name] = values[codes[-1]]
    return compressed(np.concatenate(codes).tobytes()), rounded


def compressed(content: bytes) -> str:
    """What the page's script decompresses: base64 of gzip."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def token_columns(stats: TokenStats, log_frequency: FloatArray) -> dict[str, FloatArray]:
    """What a detector reads of all texts' tokens, (T,) each: the keys of VALUES. `log_frequency` (V,) is by token."""
    first = [np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1]) for ids, *_ in stats]
    columns = {name: getattr(stats, name).astype(float) for name in NUMBERS}
    return columns | {"log_frequency": log_frequency[stats.token_ids], "is_first": np.concatenate(first).astype(float)}


def editor(model: str = "lab/en-900k") -> HTML:
    """The editor on a model's statistics of BENCHMARK, beside the detectors of the papers on the same numbers."""
    [inputs] = pages.load_columns(model, BENCHMARK, None, BENCHMARK)
    packed, selection = on_page(inputs)
    first, tokenizer = selection.take(np.arange(HALF), BENCHMARK), load_tokenizer(model)
    texts = zip(first.texts, first.stats, strict=True)
    tokens = [split_text(text, row.token_ids, tokenizer)[1][:SHOWN] for text, row in texts]
    data = {
        "model": model,
        "packed": packed,
        "values": {name: [float(f"{value:.6g}") for value in values] for name, values in VALUES.items()},
        "lengths": selection.stats.n_tokens.tolist(),
        "zlib_bytes": [len(zlib.compress(text.encode())) for text in selection.texts],
        "labels": first.labels.tolist(),
        "texts": compressed(json.dumps(tokens, ensure_ascii=False).encode()),
        "steps": LOG_PROB_STEPS,
        "known": known_aucs(first),
        "rival": rankdata(scores_of(first, RIVAL)).tolist(),
        "rivalName": DETECTORS[RIVAL].label,
        "second": hash_texts(selection.texts[HALF:]),
        "quantile": float(stdtrit(HALF // 2 - 1, 0.975)),
        "normal": float(ndtri(0.975)),
        "few": FEW,
    }
    return HTML(str(macros(TEMPLATE).editor(model=model, half=HALF, data=data)))


def on_page(inputs: Inputs) -> tuple[str, Inputs]:
    """The numbers that the page holds of both halves' texts: packed, and as inputs, rounded as there."""
    selection = inputs.take(np.concatenate(halves_of(inputs.texts, inputs.labels)), BENCHMARK)
    packed, rounded = pack(token_columns(selection.stats, selection["frequency"].log_probability))
    columns: dict[str, Any] = {name: rounded[name].astype(np.float32) for name in NUMBERS}
    return packed, selection.given(stats=replace(selection.stats, **columns))


def known_aucs(inputs: Inputs) -> dict[str, float]:
    """The AUC of each detector of the papers that reads nothing besides what the page has, by its label."""
    names = [name for name, of in DETECTORS.items() if not of.is_later and {*of.needs} <= {"texts", "frequency"}]
    scores = score_all(inputs, names)
    return {DETECTORS[name].label: auc(inputs.labels, of) for name, of in scores.items() if of is not None}


def grade(paths: Iterable[Path]) -> tuple[dict[Path, Interval], dict[Path, str]]:
    """The AUC of each saved file of scores on the half without labels; and of the others why they can't be judged."""
    benchmark = load_benchmark(BENCHMARK)
    _, second = halves_of(benchmark.texts, benchmark.labels)
    texts, labels = hash_texts([benchmark.texts[i] for i in second]), benchmark.labels[second]
    judged, refused = dict[Path, Interval](), dict[Path, str]()
    for path in paths:
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            scores, is_of_these = np.array(saved["scores"], float), saved["texts"] == texts
        except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
            refused[path] = f"not a file of scores that the editor in a page saved ({error!r})"
            continue
        if not is_of_these or scores.shape != labels.shape:
            refused[path] = f"these scores are of other texts than {BENCHMARK}'s; save them again from this book"
        elif not np.isfinite(scores).all():
            refused[path] = "a score is not a finite number"
        else:
            judged[path] = auc_interval(labels, scores)
    return judged, refused
