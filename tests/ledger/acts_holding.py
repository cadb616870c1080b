"""Acts that use a generation or keep it: lookups, readers, the kernel's word, pins, doubt."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.ledger.caller import Caller, holders, keys, some
from tests.ledger.naive import Copy, Gone
from weightd.errors import GenerationGone, NotPinned, NotResident
from weightd.ledger import IllegalMove
from weightd.model import Key


class Holding(Caller):
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
