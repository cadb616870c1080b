"""Whether an arrival fits, and at whose cost, decided before anything moves.

Feasibility is over sets of blobs: what eviction can give is the bytes of all
blobs that no guarded generation uses.  Only when that suffices are victims
named, the generation being replaced first, then the idlest, until enough is
freed.  A victim that the finished plan could do without is not spared: plain
LRU takes the oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from weightd.errors import Blocked, BlockedReason, DiskFull, HolderFigures, TooLarge
from weightd.ledger.blobs import BlobTable
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
    disk and about to go.  ``idle`` gives the unguarded generations in order of
    eviction, ``holders`` those who keep bytes, the most first.
    """

    capacity: int
    blobs: BlobTable
    reserved: int
    unwritten: int
    doomed: int
    pins_known: bool
    idle: Callable[[], Iterable[Generation]]
    holders: Callable[[], tuple[HolderFigures, ...]]

    @property
    def free(self) -> int:
        """Unpromised bytes; negative when the budget shrank below what is here."""
        return self.capacity - self.blobs.occupied - self.reserved


def plan_victims(
    books: Books,
    size: int,
    first: Generation | None,
    room: Room | None,
    *,
    own: int = 0,
) -> list[Generation]:
    """The generations to evict so that ``size`` bytes fit, ``first`` before all others.

    ``own`` is what was promised to the arrival already, when ``size`` is its growth.
    Raises TooLarge, Blocked or DiskFull.
    """
    whole = own + size
    if whole > books.capacity:
        raise TooLarge(bytes=whole, capacity=books.capacity)
    free = books.free if room is None else min(books.free, _disk_takes(books, room))
    short = size - free
    if short <= 0:
        return []
    if short <= books.blobs.evictable:
        return _choose(books, short, first)
    if room is not None and not _could_take(books, size, room):
        raise disk_full(whole, room)
    raise _blocked(books, size, free, own)


def disk_full(size: int, room: Room) -> DiskFull:
    """The refusal of ``size`` bytes by the filesystem."""
    return DiskFull(
        bytes=size, filesystem_free=room.free, min_free=room.min_free, others=room.others
    )


def plan_growth(books: Books, promised: int, extra: int, room: Room | None) -> None:
    """Let an arrival of ``promised`` bytes grow by ``extra``, into free bytes only.

    Raises TooLarge, Blocked or DiskFull.
    """
    if plan_victims(books, extra, None, room, own=promised):
        raise Blocked(
            reason="arriving",
            bytes=promised + extra,
            free=max(0, books.free),
            evictable=books.blobs.evictable,
            pinned=books.blobs.kept,
            arriving=books.reserved - promised,
            hint=(
                "An arrival that does not declare its size grows into free bytes only; "
                "declare its most with ?bytes= (or a Content-Length) to have room made."
            ),
        )


def _disk_takes(books: Books, room: Room) -> int:
    """What the filesystem can take besides what was promised, once the doomed are gone."""
    return room.spare + books.doomed - books.unwritten


def _could_take(books: Books, size: int, room: Room) -> bool:
    """Whether ``size`` bytes would fit the disk if every model and arrival of ours were gone."""
    return size <= _disk_takes(books, room) + books.blobs.occupied + books.reserved


def _choose(books: Books, need: int, first: Generation | None) -> list[Generation]:
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
    elif size - free <= books.blobs.evictable + books.reserved - own:
        reason = "arriving"
    else:
        reason = "pins"
    return Blocked(
        reason=reason,
        bytes=own + size,
        free=max(0, free),
        evictable=books.blobs.evictable,
        pinned=books.blobs.kept,
        arriving=books.reserved - own,
        holders=books.holders(),
    )
