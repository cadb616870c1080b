"""Cancellation at every await, and while every call to the disk is held.

Each story is told on a node of its own and cut short: at its n-th suspension,
for every n until it ends by itself; and while its n-th call to the disk is
held before or after it is carried out.  Afterwards nothing may be left of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.api.origin import Origin
from tests.cache.doubles import Gate, Hold, Paused, Whole, bytes_of, suspended
from tests.cache.node import BLOCK, Node, running, soon
from tests.cache.stories import (
    CAPACITY,
    FETCHES,
    KEY,
    STORIES,
    Story,
    a_model,
    a_retired_model,
    is_as_good_as_new,
)
from tests.tiers import THOROUGH, crossed
from weightd.cache import PutTerms
from weightd.errors import WeightdError

# -- Cut short ----------------------------------------------------------------------


async def cut_at(story: Story, node: Node, nth: int) -> bool:
    """Cancel a story at its n-th suspension; False when it ended without that many."""
    met = 0

    def each() -> None:
        nonlocal met
        met += 1
        if met == nth:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async def tell() -> object:
        return await story(node)

    async def told() -> object:
        return await suspended(tell(), each)

    task = asyncio.create_task(told())
    await soon(asyncio.wait([task]))
    assert task.cancelled() == (met >= nth), task
    if not task.cancelled():
        task.result()
    return met >= nth


async def cut_while_held(story: Story, node: Node, nth: int, *, after: bool) -> bool:
    """Cancel a story while its n-th call to the disk is held; False when there is none."""
    return await cut_while(story, node, node.workers.arm(nth, after=after))


async def cut_while(story: Story, node: Node, hold: Hold) -> bool:
    """Cancel a story while something is held; False when that was never met."""
    task = asyncio.ensure_future(story(node))
    met = asyncio.create_task(hold.met.wait())
    await soon(asyncio.wait([task, met], return_when=asyncio.FIRST_COMPLETED))
    held = hold.met.is_set()
    if held:
        task.cancel()
        await asyncio.sleep(0)  # the cancellation is delivered before the call goes on
    hold.let_go()
    met.cancel()
    await soon(asyncio.wait([task, met]))
    if not task.cancelled():
        task.result()
    return held


ALL = STORIES | FETCHES

# Its caller gone, a job goes on by itself: which it is matters little here.
MOST = ALL if THOROUGH else STORIES | {name: FETCHES[name] for name in ("fetch together",)}


@pytest.mark.parametrize("name", ALL)
async def test_at_every_suspension(quick_path: Path, origin: Origin, name: str) -> None:
    setting, story = ALL[name]
    nth, cut = 0, True
    while cut:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            cut = await cut_at(story, node, nth)
            await is_as_good_as_new(node)
    assert nth > 1, "the story was never suspended"


@pytest.mark.parametrize(("name", "when"), crossed(MOST, ["before", "after"]))
async def test_while_every_call_to_the_disk_is_held(
    quick_path: Path, origin: Origin, name: str, when: str
) -> None:
    setting, story = ALL[name]
    nth, cut = 0, True
    while cut:
        nth += 1
        async with running(quick_path / str(nth), CAPACITY) as node:
            node.origin = origin
            await setting(node)
            cut = await cut_while_held(story, node, nth, after=when == "after")
            await is_as_good_as_new(node)


# -- While a failpoint is held: the steps inside one call, and the pins' database ----------


@pytest.mark.parametrize("name", MOST)
async def test_while_every_step_on_disk_is_held(
    quick_path: Path, origin: Origin, name: str
) -> None:
    setting, story = ALL[name]
    steps: list[str] = []
    async with running(quick_path / "whole", CAPACITY, reach=steps.append) as node:
        node.origin = origin
        await setting(node)
        await node.quiet()
        steps.clear()
        await story(node)
        await node.quiet()
    for step in sorted(set(steps)):
        async with running(quick_path / step, CAPACITY, reach=(gate := Gate()).pass_by) as node:
            node.origin = origin
            await setting(node)
            await node.quiet()
            await cut_while(story, node, gate.hold_at(step))
            await is_as_good_as_new(node)


# -- Bodies that do not come -----------------------------------------------------------


class NeverEntered(Whole):
    async def __aenter__(self) -> Whole:
        self.entered = True
        await asyncio.Event().wait()
        return self


class SlowToLeave(Whole):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.leaving = asyncio.Event()
        self.go = asyncio.Event()

    async def __aexit__(self, *error: object) -> None:
        self.leaving.set()
        await self.go.wait()


async def test_a_body_that_is_never_entered(quick_path: Path) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        body = NeverEntered(b"")
        task = asyncio.create_task(node.cache.put(KEY, body, PutTerms(length=BLOCK)))
        while not body.entered:
            await asyncio.sleep(0)
        task.cancel()
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        await is_as_good_as_new(node)


@pytest.mark.parametrize("first", [0, BLOCK, 3 * BLOCK])
@pytest.mark.parametrize("length", [4 * BLOCK, None], ids=["known", "unknown"])
async def test_a_body_that_stops(quick_path: Path, first: int, length: int | None) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        body = Paused(bytes_of("stops", 4 * BLOCK), first)
        task = asyncio.create_task(node.cache.put(KEY, body, PutTerms(length=length)))
        await soon(body.paused.wait())
        task.cancel()
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        await is_as_good_as_new(node)


async def test_a_body_that_is_slow_to_leave(quick_path: Path) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        body = SlowToLeave(bytes_of("slow", BLOCK))
        task = asyncio.create_task(node.cache.put(KEY, body, PutTerms(length=BLOCK)))
        await soon(body.leaving.wait())
        task.cancel()
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        await is_as_good_as_new(node)


# -- Waits that are no call to the disk ----------------------------------------------------


async def test_waiting_for_room(quick_path: Path) -> None:
    async with running(quick_path / "root", CAPACITY) as node:
        await node.put("org/model", 4 * BLOCK)
        await node.cache.pin("replica", KEY)
        waiting = asyncio.create_task(node.put("other", 8 * BLOCK, wait=3600.0))
        while node.cache._admission.waiting == 0:
            await asyncio.sleep(0)
        waiting.cancel()
        await soon(asyncio.wait([waiting]))
        assert waiting.cancelled()
        await is_as_good_as_new(node)


async def test_waiting_for_the_bytes_of_a_victim(quick_path: Path) -> None:
    """The victim is still read by somebody; its bytes do not leave the disk."""
    async with running(quick_path / "root", CAPACITY) as node:
        hold = Hold()
        (await node.put("org/model", 8 * BLOCK))
        holding = node.workers._inner._unlinks.submit(hold.meet)
        await soon(hold.met.wait())
        waiting = asyncio.create_task(node.put("other", 8 * BLOCK))
        await soon(node.until(lambda: node.usage.doomed > 0))
        for _ in range(3):
            await node.workers.disk(int)
        assert not waiting.done()
        waiting.cancel()
        await soon(asyncio.wait([waiting]))
        assert waiting.cancelled()
        assert node.usage.reserved == 0
        hold.let_go()
        await asyncio.wrap_future(holding)
        await is_as_good_as_new(node)


async def test_growing(quick_path: Path) -> None:
    """The thread of an arrival of unknown length waits for room on disk, and is let go."""
    async with running(quick_path / "root", CAPACITY) as node:
        body = Paused(bytes_of("grows", 4 * BLOCK), BLOCK)
        task = asyncio.create_task(node.cache.put(KEY, body, PutTerms()))
        await soon(body.paused.wait())
        # The first of the body goes to disk when the rest comes; the growth is held at statvfs.
        hold = node.workers.arm(1, after=False)
        body.go_on()
        await soon(hold.met.wait())
        task.cancel()
        await asyncio.sleep(0)
        hold.let_go()
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        await is_as_good_as_new(node)


# -- A pin whose caller went away -------------------------------------------------------------


@pytest.mark.parametrize("step", ["pin.before-commit", "pin.committed"])
async def test_a_lease_lapses_although_its_caller_went_away(quick_path: Path, step: str) -> None:
    gate = Gate()
    async with running(quick_path / "root", CAPACITY, reach=gate.pass_by) as node:
        await a_model(node)
        hold = gate.hold_at(step)
        task = asyncio.create_task(node.cache.pin("replica", KEY, ttl=5.0))
        await soon(hold.met.wait())
        task.cancel()
        await soon(asyncio.wait([task]))
        hold.let_go()
        await soon(node.until(lambda: node.usage.pins == 1))
        await soon(node.only_loops())
        # The loop that lets leases lapse knows of this one: it sleeps no longer than the lease.
        (timer,) = [one for one in timers() if one - asyncio.get_running_loop().time() <= 5.0]
        assert timer


def timers() -> list[float]:
    """When each timer of the running loop is due."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [handle.when() for handle in scheduled if not handle.cancelled()]


# -- Accepting a loss ---------------------------------------------------------------------------


async def test_accepting_a_loss(quick_path: Path) -> None:
    """Cancelled while it is written down, it leaves the database at work."""
    async with running(quick_path / "root", CAPACITY) as node:
        await a_model(node)
        await node.close()
        (node.root / "state.db").unlink()
        await node.open()
        assert not node.cache.audit().pins_known
        using = node.cache._pins._writer._database._using
        using.acquire()
        task = asyncio.create_task(node.cache.accept_loss())
        await asyncio.sleep(0)
        task.cancel()
        await soon(asyncio.wait([task]))
        using.release()
        await soon(node.only_loops())
        await soon(node.cache.pin("replica", KEY))
        assert node.cache.audit().pins_known
        await is_as_good_as_new(node)


# -- Start ---------------------------------------------------------------------------------------


async def started(node: Node) -> object:
    await node.cache.start()
    return None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_start_while_every_call_to_the_disk_is_held(quick_path: Path, after: bool) -> None:
    await cut_starts(
        quick_path / "root", lambda node, nth: cut_while_held(started, node, nth, after=after)
    )


async def test_start_at_every_suspension(quick_path: Path) -> None:
    await cut_starts(quick_path / "root", lambda node, nth: cut_at(started, node, nth))


async def cut_starts(root: Path, cut: Callable[[Node, int], Awaitable[bool]]) -> None:
    """A start that is cut short lets threads and databases go, and the next one works."""
    node = Node(root, CAPACITY)
    await node.open()
    await a_retired_model(node)
    await node.close()
    nth, went_on = 0, False
    while not went_on:
        nth += 1
        await prepare(node)
        try:
            went_on = not await cut(node, nth)
        except WeightdError:
            pytest.fail("a cancelled start raised something else")
        finally:
            await node.close()
    assert nth > 5
    await node.open()
    try:
        assert node.resident() == ["org/model"]
        assert (node.usage.pins, node.usage.retired_models) == (1, 1)
        await is_as_good_as_new(node)
    finally:
        await node.close()


async def prepare(node: Node) -> None:
    from weightd.store import Store

    node.prepare(await asyncio.to_thread(Store.open, node.root))
