"""Acts of arrivals that stop half way: parked, gone on with, dropped."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.ledger.acts_arriving import Arriving, rooms, sizes
from tests.ledger.caller import KEYS, keys, some
from weightd.ledger import IllegalMove, Room
from weightd.model import Key


class Parking(Arriving):
    @precondition(lambda self: self.may_reserve and len(self.parked) < 3)
    @rule(key=keys, size=st.integers(0, 30))
    def load_parked(self, key: Key, size: int) -> None:
        naive = self.naive
        if max(naive.promised, naive.on_disk) + size <= naive.capacity:
            self.parked.append((self.ledger.load_parked(key, size), naive.found(key, size)))

    @precondition(lambda self: self.arrivals)
    @rule(number=some)
    def park(self, number: int) -> None:
        reservation, promise = self.arrivals[number % len(self.arrivals)]
        if self.careful and not self.settled(reservation):
            return
        self.park_it(reservation, promise)
        for act in (self.ledger.park, self.ledger.grant):
            with self.refused(IllegalMove):
                act(reservation)
        assert self.ledger.release(reservation) == []

    @precondition(lambda self: self.parked and self.may_reserve)
    @rule(number=some, size=sizes, room=rooms, links=st.lists(some, max_size=2))
    def resume(self, number: int, size: int, room: Room | None, links: list[int]) -> None:
        parked, left = self.parked[number % len(self.parked)]
        other = next(key for key in KEYS if key != parked.key)
        with self.refused(IllegalMove):
            self.ledger.reserve(other, size, room, resuming=parked)
        if self.reserve_for(parked.key, size, room, links, (parked, left)) is not None:
            for ask in (self.ledger.plan, self.ledger.reserve):
                with self.refused(IllegalMove):
                    ask(parked.key, 0, None, (), parked)
            with self.refused(IllegalMove):
                self.ledger.drop_parked(parked)

    @precondition(lambda self: self.parked)
    @rule(number=some)
    def drop(self, number: int) -> None:
        parked, left = self.parked.pop(number % len(self.parked))
        self.debris.append(self.ledger.drop_parked(parked))
        self.naive.drop(left)
        with self.refused(IllegalMove):
            self.ledger.drop_parked(parked)

    @rule(limit=st.integers(0, 120))
    def drop_over(self, limit: int) -> None:
        expected = []
        promised = self.naive.promised
        for left in self.naive.parked:
            if promised > limit:
                expected.append(left)
                promised -= left.bytes
        self.dropped(self.ledger.drop_over(limit), expected)
