"""The lab as a source: models whose training set is known, since a coin decided it.

    lab/en-25k          a model; lab/en-25k@1 is the same trained from seed 1
    lab/en              a benchmark, the members and non-members of a corpus; as a reference corpus its reference texts
    lab/en:background   the texts of one role as a reference corpus
    lab/en~lab/code     a benchmark of two corpora, members of the first and non-members of the second, or other roles

The profile (`data/profiles/lab.yml`) has recipes of corpora and models, `data/lab` what some recipes gave. A corpus or
model is read from `data/lab` if it was made by the recipe asked for; else it is made on this machine, once. Names that
the profile lacks are looked up in `data/lab`.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from mialib.benchmarks import Benchmark
from mialib.cache import ARRAYS, JSON, Checkpoints, Format, cached, write_once
from mialib.catalog.models import Weights, hash_of_tokenizer
from mialib.catalog.sources import PassOptions, Source, find
from mialib.frequency import TokenFrequency
from mialib.shared.files import COIN_COLUMN
from mialib.store import hash_files, hash_of, hash_texts, home, version, write_json
from mialib.text import remember_words, segment
from mialib.token_stats import TokenStats
from mialib.versions import versions_of
from replication import BOOK_DATA
from replication.lab import dealing
from replication.lab.corpora import CARD, COUNTS, END_OF_TEXT, ROLES, Row, corpus_tokenizer, installed, read_corpus
from replication.lab.dealing import overlaps, sources_of
from replication.lab.docstrings import read_places, source_files
from replication.lab.recipes import (
    AnyRecipe,
    Corpus,
    Diluted,
    Masked,
    Seen,
    TrainingOn,
    Unlearning,
    by_group,
    is_lab,
    load_recipes,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

STORED = BOOK_DATA / "lab"
MODEL_CARD, WEIGHTS = "lab.json", "model.safetensors"
CARDS = {"corpora": CARD, "models": MODEL_CARD}


# --- recipes by name ---


def corpus_recipe(name: str) -> Corpus:
    """How a corpus is made, as the profile or else `data/lab` says; ValueError for an unknown name."""
    recipe = load_recipes().corpora.get(name) or _stored_recipe("corpora", name, Corpus)
    if recipe is None:
        raise ValueError(f"unknown lab corpus {name!r}; known: {_known('corpora', load_recipes().corpora)}")
    return recipe


def lab_recipe(name: str) -> AnyRecipe:
    """How a model is made, as the profile or else `data/lab` says, with the seed that its name asks for."""
    plain, _, seed = name.partition("@")
    models = {name: model.recipe for name, model in load_recipes().models.items() if model.recipe}
    recipe = models.get(plain) or _stored_recipe("models", plain, AnyRecipe)
    if recipe is None or (seed and not seed.isdecimal()):
        raise ValueError(f"unknown lab model {name!r}; known: {_known('models', models)} (with another seed: NAME@1)")
    return recipe.model_copy(update={"seed": int(seed)}) if seed else recipe


def _folder(kind: str, name: str) -> Path:
    return STORED / kind / name.removeprefix("lab/")


def _card(kind: str, name: str) -> dict[str, Any]:
    path = _folder(kind, name) / CARDS[kind]
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _stored_recipe(kind: str, name: str, schema: Any) -> Any:
    card = _card(kind, name)
    return TypeAdapter(schema).validate_python(card["recipe"]) if card else None


def _stored(kind: str, name: str, recipe: Corpus | AnyRecipe) -> Path | None:
    """The folder of a corpus or model in `data/lab`; None unless this recipe made it."""
    return _folder(kind, name) if _card(kind, name).get("recipe") == recipe.model_dump(mode="json") else None


def _known(kind: str, profile_names: Iterable[str]) -> str:
    names = [f"lab/{path.parent.name}" for path in sorted(STORED.glob(f"{kind}/*/{CARDS[kind]}"))]
    return ", ".join(dict.fromkeys([*profile_names, *names]))


def of_seed(model: str, seed: int) -> str:
    """A model's name when it is trained from a seed; 0 is the recipe's own."""
    return f"{model}@{seed}" if seed else model


def base_of(name: str, recipe: Unlearning) -> str:
    """The model that an unlearned one was made from, of the same seed."""
    _, at, seed = name.partition("@")
    return f"{recipe.base}{at}{seed}"


def recipes_of(models: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The lab models' recipes by name, each followed by that of the model it was made from; no other model has one."""

    def lineage(name: str) -> list[dict[str, Any]]:
        recipe = lab_recipe(name)
        return [recipe.model_dump(), *(lineage(recipe.base) if isinstance(recipe, Unlearning) else [])]

    return {name: lineage(name) for name in sorted(set(models)) if is_lab(name)}


def corpora_of_recipe(recipe: AnyRecipe) -> list[str]:
    """The lab corpora that a model is trained on: its own, then those injected; none for an unlearned one."""
    return [] if isinstance(recipe, Unlearning) else [recipe.corpus, *getattr(recipe, "injected", {})]


def lab_model_corpus(name: str) -> str:
    """The lab corpus that a lab model was trained on."""
    recipe = lab_recipe(name)
    return lab_model_corpus(recipe.base) if isinstance(recipe, Unlearning) else recipe.corpus


def member_corpora(name: str) -> list[str]:
    """The lab corpora whose members a lab model was trained on: what it may be attacked with."""
    recipe = lab_recipe(name)
    if isinstance(recipe, Unlearning):
        return member_corpora(recipe.base)
    has_members = isinstance(recipe, Seen) and bool(recipe.member_times or recipe.member_repeats)
    return [*([recipe.corpus] if has_members else []), *getattr(recipe, "injected", {})]


def member_times(recipe: Seen, n_members: int) -> list[int]:
    """How often each member is seen: the same for all, or, with `member_repeats`, by equal consecutive groups."""
    return by_group(recipe.member_repeats or (recipe.member_times,), n_members)


# --- corpora ---


class LabCorpus:
    """A corpus by name: `lab/en`. A text that another version of a package no longer has is left out with a warning."""

    def __init__(self, name: str) -> None:
        self.name, self.recipe = name, corpus_recipe(name)

    @property
    def folder(self) -> Path:
        """The folder in `data/lab`, else one that is dealt out here, once."""
        return stored_corpus(self.name) or deal_again(self.name)

    @property
    def card(self) -> dict[str, Any]:
        """What the corpus is made of: recipe, source versions, counts by role and package, content hash."""
        return json.loads((self.folder / CARD).read_text(encoding="utf-8"))

    def rows(self, *roles: str) -> list[Row]:
        """The texts that have these roles, in the order of the shuffle; none is read from a package yet."""
        if unknown := set(roles) - set(ROLES):
            raise ValueError(f"unknown role {unknown.pop()!r}; known: {', '.join(ROLES)}")
        rows = read_corpus(self.folder)
        return [row for role in roles for row in rows if row.role == role]

    def texts(self, role: str) -> list[str]:
        """The texts of a role: member, non_member, background or reference."""
        return [text for text in self.read(self.rows(role)) if text is not None]

    def read(self, rows: Sequence[Row]) -> list[str | None]:
        """The texts of rows; None, with a warning, for one that an installed package no longer has."""
        texts = self._read(rows)
        if n_missing := texts.count(None):
            roles = " and ".join(dict.fromkeys(row.role.replace("_", "-") for row in rows))
            packages = {row.package for row, text in zip(rows, texts, strict=True) if text is None}
            sources = dict(zip(self.recipe.packages, self.card["sources"], strict=True))
            versions = ", ".join(f"{sources[of]} (installed: {installed(sources[of])})" for of in sorted(packages))
            warnings.warn(
                f"{self.name}, {roles}: {len(texts) - n_missing:,} of {len(texts):,} texts are the lab's; the others "
                f"are from {versions} and are left out",
                stacklevel=2,
            )
        return texts

    def _read(self, rows: Sequence[Row]) -> list[str | None]:
        if not any(row.place for row in rows):
            return [row.text for row in rows]
        # All at once: the same files hold the texts of every role, and parsing them takes most of the time.
        places = [row.place for row in read_corpus(self.folder) if row.place]
        kind = "code" if self.recipe.source == "code" else "docstring"
        stats = [(str(file), file.stat()) for file in source_files(places).values()]
        stamps = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        made_by: dict[str, Any] = {"files": stamps, "what": kind, **versions_of("gathering")}
        texts = cached("lab_texts", lambda: read_places(kind, places), JSON, places=hash_of(places), **made_by)
        text_at = dict(zip(places, texts, strict=True))
        return [text_at[row.place] if row.place else row.text for row in rows]

    def check_whole(self) -> None:
        """ValueError where a text that a training needs can't be read here."""
        rows = self.rows(*ROLES)
        if n_missing := self._read(rows).count(None):
            raise ValueError(
                f"{self.name}: {n_missing:,} of {len(rows):,} texts can't be read here, and training needs them all; "
                f"install {' '.join(self.card['sources'])}"
            )

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that was learned from the reference texts."""
        return corpus_tokenizer(self.folder)


def stored_corpus(name: str) -> Path | None:
    """The folder of a corpus in `data/lab`; None unless its recipe made it, and the corpus that it is apart from."""
    recipe = corpus_recipe(name)
    return None if recipe.apart_from and not stored_corpus(recipe.apart_from) else _stored("corpora", name, recipe)


def deal_again(name: str) -> Path:
    """The folder of a corpus that was dealt out on this machine, from the packages that are installed."""
    recipe = corpus_recipe(name)
    made_by: dict[str, Any] = {"sources": sources_of(recipe), "tokenizers": version("tokenizers")}
    made_by |= versions_of("gathering", "dealing")
    apart_from = LabCorpus(recipe.apart_from) if recipe.apart_from else None
    if apart_from:
        made_by["apart_from"] = apart_from.card["content_hash"]
    folder = home() / "lab" / "corpora" / f"{name.removeprefix('lab/')}-{hash_of([recipe.model_dump(), made_by])}"

    def make(to: Path) -> None:
        logger.warning("%s: gathering texts first, once", name)
        earlier_texts = [text for role in ROLES[:3] for text in apart_from.texts(role)] if apart_from else []
        dealing.make_corpus(name, recipe, earlier_texts, to)

    return write_once(folder, make)


def sides_of(benchmark: str) -> list[tuple[str, str]]:
    """Corpus and role of the texts that a benchmark calls members, and of those that it calls non-members."""
    first, _, second = benchmark.partition("~")
    sides = [
        (corpus, role or default)
        for part, default in ((first, "member"), (second or first, "non_member"))
        for corpus, _, role in [part.partition(":")]
    ]
    if len(set(sides)) < 2:
        raise ValueError(f"benchmark {benchmark!r} calls the same texts members and non-members")
    return sides


def corpora_of(benchmark: str) -> list[str]:
    """The corpora that a benchmark's texts are from."""
    return list(dict.fromkeys(corpus for corpus, _ in sides_of(benchmark)))


def training_overlaps(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The share of each text's 7-grams that a lab benchmark's models were trained on, (N,); None for any other."""
    if not is_lab(name):
        return None
    corpus = LabCorpus(corpora_of(name)[0])
    return overlaps(texts, corpus.texts("member") + corpus.texts("background"), corpus.recipe.language)


def rows_to_write(name: str, n: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of a benchmark, a corpus or one role of it, with their labels (1 = member), members first, for a file.

    If one fair coin dealt both sides, each row also has `coin_duplicates: 1`. `n` are drawn at random, half of them
    members, from the packages that are installed; ValueError for more than there are.
    """
    corpus, is_one_role, role = name.partition(":")
    if is_one_role and "~" not in name:
        sides = [(corpus, role, int(role in ("member", "background")))]
    else:
        sides = [(*side, label) for side, label in zip(sides_of(name), (1, 0), strict=True)]
    is_by_coin = [side[:2] for side in sides] == [(corpus, "member"), (corpus, "non_member")]
    rows_of = {side: rows for side in sides if (rows := LabCorpus(side[0]).rows(side[1]))}
    rng, written = np.random.default_rng(seed), []
    for i, ((corpus, role, label), rows) in enumerate(rows_of.items()):
        if n is not None:
            is_here = {package: bool(find_spec(package)) for package in {row.package for row in rows if row.place}}
            rows = [row for row in rows if is_here.get(row.package, True)]
            n_of_side = (n + len(rows_of) - 1 - i) // len(rows_of)
            if n_of_side > len(rows):
                raise ValueError(f"{corpus} has {len(rows)} texts of the role {role}, and {n_of_side} are asked for")
            rows = [rows[i] for i in sorted(rng.choice(len(rows), n_of_side, replace=False))]
        more = {"label": label} | ({COIN_COLUMN: 1} if is_by_coin else {})
        written += [{"text": text} | more for text in LabCorpus(corpus).read(rows) if text is not None]
    return written


# --- models ---


def stored_model(name: str) -> Path | None:
    """The folder of a model in `data/lab`; None unless its recipe made it, and what it was trained on."""
    recipe = lab_recipe(name)
    if isinstance(recipe, Unlearning):
        is_same = stored_model(base_of(name, recipe)) is not None
    else:
        is_same = all(map(stored_corpus, corpora_of_recipe(recipe)))
    return _stored("models", name.partition("@")[0], recipe) if is_same else None


def model_folder(name: str) -> Path:
    """The folder of a model in `data/lab`, else one that is trained here, once."""
    return stored_model(name) or train_again(name)


def lab_model_card(name: str) -> dict[str, Any]:
    """How a lab model was made: recipe, parameters, losses, versions; where it was trained here, the seconds."""
    return json.loads((model_folder(name) / MODEL_CARD).read_text(encoding="utf-8"))


def train_again(name: str, device: str = "cpu") -> Path:
    """The folder of a lab model that was trained on this machine.

    It is trained on the CPU, also where there is a GPU, so that a recipe gives the same model there too; on another
    `device` by `mialib record-lab` alone. ValueError where not all texts of its corpora can be read.
    """
    where = "" if device == "cpu" else f"-{device.replace(':', '-')}"
    folder = home() / "lab" / "models" / f"{name.removeprefix('lab/')}-{_key(name)}{where}"

    def make(to: Path) -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of its own, which draws on the output
        logger.warning("%s: training it first, once", name)  # a warning, so that a notebook shows it too
        _make(name, to, folder.with_name(f"{folder.name}.parts"), device)

    return write_once(folder, make)


def _key(name: str) -> str:
    """What determines a model: recipe, its corpora's texts in their roles, versions of training and libraries."""
    recipe = lab_recipe(name)
    made_of: list[Any] = []
    if isinstance(recipe, Unlearning):
        made_of.append(hash_files([model_folder(base_of(name, recipe)) / WEIGHTS]))
    if isinstance(recipe, TrainingOn):
        made_of.append(find(recipe.from_model).revision)
    for corpus in corpora_of_recipe(recipe) or [lab_model_corpus(name)]:
        card = LabCorpus(corpus).card
        made_of.append([card["content_hash"], card["roles"], card["tokenizer_hash"]])
    libraries = [version(name) for name in ("torch", "transformers", "tokenizers")]
    return hash_of([recipe.model_dump(), made_of, libraries, versions_of("training")])


def _make(name: str, folder: Path, checkpoints: Path, device: str) -> None:
    import torch

    from replication.lab import training

    recipe = lab_recipe(name)
    parts = Checkpoints(checkpoints, Format(".pt", torch.save, partial(torch.load, weights_only=True)))
    corpus = LabCorpus(lab_model_corpus(name))
    for trained_on in corpora_of_recipe(recipe) or [corpus.name]:
        LabCorpus(trained_on).check_whole()
    if isinstance(recipe, Unlearning):
        members, background, non_members = map(corpus.texts, ("member", "background", "non_member"))
        retained = members[recipe.texts :] + background
        base = model_folder(base_of(name, recipe))
        card = training.unlearn(name, recipe, base, members[: recipe.texts], retained, non_members, folder)
    elif isinstance(recipe, Masked):
        # It pads with the end of text.
        special = {"pad_token": END_OF_TEXT, "cls_token": "<s>", "mask_token": "<mask>"}
        tokenizer = corpus_tokenizer(corpus.folder, model_max_length=recipe.context_tokens, **special)
        card = training.train_masked(name, recipe, tokenizer, corpus.texts("background"), folder, parts)
    else:
        texts, times = texts_and_times(recipe)
        start: Any = corpus.tokenizer
        if isinstance(recipe, TrainingOn):
            from mialib.catalog.loading import load_model

            start = load_model(recipe.from_model, device=device, dtype="float32")
        card = training.train(name, recipe, start, texts, times, folder, device, parts)
    write_json(folder / MODEL_CARD, card)
    shutil.rmtree(checkpoints, ignore_errors=True)


def times_in(recipe: Seen, texts: Sequence[str]) -> NDArray[np.int64]:
    """How often a training sees each text, (N,)."""
    times = dict(zip(*texts_and_times(recipe), strict=True))
    return np.array([times.get(text, 0) for text in texts])


def texts_and_times(recipe: Seen) -> tuple[list[str], list[int]]:
    """The texts that a training sees, and how often each; one seen 0 times is left out."""
    corpus = LabCorpus(recipe.corpus)
    members, background = corpus.rows("member"), corpus.rows("background")
    background = background[: recipe.background_texts] if isinstance(recipe, Diluted) else background
    sides = [(corpus, members, member_times(recipe, len(members)))]
    sides += [(corpus, background, [recipe.background_times] * len(background))]
    for name, n in recipe.injected.items():
        injected = LabCorpus(name).rows("member")
        sides.append((LabCorpus(name), injected, [n] * len(injected)))
    pairs = [pair for corpus, rows, times in sides for pair in zip(corpus.read(rows), times, strict=True)]
    passages = [(text, n) for text, n in pairs if text is not None and n]
    return [text for text, _ in passages], [n for _, n in passages]


def forgotten_texts(name: str) -> list[str]:
    """The texts that an unlearned model was made to forget; none of any other model."""
    recipe, corpus = lab_recipe(name), LabCorpus(lab_model_corpus(name))
    if not isinstance(recipe, Unlearning):
        return []
    return [text for text in corpus.read(corpus.rows("member")[: recipe.texts]) if text is not None]


def _words_of(texts: Sequence[str]) -> list[NDArray[np.int32]]:
    """Where the words of each Chinese text begin and end, kept on disk: jieba is slow."""

    def make() -> dict[str, NDArray[np.int32]]:
        spans = [np.array(list(segment(text)), np.int32) for text in texts]
        return {"spans": np.concatenate(spans), "n_words": np.array(list(map(len, spans)), np.int32)}

    made_by: dict[str, Any] = {"jieba": version("jieba"), **versions_of("claims")}
    arrays = cached("words", make, ARRAYS, texts=hash_texts(texts), **made_by)
    return np.split(arrays["spans"], np.cumsum(arrays["n_words"])[:-1])


# --- what a name means ---


class Lab(Weights):
    """A model (`lab/en-25k`), a benchmark (`lab/en`, `lab/en~lab/code`) or a reference corpus (`lab/en:background`)."""

    is_fetched = False
    gpu_dtype = "float32"

    @property
    def recipe(self) -> AnyRecipe:
        """The model's recipe; ValueError for an unknown model."""
        return lab_recipe(self.name)

    @property
    def folder(self) -> Path:
        """The folder in `data/lab`, else one that is trained here, once."""
        return model_folder(self.name)

    @property
    def vocabulary_size(self) -> int:
        """|V|, without transformers, whose import takes seconds."""
        return json.loads((self.folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]

    def read_tokenizer(self, **flags: Any) -> PreTrainedTokenizerBase:
        """The tokenizer, of a corpus's own class without torch, whose import takes seconds."""
        from transformers import PreTrainedTokenizerFast

        config = json.loads((self.folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        if config["tokenizer_class"] != PreTrainedTokenizerFast.__name__:  # of a model from elsewhere
            return super().read_tokenizer(**flags)
        return PreTrainedTokenizerFast.from_pretrained(**self.arguments, **flags)

    def count_parameters(self, *, embeddings: bool = False) -> int:
        """The number in the model's card; without torch too."""
        return lab_model_card(self.name)["parameters" if embeddings else "non_embedding_parameters"]

    def check(self) -> None:
        """ValueError for an unknown model."""
        lab_recipe(self.name)

    def score(self, texts: Sequence[str], options: PassOptions) -> TokenStats:
        """A pass over the texts, cached; its provenance has the training seed."""
        stats = super().score(texts, options)
        return replace(stats, provenance=stats.provenance | {"seed": self.recipe.seed})

    @property
    def trained_on(self) -> list[str]:
        """The texts that the model was trained on; ValueError for a masked one."""
        recipe = self.recipe
        if isinstance(recipe, Masked):
            raise ValueError(f"{self.name} is a masked model, which writes no texts; name one that does")
        return Lab(recipe.base).trained_on if isinstance(recipe, Unlearning) else texts_and_times(recipe)[0]

    def times_seen(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """How often the model has seen each text in training, (N,); None for a masked or an unlearned model."""
        recipe = self.recipe
        return times_in(recipe, texts) if isinstance(recipe, Seen) else None

    def benchmark(self) -> Benchmark:
        """The members and non-members of a corpus, or of two, each text's package its domain."""
        sides = [(LabCorpus(corpus), role) for corpus, role in sides_of(self.name)]
        languages = sorted({corpus.recipe.language for corpus, _ in sides})
        if len(languages) > 1:
            raise ValueError(f"{self.name}: one corpus is in {' and the other in '.join(languages)}")
        rows = [corpus.rows(role) for corpus, role in sides]
        read = [text for (corpus, _), side_rows in zip(sides, rows, strict=True) for text in corpus.read(side_rows)]
        is_here = np.array([text is not None for text in read])
        texts = tuple(text for text in read if text is not None)
        if languages[0] == "zh":
            remember_words(texts, partial(_words_of, texts))
        revision, labels = self.labels
        packages = [row.package for side_rows in rows for row in side_rows]
        return Benchmark(
            name=self.name,
            texts=texts,
            labels=labels[is_here],
            revision=revision if is_here.all() else f"{revision}, of which {hash_texts(texts)}",
            language=languages[0],
            domains=tuple(package for package, there in zip(packages, is_here, strict=True) if there),
        )

    @property
    def labels(self) -> tuple[str, NDArray[np.int8]]:
        """A hash of all texts of the benchmark, and who is a member, (N,), as the coin dealt them out."""
        revision = "~".join(LabCorpus(corpus).card["content_hash"] for corpus in corpora_of(self.name))
        n_of_side = [len(LabCorpus(corpus).rows(role)) for corpus, role in sides_of(self.name)]
        return revision, np.repeat(np.array([1, 0], np.int8), n_of_side)

    def check_whole(self) -> None:
        """ValueError where a text of the benchmark's corpora can't be read here."""
        for corpus in corpora_of(self.name):
            LabCorpus(corpus).check_whole()

    def texts(self) -> list[str]:
        """The texts of a role, by default the reference ones."""
        corpus, _, role = self.name.partition(":")
        return LabCorpus(corpus).texts(role or "reference")

    def unseen(self) -> list[str]:
        """The same; ValueError for a role that models are trained on."""
        corpus, _, role = self.name.partition(":")
        if role in ("member", "background"):
            raise ValueError(f"{self.name}: the lab's models are trained on these; use {corpus}:reference")
        return self.texts()

    @property
    def frequency(self) -> TokenFrequency | None:
        """The stored counts of the corpus's tokenizer in its reference texts; None without one, or for one role."""
        counts = None if ":" in self.name else LabCorpus(self.name).folder / COUNTS
        return TokenFrequency.load(counts) if counts and counts.is_file() else None

    def counts(self, model: Source) -> TokenFrequency | None:
        """The same for a model with the corpus's tokenizer."""
        frequency = self.frequency
        if frequency is None or len(frequency.counts) != model.vocabulary_size:
            return None
        return frequency if frequency.tokenizer == hash_of_tokenizer(model.name) else None
