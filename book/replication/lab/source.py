"""The lab of a profile: what is not stored as its recipe says is made where it is asked for, once.

`lab/en-25k` is a model of the profile (`data/profiles/lab.yml`), `lab/en-25k@1` the same trained from seed 1.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mialib.cache import Checkpoints, Format, write_once
from mialib.catalog.lab import CARD, MODEL_CARD, ROLES, Lab, by_group, corpora_of
from mialib.catalog.models import load_model, model_revision
from mialib.catalog.sources import source_of
from mialib.catalog.stored import stored
from mialib.store import hash_files, hash_of, home, version, write_json
from mialib.versions import versions_of
from replication.lab import dealing
from replication.lab.dealing import END_OF_TEXT, corpus_tokenizer, overlaps, sources_of
from replication.lab.recipes import AnyRecipe, Corpus, Masked, Seen, TrainingOn, Unlearning, is_lab, load_recipes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"


class ProfileLab(Lab):
    """The lab as the profile's recipes say."""

    def folder(self, model: str) -> Path:
        """The stored model, else one that is trained here, once."""
        if _is_stored_alone("models", model):
            return super().folder(model)
        return _stored_model(model) or train_again(model)

    def corpus_folder(self, corpus: str) -> Path:
        """The stored corpus, else one that is dealt out here, once."""
        if _is_stored_alone("corpora", corpus):
            return super().corpus_folder(corpus)
        return stored_corpus(corpus) or deal_again(corpus)

    def recipe(self, model: str) -> dict[str, Any]:
        """The profile's; nothing is trained for it."""
        if _is_stored_alone("models", model):
            return super().recipe(model)
        return lab_recipe(model).model_dump(mode="json")


def _is_stored_alone(kind: str, name: str) -> bool:
    """Whether a corpus or model is stored and the profile names none so: every profile may use the stored lab."""
    known = load_recipes().models if kind == "models" else load_recipes().corpora
    return name.partition("@")[0] not in known and stored(kind, name) is not None


def lab() -> Lab:
    """The lab, as names that begin with "lab/" find it."""
    found = source_of("lab/")
    assert isinstance(found, Lab)
    return found


# --- corpora ---


def stored_corpus(name: str) -> Path | None:
    """The folder of a corpus that is stored as its recipe says, and so is the one that it is apart from."""
    corpus = known_corpus(name)
    if corpus.apart_from and not stored_corpus(corpus.apart_from):
        return None
    return _as_its_recipe(stored("corpora", name), CARD, corpus)


def _as_its_recipe(folder: Path | None, card: str, recipe: Corpus | AnyRecipe) -> Path | None:
    if folder and json.loads((folder / card).read_text(encoding="utf-8"))["recipe"] == recipe.model_dump(mode="json"):
        return folder
    return None


def deal_again(name: str) -> Path:
    """The folder of a lab corpus that was dealt out on this machine, from the packages that are installed."""
    corpus = known_corpus(name)
    made_by: dict[str, Any] = {"sources": sources_of(corpus), "tokenizers": version("tokenizers")}
    made_by |= versions_of("gathering", "dealing")
    if corpus.apart_from:
        made_by["apart_from"] = lab().card(corpus.apart_from)["content_hash"]
    folder = home() / "lab" / "corpora" / f"{name.removeprefix('lab/')}-{hash_of([corpus.model_dump(), made_by])}"

    def make(to: Path) -> None:
        logger.warning("%s: gathering texts first, once", name)
        roles = [role for role in ROLES if role != "reference"] if corpus.apart_from else []
        dealing.make_corpus(name, corpus, [t for role in roles for t in lab().texts(corpus.apart_from, role)], to)

    return write_once(folder, make)


def known_corpus(name: str) -> Corpus:
    """A corpus's recipe; ValueError for a name that the profile does not have."""
    corpora = load_recipes().corpora
    if name not in corpora:
        raise ValueError(f"unknown lab corpus {name!r}; known: {', '.join(corpora) or 'none in this profile'}")
    return corpora[name]


def training_overlaps(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The share of each text's 7-grams that a lab benchmark's models were trained on, (N,); None for any other."""
    if not is_lab(name):
        return None
    corpus = corpora_of(name)[0]
    seen = [text for role in ("member", "background") for text in lab().texts(corpus, role)]
    return overlaps(texts, seen, known_corpus(corpus).language)


# --- models ---


def _stored_model(name: str) -> Path | None:
    """The folder of a model that is stored as its recipe says, and trained on corpora that are stored as theirs say."""
    recipe = lab_recipe(name)
    if isinstance(recipe, Unlearning) and not _stored_model(base_of(name, recipe)):
        return None
    if not all(map(stored_corpus, corpora_of_recipe(recipe))):
        return None
    return _as_its_recipe(stored("models", name.partition("@")[0]), MODEL_CARD, recipe)


def train_again(name: str, device: str = "cpu") -> Path:
    """The folder of a lab model that was trained on this machine.

    It is trained on the CPU, also where there is a GPU, so that a recipe gives the same model there too; on another
    `device` by `mialib record-lab` alone. ValueError where not all texts of its corpora can be read.
    """
    where = "" if device == "cpu" else f"-{device.replace(':', '-')}"
    folder = home() / "lab" / "models" / f"{name.removeprefix('lab/')}-{_key(name)}{where}"

    def make(to: Path) -> None:
        from safetensors import SafetensorError
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of its own, which draws on the output
        logger.warning("%s: training it first, once", name)  # a warning, so that a notebook shows it too
        try:
            _make(name, to, folder.with_name(f"{folder.name}.parts"), device)
        except Exception as error:
            if type(error) not in (SafetensorError, Exception):  # of full disks safetensors and tokenizers raise these
                raise
            raise OSError(f"{folder} can't be made: {error}") from None

    return write_once(folder, make)


def _key(name: str) -> str:
    """What determines a model: recipe, its corpora's texts in their roles, versions of training and libraries."""
    recipe = lab_recipe(name)
    is_unlearned = isinstance(recipe, Unlearning)
    made_of: list[Any] = [hash_files([lab().folder(base_of(name, recipe)) / WEIGHTS])] if is_unlearned else []
    made_of += [model_revision(recipe.from_model)] if isinstance(recipe, TrainingOn) else []
    for corpus in corpora_of_recipe(recipe) or [lab_model_corpus(name)]:
        card = lab().card(corpus)
        made_of.append([card["content_hash"], card["roles"], card["tokenizer_hash"]])
    libraries = [version(name) for name in ("torch", "transformers", "tokenizers")]
    return hash_of([recipe.model_dump(), made_of, libraries, versions_of("training")])


def _make(name: str, folder: Path, kept: Path, device: str) -> None:
    import torch

    from replication.lab import training

    def write(state: Any, path: Path) -> None:
        torch.save(state, buffer := BytesIO())  # by itself torch says of a full disk that a writer failed
        path.write_bytes(buffer.getbuffer())

    recipe, parts = lab_recipe(name), Checkpoints(kept, Format(".pt", write, partial(torch.load, weights_only=True)))
    for corpus in corpora_of_recipe(recipe) or [lab_model_corpus(name)]:
        lab().check_whole(corpus)
    if isinstance(recipe, Unlearning):
        corpus = lab_model_corpus(name)
        members, background, non_members = (lab().texts(corpus, r) for r in ("member", "background", "non_member"))
        retained = members[recipe.texts :] + background
        base = lab().folder(base_of(name, recipe))
        card = training.unlearn(name, recipe, base, members[: recipe.texts], retained, non_members, folder)
    elif isinstance(recipe, Masked):
        # It pads with the end of text.
        special = {"pad_token": END_OF_TEXT, "cls_token": "<s>", "mask_token": "<mask>"}
        corpus = lab().corpus_folder(recipe.corpus)
        tokenizer = corpus_tokenizer(corpus, model_max_length=recipe.context_tokens, **special)
        texts = lab().texts(recipe.corpus, "background")
        card = training.train_masked(name, recipe, tokenizer, texts, folder, parts)
    else:
        texts, times = lab().texts_and_times(recipe.model_dump())
        is_on = isinstance(recipe, TrainingOn)
        start = load_model(recipe.from_model, device=device, dtype="float32") if is_on else lab_tokenizer(recipe.corpus)
        card = training.train(name, recipe, start, texts, times, folder, device, parts)
    write_json(folder / MODEL_CARD, card)
    shutil.rmtree(kept, ignore_errors=True)


def lab_tokenizer(corpus: str) -> PreTrainedTokenizerBase:
    """A corpus's tokenizer."""
    return corpus_tokenizer(lab().corpus_folder(corpus))


def lab_recipe(name: str) -> AnyRecipe:
    """How a lab model is made, with the seed that its name asks for."""
    plain, _, seed = name.partition("@")
    models = load_recipes().models
    model = models.get(plain)
    if model is None or model.recipe is None or (seed and not seed.isdecimal()):
        known = ", ".join(name for name, m in models.items() if m.recipe) or "none in this profile"
        raise ValueError(f"unknown lab model {name!r}; known: {known} (with another seed: NAME@1)")
    return model.recipe.model_copy(update={"seed": int(seed)}) if seed else model.recipe


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
    if isinstance(recipe, Masked):
        return []
    return [*([recipe.corpus] if recipe.member_times or recipe.member_repeats else []), *recipe.injected]


def member_times(recipe: Seen, n_members: int) -> list[int]:
    """How often each member is seen: the same for all, or, with `member_repeats`, by equal consecutive groups."""
    return by_group(recipe.member_repeats or (recipe.member_times,), n_members)


def forgotten_texts(name: str) -> list[str]:
    """The texts that an unlearned model was made to forget; none of any other model."""
    recipe, corpus = lab_recipe(name), lab_model_corpus(name)
    if not isinstance(recipe, Unlearning):
        return []
    found = lab().read(corpus, lab().rows(corpus, "member")[: recipe.texts])
    return [text for text in found if text is not None]


def lab_model_card(name: str) -> dict[str, Any]:
    """How a lab model was made: recipe, parameters, losses, versions; where it was trained here, the seconds."""
    return json.loads((lab().folder(name) / MODEL_CARD).read_text())
