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
from weightd.cache.journal import Journal
from weightd.cache.retirements import Retirements, refused_by_disk
from weightd.cache.tasks import Signal, completed
from weightd.errors import InUse, IoError
from weightd.ledger import Doomed, Dropped, Remains, Reservation, Standing
from weightd.model import EvictionReason, GenerationId, Key
from weightd.store import Doomed as DoomedDirectory
from weightd.store import Ingest, NoSpace, Parked, SeizeRefused, Stranded, Use

log = logging.getLogger(__name__)

GONE_PENDING_MAX: Final = 100_000


class Evictions:
    """Carries out what the ledger decided; ``journal`` has what went."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._doomed: asyncio.Queue[tuple[Remains, DoomedDirectory]] = asyncio.Queue()
        self.journal = Journal(context)
        self.gone: dict[GenerationId, None] = {}
        """What was evicted since recency was written down, in order."""
        self.retirements = Retirements(context)
        self.kept: set[GenerationId] = set()
        """Damaged directories that somebody pinned; of their digests only the start is known."""
        self._damaged: dict[GenerationId, Remains] = {}
        """What is still in its place and is no model; named like ``kept``.

        A start found it damaged, or the disk did not take a failed publication back.
        """
        self._making_way = asyncio.Lock()
        self._stopping = False
        self._stopped = Signal()

    async def evict(
        self,
        victims: Sequence[Doomed],
        reason: EvictionReason | None,
        arrival: Reservation | None = None,
    ) -> None:
        """Seize the victims and put them out of reach; ``reason`` None is no eviction but an end.

        Raises SeizeRefused, IoError or, for an arrival, DiskFull; then all stand where they
        stood, but for those that the disk moved and would not move back, and the
        ``arrival`` they were to make room for has lost its promise.  Must not be
        cancelled half way: await it by `completed`.
        """
        key = None if arrival is None else arrival.key
        await self._owe_nothing(victims, arrival)
        try:
            moved = await self._context.workers.seize(
                self._context.store.doom, [victim.id for victim in victims]
            )
        except Stranded as stranded:
            moved_for_good = {one.generation for one in stranded.moved}
            gone = [one for one in victims if one.id in moved_for_good]
            self._out_of_reach(gone, stranded.moved, reason, key)
            back = [one for one in victims if one.id not in moved_for_good]
            await self._stand_again(back, arrival, {})
            raise stranded.failure from stranded
        except SeizeRefused as refused:
            await self._stand_again(victims, arrival, refused.refused)
            raise
        except NoSpace as error:
            await self._stand_again(victims, arrival, {})
            if arrival is None:
                raise refused_by_disk(error) from error
            raise await self._context.no_space(arrival.bytes, error) from error
        except BaseException:
            await self._stand_again(victims, arrival, {})
            raise
        self._out_of_reach(victims, moved, reason, key)
        if arrival is not None:
            self.give_up(arrival.dropped)

    async def _owe_nothing(self, victims: Sequence[Doomed], arrival: Reservation | None) -> None:
        """Make older retirements of the victims' keys last before the victims go.

        Without its mark an older copy would be current again at the next start.
        Raises IoError or, for an arrival, SeizeRefused.
        """
        for victim in victims:
            older = self.retirements.owed(victim.id.key)
            for id in older if victim.was is not Standing.RETIRED else ():
                try:
                    await self.retirements.mark(id)
                except IoError as error:
                    reason = f"an older copy of it is not marked as retired yet: {error.error}"
                    refused = {victim.id: Use("use", reason)} if arrival is not None else {}
                    await self._stand_again(victims, arrival, refused)
                    if arrival is None:
                        raise
                    raise SeizeRefused(refused) from error

    def _out_of_reach(
        self,
        victims: Sequence[Doomed],
        moved: Iterable[DoomedDirectory],
        reason: EvictionReason | None,
        beneficiary: Key | None,
    ) -> None:
        """Book the victims, which are where ``moved`` tells, and have them unlinked."""
        self._context.ledger.evicted(victims)
        self._context.changed.notify()
        directories = {one.generation: one for one in moved}
        for victim in victims:
            self._note(victim, reason, beneficiary)
            self._context.models.pop(victim.id, None)
            self._context.sightings.pop(victim.id, None)
            self._forget(victim.id)
            self._doomed.put_nowait((victim, directories[victim.id]))

    def release(self, reservation: Reservation) -> None:
        """Give a promise back, let go what only it kept, and wake who waits for room."""
        if self._context.partials.returned(reservation):
            self._context.changed.notify()
            return
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
                log.info("it stays on disk", extra=_staying(victim.id, refused))
                stay.append(victim)
            except IoError as error:
                log.warning("it stays on disk", extra=_staying(victim.id, error))
        return tuple(stay)

    async def make_way(self, id: GenerationId) -> None:
        """Doom what stands in the place of ``id`` and is in no books: its manifest was damaged.

        Raises InUse or IoError.
        """
        if any(_same_directory(kept, id) for kept in self.kept):
            raise InUse(key=str(id.key), reason="what is left of it is damaged, and pinned")
        async with self._making_way:
            await self._move_away(id)

    def add_damaged(self, found: Mapping[GenerationId, int]) -> None:
        """Account for what stands in its place and is no model: its bytes count as any remains'."""
        for generation, size in found.items():
            self._damaged[generation] = self._context.ledger.debris(size)

    async def let_damaged_go(self) -> None:
        """Doom what a start found damaged, as far as nobody has it; what stays is asked again."""
        if not self._context.ledger.pins_known:
            return
        for id in list(self._damaged):
            try:
                await completed(self._let_one_go(id))
            except (InUse, IoError) as error:
                log.warning("it is damaged and stays on disk", extra=_staying(id, error))

    async def _let_one_go(self, id: GenerationId) -> None:
        async with self._making_way:
            # Otherwise what stands there now is what made its way, and not damaged.
            if id in self._damaged and id not in self.kept:
                await self._move_away(id)

    async def _move_away(self, id: GenerationId) -> None:
        try:
            moved = await self._context.workers.seize(self._context.store.doom, [id])
        except SeizeRefused as refused:
            raise InUse(key=str(id.key), reason=refused.refused[id].reason) from refused
        except Stranded as stranded:
            self._add_damaged(id, stranded.moved)
            raise stranded.failure from stranded
        except NoSpace as error:
            raise refused_by_disk(error) from error
        self._add_damaged(id, moved)

    def _add_damaged(self, id: GenerationId, moved: Sequence[DoomedDirectory]) -> None:
        """Journal a damaged directory that was moved away, and have it unlinked."""
        known = next((one for one in self._damaged if _same_directory(one, id)), None)
        if known is None:
            self.add_debris(moved)
            return
        remains = self._damaged.pop(known)
        self.journal.add(known, remains.bytes, "damage")
        for directory in moved:
            self._doomed.put_nowait((remains, directory))

    async def abort(self, ingest: Ingest, reservation: Reservation) -> None:
        """Let what an arrival wrote go; a second time, or once it is settled, this does nothing."""
        if ingest.settled:
            return
        left = await self._context.workers.commit(ingest.abort)
        if left is not None:
            # Counted as what is doomed from now on, and once.
            reservation.written = max(0, reservation.written - left.bytes)
            self.add_debris([left])

    def add_debris(self, debris: Sequence[DoomedDirectory]) -> None:
        """Account for what an earlier run left half done, and unlink it."""
        for directory in debris:
            self._doomed.put_nowait((self._context.ledger.debris(directory.bytes), directory))

    def drop_partial(self, key: Key) -> bool:
        """Give up what a fetch of ``key`` left unfinished; whether there was any of it."""
        dropped = self._context.partials.drop(key)
        if dropped is not None:
            self._context.tasks.spawn(self._drop(*dropped), "drop partial")
            self._context.changed.notify()
        return dropped is not None

    def give_up(self, dropped: Iterable[Dropped]) -> None:
        """Unlink the partials that the ledger named to make room."""
        for one in dropped:
            stored = self._context.partials.take(one)
            if stored is not None:
                figures = {"key": str(stored.key), "bytes": stored.bytes}
                log.info("what was fetched goes to make room", extra=figures)
                self._context.tasks.spawn(self._drop(stored, one.remains), "drop partial")

    async def _drop(self, partial: Parked, remains: Remains) -> None:
        while not self._stopping:
            try:
                moved = await self._context.workers.commit(self._context.store.drop, partial)
            except (IoError, NoSpace) as error:
                figures = {"key": str(partial.key), "reason": str(error)}
                log.warning("what was fetched stays on disk", extra=figures)
                await self._stopped.wait(self._context.options.unlink_retry)
            else:
                self._doomed.put_nowait((remains, moved))
                return

    def stop(self) -> None:
        """Let the unlinking under way end where it is; a start goes on with it."""
        self._stopping = True
        self._stopped.notify()

    async def unlink_forever(self) -> None:
        """Unlink what is doomed, in order.

        What fails or is still open somewhere keeps its bytes counted and is tried again.
        """
        while True:
            doomed, directory = await self._doomed.get()
            left = max(1, doomed.bytes)
            try:
                left = await self._unlink(doomed, directory)
            finally:
                # Also after what nobody expected: it must not be lost with the loop.
                if left:
                    self._again(doomed, directory)
            if not left:
                self._freed(doomed, None)

    async def _unlink(self, doomed: Remains, directory: DoomedDirectory) -> int:
        """Unlink what can be; the bytes left."""
        loop = asyncio.get_running_loop()

        def freed(size: int) -> None:
            loop.call_soon_threadsafe(self._freed, doomed, size)
            if self._stopping:
                raise _Stopped

        try:
            left = await self._context.workers.unlink(self._context.store.unlink, directory, freed)
        except _Stopped:
            return max(1, doomed.bytes)
        except (IoError, NoSpace) as error:
            figures = {"bytes": doomed.bytes, "reason": str(error)}
            log.warning("not unlinked, and still counted", extra=figures)
            return max(1, doomed.bytes)
        if left:
            log.info("an evicted model is still open somewhere", extra={"bytes": left})
        return left

    def _again(self, doomed: Remains, directory: DoomedDirectory) -> None:
        again = self._context.options.unlink_retry
        asyncio.get_running_loop().call_later(again, self._doomed.put_nowait, (doomed, directory))

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
            self._context.partials.keep(arrival.dropped)
        marked: set[GenerationId] = set()
        # While they are leaving no publication of their key can take the mark off again.
        while late := [one.id for one in victims if one.superseded and one.id not in marked]:
            marked.add(late[0])
            await self.retirements.mark_or_later(late[0])
        superseded = ledger.refused(victims, in_use)
        for id, use in in_use.items():
            self._context.sightings.setdefault(id, Sighting(use, self._context.clock.now()))
        self._context.changed.notify()
        for generation in superseded:
            if generation.id not in marked:
                await self.retirements.mark_or_later(generation.id)

    def _note(self, victim: Doomed, reason: EvictionReason | None, beneficiary: Key | None) -> None:
        if reason is None:
            if victim.was is Standing.RETIRED:
                figures = {"key": str(victim.id.key), "generation": victim.id.digest}
                log.info("a retired copy went", extra={**figures, "bytes": victim.bytes})
            return
        idle = max(0.0, self._context.clock.now() - victim.generation.last_used)
        self.journal.add(victim.id, victim.bytes, reason, idle=idle, beneficiary=beneficiary)

    def _forget(self, id: GenerationId) -> None:
        """Have its recency forgotten; beyond the bound the next start does it."""
        self.gone.pop(id, None)
        self.gone[id] = None
        if len(self.gone) > GONE_PENDING_MAX:
            del self.gone[next(iter(self.gone))]


class _Stopped(Exception):
    """The cache ends: what is not unlinked yet stays for the next start."""


def _staying(id: GenerationId, error: Exception) -> dict[str, object]:
    """What a line says of a victim that did not go."""
    return {"key": str(id.key), "generation": id.digest, "reason": str(error)}


def _same_directory(damaged: GenerationId, id: GenerationId) -> bool:
    """Whether ``id`` stands where ``damaged`` does, of whose digest only the start is known."""
    return damaged.key == id.key and id.digest.startswith(damaged.digest)
