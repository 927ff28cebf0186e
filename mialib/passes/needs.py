"""The table of what a detector may need besides the model's own pass.

An entry of NEEDS is named as the keyword of `detect`. From it come what is loaded, the fields of `Target` and the
options of the command line. It imports nothing heavy, since the command line's help reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mialib.frequency import TokenFrequency
    from mialib.passes.inputs import Inputs, Target
    from mialib.token_stats import TokenStats

logger = logging.getLogger(__name__)


class Setting(NamedTuple):
    """A field of `Target` that is an option of the command line too."""

    field: str
    option: str
    help: str
    default: int | None = None  # of a number, 1 or more; None for a name


@dataclass(frozen=True)
class Need:
    """Something that a detector may need besides the model's own pass."""

    load: Callable[[Inputs, str], Any]  # from the inputs, and from what `source` names
    missing: str  # why it may be lacking
    source: Setting | None = None  # names a model, a file or a corpus; None: the texts alone are needed
    many: Setting | None = None  # how many
    names_model: bool = False  # its source is a model besides the target's own
    is_pass: bool = False  # over the texts
    by_text: bool = True  # it has a value for each text
    cuttable: Callable[[str], str] | None = None  # what is read of a text, if a prefix's pass is a prefix of the pass
    is_dear: bool = False  # it takes a pass or more of every model for one detector or two
    made_by: str = "scoring"  # the version that counts, of `mialib.versions`

    @property
    def option(self) -> str:
        """The option of the command line that names its source; "" for none."""
        return self.source.option if self.source else ""

    def source_in(self, target: Target) -> str:
        """What a target names as the source; "" for nothing."""
        return (self.source and getattr(target, self.source.field)) or ""

    def is_named(self, target: Target) -> bool:
        """Whether a target names its source, or none is needed."""
        return self.source is None or bool(self.source_in(target))

    @property
    def is_other_model(self) -> bool:
        """Whether it is another model's pass over the texts."""
        return self.is_pass and self.names_model

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The fields of `Target` from which it is made."""
        return tuple(setting for setting in (self.source, self.many) if setting)


def _lowercase(inputs: Inputs, _: str) -> TokenStats | None:
    """Score the lowercased texts; of a text that did not fit the context, its scored part."""
    import numpy as np

    from mialib.passes.cache import score_cut_texts
    from mialib.text import have_case
    from mialib.token_stats import StatsPart, TokenStats

    # A file of log-probs holds those of the texts as they are.
    if not inputs.source.scores_lowercase or not have_case(inputs.texts):
        return None
    model, texts = inputs.target.model, [text.lower() for text in inputs.texts]
    if n_same := sum(map(str.__eq__, texts, inputs.texts)):
        logger.info("lowercase: -1 for %d of %d texts, which have no capital letter", n_same, len(texts))
    stats = inputs.score(model, texts)
    if not inputs.stats.n_cut.any():
        return stats
    scored = [part.lower() for part in inputs.scored_parts()]
    longer = [i for i, part in enumerate(stats.scored_parts(texts)) if len(part) > len(scored[i])]
    if not longer:
        return stats
    cut = score_cut_texts(model, stats.take(longer), [scored[i] for i in longer], **inputs.target.loading)[0]
    parts = [StatsPart(np.array(longer), cut), StatsPart(np.arange(len(stats)), stats)]
    return TokenStats.joined(parts, provenance=stats.provenance)


def _frequency(inputs: Inputs, corpus: str) -> TokenFrequency | None:
    from mialib.catalog.corpora import warn_of_other_language
    from mialib.passes.cache import count_or_load

    if "token_ids" in inputs.source.lacks:
        return None
    if counts := inputs.source.counts_in(corpus):
        return counts
    warn_of_other_language(corpus, inputs.texts, inputs.target.benchmark)
    return count_or_load(corpus, inputs.target.model)


def _neighbors(inputs: Inputs, masked: str) -> NDArray[np.float64]:
    from mialib.passes.cache import neighbor_log_probs_or_load

    target = inputs.target
    options = {"n_neighbors": target.n_neighbors, "language": inputs.language, **target.loading}
    return neighbor_log_probs_or_load(target.model, inputs.scored_parts(), masked, **options)


def _after(inputs: Inputs, source: str) -> TokenStats | None:
    """Score the texts with known texts read before each."""
    from mialib.batches import encode
    from mialib.catalog.corpora import reference_texts
    from mialib.catalog.models import load_tokenizer
    from mialib.text import check_apart

    if not inputs.source.has_weights:
        return None
    shots = list(islice(reference_texts(source), inputs.target.n_shots))
    if len(shots) < (n := inputs.target.n_shots):
        raise ValueError(f"{source} holds {len(shots)} of {n} texts; give more, or {SHOTS.option} {len(shots)}")
    check_apart(shots, inputs.texts, source)
    after = "".join(f"{text}\n\n" for text in shots)
    n_before = len(encode(load_tokenizer(inputs.target.model), [after])[0])
    logger.info("%s: a pass with %d tokens before each text", source, n_before)
    return inputs.score(inputs.target.model, inputs.texts, after=after)


def text_before(n: int) -> NDArray[np.int64]:
    """For each of n texts, the number of the one that is read before it, (n,): a fixed random cycle."""
    import numpy as np

    order = np.random.default_rng(0).permutation(n)
    return np.roll(order, 1)[np.argsort(order)]


def _after_others(inputs: Inputs, _: str) -> TokenStats | None:
    """Score each text with another one read before it, cut to about half of the model's context."""
    from mialib.batches import encode
    from mialib.catalog.models import load_tokenizer
    from mialib.store import hash_texts
    from mialib.token_stats import TokenRow, TokenStats

    texts, model = inputs.texts, inputs.target.model
    if not inputs.source.has_weights or len(texts) < 2:
        return None
    tokenizer, room = load_tokenizer(model), inputs.stats.provenance["max_tokens"] // 2
    n_tokens = [len(ids) for ids in encode(tokenizer, texts)]
    heads = [text[: len(text) * room // max(n, room)] for text, n in zip(texts, n_tokens, strict=True)]
    pairs = [f"{heads[before]}\n\n{text}" for text, before in zip(texts, text_before(len(texts)), strict=True)]
    whole = inputs.score(model, pairs)
    begins = [len(ids) - n for ids, n in zip(encode(tokenizer, pairs), n_tokens, strict=True)]
    rows = [TokenRow._make(column[begin:] for column in row) for row, begin in zip(whole, begins, strict=True)]
    provenance = whole.provenance | {"texts": hash_texts(texts), "after": whole.provenance["texts"]}
    return TokenStats.from_rows(rows, n_cut=whole.n_cut, provenance=provenance)


def _tempered(inputs: Inputs, _: str) -> TokenStats | None:
    from mialib.detectors import TEMPERATURE

    if not inputs.source.has_weights:
        return None
    return inputs.score(inputs.target.model, inputs.texts, temperature=TEMPERATURE)


SHOTS = Setting("n_shots", "--shots", "how many of them are read before each text", 7)
NO_CASE = "most letters of the texts have no upper and lower case, none is a capital, or only log-probs are here"
NO_KNOWN = "no known {} are named to be read before each text, or only log-probs of the model are here"
NEEDS = {
    "texts": Need(lambda inputs, _: None if "texts" in inputs.source.lacks else inputs.texts, "no texts are recorded"),
    "lowercase": Need(_lowercase, NO_CASE, is_pass=True, cuttable=str.lower),
    "reference": Need(
        lambda inputs, model: inputs.score(model, inputs.texts),
        "no smaller model is named (references)",
        Setting("reference", "--reference", "a smaller model, for ref, wbc and ez_mia"),
        names_model=True,
        is_pass=True,
        cuttable=str,
    ),
    "frequency": Need(
        _frequency,
        "no reference corpus is named (corpora), or the token ids are not known",
        Setting("corpus", "--corpus", "a reference corpus, for dc_pdd and aeca: a file, or a name such as lab/en"),
        by_text=False,
        made_by="counting",
    ),
    "neighbors": Need(
        _neighbors,
        "no neighbors were made",
        Setting("masked", "--masked", "a masked model such as roberta-base, for neighbor"),
        many=Setting("n_neighbors", "--n-neighbors", "how many neighbors a text has", 100),
        names_model=True,
        is_dear=True,
        made_by="neighbors",
    ),
    "tempered": Need(_tempered, "the model is not here, only log-probs at one temperature", is_pass=True, is_dear=True),
    "after_non_members": Need(
        _after,
        NO_KNOWN.format("non-members"),
        Setting("non_member_prefix", "--non-member-prefix", "known non-members to read before each text, for recall"),
        many=SHOTS,
        is_pass=True,
    ),
    "after_members": Need(
        _after,
        NO_KNOWN.format("members"),
        Setting("member_prefix", "--member-prefix", "known members to read before each text, for con_recall"),
        many=SHOTS,
        is_pass=True,
    ),
    "after_others": Need(
        _after_others, "there is one text alone, or only log-probs of the model are here", is_pass=True, is_dear=True
    ),
}
PASSES = ("stats", *(name for name, need in NEEDS.items() if need.is_pass))  # over the texts


def settings(*, dear: bool = True) -> Iterator[Setting]:
    """The settings of all needs, each once; `dear=False` leaves out those of the dear ones."""
    entries = [setting for need in NEEDS.values() if dear or not need.is_dear for setting in need.settings]
    yield from (setting for i, setting in enumerate(entries) if setting not in entries[i + 1 :])
