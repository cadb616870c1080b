"""The same hits as two other least-recently-used caches, request by request.

The trace is Zipf's: 20,000 requests of 2,000 objects from 1 to 100 units, for
a budget of about a tenth of them all.  An object is looked up, and put on a
miss.  Nothing is pinned, and nothing changes its size.

Definitions that could differ, and do not on such a trace:

- An object larger than the whole budget is refused by all three and evicts
  nothing.  (cachetools raises ValueError, libcachesim calls it a miss.)
- An object that fits exactly is admitted; the victims are the idlest, one
  after the other, until the newcomer fits, and no more than that.
- A hit counts as a use, and so does the admission.
- cachetools evicts before it notices that it replaces an object of the same
  key; this trace never puts what is there, where weightd would take the
  replaced generation first and the others would not.
- What is parked is in nobody's way: a ledger whose free bytes are filled with
  unfinished arrivals, some of them gone on with, has the same hits.
- libcachesim can charge metadata per object (`consider_obj_metadata`); off.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate, count
from typing import TypeAlias

import cachetools
import pytest

from tests.ledger.audit import audit
from tests.tiers import THOROUGH
from weightd.errors import NotResident, TooLarge
from weightd.ledger import Ledger
from weightd.model import Blob, Key

REQUESTS = 20_000
SEEDS = range(1, 11) if THOROUGH else [1]
OBJECTS = 2_000
LARGEST = 100
TOO_LARGE = OBJECTS // 2
"""This object alone is larger than the whole budget."""


class Trace:
    """Requests by number of the object, and each object's size."""

    def __init__(self, seed: int, skew: float = 0.9) -> None:
        chance = random.Random(seed)
        self.sizes = [chance.randint(1, LARGEST) for _ in range(OBJECTS)]
        self.capacity = sum(self.sizes) // 10
        self.sizes[TOO_LARGE] = self.capacity + 1
        weights = list(accumulate(1 / rank**skew for rank in range(1, OBJECTS + 1)))
        numbers = list(range(OBJECTS))
        chance.shuffle(numbers)
        self.requests = chance.choices(numbers, cum_weights=weights, k=REQUESTS)
        # However unpopular it came out, it is asked for now and then.
        for place in range(0, REQUESTS, 997):
            self.requests[place] = TOO_LARGE


Put: TypeAlias = Callable[[Ledger, Key, Blob, float], None]


def hits_of_the_ledger(trace: Trace, put: Put) -> Iterator[bool]:
    ledger, now = Ledger(trace.capacity), count()
    for number in trace.requests:
        key = Key(f"m{number}")
        try:
            ledger.use(key, next(now))
            yield True
        except NotResident:
            try:
                put(ledger, key, Blob(number, "s", trace.sizes[number]), next(now))
            except TooLarge:
                assert number == TOO_LARGE
            yield False
    audit(ledger)
    assert ledger.usage().used > 0.9 * trace.capacity


def admit(ledger: Ledger, key: Key, blob: Blob, now: float) -> None:
    ledger.admit(key, "d", (blob,), now)


def admit_among_partials(ledger: Ledger, key: Key, blob: Blob, now: float) -> None:
    """Fill what is free with unfinished arrivals; go on with one of this key, or drop them all."""
    for part in (3, 2, 1):
        ledger.load_parked(Key("other"), ledger.usage().free // part // 2)
    parked = ledger.load_parked(key, min(blob.bytes, ledger.usage().free))
    if blob.inode % 3:
        ledger.admit(key, "d", (blob,), now)
        for dropped in ledger.drop_over(0):
            ledger.freed(dropped.remains)
        return
    arrival = ledger.reserve(key, blob.bytes, resuming=parked)
    assert arrival.written == parked.bytes
    ledger.evicted(arrival.victims)
    for remains in (*arrival.victims, *(one.remains for one in arrival.dropped)):
        ledger.freed(remains)
    assert ledger.grant(arrival)
    ledger.commit(arrival, "d", (blob,), now)


def hits_of_cachetools(trace: Trace) -> Iterator[bool]:
    cache: cachetools.LRUCache[int, int] = cachetools.LRUCache(
        trace.capacity, getsizeof=lambda size: size
    )
    for number in trace.requests:
        if number in cache:
            cache[number]
            yield True
        else:
            try:
                cache[number] = trace.sizes[number]
            except ValueError:
                assert number == TOO_LARGE
            yield False


def hits_of_libcachesim(trace: Trace) -> Iterator[bool]:
    import libcachesim

    cache = libcachesim.LRU(trace.capacity)
    for number in trace.requests:
        yield cache.get(libcachesim.Request(obj_id=number, obj_size=trace.sizes[number]))


@pytest.mark.parametrize("put", [admit, admit_among_partials])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_hits_are_those_of_cachetools(seed: int, put: Put) -> None:
    trace = Trace(seed)
    ours = list(hits_of_the_ledger(trace, put))
    first_difference(ours, list(hits_of_cachetools(trace)))
    assert 0.3 < sum(ours) / REQUESTS < 0.95, "a trace of hits or misses alone would show nothing"


@pytest.mark.needs("libcachesim")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_hits_are_those_of_libcachesim(seed: int) -> None:
    trace = Trace(seed)
    first_difference(list(hits_of_the_ledger(trace, admit)), list(hits_of_libcachesim(trace)))


def first_difference(ours: list[bool], theirs: list[bool]) -> None:
    different = [
        place for place, pair in enumerate(zip(ours, theirs, strict=True)) if len({*pair}) > 1
    ]
    assert not different, f"{len(different)} requests differ, the first is number {different[0]}"
