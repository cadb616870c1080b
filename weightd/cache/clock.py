"""One timeline for recency, leases and reports."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch that never run backwards."""

    def now(self) -> float: ...

    def not_before(self, instant: float) -> None:
        """Never answer less than ``instant`` from now on."""
        ...


class SteadyClock:
    """The wall clock as it stood at start, carried on by a clock that nobody can set.

    A jump of the wall clock moves neither the order of eviction nor the end of
    a lease.  The carrying clock counts through a suspend of the machine.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        return self._offset + time.clock_gettime(time.CLOCK_BOOTTIME)

    def not_before(self, instant: float) -> None:
        """Keep the timeline of an earlier run going if the wall clock was set back since."""
        self._offset += max(0.0, instant - self.now())
