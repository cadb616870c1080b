"""What the exit code of a command says; the one place where they are numbered."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """A miss, too-large and blocked are three different answers here as everywhere."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_RESIDENT = 3
    TOO_LARGE = 4
    BLOCKED = 5
    UNREACHABLE = 6
    INTERRUPTED = 130


_BY_CODE: Final[Mapping[str, Exit]] = {
    "invalid-key": Exit.USAGE,
    "invalid-request": Exit.USAGE,
    "not-resident": Exit.NOT_RESIDENT,
    "too-large": Exit.TOO_LARGE,
    "blocked": Exit.BLOCKED,
    "unreachable": Exit.UNREACHABLE,
    "socket-forbidden": Exit.UNREACHABLE,
    "no-answer": Exit.UNREACHABLE,
}


def exit_of(code: str) -> Exit:
    """The exit code for an error's code."""
    return _BY_CODE.get(code, Exit.ERROR)
