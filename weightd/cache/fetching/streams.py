"""How many streams a download runs: more as long as more are measured to help.

Where there is latency, ranges side by side win; on a fast network nearby they
only cost (a second one is worth it, an eighth is not).  So a download starts
with two, and doubles them while that raised the rate; what did not help is
taken back.
"""

from __future__ import annotations

from typing import Final

STREAMS_FIRST: Final = 2
STREAMS_MAX: Final = 16
PERIOD_SECONDS: Final = 1.0
"""How long a number of streams is watched before it is judged, ..."""

PERIOD_MIN_SECONDS: Final = 0.25
ANSWERS: Final = 5
"""... or as long as so many answers take, so that the last streams that came bring something."""

GAIN: Final = 1.25
"""The rate by which twice as many streams must be better to be kept."""


class Streams:
    """A hill climber over the number of streams; ``wanted`` is what to run now."""

    def __init__(self, most: int = STREAMS_MAX) -> None:
        """``most`` is for how many there are threads."""
        self._most = min(most, STREAMS_MAX)
        self.wanted = min(STREAMS_FIRST, self._most)
        self._before = self.wanted
        self._settled = False
        self._best = 0.0

    def period(self, latency: float) -> float:
        """How long to watch where an answer takes ``latency`` seconds."""
        if self._settled:
            return PERIOD_SECONDS
        return min(PERIOD_SECONDS, max(PERIOD_MIN_SECONDS, ANSWERS * latency))

    def measured(self, rate: float) -> None:
        """Tell the rate, in bytes a second, of a period with ``wanted`` streams."""
        if self._settled or rate <= 0:
            return
        if rate < self._best * GAIN:
            # They were not worth it; the first period has nothing to compare with.
            self.wanted = self._before
            self._settled = True
            return
        self._best, self._before = rate, self.wanted
        self.wanted = min(self._most, self.wanted * 2)
        self._settled = self.wanted == self._before
