"""The books: reserve, commit, release, pin, unpin, touch, expire, evict.

Two sums never pass the budget (DESIGN, rule 1).  *Promised*: blobs on disk
plus reservations; `Ledger.reserve` keeps it.  *On disk*: blobs plus what
granted arrivals may write plus doomed bytes; `Ledger.grant` keeps it, so an
arrival begins to write only when its victims' bytes are really gone.

An eviction has two steps, because only the kernel knows who has a file mapped.
``reserve`` names victims, which are then LEAVING: neither answered nor
forgotten.  The cache seizes them on disk, and tells `Ledger.evicted`, or
`Ledger.refused`, after which they stand where they stood.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from weightd.errors import HolderFigures, InUse, NotPinned, NotResident, Pinned
from weightd.ledger.entries import Doomed, Pinning, Remains, Reservation, Succession, Usage
from weightd.ledger.generations import Generation, IllegalMove
from weightd.ledger.guards import Guards, use_of
from weightd.ledger.pins import HOLDERS_NAMED, PinBook, holder_figures
from weightd.ledger.planning import Books, Room, plan_growth, plan_victims
from weightd.ledger.policy import LeastRecentlyUsed, Policy
from weightd.ledger.promises import Promises
from weightd.ledger.shelf import Shelf
from weightd.ledger.shrinking import refuse_unfit, short_on_disk
from weightd.model import Blob, Digest, GenerationId, Key, Pin

STORY_LENGTH: Final = 200
"""How many of the last stimuli are kept for the message of a failed check."""


class Ledger:
    """A byte budget with pins, on paper.

    The example at the head of this package shows one in use.
    """

    def __init__(self, capacity: int, policy: Policy | None = None) -> None:
        self.capacity = capacity
        self.story: deque[tuple[object, ...]] = deque(maxlen=STORY_LENGTH)
        self._shelf = Shelf(LeastRecentlyUsed() if policy is None else policy)
        self._guards = Guards(self._shelf)
        self._pins = PinBook()
        self._promises = Promises()
        self.given_back = 0
        """Bytes that left the disk since the beginning, which it may not show as free yet."""

    # -- What there is ---------------------------------------------------------

    def current(self, key: Key) -> Generation | None:
        """The generation that a lookup of ``key`` answers, without counting a use."""
        return self._shelf.current.get(key)

    def generation(self, id: GenerationId) -> Generation | None:
        """The generation ``id`` if it is resident or retired."""
        return self._shelf.generations.get(id)

    def keys(self) -> Iterator[Key]:
        """Every key that a lookup would answer, in no order."""
        return iter(self._shelf.current)

    def generations(self) -> Iterator[Generation]:
        """Every resident and retired generation, in no order."""
        return iter(self._shelf.generations.values())

    def idle_first(self) -> Iterator[Generation]:
        """Every resident generation in order of eviction, guarded ones included."""
        return self._shelf.idle_first()

    def leaving(self, key: Key) -> bool:
        """Whether a generation of ``key`` is named as a victim and may still be refused."""
        return key in self._shelf.leaving

    @property
    def settling(self) -> bool:
        """Whether any victim is only named and may still be refused.

        Its bytes are taken for free.  An arrival promised them meanwhile loses that promise if
        the victim is refused, so whoever acts on the books waits until nothing is settling.
        """
        return bool(self._shelf.leaving)

    def usage(self) -> Usage:
        """The sums of this instant."""
        return Usage(
            capacity=self.capacity,
            resident=self._shelf.blobs.resident,
            retired=self._shelf.blobs.retired,
            reserved=self._promises.reserved,
            written=self._promises.written,
            doomed=self._shelf.doomed_bytes,
            pinned=self._shelf.blobs.kept,
            evictable=self._shelf.blobs.evictable,
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

    def plan(self, key: Key | None, size: int, room: Room | None = None) -> list[Generation]:
        """The generations that an arrival of ``size`` bytes under ``key`` would evict.

        Raises TooLarge, Blocked or DiskFull when no eviction could make it fit.
        """
        replaced = None if key is None else self.current(key)
        return plan_victims(self._books(), size, replaced, room)

    def reserve(
        self,
        key: Key,
        size: int,
        room: Room | None = None,
        links: Iterable[GenerationId] = (),
    ) -> Reservation:
        """Promise ``size`` bytes, and name the victims that make them free.

        The generations in ``links`` are kept for as long as the reservation
        lasts.  Raises as `plan` does, and then nothing has changed.
        """
        linked = tuple(self._shelf.known(id) for id in links)
        with self._guards.linking(linked):
            victims = self.plan(key, size, room)
        self.story.append(("reserve", str(key), size, len(victims)))
        doomed = tuple(self._shelf.leave(victim) for victim in victims)
        return self._promises.make(Reservation(key, size, doomed, linked))

    def grow(self, reservation: Reservation, extra: int, room: Room | None = None) -> None:
        """Promise ``extra`` bytes more, out of free bytes only.

        Raises TooLarge, Blocked or DiskFull.  Ask `grant` before writing them.
        """
        self._promises.must_be_open(reservation)
        plan_growth(self._books(), reservation.bytes, extra, room)
        self.story.append(("grow", str(reservation.key), extra))
        self._promises.extend(reservation, extra)

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
        left = self.capacity - self._shelf.blobs.occupied - self._shelf.doomed_bytes
        if room is None:
            return left
        unsure = room.unsure if sure else 0
        return min(left, room.spare - unsure + self._promises.written)

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
        for doomed in gone:
            self.freed(doomed)
        return [doomed.id for doomed in gone]

    def load(
        self,
        id: GenerationId,
        blobs: tuple[Blob, ...],
        *,
        retired: bool,
        last_used: float,
        hits: int,
    ) -> Generation:
        """Enter a generation found on disk; call in order of recency, the idlest first.

        Raises IllegalMove when its key has a current generation already.
        """
        generation = Generation(id, blobs, last_used, hits)
        self._shelf.load(generation, retired=retired)
        return generation

    def rebind(self, id: GenerationId, blobs: tuple[Blob, ...]) -> None:
        """Correct the blobs of a generation to what its files turned out to be."""
        self._shelf.rebind(self._shelf.known(id), blobs)

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
        """What is on the books for good: blobs, and arrivals that are not refused meanwhile."""
        return self._shelf.blobs.occupied + self._promises.reserved - self._promises.refused

    def short_on_disk(self, room: Room) -> int:
        """By how many bytes ``min_free`` is missed, or will be; negative when there is more."""
        return short_on_disk(self._books(), self._promises, room)

    def over(self, limit: int, most: int | None = None) -> list[Doomed]:
        """Name retired generations that nothing keeps, then the idlest, down to ``limit``.

        ``limit`` bounds what is promised, in bytes; short of victims, or with
        ``most`` of them named, it may not be reached.
        """
        unkept = list(self._shelf.unkept())[:most]
        named = [self._shelf.leave(generation) for generation in unkept]
        for generation in self._shelf.idle_first():  # whose order a victim leaves when it settles
            if self.promised <= limit or len(named) == most:
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

    # -- Use -------------------------------------------------------------------

    def use(self, key: Key, now: float) -> Generation:
        """Count a use of the current generation.  Raises NotResident: a miss."""
        generation = self._shelf.current.get(key)
        if generation is None:
            raise NotResident(key=str(key))
        generation.hits += 1
        self._shelf.touch(generation, now)
        return generation

    def touch(self, id: GenerationId, now: float) -> None:
        """Note a use that is no lookup: the same content arrived once more."""
        self._shelf.touch(self._shelf.known(id), now)

    def read(self, id: GenerationId, readers: int) -> Doomed | None:
        """Count weightd's own readers up or down; answers a retired generation that may now go."""
        return self._guards.read(id, readers)

    def mark_use(self, id: GenerationId, seen: bool) -> Doomed | None:
        """Note whether the kernel reports ``id`` in use; answers a retired one that may now go."""
        return self._guards.mark_use(id, seen)

    # -- Pins ------------------------------------------------------------------

    def pin(
        self,
        holder: str,
        key: Key,
        now: float,
        *,
        ttl: float | None = None,
        forever: bool = False,
        digest: Digest | None = None,
        uid: int | None = None,
    ) -> Pinning:
        """Pin the current generation, or renew what this holder has of ``key``.

        A pin stays that of the ``uid`` who took it, whoever renews it.

        With ``digest``, exactly that generation.  Raises NotResident, or
        GenerationGone when another one is current.
        """
        generation = self._pins.choose(holder, key, self.current(key), digest)
        previous = generation.pins.get(holder)
        since = now if previous is None else previous.since
        until = None if ttl is None else now + ttl
        owner = uid if previous is None else previous.uid
        pin = Pin(holder, generation.id, since, ttl, until, forever, owner)
        if previous is None:
            generation.hits += 1
        self._shelf.touch(generation, now)
        self.put_pin(pin)
        return Pinning(generation, pin, previous)

    def put_pin(self, pin: Pin) -> None:
        """Enter a pin as it is: new, renewed, or loaded from stable storage."""
        generation = self._shelf.known(pin.generation)
        self.story.append(("pin", pin.holder, str(pin.generation.key), pin.until))
        self._shelf.guard(generation, lambda: self._pins.put(generation, pin))

    def held(self, holder: str, key: Key) -> list[Pin]:
        """The pins that ``holder`` has of generations of ``key``."""
        return [generation.pins[holder] for generation in self._pins.held(holder, key)]

    def owned(self, uid: int) -> int:
        """How many pins the user ``uid`` took."""
        return self._pins.owned(uid)

    def unpin(self, holder: str, key: Key, now: float) -> tuple[list[Pin], list[Doomed]]:
        """End every pin that ``holder`` has of ``key``.

        Answers the pins, and the retired generations that may now go.  Raises NotPinned.
        """
        pins = self.held(holder, key)
        if not pins:
            raise NotPinned(holder=holder, key=str(key))
        doomed = [self.drop_pin(pin, now) for pin in pins]
        return pins, [one for one in doomed if one is not None]

    def drop_pin(self, pin: Pin, now: float) -> Doomed | None:
        """End one pin; the end of a generation's last one counts as a use.

        Answers the generation when it was retired and may now go.
        """
        generation = self._shelf.known(pin.generation)
        self._pins.must_stand(generation, pin.holder)
        self.story.append(("unpin", pin.holder, str(pin.generation.key)))
        if len(generation.pins) == 1:
            self._shelf.touch(generation, now)
        return self._shelf.guard(generation, lambda: self._pins.drop(generation, pin.holder))

    def lapsed(self, now: float, most: int = sys.maxsize) -> list[Pin]:
        """The leases that were not renewed in time, ``most`` at most; end each with `drop_pin`."""
        return self._pins.lapsed(now, most)

    def next_lapse(self) -> float | None:
        """When to ask `lapsed` again, at the latest."""
        return self._pins.next_lapse()

    def doubt_pins(self) -> None:
        """The record of pins was lost: keep all that is here until `accept_loss`."""
        self.story.append(("doubt pins",))
        self._guards.doubt()

    def accept_loss(self) -> list[Doomed]:
        """Take what nobody has pinned since for unpinned; answers what may now go."""
        self.story.append(("accept loss",))
        return self._guards.trust()

    @property
    def pins_known(self) -> bool:
        """False from `doubt_pins` to `accept_loss`."""
        return not self._guards.doubted

    # -- Inside ----------------------------------------------------------------

    def _keepers(self) -> tuple[HolderFigures, ...]:
        """Who keeps the most bytes: holders of pins, and processes that the kernel reports."""
        used = (
            HolderFigures("a process", str(one.id.key), one.bytes, None, None)
            for one in self._shelf.generations.values()
            if one.in_use and not one.pins
        )
        keepers = sorted((*self._pins.largest(), *used), key=lambda keeper: -keeper.bytes)
        return tuple(keepers[:HOLDERS_NAMED])

    def _books(self) -> Books:
        return Books(
            capacity=self.capacity,
            blobs=self._shelf.blobs,
            reserved=self._promises.reserved,
            unwritten=self._promises.reserved - self._promises.written,
            doomed=self._shelf.doomed_bytes,
            pins_known=self.pins_known,
            idle=self._shelf.evictable,
            holders=self._keepers,
        )
