"""What the exit code of a command says; the one place where they are numbered."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final


class Exit:
    """A miss, too-large and blocked are three different answers here as everywhere.

    No enumeration: to import what makes one takes as long as a lookup.
    """

    OK: Final = 0
    ERROR: Final = 1
    USAGE: Final = 2
    NOT_RESIDENT: Final = 3
    TOO_LARGE: Final = 4
    BLOCKED: Final = 5
    UNREACHABLE: Final = 6
    INTERRUPTED: Final = 130


_BY_CODE: Final[Mapping[str, int]] = {
    "invalid-key": Exit.USAGE,
    "invalid-request": Exit.USAGE,
    "not-resident": Exit.NOT_RESIDENT,
    "too-large": Exit.TOO_LARGE,
    "blocked": Exit.BLOCKED,
    "unreachable": Exit.UNREACHABLE,
    "socket-forbidden": Exit.UNREACHABLE,
    "no-answer": Exit.UNREACHABLE,
}


def exit_of(code: str) -> int:
    """The exit code for an error's code."""
    return _BY_CODE.get(code, Exit.ERROR)
