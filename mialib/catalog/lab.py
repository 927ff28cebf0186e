"""The lab as a source: its models' folders, its benchmarks, and the texts of its corpora's roles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import Benchmark
from mialib.catalog.models import Weights
from mialib.lab.corpora import check_whole, corpora_of, lab_benchmark, lab_labels, lab_revision, lab_texts
from mialib.lab.models import lab_model, lab_recipe, times_seen, trained_on
from mialib.lab.recipes import Masked, Training, Unlearning


class Lab(Weights):
    """`lab/en-25k`, a model; `lab/en` and `lab/en~lab/code`, benchmarks; `lab/en:background`, a corpus."""

    is_fetched = False
    gpu_dtype = "float32"

    def folder(self, model: str) -> Path:
        """The stored model's; of another recipe or seed one that is trained first, once."""
        return lab_model(model)

    def check(self, model: str) -> None:
        """ValueError for a model that the profile does not have."""
        lab_recipe(model)

    def trained_on(self, model: str) -> list[str]:
        """The texts that the model was trained on; ValueError for a masked one."""
        recipe = lab_recipe(model)
        if isinstance(recipe, Unlearning):
            return self.trained_on(recipe.base)
        if isinstance(recipe, Masked):
            raise ValueError(f"{model} is a masked model, which writes no texts; name one that does")
        return trained_on(recipe)[0]

    def times_seen(self, model: str, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """As the recipe says; None for a masked or an unlearned model."""
        recipe = lab_recipe(model)
        return times_seen(recipe, texts) if isinstance(recipe, Training) else None

    def training_seed(self, model: str) -> int:
        """The recipe's, or the one that the name asks for."""
        return lab_recipe(model).seed

    def benchmark(self, name: str) -> Benchmark:
        """The members and non-members of one corpus or two."""
        return lab_benchmark(name)

    def labels(self, benchmark: str) -> tuple[str, NDArray[np.int8]]:
        """As the coin dealt them out."""
        return lab_revision(benchmark), lab_labels(benchmark)

    def check_whole(self, benchmark: str) -> None:
        """ValueError where an installed package no longer has some of its texts."""
        for corpus in corpora_of(benchmark):
            check_whole(corpus)

    def corpus(self, name: str) -> Iterable[str]:
        """The texts of a role, by default the reference ones."""
        corpus, _, role = name.partition(":")
        return lab_texts(corpus, role or "reference")

    def unseen(self, name: str) -> Iterable[str]:
        """The same; ValueError for a role that models are trained on."""
        corpus, _, role = name.partition(":")
        if role in ("member", "background"):
            raise ValueError(f"{name}: the lab's models are trained on these; use {corpus}:reference")
        return self.corpus(name)
