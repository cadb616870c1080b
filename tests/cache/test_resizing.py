"""A budget that changes while models, pins and arrivals are there."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.cache.doubles import Paused, bytes_of
from tests.cache.node import BLOCK, Node, running, soon
from weightd.cache import PutTerms
from weightd.errors import Blocked, TooLarge
from weightd.model import Key

CAPACITY = 100 * BLOCK


async def arriving(node: Node, key: str, blocks: int) -> tuple[asyncio.Task[object], Paused]:
    """An arrival that has brought its first block and stops."""
    body = Paused(bytes_of(key, blocks * BLOCK), BLOCK)
    terms = PutTerms(length=blocks * BLOCK)
    task: asyncio.Task[object] = asyncio.create_task(node.cache.put(Key(key), body, terms))
    await soon(body.paused.wait())
    return task, body


async def test_a_smaller_budget_evicts_the_idlest(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        for name in ("a", "b", "c"):
            await node.put(name, 30 * BLOCK)
        await soon(node.cache.resize(65 * BLOCK, 0))
        assert node.resident() == ["b", "c"]
        assert node.cache._context.counters.evictions["budget"] == 1
        snapshot = await node.cache.snapshot()
        assert (snapshot.capacity_bytes, snapshot.over_budget_bytes) == (65 * BLOCK, 0)
        await soon(node.cache.resize(CAPACITY, 0))
        await node.put("a", 30 * BLOCK)
        assert node.resident() == ["a", "b", "c"]


async def test_what_is_pinned_stays_and_is_told_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(root, CAPACITY) as node:
        await node.put("pinned", 60 * BLOCK)
        await node.put("other", 30 * BLOCK)
        await node.cache.pin("replica", Key("pinned"))
        for _ in range(2):
            await soon(node.cache.resize(50 * BLOCK, 0))
            assert node.resident() == ["pinned"]
            assert (await node.cache.snapshot()).over_budget_bytes == 10 * BLOCK
        with pytest.raises(Blocked):
            await node.put("new", BLOCK)
        await node.cache.unpin("replica", Key("pinned"))
        await soon(node.cache.resize(50 * BLOCK, 0))
        assert (await node.cache.snapshot()).over_budget_bytes == 0
        assert node.resident() == []
    told = [one.message for one in caplog.records if "budget" in one.message]
    assert sum("over budget" in one for one in told) == 1
    assert sum("within the budget" in one for one in told) == 1


async def test_the_newest_arrival_that_no_longer_fits_is_refused(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("pinned", 40 * BLOCK)
        await node.cache.pin("replica", Key("pinned"))
        older, older_body = await arriving(node, "older", 20)
        newer, newer_body = await arriving(node, "newer", 20)
        await soon(node.cache.resize(65 * BLOCK, 0))
        older_body.go_on()
        newer_body.go_on()
        with pytest.raises(Blocked) as blocked:
            await soon(newer)
        assert [one.holder for one in blocked.value.holders] == ["replica"]
        await soon(older)
        assert node.resident() == ["older", "pinned"]
        assert node.cache._context.counters.rejections["blocked"] == 1
        assert node.cache._context.counters.puts["refused"] == 1


async def test_an_arrival_that_can_never_fit_is_refused_and_costs_nobody_his_place(
    root: Path,
) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("small", 20 * BLOCK)
        large, body = await arriving(node, "large", 60)
        await soon(node.cache.resize(50 * BLOCK, 0))
        assert node.resident() == ["small"]
        body.go_on()
        with pytest.raises(TooLarge):
            await soon(large)
        assert node.resident() == ["small"]
        assert node.cache._context.counters.rejections["too-large"] == 1


async def test_written_is_what_has_been_written(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        task, body = await arriving(node, "new", 20)
        assert (node.usage.reserved, node.usage.written) == (20 * BLOCK, 0)
        body.go_on()
        await soon(task)


async def test_thousands_go_while_others_are_served(root: Path) -> None:
    """An admission is decided, and a lookup answered, between two chunks."""
    async with running(root, 1000 * BLOCK) as node:
        for number in range(80):
            await node.put(f"m-{number:03}", BLOCK)
        resizing = asyncio.create_task(node.cache.resize(8 * BLOCK, 0))
        while node.cache._context.counters.evictions["budget"] < 10:
            await asyncio.sleep(0)
        await soon(node.cache.get(Key("m-079")))
        assert (await soon(node.cache.admission(BLOCK))).verdict == "evicts"
        assert not resizing.done()
        await soon(resizing)
        assert node.usage.resident <= 8 * BLOCK
