"""What goes on by itself, and what must not wait for it: loops, threads, bounds."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import PATIENCE
from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.cache import evictions
from weightd.cache.health import FAILURES_MAX, WITHIN_SECONDS, Health
from weightd.cache.upkeep import supervised
from weightd.errors import IoError, StateUnwritable
from weightd.model import Key

CAPACITY = 10 * BLOCK
KEY = Key("model")


@pytest.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    async with running(root, CAPACITY) as opened:
        yield opened


# -- Loops -------------------------------------------------------------------------


async def test_a_loop_that_fails_unexpectedly_goes_on(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = replace(STILL, loop_pause=0.0)
    async with running(root, CAPACITY, options=options) as node:
        context, begun = node.cache._context, asyncio.Event()
        left = FAILURES_MAX

        async def loop() -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                raise RuntimeError("nobody expected this")
            begun.set()
            await asyncio.Event().wait()

        assert node.cache.pulse.trouble is None
        running_loop = context.tasks.spawn(supervised("a loop", loop, context), "trim")
        await soon(begun.wait())
        running_loop.cancel()
        assert "(a loop)" in str(node.cache.pulse.trouble)
        assert caplog.text.count("RuntimeError: nobody expected this") == FAILURES_MAX


def test_a_loop_that_failed_long_ago_is_well() -> None:
    now = 0.0
    health = Health(lambda: now)
    for _ in range(FAILURES_MAX):
        assert not health.ailing
        health.failed("sweep")
    assert list(health.ailing) == ["sweep"]
    now += WITHIN_SECONDS + 1
    assert not health.ailing


async def test_an_unlink_that_fails_unexpectedly_is_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(STILL, loop_pause=0.0, unlink_retry=0.0)
    async with running(root, CAPACITY, options=options) as node:
        unlink, failed = node.store.unlink, threading.Event()

        def fail_once(*args: object) -> int:
            if not failed.is_set():
                failed.set()
                raise RuntimeError("nobody expected this")
            return unlink(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(node.store, "unlink", fail_once)
        await node.put("model", 2 * BLOCK)
        await node.cache.delete(KEY)
        await soon(node.quiet())
        assert failed.is_set()


# -- Threads -----------------------------------------------------------------------


async def test_no_lookup_waits_behind_a_flush_or_a_search(node: Node) -> None:
    await node.put("model", BLOCK)
    go = threading.Event()
    workers = node.workers
    calls = (workers.commit, workers.seize, workers.housekeep)
    busy = [call(go.wait, PATIENCE) for call in calls for _ in range(8)]
    try:
        await soon(node.get("model"))
        assert (await soon(node.cache.snapshot())).models == 1
        async with node.cache.content(KEY, "model"):
            pass
    finally:
        go.set()
        await asyncio.gather(*busy)


# -- Bounds ------------------------------------------------------------------------


async def test_a_disk_that_hangs_is_answered_in_time(root: Path) -> None:
    options = replace(STILL, settle_timeout=0.01, answer_timeout=0.01)
    async with running(root, CAPACITY, options=options) as node:
        await node.put("model", BLOCK)
        hold = node.workers.arm("doom", after=False)
        deleting = asyncio.create_task(node.cache.delete(KEY))
        await soon(hold.met.wait())
        with pytest.raises(IoError, match=r"within 0\.01 s"):
            await soon(node.get("model"))
        hold.let_go()
        await deleting
        hold = node.workers.arm("filesystem", after=False)
        with pytest.raises(IoError, match=r"no answer within 0\.01 s"):
            await soon(node.cache.snapshot())
        hold.let_go()


async def test_a_pin_that_the_disk_does_not_take_is_refused_in_time_and_stands(
    root: Path,
) -> None:
    go = threading.Event()

    def reach(name: str) -> None:
        if name == "pin.before-commit":
            assert go.wait(PATIENCE)

    options = replace(STILL, pin_timeout=0.01)
    async with running(root, CAPACITY, options=options, reach=reach) as node:
        await node.put("model", BLOCK)
        with pytest.raises(StateUnwritable, match="no answer from the disk"):
            await soon(node.cache.pin("replica", KEY))
        assert node.usage.pins == 1
        go.set()
        await node.quiet()
        await node.restart()
        assert [view.holder for view in node.cache.pins()] == ["replica"]


async def test_an_end_does_not_wait_for_all_that_is_being_unlinked(root: Path) -> None:
    met, go = threading.Event(), threading.Event()

    def reach(name: str) -> None:
        if name == "unlink.file-removed" and not met.is_set():
            met.set()
            assert go.wait(PATIENCE)

    files = {f"{number}": b"1" for number in range(8)}
    async with running(root, 16 * BLOCK, reach=reach) as node:
        await node.put_tar("model", files)
        await node.cache.delete(KEY)
        assert await asyncio.to_thread(met.wait, PATIENCE)
        closing = asyncio.create_task(node.cache.close())
        while not node.cache._evictions._stopping:
            await asyncio.sleep(0)
        go.set()
        await soon(closing)
        left = [name for _, _, names in os.walk(root / "doomed") for name in names]
        assert left
        await node.restart()
        await soon(node.quiet())


# -- History -----------------------------------------------------------------------


async def test_the_journal_is_told_though_it_cannot_be_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        await node.put(f"m{number}", BLOCK)
    for number in range(2):
        await node.cache.delete(Key(f"m{number}"))
    assert node.cache._memory is not None
    await node.cache._memory.flush()

    def full(*args: object) -> None:
        raise IoError(call="use of history.db", error="database or disk is full")

    monkeypatch.setattr(node.cache._memory._database, "flush", full)
    for number in range(2, 4):
        await node.cache.delete(Key(f"m{number}"))
    with pytest.raises(IoError):
        await node.cache._memory.flush()
    page, following = await node.cache.evictions(3)
    assert [str(one.key) for one in page] == ["m1", "m2", "m3"]
    assert following is None
    page, following = await node.cache.evictions(3, 0)
    assert [str(one.key) for one in page] == ["m0", "m1", "m2"]
    assert following == page[-1].sequence
    monkeypatch.undo()


async def test_what_is_to_be_forgotten_is_bounded_and_forgotten_after_a_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions, "GONE_PENDING_MAX", 2)
    async with running(root, CAPACITY) as node:
        for number in range(4):
            await node.put(f"m{number}", BLOCK)
        assert node.cache._memory is not None
        await node.cache._memory.flush()
        for number in range(4):
            await node.cache.delete(Key(f"m{number}"))
        assert [str(id.key) for id in node.cache._evictions.gone] == ["m2", "m3"]
        await node.restart()
        assert node.cache._memory is not None
        await node.cache._memory.flush()
        assert not await asyncio.to_thread(node.cache._memory._database.load)


async def test_the_filesystem_is_asked_once_for_a_snapshot(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    filesystem = node.store.filesystem

    def count() -> object:
        nonlocal asked
        asked += 1
        return filesystem()

    monkeypatch.setattr(node.store, "filesystem", count)
    await node.cache.snapshot()
    assert asked == 1
