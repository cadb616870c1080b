"""Acts of arrivals: promised, granted, written, grown, published, given up."""

from __future__ import annotations

import math
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.ledger.acts_leaving import Leaving
from tests.ledger.caller import CAPACITY, keys, some
from tests.ledger.drive import snapshot
from tests.ledger.naive import Copy, Left, Promise, Refusal
from weightd.errors import Blocked
from weightd.ledger import Generation, IllegalMove, Parked, Reservation, Room, Standing
from weightd.model import GenerationId, Key

sizes = st.one_of(st.integers(0, 60), st.integers(0, 130))
rooms = st.one_of(
    st.none(),
    st.builds(Room, free=st.integers(0, 150), min_free=st.integers(0, 20), others=st.just(7)),
)


class Arriving(Leaving):
    # -- What was found on disk ------------------------------------------------------

    @initialize(
        found=st.lists(
            st.tuples(keys, st.booleans(), st.sets(st.integers(0, 3)), st.integers(0, 8)),
            max_size=6,
        )
    )
    def load(self, found: list[tuple[Key, bool, set[int], int]]) -> None:
        """Generations that share some of four blobs, and have one of their own."""
        pool = [self.blob(size) for size in (5, 10, 15, 20)]
        for key, retired, shared, own in found:
            blobs = (*(pool[number] for number in sorted(shared)), self.blob(own))
            copy = Copy(GenerationId(key, f"d{next(self.numbers)}"), frozenset(blobs), self.tick())
            if self.naive.current(key) is not None and not retired:
                with self.refused(IllegalMove):
                    self.ledger.load(copy.id, blobs, retired=False, last_used=0.0, hits=0)
                continue
            self.ledger.load(copy.id, blobs, retired=retired, last_used=self.now, hits=0)
            self.naive.load(copy, retired=retired)
        assert self.naive.occupied <= CAPACITY

    # -- Arrivals ------------------------------------------------------------------

    @precondition(lambda self: self.may_reserve)
    @rule(
        key=keys,
        size=st.integers(1, 50),
        links=st.lists(some, max_size=2),
        free=st.booleans(),
        stop=st.one_of(st.none(), st.floats(0, 1)),
    )
    def put(self, key: Key, size: int, links: list[int], free: bool, stop: float | None) -> None:
        """From the promise to the publication, with nothing in between, or it stops half way.

        What stopped before is gone on with.
        """
        arrival = self.reserve_for(key, size, None, links, self.parked_of(key))
        if arrival is None:
            return
        for place, (_, named_for) in enumerate(self.seizures):
            if named_for is arrival[0]:
                self.evict_seizure(place)
        while free and self.doomed:
            self.free_some(0, None)
        while free and self.debris:
            self.clean_up()
        self.grant_to(*arrival)
        if stop is not None:
            self.write_to(*arrival, stop)
            self.park_it(*arrival)
        elif arrival[1].granted == arrival[1].bytes:
            self.commit_to(*arrival, files=1, shares=True)

    @rule(key=keys, size=sizes, room=rooms)
    def plan(self, key: Key, size: int, room: Room | None) -> None:
        before = snapshot(self.ledger)
        for name in (key, None):
            expected = self.naive.decide(name, size, room)
            if isinstance(expected, Refusal):
                self.expect_refusal(
                    expected,
                    lambda name=name: self.ledger.plan(name, size, room),  # type: ignore[misc]
                )
            else:
                plan = self.ledger.plan(name, size, room)
                assert [one.id for one in plan] == [one.id for one in expected.victims]
                assert not any(one.guarded for one in plan)
        assert snapshot(self.ledger) == before

    @precondition(lambda self: self.may_reserve)
    @rule(key=keys, size=sizes, room=rooms, links=st.lists(some, max_size=3), anew=st.booleans())
    def reserve(self, key: Key, size: int, room: Room | None, links: list[int], anew: bool) -> None:
        self.reserve_for(key, size, room, links, None if anew else self.parked_of(key))

    def reserve_for(
        self,
        key: Key,
        size: int,
        room: Room | None,
        links: list[int],
        resumed: tuple[Parked, Left] | None = None,
    ) -> tuple[Reservation, Promise] | None:
        chosen = [self.some_copy(number) for number in links]
        linked = tuple(copy for found in chosen if found is not None for copy in (found[1],))
        parked, left = (None, None) if resumed is None else resumed
        # What an arrival links to is kept while it is decided whether that arrival fits.
        self.naive.promises.append(Promise(key, 0, linked))
        expected = self.naive.decide(key, size, room, resuming=left)
        self.naive.promises.pop()
        ids = [copy.id for copy in linked]
        if isinstance(expected, Refusal):
            for ask in (self.ledger.plan, self.ledger.reserve):
                self.expect_refusal(expected, partial(ask, key, size, room, ids, parked))
            return None
        before = snapshot(self.ledger)
        plan = self.ledger.plan(key, size, room, ids, parked)
        assert [one.id for one in plan] == [one.id for one in expected.victims]
        assert snapshot(self.ledger) == before
        reservation = self.ledger.reserve(key, size, room, ids, parked)
        promise = Promise(key, size, linked)
        if resumed is not None and left is not None:
            self.parked.remove(resumed)
            self.naive.parked.remove(left)
            promise.bytes = max(size, left.bytes)
            promise.granted = promise.written = left.bytes
        self.naive.promises.append(promise)
        lefts = self.dropped(reservation.dropped, expected.dropped)
        self.drops[reservation] = reservation.dropped, lefts
        gone = [self.naive.leave(copy) for copy in expected.victims]
        self.named(reservation.victims, gone, reservation)
        self.arrivals.append((reservation, promise))
        return reservation, promise

    @precondition(lambda self: self.arrivals)
    @rule(number=some)
    def grant(self, number: int) -> None:
        self.grant_to(*self.arrivals[number % len(self.arrivals)])

    def grant_to(self, reservation: Reservation, promise: Promise) -> None:
        unsettled = any(not doomed.settled for doomed in reservation.victims)
        naive = self.naive
        booked = naive.on_disk
        more = promise.bytes - promise.granted
        may = not unsettled and (more == 0 or booked + more <= naive.capacity)
        assert self.ledger.grant(reservation) == may
        if may:
            promise.granted = promise.bytes
        assert reservation.granted == promise.granted

    @precondition(lambda self: self.arrivals)
    @rule(number=some, share=st.floats(0, 1))
    def write(self, number: int, share: float) -> None:
        self.write_to(*self.arrivals[number % len(self.arrivals)], share)

    def write_to(self, reservation: Reservation, promise: Promise, share: float) -> None:
        promise.written = max(promise.written, math.floor(promise.granted * share))
        reservation.written = promise.written

    @precondition(lambda self: self.arrivals and self.may_reserve)
    @rule(number=some, extra=st.integers(1, 60), room=rooms)
    def grow(self, number: int, extra: int, room: Room | None) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        expected = self.naive.decide(None, extra, room, own=promise.bytes)
        if isinstance(expected, Refusal):
            self.expect_refusal(expected, lambda: self.ledger.grow(reservation, extra, room))
        elif expected.victims:
            with self.refused(Blocked) as info:
                self.ledger.grow(reservation, extra, room)
            assert isinstance(info.value, Blocked)
            assert info.value.reason == "arriving"
        else:
            self.dropped(self.ledger.grow(reservation, extra, room), expected.dropped)
            promise.bytes += extra

    @precondition(lambda self: self.arrivals)
    @rule(number=some, files=st.integers(1, 3), shares=st.booleans(), fits=st.integers(0, 9))
    def commit(self, number: int, files: int, shares: bool, fits: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        if promise.granted < promise.bytes:
            return
        if fits == 0:
            with self.refused(IllegalMove):
                self.ledger.commit(reservation, "d", (self.blob(promise.bytes + 1),), self.now)
        self.commit_to(reservation, promise, files, shares)

    def commit_to(
        self, reservation: Reservation, promise: Promise, files: int, shares: bool
    ) -> None:
        size = promise.bytes // files
        fresh = [self.blob(size) for _ in range(files)]
        linked = [one for copy in promise.links for one in sorted(copy.blobs)] if shares else []
        digest = f"d{next(self.numbers)}"
        blobs = (*fresh, *linked[:2])
        copy = Copy(GenerationId(promise.key, digest), frozenset(blobs), self.tick())
        retired, replaced, left = self.naive.publish(copy, promise)
        succession = self.ledger.commit(reservation, digest, blobs, self.now)
        self.arrivals.remove((reservation, promise))
        assert succession.generation.id == copy.id
        self.succeeded(succession.retired, retired)
        self.named([succession.replaced], [replaced])
        self.named(succession.left, left)
        with self.refused(IllegalMove):
            self.ledger.commit(reservation, digest, blobs, self.now)

    def park_it(self, reservation: Reservation, promise: Promise) -> None:
        self.arrivals.remove((reservation, promise))
        parked = self.ledger.park(reservation)
        assert (parked.key, parked.bytes) == (promise.key, promise.written)
        self.parked.append((parked, self.naive.park(promise)))

    def parked_of(self, key: Key) -> tuple[Parked, Left] | None:
        return next((pair for pair in self.parked if pair[0].key == key), None)

    def succeeded(self, retired: Generation | None, expected: Copy | None) -> None:
        assert (retired is None) == (expected is None)
        if retired is not None and expected is not None:
            assert retired.id == expected.id
            assert retired.standing is Standing.RETIRED

    @precondition(lambda self: self.arrivals and self.naive.retired)
    @rule(number=some, which=some)
    def restore(self, number: int, which: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        copy = self.naive.retired[which % len(self.naive.retired)]
        if copy.damaged or copy.id.key != promise.key:
            with self.refused(IllegalMove):
                self.ledger.restore(reservation, copy.id, self.now)
            return
        with self.refused(IllegalMove):
            self.ledger.commit(reservation, copy.id.digest, (), self.now)
        copy.last_used = self.tick()
        retired, replaced, left = self.naive.publish(copy, promise)
        succession = self.ledger.restore(reservation, copy.id, self.now)
        self.arrivals.remove((reservation, promise))
        self.succeeded(succession.retired, retired)
        self.named([succession.replaced], [replaced])
        self.named(succession.left, left)

    @precondition(lambda self: self.arrivals)
    @rule(number=some)
    def release(self, number: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        if self.careful and not self.settled(reservation):
            return
        self.give_back(reservation, promise)
