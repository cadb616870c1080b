"""Fetches that an earlier run left: gone on with, and cancelled before they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.api.origin import Origin, http_origin
from tests.cache.node import BLOCK, Node, running
from weightd.cache import FetchTerms
from weightd.model import Key

KEY = Key("m")


@asynccontextmanager
async def left_half_way(root: Path) -> AsyncIterator[tuple[Node, Origin]]:
    """A node that is about to start, and was drained before its one fetch had ended."""
    with http_origin() as origin:
        source = origin.file("m.bin", bytes(BLOCK))
        origin.flowing.clear()
        async with running(root, 100 * BLOCK) as node:
            await node.cache.fetch(KEY, FetchTerms((source,)))
            node.cache.drain()
            await asyncio.sleep(0)
            origin.flowing.set()
            yield node, origin


async def test_it_goes_on_though_nobody_asked_again(root: Path) -> None:
    """What nobody asks for is given up; while nobody could ask, that is no one's fault."""
    async with left_half_way(root) as (node, _):
        await node.restart()
        await node.cache.fetching.tidy()
        (job,) = node.cache.fetching.views()
        last = [event async for event in node.cache.fetching.events(job.id) if event is not None]
        assert last[-1].data["outcome"] == "done"
        assert node.resident() == ["m"]


async def test_it_can_be_cancelled_before_its_first_step(root: Path) -> None:
    async with left_half_way(root) as (node, origin):
        await node.restart()
        (job,) = node.cache.fetching.views()
        assert job.started_at is None
        async with asyncio.timeout(30.0):
            await node.cache.fetching.cancel(job.id)
        (job,) = node.cache.fetching.views()
        assert job.state == "cancelled"
        assert node.cache.fetching.running == 0
        source = origin.file("m.bin", bytes(BLOCK))
        assert (await node.cache.fetch(KEY, FetchTerms((source,), wait=30.0))).record is not None
