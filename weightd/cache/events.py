"""What happens, told to whoever listens and to the log, without ever waiting for a listener."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Final

from weightd.cache.clock import Clock
from weightd.cache.records import Event
from weightd.cache.tasks import Signal

log = logging.getLogger(__name__)

EVENTS_KEPT: Final = 4096

LEVELS: Final[Mapping[str, int]] = {
    "refused": logging.WARNING,
    "damaged": logging.WARNING,
    "fetch-failed": logging.WARNING,
    "end": logging.DEBUG,
}
"""How events are logged that are not just worth knowing; a renewal is for debugging too."""


class EventLog:
    """The last few thousand events, in order.

    A listener reads at its own pace; one that falls behind what is kept is told
    so by an event ``lost``, whose data says how many it missed.

    Numbers go up by one from the time of the first event, in milliseconds since
    the epoch, and no daemon tells a thousand events a second for long.  So a
    number of an earlier run is lower than any of this run, and is known as lost.
    """

    def __init__(self, clock: Clock, heartbeat: float) -> None:
        self._clock = clock
        self._heartbeat = heartbeat
        self._kept: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._first = 0
        self._last = 0
        self._signal = Signal()
        self._end: Event | None = None

    def tell(self, type: str, **data: object) -> None:
        """Something happened: its line in the log is this one, with the same data."""
        level = logging.DEBUG if data.get("renewed") else LEVELS.get(type, logging.INFO)
        if log.isEnabledFor(level):
            log.log(level, type, extra=data)
        self._begin()
        self._last += 1
        self._kept.append(Event(self._last, type, self._clock.now(), data))
        self._signal.notify()

    def end(self, outcome: str) -> None:
        """Nothing more will happen: every listener gets a last event ``end``."""
        if self._end is None:
            self.tell("end", outcome=outcome)
            self._end = self._kept[-1]

    async def listen(self, after: int | None) -> AsyncIterator[Event | None]:
        """Every event after ``after``, and None when all is quiet.

        None means from now on, and 0 from the first of this run on.
        """
        self._begin()
        told = self._last if after is None else after or self._first
        if not self._first <= told <= self._last:
            # The number is of another run of the daemon.
            told = self._first
            yield Event(told, "lost", self._clock.now(), {"missed": None})
        while True:
            oldest = self._kept[0].seq if self._kept else self._last + 1
            if told + 1 < oldest:
                missed = oldest - told - 1
                told = oldest - 1
                yield Event(told, "lost", self._clock.now(), {"missed": missed})
            elif told < self._last:
                event = self._kept[told - oldest + 1]
                told = event.seq
                yield event
                if event.type == "end":
                    return
            elif self._end is not None:
                yield self._end
                return
            elif not await self._signal.wait(self._heartbeat):
                yield None

    def _begin(self) -> None:
        """Take the first number: not when this is made, since the clock is set right at a start."""
        if not self._first:
            self._first = self._last = max(1, int(self._clock.now() * 1000))
