"""How many streams a download runs: more as long as one more is measured to help.

Where there is latency, ranges side by side win; on a fast network nearby they
only cost (a second one is worth it, an eighth is not).  So a download starts
with two, adds one while the last addition raised the rate, and takes a useless
one back.
"""

from __future__ import annotations

from typing import Final

STREAMS_FIRST: Final = 2
STREAMS_MAX: Final = 16
PERIOD_SECONDS: Final = 1.0
"""How long a number of streams is watched before it is judged."""

GAIN: Final = 1.15
"""The rate by which one more stream must be better to be kept."""


class Streams:
    """A hill climber over the number of streams; ``wanted`` is what to run now."""

    def __init__(self, most: int = STREAMS_MAX) -> None:
        self.wanted = min(STREAMS_FIRST, most)
        self._most = most
        self._settled = False
        self._best = 0.0

    def measured(self, rate: float) -> None:
        """Tell the rate, in bytes a second, of a period with ``wanted`` streams."""
        if self._settled or rate <= 0:
            return
        if rate < self._best * GAIN:
            # The last addition was not worth it; the first period has nothing to compare with.
            self.wanted = max(min(STREAMS_FIRST, self._most), self.wanted - 1)
            self._settled = True
            return
        self._best = rate
        if self.wanted < self._most:
            self.wanted += 1
        else:
            self._settled = True
