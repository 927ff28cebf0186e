"""What to run, and every pass and count that a detector may need, loaded on first use.

    target = Target(model="lab/en-900k", benchmark="lab/en", reference="lab/en-25k")
    inputs = load_inputs(target)
    scores = score_all(inputs)                      {detector: (N,) scores, or None where it is not applicable}
    inputs["stats"], inputs["reference"], ...       the model's own pass, and the entries of NEEDS

Inputs of some of the texts (`take`), of shorter texts (`cut_inputs`), with another reference or corpus (`retarget`)
and with replaced values (`given`) share what is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt, create_model, field_validator, model_validator

from mialib import detectors
from mialib.benchmarks import Benchmark
from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.sources import Dtype, PartsMissing, Source, find
from mialib.detectors import DETECTORS, FloatArray, detect, get_detector
from mialib.model_selection import Candidates, Grid
from mialib.passes import cache
from mialib.passes.needs import NEEDS, PASSES, settings
from mialib.plain import plain_indices
from mialib.shared.schema import Strict
from mialib.text import count_words
from mialib.token_stats import TokenStats
from mialib.versions import versions_of

# The fields that the table says: the name of a model, file or corpus, or None; or a number.
OF_NEEDS: dict[str, Any] = {
    setting.field: (PositiveInt if setting.default else str | None, setting.default) for setting in settings()
}


class Target(create_model("OfNeeds", __base__=Strict, **OF_NEEDS)):  # type: ignore[misc]
    """What to run: a model on a benchmark, and what detectors need besides. One column of a results table."""

    model: str
    benchmark: str
    n_words: PositiveInt | None = None  # what the texts are cut to; with `part`, the length of a snippet
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
    def _of_an_adapter_the_base_is_the_reference(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(model := values.get("model"), str) and not values.get("reference"):
            return {**values, "reference": find(model).base}
        return values

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

    def models(self, needs: Container[str] = NEEDS) -> list[str]:
        """The model, and those that are named for these inputs."""
        names = (need.source_in(self) for name, need in NEEDS.items() if need.names_model and name in needs)
        return [self.model, *filter(None, names)]

    def but(self, **changes: Any) -> Target:
        """The same with some fields changed."""
        return type(self).model_validate(self.model_dump() | changes)


@dataclass(frozen=True)
class Inputs:
    """Texts and what detectors need of them under one target, in the texts' order, loaded on first use."""

    target: Target
    texts: tuple[str, ...]
    language: str
    benchmark: Benchmark | None = None  # None for texts without labels
    loaded: dict[str, Any] = field(default_factory=dict)
    make: Callable[[str], Any] | None = None  # what is not loaded, from other inputs; None: as the target says
    part: tuple[int, int] | None = None  # of each pass: the one that is scored here, as for `score_or_load`

    def __getitem__(self, name: str) -> Any:
        """ "stats" or an entry of NEEDS, loaded when it is first asked for; None where the target names no source."""
        if name not in self.loaded:
            self.loaded[name] = self.make(name) if self.make else self._load(name)
        return self.loaded[name]

    def _load(self, name: str) -> Any:
        if name == "stats":
            return self.score(self.target.model, self.texts)
        need = NEEDS[name]
        return need.load(self, need.source_in(self.target)) if need.is_named(self.target) else None

    def load(self, *names: str) -> None:
        """Load these inputs in this order.

        PartsMissing, once this part of each pass is scored, where other parts are not here yet.
        """
        missing: list[str] = []
        for name in names:
            try:
                if not missing or name in PASSES:
                    self[name]
            except PartsMissing as error:
                missing.append(f"{name} of {error}")
        if missing:
            raise PartsMissing("; ".join(missing))

    def score(self, model: str, texts: Sequence[str], **options: Any) -> TokenStats:
        """A pass of a model, loaded as the target says; `after` and `temperature` as for `Scorer.score`.

        ValueError for a model that can't score the benchmark.
        """
        if self.benchmark is not None:  # and not a file of texts, whose path may look like a benchmark's name
            find(self.target.benchmark).check_scorable(model)
        return cache.score_or_load(model, texts, **self.target.loading, part=self.part, **options)

    @property
    def source(self) -> Source:
        """The target's model."""
        return find(self.target.model)

    @property
    def stats(self) -> TokenStats:
        """The model's own pass."""
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
        """The benchmark of the scored part of each text, so that a baseline sees what the detectors see."""
        if not self.stats.n_cut.any():
            return self.labelled
        n_words = self.labelled.n_words or int(self.stats.n_tokens.max())
        return replace(self.labelled, texts=tuple(self.scored_parts()), n_words=n_words)

    def passes(self) -> list[dict[str, Any]]:
        """The provenance of every pass over the texts that was read."""
        return [self.loaded[name].provenance for name in PASSES if self.loaded.get(name) is not None]

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str) -> Inputs:
        """Select the texts with these numbers, as a benchmark of another name."""
        indices = plain_indices(indices, len(self.texts), "texts to take")

        def taken(need: str) -> Any:
            whole = self[need]
            if whole is None or (need in NEEDS and not NEEDS[need].by_text):
                return whole
            if isinstance(whole, TokenStats):
                return whole.take(indices)
            return whole[indices] if isinstance(whole, np.ndarray) else tuple(whole[i] for i in indices)

        benchmark = self.labelled.take(indices, name)
        return Inputs(self.target.but(benchmark=name), benchmark.texts, self.language, benchmark, make=taken)

    def retarget(self, **fields: Any) -> Inputs:
        """Replace the reference, corpus, masked model or prefix, and load what depends on it.

        ValueError for another field of the target: another model or benchmark is loaded by `load_inputs`.
        """
        if names := sorted(set(fields) - set(OF_NEEDS)):
            changeable = ", ".join(sorted(OF_NEEDS))
            raise ValueError(f"another {names[0]} is another target; these can be changed: {changeable}")
        result = replace(self, target=self.target.but(**fields), make=self.__getitem__, loaded={})
        for name, need in NEEDS.items():
            if {setting.field for setting in need.settings} & set(fields):
                result.loaded[name] = result._load(name)
        return result

    def given(self, **values: Any) -> Inputs:
        """Replace "stats" or entries of NEEDS by these values; None makes one missing."""
        return replace(self, make=self.__getitem__, loaded=values)


def load_inputs(target: Target) -> Inputs:
    """Load a target's benchmark, cut or in snippets as it says; only what a cut needs is scored."""
    benchmark = load_benchmark(target.benchmark)
    if target.part and target.n_words:
        return inputs_of(target, benchmark.snippets(target.n_words, target.part))
    inputs = inputs_of(target, benchmark)
    return cut_inputs(inputs, target.n_words)[0] if target.n_words else inputs


def inputs_of(target: Target, benchmark: Benchmark) -> Inputs:
    """The inputs of a benchmark that is loaded already."""
    return Inputs(target, benchmark.texts, benchmark.language, benchmark)


def cut_inputs(inputs: Inputs, n_words: int) -> tuple[Inputs, int]:
    """Cut each text to `n_words` words, and count the texts that needed no new forward pass.

    A causal model's statistics of a prefix are a prefix of its statistics. A cut text's neighbors are others.
    """
    benchmark, target = inputs.labelled.cut(n_words), inputs.target
    if benchmark.texts == inputs.texts:  # which saves to tokenize them again
        return replace(inputs, benchmark=benchmark), len(benchmark)

    def cut_pass(whole: TokenStats, model: str, read: Callable[[str], str]) -> tuple[TokenStats, int]:
        return cache.score_cut_texts(model, whole, list(map(read, benchmark.texts)), **target.loading)

    new_inputs = inputs_of(target, benchmark)

    def cut(name: str) -> Any:
        need = NEEDS[name]
        if need.by_text and not need.cuttable:
            return new_inputs[name]
        if need.cuttable and (whole := inputs[name]) is not None:
            return cut_pass(whole, need.source_in(target) if need.names_model else target.model, need.cuttable)[0]
        return inputs[name]

    stats, n_reused = cut_pass(inputs.stats, target.model, str)
    return replace(new_inputs, make=cut, loaded={"stats": stats}), n_reused


def split_lengths(benchmark: Benchmark, lengths: Iterable[int]) -> tuple[list[int], dict[int, int]]:
    """Split lengths into those that the texts can be cut to, and the others with their number of too short texts.

    A length is left out where over half of the texts are shorter. ValueError where all are.
    """
    counts = np.array([count_words(text, benchmark.language) for text in benchmark.texts])
    short = {length: int(np.sum(counts < length)) for length in sorted(lengths)}
    left_out = {length: n for length, n in short.items() if n > len(counts) / 2}
    if len(left_out) == len(short):
        most, listing = int(np.median(counts)), ", ".join(map(str, short))
        raise ValueError(f"{benchmark.name}: half of the texts have {most} words at most; none can be cut to {listing}")
    return [length for length in short if length not in left_out], left_out


def common_labels(columns: Sequence[Inputs]) -> NDArray[np.int8]:
    """The labels (N,) that columns of the same texts share; ValueError where their texts or labels differ."""
    first, *rest = columns
    for inputs in rest:
        if inputs.texts != first.texts or not np.array_equal(inputs.labels, first.labels):
            pair = f"{first.target.column} and {inputs.target.column}"
            raise ValueError(f"{pair} differ in their texts or labels; give both models one benchmark")
    return first.labels


# --- scores ---


def unavailable_reason(inputs: Inputs, detector: str) -> str:
    """The reason why a detector is not applicable to a target; "" where it is."""
    entry, lacks = get_detector(detector), inputs.stats.lacks
    reasons = [lacks[column] for column in entry.reads if column in lacks]
    reasons += [NEEDS[need].missing for need in entry.needs if inputs[need] is None]
    for need in entry.needs if not reasons and "token_ids" in entry.reads else ():
        if NEEDS[need].is_other_model and not np.array_equal(inputs.stats.token_ids, inputs[need].token_ids):
            return f"{NEEDS[need].source_in(inputs.target)} reads other tokens than {inputs.target.model}"
    return reasons[0] if reasons else ""


def scores_of(inputs: Inputs, detector: str, **hyperparameters: Any) -> FloatArray:
    """One detector's scores; ValueError where it is not applicable to this target."""
    needs = {need: inputs[need] for need in get_detector(detector).needs}
    return detect(detector, inputs.stats, **needs, **hyperparameters)


def score_all(
    inputs: Inputs, detectors: Iterable[str] | None = None, **hyperparameters: Mapping[str, Any]
) -> dict[str, FloatArray | None]:
    """Scores of each detector, None where it is not applicable to this target (a dash in the tables).

    The default is the papers' detectors, but Neighbor only where neighbors were asked for. `hyperparameters` are given
    by detector: `min_k={"k": 10}`; ValueError for those of a detector that is not scored.
    """
    if detectors is None:
        without = "neighbor" if inputs["neighbors"] is None else ""
        detectors = [name for name, detector in DETECTORS.items() if not detector.is_later and name != without]
    names = list(detectors)
    if unknown := [name for name in hyperparameters if name not in names]:
        raise ValueError(f"hyperparameters of {unknown[0]!r}, but only these are scored: {', '.join(names)}")
    return {
        name: None if unavailable_reason(inputs, name) else scores_of(inputs, name, **hyperparameters.get(name, {}))
        for name in names
    }


def signature(provenance: Mapping[str, Any], texts: str = "") -> str:
    """Name in one line what a pass depends on: version, model, texts, start token, number format, seed.

    `texts` says which texts, by default how many and their hash.
    """
    model, seed = provenance["model"], provenance.get("seed", "unknown")
    has_weights = find(model).has_weights
    token = provenance.get("start_token", provenance.get("start_token_id", "unknown"))
    revision = provenance["revision"].rpartition("@")[2][:10] if has_weights else provenance["revision"]
    texts = texts or f"{provenance['n_texts']} texts ({provenance['texts'][:8]})"
    token = "none" if token is None else f"id {token}" if isinstance(token, int) else token
    numbers = f", {provenance['dtype']} on {provenance['device']}" if has_weights else ""
    return (
        f"mialib {provenance['mialib']}: {model} ({revision}, training seed {seed}) on {texts}, start token "
        f"{token}{numbers}"
    )


def versions_behind(detector: str) -> dict[str, int]:
    """The versions behind a detector's scores: its own, the pass's, and those of its other inputs."""
    entry = get_detector(detector)
    return versions_of("scoring", *{NEEDS[need].made_by for need in entry.needs}) | {detector: entry.version}


def score_grid(inputs: Inputs, detector: str, grid: Grid | None = None) -> Candidates:
    """A detector's scores at every point of a grid of hyperparameters, by default its paper's."""
    needs = {need: inputs[need] for need in get_detector(detector).needs}
    grid = DETECTORS[detector].grid if grid is None else grid  # an empty one is a single point: the defaults
    return detectors.grid_candidates(detector, inputs.stats, grid, **needs)
