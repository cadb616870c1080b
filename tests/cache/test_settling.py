"""No promise is made of a victim's bytes while it may still come back.

The victims here are in real use: open, mapped or held by a process, so that the
kernel refuses their seizure.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cache.doubles import Hold
from tests.cache.node import BLOCK, Node, decides_between_batches, running, soon
from weightd.cache import context, sweep
from weightd.errors import Blocked, InUse
from weightd.model import Key

Use = Callable[[Path], AbstractContextManager[object]]

CAPACITY = 10 * BLOCK


@contextmanager
def opened(path: Path) -> Iterator[None]:
    descriptor = os.open(path / "used", os.O_RDONLY)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """As safetensors does: the descriptor is closed, the mapping stays."""
    with (path / "used").open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    try:
        yield
    finally:
        mapping.close()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """As ``flock -s PATH command`` does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def mapped_by_a_child(path: Path) -> Iterator[None]:
    program = (
        "import mmap, sys\n"
        "file = open(sys.argv[1], 'rb')\n"
        "mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "file.close()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path / "used")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            child.stdin.close()
            child.wait()


USES: list[Use] = [opened, mapped, held, mapped_by_a_child]


@pytest.fixture(params=USES, ids=lambda use: use.__name__)
def use(request: pytest.FixtureRequest) -> Use:
    chosen: Use = request.param
    return chosen


async def filled(node: Node) -> Path:
    """``used`` is the idlest, ``spare`` the next; two blocks are free."""
    used = await node.put("used", 4 * BLOCK)
    await node.put("spare", 4 * BLOCK)
    return used.record.path


async def test_a_victim_in_use_is_passed_over(root: Path, use: Use) -> None:
    async with running(root, CAPACITY) as node:
        with use(await filled(node)):
            await node.put("new", 4 * BLOCK)
            assert node.resident() == ["new", "used"]


async def test_nothing_moves_when_no_plan_is_left(root: Path, use: Use) -> None:
    async with running(root, CAPACITY) as node:
        with use(await filled(node)):
            with pytest.raises(Blocked) as blocked:
                await node.put("new", 8 * BLOCK)
            assert blocked.value.reason == "pins"
            assert node.resident() == ["spare", "used"]
            await node.get("spare")
            await node.get("used")
            with pytest.raises(InUse):
                await node.cache.delete(Key("used"))
        await node.ask_again()
        await node.put("new", 8 * BLOCK)
        assert node.resident() == ["new"]


async def test_no_promise_is_made_of_bytes_whose_seizure_is_refused(root: Path, use: Use) -> None:
    """While it is decided, another arrival that its bytes would let in waits for the outcome."""
    async with running(root, CAPACITY) as node:
        with use(await filled(node)):
            # The statvfs of the first arrival, then its seizure.
            hold = node.workers.arm(2, after=False)
            first = asyncio.create_task(node.put("first", 9 * BLOCK))
            await soon(hold.met.wait())
            assert node.cache.audit().settling
            others = [
                asyncio.create_task(node.put("second", 2 * BLOCK)),
                asyncio.create_task(node.put("third", 6 * BLOCK)),
                asyncio.create_task(node.cache.admission(2 * BLOCK)),
            ]
            lookups = [
                asyncio.create_task(node.get("used")),
                asyncio.create_task(node.get("spare")),
            ]
            for _ in range(5):
                await node.workers.disk(int)
            assert not any(task.done() for task in (*others, *lookups))
            assert node.usage.arrivals == 1
            hold.let_go()
            with pytest.raises(Blocked):
                await soon(first)
            # Neither was gone, so neither is a miss.
            for lookup in lookups:
                await soon(lookup)
            await soon(asyncio.wait(others))
            usage = node.usage
            assert usage.resident + usage.retired + usage.reserved <= CAPACITY
            assert "used" in node.resident()


async def test_a_predecessor_in_use_is_retired(root: Path, use: Use) -> None:
    async with running(root, CAPACITY) as node:
        old = await node.put("used", 4 * BLOCK, "old")
        with use(old.record.path):
            new = await node.put("used", 4 * BLOCK, "new")
            assert await node.get("used") == new.record.path
            assert old.record.path.exists()
            assert (old.record.path.parent / "superseded").exists()
            assert node.usage.retired == 4 * BLOCK
            await node.ask_again()
            assert node.usage.retired == 4 * BLOCK
        await node.ask_again()
        await node.quiet()
        assert not old.record.path.exists()
        assert node.usage.retired == 0


async def test_bytes_of_a_doomed_file_count_until_it_is_closed(root: Path) -> None:
    """Somebody opens a file between its seizure and its unlinking."""
    async with running(root, CAPACITY) as node:
        await node.put("used", 8 * BLOCK)
        hold = Hold()
        unlinks = node.workers._inner._unlinks
        holding = unlinks.submit(hold.meet)
        await soon(hold.met.wait())
        await node.cache.delete(Key("used"))
        (file,) = (node.root / "doomed").glob("*/used/used")
        with file.open("rb"):
            hold.let_go()
            await asyncio.wrap_future(holding)
            await asyncio.wrap_future(unlinks.submit(int))
            assert node.usage.doomed == 8 * BLOCK
            waiting = asyncio.create_task(node.put("new", 8 * BLOCK))
            while node.usage.reserved == 0:
                await node.workers.disk(int)
            assert not waiting.done()
        await soon(waiting)
        assert node.resident() == ["new"]


async def test_a_seizure_that_begins_while_the_filesystem_is_asked(root: Path) -> None:
    """What was asked before is not decided on while the victims may still come back."""
    async with running(root, CAPACITY) as node:
        with opened(await filled(node)):
            asking = node.workers.arm("filesystem", after=True)
            second = asyncio.create_task(node.put("second", BLOCK))
            await soon(asking.met.wait())
            seizing = node.workers.arm("doom", after=False)
            first = asyncio.create_task(node.put("first", 9 * BLOCK))
            await soon(seizing.met.wait())
            asking.let_go()
            for _ in range(5):
                await node.workers.disk(int)
            assert not second.done()
            assert node.usage.arrivals == 1
            seizing.let_go()
            with pytest.raises(Blocked):
                await soon(first)
            await soon(second)
            assert node.resident() == ["second", "spare", "used"]


async def test_retired_models_that_one_process_lets_go_stop_no_admission(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "PAUSE", 0.0)
    monkeypatch.setattr(sweep, "BATCH", 2)
    async with running(root, CAPACITY) as node:
        with ExitStack() as holds:
            for name in "abcde":
                old = await node.put(name, BLOCK, "old")
                holds.enter_context(held(old.record.path))
                await node.put(name, BLOCK, "new")
        hold = node.workers.arm("doom", after=False)
        looking = asyncio.create_task(node.ask_again())
        await decides_between_batches(node, hold, 2)
        await soon(looking)
        assert node.usage.retired_models == 0
