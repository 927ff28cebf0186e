"""`mialib lab build`: deals out and trains the lab again, and compares it with `data/lab`.

`deal` and `train_anew` make and compare a corpus or a model; `store` writes it to `data/lab`.
"""

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

from mialib.catalog.benchmarks import load_benchmark
from mialib.catalog.loading import Scorer
from mialib.detectors import detect
from mialib.metrics import auc
from mialib.store import checksum_of, write_json
from replication.lab import source
from replication.lab.corpora import CARD, PLACES, TEXTS
from replication.lab.recipes import Unlearning, load_recipes
from replication.lab.source import MODEL_CARD, WEIGHTS, LabCorpus, deal_again, lab_recipe, model_folder, train_again

# From which a model is another one, and not the same on another processor.
FAR_AUC = 0.02
FAR_COSINE = 0.9
OF_A_RUN = ("device", "seconds", "cpu_seconds")  # on a model's card: they differ each time, and are not stored
SUMS = "SHA256SUMS"  # `sha256sum --check` compares the files with it


@dataclass(frozen=True)
class Made:
    """A corpus or model that was made again, and how it compares with that of `data/lab`."""

    name: str
    folder: Path
    says: str
    is_far: bool = False  # they differ, and neither versions of packages nor rounding explain that


def deal(name: str) -> Made:
    """Deal out a corpus from the packages that are installed."""
    original, rebuild = LabCorpus(name).folder, deal_again(name)
    ours, theirs = (_read_json(folder / CARD) for folder in (rebuild, original))
    says = f"{sum(theirs['roles'].values()):,} texts"
    if rebuild == original:
        return _not_stored("corpora", name, rebuild, says)
    if not (names := _files_that_differ(rebuild, original)):
        return Made(name, rebuild, f"{says}, equal")
    if versions := sorted(set(ours["sources"]) - set(theirs["sources"])):
        return Made(name, rebuild, f"other texts, of other versions: {', '.join(versions)}")
    return Made(name, rebuild, f"not as stored, by the same versions: {', '.join(names)}", is_far=True)


def _not_stored(kind: str, name: str, rebuild: Path, says: str) -> Made:
    """`data/lab` has nothing of this recipe; far if it has this name by another recipe."""
    is_other = (source.STORED / kind / name.removeprefix("lab/")).is_dir()
    return Made(name, rebuild, f"{says}; none of this recipe is stored", is_far=is_other)


def _files_that_differ(rebuild: Path, original: Path) -> list[str]:
    """The names of stored files whose content differs; a model's card is compared without what differs in each run."""

    def content(path: Path) -> Any:
        if not path.is_file():
            return None
        return _stored_card(path) if path.name == MODEL_CARD else path.read_bytes()

    return [file.name for file in sorted(original.iterdir()) if content(file) != content(rebuild / file.name)]


def _stored_card(path: Path) -> dict[str, Any]:
    """A model's card without what differs in each run."""
    return {key: value for key, value in _read_json(path).items() if key not in OF_A_RUN}


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def train_anew(name: str) -> Made:
    """Train a model on the corpora of the lab, those of `data/lab` where their recipes are the profile's."""
    original, rebuild = model_folder(name), train_again(name)
    card = _read_json(rebuild / MODEL_CARD)
    summary = f"{card['parameters']:,} parameters, last loss {card['final_loss_nats']:.3f} nats"
    if rebuild == original:
        return _not_stored("models", name, rebuild, summary)
    if not (names := _files_that_differ(rebuild, original)):
        return Made(name, rebuild, f"{summary}; equal bit for bit")
    if odd_files := [file for file in names if file not in (WEIGHTS, MODEL_CARD)]:
        return Made(name, rebuild, f"{summary}; not as stored: {', '.join(odd_files)}", is_far=True)
    by_weights, cosine = _weights_apart(rebuild, original)
    by_loss = abs(card["final_loss_nats"] - _read_json(original / MODEL_CARD)["final_loss_nats"])
    by_auc = [auc_apart(benchmark, rebuild, original) for benchmark in load_recipes().models[name].benchmarks[:1]]
    says = (
        f"{summary}; apart from the stored one: weights by up to {by_weights:.2g} (the cosine of all is {cosine:.4f}), "
        f"last loss by {by_loss:.2g} nats" + "".join(f", AUCs of PPL and Min-K% by up to {x:.2g}" for x in by_auc)
    )
    return Made(name, rebuild, says, is_far=max(by_auc, default=0) > FAR_AUC or cosine < FAR_COSINE)


def _weights_apart(*folders: Path) -> tuple[float, float]:
    """The largest difference of a weight in two models, and the cosine of their weights."""
    ours, theirs = (load_file(folder / WEIGHTS) for folder in folders)
    a, b = (np.concatenate([w[key].astype(float).ravel() for key in sorted(theirs)]) for w in (ours, theirs))
    return float(np.abs(a - b).max()), float(a @ b / np.sqrt((a @ a) * (b @ b)))


def auc_apart(benchmark: str, *folders: Path) -> float:
    """The largest difference of an AUC of PPL or Min-K% Prob under two models."""
    loaded = load_benchmark(benchmark)
    stats = [Scorer(str(folder)).score(loaded.texts, progress=False) for folder in folders]
    aucs = [[auc(loaded.labels, detect(name, model_stats)) for name in ("ppl", "min_k")] for model_stats in stats]
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


def store(kind: str, made: Iterable[Made]) -> None:
    """Write corpora or models to `data/lab` in place of what is there; `write_sums` comes last."""
    for one in made:
        to = source.STORED / kind / one.name.removeprefix("lab/")
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
        [_read_json(card) for card in sorted(source.STORED.glob(f"{kind}/*/{name}"))]
        for kind, name in source.CARDS.items()
    )
    (source.STORED / "README.md").write_text(data_card(corpora, models), encoding="utf-8")
    files = sorted(path for path in source.STORED.rglob("*") if path.is_file() and path.name != SUMS)
    lines = [f"{checksum_of(path)}  {path.relative_to(source.STORED).as_posix()}\n" for path in files]
    (source.STORED / SUMS).write_text("".join(lines), encoding="utf-8")


def data_card(corpora: Sequence[dict[str, Any]], models: Sequence[dict[str, Any]]) -> str:
    """The card of the stored lab, as Markdown, from the cards of its corpora and models."""
    packages = sorted({package for card in corpora for package in card["sources"]})
    made_with = sorted({f"torch {card['torch']}, transformers {card['transformers']}" for card in models})
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"), trim_blocks=True)
    licences = {package: _licence(package) for package in packages}
    return template.render(corpora=corpora, models=models, packages=licences, made_with=", ".join(made_with)) + "\n"


def _licence(package: str) -> str:
    about = metadata(package.partition("==")[0]).json
    classifiers = [line for line in about.get("classifier", ()) if line.startswith("License")]
    classified = ", ".join(line.rpartition(" :: ")[2] for line in classifiers)
    said = about.get("license_expression") or classified or about.get("license") or "see the package"
    return str(said).splitlines()[0]
