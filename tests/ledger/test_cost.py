"""What one act costs does not grow with the models that are there: counted in calls, not timed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from weightd.ledger import Ledger, Parked, Room
from weightd.model import Blob, GenerationId, Key

SIZE = 10
PINNED = 8
"""These first few are pinned, in use and the idlest, so that a plan has to step over them."""


def full(models: int) -> Ledger:
    """A ledger with no byte free."""
    ledger = Ledger(models * SIZE)
    for number in range(models):
        id = GenerationId(Key(f"m{number}"), "d")
        blobs = (Blob(2 * number, "s", SIZE - 1), Blob(2 * number + 1, "s", 1))
        ledger.load(id, blobs, retired=False, last_used=number, hits=0)
        if number < PINNED:
            ledger.mark_use(id, True)
    return ledger


def parked(models: int) -> Ledger:
    """The same with as many unfinished arrivals besides."""
    ledger = full(models)
    ledger.resize(2 * ledger.capacity)
    for number in range(models):
        ledger.load_parked(Key(f"p{number}"), SIZE)
    return ledger


def calls_of(act: Callable[[], object]) -> int:
    """How many Python functions ``act`` calls; resuming a generator counts as one."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    # A collection calls what others have asked it to.
    gc.disable()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def reserve(ledger: Ledger) -> None:
    victims = ledger.reserve(Key("new"), 3 * SIZE, Room(free=0, min_free=0, others=0)).victims
    ledger.evicted(victims)
    for doomed in victims:
        ledger.freed(doomed)


ACTS: dict[str, Callable[[Ledger], object]] = {
    "plan": lambda ledger: ledger.plan(Key("new"), 3 * SIZE),
    "plan a replacement": lambda ledger: ledger.plan(Key("m90"), SIZE),
    "reserve": reserve,
    "over": lambda ledger: ledger.over(ledger.capacity - 2 * SIZE),
    "nothing over": lambda ledger: ledger.over(ledger.capacity),
    "use": lambda ledger: ledger.use(Key("m90"), 1.0),
    "pin": lambda ledger: ledger.pin("h", Key("m90"), 1.0, ttl=5.0),
    "lapsed": lambda ledger: ledger.lapsed(9.0),
    "usage": lambda ledger: ledger.usage(),
    "leaving": lambda ledger: ledger.leaving(Key("m90")),
}


PARKED: dict[str, Callable[[Ledger], object]] = {
    "reserve": reserve,
    "resume": lambda ledger: ledger.reserve(Key("p0"), 3 * SIZE, resuming=oldest(ledger)),
    "grow": lambda ledger: ledger.grow(ledger.reserve(Key("new"), SIZE), SIZE),
    "park": lambda ledger: ledger.park(ledger.reserve(Key("new"), SIZE)),
    "drop": lambda ledger: ledger.drop_parked(oldest(ledger)),
    "drop over": lambda ledger: ledger.drop_over(ledger.capacity - 2 * SIZE),
    "find a blob": lambda ledger: ledger.find_blob("s", 1),
    "evict a holder": lambda ledger: ledger.evict(GenerationId(Key("m90"), "d")),
    "usage": lambda ledger: ledger.usage(),
}
"""Every model has the same two contents as all others, which is the worst for an index."""


def oldest(ledger: Ledger) -> Parked:
    return next(ledger._partials.oldest_first())


@pytest.mark.parametrize("name", PARKED)
def test_an_act_on_what_is_parked_costs_the_same_among_many(name: str) -> None:
    few, many = parked(100), parked(5_000)
    assert calls_of(lambda: PARKED[name](many)) == calls_of(lambda: PARKED[name](few))


@pytest.mark.parametrize("name", ACTS)
def test_an_act_costs_the_same_among_many(name: str) -> None:
    few, many = full(100), full(5_000)
    assert calls_of(lambda: ACTS[name](many)) == calls_of(lambda: ACTS[name](few))
