"""What to run, and every pass and count that a detector may need, loaded when it is first asked for.

    target = Target(model="lab/en-900k", benchmark="lab/en", reference="lab/en-25k")
    inputs = load_inputs(target)
    scores = score_all(inputs)                      {detector: (N,) scores, or None where it is not applicable}
    inputs["stats"], inputs["reference"], ...       the target's own pass, and those of NEEDS

Inputs of some of the texts (`take`), of texts cut shorter (`cut_inputs`), with another reference or corpus (`retarget`)
and with something else in its place (`given`) share what is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt, field_validator, model_validator

from mialib import detectors
from mialib.batches import encode
from mialib.benchmarks import Benchmark
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.corpora import reference_texts, warn_of_other_language
from mialib.catalog.models import load_tokenizer
from mialib.catalog.sources import Dtype, PartsMissing, Source, find
from mialib.detectors import DETECTORS, FloatArray, detect, get_detector
from mialib.frequency import TokenFrequency
from mialib.model_selection import Candidates, Grid
from mialib.passes.cache import count_or_load, neighbor_log_probs_or_load, score_cut_texts, score_or_load
from mialib.plain import plain_indices
from mialib.shared.schema import Strict
from mialib.store import hash_texts
from mialib.text import bare, count_words, excerpt, have_case
from mialib.token_stats import TokenRow, TokenStats
from mialib.versions import versions_of

logger = logging.getLogger(__name__)


class Target(Strict):
    """What to run: a model on a benchmark, and what detectors are given besides. One column of a results table."""

    model: str
    benchmark: str
    reference: str | None = None  # a smaller model, for Small Ref
    corpus: str | None = None  # a reference corpus, for DC-PDD
    n_words: PositiveInt | None = None  # what the texts are cut to; with `part`, the length of a snippet
    masked: str | None = None  # a masked language model, for Neighbor
    n_neighbors: PositiveInt = 100  # how many it makes for each text
    non_member_prefix: str | None = None  # known non-members, for ReCaLL: a file, or a reference corpus's name
    member_prefix: str | None = None  # known members, for Con-ReCall
    n_shots: PositiveInt = 7  # texts of a prefix that are read before each text
    part: Literal["head", "middle", "tail", "all"] | None = None  # of long documents, in snippets
    published: str | None = None  # the published table's column to compare with
    start_token: str | None = "auto"  # prepended to each text, as for `mialib.Scorer`; None: nothing is
    dtype: Dtype = "auto"  # of the weights of `model` and `reference`, as for `mialib.Scorer`

    @field_validator("start_token")
    @classmethod
    def _none_is_none(cls, start_token: str | None) -> str | None:
        return None if start_token is None or start_token.lower() == "none" else start_token

    @model_validator(mode="before")
    @classmethod
    def _of_an_adapter_the_base_is_the_reference(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(model := given.get("model"), str) and not given.get("reference"):
            return {**given, "reference": find(model).base}
        return given

    @model_validator(mode="after")
    def _has_a_length_where_it_is_of_snippets(self) -> Target:
        if self.part and not self.n_words:
            raise ValueError(f"{self.part} of documents: `n_words` says how long a snippet is")
        return self

    @property
    def loading(self) -> dict[str, Any]:
        """How models are loaded, as for `score_or_load`."""
        return {"start_token": self.start_token, "dtype": self.dtype}

    @property
    def column(self) -> str:
        """The column's heading."""
        return f"{self.model} on {self.benchmark}"

    def but(self, **changes: Any) -> Target:
        """The same with some fields changed."""
        return type(self).model_validate(self.model_dump() | changes)


@dataclass(frozen=True)
class Need:
    """Something that a detector may need besides the target's own pass."""

    load: Callable[[Inputs, str], Any]  # of the inputs, and of what the field `made_from` names
    made_from: str | None = None  # the field of Target that names it; None: the texts alone
    option: str = ""  # of the command line
    missing: str = ""  # why it may be lacking
    made_by: str = "scoring"  # whose version counts, of `mialib.versions`


def _lowercase(inputs: Inputs, _: str) -> TokenStats | None:
    """The pass over the lowercased texts; of one that did not fit the context, over no more than was scored of it."""
    # A file holds what was made of the texts as they are.
    if not inputs.source.scores_any_text or not have_case(inputs.texts):
        return None
    model, texts = inputs.target.model, [text.lower() for text in inputs.texts]
    if n_same := sum(map(str.__eq__, texts, inputs.texts)):
        logger.info("lowercase: -1 for %d of %d texts, which have no capital letter", n_same, len(texts))
    stats = inputs.score(model, texts)
    if not inputs.stats.n_cut.any():
        return stats
    wanted = [part.lower() for part in inputs.scored_parts()]
    longer = [i for i, part in enumerate(stats.scored_parts(texts)) if len(part) > len(wanted[i])]
    if not longer:
        return stats
    cut = score_cut_texts(model, stats.take(longer), [wanted[i] for i in longer], **inputs.target.loading)[0]
    rows = list(stats)
    for i, row in zip(longer, cut, strict=True):
        rows[i] = row
    return TokenStats.from_rows(rows, n_cut=stats.n_cut, provenance=stats.provenance)


def _reference(inputs: Inputs, reference: str) -> TokenStats:
    return inputs.score(reference, inputs.texts)


def _frequency(inputs: Inputs, corpus: str) -> TokenFrequency | None:
    if "token_ids" in inputs.source.lacks:
        return None
    if stored := find(corpus).counts(inputs.source):
        return stored
    warn_of_other_language(corpus, inputs.texts, inputs.target.benchmark)
    return count_or_load(corpus, inputs.target.model)


def _neighbors(inputs: Inputs, masked: str) -> FloatArray:
    target = inputs.target
    given: dict[str, Any] = {"n_neighbors": target.n_neighbors, "language": inputs.language} | target.loading
    return neighbor_log_probs_or_load(target.model, inputs.scored_parts(), masked, **given)


def _after(inputs: Inputs, source: str) -> TokenStats | None:
    """The pass in which known texts are read before each text."""
    if not inputs.source.has_weights:
        return None
    shots = list(islice(reference_texts(source), inputs.target.n_shots))
    if len(shots) < inputs.target.n_shots:
        raise ValueError(
            f"{source} holds {len(shots)} texts, and {inputs.target.n_shots} are to be read before each text; give "
            f"more, or --shots {len(shots)}"
        )
    scored = {bare(text) for text in inputs.texts}
    if judged := next((text for text in shots if bare(text) in scored), None):
        raise ValueError(f"{source}: {excerpt(judged)} is among the texts to score; give others")
    after = "".join(f"{text}\n\n" for text in shots)
    n_before = len(encode(load_tokenizer(inputs.target.model), [after])[0])
    logger.info("%s: a pass with %d tokens before each text", source, n_before)
    return inputs.score(inputs.target.model, inputs.texts, after=after)


def other_texts(n: int) -> NDArray[np.int64]:
    """The number of the text that is read before each of n, (n,): each is read before one other, drawn always alike."""
    order = np.random.default_rng(0).permutation(n)
    return np.roll(order, 1)[np.argsort(order)]


def _after_others(inputs: Inputs, _: str) -> TokenStats | None:
    """The pass in which another of the texts is read before each, cut to about half of the model's context."""
    texts, model = inputs.texts, inputs.target.model
    if not inputs.source.has_weights or len(texts) < 2:
        return None
    tokenizer, room = load_tokenizer(model), inputs.stats.provenance["max_tokens"] // 2
    own = [len(ids) for ids in encode(tokenizer, texts)]
    heads = [text[: len(text) * room // max(n, room)] for text, n in zip(texts, own, strict=True)]
    read = [f"{heads[other]}\n\n{text}" for text, other in zip(texts, other_texts(len(texts)), strict=True)]
    whole = inputs.score(model, read)
    begins = [len(ids) - n for ids, n in zip(encode(tokenizer, read), own, strict=True)]
    rows = [TokenRow._make(column[begin:] for column in row) for row, begin in zip(whole, begins, strict=True)]
    made = whole.provenance | {"texts": hash_texts(texts), "after": whole.provenance["texts"]}
    return TokenStats.from_rows(rows, n_cut=whole.n_cut, provenance=made)


def _tempered(inputs: Inputs, _: str) -> TokenStats | None:
    if not inputs.source.has_weights:
        return None
    return inputs.score(inputs.target.model, inputs.texts, temperature=detectors.TEMPERATURE)


NO_CORPUS = "no reference corpus is named (corpora), or the token ids are not known"
NO_KNOWN = "no known {} are named to be read before each text, or only log-probs of the model are here"
NO_CASE = "most letters of the texts have no upper and lower case, none is a capital, or only log-probs are here"
# The one table of what a detector needs: `detect`'s keywords, where each comes from, and why it may be missing.
NEEDS = {
    "texts": Need(
        lambda inputs, _: None if "texts" in inputs.source.lacks else inputs.texts, missing="no texts are recorded"
    ),
    "lowercase": Need(_lowercase, missing=NO_CASE),
    "reference": Need(_reference, "reference", "--reference", "no smaller model is named (references)"),
    "frequency": Need(_frequency, "corpus", "--corpus", NO_CORPUS, "counting"),
    "neighbors": Need(_neighbors, "masked", "--masked", "no neighbors were made", "neighbors"),
    "tempered": Need(_tempered, missing="the model is not here, only log-probs at one temperature"),
    "after_non_members": Need(_after, "non_member_prefix", "--non-member-prefix", NO_KNOWN.format("non-members")),
    "after_members": Need(_after, "member_prefix", "--member-prefix", NO_KNOWN.format("members")),
    "after_others": Need(_after_others, missing="there is one text alone, or only log-probs of the model are here"),
}
HOW_MANY = {"neighbors": "n_neighbors", "after_non_members": "n_shots", "after_members": "n_shots"}
PASSES = ("stats", *detectors.OTHER_PASSES)  # over the texts


@dataclass(frozen=True)
class Inputs:
    """Texts and what detectors need of them under one target, text by text in their order; loaded when asked for."""

    target: Target
    texts: tuple[str, ...]
    language: str
    benchmark: Benchmark | None = None  # None for texts without labels
    origin: Callable[[str], Any] | None = None  # where what is not loaded comes from; None: from the target's names
    loaded: dict[str, Any] = field(default_factory=dict)
    part: tuple[int, int] | None = None  # of each pass: the one that is scored here, as for `score_or_load`

    def __getitem__(self, name: str) -> Any:
        """ "stats", or a key of NEEDS: None where the target names nothing that it could be made from."""
        self.load(name)
        return self.loaded[name]

    def load(self, *names: str) -> None:
        """Have these at hand, loaded in this order where they are not yet.

        PartsMissing, once this part of each pass is scored, where other parts are not here yet.
        """
        for _ in range(2):  # by the second time other machines may have finished theirs
            missing: list[str] = []
            for name in names:
                if name in self.loaded or (missing and name not in PASSES):
                    continue
                try:
                    self.loaded[name] = self.origin(name) if self.origin else self._load(name)
                except PartsMissing as error:
                    missing.append(f"{name} of {error}")
        if missing:
            raise PartsMissing("; ".join(missing))

    def _load(self, name: str) -> Any:
        if name == "stats":
            return self.score(self.target.model, self.texts)
        need = NEEDS[name]
        source = getattr(self.target, need.made_from) if need.made_from else ""
        return None if need.made_from and not source else need.load(self, source)

    def score(self, model: str, texts: Sequence[str], **given: Any) -> TokenStats:
        """A pass of a model, loaded as the target says; `after` and `temperature` as for `Scorer.score`."""
        return score_or_load(model, texts, **self.target.loading, part=self.part, **given)

    @property
    def source(self) -> Source:
        """The target's model."""
        return find(self.target.model)

    @property
    def stats(self) -> TokenStats:
        """The target's own pass."""
        return self["stats"]

    @property
    def labels(self) -> NDArray[np.int8]:
        """(N,), 1 = member."""
        return self.labelled.labels

    @property
    def labelled(self) -> Benchmark:
        """The benchmark; ValueError for texts without labels."""
        if self.benchmark is None:
            raise ValueError(f"{self.target.benchmark}: its texts have no labels")
        return self.benchmark

    def scored_parts(self) -> list[str]:
        """The texts up to their last scored token."""
        return self.stats.scored_parts(self.texts)

    @property
    def scored_benchmark(self) -> Benchmark:
        """The benchmark with as much of each text as was scored, so that a baseline sees what the detectors see."""
        if not self.stats.n_cut.any():
            return self.labelled
        n_words = self.labelled.n_words or int(self.stats.n_tokens.max())
        return replace(self.labelled, texts=tuple(self.scored_parts()), n_words=n_words)

    def passes(self) -> list[dict[str, Any]]:
        """The provenance of every pass over the texts that was read."""
        return [self.loaded[name].provenance for name in PASSES if self.loaded.get(name) is not None]

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str) -> Inputs:
        """The same of the texts with these numbers, as a benchmark of another name."""
        indices = plain_indices(indices, len(self.texts), "texts to take")

        def origin(need: str) -> Any:
            whole = self[need]
            if whole is None or need == "frequency":
                return whole
            if isinstance(whole, TokenStats):
                return whole.take(indices)
            return whole[indices] if isinstance(whole, np.ndarray) else tuple(whole[i] for i in indices)

        benchmark = self.labelled.take(indices, name)
        return Inputs(self.target.but(benchmark=name), benchmark.texts, self.language, benchmark, origin)

    def retarget(self, **fields: Any) -> Inputs:
        """The same with another reference, corpus, masked model or prefix, from which the rest is loaded now.

        ValueError for another field of the target: another model or benchmark is loaded by `load_inputs`.
        """
        can_change = {need.made_from for need in NEEDS.values() if need.made_from} | set(HOW_MANY.values())
        if others := sorted(set(fields) - can_change):
            known = ", ".join(sorted(can_change))
            raise ValueError(f"another {others[0]} is another target; these can be changed: {known}")
        if fields.get("reference"):
            find(self.target.benchmark).check_scorable(fields["reference"])
        changed = replace(self, target=self.target.but(**fields), origin=self.__getitem__, loaded={})
        for name, need in NEEDS.items():
            if {need.made_from, HOW_MANY.get(name)} & set(fields):
                changed.loaded[name] = changed._load(name)
        return changed

    def given(self, **passes: Any) -> Inputs:
        """The same with something else in the place of the stats or of what NEEDS names; None where it is to lack."""
        return replace(self, origin=self.__getitem__, loaded=passes)


def load_inputs(target: Target) -> Inputs:
    """A target's benchmark, cut or in snippets as it says; nothing is scored yet but what a cut needs.

    ValueError for a model that can't score the benchmark.
    """
    for model in filter(None, (target.model, target.reference)):
        find(target.benchmark).check_scorable(model)
    benchmark = load_benchmark(target.benchmark)
    if target.part and target.n_words:
        return inputs_of(target, benchmark.snippets(target.n_words, target.part))
    inputs = inputs_of(target, benchmark)
    return cut_inputs(inputs, target.n_words)[0] if target.n_words else inputs


def inputs_of(target: Target, benchmark: Benchmark) -> Inputs:
    """What `load_inputs` gives, of a benchmark that is loaded already."""
    return Inputs(target, benchmark.texts, benchmark.language, benchmark)


def cut_inputs(inputs: Inputs, n_words: int) -> tuple[Inputs, int]:
    """The same inputs with each text cut to `n_words` words, and how many texts needed no new forward pass.

    A causal model's statistics of a prefix are a prefix of its statistics. A cut text's neighbors are others.
    """
    cut, target = inputs.labelled.cut(n_words), inputs.target
    if cut.texts == inputs.texts:  # which saves to tokenize them anew
        return replace(inputs, benchmark=cut), len(cut)

    def cut_pass(model: str, whole: TokenStats, texts: Sequence[str] = cut.texts) -> tuple[TokenStats, int]:
        return score_cut_texts(model, whole, texts, **target.loading)

    made, (stats, n_reused) = inputs_of(target, cut), cut_pass(target.model, inputs.stats)

    def origin(need: str) -> Any:
        if need not in ("lowercase", "reference", "frequency"):
            return made[need]
        whole = inputs[need]
        if need == "lowercase" and whole is not None:
            return cut_pass(target.model, whole, [text.lower() for text in cut.texts])[0]
        if need == "reference" and whole is not None and target.reference:
            return cut_pass(target.reference, whole)[0]
        return whole

    return replace(made, origin=origin, loaded={"stats": stats}), n_reused


def split_lengths(benchmark: Benchmark, lengths: Iterable[int]) -> tuple[list[int], dict[int, int]]:
    """The lengths in words that the texts can be cut to, and the number of too short texts for each other length.

    A length is left out where over half of the texts are shorter. ValueError where all are.
    """
    counts = np.array([count_words(text, benchmark.language) for text in benchmark.texts])
    short = {length: int(np.sum(counts < length)) for length in sorted(lengths)}
    left_out = {length: n for length, n in short.items() if n > len(counts) / 2}
    if len(left_out) == len(short):
        raise ValueError(
            f"{benchmark.name}: half of the texts have at most {int(np.median(counts))} words, "
            f"so they cannot be cut to {', '.join(map(str, short))}"
        )
    return [length for length in short if length not in left_out], left_out


def common_labels(columns: Sequence[Inputs]) -> NDArray[np.int8]:
    """The labels (N,) that columns of the same texts share; ValueError where their texts or labels differ."""
    first, *others = columns
    for other in others:
        if other.texts != first.texts or not np.array_equal(other.labels, first.labels):
            raise ValueError(
                f"{first.target.column} and {other.target.column} are not of the same texts with the same labels; "
                "give both models one benchmark"
            )
    return first.labels


# --- scores ---


def unavailable_reason(inputs: Inputs, detector: str) -> str:
    """Why a detector is not applicable to a target; "" where it is."""
    known, lacks = get_detector(detector), inputs.stats.lacks
    reasons = [lacks[column] for column in known.reads if column in lacks]
    reasons += [NEEDS[need].missing for need in known.needs if inputs[need] is None]
    by_token = not reasons and "reference" in known.needs and "token_ids" in known.reads
    if by_token and not np.array_equal(inputs.stats.token_ids, inputs["reference"].token_ids):
        return f"{inputs.target.reference} reads other tokens than {inputs.target.model}"
    return reasons[0] if reasons else ""


def scores_of(inputs: Inputs, detector: str, **hyperparameters: Any) -> FloatArray:
    """One detector's scores; ValueError where it is not applicable to this target."""
    needed = {need: inputs[need] for need in get_detector(detector).needs}
    return detect(detector, inputs.stats, **needed, **hyperparameters)


def score_all(
    inputs: Inputs, detectors: Iterable[str] | None = None, **hyperparameters: Mapping[str, Any]
) -> dict[str, FloatArray | None]:
    """Scores of each detector, None where it is not applicable to this target (a dash in the tables).

    The default is the papers' detectors, but Neighbor only where neighbors were asked for. `hyperparameters` are given
    by detector: `min_k={"k": 10}`; ValueError for those of a detector that is not scored.
    """
    if detectors is None:
        without = "neighbor" if inputs["neighbors"] is None else ""
        detectors = [name for name, known in DETECTORS.items() if not known.is_later and name != without]
    detectors = list(detectors)
    if unknown := [name for name in hyperparameters if name not in detectors]:
        raise ValueError(
            f"hyperparameters of {unknown[0]!r}, which is not among the detectors to score: {', '.join(detectors)}"
        )
    return {
        name: None if unavailable_reason(inputs, name) else scores_of(inputs, name, **hyperparameters.get(name, {}))
        for name in detectors
    }


def signature(made: Mapping[str, Any], texts: str = "") -> str:
    """What made a pass's numbers, on one line, from its provenance: version, model, texts, start token, format, seed.

    `texts` says which texts, by default how many and their hash.
    """
    has_weights, seed = find(made["model"]).has_weights, made.get("seed", "unknown")
    token = made.get("start_token", made.get("start_token_id", "unknown"))
    revision = made["revision"].rpartition("@")[2][:10] if has_weights else made["revision"]
    texts = texts or f"{made['n_texts']} texts ({made['texts'][:8]})"
    token = "none" if token is None else f"id {token}" if isinstance(token, int) else token
    numbers = f", {made['dtype']} on {made['device']}" if has_weights else ""
    return (
        f"mialib {made['mialib']}: {made['model']} ({revision}, training seed {seed}) on {texts}, "
        f"start token {token}{numbers}"
    )


def versions_behind(detector: str) -> dict[str, int]:
    """The versions of all that makes a detector's scores: its own, of the pass, and of what it needs besides."""
    known = get_detector(detector)
    return versions_of("scoring", *{NEEDS[need].made_by for need in known.needs}) | {detector: known.version}


def score_grid(inputs: Inputs, detector: str, grid: Grid | None = None) -> Candidates:
    """A detector's scores at every point of a grid of hyperparameters, by default its paper's."""
    needed = {need: inputs[need] for need in get_detector(detector).needs}
    grid = DETECTORS[detector].grid if grid is None else grid  # an empty one is a single point: the defaults
    return detectors.grid_candidates(detector, inputs.stats, grid, **needed)
