"""Waiting for room while blocked: in turn, bounded, and woken by whatever makes room."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import Paused, Whole, bytes_of
from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache import PutTerms
from weightd.errors import Blocked, TooLarge, TooMany
from weightd.model import Key

CAPACITY = 10 * BLOCK
LONG = 3600.0


async def pinned(node: Node) -> None:
    await node.put("pinned", 8 * BLOCK)
    await node.cache.pin("replica", Key("pinned"))


async def waiting(node: Node, count: int) -> None:
    """Until so many arrivals stand in the queue and none of them is deciding."""
    while node.cache._admission.waiting < count:
        await asyncio.sleep(0)
    for _ in range(3):
        await node.workers.disk(int)


async def test_an_unpin_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        await node.cache.unpin("replica", Key("pinned"))
        await soon(coming)
        assert node.resident() == ["new"]


async def test_a_lease_that_lapses_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("pinned", 8 * BLOCK)
        await node.cache.pin("replica", Key("pinned"), ttl=60.0)
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        node.clock.advance(61.0)
        node.cache._context.changed.notify()
        await soon(coming)
        assert node.cache._context.counters.expired_pins == 1


async def test_an_arrival_that_is_given_up_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        body = Paused(bytes_of("stops", 8 * BLOCK), BLOCK)
        other = asyncio.create_task(node.cache.put(Key("other"), body, PutTerms(length=8 * BLOCK)))
        await soon(body.paused.wait())
        with pytest.raises(Blocked) as blocked:
            await node.put("new", 8 * BLOCK)
        assert blocked.value.reason == "arriving"
        assert blocked.value.arriving == 8 * BLOCK
        coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        other.cancel()
        await soon(asyncio.wait([other]))
        await soon(coming)


async def test_the_end_of_a_reader_lets_it_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("read", 8 * BLOCK)
        async with node.cache.content(Key("read"), "read"):
            coming = asyncio.create_task(node.put("new", 8 * BLOCK, wait=LONG))
            await waiting(node, 1)
        await soon(coming)


async def test_who_came_first_is_served_first(root: Path) -> None:
    """The second would fit at once, and is not let past the first."""
    async with running(root, CAPACITY) as node:
        await pinned(node)
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        second = asyncio.create_task(node.put("second", 2 * BLOCK, wait=LONG))
        await waiting(node, 2)
        assert not second.done()
        await node.cache.unpin("replica", Key("pinned"))
        await soon(asyncio.gather(first, second))
        sequence = {
            str(one.id.key): node.cache._context.models[one.id].manifest.sequence
            for one in node.cache.audit().generations()
        }
        assert sequence.keys() == {"first", "second"}


async def test_one_that_gives_up_lets_the_next_in(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        first = asyncio.create_task(node.put("first", 8 * BLOCK, wait=LONG))
        await waiting(node, 1)
        second = asyncio.create_task(node.put("second", 2 * BLOCK, wait=LONG))
        await waiting(node, 2)
        first.cancel()
        await soon(second)
        assert first.cancelled()


async def test_in_the_end_it_is_refused_with_the_figures(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await pinned(node)
        body = Whole(b"")
        with pytest.raises(Blocked) as blocked:
            await soon(node.cache.put(Key("new"), body, PutTerms(length=8 * BLOCK, wait=0.05)))
        assert not body.entered
        assert [one.holder for one in blocked.value.holders] == ["replica"]
        assert node.cache._context.counters.rejections["blocked"] == 1
        assert node.cache._admission.waiting == 0


async def test_what_can_never_fit_does_not_wait(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(TooLarge):
            await soon(node.put("new", 11 * BLOCK, wait=LONG))


async def test_the_queue_has_a_limit(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, waiting=2)) as node:
        await pinned(node)
        waiters = [
            asyncio.create_task(node.put(f"new-{n}", 8 * BLOCK, wait=LONG)) for n in range(2)
        ]
        await waiting(node, 2)
        with pytest.raises(TooMany):
            await node.put("one-more", 8 * BLOCK, wait=LONG)
        for waiter in waiters:
            waiter.cancel()
        await soon(asyncio.wait(waiters))
