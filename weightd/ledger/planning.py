"""Whether an arrival fits, and at whose cost, decided before anything moves.

Feasibility is over sets of blobs: what eviction can give is the bytes of all
blobs that no guarded generation uses, and what unfinished arrivals left.  Only
when that suffices is anything named: what was left, the oldest first, then the
generation being replaced, then the idlest, until enough is freed.  A victim
that the finished plan could do without is not spared: plain LRU takes the
oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from weightd.errors import Blocked, BlockedReason, DiskFull, HolderFigures, TooLarge
from weightd.ledger.blobs import BlobTable
from weightd.ledger.entries import Parked
from weightd.ledger.generations import Generation
from weightd.model import Blob


@dataclass(frozen=True, slots=True)
class Room:
    """What the filesystem says, in bytes: free now, to be left free, used by others.

    ``overhead`` is what arrivals take beside their content: manifests, directories.
    ``unsure`` was written while the filesystem was asked: it may be missing in what is used, so
    that much less may be free.  What is decided takes it for seen, or a model would go for bytes
    counted twice; what is granted does not, so no arrival writes into ``min_free``.
    """

    free: int
    min_free: int
    others: int
    overhead: int = 0
    unsure: int = 0

    @property
    def spare(self) -> int:
        """What may be written by now, if all is seen; negative when others filled the disk."""
        return self.free - self.min_free - self.overhead


@dataclass(frozen=True, slots=True)
class Books:
    """The part of the ledger that a plan is made from.

    ``unwritten`` is promised to arrivals and not on disk yet; ``doomed`` is on
    disk and about to go.  ``parked`` gives what unfinished arrivals left, the
    oldest first, and ``left`` is their sum; what is to be gone on with counts as
    reserved.  ``idle`` gives the unguarded generations in order of eviction,
    ``holders`` those who keep bytes, the most first.
    """

    capacity: int
    blobs: BlobTable
    reserved: int
    unwritten: int
    left: int
    doomed: int
    pins_known: bool
    parked: Callable[[], Iterable[Parked]]
    idle: Callable[[], Iterable[Generation]]
    holders: Callable[[], tuple[HolderFigures, ...]]

    @property
    def free(self) -> int:
        """Unpromised bytes; negative when the budget shrank below what is here."""
        return self.capacity - self.blobs.occupied - self.left - self.reserved

    @property
    def evictable(self) -> int:
        """Bytes that would go if all that may go went."""
        return self.blobs.evictable + self.left


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes so that an arrival fits; no victim while anything parked would do."""

    parked: Sequence[Parked] = ()
    victims: Sequence[Generation] = ()


def make_plan(
    books: Books,
    size: int,
    first: Generation | None,
    room: Room | None,
    *,
    own: int = 0,
    present: int = 0,
) -> Plan:
    """What has to go so that ``size`` bytes fit, ``first`` before all other generations.

    ``own`` is what the arrival has already, promised or parked, when ``size`` is the rest.
    ``present`` of the rest are on the disk already, as others'.
    Raises TooLarge, Blocked or DiskFull.
    """
    whole = own + size
    if whole > books.capacity:
        raise TooLarge(bytes=whole, capacity=books.capacity)
    free = books.free if room is None else min(books.free, _disk_takes(books, room) + present)
    short = size - free
    if short <= 0:
        return Plan()
    if short <= books.evictable:
        return _choose(books, short, first)
    if room is not None and not _could_take(books, size - present, room):
        raise disk_full(whole, room)
    raise _blocked(books, size, free, own)


def disk_full(size: int, room: Room) -> DiskFull:
    """The refusal of ``size`` bytes by the filesystem."""
    return DiskFull(
        bytes=size, filesystem_free=room.free, min_free=room.min_free, others=room.others
    )


def plan_growth(books: Books, promised: int, extra: int, room: Room | None) -> Sequence[Parked]:
    """Let an arrival of ``promised`` bytes grow by ``extra``, and evict nothing for it.

    Answers what was parked and has to go.  Raises TooLarge, Blocked or DiskFull.
    """
    plan = make_plan(books, extra, None, room, own=promised)
    if plan.victims:
        raise Blocked(
            reason="arriving",
            bytes=promised + extra,
            free=max(0, books.free),
            evictable=books.evictable,
            pinned=books.blobs.kept,
            arriving=books.reserved - promised,
            hint=(
                "An arrival that does not declare its size grows into free bytes only; "
                "declare its most with ?bytes= (or a Content-Length) to have room made."
            ),
        )
    return plan.parked


def _disk_takes(books: Books, room: Room) -> int:
    """What the filesystem can take besides what was promised, once the doomed are gone."""
    return room.spare + books.doomed - books.unwritten


def _could_take(books: Books, size: int, room: Room) -> bool:
    """Whether ``size`` bytes would fit the disk if every model and arrival of ours were gone."""
    return size <= _disk_takes(books, room) + books.blobs.occupied + books.left + books.reserved


def _choose(books: Books, need: int, first: Generation | None) -> Plan:
    parked = []
    for one in books.parked():
        if need <= 0:
            break
        parked.append(one)
        need -= one.bytes
    return Plan(parked, _choose_victims(books, need, first))


def _choose_victims(books: Books, need: int, first: Generation | None) -> list[Generation]:
    victims: list[Generation] = []
    taken: Counter[Blob] = Counter()
    for generation in _candidates(books, first):
        if need <= 0:
            break
        victims.append(generation)
        for blob in generation.blobs:
            users = books.blobs.users(blob)
            if users > 1:
                taken[blob] += 1
                users -= taken[blob] - 1
            if users == 1:
                need -= blob.bytes
    return victims


def _candidates(books: Books, first: Generation | None) -> Iterator[Generation]:
    if first is not None and not first.guarded:
        yield first
    for generation in books.idle():
        if generation is not first:
            yield generation


def _blocked(books: Books, size: int, free: int, own: int) -> Blocked:
    """``free`` is what budget and disk leave by now, the lesser of the two.

    What was promised to the arrival itself is nothing that it could wait for.
    """
    reason: BlockedReason
    if not books.pins_known:
        reason = "pins-unknown"
    elif size - free <= books.evictable + books.reserved - own:
        reason = "arriving"
    else:
        reason = "pins"
    return Blocked(
        reason=reason,
        bytes=own + size,
        free=max(0, free),
        evictable=books.evictable,
        pinned=books.blobs.kept,
        arriving=books.reserved - own,
        holders=books.holders(),
    )
