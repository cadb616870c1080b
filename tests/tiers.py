"""How much is tried, as a variable says.

A plain run tries everything once: every failpoint, every story, every fault.
``make test-thorough`` tries every combination of them, and searches longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
W = TypeVar("W")

THOROUGH: Final = os.environ.get("WEIGHTD_THOROUGH") == "1"
"""Whether an hour is no matter."""


def crossed(
    things: Iterable[T], ways: Sequence[W], *, all_of_them: bool = THOROUGH
) -> list[tuple[T, W]]:
    """Each thing in every way; in a plain run each in one way, and the ways by turns.

    >>> crossed(["put", "get", "pin"], ["before", "after"], all_of_them=False)
    [('put', 'before'), ('get', 'after'), ('pin', 'before')]
    """
    return [
        (thing, way)
        for number, thing in enumerate(things)
        for turn, way in enumerate(ways)
        if all_of_them or turn == number % len(ways)
    ]
