"""Find the command and hand over to its module."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, cast

from weightd import __version__

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "serve": "run the daemon that owns a directory of models",
    }
)
"""Each command, in the module of its name beside this one, and what it does."""


class Command(Protocol):
    """What a command's module provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and say the exit code."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and answer its exit code; argparse exits 2 by itself."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    chosen = _parser().parse_args(given[:1]).command
    command = cast("Command", importlib.import_module(f"weightd.cli.{chosen}"))
    parser = argparse.ArgumentParser(
        prog=f"weightd {chosen}", description=f"{COMMANDS[chosen]}.", allow_abbrev=False
    )
    command.add_arguments(parser)
    return command.run(parser.parse_args(given[1:]))


def _parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<10}{does}" for name, does in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="weightd",
        description="A node-local cache for model weights, within a byte budget.",
        epilog=f"commands:\n{listing}\n\n`weightd COMMAND --help` says more of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"weightd {__version__}")
    parser.add_argument(
        "command", metavar="COMMAND", choices=list(COMMANDS), help="one of those below"
    )
    return parser
