"""What one act costs does not grow with the models that are there: counted in calls, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from weightd.ledger import Ledger, Room
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


def calls_of(act: Callable[[], object]) -> int:
    """How many Python functions ``act`` calls; resuming a generator counts as one."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
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


@pytest.mark.parametrize("name", ACTS)
def test_an_act_costs_the_same_among_many(name: str) -> None:
    few, many = full(100), full(5_000)
    assert calls_of(lambda: ACTS[name](many)) == calls_of(lambda: ACTS[name](few))
