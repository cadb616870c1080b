"""A filesystem that really fills, from outside and from inside."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cache.doubles import Paused, Stepwise, bytes_of
from tests.cache.node import BLOCK, STILL, Node, leave_partial, running, soon
from weightd.cache import PutTerms
from weightd.errors import Blocked, DiskFull, IoError, StateUnwritable
from weightd.model import Key
from weightd.store import Filesystem

MB = 1 << 20
DISK = 64 * MB
MIN_FREE = 8 * MB
BUDGET = 1 << 40
"""More than the disk: only the filesystem decides."""

QUICK = replace(STILL, look_apart=0.01, seen_late=0.0)

pytestmark = pytest.mark.needs("root", "mount")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def free(disk: Path) -> int:
    figures = os.statvfs(disk)
    return figures.f_bavail * figures.f_frsize


def others_take(disk: Path, size: int, name: str = "others") -> None:
    with (disk / name).open("ab") as file:
        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)


async def trim(node: Node) -> None:
    upkeep = node.cache._upkeep
    assert upkeep is not None
    await soon(upkeep._trimming.trim())


@asynccontextmanager
async def sampled(disk: Path) -> AsyncIterator[list[int]]:
    """The least that was free, looked at again and again."""
    least = [free(disk)]

    async def look() -> None:
        while True:
            least[0] = min(least[0], free(disk))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    try:
        yield least
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def arriving(node: Node, key: str, size: int) -> tuple[asyncio.Task[object], Paused]:
    body = Paused(bytes_of(key, size), size // 2)
    task: asyncio.Task[object] = asyncio.create_task(
        node.cache.put(Key(key), body, PutTerms(length=size))
    )
    await soon(body.paused.wait())
    return task, body


async def test_two_that_do_not_fit_together_are_not_both_begun(disk: Path) -> None:
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        first, body = await arriving(node, "first", 40 * MB)
        with pytest.raises(Blocked) as blocked:
            await node.put("second", 40 * MB)
        assert blocked.value.reason == "arriving"
        with pytest.raises(DiskFull):
            await node.put("never", 60 * MB)
        body.go_on()
        await soon(first)
        await node.put("second", 40 * MB)
        assert node.resident() == ["second"]


async def test_min_free_holds_throughout_many_puts_at_once(disk: Path) -> None:
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        await node.put("warm", MB)
        async with sampled(disk) as least:
            for turn in range(6):
                puts = [node.put(f"{turn}-{n}", (2 + n) * MB, wait=20.0) for n in range(5)]
                await soon(asyncio.gather(*puts))
        assert least[0] >= MIN_FREE
        assert node.cache._context.counters.evictions["admission"] > 10


async def test_victims_of_the_disk_are_gone_before_a_byte_is_written(disk: Path) -> None:
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        await node.put("warm", MB)
        await node.put("old", 50 * MB)
        async with sampled(disk) as least:
            await node.put("new", 50 * MB)
        assert least[0] >= MIN_FREE
        assert node.resident() == ["new"]


async def test_others_that_fill_the_disk_cost_the_idlest_and_no_more(disk: Path) -> None:
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        for name in "abcdef":
            await node.put(name, 8 * MB)
        others_take(disk, 12 * MB)
        await trim(node)
        await node.quiet()
        assert free(disk) >= MIN_FREE
        assert node.resident() == ["b", "c", "d", "e", "f"]
        others_take(disk, 8 * MB)
        await trim(node)
        await node.quiet()
        assert free(disk) >= MIN_FREE
        assert node.resident() == ["c", "d", "e", "f"]
        assert node.cache._context.counters.evictions["disk"] == 2
        await trim(node)
        assert node.resident() == ["c", "d", "e", "f"]


async def test_what_unfinished_fetches_left_goes_before_any_model(disk: Path) -> None:
    for name, age in (("younger", 100.0), ("older", 200.0)):
        await leave_partial(disk / "root", name, 8 * MB // BLOCK, age)
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        for name in "abcd":
            await node.put(name, 8 * MB)
        for taken, left, models in ((12, 1, "abcd"), (8, 0, "abcd"), (8, 0, "bcd")):
            others_take(disk, taken * MB)
            await trim(node)
            await node.quiet()
            assert free(disk) >= MIN_FREE
            assert [str(one.stored.key) for one in node.cache._context.partials] == (
                ["younger"] * left
            )
            assert node.resident() == list(models)


async def test_what_was_freed_and_is_not_seen_yet_costs_nobody(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a filesystem that shows what was unlinked seconds later."""
    options = replace(QUICK, seen_late=3600.0)
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=options) as node:
        for name in "abcdef":
            await node.put(name, 8 * MB)
        filesystem = node.store.filesystem
        others_take(disk, 6 * MB)
        before = filesystem()
        await node.cache.delete(Key("a"))
        await node.quiet()
        monkeypatch.setattr(node.store, "filesystem", lambda **_: before)
        await trim(node)
        assert node.resident() == ["b", "c", "d", "e", "f"]


async def test_an_arrival_that_others_left_no_room_for_is_refused(disk: Path) -> None:
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        await node.put("pinned", 10 * MB)
        await node.cache.pin("replica", Key("pinned"))
        coming, body = await arriving(node, "coming", 40 * MB)
        others_take(disk, 10 * MB)
        await trim(node)
        body.go_on()
        with pytest.raises(DiskFull) as full:
            await soon(coming)
        assert full.value.others >= 10 * MB
        assert node.resident() == ["pinned"]
        assert node.cache._context.counters.rejections["disk-full"] == 1


async def test_what_is_written_while_the_disk_is_asked_is_not_counted_twice(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a filesystem that has to commit first, which takes seconds."""
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        await node.put("idle", 16 * MB)
        body = Stepwise(bytes_of("coming", 32 * MB))
        terms = PutTerms(length=32 * MB)
        coming = asyncio.create_task(node.cache.put(Key("coming"), body, terms))
        await soon(asyncio.to_thread(body.bring, MB))
        filesystem, looks = node.store.filesystem, iter((8 * MB, 8 * MB, 8 * MB, 6 * MB))

        def slow(*, settled: bool = False) -> Filesystem:
            if step := next(looks, 0):
                body.bring(step)
            return filesystem(settled=settled)

        monkeypatch.setattr(node.store, "filesystem", slow)
        # Both looks of it, and both of the next: promised, and granted at the second attempt.
        await trim(node)
        await soon(node.put("small", 2 * MB))
        body.finish()
        await soon(coming)
        assert node.resident() == ["coming", "idle", "small"]
        assert free(disk) >= MIN_FREE


async def test_what_the_disk_cannot_keep_of_a_promise_costs_the_idlest(
    disk: Path,
) -> None:
    async with running(disk / "root", BUDGET, min_free=MIN_FREE, options=QUICK) as node:
        for name in ("idle", "kept"):
            await node.put(name, 16 * MB)
        hold = node.workers.arm("filesystem", after=True)
        coming = asyncio.create_task(node.put("coming", 16 * MB))
        await soon(hold.met.wait())
        others_take(disk, 12 * MB)
        hold.let_go()
        await soon(coming)
        assert node.resident() == ["coming", "kept"]
        assert free(disk) >= MIN_FREE
        assert node.cache._context.counters.evictions["disk"] == 1


async def test_a_put_that_meets_a_full_disk_is_disk_full(disk: Path) -> None:
    async with running(disk / "root", BUDGET, options=QUICK) as node:
        coming, body = await arriving(node, "coming", 40 * MB)
        others_take(disk, free(disk))
        body.go_on()
        with pytest.raises(DiskFull):
            await soon(coming)
        await node.quiet()
        assert node.usage.reserved == 0
        os.unlink(disk / "others")
        await node.put("coming", 40 * MB)


async def test_a_completely_full_disk_answers_and_recovers(disk: Path) -> None:
    """A pin that cannot be written is refused; deleting gives room, and all works again."""
    async with running(disk / "root", BUDGET, options=QUICK) as node:
        for name in ("a", "b"):
            await node.put(name, 8 * MB)
        others_take(disk, free(disk))
        assert free(disk) == 0
        # What fits into blocks that are there already may succeed; nothing else is raised.
        with suppress(StateUnwritable):
            await soon(node.cache.pin("replica", Key("a")))
        with suppress(IoError):
            await soon(node.cache.delete(Key("b")))
        os.unlink(disk / "others")
        await soon(node.cache.pin("replica", Key("a")))
        await node.put("c", 8 * MB)
        assert "c" in node.resident()


async def test_a_full_disk_at_publication_is_disk_full(disk: Path) -> None:
    async with running(disk / "root", BUDGET, options=QUICK) as node:
        hold = node.workers.arm("publish", after=False)
        coming = asyncio.create_task(node.put("coming", 8 * MB))
        await soon(hold.met.wait())
        others_take(disk, free(disk))
        hold.let_go()
        with pytest.raises(DiskFull):
            await soon(coming)
        assert node.resident() == []
        os.unlink(disk / "others")
        await node.put("coming", 8 * MB)
        assert not os.listdir(disk / "root" / "incoming")
