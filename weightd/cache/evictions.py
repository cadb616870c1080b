"""Victims on their way out: seized, renamed away, journalled, unlinked.

Victims are named by the ledger and seized all at once by the store.  If one is
in use, all stay.  What was renamed away is unlinked by one loop, one after the
other, and its bytes count until they are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from weightd.cache.context import Context, Sighting
from weightd.cache.tasks import completed
from weightd.errors import InUse, IoError
from weightd.ledger import Doomed, Remains, Reservation, Standing
from weightd.model import Eviction, EvictionReason, GenerationId, Key
from weightd.store import Doomed as DoomedDirectory
from weightd.store import NoSpace, SeizeRefused, Use

log = logging.getLogger(__name__)

JOURNAL_PENDING_MAX: Final = 10_000


class Evictions:
    """Carries out what the ledger decided, and keeps the journal of it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._doomed: asyncio.Queue[tuple[Remains, DoomedDirectory]] = asyncio.Queue()
        self.pending: list[Eviction] = []
        self.gone: list[GenerationId] = []
        self.last_sequence = 0
        self._unmarked: set[GenerationId] = set()
        self.kept: set[GenerationId] = set()
        """Damaged directories that somebody pinned; of their digests only the start is known."""

    async def evict(
        self,
        victims: Sequence[Doomed],
        reason: EvictionReason | None,
        arrival: Reservation | None = None,
    ) -> None:
        """Seize the victims and put them out of reach; ``reason`` None is no eviction but an end.

        Raises SeizeRefused or an error of the disk; then all stand where they
        stood, and the ``arrival`` they were to make room for has lost its
        promise.  Must not be cancelled half way: await it by `completed`.
        """
        ledger = self._context.ledger
        try:
            moved = await self._context.workers.disk(
                self._context.store.doom, [victim.id for victim in victims]
            )
        except SeizeRefused as refused:
            await self._stand_again(victims, arrival, refused.refused)
            raise
        except BaseException:
            await self._stand_again(victims, arrival, {})
            raise
        ledger.evicted(victims)
        self._context.changed.notify()
        for victim, directory in zip(victims, moved, strict=True):
            self._note(victim, reason, None if arrival is None else arrival.key)
            self._context.models.pop(victim.id, None)
            self._context.sightings.pop(victim.id, None)
            self.gone.append(victim.id)
            self._doomed.put_nowait((victim, directory))

    def release(self, reservation: Reservation) -> None:
        """Give a promise back, let go what only it kept, and wake who waits for room."""
        gone = self._context.ledger.release(reservation)
        if gone:
            self._context.tasks.spawn(self.let_go(gone), "let go")
        self._context.changed.notify()

    async def let_go(
        self, victims: Sequence[Doomed], reason: EvictionReason | None = None
    ) -> tuple[Doomed, ...]:
        """End each of the victims by itself; answer those that are in use and stay.

        What the disk refuses stays too.  `Upkeep` asks again for either.  Every
        victim is settled in the end, even if the caller is cancelled: one that is
        not would stop every admission.
        """
        return await completed(self._let_go(victims, reason))

    async def _let_go(
        self, victims: Sequence[Doomed], reason: EvictionReason | None
    ) -> tuple[Doomed, ...]:
        stay = []
        for victim in victims:
            try:
                await self.evict([victim], "damage" if victim.generation.damaged else reason)
            except SeizeRefused as refused:
                log.info("%s stays on disk: %s", victim.id.key, refused)
                stay.append(victim)
            except (IoError, NoSpace) as error:
                log.warning("%s stays on disk: %s", victim.id.key, error)
        return tuple(stay)

    async def mark(self, id: GenerationId) -> None:
        """Make a retirement last.  Raises IoError or NoSpace; `mark_again` tries anew then."""
        self._unmarked.add(id)
        await self._context.workers.disk(self._context.store.mark_superseded, id)
        self._unmarked.discard(id)

    async def mark_or_later(self, id: GenerationId) -> None:
        """Make a retirement last, if need be later: a start does not fail for it."""
        try:
            await self.mark(id)
        except (IoError, NoSpace) as error:
            log.warning("the retirement of %s is not on disk yet: %s", id.key, error)

    async def mark_again(self) -> None:
        """Make those retirements last that the disk refused.  Raises IoError or NoSpace."""
        publishing = self._context.publishing
        for id in list(self._unmarked):
            generation = self._context.ledger.generation(id)
            if generation is None or generation.standing is not Standing.RETIRED:
                self._unmarked.discard(id)
            elif id.key not in publishing:
                # The same content could come again meanwhile, and be current and marked.
                publishing.add(id.key)
                try:
                    await completed(self.mark(id))
                finally:
                    publishing.discard(id.key)
                    self._context.changed.notify()

    async def make_way(self, id: GenerationId) -> None:
        """Doom what stands in the place of ``id`` and is in no books: its manifest was damaged.

        Raises InUse, IoError or NoSpace.
        """
        key = str(id.key)
        if any(kept.key == id.key and id.digest.startswith(kept.digest) for kept in self.kept):
            raise InUse(key=key, reason="what is left of it is damaged, and pinned")
        try:
            moved = await self._context.workers.disk(self._context.store.doom, [id])
        except SeizeRefused as refused:
            raise InUse(key=key, reason=refused.refused[id].reason) from refused
        self.add_debris(moved)

    async def let_damaged_go(self, damaged: Iterable[GenerationId]) -> None:
        """Doom what a start found damaged, as far as nobody uses it."""
        for id in damaged:
            try:
                await self.make_way(id)
            except (InUse, IoError, NoSpace) as error:
                log.warning("%s is damaged and stays on disk: %s", id.key, error)

    def add_debris(self, debris: Sequence[DoomedDirectory]) -> None:
        """Account for what an earlier run left half done, and unlink it."""
        for directory in debris:
            self._doomed.put_nowait((self._context.ledger.debris(directory.bytes), directory))

    async def unlink_forever(self) -> None:
        """Unlink what is doomed, in order.

        What fails or is still open somewhere keeps its bytes counted and is tried again.
        """
        while True:
            doomed, directory = await self._doomed.get()
            await self._unlink(doomed, directory)

    async def _unlink(self, doomed: Remains, directory: DoomedDirectory) -> None:
        loop = asyncio.get_running_loop()

        def freed(size: int) -> None:
            loop.call_soon_threadsafe(self._freed, doomed, size)

        try:
            left = await self._context.workers.unlink(self._context.store.unlink, directory, freed)
        except (IoError, NoSpace) as error:
            log.warning("%s; its %d bytes stay counted", error, doomed.bytes)
            left = doomed.bytes
        else:
            if left:
                log.info("%d bytes of an evicted model are still open somewhere", left)
        if left:
            again = self._context.options.unlink_retry
            loop.call_later(again, self._doomed.put_nowait, (doomed, directory))
        else:
            self._freed(doomed, None)

    def _freed(self, doomed: Remains, size: int | None) -> None:
        self._context.ledger.freed(doomed, size)
        self._context.changed.notify()

    async def _stand_again(
        self,
        victims: Sequence[Doomed],
        arrival: Reservation | None,
        in_use: Mapping[GenerationId, Use],
    ) -> None:
        """Put refused victims back, and on disk mark those that were superseded meanwhile."""
        ledger = self._context.ledger
        if arrival is not None:
            # Before the victims come back, or the promises would pass the budget for a moment.
            self.release(arrival)
        marked: set[GenerationId] = set()
        # While they are leaving no publication of their key can take the mark off again.
        while late := [one.id for one in victims if one.superseded and one.id not in marked]:
            marked.add(late[0])
            await self.mark_or_later(late[0])
        superseded = ledger.refused(victims, in_use)
        for id, use in in_use.items():
            self._context.sightings.setdefault(id, Sighting(use, self._context.clock.now()))
        self._context.changed.notify()
        for generation in superseded:
            if generation.id not in marked:
                await self.mark_or_later(generation.id)

    def _note(self, victim: Doomed, reason: EvictionReason | None, beneficiary: Key | None) -> None:
        if reason is None:
            return
        now = self._context.clock.now()
        self.last_sequence += 1
        entry = Eviction(
            sequence=self.last_sequence,
            key=victim.id.key,
            digest=victim.id.digest,
            bytes=victim.bytes,
            reason=reason,
            at=now,
            idle=max(0.0, now - victim.generation.last_used),
            beneficiary=beneficiary,
        )
        self._context.counters.evicted(victim.id, victim.bytes, reason, now)
        self.pending.append(entry)
        del self.pending[:-JOURNAL_PENDING_MAX]
        self._context.events.tell(
            "evicted",
            key=str(entry.key),
            generation=entry.digest,
            bytes=entry.bytes,
            reason=reason,
            beneficiary=None if beneficiary is None else str(beneficiary),
        )
