"""The lab's models: a GPT-NeoX trained from scratch on a corpus's members and background, saved like any other model.

`lab/en-25k` is a model of the profile, `lab/en-25k@1` the same trained from seed 1. Besides there is one that was made
to forget some members, and a masked model, trained on background alone, which proposes words for the Neighbor attack.
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

from mialib.lab.corpora import END_OF_TEXT, lab_card, lab_corpus, lab_texts
from mialib.lab.recipes import Masked, Training, Unlearning, load_recipes
from mialib.shared.kept import Format, Parts, once, remove
from mialib.store import code_hash, hash_of, home, version, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

CARD = "lab.json"


def lab_model(name: str, device: str = "cpu") -> Path:
    """The folder of a lab model, trained first where it is not there.

    It is trained on the CPU, also where there is a GPU, so that a recipe gives the same model there too; on another
    `device` by `mialib record-lab` alone.
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
    made_of = [_key(base_of(name, recipe))] if isinstance(recipe, Unlearning) else []
    for corpus in corpora_of_recipe(recipe) or [lab_model_corpus(name)]:
        card = lab_card(corpus)
        made_of.append([card["content_hash"], card["roles"], card["tokenizer_hash"]])
    code = [code_hash("lab.training"), version("torch"), version("transformers"), version("tokenizers")]
    return hash_of([recipe.model_dump(), made_of, code])


def _make(name: str, folder: Path, kept: Path, device: str) -> None:
    import torch

    from mialib.lab import training

    def write(state: Any, path: Path) -> None:
        torch.save(state, buffer := BytesIO())  # by itself torch says of a full disk that a writer failed
        path.write_bytes(buffer.getbuffer())

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
    """A corpus's tokenizer; each text starts after the end of another, as in Pythia's training."""
    from transformers import PreTrainedTokenizerFast

    file = str(lab_corpus(corpus) / "tokenizer.json")
    return PreTrainedTokenizerFast(tokenizer_file=file, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT)


def masked_tokenizer(recipe: Masked) -> PreTrainedTokenizerBase:
    """The same with a start and a mask token added; it pads with the end of text."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(lab_corpus(recipe.corpus) / "tokenizer.json"),
        model_max_length=recipe.context_tokens,
        pad_token=END_OF_TEXT,
        cls_token="<s>",
        mask_token="<mask>",
    )


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
    return {name: _recipes(name) for name in sorted(set(models)) if name.startswith("lab/")}


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
    members, background = (lab_texts(recipe.corpus, role) for role in ("member", "background"))
    texts = [*members, *background]
    times = [*member_times(recipe, len(members)), *[recipe.background_times] * len(background)]
    for corpus, n_times in recipe.injected.items():
        injected = lab_texts(corpus, "member")
        texts, times = texts + injected, times + [n_times] * len(injected)
    seen = [(text, n) for text, n in zip(texts, times, strict=True) if n]
    return [text for text, _ in seen], [n for _, n in seen]


def times_seen(recipe: Training, texts: Sequence[str]) -> NDArray[np.int64]:
    """How often a training sees each text, (N,)."""
    times = dict(zip(*trained_on(recipe), strict=True))
    return np.array([times.get(text, 0) for text in texts])


def by_group(values: Sequence[int], n: int) -> list[int]:
    """The value of each of `n` things that stand in as many equal consecutive groups as there are values."""
    return [values[i * len(values) // n] for i in range(n)]


def lab_model_card(name: str) -> dict[str, Any]:
    """How a lab model was made: recipe, parameters, losses, seconds, versions."""
    return json.loads((lab_model(name) / CARD).read_text())
