"""`mialib canaries`: texts of which a coin puts some into a training, so that an audit of it knows what was used.

make_canaries(folder)                       train.jsonl, canaries.jsonl and seal.json
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
from mialib.shared.files import COIN_COLUMN, TIMES_COLUMN, read_rows, times_of
from mialib.shared.near_duplicates import near_copies
from mialib.store import atomic_path, checksum_of, mialib_version, write_json
from mialib.text import language_of, words

logger = logging.getLogger(__name__)

REPEATS = (1, 4, 16)  # how often canaries are inserted, a third of them each
N_MADE, N_WORDS = 300, 30  # canaries that are made, and words of each
FEWEST = 20 * len(REPEATS)  # canaries: ten members and ten non-members of each number of repeats, on average


def make_canaries(folder: Path, texts: Sequence[str] = ()) -> dict[str, Any]:
    """Write what is mixed into the training data, the list of all canaries, and its seal; the seal's content.

    `train.jsonl` has each canary as often as its coin and its repeats say, shuffled. `canaries.jsonl` has all of them;
    the audit reads it, and whoever trains must not see it. `seal.json` has its SHA-256: published before the training,
    it proves that the list was not changed afterwards. The coins are the system's random numbers, one for each canary.

    Without `texts` each of 300 canaries is 30 words drawn at random from licences: surely unseen by any model, and at
    hand for everyone. How well a training remembers texts like its data, such texts show: each of `texts`, which must
    not be published, is a canary. ValueError for fewer than `FEWEST` without near copies, and for files that are there.
    """
    train, sealed, seal = (folder / name for name in ("train.jsonl", "canaries.jsonl", "seal.json"))
    if there := [str(path) for path in (train, sealed, seal) if path.exists()]:
        raise ValueError(f"{', '.join(there)}: there already, and a list that was sealed is not replaced")
    coin = SystemRandom()
    known = sorted({word.lower() for text in read_licences() for word in words(text) if word.isalpha()})
    texts = texts or [" ".join(coin.choices(known, k=N_WORDS)) for _ in range(N_MADE)]
    copies = near_copies(texts, language_of(texts))
    mixed = [text for i, text in enumerate(texts) if i not in copies]
    if len(mixed) < FEWEST:
        raise ValueError(f"{len(mixed)} different canaries say too little; at least {FEWEST} are needed")
    coin.shuffle(mixed)
    repeats = [REPEATS[i % len(REPEATS)] for i in range(len(mixed))]
    times = [n * coin.randrange(2) for n in repeats]
    dealt = list(zip(mixed, repeats, times, strict=True))
    rows = [{"text": text, COIN_COLUMN: n, TIMES_COLUMN: n_inserted} for text, n, n_inserted in dealt]
    inserted = [{"text": text} for text, _, n_inserted in dealt for _ in range(n_inserted)]
    folder.mkdir(parents=True, exist_ok=True)
    for path, of_file in ((train, coin.sample(inserted, len(inserted))), (sealed, rows)):
        with atomic_path(path) as temporary:
            temporary.write_text("".join(f"{json.dumps(row)}\n" for row in of_file), encoding="utf-8", newline="")
    about = _about(sealed) | {"mialib": mialib_version()}
    write_json(seal, about)
    return about


def _about(canaries: Path) -> dict[str, Any]:
    rows = read_rows(canaries)
    repeats, times = (times_of(rows, str(canaries), column) for column in (COIN_COLUMN, TIMES_COLUMN))
    n: dict[str, Any] = {"n": len(rows), "repeats": sorted(set(repeats)), "n_inserted": sum(times)}
    return n | {"file": canaries.name, "sha256": checksum_of(canaries)}


def check_seal(canaries: Path) -> None:
    """ValueError, naming what differs, where a list of canaries is not that of the seal.json beside it, if one is."""
    seal = canaries.with_name("seal.json")
    if not seal.is_file():
        return
    now = _about(canaries)
    try:
        sealed = json.loads(seal.read_text(encoding="utf-8"))
        differ = [f"{key} {of}, sealed {sealed[key]}" for key, of in now.items() if sealed[key] != of]
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise ValueError(f"{seal}: not what `mialib canaries` wrote ({error!r}); restore it") from None
    if sealed["file"] != canaries.name:
        return logger.info("%s is not the list that %s seals, %s: not compared", canaries, seal, sealed["file"])
    if differ:
        raise ValueError(f"{canaries} is not the list that {seal} was written with: {'; '.join(differ)}")
    logger.info("%s: as sealed, SHA-256 %s", canaries, now["sha256"])
