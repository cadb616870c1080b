"""Looks at a filesystem that has to commit first: shared, apart from all else, and bounded."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import PATIENCE
from tests.cache.node import BLOCK, STILL, Node, running, soon
from weightd.errors import InvalidRequest, IoError
from weightd.model import Key
from weightd.store import Announced, Filesystem, Ingest, Offered

CAPACITY = 10 * BLOCK
MB = 1 << 20


class Slow:
    """A filesystem that tells only at a commit what it has: a MiB less at each."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits = 0
        monkeypatch.setattr(node.store, "must_settle", True)
        monkeypatch.setattr(node.store, "filesystem", self.filesystem)

    def filesystem(self, *, settled: bool = False) -> Filesystem:
        self.commits += settled
        return Filesystem(total=1 << 40, free=(1 << 39) - self.commits * MB)


async def test_who_asks_during_a_commit_shares_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root, CAPACITY) as node:
        slow = Slow(node, monkeypatch)
        hold = node.workers.arm("filesystem", after=True)
        first = asyncio.create_task(node.cache.admission(BLOCK))
        await soon(hold.met.wait())
        others = [asyncio.create_task(node.cache.admission(BLOCK)) for _ in range(12)]
        await node.workers.disk(int)
        others[0].cancel()
        hold.let_go()
        before = await soon(first)
        verdicts = await soon(asyncio.gather(*others[1:]))
        # What was written while the first one ran may be missing in it.
        assert {before.filesystem_free - one.filesystem_free for one in verdicts} == {MB}
        assert slow.commits <= 3


async def test_nothing_else_waits_for_a_commit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        await node.cache.delete(Key("model"))
        Slow(node, monkeypatch)
        hold = node.workers.arm("filesystem", after=False)
        deciding = asyncio.create_task(node.cache.admission(BLOCK))
        await soon(hold.met.wait())
        assert node.cache._memory is not None
        await soon(node.cache._memory.flush())
        assert len((await soon(node.cache.evictions(10)))[0]) == 1
        await soon(node.sweep())
        hold.let_go()
        await soon(deciding)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_filesystem_that_does_not_answer_is_an_error_in_time(
    root: Path, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    async with running(root, CAPACITY, options=replace(STILL, look_timeout=0.01)) as node:
        if commits:
            Slow(node, monkeypatch)
        hold = node.workers.arm("filesystem", after=False)
        with pytest.raises(IoError, match=r"no answer within 0\.01 s"):
            await soon(node.cache.admission(BLOCK))
        await soon(hold.met.wait())
        hold.let_go()


async def test_a_journal_that_cannot_be_read_is_not_empty(root: Path) -> None:
    go = threading.Event()
    async with running(root, CAPACITY, options=replace(STILL, answer_timeout=0.01)) as node:
        await node.put("model", BLOCK)
        await node.cache.delete(Key("model"))
        busy = node.workers.housekeep(go.wait, PATIENCE)
        with pytest.raises(IoError, match=r"read of history.db failed: no answer within 0\.01 s"):
            await soon(node.cache.evictions(10))
        go.set()
        await busy
        node.workers.fail_call("evictions", IoError(call="read of history.db", error="bad"))
        with pytest.raises(IoError, match="bad"):
            await soon(node.cache.evictions(10))


async def test_no_lookup_waits_for_a_disk_that_hangs_under_adoptions(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(Ingest, "look_at", lambda *_: go.wait(PATIENCE))
    file = Offered(Announced("weights", BLOCK), "/nowhere/weights")
    async with running(root, CAPACITY) as node:
        await node.put("model", BLOCK)
        adopting = [
            asyncio.create_task(node.cache.adoptions.adopt(Key(f"m{number}"), [file], 0))
            for number in range(8)
        ]
        # Its files are looked at again.
        node.clock.advance(60)
        await soon(node.get("model"))
        go.set()
        ends = await soon(asyncio.gather(*adopting, return_exceptions=True))
        assert {type(end) for end in ends} == {InvalidRequest}
