"""The command line by argparse: the command, its arguments, and advice on what is mistyped."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol, cast

from weightd import __version__
from weightd.cli.exits import Exit
from weightd.cli.guard import guarded
from weightd.cli.main import COMMANDS


class Command(Protocol):
    """What a command's module provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and say the exit code."""
        ...


class Formatter(argparse.HelpFormatter):
    """Knows how wide it is by itself.

    argparse asks shutil at every argument that is added, and what that loads
    (three kinds of compression) takes longer than a lookup.
    """

    def __init__(self, prog: str, **how: Any) -> None:
        super().__init__(prog, width=_width() - 2, **how)


class _Raw(Formatter, argparse.RawDescriptionHelpFormatter):
    """The same, where lines are kept as they are."""


def _width() -> int:
    """The columns of the terminal, or those that COLUMNS says."""
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class Parser(argparse.ArgumentParser):
    """Takes no abbreviations, and knows what a mistyped flag was meant to be."""

    def __init__(self, formatter_class: Any = Formatter, **how: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=formatter_class, **how)

    def parse_all(self, given: Sequence[str], more: str = "") -> argparse.Namespace:
        """Parse, or end with exit code 2 and advice, which is ``more`` of a word too many."""
        arguments, unknown = self.parse_known_args(given)
        if unknown:
            if more and not unknown[0].startswith("-"):
                self.error(f"unrecognized argument {unknown[0]}; {more}")
            # A value without a flag before it is what the mistyped flag was given.
            flags = [one for one in unknown if one.startswith("-")]
            self.error("; ".join(self._advice(one) for one in flags or unknown))
        return arguments

    def flags(self) -> list[str]:
        """Every flag it takes."""
        return sorted(self._option_string_actions)

    def _advice(self, unknown: str) -> str:
        import difflib

        flag = unknown.partition("=")[0]
        near = difflib.get_close_matches(flag, list(self._option_string_actions), n=1)
        meant = f", did you mean {near[0]}?" if near else ""
        return f"unrecognized argument {unknown}{meant}"


def run_parsed(given: Sequence[str]) -> int:
    """Run a command line and answer its exit code; argparse exits 2 by itself."""
    first = _parser()
    if not given:
        first.print_help(sys.stderr)
        return Exit.USAGE
    chosen = first.parse_args(given[:1]).command
    command = cast("Command", importlib.import_module(f"weightd.cli.{chosen}"))
    parser = Parser(prog=f"weightd {chosen}", description=f"{COMMANDS[chosen]}.")
    _add_version(parser)
    command.add_arguments(parser)
    own, become = _parted(given[1:]) if chosen == "run" else (given[1:], [])
    behind = "a command stands behind --, such as: -- vllm serve {path}"
    read = parser.parse_all(own, behind if chosen == "run" and not become else "")
    if chosen == "run":
        read.become = become
    return guarded(lambda: command.run(read))


def _parted(given: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before the first ``--`` and what stands after it."""
    if "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def _parser() -> Parser:
    listing = "\n".join(f"  {name:<12}{does}" for name, does in COMMANDS.items())
    parser = Parser(
        prog="weightd",
        description="A node-local cache for model weights, within a byte budget.",
        epilog=f"commands:\n{listing}\n\n`weightd COMMAND --help` says more of each.",
        formatter_class=_Raw,
    )
    _add_version(parser)
    parser.add_argument(
        "command", metavar="COMMAND", choices=list(COMMANDS), help="one of those below"
    )
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version",
        action="version",
        version=f"weightd {__version__}",
        help="print the version and exit",
    )
