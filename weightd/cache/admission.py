"""Room for an arrival: promised, made by eviction, waited for, or refused."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.records import Verdict, Victim
from weightd.cache.tasks import completed
from weightd.errors import Blocked, DiskFull, TooLarge, TooMany
from weightd.ledger import Reservation, Room
from weightd.model import Key
from weightd.store import SeizeRefused


class Admission:
    """Decides first, then acts: a refused arrival has moved nothing."""

    def __init__(self, context: Context, evictions: Evictions) -> None:
        self._context = context
        self._evictions = evictions
        self._queue: deque[object] = deque()

    @property
    def waiting(self) -> int:
        """How many arrivals wait while blocked."""
        return len(self._queue)

    async def admit(self, key: Key, size: int, declared: int, wait: float) -> Reservation:
        """A reservation of ``size`` bytes of blocks whose victims are out of reach.

        ``declared`` is the size as the caller knows it, for the figures of a
        refusal.  While blocked it waits up to ``wait`` seconds, first come,
        first served.  Raises TooLarge, Blocked, DiskFull or TooMany.
        """
        try:
            return await self._reserve_or_wait(key, size, wait)
        except TooLarge as error:
            # A size that only its last block lifts over the budget keeps the blocks' figure.
            error.bytes = declared if declared > error.capacity else error.bytes
            self._refuse(key, error)
            raise
        except (Blocked, DiskFull) as error:
            error.bytes = declared
            self._refuse(key, error)
            raise

    async def granted(self, reservation: Reservation) -> None:
        """Wait until all promised bytes may be written, the victims' own being gone.

        Raises Blocked when they do not go within the bound.
        """
        try:
            async with asyncio.timeout(self._context.options.grant_timeout):
                while not self._context.ledger.grant(reservation):
                    await self._context.changed.wait()
        except TimeoutError:
            usage = self._context.ledger.usage()
            raise Blocked(
                reason="arriving",
                bytes=reservation.bytes,
                free=usage.free,
                evictable=usage.evictable,
                pinned=usage.pinned,
                arriving=usage.reserved,
                hint=(
                    f"{usage.doomed} bytes of evicted models have not left the disk yet; "
                    "see weightd's log for what keeps them."
                ),
            ) from None

    async def grow(self, reservation: Reservation, extra: int, spare: int) -> int:
        """Promise ``extra`` bytes more, or ``extra + spare`` if they are free; answer how many."""
        room = await self._settled_room()
        more = extra + spare
        try:
            self._context.ledger.grow(reservation, more, room)
        except (Blocked, TooLarge, DiskFull):
            more = extra
            self._context.ledger.grow(reservation, more, room)
        await self.granted(reservation)
        return more

    async def verdict(self, size: int, key: Key | None) -> Verdict:
        """What would become of an arrival, decided on the same books and not done."""
        room = await self._settled_room()
        ledger, store = self._context.ledger, self._context.store
        usage = ledger.usage()
        figures = partial(
            Verdict,
            bytes=size,
            capacity=usage.capacity,
            free=usage.free,
            evictable=usage.evictable,
            pinned=usage.pinned,
            arriving=usage.reserved,
            filesystem_free=room.free,
            min_free=room.min_free,
        )
        try:
            plan = ledger.plan(key, store.blocks(size), room)
        except TooLarge:
            return figures("too-large")
        except Blocked as blocked:
            return figures("blocked", holders=blocked.holders, reason=blocked.reason)
        except DiskFull:
            return figures("disk-full")
        victims = tuple(Victim(one.id.key, one.id.digest, one.bytes, one.last_used) for one in plan)
        return figures("evicts" if victims else "fits", victims=victims)

    async def _reserve_or_wait(self, key: Key, size: int, wait: float) -> Reservation:
        if wait <= 0:
            return await self._reserve(key, size)
        if len(self._queue) >= self._context.options.waiting:
            raise TooMany(what="arrivals waiting for room", limit=self._context.options.waiting)
        deadline = asyncio.get_running_loop().time() + wait
        ticket = object()
        self._queue.append(ticket)
        try:
            return await self._reserve_in_turn(key, size, ticket, deadline)
        finally:
            self._queue.remove(ticket)
            self._context.changed.notify()

    async def _reserve_in_turn(
        self, key: Key, size: int, ticket: object, deadline: float
    ) -> Reservation:
        loop = asyncio.get_running_loop()
        while True:
            left = deadline - loop.time()
            if self._queue[0] is ticket or left <= 0:
                try:
                    return await self._reserve(key, size)
                except Blocked:
                    if left <= 0:
                        raise
            await self._context.changed.wait(max(0.0, left))

    async def _reserve(self, key: Key, size: int) -> Reservation:
        """Reserve, and put the victims out of reach; plan again without those in use.

        Each round that fails marks at least one generation as used, so it ends.
        """
        while True:
            room = await self._settled_room()
            reservation = self._context.ledger.reserve(key, size, room)
            if not reservation.victims:
                return reservation
            try:
                await completed(
                    self._evictions.evict(reservation.victims, "admission", reservation)
                )
                return reservation
            except SeizeRefused:
                continue
            except BaseException:
                self._evictions.release(reservation)
                raise

    async def _settled_room(self) -> Room:
        """What the filesystem has, at an instant at which no victim may still come back.

        Until then its bytes are taken for free, and a promise made of them
        could not be kept.
        """
        while True:
            await self._context.nothing_settles()
            room = await self._context.room()
            # Figures from before a seizure would take its victims' bytes for used or for free.
            if not self._context.ledger.settling:
                return room

    def _refuse(self, key: Key, error: TooLarge | Blocked | DiskFull) -> None:
        self._context.counters.rejections[error.code] += 1
        self._context.events.tell("refused", key=str(key), code=error.code, bytes=error.bytes)
