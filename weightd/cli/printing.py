"""Printing a table, or the same for a program."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from weightd.cli.output import say
from weightd.cli.tables import Column, table
from weightd.cli.terminal import coloured, has_colours, width_of


def say_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], otherwise: str) -> None:
    """Print a table as wide as the terminal, or one line when there is nothing in it."""
    if not rows:
        say(otherwise)
        return
    titles, *lines = table(columns, rows, width_of(sys.stdout))
    say("\n".join([coloured(titles, "title", has_colours(sys.stdout)), *lines]))
