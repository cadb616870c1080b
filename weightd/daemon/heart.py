"""The heartbeat: a probe of loop, threads and disk, by which the service manager's watchdog lives.

Who is not told in time that all is well ends the daemon and starts another.  So nothing is
said but after a probe that passed (`weightd.cache.pulse`), and a line in the log says why not.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from weightd.cache import WeightCache
from weightd.daemon.beside import beside
from weightd.daemon.notify import extended, notify
from weightd.units import format_bytes

log = logging.getLogger(__name__)

EVERY: Final = 20.0
"""Seconds between two beats, with a watchdog or without."""

_BEATS_WITHIN: Final = 3
"""Beats in the time after which the watchdog bites."""

_STARTING_SECONDS: Final = 900.0
"""For how long more time to start is asked for; a root of thousands of models takes seconds."""

_ASKED_EVERY: Final = 10.0


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """How long the manager waits for a word of process ``pid``; None when it does not watch it.

    >>> watchdog_seconds({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 7)
    30.0
    >>> watchdog_seconds({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 7)
    """
    given = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    if not (given.isascii() and given.isdigit()) or int(given) == 0:
        return None
    return int(given) / 1e6


class Heart:
    """Beats for as long as `beating` is entered, and says how the cache does."""

    def __init__(self, cache: WeightCache, watchdog: float | None) -> None:
        self._cache = cache
        self._watched = watchdog is not None
        self._every = EVERY if watchdog is None else min(EVERY, watchdog / _BEATS_WITHIN)
        self._told: str | None = None
        self._said = ""

    @property
    def status(self) -> str:
        """One line for ``systemctl status``."""
        if self._told is not None:
            return f"unwell: {self._told}"
        usage, state = self._cache.pulse.usage, self._cache.state
        models = f"{usage.models} model{'' if usage.models == 1 else 's'}"
        used = f"{format_bytes(usage.used)} of {format_bytes(usage.capacity)}"
        arriving = f", {usage.arrivals} arriving" if usage.arrivals else ""
        return f"{state}: {models}, {used} used{arriving}"

    def say(self, *words: str) -> None:
        """Tell the manager something, and how the cache does."""
        self._said = self.status
        notify(*words, f"STATUS={self._said}")

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beat until the context is left."""
        async with beside(self._forever(), "heart"):
            yield

    async def _forever(self) -> None:
        while True:
            self._note(await self._cache.pulse.beat())
            if self._told is None and self._watched:
                self.say("WATCHDOG=1")
            elif self.status != self._said:
                self.say()
            await asyncio.sleep(self._every)

    def _note(self, trouble: str | None) -> None:
        """Put it into the log once when it begins, and when it is over."""
        if trouble is not None and self._told is None:
            rest = " The watchdog is not fed until it is over." if self._watched else ""
            log.error("unwell: %s%s", trouble, rest)
        elif trouble is None and self._told is not None:
            log.warning("well again")
        self._told = trouble


@asynccontextmanager
async def starting(what: str) -> AsyncIterator[None]:
    """Ask for more time while the context is entered, for a bounded time."""
    async with beside(_ask_for_time(what), "starting"):
        yield


async def _ask_for_time(what: str) -> None:
    for _ in range(round(_STARTING_SECONDS / _ASKED_EVERY)):
        notify(f"STATUS=starting: {what}", extended(3 * _ASKED_EVERY))
        await asyncio.sleep(_ASKED_EVERY)


def watchdog_here() -> float | None:
    """That of this process; see `watchdog_seconds`."""
    return watchdog_seconds(os.environ, os.getpid())
