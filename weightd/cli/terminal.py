"""What the terminal can do: its width, its colours, a line that is written over.

And what it must not be made to do: names of processes and words of origins are
whoever wrote them's, and a terminal obeys what is hidden in them.
"""

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
    }
)


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def is_live(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what was written there can be written over."""
    return is_terminal(stream) and environ.get("TERM", "dumb") != "dumb"


def width_of(stream: TextIO | None) -> int | None:
    """How many columns there are; None where nobody looks at lines."""
    if stream is None or not is_terminal(stream):
        return None
    return max(20, shutil.get_terminal_size().columns)


def has_colours(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour: only a terminal, and not where NO_COLOR or TERM says otherwise."""
    return not environ.get("NO_COLOR") and is_live(stream, environ)


def coloured(text: str, name: str, wanted: bool) -> str:
    """The text in a colour, where colours are wanted."""
    return f"\x1b[{COLOURS[name]}m{text}\x1b[0m" if wanted else text


def is_utf8(stream: TextIO | None) -> bool:
    """Whether the stream takes more than ASCII."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding == "utf8"


def visible(text: str) -> str:
    """The text with what a terminal would act upon written out.

    >>> visible("weights of 漢字"), visible("\x1b[2Jgone")
    ('weights of 漢字', '\\\\x1b[2Jgone')
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def columns_of(text: str) -> int:
    """How many columns a text takes.

    >>> columns_of("weights"), columns_of("漢字"), columns_of("e\u0301")
    (7, 4, 1)
    """
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF")
        for one in text
    )


def clipped(text: str, columns: int) -> str:
    """As much of the start of a text as fits into so many columns.

    >>> clipped("weights", 5), clipped("漢字", 3)
    ('weigh', '漢')
    """
    if text.isascii():
        return text[: max(0, columns)]
    while columns_of(text) > columns:
        text = text[:-1]
    return text


class Status:
    """One line on stderr that is written over as things go on, on a terminal only."""

    def __init__(self) -> None:
        self._width = width_of(sys.stderr) if is_live(sys.stderr) else None
        self._shown = False

    @property
    def width(self) -> int | None:
        return self._width

    def show(self, line: str) -> None:
        if self._width is None:
            return
        # Cleared to the end of the line, since the one before may have been longer.
        shown = clipped(visible(line), self._width - 1)
        print(f"\r{shown}\x1b[K", end="", file=sys.stderr, flush=True)
        self._shown = True

    def clear(self) -> None:
        """Leave nothing of it."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False
