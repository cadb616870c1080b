"""The ledger against the naive books, by whatever sequence of acts Hypothesis finds.

Two callers drive it.  The careful one waits while a victim is settling before
it reserves, and then no promise may ever pass the budget.  The hasty one does
not; a refusal may then take back bytes that were promised meanwhile, and only
the disk's sum holds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.ledger.audit import audit
from tests.ledger.drive import snapshot
from tests.ledger.naive import Copy, Gone, NaiveBooks, Promise, Refusal
from weightd.errors import (
    Blocked,
    DiskFull,
    GenerationGone,
    InUse,
    NotPinned,
    NotResident,
    Pinned,
    TooLarge,
)
from weightd.ledger import (
    Doomed,
    Generation,
    IllegalMove,
    Ledger,
    Remains,
    Reservation,
    Room,
    Standing,
)
from weightd.model import Blob, GenerationId, Key

THOROUGH = os.environ.get("WEIGHTD_THOROUGH") == "1"
"""Set WEIGHTD_THOROUGH=1 for a search fifty times as long."""

KEYS = [Key("a"), Key("b"), Key("b", "r1"), Key("c/d")]
HOLDERS = ["h1", "h2", "h3"]
CAPACITY = 100

keys = st.sampled_from(KEYS)
holders = st.sampled_from(HOLDERS)
sizes = st.one_of(st.integers(0, 60), st.integers(0, 130))
some = st.integers(0, 2**16)
rooms = st.one_of(
    st.none(),
    st.builds(Room, free=st.integers(0, 150), min_free=st.integers(0, 20), others=st.just(7)),
)


class CarefulCaller(RuleBasedStateMachine):
    careful = True

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(CAPACITY)
        self.naive = NaiveBooks(CAPACITY)
        self.now = 0.0
        self.numbers = count(1)
        self.arrivals: list[tuple[Reservation, Promise]] = []
        self.doomed: list[tuple[Doomed, Gone]] = []
        self.seizures: list[tuple[list[tuple[Doomed, Gone]], Reservation | None]] = []
        self.debris: list[Remains] = []
        self.promised_most = self.on_disk_most = CAPACITY

    def teardown(self) -> None:
        for stimulus in self.ledger.story:
            note(str(stimulus))

    # -- Helpers -----------------------------------------------------------------

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    @contextmanager
    def refused(self, *errors: type[Exception]) -> Iterator[pytest.ExceptionInfo[Exception]]:
        """What is done inside raises, and has changed nothing."""
        before = snapshot(self.ledger)
        with pytest.raises(errors) as info:
            yield info
        assert snapshot(self.ledger) == before

    def pair(self, doomed: Sequence[Doomed], gone: Sequence[Gone]) -> list[tuple[Doomed, Gone]]:
        assert [one.id for one in doomed] == [one.copy.id for one in gone]
        assert [one.bytes for one in doomed] == [one.left for one in gone]
        return list(zip(doomed, gone, strict=True))

    def named(
        self,
        doomed: Sequence[Doomed | None],
        gone: Sequence[Gone | None],
        arrival: Reservation | None = None,
    ) -> None:
        """The ledger named these victims, and the naive books expected those."""
        pairs = self.pair(
            [one for one in doomed if one is not None], [one for one in gone if one is not None]
        )
        if pairs:
            self.seizures.append((pairs, arrival))

    def some_copy(self, number: int) -> tuple[Generation, Copy] | None:
        if not self.naive.copies:
            return None
        copy = self.naive.copies[number % len(self.naive.copies)]
        generation = self.ledger.generation(copy.id)
        assert generation is not None
        return generation, copy

    def expect_refusal(self, refusal: Refusal, act: Callable[[], object]) -> None:
        errors = {"too-large": TooLarge, "blocked": Blocked, "disk-full": DiskFull}
        with self.refused(errors[refusal.code]) as info:
            act()
        error = info.value
        if isinstance(error, TooLarge):
            assert (error.bytes, error.capacity) == refusal.figures
        if isinstance(error, Blocked):
            assert (
                error.reason,
                error.bytes,
                error.free,
                error.evictable,
                error.pinned,
                error.arriving,
            ) == refusal.figures
            holders = {(one.holder, one.key) for one in error.holders}
            assert holders == {
                (holder, str(copy.id.key)) for copy in self.naive.copies for holder in copy.pins
            }

    @property
    def may_reserve(self) -> bool:
        return not (self.careful and self.ledger.settling)

    # -- Arrivals ------------------------------------------------------------------

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
                assert [one.id for one in plan] == [one.id for one in expected]
                assert not any(one.guarded for one in plan)
        assert snapshot(self.ledger) == before

    @precondition(lambda self: self.may_reserve)
    @rule(key=keys, size=sizes, room=rooms, links=st.lists(some, max_size=3))
    def reserve(self, key: Key, size: int, room: Room | None, links: list[int]) -> None:
        chosen = [self.some_copy(number) for number in links]
        linked = tuple(copy for found in chosen if found is not None for copy in (found[1],))
        promise = Promise(key, size, linked)
        # What an arrival links to is kept while it is decided whether that arrival fits.
        self.naive.promises.append(Promise(key, 0, linked))
        expected = self.naive.decide(key, size, room)
        self.naive.promises.pop()
        ids = [copy.id for copy in linked]
        if isinstance(expected, Refusal):
            self.expect_refusal(expected, lambda: self.ledger.reserve(key, size, room, ids))
            return
        self.naive.promises.append(promise)
        reservation = self.ledger.reserve(key, size, room, ids)
        gone = [self.naive.leave(copy) for copy in expected]
        self.named(reservation.victims, gone, reservation)
        self.arrivals.append((reservation, promise))

    @precondition(lambda self: self.arrivals)
    @rule(number=some)
    def grant(self, number: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        unsettled = any(not doomed.settled for doomed in reservation.victims)
        naive = self.naive
        booked = naive.occupied + naive.granted + naive.doomed
        more = promise.bytes - promise.granted
        may = not unsettled and (more == 0 or booked + more <= naive.capacity)
        assert self.ledger.grant(reservation) == may
        if may:
            promise.granted = promise.bytes
        assert reservation.granted == promise.granted

    @precondition(lambda self: self.arrivals)
    @rule(number=some, share=st.floats(0, 1))
    def write(self, number: int, share: float) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        promise.written = max(promise.written, math.floor(promise.granted * share))
        reservation.written = promise.written

    @precondition(lambda self: self.arrivals and self.may_reserve)
    @rule(number=some, extra=st.integers(1, 60), room=rooms)
    def grow(self, number: int, extra: int, room: Room | None) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        expected = self.naive.decide(None, extra, room, whole=promise.bytes + extra)
        if isinstance(expected, Refusal):
            self.expect_refusal(expected, lambda: self.ledger.grow(reservation, extra, room))
        elif expected:
            with self.refused(Blocked) as info:
                self.ledger.grow(reservation, extra, room)
            assert isinstance(info.value, Blocked)
            assert info.value.reason == "arriving"
        else:
            self.ledger.grow(reservation, extra, room)
            promise.bytes += extra

    @precondition(lambda self: self.arrivals)
    @rule(number=some, files=st.integers(1, 3), shares=st.booleans(), fits=st.integers(0, 9))
    def commit(self, number: int, files: int, shares: bool, fits: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        if promise.granted < promise.bytes:
            return
        size = promise.bytes // files
        fresh = [self.blob(size) for _ in range(files)]
        linked = [one for copy in promise.links for one in sorted(copy.blobs)] if shares else []
        digest = f"d{next(self.numbers)}"
        if fits == 0:
            with self.refused(IllegalMove):
                self.ledger.commit(
                    reservation, digest, (*fresh, self.blob(promise.bytes + 1)), self.now
                )
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

    def succeeded(self, retired: Generation | None, expected: Copy | None) -> None:
        assert (retired is None) == (expected is None)
        if retired is not None and expected is not None:
            assert retired.id == expected.id
            assert retired.standing is Standing.RETIRED

    def blob(self, size: int) -> Blob:
        inode = next(self.numbers)
        return Blob(inode, f"{inode:x}", size)

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

    def settled(self, reservation: Reservation) -> bool:
        return all(arrival is not reservation for _, arrival in self.seizures)

    @precondition(lambda self: self.arrivals)
    @rule(number=some)
    def release(self, number: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        if self.careful and not self.settled(reservation):
            return
        self.give_back(reservation, promise)

    def give_back(self, reservation: Reservation, promise: Promise) -> None:
        self.arrivals.remove((reservation, promise))
        left = self.naive.end(promise)
        self.named(self.ledger.release(reservation), left)
        before = snapshot(self.ledger)
        assert self.ledger.release(reservation) == []
        assert snapshot(self.ledger) == before
        with self.refused(IllegalMove):
            self.ledger.grant(reservation)

    # -- Leaving -------------------------------------------------------------------

    @precondition(lambda self: self.seizures)
    @rule(number=some)
    def evict_named(self, number: int) -> None:
        pairs, _ = self.seizures.pop(number % len(self.seizures))
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
    @rule(number=some, used=st.sets(st.integers(0, 3)))
    def refuse_named(self, number: int, used: set[int]) -> None:
        pairs, arrival = self.seizures.pop(number % len(self.seizures))
        for reservation, promise in list(self.arrivals):
            if reservation is arrival:
                self.give_back(reservation, promise)
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
        if not self.careful:
            self.promised_most = self.on_disk_most = 10**9

    @precondition(lambda self: self.doomed)
    @rule(number=some, slice_=st.one_of(st.none(), st.integers(0, 40)))
    def free(self, number: int, slice_: int | None) -> None:
        doomed, gone = self.doomed[number % len(self.doomed)]
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
        remains = self.debris.pop()
        self.naive.debris -= remains.bytes
        self.ledger.freed(remains)

    @rule(capacity=st.one_of(st.just(CAPACITY), st.integers(20, 140)))
    def resize(self, capacity: int) -> None:
        self.ledger.capacity = self.naive.capacity = capacity
        self.promised_most = max(capacity, self.naive.occupied + self.naive.reserved)
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
        self.promised_most = self.on_disk_most = 10**9

    # -- Use and pins ----------------------------------------------------------------

    @rule(key=keys)
    def use(self, key: Key) -> None:
        copy = self.naive.current(key)
        if copy is None:
            with self.refused(NotResident):
                self.ledger.use(key, self.now)
            return
        generation = self.ledger.current(key)
        assert generation is not None
        hits = generation.hits
        self.naive.touch(copy, self.tick())
        assert self.ledger.use(key, self.now) is generation
        assert (generation.id, generation.hits) == (copy.id, hits + 1)

    @rule(number=some)
    def touch(self, number: int) -> None:
        found = self.some_copy(number)
        if found is None:
            return
        generation, copy = found
        hits = generation.hits
        self.naive.touch(copy, self.tick())
        self.ledger.touch(copy.id, self.now)
        assert generation.hits == hits

    @rule(number=some, more=st.booleans())
    def read(self, number: int, more: bool) -> None:
        found = self.some_copy(number)
        if found is None:
            return
        _, copy = found
        if not more and copy.readers == 0:
            with self.refused(IllegalMove):
                self.ledger.read(copy.id, -1)
            return
        copy.readers += 1 if more else -1
        gone = None if more else self.naive.let_go(copy)
        self.named([self.ledger.read(copy.id, 1 if more else -1)], [gone])

    @rule(number=some, seen=st.booleans())
    def mark_use(self, number: int, seen: bool) -> None:
        found = self.some_copy(number)
        if found is None:
            return
        _, copy = found
        was, copy.in_use = copy.in_use, seen
        gone = self.naive.let_go(copy) if was else None
        self.named([self.ledger.mark_use(copy.id, seen)], [gone])

    def held(self, holder: str, key: Key) -> list[Copy]:
        return [one for one in self.naive.copies if one.id.key == key and holder in one.pins]

    @rule(
        holder=holders,
        key=keys,
        ttl=st.one_of(st.none(), st.integers(1, 30)),
        which=st.one_of(st.none(), some),
    )
    def pin(self, holder: str, key: Key, ttl: int | None, which: int | None) -> None:
        """A holder renews what it has, or takes what is current; ``which`` names a generation."""
        current, held = self.naive.current(key), self.held(holder, key)
        digest = None
        if which is not None:
            known = [one for one in self.naive.copies if one.id.key == key]
            digest = known[which % len(known)].id.digest if known and which % 5 else "d0"
        until = None if ttl is None else self.now + 1 + ttl
        named = [one for one in [*held, current] if one and one.id.digest == digest]
        chosen = self.ledger.held(holder, key)
        if digest is not None and not named:
            with self.refused(GenerationGone if current else NotResident):
                self.ledger.pin(holder, key, self.now, ttl=ttl, digest=digest)
            return
        if digest is None and current is None and not held:
            with self.refused(NotResident):
                self.ledger.pin(holder, key, self.now, ttl=ttl)
            return
        pinning = self.ledger.pin(holder, key, self.tick(), ttl=ttl, digest=digest)
        copy = self.naive.find(pinning.generation.id)
        if named:
            assert copy is named[0]
        elif current in held or not held:
            assert copy is current
        else:
            assert copy.id == chosen[-1].generation
        assert pinning.created == (holder not in copy.pins)
        copy.pins[holder] = until
        self.naive.touch(copy, self.now)

    @rule(holder=holders, key=keys)
    def unpin(self, holder: str, key: Key) -> None:
        if not self.held(holder, key):
            with self.refused(NotPinned):
                self.ledger.unpin(holder, key, self.now)
            return
        expected = [self.naive.find(pin.generation) for pin in self.ledger.held(holder, key)]
        assert set(expected) == set(self.held(holder, key))
        self.tick()
        gone = [self.unpinned(copy, holder) for copy in expected]
        pins, doomed = self.ledger.unpin(holder, key, self.now)
        assert [pin.generation for pin in pins] == [copy.id for copy in expected]
        self.named(doomed, gone)

    def unpinned(self, copy: Copy, holder: str) -> Gone | None:
        del copy.pins[holder]
        if not copy.pins:
            self.naive.touch(copy, self.now)
        return self.naive.let_go(copy)

    @rule(later=st.integers(0, 20))
    def lapse(self, later: int) -> None:
        self.now += later
        due = {
            (holder, copy.id)
            for copy in self.naive.copies
            for holder, until in copy.pins.items()
            if until is not None and until <= self.now
        }
        pins = self.ledger.lapsed(self.now)
        assert len(pins) == len(due)
        assert {(pin.holder, pin.generation) for pin in pins} == due
        for pin in pins:
            gone = self.unpinned(self.naive.find(pin.generation), pin.holder)
            self.named([self.ledger.drop_pin(pin, self.now)], [gone])
            if gone is None:
                with self.refused(IllegalMove):
                    self.ledger.drop_pin(pin, self.now)
        left = [until for copy in self.naive.copies for until in copy.pins.values() if until]
        assert self.ledger.next_lapse() == min(left, default=None)

    @rule(likely=st.integers(0, 3))
    def doubt(self, likely: int) -> None:
        if likely:
            return
        for copy in self.naive.copies:
            copy.doubted = True
        self.ledger.doubt_pins()

    @precondition(lambda self: not self.naive.pins_known)
    @rule()
    def accept_loss(self) -> None:
        doubted = [self.naive.find(one.id) for one in self.ledger.generations() if one.doubted]
        gone = []
        for copy in doubted:
            copy.doubted = False
            gone.append(self.naive.let_go(copy))
        doomed = self.ledger.accept_loss()
        expected = {one.copy.id: one for one in gone if one is not None}
        self.named(doomed, [expected[one.id] for one in doomed])
        assert len(doomed) == len(expected)

    # -- Invariants ------------------------------------------------------------------

    @invariant()
    def the_sums_are_the_naive_ones(self) -> None:
        usage, naive = self.ledger.usage(), self.naive
        assert usage.resident == naive.resident
        assert usage.retired == naive.occupied - naive.resident
        assert usage.pinned == naive.kept
        assert usage.evictable == naive.occupied - naive.kept
        assert (usage.reserved, usage.written) == (naive.reserved, naive.written)
        assert usage.doomed == naive.doomed
        assert usage.arrivals == len(naive.promises)
        assert usage.pins == sum(len(copy.pins) for copy in naive.copies)
        assert self.ledger.pins_known == naive.pins_known
        assert self.ledger.settling == bool(naive.leaving())
        assert usage.used == naive.occupied + naive.reserved + naive.doomed

    @invariant()
    def the_generations_stand_where_the_naive_ones_do(self) -> None:
        naive = self.naive
        assert {one.id for one in self.ledger.generations()} == {one.id for one in naive.copies}
        assert [one.id for one in self.ledger.idle_first()] == [
            one.id for one in naive.idle_first()
        ]
        assert set(self.ledger.keys()) == {one.id.key for one in naive.idle_first()}
        for copy in naive.copies:
            generation = self.ledger.generation(copy.id)
            assert generation is not None
            assert generation.guarded == naive.guarded(copy)
            assert (generation.standing is Standing.RETIRED) == copy.retired
            assert {h: pin.until for h, pin in generation.pins.items()} == copy.pins
            assert generation.last_used == copy.last_used
        leaving = {one.copy.id.key for one in naive.leaving()}
        assert {key for key in KEYS if self.ledger.leaving(key)} == leaving

    @invariant()
    def nobody_is_answered_an_older_generation(self) -> None:
        for key in KEYS:
            current = self.ledger.current(key)
            assert current is None or current.id == self.naive.latest[key].id

    @invariant()
    def rule_1_holds(self) -> None:
        """Neither sum passes the budget, or rises once it is over it."""
        naive = self.naive
        promised, on_disk = naive.occupied + naive.reserved, naive.on_disk
        assert promised <= max(naive.capacity, self.promised_most), "promised"
        assert on_disk <= max(naive.capacity, self.on_disk_most), "on disk"
        self.promised_most, self.on_disk_most = promised, on_disk

    @invariant()
    def the_books_agree_with_themselves(self) -> None:
        audit(self.ledger)


class HastyCaller(CarefulCaller):
    careful = False


@pytest.mark.timeout(3600 if THOROUGH else 120)
@pytest.mark.parametrize("caller", [CarefulCaller, HastyCaller])
def test_the_ledger_keeps_the_naive_books(caller: type[CarefulCaller]) -> None:
    run_state_machine_as_test(
        caller,
        settings=settings(
            max_examples=4000 if THOROUGH else 80,
            stateful_step_count=80 if THOROUGH else 50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
