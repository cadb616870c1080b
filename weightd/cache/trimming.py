"""Evicting down when the budget shrank, or when others filled the disk.

At start it also ends the retired generations that nothing keeps any more.
"""

from __future__ import annotations

import logging

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.tasks import completed
from weightd.ledger import Doomed, Standing
from weightd.model import EvictionReason

log = logging.getLogger(__name__)


class Trimming:
    """Keeps what is promised within the budget, and ``min_free`` bytes free on the disk."""

    def __init__(self, context: Context, evictions: Evictions) -> None:
        self._context = context
        self._evictions = evictions

    async def trim(self) -> None:
        """Evict what is too much, as far as nothing keeps it.  Raises IoError."""
        await self._down_to(self._context.ledger.capacity, "budget")
        room = await self._context.room()
        await self._context.nothing_settles()
        usage = self._context.ledger.usage()
        # What is about to leave the disk is as good as free, what is promised as good as written.
        short = room.min_free + usage.reserved - usage.written - room.free - usage.doomed
        if short > 0:
            used = usage.resident + usage.retired + usage.reserved
            await self._down_to(used - short, "disk")

    async def _down_to(self, limit: int, reason: EvictionReason) -> None:
        """Name victims until enough go; each round that fails marks one at least as used."""
        refused: tuple[Doomed, ...] = ()
        while True:
            await self._context.nothing_settles()
            named = self._context.ledger.over(limit)
            if not named:
                break
            refused = await completed(self._evict(named, reason))
            if not refused:
                break
        self._context.changed.notify()

    async def _evict(self, named: list[Doomed], reason: EvictionReason) -> tuple[Doomed, ...]:
        # What was retired was replaced long ago: it ends, and is not evicted.
        ended = [one for one in named if one.was is Standing.RETIRED]
        evicted = [one for one in named if one.was is not Standing.RETIRED]
        if evicted:
            log.info("%d models are evicted: %s", len(evicted), reason)
        refused = await self._evictions.let_go(ended)
        return refused + await self._evictions.let_go(evicted, reason)
