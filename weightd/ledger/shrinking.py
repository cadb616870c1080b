"""Which arrivals are given up when the budget or the disk shrank under them.

The newest goes first: it has the most still to bring.  Before any goes, the
models that nothing keeps and all that is parked are taken for gone, so an
arrival is given up only for what is pinned, held or in use, or for what others
put on the disk.
"""

from __future__ import annotations

from weightd.errors import Blocked, TooLarge
from weightd.ledger.entries import Reservation
from weightd.ledger.planning import Books, Room, disk_full
from weightd.ledger.promises import Promises


def refuse_unfit(books: Books, promises: Promises, room: Room | None) -> list[Reservation]:
    """Give each arrival that can no longer fit its refusal; answers those refused by this call."""
    refused = [one for one in promises.newest_first() if one.bytes > books.capacity]
    for one in refused:
        one.refusal = TooLarge(bytes=one.bytes, capacity=books.capacity)
    for one in list(promises.newest_first()):
        if _over_budget(books, promises) > 0:
            one.refusal = _blocked(books, one)
        elif room is not None and short_on_disk(books, promises, room) > books.evictable:
            one.refusal = disk_full(one.bytes, room)
        else:
            break
        refused.append(one)
    return refused


def _over_budget(books: Books, promises: Promises) -> int:
    return books.blobs.kept + promises.reserved - promises.refused - books.capacity


def short_on_disk(books: Books, promises: Promises, room: Room) -> int:
    """By how much ``min_free`` is missed on paper: once the doomed are gone, the promised written.

    What refused arrivals wrote is as good as gone, and what they did not is not awaited.
    """
    live = list(promises.newest_first())
    written = sum(one.written for one in live)
    back = promises.written - written
    unwritten = sum(one.bytes - one.present for one in live) - written
    return unwritten + room.min_free - room.free - books.doomed - back


def _blocked(books: Books, arrival: Reservation) -> Blocked:
    return Blocked(
        reason="pins" if books.pins_known else "pins-unknown",
        bytes=arrival.bytes,
        free=max(0, books.free),
        evictable=books.evictable,
        pinned=books.blobs.kept,
        arriving=books.reserved,
        holders=books.holders(),
    )
