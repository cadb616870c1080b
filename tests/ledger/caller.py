"""Whoever drives a ledger and the naive books side by side, and what all acts need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import ClassVar

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from tests.ledger.drive import snapshot
from tests.ledger.naive import Copy, Gone, Left, NaiveBooks, Promise, Refusal
from weightd.errors import Blocked, DiskFull, TooLarge
from weightd.ledger import (
    Doomed,
    Dropped,
    Generation,
    IllegalMove,
    Ledger,
    Parked,
    Remains,
    Reservation,
)
from weightd.model import Blob, Key

KEYS = [Key("a"), Key("b"), Key("b", "r1"), Key("c/d")]
HOLDERS = ["h1", "h2", "h3"]
CAPACITY = 100
NO_LIMIT = 10**9
GONE = Dropped(Parked(KEYS[0], 1), Remains(1))
"""What no ledger has dropped."""

keys = st.sampled_from(KEYS)
holders = st.sampled_from(HOLDERS)
some = st.integers(0, 2**16)
"""Which one of some list, modulo its length."""


class Caller(RuleBasedStateMachine):
    careful: ClassVar[bool] = True

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
        self.parked: list[tuple[Parked, Left]] = []
        self.drops: dict[Reservation, tuple[Sequence[Dropped], Sequence[Left]]] = {}
        self.promised_most = self.on_disk_most = CAPACITY
        self.promised_before_settling = 0

    def teardown(self) -> None:
        for stimulus in self.ledger.story:
            note(str(stimulus))

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

    def dropped(self, dropped: Sequence[Dropped], expected: Sequence[Left]) -> list[Left]:
        """The ledger gave up these leftovers, and the naive books expected those: they are told."""
        ours = [(parked, left) for parked, left in self.parked if left in expected]
        assert [parked for parked, _ in dropped] == [parked for parked, _ in ours]
        for (_, remains), (parked, left) in zip(dropped, ours, strict=True):
            assert remains.bytes == parked.bytes == left.bytes
            self.debris.append(remains)
            self.naive.drop(left)
            self.parked.remove((parked, left))
        return [left for _, left in ours]

    def kept(self, arrival: Reservation) -> None:
        """What a refused arrival was to cost stays, as far as it is still there."""
        ours = [
            (one, left)
            for one, left in zip(*self.drops.pop(arrival, ((), ())), strict=True)
            if one.remains in self.debris
        ]
        for one, left in ours:
            self.debris.remove(one.remains)
            self.naive.debris -= left.bytes
        self.ledger.keep_parked([one for one, _ in ours])
        self.naive.parked[:0] = [left for _, left in ours]
        self.parked[:0] = [(one.parked, left) for one, left in ours]
        with self.refused(IllegalMove):
            self.ledger.keep_parked([one for one, _ in ours] or [GONE])

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
                (holder, str(copy.id.key))
                for copy in self.naive.copies
                for holder in copy.pins or (["a process"] if copy.in_use else [])
            }

    @property
    def may_reserve(self) -> bool:
        return not (self.careful and self.ledger.settling)

    def blob(self, size: int) -> Blob:
        inode = next(self.numbers)
        return Blob(inode, f"{inode % 5:x}", size)  # the same content may be here twice

    def settled(self, reservation: Reservation) -> bool:
        return all(arrival is not reservation for _, arrival in self.seizures)

    def give_back(self, reservation: Reservation, promise: Promise) -> None:
        self.arrivals.remove((reservation, promise))
        left = self.naive.end(promise)
        self.named(self.ledger.release(reservation), left)
        before = snapshot(self.ledger)
        assert self.ledger.release(reservation) == []
        assert snapshot(self.ledger) == before
        with self.refused(IllegalMove):
            self.ledger.grant(reservation)
