"""A text as a strip of its tokens in HTML, each shaded by what one detector sees in it, its numbers on hover and focus.

view_text, view_inputs   a text and its statistics -> TokenView: a strip's tokens, their shades and numbers
fragment                 strips with a legend, for a notebook's output or any other page: with its style, without script
slider_for_k             texts under Min-K% Prob, with a slider for k and a script that frames the tokens that count
page, write_page         an HTML file for several texts: `mialib view`

A strip's text content is the text itself, letter by letter. A token's shade and the length of the bar below it encode
the same value, so that the view works without colour and for screen readers. The HTML is in `token_view.html` and
`token_view.css`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.batches import encode_with_ends
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import find
from mialib.detectors import (
    DETECTORS,
    FloatArray,
    calibrated,
    check_vocabulary,
    describe_options,
    detect,
    first_occurrences,
    lowest_indices,
    standardized,
    surp_conditions,
)
from mialib.frequency import TokenFrequency
from mialib.metrics import auc
from mialib.passes.inputs import NEEDS, Inputs, Target
from mialib.reports.detection import NOTE
from mialib.shared.files import load_texts
from mialib.store import atomic_path, hash_of, mialib_version
from mialib.text import excerpt, language_of
from mialib.token_stats import TokenRow, TokenStats
from mialib_audit.templates import macros

if TYPE_CHECKING:
    from markupsafe import Markup
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

LOG_PROB_STEPS = (-0.5, -2, -4, -7)  # nats; the next shade begins at each
SHARE_STEPS = (0.01, 0.1, 0.5, 1)  # of DC-PDD's bound
MOST_TEXTS = 50  # on a page: more are slow to show and are not read
KS = (1, 2, 5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100)  # percent, of a slider for k
LEFT_OUT = 2000  # characters of what is not scored that a strip shows
LONG_TOKEN = 40  # characters: a longer token may be broken over lines, a shorter one stays with the space before it
# Spaces, and characters that leave no mark or move their neighbours: each is shown by a sign of its own.
UNSEEN = re.compile(
    "( +|[\x00-\x1f\x7f-\xa0\xad\u1680\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u2069\u3000\ufeff])"
)
SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
GOES_ON = "⋯"  # the sign of a token whose character began in the token before


@dataclass(frozen=True)
class ViewedToken:
    """One scored token."""

    text: str  # its part of the text; empty for one that goes on with the character before
    level: int | None  # shade, 0 to 4; None where the detector does not look at the token's probability
    is_counted: bool  # whether it is in the mean that is the detector's score
    label: str  # its numbers


@dataclass(frozen=True)
class TokenView:
    """One text's tokens under one way to colour: `before`, the tokens' texts and `after` together are the text."""

    by: str  # a key of WAYS
    options: dict[str, float]  # the detector's hyperparameters
    corpus: str | None  # DC-PDD's reference corpus
    before: str  # not scored, where no start token is prepended
    tokens: list[ViewedToken]
    after: str  # not scored, past the model's context
    score: float

    @property
    def way(self) -> Way:
        """How the tokens are coloured."""
        return WAYS[self.by]

    @property
    def label(self) -> str:
        """The detector's name."""
        return DETECTORS[self.way.detector].label

    @property
    def n_counted(self) -> int:
        """How many tokens are in the score's mean."""
        return sum(token.is_counted for token in self.tokens)

    @property
    def score_label(self) -> str:
        """The score, and the mean of what it is."""
        corpus = f", reference corpus {self.corpus}" if self.corpus else ""
        label, of = f"{self.label} ({describe_options(self.options)}{corpus})", len(self.tokens)
        if not self.n_counted:
            return f"{label}: 0{self.way.unit}, since no token of {of} counts"
        score = number(self.score, self.way.digits)
        mean = f"the mean {self.way.mean_of} of the {self.n_counted} framed tokens (of {of})"
        return f"{label}: {score}{self.way.unit}, {mean}"

    def anchor(self, *others: str) -> str:
        """A name for this strip, unique on a page."""
        return hash_of([*others, self.by, self.before, self.after, [token.text for token in self.tokens]])


# For each of a text's n tokens: its shade, whether it counts, and its numbers in words.
Seen = tuple[Sequence[int | None], NDArray[np.bool_], list[str]]


@dataclass(frozen=True)
class Way:
    """A way to colour tokens: by what one detector sees in them."""

    see: Callable[..., Seen]  # of a TokenRow, with the hyperparameters by name, and `frequency` if it is needed
    detector: str
    quantity: str  # what is shaded
    levels: tuple[str, ...]  # the legend of the five shades
    counted: str
    unshaded: str = ""  # the legend of a level of None; empty where every token has one
    mean_of: str = "log p"  # what the score averages over the tokens that count
    unit: str = " nats"
    digits: int = 2

    @property
    def hyperparameters(self) -> list[str]:
        """The names that `see` takes besides the row and the frequencies."""
        return [name for name in signature(self.see).parameters if name not in ("row", "frequency")]


def _see_log_prob(row: TokenRow, *, k: float) -> Seen:
    """Min-K% Prob: every token's log p, and the lowest k% of them, which it averages (Shi et al. 2024)."""
    is_counted = np.zeros(len(row.log_prob), bool)
    is_counted[lowest_indices(row.log_prob.astype(np.float64), k)] = True
    says = [f"{'' if counted else 'not '}among the lowest {k:g}%" for counted in is_counted]
    return _steps_below(row), is_counted, says


def _see_surprise(row: TokenRow, *, entropy_threshold: float, k: float) -> Seen:
    """SURP: log p is shaded where the model was sure (H_i < entropy_threshold); of these tokens the surprising count,
    whose log p_i lies below L^k, the k-th percentile of the text's log p (Zhang and Wu 2024, Eq. 1-4)."""
    is_sure, is_low = surp_conditions(row, entropy_threshold, k)
    limit = number(np.percentile(row.log_prob.astype(np.float64), k), 2)
    where = (f"not below the percentile {k:g}, {limit}", f"below the text's percentile {k:g}, {limit}")
    pairs = zip(is_sure, is_low.astype(int), strict=True)
    says = [
        f"the model was sure, and log p is {where[low]}" if sure else "the model was not sure" for sure, low in pairs
    ]
    levels = [level if sure else None for level, sure in zip(_steps_below(row), is_sure, strict=True)]
    return levels, is_sure & is_low, says


def _see_dc_pdd(row: TokenRow, *, frequency: FloatArray, a: float) -> Seen:
    """DC-PDD: min(alpha_i, a) of each token's first occurrence, which it averages; alpha_i = -p(x_i) log p(x_i; D')
    (Zhang et al. 2024, Eq. 6-8). Later occurrences have no shade."""
    alpha = calibrated(row, frequency)
    is_first = np.zeros(len(alpha), bool)
    is_first[first_occurrences(row)] = True
    levels = (alpha[:, None] >= np.multiply(SHARE_STEPS, a)).sum(1).tolist()
    says = [
        f"log p(x; D′) {number(q, 2)} nats, α {number(x, 4)}{f', at the bound {a:g}' if x >= a else ''}, "
        + ("first occurrence" if first else "occurred before")
        for q, x, first in zip(frequency[row.token_ids], alpha, is_first, strict=True)
    ]
    return [level if first else None for level, first in zip(levels, is_first, strict=True)], is_first, says


def _steps_below(row: TokenRow) -> list[int]:
    return (row.log_prob[:, None].astype(np.float64) <= np.array(LOG_PROB_STEPS)).sum(1).tolist()


_LOG_PROBS = ("above −0.5", "−0.5 to −2", "−2 to −4", "−4 to −7", "−7 and below")
_SHARES = ("below 1%", "1% to 10%", "10% to 50%", "50% to 100%", "at the bound")
WAYS = {
    "log_prob": Way(
        see=_see_log_prob,
        detector="min_k",
        quantity="log p of the token (nats)",
        levels=_LOG_PROBS,
        counted="among the lowest {k:g}%",
    ),
    "surprise": Way(
        see=_see_surprise,
        detector="surp",
        quantity="log p of a token where the model was sure, entropy below {entropy_threshold:g} nats (nats)",
        levels=_LOG_PROBS,
        unshaded="the model was not sure",
        counted="surprising: sure, and log p below the text's percentile {k:g}",
    ),
    "dc_pdd": Way(
        see=_see_dc_pdd,
        detector="dc_pdd",
        quantity="α = −p(x) log p(x; D′), as a share of its bound a = {a:g}",
        levels=_SHARES,
        unshaded="occurred before",
        counted="first occurrence",
        mean_of="min(α, a)",
        unit="",
        digits=4,
    ),
}


def view_text(
    stats: TokenStats,
    i: int,
    text: str,
    tokenizer: PreTrainedTokenizerBase,
    by: str,
    *,
    frequency: TokenFrequency | None = None,
    **hyperparameters: float,
) -> TokenView:
    """Text `i` of the statistics, coloured by "log_prob", "surprise" or "dc_pdd", the last with token frequencies.

    `tokenizer` is the scored model's, `hyperparameters` the detector's. ValueError where the text can't be coloured so
    (`why_unshaded`), for frequencies of another tokenizer, and for another text than the scored one.
    """
    way, options, given = resolve(stats, by, frequency, hyperparameters)
    row = stats[i]
    score = DETECTORS[way.detector].score_text(row, **options, **given)  # also checks the hyperparameters
    first = 1 if stats.provenance.get("start_token_id", 0) is None else 0
    before, texts, after = split_text(text, row.token_ids, tokenizer, first)
    levels, is_counted, says = way.see(row, **options, **given)
    labels = [
        f"{numbers}; {said}: {'counted' if counted else 'not counted'}"
        for numbers, said, counted in zip(_numbers(row, texts), says, is_counted, strict=True)
    ]
    tokens = [ViewedToken(*token) for token in zip(texts, levels, is_counted.tolist(), labels, strict=True)]
    return TokenView(by, options, frequency.name if frequency and given else None, before, tokens, after, score)


def view_inputs(
    inputs: Inputs, texts: Mapping[str, int], tokenizer: PreTrainedTokenizerBase, by: str, **hyperparameters: float
) -> dict[str, TokenView]:
    """`view_text` of some of a benchmark's texts, by their numbers: {title: view}."""
    frequency = frequency_for(inputs, by)
    return {
        title: view_text(inputs.stats, i, inputs.texts[i], tokenizer, by, frequency=frequency, **hyperparameters)
        for title, i in texts.items()
    }


def frequency_for(inputs: Inputs, by: str) -> TokenFrequency | None:
    """The token frequencies that a way to colour needs; None if it needs none."""
    return inputs["frequency"] if by in WAYS and "frequency" in DETECTORS[WAYS[by].detector].needs else None


def resolve(
    stats: TokenStats, by: str, frequency: TokenFrequency | None, hyperparameters: Mapping[str, float]
) -> tuple[Way, dict[str, float], dict[str, FloatArray]]:
    """The way, its detector's hyperparameters, and what it is given besides."""
    if why := why_unshaded(by, stats.lacks, frequency is not None):
        raise ValueError(why)
    way = WAYS[by]
    detector = DETECTORS[way.detector]
    if unknown := sorted(set(hyperparameters) - set(way.hyperparameters)):
        raise ValueError(f"by {by}: no hyperparameter {unknown[0]!r}; known: {', '.join(way.hyperparameters)}")
    options = {name: hyperparameters.get(name, detector.hyperparameters[name]) for name in way.hyperparameters}
    more = {"frequency": check_vocabulary(frequency, stats).log_probability} if frequency and detector.needs else {}
    return way, options, more


def why_unshaded(by: str, lacks: Mapping[str, str], has_corpus: bool) -> str:
    """Why texts can't be coloured this way, else ""; `lacks` as `TokenStats.lacks`. ValueError for an unknown way."""
    if by not in WAYS:
        raise ValueError(f"tokens can't be coloured by {by!r}; known: {', '.join(WAYS)}")
    detector = DETECTORS[WAYS[by].detector]
    if lacking := [lacks[column] for column in ("token_ids", *detector.reads) if column in lacks]:
        return f"colouring tokens by {by} is not applicable: {lacking[0]}"
    if "frequency" in detector.needs and not has_corpus:
        return f"colouring tokens by {by} needs token frequencies of a reference corpus ({NEEDS['frequency'].option})"
    return ""


def split_text(
    text: str, token_ids: ArrayLike, tokenizer: PreTrainedTokenizerBase, first: int = 0
) -> tuple[str, list[str], str]:
    """The text before the scored tokens, each one's own part, (n,), and the text after; together they are the text.

    The scored tokens are n of the text's, from number `first` on. A character of several tokens belongs to the first,
    and the others have an empty part; white space that a tokenizer leaves out belongs to the following token.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not give the offsets of its tokens in a text; a fast tokenizer is needed"
        )
    ids, ends = encode_with_ends(tokenizer, text)
    last = first + len(np.asarray(token_ids))
    if not np.array_equal(ids[first:last], token_ids):
        raise ValueError(f"the statistics are not of this text's tokens under this tokenizer: {excerpt(text)}")
    parts, end = [], 0
    for stop in ends:
        parts.append(text[end:stop])
        end = max(end, stop)
    if parts:
        parts[-1] += text[end:]
    return "".join(parts[:first]), parts[first:last], "".join(parts[last:])


def _numbers(row: TokenRow, texts: Sequence[str]) -> list[str]:
    """Each token's numbers in words."""
    log_prob, entropy = row.log_prob.astype(np.float64), row.entropy.astype(np.float64)
    labels, before, z = [], "", standardized(row)
    for j, text in enumerate(texts):
        shown = f"“{in_signs(text)}”"
        if not text:
            shown = f"goes on with “{in_signs(before)}”" if before else "no character"
        before = text[-1:] or before
        parts = [shown, f"log p {number(log_prob[j], 2)} nats", f"p {np.exp(log_prob[j]):.3g}"]
        if np.isfinite(entropy[j]):
            parts += [f"entropy {number(entropy[j], 2)} nats", f"z {number(z[j], 2)}"]
        labels.append(", ".join(parts))
    return labels


def number(x: float, digits: int) -> str:
    """A number with a real minus sign."""
    return f"{x:.{digits}f}".replace("-", "−")


# --- HTML ---


def fragment(views: Mapping[str, TokenView], is_first: bool = True) -> str:
    """Strips, {title: view}, under one legend; the first on a page says what its signs mean. HTML without scripts."""
    return str(_macros().fragment(views, is_first))


def slider_for_k(inputs: Inputs, texts: Mapping[str, int], tokenizer: PreTrainedTokenizerBase, k: float) -> str:
    """Strips of a benchmark's texts under Min-K% Prob, {title: number}, with a slider over KS that stands at `k`.

    Moved, it frames the lowest k% of the tokens and says the scores and the AUC over all texts.
    """
    by_k = [view_inputs(inputs, texts, tokenizer, "log_prob", k=percent) for percent in KS]
    data: dict[str, Any] = {"ks": KS, "says": [], "texts": []}
    cut = f" and the first {n} words of each text" if (n := inputs.labelled.n_words) else ""
    for percent in KS:
        of_all = auc(inputs.labels, detect("min_k", inputs.stats, k=percent))
        data["says"].append(
            f"With this k{cut}, a random member scores above a random non-member in {of_all:.1%} of pairs."
        )
    for title, i in texts.items():
        order = np.argsort(inputs.stats[i].log_prob.astype(np.float64), kind="stable").tolist()
        views = [of[title] for of in by_k]
        scores = [view.score_label for view in views]
        data["texts"].append({"order": order, "counts": [view.n_counted for view in views], "scores": scores})
    return str(_macros().by_k(by_k[KS.index(k)], k, data))


def page(title: str, texts: Mapping[str, Sequence[TokenView]], notes: Iterable[str] = ()) -> str:
    """A standalone page: each text's heading and strips, one a way to colour, below their legends and the notes."""
    return str(_macros().page(title, texts, notes))


def write_page(texts: Path, target: Target, by: Sequence[str], output: Path) -> tuple[int, list[str]]:
    """Write a page of a file's first texts; returns how many, and the ways to colour that the model allows.

    `by` names ways, none: all that can. ValueError for a named one that can't be, before anything is scored.
    """
    lacks = find(target.model).lacks
    reasons = {name: why_unshaded(name, lacks, target.corpus is not None) for name in by or WAYS}
    ways = [name for name, why in reasons.items() if not why]
    for why in filter(None, reasons.values()):
        if by or not ways:
            raise ValueError(why)
        logger.info("%s", why)
    loaded = load_texts(texts)
    shown = loaded[:MOST_TEXTS]
    inputs = Inputs(target, tuple(shown), language_of(shown))
    ran = f"{target.model} in {inputs.stats.provenance['dtype']}" if inputs.source.has_weights else target.model
    notes = [f"Texts of {texts.name}, scored by {ran}, mialib {mialib_version()}.", NOTE]
    if len(shown) < len(loaded):
        notes.append(f"The first {len(shown)} of {len(loaded)} texts; the others need a file of their own.")
        logger.info("%s", notes[-1])
    tokenizer, numbers = load_tokenizer(target.model), {f"Text {i}": i for i in range(len(shown))}
    by_way = [view_inputs(inputs, numbers, tokenizer, way) for way in ways]
    views = {title: [strips[title] for strips in by_way] for title in numbers}
    with atomic_path(output) as temporary:
        temporary.write_text(page(f"Token view of {texts.name}", views, notes), encoding="utf-8", newline="")
    return len(shown), ways


def _macros() -> Any:
    return macros(Path(__file__).with_suffix(".html"), show=show, long_token=LONG_TOKEN, most_left_out=LEFT_OUT)


def show(text: str) -> Markup:
    """The text as HTML, with a sign at each invisible character; signs are no part of the text."""
    from markupsafe import Markup

    shown: list[str] = []
    for part in UNSEEN.split(text):
        if part.startswith(" "):
            shown.append(Markup("<i class=mv-space>{}</i>").format(part))
        elif UNSEEN.fullmatch(part):
            # A bare carriage return would be read as a new line, and no HTML can hold a NUL.
            kept = {"\r": Markup("&#13;"), "\0": "\ufffd"}.get(part, part)
            shown.append(Markup('<i class=mv-sign data-sign="{}"></i>{}').format(in_signs(part), kept))
        else:
            shown.append(part)
    return Markup("").join(shown)


def in_signs(text: str) -> str:
    """A token's part of the text with a sign in place of each invisible character; never empty."""
    return UNSEEN.sub(lambda found: "".join(SIGNS.get(c, f"[U+{ord(c):04X}]") for c in found[0]), text) or GOES_ON
