"""What the exit code of a command says; the one place where they are numbered."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """A miss, too-large and blocked are three different answers here as everywhere."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_RESIDENT = 3
    TOO_LARGE = 4
    BLOCKED = 5
    UNREACHABLE = 6
