"""The lab's models: a GPT-NeoX trained from scratch on a corpus's members and background, saved like any other model.

`lab/en-25k` is a model of the profile, `lab/en-25k@1` the same trained from seed 1. Besides there is one that was made
to forget some members, and a masked model, trained on background alone, which proposes words for the Neighbor attack.

The lab's own models are stored in `data/lab`. One of another recipe or seed is trained where it is asked for, once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mialib.lab.corpora import check_whole, lab_card, lab_corpus, lab_rows, lab_texts, stored_corpus, texts_of
from mialib.lab.dealing import END_OF_TEXT, load_tokenizer
from mialib.lab.recipes import Masked, Training, Unlearning, is_lab, load_recipes
from mialib.lab.stored import stored
from mialib.shared.kept import Format, Parts, once, remove
from mialib.store import hash_files, hash_of, home, version, write_json
from mialib.versions import versions_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

CARD, WEIGHTS = "lab.json", "model.safetensors"


def lab_model(name: str) -> Path:
    """The folder of a lab model: the stored one, else one that is trained here, once."""
    return _stored_model(name) or train_again(name)


def _stored_model(name: str) -> Path | None:
    """The folder of a model that is stored as its recipe says, and trained on corpora that are stored as theirs say."""
    recipe = lab_recipe(name)
    if isinstance(recipe, Unlearning) and not _stored_model(base_of(name, recipe)):
        return None
    if not all(map(stored_corpus, corpora_of_recipe(recipe))):
        return None
    return stored("models", name.partition("@")[0], CARD, recipe.model_dump(mode="json"))


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

    return once(folder, make)


def _key(name: str) -> str:
    """What determines a model: recipe, texts in their roles, code and libraries.

    Corpora count by their texts: another way to gather the same ones trains nothing anew.
    """
    recipe = lab_recipe(name)
    made_of: list[Any] = []
    if isinstance(recipe, Unlearning):
        made_of.append(hash_files([lab_model(base_of(name, recipe)) / WEIGHTS]))
    for corpus in corpora_of_recipe(recipe) or [lab_model_corpus(name)]:
        card = lab_card(corpus)
        made_of.append([card["content_hash"], card["roles"], card["tokenizer_hash"]])
    libraries = [version(name) for name in ("torch", "transformers", "tokenizers")]
    return hash_of([recipe.model_dump(), made_of, libraries, versions_of("training")])


def _make(name: str, folder: Path, kept: Path, device: str) -> None:
    import torch

    from mialib.lab import training

    def write(state: Any, path: Path) -> None:
        torch.save(state, buffer := BytesIO())  # by itself torch says of a full disk that a writer failed
        path.write_bytes(buffer.getbuffer())

    for corpus in corpora_of_recipe(lab_recipe(name)) or [lab_model_corpus(name)]:
        check_whole(corpus)
    recipe, parts = lab_recipe(name), Parts(kept, Format(".pt", write, partial(torch.load, weights_only=True)))
    if isinstance(recipe, Unlearning):
        corpus = lab_model_corpus(name)
        members, background, non_members = (lab_texts(corpus, r) for r in ("member", "background", "non_member"))
        retained = members[recipe.texts :] + background
        base = lab_model(base_of(name, recipe))
        card = training.unlearn(name, recipe, base, members[: recipe.texts], retained, non_members, folder)
    elif isinstance(recipe, Masked):
        texts = lab_texts(recipe.corpus, "background")
        card = training.train_masked(name, recipe, masked_tokenizer(recipe), texts, folder, parts)
    else:
        given = lab_tokenizer(recipe.corpus), *trained_on(recipe), folder, device
        card = training.train(name, recipe, *given, parts=parts)
    write_json(folder / CARD, card)
    remove(kept)


def lab_tokenizer(corpus: str) -> PreTrainedTokenizerBase:
    """A corpus's tokenizer."""
    return load_tokenizer(lab_corpus(corpus))


def masked_tokenizer(recipe: Masked) -> PreTrainedTokenizerBase:
    """The same with a start and a mask token added; it pads with the end of text."""
    special = {"pad_token": END_OF_TEXT, "cls_token": "<s>", "mask_token": "<mask>"}
    return load_tokenizer(lab_corpus(recipe.corpus), model_max_length=recipe.context_tokens, **special)


def lab_recipe(name: str) -> Training | Unlearning | Masked:
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
    return {name: _recipes(name) for name in sorted(set(models)) if is_lab(name)}


def _recipes(name: str) -> list[dict[str, Any]]:
    recipe = lab_recipe(name)
    return [recipe.model_dump(), *(_recipes(recipe.base) if isinstance(recipe, Unlearning) else [])]


def corpora_of_recipe(recipe: Training | Masked | Unlearning) -> list[str]:
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


def member_times(recipe: Training, n_members: int) -> list[int]:
    """How often each member is seen: the same for all, or, with `member_repeats`, by equal consecutive groups."""
    return by_group(recipe.member_repeats or (recipe.member_times,), n_members)


def trained_on(recipe: Training) -> tuple[list[str], list[int]]:
    """The texts that a model is trained on, and how often it sees each; one seen 0 times is left out."""
    members, background = (lab_rows(recipe.corpus, role) for role in ("member", "background"))
    parts = [
        (recipe.corpus, members, member_times(recipe, len(members))),
        (recipe.corpus, background, [recipe.background_times] * len(background)),
    ]
    for corpus, times in recipe.injected.items():
        rows = lab_rows(corpus, "member")
        parts.append((corpus, rows, [times] * len(rows)))
    pairs = [pair for corpus, rows, times in parts for pair in zip(texts_of(corpus, rows), times, strict=True)]
    seen = [(text, n) for text, n in pairs if text is not None and n]
    return [text for text, _ in seen], [n for _, n in seen]


def forgotten_texts(name: str) -> list[str]:
    """The texts that an unlearned model was made to forget; none of any other model."""
    recipe = lab_recipe(name)
    if not isinstance(recipe, Unlearning):
        return []
    corpus = lab_model_corpus(name)
    found = texts_of(corpus, lab_rows(corpus, "member")[: recipe.texts])
    return [text for text in found if text is not None]


def times_seen(recipe: Training, texts: Sequence[str]) -> NDArray[np.int64]:
    """How often a training sees each text, (N,)."""
    times = dict(zip(*trained_on(recipe), strict=True))
    return np.array([times.get(text, 0) for text in texts])


def by_group(values: Sequence[int], n: int) -> list[int]:
    """The value of each of `n` things that stand in as many equal consecutive groups as there are values."""
    return [values[i * len(values) // n] for i in range(n)]


def lab_model_card(name: str) -> dict[str, Any]:
    """How a lab model was made: recipe, parameters, losses, versions; where it was trained here, the seconds."""
    return json.loads((lab_model(name) / CARD).read_text())
