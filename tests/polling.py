"""Waiting, within a bound, for what nothing announces."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

WITHIN: Final = 60.0
"""Seconds: far more than anything takes, on a machine where much else runs."""

PAUSE: Final = 0.02


def _nothing() -> str:
    return ""


def until(
    probe: Callable[[], T], said: Callable[[], object] = _nothing, *, within: float = WITHIN
) -> T:
    """Ask until the answer is true, and give it; ``said`` explains when it never is."""
    bound = time.monotonic() + within
    while not (answer := probe()):
        assert time.monotonic() < bound, said()
        time.sleep(PAUSE)
    return answer


def until_nothing(
    left: Callable[[], object], said: Callable[[], object] = _nothing, *, within: float = WITHIN
) -> None:
    """Ask until nothing is left; what still is, and ``said``, explain when it stays."""
    bound = time.monotonic() + within
    while remains := left():
        assert time.monotonic() < bound, (remains, said())
        time.sleep(PAUSE)
