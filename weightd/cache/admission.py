"""Room for an arrival: promised, made by eviction, waited for, or refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from weightd.cache.context import Context
from weightd.cache.evictions import Evictions
from weightd.cache.queue import Queue, Ticket
from weightd.cache.records import Verdict, Victim
from weightd.cache.sweep import Sweep
from weightd.cache.tasks import completed
from weightd.errors import Blocked, BlockedReason, DiskFull, TooLarge
from weightd.errors.room import keepers
from weightd.ledger import Generation, Parked, Reservation, Room, Usage, disk_full
from weightd.model import GenerationId, Key
from weightd.store import SeizeRefused

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often the filesystem is asked for what nobody announces: others that free or take space."""


Spares: TypeAlias = Callable[[Generation], bool]
"""Says of a victim whether it is wanted more than what would evict it."""


@dataclass(frozen=True, slots=True)
class Need:
    """What an arrival needs of the books: ``size`` bytes of blocks in all.

    The generations in ``links`` are kept meanwhile, the bytes of ``resuming``
    are here already; ``present`` bytes are on the disk as somebody else's.  It is
    not worth evicting what ``spares`` says is wanted more.
    """

    size: int
    links: tuple[GenerationId, ...] = ()
    resuming: Parked | None = None
    spares: Spares | None = None
    present: int = 0


@dataclass(frozen=True, slots=True)
class Want:
    """An arrival that wants in.

    ``need`` is asked in the same step in which the ledger decides, since what
    can be linked changes while others come and go.  ``declared`` is the size as
    the caller knows it, for the figures of a refusal.
    """

    key: Key
    declared: int
    need: Callable[[], Need]


class Admission:
    """Decides first, then acts: a refused arrival has moved nothing."""

    def __init__(self, context: Context, evictions: Evictions, sweep: Sweep) -> None:
        self._context = context
        self._evictions = evictions
        self._sweep = sweep
        self._queue = Queue(context.options.waiting)

    @property
    def waiting(self) -> int:
        """How many arrivals wait while blocked."""
        return len(self._queue)

    async def admit(self, want: Want, wait: float) -> Reservation:
        """A reservation of what is wanted, whose victims are out of reach.

        While blocked it waits up to ``wait`` seconds, first come, first served.
        Raises TooLarge, Blocked, DiskFull, IoError or TooMany.
        """
        try:
            if wait > 0:
                return await self._wait_in_turn(want, wait)
            return await self._pass_by(want)
        except TooLarge as error:
            # A size that only its last block lifts over the budget keeps the blocks' figure.
            error.bytes = want.declared if want.declared > error.capacity else error.bytes
            raise
        except (Blocked, DiskFull) as error:
            error.bytes = want.declared
            raise

    async def granted(self, reservation: Reservation) -> None:
        """Wait until all promised bytes may be written, the victims' own being gone.

        Raises what the arrival was refused with meanwhile, Blocked when the
        bytes do not go within the bound, DiskFull when others took them.
        """
        loop = asyncio.get_running_loop()
        bound = loop.time() + self._context.options.grant_timeout
        ledger, patience = self._context.ledger, None
        while True:
            room = await self._context.room()
            if reservation.refusal is not None:
                raise reservation.refusal
            if ledger.grant(reservation, room):
                return
            now = loop.time()
            if now >= bound:
                raise self._not_granted(reservation)
            # All is there, unless the look missed what others wrote meanwhile: the next may tell.
            if ledger.usage().doomed or ledger.may_be_granted(reservation, room):
                patience = None
            elif patience is None:
                # What was unlinked may be seen late.
                late = max(self._context.options.seen_late, self._context.store.freeing_seen_within)
                patience = now + late + LOOK_SECONDS
            elif now >= patience:
                await self._make_good(reservation)
            await self._context.changed.wait(min(LOOK_SECONDS, bound - now))

    async def _make_good(self, reservation: Reservation) -> None:
        """Evict for a promise that the disk cannot keep, since others wrote when it was made.

        Raises DiskFull when that would not do either.
        """
        room = await self._context.settled_room()
        ledger = self._context.ledger
        dropped = ledger.drop_over(ledger.promised - max(0, ledger.short_on_disk(room)))
        if dropped:
            self._evictions.give_up(dropped)
            return
        try:
            # Nothing more is wanted than what is promised already.
            short = ledger.plan(None, 0, room)
        except (Blocked, DiskFull):
            raise disk_full(reservation.bytes, room) from None
        await self._evictions.let_go([ledger.evict(one.id) for one in short], "disk")

    def _not_granted(self, reservation: Reservation) -> Blocked:
        usage = self._context.ledger.usage()
        hint = (
            f"{usage.doomed} bytes of evicted models have not left the disk yet; "
            "see weightd's log for what keeps them."
        )
        return _blocked(usage, "arriving", reservation.bytes, hint)

    async def grow(self, reservation: Reservation, extra: int, spare: int) -> int:
        """Promise ``extra`` bytes more, or ``extra + spare`` if they are free; answer how many."""
        room = await self._context.settled_room()
        more = extra + spare
        try:
            dropped = self._context.ledger.grow(reservation, more, room)
        except (Blocked, TooLarge, DiskFull):
            more = extra
            dropped = self._context.ledger.grow(reservation, more, room)
        self._evictions.give_up(dropped)
        await self.granted(reservation)
        return more

    def refused(self, key: Key, error: TooLarge | Blocked | DiskFull) -> None:
        """Count and tell a refusal, whether before the first byte or under way."""
        self._context.counters.rejections[error.code] += 1
        self._context.refusals.note(key, error)
        self._context.events.tell("refused", key=str(key), code=error.code, **_figures(error))

    async def verdict(self, size: int, key: Key | None) -> Verdict:
        """What would become of an arrival, decided on the same books and not done."""
        verdict = await self._verdict(size, key)
        if verdict.verdict == "blocked" and await self._sweep.let_go_meanwhile():
            return await self._verdict(size, key)
        return verdict

    async def _verdict(self, size: int, key: Key | None) -> Verdict:
        room = await self._context.settled_room()
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

    # -- Promised, in turn -------------------------------------------------------

    async def _wait_in_turn(self, want: Want, wait: float) -> Reservation:
        """Only the first of the queue asks for room, until it has it or its time is over.

        One that fits the free bytes when it comes is let past, as if it did not wait.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        # Before any await: the queue is in the order in which they came.
        ticket = self._queue.join(loop.time())
        try:
            passed = await self._pass_at_once(want)
            if passed is not None:
                return passed
            while (left := deadline - loop.time()) > 0:
                if self._queue.is_first(ticket):
                    try:
                        return await self._reserve(want)
                    except Blocked as error:
                        # No await between this refusal and the wait: no change goes unseen.
                        if not ticket.blocked:
                            _log_waiting(want, error)
                        ticket.blocked = True
                    left = max(0.0, min(LOOK_SECONDS, deadline - loop.time()))
                await self._context.changed.wait(left)
            return await self._at_the_bound(want, ticket)
        finally:
            self._queue.leave(ticket)
            self._context.changed.notify()

    async def _at_the_bound(self, want: Want, ticket: Ticket) -> Reservation:
        """Admitted, or refused with the figures of this moment."""
        if self._queue.is_first(ticket):
            return await self._reserve(want)
        self._queue.leave(ticket)
        return await self._pass_by(want)

    async def _pass_by(self, want: Want) -> Reservation:
        """For one who does not wait: past those who do, if that may be."""
        passed = await self._pass(want)
        if passed is not None:
            return passed
        try:
            return await self._reserve_now(want)
        except Blocked:
            # What is known of use is a sweep old.
            if not await self._sweep.let_go_meanwhile():
                raise
        return await self._reserve_now(want)

    async def _reserve_now(self, want: Want) -> Reservation:
        if self._queue.blocked_first() is not None:
            raise self._after_those_who_wait(want.need().size)
        return await self._reserve(want)

    async def _pass_at_once(self, want: Want) -> Reservation | None:
        """For one who waits otherwise."""
        try:
            return await self._pass(want)
        except Blocked:
            return None

    async def _pass(self, want: Want) -> Reservation | None:
        """Free bytes, past those who wait, if that costs them nothing for long; else None.

        Who stands first has waited longest: nobody is passed who has waited as
        long as may be.  Raises TooLarge, and Blocked or DiskFull without room.
        """
        if self._queue.blocked_first() is None:
            return None
        room = await self._context.settled_room()
        first = self._queue.blocked_first()
        if first is None:
            return None
        waited = asyncio.get_running_loop().time() - first.since
        if self._victims(want.key, want.need(), room) or waited >= self._context.options.overtake:
            return None
        return self._promise(want, room)

    def _after_those_who_wait(self, size: int) -> Blocked:
        first = "1 arrival waits" if self.waiting == 1 else f"{self.waiting} arrivals wait"
        hint = f"{first} for room, in turn before this one; wait with ?wait=SECONDS."
        return _blocked(self._context.ledger.usage(), "arriving", size, hint)

    async def _reserve(self, want: Want) -> Reservation:
        """Reserve, and put the victims out of reach; plan again without those in use.

        Each round that fails marks at least one generation as used, so it ends.
        """
        while True:
            room = await self._context.settled_room()
            reservation = self._promise(want, room)
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

    def _promise(self, want: Want, room: Room) -> Reservation:
        """Book what is wanted; partials that stand in the way go, but not before any victims."""
        need = want.need()
        if need.spares is not None:
            self._must_spare(want.key, need, need.spares, room)
        reservation = self._context.ledger.reserve(
            want.key, need.size, room, need.links, resuming=need.resuming, present=need.present
        )
        if need.resuming is not None:
            self._context.partials.resume(want.key, reservation)
        if reservation.victims:
            self._context.partials.set_aside(reservation.dropped)
        else:
            self._evictions.give_up(reservation.dropped)
        return reservation

    def _victims(self, key: Key, need: Need, room: Room) -> list[Generation]:
        return self._context.ledger.plan(
            key, need.size, room, need.links, need.resuming, need.present
        )

    def _must_spare(self, key: Key, need: Need, spares: Spares, room: Room) -> None:
        """Raise Blocked when it would cost what is wanted more."""
        victims = self._victims(key, need, room)
        spared = next((one.id.key for one in victims if spares(one)), None)
        if spared is None:
            return
        hint = f"It would evict {spared}, which is wanted more."
        raise _blocked(self._context.ledger.usage(), "pins", need.size, hint)


def _log_waiting(want: Want, error: Blocked) -> None:
    """Name what waits: the status counts it only, and a refusal comes when its time is over."""
    figures = {**_figures(error), "key": str(want.key), "bytes": want.declared}
    log.warning("blocked, and waits for room", extra=figures)


def _figures(error: TooLarge | Blocked | DiskFull) -> dict[str, object]:
    """What is told of a refusal; of many holders the first ones."""
    figures = error.figures()
    if isinstance(error, Blocked):
        del figures["holders"]
        figures["held_by"] = keepers(error.holders) if error.holders else None
    return figures


def _blocked(usage: Usage, reason: BlockedReason, size: int, hint: str) -> Blocked:
    """The refusal of ``size`` bytes with the figures of this moment."""
    return Blocked(
        reason=reason,
        bytes=size,
        free=usage.free,
        evictable=usage.evictable,
        pinned=usage.pinned,
        arriving=usage.reserved,
        hint=hint,
    )
