"""`mialib canaries`: texts of which a coin inserts some into a training, so that an audit of it knows what was used.

make_canaries(folder)                                          train.jsonl, canaries.jsonl and seal.json
mialib audit canaries.jsonl --model MODEL --output report      once the model is trained
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from secrets import SystemRandom
from typing import Any

from mialib.catalog.corpora import read_licences
from mialib.shared.files import COIN_COLUMN, TIMES_COLUMN
from mialib.store import atomic_path, checksum_of, mialib_version, write_json
from mialib.text import language_of, words
from mialib_audit.near_copies import near_copies

logger = logging.getLogger(__name__)

REPEATS = (1, 4, 16)  # how often canaries are inserted, a third of them each
N_MADE, N_WORDS = 300, 30  # canaries that are made, and words of each
FEWEST = 20 * len(REPEATS)  # canaries: ten members and ten non-members of each number of repeats, on average


def make_canaries(folder: Path, texts: Sequence[str] = ()) -> dict[str, Any]:
    """Write the texts to mix into the training data, the list of all canaries and its seal; return the seal's content.

    `train.jsonl` has each canary that a coin chose, 1, 4 or 16 times, shuffled. `canaries.jsonl` lists all canaries:
    the audit reads it, and whoever trains must not see it. `seal.json` has the SHA-256 of this list; published before
    the training, it proves that the list was not changed afterwards. The coins are the system's random numbers.

    Without `texts` the canaries are 300 lists of 30 random words from licences, which no model has seen. To learn how
    well a training remembers texts like its data, pass unpublished `texts` of this kind as canaries. ValueError for
    fewer than `FEWEST` canaries that are not near-copies, and for files that exist.

    >>> seal = make_canaries(Path("canaries"))
    >>> seal["file"], seal["repeats"]
    ('canaries.jsonl', [1, 4, 16])
    """
    train, sealed, seal = (folder / name for name in ("train.jsonl", "canaries.jsonl", "seal.json"))
    if existing := [str(path) for path in (train, sealed, seal) if path.exists()]:
        raise ValueError(f"{', '.join(existing)}: there already, and a sealed list is not replaced")
    coin = SystemRandom()
    vocabulary = sorted({word.lower() for text in read_licences() for word in words(text) if word.isalpha()})
    texts = texts or [" ".join(coin.choices(vocabulary, k=N_WORDS)) for _ in range(N_MADE)]
    copies = near_copies(texts, language_of(texts))
    canaries = [text for i, text in enumerate(texts) if i not in copies]
    if len(canaries) < FEWEST:
        raise ValueError(f"{len(canaries)} different canaries say too little; at least {FEWEST} are needed")
    coin.shuffle(canaries)
    repeats = [REPEATS[i % len(REPEATS)] for i in range(len(canaries))]
    times = [n * coin.randrange(2) for n in repeats]
    dealt = list(zip(canaries, repeats, times, strict=True))
    rows = [{"text": text, COIN_COLUMN: n, TIMES_COLUMN: n_inserted} for text, n, n_inserted in dealt]
    inserted = [{"text": text} for text, _, n_inserted in dealt for _ in range(n_inserted)]
    coin.shuffle(inserted)
    folder.mkdir(parents=True, exist_ok=True)
    for path, lines in ((train, inserted), (sealed, rows)):
        with atomic_path(path) as temporary:
            temporary.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8", newline="")
    numbers = {"n": len(rows), "repeats": list(REPEATS), "n_inserted": len(inserted)}
    content = {"file": sealed.name, "sha256": checksum_of(sealed), **numbers, "mialib": mialib_version()}
    write_json(seal, content)
    return content


def check_seal(canaries: Path) -> None:
    """Check a list of canaries against the seal.json beside it; ValueError if the list was changed.

    >>> _ = make_canaries(Path("sealed"))
    >>> check_seal(Path("sealed", "canaries.jsonl"))
    """
    seal = canaries.with_name("seal.json")
    if not seal.is_file():
        return
    sealed = json.loads(seal.read_text(encoding="utf-8"))
    if sealed.get("file") == canaries.name and sealed.get("sha256") != checksum_of(canaries):
        raise ValueError(f"{canaries} was changed after {seal} was written: its SHA-256 is not {sealed.get('sha256')}")
