"""Pins: counted by holder, on stable storage, lapsing when they should."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cache.doubles import PATIENCE
from tests.cache.node import BLOCK, STILL, Node, decides_between_batches, running, soon
from weightd.cache import context
from weightd.cache.pinning import LAPSED_AT_ONCE
from weightd.errors import (
    Blocked,
    Draining,
    GenerationGone,
    NotPinned,
    NotResident,
    Pinned,
    StateUnwritable,
)
from weightd.model import Key, Pin

KEY = Key("model")
CAPACITY = 10 * BLOCK


async def test_a_holder_pins_once_and_renews(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        first = await node.cache.pin("replica", KEY, ttl=30.0)
        node.clock.advance(10.0)
        second = await node.cache.pin("replica", KEY, ttl=30.0)
        assert (first.created, second.created) == (True, False)
        assert second.pin.since == first.pin.since
        assert second.pin.until == first.pin.since + 40.0
        assert node.usage.pins == 1
        # The first pin was a lookup, the renewal is none.
        assert node.cache._context.counters.lookups == {"hit": 1, "miss": 0}
        (view,) = node.cache.pins()
        assert (view.holder, view.current, view.bytes) == (second.pin.holder, True, BLOCK)
        assert (view.since, view.until) == (second.pin.since, second.pin.until)


async def test_what_is_pinned_is_not_deleted(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("replica", KEY)
        with pytest.raises(Pinned) as pinned:
            await node.cache.delete(KEY)
        assert [one.holder for one in pinned.value.holders] == ["replica"]
        await node.cache.unpin("replica", KEY)
        await node.cache.delete(KEY)
        with pytest.raises(NotPinned):
            await node.cache.unpin("replica", KEY)


async def test_a_miss_is_counted(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(NotResident):
            await node.cache.pin("replica", KEY)
        assert node.cache._context.counters.lookups == {"hit": 0, "miss": 1}


async def test_exactly_one_generation(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        old = (await node.put("model", BLOCK, "old")).record.manifest.digest
        await node.cache.pin("replica", KEY, generation=old)
        new = (await node.put("model", BLOCK, "new")).record.manifest.digest
        renewed = await node.cache.pin("replica", KEY, generation=old)
        assert not renewed.created
        with pytest.raises(GenerationGone):
            await node.cache.pin("other", KEY, generation=old)
        both = await node.cache.pin("replica", KEY, generation=new)
        assert both.created
        assert node.usage.pins == 2
        await node.cache.unpin("replica", KEY)
        assert node.usage.pins == 0


async def test_a_holder_of_an_old_generation_is_told_that_the_new_one_is_damaged(
    root: Path,
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK, "old")
        await node.cache.pin("replica", KEY)
        new = await node.put("model", BLOCK, "new")
        node.clock.advance(60.0)
        (new.record.path / "model").unlink()
        with pytest.raises((NotResident, GenerationGone)):
            await node.cache.pin("replica", KEY, generation=new.record.manifest.digest)


async def test_the_end_of_the_last_pin_is_a_use(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("replica", KEY)
        await node.put("other", BLOCK)
        assert node.idle_first() == ["model", "other"]
        node.clock.advance(1.0)
        await node.cache.unpin("replica", KEY)
        assert node.idle_first() == ["other", "model"]


async def test_pins_survive(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("plain", KEY)
        await node.cache.pin("leased", KEY, ttl=30.0)
        await node.cache.pin("forever", KEY, forever=True)
        node.clock.advance(20.0)
        await node.restart()
        pins = {pin.holder: pin for pin in pins_of(node)}
        assert pins.keys() == {"plain", "leased", "forever"}
        # A lease gets its full time anew: the holder could not renew meanwhile.
        assert pins["leased"].until == node.clock.now() + 30.0
        assert pins["plain"].until is None


async def test_after_a_reboot_pins_lapse_unless_they_are_renewed_or_forever(root: Path) -> None:
    options = replace(STILL, orphan_grace=100.0)
    async with running(root, CAPACITY, options=options) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("plain", KEY)
        await node.cache.pin("renewed", KEY)
        await node.cache.pin("forever", KEY, forever=True)
        await node.restart(boot_id="boot-2")
        await node.cache.pin("renewed", KEY)
        assert node.usage.pins == 3
        await lapse(node, 101.0)
        assert holders(node) == ["forever", "renewed"]
        await node.restart()
        assert holders(node) == ["forever", "renewed"]


async def test_a_lease_lapses(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("replica", KEY, ttl=30.0)
        await lapse(node, 29.0)
        assert holders(node) == ["replica"]
        await lapse(node, 2.0)
        assert holders(node) == []
        await node.restart()
        assert holders(node) == []


async def test_many_leases_that_end_at_once_leave_requests_their_turn(root: Path) -> None:
    many = 5 * LAPSED_AT_ONCE
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await asyncio.gather(*(node.cache.pin(f"h{n}", KEY, ttl=30.0) for n in range(many)))
        node.clock.advance(31.0)
        node.cache._context.changed.notify()
        seen = []
        async with asyncio.timeout(30):
            while node.usage.pins:
                await asyncio.sleep(0)
                seen.append(node.usage.pins)
        assert {4 * LAPSED_AT_ONCE, LAPSED_AT_ONCE} <= set(seen)
        assert node.cache._context.counters.expired_pins == many
        await node.restart()
        assert holders(node) == []


async def test_retired_models_whose_leases_end_at_once_stop_no_admission(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They leave some at a time, and in between it is decided, however slow the disk."""
    monkeypatch.setattr(context, "PAUSE", 0.0)
    many = 2 * LAPSED_AT_ONCE + 1
    async with running(root, 2 * many * BLOCK) as node:
        for number in range(many):
            key = f"model{number}"
            await node.put(key, BLOCK, "old")
            await node.cache.pin("replica", Key(key), ttl=3600.0)
            await node.put(key, BLOCK, "new")
        hold = node.workers.arm("doom", after=False)
        node.clock.advance(3600.0)
        node.cache._context.changed.notify()
        await decides_between_batches(node, hold, LAPSED_AT_ONCE)
        await node.until(lambda: node.usage.retired_models == 0)


async def lapse(node: Node, seconds: float) -> None:
    node.clock.advance(seconds)
    node.cache._context.changed.notify()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def holders(node: Node) -> list[str]:
    return sorted(view.holder for view in node.cache.pins() if view.holder is not None)


# -- A database that cannot be written --------------------------------------------------


def read_only(node: Node, yes: bool) -> None:
    """Make SQLite refuse to write, as a full or failing disk does."""
    database = node.cache._pins._writer._database
    with database._using:
        database._connection.execute(f"PRAGMA query_only = {'ON' if yes else 'OFF'}")


async def test_a_pin_that_cannot_be_written_is_not_taken(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        read_only(node, True)
        with pytest.raises(StateUnwritable):
            await node.cache.pin("replica", KEY)
        assert holders(node) == []
        read_only(node, False)
        await node.cache.pin("replica", KEY)


@pytest.mark.parametrize(
    "terms", [{}, {"ttl": 1000.0}, {"forever": True}], ids=["plain", "lease", "forever"]
)
async def test_a_renewal_that_changes_nothing_needs_no_disk(
    root: Path, terms: dict[str, Any]
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("replica", KEY, **terms)
        read_only(node, True)
        node.clock.advance(10)
        renewed = await node.cache.pin("replica", KEY, **terms)
        assert not renewed.created
        assert pins_of(node) == [renewed.pin]
        for others in ({}, {"ttl": 1000.0}, {"forever": True}):
            if others != terms:
                with pytest.raises(StateUnwritable):
                    await node.cache.pin("replica", KEY, **others)
                assert pins_of(node) == [renewed.pin]
        # Put back after a failure, it is still the one that stands.
        await node.cache.pin("replica", KEY, **terms)
        read_only(node, False)
        await node.restart()
        (kept,) = pins_of(node)
        assert (kept.ttl, kept.forever) == (terms.get("ttl"), terms.get("forever", False))


async def test_a_renewal_behind_another_one_on_its_way_is_written(root: Path) -> None:
    """It says what stands on stable storage, but no longer does when the other is there."""
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("replica", KEY, ttl=60.0)
        using = node.cache._pins._writer._database._using
        using.acquire()
        pins = [asyncio.create_task(node.cache.pin("replica", KEY, ttl=n)) for n in (30.0, 60.0)]
        # Either asks for its record before it waits for anything.
        await asyncio.sleep(0)
        assert [pin.ttl for pin in pins_of(node)] == [60.0]
        using.release()
        await soon(asyncio.gather(*pins))
        await node.restart()
        assert [pin.ttl for pin in pins_of(node)] == [60.0]


async def test_of_pins_that_fail_together_none_stands(root: Path) -> None:
    """A renewal that fails goes back to what is on disk, not to a pin that failed before it."""
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        read_only(node, True)
        node.cache._pins._writer._database._using.acquire()
        pins = [asyncio.create_task(node.cache.pin("replica", KEY, ttl=n + 1.0)) for n in range(3)]
        while node.usage.pins == 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.cache._pins._writer._database._using.release()
        outcomes = await soon(asyncio.gather(*pins, return_exceptions=True))
        assert all(isinstance(outcome, StateUnwritable) for outcome in outcomes)
        assert holders(node) == []
        read_only(node, False)


async def test_a_renewal_that_fails_leaves_the_pin_as_it_was(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        first = await node.cache.pin("replica", KEY, ttl=1000.0)
        read_only(node, True)
        outcomes = await soon(
            asyncio.gather(
                node.cache.pin("replica", KEY, ttl=10.0),
                node.cache.pin("replica", KEY, forever=True),
                return_exceptions=True,
            )
        )
        assert all(isinstance(outcome, StateUnwritable) for outcome in outcomes)
        assert pins_of(node) == [first.pin]
        with pytest.raises(StateUnwritable, match="the pin was not let go"):
            await node.cache.unpin("replica", KEY)
        with pytest.raises(StateUnwritable, match="the loss of pins was not accepted"):
            await node.cache.accept_loss()
        assert pins_of(node) == [first.pin]
        read_only(node, False)


@pytest.mark.parametrize("again", [False, True])
async def test_a_lease_that_ended_while_nothing_could_be_written_is_forgotten_later(
    root: Path, again: bool
) -> None:
    """Also when its holder tried to pin anew meanwhile, in vain."""
    async with running(root, CAPACITY) as node:
        await ends_unwritten(node)
        if again:
            with pytest.raises(StateUnwritable):
                await node.cache.pin("replica", KEY)
        await node.cache._pins.forget_again()
        await lingers(node)
        read_only(node, False)
        await node.cache._pins.forget_again()
        await node.restart()
        assert holders(node) == []


async def test_a_pin_anew_is_not_forgotten_for_the_one_that_ended(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await ends_unwritten(node)
        read_only(node, False)
        await node.cache.pin("replica", KEY)
        await node.cache._pins.forget_again()
        await node.restart()
        assert holders(node) == ["replica"]


async def ends_unwritten(node: Node) -> None:
    """A lease of ``replica`` ends while nothing can be written."""
    await node.put("model", BLOCK)
    await node.cache.pin("replica", KEY, ttl=30.0)
    read_only(node, True)
    node.clock.advance(31.0)
    await node.cache._pins.lapse()
    await lingers(node)


@pytest.mark.parametrize("current", [True, False])
async def test_what_is_unpinned_in_vain_is_not_evicted_meanwhile(root: Path, current: bool) -> None:
    """Or its record would be that of no model, and pin whatever comes back with its content."""
    met, go = threading.Event(), threading.Event()

    def reach(name: str) -> None:
        if name == "unpin.before-commit" and not met.is_set():
            met.set()
            assert go.wait(PATIENCE)
            raise sqlite3.OperationalError("disk I/O error")

    async with running(root, CAPACITY, reach=reach) as node:
        old = await node.put("model", 6 * BLOCK)
        await node.cache.pin("replica", KEY)
        if not current:
            await node.put("model", BLOCK, "new")
        unpinning = asyncio.create_task(node.cache.unpin("replica", KEY))
        assert await asyncio.to_thread(met.wait, PATIENCE)
        assert node.usage.pins == 0
        with pytest.raises(Blocked):
            await soon(node.put("other", 8 * BLOCK))
        go.set()
        with pytest.raises(StateUnwritable, match="the pin was not let go"):
            await soon(unpinning)
        assert [(view.holder, view.current) for view in node.cache.pins()] == [("replica", current)]
        assert old.record.path.exists()
        await soon(node.cache.unpin("replica", KEY))
        await soon(node.put("other", 8 * BLOCK))
        assert not old.record.path.exists()
        await node.restart()
        assert holders(node) == []


async def lingers(node: Node) -> None:
    """Wait until the writer has told that a record stays."""
    async with asyncio.timeout(30):
        while not node.cache._pins._lingering:
            await asyncio.sleep(0)


def pins_of(node: Node) -> list[Pin]:
    return [pin for one in node.cache.audit().generations() for pin in one.pins.values()]


async def test_while_draining_no_pin_is_taken_and_one_is_let_go(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.pin("replica", KEY)
        node.cache.drain()
        with pytest.raises(Draining):
            await node.cache.pin("other", KEY)
        with pytest.raises(Draining):
            await node.put("other", BLOCK)
        await node.cache.unpin("replica", KEY)
        await node.get("model")
