"""What the kernel knows of use, asked model by model in the background.

Nobody tells when a replica maps a file it never pinned, lets a hold go, or
dies.  A sweep looks at a bounded number of models at a time, round and round,
so that the books, the figures and ``GET /v1/pins`` are at most some seconds
behind.  While somebody waits for room, the models that are in his way are
looked at more often.  An eviction asks again in any case.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from weightd.cache.context import Context, Sighting
from weightd.cache.evictions import Evictions
from weightd.cache.keepers import uses_of
from weightd.cache.records import PinView
from weightd.cache.tasks import Rounds
from weightd.errors import IoError
from weightd.ledger import Generation
from weightd.model import GenerationId, Key
from weightd.store import Use

BATCH: Final = 32
"""Models looked at in one call to a thread."""

SECONDS_PER_SWEEP: Final = 0.1
"""How long one sweep looks; where models are many, several go by until all were seen."""

SEARCH_AGAIN: Final = 2.0
SEARCH_AGAIN_MAX: Final = 300.0
"""Seconds until a search for the process behind a use is repeated, doubled each time."""

log = logging.getLogger(__name__)


class Sweep:
    """Keeps the ledger's marks of use, and what is known of each use."""

    def __init__(self, context: Context, evictions: Evictions) -> None:
        self._context = context
        self._evictions = evictions
        self._round: list[GenerationId] = []
        self._round_began: float | None = None
        self._round_whole = True
        self._searches: dict[GenerationId, tuple[float, float]] = {}
        """When to search for a nameless use's process again, and how long it was let be."""
        self._to_look_at: set[GenerationId] = set()
        self._looks_for_holds = Rounds(context.tasks, "look for holds", self._look_for_holds)
        self._looks_again = Rounds(context.tasks, "look again", self.look_again)
        self.completed_at: float | None = None
        """When the last complete round began: nothing told here is older."""

    async def sweep(self) -> None:
        """Look at the next models of the round."""
        until = time.monotonic() + SECONDS_PER_SWEEP
        if not self._round:
            self._round_began, self._round_whole = self._context.clock.now(), True
            self._round = [one.id for one in self._context.ledger.generations()]
        while self._round and time.monotonic() < until:
            batch = self._round[-BATCH:]
            del self._round[-BATCH:]
            self._round_whole &= not await self._look(batch)
        if not self._round and self._round_whole:
            self.completed_at = self._round_began

    async def look_again(self) -> None:
        """Look at what was in use, for those who wait for it to end."""
        used = [one.id for one in self._context.ledger.generations() if one.in_use]
        for first in range(0, len(used), BATCH):
            await self._look(used[first : first + BATCH])

    async def let_go_meanwhile(self) -> bool:
        """Look again at what was in use, for one in whose way it is; whether any no longer is.

        A replica that has just ended is not to keep the next one out.  Bounded as `look_for_hold`.
        """
        used = self._in_use()
        if not used:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._context.options.hold_timeout):
                await self._looks_again.next()
        return not used <= self._in_use()

    def _in_use(self) -> set[GenerationId]:
        return {one.id for one in self._context.ledger.generations() if one.in_use}

    async def seen_now(self, key: Key) -> Generation | None:
        """The current generation of ``key``; one that was in use is looked at again first.

        Raises IoError when the disk does not show it.
        """
        await self._context.settled(key)
        generation = self._context.ledger.current(key)
        if generation is not None and generation.in_use:
            failed = await self._look([generation.id])
            if generation.id in failed:
                raise failed[generation.id]
            await self._context.settled(key)
            generation = self._context.ledger.current(key)
        return generation

    async def look_for_hold(self, id: GenerationId) -> None:
        """Look at once whether a model is held, for one who has just taken the hold.

        Within a bound: who reads a model from a slow disk is in the way of looks for one read
        at a time.  What was not seen by then is as it was known.
        """
        self._to_look_at.add(id)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._context.options.hold_timeout):
                await self._looks_for_holds.next()

    async def _look_for_holds(self) -> None:
        ids, self._to_look_at = list(self._to_look_at), set()
        await self._look(ids, for_holds=True)

    async def name(self) -> None:
        """Find the processes behind holds, and behind uses of which none is known.

        Holds are all in one table, while a search for users goes through every process.
        Raises IoError.
        """
        await self._drop_gone()
        sightings, now = self._context.sightings, self._context.clock.now()
        for id in self._searches.keys() - sightings.keys():
            del self._searches[id]
        asked = {id: seen.use for id, seen in sightings.items() if self._to_name(id, seen, now)}
        if not asked:
            return
        store = self._context.store
        named = await self._context.workers.housekeep(store.name_processes, asked)
        now = self._context.clock.now()
        for id, sight in named.items():
            seen = sightings.get(id)
            if seen is None or seen.use.kind != sight.use.kind:
                continue
            sightings[id] = seen.by(sight.processes, now)
            if sight.processes:
                self._searches.pop(id, None)
            else:
                waited = self._searches.get(id, (0.0, SEARCH_AGAIN / 2))[1]
                pause = min(2 * waited, SEARCH_AGAIN_MAX)
                self._searches[id] = (now + pause, pause)

    def _to_name(self, id: GenerationId, seen: Sighting, now: float) -> bool:
        if seen.use.kind == "hold":
            return True
        return not seen.processes and self._searches.get(id, (now, 0.0))[0] <= now

    def views(self) -> list[PinView]:
        """Every hold and use that is known."""
        views = []
        for id, seen in self._context.sightings.items():
            generation = self._context.ledger.generation(id)
            if generation is None:
                continue
            current = self._context.ledger.current(id.key) is generation
            views += uses_of(generation, seen, current=current)
        return views

    async def _look(
        self, ids: Sequence[GenerationId], *, for_holds: bool = False
    ) -> dict[GenerationId, IoError]:
        """Look at some, and book it; answer why some could not be looked at."""
        # weightd's own reader would look like a replica.
        ids = [id for id in ids if self._readers(id) == 0]
        look = self._context.store.look
        looked = await self._context.workers.seize(look, ids, for_holds=for_holds)
        for id, error in looked.failed.items():
            figures = {"key": str(id.key), "generation": id.digest, "reason": str(error)}
            log.warning("whether it is in use is not known", extra=figures)
        changed, leaving = False, []
        for id in ids:
            generation = self._context.ledger.generation(id)
            if generation is None or generation.readers or id in looked.failed:
                continue
            use = looked.uses.get(id)
            self._note(generation, use)
            if generation.in_use != (use is not None):
                changed = True
                leaving.append(self._context.ledger.mark_use(id, use is not None))
        if changed:
            self._context.changed.notify()
        gone = [one for one in leaving if one is not None]
        if gone:
            # Before the next are named, or no arrival would be decided until all are gone.
            await self._evictions.let_go(gone)
            await self._context.others_decide()
        return looked.failed

    def _readers(self, id: GenerationId) -> int:
        generation = self._context.ledger.generation(id)
        return 0 if generation is None else generation.readers

    def _note(self, generation: Generation, use: Use | None) -> None:
        """Keep what was seen of a use, and since when."""
        sightings = self._context.sightings
        known = sightings.get(generation.id)
        if use is None:
            sightings.pop(generation.id, None)
        elif known is None or known.use.kind != use.kind:
            sightings[generation.id] = Sighting(use, self._context.clock.now())
            self._searches.pop(generation.id, None)

    async def _drop_gone(self) -> None:
        """Forget users that are gone: another one has the use that is still seen."""
        sightings = self._context.sightings
        seen = {
            id: next(iter(one.processes))
            for id, one in sightings.items()
            if one.use.kind == "use" and one.processes
        }
        if not seen:
            return
        for id in await self._context.workers.housekeep(self._context.store.gone, seen):
            now = sightings.get(id)
            if now is not None and seen[id] in now.processes:
                sightings[id] = replace(now, processes={})
