"""The ledger once more, as slowly and plainly as it can be written.

Nothing is kept that can be worked out: every sum is added up from sets of
blobs, the order of use is a list, a plan is looked for among all subsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from weightd.ledger import Room
from weightd.model import Blob, GenerationId, Key

SUBSETS_OF_MOST = 6
"""Up to how many evictable generations all subsets are tried."""


@dataclass(eq=False)
class Copy:
    """A generation."""

    id: GenerationId
    blobs: frozenset[Blob]
    last_used: float
    retired: bool = False
    pins: dict[str, float | None] = field(default_factory=dict)
    readers: int = 0
    in_use: bool = False
    doubted: bool = False
    damaged: bool = False


@dataclass(eq=False)
class Promise:
    key: Key
    bytes: int
    links: tuple[Copy, ...] = ()
    granted: int = 0
    written: int = 0


@dataclass(eq=False)
class Left:
    """What an arrival wrote before it was parked."""

    key: Key
    bytes: int


@dataclass(eq=False)
class Gone:
    """A copy that left: named, or evicted and still on disk."""

    copy: Copy
    charged: frozenset[Blob]
    was_retired: bool
    settled: bool = False
    freed: int = 0

    @property
    def left(self) -> int:
        return size_of(self.charged) - self.freed


@dataclass(frozen=True)
class Decision:
    """What goes: leftovers of parked arrivals, and generations."""

    dropped: list[Left]
    victims: list[Copy]


@dataclass(frozen=True)
class Refusal:
    code: str
    figures: tuple[object, ...] = ()


@dataclass
class NaiveBooks:
    capacity: int
    copies: list[Copy] = field(default_factory=list)
    retired: list[Copy] = field(default_factory=list)
    order: list[Copy] = field(default_factory=list)
    latest: dict[Key, Copy] = field(default_factory=dict)
    promises: list[Promise] = field(default_factory=list)
    parked: list[Left] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    debris: int = 0

    # -- Sums ------------------------------------------------------------------

    def guarded(self, copy: Copy) -> bool:
        linked = any(copy in promise.links for promise in self.promises)
        return bool(copy.pins) or copy.readers > 0 or copy.in_use or copy.doubted or linked

    def blobs(self, copies: Iterable[Copy]) -> frozenset[Blob]:
        return frozenset(blob for copy in copies for blob in copy.blobs)

    @property
    def occupied(self) -> int:
        return size_of(self.blobs(self.copies))

    @property
    def resident(self) -> int:
        return size_of(self.blobs(one for one in self.copies if not one.retired))

    @property
    def kept(self) -> int:
        return size_of(self.blobs(one for one in self.copies if self.guarded(one)))

    @property
    def reserved(self) -> int:
        return sum(promise.bytes for promise in self.promises)

    @property
    def granted(self) -> int:
        return sum(promise.granted for promise in self.promises)

    @property
    def written(self) -> int:
        return sum(promise.written for promise in self.promises)

    @property
    def doomed(self) -> int:
        """An inode counts once, and until its last name is gone."""
        names = self.blobs(one.copy for one in self.gone)
        freed = sum(one.freed for one in self.gone)
        return size_of(names - self.blobs(self.copies)) - freed + self.debris

    @property
    def left(self) -> int:
        return sum(left.bytes for left in self.parked)

    @property
    def promised(self) -> int:
        return self.occupied + self.reserved + self.left

    @property
    def on_disk(self) -> int:
        return self.occupied + self.granted + self.left + self.doomed

    def freeable(self, gone: Gone) -> int:
        """What truncating its files gives back: those that have no other name."""
        others = [one.copy for one in self.gone if one is not gone]
        alone = gone.copy.blobs - self.blobs(self.copies) - self.blobs(others)
        return size_of(alone & gone.charged) - gone.freed

    @property
    def pins_known(self) -> bool:
        return not any(copy.doubted for copy in self.copies)

    # -- Who stands where --------------------------------------------------------

    def find(self, id: GenerationId) -> Copy:
        return next(copy for copy in self.copies if copy.id == id)

    def current(self, key: Key) -> Copy | None:
        found = [one for one in self.copies if one.id.key == key and not one.retired]
        assert len(found) <= 1
        return found[0] if found else None

    def idle_first(self) -> list[Copy]:
        return [copy for copy in self.order if copy in self.copies]

    def evictable(self) -> list[Copy]:
        return [one for one in self.retired + self.idle_first() if not self.guarded(one)]

    def leaving(self) -> list[Gone]:
        return [one for one in self.gone if not one.settled]

    # -- Plans -------------------------------------------------------------------

    def freed_by(self, victims: Iterable[Copy]) -> int:
        victims = list(victims)
        return self.occupied - size_of(self.blobs(one for one in self.copies if one not in victims))

    def attainable(self, need: int) -> bool:
        """Whether some set of evictable copies frees ``need`` bytes."""
        candidates = self.evictable()
        if len(candidates) > SUBSETS_OF_MOST:
            return self.freed_by(candidates) >= need
        return any(
            self.freed_by(some) >= need
            for count in range(len(candidates) + 1)
            for some in combinations(candidates, count)
        )

    def decide(
        self,
        key: Key | None,
        size: int,
        room: Room | None,
        own: int = 0,
        resuming: Left | None = None,
    ) -> Decision | Refusal:
        """``own`` is what was promised already to the arrival that grows by ``size``.

        Of what is resumed only the rest is needed, and it is nothing to be dropped.
        """
        here = 0 if resuming is None else resuming.bytes
        rest = max(0, size - here)
        whole = own + here + rest
        if whole > self.capacity:
            return Refusal("too-large", (whole, self.capacity))
        free = self.capacity - self.promised
        ever = rest
        if room is not None:
            unwritten = self.reserved - self.written
            on_disk = room.free - room.min_free + self.doomed - unwritten
            free = min(free, on_disk)
            ever = on_disk + self.promised
        need = rest - free
        droppable = [left for left in self.parked if left is not resuming]
        given = sum(left.bytes for left in droppable)
        if need > given and not self.attainable(need - given):
            if rest > ever:
                return Refusal("disk-full")
            reason = self._why(need - given, own)
            return Refusal("blocked", (reason, whole, max(0, free), *self._figures(own, given)))
        dropped = [
            left
            for place, left in enumerate(droppable)
            if sum(before.bytes for before in droppable[:place]) < need
        ]
        need -= sum(left.bytes for left in dropped)
        return Decision(dropped, self._choose(need, None if key is None else self.current(key)))

    def _why(self, need: int, own: int) -> str:
        if not self.pins_known:
            return "pins-unknown"
        without_arrivals = need - self.reserved + own
        return "arriving" if self.attainable(without_arrivals) else "pins"

    def _figures(self, own: int, given: int) -> tuple[int, int, int]:
        return self.occupied - self.kept + given, self.kept, self.reserved - own

    def _choose(self, need: int, first: Copy | None) -> list[Copy]:
        candidates = self.evictable()
        if first in candidates:
            candidates = [first, *(one for one in candidates if one is not first)]
        victims: list[Copy] = []
        while self.freed_by(victims) < need:
            victims.append(candidates[len(victims)])
        return victims

    def drop(self, left: Left) -> None:
        self.parked.remove(left)
        self.debris += left.bytes

    def found(self, key: Key, size: int) -> Left:
        left = Left(key, size)
        self.parked.append(left)
        return left

    def park(self, promise: Promise) -> Left:
        """Nothing is let go with the links that end."""
        self.promises.remove(promise)
        return self.found(promise.key, promise.written)

    def content(self) -> dict[tuple[str, int], set[GenerationId]]:
        """Who can be linked to for what."""
        holders: dict[tuple[str, int], set[GenerationId]] = {}
        for copy in self.copies:
            for blob in () if copy.damaged else copy.blobs:
                holders.setdefault((blob.sha256, blob.bytes), set()).add(copy.id)
        return holders

    # -- Moves -------------------------------------------------------------------

    def load(self, copy: Copy, *, retired: bool) -> None:
        self.copies.append(copy)
        if retired:
            self.retire(copy)
        else:
            self.latest[copy.id.key] = copy
            self._to_the_end(copy)

    def touch(self, copy: Copy, now: float) -> None:
        copy.last_used = now
        if not copy.retired:
            self._to_the_end(copy)

    def leave(self, copy: Copy) -> Gone:
        self.copies.remove(copy)
        if copy.retired:
            self.retired.remove(copy)
        gone = Gone(copy, copy.blobs - self.blobs(self.copies), copy.retired)
        self.gone.append(gone)
        return gone

    def retire(self, copy: Copy) -> None:
        copy.retired = True
        self.retired.append(copy)
        if copy in self.order:
            self.order.remove(copy)

    def let_go(self, copy: Copy) -> Gone | None:
        """What happens when a guard ended."""
        if copy.retired and not self.guarded(copy):
            return self.leave(copy)
        return None

    def end(self, promise: Promise) -> list[Gone]:
        self.promises.remove(promise)
        gone = [self.let_go(one) for one in dict.fromkeys(promise.links)]
        return [one for one in gone if one is not None]

    def publish(self, copy: Copy, promise: Promise) -> tuple[Copy | None, Gone | None, list[Gone]]:
        """Make ``copy`` current: what was retired, what was replaced, what lost its last link."""
        previous = self.current(copy.id.key)
        if copy in self.retired:
            self.retired.remove(copy)
            copy.retired = False
        else:
            self.copies.append(copy)
        left = self.end(promise)
        self._to_the_end(copy)
        self.latest[copy.id.key] = copy
        if previous is None:
            return None, None, left
        if self.guarded(previous):
            self.retire(previous)
            return previous, None, left
        return None, self.leave(previous), left

    def settle(self, gone: Gone) -> None:
        gone.settled = True
        if gone.copy in self.order:
            self.order.remove(gone.copy)

    def come_back(self, gone: Gone) -> bool:
        """A refused victim stands again; answers whether it was current and is retired now."""
        copy = gone.copy
        self.gone.remove(gone)
        self.copies.append(copy)
        copy.retired = False
        if gone.was_retired or self.latest[copy.id.key] is not copy or copy.damaged:
            self.retire(copy)
        return copy.retired and not gone.was_retired

    def _to_the_end(self, copy: Copy) -> None:
        if copy in self.order:
            self.order.remove(copy)
        self.order.append(copy)


def size_of(blobs: Iterable[Blob]) -> int:
    return sum(blob.bytes for blob in blobs)
