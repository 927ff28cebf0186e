"""`mialib lab build`: deals out and trains the lab again, and compares with what is stored in `data/lab`.

`deal` and `train_anew` make a corpus or a model again and compare it with the stored one; `store` puts it in its place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Template
from safetensors.numpy import load_file

from mialib.catalog import stored
from mialib.catalog.lab import CARD, MODEL_CARD, PLACES, TEXTS
from mialib.catalog.models import Scorer
from mialib.detectors import detect
from mialib.metrics import auc
from mialib.store import write_json
from replication.lab.recipes import Unlearning, load_recipes
from replication.lab.source import WEIGHTS, deal_again, lab, lab_model_card, lab_recipe, train_again

# From which a model is another one, and not the same on another processor.
FAR_AUC = 0.02
FAR_COSINE = 0.9
OF_A_RUN = ("device", "seconds", "cpu_seconds")  # on a model's card: they differ each time, and are not stored
NONE = "none of this recipe is stored"


@dataclass(frozen=True)
class Made:
    """A corpus or model that was made again, and how it compares with the stored one."""

    name: str
    folder: Path
    says: str
    is_far: bool = False  # it is not the stored one, and neither versions of packages nor rounding explain that


def deal(name: str) -> Made:
    """Deal out a corpus from the packages that are installed."""
    kept, made = lab().corpus_folder(name), deal_again(name)
    ours, theirs = (_read_json(folder / CARD) for folder in (made, kept))
    says = f"{sum(theirs['roles'].values()):,} texts"
    if made == kept:
        return Made(name, made, f"{says}; {NONE}", is_far=_is_there("corpora", name))
    if not (others := _other_files(made, kept)):
        return Made(name, made, f"{says}, equal")
    if versions := sorted(set(ours["sources"]) - set(theirs["sources"])):
        return Made(name, made, f"other texts, of other versions: {', '.join(versions)}")
    return Made(name, made, f"not as stored, by the same versions: {', '.join(others)}", is_far=True)


def _other_files(made: Path, kept: Path) -> list[str]:
    """The stored files that differ from what was made; of a model's card only what is stored is compared."""

    def content(path: Path) -> Any:
        if not path.is_file():
            return None
        return _stored_card(path) if path.name == MODEL_CARD else path.read_bytes()

    return [file.name for file in sorted(kept.iterdir()) if content(file) != content(made / file.name)]


def _stored_card(path: Path) -> dict[str, Any]:
    """A model's card without what differs in each run."""
    return {key: value for key, value in _read_json(path).items() if key not in OF_A_RUN}


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def train_anew(name: str) -> Made:
    """Train a model on the corpora of the lab, which are the stored ones where they are stored."""
    kept, made = lab().folder(name), train_again(name)
    card = _read_json(made / MODEL_CARD)
    trained = f"{card['parameters']:,} parameters, last loss {card['final_loss_nats']:.3f} nats"
    if made == kept:
        return Made(name, made, f"{trained}; {NONE}", is_far=_is_there("models", name))
    if not (others := _other_files(made, kept)):
        return Made(name, made, f"{trained}; equal bit for bit")
    if beside := [file for file in others if file not in (WEIGHTS, MODEL_CARD)]:
        return Made(name, made, f"{trained}; not as stored: {', '.join(beside)}", is_far=True)
    by_weights, cosine = _weights_apart(made, kept)
    by_loss = abs(card["final_loss_nats"] - lab_model_card(name)["final_loss_nats"])
    by_auc = [auc_apart(benchmark, made, kept) for benchmark in load_recipes().models[name].benchmarks[:1]]
    says = (
        f"{trained}; apart from the stored one: weights by up to {by_weights:.2g} (the cosine of all is {cosine:.4f}), "
        f"last loss by {by_loss:.2g} nats" + "".join(f", AUCs of PPL and Min-K% by up to {x:.2g}" for x in by_auc)
    )
    return Made(name, made, says, is_far=max(by_auc, default=0) > FAR_AUC or cosine < FAR_COSINE)


def _is_there(kind: str, name: str) -> bool:
    """Whether one of this name is stored, which is then of another recipe."""
    return (stored.FOLDER / kind / name.removeprefix("lab/")).is_dir()


def _weights_apart(*folders: Path) -> tuple[float, float]:
    """The largest difference of a weight in two models, and the cosine of all weights of the one and of the other."""
    ours, theirs = (load_file(folder / WEIGHTS) for folder in folders)
    a, b = (np.concatenate([of[key].astype(float).ravel() for key in sorted(theirs)]) for of in (ours, theirs))
    return float(np.abs(a - b).max()), float(a @ b / np.sqrt((a @ a) * (b @ b)))


def auc_apart(benchmark: str, *folders: Path) -> float:
    """The largest difference of an AUC of PPL or Min-K% Prob under two models."""
    texts = lab().benchmark(benchmark)
    stats = [Scorer(str(folder)).score(texts.texts, progress=False) for folder in folders]
    aucs = [[auc(texts.labels, detect(name, of_model)) for name in ("ppl", "min_k")] for of_model in stats]
    return float(np.abs(np.diff(aucs, axis=0)).max())


def side_by_side(make: Callable[[str], Made], names: Sequence[str], n_cores: int) -> Iterator[Made]:
    """What `make` makes of each name, as many at a time as there are cores, in the order of the names."""
    n_workers = min(n_cores, len(names))
    if n_workers < 2:
        yield from map(make, names)
        return
    with ProcessPoolExecutor(n_workers, get_context("spawn")) as pool:
        yield from pool.map(make, names)


def in_order(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Corpora and models in groups, each with its kind; none is made from another of its group or of a later one."""
    recipes = load_recipes()
    corpora = [name for name in names if name in recipes.corpora]
    models = [name for name in names if name not in recipes.corpora]
    later = {name for name in corpora if recipes.corpora[name].apart_from}
    later |= {name for name in models if isinstance(lab_recipe(name), Unlearning)}
    groups = [
        (kind, [name for name in of_kind if (name in later) == is_later])
        for kind, of_kind in (("corpora", corpora), ("models", models))
        for is_later in (False, True)
    ]
    return [(kind, group) for kind, group in groups if group]


# --- storing ---


def store(kind: str, made: Iterable[Made]) -> None:
    """Write corpora or models to `data/lab` in place of what is there; `write_sums` comes last."""
    for one in made:
        to = stored.FOLDER / kind / one.name.removeprefix("lab/")
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        is_elsewhere = (one.folder / PLACES).is_file()  # then texts of others are not committed
        for file in sorted(one.folder.iterdir()):
            if not (is_elsewhere and file.name == TEXTS):
                shutil.copyfile(file, to / file.name)
        if kind == "models":
            write_json(to / MODEL_CARD, _stored_card(to / MODEL_CARD))


def write_sums() -> None:
    """Write the checksums of all files of `data/lab`, and the data card."""
    corpora, models = (
        [_read_json(card) for card in sorted(stored.FOLDER.glob(cards))]
        for cards in (f"corpora/*/{CARD}", f"models/*/{MODEL_CARD}")
    )
    (stored.FOLDER / "README.md").write_text(data_card(corpora, models), encoding="utf-8")
    files = sorted(path for path in stored.FOLDER.rglob("*") if path.is_file() and path.name != stored.SUMS)
    lines = [f"{stored.checksum_of(path)}  {path.relative_to(stored.FOLDER).as_posix()}\n" for path in files]
    (stored.FOLDER / stored.SUMS).write_text("".join(lines), encoding="utf-8")


def data_card(corpora: Sequence[dict[str, Any]], models: Sequence[dict[str, Any]]) -> str:
    """The card of the stored lab, as Markdown, from the cards of its corpora and models."""
    sources = sorted({source for card in corpora for source in card["sources"]})
    made_with = sorted({f"torch {card['torch']}, transformers {card['transformers']}" for card in models})
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"), trim_blocks=True)
    packages = {source: _licence(source) for source in sources}
    return template.render(corpora=corpora, models=models, packages=packages, made_with=", ".join(made_with)) + "\n"


def _licence(source: str) -> str:
    about = metadata(source.partition("==")[0])
    classifiers = [line for line in about.get_all("Classifier") or () if line.startswith("License")]
    classified = ", ".join(line.rpartition(" :: ")[2] for line in classifiers)
    return about["License-Expression"] or classified or (about["License"] or "see the package").splitlines()[0]
