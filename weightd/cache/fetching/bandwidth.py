"""A bound on the bytes a second that all fetches take together."""

from __future__ import annotations

import threading
import time
from typing import Final

BURST_SECONDS: Final = 0.25
"""How much may be taken at once after a pause, as a time at the full rate."""

_PAUSE_MAX: Final = 0.5


class Bandwidth:
    """A bucket of bytes that fills at ``rate`` a second; None has no bound.

    Threads take from it what they have read, and sleep off what was too much,
    so that the peer is slowed down by its own window.
    """

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._taking = threading.Lock()
        self._level = 0.0
        self._filled_at = time.monotonic()

    def set(self, rate: int | None) -> None:
        """Change the rate, in bytes a second."""
        with self._taking:
            self._rate = rate
            self._level = 0.0

    def take(self, size: int, stopped: threading.Event) -> None:
        """Account for ``size`` bytes and wait until they are due, or ``stopped`` is set."""
        while (pause := self._take(size)) > 0 and not stopped.wait(min(pause, _PAUSE_MAX)):
            size = 0

    def _take(self, size: int) -> float:
        """Take from the bucket, below empty if need be; seconds until it is empty again."""
        with self._taking:
            if self._rate is None:
                return 0.0
            now = time.monotonic()
            filled = self._level + (now - self._filled_at) * self._rate
            self._filled_at = now
            self._level = min(filled, self._rate * BURST_SECONDS) - size
            return -self._level / self._rate
