"""What the terminal can do: its width, its colours, a line that is written over."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TextIO

# The sixteen colours every theme sets for itself, so that dark and light stay readable.
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "held": "35",
        "pinned": "34",
        "idle": "32",
        "arriving": "33",
        "doomed": "31",
        "others": "36",
        "title": "1",
        "faint": "2",
    }
)


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def width_of(stream: TextIO | None) -> int | None:
    """How many columns there are; None where nobody looks at lines."""
    if stream is None or not is_terminal(stream):
        return None
    return max(20, shutil.get_terminal_size().columns)


def has_colours(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour: only a terminal, and not where NO_COLOR or TERM says otherwise."""
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return False
    return is_terminal(stream)


def coloured(text: str, name: str, wanted: bool) -> str:
    """The text in a colour, where colours are wanted."""
    return f"\x1b[{COLOURS[name]}m{text}\x1b[0m" if wanted else text


def is_utf8(stream: TextIO | None) -> bool:
    """Whether the stream takes more than ASCII."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding == "utf8"


class Status:
    """One line on stderr that is written over as things go on, on a terminal only."""

    def __init__(self) -> None:
        self._width = width_of(sys.stderr)
        self._shown = False

    @property
    def width(self) -> int | None:
        return self._width

    def show(self, line: str) -> None:
        if self._width is None:
            return
        # Cleared to the end of the line, since the one before may have been longer.
        print(f"\r{line[: self._width - 1]}\x1b[K", end="", file=sys.stderr, flush=True)
        self._shown = True

    def clear(self) -> None:
        """Leave nothing of it."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False
