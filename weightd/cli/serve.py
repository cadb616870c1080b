"""``weightd serve``: check the settings, then become the daemon."""

from __future__ import annotations

import argparse
import os
import sys

from weightd.cli.exits import Exit
from weightd.cli.output import Unwritable, note, say, stand_in_for_closed
from weightd.settings import (
    Budget,
    Settings,
    SettingsError,
    describe,
    load_fit,
    options,
    shortage_at,
)
from weightd.systemd_journal import ERROR, is_journal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give every setting its flag; their values are checked together with the other sources'."""
    parser.epilog = (
        "Each setting is also a variable (WEIGHTD_CAPACITY) and a key of the TOML file "
        "(capacity). A flag wins over a variable, a variable over the file. In the file alone: "
        f"{_only_in_the_file()}."
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print the settings in force, or everything that is wrong with them, and exit",
    )
    for option in options():
        if option.file_only:
            continue
        parser.add_argument(
            option.flag,
            dest=option.name,
            metavar=option.word,
            default=argparse.SUPPRESS,
            help=f"{option.description} Default: {option.default}.".replace("%", "%%"),
        )


def _only_in_the_file() -> str:
    return "; ".join(
        f"{option.name}. {option.description} Default: {option.default}"
        for option in options()
        if option.file_only
    ).replace("%", "%%")


def run(arguments: argparse.Namespace) -> int:
    flags = dict(vars(arguments))
    check = flags.pop("check")

    def read() -> tuple[Settings, Budget]:
        loaded, budget = load_fit(flags, taken=True)
        return loaded.settings, budget

    try:
        loaded, budget = load_fit(flags, taken=not check)
    except SettingsError as error:
        return _refuse(error.problems, Exit.USAGE)
    if check:
        say(describe(loaded, budget))
        if short := shortage_at(loaded.settings.root, budget.capacity, budget.min_free):
            say(f"note: {short}")
        return Exit.OK
    stand_in_for_closed()
    # The daemon takes most of a second to import; --check and --help do without it.
    from weightd.daemon import StartRefused, serve

    try:
        serve(loaded.settings, budget, announce=_announce, read=read)
    except StartRefused as error:
        return _refuse(error.problems, Exit.ERROR)
    return Exit.OK


def _refuse(problems: tuple[str, ...], code: int) -> int:
    priority = ERROR if is_journal(os.environ, sys.stderr) else ""
    for problem in problems:
        note(problem, priority)
    return code


def _announce(lines: str) -> None:
    """A daemon that works does not end because nobody can be told so."""
    try:
        say(lines)
    except Unwritable as error:
        # The daemon has it by now, and other commands do without.
        import logging

        figures = {"reason": str(error)}
        logging.getLogger(__name__).warning("the output cannot be written", extra=figures)
