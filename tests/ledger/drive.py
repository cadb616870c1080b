"""A ledger driven as the cache drives it, with the disk's part played at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from weightd.ledger import Doomed, Generation, Ledger, Remains, Room
from weightd.model import Blob, GenerationId, Key

_INODES = count(1)


def blob(size: int) -> Blob:
    """The content of a file that nothing else shares."""
    inode = next(_INODES)
    return Blob(inode, f"{inode:064x}", size)


class Node:
    """One node: a ledger, a clock that ticks with every act, and a count of evictions."""

    def __init__(self, capacity: int) -> None:
        self.ledger = Ledger(capacity)
        self.now = 0.0
        self.evicted: list[str] = []
        self._digests = count(1)

    def tick(self) -> float:
        self.now += 1
        return self.now

    def put(
        self,
        name: str,
        *sizes: int,
        room: Room | None = None,
        shared: Iterable[Blob] = (),
        links: Iterable[GenerationId] = (),
    ) -> Generation:
        """Reserve, evict, write and publish; ``shared`` blobs are linked out of ``links``."""
        fresh = tuple(blob(size) for size in sizes)
        reservation = self.ledger.reserve(Key(name), sum(sizes), room, links)
        self.end(reservation.victims)
        assert self.ledger.grant(reservation)
        digest = f"{name}-{next(self._digests)}"
        succession = self.ledger.commit(reservation, digest, (*fresh, *shared), self.tick())
        if succession.replaced is not None:
            self.end([succession.replaced])
        self.end(succession.left)
        return succession.generation

    def end(self, victims: Iterable[Doomed]) -> None:
        """Evict and unlink what the ledger named."""
        victims = tuple(victims)
        self.ledger.evicted(victims)
        for doomed in victims:
            self.evicted.append(str(doomed.id.key))
            self.ledger.freed(doomed)

    def get(self, name: str) -> Generation:
        return self.ledger.use(Key(name), self.tick())

    def pin(self, holder: str, name: str, **terms: float | bool | str) -> Generation:
        return self.ledger.pin(holder, Key(name), self.tick(), **terms).generation  # type: ignore[arg-type]

    def unpin(self, holder: str, name: str) -> None:
        _, doomed = self.ledger.unpin(holder, Key(name), self.tick())
        self.end(doomed)

    @property
    def resident(self) -> set[str]:
        return set(map(str, self.ledger.keys()))

    @property
    def used(self) -> int:
        return self.ledger.usage().used


def snapshot(ledger: Ledger) -> object:
    """All that the books say, to compare before and after a refusal."""
    shelf, promises, book = ledger._shelf, ledger._promises, ledger._pins
    return (
        ledger.capacity,
        ledger.usage(),
        ledger.pins_known,
        ledger.settling,
        list(shelf.idle_first()),
        list(shelf.evictable()),
        list(shelf._policy.order()),
        sorted((one.id, _state(one)) for one in shelf.generations.values()),
        {key: one.id for key, one in shelf.current.items()},
        {key: list(map(id, several)) for key, several in shelf.leaving.items()},
        {id(one): (one.bytes, _settled(one)) for one in shelf.remains},
        {
            id(one): (one.bytes, one.granted, one.written, one.open, len(one.links))
            for one in promises._open
        },
        (promises.reserved, promises.granted),
        [(id(one), one.key, one.bytes) for one in ledger._partials.oldest_first()],
        {content: dict(held) for content, held in shelf.contents._holders.items()},
        {
            blob: (uses.total, uses.retired, uses.guarded)
            for blob, uses in shelf.blobs._uses.items()
        },
        {index: list(held) for index, held in book._index.items()},
        [(lapse.at, lapse.holder, lapse.id) for lapse in book._lapses],
    )


def _state(one: Generation) -> tuple[object, ...]:
    return (
        one.blobs,
        one.last_used,
        one.hits,
        one.standing.value,
        sorted((holder, pin.since, pin.until or -1.0) for holder, pin in one.pins.items()),
        (one.readers, one.links, one.in_use, one.doubted, one.damaged, one.bytes),
    )


def _settled(one: Remains) -> object:
    return (one.settled, one.superseded) if isinstance(one, Doomed) else None
