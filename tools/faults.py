"""What goes wrong with a machine, done on purpose to the real commands, and one table of what came of it.

    python tools/faults.py --quick        some three minutes on a free core; without --quick some ten
    python tools/faults.py disk hostile   these groups alone

Each command is `mialib.commands.main` in a process of its own. It is forked from one that has imported torch and
transformers already (as a build's jobs are), so that a kill hits the work and not the imports; the group `start`
runs new interpreters. A row counts:

    survived     times that nothing below came of the fault, and nothing was lost: no hang, nothing left behind, an end
                 as the README says it
    lost         times that a command ended without the answer that it had to give
    redone       seconds of work that was done twice
    wrong        answers that differ from those of an undisturbed run in any bit
    tracebacks   where a sentence belongs
    silent       an answer changed or damage accepted, and nothing said of it
    secrets      the key of an API in what was printed or kept
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # whose tiny models and endpoint serve here too
HANG_SECONDS = 30.0  # no command here takes longer
REPLY_SECONDS = 2.0  # that a hostile endpoint may take for one reply
STOPPED = "mialib: stopped; what was kept so far"
PARTS, LOCK = ".parts", ".lock"
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT)  # of compiled libraries that take it for granted that there is memory


@dataclass
class Row:
    """What came of one fault."""

    fault: str
    tried: int = 0
    survived: int = 0
    lost: int = 0
    redone: float | None = None  # seconds
    wrong: int = 0
    tracebacks: int = 0
    silent: int = 0
    secrets: int = 0
    notes: list[str] = field(default_factory=list)

    def count(self, *problems: str) -> None:
        """One try and what was wrong with it: "wrong: what differs", "lost: ...", "silent: ..." or another word."""
        self.tried += 1
        self.survived += not problems
        for problem in problems:
            kind = problem.partition(":")[0]
            if kind in ("lost", "wrong", "tracebacks", "silent", "secrets"):
                setattr(self, kind, getattr(self, kind) + 1)
            self.notes.append(problem)


# --- commands ---


class Ended(NamedTuple):
    """A command that is over."""

    code: int | None  # None: it had to be ended
    out: str
    err: str
    seconds: float

    @property
    def last(self) -> str:
        return (self.err.strip().splitlines() or [""])[-1]

    def problems(self, home: Path | None = None) -> Iterator[str]:
        """What no command may do, whatever happened to it."""
        if self.code is None:
            yield "hang: it did not end"
        if "Traceback (most recent call last)" in self.err + self.out:
            yield f"tracebacks: {self.last}"
        if "[Errno" in self.last:
            yield f"bare: {self.last}"
        if "\x1b" in self.err + self.out:
            yield "raw: what a terminal obeys is printed"
        for at in secret_places(self.out + self.err, home):
            yield f"secrets: {at}"

    def refused(self, *names: str) -> bool:
        """Whether it ended with one sentence, which names these."""
        said = [line for line in self.err.splitlines() if line.startswith("mialib: ")]
        return self.code == 1 and said == [self.last] and all(name in self.last for name in names)


class Command:
    """A running `mialib`; `patches` are functions of this module with what they are given, called in its process."""

    def __init__(self, *arguments: object, home: Path, patches: tuple = (), **environment: object) -> None:
        self.said = Path(tempfile.mkdtemp(prefix="faults-said-"))
        given = {"MIALIB_HOME": str(home)} | {name: str(value) for name, value in environment.items()}
        self.began = time.monotonic()
        self.process = forks().Process(target=_run, args=([str(a) for a in arguments], given, patches, str(self.said)))
        self.process.start()

    def read(self, name: str) -> str:
        path = self.said / name
        return path.read_text("utf-8", errors="replace") if path.is_file() else ""

    def is_ready(self) -> bool:
        return (self.said / "ready").exists()

    def says(self, words: str) -> bool:
        return words in self.read("stderr")

    def wait_until(self, happened: Callable[[], bool], seconds: float = HANG_SECONDS) -> bool:
        """Whether it happened before the command ended and the time was over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.is_alive():
            if happened():
                return True
            time.sleep(0.005)
        return happened()

    def signal_after(self, seconds: float, number: int) -> None:
        """Send a signal so many seconds after it has begun its work, if it is still there then."""
        self.wait_until(self.is_ready)
        self.process.join(seconds)
        self.signal(number)

    def signal(self, number: int) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, number)

    def end(self, seconds: float = HANG_SECONDS) -> Ended:
        self.process.join(seconds)
        if is_hung := self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = None if is_hung else self.process.exitcode
        ended = Ended(code, self.read("stdout"), self.read("stderr"), time.monotonic() - self.began)
        shutil.rmtree(self.said)
        return ended


def forks() -> multiprocessing.context.BaseContext:
    """Processes are forked from one that has imported what a command needs."""
    from replication.pipeline.jobs import PRELOADED

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, "mialib.commands.cli", "mialib.passes.cache"])
    return context


def _run(arguments: list[str], environment: dict[str, str], patches: tuple, said: str) -> None:
    multiprocessing.set_start_method(None, force=True)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(Path(said) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    for name in [name for name in os.environ if name.startswith(("MIALIB_", "OPENAI_"))]:
        del os.environ[name]
    os.environ.update(environment)
    from mialib.commands import main

    for name, *given in patches:
        globals()[name](*given)
    sys.argv = ["mialib", *arguments]
    (Path(said) / "ready").touch()
    main()


def run(*arguments: object, home: Path, patches: tuple = (), **environment: object) -> Ended:
    """A command from start to end."""
    return Command(*arguments, home=home, patches=patches, **environment).end()


# --- patches, called in a command's process ---


def small_parts() -> None:
    """Keep what is finished twenty times a second, not every ten seconds: a tiny pass takes less than half of one."""
    from mialib import batches
    from replication.lab import training

    batches.SECONDS_A_PART = training.SECONDS_A_PART = 0.05
    training.KEEPING_SHARE = 1.0


def count_work(log: str) -> None:
    """Write each batch and how long it took to a file, as soon as it is done."""
    from mialib import scoring
    from replication.lab import training

    def counted(function: Callable, batch_of: Callable) -> Callable:
        def call(*arguments: object) -> object:
            began = time.perf_counter()
            result = function(*arguments)
            name = hashlib.sha256(repr(batch_of(*arguments)).encode()).hexdigest()
            line = json.dumps([name, time.perf_counter() - began, os.getpid()]) + "\n"
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, line.encode())
            os.close(descriptor)
            return result

        return call

    scoring.LoadedScorer.score_batch = counted(scoring.LoadedScorer.score_batch, lambda scorer, ids, *_: ids)
    training._loss = counted(training._loss, lambda model, batch: batch)


def end_at_part(n: int) -> None:
    """End like Ctrl-C when so many parts are kept."""
    from mialib.shared.kept import Parts

    add = Parts.add

    def add_and_end(self: Parts, *arguments: object, **options: object) -> None:
        add(self, *arguments, **options)
        if len(self.paths) >= n:
            os.kill(os.getpid(), signal.SIGTERM)

    Parts.add = add_and_end


def impatient(retries: int = 1) -> None:
    """Ask an endpoint fewer times, and wait less long."""
    from replication.remote import retries as bounds

    bounds.MAX_ATTEMPTS, bounds.REPLY_SECONDS, bounds.REPLY_BYTES = 1 + retries, REPLY_SECONDS, 2**20


def little_memory(mebibytes: int) -> None:
    """Leave a process so much more memory than it has."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def own_disk(path: str, options: str, read_only: bool = False) -> None:
    """Mount a small disk at a path that this process alone sees; PermissionError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, of_users = 0x00020000, 0x4000 | 0x40000, 0x10000000

    def check(result: int) -> None:
        if result:
            raise PermissionError(ctypes.get_errno(), "no disk can be mounted here")

    check(libc.unshare(new_namespace | (of_users if os.getuid() else 0)))
    check(libc.mount(b"none", b"/", None, private, None))
    check(libc.mount(b"tmpfs", path.encode(), b"tmpfs", int(read_only), options.encode()))


def can_mount(path: str) -> None:
    """`own_disk`, and an end that tells whether it worked."""
    try:
        own_disk(path, "size=64k")
    except (OSError, AttributeError):
        os._exit(1)
    os._exit(0)


# --- what is kept ---


def answers(home: Path) -> dict[str, str]:
    """The hash of each file that holds an answer; a lab model's card holds the seconds that it took, too."""
    wanted = (".parquet", ".npz", ".json", ".safetensors")
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.rglob("*"))
        if path.suffix in wanted and path.name != "lab.json" and path.is_file() and not is_work(path.relative_to(home))
    }


def is_work(path: Path) -> bool:
    """Whether it is of a run that was broken off, or was set aside."""
    return any(part.endswith(PARTS) or part.startswith((".", "damaged-")) for part in path.parts)


def leftovers(home: Path) -> list[str]:
    """Temporary files and folders; parts and locks are meant to stay."""
    hidden = (path for path in home.rglob(".*") if not path.name.endswith(LOCK))
    return sorted(str(path.relative_to(home)) for path in hidden)


def differs(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    names = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
    return [f"wrong: {', '.join(names)}"] if names else []


def secret_places(said: str, home: Path | None) -> list[str]:
    """Where the API's key stands."""
    from api_server import KEY

    files = (path for path in home.rglob("*") if path.is_file()) if home else ()
    kept = [str(path) for path in files if KEY.encode() in path.read_bytes().lower()]
    return (["printed"] if KEY in said.lower() else []) + kept


class Work(NamedTuple):
    """A batch that was done."""

    name: str
    seconds: float
    process: int


def work_done(log: Path) -> list[Work]:
    return [Work(*json.loads(line)) for line in log.read_text().splitlines()] if log.is_file() else []


def redone(log: Path) -> float:
    """Seconds of batches that were done before."""
    seen: set[str] = set()
    seconds = 0.0
    for work in work_done(log):
        seconds += work.seconds if work.name in seen else 0
        seen.add(work.name)
    return seconds


# --- the tiny world ---

NOUNS = ("river", "stone", "garden", "window", "letter", "market", "engine", "harbor", "ladder", "candle", "forest")
VERBS = ("meets", "leaves", "follows", "carries", "hides", "breaks", "sells", "finds", "paints", "forgets", "burns")
TRAINING = {"layers": 1, "hidden_size": 16, "heads": 2, "context_tokens": 64}
CORPUS = {"source": "file", "language": "en", "words": 40, "members": 20, "non_members": 20, "background": 20}


@dataclass(frozen=True)
class World:
    """Tiny models, texts and a lab, in a temporary folder."""

    folder: Path
    is_quick: bool

    def __post_init__(self) -> None:
        from conftest import FAMILIES, save_tiny_masked_model, save_tiny_model

        save_tiny_model(self.model, **FAMILIES["gpt_neox"])
        save_tiny_masked_model(self.masked)
        rng = random.Random(0)
        for path, n, n_words in (
            (self.few, 8, 20),
            (self.others, 8, 20),
            (self.many, 240, 24),
            (self.more, 240, 24),
            (self.pool, 300, 60),
        ):
            rows = [{"text": sentence(rng, n_words), "label": i % 2} for i in range(n)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for path in (self.corpus, self.other_corpus):
            path.write_text("".join(f"{sentence(rng, 12)}\n" for _ in range(20)))
        corpora = {
            f"lab/{name}": CORPUS | {"path": str(self.pool), "reference": 60, "vocab_size": 300, "seed": seed}
            for seed, name in enumerate(("one", "two"))
        }
        long = TRAINING | {"hidden_size": 48, "member_times": 60, "background_times": 60}
        models = {
            f"lab/{name}": {"benchmarks": [], "train": (long if name == "long" else TRAINING) | {"corpus": corpus}}
            for name, corpus in {"a": "lab/one", "b": "lab/two", "long": "lab/one"}.items()
        }
        profile = {"name": "tiny", "corpora": corpora, "models": models, "landing": {"page": "index"}, "book": []}
        self.profile.write_text(json.dumps(profile))
        Command("score", "--help", home=self.new()).end(seconds=300)  # waits for the imports

    model = property(lambda self: self.folder / "model")
    masked = property(lambda self: self.folder / "masked")
    few = property(lambda self: self.folder / "few.jsonl")
    more = property(lambda self: self.folder / "more.jsonl")
    others = property(lambda self: self.folder / "others.jsonl")
    many = property(lambda self: self.folder / "many.jsonl")
    pool = property(lambda self: self.folder / "pool.jsonl")
    corpus = property(lambda self: self.folder / "corpus.txt")
    other_corpus = property(lambda self: self.folder / "other_corpus.txt")
    profile = property(lambda self: self.folder / "tiny.yml")

    def new(self, name: str = "home") -> Path:
        """An empty folder's path; the same one each time, whose old content is gone."""
        path = self.folder / name
        remove(path)
        return path


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sentence(rng: random.Random, n_words: int) -> str:
    words = [rng.choice(VERBS if i % 3 == 2 else NOUNS) for i in range(n_words)]
    return f"The {' '.join(words)} {rng.randrange(10**6)}"


# --- signals ---

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def killed_and_killed_again(
    world: World, row: Row, arguments: tuple, n: int, rng: random.Random, **environment: object
) -> None:
    """Stop a command at random moments until it is done, from nothing again where it is, `n` times in all."""
    home, log = world.new(), world.new("work")
    options = {"patches": (("small_parts",), ("count_work", str(log))), **environment}
    undisturbed = run(*arguments, home=home, **options)
    wanted, seconds, row.redone = answers(home), sum(work.seconds for work in work_done(log)), 0.0
    if undisturbed.code:
        raise RuntimeError(undisturbed.err)
    n_done = 0
    while n_done < n:
        home, log = world.new(), world.new("work")
        is_over = False
        while not is_over:
            number = SIGNALS[n_done % 3]
            before = leftovers(home)  # of SIGKILL; the run that ends well removes them
            command = Command(*arguments, home=home, **options)
            if n_done < n:
                command.signal_after(rng.uniform(0.02, 0.5 + seconds), number)
            ended = command.end()
            is_over = ended.code == 0
            if ended.code in (-signal.SIGKILL, 128 + number):
                n_done += 1
                row.count(*ended.problems(), *after_signal(ended, number, home, before))
            elif not is_over:
                n_done += 1
                row.count(f"lost: {ended.code} {ended.last}", *ended.problems())
                break
        for problem in (*differs(answers(home), wanted), *left_behind(home)):
            row.count(problem)
        row.redone += redone(log)


def after_signal(ended: Ended, number: int, home: Path, before: list[str]) -> Iterator[str]:
    """What is not as it should be where a command was told to stop, which SIGKILL does not."""
    if number != signal.SIGKILL:
        if not ended.last.startswith(STOPPED):
            yield f"said: {ended.last}"
        yield from left_behind(home, before)


def left_behind(home: Path, before: list[str] = ()) -> list[str]:
    """The temporary files and folders that were not there before."""
    left = [path for path in leftovers(home) if path not in before]
    return [f"left: {', '.join(left)}"] if left else []


def kills_while_scoring(world: World) -> Iterator[Row]:
    row = Row("stopped at random while scoring")
    killed_and_killed_again(
        world, row, ("score", world.model, world.many), 20 if world.is_quick else 50, random.Random(1)
    )
    yield row


def kills_while_training(world: World) -> Iterator[Row]:
    row, n = Row("stopped at random while training"), 5 if world.is_quick else 20
    arguments = ("lab", "build", "lab/long")
    killed_and_killed_again(world, row, arguments, n, random.Random(2), MIALIB_PROFILE=world.profile)
    yield row


def kills_while_asking(world: World) -> Iterator[Row]:
    """Of an API, at each moment from the first look at its address on."""
    row, n = Row("stopped at random while an API is asked"), 20 if world.is_quick else 50
    with endpoint(world) as server:
        server.before = lambda handler, body: bool(time.sleep(0.02))  # and answers then
        arguments = ("detect", world.many, "--model", "api:tiny", "--detector", "ppl", "--json")
        killed_and_killed_again(world, row, arguments, n, random.Random(3), **of_api(server))
    yield row


def signals_while_starting(world: World) -> Iterator[Row]:
    """Real interpreters, whose imports and whose ends are hit too."""
    code, row = (
        "from mialib.commands import main; main()",
        Row("Ctrl-C and SIGTERM while a command starts and ends"),
    )
    command = [sys.executable, "-c", code, "score", "--help"]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds, n = time.monotonic() - began, 6 if world.is_quick else 20
    for i in range(n):
        number = SIGNALS[1 + i % 2]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds * (0.15 + 0.85 * i / n))
        process.send_signal(number)
        out, err = process.communicate()
        ended = Ended(process.returncode, out, err, 0.0)
        is_as_told = ended.code in (0, 128 + number, -number)
        row.count(*ended.problems(), *([] if is_as_told else [f"code: {ended.code} after {number.name}"]))
    yield row


# --- disks ---


def detecting(world: World) -> tuple:
    """A command that keeps a file of each kind."""
    given = ("--corpus", world.corpus, "--masked", world.masked, "--n-neighbors", 2, "--json")
    return "detect", world.few, "--model", world.model, *given


def disks(world: World) -> Iterator[Row]:
    row = Row("disk: home below a file")
    world.new("file").write_text("")
    row.count(*judged(run(*detecting(world), home=world.folder / "file" / "home"), "no answer", "file"))
    yield row
    if not may_mount(world):
        return
    shares = (0.1, 0.4, 0.8) if world.is_quick else [i / 12 for i in range(1, 12)]
    wanted = {}
    for title, arguments in (("scoring", detecting(world)), ("training", ("lab", "build", "lab/a"))):
        row, home = Row(f"disk: full while {title}"), world.new()
        wanted[title] = run(*arguments, home=home, MIALIB_PROFILE=world.profile).out
        n_pages = sum(-(-path.stat().st_size // 4096) for path in home.rglob("*") if path.is_file())
        for share in shares:
            ended = on_own_disk(world, arguments, f"size={max(1, int(n_pages * share)) * 4}k")
            names = ("can't be kept",) if ended.code == 0 and share < 0.5 else ()
            row.count(*judged(ended, wanted[title], *names))
        yield row
        row = Row(f"disk: read-only while {title}")
        row.count(*judged(on_own_disk(world, arguments, "size=1m", True), wanted[title], str(home)))
        yield row


def on_own_disk(world: World, arguments: tuple, options: str, read_only: bool = False) -> Ended:
    """A command whose home is a small disk."""
    home = world.new()
    home.mkdir()
    patches = (("own_disk", str(home), options, read_only), ("small_parts",))
    return run(*arguments, home=home, patches=patches, MIALIB_PROFILE=world.profile)


def memory(world: World) -> Iterator[Row]:
    row = Row("too little memory")
    arguments = ("detect", world.few, "--model", world.model, "--detector", "ppl", "--json")
    wanted = run(*arguments, home=world.new()).out
    for mebibytes in (1, 8, 32, 40) if world.is_quick else (1, 2, 4, 8, 16, *range(28, 52, 2), 64, 128):
        home = world.new()
        ended = run(*arguments, home=home, patches=(("little_memory", mebibytes),))
        if ended.code not in CRASHES:
            row.count(*judged(ended, wanted, *(("too little memory",) if ended.code else ())))
        row.count(*judged(run(*arguments, home=home), wanted))  # with all the memory again
    yield row


def may_mount(world: World) -> bool:
    """Whether a process may mount a disk of its own."""
    folder = world.new("disk")
    folder.mkdir()
    process = forks().Process(target=can_mount, args=(str(folder),))
    process.start()
    process.join()
    return process.exitcode == 0


def judged(ended: Ended, answer: str, *names: str, home: Path | None = None) -> Iterator[str]:
    """What is wrong where a command should give an answer, and name something, or end with a sentence that does."""
    yield from ended.problems(home)
    if ended.code == 0:
        if ended.out != answer:
            yield f"wrong: {names}"
        if not all(name in ended.err for name in names):
            yield f"silent: {' '.join(names)} is not named"
    elif ended.code is not None and not ended.refused(*names):
        yield f"said: {ended.code} {ended.last}"


# --- damage ---


def flip(path: Path, _: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def halve(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def replace_by_another(path: Path, other: Path) -> None:
    """Another key's file, and its checksum where it has one."""
    shutil.copy(other, path)
    if (seal := other.with_name(f"{other.name}.sha256")).is_file():
        shutil.copy(seal, path.with_name(f"{path.name}.sha256"))


def replace_by_folder(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "one bit flipped": flip,
    "cut to half": halve,
    "emptied": empty,
    "another key's file in its place": replace_by_another,
    "a folder in its place": replace_by_folder,
}


class Target(NamedTuple):
    """A kind of file that is damaged, and what is removed first, so that the file is read."""

    title: str
    files: str
    removed: str = "nothing"


KEPT = (
    Target("token statistics", "cache/token_stats/*.parquet"),
    Target("arrays", "cache/neighbor_log_probs/*.npz"),
    Target("neighbors", "cache/neighbors/*.json", "cache/neighbor_log_probs/*"),
    Target("token frequencies", "cache/token_frequency/*.parquet"),
    Target("hashes", "cache/hashes/*.json"),
    Target("a checksum", "cache/token_stats/*.parquet.sha256"),
)
IN_PARTS = (Target("parts of a pass", "cache/token_stats/*.parts/000000.parquet"),)
OF_LAB = (
    Target("a lab corpus's texts", "lab/corpora/*/texts.jsonl.gz", "cache"),
    Target("a lab corpus's card", "lab/corpora/*/card.json", "cache"),
    Target("a lab corpus's tokenizer", "lab/corpora/*/tokenizer.json", "cache"),
    Target("a lab model's card", "lab/models/*/lab.json", "cache"),
    Target("a lab model's weights", "lab/models/*/model.safetensors", "cache"),
)
REPLIES = (Target("replies", "cache/token_stats/*.replies.jsonl"),)


class Kept(NamedTuple):
    """A home with what two commands kept: the first is run again, and the second's files are the other keys'."""

    home: Path
    own: frozenset[str]  # paths of the first's
    rerun: Callable[[Path], Ended]


def kept_by(
    world: World, name: str, first: Callable[[Path], Ended], second: Callable[[Path], Ended], again=None
) -> Kept:
    home = world.new(name)
    if problems := list(first(home).problems()):
        raise RuntimeError(f"{name}: {problems}")
    own = frozenset(str(path.relative_to(home)) for path in home.rglob("*"))
    second(home)
    return Kept(home, own, again or first)


def damage(world: World, kept: Kept, targets: tuple[Target, ...], answer: str) -> Iterator[Row]:
    """Each kind of damage to each kind of file: the same answer and a word about it, or a sentence that says it."""
    for target in targets:
        row = Row(f"{target.title}: damaged")
        for title, do in DAMAGES.items():
            if world.is_quick and do not in (flip, replace_by_another) and target not in REPLIES:
                continue  # a checksum sees the others as it sees a bit
            home = world.new("damaged")
            shutil.copytree(kept.home, home)
            found = sorted(home.glob(target.files))
            own = [path for path in found if str(path.relative_to(home)) in kept.own]
            others = [path for path in found if path not in own] or own[1:]
            for path in home.glob(target.removed):
                remove(path)
            do(own[0], others[0])
            ended, name = kept.rerun(home), own[0].name.removesuffix(".sha256")
            places = own[0].parent.name if own[0].parent.parent.name in ("models", "corpora") else name
            row.count(*(f"{problem} ({title})" for problem in judged(ended, answer, places, home=home)))
        yield row


def damaged_files(world: World) -> Iterator[Row]:
    def score_few(home: Path, texts: Path = world.few, corpus: Path = world.corpus) -> Ended:
        given = ("--corpus", corpus, "--masked", world.masked, "--n-neighbors", 2, "--json")
        return run("detect", texts, "--model", world.model, *given, home=home)

    kept = kept_by(world, "kept", score_few, partial(score_few, texts=world.others, corpus=world.other_corpus))
    yield from damage(world, kept, KEPT, score_few(kept.home).out)

    def score_many(home: Path, texts: Path = world.many, patches: tuple = ()) -> Ended:
        given = ("detect", texts, "--model", world.model, "--detector", "ppl", "--json")
        return run(*given, home=home, patches=(("small_parts",), *patches))

    break_off = partial(score_many, patches=(("end_at_part", 1),))
    kept = kept_by(world, "parts", break_off, partial(break_off, texts=world.more), score_many)
    yield from damage(world, kept, IN_PARTS, score_many(world.new()).out)


def damaged_lab(world: World) -> Iterator[Row]:
    def score(home: Path, model: str = "lab/a", corpus: str = "lab/one") -> Ended:
        lab = {"MIALIB_PROFILE": world.profile}
        return run("detect", world.few, "--model", model, "--corpus", corpus, "--json", home=home, **lab)

    kept = kept_by(world, "lab", score, partial(score, model="lab/b", corpus="lab/two"))
    yield from damage(world, kept, OF_LAB, score(kept.home).out)


# --- several at once ---


def at_once(world: World) -> Iterator[Row]:
    lab = {"MIALIB_PROFILE": world.profile}
    for title, arguments, environment in (
        ("score", ("score", world.model, world.many), {}),
        ("train", ("lab", "build", "lab/a"), lab),
    ):
        row, home, log = Row(f"four processes {title} the same at once"), world.new(), world.new("work")
        commands = [
            Command(*arguments, home=home, patches=(("count_work", str(log)),), **environment) for _ in range(4)
        ]
        ended = [command.end() for command in commands]
        row.redone = redone(log)
        for one in ended:
            is_same = one.code == 0 and one.out.splitlines()[-1] == ended[0].out.splitlines()[-1]
            row.count(*one.problems(), *([] if is_same else [f"wrong: {one.code} {one.last}"]))
        makers = {work.process for work in work_done(log)}
        if len(makers) > 2 if title == "score" else len(makers) != 1:  # a pass each
            row.count(f"made by {len(makers)}")
        yield row


def stopped_holder(world: World) -> Iterator[Row]:
    """A process that is stopped while it holds a lock: the next one says what it waits for."""
    from mialib.shared.kept import WAIT_SECONDS

    with endpoint(world) as server:
        api = of_api(server)
        calls = {
            "a model": (("score", world.model, world.many), ("score", world.model, world.many), {}),
            "replies of an API": (
                ("detect", world.few, "--model", "api:tiny", "--json"),
                ("detect", world.others, "--model", "api:tiny", "--json"),
                api,
            ),
        }
        for title, (first, second, environment) in calls.items():
            row, home, log = Row(f"a stopped process holds the lock of {title}"), world.new(), world.new("work")
            patches = (("small_parts",), ("count_work", str(log)))
            holder = Command(*first, home=home, patches=patches, **environment)
            server.before = lambda handler, body: bool(time.sleep(0.2))
            holder.wait_until(lambda log=log: bool(work_done(log) or len(server.asked) > 1))
            holder.signal(signal.SIGSTOP)
            waiting = Command(*second, home=home, **environment)
            says = partial(waiting.says, "waiting for")
            waiting.wait_until(waiting.is_ready)
            is_told = waiting.wait_until(says, WAIT_SECONDS + 8)
            said = waiting.read("stderr")
            holder.signal(signal.SIGCONT)
            ends = [command.end() for command in (holder, waiting)]
            problems = [problem for ended in ends for problem in ended.problems()]
            problems += [f"lost: {ended.code} {ended.last}" for ended in ends if ended.code]
            if not is_told:
                problems.append(f"silent: nothing said within {WAIT_SECONDS + 8:g} s")
            elif LOCK not in said:
                problems.append("silent: it does not say which lock it waits for")
            row.count(*problems)
            yield row


# --- a hostile endpoint ---


@contextmanager
def endpoint(world: World) -> Iterator:
    """A completions endpoint that serves the tiny model, until it is told otherwise."""
    import threading

    from api_server import Server

    server = Server(world.model)
    server.handle_error = lambda *_: None  # whoever asked has gone
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def of_api(server: object) -> dict[str, str]:
    from api_server import KEY

    return {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}


def drip(handler: object, head: bytes, chunk: bytes, n: int = 2000) -> bool:
    """Bytes one after the other, each soon enough to be waited for."""
    handler.close_connection = True
    try:
        handler.wfile.write(head)
        for _ in range(n):
            handler.wfile.write(chunk)
            time.sleep(0.05)
    except OSError:  # whoever asked has gone
        pass
    return True


def with_model_name(name: str) -> Callable:
    """A whole reply that writes a name with JSON's escapes alone."""
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in name)

    def answer(handler: object, body: dict) -> bool:
        reply = json.dumps(handler.server.complete(body) | {"model": "@"})
        return handler.send(200, reply.replace('"@"', f'"{escaped}"'))

    return answer


def hostile_ways() -> dict[str, tuple[str, Callable]]:
    """What an endpoint may do: before it answers, or to its answer."""
    from api_server import KEY, of_logprobs, sends, set_log_prob

    long, start = "x" * 2**21, b"HTTP/1.1 200 OK\r\n"
    to = {"Location": "http://elsewhere.example/v1/completions"}
    return {
        "fewer log-probs than tokens": ("change", of_logprobs(lambda of: of["token_logprobs"].pop())),
        "a token too few": (
            "change",
            of_logprobs(lambda of: [of[name].pop() for name in 2 * ["tokens", "token_logprobs"]]),
        ),
        "NaN": ("change", set_log_prob(2, float("nan"))),
        "infinite": ("change", set_log_prob(2, float("-inf"))),
        "positive": ("change", set_log_prob(2, 0.5)),
        "a string for a number": ("change", set_log_prob(2, "-1.5")),
        "other tokens": ("change", of_logprobs(lambda of: of["tokens"].__setitem__(2, "XYZ"))),
        "no choices": ("change", lambda reply: reply["choices"].clear()),
        "the key as the model's name": ("change", lambda reply: reply.update(model=f"tiny {KEY}")),
        "the key in escapes as the model's name": ("before", with_model_name("\x1b[31m" + KEY)),
        "the key as a token": ("change", of_logprobs(lambda of: of["tokens"].__setitem__(2, KEY))),
        "JSON of great depth": ("before", lambda handler, body: handler.send(200, "[" * 10**5)),
        "no JSON": ("before", lambda handler, body: handler.send(200, f"<p>{KEY}</p>", "text/html")),
        "another host": ("before", lambda handler, body: handler.send(307, "", **to)),
        "an address with the key": ("before", lambda h, body: h.send(307, "", Location=f"http://{KEY}.example/")),
        "a huge reply": ("before", lambda handler, body: handler.send(200, json.dumps({"model": long, "choices": []}))),
        "a huge refusal": ("before", lambda handler, body: handler.refuse(400, f"{KEY} {long}")),
        "an endless reply": ("before", lambda handler, body: sends(handler, b" " * 65536, 10**4)),
        "a slow reply": ("before", lambda handler, body: drip(handler, start + b"\r\n", b" ")),
        "a slow head": ("before", lambda handler, body: drip(handler, start + b"X-A: ", b"a")),
        "an endless head": ("before", lambda handler, body: drip(handler, start, b"X-A: b\r\n" * 4096, 10**3)),
        "silence": ("before", lambda handler, body: bool(time.sleep(4)) or True),
        "a closed connection": ("before", lambda handler, body: handler.connection.close() or True),
        "a 500 with the key": ("before", lambda handler, body: handler.refuse(500, f"broken {KEY}")),
        "a 400 with the key": ("before", lambda handler, body: handler.refuse(400, f"bad {KEY}")),
        "a 401 with the key": ("before", lambda handler, body: handler.refuse(401, f"wrong {KEY}")),
        "a 429 for a day": ("before", lambda h, body: h.refuse(429, f"{KEY}", Retry_After=86400)),
    }


def hostile(world: World) -> Iterator[Row]:
    harmless = {"the key as the model's name", "the key in escapes as the model's name"}  # the answer is right
    with endpoint(world) as server:
        kept, healthy = (server.before, server.change), None
        healthy = run("detect", world.few, "--model", "api:tiny", "--json", home=world.new(), **of_api(server))
        bound = healthy.seconds + 2 * REPLY_SECONDS + 15  # two tries, on a busy machine
        for title, (name, way) in hostile_ways().items():
            row, home = Row(f"endpoint: {title}"), world.new()
            server.before, server.change = kept
            setattr(server, name, way)
            server.of_probe = server.before
            arguments = ("detect", world.few, "--model", "api:tiny", "--json")
            ended = run(*arguments, home=home, patches=(("impatient",),), **of_api(server))
            problems = list(judged(ended, healthy.out if title in harmless else "no answer", home=home))
            if ended.seconds > bound:
                problems.append(f"hang: {ended.seconds:.0f} s, over {bound:.0f} s")
            if any(home.rglob("*.replies.jsonl")) and title not in harmless:
                problems.append("silent: a bad reply is kept")
            row.count(*problems)
            yield row


def damaged_replies(world: World) -> Iterator[Row]:
    from api_server import stop_after

    with endpoint(world) as server:
        answer_all = server.before

        def ask(home: Path, **environment: object) -> Ended:
            server.before = answer_all
            arguments = ("detect", world.few, "--model", "api:tiny", "--detector", "ppl", "--json")
            return run(*arguments, home=home, patches=(("impatient", 0),), **of_api(server), **environment)

        def break_off(home: Path, **environment: object) -> Ended:
            server.before = stop_after(5)
            arguments = ("detect", world.few, "--model", "api:tiny", "--detector", "ppl", "--json")
            return run(*arguments, home=home, patches=(("impatient", 0),), **of_api(server), **environment)

        with_tokenizer = partial(break_off, MIALIB_API_TOKENIZER=world.model)
        kept = kept_by(world, "replies", break_off, with_tokenizer, ask)
        yield from damage(world, kept, REPLIES, ask(world.new()).out)


# --- damaged models ---


def edit_weights(folder: Path, edit: Callable[[dict], object]) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    weights = load_file(file)
    edit(weights)
    save_file(weights, file, metadata={"format": "pt"})


def edit_config(folder: Path, **settings: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def poison(folder: Path, name: str) -> None:
    """A pickle in the place of the weights, which makes a folder when it is read."""
    import pickle

    class Poison:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(folder / "poisoned"),)

    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps({"lm_head.weight": Poison()}))


INNER = "gpt_neox.layers.1.attention.dense.weight"
MODELS = {
    "a missing tensor": lambda folder: edit_weights(folder, lambda w: w.pop(INNER)),
    "a renamed tensor": lambda folder: edit_weights(folder, lambda w: w.update(renamed=w.pop(INNER))),
    "a cut weights file": lambda folder: halve(folder / "model.safetensors", folder),
    "an empty weights file": lambda folder: empty(folder / "model.safetensors", folder),
    "a config of more layers": lambda folder: edit_config(folder, num_hidden_layers=3),
    "a config of fewer layers": lambda folder: edit_config(folder, num_hidden_layers=1),
    "a config that is no JSON": lambda folder: halve(folder / "config.json", folder),
    "no tokenizer": lambda folder: [file.unlink() for file in folder.glob("*token*")],
    "a cut tokenizer": lambda folder: halve(folder / "tokenizer.json", folder),
    "weights all alike": lambda folder: edit_weights(folder, lambda w: [t.fill_(0.25) for t in w.values()]),
    "a weight that is NaN": lambda folder: edit_weights(folder, lambda w: w[INNER].fill_(float("nan"))),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "a pickle named .safetensors": lambda folder: poison(folder, "model.safetensors"),
    "a pickle named .bin": lambda folder: poison(folder, "pytorch_model.bin"),
}


def damaged_models(world: World) -> Iterator[Row]:
    home, folder = world.new(), world.folder / "copy"
    arguments = ("detect", world.few, "--model", folder, "--detector", "min_k", "--json")
    shutil.copytree(world.model, folder)
    run(*arguments, home=home)
    for title, do in MODELS.items():
        row = Row(f"model: {title}")
        shutil.rmtree(folder)
        shutil.copytree(world.model, folder)
        do(folder)
        ended = run(*arguments, home=home)
        is_run = (folder / "poisoned").exists()
        row.count(*judged(ended, "no answer", str(folder)), *(["poison: the pickle's code ran"] if is_run else []))
        yield row


# --- the table ---

GROUPS: dict[str, Callable[[World], Iterator[Row]]] = {
    "start": signals_while_starting,
    "score": kills_while_scoring,
    "train": kills_while_training,
    "ask": kills_while_asking,
    "disk": disks,
    "memory": memory,
    "files": damaged_files,
    "lab": damaged_lab,
    "replies": damaged_replies,
    "together": at_once,
    "lock": stopped_holder,
    "hostile": hostile,
    "models": damaged_models,
}


def table(rows: list[Row]) -> str:
    """The rows as text, with what was not as it should be below."""
    names = [f.name for f in fields(Row) if f.name != "notes"]
    cells = [names, *([cell(getattr(row, name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    ]
    below = [f"{row.fault}: {note}" for row in rows for note in row.notes]
    return "\n".join([*lines, "", *below])


def cell(value: object) -> str:
    return "" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def inject(groups: list[str], is_quick: bool, say: Callable[[str], None] = lambda said: None) -> list[Row]:
    """Do all faults of some groups, of all where none is named."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["OMP_NUM_THREADS"] = "1"
    forks()
    forkserver.ensure_running()  # it imports what commands need, meanwhile
    rows = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        world = World(Path(folder), is_quick)
        for name in groups or GROUPS:
            began = time.monotonic()
            for row in GROUPS[name](world):
                rows.append(row)
                for note in row.notes:
                    say(f"{row.fault}: {note}")
            say(f"{name}: {time.monotonic() - began:.0f} s")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What comes of faults that are done on purpose.")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="these alone")
    parser.add_argument("--quick", action="store_true", help="fewer tries of each")
    given = parser.parse_args()
    rows = inject(given.groups, given.quick, partial(print, file=sys.stderr, flush=True))
    print(table(rows))
    sys.exit(any(row.notes for row in rows))


if __name__ == "__main__":
    import faults  # by its own name, which processes that are forked find it by

    faults.main()
