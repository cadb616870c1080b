"""Evicting down when the budget shrank, or when others filled the disk.

At start it also ends the retired generations that nothing keeps any more.

A filesystem may show as free only seconds later what was unlinked.  So nothing
goes for the disk's sake before two looks agree, and what has left the disk
lately is taken for free whether it is seen or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.tasks import completed
from weightd.ledger import Doomed, Room, Standing
from weightd.model import EvictionReason

log = logging.getLogger(__name__)

CHUNK: Final = 16
"""Victims named at a time: no arrival is decided until they have settled."""

LOOKS_REMEMBERED: Final = 64
"""More than there are while any filesystem is late to tell what was freed."""


class Trimming:
    """Keeps what is promised within the budget, and ``min_free`` bytes free on the disk."""

    def __init__(self, context: Context, evictions: Evictions) -> None:
        self._context = context
        self._evictions = evictions
        # Two at once would each evict for the same bytes.
        self._trimming = asyncio.Lock()
        self._given_back: deque[tuple[float, int]] = deque(maxlen=LOOKS_REMEMBERED)
        self._over = False

    async def trim(self) -> None:
        """Evict what is too much, as far as nothing keeps it.  Raises IoError."""
        async with self._trimming:
            await self._to_the_budget()
            await self._to_the_disk()

    async def to_the_budget(self) -> None:
        """The same for the budget alone, which has just changed."""
        async with self._trimming:
            await self._to_the_budget()

    async def _to_the_budget(self) -> None:
        ledger = self._context.ledger
        await self._context.nothing_settles()
        if ledger.refuse_unfit():
            self._context.changed.notify()
        await self._evict_down("budget")
        self._tell_over_budget()

    async def _to_the_disk(self) -> None:
        ledger = self._context.ledger
        room = await self._look()
        short = ledger.short_on_disk(room)
        if short <= 0:
            return
        await asyncio.sleep(self._context.options.look_apart)
        room = await self._look()
        unseen = self._unseen()
        short = min(short, ledger.short_on_disk(room)) - unseen
        if short <= 0:
            return
        seen = Room(room.free + unseen, room.min_free, room.others)
        before = ledger.short_on_disk(seen)
        if ledger.refuse_unfit(seen):
            self._context.changed.notify()
            short -= before - ledger.short_on_disk(seen)
        await self._evict_down("disk", short)

    async def _look(self) -> Room:
        """What the filesystem has; remembers what had left it by then."""
        room = await self._context.settled_room()
        self._given_back.append((self._now(), self._context.ledger.given_back))
        return room

    def _unseen(self) -> int:
        """Bytes given back so late that the looks may have missed them."""
        options = self._context.options
        late = max(options.seen_late, self._context.store.freeing_seen_within)
        since = self._now() - options.look_apart - late
        samples = self._given_back
        while len(samples) > 1 and samples[1][0] <= since:
            samples.popleft()
        before = samples[0][1] if samples[0][0] <= since else 0
        return self._context.ledger.given_back - before

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _evict_down(self, reason: EvictionReason, short: int | None = None) -> None:
        """Name victims, some at a time, until ``short`` bytes went, or the budget holds.

        What unfinished fetches left goes before any model.  Each round that
        fails marks one at least as used, so it ends.
        """
        ledger = self._context.ledger
        while True:
            await self._context.nothing_settles()
            limit = ledger.capacity if short is None else ledger.promised - max(0, short)
            dropped = ledger.drop_over(limit)
            self._evictions.give_up(dropped)
            if short is not None:
                short -= sum(one.parked.bytes for one in dropped)
            named = ledger.over(limit, CHUNK)
            if not named:
                break
            sizes = [one.bytes for one in named]
            refused = await completed(self._evict(named, reason))
            gone = [size for one, size in zip(named, sizes, strict=True) if one.settled]
            if short is not None:
                # Not measured again: what is promised meanwhile was promised with room of its own.
                short -= sum(gone)
            if not gone and not refused:
                break
            await self._context.others_decide()
        self._context.changed.notify()

    async def _evict(self, named: list[Doomed], reason: EvictionReason) -> tuple[Doomed, ...]:
        # What was retired was replaced long ago: it ends, and is not evicted.
        ended = [one for one in named if one.was is Standing.RETIRED]
        evicted = [one for one in named if one.was is not Standing.RETIRED]
        refused = await self._evictions.let_go(ended)
        return refused + await self._evictions.let_go(evicted, reason)

    def _tell_over_budget(self) -> None:
        """One line when what is kept passes the budget, and one when it does no more."""
        usage = self._context.ledger.usage()
        if usage.over_budget and not self._over:
            figures = {
                "over_budget_bytes": usage.over_budget,
                "capacity_bytes": usage.capacity,
                "pinned_bytes": usage.pinned,
                "reserved_bytes": usage.reserved,
            }
            log.warning(
                "over budget, and nothing new is admitted until enough is let go", extra=figures
            )
        elif self._over and not usage.over_budget:
            log.info("within the budget again", extra={"capacity_bytes": usage.capacity})
        self._over = usage.over_budget > 0
