"""A text as a strip of its tokens in HTML, each shaded by what one detector sees in it, its numbers on hover and focus.

view_text   one text's statistics and its words -> TokenView, a strip's tokens with their shades and numbers
fragment    strips with a legend, for a notebook's output or any other page: styled by itself, without a script
page        a file of its own, for several texts

A strip's text content is the text itself, letter by letter, whatever it holds. Shade, length of the bar below a token
and the frame of the tokens that count say the same thing in colour, in grey and to who sees neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mialib.book.results import Result
from mialib.book.surp import surprising
from mialib.detectors import (
    DETECTORS,
    SMALLEST_VARIANCE,
    FloatArray,
    calibrated,
    check_vocabulary,
    first_occurrences,
    lowest_indices,
)
from mialib.frequency import TokenFrequency
from mialib.metrics import Interval, resamples
from mialib.model_selection import describe_options
from mialib.passes.inputs import Inputs
from mialib.store import hash_of
from mialib.text import excerpt
from mialib.token_stats import TokenRow, TokenStats

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

LOG_PROB_STEPS = (-0.5, -2, -4, -7)  # nats; the next shade begins at each
SHARE_STEPS = (0.01, 0.1, 0.5, 1)  # of DC-PDD's bound
MOST_TEXTS = 50  # on a page: more are slow to show and are not read
LONG_TOKEN = (
    40  # characters: a longer one may be broken over lines, a shorter one stays with the space that it begins with
)
# Spaces, and characters that leave no mark or move their neighbours: each is shown by a sign of its own.
UNSEEN = re.compile("( +|[\x00-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff])")
SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


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
    def n_counted(self) -> int:
        """How many tokens are in the score's mean."""
        return sum(token.is_counted for token in self.tokens)


@dataclass(frozen=True)
class Seen:
    """What a detector sees in each of a text's n tokens."""

    levels: list[int | None]
    is_counted: NDArray[np.bool_]
    says: list[str]


@dataclass(frozen=True)
class Way:
    """A way to colour tokens: by what one detector sees in them."""

    see: Callable[..., Seen]  # of a TokenRow, with the hyperparameters by name, and `frequency` where it is needed
    detector: str
    hyperparameters: tuple[str, ...]
    quantity: str  # what is shaded
    levels: tuple[str, ...]  # the legend of the five shades
    unshaded: str  # the legend of a level of None; empty where every token has one
    counted: str
    unit: str = " nats"


def _see_log_prob(row: TokenRow, *, k: float) -> Seen:
    """Min-K% Prob: every token's log p, and the lowest k% of them, which it averages (Shi et al. 2024)."""
    log_prob = row.log_prob.astype(np.float64)
    is_counted = np.zeros(len(log_prob), bool)
    is_counted[lowest_indices(log_prob, k)] = True
    says = [f"{'' if counted else 'not '}among the lowest {k:g}%" for counted in is_counted]
    return Seen([_steps_below(x) for x in log_prob], is_counted, says)


def _see_surprise(row: TokenRow, *, entropy_threshold: float, k: float) -> Seen:
    """SURP: where the model was sure (H_i < entropy_threshold) log p is shaded, elsewhere SURP does not look; counted
    are the surprising tokens, those of the sure ones whose log p_i < L^k (Zhang and Wu 2024, Eq. 1-4).

    L^k is the k-th percentile of the text's log p. Min-K%++'s z is no part of this; it stands among the numbers.
    """
    log_prob, is_counted = surprising(row, entropy_threshold, k)
    is_sure = row.entropy.astype(np.float64) < entropy_threshold
    limit = _number(np.percentile(log_prob, k), 2)
    where = {True: f"below the text's percentile {k:g}, {limit}", False: f"not below the percentile {k:g}, {limit}"}
    says = [
        f"the model was sure, and log p is {where[bool(counted)]}" if sure else "the model was not sure"
        for sure, counted in zip(is_sure, is_counted, strict=True)
    ]
    levels = [_steps_below(x) if sure else None for x, sure in zip(log_prob, is_sure, strict=True)]
    return Seen(levels, is_counted, says)


def _see_dc_pdd(row: TokenRow, *, frequency: FloatArray, a: float) -> Seen:
    """DC-PDD: min(alpha_i, a) of each token's first occurrence, which it averages; alpha_i = -p(x_i) log p(x_i; D')
    (Zhang et al. 2024, Eq. 6-8). Later occurrences have no shade."""
    alpha = calibrated(row, frequency)
    is_counted = np.zeros(len(alpha), bool)
    is_counted[first_occurrences(row)] = True
    levels = [
        int(sum(x >= step * a for step in SHARE_STEPS)) if is_first else None
        for x, is_first in zip(alpha, is_counted, strict=True)
    ]
    says = [
        f"log p(x; D′) {_number(q, 2)} nats, α {_number(x, 4)}{f', at the bound {a:g}' if x >= a else ''}, "
        + ("first occurrence" if is_first else "occurred before")
        for q, x, is_first in zip(frequency[row.token_ids], alpha, is_counted, strict=True)
    ]
    return Seen(levels, is_counted, says)


_LOG_PROBS = tuple(
    text.replace("-", "−")
    for text in (
        f"above {LOG_PROB_STEPS[0]:g}",
        *(f"{high:g} to {low:g}" for high, low in pairwise(LOG_PROB_STEPS)),
        f"{LOG_PROB_STEPS[-1]:g} and below",
    )
)
_SHARES = (
    f"below {SHARE_STEPS[0]:.0%}",
    *(f"{low:.0%} to {high:.0%}" for low, high in pairwise(SHARE_STEPS)),
    "at the bound",
)
WAYS = {
    "log_prob": Way(
        see=_see_log_prob,
        detector="min_k",
        hyperparameters=("k",),
        quantity="log p of the token (nats)",
        levels=_LOG_PROBS,
        unshaded="",
        counted="among the lowest {k:g}%",
    ),
    "surprise": Way(
        see=_see_surprise,
        detector="surp",
        hyperparameters=("entropy_threshold", "k"),
        quantity="log p of a token where the model was sure, entropy below {entropy_threshold:g} nats (nats)",
        levels=_LOG_PROBS,
        unshaded="the model was not sure",
        counted="surprising: sure, and log p below the text's percentile {k:g}",
    ),
    "dc_pdd": Way(
        see=_see_dc_pdd,
        detector="dc_pdd",
        hyperparameters=("a",),
        quantity="α = −p(x) log p(x; D′), as a share of its bound a = {a:g}",
        levels=_SHARES,
        unshaded="occurred before",
        counted="first occurrence",
        unit="",
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

    `tokenizer` is the scored model's, `hyperparameters` the detector's. ValueError for another way or hyperparameter,
    a column that the model does not give, frequencies that lack or are of another tokenizer, a text that is not the
    scored one, and a tokenizer that does not say where its tokens stand.
    """
    way, options, given = _resolve(stats, by, frequency, hyperparameters)
    row = stats[i]
    score = DETECTORS[way.detector].score_text(row, **options, **given)  # also checks the hyperparameters
    first = 1 if stats.provenance.get("start_token_id", 0) is None else 0
    before, texts, after = split_text(text, row.token_ids, tokenizer, first)
    seen = way.see(row, **options, **given)
    tokens = [
        ViewedToken(texts[j], seen.levels[j], bool(seen.is_counted[j]), _label(row, j, texts, seen))
        for j in range(len(texts))
    ]
    corpus = frequency.name if given else None
    return TokenView(by, options, corpus, before, tokens, after, score)


def view_inputs(
    inputs: Inputs, texts: Mapping[str, int], tokenizer: PreTrainedTokenizerBase, by: str, **hyperparameters: float
) -> dict[str, TokenView]:
    """`view_text` of some of a benchmark's texts, by their numbers: {title: view}."""
    return {
        title: view_text(
            inputs.stats, i, inputs.texts[i], tokenizer, by, frequency=_frequency(inputs, by), **hyperparameters
        )
        for title, i in texts.items()
    }


def _frequency(inputs: Inputs, by: str) -> TokenFrequency | None:
    return inputs["frequency"] if "frequency" in DETECTORS[find_way(by).detector].needs else None


def _resolve(
    stats: TokenStats, by: str, frequency: TokenFrequency | None, hyperparameters: Mapping[str, float]
) -> tuple[Way, dict[str, float], dict[str, FloatArray]]:
    """The way, its detector's hyperparameters, and what it is given besides."""
    way = find_way(by)
    known = DETECTORS[way.detector]
    if why := why_not(by, stats.lacks, frequency is not None):
        raise ValueError(why)
    if unknown := sorted(set(hyperparameters) - set(way.hyperparameters)):
        raise ValueError(f"by {by}: no hyperparameter {unknown[0]!r}; known: {', '.join(way.hyperparameters)}")
    options = {name: hyperparameters.get(name, known.hyperparameters[name]) for name in way.hyperparameters}
    given = {"frequency": check_vocabulary(frequency, stats).log_probability} if "frequency" in known.needs else {}
    return way, options, given


def find_way(by: str) -> Way:
    """The way of that name, or a ValueError that names all of them."""
    if by not in WAYS:
        raise ValueError(f"tokens can't be coloured by {by!r}; known: {', '.join(WAYS)}")
    return WAYS[by]


def why_not(by: str, lacks: Mapping[str, str], has_corpus: bool) -> str:
    """Why texts can't be coloured this way, empty where they can; `lacks` as `TokenStats.lacks`."""
    known = DETECTORS[find_way(by).detector]
    for column in ("token_ids", *known.reads):
        if column in lacks:
            return f"colouring tokens by {by} is not applicable: {lacks[column]}"
    if "frequency" in known.needs and not has_corpus:
        return f"colouring tokens by {by} needs the token frequencies of a reference corpus (--corpus)"
    return ""


def split_text(
    text: str, token_ids: ArrayLike, tokenizer: PreTrainedTokenizerBase, first: int = 0
) -> tuple[str, list[str], str]:
    """The text before the scored tokens, each one's own part, (n,), and the text after; together they are the text.

    The scored tokens are n of the text's, from number `first` on. A character that takes several tokens is its first
    one's, and the others have an empty part; white space that a tokenizer leaves out is the following token's.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not say where in a text its tokens stand; a fast tokenizer is needed"
        )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    last = first + len(np.asarray(token_ids))
    if not np.array_equal(encoded["input_ids"][first:last], token_ids):
        raise ValueError(f"the statistics are not of this text's tokens under this tokenizer: {excerpt(text)}")
    parts, end = [], 0
    for _, stop in encoded["offset_mapping"]:
        parts.append(text[end:stop])
        end = max(end, stop)
    if parts:
        parts[-1] += text[end:]
    return "".join(parts[:first]), parts[first:last], "".join(parts[last:])


def typical_pair(labels: ArrayLike, scores: ArrayLike, quantile: float = 0.5) -> tuple[int, int]:
    """The member and the non-member whose score is at a quantile of its class, by default the median.

    Between two texts it is the lower one. Chosen by a rule, so that nobody picks an example. ValueError for a quantile
    outside [0, 1].
    """
    if not 0 <= quantile <= 1:
        raise ValueError(f"a quantile lies in [0, 1], got {quantile}")
    labels, scores = np.asarray(labels), np.asarray(scores)
    by_class = [np.flatnonzero(labels == label) for label in (1, 0)]
    member, non_member = (
        int(own[np.argsort(scores[own], kind="stable")[int(quantile * (len(own) - 1))]]) for own in by_class
    )
    return member, non_member


def ranks(scores: ArrayLike) -> NDArray[np.int64]:
    """Each text's rank by score, 1 for the one most likely a member; ties share the better rank."""
    from scipy.stats import rankdata

    return rankdata(-np.asarray(scores), method="min").astype(np.int64)


def shade_shares(inputs: Inputs, by: str, **hyperparameters: float) -> list[Result]:
    """The share of a text's tokens in each shade of the legend: its mean over members, over non-members, and the
    difference, with percentile bootstrap intervals over texts.

    Rows are the legend's words, the metric names the way. What one strip seems to show, all texts are asked here.
    """
    way, options, given = _resolve(inputs.stats, by, _frequency(inputs, by), hyperparameters)
    names = [*way.levels, way.unshaded] if way.unshaded else list(way.levels)
    shares = np.zeros((len(inputs.labels), len(names)))
    for i, row in enumerate(inputs.stats):
        levels = [len(way.levels) if level is None else level for level in way.see(row, **options, **given).levels]
        shares[i] = np.bincount(levels, minlength=len(names)) / len(levels)
    means, drawn = {}, {}
    for name, label in (("members", 1), ("non-members", 0)):
        own = shares[inputs.labels == label]
        means[name], drawn[name] = own.mean(0), resamples(len(own), seed=label) @ own / len(own)
    for values in (means, drawn):
        values["difference"] = values["members"] - values["non-members"]
    found = []
    for column, resampled in drawn.items():
        ends = np.quantile(resampled, [0.025, 0.975], axis=0)
        for name, mean, low, high in zip(names, means[column], *ends, strict=True):
            interval = Interval(float(mean), float(low), float(high))
            found.append(Result.of(row=name, column=column, metric=f"share of tokens by {by}", interval=interval))
    return found


def score_table(
    views: Mapping[str, Mapping[str, TokenView]], texts: Mapping[str, int], scores: Mapping[str, FloatArray]
) -> pd.DataFrame:
    """One row a text: its score, rank among all texts' `scores`, and how many tokens count, under each way's detector.

    {way: {text: view}}, {text: its number}, {detector: (N,) scores}.
    """
    import pandas as pd

    cells: dict[str, dict[str, str]] = {}
    for by, of_texts in views.items():
        detector = WAYS[by].detector
        label, place_of = DETECTORS[detector].label, ranks(scores[detector])
        for name, view in of_texts.items():
            row, place = cells.setdefault(name, {}), place_of[texts[name]]
            row[f"{label}: score (rank of {len(place_of)})"] = f"{_number(view.score, 4)} ({place})"
            row[f"{label}: tokens that count"] = f"{view.n_counted} of {len(view.tokens)}"
    return pd.DataFrame.from_dict(cells, orient="index")


# --- HTML ---

HOW_TO_READ = (
    '<div class="mv mv-legend">· ⏎ ⇥ are white space, ⋯ goes on with the character before. Point at a token, or go '
    "to it with the Tab key, for its numbers.</div>"
)


def fragment(views: Mapping[str, TokenView]) -> str:
    """Strips of one way to colour, {title: view}, under one legend: HTML that brings its style and needs no script."""
    first = next(iter(views.values()))
    if any((view.by, view.options, view.corpus) != (first.by, first.options, first.corpus) for view in views.values()):
        raise ValueError("strips that share a legend need the same way to colour and the same hyperparameters")
    strips = "".join(strip(title, view) for title, view in views.items())
    return f"<style>{STYLE}</style>{legend(first)}{HOW_TO_READ}{strips}"


def page(title: str, texts: Mapping[str, Sequence[TokenView]], notes: Iterable[str] = ()) -> str:
    """A standalone page: each text's heading and strips, one a way to colour, below their legends and the notes."""
    ways = {view.by: view for views in texts.values() for view in views}
    parts = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(note)}</p>" for note in notes), *map(legend, ways.values())]
    parts.append(HOW_TO_READ)
    for name, views in texts.items():
        parts += [f"<h2>{escape(name)}</h2>", *(strip(_score_label(view), view, name) for view in views)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{PAGE_STYLE}{STYLE}</style></head>\n<body><main>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )


def legend(view: TokenView) -> str:
    """What shades, frames and signs mean in a strip like this one."""
    way = WAYS[view.by]
    shades = [f'<span class="mv-t mv-{level}">{escape(text)}</span>' for level, text in enumerate(way.levels)]
    shades += [f'<span class="mv-t mv-none">{escape(way.unshaded)}</span>'] if way.unshaded else []
    counted = escape(way.counted.format(**view.options))
    return (
        f'<div class="mv mv-legend mv-{view.by}"><b>{escape(way.quantity.format(**view.options))}:</b> '
        f"{' '.join(shades)}<br><span class='mv-t mv-on'>framed and bold</span> counts for "
        f"{escape(DETECTORS[way.detector].label)}: {counted}.</div>"
    )


def strip(title: str, view: TokenView, of: str = "") -> str:
    """One text's tokens under a heading with its score; `of` tells it from others of the same title to who hears it."""
    name = f"mv-{hash_of([of, title, view.by, view.before, view.after, [token.text for token in view.tokens]])}"
    tokens = "".join(_token(token, f"{j} of {len(view.tokens)}") for j, token in enumerate(view.tokens, start=1))
    rest = [f'<span class="mv-out">{_show(part)}</span>' if part else "" for part in (view.before, view.after)]
    said = "" if title == _score_label(view) else f"<br>{escape(_score_label(view))}"
    left_out = "<br>Struck out: not scored." if view.before or view.after else ""
    return (
        f'<div class="mv mv-{view.by}" role="group" aria-label="{escape(f"{of} {title}".strip())}">'
        f'<div class="mv-title"><b>{escape(title)}</b>{said}{left_out} '
        f'<a class="mv-skip" href="#{name}">Skip the tokens</a></div>'
        f'<div class="mv-strip" dir="auto">{rest[0]}{tokens}{rest[1]}</div><div id="{name}"></div></div>'
    )


def _token(token: ViewedToken, place: str) -> str:
    """A token as HTML. A line break at its end stands behind its box, of which else a sliver were on the next line."""
    shade = "none" if token.level is None else token.level
    kinds = f"mv-t mv-{shade}{' mv-on' if token.is_counted else ''}{'' if token.text else ' mv-more'}"
    kinds += " mv-long" if len(token.text) > LONG_TOKEN else ""
    shown, may_break = _show(token.text), "<wbr>" if token.text.startswith(" ") else ""
    inside = shown.removesuffix("\n")
    return (
        f'{may_break}<span class="{kinds}" tabindex="0" role="img" aria-label="{escape(f"{place}: {token.label}")}">'
        f"{inside}</span>{shown[len(inside) :]}"
    )


def _score_label(view: TokenView) -> str:
    """The score, and the mean of what it is."""
    way = WAYS[view.by]
    corpus = f", reference corpus {view.corpus}" if view.corpus else ""
    label = f"{DETECTORS[way.detector].label} ({describe_options(view.options)}{corpus})"
    if not view.n_counted:
        return f"{label}: 0{way.unit}, since no token of {len(view.tokens)} counts"
    mean = "min(α, a)" if view.by == "dc_pdd" else "log p"
    score = _number(view.score, 4 if view.by == "dc_pdd" else 2)
    return f"{label}: {score}{way.unit}, the mean {mean} of {view.n_counted} framed of {len(view.tokens)} tokens"


def _label(row: TokenRow, j: int, texts: Sequence[str], seen: Seen) -> str:
    """A token's numbers in words."""
    log_prob, entropy = float(row.log_prob[j]), float(row.entropy[j])
    shown = f"“{_in_signs(texts[j])}”"
    if not texts[j]:
        before = "".join(texts[:j])
        shown = f"goes on with “{_in_signs(before[-1:])}”" if before else "no character"
    parts = [shown, f"log p {_number(log_prob, 2)} nats", f"p {np.exp(log_prob):.3g}"]
    if np.isfinite(entropy):
        z = (log_prob + entropy) / np.sqrt(max(float(row.log_prob_var[j]), SMALLEST_VARIANCE))
        parts += [f"entropy {_number(entropy, 2)} nats", f"z {_number(z, 2)}"]
    return f"{', '.join(parts)}; {seen.says[j]}: {'counted' if seen.is_counted[j] else 'not counted'}"


def _steps_below(log_prob: float) -> int:
    return int(sum(log_prob <= step for step in LOG_PROB_STEPS))


def _number(x: float, digits: int) -> str:
    return f"{x:.{digits}f}".replace("-", "−")


def _sign(character: str) -> str:
    return SIGNS.get(character, f"[U+{ord(character):04X}]")


def _in_signs(text: str) -> str:
    """The text with a sign in the place of each character that can't be seen."""
    return UNSEEN.sub(lambda match: "".join(map(_sign, match[0])), text)


def _show(text: str) -> str:
    """The text as HTML, with a sign at each character that can't be seen, which is no part of the text."""
    shown = []
    for part in UNSEEN.split(text):
        if part.startswith(" "):
            shown.append(f"<i class=mv-space>{part}</i>")
        elif UNSEEN.fullmatch(part):
            # A bare carriage return would be read as a new line, and no HTML can hold a NUL.
            kept = {"\r": "&#13;", "\0": "\ufffd"}.get(part, part)
            shown.append(f'<i class=mv-sign data-sign="{_sign(part)}"></i>{kept}')
        else:
            shown.append(escape(part))
    return "".join(shown)


# Shades from none to the darkest, and with how tall a bar; on the dark theme from dark to the brightest. Each is far
# enough from its text for anyone to read it (WCAG 2, AA: a contrast of at least 4.5).
TEXT = {"light": "#1a1a1a", "dark": "#f4f4f4"}
GROUND = {"light": "#ffffff", "dark": "#14181e"}
FOCUS = {"light": "#0072b2", "dark": "#56b4e9"}
ORANGES = {
    "light": ("#ffffff", "#fdeacb", "#fbd193", "#f3ac55", "#df8526"),
    "dark": ("#14181e", "#33270f", "#553a0b", "#774d06", "#965e00"),
}
BLUES = {
    "light": ("#ffffff", "#dcecf7", "#b5d6ee", "#84b8df", "#5499cd"),
    "dark": ("#14181e", "#14283a", "#163b58", "#184f78", "#1c6499"),
}
SHADES = {"log_prob": ORANGES, "surprise": ORANGES, "dc_pdd": BLUES}
BARS = (0, 1.5, 3, 5, 7)  # pixels


def _colours(theme: str) -> str:
    """One theme's colours as CSS, for the strips inside what `%s` names."""
    own = f"%s .mv{{--mv-text:{TEXT[theme]};--mv-ground:{GROUND[theme]};--mv-focus:{FOCUS[theme]}}}"
    return own + "".join(
        f"%s .mv-{by}{{{';'.join(f'--mv-{level}:{shade}' for level, shade in enumerate(shades[theme]))}}}"
        for by, shades in SHADES.items()
    )


def _inside(selector: str, rules: str) -> str:
    return rules.replace("%s", selector)


# The book says which theme is on in data-theme, JupyterLab in data-jp-theme-light; a file follows the system.
STYLE = (
    _inside(":root", _colours("light"))
    + _inside(':is(html[data-theme="dark"],[data-jp-theme-light="false"])', _colours("dark"))
    + "@media (prefers-color-scheme:dark){"
    + _inside("html:not([data-theme]) body:not([data-jp-theme-light])", _colours("dark"))
    + "}"
    + """
.mv{color:var(--mv-text);background:var(--mv-ground);margin:0 0 1rem;font:.85rem/1.5 system-ui,sans-serif}
.mv-legend,.mv-title,.mv-strip{padding:.3rem .6rem}
.mv-legend{line-height:2.1}
.mv-strip{position:relative;padding-bottom:3rem;line-height:2.2;white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4;
font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono","Noto Sans Mono CJK SC",monospace}
.mv-t:not(.mv-long){white-space:pre}
.mv-t{unicode-bidi:plaintext;margin-right:1px;padding:.15em 1px .65em;print-color-adjust:exact;
-webkit-print-color-adjust:exact;background:linear-gradient(var(--mv-text),var(--mv-text)) bottom/100% 0 no-repeat}
.mv-legend .mv-t{padding-inline:.4em}
.mv-none{border-bottom:1px dotted}
.mv-on{font-weight:700;box-shadow:inset 0 0 0 1.5px var(--mv-text)}
.mv-out{text-decoration:line-through}
.mv-more::before{content:"⋯"}
.mv-space{background:radial-gradient(circle,var(--mv-text) .8px,transparent 1px) center/1ch 100%}
.mv-sign{font-style:normal;font-weight:400}
.mv-sign::before{content:attr(data-sign)}
.mv-t[tabindex]:focus{outline:3px solid var(--mv-focus);outline-offset:1px}
.mv-t[tabindex]:is(:hover,:focus)::after{content:attr(aria-label);display:block;position:absolute;left:0;right:0;
width:fit-content;max-width:calc(100% - 1.2rem);margin:.3rem .6rem;padding:.3rem .6rem;z-index:2;pointer-events:none;
background:var(--mv-text);color:var(--mv-ground);border-radius:4px;font:400 .8rem/1.4 system-ui,sans-serif;
white-space:normal;direction:ltr;text-align:left}
.mv-t[tabindex]:hover::after{z-index:3}
.mv-skip:not(:focus){position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
@media (forced-colors:active){.mv-on{outline:2px solid}}
"""
    + "".join(
        f".mv-{level}{{background-color:var(--mv-{level});background-size:100% {height}px}}"
        for level, height in enumerate(BARS)
    )
)
PAGE_STYLE = (
    f"body{{margin:0;color:{TEXT['light']};background:{GROUND['light']};font:1rem/1.5 system-ui,sans-serif}}"
    f"@media (prefers-color-scheme:dark){{body{{color:{TEXT['dark']};background:{GROUND['dark']}}}}}"
    "main{max-width:60rem;margin:auto;padding:1rem}h2{margin:2rem 0 .5rem}"
)
