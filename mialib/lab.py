"""The lab: models whose training set is known, because a coin decided it.

Corpus   real or generated texts, shuffled with a seed and dealt out: members and background are trained on,
         non-members and reference texts are not. Members and non-members are one distribution; only the coin tells
         them apart.
Model    a GPT-NeoX trained from scratch on members and background, saved like any Hugging Face model; or a masked
         model, trained on background alone, which proposes words for the Neighbor attack.

The texts are docstrings, code, generated patents, questions, or those of any file.

Names: `lab/en` is a corpus and, as a benchmark, its members and non-members (`lab/en~lab/elsewhere`: members of one
corpus against non-members of another); `lab/en-25k` is a model. Recipes stand in the profile
(`data/profiles/lab.yml`). What is asked for and not there is made, once, under a lock.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mialib.benchmarks import DOMAIN_COLUMNS, Benchmark, cut_to_words, load_texts, read_rows, words
from mialib.config import Corpus, Masked, Training, Unlearning, load_profile
from mialib.docstrings import Docstring, drop_near_duplicates, is_later, ngrams, read_code, read_docstrings
from mialib.questions import choice_questions, context_questions
from mialib.store import ROOT, atomic_path, code_hash, hash_files, hash_of, hash_texts, home, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

ROLES = ("member", "non_member", "background", "reference")
END_OF_TEXT = "<|endoftext|>"  # start token of every text, as in Pythia
# The module that each source of texts lives in.
SOURCES = {
    "docstrings": "docstrings",
    "code": "docstrings",
    "patents": "patents",
    "context_questions": "questions",
    "choice_questions": "questions",
    "file": "benchmarks",
}
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
}  # where a package's name on the index is another than at import


# --- corpora ---------------------------------------------------------------------------------------------------------


def lab_corpus(name: str) -> Path:
    """The folder of a lab corpus (texts.parquet, tokenizer.json, card.json), made first where it is not there."""
    corpus = _known_corpus(name)
    folder = home() / "lab" / "corpora" / name.removeprefix("lab/")
    made_by = corpus_made_by(corpus)
    key = hash_of([corpus.model_dump(), made_by])
    return _made_once(folder, "card.json", key, lambda target: _make_corpus(name, corpus, made_by["sources"], target))


def _known_corpus(name: str) -> Corpus:
    corpora = load_profile().corpora
    if name not in corpora:
        raise ValueError(f"unknown lab corpus {name!r}; known: {', '.join(corpora) or 'none in this profile'}")
    return corpora[name]


def corpus_made_by(corpus: Corpus) -> dict[str, Any]:
    """What else determines a corpus: the versions of the packages that its texts are from, or its file, and the code.

    FileNotFoundError where the file is not there.
    """
    if corpus.source == "file":
        sources = [f"{_file(corpus).name} {hash_files([_file(corpus)])}"]
    else:
        distributions = [DISTRIBUTIONS.get(package, package) for package in corpus.packages or ("jieba",)]
        sources = [f"{distribution}=={version(distribution)}" for distribution in distributions]
    made_by = {
        "sources": sources,
        "code": code_hash(SOURCES[corpus.source], "docstrings", "lab"),
        "tokenizers": version("tokenizers"),
    }
    if corpus.apart_from:
        other = _known_corpus(corpus.apart_from)
        made_by["apart_from"] = hash_of([other.model_dump(), corpus_made_by(other)])
    return made_by


def _file(corpus: Corpus) -> Path:
    path = ROOT / corpus.path
    if not path.is_file():
        raise FileNotFoundError(f"{path}, which a corpus of the profile is read from, does not exist; put it there")
    return path


def model_made_by() -> dict[str, str]:
    """What else determines a lab model: the code that trains it, and the libraries."""
    return {
        "code": code_hash("training", "batches"),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def lab_texts(name: str, role: str) -> list[str]:
    """The texts of a lab corpus that have a role: member, non_member, background or reference."""
    return [row["text"] for row in _rows(name, role)]


def _rows(name: str, role: str) -> list[dict[str, str]]:
    """The texts of a lab corpus that have a role, each with its package."""
    import pyarrow.parquet as pq

    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    return pq.read_table(lab_corpus(name) / "texts.parquet", filters=[("role", "==", role)]).to_pylist()


def lab_benchmark(name: str) -> Benchmark:
    """The members and non-members of a lab corpus, each text's package its domain.

    `lab/en~lab/elsewhere` takes the members of one corpus and the non-members of another, and `:role` any other role:
    `lab/en:non_member~lab/elsewhere` calls texts members that no model has seen.
    """
    sides = _sides(name)
    corpora = [corpus for corpus, _ in sides]
    languages = {_known_corpus(corpus).language for corpus in corpora}
    if len(languages) > 1:
        raise ValueError(f"{name}: one corpus is in {' and the other in '.join(sorted(languages))}")
    rows = [_rows(corpus, role) for corpus, role in sides]
    hashes = [lab_card(corpus)["content_hash"] for corpus in dict.fromkeys(corpora)]
    return Benchmark(
        name=name,
        texts=tuple(row["text"] for of_side in rows for row in of_side),
        labels=np.repeat(np.array([1, 0], np.int8), [len(of_side) for of_side in rows]),
        revision="~".join(hashes),
        language=languages.pop(),
        domains=tuple(row["package"] for of_side in rows for row in of_side),
    )


def corpora_of(benchmark: str) -> list[str]:
    """The lab corpora that a lab benchmark's texts are from."""
    return list(dict.fromkeys(corpus for corpus, _ in _sides(benchmark)))


def _sides(benchmark: str) -> list[tuple[str, str]]:
    """Corpus and role of the texts that a lab benchmark calls members, and of those that it calls non-members."""
    first, _, second = benchmark.partition("~")
    sides = [
        (corpus, given or usual)
        for part, usual in ((first, "member"), (second or first, "non_member"))
        for corpus, _, given in [part.partition(":")]
    ]
    if len(set(sides)) < 2:
        raise ValueError(f"benchmark {benchmark!r} calls the same texts members and non-members")
    return sides


def training_overlaps(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The share of each text's 7-grams of words that models of a lab benchmark's first corpus were trained on, (N,).

    None for a benchmark that is not the lab's: what its models were trained on is not known.
    """
    if not name.startswith("lab/"):
        return None
    corpus = corpora_of(name)[0]
    seen = [text for role in ("member", "background") for text in lab_texts(corpus, role)]
    return overlaps(texts, seen, _known_corpus(corpus).language)


def lab_card(name: str) -> dict[str, Any]:
    """What a lab corpus is made of: recipe, source versions, counts by role and package, content hash."""
    return json.loads((lab_corpus(name) / "card.json").read_text())


def _make_corpus(name: str, corpus: Corpus, sources: list[str], folder: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    logger.info("%s: gathering texts", name)
    texts, packages, n_dropped = _gather(corpus)
    dealt = (corpus.members, corpus.non_members, corpus.background)
    n_needed = sum(dealt) + corpus.reference
    if len(texts) < n_needed:
        raise ValueError(f"{name}: {len(texts)} distinct texts of {corpus.words} words, but {n_needed} are asked for")
    order = np.random.default_rng(corpus.seed).permutation(len(texts))
    roles = np.repeat(ROLES, [*dealt, len(texts) - sum(dealt) if corpus.reference else 0])
    rows = []
    for i, role in zip(order, roles.tolist(), strict=False):
        text = texts[i] if role == "reference" else cut_to_words(texts[i], corpus.words, corpus.language)
        rows.append({"role": role, "package": packages[i], "text": text})
    pq.write_table(pa.Table.from_pylist(rows), folder / "texts.parquet", compression="zstd")

    by_role = {role: [row["text"] for row in rows if row["role"] == role] for role in ROLES}
    tokenizer = folder / "tokenizer.json"
    if corpus.vocab_size:
        _train_tokenizer(by_role["reference"], corpus.vocab_size).save(str(tokenizer))
    seen = by_role["member"] + by_role["background"]
    return {
        "name": name,
        "recipe": corpus.model_dump(),
        "sources": sources,
        "content_hash": hash_texts(row["text"] for row in rows),
        "tokenizer_hash": hash_files([tokenizer]) if corpus.vocab_size else None,
        "near_duplicates_dropped": n_dropped,
        "non_member_overlap": float(overlaps(by_role["non_member"], seen, corpus.language).mean()),
        "roles": dict(Counter(row["role"] for row in rows)),
        "packages": dict(sorted(Counter(row["package"] for row in rows).items())),
    }


def overlaps(texts: Sequence[str], seen: Sequence[str], language: str) -> NDArray[np.float64]:
    """The share of each text's 7-grams of words that stand in a text trained on, (N,): how much of it is seen."""
    known = set().union(*(ngrams(words(text, language)) for text in seen))
    return np.array([len(own & known) / max(1, len(own)) for own in (ngrams(words(t, language)) for t in texts)])


def _gather(corpus: Corpus) -> tuple[list[str], list[str], int | None]:
    """The texts in a fixed order, the package each is from, and how many near-duplicates were left out (None: kept)."""
    if corpus.source == "patents":
        from mialib.patents import generate_patents  # which needs jieba, and nothing else here does

        n = corpus.members + corpus.non_members + corpus.background + corpus.reference
        return generate_patents(n, seed=corpus.seed, min_words=corpus.words), ["generated"] * n, None
    if corpus.source == "docstrings":
        found = read_docstrings(corpus.packages, corpus.words)
        found = [d for d in found if is_later(d, corpus.since)] if corpus.since else found
    elif corpus.source == "code":
        found = read_code(corpus.packages, corpus.words)
    elif corpus.source == "file":
        found = _read_file(_file(corpus))
    else:
        make = {"context_questions": context_questions, "choice_questions": choice_questions}[corpus.source]
        found = make(corpus.packages, corpus.words, corpus.seed)
    dealt = [r for r in ROLES if r != "reference"]
    apart_from = [t for role in dealt for t in lab_texts(corpus.apart_from, role)] if corpus.apart_from else []
    kept = drop_near_duplicates(found, corpus.words, corpus.language, apart_from)
    return [d.text for d in kept], [d.package for d in kept], len(found) - len(kept)


def _read_file(path: Path) -> list[Docstring]:
    """A file's texts, each with its domain, or the file's name where no column says one, as the package it is from."""
    texts = load_texts(path)
    rows = read_rows(path) if path.suffix != ".txt" else [{}] * len(texts)
    column = next((column for column in DOMAIN_COLUMNS if all(row.get(column) for row in rows)), None)
    return [Docstring(str(row[column]) if column else path.stem, t) for row, t in zip(rows, texts, strict=True)]


def write_pool(name: str, path: Path) -> int:
    """Write all texts that a corpus could deal out, uncut, and their packages to a .parquet file; how many there are.

    On a machine with other packages a corpus from this `file` deals out the same texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        raise ValueError(f"{path}: a pool is written as .parquet, and not as {path.suffix or 'a file without suffix'}")
    texts, packages, _ = _gather(_known_corpus(name))
    with atomic_path(path) as temporary:
        pq.write_table(pa.table({"text": texts, "domain": packages}), temporary, compression="zstd")
    return len(texts)


def _train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE like Pythia's, learned from texts that no model is trained or tested on."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size, special_tokens=[END_OF_TEXT], show_progress=False)
    return tokenizer


# --- models ----------------------------------------------------------------------------------------------------------


def lab_model(name: str) -> Path:
    """The folder of a lab model, trained first where it is not there or its recipe or texts have changed.

    `lab/en-900k@1` is `lab/en-900k` trained with seed 1. It is trained on the CPU, also where there is a GPU, so that a
    recipe gives the same model there too; what a GPU trains is recorded instead (`mialib.recorded`).
    """
    from mialib import training

    recipe = lab_recipe(name)
    folder = home() / "lab" / "models" / name.removeprefix("lab/")
    if isinstance(recipe, Unlearning):
        base = lab_model(_with_seed_of(recipe.base, name))
        # Its stopping rule reads the non-members, which its base has not seen.
        held = lab_card(lab_model_corpus(name))["content_hash"]
        key = hash_of([recipe.model_dump(), model_made_by(), _card_key(base / "lab.json"), held])
        return _made_once(folder, "lab.json", key, lambda target: training.unlearn(name, recipe, base, target))
    # By what is trained on: another way to gather the same texts trains nothing anew.
    tokenizer = lab_card(recipe.corpus)["tokenizer_hash"]
    texts, times = (masked_on(recipe), None) if isinstance(recipe, Masked) else trained_on(recipe)
    key = hash_of([recipe.model_dump(), model_made_by(), tokenizer, hash_texts(texts), times])
    train = training.train_masked if isinstance(recipe, Masked) else training.train
    return _made_once(folder, "lab.json", key, lambda target: train(name, recipe, target))


def lab_recipe(name: str) -> Training | Unlearning | Masked:
    """How a lab model is made, with the seed that its name asks for."""
    plain, _, seed = name.partition("@")
    models = load_profile().models
    model = models.get(plain)
    if model is None or model.recipe is None or (seed and not seed.isdecimal()):
        known = ", ".join(name for name, m in models.items() if m.recipe) or "none in this profile"
        raise ValueError(f"unknown lab model {name!r}; known: {known} (with another seed: NAME@1)")
    return model.recipe.model_copy(update={"seed": int(seed)}) if seed else model.recipe


def corpora_of_recipe(recipe: Training | Masked) -> list[str]:
    """The lab corpora that a model is trained on: its own, then those injected."""
    return [recipe.corpus, *getattr(recipe, "injected", {})]


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


def masked_on(recipe: Masked) -> list[str]:
    """The texts that a masked model is trained on."""
    return lab_texts(recipe.corpus, "background")


def by_group(values: Sequence[int], n: int) -> list[int]:
    """The value of each of `n` things that stand in as many equal consecutive groups as there are values."""
    return [values[i * len(values) // n] for i in range(n)]


def lab_model_card(name: str) -> dict[str, Any]:
    """How a lab model was made: recipe, parameters, losses, seconds, versions."""
    return json.loads((lab_model(name) / "lab.json").read_text())


def _with_seed_of(base: str, name: str) -> str:
    _, at, seed = name.partition("@")
    return f"{base}{at}{seed}"


# --- making things once -----------------------------------------------------------------------------------------------


def _made_once(folder: Path, card_name: str, key: str, make: Callable[[Path], dict[str, Any]]) -> Path:
    """`folder` with a card that carries `key`; made in a temporary folder and moved, so it is whole or not there."""
    from filelock import FileLock

    if _card_key(folder / card_name) == key:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if _card_key(folder / card_name) == key:  # made by another process while this one waited
            return folder
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            card = make(temporary)
            write_json(temporary / card_name, card | {"key": key})
            shutil.rmtree(folder, ignore_errors=True)
            temporary.chmod(0o755)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _card_key(path: Path) -> str | None:
    return json.loads(path.read_text())["key"] if path.is_file() else None
