"""Which package brings which command, for `mialib --help` and for a command whose package is missing."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

BOOK = (
    *("build", "notebook", "pdf", "student", "grade", "slides", "column", "plan", "lock", "lab", "view"),
    *("record", "record-lab", "record-blind", "record-real", "record-passes", "construct", "bench", "coverage"),
)
PACKAGE_OF = dict.fromkeys(("audit", "canaries", "recite"), "mialib-audit") | dict.fromkeys(BOOK, "mialib-replication")
FOLDERS = {"mialib-audit": "./audit", "mialib-replication": "./audit ./book"}  # that `pip install` takes in a clone


class Commands(TyperGroup):
    """The commands of all installed packages."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; a usage error if its package is not installed."""
        if (package := PACKAGE_OF.get(args[0])) and args[0] not in self.commands:
            ctx.fail(f"`mialib {args[0]}` comes with {package}: in a clone, `pip install {FOLDERS[package]}`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by package."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            help_text = command.get_short_help_str(formatter.width - 6 - max(map(len, self.commands)))
            rows.setdefault(PACKAGE_OF.get(name, "mialib"), []).append((name, help_text))
        for package in filter(rows.get, ("mialib", *FOLDERS)):
            with formatter.section(f"Commands of {package}"):
                formatter.write_dl(rows[package])
