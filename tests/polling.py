"""Waiting, within a bound, for what nothing announces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

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


async def eventually(
    probe: Callable[[], object] | Callable[[], Awaitable[object]], *, within: float = WITHIN
) -> Any:
    """Ask until the answer is true, while the loop goes on, and give it; it may be awaited."""
    async with asyncio.timeout(within):
        while True:
            answer = probe()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(PAUSE)
