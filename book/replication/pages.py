"""What every page calls: its parameters as lists and targets, its columns as inputs, and whether a benchmark leaks."""

import linecache
import traceback
from collections import Counter
from collections.abc import Sequence
from reprlib import repr as short_repr  # of any value, however long
from string import ascii_lowercase
from types import TracebackType
from typing import Any

import numpy as np
from IPython.core.formatters import format_display_data
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import Markdown, display
from numpy.typing import NDArray
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from mialib.catalog.hub import Unavailable
from mialib.catalog.sources import find
from mialib.models import device_type
from mialib.passes.inputs import Inputs, Target, load_inputs
from mialib.shared.schema import one_line
from replication import blind_tables
from replication.lab.recipes import by_group
from replication.lab.source import Lab
from replication.profile import INSTALLS, check_names, names_given
from replication.recorded import Recorded

FIELDS = {"benchmarks": "benchmark", "references": "reference", "corpora": "corpus"}  # parameters, as `Target` has them

GLUE_PREFIX = "application/papermill.record/"  # MyST-NB's
BILLIONS_WITHOUT_GPU = 2  # the largest model that a processor scores in some hours


def begin() -> None:
    """Check papermill's parameters, and give errors, figures and tables the book's look; a page's first line.

    ValueError for a parameter that the page lacks. In a build, whose results go to `out`, `check_size` of its models:
    nobody waits days for a page.
    """
    from replication.figures import use_style  # its imports take seconds

    use_style()
    if shell := get_ipython():
        shell.set_custom_exc((ValueError, OSError, MemoryError), _show_error)
        for model in as_list(shell.user_ns.get("models")) if shell.user_ns.get("out") else ():
            check_size(model)
        match [cell for cell in shell.user_ns.get("In", []) if not cell.startswith(INSTALLS)]:
            # Papermill only warns. It runs its own cell after the page's parameters; a reader may run cells otherwise.
            case ["", parameters, injected, _] if injected.startswith("# Parameters\n"):
                check_names(names_given(injected), names_given(parameters), "this page has no parameter")


def check_size(model: str) -> None:
    """Unavailable for a model so large, by its config, that a processor would take days, where there is no GPU."""
    source = find(model)
    if source.has_weights and source.is_fetched and device_type() == "cpu":
        billions = source.count_parameters(embeddings=True) / 1e9
        if billions > BILLIONS_WITHOUT_GPU:
            raise Unavailable(
                f"{model} has {billions:.1f} billion parameters, and this machine has no GPU; `mialib score` scores it "
                "all the same, if you have the days"
            )


def _show_error(
    shell: InteractiveShell, kind: type[Exception], error: Exception, trace: TracebackType, tb_offset: int | None = None
) -> None:
    """Show an error without its traceback where mialib or the page raises it in words of their own.

    A ValueError of Python's or another library's keeps it: it may be a bug.
    """
    *_, (frame, line) = traceback.walk_tb(trace)
    is_ours = frame.f_globals.get("__name__", "").partition(".")[0] in ("mialib", "replication", "__main__")
    is_worded = is_ours and linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise ")
    is_short = is_worded or not isinstance(error, ValueError)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset, exception_only=is_short)


def as_list(value: Any) -> list[str]:
    """A notebook parameter as a list: a YAML list from a profile, or comma-separated text from papermill's `-p`.

    Papermill makes a number of a name such as 5: here it is a name again. An entry without a value is "-".
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    entries = value if isinstance(value, Sequence) else [value]
    return ["-" if entry is None else str(entry) for entry in entries]


def optional(value: Any) -> Any:
    """A notebook parameter that may be none: "-" and the empty string are."""
    return None if value in ("", "-", None) else value


def numbers(value: Any, name: str) -> list[float]:
    """A notebook parameter as finite numbers; ValueError, with the parameter's name, for anything else."""
    try:
        return TypeAdapter(list[FiniteFloat]).validate_python(entries := as_list(value))
    except ValidationError as error:
        wrong = entries[int(error.errors()[0]["loc"][0])]
        raise ValueError(f"{name}: a finite number is expected, got {short_repr(wrong)}") from None


def whole_numbers(value: Any, name: str) -> list[int]:
    """A notebook parameter as positive whole numbers; ValueError, with the parameter's name, for anything else."""
    entries = as_list(value)
    if wrong := [entry for entry in entries if not entry.isdecimal() or int(entry) < 1]:
        raise ValueError(f"{name}: a positive whole number is expected, got {short_repr(wrong[0])}")
    return [int(entry) for entry in entries]


def lengths_of(value: Any) -> list[int | None]:
    """A notebook parameter as lengths in words, None for whole texts: "-"."""
    return [None if optional(n) is None else whole_numbers(n, "lengths")[0] for n in as_list(value)] or [None]


def one_for_each(value: Any, n: int, name: str, things: str = "columns") -> list[Any]:
    """A notebook parameter with an entry for each of `n` things, or one for all of them; None for an empty or "-"."""
    entries = [optional(entry) for entry in as_list(value)] or [None]
    if len(entries) not in (1, n):
        of_what = f"{n} {things if n > 1 else things.removesuffix('s')}"
        raise ValueError(
            f"{name}: {len(entries)} entries for {of_what}; give one for all, or one for each with commas between: "
            f"-p {name} {','.join(ascii_lowercase[:n])}"
        )
    return entries * n if len(entries) == 1 else entries


def targets(
    models: Any, benchmarks: Any, references: Any = None, corpora: Any = None, start_token: str = "auto", **others: Any
) -> list[Target]:
    """One target for each model; each other list is as long as `models`, or holds one entry for all, or is empty.

    An empty entry, or "-", means that there is none. `start_token` is prepended to each text, "none" for nothing.
    `others` are further fields of `Target` (`published=`, `masked=`). ValueError for lists of other lengths, and for
    two equal columns.
    """
    names = as_list(models)
    if not names:
        raise ValueError("models: at least one model is needed")
    lists = {"benchmarks": benchmarks, "references": references, "corpora": corpora} | others
    fields = {FIELDS.get(key, key): one_for_each(of, len(names), key, "models") for key, of in lists.items()}
    if None in fields["benchmark"]:
        raise ValueError("benchmarks: each model needs one")
    rows = [{key: of[i] for key, of in fields.items() if of[i] is not None} for i in range(len(names))]
    try:
        made = [Target(model=model, start_token=start_token, **row) for model, row in zip(names, rows, strict=True)]
    except ValidationError as error:
        raise ValueError(one_line(error)) from None
    for column, n in Counter(target.column for target in made).items():
        if n > 1:
            raise ValueError(f"{column!r} is asked for twice; a page has one column for each")
    return made


def load_columns(
    models: Any, benchmarks: Any, references: Any = None, corpora: Any = None, **others: Any
) -> list[Inputs]:
    """The inputs of each of `targets`; nothing is scored before a detector asks for it."""
    columns = [load_inputs(target) for target in targets(models, benchmarks, references, corpora, **others)]
    for inputs in columns:
        check_enough(inputs.target.benchmark, inputs.labels)
    return columns


def last_of_each(columns: Sequence[Inputs]) -> list[Inputs]:
    """Each benchmark's last model, for what has no room for all: where they are in order of size, the largest."""
    return [*{of.target.benchmark: of for of in columns}.values()]


def check_enough(benchmark: str, labels: NDArray[np.integer], needed: int = 2) -> None:
    """ValueError where a benchmark has fewer than `needed` members or non-members."""
    n_members = int(labels.sum())
    if min(n_members, len(labels) - n_members) < needed:
        raise ValueError(
            f"{benchmark} has {n_members} members and {len(labels) - n_members} non-members; this page needs at least "
            f"{needed} of each"
        )


def times_inserted(inputs: Inputs, repeats: Any = "") -> NDArray[np.int64]:
    """How often the model has seen each text in training, (N,), 0 for a non-member.

    As `repeats` says of equal consecutive groups of members, else as `times_known`. ValueError where nothing says it,
    or all members were seen equally often.
    """
    model, is_member, times = inputs.target.model, inputs.labels == 1, times_known(inputs)
    if counts := whole_numbers(repeats, "repeats"):
        times = np.zeros(len(is_member), np.int64)
        times[is_member] = by_group(counts, int(is_member.sum()))
    if times is None:
        raise ValueError(
            f"{model}: it is not known how often it has seen each member; give `repeats`, such as 1,4,16, "
            "for equal consecutive groups of members"
        )
    if np.ptp(times[is_member]) == 0:
        raise ValueError(f"{model}: all members were seen {times.max()} times; a model with repeats is needed")
    return times


def times_known(inputs: Inputs) -> NDArray[np.int64] | None:
    """How often the model has seen each text, (N,), as benchmark, recipe or recording says; None where none does."""
    if inputs.benchmark and inputs.benchmark.times:
        return np.array(inputs.benchmark.times)
    model = inputs.source
    return model.times_seen(inputs.texts) if isinstance(model, Lab | Recorded) else None


def check_same_members(columns: Sequence[Inputs]) -> None:
    """ValueError unless all columns have the members of the first, so that only their non-members differ."""
    first, *others = [{c.texts[i] for i in np.flatnonzero(c.labels == 1)} for c in columns]
    for column, members in zip(columns[1:], others, strict=True):
        if members != first:
            raise ValueError(
                f"{columns[0].target.benchmark} and {column.target.benchmark} have different members "
                f"({len(first - members)} of the first's {len(first)} are not in the second); "
                "give the same members with other non-members"
            )


def glue(**values: Any) -> None:
    """Numbers and words that a text takes as {glue:text}`name:.3f`, and HTML that it takes as {glue}`name`.

    They are printed where a notebook runs without the book.
    """
    if shell := get_ipython():
        for name, value in values.items():
            plain = value.item() if isinstance(value, np.generic) else value
            is_shown_so = isinstance(plain, int | float) or hasattr(plain, "_repr_html_")
            shown = plain if is_shown_so else str(plain)
            # MyST-NB's own `glue`, whose import takes seconds.
            formats, metadata = format_display_data(shown)
            metadata["scrapbook"] = {"name": name, "mime_prefix": GLUE_PREFIX}
            display({GLUE_PREFIX + mime: data for mime, data in formats.items()}, raw=True, metadata=metadata)
            if not shell.user_ns.get("out"):
                print(f"{name}: {shown}")


def leak_note(benchmarks: Any) -> Markdown:
    """A sentence for each of a page's benchmarks: whether baselines that see no model tell its members."""
    return Markdown(blind_tables.leak_text(as_list(benchmarks)))
