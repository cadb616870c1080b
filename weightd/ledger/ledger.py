"""The books: reserve, commit, release, pin, unpin, touch, expire, evict.

Two sums never pass the budget (DESIGN, rule 1).  *Promised*: blobs on disk
plus reservations plus what is parked; `Ledger.reserve` keeps it.  *On disk*:
blobs plus what granted arrivals may write plus what is parked plus doomed
bytes; `Ledger.grant` keeps it, so an arrival begins to write only when its
victims' bytes are really gone.

An eviction has two steps, because only the kernel knows who has a file mapped.
``reserve`` names victims, which are then LEAVING: neither answered nor
forgotten.  The cache seizes them on disk, and tells `Ledger.evicted`, or
`Ledger.refused`, after which they stand where they stood.

An unfinished arrival may be *parked*: its bytes stay, to be gone on with, and
are the first to go when anything needs room.  Nobody can have them open, so what
is dropped of them is doomed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weightd.errors import InUse, NotResident, Pinned
from weightd.ledger.entries import (
    Doomed,
    Dropped,
    Parked,
    Remains,
    Reservation,
    Succession,
    Usage,
)
from weightd.ledger.generations import Generation, IllegalMove
from weightd.ledger.guards import use_of
from weightd.ledger.holdings import Holdings
from weightd.ledger.partials import Partials
from weightd.ledger.pins import holder_figures
from weightd.ledger.planning import Books, Plan, Room, make_plan, plan_growth
from weightd.ledger.policy import LeastRecentlyUsed, Policy
from weightd.ledger.promises import Promises
from weightd.ledger.shrinking import refuse_unfit, short_on_disk
from weightd.model import Blob, Digest, GenerationId, Key


class Ledger(Holdings):
    """A byte budget with pins, on paper.

    The example at the head of this package shows one in use.
    """

    def __init__(self, capacity: int, policy: Policy | None = None) -> None:
        super().__init__(LeastRecentlyUsed() if policy is None else policy)
        self.capacity = capacity
        self._promises = Promises()
        self._partials = Partials()
        self.given_back = 0
        """Bytes that left the disk since the beginning, which it may not show as free yet."""

    # -- The sums --------------------------------------------------------------

    def usage(self) -> Usage:
        """The sums of this instant."""
        return Usage(
            capacity=self.capacity,
            resident=self._shelf.blobs.resident,
            retired=self._shelf.blobs.retired,
            reserved=self._promises.reserved,
            written=self._promises.written,
            parked=self._partials.bytes,
            doomed=self._shelf.doomed_bytes,
            pinned=self._shelf.blobs.kept,
            evictable=self._shelf.blobs.evictable + self._partials.bytes,
            models=len(self._shelf.current),
            retired_models=len(self._shelf.generations) - len(self._shelf.current),
            arrivals=self._promises.count,
            pins=self._pins.count,
        )

    def resize(self, capacity: int) -> None:
        """Change the budget; `refuse_unfit` and `over` bring what is here down to it."""
        self.story.append(("resize", capacity))
        self.capacity = capacity

    # -- Arrivals --------------------------------------------------------------

    def plan(
        self,
        key: Key | None,
        size: int,
        room: Room | None = None,
        links: Iterable[GenerationId] = (),
        resuming: Parked | None = None,
        present: int = 0,
    ) -> list[Generation]:
        """The generations that `reserve`, asked the same, would name as victims.

        None of them go while anything parked would do.  Raises as `reserve` does.
        """
        linked = tuple(self._shelf.known(id) for id in links)
        with self._guards.linked_meanwhile(linked):
            return list(self._plan(key, size, room, resuming, present).victims)

    def reserve(
        self,
        key: Key,
        size: int,
        room: Room | None = None,
        links: Iterable[GenerationId] = (),
        resuming: Parked | None = None,
        present: int = 0,
    ) -> Reservation:
        """Promise ``size`` bytes, and name the victims that make them free.

        The generations in ``links`` are kept for as long as the reservation
        lasts; what they share with the arrival is no part of ``size``.  The bytes
        of ``resuming`` are: the arrival has written them already.  Of ``present``
        bytes the budget is short, and the disk is not.  Raises TooLarge, Blocked or
        DiskFull when nothing could make it fit, and then nothing has changed.
        """
        if resuming is not None and resuming.key != key:
            raise IllegalMove(f"what was parked of {resuming.key} is not resumed as {key}")
        linked = tuple(self._shelf.known(id) for id in links)
        with self._guards.linking(linked):
            plan = self._plan(key, size, room, resuming, present)
        own = 0 if resuming is None else resuming.bytes
        self.story.append(("reserve", str(key), size, own, len(plan.parked), len(plan.victims)))
        if resuming is not None:
            self._partials.take(resuming)
        dropped = tuple(self._drop(parked) for parked in plan.parked)
        doomed = tuple(self._shelf.leave(victim) for victim in plan.victims)
        reservation = Reservation(key, max(size, own), doomed, dropped, linked)
        reservation.granted = reservation.written = own
        reservation.present = present
        return self._promises.make(reservation)

    def _plan(
        self, key: Key | None, size: int, room: Room | None, resuming: Parked | None, present: int
    ) -> Plan:
        replaced = None if key is None else self.current(key)
        if resuming is None:
            return make_plan(self._books(), size, replaced, room, present=present)
        self._partials.must_be_here(resuming)
        own = resuming.bytes
        return make_plan(self._books(resuming), max(0, size - own), replaced, room, own=own)

    def grow(
        self, reservation: Reservation, extra: int, room: Room | None = None
    ) -> tuple[Dropped, ...]:
        """Promise ``extra`` bytes more, for which nothing is evicted; answers what was dropped.

        Raises TooLarge, Blocked or DiskFull.  Ask `grant` before writing them.
        """
        self._promises.must_be_open(reservation)
        parked = plan_growth(self._books(), reservation.bytes, extra, room)
        self.story.append(("grow", str(reservation.key), extra, len(parked)))
        self._promises.extend(reservation, extra)
        return tuple(self._drop(one) for one in parked)

    def grant(self, reservation: Reservation, room: Room | None = None) -> bool:
        """Let the arrival write all that it was promised, if the disk's sum allows it by now.

        With ``room`` the filesystem must have the bytes as well: what is doomed is not free yet.
        """
        self._promises.must_be_open(reservation)
        return self._promises.grant(reservation, self._left(room, sure=True))

    def may_be_granted(self, reservation: Reservation, room: Room) -> bool:
        """Whether `grant` would, if the disk has seen all that was written during the look."""
        return self._promises.may_grant(reservation, self._left(room, sure=False))

    def _left(self, room: Room | None, *, sure: bool) -> int:
        """What the disk has for all that is granted, written or not."""
        shelf = self._shelf
        left = self.capacity - shelf.blobs.occupied - self._partials.bytes - shelf.doomed_bytes
        if room is None:
            return left
        unsure = room.unsure if sure else 0
        return min(left, room.spare - unsure + self._promises.here)

    def refuse_unfit(self, room: Room | None = None) -> list[Reservation]:
        """Refuse arrivals under way for which budget or disk have become too small.

        Each stays promised, with its ``refusal`` set, until it is released.
        """
        refused = refuse_unfit(self._books(), self._promises, room)
        if refused:
            self.story.append(("refuse unfit", *(str(one.key) for one in refused)))
        return refused

    def commit(
        self, reservation: Reservation, digest: Digest, blobs: tuple[Blob, ...], now: float
    ) -> Succession:
        """Turn a reservation into the current generation of its key.

        Raises IllegalMove when the blobs exceed what was promised, or when the
        generation is in the books already (see `restore`).
        """
        self._promises.must_be_open(reservation)
        id = GenerationId(reservation.key, digest)
        self._shelf.must_be_new(id)
        fresh = sum(blob.bytes for blob in set(blobs) if not self._shelf.blobs.users(blob))
        if fresh > reservation.bytes:
            raise IllegalMove(f"{id}: {fresh} bytes arrived, {reservation.bytes} were promised")
        self.story.append(("commit", str(id.key), digest, fresh))
        generation = Generation(id, blobs, last_used=now)
        self._shelf.add(generation)
        return self._shelf.succeed(generation, self._end(reservation))

    def restore(self, reservation: Reservation, id: GenerationId, now: float) -> Succession:
        """Make a retired generation current again, its content having arrived once more."""
        self._promises.must_be_open(reservation)
        generation = self._shelf.known(id)
        if id.key != reservation.key:
            raise IllegalMove(f"{id} is not what the reservation for {reservation.key} was for")
        self.story.append(("restore", str(id.key), id.digest))
        self._shelf.restore(generation)
        self._shelf.touch(generation, now)
        return self._shelf.succeed(generation, self.release(reservation))

    def release(self, reservation: Reservation) -> list[Doomed]:
        """Give a promise back; a second time does nothing.

        Answers the retired generations that only its links kept, which may now go.
        """
        if not reservation.open:
            return []
        self.story.append(("release", str(reservation.key), reservation.bytes))
        self.given_back += reservation.written
        return self._end(reservation)

    def _end(self, reservation: Reservation) -> list[Doomed]:
        self._promises.end(reservation)
        return self._guards.unlink(reservation.links)

    # -- Parked ----------------------------------------------------------------

    def park(self, reservation: Reservation) -> Parked:
        """End an arrival half way; what it has written stays here, to be gone on with.

        A retired generation that only its links kept goes by the next `over`.
        """
        self._promises.must_be_open(reservation)
        self.story.append(("park", str(reservation.key), reservation.written))
        self._promises.end(reservation)
        self._guards.forgo(reservation.links)
        return self._partials.add(Parked(reservation.key, reservation.written))

    def load_parked(self, key: Key, size: int) -> Parked:
        """Enter ``size`` bytes that an arrival of an earlier run left; call the oldest first."""
        self.story.append(("load parked", str(key), size))
        return self._partials.add(Parked(key, size))

    def drop_parked(self, parked: Parked) -> Remains:
        """Give up what was parked.  Raises IllegalMove when it was resumed or dropped."""
        return self._drop(parked).remains

    def keep_parked(self, dropped: Sequence[Dropped]) -> None:
        """What an arrival was to cost stays: its victims were refused, and it is released.

        Call it before anything else is decided, and with what is all there still.
        """
        for one in dropped:
            self._shelf.take_back(one.remains)
            self.story.append(("keep", str(one.parked.key), one.parked.bytes))
        self._partials.put_back([one.parked for one in dropped])

    def drop_over(self, limit: int) -> list[Dropped]:
        """Drop what is parked, the oldest first, until ``limit`` bounds what is promised."""
        dropped = []
        for parked in list(self._partials.oldest_first()):
            if self.promised <= limit:
                break
            dropped.append(self._drop(parked))
        return dropped

    def _drop(self, parked: Parked) -> Dropped:
        self._partials.take(parked)
        self.story.append(("drop", str(parked.key), parked.bytes))
        return Dropped(parked, self._shelf.leave_debris(parked.bytes))

    # -- All at once -------------------------------------------------------------

    def admit(
        self, key: Key, digest: Digest, blobs: tuple[Blob, ...], now: float
    ) -> list[GenerationId]:
        """Reserve, evict and commit in one step, for use without a disk.

        Answers the generations that went.  Raises as `reserve` does.
        """
        reservation = self.reserve(key, sum(blob.bytes for blob in set(blobs)))
        gone = list(reservation.victims)
        self.evicted(gone)
        succession = self.commit(reservation, digest, blobs, now)
        if succession.replaced is not None:
            self.evicted([succession.replaced])
            gone.append(succession.replaced)
        for remains in (*gone, *(one.remains for one in reservation.dropped)):
            self.freed(remains)
        return [doomed.id for doomed in gone]

    # -- Leaving ---------------------------------------------------------------

    def evict(self, id: GenerationId) -> Doomed:
        """Name one generation as a victim.  Raises NotResident, Pinned or InUse."""
        generation = self._shelf.generations.get(id)
        if generation is None:
            raise NotResident(key=str(id.key))
        if generation.pins:
            raise Pinned(key=str(id.key), holders=holder_figures([generation]))
        if generation.guarded:
            raise InUse(key=str(id.key), reason=use_of(generation))
        self.story.append(("evict", str(id.key), id.digest))
        return self._shelf.leave(generation)

    @property
    def promised(self) -> int:
        """What is on the books: blobs, what is parked, and arrivals not refused meanwhile."""
        arriving = self._promises.reserved - self._promises.refused
        return self._shelf.blobs.occupied + self._partials.bytes + arriving

    def short_on_disk(self, room: Room) -> int:
        """By how many bytes ``min_free`` is missed, or will be; negative when there is more."""
        return short_on_disk(self._books(), self._promises, room)

    def over(self, limit: int, most: int | None = None) -> list[Doomed]:
        """Name retired generations that nothing keeps, then the idlest, down to ``limit``.

        ``limit`` bounds what is promised, in bytes; short of victims, or with
        ``most`` of them named, it may not be reached.  What is parked is taken for
        gone: `drop_over` first.
        """
        unkept = list(self._shelf.unkept())[:most]
        named = [self._shelf.leave(generation) for generation in unkept]
        for generation in self._shelf.idle_first():  # whose order a victim leaves when it settles
            if self.promised - self._partials.bytes <= limit or len(named) == most:
                break
            if not generation.guarded:
                named.append(self._shelf.leave(generation))
        self.story.append(("over", limit, len(named)))
        return named

    def withdraw(self, id: GenerationId) -> Doomed | None:
        """Answer ``id``, whose files are damaged, no more; it goes when nothing keeps it."""
        generation = self._shelf.known(id)
        self.story.append(("withdraw", str(id.key), id.digest))
        return self._shelf.withdraw(generation)

    def evicted(self, victims: Iterable[Doomed]) -> None:
        """The victims are out of reach on disk; only their bytes are still there."""
        for doomed in victims:
            self._shelf.settle(doomed)
            self.story.append(("evicted", str(doomed.id.key), doomed.bytes))

    def refused(
        self, victims: Iterable[Doomed], in_use: Iterable[GenerationId]
    ) -> list[Generation]:
        """The seizure failed: every victim stands as before, those ``in_use`` marked so.

        Answers those whose key has another current generation by now, and
        which are therefore retired.
        """
        used = set(in_use)
        superseded = []
        for doomed in victims:
            if self._shelf.come_back(doomed):
                superseded.append(doomed.generation)
            self.story.append(("refused", str(doomed.id.key), doomed.id in used))
            if doomed.id in used:
                self.mark_use(doomed.id, True)
        return superseded

    def debris(self, size: int) -> Remains:
        """Count ``size`` bytes that an earlier run left on disk, out of everybody's reach."""
        return self._shelf.leave_debris(size)

    def freed(self, remains: Remains, size: int | None = None) -> None:
        """``size`` bytes of what was evicted have left the disk (None: the rest of them)."""
        if isinstance(remains, Doomed) and not remains.settled:
            raise IllegalMove(f"{remains.id} is still on disk")
        before = self._shelf.doomed_bytes
        self._shelf.freed(remains, size)
        self.given_back += before - self._shelf.doomed_bytes

    # -- Inside ----------------------------------------------------------------

    def _books(self, resuming: Parked | None = None) -> Books:
        """The books as they are, or as they will be once ``resuming`` is an arrival again."""
        own = 0 if resuming is None else resuming.bytes
        return Books(
            capacity=self.capacity,
            blobs=self._shelf.blobs,
            reserved=self._promises.reserved + own,
            unwritten=self._promises.reserved - self._promises.here,
            left=self._partials.bytes - own,
            doomed=self._shelf.doomed_bytes,
            pins_known=self.pins_known,
            parked=lambda: (one for one in self._partials.oldest_first() if one is not resuming),
            idle=self._shelf.evictable,
            holders=self._keepers,
        )
