"""Whether what goes on by itself goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

FAILURES_MAX: Final = 3
WITHIN_SECONDS: Final = 300.0
"""A loop that failed so often within so long is not well, though it was begun again."""


class Health:
    """Remembers the failures of the cache's loops that nobody expected."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def failed(self, loop: str) -> None:
        """A loop ended by an error that is a bug."""
        self._failures.setdefault(loop, deque(maxlen=FAILURES_MAX)).append(self._clock())

    @property
    def ailing(self) -> tuple[str, ...]:
        """The loops that keep failing."""
        since = self._clock() - WITHIN_SECONDS
        return tuple(
            sorted(
                loop
                for loop, at in self._failures.items()
                if len(at) == FAILURES_MAX and at[0] >= since
            )
        )
