"""Reading a model into memory: what it says is there, and whom it leaves alone."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache.records import Event, WarmView
from weightd.errors import Draining, NotResident, TooMany
from weightd.model import Key
from weightd.store import pages, warm

CAPACITY = 2000 * BLOCK
KEY = Key.parse("org/model")


async def a_model(node: Node, size: int = 3 * BLOCK) -> Path:
    record = (await node.put("org/model", size)).record
    path = Path(record.path)
    assert await asyncio.to_thread(forgotten, path)
    return path


def forgotten(path: Path) -> bool:
    """Have the kernel forget the pages of a model's files."""
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return True


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 300 * BLOCK + 17])
async def test_what_was_read_is_there(
    root: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several steps of each kind, the last of them shorter.
    monkeypatch.setattr(warm, "STEP_BYTES", 64 * BLOCK)
    monkeypatch.setattr(warm, "COUNT_BYTES", 128 * BLOCK)
    async with running(root, CAPACITY) as node:
        await a_model(node, size)
        warmed = await soon(node.cache.warmings.warm(KEY))
        assert (warmed.bytes, warmed.cached) == (size, size)
        counted = node.cache._context.counters.lookups
        assert (counted["hit"], counted["miss"]) == (0, 0)


async def test_what_memory_let_go_is_not_there(root: Path) -> None:
    """The count is the kernel's own: of pages dropped between the reading and it, none."""
    async with running(root, CAPACITY) as node:
        path = await a_model(node, 10 * BLOCK)
        (file,) = path.iterdir()
        descriptor = os.open(file, os.O_RDONLY)
        try:
            assert pages.cached(descriptor, 0, 10 * BLOCK) == 0
            os.pread(descriptor, 1, 0)
            assert BLOCK <= pages.cached(descriptor, 0, 10 * BLOCK) <= 10 * BLOCK
        finally:
            os.close(descriptor)


async def test_what_is_not_here(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        with pytest.raises(NotResident):
            await node.cache.warmings.warm(KEY)


@pytest.mark.parametrize("how", ["deleted", "evicted"])
async def test_it_keeps_the_model_from_nothing(root: Path, how: str) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("warm", after=False)
        warming = asyncio.create_task(node.cache.warmings.warm(KEY))
        await soon(hold.met.wait())
        if how == "deleted":
            await soon(node.cache.delete(KEY))
        else:
            await soon(node.put("large", CAPACITY))
        hold.let_go()
        with pytest.raises(NotResident):
            await soon(warming)


async def test_a_file_that_is_shorter_makes_it_a_miss(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        path = await a_model(node)
        hold = node.workers.arm("warm", after=False)
        warming = asyncio.create_task(node.cache.warmings.warm(KEY))
        await soon(hold.met.wait())
        (file,) = path.iterdir()
        os.truncate(file, 10)
        hold.let_go()
        with pytest.raises(NotResident):
            await soon(warming)
        with pytest.raises(NotResident):
            await node.cache.get(KEY)


async def test_it_ends_with_who_asked_and_with_the_daemon(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        for end in ("cancelled", "drained"):
            hold = node.workers.arm("warm", after=False)
            warming = asyncio.create_task(node.cache.warmings.warm(KEY))
            await soon(hold.met.wait())
            if end == "cancelled":
                warming.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await soon(warming)
            else:
                node.cache.drain()
                with pytest.raises(Draining):
                    await soon(warming)
            hold.let_go()
        with pytest.raises(Draining):
            await node.cache.warmings.warm(KEY)


async def test_so_many_wait_for_their_turn_and_no_more(root: Path) -> None:
    async with running(root, CAPACITY, options=replace(STILL, warmings=1)) as node:
        await a_model(node)
        hold = node.workers.arm("warm", after=False)
        first = asyncio.create_task(node.cache.warmings.warm(KEY))
        await soon(hold.met.wait())
        second = asyncio.create_task(node.cache.warmings.warm(KEY))
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await node.cache.warmings.warm(KEY)
        hold.let_go()
        assert (await soon(first)).cached == (await soon(second)).cached == 3 * BLOCK


async def test_it_is_told_as_it_goes(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("warm", after=False)
        first = asyncio.create_task(node.cache.warmings.warm(KEY))
        await soon(hold.met.wait())
        async with aclosing(await soon(node.cache.warmings.begin(KEY))) as lines:
            assert told(await soon(anext(lines)))[:2] == ("progress", "queued")
            hold.let_go()
            *_, last = [line async for line in lines]
        assert last is not None
        assert told(last) == ("end", "ended", 3 * BLOCK, 3 * BLOCK, 3 * BLOCK)
        assert last.data["outcome"] == "warm"
        await soon(first)


def told(event: Event | None) -> tuple[str, str, int, int, int | None]:
    assert event is not None
    view = event.data["warming"]
    assert isinstance(view, WarmView)
    return event.type, view.state, view.bytes_done, view.bytes_total, view.cached


@pytest.mark.parametrize("end", ["deleted", "drained"])
async def test_how_it_ended_is_told(root: Path, end: str) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        hold = node.workers.arm("warm", after=False)
        async with aclosing(await node.cache.warmings.begin(KEY)) as lines:
            await soon(hold.met.wait())
            if end == "deleted":
                await soon(node.cache.delete(KEY))
            else:
                node.cache.drain()
            hold.let_go()
            *_, last = [line async for line in lines]
        assert last is not None
        view = last.data["warming"]
        assert isinstance(view, WarmView)
        assert last.data["outcome"] == ("failed" if end == "deleted" else "draining")
        assert isinstance(view.error, NotResident) == (end == "deleted")


async def test_one_that_nobody_follows_any_more_ends(root: Path) -> None:
    async with running(root, CAPACITY) as node:
        await a_model(node)
        with pytest.raises(NotResident):
            await node.cache.warmings.begin(Key("another"))
        hold = node.workers.arm("warm", after=False)
        lines = await node.cache.warmings.begin(KEY)
        await soon(hold.met.wait())
        await lines.aclose()
        hold.let_go()
        assert (await soon(node.cache.warmings.warm(KEY))).cached == 3 * BLOCK
