"""Acts that end a generation, and those of the disk and its limits."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.ledger.caller import CAPACITY, KEYS, NO_LIMIT, Caller, some
from weightd.errors import InUse, NotResident, Pinned
from weightd.ledger import IllegalMove
from weightd.model import GenerationId


class Leaving(Caller):
    @precondition(lambda self: self.seizures)
    @rule(number=some)
    def evict_named(self, number: int) -> None:
        self.evict_seizure(number % len(self.seizures))

    def evict_seizure(self, place: int) -> None:
        pairs, _ = self.seizures.pop(place)
        for doomed, _ in pairs:
            with self.refused(IllegalMove):
                self.ledger.freed(doomed)
        self.ledger.evicted([doomed for doomed, _ in pairs])
        for doomed, gone in pairs:
            self.naive.settle(gone)
            self.doomed.append((doomed, gone))
        with self.refused(IllegalMove):
            self.ledger.refused([pairs[0][0]], ())

    @precondition(lambda self: self.seizures)
    @rule(number=some, used=st.sets(st.integers(0, 3)), keeps=st.booleans())
    def refuse_named(self, number: int, used: set[int], keeps: bool) -> None:
        pairs, arrival = self.seizures.pop(number % len(self.seizures))
        for reservation, promise in list(self.arrivals):
            if reservation is arrival:
                self.give_back(reservation, promise)
                if keeps:
                    self.kept(reservation)
        in_use = [gone.copy for place, (_, gone) in enumerate(pairs) if place in used]
        expected = []
        for _, gone in pairs:
            if self.naive.come_back(gone):
                expected.append(gone.copy.id)
            gone.copy.in_use = gone.copy in in_use
        victims = [doomed for doomed, _ in pairs]
        superseded = self.ledger.refused(victims, [copy.id for copy in in_use])
        assert [one.id for one in superseded] == expected
        with self.refused(IllegalMove):
            self.ledger.evicted([pairs[0][0]])
        # A careful caller is no worse off than before the victims were named.
        self.promised_most = self.promised_before_settling if self.careful else NO_LIMIT

    @precondition(lambda self: self.doomed)
    @rule(number=some, slice_=st.one_of(st.none(), st.integers(0, 40)))
    def free(self, number: int, slice_: int | None) -> None:
        self.free_some(number, slice_)

    def free_some(self, number: int, slice_: int | None) -> None:
        doomed, gone = self.doomed[number % len(self.doomed)]
        if slice_ is not None:
            slice_ = min(slice_, max(0, self.naive.freeable(gone)))
        gone.freed += gone.left if slice_ is None else min(gone.left, slice_)
        self.ledger.freed(doomed, slice_)
        assert doomed.bytes == gone.left
        if slice_ is None:
            self.doomed.remove((doomed, gone))
            self.naive.gone.remove(gone)

    @rule(number=some)
    def evict(self, number: int) -> None:
        found = self.some_copy(number)
        if found is None:
            with self.refused(NotResident):
                self.ledger.evict(GenerationId(KEYS[0], "d0"))
            return
        _, copy = found
        if copy.pins:
            with self.refused(Pinned) as info:
                self.ledger.evict(copy.id)
            assert isinstance(info.value, Pinned)
            assert {one.holder for one in info.value.holders} == set(copy.pins)
        elif self.naive.guarded(copy):
            with self.refused(InUse):
                self.ledger.evict(copy.id)
        else:
            self.named([self.ledger.evict(copy.id)], [self.naive.leave(copy)])

    @rule(limit=st.integers(0, 120))
    def over(self, limit: int) -> None:
        gone = [
            self.naive.leave(copy)
            for copy in self.naive.evictable()
            if copy.retired or self.naive.occupied + self.naive.reserved > limit
        ]
        self.named(self.ledger.over(limit), gone)

    @rule(number=some)
    def withdraw(self, number: int) -> None:
        found = self.some_copy(number)
        if found is None or number % 3:
            return
        _, copy = found
        copy.damaged = True
        gone = None
        if not self.naive.guarded(copy):
            gone = self.naive.leave(copy)
        elif not copy.retired:
            self.naive.retire(copy)
        self.named([self.ledger.withdraw(copy.id)], [gone])

    @rule(size=st.integers(0, 30))
    def find_debris(self, size: int) -> None:
        if len(self.debris) < 2 and self.naive.on_disk + size <= self.naive.capacity:
            self.debris.append(self.ledger.debris(size))
            self.naive.debris += size

    @precondition(lambda self: self.debris)
    @rule()
    def clean_up_debris(self) -> None:
        self.clean_up()

    def clean_up(self) -> None:
        remains = self.debris.pop()
        self.naive.debris -= remains.bytes
        self.ledger.freed(remains)

    @rule(capacity=st.one_of(st.just(CAPACITY), st.integers(20, 140)))
    def resize(self, capacity: int) -> None:
        self.ledger.capacity = self.naive.capacity = capacity
        self.promised_most = max(capacity, self.naive.promised)
        if self.naive.leaving():
            self.promised_before_settling = NO_LIMIT  # what comes back need not fit any more
        self.on_disk_most = max(capacity, self.naive.on_disk)

    @rule(number=some, size=st.integers(0, 40))
    def rebind(self, number: int, size: int) -> None:
        found = self.some_copy(number)
        if found is None or number % 4:
            return
        _, copy = found
        kept = sorted(copy.blobs)[1:]
        copy.blobs = frozenset([*kept, self.blob(size)])
        self.ledger.rebind(copy.id, tuple(copy.blobs))
        self.promised_most = self.on_disk_most = self.promised_before_settling = NO_LIMIT
